"""The SM model's numbers for a GPU, taken from its table of latencies.

A table made by the project's microbenchmarks on that GPU gives a calibrated machine. For another
GPU of the same architecture the published numbers are used, and what nobody published is taken
from the NVIDIA H200; the clock, the memory's rate, the L2 and the number of SMs are its own.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from labtools.problem import LabError

from .latencies import Latencies, load_latencies
from .machine import Curve, LoadCurve, Machine
from .sheets import Gpu

READ_EFFICIENCY = 0.95
"""Share of a data sheet's memory rate that a read reaches, where it was not measured (an H200
reads at 97 % of its sheet's rate)."""
FITTED = {"start_us": 0.28, "dram_scale": 1.03, "scattered": 0.88, "atomic_ns": 0.58}
"""What no microbenchmark isolates; fitted on the calibration kernels of ``points.toml`` alone.

`start_us`: what a kernel costs beyond an empty one before its first load; on the launch points.
`dram_scale`: latency of a kernel's loads from memory over that of the microbenchmark's single
stream; on the chain points of two runs. `scattered`: see `Machine`; on the bandwidth points of
r02. `atomic_ns`: on the read sweep."""
_BAND = Path(__file__).with_name("band.toml")
_L1_SHARE_BYTES = 256 * 1024


def machine_of(gpu: Gpu) -> Machine:
    """The machine that the SM model runs on.

    Raises:
        LabError: no table, or no clock or memory rate is known of this GPU.
    """
    return _machine(gpu, load_latencies(gpu))


def _machine(gpu: Gpu, known: Latencies) -> Machine:
    mhz = known.sm_mhz if known.calibrated else gpu.boost_clock_mhz
    if mhz is None:
        raise LabError(
            f"The SM clock of {gpu.title} is not known here.",
            "neither its data sheet nor a microbenchmark gives it",
            "labtools microbench on the GPU itself, and the roofline's floors",
        )
    clock_ghz = mhz / 1e3
    if known.calibrated:
        dram_rate = known.memory("hbm_gb_per_s")
        l2_rate = known.memory("l2_gb_per_s")
    else:
        if gpu.dram_gb_per_s is None:
            raise LabError(
                f"The memory rate of {gpu.title} is not known here.",
                "there is no data sheet with it",
                "occupancy and waves",
            )
        dram_rate = READ_EFFICIENCY * gpu.dram_gb_per_s
        # The L2 feeds each SM alike; more SMs and a higher clock take more from it.
        reference = max(1, known.num_sms) * (known.value("clock.sm", 1980.0) / 1e3)
        l2_rate = known.memory("l2_gb_per_s") * gpu.sm_count * clock_ghz / reference
    scale = gpu.l2_bytes / known.l2_bytes if known.l2_bytes else 1.0
    return Machine(
        name=gpu.name,
        calibrated=known.calibrated,
        clock_ghz=clock_ghz,
        sm_count=gpu.sm_count,
        sub_partitions=gpu.sub_partitions,
        variable=_variable(known),
        intervals=_intervals(known),
        shared_intervals={
            "shuffle": known.interval("shfl_sm"),
            "shared": known.interval("lds32_sm"),
            "global": known.interval("ldg32_sm"),
        },
        l1={
            width // 32: cycles
            for width, cycles in sorted(known.by_number("latency.l1_row").items())
        },
        l2_rows=_rows(known, "latency.l2_row", known.latency("l2")),
        dram_rows=_rows(known, "latency.hbm_row", known.latency("hbm")).scaled(
            FITTED["dram_scale"]
        ),
        l2_async=_rows(known, "latency.async_l2", known.latency("l2")),
        dram_async=_rows(known, "latency.async_hbm", known.latency("hbm")).scaled(
            FITTED["dram_scale"]
        ),
        barrier_cycles=_barrier(known)[0],
        barrier_interval=_barrier(known)[1],
        slow_dram=_slowest(known, "hbm_row"),
        slow_l2=_slowest(known, "l2_row"),
        fill_bytes_per_cycle=known.memory("one_sm_l2_gb_per_s")
        / (known.value("clock.sm", 1980.0) / 1e3),
        dram_bytes_per_cycle=dram_rate / clock_ghz,
        l2_bytes_per_cycle=l2_rate / clock_ghz,
        dram_queue=_load_curve(known.curve("hbm"), known),
        l2_queue=_load_curve(
            [point for point in known.curve("l2") if point.get("mib") == 16], known
        ),
        scattered=FITTED["scattered"],
        atomic_ns=FITTED["atomic_ns"],
        l2_miss=_miss_curve(known.curve("l2_footprint"), scale),
        l1_bytes=_L1_SHARE_BYTES if known.calibrated else float(gpu.smem_per_sm_bytes),
        branch_cycles=known.latency("branch"),
        cold_line_cycles=_cold_line(known),
        operand_read_cycles=known.interval("lds32") + known.latency("alu", 4.0),
        launch_us=_launch_curve(known),
        start_us=FITTED["start_us"],
        sources={name: entry.source for name, entry in known.entries.items()},
    )


