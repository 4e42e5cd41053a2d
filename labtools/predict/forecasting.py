"""How long a kernel will take, from its machine code, before anything runs: the trace says what
blocks execute, the SM model how long that takes, the grid how they share the GPU."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from labtools.problem import LabError, Launch, Problem, Rung, timed_launches
from labtools.problem.rung import least_call_bytes
from labtools.record.bound import (
    FULL_UNITS,
    LAUNCH_FACTOR,
    Bound,
    busiest_unit,
    decide_bound,
    nearest_bound,
)
from labtools.toolchain.apart import copies_at_once, each_apart, threads
from labtools.toolchain.cache import Recent, code_digest, content_key, is_kept, kept
from labtools.toolchain.cubin import no_kernel
from labtools.toolchain.garbage import no_collection
from labtools.toolchain.listings import MachineCode, machine_code
from labtools.toolchain.sass import Sass

from .bands import FAMILIES, band_of, family_of
from .blocks import LaunchBlocks
from .counts import TripCounts
from .explain import chain_share
from .grid import LaunchModel
from .machine import Machine, machine_of
from .memory import CallMemory
from .result import Forecast, LaunchForecast
from .roofline import floors
from .sheets import Gpu, load_gpu
from .trace import TraceError

MODEL_ROOMS = ("problem", "toolchain", "record", "predict")
MODEL_CODE = code_digest(*MODEL_ROOMS)
"""The code and tables that make a forecast, as they were when this was imported."""
EACH_LIMIT_S = 600.0
EACH_BYTES = 2**33
"""Processor time and memory of a copy of this process that makes some of several forecasts."""
MOST_FOLLOWED = 2
"""Calls whose blocks stay in memory, some ten MB each, to be timed again under other conditions."""
CLASSES = ("memory", "shared", "shuffle", "special", "convert", "tensor", "barrier", "branch")

_recent: Recent[tuple[LaunchBlocks, ...]] = Recent(MOST_FOLLOWED)


@no_collection()
def forecast(
    rung: Rung,
    workload: Problem,
    gpu: Gpu | str,
    knobs: Mapping[str, int] | None = None,
    *,
    scale: Mapping[str, float] | None = None,
    code: MachineCode | None = None,
    machine: Machine | None = None,
    counts: Callable[[], TripCounts] | None = None,
) -> Forecast:
    """Predict the time of one call of a rung from its machine code. No GPU is needed. ``scale`` are
    factors on latencies by class (`CLASSES`), and on the memory ceiling as ``bandwidth``.
    ``machine`` has other latencies than the table. ``counts`` is called where a jump on data leaves
    trips open: the kernel is followed with the inputs, and believed where a run of some blocks
    agrees."""
    _check_classes(scale or {})
    call = _Call.of(rung, workload, gpu, knobs, code, machine)

    def make() -> Forecast:
        models = call.models()
        return call.with_doubts(call.predict(models, scale or {}), models)

    content = (*call.content, scale or {})
    if counts is None:
        return kept("forecast", content, make)
    try:
        first: Forecast | TraceError = kept("forecast", content, make)
    except TraceError as error:
        first = error
    if isinstance(first, Forecast) and not any(launch.doubts for launch in first.launches):
        return first
    asked = counts()

    def make_counted() -> Forecast:
        models = call.models(asked)
        if isinstance(first, Forecast) and any(model.blocks.undecided for model in models):
            return first
        made = call.predict(models, scale or {})
        return dataclasses.replace(call.with_doubts(made, models), counted=True)

    doubt = "nor do the inputs and a run on the CPU say it"
    try:
        second = kept("forecast_counted", (*content, asked.content), make_counted)
    except LabError as error:
        if isinstance(first, TraceError):
            raise first from error
        doubt = f"{doubt}: {error.what.rstrip('.')}"
        return dataclasses.replace(first, doubts=(*first.doubts, doubt))
    if isinstance(first, TraceError) or not any(launch.doubts for launch in second.launches):
        return second
    # Half of an answer is no better than none: the blocks would be followed in two ways.
    said = dict.fromkeys((*first.doubts, doubt, *second.doubts))
    return dataclasses.replace(first, doubts=tuple(said))


def forecast_each(
    asked: Sequence[tuple[Rung, Problem, Gpu | str, Mapping[str, int] | None]],
) -> list[Forecast]:
    """Several forecasts: compiled and made side by side where there are cores for it."""
    if len(asked) < 2:
        return [forecast(*one) for one in asked]
    with threads(copies_at_once()) as pool:
        kept_already = list(pool.map(_is_kept, asked))
    new = [one for one, there in zip(asked, kept_already, strict=True) if not there]
    seconds, size = EACH_LIMIT_S, EACH_BYTES
    made = iter(each_apart(lambda one: forecast(*one), new, limit_s=seconds, limit_bytes=size))
    both = zip(asked, kept_already, strict=True)
    return [forecast(*one) if there else next(made) for one, there in both]


def _is_kept(asked: tuple[Rung, Problem, Gpu | str, Mapping[str, int] | None]) -> bool:
    """Whether a forecast need only be read; the kernel is compiled to know it."""
    try:
        call = _Call.of(*asked)
    except LabError:  # it is raised when its turn comes
        return False
    return is_kept("forecast", (*call.content, {}))


def _check_classes(scale: Mapping[str, float]) -> None:
    unknown = set(scale) - {*CLASSES, "bandwidth", "l2", "dram"}
    if unknown:
        raise LabError(
            f"There is no latency class {sorted(unknown)[0]!r}.",
            f"the classes are {', '.join((*CLASSES, 'bandwidth'))}",
            "name one of them",
        )
    wrong = [name for name, factor in scale.items() if not 0 < factor < math.inf]
    if wrong:
        raise LabError(
            f"The factor on {wrong[0]} is {scale[wrong[0]]}.",
            "a latency can only be made a positive number of times as long",
            "name a factor such as 0.5",
        )


@dataclass(frozen=True)
class _Call:
    """One call on one GPU, with its machine code."""

    launches: Sequence[Launch]
    workload: Problem
    gpu: Gpu
    code: MachineCode
    machine: Machine

    @staticmethod
    def of(
        rung: Rung,
        workload: Problem,
        gpu: Gpu | str,
        knobs: Mapping[str, int] | None = None,
        code: MachineCode | None = None,
        machine: Machine | None = None,
    ) -> _Call:
        """The call of a rung; the kernel is compiled unless its code is at hand."""
        gpu = load_gpu(gpu) if isinstance(gpu, str) else gpu
        launches = rung.launches(workload, gpu.limits, knobs)
        code = code or machine_code(rung, workload, gpu.limits, rung.resolve_knobs(knobs))
        return _Call(launches, workload, gpu, code, machine or machine_of(gpu))

    @property
    def content(self) -> tuple[Any, ...]:
        """All that a forecast follows from, for the cache: the model's own code is part of it."""
        code = self.code
        made_of = (MODEL_CODE, self.launches, self.workload, self.gpu, self.machine)
        return (*made_of, code.content, code.resources, code.origin)

    def models(self, counts: TripCounts | None = None) -> list[LaunchModel]:
        """A model of each timed launch; with ``counts`` it follows what data decide."""
        code, timed = self.code, timed_launches(self.launches)
        missing = [launch.entry for launch in timed if launch.entry not in code.entries]
        if missing:
            raise no_kernel(code.rung_id, missing[0], sorted(code.entries))
        warm = self.workload.cache_state == "warm"
        return [
            LaunchModel(blocks, code.resources[blocks.launch.entry], self.gpu, self.machine, warm)
            for blocks in self._followed(counts)
        ]

    def _followed(self, counts: TripCounts | None) -> tuple[LaunchBlocks, ...]:
        """The blocks of each timed launch, the same on every GPU of an architecture, in a cold and
        a warm cache; those that were followed last are kept."""
        launches, code = self.launches, self.code
        key = content_key(launches, self.workload.replace(cache_state="cold"), code.content)
        known = _recent.get(key) if counts is None else None
        if known is not None:
            return known
        timed = timed_launches(launches)
        memory = CallMemory(self.workload, launches, timed, counts.inputs() if counts else None)
        place = {id(launch): number for number, launch in enumerate(launches)}
        entries = [code.entries[launch.entry] for launch in timed]
        blocks = tuple(
            LaunchBlocks(launch, sass, memory, (place[id(launch)], counts) if counts else None)
            for launch, sass in zip(timed, entries, strict=True)
        )
        if counts is None:
            _recent.put(key, blocks)
        return blocks

    def predict(self, models: Sequence[LaunchModel], scale: Mapping[str, float]) -> Forecast:
        """The forecast of some launches, with latencies scaled by class."""
        gpu = self.gpu
        if scale:
            models = [model.scaled(scale) for model in models]
        machine = models[0].machine
        results = [model.result for model in models]
        overhead_us = machine.start_us + sum(result.dispatch_us for result in results)
        time_us = overhead_us + sum(result.time_us for result in results)
        main = max(results, key=lambda result: result.time_us)
        empty_us = machine.launch_us(1) + machine.start_us
        peak = gpu.dram_gb_per_s or machine.dram_bytes_per_cycle * machine.clock_ghz
        bound, reason = _find_bound(time_us, empty_us, main, peak)
        family = self.family
        band = band_of(machine, family) if family else None
        read = sum(result.dram_bytes for result in results)
        notes = [note for result in results for note in result.notes]
        if self.workload.forecast_note:
            notes.append(self.workload.forecast_note)
        if not machine.calibrated:
            uncalibrated = f"uncalibrated: the latencies of {gpu.title} were not measured by this "
            uncalibrated += "project, so the band is wider; those here were " + machine.numbers_of
            notes.insert(0, uncalibrated)
        return Forecast(
            time_us=time_us,
            band_us=(time_us * band.low, time_us * band.high) if band else None,
            family=family,
            bound=bound,
            bound_reason=reason,
            terms_us=_terms(results, machine, overhead_us),
            calibrated=machine.calibrated,
            gpu=gpu.name,
            gb_per_s=read / time_us / 1e3,
            in_flight_bytes=main.in_flight_bytes,
            launches=tuple(results),
            code=self.code.origin,
            floor=floors(self.workload, gpu, call_bytes=self._least_bytes, code=self._whole_code),
            note="; ".join(notes),
        )

    @property
    def family(self) -> str | None:
        """Its family, see `bands.family_of`."""
        entries = {launch.entry for launch in timed_launches(self.launches)}
        code = [sass for entry, sass in self.code.entries.items() if entry in entries]
        return family_of(self.workload, self.launches, code)

    @property
    def _whole_code(self) -> list[Sass]:
        """Of every launch, preparations too."""
        return [self.code.entries[entry] for entry in {one.entry for one in self.launches}]

    @property
    def _least_bytes(self) -> float:
        """That no call can do without, as they are stored."""
        return least_call_bytes(self.workload, self.launches)

    def with_doubts(self, made: Forecast, models: Sequence[LaunchModel]) -> Forecast:
        """The forecast, without a band where something says that the model does not know, or that a
        GPU does not run it to its end."""
        workload, launches, gpu = self.workload, self.launches, self.gpu
        faults = tuple(fault for one in models for fault in one.blocks.faults)
        doubts = [*faults, *(f"nobody said what {one} holds" for one in workload.unknown_contents)]
        doubts += [doubt for launch in made.launches for doubt in launch.doubts]
        floor = made.floor
        if made.time_us < floor.time_us <= floor.least_us:
            doubts.append(
                f"{made.time_us:.4g} us is less than the {floor.time_us:.4g} us in which the "
                f"memory of {gpu.title} moves the {floor.bytes:,.0f} bytes of a call: the trace "
                "does not see all that is read"
            )
        made = _above_floor(made)
        spaces = [one for launch in launches for one in launch.workspace]
        if any(one.in_call for one in spaces):
            doubts.append("the call allocates memory, and how long that takes is not forecast")
        if made.family is None:
            kinds = ", ".join(FAMILIES.values())
            doubts.append(
                "nobody measured how far forecasts of such a kernel are off: the bands are those "
                f"of {kinds}"
            )
        workspaces = sum(one.bytes for one in spaces)
        needed = workload.set_bytes + workspaces
        if needed > gpu.memory_gb * 1e9:
            doubts.append(
                f"the call needs {needed / 1e9:,.0f} GB, and {gpu.title} has {gpu.memory_gb:g} GB"
            )
        if not doubts:
            return made
        doubts = list(dict.fromkeys(doubts))
        notes = ("no band: nobody knows how far this is off", made.note)
        note = "; ".join(filter(None, notes))
        said = tuple(doubts)
        return dataclasses.replace(made, band_us=None, doubts=said, faults=faults, note=note)


