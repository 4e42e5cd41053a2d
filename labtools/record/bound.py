"""The rule that names a kernel's bound, what counters show by it, why a forecast may differ.

`decide_bound` is the only rule. Counters and forecasts both give it shares: of the peak of memory,
of the L2's, of each pipe's and of the issue slots, and of a warp's time in `CHAIN_REASONS`. A
counter without a value is missing: it is never read as zero.

The limits of memory and of the issue slots are those of the rule "GPU Speed Of Light Throughput" of
NVIDIA Nsight Compute: a unit at 80 % of its peak or more is what to look at, and where all stand
below 60 % the kernel waits for latency. In between neither is said. A pipe counts as full from 70 %
on, since instructions come to it in bursts: of kernels whose pipe's work was doubled on an NVIDIA
H200 (``tests/bounds``) those with more than that took at least 1.3 times as long. On the NVIDIA
H200 of this project's microbenchmarks the queue at the memory adds a sixth to an idle load's
latency at 60 % of the peak, and more than a third at 80 %, where it grows without limit from.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

Bound = Literal["bandwidth", "pipe", "issue", "chain", "launch"]


@dataclass(frozen=True)
class Unit:
    """A unit whose share of its peak may show a bound."""

    foretold: str  # how a forecast says that it is full
    counted: str = ""  # how counters say it
    counter: str = ""  # which one, a percentage; none where no counter tells the share
    needed: bool = False  # without the counter's value nothing but a full unit can be told


FULL = 0.80
"""From this share of its peak on, memory, the L2 or issuing is the bound."""
PIPE_FULL = 0.70
"""The same of a pipe."""


FULL_UNITS: Mapping[Bound, Mapping[str, Unit]] = {
    "bandwidth": {
        "dram": Unit(
            "{:.0%} of the memory's peak rate is in use",
            "device memory is at {:.0%} of its peak",
            "dram_throughput_pct",
            needed=True,
        ),
        "l2": Unit(
            "{:.0%} of the L2's ceiling is in use",
            "the L2 is at {:.0%} of its peak",
            "l2_throughput_pct",
        ),
    },
    "pipe": {
        "lsu": Unit(
            "the load/store unit, with shared memory and the L1, works in {:.0%} of the time",
            "the load/store unit, with shared memory and the L1, is at {:.0%} of its peak",
            "l1_data_pct",
        ),
        **{
            name: Unit(
                f"{said} work in {{:.0%}} of the time", f"{said} are at {{:.0%}} of their peak", of
            )
            for name, said, of in (
                ("fma", "the multiply-add pipes", "pipe_fma_pct"),
                ("imad", "the pipes of whole multiply-adds", "pipe_imad_pct"),
                ("alu", "the integer and logic pipes", "pipe_alu_pct"),
                ("xu", "the pipes of special functions and conversions (MUFU)", "pipe_xu_pct"),
                ("fp64", "the double-precision pipes", "pipe_fp64_pct"),
                ("tensor", "the tensor cores", "pipe_tensor_pct"),
            )
        },
    },
    "issue": {
        "issue": Unit(
            "{:.0%} of the issue slots are in use",
            "a scheduler issues in {:.0%} of its cycles",
            "issue_slot_pct",
            needed=True,
        ),
    },
}
"""The bounds that mean a full unit, in the order in which they are asked, with the shares that
count."""
FULL_SHARES: Mapping[Bound, float] = {"bandwidth": FULL, "pipe": PIPE_FULL, "issue": FULL}
"""From which share of its peak on a unit of a bound is full."""

LAUNCH_FACTOR = 3.0
"""A kernel shorter than this many empty launches is bound by its launch."""
MEMORY_LOW = 0.60
"""Only below this share of the peak of memory and of the L2 may waiting be called a chain."""
CHAIN_STALLS = 0.50
"""From this share of a warp's time on, spent in `CHAIN_REASONS`, the bound is the chain."""
CHAIN_REASONS = ("long_scoreboard", "barrier", "wait")
"""A load's result, another warp at a barrier, and the fixed latency of an instruction."""
SHORT_REASON = "short_scoreboard"
"""The result of shared memory, a shuffle or a special function: it is one of a chain where the pipe
that gives it is known to have room."""
LONGEST_EMPTY_LAUNCH_US = 10.0
"""No GPU takes longer for an empty kernel. Where the empty launch was not measured, a kernel of
more than `LAUNCH_FACTOR` times this is still known not to be bound by its launch."""
DRAM_LIKELY = 0.45
"""Below this share of the peak nobody would take memory for the limit."""
PASSES_AGREE = 0.10
"""Up to this relative difference between two ways to the warps of an SM, counters that a profiler
read in several runs count as of one. No record with a cold cache differs by more than seven
percent, rounding apart."""
NEAR = 1.15
"""Two terms of a forecast within this factor of each other are a crossover."""
FEW_WAVES = 4
"""Up to so many waves a partly filled last one counts."""


