"""Comparison with the oracle, in which NaN never passes."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from .workload import element_dtype

TOLERANCE = {"float16": 1e-3, "bfloat16": 4e-3}
"""Worst relative error of one (sequence, head) by output type; rounding the output alone gives
about 2e-4 in fp16 and eight times that in bf16, which has three bits less."""

_POISON_BITS = {2: 0x7E5A, 4: 0x7FC05A5A, 8: 0x7FF85A5A5A5A5A5A}
_BFLOAT16_POISON = 0x7FC5  # 0x7E5A is a number in bf16


def _poison_bits(dtype: np.dtype) -> int:
    return _BFLOAT16_POISON if dtype.name == "bfloat16" else _POISON_BITS[dtype.itemsize]


def poisoned(shape: tuple[int, ...], dtype: str | np.dtype) -> np.ndarray:
    """An array filled with one fixed NaN pattern, so that an element never written shows.

    Integer types get the same bits, which are far from any value a kernel means to write.
    """
    dtype = element_dtype(dtype) if isinstance(dtype, str) else np.dtype(dtype)
    if dtype.itemsize == 1:
        return np.full(shape, 0x5A, np.uint8).view(dtype)
    bits = np.full(shape, _poison_bits(dtype), f"u{dtype.itemsize}")
    return bits.view(dtype)


def is_poison(array: np.ndarray) -> np.ndarray:
    """True where an element still has the bits that `poisoned` wrote."""
    size = array.dtype.itemsize
    return np.ascontiguousarray(array).view(f"u{size}") == _poison_bits(array.dtype)


@dataclass(frozen=True)
class Comparison:
    """What comparing an output with the oracle gave.

    Args:
        ok: right in every (sequence, head) that was compared.
        worst_error: largest ||out - expected|| / ||expected|| over (sequence, head); infinite
            when an element is missing or not finite.
        worst_index: the (sequence, head) of it.
        tolerance: what it was held against.
        problems: what is wrong, in words; empty when ok.
    """

    ok: bool
    worst_error: float
    worst_index: tuple[int, int]
    tolerance: float
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        if self.ok:
            return f"right: worst relative error {self.worst_error:.1e} (limit {self.tolerance:g})"
        return "wrong: " + "; ".join(self.problems)


def compare_output(
    out: np.ndarray, expected: np.ndarray, tolerance: float | None = None
) -> Comparison:
    """Compare an output with the oracle, one (sequence, head) at a time.

    Args:
        out: ``[B, Hq, D]``, the kernel's output in its own type.
        expected: float64 ``[B, Hq, D]``; heads that are NaN throughout were not computed and
            are not compared.
        tolerance: relative error allowed; None takes `TOLERANCE` of the output's type.
    """
    if tolerance is None:
        tolerance = TOLERANCE[str(out.dtype)]
    if out.shape != expected.shape:
        problem = f"the output has shape {out.shape}, expected {expected.shape}"
        return Comparison(False, np.inf, (0, 0), tolerance, [problem])
    compared = ~np.isnan(expected).all(axis=-1)
    if not compared.any():
        return Comparison(False, np.inf, (0, 0), tolerance, ["nothing was compared"])
    problems = []
    unwritten = is_poison(out) & compared[..., None]
    not_finite = ~np.isfinite(out) & ~unwritten & compared[..., None]
    for mask, text in ((unwritten, "never written"), (not_finite, "NaN or infinite")):
        if mask.any():
            first = tuple(int(i) for i in np.argwhere(mask)[0])
            problems.append(f"{int(mask.sum())} elements {text}, the first at {_where(first)}")
    error = _relative_error(out, expected)
    error[~compared] = -1.0
    worst = np.unravel_index(int(np.argmax(error)), error.shape)
    worst_index = (int(worst[0]), int(worst[1]))
    worst_error = float(error[worst_index])
    wrong = int((error > tolerance).sum())
    if wrong and not problems:
        problems.append(
            f"{wrong} of {int(compared.sum())} (sequence, head) pairs are off, the worst by "
            f"{worst_error:.1e} relative at {_where(worst_index)} (limit {tolerance:g})"
        )
    return Comparison(not problems, worst_error, worst_index, tolerance, problems)


def _relative_error(out: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Relative error of each (sequence, head), float64 ``[B, Hq]``; infinite where not finite."""
    with np.errstate(invalid="ignore", over="ignore"):
        difference = np.linalg.norm(out.astype(np.float64) - expected, axis=-1)
        error = difference / np.maximum(np.linalg.norm(expected, axis=-1), 1e-30)
    error[~np.isfinite(error)] = np.inf
    return error


def _where(index: tuple[int, ...]) -> str:
    names = ("sequence", "head", "dim")
    return ", ".join(f"{name} {i}" for name, i in zip(names, index, strict=False))
