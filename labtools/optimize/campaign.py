"""The grid of a family, measured: codes and forecasts, times in batches, the best ones in full.

A grid has more points than one group of candidates may hold, so its points are drawn into batches.
A batch is one group of one process: inputs, oracle and buffers are made once, all points of the
batch are interleaved with equal repeats, each is compared with the oracle before and after, and a
few anchors come along in every batch, so that drift shows. Some points are timed a second time
under another name, with their code loaded from another file: identical kernels say what a
difference between two points of the grid can tell.

Everything is kept in one folder, line by line, and waits for the disk before it counts. A second
call with the same folder goes on where the first one ended.
"""

from __future__ import annotations

import itertools
import math
import shutil
import statistics
import threading
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

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
from labtools.measure.gpu.measure import GroupResult, as_candidate, make_request, run_group
from labtools.measure.gpu.pool import LivePool
from labtools.measure.gpu.provenance import make_provenance
from labtools.measure.gpu.timing import TimingAnswer
from labtools.measure.worker import Worker, WorkerDied
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

from .code_numbers import code_numbers
from .family import Family, load_family, source_hash_of
from .gaps import counters_of_forecast
from .grid import GridPlan, TimedTwice, digits
from .sass_check import check_sass

POINTS_A_BATCH = 96
"""Points of one batch; anchors and second names come on top."""
PAIRS = 48
"""Points that are timed a second time at each workload, three of four in another batch."""
GRID_ROUNDS = 5
"""Samples of a point at a workload."""
CODES_A_PROCESS = 800
"""A measuring process that has loaded this many codes makes room for a new one."""
POINT_LIMIT_S = 120.0
"""A point that is not compiled, or not forecast, in so long has no code, or no forecast."""
BEST = 50
"""Points that are timed again by the full protocol."""
BEST_PAIRS = 5
"""Of them, those that are timed a second time under another name."""
AGAIN = " (again)"
"""Behind the name of a point that is timed a second time."""

T = TypeVar("T")


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
    # `code_numbers` of that kernel; empty where it cannot be followed
    numbers: dict[str, float | None] = field(default_factory=dict)
    problem: str = ""  # why there is nothing