def decide_bound(shares: Mapping[str, float], empty_launches: float | None = None) -> Bound | None:
    """The bound that some shares show: the first rule that holds decides.

    1. ``launch``: the time is under `LAUNCH_FACTOR` empty launches, over which averages say little.
    2. ``bandwidth``: device memory or the L2 at `FULL` of its peak or more.
    3. ``pipe``: one at `PIPE_FULL` of its peak or more.
    4. ``issue``: a scheduler issues in `FULL` of its cycles or more.
    5. ``chain``: memory and the L2 below `MEMORY_LOW`, and at least `CHAIN_STALLS` of a warp's
       time in `CHAIN_REASONS`.

    Otherwise it is None. ``shares`` are of 1: those of `FULL_UNITS` and ``chain``, without what is
    not known.
    """
    if empty_launches is not None and empty_launches < LAUNCH_FACTOR:
        return "launch"
    for bound, full in FULL_SHARES.items():
        if _busiest(bound, shares) >= full:
            return bound
    known = "dram" in shares and "chain" in shares
    if known and _busiest("bandwidth", shares) < MEMORY_LOW and shares["chain"] >= CHAIN_STALLS:
        return "chain"
    return None


def nearest_bound(shares: Mapping[str, float]) -> Bound:
    """Of `decide_bound`'s rules on shares the one that falls short by least.

    For a forecast, which names a bound even where the shares are ambiguous.
    """
    short = {bound: full - _busiest(bound, shares) for bound, full in FULL_SHARES.items()}
    memory = _busiest("bandwidth", shares)
    short["chain"] = max(memory - MEMORY_LOW, CHAIN_STALLS - shares["chain"])
    return min(short, key=lambda bound: short[bound])


def busiest_unit(bound: Bound, shares: Mapping[str, float]) -> str:
    """The unit of a bound with the largest share."""
    return max(FULL_UNITS[bound], key=lambda name: shares.get(name, 0.0))


def _busiest(bound: Bound, shares: Mapping[str, float]) -> float:
    return shares.get(busiest_unit(bound, shares), 0.0)


@dataclass(frozen=True)
class CountedBound:
    """The bound that counters show."""

    bound: Bound | None  # None where the counters are ambiguous or missing
    # of 1, without what was not measured: the units of `FULL_UNITS` of their peaks, each of
    # `CHAIN_REASONS` and their sum ``chain`` of a warp's time
    shares: dict[str, float] = field(default_factory=dict)
    reason: str = ""  # one sentence: what decided, or what is in the way
    # duration over that of an empty launch; None where one was not measured
    empty_launches: float | None = None
    missing: tuple[str, ...] = ()  # the counters that a rule needed and that have no value
    # the counters are not of like runs, see `passes_apart`; then nothing follows from them together
    apart: bool = False


