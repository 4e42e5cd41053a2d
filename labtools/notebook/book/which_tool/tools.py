"""Five tools: the question that calls for each, what it costs, what it cannot see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from labtools.record import Record, RecordedTime, describe_records
from labtools.record.bound import stall_shares

from ...figures import ORANGE, SHADES, Axes, draw_arrow, draw_box, draw_picture, draw_sketch
from ...tables import Shown, make_table


@dataclass(frozen=True)
class Tool:
    """One tool, in the order in which its question is asked."""

    name: str
    doubt: str  # while the answer is no, this tool is the next; two lines in the drawing
    answers: str  # what it tells
    costs: str  # in time, and in what it disturbs
    blind: str  # what it cannot see
    needs_gpu: bool


FIVE_TOOLS = (
    Tool(
        *("forecast", "Do you know what time\nto expect?"),
        "a time, and the limit behind it",
        "seconds, and nothing is disturbed",
        "what its model leaves out: other kernels, a busy machine, code outside its family",
        needs_gpu=False,
    ),
    Tool(
        *("compute-sanitizer", "Is every access allowed\nand free of races?"),
        "the instruction, address and thread of a bad access; races; barriers that are not met",
        "every access is checked, so the run is slow and the problem small; no time means anything",
        "a wrong formula; what the small problem does not reach; races outside shared memory",
        needs_gpu=True,
    ),
    Tool(
        *("nsys", "Is the GPU inside your\nkernel all the time?"),
        "what runs when, on the CPU and the GPU, and the gaps",
        "a little for each traced call; many short calls look longer apart",
        "anything inside a kernel",
        needs_gpu=True,
    ),
    Tool(
        *("ncu", "Do you know what its\nwarps wait for?"),
        "what the hardware counted inside one kernel",
        "the kernel is run again for each group of counters, alone, its caches emptied",
        "gaps between kernels; the order of events, because counters are averages",
        needs_gpu=True,
    ),
    Tool(
        *("SASS", "Did the compiler do\nwhat you wrote?"),
        "the instructions, their order, and where a warp must wait",
        "a compilation and your own time; nothing runs",
        "how long a load takes; which blocks run together; branches that data decide",
        needs_gpu=False,
    ),
)


def which_tool_drawing() -> Shown:
    """The questions from top to bottom, and the tool for the first that you must answer no."""

    def paint(axes: Axes) -> None:
        for row, tool in enumerate(FIVE_TOOLS):
            y = 1.55 * row
            draw_box(axes, (0, y), (4.6, 1.0), tool.doubt, shade=SHADES[3], fontsize=9)
            draw_arrow(axes, (4.6, y + 0.5), (6.1, y + 0.5))
            axes.text(5.3, y + 0.32, "no", ha="center", va="center", fontsize=9)
            shade = SHADES[0] if tool.needs_gpu else SHADES[2]
            draw_box(axes, (6.1, y), (3.4, 1.0), tool.name, shade=shade, fontsize=10)
            draw_arrow(axes, (2.3, y + 1.0), (2.3, y + 1.55))
            axes.text(2.5, y + 1.29, "yes", va="center", fontsize=9)
        y = 1.55 * len(FIVE_TOOLS)
        draw_box(axes, (0, y), (4.6, 0.7), "Change one thing", fontsize=9)
        axes.text(6.1, y + 0.2, "dark: needs a GPU", va="center", fontsize=9)
        axes.text(6.1, y + 0.6, "light: a laptop is enough", va="center", fontsize=9)

    asked = "; ".join(
        f"{' '.join(one.doubt.split())} If not: {one.name}"
        f"{', which needs a GPU' if one.needs_gpu else ''}"
        for one in FIVE_TOOLS
    )
    return draw_sketch(
        paint,
        f"Five questions from top to bottom, each with the tool that answers it. {asked}. "
        "When all are answered, change one thing and begin again.",
        "Begin at the top, and stop at the first question that you answer with no",
        extent=(9.6, 8.5),
        size=(4.9, 4.3),
    )


def tool_table() -> Shown:
    """The same tools, in words."""
    rows = [(one.name, one.answers, one.costs, one.blind) for one in FIVE_TOOLS]
    columns = ("tool", "what it tells", "what it costs", "what it cannot see")
    return make_table(columns, rows, "")


def call_drawing(first: RecordedTime, moved: RecordedTime, graph: RecordedTime) -> Shown:
    """One call of a kernel that allocates, taken apart by three recorded times in microseconds:
    as first tried, with the allocation moved out, and the same from a graph."""
    parts = {
        "kernels, one after the other": float(graph),
        "launched call by call": float(moved) - float(graph),
        "memory allocated in the call": float(first) - float(moved),
    }

    def paint(axes: Axes) -> None:
        left = 0.0
        for (name, us), shade in zip(parts.items(), (SHADES[0], SHADES[2], ORANGE), strict=True):
            axes.barh(0, us, left=left, height=0.5, color=shade, label=f"{name}: {us:.1f} us")
            left += us
        axes.set(yticks=[], xlabel="time of one call (us)", ylim=(-0.5, 0.5))
        axes.grid(axis="y", visible=False)
        axes.legend(fontsize=9, loc="lower left", bbox_to_anchor=(0.0, 1.0))

    alt = "One bar. " + "; ".join(f"{name} {us:.1f} us" for name, us in parts.items()) + "."
    caption = "Differences of three recorded times, not a capture of nsys: the order is not known"
    return draw_picture(paint, alt, caption, "computed", size=(4.9, 2.1))


def waits_drawing(counted: Mapping[str, Record]) -> Shown:
    """Shares of a warp's time by what it waits for, of records with counters, a bar a label."""
    shares = {
        label: stall_shares(record.counters.values)
        for label, record in counted.items()
        if record.counters
    }
    named = ("long_scoreboard", "short_scoreboard", "wait", "selected")
    words = ("a load", "shared memory, shuffle, exp", "a fixed time", "none: it issues")
    parts = {label: [*(share.get(one, 0.0) for one in named)] for label, share in shares.items()}
    parts = {label: [*found, 1 - sum(found)] for label, found in parts.items()}

    def paint(axes: Axes) -> None:
        shades = (SHADES[0], SHADES[2], SHADES[3], ORANGE, "white")
        for n, (name, shade) in enumerate(zip((*words, "all else"), shades, strict=True)):
            values = [100 * found[n] for found in parts.values()]
            left = [100 * sum(found[:n]) for found in parts.values()]
            look: dict[str, Any] = {
                "color": shade,
                "edgecolor": SHADES[0],
                "linewidth": 0.6,
                "height": 0.6,
            }
            axes.barh(list(parts), values, left=left, label=name, **look)
        axes.invert_yaxis()
        axes.set(xlabel="% of a warp's time", xlim=(0, 100))
        axes.grid(axis="y", visible=False)
        axes.legend(fontsize=8, loc="lower left", bbox_to_anchor=(-0.1, 1.0), ncols=3)

    told = "; ".join(
        f"{label}: "
        + ", ".join(
            f"{name} {share:.0%}" for name, share in zip((*words, "all else"), found, strict=True)
        )
        for label, found in parts.items()
    )
    alt = f"Stacked bars of what a warp waits for. {told}."
    caption = f"What a warp waits for, by ncu; {describe_records(list(counted.values()))}"
    return draw_picture(paint, alt, caption, "recorded", size=(4.9, 2.2))


def profiled_time(record: Record) -> tuple[float, float] | None:
    """Time of one call without the profiler and under it, microseconds; None where the record has
    no counters."""
    under = record.counters.values.get("duration_us") if record.counters else None
    return None if under is None else (record.median_us, under)
