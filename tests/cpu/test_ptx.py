"""Kernels that are PTX, or have some, on the CPU: right ones are right, and of wrong ones the kind,
the line and the thread are told."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from devices import needs_compiler
from ptx_instructions import INSTRUCTIONS, M, instruction_ptx

from labtools.measure.check import check_rung
from labtools.measure.cpu import CpuRun, build, run_on_cpu
from labtools.measure.cpu.ptx_text import own_file
from labtools.measure.cpu.runner import build_for_cpu
from labtools.measure.cpu.translate import NotTranslated, translate_ptx
from labtools.problem import Problem, Rung, load_rung, operation_of, parse_problem
from labtools.toolchain import CompileError, CompilerMissing, compiler
from labtools.toolchain.ptx import assemble_ptx
from labtools.toolchain.sources import has_inline_ptx

KERNELS = Path(__file__).parent.parent / "ptx"
HEAD = "import numpy as np\nfrom labtools.problem import from_reference\n"
SHARED_OF = """#include <cuda_fp16.h>
#include <cstdint>
__device__ __forceinline__ uint32_t shared_of(const void* p) {
  return (uint32_t)__cvta_generic_to_shared(p);
}
"""
SOFTMAX = """
__device__ float ex2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ float block_of(float v, float* red, bool most) {
  for (int d = 16; d > 0; d /= 2) {
    const float o = __shfl_xor_sync(~0u, v, d);
    v = most ? fmaxf(v, o) : v + o;
  }
  if (threadIdx.x % 32 == 0) red[threadIdx.x / 32] = v;
  __syncthreads();
  v = red[0];
  for (int w = 1; w < blockDim.x / 32; ++w) v = most ? fmaxf(v, red[w]) : v + red[w];
  __syncthreads();  // red is free again
  return v;
}
template <typename T, int threads>
__global__ void k(const T* x, T* out, int columns) {
  __shared__ float red[threads / 32];
  const T* row = x + (size_t)blockIdx.x * columns;
  float most = -INFINITY, sum = 0;
  for (int c = threadIdx.x; c < columns; c += threads) most = fmaxf(most, row[c]);
  most = block_of(most, red, true);
  for (int c = threadIdx.x; c < columns; c += threads) sum += ex2((row[c] - most) * 1.44269504f);
  sum = block_of(sum, red, false);
  for (int c = threadIdx.x; c < columns; c += threads)
    out[(size_t)blockIdx.x * columns + c] = ex2((row[c] - most) * 1.44269504f) / sum;
}
"""
BULK = """
constexpr int TILE = 256;
extern "C" __global__ void k(const float* x, float* out, int n) {
  __shared__ alignas(128) float tile[2][TILE];
  __shared__ alignas(8) uint64_t full[2];
  __shared__ float red[4];
  const int t = threadIdx.x;
  if (t == 0) {
    for (int i = 0; i < 2; ++i)
      asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_of(&full[i])), "r"(1));
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  const int tiles = n / TILE;
  auto load = [&](int i) {
    if (t != 0) return;
    const uint32_t bar = shared_of(&full[i % 2]);
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar),
                 "r"(TILE * 4) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(shared_of(tile[i % 2])),
                 "l"(x + (size_t)blockIdx.x * n + i * TILE), "r"(TILE * 4), "r"(bar) : "memory");
  };
  if (tiles > 0) load(0);
  float sum = 0;
  for (int i = 0; i < tiles; ++i) {
    if (i + 1 < tiles) load(i + 1);
    asm volatile("{ .reg .pred done; again: "
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;"
                 " @done bra over; bra again; over: }" ::"r"(shared_of(&full[i % 2])),
                 "r"(i / 2 % 2) : "memory");
    sum += tile[i % 2][t] + tile[i % 2][t + 128];
    __syncthreads();  // the stage is free
  }
  for (int d = 16; d > 0; d /= 2) sum += __shfl_down_sync(~0u, sum, d);
  if (t % 32 == 0) red[t / 32] = sum;
  __syncthreads();
  if (t == 0) out[blockIdx.x] = red[0] + red[1] + red[2] + red[3];
}
"""
ARRIVE = """
extern "C" __global__ void k(const float* x, float* out, int rows) {
  __shared__ alignas(16) float tile[512];
  __shared__ alignas(8) uint64_t bar;
  const int t = threadIdx.x;
  const uint32_t at = shared_of(&bar);
  if (t == 0) asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(at), "r"(128));
  __syncthreads();
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_of(tile + 4 * t)),
               "l"(x + blockIdx.x * 512 + 4 * t) : "memory");
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(at) : "memory");
  if (rows > 0)
    asm volatile("{ .reg .pred P1; WAIT: mbarrier.try_wait.parity.shared.b64 P1, [%0], %1;"
                 " @P1 bra DONE; bra WAIT; DONE: }" ::"r"(at), "r"(0) : "memory");
  for (int i = 0; i < 4; ++i)
    out[blockIdx.x * 512 + i * 128 + t] = tile[511 - (i * 128 + t)];
}
"""
INT4 = """
__device__ uint32_t nibbles(uint32_t a) {
  uint32_t r;
  asm volatile("lop3.b32 %0, %1, 0x000f000f, 0x64006400, 0xea;" : "=r"(r) : "r"(a));
  asm volatile("sub.f16x2 %0, %1, %2;" : "=r"(r) : "r"(r), "r"(0x64006400));  // less 1024
  return r;
}
extern "C" __global__ void k(const unsigned* packed, const half* scale, half* out, int words) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= words) return;
  uint32_t h[4], s, r[4];
  asm("{ .reg .b16 t; mov.b16 t, %1; mov.b32 %0, {t, t}; }"
      : "=r"(s) : "h"(*reinterpret_cast<const unsigned short*>(scale)));
  for (int j = 0; j < 4; ++j) {
    h[j] = nibbles(packed[i] >> (4 * j));
    asm("mul.f16x2 %0, %1, %2;" : "=r"(h[j]) : "r"(h[j]), "r"(s));
  }
  for (int j = 0; j < 2; ++j) {
    asm("prmt.b32 %0, %1, %2, 0x5410;" : "=r"(r[j]) : "r"(h[2 * j]), "r"(h[2 * j + 1]));
    asm("prmt.b32 %0, %1, %2, 0x7632;" : "=r"(r[j + 2]) : "r"(h[2 * j]), "r"(h[2 * j + 1]));
  }
  asm volatile("st.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(out + 8 * (size_t)i), "r"(r[0]),
               "r"(r[1]), "r"(r[2]), "r"(r[3]) : "memory");
}
"""
GROUPS = """
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda/pipeline>
namespace cg = cooperative_groups;
extern "C" __global__ void k(const float* x, float* out, int n) {
  __shared__ alignas(16) float tile[2][128];
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
  __shared__ float red[4];
  cg::thread_block block = cg::this_thread_block();
  auto warp = cg::tiled_partition<32>(block);
  auto pipe = cuda::make_pipeline(block, &state);
  float sum = 0;
  const int tiles = n / 128;
  for (int i = 0, next = 0; i < tiles; ++i) {
    for (; next < tiles && next < i + 2; ++next) {
      pipe.producer_acquire();
      cuda::memcpy_async(block, tile[next % 2], x + (size_t)blockIdx.x * n + next * 128,
                         cuda::aligned_size_t<16>(512), pipe);
      pipe.producer_commit();
    }
    pipe.consumer_wait();
    const float v = tile[i % 2][127 - block.thread_rank()];
    asm("fma.rn.f32 %0, %1, 0f3F800000, %0;" : "+f"(sum) : "f"(v));
    pipe.consumer_release();
  }
  sum = cg::reduce(warp, sum, cg::plus<float>());
  if (warp.thread_rank() == 0) red[warp.meta_group_rank()] = sum;
  block.sync();
  if (block.thread_rank() == 0) out[blockIdx.x] = red[0] + red[1] + red[2] + red[3];
}
"""
FP8 = """
#include <cuda_bf16.h>
#include <cuda_fp8.h>
extern "C" __global__ void k(const float* x, const __nv_bfloat16* w, __nv_fp8_e4m3* out, int n) {
  const int i = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
  if (i + 3 >= n) return;
  const float4 v = *reinterpret_cast<const float4*>(x + i);
  const __nv_bfloat162* pair = reinterpret_cast<const __nv_bfloat162*>(w + i);
  const float2 a = __bfloat1622float2(__hmul2(pair[0], __floats2bfloat162_rn(2.f, 2.f)));
  const float2 b = __bfloat1622float2(__hadd2(pair[1], pair[1]));
  *reinterpret_cast<__nv_fp8x4_e4m3*>(out + i) =
      __nv_fp8x4_e4m3(make_float4(v.x * a.x, v.y * a.y, v.z * b.x, v.w * b.y));
}
"""
WMMA = """
#include <cuda_bf16.h>
#include <mma.h>
using namespace nvcuda;
extern "C" __global__ void k(const half* a, const half* b, const __nv_bfloat16* d, float* c,
                             half* e) {
  __shared__ half s[256];
  for (int i = threadIdx.x; i < 256; i += 32)
    asm volatile("st.shared.u16 [%0], %1;" ::"r"(shared_of(s + i)),
                 "h"(*reinterpret_cast<const unsigned short*>(a + i)) : "memory");
  __syncwarp();
  wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> fb;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> fc;
  wmma::fragment<wmma::accumulator, 16, 16, 16, half> fh;
  wmma::fragment<wmma::matrix_a, 16, 16, 16, __nv_bfloat16, wmma::col_major> da;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, __nv_bfloat16, wmma::row_major> db;
  wmma::fill_fragment(fc, 0.f);
  wmma::fill_fragment(fh, half(0.f));
  wmma::load_matrix_sync(fa, s, 16);
  wmma::load_matrix_sync(fb, b, 16);
  wmma::mma_sync(fc, fa, fb, fc);
  wmma::mma_sync(fh, fa, fb, fh);
  wmma::load_matrix_sync(da, d, 16);
  wmma::load_matrix_sync(db, d, 16);
  wmma::mma_sync(fc, da, db, fc);
  for (int i = 0; i < fc.num_elements; ++i) fc.x[i] *= 2;
  wmma::store_matrix_sync(c, fc, 16, wmma::mem_row_major);
  wmma::store_matrix_sync(e, fh, 16, wmma::mem_row_major);
}
"""
WGMMA = """
// Chunks of 16 bytes: eight rows of one stand together, and the next eight elements of K behind.
__device__ uint64_t tile_of(const half* tile) {
  return (uint64_t)(shared_of(tile) >> 4) | (uint64_t)(128 >> 4) << 16 | (uint64_t)(256 >> 4) << 32;
}
extern "C" __global__ void k(const half* a, const half* b, float* c) {
  __shared__ alignas(128) half at[64 * 16], bt[8 * 16];
  const int t = threadIdx.x, row = t / 32 * 16 + t % 32 / 4, column = t % 4 * 2;
  for (int i = t; i < 64 * 16; i += 128)
    at[i / 128 * 128 + i % 16 / 8 * 64 + i / 16 % 8 * 8 + i % 8] = a[i];
  bt[t % 16 / 8 * 64 + t / 16 * 8 + t % 8] = b[t];
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  float d[4];
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0,%1,%2,%3}, %4, %5, 0, 1, 1, 0, 0;"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3]) : "l"(tile_of(at)), "l"(tile_of(bt)));
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  for (int i = 0; i < 4; ++i) c[(row + i / 2 * 8) * 8 + column + i % 2] = d[i];
}
"""
SOURCES = {
    "wmma": (
        SHARED_OF + WMMA,
        "def ref(a, b, d): return 2 * (a @ b.T + d.T @ d), a @ b.T\n",
        'N", {**dict.fromkeys("ab", "f16[16,16]"), "d": "bf16[16,16]", "c": "f32[16,16]:out", '
        '"e": "f16[16,16]:out"}, ref, [1], tolerance=0.01)',
        'entry="k", grid="1", block=32',
    ),
    "wgmma": (
        SHARED_OF + WGMMA,
        "def ref(a, b): return a @ b.T\n",
        'N", {"a": "f16[64,16]", "b": "f16[8,16]", "c": "f32[64,8]:out"}, ref, [1])',
        'entry="k", grid="1", block=128, min_arch="sm_90a"',
    ),
    "softmax": (
        SHARED_OF + SOFTMAX,
        "def ref(x):\n    e = np.exp(x - x.max(axis=1, keepdims=True))\n"
        "    return e / e.sum(axis=1, keepdims=True)\n",
        'R,C", {"x": "f32[R,C]", "out": "f32[R,C]:out", "columns": "i32:C"}, ref, [(5, 300)], "R")',
        'entry="k<float, 256>", grid="R", block=256',
    ),
    "bulk": (
        SHARED_OF + BULK,
        "def ref(x): return x.sum(axis=1)\n",
        'R,T", {"x": "f32[R,T*256]", "out": "f32[R]:out", "n": "i32:T*256"}, ref, [(3, 5)])',
        'entry="k", grid="R", block=128',
    ),
    "arrive": (
        SHARED_OF + ARRIVE,
        "def ref(x): return x[:, ::-1].copy()\n",
        'R", {"x": "f32[R,512]", "out": "f32[R,512]:out", "rows": "i32:R"}, ref, [5])',
        'entry="k", grid="R", block=128',
    ),
    "int4": (
        SHARED_OF + INT4,
        "def ref(packed, scale):\n"
        "    return np.stack([packed >> 4 * j & 15 for j in range(8)], axis=1) * float(scale[0])\n",
        'W", {"packed": "u32[W]", "scale": "f16[1]", "out": "f16[W,8]:out", "words": "i32:W"}, '
        "ref, [300])",
        'entry="k", grid="cdiv(W, 128)", block=128',
    ),
    "groups": (
        SHARED_OF + GROUPS,
        "def ref(x): return x.sum(axis=1)\n",
        'R,T", {"x": "f32[R,T*128]", "out": "f32[R]:out", "n": "i32:T*128"}, ref, [(3, 5)])',
        'entry="k", grid="R", block=128',
    ),
    "fp8": (
        FP8,
        "def ref(x, w): return np.clip(x * w * 2, -448, 448)\n",
        'Q", {"x": "f32[Q*4]", "w": "bf16[Q*4]", "out": "f8e4m3[Q*4]:out", "n": "i32:Q*4"}, '
        "ref, [100])",
        'entry="k", grid="cdiv(Q, 64)", block=64',
    ),
}


def rung_of(folder: Path, name: str, edit: tuple[str, str] = ("", "")) -> tuple[Rung, Problem]:
    """One of the kernels, as it is or edited, and the problem it is tried on."""
    source, reference, told, launch = SOURCES[name]
    assert edit[0] in source
    called = f"ptx_{name}_{abs(hash(str(folder))) % 10**8}"
    (folder / f"{called}.cu").write_text(source.replace(*edit) if edit[0] else source)
    text = f'{HEAD}{reference}OPERATION = from_reference("{called}:{told}\n'
    (folder / f"{called}.py").write_text(f"{text}RUNG = OPERATION.rung(__file__, {launch})\n")
    rung = load_rung(folder / f"{called}.py")
    return rung, small(rung)


def small(rung: Rung) -> Problem:
    from labtools.problem import operations

    return operations()[rung.operation].small


def told(run: CpuRun, rung: Rung) -> list[tuple[str, str]]:
    """The faults of a run: kind, and text of the line."""
    assert not run.ok and all(one.thread is not None and one.line for one in run.faults), run
    return [(one.kind, one.source_line.strip()) for one in run.faults]


@needs_compiler
@pytest.mark.parametrize("name", SOURCES)
def test_a_right_kernel_is_right(tmp_path: Path, name: str) -> None:
    rung, problem = rung_of(tmp_path, name)
    assert build_for_cpu(rung, problem).by_ptx == ("asm" in SOURCES[name][0])
    run = run_on_cpu(rung, problem)
    assert run.ok, run


WAITS = '    asm volatile("{ .reg'
WRONG = {
    "a race": ("softmax", "  __syncthreads();  // red is free again\n", "", "race", "red[threadI"),
    "behind a row": (
        "softmax", "c < columns; c += threads) most", "c <= columns; c += threads) most",
        "out_of_bounds", "most = fmaxf"),
    "no wait": ("arrive", "if (rows > 0)", "if (rows < 0)", "race", "cp.async.cg"),
    "no wait for a bulk copy": (
        "bulk", WAITS, f"    if (i > 9) {WAITS.strip()}", "race", "cp.async.bulk"),
    "a misaligned store": (
        "int4", "out + 8 * (size_t)i", "out + 4 + 8 * (size_t)i", "misaligned", "st.global.v4"),
    "a word behind the end": (
        "int4", "if (i >= words)", "if (i > words)", "out_of_bounds", "packed[i]"),
    "no wait for a stage": ("groups", "pipe.consumer_wait();", "", "uninitialised", "tile[i % 2]"),
}  # fmt: skip


@needs_compiler
@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_kernel_is_told_with_line_and_thread(tmp_path: Path, case: str) -> None:
    name, old, new, kind, line = WRONG[case]
    rung, problem = rung_of(tmp_path, name, (old, new))
    faults = told(run_on_cpu(rung, problem), rung)
    assert any(one == kind and line in text for one, text in faults), faults


@needs_compiler
def test_wrong_bits_are_wrong(tmp_path: Path) -> None:
    rung, problem = rung_of(tmp_path, "int4", ("0x5410", "0x5140"))
    run = run_on_cpu(rung, problem)
    assert not run.ok and not run.faults and run.comparison is not None


WAIT = '    asm volatile("cp.async.wait_group %0;" ::"n"(1) : "memory");\n'
ATTENTION = {
    "as it is": ("", "", "", ""),
    "no wait": (WAIT, "", "async_copy", "ldmatrix.sync"),
    "no barrier behind the products": (
        "      }\n    }\n    __syncthreads();\n", "      }\n    }\n", "race", "cp.async.cg"),
    "a row of 130 bytes": ("PITCH = D + 8", "PITCH = D + 1", "misaligned", "cp.async.cg"),
}  # fmt: skip


@needs_compiler
@pytest.mark.parametrize("case", ATTENTION)
def test_attention_with_mma_ldmatrix_and_copies(tmp_path: Path, case: str) -> None:
    old, new, kind, line = ATTENTION[case]
    name = f"mma_{abs(hash(case)) % 10**8}"
    for suffix in (".cu", ".py"):
        text = (KERNELS / f"mma_attention{suffix}").read_text()
        assert suffix == ".py" or old in text
        text = text.replace(old, new) if old else text
        (tmp_path / f"{name}{suffix}").write_text(text.replace("mma_attention", name))
    began = time.process_time()
    rung = load_rung(tmp_path / f"{name}.py")
    run = run_on_cpu(rung, parse_problem(f"{name}:1,256"))
    assert time.process_time() - began < 15
    if not kind:
        assert run.ok, run
        return
    faults = told(run, rung)
    assert any(one == kind and line in text for one, text in faults), faults


def test_ptx_is_translated_once_for_all_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a whole check that was half of the time."""
    asked: list[str] = []

    def translate(text: str, *rest: Any) -> Any:
        asked.append(text)
        return translate_ptx(text, *rest)

    monkeypatch.setattr(build, "translate_ptx", translate)
    build._translated.cache_clear()
    rung = load_rung(KERNELS / "triton_softmax.py")
    for columns in (77, 78, 79):
        assert build_for_cpu(rung, parse_problem(f"triton_softmax:3,{columns}")).by_ptx
    assert len(asked) == 1


