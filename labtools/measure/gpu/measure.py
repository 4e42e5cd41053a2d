"""Timing on the GPU of this machine: several processes, every candidate interleaved in each."""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from labtools.predict import limits_of, list_gpus, load_gpu
from labtools.problem import (
    Baseline,
    Comparison,
    LabError,
    Limits,
    Problem,
    Rung,
    kernels_dir,
    load_baseline,
    merge_comparisons,
)
from labtools.problem.storage import AS_GIVEN
from labtools.record import (
    Counters,
    ForecastMade,
    Ratio,
    Record,
    Samples,
    SanitizerVerdict,
    best_read_gb_per_s,
    fair_peers,
    hash_python_file,
    median_us,
    paired_ratio,
)
from labtools.toolchain import DeviceInfo, Hashes, compile_rung, kernel_hashes
from labtools.toolchain.progress import Progress, silent

from ..worker import WorkerDied
from .job import (
    Candidate,
    Job,
    bytes_in_call,
    ceiling_candidates,
    fill_cubin,
    make_jobs,
    require_device,
    rung_candidate,
)
from .plan import SAMPLE_US
from .provenance import make_provenance
from .runner import LivePool
from .timing import Timed, TimingAnswer, TimingRequest

PROCESSES = 5
ROUNDS = 10
TORCH_COMPILES, TORCH_COMPILER = "torch.compile(", "torch._inductor.compile_fx"
"""What a baseline's file says that compiles, and the module that is then imported, for seconds."""
BUDGET_S = 0.6  # device time a candidate and process, at most, but at least 5 rounds

AnyCandidate = (
    Candidate | Rung | Baseline | str | Path | tuple[Rung | str | Path, Mapping[str, int]]
)


@dataclass
class GroupResult:
    """What the processes answered about one workload."""

    answers: list[TimingAnswer] = field(default_factory=list)  # one a process
    failures: dict[str, str] = field(default_factory=dict)  # why a candidate has none, by label
    environment: dict[str, str | None] = field(default_factory=dict)  # versions


@dataclass(frozen=True)
class Timing:
    """Candidates timed together on one workload."""

    records: list[Record]  # one a candidate that was right and could be timed
    failures: dict[str, str]  # why the others have no time, by label
    workload: Problem

    def find(
        self, candidate: str, knobs: Mapping[str, int] | None = None, experiment: str | None = None
    ) -> Record:
        """The record of a candidate: ``r03_one_warp``, ``r03``, ``baseline:sdpa`` or ``sdpa``.

        ``experiment`` is that of a `Candidate`; None takes the first record, whatever it says.

        Raises LabError: it was not timed.
        """
        for record in self.records:
            fits = all(record.knobs.get(name) == value for name, value in (knobs or {}).items())
            if record.is_candidate(candidate) and fits and experiment in (None, record.experiment):
                return record
        why = [text for label, text in self.failures.items() if candidate in label]
        raise LabError(
            f"{candidate} has no time on {self.workload}.",
            why[0] if why else f"timed were {[record.candidate for record in self.records]}",
            "the other candidates were timed",
        )

    def ratio(self, first: str, second: str) -> Ratio:
        """Time of one candidate over another's, with its interval."""
        return paired_ratio(self.find(first), self.find(second))

    @property
    def fastest_fair_baseline(self) -> Record | None:
        """The fastest baseline that is not handicapped on purpose and keeps 16 bits an element."""
        return next(iter(fair_peers(self.records)), None)

    @property
    def best_read_gb_per_s(self) -> float | None:
        """Best cold read rate of anything timed here, 10^9 bytes a second."""
        return best_read_gb_per_s(self.records)


def as_candidate(item: AnyCandidate) -> Candidate:
    """``"r03"``, a path, a Rung or a Baseline, ``"baseline:sdpa"``, or a rung with knobs."""
    if isinstance(item, Candidate):
        return item
    if isinstance(item, Baseline):
        return Candidate(item, "baseline")
    if isinstance(item, tuple):
        return rung_candidate(item[0], item[1])
    if isinstance(item, str) and item.startswith("baseline:"):
        return Candidate(load_baseline(item.removeprefix("baseline:")), "baseline")
    return rung_candidate(item)


def time_candidates(
    candidates: Iterable[AnyCandidate],
    workload: Problem,
    *,
    processes: int = PROCESSES,
    rounds: int = ROUNDS,
    budget_s: float = BUDGET_S,
    ceiling: bool = True,
    patience_us: float = 0.0,
    progress: Progress = silent,
    pool: LivePool | None = None,
) -> Timing:
    """Time candidates side by side on this machine's GPU.

    In each of ``processes`` child processes (a comparison wants at least 5) all candidates replay
    CUDA graphs in random order; each graph's launches go round buffers that together are well past
    the L2 (a cold workload) or stay on one set (a warm one). Each candidate is compared with the
    oracle before and after.

    Args:
        rounds: samples a candidate and process.
        ceiling: also time how fast the same bytes can be read at all.
        patience_us: what takes longer a call is checked and not timed; 0 times all.
        pool: children that are there already, at least ``processes``; None starts them.

    Raises CompileError: a rung does not compile; LabError: nothing can run on a GPU here, or the
    children could not work.
    """
    device = require_device()
    chosen = [as_candidate(item) for item in candidates]
    if ceiling:
        chosen += ceiling_candidates(device.sm_count)
    group = make_group(
        chosen, workload, limits_of(device), f"timing {workload}", rounds=rounds, budget_s=budget_s
    )
    with nullcontext(pool) if pool else open_pool(processes, chosen, progress) as children:
        request = replace(group.request, patience_us=patience_us)
        result = run_group(children, request, processes, progress)
    campaign = f"live-{datetime.now(UTC):%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:6]}"
    records = make_records(chosen, group, result, device, campaign)
    return Timing(records, result.failures | group.refused, workload)


