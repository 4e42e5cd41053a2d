"""What a tile of a product costs, by the model that the derivation chooses with.

The model knows the units of an SM (tensor cores, load/store unit, the way from the L2), the latency
of a copy and how many slices cover it, waves of blocks, and the memory's rate. It does not know
instructions, conflicts of the L2, or clocks under load.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from labtools.predict.residency import occupancy
from labtools.predict.sheets import Gpu
from labtools.problem.gemm.tiling import PIECE, PRODUCT_KNOBS, ProductTile
from labtools.problem.limits import COPY_BYTES, MOST_REGISTERS

from ..parts import ALIKE, ISSUE_CYCLES, MOST_STAGES, NOT_TOLD_APART, PER_COPY
from ..sm import (
    ELEMENT,
    LOADED_SHARE,
    OTHER_REGISTERS,
    UNIT_BYTES,
    BlockCost,
    SmModel,
    busiest_cycles,
)
from .traffic import traffic_given_l2
from .work import TiledWork

ONE_BY_ONE = 25
"""Times as long that the load/store unit works on bytes that come element by element, because rows
begin anywhere: loads of 2 bytes that reach over as many lines as one of 16. From g01's records."""
CHOICES = {knob.name: tuple(map(int, knob.choices)) for knob in PRODUCT_KNOBS}


