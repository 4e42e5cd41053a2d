"""One rung on one workload: is it right, and then how long does it take?

The same children do both: the first of them checks, then all of them time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from labtools.problem import Problem, Rung
from labtools.toolchain.progress import Progress, silent

from .check import CheckReport, check_rung
from .gpu.job import rung_candidate
from .gpu.measure import PROCESSES, ROUNDS, Timing, time_candidates
from .gpu.runner import LivePool


@dataclass(frozen=True)
class RungRun:
    """What running a rung gave."""

    check: CheckReport
    timing: Timing | None = None  # None on the CPU, and where it is wrong

    @property
    def ok(self) -> bool:
        """Right, and timed if it was to be timed."""
        return self.check.ok and (self.timing is None or bool(self.timing.records))


def run_rung(
    rung: Rung,
    workload: Problem,
    knobs: Mapping[str, int] | None = None,
    *,
    on: str = "cpu",
    quick: bool = False,
    processes: int = PROCESSES,
    rounds: int = ROUNDS,
    progress: Progress = silent,
    seed: int | None = None,
    every_kind: bool = False,
    asked: Collection[str] | None = None,
) -> RungRun:
    """Check a rung on ``cpu`` or ``gpu``; on a GPU, and only if it is right, time it.

    Arguments and errors are those of `check_rung` and `time_candidates`.
    """
    how: dict[str, Any] = {"quick": quick, "seed": seed, "every_kind": every_kind, "asked": asked}
    if on != "gpu":
        return RungRun(check_rung(rung, workload, knobs, on, progress, **how))
    with LivePool(processes, progress=progress) as pool:
        check = check_rung(rung, workload, knobs, on, progress, pool=pool, **how)
        if not check.ok:
            return RungRun(check)
        much: dict[str, Any] = {"processes": processes, "rounds": rounds, "ceiling": False}
        mine = [rung_candidate(rung, knobs)]
        timing = time_candidates(mine, workload, **much, progress=progress, pool=pool)
        return RungRun(check, timing)
