"""A bench: rungs and libraries side by side, and where each stands among them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from labtools.problem import Workload, list_baselines, list_rungs
from labtools.record import Ratio, Record, Standing, say_verdict, standings, summary

from .live_job import Candidate, rung_candidate
from .live_measure import (
    PROCESSES,
    ROUNDS,
    AnyCandidate,
    Progress,
    Timing,
    time_candidates,
)


@dataclass(frozen=True)
class Bench:
    """What a bench found.

    Args:
        timing: the records and what could not be timed.
        standings: fastest first, without the read ceiling.
    """

    timing: Timing
    standings: list[Standing]


def default_candidates(workload: Workload) -> list[Candidate]:
    """Every shipped rung that supports a workload, at its default knobs, and every baseline.

    Baselines are not sifted: what keeps one from running is part of the answer.
    """
    rungs = [rung for rung in list_rungs() if rung.supports(workload) is None]
    return [*(rung_candidate(rung) for rung in rungs), *every_baseline()]


def every_baseline() -> list[Candidate]:
    """The shipped baselines."""
    return [Candidate(baseline, "baseline") for baseline in list_baselines()]


def bench_together(
    candidates: Iterable[AnyCandidate],
    workload: Workload,
    *,
    processes: int = PROCESSES,
    rounds: int = ROUNDS,
    progress: Progress | None = None,
) -> Bench:
    """Time candidates and the read ceiling in the same processes, and compare them.

    Args:
        candidates: rungs and baselines; see `as_candidate`.
        workload: what is computed.
        processes: child processes; with fewer than 5 there are ratios and no verdicts.
        rounds: samples a candidate and process.
        progress: see `Progress`.

    Raises:
        LabError: as `time_candidates`.
    """
    timing = time_candidates(
        candidates, workload, processes=processes, rounds=rounds, ceiling=True, progress=progress
    )
    return Bench(timing, standings(timing.records))


def describe_standing(standing: Standing) -> dict[str, Any]:
    """One row of a bench, as JSON can hold it; times in microseconds, rates in 10^9 bytes/s."""
    record = standing.record
    return {
        **describe_timing(record),
        "kv_bits": record.kv_bits,
        "read_bytes": record.read_bytes,
        "against_fastest_fair": describe_ratio(standing.against, verdict=True),
        "against_fastest_fair_low_bit": describe_ratio(standing.against_low_bit, verdict=True),
        "to_floor": describe_ratio(standing.to_floor),
        "floor_us": standing.floor_us,
        "floor_read_by": standing.reader,
        "worst_error": record.comparison.worst_error,
        "tolerance": record.comparison.tolerance,
    }


def describe_timing(record: Record) -> dict[str, Any]:
    """What was timed and how long it took; times in microseconds, rates in 10^9 bytes/s."""
    found = summary(record)
    return {
        "candidate": record.candidate,
        "kind": record.kind,
        "knobs": record.knobs,
        "median_us": found.median_us,
        "spread": found.spread,
        "processes": found.processes,
        "gb_per_s": record.gb_per_s,
    }


def describe_ratio(ratio: Ratio | None, verdict: bool = False) -> dict[str, Any] | None:
    """A ratio as JSON can hold it; ``verdict`` reads it as peer / candidate."""
    if ratio is None:
        return None
    told = {"ratio": ratio.ratio, "interval": [ratio.low, ratio.high], "processes": ratio.processes}
    if verdict:
        told |= {"against": ratio.first, "equal": ratio.equal, "verdict": say_verdict(ratio)}
    return told


def versions(record: Record) -> dict[str, str | None]:
    """What the libraries behind a record were."""
    names = ("driver", "cuda", "torch", "cudnn", "flashinfer", "cupy", "nvrtc")
    return {name: getattr(record.provenance, name) for name in names}
