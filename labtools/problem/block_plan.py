"""How one launch of r09 to r11 is laid out: warps, stages, pieces and clusters.

The numbers behind the rule were measured on an NVIDIA H200; the page of r09 shows them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from .errors import LabError
from .rung import Knob, Launch, Workspace
from .split import choose_split
from .workload import Workload

SMEM_OF_SM = 228 * 1024
SMEM_OF_BLOCK = 227 * 1024
"""Shared memory of a multiprocessor and of one block, sm_90 (CUDA C++ Programming Guide)."""
SMEM_OF_SYSTEM = 1024
"""Of the multiprocessor's, what the system takes for each block."""
LARGEST_CLUSTER = 8
"""Blocks of a cluster that every GPU of sm_90 and up can run."""
CLUSTERS_ALONE_BYTES = 64_000_000
"""A cache of more bytes wants every multiprocessor, and clusters may leave some idle."""
TILES_FOR_EIGHT_WARPS = 16
"""A block with fewer tiles is through them sooner with four warps."""
WARPS_OF_SM = 12
"""Warps that a multiprocessor's registers hold at the 160 or so that one takes a thread."""

BLOCK_KNOBS = (
    Knob("warps", (0, 1, 2, 4, 8), 0, "warps of a block; 0: by rule", compiled=False),
    Knob("stages", (0, 2, 3, 4, 5, 6), 0, "tiles of a warp's ring; 0: by rule", compiled=False),
    Knob("cluster", (0, 1, 2, 4, 8), 0, "blocks of a cluster; 0: by rule", compiled=False),
    Knob("split", tuple(range(65)), 0, "pieces of a sequence; 0: by rule", compiled=False),
    Knob("sms", (132, 108, 128, 142, 148, 58, 84), 132, "of the GPU", compiled=False),
)
"""The knobs of `plan_blocks`: none is compiled, each decides the layout that is."""


