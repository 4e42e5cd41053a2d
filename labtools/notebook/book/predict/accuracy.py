"""Forecast beside measurement: the points of the test, what was missed and why, and sweeps."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from labtools.measure.campaign.plan import stratum_of
from labtools.measure.gpu.job import rung_candidate
from labtools.predict import Forecast, load_gpu
from labtools.predict.accuracy import (
    Accuracy,
    JudgedKernel,
    Which,
    accuracy_of,
    point_strata,
    points_of,
)
from labtools.predict.result import MEMORY_SLICE, waits_for_memory
from labtools.problem import LabError, load_rung
from labtools.record import Record, RecordStore, describe_records
from labtools.record.bound import explain_disagreement, explain_waves, nearest_term

from ...figures import SHADES, Axes, draw_picture, legend_beside, mark_look
from ...tables import Shown, badge, show_table
from ...terms import LIMITS

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#aa4499", "#7a6a00", "#1a1a1a")
"""Apart for readers who do not see all colours, and at least 3:1 on white."""
NEAR_FACTOR = 1.35
"""Two limits whose times are within this factor slow each other."""
CONTENTION = 0.05
"""From this share of a warp's cycles on, the order in which warps are served counts."""
BUSY = 0.35
"""From this share of the ceiling on, the latency of a load depends on the load of the memory."""
SIMPLE: dict[Which, str] = {
    "forecast": "the model",
    "roofline": "roofline only",
    "constant": "roofline times the best constant",
}


# ---------------------------------------------------------------------------------- the points


def stratum_of_record(record: Record) -> str | None:
    """What a record of a rung was measured for, or None."""
    if record.kind != "rung" or not record.campaign.startswith("points_"):
        return None
    label = rung_candidate(load_rung(record.name), record.knobs).label
    return stratum_of(label, record.problem)


def recorded_points(gpu: str = "h200") -> list[JudgedKernel]:
    """The shipped points, each with the forecast that was made before its run."""
    mine = [one for one in RecordStore().load() if one.provenance.gpu_slug == gpu]
    return points_of(mine, stratum_of_record, gpu)


def _need(points: Sequence[JudgedKernel]) -> None:
    if not points:
        raise LabError(
            "There is no point to draw.",
            "the records hold none with a forecast made before its run",
            "labtools record --plan points_test on the GPU itself",
        )


def _where(points: Sequence[JudgedKernel]) -> str:
    return describe_records(point.record for point in points)


def _by_stratum(points: Sequence[JudgedKernel]) -> dict[str, list[JudgedKernel]]:
    """The points of each stratum that has some, by its name in words."""
    groups = {name: [one for one in points if one.stratum == name] for name in point_strata()}
    return {name.replace("_", " "): mine for name, mine in groups.items() if mine}


def _test(points: Sequence[JudgedKernel]) -> list[JudgedKernel]:
    return [point for point in points if point.split == "test"]


_look = partial(mark_look, colours=COLOURS)


def plot_accuracy(points: Sequence[JudgedKernel], title: str = "") -> Shown:
    """Forecast against measurement on two logarithmic axes, one colour a stratum.

    Filled marks are test points, hollow ones calibration points; crosses are what a roofline
    says of the test points.
    """
    _need(points)
    shown = _test(points) or list(points)

    def paint(axes: Axes) -> None:
        times = [point.measured_us for point in points]
        ends = np.array([min(times) / 1.4, max(times) * 1.4])
        xs, floors = (
            [getattr(one, name) for one in shown] for name in ("measured_us", "roofline_us")
        )
        cross: dict[str, Any] = {"color": SHADES[2], "markersize": 3.5, "markeredgewidth": 0.8}
        axes.plot(xs, floors, "x", label="roofline only", **cross)
        axes.fill_between(ends, ends / NEAR_FACTOR, ends * NEAR_FACTOR, color="#ececec")
        axes.plot(ends, ends, color=SHADES[1], linewidth=0.8)
        for split in ("calibration", "test"):
            for number, (name, group) in enumerate(_by_stratum(points).items()):
                mine = [point for point in group if point.split == split]
                axes.plot(
                    [point.measured_us for point in mine],
                    [point.forecast_us for point in mine],
                    label=name if split == "test" else None,
                    markersize=4.5,
                    markeredgewidth=0.8,
                    **_look(number, hollow=split == "calibration"),
                )
        axes.plot([], [], "o", color=SHADES[0], markerfacecolor="white", label="calibration")
        axes.set(xscale="log", yscale="log", xlabel="recorded, us", ylabel="forecast, us")
        axes.set(xlim=tuple(ends))
        legend_beside(axes)

    told = ", ".join(
        f"{name} {_factor(accuracy_of(mine).median)}" for name, mine in _by_stratum(shown).items()
    )
    alt = (
        f"Forecast by recorded time of {len(points)} points, "
        f"{len(_test(points))} of them test points, on two logarithmic axes. The points lie along "
        f"the diagonal; median factor of the error by stratum: {told}. The roofline lies "
        f"{_factor(accuracy_of(shown, 'roofline').median)} away in the median."
    )
    caption = (
        f"Each mark is a kernel on a workload: {_where(points)}, forecast before its run. Filled: "
        f"test; hollow: calibration. The grey stripe is a factor of {NEAR_FACTOR:g} either way."
    )
    return draw_picture(paint, alt, caption, size=(7.2, 4.8), title=title)


