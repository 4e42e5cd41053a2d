"""The ski slope: the least traffic with memory that any tiling has, by the size of a buffer.

A loop nest over tiles reads a factor again each time that a loop outside of it, which does not
belong to it, turns. Over all tile sizes that fit a buffer and all orders of the three loops there
is a least traffic. It falls with the buffer until every byte moves once.

Source: Huang et al., Mind the Gap: Attainable Data Movement and Operational Intensity Bounds for
Tensor Algorithms (Orojenesis), ISCA 2024, which calls the curve so.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from .parts import Rejected, bytes_words
from .work import ELEMENT, SUM, RowTiling, TiledWork

STAYS = {"depth": "output", "columns": "A", "rows": "B"}
"""What stays in the buffer while the innermost loop turns."""


@dataclass(frozen=True)
class SlopePoint:
    """One point of the slope."""

    buffer_bytes: int  # size of the buffer
    traffic_bytes: int | None  # least traffic; None where nothing fits
    tile: tuple[int, int, int] | None  # rows, columns and channels of the tile that has it
    order: str | None  # what stays in the buffer: ``output``, ``A`` or ``B``


Nest = tuple[int, int, tuple[int, int, int], str]
"""Traffic bytes, buffer bytes, tile and what stays of one loop nest."""


def slope_of(nests: Sequence[Nest], buffers: Sequence[int]) -> list[SlopePoint]:
    """The slope at some sizes of the buffer, from all nests, the least traffic first."""
    points = []
    for size in buffers:
        best = next((one for one in nests if one[1] <= size), None)
        points.append(
            SlopePoint(size, best[0], best[2], best[3])
            if best
            else SlopePoint(size, None, None, None)
        )
    return points


def rejected_buffers(
    points: Sequence[SlopePoint], least: int, say_tile: Callable[[tuple[int, int, int]], str]
) -> tuple[Rejected, ...]:
    """What speaks against a buffer alone: its traffic over the least.

    Args:
        points: of the slope.
        least: bytes that any buffer must move.
        say_tile: a tile in words.
    """
    return tuple(
        Rejected(
            f"a buffer of {bytes_words(one.buffer_bytes)} alone",
            one.traffic_bytes / least,
            "times the least bytes",
            f"the best tile there keeps {one.order} and has {say_tile(one.tile)}",
        )
        for one in points
        if one.traffic_bytes is not None and one.tile is not None
    )


def powers(size: int) -> list[int]:
    """The size itself, then the powers of two below it from the largest on."""
    below = [1 << n for n in range(max(0, size - 1).bit_length()) if 1 << n < size]
    return [size, *reversed(below)]


def nest_traffic(
    work: TiledWork, tiling: RowTiling, columns: int, channels: int
) -> Iterator[tuple[int, int, str]]:
    """(buffer bytes, traffic bytes, what stays) of each order of the loops for one tile.

    Args:
        work: one product; of several, each is asked for by itself.
        tiling: of its rows.
        columns: of a tile.
        channels: of a slice of A; B has `TiledWork.taps` times as many rows.
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
    """The slope at some sizes of the buffer.

    Args:
        work: what is computed; of several products the traffic is summed, each at its best.
        buffers: bytes, in any order.
        sizes: rows, columns and channels that a tile may have; None takes powers of two and the
            whole.
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


def sum_of_slopes(buffer: int, each: Sequence[tuple[SlopePoint, int]]) -> SlopePoint:
    """One point of several works that run one after another, with the tile of the largest.

    Args:
        buffer: bytes.
        each: the point of each work, and how many there are of it.
    """
    known = [(one.traffic_bytes, count) for one, count in each if one.traffic_bytes is not None]
    if len(known) < len(each):
        return SlopePoint(buffer, None, None, None)
    largest = max(each, key=lambda pair: pair[0].traffic_bytes or 0)[0]
    total = sum(bytes_ * count for bytes_, count in known)
    return SlopePoint(buffer, total, largest.tile, largest.order)
