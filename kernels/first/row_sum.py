"""The sum of each row, the second kernel that a reader writes; it brings its own operation.

Idea: the threads of a block share the additions of a row, and join their sums as a tree.
Limiter: memory bandwidth.
Cost: a barrier for each level of the tree.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from labtools.problem import Buffer, Launch, Operation, Problem, Rung, register_operation

BLOCK = 64
WIDTHS = (1, 2, 31, 33, 63, 64, 65, 127, 128, 129, 1000)
"""Below, at and above what a warp or a block takes at a time."""


@dataclass(frozen=True)
class Matrix(Problem):
    """``out[r]`` is the sum of ``x[r]``."""

    operation = "row_sums"
    shape_fields = ("rows", "columns")
    letters = "R,C"
    example = "row_sums:3,200"
    axes = ("row", "sum")

    rows: int
    columns: int
    dtype: str = "float32"
    distribution: str = "normal"
    seed: int = 0
    cache_state: str = "cold"

    @property
    def inputs(self) -> dict[str, Buffer]:
        """x ``[R, C]``."""
        return {"x": Buffer((self.rows, self.columns), self.dtype)}

    @property
    def output(self) -> Buffer:
        """out ``[R, 1]``, so that every sum is compared by itself."""
        return Buffer((self.rows, 1), self.dtype)

    @property
    def part_visits(self) -> int:
        """Pieces of a row."""
        return -(-self.columns // BLOCK)

    @property
    def streamed_bytes(self) -> int:
        """x, which is read."""
        return self.inputs["x"].bytes

    @property
    def minimal_bytes(self) -> int:
        """x, and out, which is written."""
        return self.streamed_bytes + self.output.bytes

    @property
    def flops(self) -> int:
        """One addition an element."""
        return self.rows * self.columns


@dataclass(frozen=True)
class MatrixDrawn:
    """x ``[R, C]`` of one problem."""

    x: np.ndarray
    problem: Matrix

    def buffers(self) -> dict[str, np.ndarray]:
        """The array by the name that a Launch uses."""
        return {"x": self.x}


class RowSums(Operation[Matrix, MatrixDrawn]):
    """Inputs, the answer in float64, and small problems that find wrong kernels."""

    problem = Matrix
    headline = Matrix(8192, 4096)
    small = Matrix(5, 300)
    watched = Matrix(3, 70)
    bytes_name = "x"
    minimal_name = "x once, output"

    def draw(self, problem: Matrix) -> MatrixDrawn:
        """Normal numbers about 2, so that hardly any sum is near zero."""
        rng = np.random.default_rng([problem.seed, problem.rows, problem.columns])
        x = 2 + rng.standard_normal((problem.rows, problem.columns), np.float32)
        return MatrixDrawn(x, problem)

    def oracle(self, inputs: MatrixDrawn, parts: Iterable[Any] | None = None) -> np.ndarray:
        """The output, float64 ``[R, 1]``; a part is a row."""
        out = np.full((len(inputs.x), 1), np.nan)
        for row in range(len(out)) if parts is None else [part[0] for part in parts]:
            out[row] = inputs.x[row].sum(dtype=np.float64)
        return out

    def battery(
        self, problem: Matrix, supports: Callable[[Any], str | None] = lambda problem: None
    ) -> list[Matrix]:
        """The given problem, then rows of other widths."""
        others = [Matrix(3, width, seed=problem.seed + 1) for width in WIDTHS]
        return list(dict.fromkeys([problem, *(one for one in others if not supports(one))]))

    def draw_problems(
        self, count: int, seed: int, supports: Callable[[Any], str | None] = lambda problem: None
    ) -> list[Matrix]:
        """Seeded random sizes."""
        sizes = np.random.default_rng([seed, 405]).integers(1, (40, 3000), size=(count, 2))
        drawn = [Matrix(int(rows), int(columns), seed=seed) for rows, columns in sizes]
        return [one for one in drawn if not supports(one)]

    def read_part(self, problem: Matrix, part: Any, fetch: Callable[..., Any]) -> MatrixDrawn:
        """One row."""
        return MatrixDrawn(fetch("x", part)[None], problem.replace(rows=1))

    def alter_part(
        self,
        problem: Matrix,
        part: Any,
        fetch: Callable[..., Any],
        store: Callable[..., None],
        rng: np.random.Generator,
    ) -> None:
        """One element that outweighs all others of its row, or no longer does."""
        place = int(rng.integers(problem.columns))
        value = -1e5 if fetch("x", (*part, place)) > 0 else 1e5
        store("x", (*part, slice(place, place + 1)), np.array([value], np.float32))


register_operation(RowSums())


def supports(problem):
    """Of float32, no more elements than an int counts."""
    if problem.dtype != "float32":
        return "it is written for float32"
    elements = problem.rows * problem.columns
    return f"it counts elements in an int, and here are {elements}" if elements > 2**31 else None


def launch(problem, limits, knobs):
    """One block for each row."""
    args = ("x", "out", np.int32(problem.columns))
    return [Launch("row_sum", grid=(problem.rows,), block=(BLOCK,), args=args)]


RUNG = Rung.beside(
    __file__,
    title="Sum of each row",
    idea="the threads of a block share a row, and join their sums as a tree",
    limiter="memory bandwidth",
    cost="a barrier for each level of the tree",
    supports=supports,
    launch=launch,
    operation="row_sums",
)
