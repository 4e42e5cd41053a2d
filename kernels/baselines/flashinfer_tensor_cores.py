"""FlashInfer's batch decode on tensor cores, over a paged cache.

Inside the timed call: as ``flashinfer``, with ``use_tensor_cores``: the query heads that share a
KV head are computed together on the matrix units. Outside it: ``plan``, which FlashInfer's users
call once a step for all layers, and, where the cache is contiguous, its copy into pages of 16
tokens.
"""

from pathlib import Path

from labtools.problem import Baseline
from labtools.problem.rung import load_by_path

_SHARED = load_by_path(Path(__file__).with_name("flashinfer.py"))


def prepare(tensors, workload):
    """The cache and q ``[B, Hq, D]`` to a call that gives ``[B, Hq, D]``."""
    return _SHARED.prepare_with(tensors, workload, tensor_cores=True)


BASELINE = Baseline(
    id="flashinfer_tensor_cores",
    title="FlashInfer batch decode, tensor cores",
    prepare=prepare,
    supports=_SHARED.supports,
    layouts=("contiguous", "paged"),
    doc=__doc__,
    source=Path(__file__),
)
