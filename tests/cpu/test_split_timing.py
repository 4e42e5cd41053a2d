"""Memory that a call allocates, plain launches by intent, and how a record tells them apart."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from devices import LIMITS
from live_fake import DEVICE, use_fake_gpu

from labtools.measure.campaign.plan import Plan, Section, expand_plan
from labtools.measure.campaign.recording import Effort, record_campaign
from labtools.measure.gpu.job import bytes_in_call, make_job, move_outside, rung_candidate
from labtools.measure.gpu.measure import time_candidates
from labtools.predict import limits_of
from labtools.problem import Launch, Limits, Rung, Workload, load_rung
from labtools.record import Record, RecordStore, freshness, read_records

WORKLOAD = Workload(2, 4, 2, 64, 64)
KERNELS_US = 12.0 + 3.0
MEMORY_US = 30.0 + 20.0
PARTIAL_BYTES = 2 * 4 * 8 * (64 + 2) * 4


def outside(workload: Workload, limits: Limits, knobs: dict[str, int]) -> list[Launch]:
    """r04's launch with its one line changed."""
    return [
        dataclasses.replace(
            one, workspace=tuple(dataclasses.replace(s, in_call=False) for s in one.workspace)
        )
        for one in load_rung("r04").launch(workload, limits, knobs)
    ]


def test_what_a_call_allocates_is_timed_and_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use_fake_gpu(monkeypatch, tmp_path)
    timing = time_candidates(
        [
            "r04",
            rung_candidate("r04", timing="stream", outside=True),
            rung_candidate("r04", outside=True),
            rung_candidate("r03", timing="stream"),
            "r03",
        ],
        WORKLOAD,
        processes=2,
        rounds=6,
        ceiling=False,
    )
    assert timing.failures == {}
    first = timing.find("r04", experiment="")
    assert first.median_us == pytest.approx(KERNELS_US + MEMORY_US)
    assert first.protocol == "stream-1"
    assert first.notes == (
        f"every call allocates and frees {PARTIAL_BYTES} bytes of device memory",
    )
    assert first.comparison.worst_error is not None
    assert first.comparison.worst_error < 1e-3
    assert first.samples.processes[0].launches_per_sample > 1
    for experiment, protocol in (("stream+outside", "stream-1"), ("outside", "graph-1")):
        moved = timing.find("r04", experiment=experiment)
        assert moved.median_us == pytest.approx(KERNELS_US)
        assert moved.protocol == protocol
        assert moved.notes == ()
    assert timing.find("r03", experiment="stream").protocol == "stream-1"
    assert timing.find("r03", experiment="").protocol == "graph-1"
    assert len({record.identity() for record in timing.records}) == 5


def test_the_readers_own_launch_decides(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    use_fake_gpu(monkeypatch, tmp_path)
    mine = load_rung("r04").with_launch(outside)
    timing = time_candidates([mine], WORKLOAD, processes=1, rounds=5, ceiling=False)
    (record,) = timing.records
    assert record.median_us == pytest.approx(KERNELS_US)
    assert record.protocol == "graph-1"


def test_a_call_that_allocates_is_never_captured() -> None:
    rung = load_rung("r04")
    launches = rung.launches(WORKLOAD, LIMITS)
    assert bytes_in_call(launches) == PARTIAL_BYTES
    assert bytes_in_call(move_outside(launches)) == 0

    def timing_of(target: Rung | str, **how: object) -> str:
        candidate = rung_candidate(target, **how)  # type: ignore[arg-type]
        return make_job(candidate, WORKLOAD, limits_of(DEVICE)).timing

    assert timing_of("r04") == "stream"
    assert timing_of("r04", outside=True) == "graph"
    assert timing_of("r03") == "graph"
    assert timing_of("r03", timing="stream") == "stream"


def test_experiments_are_found_when_asked_for_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use_fake_gpu(monkeypatch, tmp_path)
    rungs = (("r04_split_first", {}), ("r03_one_warp", {}))
    plan = Plan(
        "moved",
        "",
        (
            Section((WORKLOAD,), rungs),
            Section((WORKLOAD,), rungs, timing="stream", outside=True),
            Section((WORKLOAD,), rungs[:1], outside=True),
        ),
    )
    (group,), _ = expand_plan(plan)
    assert len(group.candidates) == 5
    report = record_campaign(plan, tmp_path / "out", Effort(1, 5, sanitize=False))
    assert report.ok, report.failures
    again = record_campaign(plan, tmp_path / "out", Effort(1, 5, sanitize=False))
    assert again.resumed == 1
    recorded = read_records(report.path)[0]
    store = RecordStore([tmp_path / "out"])
    assert len(recorded) == 5
    assert all(freshness(record).fresh for record in recorded)
    (plain,) = store.query("fake", "r04", WORKLOAD)
    assert plain.experiment == ""
    assert plain.protocol == "stream-1"
    found = store.query("fake", "r04", WORKLOAD, experiment="outside")
    assert [record.protocol for record in found] == ["graph-1"]
    assert len(store.query("fake", "r04", WORKLOAD, experiment=None)) == 3
    assert [one.protocol for one in store.query("fake", "r03", WORKLOAD)] == ["graph-1"]
    # A record from before there were experiments has none.
    data = recorded[0].model_dump(mode="json", exclude={"experiment"})
    assert Record.model_validate(data).experiment == ""
