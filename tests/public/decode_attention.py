"""decode_attention: scores, softmax and weighted sum in one kernel, a block a (sequence, head)."""

import numpy as np

from labtools.problem import from_reference


def decode(q, k_cache, v_cache, lengths, scale):
    kv_heads, out = k_cache.shape[1], np.zeros(q.shape)
    for seq, length in enumerate(lengths):
        heads = q[seq].reshape(kv_heads, -1, 128)
        s = heads @ k_cache[seq, :, :length].swapaxes(1, 2) * scale
        p = np.exp(s - s.max(axis=2, keepdims=True))
        p /= p.sum(axis=2, keepdims=True)
        out[seq] = (p @ v_cache[seq, :, :length]).reshape(-1, 128)
    return out


OPERATION = from_reference(
    "decode_attention:batch,groups,most",
    {
        "q": "f16[batch,groups*4,128]",
        **dict.fromkeys(("k_cache", "v_cache"), "f16[batch,groups,most,128]:part"),
        "lengths": "i32[batch]=uniform:(most+1)//2,most+1",
        "out": "f16[batch,groups*4,128]:out",
        "num_kv_heads": "i32:groups",
        "max_len": "i32:most",
        "scale": "f32:0.08838835",
    },
    decode,
    sizes=[(3, 1, 70), (2, 1, 150), (32, 8, 1024)],
    rows="batch",
    flops="16*batch*groups*most*128",
)

RUNG = OPERATION.rung(
    __file__,
    entry="fused_decode_attention",
    grid="groups * 4, batch",
    block=256,
    smem="max_len * 4",
    supports=lambda problem: "scores are in shared memory" if problem.most > 9000 else None,
)
