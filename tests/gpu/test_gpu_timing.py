"""Timing on a real GPU: the baseline lesson, repeatability, ceilings, wrong kernels, records."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from labtools.measure import measure_live, time_candidates
from labtools.measure.campaign.recording import Effort, record_campaign
from labtools.problem import HEADLINE, LabError, Workload, kernels_dir, load_rung
from labtools.record import RecordStore, freshness, median_problems
from tests.wrong_kernels import make_wrong

SINGLE = Workload.parse("1,32,8,4096,128")


def need_torch() -> None:
    torch = pytest.importorskip("torch")
    if not torch.backends.cuda.is_built():
        pytest.skip("torch here has no CUDA")


@pytest.fixture(scope="module")
def headline():
    need_torch()
    return time_candidates(
        ["r02", "r03", "baseline:sdpa", "baseline:sdpa_flash", "baseline:sdpa_expanded"], HEADLINE
    )


def test_everything_was_timed(headline) -> None:
    assert headline.failures == {}
    assert len(headline.records) == 5 + 4
    for record in headline.records:
        assert median_problems(record) == []
        assert record.protocol == "graph-1"
        assert len(record.samples.processes) == 5
        assert record.provenance.clocks is not None


def test_the_expanded_baseline_is_ten_times_slower(headline) -> None:
    ratio = headline.ratio("sdpa_expanded", "sdpa")
    assert ratio.ratio >= 10, str(ratio)
    assert ratio.low > 10


def test_nothing_beats_the_best_read_and_the_ceiling_is_near_the_sheet(headline) -> None:
    from labtools.predict import gpu_of_device

    best = headline.best_read_gb_per_s
    assert best is not None
    assert all(record.gb_per_s <= best for record in headline.records)
    sheet = gpu_of_device().dram_gb_per_s
    if sheet is not None:
        assert 0.75 * sheet < best < 1.02 * sheet


def test_the_ceiling_is_a_ceiling(headline) -> None:
    """The read sweep is at least as fast as any kernel, but for the noise."""
    sweep = min(one.median_us for one in headline.records if one.kind == "ceiling")
    others = min(one.median_us for one in headline.records if one.kind != "ceiling")
    assert sweep <= 1.03 * others


def test_times_repeat() -> None:
    names = ["r03", "r02"]
    one = time_candidates(names, SINGLE, processes=3, ceiling=False)
    two = time_candidates(names, SINGLE, processes=3, ceiling=False)
    for name in names:
        first, second = one.find(name).median_us, two.find(name).median_us
        assert abs(first - second) / first < 0.05, (name, first, second)
    assert abs(one.ratio("r02", "r03").ratio / two.ratio("r02", "r03").ratio - 1) < 0.05


def test_warm_is_not_slower_than_cold() -> None:
    small = Workload.parse("1,32,8,512,128")
    cold = measure_live("r03", small)
    warm = measure_live("r03", small.replace(cache_state="warm"))
    assert warm.median_us <= 1.02 * cold.median_us
    assert warm.samples.processes[0].rotated_sets == 1
    assert cold.samples.processes[0].rotated_sets > 50


def test_a_wrong_kernel_has_no_time() -> None:
    rung = load_rung("r03")
    wrong = rung.with_source(rung.source_text.replace("n < length", "n < length - 1"))
    with pytest.raises(LabError, match="was not timed"):
        measure_live(wrong, Workload(2, 8, 2, 65, 128))


def test_calls_that_are_answered_in_pairs_have_no_time() -> None:
    """Right after every even number of calls, so right after a whole replay."""
    pairs = make_wrong("answers_in_pairs")
    patient = pairs.with_source(f"#define FROM_LEN 512\n{pairs.source_text}")
    few = Workload(1, 32, 8, 512, 128)
    timing = time_candidates([patient, "r03"], few, processes=2, rounds=9, ceiling=False)
    assert [record.candidate for record in timing.records] == ["r03_one_warp"]
    (problem,) = timing.failures.values()
    assert "where a replay is cut off" in problem


STATE = "__device__ unsigned long long seen_ns[4096];\n__device__ unsigned in_a_row[4096];\n"
RESTS = """const int place = blockIdx.y * gridDim.x + blockIdx.x;
  unsigned long long now_ns;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now_ns));
  const unsigned calls = now_ns - seen_ns[place] < 2000000 ? in_a_row[place] + 1 : 0;
  __syncwarp();
  seen_ns[place] = now_ns;
  in_a_row[place] = calls;
  if (calls > 8 && !isnan(__half2float(out[qo_row * HEAD_DIM + dim]))) return;
  """


def test_a_kernel_that_rests_in_the_middle_of_a_replay_has_no_time() -> None:
    """It answers whenever it has not run for a while, and a few times more; then an answer of
    before is there."""
    rung = load_rung("r03")
    first = "const half* k_head"
    assert rung.source_text.count(first) == 1
    text = rung.source_text.replace(first, RESTS + first).replace(
        'extern "C"', STATE + 'extern "C"'
    )
    timing = time_candidates(
        [rung.with_source(text), "r02"], HEADLINE, processes=2, rounds=9, ceiling=False
    )
    assert [record.candidate for record in timing.records] == ["r02_one_barrier"]
    assert "once its inputs have changed" in next(iter(timing.failures.values()))


def test_a_faulting_kernel_costs_the_others_nothing() -> None:
    rung = load_rung("r03")
    text = rung.source_text.replace("kv_len * HEAD_DIM + dim;", "kv_len * HEAD_DIM + dim + 1;")
    timing = time_candidates(
        ["r02", rung.with_source(text)], SINGLE, processes=2, rounds=5, ceiling=False
    )
    assert [record.candidate for record in timing.records] == ["r02_one_barrier"]
    assert "misaligned" in next(iter(timing.failures.values()))


def test_a_quick_campaign_records_and_goes_on(tmp_path) -> None:
    need_torch()
    report = record_campaign("quick", tmp_path, Effort(2, 5, profile=False))
    assert report.ok, report.failures
    store = RecordStore([tmp_path])
    records = store.query()
    assert {record.kind for record in records} == {"rung", "baseline", "ceiling"}
    for record in records:
        assert freshness(record).fresh, freshness(record).reason
    again = record_campaign("quick", tmp_path, Effort(2, 5, profile=False))
    assert (again.measured, again.resumed) == (0, report.measured)


def run_labtools(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "labtools", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=600,
        check=False,
    )


def test_a_rung_from_another_folder_runs_and_is_recorded(tmp_path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    for ending in (".py", ".cu"):
        shutil.copy(kernels_dir() / "decode" / f"r03_one_warp{ending}", folder / f"mine{ending}")
    shape = "2,8,2,130,128"
    ran = run_labtools("run", "mine.py", "--workload", shape, "--on", "gpu", "--json", cwd=folder)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert json.loads(ran.stdout)["ok"] is True
    out = tmp_path / "records"
    recorded = run_labtools(
        "record", "mine.py", "--workload", shape, "--out", str(out), "--json", cwd=folder
    )
    assert recorded.returncode == 0, recorded.stdout + recorded.stderr
    (record,) = RecordStore([out]).query(rung="mine")
    assert record.rung_path == str((folder / "mine.py").resolve())
    assert record.comparison.ok
