"""layer_norm2_thread: LayerNorm forward in three passes, a thread a row."""

import numpy as np

from labtools.problem import from_reference


def layer_norm(x, weight, bias):
    mean, variance = x.mean(axis=1, keepdims=True), x.var(axis=1, keepdims=True)
    return (x - mean) / np.sqrt(variance + 1e-5) * weight + bias


OPERATION = from_reference(
    "layer_norm_alone:R,columns",
    {
        **{"out": "f32[R,columns]:out", "x": "f32[R,columns]"},
        **{"weight": "f32[columns]", "bias": "f32[columns]", "N": "i32:R", "C": "i32:columns"},
    },
    layer_norm,
    sizes=[(9, 300), (3, 64), (16384, 768)],
    rows="R",
)
RUNG = OPERATION.rung(
    __file__, source="layer_norm.cu", entry="layernorm_naive", grid="cdiv(R, 128)", block=128
)
