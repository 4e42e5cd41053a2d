"""FlashAttention-3 over all queries, where its package is installed (sm_90).

Inside the timed call: one call of ``flash_attn_func`` with the KV heads as they are. It takes
``[B, N, H, D]``, which a transposed view of our inputs is: nothing is copied. Its mask is aligned
at the last key, as ours is. The output is allocated by the library in the call.
"""

from importlib.util import find_spec
from pathlib import Path

from labtools.problem import Baseline

PACKAGE = "flash_attn_interface"


def prepare(tensors, problem):
    """q ``[B, Hq, N, D]``, k and v ``[B, Hkv, S, D]`` to a call that gives ``[B, Hq, N, D]``."""
    from flash_attn_interface import flash_attn_func

    q, k, v = (tensors[name].transpose(1, 2) for name in "qkv")

    def attend():
        found = flash_attn_func(q, k, v, softmax_scale=problem.sm_scale, causal=problem.causal)
        out = found[0] if isinstance(found, tuple) else found  # some versions give the lse too
        return out.transpose(1, 2)

    return attend


def supports(problem):
    """Wherever the library is installed."""
    if find_spec(PACKAGE) is None:
        return f"FlashAttention-3 is not installed (no package {PACKAGE})"
    return None


BASELINE = Baseline(
    id="flash_attention_3",
    title="FlashAttention-3",
    prepare=prepare,
    supports=supports,
    doc=__doc__,
    source=Path(__file__),
    operation="prefill",
)