def test_ptx_of_triton_is_run(tmp_path: Path) -> None:
    rung = load_rung(KERNELS / "triton_softmax.py")
    problem = parse_problem("triton_softmax:3,77")
    assert build_for_cpu(rung, problem).by_ptx
    assert run_on_cpu(rung, problem).ok
    text = (KERNELS / "triton_softmax.ptx").read_text()
    first, _, rest = text.partition("bar.sync \t0;")
    (tmp_path / "triton_softmax.ptx").write_text(f"{first}{rest}")
    told_by = (
        (KERNELS / "triton_softmax.py").read_text().replace("triton_softmax:", "triton_wrong:")
    )
    (tmp_path / "triton_wrong.py").write_text(told_by)
    rung = load_rung(tmp_path / "triton_wrong.py")
    faults = told(run_on_cpu(rung, parse_problem("triton_wrong:3,77")), rung)
    assert any(kind == "race" and "shared.b32" in line for kind, line in faults), faults


def test_instructions_give_what_a_gpu_gives(tmp_path: Path) -> None:
    (tmp_path / "ptx_instructions.ptx").write_text(instruction_ptx())
    (tmp_path / "ptx_instructions.py").write_text(
        f"{HEAD}def ref(): return np.array({[one[2] & M for one in INSTRUCTIONS]}, np.int64)\n"
        'OPERATION = from_reference("ptx_instructions:N", {"out": "u32[N]:out"}, ref, '
        f"[{len(INSTRUCTIONS)}])\n"
        'RUNG = OPERATION.rung(__file__, entry="k", grid="1", block=32, '
        'source="ptx_instructions.ptx")\n'
    )
    rung = load_rung(tmp_path / "ptx_instructions.py")
    run = run_on_cpu(rung, small(rung), orders=(0, 1))
    assert not run.faults, run
    wrong = [
        (text, tuple(map(hex, given)), hex(wanted & M), hex(int(found)))
        for (text, given, wanted), found in zip(INSTRUCTIONS, run.out.ravel(), strict=True)
        if int(found) != wanted & M
    ]
    assert not wrong


