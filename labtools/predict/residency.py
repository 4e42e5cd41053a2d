"""How many blocks fit on an SM, how many are really there, and how the grid runs out."""

from __future__ import annotations

import math
from dataclasses import dataclass

from labtools.problem import LabError

from .sheets import Gpu, load_gpu


@dataclass(frozen=True)
class Occupancy:
    """Residency of one kernel on one SM."""

    blocks_per_sm: int  # blocks that fit at once; 0 when the kernel cannot launch
    warps_per_block: int  # warps of one block
    warps_per_sm: int  # resident warps, blocks times warps
    max_warps_per_sm: int  # the most the SM can hold
    theoretical: float  # ``warps_per_sm / max_warps_per_sm``, 0..1
    # blocks an SM that each resource allows; None where it sets no limit
    limits: dict[str, int | None]
    limiter: str  # the resource that decides; the first of several equal ones
    limiters: tuple[str, ...]  # all resources that decide
    registers_per_block: int  # registers taken by a block, rounding included
    smem_per_block_bytes: int  # shared memory taken by a block, rounding and reserve included
    cannot_run: str | None = None  # why the kernel cannot launch, or None


@dataclass(frozen=True)
class AchievedOccupancy:
    """What a grid of a given size puts on the GPU while its first wave runs."""

    resident_blocks: int  # blocks on the whole GPU
    resident_warps_per_sm: float  # mean over all SMs, idle ones included
    achieved: float  # ``resident_warps_per_sm / max_warps_per_sm``, 0..1
    theoretical: float  # what would be there if the grid were large enough
    busy_sms: int  # SMs with at least one block, when blocks are spread evenly


@dataclass(frozen=True)
class Waves:
    """How a grid is served when all blocks take equally long."""

    blocks_per_wave: int  # blocks that the whole GPU holds at once
    waves: float  # grid size over ``blocks_per_wave``
    full_waves: int  # complete waves
    tail_blocks: int  # blocks of the last, incomplete wave; 0 when there is none
    tail_fill: float  # fraction of the GPU that the tail uses; 1 when there is no tail
    efficiency: float  # ``waves`` over the waves that must be waited for, 0..1


def occupancy(
    gpu: Gpu | str, threads: int, registers: int, smem_bytes: int, max_blocks: int | None = None
) -> Occupancy:
    """Blocks and warps that fit on one SM, by the rules of NVIDIA's ``cuda_occupancy.h``: registers
    (32-bit, a thread) go to whole warps in units of 256 within four sub-partitions; shared memory a
    block, static plus dynamic, is rounded up after the driver's reserve. ``max_blocks`` is a
    further limit."""
    gpu = load_gpu(gpu) if isinstance(gpu, str) else gpu
    if min(threads, 1 if max_blocks is None else max_blocks) < 1 or min(registers, smem_bytes) < 0:
        raise LabError(
            "This block has no occupancy.",
            f"threads {threads}, registers {registers}, shared memory {smem_bytes} bytes, "
            f"max_blocks {max_blocks}",
            "threads and max_blocks begin at 1, registers and shared memory at 0",
        )
    warps = math.ceil(threads / gpu.warp_size)
    per_warp = _round_up(registers * gpu.warp_size, gpu.register_granularity)
    smem = _round_up(smem_bytes + gpu.smem_reserved_per_block_bytes, gpu.smem_granularity_bytes)
    limits: dict[str, int | None] = {
        "warps": gpu.max_warps_per_sm // warps,
        "blocks": gpu.max_blocks_per_sm,
        "registers": _register_limit(gpu, warps, per_warp, registers),
        "shared_memory": _smem_limit(gpu, smem),
    }
    if max_blocks is not None:
        limits["max_blocks"] = max_blocks
    if threads > gpu.max_threads_per_block:
        limits["warps"] = 0
    blocks = min(limit for limit in limits.values() if limit is not None)
    limiters = tuple(name for name, limit in limits.items() if limit == blocks)
    resident = blocks * warps
    return Occupancy(
        blocks_per_sm=blocks,
        warps_per_block=warps,
        warps_per_sm=resident,
        max_warps_per_sm=gpu.max_warps_per_sm,
        theoretical=resident / gpu.max_warps_per_sm,
        limits=limits,
        limiter=limiters[0],
        limiters=limiters,
        registers_per_block=per_warp * warps,
        smem_per_block_bytes=smem,
        cannot_run=_why_not(gpu, threads, registers, smem_bytes, limiters) if blocks == 0 else None,
    )


