"""Gaps and budgets: what is missing stays missing, and every rule keeps its promises."""

from __future__ import annotations

import dataclasses
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labtools.measure.profiler.counters import STALL_REASONS
from labtools.optimize.budget import NEGLIGIBLE, ApportionmentRule, Budget, allocate
from labtools.optimize.gaps import (
    Gaps,
    counters_of_forecast,
    gaps_of_counters,
    gaps_of_forecast,
    rising,
    trigger_values,
)
from labtools.optimize.method import METHOD_AXES
from labtools.predict import forecast, load_gpu
from labtools.problem import HEADLINE, LabError, load_rung
from labtools.record import RecordStore, select

RULES = get_args(ApportionmentRule)
PROPORTIONAL = ("largest-remainder", "dhondt", "sainte-lague", "adams", "hill")


def gaps(compute=None, memory=None, latency=None) -> Gaps:
    return Gaps(compute, memory, latency, "counters", {})


def seats(budget: Budget) -> tuple[int, int, int]:
    return (budget.compute, budget.memory, budget.latency)


# -------------------------------------------------------------------------------------- gaps


@pytest.fixture(scope="module")
def counted():
    """The headline's recorded counters of r09, every one of them asked for."""
    found = select(RecordStore().load(), gpu="h200", candidate="r09", workload=HEADLINE)
    return next(
        dict(one.counters.values)
        for one in found
        if one.counters and one.counters.values.get("pipe_fma_pct") is not None
    )


def test_gaps_follow_from_the_counters(counted):
    found = gaps_of_counters(counted)
    assert found.compute == pytest.approx(1 - counted["pipe_alu_pct"] / 100)
    assert found.memory == pytest.approx(1 - counted["dram_throughput_pct"] / 100)
    share = counted["stall_long_scoreboard_cycles"] / counted["warp_latency_cycles"]
    assert found.latency == pytest.approx(share)
    assert (found.waits_for, found.missing) == ("long_scoreboard", ())
    assert found.bound == "bandwidth"
    assert not found.near_peak, "memory is as full as it can be, and warps wait"
    assert found.memory < 0.2 < min(found.compute, found.latency)
    # A small state that was not measured hides nothing, and issuing is no wait.
    assert gaps_of_counters({**counted, "stall_gmma_cycles": None}).latency == found.latency
    values = {f"stall_{reason}_cycles": 0.0 for reason in STALL_REASONS}
    values |= {"stall_selected_cycles": 1.0, "stall_wait_cycles": 0.1, "warp_latency_cycles": 1.1}
    assert gaps_of_counters(values).waits_for == "wait"


def test_counters_of_unlike_runs_decide_no_bound(counted):
    """Half the occupancy: the warps by Little's law are twice those that it counts."""
    most = load_gpu("h200").limits.max_warps_per_sm
    assert gaps_of_counters(counted, most) == gaps_of_counters(counted)
    half = {**counted, "achieved_occupancy_pct": counted["achieved_occupancy_pct"] / 2}
    found = gaps_of_counters(half, most)
    assert found.bound is None
    assert "do not belong together" in found.note
    assert "do not belong together" in gaps_of_counters({**half, "duration_us": None}, most).note
    alone = gaps_of_counters(half)
    assert (found.compute, found.memory, found.latency) == (
        *(alone.compute, alone.memory, alone.latency),
    )


@pytest.mark.parametrize(
    ("name", "axis"),
    [
        ("pipe_tensor_pct", "compute"),
        ("dram_throughput_pct", "memory"),
        ("stall_long_scoreboard_cycles", "latency"),
    ],
)
@pytest.mark.parametrize("how", ["none", "absent"])
def test_a_missing_counter_leaves_its_gap_missing(counted, name, axis, how):
    values = {key: value for key, value in counted.items() if key != name}
    found = gaps_of_counters({**values, name: None} if how == "none" else values)
    assert [one for one in METHOD_AXES if found.of(one) is None] == [axis]
    assert found.missing in ((name,), ("stalls",))
    assert not found.near_peak
    assert allocate(found).of(axis) == 0


def test_near_peak_needs_all_three():
    values = dict.fromkeys(("pipe_fma_pct", "pipe_alu_pct", "pipe_xu_pct", "pipe_tensor_pct"), 0.0)
    values |= {f"stall_{reason}_cycles": 0.0 for reason in STALL_REASONS}
    values |= {"pipe_fma_pct": 90.0, "dram_throughput_pct": 90.0, "warp_latency_cycles": 1.1}
    values |= {"stall_selected_cycles": 1.0, "stall_wait_cycles": 0.1}
    assert gaps_of_counters(values).near_peak
    for name in ("pipe_fma_pct", "dram_throughput_pct"):
        assert not gaps_of_counters({**values, name: 84.0}).near_peak
        assert not gaps_of_counters({**values, name: None}).near_peak
    assert gaps_of_counters({**values, "pipe_fma_pct": 100.4}).compute == 0