def test_the_instructions_are_right_ptx() -> None:
    try:
        assert assemble_ptx(instruction_ptx(), "sm_90", "instructions.ptx").image
    except CompilerMissing:
        pytest.skip("no nvJitLink here")


HEADER = ".version 8.5\n.target sm_90\n.address_size 64\n"


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("tcgen05.fence::before_thread_sync;", "the PTX instruction `tcgen05.fence::before_thread"),
        (
            "wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {%r1}, %r1, %r1, 1, 1, 1;",
            "the PTX instruction `wgmma.mma_async",
        ),
        ("tex.1d.v4.f32.s32 {%r1,%r1,%r1,%r1}, [t, {%r1}];", "the PTX instruction `tex.1d"),
        ("mov.u32 %r1, %envreg3;", "the operand `%envreg3`"),
        ("mov.u32 %r1, %pm0;", "the operand `%pm0`"),
        ("cvt.rn.f32.u32 %r1;", "the PTX instruction `cvt.rn.f32.u32`"),
        ("call.uni (p), malloc, (q);", "a call of `malloc`"),
    ],
)
def test_what_is_not_here_is_named_with_its_line(line: str, what: str) -> None:
    text = f"{HEADER}.visible .entry k() {{\n.reg .b32 %r<9>;\n.param .b64 p; .param .b64 q;\n"
    text += f"{line}\nret;\n}}"
    with pytest.raises(NotTranslated) as refused:
        translate_ptx(text, "k.ptx", lambda file: None)
    assert refused.value.what.startswith(what)
    assert refused.value.line == 7


