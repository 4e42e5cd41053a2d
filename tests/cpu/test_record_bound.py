"""The bound that counters show: its rules, what is missing, and why a forecast may differ."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labtools.measure.profiler.counters import COUNTERS
from labtools.predict import list_gpus, load_gpu
from labtools.record import RecordStore, with_counters
from labtools.record import bound as bounds
from labtools.record.bound import (
    CHAIN_REASONS,
    FULL_UNITS,
    LAUNCH_FACTOR,
    LONGEST_EMPTY_LAUNCH_US,
    SHORT_REASON,
    counted_bound,
    decide_bound,
    explain_disagreement,
    nearest_bound,
    passes_apart,
    stall_shares,
)

TABLES = tomllib.loads(Path(__file__).with_name("record_bounds.toml").read_text("utf-8"))


def _values(
    dram: float | None = 30.0,
    issue: float | None = 20.0,
    long_scoreboard: float | None = 1.0,
    barrier: float | None = 0.0,
    wait: float | None = 1.0,
    latency: float | None = 10.0,
    **others: float | None,
) -> dict[str, float | None]:
    """Counters as a record keeps them; by default nothing is the limit."""
    return {
        "dram_throughput_pct": dram,
        "issue_slot_pct": issue,
        "stall_long_scoreboard_cycles": long_scoreboard,
        "stall_barrier_cycles": barrier,
        "stall_wait_cycles": wait,
        "stall_short_scoreboard_cycles": 5.0,
        "stall_selected_cycles": 1.0,
        "warp_latency_cycles": latency,
        **others,
    }


@pytest.mark.parametrize(("changes", "duration_us", "bound"), TABLES["rules"])
def test_rules_and_their_order(changes: dict[str, float], duration_us: float, bound: str) -> None:
    found = counted_bound(_values(**changes), duration_us, 2.0)
    assert found.bound == (bound or None)
    assert found.reason
    assert found.empty_launches == duration_us / 2.0
    assert found.missing == ()


@pytest.mark.parametrize(("shares", "decided", "nearest"), TABLES["nearest"])
def test_where_no_rule_holds_one_falls_short_by_least(
    shares: dict[str, float], decided: str, nearest: str
) -> None:
    assert decide_bound(shares, 10.0) == (decided or None)
    assert nearest_bound(shares) == nearest
    assert decide_bound(shares, 2.9) == "launch"


def test_shares_are_of_one_and_say_what_decided() -> None:
    found = counted_bound(_values(long_scoreboard=4.0), 100.0, 2.0)
    assert found.shares == pytest.approx(
        {"dram": 0.3, "issue": 0.2, "long_scoreboard": 0.4, "barrier": 0, "wait": 0.1, "chain": 0.5}
    )
    assert "30%" in found.reason and "50%" in found.reason
    found = counted_bound(_values(pipe_tensor_pct=85.0), 100.0, 2.0)
    assert found.shares["tensor"] == pytest.approx(0.85)
    assert "tensor cores are at 85%" in found.reason


@pytest.mark.parametrize("name", ["dram", "issue", "long_scoreboard", "barrier", "wait"])
def test_a_missing_counter_is_not_zero(name: str) -> None:
    """With zeros in their place these would be no chain, or a chain; so nothing is said."""
    values = _values(**{name: None})  # type: ignore[arg-type]
    (counter,) = (key for key, value in values.items() if value is None)
    found = counted_bound(values, 100.0, 2.0)
    assert found.bound is None
    assert counter in found.missing
    assert counter in found.reason
    assert name not in found.shares
    without = {key: value for key, value in _values().items() if key != counter}
    assert counted_bound(without, 100.0, 2.0).bound is None


def test_what_is_there_may_suffice() -> None:
    # A full memory needs no stalls, a full scheduler no memory.
    assert counted_bound({"dram_throughput_pct": 90.0}, 100.0, 2.0).bound == "bandwidth"
    assert counted_bound({"issue_slot_pct": 90.0}, 100.0, 2.0).bound == "issue"
    # Memory between its two thresholds is ambiguous with or without stalls, so none is missed.
    found = counted_bound({"dram_throughput_pct": 70.0, "issue_slot_pct": 5.0}, 100.0, 2.0)
    assert found.bound is None
    assert found.missing == ()
    assert counted_bound({}, 100.0, 2.0).bound is None


def test_stalls_without_their_total_count_only_if_all_are_there() -> None:
    whole = _values(long_scoreboard=8.0, latency=None)
    assert counted_bound(whole, 100.0, 2.0).bound == "chain"  # 8 + 1 of 15
    gap = {**whole, "stall_mio_throttle_cycles": None}
    found = counted_bound(gap, 100.0, 2.0)
    assert found.bound is None
    assert "stall_mio_throttle_cycles" in found.missing
    del whole["stall_selected_cycles"]
    assert counted_bound(whole, 100.0, 2.0).bound is None


def test_without_an_empty_launch_only_long_kernels_are_judged() -> None:
    limit = LAUNCH_FACTOR * LONGEST_EMPTY_LAUNCH_US
    assert counted_bound(_values(dram=90.0), limit).bound == "bandwidth"
    short = counted_bound(_values(dram=90.0), limit - 0.1)
    assert short.bound is None
    assert short.missing == ("empty_launch_us",)
    assert counted_bound(_values(dram=90.0), None, 2.0).missing == ("duration_us",)


def test_durations_come_from_the_values_and_the_longest_kernel_counts() -> None:
    values = _values(dram=90.0, duration_us=8.0, empty_launch_us=2.0)
    assert counted_bound(values).bound == "bandwidth"
    # Two kernels of 4 us each are two launches, though the call takes 8 us.
    assert counted_bound({**values, "main_kernel_us": 4.0}).bound == "launch"
    assert counted_bound(values, 4.0).bound == "launch"


@given(
    st.dictionaries(
        st.sampled_from([counter.name for counter in COUNTERS]), st.none() | st.floats(0, 200)
    ),
    st.none() | st.floats(0.1, 1e4),
    st.none() | st.floats(0.5, 5),
)
def test_a_bound_always_meets_its_own_rule(
    values: dict[str, float | None], duration_us: float | None, empty_us: float | None
) -> None:
    found = counted_bound(values, duration_us, empty_us)
    shares = found.shares
    assert found.reason
    if found.bound == "launch":
        assert found.empty_launches is not None and found.empty_launches < LAUNCH_FACTOR
    if found.bound in FULL_UNITS:
        full = 0.7 if found.bound == "pipe" else 0.8
        assert max(shares.get(unit, 0.0) for unit in FULL_UNITS[found.bound]) >= full
    if found.bound == "chain":
        assert max(shares["dram"], shares.get("l2", 0.0)) < 0.6
        reasons = (*CHAIN_REASONS, SHORT_REASON)
        assert sum(shares.get(reason, 0.0) for reason in reasons) >= 0.5
    for name in found.missing:
        assert values.get(name) is None or name in ("empty_launch_us", "duration_us")
    text = explain_disagreement("chain", {"chain": 3.0}, found, values)
    assert text.endswith(".")


def test_stall_shares_are_sorted_and_use_the_total() -> None:
    shares = stall_shares({"stall_wait_cycles": 1.0, "stall_barrier_cycles": 3.0, "other": 9.0})
    assert shares == {"barrier": 0.75, "wait": 0.25}
    assert list(shares) == ["barrier", "wait"]
    assert stall_shares({"stall_wait_cycles": 1.0, "warp_latency_cycles": 4.0}) == {"wait": 0.25}
    assert stall_shares({"stall_wait_cycles": None}) == {}


def test_the_shipped_records_can_be_judged() -> None:
    """Counters that were recorded before the empty launch was are readable still."""
    judged = [
        counted_bound(record.counters.values)
        for record in RecordStore().load()
        if record.counters is not None and len(record.counters.values) > 10
    ]
    assert judged
    assert all({"dram", "issue", "chain"} <= set(found.shares) for found in judged)
    assert any(found.bound == "chain" for found in judged)


# ------------------------------------------------------------------------- disagreement

FULL = _values(dram=88.0, long_scoreboard=8.0)
IDLE = _values(dram=45.0, long_scoreboard=8.0)


def _explain(
    forecast: str,
    terms: dict[str, float],
    values: dict[str, float | None],
    duration_us: float = 100.0,
) -> str:
    return explain_disagreement(forecast, terms, counted_bound(values, duration_us, 2.0), values)


def test_a_crossover_is_named_only_where_the_terms_are_close() -> None:
    assert "crossover" in _explain("bandwidth", {"bandwidth": 100.0, "chain": 95.0}, IDLE)
    assert "crossover" not in _explain("bandwidth", {"bandwidth": 100.0, "chain": 50.0}, IDLE)
    # The rival that counts is the one that the counters name.
    text = _explain("bandwidth", {"bandwidth": 100.0, "issue": 99.0, "chain": 10.0}, IDLE)
    assert "crossover" not in text
    far = _explain("bandwidth", {"bandwidth": 100.0, "chain": 95.0}, {**IDLE, **_values(dram=2.0)})
    assert "fits both" not in far and "2% of its peak is far from its limit" in far
    ambiguous = _explain("chain", {"chain": 1.0, "bandwidth": 1.1}, _values(dram=70.0))
    assert "crossover" in ambiguous and "ambiguous" in ambiguous


def test_a_tail_dilutes() -> None:
    text = _explain("bandwidth", {}, {**IDLE, "sm_active_pct": 55.0})
    assert "55% of the time" in text and "tail" in text
    waves = _explain("bandwidth", {}, {**IDLE, "waves_per_sm": 1.2})
    assert "1.20 waves" in waves
    assert "tail" not in _explain("bandwidth", {}, {**IDLE, "sm_active_pct": 97.0})


def test_caches_clocks_and_launches_are_named_with_their_numbers() -> None:
    assert "40% of the sectors" in _explain("bandwidth", {}, {**IDLE, "l2_hit_pct": 40.0})
    assert "sectors" not in _explain("bandwidth", {}, {**IDLE, "l2_hit_pct": 4.0})
    assert "1.75 GHz" in _explain("bandwidth", {}, {**IDLE, "sm_clock_hz": 1.75e9})
    assert "does nothing" in _explain("chain", {}, IDLE, duration_us=5.0)
    assert "50.0 times an empty launch" in _explain("launch", {}, IDLE)


def test_every_pair_has_an_explanation_beyond_the_two_names() -> None:
    counts = ((_values(), 100.0), (FULL, 100.0), (_values(issue=90.0), 100.0), (IDLE, 100.0))
    for forecast in ("bandwidth", "issue", "chain", "launch", "tail"):
        for values, duration_us in (*counts, (IDLE, 4.0)):
            found = counted_bound(values, duration_us, 2.0)
            text = explain_disagreement(forecast, {}, found, values)
            assert text.endswith(".") and ".." not in text
            assert found.bound == forecast or text.count(". ") >= 1, text


# ---------------------------------------------------------------- counters of runs that differ

ALIKE = _values(dram=90.0, instructions_per_cycle=1.6, achieved_occupancy_pct=25.0)
"""16 warps on an SM of 64, both ways."""
MOST_APART = 0.07
"""What `PASSES_AGREE` says of records with a cold cache."""


def test_counters_that_make_other_warps_than_the_occupancy_do_not_belong_together() -> None:
    assert passes_apart(ALIKE, 64) == ""
    assert counted_bound(ALIKE, 100.0, 2.0, max_warps_per_sm=64).bound == "bandwidth"
    mixed = {**ALIKE, "instructions_per_cycle": 0.8}
    assert "8.00 warps on an SM, the occupancy says 16.00" in passes_apart(mixed, 64)
    found = counted_bound(mixed, 100.0, 2.0, max_warps_per_sm=64)
    assert (found.bound, found.apart) == (None, True)
    assert found.reason.startswith("the counters do not belong together")
    assert explain_disagreement("chain", {}, found, mixed) == (
        f"The forecast says chain; {found.reason}."
    )
    assert counted_bound(mixed, 100.0, 2.0).bound == "bandwidth"  # not asked
    # That it is no more than its launch rests on one duration alone.
    assert counted_bound(mixed, 5.0, 2.0, max_warps_per_sm=64).bound == "launch"


def test_empty_schedulers_a_rounded_rate_and_a_missing_counter_are_no_fault() -> None:
    # A scheduler without a warp is in neither way to the warps, whatever the issue slots say.
    for issue in (10.0, 40.0):
        assert passes_apart({**ALIKE, "issue_slot_pct": issue}, 64) == ""
    # 0.05 may be 0.0549: a tenth off is its rounding.
    small = {"instructions_per_cycle": 0.05, "achieved_occupancy_pct": 1.5625}
    assert passes_apart({**small, "warp_latency_cycles": 18.0}, 64) == ""
    assert passes_apart({**small, "warp_latency_cycles": 14.0}, 64) != ""
    assert passes_apart({**small, "warp_latency_cycles": 30.0}, 64) != ""
    for name in ("instructions_per_cycle", "warp_latency_cycles", "achieved_occupancy_pct"):
        for value in (None, 0.0, float("nan")):
            assert passes_apart({**ALIKE, "instructions_per_cycle": 0.1, name: value}, 64) == ""


def test_of_the_shipped_records_only_warm_ones_mix_their_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a cold cache every run finds it cold, so such a record would be a false alarm."""
    monkeypatch.setattr(bounds, "PASSES_AGREE", MOST_APART)
    profiled = with_counters(RecordStore().load())
    most = {name: load_gpu(name).max_warps_per_sm for name in list_gpus()}
    named = [
        one
        for one in profiled
        if one.counters and passes_apart(one.counters.values, most[one.provenance.gpu_slug])
    ]
    cold = [one for one in profiled if getattr(one.problem, "cache_state", "cold") == "cold"]
    assert len(cold) > len(profiled) / 2 and named
    assert all(one.problem.cache_state == "warm" for one in named)
    # And each of them took longer under the profiler than it does with its cache warm.
    for one in named:
        assert one.counters is not None
        assert (one.counters.values["duration_us"] or 0.0) > 1.1 * one.median_us
    assert any(one.candidate == "r07_int4" and one.problem.kv_len == 4096 for one in named)
