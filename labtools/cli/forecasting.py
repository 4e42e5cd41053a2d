"""``labtools forecast``: how long it should take, before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from .given import check_supported, read_knobs, read_rung, read_workload
from .outcome import Outcome, Progress, typed

if TYPE_CHECKING:
    from rich.console import Console

DEFAULT_GPU = "h200"
"""The GPU of the shipped records, where there is none here to ask."""


def forecast_rung(
    name: str,
    workload_text: str,
    gpu_name: str | None,
    chosen: Sequence[str] | None,
    progress: Progress,
) -> Outcome:
    """The forecast with the floor, the waves and the occupancy that it stands on."""
    from labtools.predict import (
        achieved_occupancy,
        floors,
        forecast,
        gpu_of_device,
        load_gpu,
        occupancy,
        waves,
    )
    from labtools.problem import LabError
    from labtools.toolchain import compile_rung

    rung = read_rung(name)
    workload = read_workload(workload_text)
    knobs = read_knobs(rung, chosen)
    check_supported(rung, workload, knobs)
    if gpu_name is None:
        gpu = gpu_of_device() or load_gpu(DEFAULT_GPU)
    else:
        with typed():
            gpu = load_gpu(gpu_name)
    predicted = forecast(rung, workload, gpu, knobs)
    data: dict[str, Any] = {
        "rung": rung.id,
        "workload": workload.to_dict(),
        "knobs": knobs,
        "gpu": gpu.name,
        "origin": "forecast",
        "time_us": predicted.time_us,
        "band_us": list(predicted.band_us),
        "bound": predicted.bound,
        "model": predicted.model,
        "note": predicted.note,
        "floor": {**asdict(floors(workload, gpu)), "origin": "computed"},
    }
    notes: tuple[str, ...] = ()
    try:
        progress(f"compiling {rung.id} for {gpu.arch}")
        cubin = compile_rung(rung, workload, knobs, gpu.arch)
        data["launches"] = []
        for launch in rung.launches(workload, knobs):
            resources = cubin.resources_of(launch.entry)
            resident = occupancy(
                gpu,
                launch.num_threads,
                resources.registers,
                resources.shared_bytes + launch.smem_bytes,
            )
            achieved = achieved_occupancy(gpu, resident, launch.num_blocks)
            data["launches"].append(
                {
                    "entry": launch.entry,
                    "grid": list(launch.grid),
                    "block": list(launch.block),
                    "registers": resources.registers,
                    "occupancy": {**asdict(resident), "origin": "computed"},
                    "achieved_occupancy": {**asdict(achieved), "origin": "computed"},
                    "waves": {
                        **asdict(waves(gpu, resident, launch.num_blocks)),
                        "origin": "computed",
                    },
                }
            )
    except LabError as error:
        # The floor needs no compiler, so its absence costs the occupancy alone.
        notes = (f"without occupancy: {error.what} {error.why}",)
    return Outcome(data, lambda console: _show(console, data), notes=notes)


def _show(console: Console, data: dict[str, Any]) -> None:
    low, high = data["band_us"]
    upper = f"{high:.2f}" if high is not None else "unknown"
    floor = data["floor"]
    knobs = " ".join(f"{key}={value}" for key, value in data["knobs"].items())
    for line in (
        f"{data['rung']}  {knobs}  on {data['gpu']}",
        f"forecast  {data['time_us']:.2f} us  (band {low:.2f} to {upper}), "
        f"bound: {data['bound']}, model: {data['model']}",
        f"computed  floor {floor['time_us']:.2f} us: {floor['bytes']:,} bytes at "
        f"{floor['dram_gb_per_s']:,.0f} GB/s",
    ):
        console.print(line, markup=False)
    for launch in data.get("launches", ()):
        resident, achieved = launch["occupancy"], launch["achieved_occupancy"]
        console.print(
            f"computed  {launch['entry']}: {launch['registers']} registers, "
            f"{resident['blocks_per_sm']} blocks an SM by {resident['limiter']}, theoretical "
            f"occupancy {resident['theoretical']:.1%}, of this grid {achieved['achieved']:.1%}, "
            f"{launch['waves']['waves']:.2f} waves",
            markup=False,
        )
    console.print(data["note"], markup=False)
