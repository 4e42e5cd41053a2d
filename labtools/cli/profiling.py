"""``labtools profile`` and ``labtools sanitize``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .given import check_supported, read_knobs, read_rung, read_target, read_workload
from .outcome import Outcome, Progress, Status, typed

if TYPE_CHECKING:
    from rich.console import Console


def profile_target(
    name: str,
    workload_text: str,
    chosen: Sequence[str] | None,
    full: bool,
    out: Path | None,
    time_limit_s: float,
    progress: Progress,
) -> Outcome:
    """Counters of one call, by kernel."""
    from labtools.measure.profile import profile_rung
    from labtools.problem import LabError, Rung

    target = read_target(name)
    workload = read_workload(workload_text)
    knobs = None
    if isinstance(target, Rung):
        knobs = read_knobs(target, chosen)
    elif chosen:
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
        progress=lambda step: progress(f"profiling {target.id} with {step}"),
    )
    data = report.to_dict()
    return Outcome(data, lambda console: _show_profile(console, data), notes=report.notes)


def _show_profile(console: Console, data: dict[str, Any]) -> None:
    from rich.table import Table

    from labtools.measure.profile_counters import CHOSEN_COUNTERS

    console.print(f"{data['target']}  live, {data['tool']}", markup=False)
    for kernel in data["kernels"]:
        console.print(
            f"\n{kernel['kernel']}  grid {kernel['grid']} block {kernel['block']}", markup=False
        )
        table = Table(box=None, pad_edge=False, show_header=False)
        table.add_column()
        table.add_column(justify="right")
        table.add_column()
        for counter in CHOSEN_COUNTERS:
            value = kernel["values"][counter.name]
            shown = "missing" if value is None else f"{value:,.10g}"
            table.add_row(counter.name, shown, counter.doc)
        for reason, share in kernel["stall_shares"].items():
            table.add_row(f"stall {reason}", f"{share:.1%}", "of a warp's time")
        console.print(table, soft_wrap=False)
    if data["report_path"]:
        console.print(f"report: {data['report_path']}", markup=False)


def sanitize_target(
    name: str,
    workload_text: str,
    chosen: Sequence[str] | None,
    tools: Sequence[str] | None,
    time_limit_s: float,
    progress: Progress,
) -> Outcome:
    """One verdict a tool. Errors end with status 1, a tool that did not run with 3."""
    from labtools.measure.sanitize import TOOLS, sanitize_rung
    from labtools.problem import LabError

    rung = read_rung(name)
    workload = read_workload(workload_text)
    knobs = read_knobs(rung, chosen)
    check_supported(rung, workload, knobs)
    wanted = tuple(tools or TOOLS)
    with typed():
        if unknown := sorted(set(wanted) - set(TOOLS)):
            raise LabError(
                f"There is no sanitizer tool {', '.join(unknown)}.",
                f"the tools are {', '.join(TOOLS)}",
                "name one or more of these",
            )
    reports = sanitize_rung(
        rung,
        workload,
        knobs,
        wanted,
        time_limit_s=time_limit_s,
        progress=lambda tool: progress(f"{tool} over {rung.id}"),
    )
    verdicts = {report.verdict for report in reports}
    status = Status.RIGHT
    if "errors" in verdicts:
        status = Status.WRONG
    elif "not run" in verdicts:
        status = Status.MISSING
    data = {
        "rung": rung.id,
        "workload": workload.to_dict(),
        "knobs": knobs,
        "origin": "live",
        "reports": [report.to_dict() for report in reports],
    }

    def show(console: Console) -> None:
        for report in reports:
            count = f" ({report.error_count})" if report.error_count else ""
            line = f"{report.tool}: {report.verdict}{count}"
            console.print(f"{line}: {report.reason}" if report.reason else line, markup=False)
            for error in report.errors[:10]:
                console.print(f"  {error}", markup=False)
            if len(report.errors) > 10:
                console.print(f"  and {len(report.errors) - 10} more, see --json", markup=False)

    return Outcome(data, show, status)
