"""rms_norm_add: a residual is added, and RMSNorm is taken of the sum, both in place."""

import numpy as np

from labtools.problem import from_reference


def add_and_norm(x, residual, weight, epsilon):
    both = x + residual
    return both / np.sqrt((both * both).mean(axis=1, keepdims=True) + epsilon) * weight, both


OPERATION = from_reference(
    "rms_norm_add:tokens,H",
    {
        **{"x": "f16[tokens,H]:inout", "residual": "f16[tokens,H]:inout", "weight": "f16[H]"},
        **{"epsilon": "f32:0.00001", "hidden": "i32:H"},
    },
    add_and_norm,
    sizes=[(5, 300), (2, 2048), (8192, 4096)],
    rows="tokens",
)
RUNG = OPERATION.rung(
    __file__,
    source="rms_norm.cu",
    entry="fused_add_rms_norm_kernel<512>",
    grid="tokens",
    block=512,
    supports=lambda problem: "hidden is even" if problem.H % 2 else None,
)
