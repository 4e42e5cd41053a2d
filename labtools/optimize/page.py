"""The summary of a loop as one HTML file: nothing is fetched, and no script runs."""

from __future__ import annotations

import html
import io
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .family import METHOD_AXES
from .state import LoopState
from .summary import (
    MOST_FRONTIER_ROWS,
    SummaryTable,
    attributed,
    best_so_far,
    summarise,
    title_of,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LONG_CELL = 24
"""Characters from which on a cell does not become as narrow as its longest word."""
_INK, _FAINT, _SOFT = "#010203", "#040506", "#070809"
"""Stand for the page's colours in a drawing, which follow the reader's choice of light or dark."""
_COLOURS = {_INK: "var(--ink)", _FAINT: "var(--line)", _SOFT: "var(--soft)"}
_STYLE_SHEET = """
:root { color-scheme: light dark; --ink: #1a1a1a; --page: #ffffff; --line: #d0d0d0;
  --soft: #8a8a8a; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e8e8; --page: #16181c; --line: #43474e; --soft: #9a9fa8; } }
body { color: var(--ink); background: var(--page); font: 16px/1.45 system-ui, sans-serif;
  max-width: 60rem; margin: 0 auto; padding: 0.75rem; overflow-wrap: anywhere; }
h1 { font-size: 1.3rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
figure { margin: 1rem 0; max-width: 40rem; } svg { width: 100%; height: auto; display: block; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: 0.85rem; }
th, td { text-align: left; vertical-align: top; padding: 0.25rem 0.5rem;
  border-bottom: 1px solid var(--line); overflow-wrap: normal; }
td.long { min-width: 14rem; }
""".strip()
_SIZE_IN = (4.6, 3.0)
_DRAWN: dict[Any, Any] = {
    **dict.fromkeys(["text.color", "axes.edgecolor", "axes.labelcolor", "hatch.color"], _INK),
    **dict.fromkeys(["xtick.color", "ytick.color"], _INK),
    **dict.fromkeys(["axes.spines.top", "axes.spines.right", "legend.frameon"], False),
    **dict.fromkeys(["axes.grid", "axes.axisbelow"], True),
    "grid.color": _FAINT,
    "font.size": 10,
    "font.family": "sans-serif",
    "svg.fonttype": "none",
    "svg.hashsalt": "labtools",
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
}


@dataclass(frozen=True)
class _Plot:
    """A drawing and what stands for it."""

    paint: Callable[[Axes], None]  # draws it
    alt: str  # what a reader who cannot see it would want to know
    caption: str  # below it
    rows: int = 0  # lines of text along its side, which decide its height


def summary_html(state: LoopState) -> str:
    """The summary as one HTML file: nothing is fetched, and no script runs."""
    title = html.escape(title_of(state))
    plots = {
        "Result": _plot_best(state),
        "Migration of the bottleneck": _plot_budgets(state),
        "Attribution": _plot_attributions(state),
        "Frontier": _plot_frontier(state),
    }
    drawn = 0
    parts = [
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{title}</title>\n<style>\n{_STYLE_SHEET}\n</style>\n</head>\n<body>",
        f"<h1>{title}</h1>",
    ]
    for table in summarise(state):
        parts.append(f"<h2>{html.escape(table.title)}</h2>")
        plot = plots.get(table.title)
        if plot is not None:
            drawn += 1
            parts.append(_figure_html(plot, f"plot{drawn}-"))
        parts.append(_table_html(table))
    return "\n".join([*parts, "</body>\n</html>\n"])


def _table_html(table: SummaryTable) -> str:
    note = f"<p>{html.escape(table.note)}</p>" if table.note else ""
    if not table.rows:
        return f"<p>None.</p>{note}"

    def data(cell: str) -> str:
        kind = ' class="long"' if len(cell) > LONG_CELL else ""
        return f"<td{kind}>{html.escape(cell)}</td>"

    def row(cells: Iterable[str]) -> str:
        return f"<tr>{''.join(cells)}</tr>"

    body = "\n".join(row(map(data, cells)) for cells in table.rows)
    head = f"<thead>{row(f'<th>{html.escape(name)}</th>' for name in table.columns)}</thead>"
    return f'<div class="wide"><table>{head}<tbody>\n{body}\n</tbody></table></div>{note}'


def _figure_html(plot: _Plot, prefix: str) -> str:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    width, height = _SIZE_IN
    with mpl.rc_context(_DRAWN):
        figure = Figure(figsize=(width, max(height, 1.2 + 0.32 * plot.rows)), layout="constrained")
        figure.patch.set_alpha(0.0)
        axes = figure.subplots()
        axes.patch.set_alpha(0.0)
        plot.paint(axes)
        buffer = io.StringIO()
        # No date in the file, so that the same data give the same bytes.
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    drawn = _inline_svg(buffer.getvalue(), plot.alt, prefix)
    return f"<figure>{drawn}<figcaption>{html.escape(plot.caption)}</figcaption></figure>"


def _inline_svg(text: str, alt: str, prefix: str) -> str:
    """A drawing as a part of a page: its own head goes, its colours follow the page, and its ids
    begin with a prefix, so that no two of the page are equal."""
    svg = text[text.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    for colour, of_page in _COLOURS.items():
        svg = svg.replace(colour, of_page)
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}", svg)
    svg = re.sub(r'^<svg ([^>]*?)width="[^"]*"', r"<svg \1", svg, count=1)
    svg = re.sub(r'^(<svg [^>]*?)height="[^"]*"', r"\1", svg, count=1)
    label = html.escape(alt, quote=True)
    return svg.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1).strip()


