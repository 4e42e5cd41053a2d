"""What the bench shows of a profiled run, and where each comes from. A counter without a value is
named as missing, and nothing takes its place.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from labtools.measure.profiler.counters import CHOSEN_COUNTERS
from labtools.predict import Forecast
from labtools.predict.sheets import Gpu
from labtools.record import Record, describe_record
from labtools.record.bound import explain_disagreement, known_value, missing_states, stall_shares

from ...counters import STALL_WORDS
from ...tables import format_value, say_time
from .run import ProfiledRun

COUNTER_MEANINGS = {one.name: one.lab for one in CHOSEN_COUNTERS if one.lab is not None}
"""What each counter on the bench means and what not, by its name in `CHOSEN_COUNTERS`."""
_WAITS = tomllib.loads(Path(__file__).with_name("waits.toml").read_text())
WAIT_WORDS = {**STALL_WORDS, **_WAITS["words"]}
"""What a warp waits for in each state, in words that follow "waits"."""
WAIT_CAUTIONS: dict[str, str] = _WAITS["cautions"]
"""What a state of a warp does not say, by its name."""
LEAST_STATE_SHARE = 0.005
"""States of a warp below this share are summed up in one bar."""


def ceilings(gpu: Gpu, reader: Record | None = None) -> dict[str, list[dict[str, Any]]]:
    """The lines of the roofline: ``memory``, GB/s, and ``compute``, 10^12 operations per second,
    each with its label and where it comes from. A rate that is not known is left out."""
    memory: list[tuple[str, float | None, str]] = [
        ("memory, data sheet", gpu.dram_gb_per_s, "computed")
    ]
    if reader is not None:
        label = f"memory, best rate ({reader.name}, {describe_record(reader)})"
        memory.append((label, reader.gb_per_s, "recorded"))
    tensor = ("tensor cores, fp16", gpu.fp16_tensor_tflops, "computed")
    compute = [tensor, ("fp32 outside them", gpu.fp32_tflops, "computed")]

    def lines(named: Sequence[tuple[str, float | None, str]], unit: str) -> list[dict[str, Any]]:
        return [
            {"label": label, "rate": rate, "text": f"{rate:,.0f} {unit}", "word": word}
            for label, rate, word in named
            if rate is not None
        ]

    return {"memory": lines(memory, "GB/s"), "compute": lines(compute, "TFLOP/s")}


_ROOFLINE = ("dram_read_bytes", "dram_write_bytes", "duration_us")


def roofline_point(run: ProfiledRun) -> tuple[float, float] | None:
    """Operations per byte of DRAM traffic, and 10^12 operations per second under the profiler.

    The operations are the problem's, computed. Bytes and duration are counted; where one of them is
    missing, no byte was moved, or the counters do not belong together, there is no point.
    """
    if run.apart:
        return None
    read, written, duration_us = (known_value(run.values, name) for name in _ROOFLINE)
    if read is None or written is None or not duration_us or not read + written:
        return None
    return run.problem.flops / (read + written), run.problem.flops / duration_us / 1e6


def _roofline(run: ProfiledRun) -> dict[str, Any]:
    if run.apart:
        said = "No point: these counters do not belong together, so bytes and duration need not be"
        return {"point": None, "said": f"{said} those of this workload."}
    point = roofline_point(run)
    if point is None:
        lacking = [name for name in _ROOFLINE if not known_value(run.values, name)]
        named = ", ".join(COUNTER_MEANINGS[name].label for name in lacking)
        return {"point": None, "said": f"No point: missing or zero are {named}."}
    per_byte, tflops = point
    rate = tflops / per_byte * 1e3
    told = [format_value(one) for one in (per_byte, tflops, rate)]
    said = f"{told[0]} operations per byte, {told[1]} TFLOP/s, which is {told[2]} GB/s"
    if run.gpu.dram_gb_per_s:
        said += f", {rate / run.gpu.dram_gb_per_s:.0%} of the data sheet's memory rate"
    return {"point": [per_byte, tflops], "said": f"{said}."}


def _waits(run: ProfiledRun) -> dict[str, Any]:
    shares = stall_shares(run.values)
    shown = {reason: share for reason, share in shares.items() if share >= LEAST_STATE_SHARE}
    bars = []
    for reason, share in shown.items():
        named = {"name": reason.replace("_", " "), "issuing": reason == "selected"}
        bars.append({**named, "share": round(share, 4), "says": _say_wait(reason)})
    rest = math.fsum(shares.values()) - math.fsum(shown.values())
    small = len(shares) - len(shown)
    unmeasured = [state.replace("_", " ") for state in missing_states(run.values)]
    said = f"{small} more states take {rest:.1%} together."
    if not shares:
        said = "No state of a warp was measured."
    if unmeasured:
        said += f" Missing: {', '.join(unmeasured)}."
    return {"bars": bars, "said": said}


def _say_wait(reason: str) -> str:
    words = WAIT_WORDS.get(reason, "for something that has no words here")
    said = words if reason == "selected" else f"waits {words}"
    return f"{said[0].upper()}{said[1:]}. {WAIT_CAUTIONS.get(reason, '')}".rstrip()


def _memory(run: ProfiledRun, forecast: Forecast | None) -> dict[str, Any]:
    """Bytes at each level, from the kernel down to DRAM, with the hit rates between them."""
    asked = None if forecast is None else math.fsum(one.l2_bytes for one in forecast.launches)
    read, written = (known_value(run.values, name) for name in _ROOFLINE[:2])
    levels = [
        _level("needed, each byte once", float(run.read_bytes), "computed", ""),
        _level("asked of the L2", asked, "forecast", "the records keep no counter of it"),
        _level("read from DRAM", read, run.word, "dram_read_bytes"),
        _level("written to DRAM", written, run.word, "dram_write_bytes"),
    ]
    rates = []
    for level in ("L1", "L2"):
        percent = known_value(run.values, f"{level.lower()}_hit_pct")
        text = "missing" if percent is None else f"{format_value(percent)} %"
        of = {"label": f"{level} hit rate", "percent": percent}
        rates.append({**of, "text": text, "word": run.word})
    said = []
    if run.apart:
        said.append("These bytes need not be those of the run whose waits stand above.")
    elif read is not None:
        said.append(f"DRAM delivered {read / run.read_bytes:.2f} times what is needed.")
    if read is not None and asked and not run.apart:
        said.append(f"That is {read / asked:.0%} of what the L2 was asked for.")
    return {"levels": levels, "rates": rates, "said": " ".join(said)}


def _level(label: str, amount: float | None, word: str, about: str) -> dict[str, Any]:
    text = "missing" if amount is None else f"{format_value(amount / 1e6)} MB"
    return {"label": label, "bytes": amount, "text": text, "word": word, "about": about}


def counter_rows(values: Mapping[str, float | None]) -> list[dict[str, str]]:
    """The counters of the bench that have a value, by their stable names, with value and unit."""
    rows = []
    for name, meaning in COUNTER_MEANINGS.items():
        value = known_value(values, name)
        if value is not None:
            told = f"{format_value(value / meaning.scale)} {meaning.unit}"
            rows.append({"name": name, "value": told})
    return rows


def missing_counters(values: Mapping[str, float | None]) -> list[str]:
    """Labels of the counters of the bench that have no value."""
    meanings = COUNTER_MEANINGS.items()
    return [one.label for name, one in meanings if known_value(values, name) is None]


def _bound(run: ProfiledRun, forecast: Forecast | None) -> dict[str, Any]:
    counted = run.counted
    bound = forecast.bound if forecast else run.forecast_bound
    terms_us = forecast.terms_us if forecast else {}
    why = "" if bound is None else explain_disagreement(bound, terms_us, counted, run.values)
    # The rule's own reason stands above it.
    why, reason = why.replace(f": {counted.reason}", "", 1), counted.reason
    if counted.apart:  # which is said once, below
        why, reason = f"The forecast says {bound}." if bound else "", "it is not asked"
    return {"counted": run.bound_word, "reason": f"{reason}.", "forecast": bound, "why": why}


def _say_apart(run: ProfiledRun) -> str:
    """What a reader of counters that do not belong together must know; else nothing."""
    if not run.apart:
        return ""
    why = f"{run.apart[0].upper()}{run.apart[1:]}"
    return (
        f"These counters do not belong together. {why}. Each value below is what its run counted. "
        "No rule that needs several of them is asked, and no point is drawn."
    )


def make_panel(run: ProfiledRun, forecast: Forecast | None = None) -> dict[str, Any]:
    """All that the bench shows of a run, as JSON can hold it."""
    timed = None if run.time_us is None else f"{say_time(run.time_us)} us"
    profiled = known_value(run.values, "duration_us")
    return {
        "name": run.name,
        "title": run.rung.title,
        "word": run.word,
        "where": run.where,
        "time": timed,
        "profiled": None if profiled is None else f"{say_time(profiled)} us",
        "apart": _say_apart(run),
        "bound": _bound(run, forecast),
        "roofline": _roofline(run),
        "waits": _waits(run),
        "memory": _memory(run, forecast),
        "counters": counter_rows(run.values),
        "missing": missing_counters(run.values),
    }
