"""torch's scaled_dot_product_attention over all queries with its cuDNN backend and no other.

Inside the timed call: as ``prefill_sdpa``, with the choice of backend taken from torch. It gets
no mask of fewer queries than keys, which torch would hand it written out.
"""

from pathlib import Path

from labtools.problem import Baseline
from labtools.problem.rung import load_by_path

_SHARED = load_by_path(Path(__file__).with_name("prefill_sdpa.py"))


def prepare(tensors, problem):
    """q ``[B, Hq, N, D]``, k and v ``[B, Hkv, S, D]`` to a call that gives ``[B, Hq, N, D]``."""
    return _SHARED.prepare_with(tensors, problem, "CUDNN_ATTENTION")


def supports(problem):
    """As many queries as keys where there is a mask."""
    if problem.causal and 1 < problem.num_queries < problem.kv_len:
        return "torch would write out the mask of fewer queries than keys for cuDNN"
    return None


BASELINE = Baseline(
    id="prefill_sdpa_cudnn",
    title="torch SDPA, cuDNN backend",
    prepare=prepare,
    supports=supports,
    doc=__doc__,
    source=Path(__file__),
    operation="prefill",
)