def test_a_forecast_gives_gaps_and_says_that_it_is_one():
    made = forecast(load_rung("r03"), HEADLINE, load_gpu("h200"))
    found, values = gaps_of_forecast(made), counters_of_forecast(made)
    assert found.origin == "forecast" and "forecast" in found.note
    assert found.bound == made.bound
    assert found.memory == pytest.approx(1 - values["dram_throughput_pct"] / 100)
    assert found.waits_for == "long_scoreboard"
    assert 0 < found.latency < 1
    names = trigger_values(values, found)
    assert names["long_scoreboard_share"] == pytest.approx(found.latency)
    assert names["latency_gap"] == found.latency
    assert "pipe_fma_pct" not in names


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        ([0.1, 0.2, 0.3], ("memory",)),
        ([0.3, 0.1, 0.2, 0.3], ("memory",)),
        ([0.1, 0.2, 0.2], ()),
        ([0.1, 0.3, 0.2], ()),
        ([0.2, 0.3], ()),
        ([0.1, None, 0.3], ()),
        ([0.1, 0.2, None], ()),
        ([], ()),
    ],
)
def test_rising_is_two_rounds_running(history, expected):
    assert rising([gaps(0.5, one, 0.5) for one in history]) == expected


# ----------------------------------------------------------------------------------- budgets


@pytest.mark.parametrize("rule", RULES)
def test_the_example_of_the_source(rule):
    """It is said to give 2, 0, 1, which no proportional rule does."""
    expected = (1, 1, 1) if rule in PROPORTIONAL else (2, 0, 1)
    assert seats(allocate(gaps(0.92, 0.57, 0.61), rule)) == expected


def test_rules_differ_where_they_should():
    """Adams favours the small, D'Hondt the large."""
    uneven = gaps(0.95, 0.12, 0.11)
    found = {rule: seats(allocate(uneven, rule, cap=3)) for rule in RULES}
    large = ("dhondt", "squared", "fill-largest", "largest-remainder")
    assert {found[rule] for rule in large} == {(3, 0, 0)}
    assert found["adams"] == found["hill"] == (1, 1, 1)


def test_the_cap_sends_slots_on_and_the_threshold_is_not_negligible():
    assert seats(allocate(gaps(0.99, 0.11, 0.01))) == (2, 1, 0)
    assert seats(allocate(gaps(NEGLIGIBLE, None, None))) == (2, 0, 0)
    used = {f"pipe_{name}_pct": 90.0 for name in ("fma", "alu", "xu", "tensor")}
    assert gaps_of_counters(used).compute == NEGLIGIBLE
    assert "compute gap 0.0999 is negligible" in allocate(gaps(0.0999, 0.5, None)).reason


@pytest.mark.parametrize("rule", [one for one in RULES if one != "fill-largest"])
def test_a_rising_gap_breaks_a_tie(rule):
    even = gaps(0.5, 0.5, None)
    assert allocate(even, rule).compute == 2
    assert allocate(even, rule, rising=("memory",)).memory == 2


def test_an_unknown_rule_is_refused():
    with pytest.raises(LabError, match="no rule"):
        allocate(gaps(0.5, 0.5, 0.5), "hare")
    with pytest.raises(LabError, match="slots"):
        allocate(gaps(0.5, 0.5, 0.5), slots=-1)


GAP = st.one_of(st.none(), st.floats(0, 1))
THREE = st.builds(gaps, GAP, GAP, GAP)
RULE = st.sampled_from(RULES)


@given(THREE, RULE, st.integers(0, 7), st.integers(0, 4), st.sets(st.sampled_from(METHOD_AXES)))
def test_every_rule_keeps_its_promises(found, rule, slots, cap, up):
    budget = allocate(found, rule, slots, cap, rising=tuple(up))
    served = [one for one in METHOD_AXES if (found.of(one) or 0) >= NEGLIGIBLE]
    assert budget.total == min(slots, cap * len(served))
    for axis in METHOD_AXES:
        assert 0 <= budget.of(axis) <= (cap if axis in served else 0)


@given(THREE, RULE, st.sampled_from(METHOD_AXES), st.floats(0, 1))
def test_a_larger_gap_never_gets_fewer_slots(found, rule, axis, more):
    before = found.of(axis)
    if before is None or more < before:
        return
    larger = dataclasses.replace(found, **{axis: more})
    assert allocate(larger, rule).of(axis) >= allocate(found, rule).of(axis)


@given(THREE, RULE)
def test_the_larger_of_two_gaps_never_gets_fewer(found, rule):
    budget = allocate(found, rule)
    for one in METHOD_AXES:
        for other in METHOD_AXES:
            if (found.of(one) or 0) > (found.of(other) or 0):
                assert budget.of(one) >= budget.of(other)