def _plot_best(state: LoopState) -> _Plot | None:
    found = best_so_far(state)
    known = [(run, time) for run, time in enumerate(found, start=1) if time is not None]
    if not known:
        return None

    from matplotlib.ticker import MaxNLocator

    def paint(axes: Axes) -> None:
        for purpose, marker in (("start", "D"), ("branch", "o"), ("ablation", "x")):
            points = [
                (run, one.time_us)
                for run, one in enumerate(state.timed, start=1)
                if one.purpose == purpose and one.time_us is not None
            ]
            if points:
                axes.plot(
                    *zip(*points, strict=True),
                    marker,
                    color=_SOFT,
                    markerfacecolor="none",
                    markersize=4,
                    label=purpose,
                )
        runs, times = zip(*known, strict=True)
        axes.step(runs, times, where="post", color=_INK, linewidth=1.8, label="best so far")
        slowest = max(one.time_us for one in state.timed if one.time_us is not None)
        axes.set_ylim(0, 1.08 * slowest)  # with room for a whole marker
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel("runs")
        axes.set_ylabel("time (us)")
        axes.legend(fontsize=8)

    alt = (
        f"Best so far against runs: from {known[0][1]:.1f} to {known[-1][1]:.1f} us in "
        f"{len(found)} runs."
    )
    return _Plot(paint, alt, f"Best so far against runs. Times are {state.on}.")


def _plot_budgets(state: LoopState) -> _Plot | None:
    entries = [(one.round, one.budget) for one in state.roofline_history if one.budget is not None]
    if not entries:
        return None

    def paint(axes: Axes) -> None:
        places = range(len(entries))
        below = [0] * len(entries)
        for axis, hatch in zip(METHOD_AXES, ("", "///", "..."), strict=True):
            slots = [budget.of(axis) for _, budget in entries]
            face = _SOFT if not hatch else "none"
            axes.bar(
                places, slots, bottom=below, label=axis, hatch=hatch, facecolor=face, edgecolor=_INK
            )
            below = [low + more for low, more in zip(below, slots, strict=True)]
        axes.set_xticks(places, [str(number) for number, _ in entries])
        axes.set_yticks(range(max(below, default=0) + 1))
        axes.set_ylim(0, max(below, default=0) + 1.2)
        axes.set_xlabel("round")
        axes.set_ylabel("method slots")
        axes.legend(fontsize=8, ncols=3, loc="upper left")

    said = "; ".join(
        f"round {number} " + "/".join(str(budget.of(axis)) for axis in METHOD_AXES)
        for number, budget in entries
    )
    alt = f"Method slots of {', '.join(METHOD_AXES)} by round: {said}."
    return _Plot(paint, alt, "Budget by round.")


def _plot_attributions(state: LoopState) -> _Plot | None:
    found = list(attributed(state))
    if not found:
        return None

    def paint(axes: Axes) -> None:
        for row, (_, one) in enumerate(found):
            ends = [100 * one.low, 100 * one.high]
            axes.plot(ends, [row, row], color=_INK, linewidth=2)
            decided = one.decided is not None
            face = _INK if decided else "none"
            axes.plot(
                100 * one.relative, row, "o", markerfacecolor=face, markeredgecolor=_INK, ms=6
            )
            axes.plot([100 * one.threshold] * 2, [row - 0.4, row + 0.4], ":", color=_SOFT)
        axes.axvline(0, color=_FAINT)
        labels = [f"{kept.round}: {one.method}" for kept, one in found]
        axes.set_yticks(range(len(found)), labels, fontsize=8)
        axes.set_ylim(len(found) - 0.4, -0.6)
        axes.set_xlabel("longer without it (%)")

    said = "; ".join(
        f"{one.method} {one.relative:+.1%} ({one.low:+.1%} to {one.high:+.1%})" for _, one in found
    )
    caption = "Attribution with 95 % intervals, by round and method. Dotted: the threshold. "
    caption += "Hollow: undecided."
    return _Plot(paint, f"Attribution: {said}.", caption, len(found))


def _plot_frontier(state: LoopState) -> _Plot | None:
    if not state.frontier:
        return None
    others = tuple(dict.fromkeys(name for one in state.frontier for name in one.others_us))
    shown = sorted(state.frontier, key=lambda one: one.time_us)[:MOST_FRONTIER_ROWS]

    def paint(axes: Axes) -> None:
        for place, (name, marker) in enumerate(
            zip((str(state.workload), *others), "osD^v", strict=False)
        ):
            times = [one.others_us.get(name) if place else one.time_us for one in shown]
            fastest = min((time for time in times if time is not None), default=None)
            points = [
                (time / fastest, row)
                for row, time in enumerate(times)
                if time is not None and fastest
            ]
            if points:
                axes.plot(
                    *zip(*points, strict=True),
                    marker,
                    color=_INK,
                    markerfacecolor="none" if place else _INK,
                    markersize=5,
                    label=name,
                )
        labels = [f"{one.iteration}.{one.branch}" for one in shown]
        axes.set_yticks(range(len(shown)), labels, fontsize=8)
        axes.set_ylim(len(shown) - 0.4, -0.6)
        axes.set_xlabel("time over the fastest of the frontier there")
        axes.set_ylabel("round.branch")
        axes.legend(fontsize=8)

    first = shown[0]
    alt = (
        f"The frontier's {len(shown)} fastest; the first is branch {first.branch} of round "
        f"{first.iteration} with {first.time_us:.1f} us."
    )
    caption = "The frontier, at the loop's workload and at others: a loser here may win there."
    return _Plot(paint, alt, caption, len(shown))