@no_collection()
def what_if(
    rung: Rung,
    workload: Problem,
    gpu: Gpu | str,
    knobs: Mapping[str, int] | None = None,
    factor: float = 0.5,
    classes: Sequence[str] = (*CLASSES, "bandwidth"),
    counts: Callable[[], TripCounts] | None = None,
    code: MachineCode | None = None,
) -> dict[str, float]:
    """Class to time, microseconds, if every latency of it were ``factor`` (above 0) times as long,
    for some of `CLASSES` and ``bandwidth``, whose ceiling is divided by it. Where many warps
    compete, two simulations differ by some percent for no reason; a shorter latency that would seem
    to make the kernel slower is said to change nothing."""
    _check_classes(dict.fromkeys(classes, factor))
    call = _Call.of(rung, workload, gpu, knobs, code)
    counted = counts and forecast(rung, workload, gpu, knobs, counts=counts).counted
    asked = counts() if counts and counted else None

    def make() -> dict[str, float]:
        models = call.models(asked)
        base_us = call.predict(models, {}).time_us
        found = {}
        for name in classes:
            scale = {name: 1 / factor if name == "bandwidth" else factor}
            time_us = call.predict(models, scale).time_us
            found[name] = min(time_us, base_us) if factor <= 1 else max(time_us, base_us)
        return found

    said_by = asked.content if asked else None
    return kept("what_if", (*call.content, factor, classes, said_by), make)


