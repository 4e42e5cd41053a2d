"""``labtools run``, ``bench`` and ``record``: right first, then how long it takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from labtools.measure.campaign.plan import load_plan
from labtools.measure.campaign.recording import (
    CampaignReport,
    Effort,
    record_campaign,
    record_rung,
)
from labtools.measure.check import CheckReport
from labtools.measure.cpu.memory import check_host_memory
from labtools.measure.gpu.job import (
    Candidate,
    default_candidates,
    every_baseline,
    require_device,
)
from labtools.measure.gpu.measure import PROCESSES, ROUNDS, time_candidates
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
    Standing,
    Summary,
    distinguish,
    errors_of,
    paired_ratio,
    say_layout,
    say_oracle,
    say_timed,
    say_verdict,
    standings,
    summary,
)
from labtools.toolchain import cuda_status

from .given import check_supported, choose_workload, read_knobs, read_rung, read_target
from .outcome import Answer, Status, parts, print_table, typed

if TYPE_CHECKING:
    from rich.console import Console

    from labtools.toolchain.progress import Progress

QUICK_PROCESSES = 1
QUICK_ROUNDS = 5


# ---------------------------------------------------------------------------------- what is timed


@dataclass(frozen=True)
class TimedRow:
    """What was timed now and how long it took; microseconds, and 10^9 bytes a second."""

    record: Record

    in_json: ClassVar[Mapping[str, str]] = {
        **parts("candidate kind knobs", of="record"),
        **parts("median_us spread processes", of="timed"),
        "gb_per_s": "record.gb_per_s",
        **parts("iqr_us samples", of="timed"),
        "protocol": "record.protocol",
        **{"gpu": "record.provenance.gpu", "provenance": "record.provenance"},
        **{"notes": "record.notes", "origin": "origin"},
    }

    @cached_property
    def timed(self) -> Summary:
        """Its median and its spread."""
        return summary(self.record)

    @property
    def origin(self) -> str:
        """Measured now."""
        return "live"


@dataclass(frozen=True)
class RatioRow:
    """Two times of the same processes, the first over the second, with its interval."""

    found: Ratio

    in_json: ClassVar[Mapping[str, str]] = {
        **{"ratio": "found.ratio", "interval": "interval", "processes": "found.processes"},
    }

    @property
    def interval(self) -> tuple[float, float]:
        """95 %."""
        return (self.found.low, self.found.high)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.found.ratio:.3f} [{low:.3f}, {high:.3f}]"


@dataclass(frozen=True)
class PeerRow(RatioRow):
    """A peer's time over the candidate's, with the verdict."""

    in_json: ClassVar[Mapping[str, str]] = {
        **RatioRow.in_json,
        **{"against": "found.first", "equal": "found.equal", "verdict": "verdict"},
    }

    @property
    def verdict(self) -> str:
        """In a word."""
        return say_verdict(self.found)


@dataclass(frozen=True)
class BaseRow(RatioRow):
    """The time of the baseline that was asked for over the candidate's."""

    against: str

    in_json: ClassVar[Mapping[str, str]] = {
        **{"ratio": "found.ratio", "interval": "interval"},
        **{"against": "against", "equal": "found.equal"},
    }


@dataclass(frozen=True)
class StandingRow(TimedRow):
    """Where a candidate stands among its peers and to its floor."""

    standing: Standing
    base: Record | None
    scheme: StoredAs | None = None

    in_json: ClassVar[Mapping[str, str]] = {
        **TimedRow.in_json,
        **parts("kv_bits read_bytes", of="record"),
        **parts("against_fastest_fair against_fastest_fair_low_bit to_floor"),
        **{"floor_us": "standing.floor_us", "floor_read_by": "standing.reader"},
        "floor_of_data_sheet_us": "floor_of_data_sheet_us",
        **parts("worst_error tolerance", of="record.comparison"),
        **{"error_arithmetic": "errors.arithmetic", "error_of_scheme": "errors.of_scheme"},
        **{"error_is_against": "oracle", "timed": "timed_how", "cache_layout": "layout"},
        "times_as_fast": "times_as_fast",
    }

    @cached_property
    def errors(self) -> Errors:
        """Of its arithmetic and of what it keeps its inputs in."""
        return errors_of(self.record, self.scheme)

    @property
    def floor_of_data_sheet_us(self) -> float | None:
        """Its bytes at the data sheet's memory rate."""
        return sheet_floor_us(self.record.read_bytes, self.record.provenance.gpu_slug)

    @property
    def oracle(self) -> str:
        """What its worst error is against."""
        return say_oracle(self.record)

    @property
    def timed_how(self) -> str:
        """How it was timed."""
        return say_timed(self.record)

    @property
    def layout(self) -> str:
        """How what it streams lies."""
        return say_layout(self.record)

    @property
    def against_fastest_fair(self) -> PeerRow | None:
        """Beside libraries that keep 16 bits."""
        return PeerRow(self.standing.against) if self.standing.against else None

    @property
    def against_fastest_fair_low_bit(self) -> PeerRow | None:
        """Beside libraries that keep as few bits."""
        return PeerRow(self.standing.against_low_bit) if self.standing.against_low_bit else None

    @property
    def to_floor(self) -> RatioRow | None:
        """Beside the best rate of a plain read."""
        return RatioRow(self.standing.to_floor) if self.standing.to_floor else None

    @cached_property
    def times_as_fast(self) -> BaseRow | None:
        """Beside the baseline that was asked for."""
        if self.base is None:
            return None
        return BaseRow(paired_ratio(self.base, self.record), self.base.candidate)

    def cells(self) -> list[str]:
        """Its row of the table."""
        record, found = self.record, self.errors
        error, floor = found.arithmetic, self.floor_of_data_sheet_us
        peer = self.against_fastest_fair_low_bit or self.against_fastest_fair
        return [
            f"{record.candidate} {say_knobs(record.knobs, ' ')}".rstrip(),
            f"{self.timed.median_us:.2f}",
            f"{self.timed.spread:.1%}",
            f"{peer} {peer.verdict}" if peer else "",
            str(self.to_floor or ""),
            "" if floor is None else f"{record.median_us / floor:.3f}",
            f"{record.gb_per_s:,.0f}",
            "" if error is None else f"{error:.1e}",
            " / ".join(f"{one:.2g}" for one in found.of_scheme.values()),
            str(self.times_as_fast or ""),
        ]


