"""The model held against measurements: point by point, by stratum, beside simpler forecasts: a
roofline and a constant multiple of it, the best one for the calibration kernels. ``points.toml``
tells by family the kernels that calibrate the model and those that test it."""

from __future__ import annotations

import functools
import math
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from labtools.problem import LabError, Problem, Rung, load_rung
from labtools.problem.rung import least_call_bytes, say_knobs
from labtools.record import Record
from labtools.record.bound import CountedBound, counted_bound

from .machine import Machine, machine_of
from .result import model_name
from .roofline import floors
from .sheets import Gpu, load_gpu

DIRECTION_THRESHOLD = 0.05
"""Pairs that differ by less than this are not asked for their direction."""
MEDIAN_TARGET = 0.14
"""Largest median of \\|log2(forecast / measured)\\| over all test points: a factor of 1.10."""
STRATUM_TARGET = 0.2
"""The same for the worst stratum: a factor of 1.15."""
WITHIN_FACTOR = 1.35
WITHIN_TARGET = 0.95
NEVER_FACTOR = 2.0
DIRECTION_TARGET = 0.95
QUALIFY_TARGET = 0.60

Which = Literal["forecast", "roofline", "constant"]


class Predicted(Protocol):
    """What is asked of a forecast; a record's stored one has it, and so has a fresh one."""

    @property
    def time_us(self) -> float: ...

    @property
    def bound(self) -> str: ...


@dataclass(frozen=True)
class JudgedKernel:
    """One measured kernel and what was predicted for it."""

    record: Record  # what ran, its measured time and its counters
    stratum: str  # one of those in ``points.toml``
    split: str  # ``calibration`` or ``test``
    # forecast_us, bound, model: the model's; microseconds
    forecast_us: float
    bound: str
    model: str
    roofline_us: float  # least bytes at the read ceiling, plus an empty launch
    constant_us: float  # the roofline times one constant, the best for the calibration kernels
    counted: CountedBound | None  # the bound that hardware counters show; None where none were read

    @property
    def rung(self) -> str:
        """The kernel's id."""
        return self.record.name

    @property
    def knobs(self) -> Mapping[str, int]:
        """Its compile-time choices."""
        return self.record.knobs

    @property
    def workload(self) -> Problem:
        """What it computed."""
        return self.record.problem

    @property
    def measured_us(self) -> float:
        """Median of the record."""
        return self.record.median_us

    @property
    def log2_ratio(self) -> float:
        """log2(forecast / measured): 0 is exact, 1 is twice too slow."""
        return math.log2(self.forecast_us / self.measured_us)

    @property
    def counted_bound(self) -> str | None:
        """The bound that the counters show where they are unambiguous."""
        return self.counted.bound if self.counted else None

    @property
    def label(self) -> str:
        """Rung's number with its knobs."""
        knobs = say_knobs(self.knobs, " ")
        return f"{self.rung.split('_')[0]} {knobs}".strip()

    def time_us(self, which: Which = "forecast") -> float:
        """The model's forecast, or one of the simpler ones; microseconds."""
        return float(getattr(self, f"{which}_us"))


@dataclass(frozen=True)
class Accuracy:
    """How far forecasts are from measurements."""

    points: int  # how many
    median: float  # of |log2(forecast / measured)|
    # within_10, within_35: share within a factor of 1.10 and of 1.35
    within_10: float
    within_35: float
    worst: float  # largest factor that a forecast is off by
    bias: float  # median of log2(forecast / measured)


def accuracy(forecast_us: Sequence[float], measured_us: Sequence[float]) -> Accuracy:
    """Compare forecasts with measurements. Raises LabError: there are none, or not equally many."""
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
        within_35=float((size <= math.log2(WITHIN_FACTOR)).mean()),
        worst=float(2 ** size.max()),
        bias=float(np.median(off)),
    )


def accuracy_of(points: Sequence[JudgedKernel], which: Which = "forecast") -> Accuracy:
    """Accuracy of the model, of the roofline or of the constant. Raises LabError: no point."""
    return accuracy([one.time_us(which) for one in points], [one.measured_us for one in points])


# ---------------------------------------------------------------------------------- the points


@functools.lru_cache(maxsize=1)
def points_file() -> dict[str, dict[str, Any]]:
    """What ``points.toml`` says: ``families``, the rungs that came ``later``, and ``strata``."""
    return tomllib.loads(Path(__file__).with_name("points.toml").read_text("utf-8"))


