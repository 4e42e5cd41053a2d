"""two_rows: two rows of the cache in one trip of the loop.

Idea: two rows have two independent sums, whose shuffles overlap.
Limiter: the latency of the five shuffles of each row, one after the other.
Cost: more registers; at odd lengths one row is read twice.
"""

import numpy as np

from labtools.problem import Knob, Launch, Rung, head_dims


def launch(problem, limits, knobs):
    """One warp a (sequence, query head)."""
    return [
        Launch(
            entry="two_rows",
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
    title="Two rows a trip",
    idea="two rows have two independent sums, whose shuffles overlap",
    limiter="the latency of the five shuffles of each row",
    cost="more registers; at odd lengths one row is read twice",
    parent="r03_one_warp",
    knobs=(
        Knob("unroll", (1, 2, 4), 2, "trips of the loop laid out in a row; each takes two rows"),
        Knob("launch_bounds", (0, 1), 1, "1 tells the compiler the block size"),
    ),
    supports=head_dims(64, 128),
    launch=launch,
)