def plot_errors(points: Sequence[JudgedKernel], title: str = "") -> Shown:
    """Forecast over measurement, a column for each stratum; calibration beside test."""
    _need(points)
    strata = _by_stratum(points)

    def paint(axes: Axes) -> None:
        for number, group in enumerate(strata.values()):
            for split, shift in (("calibration", -0.22), ("test", 0.2)):
                mine = sorted(2**point.log2_ratio for point in group if point.split == split)
                if not mine:
                    continue
                # The same data give the same picture: spread by rank, not at random.
                spread = [((place * 7) % 11 - 5) / 55 for place in range(len(mine))]
                xs = [number + shift + point for point in spread]
                look = _look(number, hollow=split == "calibration")
                axes.plot(xs, mine, markersize=3.5, markeredgewidth=0.7, **look)
                middle = float(np.median(mine))
                axes.plot([number + shift - 0.16, number + shift + 0.16], [middle] * 2, "k-")
        lines = {1.0: "-", 1.1: ":", 1 / 1.1: ":", NEAR_FACTOR: "--", 1 / NEAR_FACTOR: "--"}
        for factor, style in lines.items():
            axes.axhline(factor, color=SHADES[1], linestyle=style, linewidth=0.9)
        axes.set_yscale("log", base=2)
        ticks = (0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.4)
        axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
        axes.set_xticks(range(len(strata)), list(strata))
        axes.set_ylabel("forecast / recorded")
        axes.grid(axis="x", visible=False)

    ratios = {
        name: [2**one.log2_ratio for one in mine]
        for name, mine in _by_stratum(_test(points)).items()
    }
    told = "; ".join(f"{name} {min(mine):.2f} to {max(mine):.2f}" for name, mine in ratios.items())
    alt = f"Forecast over recorded time by stratum, test: {told}."
    caption = (
        "Left in each column the calibration points (hollow), right the test points (filled); the "
        f"bar is the median. Dotted: 10 % either way; dashed: a factor of {NEAR_FACTOR:g}."
    )
    return draw_picture(paint, alt, caption, size=(7.2, 3.6), title=title)


def _factor(log2: float) -> str:
    return f"{2**log2:.2f}x"


# ---------------------------------------------------------------------------------- tables


_HEADINGS = ("points", "median |log2 ratio|", "as a factor", "within 1.10", "within 1.35", "worst")


def _row(found: Accuracy) -> tuple[object, ...]:
    return (
        found.points,
        f"{found.median:.3f}",
        _factor(found.median),
        f"{found.within_10:.0%}",
        f"{found.within_35:.1%}",
        f"{found.worst:.2f}x",
    )


def show_accuracy(
    points: Sequence[JudgedKernel], by: Callable[[JudgedKernel], str], heading: str
) -> Shown:
    """A row of accuracy for each group of points, named below ``heading``, then one for all."""
    _need(points)
    groups: dict[str, list[JudgedKernel]] = {}
    for point in points:
        groups.setdefault(by(point), []).append(point)
    rows = [(name.replace("_", " "), *_row(accuracy_of(mine))) for name, mine in groups.items()]
    rows.append(("all", *_row(accuracy_of(points))))
    return show_table((heading, *_HEADINGS), rows, word="forecast", note=_where(points))


def show_simple(points: Sequence[JudgedKernel]) -> Shown:
    """The model beside a roofline and a constant multiple of it, on the same points."""
    _need(points)
    rows = []
    for which, name in SIMPLE.items():
        medians = {
            stratum: accuracy_of(mine, which).median
            for stratum, mine in _by_stratum(points).items()
        }
        worst = max(medians, key=lambda stratum: medians[stratum])
        rows.append((name, *_row(accuracy_of(points, which)), f"{medians[worst]:.3f} ({worst})"))
    columns = ("forecast", *_HEADINGS, "median of the worst stratum")
    return show_table(columns, rows, word="forecast", note=_where(points))


def _workload(point: JudgedKernel) -> str:
    return f"{point.workload.short()}{' warm' if point.workload.cache_state == 'warm' else ''}"


