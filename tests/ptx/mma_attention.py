"""mma_attention: attention on tensor cores with inline PTX, a kernel of the kind that is published.

Idea: mma.sync, ldmatrix and cp.async in the kernel's own asm statements.
Limiter: tensor cores.
Cost: registers.
"""

import numpy as np

from labtools.problem import from_reference


def attention(q, k, v, scale):
    """Softmax of the scaled products of each query with all keys, times the values."""
    s = q @ k.swapaxes(1, 2) * scale
    p = np.exp(s - s.max(axis=-1, keepdims=True))
    return (p / p.sum(axis=-1, keepdims=True) @ v).reshape(len(q), -1)


OPERATION = from_reference(
    "mma_attention:heads,keys",
    {
        **dict.fromkeys(("q", "k", "v"), "f16[heads,keys,64]"),
        "out": "f16[heads,keys*64]:out",
        "length": "i32:keys",
        "scale": "f32:0.125",
    },
    attention,
    sizes=[(1, 256), (2, 100), (1, 1)],
    flops="4*heads*keys*keys*64",
)

RUNG = OPERATION.rung(
    __file__,
    entry="attention",
    grid="cdiv(keys, 64), heads",
    block=128,
    title="Attention with inline PTX",
    idea="mma.sync on tiles of 64 keys",
    limiter="tensor cores",
    cost="registers",
)
