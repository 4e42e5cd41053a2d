"""row_softmax: softmax of rows, a family that brings its own problem.

Idea: what a kernel computes may stand beside it, where labtools has no such problem.
Limiter: memory bandwidth.
Cost: x is read two or three times.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from labtools.problem import (
    Buffer,
    Fill,
    Knob,
    Launch,
    Operation,
    Problem,
    Rung,
    register_operation,
)

MOST_COLUMNS = 512


@dataclass(frozen=True)
class Softmax(Problem):
    """Softmax of every row: ``out[r, c] = exp(x[r, c]) / sum(exp(x[r]))``, fp16."""

    operation: ClassVar[str] = "softmax"
    shape_fields = ("rows", "columns")
    letters = "R,C"
    example = "softmax:8192,256"
    axes = ("row", "column")
    options: ClassVar[dict[str, dict[str, str]]] = {"warm": {"cache_state": "warm"}}

    rows: int
    columns: int
    dtype: str = "float16"
    distribution: str = "normal"
    seed: int = 0
    cache_state: str = "cold"

    def __post_init__(self) -> None:
        self.check_shape()
        self.check_kind()
        self.check_size()

    @property
    def inputs(self) -> dict[str, Buffer]:
        """x ``[R, C]``."""
        return {"x": self.output}

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
        """The same."""
        return self.streamed_bytes

    @property
    def flops(self) -> int:
        """A subtraction, an addition and a multiplication an element, beside its exponential."""
        return 3 * self.rows * self.columns


@dataclass(frozen=True)
class SoftmaxInputs:
    """x ``[R, C]`` of one problem."""

    x: np.ndarray
    problem: Softmax

    def buffers(self) -> dict[str, np.ndarray]:
        """The array by the name that a Launch uses."""
        return {"x": self.x}


class RowSoftmax(Operation[Softmax, SoftmaxInputs]):
    """Inputs, the answer in float64, and small problems that find wrong kernels."""

    problem = Softmax
    headline = Softmax(8192, 256)
    small = Softmax(64, 100)
    watched = Softmax(5, 33)
    bytes_name = "x and out"
    minimal_name = "x once, output"
    baseline = None

    def draw(self, problem: Softmax) -> SoftmaxInputs:
        """Normal numbers, twice as wide."""
        rng = np.random.default_rng([problem.seed, problem.rows, problem.columns])
        x = 2 * rng.standard_normal((problem.rows, problem.columns))
        return SoftmaxInputs(x.astype(np.float16), problem)

    def oracle(self, inputs: SoftmaxInputs, parts: Iterable[Any] | None = None) -> np.ndarray:
        """The output, float64 ``[R, C]``; a part is a row."""
        out = np.full(inputs.x.shape, np.nan)
        for row in range(len(out)) if parts is None else [part[0] for part in parts]:
            x = inputs.x[row].astype(np.float64)
            weights = np.exp(x - x.max())
            out[row] = weights / weights.sum()
        return out

    def battery(
        self, problem: Softmax, supports: Callable[[Any], str | None] = lambda problem: None
    ) -> list[Softmax]:
        """The given problem, then rows below, at and above what a warp takes at a time."""
        small = [Softmax(7, columns, seed=problem.seed + 1) for columns in (1, 31, 32, 33, 257)]
        return list(dict.fromkeys([problem, *small]))

    def draw_problems(
        self, count: int, seed: int, supports: Callable[[Any], str | None] = lambda problem: None
    ) -> list[Softmax]:
        """Seeded random problems."""
        rng = np.random.default_rng([seed, 402])
        sizes = rng.integers(1, MOST_COLUMNS, size=(count, 2))
        return [Softmax(int(rows % 50 + 1), int(columns), seed=seed) for rows, columns in sizes]

    def fills(self, problem: Softmax, seed: int) -> list[Fill] | None:
        """Normal numbers, two at a time; None where their number is odd."""
        return None if problem.output.elements % 2 else [Fill("x", seed=seed)]

    def read_part(self, problem: Softmax, part: Any, fetch: Callable[..., Any]) -> SoftmaxInputs:
        """One row."""
        return SoftmaxInputs(fetch("x", part)[None], problem.replace(rows=1))

    def alter_part(
        self,
        problem: Softmax,
        part: Any,
        fetch: Callable[..., Any],
        store: Callable[..., None],
        rng: np.random.Generator,
    ) -> None:
        """One element that outweighs its row, or no longer does."""
        x, place = fetch("x", part), int(rng.integers(problem.columns))
        value = -8.0 if x[place] > 4 else 8.0
        store("x", (*part, slice(place, place + 1)), np.array([value]).astype(x.dtype))


register_operation(RowSoftmax())


def supports(problem):
    """Of a longer row the weights are so small that rounding them takes more than is allowed."""
    most = f"a row has at most {MOST_COLUMNS} elements"
    return most if problem.columns > MOST_COLUMNS else None


def launch(problem, limits, knobs):
    """One warp a row."""
    warps = knobs["warps"]
    return [
        Launch(
            entry="row_softmax",
            grid=(-(-problem.rows // warps),),
            block=(32 * warps,),
            args=("x", "out", np.int32(problem.rows), np.int32(problem.columns)),
        )
    ]


RUNG = Rung(
    id="row_softmax",
    title="Softmax of rows",
    source=Path(__file__).with_suffix(".cu"),
    idea="one warp a row",
    limiter="memory bandwidth",
    cost="x is read two or three times",
    knobs=(
        Knob("online", (0, 1), 0, "1 finds maximum and sum in one pass"),
        Knob("warps", (1, 4, 8), 1, "rows of a block"),
    ),
    supports=supports,
    launch=launch,
    operation="softmax",
)
