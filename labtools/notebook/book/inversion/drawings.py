"""Drawings for kernels that are designed from limits: fragments, swizzle, rings and their roles."""

from __future__ import annotations

import numpy as np

from labtools.predict.banks import BANK_BYTES, BANKS, Tile, half_tile
from labtools.problem.limits import COPY_BYTES

from ...figures import SHADES, Axes, draw_arrow, draw_box, draw_sketch
from ...tables import Shown

_MATRIX_ROWS = 8
"""Rows of one matrix that ``ldmatrix`` reads together."""


_MARKED_LANE = 13


def lane_of_pair(row: int, pair: int) -> int:
    """The lane that holds a pair of neighbouring elements of a fragment of ``mma.m16n8k16``.

    Source: NVIDIA, PTX ISA, on matrix fragments for ``mma.m16n8k16``; so does
    ``kernels/include/mma.cuh``.
    """
    return row % 8 * 4 + pair % 4


def fragment_drawing() -> Shown:
    """Which lane holds what of S^T = K Q^T: keys are rows, heads are columns."""

    def cell(axes: Axes, x: float, y: float, size: tuple[float, float], holder: int) -> None:
        shade = SHADES[0] if holder == _MARKED_LANE else "white"
        draw_box(axes, (x, y), size, f"{holder}", shade=shade, fontsize=6.5)

    def paint(axes: Axes) -> None:
        wide, high = 0.56, 0.28
        axes.text(2.24, 5.02, "K: 16 keys, 16 dims", ha="center", va="center", fontsize=9)
        for row in range(16):
            for pair in range(8):
                spot = (wide * pair, 5.25 + high * row)
                cell(axes, *spot, (wide, high), lane_of_pair(row, pair))
        axes.text(5.92, 0.05, r"$Q^T$: 16 dims, 8 heads", ha="center", va="center", fontsize=9)
        for column in range(8):
            for pair in range(8):
                spot = (4.8 + 0.28 * column, 0.3 + wide * pair)
                cell(axes, *spot, (0.28, wide), lane_of_pair(column, pair))
        axes.text(5.92, 5.02, r"$S^T$: 16 keys, 8 heads", ha="center", va="center", fontsize=9)
        for row in range(16):
            for pair in range(4):
                spot = (4.8 + wide * pair, 5.25 + high * row)
                cell(axes, *spot, (wide, high), lane_of_pair(row, pair))

    return draw_sketch(
        paint,
        "Three grids: K with 16 rows and 16 columns, Q transposed with 16 rows and 8 columns, and "
        "their product with 16 rows and 8 columns, which stands beside K and below Q. "
        "Each cell holds two neighbouring elements and names the lane that has them. Lane 4 r + c, "
        "for r below 8 and c below 4, has rows r and "
        "r + 8 of K, column r of Q transposed, and of the product rows r and r + 8 of the columns "
        f"2 c and 2 c + 1. The cells of lane {_MARKED_LANE} are dark.",
        "Fragments of one mma.m16n8k16: each cell is two elements, with the lane that holds them",
        extent=(7.3, 9.8),
        size=(4.8, 6.4),
    )


def bank_group(tile: Tile, row: int, chunk: int) -> int:
    """Which sixteen bytes of the 128 that the banks give in a turn a chunk stands in."""
    (at,) = tile.address(np.array([row]), np.array([COPY_BYTES * chunk]))
    return int(at) // COPY_BYTES % (BANKS * BANK_BYTES // COPY_BYTES)


def swizzle_drawing() -> Shown:
    """Where the chunks of eight rows stand: plain, padded, and exchanged by xor."""
    layouts = (
        ("plain: 64 halves a row", half_tile(_MATRIX_ROWS, 64)),
        ("padded: 64 + 8 halves", half_tile(_MATRIX_ROWS, 64, 8)),
        ("xor: chunk c at c xor row", half_tile(_MATRIX_ROWS, 64, layout="xor")),
    )
    marked = 2
    ways = [
        max(np.bincount([bank_group(tile, row, marked) for row in range(_MATRIX_ROWS)]))
        for _, tile in layouts
    ]

    def paint(axes: Axes) -> None:
        for place, (name, tile) in enumerate(layouts):
            left, top = 1.2, 4.0 * place
            axes.text(left + 1.6, top + 0.1, name, ha="center", va="center", fontsize=9)
            for row in range(_MATRIX_ROWS):
                for chunk in range(8):
                    spot = (left + 0.4 * bank_group(tile, row, chunk), top + 0.4 + 0.4 * row)
                    shade = SHADES[0] if chunk == marked else "white"
                    draw_box(axes, spot, (0.4, 0.4), f"{chunk}", shade=shade, fontsize=8)
            told = f"chunk {marked} of all rows:\n{ways[place]} in one place at once"
            axes.text(left + 3.4, top + 2.0, told, ha="left", va="center", fontsize=9)
            for row in range(_MATRIX_ROWS):
                at = (left - 0.1, top + 0.6 + 0.4 * row)
                axes.text(*at, f"row {row}", ha="right", va="center", fontsize=8)

    return draw_sketch(
        paint,
        "Eight rows of eight 16-byte chunks, drawn by the banks that they stand in, in three "
        f"layouts. Chunk {marked} of each row is dark. "
        + " ".join(
            f"{name}: {count} of these stand in the same four banks."
            for (name, _), count in zip(layouts, ways, strict=True)
        ),
        "Where 16-byte chunks stand in the 32 banks. Each column is four banks; ldmatrix reads one "
        "chunk of eight rows at once",
        extent=(8.0, 11.8),
        size=(4.8, 6.6),
        word="computed",
    )


