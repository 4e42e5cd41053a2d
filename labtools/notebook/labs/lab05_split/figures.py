"""Figures of the split: the surface over batch and length, and a sweep over pieces."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from labtools.predict import Forecast

from ...figures import LINES, MARKERS, SHADES, draw_picture
from ...tables import Shown, make_note

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Surface = Mapping[tuple[int, int], float]
"""Batch and length to a ratio."""


def plot_surfaces(surfaces: Mapping[str, Surface], caption: str, word: str | None = None) -> Shown:
    """Heat maps side by side: a ratio for each batch and length, written into its cell.

    A cell is the darker the larger its ratio; one below 1 says *slower*, so that the crossover
    shows without colour. A cell without a value says so; a surface without any is left out.
    """
    drawn = {title: surface for title, surface in surfaces.items() if surface}
    if not drawn:
        return make_note("Nothing of this surface was measured yet.")
    batches = sorted({batch for surface in drawn.values() for batch, _ in surface})
    lengths = sorted({length for surface in drawn.values() for _, length in surface})
    most = max(2.0, *(max(surface.values()) for surface in drawn.values()))

    def paint(axes: Any) -> None:
        panels = [axes] if len(drawn) == 1 else list(axes)
        for panel, (title, surface) in zip(panels, drawn.items(), strict=True):
            _paint_surface(panel, surface, batches, lengths, most)
            panel.set(title=title, xlabel="length S", ylabel="batch B")

    told = []
    for title, surface in drawn.items():
        there = [one for one in itertools.product(batches, lengths) if one in surface]
        cells = (f"batch {one[0]} length {one[1]} {surface[one]:.2f}" for one in there)
        told.append(f"{title}: {', '.join(cells)}")
    alt = f"Heat map of ratios over batch and length. {'. '.join(told)}."
    size = (1.2 + 3.4 * len(drawn), 0.9 + 0.55 * len(batches))
    return draw_picture(paint, alt, caption, word, columns=len(drawn), size=size)


def _paint_surface(
    axes: Axes, surface: Surface, batches: Sequence[int], lengths: Sequence[int], most: float
) -> None:
    shade = np.full((len(batches), len(lengths)), np.nan)
    for (batch, length), ratio in surface.items():
        shade[batches.index(batch), lengths.index(length)] = math.log2(max(ratio, 0.25))
    axes.imshow(shade, cmap="Greys", vmin=-2.0, vmax=math.log2(most) * 1.15, aspect="auto")
    for row, batch in enumerate(batches):
        for column, length in enumerate(lengths):
            value = surface.get((batch, length))
            dark = value is not None and math.log2(value) > 0.45 * math.log2(most)
            text = "not\nmeasured" if value is None else f"{value:.2f}"
            if value is not None and value < 0.98:
                text += "\nslower"
            weight = "bold" if value is not None and value > 1.02 else "normal"
            look: dict[str, Any] = {"color": "white" if dark else SHADES[0], "fontweight": weight}
            size = 7 if value is None else 10
            axes.text(column, row, text, ha="center", va="center", fontsize=size, **look)
    axes.set_xticks(range(len(lengths)), [str(length) for length in lengths])
    axes.set_yticks(range(len(batches)), [str(batch) for batch in batches])
    axes.grid(visible=False)


def plot_pieces(
    forecasts: Mapping[int, Forecast], measured: Mapping[int, float], caption: str, title: str = ""
) -> Shown:
    """Time by number of pieces: the decode launch, the merge, what limits alone would take, and the
    times ``measured``, microseconds.
    """
    pieces = sorted(forecasts)
    parts = {n: time_parts(forecasts[n]) for n in pieces}
    lines = {
        "forecast, whole call": [forecasts[n].time_us for n in pieces],
        "decode launch": [parts[n]["decode"] for n in pieces],
        "merge and launches": [parts[n]["merge"] + parts[n]["launch"] for n in pieces],
        "bytes from memory alone": [forecasts[n].terms_us["bandwidth"] for n in pieces],
        "bytes from the L2 alone": [forecasts[n].terms_us["l2_bandwidth"] for n in pieces],
    }

    def paint(axes: Axes) -> None:
        for i, (label, values) in enumerate(lines.items()):
            look: dict[str, Any] = {"marker": MARKERS[i] if i < 3 else None, "markersize": 4}
            look |= {"linestyle": (*LINES[:3], (0, (1, 2)), (0, (8, 2, 1, 2)))[i], "label": label}
            look |= {"color": SHADES[0 if i < 2 else 1], "linewidth": 2.0 if i == 0 else 1.2}
            axes.plot(pieces, values, **look)
        if measured:
            ring: dict[str, Any] = {"markersize": 8, "markeredgecolor": SHADES[0]}
            ring |= {"markerfacecolor": "none", "label": "recorded"}
            axes.plot(*zip(*sorted(measured.items()), strict=True), "o", **ring)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(pieces, [str(n) for n in pieces])
        axes.set(xlabel="pieces of a sequence", ylabel="us", title=title)
        axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.02, 1.0))

    told = []
    for n in pieces:
        known = f", recorded {measured[n]:.1f}" if n in measured else ""
        told.append(f"{n} pieces forecast {forecasts[n].time_us:.1f}{known}")
    said = "; ".join(told)
    alt = f"Time in microseconds by number of pieces, both axes logarithmic. {said}."
    return draw_picture(paint, alt, caption, "forecast", size=(8.4, 3.6))


def time_parts(model: Forecast) -> dict[str, float]:
    """Microseconds of a forecast: ``decode``, ``merge`` (0 without one), and ``launch``."""
    decode, *others = model.launches
    merge_us = sum(other.time_us for other in others)
    return {"decode": decode.time_us, "merge": merge_us, "launch": model.terms_us["launch"]}
