"""Ablation: a point with one method out at a time, or two, timed beside it on a bench."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from labtools.problem import LabError
from labtools.record import median_us

from .attribution import Attribution, Decision, pair_name, threshold_of
from .bench import TimedPoints, TimingBench
from .family import Family, InvalidPoint, Point

TimeCall = Callable[[Sequence[Point]], TimedPoints]  # times some points in one call


@dataclass(frozen=True)
class Removals:
    """A point without some of its methods."""

    points: dict[str, Point] = field(default_factory=dict)  # by the name of what is out
    refused: dict[str, str] = field(default_factory=dict)  # why there is none, by the same names


def single_variants(family: Family, point: Point, methods: Sequence[str]) -> Removals:
    """The point without each method."""
    found = Removals()
    for name in methods:
        try:
            found.points[name] = family.remove(point, name)
        except InvalidPoint as error:
            found.refused[name] = f"it cannot be taken out alone: {error.why}"
    return found


def pair_variants(family: Family, point: Point, methods: Sequence[str]) -> Removals:
    """The point without two methods, by `pair_name`: where only one of the two can go first, it
    does. A pair of which one goes with the other is left out."""
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
            ratio, low, high = (end - 1.0 for end in bench.ratio(timed, left, point))
            decided: Decision | None = (
                "above" if low > threshold else "below" if high < threshold else None
            )
            more_us = ratio * median_us(mine)
            found.append(Attribution(name, left.key, more_us, ratio, low, high, threshold, decided))
    return tuple(found)
