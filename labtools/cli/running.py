"""``labtools run``, ``bench`` and ``record``: right first, then how long it takes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labtools.measure.campaign.plan import load_plan
from labtools.measure.campaign.recording import CampaignReport, Effort, record_campaign, record_rung
from labtools.measure.cpu.memory import check_host_memory
from labtools.measure.gpu.job import Candidate, default_candidates, every_baseline, require_device
from labtools.measure.gpu.measure import BUDGET_S, PROCESSES, ROUNDS, time_candidates
from labtools.measure.gpu.plan import SAMPLE_US, plan_rotation, planned_us
from labtools.measure.rung_run import RungRun, run_rung
from labtools.predict import sheet_floor_us
from labtools.problem import (
    Baseline,
    LabError,
    Problem,
    Rung,
    StoredAs,
    load_baseline,
    operation_of,
)
from labtools.problem.rung import say_knobs
from labtools.record import (
    Errors,
    Ratio,
    Record,
    RecordStore,
    Standing,
    distinguish,
    errors_of,
    paired_ratio,
    say_layout,
    say_oracle,
    say_timed,
    say_verdict,
    select,
    standings,
    summary,
)
from labtools.toolchain import cuda_status

from .given import (
    RungAsked,
    check_supported,
    choose_workload,
    named_knobs,
    read_knobs,
    read_rung,
    read_target,
)
from .outcome import Answer, Status, print_table, typed

if TYPE_CHECKING:
    from rich.console import Console

    from labtools.predict.sheets import Gpu
    from labtools.toolchain import DeviceInfo
    from labtools.toolchain.progress import Progress

QUICK_PROCESSES = 1
QUICK_ROUNDS = 5
PATIENCE_US = 5000.0
"""A candidate that nobody named and that takes longer a call is checked and not timed."""


# ---------------------------------------------------------------------------------- what is timed


def timed_row(record: Record) -> dict[str, Any]:
    """What was timed now and how long it took; microseconds, and 10^9 bytes per second."""
    found = summary(record)
    return {
        "candidate": record.candidate,
        "kind": record.kind,
        "knobs": record.knobs,
        "median_us": found.median_us,
        "spread": found.spread,
        "processes": found.processes,
        "gb_per_s": record.gb_per_s,
        "iqr_us": found.iqr_us,
        "samples": found.samples,
        "protocol": record.protocol,
        "gpu": record.provenance.gpu,
        "provenance": record.provenance,
        "notes": record.notes,
        "origin": "live",
    }


def show_ratio(found: Ratio | None) -> str:
    """Two times of the same processes, the first over the second, with its 95 % interval."""
    return f"{found.ratio:.3f} [{found.low:.3f}, {found.high:.3f}]" if found else ""


def ratio_row(found: Ratio | None) -> dict[str, Any] | None:
    """The same as data."""
    if found is None:
        return None
    interval = (found.low, found.high)
    return {"ratio": found.ratio, "interval": interval, "processes": found.processes}


def peer_row(found: Ratio | None) -> dict[str, Any] | None:
    """A peer's time over the candidate's, with the verdict."""
    held = ratio_row(found)
    if found is None or held is None:
        return None
    verdict = say_verdict(found)
    return {**held, "against": found.first, "equal": found.equal, "verdict": verdict}


@dataclass(frozen=True)
class StandingRow:
    """Where a candidate stands among its peers and to its floor."""

    standing: Standing
    base: Record | None  # the baseline that was asked for
    scheme: StoredAs | None

    @property
    def record(self) -> Record:
        """The candidate's."""
        return self.standing.record

    @cached_property
    def errors(self) -> Errors:
        """Of its arithmetic and of what it keeps its inputs in."""
        return errors_of(self.record, self.scheme)

    @property
    def floor_us(self) -> float | None:
        """Its bytes at the data sheet's memory rate."""
        return sheet_floor_us(self.record.read_bytes, self.record.provenance.gpu_slug)

    @cached_property
    def times_as_fast(self) -> Ratio | None:
        """Beside the baseline that was asked for."""
        return paired_ratio(self.base, self.record) if self.base else None

    def to_dict(self) -> dict[str, Any]:
        """What the JSON holds."""
        record, standing, base = self.record, self.standing, self.times_as_fast
        as_fast = base and {
            "ratio": base.ratio,
            "interval": (base.low, base.high),
            "against": base.first,
            "equal": base.equal,
        }
        return {
            **timed_row(record),
            "kv_bits": record.kv_bits,
            "read_bytes": record.read_bytes,
            "against_fastest_fair": peer_row(standing.against),
            "against_fastest_fair_low_bit": peer_row(standing.against_low_bit),
            "to_floor": ratio_row(standing.to_floor),
            "floor_us": standing.floor_us,
            "floor_read_by": standing.reader,
            "floor_of_data_sheet_us": self.floor_us,
            "worst_error": record.comparison.worst_error,
            "tolerance": record.comparison.tolerance,
            "error_arithmetic": self.errors.arithmetic,
            "error_of_scheme": self.errors.of_scheme,
            "error_is_against": say_oracle(record),
            "timed": say_timed(record),
            "cache_layout": say_layout(record),
            "times_as_fast": as_fast,
        }

    def cells(self) -> list[str]:
        """Its row of the table."""
        record, error, floor = self.record, self.errors.arithmetic, self.floor_us
        found = summary(record)
        nearest = self.standing.against_low_bit or self.standing.against
        return [
            f"{record.candidate} {say_knobs(record.knobs, ' ')}".rstrip(),
            f"{found.median_us:.2f}",
            f"{found.spread:.1%}",
            f"{show_ratio(nearest)} {say_verdict(nearest)}" if nearest else "",
            show_ratio(self.standing.to_floor),
            "" if floor is None else f"{record.median_us / floor:.3f}",
            f"{record.gb_per_s:,.0f}",
            "" if error is None else f"{error:.1e}",
            " / ".join(f"{each:.2g}" for each in self.errors.of_scheme.values()),
            show_ratio(self.times_as_fast),
        ]


