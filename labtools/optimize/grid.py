"""The recorded grid of a family: one compact file, read without a GPU and without a compiler, bound
to its code by hashes of the source with its headers and of each point's machine code, and by the
compiler's options and version."""

from __future__ import annotations

import gzip
import json
import math
import statistics
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from labtools.measure.channel import adapter_of
from labtools.problem import LabError, Problem, kernels_dir
from labtools.record import ProcessSamples, Provenance, Samples
from labtools.record.bound import Bound
from labtools.record.fields import ModelName, ProblemField
from labtools.record.whole import write_whole
from labtools.toolchain.options import COMMON_OPTIONS, CUPY_ADDED_OPTIONS

from .family import Family, Point, source_hash_of
from .method import Pattern, read_pattern
from .sass_check import PatternCounts

GRID_SCHEMA = 1
ENDING = ".jsonl.gz"

Times = tuple[float, ...]  # samples of one process, microseconds; empty where there are none


@dataclass(frozen=True)
class TimedTwice:
    """A point that is timed twice, as if it were two."""

    point: int  # its number in the plan
    batch: int  # the batch of the second time


@dataclass(frozen=True)
class GridPlan:
    """What is measured. A folder holds the measurements of one plan."""

    family: str  # name or path of the family
    rung: str  # id of its kernel
    gpu: str  # short name, as of a data sheet
    source_hash: str  # of the kernel with its headers
    model: ModelName  # name of the model that made the forecasts
    workloads: tuple[ProblemField, ...]  # the first is the headline
    # value of each knob by name: a column with an entry for each point, in the order in which they
    # are timed
    knobs: dict[str, tuple[int, ...]]
    batch: int  # points of a batch
    pairs: tuple[TimedTwice, ...]  # the points that are timed twice
    anchors: tuple[str, ...]  # what is timed in every batch
    rounds: int  # samples of a point at a workload

    def __len__(self) -> int:
        return len(next(iter(self.knobs.values())))

    def knobs_of(self, point: int) -> dict[str, int]:
        """The knobs of a point."""
        return {name: column[point] for name, column in self.knobs.items()}

    @property
    def batches(self) -> int:
        """How many batches a workload has."""
        return math.ceil(len(self) / self.batch)

    def batch_of(self, point: int) -> int:
        """The batch of a point's first time."""
        return point // self.batch

    def members(self, batch: int) -> range:
        """The points of a batch."""
        return range(batch * self.batch, min((batch + 1) * self.batch, len(self)))


@dataclass(frozen=True)
class GridAt:
    """The grid at one workload; a column has an entry for each point, in their order."""

    workload: ProblemField  # what was computed
    samples: tuple[Times, ...]  # of each point, microseconds; empty where it has no time
    worst_error: tuple[float | None, ...]  # largest relative; None without a time
    failures: dict[int, str]  # why a point has no time, by its number
    forecast_us: tuple[float | None, ...]  # microseconds; None where there is no forecast
    band_us: tuple[tuple[float, float] | None, ...]  # None where the model does not know
    bound: tuple[Bound | None, ...]  # of the forecast; None where there is none
    counters: dict[str, tuple[float | None, ...]]  # forecast, by name
    code: tuple[int, ...]  # number of each point's code in `Grid.codes`; -1 where it has none
    again: dict[int, Times]  # samples of points that were timed a second time, by their number
    anchors: dict[str, dict[int, Times]]  # samples by name and batch
    launches: tuple[int, ...]  # calls behind a sample of each point; 0 without a time
    sets: int  # different sets of buffers that the calls went round
    set_bytes: int  # size of those sets together


@dataclass(frozen=True)
class FullProtocol:
    """The best points of the headline, timed again by several processes."""

    samples: dict[int, tuple[Times, ...]]  # of each point by its number, one row a process
    again: dict[int, tuple[Times, ...]]  # of points under a second name
    anchors: dict[str, tuple[Times, ...]]  # by name, the read ceiling among them
    failures: dict[int, str]  # why a point has no time here, by its number


