"""Figures that one chapter each shows: attention, decode, the GPU and the baseline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from labtools.predict import Gpu
from labtools.problem import Inputs, LabError, Workload

from ..figures import GREYS, HATCHES, LINES, MARKERS, draw_picture
from ..tables import Shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_online_softmax(first: Inputs, second: Inputs) -> Shown:
    """The running maximum and the output's norm of the first head, for two sets of inputs."""
    traces = [_trace_online_softmax(inputs) for inputs in (first, second)]
    names = [inputs.workload.distribution for inputs in (first, second)]

    def paint(axes: Sequence[Axes]) -> None:
        for i, (name, (peak, share)) in enumerate(zip(names, traces, strict=True)):
            rows = np.arange(1, len(peak) + 1)
            style: dict[str, Any] = {"color": GREYS[i], "linestyle": LINES[i], "label": name}
            axes[0].step(rows, peak, where="post", **style)
            axes[1].plot(rows, share, **style)
        axes[0].set(title="running maximum $m$", xlabel="rows read")
        axes[1].set(title="distance from the final output", xlabel="rows read")
        axes[1].set_ylim(bottom=0)
        axes[0].legend()

    moved = "; ".join(
        f"with {name} inputs it moves {int((np.diff(peak) > 0).sum())} times"
        for name, (peak, _) in zip(names, traces, strict=True)
    )
    alt = (
        f"Two panels over the rows read. Left, the running maximum: {moved}"
        ". Right, the relative distance of the output so far from the final output, "
        "which reaches zero at the last row."
    )
    rows_read = first.workload.kv_len
    caption = f"{rows_read} rows of the first (sequence, head)."
    return draw_picture(paint, alt, caption, "computed", columns=2)


def _trace_online_softmax(inputs: Inputs) -> tuple[np.ndarray, np.ndarray]:
    """Running maximum [S] and relative distance from the final output [S]."""
    length = int(inputs.seq_lens[0])
    q, k, v = (x.astype(np.float64) for x in (inputs.q[0, 0], inputs.k[0, 0], inputs.v[0, 0]))
    scores = inputs.sm_scale * (k[:length] @ q)
    peak = np.maximum.accumulate(scores)
    outputs = np.empty((length, len(q)))
    m, total, acc = -np.inf, 0.0, np.zeros(len(q))
    for n, score in enumerate(scores):
        new_max = max(m, score)
        rescale, weight = np.exp(m - new_max), np.exp(score - new_max)
        total, acc, m = total * rescale + weight, acc * rescale + weight * v[n], new_max
        outputs[n] = acc / total
    distance = np.linalg.norm(outputs - outputs[-1], axis=1) / np.linalg.norm(outputs[-1])
    return peak, distance


def plot_roofline(gpus: Sequence[Gpu], workload: Workload) -> Shown:
    """Attainable rate by arithmetic intensity, with decode and prefill marked.

    Args:
        gpus: sheets with a memory rate and a tensor-core peak; at most four.
    """
    decode = workload.flops / workload.minimal_bytes
    prefill = prefill_intensity(workload)
    intensity = np.logspace(-0.5, 5, 200)

    def paint(axes: Axes) -> None:
        for i, gpu in enumerate(gpus):
            peak, rate = _peaks(gpu)
            attainable = np.minimum(peak, intensity * rate / 1e3)
            axes.plot(intensity, attainable, color=GREYS[i], linestyle=LINES[i], label=gpu.title)
            axes.plot(peak * 1e3 / rate, peak, MARKERS[i], color=GREYS[i])
        for x, name in ((decode, "decode"), (prefill, "prefill")):
            axes.axvline(x, color=GREYS[0], linewidth=0.8)
            axes.text(x * 1.12, 0.35, name, rotation=90, va="bottom")
        axes.set(
            xscale="log",
            yscale="log",
            xlabel="arithmetic intensity (operations a byte)",
            ylabel="attainable TFLOPS",
        )
        # Opaque, so that no line runs through its words.
        axes.legend(loc="upper left", frameon=True, framealpha=1.0, edgecolor="none")

    ridges = "; ".join(
        f"{gpu.title} at {_peaks(gpu)[0] * 1e3 / _peaks(gpu)[1]:.0f} operations a byte"
        for gpu in gpus
    )
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
        raise LabError(
            f"{gpu.title} has no roofline here.",
            "its sheet lacks the arithmetic peak or the memory rate",
            "draw it for another GPU",
        )
    return gpu.fp16_tensor_tflops, gpu.dram_gb_per_s


