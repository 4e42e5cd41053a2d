"""Where points are timed: on the recorded grid, by the forecast, or live on a GPU. Each says where
its times come from, how two compare, and what the smallest effect is that it can tell."""

from __future__ import annotations

import contextlib
import math
import statistics
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, Self

from labtools.predict import (
    DEFAULT_GPU,
    Forecast,
    Gpu,
    forecast,
    forecast_each,
    load_gpu,
    model_name,
)
from labtools.predict.machine import machine_of
from labtools.problem import LabError, Problem, operation_of
from labtools.record import ProcessSamples, Samples, median_us
from labtools.toolchain.listings import MachineCode, machine_code
from labtools.toolchain.progress import Progress, silent

from .accuracy import ForecastError, forecast_error
from .attribution import AA, UNBOUNDED, TimeRatio, least_effect_of, noise_of, ratio_of
from .code_numbers import ExecutedPlaces, executed_by
from .family import Family, Point
from .gaps import Gaps, counters_of_forecast, gaps_of_forecast, gaps_of_predicted
from .grid import Grid, samples_of
from .method import Method
from .sass_check import Proof, SassVerdict, check_sass, judge_counts, judge_proof
from .score import ScoreEnds

TimedOn = Literal["recorded", "forecast", "gpu"]
TimesFrom = Literal["recorded", "forecast", "live"]


@dataclass(frozen=True)
class TimedPoints:
    """Points timed in one call, with equal repeats."""

    samples: dict[Point, Samples]  # of each point that was right and has a time
    failures: dict[Point, str] = field(default_factory=dict)  # why the others have none

    def median_us(self, point: Point) -> float:
        """The median time of a point, microseconds."""
        if point not in self.samples:
            why = self.failures.get(point, "it was not timed")
            raise LabError(f"{point.key} has no time.", why, "the other points")
        return median_us(self.samples[point])


