"""r09, designed by inversion: from the machine's limits to the kernel.

Idea: the query heads of a group are the columns of one matrix product, so a row of K and V is read
once for all of them; each warp streams tiles of its own through a ring of asynchronous copies; the
pieces of a sequence are joined inside the launch.
Limiter: the bytes of K and V, and nothing else.
Cost: sm_80 and up, at most 8 query heads a KV head, shared memory instead of occupancy.
"""

import numpy as np

from labtools.problem import Launch, Rung, kernel_supports
from labtools.problem.decode.block_plan import (
    BLOCK_KNOBS,
    TILES_FOR_EIGHT_WARPS,
    RingKernel,
    plan_blocks,
    tile_bytes,
)

TILE = 16


def plan(problem, limits, knobs):
    """Warps, stages, pieces and clusters: a knob that is not 0, or the rule's choice."""
    kernel = RingKernel(
        tile=TILE,
        slot_bytes=tile_bytes(TILE, problem.head_dim, 8 * problem.element_bytes),
        stages={8: 3, 4: 3, 2: 3},
        tiles_for_most=(TILES_FOR_EIGHT_WARPS, TILES_FOR_EIGHT_WARPS),
        sm_gb_per_s={8: 92, 4: 92},
    )
    return plan_blocks(problem, limits, knobs, kernel)


def launch(problem, limits, knobs):
    """One launch; the counters are zeroed once, before all calls."""
    blocks = plan(problem, limits, knobs)
    return [
        blocks.reset_launch(),
        Launch(
            entry="decode_r09",
            grid=blocks.grid,
            block=(32 * blocks.warps,),
            smem_bytes=blocks.smem_bytes,
            args=(
                *blocks.first_args,
                *("q", "k", "v", "seq_lens"),
                *(("page_table", np.int32(problem.max_pages)) if problem.is_paged else ()),
                *("out", *blocks.last_args),
            ),
            workspace=blocks.workspaces,
        ),
    ]


RUNG = Rung.beside(
    __file__,
    title="Designed by inversion",
    idea="the group's heads share one matrix product; every warp streams its own ring of tiles",
    limiter="the bytes of K and V",
    cost="sm_80 and up; at most 8 query heads a KV head",
    parent="r08_split_loads",
    knobs=BLOCK_KNOBS,
    supports=kernel_supports(
        head_dims=(64, 128),
        dtypes=("float16", "bfloat16"),
        layouts=("contiguous", "paged"),
        groups=range(1, 9),
    ),
    min_arch="sm_80",
    defines_extra=lambda problem, limits, knobs: plan(problem, limits, knobs).defines,
    plan=plan,
    launch=launch,
)