# -------------------------------------------------------------------------------------------- run


@dataclass(frozen=True)
class Ran(Answer):
    """A check, and on a GPU how long a right kernel takes."""

    found: RungRun
    workload: Problem
    knobs: Mapping[str, int]

    in_json: ClassVar[Mapping[str, str]] = {
        **{**CheckReport.in_json, **parts(" ".join(CheckReport.in_json), of="found.check")},
        "ok": "ok",
        **parts("workload knobs timing"),
        "timing_failed": "timing_failed?",
    }

    @property
    def ok(self) -> bool:
        """Right, and timed if it was to be timed."""
        return self.found.ok

    @property
    def timing(self) -> TimedRow | None:
        """The time, where there is one."""
        timing = self.found.timing
        return TimedRow(timing.records[0]) if timing and timing.records else None

    @property
    def timing_failed(self) -> tuple[str, ...] | None:
        """Why there is no time, where one was wanted."""
        timing = self.found.timing
        return tuple(timing.failures.values()) if timing and not timing.records else None

    @property
    def status(self) -> Status:
        """1 when it is wrong, or could not be timed where it was to be."""
        return Status.RIGHT if self.ok else Status.WRONG

    def show(self, console: Console) -> None:
        """The verdict, and the time."""
        console.print(self.found.check.summary, markup=False)
        if self.timing:
            timed, record = self.timing.timed, self.timing.record
            console.print(
                f"live  {timed.median_us:.2f} us (spread {timed.spread:.1%}, "
                f"{timed.processes} processes, {timed.samples} samples), "
                f"{record.gb_per_s:,.0f} GB/s of "
                f"{operation_of(self.workload).bytes_name}, on {record.provenance.gpu}",
                markup=False,
            )
            console.print("against libraries: labtools bench")
        for reason in self.timing_failed or ():
            console.print(f"not timed: {reason}", markup=False)


def run_named_rung(
    name: str,
    workload_text: str | None,
    on: str | None,
    chosen: Sequence[str] | None,
    quick: bool,
    seed: int | None,
    progress: Progress,
) -> Ran:
    """Check a rung; on a GPU, and only if it is right, time it."""
    rung = read_rung(name)
    knobs = read_knobs(rung, chosen)
    if on is None:
        status = cuda_status()
        on = "gpu" if status.can_run_live else "cpu"
        if on == "cpu":
            # Said aloud: a check on the CPU is never a time on a GPU.
            progress(f"on the CPU, since {status.why_not_live().why}")
    workload = choose_workload(workload_text, rung, small=on == "cpu")
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
            *("median us", "spread", "against fastest fair peer", "over the best rate measured"),
            *("over the data sheet's rate", "GB/s read", "error: arithmetic"),
            *("error: of the scheme", f"times as fast as {self.baseline}"),
        )
        console.print(f"live  {self.candidates[0].record.provenance.gpu}", markup=False)
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
                "its recorded error against the unquantised cache holds both",
                markup=False,
            )
        console.print(f"last column: times as fast as {self.baseline}", markup=False)
        reader = self.candidates[0].standing.reader
        if reader is not None:
            console.print(
                f"the best rate was measured of {reader}, and of it says nothing", markup=False
            )
        console.print(f"fastest fair peer: {self.fastest_fair_baseline}", markup=False)
        kept = operation_of(self.workload).bytes_name
        for row in self.candidates:
            peer, wide = row.against_fastest_fair_low_bit, row.against_fastest_fair
            if peer:
                besides = f"; {wide} against {wide.found.first}" if wide else ""
                console.print(
                    f"{row.record.candidate} keeps {kept} in {row.record.kv_bits} bits, so its "
                    f"peer is {peer.found.first}{besides}",
                    markup=False,
                )
        installed = ", ".join(f"{name} {value}" for name, value in self.versions.items() if value)
        console.print(f"versions: {installed}", markup=False)
        for label, why in self.not_timed.items():
            console.print(f"not timed: {label}: {why}", markup=False)


