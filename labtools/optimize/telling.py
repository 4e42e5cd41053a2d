"""A loop told in text, HTML and JSON: each step in words, each round with what it left; what was
decided, from which numbers, by which rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from labtools.problem.text import how_many

from . import events
from .attribution import Attribution, interactions, pair_name, say_untimed
from .gaps import say_gaps
from .log import LogLine
from .method import METHOD_AXES
from .sass_check import SassVerdict
from .state import STEP_FIELDS, LoopState, RoundKept, StateFold

STOP = "stop"  # the step of an entry that says why a loop has stopped
NO_METHOD = "no method"
NOT_KNOWN = "-"  # in a cell for which there is no value
_ANSWERED: Mapping[str, tuple[str, ...]] = {
    **STEP_FIELDS,
    "init": (),
    "gaps": ("start", "gaps", "rising", "counters"),
    "ablate": (*STEP_FIELDS["ablate"], "interactions"),
    "restart": ("start",),
}
"""The fields of a round that tell what a step found."""


@dataclass(frozen=True)
class StepTold:
    """One step, explained."""

    n: int  # of its line in the log
    at: str  # UTC, ISO 8601
    step: str  # its name
    round: int  # it belongs to; 0 for the loop's beginning
    decided: str  # in words
    numbers: Mapping[str, Any]  # that it was decided from
    rule: str  # that decided, in words

    def __str__(self) -> str:
        numbers = ", ".join(f"{name} {say_value(value)}" for name, value in self.numbers.items())
        text = f"{self.at}  round {self.round}  {self.step}: {self.decided}"
        return f"{text}\n    from: {numbers or 'nothing'}\n    by: {self.rule}"


@dataclass(frozen=True)
class RoundTold:
    """One round: what it left, and its steps in words."""

    kept: RoundKept
    steps: tuple[StepTold, ...]

    @property
    def row(self) -> dict[str, str]:
        """Its line in a table of rounds, by the column's name."""
        kept = self.kept
        failed = sum(bool(tried.failure) for tried in kept.branches)
        tried = f"{len(kept.branches)}, {failed} failed" if failed else str(len(kept.branches))
        wrong = "none, no branch was right" if kept.has_no_right_branch else ""
        champion = kept.champion or wrong or ("" if kept.abandoned else NOT_KNOWN)
        if kept.abandoned:
            champion += " (abandoned)" if champion else "abandoned"
        rank = NOT_KNOWN if kept.best_rank is None else f"{kept.best_rank} of {kept.candidates}"
        return {
            "round": str(kept.round),
            "methods": ", ".join(kept.methods) or NOT_KNOWN,
            "branches": tried,
            "champion": champion,
            "us": say_us(kept.time_us),
            "gain": NOT_KNOWN if kept.gain is None else f"{kept.gain:+.1%}",
            "forecast's rank of the fastest": rank,
        }

    def found(self, step: str) -> dict[str, Any]:
        """What a step found, by the field's name."""
        return {name: getattr(self.kept, name) for name in _ANSWERED[step]}


def say_value(value: Any) -> str:
    """A number as a person reads it; None is missing."""
    if value is None:
        return "missing"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def say_us(value: float | None) -> str:
    """Microseconds to two digits."""
    return NOT_KNOWN if value is None else f"{value:.2f}"


def tell_rounds(state: LoopState, steps: Sequence[StepTold] = ()) -> tuple[RoundTold, ...]:
    """Every round of a loop."""
    return tuple(
        RoundTold(kept, tuple(told for told in steps if told.round == kept.round))
        for kept in state.history
    )


def tell_steps(lines: Sequence[LogLine]) -> tuple[StepTold, ...]:
    """Every step of a log; measurements stand in the log itself."""
    told = []
    fold = StateFold()
    for line in lines:
        fold.take(line.event)
        number = getattr(line.event, "round", 0)
        explain = _EXPLAIN.get(type(line.event))
        if explain is not None:
            decided, numbers, rule = explain(line.event)
            if isinstance(line.event, events.BudgetDone) and (gaps := fold.rounds[number].gaps):
                numbers = gaps.names()
            told.append(StepTold(line.n, line.at, line.kind, number, decided, numbers, rule))
        if isinstance(line.event, events.BranchDone) and fold.stopped:  # nobody has to say it
            stop = events.LoopStopped(number, fold.stopped)
            decided, numbers, rule = _EXPLAIN[events.LoopStopped](stop)
            told.append(StepTold(line.n, line.at, STOP, number, decided, numbers, rule))
    return tuple(told)


_Explained = tuple[str, Mapping[str, Any], str]
"""What was decided, from which numbers, by which rule."""


def _explain_init(event: events.InitDone) -> _Explained:
    return (
        f"{event.kernel} for {event.workload}, timed {event.on} ({event.gpu}), from {event.start}",
        {"seed": event.seed, "branches": event.branches},
        f"apportionment {event.rule}",
    )


def _explain_gaps(event: events.GapsDone) -> _Explained:
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


def _explain_pick(event: events.PickDone) -> _Explained:
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


def _explain_source(event: events.SourceGiven) -> _Explained:
    one = event.source
    claims = "; ".join(f"{method}, {how}" for method, how in one.say_claims().items())
    text = f"{one.name} is {one.code.file} and claims {claims or NO_METHOD}"
    if one.carried:
        text += f"; it still has the guards of {', '.join(one.carried)}"
    rule = "its source is kept whole, and problem, reference and tolerance are those of the loop"
    return text, {}, rule


