"""rms_norm: RMSNorm of fp16 by pairs, a block a token."""

import numpy as np

from labtools.problem import from_reference


def rms_norm(x, weight, epsilon):
    return x / np.sqrt((x * x).mean(axis=1, keepdims=True) + epsilon) * weight


OPERATION = from_reference(
    "rms_norm_f16:tokens,H",
    {
        "out": "f16[tokens,H]:out",
        **{"x": "f16[tokens,H]", "weight": "f16[H]"},
        **{"epsilon": "f32:0.00001", "hidden": "i32:H"},
    },
    rms_norm,
    sizes=[(5, 300), (2, 2048), (8192, 4096)],
    rows="tokens",
)
RUNG = OPERATION.rung(
    __file__,
    entry="rms_norm_kernel<512>",
    grid="tokens",
    block=512,
    supports=lambda problem: "hidden is even" if problem.H % 2 else None,
)
