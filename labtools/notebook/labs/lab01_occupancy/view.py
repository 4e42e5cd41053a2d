"""The occupancy bench: controls and a picture of one SM, which looks up what the model said of
every case when the page was made.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from labtools.predict import Gpu, achieved_occupancy, list_gpus, load_gpu, occupancy

from ...bench import Bench, View, dropdown, place_of, slider

SMEM_KIB = (0, 1, 2, 4, 6, 8, 12, 16, 24, 32, 40, 48, 64, 80, 99, 100, 128, 163, 200, 227)


@dataclass(frozen=True)
class Choices:
    """What each control offers."""

    gpus: tuple[Gpu, ...]
    threads: tuple[int, ...] = (*range(32, 193, 32), 256, 320, 384, 512, 640, 768, 1024)  # a block
    registers: tuple[int, ...] = (16, *range(24, 249, 8), 255)  # a thread
    smem_bytes: tuple[int, ...] = tuple(kib * 1024 for kib in SMEM_KIB)  # a block
    max_blocks: tuple[int | None, ...] = (None, 8, 16, 24, 32)  # an SM; None: the GPU's own limit
    grid: tuple[int, ...] = (1, 32, 64, 128, 132, 256, 264, *(512 << n for n in range(5)))  # blocks


def occupancy_tables(choices: Choices) -> dict[str, Any]:
    """Every answer the picture may need: ``gpus`` (limits, theoretical and achieved occupancy,
    spread of blocks), ``register_limits`` (shared by GPUs with the same rules), and the choices.
    """
    register_limits: list[list[list[int | None]]] = []
    gpus = []
    for gpu in choices.gpus:
        limits = [
            [occupancy(gpu, t, r, 0).limits["registers"] for r in choices.registers]
            for t in choices.threads
        ]
        if limits not in register_limits:
            register_limits.append(limits)
        gpus.append(_gpu_tables(gpu, choices) | {"register_limits": register_limits.index(limits)})
    return {
        "gpus": gpus,
        "register_limits": register_limits,
        "warps": [math.ceil(t / choices.gpus[0].warp_size) for t in choices.threads],
        "max_blocks": list(choices.max_blocks),
        "grid": list(choices.grid),
    }


def _gpu_tables(gpu: Gpu, choices: Choices) -> dict[str, Any]:
    one_warp = occupancy(gpu, gpu.warp_size, 0, 0)
    shares: dict[str, list[Any]] = {}
    for threads in choices.threads:
        most = occupancy(gpu, threads, 0, 0)
        per_blocks: list[Any] = [None]
        for blocks in range(1, most.blocks_per_sm + 1):
            fitted = occupancy(gpu, threads, 0, 0, max_blocks=blocks)
            achieved = [achieved_occupancy(gpu, fitted, n).achieved for n in choices.grid]
            shares_of = [round(share, 4) for share in achieved]
            per_blocks.append({"theoretical": round(fitted.theoretical, 4), "achieved": shares_of})
        shares[str(most.warps_per_block)] = per_blocks
    return {
        "title": gpu.title,
        "sms": gpu.sm_count,
        "max_warps": gpu.max_warps_per_sm,
        "sub_partitions": gpu.sub_partitions,
        "blocks": gpu.max_blocks_per_sm,
        "warps": [occupancy(gpu, t, 0, 0).limits["warps"] for t in choices.threads],
        "shared_memory": [
            occupancy(gpu, gpu.warp_size, 0, s).limits["shared_memory"] for s in choices.smem_bytes
        ],
        "occupancy": shares,
        "spread": [
            [_spread(gpu, blocks, n) for n in choices.grid]
            for blocks in range(one_warp.blocks_per_sm + 1)
        ],
    }


def _spread(gpu: Gpu, blocks_per_sm: int, grid_blocks: int) -> tuple[int, int, int]:
    """Blocks on the fullest SM, on the others, and how many are fullest, dealt out evenly."""
    if blocks_per_sm == 0:
        return 0, 0, gpu.sm_count
    fitted = occupancy(gpu, gpu.warp_size, 0, 0, max_blocks=blocks_per_sm)
    resident = achieved_occupancy(gpu, fitted, grid_blocks).resident_blocks
    least, rest = divmod(resident, gpu.sm_count)
    if rest == 0:
        return least, least, gpu.sm_count
    return least + 1, least, rest


class OccupancyView(
    View, script="view", controls=("gpu", "threads", "registers", "smem", "max_blocks", "grid")
):
    """The picture."""


def occupancy_bench(
    gpu: str = "rtx4090",
    threads: int = 32,
    registers: int = 40,
    smem_bytes: int = 0,
    grid_blocks: int = 256,
) -> Bench:
    """A bench that starts with one kernel's numbers, ``smem_bytes`` a block."""
    offered = tuple(map(load_gpu, list_gpus()))
    asked = {"threads": threads, "registers": registers, "smem_bytes": smem_bytes}
    asked["grid"] = grid_blocks
    more = {name: tuple(sorted({*getattr(Choices, name), one})) for name, one in asked.items()}
    choices = Choices(offered, **more)
    start = place_of(gpu, [g.name for g in offered])
    controls = {
        "gpu": dropdown("GPU", [g.title for g in offered], start),
        "threads": slider("threads / block", choices.threads, threads),
        "registers": slider("registers / thread", choices.registers, registers),
        "smem": slider("shared / block", choices.smem_bytes, smem_bytes, _say_bytes),
        "max_blocks": slider("most blocks / SM", choices.max_blocks, None, _say_most),
        "grid": slider("blocks in grid", choices.grid, grid_blocks),
    }
    return Bench(controls, OccupancyView, occupancy_tables(choices))


def _say_bytes(count: Any) -> str:
    return f"{count // 1024} KiB" if count % 1024 == 0 else f"{count} B"


def _say_most(blocks: int | None) -> str:
    return "data sheet" if blocks is None else str(blocks)
