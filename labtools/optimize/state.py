"""The state of a loop: what its log says, folded, and which step comes next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import Field

from labtools.problem import LabError
from labtools.problem.text import first_line, how_many
from labtools.toolchain.apart import was_stopped

from . import events
from .attribution import AA, THRESHOLD, Attribution, Interaction, MethodClass, interactions
from .budget import Budget
from .events import UNCOUNTED, BranchTried, LoopSetup, Purpose, kind_of
from .gaps import Gaps
from .log import LogRead, say_command
from .method import Axis
from .pick import Pick, Retry
from .sass_check import SassVerdict
from .score import ScoreEnds, SolScore
from .source import BranchSource, diff_of

STATE_VERSION = 2  # of ``state.json``
ROUND_PREFIX = "iterv"  # with which the name of a round's folder begins
STEPS = ("gaps", "budget", "pick", "branch", "ablate", "check", "update")
"""Of a round, in their order."""
BEST_FORECASTS = 4  # as many candidates of a round are asked for the fastest, see `ForecastHits`
MOST_RETRIES = 3  # times that ``branch`` may be done again where no branch was right
METHOD_CLASSES: tuple[MethodClass, ...] = get_args(MethodClass)


class OutOfOrder(LabError):
    """A step that may not come now; names those that may."""


class GivenRefused(LabError):
    """What somebody decided for a step, and the step cannot take."""


@dataclass(frozen=True)
class RooflineEntry:
    """The gaps that a round began with, and its budget; None until that is set."""

    round: int
    gaps: Gaps
    budget: Budget | None = None


@dataclass(frozen=True)
class FrontierEntry:
    """A right candidate no next round began from, or a champion left by a restart or the end."""

    iteration: int  # the round; 0 where the loop began
    branch: int  # its number in the round; 0 where it is none
    point: str  # its key
    path: str  # of its source, in the loop's folder; empty for the start
    time_us: float  # at the loop's workload
    others_us: Mapping[str, float] = field(default_factory=dict)  # by other workload, once scored


@dataclass(frozen=True)
class TimedRun:
    """One run of the search, in the order in which they were made."""

    round: int  # that it belongs to
    purpose: Purpose  # what it was for
    point: str  # its key
    time_us: float | None  # microseconds; None where it failed


@dataclass(frozen=True)
class RoundKept:
    """What is known of one round; a step that was not done left None or nothing."""

    round: int  # its number, from 1
    start: str = ""  # key of the point that it began from
    gaps: Gaps | None = None
    counters: Mapping[str, float | None] = field(default_factory=dict)
    rising: tuple[Axis, ...] = ()
    ends: ScoreEnds | None = None  # between which times are scored, where the bench has a baseline
    budget: Budget | None = None
    pick: Pick | None = None
    acknowledged: Mapping[str, Retry] = field(default_factory=dict)
    given: bool = False  # the caller chose the methods
    branches: tuple[BranchTried, ...] = ()
    pruned: Mapping[str, int] = field(default_factory=dict)
    candidates: int = 0  # settings that the forecast ordered, in the last attempt
    best_rank: int | None = None  # of the fastest of them, where known
    other_methods: tuple[str, ...] | None = None  # of the champion, in place of those picked
    retries: int = 0  # times that ``branch`` found nothing right
    champion: str | None = None
    time_us: float | None = None
    aa: AA | None = None
    attribution: tuple[Attribution, ...] | None = None
    pairs: tuple[Attribution, ...] = ()
    untimed: Mapping[str, str] = field(default_factory=dict)
    sass_check: tuple[SassVerdict, ...] | None = None
    classes: Mapping[str, MethodClass] | None = None
    gain: float | None = None
    analysis: str = ""
    # points that were to be timed, by purpose
    planned: Mapping[Purpose, tuple[str, ...]] = field(default_factory=dict)
    kept: Mapping[Purpose, tuple[str, ...]] = field(default_factory=dict)  # of these, timed
    abandoned: bool = False  # by a restart
    restarted: bool = False  # a restart begins it

    @property
    def methods(self) -> tuple[str, ...]:
        """Those that the round judges: the picked ones, or where others lead, these."""
        if self.other_methods is not None:
            return self.other_methods
        return self.pick.methods if self.pick else ()

    @property
    def interactions(self) -> tuple[Interaction, ...]:
        """Of each pair that was taken out, what the two do together against each alone."""
        if self.aa is None:
            return ()
        return interactions(self.attribution or (), self.pairs, self.aa)

    @property
    def is_written(self) -> bool:
        """Somebody wrote its branches."""
        return any(one.why == "written" for one in self.branches)

    @property
    def has_no_right_branch(self) -> bool:
        """It tried some, and none is right."""
        return bool(self.branches) and self.champion is None

    @property
    def next_step(self) -> str | None:
        """The first step that left nothing; None once the round is whole."""
        left = {
            "gaps": self.gaps,
            "budget": self.budget,
            "pick": self.pick,
            "branch": self.champion,
            "ablate": self.attribution,
            "check": self.sass_check,
            "update": self.classes,
        }
        if self.classes is not None:  # a line that was lost of a round that is over is not redone
            return None
        return next(step for step in STEPS if left[step] is None)


@dataclass(frozen=True)
class LoopState(LoopSetup):
    """What a loop knows. Field names are those of the source's ``state.json`` where it has them."""

    schema_version: int  # `STATE_VERSION`
    round: int  # that is under way, or the last one
    next_steps: tuple[str, ...]  # that may come now; empty once the loop has stopped
    stopped: str  # why; empty while it goes on
    point: str  # key of the champion, from which the next round begins
    time_us: float | None  # of that point; None until it was timed
    knobs: Mapping[str, Mapping[str, int]]  # of every point that was timed, by key
    effective_methods: tuple[str, ...]  # on at `point`, in its code, and it is slower without
    ineffective_methods: tuple[str, ...]  # in the machine code, and no such effect
    implementation_failed_methods: tuple[str, ...]  # not in the machine code
    interacts_methods: tuple[str, ...]  # with another they do not do the product of each alone
    undecided_methods: tuple[str, ...]  # the interval says neither
    selected_methods: tuple[str, ...]  # of the round that is under way
    roofline_history: tuple[RooflineEntry, ...]  # gaps and budget of each round
    frontier: tuple[FrontierEntry, ...]  # see `FrontierEntry`
    history: tuple[RoundKept, ...]  # each round
    timed: tuple[TimedRun, ...]  # runs of the search, in their order
    log_lines: int  # how many lines of the log this follows from
    log_hash: str  # of the last of them
    # what somebody wrote, by the key of its point; the log has it
    sources: Annotated[Mapping[str, BranchSource], Field(exclude=True)] = field(
        default_factory=dict
    )

    @property
    def runs(self) -> int:
        """Candidates that were run, ablations included."""
        return len(self.timed)

    @property
    def current(self) -> RoundKept:
        """The round that is under way, or the last one; empty before the first."""
        return self.history[-1] if self.history else RoundKept(0)

    @property
    def since_restart(self) -> tuple[RoundKept, ...]:
        """The rounds from the last restart on; what was before it ends and explains nothing."""
        restarts = [number for number, one in enumerate(self.history) if one.restarted]
        return self.history[restarts[-1] if restarts else 0 :]

    @property
    def rounds(self) -> int:
        """Rounds that are whole."""
        return sum(one.classes is not None for one in self.history)

    @property
    def rounds_since_restart(self) -> int:
        """Rounds that are whole, from the last restart on."""
        return sum(one.classes is not None for one in self.since_restart)

    @property
    def is_wrong(self) -> bool:
        """It stopped in a round of which no branch is right."""
        return bool(self.stopped) and self.current.has_no_right_branch

    @property
    def wrong_picks(self) -> dict[tuple[str, ...], int]:
        """Methods that were picked together, and the latest round in which no branch of them was
        right; but for those that were among a later round's, of which one was."""
        found: dict[tuple[str, ...], int] = {}
        for one in self.history:
            if one.has_no_right_branch and one.methods:
                found[one.methods] = one.round
            elif one.champion is not None:
                found = {some: at for some, at in found.items() if set(some) - set(one.methods)}
        return found

    @property
    def sol(self) -> SolScore | None:
        """The champion's time between the floor and the fastest fair library."""
        ends = next((one.ends for one in reversed(self.history) if one.ends), None)
        return ends.score(self.time_us) if ends and self.time_us is not None else None

    @property
    def latest_classes(self) -> dict[str, MethodClass]:
        """The latest class of each method that says something, of whatever source it was."""
        every = (found for kept in self.history for found in (kept.classes or {}).items())
        return {name: found for name, found in every if found != "undecided"}

    def diff_sources(self, before: str, after: str) -> str:
        """What changed from a point to another in what somebody wrote, as a unified diff."""
        found = []
        for key in (before, after):
            name, *out = key.split()
            if name not in self.sources:
                return ""
            found.append(self.sources[name].source_without([one[1:] for one in out]))
        return diff_of(*found)

    @property
    def forecast_hits(self) -> ForecastHits | None:
        """How often the forecast's first branches held the fastest; None where times are forecasts
        themselves, and where the forecast chose no branches yet."""
        whole = [one for one in self.history if one.champion is not None and not one.abandoned]
        whys = [{b.why for b in one.branches if b.point == one.champion} for one in whole]
        chosen_here = {"given", "written"}  # by whoever drives the loop
        led = [one for one, why in zip(whole, whys, strict=True) if not why & chosen_here]
        if self.on == "forecast" or not led:
            return None
        chosen = [why for why in whys if "forecast" in why and not why & chosen_here]
        pruned = [one for one in led if one.candidates > BEST_FORECASTS]
        ranks = [one.best_rank for one in pruned if one.best_rank is not None]
        within = sum(rank <= BEST_FORECASTS for rank in ranks)
        return ForecastHits(len(led), len(chosen), len(ranks), within)

    def say_notices(self, folder: Path) -> Iterator[str]:
        """What is to be known beside the answer: `say_faster`, and `say_stopped`."""
        yield from self.say_faster(folder)
        yield from self.say_stopped()

    def say_stopped(self) -> Iterator[str]:
        """What a limit of the compiler left without a verdict, round by round: it is no fault of a
        method, which stays undecided, or of a branch, which was not tried."""
        for kept in self.history:
            found = dict(kept.untimed) | {
                f"branch {one.branch}": one.failure for one in kept.branches
            }
            for name, why in found.items():
                if was_stopped(why):
                    yield f"round {kept.round}: {name} has no verdict: {first_line(why)}"

    def say_faster(self, folder: Path) -> Iterator[str]:
        """That the frontier holds a faster point than the champion, as it may after a restart. In a
        round that is under way the champion is what leads it, once that is known."""
        if self.time_us is None or not self.frontier:
            return
        leads = self.time_us
        if self.current.classes is None and self.current.time_us is not None:
            leads = min(leads, self.current.time_us)
        least = next((kept.aa.effect for kept in reversed(self.history) if kept.aa), THRESHOLD)
        number, entry = min(enumerate(self.frontier), key=lambda item: item[1].time_us)
        if leads > (1 + least) * entry.time_us:
            yield (
                f"entry {number} of the frontier took {entry.time_us:.2f} us in round "
                f"{entry.iteration}: {say_command('restart', folder, number)} goes back to it"
            )

    def say_resumed(self) -> str:
        """Where the loop goes on, and what of a step that was cut off is kept."""
        open_ = self.current
        if self.stopped:
            where = f" {'in' if open_.classes is None else 'after'} round {self.round}"
            return f"stopped{where if self.round else ''}: {self.stopped}"
        planned = sum(map(len, open_.planned.values()))
        said = f"next is {self.next_steps[0]}"
        if open_.next_step is not None and planned:
            kept = sum(
                len(set(points) & set(open_.kept.get(purpose, ())))
                for purpose, points in open_.planned.items()
            )
            said = f"{kept} of {planned} measurements kept; {said}"
        return f"resumed at round {self.round}: {said}"


