"""A decode kernel, derived."""

from __future__ import annotations

from dataclasses import dataclass

from labtools.problem import Workload

from ..inversion.parts import AnyDesign, Figure
from ..inversion.traffic import SlopePoint


@dataclass(frozen=True)
class Design(AnyDesign):
    """A decode kernel, derived."""

    workload: Workload  # what is computed
    bits: int  # of an element of K and V in memory
    arithmetic: str  # ``tensor cores`` or ``CUDA cores``
    # columns of the product that heads fill, and columns that it has
    group_columns: tuple[int, int]
    tile_keys: int  # keys that a warp takes at a time
    tile_bytes: int  # of K and V together, one tile
    stages: int  # tiles of a warp's ring in the launch; step ``stages`` has what is asked for
    warps_per_sm: int  # that step ``warps`` asks for; the launch may have fewer
    warps: int  # of a block
    blocks_per_sm: int  # resident at a time, of the launch; step ``residency`` has what fits
    smem_bytes: int  # of a block
    registers: int  # of a thread, estimated
    cluster: int  # blocks that join through each other's shared memory, 1 for none
    parts: int  # most blocks that share one (sequence, KV head)
    blocks: int  # of the grid
    time_stack: tuple[Figure, ...]  # what the time is the sum of, microseconds
    slope: tuple[SlopePoint, ...]  # least traffic by size of a buffer
    stops: str  # where analysis stops
