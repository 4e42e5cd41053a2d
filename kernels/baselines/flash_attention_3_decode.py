"""FlashAttention-3 with a KV cache, where its package is installed (sm_90).

Inside the timed call: one call of ``flash_attn_with_kvcache``, with the query heads of a group
packed and the number of splits left to it. It takes ``[B, S, Hkv, D]``, or pages of that order,
which a transposed view of our cache is. The output is allocated by the library in the call.
Outside it: where lengths are ragged or the cache is paged, the scheduler's metadata, which a server
makes once a step for all layers; and of a ragged contiguous cache a copy whose unused rows are
zero, since the kernel reads them and multiplies by zero.
"""

from importlib.util import find_spec
from pathlib import Path

from labtools.problem import Baseline, LabError

PACKAGE = "flash_attn_interface"
HEAD_DIMS = (64, 128, 256)
"""Those that the packages are built for."""


def require_hopper(device):
    """Refuse a GPU that the kernels are not compiled for; a CPU stands for one in tests."""
    import torch

    if device.type == "cuda" and torch.cuda.get_device_capability(device)[0] != 9:
        why = "its kernels are for compute capability 9.0 alone"
        raise LabError("FlashAttention-3 cannot run on this GPU.", why, "the other libraries")


def prepare(tensors, workload):
    """The cache and q ``[B, Hq, D]`` to a call that gives ``[B, Hq, D]``."""
    import torch
    from flash_attn_interface import flash_attn_with_kvcache, get_scheduler_metadata

    q, k, v = (tensors[name] for name in "qkv")
    require_hopper(q.device)
    given = {"softmax_scale": workload.sm_scale, "num_splits": 0, "pack_gqa": True}
    paged = workload.is_paged
    if paged:
        given["page_table"] = tensors["page_table"]
    elif workload.seq_lens is not None:
        k, v = (torch.nan_to_num(one, nan=0.0) for one in (k, v))
    if paged or workload.seq_lens is not None:
        given["cache_seqlens"] = tensors["seq_lens"]
        given["scheduler_metadata"] = get_scheduler_metadata(
            workload.batch,
            1,
            workload.max_pages * workload.page_size if paged else workload.kv_len,
            workload.num_qo_heads,
            workload.num_kv_heads,
            workload.head_dim,
            tensors["seq_lens"],
            qkv_dtype=q.dtype,
            page_size=workload.page_size if paged else None,
            num_splits=0,
            pack_gqa=True,
        )
    q, k, v = q.unsqueeze(1), k.transpose(1, 2), v.transpose(1, 2)
    return lambda: flash_attn_with_kvcache(q, k, v, **given).squeeze(1)


def supports(workload):
    """Wherever the library is installed, for the head_dims that it is built for."""
    if find_spec(PACKAGE) is None:
        return f"FlashAttention-3 is not installed (no package {PACKAGE})"
    if workload.head_dim not in HEAD_DIMS:
        return f"head_dim is {workload.head_dim}; it is built for {HEAD_DIMS}"
    return None


BASELINE = Baseline(
    id="flash_attention_3_decode",
    title="FlashAttention-3 with a KV cache",
    prepare=prepare,
    supports=supports,
    layouts=("contiguous", "paged"),
    doc=__doc__,
    source=Path(__file__),
)
