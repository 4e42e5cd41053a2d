"""top_k: the softmax of each row, and the eight largest of it, as a router has them."""

import numpy as np

from labtools.problem import from_reference


def top_k(scores):
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    ids = np.argsort(-scores, axis=1, kind="stable")[:, :8]
    return np.take_along_axis(powers, ids, 1) / powers.sum(axis=1, keepdims=True), ids


OPERATION = from_reference(
    "top_k:rows,experts",
    {
        **{"scores": "f32[rows,experts]", "weights": "f32[rows,8]:out", "ids": "i32[rows,8]:out"},
        **{"count": "i32:rows", "n": "i32:experts"},
    },
    top_k,
    sizes=[(40, 128), (65536, 128)],
    rows="rows",
)
RUNG = OPERATION.rung(__file__, entry="top_k", grid="cdiv(rows, 128)", block=128)