@dataclass(frozen=True)
class Grid:
    """A measured grid; see the module."""

    schema_version: int  # of the file
    plan: GridPlan  # what was measured: family, kernel, source, points, batches, workloads
    options: tuple[str, ...]  # of the compiler, definitions left out
    nvrtc_version: str | None  # the compiler
    arch: str  # for example ``sm_90``
    provenance: Provenance  # where, when and with what it was measured
    protocol: str  # the way of timing
    codes: tuple[str, ...]  # hash of the machine code of each different code
    # registers, spills: registers a thread, and bytes stored to and loaded from local memory a
    # thread, of each point's longest kernel at the headline; None without code
    registers: tuple[int | None, ...]
    spills: tuple[int | None, ...]
    entries: tuple[str | None, ...]  # longest kernel at the headline
    patterns: dict[str, tuple[str, ...]]  # the lines of each method's signature, by method
    # how many instructions of each point's longest kernel match these lines; None where it has no
    # code
    signatures: dict[str, tuple[tuple[int, ...] | None, ...]]
    numbers: dict[str, tuple[float | None, ...]]  # `ExecutedPlaces.numbers`, by name
    problems: dict[int, str]  # why a point has no code, by its number
    at: tuple[GridAt, ...]  # one for each workload, the headline first
    full: FullProtocol | None = None  # None where they were not timed

    def __len__(self) -> int:
        return len(self.plan)

    @cached_property
    def _numbers(self) -> dict[tuple[int, ...], int]:
        rows = zip(*self.plan.knobs.values(), strict=True)
        return {row: number for number, row in enumerate(rows)}

    def number(self, point: Point) -> int | None:
        """The number of a point; None where the grid does not have it."""
        if point.source:
            return None
        return self._numbers.get(tuple(point.knobs.get(name, -1) for name in self.plan.knobs))

    @cached_property
    def _counted(self) -> dict[str, tuple[str, int]]:
        """Method and line where the counts of a regular expression stand."""
        return {
            read_pattern(text).regex.pattern: (method, line)
            for method, lines in self.patterns.items()
            for line, text in enumerate(lines)
        }

    def count_patterns(self, number: int, patterns: Sequence[Pattern]) -> PatternCounts | None:
        """How many instructions of a point's longest kernel match some patterns, whichever method's
        they were; None where the point has no code, or a pattern was not counted."""
        found = []
        for one in patterns:
            method, line = self._counted.get(one.regex.pattern, ("", 0))
            row = self.signatures[method][number] if method else None
            if row is None:
                return None
            found.append((one.text, row[line]))
        return tuple(found)

    def at_workload(self, workload: Problem | None = None) -> GridAt:
        """The part of one workload; None takes the headline."""
        if workload is None:
            return self.at[0]
        for one in self.at:
            if one.workload == workload:
                return one
        raise LabError(
            f"The grid of {self.plan.rung} was not measured on {workload}.",
            f"it was on {'; '.join(str(one.workload) for one in self.at)}",
            "one of these, or forecasts",
        )

    def samples(self, number: int, workload: Problem | None = None) -> Samples | None:
        """What was measured of a point in its batch; None where it has no time."""
        at = self.at_workload(workload)
        us = at.samples[number]
        return samples_of([us], at, at.launches[number]) if us else None

    def median(self, number: int, workload: Problem | None = None) -> float | None:
        """Median time of a point in its batch, microseconds."""
        us = self.at_workload(workload).samples[number]
        return statistics.median(us) if us else None

    def best(self, workload: Problem | None = None) -> tuple[int, float]:
        """The fastest point and its median time, microseconds."""
        times = {one: self.median(one, workload) for one in range(len(self))}
        known = {one: time for one, time in times.items() if time is not None}
        if not known:
            raise LabError(f"No point of the grid of {self.plan.rung} has a time.")
        number = min(known, key=lambda one: known[one])
        return number, known[number]

    def identical(self, workload: Problem | None = None) -> list[tuple[Times, Times, bool]]:
        """Samples of points that were timed twice, and whether in two batches."""
        at = self.at_workload(workload)
        return [
            (at.samples[one.point], at.again[one.point], one.batch != self.plan.batch_of(one.point))
            for one in self.plan.pairs
            if at.samples[one.point] and one.point in at.again
        ]


def digits(value: float, count: int) -> float:
    """A value to so many significant digits."""
    return float(f"{value:.{count}g}")


def samples_of(rows: Sequence[Times], at: GridAt, launches: int = 1) -> Samples:
    """Times of some processes as a record has them."""
    return Samples(
        processes=tuple(
            ProcessSamples(
                process=process,
                us=us,
                launches_per_sample=max(1, launches),
                rotated_sets=at.sets,
                rotated_bytes=at.set_bytes,
            )
            for process, us in enumerate(rows)
        )
    )


