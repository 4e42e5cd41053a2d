"""Ablation: a point with one method out at a time, or two, timed beside it on a bench."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from labtools.problem import LabError
from labtools.record import median_us

from .attribution import Attribution, TimeRatio, threshold_of
from .bench import TimedPoints, TimingBench
from .classes import Decision
from .family import Point
from .removals import pair_variants, single_variants

TimeCall = Callable[[Sequence[Point]], TimedPoints]
"""Times some points in one call."""


def ablate_methods(
    bench: TimingBench, point: Point, methods: Sequence[str], time: TimeCall | None = None
) -> tuple[Attribution, ...]:
    """Take one method out of a point at a time, all timed in one call of the bench. A variant
    without a time has no attribution, nor has a method that cannot be taken out alone, see
    `single_variants`."""
    variants = single_variants(bench.family, point, methods).points
    return _attribute(bench, point, variants, time or bench.time)


def ablate_pairs(
    bench: TimingBench, point: Point, methods: Sequence[str], time: TimeCall | None = None
) -> tuple[Attribution, ...]:
    """Take two methods out of a point at a time, named as `pair_name` does; what two do together is
    measured, never summed. Where no two can be taken out together nothing is timed."""
    variants = pair_variants(bench.family, point, methods).points
    return _attribute(bench, point, variants, time or bench.time) if variants else ()


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
    delta_us = relative * time_us
    return Attribution(name, left.key, delta_us, relative, low, high, threshold, decided)
