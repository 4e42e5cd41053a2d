"""``labtools microbench``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from labtools.microbench.plan import find_benchmarks
from labtools.microbench.run import run_microbench
from labtools.problem import repository_root

from .outcome import Answer, Status, typed

if TYPE_CHECKING:
    from rich.console import Console

    from labtools.toolchain.progress import Progress


@dataclass(frozen=True)
class GpuMeasured(Answer):
    """What a run of the microbenchmarks left behind; the samples are in the record's file."""

    record: Path
    table: Path | None
    measured: tuple[str, ...]
    failures: Mapping[str, str]
    notes: tuple[str, ...]
    seconds: float

    @property
    def status(self) -> Status:
        """1 when one of them failed."""
        return Status.WRONG if self.failures else Status.RIGHT

    @property
    def asides(self) -> tuple[str, ...]:
        """What to know about the run."""
        return self.notes

    def show(self, console: Console) -> None:
        """How many, which failed, and the files."""
        console.print(f"{len(self.measured)} microbenchmarks in {self.seconds} s")
        for name, why in self.failures.items():
            console.print(f"failed: {name}: {why}")
        console.print(f"record: {self.record}")
        if self.table:
            console.print(f"table: {self.table}")


def measure_gpu(out: Path | None, only: Sequence[str] | None, progress: Progress) -> GpuMeasured:
    """Run the microbenchmarks."""
    names = [part for text in only or () for part in text.split(",") if part] or None
    with typed():
        find_benchmarks(names)
    folder = out or repository_root() / "work" / "microbench"
    report = run_microbench(folder, names, progress)
    return GpuMeasured(
        report.record_path,
        report.table_path,
        tuple(report.measured),
        report.failures,
        tuple(report.notes),
        round(report.seconds, 1),
    )
