"""torch's addition and rms_norm, one after the other.

Inside the timed call: ``residual.add_(x)`` and one call of ``torch.nn.functional.rms_norm``, whose
output torch allocates. Two kernels: torch has none that does both unless it compiles one
(``torch_compiled_add_rms_norm``).
"""

from pathlib import Path

from labtools.problem import Baseline
from labtools.problem.rows import EPSILON


def add_norm(x, residual, weight):
    """Both outputs, ``[R, C]``; the residual is changed in place."""
    import torch

    residual.add_(x)
    return torch.nn.functional.rms_norm(residual, weight.shape, weight, EPSILON), residual


def prepare(tensors, problem):
    """x and residual ``[R, C]`` and weight ``[C]`` to a call that gives out and residual."""
    return lambda: add_norm(tensors["x"], tensors["residual"], tensors["weight"])


BASELINE = Baseline(
    id="torch_add_rms_norm",
    title="torch add_ and rms_norm",
    prepare=prepare,
    supports=lambda problem: None,
    doc=__doc__,
    source=Path(__file__),
    dtypes=("float16", "bfloat16", "float32"),
    operation="add_norm",
)
