"""r02, one barrier a row: two sets of partial sums instead of three barriers.

Idea: every thread adds up the warps' partial sums itself, and two sets of them alternate, so
the only wait left is the one that makes a row's sums visible.
Cost: a few more shared loads and additions in every thread.
"""

import numpy as np

from labtools.problem import Knob, Launch, Rung, head_dims


def launch(problem, limits, knobs):
    """One block a (sequence, query head), head_dim / dims_per_thread threads."""
    dims_per_thread = min(knobs["dims_per_thread"], problem.head_dim // 32)
    return [
        Launch(
            entry="decode_r02",
            grid=(problem.num_qo_heads, problem.batch),
            block=(problem.head_dim // dims_per_thread,),
            args=(
                *("q", "k", "v", "seq_lens", "out"),
                np.int32(problem.num_kv_heads),
                np.int32(problem.kv_len),
                np.float32(problem.sm_scale * np.log2(np.e)),
            ),
        )
    ]


RUNG = Rung.beside(
    __file__,
    title="One barrier a row",
    idea="two alternating sets of partial sums, so that one barrier a row is enough",
    limiter="barriers: the warps of a block wait for each other at every row",
    cost="every thread adds up the partial sums itself",
    parent="r01_online_softmax",
    parent_knobs={"prefetch_v": 1},
    knobs=(
        Knob("unroll", (1, 2, 4, 8), 4, "KV rows in one trip of the loop"),
        Knob("launch_bounds", (0, 1), 1, "1 tells the compiler the block size"),
        Knob("dims_per_thread", (1, 2, 4), 1, "block shape: head_dim / dims_per_thread threads"),
    ),
    supports=head_dims(64, 128),
    launch=launch,
)
