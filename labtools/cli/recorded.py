"""``labtools records`` and ``labtools journal``: what is kept."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from .given import read_workload
from .outcome import Outcome, Progress

if TYPE_CHECKING:
    from rich.console import Console

    from labtools.record import Freshness, Record


def list_records(
    gpu: str | None, rung: str | None, workload_text: str | None, all_: bool, progress: Progress
) -> Outcome:
    """The records that fit, each with whether it still belongs to the code as it stands."""
    from labtools.record import DamagedRecordWarning, RecordStore, freshness

    workload = read_workload(workload_text) if workload_text else None
    store = RecordStore()
    with warnings.catch_warnings():
        # What could not be read is said once, in our own words, below.
        warnings.simplefilter("ignore", DamagedRecordWarning)
        found = store.query(gpu=gpu, rung=rung, workload=workload, latest=not all_)
    rows = []
    for record in found:
        progress(f"comparing {record.candidate} with its source")
        rows.append(_row(record, freshness(record)))
    problems = [
        {"what": problem.what, "why": problem.why, "still_works": problem.still_works}
        for problem in store.problems
    ]
    data = {"records": rows, "damaged": problems}
    return Outcome(
        data,
        lambda console: _show_records(console, rows),
        notes=tuple(str(problem) for problem in store.problems),
    )


def _row(record: Record, state: Freshness) -> dict[str, Any]:
    from labtools.record import summary

    found = summary(record)
    workload = record.problem
    return {
        "rung": record.candidate,
        "kind": record.kind,
        "gpu": record.provenance.gpu,
        "gpu_slug": record.provenance.gpu_slug,
        "workload": workload.to_dict(),
        "workload_short": str(workload),
        "knobs": record.knobs,
        "median_us": record.median_us,
        "spread": found.spread,
        "iqr_us": list(found.iqr_us),
        "processes": found.processes,
        "samples": found.samples,
        "gb_per_s": record.gb_per_s,
        "right": record.comparison.ok,
        "source_hash": record.hashes.source_hash,
        "sass_hash": record.hashes.sass_hash,
        "date": record.provenance.date.isoformat(),
        "stale": not state.fresh,
        "freshness": state.reason,
        "protocol": record.protocol,
        "campaign": record.campaign,
        "forecast": record.forecast.model_dump() if record.forecast else None,
        "counters": record.counters.model_dump() if record.counters else None,
        "sanitizer": [verdict.model_dump() for verdict in record.sanitizer],
        "versions": {
            name: getattr(record.provenance, name)
            for name in ("driver", "cuda", "nvrtc", "torch", "cudnn", "flashinfer", "cupy")
        },
        "file": record.file,
        "origin": "recorded",
    }


def _show_records(console: Console, rows: list[dict[str, Any]]) -> None:
    from rich.table import Table

    if not rows:
        console.print("no record fits")
        return
    table = Table(box=None, pad_edge=False)
    for column, right in (
        *(("rung", False), ("knobs", False), ("workload", False), ("gpu", False)),
        *(("median us", True), ("spread", True), ("samples", True)),
        *(("source", False), ("date", False), ("", False)),
    ):
        table.add_column(column, justify="right" if right else "left", overflow="fold")
    for row in rows:
        table.add_row(
            row["rung"],
            " ".join(f"{name}={value}" for name, value in row["knobs"].items()),
            row["workload_short"],
            row["gpu_slug"],
            f"{row['median_us']:.2f}",
            f"{row['spread']:.1%}",
            f"{row['processes']} x {row['samples'] // row['processes']}",
            row["source_hash"][:8],
            row["date"][:10],
            "stale" if row["stale"] else "fresh",
        )
    console.print("recorded", soft_wrap=False)
    console.print(table, soft_wrap=False)
    for row in rows:
        if row["stale"]:
            console.print(
                f"stale: {row['rung']} {row['workload_short']}: {row['freshness']}", markup=False
            )


def list_predictions(question: str | None) -> Outcome:
    """The reader's predictions, oldest first, each with its score if the answer was shown."""
    from labtools.record.journal import Journal, JournalWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", JournalWarning)  # said below, as notes
        journal = Journal()
        rows = journal.history(question)
    data = {
        "reader": journal.reader,
        "file": str(journal.lines),
        "predictions": [row.model_dump(mode="json") for row in rows],
        "notices": journal.notices,
    }

    def show(console: Console) -> None:
        if not rows:
            console.print("no prediction yet")
            return
        from rich.table import Table

        table = Table(box=None, pad_edge=False)
        for column in ("when", "question", "predicted", "measured", "source", "verdict"):
            table.add_column(column, overflow="fold")
        for row in rows:
            guess, answer = row.prediction, row.reveal
            verdict = row.score.verdict if row.score else "no answer shown yet"
            if guess.after_reveal:
                verdict = f"made after the answer was shown; does not count. {verdict}"
            table.add_row(
                guess.at.astimezone().strftime("%Y-%m-%d %H:%M"),
                guess.question_id,
                f"{guess.direction} {guess.ratio:.2f}x",
                f"{answer.measured_ratio:.2f}x" if answer else "",
                answer.source if answer else "",
                verdict,
            )
        console.print(table, soft_wrap=False)

    return Outcome(data, show, notes=tuple(journal.notices))