def registers_estimated(tile: ProductTile) -> int:
    """Registers of a thread, estimated: sums, the fragments of one step, and the rest."""
    rows, columns = tile.m // tile.warps_m, tile.n // tile.warps_n
    fragments = 4 * (rows // PIECE + columns // PIECE)
    return tile.sums + fragments + OTHER_REGISTERS


def fragment_bytes(tile: ProductTile) -> int:
    """Bytes that all warps read from shared memory for one slice, each the rows of A and columns of
    B of its own part: splitting N makes each read all of A again, splitting M all of B."""
    rows, columns = tile.m // tile.warps_m, tile.n // tile.warps_n
    return tile.warps * 2 * (rows + columns) * tile.k


@dataclass(frozen=True, kw_only=True)
class TileCost(BlockCost):
    """A tile and what the model says of it: ``by`` is ``tensor cores``, ``load/store unit``,
    ``L2``, ``latency`` or ``chain``."""

    tile: ProductTile  # sizes, warps and stages
    waves: int  # rounds in which the SMs take the blocks
    slice_cycles: float  # of an SM, for one slice of each resident block


class TileModel(SmModel):
    """The model for one work on one GPU."""

    def __init__(self, work: TiledWork, gpu: Gpu) -> None:
        super().__init__(gpu)
        self.work = work
        self.latency = self.machine.dram_async(512)  # cycles until a slice is there from memory
        self.memory_bytes = traffic_given_l2(work, gpu)
        self.memory_us = self.memory_bytes / self.dram_gb_per_s / 1e3

    def loaded(self, tile: ProductTile) -> float:
        """Bytes of a slice that one block loads."""
        slices = -(-self.work.depth // tile.k)
        return self.work.a_loaded(tile.m) / slices + ELEMENT * tile.n * tile.k

    def warp_chain(self, tile: ProductTile) -> float:
        """Cycles that one warp takes for a slice by itself: barrier, copies, the matrix loads of
        each step, products."""
        latency = self.machine.variable
        products = (tile.m // tile.warps_m // 16) * (tile.n // tile.warps_n // 8) * tile.k // PIECE
        copies = 2 * (tile.m + tile.n) * tile.k / COPY_BYTES / tile.threads
        waits = self.machine.barrier_cycles + tile.k // PIECE * latency["ldsm"] + latency["hmma"]
        return waits + copies * PER_COPY * ISSUE_CYCLES + products * self.mma_cycles

    def shares(self, tile: ProductTile, blocks: int) -> dict[str, float]:
        """Cycles of an SM for one slice of each of its blocks, by what takes them."""
        products = (tile.m // 16) * (tile.n // 8) * (tile.k // PIECE) / tile.warps
        # Of the scheduler with the most warps.
        turns = -(-tile.warps * blocks // self.machine.sub_partitions)
        loaded = self.loaded(tile)
        copied = loaded if self.work.copies_whole else ONE_BY_ONE * loaded
        return {
            "tensor cores": turns * products * self.mma_cycles,
            "load/store unit": blocks * (copied + fragment_bytes(tile)) / UNIT_BYTES,
            "L2": blocks * loaded / self.l2_rate,
            "latency": self.latency / max(1, tile.stages - 1),
            "chain": self.warp_chain(tile),
        }

    def idle_cycles(self, blocks: int) -> float:
        """Cycles of a slice in which no warp of a block multiplies: its barrier and the first
        matrix load. Other blocks of the SM fill them."""
        return (self.machine.barrier_cycles + self.machine.variable["ldsm"]) / blocks

    def why_not(self, tile: ProductTile) -> str | None:
        """Why no block can have a tile, or None."""
        why = tile.why_not_shared()
        if why is not None:
            return why
        registers = registers_estimated(tile)
        if registers > MOST_REGISTERS:
            return f"{registers} registers per thread, and there are {MOST_REGISTERS}"
        size = self.smem_bytes(tile)
        if size > self.gpu.smem_per_block_bytes:
            most = self.gpu.smem_per_block_bytes
            return f"{size:,} bytes of shared memory, and a block has {most:,}"
        if registers * tile.threads > self.gpu.registers_per_block:
            return f"{registers * tile.threads:,} registers, more than a block has"
        return None

    def smem_bytes(self, tile: ProductTile) -> int:
        """Shared memory of a block."""
        return self.work.slot_bytes(tile.m, tile.n, tile.k, tile.stages)

    def cost(self, tile: ProductTile) -> TileCost:
        """What a tile costs; it must fit."""
        work, sms = self.work, self.gpu.sm_count
        registers, smem = registers_estimated(tile), self.smem_bytes(tile)
        resident = max(1, occupancy(self.gpu, tile.threads, registers, smem).blocks_per_sm)
        blocks = work.blocks(tile.m, tile.n)
        slices = -(-work.depth // tile.k)
        waves, cycles, left = 0, 0.0, blocks
        busiest: dict[str, float] = {}
        while left > 0:
            # As many rounds at once as are alike.
            each = min(resident, -(-left // sms))
            rounds = max(1, left // (each * sms))
            shares = self.shares(tile, each)
            busiest = busiest or shares
            per_slice = max(shares.values()) + self.idle_cycles(each)
            cycles += rounds * (self.latency + slices * per_slice)
            waves += rounds
            left -= rounds * each * sms
        by = max(busiest, key=lambda name: busiest[name])
        sm_us = self.us(cycles)
        # The least traffic at the read ceiling, or at what the bytes on the way reach.
        on_the_way = min(blocks, resident * sms) * max(1, tile.stages - 1) * self.loaded(tile)
        latency = self.latency + self.machine.dram_queue(LOADED_SHARE)
        queued_us = self.us(self.memory_bytes * latency / on_the_way)
        memory_us = max(self.pulled_us(self.memory_bytes, blocks), queued_us)
        return TileCost(
            tile=tile,
            blocks=blocks,
            blocks_per_sm=resident,
            smem_bytes=smem,
            registers=registers,
            waves=waves,
            padded_share=work.padded_share(tile.m, tile.n),
            slice_cycles=busiest[by],
            by=by,
            shares=busiest,
            memory_us=memory_us,
            sm_us=sm_us,
            time_us=self.started_us(blocks) + max(sm_us, memory_us),
        )

    def stages_for(self, tile: ProductTile) -> int:
        """Slices that a ring must hold: the one that is read, and those that cover the latency, as
        far as they fit and there are so many."""
        cycles = busiest_cycles(self.shares(tile, 1))
        most = min(MOST_STAGES, 1 + -(-self.work.depth // tile.k))
        wanted = max(2, min(1 + math.ceil(self.latency / cycles), most))
        while wanted > 2 and self.why_not(with_stages(tile, wanted)) is not None:
            wanted -= 1
        return wanted

    def tiles(self, fixed: Mapping[str, int] | None = None) -> Iterator[ProductTile]:
        """Every tile that fits, each with the stages that it needs; some sizes may be fixed, by the
        name of the knob, and the stages too."""
        choices = {**CHOICES, **{name: (value,) for name, value in (fixed or {}).items()}}
        (wanted,) = choices.pop("stages", (0,))
        for sizes in itertools.product(*choices.values()):
            bare = ProductTile.of({**dict(zip(choices, sizes, strict=True)), "stages": 2})
            if self.why_not(bare) is None:
                made = with_stages(bare, wanted or self.stages_for(bare))
                if self.why_not(made) is None:
                    yield made

    def best(self, fixed: Mapping[str, int] | None = None) -> TileCost | None:
        """The tile of least time; of those that are not told apart that which loads its units
        least, or one that loads them little more with a warp for each scheduler. Of equal ones the
        longest slices have the fewest barriers; then the fewest registers and bytes decide."""
        found = [self.cost(tile) for tile in self.tiles(fixed)]
        if not found:
            return None
        least = min(one.time_us for one in found)
        near = [one for one in found if one.time_us <= NOT_TOLD_APART * least]
        loads = {one.tile: round(self.load(one), 6) for one in near}
        most = ALIKE * min(loads.values())

        def order(one: TileCost) -> tuple[float, ...]:
            tile, held = one.tile, min(one.blocks_per_sm, -(-one.blocks // self.gpu.sm_count))
            idle = max(0, self.machine.sub_partitions - held * tile.warps)
            room = one.registers * tile.threads, one.smem_bytes, tile.warps, tile.m
            return (idle, loads[tile], -tile.k, round(one.time_us, 6), *room)

        return min((one for one in near if loads[one.tile] <= most), key=order)

    def load(self, one: TileCost) -> float:
        """Cycles of all units together, over all slices of the SM with the most blocks."""
        blocks = -(-one.blocks // self.gpu.sm_count)
        shares = self.shares(one.tile, blocks)
        units = ("tensor cores", "load/store unit", "L2")
        return -(-self.work.depth // one.tile.k) * sum(shares[name] for name in units)


def with_stages(tile: ProductTile, stages: int) -> ProductTile:
    """The tile with another number of stages."""
    return dataclasses.replace(tile, stages=stages)