# -------------------------------------------------------------------------------------------- run


@dataclass(frozen=True)
class Ran(Answer):
    """A check, and on a GPU how long a right kernel takes."""

    found: RungRun
    workload: Problem
    knobs: Mapping[str, int]

    def to_dict(self) -> dict[str, Any]:
        """What the JSON holds: the check's, and the time where there is one."""
        record = self._timed
        return {
            **self.found.check.to_dict(),
            "ok": self.found.ok,
            "workload": self.workload,
            "knobs": self.knobs,
            "timing": timed_row(record) if record else None,
            **({"timing_failed": self._failed} if self._failed is not None else {}),
        }

    @property
    def _timed(self) -> Record | None:
        timing = self.found.timing
        return timing.records[0] if timing and timing.records else None

    @property
    def _failed(self) -> tuple[str, ...] | None:
        """Why there is no time, where one was wanted."""
        timing = self.found.timing
        return tuple(timing.failures.values()) if timing and not timing.records else None

    @property
    def status(self) -> Status:
        """1 when it is not right, or could not be timed where it was to be."""
        return Status.RIGHT if self.found.ok else Status.WRONG

    def show(self, console: Console) -> None:
        """The verdict, how often two properties of the cases met, and the time."""
        console.print(self.found.check.in_full)
        if record := self._timed:
            found = summary(record)
            console.print(
                f"live  {found.median_us:.2f} us (spread {found.spread:.1%}, "
                f"{found.processes} processes, {found.samples} samples), "
                f"{record.gb_per_s:,.0f} GB/s of "
                f"{operation_of(self.workload).bytes_name}, on {record.provenance.gpu}"
            )
            console.print("against libraries: labtools bench")
        for reason in self._failed or ():
            console.print(f"not timed: {reason}")


