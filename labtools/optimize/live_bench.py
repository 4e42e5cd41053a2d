"""Points timed live on this machine's GPU."""

from __future__ import annotations

import shutil
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from labtools.measure.campaign.recording import check_batteries, check_key
from labtools.measure.gpu import measure
from labtools.measure.gpu.job import (
    Job,
    ceiling_candidates,
    make_job,
    make_jobs,
    require_device,
    rung_candidate,
)
from labtools.measure.gpu.runner import LivePool
from labtools.measure.profiler.profile import profile_batch
from labtools.predict import gpu_or_default
from labtools.problem import LabError, Problem, operation_of
from labtools.record import Samples, median_us
from labtools.toolchain import compile_ahead
from labtools.toolchain.progress import Progress, silent

from .attribution import AA, TimeRatio, least_effect_of, ratio_of
from .bench import TimedPoints, TimesFrom, TimingBench, ends_of
from .family import Family, Point
from .gaps import Gaps, gaps_of_counters
from .score import ScoreEnds

AA_PAIRS = 20  # pairs of identical kernels behind the least effect that can be told


class LiveBench(TimingBench):
    """This machine's GPU. All points of a call are interleaved in each of some processes, with so
    many ``rounds``, samples of a point."""

    origin: TimesFrom = "live"
    one_call = True

    def __init__(
        self,
        family: Family,
        problem: Problem,
        *,
        processes: int = measure.PROCESSES,
        rounds: int = measure.ROUNDS,
        progress: Progress = silent,
    ) -> None:
        if not type(operation_of(problem)).__module__.startswith("labtools."):
            raise LabError(
                f"{problem} cannot be timed on a GPU.",
                "its operation was registered in this process, and others time",
                "--on forecast; an operation that the kernel's own file registers",
            )
        self.device = require_device()
        super().__init__(family, problem, gpu_or_default(), progress)
        self.processes, self.rounds = processes, rounds
        self._held = ExitStack()
        self._pool: LivePool | None = None
        self._checked: dict[Point, str | None] = {}
        self._counted: dict[Point, Mapping[str, float | None]] = {}
        self._environment: dict[str, str | None] = {}
        self._calls = 0

    def __exit__(self, *raised: object) -> None:
        self._held.close()
        self._pool = None

    def crowns(self, point: Point) -> bool:
        """Any valid point may lead: its methods are taken out here and now."""
        return True

    def time(self, points: Sequence[Point], problem: Problem | None = None) -> TimedPoints:
        """Time points side by side; each is compared with the oracle before and after."""
        wanted = problem or self.problem
        jobs, failures = {}, {}
        rungs = [(self.family.rung_at(one), wanted, one.knobs) for one in points]
        compile_ahead(rungs, self.limits, compiler="live")
        for one in dict.fromkeys(points):
            try:
                jobs[one] = self._job(one, wanted)
            except LabError as error:
                failures[one] = error.clause
        found = self._measure(list(jobs.values()), wanted)
        named = {job.label: one for one, job in jobs.items()}
        failures |= {named[label]: text for label, text in found.failures.items() if label in named}
        samples = {
            one: _samples_of(found, job.label) for one, job in jobs.items() if one not in failures
        }
        return TimedPoints({one: held for one, held in samples.items() if held}, failures)

    def _job(self, point: Point, problem: Problem) -> Job:
        candidate = rung_candidate(self.family.rung_at(point), point.knobs)
        return replace(make_job(candidate, problem, self.limits), label=self._name(point))

    def _name(self, point: Point) -> str:
        return f"{self.family.rung.id} {point.key}"

    def _measure(self, jobs: Sequence[Job], problem: Problem) -> measure.GroupResult:
        if not jobs:
            return measure.GroupResult()
        if self._pool is None:
            self._pool = self._held.enter_context(LivePool(self.processes, progress=self.progress))
        self._calls += 1
        request = measure.make_request(
            jobs,
            problem,
            self.limits,
            f"loop over {self.family.rung.id}",
            seed=zlib.crc32(f"{problem.key()} {self._calls}".encode()),
            rounds=self.rounds,
        )
        found = measure.run_group(self._pool, request, self.processes, self.progress)
        self._environment = found.environment or self._environment
        return found

    def ratio(self, timed: TimedPoints, above: Point, below: Point) -> TimeRatio:
        """Ratio of two points of one call: median over the processes, and its bootstrap."""
        return ratio_of(timed.samples[above], timed.samples[below])

    def least_effect(self) -> AA:
        """From the start point and as many kernels like it, each loaded from a file of its own."""
        return self._least

    @cached_property
    def _least(self) -> AA:
        first = self._job(self.family.start, self.problem)
        with tempfile.TemporaryDirectory(prefix="labtools-aa-") as folder:
            jobs = [_copy_job(first, Path(folder), number) for number in range(AA_PAIRS + 1)]
            found = self._measure(jobs, self.problem)
        known = [one for job in jobs if (one := _samples_of(found, job.label)) is not None]
        if len(known) < 2:
            why = next(iter(found.failures.values()), "")
            what = "Identical kernels could not be timed."
            raise LabError(what, why, "the recorded grid, forecasts")
        return least_effect_of(list(pairwise(known)), self.origin)

    def check(self, points: Sequence[Point]) -> dict[Point, str | None]:
        """What is wrong with each on a battery of small problems, or None."""
        left = [one for one in dict.fromkeys(points) if one not in self._checked]
        named = {one: rung_candidate(self.family.rung_at(one), one.knobs) for one in left}
        keys = {one: check_key(said.label, self.problem) for one, said in named.items()}
        try:
            wanted = {keys[one]: (named[one], self.problem) for one in left}
            found = check_batteries(wanted, self.limits) if wanted else {}
        except LabError as error:
            for one in left:  # which of them cannot be compiled, it says alone
                self._checked |= {one: error.clause} if len(left) == 1 else self.check([one])
        else:
            for one, key in keys.items():
                self._checked[one] = None if found[key].ok else "; ".join(found[key].problems)
        return {one: self._checked[one] for one in points}

    def shares(self, point: Point) -> Mapping[str, float | None]:
        """Counters of the hardware; where ncu reads none, those that the forecast predicts."""
        return self._counters(point) or super().shares(point)

    def gaps(self, point: Point) -> Gaps:
        """The gaps that the counters show; without counters those of the forecast, so labelled."""
        counters = self._counters(point)
        if not counters:
            return super().gaps(point)
        return gaps_of_counters(counters, self.limits.max_warps_per_sm)

    def look_ahead(self, points: Sequence[Point]) -> None:
        """One run of ncu for all of them, and their forecasts side by side."""
        super().look_ahead(points)
        self._count(points)

    def _count(self, points: Sequence[Point]) -> None:
        left = [one for one in dict.fromkeys(points) if one not in self._counted]
        if not left:
            return
        items = [(self.family.rung_at(one), self.problem, dict(one.knobs)) for one in left]
        try:
            reports = profile_batch(items)
        except LabError:
            reports = []
        counted = {
            one: report.record_counters().values
            for one, report in zip(left, reports, strict=False)
            if not isinstance(report, LabError)
        }
        self._counted |= {one: counted.get(one, {}) for one in left}

    def _counters(self, point: Point) -> Mapping[str, float | None]:
        self._count([point])
        return self._counted[point]

    def floor_us(self) -> float | None:
        """By the read sweep, timed here, and by the GPU's record."""
        return self._floor_us

    @cached_property
    def _floor_us(self) -> float | None:
        sweeps, every = [], ceiling_candidates(self.limits.num_sms)
        for problem in dict.fromkeys((self.problem, *self.family.workloads)):
            sweep = [(one, problem) for one in every if one.supports(problem) is None]
            jobs = make_jobs(sweep, self.limits)
            found = self._measure(jobs, problem)
            held = [_samples_of(found, job.label) for job in jobs]
            sweeps += [(problem, median_us(one)) for one in held if one]
        return self._read_floor_us(sweeps)

    def score_ends(self) -> ScoreEnds | None:
        """By the baseline of the operation, timed here by the processes that time the points."""
        return self._ends

    @cached_property
    def _ends(self) -> ScoreEnds | None:
        return ends_of(self.floor_us(), self._baseline_us())

    def _baseline_us(self) -> dict[str, float]:
        name = operation_of(self.problem).baseline
        if name is None:
            return {}
        try:
            job = make_job(measure.as_candidate(f"baseline:{name}"), self.problem, self.limits)
            held = _samples_of(self._measure([job], self.problem), job.label)
        except LabError:  # its library is not installed, or does not take the workload
            return {}
        return {job.label: median_us(held)} if held else {}

    def environment(self) -> dict[str, Any]:
        """The device and the versions of what ran."""
        known = {name: value for name, value in self._environment.items() if value is not None}
        return {"gpu": self.device.name, "driver": self.device.driver_version, **known}


def _copy_job(job: Job, folder: Path, number: int) -> Job:
    """The same code under another name, in a file of its own."""
    path = folder / f"{number}.cubin"
    shutil.copyfile(job.cubin, path)
    return replace(job, label=f"{job.label} ({number})", cubin=str(path))


def _samples_of(found: measure.GroupResult, label: str) -> Samples | None:
    """The times of a candidate in every process; None where one of them has none."""
    rows = [answer.timed[label].samples for answer in found.answers if label in answer.timed]
    if not rows or len(rows) < len(found.answers):
        return None
    return Samples(processes=tuple(rows))
