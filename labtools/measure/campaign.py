"""A campaign: check, time, profile and record a whole plan with one command.

Groups are measured one after another, each by the same five child processes. A group's records
are written as soon as it is done, so a campaign that was stopped goes on where it was.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from labtools.problem import LabError, Rung, Workload, battery, load_baseline
from labtools.record import (
    ComparisonResult,
    Counters,
    ForecastMade,
    Record,
    SanitizerVerdict,
    append_records,
    hash_python_file,
    own_records_dir,
    read_records,
    shipped_records_dir,
    slug_of_gpu,
)
from labtools.toolchain import DeviceInfo

from .campaign_plan import Group, Plan, expand_plan, load_plan
from .live import GpuRun, run_jobs_on_gpu
from .live_job import (
    Candidate,
    ceiling_candidates,
    hashes_for_live,
    require_device,
    rung_candidate,
)
from .live_measure import (
    BUDGET_S,
    PROCESSES,
    ROUNDS,
    Progress,
    make_group,
    make_records,
    open_pool,
    run_group,
)

SANITIZER_WORKLOAD = Workload(2, 8, 2, 65, 128, seq_lens=(65, 31))
"""Small, because racecheck slows a kernel down a hundredfold; odd and ragged all the same."""
SANITIZER_TOOLS = ("memcheck", "racecheck", "synccheck")
TOOLS_AT_ONCE = 3
ITEMS_AHEAD = 64
"""Kernels that are profiled in one go, from the next groups as well; what a campaign that is
stopped loses of them is measured again."""

CounterSet = Literal["chosen", "few"]
"""Every chosen counter, or those that a bound needs."""


@dataclass
class CampaignReport:
    """What a campaign did.

    Args:
        path: the file of its records.
        groups: how many workloads there are.
        measured: how many were measured now.
        resumed: how many had been measured before.
        records: the records written now.
        failures: candidates without a time, and why: ``workload: candidate`` to a sentence.
        left_out: what could not run on any workload, and why.
    """

    path: Path
    groups: int
    measured: int = 0
    resumed: int = 0
    records: list[Record] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Every group is there and no candidate failed."""
        return not self.failures and self.measured + self.resumed == self.groups


def record_campaign(
    plan: str | Plan = "ladder",
    out_dir: Path | str | None = None,
    *,
    processes: int = PROCESSES,
    rounds: int = ROUNDS,
    budget_s: float = BUDGET_S,
    profile: bool = True,
    sanitize: bool = True,
    progress: Progress | None = None,
) -> CampaignReport:
    """Measure a plan on this machine's GPU and write its records.

    Before its group is timed every kernel is checked on a battery of small workloads, and its
    forecast is stored. What is already in ``out_dir`` for the same code is skipped.

    Args:
        plan: a name (``ladder``, ``quick``) or a Plan.
        out_dir: records go to ``out_dir/<gpu>/<plan>.jsonl.gz``; None is ``kernels/records``.
        processes: child processes.
        rounds: samples a candidate and process.
        budget_s: device seconds a candidate and process, about.
        profile: read hardware counters where the plan asks for them.
        sanitize: run compute-sanitizer where the plan asks for counters.
        progress: called with a sentence, how much is done and how much there is.

    Raises:
        LabError: nothing can run on a GPU here, or the records cannot be written.
    """
    chosen = load_plan(plan) if isinstance(plan, str) else plan
    device = require_device()
    folder = Path(out_dir) if out_dir is not None else shipped_records_dir()
    path = folder / slug_of_gpu(device.name) / f"{chosen.name}.jsonl.gz"
    groups, left_out = expand_plan(chosen)
    return _measure_groups(
        groups,
        path,
        chosen.name,
        device,
        processes=processes,
        rounds=rounds,
        budget_s=budget_s,
        profile=profile,
        sanitize=sanitize,
        progress=progress or _silent,
        left_out=left_out,
    )


