"""The CPU runner on small kernels: what CUDA offers works, and each kind of fault is named."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import numpy as np
import pytest
from devices import NVRTC
from processes import descendants

from labtools.measure.case import checked_limits
from labtools.measure.cpu import FAULT_KINDS, CpuFault, CpuRunnerMissing, build_kernel, run_on_cpu
from labtools.measure.cpu.build import GAP_BYTES, adapt_assembly
from labtools.measure.cpu.report import REPORT
from labtools.problem import KernelError, LabError, Launch, Rung, Workload, Workspace
from labtools.toolchain import CompileError, compiler
from labtools.toolchain.cache import cache_dir

ONE = Workload(1, 1, 1, 4, 64)
"""q and out are 64 halves, k and v 256."""
PARAMETERS = "const half* q, const half* k, half* out"


def rung_of(
    folder: Path,
    body: str,
    *,
    block: tuple[int, ...] = (64,),
    grid: tuple[int, ...] = (1,),
    smem_bytes: int = 0,
    parameters: str = PARAMETERS,
    args: tuple[object, ...] = ("q", "k", "out"),
    workspace: tuple[Workspace, ...] = (),
    before: str = "",
) -> Rung:
    """A rung whose kernel is ``body``."""
    source = folder / "kernel.cu"
    text = f'#include <cuda_fp16.h>\n{before}\nextern "C" __global__ void kernel({parameters}) {{\n'
    source.write_text(f"{text}{body}\n}}\n")
    launch = Launch("kernel", grid, block, smem_bytes, args, workspace)
    return Rung("kernel", "a test", source, "", "", "", lambda workload, limits, knobs: [launch])


def results(rung: Rung, orders: tuple[int, ...] = (0, 1, 2, 3)) -> np.ndarray:
    """The output of a kernel that must have no fault, as float64 [64]."""
    run = run_on_cpu(rung, ONE, orders=orders)
    assert not run.faults, run
    return run.out.reshape(-1).astype(np.float64)


def fault_of(
    rung: Rung, kind: str, orders: tuple[int, ...] = (0, 1, 2, 3), within: str = ""
) -> CpuFault:
    """The first fault of that kind, which must be there and have the line marked ``// here``; of
    those ``within`` a part of the source, if one is given."""
    run = run_on_cpu(rung, ONE, orders=orders)
    found = [fault for fault in run.faults if fault.kind == kind]
    assert found, str(run)
    assert not run.ok
    fault = found[0]
    before, part, _ = rung.source_text.partition(within or rung.source_text)
    lines = enumerate(part.splitlines(), before.count("\n") + 1)
    marked = [i for i, line in lines if "// here" in line]
    if marked:
        assert fault.file == str(rung.source)
        assert fault.line in marked, fault
        assert "// here" in fault.source_line
        assert {line for _, line in fault.places} <= set(marked), fault
    return fault


# ---- what CUDA offers ----

T = "const int t = threadIdx.x, lane = t % 32; (void)lane;\n"
WARPS = [
    ("out[t] = __shfl_xor_sync(~0u, t, 5);", lambda t: (t & 32) | (t % 32 ^ 5)),
    ("out[t] = __shfl_sync(~0u, t, 3);", lambda t: (t & 32) + 3),
    ("out[t] = __shfl_sync(~0u, t, 1, 8);", lambda t: t - t % 8 + 1),
    ("out[t] = __shfl_up_sync(~0u, t, 4);", lambda t: np.where(t % 32 >= 4, t - 4, t)),
    ("out[t] = __shfl_down_sync(~0u, t, 4, 16);", lambda t: np.where(t % 16 < 12, t + 4, t)),
    ("out[t] = __popc(__ballot_sync(~0u, t % 3 == 0));", lambda t: np.where(t < 32, 11, 11)),
    ("out[t] = __any_sync(~0u, t == 40);", lambda t: t >= 32),
    ("out[t] = __all_sync(~0u, t < 40);", lambda t: t < 32),
    ("out[t] = __reduce_add_sync(~0u, t);", lambda t: np.where(t < 32, 496, 1520)),
    ("out[t] = __reduce_max_sync(~0u, -t);", lambda t: np.where(t < 32, 0, -32)),
    ("out[t] = __reduce_min_sync(~0u, unsigned(t));", lambda t: np.where(t < 32, 0, 32)),
    ("out[t] = __syncthreads_count(t % 4 == 0);", lambda t: 0 * t + 16),
    ("out[t] = __syncthreads_and(t < 64) + 2 * __syncthreads_or(t > 98);", lambda t: 0 * t + 1),
    ("out[t] = __popc(__match_any_sync(~0u, t / 8));", lambda t: 0 * t + 8),
    ("out[t] = __popc(__activemask());", lambda t: 0 * t + 32),
    ("out[t] = 0; if (lane < 9) out[t] = __popc(__activemask());",
     lambda t: np.where(t % 32 < 9, 9, 0)),
    # Halves of a warp may go separate ways with masks of their own.
    (
        "if (lane < 16) out[t] = __shfl_xor_sync(0xffffu, t, 1);"
        "else out[t] = __shfl_xor_sync(0xffff0000u, t, 2);",
        lambda t: np.where(t % 32 < 16, t ^ 1, t ^ 2),
    ),
    # A lane that has returned is not waited for.
    ("if (lane == 31) { out[t] = 7; return; } out[t] = __popc(__ballot_sync(~0u, 1));",
     lambda t: np.where(t % 32 == 31, 7, 31)),
]  # fmt: skip
"""Bodies, and what each leaves in ``out`` by thread."""


def test_warp_and_block_functions(tmp_path):
    """A block for each body, in one kernel."""
    bodies = "".join(
        f"if (blockIdx.x == {at}) {{ {body} }}\n" for at, (body, _) in enumerate(WARPS)
    )
    own = f"{T}out += 64 * blockIdx.x;\n{bodies}"
    run = run_on_cpu(rung_of(tmp_path, own, grid=(len(WARPS),)), ONE.replace(batch=len(WARPS)))
    assert not run.faults, run
    for got, (body, expected) in zip(run.out.reshape(-1, 64), WARPS, strict=True):
        assert np.array_equal(got.astype(float), expected(np.arange(64)).astype(float)), body


# Small whole numbers, so that no order of adding rounds.
PRODUCT = """
const auto some = [&](int i) { return float((7 * t + 5 * i) % 11 - 5); };
unsigned a[4];
for (int i = 0; i < 4; ++i) a[i] = pack_pair<T>(some(2 * i), some(2 * i + 1));
const unsigned b0 = pack_pair<T>(some(8), some(9)), b1 = pack_pair<T>(some(10), some(11));
const float before[4] = {some(12), some(13), some(14), some(15)};
float sum[4] = {before[0], before[1], before[2], before[3]}, by_shuffles[4];
"""


@pytest.mark.parametrize("element", ["half", "__nv_bfloat16"])
def test_a_matrix_product_is_that_of_the_header(tmp_path, element):
    body = f"{T}using T = {element};\n{PRODUCT}" + (
        "mma_m16n8k16<T>(sum, a, b0, b1);\n"
        "mma_m16n8k16<T>(by_shuffles, a, b0, b1, before);\n"
        "out[t] = 0;\n"
        "for (int i = 0; i < 4; ++i) out[t] = float(out[t]) + (sum[i] == by_shuffles[i]);\n"
    )
    rung = rung_of(tmp_path, body, before='#include "mma.cuh"')
    np.testing.assert_array_equal(results(rung), np.full(64, 4))


@pytest.mark.parametrize(
    ("others", "said"), [("", "at the matrix product"), ("else return;", "takes all 32 lanes")]
)
def test_a_matrix_product_takes_a_whole_warp(tmp_path, others, said):
    body = f"{T}using T = half;\n{PRODUCT}if (lane < 9) mma_m16n8k16<T>(sum, a, b0, b1);\n"
    body += f"{others}\n__syncwarp();\nout[t] = sum[0];"
    fault = fault_of(rung_of(tmp_path, body, before='#include "mma.cuh"'), "collective", (0,))
    assert said in fault.message


def test_shared_memory_static_dynamic_and_in_functions(tmp_path):
    before = """
    template <int N> __device__ float reverse(float x, int t) {
      __shared__ float line[N];
      __shared__ alignas(16) half unused[8][65];
      unused[0][t] = x;
      line[t] = x;
      __syncthreads();
      const float r = line[N - 1 - t];
      __syncthreads();
      return r;
    }"""
    body = """
    extern __shared__ __align__(16) unsigned char raw_smem[];
    __shared__ int count;
    float* rows = reinterpret_cast<float*>(raw_smem);
    if (threadIdx.x == 0) count = 0;
    rows[threadIdx.x] = reverse<64>(threadIdx.x, threadIdx.x);
    __syncthreads();
    atomicAdd(&count, 1);
    __syncthreads();
    out[threadIdx.x] = __float2half(rows[(threadIdx.x + 1) % 64] + count);"""
    got = results(rung_of(tmp_path, body, before=before, smem_bytes=256))
    assert np.array_equal(got, 63 - (np.arange(64) + 1) % 64 + 64)


def test_three_dimensional_launch(tmp_path):
    body = """
    const int t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    const int b = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    out[b * 8 + t] = __int2float_rn(100 * b + t);"""
    got = results(rung_of(tmp_path, body, block=(2, 2, 2), grid=(2, 2, 2)))
    assert np.array_equal(got, np.add.outer(100 * np.arange(8), np.arange(8)).reshape(-1))


def test_atomics_and_workspace_between_launches(tmp_path):
    source = tmp_path / "kernel.cu"
    source.write_text("""
    #include <cuda_fp16.h>
    extern "C" __global__ void clear(unsigned* u, float* f, int* i) {
      *u = 0; *f = 0.f; *i = 1000; i[1] = -1000; i[2] = 5; i[3] = 0;
    }
    extern "C" __global__ void count(unsigned* u, float* f, int* i) {
      const int t = threadIdx.x + blockIdx.x * blockDim.x;
      atomicAdd(u, 1); atomicAdd(f, 0.5f); atomicMin(&i[0], t); atomicMax(&i[1], t);
      atomicExch(&i[2], 9); atomicCAS(&i[3], 0, 7);
    }
    extern "C" __global__ void give(const unsigned* u, const float* f, const int* i, half* out) {
      const int t = threadIdx.x;
      const float all[6] = {float(*u), *f, float(i[0]), float(i[1]), float(i[2]), float(i[3])};
      out[t] = __float2half(all[t % 6]);
    }""")
    held = (("u", 1, "uint32"), ("f", 1, "float32"), ("i", 4, "int32"))
    spaces = tuple(Workspace(name, (size,), dtype) for name, size, dtype in held)
    launches = [
        Launch("clear", (1,), (1,), 0, ("u", "f", "i"), spaces),
        Launch("count", (8,), (32,), 0, ("u", "f", "i"), spaces),
        Launch("give", (1,), (64,), 0, ("u", "f", "i", "out"), spaces),
    ]
    rung = Rung("kernel", "", source, "", "", "", lambda workload, limits, knobs: launches)
    assert results(rung)[:6].tolist() == [256, 128, 0, 255, 9, 7]


def test_last_block_pattern_is_no_race(tmp_path):
    """Write, fence, count; the block that counts last may read what the others wrote."""
    body = """
    __shared__ unsigned rank;
    if (threadIdx.x == 0) {
      partial[blockIdx.x] = blockIdx.x;
      __threadfence();
      rank = atomicAdd(counter, 1);
    }
    __syncthreads();
    if (rank != gridDim.x - 1) return;
    float sum = 0;
    for (int i = 0; i < gridDim.x; ++i) sum += partial[i];
    out[threadIdx.x] = __float2half(sum);"""
    before = 'extern "C" __global__ void zero(unsigned* counter) { *counter = 0; }'
    rung = rung_of(
        tmp_path, body, before=before, parameters="float* partial, unsigned* counter, half* out"
    )
    spaces = (Workspace("partial", (16,), "float32"), Workspace("counter", (1,), "uint32"))
    launches = [
        Launch("zero", (1,), (1,), 0, ("counter",), spaces),
        Launch("kernel", (16,), (64,), 0, ("partial", "counter", "out"), spaces),
    ]
    rung = rung.with_launch(lambda workload, limits, knobs: launches)
    assert (results(rung) == 120).all()


@pytest.mark.parametrize("fence", ["__threadfence();", ""])
def test_sums_by_atomics_are_read_behind_a_fence(tmp_path, fence):
    """Atomics of one address need no order. Who reads their sum needs a fence of each block."""
    body = f"""
    __shared__ unsigned rank;
    if (threadIdx.x == 0) {{
      atomicAdd(total, 1.f);
      {fence}
      rank = atomicAdd(counter, 1);
    }}
    __syncthreads();
    if (rank != gridDim.x - 1) return;
    __threadfence();
    out[threadIdx.x] = __float2half(*total);"""
    before = """extern "C" __global__ void zero(float* total, unsigned* counter) {
      *total = 0, *counter = 0;
    }"""
    parameters = "float* total, unsigned* counter, half* out"
    rung = rung_of(tmp_path, body, before=before, parameters=parameters)
    spaces = (Workspace("total", (1,), "float32"), Workspace("counter", (1,), "uint32"))
    launches = [
        Launch("zero", (1,), (1,), 0, ("total", "counter"), spaces),
        Launch("kernel", (16,), (64,), 0, ("total", "counter", "out"), spaces),
    ]
    rung = rung.with_launch(lambda workload, limits, knobs: launches)
    run = run_on_cpu(rung, ONE, orders=(0,), workers=1)
    assert [fault.kind for fault in run.faults] == ([] if fence else ["race"])
    assert "another block writes" in run.told or fence


def test_half_types_agree_with_numpy(tmp_path):
    body = """
    const int t = threadIdx.x;
    const float2 pair = __half22float2(*reinterpret_cast<const half2*>(q + (t & ~1)));
    const __nv_bfloat16 b = __float2bfloat16(1.5f);
    const half sum = __hadd(q[t], __hmul(q[t], __float2half(2.f)));
    out[t] = __float2half(__half2float(sum) + (t & 1 ? pair.y : pair.x) * __bfloat162float(b)
                          + fmaxf(0.f, exp2f(-INFINITY)));"""
    rung = rung_of(tmp_path, body, before="#include <cuda_bf16.h>")
    from labtools.problem import make_inputs

    q = make_inputs(ONE).q.reshape(-1)
    wanted = (q + q * np.float16(2)).astype(np.float32) + q.astype(np.float32) * np.float32(1.5)
    assert np.array_equal(results(rung), wanted.astype(np.float16).astype(float))


def test_asynchronous_copy(tmp_path):
    body = """
    __shared__ __align__(16) half tile[2][64];
    const int t = threadIdx.x;
    if (t < 8) __pipeline_memcpy_async(&tile[0][t * 8], q + t * 8, 16);
    __pipeline_commit();
    if (t < 8) __pipeline_memcpy_async(&tile[1][t * 8], k + t * 8, 16);
    __pipeline_commit();
    __pipeline_wait_prior(1);
    __syncthreads();
    const half first = tile[0][63 - t];
    __pipeline_wait_prior(0);
    __syncthreads();
    out[t] = __hadd(first, tile[1][t]);"""
    from labtools.problem import make_inputs

    inputs = make_inputs(ONE)
    wanted = inputs.q.reshape(-1)[::-1] + inputs.k.reshape(-1)[:64]
    got = results(rung_of(tmp_path, body, before="#include <cuda_pipeline.h>"))
    assert np.array_equal(got, wanted.astype(float))


# ---- each fault, with its line ----

S = "__shared__ float s[64]; const int t = threadIdx.x, lane = t % 32; (void)lane; (void)s;\n"
FAULTS = tomllib.loads(Path(__file__).with_name("faults.toml").read_text("utf-8"))
BEFORE = """__device__ float sums[64]; __device__ float table[4] = {1, 2, 3, 4};
__device__ __noinline__ int deep(volatile int n) { return deep(n + 1) + n; }"""


@pytest.fixture(scope="module")
def show(tmp_path_factory):
    """The fault that a name of `FAULTS` shows. One kernel, compiled once, has all of them but those
    that use a device variable."""
    base = tmp_path_factory.mktemp("faults")
    together = [name for name, (_, body) in FAULTS.items() if "sums" not in body]

    def of(name: str, orders: tuple[int, ...] = (0, 1, 2, 3)) -> CpuFault:
        names = together if name in together else [name]
        bodies = [f"if (which == {at}) {{ {FAULTS[one][1]}\n}}" for at, one in enumerate(names)]
        folder, number = base / names[0], names.index(name)
        folder.mkdir(exist_ok=True)
        rung = rung_of(
            folder, S + "\n".join(bodies), before=BEFORE,
            parameters=f"{PARAMETERS}, int which", args=("q", "k", "out", np.int32(number)),
        )  # fmt: skip
        return fault_of(rung, FAULTS[name][0], orders, bodies[number])

    return of


@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_named_with_its_line(show, name):
    fault = show(name)
    assert fault.message and "{" not in fault.message


def test_every_kind_of_fault_is_shown_by_a_test():
    shown = {kind for kind, _ in FAULTS.values()} | {"hang", "launch", "order_dependent"}
    assert shown == set(FAULT_KINDS)


@pytest.mark.parametrize("order", range(4))
def test_races_are_found_under_every_order(show, order):
    """What matters is that nothing orders two accesses, not which came first this time."""
    for name in ("race without a barrier", "write after read", "race in a warp"):
        show(name, (order,))


def test_messages_name_both_lines_and_what_was_touched(show):
    fault = show("race without a barrier")
    first, second = (line for _, line in fault.places)
    assert first != second
    assert all(word in fault.message for word in ("`s`", f"line {first}", f"line {second}"))
    fault = show("read past the end")
    assert "element 64 of `q`, which has 64 elements" in fault.message
    assert (fault.thread, fault.block) == ((63, 0, 0), (0, 0, 0))


def test_deadlock_message_says_who_stands_where(tmp_path):
    body = "const int t = threadIdx.x;\nif (t == 5) return;\n"
    body += "if (t >= 32 && t < 48) __shfl_sync(~0u, t, 0); // here\n"
    body += "else __syncthreads(); // here"
    fault = fault_of(rung_of(tmp_path, body), "barrier")
    assert "47 threads wait at __syncthreads()" in fault.message
    assert "1 has returned" in fault.message


@pytest.mark.parametrize("inlined", ["__forceinline__", "__noinline__"])
def test_fault_in_a_header_names_the_call_and_the_header(tmp_path, inlined):
    (tmp_path / "helper.cuh").write_text(
        f"__device__ {inlined} half get(const half* p, int i) {{\n  return p[i];\n}}\n"
    )
    body = "const int t = threadIdx.x;\nout[t] = get(q, t + 1); // here"
    fault = fault_of(rung_of(tmp_path, body, before='#include "helper.cuh"'), "out_of_bounds")
    assert "in helper.cuh line 2" in fault.message


def test_fault_in_an_edited_cell_names_the_cell(tmp_path):
    rung = rung_of(tmp_path, "out[threadIdx.x] = q[threadIdx.x];")
    rung = rung.with_source(rung.source_text.replace("q[threadIdx.x]", "q[64]"))
    (fault,) = run_on_cpu(rung, ONE).faults
    assert fault.file == "kernel (cell)"
    assert fault.line == 4


def test_out_of_dynamic_shared_memory(tmp_path):
    body = "extern __shared__ float s[]; s[threadIdx.x] = 0; // here"
    assert not run_on_cpu(rung_of(tmp_path, body, smem_bytes=256), ONE).faults
    fault = fault_of(rung_of(tmp_path, body, smem_bytes=252), "out_of_bounds")
    assert "252 bytes in this launch" in fault.message


def test_blocks_that_write_the_same_output_race(tmp_path):
    rung = rung_of(tmp_path, "out[threadIdx.x] = q[threadIdx.x]; // here", grid=(2,))
    fault = fault_of(rung, "race")
    assert "block" in fault.message


def test_blocks_that_pass_a_sum_on_by_volatile_flags_are_right(tmp_path):
    """Each takes a ticket, so that it waits only for one that has begun."""
    parameters = f"{PARAMETERS}, int* tickets, volatile int* flags, volatile float* sums"
    body = """
    __shared__ int ticket;
    if (threadIdx.x == 0) {
      ticket = atomicAdd(tickets, 1);
      float before = 0;
      if (ticket) {
        while (flags[ticket - 1] != 1) {}
        __threadfence();
        before = sums[ticket - 1];
      }
      sums[ticket] = before + 1;
      __threadfence();
      flags[ticket] = 1;
    }
    __syncthreads();
    if (ticket == gridDim.x - 1) out[threadIdx.x] = __float2half(sums[ticket]);"""
    clear = """extern "C" __global__ void clear(int* tickets, int* flags) {
      flags[threadIdx.x] = 0;
      if (threadIdx.x == 0) *tickets = 0;
    }"""
    blocks, none = 1024, ("tickets", "flags")
    spaces = (
        *(Workspace("tickets", (1,), "int32"), Workspace("flags", (blocks,), "int32")),
        Workspace("sums", (blocks,), "float32"),
    )
    rung = rung_of(
        tmp_path, body, parameters=parameters, grid=(blocks,), before=clear,
        args=("q", "k", "out", *none, "sums"), workspace=spaces,
    )  # fmt: skip
    (second,) = rung.launches(ONE, checked_limits())
    first = dataclasses.replace(second, entry="clear", grid=(1,), block=(blocks,), args=none)
    rung = dataclasses.replace(rung, launch=lambda workload, limits, knobs: [first, second])
    for _ in range(3):
        run = run_on_cpu(rung, ONE, orders=(0,), workers=2)
        assert not run.faults and (run.out == blocks).all(), run


@pytest.mark.parametrize(
    ("lock", "free"),
    [
        ("while (atomicCAS(lock, 0, 1)) {}", "atomicExch(lock, 0);"),
        ("while (*(volatile int*)lock || atomicExch(lock, 1)) {}", "atomicExch(lock, 0);"),
        ("while (*(volatile int*)lock) {} *(volatile int*)lock = 1;", "*(volatile int*)lock = 0;"),
        ("", ""),
    ],
)
def test_a_lock_that_two_blocks_can_have_at_once_is_none(tmp_path, lock, free):
    body = f"""if (threadIdx.x == 0) {{
      {lock}
      __threadfence();
      *sum = *sum + blockIdx.x + 1;
      __threadfence();
      {free}
    }}"""
    parameters = "half* out, volatile int* sum, int* lock"
    spaces = (Workspace("sum", (1,), "int32"), Workspace("lock", (1,), "int32"))
    clear = """extern "C" __global__ void clear(half* out, int* sum, int* lock) {
      out[threadIdx.x] = 0; *sum = *lock = 0;
    }"""
    rung = rung_of(
        tmp_path, body, parameters=parameters, grid=(5,), before=clear,
        args=("out", "sum", "lock"), workspace=spaces,
    )  # fmt: skip
    (second,) = rung.launches(ONE, checked_limits())
    first = dataclasses.replace(second, entry="clear", grid=(1,))
    rung = dataclasses.replace(rung, launch=lambda workload, limits, knobs: [first, second])
    run = run_on_cpu(rung, ONE, orders=(0,))
    found = ["between this write and the read" in fault.message for fault in run.faults]
    assert found == [] if "atomic" in lock else found and all(found), run


@pytest.mark.parametrize("loop", ["while (n >= 0) n = n * 3 & 7;", "while (*flag == 0) { }"])
def test_endless_loop_is_named_and_ended(tmp_path, loop):
    parameters = "const half* q, const half* k, half* out, volatile int* flag"
    body = (
        f"int n = threadIdx.x == 40;\nif (n) *flag = 0;\nif (n) {loop} // here\nif (n) out[0] = n;"
    )
    rung = rung_of(
        tmp_path, body, parameters=parameters,
        args=("q", "k", "out", "flag"), workspace=(Workspace("flag", (1,), "int32"),),
    )  # fmt: skip
    started = time.monotonic()
    run = run_on_cpu(rung, ONE, time_limit_s=0.5)
    assert time.monotonic() - started < 10
    (fault,) = run.faults
    assert fault.kind == "hang"
    assert "here" in fault.source_line
    assert fault.thread == (40, 0, 0)


def test_result_that_depends_on_the_order_of_warps(tmp_path):
    """Atomics make it no race, and still the answer is whichever warp came last."""
    source = Path(tmp_path / "kernel.cu")
    source.write_text("""
    #include <cuda_fp16.h>
    extern "C" __global__ void kernel(const half* v, half* out, float* last) {
      if (threadIdx.x == 0) atomicExch(last, 0.f);
      __syncthreads();
      if (threadIdx.x % 32 == 0) atomicExch(last, threadIdx.x == 0 ? 2.f : 1.f);
      __syncthreads();
      const float factor = atomicAdd(last, 0.f);
      out[threadIdx.x] = __float2half(factor * __half2float(v[threadIdx.x]));
    }""")
    spaces = (Workspace("last", (1,), "float32"),)
    launch = Launch("kernel", (1,), (64,), 0, ("v", "out", "last"), spaces)
    first = "if (threadIdx.x == 0) atomicExch"
    rung = Rung("kernel", "", source, "", "", "", lambda workload, limits, knobs: [launch])
    one_row = Workload(1, 1, 1, 1, 64)  # attention over one row is that row of v
    # The workspace starts as poison, which the first statement replaces atomically.
    assert first in rung.source_text
    text = rung.source_text.replace(f"{first}(last, 0.f);", "if (threadIdx.x == 0) *last = 0.f;")
    run = run_on_cpu(rung.with_source(text), one_row)
    assert [fault.kind for fault in run.faults] == ["order_dependent"], run


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"args": ("q", "k")}, "takes 3 arguments"),
        ({"args": ("q", "k", np.int32(3))}, "argument 2 of kernel is a pointer"),
        ({"args": (np.float32(1), "k", "out")}, "argument 0"),
        (
            {"parameters": "half* out, float x", "args": ("out", np.int32(1))},
            "float in the kernel, and the launch passes a 32-bit integer",
        ),
    ],
)
def test_launch_that_a_gpu_would_refuse(tmp_path, change, message):
    (fault,) = run_on_cpu(rung_of(tmp_path, "", **change), ONE).faults
    assert fault.kind == "launch"
    assert message in fault.message


# ---- what surrounds a kernel ----


def test_sample_of_blocks_compares_what_it_ran():
    from labtools.problem import load_rung

    run = run_on_cpu(load_rung("r03"), Workload(2, 8, 2, 40, 64), orders=(0,), blocks=3)
    assert run.ok, run
    assert run.blocks == 3
    assert int(np.isfinite(run.out.astype(float)).all(axis=-1).sum()) == 3


def test_no_cuda_headers_is_said_plainly(tmp_path, monkeypatch):
    from labtools.measure.cpu import build

    monkeypatch.setattr(build, "_header_folders", lambda: iter([tmp_path]))
    with pytest.raises(CpuRunnerMissing, match="header") as caught:
        build.find_cuda_headers()
    assert "nvidia-cuda-crt" in caught.value.why


def test_a_kernel_and_a_function_that_are_not_there_are_named(tmp_path):
    other = Launch("kernel_two", (1,), (64,), 0, ("q", "k", "out"))
    wrong = rung_of(tmp_path, "").with_launch(lambda workload, limits, knobs: [other])
    with pytest.raises(KernelError, match="no kernel called kernel_two"):
        run_on_cpu(wrong, ONE)
    rung = rung_of(tmp_path, "missing(out);", before="__device__ void missing(half* out);")
    with pytest.raises(CompileError, match="missing"):
        run_on_cpu(rung, ONE)


def test_inline_assembly_for_a_gpu_is_named_with_its_line_or_run(tmp_path, monkeypatch):
    body = 'unsigned n;\nasm volatile("mov.u32 %0, %%laneid;" : "=r"(n));\nout[0] = n;'
    with monkeypatch.context() as without:
        without.setattr(compiler, "_FIRST_CHOICES", {"auto": ()})
        with pytest.raises(CompileError, match="inline assembly") as caught:
            run_on_cpu(rung_of(tmp_path, body), ONE)
    assert caught.value.line == 5
    assert "laneid" in caught.value.excerpt
    if NVRTC is not None:
        each = rung_of(tmp_path, body.replace("out[0]", "out[threadIdx.x]"))
        assert list(results(each)) == [*range(32), *range(32)]
    guarded = body.replace("asm volatile", "n = 3;\n#ifdef __CUDA_ARCH__\nasm volatile")
    rung = rung_of(tmp_path, guarded.replace("\nout[0]", "\n#endif\nif (threadIdx.x == 0) out[0]"))
    assert results(rung)[0] == 3


def test_two_processes_compile_the_same_kernel_at_once(tmp_path):
    code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
from test_cpu_runner import rung_of, results
folder = Path({str(tmp_path)!r}) / sys.argv[1]
folder.mkdir()
source = rung_of(folder, "out[threadIdx.x] = 5;")
assert (results(source) == 5).all()
"""
    # What is compiled once for every kernel is there; the kernel itself is not.
    results(rung_of(tmp_path, "out[threadIdx.x] = 4;"))
    cache = tmp_path / "cache" / "labtools" / "cpu"
    for once in ("runtime-*", "cuda_on_cpu-*"):
        for folder in (cache_dir("cpu") or tmp_path).glob(once):
            shutil.copytree(folder, cache / folder.name)
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    both = [
        subprocess.Popen(
            [sys.executable, "-c", code, name], env=environment, stderr=subprocess.PIPE, text=True
        )
        for name in ("first", "second")
    ]
    for child in both:
        _, said = child.communicate(timeout=120)
        assert child.returncode == 0, said
    assert not list(cache.glob("build-*"))


