"""The tile of a matrix product on the instructions that sm_90a alone has: wgmma and bulk copies.

What differs from `tiles`: a warpgroup multiplies 64 rows at the data sheet's peak and reads both
factors from shared memory, into which the copies go too; one warp starts all copies, so no warp
waits at a barrier for all others; blocks stay and take tile after tile; few tiles are shared out
along K, and then every block writes its part, waits, and the last of a tile reads them all.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from labtools.predict.sheets import Gpu
from labtools.problem import load_rung
from labtools.problem.decode.block_plan import MEMORY_JOIN_US
from labtools.problem.gemm.tiling import SLICE, WARPGROUP_ROWS, RingTile
from labtools.problem.limits import COPY_BYTES
from labtools.problem.text import how_many

from ..parts import NOT_TOLD_APART, WARP, DesignStep, Rejected, Sheet, tied_times
from ..sm import (
    ELEMENT,
    LOADED_SHARE,
    SUM,
    UNIT_BYTES,
    ModelledTime,
    SmModel,
    busiest_cycles,
    going_on,
)
from .traffic import traffic_given_l2
from .work import TiledWork

_STEPS = Sheet(Path(__file__).with_name("steps.toml"))
KERNEL = "g02_hopper"
"""The shipped kernel that takes such a tile as its knobs."""
ARCH = "sm_90"
"""Its instructions are those of one architecture."""
DEPTH = 16
"""Elements of a sum that one wgmma adds."""
LOOPS = ("swap", "warpgroups", "tile_n", "split")
"""Knobs of a tile's shape, the outermost loop of a search first."""
SHARING_GAIN = 1.10
"""Times its own time that the best tile which is not shared must take before one is shared: a
shared tile adds waits between blocks, which vary, so that a tenth decides nothing. A choice."""


@dataclass(frozen=True, kw_only=True)
class RingCost(ModelledTime):
    """A tile and what the model says of it: ``by`` is ``tensor cores``, ``shared memory``,
    ``copies`` or ``latency``, and the time has the join besides."""

    tile: RingTile  # sizes, stages, split
    items: int  # tiles, or parts of tiles where these are shared
    turns: int  # items that the busiest SM takes, one after the other
    join_us: float  # to add the parts of a tile in each turn, where tiles are shared


@dataclass(frozen=True)
class RingDesign:
    """The kernel on these instructions, with its steps."""

    kernel: str  # the shipped kernel that this specifies
    knobs: dict[str, int]
    cost: RingCost
    bound: str  # what takes longest at its peak, ``memory`` or ``tensor cores``
    floor_us: float  # the time of that bound
    time_us: float  # expected
    steps: tuple[DesignStep, ...]
    near: tuple[RingTile, ...]  # other shapes at their best, the nearest first, for a search

    @property
    def summary(self) -> str:
        """The tile in one line."""
        tile = self.cost.tile
        return (
            f"{tile.rows} x {tile.columns}, {how_many(tile.stages, 'stage')}, "
            f"{how_many(tile.split, 'block')} per tile, "
            f"{tile.smem_bytes:,} bytes of shared memory per block, {self.time_us:.4g} us, "
            f"{self.floor_us / self.time_us:.0%} of the bound, which is {self.bound}"
        )


def takes_ring(work: TiledWork, gpu: Gpu) -> bool:
    """Whether the GPU has these instructions and the copy engine takes such rows."""
    can = gpu.arch == ARCH and bool(gpu.fp16_tensor_tflops)
    return can and len(work.rows) == 1 and work.copies_whole


def derive_ring(work: TiledWork, gpu: Gpu, mma_us: float) -> RingDesign | None:
    """The tile of one matrix product on wgmma, beside the time of the best on mma.m16n8k16, or None
    where the GPU lacks it or the copy engine takes no such rows."""
    if not takes_ring(work, gpu):
        return None
    model = RingModel(work, gpu)
    best = model.best()
    steps = (_instruction(model, best, mma_us), _tile(model, best), _ring(model, best))
    near = tuple(one.tile for one in model.shapes() if _shape(one.tile) != _shape(best.tile))
    floors = model.floors_us
    bound = max(floors, key=lambda name: floors[name])
    return RingDesign(
        KERNEL, best.tile.knobs, best, bound, floors[bound], best.time_us, steps, near
    )