def plot_in_flight(gpu: Gpu, gb_per_s: float, latency_ns: float, row_bytes: int) -> Shown:
    """Read rate by bytes in flight an SM, from Little's law and the memory's limit.

    Args:
        gb_per_s: the memory's limit, in 10^9 bytes a second.
        row_bytes: bytes of one row of K or V, for the second scale.
    """
    knee = gb_per_s * latency_ns / gpu.sm_count
    in_flight = np.linspace(0, 3 * knee, 100)

    def paint(axes: Axes) -> None:
        rate = np.minimum(in_flight / latency_ns * gpu.sm_count, gb_per_s)
        axes.plot(in_flight / 1024, rate, color=GREYS[0])
        axes.axhline(gb_per_s, color=GREYS[1], linestyle="--", linewidth=0.9)
        axes.annotate(
            f"{knee / 1024:.1f} KiB",
            (knee / 1024, gb_per_s),
            xytext=(8, -14),
            textcoords="offset points",
        )
        axes.plot(knee / 1024, gb_per_s, "o", color=GREYS[0])
        axes.set(xlabel=f"in flight an SM: KiB, and rows of {row_bytes} bytes")
        axes.set_ylabel("GB/s at most")
        axes.set_xlim(left=0)
        axes.set_ylim(0, gb_per_s * 1.15)
        # Rows are a multiple of KiB: the same ticks, named twice, need no second axis.
        step = max(1, round(knee / row_bytes / 4)) * row_bytes
        ticks = np.arange(0, 3 * knee, step)
        names = [f"{tick / 1024:.1f}\n{tick / row_bytes:.0f}" for tick in ticks]
        axes.set_xticks(ticks / 1024, names)

    alt = (
        f"The read rate of {gpu.title} rises in proportion to the bytes in flight an SM and meets "
        f"the memory's {gb_per_s:.0f} GB/s at {knee / 1024:.1f} KiB, which is "
        f"{knee / row_bytes:.0f} rows; beyond that it is flat."
    )
    caption = f"Little's law with a latency of {latency_ns:.0f} ns, {gpu.title}."
    return draw_picture(paint, alt, caption, "computed", size=(7.2, 3.4))


def plot_copy(
    workload: Workload, gpu: Gpu, expanded_us: float, kernel_us: float, fair_us: float
) -> Shown:
    """What the bytes of an expanding baseline cost, beside the times that were claimed.

    Args:
        gpu: whose memory rate prices the bytes.
    """
    if gpu.dram_gb_per_s is None:
        raise LabError(f"{gpu.title} has no memory rate here.", "", "draw it for another GPU")
    per_us = gpu.dram_gb_per_s * 1e3
    read, written = workload.kv_bytes / per_us, workload.group_size * workload.kv_bytes / per_us
    parts = (("read the cache", read), ("write the copies", written), ("read the copies", written))
    claimed = (
        ("baseline that expands", expanded_us),
        ("the kernel", kernel_us),
        ("baseline that does not", fair_us),
    )

    def paint(axes: Axes) -> None:
        left = 0.0
        for i, (name, us) in enumerate(parts):
            style: dict[str, Any] = {"color": GREYS[3 - i % 2], "hatch": HATCHES[i], "label": name}
            axes.barh(0, us, left=left, edgecolor=GREYS[0], **style)
            left += us
        for row, (_, us) in enumerate(claimed, start=1):
            axes.barh(row, us, color=GREYS[1], edgecolor=GREYS[0])
            axes.text(us + 10, row, f"{us:.0f} us claimed", va="center", fontsize=9)
        axes.text(left + 10, 0, f"{left:.0f} us computed", va="center", fontsize=9)
        axes.set_yticks(range(4), ["bytes of the expansion", *(name for name, _ in claimed)])
        axes.invert_yaxis()
        axes.set_xlim(0, expanded_us * 1.25)
        axes.set_xlabel("us")
        axes.grid(axis="y", visible=False)
        axes.legend(loc="lower right", fontsize=9)

    total = sum(us for _, us in parts)
    alt = (
        f"Bars in microseconds. The bytes of the expansion at peak rate: {total:.0f} in three "
        + "parts, "
        + ", ".join(f"{name} {us:.0f}" for name, us in parts)
        + ". Claimed: "
        + ", ".join(f"{name} {us:.0f}" for name, us in claimed)
        + "."
    )
    caption = (
        f"First bar computed from bytes at {gpu.dram_gb_per_s:.0f} GB/s ({gpu.title}); the others "
        "claimed."
    )
    return draw_picture(paint, alt, caption, size=(7.2, 2.6))
