"""rope: rotary embedding of fp16 in place, with a table of cosines and sines."""

import numpy as np

from labtools.problem import from_reference


def rotate(x, positions, cos_sin):
    cos, sin = np.split(cos_sin[positions][:, None], 2, axis=2)
    a, b = np.split(x, 2, axis=2)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=2)


OPERATION = from_reference(
    "rope:tokens,heads,most",
    {
        "x": "f16[tokens,heads,128]:inout",
        "positions": "i32[tokens]=uniform:0,most",
        **{"cos_sin": "f32[most,128]=uniform:-1,1", "num_heads": "i32:heads"},
    },
    rotate,
    sizes=[(5, 3, 20), (2, 5, 9), (8192, 32, 4096)],
    rows="tokens",
)
RUNG = OPERATION.rung(__file__, entry="rotary_embedding<128>", grid="tokens", block=512)