def grid_path(rung: str, gpu: str) -> Path:
    """Where the grid of a shipped family is."""
    return kernels_dir() / "grids" / f"{rung}.{gpu}{ENDING}"


# ---------------------------------------------------------------------------- reading, writing


def write_grid(path: Path, grid: Grid) -> None:
    """Write a grid; equal ones give equal bytes."""
    _refuse_contradictions(grid, path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, gzip.compress(adapter_of(Grid).dump_json(grid), 9, mtime=0), durable=True)


@dataclass(frozen=True)
class _Versioned:
    """What every file of this room's tables has."""

    schema_version: int | None = None


def read_kept(path: Path, of: Any, schema: int, what: str, still_works: str) -> Any:
    """Read a file of this room's tables: JSON of one schema, compressed where its name says so."""
    try:
        data = path.read_bytes()
        data = gzip.decompress(data) if path.suffix == ".gz" else data
        version = adapter_of(_Versioned).validate_json(data).schema_version
        if version != schema:  # before what another schema cannot have is missed
            raise ValueError(f"its schema is {version}; this labtools reads {schema}")
        return adapter_of(of).validate_json(data)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        why = f"{path}: {type(error).__name__}: {error}"
        raise LabError(f"The {what} {path.name} cannot be read.", why, still_works) from error


def read_grid(path: Path) -> Grid:
    """Read a grid and hold it against itself."""
    still_works = "forecasts, live measurements; git checkout gives a shipped grid back"
    grid: Grid = read_kept(path, Grid, GRID_SCHEMA, "recorded grid", still_works)
    _refuse_contradictions(grid, path)
    return grid


def _refuse_contradictions(grid: Grid, path: Path) -> None:
    problems = grid_contradictions(grid)
    if problems:
        raise LabError(
            f"The grid {path.name} contradicts itself.",
            "; ".join(problems[:4]),
            "forecasts, live measurements; a shipped grid comes back by git checkout",
        )


def grid_contradictions(grid: Grid) -> list[str]:
    """What of a grid cannot be; empty when all is well."""
    count = len(grid)
    problems = [
        f"the column {name} has {len(column)} entries for {count} points"
        for name, column in _columns(grid)
        if len(column) != count
    ]
    if problems:
        return problems
    if len({one.point for one in grid.plan.pairs}) != len(grid.plan.pairs):
        problems.append("a point is in two pairs of identical kernels")
    if len(grid._numbers) != count:
        problems.append("two points have the same knobs")
    numbers = set(range(count))
    for at in grid.at:
        where = str(at.workload)
        for number, us in enumerate(at.samples):
            if any(not (math.isfinite(one) and one > 0) for one in us):
                problems.append(f"point {number} has a time that is none on {where}")
            if not us and number not in at.failures and number not in grid.problems:
                problems.append(f"point {number} has no time on {where}, and nothing says why")
            if us and number in at.failures:
                problems.append(f"point {number} has a time on {where}, and a reason for none")
        if not set(at.again) <= {pair.point for pair in grid.plan.pairs}:
            problems.append(f"a point was timed twice on {where} that is in no pair")
        if not all(-1 <= one < len(grid.codes) for one in at.code):
            problems.append(f"a point on {where} has a code that is not there")
    named = set(grid.problems)
    if grid.full is not None:
        named |= {*grid.full.samples, *grid.full.again, *grid.full.failures}
    if not named <= numbers:
        problems.append(f"there is no point {min(named - numbers)}")
    return problems


def _columns(grid: Grid) -> Iterable[tuple[str, Sequence[Any]]]:
    yield from grid.plan.knobs.items()
    yield from (("registers", grid.registers), ("spills", grid.spills))
    yield "entries", grid.entries
    yield from grid.numbers.items()
    yield from ((f"signature of {name}", rows) for name, rows in grid.signatures.items())
    for at in grid.at:
        for name in ("samples", "worst_error", "forecast_us", "band_us", "bound", "code"):
            yield f"{name} on {at.workload}", getattr(at, name)
        yield f"launches on {at.workload}", at.launches
        yield from at.counters.items()


# ------------------------------------------------------------------------- does it still fit