def passes_apart(values: Mapping[str, float | None], max_warps_per_sm: int) -> str:
    """Why the counters of one kernel do not belong together; empty where nothing speaks for it.

    A profiler reads the rate of instructions in one run of the kernel and the waits in another. By
    Little's law the warps on an SM are the instructions a cycle, times the cycles from one
    instruction of a warp to its next; the occupancy counts the same warps. Where the two differ by
    more than `PASSES_AGREE` and the rounding of the rate, the runs were not alike.
    """
    names = ("instructions_per_cycle", "warp_latency_cycles", "achieved_occupancy_pct")
    rate, cycles, occupancy_pct = (known_value(values, name) for name in names)
    if not (rate and cycles and occupancy_pct):
        return ""
    warps = occupancy_pct / 100 * max_warps_per_sm
    least, most = (cycles * (rate + off) / warps for off in (-_RATE_ROUNDED, _RATE_ROUNDED))
    if least <= 1 + PASSES_AGREE and most >= 1 - PASSES_AGREE:
        return ""
    return (
        f"instructions a cycle times the cycles between two of a warp make {cycles * rate:.2f} "
        f"warps on an SM, the occupancy says {warps:.2f}; so the profiler's runs of the kernel "
        "were not alike, as where one finds a cache cold and another finds it warm"
    )


def stall_shares(values: Mapping[str, float | None]) -> dict[str, float]:
    """Share of a warp's time in each state that was measured, largest first; may be empty.

    The cycles of a state over `warp_latency_cycles`, or over the sum of the states where that
    total was not measured. ``selected``, the cycle in which the warp issues, is one of the states.
    """
    stalls = {_state_of(name): value for name, value in values.items() if _is_stall(name)}
    cycles = {state: value for state, value in stalls.items() if value is not None}
    total = values.get("warp_latency_cycles") or math.fsum(cycles.values())
    if not total:
        return {}
    shares = {reason: value / total for reason, value in cycles.items()}
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


def largest_stall(values: Mapping[str, float | None]) -> tuple[str, float] | None:
    """The state in which a warp waits longest and its share of the warp's time, or None.

    ``selected``, the cycle in which it issues, is no wait. None where a state that was not measured
    may be the larger one.
    """
    shares = stall_shares(values)
    waits = {reason: share for reason, share in shares.items() if reason != "selected"}
    if not waits:
        return None
    reason = max(waits, key=lambda name: waits[name])
    if known_value(values, "warp_latency_cycles"):
        certain = waits[reason] >= 1 - math.fsum(shares.values())
    else:
        certain = "selected" in shares and not missing_states(values)
    return (reason, waits[reason]) if certain else None


def missing_states(values: Mapping[str, float | None]) -> tuple[str, ...]:
    """States of a warp that were asked for and have no value."""
    gone = (name for name, value in values.items() if _is_stall(name) and value is None)
    return tuple(_state_of(name) for name in gone)


def _state_of(name: str) -> str:
    return name.removeprefix("stall_").removesuffix("_cycles")


def _is_stall(name: str) -> bool:
    return name.startswith("stall_") and name.endswith("_cycles")


