"""Figures of the three bounds: Little's law with measured points, and a sweep across the bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from labtools.predict import Forecast
from labtools.predict.latencies import Latencies
from labtools.predict.machine import Machine
from labtools.problem import LabError

from ...figures import LINES, MARKERS, SHADES, Axes, draw_picture, legend_beside, mark_look
from ...tables import Shown
from ...terms import LIMITS

ROW_BYTES = 256
"""Bytes of a warp-wide request that the latencies of the law are taken at."""


def needed_bytes(machine: Machine, level: str = "dram") -> float:
    """Bytes in flight per SM at which Little's law meets the ceiling of ``dram`` or ``l2``, memory
    idle."""
    latency, ceiling = _level(machine, level)
    return latency * ceiling / machine.sm_count


def _level(machine: Machine, level: str) -> tuple[float, float]:
    """Latency in cycles and ceiling in bytes per cycle of the whole GPU."""
    if level == "l2":
        return machine.l2_rows(ROW_BYTES), machine.l2_bytes_per_cycle
    return machine.dram_rows(ROW_BYTES), machine.dram_bytes_per_cycle


def plot_measured_law(latencies: Latencies, machine: Machine) -> Shown:
    """Memory's rate by bytes in flight as the microbenchmark measured it, and its latency by load.

    Left: every shape of the benchmark (warps, loads per warp, bytes per lane) is a point. Right:
    bytes in flight over rate, which by Little's law is the latency that the loads met.
    """
    points = latencies.curve("hbm")
    if not points:
        what = f"The memory's rate by bytes in flight is not known for {latencies.gpu}."
        raise LabError(what, "it is measured by a microbenchmark on the GPU itself")
    latency, ceiling = _level(machine, "dram")
    peak = ceiling * machine.clock_ghz
    sms = latencies.num_sms or machine.sm_count
    lanes = sorted({int(point["bytes_per_lane"]) for point in points})

    def cycles(point: Mapping[str, Any]) -> float:
        in_flight = point["in_flight_bytes_per_sm"] * sms
        return float(in_flight / point["gb_per_s"] * machine.clock_ghz)

    def paint(axes: Sequence[Axes]) -> None:
        in_flight = [point["in_flight_bytes_per_sm"] for point in points]
        x = np.geomspace(min(in_flight), max(in_flight), 80)
        law = np.minimum(x * sms / latency * machine.clock_ghz, peak)
        axes[0].plot(x / 1024, law, color=SHADES[0], label=f"law, {latency:.0f} cycles")
        for number, width in enumerate(lanes):
            mine = [point for point in points if int(point["bytes_per_lane"]) == width]
            style = {**mark_look(number, hollow=number % 2 == 1), "markersize": 3.5}
            at = [point["in_flight_bytes_per_sm"] / 1024 for point in mine]
            rates = [point["gb_per_s"] for point in mine]
            axes[0].plot(at, rates, label=f"{width} bytes per lane", **style)
            shares = [point["gb_per_s"] / peak for point in mine]
            axes[1].plot(shares, [cycles(point) for point in mine], **style)
        axes[0].set(xscale="log", yscale="log", xlabel="KiB in flight per SM", ylabel="GB/s")
        axes[0].legend(fontsize=7, loc="lower right")
        axes[1].set(xlabel="share of the ceiling in use", ylabel="in flight / rate, cycles")
        axes[1].set_ylim(0, 4 * latency)
        axes[1].axhline(latency, color=SHADES[1], linestyle="--", linewidth=0.9)

    half = [cycles(point) for point in points if 0.4 <= point["gb_per_s"] / peak <= 0.6]
    full = [cycles(point) for point in points if point["gb_per_s"] / peak >= 0.95]
    at_half = f", {np.median(half):.0f} at half the rate" if half else ""
    near = f", {min(full):.0f} or more near the ceiling" if full else ""
    alt = (
        f"Left, the read rate by bytes in flight per SM for {len(points)} shapes: it rises in "
        f"proportion and flattens at {peak:.0f} GB/s. Right, the latency met: {latency:.0f} cycles "
        f"when idle{at_half}{near}, the more the more is asked for."
    )
    caption = (
        f"Microbenchmark of reads from memory, {latencies.about.get('title', latencies.gpu)}, "
        f"{latencies.about.get('date', '')}: warps, loads per warp and bytes per lane varied."
    )
    return draw_picture(paint, alt, caption, "recorded", columns=2, size=(7.2, 3.4))


@dataclass(frozen=True)
class PlanePoint:
    """One kernel and workload on the plane of Little's law."""

    kernel: str  # the name in the legend
    in_flight_bytes: float  # mean over the time and over all SMs, an SM
    gb_per_s: float  # bytes asked of the L2 over the time


