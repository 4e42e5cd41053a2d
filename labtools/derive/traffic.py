"""The ski slope: the least traffic with memory that any tiling has, by the size of a buffer.

A loop nest over tiles reads a factor again each time that a loop outside of it, which does not
belong to it, turns. Over all tile sizes that fit a buffer and all orders of the three loops there
is a least traffic. It falls with the buffer until every byte moves once.

Source: Huang et al., Mind the Gap: Attainable Data Movement and Operational Intensity Bounds for
Tensor Algorithms (Orojenesis), ISCA 2024, which calls the curve so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .parts import Rejected, bytes_words

SLOPE_BYTES = tuple(1 << power for power in range(12, 29, 2))
"""Buffers at which the ski slope is given, from 4 KiB to 256 MiB."""


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
        traffic, _, tile, stays = best or (None, size, None, None)
        points.append(SlopePoint(size, traffic, tile, stays))
    return points


def rejected_buffers(
    points: Sequence[SlopePoint], least: int, say_tile: Callable[[tuple[int, int, int]], str]
) -> tuple[Rejected, ...]:
    """What speaks against a buffer alone: its traffic over the least bytes that any must move."""
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


def sum_of_slopes(
    buffers: Sequence[int], each: Sequence[tuple[Sequence[SlopePoint], int]]
) -> list[SlopePoint]:
    """The slope of several works that run one after another: the slope of each at these sizes of
    the buffer, with how many there are of it. The tile is that of the largest."""
    points = []
    for place, buffer in enumerate(buffers):
        here = [(slope[place], count) for slope, count in each]
        if any(one.traffic_bytes is None for one, _ in here):
            points.append(SlopePoint(buffer, None, None, None))
            continue
        total = sum((one.traffic_bytes or 0) * count for one, count in here)
        largest = max((one for one, _ in here), key=lambda one: one.traffic_bytes or 0)
        points.append(SlopePoint(buffer, total, largest.tile, largest.order))
    return points
