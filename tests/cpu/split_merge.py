"""A test rung: chunks of K and V, merged inside the launch by the block that comes last.

It is as simple as can be and takes every dtype and layout, so that the machinery around a kernel
is tested with it: the CPU runner, the stand-in for a GPU, and a GPU.
"""

import numpy as np

from labtools.problem import Knob, Launch, Rung, Workspace, kernel_supports


def launch(problem, limits, knobs):
    """A block a (split, query head, sequence); the counters are cleared once, not in every call."""
    splits = knobs["splits"]
    pairs = (problem.batch, problem.num_qo_heads)
    partial = Workspace("partial", (*pairs, splits, problem.head_dim + 2), "float32")
    counters = Workspace("counters", pairs, "uint32")
    return [
        Launch(
            entry="clear_counters",
            grid=(problem.batch * problem.num_qo_heads,),
            block=(1,),
            args=("counters",),
            workspace=(counters,),
            prepare=True,
        ),
        Launch(
            entry="split_merge",
            grid=(splits, problem.num_qo_heads, problem.batch),
            block=(problem.head_dim,),
            args=(
                *("q", "k", "v", "seq_lens"),
                *(("page_table",) if problem.is_paged else ()),
                *("partial", "counters", "out"),
                np.int32(problem.num_kv_heads),
                np.int32(problem.kv_len),
                np.float32(problem.sm_scale),
            ),
            workspace=(partial, counters),
        ),
    ]


RUNG = Rung.beside(
    __file__,
    title="Split and merged in one launch",
    idea="",
    limiter="",
    cost="",
    knobs=(Knob("splits", (1, 2, 3, 5), 3, "chunks of a sequence"),),
    supports=kernel_supports(dtypes=("float16", "bfloat16"), layouts=("contiguous", "paged")),
    launch=launch,
)
