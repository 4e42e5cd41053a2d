"""How many bytes must be in flight, and what a launch puts on an SM."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from labtools.predict import Gpu
from labtools.problem import Launch

from ...figures import SHADES, Axes, draw_arrow, draw_box, draw_picture, draw_sketch
from ...tables import Shown

_SCHEDULERS, _LANES = 4, 32


def plot_in_flight(
    gpu: Gpu,
    gb_per_s: float,
    latency_ns: float,
    row_bytes: int,
    tried: Mapping[int, float] | None = None,
) -> Shown:
    """Read rate by bytes in flight per SM, from Little's law and the memory's limit; rows of K or V
    have ``row_bytes``. ``tried`` is what a launch has in flight, by its rows per trip."""
    knee = gb_per_s * latency_ns / gpu.sm_count
    marks = {n: held for n, held in (tried or {}).items() if held <= 3 * knee}
    in_flight = np.linspace(0, 3 * knee, 100)

    def paint(axes: Axes) -> None:
        rate = np.minimum(in_flight / latency_ns * gpu.sm_count, gb_per_s)
        axes.plot(in_flight / 1024, rate, color=SHADES[0])
        axes.axhline(gb_per_s, color=SHADES[1], linestyle="--", linewidth=0.9)
        at = (knee / 1024, gb_per_s)
        axes.annotate(f"{knee / 1024:.1f} KiB", at, xytext=(8, -14), textcoords="offset points")
        axes.plot(knee / 1024, gb_per_s, "o", color=SHADES[0])
        axes.set(xlabel=f"in flight per SM: KiB, and rows of {row_bytes} bytes")
        axes.set_ylabel("GB/s at most")
        axes.set_xlim(left=0)
        axes.set_ylim(0, gb_per_s * 1.15)
        for rows, held in marks.items():
            reached = min(held / latency_ns * gpu.sm_count, gb_per_s)
            axes.plot(held / 1024, reached, "s", color=SHADES[1])
            here = (held / 1024, reached)
            label = f"{rows} a trip"
            axes.annotate(label, here, xytext=(7, -9), textcoords="offset points", fontsize=8)
        # Rows are a multiple of KiB: the same ticks, named twice, need no second axis.
        step = max(1, round(knee / row_bytes / 4)) * row_bytes
        ticks = np.arange(0, 3 * knee, step)
        names = [f"{tick / 1024:.1f}\n{tick / row_bytes:.0f}" for tick in ticks]
        axes.set_xticks(ticks / 1024, names)

    alt = (
        f"The read rate of {gpu.title} rises in proportion to the bytes in flight per SM and meets "
        f"the memory's {gb_per_s:.0f} GB/s at {knee / 1024:.1f} KiB, which is "
        f"{knee / row_bytes:.0f} rows; beyond that it is flat."
    )
    for rows, held in marks.items():
        reached = min(held / latency_ns * gpu.sm_count, gb_per_s)
        alt += f" {rows} rows per trip: {held / 1024:.1f} KiB, {reached:.0f} GB/s."
    caption = f"Little's law with a latency of {latency_ns:.0f} ns, {gpu.title}."
    return draw_picture(paint, alt, caption, "computed", size=(7.2, 3.4))


def launch_drawing(launch: Launch, num_sms: int) -> Shown:
    """From a grid to lanes: the blocks of a launch, an SM with some of them, a warp's lanes."""
    across, down = launch.grid[0], launch.grid[1] if len(launch.grid) > 1 else 1
    warps = launch.num_threads // _LANES
    block = f"{launch.num_threads} threads = {warps} warp{'s' if warps > 1 else ''}"

    def paint(axes: Axes) -> None:
        axes.text(1.5, 0.2, f"grid: {across} x {down} blocks", ha="center", va="center")
        for row in range(4):
            for column in range(4):
                shade = SHADES[2] if (row, column) in ((0, 1), (1, 3), (2, 0), (3, 2)) else "white"
                text = "..." if column == 2 and row != 3 else ""
                draw_box(axes, (0.75 * column, 0.6 + 0.6 * row), (0.7, 0.5), text, shade=shade)
        draw_arrow(axes, (3.1, 1.8), (4.0, 1.8))
        axes.text(3.55, 1.45, "each to\none SM", ha="center", va="center", fontsize=8)
        axes.text(5.9, 0.2, f"one of {num_sms} SMs", ha="center", va="center")
        draw_box(axes, (4.1, 0.55), (3.6, 2.5))
        for n in range(_SCHEDULERS):
            x = 4.25 + 0.85 * n
            draw_box(axes, (x, 0.7), (0.75, 0.5), "sched-\nuler", fontsize=7)
            for row in range(2):
                shade = SHADES[2] if row == 0 else "white"
                draw_box(axes, (x, 1.3 + 0.4 * row), (0.75, 0.32), "warp", shade=shade, fontsize=7)
        draw_box(axes, (4.25, 2.15), (3.3, 0.35), "registers", shade=SHADES[3], fontsize=8)
        draw_box(axes, (4.25, 2.58), (3.3, 0.35), "shared memory, L1", shade=SHADES[3], fontsize=8)
        draw_arrow(axes, (7.8, 1.5), (8.6, 1.5))
        axes.text(9.9, 0.2, f"block: {block}", ha="center", va="center")
        for lane in range(_LANES):
            spot = (8.7 + 0.3 * (lane % 8), 0.7 + 0.45 * (lane // 8))
            draw_box(axes, spot, (0.27, 0.38), f"{lane}", shade=SHADES[2], fontsize=6.5)
        axes.text(9.9, 2.75, "a warp: 32 lanes,\none instruction for all", ha="center", va="center")

    return draw_sketch(
        paint,
        f"Left, a grid of {across} by {down} blocks. Each block goes to one of {num_sms} SMs. "
        "Middle, an SM with four schedulers, each with warps of its own, and with registers and "
        f"shared memory for all of them. Right, a block of {block}, and a warp's 32 lanes, which "
        "one instruction serves at once.",
        "Grid, block, warp and lane",
        extent=(11.2, 3.1),
        size=(7.4, 2.4),
        word="computed",
    )
