"""cuBLAS through torch, as it is meant to be called.

Inside the timed call: one call of ``torch.nn.functional.linear``, which takes B as it lies. Sums
are fp32: torch may not shorten them to 16 bits here. The output is allocated by torch in the call.
"""

from pathlib import Path

from labtools.problem import Baseline


def prepare(tensors, problem):
    """a ``[M, K]`` and b ``[N, K]`` to a call that gives ``[M, N]``."""
    import torch

    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    a, b = tensors["a"], tensors["b"]

    def multiply():
        return torch.nn.functional.linear(a, b)

    return multiply


BASELINE = Baseline(
    id="torch_matmul",
    title="cuBLAS through torch",
    prepare=prepare,
    supports=lambda problem: None,
    doc=__doc__,
    source=Path(__file__),
    dtypes=("float16", "bfloat16", "float32"),
    operation="gemm",
)
