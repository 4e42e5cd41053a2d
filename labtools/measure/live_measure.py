"""Timing on the GPU of this machine: several processes, every candidate interleaved in each."""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from labtools.problem import Baseline, LabError, Rung, Workload, kernels_dir, load_baseline
from labtools.record import (
    CodeHashes,
    ComparisonResult,
    Counters,
    ForecastMade,
    ProcessSamples,
    Ratio,
    Record,
    ResourceUse,
    Samples,
    SanitizerVerdict,
    best_read_gb_per_s,
    fair_peers,
    hash_python_file,
    launch_shapes,
    median_us,
    paired_ratio,
)
from labtools.toolchain import DeviceInfo

from .live_job import (
    Candidate,
    bytes_in_call,
    candidate_to_json,
    ceiling_candidates,
    compile_for_live,
    fill_cubin,
    hashes_for_live,
    require_device,
    rung_candidate,
)
from .live_plan import SAMPLE_US
from .live_pool import LiveChildDied, LivePool
from .live_provenance import make_provenance

PROCESSES = 5
ROUNDS = 10
BUDGET_S = 0.6
"""Device time that one candidate may take in one process, at most (but at least 5 rounds)."""

Progress = Callable[[str, int, int], None]
"""Called with a sentence, how much is done, and how much there is."""

AnyCandidate = (
    Candidate | Rung | Baseline | str | Path | tuple[Rung | str | Path, Mapping[str, int]]
)


@dataclass
class GroupResult:
    """What the processes answered about one workload.

    Args:
        answers: one a process, with the samples of every candidate.
        failures: why a candidate has none, by label.
        environment: versions.
    """

    answers: list[dict[str, Any]] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Timing:
    """Candidates timed together on one workload.

    Args:
        records: one a candidate that was right and could be timed.
        failures: why the others have no time, by label.
        workload: what was computed.
    """

    records: list[Record]
    failures: dict[str, str]
    workload: Workload

    def find(
        self,
        candidate: str,
        knobs: Mapping[str, int] | None = None,
        experiment: str | None = None,
    ) -> Record:
        """The record of a candidate: ``r03_one_warp``, ``r03``, ``baseline:sdpa`` or ``sdpa``.

        ``experiment`` is that of a `Candidate`; None takes the first record, whatever it says.

        Raises:
            LabError: it was not timed.
        """
        for record in self.records:
            fits = all(record.knobs.get(name) == value for name, value in (knobs or {}).items())
            fits = fits and experiment in (None, record.experiment)
            if record.is_candidate(candidate) and fits:
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
        """The fastest baseline that is not handicapped on purpose and keeps K and V in 16 bits."""
        return next(iter(fair_peers(self.records)), None)

    @property
    def best_read_gb_per_s(self) -> float | None:
        """Best cold read rate of anything timed here, 10^9 bytes a second."""
        return best_read_gb_per_s(self.records)


def as_candidate(item: AnyCandidate) -> Candidate:
    """Read what a caller may name a candidate by.

    ``"r03"``, a path, a Rung or a Baseline, ``"baseline:sdpa"``, or a pair of a rung and knobs.
    """
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
    workload: Workload,
    *,
    processes: int = PROCESSES,
    rounds: int = ROUNDS,
    budget_s: float = BUDGET_S,
    ceiling: bool = True,
    progress: Progress | None = None,
) -> Timing:
    """Time candidates side by side on this machine's GPU.

    In each of ``processes`` child processes all candidates replay CUDA graphs in random order;
    each graph's launches go round buffers that together are well past the L2 (a cold workload)
    or stay on one set (a warm one). Each candidate is compared with the oracle before and after.

    Args:
        candidates: see `as_candidate`.
        workload: what is computed.
        processes: child processes; a comparison wants at least 5.
        rounds: samples a candidate and process.
        budget_s: see `BUDGET_S`.
        ceiling: also time how fast the same K and V bytes can be read at all.
        progress: see `Progress`.

    Raises:
        CompileError: a rung does not compile.
        LabError: nothing can run on a GPU here, or the children could not work.
    """
    device = require_device()
    chosen = [as_candidate(item) for item in candidates]
    if ceiling:
        chosen += ceiling_candidates(device.sm_count)
    group = make_group(chosen, workload, device, rounds=rounds, budget_s=budget_s)
    with open_pool(processes, chosen, f"timing {workload}", progress) as pool:
        result = run_group(pool, group, processes, progress)
    campaign = f"live-{datetime.now(UTC):%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:6]}"
    return Timing(
        make_records(chosen, workload, result, group, device, campaign),
        result.failures | group["refused"],
        workload,
    )


