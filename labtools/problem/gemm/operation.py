"""The matrix product as an operation: inputs that find wrong kernels, the answer, the battery.

The distributions of A and B:

``normal``             standard normal, both.
``late_peaked``        the end of every row of A is the largest, so a kernel that drops a tail of
                       the sums is far off.
``early_peaked``       the beginning is the largest.
``large_sums``         the first half of each sum climbs past the range of fp16 and the second half
                       comes back, so that sums kept in fp16 overflow.
``small_times_large``  A below the normal numbers of fp16 and B around 10^3: a kernel that takes
                       small numbers for zero is far off.
``one_hot``            one element of every row of A is large, so that a wrong place of a sum shows.
``rising_columns``     the rows of B grow, so that an edge of the output holds most of a row.
``zero_rows``          every other row of A is zero: what an earlier tile left behind shows.
``outliers``           some columns of A and others of B are 16 times as large: what clamps shows.
``small``              the output is below 10^-3, so that what is added to it or cut off shows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..pairs import CHUNK_ENDS, TILE_ENDS, Ends, Starts, case_cost, in_turn, joint_cases
from ..problem import (
    DRAWN_DTYPES,
    DrawnArrays,
    Fetch,
    Fill,
    Operation,
    Part,
    Rng,
    Store,
    Supports,
    draw_supported,
    supported,
    takes_all,
)
from ..storage import element_dtype
from .gemm import GEMM_DISTRIBUTIONS, Gemm

_PEAK = 30.0
_MOST_CLIMB, _CLIMBED = 260.0, 8e5
_LEFT, _NOISE = 50.0, 0.25
"""Large sums: the largest element, the products' sum at the top, what is left at the end, and the
noise. What is left is large against it, so that no answer is a difference of close numbers."""
_SMALL, _LARGE = 2.0**-14, 2.0**10
_HOT, _COLD = 200.0, 0.1
_STEEP = 16.0
_OUTLIER, _LEAST = 16.0, 2.0**-5
_DIM, _LEAST_DIM = 2.0**-6, 0.5
_OUTWEIGHS = 4.0

SIDES = (
    *(1, 2, 7, 8, 12, 15, 16, 17, 30, 36, 40, 63, 64, 65, 71, 127, 128, 129, 136, 140, 150, 151),
    *(255, 256),
)
SUMS = (
    *(1, 2, 7, 8, 20, 24, 30, 31, 32, 40, 58, 60, 63, 64, 65, 71, 129, 136, 155, 162, 164, 191),
    192,
)
"""Rows or columns, and products of a sum, with every end of tiles of 64 and of 16 bytes."""
EDGES = ((31, 63, 1000), (2, 3, 4099), (131, 261, 64), (261, 131, 155))
"""Sums longer by far, and more tiles one way than the other."""
FAR_SIZES = ((130, 40, 2560), (130, 2560, 40), (130, 1032, 40), (5, 16_400, 40))
OF_MODELS = ((1, 72, 11016), (5, 24, 11016), (1592, 1600, 16))
"""Sums of a large model, and more tiles than multiprocessors."""
OTHER_SIZES = ((5, 136, 300), (129, 40, 64), (70, 63, 1000), (33, 257, 31))
"""Sizes with each distribution that is not telling."""
_LONGEST_DRAWN_SIDE, _LONGEST_DRAWN_SUM = 300, 1500
_MOST_DRAWN_PRODUCTS = 2**20


@dataclass(frozen=True)
class GemmInputs(DrawnArrays):
    """The arrays of one problem."""

    a: np.ndarray  # ``[M, K]`` in the problem's type
    b: np.ndarray  # as a, ``[N, K]``
    problem: Gemm  # what they were drawn for


class MatrixProduct(Operation[Gemm, GemmInputs]):
    """``out = A B^T``, with sums in fp32 and elements in 16 bits."""

    problem = Gemm
    headline = Gemm(4096, 4096, 4096)
    small = Gemm(70, 90, 100)
    watched = Gemm(5, 19, 37)
    bytes_name = "A and B"
    minimal_name = "A, B and out, each once"
    baseline = "torch_matmul"
    starts: ClassVar[Starts] = {"M": (1, 2, 18, 129), "N": (1, 2, 18, 129), "K": (1, 2, 33, 129)}
    extreme = ("large_sums", "small")
    telling = tuple(x for x in GEMM_DISTRIBUTIONS if x not in ("one_hot", "rising_columns"))
    ends: ClassVar[Ends] = {"M": TILE_ENDS, "N": CHUNK_ENDS, "K": CHUNK_ENDS}

    def draw(self, problem: Gemm) -> GemmInputs:
        rng = np.random.default_rng([problem.seed, problem.m, problem.n, problem.k])
        a = rng.standard_normal((problem.m, problem.k), dtype=np.float32)
        b = rng.standard_normal((problem.n, problem.k), dtype=np.float32)
        if 1 in (problem.n, problem.k):
            # What is near zero throughout a row is rounded by more than an output may be off.
            b = np.copysign(np.maximum(np.abs(b), _LEAST), b)
            signs = b[0] * rng.choice((-1, 1), (problem.m, 1)) if problem.n == 1 else a
            a = np.copysign(np.maximum(np.abs(a), _LEAST), signs)
        _shape_factors(a, b, problem.distribution, rng)
        dtype = element_dtype(problem.dtype)
        return GemmInputs(a.astype(dtype), b.astype(dtype), problem)

    def oracle(self, inputs: GemmInputs, parts: Iterable[Part] | None = None) -> np.ndarray:
        """The output, float64 ``[M, N]``; a part is a row."""
        problem = inputs.problem
        out = np.full((problem.m, problem.n), np.nan)
        chosen = list(range(problem.m)) if parts is None else [part[0] for part in parts]
        out[chosen] = inputs.a[chosen].astype(np.float64) @ inputs.b.astype(np.float64).T
        return out

    def battery(self, problem: Gemm, supports: Supports = takes_all) -> list[Gemm]:
        """The given problem, then small ones in which every two levels of `levels_of` meet."""
        small = Gemm(37, 45, 83, dtype=problem.dtype, seed=problem.seed + 1)
        choices = {"m": SIDES, "n": SIDES, "k": SUMS}
        sized = joint_cases(small.replace, choices, self.levels_of, _cost, supports)
        cases = [problem, *in_turn(sized, self.telling, supports)]
        for values in (one for one in GEMM_DISTRIBUTIONS if one not in self.telling):
            cases += [small.replace(m=m, n=n, k=k, distribution=values) for m, n, k in OTHER_SIZES]
        cases += [small.replace(m=m, n=n, k=k, distribution="late_peaked") for m, n, k in EDGES]
        cases += [small.replace(m=m, n=n, k=k) for m, n, k in OF_MODELS]
        return supported(cases, problem, supports)

    def large(self, problem: Gemm) -> list[Gemm]:
        """The logits of a prompt, and a few rows of a large layer."""
        return [
            problem.replace(m=m, n=n, k=k) for m, n, k in ((32768, 128256, 64), (16, 16384, 53248))
        ]

    def far_apart(self, problem: Gemm) -> list[tuple[Gemm, ...]]:
        """The last rows of A, and of the output."""
        return [problem.replace(m=m, n=n, k=k).stretched("m") for m, n, k in FAR_SIZES]

    def widening(self, problem: Gemm, supports: Supports = takes_all) -> list[tuple[Gemm, str]]:
        """A band of rows, one of columns, and one of rows with more tiles than a grid has blocks in
        y or z, with short sums."""
        thin = problem.replace(m=8, n=8, k=16, distribution="normal")
        return [(thin, "m"), (thin, "n"), (thin.replace(n=2560), "m")]

    def draw_problems(self, count: int, seed: int, supports: Supports = takes_all) -> list[Gemm]:
        """Seeded random problems: sides and sums of any length, short as often as long."""
        rng = np.random.default_rng([seed, 402])

        def size(longest: int) -> int:
            return int(np.exp(rng.uniform(0, np.log(longest + 1))))

        def draw() -> Gemm:
            m, n = size(_LONGEST_DRAWN_SIDE), size(_LONGEST_DRAWN_SIDE)
            k = max(1, min(size(_LONGEST_DRAWN_SUM), _MOST_DRAWN_PRODUCTS // (m * n)))
            dtype, kind = str(rng.choice(DRAWN_DTYPES)), str(rng.choice(GEMM_DISTRIBUTIONS))
            seed = int(rng.integers(2**31))
            return Gemm(m, n, k, dtype=dtype, distribution=kind, seed=seed)

        return draw_supported(draw, count, supports)

    def fills(self, problem: Gemm, seed: int) -> list[Fill] | None:
        """Normal numbers in both, two at a time; None where their number is odd."""
        if any(one.elements % 2 for one in problem.inputs.values()):
            return None
        return [Fill("a", seed=seed), Fill("b", seed=seed + 1)]

    def read_part(self, problem: Gemm, part: Part, fetch: Fetch) -> GemmInputs:
        """One row of A, with all of B."""
        one = problem.replace(m=1)
        return GemmInputs(fetch("a", part)[None], fetch("b", slice(None)), one)

    def alter_part(self, problem: Gemm, part: Part, fetch: Fetch, store: Store, rng: Rng) -> None:
        """One element of A that outweighs the others of its row and meets the largest of a drawn
        row of B, so that some sum moves by far, and one element of B."""
        row = int(rng.integers(problem.n))
        a, b = fetch("a", part), fetch("b", (row,))
        place = int(np.argmax(np.abs(b.astype(np.float32))))
        wide = a.astype(np.float32)
        peak = _OUTWEIGHS * float(np.abs(wide).max()) + 1
        there = peak if wide[place] < 0 else -peak
        store("a", (*part, slice(place, place + 1)), np.array([there]).astype(a.dtype))
        other = int(rng.integers(problem.k))
        was = float(b[other])
        store("b", (row, slice(other, other + 1)), np.array([was / 2 or 1.0]).astype(b.dtype))


def _cost(problem: Gemm) -> int:
    """What a case costs of a kernel that goes through whole tiles of 128 x 128 x 64."""
    tiles = -(-problem.m // 128) * -(-problem.n // 128) * -(-problem.k // 64)
    return case_cost(1000 * tiles, problem.k)


def _shape_factors(a: np.ndarray, b: np.ndarray, distribution: str, rng: Rng) -> None:
    """Give standard normal factors ``[M, K]`` and ``[N, K]`` a distribution, in place."""
    (rows, depth), few = a.shape, max(1, a.shape[1] // 64)
    if distribution == "late_peaked":
        a[:, depth - few :] += _PEAK
    elif distribution == "early_peaked":
        a[:, :few] += _PEAK
    elif distribution == "large_sums":
        climb = min(_MOST_CLIMB, float(np.sqrt(_CLIMBED / depth)))
        half = (depth - 1) // 2
        sign = np.zeros(depth, np.float32)
        sign[:half], sign[half : 2 * half] = 1, -1
        a *= _NOISE
        b *= _NOISE
        a += climb * sign
        b += climb * np.abs(sign)
        a[:, -1] += _LEFT
        b[:, -1] += _LEFT
    elif distribution == "small_times_large":
        a *= _SMALL
        b *= _LARGE
    elif distribution == "one_hot":
        a *= _COLD
        a[np.arange(rows), rng.integers(depth, size=rows)] = _HOT
    elif distribution == "rising_columns":
        b *= np.linspace(1, _STEEP, len(b), dtype=np.float32)[:, None]
    elif distribution == "zero_rows":
        a[::2] = 0
    elif distribution == "outliers":
        for factor in (a, b):
            factor[:, rng.integers(depth, size=few)] *= _OUTLIER
    elif distribution == "small":
        for factor in (a, b):
            factor[:] = _DIM * (np.abs(factor) + _LEAST_DIM) / np.sqrt(depth)
