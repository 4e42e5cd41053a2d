"""Under what a time was measured, times that keep it, and what a table of them must say of it.

Where more than the candidate differs between two times, such as the processes, the way of timing,
the layout of the cache or the oracle, `distinguish` writes a column that says so.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from labtools.problem import LabError, load_baseline

from .schema import Record

_HOW = {"graph-1": "graph replay", "stream-1": "call by call"}
_HOW["events-1"] = "call by call (no graph could be made)"


def say_timed(record: Record) -> str:
    """How it was timed, and whether its calls allocate: ``graph replay``."""
    how = _HOW.get(record.protocol, record.protocol)
    return f"{how}, allocation in the call" if record.allocates else how


@functools.lru_cache(maxsize=64)
def _own_page_size(name: str) -> int | None:
    try:
        return load_baseline(name).own_page_size
    except LabError:
        return None  # a library that the project does not know takes the cache as it is


def say_layout(record: Record) -> str:
    """How what it streams lies when the timed call reads it: ``contiguous``, ``pages of 16``."""
    problem = record.problem
    size = getattr(problem, "page_size", None) if problem.layout == "paged" else None
    if size is None and record.kind == "baseline":
        size = _own_page_size(record.name)
    return problem.layout if size is None else f"pages of {size}"


def say_oracle(record: Record) -> str:
    """What its error was taken against: the values that a rung's codes stand for, or the cache
    before a library converted it."""
    if record.kind == "baseline" and record.kv_bits < 16:
        return "the unquantised cache"
    return "the cache as it is kept"


class OfRecords:
    """Something made of records, which tables ask for them."""

    records: tuple[Record, ...] = ()


def _of_both(compute: Callable[[float, float], float]) -> Any:
    """An operator of times, whose answer is of the records of both."""

    def apply(self: RecordedTime, other: float) -> RecordedTime:
        return self._joined(other, compute(float(self), float(other)))

    return apply


class RecordedTime(float, OfRecords):
    """A recorded time in microseconds that knows its records: two are computed with as numbers,
    unless they are of one workload and one GPU and of different processes."""

    def __new__(cls, value: float, records: Iterable[Record]) -> RecordedTime:
        made = super().__new__(cls, value)
        made.records = tuple(records)
        return made

    @classmethod
    def of(cls, record: Record) -> RecordedTime:
        """The median of a record."""
        return cls(record.median_us, (record,))

    def __getnewargs__(self) -> tuple[float, tuple[Record, ...]]:  # type: ignore[override]
        return float(self), self.records

    def _joined(self, other: float, value: float) -> RecordedTime:
        theirs = other.records if isinstance(other, RecordedTime) else ()
        records = tuple({id(one): one for one in (*self.records, *theirs)}.values())
        if mixed := mixes(records):
            why = (
                f"{mixed}; two GPUs of one kind, or one GPU on two days, differ by several percent"
            )
            still = "take both from records of one campaign: GpuRecords.together"
            raise LabError("Times of different processes are not compared.", why, still)
        return RecordedTime(value, records)

    # What stands on the right of a plain number stays of its records.
    __add__ = __radd__ = _of_both(lambda mine, other: mine + other)
    __mul__ = __rmul__ = _of_both(lambda mine, other: mine * other)
    __sub__ = _of_both(lambda mine, other: mine - other)
    __rsub__ = _of_both(lambda mine, other: other - mine)
    __truediv__ = _of_both(lambda mine, other: mine / other)
    __rtruediv__ = _of_both(lambda mine, other: other / mine)


class RecordedText(str, OfRecords):
    """A recorded number as a table says it, which still knows its records."""

    def __new__(cls, text: str, records: Iterable[Record]) -> RecordedText:
        made = super().__new__(cls, text)
        made.records = tuple(records)
        return made

    def __getnewargs__(self) -> tuple[str, tuple[Record, ...]]:  # type: ignore[override]
        return str(self), self.records


class RecordedError(float, OfRecords):
    """A recorded error; a table of errors against two oracles says which is which."""

    def __new__(cls, record: Record) -> RecordedError:
        error = record.comparison.worst_error
        if error is None:
            raise LabError(f"{record.candidate} has no error.", "its record holds none", "its time")
        made = super().__new__(cls, error)
        made.records = (record,)
        return made

    def __getnewargs__(self) -> tuple[Record]:  # type: ignore[override]
        return (self.records[0],)


def mixes(records: Sequence[Record]) -> str:
    """Which records of one workload were timed in different processes; empty where none were."""
    seen: dict[tuple[str, str], Record] = {}
    for record in records:
        first = seen.setdefault((record.provenance.gpu, record.problem_key), record)
        if first.campaign != record.campaign:
            said = f"{first.candidate} is of campaign {first.campaign} and {record.candidate} of "
            return f"{said}{record.campaign}, both on {record.problem}"
    return ""


TOGETHER, TIMED, LAYOUT, ORACLE = "processes", "timed", "cache layout", "error against"
NOTE_TOGETHER = "rows that share a letter were timed in the same processes; compare no others"


def distinguish(
    rows: Sequence[Sequence[Record]], errors: Sequence[Sequence[Record]] = ()
) -> dict[str, list[str]]:
    """The columns that a table of recorded numbers needs besides its own: by heading, a text a row.

    ``rows`` are the records that each row's numbers come from, ``errors`` those whose errors it
    shows.
    """
    every = [record for row in rows for record in row]
    campaigns = dict.fromkeys(record.campaign for record in every)
    names = {campaign: _letter(number) for number, campaign in enumerate(campaigns)}
    wanted: tuple[tuple[str, Callable[[Record], str], Sequence[Sequence[Record]]], ...] = (
        (TOGETHER, lambda record: names[record.campaign], rows),
        (TIMED, say_timed, rows),
        (LAYOUT, say_layout, rows),
        (ORACLE, say_oracle, errors),
    )
    return {
        heading: [", ".join(dict.fromkeys(map(say, row))) for row in told]
        for heading, say, told in wanted
        if _differ([record for row in told for record in row], say)
    }


def _differ(records: Sequence[Record], say: Callable[[Record], str]) -> bool:
    """Whether it differs between records of one workload on one GPU."""
    said: dict[tuple[str, str], set[str]] = {}
    for record in records:
        said.setdefault((record.provenance.gpu, record.problem_key), set()).add(say(record))
    return any(len(texts) > 1 for texts in said.values())


def _letter(number: int) -> str:
    """A, B, ..., Z, AA, AB, ..."""
    head, last = divmod(number, 26)
    return (_letter(head - 1) if head else "") + chr(ord("A") + last)
