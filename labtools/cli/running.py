"""``labtools run``, ``bench`` and ``record``: right first, then how long it takes."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .given import (
    HEADLINE_TEXT,
    SMALL_TEXT,
    check_supported,
    read_knobs,
    read_rung,
    read_target,
    read_workload,
)
from .outcome import Outcome, Progress, Status, WrongKernel, typed

if TYPE_CHECKING:
    from rich.console import Console

    from labtools.measure.campaign import CampaignReport
    from labtools.measure.check import CheckReport
    from labtools.measure.live_measure import Timing
    from labtools.problem import Baseline, Workload
    from labtools.record import Record

QUICK_PROCESSES = 1
QUICK_ROUNDS = 5
HOST_BYTES_PER_KV_BYTE = 8
"""Drawing inputs and the float64 oracle need about this many times the bytes of K and V."""


def _count(progress: Progress) -> Callable[[str, int, int], None]:
    """Progress in the form that timing reports: a sentence, how much is done, how much there is."""

    def say(text: str, done: int, total: int) -> None:
        progress(f"{text} ({done / total:.0%})" if total else text)

    return say


def run_rung(
    name: str,
    workload_text: str | None,
    on: str | None,
    chosen: Sequence[str] | None,
    quick: bool,
    progress: Progress,
) -> Outcome:
    """Check a rung; on a GPU, and only if it is right, time it."""
    from labtools.measure.check import check_rung
    from labtools.toolchain import cuda_status

    rung = read_rung(name)
    workload = read_workload(workload_text) if workload_text else None
    knobs = read_knobs(rung, chosen)
    if on is None:
        status = cuda_status()
        on = "gpu" if status.can_run_live else "cpu"
        if on == "cpu":
            # Said aloud: a check on the CPU is never a time on a GPU.
            progress(f"on the CPU, since {status.why_not_live().why}")
    if workload is None:
        workload = read_workload(HEADLINE_TEXT if on == "gpu" else SMALL_TEXT)
    check_supported(rung, workload, knobs)
    if on == "cpu":
        check_host_memory(workload)
    else:
        # The machine is looked at before the kernel, so that the message is about the machine.
        from labtools.measure.live_job import require_device

        require_device()
    report = check_rung(
        rung,
        workload,
        knobs,
        on=on,
        progress=lambda done, total, text: progress(f"check {done} of {total}: {text}"),
        quick=quick,
    )
    data: dict[str, Any] = {
        **report.to_dict(),
        "workload": workload.to_dict(),
        "knobs": knobs,
        "faults": [_fault(fault) for fault in report.faults],
        "timing": None,
    }
    if on == "gpu" and report.ok:
        timing = _time([(rung, knobs)], workload, quick, progress, ceiling=False)
        if timing.records:
            data["timing"] = _time_row(timing.records[0])
        else:
            data["ok"] = False
            data["timing_failed"] = list(timing.failures.values())
    status_code = Status.RIGHT if data["ok"] else Status.WRONG
    return Outcome(data, lambda console: _show_run(console, report, data), status_code)


def _fault(fault: Any) -> dict[str, Any]:
    names = ("kind", "message", "file", "line", "block", "thread")
    return {name: getattr(fault, name, None) for name in names}


def check_host_memory(workload: Workload) -> None:
    """Refuse what would take the machine's memory, before the system starts to kill processes."""
    from labtools.problem import LabError

    shape = workload.batch * workload.num_kv_heads * workload.kv_len * workload.head_dim
    needed = 2 * shape * workload.element_bytes * HOST_BYTES_PER_KV_BYTE
    try:
        there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return  # a system that does not tell; numpy will say so when it has too little
    if needed > there:
        raise LabError(
            f"{workload} does not fit the memory of this machine.",
            f"its inputs and the oracle need about {needed / 1024**3:.0f} GiB and the machine has "
            f"{there / 1024**3:.0f} GiB",
            "a smaller batch or kv_len checks the same code; forecasts and records need no memory",
        )


def _time(
    candidates: Sequence[Any], workload: Workload, quick: bool, progress: Progress, ceiling: bool
) -> Timing:
    from labtools.measure.live_measure import PROCESSES, ROUNDS, time_candidates

    return time_candidates(
        candidates,
        workload,
        processes=QUICK_PROCESSES if quick else PROCESSES,
        rounds=QUICK_ROUNDS if quick else ROUNDS,
        ceiling=ceiling,
        progress=_count(progress),
    )