# ------------------------------------------------------------------------------- what was missed


def explain_error(point: JudgedKernel, made: Forecast) -> str:
    """What speaks for the error of a point, from a forecast's own parts and the counters."""
    launch = made.main_launch
    shares = {part.name: part.share for part in launch.stack}
    said = []
    first = max(LIMITS, key=lambda name: made.terms_us[name])
    second, factor = nearest_term(made.terms_us, first, LIMITS.keys() - {first})
    first_us, names = made.terms_us[first], (LIMITS[first].limit, LIMITS[second].limit)
    if made.time_us < NEAR_FACTOR**2 * first_us and factor < NEAR_FACTOR:
        said.append(
            f"a corner: {names[0]} alone would take {first_us:.0f} us and {names[1]} "
            f"{made.terms_us[second]:.0f} of {made.time_us:.0f}, so both slow each other"
        )
    elif made.time_us < NEAR_FACTOR * first_us:
        took = f"{first_us:.0f} of {made.time_us:.0f} us"
        said.append(f"near one limit: {names[0]} alone would take {took}")
    places = launch.occupancy.blocks_per_sm * load_gpu(made.gpu).sm_count
    if tail := explain_waves(launch.blocks / places if places else None):
        said.append(f"{launch.blocks} blocks on {places} places: {tail[0].lower()}{tail[1:]}")
    contention = shares.get("contention", 0.0)
    if point.log2_ratio > 0 and contention > CONTENTION:
        said.append(
            f"the watched warp waits {contention:.0%} of its time for other warps: blocks that "
            "compete for an SM are simulated with strict priority, and the schedulers are fairer, "
            "which makes the forecast too slow"
        )
    memory = max(filter(waits_for_memory, shares), key=shares.get, default="")  # type: ignore[arg-type]
    if memory and shares[memory] > 0.4:
        busy = max(launch.dram_share, launch.l2_share)
        level = memory.removeprefix(MEMORY_SLICE)
        said.append(
            f"{shares[memory]:.0%} of the watched warp's time is {level} latency, "
            f"{launch.load_latency_cycles:.0f} cycles a load"
        )
        if busy > BUSY:
            said[-1] += f", with the memory system at {busy:.0%}, where latency under load is steep"
    counted = point.counted.shares.get("dram") if point.counted else None
    if counted is not None and abs(counted - launch.dram_share) > 0.1:
        foretold = f"{launch.dram_share:.0%} in the forecast while the GPU is full"
        said.append(f"memory was {counted:.0%} busy by the counters, {foretold}")
    if not said:
        name, share = max(shares.items(), key=lambda item: item[1])
        said.append(f"the largest part is {name}, {share:.0%} of the watched warp's time")
    return "; ".join(said[:3])


Model = Callable[[Sequence[JudgedKernel]], Sequence[Forecast]]


def show_worst(points: Sequence[JudgedKernel], forecasts_of: Model) -> Shown:
    """A list of points, each with its error and what speaks for it."""
    items = []
    for point, made in zip(points, forecasts_of(points), strict=True):
        head = f"{2**point.log2_ratio:.2f}x  {point.label}, {_workload(point)}, {point.stratum}"
        times = f"recorded {point.measured_us:.1f} us, forecast {point.forecast_us:.1f} us"
        items.append((head, f"{times}: {explain_error(point, made)}."))
    return show_reasons(items, "forecast")


def show_bound_misses(points: Sequence[JudgedKernel], forecasts_of: Model) -> Shown:
    """Points whose forecast bound is not the one that clear counters show, with the reasons."""
    known = [one for one in points if one.counted and one.record.counters]
    items = []
    for point, made in zip(known, forecasts_of(known), strict=True):
        assert point.counted and point.record.counters
        values = point.record.counters.values
        why = explain_disagreement(point.bound, made.terms_us, point.counted, values)
        launch = made.main_launch
        if point.bound == "bandwidth" and launch.l2_share > launch.dram_share:
            why = (
                f"In the forecast it is the L2 that is full, at {launch.l2_share:.0%} of its "
                f"ceiling, and memory is at {launch.dram_share:.0%}; the rule for counters asks "
                f"for device memory alone. {why}"
            )
        items.append((f"{point.label}, {_workload(point)}", why))
    return show_reasons(items, "forecast")


def show_reasons(items: Sequence[tuple[str, str]], word: str) -> Shown:
    """A list of headings with a paragraph each."""
    if not items:
        return Shown("<p>None.</p>", "None.")
    parts = [
        f"<dt><strong>{html.escape(head)}</strong> {badge(word)}</dt>"
        f'<dd style="margin:0 0 0.7em 1em">{html.escape(text)}</dd>'
        for head, text in items
    ]
    plain = "\n".join(f"{head} [{word}]\n    {text}" for head, text in items)
    return Shown(f'<dl class="lt-reasons">{"".join(parts)}</dl>', plain)


