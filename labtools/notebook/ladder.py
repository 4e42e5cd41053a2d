"""What the ladder's pages show together: all rungs, and the confound of unrolling."""

from __future__ import annotations

from typing import TYPE_CHECKING

from labtools.predict import Gpu, floors, load_gpu
from labtools.problem import HEADLINE, LabError, Problem, Rung, list_rungs, load_rung
from labtools.record import Record, RecordStore, best_read_gb_per_s, describe_records, select

from .figures import GREYS, LINES, MARKERS, bar_of_record, draw_picture, show_bars
from .records import NO_RECORD, GpuRecords
from .tables import Shown, make_note

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LADDER_BASELINES = ("sdpa", "sdpa_flash", "flashinfer")
"""Fair baselines that the ladder's figure shows, where they are recorded."""


def plot_ladder(
    store: RecordStore, workload: Problem = HEADLINE, gpu: str = "h200", last: str | None = None
) -> Shown:
    """Every recorded rung at its default knobs, fair baselines, and the floor.

    Args:
        last: a rung to end with; None draws all of them.
    """
    records = GpuRecords(gpu, store)
    chosen: list[tuple[str, Record]] = []
    end = load_rung(last).id if last else None
    for rung in list_rungs():
        if end is not None and rung.id > end:
            continue
        for knobs in _ladder_knobs(rung):
            found = records.find((rung.id, knobs), workload)
            label = rung.id.split("_")[0] + (", V early" if knobs.get("prefetch_v") else "")
            chosen += [(label, found)] if found else []
    for name in LADDER_BASELINES:
        found = records.find(f"baseline:{name}", workload)
        chosen += [(name, found)] if found else []
    if not chosen:
        return make_note(NO_RECORD.format(what="the ladder", workload=workload))
    rate = best_read_gb_per_s(select(records.every))
    sheet = _sheet_or_none(gpu)
    floor = None
    if sheet is not None:
        found_floors = floors(workload, sheet, rate)
        floor = found_floors.time_at_given_us or found_floors.time_us
    bars = [bar_of_record(record, label) for label, record in chosen]
    where = describe_records(record for _, record in chosen)
    return show_bars(bars, f"The ladder at {workload}", floor_us=floor, where=where)


def _ladder_knobs(rung: Rung) -> list[dict[str, int]]:
    knobs = [rung.resolve_knobs()]
    if "prefetch_v" in knobs[0]:
        knobs.append(rung.resolve_knobs({"prefetch_v": 1}))
    return knobs


def _sheet_or_none(gpu: str) -> Gpu | None:
    try:
        return load_gpu(gpu)
    except LabError:
        return None


def plot_confound(store: RecordStore, workload: Problem = HEADLINE, gpu: str = "h200") -> Shown:
    """Recorded times of r02 and r03 by unrolling, one line a block shape and launch bounds."""
    lines: dict[tuple[str, int], list[Record]] = {}
    for name in ("r02", "r03"):
        for record in store.query(gpu, name, workload, kind="rung"):
            warps = record.launches[0].block[0] // 32 if record.launches else 0
            label = f"{name}, {warps} warp{'s' if warps > 1 else ''} a block"
            lines.setdefault((label, record.knobs["launch_bounds"]), []).append(record)
    if not lines:
        return make_note(NO_RECORD.format(what="r02 and r03", workload=workload))
    labels = sorted({label for label, _ in lines})

    def paint(axes: Axes) -> None:
        for (label, bounds), records in sorted(lines.items()):
            records.sort(key=lambda record: record.knobs["unroll"])
            i = labels.index(label)
            axes.plot(
                [record.knobs["unroll"] for record in records],
                [record.median_us for record in records],
                marker=MARKERS[i],
                color=GREYS[min(i, 2)],
                linestyle=LINES[0 if bounds else 1],
                markerfacecolor=GREYS[min(i, 2)] if bounds else "white",
                label=f"{label}{'' if bounds else ', no launch bounds'}",
            )
        axes.set_xscale("log", base=2)
        axes.set_xticks([1, 2, 4, 8], ["1", "2", "4", "8"])
        axes.set_xlabel("rows in one trip of the loop (unroll)")
        axes.set_ylabel("us")
        axes.set_ylim(bottom=0)
        axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.02, 1.0))

    told = "; ".join(
        f"{label}{'' if bounds else ' without launch bounds'}: "
        + ", ".join(
            f"unroll {record.knobs['unroll']} {record.median_us:.0f}"
            for record in sorted(records, key=lambda record: record.knobs["unroll"])
        )
        for (label, bounds), records in sorted(lines.items())
    )
    every = [record for line in lines.values() for record in line]
    return draw_picture(
        paint,
        f"Times in microseconds by unrolling. {told}.",
        f"Workload {workload}: {describe_records(every)}.",
        "recorded",
        size=(8.6, 4.0),
    )
