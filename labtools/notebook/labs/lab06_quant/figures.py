"""Figures and tables of the quantised cache: error against bytes, which level holds what, times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from labtools.predict import Gpu, forecast
from labtools.problem import (
    LabError,
    Scheme,
    SchemeError,
    StorageFormat,
    Workload,
    load_rung,
    lowest_error_at,
)
from labtools.record import describe_record

from ...figures import BLUE, LINES, MARKERS, SHADES, draw_picture, line_look
from ...records import PENDING, GpuRecords
from ...tables import Shown, Word, show_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ForecastCase = tuple[str, str, Workload, Mapping[str, int]]
"""Label, rung, workload, and the knobs that differ from the defaults."""


def say_part(part: StorageFormat) -> str:
    """One tensor's scheme in words: "row", "64 dims of a row, bias", "128 tokens of a channel"."""
    words = {
        "tensor": "all of it",
        "row": "row",
        "row_group": f"{part.group} dims of a row",
        "channel": f"{part.group} tokens of a channel",
    }[part.axis]
    return words + (", bias" if part.asymmetric else "")


def show_frontier(
    rows: Sequence[SchemeError],
    head_dim: int,
    chosen: Sequence[str] = (),
    only: Sequence[str] | None = None,
) -> Shown:
    """Every scheme of `labtools.problem.frontier` with what it costs in bytes and in accuracy."""
    told: list[tuple[object, ...]] = []
    for row in rows:
        scheme = row.scheme
        if only is None or scheme.name in only:
            name = f"INT{scheme.v.bits}{' (chosen)' if scheme.name in chosen else ''}"
            size = f"{row.bytes_per_element:.4f}"
            worst, least = row.worst_error, lowest_error_at(rows, row)
            parts = say_part(scheme.k), say_part(scheme.v)
            told.append((name, *parts, size, worst, row.median_error, worst / least))
    scales = ("K: a scale for each", "V: a scale for each")
    errors = ("worst error", "median error", "worst over the least at no more bytes")
    columns = ("", *scales, "bytes an element", *errors)
    pairs = rows[0].pairs if rows else 0
    note = f"head_dim {head_dim}, {pairs} (sequence, head) pairs, against the unquantised oracle"
    return show_table(columns, told, word="computed", note=note)


def plot_frontier(
    rows: Sequence[SchemeError], chosen: Sequence[str] = (), limit: float | None = None
) -> Shown:
    """Worst error against bytes an element, both axes logarithmic, the chosen schemes filled."""
    kinds = {
        "one scale for everything": lambda s: s.k.axis == "tensor",
        "scales along rows": lambda s: s.k.axis in ("row", "row_group"),
        "K by channel": lambda s: s.k.axis == "channel",
    }

    def paint(axes: Axes) -> None:
        for i, (label, belongs) in enumerate(kinds.items()):
            mine = [row for row in rows if belongs(row.scheme)]
            for filled in (False, True):
                some = [row for row in mine if (row.scheme.name in chosen) == filled]
                places = [row.bytes_per_element for row in some], [row.worst_error for row in some]
                look: dict[str, Any] = {"color": SHADES[0], "label": None if filled else label}
                look |= {"markerfacecolor": SHADES[0] if filled else "white"}
                axes.plot(*places, MARKERS[i], markersize=9 if filled else 6, **look)
        for row in rows:
            if row.scheme.name in chosen:
                # Room is below the first cloud and left of the second.
                shift, side = ((12, -34), "left") if row.scheme.v.bits < 8 else ((-34, -3), "right")
                place = row.bytes_per_element, row.worst_error
                arrow = {"arrowstyle": "-", "color": SHADES[1], "linewidth": 0.8}
                shown: dict[str, Any] = {"textcoords": "offset points", "fontsize": 9, "ha": side}
                text = f"chosen INT{row.scheme.v.bits}"
                axes.annotate(text, place, xytext=shift, arrowprops=arrow, **shown)
        if limit is not None:
            axes.axhline(limit, color=SHADES[1], linestyle="--", linewidth=0.9)
            axes.text(0.72, limit * 1.08, f"{limit:g}", fontsize=9)
        axes.set(xscale="log", yscale="log", xlabel="bytes an element", ylabel="worst error")
        axes.set_xticks([0.5, 0.6, 0.8, 1.0, 1.12], ["0.5", "0.6", "0.8", "1", "1.12"])
        axes.minorticks_off()
        axes.legend(fontsize=8, loc="upper right")

    marked = "; ".join(
        f"{row.scheme.name} {row.bytes_per_element:.3f} bytes, worst error {row.worst_error:.3g}"
        for row in rows
        if row.scheme.name in chosen
    )
    alt = (
        f"Worst error of {len(rows)} schemes against bytes an element, two clouds near half a byte "
        f"and one byte. Lowest in each are those with K by channel. Chosen: {marked}."
    )
    caption = "Outlier inputs, both axes logarithmic."
    return draw_picture(paint, alt, caption, "computed", size=(7.2, 3.8))


