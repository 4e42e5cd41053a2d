"""How far off a guess may be: the scale of the scores."""

from __future__ import annotations

from typing import Any

from labtools.record.prediction import MISUNDERSTOOD, MISUNDERSTOOD_FROM, SAME_WITHIN, SIZES

from ...figures import AMBER, GREEN, SHADES, Axes, draw_picture
from ...tables import Shown

_BANDS = (GREEN, SHADES[3], SHADES[2], AMBER, SHADES[1])


def score_bands() -> list[tuple[float, float, str]]:
    """Low and high end of each band of a score, and what is said there; the last has no end."""
    ends = [1.0, *(most for most, _, _ in SIZES)]
    said = [words.removeprefix(": ") for _, _, words in SIZES]
    bands = list(zip(ends, ends[1:], said, strict=False))
    return [*bands, (MISUNDERSTOOD_FROM, float("inf"), MISUNDERSTOOD.partition(", so ")[2])]


def draw_score() -> Shown:
    """The scale of `labtools.record.prediction.score`: larger over smaller of the guessed and the
    measured factor, a bar for each band of it.
    """
    bands = score_bands()
    right = 2 * MISUNDERSTOOD_FROM

    def paint(axes: Axes) -> None:
        for row, (low, high, _) in enumerate(bands):
            look: dict[str, Any] = {"color": _BANDS[row], "edgecolor": SHADES[0], "linewidth": 0.8}
            axes.barh(row, min(high, right) - low, left=low, height=0.7, **look)
        axes.set_xscale("log", base=2)
        axes.set_xlim(1, right)
        ends = [low for low, _, _ in bands[1:]]
        axes.set_xticks(ends, [f"{end:g}x" for end in ends], fontsize=8)
        axes.minorticks_off()
        axes.set_yticks(range(len(bands)), [said for _, _, said in bands], fontsize=9)
        axes.tick_params(axis="y", length=0)
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
        axes.set_xlabel("off by a factor of")

    told = "; ".join(
        f"from {low:g}x" + ("" if high == float("inf") else f" to {high:g}x") + f" {said}"
        for low, high, said in bands
    )
    caption = f"A ratio within {SAME_WITHIN - 1:.0%} of 1 counts as the same."
    return draw_picture(paint, f"The scale of scores: {told}.", caption, size=(4.9, 2.3))
