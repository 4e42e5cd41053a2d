"""What a reader proposes for a product, held against the limits one by one."""

from __future__ import annotations

import dataclasses
import itertools

from labtools.predict.sheets import Gpu
from labtools.problem.gemm.tiling import ProductTile
from labtools.problem.limits import MOST_REGISTERS
from labtools.problem.rung import SWIZZLED_ROW_BYTES

from ..proposals import (
    FLIGHT_BUDGET,
    L2_BUDGET,
    LATENCY_LIMIT,
    REGISTER_BUDGET,
    RING_LENGTHS,
    DesignSpace,
    Proposal,
    fates_of,
    make_space,
)
from ..sm import ELEMENT, LOADED_SHARE, busiest_cycles
from .derivation import TileDesign
from .rings import RingModel
from .tiles import CHOICES, TileModel, registers_estimated
from .work import read_work

_BY_MEMORY = (REGISTER_BUDGET, FLIGHT_BUDGET)
_BY_MATRIX_UNITS = (REGISTER_BUDGET, L2_BUDGET, LATENCY_LIMIT)


def product_space(design: TileDesign, gpu: Gpu) -> DesignSpace:
    """Tiles of a product, on wgmma where these are derived, else on mma.m16n8k16."""
    work = read_work(design.op, design.workload)
    if design.hopper is not None:
        return _ring_space(design, RingModel(work, gpu))
    return _mma_space(design, TileModel(work, gpu))


def _figures(
    model: TileModel | RingModel,
    waits: bool,
    on_the_way: float,
    loaded: float,
    rate: float,
    shares: dict[str, float],
    ahead: tuple[int, float],
) -> dict[str, tuple[float, float]]:
    """The numbers and limits of bandwidth and latency: where memory waits, by the bytes on the way,
    else by what the L2 gives and by the slices ahead, of which there are so many for a latency."""
    if waits:
        return {FLIGHT_BUDGET.name: (on_the_way, model.machine.bytes_in_flight(LOADED_SHARE))}
    slices, latency = ahead
    return {
        L2_BUDGET.name: (loaded / shares["tensor cores"], loaded / rate),
        LATENCY_LIMIT.name: (slices * busiest_cycles(shares), latency),
    }


def _mma_space(design: TileDesign, model: TileModel) -> DesignSpace:
    """Length of a slice and warps are the best for each tile."""
    chosen, work, gpu = design.cost.tile, model.work, model.gpu
    waits = design.bound == "memory"

    def propose(rows: int, columns: int, stages: int) -> Proposal:
        wanted = {"tile_m": rows, "tile_n": columns, "tile_k": chosen.k, "stages": stages}
        best = model.best(wanted)
        tile = best.tile if best else _any_division(rows, columns, chosen.k, stages)
        registers = registers_estimated(tile)
        most = min(MOST_REGISTERS, gpu.registers_per_block // tile.threads)
        shares = model.shares(tile, 1)
        loaded = work.a_loaded(rows) * chosen.k / work.depth + ELEMENT * columns * chosen.k
        blocks = min(work.blocks(rows, columns) / gpu.sm_count, best.blocks_per_sm if best else 1)
        figures = _figures(
            model,
            waits,
            blocks * max(1, stages - 1) * loaded,
            loaded,
            shares["L2"],
            shares,
            (stages - 1, model.latency),
        )
        return Proposal(
            0,
            work.slot_bytes(rows, columns, chosen.k, stages),
            {REGISTER_BUDGET.name: (float(registers), float(most)), **figures},
            "" if best else tile.why_not_shared() or "",
            best.time_us if best else None,
        )

    return make_space(
        design,
        {
            "rows of a tile": CHOICES["tile_m"],
            "columns of a tile": CHOICES["tile_n"],
            "stages": RING_LENGTHS,
        },
        propose,
        (chosen.m, chosen.n, chosen.stages),
        constraints=_BY_MEMORY if waits else _BY_MATRIX_UNITS,
        smem_limit=gpu.smem_per_block_bytes,
        layouts=fates_of(ELEMENT * chosen.k, ("copy", "matrix")),
        layout="chunks moved by xor",
    )


def _any_division(rows: int, columns: int, depth: int, stages: int) -> ProductTile:
    """A tile with the division over warps that needs the fewest registers."""
    warps = itertools.product(CHOICES["warps_m"], CHOICES["warps_n"])
    every = [ProductTile(rows, columns, depth, *one, stages) for one in warps]
    whole = [one for one in every if one.why_not_shared() is None] or every
    return min(whole, key=lambda one: (registers_estimated(one), one.warps))


def _ring_space(design: TileDesign, model: RingModel) -> DesignSpace:
    """Blocks that share a tile are as derived."""
    assert design.hopper is not None
    chosen, gpu = design.hopper.cost.tile, model.gpu
    peak_us = model.us(model.work.flops / model.sheet_flops / gpu.sm_count)
    memory_us = model.us(model.memory_bytes / model.machine.dram_bytes_per_cycle)
    waits = design.bound == "memory"

    def propose(warpgroups: int, columns: int, stages: int) -> Proposal:
        tile = dataclasses.replace(chosen, warpgroups=warpgroups, columns=columns, stages=stages)
        shares = model.shares(tile)
        most = tile.most_registers(gpu.limits)
        items = tile.tiles(model.m, model.n) * tile.split
        rows = stages * tile.slice_bytes
        figures = _figures(
            model,
            waits,
            min(items / gpu.sm_count, 1) * (stages - 1) * tile.slice_bytes,
            tile.slice_bytes,
            shares["copies"],
            shares,
            (stages - 1, model.latency(tile)),
        )
        return Proposal(
            max(0, tile.smem_bytes - rows),
            rows,
            {REGISTER_BUDGET.name: (float(tile.registers), float(most)), **figures},
            "",
            model.cost(tile).time_us if tile.why_not(gpu.limits) is None else None,
        )

    return make_space(
        design,
        {
            "warpgroups": model.choices["warpgroups"],
            "columns of a tile": model.choices["tile_n"],
            "stages": tuple(one for one in model.choices["stages"] if one >= 2),
        },
        propose,
        (chosen.warpgroups, chosen.columns, chosen.stages),
        constraints=_BY_MEMORY if waits else _BY_MATRIX_UNITS,
        smem_limit=gpu.smem_per_block_bytes,
        layouts=fates_of(SWIZZLED_ROW_BYTES, ("matrix", "matrix_transposed"), boxes=True),
        layout="chunks moved by xor",
        floor_us=max(peak_us, memory_us),
    )
