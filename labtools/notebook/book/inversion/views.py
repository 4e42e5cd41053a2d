"""The derivation of a kernel as tables and figures, and opcodes counted in machine code."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from labtools.derive import Design, DesignStep
from labtools.derive.registry import modelled_us
from labtools.derive.sm import share_in_flight
from labtools.derive.traffic import SlopePoint
from labtools.predict import DEFAULT_GPU, Gpu, load_gpu, machine_of
from labtools.predict.latencies import load_latencies
from labtools.problem import Rung, Workload, load_rung, timed_launches
from labtools.problem.limits import Limits
from labtools.problem.rung import say_knobs
from labtools.record import Record, fair_peers, paired_ratio, select
from labtools.toolchain.listings import machine_code

from ...figures import BLUE, MARKERS, ORANGE, SHADES, Axes, Bar, draw_picture, show_bars
from ...ratios import RecordedTime
from ...records import GpuRecords
from ...tables import Shown, format_value, make_note, show_table

_SHARES = ("of it", "of the ceiling", "of all", "of the issue slots", "of the time")


def _say(value: float, unit: str) -> str:
    if unit in _SHARES:
        return f"{100 * value:.3g} % {unit}"
    if float(value).is_integer():
        value = int(value)
    return f"{format_value(value)} {unit}".rstrip()


def show_step(step: DesignStep) -> Shown:
    """One step: its numbers with sources, the formula, what follows and what was rejected."""
    so = f"So: {step.decision}. What would change it: {step.breaks}."
    return _table_of(step) + make_note(so, "computed")


def show_steps(steps: Sequence[DesignStep]) -> Shown:
    """What each step decides; folded, the numbers behind it and what was rejected."""
    rows = [(step.question, step.decision, step.breaks) for step in steps]
    table = show_table(("question", "decision", "what would change it"), rows, word="computed")
    behind = "".join(f"<p>{html.escape(one.question)}</p>{_table_of(one).html}" for one in steps)
    text = "\n".join(f"{one.question}\n{_table_of(one).text}" for one in steps)
    folded = f"<details><summary>Show the numbers behind each decision</summary>{behind}</details>"
    return table + Shown(folded, text)


def _table_of(step: DesignStep) -> Shown:
    told = [(one.name, one.value, one.unit, one.source) for one in step.inputs]
    told += [(f"= {one.name}", one.value, one.unit, one.source) for one in step.results]
    told += [(f"{one.word}: {one.choice}", one.value, one.unit, one.why) for one in step.rejected]
    rows = [(name, _say(value, unit), why) for name, value, unit, why in told]
    columns = ("", "value", "from, or why not")
    return show_table(columns, rows, word="computed", note=step.formula)


def plot_limits(step: DesignStep, where: str) -> Shown:
    """The times of a derivation's first step, each of one limit alone."""
    times = {one.name: one.value for one in step.results if one.unit == "us"}
    times.pop("target", None)
    floor = times.pop("floor")
    times = times if floor in times.values() else {"memory": floor, **times}
    bars = [Bar(name, us, "computed") for name, us in times.items()]
    told = f"{step.question} {where}"
    return show_bars(bars, "Each limit alone", where=told, width=4.9)


def plot_slope(slope: Sequence[SlopePoint], least_bytes: int, marks: Mapping[str, int]) -> Shown:
    """The least traffic, over what must move once, by the bytes of a buffer; ``marks`` are buffers
    by name."""
    known = [(one.buffer_bytes / 1024, one.traffic_bytes) for one in slope if one.traffic_bytes]
    sizes, times = [size for size, _ in known], [moved / least_bytes for _, moved in known]

    def paint(axes: Axes) -> None:
        axes.step(sizes, times, where="post", color=BLUE, linewidth=2)
        axes.plot(sizes, times, "o", color=BLUE)
        for name, size_bytes in marks.items():
            axes.axvline(size_bytes / 1024, color=ORANGE, linestyle="--")
            place = (size_bytes / 1024, max(times))
            axes.annotate(name, place, rotation=90, va="top")
        axes.set(xscale="log", yscale="log", xlabel="KiB of the buffer", ylabel="times the least")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(lambda x, _: f"{x:,g}")

    told = "; ".join(f"{size:,.0f} KiB {by:.3g}" for size, by in zip(sizes, times, strict=True))
    alt = f"Traffic over the least falls as the buffer grows: {told}. Marked are " + ", ".join(
        f"{name} with {size_bytes / 1024:,.0f} KiB" for name, size_bytes in marks.items()
    )
    return draw_picture(paint, alt, "The ski slope", "computed", size=(4.9, 3.0))


