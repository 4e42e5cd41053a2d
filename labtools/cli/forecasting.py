"""``labtools forecast``: how long it should take, before anything runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from labtools.measure import trip_counts_of
from labtools.predict import (
    ChainLink,
    Forecast,
    Gpu,
    LaunchForecast,
    achieved_occupancy,
    floors,
    forecast,
    gpu_or_default,
    machine_of,
    model_name,
    waves,
    what_if,
)
from labtools.predict.bands import FAMILIES, band_of
from labtools.predict.launched import launched_code
from labtools.problem import LabError, Problem
from labtools.problem.launched import LaunchProblem
from labtools.problem.rung import say_knobs
from labtools.problem.text import how_many
from labtools.toolchain import CompileError, CompilerMissing
from labtools.toolchain.errors import DisassemblerMissing

from .given import LaunchAsked, RungAsked
from .outcome import Answer, UsageProblem, plain, typed

if TYPE_CHECKING:
    from rich.console import Console

    from labtools.toolchain.progress import Progress

_LAUNCH_LINES = 20
"""On launches, at most, where nobody asked for all."""


@dataclass(frozen=True)
class ForecastAnswer(Answer):
    """The forecast with its chain, and the floor, waves and occupancy that it stands on."""

    rung: str
    workload: Problem
    knobs: Mapping[str, int]
    gpu: Gpu
    made: Forecast
    factor: float | None  # of a latency, where it was asked what if
    what_if_us: Mapping[str, float]  # the time with each kind of latency that many times as long

    def to_dict(self) -> dict[str, Any]:
        """What the JSON holds."""
        made = self.made
        return {
            "rung": self.rung,
            "workload": self.workload,
            "knobs": self.knobs,
            "gpu": self.gpu.name,
            "origin": "forecast",
            "time_us": made.time_us,
            "band_us": made.band_us,
            "family": made.family,
            "bound": made.bound,
            "bound_reason": made.bound_reason,
            "terms_us": made.terms_us,
            "gb_per_s": made.gb_per_s,
            "in_flight_bytes": made.in_flight_bytes,
            "chain_stack": made.stack,
            "calibrated": made.calibrated,
            "model": model_name(),
            "code": made.code,
            "note": made.note,
            **({"doubts": made.doubts} if made.doubts else {}),
            "floor": _computed(made.floor),
            "launches": [self._launch(launch) for launch in made.launches],
            **(
                {"what_if": {"factor": self.factor, "time_us": self.what_if_us}}
                if self.factor is not None
                else {}
            ),
        }

    def _launch(self, launch: LaunchForecast) -> dict[str, Any]:
        """One launch, with the occupancy and the waves that it stands on."""
        names = "entry time_us blocks threads dram_bytes l2_bytes issue_share".split()
        names += ["load_latency_cycles", "true_chain_cycles"]
        resident = launch.occupancy
        return {
            **{name: getattr(launch, name) for name in names},
            "loops": [
                dict(zip(("instructions", "trips", "cycles_per_trip"), loop, strict=True))
                for loop in launch.trips
            ],
            "chain": [_link(link) for link in launch.chain],
            "occupancy": _computed(resident),
            "achieved_occupancy": _computed(achieved_occupancy(self.gpu, resident, launch.blocks)),
            "waves": _computed(waves(self.gpu, resident, launch.blocks)),
        }

    def show(self, console: Console) -> None:
        """The time, what it stands on, and where one warp's time goes."""
        self._show(console)

    def show_all(self, console: Console) -> None:
        """The same, and every reason for which there is no band."""
        self._show(console, details=True)

    def _show(self, console: Console, details: bool = False) -> None:
        launches = self._say_launches()
        if not details and len(launches) > _LAUNCH_LINES:
            rest = (
                f"... {len(launches) - _LAUNCH_LINES} lines on launches more; --verbose shows them"
            )
            launches = [*launches[:_LAUNCH_LINES], rest]
        for line in (*self._say_time(details), *launches, *self._say_chain()):
            console.print(line)
        for line in self._say_notes(details):
            console.print(line)

    def _say_band(self) -> list[str]:
        """How often the band held, where that was measured."""
        if (family := self.made.family) is None:
            return []
        band = band_of(machine_of(self.gpu), family)
        said = f"the band held for {band.held} of {band.fresh} fresh ones: {FAMILIES[family]}"
        return [f"recorded  {said}"] if band.fresh else []

    def _say_source(self) -> list[str]:
        """Of a kernel that is told by its launch: who compiled it, and what was read of it."""
        if not isinstance(self.workload, LaunchProblem):
            return []
        return [f"computed  {one}" for one in (self.made.code, self.workload.remark) if one]

    def _say_time(self, details: bool) -> list[str]:
        made, floor = self.made, self.made.floor
        band = "no band"
        if made.band_us is not None:
            band = "band {:.2f} to {:.2f}".format(*made.band_us)
        why = "nobody knows how far this is off; --verbose says why"
        if made.faults:
            why = f"a GPU does not run this to its end: {'; '.join(made.faults)}"
        if details:
            why = "; ".join(made.doubts)
        knobs = say_knobs(self.knobs, " ")
        part = " and ".join(floor.left_out)
        without = f", without {part}, of which a part is read" if part else ""
        return [
            f"{self.rung}  {knobs}  on {self.gpu.name}",
            *self._say_source(),
            f"forecast  {made.time_us:.2f} us  ({band}), bound: {made.bound}, "
            f"model: {model_name()}",
            *([f"no band:  {why}"] if made.doubts else self._say_band()),
            f"          {made.bound_reason}",
            f"computed  floor {floor.time_us:.2f} us: {floor.bytes:,} bytes at "
            f"{floor.dram_gb_per_s:,.0f} GB/s{without}",
            *(
                [
                    f"computed  floor {floor.compute_us:.2f} us: {floor.flops:,} operations at "
                    f"{floor.compute_tflops:,.1f} TFLOP/s"
                ]
                if floor.compute_us and floor.bound == "compute"
                else []
            ),
            f"forecast  {made.gb_per_s:,.0f} GB/s from memory, "
            f"{made.in_flight_bytes:,.0f} bytes in flight per SM",
        ]

    def _say_launches(self) -> list[str]:
        lines = []
        for launch in self.made.launches:
            resident = launch.occupancy
            achieved = achieved_occupancy(self.gpu, resident, launch.blocks)
            lines.append(
                f"computed  {launch.entry}: "
                f"{how_many(resident.blocks_per_sm, 'block')} per SM, limited by "
                f"{resident.limiter.replace('_', ' ')}, theoretical occupancy "
                f"{resident.theoretical:.1%}, of this grid {achieved.achieved:.1%}, "
                f"{waves(self.gpu, resident, launch.blocks).waves:.2f} waves"
            )
            for instructions, trips, cycles in launch.trips:
                each = f", {cycles:,.0f} cycles each" if cycles else ""
                lines.append(
                    f"forecast  a loop of {instructions} instructions, {trips} trips{each}"
                )
        return lines

    def _say_chain(self) -> list[str]:
        lines = ["forecast  one warp's time:"]
        for part in self.made.stack:
            if part.share >= 0.01:
                lines.append(
                    f"            {part.share:6.1%}  {part.name} ({part.cycles:,.0f} cycles)"
                )
        if self.factor is not None:
            lines.append(f"forecast  with one kind of latency {self.factor:g} times as long:")
            for name, time_us in sorted(self.what_if_us.items(), key=lambda item: item[1]):
                lines.append(f"            {time_us:10.2f} us  {name}")
        return lines

    def _say_notes(self, details: bool) -> list[str]:
        """What is to be known besides, without what stands behind ``no band`` already."""
        made = self.made
        if not made.doubts:
            return [made.note] if made.note else []
        said = [self.workload.forecast_note] if self.workload.forecast_note else []
        if not made.calibrated:
            what = f"the latencies of {self.gpu.title} were not measured by this project"
            said.append(f"uncalibrated: {what}")
        notes = dict.fromkeys(note for launch in made.launches for note in launch.notes)
        return [*said, *(note for note in notes if details and note not in made.doubts)]


