"""What is known of a decode kernel: its choices, and what a warp does for one tile of keys."""

from __future__ import annotations

import math
from dataclasses import dataclass

from labtools.predict.machine import Machine
from labtools.problem.decode.block_plan import tile_bytes

from ..parts import ISSUE_CYCLES, PER_COPY, WARP

BITS = (16, 8, 4)
RUNG_OF_BITS = {16: "r09_inverted", 8: "r10_inverted_int8", 4: "r11_inverted_int4"}
"""The rung of each number of bits; its layout is the one that is derived."""
MATRIX_ROWS, MATRIX_COLUMNS, MATRIX_DEPTH = 16, 8, 16
"""mma.m16n8k16: rows of A, columns of B, and the length of the sums."""
TILE_CHOICES = {16: (16, 32, 64), 8: (32, 64), 4: (32, 64)}
"""Keys of a tile by bits. Of codes a lane takes pairs of keys at once, which makes 32 the least;
the scales of 64 keys of V are as many bytes as memory brings at a time."""
SLACK = 2.5
"""The warps of an SM must work through tiles so many times as fast as they can come, so that most
of them may wait for a late tile, a join or one another. A choice, made after r09 had been timed
with 4 and with 8 warps per SM: of the one sequence of a small batch, 8 made more."""
ENOUGH_SLOTS = 0.5
"""Part of the issue slots that a few warps which issue in order fill at most. A choice."""
WARP_CHOICES = (1, 2, 4, 8)
SHARED_BLOCKS = (2, 4)
"""Blocks that may share an SM."""
PER_SCORES = {16: 55, 8: 34, 4: 34}
"""Instructions from 16 keys' scores to their weights, by bits: masks, maximum, exponentials,
packing and two transpositions. Counted in r09, r10 and r11; a tile of codes has one maximum."""
PER_TRIP = {16: 55, 8: 145, 4: 145}
"""Instructions of a trip that depend on no size; a low-bit cache has more kinds of them."""
PER_FRAGMENT = {16: 0.0, 8: 4.0, 4: 4.0}
"""Instructions that turn codes into one A fragment of 16-bit numbers (four registers). Counted in
r10's and r11's machine code."""
OFFSET_PRODUCTS = {16: 0, 8: 1, 4: 1}
"""Products for the offset of V's codes, for every 16 keys. K's is one of q, once for many tiles."""
CONVERTED = {16: 1.0, 8: 2.0, 4: 2.5}
"""Instructions of CUDA cores that make a float of one element."""
UNIT_CYCLES = 4
"""Turns of the SM's load/store unit for 512 bytes, copied into shared memory or read from it."""


@dataclass(frozen=True)
class Work:
    """What one warp does for one tile; the first four count instructions of a kind."""

    copies: float
    loads: float
    products: float
    converts: float
    instructions: float  # all
    tensor_cycles: float  # of one sub-partition's tensor cores
    unit_cycles: float  # of the SM's load/store unit
    # from the tile's arrival to the next tile, for a warp alone on its scheduler that finds the
    # load/store unit busy for as long as it uses it itself
    cycles: float


def tile_work(keys: int, head_dim: int, bits: int, machine: Machine, group: int = 1) -> Work:
    """Instructions and cycles of one tile of keys, a multiple of 16, in one warp on tensor cores;
    each 8 query heads of a ``group`` take a product of their own."""
    latency = machine.variable
    copies = tile_bytes(keys, head_dim, bits) / (16 * WARP)
    products = 2 * (keys / MATRIX_ROWS) * (head_dim / MATRIX_DEPTH)
    loads = products * bits / 16
    converts = products * PER_FRAGMENT[bits]
    products += OFFSET_PRODUCTS[bits] * keys / MATRIX_ROWS
    scores = PER_SCORES[bits] * keys / MATRIX_ROWS
    instructions = PER_COPY * copies + loads + products + converts + scores + PER_TRIP[bits]
    chain = latency["ldsm"] + head_dim / MATRIX_DEPTH / 2 * latency["hmma"]
    for name in ("vote", "mufu_ex2", "movm", "ldsm", "hmma"):
        chain += latency[name]
    unit = UNIT_CYCLES * (copies + loads)
    passes = -(-group // MATRIX_COLUMNS)
    more = (passes - 1) * (products + scores)
    return Work(
        copies,
        loads,
        passes * products,
        converts,
        instructions + more,
        passes * (products * machine.intervals["tensor"]),
        unit,
        ISSUE_CYCLES * instructions + 2 * unit + chain + ISSUE_CYCLES * more,
    )


def cuda_core_instructions(head_dim: int, group: int, bits: int) -> float:
    """Warp instructions for one key on CUDA cores, the least over 8, 16 or 32 lanes a row.

    Each query head multiplies every element of K and of V once; an element becomes a float first;
    the sum of a row goes over its lanes by shuffles and additions; a weight takes about six
    instructions on every lane of the row.
    """
    loads = 2 * head_dim * bits / 8 / 16 * 2  # into shared memory and out of it, 16 bytes each

    def with_lanes(lanes: int) -> float:
        multiply = 2 * group * head_dim
        reduce = group * lanes * (2 * math.log2(lanes) + 6)
        return (multiply + 2 * CONVERTED[bits] * head_dim + reduce + loads) / WARP

    return min(with_lanes(lanes) for lanes in (8, 16, 32))