def plot_model(points: Mapping[str, Sequence[tuple[float, float]]], where: str) -> Shown:
    """Recorded times against those of a model, in us, by kernel."""

    def paint(axes: Axes) -> None:
        for number, (name, pairs) in enumerate(points.items()):
            model, recorded = zip(*pairs, strict=True)
            axes.plot(
                model, recorded, MARKERS[number], color=(BLUE, ORANGE)[number % 2], label=name
            )
        ends = [min(map(min, chain(*points.values()))), max(map(max, chain(*points.values())))]
        axes.plot(ends, ends, color=SHADES[1], linestyle="--", label="as the model says")
        axes.set(xscale="log", yscale="log", xlabel="model us", ylabel="recorded us")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(lambda x, _: f"{x:,g}")
            axis.set_minor_formatter("")
        axes.legend()

    ratios = {name: sorted(us / said for said, us in pairs) for name, pairs in points.items()}
    alt = "Recorded times against those of the model. Recorded over model: " + "; ".join(
        f"{name}, {len(these)} tiles, {these[0]:.2f} to {these[-1]:.2f}"
        for name, these in ratios.items()
    )
    return draw_picture(paint, alt, where, "recorded", size=(4.9, 3.4))


def show_model(*rungs: str, gpu: Gpu | str = DEFAULT_GPU) -> Shown:
    """Every tile of some kernels that was timed, folded: the model that derives it and the forecast
    of before the run beside the record, and the fastest fair library of the same processes over
    it, losses first."""
    gpu = load_gpu(gpu) if isinstance(gpu, str) else gpu
    every = GpuRecords(gpu.name).every
    rows = []
    for rung in map(load_rung, rungs):
        newest: dict[tuple[str, str], Record] = {}
        for record in select(every, candidate=rung.id):
            newest.setdefault((record.problem_key, str(record.every_knob)), record)
        for record in newest.values():
            model_us = modelled_us(rung, record.problem, gpu, record.every_knob)
            said = record.forecast and record.forecast.time_us
            beside = select(every, workload=record.problem, campaign=record.campaign)
            peer = next(iter(fair_peers(beside)), None)
            ratio = paired_ratio(peer, record).ratio if peer else None
            times = (model_us, said, RecordedTime.of(record))
            named = (
                rung.id.split("_")[0],
                record.problem.short().split(":", 1)[-1],
                say_knobs(record.knobs, " "),
            )
            library = f"{ratio:.3g} of {peer.name}" if peer and ratio else None
            rows.append((ratio, (*named, *times, library)))
    rows.sort(key=lambda row: row[0] or math.inf)
    columns = ("model us", "forecast us", "recorded us", "fastest library / recorded")
    table = show_table(
        ("kernel", "problem", "knobs", *columns),
        [row for _, row in rows],
        word="computed",
        note=f"{gpu.title}; - where no forecast was stored",
    )
    names, losses = " and ".join(rungs), sum((ratio or 1) < 1 for ratio, _ in rows)
    head = f"{len(rows)} timed tiles of {names}, {losses} of them slower than a library"
    folded = f"<details><summary>Show {head}</summary>{table.html}</details>"
    return Shown(folded, f"{head}\n{table.text}")


def show_designs(designs: Mapping[str, Design], *, times: bool = True) -> Shown:
    """Designs beside each other, one column a choice: warps and stages that their steps ask for,
    and what the launch has. Without ``times`` where a reader has yet to predict."""
    rows = []
    for name, design in designs.items():
        asked = {key: design.step(key).answer.value for key in ("in_flight", "stages", "bytes")}
        cells = {
            "": name if design.calibrated else f"{name}*",
            "KiB in flight per SM": f"{asked['in_flight'] / 1024:.0f}",
            "keys per tile": f"{design.tile_keys}",
            "warps asked for": f"{design.warps_per_sm}",
            "stages asked for": f"{asked['stages']:.0f}",
            "blocks of the launch": f"{design.blocks} of {design.warps} warps",
            "stages of the launch": f"{design.stages}",
            "cluster": f"{design.cluster}",
            "shared KiB per block": f"{design.smem_bytes / 1024:.0f}",
        }
        if times:
            cells |= {"floor us": f"{asked['bytes']:.1f}", "expected us": f"{design.time_us:.1f}"}
        rows.append([*cells.values()])
    starred = any(not design.calibrated for design in designs.values())
    note = "* rates not measured here" if starred else ""
    return show_table(tuple(cells), rows, word="computed", note=note)


