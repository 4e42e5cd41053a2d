"""The figures of the chapters: drawn from data, readable in black and white, with alt text."""

from __future__ import annotations

import base64
import html
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from labtools.record import Record, summary

from .tables import Shown, badge, check_word, make_note

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
else:
    Axes = Any  # only a picture that is drawn loads matplotlib

BLUE, ORANGE = "#1f5a94", "#d96f00"
SHADES = ("#163a5f", ORANGE, "#8ab8e0", "#dbe7f2")
AMBER, GREEN, CREAM = "#f2b766", "#bfe0c8", "#fbe8cf"
"""Colours that differ by their brightness, so that they read in grey too."""
HATCHES = ("", "///", "...", "xx")
MARKERS = ("o", "s", "^", "D", "v", "P")
LINES = ("-", "--", "-.", ":")
_NARROW_PT = 360.0  # what is no wider can be read when it is made to fit a telephone
Spot = tuple[float, float]
"""A place or a size: x and y, or width and height."""

_STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "axes.axisbelow": True,
    "legend.frameon": False,
    "svg.hashsalt": "labtools",
    "figure.facecolor": "white",
}


def line_look(number: int, shades: int = 3) -> dict[str, Any]:
    """Marker, line and shade of one of several lines: no two of the first twelve look alike."""
    look = {"marker": MARKERS[number % 6], "linestyle": LINES[number % 4]}
    return {**look, "color": SHADES[number % shades]}


def mark_look(
    number: int, *, hollow: bool = False, colours: Sequence[str] = SHADES[:3]
) -> dict[str, Any]:
    """Mark and colour of one of several groups of points, which no line joins."""
    colour = colours[number % len(colours)]
    face, mark = "white" if hollow else colour, MARKERS[number % len(MARKERS)]
    return {"marker": mark, "color": colour, "markerfacecolor": face, "linestyle": "none"}


def legend_beside(axes: Axes) -> None:
    """The legend to the right of the axes, where it hides nothing."""
    axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def make_picture(svg: str, alt: str, caption: str, word: str | None = None) -> Shown:
    """A drawing with the text that stands for it; without ``word`` the caption says where it is
    from."""
    mark = f" {badge(word)}" if word else ""
    data = base64.b64encode(svg.encode()).decode()
    wide = re.search(r'<svg[^>]* width="([\d.]+)pt"', svg)
    narrow = ' class="lt-narrow"' if wide and float(wide[1]) < _NARROW_PT else ""
    markup = (
        f'<figure{narrow} style="margin:1em 0;text-align:left">'
        f'<img src="data:image/svg+xml;base64,{data}" alt="{html.escape(alt)}" '
        'style="max-width:100%;height:auto;background:white"/>'
        f"<figcaption>{html.escape(caption)}{mark}</figcaption></figure>"
    )
    return Shown(markup, f"{alt} ({caption}{f' [{word}]' if word else ''})")


def draw_picture(
    paint: Callable[..., None],
    alt: str,
    caption: str,
    word: str | None = None,
    *,
    columns: int = 1,
    size: Spot = (7.2, 3.2),
    title: str = "",
) -> Shown:
    """Draw with ``paint(axes, ...)`` on a fresh figure that pyplot does not keep.

    A ``title`` stands above a figure of one column, and begins the text that stands for it.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots(1, columns)
        paint(axes)
        if title:
            axes.set_title(title)
            alt = f"{title}. {alt}"
        buffer = io.StringIO()
        # No date in the file, so that the same data give the same bytes.
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    svg = re.sub(r' d="[^"]*"', _shorten_path, buffer.getvalue())
    return make_picture(svg, alt, caption, word)


def _shorten_path(path: re.Match[str]) -> str:
    """Nobody sees less than a hundredth of a point."""
    return re.sub(r"(\.\d\d)\d+", r"\1", path[0])


def draw_box(
    axes: Axes,
    corner: Spot,
    size: Spot,
    text: str = "",
    *,
    shade: str = "white",
    dashed: bool = False,
    fontsize: float = 9,
) -> None:
    """A rectangle with its text in the middle, in the units of axes that `draw_sketch` gives."""
    from matplotlib.colors import to_rgb
    from matplotlib.patches import Rectangle

    style: dict[str, Any] = {"facecolor": shade, "edgecolor": SHADES[0], "linewidth": 0.8}
    axes.add_patch(Rectangle(corner, *size, linestyle="--" if dashed else "-", **style))
    x, y = corner[0] + size[0] / 2, corner[1] + size[1] / 2
    ink = "white" if sum(to_rgb(shade)) < 1.3 else "black"
    axes.text(x, y, text, ha="center", va="center", fontsize=fontsize, color=ink)


def draw_arrow(axes: Axes, start: Spot, end: Spot, *, dotted: bool = False) -> None:
    """A thin arrow from one point to another."""
    line = {"arrowstyle": "->", "color": SHADES[0], "linestyle": ":" if dotted else "-"}
    axes.annotate("", end, xytext=start, arrowprops={**line, "shrinkA": 0, "shrinkB": 0})


def draw_sketch(
    paint: Callable[[Axes], None],
    alt: str,
    caption: str,
    *,
    extent: Spot,
    size: Spot,
    word: str | None = None,
) -> Shown:
    """Draw on a plane without scales, x to the right and y downwards, both from zero.

    The size is in inches; a drawing that shows no number has no ``word``.
    """

    def on_plane(axes: Axes) -> None:
        axes.axis("off")
        axes.set_xlim(-0.02 * extent[0], 1.02 * extent[0])
        axes.set_ylim(1.02 * extent[1], -0.02 * extent[1])
        paint(axes)

    return draw_picture(on_plane, alt, caption, word, size=size)


@dataclass(frozen=True)
class Bar:
    """One bar of a figure."""

    label: str  # name under it
    time_us: float  # its length in microseconds
    source: str  # provenance word
    low_us: float | None = None  # lower end of its spread, where known
    high_us: float | None = None  # upper end, where known


def bar_of_record(record: Record, label: str | None = None) -> Bar:
    """A record's median with the middle half of its samples."""
    spread = summary(record)
    return Bar(label or record.name, spread.median_us, "recorded", *spread.iqr_us)


