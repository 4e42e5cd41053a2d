"""What a measuring child is told: compiled kernels, launches and workloads.

The parent compiles and works out the launches, which no other process could do for a page's cells.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from labtools.problem import (
    AS_THEY_ARE,
    Baseline,
    LabError,
    Launch,
    Limits,
    Problem,
    Rung,
    StorageFormat,
    Workspace,
    kernels_dir,
    list_baselines,
    list_rungs,
    load_baseline,
    load_rung,
    timed_launches,
)
from labtools.problem.baseline import own_baselines
from labtools.problem.rung import (
    least_call_bytes,
    load_by_path,
    move_outside,
    prepared_bytes,
    say_knobs,
)
from labtools.record.fields import LaunchField, SchemeField
from labtools.record.schema import Kind
from labtools.record.whole import write_whole
from labtools.toolchain import (
    Cubin,
    DeviceInfo,
    compile_ahead,
    compile_cubin,
    compile_rung,
    cuda_status,
    device_query,
)
from labtools.toolchain.cache import in_folder, prune_kept
from labtools.toolchain.status import nothing_runs

from ..residency import refuse_kept_lines

CEILING = "read_sweep"
MICROBENCH = "microbench"

TimingWay = Literal["graph", "stream"]


def require_device() -> DeviceInfo:
    """The GPU of this machine. Raises LabError: nothing can run on a GPU here, and why."""
    status = cuda_status()
    if not status.can_run_live:
        raise status.why_not_live()
    device = device_query()
    if device is None:
        raise nothing_runs("the GPU does not answer")
    return device


def store_cubin(cubin: Cubin) -> Path:
    """Write a cubin where children find it, named by the hash of its bytes; equal code has one.

    Raises LabError: there is no room for it, neither in the cache nor in a temporary folder.
    """
    name = f"{hashlib.sha256(cubin.image).hexdigest()}.cubin"
    path = in_folder("cubins", lambda folder: _write(folder / name, cubin.image), "compiled code")
    _stored.add(path)
    prune_kept("cubins", len(cubin.image), _stored)
    return path


_stored: set[Path] = set()  # what this process has told children of


def _write(path: Path, data: bytes) -> Path:
    """Write a file whole or not at all; one that is whole already is only marked as used."""
    if path.is_file() and path.read_bytes() == data:
        os.utime(path)  # it is in use, so it goes last
    else:
        write_whole(path, data)
    return path


def fill_cubin(arch: str) -> Path:
    """The compiled kernel that fills buffers with random numbers."""
    source = kernels_dir() / MICROBENCH / "fill.cu"
    text = source.read_text()
    return store_cubin(compile_cubin(text, arch, name=source.name, compiler="live"))


@dataclass(frozen=True)
class Job:
    """What a child needs to run a candidate; `make_job` makes it."""

    label: str  # of the candidate
    kind: Kind
    timing: TimingWay = "graph"  # ``stream`` too where a call allocates memory
    cubin: str = ""  # the file of the compiled kernel
    launches: tuple[LaunchField, ...] = ()  # the launches of one call, its preparation before them
    tolerance: float | None = None  # of the rung; None takes that of the output's type
    scheme: SchemeField = None  # how inputs are stored; None where they stay as they are
    baseline: str = ""  # id of a baseline
    source: str = ""  # the baseline's file where it is no shipped one
    storage: StorageFormat = AS_THEY_ARE  # how a baseline keeps what it streams

    @property
    def preparation(self) -> list[Launch]:
        """What runs once for each set of buffers, before all calls."""
        return [launch for launch in self.launches if launch.prepare]

    @property
    def timed(self) -> list[Launch]:
        """What every call launches."""
        return timed_launches(self.launches)

    @property
    def workspaces(self) -> dict[str, Workspace]:
        """Every scratch buffer by name."""
        return workspaces_of(self.launches)

    @property
    def prepared(self) -> list[str]:
        """The workspaces that the preparation names: each set of buffers has its own."""
        named = {name for launch in self.preparation for name in launch.named}
        return [name for name in self.workspaces if name in named]

    @property
    def read_names(self) -> set[str]:
        """The buffers that a call names."""
        return {name for launch in self.timed for name in launch.named}

    def call_read_bytes(self, workload: Problem) -> int:
        """Bytes that one call finds in its set of buffers, prepared inputs in place of others."""
        if self.kind == "baseline":
            given = workload.streamed_bytes
            stored = self.storage.stored_bytes(given, workload.element_bytes)
            return workload.minimal_bytes - given + stored
        return workload.call_bytes(self.read_names) + prepared_bytes(self.launches)

    def least_bytes(self, workload: Problem) -> float:
        """Bytes that no call can do without; 0 where nobody says what it reads."""
        if self.kind != "rung":
            return 0
        return least_call_bytes(workload, self.launches, self.scheme)


def baseline_of(job: Job) -> Baseline:
    """The baseline that a job names: that of its own file, else the shipped one."""
    for own in own_baselines():
        if own.id == job.baseline:
            return own
    if job.source:
        found: Baseline = load_by_path(Path(job.source)).BASELINE
        return found
    return load_baseline(job.baseline)


def workspaces_of(launches: Sequence[Launch]) -> dict[str, Workspace]:
    """Every scratch buffer of the launches by name.

    Raises LabError: two launches want one name with different shapes.
    """
    found: dict[str, Workspace] = {}
    for launch in launches:
        for one in launch.workspace:
            if found.setdefault(one.name, one) != one:
                what = f"Two launches disagree about the workspace {one.name!r}."
                why = f"one says {found[one.name]}, another {one}"
                raise LabError(what, why, "give both the same shape and type")
    return found


@dataclass(frozen=True)
class Candidate:
    """Something to time: a rung with its knobs, a baseline, or the read ceiling."""

    target: Rung | Baseline
    kind: Kind  # ``rung``, ``baseline`` or ``ceiling``
    knobs: Mapping[str, int] = field(default_factory=dict)  # of a rung; resolved, every knob named
    # ``graph`` replays a CUDA graph. ``stream`` launches every call by itself, as a call that
    # allocates memory is timed whatever stands here.
    timing: TimingWay = "graph"
    outside: bool = False  # move every workspace that the launch allocates in each call out of it

    @property
    def id(self) -> str:
        """``r03_one_warp``, ``baseline:sdpa``, ``ceiling:read_sweep``."""
        return self.target.id if self.kind == "rung" else f"{self.kind}:{self.target.id}"

    @property
    def label(self) -> str:
        """The id with its knobs: what tells two candidates of one measurement apart."""
        knobs = say_knobs(self.knobs, ",")
        return " ".join(filter(None, (self.id, knobs, self.experiment)))

    @property
    def experiment(self) -> str:
        """What is done to it besides its knobs; empty for a rung as it is, timed as all are."""
        stream = "stream" if self.timing == "stream" else ""
        return "+".join(filter(None, (stream, "outside" if self.outside else "")))

    def launches(self, workload: Problem, limits: Limits) -> list[Launch]:
        """What a rung launches; the errors are those of `Rung.launches`."""
        assert isinstance(self.target, Rung)
        launches = self.target.launches(workload, limits, self.knobs)
        return move_outside(launches) if self.outside else launches

    def supports(self, workload: Problem) -> str | None:
        """Why it cannot run a workload, or None."""
        return self.target.supports(workload)


def rung_candidate(
    rung: Rung | str | Path,
    knobs: Mapping[str, int] | None = None,
    *,
    timing: TimingWay = "graph",
    outside: bool = False,
) -> Candidate:
    """A rung with every knob resolved; ``timing`` and ``outside`` as for `Candidate`."""
    loaded = rung if isinstance(rung, Rung) else load_rung(rung)
    return Candidate(loaded, "rung", loaded.resolve_knobs(knobs), timing, outside)


def default_candidates(workload: Problem) -> list[Candidate]:
    """Every shipped rung that supports a workload, at its default knobs, and every baseline.

    Baselines are not sifted: what keeps one from running is part of the answer.
    """
    rungs = [rung for rung in list_rungs(workload.operation) if not rung.supports(workload)]
    return [*(rung_candidate(rung) for rung in rungs), *every_baseline(workload.operation)]


def every_baseline(operation: str) -> list[Candidate]:
    """The shipped baselines of an operation."""
    return [Candidate(baseline, "baseline") for baseline in list_baselines(operation)]


def ceiling_candidates(num_sms: int) -> list[Candidate]:
    """The read ceiling in several shapes: loads in flight, threads, blocks an SM."""
    rung = load_rung(kernels_dir() / MICROBENCH / f"{CEILING}.py")
    shapes = ((2, 256, 8), (4, 256, 4), (4, 256, 8), (8, 512, 2))
    names = ("loads", "threads", "blocks")
    knobs = [dict(zip(names, (*shape[:2], shape[2] * num_sms), strict=True)) for shape in shapes]
    return [Candidate(rung, "ceiling", rung.resolve_knobs(one)) for one in knobs]


def bytes_in_call(launches: Sequence[Launch]) -> int:
    """Bytes that every call allocates and frees."""
    spaces = {space.name: space for one in launches for space in one.workspace if space.in_call}
    return sum(space.bytes for space in spaces.values())


def make_jobs(asked: Sequence[tuple[Candidate, Problem]], limits: Limits) -> list[Job]:
    """`make_job` of several, compiled side by side."""
    rungs = [(one.target, of, one.knobs) for one, of in asked if isinstance(one.target, Rung)]
    compile_ahead(rungs, limits, compiler="live")
    return [make_job(one, workload, limits) for one, workload in asked]


def make_job(candidate: Candidate, workload: Problem, limits: Limits) -> Job:
    """What a child needs to run a candidate on a workload, as the GPU's Limits lay it out.

    Raises CompileError: a rung does not compile; LabError: it cannot run the workload.
    """
    target = candidate.target
    if isinstance(target, Baseline):
        how = (candidate.label, candidate.kind, candidate.timing)
        source = str(target.source or "")
        return Job(*how, baseline=target.id, source=source, storage=target.storage)
    launches = candidate.launches(workload, limits)
    cubin = compile_rung(target, workload, limits, candidate.knobs, compiler="live")
    refuse_kept_lines(target, cubin)
    for launch in launches:
        cubin.resources_of(launch.entry)  # refuses a name that the code does not hold
    launched = [replace(one, entry=cubin.symbol_of(one.entry)) for one in launches]
    return Job(
        candidate.label,
        candidate.kind,
        timing="stream" if bytes_in_call(launches) else candidate.timing,
        cubin=str(store_cubin(cubin)),
        launches=tuple(launched),
        tolerance=target.tolerance_for(workload, launches),
        scheme=target.scheme(workload, candidate.knobs),
    )
