"""What the ladder's pages show together: all rungs, and the confound of unrolling."""

from __future__ import annotations

from typing import Any

from labtools.predict import DEFAULT_GPU, floors, load_gpu
from labtools.problem import HEADLINE, Problem, list_rungs, load_rung
from labtools.record import Record, RecordStore, Tried, best_read_gb_per_s, describe_records, select

from .figures import GREYS, LINES, MARKERS, Axes, bar_of_record, draw_picture, show_bars
from .records import NO_RECORD, GpuRecords
from .tables import Shown, make_note

LADDER_BASELINES = ("sdpa", "sdpa_flash", "flashinfer")
"""Fair baselines that the ladder's figure shows, where they are recorded."""


def plot_ladder(store: RecordStore, workload: Problem = HEADLINE, last: str = "") -> Shown:
    """Every recorded rung at its default knobs, up to ``last``, fair baselines, and the floor."""
    records = GpuRecords(DEFAULT_GPU, store)
    end = load_rung(last).id if last else None
    tried: dict[str, Tried] = {}
    for rung in list_rungs():
        if end is None or rung.id <= end:
            label = rung.id.split("_")[0]
            tried[label] = (rung.id, rung.resolve_knobs())
            if any(knob.name == "prefetch_v" for knob in rung.knobs):
                tried[f"{label}, V early"] = (rung.id, rung.resolve_knobs({"prefetch_v": 1}))
    tried |= {name: f"baseline:{name}" for name in LADDER_BASELINES}
    found = {label: records.find(one, workload) for label, one in tried.items()}
    chosen = {label: record for label, record in found.items() if record is not None}
    if not chosen:
        return make_note(NO_RECORD.format(what="the ladder", workload=workload))
    rate = best_read_gb_per_s(select(records.every))
    floor = floors(workload, load_gpu(DEFAULT_GPU), rate)
    floor_us = floor.time_at_given_us or floor.time_us
    bars = [bar_of_record(record, label) for label, record in chosen.items()]
    where = describe_records(chosen.values())
    return show_bars(bars, f"The ladder at {workload}", floor_us=floor_us, where=where)


def plot_confound(store: RecordStore, workload: Problem = HEADLINE) -> Shown:
    """Recorded times of r02 and r03 by unrolling, one line a block shape and launch bounds."""
    lines: dict[tuple[str, int], list[Record]] = {}
    for name in ("r02", "r03"):
        for record in store.query(DEFAULT_GPU, name, workload, kind="rung"):
            warps = record.launches[0].block[0] // 32 if record.launches else 0
            label = f"{name}, {warps} warp{'s' if warps > 1 else ''} a block"
            lines.setdefault((label, record.knobs["launch_bounds"]), []).append(record)
    if not lines:
        return make_note(NO_RECORD.format(what="r02 and r03", workload=workload))
    labels = sorted({label for label, _ in lines})

    def paint(axes: Axes) -> None:
        for (label, bounds), records in sorted(lines.items()):
            i = labels.index(label)
            look: dict[str, Any] = {"marker": MARKERS[i], "color": GREYS[min(i, 2)]}
            axes.plot(
                [record.knobs["unroll"] for record in records],
                [record.median_us for record in records],
                label=f"{label}{'' if bounds else ', no launch bounds'}",
                linestyle=LINES[0 if bounds else 1],
                markerfacecolor=look["color"] if bounds else "white",
                **look,
            )
        axes.set_xscale("log", base=2)
        axes.set_xticks([1, 2, 4, 8], ["1", "2", "4", "8"])
        axes.set(xlabel="rows in one trip of the loop (unroll)", ylabel="us")
        axes.set_ylim(bottom=0)
        axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.02, 1.0))

    told = []
    for (label, bounds), records in sorted(lines.items()):
        records.sort(key=lambda record: record.knobs["unroll"])
        times = (f"unroll {one.knobs['unroll']} {one.median_us:.0f}" for one in records)
        told.append(f"{label}{'' if bounds else ' without launch bounds'}: {', '.join(times)}")
    every = [record for line in lines.values() for record in line]
    alt = f"Times in microseconds by unrolling. {'; '.join(told)}."
    caption = f"Workload {workload}: {describe_records(every)}."
    return draw_picture(paint, alt, caption, "recorded", size=(8.6, 4.0))
