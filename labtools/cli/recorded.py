"""``labtools records``: what was measured."""

from __future__ import annotations

import itertools
import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from labtools.problem import LabError, Problem
from labtools.record import (
    Counters,
    DamagedRecordWarning,
    ForecastMade,
    Freshness,
    Record,
    RecordStore,
    SanitizerVerdict,
    freshness,
    summary,
)
from labtools.record.staleness import CodeNow

from .given import read_workload
from .outcome import Answer, taken_from

if TYPE_CHECKING:
    from rich.console import Console

    from labtools.toolchain.progress import Progress

_RECORD_COLUMNS = (
    *("rung", "knobs", "workload", "gpu", "median us", "spread", "samples", "source", "date", ""),
)
_RIGHT = ("median us", "spread", "samples")
_VERSIONS = ("driver", "cuda", "nvrtc", "torch", "cudnn", "flashinfer", "cupy")


@dataclass(frozen=True)
class RecordRow:
    """A record, and whether it still belongs to the code as it stands."""

    rung: str
    kind: str
    gpu: str
    gpu_slug: str
    workload: Problem
    workload_short: str
    knobs: Mapping[str, int]
    median_us: float
    spread: float
    iqr_us: tuple[float, float]
    processes: int
    samples: int
    gb_per_s: float
    right: bool
    source_hash: str
    sass_hash: str | None
    date: str
    stale: bool
    freshness: str
    protocol: str
    campaign: str
    forecast: ForecastMade | None
    counters: Counters | None
    sanitizer: tuple[SanitizerVerdict, ...]
    versions: Mapping[str, str | None]
    file: str | None
    origin: str = "recorded"

    def cells(self) -> tuple[str, ...]:
        """Its row of the table."""
        return (
            self.rung,
            " ".join(f"{name}={value}" for name, value in self.knobs.items()),
            self.workload_short,
            self.gpu_slug,
            f"{self.median_us:.2f}",
            f"{self.spread:.1%}",
            f"{self.processes} x {self.samples // self.processes}",
            self.source_hash[:8],
            self.date[:10],
            "stale" if self.stale else "fresh",
        )


@dataclass(frozen=True)
class RecordsListed(Answer):
    """The records that fit, and what could not be read."""

    records: tuple[RecordRow, ...]
    damaged: tuple[LabError, ...]

    @property
    def asides(self) -> tuple[str, ...]:
        """What could not be read."""
        return tuple(str(problem) for problem in self.damaged)

    def show(self, console: Console) -> None:
        """A table, then why stale ones are."""
        if not self.records:
            console.print("no record fits")
            return
        cells = [_RECORD_COLUMNS, *(row.cells() for row in self.records)]
        console.out("recorded", highlight=False)
        console.out("\n".join(_columns(cells, console.width)), highlight=False)
        for row in self.records:
            if row.stale:
                console.print(
                    f"stale: {row.rung} {row.workload_short}: {row.freshness}", markup=False
                )


def _columns(cells: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    """Rows of text side by side, the widest columns folded until all fit.

    Rich's table does the same for a few rows; for more than a thousand it takes seconds.
    """
    right = [name in _RIGHT for name in cells[0]]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    while sum(widths) + 2 * (len(widths) - 1) > width and max(widths) > 8:
        widths[widths.index(max(widths))] -= 1
    for row in cells:
        folded = [
            textwrap.wrap(cell, most) if len(cell) > most else [cell]
            for cell, most in zip(row, widths, strict=True)
        ]
        for line in itertools.zip_longest(*folded, fillvalue=""):
            yield "  ".join(
                part.rjust(most) if flush else part.ljust(most)
                for part, most, flush in zip(line, widths, right, strict=True)
            ).rstrip()


def list_records(
    gpu: str | None, rung: str | None, workload_text: str | None, all_: bool, progress: Progress
) -> RecordsListed:
    """The records that fit, each with whether it still belongs to the code as it stands."""
    workload = read_workload(workload_text) if workload_text else None
    store = RecordStore()
    with warnings.catch_warnings():
        # What could not be read is said once, in our own words, as a note.
        warnings.simplefilter("ignore", DamagedRecordWarning)
        found = store.query(gpu=gpu, rung=rung, workload=workload, latest=not all_)
    rows, now = [], CodeNow()
    for number, record in enumerate(found):
        progress("comparing records with their sources", number, len(found))
        rows.append(_row(record, freshness(record, now)))
    return RecordsListed(tuple(rows), tuple(store.problems))


def _row(record: Record, state: Freshness) -> RecordRow:
    made, timed = record.provenance, summary(record)
    return taken_from(
        RecordRow,
        record,
        rung=record.candidate,
        gpu=made.gpu,
        gpu_slug=made.gpu_slug,
        workload=record.problem,
        workload_short=str(record.problem),
        spread=timed.spread,
        iqr_us=timed.iqr_us,
        processes=timed.processes,
        samples=timed.samples,
        right=record.comparison.ok,
        source_hash=record.hashes.source_hash,
        sass_hash=record.hashes.sass_hash,
        date=made.date.isoformat(),
        stale=not state.fresh,
        freshness=state.reason,
        versions={name: getattr(made, name) for name in _VERSIONS},
        origin="recorded",
    )
