"""The grid of a family, measured: codes and forecasts, times in batches, the best ones in full. A
batch is one group of one process, interleaved with equal repeats; each point is compared with the
oracle before and after, and a few anchors come along in every batch, so that drift shows. Identical
kernels, timed under another name from another file, say what a difference can tell. What a folder
keeps, line by line, waits for the disk before it counts; a second call goes on there."""

from __future__ import annotations

import itertools
import math
import shutil
import statistics
import threading
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from labtools.measure.campaign.recording import check_batteries, check_key
from labtools.measure.channel import Reporter
from labtools.measure.gpu import measure as live
from labtools.measure.gpu.job import (
    Candidate,
    Job,
    ceiling_candidates,
    make_job,
    make_jobs,
    rung_candidate,
)
from labtools.measure.gpu.measure import as_candidate, make_request, run_group
from labtools.measure.gpu.provenance import make_provenance
from labtools.measure.gpu.runner import LivePool
from labtools.measure.gpu.timing import TimingAnswer
from labtools.measure.worker import Worker, WorkerDied
from labtools.optimize.code_numbers import executed_by
from labtools.optimize.family import Family, load_family, source_hash_of
from labtools.optimize.gaps import counters_of_forecast
from labtools.optimize.grid import GridPlan, TimedTwice, digits
from labtools.optimize.sass_check import check_sass
from labtools.predict import Forecast, forecast, load_gpu, model_name
from labtools.problem import LabError, Limits, Problem, timed_launches
from labtools.record import Provenance
from labtools.record.bound import Bound
from labtools.record.expressions import Quantity
from labtools.record.fields import HashesField, ProblemField, ResourcesField
from labtools.record.whole import append_lines, write_whole
from labtools.toolchain import DeviceInfo, kernel_hashes
from labtools.toolchain.listings import MachineCode, machine_code
from labtools.toolchain.progress import Progress, silent, with_time_left

POINTS_A_BATCH = 96  # points of one batch; anchors and second names come on top
PAIRS = 48  # points that are timed a second time at each workload, three of four in another batch
GRID_ROUNDS = 5  # samples of a point at a workload
BATCHES_A_PROCESS = 6
"""Each code stays loaded in the process that measures, so after so many batches comes a new one."""
POINT_LIMIT_S = 120.0
"""A point that is not compiled, or not forecast, in so long has no code, or no forecast."""
BEST = 50  # points that are timed again by the full protocol
BEST_BATCH = -1  # what stands for the number of their batch
BEST_PAIRS = 5  # of them, those that are timed a second time under another name
AGAIN = " (again)"  # behind the name of a point that is timed a second time


@dataclass(frozen=True)
class KeptForecast:
    """A forecast as the grid keeps it."""

    time_us: float  # microseconds
    band_us: tuple[float, float] | None  # lower and upper end; None where the model does not know
    bound: Bound  # that it names
    counters: dict[str, float]  # `counters_of_forecast`; the gaps follow from them


@dataclass(frozen=True)
class CodeAt:
    """A point's code at one workload."""

    job: Job  # what a measuring child is told
    hashes: HashesField  # of the code


@dataclass(frozen=True)
class PointCode:
    """A point compiled."""

    point: int  # its number in the plan
    at: dict[str, CodeAt] = field(default_factory=dict)  # by workload; empty where it has none
    problem: str = ""  # why there is no code


@dataclass(frozen=True)
class PointModel:
    """What the machine code of a point says, before anything runs."""

    point: int  # its number in the plan
    hashes: HashesField | None = None  # of the code at the headline
    forecasts: dict[str, KeptForecast] = field(default_factory=dict)  # by workload
    resources: ResourcesField | None = None  # of its longest kernel at the headline
    signatures: dict[str, tuple[int, ...]] = field(default_factory=dict)  # by method, for each line
    # `ExecutedPlaces.numbers` of that kernel; empty where it cannot be followed
    numbers: dict[str, float | None] = field(default_factory=dict)
    problem: str = ""  # why there is nothing


@dataclass(frozen=True)
class TimedBatch:
    """A batch as it was measured."""

    workload: str  # what was computed, as text
    batch: int  # its number; `BEST_BATCH` of the best points
    answers: tuple[TimingAnswer, ...]  # one a process
    failures: dict[str, str]  # why a candidate has no times, by name
    environment: dict[str, str | None]  # versions
    date: datetime  # when it ended
    seconds: float  # that it took


