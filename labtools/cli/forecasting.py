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
    factor: float | None,
    progress: Progress,
) -> Outcome:
    """The forecast with its chain, and the floor, waves and occupancy that it stands on."""
    from labtools.predict import (
        achieved_occupancy,
        forecast,
        gpu_of_device,
        load_gpu,
        waves,
        what_if,
    )

    rung = read_rung(name)
    workload = read_workload(workload_text)
    knobs = read_knobs(rung, chosen)
    check_supported(rung, workload, knobs)
    if gpu_name is None:
        gpu = gpu_of_device() or load_gpu(DEFAULT_GPU)
    else:
        with typed():
            gpu = load_gpu(gpu_name)
    progress(f"reading the machine code of {rung.id} for {gpu.arch}")
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
        "bound_reason": predicted.bound_reason,
        "terms_us": dict(predicted.terms_us),
        "gb_per_s": predicted.gb_per_s,
        "in_flight_bytes": predicted.in_flight_bytes,
        "chain_stack": [asdict(one) for one in predicted.stack],
        "calibrated": predicted.calibrated,
        "model": predicted.model,
        "code": predicted.code,
        "note": predicted.note,
        "floor": {**asdict(predicted.floor), "origin": "computed"},
        "launches": [],
    }
    for made in predicted.launches:
        achieved = achieved_occupancy(gpu, made.occupancy, made.blocks)
        data["launches"].append(
            {
                "entry": made.entry,
                "time_us": made.time_us,
                "blocks": made.blocks,
                "threads": made.threads,
                "loops": [
                    {"instructions": size, "trips": count, "cycles_per_trip": cycles}
                    for size, count, cycles in made.trips
                ],
                "dram_bytes": made.dram_bytes,
                "l2_bytes": made.l2_bytes,
                "issue_share": made.issue_share,
                "load_latency_cycles": made.load_latency_cycles,
                "true_chain_cycles": made.true_chain_cycles,
                "chain": [
                    {
                        "text": link.text,
                        "line": link.source.line if link.source else None,
                        "file": link.source.file.rpartition("/")[2] if link.source else None,
                        "issue": link.issue,
                        "cause": link.cause,
                        "cycles": dict(link.cycles),
                    }
                    for link in made.chain
                ],
                "occupancy": {**asdict(made.occupancy), "origin": "computed"},
                "achieved_occupancy": {**asdict(achieved), "origin": "computed"},
                "waves": {
                    **asdict(waves(gpu, made.occupancy, made.blocks)),
                    "origin": "computed",
                },
            }
        )
    if factor is not None:
        progress("asking what if")
        data["what_if"] = {
            "factor": factor,
            "time_us": what_if(rung, workload, gpu, knobs, factor),
        }
    return Outcome(data, lambda console: _show(console, data))


def _show(console: Console, data: dict[str, Any]) -> None:
    low, high = data["band_us"]
    floor = data["floor"]
    knobs = " ".join(f"{key}={value}" for key, value in data["knobs"].items())
    for line in (
        f"{data['rung']}  {knobs}  on {data['gpu']}",
        f"forecast  {data['time_us']:.2f} us  (band {low:.2f} to {high:.2f}), "
        f"bound: {data['bound']}, model: {data['model']}",
        f"          {data['bound_reason']}",
        f"computed  floor {floor['time_us']:.2f} us: {floor['bytes']:,} bytes at "
        f"{floor['dram_gb_per_s']:,.0f} GB/s",
        f"forecast  {data['gb_per_s']:,.0f} GB/s from memory, "
        f"{data['in_flight_bytes']:,.0f} bytes in flight an SM",
    ):
        console.print(line, markup=False)
    for launch in data["launches"]:
        resident, achieved = launch["occupancy"], launch["achieved_occupancy"]
        console.print(
            f"computed  {launch['entry']}: "
            f"{resident['blocks_per_sm']} blocks an SM by {resident['limiter']}, theoretical "
            f"occupancy {resident['theoretical']:.1%}, of this grid {achieved['achieved']:.1%}, "
            f"{launch['waves']['waves']:.2f} waves",
            markup=False,
        )
        for loop in launch["loops"]:
            each = (
                f", {loop['cycles_per_trip']:,.0f} cycles each" if loop["cycles_per_trip"] else ""
            )
            console.print(
                f"forecast  a loop of {loop['instructions']} instructions, {loop['trips']} trips"
                + each,
                markup=False,
            )
    console.print("forecast  one warp's time:", markup=False)
    for part in data["chain_stack"]:
        if part["share"] >= 0.01:
            console.print(
                f"            {part['share']:6.1%}  {part['name']} ({part['cycles']:,.0f} cycles)",
                markup=False,
            )
    if "what_if" in data:
        factor = data["what_if"]["factor"]
        console.print(f"forecast  with one kind of latency {factor:g} times as long:", markup=False)
        for name, time_us in sorted(data["what_if"]["time_us"].items(), key=lambda x: x[1]):
            console.print(f"            {time_us:10.2f} us  {name}", markup=False)
    if data["note"]:
        console.print(data["note"], markup=False)
