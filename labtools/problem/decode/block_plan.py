"""How one launch of r09 to r11 is laid out: warps, stages, pieces and clusters.

The numbers behind the rule were measured on an NVIDIA H200; the page on inversion shows them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import LabError
from ..limits import GB_PER_S_OF_SM, Limits
from ..rung import Knob, Launch, Rung, Workspace, reset_launch
from .split import choose_split
from .workload import Workload

TILES_FOR_EIGHT_WARPS = 16
"""An fp16 block with fewer tiles is through them sooner with four warps."""
REGISTERS_OF_WARP = 32 * 160
"""About what a warp of these kernels takes at least; it says how many a multiprocessor holds."""
LEAST_BLOCK_WARPS = 2
"""Warps of the smallest block where several share a multiprocessor, so that one streams while
others join."""
ENOUGH_SMS = 0.7
"""Part of the multiprocessors: blocks that have more of them leave few idle, and four warps of a
block keep up."""
REACHED = 0.93
"""Part of the data sheet's memory rate that these kernels read at, at most."""
CLUSTER_JOIN_US = 0.25
"""What a join in a cluster takes for each doubling of its blocks."""
MEMORY_JOIN_US = 1.5
"""What a join through memory takes besides: a write, a fence, a counter, a trip to the L2."""
RESULT_US = 0.012
"""To read one partial result of one head from memory; the blocks of a cluster divide them."""
REST_US = 2.2
"""What a call takes besides, so that times can be said to be near to each other."""
MOST_IDLE_FACTOR = 1.2
"""Keys that the turns of four warps take room for, over those that there are: of more, and where
blocks wait for others to end, a block of one warp leaves no warp idle."""
SCALING_BYTES = 2500
"""What it costs a warp to scale q for keys that share scales, as bytes of K and V."""
CLOSE_FACTOR, NEAR_US = 1.05, 0.3
"""Times within such a factor or difference are not told apart: then the fewest clusters of a pair
are taken, so that the least goes through memory, and after that the largest ones."""
HOLD_UP = 8
"""Of many pairs memory and the multiprocessor with the most blocks hold each other up: their times
are added to the power of so much. Measured on ``kernels/grids/layouts.h200.json``."""

SPLIT_CHOICES = (*range(65), 66, 88, 96, 112, 120, 128, 132)
"""Any number of pieces that few pairs want, and some with which one pair has all SMs of a GPU."""

BLOCK_KNOBS = (
    Knob("warps", (0, 1, 2, 4, 8), 0, "warps of a block; 0: by rule", compiled=False),
    Knob("stages", (0, 1, 2, 3, 4, 5, 6), 0, "tiles of a warp's ring; 0: by rule", compiled=False),
    Knob("cluster", (0, 1, 2, 4, 8), 0, "blocks of a cluster; 0: by rule", compiled=False),
    Knob("split", SPLIT_CHOICES, 0, "pieces of a sequence; 0: by rule", compiled=False),
)
"""The knobs of `plan_blocks`: none is compiled, each decides the layout that is."""


def tile_bytes(keys: int, head_dim: int, bits: int) -> int:
    """Bytes of K and V of one tile in shared memory, scales and biases of a low-bit cache included.

    Those are fp16: for K one of each a dim, for V one of each a key.
    """
    beside = 0 if bits == 16 else 4 * head_dim + 4 * keys
    return 2 * keys * head_dim * bits // 8 + beside


def join_bytes(warps: int, group_size: int, head_dim: int) -> int:
    """Shared memory in which the warps of a block join: each head's sums, maximum and weight."""
    return warps * group_size * (head_dim + 6) * 4


