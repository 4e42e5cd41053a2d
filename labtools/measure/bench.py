"""A bench: rungs and libraries side by side, and where each stands among them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from labtools.problem import Problem, list_baselines, list_rungs
from labtools.record import Standing, standings
from labtools.toolchain.progress import Progress, silent

from .gpu.job import Candidate, rung_candidate
from .gpu.measure import PROCESSES, ROUNDS, AnyCandidate, Timing, time_candidates


@dataclass(frozen=True)
class TimedTogether:
    """What a bench found."""

    timing: Timing  # the records and what could not be timed
    standings: list[Standing]  # fastest first, without the read ceiling


def default_candidates(workload: Problem) -> list[Candidate]:
    """Every shipped rung that supports a workload, at its default knobs, and every baseline.

    Baselines are not sifted: what keeps one from running is part of the answer.
    """
    rungs = [rung for rung in list_rungs(workload.operation) if not rung.supports(workload)]
    return [*(rung_candidate(rung) for rung in rungs), *every_baseline(workload.operation)]


def every_baseline(operation: str) -> list[Candidate]:
    """The shipped baselines of an operation."""
    return [Candidate(baseline, "baseline") for baseline in list_baselines(operation)]


def bench_together(
    candidates: Iterable[AnyCandidate],
    workload: Problem,
    *,
    processes: int = PROCESSES,
    rounds: int = ROUNDS,
    progress: Progress = silent,
) -> TimedTogether:
    """`time_candidates` with the read ceiling, and where each stands.

    With fewer than 5 processes there are ratios and no verdicts.
    """
    timing = time_candidates(
        candidates, workload, processes=processes, rounds=rounds, ceiling=True, progress=progress
    )
    return TimedTogether(timing, standings(timing.records))
