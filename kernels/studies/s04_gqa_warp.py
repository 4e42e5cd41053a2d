"""s04, one warp serves the query heads of one KV head.

Idea: a row of k and v is loaded and converted once for GROUP query heads, whose sums over the warp
do not depend on each other.
Cost: fewer warps, and registers for the state of every head. Where the heads of a KV head are no
multiple of GROUP, the last warp computes one of them several times.
"""

import numpy as np

from labtools.problem import Knob, Rung, decode_scalars, head_dims, split_launches


def launch(problem, limits, knobs):
    """One warp a (sequence, KV head, GROUP of its query heads, piece); then the merge."""
    warps = problem.num_kv_heads * -(-problem.group_size // knobs["group"])
    return split_launches(
        problem,
        "decode_s04",
        knobs["split"],
        block=32,
        grid_x=warps,
        scalars=(np.int32(problem.group_size), *decode_scalars(problem)),
    )


RUNG = Rung.beside(
    __file__,
    title="One warp a KV head",
    idea="a row is loaded once for several query heads",
    limiter="loads that query heads repeat",
    cost="fewer warps, more registers",
    knobs=(
        Knob("group", (1, 2, 4, 8), 4, "query heads of one warp"),
        Knob("rows", (1, 2), 1, "KV rows at a time"),
        Knob("split", (1, 2, 4, 8, 16, 32), 1, "pieces of a sequence, joined by a second launch"),
    ),
    supports=head_dims(64, 128),
    launch=launch,
)
