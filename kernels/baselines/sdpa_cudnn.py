"""torch's scaled_dot_product_attention with its cuDNN backend and no other.

Inside the timed call: as ``sdpa``, with the choice of backend taken from torch. The KV heads
are not expanded.
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
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            out = torch.nn.functional.scaled_dot_product_attention(
                q, k, v, scale=workload.sm_scale, enable_gqa=workload.group_size > 1
            )
        return out.squeeze(2)

    return attend


def supports(workload):
    """One length for all sequences, as for ``sdpa``."""
    if workload.seq_lens is not None:
        return "ragged lengths would need a mask, and that is another computation"
    return None


BASELINE = Baseline(
    id="sdpa_cudnn",
    title="torch SDPA, cuDNN backend",
    prepare=prepare,
    supports=supports,
    doc=__doc__,
    source=Path(__file__),
)