def measure_live(
    rung: AnyCandidate,
    workload: Problem,
    knobs: Mapping[str, int] | None = None,
    *,
    progress: Progress = silent,
) -> Record:
    """A quick time of one rung: one child process, no comparison with others.

    Raises CompileError: it does not compile; LabError: no GPU, the kernel is wrong, faults or
    hangs; the notebook stays alive.
    """
    candidate = as_candidate(rung)
    if knobs is not None and isinstance(candidate.target, Rung):
        candidate = rung_candidate(candidate.target, knobs)
    timing = time_candidates(
        [candidate], workload, processes=1, rounds=20, ceiling=False, progress=progress
    )
    if not timing.records:
        raise LabError(
            f"{candidate.label} was not timed on {workload}.",
            next(iter(timing.failures.values()), ""),
            "recorded measurements; `labtools run --on cpu` says right or wrong with file and line",
        )
    return timing.records[0]


def open_pool(
    processes: int, candidates: Sequence[Candidate], progress: Progress = silent
) -> LivePool:
    """Start the measuring children."""
    baselines = [one.target for one in candidates if isinstance(one.target, Baseline)]
    compiling = any(TORCH_COMPILES in one.path.read_text("utf-8") for one in baselines)
    imports = (TORCH_COMPILER,) if compiling else ()
    return LivePool(processes, bool(baselines), progress, imports)


@dataclass(frozen=True)
class TimingGroup:
    """The candidates of one workload, ready to be timed."""

    request: TimingRequest  # what every process is told
    limits: Limits  # of the GPU, which the launches follow from
    refused: dict[str, str]  # why a candidate is not among them, by label


def make_group(
    candidates: Sequence[Candidate],
    workload: Problem,
    limits: Limits,
    purpose: str,
    rounds: int = ROUNDS,
    budget_s: float = BUDGET_S,
) -> TimingGroup:
    """Compile the candidates of one workload; those that cannot run it are refused."""
    fitting, refused = [], {}
    for candidate in {one.label: one for one in candidates}.values():
        reason = candidate.supports(workload)
        if reason:
            refused[candidate.label] = reason
        else:
            fitting.append((candidate, workload))
    request = make_request(
        make_jobs(fitting, limits),
        workload,
        limits,
        purpose,
        seed=zlib.crc32(workload.key().encode()),
        rounds=rounds,
        budget_s=budget_s,
        with_torch=any(one.kind == "baseline" for one in candidates),
    )
    return TimingGroup(request, limits, refused)


def make_request(
    jobs: Sequence[Job],
    workload: Problem,
    limits: Limits,
    purpose: str,
    *,
    seed: int,
    rounds: int = ROUNDS,
    budget_s: float = BUDGET_S,
    with_torch: bool = False,
) -> TimingRequest:
    """What every process is told of jobs that are made already.

    The seed is of inputs, compared parts and the order of rounds. A process that has started
    without torch stays without.
    """
    return TimingRequest(
        purpose,
        workload,
        tuple(jobs),
        seed,
        str(fill_cubin(limits.arch)),
        rounds,
        sample_us=SAMPLE_US,
        budget_s=budget_s,
        with_torch=with_torch,
        dram_gb_per_s=_sheet_rate(limits),
    )


def _sheet_rate(limits: Limits) -> float:
    known = limits.name in list_gpus()
    return (load_gpu(limits.name).dram_gb_per_s or 0.0) if known else 0.0


def run_group(
    pool: LivePool, request: TimingRequest, processes: int, progress: Progress = silent
) -> GroupResult:
    """Let every process measure a group.

    A candidate that is wrong, faults or hangs in one process is left out of all, and the process
    that it took down measures the others again.

    Raises LabError: the children could not work, for a reason that is no candidate's.
    """
    result = GroupResult()
    workload = request.workload
    for process in range(processes):
        progress(f"timing {workload}, process {process + 1}", process, processes)
        answer = _measure_process(pool, request, process, result.failures)
        if answer is None:
            return result
        result.environment = answer.environment
        result.answers.append(answer)
        result.failures.update(answer.failures)
    progress(f"timing {workload}", processes, processes)
    return result


