"""s08, s07 with a ring of asynchronous copies: the second of three steps from r08 to r09.

Idea: each warp has several tiles in shared memory, and the copies of the next ones are under way
while it works on one. Layout and merge are those of s07; r09 differs in its merge alone.
Cost: shared memory for every tile in flight.
"""

import numpy as np

from labtools.problem import Knob, Launch, Rung, Workspace, kernel_supports, load_rung
from labtools.problem.decode.block_plan import BLOCK_KNOBS, plan_of

WARPS, SPLIT = (knob for knob in BLOCK_KNOBS if knob.name in ("warps", "split"))


def plan(problem, limits, knobs):
    """The layout of r09 with the same warps, stages and pieces; its clusters are not used."""
    return plan_of(load_rung("r09_inverted"), problem, limits, knobs)


def launch(problem, limits, knobs):
    """One block a (piece, KV head, sequence), then one a (query head, sequence)."""
    blocks = plan(problem, limits, knobs)
    heads, batch, dim = problem.num_qo_heads, problem.batch, problem.head_dim
    partial = Workspace("partial", (batch, heads, blocks.pieces, dim + 2), "float32")
    decode = Launch(
        entry="decode_s08",
        grid=blocks.grid,
        block=(32 * blocks.warps,),
        smem_bytes=blocks.smem_bytes,
        args=(
            *blocks.first_args,
            *("q", "k", "v", "seq_lens"),
            *(("page_table", np.int32(problem.max_pages)) if problem.is_paged else ()),
            *("out", "partial"),
        ),
        workspace=(partial,),
    )
    merge = Launch(
        entry="merge_pieces",
        grid=(heads, batch),
        block=(dim,),
        args=("partial", "out", np.int32(blocks.pieces)),
        workspace=(partial,),
    )
    return [decode, merge] if blocks.pieces > 1 else [decode]


RUNG = Rung.beside(
    __file__,
    title="A ring of asynchronous copies",
    idea="the next tiles are under way while a warp works on one",
    limiter="a warp that waits for each tile from the start",
    cost="shared memory for every tile in flight",
    knobs=(
        WARPS,
        Knob("stages", (0, 2, 3, 4, 5, 6), 0, "tiles of a warp's ring; 0: by rule", compiled=False),
        SPLIT,
    ),
    supports=kernel_supports(
        head_dims=(64, 128), layouts=("contiguous", "paged"), groups=range(1, 9)
    ),
    min_arch="sm_80",
    defines_extra=lambda problem, limits, knobs: (
        plan(problem, limits, knobs).defines | {"CLUSTER": "1"}
    ),
    launch=launch,
)
