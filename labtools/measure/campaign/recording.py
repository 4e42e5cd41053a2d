"""A campaign: check, time, profile and record a whole plan with one command.

A group's records are written as soon as it is done: a stopped campaign goes on where it was.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from labtools.predict import limits_of
from labtools.problem import (
    Comparison,
    KernelError,
    LabError,
    Limits,
    Problem,
    Rung,
    load_baseline,
    merge_comparisons,
    operation_of,
)
from labtools.record import (
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
from labtools.record.staleness import stale_records
from labtools.toolchain import DeviceInfo, kernel_hashes
from labtools.toolchain.clusters import query_clusters
from labtools.toolchain.progress import Progress, silent, words_of

from ..case import why_not_launched
from ..gpu.job import Candidate, ceiling_candidates, require_device, rung_candidate
from ..gpu.measure import (
    BUDGET_S,
    PROCESSES,
    ROUNDS,
    Known,
    make_group,
    make_records,
    open_pool,
    run_group,
)
from ..gpu.runner import GpuRun, LivePool, run_jobs_on_gpu
from .plan import Group, Plan, expand_plan, load_plan

if TYPE_CHECKING:
    from ..profiler.ncu import ProfileReport

SANITIZER_TOOLS = ("memcheck", "racecheck", "synccheck")
TOOLS_AT_ONCE = 3
ITEMS_AHEAD = 64  # kernels that are profiled in one go, from the next groups as well

WhyWrong = Callable[[Candidate, Problem], str]
RecordedCounters = Literal["chosen", "few"]  # every chosen counter, or those that a bound needs


@dataclass
class CampaignReport:
    """What a campaign did."""

    path: Path  # the file of its records
    groups: int  # workloads: all of them, those measured now, and those measured before
    measured: int = 0
    resumed: int = 0
    records: list[Record] = field(default_factory=list)  # the records written now
    # candidates without a time, and why: ``workload: candidate`` to a sentence
    failures: dict[str, str] = field(default_factory=dict)
    # what could not run on any workload, or not on some of those that it was to be checked on, and
    # why
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Every group is there and no candidate failed."""
        return not self.failures and self.measured + self.resumed == self.groups


@dataclass(frozen=True)
class Effort:
    """How much is measured."""

    processes: int = PROCESSES
    rounds: int = ROUNDS  # samples a candidate and process
    budget_s: float = BUDGET_S
    profile: bool = True  # read hardware counters where the plan asks for them
    sanitize: bool = True  # run compute-sanitizer where the plan asks for verdicts


def record_campaign(
    plan: str | Plan,
    out_dir: Path | str | None = None,
    effort: Effort = Effort(),
    *,
    stale: bool = False,
    progress: Progress = silent,
) -> CampaignReport:
    """Measure a plan on this machine's GPU and write its records.

    Before its group is timed every kernel is checked on a battery of small workloads, and its
    forecast is stored. Records go to ``out_dir/<gpu>/<plan>.jsonl.gz``, by default in
    ``kernels/records``; what is already there for the same code is skipped. ``stale`` takes only
    the workloads of which this GPU's shipped records of the plan hold one that no longer belongs
    to the code, or none at all.

    Raises LabError: nothing can run on a GPU here, or the records cannot be written.
    """
    chosen = load_plan(plan) if isinstance(plan, str) else plan
    device = require_device()
    folder = Path(out_dir) if out_dir is not None else shipped_records_dir()
    path = folder / slug_of_gpu(device.name) / f"{chosen.name}.jsonl.gz"
    groups, left_out = expand_plan(chosen)
    if stale:
        shipped = shipped_records_dir() / path.relative_to(folder)
        fresh = _fresh_problems(shipped)
        groups = [group for group in groups if group.workload.key() not in fresh]
    return _Campaign(path, chosen.name, device, effort, progress).measure(groups, left_out)


def _fresh_problems(path: Path) -> frozenset[str]:
    """The keys of the workloads whose records in a file all belong to the code as it is."""
    records = read_records(path)[0] if path.exists() else []
    outdated = {record.problem_key for record in stale_records(records)}
    return frozenset({record.problem_key for record in records} - outdated)


