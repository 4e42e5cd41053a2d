"""Each step of a loop in words: what was decided, from which numbers, by which rule; and what
changed between two rounds' counters."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from labtools.measure.profiler.counters import COUNTERS
from labtools.problem.text import how_many
from labtools.record import Record, with_counters
from labtools.record.bound import known_value
from labtools.record.statistics import CONFIDENCE

from .attribution import Attribution, interactions, pair_name, say_untimed
from .events import (
    AblateDone,
    BranchDone,
    BudgetDone,
    CheckDone,
    FrontierScored,
    GapsDone,
    InitDone,
    LoopRestarted,
    LoopStopped,
    PickDone,
    UpdateDone,
)
from .gaps import say_gaps
from .log import LogLine
from .sass_check import SassVerdict
from .state import StateFold

COUNTER_NOISE = 0.02
"""Within this, relative to the larger of its two values, a counter did not really change, where no
records say how far it differs by itself, or a forecast predicts it. Nobody measured this number: it
is what the source takes for noise of a time."""
SHARE_NOISE = 2.0
"""The same of a rate of the peak, ``..._pct``, in percentage points."""
LEAST_PART = 0.001
"""A counter that moved by less than this of what it is judged against did not really change: of a
stall that rose from nothing to a ten-thousandth of a cycle, the latency of a warp knows nothing."""
LEAST_PAIRS = 10
"""Pairs of records of one kernel from which on they say how far a counter differs by itself."""
STOP = "stop"
"""The step of an entry that says why a loop has stopped."""
NO_METHOD = "no method"
NOTHING_CHANGED = "nothing really changed"


@dataclass(frozen=True)
class AuditEntry:
    """One step, explained."""

    n: int  # of its line in the log
    at: str  # UTC, ISO 8601
    step: str  # its name
    round: int  # it belongs to; 0 for the loop's beginning
    decided: str  # in words
    numbers: Mapping[str, Any]  # that it was decided from
    rule: str  # that decided, in words

    def __str__(self) -> str:
        numbers = ", ".join(f"{name} {_say(value)}" for name, value in self.numbers.items())
        text = f"{self.at}  round {self.round}  {self.step}: {self.decided}"
        return f"{text}\n    from: {numbers or 'nothing'}\n    by: {self.rule}"


def _say(value: Any) -> str:
    """A number as a person reads it; None is missing."""
    if value is None:
        return "missing"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def audit(lines: Sequence[LogLine]) -> tuple[AuditEntry, ...]:
    """Every step of a log, explained; measurements stand in the log itself."""
    entries = []
    fold = StateFold()
    for line in lines:
        fold.take(line.event)
        number = getattr(line.event, "round", 0)
        explain = _EXPLAIN.get(type(line.event))
        if explain is not None:
            decided, numbers, rule = explain(line.event)
            if isinstance(line.event, BudgetDone) and (gaps := fold.rounds[number].gaps):
                numbers = {**gaps.names()}
            entries.append(AuditEntry(line.n, line.at, line.kind, number, decided, numbers, rule))
        if isinstance(line.event, BranchDone) and fold.stopped:  # nobody has to say it
            stop = LoopStopped(number, fold.stopped)
            entries.append(AuditEntry(line.n, line.at, STOP, number, *_explain_stop(stop)))
    return tuple(entries)


_Explained = tuple[str, dict[str, Any], str]


def _explain_init(event: InitDone) -> _Explained:
    return (
        f"{event.kernel} for {event.workload}, timed {event.on} ({event.gpu}), from {event.start}",
        {"seed": event.seed, "branches": event.branches},
        f"apportionment {event.rule}",
    )


def _explain_gaps(event: GapsDone) -> _Explained:
    text = f"gaps of {event.point}: {say_gaps(event.gaps)}; bound {event.gaps.bound or 'unclear'}"
    if event.gaps.near_peak:
        text += "; near the peak on every axis"
    if event.rising:
        text += f"; rose two rounds running: {', '.join(event.rising)}"
    if event.gaps.note:
        text += f"; {event.gaps.note}"
    rule = "one minus the best use of compute, one minus memory's, largest stall share, from the "
    numbers = {**event.gaps.values, **dict.fromkeys(event.gaps.missing)}
    return text, numbers, rule + event.gaps.origin


def _explain_budget(event: BudgetDone) -> _Explained:
    found = event.budget
    text = f"slots: compute {found.compute}, memory {found.memory}, latency {found.latency}"
    return text, {}, found.reason


def _explain_pick(event: PickDone) -> _Explained:
    numbers = {
        one.method: one.strength
        for one in event.pick.considered
        if one.taken or one.strength is not None
    }
    left = [one for one in event.pick.considered if not one.taken]
    why = "; ".join(f"{one.method}: {one.why}" for one in event.pick.considered if one.taken)
    text = (
        f"methods: {', '.join(event.pick.methods) or 'none'} ({how_many(len(left), 'other')} left"
    )
    if unknown := sum(one.checks.is_open for one in left):
        text += f", {unknown} of them because a value is missing or cannot be computed"
    text += ")"
    for method, reason in event.acknowledged.items():
        text += f"; {method} again although its implementation failed: {reason}"
    able = "; ".join(f"{one.method}: {one.why}" for one in left if one.checks.passed)
    return text, numbers, why or able or "no method passes its checks"


def _explain_branch(event: BranchDone) -> _Explained:
    numbers: dict[str, Any] = {one.point: one.time_us for one in event.branches}
    failed = [one for one in event.branches if one.failure]
    text = f"champion: {event.champion}" if event.champion else "no branch is right"
    for one in failed:
        text += f"; {one.point}: {one.failure}"
    pruned = how_many(sum(event.pruned.values()), "setting")
    return text, numbers, f"fastest right branch by its median, us; {pruned} pruned before"


def _explain_ablate(event: AblateDone) -> _Explained:
    said = [_say_attribution(one) for one in event.attribution]
    met = interactions(event.attribution, event.pairs, event.aa)
    together = {pair_name(*one.methods): one for one in met}
    for one in event.pairs:
        text = _say_attribution(one)
        if (found := together.get(one.method)) is not None:
            text += f", the product of each alone {found.product:+.1%}: "
            text += "no interaction" if found.additive else "they interact"
        said.append(text)
    said += say_untimed(event.untimed)
    numbers: dict[str, Any] = {"A/A effect": event.aa.effect}
    for one in (*event.attribution, *event.pairs):
        numbers |= {f"{one.method} low": one.low, f"{one.method} high": one.high}
        numbers["threshold"] = one.threshold
    rule = "time without the method less the champion's, in one call; a verdict where the whole "
    rule += "95 % interval lies on one side of the threshold"
    return "; ".join(said) or NO_METHOD, numbers, rule


def _say_attribution(one: Attribution) -> str:
    verdict = "undecided" if one.decided is None else f"{one.decided} the threshold"
    return f"{one.method} {one.delta_us:+.3g} us ({one.relative:+.1%}), {verdict}"


def _explain_check(event: CheckDone) -> _Explained:
    said = "; ".join(f"{one.method}: {_say_check(one)}" for one in event.sass_check)
    numbers: dict[str, Any] = {}
    for one in event.sass_check:
        numbers |= {f"{one.method} {pattern}": count for pattern, count in one.found}
        numbers |= {f"{one.method} {pattern} without it": n for pattern, n in one.without}
    return said or NO_METHOD, numbers, "each signature is looked for in the one kernel function"


def _say_check(one: SassVerdict) -> str:
    """The verdict, and what decided it where that is not the counts alone."""
    if one.proof:
        why = f" ({one.note})" if one.note else ""
        return f"no signature, {one}{why}; it is proved where {one.proof}"
    return f"{one} ({one.note})" if one.note else str(one)


def _explain_update(event: UpdateDone) -> _Explained:
    said = "; ".join(f"{method}: {found}" for method, found in event.classes.items())
    text = f"{said or NO_METHOD}; the next round begins from {event.point}"
    rule = "not in the machine code is implementation_failed whatever the time; above the "
    rule += "threshold is effective, below it ineffective, else undecided; the next round begins "
    rule += "from the champion, or from it without the method that harms most, where that gains "
    rule += "more than can be told, else from where this one began"
    return text, {"time_us": event.time_us, "gain": event.gain}, rule


def _explain_scores(event: FrontierScored) -> _Explained:
    numbers = {
        f"{point} at {workload}": time
        for point, times in event.times_us.items()
        for workload, time in times.items()
    }
    text = f"{how_many(len(event.times_us), 'point')} of the frontier timed on other workloads"
    return text, numbers, "a loser at one size may win at another"


def _explain_restart(event: LoopRestarted) -> _Explained:
    text = f"round {event.round} begins from entry {event.entry} of the frontier, {event.point}"
    return text, {"time_us": event.time_us}, "asked for"


def _explain_stop(event: LoopStopped) -> _Explained:
    return "the loop stops", {}, event.reason


_EXPLAIN: Mapping[type, Callable[[Any], _Explained]] = {
    InitDone: _explain_init,
    GapsDone: _explain_gaps,
    BudgetDone: _explain_budget,
    PickDone: _explain_pick,
    BranchDone: _explain_branch,
    AblateDone: _explain_ablate,
    CheckDone: _explain_check,
    UpdateDone: _explain_update,
    FrontierScored: _explain_scores,
    LoopRestarted: _explain_restart,
    LoopStopped: _explain_stop,
}


# ------------------------------------------------------------------------------- two rounds


@dataclass(frozen=True)
class CounterChange:
    """A counter in two rounds."""

    name: str  # stable
    before: float | None  # in the first; None where missing
    after: float | None  # in the second
    moved: bool | None  # by more than noise; None where either is missing
    # relative to the larger value; of a rate of the peak, ``..._pct``, percentage points
    noise: float

    def __str__(self) -> str:
        before, after = _say(self.before), _say(self.after)
        if self.before is None or self.after is None:
            return f"{self.name}: {before} before, {after} after: cannot be compared"
        if not self.moved:
            return f"{self.name}: {before} and {after}, the same within noise"
        verb = "rose" if self.after > self.before else "fell"
        by = ""
        if self.before:
            by = f" by {abs(self.after / self.before - 1):.0%}"
        return f"{self.name} {verb} from {before} to {after}{by}"


def counter_noise(records: Iterable[Record]) -> dict[str, float]:
    """How far each counter differs between two records of one kernel, in all but 5 % of the pairs.

    One kernel is the same machine code with the same knobs at the same workload. The two were
    profiled on one kind of GPU, on different days as a rule, so rounds of one loop differ by less.

    Args:
        records: of one kind of GPU.

    Returns:
        By name, as `CounterChange.noise`; a counter of fewer than `LEAST_PAIRS` pairs is left out.
    """
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


_AGAINST = {one.name: one.against for one in COUNTERS if one.against}


def _is_share(name: str) -> bool:
    """Whether a counter is a rate of the peak, which is near zero as often as not."""
    return name.endswith("_pct")


def _distance(name: str, before: float, after: float) -> float:
    """In the unit of `CounterChange.noise`."""
    if _is_share(name):
        return abs(after - before)
    largest = max(abs(before), abs(after))
    return abs(after - before) / largest if largest else 0.0


def compare_rounds(
    before: Mapping[str, float | None],
    after: Mapping[str, float | None],
    noise: Mapping[str, float] | None = None,
) -> tuple[CounterChange, ...]:
    """Every counter of two rounds; those that moved most stand first.

    Args:
        before: by stable name; None where missing.
        after: the same of the later round.
        noise: by name, see `counter_noise`; what is not there has `COUNTER_NOISE`, a rate of the
            peak `SHARE_NOISE`.
    """
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
    return tuple(sorted(found, key=lambda one: (one.moved is not True, -_relative(one))))


def _relative(change: CounterChange) -> float:
    if change.before is None or change.after is None:
        return 0.0
    largest = max(abs(change.before), abs(change.after))
    return abs(change.after - change.before) / largest if largest else 0.0


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
