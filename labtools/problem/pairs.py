"""Few cases in which every two properties meet: a covering array, chosen greedily."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

Levels = Mapping[str, str]
"""The level that a case has of each factor, such as ``{"B": "1", "Hkv": "2 or more"}``."""


def _level_pairs(levels: Levels) -> set[tuple[tuple[str, str], tuple[str, str]]]:
    """Every two levels that meet in a case."""
    return set(itertools.combinations(sorted(levels.items()), 2))


def cover_pairs(candidates: Sequence[Levels], costs: Sequence[float]) -> list[int]:
    """Indices of candidates in which every two levels meet that meet in any candidate.

    Each choice is the one with the most new pairs for its cost.
    """
    found = [_level_pairs(levels) for levels in candidates]
    pairs = sorted(set().union(*found))
    place = {pair: number for number, pair in enumerate(pairs)}
    has = np.zeros((len(candidates), len(pairs)), bool)
    for index, mine in enumerate(found):
        has[index, [place[pair] for pair in mine]] = True
    cost = np.asarray(costs, float)
    missing = np.ones(len(pairs), bool)
    chosen: list[int] = []
    while missing.any():
        best = int(np.argmax(has[:, missing].sum(axis=1) / cost))
        chosen.append(best)
        missing &= ~has[best]
    return chosen


def say_cover(cases: Sequence[Levels], row: str) -> list[str]:
    """How many cases have each level of the factor ``row`` together with each level of the others,
    as lines of a table."""
    levels = {name: sorted({one[name] for one in cases}, key=_in_order) for name in cases[0]}
    rows = levels.pop(row)
    columns = [(name, level) for name, mine in levels.items() for level in mine]
    heads = [f"{name} {at}" if at == levels[name][0] else at for name, at in columns]
    wide = max(map(len, [row, *rows]))
    lines = ["  ".join([row.ljust(wide), *heads])]
    for at in rows:
        mine = [one for one in cases if one[row] == at]
        counts = (str(sum(one[name] == level for one in mine)) for name, level in columns)
        cells = [n.rjust(len(head)) for n, head in zip(counts, heads, strict=True)]
        lines.append("  ".join([at.ljust(wide), *cells]))
    return lines


def _in_order(level: str) -> tuple[int, str]:
    """Sizes by their numbers, and words behind them."""
    first = level.partition("-")[0].rstrip("+")
    return (int(first), "") if first.isdigit() else (10**9, level)
