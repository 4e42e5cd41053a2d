"""What the pages call to show results; every number comes with its provenance word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from labtools.record import Record
from labtools.record.prediction import Prediction

from .check import show_check
from .diff import RungDiff, diff_rungs, show_diff
from .figures import GREYS, HATCHES, draw_picture
from .provenance import Shown, badge, check_word, make_note, make_table
from .ratios import (
    Speedup,
    describe_record,
    ratio_table,
    read_ratio,
    recorded_speedup,
    show_against,
)
from .records import find_records, show_records

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "Bar",
    "RungDiff",
    "Shown",
    "Speedup",
    "badge",
    "bar_of_record",
    "describe_record",
    "diff_rungs",
    "find_records",
    "make_note",
    "make_table",
    "recorded_speedup",
    "show_against",
    "show_bars",
    "show_check",
    "show_comparison",
    "show_diff",
    "show_records",
]


def show_comparison(
    *,
    predicted: Prediction | Any = None,
    measured: Any = None,
    recorded: Any = None,
    forecast: Any = None,
    claimed: Any = None,
    baseline: str = "baseline",
    candidate: str = "candidate",
    what: str = "",
) -> Shown:
    """Predicted, measured, recorded and forecast of one comparison, one below the other.

    Args:
        predicted: a journal's prediction or a ratio.
        measured: anything that `read_ratio` understands; None says that nothing was measured.
        recorded: the same.
        forecast: the same; its row is left out when None.
        claimed: the same; then only what is there is shown.
        baseline: name of the left side.
        candidate: name of the right side.
        what: what was compared, in words.

    Raises:
        LabError: something that holds no ratio.
    """
    guess = predicted if isinstance(predicted, Prediction) else read_ratio(predicted, "forecast")
    rows: list[tuple[str, Prediction | Speedup | None, str]] = [
        ("predicted", guess, "no prediction"),
        ("measured", read_ratio(measured, None, what), "not measured here"),
        ("recorded", read_ratio(recorded, "recorded", what), "no record yet"),
        ("forecast", read_ratio(forecast, "forecast"), ""),
        ("claimed", read_ratio(claimed, "claimed", what), ""),
    ]
    if claimed is not None:
        rows = [row for row in rows if row[1] is not None]
    else:
        rows = [row for row in rows if row[1] is not None or row[2]]
    return ratio_table(baseline, candidate, rows, f"{candidate} against {baseline}")


@dataclass(frozen=True)
class Bar:
    """One bar of a figure.

    Args:
        label: name under it.
        time_us: its length in microseconds.
        source: provenance word.
        low_us: lower end of its spread, where known.
        high_us: upper end, where known.
    """

    label: str
    time_us: float
    source: str
    low_us: float | None = None
    high_us: float | None = None


def bar_of_record(record: Record, label: str | None = None) -> Bar:
    """A record's median with the middle half of its samples."""
    from labtools.record import summary

    spread = summary(record)
    return Bar(label or record.name, spread.median_us, "recorded", *spread.iqr_us)


def show_bars(
    bars: Sequence[Bar], title: str, *, floor_us: float | None = None, where: str = ""
) -> Shown:
    """Times as horizontal bars, longest at its full length, each with its number and word.

    Args:
        bars: what to draw, top to bottom.
        title: what the picture shows.
        floor_us: a computed lower bound, drawn as a line.
        where: GPU and date of the measured bars.
    """
    if not bars:
        return make_note(f"{title}: there is nothing to draw, because there is no record yet.")
    words = [check_word(bar.source) for bar in bars]
    hatch = {word: HATCHES[i % len(HATCHES)] for i, word in enumerate(dict.fromkeys(words))}

    def paint(axes: Axes) -> None:
        longest = max(bar.time_us for bar in bars)
        for row, bar in enumerate(bars):
            axes.barh(row, bar.time_us, color=GREYS[2], edgecolor=GREYS[0], hatch=hatch[bar.source])
            if bar.low_us is not None and bar.high_us is not None:
                axes.plot([bar.low_us, bar.high_us], [row, row], color=GREYS[0], linewidth=2)
            text = f"{bar.time_us:.1f} us {bar.source}"
            axes.text(bar.time_us + 0.01 * longest, row, text, va="center", fontsize=9)
        axes.set_yticks(range(len(bars)), [bar.label for bar in bars])
        axes.invert_yaxis()
        axes.set_xlim(0, longest * 1.3)
        axes.set_xlabel("time (us)")
        axes.set_title(title)
        axes.grid(axis="y", visible=False)
        if floor_us is not None:
            axes.axvline(floor_us, color=GREYS[0], linestyle="--")
            axes.annotate(
                f"floor {floor_us:.1f} us computed",
                (floor_us, len(bars) - 0.5),
                xytext=(4, 0),
                textcoords="offset points",
                fontsize=9,
                va="top",
            )
            axes.set_ylim(len(bars), -0.6)

    alt = f"{title}. " + "; ".join(
        f"{bar.label} {bar.time_us:.1f} us ({bar.source})" for bar in bars
    )
    if floor_us is not None:
        alt += f"; floor {floor_us:.1f} us (computed)"
    caption = f"{title}, lower is faster" + (f"; {where}" if where else "")
    return draw_picture(paint, alt, caption, words[0], size=(7.2, 0.9 + 0.45 * len(bars)))


def where_of(records: Sequence[Record]) -> str:
    """GPUs and dates of some records, each once."""
    return "; ".join(dict.fromkeys(describe_record(record) for record in records))