def show_bars(
    bars: Sequence[Bar],
    title: str,
    *,
    floor_us: float | None = None,
    where: str = "",
    width: float = 7.2,
) -> Shown:
    """Times as horizontal bars, longest at its full length, each with its number and word."""
    if not bars:
        return make_note(f"{title}: there is nothing to draw, because there is no record yet.")
    words = [check_word(bar.source) for bar in bars]
    hatch = {word: HATCHES[i % len(HATCHES)] for i, word in enumerate(dict.fromkeys(words))}

    def paint(axes: Axes) -> None:
        longest = max(bar.time_us for bar in bars)
        for row, bar in enumerate(bars):
            look: dict[str, Any] = {
                "color": "#9dbfe0",
                "edgecolor": SHADES[0],
                "hatch": hatch[bar.source],
            }
            axes.barh(row, bar.time_us, **look)
            if bar.low_us is not None and bar.high_us is not None:
                axes.plot([bar.low_us, bar.high_us], [row, row], color=SHADES[0], linewidth=2)
            text = f"{bar.time_us:.1f} us {bar.source}"
            axes.text(
                max(bar.time_us, bar.high_us or 0) + 0.01 * longest,
                row,
                text,
                va="center",
                fontsize=9,
            )
        axes.set_yticks(range(len(bars)), [bar.label for bar in bars])
        axes.invert_yaxis()
        axes.set_xlim(0, longest * 1.3)
        axes.set_xlabel("time (us)")
        axes.grid(axis="y", visible=False)
        if floor_us is not None:
            axes.axvline(floor_us, color=SHADES[0], linestyle="--")
            style: dict[str, Any] = {"textcoords": "offset points", "fontsize": 9, "va": "top"}
            at = (floor_us, len(bars) - 0.5)
            axes.annotate(f"floor {floor_us:.1f} us computed", at, xytext=(4, 0), **style)
            axes.set_ylim(len(bars), -0.6)

    alt = "; ".join(f"{bar.label} {bar.time_us:.1f} us ({bar.source})" for bar in bars)
    if floor_us is not None:
        alt += f"; floor {floor_us:.1f} us (computed)"
    caption = f"{title}, lower is faster" + (f"; {where}" if where else "")
    size = (width, 0.9 + 0.45 * len(bars))
    return draw_picture(paint, alt, caption, words[0], size=size, title=title)


def plot_lines(
    series: Mapping[str, Mapping[float, float]],
    xlabel: str,
    ylabel: str,
    caption: str,
    word: str,
) -> Shown:
    """Values over a common axis in steps of two, a line for each name; the text has every point."""

    def paint(axes: Axes) -> None:
        for number, (name, points) in enumerate(series.items()):
            axes.plot(*zip(*sorted(points.items()), strict=True), label=name, **line_look(number))
        every = sorted(set().union(*series.values()))
        axes.set_xscale("log", base=2)
        axes.set_xticks(every, [f"{x:g}" for x in every])
        axes.minorticks_off()
        axes.set(xlabel=xlabel, ylabel=ylabel, ylim=(0, None))
        axes.legend(fontsize=9, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2)

    told = "; ".join(
        f"{name}: " + ", ".join(f"{x:g} {y:.3g}" for x, y in sorted(points.items()))
        for name, points in series.items()
    )
    alt = f"Line chart. {ylabel} by {xlabel}. {told}."
    return draw_picture(paint, alt, caption, word, size=(4.9, 3.2))