# -------------------------------------------------------------------------------- from the log


STEP_FIELDS: Mapping[str, tuple[str, ...]] = {
    "gaps": ("gaps", "counters", "rising", "ends"),
    "budget": ("budget",),
    "pick": ("pick", "acknowledged", "given"),
    "branch": (
        *("branches", "pruned", "candidates", "best_rank"),
        *("other_methods", "retries", "champion", "time_us"),
    ),
    "ablate": ("aa", "attribution", "pairs", "untimed"),
    "check": ("sass_check",),
    "update": ("classes", "gain", "analysis"),
}
"""The fields of a round that each step sets."""


class StateFold:
    """A state in the making: takes events in their order."""

    def __init__(self) -> None:
        self.init: events.InitDone | None = None
        self.rounds: dict[int, RoundKept] = {}
        self.point = ""
        self.time_us: float | None = None
        self.stopped = ""
        self.classes: dict[str, MethodClass] = {}
        self.on: dict[str, frozenset[str]] = {}  # methods that are on at a point, of those judged
        self.frontier: list[FrontierEntry] = []
        self.timed: list[TimedRun] = []
        self.knobs: dict[str, Mapping[str, int]] = {}
        self.times_us: dict[str, float] = {}
        self.sources: dict[str, BranchSource] = {}

    def take(self, event: Any) -> None:
        """Enter one event."""
        getattr(self, f"_take_{kind_of(event)}", self._step)(event)

    def _round(self, number: int) -> RoundKept:
        return self.rounds.setdefault(number, RoundKept(number, start=self.point))

    def _set(self, event: Any, **values: Any) -> None:
        self.rounds[event.round] = replace(self._round(event.round), **values)

    def _step(self, event: Any, **values: Any) -> None:
        """What a step left. What later steps left of its round follows from it, so a step that is
        done again, where its line was lost, unmakes that; what was timed stays."""
        kind, none = kind_of(event), RoundKept(event.round)
        later = [name for step in STEPS[STEPS.index(kind) + 1 :] for name in STEP_FIELDS[step]]
        left = {name: getattr(event, name) for name in STEP_FIELDS[kind] if name not in values}
        self._set(event, **{name: getattr(none, name) for name in later}, **left, **values)

    def _take_init(self, event: events.InitDone) -> None:
        self.init, self.point = event, event.start
        self.knobs[event.start] = event.start_knobs
        if event.source is not None:
            self.sources[event.start] = event.source

    def _take_source(self, event: events.SourceGiven) -> None:
        self.sources[event.source.name] = event.source

    def _take_gaps(self, event: events.GapsDone) -> None:
        if event.point != self.point:  # the line that led there is lost
            self.point, self.time_us = event.point, self.times_us.get(event.point)
        self._step(event, start=event.point)

    def _take_plan(self, event: events.PlanMade) -> None:
        before = self._round(event.round).planned
        points = dict.fromkeys((*before.get(event.purpose, ()), *event.points))
        self._set(event, planned={**before, event.purpose: tuple(points)})

    def _take_timed(self, event: events.PointTimed) -> None:
        if event.knobs or event.point.partition(" ")[0] in self.sources:
            self.knobs[event.point] = event.knobs
        time_us = event.time_us
        if event.purpose not in UNCOUNTED:
            self.timed.append(TimedRun(event.round, event.purpose, event.point, time_us))
        # Its own line may be lost; then what it was timed beside others will do.
        alone = event.purpose in ("start", "reference") and event.point == self.point
        if alone and self.time_us is None:
            self.time_us = time_us
        if time_us is not None and not event.workload:
            self.times_us[event.point] = time_us
        kept = self._round(event.round).kept
        points = dict.fromkeys((*kept.get(event.purpose, ()), event.point))
        self._set(event, kept={**kept, event.purpose: tuple(points)})

    def _take_branch(self, event: events.BranchDone) -> None:
        before = self._round(event.round)
        right = {one.point: one.time_us for one in event.branches if one.is_right}
        branches = {one.branch: one for one in (*before.branches, *event.branches)}
        again = {one.point for one in before.branches if one.is_right}
        self.frontier = [
            one for one in self.frontier if one.iteration != event.round or one.point not in again
        ]
        self._step(
            event,
            branches=tuple(branches.values()),
            time_us=None if event.champion is None else right.get(event.champion),
            retries=before.retries + (event.champion is None),
        )
        for one in event.branches:
            if one.point != event.champion:
                self._leave_behind(event.round, one)
        kept = self.rounds[event.round]
        if kept.champion is None and kept.retries > MOST_RETRIES:
            why = f"round {event.round} has no right branch after {MOST_RETRIES} retries"
            self._stop(f"{why}: {say_failures(kept.branches)}")

    def _leave_behind(self, number: int, one: BranchTried) -> None:
        """A right branch that the next round does not begin from."""
        known = {(entry.iteration, entry.point) for entry in self.frontier}
        if one.is_right and one.time_us is not None and (number, one.point) not in known:
            path = f"{round_folder(number)}/branches/{one.branch}"
            self.frontier.append(FrontierEntry(number, one.branch, one.point, path, one.time_us))

    def _take_update(self, event: events.UpdateDone) -> None:
        self._set(event, classes=event.classes, gain=event.gain, analysis=event.analysis)
        self.point, self.time_us = event.point, event.time_us
        kept = self.rounds[event.round]
        self.on[event.point] = (
            self._on_in(kept, event.point) if event.on is None else frozenset(event.on)
        )
        for one in kept.branches:
            if one.point == kept.champion != event.point:  # it led its round and no more
                self._leave_behind(event.round, one)
        for method, found in event.classes.items():
            self.classes.pop(method, None)  # the latest verdict stands, at the end
            self.classes[method] = found

    def _take_frontier(self, event: events.FrontierScored) -> None:
        self.frontier = [
            replace(one, others_us={**one.others_us, **event.times_us.get(one.point, {})})
            for one in self.frontier
        ]

    def _on_in(self, kept: RoundKept, point: str) -> frozenset[str]:
        """The methods that are on at a point of a round, as far as its log says."""
        before = self.on.get(kept.start, frozenset())
        if point == kept.start:
            return before
        out = {one.method for one in kept.attribution or () if one.without == point}
        return (before | set(kept.methods)) - out

    def _leave_champion(self) -> None:
        """The point that the loop turns away from stays in the frontier, to be had again."""
        known = {one.point for one in self.frontier}
        if self.time_us is not None and self.point not in known:
            iteration, branch, path = self._where_made(self.point)
            self.frontier.append(FrontierEntry(iteration, branch, self.point, path, self.time_us))

    def _where_made(self, point: str) -> tuple[int, int, str]:
        """Round, branch and path of a point, as `FrontierEntry` has them; the latest that holds."""
        for number, kept in sorted(self.rounds.items(), reverse=True):
            for one in kept.branches:
                if one.point == point:
                    return number, one.branch, f"{round_folder(number)}/branches/{one.branch}"
            for found in kept.attribution or ():
                if found.without == point:
                    return number, 0, f"{round_folder(number)}/ablations/{found.method}"
        return 0, 0, ""

    def _take_restart(self, event: events.LoopRestarted) -> None:
        if self.point != event.point:
            self._leave_champion()
        for number, one in self.rounds.items():
            if one.classes is None and not one.abandoned:
                self.rounds[number] = replace(one, abandoned=True)
                for tried in one.branches:  # what led it is right, and was measured
                    if tried.point == one.champion != event.point:
                        self._leave_behind(number, tried)
        self.point, self.time_us, self.stopped = event.point, event.time_us, ""
        if event.point not in self.on:
            made = self.rounds.get(self._where_made(event.point)[0])
            self.on[event.point] = self._on_in(made, event.point) if made else frozenset()
        self.rounds[event.round] = RoundKept(event.round, start=event.point, restarted=True)

    def _take_stop(self, event: events.LoopStopped) -> None:
        self._stop(event.reason)

    def _stop(self, reason: str) -> None:
        self.stopped = reason
        self._leave_champion()  # a restart may try on from there, with other choices

    def finish(self, read: LogRead, path: Path) -> LoopState:
        """The state."""
        init = self.init
        if init is None:
            raise LabError(
                f"{path} does not say how its loop began.",
                "; ".join(read.notices) or "it is empty",
                "labtools loop init in another folder",
            )
        history = tuple(self.rounds[number] for number in sorted(self.rounds))
        last = history[-1] if history else RoundKept(0)
        following = (last.next_step if history else None) or STEPS[0]
        steps: tuple[str, ...] = () if self.stopped else (following,)
        if steps == ("ablate",) and last.is_written:  # until then more may be written
            steps = ("ablate", "branch")
        over = last.classes is not None or not history
        return LoopState(
            schema_version=STATE_VERSION,
            **{one.name: getattr(init, one.name) for one in fields(LoopSetup)},
            round=last.round + 1 if over and steps else last.round,
            next_steps=steps,
            stopped=self.stopped,
            point=self.point,
            time_us=self.time_us,
            knobs=self.knobs,
            effective_methods=self._methods("effective"),
            ineffective_methods=self._methods("ineffective"),
            implementation_failed_methods=self._methods("implementation_failed"),
            interacts_methods=self._methods("interacts"),
            undecided_methods=self._methods("undecided"),
            selected_methods=() if over else last.methods,
            roofline_history=tuple(
                RooflineEntry(one.round, one.gaps, one.budget)
                for one in history
                if one.gaps is not None
            ),
            frontier=tuple(self.frontier),
            history=history,
            timed=tuple(self.timed),
            log_lines=len(read.lines),
            log_hash=read.last_hash,
            sources=self.sources,
        )

    def _methods(self, wanted: MethodClass) -> tuple[str, ...]:
        """Methods of a class; effective is only what is on in the line that is kept."""
        on = self.on.get(self.point, frozenset())
        return tuple(
            method
            for method, found in self.classes.items()
            if found == wanted and (wanted != "effective" or method in on)
        )