def plot_little(points: Sequence[PlanePoint], machine: Machine, title: str = "") -> Shown:
    """Rate by bytes in flight: the law at idle latency, the ceilings, and measured rates."""
    if not points:
        raise LabError("There is nothing to draw.", "no point was given", "give one")
    latency, dram = _level(machine, "dram")
    _, l2 = _level(machine, "l2")
    most = max(max(point.in_flight_bytes for point in points), needed_bytes(machine)) * 1.3
    least = min(point.in_flight_bytes for point in points) / 1.5
    kernels = list(dict.fromkeys(point.kernel for point in points))

    def paint(axes: Axes) -> None:
        x = np.geomspace(least, most, 50)
        law = x * machine.sm_count / latency * machine.clock_ghz
        axes.plot(x / 1024, law, color=SHADES[0], label=f"in flight / {latency:.0f} cycles")
        for ceiling, style, name in ((dram, LINES[1], "memory"), (l2, LINES[2], "L2")):
            rate = ceiling * machine.clock_ghz
            axes.axhline(rate, color=SHADES[1], linestyle=style, label=f"ceiling of the {name}")
        for number, kernel in enumerate(kernels):
            mine = [point for point in points if point.kernel == kernel]
            # No two kernels look alike: the second time round, filled and hollow change places.
            look = mark_look(number, hollow=(number + number // len(MARKERS)) % 2 == 1)
            at = [point.in_flight_bytes / 1024 for point in mine]
            axes.plot(at, [point.gb_per_s for point in mine], markersize=5, label=kernel, **look)
        axes.set(xscale="log", yscale="log")
        axes.set(xlabel="KiB in flight per SM (forecast)", ylabel="GB/s asked for (recorded)")
        legend_beside(axes)

    slope = machine.sm_count / latency * machine.clock_ghz
    far = [point.gb_per_s / (point.in_flight_bytes * slope) for point in points]
    alt = (
        f"Recorded rate by forecast bytes in flight per SM on two "
        f"logarithmic axes, {len(points)} points of {', '.join(kernels)}. A line shows the bytes "
        f"in flight over {latency:.0f} cycles; the points lie at {min(far):.2f} to {max(far):.2f} "
        f"times that line. The memory's ceiling is {dram * machine.clock_ghz:.0f} GB/s, the L2's "
        f"{l2 * machine.clock_ghz:.0f}."
    )
    caption = (
        "Lines: Little's law with the latency of an idle memory, and the ceilings. Points: bytes "
        "in flight as forecast, rates from recorded times."
    )
    return draw_picture(paint, alt, caption, size=(7.2, 3.8), title=title)


def plot_crossing(
    forecasts: Mapping[int, Forecast],
    recorded: Mapping[int, float],
    *,
    xlabel: str,
    where: str = "",
    title: str = "",
) -> Shown:
    """Time along one axis of the workload, by the number that changes: forecast with band, each
    limit alone, and recorded times in microseconds where there are any."""
    if not forecasts:
        raise LabError("There is nothing to draw.", "no forecast was given", "give one")
    xs = sorted(forecasts)
    times = [forecasts[x].time_us for x in xs]

    def paint(axes: Axes) -> None:
        # Where a forecast has no band, the strip has a gap.
        bands = np.array([forecasts[x].band_us or (np.nan, np.nan) for x in xs])
        axes.fill_between(xs, bands[:, 0], bands[:, 1], color=SHADES[3], label="forecast, band")
        axes.plot(xs, times, color=SHADES[0], label="forecast")
        for style, (name, term) in zip((*LINES[1:], (0, (6, 1))), LIMITS.items(), strict=True):
            line: dict[str, Any] = {
                "color": SHADES[1],
                "linestyle": style,
                "label": term.at_ceiling,
            }
            axes.plot(xs, [forecasts[x].terms_us[name] for x in xs], **line)
        if recorded:
            at = sorted(recorded)
            line = {"color": SHADES[0], "markerfacecolor": "white", "label": "recorded"}
            axes.plot(at, [recorded[x] for x in at], "o", **line)
        axes.set(xscale="log", yscale="log", xlabel=xlabel, ylabel="us")
        axes.set_xticks(xs, [str(x) for x in xs])
        axes.minorticks_off()
        legend_beside(axes)

    seen = {x: f", recorded {us:.0f}" for x, us in recorded.items()}
    told = "; ".join(
        f"{x}: forecast {forecasts[x].time_us:.0f}{seen.get(x, '')}, {forecasts[x].bound}"
        for x in xs
    )
    alt = f"Microseconds by {xlabel}. {told}."
    records = f", and records: {where}" if recorded and where else ""
    caption = f"Forecast, what each limit alone would allow{records}."
    return draw_picture(paint, alt, caption, size=(7.2, 3.8), title=title)
