"""Counters of many kernels in one run of Nsight Compute.

Starting ncu, Python and CUDA takes seconds; a launch under ncu takes a fraction of one. So one
child launches many rungs, and their counters are told apart by the order of launches, which is
held against each kernel's name, grid and block. Cold workloads have a run with the caches flushed
before every pass, warm ones a run without.
"""

from __future__ import annotations

import re
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from labtools.problem import LabError, Rung, Workload
from labtools.toolchain import CompilerMissing, compile_cubin

from . import profile
from .child import ChildResult, child_lab_error
from .live_faults import hang_message
from .live_job import (
    Candidate,
    candidate_to_json,
    fill_cubin,
    require_device,
    split_launches,
    store_cubin,
)
from .live_watch import TIMEOUT_MARK, read_stage
from .profile import NcuTool, ProfileFailed, ProfileReport, ProfilerUnavailable
from .profile_counters import COUNTERS, FEW_COUNTERS, Counter, KernelCounters, sum_launches
from .target import describe_child_failure, hold_this_gpu

CHILD_MODULE = "labtools.measure.profile_child"
MOST_ITEMS = 96
"""Items of one ncu run: its start is spread over enough of them, and little is lost with it."""
STEP_LIMIT_S = 60.0
"""For one item, all passes; past it the child ends, and the item is the one that hung."""
RUN_LIMIT_S = 180.0
ITEM_LIMIT_S = 10.0
"""A run's time limit is `RUN_LIMIT_S` and this much for each of its items."""
EMPTY_LAUNCHES = 3
_EMPTY_ENTRY = "empty_launch"
_EMPTY_SOURCE = f'extern "C" __global__ void {_EMPTY_ENTRY}() {{}}\n'

BatchItem = tuple[Rung, Workload, Mapping[str, int] | None]

_refused: dict[str, tuple[str, ...]] = {}
"""Metrics that an ncu (by path) was found to refuse, so that no later run asks for them again."""


@dataclass(frozen=True)
class _Item:
    """One item, compiled."""

    number: int
    rung: Rung
    workload: Workload
    knobs: dict[str, int]
    job: Mapping[str, Any]

    @property
    def label(self) -> str:
        return f"{self.job['label']} on {self.workload}"

    @property
    def watched(self) -> list[Mapping[str, Any]]:
        """The launches that the profiler sees."""
        return split_launches(self.job["launches"])[1]


@dataclass
class _Outcome:
    """What one run gave: reports, failures, and what is left to do."""

    reports: dict[int, ProfileReport] = field(default_factory=dict)
    failures: dict[int, ProfileFailed] = field(default_factory=dict)
    left: list[_Item] = field(default_factory=list)
    error: ProfileFailed | None = None
    """Why nothing was gained, when nothing was."""

    @property
    def gained(self) -> bool:
        return bool(self.reports or self.failures)


