"""The summary of a loop as one HTML file: nothing is fetched, and no script runs."""

from __future__ import annotations

import difflib
import html
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .attribution import UNBOUNDED, say_attributed_interval
from .method import METHOD_AXES
from .state import LoopState
from .summary import MOST_FRONTIER_ROWS, SummaryTable, attributed, best_so_far, summarise, title_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LONG_CELL = 24  # characters from which on a cell does not become as narrow as its longest word
_INK, _FAINT, _SOFT = "#010203", "#040506", "#070809"
"""Stand for the page's colours in a drawing, which follow the reader's choice of light or dark."""
_COLOURS = {_INK: "var(--ink)", _FAINT: "var(--line)", _SOFT: "var(--soft)"}
_STYLE_SHEET = """
:root { color-scheme: light dark; --ink: #1a1a1a; --page: #ffffff; --line: #d0d0d0;
  --soft: #8a8a8a; --more: #0a5c1e; --less: #a11414; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e8e8; --page: #16181c; --line: #43474e; --soft: #9a9fa8;
    --more: #7ee08f; --less: #ff9a94; } }
body { color: var(--ink); background: var(--page); font: 16px/1.45 system-ui, sans-serif;
  max-width: 60rem; margin: 0 auto; padding: 0.75rem; overflow-wrap: anywhere; }
h1 { font-size: 1.3rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
figure { margin: 1rem 0; max-width: 40rem; } svg { width: 100%; height: auto; display: block; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: 0.85rem; }
th, td { text-align: left; vertical-align: top; padding: 0.25rem 0.5rem;
  border-bottom: 1px solid var(--line); overflow-wrap: normal; }
td.long { min-width: 14rem; }
summary { cursor: pointer; padding: 0.5rem 0; }
pre { overflow-x: auto; max-height: 70vh; font-size: 0.8rem; line-height: 1.35; margin: 0;
  padding: 0.5rem; border: 1px solid var(--line); overflow-wrap: normal; tab-size: 2; }
ins, del { text-decoration: none; } ins { color: var(--more); } del { color: var(--less); }
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


def summary_html(state: LoopState, sources: tuple[str, str] | None = None) -> str:
    """The summary as one HTML file: nothing is fetched, and no script runs. ``sources`` are the
    texts of the kernel where the loop began and of its champion."""
    title = html.escape(title_of(state))
    parts = [
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{title}</title>\n<style>\n{_STYLE_SHEET}\n</style>\n</head>\n<body>",
        f"<h1>{title}</h1>",
    ]
    drawn = 0
    for table in summarise(state):
        parts.append(f"<h2>{html.escape(table.title)}</h2>")
        figure = _figure_html(state, table.title, f"plot{drawn + 1}-")
        drawn += bool(figure)
        parts += [figure] if figure else []
        parts.append(_table_html(table))
    if sources is not None:
        parts += ["<h2>Source</h2>", *_sources_html(*sources)]
    return "\n".join([*parts, "</body>\n</html>\n"])


def _sources_html(start: str, champion: str) -> Iterator[str]:
    """What changed from the start to the champion, and the champion whole, both folded."""
    lines = start.splitlines(), champion.splitlines()
    names = {"+": "ins", "-": "del"}
    told = []
    for line in list(difflib.unified_diff(*lines, "start", "champion", lineterm="", n=2)):
        name, text = names.get(line[:1], ""), html.escape(line)
        told.append(f"<{name}>{text}</{name}>" if name else text)
    changed = "\n".join(told) or "Nothing: the champion is the start."
    for title, text in (
        ("What changed from the start to the champion", changed),
        ("The champion, which compiles alone", html.escape(champion)),
    ):
        pre = f'<pre tabindex="0" role="region" aria-label="{title}">\n{text}\n</pre>'
        yield f"<details><summary>{title}</summary>{pre}</details>"


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


def _figure_html(state: LoopState, title: str, prefix: str) -> str:
    """The plot of a part of the summary; empty where it has none, or nothing to show."""
    if title not in _PLOTS:
        return ""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(_DRAWN):
        figure = Figure(figsize=_SIZE_IN, layout="constrained")
        figure.patch.set_alpha(0.0)
        axes = figure.subplots()
        axes.patch.set_alpha(0.0)
        told = _PLOTS[title](axes, state)
        if told is None:
            return ""
        alt, caption = told
        rows = len(axes.get_yticklabels()) if axes.yaxis_inverted() else 0
        figure.set_size_inches(_SIZE_IN[0], max(_SIZE_IN[1], 1.2 + 0.32 * rows))
        buffer = io.StringIO()
        # No date in the file, so that the same data give the same bytes.
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    drawn = _inline_svg(buffer.getvalue(), alt, prefix)
    return f"<figure>{drawn}<figcaption>{html.escape(caption)}</figcaption></figure>"


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


Plotted = tuple[str, str]
"""What a reader who cannot see a plot would want to know, and what stands below it."""


def _plot_best(axes: Axes, state: LoopState) -> Plotted | None:
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, ScalarFormatter

    found = best_so_far(state)
    known = [(run, time) for run, time in enumerate(found, start=1) if time is not None]
    if not known:
        return None
    timed = [(n, run.purpose, run.time_us) for n, run in enumerate(state.timed, start=1)]
    for purpose, marker in (("start", "D"), ("branch", "o"), ("ablation", "x")):
        points = [(n, us) for n, why, us in timed if why == purpose and us is not None]
        _mark(axes, points, marker, label=purpose, color=_SOFT, markerfacecolor="none", ms=4)
    runs, times = zip(*known, strict=True)
    axes.step(runs, times, where="post", color=_INK, linewidth=1.8, label="best so far")
    every = [us for _, _, us in timed if us is not None]
    axes.set_yscale("log")
    axes.set_ylim(min(every) / 1.08, 1.08 * max(every))  # a whole marker
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
    axes.yaxis.set_major_formatter(ScalarFormatter())
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("runs")
    axes.set_ylabel("time (us)")
    axes.legend(fontsize=8)
    alt = f"from {known[0][1]:.1f} to {known[-1][1]:.1f} us in {len(found)} runs."
    caption = "Best so far against runs"
    return f"{caption}: {alt}", f"{caption}. Times are {state.on}."


def _mark(axes: Axes, points: Sequence[tuple[float, float]], marker: str, **how: Any) -> None:
    """Markers at some points, if there are any."""
    if points:
        axes.plot(*zip(*points, strict=True), marker, **how)


def _plot_budgets(axes: Axes, state: LoopState) -> Plotted | None:
    entries = [(one.round, one.budget) for one in state.roofline_history if one.budget is not None]
    if not entries:
        return None
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
    axes.set_yticks(range(max(below) + 1))
    axes.set_ylim(0, max(below) + 1.2)
    axes.set_xlabel("round")
    axes.set_ylabel("method slots")
    axes.legend(fontsize=8, ncols=3, loc="upper left")
    said = "; ".join(
        f"round {number} " + "/".join(str(budget.of(axis)) for axis in METHOD_AXES)
        for number, budget in entries
    )
    return f"Method slots of {', '.join(METHOD_AXES)} by round: {said}.", "Budget by round."


def _rows(axes: Axes, labels: Sequence[str]) -> None:
    """A row each, from the top."""
    axes.set_yticks(range(len(labels)), labels, fontsize=8)
    axes.set_ylim(len(labels) - 0.4, -0.6)


def _plot_attributions(axes: Axes, state: LoopState) -> Plotted | None:
    from matplotlib.ticker import ScalarFormatter

    found = list(attributed(state))
    if not found:
        return None
    for row, (_, one) in enumerate(found):
        if one.high < UNBOUNDED:
            axes.plot([100 * one.low, 100 * one.high], [row, row], color=_INK, linewidth=2)
        face = "none" if one.decided is None else _INK
        axes.plot(100 * one.relative, row, "o", markerfacecolor=face, markeredgecolor=_INK, ms=6)
        axes.plot([100 * one.threshold] * 2, [row - 0.4, row + 0.4], ":", color=_SOFT)
    axes.axvline(0, color=_FAINT)
    _rows(axes, [f"{kept.round}: {one.method}" for kept, one in found])
    # Linear up to the threshold, so that a large effect does not flatten all others.
    axes.set_xscale("symlog", linthresh=100 * max(one.threshold for _, one in found))
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.set_xlabel("longer without it (%)")
    said = "; ".join(
        f"{one.method} {one.relative:+.1%} ({say_attributed_interval(one)})" for _, one in found
    )
    caption = "Attribution with 95 % intervals, by round and method. Dotted: the threshold. "
    return f"Attribution: {said}.", caption + "Hollow: undecided."


def _plot_frontier(axes: Axes, state: LoopState) -> Plotted | None:
    if not state.frontier:
        return None
    others = tuple(dict.fromkeys(name for one in state.frontier for name in one.others_us))
    shown = sorted(state.frontier, key=lambda one: one.time_us)[:MOST_FRONTIER_ROWS]
    names = zip((str(state.workload), *others), "osD^v", strict=False)
    for place, (name, marker) in enumerate(names):
        times = [one.others_us.get(name) if place else one.time_us for one in shown]
        fastest = min((time for time in times if time is not None), default=0.0)
        points = [
            (time / fastest, row) for row, time in enumerate(times) if time is not None and fastest
        ]
        face = "none" if place else _INK
        _mark(axes, points, marker, label=name, color=_INK, markerfacecolor=face, ms=5)
    _rows(axes, [f"{one.iteration}.{one.branch}" for one in shown])
    axes.set_xlabel("time over the fastest of the frontier there")
    axes.set_ylabel("round.branch")
    axes.legend(fontsize=8)
    first = shown[0]
    alt = (
        f"The frontier's {len(shown)} fastest; the first is branch {first.branch} of round "
        f"{first.iteration} with {first.time_us:.1f} us."
    )
    return alt, "The frontier, at the loop's workload and at others: a loser here may win there."


_PLOTS: Mapping[str, Callable[[Axes, LoopState], Plotted | None]] = {
    "Result": _plot_best,
    "Migration of the bottleneck": _plot_budgets,
    "Attribution": _plot_attributions,
    "Frontier": _plot_frontier,
}
"""By the title of the table that each stands above."""
