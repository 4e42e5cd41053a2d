"""What a reader proposes, held against the limits one by one: sizes of a tile, a ring, a layout.

A derivation chooses. Here somebody else chooses, and each limit says whether it holds and by what
number. Every operation has three sizes to choose and the same layouts of rows in shared memory.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from labtools.problem.gemm.tiling import ProductTile
from labtools.problem.limits import MOST_REGISTERS
from labtools.problem.rung import SWIZZLED_ROW_BYTES

from ..banks import AccessReport, Tile, check_tile
from ..sheets import Gpu
from .parts import AnyDesign
from .product import TileDesign
from .rings import RingModel
from .tiles import CHOICES, LOADED_SHARE, TileModel, registers_estimated
from .work import ELEMENT, read_work

PADDINGS: Mapping[str, int | None] = {
    "one after another": 0,
    "2 bytes behind each": 2,
    "4 bytes behind each": 4,
    "16 bytes behind each": 16,
    "chunks moved by xor": None,
}
"""How rows can lie, by the bytes behind each; None moves chunks of 16 bytes instead."""
SHOWN_ROWS = 64
"""Rows that a layout is held against its accesses with."""
RING_LENGTHS = (2, 3, 4, 6)


@dataclass(frozen=True)
class DesignLimit:
    """A limit that a design must hold."""

    name: str  # short
    unit: str  # of its number
    at_most: bool  # whether the number must not be above the limit; else not below
    # holds, fails: what it means that it holds, or does not: a clause
    holds: str
    fails: str
    budget: bool = False  # whether it is shown as a bar
    # whether the kernel cannot be built, or faults, where it fails; else it takes longer
    hard: bool = False

    def kept(self, value: float, limit: float) -> bool:
        """Whether a number holds it."""
        return value <= limit if self.at_most else value >= limit


SMEM_BUDGET = DesignLimit(
    *("shared memory", "bytes", True),
    *("the ring fits a block", "the launch is refused"),
    budget=True,
    hard=True,
)
REGISTER_BUDGET = DesignLimit(
    *("registers", "a thread", True),
    *("sums and fragments stay where they are", "sums spill to memory"),
    budget=True,
)
L2_BUDGET = DesignLimit(
    *("bandwidth", "B/cycle an SM from the L2", True),
    *("the matrix units wait for no byte", "the tile uses too few products of each byte"),
    budget=True,
)
FLIGHT_BUDGET = DesignLimit(
    *("bandwidth", "bytes on the way of an SM", False),
    *("memory has always something to bring", "memory waits for requests: rate x latency is more"),
    budget=True,
)
LATENCY_LIMIT = DesignLimit(
    *("latency", "cycles of work ahead", False),
    *("a slice is there before it is needed", "each trip waits for its slice"),
)
ALIGNMENT_LIMIT = DesignLimit(
    *("alignment", "bytes beside a multiple of 16", True),
    *("every row begins where a copy may go", "a copy into most rows faults"),
    hard=True,
)
CONFLICT_LIMIT = DesignLimit(
    *("bank conflicts", "times the least turns", True),
    *("what is read together lies in different banks", "what is read together shares banks"),
)


@dataclass(frozen=True)
class LayoutFate:
    """What a layout means for rows of one length."""

    row_share: float  # bytes from row to row over the bytes of a row
    beside: int  # bytes by which a row misses a multiple of 16
    turns: float | None  # over the least, of the worst access; None where one faults
    refused: str = ""  # why the copies cannot lay rows so, or an empty text


def fates_of(
    row_bytes: int, accesses: Sequence[str], *, moved: str = "xor", boxes: bool = False
) -> dict[str, LayoutFate]:
    """Every layout of `PADDINGS` for rows of a length.

    Args:
        row_bytes: of a row, a power of two of at least 32.
        accesses: of the kernel, as `check_tile` names them.
        moved: the layout that moves chunks.
        boxes: whether the copy engine lays rows, which leaves no room between them.
    """
    found = {}
    for name, padding in PADDINGS.items():
        stride = row_bytes + (padding or 0)
        report = check_tile(
            Tile(SHOWN_ROWS, row_bytes, stride, "plain" if padding is not None else moved), accesses
        )
        refused = "a box of the copy engine has no room between rows" if boxes and padding else ""
        found[name] = LayoutFate(
            stride / row_bytes,
            stride % 16,
            None if report.faults else _worst(report.accesses),
            refused,
        )
    return found


def _worst(reports: Sequence[AccessReport]) -> float:
    return max(one.wavefronts / one.least for one in reports)


@dataclass(frozen=True)
class Proposal:
    """One choice of sizes."""

    fixed_bytes: int  # of a block's shared memory, what no layout changes
    row_bytes: int  # of it, the bytes of rows, without padding
    figures: dict[str, tuple[float, float]]  # by constraint: the number, and its limit
    cannot: str  # why a block of these sizes makes no sense at all, or an empty text
    # expected where everything that does not depend on the layout holds, else None
    time_us: float | None


@dataclass(frozen=True)
class DesignSpace:
    """All that can be proposed for a workload on a GPU, and what is derived there."""

    sizes: dict[str, tuple[int, ...]]  # three names, each with its values
    # that figures are of; those of a layout and of shared memory stand beside them
    constraints: tuple[DesignLimit, ...]
    smem_limit: int  # bytes of a block
    layouts: dict[str, LayoutFate]  # by name, see `PADDINGS`
    proposals: dict[tuple[int, ...], Proposal]  # by the places of the three values
    # the places of the derived sizes, and the name of the layout
    derived: tuple[tuple[int, ...], str]
    design: AnyDesign  # the derivation
    # the shipped kernel to build and its knobs; None where there is none
    specified: tuple[str, dict[str, int]] | None
    bound: str  # what no kernel can beat, such as ``memory``
    floor_us: float  # the time of that bound


def make_space(
    sizes: dict[str, tuple[int, ...]],
    propose: Callable[..., Proposal],
    derived: Sequence[int],
    **others: object,
) -> DesignSpace:
    """A space with every proposal worked out.

    Args:
        sizes: three names with their values; the derived ones join them.
        propose: is given a value of each.
        derived: the derived value of each.
        others: the other attributes; ``layout`` is the name of the derived one.
    """
    joined = {
        name: tuple(sorted({*values, own}))
        for (name, values), own in zip(sizes.items(), derived, strict=True)
    }
    places = [range(len(values)) for values in joined.values()]
    every = list(joined.values())
    proposals = {
        at: propose(*(values[n] for values, n in zip(every, at, strict=True)))
        for at in itertools.product(*places)
    }
    at = tuple(values.index(own) for values, own in zip(every, derived, strict=True))
    layout = str(others.pop("layout"))
    return DesignSpace(sizes=joined, proposals=proposals, derived=(at, layout), **others)  # type: ignore[arg-type]


def product_space(design: TileDesign, model: TileModel) -> DesignSpace:
    """Tiles of a product on mma.m16n8k16; length of a slice and warps are the best for each.

    Args:
        design: the derivation.
        model: that it was made with.
    """
    chosen, machine = design.cost.tile, model.machine
    waits = design.bound == "memory"

    def propose(rows: int, columns: int, stages: int) -> Proposal:
        wanted = {"tile_m": rows, "tile_n": columns, "tile_k": chosen.k, "stages": stages}
        best = model.best(wanted)
        tile = best.tile if best else _any_division(rows, columns, chosen.k, stages)
        registers = registers_estimated(tile)
        most = min(MOST_REGISTERS, model.gpu.registers_per_block // tile.threads)
        shares = model.shares(tile, 1)
        loaded = model.work.a_loaded(rows) * chosen.k / model.work.depth + ELEMENT * columns * (
            chosen.k
        )
        figures = {REGISTER_BUDGET.name: (float(registers), float(most))}
        if waits:
            resident = best.blocks_per_sm if best else 1
            blocks = min(model.work.blocks(rows, columns) / model.gpu.sm_count, resident)
            on_the_way = blocks * max(1, stages - 1) * loaded
            figures[FLIGHT_BUDGET.name] = (on_the_way, machine.bytes_in_flight(LOADED_SHARE))
        else:
            rate = loaded / shares["L2"]
            figures[L2_BUDGET.name] = (loaded / shares["matrix units"], rate)
            busiest = max(value for name, value in shares.items() if name != "latency")
            figures[LATENCY_LIMIT.name] = ((stages - 1) * busiest, model.latency)
        return Proposal(
            0,
            model.work.slot_bytes(rows, columns, chosen.k, stages),
            figures,
            "" if best or tile.why_not_shared() is None else str(tile.why_not_shared()),
            best.time_us if best else None,
        )

    sizes = {
        "rows of a tile": (16, 32, 64, 128, 256),
        "columns of a tile": (16, 32, 64, 128, 256),
        "stages": RING_LENGTHS,
    }
    return make_space(
        sizes,
        propose,
        (chosen.m, chosen.n, chosen.stages),
        constraints=(REGISTER_BUDGET, *((FLIGHT_BUDGET,) if waits else (L2_BUDGET, LATENCY_LIMIT))),
        smem_limit=model.gpu.smem_per_block_bytes,
        layouts=fates_of(ELEMENT * chosen.k, ("copy", "matrix")),
        layout="chunks moved by xor",
        design=design,
        specified=design.specified,
        bound=design.bound,
        floor_us=design.floor_us,
    )


def _any_division(rows: int, columns: int, depth: int, stages: int) -> ProductTile:
    """A tile with the division over warps that needs the fewest registers."""
    every = [
        ProductTile(rows, columns, depth, int(down), int(across), stages)
        for down in CHOICES["warps_m"]
        for across in CHOICES["warps_n"]
    ]
    whole = [one for one in every if one.why_not_shared() is None] or every
    return min(whole, key=lambda one: (registers_estimated(one), one.warps))


def ring_space(design: TileDesign, gpu: Gpu) -> DesignSpace:
    """Tiles of a product on wgmma; blocks that share a tile are as derived.

    Args:
        design: the derivation, with a ring.
        gpu: its sheet.

    Raises:
        ValueError: the design has no ring.
    """
    if design.hopper is None:
        raise ValueError("the design has no ring")
    model = RingModel(read_work(design.op, design.workload), gpu)
    chosen, machine = design.hopper.cost.tile, model.machine
    peak_us = model.us(model.work.flops / model.flops_a_cycle / gpu.sm_count)
    waits = design.bound == "memory"

    def propose(warpgroups: int, columns: int, stages: int) -> Proposal:
        tile = dataclasses.replace(chosen, warpgroups=warpgroups, columns=columns, stages=stages)
        shares = model.shares(tile)
        most = tile.most_registers(gpu.limits)
        figures = {REGISTER_BUDGET.name: (float(tile.registers), float(most))}
        if waits:
            items = tile.tiles(model.m, model.n) * tile.split
            on_the_way = min(items / gpu.sm_count, 1) * (stages - 1) * tile.slice_bytes
            figures[FLIGHT_BUDGET.name] = (on_the_way, machine.bytes_in_flight(LOADED_SHARE))
        else:
            rate = tile.slice_bytes / shares["copies"]
            figures[L2_BUDGET.name] = (tile.slice_bytes / shares["matrix units"], rate)
            busiest = max(value for name, value in shares.items() if name != "latency")
            figures[LATENCY_LIMIT.name] = ((stages - 1) * busiest, model.latency(tile))
        fits = tile.why_not(gpu.limits) is None
        rows = stages * tile.slice_bytes
        return Proposal(
            max(0, tile.smem_bytes - rows),
            rows,
            figures,
            "",
            model.cost(tile).time_us if fits else None,
        )

    knobs = {name: tuple(map(int, values)) for name, values in model.choices.items()}
    return make_space(
        {
            "warpgroups": knobs["warpgroups"],
            "columns of a tile": knobs["tile_n"],
            "stages": tuple(one for one in knobs["stages"] if one >= 2),
        },
        propose,
        (chosen.warpgroups, chosen.columns, chosen.stages),
        constraints=(REGISTER_BUDGET, *((FLIGHT_BUDGET,) if waits else (L2_BUDGET, LATENCY_LIMIT))),
        smem_limit=gpu.smem_per_block_bytes,
        layouts=fates_of(SWIZZLED_ROW_BYTES, ("matrix", "matrix_transposed"), boxes=True),
        layout="chunks moved by xor",
        design=design,
        specified=design.specified,
        bound=design.bound,
        floor_us=max(peak_us, model.us(model.memory_bytes / machine.dram_bytes_per_cycle)),
    )
