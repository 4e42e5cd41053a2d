"""What changed between two rounds' counters, in words, beyond what they differ by themselves."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from labtools.measure.profiler.counters import COUNTERS
from labtools.problem.text import how_many
from labtools.record import Record, RecordStore, select, with_counters
from labtools.record.bound import known_value
from labtools.record.statistics import CONFIDENCE

from .state import RoundKept
from .telling import say_value

COUNTER_NOISE = 0.02
"""Within this, relative to the larger of its two values, a counter did not really change, where no
records say how far it differs by itself, or a forecast predicts it. Nobody measured this number: it
is what the source takes for noise of a time."""
SHARE_NOISE = 2.0  # the same of a rate of the peak, ``..._pct``, in percentage points
LEAST_PART = 0.001
"""A counter that moved by less than this of what it is judged against did not really change: of a
stall that rose from nothing to a ten-thousandth of a cycle, the latency of a warp knows nothing."""
LEAST_PAIRS = 10
"""Pairs of records of one kernel from which on they say how far a counter differs by itself."""
NOTHING_CHANGED = "nothing really changed"


@dataclass(frozen=True)
class CounterChange:
    """A counter in two rounds."""

    name: str  # stable
    before: float | None  # in the first; None where missing
    after: float | None  # in the second
    moved: bool | None  # by more than noise; None where either is missing
    noise: float  # relative to the larger value; of a rate, percentage points

    def __str__(self) -> str:
        before, after = say_value(self.before), say_value(self.after)
        if self.before is None or self.after is None:
            return f"{self.name}: {before} before, {after} after: cannot be compared"
        if not self.moved:
            return f"{self.name}: {before} and {after}, the same within noise"
        verb = "rose" if self.after > self.before else "fell"
        by = f" by {abs(self.after / self.before - 1):.0%}" if self.before else ""
        return f"{self.name} {verb} from {before} to {after}{by}"


def counter_noise(records: Iterable[Record]) -> dict[str, float]:
    """How far each counter differs between two records of one kernel, in all but 5 % of the pairs,
    by name. One kernel is the same machine code with the same knobs at the same workload; a counter
    of fewer than `LEAST_PAIRS` pairs is left out."""
    alike: dict[tuple[str, ...], list[Record]] = defaultdict(list)
    for one in with_counters(records):
        if one.hashes.sass_hash:
            knobs = repr(sorted(one.knobs.items()))
            key = (one.candidate, one.experiment, one.problem_key, knobs, one.hashes.sass_hash)
            alike[key].append(one)
    off: dict[str, list[float]] = defaultdict(list)
    for first, second in itertools.chain.from_iterable(map(itertools.pairwise, alike.values())):
        assert first.counters is not None and second.counters is not None
        for name in first.counters.values:
            pair = [known_value(one.values, name) for one in (first.counters, second.counters)]
            if pair[0] is not None and pair[1] is not None:
                off[name].append(_distance(name, pair[0], pair[1]))
    return {
        name: float(np.quantile(held, CONFIDENCE, method="higher"))
        for name, held in off.items()
        if len(held) >= LEAST_PAIRS
    }


def noise_of_rounds(
    gpu: str, before: RoundKept, after: RoundKept
) -> tuple[Mapping[str, float], str]:
    """How far two rounds' counters differ by themselves, and where that comes from."""
    usual = f"{COUNTER_NOISE:.0%} of a counter, {SHARE_NOISE:g} points of a rate of the peak"
    if any(kept.gaps is None or kept.gaps.origin != "counters" for kept in (before, after)):
        return {}, f"{usual}; a forecast predicts these counters"
    noise = counter_noise(select(RecordStore().load(), gpu=gpu, experiment=None))
    if not noise:
        return {}, f"{usual}; no two records of one kernel on {gpu} hold counters"
    told = f"of {how_many(len(noise), 'counter')} by records of one kernel, on {gpu}"
    return noise, f"{told}; of others {usual}"


_AGAINST = {one.name: one.against for one in COUNTERS if one.against}


def _is_share(name: str) -> bool:
    """Whether a counter is a rate of the peak, which is near zero as often as not."""
    return name.endswith("_pct")


def _distance(name: str, before: float, after: float) -> float:
    """In the unit of `CounterChange.noise`."""
    return abs(after - before) if _is_share(name) else _relative(before, after)


def _relative(before: float | None, after: float | None) -> float:
    """How far two values are apart, of the larger one; 0 where one is missing."""
    if before is None or after is None:
        return 0.0
    largest = max(abs(before), abs(after))
    return abs(after - before) / largest if largest else 0.0


def compare_rounds(
    before: Mapping[str, float | None],
    after: Mapping[str, float | None],
    noise: Mapping[str, float] | None = None,
) -> tuple[CounterChange, ...]:
    """Every counter of two rounds by stable name, None where missing; most moved first."""
    found = []
    for name in dict.fromkeys((*before, *after)):
        first, second = before.get(name), after.get(name)
        least = (noise or {}).get(name, SHARE_NOISE if _is_share(name) else COUNTER_NOISE)
        moved = None
        if first is not None and second is not None:
            beside = _AGAINST.get(name, "")
            whole = max(before.get(beside) or 0.0, after.get(beside) or 0.0)
            large = abs(second - first) > LEAST_PART * whole
            moved = large and _distance(name, first, second) > least
        found.append(CounterChange(name, first, second, moved, least))
    found.sort(key=lambda one: (one.moved is not True, -_relative(one.before, one.after)))
    return tuple(found)


def say_changes(changes: Sequence[CounterChange]) -> Iterator[str]:
    """The changes in words; `NOTHING_CHANGED` where nothing moved beyond noise."""
    moved = [one for one in changes if one.moved]
    missing = [one for one in changes if one.moved is None]
    compared = len(changes) - len(missing)
    if not compared:
        yield "no counter was measured in both rounds, so nothing can be said"
    elif not moved:
        yield f"{NOTHING_CHANGED}: {_say_same(compared, 'counter')}"
    else:
        yield from map(str, moved)
        if compared > len(moved):
            yield _say_same(compared - len(moved), "other counter")
    yield from map(str, missing)


def _say_same(count: int, what: str) -> str:
    verb = "is" if count == 1 else "are"
    return f"{how_many(count, what)} {verb} the same within noise"
