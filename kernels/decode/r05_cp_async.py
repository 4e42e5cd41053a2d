"""r05, cp.async as first tried: rows come through shared memory while others are worked on.

Idea: an asynchronous copy brings the next row into shared memory while the warp works on this
one, so that a load's latency hides behind the work.
Cost: a trip through shared memory, and with two stages a single row on its way; the loads of the
unrolled loop, which left together, are gone. On GPUs before sm_80 the copies are plain loads and
stores.
"""

import numpy as np

from labtools.problem import Knob, Launch, Rung, head_dims


def launch(problem, limits, knobs):
    """One warp a (sequence, query head)."""
    return [
        Launch(
            entry="decode_r05",
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
    title="cp.async as first tried",
    idea="the next row is copied into shared memory while this one is worked on",
    limiter="the wait for the loads of a row",
    cost="a trip through shared memory, and one row on its way in place of an unrolled loop's four",
    parent="r03_one_warp",
    knobs=(
        Knob("unroll", (1, 2, 4, 8), 4, "KV rows in one trip of the loop"),
        Knob("launch_bounds", (0, 1), 1, "1 tells the compiler the block size"),
        Knob("stages", (2, 3, 4, 5, 6, 8), 2, "rows in shared memory, all but one on their way"),
    ),
    supports=head_dims(64, 128),
    launch=launch,
)
