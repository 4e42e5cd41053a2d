"""Forecasts of kernels with tensor cores, rings of copies, pages, and a last block that joins."""

from __future__ import annotations

import numpy as np
import pytest
from devices import LIMITS, needs_tools, some_of

from labtools.predict import forecast, load_gpu
from labtools.predict.lanes import Buffers, lanes_of_block, lanes_of_blocks, make_buffers
from labtools.predict.machine import machine_of
from labtools.predict.memory import CallMemory
from labtools.predict.streams import Op, block_streams
from labtools.predict.trace import run_trace
from labtools.problem import Launch, Workload, Workspace, load_rung
from labtools.toolchain import compile_cubin
from labtools.toolchain.sass import Sass, read_sass

pytestmark = needs_tools

H200 = load_gpu("h200")
MACHINE = machine_of(H200)


def sass_of(source: str) -> Sass:
    return read_sass(compile_cubin(source, "sm_90"), "kernel")


def launch_of(blocks: int, threads: int, *workspace: Workspace, **more: object) -> Launch:
    names = tuple(one.name for one in workspace)
    return Launch("kernel", (blocks,), (threads,), 0, names, workspace, **more)  # type: ignore[arg-type]


def buffers_of(launch: Launch, contents: dict[str, np.ndarray] | None = None) -> Buffers:
    sizes = {one.name: one.bytes for one in launch.workspace}
    return make_buffers([launch], contents or {}, sizes)


# ------------------------------------------------------------------------------ the last block

LAST = """
extern "C" __global__ void kernel(unsigned* counters, float* out) {
  __shared__ bool is_last;
  out[blockIdx.x * 128 + threadIdx.x] = 1.f;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) is_last = atomicInc(counters + blockIdx.x / 4, 3) == 3;
  __syncthreads();
  if (!is_last) return;
  float sum = 0.f;
  for (int i = 0; i < 100; ++i) sum = __fadd_rn(sum, __ldcg(out + i * 128 + threadIdx.x));
  out[threadIdx.x] = sum;
}
"""


@pytest.mark.parametrize(
    "source",
    [
        LAST,
        LAST.replace("bool is_last", "int is_last"),
        LAST.replace(
            "atomicInc(counters + blockIdx.x / 4, 3)", "atomicAdd(counters + blockIdx.x / 4, 1u)"
        ),
        LAST.replace(
            "atomicInc(counters + blockIdx.x / 4, 3)",
            "atomicAdd(counters + 2 * (blockIdx.x / 4), 1u)",
        ),
    ],
    ids=["inc", "int", "add", "spread"],
)
@pytest.mark.parametrize("pairs", [2, 64])
def test_one_block_of_each_group_goes_on(source: str, pairs: int) -> None:
    sass = sass_of(source)
    launch = launch_of(
        4 * pairs,
        128,
        Workspace("counters", (2 * pairs,), "uint32"),
        Workspace("values", (1 << 16,), "float32"),
    )
    buffers = buffers_of(launch)
    blocks = np.arange(4 * pairs)
    profile = run_trace(sass, lanes_of_blocks(launch, buffers, sass.arch, blocks), buffers)
    executed = profile.executed()
    last = blocks % 4 == 3
    assert executed[last].min() > executed[~last].max() + 100
    assert len(np.unique(executed[last])) == 1 and len(np.unique(executed[~last])) == 1
    assert any("counted once" in note for note in profile.notes)
    # A block followed alone agrees with what it did among all.
    for block in (2, 3, 4 * pairs - 1):
        alone = run_trace(sass, lanes_of_block(launch, buffers, sass.arch, block), buffers)
        assert alone.executed()[0] == executed[block]


# ------------------------------------------------------------------- rare work, and beginnings