def test_blocks_of_a_cluster_are_refused_and_a_cluster_of_one_is_not() -> None:
    text = f"{HEADER}.visible .entry k()\n.reqnctapercluster {{}}, 1, 1\n{{{{\nret;\n}}}}"
    assert translate_ptx(text.format(1), "k.ptx", lambda file: None).kernels
    with pytest.raises(NotTranslated, match="clusters of blocks"):
        translate_ptx(text.format(2), "k.ptx", lambda file: None)


def test_what_is_not_launched_may_hold_anything() -> None:
    text = f"{HEADER}.visible .entry k() {{\nret;\n}}\n.visible .entry j() {{\ntcgen05.x;\nret;\n}}"
    assert set(translate_ptx(text, "k.ptx", lambda file: None, wanted=["k"]).kernels) == {"k"}
    with pytest.raises(NotTranslated, match=r"tcgen05\.x"):
        translate_ptx(text, "k.ptx", lambda file: None)


@needs_compiler
def test_a_refusal_names_the_line_of_the_source(tmp_path: Path) -> None:
    asked = '\n  asm("mov.u32 %0, %%envreg1;" : "=r"(columns));'
    edit = ("float most = -INFINITY, sum = 0;", f"float most = -INFINITY, sum = 0;{asked}")
    rung, problem = rung_of(tmp_path, "softmax", edit)
    with pytest.raises(CompileError) as refused:
        run_on_cpu(rung, problem)
    assert "envreg1" in refused.value.what and "envreg1" in refused.value.excerpt
    assert f"line {refused.value.line}" in refused.value.what


