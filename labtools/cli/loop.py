"""``labtools loop`` and ``labtools ablate``: what is typed is read here, and answers are shown. A
step is a method of `labtools.optimize.loop.TuningLoop`; what it found is told by
`labtools.optimize.telling`."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ConfigDict, ValidationError, create_model

from labtools.measure.channel import adapter_of
from labtools.optimize import state as loop_state
from labtools.optimize.budget import DEFAULT_BRANCHES, DEFAULT_RULE, rule_named
from labtools.optimize.log import disk, say_command
from labtools.optimize.loop_folder import LoopFolder, LoopThere, family_lost
from labtools.optimize.pick import Retry
from labtools.optimize.round_files import diffs_without
from labtools.optimize.source import AskedBranch
from labtools.optimize.summary import SummaryTable, summarise, summary_text
from labtools.optimize.telling import STOP, RoundTold, StepTold, tell_rounds, tell_steps
from labtools.problem import LabError, Problem, as_lab_error
from labtools.problem.rung import say_knobs
from labtools.problem.text import MOST_BYTES, given_path, how_many, read_given
from labtools.record.whole import write_whole
from labtools.toolchain.progress import Progress, with_time_left

from .given import read_family, read_workload
from .outcome import Answer, Status, UsageProblem, print_table, typed

if TYPE_CHECKING:
    from rich.console import Console

    from labtools.optimize.bench import TimedOn
    from labtools.optimize.changes import CounterChange
    from labtools.optimize.family import Family

DEFAULT_FAMILY = "tunable"


# --------------------------------------------------------------------------------------- input


INPUTS: Mapping[str, dict[str, Any]] = {
    "gaps": {"counters": (Mapping[str, float | None], ...)},
    "pick": {"methods": (tuple[str, ...], ...), "acknowledged": (Mapping[str, Retry], {})},
    "branch": {"branches": (tuple[AskedBranch | Mapping[str, int], ...], ...)},
    "update": {"analysis": (str, ...)},
}
"""What each step may be given, as pydantic has fields; each is an argument of the loop's method."""


def read_input(text: str | None, step: str) -> dict[str, Any]:
    """What was given for a step: JSON in a file, or on stdin for ``-``; nothing for None. Raises
    UsageProblem: it cannot be read, or is not what the step takes."""
    if text is None:
        return {}
    with typed():
        try:
            told = sys.stdin.read(MOST_BYTES) if text == "-" else read_given(given_path(text))
            json.loads(told, object_pairs_hook=_without_doubles)
            kind = create_model(step, __config__=ConfigDict(extra="forbid"), **INPUTS[step])
            return dict(kind.model_validate_json(told, strict=True))
        except (OSError, ValueError, RecursionError) as error:  # pydantic's, json's: ValueErrors
            raise LabError(
                f"The input {text} cannot be used.",
                _say_input_error(error),
                "labtools loop STEP --help shows what a step takes",
            ) from error


def _without_doubles(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """An object of JSON; of a name that stands in it twice nobody knows which value is meant."""
    names = [name for name, _ in pairs]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f"{twice} is given twice")
    return dict(pairs)


def _say_input_error(error: OSError | ValueError | RecursionError) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if not isinstance(error, ValidationError):
        return str(error)
    faults = error.errors()
    return "; ".join(f"{'.'.join(map(str, x['loc'])) or 'the whole'}: {x['msg']}" for x in faults)


# --------------------------------------------------------------------------------------- steps


@dataclass(frozen=True, kw_only=True)
class LoopAnswer(Answer):
    """An answer with notices: what of the log is damaged, and what else is to be known."""

    notices: tuple[str, ...]
    _is_wrong: bool = False  # no branch is right, of this attempt or of all

    @property
    def asides(self) -> tuple[str, ...]:
        """The notices."""
        return self.notices

    @property
    def status(self) -> Status:
        """1 where no branch is right."""
        return Status.WRONG if self._is_wrong else Status.RIGHT


