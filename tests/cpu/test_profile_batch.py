"""Counters of many kernels in one run: real children on the fake GPU under a stand-in for ncu."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from fake_ncu import FakeNcu, put_ncu

from labtools.measure.campaign import recording as campaign
from labtools.measure.campaign.plan import Plan, Section, expand_plan
from labtools.measure.campaign.recording import Effort, record_campaign
from labtools.measure.profiler import ncu as profile
from labtools.measure.profiler import profile as profile_batch
from labtools.measure.profiler.counters import FEW_COUNTERS, metrics_to_request
from labtools.measure.profiler.ncu import ProfileFailed, ProfileReport
from labtools.notebook.labs.lab07_ncu.view import show_live
from labtools.notebook.records import GpuRecords
from labtools.predict import load_gpu
from labtools.problem import Baseline, LabError, Rung, Workload, load_rung
from labtools.record import RecordStore
from labtools.record.bound import counted_bound
from labtools.toolchain.progress import silent

SMALL = Workload(2, 4, 2, 64, 64)
WARM = SMALL.replace(cache_state="warm")
Patch = pytest.MonkeyPatch
SDPA = ("sdpa_math", "sdpa_flash")


@pytest.fixture
def ncu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNcu:
    return put_ncu(monkeypatch, tmp_path)


R01, R02, R03 = (load_rung(name) for name in ("r01", "r02", "r03"))


def _us(report: ProfileReport | ProfileFailed) -> float:
    assert isinstance(report, ProfileReport), report
    us = report.main_kernel.values["duration_us"]
    assert us is not None
    return us


def test_each_item_gets_its_own_counters_in_the_order_asked(ncu: FakeNcu) -> None:
    other = SMALL.replace(batch=3)
    items = [(R03, SMALL, None), (R02, other, {"unroll": 2})]
    items += [(R02, SMALL, None), (R03, other, {"unroll": 1})]
    reports = profile_batch.profile_batch(items)
    # Equal workloads are launched together: the two of SMALL, then those of the other one.
    assert [_us(one) for one in reports] == [13, 15, 14, 16]
    for report, (rung, workload, knobs) in zip(reports, items, strict=True):
        assert isinstance(report, ProfileReport)
        assert (report.target, report.knobs) == (rung.id, rung.resolve_knobs(knobs))
        assert report.workload == workload.to_dict()
        assert report.empty_launch_us == 1.0
        assert report.tool == "ncu 2025.3.1"
        assert len(report.kernels) == 1
    (options,) = ncu.options()
    wanted = {"--clock-control": "none", "--profile-from-start": "off", "--cache-control": "all"}
    assert all(options[options.index(one) + 1] == value for one, value in wanted.items())
    kept = reports[0].record_counters()  # type: ignore[union-attr]
    assert kept.values["empty_launch_us"] == 1.0
    assert kept.values["main_kernel_us"] == 13.0
    assert kept.values["l2_hit_pct"] is None  # asked for, and not there


def test_few_counters_ask_for_less_and_call_nothing_else_missing(ncu: FakeNcu) -> None:
    (report,) = profile_batch.profile_batch([(R03, SMALL, None)], counters="few")
    assert isinstance(report, ProfileReport)
    assert set(report.main_kernel.values) == {counter.name for counter in FEW_COUNTERS}
    (options,) = ncu.options()
    asked = options[options.index("--metrics") + 1].split(",")
    assert asked == list(metrics_to_request(FEW_COUNTERS))
    assert len(asked) < len(metrics_to_request())
    # What the rules of the bound need is among them.
    needed = {"dram_throughput_pct", "issue_slot_pct", "duration_us", "warp_latency_cycles"}
    needed |= {f"stall_{reason}_cycles" for reason in ("long_scoreboard", "barrier", "wait")}
    assert needed <= set(report.main_kernel.values)


def test_warm_and_cold_workloads_have_a_run_each(ncu: FakeNcu) -> None:
    reports = profile_batch.profile_batch([(R03, WARM, None), (R02, SMALL, None), (R02, WARM, {})])
    assert [_us(one) for one in reports] == [13, 13, 14]
    controls = [one[one.index("--cache-control") + 1] for one in ncu.options()]
    assert controls == ["all", "none"]
    assert [len(labels) for labels in ncu.runs()] == [1, 2]


def test_preparation_runs_unwatched_and_several_launches_are_one_call(
    ncu: FakeNcu, tmp_path: Path
) -> None:
    rung = _prepared_rung(tmp_path)
    prepared, other = profile_batch.profile_batch([(rung, SMALL, None), (R03, SMALL, None)])
    assert isinstance(prepared, ProfileReport)
    assert [kernel.kernel.split("(")[0] for kernel in prepared.kernels] == ["first", "second"]
    assert prepared.totals["duration_us"] == 13 + 14
    assert prepared.record_counters().values["main_kernel_us"] == 14
    assert prepared.record_counters().values["kernels_per_call"] == 2
    assert _us(other) == 15


def _prepared_rung(folder: Path) -> Rung:
    parameters = "const void* q, const void* k, const void* v, const int* n, void* out"
    (folder / "mine.cu").write_text(
        "#include <cuda_fp16.h>\n"
        'extern "C" __global__ void copy_cache(const void*, const void*, void*, void*) {}\n'
        f'extern "C" __global__ void first({parameters}) {{}}\n'
        f'extern "C" __global__ void second({parameters}) {{}}\n'
    )
    (folder / "mine.py").write_text(
        """
