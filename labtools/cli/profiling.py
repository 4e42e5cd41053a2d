"""``labtools profile`` and ``labtools sanitize``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from labtools.measure.profiler.counters import CHOSEN_COUNTERS
from labtools.measure.profiler.ncu import ProfileReport
from labtools.measure.profiler.profile import profile_rung
from labtools.measure.profiler.sanitize import TOOLS, SanitizerReport, sanitize_rung
from labtools.problem import LabError, Problem, Rung

from .given import RungAsked, check_supported, choose_workload, read_knobs, read_target
from .outcome import Answer, Status, print_table, typed

if TYPE_CHECKING:
    from rich.console import Console

    from labtools.toolchain.progress import Progress


@dataclass(frozen=True)
class Profiled(Answer, ProfileReport):
    """Counters of one call, by kernel."""

    @property
    def asides(self) -> tuple[str, ...]:
        """What to know about the run."""
        return self.notes

    def show(self, console: Console) -> None:
        """A table a kernel."""
        console.print(f"{self.target}  live, {self.tool}")
        for kernel in self.kernels:
            console.print(f"\n{kernel.kernel}  grid {kernel.grid} block {kernel.block}")
            rows = []
            for counter in CHOSEN_COUNTERS:
                value = kernel.values[counter.name]
                shown = "missing" if value is None else f"{value:,.10g}"
                rows.append((counter.name, shown, counter.doc))
            for reason, share in kernel.stall_shares.items():
                rows.append((f"stall {reason}", f"{share:.1%}", "of a warp's time"))
            columns = ("counter", "value", "what it is")
            print_table(console, columns, rows, right=("value",), headed=False)
        if self.report_path:
            console.print(f"report: {self.report_path}")


def profile_target(
    asked: RungAsked, full: bool, out: Path | None, time_limit_s: float, progress: Progress
) -> Profiled:
    """Counters of one call, by kernel."""
    target = read_target(asked.name)
    workload = choose_workload(asked.workload, target)
    knobs = None
    if isinstance(target, Rung):
        knobs = read_knobs(target, asked.knobs, workload)
    elif asked.knobs:
        with typed():
            raise LabError(f"{target.id} has no knobs.", "it is a baseline", "leave --knob out")
    check_supported(target, workload, knobs)
    report = profile_rung(
        target,
        workload,
        knobs,
        "full" if full else "chosen",
        time_limit_s=time_limit_s,
        report_path=out,
        progress=progress,
    )
    return Profiled(**vars(report))


@dataclass(frozen=True)
class Sanitized(Answer):
    """One verdict a tool."""

    rung: str
    workload: Problem
    knobs: Mapping[str, int]
    origin: str
    reports: tuple[SanitizerReport, ...]

    @property
    def status(self) -> Status:
        """Errors end with status 1, a tool that did not run with 3."""
        verdicts = {report.verdict for report in self.reports}
        if "errors" in verdicts:
            return Status.WRONG
        return Status.MISSING if "not run" in verdicts else Status.RIGHT

    def show(self, console: Console) -> None:
        """A line a tool, with the first of its errors below."""
        for report in self.reports:
            count = f" ({report.error_count})" if report.error_count else ""
            line = f"{report.tool}: {report.verdict}{count}"
            console.print(f"{line}: {report.reason}" if report.reason else line)
            for error in report.errors[:10]:
                console.print(f"  {error}")
            if len(report.errors) > 10:
                console.print(f"  and {len(report.errors) - 10} more, see --json")


def sanitize_target(
    asked: RungAsked, tools: Sequence[str] | None, time_limit_s: float, progress: Progress
) -> Sanitized:
    """One verdict a tool."""
    rung, workload, knobs = asked.read(small=True)
    wanted = tuple(tools or TOOLS)
    with typed():
        if unknown := sorted(set(wanted) - set(TOOLS)):
            raise LabError(
                f"There is no sanitizer tool {', '.join(unknown)}.",
                f"the tools are {', '.join(TOOLS)}",
                "name one or more of these",
            )
    reports = sanitize_rung(
        rung, workload, knobs, wanted, time_limit_s=time_limit_s, progress=progress
    )
    return Sanitized(rung.id, workload, knobs, "live", tuple(reports))
