"""conv1d: 11 weights along a vector, with a halo in shared memory."""

import numpy as np

from labtools.problem import from_reference


def convolution(x, mask):
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, 5), 11)
    return windows @ mask


OPERATION = from_reference(
    "conv1d:count",
    {"x": "f32[count]", "mask": "f32[11]", "out": "f32[count]:out", "n": "i32:count"},
    convolution,
    sizes=[1000, 20000, 1 << 24],
    flops="22*count",
)
RUNG = OPERATION.rung(__file__, entry="conv1d_shared<5, 256>", grid="cdiv(count, 256)", block=256)