def changed_points(grid: Grid, family: Family, points_known: bool = False) -> dict[int, str]:
    """The points of a grid that are of other code than stands in the files, by their number, and
    why: source, options and, but for ``points_known``, the family's points are compared."""
    plan, why = grid.plan, ""
    if family.rung.id != plan.rung:
        why = f"it is of {plan.rung}"
    elif source_hash_of(family) != plan.source_hash:
        why = "the source or one of its headers has changed"
    elif grid.options != (*COMMON_OPTIONS, *CUPY_ADDED_OPTIONS):
        why = "the compiler's options have changed"
    if why:
        return dict.fromkeys(range(len(grid)), why)
    changed = {}
    for number in () if points_known else range(len(grid)):
        knobs = plan.knobs_of(number)
        try:
            point = family.point(knobs)
        except LabError as error:
            changed[number] = f"the family no longer has it: {error.what}"
        else:
            if point.knobs != knobs:
                changed[number] = f"the family now calls it {point.key}"
    return changed


# ------------------------------------------------------------------------ Kernel Tuner's format


@dataclass(frozen=True)
class TunerEntry:
    """A configuration in Kernel Tuner's cache."""

    knobs: Mapping[str, int]  # all of them, by name
    us: Times  # samples, microseconds; empty where there are none
    at: str  # when it was measured, UTC, ISO 8601
    # of Kernel Tuner's kinds of failure; empty where there are samples
    error: Literal["", "CompilationFailedConfig", "RuntimeFailedConfig"] = ""
    spent_us: float = 0.0  # that all calls behind the samples took


def write_kernel_tuner(
    path: Path,
    kernel: str,
    device: str,
    workload: Problem,
    entries: Sequence[TunerEntry],
    knobs: Mapping[str, Sequence[int]],
    restrictions: Sequence[tuple[str, str]] = (),
) -> None:
    """Write a cache file as Kernel Tuner 1.5 reads it, closed: ``time`` is the median of ``times``,
    in milliseconds. Of what was timed it names the values of the knobs, and all where nothing was.
    ``restrictions`` are the family's, expressions over the knobs as ``tune_kernel`` takes them, and
    why each holds."""
    names = list(entries[0].knobs) if entries else list(knobs)
    used = {name: sorted({one.knobs[name] for one in entries}) for name in names}
    head = {
        "device_name": device,
        "kernel_name": kernel,
        "problem_size": [getattr(workload, name) for name in workload.shape_fields],
        "tune_params_keys": names,
        "tune_params": {name: values or sorted(set(knobs[name])) for name, values in used.items()},
        "objective": "time",
        "restrictions": [rule for rule, _ in restrictions],
        "reasons_of_restrictions": [why for _, why in restrictions],
        "cache": {},
    }
    lines = [json.dumps(_tuner_entry(one, names))[1:-1] for one in entries]
    # As Kernel Tuner writes it: the head without its last brackets, a line an entry, the brackets.
    text = json.dumps(head, indent="").removesuffix("}\n}") + "".join(f"\n{one}," for one in lines)
    write_whole(path, (text.removesuffix(",") + "}\n}").encode())


def _tuner_entry(one: TunerEntry, names: Sequence[str]) -> dict[str, Any]:
    key = ",".join(str(one.knobs[name]) for name in names)
    found: dict[str, Any] = {name: one.knobs[name] for name in names}
    if one.error:
        found |= {"time": one.error, "__error__": one.error}
    else:
        times_ms = [us / 1e3 for us in one.us]
        found |= {"time": statistics.median(times_ms), "times": times_ms}
    spent = ("compile_time", "verification_time", "strategy_time", "framework_time")
    benchmark_ms = one.spent_us / 1e3
    found |= {**dict.fromkeys(spent, 0.0), "benchmark_time": benchmark_ms, "timestamp": one.at}
    return {key: found}


def export_kernel_tuner(
    grid: Grid,
    path: Path,
    workload: Problem | None = None,
    restrictions: Sequence[tuple[str, str]] = (),
) -> None:
    """Write a grid at one workload as Kernel Tuner's cache file, see `write_kernel_tuner`."""
    at, measured = grid.at_workload(workload), grid.provenance.date.isoformat()
    entries = [
        TunerEntry(
            grid.plan.knobs_of(number),
            us,
            measured,
            "" if us else "CompilationFailedConfig" if code < 0 else "RuntimeFailedConfig",
            sum(us) * launches,
        )
        for number, (us, code, launches) in enumerate(
            zip(at.samples, at.code, at.launches, strict=True)
        )
    ]
    device, knobs = grid.provenance.gpu, grid.plan.knobs
    write_kernel_tuner(path, grid.plan.rung, device, at.workload, entries, knobs, restrictions)
