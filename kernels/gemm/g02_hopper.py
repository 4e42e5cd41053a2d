"""g02, the matrix product for Hopper: wgmma and bulk copies.

Idea: one warp starts bulk copies of whole slices into a ring, swizzled by rows of 128 bytes, and
warpgroups multiply from it with the matrix instructions that read both factors from shared memory.
Blocks stay and take tile after tile, so that slices of the next tile come while the last one is
stored. An output with few rows takes B for the left factor (swap) and shares K between blocks
(split).
Limiter: the rate of mma.m16n8k16, which is a part of that of wgmma, and the registers and
instructions that copies by threads take.
Cost: sm_90 and no other architecture; rows of K elements that are multiples of 16 bytes.
"""

import numpy as np

from labtools.problem import Knob, Launch, Rung, TensorMap, Workspace, reset_launch
from labtools.problem.gemm.tiling import RingTile, product_supports


def supports(problem):
    """Why a problem cannot be computed: the copy engine's strides are multiples of 16 bytes."""
    if problem.k * problem.element_bytes % 16:
        return "the copy engine needs rows that are multiples of 16 bytes: K a multiple of 8"
    return product_supports(problem)


def launch(problem, limits, knobs):
    """As many blocks as the GPU has room for, or one for each part of a tile if these are fewer."""
    tile = RingTile.of(knobs)
    tile.check(limits)
    left, right = tile.sides(problem.m, problem.n)
    names = ("b", "a") if tile.swap else ("a", "b")
    tiles, split = tile.tiles(problem.m, problem.n), tile.split
    room = limits.smem_per_sm_bytes // (tile.smem_bytes + limits.smem_reserved_per_block_bytes)
    resident = limits.num_sms * max(1, min(room, knobs["blocks"]))
    sums = tiles * split * tile.rows * tile.columns if split > 1 else 1
    finished = Workspace("finished", (tiles if split > 1 else 1,), "uint32")
    return [
        reset_launch(finished),
        Launch(
            entry="gemm_g02",
            grid=(min(tiles * split, resident),),
            block=(tile.threads,),
            smem_bytes=tile.smem_bytes,
            args=(
                TensorMap.of_planes(names[0], (1, left, problem.k), tile.rows, problem.dtype),
                TensorMap.of_planes(names[1], (1, right, problem.k), tile.columns, problem.dtype),
                *("out", "parts", "finished"),
                *(np.int32(left), np.int32(right), np.int32(problem.k)),
            ),
            workspace=(Workspace("parts", (sums,), "float32"), finished),
        ),
    ]


RUNG = Rung.beside(
    __file__,
    title="A ring that the copy engine fills",
    idea="a warp that copies, warpgroups that multiply from shared memory, blocks that stay",
    limiter="the rate of the matrix instructions of one warp",
    cost="sm_90 alone; K a multiple of 8",
    parent="g01_ring",
    knobs=(
        Knob("warpgroups", (1, 2, 3), 2, "warpgroups that multiply: 64 rows of a tile each"),
        Knob("tile_n", (16, 32, 64, 128, 256), 256, "columns of a tile"),
        Knob("stages", (2, 3, 4, 5, 6, 7, 8), 4, "slices that the ring holds"),
        Knob("split", (1, 2, 4, 8), 1, "blocks that share the slices of a tile"),
        Knob("swap", (0, 1), 0, "1 takes B for the left factor: rows of a tile are columns of out"),
        Knob("band", (1, 4, 8, 16), 8, "tile rows that are gone through together"),
        Knob("blocks", (1, 2, 3), 1, "blocks of a multiprocessor, if they fit", compiled=False),
    ),
    supports=supports,
    min_arch="sm_90a",
    launch=launch,
    operation="gemm",
)