def _variable(known: Latencies) -> dict[str, float]:
    """Latencies of what the scoreboard tracks, by the model's names."""
    names = {
        "shared_32": "shared.32",
        "shared_64": "shared.64",
        "shared_128": "shared.128",
        "shfl": "shfl",
        "mufu_ex2": "ex2",
        "mufu_rcp": "rcp",
        "ldc": "ldc",
        "s2r": "s2r",
        "r2ur": "s2r",
        "i2f": "byte_to_float",
        "f2i": "float_to_int",
        "f2f": "float_to_int",
        "f2fp": "float_to_half2",
        "hmma": "hmma",
        "imma": "imma",
        "vote": "vote",
        "redux": "redux",
        "ldsm": "ldsm",
        # A fence waits for the L2; a move of a matrix is a shuffle where it was not measured.
        "fence": "l2",
        "movm": "movm" if known.has("latency.movm") else "shfl",
        "l1": "l1",
        "default": "xu",
    }
    found = {ours: known.latency(theirs) for ours, theirs in names.items()}
    if known.arch.startswith("sm_12"):
        found["zero_stall"] = 37.0  # a stall count of 0 waits for the pipe to drain there
    return found


def _intervals(known: Latencies) -> dict[str, float]:
    return {
        "fp32": known.interval("fp32"),
        "imad": known.interval("imad"),
        "fp16": known.interval("fp16"),
        "half_to_float": known.interval("half_to_float"),
        "alu": known.interval("alu"),
        "xu": known.interval("xu"),
        "lsu": known.interval("lds32"),
        "global": known.interval("ldg32"),
        "tensor": known.interval("hmma"),
        "control": 1.0,
        "uniform": known.interval("alu"),
    }


def _rows(known: Latencies, name: str, otherwise: float) -> Curve:
    points = sorted(known.by_number(name).items())
    if not points:
        return Curve((128.0,), (otherwise,))
    if not known.calibrated and known.entry(f"{name}.{points[0][0]}").assumed:
        # Another GPU's rows tell how the latency grows with the bytes; the level is its own.
        shift = otherwise - points[0][1]
        points = [(size, cycles + shift) for size, cycles in points]
    return Curve(tuple(float(x) for x, _ in points), tuple(y for _, y in points))


