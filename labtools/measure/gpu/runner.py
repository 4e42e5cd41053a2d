"""Running a kernel on the GPU of this machine: is it right? A fault takes a child process alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from labtools.predict import limits_of
from labtools.problem import Problem, Rung
from labtools.toolchain.progress import Progress, silent

from ..case import second_draw
from ..worker import Worker
from .check import HOST_ELEMENTS, Case, CheckRequest, GpuRun
from .job import fill_cubin, make_jobs, require_device, rung_candidate
from .pool import LivePool, check_with

__all__ = ["GpuRun", "run_jobs_on_gpu", "run_on_gpu"]

GPU_TIME_LIMIT_S = 20.0


def run_on_gpu(
    rung: Rung,
    workload: Problem,
    knobs: Mapping[str, int] | None = None,
    *,
    time_limit_s: float = GPU_TIME_LIMIT_S,
    progress: Progress = silent,
) -> GpuRun:
    """Run a rung once on a workload and once more on other inputs, and compare with the oracle.

    Every buffer lies between zones of NaN, the output is poisoned first, and the inputs must be
    unchanged afterwards. Large workloads are compared in a sample of parts. ``time_limit_s`` is
    for the kernel alone; past it the child is killed.

    Returns the first run that is not right, else the first run. A fault of the kernel is in
    ``faults``, not raised.

    Raises CompileError: it does not compile; LabError: nothing can run on a GPU here, or the rung
    does not support the workload.
    """
    jobs = [(rung, workload, knobs)]
    if workload.streamed_elements <= HOST_ELEMENTS:
        jobs.append((rung, second_draw(workload), knobs))
    runs = run_jobs_on_gpu(jobs, time_limit_s=time_limit_s, stop_at_first=True, progress=progress)
    return next((run for run in runs if not run.ok), runs[0])


def run_jobs_on_gpu(
    jobs: Sequence[tuple[Rung, Problem, Mapping[str, int] | None]],
    *,
    time_limit_s: float = GPU_TIME_LIMIT_S,
    stop_at_first: bool = False,
    progress: Progress = silent,
    pool: LivePool | None = None,
) -> list[GpuRun]:
    """Rungs on workloads, each once, in one child process: a new one, or a pool's first.

    Returns one GpuRun a job, in order. After a fault that kills the CUDA context, and after the
    first wrong one with ``stop_at_first``, the rest is not run and left out.
    """
    if not jobs:
        return []
    limits = limits_of(require_device())
    asked = [(rung_candidate(rung, knobs), workload) for rung, workload, knobs in jobs]
    named = list(dict.fromkeys(rung.id for rung, _, _ in jobs))[:3]
    made = zip(make_jobs(asked, limits), asked, strict=True)
    cases = tuple(Case(job, workload) for job, (_, workload) in made)
    purpose, fill = f"checking {', '.join(named)}", str(fill_cubin(limits.arch))
    request = CheckRequest(purpose, cases, fill, time_limit_s, stop_at_first)
    if pool is not None:
        return pool.check(request)
    with Worker(progress=progress) as worker:
        return check_with(worker, request)
