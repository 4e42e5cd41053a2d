"""The plan of the bench: the workloads that the guide states ratios on, with every fair peer."""

from __future__ import annotations

from labtools.measure.campaign.decode.bench import (
    AIMS,
    FAST,
    FROM_R03,
    INVERTED,
    NOTED_WORKLOADS,
    PEERS,
    TABLE_WORKLOADS,
    TRIED_LAYOUTS,
    VARIED_WORKLOADS,
    bench_sections,
    ragged,
    written,
)
from labtools.measure.campaign.plan import expand_plan, load_plan
from labtools.measure.gpu.job import rung_candidate
from labtools.problem import (
    HEADLINE,
    Workload,
    kernels_dir,
    list_baselines,
    load_baseline,
    load_rung,
)
from labtools.record import RecordStore, fair_peers


def test_every_table_workload_has_every_fair_peer_and_the_ceiling() -> None:
    groups = {group.workload.key(): group for group in expand_plan(load_plan("bench"))[0]}
    for text in (*TABLE_WORKLOADS, *NOTED_WORKLOADS):
        workload = Workload.parse(text)
        group = groups[workload.key()]
        assert group.ceiling
        for name in PEERS:
            reason = load_baseline(name).supports(workload)
            assert reason or f"baseline:{name}" in group.candidates
        for name, _ in written(*FAST):
            assert load_rung(name).supports(workload) or any(
                label.split(" ")[0] == name for label in group.candidates
            )


def test_peers_leave_out_only_what_no_comparison_needs() -> None:
    fair = {one.id for one in list_baselines() if one.fair}
    assert fair - set(PEERS) == {"sdpa_math"}  # torch's plain arithmetic, on the headline only
    (headline, *_) = bench_sections()
    assert headline.workloads == (HEADLINE,)
    assert set(headline.baselines) == {one.id for one in list_baselines()}


def test_rungs_that_are_not_there_are_left_out() -> None:
    there = {path.stem for path in (kernels_dir() / "decode").glob("*.py")}
    assert [name for name, _ in written(*FROM_R03, "r99_nothing")] == [
        name for name in FROM_R03 if name in there
    ]


def test_variants_have_flashinfer_as_peer() -> None:
    workloads = [one for section in bench_sections() for one in section.workloads]
    base = [Workload.parse(text) for text in VARIED_WORKLOADS]
    for one in base:
        assert one.replace(dtype="bfloat16") in workloads
        for size in (16, 64):
            assert one.replace(layout="paged", page_size=size) in workloads
    uneven = [one for one in workloads if one.seq_lens is not None]
    assert len(uneven) == 2
    flash = load_baseline("flashinfer")
    assert {"contiguous", "paged"} == set(flash.layouts)
    assert set(INVERTED) < set(FAST)


def test_every_table_workload_has_aims_for_the_rungs_that_run_it() -> None:
    assert tuple(AIMS) == TABLE_WORKLOADS
    for text, aims in AIMS.items():
        can = [load_rung(name).supports(Workload.parse(text)) is None for name in INVERTED]
        assert can == [True] * len(aims) + [False] * (len(INVERTED) - len(aims))


def test_the_layouts_are_tried_beside_the_one_that_the_rule_takes() -> None:
    groups = {group.workload.key(): group for group in expand_plan(load_plan("bench"))[0]}
    for text, choices in TRIED_LAYOUTS.items():
        labels = groups[Workload.parse(text).key()].candidates
        for name in INVERTED:
            rung = load_rung(name)
            assert rung_candidate(rung, {}).label in labels
        for name, knobs in choices:
            assert rung_candidate(load_rung(name), knobs).label in labels


def test_ragged_lengths_spread_and_stay_inside() -> None:
    for batch in (2, 7, 8, 64):
        lengths = ragged(HEADLINE.replace(batch=batch)).seq_lens
        assert lengths is not None and len(lengths) == batch
        assert max(lengths) == HEADLINE.kv_len
        assert min(lengths) >= HEADLINE.kv_len // 20
        assert len(set(lengths)) == batch
    single = HEADLINE.replace(batch=1)
    assert ragged(single) == single


def test_the_recorded_headline_has_fair_peers() -> None:
    records = RecordStore().query("h200", workload=HEADLINE, kind="baseline")
    assert len({one.name for one in fair_peers(records)}) >= 4
