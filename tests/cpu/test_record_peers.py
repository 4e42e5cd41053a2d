"""Fair peers, floors and verdicts: who may be compared with whom."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from record_samples import make_record

from labtools.problem import HEADLINE, LabError
from labtools.record import (
    Record,
    best_read_gb_per_s,
    fair_peers,
    measured_together,
    say_verdict,
    standings,
)
from labtools.record.headline import compare_rungs, find_headline, say_headline


def five(us: float) -> list[list[float]]:
    """Five processes with a little noise."""
    return [[us * (1 + 0.001 * p), us * (1 - 0.001 * p), us] for p in range(5)]


def quantised(candidate: str, us: float, bits: int, **changes: object) -> Record:
    made = make_record(candidate, five(us), **changes)
    read = HEADLINE.kv_bytes * bits // 16
    return made.model_copy(update={"codec": f"int{bits}", "kv_bytes_read": read})


SDPA, FLASH = make_record("baseline:sdpa", five(40)), make_record("baseline:sdpa_flash", five(50))
EXPANDED = make_record("baseline:sdpa_expanded", five(10))
FP8 = quantised("baseline:flashinfer_fp8", 25, 8)


def test_handicapped_and_fp8_baselines_are_no_fair_fp16_peers() -> None:
    every = [FLASH, EXPANDED, FP8, SDPA]
    assert fair_peers(every) == [SDPA, FLASH]
    assert fair_peers(every, 8) == [FP8]
    assert fair_peers([make_record("r03_one_warp", five(1))]) == []
    assert fair_peers([make_record("baseline:somebodys", five(1))]) == []


def test_each_stands_against_the_fastest_of_its_bits() -> None:
    r09, r10 = make_record("r03_one_warp", five(32)), quantised("r02_one_barrier", 20, 8)
    found = {one.record.candidate: one for one in standings([FLASH, SDPA, FP8, r09, r10])}
    assert found["r03_one_warp"].against.first == "baseline:sdpa"
    assert found["r03_one_warp"].against.ratio == pytest.approx(1.25, rel=0.01)
    assert found["r03_one_warp"].against_low_bit is None
    assert found["r02_one_barrier"].against.ratio == pytest.approx(2.0, rel=0.01)
    assert found["r02_one_barrier"].against_low_bit.first == "baseline:flashinfer_fp8"
    assert found["r02_one_barrier"].against_low_bit.ratio == pytest.approx(1.25, rel=0.01)
    assert found["baseline:sdpa"].against is None
    assert [one.record.median_us for one in standings([FLASH, SDPA, FP8])] == [25, 40, 50]


def test_nothing_beats_its_floor_and_bits_count() -> None:
    ceiling = make_record("ceiling:read_sweep", five(30))
    half = quantised("r02_one_barrier", 16, 8)
    found = {one.record.candidate: one for one in standings([ceiling, SDPA, half])}
    assert "ceiling:read_sweep" not in found
    assert found["baseline:sdpa"].floor_us == pytest.approx(30)
    assert found["baseline:sdpa"].to_floor.ratio == pytest.approx(40 / 30, rel=0.01)
    # Half the bytes, so half the floor.
    assert found["r02_one_barrier"].floor_us == pytest.approx(15)
    assert found["r02_one_barrier"].to_floor.ratio == pytest.approx(16 / 15, rel=0.01)
    # A kernel that reads faster than the sweep is the floor itself.
    fastest = make_record("r03_one_warp", five(20))
    found = {one.record.candidate: one for one in standings([ceiling, fastest])}
    assert found["r03_one_warp"].to_floor.ratio == 1.0
    assert found["r03_one_warp"].reader == "r03_one_warp"


def test_a_quantised_cache_does_not_count_as_fp16_bytes() -> None:
    quarter = quantised("r03_one_warp", 10, 4)
    assert quarter.gb_per_s == pytest.approx(HEADLINE.kv_bytes / 4 / 10 / 1e3)
    assert best_read_gb_per_s([quarter, SDPA]) == pytest.approx(SDPA.gb_per_s)


def test_a_verdict_needs_five_processes_and_an_interval_off_one() -> None:
    def verdict(us: list[list[float]]) -> str:
        peer = make_record("baseline:sdpa", [[40.0, 40.0]] * len(us))
        (one,) = (x for x in standings([peer, make_record("r03_one_warp", us)]) if x.against)
        return say_verdict(one.against)

    assert verdict(five(30)) == "faster"
    assert verdict(five(60)) == "slower"
    assert verdict([[38.0], [39.0], [40.0], [41.0], [42.0]]) == "equal"
    assert "too few" in verdict([[30.0]])
    assert "too few" in verdict([[30.0]] * 4)


def test_records_of_two_campaigns_do_not_stand_together() -> None:
    with pytest.raises(LabError, match="not measured together"):
        standings([SDPA, make_record("r03_one_warp", five(30), campaign="other")])


def dated(record: Record, campaign: str, day: int) -> Record:
    source = record.provenance.model_copy(update={"date": datetime(2026, 1, day, tzinfo=UTC)})
    return record.model_copy(update={"campaign": campaign, "provenance": source})


def test_the_fullest_campaign_speaks_and_then_the_newest() -> None:
    r02, r03 = make_record("r02_one_barrier", five(90)), make_record("r03_one_warp", five(60))
    full = [dated(one, "full", 1) for one in (SDPA, r02, r03)]
    later = [dated(one, "later", 3) for one in (SDPA, r03)]
    alone = [dated(one, "alone", 4) for one in (r02, r03)]
    assert measured_together([*later, *full, *alone]) == full
    newer = [dated(one, "newer", 2) for one in (SDPA, r02, r03)]
    assert measured_together([*newer, *full]) == newer
    flash = make_record("baseline:sdpa_flash", five(45))
    beside = [dated(one, "beside", 1) for one in (SDPA, flash, r03)]
    assert measured_together([*beside, *full], having=r03.candidate) == beside


def usual(candidate: str, us: float, **changes: object) -> Record:
    from labtools.problem import load_rung

    return make_record(
        candidate, five(us), **{"knobs": load_rung(candidate).resolve_knobs(), **changes}
    )


def test_the_headline_is_paired_and_named() -> None:
    slug = SDPA.provenance.gpu_slug
    assert find_headline([], gpu=slug) is None
    assert "no record yet" in say_headline(None)[0]
    records = [SDPA, FLASH, EXPANDED, FP8, usual("r03_one_warp", 400)]
    found = find_headline(records, gpu=slug)
    assert found is not None
    text = " ".join(say_headline(found))
    assert "takes 10.0 times" in text and "as long as sdpa" in text
    assert "as sdpa_expanded" in text
    assert "no record beside it yet" in text  # r09 was not timed
    assert find_headline(records, gpu="other") is None
    # Other knobs are another kernel.
    edited = usual("r03_one_warp", 400, knobs={"unroll": 1, "launch_bounds": 1})
    assert find_headline([SDPA, edited], gpu=slug) is None


def test_compare_rungs_leaves_out_what_has_no_peer() -> None:
    slug = SDPA.provenance.gpu_slug
    records = [SDPA, usual("r03_one_warp", 20)]
    (one,) = compare_rungs(records, [HEADLINE], ["r03_one_warp", "r02_one_barrier"], slug)
    assert one.standing.against.ratio == pytest.approx(2.0, rel=0.01)
    assert compare_rungs(records[1:], [HEADLINE], ["r03_one_warp"], slug) == []


def test_compare_rungs_takes_a_campaign_that_timed_the_rung() -> None:
    """One with more rungs, but without this one, must not hide it."""
    r00, r01, r03 = (
        usual(name, us)
        for name, us in (("r00_two_passes", 90), ("r01_online_softmax", 80), ("r03_one_warp", 20))
    )
    slug = SDPA.provenance.gpu_slug
    large = [dated(one, "large", 1) for one in (SDPA, r00, r01)]
    small = [dated(one, "small", 2) for one in (SDPA, r03)]
    found = compare_rungs([*large, *small], [HEADLINE], ["r00_two_passes", "r03_one_warp"], slug)
    assert [one.rung for one in found] == ["r00_two_passes", "r03_one_warp"]
    assert found[1].standing.against.ratio == pytest.approx(2.0, rel=0.01)