def bench_candidates(
    names: Sequence[str] | None,
    workload_text: str | None,
    baseline: str | None,
    chosen: Sequence[str] | None,
    processes: int | None,
    quick: bool,
    progress: Progress,
) -> Benched:
    """Time candidates in the same processes; say where each stands among peers and to its floor."""
    targets = [read_target(name) for name in names or ()]
    workload = choose_workload(workload_text, targets[0] if targets else None)
    against = _read_baseline(baseline or _usual_baseline(workload))
    asked = [_candidate(target, chosen) for target in targets]
    candidates = [*_with_peers(asked, workload), Candidate(against, "baseline")]
    unique = {candidate.label: candidate for candidate in candidates}
    require_device()
    timing = time_candidates(
        list(unique.values()),
        workload,
        processes=processes or (QUICK_PROCESSES if quick else PROCESSES),
        rounds=QUICK_ROUNDS if quick else ROUNDS,
        progress=progress,
    )
    base = next((r for r in timing.records if r.candidate == f"baseline:{against.id}"), None)
    kept = {
        one.id: one.target.scheme(workload, one.knobs)
        for one in unique.values()
        if isinstance(one.target, Rung)
    }
    rows = tuple(
        StandingRow(one.record, one, base, kept.get(one.record.candidate))
        for one in standings(timing.records)
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


def _candidate(target: Rung | Baseline, chosen: Sequence[str] | None) -> Candidate:
    if isinstance(target, Rung):
        return Candidate(target, "rung", read_knobs(target, chosen))
    return Candidate(target, "baseline")


def _with_peers(asked: list[Candidate], workload: Problem) -> list[Candidate]:
    """What was asked for; everything where nothing was."""
    if not asked:
        return default_candidates(workload)
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
                "name one with --baseline",
            )
    return found


# ----------------------------------------------------------------------------------------- record


@dataclass(frozen=True)
class PlanRecorded(Answer):
    """What a campaign did."""

    found: CampaignReport

    in_json: ClassVar[Mapping[str, str]] = {
        **{"file": "found.path", "workloads": "found.groups"},
        **parts("measured resumed", of="found"),
        "records": "records",
        **parts("failures left_out ok", of="found"),
    }

    @property
    def records(self) -> tuple[TimedRow, ...]:
        """Those that were written now."""
        return tuple(TimedRow(record) for record in self.found.records)

    @property
    def status(self) -> Status:
        """1 when something could not be measured."""
        return Status.RIGHT if self.found.ok else Status.WRONG

    def show(self, console: Console) -> None:
        """How many were measured, and what was not."""
        found = self.found
        console.print(
            f"{found.measured} workloads measured, {found.resumed} were there already, "
            f"{len(found.records)} records in {found.path}",
            markup=False,
        )
        for title, reasons in (("failed", found.failures), ("left out", found.left_out)):
            for label, why in reasons.items():
                console.print(f"{title}: {label}: {why}", markup=False)


def record_plan(
    plan: str,
    out: Path | None,
    quick: bool,
    profile: bool,
    sanitize: bool,
    stale: bool,
    progress: Progress,
) -> PlanRecorded:
    """Measure a whole plan, or what of it is stale; what is there for the same code is skipped."""
    with typed():
        load_plan(plan)
    effort = _effort(quick, profile, sanitize)
    return PlanRecorded(record_campaign(plan, out, effort, stale=stale, progress=progress))


def record_one(
    name: str,
    workload_text: str | None,
    chosen: Sequence[str] | None,
    baselines: Sequence[str] | None,
    out: Path | None,
    quick: bool,
    profile: bool,
    sanitize: bool,
    progress: Progress,
) -> PlanRecorded:
    """Record one rung, beside baselines in the same processes."""
    rung = read_rung(name)
    workload = choose_workload(workload_text, rung)
    knobs = read_knobs(rung, chosen)
    check_supported(rung, workload, knobs)
    beside = [_read_baseline(library).id for library in baselines] if baselines else None
    report = record_rung(
        rung,
        workload,
        knobs,
        out,
        _effort(quick, profile, sanitize),
        baselines=beside,
        progress=progress,
    )
    return PlanRecorded(report)


def _effort(quick: bool, profile: bool, sanitize: bool) -> Effort:
    if quick:
        return Effort(QUICK_PROCESSES, QUICK_ROUNDS, profile=profile, sanitize=sanitize)
    return Effort(profile=profile, sanitize=sanitize)
