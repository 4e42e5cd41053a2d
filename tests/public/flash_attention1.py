"""flash_attention1: tensor cores by inline PTX, tiles by plain loads."""

import numpy as np

from labtools.problem import from_reference


def attention(Q, K, V, scale):
    s = Q @ K.swapaxes(1, 2) * scale
    p = np.exp(s - s.max(axis=-1, keepdims=True))
    return (p / p.sum(axis=-1, keepdims=True) @ V).reshape(len(Q), -1)


OPERATION = from_reference(
    "flash_attention:heads,keys",
    {
        **dict.fromkeys(("Q", "K", "V"), "f16[heads,keys,128]"),
        **{"O": "f16[heads,keys*128]:out", "len": "i32:keys", "scale": "f32:0.08838835"},
    },
    attention,
    sizes=[(1, 128), (1, 64), (32, 2048)],
    rows="heads",
    flops="4*heads*keys*keys*128",
)
RUNG = OPERATION.rung(
    __file__,
    source="flash_attention.cu",
    entry="flash_attention",
    grid="keys // 64, heads",
    block=128,
    supports=lambda problem: "keys are multiples of 64" if problem.keys % 64 else None,
)
