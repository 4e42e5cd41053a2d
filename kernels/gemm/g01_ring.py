"""g01, the matrix product from the derived tile.

Idea: slices come by asynchronous copies into a ring, so that some are on their way while one is
multiplied; chunks are moved by xor instead of padding, which keeps every copy aligned.
Cost: sm_80 and up; registers for the sums and shared memory for the ring, so few blocks an SM.
"""

import numpy as np

from labtools.problem import Knob, Launch, Rung
from labtools.problem.gemm.tiling import PRODUCT_KNOBS, ProductTile, product_supports


def launch(problem, limits, knobs):
    """One block a tile of the output."""
    tile = ProductTile.of(knobs)
    tile.check(limits)
    return [
        Launch(
            entry="gemm_g01",
            grid=(tile.blocks(problem.m, problem.n),),
            block=(tile.threads,),
            smem_bytes=tile.ring_bytes,
            args=("a", "b", "out", np.int32(problem.m), np.int32(problem.n), np.int32(problem.k)),
        )
    ]


RUNG = Rung.beside(
    __file__,
    title="A ring of slices",
    idea="slices are on their way while one is multiplied; xor takes the place of padding",
    limiter="the matrix units, or the bytes of A and B where one side is short",
    cost="sm_80 and up; registers for the sums and shared memory for the ring",
    parent="g00_tiled",
    knobs=(
        *PRODUCT_KNOBS,
        Knob("stages", (2, 3, 4, 5, 6, 7, 8), 2, "slices that the ring holds"),
        Knob("band", (1, 8), 8, "tile rows that are gone through together"),
    ),
    supports=product_supports,
    min_arch="sm_80",
    launch=launch,
    operation="gemm",
)