def profile_batch(
    items: Sequence[BatchItem],
    *,
    counters: Literal["chosen", "few"] = "chosen",
    progress: Callable[[str], None] | None = None,
) -> list[ProfileReport | ProfileFailed]:
    """Profile one call of each of many rungs on this machine's GPU.

    Each is launched once to load it, then once under the profiler; launches marked ``prepare`` run
    before and are not watched. Inputs are drawn anew for each workload, and nothing is compared:
    a kernel whose result matters has been checked before. A kernel that fails, hangs or takes the
    process down costs itself alone; the others are profiled in another run. Clocks are left alone.

    Args:
        items: (rung, workload, knobs). Equal workloads share their buffers, wherever they stand.
        counters: ``chosen`` for all chosen counters; ``few`` for those that a bound needs, in
            fewer passes.
        progress: gets a sentence now and then.

    Returns:
        For each item, in order, its report (with `ProfileReport.empty_launch_us`), or why it has
        none.

    Raises:
        ProfilerUnavailable: no ncu, or the counters are not permitted.
        LabError: nothing can run on a GPU here.
    """
    if not items:
        return []
    ncu = profile.find_ncu()
    arch = require_device().arch
    results: dict[int, ProfileReport | ProfileFailed] = {}
    ready: list[_Item] = []
    for number, (rung, workload, knobs) in enumerate(items):
        try:
            resolved = rung.resolve_knobs(knobs)
            job = candidate_to_json(Candidate(rung, "rung", resolved), workload, arch)
        except LabError as error:
            results[number] = _as_failure(error)
        else:
            ready.append(_Item(number, rung, workload, resolved, job))
    # A workload's buffers are made once, and as few of them as possible exist at a time: ncu saves
    # what a kernel may write before it replays it.
    places: dict[str, int] = {}
    for one in ready:
        places.setdefault(one.workload.key(), len(places))
    ready.sort(key=lambda one: (places[one.workload.key()], one.number))
    batch = _Batch(ncu, arch, FEW_COUNTERS if counters == "few" else COUNTERS, progress)
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
        self,
        ncu: NcuTool,
        arch: str,
        wanted: Sequence[Counter],
        progress: Callable[[str], None] | None,
    ) -> None:
        self.ncu = ncu
        self.wanted = wanted
        self.names = frozenset(counter.name for counter in wanted)
        self.progress = progress
        self.fill_cubin = str(fill_cubin(arch))
        self.empty = _empty_job(arch)
        self.proved = False
        """A run has given counters, so that a run without any is the fault of its items."""

    def measure(
        self, items: Sequence[_Item], warm: bool
    ) -> dict[int, ProfileReport | ProfileFailed]:
        """Counters of some items, by number.

        Each run either settles at least one item, or is split in two, so this ends.
        """
        found: dict[int, ProfileReport | ProfileFailed] = {}
        waiting = [list(items)]
        while waiting:
            some = waiting.pop(0)
            outcome = self.run(some, warm)
            found.update(outcome.reports)
            found.update(outcome.failures)
            if not outcome.left:
                continue
            if outcome.gained:
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
        """One run of ncu.

        Raises:
            ProfilerUnavailable: the counters are not permitted.
        """
        with tempfile.TemporaryDirectory(prefix="labtools-profile-") as name:
            folder = Path(name)
            report = folder / "report.ncu-rep"
            request = {
                "items": [
                    {
                        "number": one.number,
                        "label": one.label,
                        "workload": one.workload.to_dict(),
                        "cubin": one.job["cubin"],
                        "launches": one.job["launches"],
                    }
                    for one in items
                ],
                "empty": self.empty,
                "fill_cubin": self.fill_cubin,
                "step_limit_s": STEP_LIMIT_S,
                "stage_path": str(folder / "stage.json"),
                "story_path": str(folder / "story.json"),
            }
            child, result, dropped = profile.run_under_ncu(
                self.ncu,
                CHILD_MODULE,
                request,
                report,
                counters="chosen",
                warm=warm,
                time_limit_s=RUN_LIMIT_S + ITEM_LIMIT_S * len(items),
                wanted=self.wanted,
                without=_refused.get(self.ncu.path, ()),
                on_progress=self._hear,
            )
            if report.exists():
                _refused[self.ncu.path] = dropped
            return self._judge(items, child, result, report, folder, dropped)

    def _hear(self, event: Mapping[str, Any]) -> None:
        if self.progress is not None and "item" in event:
            self.progress(f"profiling {event['item']}")

    def _judge(
        self,
        items: Sequence[_Item],
        child: ChildResult,
        result: Any,
        report: Path,
        folder: Path,
        dropped: Sequence[str],
    ) -> _Outcome:
        """Which items have their counters, which are to blame, and which are left."""
        outcome = _Outcome()
        story = result if isinstance(result, dict) and "profiled" in result else None
        story = story or read_stage(folder / "story.json")
        by_number = {one.number: one for one in items}
        if story:
            for number, why in story["problems"].items():
                outcome.failures[int(number)] = _failed(
                    f"{by_number[int(number)].label} could not be profiled.", why
                )
        suspect = _suspect(story, read_stage(folder / "stage.json"), child, by_number)
        if suspect is not None and suspect.number not in outcome.failures:
            outcome.failures[suspect.number] = _failed(
                f"{suspect.label} could not be profiled.", _explain_end(child, result, folder)
            )
        try:
            rows = self._read(child, result, report)
            profiled = [by_number[number] for number in (story or {}).get("profiled", [])]
            tail = len(suspect.watched) if suspect is not None else 0
            empty_us, kernels = _match_rows(rows, profiled, tail)
        except ProfilerUnavailable:
            raise
        except LabError as error:
            outcome.error = _as_failure(error)
        else:
            self.proved = True
            seconds = child.seconds / max(1, len(profiled))
            for one, mine in zip(profiled, kernels, strict=True):
                outcome.reports[one.number] = self._report(one, mine, empty_us, dropped, seconds)
        outcome.left = [
            one
            for one in items
            if one.number not in outcome.reports and one.number not in outcome.failures
        ]
        return outcome

    def _read(self, child: ChildResult, result: Any, report: Path) -> list[KernelCounters]:
        """The rows of the report, which a child that died may have left as well."""
        if not report.exists() or "ERR_NVGPUCTRPERM" in child.stdout + child.stderr:
            profile.check_ncu_run(child, result, report)
            raise child_lab_error(result) or _failed("The profiler left no report.", child.ending)
        return profile.read_report(self.ncu, report)

    def _report(
        self,
        item: _Item,
        kernels: Sequence[KernelCounters],
        empty_us: float | None,
        dropped: Sequence[str],
        seconds: float,
    ) -> ProfileReport:
        # What was not asked for is not missing; it is not there.
        kept = tuple(
            replace(
                kernel,
                values={name: kernel.values[name] for name in kernel.values if name in self.names},
            )
            for kernel in kernels
        )
        notes = [f"ncu does not know these metrics here: {', '.join(dropped)}"] if dropped else []
        return ProfileReport(
            target=item.rung.id,
            workload=item.workload.to_dict(),
            knobs=item.knobs,
            tool=f"ncu {self.ncu.version_text}",
            kernels=kept,
            totals=sum_launches(kept),
            notes=tuple(notes),
            seconds=seconds,
            empty_launch_us=empty_us,
        )


