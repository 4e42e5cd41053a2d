"""Hardware counters of kernels, recorded or read now: what warps wait for, and a few rates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from labtools.predict import Gpu, gpu_of_device, list_gpus, load_gpu
from labtools.problem import HEADLINE, LabError, Problem, Rung, load_rung
from labtools.record import (
    Counters,
    Record,
    RecordedTime,
    RecordStore,
    Tried,
    as_variant,
    describe_record,
    describe_records,
    with_counters,
)
from labtools.record.bound import passes_apart, stall_shares

from .live import live_wanted
from .records import NO_RECORD, PENDING, GpuRecords
from .tables import Cell, Shown, Word, make_note, make_table, recorded, say_time, show_table

# What Nsight Compute's stall reasons mean for a warp of these kernels.
STALL_WORDS = {
    "long_scoreboard": "for a load from L1, L2 or DRAM",
    "short_scoreboard": "for shared memory, a shuffle or an exponential",
    "barrier": "for the other warps of the block",
    "wait": "for a result that takes a fixed number of cycles",
    "selected": "not waiting: it issues an instruction",
}
_RATES = (
    ("achieved_occupancy_pct", "% of an SM's warps"),
    ("issue_slot_pct", "% of the cycles in which a scheduler had a warp, with one issued"),
    ("dram_throughput_pct", "% of the memory's peak"),
    ("l2_hit_pct", "% of sectors found in the L2"),
)


def show_counters(
    candidate: str,
    workload: Problem = HEADLINE,
    knobs: Mapping[str, int] | None = None,
    gpu: str = "h200",
    most: int = 5,
    store: RecordStore | None = None,
) -> Shown:
    """The largest stall reasons and a few rates of one recorded rung.

    Args:
        knobs: its knobs; left out ones take their defaults.
    """
    found = GpuRecords(gpu, store).all_of((candidate, knobs or {}), workload)
    if not found:
        return make_note(NO_RECORD.format(what=f"{candidate} with counters", workload=workload))
    record = next(iter(with_counters(found)), found[0])
    counters = record.counters
    if counters is None or not counters.values:
        reason = counters.reason if counters else "they were not asked for"
        return make_note(f"The record of {candidate} has no counters: {reason}.")
    values = counters.values
    rows: list[tuple[str, float | None, str]] = [
        (_name_stall(reason), 100 * share, f"% of a warp's time{_explain(reason)}")
        for reason, share in list(stall_shares(values).items())[:most]
    ]
    for name, unit in _RATES:
        rows.append((name.removesuffix("_pct").replace("_", " "), values.get(name), unit))
    note = (
        f"{candidate} at {workload}, {describe_records([record])}, {counters.tool}; - where missing"
    ) + _say_apart(_records_apart({candidate: record}))
    return show_table(("counter", "value", "of what"), rows, word="recorded", note=note)


def _name_stall(reason: str) -> str:
    return "issuing: selected" if reason == "selected" else f"waiting: {reason.replace('_', ' ')}"


def _explain(reason: str) -> str:
    return f", {STALL_WORDS[reason]}" if reason in STALL_WORDS else ""


def compare_variants(
    variants: Mapping[str, Tried], workload: Problem = HEADLINE, gpu: str = "h200"
) -> Shown:
    """Recorded counters of some variants side by side, one column a variant."""
    found: dict[str, Record] = {}
    records = GpuRecords(gpu)
    for label, variant in variants.items():
        profiled = with_counters(records.all_of(variant, workload))
        if not profiled:
            what = f"the counters of {label}"
            return make_note(NO_RECORD.format(what=what, workload=workload))
        found[label] = profiled[0]
    values = [record.counters.values for record in found.values() if record.counters]
    shares = [stall_shares(counted) for counted in values]
    rows: list[tuple[object, ...]] = [
        (
            _name_stall(reason),
            *(100 * share[reason] if reason in share else None for share in shares),
            f"% of a warp's time{_explain(reason)}",
        )
        for reason in STALL_WORDS
    ]
    rows += [
        (name.removesuffix("_pct").replace("_", " "), *(v.get(name) for v in values), unit)
        for name, unit in _RATES
    ]
    read = [counted.get("dram_read_bytes") for counted in values]
    rows.append(("read from DRAM", *(None if x is None else x / 1e6 for x in read), "MB"))
    times = (counted.get("duration_us") for counted in values)
    rows.append(("time", *times, "us under the profiler, not the record's time"))
    tools = dict.fromkeys(r.counters.tool or "ncu" for r in found.values() if r.counters)
    note = (
        f"{workload}, {describe_records(list(found.values()))}, {', '.join(tools)}; - where missing"
    ) + _say_apart(_records_apart(found))
    return show_table(("counter", *found, "of what"), rows, word="recorded", note=note)


def _say_apart(named: Sequence[str]) -> str:
    """For a note: that the counters of these do not belong together; empty for none."""
    if not named:
        return ""
    return (
        f". Of {' and '.join(named)} the counters do not belong together: the profiler's runs of "
        "the kernel were not alike, so that time and bytes need not be those of the waits"
    )


def _records_apart(found: Mapping[str, Record]) -> list[str]:
    """The records whose counters do not belong together, by their labels."""
    return [
        label
        for label, record in found.items()
        if record.provenance.gpu_slug in list_gpus()
        and _apart(record.counters, load_gpu(record.provenance.gpu_slug))
    ]


def _apart(counters: Counters | None, gpu: Gpu) -> bool:
    return counters is not None and bool(passes_apart(counters.values, gpu.max_warps_per_sm))


def show_use(
    tried: Sequence[str],
    workload: Problem,
    against: str = "",
    gpu: str = "h200",
    store: RecordStore | None = None,
) -> Shown:
    """What recorded kernels use of a GPU's two peaks: by their time, and as the profiler counted.

    A rung that its author wrote broken has two rows. What it does as written stands where a time
    would; time and counters are of the point that is repaired.

    Args:
        tried: rungs by id and ``baseline:NAME``.
        against: a candidate that each time is held against; empty for none.
    """
    records, sheet = GpuRecords(gpu, store), load_gpu(gpu)
    rows: list[list[Cell]] = []
    for name in tried:
        label = _short(name)
        points = {} if name.startswith("baseline:") else _broken_points(load_rung(name))
        for point, does in points.items():
            rows.append([f"{label}, {point}", does, *("-" for _ in range(5)), Word("computed")])
        if points:
            label += ", repaired"
        record = records.find(name, workload)
        if record is None:
            rows.append([label, PENDING, *("-" for _ in range(5)), ""])
            continue
        profiled = with_counters(records.all_of(name, workload))
        ratio = records.ratio(against, name, workload) if against and against != name else None
        rates = (
            (workload.flops / record.median_us / 1e6, sheet.fp16_tensor_tflops),
            (workload.minimal_bytes / record.median_us / 1e3, sheet.dram_gb_per_s),
        )
        compute, memory = (f"{100 * rate / peak:.1f}" if peak else "-" for rate, peak in rates)
        tensor, dram = (
            "-" if counted is None else f"{counted:.1f}"
            for counted in (
                newest_counter(profiled, counter)
                for counter in ("pipe_tensor_pct", "dram_throughput_pct")
            )
        )
        time = say_time(RecordedTime.of(record))
        less = f"{ratio.value:.2f}" if ratio else "-"
        rows.append([label, time, less, compute, tensor, memory, dram, recorded(record)])
    columns = [
        *("kernel", "us", f"{_short(against)} over it"),
        *(
            "operations, %",
            "tensor cores, counted %",
            "bytes, %",
            "memory, counted %",
            "where from",
        ),
    ]
    if not against:
        columns, rows = columns[:2] + columns[3:], [row[:2] + row[3:] for row in rows]
    note = (
        f"{workload}. Operations and bytes: those of the problem, the bytes each once, over time "
        "and the data sheet's peak. Counted: by Nsight Compute, - where it was not"
    )
    return make_table(columns, rows, note, stacked=True)


def newest_counter(records: Sequence[Record], name: str) -> float | None:
    """A counter of the first record that has it: not every campaign reads the same ones."""
    found = (one.counters.values.get(name) for one in records if one.counters)
    return next((value for value in found if value is not None), None)


def _short(name: str) -> str:
    """``p00``, ``prefill_sdpa``."""
    kind, _, rest = name.rpartition(":")
    return rest if kind else as_variant(name).name


def _broken_points(rung: Rung) -> dict[str, str]:
    """What a rung that its author wrote broken does: as written, and where it no longer faults."""
    written = rung.as_written()
    calm = {
        name: value for name, value in written.items() if rung.broken({name: value}) != "faults"
    }
    points = {"as written": written, "its fault repaired alone": calm}
    return {point: does for point, knobs in points.items() if (does := rung.broken(knobs))}


def compare_counters(
    rungs: Sequence[str | Rung],
    workload: Problem,
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
        live: read now; None does so when a GPU is here.
    """
    loaded = [rung if isinstance(rung, Rung) else load_rung(rung) for rung in rungs]
    refused = Shown("", "")
    if live_wanted(live):
        shown, refused = _live_counters(loaded, workload, names)
        if shown is not None:
            return shown
    columns: list[Mapping[str, Any]] = []
    words: list[Word] = []
    found: dict[str, Record] = {}
    records = GpuRecords(gpu, store)
    for rung in loaded:
        record = next(iter(with_counters(records.all_of(rung.id, workload))), None)
        if record is None or record.counters is None:
            return refused + make_note(
                f"There are no recorded counters of {rung.id} for {workload} yet, and none were "
                "read here."
            )
        columns.append(record.counters.values)
        words.append(Word("recorded", describe_record(record)))
        found[rung.id] = record
    note = f"Workload {workload}{_say_apart(_records_apart(found))}"
    return refused + _counter_table(loaded, names, columns, words, note)