def test_killed_child_is_a_fault_not_an_exception(tmp_path):
    """The kernel's process dies of a signal that nothing can catch."""
    import threading

    rung = rung_of(tmp_path, "volatile int n = 0;\nwhile (n >= 0) n = 0;\nout[0] = n;")
    stopped = threading.Event()

    def kill_children() -> None:
        while not stopped.wait(0.2):
            for child in descendants(os.getpid()):
                # A child of the build may end between the two.
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                    if (Path(f"/proc/{child}/comm")).read_text().strip() == "kernel":
                        os.kill(child, signal.SIGKILL)

    killer = threading.Thread(target=kill_children)
    killer.start()
    try:
        run = run_on_cpu(rung, ONE, time_limit_s=20)
    finally:
        stopped.set()
        killer.join()
    assert [fault.kind for fault in run.faults] == ["crash"]
    assert "SIGKILL" in run.faults[0].message or "Killed" in run.faults[0].message


def test_memory_that_is_not_there_is_refused_before_it_is_taken(tmp_path):
    huge = Workspace("huge", (3 * 2**29,), "float32")  # 6 GiB
    rung = rung_of(tmp_path, "", workspace=(huge,))
    with pytest.raises(LabError, match="too large"):
        run_on_cpu(rung, ONE)


def test_report_layout_is_that_of_the_native_side():
    header = Path(run_on_cpu.__code__.co_filename).parent / "native" / "report.h"
    (place, fault) = map(int, re.findall(r"sizeof\(\w+\) == (\d+)", header.read_text()))
    assert REPORT["faults"].subdtype[0]["places"].subdtype[0].itemsize == place
    assert REPORT["faults"].subdtype[0].itemsize == fault
    assert "MAX_FAULTS = 24" in header.read_text()
    assert REPORT["faults"].shape == (24,)


