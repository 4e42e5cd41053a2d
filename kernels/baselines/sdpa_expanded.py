"""torch's scaled_dot_product_attention after copying every KV head once a query head.

Inside the timed call: ``repeat_interleave`` of K and of V, which reads the cache once and writes
it Hq / Hkv times to new memory, and then the call of ``sdpa`` on those copies, which reads them
all. This is the handicapped baseline of the first lesson about measuring; it is not a fair one.
"""

from pathlib import Path

from labtools.problem import Baseline


def prepare(tensors, workload):
    """q ``[B, Hq, D]``, k and v ``[B, Hkv, S, D]`` to a call that gives ``[B, Hq, D]``."""
    import torch

    q = tensors["q"].unsqueeze(2)
    k, v = tensors["k"], tensors["v"]

    def attend():
        k_expanded = k.repeat_interleave(workload.group_size, dim=1)
        v_expanded = v.repeat_interleave(workload.group_size, dim=1)
        out = torch.nn.functional.scaled_dot_product_attention(
            q, k_expanded, v_expanded, scale=workload.sm_scale
        )
        return out.squeeze(2)

    return attend


def supports(workload):
    """Only where there is something to expand, and one length for all sequences."""
    if workload.group_size == 1:
        return "every query head has its own KV head, so there is nothing to expand"
    if workload.seq_lens is not None:
        return "ragged lengths would need a mask, and that is another computation"
    return None


BASELINE = Baseline(
    id="sdpa_expanded",
    title="torch SDPA, KV heads expanded inside the timed call",
    prepare=prepare,
    supports=supports,
    fair=False,
    doc=__doc__,
    source=Path(__file__),
)
