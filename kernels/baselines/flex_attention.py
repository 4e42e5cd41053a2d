"""torch's flex_attention, compiled for the workload by ``torch.compile``.

Inside the timed call: the compiled function with ``enable_gqa`` and neither mask nor score change,
for which torch generates its decode kernel: the heads of a group share a block, and the keys are
split. Outside it: the compilation, in torch's default mode. It needs Triton.
"""

from importlib.util import find_spec
from pathlib import Path

from labtools.problem import Baseline

_compiled = {}


def compile_for(workload):
    """``flex_attention``, compiled anew for each workload: torch stops compiling one function
    after a few shapes and would then run it unfused."""
    import torch
    from torch.nn.attention.flex_attention import flex_attention

    key = workload.key()
    if key not in _compiled:
        _compiled.clear()  # what an earlier workload needed is not needed any more
        torch.compiler.reset()
        _compiled[key] = torch.compile(flex_attention, dynamic=False)
    return _compiled[key]


def prepare(tensors, workload):
    """q ``[B, Hq, D]``, k and v ``[B, Hkv, S, D]`` to a call that gives ``[B, Hq, D]``."""
    attention = compile_for(workload)
    q = tensors["q"].unsqueeze(2)
    k, v = tensors["k"], tensors["v"]
    gqa = workload.group_size > 1

    def attend():
        return attention(q, k, v, scale=workload.sm_scale, enable_gqa=gqa).squeeze(2)

    return attend


def supports(workload):
    """Where Triton is, for groups that its decode kernel takes, and one length for all."""
    if find_spec("triton") is None:
        return "Triton is not installed"
    if workload.group_size & (workload.group_size - 1):
        return "its decode kernel takes groups of 1, 2, 4, 8, ... query heads"
    if workload.seq_lens is not None:
        return "ragged lengths would need a mask, and that is another computation"
    return None


BASELINE = Baseline(
    id="flex_attention",
    title="torch FlexAttention, compiled",
    prepare=prepare,
    supports=supports,
    doc=__doc__,
    source=Path(__file__),
)
