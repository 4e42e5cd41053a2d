"""What the ladder's pages show: all rungs, the confound, counters, and live times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from labtools.predict import Gpu, floors, load_gpu
from labtools.problem import HEADLINE, LabError, Rung, Workload, list_rungs, load_rung
from labtools.record import Record, RecordStore, best_read_gb_per_s

from .figures import GREYS, LINES, MARKERS, draw_picture, show_table
from .gate import Gate
from .provenance import Shown, make_note
from .ratios import Speedup, read_ratio
from .show import bar_of_record, show_bars, where_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from labtools.measure import Timing

LADDER_BASELINES = ("sdpa", "sdpa_flash", "flashinfer")
"""Fair baselines that the ladder's figure shows, where they are recorded."""

_NO_RECORD = "There is no record of {what} for {workload} yet."


def plot_ladder(store: RecordStore, workload: Workload = HEADLINE, gpu: str = "h200") -> Shown:
    """Every recorded rung at its default knobs, fair baselines, and the floor.

    Args:
        store: where the records are.
        workload: what they ran.
        gpu: slug of the GPU.
    """
    chosen: list[tuple[str, Record]] = []
    for rung in list_rungs():
        for knobs in _ladder_knobs(rung):
            found = store.query(gpu, rung.id, workload, knobs)
            label = rung.id.split("_")[0] + (", V early" if knobs.get("prefetch_v") else "")
            chosen += [(label, record) for record in found[:1]]
    for name in LADDER_BASELINES:
        found = store.query(gpu, f"baseline:{name}", workload)
        chosen += [(name, record) for record in found[:1]]
    if not chosen:
        return make_note(_NO_RECORD.format(what="the ladder", workload=workload))
    records = [record for _, record in chosen]
    rate = best_read_gb_per_s(store.query(gpu, None, None, latest=False))
    sheet = _sheet_or_none(gpu)
    floor = None
    if sheet is not None:
        found_floors = floors(workload, sheet, rate)
        floor = found_floors.time_at_given_us or found_floors.time_us
    bars = [bar_of_record(record, label) for label, record in chosen]
    return show_bars(bars, f"The ladder at {workload}", floor_us=floor, where=where_of(records))


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


def plot_confound(store: RecordStore, workload: Workload = HEADLINE, gpu: str = "h200") -> Shown:
    """Recorded times of r02 and r03 by unrolling, one line a block shape and launch bounds.

    Args:
        store: where the records are.
        workload: what they ran.
        gpu: slug of the GPU.
    """
    lines: dict[tuple[str, int], list[Record]] = {}
    for name in ("r02", "r03"):
        for record in store.query(gpu, name, workload, kind="rung"):
            warps = record.launches[0].block[0] // 32 if record.launches else 0
            label = f"{name}, {warps} warp{'s' if warps > 1 else ''} a block"
            lines.setdefault((label, record.knobs["launch_bounds"]), []).append(record)
    if not lines:
        return make_note(_NO_RECORD.format(what="r02 and r03", workload=workload))
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
        axes.legend(fontsize=8)

    told = "; ".join(
        f"{label}{'' if bounds else ' without launch bounds'}: "
        + ", ".join(
            f"unroll {record.knobs['unroll']} {record.median_us:.0f}"
            for record in sorted(records, key=lambda record: record.knobs["unroll"])
        )
        for (label, bounds), records in sorted(lines.items())
    )
    every = [record for records in lines.values() for record in records]
    return draw_picture(
        paint,
        f"Times in microseconds by unrolling. {told}.",
        f"Workload {workload}: {where_of(every)}.",
        "recorded",
        size=(7.2, 4.0),
    )


