"""Running kernels on the GPU of this machine, in children: a fault takes one of them alone.

A check has a child of its own, or the first of a `LivePool`, whose children also measure.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from labtools.predict import limits_of
from labtools.problem import Problem, Rung
from labtools.toolchain.progress import Progress, silent

from ..case import Fault
from ..worker import NOTEBOOK_ALIVE, Worker, WorkerDied, hang_message
from .check import HOST_ELEMENTS, Case, CheckRequest, GpuRun, check_cases
from .job import fill_cubin, make_jobs, require_device, rung_candidate
from .queue import LONGEST_WAIT_S
from .timing import TimingAnswer, TimingRequest, time_group

__all__ = ["GpuRun", "LivePool", "run_jobs_on_gpu", "run_on_gpu"]

GPU_TIME_LIMIT_S = 20.0
ANSWER_LIMIT_S = 2 * 3600.0  # waiting for the GPU included; the child's own watchdog is faster


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
        jobs.append((rung, workload.second_draw(), knobs))
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


def check_with(worker: Worker, request: CheckRequest) -> list[GpuRun]:
    """Let a child check cases. One that a kernel takes down has a fault as its last run.

    Raises LabError: the GPU could not be used, or the child ended for a reason that is no kernel's.
    """
    runs: list[GpuRun] = []
    cases = request.cases
    # The child's own watchdog ends a kernel that hangs. This limit is for everything else.
    limit_s = LONGEST_WAIT_S + 300.0 + len(cases) * (60.0 + request.time_limit_s)
    try:
        worker.call(check_cases, request, time_limit_s=limit_s, on_item=runs.append)
    except WorkerDied as died:
        if died.step is None or not died.step.label:
            raise  # it is not about a kernel: CUDA did not start, a lock was not given
        kind, why = ("hang", hang_message(died.step.limit_s)) if died.hung else ("crash", str(died))
        workload = cases[min(len(runs), len(cases) - 1)].workload
        fault = Fault(kind, f"{why}; {NOTEBOOK_ALIVE}")
        runs.append(GpuRun(workload, False, faults=[fault]))
    return runs


class LivePool:
    """Several children, alive for a whole campaign, that measure groups one at a time."""

    def __init__(
        self,
        processes: int,
        with_torch: bool = False,
        progress: Progress = silent,
        imports: Sequence[str] = (),
    ) -> None:
        # torch first: CuPy then finds the CUDA libraries that torch brought along. All children
        # load them at once, while nothing is measured yet.
        self._preload = ("torch", *imports, "cupy") if with_torch else ("cupy",)
        self._progress = progress
        self._device: int | None = None
        self._workers: list[Worker] = []
        try:
            for _ in range(processes):
                self._workers.append(self._start())
        except BaseException:
            self._stop(0.0)
            raise

    def _start(self) -> Worker:
        return Worker(preload=self._preload, progress=self._progress)

    def check(self, request: CheckRequest) -> list[GpuRun]:
        """Let the first child check cases; see `check_with`."""
        worker = self._worker(0)
        runs = check_with(worker, request)
        if not all(run.ok for run in runs):
            worker.stop()  # CUDA may be dead in it
        return runs

    def _worker(self, process: int) -> Worker:
        """One of the children; one that has ended is started anew."""
        if not self._workers[process].alive:
            self._workers[process] = self._start()
        return self._workers[process]

    def measure(self, process: int, request: TimingRequest) -> TimingAnswer:
        """Let one child measure a group.

        All children of a pool measure on one GPU: the one that the first of them got.

        Raises WorkerDied: the child ended or hung; LabError: it could not use the GPU.
        """
        worker = self._worker(process)
        request = replace(request, process=process, device=self._device)
        answer = worker.call(time_group, request, time_limit_s=ANSWER_LIMIT_S)
        self._device = answer.ordinal
        if answer.fault is not None and answer.fault.fatal:
            worker.stop()  # CUDA is dead in it
        return answer

    def _stop(self, patience_s: float) -> None:
        deadline = time.monotonic() + patience_s
        for worker in self._workers:
            worker.hang_up()
        for worker in self._workers:
            worker.finish(deadline, patience_s)

    def __enter__(self) -> LivePool:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        # After an error a child may sit in a long group: it gets no time to finish it.
        self._stop(5.0 if kind is None else 0.0)
