"""p03, the H200 design: wgmma and bulk copies.

Idea: one warp starts bulk copies of whole tiles into a ring, swizzled by rows of 128 bytes, and
barriers in shared memory count what has landed and what was read. Warpgroups of 64 queries each
multiply from the ring with wgmma, keep the weights in registers, and start the scores of the next
tile before the output of this one.
Limiter: the tensor cores' rate of mma.m16n8k16, which is a part of that of wgmma, and the registers
and instructions that copies by threads take.
Cost: sm_90 and no other architecture; one block an SM at its defaults.
"""

import numpy as np

from labtools.problem import Knob, Launch, Rung, TensorMap, kernel_supports


def launch(problem, limits, knobs):
    """One block for 64 queries a warpgroup of a (sequence, query head)."""
    queries, stages, block_n = 64 * knobs["warpgroups"], knobs["stages"], knobs["block_n"]
    rows, barriers = queries + 2 * stages * block_n, 1 + 4 * stages
    q_heads, kv_heads = problem.batch * problem.num_qo_heads, problem.batch * problem.num_kv_heads
    query_shape = (q_heads, problem.num_queries, problem.head_dim)
    key_shape = (kv_heads, problem.kv_len, problem.head_dim)
    return [
        Launch(
            entry="prefill_p03",
            grid=(-(-problem.num_queries // queries), problem.num_qo_heads, problem.batch),
            block=(128 * (knobs["warpgroups"] + 1),),
            smem_bytes=rows * problem.head_dim * problem.element_bytes + 8 * barriers,
            args=(
                TensorMap.of_planes("q", query_shape, queries, problem.dtype),
                TensorMap.of_planes("k", key_shape, block_n, problem.dtype),
                TensorMap.of_planes("v", key_shape, block_n, problem.dtype),
                "out",
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
    title="Prefill for Hopper: wgmma and bulk copies",
    idea="a warp that copies, warpgroups that multiply, scores of the next tile under this one",
    limiter="the rate of the matrix instructions of one warp",
    cost="sm_90 alone; one block an SM",
    parent="p02_corrected",
    knobs=(
        Knob("block_n", (64, 80, 96, 128, 160, 176), 128, "keys of a tile"),
        Knob("warpgroups", (1, 2, 3), 2, "warpgroups of a block that multiply, 64 queries each"),
        Knob("stages", (1, 2, 3), 2, "tiles of K and V in shared memory"),
        Knob("pingpong", (0, 1), 1, "whether warpgroups start their products in turn"),
    ),
    supports=kernel_supports(dtypes=("float16", "bfloat16")),
    min_arch="sm_90a",
    launch=launch,
    operation="prefill",
)
