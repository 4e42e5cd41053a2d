"""torch's rms_norm, as it is meant to be called.

Inside the timed call: one call of ``torch.nn.functional.rms_norm`` over the last axis, with the
weight. The output is allocated by torch in the call.
"""

from pathlib import Path

from labtools.problem import Baseline
from labtools.problem.rows import EPSILON


def prepare(tensors, problem):
    """x ``[R, C]`` and weight ``[C]`` to a call that gives ``[R, C]``."""
    import torch

    x, weight = tensors["x"], tensors["weight"]

    def norm():
        return torch.nn.functional.rms_norm(x, (problem.columns,), weight, EPSILON)

    return norm


BASELINE = Baseline(
    id="torch_rms_norm",
    title="torch rms_norm",
    prepare=prepare,
    supports=lambda problem: None,
    doc=__doc__,
    source=Path(__file__),
    dtypes=("float16", "bfloat16", "float32"),
    operation="rows",
)
