"""``labtools loop`` and ``labtools ablate``: what the steps answer.

The steps themselves are functions of ``labtools.optimize.loop``; `LoopSteps` says what of them is
used. What only reads, or only adds to the log, is done here with the loop's folder.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar, cast

from pydantic import ConfigDict, ValidationError

from labtools.measure.channel import adapter_of
from labtools.optimize.attribution import (
    FORECAST_INTERVALS,
    PAIR_COLUMNS,
    Attribution,
    Outcome,
    outcome_of,
    say_effect,
    say_pairs,
    say_untimed,
)
from labtools.optimize.audit import (
    COUNTER_NOISE,
    SHARE_NOISE,
    STOP,
    AuditEntry,
    CounterChange,
    audit,
    compare_rounds,
    counter_noise,
    say_changes,
)
from labtools.optimize.budget import DEFAULT_BRANCHES, DEFAULT_RULE, rule_named
from labtools.optimize.family import Family
from labtools.optimize.log import say_command
from labtools.optimize.loop_folder import LoopFolder, LoopThere, family_lost
from labtools.optimize.removals import single_variants
from labtools.optimize.state import (
    AblatedPoint,
    GivenRefused,
    LoopResult,
    LoopState,
    OutOfOrder,
    RoundKept,
    say_wrong_picks,
)
from labtools.optimize.summary import SummaryTable, summarise, summary_html, summary_text
from labtools.problem import LabError, Problem, as_lab_error
from labtools.problem.rung import say_knobs
from labtools.problem.text import MOST_BYTES, given_path, how_many, read_given
from labtools.record import RecordStore, select
from labtools.record.whole import write_whole
from labtools.toolchain.progress import Progress, with_time_left

from .given import named_knobs, read_family, read_workload
from .outcome import Answer, Status, UsageProblem, parts, print_table, typed

if TYPE_CHECKING:
    from rich.console import Console

    from labtools.optimize.bench import TimedOn

T = TypeVar("T")
DEFAULT_FAMILY = "tunable"


class LoopSteps(Protocol):
    """The steps of a loop. Each opens the folder, does its work, keeps it there and returns the
    state; one that may not come now raises `OutOfOrder`."""

    def init(
        self,
        folder: Path,
        family: Family,
        workload: Problem | None,
        on: TimedOn,
        seed: int,
        branches: int,
        rule: str,
    ) -> LoopState:
        """Begin a loop; None is the family's headline."""

    def gaps(
        self, folder: Path, family: Family, counters: Mapping[str, float | None] | None
    ) -> LoopState:
        """Gaps of the champion; given counters stand for those of the bench."""

    def budget(self, folder: Path, family: Family, rule: str | None) -> LoopState:
        """Slots; None takes the loop's rule."""

    def pick(
        self,
        folder: Path,
        family: Family,
        methods: Sequence[str] | None,
        acknowledged: Mapping[str, str],
    ) -> LoopState:
        """The round's methods; None lets the policy choose."""

    def branch(
        self,
        folder: Path,
        family: Family,
        branches: Sequence[Mapping[str, int]] | None,
        progress: Progress,
    ) -> LoopState:
        """Candidates by their knobs; None lets the policy choose."""

    def ablate(self, folder: Path, family: Family, pairs: bool, progress: Progress) -> LoopState:
        """The champion with one method out at a time."""

    def check(self, folder: Path, family: Family) -> LoopState:
        """Each method in the champion's machine code."""

    def update(self, folder: Path, family: Family, analysis: str) -> LoopState:
        """Classes; the round is over."""

    def run(
        self,
        folder: Path,
        family: Family,
        max_rounds: int,
        max_runs: int | None,
        progress: Progress,
    ) -> LoopResult:
        """The automatic policy, from where the loop stands to its end."""

    def export(self, folder: Path, family: Family, target: Path) -> tuple[Path, ...]:
        """Write what another program can use; the files that were written."""

    def ablate_point(
        self,
        family: Family,
        workload: Problem | None,
        on: TimedOn,
        knobs: Mapping[str, int],
        methods: Sequence[str],
        pairs: bool,
        seed: int,
        progress: Progress,
    ) -> AblatedPoint:
        """A point without a loop; no methods are all that are on there."""


