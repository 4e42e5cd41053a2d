"""The profiler bench: a rung and a workload, and what the counters say of them. The picture looks
up every answer, so that it needs no kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from labtools.predict import Forecast, list_gpus
from labtools.problem import LabError, Problem, Rung
from labtools.record import Record, best_reader
from labtools.record.bound import known_value

from ...bench import Bench, View, dropdown, place_of
from ...live import can_run_live
from ...records import GpuRecords, forecasts_of
from ...tables import Shown, Word, format_value, make_note, show_table
from .panels import COUNTER_MEANINGS, ceilings, make_panel
from .run import ProfiledRun, profile_now, recorded_run

NO_COUNTERS = "No counters of {rung} were recorded for this workload."


def ncu_tables(runs: Sequence[ProfiledRun], reader: Record | None = None) -> dict[str, Any]:
    """Every answer that the picture may need: ``cells`` hold for each workload and rung what
    `make_panel` gives, or None where nothing was profiled.
    """
    if not runs:
        why = "no kernel was profiled"
        raise LabError("There is nothing to show.", why, "labtools record makes a record")
    rungs = list({run.rung.id: run.rung for run in runs}.values())
    problems = list({run.problem.key(): run.problem for run in runs}.values())
    found = {
        (run.problem.key(), run.rung.id): make_panel(run, forecast)
        for run, forecast in zip(runs, _forecasts(runs), strict=True)
    }
    return {
        "rungs": [rung.id for rung in rungs],
        "workloads": [str(problem) for problem in problems],
        "ceilings": ceilings(runs[0].gpu, reader),
        "meanings": {
            name: {"label": one.label, "means": one.means, "not": one.does_not_mean}
            for name, one in COUNTER_MEANINGS.items()
        },
        "empty": [NO_COUNTERS.format(rung=rung.id) for rung in rungs],
        "cells": [[found.get((problem.key(), rung.id)) for rung in rungs] for problem in problems],
    }


def _forecasts(runs: Sequence[ProfiledRun]) -> Sequence[Forecast | None]:
    """A forecast of each; none for a GPU that the model does not know."""
    gpu = runs[0].gpu.name
    if gpu not in list_gpus():
        return [None] * len(runs)
    return forecasts_of([(run.rung.id, run.problem) for run in runs], gpu)


class NcuView(View, script="view", controls=("rung", "workload")):
    """The picture."""


class NcuBench(Bench):
    """The bench, which knows what was chosen on it; it shows a rung first, by id or number. The
    best rate comes from ``records``.
    """

    def __init__(
        self, runs: Sequence[ProfiledRun], records: GpuRecords | None = None, rung: str = ""
    ) -> None:
        tables = ncu_tables(runs, best_reader(records.every) if records else None)
        self._rungs = list({run.rung.id: run.rung for run in runs}.values())
        self._problems = list({run.problem.key(): run.problem for run in runs}.values())
        names = [one.id for one in self._rungs]
        start = place_of(next((name for name in names if name.startswith(rung)), rung), names)
        widths: dict[str, Any] = {"label_width": "6em", "most_width": "30em"}
        controls = {
            "rung": dropdown("rung", names, start, **widths),
            "workload": dropdown("workload", tables["workloads"], **widths),
        }
        super().__init__(controls, NcuView, tables)

    @property
    def chosen(self) -> tuple[Rung, Problem]:
        """Rung and workload that the controls show."""
        rung, workload = self.controls["rung"], self.controls["workload"]
        return self._rungs[rung.index], self._problems[workload.index]


def show_live(rung: Rung, problem: Problem, records: GpuRecords) -> list[Any]:
    """Profile a rung with its default knobs on this machine's GPU, beside its recorded counters, or
    say why that cannot be.
    """
    kept = recorded_run(records, rung.id, problem)
    if not can_run_live():
        return [make_note("There is no GPU here. The bench above holds the recorded counters.")]
    try:
        live = profile_now(rung, problem)
    except LabError as error:
        return [make_note(f"{error} The recorded counters stand above.")]
    return [compare_runs(live, kept), NcuBench([live])]


def compare_runs(live: ProfiledRun, kept: ProfiledRun | None) -> Shown:
    """Counters read now beside those recorded of the same rung and workload."""
    rows: list[tuple[object, ...]] = []
    for name, meaning in COUNTER_MEANINGS.items():
        now = known_value(live.values, name)
        then = None if kept is None else known_value(kept.values, name)
        if now is None and then is None:
            continue
        ratio = now / then if now is not None and then else None
        both = Word("live", also="recorded" if then is not None else "")
        scaled = (None if x is None else x / meaning.scale for x in (now, then))
        told = ("missing" if x is None else format_value(x) for x in scaled)
        rows.append((f"{meaning.label} ({meaning.unit})", *told, ratio, both))
    against = f"recorded: {kept.where}" if kept else "there is no record of it"
    note = f"{live.name}. Live: {live.where}; {against}"
    for word, run in (("live", live), ("recorded", kept)):
        if run is not None and run.apart:
            note += f". The {word} counters do not belong together: {run.apart}"
    columns = ("counter", "live", "recorded", "live / recorded")
    return show_table(columns, rows, word="live", note=note)
