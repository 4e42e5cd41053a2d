"""Hardware counters of one kernel or of many, which run in a child under Nsight Compute.

Its start takes seconds, so one child launches many rungs, told apart by the order of launches. Cold
workloads have a run with the caches flushed before every pass, warm ones a run without.
"""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from labtools.predict import limits_of
from labtools.problem import Baseline, LabError, Launch, Limits, Problem, Rung
from labtools.toolchain import compile_ahead, compile_cubin
from labtools.toolchain.progress import Progress, silent

from ..gpu.job import Candidate, Job, fill_cubin, make_job, require_device, store_cubin
from ..gpu.queue import hold_this_gpu
from ..worker import hang_message
from . import ncu as tool
from .counters import COUNTERS, FEW_COUNTERS, Counter, KernelCounters, sum_launches
from .ncu import NcuRun, NcuTool, ProfileFailed, ProfileReport, ProfilerUnavailable
from .watched import WatchedItem, WatchRequest

MOST_ITEMS = 96  # of one ncu run
ITEM_STEP_LIMIT_S = 60.0  # for one item, all passes; past it the child ends, and the item hung
RUN_LIMIT_S, ITEM_LIMIT_S = 180.0, 10.0  # for a run, and so much more for each of its items
EMPTY_LAUNCHES = 3
_EMPTY_ENTRY = "empty_launch"
_EMPTY_LAUNCH = Launch(_EMPTY_ENTRY, (1, 1, 1), (32, 1, 1))
_EMPTY_SOURCE = f'extern "C" __global__ void {_EMPTY_ENTRY}() {{}}\n'

BatchItem = tuple[Rung, Problem, Mapping[str, int] | None]

_refused: dict[str, tuple[str, ...]] = {}  # metrics that an ncu, by path, was found to refuse


@dataclass(frozen=True)
class _Item:
    target: Rung | Baseline
    knobs: dict[str, int]
    watched: WatchedItem

    @property
    def number(self) -> int:
        return self.watched.number

    @property
    def workload(self) -> Problem:
        return self.watched.workload

    @property
    def launches(self) -> list[Launch]:
        """The launches that the profiler sees."""
        return self.watched.job.timed


Results = dict[int, ProfileReport | ProfileFailed]  # by the number of the item


@dataclass
class _Outcome:
    """What one run gave, and what is left to do."""

    found: Results = field(default_factory=dict)
    left: list[_Item] = field(default_factory=list)
    error: ProfileFailed | None = None  # why nothing was gained, when nothing was


def watched_item(
    target: Rung | Baseline,
    workload: Problem,
    knobs: Mapping[str, int] | None,
    limits: Limits,
    number: int = 0,
) -> WatchedItem:
    """Compile what a tool is to watch.

    Raises CompileError, with its line: the rung does not compile; LabError: it cannot run the
    workload.
    """
    if reason := target.supports(workload):
        raise LabError(f"{target.id} cannot run {workload}.", reason, "choose another workload")
    if isinstance(target, Rung):
        candidate = Candidate(target, "rung", target.resolve_knobs(knobs))
    else:
        candidate = Candidate(target, "baseline")
    return WatchedItem(number, make_job(candidate, workload, limits), workload)


