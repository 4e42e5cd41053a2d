"""n01, RMSNorm with residual in one kernel: n00 that also adds.

Idea: x is added to the residual while the squares are summed, so that the sum is written once and
never read from memory again, where an addition before n00 would write it and read it back.
Cost: a second buffer is loaded and stored in the first pass; otherwise as n00.
"""

import numpy as np

from labtools.problem import Knob, Launch, Rung
from labtools.problem.rows import EPSILON


def launch(problem, limits, knobs):
    """One block a row."""
    scalars = (np.int32(problem.columns), np.float32(EPSILON))
    return [
        Launch(
            entry="add_rms_norm",
            grid=(problem.rows,),
            block=(knobs["threads"],),
            args=("x", "residual", "weight", "out", *scalars),
        )
    ]


RUNG = Rung.beside(
    __file__,
    title="RMSNorm with residual, one block a row",
    idea="x is added to the residual in the pass that sums the squares",
    limiter="memory bandwidth",
    cost="a second buffer is loaded and stored in the first pass",
    knobs=(Knob("threads", (32, 64, 128, 256, 512), 256, "threads of a block"),),
    supports=lambda problem: None,
    launch=launch,
    operation="add_norm",
)
