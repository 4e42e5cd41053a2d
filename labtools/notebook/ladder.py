"""What the ladder's pages show together: where it stands, and times by unrolling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from labtools.predict import DEFAULT_GPU, sheet_floor_us
from labtools.problem import HEADLINE, Problem, list_rungs, load_rung
from labtools.record import (
    Record,
    RecordStore,
    Tried,
    as_variant,
    describe_records,
    fair_peers,
    freshness,
    measured_together,
    pair,
    say_timed,
)
from labtools.record.headline import at_default_knobs
from labtools.record.prediction import say_ratio

from .figures import BLUE, CREAM, LINES, MARKERS, ORANGE, SHADES, Axes, draw_picture, line_look
from .ratios import read_ratio
from .records import NO_RECORD, GpuRecords
from .tables import Shown, make_note, say_time

PARENT_AT: dict[str, Tried] = {"r01_online_softmax": ("r01", {"prefetch_v": 1})}
"""The knobs at which a rung's child is compared with it, where they are not its defaults."""


def plot_ladder(
    page: str = "",
    *,
    after: bool = False,
    workload: Problem = HEADLINE,
    store: RecordStore | None = None,
) -> Shown:
    """Where a rung's page stands: the times so far beside the fastest fair library and the floor of
    each cache, and what the last step gave. All times are of one campaign.

    The page's own rung is a question mark, and ``after`` the answer it is drawn. Without a page
    every rung is.
    """
    every = (store or RecordStore()).query(DEFAULT_GPU, workload=workload, latest=False)
    together = measured_together(at_default_knobs(every))
    found = {record.candidate: record for record in together if record.kind == "rung"}
    if not found:
        return make_note(NO_RECORD.format(what="the ladder", workload=workload))
    own = load_rung(page).id if page else ""
    names = [rung.id for rung in list_rungs()]
    shown = [n for n in names if n in found and (not own or n < own or (after and n == own))]
    library = next(iter(fair_peers(together)), None)
    used = [found[name] for name in shown] + ([library] if library else [])
    floors = {
        name: floor
        for name, record in found.items()
        if (name in shown or name == own)
        and (floor := sheet_floor_us(record.read_bytes, record.provenance.gpu_slug))
    }
    step = _say_step(shown[-1], every, workload) if own and shown else ""

    def paint(axes: Axes) -> None:
        axes.set_xscale("log")
        axes.set_xlim(5, 2e5)  # right of the times stand two columns
        axes.set_ylim(len(names) - 0.4, -1.3)
        axes.set_xticks([10, 100, 1000], ["10", "100", "1000 us"])
        axes.minorticks_off()
        axes.set_yticks(range(len(names)), [_short(name) for name in names])
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="y", visible=False)
        place: dict[str, Any] = {"transform": axes.get_yaxis_transform(), "va": "center"}
        for x, text in ((0.83, "us"), (1.0, "x floor")):
            axes.text(x, -0.9, text, ha="right", fontsize=9, **place)
        for row, (name, label) in enumerate(zip(names, axes.get_yticklabels(), strict=True)):
            here = name == own
            if here:
                axes.axhspan(row - 0.5, row + 0.5, color=CREAM, zorder=0)
                label.set_fontweight("bold")
            label.set_color(SHADES[0] if here or name in shown else SHADES[2])
            if name in floors:
                axes.plot([floors[name]] * 2, [row - 0.5, row + 0.5], color="black", linewidth=2)
            if name not in shown:
                if here:
                    axes.text(0.83, row, "?", ha="right", fontweight="bold", **place)
                continue
            time, colour = found[name].median_us, ORANGE if here else BLUE
            start = floors.get(name, time)
            axes.plot([start, time], [row, row], color=colour, linewidth=3 if here else 1.5)
            axes.plot(time, row, "D" if here else "o", color=colour, markersize=7 if here else 6)
            cells = [(0.83, say_time(time)), (1.0, f"{time / start:.1f}")]
            for x, text in cells[: 1 + (name in floors)]:
                weight = "bold" if here else "normal"
                axes.text(x, row, text, ha="right", fontsize=9, fontweight=weight, **place)
        at: dict[str, Any] = {"y": -0.9, "fontsize": 9, "va": "center"}
        if floors:
            floor = max(floors.values())
            axes.text(x=floor * 0.93, s=f"floor {floor:.1f}", ha="right", **at)
        if library:
            axes.axvline(library.median_us, color=SHADES[1], linestyle="--", linewidth=1.2)
            text = f"{library.name} {library.median_us:.1f}"
            axes.text(x=library.median_us * 1.08, s=text, color="#555555", **at)

    told = [
        f"{_short(name)} {say_time(found[name].median_us)} us"
        + (f" ({found[name].median_us / floors[name]:.1f}x its floor)" if name in floors else "")
        for name in shown
    ]
    told += [f"{_short(own)}, this page, is still a question"] if own and own not in shown else []
    told += [f"{library.name}, the fastest library, {library.median_us:.1f} us"] if library else []
    told += [f"floor {max(floors.values()):.1f} us"] if floors else []
    title = f"Last step: {step}" if step else "The ladder so far" if own else "The ladder"
    caption = f"{workload.short()}; {describe_records(used)}; "
    # The page began with the same picture.
    caption += "the rest as above" if after else "logarithmic. Black: the data sheet's floor"
    other = [one for one in used if say_timed(one) != say_timed(used[0])]
    new = [one for one in other if not after or one.candidate == own]
    for timed in dict.fromkeys(map(say_timed, new)):
        who = ", ".join(_short(one.candidate) for one in new if say_timed(one) == timed)
        caption += f"; {who}: {timed}"
    if own in shown and not (state := freshness(found[own])).fresh:
        caption += f"; the record of {_short(own)} is stale: {state.reason}"
    alt = f"{'; '.join(told)}."
    return draw_picture(paint, alt, f"{caption}.", "recorded", size=(4.9, 3.6), title=title)