@dataclass(frozen=True)
class TimedBatch:
    """A batch as it was measured."""

    workload: str  # what was computed, as text
    batch: int  # its number; -1 of the best points
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

    @property
    def plan_path(self) -> Path:
        """The file of the plan."""
        return self.folder / "plan.json"

    def settle(self, plan: GridPlan) -> GridPlan:
        """Write the plan, or find that the folder holds the same one."""
        if not self.plan_path.exists():
            write_whole(self.plan_path, TypeAdapter(GridPlan).dump_json(plan), durable=True)
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
            return TypeAdapter(GridPlan).validate_json(self.plan_path.read_bytes())
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
        if lines:
            append_lines(self.folder / f"{name}.jsonl", lines)

    def read(self, name: str, of: type[T]) -> Iterator[T]:
        """The entries of one of the files. A torn line, of a process that was killed, is none."""
        path = self.folder / f"{name}.jsonl"
        if not path.exists():
            return
        adapter = TypeAdapter(of)
        with path.open("rb") as file:
            for line in file:
                try:
                    yield adapter.validate_json(line)
                except ValidationError:
                    continue

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
    """How long there is, and what is left of a piece of work at its pace so far.

    Args:
        deadline_s: seconds from now after which nothing new begins; None is never.
        progress: hears how far it is.
    """

    def __init__(self, deadline_s: float | None, progress: Progress = silent) -> None:
        self._began = time.monotonic()
        self._deadline_s = deadline_s
        self._progress = progress

    @property
    def spent_s(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._began

    def allows(self, seconds: float = 0.0) -> bool:
        """Whether something that takes so long would end in time."""
        return self._deadline_s is None or self.spent_s + seconds <= self._deadline_s

    def counting(self, text: str) -> Callable[[int, int], None]:
        """Says how much of a piece of work is done, with the time that is left."""
        progress = with_time_left(self._progress)

        def say(done: int, total: int) -> None:
            progress(f"{text}, {done} of {total}", done, total)

        return say


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
        numbers = code_numbers(rung, headline, request.limits, knobs, code, entry)
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


def find_codes(
    folder: GridFolder, limits: Limits, *, processes: int, clock: Clock
) -> dict[int, PointCode]:
    """Compile every point of a plan that the folder does not hold yet, and give all that it holds
    then, by the point's number."""
    held = folder.codes()
    _make_points(folder, limits, clock, processes, "codes", make_code, PointCode, held)
    return held


def find_models(
    folder: GridFolder, limits: Limits, *, processes: int, clock: Clock
) -> dict[int, PointModel]:
    """The same of forecasts. It needs no GPU, and may go on beside the timing or after it."""
    held = folder.models()
    _make_points(folder, limits, clock, processes, "models", make_model, PointModel, held)
    return held


_Made = TypeVar("_Made", PointCode, PointModel)


def _make_points(
    folder: GridFolder,
    limits: Limits,
    clock: Clock,
    processes: int,
    name: str,
    make: Callable[[Reporter[None], PointRequest], _Made],
    of: type[_Made],
    held: dict[int, _Made],
) -> None:
    """Let children make the points that are not held, and keep each in one of the folder's files.

    A point that takes its child down has nothing.
    """
    plan, cubins = folder.plan(), str(folder.cubins)
    todo = [
        PointRequest(n, plan.knobs_of(n), plan.family, limits, plan.gpu, plan.workloads, cubins)
        for n in range(len(plan))
        if n not in held
    ]
    left, lock, done = iter(todo), threading.Lock(), itertools.count(1)
    say = clock.counting(f"{name} of {plan.rung}")

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
                        folder.add(name, [made], of)
                        say(next(done), len(todo))
                    request = take()

    with ThreadPoolExecutor(processes) as threads:
        working = [threads.submit(feed) for _ in range(processes)]
    for one in working:
        one.result()


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
        self._held = ExitStack()
        self._pool: LivePool | None = None
        self._loaded = 0

    def time_all(self) -> None:
        """Time every batch that the folder does not hold, the headline first."""
        held = self.folder.batches()
        todo = [
            (workload, batch)
            for workload in self.plan.workloads
            for batch in range(self.plan.batches)
            if (str(workload), batch) not in held
        ]
        longest: dict[str, float] = defaultdict(float)
        for (name, _), one in held.items():
            longest[name] = max(longest[name], one.seconds)
        say = self.clock.counting(f"timing the grid of {self.plan.rung}, batches")
        try:
            for done, (workload, batch) in enumerate(todo):
                if not self.clock.allows(1.3 * longest[str(workload)]):
                    return
                say(done, len(todo))
                timed = self.time_batch(workload, batch)
                longest[str(workload)] = max(longest[str(workload)], timed.seconds)
                self.folder.add("times", [timed], TimedBatch)
            say(len(todo), len(todo))
        finally:
            self.close()

    def time_batch(self, workload: Problem, batch: int) -> TimedBatch:
        """Time one batch at a workload."""
        began = time.monotonic()
        jobs = [*self._jobs_of(workload, batch), *self._anchor_jobs(workload, batch == 0)]
        request = make_request(
            jobs,
            workload,
            self.limits,
            f"grid of {self.plan.rung}",
            seed=zlib.crc32(f"{workload.key()} {batch}".encode()),
            rounds=self.plan.rounds,
            with_torch=self._with_torch,
        )
        return self._kept(workload, batch, run_group(self._room(len(jobs)), request, 1), began)

    def _kept(self, workload: Problem, batch: int, found: GroupResult, began: float) -> TimedBatch:
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

    @property
    def _with_torch(self) -> bool:
        return any(one.kind == "baseline" for one in self.anchors)

    def _room(self, jobs: int) -> LivePool:
        """The measuring process; after many codes a new one, since each stays loaded in it."""
        if self._pool is not None and self._loaded + jobs > CODES_A_PROCESS:
            self.close()
        if self._pool is None:
            self._pool = self._held.enter_context(LivePool(1, self._with_torch))
            self._loaded = 0
        self._loaded += jobs
        return self._pool

    def close(self) -> None:
        """End the measuring process."""
        self._held.close()
        self._pool = None

    # ---------------------------------------------------------------------------- the best ones

    def time_best(self, count: int = BEST) -> TimedBatch | None:
        """Check the best points of the headline on a battery, and time them by the full protocol:
        five processes, ten rounds each. None where the folder holds them already."""
        workload = self.plan.workloads[0]
        if self.folder.batches("best"):
            return None
        began = time.monotonic()
        best = best_points(self.plan, self.names, self.folder.batches(), count)
        say = self.clock.counting("the best points: checked, then timed by the full protocol")
        say(0, 2)
        wrong = self._check(best, workload)
        right = [number for number in best if number not in wrong]
        jobs = [self._job(number, workload) for number in right]
        jobs += [self._job(number, workload, again=True) for number in right[:BEST_PAIRS]]
        request = make_request(
            [*filter(None, jobs), *self._anchor_jobs(workload, ceiling=True)],
            workload,
            self.limits,
            f"best points of {self.plan.rung}",
            seed=zlib.crc32(workload.key().encode()),
            with_torch=self._with_torch,
        )
        say(1, 2)
        with LivePool(live.PROCESSES, self._with_torch) as pool:
            found = run_group(pool, request, live.PROCESSES)
        found.failures.update({self.names[number]: text for number, text in wrong.items()})
        timed = self._kept(workload, -1, found, began)
        self.folder.add("best", [timed], TimedBatch)
        return timed

    def _check(self, points: Sequence[int], workload: Problem) -> dict[int, str]:
        """What is wrong on a battery of small workloads, by the point's number."""
        candidates = {
            number: rung_candidate(self.family.rung, self.plan.knobs_of(number))
            for number in points
        }
        wanted = {check_key(one.label, workload): (one, workload) for one in candidates.values()}
        results = check_batteries(wanted)
        found = {}
        for number, one in candidates.items():
            result = results[check_key(one.label, workload)]
            if not result.ok:
                found[number] = "; ".join(result.problems)
        return found


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
