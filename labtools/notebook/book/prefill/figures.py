"""The step of a prefill kernel that walks through tiles, and where the rows of a tile begin."""

from __future__ import annotations

from collections.abc import Sequence

from labtools.predict import DEFAULT_GPU, load_gpu
from labtools.problem import Prefill, load_rung

from ...figures import (
    BLUE,
    CREAM,
    GREEN,
    ORANGE,
    SHADES,
    Axes,
    draw_arrow,
    draw_box,
    draw_sketch,
)
from ...tables import Shown

DONE, NOW, COMING = GREEN, ORANGE, BLUE
"""Colours of the blocks of keys."""


def draw_step(name: str, workload: Prefill) -> Shown:
    """What a block of a rung works on, by its launch: its tile of Q against the blocks of K and V,
    the queries of each warp, and what its shared memory holds, to scale."""
    rung = load_rung(name)
    knobs = rung.resolve_knobs()
    (launch,) = rung.launches(workload, load_gpu(DEFAULT_GPU).limits, knobs)
    queries, warps = workload.num_queries // launch.grid[0], launch.num_threads // 32
    keys, stages = knobs.get("block_n", queries), knobs.get("stages", 1)
    tiles, blocks = launch.grid[0], -(-workload.kv_len // keys)
    score = 4 * queries * keys if '"scalar_tile.cuh"' in rung.source_text else 0
    row = (launch.smem_bytes - score) // (queries + 2 * stages * keys)
    held = [("Q", queries * row, "white")]
    for stage in range(stages):
        shade = COMING if stage else NOW
        held += [("K", keys * row, shade), ("V", keys * row, shade)]
    held += [("scores", score, SHADES[3])] if score else []
    own, now = tiles // 3, blocks // 3

    def paint(axes: Axes) -> None:
        side_x, side_y, left, top = 5.0 / blocks, 4.8 / tiles, 1.6, 1.5
        axes.text(left, 0.3, f"K and V: blocks of {keys} keys", va="center")
        axes.text(0.25, top + 2.4, f"Q: tiles of {queries}", rotation=90, ha="center", va="center")
        for tile in range(tiles):
            at = (0.6, top + tile * side_y)
            draw_box(axes, at, (0.7, side_y), shade=NOW if tile == own else "white")
        for block in range(blocks):
            x = left + block * side_x
            shade = DONE if block < now else NOW if block == now else "white"
            shade = COMING if now < block < now + stages else shade
            draw_box(axes, (x, 0.6), (side_x, 0.6), shade=shade)
            for tile in range(tiles):
                inner = shade if tile == own and block <= now else "white"
                draw_box(axes, (x, top + tile * side_y), (side_x, side_y), shade=inner)
        wide, x = 4.0, 7.9
        axes.text(x, 0.3, f"the tile now, {queries} x {keys}", va="center")
        corner = (left + (now + 1) * side_x, top + own * side_y)
        draw_arrow(axes, (corner[0], corner[1] + side_y / 2), (x - 0.1, top + 1.0))
        for warp in range(warps):
            first, rows = warp * queries // warps, queries // warps
            at, size = (x, 0.6 + warp * 5.7 / warps), (wide, 5.7 / warps)
            text = f"warp {warp}\nqueries {first} to {first + rows - 1}"
            draw_box(axes, at, size, text, shade="white" if warp % 2 else CREAM)
        axes.text(0, 6.95, f"shared memory of the block, {launch.smem_bytes / 1024:.0f} KiB")
        x = 0.0
        for text, size_bytes, shade in held:
            part = 11.9 * size_bytes / launch.smem_bytes
            draw_box(axes, (x, 7.2), (part, 0.7), text, shade=shade)
            x += part

    inside = ", ".join(f"{text} {size / 1024:.0f} KiB" for text, size, _ in held)
    return draw_sketch(
        paint,
        f"One head of {rung.id}. Its {workload.num_queries} queries are cut into {tiles} tiles of "
        f"{queries}, each a block of the grid, and its {workload.kv_len} keys into {blocks} blocks "
        f"of {keys}. A block has gone through {now} of them and works on the next"
        f"{', while one more is copied' * (stages > 1)}. Each of {warps} warps has "
        f"{queries // warps} queries. Shared memory holds {inside}.",
        f"One head: green is done, orange is worked on{', blue is in flight' * (stages > 1)}. "
        f"A warp has maximum, sum of weights{' and output' if score else ', output and scores'} "
        "of its queries in registers",
        extent=(11.9, 7.9),
        size=(4.9, 3.9),
        word="computed",
    )


def draw_row_starts(head_dim: int, paddings: Sequence[int], rows: int = 9) -> Shown:
    """The first copy of 16 bytes of some rows of a tile, against the multiples of 16 bytes."""
    strides = {pad: 2 * (head_dim + pad) for pad in paddings}

    def paint(axes: Axes) -> None:
        for number, (pad, stride) in enumerate(strides.items()):
            left = 8.0 + 46 * number
            text = f"{head_dim} + {pad} values, {stride} bytes"
            axes.text(left - 6, 0.5, text, va="center")
            for row in range(rows):
                off, y = stride * row % 16, 1.2 + row
                text = f"row {row}" + f" +{off}" * (off > 0)
                axes.text(left - 0.7, y + 0.4, text, ha="right", va="center", fontsize=9)
                draw_box(axes, (left + off, y), (16, 0.8), shade=NOW if off else DONE)
            for edge in (0, 16, 32):
                axes.plot([left + edge] * 2, [1.0, 1.2 + rows], color="black", linewidth=1.5)

    told = "; ".join(
        f"with {stride} bytes per row, of rows 0 to {rows - 1} those at a multiple of 16 are "
        + ", ".join(str(row) for row in range(rows) if stride * row % 16 == 0)
        for stride in strides.values()
    )
    return draw_sketch(
        paint,
        f"{told[0].upper()}{told[1:]}.",
        "The first copy of each row; the lines are multiples of 16 bytes, between which a copy "
        "must lie",
        extent=(46.0 * len(strides) - 5, rows + 1.4),
        size=(4.9, 2.5),
        word="computed",
    )
