"""Times of the libraries noted on another GPU of the same kind, beside the recorded ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from labtools.predict import DEFAULT_GPU
from labtools.problem import Workload
from labtools.record import Record, RecordStore, describe_record

from ...tables import Cell, Shown, Word, make_table


def show_drift(noted: Mapping[str, Any]) -> Shown:
    """Times noted on another GPU of the same kind (``us``, a list a baseline, ``workloads`` in
    short forms, ``where``) beside the recorded ones."""
    known = _baselines()
    used: list[Record] = []
    rows: list[list[Cell]] = []
    for i, short in enumerate(noted["workloads"]):
        cells: list[Cell] = [short]
        for name, times in noted["us"].items():
            found = known.get((name, Workload.parse(short).key()))
            said = "no record"
            if found is not None:
                said = f"{found.median_us:.1f} ({100 * (found.median_us / times[i] - 1):+.1f} %)"
                used.append(found)
            cells.append(f"{times[i]:.1f}, {said}")
        rows.append([*cells, Word("claimed"), Word("recorded")])
    where = describe_record(used[0]) if used else "no record"
    caption = f"us noted ({noted['where']}), us recorded ({where}), change"
    return make_table(("workload", *noted["us"], "first time", "second time"), rows, caption)


def list_drifts(noted: Mapping[str, Any]) -> list[float]:
    """Recorded over noted time of everything that `show_drift` compares."""
    known = _baselines()
    return [
        found.median_us / us
        for name, times in noted["us"].items()
        for short, us in zip(noted["workloads"], times, strict=True)
        if (found := known.get((name, Workload.parse(short).key())))
    ]


def _baselines() -> dict[tuple[str, str], Record]:
    """The newest record of every baseline on every workload."""
    records = RecordStore().query(DEFAULT_GPU, kind="baseline")
    return {(record.name, record.problem.key()): record for record in reversed(records)}
