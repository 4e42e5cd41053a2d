"""Online softmax, and how pieces of a sequence are merged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from labtools.problem import Inputs

from ...figures import (
    AMBER,
    GREEN,
    LINES,
    SHADES,
    Axes,
    draw_arrow,
    draw_box,
    draw_picture,
    draw_sketch,
)
from ...tables import Shown

ROWS = (GREEN, AMBER)
"""Colours of neighbouring rows."""


def plot_online_softmax(first: Inputs, second: Inputs) -> Shown:
    """The running maximum and the output's norm of the first head, for two sets of inputs."""
    traces = [_trace_online_softmax(inputs) for inputs in (first, second)]
    names = [inputs.workload.distribution for inputs in (first, second)]

    def paint(axes: Sequence[Axes]) -> None:
        for i, (name, (peak, share)) in enumerate(zip(names, traces, strict=True)):
            rows = np.arange(1, len(peak) + 1)
            style: dict[str, Any] = {"color": SHADES[i], "linestyle": LINES[i], "label": name}
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


def softmax_drawing() -> Shown:
    """Online softmax: the state that goes from row to row, and what one row does to it."""

    def paint(axes: Axes) -> None:
        for n in range(2):
            x = 1.9 + 3.2 * n
            draw_box(axes, (x, 0.0), (1.5, 0.6), f"row {n}: k, v", shade=ROWS[n])
            draw_arrow(axes, (x + 0.75, 0.6), (x + 0.75, 1.2))
            words = "s = q k\nm' = max(m, s)\nrescale l and a\nadd this row"
            draw_box(axes, (x - 0.35, 1.2), (2.2, 1.7), words)
            draw_arrow(axes, (x + 1.85, 2.05), (x + 2.85, 2.05))
            axes.text(x + 2.35, 1.75, "m, l, a", ha="center", va="center", fontsize=9)
        draw_box(axes, (0.0, 1.55), (1.1, 1.0), "m = -inf\nl = 0\na = 0")
        draw_arrow(axes, (1.1, 2.05), (1.55, 2.05))
        axes.text(8.1, 2.05, "... after\nthe last\nrow a / l", va="center", fontsize=9)

    return draw_sketch(
        paint,
        "Two rows, one after the other. Each takes the state, which is the maximum m, the sum l "
        "and the weighted sum of values a; it computes its score, raises the maximum, rescales l "
        "and a, and adds itself. After the last row the output is a over l.",
        "Online softmax: each row waits for the state of the one before",
        extent=(9.4, 3.0),
        size=(4.9, 1.9),
    )


def merge_drawing(pieces: int = 3) -> Shown:
    """A sequence cut into pieces, each with a block and a partial state, and the merge of them."""

    def paint(axes: Axes) -> None:
        width = 9.0 / pieces
        for n in range(pieces):
            x = 1.6 + width * n
            draw_box(axes, (x, 0.0), (width, 0.6), f"rows of split {n}", shade=ROWS[n % 2])
            draw_arrow(axes, (x + width / 2, 0.6), (x + width / 2, 1.1))
            draw_box(axes, (x + 0.2, 1.1), (width - 0.4, 0.8), f"block {n}\nonline softmax")
            draw_arrow(axes, (x + width / 2, 1.9), (x + width / 2, 2.3))
            draw_box(axes, (x + 0.2, 2.3), (width - 0.4, 0.6), "m, l, a", dashed=True)
            draw_arrow(axes, (x + width / 2, 2.9), (6.1, 3.5))
        words = "merge: bring all to the largest m,\nadd l and a, divide"
        draw_box(axes, (2.6, 3.5), (7.0, 0.8), words)
        axes.text(1.4, 0.3, "K and V", ha="right", va="center", fontsize=9)
        axes.text(1.4, 1.5, "at once", ha="right", va="center", fontsize=9)
        axes.text(1.4, 2.6, "partial\nresults", ha="right", va="center", fontsize=9)
        axes.text(1.4, 3.9, "once all\nare there", ha="right", va="center", fontsize=9)

    return draw_sketch(
        paint,
        f"The rows of one sequence are cut into {pieces} splits. A block walks through each, all "
        "at once, and leaves a partial state m, l, a. When all are there, a merge brings them to "
        "the largest maximum, adds the sums and the outputs, and divides.",
        "Split and merge",
        extent=(10.7, 4.3),
        size=(4.9, 2.6),
    )
