"""Cheats on a real GPU: those of a rung's Python, and those of the timing loop. None has a time.

A cheat of the timing loop is right whenever it is checked before, and then does less than the work
of a call. It waits about as long as memory would take, so that its time is one that can be.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from test_cheats import (
    CHEATS,
    IN_LAUNCH,
    KEPT,
    LAUNCHED_LATE,
    WORKLOAD,
    cheating_rung,
    judged_rung,
    keeping_rung,
    late_rung,
)

from labtools.measure import check_rung, time_candidates
from labtools.problem import KernelError, LabError, Rung, Workload, load_rung
from labtools.toolchain import CompileError
from tests.wrong_kernels import make_wrong

TIMED = Workload(8, 32, 8, 512, 128)
"""On an H200 some 25 sets of buffers, of 256 blocks each."""

STATE = """
constexpr int MOST_SETS = 64, MOST_BLOCKS = 256;
typedef unsigned long long Word;
__device__ Word places[MOST_BLOCKS][MOST_SETS], keys[MOST_BLOCKS][MOST_SETS], seen_ns[MOST_BLOCKS];
__device__ unsigned calls_of[MOST_BLOCKS], in_a_row[MOST_BLOCKS], epoch;
__device__ half kept[MOST_BLOCKS][MOST_SETS][HEAD_DIM];
__device__ float kept_scores[MOST_BLOCKS][MOST_SETS][512];
struct Asked {
  const half *q, *k, *v;
  const int* seq_lens;
  half* out;
};
__device__ Asked before[MOST_BLOCKS];

// Which of the buffers that it was called with these are.
__device__ int set_of(int block, const void* out) {
  for (int i = 0; i < MOST_SETS - 1; ++i) {
    const Word there = places[block][i];
    __syncwarp();
    if (there == 0) places[block][i] = (Word)out;
    if (there == 0 || there == (Word)out) return i;
  }
  return MOST_SETS - 1;
}
__device__ Word hash_of(const half* from, size_t count) {
  Word hash = 1;
  for (size_t i = threadIdx.x; i < count / 2; i += 32)
    hash = (hash ^ reinterpret_cast<const unsigned*>(from)[i]) * 1099511628211ull;
  for (int offset = 16; offset > 0; offset /= 2)
    hash += __shfl_xor_sync(0xffffffffu, hash, offset);
  return __shfl_sync(0xffffffffu, hash, 0) | 1;
}
__device__ Word now_ns() {
  Word now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}
// As long as memory would take, and longer.
__device__ void rest() {
  for (const Word begin = now_ns(); now_ns() - begin < 20000;) {}
}
"""
BEGINS = """const int block = blockIdx.y * gridDim.x + blockIdx.x, set = set_of(block, out);
  const unsigned call = calls_of[block];
  const Word now = now_ns(), gap_ns = now - seen_ns[block];
  const unsigned row_of_calls = gap_ns < 2000000 ? in_a_row[block] + 1 : 0;
  __syncwarp();
  calls_of[block] = call + 1;
  seen_ns[block] = now;
  in_a_row[block] = row_of_calls;
  half* mine = kept[block][set];
  const half* k_rows = k + kv_head * kv_len * HEAD_DIM;
  const half* v_rows = v + kv_head * kv_len * HEAD_DIM;
  const bool is_there = !isnan(__half2float(out[qo_row * HEAD_DIM + dim]));
  const Word key = KEY;
  const bool known = keys[block][set] == key;
  __syncwarp();
  if (SKIP) {
    rest();
    for (int i = 0; GIVE && i < DIMS_PER_THREAD; ++i)
      out[qo_row * HEAD_DIM + dim + i] = mine[dim + i];
    return;
  }
  """
ENDS = """
  for (int i = 0; i < DIMS_PER_THREAD; ++i) mine[dim + i] = out[qo_row * HEAD_DIM + dim + i];
  keys[block][set] = key;