def show_counters(
    candidate: str,
    workload: Workload = HEADLINE,
    knobs: Mapping[str, int] | None = None,
    gpu: str = "h200",
    most: int = 5,
) -> Shown:
    """The largest stall reasons and a few rates of one recorded rung.

    Args:
        candidate: a rung's id.
        workload: what it ran.
        knobs: its knobs; left out ones take their defaults.
        gpu: slug of the GPU.
        most: how many stall reasons.
    """
    resolved = load_rung(candidate).resolve_knobs(knobs)
    found = store_records(candidate, workload, resolved, gpu)
    if not found:
        return make_note(_NO_RECORD.format(what=f"{candidate} with counters", workload=workload))
    record = found[0]
    counters = record.counters
    if counters is None or not counters.values:
        reason = counters.reason if counters else "they were not asked for"
        return make_note(f"The record of {candidate} has no counters: {reason}.")
    values = counters.values
    latency = values.get("warp_latency_cycles")
    stalls = [
        (name.removeprefix("stall_").removesuffix("_cycles").replace("_", " "), cycles)
        for name, cycles in values.items()
        if name.startswith("stall_") and cycles is not None
    ]
    stalls.sort(key=lambda item: -item[1])
    rows: list[tuple[str, float | None, str]] = [
        (f"waiting: {name}", 100 * cycles / latency, "% of a warp's time")
        for name, cycles in stalls[:most]
        if latency
    ]
    for name, unit in (
        ("achieved_occupancy_pct", "% of an SM's warps"),
        ("issue_slot_pct", "% of cycles with an instruction issued"),
        ("dram_throughput_pct", "% of the memory's peak"),
        ("l2_hit_pct", "% of sectors found in the L2"),
    ):
        rows.append((name.removesuffix("_pct").replace("_", " "), values.get(name), unit))
    note = f"{candidate} at {workload}, {where_of([record])}, {counters.tool}; - where missing"
    return show_table(("counter", "value", "of what"), rows, word="recorded", note=note)


def store_records(
    candidate: str, workload: Workload, knobs: Mapping[str, int], gpu: str
) -> list[Record]:
    """Records of a candidate, those with counters first, newest first among equals."""
    found = RecordStore().query(gpu, candidate, workload, knobs, latest=False)
    return sorted(found, key=lambda r: not (r.counters and r.counters.values))


def time_here(
    candidates: Sequence[Any], workload: Workload = HEADLINE, gate: Gate | None = None
) -> Timing | None:
    """Time candidates on this machine's GPU and show the times; without a GPU say why not.

    Args:
        candidates: as `labtools.measure.time_candidates` takes them.
        workload: what they run.
        gate: its prediction must be committed first.

    Returns:
        The timing, or None without a GPU.

    Raises:
        PredictionPending: the gate waits for the reader.
    """
    from IPython.display import display

    from labtools.toolchain import cuda_status

    if gate is not None:
        gate.require_prediction()
    status = cuda_status()
    if not status.can_run_live:
        display(make_note(str(status.why_not_live())))
        return None
    from labtools.measure import time_candidates

    timing = time_candidates(candidates, workload)
    rows = [
        (record.candidate, _name_knobs(record), record.median_us, record.gb_per_s)
        for record in timing.records
    ]
    columns = ("what", "knobs", "median us", "GB/s of K and V, each counted once")
    display(show_table(columns, rows, word="live", note=f"Workload {workload}"))
    for label, why in timing.failures.items():
        display(make_note(f"{label} was not timed: {why}"))
    return timing


def live_speedup(
    timing: Timing | None,
    baseline: str,
    candidate: str,
    *,
    baseline_knobs: Mapping[str, int] | None = None,
    candidate_knobs: Mapping[str, int] | None = None,
) -> Speedup | None:
    """Baseline time over candidate time of what `time_here` measured; None where it did not.

    Args:
        timing: what `time_here` returned.
        baseline: ``r02``, ``baseline:sdpa`` and so on.
        candidate: the same.
        baseline_knobs: knobs that must have these values.
        candidate_knobs: the same.
    """
    if timing is None:
        return None
    first = timing.find(baseline, baseline_knobs)
    second = timing.find(candidate, candidate_knobs)
    return read_ratio((first, second), "live")


def _name_knobs(record: Record) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted(record.knobs.items())) or "-"
