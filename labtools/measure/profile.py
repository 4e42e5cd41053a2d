"""Nsight Compute over one rung or baseline: why it takes as long as it does.

The kernel runs in a child process. With Nsight Compute 2026.2.1 or newer and nsight-python 1.0 or
newer, the child attaches the profiler to itself; otherwise it runs under ``ncu``. Both write a
report file, and one reader turns it into the chosen counters.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from labtools.problem import Baseline, LabError, Rung, Workload
from labtools.record import Counters
from labtools.toolchain import find_tool, tool_version
from labtools.toolchain.tools import NSIGHT_PYTHON_NEEDS_NCU

from .child import ChildResult, child_lab_error, run_child, run_python_child
from .profile_counters import (
    COUNTERS,
    Counter,
    KernelCounters,
    metrics_to_request,
    parse_ncu_csv,
    sum_launches,
)
from .target import TARGET_MODULE, describe_child_failure, hold_this_gpu, target_request

STILL_WORKS = (
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
    empty_launch_us: float | None = None
    """What a kernel that does nothing takes under the same profiler; None where not measured."""

    @property
    def main_kernel(self) -> KernelCounters:
        """The kernel that took longest."""
        return max(self.kernels, key=lambda kernel: kernel.values["duration_us"] or 0.0)

    def record_counters(self) -> Counters:
        """The form that a record keeps: one set of values for the whole call.

        They are those of the kernel that took longest; time, traffic and instructions are sums
        over all kernels of the call. ``kernels_per_call`` says how many there were,
        ``main_kernel_us`` what the longest took, and ``empty_launch_us`` what an empty one takes,
        where that was measured.
        """
        values = {**self.main_kernel.values, **self.totals}
        values["kernels_per_call"] = float(len(self.kernels))
        values["main_kernel_us"] = self.main_kernel.values["duration_us"]
        if self.empty_launch_us is not None:
            values["empty_launch_us"] = self.empty_launch_us
        return Counters(tool=self.tool, values=values)

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it: the chosen counters, not the whole report."""
        data = asdict(self)
        for kernel, counters in zip(data["kernels"], self.kernels, strict=True):
            del kernel["metrics"]
            kernel["stall_shares"] = counters.stall_shares
            kernel["missing"] = list(counters.missing)
        return data


def find_ncu() -> NcuTool:
    """The ncu to use: ``LABTOOLS_NCU``, the PATH, the CUDA toolkit, then /opt/nvidia.

    Raises:
        ProfilerUnavailable: there is none.
    """
    path = os.environ.get("LABTOOLS_NCU") or shutil.which("ncu") or find_tool("ncu")
    if path is None or not os.access(path, os.X_OK):
        raise ProfilerUnavailable(
            "Nsight Compute (ncu) was not found.",
            "it is not on the PATH, not in the CUDA toolkit and not in /opt/nvidia/nsight-compute; "
            "set LABTOOLS_NCU to its path if it is elsewhere",
            STILL_WORKS,
        )
    return NcuTool(str(path), tool_version(Path(path)) or ())


def nsight_python_usable(ncu: NcuTool) -> bool:
    """Whether nsight-python >= 1.0 is installed and this ncu is new enough for it."""
    try:
        installed = importlib.metadata.version("nsight-python")
    except importlib.metadata.PackageNotFoundError:
        return False
    return int(installed.split(".")[0]) >= 1 and ncu.version[:3] >= NSIGHT_PYTHON_NEEDS_NCU


def profile_rung(
    target: Rung | Baseline,
    workload: Workload,
    knobs: Mapping[str, int] | None = None,
    counters: Literal["chosen", "full"] = "chosen",
    *,
    time_limit_s: float = 300.0,
    report_path: str | Path | None = None,
    progress: Callable[[str], None] | None = None,
) -> ProfileReport:
    """Profile one call of ``target`` on this machine's GPU.

    ``chosen`` asks for the chosen counters alone; ``full`` for everything ncu knows (about forty
    passes). The kernel runs once to load, then once per pass under the profiler, with the caches
    flushed before each pass unless the workload says ``warm``. Clocks are left alone.
    ``report_path`` keeps the report for Nsight Compute's own viewer.

    Raises:
        ProfilerUnavailable: no ncu, or the counters are not permitted.
        ProfileFailed: it ran and measured nothing.
        LabError: the target cannot run the workload, or does not compile.
    """
    request = target_request(target, workload, knobs)
    ncu = find_ncu()
    warm = workload.cache_state == "warm"
    notes: list[str] = []
    with (
        tempfile.TemporaryDirectory(prefix="labtools-profile-") as folder,
        hold_this_gpu(f"profiling {target.id}", progress),
    ):
        report = None
        seconds = 0.0
        tool = f"ncu {ncu.version_text}"
        if counters == "chosen" and nsight_python_usable(ncu):
            if progress is not None:
                progress("nsight-python")
            try:
                report, seconds = _profile_in_process(
                    ncu, request, warm, Path(folder), time_limit_s
                )
                version = importlib.metadata.version("nsight-python")
                tool = f"nsight-python {version}, {tool}"
            except ProfileFailed as error:
                notes.append(f"nsight-python did not work, so ncu was used: {error.why}")
        if report is None:
            if progress is not None:
                progress("ncu")
            report, seconds, dropped = _profile_under_ncu(
                ncu, request, warm, counters, Path(folder), time_limit_s
            )
            if dropped:
                notes.append(f"ncu does not know these metrics here: {', '.join(dropped)}")
        kernels = tuple(read_report(ncu, report))
        kept = None
        if report_path is not None:
            kept = str(Path(report_path).with_suffix(".ncu-rep"))
            shutil.copyfile(report, kept)
    return ProfileReport(
        target=target.id,
        workload=workload.to_dict(),
        knobs=target.resolve_knobs(knobs) if isinstance(target, Rung) else {},
        tool=tool,
        kernels=kernels,
        totals=sum_launches(kernels),
        notes=tuple(notes),
        report_path=kept,
        seconds=seconds,
    )


