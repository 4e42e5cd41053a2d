"""p02, prefill corrected by construction.

Idea: a row is D + 8 elements, which a static_assert holds against copies of 16 bytes and against
the banks; sixteen queries of a warp are the rows of a matrix product; the sum of V is rescaled to
the largest score so far; the next tile is copied while this one is worked on.
Limiter: the tensor cores' rate of mma.m16n8k16, and what is left of the exponentials beside it.
Cost: sm_80 and up; on sm_90 wgmma would do more.
"""

import numpy as np

from labtools.problem import Knob, Launch, Rung, kernel_supports


def launch(problem, limits, knobs):
    """One block for 16 queries a warp of a (sequence, query head)."""
    queries, pad = 16 * knobs["warps"], 8
    rows = queries + 2 * knobs["stages"] * knobs["block_n"]
    return [
        Launch(
            entry="prefill_p02",
            grid=(-(-problem.num_queries // queries), problem.num_qo_heads, problem.batch),
            block=(32 * knobs["warps"],),
            smem_bytes=rows * (problem.head_dim + pad) * problem.element_bytes,
            args=(
                *("q", "k", "v", "out"),
                np.int32(problem.num_kv_heads),
                np.int32(problem.num_queries),
                np.int32(problem.kv_len),
                np.int32(problem.causal),
                np.float32(problem.sm_scale * np.log2(np.e)),
            ),
        )
    ]


RUNG = Rung.beside(
    __file__,
    title="Prefill, corrected by construction",
    idea="an aligned stride free of conflicts, tensor cores, one maximum a row, tiles in flight",
    limiter="the rate of the matrix instructions",
    cost="sm_80 and up; on sm_90 its instructions reach a part of the tensor cores' rate",
    parent="p01_inverted",
    knobs=(
        Knob("block_n", (32, 64, 128), 64, "keys of a tile"),
        Knob("warps", (4, 8), 4, "warps of a block, 16 queries each"),
        Knob("stages", (1, 2, 3), 2, "tiles of K and V in shared memory"),
    ),
    supports=kernel_supports(dtypes=("float16", "bfloat16")),
    min_arch="sm_80",
    launch=launch,
    operation="prefill",
)
