"""What the chain bench shows for one setting, worked out as far as a browser needs it."""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from labtools.measure import trip_counts_of
from labtools.predict import Forecast, Gpu, LaunchForecast, forecast
from labtools.problem import LabError, Rung, Workload
from labtools.record import Record, RecordStore, Variant, describe_record
from labtools.record.prediction import direction_of, say_ratio
from labtools.toolchain.listings import source_text_of
from labtools.toolchain.sass import SourceLine

from ...records import GpuRecords
from ...tables import say_time
from .causes import CAUSES, cause_of, in_legend_order
from .figures import operation, producer_place, segments, waited

ChainState = dict[str, Any]
LEAST_SHARE = 0.0005
"""A cause with less of the cycles is not listed; it is in the sum."""


@dataclass(frozen=True)
class Setting:
    """One position of all knobs."""

    rung: Rung  # the kernel
    workload: Workload  # what is computed
    gpu: Gpu  # whose forecast
    knobs: Mapping[str, int] = field(default_factory=dict)  # those that differ from the defaults

    @property
    def title(self) -> str:
        """``r03_one_warp, unroll 4, launch_bounds 1; 8,32,8,4096,128 cold; NVIDIA H200``."""
        knobs = {knob.name: self.knobs.get(knob.name, knob.default) for knob in self.rung.knobs}
        named = "".join(f", {name} {value}" for name, value in knobs.items())
        edited = " (edited)" if self.rung.edited else ""
        load = self.workload
        where = f"{load.short()} {load.cache_state}; {self.gpu.title}"
        return f"{self.rung.id}{edited}{named}; {where}"


def state_of(setting: Setting, store: RecordStore | None = None) -> ChainState:
    """Compile, forecast and say everything about one setting, as JSON can hold it.

    Where the setting cannot be forecast, ``message`` says so in one plain sentence or two, and
    there is nothing else to show. A measurement of the same setting is looked up in ``store``.
    """
    started = time.perf_counter()
    try:
        asked = (setting.rung, setting.workload)
        # What data decide in a shipped kernel stays open with the inputs too (a test holds it), and
        # drawing them takes longer than all the rest.
        counts = None
        if not setting.rung.is_shipped:
            counts = trip_counts_of(*asked, setting.knobs, setting.gpu.limits)
        found = forecast(*asked, setting.gpu, setting.knobs, counts=counts)
        state = _describe(setting, found, _find_record(setting, store))
    except LabError as error:
        state = {"title": setting.title, "message": " ".join(str(error).split("\n"))}
    state["answer_text"] = f"worked out in {time.perf_counter() - started:.2f} s"
    return state


def change_between(pinned: ChainState, shown: ChainState) -> ChainState:
    """What changed from the pinned setting: the factor as ``text``, and ``rows`` of (cause, colour,
    now, share, pinned, difference), the whole last; empty where a forecast lacks.
    """
    if pinned.get("message") or shown.get("message"):
        return {"text": "", "rows": []}
    ratio = pinned["time_us"] / shown["time_us"]
    joined = "as" if direction_of(ratio) == "same" else "than"
    said = f"{say_ratio(ratio)} {joined} the pinned setting"
    then, now = ({part["name"]: part for part in state["stack"]} for state in (pinned, shown))
    rows = []
    for name in in_legend_order((*then, *now)):
        parts = [stack.get(name, {"cycles": 0.0, "share": 0.0}) for stack in (then, now)]
        if max(part["share"] for part in parts) >= LEAST_SHARE:
            rows.append(_compared(name, cause_of(name).colour, *parts))
    wholes = [{"cycles": state["stack_cycles"], "share": 1.0} for state in (pinned, shown)]
    return {"text": said, "rows": [*rows, _compared("together", "", *wholes)]}


def _compared(name: str, colour: str, pinned: ChainState, now: ChainState) -> list[str]:
    before, after = pinned["cycles"], now["cycles"]
    moved = say_cycles(after - before, True)
    return [name, colour, say_cycles(after), f"{now['share']:.1%}", say_cycles(before), moved]


def legend() -> list[ChainState]:
    """Every cause with its colour and its meaning."""
    names = ("name", "colour", "meaning")
    return [{name: getattr(cause, name) for name in names} for cause in CAUSES.values()]


def say_cycles(cycles: float, signed: bool = False) -> str:
    """``732,000`` from a thousand on three digits, below it whole; a sign where it is asked for."""
    size = abs(cycles)
    digits = max(0, len(str(int(size))) - 3)
    text = f"{round(size, -digits):,.0f}"
    if not signed:
        return text
    return "0" if text == "0" else f"{'-' if cycles < 0 else '+'}{text}"