class TimingBench(ABC):
    """Where a family's points are timed at a workload; codes and forecasts by the data sheet."""

    origin: TimesFrom  # of the times
    one_call = False  # only what was timed in one call may be compared
    forecasts_are_kept = False  # those of all points are there

    def __init__(self, family: Family, problem: Problem, sheet: Gpu, progress: Progress) -> None:
        self.family, self.problem, self.sheet = family, problem, sheet
        self.gpu, self.limits = sheet.name, sheet.limits
        self.progress = progress
        self._forecasts: dict[tuple[Point, Problem], Forecast | LabError] = {}
        self._ran: dict[tuple[Point, str], ExecutedPlaces] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        return None

    # ------------------------------------------------------------------------------- times

    @abstractmethod
    def time(self, points: Sequence[Point], problem: Problem | None = None) -> TimedPoints:
        """Time points in one call; None takes the bench's workload."""

    @abstractmethod
    def ratio(self, timed: TimedPoints, above: Point, below: Point) -> TimeRatio:
        """Time of one point over another's, with its 95 % interval; both were timed."""

    @abstractmethod
    def least_effect(self) -> AA:
        """The smallest effect that can be told here, by identical kernels."""

    @abstractmethod
    def check(self, points: Sequence[Point]) -> dict[Point, str | None]:
        """What is wrong with the answers of each point, or None."""

    @abstractmethod
    def floor_us(self) -> float | None:
        """A plain read of the bulk at its best rate and an empty launch, microseconds, or None."""

    @abstractmethod
    def environment(self) -> dict[str, Any]:
        """Versions and what else the times depend on."""

    def known_us(self, points: Sequence[Point]) -> dict[Point, float]:
        """Times that are known without a run, microseconds; a point without one is left out."""
        return {}

    def best_of_grid(self) -> tuple[Point, float] | None:
        """The fastest point of all, and its time in microseconds, where that is known."""
        return None

    def best_leading(self) -> tuple[Point, float] | None:
        """The same of the points that a round may lead with."""
        return None

    def score_ends(self) -> ScoreEnds | None:
        """Floor and fastest fair library at the workload; None where one is not known."""
        return None

    # ------------------------------------------------------------------------------ points

    @cached_property
    def _may_lead(self) -> frozenset[Point]:
        return frozenset(self.family.leading)

    def crowns(self, point: Point) -> bool:
        """Whether a point may lead a round, if it can be launched here; what is written may."""
        return bool(point.source) or point in self._may_lead

    def holds(self, point: Point) -> bool:
        """Whether anything can be known of a point here."""
        return True

    @cached_property
    def leading(self) -> list[Point]:
        """The points that a round may lead with, where `refuses` does not say otherwise."""
        return list(self.family.leading)

    def refuses(self, point: Point) -> str | None:
        """Why a point may not be a branch here, or None."""
        if not self.crowns(point):
            return "it is no point of the family's grid"
        try:
            self.family.rung_at(point).launches(self.problem, self.limits, point.knobs)
        except LabError as error:
            return error.why or error.what
        return None

    # -------------------------------------------------------------------- code and forecasts

    def code(self, point: Point) -> MachineCode:
        """Its machine code, compiled here."""
        return machine_code(self.family.rung_at(point), self.problem, self.limits, point.knobs)

    def look_for(
        self, point: Point, removed: Mapping[str, Point | None], proved: Mapping[str, Proof]
    ) -> tuple[SassVerdict, ...]:
        """What a point's machine code says of methods, each against the point without it in
        ``removed`` (None where it cannot be taken out alone); ``proved`` is for methods without a
        signature."""
        before = {name: self.code(left) for name, left in removed.items() if left is not None}
        code, entry = self.code(point), self.entry(point)
        entries = {}
        for name, its in before.items():  # what is written may call its kernel otherwise
            left = removed[name]
            assert left is not None
            if entry not in its.entries and (other := self.entry(left)) is not None:
                entries[name] = other

        def ran(without: str | None) -> ExecutedPlaces:
            looked, its = (point, code) if without is None else (removed[without], before[without])
            assert looked is not None  # else there is no code to compare with
            looked_at = entries.get(without or "") or entry or next(iter(code.entries))
            return self._executed(looked, its, looked_at)

        return check_sass(self.family, removed, code, before, entry, proved, ran, entries)

    def _executed(self, point: Point, code: MachineCode, entry: str) -> ExecutedPlaces:
        """What a launch of a point, which has that code, executes of a kernel function."""
        if (point, entry) not in self._ran:
            asked = (self.family.rung_at(point), self.problem, self.limits, point.knobs)
            self._ran[point, entry] = executed_by(*asked, code, entry)
        return self._ran[point, entry]

    def forecast_of(self, point: Point, problem: Problem | None = None) -> Forecast:
        """The forecast of a point."""
        key = (point, problem or self.problem)
        if key not in self._forecasts:
            try:
                made: Forecast | LabError = forecast(
                    self.family.rung_at(point), key[1], self.sheet, dict(point.knobs)
                )
            except LabError as error:
                made = error
            self._forecasts[key] = made
        found = self._forecasts[key]
        if isinstance(found, LabError):
            raise found
        return found

    def forecasts_us(self, points: Sequence[Point]) -> dict[Point, float]:
        """Forecast times, microseconds; a point without one is left out."""
        asked = [
            (self.family.rung_at(one), self.problem, self.sheet, dict(one.knobs)) for one in points
        ]
        with contextlib.suppress(LabError):  # side by side; what cannot be forecast says so below
            forecast_each(asked)
        found = {}
        for number, point in enumerate(points):
            self.progress("forecasting", number, len(points))
            with contextlib.suppress(LabError):
                found[point] = self.forecast_of(point).time_us
        return found

    def look_ahead(self, points: Sequence[Point]) -> None:
        """Find out together, which is sooner, what `shares` and `gaps` will say of each point."""
        self.forecasts_us(points)

    def entry(self, point: Point) -> str | None:
        """Its kernel function that takes longest; None where nobody knows."""
        try:
            return self.forecast_of(point).main_launch.entry
        except LabError:
            return None

    def numbers(self, point: Point) -> Mapping[str, float | None]:
        """`ExecutedPlaces.numbers` of its longest kernel function, which prove methods; may be
        empty."""
        entry = self.entry(point)
        if entry is None:
            return {}
        code = self.code(point)
        try:
            return self._executed(point, code, entry).numbers
        except LabError:
            return {}

    def shares(self, point: Point) -> Mapping[str, float | None]:
        """Counters of a point by stable names: measured, or those that the forecast predicts."""
        return dict(counters_of_forecast(self.forecast_of(point)))

    def gaps(self, point: Point) -> Gaps:
        """How far a point is from the peaks."""
        return gaps_of_forecast(self.forecast_of(point))

    def _read_floor_us(self, sweeps: Iterable[tuple[Problem, float]] = ()) -> float | None:
        """The workload's bulk at a plain read's best rate and an empty launch, microseconds."""
        rates, empty_us = [], 0.0
        with contextlib.suppress(LabError):  # a GPU without a record or a data sheet
            machine = machine_of(self.sheet)
            empty_us = machine.launch_us(1)
            rates.append(machine.dram_bytes_per_cycle * machine.clock_ghz * 1e3)
        rates += [of.streamed_bytes / (us - empty_us) for of, us in sweeps if us > empty_us]
        return self.problem.streamed_bytes / max(rates) + empty_us if rates else None