def _slowest(known: Latencies, name: str) -> float:
    """Latency on the slowest SM over that on the middle one, the median over row sizes."""
    middle, slow = known.by_number(f"latency.{name}"), known.by_number(f"latency.{name}_slowest")
    ratios = sorted(slow[size] / middle[size] for size in slow if size in middle)
    return ratios[len(ratios) // 2] if ratios else 1.0


def _barrier(known: Latencies) -> tuple[float, float]:
    """(cycles after the last arrival, cycles of the barrier unit for each arriving warp).

    A barrier of n warps takes a fixed time and one interval a warp: a straight line over 1..32.
    """
    points = sorted(known.by_number("latency.barrier").items())
    if len(points) < 2:
        return 12.0, 2.0
    (few, short), (many, long) = points[0], points[-1]
    interval = (long - short) / (many - few)
    return short - few * interval, interval


def _cold_line(known: Latencies) -> float:
    """First fetch of 128 bytes of instructions, beyond that of code that ran before.

    The mean over straight-line code of 1 to 16 KiB, which kernels mostly are.
    """
    extra = [
        (point["cold_cycles"] - point["warm_cycles"]) / (8 * point["kib"])
        for point in known.curve("code")
        if point["warps"] == 1 and point["kib"] <= 16
    ]
    return max(0.0, sum(extra) / len(extra)) if extra else 4.0


def _load_curve(points: Sequence[Mapping[str, Any]], known: Latencies) -> LoadCurve:
    """What load adds to a latency, from bandwidth by bytes in flight.

    By Little's law the latency is bytes in flight over the rate. In each series (loads and bytes
    a lane fixed, warps rising) the first point is taken as unloaded; what the others have on top
    is due to the load. The curve is the median over the series, by share of the ceiling.
    """
    sms, clock = max(1, known.num_sms), known.value("clock.sm", 1980.0) / 1e3
    by_series: dict[tuple[int, int], list[tuple[float, float]]] = {}
    ceilings: dict[int, float] = {}
    for point in points:
        width = int(point["bytes_per_lane"])
        ceilings[width] = max(ceilings.get(width, 0.0), float(point["gb_per_s"]))
    for point in points:
        if int(point["loads"]) > 4:  # long bursts wait for one another, loaded or not
            continue
        rate = float(point["gb_per_s"])
        latency = float(point["in_flight_bytes_per_sm"]) / (rate / sms / clock)
        series = by_series.setdefault((int(point["loads"]), int(point["bytes_per_lane"])), [])
        series.append((rate / ceilings[int(point["bytes_per_lane"])], latency))
    samples: list[tuple[float, float]] = []
    for series in by_series.values():
        series.sort()
        base = min(latency for _, latency in series[:3]) if series else 0.0
        samples += [(share, latency - base) for share, latency in series]
    edges = (0.0, 0.08, 0.2, 0.35, 0.45, 0.6, 0.75, 0.86, 0.92, 0.975)
    shares: list[float] = []
    waits: list[float] = []
    for low, high in zip(edges, edges[1:], strict=False):
        inside = sorted(
            (wait, share) for share, wait in samples if low < share <= high and wait > 0
        )
        if not inside:
            continue
        wait, _ = inside[len(inside) // 2]
        share = sorted(share for _, share in inside)[len(inside) // 2]
        if waits and wait <= waits[-1]:
            continue
        shares.append(share)
        waits.append(wait)
    if len(shares) < 2:
        return LoadCurve((0.3, 0.55, 0.85, 0.96), (22.0, 85.0, 325.0, 1150.0))
    return LoadCurve(tuple(shares), tuple(waits))


def _miss_curve(points: Sequence[Mapping[str, Any]], scale: float) -> Curve:
    """Share of warm reads that miss the L2 by footprint, scaled to another L2's size."""
    ordered = sorted(points, key=lambda point: point["mib"])
    if not ordered:
        return Curve((0.6e8 * scale, 1.0e8 * scale), (0.0, 1.0))
    fastest = max(range(len(ordered)), key=lambda place: ordered[place]["gb_per_s"])
    # Up to the fastest point everything hits; short runs before it are slow for other reasons.
    kept = [(ordered[fastest]["mib"], 0.0)]
    for point in ordered[fastest + 1 :]:
        kept.append((point["mib"], max(kept[-1][1], float(point["missing"]))))
    return Curve(
        tuple(mib * 2.0**20 * scale for mib, _ in kept), tuple(missing for _, missing in kept)
    )


def _launch_curve(known: Latencies) -> Curve:
    points = sorted(
        (point["grid"], point["us"])
        for point in known.curve("launch")
        if point["kind"] == "empty" and point["threads"] == 128
    )
    if not points:
        return Curve((1.0, 1e5), (0.5, 60.0))
    return Curve(tuple(float(x) for x, _ in points), tuple(float(y) for _, y in points))


def measured_band(machine: Machine) -> tuple[float, float]:
    """(lower, upper) factor on a forecast: how far it was off on the worst calibration point.

    The file is written by ``python -m tools.write_band``. Where nothing was measured on the GPU
    itself the band is a factor of 2 either way.
    """
    if not machine.calibrated or not _BAND.is_file():
        return 0.5, 2.0
    data = tomllib.loads(_BAND.read_text("utf-8"))
    return float(data["low"]), float(data["high"])
