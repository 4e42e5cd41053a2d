"""``labtools forecast``: how long it should take, before anything runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from labtools.measure import trip_counts_of
from labtools.predict import (
    ChainLink,
    Forecast,
    Gpu,
    LaunchForecast,
    achieved_occupancy,
    forecast,
    gpu_or_default,
    model_name,
    waves,
    what_if,
)
from labtools.problem import LabError, Problem
from labtools.problem.rung import say_knobs

from .given import check_supported, choose_workload, read_knobs, read_rung
from .outcome import Answer, parts, plain, typed

if TYPE_CHECKING:
    from rich.console import Console

    from labtools.toolchain.progress import Progress


@dataclass(frozen=True)
class TripsForecast:
    """A loop: instructions of a trip, how often it is gone through, and cycles of a trip."""

    instructions: int
    trips: int
    cycles_per_trip: float


@dataclass(frozen=True)
class LinkForecast:
    """An instruction of the chain: its text and place, when it issues, and what it waits for."""

    link: ChainLink

    in_json: ClassVar[Mapping[str, str]] = {
        **{"text": "link.text", "line": "line", "file": "file"},
        **parts("issue cause cycles", of="link"),
    }

    @property
    def line(self) -> int | None:
        """Of the source, where it is known."""
        return self.link.source.line if self.link.source else None

    @property
    def file(self) -> str | None:
        """The source's name without its folder, where it is known."""
        return self.link.source.file.rpartition("/")[2] if self.link.source else None


@dataclass(frozen=True)
class LaunchAnswer:
    """One launch of a forecast, with the occupancy and the waves that it stands on."""

    made: LaunchForecast
    gpu: Gpu

    in_json: ClassVar[Mapping[str, str]] = {
        **parts("entry time_us blocks threads", of="made"),
        "loops": "loops",
        **parts("dram_bytes l2_bytes issue_share load_latency_cycles", of="made"),
        **{"true_chain_cycles": "made.true_chain_cycles", "chain": "chain"},
        **parts("occupancy achieved_occupancy waves"),
    }

    @property
    def loops(self) -> tuple[TripsForecast, ...]:
        """Of the first warp."""
        return tuple(TripsForecast(*trips) for trips in self.made.trips)

    @property
    def chain(self) -> tuple[LinkForecast, ...]:
        """The main loop's instructions."""
        return tuple(LinkForecast(link) for link in self.made.chain)

    @property
    def occupancy(self) -> dict[str, Any]:
        """What fits on an SM."""
        return _computed(self.made.occupancy)

    @property
    def achieved_occupancy(self) -> dict[str, Any]:
        """What this grid fills of it."""
        return _computed(achieved_occupancy(self.gpu, self.made.occupancy, self.made.blocks))

    @property
    def waves(self) -> dict[str, Any]:
        """How often the GPU is filled."""
        return _computed(waves(self.gpu, self.made.occupancy, self.made.blocks))


@dataclass(frozen=True)
class WhatIf:
    """Times with one kind of latency ``factor`` times as long, microseconds by kind."""

    factor: float
    time_us: Mapping[str, float]


