"""Ablation: a point with one method out at a time, or two, timed beside it on a bench."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from labtools.problem import LabError
from labtools.record import median_us

from .attribution import Attribution, TimeRatio, pair_name, threshold_of
from .bench import TimedPoints, TimingBench
from .classes import Decision
from .family import Family, InvalidPoint, Point

TimeCall = Callable[[Sequence[Point]], TimedPoints]
"""Times some points in one call."""


def ablate_methods(
    bench: TimingBench, point: Point, methods: Sequence[str], time: TimeCall | None = None
) -> tuple[Attribution, ...]:
    """Take one method out of a point at a time.

    The point and all of its variants are timed in one call of the bench, with equal repeats; where
    the bench times live, they are interleaved. A variant that has no time has no attribution, nor
    has a method that cannot be taken out alone, see `single_variants`.

    Args:
        bench: where they are timed.
        point: with all of the methods.
        methods: ids.
        time: the bench's call, or one that keeps what it measures as well.

    Raises:
        LabError: the point itself has no time, or a method is not on.
    """
    variants = single_variants(bench.family, point, methods).points
    return _attribute(bench, point, variants, time or bench.time)


def ablate_pairs(
    bench: TimingBench, point: Point, methods: Sequence[str], time: TimeCall | None = None
) -> tuple[Attribution, ...]:
    """Take two methods out of a point at a time, named as `pair_name` does.

    What two methods do together is measured, never summed: the sum of two single effects is
    something else where they interact, see `interactions`. Where no two can be taken out together
    nothing is timed.
    """
    variants = pair_variants(bench.family, point, methods).points
    return _attribute(bench, point, variants, time or bench.time) if variants else ()


@dataclass(frozen=True)
class Removals:
    """A point without some of its methods.

    Attributes:
        points: by the name of the method that is out, or of the pair.
        refused: why there is no such point, by the same names: a constraint forbids what is left.
    """

    points: dict[str, Point] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)


def single_variants(family: Family, point: Point, methods: Sequence[str]) -> Removals:
    """The point without each method.

    Raises:
        LabError: a method is not on there.
    """
    found = Removals()
    for name in methods:
        try:
            found.points[name] = family.remove(point, name)
        except InvalidPoint as error:
            found.refused[name] = f"it cannot be taken out alone: {error.why}"
    return found


def pair_variants(family: Family, point: Point, methods: Sequence[str]) -> Removals:
    """The point without two methods, by `pair_name`.

    Where only one of the two can go first, it does. A pair of which one goes with the other is left
    out.
    """
    found = Removals()
    alone = single_variants(family, point, methods)
    for first, second in itertools.combinations(methods, 2):
        orders = [
            (alone.points[one], other)
            for one, other in ((first, second), (second, first))
            if one in alone.points
        ]
        if not all(family.has(left, other) for left, other in orders):
            continue
        name, why = pair_name(first, second), alone.refused.get(first, "")
        for left, other in orders:
            try:
                found.points[name] = family.remove(left, other)
                break
            except InvalidPoint as error:
                why = error.why
        else:
            found.refused[name] = f"they cannot be taken out together: {why}"
    return found


def _attribute(
    bench: TimingBench, point: Point, variants: dict[str, Point], time: TimeCall
) -> tuple[Attribution, ...]:
    timed = time([point, *dict.fromkeys(variants.values())])
    mine = timed.samples.get(point)
    if mine is None:
        raise LabError(
            f"{point.key} has no time, so nothing can be taken out of it.",
            timed.failures.get(point, "it was not timed"),
            "another point" + ("" if bench.origin == "forecast" else "; --on forecast"),
        )
    threshold = threshold_of(bench.least_effect())
    found = []
    for name, left in variants.items():
        if left in timed.samples:
            ratio = bench.ratio(timed, left, point)
            found.append(_judge(name, left, ratio, median_us(mine), threshold))
    return tuple(found)


def _judge(
    name: str, left: Point, found: TimeRatio, time_us: float, threshold: float
) -> Attribution:
    low, high = found.low - 1.0, found.high - 1.0
    decided: Decision | None = None
    if low > threshold:
        decided = "above"
    elif high < threshold:
        decided = "below"
    relative = found.ratio - 1.0
    return Attribution(
        *(name, left.key, relative * time_us, relative, low, high, threshold, decided)
    )
