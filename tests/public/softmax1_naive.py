"""softmax1_naive: a thread a row; the three other ways take the operation of this one."""

import numpy as np

from labtools.problem import from_reference


def softmax(x):
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


OPERATION = from_reference(
    "softmax_f32:R,C",
    {"x": "f32[R,C]", "out": "f32[R,C]:out", "rows": "i32:R", "columns": "i32:C"},
    softmax,
    sizes=[(9, 300), (3, 64), (8192, 4096)],
    rows="R",
)
RUNG = OPERATION.rung(
    __file__, source="softmax.cu", entry="softmax_naive", grid="cdiv(rows, 128)", block=128
)