def _short(name: str) -> str:
    return name.split("_")[0]


def _say_step(name: str, every: Sequence[Record], workload: Problem) -> str:
    """What a rung gave against its parent; nothing where the two were not timed alike."""
    parent = load_rung(name).parent
    if parent is None:
        return ""
    before = PARENT_AT.get(parent, parent)
    both = pair(every, before, name, workload)
    speedup = read_ratio(both, "recorded")
    if both is None or speedup is None or say_timed(both[0]) != say_timed(both[1]):
        return ""
    early = ", V early" if as_variant(before).knobs.get("prefetch_v") else ""
    ratio = say_ratio(speedup.value, speedup.interval)
    return f"{_short(name)} is {ratio} than {_short(parent)}{early}"


def plot_confound(store: RecordStore, workload: Problem = HEADLINE) -> Shown:
    """Recorded times of r02 and r03 by unrolling, one line a block shape and launch bounds."""
    lines: dict[tuple[str, int], list[Record]] = {}
    for name in ("r02", "r03"):
        for record in store.query(DEFAULT_GPU, name, workload, kind="rung"):
            warps = record.launches[0].block[0] // 32 if record.launches else 0
            label = f"{name}, {warps} warp{'s' if warps > 1 else ''} a block"
            lines.setdefault((label, record.knobs["launch_bounds"]), []).append(record)
    if not lines:
        return make_note(NO_RECORD.format(what="r02 and r03", workload=workload))
    labels = sorted({label for label, _ in lines})

    def paint(axes: Axes) -> None:
        for (label, bounds), records in sorted(lines.items()):
            i = labels.index(label)
            look: dict[str, Any] = {"marker": MARKERS[i], "color": SHADES[min(i, 2)]}
            axes.plot(
                [record.knobs["unroll"] for record in records],
                [record.median_us for record in records],
                label=f"{label}{'' if bounds else ', no launch bounds'}",
                linestyle=LINES[0 if bounds else 1],
                markerfacecolor=look["color"] if bounds else "white",
                **look,
            )
        axes.set_xscale("log", base=2)
        axes.set_xticks([1, 2, 4, 8], ["1", "2", "4", "8"])
        axes.set(xlabel="rows in one trip of the loop (unroll)", ylabel="us")
        axes.set_ylim(bottom=0)
        axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.02, 1.0))

    told = []
    for (label, bounds), records in sorted(lines.items()):
        records.sort(key=lambda record: record.knobs["unroll"])
        times = (f"unroll {one.knobs['unroll']} {one.median_us:.0f}" for one in records)
        told.append(f"{label}{'' if bounds else ' without launch bounds'}: {', '.join(times)}")
    every = [record for line in lines.values() for record in line]
    alt = f"Times in microseconds by unrolling. {'; '.join(told)}."
    caption = f"Workload {workload}: {describe_records(every)}."
    return draw_picture(paint, alt, caption, "recorded", size=(8.6, 4.0))


def plot_unrolling(variants: Mapping[str, Tried], workloads: Mapping[str, Problem]) -> Shown:
    """Recorded times of kernels by rows per trip: a panel for each workload, a line a kernel."""
    records, trips = GpuRecords(), (1, 4, 8)
    panels: dict[str, dict[str, list[Record]]] = {}
    for title, workload in workloads.items():
        for label, tried in variants.items():
            one = as_variant(tried)
            found = [
                records.find((one.candidate, {**one.knobs, "unroll": n}), workload) for n in trips
            ]
            if None in found:
                return make_note(NO_RECORD.format(what=label, workload=workload))
            panels.setdefault(title, {})[label] = [record for record in found if record]

    used = [record for lines in panels.values() for line in lines.values() for record in line]
    times = [record.median_us for record in used]
    reach = (0.9 * min(times), 1.1 * max(times))

    def paint(drawn: Any) -> None:
        every = np.atleast_1d(drawn)  # one panel comes alone
        for axes, (title, lines) in zip(every, panels.items(), strict=True):
            for i, (label, line) in enumerate(lines.items()):
                look = line_look(i)
                axes.plot(trips, [record.median_us for record in line], label=label, **look)
            axes.set(xscale="log", yscale="log", title=title)
            axes.minorticks_off()
            axes.set_xticks(trips, [str(n) for n in trips])
            ticks = [tick for tick in (100, 200, 300, 500, 1000, 2000, 5000) if tick < reach[1]]
            axes.set_yticks(ticks, [str(tick) for tick in ticks])
            axes.set_ylim(*reach)  # ticks may widen it
            axes.set_xlabel("rows per trip (unroll)")
        every[0].set_ylabel("us")
        every[-1].legend(fontsize=9)

    told = "; ".join(
        f"{title}: {label} "
        + ", ".join(
            f"{say_time(r.median_us)} at unroll {n}" for n, r in zip(trips, line, strict=True)
        )
        for title, lines in panels.items()
        for label, line in lines.items()
    )
    caption = f"{next(iter(workloads.values())).short()}; {describe_records(used)}; logarithmic."
    alt = f"Times in microseconds. {told}."
    return draw_picture(paint, alt, caption, "recorded", columns=len(panels), size=(4.9, 2.9))