def plot_magnitudes(k: np.ndarray, v: np.ndarray) -> Shown:
    """Largest magnitude of each channel and token of one head of K and of V, ``[tokens, D]``."""

    def paint(axes: Sequence[Axes]) -> None:
        for axis, name, over in ((axes[0], "channel", 0), (axes[1], "token", 1)):
            for i, (label, x) in enumerate((("K", k), ("V", v))):
                largest = np.abs(x.astype(np.float32)).max(axis=over)
                axis.plot(np.sort(largest)[::-1], color=SHADES[i], linestyle=LINES[i], label=label)
            axis.set(xlabel=f"{name}s, the largest first", title=f"largest magnitude of a {name}")
            axis.set_ylim(bottom=0)
        axes[0].legend()

    top = np.sort(np.abs(k.astype(np.float32)).max(axis=0))[::-1]
    alt = (
        f"Left, the largest magnitude of each channel: of K a few channels reach {top[0]:.0f} and "
        f"half of them stay below {np.median(top):.1f}; V has no such step. Right, of each token: "
        "every token of K holds a large element, since the outlier channels are in every token."
    )
    return draw_picture(paint, alt, "One KV head of the outlier inputs.", "computed", columns=2)


def plot_severity(
    levels: Sequence[float], errors: Mapping[str, Sequence[float]], xlabel: str, limit: float | None
) -> Shown:
    """Worst error by how hard the inputs are, one line a scheme."""

    def paint(axes: Axes) -> None:
        for i, (label, mine) in enumerate(errors.items()):
            axes.plot(levels, mine, label=label, **line_look(i))
        if limit is not None:
            axes.axhline(limit, color=SHADES[1], linestyle="--", linewidth=0.9)
        axes.set(yscale="log", xlabel=xlabel, ylabel="worst error")
        axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.02, 1.0))

    told = "; ".join(f"{label} {mine[0]:.3g} to {mine[-1]:.3g}" for label, mine in errors.items())
    alt = f"Worst error from {levels[0]:g} to {levels[-1]:g} ({xlabel}): {told}."
    return draw_picture(paint, alt, "Outlier inputs.", "computed", size=(8.6, 3.6))


def plot_levels(
    workload: Workload, schemes: Mapping[str, Scheme | None], gpus: Sequence[Gpu]
) -> Shown:
    """Bytes of the cache by scheme (None: as it is) beside the L2 of some GPUs."""
    held = {
        label: (workload.kv_bytes if scheme is None else scheme.kv_bytes(workload)) / 1e6
        for label, scheme in schemes.items()
    }

    def paint(axes: Axes) -> None:
        axes.barh(range(len(held)), list(held.values()), color=BLUE, height=0.6)
        for row, size in enumerate(held.values()):
            axes.text(1, row, f"{size:.0f}", va="center", color="white")
        for i, gpu in enumerate(sorted(gpus, key=lambda gpu: gpu.l2_bytes)):
            size, side = gpu.l2_bytes / 1e6, ("right", "left")[i % 2]
            axes.axvline(size, color="black", linestyle=LINES[1 - i], linewidth=1.6)
            name = gpu.title.removeprefix("NVIDIA ").removeprefix("GeForce ")
            axes.text(size, -0.55, f" {name}: {size:.0f} ", ha=side, fontsize=9)
        axes.set_yticks(range(len(held)), list(held))
        axes.set_ylim(len(held) - 0.5, -0.95)
        axes.set_xlabel("MB of K and V, and of each L2")
        axes.grid(visible=False)

    fits = "; ".join(
        f"{label} {size:.1f} MB, "
        + ", ".join(
            f"{'fits' if size * 1e6 <= gpu.l2_bytes else 'does not fit'} the L2 of {gpu.title}"
            for gpu in gpus
        )
        for label, size in held.items()
    )
    return draw_picture(paint, f"{fits}.", f"{workload.short()}.", "computed", size=(4.9, 2.2))


def show_forecasts(cases: Sequence[ForecastCase], gpu: str = "h200") -> Shown:
    """Forecast beside record, one case a row; what was not measured yet says so."""
    records = GpuRecords(gpu)
    rows: list[tuple[object, ...]] = []
    where: dict[str, None] = {}
    for label, name, workload, knobs in cases:
        found = records.find((name, knobs), workload)
        try:
            model = forecast(load_rung(name), workload, gpu, knobs)
            told: tuple[object, ...] = (model.time_us, model.bound)
        except LabError as error:
            told = (None, error.what)
        recorded = f"{found.median_us:.1f}" if found else PENDING
        if found:
            where[describe_record(found)] = None
        word = Word("forecast", "recorded" if found else "")
        rows.append((label, *told, recorded, word))
    note = "; ".join(where) or "records of this comparison are pending: they follow with a run"
    columns = ("", "forecast us", "bound by", "recorded us")
    return show_table(columns, rows, word="forecast", note=note)
