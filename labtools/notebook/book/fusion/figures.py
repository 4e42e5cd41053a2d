"""Which matrices two kernels move through memory, and which one kernel moves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...figures import SHADES, Axes, draw_box, draw_picture
from ...tables import Shown


def plot_passes(ways: Mapping[str, Sequence[str]], matrix_mb: float) -> Shown:
    """A box for each matrix of ``matrix_mb`` that a way of computing reads or writes, in order."""

    def paint(axes: Axes) -> None:
        for row, parts in enumerate(ways.values()):
            for place, part in enumerate(parts):
                shade = SHADES[3] if part.endswith("read") else SHADES[0]
                spot, text = (place * matrix_mb, row + 0.1), part.replace(" ", "\n")
                draw_box(axes, spot, (matrix_mb, 0.8), text, shade=shade)
        axes.set_xlim(0, max(map(len, ways.values())) * matrix_mb)
        axes.set_ylim(len(ways), 0)
        axes.set_yticks([row + 0.5 for row in range(len(ways))], list(ways))
        axes.set_xlabel("MB through memory")

    told = ". ".join(
        f"{name}: {', '.join(parts)}, together {len(parts) * matrix_mb:.0f} MB"
        for name, parts in ways.items()
    )
    caption = f"Each box is one matrix of {matrix_mb:.0f} MB; the dark ones are written"
    return draw_picture(paint, f"{told}.", caption, "computed", size=(4.9, 2.0))
