"""row_stencil: five points along each row in float32, a family that brings its own operation.

Idea: what a kernel computes may stand beside it, where labtools has no such operation.
Limiter: memory bandwidth.
Cost: neighbours are read by several threads.
"""

import numpy as np

from labtools.problem import Knob, from_reference

MOST_ROWS = 65535
"""So many blocks a grid has in y."""


def stencil(x, middle, near, far):
    """A weighted sum of each point, its neighbours and theirs; beyond a row's ends are zeros."""
    return np.stack([np.convolve(row, [far, near, middle, near, far])[2:-2] for row in x])


OPERATION = from_reference(
    "stencil:rows,columns",
    {
        "x": "f32[rows,columns]",
        "out": "f32[rows,columns]:out",
        "length": "i32:columns",
        **{"middle": "f32:0.5", "near": "f32:0.2", "far": "f32:0.05"},
    },
    stencil,
    sizes=[(20, 700), (3, 70), (1024, 16384)],
    rows="rows",
    flops="7*rows*columns",
)

RUNG = OPERATION.rung(
    __file__,
    entry="row_stencil",
    grid="cdiv(columns, threads * points), rows",
    block="threads",
    title="Stencil of five points",
    idea="one thread a point",
    limiter="memory bandwidth",
    cost="neighbours are read by several threads",
    knobs=(
        Knob("staged", (0, 1), 0, "1 keeps a block's tile in shared memory"),
        Knob("points", (1, 2, 4), 1, "points of a thread, side by side"),
        Knob("threads", (64, 128, 256, 512), 128, "threads of a block"),
    ),
    supports=lambda problem: (
        None if problem.rows <= MOST_ROWS else f"a launch has at most {MOST_ROWS} rows"
    ),
)