def record_rung(
    rung: Rung,
    workload: Workload,
    knobs: Mapping[str, int] | None = None,
    out_dir: Path | str | None = None,
    *,
    baselines: Sequence[str] = ("sdpa",),
    processes: int = PROCESSES,
    rounds: int = ROUNDS,
    profile: bool = True,
    sanitize: bool = True,
    progress: Progress | None = None,
) -> CampaignReport:
    """Check, time, profile and record one rung, beside baselines and the read ceiling.

    Args:
        rung: shipped, or loaded from any folder.
        workload: what to compute.
        knobs: compile-time choices.
        out_dir: None is the reader's own records, ``work/records``.
        baselines: timed in the same processes, where they can run.
        processes, rounds, profile, sanitize, progress: as for `record_campaign`.

    Raises:
        CompileError: it does not compile.
        LabError: no GPU, the rung does not support the workload, it exists only on a page, or
            it is wrong.
    """
    if rung.edited:
        raise LabError(
            f"The edited {rung.id} is not recorded.",
            "a record belongs to files, and this kernel stands on a page only",
            "save it as two files (NAME.py and NAME.cu) and record those; timing it works as it is",
        )
    reason = rung.supports(workload)
    if reason:
        raise LabError(f"{rung.id} cannot run {workload}.", reason, "choose another workload")
    device = require_device()
    folder = Path(out_dir) if out_dir is not None else own_records_dir()
    path = folder / slug_of_gpu(device.name) / f"{rung.id}.jsonl.gz"
    mine = rung_candidate(rung, knobs)
    others = [Candidate(load_baseline(name), "baseline") for name in baselines]
    fitting = [one for one in others if one.supports(workload) is None]
    group = Group(
        workload,
        {one.label: one for one in (mine, *fitting)},
        ceiling=True,
        profile={mine.label: mine},
        sanitize={mine.label: mine},
    )
    report = _measure_groups(
        [group],
        path,
        rung.id,
        device,
        processes=processes,
        rounds=rounds,
        budget_s=BUDGET_S,
        profile=profile,
        sanitize=sanitize,
        progress=progress or _silent,
        left_out={},
    )
    key = f"{workload}: {mine.label}"
    if key in report.failures:
        raise LabError(
            f"{mine.label} was not recorded.",
            report.failures[key],
            "`labtools run --on cpu` names what is wrong with file and line",
        )
    return report


def _silent(text: str, done: int, total: int) -> None:
    """No progress wanted."""


def _measure_groups(
    groups: Sequence[Group],
    path: Path,
    name: str,
    device: DeviceInfo,
    *,
    processes: int,
    rounds: int,
    budget_s: float,
    profile: bool,
    sanitize: bool,
    progress: Progress,
    left_out: dict[str, str],
) -> CampaignReport:
    report = CampaignReport(path, len(groups), left_out=left_out)
    finished = finished_groups(path)
    todo: list[tuple[Group, list[Candidate], str]] = []
    for group in groups:
        candidates = list(group.candidates.values())
        if group.ceiling:
            candidates += [
                one
                for one in ceiling_candidates(device.sm_count)
                if one.supports(group.workload) is None
            ]
        settings = {
            "processes": processes,
            "rounds": rounds,
            "budget_s": budget_s,
            "profile": sorted({**group.profile, **group.counters}) if profile else [],
            "sanitize": sorted(group.sanitize) if sanitize else [],
        }
        key = group_key(group.workload, candidates, settings, device)
        if key in finished:
            report.resumed += 1
        else:
            todo.append((group, candidates, key))
    if not todo:
        return report
    checker = _Checker(progress)
    stamp = f"{datetime.now(UTC):%Y%m%dT%H%M%S}"
    all_candidates = [one for _, candidates, _ in todo for one in candidates]
    with (
        open_pool(processes, all_candidates, f"campaign {name}", progress) as pool,
        _Forecasting(todo, device) as forecasting,
    ):
        checker.check_all(todo)
        counting = _Counting(todo, checker, progress)
        for number, (group, candidates, key) in enumerate(todo):

            def show(text: str, done: int, total: int, number: int = number) -> None:
                part = done / total if total else 0.0
                progress(text, int(1000 * (number + part)), 1000 * len(todo))

            right = []
            for one in candidates:
                problem = checker.problem(one, group.workload)
                if problem is None:
                    right.append(one)
                else:
                    report.failures[f"{group.workload}: {one.label}"] = problem
            forecasts = forecasting.made(number, right)
            job = make_group(right, group.workload, device, rounds=rounds, budget_s=budget_s)
            try:
                result = run_group(pool, job, processes, show)
            except LabError as error:
                # One workload that cannot be measured must not cost the others.
                report.failures[f"{group.workload}: every candidate"] = str(error)
                continue
            timed = {one.label for one in right} - set(result.failures)
            counters = counting.read(number, timed) if profile else {}
            watched = {label: one for label, one in group.sanitize.items() if label in timed}
            verdicts = _read_verdicts(watched, show) if sanitize else {}
            records = make_records(
                right,
                group.workload,
                result,
                job,
                device,
                f"{name}-{stamp}-{key}",
                forecasts=forecasts,
                counters=counters,
                verdicts=verdicts,
                checks=checker.results(right, group.workload),
            )
            if records:
                append_records(path, records, supersede=True)
                report.records += records
            for label, problem in result.failures.items():
                report.failures[f"{group.workload}: {label}"] = problem
            report.measured += 1
    progress("done", 1000 * len(todo), 1000 * len(todo))
    return report


