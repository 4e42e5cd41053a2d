"""Which lane holds what of a row."""

from __future__ import annotations

from ...figures import SHADES, Axes, draw_box, draw_sketch
from ...tables import Shown


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
                    shade = "white" if lane is None else SHADES[2]
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