# -------------------------------------------------------------------------------- recorded


_NOT_THERE = "the recorded grid does not have it"


class RecordedBench(TimingBench):
    """Times, forecasts and counters from a recorded grid. Two points may have been timed in two
    batches, minutes apart, so their ratio's interval comes from both samples and the campaign's
    identical kernels. The best points were timed again side by side; see `ratio`."""

    origin: TimesFrom = "recorded"
    forecasts_are_kept = True

    def __init__(
        self, family: Family, problem: Problem, grid: Grid, progress: Progress = silent
    ) -> None:
        if family.rung.id != grid.plan.rung:
            raise LabError(
                f"The grid is of {grid.plan.rung}, and the family is {family.rung.id}.",
                "a grid speaks of its own kernel",
                "--on forecast",
            )
        super().__init__(family, problem, load_gpu(grid.plan.gpu), progress)
        self.grid = grid
        self._at = grid.at_workload(problem)

    def refuses(self, point: Point) -> str | None:
        """Why a point may not be a branch here, or None."""
        number = self.grid.number(point)
        if number is None or not self.crowns(point):
            return "it is no point of the recorded grid"
        return self._failure(number, self.problem)

    def holds(self, point: Point) -> bool:
        """Whether the grid has a point."""
        return self.grid.number(point) is not None

    @cached_property
    def leading(self) -> list[Point]:
        """The points that a round may lead with."""
        return [one for one in self.family.leading if self.refuses(one) is None]

    def _failure(self, number: int | None, problem: Problem) -> str | None:
        """Why a point has no time; None where it has one."""
        if number is None:
            return _NOT_THERE
        if number in self.grid.problems:
            return self.grid.problems[number]
        return self.grid.at_workload(problem).failures.get(number)

    def time(self, points: Sequence[Point], problem: Problem | None = None) -> TimedPoints:
        """What the campaign measured of them."""
        wanted = problem or self.problem
        samples, failures = {}, {}
        for one in points:
            number = self.grid.number(one)
            found = None if number is None else self.grid.samples(number, wanted)
            if found is not None:
                samples[one] = found
            else:
                failures[one] = self._failure(number, wanted) or _NOT_THERE
        return TimedPoints(samples, failures)

    @cached_property
    def identical(self) -> list[tuple[Samples, Samples]]:
        """Identical kernels; of two batches where there are any, as most points are."""
        every = self.grid.identical(self.problem)
        chosen = [one for one in every if one[2]] or every
        return [(samples_of([a], self._at), samples_of([b], self._at)) for a, b, _ in chosen]

    @cached_property
    def noise(self) -> float:
        """The logarithm of the factor that identical kernels of the campaign stay within."""
        return noise_of(self.identical)

    def ratio(self, timed: TimedPoints, above: Point, below: Point) -> TimeRatio:
        """Ratio of two points; its interval by both samples and by the campaign's A/A run, or where
        it timed both side by side, in turns, by those samples and identical kernels among them."""
        beside = self._side_by_side(above), self._side_by_side(below)
        if beside[0] and beside[1]:
            return ratio_of(beside[0], beside[1], self._noise_in_turns)
        return ratio_of(timed.samples[above], timed.samples[below], self.noise)

    def in_turns(self, first: Point, second: Point) -> bool:
        """Whether the campaign timed two points side by side, in turns."""
        return None not in (self._side_by_side(first), self._side_by_side(second))

    def _side_by_side(self, point: Point) -> Samples | None:
        """Samples of the full protocol, which took the headline's best points."""
        full, number = self.grid.full, self.grid.number(point)
        if full is None or number not in full.samples or self._at is not self.grid.at[0]:
            return None
        return samples_of(full.samples[number], self._at)

    @cached_property
    def identical_in_turns(self) -> list[tuple[Samples, Samples]]:
        """Identical kernels that the full protocol timed side by side."""
        full = self.grid.full
        if full is None:
            return []
        return [
            (samples_of(full.samples[number], self._at), samples_of(again, self._at))
            for number, again in full.again.items()
        ]

    @cached_property
    def _noise_in_turns(self) -> float:
        return noise_of(self.identical_in_turns)

    @cached_property
    def _least(self) -> AA:
        if not self.identical:
            raise LabError(
                "The recorded grid has no identical kernels.",
                "what can be told follows from them",
                "a grid that was measured with them",
            )
        return least_effect_of(self.identical, self.origin, self.noise)

    def least_effect(self) -> AA:
        """The smallest effect that the campaign can tell."""
        return self._least

    def check(self, points: Sequence[Point]) -> dict[Point, str | None]:
        """What the campaign found wrong with each."""
        return {one: self._failure(self.grid.number(one), self.problem) for one in points}

    def look_ahead(self, points: Sequence[Point]) -> None:
        """All is known."""

    def shares(self, point: Point) -> Mapping[str, float | None]:
        """The counters that the forecast of the campaign predicted."""
        number = self._number(point)
        found = {name: column[number] for name, column in self._at.counters.items()}
        return {name: value for name, value in found.items() if value is not None}

    def gaps(self, point: Point) -> Gaps:
        """The gaps that the forecast of the campaign showed."""
        bound = self._at.bound[self._number(point)]
        if bound is None:
            raise LabError(f"The recorded grid has no forecast of {point.key}.", "", "another one")
        return gaps_of_predicted(self.shares(point), bound)

    def numbers(self, point: Point) -> Mapping[str, float | None]:
        """Numbers of its machine code, as the campaign found them."""
        number = self._number(point)
        return {name: column[number] for name, column in self.grid.numbers.items()}

    def code_hash(self, point: Point) -> str | None:
        """Hash of the machine code that was timed; None where there was none."""
        number = self._at.code[self._number(point)]
        return None if number < 0 else self.grid.codes[number]

    def look_for(
        self, point: Point, removed: Mapping[str, Point | None], proved: Mapping[str, Proof]
    ) -> tuple[SassVerdict, ...]:
        """What the campaign counted in the code that it timed; what it did not count is compiled
        here."""
        entry, found = self.entry(point), list[SassVerdict]()
        for name, left in removed.items():
            method = self.family.method(name)
            verdict = None
            if entry is not None and not method.signature:
                verdict = judge_proof(method, proved.get(name), entry)
            elif entry is not None and (left is None or entry == self.entry(left)):
                number = None if left is None else self._number(left)
                verdict = self._judge(method, entry, self._number(point), number)
            found += [verdict] if verdict else super().look_for(point, {name: left}, proved)
        return tuple(found)

    def _judge(
        self, method: Method, entry: str, number: int, left: int | None
    ) -> SassVerdict | None:
        """The verdict on a signature that the campaign counted at both points, or at the one that
        it has."""
        counts = self.grid.count_patterns(number, method.patterns)
        if left is None:
            return None if counts is None else judge_counts(method, counts, None, entry)
        without = self.grid.count_patterns(left, method.patterns)
        if counts is None or without is None:
            return None
        same_code = self._at.code[number] == self._at.code[left]
        found = judge_counts(method, counts, without, entry, same_code)
        code = self.grid.codes[self._at.code[number]][:12]
        said = (
            f"all instructions of {entry}, executed or not, counted by the campaign in code {code}"
        )
        return replace(found, origin=said)

    def entry(self, point: Point) -> str | None:
        """Its kernel function that takes longest, as the campaign had it."""
        return self.grid.entries[self._number(point)]

    def forecasts_us(self, points: Sequence[Point]) -> dict[Point, float]:
        """The forecasts that were made before the campaign timed anything."""
        numbers = {one: self.grid.number(one) for one in points}
        made = {one: self._at.forecast_us[n] for one, n in numbers.items() if n is not None}
        return {one: time_us for one, time_us in made.items() if time_us is not None}

    def best_of_grid(self) -> tuple[Point, float] | None:
        """The fastest point of the grid, those that are there to take a method out included."""
        if not any(self._at.samples):
            return None
        number, time_us = self.grid.best(self.problem)
        return self._points[number], time_us

    def best_leading(self) -> tuple[Point, float] | None:
        """The fastest point of the grid that a round may lead with."""
        found = [
            (time_us, number)
            for number, us in enumerate(self._at.samples)
            if us and self.crowns(self._points[number])
            for time_us in [statistics.median(us)]
        ]
        if not found:
            return None
        time_us, number = min(found)
        return self._points[number], time_us

    @cached_property
    def _points(self) -> list[Point]:
        return [self.family.point(self.grid.plan.knobs_of(n)) for n in range(len(self.grid))]

    def _number(self, point: Point) -> int:
        number = self.grid.number(point)
        if number is None:
            raise LabError(f"The recorded grid does not have {point.key}.", "", "another point")
        return number

    def floor_us(self) -> float | None:
        """By the read sweeps of the campaign, at all of its workloads, and of the GPU's record."""
        return self._read_floor_us(
            (at.workload, statistics.median(us))
            for at in self.grid.at
            for name, rows in at.anchors.items()
            if name.startswith("ceiling:")
            for us in rows.values()
        )

    def known_us(self, points: Sequence[Point]) -> dict[Point, float]:
        """Of every point that the campaign timed."""
        timed = self.time(points)
        return {one: timed.median_us(one) for one in timed.samples}

    def score_ends(self) -> ScoreEnds | None:
        """By the libraries that the campaign timed in the same processes."""
        return ends_of(
            self.floor_us(),
            {
                name: statistics.median(us for times in rows.values() for us in times)
                for name, rows in self._at.anchors.items()
            },
        )

    def environment(self) -> dict[str, Any]:
        """Of the campaign."""
        made = self.grid.provenance
        return {
            "grid": f"{self.grid.plan.rung} on {self.grid.plan.gpu}",
            "points": len(self.grid),
            "model": self.grid.plan.model,
            "measured": made.date.isoformat(),
            "gpu": made.gpu,
            "nvrtc": self.grid.nvrtc_version,
            **{name: value for name, value in made.versions.items() if value is not None},
        }


