"""What profilers and sanitizers watch: rungs and baselines, each launched once, in a child.

The parent compiles and works out the launches as for a timed run: what is watched is what is timed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

from labtools.problem import LabError, Problem, operation_of
from labtools.record.fields import ProblemField

from ..channel import Reporter
from ..gpu.check import can_fill, draw_on_device, drawn_on_host, poison_outputs, upload_inputs
from ..gpu.device import BufferSet, LiveDevice, allocate_sets, allocate_workspaces, bind_launches
from ..gpu.faults import cuda_fault
from ..gpu.job import Job, baseline_of
from ..gpu.session import START_LIMIT_S
from ..worker import Finished, run_call

# Under ncu, under compute-sanitizer, or with nsight-python attaching from inside.
Mode = Literal["ncu", "sanitizer", "nsight"]


@dataclass(frozen=True)
class WatchedItem:
    """One candidate on one workload; the number is the parent's."""

    number: int
    job: Job
    workload: ProblemField

    @property
    def label(self) -> str:
        """What it is, in words."""
        return f"{self.job.label} on {self.workload}"


@dataclass(frozen=True)
class WatchRequest:
    """What is to be launched while a tool watches."""

    # in this order; items of one workload stand next to each other and share its buffers
    items: tuple[WatchedItem, ...]
    fill_cubin: str  # the compiled kernel that fills buffers with random numbers
    mode: Mode  # who watches
    step_limit_s: float  # for one item, all passes; past it the child ends, and this item hung
    # a kernel that does nothing, launched first to see what a launch costs; or None
    empty: Job | None = None
    empty_launches: int = 0  # how often
    metrics: tuple[str, ...] = ()  # of nsight-python, by ncu's names
    warm: bool = False  # of nsight-python: leave the caches as they are
    output_prefix: str = ""  # of nsight-python's report


@dataclass(frozen=True)
class WatchedResult:
    """What became of one item, in the order in which the tool saw them."""

    number: int  # of the item
    problem: str = ""  # why it was not launched to its end; empty when it was
    dead: bool = False  # the process can do no more after it


def run_watched(
    request: WatchRequest, *, time_limit_s: float, **options: Any
) -> tuple[Finished[None], list[WatchedResult]]:
    """Launch a request's items in a child of their own; the watching program is its ``prefix``.

    Returns how the child ended, and what came of each item that it got to.
    """
    results: list[WatchedResult] = []
    how: dict[str, Any] = {"on_item": results.append, "tidy": True, **options}
    return run_call(launch_items, request, time_limit_s=time_limit_s, **how), results


def launch_items(report: Reporter[WatchedResult], request: WatchRequest) -> None:
    """Launch everything that the request lists; runs in the child.

    Raises LabError: the GPU could not be used at all.
    """
    if request.mode == "nsight":
        # It must be loaded before CUDA starts.
        import nsight  # noqa: F401
    with_torch = any(item.job.kind == "baseline" for item in request.items)
    try:
        with report.step("starting CUDA", START_LIMIT_S):
            device = LiveDevice(0, with_torch)
            if request.mode == "sanitizer":
                # CuPy's pool takes large pieces and cuts them up, so memcheck would not know where
                # a buffer ends.
                device.cp.cuda.set_allocator(None)
            if request.empty is not None:
                _launch_empty(device, request.empty, request.empty_launches)
    except Exception as error:
        fault = cuda_fault(error)
        if fault is None:
            raise
        raise LabError("The GPU could not be profiled.", fault.message) from error
    for workload, items in groupby(request.items, key=lambda item: item.workload):
        for result in _launch_workload(device, workload, list(items), request, report):
            report.item(result)
            if result.dead:
                return
        device.release()


def _launch_empty(device: LiveDevice, job: Job, times: int) -> None:
    call = bind_launches(device, job.cubin, job.launches, {})
    call()
    device.synchronize()
    with _watched(device):
        for _ in range(times):
            call()


