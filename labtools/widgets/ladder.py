"""What the ladder's pages show: all rungs, the confound, counters, and live times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from labtools.predict import Gpu, floors, load_gpu
from labtools.problem import HEADLINE, LabError, Rung, Workload, list_rungs, load_rung
from labtools.record import Record, RecordStore, best_read_gb_per_s

from .figures import GREYS, LINES, MARKERS, draw_picture, show_table
from .gate import Gate
from .provenance import Cell, Shown, Word, make_note, make_table
from .ratios import Speedup, describe_record, read_ratio, say_ratio
from .show import bar_of_record, show_bars, where_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from labtools.measure import Timing

LADDER_BASELINES = ("sdpa", "sdpa_flash", "flashinfer")
"""Fair baselines that the ladder's figure shows, where they are recorded."""

_NO_RECORD = "There is no record of {what} for {workload} yet."

Candidate = tuple[str, Mapping[str, int]]
"""A rung's id or ``baseline:NAME``, and the knobs that differ from the defaults."""

# What Nsight Compute's stall reasons mean for a warp of these kernels.
_STALLS = {
    "long scoreboard": "for a load from L1, L2 or DRAM",
    "short scoreboard": "for shared memory, a shuffle or an exponential",
    "barrier": "for the other warps of the block",
    "wait": "for a result that takes a fixed number of cycles",
    "selected": "not waiting: it issues an instruction",
}
_RATES = (
    ("achieved_occupancy_pct", "% of an SM's warps"),
    ("issue_slot_pct", "% of cycles with an instruction issued"),
    ("dram_throughput_pct", "% of the memory's peak"),
    ("l2_hit_pct", "% of sectors found in the L2"),
)


def plot_ladder(
    store: RecordStore,
    workload: Workload = HEADLINE,
    gpu: str = "h200",
    last: str | None = None,
) -> Shown:
    """Every recorded rung at its default knobs, fair baselines, and the floor.

    Args:
        store: where the records are.
        workload: what they ran.
        gpu: slug of the GPU.
        last: a rung to end with; None draws all of them.
    """
    chosen: list[tuple[str, Record]] = []
    end = load_rung(last).id if last else None
    for rung in list_rungs():
        if end is not None and rung.id > end:
            continue
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
        axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.02, 1.0))

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
        size=(8.6, 4.0),
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
    shares = sorted(_stall_shares(values).items(), key=lambda item: -item[1])
    rows: list[tuple[str, float | None, str]] = [
        (_name_stall(name), share, f"% of a warp's time{_explain(name)}")
        for name, share in shares[:most]
    ]
    for name, unit in _RATES:
        rows.append((name.removesuffix("_pct").replace("_", " "), values.get(name), unit))
    note = f"{candidate} at {workload}, {where_of([record])}, {counters.tool}; - where missing"
    return show_table(("counter", "value", "of what"), rows, word="recorded", note=note)


def _stall_shares(values: Mapping[str, float | None]) -> dict[str, float]:
    """Percent of a warp's time by stall reason; reasons that are missing are left out."""
    latency = values.get("warp_latency_cycles")
    if not latency:
        return {}
    return {
        name.removeprefix("stall_").removesuffix("_cycles").replace("_", " "): 100
        * cycles
        / latency
        for name, cycles in values.items()
        if name.startswith("stall_") and cycles is not None
    }


def _name_stall(name: str) -> str:
    return "issuing: selected" if name == "selected" else f"waiting: {name}"


def _explain(name: str) -> str:
    return f", {_STALLS[name]}" if name in _STALLS else ""


def compare_variants(
    variants: Mapping[str, Candidate], workload: Workload = HEADLINE, gpu: str = "h200"
) -> Shown:
    """Recorded counters of some variants side by side, one column a variant.

    Args:
        variants: rung and knobs, by the label that heads its column.
        workload: what they ran.
        gpu: slug of the GPU.
    """
    found: dict[str, Record] = {}
    for label, (name, knobs) in variants.items():
        records = store_records(name, workload, load_rung(name).resolve_knobs(knobs), gpu)
        if not records or records[0].counters is None or not records[0].counters.values:
            what = f"the counters of {label}"
            return make_note(_NO_RECORD.format(what=what, workload=workload))
        found[label] = records[0]
    values = [record.counters.values for record in found.values() if record.counters]
    shares = [_stall_shares(one) for one in values]
    rows: list[tuple[object, ...]] = [
        (_name_stall(name), *(s.get(name) for s in shares), f"% of a warp's time{_explain(name)}")
        for name in _STALLS
    ]
    rows += [
        (name.removesuffix("_pct").replace("_", " "), *(v.get(name) for v in values), unit)
        for name, unit in _RATES
    ]
    read = [one.get("dram_read_bytes") for one in values]
    rows.append(("read from DRAM", *(None if x is None else x / 1e6 for x in read), "MB"))
    times = (one.get("duration_us") for one in values)
    rows.append(("time", *times, "us under the profiler, not the record's time"))
    tools = dict.fromkeys(r.counters.tool or "ncu" for r in found.values() if r.counters)
    note = f"{workload}, {where_of(list(found.values()))}, {', '.join(tools)}; - where missing"
    return show_table(("counter", *found, "of what"), rows, word="recorded", note=note)


