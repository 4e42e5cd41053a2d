"""Ratios of two times, with where each comes from."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

from labtools.problem import LabError
from labtools.record import Ratio as PairedRatio
from labtools.record import Record, RecordedTime, describe_record, paired_ratio
from labtools.record.prediction import Interval, Prediction, direction_of, say_ratio

from .tables import Cell, Shown, Word, check_word, make_table, say_time


@dataclass(frozen=True)
class Speedup:
    """How a candidate compares with a baseline. Raises LabError: no ratio, or an unknown source."""

    value: float  # baseline time / candidate time; above 1 the candidate is faster
    source: str  # one of the five provenance words
    what: str = ""  # what was compared, where and when
    interval: Interval | None = None  # low and high end of ``value``, where known
    baseline_us: float | None = None  # the baseline's time in microseconds, where known
    candidate_us: float | None = None  # the candidate's time in microseconds, where known

    @property
    def scored(self) -> dict[str, Any]:
        """What a guess is scored against, as `labtools.record.prediction.score` takes it."""
        return {"ratio": self.value, "interval": self.interval}

    def __post_init__(self) -> None:
        check_word(self.source)
        if not (math.isfinite(self.value) and self.value > 0):
            what = f"The ratio is {self.value!r}."
            raise LabError(what, "baseline time / candidate time is a positive number")


def read_ratio(thing: Any, source: str | None = None, what: str = "") -> Speedup | None:
    """Understand what a page calls a result; ``source`` and ``what`` hold where the thing does not
    say.

    That is a `Speedup`, a number, a pair (baseline, candidate) of times in microseconds or of runs,
    records or forecasts that hold one, a paired ratio of `labtools.record`, or None. Two records
    must come from the same processes. A source of None takes the thing's own: ``recorded`` for
    records, ``live`` for anything that does not say. Raises LabError: none of these, or two records
    that were not measured together.
    """
    if thing is None:
        return None
    if isinstance(thing, Speedup):
        return replace(thing, what=thing.what or what)
    if isinstance(thing, (tuple, list)) and len(thing) == 2:
        return _read_pair(thing[0], thing[1], source, what)
    if _is_number(thing):
        return Speedup(float(thing), source or "live", what)
    if isinstance(thing, PairedRatio):
        return Speedup(thing.ratio, source or "live", what, (thing.low, thing.high))
    raise _unreadable(thing)


def _read_pair(baseline: Any, candidate: Any, source: str | None, what: str) -> Speedup | None:
    if baseline is None or candidate is None:
        return None
    if isinstance(baseline, Record) and isinstance(candidate, Record):
        paired = read_ratio(paired_ratio(baseline, candidate), source or "recorded", what)
        first_us, second_us = RecordedTime.of(baseline), RecordedTime.of(candidate)
        where = what or describe_record(candidate)
        return paired and replace(paired, what=where, baseline_us=first_us, candidate_us=second_us)
    if isinstance(baseline, Record) or isinstance(candidate, Record):
        why = "one comes from a record and the other does not"
        raise LabError("These two times do not belong together.", why)
    times = _time_us_of(baseline), _time_us_of(candidate)
    if not min(times) > 0:
        refusal = f"The times are {times[0]!r} and {times[1]!r} us."
        raise LabError(refusal, "a time that was measured is positive")
    return Speedup(times[0] / times[1], source or "live", what, None, *times)


def _time_us_of(thing: Any) -> float:
    if _is_number(thing):
        return float(thing)
    for name in ("median_us", "time_us"):
        value: Any = getattr(thing, name, None)
        if _is_number(value):
            return float(value)
    raise _unreadable(thing)


def _is_number(thing: Any) -> TypeGuard[float]:
    return isinstance(thing, numbers.Real) and not isinstance(thing, bool)


def _unreadable(thing: Any) -> LabError:
    why = "a result is a ratio, a pair (baseline, candidate) of times in us, runs or records"
    return LabError(f"{type(thing).__name__} holds no time and no ratio.", why)


RatioRow = tuple[str, Prediction | Speedup | None, str]
"""A label, a value, and what to say where there is no value."""


def ratio_table(baseline: str, candidate: str, rows: Sequence[RatioRow], caption: str) -> Shown:
    """Predictions, measurements and records of one comparison, one below the other."""
    cells: list[list[Cell]] = []
    for label, value, absent in rows:
        if value is None:
            cells.append([label, "", "", absent, ""])
        elif isinstance(value, Prediction):
            said = f"your guess, committed {value.at:%Y-%m-%d %H:%M} UTC"
            said += "; after the answer was shown, does not count" if value.after_reveal else ""
            said += f"; {value.note}" if value.note else ""
            cells.append([label, "", "", value.words, said])
        else:
            cells.append([label, *speedup_cells(value)])
    columns = ["", f"{baseline} (us)", f"{candidate} (us)", f"{candidate} is", "where from"]
    return make_table(columns, cells, caption)


def show_comparison(
    *,
    measured: Any = None,
    recorded: Any = None,
    claimed: Any = None,
    baseline: str = "baseline",
    candidate: str = "candidate",
    what: str = "",
) -> Shown:
    """Measured and recorded of one comparison, one below the other, with what is missing; or, where
    something is ``claimed``, what is there. Each is what `read_ratio` understands.

    Raises LabError: something that holds no ratio.
    """
    rows: list[RatioRow] = [
        ("predicted", None, "no prediction"),
        ("measured", read_ratio(measured, None, what), "not measured here"),
        ("recorded", read_ratio(recorded, "recorded", what), "no record yet"),
        ("claimed", read_ratio(claimed, "claimed", what), ""),
    ]
    rows = [row for row in rows if row[1] is not None or (row[2] and claimed is None)]
    return ratio_table(baseline, candidate, rows, f"{candidate} against {baseline}")


def speedup_cells(speedup: Speedup) -> list[Cell]:
    """Both times, the ratio in words, and where it comes from."""
    both = (speedup.baseline_us, speedup.candidate_us)
    times = ["" if one is None else say_time(one) for one in both]
    return [*times, say_speedup(speedup), Word(speedup.source, speedup.what)]


def say_speedup(speedup: Speedup) -> str:
    """The ratio in words, and its interval where it is known."""
    said = say_ratio(speedup.value, speedup.interval)
    if speedup.interval:
        low, high = speedup.interval
        if direction_of(speedup.value, speedup.interval) == "slower":  # told upside down
            low, high = 1 / high, 1 / low
        said += f" (95 %: {low:.2f} to {high:.2f})"
    return said
