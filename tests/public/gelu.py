"""gelu: the tanh form of GELU, four elements a thread."""

import numpy as np

from labtools.problem import from_reference


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


OPERATION = from_reference(
    "gelu:count",
    {"out": "f32[count]:out", "x": "f32[count]", "n": "i32:count"},
    gelu,
    sizes=[1000, 70000, 1 << 25],
)
RUNG = OPERATION.rung(
    __file__,
    source="elementwise.cu",
    entry="gelu_forward",
    grid="cdiv(n, 1024)",
    block=256,
    supports=lambda problem: "a multiple of 4" if problem.count % 4 else None,
)
