"""n00, RMSNorm with one block a row: the plain kernel that a row-wise operation starts from.

Idea: a row is read twice by one block, from memory and then from its caches, and written once.
Limiter: memory bandwidth; a block waits for its whole row before it stores anything.
Cost: one barrier chain a row, and the second read costs instructions, if no memory traffic.
"""

import numpy as np

from labtools.problem import Knob, Launch, Rung
from labtools.problem.rows import EPSILON


def launch(problem, limits, knobs):
    """One block a row."""
    return [
        Launch(
            entry="rms_norm",
            grid=(problem.rows,),
            block=(knobs["threads"],),
            args=("x", "weight", "out", np.int32(problem.columns), np.float32(EPSILON)),
        )
    ]


RUNG = Rung.beside(
    __file__,
    title="RMSNorm, one block a row",
    idea="one block sums the squares of a row and reads it again from its caches to scale it",
    limiter="memory bandwidth",
    cost="a barrier chain a row, and instructions for the second read",
    knobs=(Knob("threads", (32, 64, 128, 256, 512), 256, "threads of a block"),),
    supports=lambda problem: None,
    launch=launch,
    operation="rows",
)
