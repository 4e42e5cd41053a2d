"""Drawings of how the loop works; only the published group has numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from labtools.optimize.state import STEPS

from ...figures import BLUE, ORANGE, SHADES, Axes, draw_picture
from ...tables import Shown

_METHODS = ("A", "B", "C")
_WORDS = {
    "gaps": "what of the GPU\nis idle",
    "budget": "slots for\neach axis",
    "pick": "methods by\nfour checks",
    "branch": "settings of them,\nchecked and timed",
    "ablate": "one method out\nat a time",
    "check": "is it in the\nmachine code",
    "update": "class each,\nkeep the rest",
}
"""What each step of a round is, in a few words."""


def draw_group(gains_ms: Mapping[str, float], classes: Mapping[str, str]) -> Shown:
    """What each method of the published example gains alone, milliseconds as claimed, with the
    class that the verdict on the group gives it, and what they gain together."""
    rows = {**gains_ms, "together": sum(gains_ms.values())}
    said = {name: f"{ms:+.1f} ms {classes.get(name, '')}".strip() for name, ms in rows.items()}

    def paint(axes: Axes) -> None:
        for row, (name, ms) in enumerate(rows.items()):
            colour = ORANGE if ms < 0 else SHADES[2] if name in gains_ms else BLUE
            axes.barh(row, ms, color=colour, edgecolor=SHADES[0], height=0.62)
            axes.text(max(ms, 0) + 0.06, row, said[name], va="center", fontsize=9)
        axes.axvline(0, color=SHADES[0], linewidth=1)
        axes.set_yticks(range(len(rows)), list(rows))
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xlim(min(rows.values()) - 0.2, 1.5 * max(rows.values()))
        axes.set_xlabel("gain alone, ms")
        axes.grid(axis="y", visible=False)

    alt = "What each method gains: " + "; ".join(f"{n} {text}" for n, text in said.items()) + "."
    caption = "What three methods gain, and the verdict on each"
    return draw_picture(paint, alt, caption, "claimed", size=(4.9, 2.1))


def ablation_drawing() -> Shown:
    """The champion with its methods, and the three kernels that lack one each."""

    def paint(axes: Axes) -> None:
        for row, left_out in enumerate((None, *_METHODS)):
            name = "champion" if left_out is None else f"without {left_out}"
            axes.text(-0.3, row, name, ha="right", va="center")
            for place, method in enumerate(_METHODS):
                look = ("white", "--", "") if method == left_out else (SHADES[2], "-", method)
                colour, line, text = look
                style: dict[str, Any] = {"color": colour, "linestyle": line, "height": 0.62}
                axes.barh(row, 0.9, left=place, edgecolor=SHADES[0], **style)
                axes.text(place + 0.45, row, text, ha="center", va="center")
            worth = f"less that time: what {left_out} is worth" if left_out else "time with all"
            axes.text(3.2, row, worth, va="center")
        axes.set_xlim(-1.6, 6.2)
        axes.set_ylim(3.6, -0.6)
        axes.axis("off")

    return draw_picture(
        paint,
        "Four kernels. The champion has the methods A, B and C. Each of the other three lacks one. "
        "The time of such a kernel less the champion's is what the missing method is worth.",
        "One method out at a time: four kernels, timed side by side",
        size=(7.2, 2.0),
    )


def loop_drawing() -> Shown:
    """The steps of a round, one below the other and back, and beside them the log."""
    steps = {step: _WORDS[step] for step in STEPS}

    def paint(axes: Axes) -> None:
        line = {"arrowstyle": "->", "color": SHADES[0]}
        dotted = {**line, "linestyle": "dotted"}
        last = len(steps) - 1
        box = {"boxstyle": "round,pad=0.3", "facecolor": "white", "edgecolor": SHADES[0]}
        middle: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 9}
        for n, (step, words) in enumerate(steps.items()):
            axes.text(0, n, f"{n + 1}. {step}\n{words}", bbox=box, **middle)
            if n < last:
                axes.annotate("", (0, n + 0.67), xytext=(0, n + 0.35), arrowprops=line)
            axes.annotate("", (1.2, n), xytext=(0.78, n), arrowprops=dotted)
        axes.plot([-0.78, -1, -1], [last, last, 0], color=SHADES[0], linewidth=1)
        axes.annotate("", (-0.72, 0), xytext=(-1, 0), arrowprops=line)
        axes.fill_between([1.22, 2.2], -0.4, last + 0.4, facecolor=SHADES[3], edgecolor=SHADES[0])
        words = "the log:\nevery\nmeasurement\nand every\nstep, written\nbefore it\ncounts"
        axes.text(1.71, last / 2, words, **middle)
        axes.set_xlim(-1.1, 2.25)
        axes.set_ylim(last + 0.5, -0.5)
        axes.axis("off")

    told = ", ".join(f"{step} ({words.replace(chr(10), ' ')})" for step, words in steps.items())
    return draw_picture(
        paint,
        f"Steps one after the other: {told}; then the next round begins. Beside them stands the "
        "log, to which every measurement and every step is written before it counts.",
        "A round of the loop",
        size=(3.7, 5.6),
    )
