"""torch's scaled_dot_product_attention with its memory-efficient backend and no other.

Inside the timed call: as ``sdpa``, with the choice of backend taken from torch. It has no
grouped heads, so it runs only where each query head has a KV head of its own.
"""

from pathlib import Path

from labtools.problem import Baseline


def prepare(tensors, workload):
    """q ``[B, Hq, D]``, k and v ``[B, Hkv, S, D]`` to a call that gives ``[B, Hq, D]``."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q = tensors["q"].unsqueeze(2)
    k, v = tensors["k"], tensors["v"]

    def attend():
        with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
            out = torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=workload.sm_scale)
        return out.squeeze(2)

    return attend


def supports(workload):
    """One KV head a query head, and one length for all sequences."""
    if workload.group_size > 1:
        return "torch's memory-efficient backend takes no grouped query heads"
    if workload.seq_lens is not None:
        return "ragged lengths would need a mask, and that is another computation"
    return None


BASELINE = Baseline(
    id="sdpa_efficient",
    title="torch SDPA, memory-efficient backend",
    prepare=prepare,
    supports=supports,
    doc=__doc__,
    source=Path(__file__),
)
