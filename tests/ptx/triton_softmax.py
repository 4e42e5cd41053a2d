"""triton_softmax: softmax of rows, in the PTX that Triton makes.

Idea: PTX runs on the CPU like a source.
Limiter: memory bandwidth.
Cost: a row has at most 1024 elements.
"""

import numpy as np

from labtools.problem import from_reference


def softmax(x):
    """Softmax of each row."""
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


OPERATION = from_reference(
    "triton_softmax:rows,width",
    {
        "out": "f32[rows,width]:out",
        "x": "f32[rows,width]",
        "stride": "i32:width",
        "columns": "i32:width",
        "scratch": "f32[1]",
        "profile": "f32[1]",
    },
    softmax,
    sizes=[(5, 1000), (3, 77)],
    rows="rows",
)

RUNG = OPERATION.rung(
    __file__,
    entry="softmax",
    grid="rows",
    block=128,
    smem=16,
    source="triton_softmax.ptx",
    supports=lambda problem: None if problem.width <= 1024 else "a row has at most 1024 elements",
)