def record_rung(
    rung: Rung,
    workload: Problem,
    knobs: Mapping[str, int] | None = None,
    out_dir: Path | str | None = None,
    effort: Effort = Effort(),
    *,
    baselines: Sequence[str] | None = None,
    progress: Progress = silent,
) -> CampaignReport:
    """Check, time, profile and record one rung, beside baselines and the read ceiling.

    The records go to ``out_dir``, by default the reader's own, ``work/records``. The baselines that
    can run are timed in the same processes; None takes the one that its operation is held against.

    Raises CompileError: it does not compile; KernelError: it is wrong; LabError: no GPU, the rung
    does not support the workload, or it exists only on a page.
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
    mine = rung_candidate(rung, knobs)
    usual = operation_of(workload).baseline
    beside = baselines if baselines is not None else [usual] if usual else []
    others = [Candidate(load_baseline(name), "baseline") for name in beside]
    fitting = [one for one in others if one.supports(workload) is None]
    watched = {mine.label: mine}
    timed = watched | {one.label: one for one in fitting}
    group = Group(workload, timed, ceiling=True, profile=watched, sanitize=watched)
    report = record_groups(rung.id, [group], out_dir, effort, progress=progress)
    if why := report.failures.get(f"{workload}: {mine.label}"):
        said = "`labtools run --on cpu` names what is wrong with file and line"
        raise KernelError(f"{mine.label} was not recorded.", why, said)
    return report


def record_groups(
    name: str,
    groups: Sequence[Group],
    out_dir: Path | str | None = None,
    effort: Effort = Effort(),
    *,
    progress: Progress = silent,
) -> CampaignReport:
    """Record some groups as `record_campaign` does a plan, in the reader's own ``name.jsonl.gz``.

    Raises LabError: there is no GPU here, or the records cannot be written.
    """
    device = require_device()
    folder = Path(out_dir) if out_dir is not None else own_records_dir()
    path = folder / slug_of_gpu(device.name) / f"{name}.jsonl.gz"
    return _Campaign(path, name, device, effort, progress).measure(groups, {})


@dataclass(frozen=True)
class _Task:
    number: int  # its place among all of them
    group: Group  # what the plan wants
    candidates: list[Candidate]  # everything that is timed, the read ceiling included
    key: str  # names it in its records

    @property
    def workload(self) -> Problem:
        return self.group.workload


class _Campaign:
    def __init__(
        self, path: Path, name: str, device: DeviceInfo, effort: Effort, progress: Progress
    ) -> None:
        self.path, self.name, self.device = path, name, device
        self.limits = limits_of(device)
        self.effort, self.progress = effort, progress
        self.stamp = f"{datetime.now(UTC):%Y%m%dT%H%M%S}"
        self.checks: dict[CheckKey, Comparison] = {}

    def measure(self, groups: Sequence[Group], left_out: dict[str, str]) -> CampaignReport:
        """Measure what is not there yet."""
        todo = self._unmeasured(groups)
        report = CampaignReport(self.path, len(groups), left_out=left_out)
        report.resumed = len(groups) - len(todo)
        if not todo:
            return report
        everything = [candidate for task in todo for candidate in task.candidates]
        with (
            open_pool(self.effort.processes, everything, self.progress) as pool,
            _Forecasting(todo, self.device) as forecasting,
        ):
            self._check_all(todo, report)
            counting = _Counting(todo, self._why_wrong, self.progress)
            for task in todo:
                progress = _part_of(self.progress, task.number, len(todo))
                self._measure_task(task, report, pool, forecasting, counting, progress)
        self.progress("done", 1000 * len(todo), 1000 * len(todo))
        return report

    def _check_all(self, todo: Sequence[_Task], report: CampaignReport) -> None:
        wanted: dict[CheckKey, tuple[Candidate, Problem]] = {}
        for task in todo:
            for candidate in task.candidates:
                if candidate.kind == "rung":
                    key = check_key(candidate.label, task.workload)
                    wanted.setdefault(key, (candidate, task.workload))
        self.progress("checking the kernels on small workloads")
        said = words_of(self.progress)
        run_jobs = functools.partial(run_jobs_on_gpu, progress=said)
        self.checks = check_batteries(wanted, self.limits, run_jobs, report.left_out)

    def _why_wrong(self, candidate: Candidate, workload: Problem) -> str:
        """Why a candidate may not be timed; empty where it may."""
        result = self.checks.get(check_key(candidate.label, workload))
        return "" if result is None or result.ok else "; ".join(result.problems)

    def _unmeasured(self, groups: Sequence[Group]) -> list[_Task]:
        finished = finished_groups(self.path)
        effort = self.effort
        todo: list[_Task] = []
        for group in groups:
            candidates = list(group.candidates.values())
            if group.ceiling:
                sweeps = ceiling_candidates(self.device.sm_count)
                candidates += [one for one in sweeps if one.supports(group.workload) is None]
            settings = {
                "processes": effort.processes,
                "rounds": effort.rounds,
                "budget_s": effort.budget_s,
                "profile": sorted({**group.profile, **group.counters}) if effort.profile else [],
                "sanitize": sorted(group.sanitize) if effort.sanitize else [],
            }
            key = group_key(group.workload, candidates, settings, self.limits)
            if key not in finished:
                todo.append(_Task(len(todo), group, candidates, key))
        return todo

    def _measure_task(
        self,
        task: _Task,
        report: CampaignReport,
        pool: LivePool,
        forecasting: _Forecasting,
        counting: _Counting,
        progress: Progress,
    ) -> None:
        workload, effort = task.workload, self.effort
        right = []
        for candidate in task.candidates:
            if wrong := self._why_wrong(candidate, workload):
                report.failures[f"{workload}: {candidate.label}"] = wrong
            else:
                right.append(candidate)
        forecasts = forecasting.made(task.number, right)
        purpose, much = f"campaign {self.name}", (effort.rounds, effort.budget_s)
        group = make_group(right, workload, self.limits, purpose, *much)
        try:
            result = run_group(pool, group.request, effort.processes, progress)
        except LabError as error:
            # One workload that cannot be measured must not cost the others.
            report.failures[f"{workload}: every candidate"] = str(error)
            return
        timed = {candidate.label for candidate in right} - set(result.failures)
        counters = counting.read(task.number, timed) if effort.profile else {}
        watched = {label: one for label, one in task.group.sanitize.items() if label in timed}
        verdicts = _read_verdicts(watched, progress) if effort.sanitize else {}
        keys = {candidate.label: check_key(candidate.label, workload) for candidate in right}
        checks = {label: self.checks[key] for label, key in keys.items() if key in self.checks}
        known = Known(forecasts, counters, verdicts, checks)
        campaign = f"{self.name}-{self.stamp}-{task.key}"
        records = make_records(right, group, result, self.device, campaign, known)
        if records:
            append_records(self.path, records, supersede=True)
            report.records += records
        for label, problem in result.failures.items():
            report.failures[f"{workload}: {label}"] = problem
        report.measured += 1


def _part_of(progress: Progress, number: int, total: int) -> Progress:
    def show(text: str, done: int = 0, all_of_it: int = 0, /) -> None:
        part = done / all_of_it if all_of_it else 0.0
        progress(text, int(1000 * (number + part)), 1000 * total)

    return show


def group_key(
    workload: Problem, candidates: Sequence[Candidate], settings: Mapping[str, Any], limits: Limits
) -> str:
    """What makes a group the same again: workload, GPU, code of every candidate, settings.

    The GPU is what it gives a launch. What it is called and its memory rate are left out: a data
    sheet and the device say both in their own way.
    """
    parts = []
    for one in candidates:
        if isinstance(one.target, Rung):
            hashes = kernel_hashes(one.target, workload, limits, one.knobs, compiler="live")
            code = hashes.sass_hash or hashes.source_hash
        else:
            code = hash_python_file(one.target.source) if one.target.source else ""
        parts.append([one.label, code])
    gpu = asdict(replace(limits, name="", dram_gb_per_s=0.0))
    text = json.dumps([workload.key(), sorted(parts), dict(settings), gpu], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def finished_groups(path: Path) -> set[str]:
    """The keys of the groups whose records are in a file already."""
    if not path.exists():
        return set()
    records, _ = read_records(path)
    return {record.campaign.rsplit("-", 1)[-1] for record in records}


def small_cases(workload: Problem, supports: Callable[[Problem], str | None]) -> list[Problem]:
    """The battery of a workload without the workload itself, which timing checks anyway."""
    cases = operation_of(workload).battery(workload, supports)
    return [case for case in cases if case != workload]


CheckKey = tuple[Any, ...]
"""A candidate's label, operation, and what other code is compiled for, `Problem.code_key`."""


