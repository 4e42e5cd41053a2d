"""row_scale: RMSNorm with one block a row, its methods as knobs.

Idea: the smallest kernel family; it is no attention, and stands in no folder of the project's.
Limiter: memory bandwidth.
Cost: a barrier chain a row, and a second reading of the row.
"""

from pathlib import Path

import numpy as np

from labtools.problem import Knob, Launch, Rung
from labtools.problem.rows import EPSILON


def launch(problem, limits, knobs):
    """One block a row."""
    return [
        Launch(
            entry="row_scale",
            grid=(problem.rows,),
            block=(knobs["threads"],),
            args=("x", "weight", "out", np.int32(problem.columns), np.float32(EPSILON)),
        )
    ]


RUNG = Rung(
    id="row_scale",
    title="RMSNorm, tunable",
    source=Path(__file__).with_suffix(".cu"),
    idea="every method is a knob",
    limiter="memory bandwidth",
    cost="a barrier chain a row",
    knobs=(
        Knob("wide", (0, 1), 0, "1 loads and stores 16 bytes a lane"),
        Knob("shuffle", (0, 1), 0, "1 sums within a warp by shuffles"),
        Knob("early", (0, 1, 2), 0, "asks for the weights early: 1 by a load, 2 by a prefetch"),
        Knob("threads", (64, 256, 512), 64, "threads of a block"),
    ),
    supports=lambda problem: "its elements have 16 bits" if problem.element_bytes != 2 else None,
    launch=launch,
    operation="rows",
)