def profile_rung(
    target: Rung | Baseline,
    workload: Problem,
    knobs: Mapping[str, int] | None = None,
    counters: tool.CounterSet = "chosen",
    *,
    time_limit_s: float = 300.0,
    report_path: str | Path | None = None,
    progress: Progress = silent,
) -> ProfileReport:
    """Profile one call of ``target`` on this machine's GPU.

    ``full`` asks for everything ncu knows, in about forty passes. The kernel runs once to load,
    then once a pass, with the caches flushed before each unless the workload is warm. Clocks are
    left alone. ``report_path`` keeps the report for Nsight Compute's own viewer. Where
    nsight-python is usable, the child attaches the profiler to itself.

    Raises ProfilerUnavailable: no ncu, or the counters are not permitted; ProfileFailed: it ran and
    measured nothing; LabError: the target cannot run the workload, or does not compile.
    """
    limits = limits_of(require_device())
    item = watched_item(target, workload, knobs, limits)
    request = WatchRequest((item,), str(fill_cubin(limits.arch)), "ncu", step_limit_s=time_limit_s)
    ncu = tool.find_ncu()
    with (
        tempfile.TemporaryDirectory(prefix="labtools-profile-") as folder,
        hold_this_gpu(f"profiling {target.id}", progress),
    ):
        progress(f"profiling {target.id}")
        run, name, notes = _profile_one(ncu, request, counters, Path(folder), time_limit_s)
        kernels = tuple(tool.read_report(ncu, run.report))
        kept = None
        if report_path is not None:
            kept = str(Path(report_path).with_suffix(".ncu-rep"))
            shutil.copyfile(run.report, kept)
    resolved = target.resolve_knobs(knobs) if isinstance(target, Rung) else {}
    one = _Item(target, resolved, item)
    report = _report(one, kernels, run, name, run.finished.child.seconds)
    return replace(report, notes=(*notes, *report.notes), report_path=kept)


def _profile_one(
    ncu: NcuTool,
    request: WatchRequest,
    counters: tool.CounterSet,
    folder: Path,
    time_limit_s: float,
) -> tuple[NcuRun, str, list[str]]:
    """A run that ended well, the name of the tool behind it, and what to know about it."""
    warm = request.items[0].workload.cache_state == "warm"
    name, notes = f"ncu {ncu.version_text}", []
    if counters == "chosen" and tool.nsight_python_usable(ncu):
        run = tool.run_with_nsight(ncu, request, folder, warm=warm, time_limit_s=time_limit_s)
        try:
            _check_one(run)
        except ProfileFailed as error:
            notes.append(f"nsight-python did not work, so ncu was used: {error.why}")
        else:
            version = importlib.metadata.version("nsight-python")
            return run, f"nsight-python {version}, {name}", notes
    path, limit_s = folder / "report.ncu-rep", time_limit_s
    run = tool.run_under_ncu(ncu, request, path, counters, warm=warm, time_limit_s=limit_s)
    _check_one(run)
    return run, name, notes


def _check_one(run: NcuRun) -> None:
    run.check_permission()
    for result in run.results:
        if result.problem:
            raise _failed("The kernel did not run to its end.", result.problem)
    run.check()


def profile_batch(
    items: Sequence[BatchItem],
    *,
    counters: Literal["chosen", "few"] = "chosen",
    progress: Progress = silent,
) -> list[ProfileReport | ProfileFailed]:
    """Profile one call of each of many rungs on this machine's GPU.

    Each is launched once to load it, then once under the profiler; launches marked ``prepare`` run
    before and are not watched. Nothing is compared. A kernel that fails, hangs or takes the process
    down costs itself alone; the others are profiled in another run. Clocks are left alone. ``few``
    counters are those that a bound needs, in fewer passes.

    Returns a report (with `ProfileReport.empty_launch_us`) for each item, or why it has none.

    Raises ProfilerUnavailable: no ncu, or the counters are not permitted; LabError: nothing can run
    on a GPU here.
    """
    if not items:
        return []
    ncu = tool.find_ncu()
    limits = limits_of(require_device())
    results: Results = {}
    ready: list[_Item] = []
    compile_ahead(items, limits, compiler="live")
    for number, (rung, workload, knobs) in enumerate(items):
        try:
            watched = watched_item(rung, workload, knobs, limits, number)
        except LabError as error:
            results[number] = _as_failure(error)
        else:
            ready.append(_Item(rung, rung.resolve_knobs(knobs), watched))
    # A workload's buffers are made once, and as few of them as possible exist at a time: ncu saves
    # what a kernel may write before it replays it.
    places: dict[str, int] = {}
    for one in ready:
        places.setdefault(one.workload.key(), len(places))
    ready.sort(key=lambda one: (places[one.workload.key()], one.number))
    batch = _Batch(ncu, limits.arch, FEW_COUNTERS if counters == "few" else COUNTERS, progress)
    for warm in (False, True):
        part = [one for one in ready if (one.workload.cache_state == "warm") == warm]
        for start in range(0, len(part), MOST_ITEMS):
            some = part[start : start + MOST_ITEMS]
            with hold_this_gpu(f"profiling {len(some)} kernels", progress):
                results.update(batch.measure(some, warm))
    return [results[number] for number in range(len(items))]


