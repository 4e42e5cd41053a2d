"""The child that runs microbenchmarks: ``python -m labtools.measure.microbench_child JOB RESULT``.

What is measured goes into a file at once, so that a benchmark that kills the GPU's context, or
never ends, loses nothing but itself.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from labtools.problem import LabError

from . import microbench_cycles as cycles
from . import microbench_rates as rates
from .child import report_progress, serve_lab
from .gpu_queue import hold_gpu
from .live_clocks import ClockWatch
from .live_device import LiveDevice
from .live_faults import explain_cuda_error, looks_like_cuda
from .live_watch import Watchdog
from .microbench_bench import Bench, Sample

START_LIMIT_S = 120.0
BENCHMARK_LIMIT_S = 60.0

RUNS: dict[str, Callable[[Bench], list[Sample]]] = {
    "clock": cycles.run_clock,
    "pipe.s2r": cycles.run_special,
    "pipe": cycles.run_pipe,
    "chase.l1": cycles.run_chase_l1,
    "chase.slices": cycles.run_chase_slices,
    "chase.l2": cycles.run_chase_l2,
    "chase.hbm": cycles.run_chase_hbm,
    "rows": cycles.run_rows,
    "async.copy": cycles.run_copy,
    "async.bulk": cycles.run_bulk,
    "barrier.meet": cycles.run_meet,
    "barrier.skew": cycles.run_skew,
    "branch.loop": cycles.run_turns,
    "branch.skip": cycles.run_skip,
    "code.size": cycles.run_code_size,
    "bandwidth.footprint": rates.run_footprint,
    "bandwidth.one_sm": rates.run_one_sm,
    "bandwidth": rates.run_bandwidth,
    "launch.shape": rates.run_launch_shape,
    "launch.kinds": rates.run_launch_kinds,
}


def find_run(name: str) -> Callable[[Bench], list[Sample]]:
    """The function that measures a benchmark: by its name, else by its group."""
    return RUNS.get(name) or RUNS[name.split(".")[0]]


def handle(request: dict[str, Any]) -> dict[str, Any]:
    """Run the jobs of a request, one after the other."""
    import cupy

    gpu = str(cupy.cuda.runtime.deviceGetPCIBusId(0))
    with hold_gpu([gpu], "labtools microbench", on_wait=lambda text: report_progress(wait=text)):
        watchdog = Watchdog(Path(request["stage_path"]))
        with watchdog.step("starting CUDA", START_LIMIT_S):
            device = LiveDevice(0, with_torch=False)
        clocks = ClockWatch(device.pci_bus_id)
        clocks.open()
        bench = Bench(device)
        done = []
        for job in request["jobs"]:
            report_progress(benchmark=job["name"])
            answer = _measure(bench, job, request["touch"], watchdog, clocks)
            _append(Path(request["partial_path"]), answer)
            done.append(job["name"])
            if answer.get("dead"):
                break
        return {"done": done, "environment": device.environment(), "device": _facts(bench)}


def _facts(bench: Bench) -> dict[str, Any]:
    return {"num_sms": bench.num_sms, "threads_per_sm": bench.threads_per_sm}


def _measure(
    bench: Bench, job: dict[str, Any], touch: str, watchdog: Watchdog, clocks: ClockWatch
) -> dict[str, Any]:
    """One benchmark: its samples, or why there are none."""
    bench.cubins = {**job["cubins"], "touch": touch}
    bench.registers, bench.settings = job["registers"], job["settings"]
    started = time.monotonic()
    answer: dict[str, Any] = {"name": job["name"]}
    clocks.start()
    try:
        with watchdog.step(job["name"], BENCHMARK_LIMIT_S, label=job["name"]):
            answer["samples"] = find_run(job["name"])(bench)
            bench.device.synchronize()
    except LabError as error:
        answer["problem"] = str(error)
    except Exception as error:  # one benchmark that fails is reported, the rest goes on
        answer["problem"] = f"{type(error).__name__}: {error}"
        if looks_like_cuda(error):
            fault = explain_cuda_error(str(error))
            answer["problem"] = f"{fault.message} ({error})"
            answer["dead"] = fault.fatal
    answer["clocks"] = clocks.stop()
    answer["seconds"] = round(time.monotonic() - started, 3)
    return answer


def _append(path: Path, answer: dict[str, Any]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    status = 1
    try:
        serve_lab(handle)
        status = 0
    except SystemExit as leaving:
        status = leaving.code if isinstance(leaving.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)  # a dead CUDA context makes destructors complain or block
