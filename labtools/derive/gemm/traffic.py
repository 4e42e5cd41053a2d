"""The ski slope of a product: loop nests over rows, columns and the length of the sums."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import lru_cache

from ..sm import ELEMENT, SUM
from ..traffic import Nest, SlopePoint, powers, slope_of, sum_of_slopes
from .work import RowTiling, TiledWork

STAYS = {"depth": "output", "columns": "A", "rows": "B"}
"""What stays in the buffer while the innermost loop turns."""


def nest_traffic(
    work: TiledWork, tiling: RowTiling, columns: int, channels: int
) -> Iterator[tuple[int, int, str]]:
    """(buffer bytes, traffic bytes, what stays) of each order of the loops, for a tile of one
    product; B has `TiledWork.taps` times as many rows as a slice of A has channels.
    """
    trips = {
        "rows": tiling.count,
        "columns": -(-work.columns // columns),
        "depth": -(-work.channels // channels),
    }
    buffer = (
        ELEMENT * (tiling.tile_touched * channels + columns * channels * work.taps)
        + SUM * tiling.rows * columns
    )
    a = ELEMENT * tiling.touched * work.channels
    sums = sum(work.rows) * work.columns
    for order in itertools.permutations(trips):
        again = {foreign: _times(foreign, order, trips) for foreign in trips}
        # A sum that leaves before it is whole is written and read once more in fp32.
        spilled = 2 * SUM * sums * (again["depth"] - 1)
        traffic = a * again["columns"] + work.b_bytes * again["rows"] + work.out_bytes + spilled
        yield buffer, traffic, STAYS[order[-1]]


def _times(foreign: str, order: Sequence[str], trips: dict[str, int]) -> int:
    """How often an array is moved that the loop ``foreign`` does not belong to."""
    own = [place for place, name in enumerate(order) if name != foreign and trips[name] > 1]
    return trips[foreign] if own and order.index(foreign) < own[-1] else 1


def least_traffic(
    work: TiledWork, buffers: Sequence[int], sizes: Sequence[Sequence[int]] | None = None
) -> list[SlopePoint]:
    """The slope at some sizes of the buffer; of several products the traffic is summed, each at its
    best.

    Args:
        work: what is computed.
        buffers: bytes, in any order.
        sizes: rows, columns and channels that a tile may have; None is powers of two and the whole.
    """
    if len(work.rows) > 1:
        alike: dict[int, int] = {}
        for one in work.rows:
            alike[one] = alike.get(one, 0) + (one > 0)
        across, slices = powers(work.columns)[::2], powers(work.channels)[::2]
        each = {
            one: least_traffic(
                TiledWork("", (one,), work.columns, work.depth),
                buffers,
                sizes or (powers(one)[::2], across, slices),
            )
            for one in alike
            if one
        }
        return [
            sum_of_slopes(buffer, [(each[one][place], alike[one]) for one in each])
            for place, buffer in enumerate(buffers)
        ]
    rows, columns, channels = sizes or (
        powers(work.rows[0]),
        powers(work.columns),
        powers(work.channels),
    )
    return slope_of(_nests(work, tuple(rows), tuple(columns), tuple(channels)), buffers)


@lru_cache(maxsize=4096)
def _nests(
    work: TiledWork, rows: tuple[int, ...], columns: tuple[int, ...], channels: tuple[int, ...]
) -> list[Nest]:
    """The nests of tiles of such sizes, the least traffic first, without those that another serves
    with no more of either.
    """
    found = []
    for one in rows:
        for tiling in work.tilings(one):
            for wide in columns:
                for deep in channels:
                    for buffer, traffic, order in nest_traffic(work, tiling, wide, deep):
                        found.append((traffic, buffer, (one, wide, deep), order))
    front: list[Nest] = []
    for nest in sorted(found):
        if not front or nest[1] < front[-1][1]:
            front.append(nest)
    return front
