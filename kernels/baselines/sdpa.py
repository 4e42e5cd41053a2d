"""torch's scaled_dot_product_attention, as it is meant to be called.

Inside the timed call: one call with the KV heads as they are (``enable_gqa`` where a KV head
serves several query heads) and the backend that torch picks by itself. The output is allocated
by torch in the call. Nothing is copied, and the views that add and drop the axis of the single
query token cost nothing on the device.
"""

from pathlib import Path

from labtools.problem import Baseline


def prepare(tensors, workload):
    """q ``[B, Hq, D]``, k and v ``[B, Hkv, S, D]`` to a call that gives ``[B, Hq, D]``."""
    import torch

    q = tensors["q"].unsqueeze(2)
    k, v = tensors["k"], tensors["v"]

    def attend():
        out = torch.nn.functional.scaled_dot_product_attention(
            q, k, v, scale=workload.sm_scale, enable_gqa=workload.group_size > 1
        )
        return out.squeeze(2)

    return attend


def supports(workload):
    """One length for all sequences; ragged lengths would need a mask, which changes the work."""
    if workload.seq_lens is not None:
        return "ragged lengths would need a mask, and that is another computation"
    return None


BASELINE = Baseline(
    id="sdpa",
    title="torch SDPA, default backend",
    prepare=prepare,
    supports=supports,
    doc=__doc__,
    source=Path(__file__),
)