def check_key(label: str, workload: Problem) -> CheckKey:
    """What the check of a candidate on one workload speaks for."""
    return (label, workload.operation, *workload.code_key())


def check_batteries(
    wanted: Mapping[CheckKey, tuple[Candidate, Problem]],
    limits: Limits,
    run_jobs: Callable[..., list[GpuRun]] = run_jobs_on_gpu,
    left_out: MutableMapping[str, str] | None = None,
) -> dict[CheckKey, Comparison]:
    """Check rungs on the GPU, each on small workloads like its workload that it can launch there.

    All run in one child process. One that kills it is reported, and the others go on in the next.
    Why a rung cannot launch some is added to ``left_out`` by its label.
    """
    cases: dict[Any, list[Problem]] = {}  # of kernels that take the same they are the same
    jobs = []
    for key, (one, workload) in wanted.items():
        takes = workload.key(), getattr(one.target, "supports", None)
        if takes not in cases:
            cases[takes] = small_cases(workload, one.supports)
        assert isinstance(one.target, Rung)
        why = [why_not_launched(one.target, case, limits, one.knobs) for case in cases[takes]]
        here = [case for case, refused in zip(cases[takes], why, strict=True) if not refused]
        jobs += [(key, (one.target, case, one.knobs)) for case in here]
        if left_out is not None and len(here) < len(why):
            count = f"{len(why) - len(here)} of {len(why)} small workloads were not checked"
            left_out[one.label] = f"{count}; {next(filter(None, why))}"
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


