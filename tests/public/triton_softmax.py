"""triton_softmax: programs that stay and take row after row."""

import numpy as np

from labtools.problem import from_reference


def softmax(x):
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


OPERATION = from_reference(
    "triton_softmax:R,C",
    {
        **{"out": "f32[R,C]:out", "x": "f32[R,C]", "in_stride": "i32:C", "out_stride": "i32:C"},
        **{"rows": "i32:R", "columns": "i32:C"},
    },
    softmax,
    sizes=[(9, 300), (3, 64), (8192, 4096)],
    rows="R",
)
RUNG = OPERATION.rung(
    __file__,
    source="triton_kernels.py",
    entry="softmax_kernel",
    grid="min(rows, num_sms * 4)",
    defines_extra=lambda problem, limits, knobs: {
        **{"BLOCK_SIZE": str(1 << (problem.C - 1).bit_length())},
        **{"num_stages": "4", "num_warps": "8"},
    },
)
