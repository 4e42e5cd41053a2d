"""``labtools microbench``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .outcome import Outcome, Progress, Status, typed

if TYPE_CHECKING:
    from rich.console import Console


def measure_gpu(out: Path | None, only: Sequence[str] | None, progress: Progress) -> Outcome:
    """Run the microbenchmarks; status 1 when one of them failed."""
    from labtools.measure.microbench import run_microbench
    from labtools.measure.microbench_plan import find_benchmarks
    from labtools.problem import repository_root

    names = [part for text in only or () for part in text.split(",") if part] or None
    with typed():
        find_benchmarks(names)
    folder = out or repository_root() / "work" / "microbench"
    report = run_microbench(folder, names, progress)
    data = report.to_dict()
    status = Status.WRONG if report.failures else Status.RIGHT
    return Outcome(data, lambda console: _show(console, data), status, notes=report.notes)


def _show(console: Console, data: dict[str, Any]) -> None:
    console.print(f"{len(data['measured'])} microbenchmarks in {data['seconds']} s", markup=False)
    for name, why in data["failures"].items():
        console.print(f"failed: {name}: {why}", markup=False)
    console.print(f"record: {data['record']}", markup=False)
    if data["table"]:
        console.print(f"table: {data['table']}", markup=False)
