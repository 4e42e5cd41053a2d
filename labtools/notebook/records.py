"""Records as a page asks for them: of a GPU, its ratios, and tables that name GPU and day."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from labtools.predict import DEFAULT_GPU, Forecast, floors, forecast_each, load_gpu
from labtools.problem import HEADLINE, Problem, Rung, load_rung
from labtools.problem.rung import say_knobs
from labtools.record import (
    ForecastMade,
    Record,
    RecordedTime,
    RecordStore,
    Tried,
    Variant,
    as_variant,
    describe_records,
    freshness,
    pair,
    select,
    summary,
    timings_of,
)
from labtools.record.prediction import say_ratio
from labtools.record.query import timed_in_one_go
from labtools.record.staleness import read_pending
from labtools.toolchain.cache import Recent
from labtools.toolchain.listings import text_hash_of

from .figures import bar_of_record, show_bars
from .ratios import Speedup, read_ratio, say_speedup, speedup_cells
from .tables import Cell, Shown, Word, make_note, make_table, recorded, say_time

PENDING = "not measured yet"
_SHORT = re.compile(r"^([a-z]\d\d)_\w+")
NO_RECORD = "There is no record of {what} for {workload} yet."


class GpuRecords:
    """The records of one GPU by its slug (None: of any), read once: a page asks for many."""

    def __init__(self, gpu: str | None = "h200", store: RecordStore | None = None) -> None:
        self.gpu = gpu
        self.every = select((store or RecordStore()).load(), gpu=gpu, experiment=None)

    def all_of(self, tried: Tried, workload: Problem) -> list[Record]:
        """Every record of it on a workload, newest first."""
        return timings_of(self.every, tried, workload)

    def find(self, tried: Tried, workload: Problem) -> Record | None:
        """The newest record of it on a workload, or None."""
        return next(iter(self.all_of(tried, workload)), None)

    def time_us(self, tried: Tried, workload: Problem) -> RecordedTime | None:
        """Its newest recorded time, microseconds, or None. It knows its record, so that no sum,
        difference or ratio is made of times of different processes, and tables say them apart."""
        return time_of(self.find(tried, workload))

    def together(
        self, first: Tried, second: Tried, workload: Problem
    ) -> tuple[RecordedTime, RecordedTime] | None:
        """The newest times of two that shared their processes, microseconds, or None."""
        found = pair(self.every, first, second, workload)
        return (RecordedTime.of(found[0]), RecordedTime.of(found[1])) if found else None

    def times_together(
        self, tried: Sequence[Tried], workload: Problem
    ) -> list[RecordedTime | None]:
        """Times of several tries in the processes that timed most of them, the newer of two
        campaigns with as many, microseconds; None where these lack a try."""
        return [time_of(one) for one in timed_in_one_go(self.every, tried, workload)]

    def forecast_us(self, tried: Tried, workload: Problem) -> float:
        """The forecast that was stored before the run, or one made now where there is no run."""
        return self.forecasts_us([(tried, workload)])[0]

    def forecasts_us(self, asked: Sequence[tuple[Tried, Problem]]) -> list[float]:
        """`forecast_us` of each."""
        return [one.time_us for one in self.forecasts(asked)]

    def forecasts(self, asked: Sequence[tuple[Tried, Problem]]) -> list[ForecastMade | Forecast]:
        """The forecasts that were stored before the runs; where there is no run they are made
        now, side by side. Those stored have time, band and bound, and no shares."""
        records = [self.find(tried, workload) for tried, workload in asked]
        stored = [record and record.forecast for record in records]
        missing = [one for one, found in zip(asked, stored, strict=True) if found is None]
        made = iter(forecasts_of(missing, self.gpu or "h200"))
        return [found or next(made) for found in stored]

    def ratio(self, first: Tried, second: Tried, workload: Problem) -> Speedup | None:
        """Time of ``first`` over time of ``second`` in the newest processes that timed both."""
        return read_ratio(pair(self.every, first, second, workload), "recorded")


_forecasts: Recent[Forecast] = Recent(256)
"""A page asks for the same one many times, and two numbers of pieces may be the same launches. To
find one here costs a quarter of what reading it again does."""


def forecast_of(tried: Tried, workload: Problem, gpu: str = "h200") -> Forecast:
    """The forecast of its kernels; what it costs to allocate memory is in no forecast."""
    return forecasts_of([(tried, workload)], gpu)[0]


def forecasts_of(asked: Sequence[tuple[Tried, Problem]], gpu: str = "h200") -> list[Forecast]:
    """`forecast_of` each; those that this process has not made yet, side by side."""
    limits, keys = load_gpu(gpu).limits, []
    wanted: dict[tuple[object, ...], tuple[Rung, Problem, str, Mapping[str, int]]] = {}
    for tried, workload in asked:
        variant = as_variant(tried)
        rung, knobs = load_rung(variant.candidate), variant.knobs
        launches = tuple(rung.launches(workload, limits, knobs))
        defines = tuple(sorted(rung.defines(workload, limits, knobs).items()))
        keys.append((text_hash_of(rung), launches, defines, workload.key(), gpu))
        wanted[keys[-1]] = (rung, workload, gpu, knobs)
    known = {key: made for key in wanted if (made := _forecasts.get(key)) is not None}
    missing = [key for key in wanted if key not in known]
    made_now = forecast_each([wanted[key] for key in missing])
    for key, made in zip(missing, made_now, strict=True):
        known[key] = made
        _forecasts.put(key, made)
    return [known[key] for key in keys]


def time_of(record: Record | None) -> RecordedTime | None:
    """The time of a record that a page found by itself, microseconds; None without one."""
    return RecordedTime.of(record) if record else None


def recorded_speedup(
    baseline: Tried,
    candidate: Tried,
    workload: Problem,
    *,
    gpu: str | None = None,
    baseline_knobs: Mapping[str, int] | None = None,
    candidate_knobs: Mapping[str, int] | None = None,
    store: RecordStore | None = None,
) -> Speedup | None:
    """The newest recorded comparison of two that shared their processes, or None: baseline time /
    candidate time, with its interval. Knobs that are not named have their defaults."""
    first, second = (
        tried if knobs is None else Variant(as_variant(tried).candidate, knobs)
        for tried, knobs in ((baseline, baseline_knobs), (candidate, candidate_knobs))
    )
    return GpuRecords(gpu, store).ratio(first, second, workload)


def find_records(
    candidates: Sequence[str],
    workload: Problem = HEADLINE,
    *,
    gpu: str | None = None,
    knobs: Mapping[str, int] | None = None,
    defaults: bool = False,
    store: RecordStore | None = None,
) -> list[Record]:
    """The newest records of some rung ids and ``baseline:NAME`` on one workload, in the order asked
    for.

    A record must have the values of ``knobs``, where its rung has such a knob, and with
    ``defaults`` the rung's own values of all others.
    """
    every = (store or RecordStore()).query(gpu, None, workload)
    found = [record for name in candidates for record in select(every, candidate=name)]

    def fits(record: Record) -> bool:
        fixed = {**(record.default_knobs if defaults else {}), **(knobs or {})}
        return all(record.every_knob.get(name, value) == value for name, value in fixed.items())

    return list(filter(fits, found))


def show_records(
    candidates: str | Sequence[str],
    workload: Problem = HEADLINE,
    *,
    gpu: str | None = None,
    knobs: Mapping[str, int] | None = None,
    defaults: bool = True,
    store: RecordStore | None = None,
    check_fresh: bool = True,
) -> Shown:
    """A table of what was measured: median, spread, processes, where and when, and whether the
    record still belongs to the code.

    The candidates are rung ids and ``baseline:NAME``; knobs as in `find_records`. ``check_fresh``
    compiles and compares hashes, which takes a moment for each rung.
    """
    wanted = [candidates] if isinstance(candidates, str) else list(candidates)
    records = find_records(wanted, workload, gpu=gpu, knobs=knobs, defaults=defaults, store=store)
    missing = [name for name in wanted if not any(r.is_candidate(name) for r in records)]
    listed = read_pending()
    known = [str(listed[name]) for name in missing if name in listed]
    shown = make_note(
        f"There is no record of {', '.join(missing)} for {workload}. "
        + "".join(f"{one}. " for one in known)
        + "On a machine with a GPU, labtools record makes one."
    )
    if not records:
        return shown
    rows: list[list[Cell]] = []
    for record in records:
        spread = summary(record)
        half = "{:.1f} to {:.1f}".format(*spread.iqr_us)
        named = say_knobs(sorted(record.knobs.items()))
        row: list[Cell] = [record.candidate, named, f"{spread.median_us:.1f}", half]
        answer = freshness(record) if check_fresh else None
        state = "" if answer is None else "fresh" if answer.fresh else f"stale: {answer.reason}"
        rows.append([*row, str(spread.processes), recorded(record), state])
    columns = ["what", "knobs", "median (us)", "middle half (us)", "processes", "where from"]
    table = make_table([*columns, "state"], rows, f"Workload {workload}")
    return table + shown if missing else table


def show_ratios(pairs: Sequence[tuple[str, Tried, Tried]], workload: Problem = HEADLINE) -> Shown:
    """Recorded comparisons, one a row; each pair was timed in the same processes."""
    records = GpuRecords()
    rows: list[list[Cell]] = []
    for label, first, second in pairs:
        found = records.ratio(first, second, workload)
        if found is None:
            rows.append([label, "", "", "", "no record yet", ""])
            continue
        low, high = found.interval or (found.value, found.value)
        first_us, second_us, _, where = speedup_cells(found)
        ratio = f"{found.value:.3f} ({low:.3f} to {high:.3f})"
        words = say_ratio(found.value, found.interval)
        rows.append([label, first_us, second_us, ratio, words, where])
    columns = ("", "from (us)", "to (us)", "from / to (95 %)", "the second is", "where from")
    return make_table(columns, rows, f"Workload {workload}")


def show_against(
    candidate: str,
    baselines: Sequence[str],
    workload: Problem,
    *,
    gpu: str | None = None,
    store: RecordStore | None = None,
) -> Shown:
    """One candidate (a rung at its default knobs, or ``baseline:NAME``) against several, as
    recorded."""
    records = GpuRecords(gpu, store)
    rows: list[list[Cell]] = []
    for baseline in baselines:
        found = records.ratio(baseline, candidate, workload)
        cells = ["", "", "no record yet", ""] if found is None else speedup_cells(found)
        rows.append([baseline, *cells])
    columns = ["against", "its time (us)", f"{candidate} (us)", f"{candidate} is", "where from"]
    return make_table(columns, rows, f"Workload {workload}")


def show_tried(
    records: GpuRecords, tried: Sequence[Tried], workload: Problem, against: Tried | None = None
) -> Shown:
    """Recorded times of some tries beside the forecast of their kernels, each compared with
    ``against`` where both shared their processes."""
    base = None if against is None else as_variant(against)
    variants = [as_variant(one) for one in tried]
    pairs = {
        number: pair(records.every, base, variant, workload)
        for number, variant in enumerate(variants)
        if base is not None and variant != base
    }
    bases = [found[0] for found in pairs.values() if found]
    # What is broken on purpose has no time: the table says what it does in its place.
    broken = [one.is_rung and load_rung(one.candidate).broken(one.knobs) for one in variants]
    whole = [one for one, word in zip(variants, broken, strict=True) if not word]
    times = iter(records.forecasts_us([(variant, workload) for variant in whole]))
    rows: list[list[Cell]] = []
    for number, variant in enumerate(variants):
        if word := broken[number]:
            rows.append([variant.name, "-", word, "-", Word("computed")])
            continue
        shared = pairs.get(number)
        # The time of the processes that the ratio is of, so that each row agrees with itself.
        if number not in pairs and bases:
            record: Record | None = bases[0]
        else:
            record = shared[1] if shared else records.find(variant, workload)
        seen = say_time(RecordedTime.of(record)) if record else PENDING
        speedup = read_ratio(shared, "recorded")
        ratio = say_speedup(speedup) if speedup else "-"
        where = replace(recorded(record), also="forecast") if record else Word("forecast")
        rows.append([variant.name, say_time(next(times)), seen, ratio, where])
    columns = ["what", "forecast (us)", "recorded (us)"]
    columns += [f"against {base.name}" if base else "", "where from"]
    if base is None:
        columns, rows = [*columns[:3], columns[4]], [[*row[:3], row[4]] for row in rows]
    return make_table(columns, rows, f"Workload {workload}")


def plot_times(workload: Problem, *tried: Tried) -> Shown:
    """Recorded times of some tries, of the processes that timed most of them, and the floor of the
    bytes that each moves once, unless a kernel reads a cache of another precision. The caption
    names those that these did not time."""
    variants = [as_variant(one) for one in tried]
    stored = any(one.is_rung and load_rung(one.candidate).stores is not None for one in variants)
    kept = timed_in_one_go(GpuRecords(DEFAULT_GPU).every, tried, workload)
    bars, missing = [], []
    for variant, record in zip(variants, kept, strict=True):
        if record:
            bars.append(bar_of_record(record, variant.label or _SHORT.sub(r"\1", record.name)))
        else:
            missing.append(variant.label or variant.candidate)
    where = [describe_records([one for one in kept if one])] if bars else []
    where += [f"not timed beside these: {', '.join(missing)}"] if missing else []
    return show_bars(
        bars,
        workload.short(),
        floor_us=None if stored else floors(workload, load_gpu(DEFAULT_GPU)).time_us,
        where="; ".join(where),
        width=4.9,
    )


def show_signs(
    records: GpuRecords, workloads: Sequence[Problem], pairs: Sequence[tuple[Tried, Tried]]
) -> Shown:
    """Over a sweep: is the second of each pair faster than the first, recorded and forecast?"""
    rows: list[list[Cell]] = []
    measured = 0
    sides = [(side, workload) for workload in workloads for pair in pairs for side in pair]
    expected = iter(records.forecasts_us(sides))
    for workload in workloads:
        row: list[Cell] = [workload.short()]
        for first, second in pairs:
            times = [next(expected), next(expected)]
            found = records.ratio(first, second, workload)
            measured += found is not None
            row.append(say_speedup(found) if found else PENDING)
            row.append(say_ratio(times[0] / times[1]))
        rows.append([*row, Word("recorded" if measured else "forecast")])
    columns = ["workload"]
    for first, second in pairs:
        what = f"{as_variant(second).name} against {as_variant(first).name}"
        columns += [f"{what}, recorded (95 %)", "forecast of the kernels"]
    return make_table([*columns, "where from"], rows)


def count_signs(
    records: GpuRecords, workloads: Sequence[Problem], first: Tried, second: Tried
) -> dict[str, int]:
    """How often the second is ``faster``, ``slower`` or the ``same``, and ``pending``."""
    counts = {"faster": 0, "same": 0, "slower": 0, "pending": 0}
    for workload in workloads:
        found = records.ratio(first, second, workload)
        word = say_ratio(found.value, found.interval) if found else "pending"
        counts[next(name for name in counts if name in word)] += 1
    return counts
