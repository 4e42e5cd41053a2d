"""r08, split-K with loads in flight: the repair.

Idea: the split of r04, whose memory is allocated once, and in each piece several warps that ask
for several rows at a time, so that many loads are on their way wherever a block is.
Cost: registers for the rows under way, a join of the warps, and the second launch of r04 where
the rule finds that the split pays.
"""

import numpy as np

from labtools.problem import Knob, Launch, Rung, Workspace, choose_split, head_dims


def launch(problem, limits, knobs):
    """One block a (sequence, query head, piece), then one block a (sequence, query head)."""
    warps, split = knobs["warps"], knobs["split"]
    if split == 0:
        blocks_per_sm = 32 // warps  # resident warps that the rule aims at
        split = choose_split(
            problem, limits.num_sms, blocks_per_sm, tile_rows=warps * knobs["rows"]
        )
    rows = (problem.batch, problem.num_qo_heads, split, problem.head_dim + 2)
    partial = Workspace("partial", rows, "float32")
    decode = Launch(
        entry="decode_r08",
        grid=(problem.num_qo_heads, problem.batch, split),
        block=(32 * warps,),
        args=(
            *("q", "k", "v", "seq_lens", "partial", "out"),
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
    return [decode, merge] if split > 1 else [decode]


RUNG = Rung.beside(
    __file__,
    title="Split-K with loads in flight",
    idea="r04's split with its memory allocated once, and several warps with several rows each",
    limiter="loads in flight, and SMs without a block",
    cost="registers for the rows under way, a join of warps and one of pieces",
    parent="r04_split_first",
    knobs=(
        Knob("rows", (1, 2, 4, 8), 8, "KV rows that a warp asks for at a time"),
        Knob("warps", (1, 2, 4, 8), 4, "warps of one block"),
        Knob(
            *("split", (*range(17), 24, 32, 48, 64), 0),
            "pieces of a sequence; 0 takes what a rule finds for the problem and the GPU's SMs",
            compiled=False,
        ),
    ),
    supports=head_dims(64, 128),
    launch=launch,
)
