"""torch's scaled_dot_product_attention with the query heads of a group as rows of one query.

Inside the timed call: one call with q as ``[B, Hkv, G, D]`` against k and v ``[B, Hkv, S, D]`` and
the backend that torch picks by itself. Each KV head is read once for its whole group, and no head
is expanded. Nothing is copied: the reshaped q and output are views.
"""

from pathlib import Path

from labtools.problem import Baseline


def prepare(tensors, workload):
    """q ``[B, Hq, D]``, k and v ``[B, Hkv, S, D]`` to a call that gives ``[B, Hq, D]``."""
    import torch

    whole = (workload.batch, workload.num_qo_heads, workload.head_dim)
    folded = (workload.batch, workload.num_kv_heads, workload.group_size, workload.head_dim)
    q = tensors["q"].reshape(folded)
    k, v = tensors["k"], tensors["v"]

    def attend():
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=workload.sm_scale)
        return out.reshape(whole)

    return attend


def supports(workload):
    """Only where there is something to fold, and one length for all sequences."""
    if workload.group_size == 1:
        return "every query head has its own KV head, so there is nothing to fold"
    if workload.seq_lens is not None:
        return "ragged lengths would need a mask, and that is another computation"
    return None


BASELINE = Baseline(
    id="sdpa_folded",
    title="torch SDPA, a group's heads as rows of a query",
    prepare=prepare,
    supports=supports,
    doc=__doc__,
    source=Path(__file__),
)