def keep_forecast(made: Forecast) -> KeptForecast:
    """A forecast as the grid keeps it; five digits of a time, four of a counter."""
    bound: Bound = made.bound  # type: ignore[assignment]
    band = made.band_us
    return KeptForecast(
        time_us=digits(made.time_us, 5),
        band_us=None if band is None else (digits(band[0], 5), digits(band[1], 5)),
        bound=bound,
        counters={name: digits(value, 4) for name, value in counters_of_forecast(made).items()},
    )


# ------------------------------------------------------------------------------------ the plan


def make_plan(
    family: Family,
    gpu: str,
    *,
    name: str,
    anchors: Sequence[str] = (),
    limit: int | None = None,
    batch: int = POINTS_A_BATCH,
    pairs: int = PAIRS,
    rounds: int = GRID_ROUNDS,
    seed: int = 13,
) -> GridPlan:
    """Draw the points of a family into batches; at most ``limit`` of them, with the start."""
    rng = np.random.default_rng(seed)
    closure = family.closure()
    order = [closure[place] for place in rng.permutation(len(closure))]
    order.remove(family.start)
    chosen = [family.start, *order][: limit or len(closure)]
    # The start is in the middle of the run, like any other point.
    chosen = [chosen[place] for place in rng.permutation(len(chosen))]
    batches = math.ceil(len(chosen) / batch)
    drawn = rng.permutation(len(chosen))[: min(pairs, len(chosen))]
    return GridPlan(
        family=name,
        rung=family.rung.id,
        gpu=gpu,
        source_hash=source_hash_of(family),
        model=model_name(),
        workloads=tuple(family.workloads),
        knobs={name: tuple(one.knobs[name] for one in chosen) for name in family.start.knobs},
        batch=batch,
        pairs=tuple(
            TimedTwice(int(point), (int(point) // batch + _apart(number, batches)) % batches)
            for number, point in enumerate(drawn)
        ),
        anchors=tuple(anchors),
        rounds=rounds,
    )


def _apart(number: int, batches: int) -> int:
    """So many batches behind the first time of a pair the second one comes; 0 for one in four."""
    return 1 + number % (batches - 1) if number % 4 and batches > 1 else 0


class GridFolder:
    """The measurements of one plan on disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cubins = folder / "cubins"
        self.cubins.mkdir(parents=True, exist_ok=True)

    def settle(self, plan: GridPlan) -> GridPlan:
        """Write the plan, or find that the folder holds the same one."""
        path = self.folder / "plan.json"
        if not path.exists():
            write_whole(path, TypeAdapter(GridPlan).dump_json(plan), durable=True)
        held = self.plan()
        if held != plan:
            differ = [name for name in vars(plan) if getattr(plan, name) != getattr(held, name)]
            raise LabError(
                f"{self.folder} holds the measurements of another grid.",
                f"{', '.join(differ)} differ",
                "name another folder, or take the first one's settings",
            )
        return held

    def plan(self) -> GridPlan:
        """The plan of this folder."""
        try:
            return TypeAdapter(GridPlan).validate_json((self.folder / "plan.json").read_bytes())
        except (OSError, ValidationError) as error:
            raise LabError(
                f"{self.folder} holds no grid.", str(error), "begin with the phase codes"
            ) from error

    def begin_on(self, device: DeviceInfo) -> None:
        """Write down on what, when and by which command this folder's times are taken."""
        if next(self.read("provenance", Provenance), None) is None:
            self.add("provenance", [make_provenance(device, {}, [])], Provenance)

    def cubin(self, job: Job) -> Path:
        """Where the code of a job is, wherever the folder was when it was compiled."""
        return self.cubins / Path(job.cubin).name

    def add(self, name: str, entries: Iterable[Any], of: Any) -> None:
        """Append entries to one of the files; they are on disk when this returns."""
        adapter = TypeAdapter(of)
        lines = [adapter.dump_json(entry).decode() for entry in entries]
        append_lines(self.folder / f"{name}.jsonl", lines)

    def read(self, name: str, of: Any) -> Iterator[Any]:
        """The entries of one of the files. A torn line, of a process that was killed, is none."""
        path, adapter = self.folder / f"{name}.jsonl", TypeAdapter(of)
        for line in path.read_bytes().splitlines() if path.exists() else ():
            with suppress(ValidationError):
                yield adapter.validate_json(line)

    def codes(self) -> dict[int, PointCode]:
        """What was compiled, by the point's number."""
        return {code.point: code for code in self.read("codes", PointCode)}

    def models(self) -> dict[int, PointModel]:
        """What was forecast and found in the code, by the point's number."""
        return {model.point: model for model in self.read("models", PointModel)}

    def batches(self, name: str = "times") -> dict[tuple[str, int], TimedBatch]:
        """What was timed, by workload and batch."""
        return {(one.workload, one.batch): one for one in self.read(name, TimedBatch)}


# ----------------------------------------------------------------------------- codes, forecasts


class Clock:
    """How long there is: seconds from now after which nothing new begins; None is never."""

    def __init__(self, deadline_s: float | None, progress: Progress = silent) -> None:
        self._began, self._deadline_s = time.monotonic(), deadline_s
        self.progress = with_time_left(progress)

    @property
    def spent_s(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._began

    def allows(self, seconds: float = 0.0) -> bool:
        """Whether something that takes so long would end in time."""
        return self._deadline_s is None or self.spent_s + seconds <= self._deadline_s


@dataclass(frozen=True)
class PointRequest:
    """A point to compile or to follow."""

    point: int  # its number in the plan
    knobs: dict[str, int]  # of it
    family: str  # name or path of the family
    limits: Limits  # of the GPU
    gpu: str  # short name; its data sheet makes the forecasts
    workloads: tuple[ProblemField, ...]  # at which the point is launched
    cubins: str  # the folder that takes the code


_family = lru_cache(maxsize=4)(load_family)


def make_code(report: Reporter[None], request: PointRequest) -> PointCode:
    """Compile a point for each workload."""
    try:
        candidate = rung_candidate(_family(request.family).rung, request.knobs)
        at = {str(one): _code_at(request, candidate, one) for one in request.workloads}
    except LabError as error:
        return PointCode(request.point, problem=error.clause)
    return PointCode(request.point, at)


def _code_at(request: PointRequest, candidate: Candidate, workload: Problem) -> CodeAt:
    """A point's code at one workload, in the folder of the plan."""
    rung = _family(request.family).rung
    job = make_job(candidate, workload, request.limits)
    kept = Path(request.cubins) / Path(job.cubin).name
    if not kept.exists():
        write_whole(kept, Path(job.cubin).read_bytes())
    hashes = kernel_hashes(rung, workload, request.limits, candidate.knobs, compiler="live")
    return CodeAt(replace(job, cubin=str(kept)), hashes)


def make_model(report: Reporter[None], request: PointRequest) -> PointModel:
    """Forecast a point at each workload, and look for its methods in its code."""
    family, headline = _family(request.family), request.workloads[0]
    rung, sheet = family.rung, load_gpu(request.gpu)
    try:
        knobs = rung.resolve_knobs(request.knobs)
        code = machine_code(rung, headline, request.limits, knobs)
        hashes = kernel_hashes(rung, headline, request.limits, knobs, compiler="live")
        entry = timed_launches(rung.launches(headline, request.limits, knobs))[0].entry
    except LabError as error:
        return PointModel(request.point, problem=error.clause)
    forecasts = {}
    for workload in request.workloads:
        with suppress(LabError):  # a kernel that the model cannot follow has no forecast
            made = forecast(rung, workload, sheet, knobs)
            forecasts[str(workload)] = keep_forecast(made)
            entry = made.main_launch.entry if workload == headline else entry
    numbers: Mapping[str, Quantity | None] = {}
    with suppress(LabError):
        numbers = executed_by(rung, headline, request.limits, knobs, code, entry).numbers
    return PointModel(
        request.point,
        hashes,
        forecasts,
        code.resources[entry],
        count_signatures(family, code, entry),
        {name: None if value is None else float(value) for name, value in numbers.items()},
    )


def count_signatures(family: Family, code: MachineCode, entry: str) -> dict[str, tuple[int, ...]]:
    """How many instructions of one kernel match each line of each method's signature."""
    signed = [method.id for method in family.methods if method.signature]
    found = check_sass(family, signed, code, entry=entry)
    return {one.method: tuple(count for _, count in one.found) for one in found}


def make_points(
    folder: GridFolder, limits: Limits, what: str, *, processes: int, clock: Clock
) -> dict[int, Any]:
    """Let children make the ``codes`` or the ``models`` of a plan that the folder does not hold
    yet, and give all that it holds then, by the point's number. Models need no GPU, and may go on
    beside the timing. A point that takes its child down has nothing."""
    make, of = _MAKERS[what]
    held = {one.point: one for one in folder.read(what, of)}
    plan, cubins = folder.plan(), str(folder.cubins)
    todo = [
        PointRequest(n, plan.knobs_of(n), plan.family, limits, plan.gpu, plan.workloads, cubins)
        for n in range(len(plan))
        if n not in held
    ]
    left, lock, done = iter(todo), threading.Lock(), itertools.count(1)

    def take() -> PointRequest | None:
        with lock:
            return next(left, None) if clock.allows() else None

    def feed() -> None:
        request = take()
        while request is not None:
            with Worker() as worker:
                while request is not None and worker.alive:
                    try:
                        made = worker.call(make, request, time_limit_s=POINT_LIMIT_S)
                    except WorkerDied as died:
                        made = of(request.point, problem=str(died))
                    with lock:
                        held[made.point] = made
                        folder.add(what, [made], of)
                        clock.progress(f"{what} of {plan.rung}", next(done), len(todo))
                    request = take()

    with ThreadPoolExecutor(processes) as threads:
        working = [threads.submit(feed) for _ in range(processes)]
    for one in working:
        one.result()
    return held


_MAKERS: Mapping[str, tuple[Any, Any]] = {
    "codes": (make_code, PointCode),
    "models": (make_model, PointModel),
}


# --------------------------------------------------------------------------------------- times


class Timer:
    """Times the batches of a plan, one after another."""

    def __init__(
        self, folder: GridFolder, limits: Limits, clock: Clock, codes: Mapping[int, PointCode]
    ) -> None:
        self.folder, self.plan = folder, folder.plan()
        self.limits, self.clock, self.codes = limits, clock, codes
        self.family = load_family(self.plan.family)
        self.names = names_of(self.plan, self.family)
        self.anchors = [as_candidate(name) for name in self.plan.anchors]
        self._with_torch = any(one.kind == "baseline" for one in self.anchors)

    def time_all(self) -> None:
        """Time every batch that the folder does not hold, the headline first."""
        held = self.folder.batches()
        every = itertools.product(self.plan.workloads, range(self.plan.batches))
        todo = [(problem, batch) for problem, batch in every if (str(problem), batch) not in held]
        longest = dict.fromkeys(map(str, self.plan.workloads), 0.0)
        for (name, _), one in held.items():
            longest[name] = max(longest[name], one.seconds)
        for place in range(0, len(todo), BATCHES_A_PROCESS):
            with LivePool(1, self._with_torch) as pool:
                for workload, batch in todo[place : place + BATCHES_A_PROCESS]:
                    if not self.clock.allows(1.3 * longest[str(workload)]):
                        return
                    timed = self.time_batch(pool, workload, batch)
                    longest[str(workload)] = max(longest[str(workload)], timed.seconds)
                    self.folder.add("times", [timed], TimedBatch)
                    done, text = len(self.folder.batches()), f"the grid of {self.plan.rung}"
                    self.clock.progress(f"timing {text}", done, len(held) + len(todo))

    def time_batch(self, pool: LivePool, workload: Problem, batch: int) -> TimedBatch:
        """Time one batch at a workload."""
        jobs = [*self._jobs_of(workload, batch), *self._anchor_jobs(workload, batch == 0)]
        seed = zlib.crc32(f"{workload.key()} {batch}".encode())
        return self._time(pool, jobs, workload, batch, seed=seed, rounds=self.plan.rounds)

    def _time(
        self, pool: LivePool, jobs: list[Job], workload: Problem, batch: int, **how: Any
    ) -> TimedBatch:
        """Time the jobs of a batch; ``how`` is as of `make_request`."""
        began, what = time.monotonic(), f"grid of {self.plan.rung}"
        request = make_request(
            jobs, workload, self.limits, what, with_torch=self._with_torch, **how
        )
        found = run_group(pool, request, live.PROCESSES if batch == BEST_BATCH else 1)
        return TimedBatch(
            workload=str(workload),
            batch=batch,
            answers=tuple(found.answers),
            failures=found.failures,
            environment=found.environment,
            date=datetime.now(UTC).replace(microsecond=0),
            seconds=round(time.monotonic() - began, 2),
        )

    def _jobs_of(self, workload: Problem, batch: int) -> list[Job]:
        """The jobs of a batch's points, and of those that come here for the second time."""
        jobs = [self._job(number, workload) for number in self.plan.members(batch)]
        again = [one.point for one in self.plan.pairs if one.batch == batch]
        jobs += [self._job(number, workload, again=True) for number in again]
        return [job for job in jobs if job is not None]

    def _job(self, number: int, workload: Problem, *, again: bool = False) -> Job | None:
        """The job of a point under its name; None where it has no code."""
        code = self.codes.get(number)
        if code is None or code.problem:
            return None
        job = code.at[str(workload)].job
        job = replace(job, label=self.names[number], cubin=str(self.folder.cubin(job)))
        return second_job(job) if again else job

    def _anchor_jobs(self, workload: Problem, ceiling: bool) -> list[Job]:
        """What every batch times too; with the read ceiling once a workload."""
        every = self.anchors + (ceiling_candidates(self.limits.num_sms) if ceiling else [])
        fitting = [one for one in every if one.supports(workload) is None]
        return make_jobs([(one, workload) for one in fitting], self.limits)

    # ---------------------------------------------------------------------------- the best ones

    def time_best(self, count: int = BEST) -> None:
        """Check the best points of the headline on a battery, and time them by the full protocol:
        five processes, ten rounds each. Nothing where the folder holds them already."""
        workload = self.plan.workloads[0]
        if self.folder.batches("best"):
            return
        best = best_points(self.plan, self.names, self.folder.batches(), count)
        self.clock.progress("the best points: checked, then timed by the full protocol", 0, 2)
        wrong = self._check(best, workload)
        right = [number for number in best if number not in wrong]
        jobs = [self._job(number, workload) for number in right]
        jobs += [self._job(number, workload, again=True) for number in right[:BEST_PAIRS]]
        every = [*filter(None, jobs), *self._anchor_jobs(workload, ceiling=True)]
        seed = zlib.crc32(workload.key().encode())
        with LivePool(live.PROCESSES, self._with_torch) as pool:
            timed = self._time(pool, every, workload, BEST_BATCH, seed=seed)
        timed.failures.update({self.names[number]: text for number, text in wrong.items()})
        self.folder.add("best", [timed], TimedBatch)

    def _check(self, points: Sequence[int], workload: Problem) -> dict[int, str]:
        """What is wrong on a battery of small workloads, by the point's number."""
        rung = self.family.rung
        made = {number: rung_candidate(rung, self.plan.knobs_of(number)) for number in points}
        keys = {number: check_key(one.label, workload) for number, one in made.items()}
        wanted = {keys[number]: (one, workload) for number, one in made.items()}
        results = check_batteries(wanted, self.limits)
        found = {number: results[key] for number, key in keys.items()}
        return {n: "; ".join(one.problems) for n, one in found.items() if not one.ok}


def names_of(plan: GridPlan, family: Family) -> list[str]:
    """What each point is called in an answer: the kernel and its key."""
    keys = [family.point(plan.knobs_of(number)).key for number in range(len(plan))]
    return [f"{plan.rung} {key}" for key in keys]


def second_job(job: Job) -> Job:
    """The same code in a file of its own, so that it is loaded a second time."""
    path = Path(job.cubin).with_suffix(".again.cubin")
    if not path.exists():
        shutil.copyfile(job.cubin, path)
    return replace(job, label=job.label + AGAIN, cubin=str(path))


def best_points(
    plan: GridPlan, names: Sequence[str], batches: Mapping[tuple[str, int], TimedBatch], count: int
) -> list[int]:
    """The points of the least median at the headline, fastest first."""
    headline = str(plan.workloads[0])
    middles: dict[str, float] = {}
    for (workload, _), batch in batches.items():
        if workload == headline:
            for answer in batch.answers:
                for label, one in answer.timed.items():
                    middles[label] = statistics.median(one.samples.us)
    timed = [number for number, name in enumerate(names) if name in middles]
    return sorted(timed, key=lambda number: middles[names[number]])[:count]