def _launch_workload(
    device: LiveDevice,
    workload: Problem,
    items: Sequence[WatchedItem],
    request: WatchRequest,
    report: Reporter[WatchedResult],
) -> Iterator[WatchedResult]:
    try:
        with report.step(f"making inputs for {workload}", request.step_limit_s):
            buffers = _make_buffers(device, workload, request)
    except Exception as error:
        message, dead = _explain(error)
        yield from (WatchedResult(item.number, message, dead) for item in items)
        return
    for item in items:
        report.progress(f"profiling {item.label}", request.items.index(item), len(request.items))
        result = WatchedResult(item.number)
        try:
            with report.step(item.label, request.step_limit_s, str(item.number)):
                _launch_item(device, item, buffers, request)
        except _WatchedFailure as failure:
            result = WatchedResult(item.number, str(failure), dead=True)
        except Exception as error:
            result = WatchedResult(item.number, *_explain(error))
        yield result


class _WatchedFailure(Exception):
    """A launch failed while the tool watched, and may have left a part of itself in the report."""


def _explain(error: Exception) -> tuple[str, bool]:
    """What an error means in plain words, and whether CUDA is dead after it."""
    if isinstance(error, LabError):
        return " ".join(filter(None, (error.what, error.why))), False
    fault = cuda_fault(error)
    if fault is None:
        return f"{type(error).__name__}: {error}", False
    return fault.message, fault.fatal


def _make_buffers(device: LiveDevice, workload: Problem, request: WatchRequest) -> BufferSet:
    (buffers,) = allocate_sets(device, workload, 1)
    on_host = not can_fill(workload)
    if request.mode == "sanitizer":  # which would watch the kernel that draws as well
        on_host = drawn_on_host(workload)
    if on_host:
        upload_inputs(device, buffers, operation_of(workload).draw(workload))
    else:
        draw_on_device(device, request.fill_cubin, buffers, workload.seed)
    buffers.restore(device)
    poison_outputs(device, buffers)
    device.synchronize()
    return buffers


def prepare_call(
    device: LiveDevice, job: Job, buffers: BufferSet, workload: Problem
) -> Callable[[], None]:
    """Do what stands before all calls; the function makes one call and waits for it."""
    if job.kind == "baseline":
        if device.torch is None:
            why = "torch with CUDA is not installed"
            raise LabError("A baseline cannot run here.", why, "the rungs")
        compute = baseline_of(job).prepare(device.torch_inputs(buffers), workload)
    else:
        named = {**buffers.arrays, **allocate_workspaces(device, job.launches)}
        bind_launches(device, job.cubin, job.preparation, named)()
        device.synchronize()
        compute = bind_launches(device, job.cubin, job.timed, named)

    def call() -> None:
        compute()
        device.synchronize()

    return call


def _launch_item(
    device: LiveDevice, item: WatchedItem, buffers: BufferSet, request: WatchRequest
) -> None:
    """Prepare, warm up, and launch once while the tool watches. A sanitizer watches everything."""
    call = prepare_call(device, item.job, buffers, item.workload)
    call()  # loads the module; on a warm workload it also fills the caches
    if request.mode == "sanitizer":
        return
    if request.mode == "nsight":
        _profile_from_inside(call, request)
        return
    try:
        with _watched(device):
            call()
    except Exception as error:
        raise _WatchedFailure(_explain(error)[0]) from error


@contextmanager
def _watched(device: LiveDevice) -> Iterator[None]:
    profiler = device.cp.cuda.profiler
    profiler.start()
    yield
    device.synchronize()
    profiler.stop()


def _profile_from_inside(call: Callable[[], None], request: WatchRequest) -> None:
    from nsight import analyze, annotate

    def profiled() -> None:
        with annotate("target"):
            call()

    analyze.kernel(
        metrics=list(request.metrics),
        cache_control="none" if request.warm else "all",
        clock_control="none",
        runs=1,
        thermal_mode="off",
        # Several kernels are no error; the report is read launch by launch anyway.
        combine_kernel_metrics=lambda first, second: first + second,
        output_prefix=request.output_prefix,
    )(profiled)()