def run_named_rung(
    asked: RungAsked,
    on: str | None,
    quick: bool,
    seed: int | None,
    every_kind: bool,
    progress: Progress,
) -> Ran:
    """Check a rung; on a GPU, and only if it is right, time it."""
    rung = read_rung(asked.name)
    typed_knobs = named_knobs(rung, asked.knobs)
    if on is None:
        status = cuda_status()
        on = "gpu" if status.can_run_live else "cpu"
        if on == "cpu":
            # Said aloud: a check on the CPU is never a time on a GPU.
            progress(f"on the CPU, since {status.why_not_live().why}")
    workload = choose_workload(asked.workload, rung, small=on == "cpu")
    knobs = read_knobs(rung, asked.knobs, workload)
    check_supported(rung, workload, knobs)
    if on == "cpu":
        check_host_memory(workload)
    else:
        # The machine is looked at before the kernel, so that the message is about the machine.
        require_device()
    found = run_rung(
        rung,
        workload,
        knobs,
        on=on,
        quick=quick,
        processes=QUICK_PROCESSES if quick else PROCESSES,
        rounds=QUICK_ROUNDS if quick else ROUNDS,
        progress=progress,
        seed=seed,
        every_kind=every_kind,
        asked=typed_knobs,
    )
    return Ran(found, workload, knobs)


# ------------------------------------------------------------------------------------------ bench


@dataclass(frozen=True)
class Benched(Answer):
    """Candidates of the same processes, fastest first; ``not_timed`` says why others are not."""

    workload: Problem
    origin: str
    baseline: str
    fastest_fair_baseline: str | None
    best_read_gb_per_s: float | None
    versions: Mapping[str, str | None]
    candidates: tuple[StandingRow, ...]
    not_timed: Mapping[str, str]
    _asked: frozenset[str]

    @property
    def kinds(self) -> tuple[str, ...]:
        """The inputs that errors of schemes were computed for."""
        return next(tuple(row.errors.of_scheme) for row in self.candidates if row.errors.of_scheme)

    @property
    def status(self) -> Status:
        """A candidate that cannot run here is a finding; one that was asked for by name is not."""
        return Status.WRONG if self._asked & set(self.not_timed) else Status.RIGHT

    def show(self, console: Console) -> None:
        """A table, then who the peers were."""
        numbers = (
            "median us",
            "spread",
            "against fastest fair peer",
            "over the best rate measured",
            "over the data sheet's rate",
            "GB/s read",
            "error: arithmetic",
            "error: of the scheme",
            f"times as fast as {self.baseline}",
        )
        console.print(f"live  {self.candidates[0].record.provenance.gpu}")
        rows = [row.cells() for row in self.candidates]
        added = distinguish(
            [[row.record] for row in self.candidates],
            [[row.record] for row in self.candidates if row.errors.arithmetic is not None],
        )
        told = zip(*added.values(), strict=True) if added else [()] * len(rows)
        rows = [[row[0], *texts, *row[1:]] for row, texts in zip(rows, told, strict=True)]
        print_table(console, ("candidate", *added, *numbers), rows, right=numbers)
        if any(row.errors.of_scheme for row in self.candidates):
            console.print(
                "error: of the scheme [computed] is what the cache loses before any kernel, on "
                f"{' / '.join(self.kinds)} inputs; an FP8 library converts its cache itself, and "
                "its recorded error against the unquantised cache holds both"
            )
        console.print(f"last column: times as fast as {self.baseline}")
        reader = self.candidates[0].standing.reader
        if reader is not None:
            console.print(f"the best rate was measured of {reader}, and of it says nothing")
        console.print(f"fastest fair peer: {self.fastest_fair_baseline}")
        kept = operation_of(self.workload).bytes_name
        for row in self.candidates:
            low, wide = row.standing.against_low_bit, row.standing.against
            if low:
                besides = f"; {show_ratio(wide)} against {wide.first}" if wide else ""
                console.print(
                    f"{row.record.candidate} keeps {kept} in {row.record.kv_bits} bits, so its "
                    f"peer is {low.first}{besides}"
                )
        installed = ", ".join(f"{name} {value}" for name, value in self.versions.items() if value)
        made = self.candidates[0].record.provenance
        console.print(f"measured {made.date:%Y-%m-%d}, commit {made.commit or 'unknown'}")
        console.print(f"versions: {installed}")
        for label, why in self.not_timed.items():
            console.print(f"not timed: {label}: {why}")


