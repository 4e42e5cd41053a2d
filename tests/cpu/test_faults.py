"""What a forecast says of addresses at which a GPU ends a launch, and of data past the L2."""

from __future__ import annotations

from pathlib import Path

import pytest

from labtools.predict import Forecast, forecast
from labtools.predict.launched import forecast_launch
from labtools.problem import load_rung, parse_problem

SOURCE = """
__global__ void copy(const float* x, float* out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = x[i];
}
__global__ void rows(const float* x, float* out, int width) {
  for (int c = threadIdx.x; c < 256; c += 64)
    out[blockIdx.x * 256 + c] = x[(int)blockIdx.x * width + c];
}
__global__ void shared(const float4* x, float4* out) {
  __shared__ float tile[4][33];
  *(float4*)&tile[threadIdx.x / 8][threadIdx.x % 8 * 4] = x[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = *(float4*)&tile[threadIdx.x / 8][threadIdx.x % 8 * 4];
}
__global__ void steps(const float* x, float* out, int n) {
  float sum = 0;
  for (int i = threadIdx.x; i <= n; i += 32) sum += x[i];
  out[threadIdx.x] = sum;
}
"""


def asked(folder: Path, entry: str, grid: int, block: int, *args: str) -> Forecast:
    source = folder / "k.cu"
    source.write_text(SOURCE)
    return forecast_launch(source, entry, grid, block, args)


@pytest.mark.parametrize(
    ("entry", "grid", "block", "args", "says"),
    [
        ("copy", 9, 256, ("x=f32[2048]", "out=f32[2304]:out"), "line 4 of k.cu reaches outside"),
        ("copy", 8, 256, ("x=f32[2048]", "out=f32[2048]:out"), ""),
        ("rows", 9999, 64, ("x=f32[9999,n]", "out=f32[9999,256]:out", "n=i32:300000"), "as an int"),
        ("rows", 9999, 64, ("x=f32[9999,n]", "out=f32[9999,256]:out", "n=i32:300"), ""),
        ("shared", 1, 32, ("x=f32[128]", "out=f32[128]:out"), "asks for 16 bytes"),
        ("steps", 1, 32, ("x=f32[n]", "out=f32[32]:out", "n=i32:3200"), "reaches outside"),
        ("steps", 1, 32, ("x=f32[n+1]", "out=f32[32]:out", "n=i32:3200"), ""),
    ],
)
def test_what_a_gpu_refuses_is_said(
    tmp_path: Path, entry: str, grid: int, block: int, args: tuple[str, ...], says: str
) -> None:
    made = asked(tmp_path, entry, grid, block, *args)
    assert bool(made.faults) == bool(says)
    assert any(says in one for one in made.faults) or not says
    assert set(made.faults) <= set(made.doubts)


def test_a_workspace_that_the_l2_cannot_hold_is_memory_traffic(tmp_path: Path) -> None:
    """``give`` reads what ``square`` stored."""
    (tmp_path / "two.cu").write_text(TWO_LAUNCHES)
    (tmp_path / "two.py").write_text(TWO_PY)
    rung = load_rung(tmp_path / "two.py")
    for rows, past in ((256, False), (65536, True)):
        problem = parse_problem(f"rows:{rows},1024")
        stored, read = forecast(rung, problem, "h200").launches
        tmp = 4 * rows * 1024
        # The input of two bytes a number, and what is kept of it.
        assert stored.dram_bytes == pytest.approx(tmp / 2 + past * tmp, rel=0.01)
        assert read.dram_bytes == pytest.approx(tmp / 2 + past * tmp, rel=0.01)


TWO_LAUNCHES = """
#include <cuda_fp16.h>
extern "C" __global__ void square(const half* x, float* tmp, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) tmp[i] = __half2float(x[i]) * __half2float(x[i]);
}
extern "C" __global__ void give(const float* tmp, half* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = __float2half(tmp[i]);
}
"""
TWO_PY = """
from pathlib import Path

import numpy as np

from labtools.problem import Launch, Rung, Workspace


def launch(problem, limits, knobs):
    n = problem.rows * problem.columns
    held = (Workspace("tmp", (n,), "float32"),)
    shape = {"grid": (-(-n // 256),), "block": (256,), "workspace": held}
    return [
        Launch(entry="square", args=("x", "tmp", np.int32(n)), **shape),
        Launch(entry="give", args=("tmp", "out", np.int32(n)), **shape),
    ]


RUNG = Rung(
    id="two", title="two", source=Path(__file__).with_suffix(".cu"), idea="i", limiter="l",
    cost="c", supports=lambda problem: None, launch=launch, operation="rows",
)
"""
