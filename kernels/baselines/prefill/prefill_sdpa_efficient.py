"""torch's scaled_dot_product_attention over all queries, memory-efficient backend and no other.

Inside the timed call: as ``prefill_sdpa``, with the choice of backend taken from torch. It has no
grouped heads, so it runs only where each query head has a KV head of its own.
"""

from pathlib import Path

from labtools.problem import Baseline
from labtools.problem.rung import load_by_path

_SHARED = load_by_path(Path(__file__).with_name("prefill_sdpa.py"))


def prepare(tensors, problem):
    """q ``[B, Hq, N, D]``, k and v ``[B, Hkv, S, D]`` to a call that gives ``[B, Hq, N, D]``."""
    return _SHARED.prepare_with(tensors, problem, "EFFICIENT_ATTENTION")


def supports(problem):
    """One KV head a query head."""
    if problem.group_size > 1:
        return "the memory-efficient backend of torch takes no grouped query heads"
    return None


BASELINE = Baseline(
    id="prefill_sdpa_efficient",
    title="torch SDPA, memory-efficient backend",
    prepare=prepare,
    supports=supports,
    doc=__doc__,
    source=Path(__file__),
    operation="prefill",
)
