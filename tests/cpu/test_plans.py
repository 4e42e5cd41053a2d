"""The plans: what their text means, the points by kernel family, and the bench beside its peers."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

import labtools.problem as lp
from labtools.measure.campaign import plan as campaign_plan
from labtools.measure.campaign.plan import (
    FAMILY_OF,
    PLANS_DIR,
    Plan,
    Section,
    _read_choices,
    expand_plan,
    load_plan,
    of_family,
    plan_names,
    points_by_stratum,
    stratum_of,
)
from labtools.measure.gpu.job import rung_candidate
from labtools.predict import accuracy
from labtools.predict.accuracy import point_families, point_strata, points_file
from research import draw_peers
from tools.build_flashinfer import build_specs, xqa_kernels

WARM_BYTES = 24_000_000
MOST_WORKLOADS = 40
CALIBRATION, TEST = (load_plan(name) for name in FAMILY_OF)
SMALL = lp.Workload(2, 4, 2, 64, 64)


def family_of(label: str) -> str:
    """The side of the split that a candidate's kernel is on."""
    kernel = label.split()[0].removeprefix("ceiling:")
    (side,) = [name for name, ids in point_families().items() if kernel in ids]
    return side


def points() -> list[tuple[str, lp.Workload, str]]:
    """(label, workload, stratum) of every point."""
    groups = [*expand_plan(CALIBRATION)[0], *expand_plan(TEST)[0]]
    workloads = {group.workload.key(): group.workload for group in groups}
    every = points_by_stratum().items()
    return [(label, workloads[key], stratum) for (label, key), stratum in every]


@pytest.mark.parametrize(
    ("text", "knobs"),
    [
        ("r03", [{}]),
        ("r03 unroll=1|2 split=4", [{"unroll": 1, "split": 4}, {"unroll": 2, "split": 4}]),
        (
            "r03 unroll=4, unroll=1 split=2",
            [{"unroll": 4}, {"unroll": 1}, {"unroll": 4, "split": 2}],
        ),
    ],
)
def test_a_line_of_a_plan_names_choices(text: str, knobs: list[dict[str, int]]) -> None:
    assert _read_choices(text) == [("r03_one_warp", one) for one in knobs]


def test_every_shipped_plan_expands() -> None:
    for plan in map(load_plan, plan_names()):
        assert expand_plan(plan)[0]
        for section in plan.sections:
            computed = {lp.operation_of(one).name for one in section.workloads}
            of = {lp.load_baseline(name).operation for name in section.baselines}
            assert of <= computed, f"{plan.name} has baselines of other operations"
    with pytest.raises(lp.LabError, match="There is no plan"):
        load_plan("nothing")


def test_the_ladder_begins_with_the_headline_and_has_its_range_of_workloads() -> None:
    groups, left_out = expand_plan(load_plan("ladder"))
    by_key = {group.workload.key(): group for group in groups}
    headline = by_key[lp.HEADLINE.key()]
    assert headline is groups[0] and len(by_key) == len(groups)
    for name in ("r00_two_passes", "r01_online_softmax", "r02_one_barrier", "r03_one_warp"):
        assert any(label.startswith(name) for label in headline.candidates)
        assert any(label.startswith(name) for label in headline.profile)
    # unroll x launch bounds x block shape: 4 x 2 x (3 of r02 and r03 itself)
    assert sum(label.startswith(("r02", "r03")) for label in headline.candidates) == 4 * 2 * 4
    assert all(group.workload.kv_bytes <= 2.2e9 and group.ceiling for group in groups)
    for batch in (1, 4, 16, 64, 128):
        assert lp.HEADLINE.replace(batch=batch, kv_len=512).key() in by_key
    assert all("not installed" in reason for reason in left_out.values())


def test_equal_workloads_are_merged_into_one_group() -> None:
    first = Section((SMALL,), (("r02_one_barrier", {}),))
    rungs = (("r02_one_barrier", {"unroll": 4}), ("r03_one_warp", {}))
    (group,), _ = expand_plan(Plan("merge", "", (first, Section((SMALL,), rungs, ceiling=True))))
    assert len(group.candidates) == 2  # unroll=4 is the default
    assert group.ceiling


def test_a_candidate_that_cannot_run_a_shape_is_left_out_there() -> None:
    for workload, labels in (
        (SMALL, ["baseline:sdpa_expanded"]),
        (lp.Workload(2, 4, 4, 64, 64), []),
    ):
        plan = Plan("some", "", (Section((workload,), baselines=("sdpa_expanded",)),))
        (group,), left_out = expand_plan(plan)
        assert list(group.candidates) == labels
        assert labels or left_out == {}


def test_every_workload_of_the_bench_has_every_fair_peer_and_the_ceiling() -> None:
    bench = load_plan("bench")
    groups = {group.workload.key(): group for group in expand_plan(bench)[0]}
    fair = {one.id for one in lp.list_baselines() if one.fair}
    peers = set(bench.sections[2].baselines)
    assert fair - peers == {"sdpa_math"}  # torch's plain arithmetic, on the headline only
    assert set(bench.sections[0].baselines) == {one.id for one in lp.list_baselines()}
    for text in bench.lists["table"] + bench.lists["noted"]:
        workload = lp.Workload.parse(text)
        group = groups[workload.key()]
        assert group.ceiling
        for name in peers:
            reason = lp.load_baseline(name).supports(workload)
            assert reason or f"baseline:{name}" in group.candidates


