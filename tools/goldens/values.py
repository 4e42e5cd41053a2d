"""Answers as they are kept, and how they compare.

Numbers are kept to 12 digits, long lists as columns, sentences as the mere fact that there is one:
wording is looked at in `tests/goldens/test_screens.py`.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import math
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.install import ROOT

Json = Any
KEPT_DIGITS = 12
RELATIVE_TOLERANCE = 1e-9
"""The same arithmetic gives the same number, but numpy adds in another order where a processor has
wider registers, and that moves the last digits. A changed rule moves far more."""
NEAR_ZERO = 1e-12
LONG = 8
"""A list of objects with more members than this is kept as columns."""
COLUMN_DIGITS = 6
"""Of the single numbers of a column, which are kept as one hash; their sum is kept besides."""
SENTENCES = frozenset(
    """
    what why still_works reason bound_reason freshness note notes doubts claim meaning breaks
    decision formula question choice stops not_checked
    """.split()
)
"""Fields that hold sentences."""
WORDED, MASKED = "<words>", "<masked>"
MACHINES: tuple[tuple[str, str], ...] = (
    ("doctor*", "data/python"),
    ("doctor*", "data/system"),
    ("doctor*", "data/executable"),
    ("doctor*", "data/can_*"),
    ("doctor*", "data/device"),
    ("doctor*", "data/missing"),
    ("doctor*", "data/links/*/*"),
    ("run*", "data/worst_error"),  # the host's compiler chooses the order of additions
    ("run*", "data/summary"),  # it names the worst error
    ("run*", "data/cases/*/comparison/worst_*"),
    ("sync*", "data/cells/*/line"),  # pages are written on
    ("forecast*", "data/model"),  # the version, which the goldens of forecasts hold
)
"""What of an answer is not compared, by command line and path; that it is there still is."""
COMPARED = ("name",)
"""Of what is masked by a star, what is compared all the same."""
_FILES = re.compile(re.escape(tempfile.gettempdir()) + r"/labtools-goldens-\w+")


def mask(command: str, answer: Json) -> Json:
    """An answer without what belongs to the machine."""
    rules = [path.split("/") for line, path in MACHINES if fnmatch.fnmatchcase(command, line)]
    return _masked(answer, [], rules)


def _masked(value: Json, path: list[str], rules: list[list[str]]) -> Json:
    masks = (rule for rule in rules if len(rule) == len(path))
    if (
        any(all(map(fnmatch.fnmatchcase, path, rule)) for rule in masks)
        and path[-1] not in COMPARED
    ):
        return MASKED
    if isinstance(value, dict):
        return {name: _masked(held, [*path, name], rules) for name, held in value.items()}
    if isinstance(value, list):
        return [_masked(held, [*path, str(n)], rules) for n, held in enumerate(value)]
    return without_paths(value) if isinstance(value, str) else value


def without_paths(text: str) -> str:
    """A text in which folders of this machine have names that every machine shares."""
    text = _FILES.sub("<files>", text)
    for folder, name in (
        (str(ROOT), "<root>"),
        (sys.prefix, "<python>"),
        (str(Path(tempfile.gettempdir()).resolve()), "<tmp>"),
        (tempfile.gettempdir(), "<tmp>"),
    ):
        text = text.replace(folder, name)
    return text


def as_kept(value: Json, whole: bool = False) -> Json:
    """An answer as it is kept; ``whole`` keeps long lists as they are."""
    if isinstance(value, dict):
        return {
            name: WORDED if held and name in SENTENCES else as_kept(held, whole)
            for name, held in value.items()
        }
    if isinstance(value, list):
        long = len(value) > LONG and any(isinstance(held, (dict, list)) for held in value)
        return column(value) if long and not whole else [as_kept(held, whole) for held in value]
    if isinstance(value, float):
        return rounded(value)
    if isinstance(value, str) and len(value) > 2000 and not whole:
        return {"#hash": digest(value), "#lines": value.count("\n") + 1}
    return value


def rounded(value: float, digits: int = KEPT_DIGITS) -> float | None:
    """A number as it is kept; None for one that is not finite."""
    return float(f"{value:.{digits}g}") if math.isfinite(value) else None


def column(values: list[Json]) -> Json:
    """Many values of one kind in few words: how many, a hash, the sum of their numbers.

    Of objects, each field is a column by itself, so that a difference names its field.
    """
    if values and all(isinstance(held, dict) for held in values):
        names = sorted({name for held in values for name in held})
        return {"#count": len(values)} | {
            name: WORDED
            if name in SENTENCES
            else column([held[name] for held in values if name in held])
            for name in names
        }
    numbers = [number for held in values for number in _numbers(held)]
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
        for held in value:
            yield from _numbers(held)
    elif isinstance(value, float) and math.isfinite(value):
        yield value


def _coarse(value: Json) -> Json:
    if isinstance(value, dict):
        return {name: _coarse(held) for name, held in value.items()}
    if isinstance(value, list):
        return [_coarse(held) for held in value]
    return rounded(value, COLUMN_DIGITS) if isinstance(value, float) else value


_PLACE = re.compile(r"\b(?:element|index|block|thread) (?:\d+|\([\d, ]+\))")


def with_places_of(before: Json, now: Json) -> Json:
    """An answer in which a message that differs in elements, blocks and threads alone is as before:
    a fault is told of the thread that met it first, and several run at once."""
    if isinstance(now, dict):
        held = before if isinstance(before, dict) else {}
        return {name: with_places_of(held.get(name), value) for name, value in now.items()}
    if isinstance(now, list):
        same = isinstance(before, list) and len(before) == len(now)
        return [with_places_of(*one) for one in zip(before, now, strict=True)] if same else now
    texts = isinstance(before, str) and isinstance(now, str)
    return before if texts and _PLACE.sub("", before) == _PLACE.sub("", now) else now


class Absent:
    """Stands where one side has nothing."""

    def __repr__(self) -> str:
        return "nothing"


ABSENT = Absent()


def changed_paths(before: Json, now: Json, path: str = "") -> Iterator[tuple[str, Json, Json]]:
    """Where two answers differ by more than the tolerance: path, what was kept, what is said."""
    if isinstance(before, dict) and isinstance(now, dict):
        for name in sorted({*before, *now}):
            below = f"{path}/{name}" if path else name
            yield from changed_paths(before.get(name, ABSENT), now.get(name, ABSENT), below)
    elif isinstance(before, list) and isinstance(now, list):
        for number in range(max(len(before), len(now))):
            first = before[number] if number < len(before) else ABSENT
            second = now[number] if number < len(now) else ABSENT
            yield from changed_paths(first, second, f"{path}/{number}" if path else str(number))
    elif not _same(before, now):
        yield path, before, now


def _same(before: Json, now: Json) -> bool:
    """Whether two single values are the same answer."""
    if _is_number(before) and _is_number(now):
        if isinstance(before, int) and isinstance(now, int):
            return before == now
        return math.isclose(before, now, rel_tol=RELATIVE_TOLERANCE, abs_tol=NEAR_ZERO)
    return type(before) is type(now) and bool(before == now)


def _is_number(value: Json) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