def _live_counters(
    rungs: Sequence[Rung], workload: Problem, names: Sequence[str]
) -> tuple[Shown | None, Shown]:
    from labtools.measure import profile_rung

    try:
        counted = [profile_rung(rung, workload).record_counters() for rung in rungs]
        gpu = gpu_of_device()
    except LabError as error:  # not installed, not permitted, or it ran into its time limit
        return None, make_note(f"{error.what} {error.why}. Recorded counters stand in.")
    apart = [
        rung.id
        for rung, counters in zip(rungs, counted, strict=True)
        if gpu and _apart(counters, gpu)
    ]
    columns = [counters.values for counters in counted]
    words = [Word("live", counters.tool or "") for counters in counted]
    note = f"Workload {workload}{_say_apart(apart)}"
    return _counter_table(rungs, names, columns, words, note), Shown("", "")


def _counter_table(
    rungs: Sequence[Rung],
    names: Sequence[str],
    columns: Sequence[Mapping[str, Any]],
    words: Sequence[Word],
    note: str,
) -> Shown:
    rows: list[list[Cell]] = []
    for name in names:
        values = [column.get(name) for column in columns]
        told = ["missing" if value is None else f"{value:,.4g}" for value in values]
        rows.append([name, *told])
    rows.append(["where from", *words])
    return make_table(["counter", *(rung.id for rung in rungs)], rows, note)
