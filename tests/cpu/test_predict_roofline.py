"""Floors: units, bounds, and what they refuse."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from labtools.predict import floors, forecast, load_gpu
from labtools.predict.launched import forecast_launch
from labtools.problem import HEADLINE, LabError, Workload, load_rung, operation_of
from research.measure_public import PUBLIC_DIR


def test_headline_floor_by_hand() -> None:
    """B=8 Hkv=8 S=4096 D=128 fp16: K and V are 2 x 67,108,864 bytes; q and out 2 x 65,536."""
    floor = floors(HEADLINE, "h200", gb_per_s=4500)
    assert floor.bytes == 2 * 67_108_864 + 2 * 65_536 + 32
    assert floor.time_us == pytest.approx(134_348_832 / 4.8e12 * 1e6)
    assert floor.time_at_given_us == pytest.approx(134_348_832 / 4.5e12 * 1e6)
    assert round(floor.time_at_given_us, 1) == 29.9
    assert floor.flops == 4 * 8 * 32 * 4096 * 128
    assert floor.compute_us == pytest.approx(536_870_912 / 989.5e12 * 1e6)
    assert floor.bound == "bandwidth"
    assert not floor.fits_l2


def test_fair_floor_on_the_rtx4090() -> None:
    assert floors(HEADLINE, "rtx4090").time_us == pytest.approx(133, abs=0.5)


def test_ragged_lengths_count_as_they_are() -> None:
    ragged = HEADLINE.replace(seq_lens=(1, 31, 33, 4096, 100, 200, 300, 400))
    whole, part = floors(HEADLINE, "h200"), floors(ragged, "h200")
    assert part.bytes - 131_072 - 32 == (5161 * 8 * 128 * 2 * 2)
    assert part.flops * 8 * 4096 == whole.flops * 5161


def test_the_bound_and_the_peak_follow_from_the_sheet() -> None:
    sheet = load_gpu("h200")
    slow = dataclasses.replace(sheet, fp16_tensor_tflops=0.5, fp32_tflops=0.5)
    assert floors(HEADLINE, slow).bound == "compute"
    unknown = dataclasses.replace(sheet, fp16_tensor_tflops=None, fp32_tflops=None)
    floor = floors(HEADLINE, unknown)
    assert (floor.compute_us, floor.compute_tflops, floor.bound) == (None, None, "bandwidth")
    assert floors(HEADLINE, dataclasses.replace(unknown, fp32_tflops=67.0)).compute_tflops == 67.0
    with pytest.raises(LabError, match="memory rate"):
        floors(HEADLINE, dataclasses.replace(sheet, dram_gb_per_s=None))
    for rate in (0, -1.0, float("nan")):
        with pytest.raises(LabError, match="gives no floor"):
            floors(HEADLINE, "h200", gb_per_s=rate)


def test_a_warm_workload_in_the_l2_voids_the_memory_floor() -> None:
    small = Workload(1, 32, 8, 4096, 128)
    assert floors(small, "h200").fits_l2
    assert floors(small, "h200").note == ""
    warm = small.replace(cache_state="warm")
    assert "does not hold" in floors(warm, "h200").note
    big_warm = HEADLINE.replace(cache_state="warm")
    assert floors(big_warm, "h200").note == ""


FMA = "y[i] = y[i] * x[i] + 1.5f;"
HALVES = """
  const half2 a = __float2half2_rn(x[i]), b = __float2half2_rn(y[i]);
  y[i] = __low2float(__hfma2(a, b, a));
"""
TF32 = """
  float d[4] = {};
  unsigned a[4] = {}, b[2] = {__float_as_uint(x[i]), __float_as_uint(y[i])};
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  y[i] = d[0];
"""


@pytest.mark.parametrize(
    ("body", "dtype", "of_fma"),
    [(FMA, "float", True), (HALVES, "float", False), (TF32, "float", False), (FMA, "half", False)],
    ids=["float32", "half2", "TF32", "float16"],
)
def test_the_peak_is_that_of_what_the_code_computes_with(
    tmp_path: Path, body: str, dtype: str, of_fma: bool
) -> None:
    """Of float32 without tensor cores it is that of the FMA pipe."""
    source = tmp_path / "kernel.cu"
    source.write_text(
        "#include <cuda_fp16.h>\n"
        f"__global__ void kernel(const {dtype}* given, float* y) {{\n"
        "  const int i = blockIdx.x * 32 + threadIdx.x;\n"
        f"  const float x[] = {{float(given[i])}};\n  y += i;\n  {{ const int i = 0; {body} }}\n}}"
    )
    short = {"float": "f32", "half": "f16"}[dtype]
    args = [f"x={short}[4096]", "y=f32[4096]:inout"]
    sheet = load_gpu("h200")
    peak = sheet.fp32_tflops if of_fma else sheet.fp16_tensor_tflops
    assert forecast_launch(source, "kernel", 128, 32, args).floor.compute_tflops == peak


def test_a_product_in_float32_is_held_against_the_fma_pipe() -> None:
    rung = load_rung(PUBLIC_DIR / "sgemm10_warptiled.py")
    problem = operation_of(rung).headline
    found = forecast(rung, problem, "h200").floor
    assert found.least_us == found.compute_us == pytest.approx(2 * 2048**3 / 67e6)
    # A kernel that is not known may use the tensor cores.
    assert floors(problem, "h200").compute_tflops == load_gpu("h200").fp16_tensor_tflops