@dataclass(frozen=True)
class ForecastAnswer(Answer):
    """The forecast with its chain, and the floor, waves and occupancy that it stands on."""

    rung: str
    workload: Problem
    knobs: Mapping[str, int]
    gpu: Gpu
    made: Forecast
    model: str
    what_if: WhatIf | None = None
    origin: str = "forecast"

    in_json: ClassVar[Mapping[str, str]] = {
        **parts("rung workload knobs"),
        **{"gpu": "gpu.name", "origin": "origin"},
        **parts("time_us band_us bound bound_reason terms_us gb_per_s", of="made"),
        **{"in_flight_bytes": "made.in_flight_bytes", "chain_stack": "made.stack"},
        **{"calibrated": "made.calibrated", "model": "model"},
        **parts("code note", of="made"),
        "doubts": "doubts?",
        **{"floor": "floor", "launches": "launches", "what_if": "what_if?"},
    }

    @property
    def floor(self) -> dict[str, Any]:
        """What no kernel can beat."""
        return _computed(self.made.floor)

    @property
    def launches(self) -> tuple[LaunchAnswer, ...]:
        """In order."""
        return tuple(LaunchAnswer(launch, self.gpu) for launch in self.made.launches)

    def show(self, console: Console) -> None:
        """The time, what it stands on, and where one warp's time goes."""
        for line in (*self._say_time(), *self._say_launches(), *self._say_chain()):
            console.print(line, markup=False)

    @property
    def doubts(self) -> Sequence[str] | None:
        """Why there is no band; None where there is one."""
        return self.made.doubts or None

    def _say_time(self) -> list[str]:
        made, floor = self.made, self.made.floor
        band = "no band"
        if made.band_us is not None:
            band = "band {:.2f} to {:.2f}".format(*made.band_us)
        knobs = say_knobs(self.knobs, " ")
        return [
            f"{self.rung}  {knobs}  on {self.gpu.name}",
            f"forecast  {made.time_us:.2f} us  ({band}), bound: {made.bound}, model: {self.model}",
            *(f"no band:  {doubt}" for doubt in made.doubts),
            f"          {made.bound_reason}",
            f"computed  floor {floor.time_us:.2f} us: {floor.bytes:,} bytes at "
            f"{floor.dram_gb_per_s:,.0f} GB/s",
            f"forecast  {made.gb_per_s:,.0f} GB/s from memory, "
            f"{made.in_flight_bytes:,.0f} bytes in flight an SM",
        ]

    def _say_launches(self) -> list[str]:
        lines = []
        for launch in self.launches:
            resident, achieved = launch.occupancy, launch.achieved_occupancy
            lines.append(
                f"computed  {launch.made.entry}: "
                f"{resident['blocks_per_sm']} blocks an SM by {resident['limiter']}, theoretical "
                f"occupancy {resident['theoretical']:.1%}, of this grid {achieved['achieved']:.1%}"
                f", {launch.waves['waves']:.2f} waves"
            )
            for loop in launch.loops:
                each = f", {loop.cycles_per_trip:,.0f} cycles each" if loop.cycles_per_trip else ""
                lines.append(
                    f"forecast  a loop of {loop.instructions} instructions, "
                    f"{loop.trips} trips{each}"
                )
        return lines

    def _say_chain(self) -> list[str]:
        lines = ["forecast  one warp's time:"]
        for part in self.made.stack:
            if part.share >= 0.01:
                lines.append(
                    f"            {part.share:6.1%}  {part.name} ({part.cycles:,.0f} cycles)"
                )
        if self.what_if is not None:
            factor = self.what_if.factor
            lines.append(f"forecast  with one kind of latency {factor:g} times as long:")
            for name, time_us in sorted(self.what_if.time_us.items(), key=lambda item: item[1]):
                lines.append(f"            {time_us:10.2f} us  {name}")
        return [*lines, self.made.note] if self.made.note else lines


def forecast_rung(
    name: str,
    workload_text: str | None,
    gpu_name: str | None,
    chosen: Sequence[str] | None,
    factor: float | None,
    progress: Progress,
) -> ForecastAnswer:
    """The forecast of a rung, and with a factor what each kind of latency would do."""
    if factor is not None and not 0 < factor < math.inf:
        with typed():
            raise LabError(
                f"--what-if is {factor:g}.",
                "a latency can only be made a positive number of times as long",
                "name a factor such as 0.5",
            )
    rung = read_rung(name)
    workload = choose_workload(workload_text, rung)
    knobs = read_knobs(rung, chosen)
    check_supported(rung, workload, knobs)
    with typed():
        gpu = gpu_or_default(gpu_name)
    progress(f"reading the machine code of {rung.id} for {gpu.arch}")
    counts = trip_counts_of(rung, workload, knobs, gpu.limits)
    made = forecast(rung, workload, gpu, knobs, counts=counts)
    asked = None
    if factor is not None:
        progress("asking what if")
        asked = WhatIf(factor, what_if(rung, workload, gpu, knobs, factor, counts=counts))
    return ForecastAnswer(rung.id, workload, knobs, gpu, made, model_name(), asked)


def _computed(found: Any) -> dict[str, Any]:
    """A dataclass that a formula gave, with the word that says so."""
    return {**plain(found), "origin": "computed"}
