"""Nsight Compute as a tool: where it is, how it is asked, and how its report is read."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from labtools.problem import LabError
from labtools.record import Counters
from labtools.toolchain import find_tool, tool_version
from labtools.toolchain.progress import Progress, silent
from labtools.toolchain.tools import NSIGHT_PYTHON_NEEDS_NCU

from ..worker import Finished, run_child
from .counters import COUNTERS, Counter, KernelCounters, metrics_to_request, parse_ncu_csv
from .watched import WatchedResult, WatchRequest, run_watched

CounterSet = Literal["chosen", "full"]  # the chosen counters, or everything that ncu knows

WITHOUT_COUNTERS = (
    "timing, and the counters that were recorded on an NVIDIA H200: "
    "labtools records --rung ID --json"
)


class ProfilerUnavailable(LabError):
    """Nsight Compute is missing, or may not read the counters of this GPU."""


class ProfileFailed(LabError):
    """Nsight Compute ran and gave no counters."""


@dataclass(frozen=True)
class NcuTool:
    """The installed command-line profiler."""

    path: str
    version: tuple[int, ...]

    @property
    def version_text(self) -> str:
        """For example ``2025.3.1``; ``unknown`` when ncu did not say."""
        return ".".join(map(str, self.version[:3])) or "unknown"


@dataclass(frozen=True)
class ProfileReport:
    """Counters of one call, live from this machine's GPU.

    A call may launch several kernels (a baseline that copies first, a split kernel): ``kernels``
    has them in launch order, and ``totals`` sums what can be summed.
    """

    target: str
    workload: dict[str, Any]
    knobs: dict[str, int]
    tool: str
    kernels: tuple[KernelCounters, ...]
    totals: dict[str, float | None]
    notes: tuple[str, ...] = ()
    origin: str = "live"
    report_path: str | None = None
    seconds: float = field(default=0.0, compare=False)
    # what a kernel that does nothing takes under the same profiler; None where not measured
    empty_launch_us: float | None = None

    @property
    def main_kernel(self) -> KernelCounters:
        """The kernel that took longest."""
        return max(self.kernels, key=lambda kernel: kernel.values["duration_us"] or 0.0)

    def record_counters(self) -> Counters:
        """The form that a record keeps: one set of values for the whole call.

        They are those of the kernel that took longest; time, traffic and instructions are sums.
        """
        values = {**self.main_kernel.values, **self.totals}
        values["kernels_per_call"] = float(len(self.kernels))
        values["main_kernel_us"] = self.main_kernel.values["duration_us"]
        if self.empty_launch_us is not None:
            values["empty_launch_us"] = self.empty_launch_us
        return Counters(tool=self.tool, values=values)


def find_ncu() -> NcuTool:
    """The ncu to use: ``LABTOOLS_NCU``, the PATH, the CUDA toolkit, then /opt/nvidia.

    Raises ProfilerUnavailable: there is none.
    """
    path = os.environ.get("LABTOOLS_NCU") or shutil.which("ncu") or find_tool("ncu")
    if path is None or not os.access(path, os.X_OK):
        raise ProfilerUnavailable(
            "Nsight Compute (ncu) was not found.",
            "it is not on the PATH, not in the CUDA toolkit and not in /opt/nvidia/nsight-compute; "
            "set LABTOOLS_NCU to its path if it is elsewhere",
            WITHOUT_COUNTERS,
        )
    return NcuTool(str(path), tool_version(Path(path)) or ())


def nsight_python_usable(ncu: NcuTool) -> bool:
    """Whether nsight-python >= 1.0 is installed and this ncu is new enough for it."""
    try:
        installed = importlib.metadata.version("nsight-python")
    except importlib.metadata.PackageNotFoundError:
        return False
    return int(installed.split(".")[0]) >= 1 and ncu.version[:3] >= NSIGHT_PYTHON_NEEDS_NCU


def ncu_command(
    ncu: NcuTool,
    report: Path,
    *,
    counters: CounterSet,
    warm: bool,
    without: Sequence[str] = (),
    wanted: Sequence[Counter] = COUNTERS,
) -> list[str]:
    """The ncu command line up to the program that it runs; ``chosen`` asks for ``wanted``."""
    command = [ncu.path, "--target-processes", "all", "--profile-from-start", "off"]
    # Locking clocks needs rights and would measure another machine than the timing did.
    command += ["--clock-control", "none", "--cache-control", "none" if warm else "all"]
    if counters == "full":
        command += ["--set", "full"]
    else:
        metrics = (metric for metric in metrics_to_request(wanted) if metric not in without)
        command += ["--metrics", ",".join(metrics)]
    return [*command, "--force-overwrite", "--export", str(report)]


@dataclass(frozen=True)
class NcuRun:
    """What one run of the profiler gave."""

    finished: Finished[None]  # how it and the child ended
    results: list[WatchedResult]  # of each item, in the order in which the profiler saw them
    report: Path  # where its report is, if it left one
    dropped: tuple[str, ...] = ()  # metrics that it does not know and was not asked for

    @property
    def text(self) -> str:
        """Everything that was printed."""
        return self.finished.child.stdout + "\n" + self.finished.child.stderr

    def check_permission(self) -> None:
        """Raises ProfilerUnavailable when this user may not read the counters."""
        if "ERR_NVGPUCTRPERM" in self.text:
            raise ProfilerUnavailable(
                "The GPU's performance counters may not be read by this user.",
                "the driver reserves them for administrators (ERR_NVGPUCTRPERM). An administrator "
                "can allow everybody with the kernel module option "
                "NVreg_RestrictProfilingToAdminUsers=0 (a file in /etc/modprobe.d, then a reboot), "
                "or run this command as root; a container needs --cap-add=SYS_ADMIN; many rented "
                "machines do not allow it at all",
                WITHOUT_COUNTERS,
            )

    def check(self) -> None:
        """Raise the right LabError unless the run ended well and left a report."""
        self.check_permission()
        child = self.finished.child
        if self.finished.refused is not None:
            raise self.finished.refused
        if child.timed_out:
            why = f"it {child.ending}; it and everything it had started were killed"
            still = WITHOUT_COUNTERS + "; a smaller workload takes less time a pass"
            raise ProfileFailed("The profiler did not finish.", why, still)
        if "No kernels were profiled" in self.text or (child.ok and not self.report.exists()):
            why = "nothing was launched between its start and its stop, or another tool holds the "
            why += "GPU's counters"
            raise ProfileFailed("The profiler saw no kernel.", why, WITHOUT_COUNTERS)
        if not child.ok or not self.report.exists():
            said = re.findall(r"==ERROR== *(.+)", self.text)
            why = " ".join(dict.fromkeys(line.strip() for line in said))[:500]
            raise ProfileFailed(
                "The profiler failed.", why or self.finished.failure, WITHOUT_COUNTERS
            )


def run_under_ncu(
    ncu: NcuTool,
    request: WatchRequest,
    report: Path,
    counters: CounterSet = "chosen",
    *,
    warm: bool,
    time_limit_s: float,
    wanted: Sequence[Counter] = COUNTERS,
    without: Sequence[str] = (),
    progress: Progress = silent,
) -> NcuRun:
    """Launch a request's items under ncu, again without the metrics that this ncu refuses.

    ``without`` are metrics known to be refused. Judges nothing but that.
    """
    dropped = tuple(without)
    while True:
        prefix = ncu_command(
            ncu, report, counters=counters, warm=warm, without=dropped, wanted=wanted
        )
        how: dict[str, Any] = {"prefix": prefix, "progress": progress}
        done = run_watched(request, time_limit_s=time_limit_s, **how)
        run = NcuRun(*done, report, dropped)
        if counters == "full" or report.exists():
            return run
        if refused := set(unknown_metrics(run.text)) - set(dropped):
            dropped += tuple(sorted(refused))  # grows at every turn, so this ends
        elif re.search(r"==ERROR==.*\bmetrics?\b", run.text, re.IGNORECASE):
            # It complains of a metric in words not known here. Its own sets hold none it lacks.
            counters = "full"
        else:
            return run


def run_with_nsight(
    ncu: NcuTool, request: WatchRequest, folder: Path, *, warm: bool, time_limit_s: float
) -> NcuRun:
    """Launch a request's items in a child that attaches the profiler to itself."""
    path = os.pathsep.join([str(Path(ncu.path).parent), os.environ.get("PATH", "")])
    prefix, metrics = f"{folder}{os.sep}nsight-", metrics_to_request()
    asked = replace(request, mode="nsight", metrics=metrics, warm=warm, output_prefix=prefix)
    env = {"PATH": path}
    finished, results = run_watched(asked, time_limit_s=time_limit_s, extra_env=env)
    reports = sorted(folder.glob("nsight-*.ncu-rep"))
    return NcuRun(finished, results, reports[0] if reports else folder / "none")


def unknown_metrics(text: str) -> list[str]:
    """Metric names that ncu says it does not know."""
    return re.findall(r"Failed to find metric\s+(?:regex:\^?)?([\w.]+)", text)


def read_report(ncu: NcuTool, report: Path) -> list[KernelCounters]:
    """The counters in a report file, by ``ncu --import``.

    Raises ProfileFailed: ncu cannot read it.
    """
    command = [ncu.path, "--import", str(report), "--page", "raw", "--csv"]
    answer = run_child([*command, "--print-units", "base"], time_limit_s=120)
    if not answer.ok:
        said = (answer.stderr or answer.stdout).strip()[-300:]
        why = f"ncu --import {answer.ending}: {said}"
        raise ProfileFailed("The profiler's report could not be read.", why, WITHOUT_COUNTERS)
    return parse_ncu_csv(answer.stdout)