def group_drawing(group_size: int) -> Shown:
    """Who reads a row of K and V: a block for each query head of a group, or one for all of it."""
    left = group_size + 1.5  # of the second panel

    def paint(axes: Axes) -> None:
        for x, name in ((0.0, "r08: a block for each head"), (left, "s07: a block for the group")):
            middle = x + group_size / 2
            axes.text(middle, 0.1, name, ha="center", va="center")
            draw_box(axes, (x, 0.5), (group_size, 0.6), "rows of one KV head", fontsize=8)
        for head in range(group_size):
            draw_arrow(axes, (head + 0.5, 1.1), (head + 0.5, 1.9))
            draw_box(axes, (head + 0.08, 1.9), (0.84, 0.7), f"head {head}", fontsize=7.5)
            draw_box(
                axes, (left + head, 1.9), (1, 0.7), f"head {head}", shade=SHADES[2], fontsize=7.5
            )
        draw_arrow(axes, (left + group_size / 2, 1.1), (left + group_size / 2, 1.9))

    return draw_sketch(
        paint,
        f"Two panels, each with the rows of one KV head and {group_size} query heads. In r08 the "
        f"heads are {group_size} separate blocks, and from the rows an arrow leads to each of "
        "them. In s07 the heads lie side by side in one block, and one arrow leads to it.",
        f"An arrow is one read of every row: {group_size} in r08, 1 in s07",
        extent=(2 * group_size + 1.5, 2.7),
        size=(7.0, 1.9),
        word="computed",
    )


def tile_of_stage(stage: int, trip: int, stages: int) -> int:
    """The tile that a stage of a ring holds, or waits for, while tile ``trip`` is read."""
    return trip + (stage - trip) % stages


def ring_drawing(stages: int) -> Shown:
    """A ring of tiles in shared memory over a few trips of the loop: read, free, on its way."""
    trips = stages + 2

    def paint(axes: Axes) -> None:
        for stage in range(stages):
            axes.text(
                2.8 + 1.55 * stage, 0.1, f"stage {stage}", ha="center", va="center", fontsize=9
            )
        for trip in range(trips):
            y = 0.45 + 0.75 * trip
            axes.text(1.9, y + 0.3, f"tile {trip} is read", ha="right", va="center", fontsize=8)
            for stage in range(stages):
                tile = tile_of_stage(stage, trip, stages)
                spot, size = (2.1 + 1.55 * stage, y), (1.45, 0.6)
                if tile == trip:
                    draw_box(axes, spot, size, f"tile {tile}: read", shade=SHADES[2], fontsize=8)
                else:
                    draw_box(axes, spot, size, f"tile {tile} comes", dashed=True, fontsize=8)

    return draw_sketch(
        paint,
        f"A ring of {stages} stages over {trips} trips of the loop. On each trip one stage holds "
        f"the tile that is read. The other {stages - 1} wait for the next tiles, which are on "
        "their way. The stage that was read gets the tile that comes last.",
        f"A ring of {stages} stages: one tile is read, {stages - 1} are in flight",
        extent=(2.1 + 1.55 * stages, 0.45 + 0.75 * trips),
        size=(4.8, 0.5 + 0.42 * trips),
        word="computed",
    )


def roles_drawing(stages: int, consumers: int) -> Shown:
    """A block whose warps have roles: one warp copies, warpgroups multiply, barriers between."""

    def paint(axes: Axes) -> None:
        words = "producer:\none thread\nof one warp\nstarts copies"
        draw_box(axes, (0.0, 1.0), (2.3, 1.5), words, shade=SHADES[3])
        for stage in range(stages):
            y = 3.5 / stages * stage
            draw_box(axes, (4.3, y), (2.3, 3.5 / stages - 0.25), f"stage {stage}\nof the ring")
        for n in range(consumers):
            y = 3.5 / consumers * n
            words = f"consumer {n}:\na warpgroup,\nwgmma from the stage"
            draw_box(axes, (8.8, y), (2.9, 3.5 / consumers - 0.25), words, shade=SHADES[2])
        draw_arrow(axes, (2.35, 1.5), (4.2, 1.5))
        axes.text(3.25, 1.2, "bulk copy", ha="center", va="center", fontsize=9)
        draw_arrow(axes, (6.7, 1.5), (8.7, 1.5))
        axes.text(7.7, 1.1, "full: all its\nbytes are here", ha="center", va="center", fontsize=9)
        axes.plot([10.2, 10.2, 1.15], [3.4, 4.2, 4.2], color=SHADES[0], linewidth=1, linestyle=":")
        draw_arrow(axes, (1.15, 4.2), (1.15, 2.6), dotted=True)
        words = "empty: every reader is done with the stage"
        axes.text(5.5, 3.95, words, ha="center", va="center", fontsize=9)

    return draw_sketch(
        paint,
        f"Left the producer, one thread that starts bulk copies into a ring of {stages} stages. "
        f"Right {consumers} consumer warpgroups, which multiply from the ring. A barrier called "
        "full tells them that all bytes of a stage have arrived. A barrier called empty tells the "
        "producer that every reader is done with it.",
        "Producer and consumers, and the two barriers of each stage",
        extent=(11.8, 4.3),
        size=(7.4, 3.1),
        word="computed",
    )
