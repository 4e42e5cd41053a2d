"""s07, r08 whose product is one of tensor cores: the first of three steps from r08 to r09.

Idea: the query heads of a group are the columns of one matrix product, so a row of K and V is read
once for all of them. A warp copies a tile into shared memory, waits for it, and works on it. The
pieces are those of r09, and merge in a second launch as in r08.
Cost: while a warp works, nothing of its own is in flight; sm_80 and up.
"""

import numpy as np

from labtools.problem import Launch, Rung, Workspace, kernel_supports, load_rung
from labtools.problem.decode.block_plan import BLOCK_KNOBS, join_bytes, plan_of


def plan(problem, limits, knobs):
    """The layout of r09 with the same warps and pieces; its clusters and rings are not used."""
    return plan_of(load_rung("r09_inverted"), problem, limits, knobs)


def defines_extra(problem, limits, knobs):
    """Those of r09, without clusters and stages."""
    defines = plan(problem, limits, knobs).defines | {"CLUSTER": "1"}
    return {name: value for name, value in defines.items() if name != "STAGES"}


def launch(problem, limits, knobs):
    """One block a (piece, KV head, sequence), then one a (query head, sequence)."""
    blocks = plan(problem, limits, knobs)
    joining = join_bytes(blocks.warps, problem.group_size, problem.head_dim)
    heads, batch, dim = problem.num_qo_heads, problem.batch, problem.head_dim
    partial = Workspace("partial", (batch, heads, blocks.pieces, dim + 2), "float32")
    decode = Launch(
        entry="decode_s07",
        grid=blocks.grid,
        block=(32 * blocks.warps,),
        smem_bytes=max(blocks.warps * blocks.kernel.slot_bytes, joining),
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
    title="A product of tensor cores",
    idea="the group's heads share one matrix product, on tiles that a warp waits for",
    limiter="rows that the L2 gives once for each query head",
    cost="nothing in flight while a warp works; sm_80 and up; at most 8 query heads a KV head",
    knobs=tuple(knob for knob in BLOCK_KNOBS if knob.name in ("warps", "split")),
    supports=kernel_supports(
        head_dims=(64, 128), layouts=("contiguous", "paged"), groups=range(1, 9)
    ),
    min_arch="sm_80",
    defines_extra=defines_extra,
    launch=launch,
)
