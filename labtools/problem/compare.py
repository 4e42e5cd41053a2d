"""Comparison with the oracle, in which NaN never passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from .storage import element_dtype

TOLERANCE = {"float16": 1e-3, "bfloat16": 6e-3, "float32": 2e-5, "float64": 1e-10}
TOLERANCE |= {"float8_e4m3fn": 0.07, "float8_e5m2": 0.14}
"""Worst relative error of one part of the output by its type. Rounding the output alone gives
about 2e-4 in fp16 and eight times that in bf16, which has three bits less; where one weight makes
up an output, rounding it for a tensor core adds up to 5e-4 and 4e-3. In fp32 both are 3e-8, and
what shows is the error of long sums. In fp8 one element by itself is
rounded by up to 6 % and 13 %."""

MOST_TOLERANCE = {"float16": 4e-3, "bfloat16": 1.6e-2, "float32": 4e-3, "float64": 1e-6}
MOST_TOLERANCE |= {"float8_e4m3fn": 0.1, "float8_e5m2": 0.2}
"""The largest error that a kernel may ask for by the type of the output, whatever it says. In fp32
it leaves room for products that tensor cores round to TF32."""
MOST_BIAS = 0.4
"""Of the tolerance, by how much outputs may be too large or too small on average over a check: that
is where rounding towards zero stays below."""
MOST_TOLERANCE_IN_8_BITS = 0.05
"""The same for one whose preparation keeps inputs in eight bits and names no scheme of them."""

ROUNDED = 2.0**-23
"""What float32 rounds, relative."""
MOST_ROUNDED = 8
"""Times as much as an answer changes by when its inputs do by `ROUNDED` is a kernel allowed."""

_POISON_BITS = {1: 0x5A, 2: 0x7E5A, 4: 0x7FC05A5A, 8: 0x7FF85A5A5A5A5A5A}
_BFLOAT16_POISON = 0x7FC5  # 0x7E5A is a number in bf16


def _poison_bits(dtype: np.dtype) -> int:
    return _BFLOAT16_POISON if dtype.name == "bfloat16" else _POISON_BITS[dtype.itemsize]


def poisoned(shape: tuple[int, ...], dtype: str | np.dtype) -> np.ndarray:
    """An array filled with one fixed NaN pattern, so that an element never written shows.

    Integer types get the same bits, which are far from any value a kernel means to write.
    """
    dtype = element_dtype(dtype) if isinstance(dtype, str) else np.dtype(dtype)
    bits = np.full(shape, _poison_bits(dtype), f"u{dtype.itemsize}")
    return bits.view(dtype)


def tolerance_of(dtype: str) -> float:
    """`TOLERANCE` of a type; what is counted in whole numbers is exact."""
    return TOLERANCE.get(dtype, 0.0)


def is_poison(array: np.ndarray) -> np.ndarray:
    """True where an element still has the bits that `poisoned` wrote."""
    size = array.dtype.itemsize
    return np.ascontiguousarray(array).view(f"u{size}") == _poison_bits(array.dtype)


@dataclass(frozen=True)
class Comparison:
    """What comparing an output with the oracle gave, or several outputs.

    A part is what one index of all axes but the last names: a (sequence, head), or a row.
    """

    ok: bool  # right in every part that was compared
    # largest ||out - expected|| / ||expected|| over the parts; infinite when an element is missing
    # or not finite, None where nothing has an error
    worst_error: float | None = None
    worst_index: tuple[int, ...] | None = None  # the part of it, of one output
    tolerance: float | None = None  # what it was held against
    problems: list[str] = field(default_factory=list)  # what is wrong, in words; empty when ok
    cases: int = 1  # outputs that were compared
    pairs: int = 0  # parts that were compared, of decode (sequence, head) pairs
    # by how much the parts are too large on average, relative; None where one is wrong
    bias: float | None = field(default=None, repr=False)

    def of_output(self, name: str) -> Comparison:
        """The same, and its problems name the output."""
        return replace(self, problems=[f"{name}: {problem}" for problem in self.problems])

    def __str__(self) -> str:
        if self.ok:
            return f"right: worst relative error {self.worst_error:.1e} (limit {self.tolerance:g})"
        return "wrong: " + "; ".join(self.problems)


def compare_output(
    out: np.ndarray,
    expected: np.ndarray,
    tolerance: float | None = None,
    axes: Sequence[str] | None = None,
) -> Comparison:
    """Compare an output in its own type with the oracle, float64 of the same shape, part by part.

    Parts that are NaN throughout were not computed and are not compared. ``tolerance`` is the
    relative error allowed, None `tolerance_of` the output's type; ``axes`` are names of the axes,
    which all but the last number a part, None ``axis 0`` and so on.
    """
    axes = axes or [f"axis {number}" for number in range(out.ndim)]
    if tolerance is None:
        tolerance = tolerance_of(str(out.dtype))
    nowhere = (0,) * (len(axes) - 1)
    if out.shape != expected.shape:
        problem = f"the output has shape {out.shape}, expected {expected.shape}"
        return Comparison(False, np.inf, nowhere, tolerance, [problem])
    if not out.size:
        return Comparison(True, 0.0, nowhere, tolerance)
    compared = ~np.isnan(expected).all(axis=-1)
    if not compared.any():
        return Comparison(False, np.inf, nowhere, tolerance, ["nothing was compared"])
    parts = np.argwhere(compared)
    found, wanted = out[compared], expected[compared]
    problems = []
    unwritten = is_poison(found) & (found != wanted)
    not_finite = ~np.isfinite(found) & ~unwritten
    for mask, text in ((unwritten, "never written"), (not_finite, "NaN or infinite")):
        if mask.any():
            part, element = np.argwhere(mask)[0]
            first = (*parts[part], element)
            problems.append(
                f"{int(mask.sum())} elements {text}, the first at {_where(first, axes)}"
            )
    error = _relative_error(found, wanted)
    worst = int(np.argmax(error))
    worst_index = tuple(int(i) for i in parts[worst])
    worst_error = float(error[worst])
    wrong = int((error > tolerance).sum())
    if wrong and not problems:
        which = f"{wrong} of {len(parts)} {name_parts(axes)} are off, the worst"
        where = f" at {_where(worst_index, axes)}"
        if len(axes) == 1:
            which, where = "the output is off", ""
        limit = f"(limit {tolerance:g})"
        problems.append(f"{which} by {worst_error:.1e} relative{where} {limit}")
    seen = (not problems, worst_error, worst_index, tolerance, problems)
    return Comparison(*seen, pairs=len(parts), bias=None if problems else _bias(found, wanted))


def _share_of_limit(one: Comparison) -> float:
    return -1.0 if one.worst_error is None else one.worst_error / (one.tolerance or 1.0)


def merge_outputs(found: Sequence[Comparison]) -> Comparison:
    """The comparisons of several outputs of one run: what is said of its worst one, and every
    problem."""
    worst = max(found, key=lambda one: (not one.ok, _share_of_limit(one)))
    problems = [problem for one in found for problem in one.problems]
    return replace(worst, problems=problems, pairs=found[0].pairs)


def merge_comparisons(found: Sequence[Comparison]) -> Comparison:
    """Several comparisons, at least one, as one: right when all are, with the error that is nearest
    to what it was held against."""

    worst = max(found, key=_share_of_limit)
    return Comparison(
        ok=all(one.ok for one in found),
        worst_error=worst.worst_error,
        tolerance=worst.tolerance,
        problems=[problem for one in found for problem in one.problems],
        cases=sum(one.cases for one in found),
        pairs=sum(one.pairs for one in found),
    )


def largest_change(expected: np.ndarray, other: np.ndarray) -> float:
    """The largest change of a part, relative to its norm."""
    size = np.linalg.norm(expected, axis=-1)
    change = np.linalg.norm(other - expected, axis=-1) / np.where(size > 0, size, 1)
    return float(change.max(initial=0))


def worst_relative_error(out: np.ndarray, expected: np.ndarray) -> float:
    """The largest ||out - expected|| / ||expected|| over the parts, as `Comparison` has it."""
    return float(_relative_error(out, expected).max())


def _relative_error(out: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Relative error of each part, float64; infinite where not finite."""
    with np.errstate(invalid="ignore", over="ignore"):
        difference = np.linalg.norm(out.astype(np.float64) - expected, axis=-1)
        error = difference / np.maximum(np.linalg.norm(expected, axis=-1), 1e-30)
    error[~np.isfinite(error)] = np.inf
    return error


def _bias(out: np.ndarray, expected: np.ndarray) -> float:
    """The mean over the parts of out . expected / expected . expected - 1; rounding cancels."""
    size = np.square(expected).sum(axis=-1)
    along = (out.astype(np.float64) * expected).sum(axis=-1)[size > 0]
    return float(np.mean(along / size[size > 0] - 1)) if along.size else 0.0


def name_parts(axes: Sequence[str]) -> str:
    """What several parts are called: ``(sequence, head) pairs``, ``rows``."""
    named = axes[:-1]
    return f"{named[0]}s" if len(named) == 1 else f"({', '.join(named)}) pairs"


def _where(index: tuple[int, ...], axes: Sequence[str]) -> str:
    return ", ".join(f"{name} {i}" for name, i in zip(axes, index, strict=False))