# -------------------------------------------------------------------------------- forecast


class ForecastBench(TimingBench):
    """The forecast in place of times. It needs no GPU and moves by nothing."""

    origin: TimesFrom = "forecast"

    def __init__(
        self, family: Family, problem: Problem, gpu: Gpu | None = None, progress: Progress = silent
    ) -> None:
        super().__init__(family, problem, gpu or load_gpu(DEFAULT_GPU), progress)
        self._checked: dict[Point, str | None] = {}

    def time(self, points: Sequence[Point], problem: Problem | None = None) -> TimedPoints:
        """One forecast a point, in the place of a sample."""
        samples, failures = {}, {}
        for number, one in enumerate(points):
            self.progress("forecasting", number, len(points))
            try:
                time_us = self.forecast_of(one, problem).time_us
            except LabError as error:
                failures[one] = error.clause
            else:
                only = ProcessSamples(
                    process=0, us=(time_us,), launches_per_sample=1, rotated_sets=1, rotated_bytes=0
                )
                samples[one] = Samples(processes=(only,))
        return TimedPoints(samples, failures)

    def ratio(self, timed: TimedPoints, above: Point, below: Point) -> TimeRatio:
        """Of two forecasts, within the model's error: that of the family on the recorded grid of
        this GPU, else the bands of both. Where neither is known the interval has no end."""
        ratio = timed.median_us(above) / timed.median_us(below)
        if self.error is not None and not (above.source or below.source):
            factor = math.exp(self.error.log_error)
            return TimeRatio(ratio, ratio / factor, ratio * factor)
        one, other = (self.forecast_of(point).band_us for point in (above, below))
        if one is None or other is None or not min(*one, *other) > 0:
            return TimeRatio(ratio, 0.0, 1 + UNBOUNDED)
        return TimeRatio(ratio, min(ratio, one[0] / other[1]), max(ratio, one[1] / other[0]))

    @cached_property
    def error(self) -> ForecastError | None:
        """The error of a forecast ratio here; None where no grid of this code and GPU is kept."""
        return forecast_error(self.family, self.gpu)

    def least_effect(self) -> AA:
        """Two forecasts of one kernel are equal; how right they are is the model's error."""
        unknown = "no recorded grid of this kernel and GPU says how right they are, so a verdict "
        unknown += "goes by their bands, and without a band there is none"
        return AA(0.0, 0, self.origin, str(self.error or unknown))

    def check(self, points: Sequence[Point]) -> dict[Point, str | None]:
        """What the CPU runner finds wrong with each, on the operation's small problem."""
        for one in points:
            if one not in self._checked:
                self._checked[one] = _check_on_cpu(self.family, self.problem, one)
        return {one: self._checked[one] for one in points}

    def floor_us(self) -> float | None:
        """By the best rate of a plain read of the GPU's record; without one, of its data sheet."""
        return self._read_floor_us()

    def environment(self) -> dict[str, Any]:
        """The model and the data sheet."""
        return {"model": model_name(), "gpu": self.sheet.title, "arch": self.limits.arch}


def _check_on_cpu(family: Family, problem: Problem, point: Point) -> str | None:
    """What is wrong with a point on small problems of its workload's kind, or None."""
    from labtools.measure.check import check_rung

    small = operation_of(problem).small
    rung = family.rung_at(point)
    if rung.supports(small) is not None:
        small = problem
    try:
        report = check_rung(rung, small, dict(point.knobs), quick=True)
    except LabError as error:
        return error.clause
    return str(report) if report.verdict == "wrong" else None


def ends_of(floor_us: float | None, times_us: Mapping[str, float]) -> ScoreEnds | None:
    """The floor and the fastest baseline among some times by label; None where one is not there."""
    libraries = {one: us for one, us in times_us.items() if one.startswith("baseline:")}
    if floor_us is None or not libraries:
        return None
    fastest = min(libraries, key=lambda one: libraries[one])
    return ScoreEnds(floor_us, libraries[fastest], fastest.removeprefix("baseline:"))
