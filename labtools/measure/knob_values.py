"""Other values of a kernel's knobs: as few builds as hold each of them once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from labtools.problem import Knob, Problem, operation_of
from labtools.problem.pairs import TILE_ENDS

MOST_CASE_VISITS = 2600
"""`Problem.visits` of a case that other values of knobs are tried on."""
MOST_LONG_CASE_VISITS = 4200
"""The same of the last of them, which has the longest rows."""
NEW_CODE_COST = 20_000
"""What a case costs whose code has to be compiled, beside `cost_of_case`."""
MOST_WHOLE, MOST_NEW_CODES = 8, 3
"""Packs with code of their own that several cases are run with, of the others it is one each; and
how often a pack is compiled, at most."""

P = TypeVar("P", bound=Problem)
T = TypeVar("T")

Packed = list[dict[str, int]]
"""Other values of knobs that are tried together: each a value by itself, or with that of another
knob which it needs."""


def pack_values(
    knobs: Sequence[Knob], used: Mapping[str, int], takes: Callable[[Mapping[str, int]], bool]
) -> tuple[list[Packed], list[str]]:
    """Each value of the knobs that is not ``used``, nor broken on purpose, in one of several packs:
    as many in a pack as a launch ``takes`` beside each other. A value that is refused beside all
    that is used comes with one other.

    Returns the packs, and ``name=value`` of what is refused with each.
    """
    others = {
        knob.name: [
            value
            for value in knob.choices
            if value not in (used.get(knob.name, knob.default), *knob.broken)
        ]
        for knob in knobs
    }
    every = [{name: value} for name, values in others.items() for value in values]
    left, never = [], []
    for one in every:
        ways = (one, *(other | one for other in every if not other.keys() & one.keys()))
        if found := next(filter(takes, ways), None):
            left.append(found)
        else:
            never.append(say_values(one))
    packs: list[Packed] = []
    while left:
        packed: dict[str, int] = {}
        pack: Packed = []
        for one in left:
            if not packed.keys() & one.keys() and (not pack or takes(packed | one)):
                packed |= one
                pack.append(one)
        packs.append(pack)
        left = [one for one in left if one not in pack]
    return packs, never


def say_values(values: Mapping[str, int]) -> str:
    """``unroll=1, stages=4``."""
    return ", ".join(f"{name}={value}" for name, value in values.items())


def few_of_each_level(battery: Sequence[Problem]) -> list[Problem]:
    """Few and small cases of a battery in which each level of each factor is met once, and each
    level of a size with whole tiles; then one with the longest rows, which goes round a ring."""
    small = cheap_cases(battery)
    levels = [_levels_met(one) for one in small]
    costs = [cost_of_case(one) for one in small]
    chosen = cheapest_cover(small, costs, levels, set().union(*levels))
    long = [one for one in battery if one.visits <= MOST_LONG_CASE_VISITS] or chosen
    longest = max(long, key=lambda one: (one.part_visits, -one.visits))
    return list(dict.fromkeys([*chosen, longest]))


def cheap_cases(battery: Sequence[Problem]) -> list[Problem]:
    """Those of a battery that cost little; its first where none does."""
    return [one for one in battery if one.visits <= MOST_CASE_VISITS] or [battery[0]]


def cost_of_case(problem: Problem) -> int:
    """What a case costs, beside others."""
    return MOST_CASE_VISITS + 4 * problem.visits


def cheapest_cover(
    cases: Sequence[P], costs: Sequence[int], has: Sequence[set[T]], missing: set[T]
) -> list[P]:
    """Cases that together have all that is missing, of which each ``has`` some; each choice is the
    one with most of it for what it costs."""
    missing, chosen = missing.copy(), []
    while missing:
        gains = [len(of & missing) / cost for of, cost in zip(has, costs, strict=True)]
        best = int(np.argmax(gains))
        chosen.append(cases[best])
        missing -= has[best]
    return chosen


def _levels_met(problem: Problem) -> set[tuple[str, ...]]:
    levels = operation_of(problem).levels_of(problem)
    whole = [name for name in levels if levels.get(f"{name} end") == TILE_ENDS[0]]
    return {*levels.items(), *((name, levels[name], TILE_ENDS[0]) for name in whole)}