def loop_steps() -> LoopSteps:
    """The steps that commands take."""
    from labtools.optimize import loop

    return loop


# --------------------------------------------------------------------------------------- input


@dataclass(frozen=True)
class GapsInput:
    """What a step ``gaps`` may be given: counters by their stable names."""

    __pydantic_config__ = ConfigDict(extra="forbid")
    counters: Mapping[str, float | None]


@dataclass(frozen=True)
class PickInput:
    """What a step ``pick`` may be given: methods, and why one that failed may succeed now."""

    __pydantic_config__ = ConfigDict(extra="forbid")
    methods: tuple[str, ...]
    acknowledged: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class BranchInput:
    """What a step ``branch`` may be given: the knobs of each candidate."""

    __pydantic_config__ = ConfigDict(extra="forbid")
    branches: tuple[Mapping[str, int], ...]


@dataclass(frozen=True)
class UpdateInput:
    """What a step ``update`` may be given: what was learnt, in words."""

    __pydantic_config__ = ConfigDict(extra="forbid")
    analysis: str


def read_input(text: str | None, kind: type[T]) -> T | None:
    """What was given for a step: JSON in a file, or on stdin for ``-``.

    Raises:
        UsageProblem: it cannot be read, or is not what the step takes.
    """
    if text is None:
        return None
    with typed():
        try:
            told = sys.stdin.read(MOST_BYTES) if text == "-" else read_given(given_path(text))
            json.loads(told, object_pairs_hook=_without_doubles)
            value: T = adapter_of(kind).validate_json(told, strict=True)
        except (OSError, ValueError, RecursionError) as error:  # pydantic's, json's: ValueErrors
            raise LabError(
                f"The input {text} cannot be used.",
                _say_input_error(error),
                "labtools loop STEP --help shows what a step takes",
            ) from error
    return value