def point_families() -> dict[str, tuple[str, ...]]:
    """By ``calibration`` and ``test`` the ids of its kernels. Raises LabError: one is in both."""
    split = {name: tuple(ids) for name, ids in points_file()["families"].items()}
    both = set(split["calibration"]) & set(split["test"])
    if both:
        raise LabError(
            f"{sorted(both)} stand among the calibration and among the test kernels.",
            "a kernel that a forecast was calibrated on is no test of it",
            "correct labtools/predict/points.toml",
        )
    return split


def point_strata() -> dict[str, str]:
    """Every stratum with its meaning."""
    return dict(points_file()["strata"])


def split_of(rung: str) -> str | None:
    """``calibration``, ``test``, or None for a kernel that is neither."""
    return next((name for name, ids in point_families().items() if rung in ids), None)


def points_of(
    records: Iterable[Record],
    stratum_of: Callable[[Record], str | None],
    gpu: Gpu | str,
    predict: Callable[[Record], Predicted | None] | None = None,
) -> list[JudgedKernel]:
    """Forecast and measurement of every recorded point side by side. The forecast is that of the
    record, made before the run, unless ``predict`` makes it; ``stratum_of`` tells what a record was
    measured for."""
    gpu = load_gpu(gpu) if isinstance(gpu, str) else gpu
    machine = machine_of(gpu)
    rows: list[tuple[Record, str, str, Predicted, float]] = []
    for record in records:
        if record.kind != "rung":
            continue
        stratum, split = stratum_of(record), split_of(record.name)
        made = record.forecast if predict is None else predict(record)
        if stratum is None or split is None or made is None:
            continue
        rung = load_rung(record.name)
        roofline_us = bytes_roofline_us(rung, record.problem, gpu, record.knobs, machine)
        rows.append((record, stratum, split, made, roofline_us))
    constant = best_constant(
        [(roofline, record.median_us) for record, _, split, _, roofline in rows if split != "test"]
    )
    return [
        JudgedKernel(
            record=record,
            stratum=stratum,
            split=split,
            forecast_us=made.time_us,
            bound=made.bound,
            model=_model_of(record, predict is None),
            roofline_us=roofline_us,
            constant_us=roofline_us * constant,
            counted=_counted(record, gpu),
        )
        for record, stratum, split, made, roofline_us in rows
    ]


def _model_of(record: Record, stored: bool) -> str:
    """A stored forecast keeps the name it was made under; a fresh one is of the model as it is."""
    return record.forecast.model if stored and record.forecast else model_name()


def _counted(record: Record, gpu: Gpu) -> CountedBound | None:
    if record.counters is None or not record.counters.values:
        return None
    return counted_bound(record.counters.values, max_warps_per_sm=gpu.max_warps_per_sm)


def bytes_roofline_us(
    rung: Rung,
    workload: Problem,
    gpu: Gpu | str,
    knobs: Mapping[str, int] | None = None,
    machine: Machine | None = None,
) -> float:
    """The best that a roofline can say, microseconds: least bytes at the measured rate of the level
    that holds them, plus an empty launch. A kernel with its own, smaller cache reads that one."""
    gpu = load_gpu(gpu) if isinstance(gpu, str) else gpu
    machine = machine or machine_of(gpu)
    moved = least_call_bytes(workload, rung.launches(workload, gpu.limits, knobs))
    in_l2 = workload.cache_state == "warm" and moved <= gpu.l2_bytes
    per_cycle = machine.l2_bytes_per_cycle if in_l2 else machine.dram_bytes_per_cycle
    compute_us = floors(workload, gpu).compute_us or 0.0
    memory_us = moved / (per_cycle * machine.clock_ghz) / 1e3
    return max(memory_us, compute_us) + machine.launch_us(1)


def best_constant(pairs: Sequence[tuple[float, float]]) -> float:
    """The factor on simple forecasts of (simple, measured) pairs with the least median of
    |log2(forecast / measured)|: the middle of the shortest stretch of log2(measured / simple) that
    holds half of them; 1 without pairs."""
    if not pairs:
        return 1.0
    logs = np.sort(np.log2([measured / simple for simple, measured in pairs]))
    half = len(logs) // 2 + 1
    widths = logs[half - 1 :] - logs[: len(logs) - half + 1]
    start = int(widths.argmin())
    return float(2 ** ((logs[start] + logs[start + half - 1]) / 2))


# ------------------------------------------------------------------------------------- pairs


@dataclass(frozen=True)
class Pair:
    """Two points of one kernel and workload that differ in one knob."""

    # first, second: the points
    first: JudgedKernel
    second: JudgedKernel
    knob: str  # what differs
    # measured_ratio, forecast_ratio: second over first
    measured_ratio: float
    forecast_ratio: float

    @property
    def right(self) -> bool:
        """The forecast moves the same way as the measurement."""
        return (self.measured_ratio - 1) * (self.forecast_ratio - 1) > 0