RARE = """
extern "C" __global__ void kernel(const float* x, float* out) {
  float most = 0.f, sum = 0.f;
  for (int i = 0; i < 64; ++i) {
    const float value = x[i * 32 + threadIdx.x];
    if (CONDITION) {
#pragma unroll
      for (int j = 0; j < 40; ++j) sum = __fmaf_rn(sum, value, most);
      most = value;
    }
    sum = __fadd_rn(sum, value);
  }
  out[threadIdx.x] = sum + most;
}
"""


def trip_length(condition: str) -> float:
    sass = sass_of(RARE.replace("CONDITION", condition))
    launch = launch_of(1, 32, Workspace("x", (4096,), "float32"), Workspace("y", (32,), "float32"))
    buffers = buffers_of(launch)
    trace = run_trace(sass, lanes_of_block(launch, buffers, sass.arch, 0), buffers)
    return float(trace.executed()[0]) / 64


def test_what_the_whole_warp_is_asked_about_is_rare() -> None:
    assert trip_length("value > most") > 40
    assert trip_length("__any_sync(0xffffffffu, value > most)") < 20
    assert trip_length("__all_sync(0xffffffffu, value > most)") < 20


def test_a_beginning_is_over() -> None:
    infinite = "__int_as_float(0xff800000)"
    assert trip_length(f"value == {infinite}") < 20
    assert trip_length(f"value != {infinite}") > 40


# --------------------------------------------------------------------------- shared memory

MATRIX = """
extern "C" __global__ void kernel(unsigned* out) {
  __shared__ __align__(128) unsigned char tile[16 * STRIDE];
  const int lane = threadIdx.x % 32, row = lane % 16, chunk = lane / 16;
  const unsigned at = (unsigned)__cvta_generic_to_shared(tile) + row * STRIDE + PLACE * 16;
  unsigned a, b, c, d;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(at));
  out[threadIdx.x] = a + b + c + d;
}
"""


@pytest.mark.parametrize(
    ("stride", "place", "wavefronts"),
    [(256, "chunk", 32), (256, "(chunk ^ (row % 8))", 4), (272, "chunk", 4), (64, "chunk", 16)],
)
def test_matrix_loads_meet_the_banks(stride: int, place: str, wavefronts: int) -> None:
    sass = sass_of(MATRIX.replace("STRIDE", str(stride)).replace("PLACE", place))
    launch = launch_of(1, 32, Workspace("y", (32,), "uint32"))
    buffers = buffers_of(launch)
    trace = run_trace(sass, lanes_of_block(launch, buffers, sass.arch, 0), buffers)
    streams = block_streams(trace, buffers)
    found = [
        node.request.wavefronts
        for node in streams.warps[0]
        if isinstance(node, Op)
        and node.request is not None
        and sass.instructions[node.index].base == "LDSM"
    ]
    assert found == [wavefronts]
    one = next(one for one in sass.instructions if one.base == "LDSM")
    node = next(n for n in streams.warps[0] if isinstance(n, Op) and n.index == one.index)
    extra = MACHINE.latency(one, node.request) - MACHINE.variable["ldsm"]
    assert extra == wavefronts - 4


COPY = """
extern "C" __global__ void kernel(const float4* x, float4* out, int rows) {
  __shared__ __align__(16) float4 tile[32];
  const unsigned at = (unsigned)__cvta_generic_to_shared(tile + threadIdx.x);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               ::"r"(at), "l"(x + threadIdx.x), "r"((int)threadIdx.x < rows ? 16 : 0));
  asm volatile("cp.async.wait_all;");
  __syncthreads();
  out[threadIdx.x] = tile[threadIdx.x];
}
"""


@pytest.mark.parametrize(("rows", "sectors"), [(32, 16), (8, 4), (0, 0)])
def test_a_copy_of_zeros_asks_nothing_of_memory(rows: int, sectors: int) -> None:
    sass = sass_of(COPY)
    launch = Launch(
        "kernel",
        (1,),
        (32,),
        0,
        ("x", "y", np.int32(rows)),
        (Workspace("x", (128,), "float32"), Workspace("y", (128,), "float32")),
    )
    buffers = buffers_of(launch)
    trace = run_trace(sass, lanes_of_block(launch, buffers, sass.arch, 0), buffers)
    asked = [
        node.request.sectors
        for node in block_streams(trace, buffers).warps[0]
        if isinstance(node, Op) and node.request is not None and node.request.kind == "async"
    ]
    assert sum(asked) == sectors


