"""torch's scaled_dot_product_attention over all queries, as it is meant to be called.

Inside the timed call: one call with the KV heads as they are (``enable_gqa`` where a KV head
serves several query heads), the backend that torch picks by itself, and the mask as torch's own
causal form: ``is_causal`` where there are as many queries as keys, ``causal_lower_right`` where
there are fewer. The output is allocated by torch in the call. Nothing is copied.
"""

from pathlib import Path

from labtools.problem import Baseline


def prepare_with(tensors, problem, backend=None):
    """A call of SDPA with one backend, by its name in ``SDPBackend``; None leaves it to torch."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.attention.bias import causal_lower_right

    q, k, v = (tensors[name] for name in "qkv")
    masked = problem.causal and problem.num_queries > 1  # one query sees every key
    square = problem.num_queries == problem.kv_len
    options = {"scale": problem.sm_scale, "enable_gqa": problem.group_size > 1}
    if masked and square:
        options["is_causal"] = True
    elif masked:
        options["attn_mask"] = causal_lower_right(problem.num_queries, problem.kv_len)

    def attend():
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, **options)

    def attend_with():
        with sdpa_kernel(getattr(SDPBackend, backend)):
            return attend()

    return attend if backend is None else attend_with


def prepare(tensors, problem):
    """q ``[B, Hq, N, D]``, k and v ``[B, Hkv, S, D]`` to a call that gives ``[B, Hq, N, D]``."""
    return prepare_with(tensors, problem)


BASELINE = Baseline(
    id="prefill_sdpa",
    title="torch SDPA, default backend",
    prepare=prepare,
    supports=lambda problem: None,
    doc=__doc__,
    source=Path(__file__),
    operation="prefill",
)
