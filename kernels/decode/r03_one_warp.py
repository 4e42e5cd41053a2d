"""r03, one-warp blocks: the block shrinks until nobody is left to wait for.

Idea: a single warp holds the whole row, head_dim / 32 dims a lane, so the sum of a row is five
shuffles and nothing else.
Cost: a quarter of the threads (at head_dim 128), so the loads in flight must come from
unrolling instead of from other warps.
"""

import numpy as np

from labtools.problem import Knob, Launch, Rung, head_dims


def launch(problem, limits, knobs):
    """One warp a (sequence, query head)."""
    return [
        Launch(
            entry="decode_r03",
            grid=(problem.num_qo_heads, problem.batch),
            block=(32,),
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
    title="One-warp blocks",
    idea="one warp holds the whole row: shuffles only, no shared memory, no barrier",
    limiter="the barrier and the shared-memory round trip of every row",
    cost="a quarter of the threads; loads in flight must come from unrolling",
    parent="r02_one_barrier",
    knobs=(
        Knob("unroll", (1, 2, 4, 8), 4, "KV rows in one trip of the loop"),
        Knob("launch_bounds", (0, 1), 1, "1 tells the compiler the block size"),
    ),
    supports=head_dims(64, 128),
    launch=launch,
)
