"""The model held against measurements: point by point, by stratum, beside simpler forecasts.

The kernels that the model may be calibrated on and those that test it are told apart by family in
``points.toml``. The simpler forecasts are a roofline (bytes at the best measured rate) and a
constant (every kernel takes a fixed multiple of the roofline, the best one for the calibration
kernels).
"""

from __future__ import annotations

import functools
import math
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from labtools.problem import LabError, Workload, load_rung
from labtools.record import Record, counted_bound

from .calibration import machine_of
from .forecast import Forecast, forecast
from .roofline import floors
from .sheets import Gpu, load_gpu

DIRECTION_THRESHOLD = 0.05
"""Pairs that differ by less than this are not asked for their direction."""


@dataclass(frozen=True)
class Point:
    """One measured kernel and what was predicted for it.

    Attributes:
        rung, knobs, workload: what ran.
        stratum: one of those in ``points.toml``.
        split: ``calibration`` or ``test``.
        measured_us: median of the record.
        forecast_us, band_us, bound: the model's.
        roofline_us: bytes at the read ceiling, plus an empty launch.
        constant_us: the roofline times one constant, the best for the calibration kernels.
        counted: the bound that hardware counters show, or None where they are ambiguous.
        counted_reason: why.
    """

    rung: str
    knobs: Mapping[str, int]
    workload: Workload
    stratum: str
    split: str
    measured_us: float
    forecast_us: float
    band_us: tuple[float, float]
    bound: str
    roofline_us: float
    constant_us: float
    counted: str | None
    counted_reason: str

    @property
    def log2_ratio(self) -> float:
        """log2(forecast / measured): 0 is exact, 1 is twice too slow."""
        return math.log2(self.forecast_us / self.measured_us)

    @property
    def label(self) -> str:
        """Rung with its knobs."""
        knobs = " ".join(f"{name}={value}" for name, value in self.knobs.items())
        return f"{self.rung} {knobs}".strip()


@dataclass(frozen=True)
class Accuracy:
    """How far forecasts are from measurements.

    Attributes:
        points: how many.
        median: median of \\|log2(forecast / measured)\\|.
        within_10, within_35: share within a factor of 1.10 and of 1.35.
        worst: largest factor that a forecast is off by.
        bias: median of log2(forecast / measured).
    """

    points: int
    median: float
    within_10: float
    within_35: float
    worst: float
    bias: float


def accuracy(forecast_us: Sequence[float], measured_us: Sequence[float]) -> Accuracy:
    """Compare forecasts with measurements of the same points.

    Raises:
        LabError: there are none, or not equally many.
    """
    if not len(measured_us) or len(forecast_us) != len(measured_us):
        raise LabError(
            "There is nothing to compare.",
            f"{len(forecast_us)} forecasts and {len(measured_us)} measurements",
            "forecasts themselves",
        )
    off = np.log2(np.asarray(forecast_us) / np.asarray(measured_us))
    size = np.abs(off)
    return Accuracy(
        points=len(off),
        median=float(np.median(size)),
        within_10=float((size <= math.log2(1.10)).mean()),
        within_35=float((size <= math.log2(1.35)).mean()),
        worst=float(2 ** size.max()),
        bias=float(np.median(off)),
    )


@functools.lru_cache(maxsize=1)
def point_families() -> dict[str, tuple[str, ...]]:
    """The rungs that calibrate and those that test, from ``points.toml``."""
    data = tomllib.loads(Path(__file__).with_name("points.toml").read_text("utf-8"))
    return {name: tuple(ids) for name, ids in data["families"].items()}


def split_of(rung: str) -> str | None:
    """``calibration``, ``test``, or None for a kernel that is neither."""
    return next((name for name, ids in point_families().items() if rung in ids), None)


def points_of(
    records: Iterable[Record],
    stratum_of: Callable[[Record], str | None],
    gpu: Gpu | str = "h200",
    predict: Callable[[Record], Forecast] | None = None,
) -> list[Point]:
    """Forecast every recorded point and put the two side by side.

    Args:
        records: of rungs with a stratum; others are left out.
        stratum_of: what a record was measured for, or None.
        gpu: whose model is asked.
        predict: another way to a forecast (a stored one, say).
    """
    gpu = load_gpu(gpu) if isinstance(gpu, str) else gpu
    machine = machine_of(gpu)
    rate = machine.dram_bytes_per_cycle * machine.clock_ghz
    rows: list[dict[str, Any]] = []
    for record in records:
        stratum, split = stratum_of(record), split_of(record.name)
        if stratum is None or split is None or record.kind == "baseline":
            continue
        workload = record.problem
        made = (
            predict(record)
            if predict is not None
            else forecast(load_rung(record.name), workload, gpu, record.knobs)
        )
        roofline = floors(workload, gpu, gb_per_s=rate)
        counted, reason = None, "no counters were read"
        if record.counters is not None and record.counters.values:
            found = counted_bound(record.counters.values)
            counted, reason = found.bound, found.reason
        rows.append(
            {
                "rung": record.name,
                "knobs": dict(record.knobs),
                "workload": workload,
                "stratum": stratum,
                "split": split,
                "measured_us": record.median_us,
                "forecast_us": made.time_us,
                "band_us": made.band_us,
                "bound": made.bound,
                "roofline_us": (roofline.time_at_given_us or roofline.time_us)
                + machine.launch_us(1),
                "counted": counted,
                "counted_reason": reason,
            }
        )
    constant = _best_constant(rows)
    return [Point(**row, constant_us=row["roofline_us"] * constant) for row in rows]


def _best_constant(rows: Sequence[Mapping[str, Any]]) -> float:
    """The median of measured / roofline over the calibration kernels."""
    ratios = [
        row["measured_us"] / row["roofline_us"] for row in rows if row["split"] == "calibration"
    ]
    return float(np.median(ratios)) if ratios else 1.0


@dataclass(frozen=True)
class Pair:
    """Two points of one kernel and workload that differ in one knob.

    Attributes:
        first, second: the points.
        knob: what differs.
        measured_ratio, forecast_ratio: second over first.
    """

    first: Point
    second: Point
    knob: str
    measured_ratio: float
    forecast_ratio: float

    @property
    def right(self) -> bool:
        """The forecast moves the same way as the measurement."""
        return (self.measured_ratio > 1) == (self.forecast_ratio > 1)


def pairs_of(points: Sequence[Point], threshold: float = DIRECTION_THRESHOLD) -> list[Pair]:
    """Pairs of one kernel and workload that differ in one knob and truly differ in time.

    Args:
        threshold: the least relative difference of the measured times.
    """
    groups: dict[tuple[str, str], list[Point]] = {}
    for point in points:
        groups.setdefault((point.rung, point.workload.key()), []).append(point)
    found = []
    for members in groups.values():
        for place, first in enumerate(members):
            for second in members[place + 1 :]:
                differing = [
                    name
                    for name in first.knobs
                    if first.knobs[name] != second.knobs.get(name, first.knobs[name])
                ]
                ratio = second.measured_us / first.measured_us
                if len(differing) == 1 and abs(math.log(ratio)) > math.log1p(threshold):
                    found.append(
                        Pair(
                            first,
                            second,
                            differing[0],
                            ratio,
                            second.forecast_us / first.forecast_us,
                        )
                    )
    return found