def _time_row(record: Record) -> dict[str, Any]:
    from labtools.measure.bench import describe_timing
    from labtools.record import summary

    found = summary(record)
    return {
        **describe_timing(record),
        "iqr_us": list(found.iqr_us),
        "samples": found.samples,
        "protocol": record.protocol,
        "gpu": record.provenance.gpu,
        "provenance": record.provenance.model_dump(mode="json"),
        "notes": list(record.notes),
        "origin": "live",
    }


def _show_run(console: Console, report: CheckReport, data: dict[str, Any]) -> None:
    console.print(report.summary, markup=False)
    timing = data["timing"]
    if timing:
        console.print(
            f"live  {timing['median_us']:.2f} us (spread {timing['spread']:.1%}, "
            f"{timing['processes']} processes, {timing['samples']} samples), "
            f"{timing['gb_per_s']:,.0f} GB/s of K and V, on {timing['gpu']}",
            markup=False,
        )
        console.print("against libraries: labtools bench")
    for reason in data.get("timing_failed", ()):
        console.print(f"not timed: {reason}", markup=False)


def bench_candidates(
    names: Sequence[str] | None,
    workload_text: str,
    baseline: str,
    chosen: Sequence[str] | None,
    processes: int | None,
    quick: bool,
    progress: Progress,
) -> Outcome:
    """Time candidates in the same processes; say where each stands among peers and to its floor."""
    from labtools.measure.bench import (
        bench_together,
        default_candidates,
        describe_standing,
        every_baseline,
        versions,
    )
    from labtools.measure.live_job import Candidate, require_device
    from labtools.measure.live_measure import PROCESSES, ROUNDS
    from labtools.problem import LabError, Rung
    from labtools.record import paired_ratio

    workload = read_workload(workload_text)
    against = _read_baseline(baseline)
    candidates = []
    for target in [read_target(name) for name in names or ()]:
        if isinstance(target, Rung):
            candidates.append(Candidate(target, "rung", read_knobs(target, chosen)))
        else:
            candidates.append(Candidate(target, "baseline"))
    asked = {one.label for one in candidates}
    if not candidates:
        candidates = default_candidates(workload)
    elif all(one.kind == "rung" for one in candidates):
        # A rung by itself has nothing to stand against: its peers come along.
        candidates += every_baseline()
    candidates.append(Candidate(against, "baseline"))
    unique = {candidate.label: candidate for candidate in candidates}
    require_device()
    found = bench_together(
        list(unique.values()),
        workload,
        processes=processes or (QUICK_PROCESSES if quick else PROCESSES),
        rounds=QUICK_ROUNDS if quick else ROUNDS,
        progress=_count(progress),
    )
    timing = found.timing
    rows = []
    base = next((r for r in timing.records if r.candidate == f"baseline:{against.id}"), None)
    for standing in found.standings:
        record = standing.record
        row = _time_row(record) | describe_standing(standing)
        row["times_as_fast"] = None
        if base is not None:
            ratio = paired_ratio(base, record)
            row["times_as_fast"] = {
                "ratio": ratio.ratio,
                "interval": [ratio.low, ratio.high],
                "equal": ratio.equal,
                "against": base.candidate,
            }
        rows.append(row)
    if not rows:
        reasons = "; ".join(f"{label}: {why}" for label, why in timing.failures.items())
        raise LabError(
            f"Nothing could be timed on {workload}.", reasons, "labtools run RUNG checks one alone"
        )
    fastest = timing.fastest_fair_baseline
    data = {
        "workload": workload.to_dict(),
        "origin": "live",
        "baseline": f"baseline:{against.id}",
        "fastest_fair_baseline": fastest.candidate if fastest else None,
        "best_read_gb_per_s": timing.best_read_gb_per_s,
        "versions": versions(timing.records[0]),
        "candidates": rows,
        "not_timed": timing.failures,
    }
    # A candidate that cannot run here is a finding; one that was asked for by name is not.
    status = Status.WRONG if asked & set(timing.failures) else Status.RIGHT
    return Outcome(data, lambda console: _show_bench(console, data), status)


def _read_baseline(name: str) -> Baseline:
    from labtools.problem import load_baseline

    with typed():
        return load_baseline(name.removeprefix("baseline:"))


