"""One decode step."""

from __future__ import annotations

from labtools.predict import DEFAULT_GPU, floors, load_gpu
from labtools.problem import HEADLINE

from ...figures import GREYS, Axes, draw_arrow, draw_box, draw_sketch
from ...records import GpuRecords
from ...tables import Shown


def sdpa_against_floor() -> float | None:
    """The floor over the recorded time of PyTorch's attention, both of the headline workload."""
    record = GpuRecords(DEFAULT_GPU).find("baseline:sdpa", HEADLINE)
    if record is None:
        return None
    return floors(HEADLINE, load_gpu(DEFAULT_GPU)).time_us / record.median_us


def step_drawing() -> Shown:
    """One decode step: the newest token's query meets the keys and values that are kept."""
    tokens = ("The", "cat", "sat", "on", "the")

    def paint(axes: Axes) -> None:
        for n, token in enumerate(tokens):
            x, newest = 1.6 + 1.3 * n, n == len(tokens) - 1
            axes.text(x + 0.55, 0.3, token, ha="center", va="center", fontsize=11)
            draw_arrow(axes, (x + 0.55, 0.55), (x + 0.55, 0.95))
            shade = GREYS[2] if newest else GREYS[3]
            draw_box(axes, (x, 1.0), (1.1, 0.6), "key", shade=shade)
            draw_box(axes, (x, 1.7), (1.1, 0.6), "value", shade=shade)
            # What the newest token asks meets every row.
            draw_arrow(axes, (7.35, 3.1), (x + 0.55, 2.4))
        axes.text(1.4, 1.65, "KV cache:\nread whole,\nevery step", ha="right", va="center")
        draw_box(axes, (6.8, 3.1), (1.1, 0.6), "query", shade="white")
        axes.text(6.6, 3.45, "of the newest token", ha="right", va="center")
        draw_arrow(axes, (7.95, 3.4), (8.75, 3.4))
        words = "weighted mean\nof the values;\nthe next token\nfollows from it"
        axes.text(8.85, 3.4, words, va="center", fontsize=9)

    return draw_sketch(
        paint,
        "Five tokens in a row, each with a key and a value in the KV cache. The newest token also "
        "has a query. It meets every key, and the output is a weighted mean of all values. The "
        "cache is read whole at every step.",
        "One step of decode attention, for one head",
        extent=(10.9, 4.0),
        size=(7.2, 2.8),
    )