@dataclass(frozen=True)
class RingKernel:
    """What the rule must know of a kernel whose warps stream tiles through rings."""

    tile: int  # keys of one tile
    slot_bytes: int  # shared memory of one tile with its scales
    # tiles of a warp's ring, by warps of a block; the most are those of a block alone on its SM
    stages: Mapping[int, int]
    # tiles that such a block must have, or four warps are through them sooner: where blocks leave
    # multiprocessors idle, and where they do not
    tiles_for_most: tuple[int, int]
    sm_gb_per_s: Mapping[int, float]  # what an SM works through with 8 and with 4 warps, 10^9 B/s
    # keys that share scales, which a warp takes in a row if its piece has so many; 0: none do
    scale_rows: int = 0
    block_bytes: int = 0  # shared memory of a block beside its rings: q, if there is any
    warp_bytes: int = 0  # that of a warp beside its ring
    ringless: bool = False  # a warp that takes one tile needs no room for a second one
    registers_of_warp: int = REGISTERS_OF_WARP  # with fewer it keeps some of them in memory

    def most_warps(self, limits: Limits) -> int:
        """Warps that shall share a multiprocessor, at most."""
        return limits.registers_per_sm // self.registers_of_warp

    @property
    def key_bytes(self) -> float:
        """Of K and V in memory, with their scales."""
        return self.slot_bytes / self.tile

    def scaling(self, keys: int) -> float:
        """Time of a warp that scales q for so many keys at a time, over that without scaling."""
        return 1 + SCALING_BYTES / self.key_bytes / keys if self.scale_rows else 1.0


@dataclass(frozen=True)
class BlockPlan:
    """The layout of one launch."""

    workload: Workload  # what it was laid out for
    warps: int  # of a block
    stages: int  # tiles of each warp's ring in shared memory
    cluster: int  # blocks that join through shared memory, sm_90 and up
    pieces: int  # blocks of each (sequence, KV head), a multiple of ``cluster``
    piece_len: int  # keys of one piece, a multiple of what the warps of a block take in one turn
    blocks_per_sm: int  # blocks that a multiprocessor shall hold at once; registers must allow it
    smem_bytes: int  # dynamic shared memory of a block
    kernel: RingKernel  # what was laid out
    run: int = 0  # tiles that a warp takes in a row because they share scales; 0 where none do
    sharers: int = 1  # warps whose runs share scales, and with them the work of scaling q

    @property
    def tile(self) -> int:
        return self.kernel.tile

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
        rows = Workspace("partial_rows", (*shape, self.workload.head_dim), "float32")
        return (rows, Workspace("partial_known", (*shape, 2), "float32"), self._finished)

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
        return reset_launch(self._finished)


def plan_of(
    rung: Rung, workload: Workload, limits: Limits, knobs: Mapping[str, int] | None = None
) -> BlockPlan:
    """The layout of one launch of r09 to r11, or of a copy of them; a LabError where the rung has
    no `Rung.plan`."""
    if rung.plan is None:
        why = "its launch is not laid out by the rule of r09 to r11"
        works = "its launches, which Rung.launches gives"
        raise LabError(f"{rung.id} has no layout to ask for.", why, works)
    plan: BlockPlan = rung.plan(workload, limits, rung.resolve_knobs(knobs))
    return plan


@dataclass(frozen=True)
class Division:
    """One way to divide a (sequence, KV head) pair among blocks, and what it takes."""

    cluster: int  # blocks of a cluster
    clusters: int  # of a pair
    piece_len: int  # keys of a block
    blocks: int  # of the grid
    crowded: bool  # there are more blocks than multiprocessors
    waves: int  # in which the blocks come; 1 if all can start at once
    sms: int  # multiprocessors counted on, as if each had as many blocks as the one with the most
    stream_us: float  # to read the cache: at the rate of memory, or of the SM with the most blocks
    join_us: float  # to join the pieces of a pair

    @property
    def pieces(self) -> int:
        """Of a pair."""
        return self.cluster * self.clusters

    @property
    def time_us(self) -> float:
        """To read and join."""
        return self.stream_us + self.join_us


