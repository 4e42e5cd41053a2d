"""The frontier of a loop on several workloads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...figures import LINES, SHADES, Axes, draw_picture
from ...tables import Shown

_TICKS = (1, 1.1, 1.2, 1.5, 2, 3, 5, 10)
_ASIDE = 0.07
"""Entries stand beside each other, so that none covers another."""


def draw_frontier(
    times_us: Sequence[Sequence[float]], workloads: Sequence[str], caption: str
) -> Shown:
    """A line for each entry over the workloads, numbered from 1: its time, microseconds, over that
    of the fastest entry there. ``times_us`` has a row for each entry."""
    fastest = [min(column) for column in zip(*times_us, strict=True)]
    over = [[us / low for us, low in zip(row, fastest, strict=True)] for row in times_us]

    def paint(axes: Axes) -> None:
        for number, row in enumerate(over):
            aside = _ASIDE * (number - (len(over) - 1) / 2)
            places = [place + aside for place in range(len(workloads))]
            line = {"linestyle": LINES[number % len(LINES)], "color": SHADES[number % 2]}
            look: dict[str, Any] = {"marker": f"${number + 1}$", "markersize": 9, **line}
            axes.plot(places, row, **look)
        most = max(map(max, over))
        ticks = [tick for tick in _TICKS if tick <= 1.1 * most]
        axes.set_yscale("log")
        axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.set_ylim(0.97, 1.1 * most)
        axes.minorticks_off()
        axes.set_xticks(range(len(workloads)), workloads)
        axes.set_ylabel("times the fastest entry there")

    told = "; ".join(
        f"entry {number}: {', '.join(f'{us:.1f} us' for us in row)}"
        for number, row in enumerate(times_us, start=1)
    )
    alt = f"A line for each entry of the frontier over {', '.join(workloads)}. {told}."
    return draw_picture(paint, alt, caption, "recorded", size=(4.9, 3.2))