def achieved_occupancy(
    gpu: Gpu | str, occupancy: Occupancy, grid_blocks: int, sm_count: int | None = None
) -> AchievedOccupancy:
    """Resident warps that a grid really gives, over all SMs or the first ``sm_count`` of them."""
    gpu = load_gpu(gpu) if isinstance(gpu, str) else gpu
    _check_grid(occupancy, grid_blocks)
    sms = gpu.sm_count if sm_count is None else sm_count
    resident = min(grid_blocks, sms * occupancy.blocks_per_sm)
    warps_per_sm = resident * occupancy.warps_per_block / sms
    return AchievedOccupancy(
        resident_blocks=resident,
        resident_warps_per_sm=warps_per_sm,
        achieved=warps_per_sm / occupancy.max_warps_per_sm,
        theoretical=occupancy.theoretical,
        busy_sms=min(grid_blocks, sms),
    )


def waves(gpu: Gpu | str, occupancy: Occupancy, grid_blocks: int) -> Waves:
    """Waves and tail of a grid."""
    gpu = load_gpu(gpu) if isinstance(gpu, str) else gpu
    _check_grid(occupancy, grid_blocks)
    per_wave = gpu.sm_count * occupancy.blocks_per_sm
    full, tail = divmod(grid_blocks, per_wave)
    count = grid_blocks / per_wave
    return Waves(
        blocks_per_wave=per_wave,
        waves=count,
        full_waves=full,
        tail_blocks=tail,
        tail_fill=tail / per_wave if tail else 1.0,
        efficiency=count / math.ceil(count),
    )


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def _register_limit(gpu: Gpu, warps: int, per_warp: int, registers: int) -> int | None:
    if registers > gpu.max_registers_per_thread:
        return 0
    if per_warp == 0:
        return None
    # A launch is checked as if its warps filled all sub-partitions evenly.
    if per_warp * _round_up(warps, gpu.sub_partitions) > gpu.registers_per_block:
        return 0
    per_partition = gpu.registers_per_sm // gpu.sub_partitions // per_warp
    return per_partition * gpu.sub_partitions // warps


def _smem_limit(gpu: Gpu, smem: int) -> int | None:
    if smem > gpu.smem_per_block_bytes + gpu.smem_reserved_per_block_bytes:
        return 0
    return gpu.smem_per_sm_bytes // smem if smem else None


def _why_not(gpu: Gpu, threads: int, registers: int, smem: int, limiters: tuple[str, ...]) -> str:
    if threads > gpu.max_threads_per_block:
        return f"a block may have {gpu.max_threads_per_block} threads, this one has {threads}"
    if registers > gpu.max_registers_per_thread:
        return (
            f"a thread may use {gpu.max_registers_per_thread} registers, this one uses {registers}"
        )
    if "registers" in limiters:
        return (
            f"{threads} threads of {registers} registers need more than the "
            f"{gpu.registers_per_block} registers that a block may have"
        )
    return (
        f"a block may use {gpu.smem_per_block_bytes} bytes of shared memory, this one uses {smem}"
    )


def _check_grid(occupancy: Occupancy, grid_blocks: int) -> None:
    if occupancy.cannot_run:
        raise LabError(
            "This kernel cannot launch.", occupancy.cannot_run, "a smaller block or fewer registers"
        )
    if grid_blocks < 1:
        raise LabError(
            f"A grid of {grid_blocks} blocks does not exist.", "", "a grid has at least one block"
        )
