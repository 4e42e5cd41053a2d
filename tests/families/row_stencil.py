"""row_stencil: five points along each row in float32, a family that brings its own operation.

Idea: what a kernel computes may stand beside it, where labtools has no such operation.
Limiter: memory bandwidth.
Cost: neighbours are read by several threads.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

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

WEIGHTS = (0.5, 0.2, 0.05)
"""Of the point itself, of its two neighbours and of theirs."""


@dataclass(frozen=True)
class Stencil(Problem):
    """``out[r, c]`` is a weighted sum of ``x[r, c - 2]`` to ``x[r, c + 2]``; beyond a row's ends
    there are zeros."""

    operation = "stencil"
    shape_fields = ("rows", "columns")
    letters = "R,C"
    example = "stencil:1024,16384"
    axes = ("row", "column")

    rows: int
    columns: int
    dtype: str = "float32"
    distribution: str = "normal"
    seed: int = 0
    cache_state: str = "cold"

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
        """Four additions and three multiplications a point."""
        return 7 * self.rows * self.columns


@dataclass(frozen=True)
class StencilInputs:
    """x ``[R, C]`` of one problem."""

    x: np.ndarray
    problem: Stencil

    def buffers(self) -> dict[str, np.ndarray]:
        """The array by the name that a Launch uses."""
        return {"x": self.x}


class RowStencil(Operation[Stencil, StencilInputs]):
    """Inputs, the answer in float64, and small problems that find wrong kernels."""

    problem = Stencil
    headline = Stencil(1024, 16384)
    small = Stencil(20, 700)
    watched = Stencil(3, 70)
    bytes_name = "x and out"
    minimal_name = "x once, output"

    def draw(self, problem: Stencil) -> StencilInputs:
        """Normal numbers."""
        rng = np.random.default_rng([problem.seed, problem.rows, problem.columns])
        shape = (problem.rows, problem.columns)
        return StencilInputs(rng.standard_normal(shape, np.float32), problem)

    def oracle(self, inputs: StencilInputs, parts: Iterable[Any] | None = None) -> np.ndarray:
        """The output, float64 ``[R, C]``; a part is a row."""
        middle, near, far = (float(np.float32(weight)) for weight in WEIGHTS)
        out = np.full(inputs.x.shape, np.nan)
        for row in range(len(out)) if parts is None else [part[0] for part in parts]:
            kernel = [far, near, middle, near, far]
            out[row] = np.convolve(inputs.x[row].astype(np.float64), kernel)[2:-2]
        return out

    def battery(
        self, problem: Stencil, supports: Callable[[Any], str | None] = lambda problem: None
    ) -> list[Stencil]:
        """The given problem, then rows shorter than the stencil, and about a block's tile."""
        lengths = (1, 2, 3, 5, 127, 128, 129, 1023, 2049)
        small = [Stencil(3, columns, seed=problem.seed + 1) for columns in lengths]
        others = (one for one in small if not supports(one))
        return list(dict.fromkeys([problem, *others]))

    def draw_problems(
        self, count: int, seed: int, supports: Callable[[Any], str | None] = lambda problem: None
    ) -> list[Stencil]:
        """Seeded random problems."""
        rng = np.random.default_rng([seed, 403])
        sizes = rng.integers(1, (40, 3000), size=(count, 2))
        drawn = [Stencil(int(rows), int(columns), seed=seed) for rows, columns in sizes]
        return [one for one in drawn if not supports(one)]

    def fills(self, problem: Stencil, seed: int) -> list[Fill] | None:
        """Normal numbers, two at a time; None where their number is odd."""
        return None if problem.output.elements % 2 else [Fill("x", seed=seed)]

    def read_part(self, problem: Stencil, part: Any, fetch: Callable[..., Any]) -> StencilInputs:
        """One row."""
        return StencilInputs(fetch("x", part)[None], problem.replace(rows=1))

    def alter_part(
        self,
        problem: Stencil,
        part: Any,
        fetch: Callable[..., Any],
        store: Callable[..., None],
        rng: np.random.Generator,
    ) -> None:
        """One element that outweighs its neighbours, or no longer does."""
        x, place = fetch("x", part), int(rng.integers(problem.columns))
        value = np.float32(-100.0 if x[place] > 0 else 100.0)
        store("x", (*part, slice(place, place + 1)), np.array([value]))


register_operation(RowStencil())


MOST_ROWS = 65535
"""So many blocks a grid has in y."""


def supports(problem: Stencil) -> str | None:
    """None, or why not."""
    if problem.dtype != "float32":
        return "it is written for float32"
    return None if problem.rows <= MOST_ROWS else f"a launch has at most {MOST_ROWS} rows"


def launch(problem, limits, knobs):
    """A block takes a piece of one row."""
    points = knobs["threads"] * knobs["points"]
    return [
        Launch(
            entry="row_stencil",
            grid=(-(-problem.columns // points), problem.rows),
            block=(knobs["threads"],),
            args=("x", "out", np.int32(problem.columns), *map(np.float32, WEIGHTS)),
        )
    ]


RUNG = Rung.beside(
    __file__,
    title="Stencil of five points",
    idea="one thread a point",
    limiter="memory bandwidth",
    cost="neighbours are read by several threads",
    knobs=(
        Knob("staged", (0, 1), 0, "1 keeps a block's tile in shared memory"),
        Knob("points", (1, 2, 4), 1, "points of a thread, side by side"),
        Knob("threads", (64, 128, 256, 512), 128, "threads of a block"),
    ),
    supports=supports,
    launch=launch,
    operation="stencil",
)
