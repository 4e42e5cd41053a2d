"""r00, two passes: the formula as it is written.

Idea: first every score and their maximum, then the weights and their sum over v.
Cost: the scores go to global memory and come back, and each row costs three barriers.
"""

import numpy as np

from labtools.problem import Knob, Launch, Rung, Workspace, head_dims


def launch(problem, limits, knobs):
    """One block a (sequence, query head), head_dim threads; scores float32 [B, Hq, S]."""
    scores = Workspace("scores", (problem.batch, problem.num_qo_heads, problem.kv_len), "float32")
    return [
        Launch(
            entry="decode_r00",
            grid=(problem.num_qo_heads, problem.batch),
            block=(problem.head_dim,),
            args=(
                *("q", "k", "v", "seq_lens", "scores", "out"),
                np.int32(problem.num_kv_heads),
                np.int32(problem.kv_len),
                np.float32(problem.sm_scale * np.log2(np.e)),
            ),
            workspace=(scores,),
        )
    ]


RUNG = Rung.beside(
    __file__,
    title="Two passes",
    idea="compute every score, find the largest, then weigh the rows of v",
    limiter="none: the start of the ladder",
    cost="scores travel through global memory; three barriers for every row of k",
    knobs=(
        Knob("unroll", (1, 2, 4, 8), 4, "KV rows in one trip of each loop"),
        Knob("launch_bounds", (0, 1), 1, "1 tells the compiler the block size"),
    ),
    supports=head_dims(64, 128),
    launch=launch,
)