def _empty_job(arch: str) -> dict[str, Any]:
    try:
        cubin = compile_cubin(_EMPTY_SOURCE, arch, name="empty.cu", compiler="cupy")
    except CompilerMissing:
        cubin = compile_cubin(_EMPTY_SOURCE, arch, name="empty.cu")
    launch = {
        "entry": _EMPTY_ENTRY,
        "grid": [1, 1, 1],
        "block": [32, 1, 1],
        "smem_bytes": 0,
        "args": [],
        "workspace": [],
        "prepare": False,
    }
    return {"cubin": str(store_cubin(cubin)), "launches": [launch], "times": EMPTY_LAUNCHES}


def _suspect(
    story: Mapping[str, Any] | None,
    stage: Mapping[str, Any],
    child: ChildResult,
    items: Mapping[int, _Item],
) -> _Item | None:
    """The item at which the run ended early, if one can be named."""
    number = ""
    if story and story["dead"] and story["problems"]:
        number = list(story["problems"])[-1]
    elif not child.ok and stage.get("running"):
        number = str(stage.get("label", ""))
    return items.get(int(number)) if number.isdigit() else None


def _explain_end(child: ChildResult, result: Any, folder: Path) -> str:
    if TIMEOUT_MARK in child.stderr:
        limit_s = read_stage(folder / "stage.json").get("limit_s", STEP_LIMIT_S)
        return hang_message(float(limit_s))
    return describe_child_failure(child, result)


def _match_rows(
    rows: Sequence[KernelCounters], items: Sequence[_Item], tail: int
) -> tuple[float | None, list[tuple[KernelCounters, ...]]]:
    """Give each item the rows of its launches; also the duration of an empty launch, us.

    ncu lists launches in order. That none is lost or added is held against the number of rows,
    and that each is the right one against its kernel's name, its grid and its block.

    Args:
        tail: rows that an item may have left in which the run ended.

    Raises:
        ProfileFailed: the rows are not those of the launches.
    """
    expected = EMPTY_LAUNCHES + sum(len(one.watched) for one in items)
    if not expected <= len(rows) <= expected + tail:
        raise _failed(
            "The profiler's report does not fit what was launched.",
            f"it holds {len(rows)} launches, and {expected} were made while it watched",
        )
    empties = rows[:EMPTY_LAUNCHES]
    for row in empties:
        _check_row(row, {"entry": _EMPTY_ENTRY, "grid": [1, 1, 1], "block": [32, 1, 1]})
    times = [row.values["duration_us"] for row in empties]
    known = [value for value in times if value is not None]
    found, place = [], EMPTY_LAUNCHES
    for one in items:
        mine = rows[place : place + len(one.watched)]
        for row, launch in zip(mine, one.watched, strict=True):
            _check_row(row, launch)
        place += len(mine)
        found.append(tuple(mine))
    return statistics.median(known) if known else None, found


def _check_row(row: KernelCounters, launch: Mapping[str, Any]) -> None:
    name = re.split(r"[(<]", row.kernel, maxsplit=1)[0].split()
    seen = (name[-1] if name else "", _sizes(row.grid), _sizes(row.block))
    made = (launch["entry"], list(launch["grid"]), list(launch["block"]))
    # ncu shows a mangled name demangled; the grid and the block still have to fit.
    first = 1 if str(launch["entry"]).startswith("_Z") else 0
    if seen[first:] != made[first:]:
        raise _failed(
            "The profiler's report does not fit what was launched.",
            f"it shows {row.kernel} with grid {row.grid} and block {row.block} where "
            f"{made[0]} was launched with grid {made[1]} and block {made[2]}",
        )


def _sizes(text: str) -> list[int]:
    """``(256, 1, 1)`` as numbers."""
    return [int(part) for part in re.findall(r"\d+", text)]


def _failed(what: str, why: str) -> ProfileFailed:
    return ProfileFailed(what, why, profile.STILL_WORKS)


def _as_failure(error: LabError) -> ProfileFailed:
    if isinstance(error, ProfileFailed):
        return error
    return ProfileFailed(error.what, error.why, error.still_works)
