"""torch's addition and rms_norm, compiled into one kernel by ``torch.compile``.

Inside the timed call: the compiled function, as `torch_add_rms_norm` writes it. It needs Triton.
"""

from importlib.util import find_spec
from pathlib import Path

from labtools.problem import Baseline
from labtools.problem.rung import load_by_path

_SHARED = load_by_path(Path(__file__).with_name("torch_add_rms_norm.py"))


def prepare(tensors, problem):
    """As of `torch_add_rms_norm`, compiled for this shape."""
    import torch

    compiled = torch.compile(_SHARED.add_norm, dynamic=False)
    return lambda: compiled(tensors["x"], tensors["residual"], tensors["weight"])


def supports(problem):
    """Why it cannot run here: ``torch.compile`` writes its kernels in Triton."""
    return None if find_spec("triton") else "Triton is not installed"


BASELINE = Baseline(
    id="torch_compiled_add_rms_norm",
    title="torch.compile of add_ and rms_norm",
    prepare=prepare,
    supports=supports,
    doc=__doc__,
    source=Path(__file__),
    dtypes=("float16", "bfloat16", "float32"),
    operation="add_norm",
)
