"""What a tile of prefill costs: a block has queries and goes over the keys tile by tile.

Its products come from `wgmma` (four warps, operands in shared memory) or `mma.m16n8k16` (one warp,
operands in registers). The model knows the units of an SM, registers and shared memory of a block,
the order in which a tile's parts wait for each other, the ring, and how blocks are dealt out.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from labtools.predict.residency import occupancy
from labtools.predict.sheets import Gpu
from labtools.problem import Launch, load_rung
from labtools.problem.gemm.tiling import WARPGROUP_ROWS, WARPGROUP_THREADS
from labtools.problem.limits import MOST_REGISTERS
from labtools.problem.prefill import Prefill

from ..parts import ISSUE_CYCLES, NOT_TOLD_APART, WARP
from ..sm import LOADED_SHARE, MMA_FLOPS, OTHER_REGISTERS, UNIT_BYTES, BlockCost, SmModel

GROUP_ROWS = {"wgmma": WARPGROUP_ROWS, "mma": 16}
"""Queries of one warpgroup, or of one warp: the rows of one product."""
GROUP_THREADS = {"wgmma": WARPGROUP_THREADS, "mma": WARP}
KERNEL_OF_KIND = {"wgmma": "p03_hopper", "mma": "p02_corrected"}
"""The shipped kernel of each kind of product, whose knobs are the choices."""
PER_SCORE = {"wgmma": 5, "mma": 10}
"""Instructions of a lane from a score to its weight. Counted in p03's and p02's machine code; p02
also masks every tile and unpacks what it packed."""
PER_KEY_TILE = {"wgmma": 84, "mma": 300}
"""Instructions of a trip that depend on no size; p02's threads copy as well."""
LEAST_REGISTERS = 24
"""Of a thread of the warpgroup that copies: the least that setmaxnreg leaves (PTX ISA)."""
MOST_TAKEN = 240
"""The most that a thread asks for there: a multiple of 8 that leaves the copying ones theirs."""
FIXED_REGISTERS = 16
KEYS_A_REGISTER = 6
"""Of a thread of p03, beside sums, scores and weights: some, and one more for so many keys, which
are on the way from a score to a weight. Read from which tiles the compiler spills."""
MOST_DEALT = 4096
"""Blocks that are dealt out to the SMs one by one; of more the mean is taken."""


@dataclass(frozen=True)
class PrefillTile:
    """A block's tile and its ring."""

    kind: str  # ``wgmma`` or ``mma``
    keys: int  # of a tile
    groups: int  # warpgroups or warps that multiply
    stages: int  # tiles of K and V in shared memory
    pingpong: int = 0  # whether warpgroups start their products in turn

    @property
    def queries(self) -> int:
        """Of a block."""
        return GROUP_ROWS[self.kind] * self.groups

    @property
    def kernel(self) -> str:
        """The rung that has this tile."""
        return KERNEL_OF_KIND[self.kind]

    @property
    def knobs(self) -> dict[str, int]:
        """As the rung's knobs."""
        found = {"block_n": self.keys, "stages": self.stages}
        if self.kind == "wgmma":
            return found | {"warpgroups": self.groups, "pingpong": self.pingpong}
        return found | {"warps": self.groups}

    @classmethod
    def of(cls, kind: str, knobs: Mapping[str, int]) -> PrefillTile:
        """The tile that a rung's knobs name."""
        groups = knobs["warpgroups" if kind == "wgmma" else "warps"]
        return cls(kind, knobs["block_n"], groups, knobs["stages"], knobs.get("pingpong", 0))


@dataclass(frozen=True, kw_only=True)
class PrefillCost(BlockCost):
    """A tile of prefill and what the model says of it."""

    tile: PrefillTile  # sizes, groups and stages
    rounds: float  # blocks one after another on an SM, where all last equally long
    tile_cycles: float  # of an SM, for one tile of keys of each of its blocks