def group_key(
    workload: Workload,
    candidates: Sequence[Candidate],
    settings: Mapping[str, Any],
    device: DeviceInfo,
) -> str:
    """What makes a group the same group again: workload, code of every candidate, settings."""
    parts = []
    for one in candidates:
        if isinstance(one.target, Rung):
            hashes = hashes_for_live(one.target, workload, one.knobs, device.arch)
            code = hashes.sass_hash or hashes.source_hash
        else:
            code = hash_python_file(one.target.source) if one.target.source else ""
        parts.append([one.label, code])
    text = json.dumps([workload.key(), sorted(parts), dict(settings), device.name], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def finished_groups(path: Path) -> set[str]:
    """The keys of the groups whose records are in a file already."""
    if not path.exists():
        return set()
    records, _ = read_records(path)
    return {record.campaign.rsplit("-", 1)[-1] for record in records}


class _Checker:
    """Checks each kernel on the battery of small workloads, once a dimension, type and layout."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._results: dict[CheckKey, ComparisonResult] = {}

    def check_all(self, todo: Sequence[tuple[Group, list[Candidate], str]]) -> None:
        """Run every kernel that will be timed on its battery."""
        wanted: dict[CheckKey, tuple[Candidate, Workload]] = {}
        for group, candidates, _ in todo:
            for one in candidates:
                if one.kind == "rung":
                    key = check_key(one.label, group.workload)
                    wanted.setdefault(key, (one, group.workload))
        self._progress("checking the kernels on small workloads", 0, 0)
        self._results = check_batteries(wanted)

    def problem(self, candidate: Candidate, workload: Workload) -> str | None:
        """Why a candidate may not be timed, or None."""
        result = self._results.get(check_key(candidate.label, workload))
        if result is None or result.ok:
            return None
        return "; ".join(result.problems)

    def results(
        self, candidates: Sequence[Candidate], workload: Workload
    ) -> dict[str, ComparisonResult]:
        """What the check found, by label."""
        found = {}
        for one in candidates:
            result = self._results.get(check_key(one.label, workload))
            if result is not None:
                found[one.label] = result
        return found


def small_cases(workload: Workload, supports: Callable[[Workload], str | None]) -> list[Workload]:
    """The battery of a workload without the workload itself, which timing checks anyway."""
    return [case for case in battery(workload, supports) if case != workload]


CheckKey = tuple[str, int, str, str]
"""A candidate's label, and what other code is compiled for: head dimension, type, layout."""


def check_key(label: str, workload: Workload) -> CheckKey:
    """What the check of a candidate on one workload speaks for."""
    return (label, workload.head_dim, workload.dtype, workload.layout)


def check_batteries(
    wanted: Mapping[CheckKey, tuple[Candidate, Workload]],
    run_jobs: Callable[..., list[GpuRun]] = run_jobs_on_gpu,
) -> dict[CheckKey, ComparisonResult]:
    """Check rungs on the GPU, each on small workloads of its workload's head dimension.

    All run in one child process. One that kills it is reported, and the others go on in the next.
    """
    jobs = [
        (key, (one.target, case, one.knobs))
        for key, (one, workload) in wanted.items()
        for case in small_cases(workload, one.supports)
    ]
    runs: dict[CheckKey, list[GpuRun]] = {key: [] for key in wanted}
    while jobs:
        done = run_jobs([job for _, job in jobs])
        for (key, _), run in zip(jobs, done, strict=False):
            runs[key].append(run)
        if len(done) == len(jobs):
            break
        # The last one took the process down: its kernel is done with, the others are not.
        culprit = jobs[max(len(done), 1) - 1][0]
        jobs = [(key, job) for key, job in jobs[max(len(done), 1) :] if key != culprit]
    return {key: _summarise_check(found) for key, found in runs.items()}


def _summarise_check(runs: Sequence[GpuRun]) -> ComparisonResult:
    wrong = [run for run in runs if not run.ok]
    compared = [run.comparison for run in runs if run.comparison is not None]
    return ComparisonResult(
        ok=bool(runs) and not wrong,
        worst_error=max((one.worst_error for one in compared), default=None) if not wrong else None,
        tolerance=compared[0].tolerance if compared else None,
        cases=len(runs),
        pairs=sum(run.workload.batch * run.workload.num_qo_heads for run in runs),
        problems=tuple(str(run) for run in wrong) if runs else ("it was not checked",),
    )


def _forecast(candidate: Candidate, group: Group, device: DeviceInfo) -> ForecastMade | None:
    """The model's forecast, made before the run."""
    if candidate.kind != "rung" or not isinstance(candidate.target, Rung):
        return None
    from labtools.predict import forecast, merge_device

    try:
        made = forecast(candidate.target, group.workload, merge_device(device), candidate.knobs)
    except Exception:
        # A GPU whose sheet and clocks are unknown has no forecast, nor has a kernel that the model
        # cannot follow; neither may cost the measurement.
        return None
    return ForecastMade(
        time_us=made.time_us, band_us=made.band_us, bound=made.bound, model=made.model
    )


class _Forecasting:
    """The forecasts of all groups, made while earlier groups are measured.

    A forecast takes this process a second or so, and the measuring children nothing: one thread
    works through the groups in their order, and a group is timed when its own are there.
    """

    def __init__(
        self, todo: Sequence[tuple[Group, list[Candidate], str]], device: DeviceInfo
    ) -> None:
        self._pool = ThreadPoolExecutor(1)
        self._pending = {
            (number, one.label): self._pool.submit(_forecast, one, group, device)
            for number, (group, candidates, _) in enumerate(todo)
            for one in candidates
        }

    def made(self, number: int, candidates: Sequence[Candidate]) -> dict[str, ForecastMade]:
        """The forecasts of a group's candidates, by label; waits for them."""
        found = {one.label: self._pending[number, one.label].result() for one in candidates}
        return {label: made for label, made in found.items() if made is not None}

    def __enter__(self) -> _Forecasting:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)


