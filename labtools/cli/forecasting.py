"""``labtools forecast``: how long it should take, before anything runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

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
from labtools.problem import Problem
from labtools.problem.rung import say_knobs

from .given import check_supported, choose_workload, read_knobs, read_rung
from .outcome import WHERE_ASKED, Answer, plain, taken_from, typed

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

    text: str
    line: int | None
    file: str | None
    issue: float
    cause: str
    cycles: Mapping[str, float]


@dataclass(frozen=True)
class LaunchAnswer:
    """One launch of a forecast, with the occupancy and the waves that it stands on."""

    entry: str
    time_us: float
    blocks: int
    threads: int
    loops: tuple[TripsForecast, ...]
    dram_bytes: float
    l2_bytes: float
    issue_share: float
    load_latency_cycles: float
    true_chain_cycles: float | None
    chain: tuple[LinkForecast, ...]
    occupancy: Mapping[str, Any]
    achieved_occupancy: Mapping[str, Any]
    waves: Mapping[str, Any]


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
    gpu: str
    origin: str
    time_us: float
    band_us: tuple[float, float]
    bound: str
    bound_reason: str
    terms_us: Mapping[str, float]
    gb_per_s: float
    in_flight_bytes: float
    chain_stack: tuple[Any, ...]
    calibrated: bool
    model: str
    code: str
    note: str
    floor: Mapping[str, Any]
    launches: tuple[LaunchAnswer, ...]
    what_if: WhatIf | None = field(default=None, metadata=WHERE_ASKED)

    def show(self, console: Console) -> None:
        """The time, what it stands on, and where one warp's time goes."""
        for line in (*self._say_time(), *self._say_launches(), *self._say_chain()):
            console.print(line, markup=False)

    def _say_time(self) -> list[str]:
        low, high = self.band_us
        knobs = say_knobs(self.knobs, " ")
        return [
            f"{self.rung}  {knobs}  on {self.gpu}",
            f"forecast  {self.time_us:.2f} us  (band {low:.2f} to {high:.2f}), "
            f"bound: {self.bound}, model: {self.model}",
            f"          {self.bound_reason}",
            f"computed  floor {self.floor['time_us']:.2f} us: {self.floor['bytes']:,} bytes at "
            f"{self.floor['dram_gb_per_s']:,.0f} GB/s",
            f"forecast  {self.gb_per_s:,.0f} GB/s from memory, "
            f"{self.in_flight_bytes:,.0f} bytes in flight an SM",
        ]

    def _say_launches(self) -> list[str]:
        lines = []
        for launch in self.launches:
            resident, achieved = launch.occupancy, launch.achieved_occupancy
            lines.append(
                f"computed  {launch.entry}: "
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
        for part in self.chain_stack:
            if part.share >= 0.01:
                lines.append(
                    f"            {part.share:6.1%}  {part.name} ({part.cycles:,.0f} cycles)"
                )
        if self.what_if is not None:
            factor = self.what_if.factor
            lines.append(f"forecast  with one kind of latency {factor:g} times as long:")
            for name, time_us in sorted(self.what_if.time_us.items(), key=lambda item: item[1]):
                lines.append(f"            {time_us:10.2f} us  {name}")
        return [*lines, self.note] if self.note else lines


def forecast_rung(
    name: str,
    workload_text: str | None,
    gpu_name: str | None,
    chosen: Sequence[str] | None,
    factor: float | None,
    progress: Progress,
) -> ForecastAnswer:
    """The forecast of a rung, and with a factor what each kind of latency would do."""
    rung = read_rung(name)
    workload = choose_workload(workload_text, rung)
    knobs = read_knobs(rung, chosen)
    check_supported(rung, workload, knobs)
    with typed():
        gpu = gpu_or_default(gpu_name)
    progress(f"reading the machine code of {rung.id} for {gpu.arch}")
    made = forecast(rung, workload, gpu, knobs)
    asked = None
    if factor is not None:
        progress("asking what if")
        asked = WhatIf(factor, what_if(rung, workload, gpu, knobs, factor))
    return _answer(made, gpu, rung=rung.id, workload=workload, knobs=knobs, what_if=asked)


def _answer(made: Forecast, gpu: Gpu, **given: Any) -> ForecastAnswer:
    return taken_from(
        ForecastAnswer,
        made,
        gpu=gpu.name,
        origin="forecast",
        model=model_name(),
        chain_stack=made.stack,
        floor=_computed(made.floor),
        launches=tuple(_launch(launch, gpu) for launch in made.launches),
        **given,
    )


def _launch(made: LaunchForecast, gpu: Gpu) -> LaunchAnswer:
    return taken_from(
        LaunchAnswer,
        made,
        loops=tuple(TripsForecast(*trips) for trips in made.trips),
        chain=tuple(_link(link) for link in made.chain),
        occupancy=_computed(made.occupancy),
        achieved_occupancy=_computed(achieved_occupancy(gpu, made.occupancy, made.blocks)),
        waves=_computed(waves(gpu, made.occupancy, made.blocks)),
    )


def _link(link: ChainLink) -> LinkForecast:
    source = link.source
    return taken_from(
        LinkForecast,
        link,
        line=source.line if source else None,
        file=source.file.rpartition("/")[2] if source else None,
        cycles=dict(link.cycles),
    )


def _computed(found: Any) -> dict[str, Any]:
    """A dataclass that a formula gave, with the word that says so."""
    return {**plain(found), "origin": "computed"}
