"""Hardware counters of kernels, recorded or read now: what warps wait for, and a few rates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from labtools.measure.profiler.counters import CHOSEN_COUNTERS
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
_COMPARED = (
    *("achieved_occupancy_pct", "theoretical_occupancy_pct", "registers_per_thread"),
    *("issue_slot_pct", "dram_throughput_pct", "l2_hit_pct"),
)
_RATES = ("achieved_occupancy_pct", "issue_slot_pct", "dram_throughput_pct", "l2_hit_pct")


def show_counters(
    candidate: str,
    workload: Problem = HEADLINE,
    knobs: Mapping[str, int] | None = None,
    store: RecordStore | None = None,
) -> Shown:
    """The five largest stall reasons and a few rates of one recorded rung."""
    found = GpuRecords(store=store).all_of((candidate, knobs or {}), workload)
    if not found:
        return make_note(NO_RECORD.format(what=f"{candidate} with counters", workload=workload))
    record = next(iter(with_counters(found)), found[0])
    counters = record.counters
    if counters is None or not counters.values:
        reason = counters.reason if counters else "they were not asked for"
        return make_note(f"The record of {candidate} has no counters: {reason}.")
    largest = list(stall_shares(counters.values))[:5]
    return _show_columns({candidate: record}, workload, largest, _RATES)


def compare_variants(variants: Mapping[str, Tried], workload: Problem = HEADLINE) -> Shown:
    """Recorded counters of some variants side by side, one column a variant."""
    found: dict[str, Record] = {}
    records = GpuRecords()
    for label, variant in variants.items():
        profiled = with_counters(records.all_of(variant, workload))
        if not profiled:
            what = f"the counters of {label}"
            return make_note(NO_RECORD.format(what=what, workload=workload))
        found[label] = profiled[0]
    return _show_columns(found, workload, STALL_WORDS, (*_RATES, "dram_read_bytes", "duration_us"))


def _show_columns(
    found: Mapping[str, Record], workload: Problem, stalls: Iterable[str], counters: Sequence[str]
) -> Shown:
    """Stall reasons and counters of records, in the words of ``counters.toml``."""
    counted = [record.counters for record in found.values() if record.counters]
    shares = [stall_shares(one.values) for one in counted]
    rows: list[tuple[object, ...]] = []
    for reason in stalls:
        kind = "issuing" if reason == "selected" else "waiting"
        words = f"% of a warp's time, {STALL_WORDS.get(reason, '')}".removesuffix(", ")
        known = (100 * share[reason] if reason in share else None for share in shares)
        rows.append((f"{kind}: {reason.replace('_', ' ')}", *known, words))
    for counter in (one for one in CHOSEN_COUNTERS if one.name in counters):
        assert counter.lab is not None
        values = (one.values.get(counter.name) for one in counted)
        told = (None if value is None else value / counter.lab.scale for value in values)
        words = f"%: {counter.doc}" if counter.unit == "%" else counter.lab.unit
        rows.append((counter.lab.label, *told, words))
    tools = ", ".join(dict.fromkeys(one.tool or "ncu" for one in counted))
    note = f"{workload}, {describe_records(list(found.values()))}, {tools}; - where missing"
    if "duration_us" in counters:
        note += "; the time under the profiler is not that of the record"
    note += _say_apart(_records_apart(found))
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
    tried: Sequence[str], workload: Problem, against: str = "", store: RecordStore | None = None
) -> Shown:
    """What recorded kernels use of a GPU's two peaks: by their time, and as the profiler counted,
    and how each stands to ``against`` where one is named.

    A rung that its author wrote broken has two rows. What it does as written stands where a time
    would; time and counters are of the point that is repaired.
    """
    records = GpuRecords(store=store)
    sheet = load_gpu(records.gpu or "")
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
        names = ("pipe_tensor_pct", "dram_throughput_pct")
        counted = (newest_counter(profiled, counter) for counter in names)
        tensor, dram = ("-" if value is None else f"{value:.1f}" for value in counted)
        time = say_time(RecordedTime.of(record))
        less = f"{ratio.value:.2f}" if ratio else "-"
        rows.append([label, time, less, compute, tensor, memory, dram, recorded(record)])
    columns = ["kernel", "us", f"{_short(against)} over it", "operations, %"]
    columns += ["tensor cores, counted %", "bytes, %", "memory, counted %", "where from"]
    if not against:
        columns, rows = columns[:2] + columns[3:], [row[:2] + row[3:] for row in rows]
    note = (
        f"{workload}. Operations and bytes: those of the problem, the bytes each once, over time "
        "and the data sheet's peak. Counted: by Nsight Compute, - where it was not"
    )
    return make_table(columns, rows, note)


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
    calm = {name: n for name, n in written.items() if rung.broken({name: n}) != "faults"}
    points = {"as written": written, "its fault repaired alone": calm}
    return {point: does for point, knobs in points.items() if (does := rung.broken(knobs))}


def compare_counters(
    rungs: Sequence[str | Rung],
    workload: Problem,
    names: Sequence[str] = _COMPARED,
    *,
    gpu: str | None = None,
    store: RecordStore | None = None,
    live: bool | None = None,
) -> Shown:
    """Hardware counters of some rungs with their default knobs, side by side.

    Live, which is asked for wherever a GPU is here, they are read now by Nsight Compute in a child
    process. Where that is not permitted or not installed, the reason is shown and the recorded
    counters stand in.
    """
    loaded = [rung if isinstance(rung, Rung) else load_rung(rung) for rung in rungs]
    refused = Shown("", "")
    if live_wanted(live):
        shown, refused = _live_counters(loaded, workload, names)
        if shown is not None:
            return shown
    found: dict[str, Record] = {}
    records = GpuRecords(gpu, store)
    for rung in loaded:
        profiled = with_counters(records.all_of(rung.id, workload))
        if not profiled:
            return refused + make_note(
                f"There are no recorded counters of {rung.id} for {workload} yet, and none were "
                "read here."
            )
        found[rung.id] = profiled[0]
    note = f"Workload {workload}{_say_apart(_records_apart(found))}"
    columns = {
        name: (record.counters, Word("recorded", describe_record(record)))
        for name, record in found.items()
        if record.counters
    }
    return refused + _counter_table(columns, names, note)


def _live_counters(
    rungs: Sequence[Rung], workload: Problem, names: Sequence[str]
) -> tuple[Shown | None, Shown]:
    from labtools.measure import profile_rung

    try:
        counted = {rung.id: profile_rung(rung, workload).record_counters() for rung in rungs}
        gpu = gpu_of_device()
    except LabError as error:  # not installed, not permitted, or it ran into its time limit
        return None, make_note(f"{error.what} {error.why}. Recorded counters stand in.")
    apart = [name for name, counters in counted.items() if gpu and _apart(counters, gpu)]
    columns = {name: (one, Word("live", one.tool or "")) for name, one in counted.items()}
    note = f"Workload {workload}{_say_apart(apart)}"
    return _counter_table(columns, names, note), Shown("", "")


def _counter_table(
    columns: Mapping[str, tuple[Counters, Word]], names: Sequence[str], note: str
) -> Shown:
    rows: list[list[Cell]] = []
    for name in names:
        values = [counters.values.get(name) for counters, _ in columns.values()]
        rows.append([name, *("missing" if x is None else f"{x:,.4g}" for x in values)])
    rows.append(["where from", *(word for _, word in columns.values())])
    return make_table(["counter", *columns], rows, note)
