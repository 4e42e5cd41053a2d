"""layer_norm: LayerNorm forward with mean and inverse deviation, a warp a row."""

import numpy as np

from labtools.problem import from_reference


def layer_norm(x, weight, bias):
    mean = x.mean(axis=1)
    rstd = 1 / np.sqrt(x.var(axis=1) + 1e-5)
    return (x - mean[:, None]) * rstd[:, None] * weight + bias, mean, rstd


OPERATION = from_reference(
    "layer_norm_f32:R,columns",
    {
        **{"out": "f32[R,columns]:out", "mean": "f32[R]:out", "rstd": "f32[R]:out"},
        **{"x": "f32[R,columns]", "weight": "f32[columns]", "bias": "f32[columns]"},
        **{"N": "i32:R", "C": "i32:columns"},
    },
    layer_norm,
    sizes=[(9, 300), (3, 64), (16384, 768)],
    rows="R",
)
RUNG = OPERATION.rung(__file__, entry="layernorm_forward", grid="cdiv(R, 8)", block=256)
