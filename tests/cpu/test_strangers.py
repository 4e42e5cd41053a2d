"""Kernels and workloads as somebody else writes them: right ones pass, wrong ones do not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from devices import NVRTC, some_of

from labtools.measure.check import CheckReport, check_rung
from labtools.measure.cpu import run_on_cpu
from labtools.measure.cpu.build import NATIVE, Kernel, _compile_error, find_cuda_headers
from labtools.predict.sheets import gpu_or_default
from labtools.problem import LabError, Launch, Rung, Workload, load_rung, make_inputs
from labtools.record.fields import read_argument, write_argument
from labtools.toolchain import CompileError, compile_cubin, compile_rung, compiler

SMALL = Workload(2, 4, 2, 40, 64)
LIMITS = gpu_or_default().limits
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
        ("#include <cub/block/block_scan.cuh>\n", "for GPUs only"),
        (
            '__device__ float ex2(float x) { asm("ex2.approx.f32 %0, %0;" : "+f"(x)); return x; }',
            "inline assembly",
        ),
    ],
)
def test_what_only_a_gpu_knows_is_said_to_be_so_or_run(tmp_path, monkeypatch, head, why):
    edits = (("extern", f"{head}\nextern"), ("/*end*/", "l *= ex2(0);" if "ex2" in head else ""))
    rung = stranger(tmp_path, ONE_WARP, *edits)
    with monkeypatch.context() as without:
        without.setattr(compiler, "_FIRST_CHOICES", {"auto": ()})
        with pytest.raises(LabError) as error:
            run_on_cpu(rung, SMALL)
    assert why in error.value.why
    if NVRTC is not None:
        assert run_on_cpu(rung, SMALL).ok


GROUPS = "#include <cooperative_groups.h>\n#include <cooperative_groups/reduce.h>\n"
GROUPS += "#include <cooperative_groups/scan.h>\nnamespace cg = cooperative_groups;\n"
PIPE = "#include <cuda/pipeline>\n"
BARRIER = "#include <cuda/barrier>\nusing Barrier = cuda::barrier<cuda::thread_scope_block>;\n"
SUM = "for (int o = 16; o; o >>= 1) s += __shfl_xor_sync(~0u, s, o);"
VALUES = "__half2float(v_row[t + 32 * j])"
COPY = (
    "cuda::memcpy_async(v_smem + 2 * t + 64 * i, v_row + 2 * t + 64 * i, cuda::aligned_size_t<4>(4)"
)
COPIES = f"for (int i = 0; i < HEAD_DIM / 64; ++i) {COPY}"
USED = (VALUES, "__half2float(v_smem[t + 32 * j])")
ROW = "__shared__ alignas(16) half v_smem[HEAD_DIM];"
# Each makes the sum of a warp's numbers in its own way, and is held against shuffles.
GROUP_SUMS = (
    "r = cg::reduce(warp, r, cg::plus<float>());",
    "auto g = cg::tiled_partition<8>(cg::this_thread_block());"
    "r = cg::reduce(g, r, cg::plus<float>()); r += __shfl_xor_sync(~0u, r, 8);"
    "r += __shfl_xor_sync(~0u, r, 16);",
    "for (int o = 16; o; o /= 2) r += warp.shfl_down(r, o); r = warp.shfl(r, 0);",
    "cg::thread_group g = cg::tiled_partition(cg::this_thread_block(), 32);"
    "g.sync();" + SUM.replace("s ", "r ").replace(" s,", " r,"),
    "cg::coalesced_group g = cg::coalesced_threads(); float a = 0;"
    "for (int i = 0; i < 32; ++i) a += g.shfl(r, i); r = a;",
)
ATOMIC_SUMS = (
    "__shared__ cuda::atomic<float, cuda::thread_scope_block> sum;"
    "if (t == 0) sum.store(0.f, cuda::memory_order_relaxed); __syncwarp();"
    "sum.fetch_add(r, cuda::memory_order_relaxed); __syncwarp(); r = sum.load(); __syncwarp();",
    "__shared__ float sum; if (t == 0) sum = 0; __syncwarp();"
    "cuda::atomic_ref<float, cuda::thread_scope_block> a(sum); float seen = a.load();"
    "while (!a.compare_exchange_weak(seen, seen + r)) {} __syncwarp(); r = a.load(); __syncwarp();",
    "__shared__ float sum; if (t == 0) sum = 0; __syncwarp();"
    "cuda::atomic_ref<float, cuda::thread_scope_block> a(sum);"
    "a.fetch_add(r, cuda::std::memory_order_relaxed); __syncwarp(); r = a.load(); __syncwarp();",
)


def summed(ways: tuple[str, ...], before: str = "", after: str = "") -> tuple[str, str]:
    each = "if (!(fabsf(r - s) <= 1e-4f * (1 + fabsf(s)))) wrong = true;"
    tried = "".join(f"{{ float r = mine; {way} {each} }}\n" for way in ways)
    return SUM, f"{before} const float mine = s; bool wrong = false; {SUM} {tried} {after}" + (
        "if (wrong) s = NAN;"
    )


# What is put in front, and edits.
RIGHT = {
    "groups": (
        GROUPS,
        summed(
            GROUP_SUMS,
            "auto warp = cg::tiled_partition<32>(cg::this_thread_block());",
            "if (t % 3) { auto g = cg::coalesced_threads(); "
            "if (g.shfl(t, g.thread_rank()) != t || g.size() > 21) wrong = true; }"
            "if (cg::exclusive_scan(warp, 1) != t "
            "|| cg::inclusive_scan(warp, t) != t * (t + 1) / 2) wrong = true;",
        ),
    ),
    "atomics": ("#include <cuda/atomic>\n", summed(ATOMIC_SUMS)),
    "group_copy": (
        GROUPS + "#include <cooperative_groups/memcpy_async.h>\n",
        (
            "float s = 0;",
            f"float s = 0; {ROW} auto g = cg::this_thread_block(); g.sync();"
            "cg::memcpy_async(g, v_smem, v_row, 2 * HEAD_DIM); cg::wait(g);",
        ),
        USED,
    ),
    "pipeline": (
        PIPE,
        (
            "float s = 0;",
            f"float s = 0; {ROW} auto pipe = cuda::make_pipeline();"
            f"__syncthreads(); pipe.producer_acquire(); {COPIES}, pipe); pipe.producer_commit();"
            "pipe.consumer_wait(); __syncthreads(); pipe.consumer_release();",
        ),
        USED,
    ),
    "pipeline_of_block": (
        GROUPS + PIPE,
        (
            "/*start*/",
            f"{ROW} auto g = cg::this_thread_block();"
            "__shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 1> state;"
            "auto pipe = cuda::make_pipeline(g, &state);",
        ),
        (
            "float s = 0;",
            "float s = 0; pipe.producer_acquire();"
            "cuda::memcpy_async(g, v_smem, v_row, 2 * HEAD_DIM, pipe);"
            "pipe.producer_commit(); pipe.consumer_wait();",
        ),
        (f"{VALUES};", f"{USED[1]}, j + 1 == HEAD_DIM / 32 ? pipe.consumer_release() : void();"),
    ),
    "barrier": (
        BARRIER,
        ("/*start*/", f"{ROW} __shared__ Barrier bar; if (t == 0) init(&bar, 32);__syncthreads();"),
        (
            "float s = 0;",
            f"float s = 0; bar.arrive_and_wait(); {COPIES}, bar);"
            "auto token = bar.arrive(); bar.wait(cuda::std::move(token));",
        ),
        USED,
    ),
    "std": (
        "#include <cuda/std/limits>\n#include <cuda/std/cstdint>\n#include <cuda/std/array>\n"
        "#include <cuda/std/type_traits>\n#include <cuda/std/utility>\n",
        ("m = -INFINITY", "m = -cuda::std::numeric_limits<float>::infinity()"),
        ("float s = 0;", "cuda::std::array<float, 2> a{{0.f, 1.f}}; float s = a[0];"),
    ),
    "host_std": (
        "#include <limits>\n#include <algorithm>\n#include <type_traits>\n#include <cstdint>\n",
        ("m = -INFINITY", "m = std::numeric_limits<float>::lowest()"),
        ("fmaxf(m, s)", "std::max(m, s)"),
    ),
    "labels_and_matrices": (
        GROUPS + "#include <mma.h>\n#include <cub/cub.cuh>\nusing namespace nvcuda;\n"
        "template <int M> __device__ int wrong(const half* a, float* c, int t) {"
        "constexpr int N = 256 / M; wmma::fragment<wmma::accumulator, M, N, 16, float> z;"
        "wmma::fragment<wmma::matrix_a, M, N, 16, half, wmma::row_major> x;"
        "wmma::fragment<wmma::matrix_b, M, N, 16, half, wmma::col_major> y;"
        "wmma::load_matrix_sync(x, a, 16); wmma::load_matrix_sync(y, a, 16);"
        "wmma::fill_fragment(z, 1.f); wmma::mma_sync(z, x, y, z);"
        "wmma::store_matrix_sync(c, z, N, wmma::mem_row_major); __syncwarp(); int count = 0;"
        "for (int i = t; i < 256; i += 32) { float sum = 1; for (int k = 0; k < 16; ++k)"
        "sum += (i / N * 16 + k) % 7 * ((i % N * 16 + k) % 7); count += c[i] != sum; }"
        "__syncwarp(); return count; }\n",
        (
            SUM,
            "auto all = cg::tiled_partition<32>(cg::this_thread_block());"
            "auto g = cg::labeled_partition(all, t & 1);"
            "s = cg::reduce(g, s, cg::plus<float>()); s += __shfl_xor_sync(~0u, s, 1);",
        ),
        (
            "/*end*/",
            "{ __shared__ alignas(float4) half a[512]; __shared__ float c[256];"
            "for (int i = t; i < 512; i += 32) a[i] = __float2half(float(i % 7)); __syncwarp();"
            "if (wrong<8>(a, c, t) + wrong<16>(a, c, t) + wrong<32>(a, c, t)) l = NAN;"
            "using Block = cub::BlockReduce<int, 32>; __shared__ typename Block::TempStorage room;"
            "int sum = Block(room).Sum(t, 5); if (t == 0 && sum != 10) l = NAN; }",
        ),
    ),
    "swap_and_parts": (
        "__device__ void more(double* at, double x) {"
        "if (*at < 0) return; auto* p = (unsigned long long*)at; unsigned long long old = *p, seen;"
        "do { seen = old; double sum = x + __longlong_as_double(seen);"
        "old = atomicCAS(p, seen, __double_as_longlong(sum)); }"
        "while (seen != old); }\n",
        (
            "/*end*/",
            "__shared__ double n; __shared__ float2 two; const uint3 at = threadIdx;"
            "if (at.x == 0) n = 0, two = float2{}; __syncwarp(); more(&n, 2.0);"
            "atomicAdd(&two, make_float2(1.f, 2.f)); __syncwarp(); const dim3 all = blockDim;"
            "if (n != 2 * all.x || two.y != n || CUDART_ONE_FP16 != half(1.f)"
            "|| __vaddus4(0xff01ff01u, 0x02020202u) != 0xff03ff03u || __vsads4(0x01ff01ffu, 0) != 4"
            "|| __vsubss2(0x80000001u, 0x00010001u) != 0x80000000u || INT_MAX < 0) l = NAN;",
        ),
    ),
}


@pytest.mark.parametrize("name", some_of(list(RIGHT), 4, ["groups"]))
def test_what_public_kernels_include_is_known_to_both_compilers(tmp_path, name):
    head, *edits = RIGHT[name]
    rung = stranger(
        tmp_path, ONE_WARP, ("#include <math.h>\n", f"#include <math.h>\n{head}"), *edits
    )
    run = run_on_cpu(rung, SMALL)
    assert run.ok, str(run)
    compile_cubin(rung.source_text, "sm_90", {"HEAD_DIM": "64"})


@pytest.mark.parametrize(
    "edit", [("bar.wait(cuda::std::move(token))", ""), ("bar.arrive_and_wait();", "")]
)
def test_a_barrier_that_is_not_waited_for_orders_nothing(tmp_path, edit):
    head, *edits = RIGHT["barrier"]
    front = ("#include <math.h>\n", f"#include <math.h>\n{head}")
    run = run_on_cpu(stranger(tmp_path, ONE_WARP, front, *edits, edit), SMALL)
    assert not run.ok


# The second one is of a template in a namespace.
STRUCTURES = [
    ("int hq, hkv, S; float scale;", [("hq", "i4"), ("hkv", "i4"), ("S", "i4"), ("scale", "f4")]),
    ("short hq, hkv; int S; double scale;",
     [("hq", "i2"), ("hkv", "i2"), ("S", "i4"), ("scale", "f8")]),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "dtype"), STRUCTURES, ids=["of_words", "of_mixed"])
def test_structures_are_passed_by_value(tmp_path, fields, dtype):
    text = ONE_WARP.replace("int hq, int hkv, int S, float scale)", "__grid_constant__ const P p)")
    text = text.replace("const int h =", "const int hq = p.hq, hkv = p.hkv, S = p.S;"
                        "const float scale = p.scale; const int h =")  # fmt: skip
    entry = "decode"
    head, tail = f"struct P {{ {fields} }};\n", ""
    if "double" in fields:
        entry, tail = "ns::decode<HEAD_DIM, const half>", "}"
        head += "namespace ns {\ntemplate <int D, class T> "
        text = text.replace("HEAD_DIM", "D").replace("const half* q", "T* q")
    text = text.replace('extern "C" ' if tail else 'extern "C"', head + 'extern "C"' * (not tail))
    text += tail

    def launch_one(workload, limits, knobs):
        (one,) = launch(workload, limits, knobs)
        value = np.array(tuple(one.args[5:]), np.dtype(dtype, align=True))[()]
        assert read_argument(write_argument(value)).tobytes() == value.tobytes()
        return [Launch(entry, one.grid, one.block, args=(*one.args[:5], value))]

    source = tmp_path / "decode.cu"
    source.write_text(text)
    rung = Rung("decode", "t", source, idea="i", limiter="l", cost="c", launch=launch_one)
    run = run_on_cpu(rung, SMALL)
    assert run.ok, str(run)
    assert set(compile_rung(rung, SMALL, LIMITS).entries) == {entry}
    entry = entry.replace("decode", "decoder")
    for refusing in (run_on_cpu, lambda *asked: compile_rung(*asked, LIMITS).resources_of(entry)):
        with pytest.raises(LabError, match=r"its kernels are: (ns::)?decode"):
            refusing(rung, SMALL)


def test_bfloat16_has_the_functions_that_half_has_and_whole_numbers_their_short_names(tmp_path):
    names = """template <class T> __device__ uint bits(T x) {
      ushort a = 1; uchar c = 2; ulong d = 3; return a + c + d + x; }\n"""
    text = """{ __nv_bfloat16 a = __float2bfloat16(1.5f), b = __int2bfloat16_rz(257);
      __nv_bfloat162 c = __floats2bfloat162_rn(3.f, -2.f), one = __bfloat162bfloat162(a);
      float2 f = __bfloat1622float2(__hadd2(__hfma2(one, c, c), __hmul2(c, c)));
      if (f.x != 16.5f || f.y != -1.f || __bfloat162float(b) != 256.f) l = NAN;
      if (__bfloat162float(__int2bfloat16_ru(257)) != 258.f) l = NAN;
      if (__bfloat162float(__hfma_relu(a, c.y, a)) != 0.f || __bfloat162int_rd(a) != 1) l = NAN;
      if (__bfloat162float(__hmax(a, c.x)) != 3.f || !__hgt(c.x, a)) l = NAN; }"""
    edits = (
        ("#include <math.h>\n", f"#include <math.h>\n#include <cuda_bf16.h>\n{names}"),
        ("float s = 0;", "float s = 0 * bits(uint8_t(t)) + 0 * int64_t(n);"),
        ("/*end*/", text),
    )
    rung = stranger(tmp_path, ONE_WARP, *edits)
    run = run_on_cpu(rung, SMALL)
    assert run.ok, str(run)
    compile_cubin(rung.source_text, "sm_90", {"HEAD_DIM": "64"})


@pytest.mark.parametrize(
    ("head", "edit", "says"),
    [
        (GROUPS, "cg::this_grid().sync();", "one after another"),
        ("#include <mma.h>\n", "nvcuda::wmma::precision::tf32 x;",
         "for GPUs only"),
    ],
)  # fmt: skip
def test_what_the_cpu_cannot_do_is_not_called_a_mistake(tmp_path, head, edit, says):
    edits = (("#include <math.h>\n", f"#include <math.h>\n{head}"), ("/*end*/", edit))
    rung = stranger(tmp_path, ONE_WARP, *edits)
    with pytest.raises(CompileError) as error:
        run_on_cpu(rung, SMALL)
    assert says in str(error.value)
    assert "correct" not in str(error.value)


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
    error = _compile_error(log, Kernel("", "mine.cu", ("decode",), ()))
    assert isinstance(error, CompileError)
    assert error.file == str(header)
    assert "for GPUs only" in error.why