def _summarise_check(runs: Sequence[GpuRun]) -> Comparison:
    if not runs:
        return Comparison(False, problems=["it was not checked"], cases=0)
    wrong = [run for run in runs if not run.ok]
    compared = [run.comparison for run in runs if run.comparison is not None]
    merged = merge_comparisons(compared) if compared else Comparison(False)
    worst, problems = None if wrong else merged.worst_error, [str(run) for run in wrong]
    parts = sum(run.workload.num_parts for run in runs)
    told = replace(merged, ok=not wrong, worst_error=worst, problems=problems)
    return replace(told, cases=len(runs), pairs=parts)


def _forecast(candidate: Candidate, group: Group, device: DeviceInfo) -> ForecastMade | None:
    if candidate.kind != "rung" or not isinstance(candidate.target, Rung):
        return None
    from labtools.predict import forecast, merge_device, model_name

    try:
        gpu = merge_device(device, query_clusters())
        made = forecast(candidate.target, group.workload, gpu, candidate.knobs)
    except Exception:
        # A GPU whose sheet and clocks are unknown has no forecast, nor has a kernel that the model
        # cannot follow; neither may cost the measurement.
        return None
    return ForecastMade(
        time_us=made.time_us, band_us=made.band_us, bound=made.bound, model=model_name()
    )


