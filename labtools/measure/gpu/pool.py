"""Several measuring children, kept alive for a whole campaign, measuring one at a time."""

from __future__ import annotations

import time
from dataclasses import replace

from labtools.toolchain.progress import Progress, silent

from ..case import Fault
from ..worker import NOTEBOOK_ALIVE, Worker, WorkerDied, hang_message
from .check import CheckRequest, GpuRun, check_cases
from .queue import LONGEST_WAIT_S
from .timing import TimingAnswer, TimingRequest, time_group

ANSWER_LIMIT_S = 2 * 3600.0  # waiting for the GPU included; the child's own watchdog is faster


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
    """Children that measure groups, one child at a time."""

    def __init__(
        self, processes: int, with_torch: bool = False, progress: Progress = silent
    ) -> None:
        # torch first: CuPy then finds the CUDA libraries that torch brought along. All children
        # load them at once, while nothing is measured yet.
        self._preload = ("torch", "cupy") if with_torch else ("cupy",)
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