def forecast_rung(
    asked: RungAsked | LaunchAsked, gpu_name: str | None, factor: float | None, progress: Progress
) -> ForecastAnswer:
    """The forecast of a rung, and with a factor what each kind of latency would do."""
    if factor is not None and not 0 < factor < math.inf:
        with typed():
            raise LabError(
                f"--what-if is {factor:g}.",
                "a latency can only be made a positive number of times as long",
                "name a factor such as 0.5",
            )
    with typed():
        gpu = gpu_or_default(gpu_name)
    code, counts, knobs = None, None, dict[str, int]()
    workload: Problem
    if isinstance(asked, LaunchAsked):
        rung, launch = asked.read()
        progress(f"reading the machine code of {rung.id} for {gpu.arch}")
        try:
            rung, code = launched_code(rung, launch, gpu.limits)
        except (CompileError, CompilerMissing, DisassemblerMissing):
            raise
        except LabError as error:
            raise UsageProblem(error) from error
        workload = launch
    else:
        rung, workload, knobs = asked.read(derived=True, gpu_name=gpu_name)
        progress(f"reading the machine code of {rung.id} for {gpu.arch}")
        counts = trip_counts_of(rung, workload, knobs, gpu.limits)
    _say_floor_without_clock(workload, gpu)
    made = forecast(rung, workload, gpu, knobs, counts=counts, code=code)
    times: Mapping[str, float] = {}
    if factor is not None:
        progress("asking what if")
        times = what_if(rung, workload, gpu, knobs, factor, counts=counts, code=code)
    return ForecastAnswer(rung.id, workload, knobs, gpu, made, factor, times)


def _say_floor_without_clock(workload: Problem, gpu: Gpu) -> None:
    """Refuse a GPU whose clock nobody states, with the floor, which asks for no clock."""
    try:
        machine_of(gpu)
    except LabError as error:
        if gpu.dram_gb_per_s is None:
            raise
        floor = floors(workload, gpu, call_bytes=workload.minimal_bytes)
        least = (
            f"{floor.time_us:.2f} us for {floor.bytes:,} bytes at {floor.dram_gb_per_s:,.0f} GB/s"
        )
        works = f"the floor of {workload}: {least}; {error.still_works}"
        raise LabError(error.what, error.why, works) from error


def _computed(found: Any) -> dict[str, Any]:
    """A dataclass that a formula gave, with the word that says so."""
    return {**plain(found), "origin": "computed"}


def _link(link: ChainLink) -> dict[str, Any]:
    """An instruction of the chain: its text and place, when it issues, and what it waits for."""
    source = link.source
    return {
        "text": link.text,
        "line": source.line if source else None,
        "file": source.file.rpartition("/")[2] if source else None,
        "issue": link.issue,
        "cause": link.cause,
        "cycles": link.cycles,
    }
