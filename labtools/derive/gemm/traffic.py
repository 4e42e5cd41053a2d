"""The ski slope of a product: loop nests over rows, columns and the length of the sums."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache

from labtools.predict.sheets import Gpu

from ..sm import ELEMENT, SUM
from ..traffic import Nest, SlopePoint, powers, slope_of, sum_of_slopes
from .work import RowTiling, TiledWork

STAYS = {"depth": "output", "columns": "A", "rows": "B"}
"""What stays in the buffer while the innermost loop turns."""


def nest_traffic(
    work: TiledWork, tiling: RowTiling, columns: int, channels: int
) -> Iterator[tuple[int, int, str]]:
    """(buffer bytes, traffic bytes, what stays) of each order of the loops, for a tile of one
    product; B has `TiledWork.taps` times as many rows as a slice of A has channels."""
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
    """The slope at some sizes of the buffer, in bytes; of several products the traffic is summed,
    each at its best. A tile may have some ``sizes`` of rows, columns and channels; None is powers
    of two and the whole."""
    if len(work.rows) > 1:
        across, slices = powers(work.columns)[::2], powers(work.channels)[::2]
        each = []
        for rows, count in Counter(one for one in work.rows if one).items():
            alone = TiledWork("", (rows,), work.columns, work.depth)
            tried = sizes or (powers(rows)[::2], across, slices)
            each.append((least_traffic(alone, buffers, tried), count))
        return sum_of_slopes(buffers, each)
    tried = sizes or [powers(size) for size in (work.rows[0], work.columns, work.channels)]
    return slope_of(_nests(work, *map(tuple, tried)), buffers)


def traffic_given_l2(work: TiledWork, gpu: Gpu) -> int:
    """Bytes that memory must move at least, with the L2 as the buffer."""
    (found,) = least_traffic(work, (gpu.l2_bytes,))
    return found.traffic_bytes or work.minimal_bytes


@lru_cache(maxsize=4096)
def _nests(
    work: TiledWork, rows: tuple[int, ...], columns: tuple[int, ...], channels: tuple[int, ...]
) -> list[Nest]:
    """The nests of tiles of such sizes, the least traffic first, without those that another serves
    with no more of either."""
    found = []
    for one, wide, deep in itertools.product(rows, columns, channels):
        for tiling in work.tilings(one):
            for buffer, traffic, order in nest_traffic(work, tiling, wide, deep):
                found.append((traffic, buffer, (one, wide, deep), order))
    front: list[Nest] = []
    for nest in sorted(found):
        if not front or nest[1] < front[-1][1]:
            front.append(nest)
    return front
