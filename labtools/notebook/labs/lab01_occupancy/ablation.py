"""One knob against several kernels: a grid of times, measured now or recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from labtools.problem import Workload, load_rung
from labtools.record import RecordedTime, RecordStore, Tried, as_variant, describe_records

from ...figures import draw_picture, line_look
from ...live import live_wanted, time_now
from ...records import GpuRecords
from ...tables import Cell, Shown, Word, make_note, make_table, say_time

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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

    def paint(axes: Axes) -> None:
        for i, (label, row) in enumerate(times.items()):
            points = [(v, t) for v, t in zip(values, row, strict=True) if t is not None]
            places = [v for v, _ in points], [t for _, t in points]
            axes.plot(*places, label=label, **line_look(i, greys=2))
        axes.set_xscale("log", base=2)
        axes.set_xticks(list(values), [str(value) for value in values])
        axes.minorticks_off()
        axes.set_ylim(bottom=0)
        axes.set_xlabel(knob)
        axes.set_ylabel("time (us)")
        axes.legend(fontsize=9)

    told = []
    for label, row in times.items():
        each = ("no record" if t is None else f"{t:.1f} us" for t in row)
        said = (f"{knob} {v} {time}" for v, time in zip(values, each, strict=True))
        told.append(f"{label}: {', '.join(said)}")
    caption = f"Time by {knob}, {workload}; lower is faster; {word.detail}"
    picture = draw_picture(paint, f"Line chart. {'; '.join(told)}.", caption, word.word)
    return picture + make_table(columns, rows)
