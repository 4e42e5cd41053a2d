"""The points that the forecast is held against: the split by kernel family and the strata."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from labtools.measure.campaign.decode import points as campaign_points
from labtools.measure.campaign.decode.points import (
    POINTS_CALIBRATION,
    POINTS_TEST,
    PointSet,
    points_by_stratum,
    sets_of_family,
    stratum_of,
)
from labtools.measure.campaign.plan import expand_plan
from labtools.measure.campaign.section import Plan, Section
from labtools.measure.gpu.job import rung_candidate
from labtools.predict import accuracy
from labtools.predict.accuracy import point_families, point_strata, points_file
from labtools.problem import HEADLINE, LabError, Workload, list_rungs, list_studies

WARM_BYTES = 24_000_000
MOST_WORKLOADS = 40


def family_of(label: str) -> str:
    """The side of the split that a candidate's kernel is on."""
    kernel = label.split()[0].removeprefix("ceiling:")
    (side,) = [name for name, ids in point_families().items() if kernel in ids]
    return side


def points() -> list[tuple[str, Workload, str]]:
    """(label, workload, stratum) of every point."""
    workloads = {
        group.workload.key(): group.workload
        for plan in (POINTS_CALIBRATION, POINTS_TEST)
        for group in expand_plan(plan)[0]
    }
    return [
        (label, workloads[key], stratum) for (label, key), stratum in points_by_stratum().items()
    ]


def test_every_kernel_is_on_one_side() -> None:
    split = point_families()
    assert set(split) == {"calibration", "test"}
    ids = [one for side in split.values() for one in side]
    assert len(ids) == len(set(ids))
    written = {rung.id for rung in (*list_rungs(), *list_studies())} | {"read_sweep"}
    later = set(points_file()["later"]["rungs"])
    assert set(ids) | later == written
    assert not set(ids) & later


def test_a_kernel_on_both_sides_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    split = {"families": {"calibration": ["r00_two_passes"], "test": ["r00_two_passes"]}}
    monkeypatch.setattr(accuracy, "points_file", lambda: split)
    with pytest.raises(LabError, match="no test of it"):
        point_families()


def test_a_kernel_without_a_side_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    extra = PointSet("chain", (HEADLINE,), (("r99_unknown", {}),))
    monkeypatch.setattr(campaign_points, "POINTS", (*campaign_points.POINTS, extra))
    with pytest.raises(LabError, match="belong to no family"):
        sets_of_family("test")


def test_a_plan_takes_the_points_of_its_side_only() -> None:
    for plan, side in ((POINTS_CALIBRATION, "calibration"), (POINTS_TEST, "test")):
        groups, left_out = expand_plan(plan)
        assert left_out == {}
        assert len(groups) <= MOST_WORKLOADS
        assert {family_of(label) for group in groups for label in group.candidates} == {side}
        assert all(section.stratum in point_strata() for section in plan.sections)
        assert not any(section.baselines for section in plan.sections)
    assert not any(section.ceiling for section in POINTS_TEST.sections)
    assert any(section.ceiling for section in POINTS_CALIBRATION.sections)


def test_there_are_enough_points_in_every_stratum() -> None:
    found = points()
    sides = Counter(family_of(label) for label, _, _ in found)
    assert sides.total() >= 340
    assert sides["test"] >= 230
    overall = Counter(stratum for _, _, stratum in found)
    test = Counter(stratum for label, _, stratum in found if family_of(label) == "test")
    assert set(overall) == set(point_strata())
    assert min(overall.values()) >= 40
    assert min(test.values()) >= 25


def test_the_plans_hold_just_the_points() -> None:
    planned = {
        (label, group.workload.key())
        for plan in (POINTS_CALIBRATION, POINTS_TEST)
        for group in expand_plan(plan)[0]
        for label in group.candidates
    }
    ceilings = {point for point in points_by_stratum() if point[0].startswith("ceiling:")}
    assert planned | ceilings == set(points_by_stratum())
    assert not planned & ceilings


def test_workloads_fit_their_strata_and_the_device() -> None:
    for label, workload, stratum in points():
        assert 2 * workload.set_bytes <= 4.4e9, label
        if stratum == "warm_l2":
            assert workload.cache_state == "warm"
            assert workload.kv_bytes < WARM_BYTES
            assert workload.kv_len >= 512
        if stratum == "launch":
            assert workload.kv_len <= 8
        if stratum in ("chain", "crossover", "bandwidth", "tail"):
            assert workload.cache_state == "cold"
        if stratum == "bandwidth":
            assert workload.kv_bytes > 300e6
        if stratum == "chain":
            assert workload.batch * workload.num_qo_heads <= 256


def test_grids_of_the_tail_are_a_little_above_a_full_wave() -> None:
    ragged = [w for _, w, stratum in points() if stratum == "tail" and w.seq_lens is not None]
    assert len({w.key() for w in ragged}) == 3
    assert all(2 * w.lengths.min() < w.lengths.max() for w in ragged)
    blocks = {
        w.batch * w.num_qo_heads
        for _, w, stratum in points()
        if stratum == "tail" and w.seq_lens is None
    }
    assert {132 * 32 + 32, 132 * 16 + 32, 132 * 8 + 32, 132 + 4} == blocks


def test_many_pairs_differ_in_one_knob() -> None:
    """The direction of a change is tested on pairs; both sides of the split need some."""
    by_workload: dict[tuple[str, str], list[dict[str, str]]] = {}
    for label, workload, _ in points():
        kernel, _, knobs = label.partition(" ")
        values = dict(one.split("=") for one in knobs.split(","))
        by_workload.setdefault((kernel, workload.key()), []).append(values)
    pairs: Counter[str] = Counter()
    for (kernel, _), choices in by_workload.items():
        for first, second in itertools.combinations(choices, 2):
            if sum(first[name] != second[name] for name in first) == 1:
                pairs[family_of(kernel)] += 1
    assert pairs["test"] >= 150
    assert pairs["calibration"] >= 60


def test_heads_dims_and_batches_vary_on_both_sides() -> None:
    for side in ("calibration", "test"):
        workloads = [workload for label, workload, _ in points() if family_of(label) == side]
        assert {w.head_dim for w in workloads} == {64, 128}
        assert {1, 4} <= {w.group_size for w in workloads}
        assert {w.cache_state for w in workloads} == {"cold", "warm"}
        assert len({w.batch for w in workloads}) >= 8
        assert len({w.kv_len for w in workloads}) >= 8


def test_a_record_finds_its_stratum() -> None:
    label = rung_candidate("r03", {"unroll": 1}).label
    assert stratum_of(label, Workload.parse("1,32,8,4096,128")) == "chain"
    assert stratum_of(label, Workload.parse("1,32,8,4097,128")) is None
    warm = Workload.parse("1,32,8,1024,128").replace(cache_state="warm")
    assert stratum_of(label, warm) == "warm_l2"
    assert stratum_of(label, warm.replace(cache_state="cold")) is None


def test_a_point_in_two_strata_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    first = POINTS_TEST.sections[0]
    again = Section(first.workloads, first.rungs, ceiling=False, stratum="tail")
    doubled = Plan("twice", "", (*POINTS_TEST.sections, again))
    monkeypatch.setattr(campaign_points, "POINTS_TEST", doubled)
    points_by_stratum.cache_clear()
    try:
        with pytest.raises(LabError, match="two strata"):
            points_by_stratum()
    finally:
        points_by_stratum.cache_clear()
