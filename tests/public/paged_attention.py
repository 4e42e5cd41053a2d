"""paged_attention: decode attention on a cache in pages of 16, a block a (head, sequence)."""

import numpy as np

from labtools.problem import from_reference


def paged(q, k_cache, v_cache, scale, block_tables, seq_lens):
    out, kv_heads = np.zeros(q.shape), k_cache.shape[1]
    for seq, (table, length) in enumerate(zip(block_tables, seq_lens, strict=True)):
        k = k_cache[table].transpose(1, 0, 3, 2, 4).reshape(kv_heads, -1, 128)[:, :length]
        v = v_cache[table].transpose(1, 0, 3, 2).reshape(kv_heads, -1, 128)[:, :length]
        for head, one in enumerate(q[seq]):
            s = k[head // 4] @ one * scale
            p = np.exp(s - s.max())
            out[seq, head] = p / p.sum() @ v[head // 4]
    return out


OPERATION = from_reference(
    "paged_attention:seqs,groups,pages",
    {
        "out": "f16[seqs,groups*4,128]:out",
        "q": "f16[seqs,groups*4,128]",
        "k_cache": "f16[seqs*pages,groups,16,16,8]:part",
        "v_cache": "f16[seqs*pages,groups,128,16]:part",
        "num_kv_heads": "i32:groups",
        "scale": "f32:0.08838835",
        "block_tables": "i32[seqs,pages]=uniform:0,seqs*pages",
        "seq_lens": "i32[seqs]=uniform:1,pages*16+1",
        "max_num_blocks_per_seq": "i32:pages",
        "q_stride": "i32:groups*512",
        "kv_block_stride": "i32:groups*2048",
        "kv_head_stride": "i32:2048",
    },
    paged,
    sizes=[(3, 1, 5), (2, 1, 12), (32, 8, 64)],
    rows="seqs",
    flops="256*seqs*groups*pages*128",
)

RUNG = OPERATION.rung(
    __file__,
    entry="paged_attention_v1_kernel<half, 128, 16, 128>",
    grid="groups * 4, seqs",
    block=128,
    smem="max(pages * 64, 1024)",
    supports=lambda problem: "logits are in shared memory" if problem.pages > 700 else None,
)