def _describe(setting: Setting, found: Forecast, record: Record | None) -> ChainState:
    launch = found.main_launch
    band = "no band: " + "; ".join(found.doubts)
    if found.band_us is not None:
        band = "between {} and {} us".format(*(say_time(end) for end in found.band_us))
    rows = _rows(launch, setting.rung)
    where = "one trip of the main loop" if launch.main_loop else "the whole kernel"
    cycles = launch.chain[-1].issue if launch.chain else 0.0
    stack: list[ChainState] = []
    for part in launch.stack:
        look = {"name": part.name, "colour": cause_of(part.name).colour}
        share = {"share": part.share, "share_text": f"{part.share:.1%}"}
        stack.append({**look, "cycles": part.cycles, **share})
    stack_rows = [
        [part["name"], part["colour"], say_cycles(part["cycles"]), part["share_text"]]
        for part in stack
        if part["share"] >= LEAST_SHARE
    ]
    whole = sum(part.cycles for part in launch.stack)
    longest = max(range(len(rows)), key=lambda place: rows[place]["wait"], default=None)
    said = f"; the longest wait: {rows[longest]['said']}" if longest is not None else ""
    return {
        "title": setting.title,
        "message": "",
        "time_us": found.time_us,
        "time_text": f"{say_time(found.time_us)} us",
        "band_text": band,
        "note": found.note,
        "stack": stack,
        "stack_rows": [*stack_rows, ["together", "", say_cycles(whole), "100.0%"]],
        "stack_cycles": whole,
        "where": where,
        "cycles": cycles,
        "cycles_text": f"{len(rows)} instructions, {cycles:.0f} cycles",
        "rows": rows,
        "longest": longest,
        "alt": f"{setting.title}: {where}, {len(rows)} instructions, {cycles:.0f} cycles{said}.",
        "facts": _facts(found, launch, record),
    }


def _rows(launch: LaunchForecast, rung: Rung) -> list[ChainState]:
    links = launch.chain

    @functools.cache
    def text_of(source: SourceLine) -> str:  # an edited text counts as it was edited
        return (source_text_of(source, rung) or "").strip()

    rows = []
    for place, link in enumerate(links):
        source, wait = producer_place(links, place), waited(link)
        others = (name for name in link.cycles if name != "issue")
        cause = max(others, key=lambda name: link.cycles[name], default="issue")
        waits = f"waits {wait:.0f} cycles ({cause})" if wait >= 0.5 else "issues at once"
        said = f"{operation(link.text)} (number {place}) {waits}"
        if source is not None and wait >= 0.5:
            trip = " of the trip before" if source >= place else ""
            said += f" for the result of {operation(links[source].text)} (number {source}{trip})"
        shown = cause if wait >= 0.5 else "issue"
        at = link.source
        row = {
            "text": link.text.rstrip(" ;"),
            "line": "" if at is None else f"{at.file.rsplit('/', 1)[-1]}:{at.line}",
            "source": "" if at is None else text_of(at),
            "start": round(link.start, 1),
            "issue": round(link.issue, 1),
            "wait": round(wait, 1),
            "cause": shown,
            "colour": cause_of(shown).colour,
            "producer": source,
            "said": said,
            "parts": [
                [cause_of(name).colour, round(start, 1), round(cycles, 1)]
                for name, start, cycles in segments(link)
            ],
        }
        rows.append(row)
    return rows


def _facts(
    found: Forecast, launch: LaunchForecast, record: Record | None
) -> list[tuple[str, str, str]]:
    """(name, value, provenance word) of what the bench says in numbers."""
    fit = f"{launch.resident_blocks} of {launch.occupancy.blocks_per_sm}"
    facts = [
        ("bound", f"{found.bound}: {found.bound_reason}", "forecast"),
        ("in flight per SM", f"{found.in_flight_bytes / 1024:.1f} KiB", "forecast"),
        ("read from memory", f"{found.gb_per_s:.0f} GB/s", "forecast"),
        ("a load takes", f"{launch.load_latency_cycles:.0f} cycles", "forecast"),
        ("issue slots in use", f"{launch.issue_share:.0%}", "forecast"),
        ("blocks per SM", f"{fit} at most, {launch.threads} threads each", "computed"),
    ]
    if (true := launch.true_chain_cycles) is not None:
        facts.append(("true dependencies alone", f"{true:.0f} cycles per trip", "computed"))
    facts.append(("roofline floor", f"{say_time(found.floor.time_us)} us", "computed"))
    if len(found.launches) > 1:
        parts = ", ".join(f"{one.entry} {say_time(one.time_us)} us" for one in found.launches)
        facts.append(("launches", f"{parts}; drawn: {launch.entry}", "forecast"))
    facts.append(("machine code", found.code, "computed"))
    if record is not None:
        ratio = found.time_us / record.median_us
        measured = f"{say_time(record.median_us)} us ({describe_record(record)})"
        facts.append(("measured", f"{measured}; the forecast is {ratio:.2f} of it", "recorded"))
    return facts


def _find_record(setting: Setting, store: RecordStore | None) -> Record | None:
    if store is None or setting.rung.edited:
        return None
    tried = Variant(setting.rung.id, setting.knobs)
    return GpuRecords(setting.gpu.name, store).find(tried, setting.workload)