"""
LATE = "call > 40"
OF_THE_LOOP = {  # what an answer is looked up by, when it is, and whether it is written again
    "a constant answer": ("1", "(mine = kept[block][0], call > 0)", 1),
    "an answer a buffer": ("1", "known", 1),
    "an answer a query": ("hash_of(q + qo_row * HEAD_DIM, HEAD_DIM)", "known", 1),
    "an answer for all keys": ("hash_of(k_rows, (size_t)kv_len * HEAD_DIM)", "known", 1),
    "an answer for all values": ("hash_of(v_rows, (size_t)kv_len * HEAD_DIM)", "known", 1),
    "an answer for some rows": (
        "hash_of(k_rows, 8 * HEAD_DIM) ^ hash_of(v_rows, 8 * HEAD_DIM) << 1 | 1", "known", 1),
    "what stands there": ("1", "is_there", 0),
    "what stands there, later": ("1", "is_there && call > 500", 0),
    "calls in a row": ("1", "known && row_of_calls > 8", 1),
    "calls of a replay that is under way": ("1", "known && gap_ns < 1000000 && call > 100", 1),
    "every second call": ("1", "known && call % 2", 1),
    "a coin": ("1", "known && (now >> 10 ^ now >> 12) % 2", 1),
    "half of the heads": ("1", f"known && head % 2 && {LATE}", 1),
    "one sequence": ("1", f"known && sequence == 7 && {LATE}", 1),
    "buffers that were not checked": ("1", f"set > 1 && {LATE}", 0),
    "buffers that were not checked, kept": ("1", f"known && set > 1 && {LATE}", 1),
}  # fmt: skip
IN_THE_KERNEL = {  # other edits of r03's text
    "kept scores": (
        ("const float score = warp_sum(dot(q_rmem, k_rmem));",
         "const float score = calls_of[MOST_BLOCKS - 1] > 100 ? kept_scores[block][set][n]\n"
         "                                                   : warp_sum(dot(q_rmem, k_rmem));\n"
         "    kept_scores[block][set][n] = score;"),),
    "half of the rows": (
        ("n < length;", "n < (calls_of[MOST_BLOCKS - 1] > 100 ? length / 2 : length);"),),
    "the question before": (
        ("  const int dim", "  const int own = blockIdx.y * gridDim.x + blockIdx.x;\n"
         "  const Asked last = before[own], asked = {q, k, v, seq_lens, out};\n"
         "  __syncwarp();\n  before[own] = asked;\n"
         "  if (calls_of[own] > 100) q = last.q, k = last.k, v = last.v, out = last.out;\n"
         "  const int dim"),),
}  # fmt: skip


def cheat_of(text: str, key: str = "1", skip: str = "false", give: int = 1) -> str:
    """r03's text, which keeps its answers and sometimes gives one of them."""
    first, entry = "const half* k_head", 'extern "C" __global__'
    store = "store_row(out + qo_row * HEAD_DIM + dim, acc, 1.f / weight_sum);"
    for known in (first, entry, store):
        assert text.count(known) == 1
    text = text.replace("half* __restrict__ ", "half* ")  # what it keeps is an answer of its own
    defined = f"#define KEY ({key})\n#define SKIP ({skip})\n#define GIVE {give}\n{STATE}"
    text = text.replace(first, BEGINS + first).replace(store, store + ENDS)
    return text.replace(entry, defined + entry)


def edited_cheat(name: str) -> Rung:
    rung = load_rung("r03")
    text = cheat_of(rung.source_text, *OF_THE_LOOP.get(name, ()))
    for old, new in IN_THE_KERNEL.get(name, ()):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return rung.with_source(text)


def why_no_time(rung: Rung) -> str:
    """Why it has none; empty where it has one."""
    timing = time_candidates([rung], TIMED, processes=1, rounds=7, ceiling=False)
    return "" if timing.records else next(iter(timing.failures.values()))


def test_what_all_cheats_are_made_of_has_a_time() -> None:
    assert why_no_time(edited_cheat("none")) == ""


@pytest.mark.parametrize("name", [*OF_THE_LOOP, *IN_THE_KERNEL])
def test_a_cheat_of_the_timing_loop_has_no_time(name: str) -> None:
    told = why_no_time(edited_cheat(name))
    assert "wrong" in told or "cannot be" in told, told


