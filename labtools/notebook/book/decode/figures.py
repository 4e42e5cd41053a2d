"""Where decode stands under a roofline, how its cache lies in memory and is shared."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from labtools.predict import Gpu
from labtools.problem import LabError, Workload

from ...figures import LINES, MARKERS, SHADES, Axes, draw_arrow, draw_box, draw_picture, draw_sketch
from ...tables import Shown


def plot_roofline(gpus: Sequence[Gpu], workload: Workload) -> Shown:
    """Attainable rate of up to four GPUs by arithmetic intensity, decode and prefill marked."""
    decode = workload.flops / workload.minimal_bytes
    prefill = prefill_intensity(workload)
    intensity = np.logspace(-0.5, 5, 200)

    def paint(axes: Axes) -> None:
        for i, gpu in enumerate(gpus):
            peak, rate = _peaks(gpu)
            attainable = np.minimum(peak, intensity * rate / 1e3)
            axes.plot(intensity, attainable, color=SHADES[i], linestyle=LINES[i], label=gpu.title)
            axes.plot(peak * 1e3 / rate, peak, MARKERS[i], color=SHADES[i])
        for x, name in ((decode, "decode"), (prefill, "prefill")):
            axes.axvline(x, color=SHADES[0], linewidth=0.8)
            axes.text(x * 1.12, 0.35, name, rotation=90, va="bottom")
        axes.set(xscale="log", yscale="log", ylabel="attainable TFLOPS")
        axes.set_xlabel("arithmetic intensity (operations per byte)")
        # Opaque, so that no line runs through its words.
        axes.legend(loc="upper left", frameon=True, framealpha=1.0, edgecolor="none")

    peaks = [(gpu.title, *_peaks(gpu)) for gpu in gpus]
    ridges = "; ".join(f"{name} at {p * 1e3 / b:.0f} operations per byte" for name, p, b in peaks)
    alt = (
        f"Roofline on two logarithmic axes. The ridges: {ridges}. Decode is at {decode:.1f}, far "
        f"on the memory side; prefill of {workload.kv_len} tokens is at {prefill:.0f}, far on the "
        "arithmetic side."
    )
    caption = f"Data-sheet peaks, tensor cores, dense; workload {workload}. Markers are the ridges."
    return draw_picture(paint, alt, caption, "computed", size=(7.2, 3.8))


def prefill_intensity(workload: Workload) -> float:
    """Operations a byte of attention over a whole prompt of ``kv_len`` tokens, without a mask."""
    flops = workload.flops * workload.kv_len
    rows = 2 * (workload.num_qo_heads + workload.num_kv_heads) * int(workload.lengths.sum())
    return flops / (rows * workload.head_dim * workload.element_bytes)


def _peaks(gpu: Gpu) -> tuple[float, float]:
    """Tensor-core peak in TFLOPS and memory rate in GB/s."""
    if gpu.fp16_tensor_tflops is None or gpu.dram_gb_per_s is None:
        why = "its sheet lacks the arithmetic peak or the memory rate"
        raise LabError(f"{gpu.title} has no roofline here.", why)
    return gpu.fp16_tensor_tflops, gpu.dram_gb_per_s


def cache_drawing(workload: Workload) -> Shown:
    """How K lies in memory, from the whole array down to one row."""
    row = workload.head_dim * workload.element_bytes
    head = workload.kv_len * row
    sequence = workload.num_kv_heads * head
    levels = (
        (f"K: {workload.batch} sequences", "seq.", workload.batch, sequence),
        (f"one sequence: {workload.num_kv_heads} KV heads", "head", workload.num_kv_heads, head),
        (f"one KV head: {workload.kv_len} rows", "row", workload.kv_len, row),
        (f"one row: {workload.head_dim} numbers", "", workload.head_dim, workload.element_bytes),
    )
    shown = 8

    def paint(axes: Axes) -> None:
        for place, (title, part, count, stride) in enumerate(levels):
            y = 1.5 * place
            axes.text(0, y + 0.35, title, va="center")
            for n in range(shown):
                gap = count > shown and n == shown - 2
                number = count - 1 if n == shown - 1 else n
                text = "..." if gap else f"{part} {number}".strip()
                shade = SHADES[2] if n == 1 else "white"
                draw_box(axes, (3.4 + 0.88 * n, y), (0.88, 0.7), text, shade=shade, fontsize=7.5)
            axes.text(10.6, y + 0.35, f"{stride:,} B apart", va="center")
            if place + 1 < len(levels):
                for side, to in ((4.28, 3.4), (5.16, 3.4 + 0.88 * shown)):
                    axes.plot([side, to], [y + 0.7, y + 1.5], color=SHADES[1], linewidth=0.8)

    return draw_sketch(
        paint,
        "Four levels, each a part of the one above. "
        + "; ".join(f"{title}, {stride:,} bytes apart" for title, _, _, stride in levels)
        + ". The rows of one KV head follow each other without a gap. V lies the same way.",
        f"The layout [B, Hkv, S, D] of K for {workload}; V lies the same way",
        extent=(12.6, 5.3),
        size=(7.6, 3.0),
        word="computed",
    )


def sharing_drawing(num_qo_heads: int, num_kv_heads: int) -> Shown:
    """Which query heads read which KV head: one for each, shared in groups, and one for all."""
    panels = (
        ("multi-head attention", num_qo_heads),
        ("grouped-query attention", num_kv_heads),
        ("multi-query attention", 1),
    )
    width, gap = float(num_qo_heads), 2.0

    def paint(axes: Axes) -> None:
        for place, (name, kv_heads) in enumerate(panels):
            left, group = place * (width + gap), num_qo_heads // kv_heads
            axes.text(left + width / 2, 0.2, name, ha="center", va="center")
            for head in range(num_qo_heads):
                x = left + head
                draw_box(axes, (x + 0.08, 0.7), (0.84, 0.6), f"{head}", fontsize=8)
                kv_x = left + (head // group + 0.5) * group
                draw_arrow(axes, (x + 0.5, 1.3), (kv_x, 2.3))
            for head in range(kv_heads):
                box = (left + (head + 0.5) * group - 0.42, 2.3)
                draw_box(axes, box, (0.84, 0.6), f"{head}", shade=SHADES[2], fontsize=8)
        axes.text(-0.3, 1.0, "query heads", ha="right", va="center")
        axes.text(-0.3, 2.6, "KV heads", ha="right", va="center")
        axes.set_xlim(-3.9, 3 * width + 2 * gap + 0.2)

    return draw_sketch(
        paint,
        f"Three panels with {num_qo_heads} query heads each. Multi-head attention: each query head "
        f"has a KV head of its own. Grouped-query attention: {num_kv_heads} KV heads, each read by "
        f"{num_qo_heads // num_kv_heads} query heads. Multi-query attention: one KV head for all.",
        "Query head h reads KV head floor(h / group)",
        extent=(3 * width + 2 * gap, 3.0),
        size=(7.2, 1.8),
    )
