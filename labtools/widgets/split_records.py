"""Records of the splits and the reverts, each with what was done to the candidate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from labtools.predict import Forecast, forecast
from labtools.problem import Workload, load_rung
from labtools.record import Record, RecordStore, launch_shapes
from labtools.toolchain.listings import text_hash_of

from .provenance import Cell, Shown, Word, make_table
from .ratios import Speedup, describe_record, interval_as_said, read_ratio, say_ratio

PENDING = "not measured yet"
_forecasts: dict[Any, Forecast] = {}


@dataclass(frozen=True)
class Tried:
    """A rung as it was tried.

    Args:
        rung: its id or number.
        knobs: those that differ from its defaults.
        experiment: as in a record: empty, ``stream``, ``outside`` or ``stream+outside``.
        label: what a table calls it; by default its number.
    """

    rung: str
    knobs: Mapping[str, int] = field(default_factory=dict)
    experiment: str = ""
    label: str = ""

    @property
    def name(self) -> str:
        """What a table calls it."""
        return self.label or self.rung.split("_")[0]


class SplitRecords:
    """The records of one GPU, read once: a page compares many pairs.

    Args:
        gpu: slug of the GPU.
        store: where to look; by default the shipped records and the reader's own.
    """

    def __init__(self, gpu: str = "h200", store: RecordStore | None = None) -> None:
        self.gpu = gpu
        self._by_candidate: dict[tuple[str, str, str], list[Record]] = {}
        for record in (store or RecordStore()).query(
            gpu, kind="rung", experiment=None, latest=False
        ):
            key = (record.candidate, record.problem.key(), record.experiment)
            self._by_candidate.setdefault(key, []).append(record)

    def all_of(self, tried: Tried, workload: Workload) -> list[Record]:
        """Every record of it on a workload, newest first."""
        rung = load_rung(tried.rung)
        knobs = rung.resolve_knobs(tried.knobs)
        found = self._by_candidate.get((rung.id, workload.key(), tried.experiment), [])
        return [record for record in found if record.knobs == knobs]

    def find(self, tried: Tried, workload: Workload) -> Record | None:
        """The newest record of it on a workload, or None."""
        return next(iter(self.all_of(tried, workload)), None)

    def time_us(self, tried: Tried, workload: Workload) -> float | None:
        """Its recorded time, or None."""
        record = self.find(tried, workload)
        return record.median_us if record else None

    def forecast_us(self, tried: Tried, workload: Workload) -> float:
        """The forecast that was stored before the run, or one made now where there is no run."""
        record = self.find(tried, workload)
        if record is not None and record.forecast is not None:
            return record.forecast.time_us
        return forecast_of(tried, workload, self.gpu).time_us

    def ratio(self, first: Tried, second: Tried, workload: Workload) -> Speedup | None:
        """Time of ``first`` over time of ``second`` in the newest processes that timed both."""
        for below in self.all_of(second, workload):
            for above in self.all_of(first, workload):
                if above.campaign == below.campaign:
                    return read_ratio((above, below), "recorded")
        return None


def forecast_of(tried: Tried, workload: Workload, gpu: str = "h200") -> Forecast:
    """The forecast of its kernels; what it costs to allocate memory is in no forecast.

    A page asks for the same one many times, and two numbers of pieces may be the same launches, so
    answers are kept.
    """
    rung = load_rung(tried.rung)
    launches = tuple(launch_shapes(rung.launches(workload, tried.knobs)))
    defines = tuple(sorted(rung.defines(workload, tried.knobs).items()))
    key = (text_hash_of(rung), launches, defines, workload.key(), gpu)
    if key not in _forecasts:
        _forecasts[key] = forecast(rung, workload, gpu, tried.knobs)
    return _forecasts[key]


def show_tried(
    records: SplitRecords,
    tried: Sequence[Tried],
    workload: Workload,
    against: Tried | None = None,
) -> Shown:
    """Recorded times of some tries beside the forecast of their kernels.

    Args:
        records: what was measured.
        tried: the rows.
        workload: what all ran.
        against: compare each with it, where both shared their processes.
    """
    columns = ["what", "kernels, forecast (us)", "recorded (us)"]
    if against is not None:
        columns.append(f"against {against.name}")
    rows: list[list[Cell]] = []
    for one in tried:
        record = records.find(one, workload)
        row: list[Cell] = [
            one.name,
            say_time(records.forecast_us(one, workload)),
            say_time(record.median_us) if record else PENDING,
        ]
        if against is not None:
            found = records.ratio(against, one, workload) if one != against else None
            row.append(say_interval(found))
        row.append(Word("recorded", describe_record(record)) if record else Word("forecast"))
        rows.append(row)
    return make_table([*columns, "where from"], rows, f"Workload {workload}")


def say_time(time_us: float) -> str:
    """A time in microseconds to three significant digits."""
    return f"{time_us:.0f}" if time_us >= 100 else f"{time_us:.1f}"


def say_interval(found: Speedup | None) -> str:
    """A ratio in words with its interval, or that there is none."""
    if found is None:
        return "-"
    low, high = interval_as_said(found.value, found.interval or (found.value, found.value))
    return f"{say_ratio(found.value, found.interval)} ({low:.2f} to {high:.2f})"


def show_signs(
    records: SplitRecords,
    workloads: Sequence[Workload],
    pairs: Sequence[tuple[Tried, Tried]],
) -> Shown:
    """Over a sweep: is the second of each pair faster than the first, recorded and forecast?

    Args:
        records: what was measured.
        workloads: the rows.
        pairs: a column each, named after the second.
    """
    rows: list[list[Cell]] = []
    measured = 0
    for workload in workloads:
        row: list[Cell] = [workload.short()]
        for first, second in pairs:
            times = [records.forecast_us(one, workload) for one in (first, second)]
            found = records.ratio(first, second, workload)
            measured += found is not None
            row.append(say_interval(found) if found else PENDING)
            row.append(say_ratio(times[0] / times[1]))
        rows.append([*row, Word("recorded" if measured else "forecast")])
    columns = ["workload"]
    for first, second in pairs:
        what = f"{second.name} against {first.name}"
        columns += [f"{what}, recorded (95 %)", "forecast of the kernels"]
    return make_table([*columns, "where from"], rows)


def count_signs(
    records: SplitRecords, workloads: Sequence[Workload], first: Tried, second: Tried
) -> dict[str, int]:
    """How often the second is ``faster``, ``slower`` or the ``same``, and ``pending``."""
    counts = {"faster": 0, "same": 0, "slower": 0, "pending": 0}
    for workload in workloads:
        found = records.ratio(first, second, workload)
        word = say_ratio(found.value, found.interval) if found else "pending"
        counts[next(name for name in counts if name in word)] += 1
    return counts