FORGETS = """extern "C" __global__ void forget(unsigned* finished) {
  *finished = 0;
  ++epoch;
}
extern "C" __global__"""
AND_FORGETS = """
import dataclasses
from labtools.problem import Workspace

def forgetting(problem, limits, knobs):
    (decode,) = launch(problem, limits, knobs)
    once = (Workspace("finished", (1,), "uint32"),)
    first = Launch("forget", (1,), (1,), args=("finished",), workspace=once, prepare=True)
    args = (*decode.args, "finished")
    return [first, dataclasses.replace(decode, args=args, workspace=once)]

RUNG = RUNG.with_launch(forgetting)
"""


def test_a_preparation_does_not_say_when_inputs_changed(tmp_path: Path) -> None:
    """It runs again for other inputs, and could tell a kernel to forget what it kept."""
    path = cheating_rung(tmp_path)
    path.write_text(path.read_text() + AND_FORGETS)
    source = path.with_suffix(".cu")
    text = cheat_of(source.read_text(), "epoch + 1", "known")
    for old, new in (
        ('extern "C" __global__', FORGETS),
        ("float sm_scale_log2)", "float sm_scale_log2, unsigned* finished)"),
    ):
        assert text.count(old) == 1
        text = text.replace(old, new)
    source.write_text(text)
    told = why_no_time(load_rung(path))
    assert "inputs have changed" in told or "cannot be" in told, told


def test_calls_that_are_answered_in_threes_have_no_time() -> None:
    pairs = make_wrong("answers_in_pairs")
    text = f"#define FROM_LEN 512\n{pairs.source_text}"
    assert text.count("call % 2 == 0") == 1
    threes = pairs.with_source(text.replace("call % 2 == 0", "call % 3 != 2"))
    for rung in (pairs.with_source(text), threes):
        assert "wrong" in why_no_time(rung)


OTHER_LAUNCH = {
    "when it is asked again": "if len(CALLS) > 1",
    "for what is timed": "if problem.batch == 8",
    "on this GPU": "if limits.num_sms != 1",
}


@pytest.mark.parametrize("name", OTHER_LAUNCH)
def test_a_launch_that_is_another_when_timed_has_no_time(tmp_path: Path, name: str) -> None:
    """Unless it is asked once, and answers with what was checked."""
    lazy = f'\n    entry = "lazy" {OTHER_LAUNCH[name]} else "decode_r03"'
    path = cheating_rung(tmp_path, "CALLS = []", f"    CALLS.append(1){lazy}")
    path.write_text(path.read_text().replace('entry="decode_r03"', "entry=entry"))
    source = path.with_suffix(".cu")
    text = source.read_text()
    place = text.index('extern "C" __global__')
    copy = text[place:].replace("decode_r03", "lazy").replace("n < length;", "n < length / 2;")
    source.write_text(text + copy)
    rung = load_rung(path)
    timing = time_candidates([rung], TIMED, processes=1, rounds=5, ceiling=False)
    assert all(one.launches[0].entry == "decode_r03" for one in timing.records)
    assert timing.records or "is wrong on" in next(iter(timing.failures.values()))


@pytest.mark.parametrize("name", [*CHEATS, *IN_LAUNCH])
def test_the_python_of_a_rung_decides_nothing_on_a_gpu(tmp_path: Path, name: str) -> None:
    rung = judged_rung(tmp_path, name)
    try:
        assert not check_rung(rung, WORKLOAD, on="gpu", quick=True).ok
    except LabError:  # what it says of its launches is no launch
        assert name == "launches that are not what they say"


@pytest.mark.parametrize("kept", KEPT)
def test_a_kernel_that_keeps_lines_in_l2_is_neither_checked_nor_timed(kept: str) -> None:
    cheat = keeping_rung(kept)
    with pytest.raises(KernelError, match="can keep lines in L2"):
        check_rung(cheat, WORKLOAD, on="gpu", quick=True)
    with pytest.raises(LabError, match="can keep lines in L2"):
        time_candidates([cheat], TIMED, processes=1, rounds=5, ceiling=False)


@pytest.mark.parametrize("declared", LAUNCHED_LATE)
def test_no_kernel_answers_later_from_another_stream(declared: str) -> None:
    with pytest.raises(CompileError):
        check_rung(late_rung(declared), WORKLOAD, on="gpu", quick=True)
