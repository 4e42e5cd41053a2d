"""Measurements that a page makes now, on this machine's GPU; nothing here runs without one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from labtools.problem import Baseline, Rung, Workload, load_baseline, load_rung
from labtools.record import Record

from .ratios import Speedup, read_ratio

Job = tuple[Rung | Baseline, Mapping[str, int]]


def can_run_live() -> bool:
    """True when a kernel can be compiled, launched and timed here."""
    from labtools.toolchain import cuda_status

    return cuda_status().can_run_live


def load_candidate(name: str | Rung | Baseline) -> Rung | Baseline:
    """A rung by id, or a baseline by ``baseline:NAME``.

    Raises:
        LabError: there is neither.
    """
    if not isinstance(name, str):
        return name
    if name.startswith("baseline:"):
        return load_baseline(name.removeprefix("baseline:"))
    return load_rung(name)


def time_now(jobs: Sequence[Job], workload: Workload) -> list[Record]:
    """Time all jobs, interleaved in the same child processes.

    Returns:
        One record a job, in their order.

    Raises:
        LabError: a wrong answer, a fault, or no GPU; the notebook stays alive.
    """
    from labtools.measure import time_candidates

    resolved = [
        (target, target.resolve_knobs(knobs) if isinstance(target, Rung) else {})
        for target, knobs in jobs
    ]
    timing = time_candidates(
        [(target, knobs) if isinstance(target, Rung) else target for target, knobs in resolved],
        workload,
        ceiling=False,
    )
    return [timing.find(target.id, knobs) for target, knobs in resolved]


def measure_speedup(
    baseline: str | Rung | Baseline,
    candidate: str | Rung | Baseline,
    workload: Workload,
    *,
    baseline_knobs: Mapping[str, int] | None = None,
    candidate_knobs: Mapping[str, int] | None = None,
) -> Speedup | None:
    """Measure two candidates now, in the same processes.

    Args:
        baseline: a rung, its id, or ``baseline:NAME``.
        candidate: the same.
        workload: what both run.
        baseline_knobs: knobs that differ from the defaults.
        candidate_knobs: the same.

    Returns:
        baseline time / candidate time with its interval, or None when there is no GPU here.

    Raises:
        LabError: a wrong answer or a fault.
    """
    if not can_run_live():
        return None
    jobs = [
        (load_candidate(baseline), baseline_knobs or {}),
        (load_candidate(candidate), candidate_knobs or {}),
    ]
    first, second = time_now(jobs, workload)
    return read_ratio((first, second), "live")
