"""How one launch of r09 to r11 is laid out: warps, stages, pieces and clusters.

The numbers behind the rule were measured on an NVIDIA H200; the page of r09 shows them.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from .errors import LabError
from .rung import Knob, Launch, Rung, Workspace
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
"""A cache of more bytes wants every multiprocessor, and clusters of more than two blocks may leave
some idle."""
TILES_FOR_EIGHT_WARPS = 16
"""An fp16 block with fewer tiles is through them sooner with four warps."""
WARPS_OF_SM = 12
"""Warps that a multiprocessor's registers hold at the 160 or so that one takes a thread."""
PART_IN_CLUSTERS = 0.91
"""Multiprocessors that clusters of more than two blocks can have; the others are left over."""
NEARLY_ALL, ENOUGH = 0.9, 0.7
"""Parts of the multiprocessors: clusters that have so many leave none worth having; blocks that
have so many keep memory busy, so that more of them are not worth their joins."""

BLOCK_KNOBS = (
    Knob("warps", (0, 1, 2, 4, 8), 0, "warps of a block; 0: by rule", compiled=False),
    Knob("stages", (0, 1, 2, 3, 4, 5, 6), 0, "tiles of a warp's ring; 0: by rule", compiled=False),
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
        tile: keys of one tile.
        run: tiles that a warp takes in a row because they share scales; 0 where none do.
        sharers: warps whose runs share scales, and with them the work of scaling q.
    """

    workload: Workload
    warps: int
    stages: int
    cluster: int
    pieces: int
    piece_len: int
    blocks_per_sm: int
    smem_bytes: int
    tile: int
    run: int = 0
    sharers: int = 1

    @property
    def tiles_of_warp(self) -> int:
        """Tiles that a warp takes of a piece that is full."""
        return self.piece_len // (self.warps * self.tile)

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
            **({"RUN": str(self.run)} if self.run else {}),
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
    def first_args(self) -> tuple[np.generic, ...]:
        """The kernel's first: kv_len, piece_len and KV heads, for the copies; the score's scale."""
        workload = self.workload
        numbers = (workload.kv_len, self.piece_len, workload.num_kv_heads)
        scale = np.float32(workload.sm_scale * np.log2(np.e))
        return (*(np.int32(number) for number in numbers), scale)

    @property
    def last_args(self) -> tuple[str | np.generic, ...]:
        """The kernel's arguments behind the output."""
        return (*(space.name for space in self.workspaces), np.int32(self.pieces))

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


def plan_of(rung: Rung, workload: Workload, knobs: Mapping[str, int] | None = None) -> BlockPlan:
    """The layout of one launch of r09 to r11, or of a copy of them.

    Args:
        rung: its launch function stands beside a function ``plan``.
        workload: what is computed.
        knobs: some of its knobs; the others are at their defaults.
    """
    plan: BlockPlan = vars(sys.modules[rung.launch.__module__])["plan"](
        workload, rung.resolve_knobs(knobs)
    )
    return plan


def plan_blocks(
    workload: Workload,
    knobs: Mapping[str, int],
    *,
    tile: int,
    slot_bytes: int,
    stages: Mapping[int, int],
    tiles_for_most: tuple[int, int],
    scale_rows: int = 0,
    block_bytes: int = 0,
    warp_bytes: int = 0,
    ringless: bool = False,
) -> BlockPlan:
    """Lay out a launch; a knob that is 0 is chosen by the rule.

    The rule: where pairs are few, each is shared by the blocks of one cluster, which join without
    going through memory. A cache too large to leave a multiprocessor idle is shared by all of them
    instead. Where pairs are many, a pair is one block. A block has a multiprocessor for itself if
    all of them can start at once so; if not, several share one, and are smaller for it.

    Args:
        workload: what is computed.
        knobs: `BLOCK_KNOBS`, and whatever else the rung has.
        tile: keys of one tile.
        slot_bytes: shared memory of one tile with its scales.
        stages: tiles of a warp's ring, by warps of a block; the most warps are those of a block
            that has a multiprocessor for itself.
        tiles_for_most: tiles that such a block must have, or four warps are through them sooner:
            where blocks leave multiprocessors idle, and where they do not.
        scale_rows: keys that share scales, which a warp then takes in a row if its piece has
            so many; 0 where none do.
        block_bytes: shared memory of a block beside its rings: q, if there is any.
        warp_bytes: that of a warp beside its ring.
        ringless: a warp that takes one tile needs no room for a second one.

    Raises:
        LabError: the block does not fit shared memory, or the cluster does not fit the pieces.
    """
    pairs, sms = workload.batch * workload.num_kv_heads, knobs["sms"]
    tiles = -(-workload.kv_len // tile)
    cluster, split = _choose_pieces(workload, knobs, tiles, tiles * pairs * slot_bytes)
    needed = -(-pairs * split // sms)
    alone = cluster * clusters_that_fit(cluster, sms)
    if pairs * split > alone and (needed == 1 or needed > WARPS_OF_SM // 2):
        needed = 2  # those that do not fit share, or come after the others
    fills = pairs * split > ENOUGH * sms
    has_many = tiles // split >= tiles_for_most[fills]
    warps = knobs["warps"] or _choose_warps(needed, max(stages) if has_many else 4)
    # What the blocks of a cluster send each other has a place of its own.
    shares = workload.group_size * workload.head_dim // 4 if cluster > 1 else 1
    static = 256 + 16 * (shares + cluster) + 8 * workload.group_size * cluster
    free = SMEM_OF_BLOCK - static - block_bytes

    def fewest(warps: int) -> int:
        return 1 if ringless and -(-tiles // split) <= warps else 2

    while not knobs["warps"] and warps > 1:
        if warps * (fewest(warps) * slot_bytes + warp_bytes) <= free:
            break
        warps //= 2
    turn = tile * warps
    turns = -(-workload.kv_len // turn)
    piece_len = -(-turns // min(split, turns)) * turn
    pieces = -(-workload.kv_len // (piece_len * cluster)) * cluster
    run = 1 if scale_rows else 0
    while run and 2 * run * tile <= scale_rows and piece_len % (2 * run * turn) == 0:
        run *= 2
    sharers = min(scale_rows // (run * tile), warps, workload.head_dim // 32) if run else 1
    if sharers > 1:  # each set of them exchanges q, and each lane four numbers
        warp_bytes += block_bytes // sharers + 32 * 16
    block_bytes += warps * warp_bytes
    room = SMEM_OF_BLOCK - static - block_bytes
    at_once = min(needed, WARPS_OF_SM // warps)
    share = min(room, SMEM_OF_SM // at_once - SMEM_OF_SYSTEM - static - block_bytes)
    ring = knobs["stages"] or max(
        fewest(warps), min(stages.get(warps, 4), piece_len // turn, share // (warps * slot_bytes))
    )
    if ring == 1 and not (ringless and piece_len == turn):
        raise LabError(
            "A ring of one tile needs warps that take one tile each.",
            f"here {warps} warps share {piece_len // tile} tiles",
            "more stages, or more warps and pieces",
        )
    merge = warps * workload.group_size * (workload.head_dim + 6) * 4
    smem_bytes = max(block_bytes + warps * ring * slot_bytes, merge)
    if smem_bytes > room + block_bytes:
        raise LabError(
            f"{warps} warps with {ring} tiles each do not fit.",
            f"they take {smem_bytes + static} bytes of shared memory, and a block has "
            f"{SMEM_OF_BLOCK}",
            "fewer warps or stages",
        )
    per_sm = max(1, min(at_once, SMEM_OF_SM // (smem_bytes + static + SMEM_OF_SYSTEM)))
    return BlockPlan(
        *(workload, warps, ring, cluster, pieces, piece_len, per_sm, smem_bytes),
        tile=tile,
        run=run,
        sharers=sharers,
    )


def clusters_that_fit(cluster: int, sms: int) -> int:
    """Clusters that a GPU can run at once, each block with a multiprocessor for itself.

    Two blocks find a pair of multiprocessors everywhere. More must lie in one GPC, and of each GPC
    some are left over: measured on an NVIDIA H200, which runs 30 clusters of 4 and 15 of 8.
    """
    return int(sms * (1 if cluster <= 2 else PART_IN_CLUSTERS)) // cluster


def _choose_pieces(
    workload: Workload, knobs: Mapping[str, int], tiles: int, bytes_read: int
) -> tuple[int, int]:
    """Blocks of a cluster, and pieces of a sequence."""
    pairs, sms = workload.batch * workload.num_kv_heads, knobs["sms"]
    cluster, split = 1, knobs["split"]
    while 2 * cluster <= min(LARGEST_CLUSTER, sms // pairs, tiles):
        cluster *= 2
    uneven = cluster == 1 and workload.seq_lens is not None
    suffices = bytes_read <= CLUSTERS_ALONE_BYTES or pairs * cluster > NEARLY_ALL * sms
    if not split and suffices and not uneven:
        split = cluster
    if not split:
        cluster = min(cluster, 2)
        split = max(1, sms // pairs)
        if uneven or pairs * split <= ENOUGH * sms:
            split = choose_split(workload, sms, 2, heads=workload.num_kv_heads, tile_rows=256)
    while split % cluster:
        cluster //= 2
    return knobs["cluster"] or cluster, split


def _choose_warps(needed: int, alone: int) -> int:
    """Warps of a block where so many blocks share a multiprocessor, or of one that is alone."""
    if needed == 1:
        return alone
    return 4 if 4 * needed <= WARPS_OF_SM else 2