class _Batch:
    """Runs of ncu until every item has counters or a reason."""

    def __init__(
        self, ncu: NcuTool, arch: str, wanted: Sequence[Counter], progress: Progress
    ) -> None:
        self.ncu, self.wanted, self.progress = ncu, wanted, progress
        self.tool = f"ncu {ncu.version_text}"
        self.fill_cubin = str(fill_cubin(arch))
        cubin = store_cubin(compile_cubin(_EMPTY_SOURCE, arch, name="empty.cu", compiler="live"))
        self.empty = Job(_EMPTY_ENTRY, "rung", cubin=str(cubin), launches=(_EMPTY_LAUNCH,))
        # A run has given counters, so that a run without any is the fault of its items.
        self.proved = False

    def measure(self, items: Sequence[_Item], warm: bool) -> Results:
        """Counters of some items, by number.

        Each run either settles at least one item, or is split in two, so this ends.
        """
        found: Results = {}
        waiting = [list(items)]
        while waiting:
            some = waiting.pop(0)
            outcome = self.run(some, warm)
            found.update(outcome.found)
            if not outcome.left:
                continue
            if outcome.found:
                waiting.insert(0, outcome.left)
                continue
            error = outcome.error or _failed("The profiler gave nothing.", "it did not say why")
            if len(some) == 1:
                found[some[0].number] = error
                continue
            if not self.proved and (broken := self.run([], warm).error):
                # Not even an empty kernel can be profiled: no half of the items would be.
                rest = [one for group in (some, *waiting) for one in group]
                found.update({one.number: broken for one in rest})
                break
            half = len(some) // 2
            waiting[:0] = [some[:half], some[half:]]
        return found

    def run(self, items: Sequence[_Item], warm: bool) -> _Outcome:
        """One run of ncu. Raises ProfilerUnavailable: the counters are not permitted."""
        watched, empty = tuple(one.watched for one in items), (self.empty, EMPTY_LAUNCHES)
        request = WatchRequest(watched, self.fill_cubin, "ncu", ITEM_STEP_LIMIT_S, *empty)
        with tempfile.TemporaryDirectory(prefix="labtools-profile-") as name:
            run = tool.run_under_ncu(
                self.ncu,
                request,
                Path(name, "report.ncu-rep"),
                warm=warm,
                time_limit_s=RUN_LIMIT_S + ITEM_LIMIT_S * len(items),
                wanted=self.wanted,
                without=_refused.get(self.ncu.path, ()),
                progress=self.progress,
            )
            if run.report.exists():
                _refused[self.ncu.path] = run.dropped
            return self._judge(items, run)

    def _judge(self, items: Sequence[_Item], run: NcuRun) -> _Outcome:
        """Which items have their counters, which are to blame, and which are left."""
        outcome = _Outcome()
        by_number = {one.number: one for one in items}

        def blame(number: int, why: str) -> None:
            what = f"{by_number[number].watched.label} could not be profiled."
            outcome.found.setdefault(number, _failed(what, why))

        for result in run.results:
            if result.problem:
                blame(result.number, result.problem)
        suspect = _suspect(run)
        if suspect is not None:
            blame(suspect, _explain_end(run))
        profiled = [by_number[one.number] for one in run.results if not one.problem]
        tail = len(by_number[suspect].launches) if suspect is not None else 0
        try:
            empty_us, kernels = _match_rows(self._read(run), profiled, tail)
        except ProfilerUnavailable:
            raise
        except LabError as error:
            outcome.error = _as_failure(error)
        else:
            self.proved = True
            for one, mine in zip(profiled, kernels, strict=True):
                seconds = run.finished.child.seconds / len(profiled)
                report = _report(one, self._asked(mine), run, self.tool, seconds)
                outcome.found[one.number] = replace(report, empty_launch_us=empty_us)
        outcome.left = [one for one in items if one.number not in outcome.found]
        return outcome

    def _read(self, run: NcuRun) -> list[KernelCounters]:
        """The rows of the report, which a child that died may have left as well."""
        run.check_permission()
        if not run.report.exists():
            run.check()
        return tool.read_report(self.ncu, run.report)

    def _asked(self, kernels: Sequence[KernelCounters]) -> tuple[KernelCounters, ...]:
        """Without what was not asked for, which is not missing; it is not there."""
        names = [counter.name for counter in self.wanted]
        return tuple(
            replace(kernel, values={name: kernel.values[name] for name in names})
            for kernel in kernels
        )


