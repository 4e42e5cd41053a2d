"""Removals: a point without one of its methods, or without two, and why there is no such point."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

from .attribution import pair_name
from .family import Family, InvalidPoint, Point


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