def say_failures(branches: Iterable[BranchTried]) -> str:
    """Why branches are wrong or have no time, each reason once, by a check's first line."""
    wrong = [first_line(one.failure) or "it has no time" for one in branches if not one.is_right]
    return "; ".join(dict.fromkeys(wrong))


def round_folder(number: int) -> str:
    """The name of a round's folder."""
    return f"{ROUND_PREFIX}{number}"


def check_step(state: LoopState, event: Any) -> None:
    """Refuse a step that contradicts its round."""
    if event.round != state.round:
        raise LabError(
            f"This is a step of round {event.round}.",
            f"the loop is in round {state.round}",
            "the same step of that round",
        )
    current = state.current
    if isinstance(event, events.BranchDone):
        right = {one.point for one in event.branches if one.is_right}
        if event.champion is not None and event.champion not in right:
            raise LabError(
                f"{event.champion} cannot be the champion.",
                "it is no branch of this round that is right and was timed",
                "one of " + (", ".join(sorted(right)) or "none: no branch is right"),
            )
    if isinstance(event, events.UpdateDone):
        attributed = [*(one.method for one in current.attribution or ()), *current.untimed]
        checked = [one.method for one in current.sass_check or ()]
        known = {"attribution": attributed, "SASS check": checked, "class": event.classes}
        for what, found in known.items():
            if missing := sorted(set(current.methods) - set(found)):
                raise LabError(
                    f"The round cannot be updated without {what} of {', '.join(missing)}.",
                    "a method is believed by its attribution and its machine code alone",
                    "a restart, which abandons the round",
                )