@dataclass(frozen=True, kw_only=True)
class StepAnswer(LoopAnswer):
    """What a step decided, from which numbers, by which rule, and what may come next."""

    folder: Path
    step: str
    round: int
    next: tuple[str, ...]
    stopped: str
    result: Mapping[str, Any]
    explained: StepTold | None

    def show(self, console: Console) -> None:
        """The explanation, and the next step."""
        if self.explained is not None:
            console.print(str(self.explained))
        for branch, claims in self.result.get("claims", {}).items():
            console.print(f"{branch}: " + "; ".join(f"{one}: {how}" for one, how in claims.items()))
        for method, text in self.result.get("diffs", {}).items():
            console.print(f"what goes with {method}:\n{text}", markup=False, highlight=False)
        if not self.stopped:
            following = " or ".join(say_command(step, self.folder) for step in self.next)
            console.print(f"next: {following}")
        elif self.explained is None or self.explained.step != STOP:  # which says it
            console.print(f"stopped: {self.stopped}")


def _answer(
    step: str, folder: LoopFolder, since: int = 0, more: Mapping[str, Any] | None = None
) -> StepAnswer:
    """What a step did, by the lines from ``since`` on that it added to the log."""
    state, every = folder.state, tell_steps(folder.lines)
    added = [told for told in every if told.n >= since]
    of_step = [told for told in added if told.step == step] or added
    done = of_step[-1] if of_step else None
    number = done.round if done else state.round
    rounds = {told.kept.round: told for told in tell_rounds(state, every)}
    told = rounds.get(number, RoundTold(loop_state.RoundKept(0), ()))
    return StepAnswer(
        notices=(*folder.notices, *state.say_stopped()),
        folder=folder.path,
        step=step,
        round=number,
        next=state.next_steps,
        stopped=state.stopped,
        result={**told.found(step), **(more or {})},
        explained=done,
        _is_wrong=step == "branch" and told.kept.has_no_right_branch,
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

    def begin(self, folder: Path, *, may_be_plain: bool = False) -> None:
        """Begin such a loop in a new folder, of a kernel alone where it may be that."""
        from labtools.optimize import loop

        kernel = DEFAULT_FAMILY if self.kernel is None else self.kernel
        family = read_family(kernel, may_be_plain=may_be_plain)
        problem = None if self.workload is None else read_workload(self.workload)
        with typed():
            rule = rule_named(self.rule or DEFAULT_RULE)
        on, branches = self.on or "recorded", self.branches or DEFAULT_BRANCHES
        loop.init(folder, family, problem, on, self.seed or 0, branches, rule)

    def check_same(self, folder: Path, state: loop_state.LoopState) -> None:
        """Raise UsageProblem where a loop is another one than was asked for."""
        simple = ("on", "seed", "branches", "rule")
        asked = {
            "workload": self.workload and str(read_workload(self.workload)),
            **{name: getattr(self, name) for name in simple},
        }
        held = {
            "workload": str(state.workload),
            **{name: getattr(state, name) for name in simple},
        }
        other = [
            f"{name} {held[name]}, not {wanted}"
            for name, wanted in asked.items()
            if wanted is not None and held[name] != wanted
        ]
        if other:
            what, why = "The folder holds another loop.", f"it has {'; '.join(other)}"
            raise UsageProblem(LabError(what, why, "another folder"))


def _family_of(looked: LoopFolder, named: str | None) -> Family:
    """The family that a loop works on. Its Python runs: where it was not begun here with it, it is
    loaded only where it is ``named``, whatever the log says."""
    from labtools.optimize.loop import family_name

    held = looked.state.family
    if named is None and not looked.is_ours:
        raise UsageProblem(
            LabError(
                f"The loop in {looked.path} was not begun here.",
                f"its log names the family {held}, whose Python would run as you",
                f"the same with --kernel {held}, where you trust that file; status, summary and "
                "diff, which only read",
            )
        )
    try:
        family = read_family(named or held, may_be_plain=True)
    except UsageProblem as error:
        if named is not None:
            raise
        raise family_lost(looked.path, held, as_lab_error(error.error)) from error
    found = family_name(family)
    if Path(found).with_suffix("") != Path(held).with_suffix(""):
        why = f"it has kernel {held}, not {found}"
        raise UsageProblem(LabError("The folder holds another loop.", why, "another folder"))
    looked.take_over()
    return family


@contextlib.contextmanager
def _in_order() -> Iterator[None]:
    """Inside, a step out of order, or what a step cannot take, is about what was typed."""
    try:
        yield
    except (loop_state.OutOfOrder, loop_state.GivenRefused) as error:
        raise UsageProblem(error) from error


def begin_loop(folder: Path, asked: LoopAsked) -> StepAnswer:
    """Begin a loop in a new folder."""
    asked.begin(folder, may_be_plain=True)
    return _answer("init", LoopFolder.look(folder))


def do_step(
    folder: Path,
    step: str,
    given: str | None,
    progress: Progress,
    *,
    kernel: str | None = None,
    **more: Any,
) -> StepAnswer:
    """One step of a round; ``given`` is a JSON file, or ``-``, with what the caller decides, and
    ``kernel`` the family, where he names it."""
    from labtools.optimize.loop import open_loop

    looked = LoopFolder.look(folder)
    with _in_order():
        asked = read_input(given, step)
        written = [
            one for one in (asked | more).get("branches", ()) if isinstance(one, AskedBranch)
        ]
        if not written:  # before these the policy takes what is left of the round
            looked.require(step)
        family = _family_of(looked, kernel)
        with open_loop(folder, family, with_time_left(progress)) as loop:
            state = loop.take(step, **asked, **more)
            choices = _choices_of(family, state) if step == "pick" else {}
            if written:
                choices = _claims_of(state)
            return _answer(step, loop.folder, looked.next_line, choices)


def _claims_of(state: loop_state.LoopState) -> dict[str, Any]:
    """Of the round's written branches: how each method is taken out of each, and what goes with a
    method that another source is without."""
    keys = [one.point for one in state.current.branches if one.point in state.sources]
    before = state.latest_classes
    return {
        "claims": {key: state.sources[key].say_claims(before) for key in keys},
        "diffs": diffs_without(state, state.current),
    }


def _choices_of(family: Family, state: loop_state.LoopState) -> dict[str, Any]:
    """What a branch of the round may set: the forms of its methods and the hyperparameters; and the
    forms of the methods that the compiler dropped, for who wants to try one again."""
    named = dict.fromkeys((*state.current.methods, *state.implementation_failed_methods))
    known = {method.id: method for method in family.methods}
    return {
        "forms": {name: known[name].on for name in named if name in known},
        "hyperparameters": {hyper.knob: hyper.values for hyper in family.hypers},
    }


def written_branch(
    given: str | None,
    source: str | None,
    launch: str | None,
    methods: Sequence[str] | None,
    without: Sequence[str] | None,
    describe: Sequence[str] | None,
) -> tuple[AskedBranch, ...]:
    """The branch that was typed. Raises UsageProblem: it has no source, or comes with an input."""
    with typed():
        if source is None or given is not None:
            raise LabError(
                "This branch cannot be read.",
                "--launch, --method, --without and --describe go with --source, and not with "
                "--input, which says all of it itself",
                "labtools loop branch --help shows both",
            )
        pairs = _pairs_of("--without", without), _pairs_of("--describe", describe)
        return (AskedBranch(source, launch or "", tuple(methods or ()), *pairs),)


def _pairs_of(option: str, texts: Sequence[str] | None) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts or ():
        name, equals, said = text.partition("=")
        if not (name.strip() and equals and said.strip()) or name.strip() in found:
            why = "it is METHOD=... with something behind it, once for each method"
            raise LabError(f"{option} {text!r} cannot be read.", why, "the same with that mended")
        found[name.strip()] = said.strip()
    return found


def restart_loop(folder: Path, entry: int) -> StepAnswer:
    """Let the next round begin from an entry of the frontier."""
    with LoopFolder.opened(folder) as opened, typed():
        first = opened.next_line
        opened.restart(entry)
        return _answer("restart", opened, first)


# ----------------------------------------------------------------------------------------- run


@dataclass(frozen=True, kw_only=True)
class LoopRun(LoopAnswer, loop_state.LoopResult):
    """How a loop ended: champion, rounds, runs and, on the recorded grid, the best: of the whole
    grid, and of the points that a round may lead with."""

    folder: Path
    workload: Problem
    on: str
    seed: int
    resumed: str

    def show(self, console: Console) -> None:
        """The champion, and the best that there is."""
        named = {"champion": self.champion, "best of the grid": self.best}
        if self.best_leading != self.best:
            named["best that may lead a round"] = self.best_leading
        rows = [
            (name, f"{found.time_us:.2f}", found.point, say_knobs(found.knobs, " "))
            for name, found in named.items()
            if found is not None
        ]
        print_table(console, ("", "us", "point", "knobs"), rows, right=("us",))
        console.print(
            f"{how_many(self.rounds, 'round')}, {how_many(self.runs, 'run')}, "
            f"times {self.on}; stopped: {self.stopped}"
        )
        if self.sol is not None:
            console.print(f"SOL score: {self.sol}")
        if self.forecast is not None:
            console.print(str(self.forecast))


def run_loop(
    folder: Path, asked: LoopAsked, max_rounds: int, max_runs: int | None, progress: Progress
) -> LoopRun:
    """Play the automatic policy; a folder that holds a loop goes on with it."""
    from labtools.optimize.loop import open_loop

    resumed = ""
    is_there = LoopFolder.holds_loop(folder)
    if not is_there:
        try:
            asked.begin(folder)
        except LoopThere:  # another process has begun one meanwhile
            is_there = True
    family = _family_of(LoopFolder.look(folder), asked.kernel)
    before = LoopFolder.look(folder)  # again, with the operation that the family may bring
    if is_there:
        asked.check_same(folder, before.state)
        resumed = before.resumed
        progress(resumed)
    with open_loop(folder, family, with_time_left(progress)) as loop:
        found, state = loop.run(max_rounds, max_runs), loop.state
    return LoopRun(
        **vars(found),
        notices=(*before.notices, *state.say_notices(folder)),
        folder=folder,
        workload=state.problem,
        on=state.on,
        seed=state.seed,
        resumed=resumed,
        _is_wrong=state.is_wrong,
    )


# --------------------------------------------------------------------------------- what only reads


@dataclass(frozen=True, kw_only=True)
class LoopStatus(LoopAnswer):
    """The whole state of a loop, as ``state.json`` holds it."""

    resumed: str
    rounds: int
    runs: int
    sol: Any
    forecast: Any
    state: Mapping[str, Any]
    _state: loop_state.LoopState

    def show(self, console: Console) -> None:
        """Where it stands, and the frontier."""
        state = self._state
        time = "not timed yet" if state.time_us is None else f"{state.time_us:.2f} us"
        lines = [
            f"{state.kernel} for {state.workload}, times {state.on} ({state.gpu}), seed "
            f"{state.seed}",
            self.resumed,
            f"{how_many(state.rounds, 'round')} whole, {how_many(state.runs, 'run')}",
            f"champion: {state.point}, {time}",
        ]
        if state.sol is not None:
            lines.append(f"SOL score: {state.sol}")
        for name, methods in loop_state.methods_by_class(state):
            lines.append(f"{name.replace('_', ' ')}: {', '.join(methods) or 'none'}")
        if wrong := "; ".join(loop_state.say_wrong_picks(state)):
            lines.append(f"no right branch: {wrong}")
        console.print("\n".join(lines))
        rows = [
            (str(number), f"{entry.iteration}.{entry.branch}", f"{entry.time_us:.2f}", entry.point)
            for number, entry in enumerate(state.frontier)
        ]
        if rows:
            columns = ("entry", "round.branch", "us", "point")
            print_table(console, columns, rows, right=("us",))


def show_status(folder: Path) -> LoopStatus:
    """Where a loop stands."""
    looked = LoopFolder.look(folder)
    state = looked.state
    return LoopStatus(
        notices=(*looked.notices, *state.say_notices(folder)),
        resumed=looked.resumed,
        rounds=state.rounds,
        runs=state.runs,
        sol=state.sol,
        forecast=state.forecast_hits,
        state=adapter_of(loop_state.LoopState).dump_python(state, mode="json"),
        _state=state,
    )


@dataclass(frozen=True, kw_only=True)
class LoopSummary(LoopAnswer):
    """What a loop found; ``page`` is the HTML file that was written."""

    tables: tuple[SummaryTable, ...]
    page: Path | None
    _text: str

    @property
    def asides(self) -> tuple[str, ...]:
        """What is damaged, and where the page is."""
        return (*self.notices, *([f"written: {self.page}"] if self.page else ()))

    def show(self, console: Console) -> None:
        """The summary as Markdown."""
        console.print(self._text, end="")


def summarise_loop(folder: Path, page: Path | None) -> LoopSummary:
    """The summary; also as a page where one is named."""
    looked = LoopFolder.look(folder)
    state = looked.state
    if page is not None:
        from labtools.optimize.page import summary_html
        from labtools.optimize.round_files import kept_sources

        with disk(f"{page} cannot be written.", "the summary as text"):
            write_whole(page, summary_html(state, kept_sources(folder, state)).encode())
    notices = (*looked.notices, *state.say_notices(folder))
    tables, text = summarise(state), summary_text(state)
    return LoopSummary(notices=notices, tables=tables, page=page, _text=text)


@dataclass(frozen=True)
class RoundsCompared(Answer):
    """Two rounds' counters: what moved, in words, and each of them."""

    first: int
    second: int
    noise_from: str
    said: tuple[str, ...]
    counters: tuple[CounterChange, ...]
    source: (
        str  # what of the kernels' source changed, as a unified diff; empty without written ones
    )

    def show(self, console: Console) -> None:
        """What moved, and what was written."""
        console.print(f"round {self.first} to round {self.second}")
        for line in (*self.said, f"noise: {self.noise_from}"):
            console.print(line)
        if self.source:
            console.print(self.source, markup=False, highlight=False)


def diff_rounds(folder: Path, first: int | None, second: int | None) -> RoundsCompared:
    """What changed between two rounds; without numbers between the last two that have counters."""
    from labtools.optimize.changes import compare_rounds, noise_of_rounds, say_changes

    state = LoopFolder.look(folder).state
    measured = {kept.round: kept for kept in state.history if kept.counters}
    numbers = sorted(measured)
    last = [None, None, *numbers][-2:]
    asked = [last[0] if first is None else first, last[1] if second is None else second]
    if missing := [number for number in asked if number not in measured]:
        why = f"no counters of round {missing[0]}"
        if missing[0] is None:
            why = "fewer than two rounds have counters"
        known = f"rounds with counters: {', '.join(map(str, numbers)) or 'none'}"
        raise UsageProblem(LabError("These rounds cannot be compared.", why, known))
    before, after = (measured[number] for number in sorted(filter(None, asked)))
    noise, noise_from = noise_of_rounds(state.gpu, before, after)
    changes = compare_rounds(before.counters, after.counters, noise)
    said = tuple(say_changes(changes))
    first_point, last_point = (one.champion or one.start for one in (before, after))
    if first_point == last_point:  # the second one has only begun, from what the first one found
        first_point = before.start
    source = state.diff_sources(first_point, last_point)
    return RoundsCompared(before.round, after.round, noise_from, said, changes, source)


@dataclass(frozen=True, kw_only=True)
class LoopExported(LoopAnswer):
    """The files that were written."""

    files: tuple[Path, ...]

    def show(self, console: Console) -> None:
        """One a line."""
        for path in self.files:
            console.print(str(path))


def export_loop(folder: Path, target: Path, kernel: str | None = None) -> LoopExported:
    """Write what another program can use."""
    from labtools.optimize.loop import export

    looked = LoopFolder.look(folder)
    family = _family_of(looked, kernel)
    notices = (*looked.notices, *looked.state.say_notices(folder))
    return LoopExported(notices=notices, files=export(folder, family, target))