def _report(
    item: _Item, kernels: tuple[KernelCounters, ...], run: NcuRun, tool_name: str, seconds: float
) -> ProfileReport:
    dropped = f"ncu does not know these metrics here: {', '.join(run.dropped)}"
    return ProfileReport(
        target=item.target.id,
        workload=item.workload.to_dict(),
        knobs=item.knobs,
        tool=tool_name,
        kernels=kernels,
        totals=sum_launches(kernels),
        notes=(dropped,) if run.dropped else (),
        seconds=seconds,
    )


def _suspect(run: NcuRun) -> int | None:
    """The number of the item at which the run ended early, if one can be named."""
    died = run.finished.died
    if run.results and run.results[-1].dead:
        return run.results[-1].number
    if died is not None and died.step is not None and died.step.label:
        return int(died.step.label)
    return None


def _explain_end(run: NcuRun) -> str:
    died = run.finished.died
    if died is not None and died.hung and died.step is not None:
        return hang_message(died.step.limit_s)
    return run.finished.failure


def _match_rows(
    rows: Sequence[KernelCounters], items: Sequence[_Item], tail: int
) -> tuple[float | None, list[tuple[KernelCounters, ...]]]:
    """Give each item the rows of its launches; also the duration of an empty launch, us.

    ncu lists launches in order; their number, kernels' names, grids and blocks must fit.
    """
    expected = EMPTY_LAUNCHES + sum(len(one.launches) for one in items)
    if not expected <= len(rows) <= expected + tail:
        raise _failed(
            "The profiler's report does not fit what was launched.",
            f"it holds {len(rows)} launches, and {expected} were made while it watched",
        )
    empties = rows[:EMPTY_LAUNCHES]
    for row in empties:
        _check_row(row, _EMPTY_LAUNCH)
    times = [row.values["duration_us"] for row in empties]
    known = [value for value in times if value is not None]
    found, place = [], EMPTY_LAUNCHES
    for one in items:
        mine = rows[place : place + len(one.launches)]
        for row, launch in zip(mine, one.launches, strict=True):
            _check_row(row, launch)
        place += len(mine)
        found.append(tuple(mine))
    return statistics.median(known) if known else None, found


def _check_row(row: KernelCounters, launch: Launch) -> None:
    name = re.split(r"[(<]", row.kernel, maxsplit=1)[0].split()
    seen = (name[-1] if name else "", _sizes(row.grid), _sizes(row.block))
    made = (launch.entry, list(launch.grid), list(launch.block))
    # ncu shows a mangled name demangled; the grid and the block still have to fit.
    first = 1 if launch.entry.startswith("_Z") else 0
    if seen[first:] != made[first:]:
        raise _failed(
            "The profiler's report does not fit what was launched.",
            f"it shows {row.kernel} with grid {row.grid} and block {row.block} where "
            f"{made[0]} was launched with grid {made[1]} and block {made[2]}",
        )


def _sizes(text: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", text)]


def _failed(what: str, why: str) -> ProfileFailed:
    return ProfileFailed(what, why, tool.WITHOUT_COUNTERS)


def _as_failure(error: LabError) -> ProfileFailed:
    if isinstance(error, ProfileFailed):
        return error
    return ProfileFailed(error.what, error.why, error.still_works)