def _without_doubles(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """An object of JSON; of a name that stands in it twice nobody knows which value is meant."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice} is given twice")
    return found


def _say_input_error(error: OSError | ValueError | RecursionError) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, ValidationError):
        return "; ".join(
            f"{'.'.join(map(str, one['loc'])) or 'the whole'}: {one['msg']}"
            for one in error.errors()
        )
    return str(error)


# --------------------------------------------------------------------------------------- steps


@dataclass(frozen=True)
class StepAnswer(Answer):
    """What a step decided, from which numbers, by which rule, and what may come next."""

    folder: Path
    step: str
    round: int
    next: tuple[str, ...]
    stopped: str
    result: Mapping[str, Any]
    explained: AuditEntry | None
    notices: tuple[str, ...]
    _is_wrong: bool = False

    @property
    def asides(self) -> tuple[str, ...]:
        """What was mended."""
        return self.notices

    @property
    def status(self) -> Status:
        """1 where no branch is right, of this attempt or of all."""
        return Status.WRONG if self._is_wrong else Status.RIGHT

    def show(self, console: Console) -> None:
        """The explanation, and the next step."""
        if self.explained is not None:
            console.print(str(self.explained), markup=False)
        if not self.stopped:
            following = " or ".join(say_command(step, self.folder) for step in self.next)
            console.print(f"next: {following}", markup=False)
        elif self.explained is None or self.explained.step != STOP:  # which says it
            console.print(f"stopped: {self.stopped}", markup=False)


_RESULTS: Mapping[str, tuple[str, ...]] = {
    "init": (),
    "gaps": ("start", "gaps", "rising", "counters"),
    "budget": ("budget",),
    "pick": ("pick", "acknowledged"),
    "branch": (
        *("branches", "pruned", "candidates", "best_rank"),
        *("champion", "time_us", "retries"),
    ),
    "ablate": ("aa", "attribution", "pairs", "interactions", "untimed"),
    "check": ("sass_check",),
    "update": ("classes", "gain", "analysis"),
    "restart": ("start",),
}
"""What of a round each step answers."""


@contextlib.contextmanager
def _in_order() -> Iterator[None]:
    """Inside, a step out of order, or what a step cannot take, is about what was typed."""
    try:
        yield
    except (OutOfOrder, GivenRefused) as error:
        raise UsageProblem(error) from error


def _answer(
    step: str,
    folder: Path,
    state: LoopState,
    notices: tuple[str, ...],
    since: int = 0,
    more: Mapping[str, Any] | None = None,
) -> StepAnswer:
    """What a step did, by the lines that it added to the log.

    One that finds nothing to do has stopped the loop instead.
    """
    added = [one for one in audit(LoopFolder.look(folder).lines) if one.n >= since]
    entries = [one for one in added if one.step == step] or added
    done = entries[-1] if entries else None
    kept = next((one for one in state.history if done and one.round == done.round), RoundKept(0))
    return StepAnswer(
        folder=folder,
        step=step,
        round=done.round if done else state.round,
        next=state.next_steps,
        stopped=state.stopped,
        result={name: getattr(kept, name) for name in _RESULTS[step]} | dict(more or {}),
        explained=done,
        notices=notices,
        _is_wrong=step == "branch" and kept.has_no_right_branch,
    )


@dataclass(frozen=True)
class LoopAsked:
    """What was typed of a loop; None is what the loop takes by default, or has already."""

    kernel: str | None = None  # a family
    workload: str | None = None  # a problem's short form, name or file
    on: TimedOn | None = None  # where its times come from
    seed: int | None = None  # of what is drawn
    branches: int | None = None  # candidates a round
    rule: str | None = None  # of apportionment

    def begin(self, folder: Path) -> LoopState:
        """Begin such a loop in a new folder."""
        family = read_family(self.kernel or DEFAULT_FAMILY)
        problem = None if self.workload is None else read_workload(self.workload)
        with typed():
            rule = rule_named(self.rule or DEFAULT_RULE)
        return loop_steps().init(
            *(folder, family, problem, self.on or "recorded", self.seed or 0),
            *(self.branches or DEFAULT_BRANCHES, rule),
        )

    def check_same(self, folder: Path, state: LoopState) -> None:
        """Refuse to go on with a loop that is another one than was asked for.

        Raises:
            UsageProblem: it is.
            LabError: the family that it works on cannot be loaded.
        """
        simple = ("on", "seed", "branches", "rule")
        asked = {
            **{"kernel": self.kernel and read_family(self.kernel).path},
            **{"workload": self.workload and str(read_workload(self.workload))},
            **{name: getattr(self, name) for name in simple},
        }
        held = {
            **{"kernel": _family_of(folder, state).path, "workload": str(state.workload)},
            **{name: getattr(state, name) for name in simple},
        }
        other = [
            f"{name} {held[name]}, not {wanted}"
            for name, wanted in asked.items()
            if wanted is not None and held[name] != wanted
        ]
        if other:
            with typed():
                raise LabError(
                    "The folder holds another loop.", f"it has {'; '.join(other)}", "another folder"
                )


def _family_of(folder: Path, state: LoopState) -> Family:
    """The family that a loop works on."""
    try:
        return read_family(state.family)
    except UsageProblem as error:
        raise family_lost(folder, state.family, as_lab_error(error.error)) from error


def begin_loop(folder: Path, asked: LoopAsked, progress: Progress) -> StepAnswer:
    """Begin a loop in a new folder."""
    return _answer("init", folder, asked.begin(folder), ())


def do_step(
    folder: Path,
    step: str,
    given: str | None,
    progress: Progress,
    *,
    rule: str | None = None,
    pairs: bool = False,
) -> StepAnswer:
    """One step of a round.

    Args:
        folder: of the loop.
        step: its name.
        given: JSON file, or ``-``, with what the caller decides.
        progress: called with how far it is.
        rule: of apportionment, for ``budget``.
        pairs: two methods out at once too, for ``ablate``.
    """
    before = LoopFolder.look(folder)
    with _in_order():
        before.require(step)
        family = _family_of(folder, before.state)
        work = _work_of(step, given, with_time_left(progress), rule, pairs)
        state = work(loop_steps(), folder, family)
    more = _choices_of(family, state) if step == "pick" else {}
    return _answer(step, folder, state, before.notices, before.next_line, more)


def _choices_of(family: Family, state: LoopState) -> dict[str, Any]:
    """What a branch of the round may set: the forms of its methods and the hyperparameters; and the
    forms of the methods that the compiler dropped, for who wants to try one again."""
    named = dict.fromkeys((*state.current.methods, *state.implementation_failed_methods))
    known = {one.id: one for one in family.methods}
    return {
        "forms": {name: known[name].on for name in named if name in known},
        "hyperparameters": {one.knob: one.values for one in family.hypers},
    }


def _work_of(
    step: str, given: str | None, progress: Progress, rule: str | None, pairs: bool
) -> Callable[[LoopSteps, Path, Family], LoopState]:
    """The call of a step with what it was given."""
    if step == "gaps":
        counted = read_input(given, GapsInput)
        return lambda steps, *at: steps.gaps(*at, counted.counters if counted else None)
    if step == "budget":
        return lambda steps, *at: steps.budget(*at, rule)
    if step == "pick":
        picked = read_input(given, PickInput)
        return lambda steps, *at: steps.pick(
            *at, picked.methods if picked else None, picked.acknowledged if picked else {}
        )
    if step == "branch":
        tried = read_input(given, BranchInput)
        return lambda steps, *at: steps.branch(*at, tried.branches if tried else None, progress)
    if step == "ablate":
        return lambda steps, *at: steps.ablate(*at, pairs, progress)
    if step == "check":
        return lambda steps, *at: steps.check(*at)
    learnt = read_input(given, UpdateInput)
    return lambda steps, *at: steps.update(*at, learnt.analysis if learnt else "")


# ----------------------------------------------------------------------------------------- run


@dataclass(frozen=True)
class LoopRun(Answer):
    """How a loop ended: champion, rounds, runs and, on the recorded grid, the best: of the whole
    grid, and of the points that a round may lead with."""

    folder: Path
    workload: Problem
    on: str
    seed: int
    resumed: str
    found: LoopResult
    is_wrong: bool
    notices: tuple[str, ...]

    in_json: ClassVar[Mapping[str, str]] = {
        **parts("folder workload on seed resumed"),
        **parts("champion rounds runs best best_leading stopped sol forecast", of="found"),
        "notices": "notices",
    }

    @property
    def asides(self) -> tuple[str, ...]:
        """What was mended."""
        return self.notices

    @property
    def status(self) -> Status:
        """1 where it stopped because no branch was right."""
        return Status.WRONG if self.is_wrong else Status.RIGHT

    def show(self, console: Console) -> None:
        """The champion, and the best that there is."""
        found = self.found
        rows = [("champion", found.champion)]
        if found.best is not None:
            rows.append(("best of the grid", found.best))
        if found.best_leading not in (None, found.best):
            rows.append(("best that may lead a round", found.best_leading))
        print_table(
            console,
            ("", "us", "point", "knobs"),
            [
                (name, f"{one.time_us:.2f}", one.point, say_knobs(one.knobs, " "))
                for name, one in rows
            ],
            right=("us",),
        )
        console.print(
            f"{how_many(found.rounds, 'round')}, {how_many(found.runs, 'run')}, "
            f"times {self.on}; stopped: {found.stopped}",
            markup=False,
        )
        if found.sol is not None:
            console.print(f"SOL score: {found.sol}", markup=False)
        if found.forecast is not None:
            console.print(str(found.forecast), markup=False)


def run_loop(
    folder: Path, asked: LoopAsked, max_rounds: int, max_runs: int | None, progress: Progress
) -> LoopRun:
    """Play the automatic policy; a folder that holds a loop goes on with it."""
    resumed, notices = "", tuple[str, ...]()
    is_there = LoopFolder.holds_loop(folder)
    if not is_there:
        try:
            asked.begin(folder)
        except LoopThere:  # another process has begun one meanwhile
            is_there = True
    if is_there:
        before = LoopFolder.look(folder)
        asked.check_same(folder, before.state)
        resumed, notices = before.resumed, before.notices
        progress(resumed)
    family = _family_of(folder, LoopFolder.look(folder).state)
    found = loop_steps().run(folder, family, max_rounds, max_runs, with_time_left(progress))
    state = LoopFolder.look(folder).state
    notices += tuple(_faster_elsewhere(folder, state))
    return LoopRun(
        *(folder, state.workload, state.on, state.seed, resumed, found),
        is_wrong=state.is_wrong,
        notices=notices,
    )


def _faster_elsewhere(folder: Path, state: LoopState) -> Iterator[str]:
    """That the frontier holds a faster point than the champion, as it may after a restart.

    In a round that is under way the champion is what leads it, once that is known.
    """
    if state.time_us is None or not state.frontier:
        return
    leads = state.time_us
    if state.current.classes is None and state.current.time_us is not None:
        leads = min(leads, state.current.time_us)
    least = next((one.aa.effect for one in reversed(state.history) if one.aa is not None), 0.0)
    number, entry = min(enumerate(state.frontier), key=lambda item: item[1].time_us)
    if leads > (1 + least) * entry.time_us:
        yield (
            f"entry {number} of the frontier took {entry.time_us:.2f} us in round "
            f"{entry.iteration}: {say_command('restart', folder, number)} goes back to it"
        )


_VERDICTS: Mapping[Outcome, str] = {
    "slower": "counts",
    "faster": "harms",
    "same": "does nothing",
    "open": "undecided",
}
"""What is said of a method by what taking it out does."""


@dataclass(frozen=True)
class PointAblated(Answer):
    """What each method of a point is worth."""

    workload: Problem | None
    found: AblatedPoint
    notices: tuple[str, ...] = ()

    in_json: ClassVar[Mapping[str, str]] = {
        "workload": "workload",
        **parts("of origin gpu aa attribution pairs interactions", of="found"),
        **parts("untimed sass_check classes", of="found"),
        "notices": "notices",
    }

    @property
    def asides(self) -> tuple[str, ...]:
        """What was asked for and means nothing here."""
        return self.notices

    def show(self, console: Console) -> None:
        """A row a method, a row a pair, and what has no time."""
        found = self.found
        for line in self._head():
            console.print(line, markup=False)
        numbers = PAIR_COLUMNS[1:4]
        checked = {one.method: one for one in found.sass_check}
        columns = ("without", *numbers, "verdict", "in the machine code", "class")
        rows = [
            (
                *(one.method, *say_effect(one), _say_verdict(one)),
                str(checked[one.method]) if one.method in checked else "",
                found.classes.get(one.method, "").replace("_", " "),
            )
            for one in found.attribution
        ]
        if rows:
            print_table(console, columns, rows, right=numbers, whole=numbers)
        if found.pairs:
            pairs = say_pairs(found.pairs, found.interactions)
            right = (*numbers, PAIR_COLUMNS[4])
            console.print()
            print_table(console, PAIR_COLUMNS, pairs, right=right, whole=numbers)
        for line in say_untimed(found.untimed):
            console.print(line, markup=False)

    def _head(self) -> Iterator[str]:
        found = self.found
        yield f"{self.workload}, {found.origin}, {found.gpu}"
        yield f"{found.of.point}: {found.of.time_us:.2f} us"
        if found.origin == "forecast":
            yield FORECAST_INTERVALS
        else:
            pairs = f"{how_many(found.aa.pairs, 'pair')} of identical kernels"
            yield f"The smallest effect that can be told is {found.aa.effect:.1%}, by {pairs}."
        if found.attribution:
            yield f"An effect counts from {found.attribution[0].threshold:.1%} on."
        elif not found.untimed:
            yield "No method is on here."


def _say_verdict(one: Attribution) -> str:
    outcome = outcome_of(one)
    if outcome == "open" and one.decided == "below":
        return "does not help"
    return _VERDICTS[outcome]


def ablate_kernel(
    kernel: str | None,
    workload: str | None,
    on: TimedOn | None,
    chosen: Sequence[str] | None,
    methods: Sequence[str] | None,
    pairs: bool,
    seed: int | None,
    progress: Progress,
) -> PointAblated:
    """Time a point with one method out at a time."""
    family = read_family(kernel or DEFAULT_FAMILY)
    problem = None if workload is None else read_workload(workload)
    knobs = named_knobs(family.rung, chosen)
    with typed():
        point = family.point(knobs)
        single_variants(family, point, methods or ())  # each of them is on
        notices = tuple(
            f"{name}={knobs[name]} means nothing here, and is {name}={point.knobs[name]}: {why}"
            for name, why in family.overruled(knobs).items()
        )
    found = loop_steps().ablate_point(
        *(family, problem, on or "recorded", knobs, tuple(methods or ()), pairs, seed or 0),
        with_time_left(progress),
    )
    return PointAblated(problem or family.workloads[0], found, notices)


# --------------------------------------------------------------------------------- what only reads


@dataclass(frozen=True)
class LoopStatus(Answer):
    """The whole state of a loop, and what is wrong with its files."""

    state: LoopState
    resumed: str
    notices: tuple[str, ...]

    in_json: ClassVar[Mapping[str, str]] = {
        **{"resumed": "resumed", "rounds": "state.rounds", "runs": "state.runs"},
        **{"sol": "state.sol", "forecast": "state.forecast_hits"},
        **{"notices": "notices", "state": "written"},
    }

    @property
    def written(self) -> dict[str, Any]:
        """The state as ``state.json`` holds it."""
        made: dict[str, Any] = adapter_of(LoopState).dump_python(self.state, mode="json")
        return made

    @property
    def asides(self) -> tuple[str, ...]:
        """What is damaged, which the next step mends, and whether a faster point is known."""
        return self.notices

    def show(self, console: Console) -> None:
        """Where it stands, and the frontier."""
        state = self.state
        console.print(
            f"{state.kernel} for {state.workload}, times {state.on} ({state.gpu}), seed "
            f"{state.seed}\n{self.resumed}\n{how_many(state.rounds, 'round')} whole, "
            f"{how_many(state.runs, 'run')}",
            markup=False,
        )
        time = "not timed yet" if state.time_us is None else f"{state.time_us:.2f} us"
        console.print(f"champion: {state.point}, {time}", markup=False)
        if state.sol is not None:
            console.print(f"SOL score: {state.sol}", markup=False)
        for name in ("effective", "ineffective", "implementation_failed", "undecided"):
            methods = getattr(state, f"{name}_methods")
            console.print(f"{name.replace('_', ' ')}: {', '.join(methods) or 'none'}", markup=False)
        if wrong := "; ".join(say_wrong_picks(state)):
            console.print(f"no right branch: {wrong}", markup=False)
        rows = [
            (str(number), f"{one.iteration}.{one.branch}", f"{one.time_us:.2f}", one.point)
            for number, one in enumerate(state.frontier)
        ]
        if rows:
            columns = ("entry", "round.branch", "us", "point")
            print_table(console, columns, rows, right=("us",))


def show_status(folder: Path) -> LoopStatus:
    """Where a loop stands."""
    looked = LoopFolder.look(folder)
    notices = (*looked.notices, *_faster_elsewhere(folder, looked.state))
    return LoopStatus(looked.state, looked.resumed, notices)


@dataclass(frozen=True)
class LoopSummary(Answer):
    """What a loop found; ``page`` is the HTML file that was written."""

    tables: tuple[SummaryTable, ...]
    page: Path | None
    notices: tuple[str, ...]
    _text: str

    @property
    def asides(self) -> tuple[str, ...]:
        """What is damaged, and where the page is."""
        return (*self.notices, *([f"written: {self.page}"] if self.page else ()))

    def show(self, console: Console) -> None:
        """The summary as Markdown."""
        console.print(self._text, markup=False, end="")


def summarise_loop(folder: Path, page: Path | None) -> LoopSummary:
    """The summary; also as a page where one is named."""
    looked = LoopFolder.look(folder)
    if page is not None:
        try:
            write_whole(page, summary_html(looked.state).encode())
        except OSError as error:
            raise LabError(
                f"{page} cannot be written.", error.strerror or str(error), "the summary as text"
            ) from error
    state = looked.state
    notices = (*looked.notices, *_faster_elsewhere(folder, state))
    return LoopSummary(summarise(state), page, notices, summary_text(state))


@dataclass(frozen=True)
class RoundsCompared(Answer):
    """Two rounds' counters: what moved, in words, and each of them."""

    first: int
    second: int
    noise_from: str
    said: tuple[str, ...]
    counters: tuple[CounterChange, ...]

    def show(self, console: Console) -> None:
        """What moved."""
        console.print(f"round {self.first} to round {self.second}", markup=False)
        for line in (*self.said, f"noise: {self.noise_from}"):
            console.print(line, markup=False)


def diff_rounds(folder: Path, first: int | None, second: int | None) -> RoundsCompared:
    """What changed between two rounds; without numbers between the last two that have counters."""
    state = LoopFolder.look(folder).state
    measured = {one.round: one for one in state.history if one.counters}
    last = sorted(measured)[-2:]
    asked = (
        first if first is not None else (last[0] if len(last) == 2 else None),
        second if second is not None else (last[-1] if last else None),
    )
    if missing := [number for number in asked if number not in measured]:
        with typed():
            raise LabError(
                "These rounds cannot be compared.",
                f"no counters of round {missing[0]}"
                if missing[0] is not None
                else "fewer than two rounds have counters",
                f"rounds with counters: {', '.join(map(str, sorted(measured))) or 'none'}",
            )
    before, after = (measured[number] for number in sorted(cast(tuple[int, int], asked)))
    noise, noise_from = _noise_of(state, before, after)
    changes = compare_rounds(before.counters, after.counters, noise)
    said = tuple(say_changes(changes))
    return RoundsCompared(before.round, after.round, noise_from, said, changes)


def _noise_of(
    state: LoopState, before: RoundKept, after: RoundKept
) -> tuple[Mapping[str, float], str]:
    """How far counters differ by themselves, and where that comes from."""
    usual = f"{COUNTER_NOISE:.0%} of a counter, {SHARE_NOISE:g} points of a rate of the peak"
    if any(one.gaps is None or one.gaps.origin != "counters" for one in (before, after)):
        return {}, f"{usual}; a forecast predicts these counters"
    noise = counter_noise(select(RecordStore().load(), gpu=state.gpu, experiment=None))
    if not noise:
        return {}, f"{usual}; no two records of one kernel on {state.gpu} hold counters"
    told = f"of {how_many(len(noise), 'counter')} by records of one kernel, on {state.gpu}"
    return noise, f"{told}; of others {usual}"


def restart_loop(folder: Path, entry: int) -> StepAnswer:
    """Let the next round begin from an entry of the frontier."""
    with LoopFolder.opened(folder) as opened, typed():
        first = opened.next_line
        state = opened.restart(entry)
        notices = opened.notices
    return _answer("restart", folder, state, notices, first)


@dataclass(frozen=True)
class LoopExported(Answer):
    """The files that were written."""

    files: tuple[Path, ...]
    notices: tuple[str, ...] = ()

    @property
    def asides(self) -> tuple[str, ...]:
        """What is damaged, and whether a faster point than the champion is known."""
        return self.notices

    def show(self, console: Console) -> None:
        """One a line."""
        for path in self.files:
            console.print(str(path), markup=False)


def export_loop(folder: Path, target: Path, progress: Progress) -> LoopExported:
    """Write what another program can use."""
    looked = LoopFolder.look(folder)
    family = _family_of(folder, looked.state)
    notices = (*looked.notices, *_faster_elsewhere(folder, looked.state))
    return LoopExported(loop_steps().export(folder, family, target), notices)