def bench_candidates(
    names: Sequence[str] | None,
    workload_text: str | None,
    baseline: str | None,
    chosen: Sequence[str] | None,
    processes: int | None,
    quick: bool,
    every: bool,
    progress: Progress,
) -> Benched:
    """Time candidates in the same processes; say where each stands among peers and to its floor.

    Without ``every`` what nobody named is left out where a call of it takes `PATIENCE_US`.
    """
    targets = [read_target(name) for name in names or ()]
    workload = choose_workload(workload_text, targets[0] if targets else None)
    against = _read_baseline(baseline or _usual_baseline(workload))
    asked = [_candidate(target, chosen, workload) for target in targets]
    candidates = [*_with_peers(asked, workload), Candidate(against, "baseline")]
    unique = {candidate.label: candidate for candidate in candidates}
    device = require_device()
    count = processes or (QUICK_PROCESSES if quick else PROCESSES)
    rounds = QUICK_ROUNDS if quick else ROUNDS
    if every:
        seconds = count * estimate_seconds(list(unique.values()), workload, device, rounds)
        progress(f"all calls together take about {seconds:.0f} s, besides starting and compiling")
    timing = time_candidates(
        list(unique.values()),
        workload,
        processes=count,
        rounds=rounds,
        patience_us=0.0 if every or targets else PATIENCE_US,
        progress=progress,
    )
    base = next((r for r in timing.records if r.candidate == f"baseline:{against.id}"), None)
    kept = {
        one.id: one.target.scheme(workload, one.knobs)
        for one in unique.values()
        if isinstance(one.target, Rung)
    }
    rows = tuple(
        StandingRow(standing, base, kept.get(standing.record.candidate))
        for standing in standings(timing.records)
    )
    if not rows:
        reasons = "; ".join(f"{label}: {why}" for label, why in timing.failures.items())
        raise LabError(
            f"Nothing could be timed on {workload}.", reasons, "labtools run RUNG checks one alone"
        )
    fastest = timing.fastest_fair_baseline
    made = timing.records[0].provenance
    return Benched(
        workload=workload,
        origin="live",
        baseline=f"baseline:{against.id}",
        fastest_fair_baseline=fastest.candidate if fastest else None,
        best_read_gb_per_s=timing.best_read_gb_per_s,
        versions=made.versions,
        candidates=rows,
        not_timed=timing.failures,
        _asked=frozenset(candidate.label for candidate in asked),
    )


def estimate_seconds(
    candidates: Sequence[Candidate], workload: Problem, device: DeviceInfo, rounds: int
) -> float:
    """About how long the calls of one process take, by what `planned_us` says of each candidate."""
    from labtools.predict import merge_device
    from labtools.toolchain.clusters import query_clusters

    able = [one for one in candidates if one.supports(workload) is None]
    least = min((_read_bytes(one, workload) for one in able), default=None)
    l2_bytes, free_bytes = device.l2_bytes, device.memory_bytes
    sets = plan_rotation(workload, l2_bytes, free_bytes, least).sets
    gpu = merge_device(device, query_clusters())
    records = select(RecordStore().load(), gpu=device.name, kind="baseline")
    planned = (
        planned_us(
            _call_us(one, workload, gpu, records),
            *(sets, rounds, BUDGET_S, one.kind == "rung", SAMPLE_US),
        )
        for one in able
    )
    return sum(planned) / 1e6


def _call_us(one: Candidate, workload: Problem, gpu: Gpu, records: Sequence[Record]) -> float:
    """A rung's forecast; of a library what it takes for each byte in the record on this GPU whose
    problem is the nearest in size. Where nothing says, the data sheet's floor."""
    from labtools.predict import forecast

    size = workload.minimal_bytes
    if isinstance(one.target, Rung):
        with suppress(LabError):
            return forecast(one.target, workload, gpu, one.knobs).time_us
    near = min(
        (record for record in records if record.is_candidate(one.id)),
        key=lambda record: abs(math.log(size / record.problem.minimal_bytes)),
        default=None,
    )
    if near is None:
        return sheet_floor_us(size, gpu) or 1.0
    return near.median_us * size / near.problem.minimal_bytes


