"""The verdict of a check, its faults with their lines, and the cases behind it."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from .tables import BOX, Shown, badge, make_table

if TYPE_CHECKING:
    from labtools.measure.case import CheckCase, Fault
    from labtools.measure.check import CheckReport


def show_check(report: CheckReport) -> Shown:
    """A check's verdict, every fault with its line, and below, folded, what it speaks for and the
    cases; ``live`` from a GPU and ``computed`` by the CPU."""
    word = "live" if report.on == "gpu" else "computed"
    border = "4px double" if report.verdict == "wrong" else "2px solid"
    verdict, *more = [*report.found, *report.said_by_kernel]
    lines = "<br>".join([f"{html.escape(verdict)} {badge(word)}", *map(html.escape, more)])
    shown = Shown(
        f'<div class="lt-check lt-check-{report.verdict}" '
        f'style="{BOX};border:{border} currentColor">{lines}</div>',
        "\n".join([f"{verdict} [{word}]", *more]),
    )
    if report.faults:
        rows = [[f.kind, _place(f), f.message] for f in report.faults]
        shown = shown + make_table(["fault", "where", "what happened"], rows)
    columns = ["workload", "inputs", "verdict", "worst relative error"]
    cases = make_table(columns, [_case_row(case) for case in report.cases])
    title = "Cases, and what was not checked"
    scope = report.scope()
    lines = "<br>".join(html.escape(line) for line in scope)
    folded = (
        f'<details><summary style="cursor:pointer">{title}</summary><div>{lines}</div>'
        f"{cases.html}</details>"
    )
    return shown + Shown(folded, "\n".join([title, *scope, cases.text]))


def _case_row(case: CheckCase) -> list[str]:
    error = "not run to its end"
    if case.comparison is not None:
        error = f"{case.comparison.worst_error:.1e}"
    verdict = "right" if case.ok else "wrong"
    return [str(case.workload), case.workload.distribution, verdict, error]


def _place(fault: Fault) -> str:
    parts = []
    if fault.file is not None:
        name = fault.file.rsplit("/", 1)[-1]
        parts.append(name if fault.line is None else f"{name}, line {fault.line}")
    if fault.block is not None:
        parts.append(f"block {fault.block}")
    if fault.thread is not None:
        parts.append(f"thread {fault.thread}")
    return ", ".join(parts) or "not known"
