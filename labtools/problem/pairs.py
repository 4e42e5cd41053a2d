"""Few cases in which every two properties meet: a covering array, chosen greedily.

An operation says which values its factors have and which level a problem has of each factor.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .errors import LabError

Levels = Mapping[str, str]
"""The level that a case has of each factor, such as ``{"B": "1", "Hkv": "2-4"}``."""
Starts = Mapping[str, Sequence[int]]
"""Where the levels of each size begin."""
Ends = Mapping[str, Mapping[int, str]]
"""How the last tile of each size ends, by the remainder of 16; what is not named is ``other``."""
USUAL_STARTS = (0, 1, 2, 33, 257)
"""Where the levels of a size begin unless an operation says so."""
TILE_ENDS = {0: "16n", 1: "+1", 15: "-1"}
CHUNK_ENDS = {
    **{n: "even" if n % 2 == 0 else "odd" for n in range(16)},
    **{4: "4n", 12: "4n", 8: "8n"},
    **TILE_ENDS,
}
"""Of rows that are read 16 bytes at a time where they can be, or 8."""
MOST_CANDIDATES = 3000
"""Of more combinations of values than these so many are drawn."""
_NAMED = 5


def size_level(value: int, starts: Sequence[int]) -> str:
    """``3-18``: the level of a size that begins at one of ``starts`` and ends before the next."""
    first = max((one for one in starts if one <= value), default=starts[0])
    last = min((one - 1 for one in starts if one > value), default=None)
    return f"{first}+" if last is None else f"{first}-{last}" if last > first else str(first)


def size_levels(values: Mapping[str, int], starts: Starts, ends: Ends) -> dict[str, str]:
    """The level of each size, which begins at one of its ``starts``, and of those in ``ends`` how
    it ends."""
    levels = {}
    for name, value in values.items():
        levels[name] = size_level(value, starts.get(name, USUAL_STARTS))
        if name in ends:
            rest = value % 16 if value > 1 else 3  # one alone is not one behind a tile
            levels[f"{name} end"] = ends[name].get(rest, "other")
    return levels


def case_cost(work: int, depth: int) -> int:
    """What a case with so many `Problem.visits` costs, and ten times as much where it sums over
    fewer than five elements: hardly any kind of values shows there."""
    return (4000 + work) * (10 if depth < 5 else 1)


def joint_cases(
    make: Callable[..., Any],
    choices: Mapping[str, Sequence[Any]],
    levels_of: Callable[[Any], Levels],
    cost_of: Callable[[Any], int],
    supports: Callable[[Any], str | None],
) -> list[Any]:
    """Problems in which every two levels meet that meet in any one that ``supports`` takes, those
    that cost least first.

    ``make`` is given one value of each factor in ``choices``; where these make no problem it
    returns None or raises a LabError.
    """
    lengths = [len(one) for one in choices.values()]
    total = math.prod(lengths)
    numbers = np.arange(total)
    if total > MOST_CANDIDATES:
        numbers = np.unique(np.random.default_rng(405).integers(total, size=MOST_CANDIDATES))
    candidates = []
    for places in zip(*np.unravel_index(numbers, lengths), strict=True):
        chosen = {name: choices[name][at] for name, at in zip(choices, places, strict=True)}
        with contextlib.suppress(LabError):
            candidates.append(make(**chosen))
    candidates = [one for one in candidates if one is not None]
    levels, costs = map(levels_of, candidates), map(cost_of, candidates)
    found = cover_pairs([*levels], [*costs], lambda index: not supports(candidates[index]))
    return sorted((candidates[index] for index in found), key=cost_of)


def in_turn(
    cases: Sequence[Any], distributions: Sequence[str], supports: Callable[[Any], str | None]
) -> list[Any]:
    """The cases, each with the next of the distributions that ``supports`` takes of it."""
    drawn, count = [], len(distributions)
    for index, one in enumerate(cases):
        names = (distributions[(index + turn) % count] for turn in range(count))
        ways = [one.replace(distribution=name) for name in names]
        drawn.append(next((way for way in ways if not supports(way)), one))
    return drawn


def cover_pairs(
    candidates: Sequence[Levels],
    costs: Sequence[float],
    takes: Callable[[int], bool] = lambda index: True,
) -> list[int]:
    """Indices of candidates in which every two levels meet that meet in any that ``takes`` takes.

    Each choice is the one with the most new pairs for its cost.
    """
    names = sorted(set().union(*(one.items() for one in candidates)))
    held = np.array([[one[factor] == at for factor, at in names] for one in candidates])
    first, second = np.triu_indices(len(names), 1)
    has = held[:, first] & held[:, second]
    missing = has.any(axis=0)
    cost = np.asarray(costs, float)
    chosen: list[int] = []
    gain = has.sum(axis=1) / cost
    while gain.max() > 0:
        best = int(np.argmax(gain))
        if takes(best):
            chosen.append(best)
            missing &= ~has[best]
            gain = np.where(gain > 0, has[:, missing].sum(axis=1) / cost, 0)
        gain[best] = 0
    return chosen


def pair_cover(cases: Sequence[Levels]) -> list[dict[str, Any]]:
    """Of every two ``factors`` their ``levels``, the ``fewest`` of ``cases`` that have two of these
    together, and those that ``never`` meet."""
    levels = {name: sorted({one[name] for one in cases}, key=_in_order) for name in cases[0]}
    table = []
    for a, b in itertools.combinations(levels, 2):
        met = Counter((one[a], one[b]) for one in cases)
        counts = {both: met[both] for both in itertools.product(levels[a], levels[b])}
        row = {"factors": (a, b), "levels": (levels[a], levels[b])}
        never = [both for both, count in counts.items() if not count]
        table.append({**row, "fewest": min(counts.values()), "never": never})
    return table


def cover_rows(table: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """A `pair_cover` as rows of text: the heads, then a factor with its levels and the fewest cases
    beside each other factor."""
    fewest = {one["factors"]: one["fewest"] for one in table}
    levels = {one["factors"][0]: one["levels"][0] for one in table}
    others = list(dict.fromkeys(b for _, b in fewest))
    rows = [["fewest cases of two", *others]]
    for a, mine in levels.items():
        rows.append([f"{a}: {', '.join(mine)}", *(str(fewest.get((a, b), "")) for b in others)])
    return rows


def say_never(table: Sequence[Mapping[str, Any]]) -> str:
    """The first two levels of a `pair_cover` that never meet, and how many more; "" for none."""
    said = [
        f"{a} {x} with {b} {y}"
        for one in table
        for a, b in [one["factors"]]
        for x, y in one["never"]
    ]
    more = [f"and {len(said) - _NAMED} more"] if len(said) > _NAMED else []
    return f"never: {'; '.join([*said[:_NAMED], *more])}" if said else ""


def say_cover(table: Sequence[Mapping[str, Any]]) -> list[str]:
    """A `pair_cover` as lines of text."""
    (head, *others), *rows = cover_rows(table)
    wide = max(len(row[0]) for row in [[head], *rows])
    lines = ["  ".join([head.ljust(wide), *others])]
    for first, *cells in rows:
        right = (cell.rjust(len(b)) for cell, b in zip(cells, others, strict=True))
        lines.append("  ".join([first.ljust(wide), *right]))
    return [*lines, *filter(None, [say_never(table)])]


def _in_order(level: str) -> tuple[int, str]:
    """Sizes by their numbers, and words behind them."""
    first = level.partition("-")[0].rstrip("+")
    return (int(first), "") if first.isdigit() else (10**9, level)