def _show_bench(console: Console, data: dict[str, Any]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("candidate", overflow="fold")
    for column in ("median us", "spread", "against fastest fair peer", "times its floor"):
        table.add_column(column, justify="right")
    for column in ("GB/s read", "worst error", f"times as fast as {data['baseline']}"):
        table.add_column(column, justify="right")
    for row in data["candidates"]:
        peer = row["against_fastest_fair_low_bit"] or row["against_fastest_fair"]
        floor, error = row["to_floor"], row["worst_error"]
        table.add_row(
            " ".join((row["candidate"], *(f"{k}={v}" for k, v in row["knobs"].items()))),
            f"{row['median_us']:.2f}",
            f"{row['spread']:.1%}",
            f"{_interval(peer)} {peer['verdict']}" if peer else "",
            _interval(floor),
            f"{row['gb_per_s']:,.0f}",
            "" if error is None else f"{error:.1e}",
            _interval(row["times_as_fast"]),
        )
    console.print(f"live  {data['candidates'][0]['gpu']}", markup=False)
    console.print(table, soft_wrap=False)
    console.print(f"fastest fair peer: {data['fastest_fair_baseline']}", markup=False)
    for row in data["candidates"]:
        peer = row["against_fastest_fair_low_bit"]
        if peer:
            wide = row["against_fastest_fair"]
            besides = f"; {_interval(wide)} against {wide['against']}" if wide else ""
            console.print(
                f"{row['candidate']} keeps K and V in {row['kv_bits']} bits, so its peer is "
                f"{peer['against']}{besides}",
                markup=False,
            )
    installed = ", ".join(f"{name} {value}" for name, value in data["versions"].items() if value)
    console.print(f"versions: {installed}", markup=False)
    for label, why in data["not_timed"].items():
        console.print(f"not timed: {label}: {why}", markup=False)


def _interval(ratio: dict[str, Any] | None) -> str:
    if not ratio:
        return ""
    low, high = ratio["interval"]
    return f"{ratio['ratio']:.3f} [{low:.3f}, {high:.3f}]"


def record_plan(
    plan: str,
    out: Path | None,
    quick: bool,
    profile: bool,
    sanitize: bool,
    progress: Progress,
) -> Outcome:
    """Measure a whole plan; what is there already for the same code is skipped."""
    from labtools.measure.campaign import record_campaign
    from labtools.measure.campaign_plan import load_plan

    with typed():
        load_plan(plan)
    report = record_campaign(
        plan,
        out,
        **_effort(quick),
        profile=profile,
        sanitize=sanitize,
        progress=_count(progress),
    )
    return _recorded(report)


def record_one(
    name: str,
    workload_text: str,
    chosen: Sequence[str] | None,
    baselines: Sequence[str] | None,
    out: Path | None,
    quick: bool,
    profile: bool,
    sanitize: bool,
    progress: Progress,
) -> Outcome:
    """Record one rung, beside baselines in the same processes."""
    from labtools.measure.campaign import record_rung
    from labtools.problem import LabError

    rung = read_rung(name)
    workload = read_workload(workload_text)
    knobs = read_knobs(rung, chosen)
    check_supported(rung, workload, knobs)
    beside = [_read_baseline(one).id for one in (baselines or ("sdpa",))]
    try:
        report = record_rung(
            rung,
            workload,
            knobs,
            out,
            baselines=beside,
            **_effort(quick),
            profile=profile,
            sanitize=sanitize,
            progress=_count(progress),
        )
    except LabError as error:
        if error.what.endswith("was not recorded."):  # it was measured, and is not right
            raise WrongKernel(error) from error
        raise
    return _recorded(report)


def _effort(quick: bool) -> dict[str, int]:
    return {"processes": QUICK_PROCESSES, "rounds": QUICK_ROUNDS} if quick else {}


def _recorded(report: CampaignReport) -> Outcome:
    data = {
        "file": str(report.path),
        "workloads": report.groups,
        "measured": report.measured,
        "resumed": report.resumed,
        "records": [_time_row(record) for record in report.records],
        "failures": report.failures,
        "left_out": report.left_out,
        "ok": report.ok,
    }

    def show(console: Console) -> None:
        console.print(
            f"{report.measured} workloads measured, {report.resumed} were there already, "
            f"{len(report.records)} records in {report.path}",
            markup=False,
        )
        for title, reasons in (("failed", report.failures), ("left out", report.left_out)):
            for label, why in reasons.items():
                console.print(f"{title}: {label}: {why}", markup=False)

    return Outcome(data, show, Status.RIGHT if report.ok else Status.WRONG)
