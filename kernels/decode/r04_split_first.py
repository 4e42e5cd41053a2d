"""r04, split-K as first tried: several blocks share the rows of one query head.

Idea: the grid gets a third dimension, the pieces of a sequence. A piece's block leaves its output,
maximum and sum in memory, and a second launch joins them.
Cost: partial results written and read again, a second launch, and memory for them, which this
first try gets and gives back in every call.
"""

import numpy as np

from labtools.problem import Knob, Launch, Rung, Workspace, head_dims


def launch(problem, limits, knobs):
    """One warp a (sequence, query head, piece), then one block a (sequence, query head)."""
    split = knobs["split"]
    rows = (problem.batch, problem.num_qo_heads, split, problem.head_dim + 2)
    partial = Workspace("partial", rows, "float32", in_call=True)
    decode = Launch(
        entry="decode_r04",
        grid=(problem.num_qo_heads, problem.batch, split),
        block=(32,),
        args=(
            *("q", "k", "v", "seq_lens", "partial"),
            np.int32(problem.num_kv_heads),
            np.int32(problem.kv_len),
            np.float32(problem.sm_scale * np.log2(np.e)),
        ),
        workspace=(partial,),
    )
    merge = Launch(
        entry="merge_pieces",
        grid=(problem.num_qo_heads, problem.batch),
        block=(problem.head_dim,),
        args=("partial", "out", np.int32(split)),
        workspace=(partial,),
    )
    return [decode, merge]


RUNG = Rung.beside(
    __file__,
    title="Split-K as first tried",
    idea="several blocks share the rows of one query head; a second launch joins their results",
    limiter="one warp's walk through all rows, and SMs without a block",
    cost="partial results, a second launch, and memory allocated in every call",
    parent="r03_one_warp",
    knobs=(
        Knob("unroll", (1, 2, 4, 8), 4, "KV rows in one trip of the loop"),
        Knob("launch_bounds", (0, 1), 1, "1 tells the compiler the block size"),
        Knob("split", (1, 2, 4, 8, 16, 32), 8, "pieces of a sequence", compiled=False),
    ),
    supports=head_dims(64, 128),
    launch=launch,
)
