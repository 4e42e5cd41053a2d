"""p01, prefill by inversion as the case study published it.

As written (``pad=0, rescale=0, scale=0``) it is broken in three ways. A row of a tile is 65 halves,
so the kernel faults, as p00 does. With that repaired, its output is wrong: it multiplies what it
has summed with a factor of the tile's own maximum where that of the largest so far belongs, and it
never reads the softmax scale. Each knob at 1 repairs one of them. Times and counters of this rung
are those of the repaired point.

Idea: the tile, the warps and the padding are derived from limits of the hardware.
Cost: as for p00.
"""

import numpy as np

from labtools.problem import Knob, Launch, Rung, kernel_supports


def launch(problem, limits, knobs):
    """One block for 64 queries of a (sequence, query head)."""
    tile, warps = 64, 4
    stride = problem.head_dim + (8 if knobs["pad"] else 1)
    return [
        Launch(
            entry="prefill_p01",
            grid=(-(-problem.num_queries // tile), problem.num_qo_heads, problem.batch),
            block=(32 * warps,),
            smem_bytes=3 * 2 * tile * stride + 4 * tile * tile,
            args=(
                *("q", "k", "v", "out"),
                np.int32(problem.num_kv_heads),
                np.int32(problem.num_queries),
                np.int32(problem.kv_len),
                np.int32(problem.causal),
                np.float32(problem.sm_scale * np.log2(np.e)),
            ),
        )
    ]


RUNG = Rung.beside(
    __file__,
    title="Prefill by inversion, as published",
    idea="tile, warps and padding are derived from limits of the hardware",
    limiter="as for p00: the derivation chose p00's tile, and no tensor cores",
    cost="as for p00",
    parent="p00_traditional",
    knobs=(
        Knob(
            "pad",
            (0, 1),
            1,
            "halves behind a row of a tile: 0 as written, one; 1 repaired, eight",
            broken={0: "faults"},
        ),
        Knob(
            "rescale",
            (0, 1),
            1,
            "maximum that the sum of V is rescaled to: 0 as written, the tile's own; 1 repaired, "
            "the largest so far",
            broken={0: "wrong"},
        ),
        Knob(
            "scale",
            (0, 1),
            1,
            "softmax scale: 0 as written, never read; 1 repaired, 1 / sqrt(D)",
            broken={0: "wrong"},
        ),
    ),
    supports=kernel_supports(),
    min_arch="sm_80",
    launch=launch,
    operation="prefill",
)