def counted_bound(
    values: Mapping[str, float | None],
    duration_us: float | None = None,
    empty_launch_us: float | None = None,
    *,
    max_warps_per_sm: int | None = None,
) -> CountedBound:
    """The bound that the counters of one kernel show by the rules of `decide_bound`.

    The bound is None where the counters are ambiguous, where one is missing that the decision
    needs, and where they do not belong together (`passes_apart`). That a kernel is no longer than
    its launch is said in any case: it rests on one duration alone.

    ``values`` are of the kernel that took longest in a call; a rate is a percentage. Of them are
    ``main_kernel_us``, else ``duration_us``, and ``empty_launch_us``, timed in the same way, where
    None is given. Without ``max_warps_per_sm`` nothing is asked of belonging together.
    """
    for name in ("main_kernel_us", "duration_us"):
        if duration_us is None:
            duration_us = known_value(values, name)
    if empty_launch_us is None:
        empty_launch_us = known_value(values, "empty_launch_us")
    shares, missing = _measured_shares(values)
    empty_launches = None
    if duration_us is not None and empty_launch_us:
        empty_launches = duration_us / empty_launch_us

    def result(bound: Bound | None, reason: str, *needed: str) -> CountedBound:
        return CountedBound(bound, shares, reason, empty_launches, tuple(needed))

    bound = decide_bound(shares, empty_launches)
    if bound == "launch":
        said = f"it takes {empty_launches:.1f} times an empty launch"
        return result(bound, f"{said}, under {LAUNCH_FACTOR:g} times")
    short = duration_us is None or duration_us < LAUNCH_FACTOR * LONGEST_EMPTY_LAUNCH_US
    if empty_launches is None and short:
        needed = "duration_us" if duration_us is None else "empty_launch_us"
        return result(None, f"{needed} is missing, so it may be no more than its launch", needed)

    if max_warps_per_sm and (why := passes_apart(values, max_warps_per_sm)):
        said = f"{APART}: {why}"
        return CountedBound(None, shares, said, empty_launches, apart=True)

    if bound is not None and bound in FULL_UNITS:
        name = busiest_unit(bound, shares)
        said = FULL_UNITS[bound][name].counted.format(shares[name])
        return result(bound, f"{said}, {FULL_SHARES[bound]:.0%} or more")
    dram, chain = shares.get("dram"), shares.get("chain")
    if bound == "chain":
        low = f"device memory is at {dram:.0%} of its peak, below {MEMORY_LOW:.0%}"
        waits = f"spends {chain:.0%} of its time on {_join(_reasons_of(shares))}"
        return result(bound, f"{low}, and a warp {waits}, {CHAIN_STALLS:.0%} or more")
    if dram is not None and dram >= MEMORY_LOW:
        # Then it is no chain, whatever the stalls are.
        missing = tuple(name for name in missing if not name.startswith(("stall_", "warp_")))
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        return result(None, f"{_join(missing)} {verb} missing, so it cannot be told", *missing)
    return result(None, _say_ambiguous(shares, values))


def _say_ambiguous(shares: Mapping[str, float], values: Mapping[str, float | None]) -> str:
    """Why no rule holds, where every share that one needs is known."""
    dram = shares["dram"]
    said = f"device memory is at {dram:.0%} of its peak, issue slots are at {shares['issue']:.0%}"
    if "chain" in shares:
        said += f", {_join(_reasons_of(shares))} take {shares['chain']:.0%} of a warp's time"
    if dram >= MEMORY_LOW:
        between = f"memory stands between {MEMORY_LOW:.0%} and {FULL:.0%}"
        return f"{said}; {between}: too busy for a chain, not busy enough for bandwidth"
    rest = stall_shares(values).items()
    others = (item for item in rest if item[0] not in (*_reasons_of(shares), "selected"))
    reason, share = next(others, ("", 0.0))
    other = f"; the largest other wait is {reason.replace('_', ' ')} with {share:.0%}"
    return f"{said}; no rule holds{other if reason else ''}"


def _reasons_of(shares: Mapping[str, float]) -> tuple[str, ...]:
    """The states that make a chain, by what is known of the pipes."""
    return (*CHAIN_REASONS, SHORT_REASON) if "lsu" in shares and "xu" in shares else CHAIN_REASONS


APART = "the counters do not belong together"
"""Before what `passes_apart` says."""
_RATE_ROUNDED = 0.005
"""A profiler rounds to two decimals, which is much of a small rate."""


def known_value(values: Mapping[str, float | None], name: str) -> float | None:
    """A counter's value; None where it was not asked for, is missing or is no number."""
    value = values.get(name)
    return value if value is not None and math.isfinite(value) else None


