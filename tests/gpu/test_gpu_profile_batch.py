"""Counters of many kernels in one run, on a real GPU under a real ncu."""

from __future__ import annotations

import time

import pytest

from labtools.measure.gpu.job import require_device
from labtools.measure.profiler.ncu import (
    ProfileFailed,
    ProfileReport,
    ProfilerUnavailable,
    find_ncu,
)
from labtools.measure.profiler.profile import BatchItem, profile_batch, profile_rung
from labtools.predict import limits_of
from labtools.problem import LabError, Workload, load_rung
from labtools.record.bound import counted_bound

COLD = Workload.parse("8,32,8,1024,128")
WARM = Workload.parse("1,32,8,512,128").replace(cache_state="warm")
R02, R03 = load_rung("r02"), load_rung("r03")


@pytest.fixture(scope="module")
def _ncu() -> None:
    try:
        find_ncu()
    except LabError as error:
        pytest.skip(str(error))


def _profile(items: list[BatchItem], counters: str = "few") -> list[ProfileReport | ProfileFailed]:
    try:
        return profile_batch(items, counters=counters)  # type: ignore[arg-type]
    except ProfilerUnavailable as error:
        pytest.skip(str(error))


@pytest.mark.usefixtures("_ncu")
def test_a_batch_is_fast_and_every_item_has_what_a_bound_needs() -> None:
    items: list[BatchItem] = [
        (rung, workload, {"unroll": unroll})
        for rung in (R02, R03)
        for unroll in (1, 2, 4, 8)
        for workload in (COLD, COLD.replace(batch=2), COLD.replace(batch=32), WARM)
    ]
    started = time.monotonic()
    reports = _profile(items)
    seconds = (time.monotonic() - started) / len(items)
    for (rung, workload, _), report in zip(items, reports, strict=True):
        assert isinstance(report, ProfileReport), report
        (kernel,) = report.kernels
        assert kernel.kernel.split("(")[0].endswith(
            rung.launches(workload, limits_of(require_device()))[0].entry
        )
        assert report.empty_launch_us is not None
        assert 0.3 < report.empty_launch_us < 10
        found = counted_bound(report.record_counters().values)
        assert not found.missing, (found, kernel.missing)
        assert found.empty_launches is not None and found.empty_launches > 1
        assert 0.9 < sum(kernel.stall_shares.values()) < 1.1
        read = kernel.values["dram_read_bytes"]
        assert read is not None
        if workload.cache_state == "cold":
            assert 0.9 < read / workload.kv_bytes < 1.6
        else:
            assert read < 0.5 * workload.kv_bytes
        assert 5e8 < (kernel.values["sm_clock_hz"] or 0) < 4e9
        assert 0 < (kernel.values["sm_active_pct"] or 0) <= 101
    print(f"{len(items)} items, {seconds:.2f} s each")
    assert seconds < 1.5  # the aim is half a second; starting ncu twice is in it


@pytest.mark.usefixtures("_ncu")
def test_a_batch_counts_what_a_run_of_its_own_counts() -> None:
    """The same kernel between others and alone: the order of launches was not mixed up."""
    items: list[BatchItem] = [(R02, COLD, None), (R03, COLD, {"unroll": 1}), (R03, COLD, None)]
    alone = profile_rung(R03, COLD, {"unroll": 1})
    among = _profile(items, "chosen")[1]
    assert isinstance(among, ProfileReport)
    for name in ("executed_instructions", "registers_per_thread", "shared_bytes_per_block"):
        assert among.main_kernel.values[name] == alone.main_kernel.values[name], name
    us, alone_us = (one.main_kernel.values["duration_us"] for one in (among, alone))
    assert us is not None and alone_us is not None
    assert 0.8 < us / alone_us < 1.25


BAD = """
#include "ladder.cuh"
extern "C" __global__ void bad(const half* q, const half* k, const half* v, const int* n,
                               half* out) {
  *(volatile int*)8 = 1;
}
"""


@pytest.mark.usefixtures("_ncu")
def test_a_kernel_that_faults_costs_itself_alone() -> None:
    from labtools.problem import Launch

    bad = R03.with_source(BAD).with_launch(
        lambda workload, limits, knobs: [
            Launch("bad", (1,), (32,), args=("q", "k", "v", "seq_lens", "out"))
        ]
    )
    first, wrong, last = _profile([(R02, COLD, None), (bad, COLD, None), (R03, COLD, None)])
    assert isinstance(first, ProfileReport)
    assert isinstance(wrong, ProfileFailed)
    assert "bad" in wrong.why or "r03" in wrong.what
    assert isinstance(last, ProfileReport)
