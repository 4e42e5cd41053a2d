"""Kernels and workloads as somebody else writes them: right ones pass, wrong ones do not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from labtools.measure.check import CheckReport, check_rung
from labtools.measure.cpu import run_on_cpu
from labtools.measure.cpu.build import NATIVE, _compile_error, _Kernel, find_cuda_headers
from labtools.problem import LabError, Launch, Rung, Workload, load_rung, make_inputs
from labtools.toolchain import CompileError, compile_cubin

SMALL = Workload(2, 4, 2, 40, 64)
SIGNATURE = (
    'extern "C" __global__ void decode(const half* q, const half* k, const half* v,\n'
    "    const int* lens, half* out, int hq, int hkv, int S, float scale)"
)
ONE_WARP = f"""#include <cuda_fp16.h>
#include <math.h>
{SIGNATURE} {{
  const int h = blockIdx.x, b = blockIdx.y, t = threadIdx.x;
  int len = lens[b];
  const half* qh = q + (b * hq + h) * HEAD_DIM;
  const size_t head = ((size_t)b * hkv + h / (hq / hkv)) * S * HEAD_DIM;
  /*start*/
  float m = -INFINITY, l = 0, acc[HEAD_DIM / 32] = {{}};
  for (int n = 0; n < len; ++n) {{
    const half *k_row = k + head + (size_t)n * HEAD_DIM, *v_row = v + head + (size_t)n * HEAD_DIM;
    float s = 0;
    for (int d = t; d < HEAD_DIM; d += 32) s += __half2float(qh[d]) * __half2float(k_row[d]);
    for (int o = 16; o; o >>= 1) s += __shfl_xor_sync(~0u, s, o);
    s *= scale;
    const float top = fmaxf(m, s), old = __expf(m - top), p = __expf(s - top);
    l = l * old + p;
    m = top;
    for (int j = 0; j < HEAD_DIM / 32; ++j)
      acc[j] = acc[j] * old + p * __half2float(v_row[t + 32 * j]);
  }}
  /*end*/
  for (int j = 0; j < HEAD_DIM / 32; ++j)
    out[(b * hq + h) * HEAD_DIM + t + 32 * j] = __float2half(acc[j] / l);
}}
"""
# Eight lanes serve a row and exchange through shared memory, with a __syncwarp() of their own.
EIGHT_LANES = f"""#include <cuda_runtime.h>
#include <cuda_fp16.h>
#include <device_launch_parameters.h>
{SIGNATURE} {{
  __shared__ float part[32];
  const int h = blockIdx.x, b = blockIdx.y, t = threadIdx.x, len = lens[b];
  const int group = t / 8, r = t % 8;
  const unsigned mask = 0xffu << (8 * group);
  const half* qh = q + (b * hq + h) * HEAD_DIM;
  const size_t head = ((size_t)b * hkv + h / (hq / hkv)) * S * HEAD_DIM;
  assert(len > 0);
  float m = -1e30f, l = 0, acc[HEAD_DIM / 8] = {{}};
  for (int n = group; n < len; n += 4) {{
    const size_t row = head + (size_t)n * HEAD_DIM;
    float s = 0;
    for (int d = r; d < HEAD_DIM; d += 8) s += __half2float(qh[d]) * __half2float(k[row + d]);
    part[t] = s;
    __syncwarp(mask);
    s = 0;
    for (int i = 0; i < 8; ++i) s += part[group * 8 + i];
    __syncwarp(mask); /*after*/
    s *= scale;
    const float top = fmaxf(m, s), old = __expf(m - top), p = __expf(s - top);
    l = l * old + p;
    m = top;
    for (int j = 0; j < HEAD_DIM / 8; ++j)
      acc[j] = acc[j] * old + p * __half2float(v[row + r + 8 * j]);
  }}
  float top = m;
  for (int o = 8; o < 32; o *= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, o));
  const float old = __expf(m - top);
  l *= old;
  for (int o = 8; o < 32; o *= 2) l += __shfl_xor_sync(~0u, l, o);
  for (int j = 0; j < HEAD_DIM / 8; ++j) {{
    float a = acc[j] * old;
    for (int o = 8; o < 32; o *= 2) a += __shfl_xor_sync(~0u, a, o);
    if (group == 0) out[(b * hq + h) * HEAD_DIM + r + 8 * j] = __float2half(a / l);
  }}
}}
"""


def launch(workload, limits, knobs):
    sizes = (workload.num_qo_heads, workload.num_kv_heads, workload.kv_len)
    scalars = (*map(np.int32, sizes), np.float32(workload.sm_scale))
    args = ("q", "k", "v", "seq_lens", "out", *scalars)
    return [Launch("decode", (workload.num_qo_heads, workload.batch), (32,), args=args)]


def stranger(folder: Path, text: str, *edits: tuple[str, str]) -> Rung:
    for old, new in edits:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    source = folder / "decode.cu"
    source.write_text(text)
    return Rung("decode", "t", source, idea="i", limiter="l", cost="c", launch=launch)


def check(folder: Path, *edits: tuple[str, str], text: str = ONE_WARP) -> CheckReport:
    return check_rung(stranger(folder, text, *edits), SMALL)


@pytest.mark.parametrize("text", [ONE_WARP, EIGHT_LANES], ids=["one_warp", "eight_lanes"])
def test_right_kernel_passes_and_compiles_for_a_gpu(tmp_path, text):
    report = check(tmp_path, text=text)
    assert report.ok, report.summary
    compile_cubin(text, "sm_80", {"HEAD_DIM": "64"})


def test_more_partial_warp_barriers_than_a_byte_counts_are_no_race(tmp_path):
    rung = stranger(tmp_path, EIGHT_LANES)
    run = run_on_cpu(rung, Workload(1, 1, 1, 1800, 64), orders=(0, 2))
    assert run.ok, str(run)


def test_a_missing_partial_warp_barrier_is_a_race(tmp_path):
    report = check(tmp_path, ("__syncwarp(mask); /*after*/", ""), text=EIGHT_LANES)
    assert {fault.kind for fault in report.faults} == {"race"}, report.summary


WRONG = {
    "odd_tile": ("n < len;", "n < len - (len % 64 == 63);"),
    "first_length": ("/*start*/", "if (b == 0) len = S;"),
    "last_length": ("/*start*/", "if (b == (int)gridDim.y - 1) len = S;"),
    "maximum_from_zero": ("m = -INFINITY", "m = 0"),
}


@pytest.mark.parametrize("name", WRONG)
def test_rarely_wrong_kernel_is_rejected(tmp_path, name):
    report = check(tmp_path, WRONG[name])
    assert not report.ok
    assert not report.faults, report.summary


def test_endless_loop_is_not_optimised_away(tmp_path):
    edit = ("/*end*/", "for (;;) { if (m == 12345.f) break; }")
    run = run_on_cpu(stranger(tmp_path, ONE_WARP, edit), SMALL, time_limit_s=1.0)
    assert [fault.kind for fault in run.faults] == ["hang"], str(run)
    assert run.faults[0].source_line.strip().startswith("for (;;)")


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        ("assert(len < 20);", "an assertion failed: len < 20"),
        ("l += (float)(5 / (len - len));", "division by zero"),
        ("__shared__ float z[15000]; z[400 * t] = 1; l += 0 * z[400 * t];", "fixed size"),
    ],
)
def test_what_a_gpu_would_not_run_is_named(tmp_path, edit, says):
    run = run_on_cpu(stranger(tmp_path, ONE_WARP, ("/*end*/", edit)), SMALL)
    assert not run.ok
    assert says in run.faults[0].message
    if "shared" not in edit:
        assert run.faults[0].source_line.strip() == edit


def test_a_kernel_that_leaves_is_said_to_have_left(tmp_path):
    leave = ('extern "C" __global__', 'extern "C" void _exit(int);\nextern "C" __global__')
    run = run_on_cpu(stranger(tmp_path, ONE_WARP, leave, ("/*end*/", "_exit(3);")), SMALL)
    assert "ended before the kernel" in run.faults[0].message


@pytest.mark.parametrize(
    ("head", "why"),
    [
        ("#include <cooperative_groups/reduce.h>\n", "for GPUs only"),
        (
            '__device__ float ex2(float x) { asm("ex2.approx.f32 %0, %0;" : "+f"(x)); return x; }',
            "inline assembly",
        ),
    ],
)
def test_what_only_a_gpu_knows_is_said_to_be_so(tmp_path, head, why):
    edits = (("extern", f"{head}\nextern"), ("/*end*/", "l += ex2(l);" if "ex2" in head else ""))
    with pytest.raises(LabError) as error:
        run_on_cpu(stranger(tmp_path, ONE_WARP, *edits), SMALL)
    assert why in error.value.why


def test_large_scores_are_all_negative_for_every_other_head():
    inputs = make_inputs(Workload(2, 4, 2, 97, 128, distribution="large"))
    scores = inputs.sm_scale * np.einsum(
        "bhgd,bhsd->bhgs",
        inputs.q.reshape(2, 2, 2, 128).astype(np.float64),
        inputs.k.astype(np.float64),
    )
    top = scores.max(axis=(2, 3))
    assert (top[[0, 1], [0, 1]] > 100).all()
    assert (top[[0, 1], [1, 0]] < -90).all()


def test_a_source_may_be_named_instead_of_its_python_file(tmp_path, monkeypatch):
    (tmp_path / "mine.cu").write_text(ONE_WARP)
    (tmp_path / "mine.py").write_text(
        "from labtools.problem import *\nfrom pathlib import Path\n"
        "def launch(problem, limits, knobs): return []\n"
        "RUNG = Rung('mine', 't', Path(__file__).with_suffix('.cu'), 'i', 'l', 'c', launch)\n"
    )
    monkeypatch.chdir(tmp_path)
    assert load_rung("mine.cu").id == "mine"


def test_c_headers_give_a_gpu_kernel_their_types_and_constants():
    names = ("stdint", "math", "float", "limits", "stdio", "stddef", "assert")
    text = "".join(f"#include <{name}.h>\n#include <c{name}>\n" for name in names)
    text += """#include "ladder.cuh"
#include <cuda_fp16.h>
#include <cuda_bf16.h>
extern "C" __global__ void k(float* o) {
  assert(threadIdx.x < 40);
  static_assert(sizeof(int64_t) == 8 && sizeof(uint8_t) == 1, "as on the CPU");
  *o = UINT32_MAX + INFINITY - FLT_MAX + INT_MAX;
}"""
    assert "k" in compile_cubin(text, "sm_80").entries


def test_a_header_that_trips_over_the_prelude_is_the_one_named() -> None:
    header = find_cuda_headers()[0] / "cooperative_groups.h"
    log = (
        f"{NATIVE / 'cuda_on_cpu.h'}:46:38: error: 'noinline' was not declared in this scope\n"
        f"{header}:12:3: note: in expansion of macro '__noinline__'\n"
        f"{header}:12:3: error: expected identifier\n"
    )
    error = _compile_error(log, _Kernel("", "mine.cu", ("decode",), ()))
    assert isinstance(error, CompileError)
    assert error.file == str(header)
    assert "for GPUs only" in error.why
