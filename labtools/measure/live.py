"""Running a kernel on the GPU of this machine, in a child process: is it right?

A kernel may fault, hang or kill its process's CUDA context. The child takes that; the notebook
gets a plain message.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from labtools.problem import Comparison, Rung, Workload, element_dtype
from labtools.toolchain import Cubin

from .child import run_python_child
from .gpu_queue import LONGEST_WAIT_S
from .live_check import HOST_ELEMENTS
from .live_faults import ASK_SANITIZER, NOTEBOOK_ALIVE, hang_message
from .live_job import (
    compile_for_live,
    fill_cubin,
    launch_to_json,
    require_device,
    scheme_to_json,
    store_cubin,
)
from .live_pool import CHILD_MODULE, explain_end
from .live_watch import TIMEOUT_MARK, read_stage

TIME_LIMIT_S = 20.0
SECOND_SEED = 7919


@dataclass(frozen=True)
class Fault:
    """One thing that a kernel did wrong.

    Args:
        kind: misaligned, out_of_bounds, hang, out_of_memory, launch, trap, busy, crash or cuda.
        message: in plain words.
        file, line, block, thread: where, as far as known; the GPU itself does not say.
    """

    kind: str
    message: str
    file: str | None = None
    line: int | None = None
    block: tuple[int, int, int] | None = None
    thread: tuple[int, int, int] | None = None

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True)
class GpuRun:
    """What one run on the GPU gave.

    Args:
        out: ``[B, Hq, D]`` in the workload's type, or None when the kernel did not get that far.
        ok: no fault, and right.
        faults: what went wrong besides the numbers.
        comparison: with the oracle; None when there is no output.
        workload: what was computed.
        seconds: in the child, inputs and oracle included.
    """

    out: np.ndarray | None
    ok: bool
    faults: list[Fault]
    comparison: Comparison | None
    workload: Workload
    seconds: float = 0.0
    environment: dict[str, Any] = field(default_factory=dict, compare=False)

    def __str__(self) -> str:
        if self.ok:
            return f"{self.workload}: {self.comparison}"
        parts = [str(fault) for fault in self.faults]
        if self.comparison is not None and not self.comparison.ok:
            parts.append(str(self.comparison))
        return f"{self.workload}: " + "; ".join(parts or ["it was not run"])


def run_on_gpu(
    rung: Rung,
    workload: Workload,
    knobs: Mapping[str, int] | None = None,
    *,
    time_limit_s: float = TIME_LIMIT_S,
    progress: Callable[[str], None] | None = None,
) -> GpuRun:
    """Run a rung once on a workload and once more on other inputs, and compare with the oracle.

    Every buffer lies between zones of NaN, the output is poisoned first, and the inputs must be
    unchanged afterwards. Large workloads are compared in a sample of (sequence, head) pairs.

    Args:
        rung: shipped, edited on a page, or from any folder.
        workload: what to compute.
        knobs: compile-time choices.
        time_limit_s: for the kernel alone; past it the child is killed.
        progress: gets one sentence when the GPU is taken by somebody else.

    Returns:
        The first run that is not right, else the first run. A fault of the kernel is in
        ``faults``, not raised.

    Raises:
        CompileError: it does not compile.
        LabError: nothing can run on a GPU here, or the rung does not support the workload.
    """
    cases = [workload]
    if workload.kv_bytes // workload.element_bytes <= HOST_ELEMENTS:
        cases.append(workload.replace(seed=workload.seed + SECOND_SEED))
    runs = run_cases_on_gpu(
        rung, cases, knobs, time_limit_s=time_limit_s, stop_at_first=True, progress=progress
    )
    return next((run for run in runs if not run.ok), runs[0])


def run_cases_on_gpu(
    rung: Rung,
    workloads: Sequence[Workload],
    knobs: Mapping[str, int] | None = None,
    *,
    time_limit_s: float = TIME_LIMIT_S,
    stop_at_first: bool = False,
    progress: Callable[[str], None] | None = None,
) -> list[GpuRun]:
    """`run_on_gpu` without the second inputs, for many workloads in one child process.

    Returns:
        One GpuRun a workload, in order. After a fault that kills the CUDA context, and after the
        first wrong one with ``stop_at_first``, the rest is not run and left out.
    """
    return run_jobs_on_gpu(
        [(rung, workload, knobs) for workload in workloads],
        time_limit_s=time_limit_s,
        stop_at_first=stop_at_first,
        progress=progress,
    )


def run_jobs_on_gpu(
    jobs: Sequence[tuple[Rung, Workload, Mapping[str, int] | None]],
    *,
    time_limit_s: float = TIME_LIMIT_S,
    stop_at_first: bool = False,
    progress: Callable[[str], None] | None = None,
) -> list[GpuRun]:
    """`run_cases_on_gpu` for different rungs in one child process."""
    if not jobs:
        return []
    device = require_device()
    with tempfile.TemporaryDirectory(prefix="labtools-check-") as name:
        folder = Path(name)
        compiled: dict[tuple[Any, ...], Cubin] = {}
        cases = [
            {
                **_case(rung, workload, knobs, device.arch, compiled),
                "out_path": str(folder / f"out-{index}.npy"),
                "time_limit_s": time_limit_s,
            }
            for index, (rung, workload, knobs) in enumerate(jobs)
        ]
        ids = dict.fromkeys(rung.id for rung, _, _ in jobs)
        request = {
            "kind": "check",
            "purpose": f"checking {', '.join(list(ids)[:3])}",
            "cases": cases,
            "fill_cubin": str(fill_cubin(device.arch)),
            "stop_at_first": stop_at_first,
            "stage_path": str(folder / "stage.json"),
            "partial_path": str(folder / "partial.json"),
        }

        def hear(event: dict[str, Any]) -> None:
            if progress is None:
                return
            if "wait" in event:
                progress(event["wait"])
            elif "case" in event:
                progress(f"case {event['case'] + 1} of {event['total']}")

        # The child's own watchdog ends a kernel that hangs. This limit is for everything else.
        limit_s = LONGEST_WAIT_S + 300.0 + sum(60.0 + time_limit_s for _ in cases)
        child, result = run_python_child(
            CHILD_MODULE, request, time_limit_s=limit_s, on_progress=hear
        )
        environment: dict[str, Any] = {}
        if isinstance(result, dict) and "cases" in result:
            answers, environment = result["cases"], result["environment"]
        else:
            try:
                answers = json.loads((folder / "partial.json").read_text())
            except (OSError, ValueError):
                answers = []
        runs = [
            _read_run(answer, Path(case["out_path"]), environment)
            for answer, case in zip(answers, cases, strict=False)
        ]
        if not environment:
            stage = read_stage(folder / "stage.json")
            error = explain_end(child, result, stage)
            if not stage.get("step", "").startswith("running"):
                raise error  # it is not about a kernel: CUDA did not start, a lock was not given
            hung = TIMEOUT_MARK in child.stderr
            fault = Fault(
                "hang" if hung else "crash",
                f"{hang_message(stage['limit_s']) if hung else error}; {NOTEBOOK_ALIVE}",
            )
            workload = jobs[min(len(runs), len(jobs) - 1)][1]
            runs.append(GpuRun(None, False, [fault], None, workload))
    return runs


def _case(
    rung: Rung,
    workload: Workload,
    knobs: Mapping[str, int] | None,
    arch: str,
    compiled: dict[tuple[Any, ...], Cubin],
) -> dict[str, Any]:
    """One case as JSON; ``compiled`` keeps what is the same for many workloads."""
    launches = rung.launches(workload, knobs)
    defines = rung.defines(workload, knobs)
    key = (rung.source_text, rung.include_dirs, tuple(sorted(defines.items())))
    if key not in compiled:
        compiled[key] = compile_for_live(rung, workload, knobs, arch)
    cubin = compiled[key]
    for launch in launches:
        cubin.resources_of(launch.entry)
    return {
        "workload": workload.to_dict(),
        "cubin": str(store_cubin(cubin)),
        "launches": [launch_to_json(launch) for launch in launches],
        "tolerance": rung.tolerance,
        "scheme": scheme_to_json(rung.scheme(workload, knobs)),
    }


def _read_run(answer: Mapping[str, Any], out_path: Path, environment: dict[str, Any]) -> GpuRun:
    faults = []
    for one in answer["faults"]:
        message = one["message"]
        if one["kind"] in ("misaligned", "out_of_bounds", "trap", "cuda"):
            message = f"{message}; {NOTEBOOK_ALIVE}; {ASK_SANITIZER}"
        faults.append(Fault(one["kind"], message))
    comparison = None
    if "comparison" in answer:
        data = dict(answer["comparison"])
        data["worst_index"] = tuple(data["worst_index"])
        comparison = Comparison(**data)
    workload = Workload.from_dict(answer["workload"])
    out = np.load(out_path).view(element_dtype(workload.dtype)) if out_path.exists() else None
    return GpuRun(
        out=out,
        ok=bool(answer["ok"]),
        faults=faults,
        comparison=comparison,
        workload=workload,
        seconds=float(answer["seconds"]),
        environment=environment,
    )