def _explain_branch(event: events.BranchDone) -> _Explained:
    numbers: dict[str, Any] = {one.point: one.time_us for one in event.branches}
    failed = [one for one in event.branches if one.failure]
    text = f"champion: {event.champion}" if event.champion else "no branch is right"
    written = any(one.why == "written" for one in event.branches)
    if written:
        text += f"; claimed are {', '.join(event.other_methods or ()) or NO_METHOD}"
    elif event.other_methods is not None:
        text += f", the forecast's best of all, with {', '.join(event.other_methods) or NO_METHOD}"
    for one in failed:
        text += f"; {one.point}: {one.failure}"
    pruned = how_many(sum(event.pruned.values()), "setting")
    rule = "fastest right branch by its median, us, or one that cannot be told from it and lets "
    return text, numbers, f"{rule}more methods be taken out; {pruned} pruned before"


def _explain_ablate(event: events.AblateDone) -> _Explained:
    said = [_say_attribution(one) for one in event.attribution]
    met = interactions(event.attribution, event.pairs, event.aa)
    together = {pair_name(*one.methods): one for one in met}
    for one in event.pairs:
        text = _say_attribution(one)
        if (found := together.get(one.method)) is not None:
            text += f", the product of each alone {found.product:+.1%}: "
            text += _INTERACT[str(found)]
        said.append(text)
    said += say_untimed(event.untimed)
    numbers: dict[str, Any] = {"A/A effect": event.aa.effect}
    for one in (*event.attribution, *event.pairs):
        numbers |= {f"{one.method} low": one.low, f"{one.method} high": one.high}
        numbers["threshold"] = one.threshold
    rule = "time without the method less the champion's, in one call; a verdict where the whole "
    rule += "95 % interval lies on one side of the threshold"
    rule += f"; {event.aa.model}" if event.aa.model else ""
    return "; ".join(said) or NO_METHOD, numbers, rule


_INTERACT = {"yes": "they interact", "no": "no interaction", "undecided": "undecided"}


def _say_attribution(one: Attribution) -> str:
    verdict = "undecided" if one.decided is None else f"{one.decided} the threshold"
    return f"{one.method} {one.delta_us:+.3g} us ({one.relative:+.1%}), {verdict}"


def _explain_check(event: events.CheckDone) -> _Explained:
    said = "; ".join(f"{one.method}: {_say_check(one)}" for one in event.sass_check)
    numbers: dict[str, Any] = {}
    for one in event.sass_check:
        numbers |= {f"{one.method} {pattern}": count for pattern, count in one.found}
        numbers |= {f"{one.method} {pattern} without it": n for pattern, n in one.without}
        numbers |= {f"{one.method} {value.name}": value.value for value in one.values}
        numbers |= {f"{one.method} {value.name} without it": value.without for value in one.values}
    rule = "each signature is looked for in the one kernel function"
    origins = dict.fromkeys(one.origin for one in event.sass_check if one.origin)
    return said or NO_METHOD, numbers, f"{rule}: {'; '.join(origins)}" if origins else rule


def _say_check(one: SassVerdict) -> str:
    """The verdict, what decided it where that is not the counts alone, and what else the method
    switches."""
    said = f"{one} ({one.note})" if one.note else str(one)
    if one.proof:
        said = f"no signature, {said}; it is proved where {one.proof}"
        if one.values:
            shown = (
                f"{value.name} {say_value(value.without)} without it and {say_value(value.value)} "
                f"with it, of {value.origin}"
                for value in one.values
            )
            said += f": {', '.join(shown)}"
    return "; ".join([said, *one.switched])


def _explain_update(event: events.UpdateDone) -> _Explained:
    said = "; ".join(f"{method}: {found}" for method, found in event.classes.items())
    text = f"{said or NO_METHOD}; the next round begins from {event.point}"
    rule = "not in the machine code is implementation_failed whatever the time; in a pair that "
    rule += "does not do the product of each alone is interacts; above the threshold is effective, "
    rule += "below it ineffective, else undecided; the next round begins from the champion, or "
    rule += "from it without the method that harms most, where that gains more than can be told, "
    rule += "else from where this one began"
    return text, {"time_us": event.time_us, "gain": event.gain}, rule


def _explain_scores(event: events.FrontierScored) -> _Explained:
    numbers = {
        f"{point} at {workload}": time
        for point, times in event.times_us.items()
        for workload, time in times.items()
    }
    text = f"{how_many(len(event.times_us), 'point')} of the frontier timed on other workloads"
    return text, numbers, "a loser at one size may win at another"


_EXPLAIN: Mapping[type, Callable[[Any], _Explained]] = {
    events.InitDone: _explain_init,
    events.GapsDone: _explain_gaps,
    events.BudgetDone: lambda event: (
        "slots: " + ", ".join(f"{axis} {event.budget.of(axis)}" for axis in METHOD_AXES),
        {},
        event.budget.reason,
    ),
    events.PickDone: _explain_pick,
    events.SourceGiven: _explain_source,
    events.BranchDone: _explain_branch,
    events.AblateDone: _explain_ablate,
    events.CheckDone: _explain_check,
    events.UpdateDone: _explain_update,
    events.FrontierScored: _explain_scores,
    events.LoopRestarted: lambda event: (
        f"round {event.round} begins from entry {event.entry} of the frontier, {event.point}",
        {"time_us": event.time_us},
        "asked for",
    ),
    events.LoopStopped: lambda event: ("the loop stops", {}, event.reason),
}
