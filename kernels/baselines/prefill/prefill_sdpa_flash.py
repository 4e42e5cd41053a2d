"""torch's scaled_dot_product_attention over all queries with its flash backend and no other.

Inside the timed call: as ``prefill_sdpa``, with the choice of backend taken from torch.
"""

from pathlib import Path

from labtools.problem import Baseline
from labtools.problem.rung import load_by_path

_SHARED = load_by_path(Path(__file__).with_name("prefill_sdpa.py"))


def prepare(tensors, problem):
    """q ``[B, Hq, N, D]``, k and v ``[B, Hkv, S, D]`` to a call that gives ``[B, Hq, N, D]``."""
    return _SHARED.prepare_with(tensors, problem, "FLASH_ATTENTION")


BASELINE = Baseline(
    id="prefill_sdpa_flash",
    title="torch SDPA, flash backend",
    prepare=prepare,
    supports=lambda problem: None,
    doc=__doc__,
    source=Path(__file__),
    operation="prefill",
)