# ---------------------------------------------------------------------------------- sweeps


def plot_sweep(
    series: Mapping[str, Mapping[Any, tuple[float, float | None]]],
    *,
    xlabel: str,
    ylabel: str,
    title: str = "",
    where: str = "",
    log: bool = True,
) -> Shown:
    """Lines of forecasts with recorded marks; a series has (forecast, recorded or None) a place."""
    _need_any(series)
    places = list(dict.fromkeys(x for mine in series.values() for x in mine))
    if all(isinstance(x, (int, float)) for x in places):
        places.sort()
    at = {x: place for place, x in enumerate(places)}

    def paint(axes: Axes) -> None:
        axes.axhline(1.0, color=SHADES[0], linewidth=1.2)
        for number, (name, mine) in enumerate(series.items()):
            look = _look(number)
            xs = sorted(mine, key=at.__getitem__)
            made = [mine[x][0] for x in xs]
            axes.plot([at[x] for x in xs], made, color=look["color"], label=name)
            kept = [(at[x], recorded) for x in xs if (recorded := mine[x][1]) is not None]
            axes.plot([x for x, _ in kept], [y for _, y in kept], markersize=5, **look)
        axes.plot([], [], color=SHADES[1], label="line: forecast")
        axes.plot([], [], "o", color=SHADES[1], linestyle="none", label="mark: recorded")
        if log:
            axes.set_yscale("log", base=2)
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.set_xticks(range(len(places)), [str(x) for x in places])
        axes.set(xlabel=xlabel, ylabel=ylabel)
        legend_beside(axes)

    def tell(x: Any, made: float, recorded: float | None) -> str:
        more = "" if recorded is None else f" recorded {recorded:.3g}"
        return f"at {x} forecast {made:.3g}{more}"

    told = ". ".join(
        f"{name}: " + ", ".join(tell(x, *mine[x]) for x in sorted(mine, key=at.__getitem__))
        for name, mine in series.items()
    )
    alt = f"{ylabel} by {xlabel}. {told}."
    caption = "Lines: forecast. Marks: recorded" + (f", {where}." if where else ".")
    return draw_picture(paint, alt, caption, size=(7.2, 3.7), title=title)


def _need_any(groups: Mapping[str, object]) -> None:
    if not any(groups.values()):
        raise LabError("There is nothing to draw.", "no group holds a point", "give one")


def plot_gain_by_rate(
    groups: Mapping[str, Sequence[tuple[float, float, float, float]]],
    *,
    xlabel: str,
    ylabel: str,
    where: str = "",
    title: str = "",
) -> Shown:
    """A gain against how busy the memory was before: forecast hollow, recorded filled.

    A group holds (forecast share, forecast gain, recorded share, recorded gain).
    """
    _need_any(groups)

    def paint(axes: Axes) -> None:
        axes.axhline(1.0, color=SHADES[0], linewidth=1.2)
        for number, (name, rows) in enumerate(groups.items()):
            look = _look(number)
            for made_x, made_y, seen_x, seen_y in rows:
                axes.plot([made_x, seen_x], [made_y, seen_y], color=look["color"], linewidth=0.6)
                axes.plot(made_x, made_y, **_look(number, hollow=True))
            axes.plot([row[2] for row in rows], [row[3] for row in rows], label=name, **look)
        axes.plot([], [], "o", color=SHADES[1], markerfacecolor="white", label="hollow: forecast")
        axes.plot([], [], "o", color=SHADES[1], linestyle="none", label="filled: recorded")
        axes.set(xlabel=xlabel, ylabel=ylabel)
        legend_beside(axes)

    seen = {name: sorted((row[2], row[3]) for row in rows) for name, rows in groups.items()}
    told = ". ".join(
        f"{name}: " + ", ".join(f"{gain:.2f} at {share:.0%}" for share, gain in pairs)
        for name, pairs in seen.items()
    )
    alt = f"{ylabel} by {xlabel}, recorded. {told}."
    caption = "A thin line joins forecast and record of one pair" + (f"; {where}" if where else "")
    return draw_picture(paint, alt, f"{caption}.", size=(7.2, 3.7), title=title)


def forecast_and_record(record: Record, model: Callable[[Record], float]) -> tuple[float, float]:
    """(forecast, recorded), microseconds; the forecast is the record's own where it keeps one."""
    stored = record.forecast
    if stored is not None and math.isfinite(stored.time_us) and "roofline" not in stored.model:
        return stored.time_us, record.median_us
    return model(record), record.median_us
