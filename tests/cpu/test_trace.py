"""Trip counts and addresses that traces find in machine code, against independent counts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache

import numpy as np
import pytest
from devices import LIMITS, needs_tools, some_of

from labtools.predict.lanes import Buffers, lanes_of_block, lanes_of_blocks, make_buffers
from labtools.predict.semantics import IntegerComparison
from labtools.predict.trace import (
    Executed,
    Execution,
    Repeat,
    Trace,
    TraceError,
    _next_comparisons,
    run_trace,
)
from labtools.problem import Launch, Workload, Workspace, load_rung, timed_launches
from labtools.toolchain import compile_cubin
from labtools.toolchain.listings import machine_code
from labtools.toolchain.sass import Sass, read_sass

LOADS = ("LDG", "LD", "LDGSTS")
STORES = ("STG", "ST")


# --------------------------------------------------------------------------- reading a trace


def later(first: Executed, second: Executed, trips: int) -> Executed:
    """An item of a repeat, as it is some trips on: addresses go on by the same stride."""
    if isinstance(first, Repeat):
        assert isinstance(second, Repeat)
        return Repeat(
            tuple(later(a, b, trips) for a, b in zip(first.body, second.body, strict=True)),
            tuple(later(a, b, trips) for a, b in zip(first.second, second.second, strict=True)),
            first.count,
            first.counts,
        )
    assert isinstance(second, Execution)
    if first.address is None or second.address is None:
        return first
    stride = second.address - first.address
    return Execution(
        first.index, first.active, first.executing, first.address + np.uint64(trips) * stride
    )


def steps_of(items: Sequence[Executed], runs: np.ndarray | bool = True) -> Iterator[Execution]:
    """Every step of a trace, repeats written out."""
    for item in items:
        if isinstance(item, Execution):
            yield Execution(item.index, item.active & runs, item.executing & runs, item.address)
            continue
        for trip in range(item.count):
            still = runs if item.counts is None else runs & (trip < item.counts)
            body = [later(a, b, trip) for a, b in zip(item.body, item.second, strict=True)]
            yield from steps_of(body, still)


def count_steps(trace: Trace, bases: Sequence[str]) -> list[int]:
    """How often each lane executes an opcode, without writing the repeats out."""

    def total(items: Sequence[Executed]) -> np.ndarray:
        found = np.zeros(trace.lanes.count, np.int64)
        for item in items:
            if isinstance(item, Repeat):
                times = item.count if item.counts is None else item.counts
                found += times * total(item.body)
            elif trace.sass.instructions[item.index].base in bases:
                found += item.executing
        return found

    return [int(count) for count in total(trace.items)]


def accessed(trace: Trace, buffers: Buffers, bases: Sequence[str]) -> dict[str, np.ndarray]:
    """Byte offsets that accesses touch, by buffer, each as often as a lane touches it."""
    found: dict[str, list[np.ndarray]] = {}
    for step in steps_of(trace.items):
        one = trace.sass.instructions[step.index]
        if one.base not in bases or not step.executing.any():
            continue
        assert step.address is not None, one.text
        address = step.address[step.executing].astype(np.int64)
        width = np.arange(one.access_bytes)
        for name in buffers.names:
            inside = (address >= buffers.address_of(name)) & (
                address < buffers.address_of(name) + (1 << 40)
            )
            touched = address[inside][:, None] + width - buffers.address_of(name)
            found.setdefault(name, []).append(touched.reshape(-1))
    return {name: np.concatenate(parts) for name, parts in found.items()}


# -------------------------------------------------------------------------- kernels that ship


def traced(
    rung_id: str, workload: Workload, knobs: Mapping[str, int], blocks: Sequence[int]
) -> Iterator[tuple[int, Trace, Buffers]]:
    rung = load_rung(rung_id)
    code = machine_code(rung, workload, LIMITS, knobs)
    launch = timed_launches(rung.launches(workload, LIMITS, knobs))[0]
    lengths = np.asarray(workload.lengths, np.int32)
    buffers = make_buffers([launch], {"seq_lens": lengths}, {})
    for block in blocks:
        lanes = lanes_of_block(launch, buffers, "sm_90", block)
        yield block, run_trace(code.entries[launch.entry], lanes, buffers), buffers


def rows_of(workload: Workload, head: int, sequence: int, rows: range) -> np.ndarray:
    """Byte offsets of some rows of the cache of a query head."""
    row_bytes = workload.head_dim * 2
    kv_head = sequence * workload.num_kv_heads + head // workload.group_size
    first = (kv_head * workload.kv_len + rows.start) * row_bytes
    return np.arange(first, first + len(rows) * row_bytes)


LADDER = [
    (rung, knobs, text)
    for rung, sets in {
        "r00": ({}, {"unroll": 1}, {"unroll": 8, "launch_bounds": 0}),
        "r01": ({}, {"unroll": 2}, {"unroll": 8, "prefetch_v": 1}),
        "r02": ({}, {"dims_per_thread": 2, "unroll": 1}, {"dims_per_thread": 4, "unroll": 8}),
        "r03": ({}, {"unroll": 1}, {"unroll": 8}),
    }.items()
    for knobs in sets
    for text in ("3,4,2,61,128", "1,2,1,1,128")
] + [(rung, {}, "2,4,2,37,64") for rung in ("r00", "r01", "r02", "r03")]


@pytest.mark.parametrize(("rung", "knobs", "text"), some_of(LADDER, 8), ids=str)
def test_the_ladder_loads_each_row_once(rung: str, knobs: dict[str, int], text: str) -> None:
    workload = Workload.parse(text)
    if workload.batch > 1:
        lengths = [workload.kv_len, 1, 5][: workload.batch]
        workload = workload.replace(seq_lens=tuple(lengths))
    heads = workload.num_qo_heads
    for block, trace, buffers in traced(rung, workload, knobs, range(heads * workload.batch)):
        found = accessed(trace, buffers, LOADS)
        head, sequence = block % heads, block // heads
        rows = range(int(workload.lengths[sequence]))
        expected = rows_of(workload, head, sequence, rows)
        for name in ("k", "v"):
            assert np.array_equal(np.sort(found[name]), expected), (block, name)
        assert all("past the call" in note for note in trace.notes)


@pytest.mark.parametrize(
    ("rung", "split"),
    some_of([(f"s0{n}", split) for n in (0, 1, 3, 4, 5) for split in (1, 4, 32)], 6),
    ids=str,
)
def test_pieces_of_a_sequence_load_their_rows(rung: str, split: int) -> None:
    workload = Workload.parse("2,4,2,61,128").replace(seq_lens=(61, 7))
    launch = timed_launches(load_rung(rung).launches(workload, LIMITS, {"split": split}))[0]
    covered: dict[tuple[str, int], list[np.ndarray]] = defaultdict(list)
    for block, trace, buffers in traced(rung, workload, {"split": split}, range(launch.num_blocks)):
        sequence = block // launch.grid[0] % workload.batch
        for name, places in accessed(trace, buffers, LOADS).items():
            covered[name, sequence].append(places)
    for sequence, length in enumerate(workload.lengths):
        heads = range(workload.num_qo_heads)
        wanted = [rows_of(workload, head, sequence, range(int(length))) for head in heads]
        for name in ("k", "v"):
            found = np.unique(np.concatenate(covered[name, sequence]))
            assert np.array_equal(found, np.unique(np.concatenate(wanted))), (name, sequence)


def test_trip_counts_of_a_long_sequence_need_few_steps() -> None:
    workload = Workload.parse("1,8,8,131072,128").replace(seq_lens=(131071,))
    for _, trace, _ in traced("r03", workload, {}, [0]):
        # k and v: one 8-byte load a lane and row
        loads = count_steps(trace, ("LDG",))
        assert set(loads) == {2 * 131071 + 2}
        assert sum(1 for _ in trace.items) < 2000


def test_blocks_of_different_lengths_have_their_own_trips() -> None:
    workload = Workload.parse("6,2,1,4099,128").replace(seq_lens=(4099, 1, 2048, 3, 4, 777))
    rung = load_rung("r03")
    launch = rung.launches(workload, LIMITS)[0]
    lengths = np.asarray(workload.lengths, np.int32)
    buffers = make_buffers([launch], {"seq_lens": lengths}, {})
    sass = machine_code(rung, workload, LIMITS).entries[launch.entry]
    lanes = lanes_of_blocks(launch, buffers, "sm_90", np.arange(12))
    counts = count_steps(run_trace(sass, lanes, buffers), ("LDG",))
    assert counts == [2 * int(lengths[block // 2]) + 2 for block in range(12)]


# --------------------------------------------------------------------- small kernels made here


@lru_cache(maxsize=64)
def small(body: str, parameters: str, arch: str) -> Sass:
    source = f'extern "C" __global__ void k(volatile int* out, const int* q, {parameters}) {{\n'
    return read_sass(compile_cubin(source + body + "\n}\n", arch), "k")


def trace_small(
    body: str,
    parameters: str = "int n",
    args: Sequence[np.generic] = (),
    block: tuple[int, ...] = (32,),
    grid: tuple[int, ...] = (1,),
    at: int = 0,
    contents: Mapping[str, np.ndarray] | None = None,
    arch: str = "sm_90",
) -> tuple[Trace, Buffers]:
    launch = Launch("k", grid, block, args=("out", "q", *args))  # type: ignore[arg-type]
    buffers = Buffers(("out", "q"), dict(contents or {}), {})
    sass = small(body, parameters, arch)
    return run_trace(sass, lanes_of_block(launch, buffers, arch, at), buffers), buffers


def stores(body: str, *args: np.generic, parameters: str = "int n", **more: object) -> list[int]:
    """How often each lane stores."""
    trace, _ = trace_small(body, parameters, args, **more)  # type: ignore[arg-type]
    return count_steps(trace, STORES)


ARCHS = some_of(("sm_75", "sm_80", "sm_90", "sm_100", "sm_120"), 1, ["sm_90"])


@needs_tools
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("n", [0, 1, 2, 3, 7, 64, 1000, 123457])
def test_counting_loops(arch: str, n: int) -> None:
    def count(body: str) -> set[int]:
        return set(stores(body, np.int32(n), arch=arch))

    assert count("for (int i = 0; i < n; ++i) out[0] = i;") == {n}
    assert count("for (int i = n; i > 0; --i) out[0] = i;") == {n}
    assert count("for (int i = n; i != 0; --i) out[0] = i;") == {n}
    assert count("for (unsigned i = 0; i != (unsigned)n * 3; i += 3) out[0] = i;") == {n}
    assert count("for (int i = 0; i <= n; i += 5) out[0] = i;") == {n // 5 + 1}
    assert count("#pragma unroll 1\nfor (int i = n; i >= 0; i -= 7) out[0] = i;") == {n // 7 + 1}
    assert count("int i = 0; do { out[0] = i; } while (++i < n);") == {max(n, 1)}


@needs_tools
@pytest.mark.parametrize("arch", ARCHS)
def test_64_bit_counters(arch: str) -> None:
    parameters = "long long a, long long b, long long s"
    for first, last, step in [
        (0, 5_000_000_017, 1_000_003),
        (-(1 << 40), 1 << 40, 1 << 31),
        (0xFFFFFFFE, 0x100000005, 1),
        (0, 1, 1 << 50),
    ]:
        args = [np.int64(first), np.int64(last), np.int64(step)]
        body = "for (long long i = a; i < b; i += s) out[0] = (int)i;"
        expected = -(-(last - first) // step)
        assert set(stores(body, *args, parameters=parameters, arch=arch)) == {expected}
        down = "for (long long i = b; i > a; i -= s) out[0] = (int)i;"
        assert set(stores(down, *args, parameters=parameters, arch=arch)) == {expected}
    body = "for (const int* p = q; p != q + n; ++p) out[0] = 1;"
    assert set(stores(body, np.int32(100_000), arch=arch)) == {100_000}


@needs_tools
@pytest.mark.parametrize("n", [0, 1, 5, 40])
def test_nested_loops(n: int) -> None:
    square = "for (int i = 0; i < n; ++i) for (int j = 0; j < n + 3; ++j) out[j] = i;"
    assert set(stores(square, np.int32(n))) == {n * (n + 3)}
    triangle = "for (int i = 0; i < n; ++i) for (int j = 0; j < i; ++j) out[j] = i;"
    assert set(stores(triangle, np.int32(n))) == {n * (n - 1) // 2}
    cube = (
        "for (int i = 0; i < n; ++i) for (int j = 0; j < 6; ++j) "
        "for (int m = n; m > 0; m -= 2) out[j] = i;"
    )
    assert set(stores(cube, np.int32(n))) == {n * 6 * -(-n // 2)}


@needs_tools
@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("n", [1, 2, 10, 1001])
def test_a_ring_of_stages(stages: int, n: int) -> None:
    body = (
        "int stage = 0;\n#pragma unroll 1\nfor (int i = 0; i < n; ++i) {\n"
        "  out[stage * 32] = i;\n"
        f"  stage = stage + 1 == {stages} ? 0 : stage + 1;\n}}"
    )
    trace, buffers = trace_small(body, args=[np.int32(n)], block=(1,))
    assert count_steps(trace, STORES) == [n]
    assert list(accessed(trace, buffers, STORES)["out"][::4]) == [
        i % stages * 128 for i in range(n)
    ]


CONDITIONS: dict[str, Callable[[int], object]] = {
    "(i & 7) == 3": lambda i: i & 7 == 3,
    "(i & 63) == 63": lambda i: i & 63 == 63,
    "i & 64": lambda i: i & 64,
    "(i >> 5) % 3 == 1": lambda i: (i >> 5) % 3 == 1,
    "i % 100 == 99": lambda i: i % 100 == 99,
    "i == 700": lambda i: i == 700,
    "i > 300 && i < 305": lambda i: 300 < i < 305,
    "i * i > 90000": lambda i: i * i > 90000,
}


@needs_tools
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("condition", some_of(list(CONDITIONS), 4))
def test_a_condition_that_turns_inside_a_loop(condition: str, arch: str) -> None:
    body = (
        "#pragma unroll 1\nfor (int i = 0; i < n; ++i) {\n  out[0] = i;\n"
        f"  if ({condition}) out[1] = i;\n}}"
    )
    expected = 1000 + sum(bool(CONDITIONS[condition](i)) for i in range(1000))
    assert set(stores(body, np.int32(1000), arch=arch)) == {expected}


@needs_tools
@pytest.mark.parametrize("arch", ARCHS)
def test_a_loop_without_end_is_an_error(arch: str) -> None:
    with pytest.raises(TraceError, match=r"does not end|runs on"):
        stores("for (;;) out[0] = n;", np.int32(1), arch=arch)
    with pytest.raises(TraceError, match=r"does not end|runs on"):
        stores("for (unsigned i = 1; i != 0; i += n) out[i & 3] = 1;", np.int32(0), arch=arch)


@needs_tools
@pytest.mark.parametrize("arch", ARCHS)
def test_an_end_that_known_data_decide(arch: str) -> None:
    data = np.array([3, 9, 1, 7, -5, 2, 2], np.int32)
    body = "int i = 0; while (q[i] > 0) { out[0] = i; ++i; }"
    assert set(stores(body, np.int32(0), contents={"q": data}, arch=arch)) == {4}
    body = "for (int i = 0; i < q[blockIdx.x]; ++i) out[0] = i;"
    for block, length in enumerate(data):
        found = stores(body, np.int32(0), contents={"q": data}, grid=(7,), at=block, arch=arch)
        assert set(found) == {max(0, int(length))}


@needs_tools
@pytest.mark.parametrize("arch", ARCHS)
def test_small_types_in_memory(arch: str) -> None:
    data = np.array([-3, 200, 100, -32768], np.int16)
    body = (
        "const short m = ((const short*)q)[threadIdx.x & 3];\n"
        "for (int i = -4; i < m; ++i) out[0] = i;"
    )
    found = stores(body, np.int32(0), contents={"q": data}, block=(4,), arch=arch)
    assert found == [max(0, int(m) + 4) for m in data]


@needs_tools
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize(
    ("block", "grid"),
    [((32,), (5,)), ((8, 4), (3, 2)), ((4, 2, 8), (2, 3, 2)), ((1, 1, 64), (1, 1, 3))],
)
def test_indices_of_threads_and_blocks(
    arch: str, block: tuple[int, ...], grid: tuple[int, ...]
) -> None:
    body = (
        "const int t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);\n"
        "const int b = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);\n"
        "out[b * blockDim.x * blockDim.y * blockDim.z + t] = gridDim.z;"
    )
    threads = int(np.prod(block))
    for at in range(int(np.prod(grid))):
        trace, buffers = trace_small(
            body, args=[np.int32(0)], block=block, grid=grid, at=at, arch=arch
        )
        found = accessed(trace, buffers, STORES)["out"][::4]
        assert list(found) == [4 * (at * threads + t) for t in range(threads)]


@needs_tools
@pytest.mark.parametrize("arch", ARCHS)
def test_threads_that_return_early_and_warps_that_differ(arch: str) -> None:
    body = (
        "const int t = threadIdx.x;\nif (t >= n) return;\n"
        "for (int i = t / 32; i < 1000; i += 4) out[t] = i;"
    )
    found = stores(body, np.int32(100), block=(128,), arch=arch)
    assert found == [len(range(t // 32, 1000, 4)) if t < 100 else 0 for t in range(128)]
    body = "for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] = i;"
    found = stores(body, np.int32(1000), block=(96,), arch=arch)
    assert found == [len(range(t, 1000, 96)) for t in range(96)]
    body = (
        "for (int i = threadIdx.x >> 5; i < n; i += blockDim.x >> 5) {\n"
        "  for (int j = threadIdx.x & 31; j < 50; j += 32) out[j] = i;\n"
        "  __syncthreads();\n}"
    )
    found = stores(body, np.int32(8), block=(64,), arch=arch)
    assert found == [4 * len(range(t & 31, 50, 32)) for t in range(64)]


@needs_tools
@pytest.mark.parametrize("arch", ARCHS)
def test_parameters_of_every_width(arch: str) -> None:
    body = "for (long long i = a; i < (long long)b + c + d; ++i) out[0] = (int)(e + f);"
    parameters = "signed char a, short b, int c, long long d, float e, double f"
    args = [np.int8(-3), np.int16(-20), np.int32(50), np.int64(7), np.float32(1), np.float64(2)]
    assert set(stores(body, *args, parameters=parameters, arch=arch)) == {-20 + 50 + 7 + 3}


# --------------------------------------------------------------- what data or order decide


@needs_tools
@pytest.mark.parametrize("arch", ARCHS)
def test_an_exit_that_depends_on_data_is_not_executed(arch: str) -> None:
    body = "if (q[threadIdx.x] == 7) return; for (int i = 0; i < n; ++i) out[i] = i;"
    trace, _ = trace_small(body, args=(np.int32(50),), arch=arch)
    code = trace.sass.instructions
    leaving = [step for step in steps_of(trace.items) if code[step.index].base == "EXIT"]
    assert [bool(step.executing.any()) for step in leaving[:-1]] == [False] * (len(leaving) - 1)
    assert leaving[-1].executing.all()
    assert set(count_steps(trace, STORES)) == {50}
    assert any("depends on data" in note for note in trace.notes)


@needs_tools
@pytest.mark.parametrize("arch", ARCHS)
def test_a_skip_and_a_break_that_depend_on_data_are_not_taken(arch: str) -> None:
    body = """for (int i = 0; i < n; ++i) {
      int x = q[i]; if (x < 5) continue; if (x > 99) break; out[i] = x; out[i + n] = x * n; }"""
    assert set(stores(body, np.int32(300), arch=arch)) == {600}


@needs_tools
def test_the_slow_path_of_a_division_is_no_assumption_worth_a_note() -> None:
    body = "((volatile float*)out)[1] = x / __int_as_float(q[0]);"
    trace, _ = trace_small(body, "float x", (np.float32(1),))
    assert any(one.base == "CALL" for one in trace.sass.instructions)
    assert trace.notes == ()


@needs_tools
@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_120"])
@pytest.mark.parametrize("period", [7, 12, 16])
def test_a_path_that_repeats_after_many_trips(period: int, arch: str) -> None:
    body = f'_Pragma("unroll 1") for (int i = 0; i < n; ++i) if (i % {period} == 3) out[i] = i;'
    trace, _ = trace_small(body, args=(np.int32(period * 500),), arch=arch)
    assert set(count_steps(trace, STORES)) == {500}
    assert len(trace.items) < 2000


@needs_tools
@pytest.mark.parametrize("arch", ARCHS)
def test_a_counter_in_local_memory(arch: str) -> None:
    body = """int counters[64]; const int at = n & 63; counters[at] = 0;
      counters[(n + 1) & 63] = 5;
      _Pragma("unroll 1") while (counters[at] < n) { out[0] = 1; counters[at] += 1; }
      out[1] = counters[out[0] & 63];"""
    trace, _ = trace_small(body, args=(np.int32(3000),), arch=arch)
    assert any(one.base == "LDL" for one in trace.sass.instructions)
    assert set(count_steps(trace, STORES)) == {3001}


JOBS = """__shared__ int job;
  for (;;) {
    if (threadIdx.x == 0) job = atomicAdd((int*)out, 1);
    __syncthreads();
    int mine = job;
    __syncthreads();
    if (mine >= n) return;
    ((volatile int*)q)[mine * 64 + threadIdx.x] = 1;
  }"""


@needs_tools
@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_120"])
@pytest.mark.parametrize(("n", "at", "wanted"), [(100, 0, 15), (100, 1, 15), (100, 2, 14)])
def test_jobs_handed_out_by_a_counter(arch: str, n: int, at: int, wanted: int) -> None:
    launch = Launch("k", (7,), (64,), args=("out", "q", np.int32(n)))
    sass = small(JOBS, "int n", arch)
    buffers = Buffers(("out", "q"), {}, {"out": 4})
    trace = run_trace(sass, lanes_of_block(launch, buffers, arch, at), buffers)
    assert set(count_steps(trace, STORES)) == {wanted}
    assert any("counter in out" in note for note in trace.notes)
    profile = run_trace(sass, lanes_of_blocks(launch, buffers, arch, np.arange(7)), buffers)
    assert count_steps(profile, STORES) == [15, 15, 14, 14, 14, 14, 14]


def test_an_integer_workspace_is_taken_to_count_up() -> None:
    table = Workspace("table", (2, 8), "int32")
    sums = Workspace("sums", (4,), "int32")
    scores = Workspace("scores", (2, 8), "float32")
    launch = Launch("k", (1,), (32,), args=("table",), workspace=(table, sums, scores))
    buffers = make_buffers([launch], {"seq_lens": np.array([5, 1, 3], np.int32)}, {})
    assert set(buffers.assumed) == {"table", "sums"}
    assert buffers.assumed["table"].tolist() == list(range(16))
    assert buffers.assumed["sums"].tolist() == [0, 5, 6, 9]


# ------------------------------------------------------------------ what the next trips compare


def compared(
    a: list[int], b: int = 10, kind: str = "LT", lanes: tuple[bool, ...] = (True, True)
) -> IntegerComparison:
    """Signed numbers of 32 bits, one a lane, beside one number."""
    numbers = np.array(a, np.int32)
    bounds = np.full(len(a), b, np.int32)
    return IntegerComparison(kind, numbers, bounds, np.array(lanes), -(2**31), 2**31 - 1)


def test_the_next_two_trips_compare_what_follows() -> None:
    found = _next_comparisons([compared([0, 3])], [compared([1, 5])])
    assert found is not None
    near, far = found
    assert [one.a.tolist() for one in (*near, *far)] == [[2, 7], [3, 9]]
    assert [one.b.tolist() for one in (*near, *far)] == [[10, 10]] * 2
    # A lane that did not compare may hold anything.
    gone = (True, False)
    assert _next_comparisons([compared([0, 0], lanes=gone)], [compared([1, 9], lanes=gone)])


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([compared([0, 3])], []),
        ([compared([0, 3])], [compared([1, 5], kind="LE")]),
        ([compared([0, 3])], [compared([1, 5], lanes=(True, False))]),
        ([compared([0, 5])], [compared([1, 8])]),  # 11 is no longer less than 10
        ([compared([0, 2])], [compared([1, 5])]),  # nor in the trip after that: 8, 11
        ([compared([0, 7])], [compared([1, 9])]),
        ([compared([0, 6], kind="NE")], [compared([1, 8], kind="NE")]),  # it becomes 10
        ([compared([0, 2**31 - 9], 0, "GT")], [compared([1, 2**31 - 5], 0, "GT")]),  # it wraps
        ([compared([0, 0], -(2**31), "GT")], [compared([1, -(2**30)], -(2**31), "GT")]),
    ],
    ids=str,
)
def test_what_does_not_follow_is_run(
    first: list[IntegerComparison], second: list[IntegerComparison]
) -> None:
    assert _next_comparisons(first, second) is None