def measure_live(
    rung: AnyCandidate,
    workload: Workload,
    knobs: Mapping[str, int] | None = None,
    *,
    progress: Progress | None = None,
) -> Record:
    """A quick time of one rung: one child process, no comparison with others.

    Raises:
        CompileError: it does not compile.
        LabError: no GPU, the kernel is wrong, faults or hangs; the notebook stays alive.
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
    processes: int,
    candidates: Sequence[Candidate],
    purpose: str,
    progress: Progress | None = None,
) -> LivePool:
    """Start the measuring children."""
    request = {
        "purpose": purpose,
        "with_torch": any(one.kind == "baseline" for one in candidates),
    }

    def tell(text: str) -> None:
        if progress is not None:
            progress(text, 0, 0)

    return LivePool(processes, request, tell)


def make_group(
    candidates: Sequence[Candidate],
    workload: Workload,
    device: DeviceInfo,
    *,
    rounds: int = ROUNDS,
    budget_s: float = BUDGET_S,
) -> dict[str, Any]:
    """The job of one workload; candidates that cannot run it stand under ``refused``."""
    jobs, refused = [], {}
    for candidate in {one.label: one for one in candidates}.values():
        reason = candidate.supports(workload)
        if reason:
            refused[candidate.label] = reason
        else:
            jobs.append(candidate_to_json(candidate, workload, device.arch))
    return {
        "workload": workload.to_dict(),
        "candidates": jobs,
        "refused": refused,
        "seed": zlib.crc32(workload.key().encode()),
        "fill_cubin": str(fill_cubin(device.arch)),
        "rounds": rounds,
        "sample_us": SAMPLE_US,
        "budget_s": budget_s,
    }


def run_group(
    pool: Any, group: Mapping[str, Any], processes: int, progress: Progress | None = None
) -> GroupResult:
    """Let every process measure a group.

    A candidate that is wrong, faults or hangs in one process is left out of all, and the process
    that it took down measures the others again.

    Args:
        pool: a `LivePool`, or anything with its ``measure`` and ``stage``.

    Raises:
        LabError: the children could not work, for a reason that is no candidate's.
    """
    result = GroupResult()
    workload = Workload.from_dict(group["workload"])
    for process in range(processes):
        if progress is not None:
            progress(f"{workload}, process {process + 1}", process, processes)
        while True:
            left = [job for job in group["candidates"] if job["label"] not in result.failures]
            if not left:
                return result
            try:
                answer = pool.measure(process, {**group, "candidates": left})
            except LiveChildDied as error:
                label = pool.stage(process).get("label")
                if not label or label in result.failures:
                    raise
                result.failures[label] = str(error)
                continue
            fatal = answer.get("fatal")
            if fatal and fatal["label"] and fatal["label"] not in result.failures:
                result.failures[fatal["label"]] = f"{fatal['kind']}: {fatal['message']}"
                continue
            if fatal or "failed" in answer:
                raise LabError(
                    f"{workload} could not be measured.",
                    (fatal or answer["failed"])["message"],
                    "the other workloads; a smaller one needs less memory",
                )
            break
        result.environment = answer["environment"]
        result.answers.append(answer)
        for label, one in answer["candidates"].items():
            if "problem" in one:
                result.failures[label] = one["problem"]
    if progress is not None:
        progress(f"{workload}", processes, processes)
    return result


def make_records(
    candidates: Sequence[Candidate],
    workload: Workload,
    result: GroupResult,
    group: Mapping[str, Any],
    device: DeviceInfo,
    campaign: str,
    *,
    forecasts: Mapping[str, ForecastMade] | None = None,
    counters: Mapping[str, Counters] | None = None,
    verdicts: Mapping[str, Sequence[SanitizerVerdict]] | None = None,
    checks: Mapping[str, ComparisonResult] | None = None,
) -> list[Record]:
    """One Record a candidate that every process timed.

    ``forecasts``, ``counters``, ``verdicts`` and ``checks`` are looked up by label.
    """
    records = []
    timed = {job["label"] for job in group["candidates"]} - set(result.failures)
    unique = {candidate.label: candidate for candidate in candidates}
    for label, candidate in unique.items():
        if label not in timed or not result.answers:
            continue
        answers = [answer["candidates"][label] for answer in result.answers]
        samples = Samples(
            processes=tuple(
                ProcessSamples(
                    process=answer["process"],
                    us=tuple(one["us"]),
                    launches_per_sample=one["launches_per_sample"],
                    rotated_sets=one["rotated_sets"],
                    rotated_bytes=one["rotated_bytes"],
                )
                for answer, one in zip(result.answers, answers, strict=True)
            )
        )
        protocols = {one["protocol"] for one in answers}
        records.append(
            Record(
                candidate=candidate.id,
                kind=candidate.kind,
                title=candidate.target.title,
                knobs=dict(candidate.knobs),
                workload=workload.to_dict(),
                # One process without a graph makes the whole measurement one without.
                protocol=protocols.pop() if len(protocols) == 1 else "events-1",
                comparison=_comparison(answers, (checks or {}).get(label)),
                samples=samples,
                median_us=median_us(samples),
                experiment=candidate.experiment,
                notes=_notes(candidate, workload, result),
                campaign=campaign,
                forecast=(forecasts or {}).get(label),
                counters=(counters or {}).get(label),
                sanitizer=tuple((verdicts or {}).get(label, ())),
                **_code_fields(candidate, workload, result, device),
            )
        )
    return records


def _code_fields(
    candidate: Candidate, workload: Workload, result: GroupResult, device: DeviceInfo
) -> dict[str, Any]:
    """What identifies the code: hashes, launch, resources, path, provenance."""
    clocks = [answer["clocks"] for answer in result.answers]
    target = candidate.target
    if isinstance(target, Baseline):
        source = target.source or kernels_dir() / "baselines" / f"{target.id}.py"
        fewer = target.kv_bits < 8 * workload.element_bytes
        read = workload.kv_bytes * target.kv_bits // (8 * workload.element_bytes)
        return {
            "kv_bits": target.kv_bits,
            "kv_bytes_read": read if fewer else None,
            "hashes": CodeHashes(source_hash=hash_python_file(source)),
            "provenance": make_provenance(device, result.environment, clocks),
        }
    hashes = hashes_for_live(target, workload, candidate.knobs, device.arch)
    cubin = compile_for_live(target, workload, candidate.knobs, device.arch)
    launches = target.launches(workload, candidate.knobs)
    entries = dict.fromkeys(launch.entry for launch in launches)
    own = not target.source.resolve().is_relative_to(kernels_dir())
    scheme = target.scheme(workload, candidate.knobs)
    return {
        "kv_bits": 16 if scheme is None else max(scheme.k.bits, scheme.v.bits),
        "kv_bytes_read": None if scheme is None else scheme.kv_bytes(workload),
        "hashes": CodeHashes(
            source_hash=hashes.source_hash,
            sass_hash=hashes.sass_hash,
            nvrtc_version=hashes.nvrtc_version,
        ),
        "launches": launch_shapes(launches),
        "resources": tuple(
            ResourceUse(
                entry=entry,
                registers=cubin.resources_of(entry).registers,
                shared_bytes=cubin.resources_of(entry).shared_bytes,
                local_bytes=cubin.resources_of(entry).local_bytes,
                spill_store_bytes=cubin.resources_of(entry).spill_store_bytes,
                spill_load_bytes=cubin.resources_of(entry).spill_load_bytes,
            )
            for entry in entries
        ),
        "rung_path": str(target.source.with_suffix(".py").resolve()) if own else None,
        "provenance": make_provenance(
            device,
            result.environment,
            clocks,
            defines=target.defines(workload, candidate.knobs),
            nvrtc=hashes.nvrtc_version,
        ),
    }


def _comparison(
    answers: Sequence[Mapping[str, Any]], check: ComparisonResult | None
) -> ComparisonResult:
    """The worst of what every process compared and of the check before."""
    errors = [one["worst_error"] for one in answers]
    pairs = sum(one["pairs"] for one in answers)
    compared = pairs > 0
    if check is not None and check.worst_error is not None:
        errors.append(check.worst_error)
    return ComparisonResult(
        ok=True,
        worst_error=max(errors) if compared else None,
        tolerance=answers[0]["tolerance"] if compared else None,
        cases=len(answers) + (check.cases if check else 0),
        pairs=pairs + (check.pairs if check else 0),
    )


def _notes(candidate: Candidate, workload: Workload, result: GroupResult) -> tuple[str, ...]:
    notes = [answer["note"] for answer in result.answers if answer.get("note")]
    if isinstance(candidate.target, Rung) and not candidate.outside:
        held = bytes_in_call(candidate.target.launches(workload, candidate.knobs))
        if held:
            notes.append(f"every call allocates and frees {held} bytes of device memory")
    if isinstance(candidate.target, Rung) and candidate.target.edited:
        notes.append("edited on a page")
    return tuple(dict.fromkeys(notes))