@dataclass(frozen=True)
class BlockPlan:
    """The layout of one launch.

    Args:
        workload: what it was laid out for.
        warps: of a block.
        stages: tiles of each warp's ring in shared memory.
        cluster: blocks that join through shared memory, sm_90 and up.
        pieces: blocks of each (sequence, KV head), a multiple of ``cluster``.
        piece_len: keys of one piece, a multiple of what the warps of a block take in one turn.
        blocks_per_sm: blocks that a multiprocessor shall hold at once; registers must allow it.
        smem_bytes: dynamic shared memory of a block.
    """

    workload: Workload
    warps: int
    stages: int
    cluster: int
    pieces: int
    piece_len: int
    blocks_per_sm: int
    smem_bytes: int

    @property
    def pairs(self) -> int:
        """(sequence, KV head) pairs."""
        return self.workload.batch * self.workload.num_kv_heads

    @property
    def grid(self) -> tuple[int, int, int]:
        """Blocks: pieces, KV heads, sequences."""
        return (self.pieces, self.workload.num_kv_heads, self.workload.batch)

    @property
    def defines(self) -> dict[str, str]:
        """Preprocessor definitions of the kernel."""
        return {
            "GROUP_SIZE": str(self.workload.group_size),
            "WARPS": str(self.warps),
            "STAGES": str(self.stages),
            "CLUSTER": str(self.cluster),
            "BLOCKS": str(self.blocks_per_sm),
        }

    @property
    def workspaces(self) -> tuple[Workspace, ...]:
        """Partial results, with room for one a block as where there are no clusters; counters."""
        shape = (self.pairs, self.pieces, self.workload.group_size)
        return (
            Workspace("partial_rows", (*shape, self.workload.head_dim), "float32"),
            Workspace("partial_known", (*shape, 2), "float32"),
            self._finished,
        )

    @property
    def _finished(self) -> Workspace:
        return Workspace("finished", (self.pairs * self.cluster,), "uint32")

    @property
    def last_args(self) -> tuple[str | np.generic, ...]:
        """The kernel's arguments behind the output."""
        return (
            *(space.name for space in self.workspaces),
            np.int32(self.workload.kv_len),
            np.int32(self.piece_len),
            np.float32(self.workload.sm_scale * np.log2(np.e)),
        )

    def reset_launch(self) -> Launch:
        """The preparation that zeroes the counters; every call leaves them zero again."""
        count = self._finished.shape[0]
        return Launch(
            entry="reset_counters",
            grid=(-(-count // 128), 1, 1),
            block=(128, 1, 1),
            args=("finished", np.int32(count)),
            workspace=(self._finished,),
            prepare=True,
        )


def plan_blocks(
    workload: Workload,
    knobs: Mapping[str, int],
    *,
    tile: int,
    slot_bytes: int,
    stages_alone: Mapping[int, int],
    stages_shared: int,
) -> BlockPlan:
    """Lay out a launch; a knob that is 0 is chosen by the rule.

    The rule: where pairs are few, each is shared by the blocks of one cluster, which join without
    going through memory, one block a multiprocessor. A cache too large to leave a multiprocessor
    idle is shared by all of them instead. Where pairs are many, a pair is one block of four warps,
    and two blocks share a multiprocessor.

    Args:
        workload: what is computed.
        knobs: `BLOCK_KNOBS`, and whatever else the rung has.
        tile: keys of one tile.
        slot_bytes: shared memory of one tile with its scales.
        stages_alone: tiles of a ring by warps, of a block that has a multiprocessor for itself.
        stages_shared: tiles of a ring where blocks share one.

    Raises:
        LabError: the block does not fit shared memory, or the cluster does not fit the pieces.
    """
    pairs, sms = workload.batch * workload.num_kv_heads, knobs["sms"]
    tiles = -(-workload.kv_len // tile)
    cluster = knobs["cluster"] or _choose_cluster(
        *(pairs, sms, tiles, tiles * pairs * slot_bytes, knobs["split"])
    )
    split = knobs["split"] or (cluster if cluster > 1 else _choose_split(workload, pairs, sms))
    alone = pairs * split <= sms
    warps = knobs["warps"] or (8 if alone and tiles // split >= TILES_FOR_EIGHT_WARPS else 4)
    # What the blocks of a cluster send each other has a place of its own.
    static = 256 + workload.group_size * (4 * workload.head_dim + 8 * cluster) + 16 * cluster
    room = SMEM_OF_BLOCK - static
    while not knobs["warps"] and warps > 1 and 2 * warps * slot_bytes > room:
        warps //= 2
    stages = stages_alone.get(warps, 4) if alone else stages_shared
    stages = knobs["stages"] or max(2, min(stages, room // (warps * slot_bytes)))
    turn = tile * warps
    turns = -(-workload.kv_len // turn)
    piece_len = -(-turns // min(split, turns)) * turn
    pieces = -(-workload.kv_len // (piece_len * cluster)) * cluster
    merge = warps * workload.group_size * (workload.head_dim + 6) * 4
    smem_bytes = max(warps * stages * slot_bytes, merge)
    if smem_bytes > room:
        raise LabError(
            f"{warps} warps with {stages} tiles each do not fit.",
            f"they take {smem_bytes + static} bytes of shared memory, and a block has "
            f"{SMEM_OF_BLOCK}",
            "fewer warps or stages",
        )
    per_sm = min(SMEM_OF_SM // (smem_bytes + static + SMEM_OF_SYSTEM), WARPS_OF_SM // warps)
    per_sm = 1 if alone else max(1, min(per_sm, 3))
    return BlockPlan(workload, warps, stages, cluster, pieces, piece_len, per_sm, smem_bytes)


def _choose_cluster(pairs: int, sms: int, tiles: int, bytes_read: int, split: int) -> int:
    """The blocks of a cluster: as many as fill the GPU, or 1 where they would leave it idle."""
    cluster = 1
    while 2 * cluster <= min(LARGEST_CLUSTER, sms // pairs, tiles):
        cluster *= 2
    while split % cluster:
        cluster //= 2
    if pairs * cluster <= 0.9 * sms and bytes_read > CLUSTERS_ALONE_BYTES:
        return 1
    return cluster


def _choose_split(workload: Workload, pairs: int, sms: int) -> int:
    """Pieces without clusters: one block a multiprocessor if that nearly fills the GPU."""
    if pairs <= sms:
        whole = sms // pairs
        if pairs * whole > 0.85 * sms:
            return whole
    return choose_split(workload, sms, 2, heads=workload.num_kv_heads, tile_rows=256)