class PrefillModel(SmModel):
    """The model for one problem on one GPU, with ``wgmma`` or ``mma`` as its kind of product."""

    def __init__(self, problem: Prefill, gpu: Gpu, kind: str) -> None:
        super().__init__(gpu)
        self.problem, self.kind = problem, kind
        self.rung = load_rung(KERNEL_OF_KIND[kind])
        self.choices = {knob.name: tuple(map(int, knob.choices)) for knob in self.rung.knobs}
        self._limits = gpu.limits
        self._launches: dict[PrefillTile, Launch] = {}
        self._costs: dict[PrefillTile, PrefillCost] = {}
        flops = self.machine.sub_partitions * MMA_FLOPS / self.mma_cycles
        self.flops_per_cycle = max(self.sheet_flops, flops) if kind == "wgmma" else flops
        self.memory_us = problem.minimal_bytes / self.dram_gb_per_s / 1e3

    def launch(self, tile: PrefillTile) -> Launch:
        """The rung's launch with this tile, whether or not it fits."""
        if tile not in self._launches:
            self._launches[tile] = self.rung.launch(self.problem, self._limits, tile.knobs)[0]
        return self._launches[tile]

    def registers(self, tile: PrefillTile) -> int:
        """Registers of a thread that multiplies, estimated."""
        dim, keys = self.problem.head_dim, tile.keys
        if tile.kind == "wgmma":  # 64 rows over 128 threads
            held = dim // 2 + keys // 2 + keys // 4
            return held + FIXED_REGISTERS + math.ceil(keys / KEYS_A_REGISTER)
        return dim // 2 + dim // 4 + keys // 2 + OTHER_REGISTERS  # 16 rows over 32

    def room_for_registers(self, tile: PrefillTile, blocks: int) -> int:
        """Registers that a thread which multiplies can have, with so many blocks on an SM."""
        if tile.kind == "mma":
            return min(MOST_REGISTERS, self.gpu.registers_per_sm // (WARP * tile.groups * blocks))
        own = self.gpu.registers_per_sm // blocks - LEAST_REGISTERS * GROUP_THREADS[tile.kind]
        each = own // (GROUP_THREADS[tile.kind] * tile.groups)
        return min(MOST_TAKEN, each // 8 * 8)

    def why_not(self, tile: PrefillTile) -> str | None:
        """Why no block can have a tile, or None."""
        size = self.launch(tile).smem_bytes
        if size > self.gpu.smem_per_block_bytes:
            most = self.gpu.smem_per_block_bytes
            return f"{size:,} bytes of shared memory, and a block has {most:,}"
        registers, most = self.registers(tile), self.room_for_registers(tile, 1)
        if registers > most:
            return f"{registers} registers per thread, and there are {most}: they would spill"
        if tile.pingpong and tile.groups == 1:
            return "one warpgroup has nobody to take turns with"
        return None

    def resident(self, tile: PrefillTile) -> int:
        """Blocks on an SM at a time."""
        launch = self.launch(tile)
        registers = self.registers(tile) if tile.kind == "mma" else LEAST_REGISTERS
        fits = occupancy(self.gpu, launch.num_threads, registers, launch.smem_bytes).blocks_per_sm
        if tile.kind == "mma":
            return fits
        # The kernel is compiled for two blocks of one warpgroup on an SM, or for one of more.
        two = tile.groups == 1 and self.registers(tile) <= self.room_for_registers(tile, 2)
        return max(1, min(2 if two else 1, fits))

    def tiles_of_blocks(self, tile: PrefillTile) -> np.ndarray:
        """Tiles of keys that each block of a head goes over, from the last queries to the first,
        int64 ``[blocks of a head]``."""
        problem = self.problem
        first = np.arange(0, problem.num_queries, tile.queries)[::-1]
        ahead = problem.kv_len - problem.num_queries if problem.causal else problem.kv_len
        ends = np.minimum(problem.kv_len, first + tile.queries + ahead)
        return -(-ends // tile.keys)

    def padded_share(self, tile: PrefillTile) -> float:
        """Part of the products that masks and edges throw away."""
        issued = int(self.tiles_of_blocks(tile).sum()) * tile.queries * tile.keys
        return 1 - self.problem.pairs / issued

    def products_cycles(self, tile: PrefillTile) -> float:
        """Cycles of the SM's tensor cores for the scores of one group's tile; the output takes as
        many."""
        rows = GROUP_ROWS[tile.kind]
        return 2 * rows * tile.keys * self.problem.head_dim / self.flops_per_cycle

    def shared_bytes(self, tile: PrefillTile) -> int:
        """Bytes that one block moves into shared memory and out of it for a tile of keys."""
        row = 2 * self.problem.head_dim
        copied, read = 2 * tile.keys * row, 2 * tile.keys * row
        if tile.kind == "wgmma":  # the queries are read anew for each tile
            read += GROUP_ROWS[tile.kind] * row
        return copied + tile.groups * read

    def matrix_loads(self, tile: PrefillTile) -> int:
        """`ldmatrix.x4` of one warp for a tile: 16 keys and 16 dimensions each, of K and of V."""
        return 2 * (tile.keys // 16) * (self.problem.head_dim // 16)

    def instructions(self, tile: PrefillTile) -> float:
        """Of one warp for a tile."""
        scores = tile.keys / 2  # of a lane; 16 rows per warp
        count = PER_SCORE[tile.kind] * scores + self.problem.head_dim / 2 + PER_KEY_TILE[tile.kind]
        if tile.kind == "mma":
            count += 3 * self.matrix_loads(tile)  # each with its two products
        return count

    def exponential_cycles(self, tile: PrefillTile) -> float:
        """Cycles of a sub-partition for the exponentials of one warp's tile."""
        return tile.keys / 2 * self.machine.intervals["xu"]

    def chain_parts(self, tile: PrefillTile) -> dict[str, float]:
        """What one group does for a tile by itself, in order, in cycles.

        Of a warpgroup the weights of a tile hide the output of the one before, or the other way
        round: both are ``weights or output``. In p02 nothing of a warp hides anything.
        """
        machine, latency = self.machine, self.machine.variable
        lanes, dim = tile.keys / 2, self.problem.head_dim
        if tile.kind == "mma":
            loads = self.matrix_loads(tile)
            pair = max(latency["hmma"], 2 * self.mma_cycles)
            others = self.instructions(tile) - 3 * loads
            return {
                "matrix loads and products": loads * (latency["ldsm"] + pair),
                "the other instructions": ISSUE_CYCLES * others,
                "barrier": machine.barrier_cycles,
            }
        products = self.products_cycles(tile)
        read = 2 * dim * (GROUP_ROWS[tile.kind] + tile.keys)  # the queries and the keys
        scores = max(products, read / UNIT_BYTES)
        started = latency["ldsm"] + latency["hmma"]
        weights = lanes * machine.intervals["alu"] + 2 * latency["shfl"]
        weights += self.exponential_cycles(tile)
        turns = 2 * machine.barrier_cycles if tile.pingpong else 0.0
        return {
            "scores": scores + started,
            "weights or output": max(weights, products + started),
            "rescaling and packing": ISSUE_CYCLES * (dim / 2 + lanes / 2),
            "barriers": 3 * latency["shared_32"] + turns,
        }

    def lockstep_cycles(self, tile: PrefillTile, groups: int) -> float:
        """A tile of each of so many warpgroups on an SM: their products meet, then their
        exponentials do.

        The tensor cores take started products of all of them in turn, so that scores are there for
        all at about the same time, and so it goes on. That they start them one after the other
        does not part them: p03's records on an H200 have the same time with and without turns
        where there are many keys. Nor does it matter whose block they are of.
        """
        parts, products = self.chain_parts(tile), self.products_cycles(tile)
        weights = parts["weights or output"] + (groups - 1) * self.exponential_cycles(tile)
        scores = parts["scores"] + (groups - 1) * products
        ends = parts["rescaling and packing"], parts["barriers"]
        return scores + max(weights, groups * products) + ends[0] + ends[1]

    def shares(self, tile: PrefillTile, blocks: int) -> dict[str, float]:
        """Cycles of an SM for one tile of keys of each of its blocks, by what takes them."""
        warps = blocks * tile.groups * GROUP_THREADS[tile.kind] // WARP
        a_scheduler = warps / min(self.machine.sub_partitions, warps)
        loaded = 4 * tile.keys * self.problem.head_dim
        found = {
            "tensor cores": 2 * blocks * tile.groups * self.products_cycles(tile),
            "exponentials": a_scheduler * self.exponential_cycles(tile),
            "instructions": a_scheduler * self.instructions(tile),
            "shared memory": blocks * self.shared_bytes(tile) / UNIT_BYTES,
            "L2": blocks * loaded / self.l2_rate,
            "chain": self.lockstep_cycles(tile, blocks * tile.groups)
            if tile.kind == "wgmma"
            else sum(self.chain_parts(tile).values()),
        }
        waits = self.wait_cycles(tile, max(found.values()))
        return found | {"waiting for K and V": max(found.values()) + waits / blocks}

    def load_cycles(self, tile: PrefillTile) -> float:
        """From asking for a tile of K or of V until it is there: a latency, and the rate into an
        SM. Where all blocks run at once nobody has brought it into the L2 before."""
        machine = self.machine
        moved = 2 * tile.keys * self.problem.head_dim / machine.fill_bytes_per_cycle
        at_once = self.launch(tile).num_blocks <= self.resident(tile) * self.gpu.sm_count
        if at_once and self.problem.cache_state == "cold":
            return machine.dram_async(512) + moved
        return machine.l2_async(512) + machine.l2_queue(LOADED_SHARE) + moved

    def wait_cycles(self, tile: PrefillTile, round_cycles: float) -> float:
        """Cycles of a trip in which a group waits for a tile.

        A stage is asked for again when its tile was read. With s stages that is s - 1 trips before
        it is needed; of wgmma K and V have a barrier each, so K's stage is free once the scores
        are there, and V's once the output is.
        """
        ahead = (tile.stages - 1) * round_cycles
        load = self.load_cycles(tile)
        if tile.kind == "mma":
            return max(0.0, 2 * load - ahead)
        parts = self.chain_parts(tile)
        k_slack = ahead + round_cycles - parts["scores"]
        v_slack = ahead + parts["rescaling and packing"] + parts["scores"]
        return max(0.0, load - k_slack, load - v_slack)

    def ends_cycles(self, tile: PrefillTile) -> float:
        """What a block takes beside its trips: first bytes, first scores, the output's stores."""
        parts = self.chain_parts(tile)
        first = self.machine.dram_async(512) + self.load_cycles(tile)
        if tile.kind == "mma":
            return first + self.machine.dram_async(512)
        return first + parts["scores"] + parts["weights or output"] + self.machine.l2_async(512)

    def dealt_cycles(self, tile: PrefillTile, lasts: np.ndarray, slots: int) -> float:
        """When the last block ends: each free slot takes the next, of which ``lasts`` has the
        cycles, head by head."""
        heads = self.problem.batch * self.problem.num_qo_heads
        blocks = heads * len(lasts)
        if blocks <= slots:
            return float(lasts.max())
        if not self.problem.causal:
            return -(-blocks // slots) * float(lasts.max())
        if blocks > MOST_DEALT:
            return float(heads * lasts.sum() / slots + lasts.max() / 2)
        ends = [0.0] * slots
        for one in itertools.chain.from_iterable(itertools.repeat(lasts.tolist(), heads)):
            heapq.heapreplace(ends, ends[0] + one)
        return max(ends)

    def cost(self, tile: PrefillTile) -> PrefillCost:
        """What a tile costs; it must fit."""
        if tile in self._costs:
            return self._costs[tile]
        launch = self.launch(tile)
        resident, blocks = self.resident(tile), launch.num_blocks
        each = min(resident, -(-blocks // self.gpu.sm_count))
        shares = self.shares(tile, each)
        by = max(shares, key=lambda name: (shares[name], name != "waiting for K and V"))
        lasts = self.tiles_of_blocks(tile) * shares[by] + self.ends_cycles(tile) / each
        slots = each * self.gpu.sm_count
        sm_us = self.us(self.dealt_cycles(tile, lasts, slots))
        memory_us = self.pulled_us(self.problem.minimal_bytes, blocks)
        found = self._costs[tile] = PrefillCost(
            tile=tile,
            blocks=blocks,
            blocks_per_sm=resident,
            smem_bytes=launch.smem_bytes,
            registers=self.registers(tile),
            rounds=blocks / slots,
            padded_share=self.padded_share(tile),
            tile_cycles=shares[by],
            by=by,
            shares=shares,
            memory_us=memory_us,
            sm_us=sm_us,
            time_us=self.started_us(blocks) + max(sm_us, memory_us),
        )
        return found

    def tiles(self, fixed: Mapping[str, int] | None = None) -> Iterator[PrefillTile]:
        """Every tile that fits, where some knobs may be fixed."""
        choices = {**self.choices, **{name: (value,) for name, value in (fixed or {}).items()}}
        for chosen in itertools.product(*choices.values()):
            tile = PrefillTile.of(self.kind, dict(zip(choices, chosen, strict=True)))
            if self.why_not(tile) is None:
                yield tile

    def best(self, fixed: Mapping[str, int] | None = None) -> PrefillCost | None:
        """The tile of least time.

        Of warps that multiply by themselves, as p02's, that with the most keys of those that are
        not told apart: what the model leaves out is paid once a trip. Of warpgroups the trip is
        counted whole; taking turns costs two barriers in the model, and in p03's records about a
        hundredth more, where it does not gain: turns are taken where the two are not told apart.
        """
        found = [self.cost(tile) for tile in self.tiles(fixed)]
        if not found:
            return None
        if self.kind == "wgmma":
            best = min(found, key=lambda one: (round(one.time_us, 6), *_needs(one)))
            turning = dataclasses.replace(best.tile, pingpong=1)
            allowed = fixed is None or fixed.get("pingpong", 1) == 1
            if allowed and self.why_not(turning) is None:
                other = self.cost(turning)
                best = other if other.time_us <= NOT_TOLD_APART * best.time_us else best
            return best
        least = min(one.time_us for one in found)
        near = [one for one in found if one.time_us <= NOT_TOLD_APART * least]
        return min(near, key=_needs)


def _needs(one: PrefillCost) -> tuple[float, ...]:
    """Orders tiles of one time: the fewest trips first, then what keeps the SMs busy the shortest,
    as where memory is the bound, then the least room."""
    tile, sm_us = one.tile, round(one.sm_us, 6)
    return (-tile.keys, sm_us, one.smem_bytes, one.registers, tile.pingpong, tile.groups)
