"""``labtools records``: what was measured."""

from __future__ import annotations

import itertools
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from labtools.predict import load_gpu
from labtools.problem import HEADLINE, LabError, UnknownRung
from labtools.problem.rung import say_knobs
from labtools.record import (
    DamagedRecordWarning,
    Freshness,
    Record,
    RecordStore,
    Summary,
    freshness,
    summary,
)
from labtools.record.staleness import CodeNow
from labtools.record.trust import doubts

from .given import read_target, read_workload
from .outcome import Answer, Status, UsageProblem, typed

if TYPE_CHECKING:
    from rich.console import Console

    from labtools.toolchain.progress import Progress

_RECORD_COLUMNS = "rung,knobs,workload,gpu,median us,spread,samples,date,state".split(",")
_SOURCE = "hash of the source"
"""A column for ``--verbose``."""
_MOST_SHOWN = 40
"""Records that are shown unasked."""
_MOST_SAID = 10
"""Things that could not be read that are said one by one."""
_RIGHT = ("median us", "spread", "samples")


@dataclass(frozen=True)
class RecordRow:
    """A record, and whether it still belongs to the code as it stands."""

    record: Record
    timed: Summary
    state: Freshness
    doubts: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """What the JSON holds."""
        record, timed, made = self.record, self.timed, self.record.provenance
        return {
            "rung": record.candidate,
            "kind": record.kind,
            "gpu": made.gpu,
            "gpu_slug": made.gpu_slug,
            "workload": record.problem,
            "workload_short": str(record.problem),
            "knobs": record.knobs,
            "median_us": record.median_us,
            "spread": timed.spread,
            "iqr_us": timed.iqr_us,
            "processes": timed.processes,
            "samples": timed.samples,
            "gb_per_s": record.gb_per_s,
            "right": record.comparison.ok,
            "source_hash": record.hashes.source_hash,
            "sass_hash": record.hashes.sass_hash,
            "date": made.date.isoformat(),
            "stale": not self.state.fresh,
            "freshness": self.state.reason,
            "signed": record.signed,
            "doubts": self.doubts,
            "protocol": record.protocol,
            "campaign": record.campaign,
            "forecast": record.forecast,
            "counters": record.counters,
            "sanitizer": record.sanitizer,
            "versions": made.versions,
            "file": record.file,
            "origin": "recorded",
        }

    def cells(self) -> tuple[str, ...]:
        """Its row of the table."""
        record, timed = self.record, self.timed
        return (
            record.candidate,
            say_knobs(record.knobs, " "),
            str(record.problem),
            record.provenance.gpu_slug,
            f"{record.median_us:.2f}",
            f"{timed.spread:.1%}",
            f"{timed.processes} x {timed.samples // timed.processes}",
            f"{record.provenance.date:%Y-%m-%d}",
            ("fresh" if self.state.fresh else "stale") + ("" if record.signed else ", unsigned"),
        )


@dataclass(frozen=True)
class RecordsListed(Answer):
    """The records that fit, and what could not be read."""

    records: tuple[RecordRow, ...]
    damaged: tuple[LabError, ...]
    _older: int = 0  # that fit and are not listed, since there is a newer one of the same
    _experiments: int = 0  # that fit and are not listed: of a plan's experiments

    @property
    def status(self) -> Status:
        """3 where nothing fits and something that might have could not be read."""
        return Status.MISSING if self.damaged and not self.records else Status.RIGHT

    @property
    def asides(self) -> tuple[str, ...]:
        """What could not be read."""
        told = [str(problem) for problem in self.damaged[:_MOST_SAID]]
        more = len(self.damaged) - len(told)
        return (*told, *([f"And {more} more; --json names them."] if more else []))

    def show(self, console: Console) -> None:
        """A table of the first, those of the headline workload before others."""
        rows = sorted(self.records, key=lambda row: row.record.problem != HEADLINE)
        self._show(console, rows[:_MOST_SHOWN])
        if len(rows) > _MOST_SHOWN:
            console.print(
                f"{_MOST_SHOWN} of {len(rows)} records; --rung, --gpu and --workload narrow them, "
                "--verbose shows them all"
            )
        left_out = [f"{self._older} older of the same (--all)"] if self._older else []
        left_out += [f"{self._experiments} of experiments"] if self._experiments else []
        if left_out:
            console.print(f"not listed: {', '.join(left_out)}")

    def show_all(self, console: Console) -> None:
        """A table of all."""
        self._show(console, self.records, details=True)

    def _show(self, console: Console, rows: Sequence[RecordRow], details: bool = False) -> None:
        """A table, then why stale ones are."""
        if not rows:
            console.print("no record fits")
            return
        cells = [_RECORD_COLUMNS, *(row.cells() for row in rows)]
        if details:
            sources = [_SOURCE, *(row.record.hashes.source_hash[:8] for row in rows)]
            cells = [(*told, source) for told, source in zip(cells, sources, strict=True)]
        console.out("recorded", highlight=False)
        console.out("\n".join(_columns(cells, console.width)), highlight=False)
        for row in rows:
            what = f"{row.record.candidate} {row.record.problem}"
            if not row.state.fresh:
                console.print(f"stale: {what}: {row.state.reason}")
            if row.doubts:
                console.print(f"doubtful: {what}: {'; '.join(row.doubts)}")
        if any(not row.record.signed for row in rows):
            console.print("unsigned: from a file that the project does not ship, such as your own")


def _columns(cells: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    """Rows of text side by side, the widest columns folded until all fit.

    `print_table` does the same for a few rows; for more than a thousand rich takes seconds.
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


def _check_name(wanted: str, records: Sequence[Record]) -> None:
    """Refuse a name that nothing here has, neither what was measured nor what is shipped."""
    if any(record.is_candidate(wanted) for record in records):
        return
    try:
        read_target(wanted)
    except UsageProblem as told:
        if not isinstance(told.error, UnknownRung):
            raise
        measured = ", ".join(sorted({record.candidate for record in records}))
        raise UsageProblem(
            LabError(
                f"There is no rung, baseline or ceiling {wanted!r}.",
                f"there are records of {measured or 'none'}",
                "name one of them or its number (r03), or leave --rung out",
            )
        ) from told


def list_records(
    gpu: str | None, rung: str | None, workload_text: str | None, all_: bool, progress: Progress
) -> RecordsListed:
    """The records that fit, each with whether it still belongs to the code as it stands."""
    workload = None if workload_text is None else read_workload(workload_text)
    store = RecordStore()
    with warnings.catch_warnings():
        # What could not be read is said once, in our own words, as a note.
        warnings.simplefilter("ignore", DamagedRecordWarning)
        if gpu is not None and all(one.provenance.gpu_slug != gpu for one in store.load()):
            with typed():
                load_gpu(gpu)
        found = store.query(gpu=gpu, rung=rung, workload=workload, latest=not all_)
        if rung is not None and not found:
            _check_name(rung, store.load())
    every = store.query(gpu=gpu, rung=rung, workload=workload, latest=False, experiment=None)
    older = sum(not record.experiment for record in every) - len(found)
    rows, now = [], CodeNow()
    for number, record in enumerate(found):
        progress("comparing records with their sources", number, len(found))
        found_now = freshness(record, now)
        rows.append(RecordRow(record, summary(record), found_now, tuple(doubts(record))))
    return RecordsListed(tuple(rows), tuple(store.problems), older, len(every) - older - len(found))
