"""triton_attention: attention forward by powers of two, with the logarithm of their sums."""

import numpy as np

from labtools.problem import from_reference


def attention(q, k, v, scale):
    s = q @ k.swapaxes(1, 2) * scale
    p = np.exp(s - s.max(axis=-1, keepdims=True))
    sums = p.sum(axis=-1)
    out = (p / sums[..., None] @ v).reshape(len(q), -1)
    return (np.log(sums) + s.max(axis=-1)) / np.log(2), out


OPERATION = from_reference(
    "triton_attention:heads,keys",
    {
        **dict.fromkeys(("q", "k", "v"), "f16[heads,keys,64]"),
        **{"scale": "f32:0.125", "lse": "f32[heads,keys]:out", "out": "f16[heads,keys*64]:out"},
        **{"head_stride": "i32:keys*64", "row_stride": "i32:64", "length": "i32:keys"},
    },
    attention,
    sizes=[(2, 128), (1, 128), (64, 2048)],
    rows="heads",
    flops="4*heads*keys*keys*64",
)
CONSTANTS = {"HEAD_DIM": "64", "BLOCK_M": "128", "BLOCK_N": "64", "num_warps": "4"}
RUNG = OPERATION.rung(
    __file__,
    source="triton_kernels.py",
    entry="attn_fwd",
    grid="keys // 128, heads",
    supports=lambda problem: "keys are multiples of 128" if problem.keys % 128 else None,
    defines_extra=lambda problem, limits, knobs: CONSTANTS,
)
