"""heat: a step of heat in a box, seven points of float32, as a stranger has it."""

import numpy as np

from labtools.problem import Knob, from_reference


def heat(t, rate):
    near = sum(np.roll(t, step, axis) for axis in range(3) for step in (-1, 1))
    new = t.copy()
    new[1:-1, 1:-1, 1:-1] += (rate * (near - 6 * t))[1:-1, 1:-1, 1:-1]
    return new


BOX = {"t": "f32[z,y,x]", "next": "f32[z,y,x]:out", "nx": "i32:x", "ny": "i32:y", "nz": "i32:z"}
SIZES = [(9, 20, 40), (192, 192, 192)]
OPERATION = from_reference("heat:z,y,x", {**BOX, "rate": "f32:0.1"}, heat, sizes=SIZES)
WIDE = Knob("wide", (8, 16, 32, 64), 8, "threads along x")
POINTS = Knob("points", (1, 2, 4, 8), 1, "points of a thread, one above the other")
GRID = "cdiv(x, wide), cdiv(y, 8), cdiv(z, 64 // wide * points)"
RUNG = OPERATION.rung(
    __file__, entry="heat", grid=GRID, block="wide, 8, 64 // wide", knobs=(WIDE, POINTS)
)
