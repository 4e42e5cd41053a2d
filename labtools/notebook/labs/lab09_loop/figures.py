"""The searches on a recorded grid: in a figure the best so far against the runs, and in a table
how soon each comes near."""

from __future__ import annotations

import math
from collections.abc import Sequence
from textwrap import fill
from typing import TYPE_CHECKING

from labtools.optimize.searches import MOST_RUNS, NEAR_FACTORS, Searches, best_after_runs
from labtools.problem.text import how_many

from ...figures import LINES, SHADES, draw_picture, line_look
from ...tables import Shown, show_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

EXCESS_SHOWN = (0.005, 2.0)
"""The picture's lower and upper edge, over the fastest point; a curve may leave it on both."""
EXCESS_TICKS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
RUN_TICKS = (1, 2, 5, 10, 20, 50, 100)
MARK_EVERY = 0.09
"""Of the picture's width: how far apart a curve's marks are."""
YOU = "you"
BestAfter = Sequence[float | None]
"""Best time after 1, 2, ... runs, microseconds; None where there is none yet."""


def searches_figure(searches: Searches, you: Sequence[float] | None = None) -> Shown:
    """The best time so far against the runs, for each search the median of its seeds.

    The band is the middle half of the seeds of the loop. ``you`` are times of a reader's runs in
    their order, microseconds; ablations are runs as well.
    """
    curves: dict[str, BestAfter] = {
        f"{one.title} ({how_many(one.seeds, 'seed')})": one.middle_us for one in searches.searches
    }
    if you:
        curves[YOU] = [float(us) for us in best_after_runs(you, min(len(you), MOST_RUNS))]
    loop = next((one for one in searches.searches if one.name == "loop"), None)

    def paint(axes: Axes) -> None:
        if loop is not None:
            low, high = (_excess(row, searches.best_us) for row in (loop.low_us, loop.high_us))
            runs = range(1, len(low) + 1)
            axes.fill_between(runs, low, high, step="post", color=SHADES[3], linewidth=0)
        for number, (label, curve) in enumerate(curves.items()):
            heights = _excess(curve, searches.best_us)
            drawn = any(map(math.isfinite, heights))  # matplotlib cannot place marks on nothing
            look = {**line_look(number), "linewidth": 1.6, "markersize": 5}
            if label == YOU:
                look |= {"color": SHADES[0], "linewidth": 3, "markersize": 8}
            # Each curve's marks begin elsewhere, or two curves on each other look like one.
            every = (0.012 * number, MARK_EVERY) if drawn else None
            runs = range(1, len(curve) + 1)
            axes.step(runs, heights, where="post", label=fill(label, 46), markevery=every, **look)
        axes.axhline(NEAR_FACTORS[0] - 1, color=SHADES[0], linestyle=LINES[3], linewidth=1)
        axes.set(xscale="log", yscale="log", xlabel="candidates timed")
        axes.set_xticks(RUN_TICKS, [str(count) for count in RUN_TICKS])
        axes.set_yticks(EXCESS_TICKS, [f"{100 * excess:g} %" for excess in EXCESS_TICKS])
        axes.minorticks_off()
        axes.set(xlim=(1, MOST_RUNS), ylim=EXCESS_SHOWN)
        axes.set_ylabel("best so far, over the fastest point")
        axes.legend(loc="upper left", bbox_to_anchor=(-0.2, -0.16), fontsize=9)

    told = (f"{label}: {_say(curve, searches.best_us)}" for label, curve in curves.items())
    alt = (
        "Curves that fall with the number of candidates timed: how far the best time so far is "
        f"over the fastest point of the grid. {'; '.join(told)}."
    )
    caption = (
        f"Searches on the {searches.points:,} recorded points of {searches.rung} on "
        f"{searches.gpu} at {searches.workload}: median over the seeds, for the loop with the "
        f"middle half of them. The fastest point takes {searches.best_us:.2f} us. Lower is better"
    )
    return draw_picture(paint, alt, caption, "recorded", size=(4.9, 5.2))


def searches_table(searches: Searches, workload: str) -> Shown:
    """How soon each search comes near the fastest point of the grid at a workload. A search that
    leaves nothing to chance has one seed, and says yes or no."""
    within = [f"{factor - 1:.0%}" for factor in NEAR_FACTORS]
    heads = [text for share in within for text in (f"runs to {share}", f"seeds within {share}")]
    rows = []
    there = searches.at(workload)
    for one in there.searches:
        cells: list[str] = []
        for near in one.near:
            middle = near.median_runs
            cells.append("not in the median" if middle is None else f"{middle:g}")
            single = "yes" if near.reached else "no"
            cells.append(single if one.seeds == 1 else f"{near.reached} of {one.seeds}")
        end = _excess(one.middle_us, there.best_us)[-1]
        rows.append((one.title, *cells, "no time" if math.isnan(end) else f"{100 * end:.1f}"))
    columns = ("search", *heads, "median at the end, % over the fastest")
    points = f"all {searches.points:,} recorded points of {searches.rung} on {searches.gpu}"
    note = f"{workload}; of {points}"
    return show_table(columns, rows, word="recorded", note=note)


def _excess(curve: BestAfter, best_us: float) -> list[float]:
    """Over the fastest; no number where there is no time, so that nothing is drawn."""
    return [math.nan if us is None else max(us / best_us - 1, 0.0) for us in curve]


def _say(curve: BestAfter, best_us: float) -> str:
    """A curve in words: where it is after a few runs."""
    excess = _excess(curve, best_us)
    counts = sorted({len(curve), *(count for count in RUN_TICKS if count <= len(curve))})
    known = [(count, excess[count - 1]) for count in counts if math.isfinite(excess[count - 1])]
    return ", ".join(f"{part:.1%} after {count}" for count, part in known) or "no time"
