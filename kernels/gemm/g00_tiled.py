"""g00, a tiled matrix product as one would write it.

Idea: a tile of the output a block; slices of A and B go through shared memory to matrix
instructions, and every element that is loaded is used by all rows or columns of the tile.
Cost: sm_80 and up; two barriers a slice.
"""

import numpy as np

from labtools.problem import Knob, Launch, Rung
from labtools.problem.gemm.tiling import PRODUCT_KNOBS, ProductTile, product_supports


def launch(problem, limits, knobs):
    """One block a tile of the output, along its rows."""
    tile = ProductTile.of(knobs)
    tile.check(limits, fixed_size=True)
    return [
        Launch(
            entry="gemm_g00",
            grid=(tile.blocks(problem.m, problem.n),),
            block=(tile.threads,),
            args=("a", "b", "out", np.int32(problem.m), np.int32(problem.n), np.int32(problem.k)),
        )
    ]


RUNG = Rung.beside(
    __file__,
    title="A tile a block",
    idea="slices of A and B go through shared memory and are used by a whole tile",
    limiter="latency: nothing is multiplied while a slice is on its way",
    cost="sm_80 and up; two barriers a slice",
    knobs=(
        *PRODUCT_KNOBS,
        Knob("pad", (0, 8), 8, "elements that hold nothing, behind each row of a slice"),
    ),
    supports=product_supports,
    min_arch="sm_80",
    launch=launch,
    operation="gemm",
)
