"""Nsight Compute and compute-sanitizer on a real GPU: real output through the real readers."""

from __future__ import annotations

from pathlib import Path

import pytest
from knob_cases import sanitized

from labtools.measure.profiler.ncu import ProfilerUnavailable, find_ncu
from labtools.measure.profiler.profile import profile_rung
from labtools.measure.profiler.sanitize import TOOLS
from labtools.problem import LabError, Rung, Workload, load_baseline, load_rung

WORKLOAD = Workload.parse("8,32,8,1024,128")
SMALL = Workload.parse("1,2,1,70,64")


@pytest.fixture
def ncu() -> None:
    try:
        find_ncu()
    except LabError as error:
        pytest.skip(str(error))


def _profile(*arguments: object, **options: object) -> object:
    try:
        return profile_rung(*arguments, **options)  # type: ignore[arg-type]
    except ProfilerUnavailable as error:
        pytest.skip(str(error))


@pytest.mark.usefixtures("ncu")
def test_counters_of_a_rung_are_plausible() -> None:
    report = _profile(load_rung("r03"), WORKLOAD)
    (kernel,) = report.kernels  # type: ignore[attr-defined]
    values = kernel.values
    assert kernel.kernel.startswith("decode_r03")
    # Cold caches: every byte of K and V comes from memory once, and hardly any twice.
    assert 0.95 < values["dram_read_bytes"] / WORKLOAD.kv_bytes < 1.6
    assert values["duration_us"] > 1
    assert 0 < values["achieved_occupancy_pct"] <= values["theoretical_occupancy_pct"] + 1
    assert 16 <= values["registers_per_thread"] <= 255
    assert values["executed_instructions"] > 1000
    for name in ("dram_throughput_pct", "l2_hit_pct", "issue_slot_pct", "pipe_fma_pct"):
        assert 0 <= values[name] <= 100, name
    shares = kernel.stall_shares
    assert "long_scoreboard" in shares
    assert 0.9 < sum(shares.values()) < 1.1
    assert set(kernel.missing) <= {
        *("pipe_tensor_pct", "stall_gmma_cycles", "stall_misc_cycles", "stall_membar_cycles"),
        *("stall_dispatch_stall_cycles", "stall_tex_throttle_cycles", "stall_sleeping_cycles"),
    }, kernel.missing


@pytest.mark.usefixtures("ncu")
def test_an_expanded_baseline_shows_its_copies() -> None:
    """The reason for the baseline page: the copy of the KV heads is inside the call."""
    report = _profile(load_baseline("sdpa_expanded"), WORKLOAD)
    assert len(report.kernels) >= 2  # type: ignore[attr-defined]
    moved = report.totals["dram_read_bytes"]  # type: ignore[attr-defined]
    assert moved > 2 * WORKLOAD.kv_bytes


RUNG = """
from pathlib import Path
import numpy as np
from labtools.problem import Launch, Rung

def launch(workload, limits, knobs):
    return [Launch("decode", (2,), (64,), args=("k", "out"))]

RUNG = Rung(id="mine", title="mine", source=Path(__file__).with_suffix(".cu"), idea="",
            limiter="", cost="", launch=launch)
"""
HEAD = """\
#include <cuda_fp16.h>
extern "C" __global__ void decode(const half* k, half* out) {
  const int t = threadIdx.x;
"""
# A row of 65 halves is 130 bytes = 0x82, so 16-byte copies into rows are misaligned.
MISALIGNED = """\
  __shared__ __align__(256) half rows_smem[64][65];
  const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(&rows_smem[t][0]));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(k));
  asm volatile("cp.async.wait_all;");
  __syncthreads();
  out[t] = rows_smem[0][t];
}
"""
RACE = """\
  __shared__ half row_smem[64];
  row_smem[t] = k[t];
  out[t] = row_smem[63 - t];
}
"""
OUT_OF_BOUNDS = """\
  out[t] = k[t + (1 << 28)];
}
"""
CLEAN = """\
  __shared__ half row_smem[64];
  row_smem[t] = k[t];
  __syncthreads();
  out[t] = row_smem[63 - t];
}
"""


def _rung(folder: Path, body: str) -> Rung:
    (folder / "mine.py").write_text(RUNG)
    (folder / "mine.cu").write_text(HEAD + body)
    return load_rung(folder / "mine.py")


@pytest.mark.parametrize(
    ("body", "tool", "kind"),
    [
        (MISALIGNED, "memcheck", "misaligned"),
        (OUT_OF_BOUNDS, "memcheck", "out_of_bounds"),
        (RACE, "racecheck", "race"),
    ],
    ids=["misaligned", "out of bounds", "race"],
)
def test_a_planted_fault_is_found(tmp_path: Path, body: str, tool: str, kind: str) -> None:
    (report,) = sanitized(_rung(tmp_path, body), SMALL, None, tool)
    assert report.verdict == "errors", report.output
    assert report.error_count >= 1
    error = next(one for one in report.errors if one.kind == kind)
    assert error.places[0].kernel == "decode"
    assert error.places[0].file is not None
    assert error.places[0].file.endswith("mine.cu")
    if kind == "misaligned":
        assert error.address is not None
        assert error.thread is not None
        assert f"{error.address:x}".endswith(f"{0x82 * error.thread[0] & 0xFF:02x}")


def test_a_right_kernel_is_clean_under_every_tool(tmp_path: Path) -> None:
    reports = sanitized(_rung(tmp_path, CLEAN), SMALL, None, *TOOLS)
    assert {report.tool: (report.verdict, report.reason) for report in reports} == dict.fromkeys(
        TOOLS, ("clean", "")
    )
