"""The old policy, to be played beside the new one: the first method of each axis by priority, all
applied at once and kept or dropped as a group, which counts as effective if it gained more than the
noise. So a method that does nothing, or harms, rides along with one that helps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from labtools.problem import LabError

from .attribution import MethodClass
from .budget import DEFAULT_RULE, Budget
from .family import Family, Point
from .gaps import Gaps
from .pick import Pick, pick_methods

NOISE = 0.02
"""A change of the time below this counts as none. Source: the loop's V1, and V2 after it."""
ONE_AN_AXIS = Budget(1, 1, 1, DEFAULT_RULE, "One method an axis, whatever the gaps are.")


@dataclass(frozen=True)
class GroupVerdict:
    """What the old policy makes of a group of methods."""

    classes: Mapping[str, MethodClass]  # the class of every method of the group: all are the same
    gain: float  # of the group, relative to the time with it
    keeps: bool  # the champion is the kernel with the group


def pick_one_an_axis(family: Family, point: Point, gaps: Gaps, *more: Any, **named: Any) -> Pick:
    """The first method of each axis by priority that passes the four checks, see `pick_methods`."""
    return pick_methods(family, point, gaps, ONE_AN_AXIS, *more, **named)


def judge_group(
    methods: Sequence[str], before_us: float, after_us: float, noise: float = NOISE
) -> GroupVerdict:
    """One verdict for a whole group: its gain, relative to ``after_us``, against the noise."""
    gain = contributions(after_us, {"all": before_us})["all"]
    kept = gain > noise
    found: MethodClass = "effective" if kept else "ineffective"
    return GroupVerdict(dict.fromkeys(methods, found), gain, kept)


def contributions(champion_us: float, without_us: Mapping[str, float]) -> dict[str, float]:
    """What each method contributes, relative to the champion's time: what leaving it out costs."""
    for name, time_us in {"the champion": champion_us, **without_us}.items():
        if not 0 < time_us < float("inf"):
            raise LabError(
                f"The time of {name} is {time_us!r} us.",
                "a time is a number above 0",
                "the other methods",
            )
    return {name: time_us / champion_us - 1 for name, time_us in without_us.items()}