class _Counting:
    """Hardware counters of the groups' rungs, a batch of groups ahead.

    A profiler takes seconds to start and a fraction of one for a kernel, so small groups share a
    start. Whatever goes wrong here is a reason in place of counters, never a lost time.
    """

    def __init__(
        self,
        todo: Sequence[tuple[Group, list[Candidate], str]],
        checker: _Checker,
        progress: Progress,
    ) -> None:
        self._todo = todo
        self._checker = checker
        self._progress = progress
        self._found: dict[tuple[int, str], Counters] = {}
        self._next = 0
        self._refusal: Counters | None = None

    def read(self, number: int, labels: Collection[str]) -> dict[str, Counters]:
        """Counters of the wanted rungs of a group, of those among ``labels``."""
        if self._next <= number and self._wanted(number):
            self._profile_from(number)
        found = {label: one for (of, label), one in self._found.items() if of == number}
        return {label: one for label, one in found.items() if label in labels}

    def _wanted(self, number: int) -> dict[str, tuple[Candidate, CounterSet]]:
        """What of a group is to be profiled: what is right, each with the set of its counters."""
        group, candidates, _ = self._todo[number]
        every = set(group.profile)
        bound = set(group.counters)
        if bound and group.ceiling:
            bound |= {one.label for one in candidates if one.kind == "ceiling"}
        return {
            one.label: (one, "chosen" if one.label in every else "few")
            for one in candidates
            if one.label in every | bound
            and isinstance(one.target, Rung)
            and self._checker.problem(one, group.workload) is None
        }

    def _profile_from(self, number: int) -> None:
        items: dict[CounterSet, list[tuple[int, str, Candidate]]] = {"chosen": [], "few": []}
        self._next = number
        while self._next < len(self._todo):
            wanted = self._wanted(self._next)
            if any(items.values()) and sum(map(len, items.values())) + len(wanted) > ITEMS_AHEAD:
                break
            for label, (one, which) in wanted.items():
                items[which].append((self._next, label, one))
            self._next += 1
        for which, some in items.items():
            if some:
                counted = self._profile(which, some)
                keys = [(of, label) for of, label, _ in some]
                self._found.update(zip(keys, counted, strict=True))

    def _profile(
        self, which: CounterSet, items: Sequence[tuple[int, str, Candidate]]
    ) -> list[Counters]:
        from .profile import ProfilerUnavailable
        from .profile_batch import profile_batch

        if self._refusal is not None:
            return [self._refusal] * len(items)
        self._progress(f"profiling {len(items)} kernels", 0, 0)
        batch = [
            (one.target, self._todo[of][0].workload, one.knobs)
            for of, _, one in items
            if isinstance(one.target, Rung)
        ]
        try:
            reports = profile_batch(
                batch, counters=which, progress=lambda text: self._progress(text, 0, 0)
            )
        except LabError as error:
            reason = _no_counters(error)
            if isinstance(error, ProfilerUnavailable):
                self._refusal = reason
            return [reason] * len(items)
        except Exception as error:  # a report in a form not seen before must not cost the times
            text = f"the profiler's answer was not understood: {type(error).__name__}: {error}"
            return [Counters(reason=text)] * len(items)
        return [
            _no_counters(one) if isinstance(one, LabError) else one.record_counters()
            for one in reports
        ]


