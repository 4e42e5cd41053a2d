"""Drawings of what the first chapters speak of: a launch, the cache, sharing heads, splits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from labtools.problem import Launch, Workload

from ..figures import GREYS, draw_arrow, draw_box, draw_sketch
from ..tables import Shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SCHEDULERS = 4
_LANES = 32


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
                shade = GREYS[2] if n == 1 else "white"
                draw_box(axes, (3.4 + 0.88 * n, y), (0.88, 0.7), text, shade=shade, fontsize=7.5)
            axes.text(10.6, y + 0.35, f"{stride:,} B apart", va="center")
            if place + 1 < len(levels):
                for side, to in ((4.28, 3.4), (5.16, 3.4 + 0.88 * shown)):
                    axes.plot([side, to], [y + 0.7, y + 1.5], color=GREYS[1], linewidth=0.8)

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
    """Which query heads read which KV head: one for each, shared in groups, and one for all.

    Args:
        num_qo_heads: drawn; a multiple of ``num_kv_heads``.
    """
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
                draw_box(axes, box, (0.84, 0.6), f"{head}", shade=GREYS[2], fontsize=8)
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


def softmax_drawing() -> Shown:
    """Online softmax: the state that goes from row to row, and what one row does to it."""

    def paint(axes: Axes) -> None:
        for n, name in enumerate(("row 0", "row 1", "row 2")):
            x = 1.9 + 3.0 * n
            draw_box(axes, (x, 0.0), (1.5, 0.6), f"{name}: k, v", shade=GREYS[3])
            draw_arrow(axes, (x + 0.75, 0.6), (x + 0.75, 1.2))
            words = "s = q k\nm' = max(m, s)\nrescale l and a\nadd this row"
            draw_box(axes, (x - 0.35, 1.2), (2.2, 1.7), words)
            draw_arrow(axes, (x + 1.85, 2.05), (x + 2.65, 2.05))
            axes.text(x + 2.25, 1.8, "m, l, a", ha="center", va="center", fontsize=9)
        draw_box(axes, (0.0, 1.55), (1.1, 1.0), "m = -inf\nl = 0\na = 0")
        draw_arrow(axes, (1.1, 2.05), (1.55, 2.05))
        axes.text(10.7, 2.05, "... after the\nlast row\na / l", va="center")

    return draw_sketch(
        paint,
        "Three rows, one after the other. Each takes the state, which is the maximum m, the sum l "
        "and the weighted sum of values a; it computes its score, raises the maximum, rescales l "
        "and a, and adds itself. After the last row the output is a over l.",
        "Online softmax: each row waits for the state of the one before",
        extent=(12.2, 3.0),
        size=(7.4, 2.0),
    )


def merge_drawing(pieces: int = 4) -> Shown:
    """A sequence cut into pieces, each with a block and a partial state, and the merge of them."""

    def paint(axes: Axes) -> None:
        width = 9.0 / pieces
        for n in range(pieces):
            x = 1.6 + width * n
            draw_box(axes, (x, 0.0), (width, 0.6), f"rows of split {n}", shade=GREYS[2 + n % 2])
            draw_arrow(axes, (x + width / 2, 0.6), (x + width / 2, 1.1))
            draw_box(axes, (x + 0.2, 1.1), (width - 0.4, 0.8), f"block {n}\nonline softmax")
            draw_arrow(axes, (x + width / 2, 1.9), (x + width / 2, 2.3))
            draw_box(axes, (x + 0.2, 2.3), (width - 0.4, 0.6), "m, l, a", dashed=True)
            draw_arrow(axes, (x + width / 2, 2.9), (6.1, 3.5))
        draw_box(axes, (2.6, 3.5), (7.0, 0.8),
                 "merge: bring all to the largest m, add l and a, divide")  # fmt: skip
        axes.text(1.4, 0.3, "K and V", ha="right", va="center")
        axes.text(1.4, 1.5, "at once", ha="right", va="center")
        axes.text(1.4, 2.6, "partial\nresults", ha="right", va="center")
        axes.text(1.4, 3.9, "once all\nare there", ha="right", va="center")

    return draw_sketch(
        paint,
        f"The rows of one sequence are cut into {pieces} splits. A block walks through each, all "
        "at once, and leaves a partial state m, l, a. When all are there, a merge brings them to "
        "the largest maximum, adds the sums and the outputs, and divides.",
        "Split and merge",
        extent=(10.7, 4.3),
        size=(7.2, 3.0),
    )


def launch_drawing(launch: Launch, num_sms: int) -> Shown:
    """From a grid to lanes: the blocks of a launch, an SM with some of them, a warp's lanes."""
    across, down = launch.grid[0], launch.grid[1] if len(launch.grid) > 1 else 1
    warps = launch.num_threads // _LANES
    block = f"{launch.num_threads} threads = {warps} warp{'s' if warps > 1 else ''}"

    def paint(axes: Axes) -> None:
        axes.text(1.5, 0.2, f"grid: {across} x {down} blocks", ha="center", va="center")
        for row in range(4):
            for column in range(4):
                shade = GREYS[2] if (row, column) in ((0, 1), (1, 3), (2, 0), (3, 2)) else "white"
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
                shade = GREYS[2] if row == 0 else "white"
                draw_box(axes, (x, 1.3 + 0.4 * row), (0.75, 0.32), "warp", shade=shade, fontsize=7)
        draw_box(axes, (4.25, 2.15), (3.3, 0.35), "registers", shade=GREYS[3], fontsize=8)
        draw_box(axes, (4.25, 2.58), (3.3, 0.35), "shared memory, L1", shade=GREYS[3], fontsize=8)
        draw_arrow(axes, (7.8, 1.5), (8.6, 1.5))
        axes.text(9.9, 0.2, f"block: {block}", ha="center", va="center")
        for lane in range(_LANES):
            spot = (8.7 + 0.3 * (lane % 8), 0.7 + 0.45 * (lane // 8))
            draw_box(axes, spot, (0.27, 0.38), f"{lane}", shade=GREYS[2], fontsize=6.5)
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


def lanes_drawing() -> Shown:
    """Which elements the lanes of a warp read at once: down a column, and along a row."""
    lanes, rows, columns = 4, 4, 16
    panels = (
        ("one thread a row: lanes read down a column", lambda lane: (lane, 0)),
        ("one block a row: lanes read neighbours", lambda lane: (0, lane)),
    )

    def paint(axes: Axes) -> None:
        for place, (name, element) in enumerate(panels):
            top = 2.6 * place + 0.5
            axes.text(2.0, top - 0.25, name, va="center")
            read = {element(lane): lane for lane in range(lanes)}
            for row in range(rows):
                axes.text(1.8, top + 0.4 * row + 0.2, f"row {row}", ha="right", va="center")
                for column in range(columns):
                    lane = read.get((row, column))
                    spot = (2.0 + 0.6 * column, top + 0.4 * row)
                    text = "" if lane is None else f"lane {lane}"
                    shade = "white" if lane is None else GREYS[2]
                    draw_box(axes, spot, (0.6, 0.4), text, shade=shade, fontsize=7)

    return draw_sketch(
        paint,
        "A matrix of four rows, twice. Above, lanes 0 to 3 read the first element of rows 0 to 3, "
        "which lie far apart in memory. Below, lanes 0 to 3 read the first four elements of row 0, "
        "which are neighbours.",
        "What the first four lanes of a warp read at the same time",
        extent=(11.7, 4.8),
        size=(7.2, 3.2),
    )