class RingModel(SmModel):
    """The model for one product on one GPU."""

    def __init__(self, work: TiledWork, gpu: Gpu) -> None:
        super().__init__(gpu)
        self.work = work
        self.m, self.n = work.rows[0], work.columns
        self.slices = -(-work.depth // SLICE)
        boxes = {"L2": self.machine.l2_box, "memory": self.machine.dram_box}
        self.box_rates = {name: going_on(box) for name, box in boxes.items()}
        self.memory_bytes = traffic_given_l2(work, gpu)
        knobs = load_rung(KERNEL).knobs
        self.choices = {knob.name: tuple(map(int, knob.choices)) for knob in knobs}

    @property
    def floors_us(self) -> dict[str, float]:
        """Least time at the peak rate of memory and of the tensor cores, microseconds."""
        dram = self.machine.dram_bytes_per_cycle
        cycles = self.work.flops / self.sheet_flops / self.gpu.sm_count
        return {"memory": self.us(self.work.minimal_bytes / dram), "tensor cores": self.us(cycles)}

    def product_cycles(self, tile: RingTile) -> float:
        """Cycles of an SM for one wgmma: its operations, or its reads of shared memory."""
        operations = 2 * WARPGROUP_ROWS * tile.columns * DEPTH / self.sheet_flops
        read = ELEMENT * DEPTH * (WARPGROUP_ROWS + tile.columns) / UNIT_BYTES
        return max(operations, read)

    def running(self, tile: RingTile) -> int:
        """Blocks that run at a time, one on an SM."""
        return min(tile.tiles(self.m, self.n) * tile.split, self.gpu.sm_count)

    def l2_share(self, blocks: float, most: float) -> float:
        """Bytes a cycle between the L2 and one of so many blocks: its share, and at most what one
        SM moves."""
        return min(most, self.machine.l2_bytes_per_cycle / blocks)

    def latency(self, tile: RingTile) -> float:
        """Cycles until the larger of the two boxes of a slice is there from memory."""
        return self.machine.dram_box(ELEMENT * SLICE * max(tile.rows, tile.columns))

    def copy_cycles(self, tile: RingTile) -> float:
        """Cycles in which the copies of a slice arrive. A box is filled whole, with zeros where
        the matrix has ended. Of the tiles that read the same box one has it come from memory, the
        others from the L2."""
        left, right = tile.sides(self.m, self.n)
        cached = self.l2_share(self.running(tile), self.box_rates["L2"])
        cold = min(cached, self.box_rates["memory"])
        boxes = (tile.rows, -(-right // tile.columns)), (tile.columns, -(-left // tile.rows))
        cycles = 0.0
        for rows, readers in boxes:
            first = 1 / readers
            cycles += ELEMENT * SLICE * rows * (first / cold + (1 - first) / cached)
        return cycles

    def shares(self, tile: RingTile) -> dict[str, float]:
        """Cycles of an SM for one slice of its block, by what takes them."""
        steps = SLICE // DEPTH
        read = tile.warpgroups * steps * ELEMENT * DEPTH * (WARPGROUP_ROWS + tile.columns)
        return {
            "tensor cores": tile.warpgroups * steps * self.product_cycles(tile),
            "shared memory": (tile.slice_bytes + read) / UNIT_BYTES,
            "copies": self.copy_cycles(tile),
            "latency": self.latency(tile) / (tile.stages - 1),
        }

    def store_lines(self, tile: RingTile) -> float:
        """Lines of 128 bytes that the stores of a tile touch, each a cycle of the load/store unit.

        A warp has 16 rows of the left factor, and of the right one 8 for each 4 sums of a thread.
        Lanes that exchange their sums store 16 bytes each, 8 rows of 64 bytes at a time. Otherwise
        a store has one element of a lane: of 4 rows of the output where the factors are swapped,
        else of 8.
        """
        sums = tile.rows * tile.columns
        _, right = tile.sides(self.m, self.n)
        if tile.swap:
            return sums / WARP * 4
        if tile.columns % 32 == 0 and right % 8 == 0:
            return sums / (WARP * COPY_BYTES // ELEMENT) * 8
        return sums / WARP * 8

    def store_cycles(self, tile: RingTile) -> float:
        """Cycles in which a block stores a tile: exchanges between lanes and lines, or the bytes
        on their way into the L2."""
        sums = tile.rows * tile.columns
        exchanged = 0.0 if tile.swap else sums / 64
        moved = ELEMENT * sums / self.l2_share(self.running(tile), UNIT_BYTES)
        return max(exchanged + self.store_lines(tile), moved)

    def part_bytes(self, tile: RingTile) -> tuple[int, int]:
        """Bytes of parts that a block writes for an item, and that the last of a tile reads."""
        if tile.split == 1:
            return 0, 0
        part = SUM * tile.rows * tile.columns
        return part, tile.split * part

    def join_us(self, tile: RingTile) -> float:
        """What sharing a tile adds to each turn: the part is written, the block waits until it can
        be seen and counts itself, and the last of the tile reads all parts. In the next turn that
        block is the last again, since it begins late: every turn has it."""
        if tile.split == 1:
            return 0.0
        written, read = self.part_bytes(tile)
        blocks, most = self.running(tile), self.machine.fill_bytes_per_cycle
        cycles = written / self.l2_share(blocks, most)
        cycles += read / self.l2_share(max(1.0, blocks / tile.split), most)
        return MEMORY_JOIN_US + self.us(cycles)

    def traffic_bytes(self, tile: RingTile) -> float:
        """Bytes that memory moves: the least with the L2, and the parts that it has no room for."""
        written = self.part_bytes(tile)[0] * tile.tiles(self.m, self.n) * tile.split
        if not written:
            return self.memory_bytes
        room = max(0, self.gpu.l2_bytes - self.work.minimal_bytes)
        return self.memory_bytes + max(0, written - room)

    def cost(self, tile: RingTile) -> RingCost:
        """What a tile costs; it must fit."""
        machine, sms = self.machine, self.gpu.sm_count
        items = tile.tiles(self.m, self.n) * tile.split
        turns = -(-items // sms)
        shares = self.shares(tile)
        by = max(shares, key=lambda name: shares[name])
        first, join_us = self.latency(tile), self.join_us(tile)
        cycles = -(-self.slices // tile.split) * shares[by]
        ends_us = self.us(self.store_cycles(tile)) + join_us
        sm_us = self.us(first + turns * cycles) + turns * ends_us
        on_the_way = min(items, sms) * (tile.stages - 1) * tile.slice_bytes
        moved = self.traffic_bytes(tile)
        queued = moved * (first + machine.dram_queue(LOADED_SHARE)) / on_the_way
        memory_us = self.us(max(moved / machine.dram_bytes_per_cycle, queued))
        # The first bytes and the end of the last tile have nothing of memory's to hide under.
        return RingCost(
            tile=tile,
            items=items,
            turns=turns,
            registers=tile.registers,
            by=by,
            shares=shares,
            memory_us=memory_us,
            sm_us=sm_us,
            join_us=join_us,
            time_us=self.started_us(min(items, sms))
            + max(sm_us, self.us(first) + memory_us + ends_us),
        )

    def tiles(self, fixed: Mapping[str, int] | None = None) -> Iterator[RingTile]:
        """Every tile that fits; of a ring the longest, which costs nothing but its room."""
        choices = {**self.choices, **{name: (value,) for name, value in (fixed or {}).items()}}
        longest = sorted(choices["stages"], reverse=True)
        for sizes in itertools.product(*(choices[name] for name in LOOPS)):
            knobs = dict(zip(LOOPS, sizes, strict=True))
            if knobs["split"] > self.slices:
                continue
            rings = (RingTile.of({**knobs, "stages": stages}) for stages in longest)
            yield from itertools.islice(
                (tile for tile in rings if tile.why_not(self.gpu.limits) is None), 1
            )

    def best(self, fixed: Mapping[str, int] | None = None) -> RingCost:
        """The tile of least time. One that is shared must gain `SHARING_GAIN` over every one that
        is less, and of those that are not told apart that is taken which loads its units least."""
        found = [self.cost(tile) for tile in self.tiles(fixed)]
        least = min(one.time_us for one in found)
        split = min(one.tile.split for one in found if one.time_us <= SHARING_GAIN * least)
        alike = [one for one in found if one.tile.split == split]
        least = min(one.time_us for one in alike)
        return min(
            (one for one in alike if one.time_us <= NOT_TOLD_APART * least),
            key=lambda one: (_load(one), *_order(one)),
        )

    def shapes(self) -> list[RingCost]:
        """The best of every shape of a tile, the fastest first."""
        found: dict[tuple[int, ...], RingCost] = {}
        for one in sorted(map(self.cost, self.tiles()), key=_order):
            found.setdefault(_shape(one.tile), one)
        return list(found.values())


def _load(one: RingCost) -> float:
    """Cycles of all units together, over all slices of the busiest SM."""
    slices = one.turns / one.tile.split
    return round(slices * sum(one.shares[name] for name in one.shares if name != "latency"), 6)


def _order(one: RingCost) -> tuple[float, ...]:
    tile = one.tile
    return (round(one.time_us, 6), tile.split, tile.swap, tile.slice_bytes, tile.warpgroups)


def _shape(tile: RingTile) -> tuple[int, ...]:
    return (tile.warpgroups, tile.columns, tile.split, tile.swap)


def _instruction(model: RingModel, best: RingCost, mma_us: float) -> DesignStep:
    flops = 2 * WARPGROUP_ROWS * best.tile.columns * DEPTH
    return _STEPS.step(
        "instruction",
        [model.gpu.fp16_tensor_tflops or 0.0, model.sheet_flops],
        [model.product_cycles(best.tile), flops, model.floors_us["tensor cores"]],
        [mma_us],
        words={"best": best},
        ties=tied_times(best.time_us),
    )


def _tile(model: RingModel, best: RingCost) -> DesignStep:
    tile = best.tile
    rejected = []
    for name in (one for one in tile.knobs if one != "stages"):
        for value in model.choices[name]:
            if value == tile.knobs[name]:
                continue
            other = RingTile.of({**tile.knobs, name: value})
            fixed = {key: number for key, number in other.knobs.items() if key != "stages"}
            found, named = [model.cost(one) for one in model.tiles(fixed)], f"{name} {value}"
            if found:
                said = f"bound by {found[0].by}; the choice takes {best.time_us:.4g}"
                said += _why_not_faster(found[0], best)
                rejected.append(Rejected(named, found[0].time_us, "us", said))
            else:
                short = dataclasses.replace(other, stages=2)
                why = short.why_not(model.gpu.limits) or "more parts than slices"
                rejected.append(Rejected(named, other.slice_bytes, "bytes", why))
    left, right = tile.sides(model.m, model.n)
    padded = 1 - left * right / (tile.tiles(model.m, model.n) * tile.rows * tile.columns)
    store_us = model.us(model.store_cycles(tile))
    sides = {"left": "A", "right": "B", "swapped": ""}
    if tile.swap:
        sides = {"left": "B", "right": "A", "swapped": ", B on the left"}
    return _STEPS.step(
        "ring tile",
        [left, right, model.gpu.sm_count],
        [best.items, best.turns, padded, store_us, best.join_us, best.shares],
        rejected,
        words={"best": best, **sides},
        ties=tied_times(best.time_us),
    )


def _why_not_faster(other: RingCost, best: RingCost) -> str:
    """Why a tile of less time is not the choice, behind what is said of it, or nothing."""
    if other.time_us >= best.time_us:
        return ""
    if other.tile.split > best.tile.split:
        return f", and a shared tile must be {SHARING_GAIN - 1:.0%} faster"
    return ", not told apart by the time, and it loads the units more"


def _ring(model: RingModel, best: RingCost) -> DesignStep:
    tile, latency = best.tile, model.latency(best.tile)
    busy = busiest_cycles(best.shares)
    rejected = []
    for stages in sorted({tile.stages - 1, tile.stages + 1} & set(model.choices["stages"])):
        other, named = dataclasses.replace(tile, stages=stages), f"{stages} stages"
        why = other.why_not(model.gpu.limits)
        if why:
            rejected.append(Rejected(named, other.smem_bytes, "bytes", why))
        else:
            said = "fewer bytes in flight" if stages < tile.stages else "room for nothing else"
            rejected.append(Rejected(named, model.cost(other).time_us, "us", said))
    most = model.gpu.registers_per_block // tile.threads // 8 * 8
    row, needed = ELEMENT * SLICE, 1 + math.ceil(latency / busy)
    return _STEPS.step(
        "ring",
        [latency, busy],
        [tile.stages, needed, tile.smem_bytes, row % 128, row * tile.columns % 1024],
        [*rejected, most],
        "giving" if best.registers > most else "equal",
        {"best": best},
        tied_times(best.time_us),
    )