def pairs_of(points: Sequence[JudgedKernel], threshold: float = DIRECTION_THRESHOLD) -> list[Pair]:
    """Pairs of one kernel and workload that differ in one knob and by ``threshold`` in time."""
    groups: dict[tuple[str, str], list[JudgedKernel]] = {}
    for point in points:
        groups.setdefault((point.rung, point.workload.key()), []).append(point)
    found = []
    for members in groups.values():
        for place, first in enumerate(members):
            for second in members[place + 1 :]:
                names = sorted({*first.knobs, *second.knobs})
                differing = [one for one in names if first.knobs.get(one) != second.knobs.get(one)]
                ratio = second.measured_us / first.measured_us
                if len(differing) == 1 and abs(math.log(ratio)) > math.log1p(threshold):
                    forecast_ratio = second.forecast_us / first.forecast_us
                    found.append(Pair(first, second, differing[0], ratio, forecast_ratio))
    return found


# ------------------------------------------------------------------------------------- bounds


@dataclass(frozen=True)
class BoundAgreement:
    """Forecast bounds held against counted ones."""

    points: int  # how many were asked
    qualifying: tuple[JudgedKernel, ...]  # those whose counters are unambiguous
    misses: tuple[JudgedKernel, ...]  # those of them where the forecast names another bound

    @property
    def share_qualifying(self) -> float:
        """Of all points, 0..1."""
        return len(self.qualifying) / self.points if self.points else 0.0

    @property
    def share_agreeing(self) -> float:
        """Of the qualifying points, 0..1."""
        return 1 - len(self.misses) / len(self.qualifying) if self.qualifying else 0.0


def bound_agreement(points: Sequence[JudgedKernel]) -> BoundAgreement:
    """Where counters are unambiguous, does the forecast name the same bound?"""
    clear = tuple(point for point in points if point.counted_bound is not None)
    missed = tuple(point for point in clear if point.counted_bound != point.bound)
    return BoundAgreement(len(points), clear, missed)


# ------------------------------------------------------------------------------------ targets


@dataclass(frozen=True)
class Target:
    """One thing that was asked of the model before the test."""

    name: str  # what
    wanted: str  # the limit in words
    found: str  # the number, in the same words
    met: bool  # it is


def check_targets(points: Sequence[JudgedKernel], which: Which = "forecast") -> list[Target]:
    """Hold test points against the limits of this module. Raises LabError: there is no point."""
    whole = accuracy_of(points, which)
    by_stratum = {
        name: accuracy_of([one for one in points if one.stratum == name], which).median
        for name in dict.fromkeys(one.stratum for one in points)
    }
    worst = max(by_stratum, key=lambda name: by_stratum[name])
    most, near = "|log2 ratio| at most {:g}", f"at least {WITHIN_TARGET:.0%}"
    error, good = whole.median, whole.median <= MEDIAN_TARGET
    told, worst_is_good = f"{by_stratum[worst]:.3f} ({worst})", by_stratum[worst] <= STRATUM_TARGET
    off, is_near = f"worst {whole.worst:.2f}", whole.within_35 >= WITHIN_TARGET
    targets = [
        Target("median error, all points", most.format(MEDIAN_TARGET), f"{error:.3f}", good),
        Target("median error, worst stratum", most.format(STRATUM_TARGET), told, worst_is_good),
        Target(f"within a factor of {WITHIN_FACTOR:g}", near, f"{whole.within_35:.1%}", is_near),
        Target(f"off by a factor of {NEVER_FACTOR:g}", "none", off, whole.worst < NEVER_FACTOR),
    ]
    if which != "forecast":
        return targets
    pairs, bounds = pairs_of(points), bound_agreement(points)
    if pairs:
        right = sum(pair.right for pair in pairs)
        share, limit = right / len(pairs), f"right for at least {DIRECTION_TARGET:.0%}"
        name = f"direction of one knob, times more than {DIRECTION_THRESHOLD:.0%} apart"
        told = f"{share:.1%} ({right} of {len(pairs)} pairs)"
        targets.append(Target(name, limit, told, share >= DIRECTION_TARGET))
    share, limit = bounds.share_qualifying, f"at least {QUALIFY_TARGET:.0%}"
    name = "points whose counters are unambiguous"
    return [*targets, Target(name, limit, f"{share:.1%}", share >= QUALIFY_TARGET)]