def plot_ring(design: Design, gpu: Gpu) -> Shown:
    """The share of the read ceiling by bytes in flight, with the stages of a ring marked."""
    machine = machine_of(gpu)
    stage = design.warps_per_sm * design.tile_bytes
    stages = [n for n in range(2, 7) if n * stage <= gpu.smem_per_block_bytes]
    in_flight = np.geomspace(2048, 1.4 * stage * max(stages), 80)
    shares = [share_in_flight(place / machine.slow_dram, machine) for place in in_flight]
    marks = [(n, (n - 1) * stage) for n in stages]
    reached = [share_in_flight(at / machine.slow_dram, machine) for _, at in marks]
    curve = load_latencies(gpu).curve("hbm") if machine.calibrated else ()
    ceiling = max((point["gb_per_s"] for point in curve), default=1.0)
    measured = [
        (point["in_flight_bytes_per_sm"] / 1024, point["gb_per_s"] / ceiling)
        for point in curve
        if point["loads"] <= 4 and point["in_flight_bytes_per_sm"] >= 2048
    ]

    def paint(axes: Axes) -> None:
        axes.plot(in_flight / 1024, shares, color=SHADES[0], label="Little's law under load")
        if measured:
            axes.plot(*zip(*measured, strict=True), ".", color=SHADES[1], label="plain loads")
        for (n, at), share in zip(marks, reached, strict=True):
            face = SHADES[0] if n == design.step("stages").answer.value else "white"
            place = (at / 1024, share)
            below: dict[str, Any] = {"xytext": (0, -14), "textcoords": "offset points"}
            axes.plot(*place, marker="o", color=SHADES[0], markerfacecolor=face)
            axes.annotate(f"{n}", place, ha="center", **below)
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
        axes.set(xlabel="KiB in flight per SM", ylabel="share of the read ceiling", ylim=(0, 1.08))
        axes.legend(loc="lower right")

    said = ", ".join(f"{n} stages {share:.1%}" for n, share in zip(stages, reached, strict=True))
    alt = (
        f"The share of the read ceiling rises with the bytes in flight per SM and flattens near "
        f"all of it. {design.warps_per_sm} warps with tiles of {design.tile_bytes} bytes: {said}."
    )
    dots = " The dots are microbenchmarks of plain loads [recorded]." if measured else ""
    caption = f"Circles: rings by their stages; the filled one is derived.{dots} {gpu.title}."
    return draw_picture(paint, alt, caption, "computed", size=(4.9, 3.2))


def needed_kib(gpu: Gpu, shares: Sequence[float]) -> dict[float, float]:
    """KiB that every SM must have in flight for each share of the read ceiling."""
    machine = machine_of(gpu)
    return {share: machine.bytes_in_flight(share) / 1024 for share in shares}


def show_opcode_counts(
    rungs: Mapping[str, tuple[Rung, Mapping[str, int]]],
    workload: Workload,
    opcodes: Mapping[str, str],
    gpu: Gpu | str = DEFAULT_GPU,
) -> Shown:
    """How often each opcode, a beginning such as ``LDG.E.128``, stands in all of several rungs'
    timed kernels."""
    gpu = load_gpu(gpu) if isinstance(gpu, str) else gpu
    there = [_timed_opcodes(rung, workload, knobs, gpu.limits) for rung, knobs in rungs.values()]
    rows = [
        (one, what, *(sum(opcode.startswith(f"{one}.") for opcode in mine) for mine in there))
        for one, what in opcodes.items()
    ]
    note = f"Machine code for {gpu.arch}, {workload}"
    return show_table(("opcode", "what it does", *rungs), rows, word="computed", note=note)


def _timed_opcodes(
    rung: Rung, workload: Workload, knobs: Mapping[str, int], limits: Limits
) -> list[str]:
    """Every instruction's opcode with a point behind it, of a rung's timed kernels."""
    code = machine_code(rung, workload, limits, rung.resolve_knobs(knobs))
    timed = {launch.entry for launch in timed_launches(rung.launches(workload, limits, knobs))}
    return [f"{line.opcode}." for entry in timed for line in code.entries[entry].executable]