def test_without_a_compiler_it_is_said_what_brings_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiler, "_FIRST_CHOICES", {"auto": ()})
    rung, problem = rung_of(tmp_path, "int4")
    with pytest.raises(CompileError) as refused:
        run_on_cpu(rung, problem)
    assert "inline assembly" in refused.value.why
    assert "nvidia-cuda-nvrtc" in refused.value.still_works


@needs_compiler
def test_the_answer_says_by_which_way_it_ran(tmp_path: Path) -> None:
    rung, problem = rung_of(tmp_path, "arrive")
    report = check_rung(rung, problem, quick=True)
    assert report.ok, report.summary
    assert "on the CPU by its PTX" in report.summary.splitlines()[0]
    assert operation_of(problem).name == rung.operation


def test_which_sources_have_inline_ptx() -> None:
    asm = 'asm("mov.u32 %0, 1;" : "=r"(n));\n'
    assert has_inline_ptx(asm) and has_inline_ptx(asm.replace("asm(", "asm volatile ("))
    assert not has_inline_ptx("// " + asm) and not has_inline_ptx('asm volatile("" ::: "memory");')
    assert not has_inline_ptx(f"#ifdef __CUDA_ARCH__\n{asm}#else\nn = 1;\n#endif\n")
    # It asks which GPU it is, and not whether it is one.
    assert has_inline_ptx(f"#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800\n{asm}#endif\n")


def test_which_files_are_the_readers_own(tmp_path: Path) -> None:
    assert own_file("/a/k.cu", "k.cu", ()) == "k.cu"
    assert own_file(str(tmp_path / "h.cuh"), "k.cu", [tmp_path]) == str(tmp_path / "h.cuh")
    assert own_file("/usr/include/cuda_fp16.hpp", "k.cu", [tmp_path]) is None


def test_lines_follow_what_was_laid_out() -> None:
    """An instruction of a library's header belongs to the line that calls it."""
    text = (
        f'{HEADER}.visible .entry k() {{\n.reg .b32 %r<9>;\n.loc 1 5 3\n.loc 2 99 1, '
        'function_name $L__info_string0, inlined_at 1 5 3\nmov.u32 %r1, %envreg1;\nret;\n}\n'
        '.file 1 "k.cu"\n.file 2 "/usr/include/cuda_fp16.hpp"\n'
    )  # fmt: skip
    with pytest.raises(NotTranslated) as refused:
        translate_ptx(text, "k.cu", lambda file: file if file == "k.cu" else None)
    assert refused.value.line == 5
    assert np.isfinite(refused.value.line)
