"""What is computed: the sizes of a matrix product, and what follows from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..limits import COPY_BYTES
from ..problem import VISIT, Buffer, Problem

GEMM_DISTRIBUTIONS = (
    *("normal", "late_peaked", "early_peaked", "large_sums", "small_times_large"),
    *("one_hot", "rising_columns", "zero_rows", "outliers", "small"),
)
"""Input distributions; `labtools.problem.gemm.operation` says what each one is for."""


@dataclass(frozen=True)
class Gemm(Problem):
    """Matrix product: ``out[i, j] = sum over l of a[i, l] * b[j, l]``, summed in fp32.

    Both factors lie row by row with the summed axis last, as a linear layer has its inputs and its
    weights.
    """

    operation: ClassVar[str] = "gemm"
    shape_fields = ("m", "n", "k")
    letters = "M,N,K"
    example = "gemm:4096,4096,4096"
    distributions = GEMM_DISTRIBUTIONS
    axes = ("row", "column")

    m: int  # M, rows of A and of the output
    n: int  # N, rows of B, which are the output's columns
    k: int  # K, the length of each sum
    dtype: str = "float16"  # element type of A, B and the output, ``float16`` or ``bfloat16``
    distribution: str = "normal"  # one of `GEMM_DISTRIBUTIONS`
    seed: int = 0  # seed of the input generator
    cache_state: str = "cold"  # ``cold`` (buffers rotated past the L2) or ``warm``

    @property
    def inputs(self) -> dict[str, Buffer]:
        """a ``[M, K]`` and b ``[N, K]``."""
        return {
            "a": Buffer((self.m, self.k), self.dtype),
            "b": Buffer((self.n, self.k), self.dtype),
        }

    @property
    def output(self) -> Buffer:
        """out ``[M, N]``."""
        return Buffer((self.m, self.n), self.dtype)

    @property
    def streamed_bytes(self) -> int:
        """A and B, each once."""
        return sum(one.bytes for one in self.inputs.values())

    @property
    def minimal_bytes(self) -> int:
        """A, B and out, each once."""
        return self.streamed_bytes + self.output.bytes

    @property
    def flops(self) -> int:
        """A multiplication and an addition for each product."""
        return 2 * self.m * self.n * self.k

    @property
    def part_visits(self) -> int:
        """`VISIT` products at a time."""
        return -(-self.n * self.k // VISIT)

    def defines(self) -> dict[str, str]:
        """``WHOLE_CHUNKS``: whether every row of A and B begins at a multiple of 16 bytes, which
        decides how it can be copied; and those of the type."""
        whole = self.k * self.element_bytes % COPY_BYTES == 0
        return {"WHOLE_CHUNKS": str(int(whole)), **super().defines()}
