"""What the chain bench shows for one setting, worked out as far as a browser needs it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from labtools.measure import trip_counts_of
from labtools.predict import Forecast, Gpu, LaunchForecast, forecast
from labtools.problem import LabError, Rung, Workload
from labtools.record import Record, RecordStore, Variant, describe_record
from labtools.record.prediction import direction_of
from labtools.toolchain.listings import source_text_of
from labtools.toolchain.sass import SourceLine

from ...ratios import say_ratio
from ...records import GpuRecords
from ...tables import say_time
from .causes import cause_of, in_legend_order
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
    # knobs of the rung that differ from its defaults
    knobs: Mapping[str, int] = field(default_factory=dict)

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
    """Compile, forecast and say everything about one setting.

    Args:
        store: where a measurement of the same setting is looked up; None leaves it out.

    Returns:
        A JSON object. Where the setting cannot be forecast, its ``message`` says so in one plain
        sentence or two, and there is nothing else to show.
    """
    started = time.perf_counter()
    try:
        asked = (setting.rung, setting.workload)
        # What data decide in a shipped kernel stays open with the inputs too (a test holds it), and
        # drawing them takes longer than all the rest.
        counts = (
            trip_counts_of(*asked, setting.knobs, setting.gpu.limits)
            if not setting.rung.is_shipped
            else None
        )
        found = forecast(*asked, setting.gpu, setting.knobs, counts=counts)
        state = _describe(setting, found, _find_record(setting, store))
    except LabError as error:
        state = {"title": setting.title, "message": " ".join(str(error).split("\n"))}
    state["answer_s"] = round(time.perf_counter() - started, 3)
    state["answer_text"] = f"worked out in {state['answer_s']:.2f} s"
    return state


def change_between(pinned: ChainState, shown: ChainState) -> ChainState:
    """What changed from the pinned setting: the factor, and each cause of waiting.

    Returns:
        ``text``, and ``rows`` of (cause, colour, now, share, pinned, difference), the whole last;
        empty where a forecast lacks.
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
    from .causes import CAUSES

    return [
        {"name": cause.name, "colour": cause.colour, "meaning": cause.meaning}
        for cause in CAUSES.values()
    ]


def say_cycles(cycles: float, signed: bool = False) -> str:
    """``732,000`` from a thousand on three digits, below it whole; a sign where it is asked for."""
    size = abs(cycles)
    digits = max(0, len(str(int(size))) - 3)
    text = f"{round(size, -digits):,.0f}"
    if not signed:
        return text
    return "0" if text == "0" else f"{'-' if cycles < 0 else '+'}{text}"


# --------------------------------------------------------------------------------- one state


def _describe(setting: Setting, found: Forecast, record: Record | None) -> ChainState:
    launch = found.main_launch
    band = "no band: " + "; ".join(found.doubts)
    if found.band_us is not None:
        band = "between {} and {} us".format(*(say_time(end) for end in found.band_us))
    rows = _rows(launch, setting.rung)
    where = "one trip of the main loop" if launch.main_loop else "the whole kernel"
    cycles = launch.chain[-1].issue if launch.chain else 0.0
    stack: list[ChainState] = [
        {
            "name": part.name,
            "colour": cause_of(part.name).colour,
            "cycles": part.cycles,
            "share": part.share,
            "share_text": f"{part.share:.1%}",
        }
        for part in launch.stack
    ]
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
        "bound_text": f"{found.bound}: {found.bound_reason}",
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
        "facts": _facts(setting, found, launch, record),
    }


def _rows(launch: LaunchForecast, rung: Rung) -> list[ChainState]:
    links = launch.chain
    text_of = _SourceText(rung)
    rows = []
    for place, link in enumerate(links):
        source = producer_place(links, place)
        wait = waited(link)
        before = source is not None and source >= place
        cause = max(
            (name for name in link.cycles if name != "issue"),
            key=lambda name: link.cycles[name],
            default="issue",
        )
        waits = f"waits {wait:.0f} cycles ({cause})" if wait >= 0.5 else "issues at once"
        said = f"{operation(link.text)} (number {place}) {waits}"
        if source is not None and wait >= 0.5:
            trip = " of the trip before" if before else ""
            said += f" for the result of {operation(links[source].text)} (number {source}{trip})"
        rows.append(
            {
                "text": link.text.rstrip(" ;"),
                "line": text_of.place(link.source),
                "source": text_of(link.source),
                "start": round(link.start, 1),
                "issue": round(link.issue, 1),
                "wait": round(wait, 1),
                "cause": cause if wait >= 0.5 else "issue",
                "colour": cause_of(cause if wait >= 0.5 else "issue").colour,
                "producer": source,
                "said": said,
                "parts": [
                    [cause_of(name).colour, round(at, 1), round(cycles, 1)]
                    for name, at, cycles in segments(link)
                ],
            }
        )
    return rows


def _facts(
    setting: Setting, found: Forecast, launch: LaunchForecast, record: Record | None
) -> list[tuple[str, str, str]]:
    """(name, value, provenance word) of what the bench says in numbers."""
    facts = [
        ("bound", f"{found.bound}: {found.bound_reason}", "forecast"),
        ("in flight an SM", f"{found.in_flight_bytes / 1024:.1f} KiB", "forecast"),
        ("read from memory", f"{found.gb_per_s:.0f} GB/s", "forecast"),
        ("a load takes", f"{launch.load_latency_cycles:.0f} cycles", "forecast"),
        ("issue slots in use", f"{launch.issue_share:.0%}", "forecast"),
        (
            "blocks an SM",
            f"{launch.resident_blocks} of {launch.occupancy.blocks_per_sm} that fit, "
            f"{launch.threads} threads each",
            "computed",
        ),
    ]
    if launch.true_chain_cycles is not None:
        facts.append(
            ("true dependencies alone", f"{launch.true_chain_cycles:.0f} cycles a trip", "computed")
        )
    facts.append(("roofline floor", f"{say_time(found.floor.time_us)} us", "computed"))
    if len(found.launches) > 1:
        parts = ", ".join(
            f"{launch.entry} {say_time(launch.time_us)} us" for launch in found.launches
        )
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


class _SourceText:
    """Source lines of one rung, each looked up once; an edited text counts as it was edited."""

    def __init__(self, rung: Rung) -> None:
        self._rung = rung
        self._known: dict[SourceLine, str] = {}

    def __call__(self, source: SourceLine | None) -> str:
        """The text of a line without its indent, or an empty string."""
        if source is None:
            return ""
        if source not in self._known:
            self._known[source] = (source_text_of(source, self._rung) or "").strip()
        return self._known[source]

    @staticmethod
    def place(source: SourceLine | None) -> str:
        """``row.cuh:28``."""
        return "" if source is None else f"{source.file.rsplit('/', 1)[-1]}:{source.line}"
