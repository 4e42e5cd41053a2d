"""Kernels that are wrong in one way each; a checker that accepts one of them is no checker.

Each is a shipped rung with a small edit, so that it follows the rung when that changes. When the
text to be edited is no longer there, `make_wrong` fails, and so does the test that uses it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labtools.problem import Launch, Limits, Problem, Rung, Workload, load_rung, parse_problem

NUMBERS = "numbers"
"""The output differs from the oracle, or is NaN, or was not written."""


@dataclass(frozen=True)
class WrongKernel:
    """One wrong kernel."""

    name: str  # for file names and test ids
    parent: str  # the rung it is made from
    edits: tuple[tuple[str, str], ...]  # (old text, new text); each old text occurs exactly once
    caught_as: tuple[str, ...]  # what a check on the CPU must call it: fault kinds, or `NUMBERS`
    says: str  # words that the report must contain
    # changes the grid of the launch; None leaves it
    grid: Callable[[tuple[int, ...]], tuple[int, ...]] | None = None
    sure_on_gpu: bool = True  # a check on a GPU rejects it every time, without a sanitizer
    sanitizer: str | None = None  # the compute-sanitizer tool that reports it, or None


_LOOP = "for (int n = 0; n < length; ++n) {"
_STORE = "store_row(out + qo_row * HEAD_DIM + dim, acc, 1.f / weight_sum);"
_ENTRY = 'extern "C" __global__'
_SIGNATURE = f"{_ENTRY} void BOUNDED(NUM_THREADS) decode_r03("
_IN_PAIRS = """
// From FROM_LEN cached tokens on, every second call answers for two; the others only ask it to.
#ifndef FROM_LEN
#define FROM_LEN 0
#endif
__device__ unsigned blocks_so_far = 0;
struct Call {
  const half *q, *k, *v;
  const int* seq_lens;
  half* out;
};
__device__ Call waiting;