def test_the_plan_of_peers_has_the_readmes_workloads_and_those_that_are_drawn() -> None:
    bench, peers = load_plan("bench"), load_plan("peers")
    chosen, *drawn = peers.sections
    named = bench.lists["table"] + bench.lists["noted"]
    assert list(chosen.workloads) == [lp.Workload.parse(text) for text in named]
    every = [workload for section in drawn for workload in section.workloads]
    assert every == draw_peers.draw_all() and len(every) == 12
    text = (PLANS_DIR / "peers.toml").read_text("utf-8")
    assert text.endswith(draw_peers.say_sections(every))
    kinds = {(one.layout, one.uneven, one.dtype, one.head_dim) for one in every}
    assert {("paged", True), ("contiguous", True)} <= {kind[:2] for kind in kinds}
    assert {"bfloat16", "float16"} == {kind[2] for kind in kinds}
    assert {64, 128} == {kind[3] for kind in kinds}
    assert all(8e6 <= one.kv_bytes <= 2e9 for one in every)


def test_the_plan_of_peers_leaves_out_what_torch_chooses_among() -> None:
    fair = {one.id for one in lp.list_baselines() if one.fair}
    named = {f"sdpa_{backend}" for backend in ("math", "flash", "cudnn", "efficient")}
    assert all(fair - set(one.baselines) == named for one in load_plan("peers").sections)


def test_xqas_kernels_are_those_of_a_plans_workloads() -> None:
    wanted = xqa_kernels("peers")
    assert ("float16", False, 64, 128, 4) in wanted and ("float16", True, 64, 64, 4) in wanted
    assert ("bfloat16", True, 64, 128, 8) in wanted and len(set(wanted)) == len(wanted)
    assert ("float16", False, 16, 128, 4) in xqa_kernels("bench")
    assert xqa_kernels("quick") == []


def test_what_does_not_compile_keeps_nothing_else_from_it() -> None:
    built: list[str] = []

    class Spec:
        def __init__(self, name: str) -> None:
            self.name = name

        def build(self, need_lock: bool) -> None:
            if self.name == "b":
                raise RuntimeError("an error in b")
            built.append(self.name)

    assert build_specs([Spec(name) for name in "abc"]) == ["b: an error in b"]
    assert sorted(built) == ["a", "c"]


def test_every_kernel_is_on_one_side() -> None:
    split = point_families()
    assert set(split) == {"calibration", "test"}
    ids = [one for side in split.values() for one in side]
    assert len(ids) == len(set(ids))
    written = {rung.id for rung in (*lp.list_rungs(), *lp.list_studies())} | {"read_sweep"}
    later = set(points_file()["later"]["rungs"])
    assert set(ids) | later == written
    assert not set(ids) & later


def test_a_kernel_on_both_sides_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    split = {"families": {"calibration": ["r00_two_passes"], "test": ["r00_two_passes"]}}
    monkeypatch.setattr(accuracy, "points_file", lambda: split)
    with pytest.raises(lp.LabError, match="no test of it"):
        point_families()


def test_a_kernel_without_a_side_is_refused() -> None:
    extra = Section((lp.HEADLINE,), (("r99_unknown", {}),), stratum="chain")
    with pytest.raises(lp.LabError, match="belong to no family"):
        of_family("test", [extra])


def test_a_plan_takes_the_points_of_its_side_only() -> None:
    for plan, side in ((CALIBRATION, "calibration"), (TEST, "test")):
        groups, left_out = expand_plan(plan)
        assert left_out == {}
        assert len(groups) <= MOST_WORKLOADS
        assert {family_of(label) for group in groups for label in group.candidates} == {side}
        assert all(section.stratum in point_strata() for section in plan.sections)
        assert not any(section.baselines for section in plan.sections)
    assert not any(section.ceiling for section in TEST.sections)
    assert any(section.ceiling for section in CALIBRATION.sections)


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
    groups = [*expand_plan(CALIBRATION)[0], *expand_plan(TEST)[0]]
    planned = {(label, one.workload.key()) for one in groups for label in one.candidates}
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


def test_a_record_finds_its_stratum() -> None:
    label = rung_candidate("r03", {"unroll": 1}).label
    assert stratum_of(label, lp.Workload.parse("1,32,8,4096,128")) == "chain"
    assert stratum_of(label, lp.Workload.parse("1,32,8,4097,128")) is None
    warm = lp.Workload.parse("1,32,8,1024,128").replace(cache_state="warm")
    assert stratum_of(label, warm) == "warm_l2"
    assert stratum_of(label, warm.replace(cache_state="cold")) is None


def test_a_point_in_two_strata_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    first = TEST.sections[0]
    doubled = Plan("twice", "", (*TEST.sections, replace(first, stratum="tail")))
    monkeypatch.setattr(campaign_plan, "load_plan", lambda name: doubled)
    points_by_stratum.cache_clear()
    try:
        with pytest.raises(lp.LabError, match="two strata"):
            points_by_stratum()
    finally:
        points_by_stratum.cache_clear()
