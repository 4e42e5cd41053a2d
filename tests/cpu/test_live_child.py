"""The measuring children on a fake GPU: right and wrong kernels, faults, hangs, crashes."""

from __future__ import annotations

import numpy as np
import pytest
from live_fake import use_fake_gpu

from labtools.measure.gpu.runner import run_jobs_on_gpu, run_on_gpu
from labtools.problem import Workload, attention_oracle, load_rung, make_inputs

SMALL = Workload(2, 4, 2, 33, 64)


@pytest.fixture(scope="module")
def rung():
    return load_rung("r03")


def test_a_right_kernel_passes_and_its_output_comes_back(monkeypatch, tmp_path, rung):
    use_fake_gpu(monkeypatch, tmp_path)
    run = run_on_gpu(rung, SMALL)
    assert run.ok, str(run)
    assert run.faults == []
    assert run.comparison is not None
    expected, _ = attention_oracle(make_inputs(SMALL))
    assert np.allclose(run.out.astype(np.float64), expected, atol=2e-3)
    assert run.environment["cupy"] == "fake"


def test_large_normal_workloads_are_drawn_on_the_device_and_sampled(monkeypatch, tmp_path, rung):
    from labtools.measure.gpu import check as live_check

    workload = Workload(2, 4, 2, 33, 64, seq_lens=(33, 5))
    assert live_check.drawn_on_host(workload)
    assert not live_check.drawn_on_host(Workload(8, 32, 8, 4096, 128))
    assert live_check.drawn_on_host(Workload(8, 32, 8, 4096, 128, distribution="large"))
    # With ragged lengths NaN must stand past each length, or this would be wrong or not finite.
    use_fake_gpu(monkeypatch, tmp_path)
    assert run_on_gpu(rung, workload).ok


@pytest.mark.parametrize(
    ("behaviour", "kind", "words"),
    [
        ("misaligned", "misaligned", "no multiple of the access's size"),
        ("illegal", "out_of_bounds", "belongs to no buffer"),
        ("out of memory", "out_of_memory", "not enough free memory"),
        ("writes past", "out_of_bounds", "outside the buffer 'out'"),
        ("writes input", "out_of_bounds", "into its input 'k'"),
        ("crash", "crash", "SIGABRT"),
        ("hang", "hang", "did not end within 2 s"),
        ("nothing", None, "never written"),
        ("wrong", None, "are off"),
    ],
)
def test_faults_are_told_in_plain_words(monkeypatch, tmp_path, rung, behaviour, kind, words):
    use_fake_gpu(monkeypatch, tmp_path, {"decode_r03": behaviour})
    run = run_on_gpu(rung, SMALL, time_limit_s=2.0)
    assert not run.ok
    assert words in str(run)
    assert [fault.kind for fault in run.faults[:1]] == ([kind] if kind else [])
    if kind in ("misaligned", "crash", "hang"):
        assert "this notebook is alive" in run.faults[0].message


def test_cases_after_a_dead_context_are_left_out(monkeypatch, tmp_path, rung):
    use_fake_gpu(monkeypatch, tmp_path, {"decode_r03": "misaligned"})
    cases = [SMALL, SMALL.replace(kv_len=1), SMALL.replace(kv_len=31)]
    runs = run_jobs_on_gpu([(rung, one, None) for one in cases])
    assert len(runs) == 1


def test_many_cases_in_one_child(monkeypatch, tmp_path, rung):
    use_fake_gpu(monkeypatch, tmp_path)
    said: list[str] = []
    cases = [SMALL.replace(kv_len=n) for n in (1, 31, 33)]
    jobs = [(rung, one, None) for one in cases]
    runs = run_jobs_on_gpu(jobs, progress=lambda text, done, total: said.append(text))
    assert [run.workload for run in runs] == cases
    assert all(run.ok for run in runs)
    assert any("case 3 of 3" in text for text in said)