extern "C" __global__ void BOUNDED(NUM_THREADS) decode_r03(
    const half* q, const half* k, const half* v, const int* seq_lens, half* out,
    int num_kv_heads, int kv_len, float sm_scale_log2) {
  __shared__ unsigned call;
  if (threadIdx.x == 0) call = atomicAdd(&blocks_so_far, 1u) / (gridDim.x * gridDim.y);
  __syncthreads();
  const bool in_pairs = kv_len >= FROM_LEN;
  if (in_pairs && call % 2 == 0) {
    if (blockIdx.x + blockIdx.y + threadIdx.x == 0) waiting = {q, k, v, seq_lens, out};
    return;
  }
  answer(q, k, v, seq_lens, out, num_kv_heads, kv_len, sm_scale_log2);
  if (in_pairs) {
    const Call other = waiting;
    answer(other.q, other.k, other.v, other.seq_lens, other.out, num_kv_heads, kv_len,
           sm_scale_log2);
  }
}"""
_BARRIER = "__syncthreads();"
_WRITE_PARTIAL = "if (lane == 0) partial_smem[n % 2][warp] = score;"
_ADD_PARTIALS = "score += partial_smem[n % 2][w];"
_K_ROW = "load_row<DIMS_PER_THREAD>(k_head + (size_t)n * HEAD_DIM);"
_V_ROW = "load_row<DIMS_PER_THREAD>(v_head + (size_t)n * HEAD_DIM);"

WRONG_KERNELS = {
    wrong.name: wrong
    for wrong in (
        WrongKernel(
            "does_nothing", "r03_one_warp", ((_STORE, ""),), (NUMBERS,), "never written"
        ),
        WrongKernel(
            "writes_nan", "r03_one_warp",
            (("1.f / weight_sum", "__int_as_float(0x7fc00000)"),), (NUMBERS,), "NaN",
        ),
        WrongKernel(
            "writes_the_first_time_only", "r03_one_warp",
            (
                (_ENTRY, f"__device__ unsigned threads_so_far = 0;\n{_ENTRY}"),
                (_STORE, "const unsigned before = atomicAdd(&threads_so_far, 1u);\n"
                         f"  if (before < gridDim.x * gridDim.y * NUM_THREADS) {_STORE}"),
            ),
            (NUMBERS,), "never written",
        ),
        WrongKernel(
            "answers_in_pairs", "r03_one_warp",
            ((_SIGNATURE, "__device__ void answer("),
             (f"{_STORE}\n}}", f"{_STORE}\n}}{_IN_PAIRS}")),
            ("carried",), "an earlier call of the launches",
        ),
        WrongKernel(
            "leaves_some_heads", "r03_one_warp",
            ((_STORE, f"if (head % 2 == 0) {_STORE}"),), (NUMBERS,), "never written",
        ),
        WrongKernel(
            "off_by_one", "r03_one_warp",
            ((_V_ROW, _V_ROW.replace("(size_t)n", "(size_t)max(n - 1, 0)")),),
            (NUMBERS,), "are off",
        ),
        WrongKernel(
            "reads_past_the_end", "r03_one_warp",
            ((_LOOP, _LOOP.replace("n < length", "n <= length")),), ("out_of_bounds",),
            "which has", sanitizer="memcheck",
        ),
        WrongKernel(
            "skips_the_maximum", "r03_one_warp",
            (("fmaxf(score_max, score)", "0.f"),), (NUMBERS,), "NaN or infinite",
        ),
        WrongKernel(
            "skips_the_rescale", "r03_one_warp",
            (("accumulate(acc, rescale, v_rmem, weight)", "accumulate(acc, 1.f, v_rmem, weight)"),),
            (NUMBERS,), "are off",
        ),
        WrongKernel(
            "maps_heads_wrongly", "r03_one_warp",
            (("head / (num_qo_heads / num_kv_heads)", "head % num_kv_heads"),),
            (NUMBERS,), "are off",
        ),
        WrongKernel(
            "ignores_lengths", "r03_one_warp",
            (("seq_lens[sequence]", "kv_len"),), (NUMBERS,), "NaN",
        ),
        WrongKernel(
            "drops_the_last_row", "r03_one_warp",
            ((_LOOP, _LOOP.replace("n < length", "n < max(length - 1, 1)")),),
            (NUMBERS,), "are off",
        ),
        WrongKernel(
            "wrong_scale", "r03_one_warp",
            (("x *= sm_scale_log2", "x *= sm_scale_log2 * 1.05f"),), (NUMBERS,), "are off",
        ),
        WrongKernel(
            "no_barrier", "r02_one_barrier", ((_BARRIER, ""),), ("race",), "partial_smem",
            sure_on_gpu=False, sanitizer="racecheck",
        ),
        WrongKernel(
            "one_buffer", "r02_one_barrier",
            ((_WRITE_PARTIAL, _WRITE_PARTIAL.replace("n % 2", "0")),
             (_ADD_PARTIALS, _ADD_PARTIALS.replace("n % 2", "0"))),
            ("race",), "partial_smem", sure_on_gpu=False, sanitizer="racecheck",
        ),
        WrongKernel(
            "divergent_barrier", "r02_one_barrier",
            ((_BARRIER, f"if (warp == 0) {_BARRIER}"),), ("barrier", "race", "uninitialised"),
            "partial_smem", sure_on_gpu=False, sanitizer="racecheck",
        ),
        WrongKernel(
            "barrier_in_half_the_warps", "r02_one_barrier",
            ((_BARRIER, f"if (warp % 2 == 0) {_BARRIER} else if (n == 0) return;"),),
            # The other warps leave, and a barrier then waits for fewer: no sanitizer minds.
            ("uninitialised",), "partial_smem", sure_on_gpu=False,
        ),
        WrongKernel(
            "half_a_warp_sums", "r02_one_barrier",
            (("float score = warp_sum(dot(q_rmem, k_rmem));",
              "float score = dot(q_rmem, k_rmem);\n    if (lane < 16) score = warp_sum(score);"),),
            ("collective", "barrier"), "__shfl_xor_sync()", sure_on_gpu=False,
        ),
        WrongKernel(
            "reads_before_writing", "r02_one_barrier",
            ((_WRITE_PARTIAL, _WRITE_PARTIAL.replace("lane == 0", "lane == 0 && warp > 0")),),
            ("uninitialised",), "partial_smem", sure_on_gpu=False,
        ),
        WrongKernel(
            "outside_shared_memory", "r02_one_barrier",
            ((_WRITE_PARTIAL, _WRITE_PARTIAL.replace("n % 2", "n % 3")),),
            ("out_of_bounds",), "outside", sure_on_gpu=False,
        ),
        WrongKernel(
            "misaligned_load", "r03_one_warp",
            ((_K_ROW, _K_ROW.replace("n * HEAD_DIM", "n * HEAD_DIM + 1")),),
            ("misaligned",), "address ends in", sanitizer="memcheck",
        ),
        WrongKernel(
            "writes_to_its_input", "r03_one_warp",
            ((_STORE, "const_cast<half*>(q)[qo_row * HEAD_DIM + dim] = __float2half(0.f);\n"
                      f"  {_STORE}"),),
            ("read_only",), "`q`",
        ),
        WrongKernel(
            "endless_loop", "r03_one_warp",
            ((_LOOP, _LOOP.replace("++n", "n += length < 0")),), ("hang",), "did not end",
        ),
        WrongKernel(
            "grid_too_small", "r03_one_warp", (), (NUMBERS,), "never written",
            grid=lambda grid: (grid[0], (grid[1] + 1) // 2, 1),
        ),
        WrongKernel(
            "grid_too_large", "r03_one_warp", (), ("out_of_bounds",), "which has",
            grid=lambda grid: (grid[0], grid[1] + 1, 1), sure_on_gpu=False, sanitizer="memcheck",
        ),
    )
}  # fmt: skip


def edit_source(wrong: WrongKernel) -> str:
    """The parent's source with the edits.

    Raises:
        ValueError: a text to be replaced does not occur exactly once.
    """
    text = load_rung(wrong.parent).source_text
    for old, new in wrong.edits:
        if text.count(old) != 1:
            raise ValueError(
                f"{wrong.name}: {wrong.parent} has {old!r} {text.count(old)} times, not once"
            )
        text = text.replace(old, new)
    return text


def make_wrong(name: str) -> Rung:
    """The wrong kernel as a rung, edited as a cell of a page would be."""
    wrong = WRONG_KERNELS[name]
    parent = load_rung(wrong.parent)
    rung = dataclasses.replace(parent.with_source(edit_source(wrong)), id=f"wrong_{name}")
    if wrong.grid is None:
        return rung
    change = wrong.grid

    def launch(workload: Workload, limits: Limits, knobs: Mapping[str, int]) -> list[Launch]:
        launches = parent.launch(workload, limits, knobs)
        return [dataclasses.replace(one, grid=change(one.grid)) for one in launches]

    return rung.with_launch(launch)


def write_wrong(name: str, folder: Path) -> Path:
    """Write the wrong kernel as the two files of a rung; returns the path of the ``.py``.

    Raises:
        ValueError: its launch is what is wrong, which a file cannot inherit.
    """
    wrong = WRONG_KERNELS[name]
    if wrong.grid is not None:
        raise ValueError(f"{name} changes the launch")
    (folder / f"wrong_{name}.cu").write_text(edit_source(wrong))
    path = folder / f"wrong_{name}.py"
    path.write_text(
        f'"""{wrong.parent} with one thing wrong: {name}."""\n'
        "import dataclasses\n"
        "from pathlib import Path\n\n"
        "from labtools.problem import load_rung\n\n"
        "RUNG = dataclasses.replace(\n"
        f'    load_rung("{wrong.parent}"), id="wrong_{name}",\n'
        '    source=Path(__file__).with_suffix(".cu"),\n'
        ")\n"
    )
    return path


def mistaken(kernel: Mapping[str, Any], texts: Sequence[str]) -> tuple[Rung, Problem]:
    """A kernel of a table with one of its mistakes, and the problem that it is run on."""
    root = Path(__file__).parents[2]
    rung = load_rung(kernel["rung"] if "/" not in kernel["rung"] else root / kernel["rung"])
    source = rung.source_text
    for old, new in zip(texts[::2], texts[1::2], strict=False):
        assert old in source
        source = source.replace(old, new)
    problem = parse_problem(kernel["problem"])
    problem = problem.replace(distribution=kernel.get("distribution", problem.distribution))
    if "lengths" in kernel:
        problem = problem.replace(seq_lens=tuple(kernel["lengths"]))
    return rung.with_source(source), problem
