"""RMSNorm of rows as an operation: inputs that find wrong kernels, the answer, the battery.

The distributions of x, each row by itself; weight is about 1, but for ``normal`` of either sign, so
that leaving it out shows:

``normal``       standard normal.
``late_peaked``  the last elements are the largest, so a kernel that drops them is far off.
``early_peaked`` the first elements are the largest, so a kernel that reads only the end is far off.
``large``        around 10^4, whose squares are past the range of fp16; in wider types 10^6.
``tiny``         below 10^-3, where the epsilon decides.
``one_hot``      one element is large and all others are small.
``constant``     every element of a row is the same.
``zero_rows``    every other row is zero throughout, whose mean of squares is nothing to divide by.
``outliers``     some columns are 16 times as large, and weights reach 8.
``small_weight`` the weight is small, so that what is added to the output shows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..pairs import CHUNK_ENDS, TILE_ENDS, Ends, Starts, case_cost, joint_cases
from ..problem import (
    DRAWN_DTYPES,
    Arrays,
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
from .rows import EPSILON, ROW_DISTRIBUTIONS, Rows

_LATE_PEAK = 30.0
LARGE = 1e4
LARGEST_FP16, _WIDER = 6e4, 100
"""Of fp16; and times as much in types that hold more."""
TINY = 3e-4
ONE_HOT = 500.0
_OUTLIER, _WEIGHT_OUTLIER, _SMALL_WEIGHT = 16.0, 8.0, 2.0**-6
ROW_COUNTS = (1, 2, 7, 15, 16, 17, 31, 33, 48, 100, 257, 271, 272, 300)
COLUMN_COUNTS = (
    *(1, 2, 5, 7, 8, 12, 15, 16, 17, 24, 30, 31, 32, 33, 36, 40, 58, 64, 71, 95, 127, 129, 200),
    *(255, 256, 257, 264, 512, 515, 516, 770, 1000, 1023, 2049, 2056, 2303, 2304, 2308, 2310),
    3001,
)
"""Below, at and above what a warp or a block takes at a time, with every end."""
FAR_COLUMNS = (512, 515)
MANY_ROWS = (4003, 72)
"""More rows than blocks are resident."""
_WIDE = (
    (33003, "late_peaked"),
    (36872, "late_peaked"),
    (16384, "early_peaked"),
    (20011, "constant"),
    (9001, "tiny"),
    (131080, "late_peaked"),
)
WEIGHT_SPREAD = 0.25
_OUTWEIGHS = 4.0

_SHORTEST_DRAWN, _LONGEST_DRAWN = 1, 6000
_MOST_DRAWN_ELEMENTS = 2**20


@dataclass(frozen=True)
class RowInputs(DrawnArrays):
    """The arrays of one problem."""

    x: np.ndarray  # ``[R, C]`` in the problem's type
    weight: np.ndarray  # as x, ``[C]``
    problem: Rows  # what they were drawn for


class RowNorm(Operation[Rows, RowInputs]):
    """Every row divided by its root mean square, and multiplied with a weight a column."""

    problem = Rows
    headline = Rows(8192, 4096)
    small = Rows(64, 300)
    watched = Rows(5, 131)
    bytes_name = "x and out"
    minimal_name = "x once, weight, output"
    largest = LARGEST_FP16
    """Of an element of x in fp16."""
    baseline = "torch_rms_norm"
    extreme = ("large", "tiny")
    starts: ClassVar[Starts] = {"R": (1, 2, 18, 257), "C": (1, 2, 33, 257, 2049)}
    ends: ClassVar[Ends] = {"R": TILE_ENDS, "C": CHUNK_ENDS}

    def draw(self, problem: Rows) -> RowInputs:
        rng = np.random.default_rng([problem.seed, problem.rows, problem.columns])
        x = rng.standard_normal((problem.rows, problem.columns), dtype=np.float32)
        _shape_rows(x, problem.distribution, rng)
        dtype = element_dtype(problem.dtype)
        times = _times_as_large(dtype)
        if problem.distribution == "large":
            x *= times
        x = np.clip(x, -times * self.largest, times * self.largest).astype(dtype)
        return RowInputs(x, _draw_weight(problem, problem.seed), problem)

    def oracle(self, inputs: RowInputs, parts: Iterable[Part] | None = None) -> np.ndarray | Arrays:
        """The output, float64 ``[R, C]``; a part is a row."""
        x = inputs.x.astype(np.float64)
        if parts is not None:
            others = np.ones(len(x), bool)
            others[[part[0] for part in parts]] = False
            x[others] = np.nan
        return self.normalise(x, inputs.weight)

    @staticmethod
    def normalise(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """RMSNorm in float64 of rows ``[R, C]``."""
        mean = np.mean(x * x, axis=1, keepdims=True)
        return x / np.sqrt(mean + EPSILON) * weight.astype(np.float64)

    def battery(self, problem: Rows, supports: Supports = takes_all) -> list[Rows]:
        """The given problem, then small ones in which every two levels of `levels_of` meet, among
        widths of whole 16-byte chunks and among the others."""
        small = self.problem(7, 97, dtype=problem.dtype, seed=problem.seed + 1)
        cases = [problem]
        how = (self.levels_of, lambda one: case_cost(one.visits, one.columns), supports)
        for whole in (True, False):
            columns = [count for count in COLUMN_COUNTS if (count % 8 == 0) is whole]
            choices = {"rows": ROW_COUNTS, "columns": columns, "distribution": ROW_DISTRIBUTIONS}
            cases += joint_cases(small.replace, choices, *how)
        # So wide that no block holds a row, and so long that a sum of small squares must not drown.
        cases += [small.replace(rows=2, columns=count, distribution=one) for count, one in _WIDE]
        cases += [small.replace(rows=1031, columns=3, distribution="one_hot")]
        cases += [small.replace(rows=MANY_ROWS[0], columns=MANY_ROWS[1])]
        return supported(cases, problem, supports)

    def large(self, problem: Rows) -> list[Rows]:
        """Heads of many tokens, and a wide model."""
        return [problem.replace(rows=r, columns=c) for r, c in ((2**20, 128), (8192, 16384))]

    def far_apart(self, problem: Rows) -> list[tuple[Rows, ...]]:
        """The last of millions of rows, of whole 16-byte chunks or not."""
        return [problem.replace(rows=5, columns=one).stretched("rows") for one in FAR_COLUMNS]

    def widening(self, problem: Rows, supports: Supports = takes_all) -> list[tuple[Rows, str]]:
        """Rows of one chunk of 16 bytes."""
        return [(problem.replace(columns=8, distribution="normal"), "rows")]

    def draw_problems(self, count: int, seed: int, supports: Supports = takes_all) -> list[Rows]:
        """Seeded random problems: any width, short as often as long, every kind of rows."""
        rng = np.random.default_rng([seed, 401])

        def draw() -> Rows:
            columns = int(np.exp(rng.uniform(np.log(_SHORTEST_DRAWN), np.log(_LONGEST_DRAWN + 1))))
            rows = int(rng.integers(1, max(1, min(300, _MOST_DRAWN_ELEMENTS // columns)) + 1))
            dtype, kind = str(rng.choice(DRAWN_DTYPES)), str(rng.choice(ROW_DISTRIBUTIONS))
            seed = int(rng.integers(2**31))
            return self.problem(rows, columns, dtype=dtype, distribution=kind, seed=seed)

        return draw_supported(draw, count, supports)

    def fills(self, problem: Rows, seed: int) -> list[Fill] | None:
        """Normal numbers in x, two at a time; None where their number is odd."""
        if problem.output.elements % 2:
            return None
        return [Fill("x", seed=seed), Fill("weight", _draw_weight(problem, seed))]

    def read_part(self, problem: Rows, part: Part, fetch: Fetch) -> RowInputs:
        """One row, with the weight of all columns."""
        one = problem.replace(rows=1)
        return RowInputs(fetch("x", part)[None], fetch("weight", slice(None)), one)

    def alter_part(self, problem: Rows, part: Part, fetch: Fetch, store: Store, rng: Rng) -> None:
        """One element that outweighs the others of its row, and the weight of another column."""
        weight = fetch("weight", slice(None))
        column = self.alter_row("x", part, fetch, store, rng)
        other = 1.0 if weight[column] > 2 else 3.0
        store("weight", slice(column, column + 1), np.array([other]).astype(weight.dtype))

    def alter_row(
        self, name: str, part: Part, fetch: Fetch, store: Store, rng: Rng, beside: str = ""
    ) -> int:
        """Change one element of a row of x or alike; the answer is another column, drawn too.

        It changes its sign, or takes that of the element of ``beside``, to which it is added.
        """
        x = fetch(name, part)
        place, column = (int(one) for one in rng.integers(len(x), size=2))
        wide = x.astype(np.float32)
        times = _OUTWEIGHS * (2 if beside else 1)  # no change undoes the one before
        peak = min(times * float(np.abs(wide).max()) + 1, _times_as_large(x.dtype) * self.largest)
        negative = fetch(beside, part).astype(np.float32)[place] < 0 if beside else wide[place] >= 0
        there = -peak if negative else peak
        store(name, (*part, slice(place, place + 1)), np.array([there]).astype(x.dtype))
        return column


def _times_as_large(dtype: np.dtype) -> int:
    return 1 if dtype == np.float16 else _WIDER


def _draw_weight(problem: Rows, seed: int) -> np.ndarray:
    """Weights around 1 or -1, ``[C]`` in the problem's type."""
    rng = np.random.default_rng([seed, problem.columns, 1])
    weight = 1 + WEIGHT_SPREAD * rng.standard_normal(problem.columns, dtype=np.float32)
    if problem.distribution == "outliers":
        weight = _WEIGHT_OUTLIER * np.abs(weight - 1) + 0.5
    elif problem.distribution == "small_weight":
        weight *= _SMALL_WEIGHT
    if problem.distribution != "normal":
        weight = np.copysign(weight, rng.standard_normal(problem.columns))
    return weight.astype(element_dtype(problem.dtype))


def _shape_rows(x: np.ndarray, distribution: str, rng: Rng) -> None:
    """Give standard normal rows the properties of a distribution, in place."""
    rows, columns = x.shape
    if distribution == "late_peaked":
        x[:, columns - max(1, columns // 64) :] += _LATE_PEAK
    elif distribution == "early_peaked":
        x[:, : max(1, columns // 64)] += _LATE_PEAK
    elif distribution == "large":
        x *= LARGE
    elif distribution == "tiny":
        x *= TINY
    elif distribution == "one_hot":
        x[np.arange(rows), rng.integers(columns, size=rows)] = ONE_HOT
    elif distribution == "constant":
        x[:] = x[:, :1]
    elif distribution == "zero_rows":
        x[::2] = 0
    elif distribution == "outliers":
        x[:, rng.integers(columns, size=1 + columns // 64)] *= _OUTLIER
