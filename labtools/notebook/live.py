"""Measurements that a page makes now, on this machine's GPU; nothing here runs without one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from labtools.problem import HEADLINE, Baseline, Problem, Rung, operation_of
from labtools.problem.rung import say_knobs
from labtools.record import Record
from labtools.toolchain import cuda_status

from .check import show_check
from .gate import Gate
from .ratios import Speedup, read_ratio
from .reader import reader_present
from .tables import make_note, show_table

if TYPE_CHECKING:
    from labtools.measure import Timing

LiveCandidate = tuple[str | Rung | Baseline, Mapping[str, int]]
"""A rung, its id or ``baseline:NAME``, and the knobs of a rung that do not have their defaults."""


def can_run_live() -> bool:
    """True when a kernel can be compiled, launched and timed here."""
    return cuda_status().can_run_live


def live_wanted(live: bool | None) -> bool:
    """What a page asked for; where it left that open, live wherever a GPU is here."""
    return can_run_live() if live is None else live


def time_now(jobs: Sequence[LiveCandidate], workload: Problem) -> list[Record]:
    """Time all jobs, interleaved in the same child processes; a record a job, in their order.

    Raises LabError: no such candidate, a wrong answer, a fault, or no GPU; the notebook stays
    alive.
    """
    from labtools.measure import rung_candidate, time_candidates
    from labtools.measure.gpu.measure import as_candidate

    asked = []
    for item, knobs in jobs:
        found = as_candidate(item)
        target = found.target
        asked.append(rung_candidate(target, knobs) if isinstance(target, Rung) else found)
    timing = time_candidates(asked, workload, ceiling=False)
    return [timing.find(one.id, one.knobs) for one in asked]


def measure_speedup(
    baseline: str | Rung | Baseline,
    candidate: str | Rung | Baseline,
    workload: Problem,
    *,
    baseline_knobs: Mapping[str, int] | None = None,
    candidate_knobs: Mapping[str, int] | None = None,
) -> Speedup | None:
    """Measure two candidates now, in the same processes; None when there is no GPU here.

    Rungs, their ids or ``baseline:NAME``; knobs that are not named have their defaults. Raises
    LabError: a wrong answer or a fault.
    """
    if not can_run_live():
        return None
    sides = ((baseline, baseline_knobs), (candidate, candidate_knobs))
    jobs = [(item, knobs or {}) for item, knobs in sides]
    return read_ratio(tuple(time_now(jobs, workload)), "live")


def say_not_live() -> None:
    """Tell a reader why nothing runs on a GPU here; a page that nobody sits at says nothing."""
    from IPython.display import display

    if reader_present():
        display(make_note(str(cuda_status().why_not_live())))


def check_here(rung: Rung, problem: Problem) -> None:
    """Check a kernel on this machine's GPU and show the verdict; without a GPU say why not."""
    from IPython.display import display

    if not can_run_live():
        say_not_live()
        return
    from labtools.measure import check_rung

    display(show_check(check_rung(rung, problem, on="gpu")))


def time_here(
    candidates: Sequence[Any], workload: Problem = HEADLINE, gate: Gate | None = None
) -> Timing | None:
    """Time candidates on this machine's GPU and show the times; without a GPU say why not, and give
    None.

    Raises PredictionPending: the gate, whose prediction must be committed first, waits for the
    reader.
    """
    from IPython.display import display

    if gate is not None:
        gate.require_prediction()
    if not can_run_live():
        say_not_live()
        return None
    from labtools.measure import time_candidates

    timing = time_candidates(candidates, workload)
    rows = []
    for record in timing.records:
        knobs = say_knobs(sorted(record.knobs.items())) or "-"
        rows.append((record.candidate, knobs, record.median_us, record.gb_per_s))
    rate = f"GB/s of {operation_of(workload).bytes_name}, each counted once"
    columns = ("what", "knobs", "median us", rate)
    display(show_table(columns, rows, word="live", note=f"Workload {workload}"))
    for label, why in timing.failures.items():
        display(make_note(f"{label} was not timed: {why}"))
    return timing


def live_speedup(
    timing: Timing | None,
    baseline: str,
    candidate: str,
    *,
    baseline_knobs: Mapping[str, int] | None = None,
    candidate_knobs: Mapping[str, int] | None = None,
) -> Speedup | None:
    """Baseline time over candidate time of what `time_here` measured, at these knobs; None where it
    did not."""
    if timing is None:
        return None
    pair = timing.find(baseline, baseline_knobs), timing.find(candidate, candidate_knobs)
    return read_ratio(pair, "live")
