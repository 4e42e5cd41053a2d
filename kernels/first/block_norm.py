"""RMSNorm with one block for each row, the third kernel that a reader writes.

Idea: the threads of a block share the sum of squares of a row, and each then needs all of it.
Limiter: memory bandwidth.
Cost: a barrier, and a sum over the block's threads that every thread repeats.
"""

import numpy as np

from labtools.problem import Launch, Rung
from labtools.problem.rows import EPSILON

BLOCK = 128


def launch(problem, limits, knobs):
    """One block for each row."""
    args = ("x", "weight", "out", np.int32(problem.columns), np.float32(EPSILON))
    return [Launch("rms_norm", grid=(problem.rows,), block=(BLOCK,), args=args)]


RUNG = Rung.beside(
    __file__,
    title="RMSNorm, in 25 lines",
    idea="the threads of a block share a row, and each adds up what all of them found",
    limiter="memory bandwidth",
    cost="a barrier, and a sum that every thread repeats",
    supports=lambda problem: None if problem.dtype == "float16" else "it is written for float16",
    launch=launch,
    operation="rows",
)