def _measured_shares(
    values: Mapping[str, float | None],
) -> tuple[dict[str, float], tuple[str, ...]]:
    """The shares that the rules use, and the names of the counters that are missing for them."""
    shares: dict[str, float] = {}
    missing = []
    for name, unit in (item for units in FULL_UNITS.values() for item in units.items()):
        value = known_value(values, unit.counter)
        if value is not None:
            shares[name] = value / 100
        elif unit.needed:
            missing.append(unit.counter)
    found, reasons = stall_shares(values), _reasons_of(shares)
    shares.update({reason: found[reason] for reason in reasons if reason in found})
    needed = [f"stall_{reason}_cycles" for reason in reasons]
    absent = [name for name in needed if values.get(name) is None]
    if not known_value(values, "warp_latency_cycles"):
        # Without the total a share is one of the states that were measured. That is the whole
        # only if the cycle of issuing is among them and no state that was asked for is missing.
        asked = (f"stall_{state}_cycles" for state in missing_states(values))
        absent += [name for name in asked if name not in absent]
        if "selected" not in found and values.get("warp_latency_cycles") is None:
            absent.append("warp_latency_cycles")
    if not absent:  # counters that add up to nothing are shares of nothing
        shares["chain"] = sum(shares.setdefault(reason, 0.0) for reason in reasons)
    return shares, (*missing, *absent)


def _join(names: tuple[str, ...]) -> str:
    counters = ("_pct", "_us", "_cycles")
    words = [name if name.endswith(counters) else name.replace("_", " ") for name in names]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


# ------------------------------------------------------------------ a forecast beside the counters


def explain_disagreement(
    forecast_bound: str,
    forecast_terms: Mapping[str, float],
    counted: CountedBound,
    values: Mapping[str, float | None],
) -> str:
    """Why a forecast and the counters name different bounds: what each says, then every cause that
    the numbers speak for. ``forecast_terms`` are times by bound, all in one unit."""
    bound = counted.bound
    if bound == forecast_bound:
        return f"Both say {forecast_bound}: {counted.reason}."
    if counted.apart:
        return f"The forecast says {forecast_bound}; {counted.reason}."
    says = "; the counters are ambiguous" if bound is None else f", the counters say {bound}"
    crossover = _explain_crossover(forecast_bound, forecast_terms, counted)
    pair = (forecast_bound, bound)
    launch = _explain_launch(forecast_bound, counted) if "launch" in pair else ""
    average = _explain_average(forecast_bound, counted, values)
    both, caches = _explain_pair(forecast_bound, counted), _explain_caches(pair, values)
    said = [cause for cause in (crossover, launch, both, average, caches) if cause]
    clocked = {"bandwidth", "launch"} & set(pair)
    if not said or forecast_bound not in get_args(Bound) or clocked or crossover:
        said.append(_explain_clocks(values))
    said.insert(0, f"The forecast says {forecast_bound}{says}: {counted.reason}")
    return " ".join(f"{sentence}." for sentence in said)


def nearest_term(terms: Mapping[str, float], mine: str, rivals: Iterable[str]) -> tuple[str, float]:
    """Of a forecast's terms the one nearest to ``mine``, and the factor between the two; infinite
    where either is no time."""
    mine_us = terms.get(mine, 0.0)
    times = {rival: terms[rival] for rival in rivals if terms.get(rival, 0.0) > 0}
    if mine_us <= 0 or not times:
        return "", math.inf
    factors = {rival: max(us, mine_us) / min(us, mine_us) for rival, us in times.items()}
    nearest = min(factors, key=lambda rival: factors[rival])
    return nearest, factors[nearest]


def explain_waves(waves: float | None) -> str:
    """What a partly filled last wave does; empty where there is none, or one of many."""
    if waves is None or not 1 < waves < FEW_WAVES or not waves % 1:
        return ""
    return f"The grid makes {waves:.2f} waves, so the last one leaves SMs idle"


def _explain_crossover(bound: str, terms: Mapping[str, float], counted: CountedBound) -> str:
    """Two terms of the forecast that stand close together decide nothing."""
    others = (limit for limit in get_args(Bound) if limit != bound)
    rival, factor = nearest_term(terms, bound, [counted.bound] if counted.bound else others)
    if factor > NEAR:
        return ""
    text = (
        f"In the forecast {bound} and {rival} lie within {factor - 1:.0%} of each other: "
        "this point is at a crossover, where a small error of either turns the name around"
    )
    dram = counted.shares.get("dram")
    if dram is None or "bandwidth" not in (bound, rival):
        return text
    if dram >= DRAM_LIKELY:
        return f"{text}, and memory at {dram:.0%} of its peak fits both"
    return (
        f"{text}; but memory at {dram:.0%} of its peak is far from its limit, so the forecast's "
        "bandwidth term is too long"
    )