# ------------------------------------------------------------------------------- whole kernels


@pytest.mark.parametrize(
    ("name", "text"),
    some_of(
        [
            (name, f"8,32,8,1024,128{kind}")
            for name in ("r09", "r10", "r11")
            for kind in ("", "/paged16", "/bf16")
        ],
        4,
    ),
    ids=str,
)
def test_the_inverted_kernels_read_their_bytes_once(name: str, text: str) -> None:
    rung, workload = load_rung(name), Workload.parse(text)
    made = forecast(rung, workload, H200)
    scheme = rung.scheme(workload)
    asked = workload.kv_bytes if scheme is None else scheme.kv_bytes(workload)
    assert made.main_launch.dram_bytes == pytest.approx(asked, rel=0.1)
    floor_us = asked / MACHINE.dram_bytes_per_cycle / MACHINE.clock_ghz / 1e3
    assert floor_us < made.time_us < 4 * floor_us + 3
    assert ("pages" in made.note) is workload.is_paged


def test_pages_and_ragged_lengths_cost_little() -> None:
    rung = load_rung("r09")
    plain, pages, ragged = (
        forecast(rung, workload, H200).time_us
        for workload in (
            Workload.parse("8,32,8,2048,128"),
            Workload.parse("8,32,8,2048,128/paged64"),
            Workload.parse("8,32,8,2048,128").replace(seq_lens=tuple(range(256, 2049, 256))),
        )
    )
    assert plain * 0.95 < pages < plain * 1.25
    assert ragged < 1.05 * plain  # the longest sequence is as long


def test_joining_costs_the_block_that_joins() -> None:
    rung, workload = load_rung("r09"), Workload.parse("1,8,8,4096,128")
    whole, pieces = (forecast(rung, workload, H200, {"split": n}) for n in (1, 16))
    assert pieces.time_us < whole.time_us / 3
    assert any("counted once" in note for note in pieces.main_launch.notes)
    assert not any("counted once" in note for note in whole.main_launch.notes)


def test_a_fence_waits() -> None:
    launch = Launch("kernel", (1,), (32,), 0, ("y",), (Workspace("y", (1 << 14,), "float32"),))
    body = "for (int i = 0; i < 16; ++i) { out[i * 32 + threadIdx.x] = i; FENCE }"
    source = 'extern "C" __global__ void kernel(float* out) {' + body + "}"
    times = {}
    for name, fence in (("none", ""), ("fence", "__threadfence();")):
        rung = load_rung("r03").with_launch(lambda workload, limits, knobs: [launch])
        rung = rung.with_source(source.replace("FENCE", fence))
        made = forecast(rung, Workload.parse("1,1,1,16,64"), H200)
        times[name] = made.main_launch.time_us
        if fence:
            assert made.stack[0].name == "fence"
    cycles = (times["fence"] - times["none"]) * MACHINE.clock_ghz * 1e3
    assert cycles == pytest.approx(16 * MACHINE.variable["fence"], rel=0.2)


def test_a_page_table_in_order_names_every_page_once() -> None:
    workload = Workload.parse("3,8,2,100,128/paged16").replace(seq_lens=(100, 1, 33))
    memory = CallMemory(
        workload,
        load_rung("r09").launches(workload, LIMITS),
        load_rung("r09").launches(workload, LIMITS)[1:],
    )
    table = memory.buffers.contents["page_table"]
    assert table.shape == (3, workload.max_pages) and table.dtype == np.int32
    used = table[table < workload.num_pages]
    assert sorted(used) == list(range(workload.pages_used))
    assert (table[1, 1:] == workload.num_pages).all()
