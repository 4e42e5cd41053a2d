"""What is computed: a shape, and what follows from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..problem import Buffer, Problem

ROW_DISTRIBUTIONS = (
    *("normal", "late_peaked", "early_peaked", "large", "tiny", "one_hot", "constant", "zero_rows"),
    *("outliers", "small_weight"),
)
"""Input distributions; `labtools.problem.rows.operation` says what each one is for."""
EPSILON = 1e-6
"""Added to the mean of the squares, so that a row of zeros has an answer."""


@dataclass(frozen=True)
class Rows(Problem):
    """RMSNorm of every row: ``out[r, c] = x[r, c] / sqrt(mean(x[r]^2) + EPSILON) * weight[c]``.

    Softmax would be as simple, but in fp16 the weights of a long row are so small that rounding
    the output alone takes more than the tolerance.
    """

    operation: ClassVar[str] = "rows"
    shape_fields = ("rows", "columns")
    letters = "R,C"
    example = "rows:8192,4096"
    distributions = ROW_DISTRIBUTIONS
    axes = ("row", "column")

    rows: int  # R
    columns: int  # C, elements of a row
    dtype: str = "float16"  # element type of x, weight and the output, one of `DTYPES`
    distribution: str = "normal"  # one of `ROW_DISTRIBUTIONS`
    seed: int = 0  # seed of the input generator
    cache_state: str = "cold"  # ``cold`` (buffers rotated past the L2) or ``warm``

    @property
    def call_inputs(self) -> tuple[str, ...]:
        """The rows; the weight stays."""
        return ("x",)

    @property
    def inputs(self) -> dict[str, Buffer]:
        """x ``[R, C]`` and weight ``[C]``."""
        return {"x": self.output, "weight": Buffer((self.columns,), self.dtype)}

    @property
    def output(self) -> Buffer:
        """out ``[R, C]``."""
        return Buffer((self.rows, self.columns), self.dtype)

    @property
    def streamed_bytes(self) -> int:
        """x, which is read, and out, which is written."""
        return 2 * self.output.bytes

    @property
    def minimal_bytes(self) -> int:
        """x, weight and out, each once."""
        return self.streamed_bytes + self.columns * self.element_bytes

    @property
    def flops(self) -> int:
        """A square, its addition and two multiplications an element."""
        return 4 * self.rows * self.columns
