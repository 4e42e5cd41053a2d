"""The child process that touches the GPU: ``python -m labtools.measure.live_child JOB RESULT``.

Two kinds of job: ``check`` runs a rung on a list of workloads and ends; ``serve`` takes timing
groups from a folder until it is told to stop, so that imports and CUDA start-up are paid once.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from labtools.problem import LabError

from .child import report_progress, serve_lab
from .gpu_queue import hold_gpu
from .live_check import check_case
from .live_clocks import ClockWatch
from .live_device import LiveDevice
from .live_faults import explain_cuda_error, looks_like_cuda
from .live_timing import FatalFault, measure_group
from .live_watch import Watchdog

START_LIMIT_S = 120.0
POLL_S = 0.01


@contextmanager
def _gpu(request: dict[str, Any]) -> Iterator[int]:
    """Hold one of this machine's GPUs, all of the same kind as the first; yields its ordinal."""
    import cupy

    runtime = cupy.cuda.runtime
    names = [runtime.getDeviceProperties(i)["name"] for i in range(runtime.getDeviceCount())]
    wanted = request.get("device")
    ordinals = [i for i, name in enumerate(names) if name == names[0]]
    if wanted is not None:
        ordinals = [int(wanted)]
    gpus = [str(runtime.deviceGetPCIBusId(i)) for i in ordinals]
    with hold_gpu(
        gpus, request["purpose"], on_wait=lambda text: report_progress(wait=text)
    ) as index:
        yield ordinals[index]


def handle(request: dict[str, Any]) -> Any:
    """Do one job."""
    if request.get("with_torch"):
        # torch first: CuPy then finds the CUDA libraries that torch brought along.
        _import_quietly("torch")
    try:
        if request["kind"] == "check":
            return _check(request)
        return _serve(request)
    except Exception as error:
        if not looks_like_cuda(error):
            raise
        fault = explain_cuda_error(str(error))
        raise LabError(
            "The GPU could not be used.",
            fault.message,
            "compiling, forecasts, records and the CPU runner",
        ) from error


def _import_quietly(name: str) -> None:
    with suppress(ImportError):
        __import__(name)


def _check(request: dict[str, Any]) -> dict[str, Any]:
    watchdog = Watchdog(Path(request["stage_path"]))
    results: list[dict[str, Any]] = []
    with _gpu(request) as ordinal:
        with watchdog.step("starting CUDA", START_LIMIT_S):
            device = LiveDevice(ordinal, with_torch=False)
        for index, case in enumerate(request["cases"]):
            report_progress(case=index, total=len(request["cases"]))
            result = check_case(device, case, request["fill_cubin"], watchdog)
            results.append(result)
            # What was found so far survives if a later case hangs.
            Path(request["partial_path"]).write_text(json.dumps(results))
            if result.get("fatal") or (request.get("stop_at_first") and not result["ok"]):
                break
        return {"cases": results, "environment": device.environment()}


def _serve(request: dict[str, Any]) -> dict[str, Any]:
    mailbox = Path(request["mailbox"])
    watchdog = Watchdog(mailbox / "stage.json")
    (mailbox / "pid").write_text(str(os.getpid()))
    _import_quietly("cupy")
    report_progress(ready=True)
    device: LiveDevice | None = None
    clocks: ClockWatch | None = None
    number = 0
    while True:
        job_path = mailbox / f"job-{number}.json"
        while not job_path.exists():
            if (mailbox / "stop").exists():
                return {"served": number}
            time.sleep(POLL_S)
        job = json.loads(job_path.read_text())
        # All processes of one measurement use one GPU: the one that the first of them got.
        chosen = {**request, "device": job["device"] if device is None else device.ordinal}
        with _gpu(chosen) as ordinal:
            report_progress(job=number, started=True)
            if device is None or clocks is None:
                with watchdog.step("starting CUDA", START_LIMIT_S):
                    device = LiveDevice(ordinal, bool(request.get("with_torch")))
                clocks = ClockWatch(device.pci_bus_id)
                clocks.open()
            try:
                answer = measure_group(device, job["group"], job["process"], watchdog, clocks)
            except FatalFault as fault:
                answer = {
                    "fatal": {"label": fault.label, "kind": fault.kind, "message": fault.message}
                }
            except Exception as error:
                if not looks_like_cuda(error):
                    raise
                explained = explain_cuda_error(str(error))
                answer = {
                    "failed": {"kind": explained.kind, "message": explained.message},
                    "dead": explained.fatal,
                }
            answer["environment"] = device.environment()
            answer["ordinal"] = device.ordinal
        partial = mailbox / f"done-{number}.part"
        partial.write_text(json.dumps(answer))
        os.replace(partial, mailbox / f"done-{number}.json")
        number += 1
        if "fatal" in answer or answer.get("dead"):
            return {"served": number}


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
        # A dead CUDA context makes destructors complain or block; there is nothing to tidy up.
        os._exit(status)