class _Forecasting:
    """The forecasts of all groups, made by one thread while earlier groups are measured."""

    def __init__(self, todo: Sequence[_Task], device: DeviceInfo) -> None:
        self._pool = ThreadPoolExecutor(1)
        self._pending = {
            (task.number, one.label): self._pool.submit(_forecast, one, task.group, device)
            for task in todo
            for one in task.candidates
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
    """Hardware counters of rungs, a batch of groups ahead, and of baselines, each by itself.

    Nobody knows how many kernels a baseline launches. What goes wrong is a reason, no lost time.
    """

    def __init__(self, todo: Sequence[_Task], why_wrong: WhyWrong, progress: Progress) -> None:
        self._todo, self._why_wrong, self._progress = todo, why_wrong, progress
        self._found: dict[tuple[int, str], Counters] = {}
        self._next = 0
        self._refusal: Counters | None = None

    def read(self, number: int, labels: Collection[str]) -> dict[str, Counters]:
        """Counters of the wanted rungs of a group, of those among ``labels``."""
        wanted = self._wanted(number)
        if self._next <= number and wanted:
            self._profile_from(number)
        for label, (one, _) in wanted.items():
            if label in labels and not isinstance(one.target, Rung):
                self._found[number, label] = self._profile_alone(one, self._todo[number])
        found = {label: one for (of, label), one in self._found.items() if of == number}
        return {label: one for label, one in found.items() if label in labels}

    def _wanted(self, number: int) -> dict[str, tuple[Candidate, RecordedCounters]]:
        """What of a group is to be profiled: what is right, each with the set of its counters."""
        group, candidates = self._todo[number].group, self._todo[number].candidates
        bound = set(group.counters)
        if bound and group.ceiling:
            bound |= {one.label for one in candidates if one.kind == "ceiling"}
        return {
            one.label: (one, "chosen" if one.label in group.profile else "few")
            for one in candidates
            if one.label in bound.union(group.profile) and not self._why_wrong(one, group.workload)
        }

    def _profile_from(self, number: int) -> None:
        items: dict[RecordedCounters, list[tuple[int, str, Candidate]]] = {"chosen": [], "few": []}
        self._next = number
        while self._next < len(self._todo):
            wanted = self._wanted(self._next)
            if any(items.values()) and sum(map(len, items.values())) + len(wanted) > ITEMS_AHEAD:
                break
            for label, (one, which) in wanted.items():
                if isinstance(one.target, Rung):
                    items[which].append((self._next, label, one))
            self._next += 1
        for which, some in items.items():
            if some:
                counted = self._profile(which, some)
                keys = [(of, label) for of, label, _ in some]
                self._found.update(zip(keys, counted, strict=True))

    def _profile(
        self, which: RecordedCounters, items: Sequence[tuple[int, str, Candidate]]
    ) -> list[Counters]:
        from ..profiler.profile import profile_batch

        batch = [
            (candidate.target, self._todo[number].workload, candidate.knobs)
            for number, _, candidate in items
            if isinstance(candidate.target, Rung)
        ]
        self._progress(f"profiling {len(batch)} kernels")
        said = words_of(self._progress)
        return self._asked(lambda: profile_batch(batch, counters=which, progress=said), len(batch))

    def _profile_alone(self, candidate: Candidate, task: _Task) -> Counters:
        from ..profiler.profile import profile_rung

        target, workload, said = candidate.target, task.workload, words_of(self._progress)
        return self._asked(lambda: [profile_rung(target, workload, progress=said)], 1)[0]

    def _asked(
        self, ask: Callable[[], Iterable[ProfileReport | LabError]], count: int
    ) -> list[Counters]:
        from ..profiler.ncu import ProfilerUnavailable

        if self._refusal is not None:
            return [self._refusal] * count
        try:
            reports = list(ask())
        except LabError as error:
            reason = _no_counters(error)
            if isinstance(error, ProfilerUnavailable):
                self._refusal = reason
            return [reason] * count
        except Exception as error:  # a report in a form not seen before must not cost the times
            text = f"the profiler's answer was not understood: {type(error).__name__}: {error}"
            return [Counters(reason=text)] * count
        return [
            _no_counters(one) if isinstance(one, LabError) else one.record_counters()
            for one in reports
        ]


def _no_counters(error: LabError) -> Counters:
    return Counters(reason=" ".join(filter(None, (error.what, error.why))))


def _read_verdicts(
    watched: Mapping[str, Candidate], progress: Progress
) -> dict[str, list[SanitizerVerdict]]:
    """Verdicts on a small workload; of a rung that is broken as written, as written too."""
    from ..profiler.sanitize import SanitizerReport, sanitize_rung

    def verdict(one: Candidate, tool: str, broken: dict[str, int] | None) -> SanitizerVerdict:
        workload = operation_of(one.target.operation).watched
        why = one.supports(workload)
        if isinstance(one.target, Rung) and not why:
            knobs = {**one.knobs, **(broken or {})}
            try:
                report = sanitize_rung(one.target, workload, knobs, tools=(tool,))[0]
            except LabError as error:
                why = " ".join((error.what, error.why))
            else:
                return report.record_verdict(workload, broken)
        text = why or "it is no kernel of this project"
        return SanitizerReport(tool, "not run", reason=text).record_verdict(workload, broken)

    progress("compute-sanitizer")
    # Verdicts are no times, so the tools may share the GPU.
    with ThreadPoolExecutor(TOOLS_AT_ONCE) as pool:
        pending = {
            label: [
                pool.submit(verdict, one, tool, broken)
                for broken in (None, *_as_written(one))
                for tool in SANITIZER_TOOLS
            ]
            for label, one in watched.items()
        }
        return {label: [job.result() for job in jobs] for label, jobs in pending.items()}


def _as_written(one: Candidate) -> list[dict[str, int]]:
    """The knobs of a rung that is broken as its author wrote it, where these are not asked."""
    if not isinstance(one.target, Rung) or one.target.broken(one.knobs):
        return []
    written = one.target.as_written()
    return [written] if written else []