def say_wrong_picks(state: LoopState) -> Iterable[str]:
    """Methods of which no branch was right, with the round."""
    for methods, number in state.wrong_picks.items():
        yield f"{' and '.join(methods)} (round {number})"


def methods_by_class(state: LoopState) -> Iterable[tuple[MethodClass, tuple[str, ...]]]:
    """Each class with its methods, the three of the source first."""
    for name in METHOD_CLASSES:
        yield name, getattr(state, f"{name}_methods")


# ------------------------------------------------------------------------------------- results


@dataclass(frozen=True)
class ForecastHits:
    """What the forecast was worth that pruned the candidates."""

    rounds: int  # with a right branch
    led: int  # of these, rounds whose fastest branch was one of the forecast's first, and not drawn
    known: int  # with more than `BEST_FORECASTS` candidates, all times known
    best_four: int  # of those, with the fastest among the first `BEST_FORECASTS`

    def __str__(self) -> str:
        rounds = how_many(self.rounds, "round")
        text = f"the forecast's first branches led {self.led} of {rounds}"
        if self.known:
            text += (
                f"; its best {BEST_FORECASTS} held the fastest candidate in {self.best_four} of "
                f"{self.known}"
            )
        return text


@dataclass(frozen=True)
class FoundPoint:
    """A point and its time."""

    point: str  # its key
    knobs: Mapping[str, int]  # all of them
    time_us: float  # microseconds


@dataclass(frozen=True)
class LoopResult:
    """How a loop ended."""

    champion: FoundPoint  # from which a next round would begin
    rounds: int  # that are whole
    runs: int  # candidates that were run, ablations included
    stopped: str  # why
    best: FoundPoint | None = None  # of the whole recorded grid
    best_leading: FoundPoint | None = None  # of its points that may lead
    sol: SolScore | None = None  # None without a baseline
    forecast: ForecastHits | None = None  # see `LoopState.forecast_hits`


@dataclass(frozen=True)
class AblatedPoint:
    """A point with one method out at a time, outside of any loop."""

    of: FoundPoint  # the point
    origin: str  # of its times: live, recorded or forecast
    aa: AA  # the smallest effect that can be told here
    attribution: tuple[Attribution, ...]  # of each method
    pairs: tuple[Attribution, ...]  # of two methods out together, where that was asked for
    sass_check: tuple[SassVerdict, ...]  # of each method that has a time
    classes: Mapping[str, MethodClass]  # of each method that has a time
    gpu: str = ""  # short name
    interactions: tuple[Interaction, ...] = ()  # of each pair
    untimed: Mapping[str, str] = field(default_factory=dict)  # why, by method or pair
