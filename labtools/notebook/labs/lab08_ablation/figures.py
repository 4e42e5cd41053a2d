"""The drawing of lab 8: pairs of methods that interact."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from labtools.optimize.attribution import Interaction

from ...figures import ORANGE, SHADES, Axes, draw_picture
from ...tables import Shown
from .panels import say_percent

_TICKS = (1, 1.5, 2, 3, 5, 10, 20)


def draw_pairs(found: Sequence[Interaction], caption: str) -> Shown:
    """For each pair the time without both, as recorded, beside the product of what each removal
    costs alone; both over the time with all methods."""
    names = [" and ".join(_short(one) for one in pair.methods) for pair in found]

    def paint(axes: Axes) -> None:
        for row, pair in enumerate(found):
            ends = 1 + pair.product, 1 + pair.together
            axes.plot(ends, (row, row), color=SHADES[2], linewidth=4, zorder=1)
            for at, mark, face, label in zip(
                ends, "os", ("white", ORANGE), ("product", "both out"), strict=True
            ):
                look: dict[str, Any] = {"marker": mark, "color": SHADES[0], "linestyle": "none"}
                axes.plot(at, row, markerfacecolor=face, label=None if row else label, **look)
        axes.set_xscale("log")
        most = max(1 + max(pair.product, pair.together) for pair in found)
        ticks = [tick for tick in _TICKS if tick <= 1.2 * most]
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
        axes.set_yticks(range(len(found)), [name.replace(" and ", "\nand ") for name in names])
        axes.set_ylim(len(found) - 0.5, -0.5)
        axes.set_xlabel("times as long as with all methods")
        axes.legend(loc="lower right", fontsize=9)

    told = "; ".join(
        f"{name}: product {say_percent(pair.product)}, both {say_percent(pair.together)}"
        for name, pair in zip(names, found, strict=True)
    )
    alt = f"What taking out two methods costs, beside the product of each alone. {told}."
    return draw_picture(paint, alt, caption, "recorded", size=(4.9, 2.9))


def _short(method: str) -> str:
    """The name of a method without its axis."""
    return method.split(".")[1].replace("_", " ")
