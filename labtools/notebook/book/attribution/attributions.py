"""What single methods are worth, on a page: a figure with the intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from labtools.optimize.attribution import Attribution, Decision

from ...figures import SHADES, Axes, draw_picture
from ...tables import Shown

LINEAR_TO = 0.02
"""The figure's scale is linear to here, on both sides, and logarithmic beyond."""
_TICKS = (-0.5, -0.1, -0.02, 0.0, 0.02, 0.1, 0.5, 2.0, 10.0)
_MOST_DIGITS = 4
_SAID: Mapping[Decision | None, str]
_SAID = {"above": "counts", "below": "does not count", None: "undecided"}


def say_interval_pct(one: Attribution) -> str:
    """The 95 % interval of a method's relative effect, in percent, on one line. An end that would
    read as the threshold with either sign, and is not, has more digits."""
    digits = _digits(one)
    return f"{100 * one.low:+.{digits}f}\u00a0to\u00a0{100 * one.high:+.{digits}f}"


def _digits(one: Attribution) -> int:
    """Decimals of a percentage that tell an interval's ends from the threshold, of either sign."""
    ends = [end for end in map(abs, (one.low, one.high)) if end != one.threshold]
    for digits in range(1, _MOST_DIGITS):
        shown = f"{100 * one.threshold:.{digits}f}"
        if all(f"{100 * end:.{digits}f}" != shown for end in ends):
            return digits
    return _MOST_DIGITS


def attributions_figure(found: Sequence[Attribution], word: str, caption: str) -> Shown:
    """Each method's effect with its interval, beside the threshold; hollow where undecided."""

    def paint(axes: Axes) -> None:
        for row, one in enumerate(found):
            axes.plot([one.low, one.high], [row, row], color=SHADES[0], linewidth=2)
            face = SHADES[0] if one.decided else "white"
            axes.plot(one.relative, row, "o", markerfacecolor=face, markeredgecolor=SHADES[0], ms=6)
            axes.plot([one.threshold] * 2, [row - 0.5, row + 0.5], ":", color=SHADES[0])
        axes.axvline(0, color=SHADES[1], linewidth=1)
        axes.set_xscale("symlog", linthresh=LINEAR_TO, linscale=1.5)
        ends = [end for one in found for end in (one.low, one.high, 0.0, one.threshold)]
        low, high = 1.2 * min(ends) - 0.01, 1.3 * max(ends)
        shown = [tick for tick in _TICKS if low <= tick <= high]
        axes.set_xticks(shown, [f"{100 * tick:g} %" for tick in shown])
        axes.minorticks_off()
        axes.set_xlim(low, high)
        axes.set_yticks(range(len(found)), [one.method for one in found], fontsize=9)
        axes.set_ylim(len(found) - 0.5, -0.5)
        axes.set_xlabel("longer without it")
        axes.grid(axis="y", visible=False)

    said = "; ".join(
        f"{one.method} {one.relative:+.1%} ({one.low:+.{digits}%} to {one.high:+.{digits}%}), "
        f"{_SAID[one.decided]}"
        for one, digits in ((one, _digits(one)) for one in found)
    )
    alt = f"What leaving out each method costs: {said}."
    told = f"{caption}. With 95 % intervals; dotted: the threshold; hollow: undecided"
    return draw_picture(paint, alt, told, word, size=(7.2, 1.1 + 0.3 * len(found)))
