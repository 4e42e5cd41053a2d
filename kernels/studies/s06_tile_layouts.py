"""s06, a matrix product whose time is the reads of one tile: five layouts, four kinds of reads.

Idea: rows of 64 elements in shared memory, 64, 65, 66 or 72 apart or with chunks moved by exclusive
or; each is read as prefill reads its keys, by single elements, pairs or 16 bytes a lane down the
rows, or by ldmatrix. All else is the same.
Cost: a read is never kept, so that without matrix instructions every product reads anew.
"""

import numpy as np

from labtools.problem import Knob, LabError, Launch, Rung
from labtools.problem.gemm.tiling import ProductTile, product_supports

TILE = ProductTile(128, 128, 64, warps_m=8, warps_n=1)


def launch(problem, limits, knobs):
    """One block a tile of the output, along its rows."""
    width = knobs["access"] or 16
    stride = 2 * (knobs["layout"] or TILE.k)
    if stride % width:
        raise LabError(
            f"Rows that are {stride // 2} elements apart are not read {width} bytes at a time.",
            f"a read of {width} bytes needs an address that is a multiple of {width}, and row 1 "
            f"begins at byte {stride}, which leaves {stride % width}",
            "layout=72, or layout=0, which moves chunks of 16 bytes; or narrower reads",
        )
    return [
        Launch(
            entry="gemm_s06",
            grid=(TILE.blocks(problem.m, problem.n),),
            block=(TILE.threads,),
            args=("a", "b", "out", np.int32(problem.m), np.int32(problem.n), np.int32(problem.k)),
        )
    ]


RUNG = Rung.beside(
    __file__,
    title="Layouts of a tile",
    idea="one tile in five layouts, read in four ways, all else equal",
    limiter="the turns of shared memory",
    cost="reads that nobody keeps",
    knobs=(
        Knob(
            "layout",
            (64, 65, 66, 72, 0),
            72,
            "elements from one row of B's slice to the next; 0 is 64, chunks moved by xor",
        ),
        Knob("access", (2, 4, 16, 0), 0, "bytes that a lane reads of its row; 0 is ldmatrix"),
    ),
    supports=product_supports,
    min_arch="sm_80",
    launch=launch,
    operation="gemm",
)