def _explain_pair(forecast_bound: str, counted: CountedBound) -> str:
    """What the two names together speak for."""
    dram, chain = (counted.shares.get(name, 0.0) for name in ("dram", "chain"))
    slots = "Issue slots are counted over the cycles in which a scheduler had a warp"
    if (forecast_bound, counted.bound) == ("chain", "bandwidth"):
        text = (
            "A busy memory answers late, and a warp that waits for it counts as a long-scoreboard "
            "stall, so only the traffic tells a chain from a busy memory"
        )
        if chain < CHAIN_STALLS:
            return text
        return (
            f"{text}; here {_join(_reasons_of(counted.shares))} are {chain:.0%} of a warp's time "
            "although the memory is the limit"
        )
    if (forecast_bound, counted.bound) == ("bandwidth", "chain"):
        return (
            f"Memory reaches {dram:.0%} of its peak, so it was not near that on average: too few "
            "bytes were in flight for the latency that they met, or the forecast's latency is too "
            "short"
        )
    if (forecast_bound, counted.bound) == ("issue", "chain"):
        return (
            f"{slots}; the forecast's warps would keep it busy, so either fewer are resident than "
            "it takes, or they wait for something that it takes for shorter"
        )
    if counted.bound == "issue":
        return (
            f"{slots}, and forecast over all schedulers of a busy SM; so full schedulers beside "
            "empty ones count as full"
        )
    return ""


def _explain_launch(forecast_bound: str, counted: CountedBound) -> str:
    if counted.bound == "launch":
        return (
            "The profiler times a kernel alone, from its start to its end, and the forecast's "
            f"{forecast_bound} term is about as short as that of a kernel that does nothing"
        )
    ratio = counted.empty_launches
    length = f"takes {ratio:.1f} times an empty launch" if ratio else "is longer than its launch"
    return (
        f"Under the profiler the kernel {length}; the forecast counts what one launch adds to the "
        "next in a row of launches, which the profiler, timing each alone, does not see"
    )


def _explain_average(
    forecast_bound: str, counted: CountedBound, values: Mapping[str, float | None]
) -> str:
    """A tail: the throughput of memory is an average over all SMs and the whole duration."""
    active = known_value(values, "sm_active_pct")
    if active is not None and active < 80 and counted.bound != "bandwidth":
        return (
            f"On average an SM had work for {active:.0f}% of the time: memory's share is taken "
            "over the whole duration, so a tail or an unfilled GPU dilutes it"
        )
    tail = explain_waves(known_value(values, "waves_per_sm"))
    if tail and forecast_bound == "bandwidth":
        return f"{tail} and dilutes the average of memory's throughput"
    return ""


def _explain_caches(pair: tuple[str, str | None], values: Mapping[str, float | None]) -> str:
    """What the L2 did: bytes that it served are none of memory's."""
    hits = known_value(values, "l2_hit_pct")
    if hits is None or hits < 20 or "bandwidth" not in pair:
        return ""
    return (
        f"{hits:.0f}% of the sectors were found in the L2; the profiler flushes the caches before "
        "a cold kernel, while timing goes round many buffers, so the two need not hit alike"
    )


def _explain_clocks(values: Mapping[str, float | None]) -> str:
    hz = known_value(values, "sm_clock_hz")
    if hz is None:
        return (
            "The profiler can lock the clocks; left alone, as here, they may differ from those of "
            "the timing, which moves chain and issue against memory"
        )
    return (
        f"Under the profiler, which left the clocks alone, the SMs ran at {hz / 1e9:.2f} GHz; "
        "where the timing or the forecast has another clock, chain and issue move against memory"
    )
