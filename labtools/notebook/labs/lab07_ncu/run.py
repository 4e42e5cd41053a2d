"""A profiled run: the counters of one rung on one workload, recorded or read now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from labtools.predict import gpu_of_device, load_gpu
from labtools.predict.sheets import Gpu
from labtools.problem import LabError, Problem, Rung, load_rung
from labtools.record import describe_record, with_counters
from labtools.record.bound import CountedBound, counted_bound, passes_apart

from ...records import GpuRecords
from ...tables import check_word

if TYPE_CHECKING:
    from labtools.measure import ProfileReport


@dataclass(frozen=True)
class ProfiledRun:
    """Counters with all that is needed to read them."""

    rung: Rung  # the kernel, with its default knobs
    problem: Problem  # what it ran
    values: Mapping[str, float | None]  # counters by stable names; None: asked for and missing
    word: str  # ``recorded`` or ``live``
    where: str  # GPU, day and tool
    gpu: Gpu  # its data sheet
    read_bytes: int  # bytes that the kernel must read of the cache as it keeps it, each once
    time_us: float | None = None  # as timed without the profiler, microseconds, where known
    forecast_bound: str | None = None  # of the forecast that was stored before the run, or None

    def __post_init__(self) -> None:
        check_word(self.word)

    @property
    def name(self) -> str:
        """Rung and workload."""
        return f"{self.rung.id} at {self.problem}"

    @property
    def counted(self) -> CountedBound:
        """The bound that the counters show by the one rule."""
        return counted_bound(self.values, max_warps_per_sm=self.gpu.max_warps_per_sm)

    @property
    def bound_word(self) -> str:
        """The bound, or why there is none, in two words."""
        counted = self.counted
        return counted.bound or ("counters apart" if counted.apart else "not clear")

    @property
    def apart(self) -> str:
        """Why the counters do not belong together, or nothing."""
        return passes_apart(self.values, self.gpu.max_warps_per_sm)


def recorded_run(records: GpuRecords, rung: str, problem: Problem) -> ProfiledRun | None:
    """The newest record of a rung that holds counters, with default knobs; None without one."""
    record = next(iter(with_counters(records.all_of(rung, problem))), None)
    if record is None or record.counters is None:
        return None
    return ProfiledRun(
        rung=load_rung(rung),
        problem=problem,
        values=record.counters.values,
        word="recorded",
        where=f"{describe_record(record)}, {record.counters.tool or 'profiler not named'}",
        gpu=load_gpu(records.gpu or record.provenance.gpu_slug),
        read_bytes=record.read_bytes,
        time_us=record.median_us,
        forecast_bound=record.forecast.bound if record.forecast else None,
    )


def recorded_runs(
    records: GpuRecords, rungs: Sequence[str], problems: Sequence[Problem]
) -> list[ProfiledRun]:
    """`recorded_run` of every pair that has one."""
    found = [recorded_run(records, rung, problem) for problem in problems for rung in rungs]
    return [run for run in found if run is not None]


def profile_now(rung: Rung, problem: Problem) -> ProfiledRun:
    """Profile a rung with its default knobs on this machine's GPU, in a child process."""
    from labtools.measure.profiler.profile import profile_batch

    (report,) = profile_batch([(rung, problem, None)])
    if isinstance(report, LabError):
        raise report
    gpu = gpu_of_device()
    if gpu is None:
        raise LabError("The GPU of this machine is not known.", "its driver gives no answer", "")
    return live_run(rung, problem, report, gpu)


def live_run(rung: Rung, problem: Problem, report: ProfileReport, gpu: Gpu) -> ProfiledRun:
    """A report of this machine's profiler as a run."""
    scheme = rung.scheme(problem)
    return ProfiledRun(
        rung=rung,
        problem=problem,
        values=report.record_counters().values,
        word="live",
        where=f"{gpu.title}, now, {report.tool}",
        gpu=gpu,
        read_bytes=problem.streamed_bytes if scheme is None else scheme.stored_bytes(problem),
    )