from pathlib import Path
from labtools.problem import Launch, Rung, Workspace

def launch(workload, limits, knobs):
    shape = (workload.batch, workload.num_kv_heads, workload.kv_len, workload.head_dim)
    spaces = (Workspace("k_copy", shape, "float16"), Workspace("v_copy", shape, "float16"))
    args = ("q", "k_copy", "v_copy", "seq_lens", "out")
    return [
        Launch("copy_cache", (1,), (32,), args=("k", "v", "k_copy", "v_copy"),
               workspace=spaces, prepare=True),
        Launch("first", (2,), (32,), args=args, workspace=spaces),
        Launch("second", (4,), (32,), args=args, workspace=spaces),
    ]

RUNG = Rung(id="mine", title="mine", source=Path(__file__).with_suffix(".cu"), idea="", limiter="",
            cost="", launch=launch)
"""
    )
    return load_rung(folder / "mine.py")


THREE = [(R02, SMALL, None), (R01, SMALL, None), (R03, SMALL, None)]


@pytest.mark.parametrize(
    ("does", "words"),
    [
        ("out of memory", "Out of memory"),
        ("crash", "SIGABRT"),
        ("hang", "did not end within 3 s"),
    ],
)
def test_a_bad_kernel_costs_itself_alone(
    ncu: FakeNcu, monkeypatch: Patch, does: str, words: str
) -> None:
    monkeypatch.setattr(profile_batch, "ITEM_STEP_LIMIT_S", 3.0)
    monkeypatch.setenv("FAKE_GPU_BEHAVIOUR", json.dumps({"decode_r01": does}))
    first, bad, last = profile_batch.profile_batch(THREE)
    assert isinstance(bad, ProfileFailed)
    assert "r01_online_softmax" in bad.what and bad.still_works
    assert words in bad.why or does == "crash"
    assert _us(first) == 13 and _us(last) in (13, 14)
    # Its name is known, so the others are not halved: one run, or one more for those after it.
    assert len(ncu.runs()) <= 2


def test_a_batch_that_dies_without_a_word_is_halved(ncu: FakeNcu, monkeypatch: Patch) -> None:
    monkeypatch.setenv("FAKE_NCU", "hates r01")
    items = [(R02, SMALL, {"unroll": n}) for n in (1, 2)] + THREE
    reports = profile_batch.profile_batch(items)
    assert [isinstance(one, ProfileReport) for one in reports] == [True] * 3 + [False, True]
    bad = reports[3]
    assert isinstance(bad, ProfileFailed)
    assert "An error of the tool itself" in bad.why


def test_a_broken_profiler_is_found_out_at_once(ncu: FakeNcu, monkeypatch: Patch) -> None:
    monkeypatch.setenv("FAKE_NCU", "broken")
    reports = profile_batch.profile_batch(THREE * 4)
    assert all(isinstance(one, ProfileFailed) for one in reports)
    assert len(ncu.options()) == 2  # all of them, and an empty kernel alone


@pytest.mark.parametrize("mode", ["loses a row", "swaps rows", "adds a row"])
def test_a_report_that_does_not_fit_gives_nobody_anothers_counters(
    ncu: FakeNcu, monkeypatch: Patch, mode: str
) -> None:
    """A lost row would move all that follow it, two variants of one kernel unseen."""
    monkeypatch.setenv("FAKE_NCU", mode)
    variants = [(R03, SMALL, {"unroll": unroll}) for unroll in (1, 2)]
    items = THREE if mode == "swaps rows" else variants
    reports = profile_batch.profile_batch(items)
    for report in reports:
        if isinstance(report, ProfileReport):
            # Halved until each was alone, where nothing can be mistaken.
            assert _us(report) == 13
        else:
            assert "does not fit" in report.what
    if mode == "adds a row":  # even to an empty kernel's run: then nothing can be trusted
        assert all(isinstance(one, ProfileFailed) for one in reports)
    else:
        assert len(ncu.runs()) > len(items)


def test_a_metric_that_ncu_refuses_is_dropped_once_and_named(
    ncu: FakeNcu, monkeypatch: Patch
) -> None:
    monkeypatch.setenv("FAKE_NCU", "unknown metric")
    reports = profile_batch.profile_batch([(R03, SMALL, None), (R03, WARM, None)])
    for report in reports:
        assert isinstance(report, ProfileReport)
        assert "sm__cycles_active" in report.notes[0]
        assert report.main_kernel.values["sm_active_pct"] is None
    assert len(ncu.runs()) == 3  # the second one knew


def test_what_does_not_compile_or_fit_fails_alone(ncu: FakeNcu) -> None:
    broken = R03.with_source("this is no kernel")
    odd = SMALL.replace(head_dim=96)
    reports = profile_batch.profile_batch(
        [(broken, SMALL, None), (R03, SMALL, None), (R03, odd, None), (R03, SMALL, {"unroll": 3})]
    )
    assert [isinstance(one, ProfileReport) for one in reports] == [False, True, False, False]
    assert all(one.what for one in reports if isinstance(one, LabError))


# ------------------------------------------------------------------------------- campaigns


def _plan(batches: Sequence[int] = (1, 2), **options: object) -> Plan:
    rungs = (("r02_one_barrier", {}), ("r03_one_warp", {}))
    shapes = tuple(SMALL.replace(batch=batch) for batch in batches)
    return Plan("tiny", "", (Section(shapes, rungs, **options),))  # type: ignore[arg-type]


def test_a_campaign_reads_the_counters_of_all_its_groups_in_one_run(
    ncu: FakeNcu, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    plan = _plan((1, 2, 3), counters=True, ceiling=True)
    report = record_campaign(plan, out, Effort(1, 5))
    assert report.ok, report.failures
    (labels,) = ncu.runs()
    assert len(labels) == 3 * (2 + 4)
    records = RecordStore([out]).query()
    assert len(records) == 18
    for record in records:
        assert record.counters is not None
        assert record.counters.values["dram_read_bytes"] == 1024
        assert record.counters.values["empty_launch_us"] == 1.0
        assert "sm_throughput_pct" not in record.counters.values
        assert record.sanitizer == ()
        found = counted_bound(record.counters.values)
        assert found.bound is None
        assert "dram_throughput_pct" in found.missing
    times = [one.counters.values["duration_us"] for one in records if one.counters]
    assert len(set(times)) == 18  # each has its own
    again = record_campaign(plan, out, Effort(1, 5))
    assert again.resumed == 3
    assert len(ncu.runs()) == 1


def test_a_campaign_goes_on_without_counters(
    ncu: FakeNcu, tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setenv("FAKE_NCU", "permission")
    report = record_campaign(_plan(counters=True), tmp_path, Effort(1, 5))
    assert report.ok
    assert len(report.records) == 4
    for record in report.records:
        assert record.counters is not None
        assert "ERR_NVGPUCTRPERM" in record.counters.reason
    assert len(ncu.options()) == 1  # not asked again


def test_a_reader_and_a_forecast_that_break_cost_no_time(
    ncu: FakeNcu, tmp_path: Path, monkeypatch: Patch
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("a column")

    monkeypatch.setattr(profile, "read_report", broken)
    monkeypatch.setattr("labtools.predict.forecast", broken)
    report = record_campaign(_plan(counters=True), tmp_path, Effort(1, 5))
    assert len(report.records) == 4
    assert all(one.counters and "KeyError" in one.counters.reason for one in report.records)
    assert [one.forecast for one in report.records] == [None] * 4


def test_a_kernel_that_fails_under_the_profiler_keeps_its_time(
    ncu: FakeNcu, tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setenv("FAKE_NCU", "hates r01")
    rungs = (("r01_online_softmax", {}), ("r03_one_warp", {}))
    plan = Plan("one", "", (Section((SMALL,), rungs, profile="all"),))
    report = record_campaign(plan, tmp_path, Effort(1, 5))
    assert report.ok
    found = {one.candidate: one.counters for one in report.records}
    assert found["r01_online_softmax"] is not None and found["r01_online_softmax"].reason
    assert found["r03_one_warp"] is not None
    assert found["r03_one_warp"].values["sm_throughput_pct"] == 50.0


def test_a_baselines_counters_are_read_by_themselves(ncu: FakeNcu, monkeypatch: Patch) -> None:
    """How many kernels it launches is the library's business, so it shares no run."""
    (rung,) = profile_batch.profile_batch([(R03, SMALL, None)])
    assert isinstance(rung, ProfileReport)
    alone: list[str] = []

    def of_baseline(target: Baseline, *_: object, **__: object) -> ProfileReport:
        alone.append(target.id)
        if target.id == "sdpa_flash":
            raise ProfileFailed("It ran and measured nothing.", "no kernel was seen")
        return dataclasses.replace(rung, kernels=rung.kernels * 3)

    monkeypatch.setattr(profile_batch, "profile_rung", of_baseline)
    plan = _plan(counters=True, peer_counters=SDPA, baselines=SDPA)
    tasks = [
        campaign._Task(number, group, list(group.candidates.values()), str(number))
        for number, group in enumerate(expand_plan(plan)[0][:2])
    ]
    every = {one.label for one in tasks[0].candidates}
    if not {"baseline:sdpa_math", "baseline:sdpa_flash"} < every:
        pytest.skip("torch is not here")
    counting = campaign._Counting(tasks, lambda *_: "", silent)
    for number in range(2):
        found = counting.read(number, every)
        assert set(found) == every
        assert found["baseline:sdpa_math"].values["kernels_per_call"] == 3.0
        assert "no kernel was seen" in found["baseline:sdpa_flash"].reason
        ones = [one.values["kernels_per_call"] for name, one in found.items() if name[0] == "r"]
        assert ones == [1.0, 1.0]
    assert sorted(alone) == ["sdpa_flash"] * 2 + ["sdpa_math"] * 2
    assert [len(labels) for labels in ncu.runs()][1:] == [4]


