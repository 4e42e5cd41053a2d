"""RMSNorm with residual: two outputs, and one of them is an input before."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..problem import Arrays, Buffer, Fetch, Fill, Part, Rng, Store
from .operation import LARGEST_FP16, RowInputs, RowNorm
from .rows import Rows

RESIDUAL = "residual"
_CANCELS = 64.0
"""Of a row of which hardly anything is left when x and residual are added."""


@dataclass(frozen=True)
class AddNorm(Rows):
    """``residual[r] += x[r]``, and out is the RMSNorm of that sum as `Rows` has it."""

    operation: ClassVar[str] = "add_norm"
    example = "add_norm:8192,4096"

    @property
    def call_inputs(self) -> tuple[str, ...]:
        """All but the weight."""
        return ("x", RESIDUAL)

    @property
    def inputs(self) -> dict[str, Buffer]:
        """x and residual ``[R, C]``, weight ``[C]``."""
        return {**super().inputs, RESIDUAL: self.output}

    @property
    def outputs(self) -> dict[str, Buffer]:
        """out and residual ``[R, C]``."""
        return {**super().outputs, RESIDUAL: self.output}

    @property
    def tolerance(self) -> float:
        """Twice the usual: the sum is rounded when it is stored, and its norm once more."""
        return 2 * super().tolerance

    @property
    def streamed_bytes(self) -> int:
        """x and residual, which are read, residual and out, which are written."""
        return 4 * self.output.bytes

    @property
    def flops(self) -> int:
        """An addition more an element than `Rows`."""
        return super().flops + self.rows * self.columns


@dataclass(frozen=True)
class AddNormInputs(RowInputs):
    """The arrays of one problem, the residual as it is before."""

    residual: np.ndarray  # as x


class ResidualNorm(RowNorm):
    """The residual and x added, kept, and normalised."""

    problem = AddNorm
    headline = AddNorm(8192, 4096)
    small = AddNorm(64, 300)
    watched = AddNorm(5, 131)
    folder = "rows"
    bytes_name = "x, out and residual twice"
    minimal_name = "x, out, residual twice, weight"
    baseline = "torch_add_rms_norm"
    largest = LARGEST_FP16 / 2  # so that the sum of two is a number

    def draw(self, problem: Rows) -> AddNormInputs:
        """The inputs of a problem; x and residual are of the same kind, but those of the last of
        several rows nearly cancel."""
        x, weight = super().draw(problem).buffers().values()
        residual = super().draw(problem.replace(seed=problem.seed + 2**31)).x
        if problem.distribution == "zero_rows":  # a zero row of one is added to each kind of rows
            residual = np.roll(residual, len(residual) // 2, axis=0)
        if problem.rows > 1:
            rng = np.random.default_rng([problem.seed, problem.columns, 2])
            last, noise = rng.standard_normal((2, problem.columns), dtype=np.float32)
            x[-1] = _CANCELS * last
            left = np.spacing(x[-1]).astype(np.float32) * noise
            residual[-1] = left - x[-1].astype(np.float32)
        return AddNormInputs(x, weight, problem, residual)

    def oracle(self, inputs: RowInputs, parts: Iterable[Part] | None = None) -> Arrays:
        """out and residual, float64 ``[R, C]``; a part is a row."""
        assert isinstance(inputs, AddNormInputs)
        chosen = slice(None) if parts is None else [part[0] for part in parts]
        total = np.full(inputs.x.shape, np.nan)
        total[chosen] = inputs.x[chosen].astype(np.float64) + inputs.residual[chosen]
        return {"out": self.normalise(total, inputs.weight), RESIDUAL: total}

    def fills(self, problem: Rows, seed: int) -> list[Fill] | None:
        """As of `RowNorm`, and another seed for the residual."""
        fills = super().fills(problem, seed)
        return fills and [*fills, Fill(RESIDUAL, seed=seed + 2**31)]

    def read_part(self, problem: Rows, part: Part, fetch: Fetch) -> AddNormInputs:
        row = super().read_part(problem, part, fetch)
        return AddNormInputs(row.x, row.weight, row.problem, fetch(RESIDUAL, part)[None])

    def alter_part(self, problem: Rows, part: Part, fetch: Fetch, store: Store, rng: Rng) -> None:
        """As of `RowNorm`, and an element of the residual."""
        super().alter_part(problem, part, fetch, store, rng)
        self.alter_row(RESIDUAL, part, fetch, store, rng, beside="x")
