"""softmax_channels: softmax over the channels of each pixel in three passes, a thread a pixel."""

import numpy as np

from labtools.problem import from_reference


def softmax(x):
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


OPERATION = from_reference(
    "softmax_channels:images,C,P",
    {
        **{"x": "f32[images,C,P]", "out": "f32[images,C,P]:out"},
        **{"channels": "i32:C", "pixels": "i32:P"},
    },
    softmax,
    sizes=[(2, 5, 150), (3, 9, 70), (4, 19, 512 * 512)],
    rows="images",
)
RUNG = OPERATION.rung(__file__, entry="softmax_channels", grid="cdiv(P, 256), images", block=256)
