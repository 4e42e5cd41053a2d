"""r01, online softmax: one pass, rescaling as the maximum moves.

Idea: keep a running maximum, a running sum and a running output, so that no score is stored
and k and v are read in the same pass.
Cost: each row's update waits for the update of the row before. In the naive port the row of v
is asked for only when the score is known (``prefetch_v=0``); ``prefetch_v=1`` asks early.
Source: Milakov and Gimelshein, "Online normalizer calculation for softmax", arXiv 1805.02867.
"""

import numpy as np

from labtools.problem import Knob, Launch, Rung, head_dims


def launch(problem, limits, knobs):
    """One block a (sequence, query head), head_dim threads."""
    return [
        Launch(
            entry="decode_r01",
            grid=(problem.num_qo_heads, problem.batch),
            block=(problem.head_dim,),
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
    title="Online softmax",
    idea="one pass with a running maximum, sum and output",
    limiter="the second pass, and the scores' way through memory",
    cost="a longer dependency from row to row; v is asked for late unless prefetch_v is 1",
    parent="r00_two_passes",
    knobs=(
        Knob("unroll", (1, 2, 4, 8), 4, "KV rows in one trip of the loop"),
        Knob("launch_bounds", (0, 1), 1, "1 tells the compiler the block size"),
        Knob("prefetch_v", (0, 1), 0, "1 loads the row of v before the score is known"),
    ),
    supports=head_dims(64, 128),
    launch=launch,
)
