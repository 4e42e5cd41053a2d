"""Answers as they are kept: numbers to 12 digits, long lists as columns, and how they compare."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from typing import Any

Json = Any
KEPT_DIGITS = 12
"""Significant digits of a kept number."""
RELATIVE_TOLERANCE = 1e-9
"""Relative. The same arithmetic gives the same number, but numpy adds in another order where a
processor has wider registers, and that moves the last digits. A changed rule moves far more."""
NEAR_ZERO = 1e-12
LONG = 8
"""A list of objects with more members than this is kept as columns."""
COLUMN_DIGITS = 6
"""Of the single numbers of a column, which are kept as one hash; their sum is kept besides."""


def rounded(value: float, digits: int = KEPT_DIGITS) -> float | None:
    """A number as it is kept; None for one that is not finite."""
    return float(f"{value:.{digits}g}") if math.isfinite(value) else None


def as_kept(value: Json, whole: bool = False) -> Json:
    """An answer as it is kept.

    Args:
        value: plain JSON.
        whole: keep long lists as they are.
    """
    if isinstance(value, dict):
        return {name: as_kept(one, whole) for name, one in value.items()}
    if isinstance(value, list):
        long = len(value) > LONG and any(isinstance(one, (dict, list)) for one in value)
        if long and not whole:
            return column(value)
        return [as_kept(one, whole) for one in value]
    if isinstance(value, float):
        return rounded(value)
    if isinstance(value, str) and len(value) > 2000 and not whole:
        return {"#hash": digest(value), "#lines": value.count("\n") + 1}
    return value


def column(values: list[Json]) -> Json:
    """Many values of one kind in few words: how many, a hash, the sum of their numbers.

    Of objects, each field is a column by itself, so that a difference names its field.
    """
    if values and all(isinstance(one, dict) for one in values):
        names = sorted({name for one in values for name in one})
        return {"#count": len(values)} | {
            name: column([one[name] for one in values if name in one]) for name in names
        }
    numbers = [x for one in values for x in _numbers(one)]
    said: dict[str, Json] = {"#count": len(values), "#hash": digest(_coarse(values))}
    if numbers:
        said["#sum"] = rounded(math.fsum(numbers))
    return said


def digest(value: Json) -> str:
    """A short hash of an answer."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _numbers(value: Json) -> Iterator[float]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from _numbers(one)
    elif isinstance(value, float) and math.isfinite(value):
        yield value


def _coarse(value: Json) -> Json:
    if isinstance(value, dict):
        return {name: _coarse(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_coarse(one) for one in value]
    return rounded(value, COLUMN_DIGITS) if isinstance(value, float) else value


Difference = tuple[str, Json, Json]
"""A path such as ``launches/0/time_us``, what was kept, and what is said now."""


class Absent:
    """Stands where one side has nothing."""

    def __repr__(self) -> str:
        return "nothing"


ABSENT = Absent()


def differences(before: Json, now: Json, path: str = "") -> Iterator[Difference]:
    """Where two answers differ by more than the tolerance."""
    if isinstance(before, dict) and isinstance(now, dict):
        for name in sorted({*before, *now}):
            below = f"{path}/{name}" if path else name
            yield from differences(before.get(name, ABSENT), now.get(name, ABSENT), below)
    elif isinstance(before, list) and isinstance(now, list):
        for number in range(max(len(before), len(now))):
            one = before[number] if number < len(before) else ABSENT
            other = now[number] if number < len(now) else ABSENT
            yield from differences(one, other, f"{path}/{number}" if path else str(number))
    elif not same(before, now):
        yield path, before, now


def same(before: Json, now: Json) -> bool:
    """Whether two single values are the same answer."""
    if _is_number(before) and _is_number(now):
        if isinstance(before, int) and isinstance(now, int):
            return before == now
        return math.isclose(before, now, rel_tol=RELATIVE_TOLERANCE, abs_tol=NEAR_ZERO)
    return type(before) is type(now) and bool(before == now)


def _is_number(value: Json) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