def _no_counters(error: LabError) -> Counters:
    return Counters(reason=" ".join(filter(None, (error.what, error.why))))


def _read_verdicts(
    watched: Mapping[str, Candidate], progress: Progress
) -> dict[str, list[SanitizerVerdict]]:
    """Sanitizer verdicts of the watched rungs on a small workload."""
    from .sanitize import sanitize_rung

    def verdict(label: str, one: Candidate, tool: str) -> SanitizerVerdict:
        workload = SANITIZER_WORKLOAD
        small = workload.to_dict()
        if not isinstance(one.target, Rung) or one.supports(workload):
            why = one.supports(workload) or "it is no kernel of this project"
            return SanitizerVerdict(tool=tool, verdict="not run", text=why, workload=small)
        try:
            report = sanitize_rung(one.target, workload, one.knobs, tools=(tool,))[0]
        except LabError as error:
            text = " ".join((error.what, error.why))
            return SanitizerVerdict(tool=tool, verdict="not run", text=text, workload=small)
        text = "\n".join(str(error) for error in report.errors[:5]) or report.reason
        if report.verdict == "errors" and not text:
            text = f"{report.error_count} errors"
        return SanitizerVerdict(
            tool=tool,
            verdict=report.verdict,
            text="" if report.verdict == "clean" else text,
            workload=small,
        )

    progress("compute-sanitizer", 0, 0)
    # Verdicts are no times, so the tools may share the GPU.
    with ThreadPoolExecutor(TOOLS_AT_ONCE) as pool:
        pending = {
            label: [pool.submit(verdict, label, one, tool) for tool in SANITIZER_TOOLS]
            for label, one in watched.items()
        }
        return {label: [job.result() for job in jobs] for label, jobs in pending.items()}