def test_small_groups_share_a_run_up_to_a_limit(
    ncu: FakeNcu, tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr("labtools.measure.campaign.recording.ITEMS_AHEAD", 4)
    record_campaign(_plan((1, 2, 3), counters=True), tmp_path, Effort(1, 5))
    assert [len(labels) for labels in ncu.runs()] == [4, 2]


def test_only_named_rungs_are_watched_by_the_sanitizer() -> None:
    pair = (("r03_one_warp", {}),)
    for options, profiled, counted, sanitized in (
        ({"profile": pair}, 1, 0, 1),
        ({"profile": "all"}, 2, 0, 0),
        ({"counters": True}, 0, 2, 0),
        ({"counters": True, "peer_counters": SDPA[:1], "baselines": SDPA}, 1, 2, 0),
        ({"counters": True, "peer_counters": SDPA, "baselines": SDPA[:1]}, 1, 2, 0),
        ({"counters": True, "baselines": ("sdpa_math",)}, 0, 2, 0),
    ):
        group = expand_plan(_plan(**options))[0][0]
        assert len(group.profile) == profiled
        assert len(group.counters) == counted
        assert len(group.sanitize) == sanitized


# ----------------------------------------------------------------------------- a page that profiles


def _profile_on_a_page(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    lab = "labtools.notebook.labs.lab07_ncu"
    monkeypatch.setattr(f"{lab}.view.can_run_live", lambda: True)
    monkeypatch.setattr(f"{lab}.run.gpu_of_device", lambda: load_gpu("h200"))
    return show_live(R03, SMALL, GpuRecords())


def test_a_page_sets_counters_of_now_beside_the_record(ncu: FakeNcu, monkeypatch: Patch) -> None:
    table, bench = _profile_on_a_page(monkeypatch)
    ((label,),) = ncu.runs()
    assert label.startswith("r03_one_warp")
    assert "live" in table.text
    (row,) = bench.view.tables["cells"]
    assert row[0]["word"] == "live"
    assert row[0]["profiled"] == "13.0 us"
    assert "L2 hit rate" in row[0]["missing"]


@pytest.mark.parametrize(("mode", "said"), [("permission", "ERR_NVGPUCTRPERM"), ("broken", "tool")])
def test_a_page_says_why_it_has_no_counters(
    ncu: FakeNcu, monkeypatch: Patch, mode: str, said: str
) -> None:
    monkeypatch.setenv("FAKE_NCU", mode)
    (note,) = _profile_on_a_page(monkeypatch)
    assert said in note.text
    assert "The recorded counters stand above." in note.text
