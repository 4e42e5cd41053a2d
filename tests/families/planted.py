"""planted: RMSNorm with methods whose effects are known beforehand, so that a loop can be judged.

Idea: one method does nothing, one harms, one is dropped by the compiler, two work only together,
one spills, and one is fast without being what it claims.
Limiter: a chain that the answer does not need.
Cost: all of it; it is a test.
"""

from pathlib import Path

import numpy as np

from labtools.problem import Knob, Launch, Rung
from labtools.problem.rows import EPSILON


def launch(problem, limits, knobs):
    """One block a row."""
    return [
        Launch(
            entry="planted",
            grid=(problem.rows,),
            block=(128,),
            args=("x", "weight", "out", np.int32(problem.columns), np.float32(EPSILON)),
        )
    ]


RUNG = Rung(
    id="planted",
    title="RMSNorm with planted methods",
    source=Path(__file__).with_suffix(".cu"),
    idea="what each method does is known beforehand",
    limiter="a chain that the answer does not need",
    cost="the chain",
    knobs=(
        Knob("idle", (0, 1), 0, "1 has one instruction more"),
        Knob("harm", (0, 1), 0, "1 walks a second chain"),
        Knob("dropped", (0, 1), 0, "1 loads what nobody uses"),
        Knob("first", (0, 1), 0, "1 shortens the chain where second is 1 too"),
        Knob("second", (0, 1), 0, "1 shortens the chain where first is 1 too"),
        Knob("tight", (0, 1), 0, "1 leaves too few registers"),
        Knob("claimed", (0, 1), 0, "1 shortens the chain, and not by a copy"),
    ),
    supports=lambda problem: "its elements have 16 bits" if problem.element_bytes != 2 else None,
    launch=launch,
    operation="rows",
)
