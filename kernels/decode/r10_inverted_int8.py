"""r10, the inverted kernel on an eight-bit cache.

Idea: half of the bytes. Codes become fp16 operands by moving bits; K's scales go into q
and V's into the weights, so that no element is multiplied by a scale.
Cost: accuracy; more instructions a byte, which tensor cores and idle issue slots pay.
"""

import numpy as np

from labtools.problem import (
    CHOSEN_INT8,
    SCHEMES,
    Knob,
    Launch,
    Rung,
    kernel_supports,
    quantise_launches,
)
from labtools.problem.decode.block_plan import BLOCK_KNOBS, RingKernel, plan_blocks, tile_bytes

SCHEME = SCHEMES[CHOSEN_INT8]
BITS = 8
TILE = 32


def plan(problem, limits, knobs):
    """Warps, stages, pieces and clusters: a knob that is not 0, or the rule's choice."""
    tile, dim = knobs["tile"], problem.head_dim
    kernel = RingKernel(
        tile=tile,
        slot_bytes=tile_bytes(tile, dim, BITS),
        scale_rows=SCHEME.k.group,
        block_bytes=16 * dim,
        warp_bytes=2 * dim,
        ringless=True,
        registers_of_warp=32 * 208,
        stages={8: 3, 4: 3, 2: 3},
        tiles_for_most=(8, 128),
        sm_gb_per_s={8: 60, 4: 47},
    )
    return plan_blocks(problem, limits, knobs, kernel)


def launch(problem, limits, knobs):
    """The packers and the counters once, before all calls; then one launch."""
    blocks = plan(problem, limits, knobs)
    cache, packers = quantise_launches(problem, SCHEME)
    return [
        *packers,
        blocks.reset_launch(),
        Launch(
            entry="decode_r10",
            grid=blocks.grid,
            block=(32 * blocks.warps,),
            smem_bytes=blocks.smem_bytes,
            args=(
                *blocks.first_args,
                *("q", "k_codes", "v_codes", "k_scale", "k_bias", "v_scale", "v_bias"),
                "seq_lens",
                *(("page_table", np.int32(problem.max_pages)) if problem.is_paged else ()),
                *("out", *blocks.last_args),
            ),
            workspace=(*cache, *blocks.workspaces),
        ),
    ]


RUNG = Rung.beside(
    __file__,
    title="Inverted, INT8 cache",
    idea="half of the bytes; scales go into q and into the weights",
    limiter="the bytes of K and V",
    cost="accuracy; more instructions a byte",
    parent="r09_inverted",
    knobs=(*BLOCK_KNOBS, Knob("tile", (32, 64), TILE, "keys of one tile")),
    supports=kernel_supports(
        head_dims=(128,),
        dtypes=("float16", "bfloat16"),
        layouts=("contiguous", "paged"),
        groups=range(1, 9),
    ),
    refuses={"bfloat16 small_v": "q is past 65504, and the products are of fp16"},
    stores=lambda problem, knobs: SCHEME,
    min_arch="sm_80",
    defines_extra=lambda problem, limits, knobs: {
        **plan(problem, limits, knobs).defines,
        "K_GROUP": str(SCHEME.k.group),
    },
    plan=plan,
    launch=launch,
)
