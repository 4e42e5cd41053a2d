"""Timing on a fake GPU whose clock only kernels move, so that every number is known."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
from devices import LIMITS
from live_fake import use_fake_gpu

from labtools.measure.gpu import measure as live_measure
from labtools.measure.gpu import timing as live_timing
from labtools.measure.gpu.job import Candidate, baseline_of, make_job
from labtools.measure.gpu.measure import as_candidate, measure_live, time_candidates
from labtools.measure.gpu.plan import SAMPLE_US
from labtools.measure.profiler.watched import prepare_call
from labtools.problem import LabError, Workload, load_rung
from labtools.problem.rung import load_by_path
from labtools.record import median_problems, summary

WORKLOAD = Workload(2, 4, 2, 64, 64)


def test_times_ratio_and_ceiling(monkeypatch, tmp_path):
    use_fake_gpu(monkeypatch, tmp_path, sample_us=SAMPLE_US)
    said: list[str] = []
    three = ["r02", ("r03", {"unroll": 1}), "r03"]

    def note(text: str, done: int, total: int) -> None:
        said.append(text)

    timing = time_candidates(three, WORKLOAD, processes=2, rounds=6, progress=note)
    assert timing.failures == {}
    assert timing.find("r02").median_us == pytest.approx(20.0)
    assert timing.find("r03", {"unroll": 1}).median_us == pytest.approx(10.0)
    ratio = timing.ratio("r02", "r03_one_warp")
    assert (ratio.ratio, ratio.low, ratio.high) == pytest.approx((2.0, 2.0, 2.0))
    assert not ratio.equal
    assert ratio.processes == 2
    record = timing.find("r03", {"unroll": 4})
    assert [len(one.us) for one in record.samples.processes] == [6, 6]
    # Cold: the sets together are 8 times the fake L2 of 64 KiB; samples are as long as real ones.
    one = record.samples.processes[0]
    assert one.rotated_bytes >= 8 * 64 * 1024
    assert one.launches_per_sample % one.rotated_sets == 0
    assert one.launches_per_sample * 10.0 >= SAMPLE_US
    assert record.protocol == "graph-1"
    assert record.comparison.pairs >= 2 * 2
    assert record.comparison.worst_error < 1e-3
    assert median_problems(record) == []
    assert summary(record).range_us == pytest.approx((10.0, 10.0))
    ceilings = [one for one in timing.records if one.kind == "ceiling"]
    assert len(ceilings) == 4
    assert timing.best_read_gb_per_s == pytest.approx(WORKLOAD.kv_bytes / 5.0 / 1e3)
    assert record.hashes.sass_hash is not None
    assert record.provenance.cupy == "fake"
    assert record.provenance.gpu_slug == "fake"
    assert record.provenance.clocks is None
    assert record.resources[0].registers > 0
    assert record.launches[0].block == (32, 1, 1)
    assert any("process 2" in text for text in said)


def test_a_baseline_of_its_own_file_is_timed_and_profiled_from_it(tmp_path):
    """One that nobody ships, and one that has the name of a shipped one."""
    for name in ("mine", "sdpa"):
        path = tmp_path / f"{name}.py"
        path.write_text(
            "from pathlib import Path\n"
            "from labtools.problem import Baseline\n"
            f"BASELINE = Baseline({name!r}, 'of this file', lambda tensors, problem: list,\n"
            "    lambda problem: None, tolerance=0.25, source=Path(__file__))\n"
        )
        candidate = Candidate(load_by_path(path).BASELINE, "baseline")
        job = make_job(candidate, WORKLOAD, LIMITS)
        assert baseline_of(job).title == "of this file"
        device = SimpleNamespace(torch=True, torch_inputs=lambda _: {}, synchronize=lambda: None)
        player = live_timing._baseline_player(device, job, [None], WORKLOAD)
        assert player.tolerance == 0.25
        player.call(0)
        prepare_call(device, job, None, WORKLOAD)()
    with pytest.raises(LabError, match="no baseline 'nobody'"):
        baseline_of(replace(job, baseline="nobody", source=""))


CHANGED = "wrong once its inputs have changed"


@pytest.mark.parametrize(
    "bad",
    [
        {
            "wrong": "so it is not timed",
            "nothing": "never written",
            "in pairs": f"where a replay is cut off|{CHANGED}",
        },
        {"wrong later": f"where a replay is cut off|{CHANGED}"},
        {"wrong in long replays": f"wrong after it|{CHANGED}"},
        {
            "keeps": CHANGED,
            "leaves": CHANGED,
            "leaves late in a replay": CHANGED,
        },
        {"keeps by its keys": CHANGED, "keeps what is not checked": CHANGED},
        {"misaligned": "misaligned address"},
        {"out of memory": "not enough free memory"},
        {"crash": "SIGABRT"},
    ],
    ids=", ".join,
)
def test_bad_candidates_have_no_time_and_cost_the_others_nothing(monkeypatch, tmp_path, bad):
    places = dict(zip(bad, ("r02", "r01", "r00"), strict=False))
    use_fake_gpu(monkeypatch, tmp_path, {f"decode_{places[does]}": does for does in bad})
    asked = [*places.values(), "r03"]
    timing = time_candidates(asked, WORKLOAD, processes=2, rounds=5, ceiling=False)
    assert [record.candidate for record in timing.records] == ["r03_one_warp"]
    assert len(timing.failures) == len(bad)
    for does, words in bad.items():
        (problem,) = (why for name, why in timing.failures.items() if places[does] in str(name))
        assert re.search(words, problem), does
        with pytest.raises(LabError, match="has no time"):
            timing.find(places[does])
    assert len(timing.find("r03").samples.processes) == 2


def test_a_time_under_the_data_sheets_floor_is_refused(monkeypatch, tmp_path):
    use_fake_gpu(monkeypatch, tmp_path)
    monkeypatch.setattr(live_measure, "_sheet_rate", lambda limits: 0.1)
    timing = time_candidates(["r03"], WORKLOAD, processes=1, rounds=5, ceiling=False)
    assert not timing.records
    (problem,) = timing.failures.values()
    assert "cannot be" in problem
    assert "0 GB/s of the data sheet" in problem
    warm = WORKLOAD.replace(cache_state="warm")  # the L2 is no memory
    assert time_candidates(["r03"], warm, processes=1, rounds=5, ceiling=False).records


def test_a_hang_in_timing_is_ended_by_the_childs_own_watchdog(monkeypatch, tmp_path):
    use_fake_gpu(monkeypatch, tmp_path, {"decode_r02": "hang"})
    # The limit stands in the child's module, so it is given through the environment there.
    monkeypatch.setenv("LABTOOLS_STEP_LIMIT_S", "1")
    timing = time_candidates(["r02", "r03"], WORKLOAD, processes=1, rounds=5, ceiling=False)
    (problem,) = timing.failures.values()
    assert "did not end within 1 s" in problem
    assert timing.find("r03").median_us == pytest.approx(10.0)


def test_a_read_sweep_that_skips_bytes_is_no_ceiling(monkeypatch, tmp_path):
    use_fake_gpu(monkeypatch, tmp_path, {"read_sweep": "wrong"})
    timing = time_candidates(["r03"], WORKLOAD, processes=1, rounds=5)
    assert len(timing.failures) == 4
    assert all("checksum" in problem for problem in timing.failures.values())


def test_a_baseline_without_torch_says_so(monkeypatch, tmp_path):
    use_fake_gpu(monkeypatch, tmp_path)
    both = ["r03", "baseline:sdpa"]
    timing = time_candidates(both, WORKLOAD, processes=1, rounds=5, ceiling=False)
    assert "torch with CUDA is not installed" in timing.failures["baseline:sdpa"]
    assert timing.find("r03").median_us == pytest.approx(10.0)


def test_one_kernel_alone_is_timed_as_it_is_or_raises(monkeypatch, tmp_path):
    """An edited one; warm, so that it stays on one set."""
    use_fake_gpu(monkeypatch, tmp_path)
    rung = load_rung("r03")
    edited = rung.with_source(rung.source_text.replace("weight_sum = 0.f", "weight_sum = 0.0f"))
    record = measure_live(edited, WORKLOAD.replace(cache_state="warm"))
    assert record.notes == ("edited on a page",)
    assert record.samples.processes[0].rotated_sets == 1
    assert record.median_us == pytest.approx(10.0)
    use_fake_gpu(monkeypatch, tmp_path, {"decode_r03": "wrong"})
    with pytest.raises(LabError, match="was not timed"):
        measure_live("r03", WORKLOAD)


def test_candidates_can_be_named_in_several_ways(tmp_path):
    assert as_candidate("r03").id == "r03_one_warp"
    assert as_candidate(("r03", {"unroll": 8})).knobs["unroll"] == 8
    assert as_candidate("baseline:sdpa").id == "baseline:sdpa"
    assert "unroll=4" in as_candidate(load_rung("r02")).label
    with pytest.raises(LabError):
        as_candidate("baseline:none")


def test_baselines_are_timed_in_the_same_processes(monkeypatch, tmp_path):
    pytest.importorskip("torch")
    use_fake_gpu(monkeypatch, tmp_path)
    monkeypatch.setenv("FAKE_GPU_TORCH", "1")
    three = ["r03", "baseline:sdpa", "baseline:sdpa_expanded"]
    timing = time_candidates(three, WORKLOAD, processes=1, rounds=5, ceiling=False)
    assert timing.failures == {}
    record = timing.find("sdpa")
    assert record.median_us == pytest.approx(15.0)
    assert record.kind == "baseline"
    assert record.hashes.sass_hash is None
    assert record.comparison.worst_error < 3e-3
    assert record.provenance.torch is not None
    assert record.protocol == "graph-1"
    assert timing.fastest_fair_baseline.candidate == "baseline:sdpa"
    assert timing.ratio("sdpa", "r03").ratio == pytest.approx(1.5)


def test_what_takes_longer_than_asked_is_checked_and_not_timed(monkeypatch, tmp_path):
    use_fake_gpu(monkeypatch, tmp_path)
    timing = time_candidates(
        ["r03"], WORKLOAD, processes=2, rounds=5, ceiling=False, patience_us=1e-3
    )
    (why,) = timing.failures.values()
    assert not timing.records and "ms a call, so it is not timed" in why and "--peers all" in why