def divisions(workload: Workload, limits: Limits, kernel: RingKernel) -> list[Division]:
    """The ways to divide pairs among blocks.

    They are powers of two of clusters a pair and, of single blocks and clusters of two, as many as
    there is room for. Pairs are few while two blocks of each find a multiprocessor, and then there
    is room for as many blocks as multiprocessors; clusters whose blocks do not find one each may
    share them two and two, if a pair is one cluster. Of many pairs several blocks share a
    multiprocessor, and what one number of them leaves idle, another need not: there is room for
    one, for two, and so on up to those whose registers fit. Pieces that would come in waves are
    not tried: the last wave leaves most idle. Nor are blocks that do not fit shared memory. Many
    pairs whose lengths differ are cut in the one way of `choose_split`.
    A LabError where no way fits shared memory.
    """
    pairs, sms = _pairs(workload), limits.num_sms
    many = _are_many(pairs, limits)
    if many and workload.seq_lens is not None:
        heads, sms = workload.num_kv_heads, limits.num_sms
        pieces = choose_split(workload, sms, 2, heads=heads, tile_rows=256)
        return [_divide(workload, limits, kernel, 1, pieces)]
    held = kernel.most_warps(limits) // LEAST_BLOCK_WARPS if many else 1
    found: dict[tuple[int, int], Division] = {}
    misfit: LabError | None = None
    tiles = -(-workload.kv_len // kernel.tile)
    for cluster in (1, *sorted(limits.clusters)):
        if cluster > 1 and (cluster > tiles or pairs * cluster > held * sms):
            continue
        fit = limits.clusters_that_fit(cluster)
        rooms = {max(1, each * fit // pairs) for each in range(1, held + 1)}
        counts = {1 << power for power in range(max(rooms).bit_length())}
        for wanted in sorted(counts | (rooms if cluster <= 2 else set())):
            try:
                one = _divide(workload, limits, kernel, cluster, wanted)
            except LabError as error:
                misfit = error
                continue
            if one.waves == 1 or one.pieces == 1:
                found.setdefault((cluster, one.clusters), one)
    if misfit is not None and not found:
        raise misfit
    return list(found.values())


def near_us(least: float) -> float:
    """The longest time to read and join that is not told apart from another one."""
    return max(least + NEAR_US, CLOSE_FACTOR * (least + REST_US) - REST_US)


def choose_division(ways: Sequence[Division]) -> Division:
    """The one that takes the least time, or one near to it that joins less through memory.

    Of times near to each other it has the fewest clusters of a pair, then the largest clusters
    whose blocks are no more than the multiprocessors, so that the most of these read, or else the
    smallest.
    """
    latest = near_us(min(way.time_us for way in ways))

    def is_near(way: Division) -> bool:
        return way.time_us <= latest

    def preference(way: Division) -> tuple[int, bool, int]:
        return way.clusters, way.crowded, way.cluster if way.crowded else -way.cluster

    return min(filter(is_near, ways), key=preference)


def _divide(
    workload: Workload, limits: Limits, kernel: RingKernel, cluster: int, wanted: int
) -> Division:
    """So many clusters a pair, or fewer where its keys are all given away before."""
    pairs = _pairs(workload)
    _, warps = _wanted_warps(workload, limits, kernel, cluster, wanted * cluster)
    piece_len = _piece_len(workload.kv_len, cluster * wanted, kernel, warps)
    clusters = -(-workload.kv_len // (piece_len * cluster))
    blocks = pairs * clusters * cluster
    plan = _lay_out(workload, limits, kernel, (cluster, cluster * wanted, piece_len))
    most = -(-pairs * clusters // limits.clusters_that_fit(cluster))
    rounds, rest = divmod(most, plan.blocks_per_sm)
    # Where memory is slower for the number of SMs, no fewer of them are trusted to keep it busy.
    memory = min(1.0, limits.dram_gb_per_s / (GB_PER_S_OF_SM * limits.num_sms)) * 1e3
    many = _are_many(pairs, limits)
    longest = workload.kv_len if many and clusters * cluster == 1 else piece_len

    # The rates were measured with as many keys as can share scales.
    scaling = kernel.scaling(plan.run * kernel.tile) / kernel.scaling(kernel.scale_rows)

    def through_us(held: int) -> float:
        """As long as a multiprocessor takes for the blocks that it holds at once."""
        rate = kernel.sm_gb_per_s[8 if held * plan.warps >= 8 else 4] * memory
        return held * longest * kernel.key_bytes / rate * scaling

    keys = sum(workload.seq_lens or (workload.batch * workload.kv_len,)) * workload.num_kv_heads
    join_us = CLUSTER_JOIN_US * math.log2(cluster)
    if clusters > 1:
        join_us += MEMORY_JOIN_US + RESULT_US * workload.group_size * clusters / cluster
    memory_us = keys * kernel.key_bytes / (REACHED * limits.dram_gb_per_s * 1e3)
    sm_us = rounds * through_us(plan.blocks_per_sm) + through_us(rest)
    return Division(
        *(cluster, clusters, piece_len, blocks),
        crowded=blocks > limits.num_sms,
        waves=rounds + (rest > 0),
        sms=-(-blocks // most),
        stream_us=_together(memory_us, sm_us) if many else max(memory_us, sm_us),
        join_us=join_us,
    )


def _together(memory_us: float, sm_us: float) -> float:
    return float((memory_us**HOLD_UP + sm_us**HOLD_UP) ** (1 / HOLD_UP))


def _piece_len(kv_len: int, pieces: int, kernel: RingKernel, warps: int) -> int:
    """Keys of a piece: whole turns of the warps. A warp takes as many keys in a row that share
    scales as leave the busiest one about as soon done as any other number."""
    keys = -(-kv_len // pieces)
    steps = [warps * kernel.tile]
    while 2 * steps[-1] <= warps * kernel.scale_rows:
        steps.append(2 * steps[-1])

    def longest(step: int) -> float:
        """Keys that the warps take room for, and what scaling q costs."""
        return -(-keys // step) * step * kernel.scaling(step // warps)

    least = min(map(longest, steps))
    step = next(step for step in reversed(steps) if longest(step) <= CLOSE_FACTOR * least)
    return -(-keys // step) * step


def _pairs(workload: Workload) -> int:
    return workload.batch * workload.num_kv_heads


def _are_many(pairs: int, limits: Limits) -> bool:
    """Whether two blocks of each pair would not find a multiprocessor each."""
    return 2 * pairs > limits.num_sms


def _wanted_warps(
    workload: Workload, limits: Limits, kernel: RingKernel, cluster: int, pieces: int
) -> tuple[int, int]:
    """Blocks that a multiprocessor must hold so that all start at once, and warps of a block."""
    tiles = -(-workload.kv_len // kernel.tile)
    blocks, sms = _pairs(workload) * pieces, limits.num_sms
    warps_of_sm = kernel.most_warps(limits)
    needed = -(-blocks // sms)
    alone = cluster * limits.clusters_that_fit(cluster)
    late = needed > warps_of_sm // LEAST_BLOCK_WARPS
    if (
        late
        and pieces == 1
        and _piece_len(workload.kv_len, 1, kernel, 4) > MOST_IDLE_FACTOR * (workload.kv_len)
    ):
        return 8, 1
    if blocks > alone and (needed == 1 or late):
        needed = 2  # those that do not fit share, or come after the others
    if needed > 1:
        return needed, 4 if 4 * needed <= warps_of_sm else LEAST_BLOCK_WARPS
    has_many = tiles // pieces >= kernel.tiles_for_most[blocks > ENOUGH_SMS * sms]
    return needed, max(kernel.stages) if has_many else 4


def plan_blocks(
    workload: Workload, limits: Limits, knobs: Mapping[str, int], kernel: RingKernel
) -> BlockPlan:
    """Lay out a launch; a knob that is 0 is chosen by the rule.

    The rule: pairs are divided as `choose_division` says, by the time that it takes to read and
    to join. A block has a multiprocessor for itself if all of them can start at once so; if not,
    several share one, and are smaller for it. A LabError where the block does not fit shared
    memory, or the GPU has no such clusters.
    """
    pieces = _choose_pieces(workload, limits, knobs, kernel)
    return _lay_out(workload, limits, kernel, pieces, knobs["warps"], knobs["stages"])


def _lay_out(
    workload: Workload,
    limits: Limits,
    kernel: RingKernel,
    pieces_of_pair: tuple[int, int, int],
    asked_warps: int = 0,
    asked_stages: int = 0,
) -> BlockPlan:
    """The layout for blocks of a cluster, pieces of a pair and keys of a piece (0: even pieces)."""
    tile, scale_rows = kernel.tile, kernel.scale_rows
    tiles = -(-workload.kv_len // tile)
    cluster, split, piece_len = pieces_of_pair
    needed, wanted = _wanted_warps(workload, limits, kernel, cluster, split)
    warps = asked_warps or wanted
    # What the blocks of a cluster send each other has a place of its own.
    shares = workload.group_size * workload.head_dim // 4 if cluster > 1 else 1
    static = 256 + 16 * (shares + cluster) + 8 * workload.group_size * cluster
    free = limits.smem_per_block_bytes - static - kernel.block_bytes

    def fewest(warps: int) -> int:
        return 1 if kernel.ringless and -(-tiles // split) <= warps else 2

    while not asked_warps and warps > 1:
        if warps * (fewest(warps) * kernel.slot_bytes + kernel.warp_bytes) <= free:
            break
        warps //= 2
    turn = tile * warps
    turns = -(-workload.kv_len // turn)
    piece_len = -(-piece_len // turn) * turn or -(-turns // min(split, turns)) * turn
    pieces = -(-workload.kv_len // (piece_len * cluster)) * cluster
    run = 1 if scale_rows else 0
    while run and 2 * run * tile <= scale_rows and piece_len % (2 * run * turn) == 0:
        run *= 2
    sharers = min(scale_rows // (run * tile), warps, workload.head_dim // 32) if run else 1
    ring, smem_bytes, per_sm = _fit_rings(
        *(workload, limits, kernel, warps, asked_stages),
        static=static,
        needed=needed,
        fewest=fewest(warps),
        turns=piece_len // turn,
        sharers=sharers,
    )
    return BlockPlan(
        *(workload, warps, ring, cluster, pieces, piece_len, per_sm, smem_bytes),
        kernel=kernel,
        run=run,
        sharers=sharers,
    )


def _fit_rings(
    workload: Workload,
    limits: Limits,
    kernel: RingKernel,
    warps: int,
    stages: int,
    *,
    static: int,
    needed: int,
    fewest: int,
    turns: int,
    sharers: int,
) -> tuple[int, int, int]:
    """Tiles of a ring, dynamic shared memory of a block, and blocks that a multiprocessor holds."""
    warp_bytes = kernel.warp_bytes
    if sharers > 1:  # each set of them exchanges q, and each lane four numbers
        warp_bytes += kernel.block_bytes // sharers + 32 * 16
    block_bytes = kernel.block_bytes + warps * warp_bytes
    room = limits.smem_per_block_bytes - static - block_bytes
    most_warps = kernel.most_warps(limits)
    at_once = max(1, min(needed, most_warps // warps))
    reserved = static + limits.smem_reserved_per_block_bytes
    share = min(room, limits.smem_per_sm_bytes // at_once - reserved - block_bytes)
    ring = stages or max(
        fewest, min(kernel.stages.get(warps, 4), turns, share // (warps * kernel.slot_bytes))
    )
    if ring == 1 and not (kernel.ringless and turns == 1):
        raise LabError(
            "A ring of one tile needs warps that take one tile each.",
            f"here {warps} warps share {warps * turns} tiles",
            "more stages, or more warps and pieces",
        )
    joining = join_bytes(warps, workload.group_size, workload.head_dim)
    smem_bytes = max(block_bytes + warps * ring * kernel.slot_bytes, joining)
    if smem_bytes > room + block_bytes:
        raise LabError(
            f"{warps} warps with {ring} tiles each do not fit.",
            f"they take {smem_bytes + static} bytes of shared memory, and a block has "
            f"{limits.smem_per_block_bytes}",
            "fewer warps or stages",
        )
    per_sm = max(1, min(at_once, limits.smem_per_sm_bytes // (smem_bytes + reserved)))
    return ring, smem_bytes, per_sm


def _choose_pieces(
    workload: Workload, limits: Limits, knobs: Mapping[str, int], kernel: RingKernel
) -> tuple[int, int, int]:
    """Blocks of a cluster, pieces of a pair, and keys of a piece; these are 0 for even pieces."""
    cluster = knobs["cluster"]
    if cluster > limits.largest_cluster:
        raise LabError(
            f"There are no clusters of {cluster} blocks on {limits.name}.",
            f"{limits.arch} has clusters of at most {limits.largest_cluster}",
            "a smaller cluster, or 0, which leaves it to the rule",
        )
    if split := knobs["split"]:
        return cluster or _largest_cluster(workload, limits, kernel, split), split, 0
    chosen = choose_division(divisions(workload, limits, kernel))
    return cluster or chosen.cluster, chosen.pieces, 0 if cluster else chosen.piece_len


def _largest_cluster(workload: Workload, limits: Limits, kernel: RingKernel, split: int) -> int:
    """The largest cluster for so many pieces, if a pair has no more than its part of the GPU."""
    tiles = -(-workload.kv_len // kernel.tile)
    most = min(limits.largest_cluster, limits.num_sms // _pairs(workload), tiles)
    return next((size for size in (8, 4, 2) if size <= most and split % size == 0), 1)