def _measure_process(
    pool: LivePool, request: TimingRequest, process: int, failures: dict[str, str]
) -> TimingAnswer | None:
    """One process's answer about the candidates that have not failed; None when all have.

    A candidate that takes the process down is put among the failures.
    """
    while True:
        left = tuple(job for job in request.jobs if job.label not in failures)
        if not left:
            return None
        try:
            answer = pool.measure(process, replace(request, jobs=left))
        except WorkerDied as died:
            label = died.step.label if died.step else ""
            if not label or label in failures:
                raise
            failures[label] = str(died)
            continue
        fault = answer.fault
        if fault is None:
            return answer
        if not fault.label or fault.label in failures:
            still = "the other workloads; a smaller one needs less memory"
            raise LabError(f"{request.workload} could not be measured.", fault.message, still)
        failures[fault.label] = f"{fault.kind}: {fault.message}"


@dataclass(frozen=True)
class Known:
    """What is known of candidates besides their times, by label."""

    forecasts: Mapping[str, ForecastMade] = field(default_factory=dict)
    counters: Mapping[str, Counters] = field(default_factory=dict)
    verdicts: Mapping[str, Sequence[SanitizerVerdict]] = field(default_factory=dict)
    checks: Mapping[str, Comparison] = field(default_factory=dict)  # on other workloads, before


def make_records(
    candidates: Sequence[Candidate],
    group: TimingGroup,
    result: GroupResult,
    device: DeviceInfo,
    campaign: str,
    known: Known | None = None,
) -> list[Record]:
    """One Record a candidate that every process timed."""
    known = known or Known()
    records, workload = [], group.request.workload
    labels = {job.label for job in group.request.jobs} - set(result.failures)
    for label, candidate in {one.label: one for one in candidates}.items():
        if label not in labels or not result.answers:
            continue
        timed = [answer.timed[label] for answer in result.answers]
        samples = Samples(processes=tuple(one.samples for one in timed))
        protocols = {one.protocol for one in timed}
        records.append(
            Record(
                candidate=candidate.id,
                kind=candidate.kind,
                title=candidate.target.title,
                knobs=dict(candidate.knobs),
                workload=workload.to_dict(),
                # One process without a graph makes the whole measurement one without.
                protocol=protocols.pop() if len(protocols) == 1 else "events-1",
                comparison=_merge_checks(timed, known.checks.get(label)),
                samples=samples,
                median_us=median_us(samples),
                experiment=candidate.experiment,
                notes=_notes(candidate, workload, group.limits, result),
                campaign=campaign,
                forecast=known.forecasts.get(label),
                counters=known.counters.get(label),
                sanitizer=tuple(known.verdicts.get(label, ())),
                **_code_fields(candidate, workload, result, device, group.limits),
            )
        )
    return records


def _code_fields(
    candidate: Candidate, workload: Problem, result: GroupResult, device: DeviceInfo, limits: Limits
) -> dict[str, Any]:
    """What identifies the code: hashes, Limits, launch, resources, path, provenance."""
    clocks = [answer.clocks for answer in result.answers]
    target = candidate.target
    if isinstance(target, Baseline):
        given = workload.streamed_bytes
        read = target.storage.stored_bytes(given, workload.element_bytes)
        return {
            "codec": target.storage.codec,
            "kv_bytes_read": read if read < given else None,
            "hashes": Hashes(source_hash=hash_python_file(target.path)),
            "provenance": make_provenance(device, result.environment, clocks),
        }
    hashes = kernel_hashes(target, workload, limits, candidate.knobs, compiler="live")
    cubin = compile_rung(target, workload, limits, candidate.knobs, compiler="live")
    launches = candidate.launches(workload, limits)
    entries = dict.fromkeys(launch.entry for launch in launches)
    path = target.own_file.resolve()
    own = not target.source.resolve().is_relative_to(kernels_dir())
    defines = target.defines(workload, limits, candidate.knobs)
    scheme = target.scheme(workload, candidate.knobs)
    return {
        "codec": AS_GIVEN if scheme is None else scheme.codec,
        "kv_bytes_read": None if scheme is None else scheme.stored_bytes(workload),
        "hashes": hashes,
        "limits": limits,
        "launches": tuple(launches),
        "resources": tuple(cubin.resources_of(entry) for entry in entries),
        "rung_path": str(path) if own else None,
        "rung_hash": hash_python_file(path) if own and path.is_file() else None,
        "provenance": make_provenance(
            device, result.environment, clocks, defines, hashes.nvrtc_version
        ),
    }


def _merge_checks(timed: Sequence[Timed], check: Comparison | None) -> Comparison:
    """What every process compared, and the check before. The read sweep has no error."""
    found = merge_comparisons([one.comparison for one in timed])
    if not found.pairs:
        found = replace(found, worst_error=None, tolerance=None)
    if check is None:
        return found
    return replace(merge_comparisons([found, check]), ok=True, problems=[])


def _notes(
    candidate: Candidate, workload: Problem, limits: Limits, result: GroupResult
) -> tuple[str, ...]:
    notes = [answer.note for answer in result.answers if answer.note]
    if isinstance(candidate.target, Rung):
        if held := bytes_in_call(candidate.launches(workload, limits)):
            notes.append(f"every call allocates and frees {held} bytes of device memory")
        if candidate.target.edited:
            notes.append("edited on a page")
    return tuple(dict.fromkeys(notes))
