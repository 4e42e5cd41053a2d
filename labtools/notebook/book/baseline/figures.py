"""What the copy in the baseline of the published kernel costs."""

from __future__ import annotations

from typing import Any

from labtools.predict import Gpu
from labtools.problem import LabError, Workload

from ...figures import HATCHES, SHADES, Axes, draw_picture
from ...tables import Shown


def plot_copy(
    workload: Workload,
    gpu: Gpu,
    expanded_us: float,
    kernel_us: float,
    fair_us: float,
    floor_us: float,
) -> Shown:
    """What the bytes of an expanding baseline cost at a GPU's memory rate, beside the times that
    were claimed and the floor."""
    if gpu.dram_gb_per_s is None:
        raise LabError(f"{gpu.title} has no memory rate here.", "", "draw it for another GPU")
    per_us = gpu.dram_gb_per_s * 1e3
    read, written = workload.kv_bytes / per_us, workload.group_size * workload.kv_bytes / per_us
    parts = (("read the cache", read), ("write the copies", written), ("read the copies", written))
    claimed = (
        ("SDPA that copies", expanded_us),
        ("the kernel", kernel_us),
        ("SDPA that does not", fair_us),
    )

    def paint(axes: Axes) -> None:
        left = 0.0
        for i, (name, us) in enumerate(parts):
            style: dict[str, Any] = {"color": SHADES[3 - i % 2], "hatch": HATCHES[i], "label": name}
            axes.barh(0, us, left=left, edgecolor=SHADES[0], **style)
            left += us
        for row, (_, us) in enumerate(claimed, start=1):
            axes.barh(row, us, color=SHADES[1], edgecolor=SHADES[0])
            axes.text(us + 10, row, f"{us:.0f} us claimed", va="center", fontsize=9)
        axes.text(left + 10, 0, f"{left:.0f} us computed", va="center", fontsize=9)
        axes.axvline(floor_us, color=SHADES[0], linestyle="--", label=f"floor, {floor_us:.0f} us")
        axes.set_yticks(range(4), ["bytes of the copy", *(name for name, _ in claimed)])
        axes.invert_yaxis()
        axes.set_xlim(0, expanded_us * 1.25)
        axes.set_xlabel("us")
        axes.grid(axis="y", visible=False)
        axes.legend(loc="lower right", fontsize=9)

    total = sum(us for _, us in parts)
    three, others = (
        ", ".join(f"{name} {us:.0f}" for name, us in bars) for bars in (parts, claimed)
    )
    alt = (
        f"Bars in microseconds. The bytes of the copy at peak rate: {total:.0f} in three "
        f"parts, {three}. Claimed: {others}. The floor is at {floor_us:.0f}."
    )
    caption = (
        f"First bar and floor computed from bytes at {gpu.dram_gb_per_s:.0f} GB/s ({gpu.title}); "
        "the other bars claimed."
    )
    return draw_picture(paint, alt, caption, size=(7.2, 2.6))