def _read_bytes(one: Candidate, workload: Problem) -> int:
    """Bytes of one set that a call reads, where inputs are kept in fewer bits of those."""
    given = workload.streamed_bytes
    if isinstance(one.target, Rung):
        scheme = one.target.scheme(workload, one.knobs)
        kept = given if scheme is None else scheme.stored_bytes(workload)
    else:
        kept = one.target.storage.stored_bytes(given, workload.element_bytes)
    return workload.minimal_bytes - given + kept


def _candidate(
    target: Rung | Baseline, chosen: Sequence[str] | None, workload: Problem
) -> Candidate:
    if isinstance(target, Rung):
        return Candidate(target, "rung", read_knobs(target, chosen, workload))
    return Candidate(target, "baseline")


def _with_peers(asked: list[Candidate], workload: Problem) -> list[Candidate]:
    """What was asked for; everything where nothing was."""
    if not asked:
        return [_candidate(one.target, None, workload) for one in default_candidates(workload)]
    if all(candidate.kind == "rung" for candidate in asked):
        # A rung by itself has nothing to stand against: its peers come along.
        return [*asked, *every_baseline(workload.operation)]
    return asked


def _read_baseline(name: str) -> Baseline:
    with typed():
        return load_baseline(name.removeprefix("baseline:"))


def _usual_baseline(workload: Problem) -> str:
    """What a ratio is against where nothing is named."""
    found = operation_of(workload).baseline
    if found is None:
        with typed():
            raise LabError(
                f"Nothing says what {workload} is held against.",
                f"the operation {workload.operation} has no usual baseline",
                "name one with --baseline, as softmax_torch where softmax is a problem of your own "
                "with a reference of torch: the process that times then loads your file",
            )
    return found


# ----------------------------------------------------------------------------------------- record


@dataclass(frozen=True)
class PlanRecorded(Answer):
    """What a campaign did."""

    found: CampaignReport

    def to_dict(self) -> dict[str, Any]:
        """What the JSON holds; of records those that were written now."""
        found = self.found
        return {
            "file": found.path,
            "workloads": found.groups,
            "measured": found.measured,
            "resumed": found.resumed,
            "records": [timed_row(record) for record in found.records],
            "failures": found.failures,
            "left_out": found.left_out,
            "ok": found.ok,
        }

    @property
    def status(self) -> Status:
        """1 when something could not be measured."""
        return Status.RIGHT if self.found.ok else Status.WRONG

    def show(self, console: Console) -> None:
        """How many were measured, and what was not."""
        found = self.found
        console.print(
            f"{found.measured} workloads measured, {found.resumed} were there already, "
            f"{len(found.records)} records in {found.path}"
        )
        for title, reasons in (("failed", found.failures), ("left out", found.left_out)):
            for label, why in reasons.items():
                console.print(f"{title}: {label}: {why}")


def record_plan(
    plan: str, out: Path | None, effort: Effort, stale: bool, progress: Progress
) -> PlanRecorded:
    """Measure a whole plan, or what of it is stale; what is there for the same code is skipped."""
    with typed():
        load_plan(plan)
    return PlanRecorded(record_campaign(plan, out, effort, stale=stale, progress=progress))


def record_one(
    asked: RungAsked,
    baselines: Sequence[str] | None,
    out: Path | None,
    effort: Effort,
    progress: Progress,
) -> PlanRecorded:
    """Record one rung, beside baselines in the same processes."""
    rung, workload, knobs = asked.read()
    beside = [_read_baseline(library).id for library in baselines] if baselines else None
    report = record_rung(rung, workload, knobs, out, effort, baselines=beside, progress=progress)
    return PlanRecorded(report)


def chosen_effort(quick: bool, profile: bool, sanitize: bool) -> Effort:
    """How much is measured for a record."""
    if quick:
        return Effort(QUICK_PROCESSES, QUICK_ROUNDS, profile=profile, sanitize=sanitize)
    return Effort(profile=profile, sanitize=sanitize)
