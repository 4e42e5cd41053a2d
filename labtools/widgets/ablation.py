"""One knob against several kernels: a grid of times, measured now or recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from labtools.problem import LabError, Rung, Workload, load_rung
from labtools.record import Record, RecordStore

from .figures import GREYS, LINES, MARKERS, draw_picture
from .provenance import Cell, Shown, Word, make_note, make_table
from .ratios import describe_record

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Variant = tuple[str, Mapping[str, int]]


def find_ablation(
    variants: Mapping[str, Variant],
    knob: str,
    values: Sequence[int],
    workload: Workload,
    *,
    gpu: str | None = None,
    store: RecordStore | None = None,
) -> dict[str, list[Record | None]]:
    """The newest record of every cell; knobs that a variant does not name have their defaults.

    Args:
        variants: rung and fixed knobs, by label.
        knob: what changes along a row.
        values: its values.
        workload: what all ran.
        gpu: slug of a GPU; None takes any.
        store: where to look.
    """
    records = (store or RecordStore()).query(gpu, None, workload, kind="rung")
    found: dict[str, list[Record | None]] = {}
    for label, (name, fixed) in variants.items():
        rung = load_rung(name)
        found[label] = []
        for value in values:
            wanted = rung.resolve_knobs({**fixed, knob: value})
            fitting = (r for r in records if r.candidate == rung.id and r.knobs == wanted)
            found[label].append(next(fitting, None))
    return found


def show_ablation(
    variants: Mapping[str, Variant],
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
        variants: rung and fixed knobs, by label.
        knob: what changes along a row.
        values: its values.
        workload: what all run.
        gpu: slug of the GPU whose records count; None takes any.
        store: where to look for records.
        live: measure now in child processes; None does so when a GPU is here.

    Raises:
        LabError: an unknown rung or knob, or a live measurement that failed.
    """
    from .live import can_run_live, time_now

    if can_run_live() if live is None else live:
        jobs = [
            (load_rung(name), load_rung(name).resolve_knobs({**fixed, knob: value}))
            for name, fixed in variants.values()
            for value in values
        ]
        measured = iter(time_now(jobs, workload))
        times: dict[str, list[float | None]] = {
            label: [next(measured).median_us for _ in values] for label in variants
        }
        return _show_grid(times, knob, values, Word("live", "this machine's GPU"), workload)
    found = find_ablation(variants, knob, values, workload, gpu=gpu, store=store)
    cells = [record for row in found.values() for record in row]
    known = [record for record in cells if record is not None]
    if not known:
        return make_note(
            f"There is no record of this ablation for {workload}, and no GPU here to measure "
            "it on. On a machine with a GPU, run this cell again or use labtools record."
        )
    times = {
        label: [None if record is None else record.median_us for record in row]
        for label, row in found.items()
    }
    where = "; ".join(dict.fromkeys(describe_record(record) for record in known))
    shown = _show_grid(times, knob, values, Word("recorded", where), workload)
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
        [label, *("no record" if t is None else f"{t:.1f}" for t in row), word]
        for label, row in times.items()
    ]
    columns = ["time (us)", *(f"{knob} {value}" for value in values), "where from"]
    return _plot(times, knob, values, word, workload) + make_table(columns, rows)


def _plot(
    times: Mapping[str, Sequence[float | None]],
    knob: str,
    values: Sequence[int],
    word: Word,
    workload: Workload,
) -> Shown:
    def paint(axes: Axes) -> None:
        for i, (label, row) in enumerate(times.items()):
            points = [(v, t) for v, t in zip(values, row, strict=True) if t is not None]
            axes.plot(
                [v for v, _ in points],
                [t for _, t in points],
                marker=MARKERS[i % len(MARKERS)],
                linestyle=LINES[i % len(LINES)],
                color=GREYS[i % 2],
                label=label,
            )
        axes.set_xscale("log", base=2)
        axes.set_xticks(list(values), [str(value) for value in values])
        axes.minorticks_off()
        axes.set_ylim(bottom=0)
        axes.set_xlabel(knob)
        axes.set_ylabel("time (us)")
        axes.legend(fontsize=9)

    spoken = "; ".join(
        f"{label}: "
        + ", ".join(
            f"{knob} {v} {'no record' if t is None else f'{t:.1f} us'}"
            for v, t in zip(values, row, strict=True)
        )
        for label, row in times.items()
    )
    caption = f"Time by {knob}, {workload}; lower is faster; {word.detail}"
    return draw_picture(paint, f"Line chart. {spoken}.", caption, word.word)


def compare_counters(
    rungs: Sequence[str | Rung],
    workload: Workload,
    names: Sequence[str] = (
        "achieved_occupancy_pct",
        "theoretical_occupancy_pct",
        "registers_per_thread",
        "issue_slot_pct",
        "dram_throughput_pct",
        "l2_hit_pct",
    ),
    *,
    gpu: str | None = None,
    store: RecordStore | None = None,
    live: bool | None = None,
) -> Shown:
    """Hardware counters of some rungs with their default knobs, side by side.

    With a GPU they are read now by Nsight Compute in a child process. Where that is not permitted
    or not installed, the reason is shown and the recorded counters stand in.

    Args:
        rungs: rungs or their ids.
        workload: what they run.
        names: counters to show.
        gpu: slug of the GPU whose records count; None takes any.
        store: where to look for records.
        live: read now; None does so when a GPU is here.
    """
    from .live import can_run_live

    loaded = [rung if isinstance(rung, Rung) else load_rung(rung) for rung in rungs]
    refused = Shown("", "")
    if can_run_live() if live is None else live:
        shown, refused = _live_counters(loaded, workload, names)
        if shown is not None:
            return shown
    columns: list[Mapping[str, Any]] = []
    words: list[Word] = []
    for rung in loaded:
        # The newest record need not be the one that was profiled.
        records = (store or RecordStore()).query(
            gpu, rung.id, workload, rung.resolve_knobs(), latest=False
        )
        record = next((r for r in records if r.counters and r.counters.values), None)
        if record is None or record.counters is None:
            return refused + make_note(
                f"There are no recorded counters of {rung.id} for {workload} yet, and none were "
                "read here."
            )
        columns.append(record.counters.values)
        words.append(Word("recorded", describe_record(record)))
    return refused + _counter_table(loaded, names, columns, words, workload)


def _live_counters(
    rungs: Sequence[Rung], workload: Workload, names: Sequence[str]
) -> tuple[Shown | None, Shown]:
    from labtools.measure import profile_rung

    columns: list[Mapping[str, Any]] = []
    words: list[Word] = []
    try:
        for rung in rungs:
            report = profile_rung(rung, workload)
            columns.append(report.main_kernel.values)
            words.append(Word("live", report.tool))
    except LabError as error:  # not installed, not permitted, or it ran into its time limit
        return None, make_note(f"{error.what} {error.why}. Recorded counters stand in.")
    return _counter_table(rungs, names, columns, words, workload), Shown("", "")


def _counter_table(
    rungs: Sequence[Rung],
    names: Sequence[str],
    columns: Sequence[Mapping[str, Any]],
    words: Sequence[Word],
    workload: Workload,
) -> Shown:
    rows: list[list[Cell]] = []
    for name in names:
        values = [column.get(name) for column in columns]
        told = ["missing" if value is None else f"{value:,.4g}" for value in values]
        rows.append([name, *told])
    rows.append(["where from", *words])
    return make_table(["counter", *(rung.id for rung in rungs)], rows, f"Workload {workload}")