def show_ratios(
    pairs: Sequence[tuple[str, Candidate, Candidate]],
    workload: Workload = HEADLINE,
    gpu: str = "h200",
) -> Shown:
    """Recorded comparisons, one a row; each pair was timed in the same processes.

    Args:
        pairs: label, baseline and candidate.
        workload: what all ran.
        gpu: slug of the GPU.
    """
    # The store is read once: a page compares many pairs.
    records = RecordStore().query(gpu, None, workload, latest=False)
    rows: list[list[Cell]] = []
    for label, first, second in pairs:
        found = _pair_up(records, first, second)
        if found is None:
            rows.append([label, "", "", "", "no record yet", ""])
            continue
        low, high = found.interval or (found.value, found.value)
        rows.append(
            [
                label,
                f"{found.baseline_us:.1f}",
                f"{found.candidate_us:.1f}",
                f"{found.value:.3f} ({low:.3f} to {high:.3f})",
                say_ratio(found.value, found.interval),
                Word(found.source, found.what),
            ]
        )
    columns = ("", "from (us)", "to (us)", "from / to (95 %)", "the second is", "where from")
    return make_table(columns, rows, f"Workload {workload}")


def find_ratio(
    first: Candidate, second: Candidate, workload: Workload = HEADLINE, gpu: str = "h200"
) -> Speedup | None:
    """Time of ``first`` over time of ``second`` as recorded, or None."""
    return _pair_up(RecordStore().query(gpu, None, workload, latest=False), first, second)


def _pair_up(records: Sequence[Record], first: Candidate, second: Candidate) -> Speedup | None:
    """The newest two records of ``first`` and ``second`` that shared their processes."""
    firsts, seconds = _records_of(records, first), _records_of(records, second)
    for below in seconds:
        for above in firsts:
            if above.campaign == below.campaign:
                return read_ratio((above, below), "recorded")
    return None


def _records_of(records: Sequence[Record], candidate: Candidate) -> list[Record]:
    name, knobs = candidate
    if name.startswith("baseline:"):
        return [record for record in records if record.is_candidate(name)]
    rung = load_rung(name)
    wanted = rung.resolve_knobs(knobs)
    return [r for r in records if r.candidate == rung.id and r.knobs == wanted]


def show_drift(noted: Mapping[str, Any], gpu: str = "h200") -> Shown:
    """Times noted on another GPU of the same kind beside the recorded ones.

    Args:
        noted: ``where``, ``workloads`` (short forms) and ``us``, a list a baseline.
        gpu: slug of the GPU of the records.
    """
    known = _baselines_of(gpu)
    used: list[Record] = []
    rows: list[list[Cell]] = []
    for i, short in enumerate(noted["workloads"]):
        cells: list[Cell] = [short]
        for name, times in noted["us"].items():
            found = known.get((name, Workload.parse(short).key()))
            if found is None:
                cells.append(f"{times[i]:.1f}, no record")
                continue
            us = found.median_us
            cells.append(f"{times[i]:.1f}, {us:.1f} ({100 * (us / times[i] - 1):+.1f} %)")
            used.append(found)
        rows.append([*cells, Word("claimed"), Word("recorded")])
    where = describe_record(used[0]) if used else "no record"
    caption = f"us noted ({noted['where']}), us recorded ({where}), change"
    return make_table(("workload", *noted["us"], "first time", "second time"), rows, caption)


def list_drifts(noted: Mapping[str, Any], gpu: str = "h200") -> list[float]:
    """Recorded over noted time of everything that `show_drift` compares."""
    known = _baselines_of(gpu)
    return [
        found.median_us / us
        for name, times in noted["us"].items()
        for short, us in zip(noted["workloads"], times, strict=True)
        if (found := known.get((name, Workload.parse(short).key())))
    ]


def _baselines_of(gpu: str) -> dict[tuple[str, str], Record]:
    """The newest record of every baseline on every workload."""
    records = RecordStore().query(gpu, kind="baseline")
    return {(r.name, r.problem.key()): r for r in reversed(records)}


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
