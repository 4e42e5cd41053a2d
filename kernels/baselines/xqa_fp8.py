"""FlashInfer's XQA over a paged cache of 8-bit floats (e4m3).

Inside the timed call: as ``xqa``, with K and V kept in e4m3 with one scale for both. On sm_90 this
is a kernel of its own, which rounds q and the weights to 8 bits as well. Outside it: workspace,
semaphores, the copy of a contiguous cache into pages of 64 tokens, and the conversion, which a
server makes when it writes the cache.
Half the bytes are read and the output is not that of the 16-bit cache, so it is a peer of rungs
with an 8-bit cache and of no other.
"""

from pathlib import Path

from labtools.problem import Baseline, StorageFormat
from labtools.problem.rung import load_by_path

_SHARED = load_by_path(Path(__file__).with_name("xqa.py"))


def prepare(tensors, workload):
    """The cache and q ``[B, Hq, D]`` to a call that gives ``[B, Hq, D]``."""
    return _SHARED.prepare_with(tensors, workload, fp8=True)


BASELINE = Baseline(
    id="xqa_fp8",
    title="FlashInfer XQA, FP8 cache",
    prepare=prepare,
    supports=_SHARED.supports,
    storage=StorageFormat("fp8-e4m3", "tensor"),
    layouts=("contiguous", "paged"),
    # Three bits after the point: rounding alone moves an element by up to a sixteenth, and q and
    # the weights are rounded besides.
    tolerance=0.1,
    doc=__doc__,
    source=Path(__file__),
)
