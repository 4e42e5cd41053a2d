"""A decode kernel, derived."""

from __future__ import annotations

from dataclasses import dataclass

from labtools.problem import Workload

from ..inversion.parts import AnyDesign, Figure
from ..inversion.traffic import SlopePoint


@dataclass(frozen=True)
class Design(AnyDesign):
    """A decode kernel, derived.

    Attributes:
        workload: what is computed.
        bits: of an element of K and V in memory.
        arithmetic: ``tensor cores`` or ``CUDA cores``.
        group_columns: columns of the product that heads fill, and columns that it has.
        tile_keys: keys that a warp takes at a time.
        tile_bytes: of K and V together, one tile.
        stages: tiles of a warp's ring in the launch; step ``stages`` has what is asked for.
        warps_per_sm: that step ``warps`` asks for; the launch may have fewer.
        warps: of a block.
        blocks_per_sm: resident at a time, of the launch; step ``residency`` has what fits.
        smem_bytes: of a block.
        registers: of a thread, estimated.
        cluster: blocks that join through each other's shared memory, 1 for none.
        parts: most blocks that share one (sequence, KV head).
        blocks: of the grid.
        time_stack: what the time is the sum of, microseconds.
        slope: least traffic by size of a buffer.
        stops: where analysis stops.
    """

    workload: Workload
    bits: int
    arithmetic: str
    group_columns: tuple[int, int]
    tile_keys: int
    tile_bytes: int
    stages: int
    warps_per_sm: int
    warps: int
    blocks_per_sm: int
    smem_bytes: int
    registers: int
    cluster: int
    parts: int
    blocks: int
    time_stack: tuple[Figure, ...]
    slope: tuple[SlopePoint, ...]
    stops: str
