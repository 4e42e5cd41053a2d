"""The sum of two vectors, the first kernel that a reader writes; it brings its own operation.

Idea: one thread for each element, in as many blocks as cover them all.
Limiter: memory bandwidth.
Cost: threads of the last block have nothing to do.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from labtools.problem import Buffer, Launch, Operation, Problem, Rung, register_operation

BLOCK = 128
LENGTHS = (1, 2, 31, 33, 127, 128, 129, 255, 257, 1000)
"""Below, at and above what a warp or a block takes."""


@dataclass(frozen=True)
class Vectors(Problem):
    """``out[i] = x[i] + y[i]``."""

    operation = "vectors"
    shape_fields = ("count",)
    letters = "N"
    example = "vectors:300"
    axes = ("element",)

    count: int
    dtype: str = "float32"
    distribution: str = "normal"
    seed: int = 0
    cache_state: str = "cold"

    @property
    def inputs(self) -> dict[str, Buffer]:
        """x and y, ``[N]``."""
        return {"x": self.output, "y": self.output}

    @property
    def output(self) -> Buffer:
        """out ``[N]``."""
        return Buffer((self.count,), self.dtype)

    @property
    def streamed_bytes(self) -> int:
        """x and y, which are read, and out, which is written."""
        return 3 * self.output.bytes

    @property
    def minimal_bytes(self) -> int:
        """The same."""
        return self.streamed_bytes

    @property
    def flops(self) -> int:
        """One addition an element."""
        return self.count


@dataclass(frozen=True)
class TwoVectors:
    """x and y, ``[N]``, of one problem."""

    x: np.ndarray
    y: np.ndarray
    problem: Vectors

    def buffers(self) -> dict[str, np.ndarray]:
        """The arrays by the names that a Launch uses."""
        return {"x": self.x, "y": self.y}


class VectorSum(Operation[Vectors, TwoVectors]):
    """Inputs, the answer in float64, and small problems that find wrong kernels."""

    problem = Vectors
    headline = Vectors(2**24)
    small = Vectors(300)
    watched = Vectors(70)
    bytes_name = "x, y and out"
    minimal_name = "x, y and out, each once"

    def draw(self, problem: Vectors) -> TwoVectors:
        """Normal numbers."""
        rng = np.random.default_rng([problem.seed, problem.count])
        x, y = rng.standard_normal((2, problem.count), np.float32)
        return TwoVectors(x, y, problem)

    def oracle(self, inputs: TwoVectors, parts: Iterable[Any] | None = None) -> np.ndarray:
        """The output, float64 ``[N]``; it is one part."""
        return inputs.x.astype(np.float64) + inputs.y

    def battery(
        self, problem: Vectors, supports: Callable[[Any], str | None] = lambda problem: None
    ) -> list[Vectors]:
        """The given problem, then vectors of other lengths."""
        others = [Vectors(count, seed=problem.seed + 1) for count in LENGTHS]
        return list(dict.fromkeys([problem, *(one for one in others if not supports(one))]))

    def draw_problems(
        self, count: int, seed: int, supports: Callable[[Any], str | None] = lambda problem: None
    ) -> list[Vectors]:
        """Seeded random lengths."""
        lengths = np.random.default_rng([seed, 404]).integers(1, 3000, size=count)
        drawn = [Vectors(int(length), seed=seed) for length in lengths]
        return [one for one in drawn if not supports(one)]

    def read_part(self, problem: Vectors, part: Any, fetch: Callable[..., Any]) -> TwoVectors:
        """All of it."""
        return TwoVectors(fetch("x", slice(None)), fetch("y", slice(None)), problem)

    def alter_part(
        self,
        problem: Vectors,
        part: Any,
        fetch: Callable[..., Any],
        store: Callable[..., None],
        rng: np.random.Generator,
    ) -> None:
        """One element of x that outweighs all others, or no longer does."""
        place = int(rng.integers(problem.count))
        value = -1e4 if fetch("x", place) > 0 else 1e4
        store("x", slice(place, place + 1), np.array([value], np.float32))


register_operation(VectorSum())


def launch(problem, limits, knobs):
    """As many blocks as cover all elements."""
    blocks = -(-problem.count // BLOCK)
    args = ("x", "y", "out", np.int32(problem.count))
    return [Launch("vector_add", grid=(blocks,), block=(BLOCK,), args=args)]


RUNG = Rung.beside(
    __file__,
    title="Sum of two vectors",
    idea="one thread for each element",
    limiter="memory bandwidth",
    cost="threads of the last block have nothing to do",
    supports=lambda problem: None if problem.dtype == "float32" else "it is written for float32",
    launch=launch,
    operation="vectors",
)
