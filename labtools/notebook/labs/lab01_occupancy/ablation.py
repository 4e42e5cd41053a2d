"""One knob against several kernels: a grid of times, measured now or recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from labtools.problem import Workload, load_rung
from labtools.record import RecordedTime, RecordStore, Tried, as_variant, describe_records

from ...figures import plot_lines
from ...live import live_wanted, time_now
from ...records import GpuRecords
from ...tables import Cell, Shown, Word, make_note, make_table, say_time


def _row(tried: Tried, knob: str, values: Sequence[int]) -> list[tuple[str, dict[str, int]]]:
    """The variant with each value of the knob; others that it does not name have their defaults."""
    variant = as_variant(tried)
    return [(variant.candidate, {**variant.knobs, knob: value}) for value in values]


def show_ablation(
    variants: Mapping[str, Tried],
    knob: str,
    values: Sequence[int],
    workload: Workload,
    *,
    gpu: str | None = None,
    store: RecordStore | None = None,
    live: bool | None = None,
) -> Shown:
    """Times of all variants at all values, as a picture and a table.

    Args:
        gpu: slug of the GPU whose records count; None takes any.
        live: measure now in child processes; None does so when a GPU is here.
    """
    rows = {label: _row(tried, knob, values) for label, tried in variants.items()}
    if live_wanted(live):
        jobs = [(load_rung(name), knobs) for row in rows.values() for name, knobs in row]
        measured = iter(time_now(jobs, workload))
        times: dict[str, list[float | None]] = {
            label: [next(measured).median_us for _ in values] for label in variants
        }
        return _show_grid(times, knob, values, Word("live", "this machine's GPU"), workload)
    records = GpuRecords(gpu, store)
    found = {label: [records.find(cell, workload) for cell in row] for label, row in rows.items()}
    cells = [record for row in found.values() for record in row]
    known = [record for record in cells if record is not None]
    if not known:
        return make_note(
            f"There is no record of this ablation for {workload}, and no GPU here to measure "
            "it on. On a machine with a GPU, run this cell again or use labtools record."
        )
    times = {
        label: [None if record is None else RecordedTime.of(record) for record in row]
        for label, row in found.items()
    }
    word = Word("recorded", describe_records(known))
    shown = _show_grid(times, knob, values, word, workload)
    missing = len(cells) - len(known)
    if missing:
        shown = shown + make_note(f"{missing} of {len(cells)} cells have no record yet.")
    return shown


def _show_grid(
    times: Mapping[str, Sequence[float | None]],
    knob: str,
    values: Sequence[int],
    word: Word,
    workload: Workload,
) -> Shown:
    rows: list[list[Cell]] = [
        [label, *("no record" if t is None else say_time(t) for t in row), word]
        for label, row in times.items()
    ]
    columns = ["time (us)", *(f"{knob} {value}" for value in values), "where from"]

    series: dict[str, dict[float, float]] = {
        label: {value: time for value, time in zip(values, row, strict=True) if time is not None}
        for label, row in times.items()
    }
    caption = f"Time by {knob}, {workload}; lower is faster; {word.detail}"
    picture = plot_lines(series, knob, "time (us)", caption, word.word)
    return picture + make_table(columns, rows)
