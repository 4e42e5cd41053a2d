"""The occupancy bench: controls and a picture of one SM.

Python asks `labtools.predict` for every case once, and the picture looks the cases up, so that the
controls also work in a page that has no kernel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ipywidgets import SelectionSlider

from labtools.predict import Gpu, achieved_occupancy, list_gpus, load_gpu, occupancy
from labtools.problem import LabError

from ...bench import Bench, View, dropdown, slider

THREADS_A_BLOCK = (32, 64, 96, 128, 160, 192, 256, 320, 384, 512, 640, 768, 1024)
REGISTERS = (16, *range(24, 249, 8), 255)
SMEM_KIB = (0, 1, 2, 4, 6, 8, 12, 16, 24, 32, 40, 48, 64, 80, 99, 100, 128, 163, 200, 227)
MAX_BLOCKS = (None, 8, 16, 24, 32)
GRID = (1, 32, 64, 128, 132, 256, 264, 512, 1024, 2048, 4096, 8192)
FROM_THE_SHEET = "data sheet"


@dataclass(frozen=True)
class Choices:
    """What each control offers."""

    gpus: tuple[Gpu, ...]  # the GPUs
    threads: tuple[int, ...] = THREADS_A_BLOCK  # threads a block
    registers: tuple[int, ...] = REGISTERS  # registers a thread
    smem_bytes: tuple[int, ...] = tuple(kib * 1024 for kib in SMEM_KIB)  # shared memory a block
    # a further limit of blocks an SM; None takes the GPU's own
    max_blocks: tuple[int | None, ...] = MAX_BLOCKS
    grid: tuple[int, ...] = GRID  # blocks of the grid

    def including(
        self,
        threads: Sequence[int] = (),
        registers: Sequence[int] = (),
        smem_bytes: Sequence[int] = (),
        grid: Sequence[int] = (),
    ) -> Choices:
        """The same choices and these, in order."""
        return Choices(
            self.gpus,
            _merged(self.threads, threads),
            _merged(self.registers, registers),
            _merged(self.smem_bytes, smem_bytes),
            self.max_blocks,
            _merged(self.grid, grid),
        )


def _merged(old: Sequence[int], new: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted({*old, *new}))


def occupancy_tables(choices: Choices) -> dict[str, Any]:
    """Every answer the picture may need, from `labtools.predict`.

    Returns:
        ``gpus`` (limits, theoretical and achieved occupancy, spread of blocks over SMs),
        ``register_limits`` (shared by GPUs with the same rules), and the choices themselves.
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
            per_blocks.append(
                {
                    "theoretical": round(fitted.theoretical, 4),
                    "achieved": [round(share, 4) for share in achieved],
                }
            )
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
    *,
    gpus: Sequence[Gpu | str] | None = None,
) -> Bench:
    """A bench that starts with one kernel's numbers.

    Args:
        smem_bytes: shared memory a block.
        gpus: what the list of GPUs offers; by default every data sheet.
    """
    offered = tuple(g if isinstance(g, Gpu) else load_gpu(g) for g in gpus or list_gpus())
    names = [g.name for g in offered]
    if gpu not in names:
        raise LabError(
            f"{gpu!r} is not on this bench.", f"it offers {', '.join(names)}", "name one of them"
        )
    choices = Choices(offered).including((threads,), (registers,), (smem_bytes,), (grid_blocks,))
    controls = {
        "gpu": dropdown("GPU", [g.title for g in offered], names.index(gpu)),
        "threads": _slider("threads / block", choices.threads, threads),
        "registers": _slider("registers / thread", choices.registers, registers),
        "smem": _slider(
            "shared / block",
            choices.smem_bytes,
            smem_bytes,
            [_bytes(n) for n in choices.smem_bytes],
        ),
        "max_blocks": _slider(
            "most blocks / SM",
            choices.max_blocks,
            None,
            [FROM_THE_SHEET if n is None else str(n) for n in choices.max_blocks],
        ),
        "grid": _slider("blocks in grid", choices.grid, grid_blocks),
    }
    return Bench(controls, OccupancyView, occupancy_tables(choices))


def _slider(
    description: str,
    values: Sequence[int | None],
    start: int | None,
    labels: list[str] | None = None,
) -> SelectionSlider:
    return slider(
        description, labels or [str(value) for value in values], list(values).index(start)
    )


def _bytes(count: int) -> str:
    return f"{count // 1024} KiB" if count % 1024 == 0 else f"{count} B"
