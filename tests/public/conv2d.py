"""conv2d: a direct convolution of 3 by 3 over several channels, an element a thread."""

import numpy as np

from labtools.problem import from_reference


def convolution(x, weights):
    _, height, width = x.shape
    padded, out = np.pad(x, ((0, 0), (1, 1), (1, 1))), 0
    for i, j in np.ndindex(3, 3):
        part = padded[:, i : i + height, j : j + width]
        out = out + np.tensordot(weights[:, :, i, j], part, 1)
    return out


OPERATION = from_reference(
    "conv2d_3x3:K,C,H,W",
    {
        **{"x": "f32[C,H,W]", "weights": "f32[K,C,3,3]", "out": "f32[K,H,W]:out"},
        **{"in_channels": "i32:C", "height": "i32:H", "width": "i32:W"},
    },
    convolution,
    sizes=[(2, 3, 11, 40), (3, 2, 16, 33), (8, 8, 1024, 1024)],
    flops="18*K*C*H*W",
)
RUNG = OPERATION.rung(
    __file__, entry="conv2d_3x3", grid="cdiv(W, 32), cdiv(H, 8), K", block="32, 8"
)
