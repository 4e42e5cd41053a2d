"""One decode step."""

from __future__ import annotations

from labtools.predict import DEFAULT_GPU, floors, load_gpu
from labtools.problem import HEADLINE

from ...figures import AMBER, Axes, draw_arrow, draw_box, draw_sketch
from ...records import GpuRecords
from ...tables import Shown


def sdpa_against_floor() -> tuple[float, float] | None:
    """The floor and the recorded time of PyTorch's attention, in us, of the headline workload."""
    record = GpuRecords(DEFAULT_GPU).find("baseline:sdpa", HEADLINE)
    if record is None:
        return None
    return floors(HEADLINE, load_gpu(DEFAULT_GPU)).time_us, record.median_us


def step_drawing() -> Shown:
    """One decode step: the newest token's query meets the keys and values that are kept."""
    tokens = ("The", "cat", "sat", "on", "the")

    def paint(axes: Axes) -> None:
        for n, token in enumerate(tokens):
            x, newest = 0.1 + 1.35 * n, n == len(tokens) - 1
            axes.text(x + 0.6, 0.3, token, ha="center", va="center", fontsize=11)
            draw_arrow(axes, (x + 0.6, 0.55), (x + 0.6, 0.95))
            key, value = ("#8fb8e0", "#86c49a") if newest else ("#d3e3f4", "#cfe9d6")
            draw_box(axes, (x, 1.0), (1.2, 0.6), "key", shade=key)
            draw_box(axes, (x, 1.7), (1.2, 0.6), "value", shade=value)
            # What the newest token asks meets every row.
            draw_arrow(axes, (6.1, 3.1), (x + 0.6, 2.4))
        axes.text(0.1, 3.25, "The KV cache is read\nwhole at every step.", va="center")
        draw_box(axes, (5.5, 3.1), (1.2, 0.6), "query", shade=AMBER)
        draw_arrow(axes, (5.4, 3.4), (4.75, 3.85))
        words = "weighted mean of the values;\nthe next token follows from it"
        axes.text(4.7, 4.2, words, ha="right", va="center", fontsize=9)

    return draw_sketch(
        paint,
        "Five tokens in a row, each with a key and a value in the KV cache. The newest token also "
        "has a query. It meets every key, and the output is a weighted mean of all values. The "
        "cache is read whole at every step.",
        "One step of decode attention, for one head",
        extent=(6.8, 4.6),
        size=(4.9, 3.3),
    )
