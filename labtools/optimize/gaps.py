"""How far a kernel is from full use of the GPU, on three axes: compute, memory, latency. A gap is
what is left of a utilisation, and missing (neither 0 nor 1) where that was not measured. It is no
roofline: a kernel may be bound by what none of the three shows, see `labtools.record.bound`. Gaps
of compute are not of one number: the counted is of the busiest pipe over the cycles in which its SM
had a warp; the forecast is of the issue slots over all schedulers of a busy SM. The counter of
issue slots, which the bound takes, leaves out schedulers without a warp: it may be up to four times
the forecast's share."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from labtools.measure.profiler.counters import COUNTERS
from labtools.predict import Forecast, load_gpu
from labtools.predict.explain import profiler_states
from labtools.record import bound as bounds
from labtools.record.expressions import Quantity

from .method import METHOD_AXES, STALL_SHARE, Axis

COMPUTE_PIPES = ("pipe_fma_pct", "pipe_alu_pct", "pipe_xu_pct", "pipe_tensor_pct")
"""The counters of the pipes that compute; the busiest of them counts."""
NEAR_PEAK = 0.15
"""All three gaps below this: nothing is left to do. Source: the optimisation loop that this one
follows (its V2), which stops there."""
MOST_PERCENT = 105.0
"""A rate of the peak above this was not measured. A profiler's passes differ by a little, so a busy
unit may come out somewhat above 100."""
ROUNDS_RISING = 2  # a gap counts as rising when it rose in so many rounds running

Origin = Literal["counters", "forecast"]


@dataclass(frozen=True)
class Gaps:
    """What is left of each utilisation, 0..1."""

    compute: float | None  # 1 less the share of the busiest pipe that computes; None is missing
    memory: float | None  # 1 less the throughput of device memory over its peak
    latency: float | None  # the largest share of a warp's time in one kind of wait
    origin: Origin  # where they come from
    values: Mapping[str, float]  # what they follow from, by name
    waits_for: str | None = None  # the kind of wait
    bound: bounds.Bound | None = None  # that the same values show, or None where they are ambiguous
    near_peak: bool = False  # all three are known and below `NEAR_PEAK`
    missing: tuple[str, ...] = ()  # names of the values that are missing for them
    note: str = ""  # what to know of them, one sentence, or nothing

    def of(self, axis: Axis) -> float | None:
        """The gap of one axis."""
        found: float | None = getattr(self, axis)
        return found

    def names(self) -> dict[str, float | None]:
        """The gaps as a trigger calls them: ``compute_gap``, ..."""
        return {f"{axis}_gap": self.of(axis) for axis in METHOD_AXES}


def say_gaps(gaps: Gaps) -> str:
    """``compute 0.92, memory missing, latency 0.61``."""
    return ", ".join(f"{axis} {say_gap(gaps.of(axis))}" for axis in METHOD_AXES)


def say_gap(gap: float | None) -> str:
    """``0.92``; a missing one is no number."""
    return "missing" if gap is None else f"{gap:.2f}"


def gaps_of_counters(
    values: Mapping[str, float | None], max_warps_per_sm: int | None = None
) -> Gaps:
    """The gaps that hardware counters of one kernel show, rates in percent, None where missing.
    With ``max_warps_per_sm`` the note says where counters of unlike runs betray themselves; these
    decide no bound but that of the launch."""
    known = [value for name in COMPUTE_PIPES if (value := values.get(name)) is not None]
    # A pipe that was not measured may be the busiest.
    best = max(known) if len(known) == len(COMPUTE_PIPES) else None
    found = bounds.counted_bound(values, max_warps_per_sm=max_warps_per_sm)
    why = bounds.passes_apart(values, max_warps_per_sm) if max_warps_per_sm else ""
    note = f"{bounds.APART}: {why}" if why else ""
    return _gaps_of(values, best, COMPUTE_PIPES, "counters", found.bound, note)


def fault_of_counters(values: Mapping[str, float | None]) -> str | None:
    """Why values that somebody gives by name are no counters of a kernel, or None."""
    known = {one.name for one in COUNTERS}
    for name, value in values.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            return f"there is no counter {name}" + (f"; did you mean {near[0]}?" if near else "")
        if value is None:
            continue
        if not math.isfinite(value) or value < 0:
            return f"{name} is {value:g}; a counter is a number from 0 on, or null where missing"
        if name.endswith("_pct") and value > MOST_PERCENT:
            return f"{name} is {value:g}, and a rate is at most 100 percent"
    share, state = max(
        ((part, one) for one, part in bounds.stall_shares(values).items()), default=(0, "")
    )
    if share > MOST_PERCENT / 100:
        return f"stall_{state}_cycles is more than warp_latency_cycles, of which it is a part"
    return None


def gaps_of_forecast(made: Forecast) -> Gaps:
    """The gaps that a forecast shows, of the launch that takes longest. The share of the issue
    slots, of all schedulers of a busy SM, stands for the busiest pipe."""
    bound: bounds.Bound = made.bound  # type: ignore[assignment]
    return gaps_of_predicted(counters_of_forecast(made), bound)


def gaps_of_predicted(values: Mapping[str, float | None], bound: bounds.Bound) -> Gaps:
    """`gaps_of_forecast` of what `counters_of_forecast` gave, where that was kept."""
    issued, what = (
        values.get("issue_slot_pct"),
        "the forecast's share of issue slots, over all schedulers,",
    )
    note = f"here {what} stands in for the busiest compute pipe"
    return _gaps_of(values, issued, ["issue_slot_pct"], "forecast", bound, note)


def _gaps_of(
    values: Mapping[str, float | None],
    pipe_pct: float | None,
    pipes: Sequence[str],
    origin: Origin,
    bound: bounds.Bound | None,
    note: str,
) -> Gaps:
    wait = bounds.largest_stall(values)
    state, share = wait or ("", None)
    asked = {name: values.get(name) for name in (*pipes, "dram_throughput_pct")}
    asked |= {STALL_SHARE.format(state) if wait else "stalls": share}
    used = {name: value for name, value in asked.items() if value is not None}
    missing = [name for name, value in asked.items() if value is None]
    gaps = (_rest(pipe_pct), _rest(asked["dram_throughput_pct"]), share)
    return Gaps(
        *gaps,
        origin=origin,
        values=used,
        waits_for=wait[0] if wait else None,
        bound=bound,
        near_peak=all(gap is not None and gap < NEAR_PEAK for gap in gaps),
        missing=tuple(missing),
        note=note,
    )


def _rest(percent: float | None) -> float | None:
    return None if percent is None else max(0.0, (100 - percent) / 100)  # 90 leaves 0.1


def counters_of_forecast(made: Forecast) -> dict[str, float]:
    """What a forecast says of its longest launch, under the names of the counters that it predicts.
    Waits that fit no state of a profiler are left out, so their sum is below
    ``warp_latency_cycles``."""
    main = made.main_launch
    gpu = load_gpu(made.gpu)
    peak = gpu.dram_gb_per_s
    held = main.occupancy
    resident_warps = main.resident_blocks * held.warps_per_block
    shares = profiler_states(main, gpu.sub_partitions)
    values = {
        "duration_us": main.time_us,
        "dram_read_bytes": main.dram_bytes,
        "issue_slot_pct": 100 * main.issue_share,
        "theoretical_occupancy_pct": 100 * held.theoretical,
        "achieved_occupancy_pct": 100 * resident_warps / held.max_warps_per_sm,
    }
    if peak:  # no sheet, no peak to take a share of
        values |= {"dram_throughput_pct": 100 * main.dram_bytes / main.time_us / 1e3 / peak}
    issuing = shares.get("selected", 0.0)
    if issuing:  # a warp issues one instruction in one cycle, which is the unit of all others
        waits = {f"stall_{reason}_cycles": part / issuing for reason, part in shares.items()}
        values |= {"warp_latency_cycles": 1 / issuing, **waits}
    return values


def trigger_values(counters: Mapping[str, float | None], gaps: Gaps) -> dict[str, Quantity | None]:
    """What a trigger may ask of a measurement: counters, shares of stalls, and gaps."""
    shares = {
        STALL_SHARE.format(name): part for name, part in bounds.stall_shares(counters).items()
    }
    return {**counters, **shares, **gaps.names()}


def rising(history: Sequence[Gaps]) -> tuple[Axis, ...]:
    """The axes whose gap rose in each of the last `ROUNDS_RISING` rounds; missing is no rise."""
    last = history[-1 - ROUNDS_RISING :]
    if len(last) <= ROUNDS_RISING:
        return ()
    return tuple(axis for axis in METHOD_AXES if _rose([one.of(axis) for one in last]))


def _rose(gaps: Sequence[float | None]) -> bool:
    known = [gap for gap in gaps if gap is not None]
    steps = zip(known, known[1:], strict=False)
    return len(known) == len(gaps) and all(before < after for before, after in steps)