def _above_floor(made: Forecast) -> Forecast:
    """The forecast with nothing of it below what the card can do."""
    least = made.floor.least_us
    band = made.band_us and (max(made.band_us[0], least), max(made.band_us[1], least))
    return dataclasses.replace(made, time_us=max(made.time_us, least), band_us=band)


def _find_bound(
    time_us: float, empty_us: float, main: LaunchForecast, peak_gb_per_s: float
) -> tuple[Bound, str]:
    """(bound, one sentence) of a call by the rule that counters are read by too."""
    of_peak = main.dram_bytes / main.time_us / 1e3 / peak_gb_per_s if main.time_us else 0.0
    shares = {"dram": of_peak, **main.busy, "chain": chain_share(main.stack)}
    bound = decide_bound(shares, time_us / empty_us) or nearest_bound(shares)
    if bound == "launch":
        times = f"{LAUNCH_FACTOR:g} times an empty launch ({empty_us:.2f} us)"
        return bound, f"the whole call takes less than {times}"
    if bound in FULL_UNITS:
        unit = busiest_unit(bound, shares)
        return bound, FULL_UNITS[bound][unit].foretold.format(shares[unit])
    top = main.stack[0] if main.stack else None
    waited = f"a warp waits longest for {top.name} ({top.share:.0%})" if top else "it waits"
    return bound, (
        f"memory is used at {of_peak:.0%} of its peak and the issue slots at "
        f"{main.issue_share:.0%}; {waited}"
    )


def _terms(
    results: Sequence[LaunchForecast], machine: Machine, overhead_us: float
) -> dict[str, float]:
    """What each limit alone would take, microseconds."""
    rate = machine.dram_bytes_per_cycle * machine.clock_ghz * 1e3
    l2 = machine.l2_bytes_per_cycle * machine.clock_ghz * 1e3
    units: dict[str, float] = {
        bound: sum(
            result.busy[busiest_unit(bound, result.busy)] * result.time_us for result in results
        )
        for bound in FULL_UNITS
        if bound != "bandwidth"
    }
    return {
        "bandwidth": sum(result.dram_bytes for result in results) / rate,
        "l2_bandwidth": sum(result.l2_bytes for result in results) / l2,
        **units,
        "chain": sum(result.time_us for result in results),
        "launch": overhead_us,
    }