def ncu_command(
    ncu: NcuTool,
    report: Path,
    *,
    counters: Literal["chosen", "full"],
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


def _profile_under_ncu(
    ncu: NcuTool,
    request: Mapping[str, Any],
    warm: bool,
    counters: Literal["chosen", "full"],
    folder: Path,
    time_limit_s: float,
) -> tuple[Path, float, tuple[str, ...]]:
    """Returns the report, the seconds, and the metrics that this ncu refused."""
    report = folder / "report.ncu-rep"
    child, result, dropped = run_under_ncu(
        ncu,
        TARGET_MODULE,
        {**request, "mode": "profile"},
        report,
        counters=counters,
        warm=warm,
        time_limit_s=time_limit_s,
    )
    check_ncu_run(child, result, report)
    return report, child.seconds, dropped


def run_under_ncu(
    ncu: NcuTool,
    module: str,
    request: Mapping[str, Any],
    report: Path,
    *,
    counters: Literal["chosen", "full"],
    warm: bool,
    time_limit_s: float,
    wanted: Sequence[Counter] = COUNTERS,
    without: Sequence[str] = (),
    on_progress: Callable[[dict[str, Any]], None] | None = None,
) -> tuple[ChildResult, Any, tuple[str, ...]]:
    """Run a module of ours under ncu, again without the metrics that this ncu refuses.

    ``without`` are metrics known to be refused. Judges nothing but that: the caller looks at the
    child and the report.

    Returns:
        The child, its result, and every metric left out.
    """
    dropped = tuple(without)
    while True:
        prefix = ncu_command(
            ncu, report, counters=counters, warm=warm, without=dropped, wanted=wanted
        )
        child, result = run_python_child(
            module, request, time_limit_s=time_limit_s, prefix=prefix, on_progress=on_progress
        )
        text = child.stdout + child.stderr
        if counters == "full" or report.exists():
            break
        if refused := set(unknown_metrics(text)) - set(dropped):
            dropped += tuple(sorted(refused))  # grows at every turn, so this ends
        elif re.search(r"==ERROR==.*\bmetrics?\b", text, re.IGNORECASE):
            # It complains of a metric in words not known here. Its own sets hold none it lacks.
            counters = "full"
        else:
            break
    return child, result, dropped


def _profile_in_process(
    ncu: NcuTool,
    request: Mapping[str, Any],
    warm: bool,
    folder: Path,
    time_limit_s: float,
) -> tuple[Path, float]:
    request = {
        **request,
        "mode": "nsight",
        "metrics": metrics_to_request(),
        "warm": warm,
        "output_prefix": f"{folder}{os.sep}nsight-",
    }
    environment_path = os.pathsep.join([str(Path(ncu.path).parent), os.environ.get("PATH", "")])
    child, result = run_python_child(
        TARGET_MODULE, request, time_limit_s=time_limit_s, extra_env={"PATH": environment_path}
    )
    reports = sorted(folder.glob("nsight-*.ncu-rep"))
    check_ncu_run(child, result, reports[0] if reports else folder / "none")
    return reports[0], child.seconds


def unknown_metrics(text: str) -> list[str]:
    """Metric names that ncu says it does not know."""
    return re.findall(r"Failed to find metric\s+(?:regex:\^?)?([\w.]+)", text)


def check_ncu_run(child: ChildResult, result: Any, report: Path) -> None:
    """Raise the right LabError unless the run ended well and left a report."""
    text = child.stdout + "\n" + child.stderr
    if "ERR_NVGPUCTRPERM" in text:
        raise ProfilerUnavailable(
            "The GPU's performance counters may not be read by this user.",
            "the driver reserves them for administrators (ERR_NVGPUCTRPERM). An administrator can "
            "allow everybody with the kernel module option NVreg_RestrictProfilingToAdminUsers=0 "
            "(a file in /etc/modprobe.d, then a reboot), or run this command as root; a "
            "container needs --cap-add=SYS_ADMIN; many rented machines do not allow it at all",
            STILL_WORKS,
        )
    if error := child_lab_error(result):
        raise error
    if child.timed_out:
        raise ProfileFailed(
            "The profiler did not finish.",
            f"it {child.ending}; it and everything it had started were killed",
            STILL_WORKS + "; a smaller workload takes less time a pass",
        )
    if "No kernels were profiled" in text or (child.ok and not report.exists()):
        raise ProfileFailed(
            "The profiler saw no kernel.",
            "nothing was launched between its start and its stop, or another tool holds the GPU's "
            "counters",
            STILL_WORKS,
        )
    if not child.ok or not report.exists():
        said = re.findall(r"==ERROR== *(.+)", text)
        why = " ".join(dict.fromkeys(line.strip() for line in said))[:500]
        raise ProfileFailed(
            "The profiler failed.",
            why or describe_child_failure(child, result),
            STILL_WORKS,
        )


def read_report(ncu: NcuTool, report: Path) -> list[KernelCounters]:
    """The counters in a report file, by ``ncu --import``.

    Raises:
        ProfileFailed: ncu cannot read it.
    """
    command = [ncu.path, "--import", str(report), "--page", "raw", "--csv"]
    answer = run_child([*command, "--print-units", "base"], time_limit_s=120)
    if not answer.ok:
        raise ProfileFailed(
            "The profiler's report could not be read.",
            f"ncu --import {answer.ending}: {(answer.stderr or answer.stdout).strip()[-300:]}",
            STILL_WORKS,
        )
    return parse_ncu_csv(answer.stdout)