def test_assembly_gets_gaps_and_ties():
    text = (
        '\t.section\t.tbss,"awT",@nobits\n\t.align 4\nred:\n\t.zero\t16\n\t.text\n'
        "f:\n\tmovq\tsmem@gottpoff(%rip), %rax\n\tmovq\tred@tpoff, %rax\n\tcall\tmemcpy\n"
    )
    changed = adapt_assembly(text)
    assert f"\t.zero\t16\n\t.zero\t{GAP_BYTES}\n" in changed
    assert ".set\tsmem, lab_dynamic_shared" in changed
    assert ".set\tred" not in changed
    assert "call\tlab_memcpy" in changed
    kept = adapt_assembly("\t.bss\n\t.type\tcounter, @object\ncounter:\n\t.zero 4\n")
    assert f"\t.zero\t{GAP_BYTES}\n\t.type\tcounter, @object\ncounter:" in kept
    assert "\t.bss" not in kept
    assert ".balign\t32" in adapt_assembly("\t.local\tx\n\t.comm\tx,64,32\n")
    unset = "\tmovabsq\t$-72340172838076674, %rax\n\tmovl\t$-2, %eax\n\tvmovd\t%eax, %xmm0\n"
    unset += "\tvpbroadcastb\t%xmm0, %xmm0\n\tmovl\t$-2, %ecx\n"
    assert adapt_assembly(unset).count("$-1,") == 2  # NaN; a -2 of the kernel's own stays


def test_second_build_comes_from_the_cache(tmp_path, monkeypatch):
    rung = rung_of(tmp_path, f"out[threadIdx.x] = {random.getrandbits(24)};")
    first = build_kernel(rung.source_text, "kernel", ["kernel"], {}, rung.include_dirs)
    from labtools.measure.cpu import build

    def refuse(command: list[str], folder: Path, name: str) -> None:
        raise AssertionError(f"compiled again in {folder}")

    monkeypatch.setattr(build, "_compile", refuse)
    again = build_kernel(rung.source_text, "kernel", ["kernel"], {}, rung.include_dirs)
    assert again == first
    with pytest.raises(AssertionError):  # another definition is another kernel
        build_kernel(rung.source_text, "kernel", ["kernel"], {"X": "1"}, rung.include_dirs)
