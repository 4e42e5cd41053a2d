"""The program that profilers watch: it launches one rung or baseline exactly once, and ends.

``python -m labtools.measure.target REQUEST.json RESULT.json`` runs under ncu or compute-sanitizer.
The parent compiles and works out the launches, as for a timed run, so what is watched is what was
timed, and a rung that exists only in a notebook's cells is as good as a shipped one.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from labtools.problem import (
    Baseline,
    LabError,
    Rung,
    Workload,
    load_baseline,
    make_inputs,
    poisoned,
)
from labtools.problem.rung import load_by_path

from .child import ChildResult, serve_lab
from .gpu_queue import hold_gpu
from .live_faults import explain_cuda_error, looks_like_cuda
from .live_job import (
    Candidate,
    candidate_to_json,
    fill_cubin,
    require_device,
    split_launches,
)

TARGET_MODULE = "labtools.measure.target"

MODES = ("profile", "sanitize", "nsight")
"""Under ncu, under compute-sanitizer, or with nsight-python attaching from inside."""


def target_request(
    target: Rung | Baseline,
    workload: Workload,
    knobs: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """What the child needs, as JSON; the caller adds ``mode``.

    Raises:
        CompileError: the rung does not compile; names the line.
        LabError: there is no GPU, or the target cannot run the workload.
    """
    if reason := target.supports(workload):
        raise LabError(f"{target.id} cannot run {workload}.", reason, "choose another workload")
    device = require_device()
    if isinstance(target, Rung):
        candidate = Candidate(target, "rung", target.resolve_knobs(knobs))
    else:
        candidate = Candidate(target, "baseline")
    job = candidate_to_json(candidate, workload, device.arch)
    return {
        "workload": workload.to_dict(),
        "job": job,
        "fill_cubin": str(fill_cubin(device.arch)),
    }


class _Sharing:
    """Who in this process shares a hold on the GPU."""

    lock = threading.Lock()
    users = 0
    hold: ExitStack | None = None


@contextmanager
def hold_this_gpu(purpose: str, on_wait: Callable[[str], None] | None = None) -> Iterator[None]:
    """Keep every other measurement off the GPU that the child will use, the first visible one.

    The parent holds it, so that waiting does not count against the child's time limit.
    """
    import cupy

    gpu = str(cupy.cuda.runtime.deviceGetPCIBusId(0))
    with hold_gpu([gpu], purpose, on_wait):
        yield


@contextmanager
def share_this_gpu(purpose: str, on_wait: Callable[[str], None] | None = None) -> Iterator[None]:
    """`hold_this_gpu` for what takes no times: threads of this process may do it side by side."""
    with _Sharing.lock:
        if _Sharing.users == 0:
            stack = ExitStack()
            stack.enter_context(hold_this_gpu(purpose, on_wait))
            _Sharing.hold = stack
        _Sharing.users += 1
    try:
        yield
    finally:
        with _Sharing.lock:
            _Sharing.users -= 1
            if _Sharing.users == 0 and _Sharing.hold is not None:
                _Sharing.hold.close()
                _Sharing.hold = None


def describe_child_failure(child: ChildResult, result: Any) -> str:
    """Why a child gave no usable result, in a sentence."""
    if isinstance(result, dict) and (error := result.get("error")):
        return " ".join(filter(None, (error["what"], error["why"])))
    if child.timed_out:
        return f"it {child.ending}; everything it had started was killed"
    lines = [line for line in child.stderr.splitlines() if line.strip()]
    lines = [line for line in lines if not re.match(r"=========|==PROF==", line)]
    last = f"; it said: {lines[-1].strip()[:300]}" if lines else ""
    return f"the process {child.ending}{last}"


def _prepare(request: Mapping[str, Any]) -> Callable[[], None]:
    """Put the buffers on the device and return a function that makes the call once."""
    from .live_check import draw_on_device, drawn_on_host
    from .live_device import LiveDevice, allocate_sets, allocate_workspaces, bind_launches

    job = request["job"]
    workload = Workload.from_dict(request["workload"])
    is_baseline = job["kind"] == "baseline"
    device = LiveDevice(0, with_torch=is_baseline)
    if request["mode"] == "sanitize":
        # CuPy's pool takes large pieces and cuts them up, so memcheck would not know where a
        # buffer ends.
        device.cp.cuda.set_allocator(None)
    if is_baseline and device.torch is None:
        raise LabError(
            "A baseline cannot run here.", "torch with CUDA is not installed", "the rungs"
        )
    (buffers,) = allocate_sets(device, workload, 1)
    if drawn_on_host(workload):
        for name, array in make_inputs(workload).buffers().items():
            device.upload(buffers.named()[name], array)
    else:
        draw_on_device(device, request["fill_cubin"], buffers, workload, workload.seed)
    device.upload(buffers.out, poisoned(buffers.out.shape, workload.dtype))
    if is_baseline:
        baseline = load_by_path(Path(job["path"])).BASELINE if job["path"] else None
        baseline = baseline or load_baseline(job["baseline"])
        compute = baseline.prepare(device.torch_inputs(buffers), workload)
    else:
        spaces = allocate_workspaces(device, job["launches"])
        named = buffers.named() | spaces
        # Outside what a profiler watches, as it is outside what is timed; a sanitizer sees it.
        preparation, timed = split_launches(job["launches"])
        bind_launches(device, job["cubin"], preparation, named)()
        device.synchronize()
        compute = bind_launches(device, job["cubin"], timed, named)

    def call() -> None:
        compute()
        device.synchronize()

    return call


def launch_once(request: Mapping[str, Any]) -> dict[str, Any]:
    """Make the call as the request's mode says.

    Raises:
        LabError: CUDA refused, or the kernel faulted; in plain words.
    """
    if request["mode"] not in MODES:
        raise ValueError(f"no mode {request['mode']!r}")
    if request["mode"] == "nsight":
        # It must be loaded before CUDA starts.
        import nsight  # noqa: F401
    try:
        _launch(request)
    except Exception as error:
        if not looks_like_cuda(error):
            raise
        fault = explain_cuda_error(str(error))
        raise LabError("The kernel did not run to its end.", fault.message, "") from error
    return {"finished": True}


def _launch(request: Mapping[str, Any]) -> None:
    call = _prepare(request)
    if request["mode"] == "sanitize":
        call()
        return
    call()  # loads the module and warms up; the profiler is not watching yet
    if request["mode"] == "nsight":
        _profile_from_inside(call, request)
        return
    import cupy

    cupy.cuda.profiler.start()
    call()
    cupy.cuda.profiler.stop()


def _profile_from_inside(call: Callable[[], None], request: Mapping[str, Any]) -> None:
    from nsight import analyze, annotate

    def profiled() -> None:
        with annotate("target"):
            call()

    analyze.kernel(
        metrics=list(request["metrics"]),
        cache_control="none" if request["warm"] else "all",
        clock_control="none",
        runs=1,
        thermal_mode="off",
        # Several kernels are no error; the report is read launch by launch anyway.
        combine_kernel_metrics=lambda first, second: first + second,
        output_prefix=request["output_prefix"],
    )(profiled)()


if __name__ == "__main__":
    serve_lab(launch_once)
