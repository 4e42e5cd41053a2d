"""What a check is not fooled by, and what it does not refuse: one short run for each."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from labtools.measure import check, knob_values
from labtools.measure.case import checked_limits
from labtools.measure.check import CheckReport, check_rung
from labtools.measure.cpu import build_for_cpu, run_on_cpu
from labtools.problem import (
    MOST_TOLERANCE,
    Knob,
    LabError,
    Launch,
    Limits,
    Problem,
    Rung,
    Workload,
    Workspace,
    attention_oracle,
    battery,
    kernels_dir,
    load_rung,
    make_inputs,
    operation_of,
)
from labtools.toolchain import CompileError
from labtools.toolchain.sources import gpu_only_lines

R03 = load_rung("r03")
SMALL, LIMITS = Workload(2, 8, 2, 48, 64), checked_limits()
ENTRY = 'extern "C" __global__'
LOOP = "for (int n = 0; n < length; ++n) {"
STORE = "store_row(out + qo_row * HEAD_DIM + dim, acc, 1.f / weight_sum);"
FIRST = "float score_max = -INFINITY"
WEIGHTS = "const float rescale = exp2f(score_max - new_max)"
KV_HEAD = "head / (num_qo_heads / num_kv_heads)"
GROUP = "num_qo_heads / num_kv_heads"
FAINT = "below = score - new_max, weight = below < -20.f ? 0.f : exp2f(below)"


def edited(*edits: tuple[str, str], base: Rung = R03, **changes: Any) -> Rung:
    text = base.source_text
    for old, new in edits:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return dataclasses.replace(base.with_source(text), **changes)


# ---- the battery ----

SHOWN_BY_THE_BATTERY = {
    "starts at -40": (FIRST, "float score_max = -40.f"),
    "starts at -5000": (FIRST, "float score_max = -5000.f"),
    "starts at the lowest half": (FIRST, "float score_max = -65504.f"),
    "starts at -1e6": (FIRST, "float score_max = -1e6f"),
    "no rescale after 1024 keys": (
        WEIGHTS, "const float rescale = n >= 1024 ? 1.f : exp2f(score_max - new_max)"),
    "the last 512 keys alone": (LOOP, LOOP.replace("n = 0", "n = max(0, length - 512)")),
    "the first 4096 keys alone": (LOOP, LOOP.replace("n < length", "n < min(length, 4096)")),
    "one key of 1301 left out": (
        "dot(q_rmem, k_rmem)", "dot(q_rmem, k_rmem) - (n == 1200 ? 1e30f : 0.f)"),
    "an odd group": (KV_HEAD, f"({GROUP} % 2 ? head % num_kv_heads : {KV_HEAD})"),
    "a group of more than 8": (KV_HEAD, f"({GROUP} > 8 ? 0 : {KV_HEAD})"),
    "lengths of 17 bits": ("seq_lens[sequence]", "seq_lens[sequence] % (1 << 17)"),
    "lengths of 18 bits": ("seq_lens[sequence]", "seq_lens[sequence] % (1 << 18)"),
    "no faint weights": ("weight = exp2f(score - new_max)", FAINT),
    "more than 128 sequences": (STORE, f"if (sequence < 128) {STORE}"),
}  # fmt: skip


@pytest.mark.parametrize("name", SHOWN_BY_THE_BATTERY)
def test_some_case_of_the_battery_shows_it(name: str) -> None:
    wrong = edited(SHOWN_BY_THE_BATTERY[name])
    cases = battery(SMALL)
    # The small usual cases first: what they show is not what this test is about.
    assert run_on_cpu(wrong, SMALL, orders=(0,)).ok
    likely = [one for one in cases if one.kv_len > 600 or one.group_size > 4 or one.batch > 70]
    likely += [one for one in cases if one.distribution == "sunk"]
    assert not all(run_on_cpu(wrong, one, orders=(0,)).ok for one in likely)


def test_a_cache_that_is_written_first_is_not_too_long_to_be_watched() -> None:
    for name, keys in (("r06", 2**18), ("r10", 2**17)):
        longest = max(battery(SMALL.replace(head_dim=128), load_rung(name).supports), key=_keys)
        assert keys < longest.kv_len and longest.kv_len * longest.head_dim < 2**24 + 2**12


def _keys(problem: Workload) -> int:
    return problem.kv_len


def test_wide_rows_are_in_the_battery_of_rows() -> None:
    cases = operation_of("rows").battery(operation_of("rows").small)
    assert max(one.columns for one in cases) > 2**15
    assert max(one.rows for one in cases) > 1024


def relaunched(change: Any) -> Rung:
    """r03 with what ``change(launch, problem, limits)`` makes of its launch."""

    def launch(problem: Any, limits: Limits, knobs: Mapping[str, int]) -> list[Launch]:
        (usual,) = R03.launch(problem, limits, knobs)
        return [change(usual, problem, limits)]

    return dataclasses.replace(R03, launch=launch)


def test_a_launch_that_is_kept_by_some_sizes_is_found() -> None:
    kept: dict[Any, Launch] = {}
    wrong = relaunched(lambda usual, one, _: kept.setdefault((one.num_qo_heads, one.kv_len), usual))
    assert not check_rung(wrong, SMALL, quick=True).ok


@pytest.mark.parametrize("sms", check.OTHER_SMS)
def test_a_number_of_multiprocessors_that_is_written_down_is_found(sms: int) -> None:
    wrong = relaunched(
        lambda usual, _, limits: (
            usual
            if limits.num_sms != sms
            else dataclasses.replace(usual, grid=(usual.grid[0], 1, 1))
        )
    )
    found = check_rung(wrong, SMALL, quick=True)
    assert not found.ok and f"{sms} multiprocessors" in found.summary


def test_a_large_problem_that_cannot_be_launched_is_to_be_refused() -> None:
    wrong = relaunched(
        lambda usual, one, _: dataclasses.replace(usual, grid=(1, one.num_qo_heads * one.batch, 1))
    )
    with pytest.raises(LabError, match="1024,128,8,64"):
        check_rung(wrong, SMALL, quick=True)


def test_a_grid_that_stops_growing_is_looked_at_past_its_end() -> None:
    usual, one = load_rung("n00"), operation_of("rows").small

    def launch(problem: Any, limits: Limits, knobs: Mapping[str, int]) -> list[Launch]:
        (all_rows,) = usual.launch(problem, limits, knobs)
        return [dataclasses.replace(all_rows, grid=(min(problem.rows, 3000),))]

    capped = dataclasses.replace(usual, launch=launch)
    assert check._behind_the_grid(usual, one, None) == []
    (past,) = check._behind_the_grid(capped, one, None)
    assert past.rows > 3000
    assert "never written" in run_on_cpu(capped, past, orders=(0,)).told


def test_a_grid_that_stops_growing_too_late_to_be_run_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    usual, product = load_rung("g00"), operation_of("gemm")

    def launch(problem: Any, limits: Limits, knobs: Mapping[str, int]) -> list[Launch]:
        (whole,) = usual.launch(problem, limits, knobs)
        return [dataclasses.replace(whole, grid=(min(whole.grid[0], 65535),))]

    monkeypatch.setattr(type(product), "battery", lambda *_: [product.watched])
    for rung, said in ((usual, 0), (dataclasses.replace(usual, launch=launch), 1)):
        open_ones = check_rung(rung, product.watched, seed=1).not_checked
        assert sum("its grid grows no further" in one for one in open_ones) == said


def far_ok(rung: Rung, workload: Problem, knobs: None) -> bool | None:
    case = check._check_far_apart(rung, workload, knobs)
    return case and case.ok


def test_the_pages_of_a_large_pool_are_reached() -> None:
    right, one = load_rung("r09"), Workload.parse("2,8,2,48,64/paged16")
    number = "page_table[n / PAGE_SIZE]"
    wrong = edited((number, f"(unsigned short){number}"), base=right)
    assert far_ok(right, one, None) is True
    assert far_ok(wrong, one, None) is False


def test_the_last_of_many_scores_are_reached() -> None:
    right = load_rung("r00")
    row = "float* my_scores = scores + "
    wrong = edited((f"{row}qo_row * kv_len", f"{row}(int)(qo_row * kv_len)"), base=right)
    assert far_ok(right, SMALL, None) is True
    assert far_ok(wrong, SMALL, None) is False


def test_the_last_of_many_queries_are_reached() -> None:
    right, one = load_rung("p00"), operation_of("prefill").small
    wide = "const size_t qo_head = (size_t)sequence"
    wrong = edited((wide, "const int qo_head = sequence"), base=right)
    assert far_ok(right, one, None) is True
    assert far_ok(wrong, one, None) is False


def test_blocks_that_are_given_out_in_another_order_are_no_fault() -> None:
    usual, turned = "(size_t)blockIdx.x", "(size_t)(gridDim.x - 1 - blockIdx.x)"
    backwards, one = edited((usual, turned), base=load_rung("n00")), operation_of("rows").small
    assert run_on_cpu(backwards, one, orders=(0,)).ok
    assert far_ok(backwards, one, None) is None


def test_a_large_problem_may_take_more_launches() -> None:
    usual, one = load_rung("n00"), operation_of("rows").small

    def launch(problem: Any, limits: Limits, knobs: Mapping[str, int]) -> list[Launch]:
        return usual.launch(problem, limits, knobs) * (2 if problem.rows > 1000 else 1)

    again = dataclasses.replace(usual, launch=launch)
    assert far_ok(again, one, None) is None


@pytest.mark.parametrize("narrow", ["int", "unsigned"])
def test_the_last_of_many_rows_is_reached(narrow: str) -> None:
    right, one = load_rung("n00"), operation_of("rows").small
    wrong = edited(("const size_t first = (size_t)", f"const {narrow} first = "), base=right)
    assert far_ok(right, one, None) is True
    assert far_ok(wrong, one, None) is False


@pytest.mark.parametrize("cast", ["", "(int)", "(unsigned)"])
def test_the_last_rows_of_a_quantised_cache_are_reached(cast: str) -> None:
    first = "k_codes + kv_head * kv_len * ROW_BYTES"
    rung = edited((first, f"k_codes + {cast}(kv_head * kv_len * ROW_BYTES)"), base=load_rung("r06"))
    assert far_ok(rung, Workload(2, 8, 2, 300, 128), None) is (not cast)


def test_a_preparation_of_few_threads_is_run_whole_where_the_last_blocks_are() -> None:
    """Its first block clears every counter, in a loop."""
    usual, one = load_rung("n00"), operation_of("rows").small
    clear = (
        f"{ENTRY} void clear(unsigned* done, int n) {{ for (int i = threadIdx.x; i < n; i += 32)"
    )
    counts = "atomicAdd(done + blockIdx.x, 0u);\n  const size_t first ="

    def launch(problem: Any, limits: Limits, knobs: Mapping[str, int]) -> list[Launch]:
        (all_rows,) = usual.launch(problem, limits, knobs)
        done = (Workspace("done", (problem.rows,), "uint32"),)
        args = ("done", np.int32(problem.rows))
        first = Launch("clear", (4,), (32,), args=args, workspace=done, prepare=True)
        args = (*all_rows.args, "done")
        return [first, dataclasses.replace(all_rows, args=args, workspace=done)]

    edits = (
        ("int columns, float epsilon)", "int columns, float epsilon, unsigned* done)"),
        ("const size_t first =", counts),
        (ENTRY, f"{clear} if (!blockIdx.x) done[i] = 0; }}\n{ENTRY}"),
    )
    assert far_ok(edited(*edits, base=usual, launch=launch), one, None) is True


def test_an_index_that_is_too_narrow_makes_a_kernel_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(operation_of(SMALL)), "battery", lambda *_: [SMALL])
    wrong = edited(("const size_t kv_head", "const int kv_head"), base=R03)
    found = check_rung(wrong, SMALL, seed=5)
    *near, far = found.cases
    assert all(case.ok for case in near) and not far.ok and not found.ok
    assert "wrong in 1 of" in found.summary.splitlines()[0]
    assert f"{far.workload}: wrong: {check.FAR}" in found.summary
    assert check.NOT_FAR not in found.not_checked and check_rung(R03, SMALL, seed=5).ok


def test_a_sample_of_blocks_need_not_write_whole_rows() -> None:
    problem = operation_of("gemm").problem(130, 260, 16)
    assert run_on_cpu(load_rung("g00"), problem, orders=(0,), blocks=2).ok


def test_the_last_cases_are_drawn_and_can_be_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(operation_of(SMALL)), "battery", lambda *_: [SMALL])
    knobs = R03.resolve_knobs()  # asked for, all of them
    first, other = check_rung(R03, SMALL, knobs, seed=5), check_rung(R03, SMALL, knobs)
    again = check_rung(R03, SMALL, knobs, seed=other.seed)
    drawn = [[case.workload for case in one.cases[1:]] for one in (first, other, again)]
    assert len(drawn[0]) == check.DRAWN
    assert drawn[0] != drawn[1] == drawn[2]
    assert f"--seed {other.seed} draws the same again" in other.summary
    assert {(one.dtype, one.layout) for one in drawn[0]} == {(SMALL.dtype, SMALL.layout)}


def test_every_type_that_a_kernel_takes_is_checked_or_named() -> None:
    rung, problem = load_rung("n00"), operation_of("rows").problem(3, 40)
    one, every = (check_rung(rung, problem, quick=True, every_kind=all_) for all_ in (False, True))
    for report, dtypes in ((one, {"float16"}), (every, {"float16", "bfloat16", "float32"})):
        assert report.ok and {case.workload.dtype for case in report.cases} == dtypes
    named = [said for said in one.not_checked if "--all" in said]
    assert len(named) == 1 and "bfloat16" in named[0]
    assert not any("--all" in said for said in every.not_checked)


def test_a_kernel_that_is_wrong_in_another_type_alone_is_wrong() -> None:
    factor = "#ifdef FP32\n#define FACTOR 1.003f\n#else\n#define FACTOR 1.f\n#endif\n"
    last = "widen(x_row[c]) * scale * widen(weight[c])"
    wrong = edited((ENTRY, factor + ENTRY), (last, f"FACTOR * {last}"), base=load_rung("n00"))
    problem = operation_of("rows").problem(3, 41)
    assert not check_rung(wrong, problem).ok
    assert check_rung(wrong, problem, quick=True).ok


def test_a_verdict_says_what_it_covers_and_what_not() -> None:
    cases = [check.CheckCase(one, True) for one in battery(SMALL)]
    report = CheckReport("r", "gpu", False, cases, len(cases), None, ("how fast",))
    assert "S 0 to 262185; groups 1 to 97; B 1 to 1027; D 64" in report.summary
    never = [both for one in report.cover for both in one["never"]]
    assert never == [("1", "ragged")]
    assert "never: B 1 with lengths ragged" in report.in_full
    assert "sunk" in report.summary
    assert "not checked: how fast" in report.summary


# ---- what a GPU's compiler refuses, and what only a GPU sees ----


@pytest.mark.parametrize("call", ['system("false")', "abort()", "fork()"])
def test_what_no_gpu_compiler_takes_is_refused_and_not_run(call: str, tmp_path: Path) -> None:
    trace = tmp_path / "ran"
    call = call.replace("false", f"touch {trace}")
    wrong = edited((STORE, f"{call};\n  {STORE}"), (ENTRY, f'extern "C" int fork();\n{ENTRY}'))
    with pytest.raises((CompileError, LabError)):
        check_rung(wrong, SMALL, quick=True)
    assert not trace.exists()


@pytest.mark.parametrize(
    ("bound", "says"),
    [
        ("__launch_bounds__(16)", "allow 16"),
        ("__cluster_dims__(3, 1, 1)", "clusters of"),
        ("__cluster_dims__(1, 3, 1)", "clusters of"),
    ],
)
def test_a_launch_that_a_gpu_refuses_is_refused(bound: str, says: str) -> None:
    """Both stand in the cubin, and a case of the battery has one or five KV heads."""
    with pytest.raises(LabError, match=says):
        check_rung(edited(("BOUNDED(NUM_THREADS)", bound)), SMALL, quick=True)


def test_a_launch_of_whole_clusters_is_right() -> None:
    assert check_rung(edited(("BOUNDED(NUM_THREADS)", "__cluster_dims__(1, 1, 1)")), SMALL).ok


@pytest.mark.parametrize(
    "asks",
    [
        "#ifdef __SSE2__",
        "#if defined(__x86_64__) || defined(linux)",
        "#ifndef __CUDACC_RTC__",
        "constexpr bool HERE = sizeof(long double) > 8;\n#define IF if (HERE)\n#if 1",
    ],
)
def test_what_another_compiler_sees_is_no_way_to_be_right_here_alone(asks: str) -> None:
    wrong = STORE.replace("1.f /", "1.05f /")
    if "IF" in asks:
        edits = (STORE, f"{asks}\nIF {{ {STORE} }} else {{ {wrong} }}\n#endif")
    else:
        edits = (STORE, f"{asks}\n{STORE}\n#else\n{wrong}\n#endif")
    assert not check_rung(edited(edits), SMALL, quick=True).ok


@pytest.mark.parametrize("bytes_kept", [1, 2 * 2 * 48 * 64, 4 * 2 * 48 * 64])
def test_bytes_of_a_preparation_that_replace_no_input_buy_no_tolerance(bytes_kept: int) -> None:
    """The call names them, and reads K and V as they are."""

    def launch(problem: Problem, limits: Limits, knobs: dict[str, int]) -> list[Launch]:
        (one,) = R03.launch(problem, limits, knobs)
        kept = Workspace("kept", (bytes_kept,), "uint8")
        dummy = dataclasses.replace(one, workspace=(kept,), args=(*one.args, "kept"))
        return [
            Launch("keep", (1,), (32,), args=("k", "kept"), workspace=(kept,), prepare=True),
            dummy,
        ]

    rung = dataclasses.replace(R03, launch=launch, tolerance=0.9)
    tolerance = rung.tolerance_for(SMALL, launch(SMALL, LIMITS, {}))
    assert tolerance == MOST_TOLERANCE["float16"]


def test_code_for_a_gpu_alone_is_run_or_named() -> None:
    hidden = "#ifdef __CUDA_ARCH__\n  weight_sum *= 2.f;\n#endif\n  "
    wrong = edited((STORE, hidden + STORE))
    assert not run_on_cpu(wrong, SMALL, orders=(0,)).ok
    right = edited((STORE, hidden.replace("weight_sum *= 2.f;", 'asm("");') + STORE))
    assert not build_for_cpu(right, SMALL).as_gpu
    report = check_rung(right, SMALL, quick=True)
    assert report.verdict == "undecided" and not report.ok
    assert all(case.ok for case in report.cases)
    assert "undecided" in report.summary.splitlines()[0]
    assert "under __CUDA_ARCH__" in report.summary.splitlines()[0]


def test_parts_for_a_gpu_alone_are_found() -> None:
    text = (
        "a\n#ifdef __CUDA_ARCH__\nb\n#else\nc\n#endif\n#ifndef __CUDA_ARCH__\nd\n#else\ne\n#endif"
    )
    assert gpu_only_lines(text) == [(3, 3), (10, 10)]
    assert gpu_only_lines("#if X\na\n#endif\n#if __CUDA_ARCH__ >= 800\nb\nc\n#endif") == [(5, 6)]
    assert gpu_only_lines("#if !defined(__CUDA_ARCH__)\na\n#endif") == []


def test_too_many_registers_for_a_block_are_refused() -> None:
    launch = R03.launch

    def wide(problem: Problem, limits: Limits, knobs: Mapping[str, int]) -> list[Launch]:
        every = launch(problem, limits, knobs)
        return [dataclasses.replace(one, block=(1024, 1, 1)) for one in every]

    many = ", ".join(f"x{i} = q_rmem.x[0] * {i}" for i in range(90))
    uses = " + ".join(f"x{i} * x{i}" for i in range(90))
    step = "; ".join(f"x{i} = x{i} * acc.x[0] + x{(i + 1) % 90}" for i in range(90))
    greedy = edited(
        (LOOP, f"float {many};\n{LOOP} {step};"), (STORE, f"weight_sum += {uses};\n{STORE}"),
        ("BOUNDED(NUM_THREADS)", ""),
    ).with_launch(wide)  # fmt: skip
    with pytest.raises(LabError, match="registers together"):
        check_rung(greedy, SMALL)


# ---- what a rung may not know ----


def test_answers_made_before_the_run_are_wrong_for_the_next_draw() -> None:
    def answer(problem: Workload, limits: object, knobs: object) -> dict[str, str]:
        out = attention_oracle(make_inputs(problem))[0].astype(np.float16).view(np.uint16)
        return {"ANSWER": "{" + ",".join(map(str, out.reshape(-1))) + "}"}

    known = edited(
        (ENTRY, f"__device__ const unsigned short answer[] = ANSWER;\n{ENTRY}"),
        (STORE, "for (int i = 0; i < DIMS_PER_THREAD; ++i)\n"
                "    out[qo_row * HEAD_DIM + dim + i] = "
                "__ushort_as_half(answer[qo_row * HEAD_DIM + dim + i]);"),
        defines_extra=answer,
    )  # fmt: skip
    assert run_on_cpu(known, SMALL, orders=(0,)).ok  # seed 0 is what a rung is told
    assert not run_on_cpu(known, SMALL.replace(seed=1), orders=(0,)).ok


def test_a_rung_is_asked_about_shapes_alone() -> None:
    asked: list[Problem] = []

    def supports(problem: Problem) -> None:
        asked.append(problem)

    rung = dataclasses.replace(R03, supports=supports, refuses={"sunk": "too low"})
    hard = SMALL.replace(seed=9, distribution="large")
    assert rung.supports(hard) is None
    assert asked == [SMALL]
    assert rung.supports(SMALL.replace(distribution="sunk")) == "too low"
    report = check_rung(rung, SMALL, quick=True)
    assert any("too low" in one for one in report.not_checked)


@pytest.mark.parametrize(("asked", "given"), [(0.999, None), (2e-3, 2e-3)])
def test_a_tolerance_has_a_cap(asked: float, given: float | None) -> None:
    rung = edited((STORE, f"weight_sum *= 1.01f;\n{STORE}"), tolerance=asked)
    run = run_on_cpu(rung, SMALL, orders=(0,))
    assert not run.ok
    assert run.comparison is not None
    assert run.comparison.tolerance == (given or MOST_TOLERANCE["float16"])


# ---- what is kept from call to call ----

KEPT = "__device__ float kept[4096][HEAD_DIM]; __device__ unsigned key[4096][32];\n"
LOOK_UP = """const unsigned mine = __float_as_uint(q_rmem.x[0]) ^ __half_as_ushort(k_head[0]);
  if (atomicAdd(&key[qo_row][threadIdx.x], 0u) == mine) {
    for (int i = 0; i < DIMS_PER_THREAD; ++i)
      out[qo_row * HEAD_DIM + dim + i] = __float2half(atomicAdd(&kept[qo_row][dim + i], 0.f));
    return;
  }
  for (int i = 0; i < DIMS_PER_THREAD; ++i)
    atomicExch(&kept[qo_row][dim + i], acc.x[i] / weight_sum);
  atomicExch(&key[qo_row][threadIdx.x], mine);
  """


def test_an_answer_that_is_looked_up_is_found_out() -> None:
    """Whatever of the inputs it is looked up by, though every access is atomic, and though an
    earlier case kept nothing."""
    look_up = f"if (length > {SMALL.kv_len}) {{ {LOOK_UP} }}\n  {STORE}"
    cheat = edited((ENTRY, KEPT + ENTRY), (STORE, look_up))
    assert run_on_cpu(cheat, SMALL, orders=(0,)).ok
    run = run_on_cpu(cheat, SMALL.replace(kv_len=SMALL.kv_len + 9), orders=(0,))
    assert run.comparison is not None
    assert not run.comparison.ok


def test_a_maximum_that_starts_at_a_thousand_million_below_zero_is_found() -> None:
    small = [one for one in battery(SMALL) if one.distribution == "sunk"]
    for start, right in (("-INFINITY", True), ("-1e9f", False)):
        rung = edited((FIRST, f"float score_max = {start}"))
        remarks = check._remarks(rung, [SMALL, *small], None)
        assert [one.startswith("scores below") for one in remarks] == [True] * (not right)
    assert not check._remarks(load_rung("r09"), [SMALL, *small], None)


def test_values_of_knobs_that_nobody_asked_for_are_tried_where_the_code_stays() -> None:
    pieces = "rows_of_piece(seq_lens[sequence]"
    wrong = edited((pieces, f"{pieces} - (gridDim.z == 16)"), base=load_rung("r04"))
    found = check_rung(wrong, SMALL, quick=True)
    assert not found.ok and "with split=16" in found.summary
    asked = check_rung(wrong, SMALL, {"split": 8}, quick=True)
    assert asked.ok and "other values of unroll, launch_bounds, split" in asked.not_checked


def test_each_value_of_a_compiled_knob_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(operation_of(SMALL)), "battery", lambda *_: [SMALL])
    loads = "__pipeline_wait_prior(STAGES - 1)"
    edit = (loads, "__pipeline_wait_prior(STAGES - (STAGES != 8))")
    wrong, right = edited(edit, base=load_rung("r05")), load_rung("r05")
    found = check_rung(wrong, SMALL, seed=5)
    assert not found.ok and "(with stages=8)" in found.summary
    assert "unroll, launch_bounds, stages together" in " ".join(found.not_checked)
    default = right.resolve_knobs({"unroll": 4})
    assert not check_rung(wrong, SMALL, default, seed=5, asked=["unroll"]).ok
    quick = check_rung(wrong, SMALL, seed=5, quick=True)
    assert quick.ok and "other values of unroll, launch_bounds, stages" in quick.not_checked
    asked = check_rung(wrong, SMALL, {"stages": 4}, seed=5)
    said = {"other values of stages", "other values of unroll, launch_bounds together"}
    assert asked.ok and said <= set(asked.not_checked)
    free = [one for one in right.knobs if one.name != "stages"]
    values, never, _ = check._check_other_knobs(right, [SMALL], {"stages": 4}, free)
    assert len(values) == 3 and all(case.ok for case in values) and not never


def test_values_that_are_wrong_together_alone_say_nothing() -> None:
    """A family may rule such a point out elsewhere; each by itself is right."""
    odd = edited(("1.f / weight_sum", "(UNROLL == 8 && !LAUNCH_BOUNDS ? 2.f : 1.f) / weight_sum"))
    knobs = [one for one in odd.knobs if one.name in ("unroll", "launch_bounds")]
    pack = [{"unroll": 8}, {"launch_bounds": 0}]
    used = odd.resolve_knobs()
    told: list[str] = []
    assert check._check_values(odd, [SMALL], used, pack, told) is None
    values, never, _ = check._check_other_knobs(odd, [SMALL], None, knobs)
    assert all(case.ok for case in values) and not never
    assert told[0].startswith(
        "with unroll=8, launch_bounds=0 together, each of them right alone: wr"
    )
    (found,) = check._check_values(odd, [SMALL], {**used, "unroll": 8}, pack[1:], []) or ()
    assert not found.ok and "with launch_bounds=0" in str(found)


def test_each_value_stands_in_one_pack() -> None:
    knobs = [
        Knob("a", (1, 2, 3), 1, "of three"),
        Knob("b", (0, 1), 0, "takes a=2 alone"),
        Knob("c", (5, 6, 7, 8), 5, "never 8, and 6 is broken", broken={6: "wrong"}),
    ]

    def takes(values: Mapping[str, int]) -> bool:
        return values.get("c") != 8 and (values.get("b", 0) == 0 or values.get("a") == 2)

    packs, never = knob_values.pack_values(knobs, {"a": 1}, takes)
    assert packs == [[{"a": 2}, {"c": 7}], [{"a": 3}], [{"a": 2, "b": 1}]] and never == ["c=8"]


@pytest.mark.parametrize(
    ("rung", "edit", "told"),
    [
        ("r08", ("(int w = 1; w < WARPS;", "(int w = 1; w < min(WARPS, 4);"), "with warps=8"),
        (
            "r09",
            (
                "const int readable_end = kv_len;",
                "const int readable_end = WARPS == 8 ? min(kv_len, 2048) : kv_len;",
            ),
            "with warps=8",
        ),
        ("r09", ("known.acc[t][h + 2] *= rescale;", ""), "with "),
        ("p02", ("if (STAGES == 1) __syncthreads();", ""), "with stages=1"),
        ("g02", ("__threadfence();\n    is_last", "is_last"), "with split="),
        ("n00", ("c += THREADS)\n      out", "c += 256)\n      out"), "with threads="),
    ],
)
def test_a_kernel_that_is_wrong_with_another_value_is_wrong(
    rung: str, edit: tuple[str, str], told: str
) -> None:
    wrong = edited(edit, base=load_rung(rung))
    problem = operation_of(wrong.operation).small
    values, *_ = check._check_other_knobs(wrong, check._battery_of(wrong, problem), {}, wrong.knobs)
    found = [str(one) for one in values if not one.ok]
    assert found and told in found[0], found


def test_the_last_of_several_blocks_has_one_element_to_take() -> None:
    mine = load_rung(kernels_dir() / "first" / "vector_add.py")
    problem = operation_of(mine.operation).small
    (last,) = check._last_blocks(mine, problem, None)
    assert last.output.elements % 128 == 1 and last.output.elements > 1000
    wrong = edited(("i < count)", "i < count - (count % 128 == 1 && count > 1000))"), base=mine)
    assert not check_rung(wrong, problem, seed=5).ok
    rows = load_rung(kernels_dir() / "first" / "row_sum.py")  # a block takes one row
    assert not check._last_blocks(rows, operation_of(rows.operation).small, None)


def test_a_copy_of_a_paged_kernel_that_prepares_is_looked_at_far_apart(tmp_path: Path) -> None:
    """Its launch, in a process of its own, is told how large the pool is; what is prepared is not
    copied."""
    shipped = load_rung("r10")
    for suffix in (".py", ".cu"):
        shutil.copy(shipped.source.with_suffix(suffix), tmp_path)
    mine = load_rung(tmp_path / "r10_inverted_int8.py")
    case = check._check_far_apart(mine, Workload.parse("1,2,1,40,128/paged16"), None)
    assert case is not None and case.ok, case


UNEVEN = "for (int i = dim; i < 128; ++i) x += __half2float(k[i]);"
LANES: list[tuple[str, set[str]]] = [
    ("true", set()),
    ("threadIdx.x & 1", {"collective"}),
    (f"[&] {{ float x = 0; {UNEVEN} return x != 1; }}()", {"collective"}),
]


@pytest.mark.parametrize(("those", "kinds"), LANES, ids=["all", "odd", "uneven"])
def test_lanes_of_a_branch_need_not_be_active_together(those: str, kinds: set[str]) -> None:
    score = "warp_sum(dot(q_rmem, k_rmem))"
    told = f"{those} ? __shfl_sync(__activemask(), sum, 31) : sum"
    by_chance = f"[&] {{ const float sum = {score}; return {told}; }}()"
    run = run_on_cpu(edited((score, by_chance)), SMALL, orders=(0, 3))
    assert {fault.kind for fault in run.faults} == kinds


def test_a_call_leaves_what_was_prepared_as_it_was() -> None:
    changes = "if (dim == 0) const_cast<half*>(k_scale)[0] = __float2half(1.f);"
    store = "store_row(out"
    cheat = edited((store, f"__syncwarp();\n  {changes}\n  {store}"), base=load_rung("r06"))
    run = run_on_cpu(cheat, Workload(1, 1, 1, 20, 64), orders=(0,))
    assert {fault.kind for fault in run.faults} == {"carried"}
    assert "prepare=True" in str(run)


# ---- right kernels in other words ----

RIGHT = {
    "a counter that goes back to zero": (
        "__device__ unsigned done = 0;\n",
        "__threadfence(); if (dim == 0) atomicInc(&done, gridDim.x * gridDim.y - 1);"),
    "a ticket that goes on": (
        "__device__ unsigned ticket = 0;\n", "if (dim == 0) atomicAdd(&ticket, 1u);"),
    "scratch of its own": (
        "__device__ float scratch[4096][32];\n",
        "scratch[qo_row][threadIdx.x] = weight_sum; weight_sum = scratch[qo_row][threadIdx.x];"),
    "a table": (
        "__constant__ float one[4] = {1, 1, 1, 1};\n", "weight_sum *= one[length % 4];"),
    "a flag that is waited for": (
        "", "__shared__ volatile int ready; __shared__ float total;\n"
        "if (threadIdx.x == 0) ready = 0; __syncwarp();\n"
        "if (threadIdx.x == 31) { total = weight_sum; __threadfence_block(); ready = 1; }\n"
        "else { while (ready == 0) {} __threadfence_block(); }\nweight_sum = total;"),
    "functions that only a GPU's compiler knows": (
        "#include <cfloat>\n",
        "const long long now = clock64(); __builtin_assume(length > 0);\n"
        "if (isinf(weight_sum) || isnan(weight_sum) || !isfinite(weight_sum) ||\n"
        "    signbit(weight_sum) || weight_sum > FLT_MAX || now < 0) return;\n"
        "if (__dp4a(0x01020304, 0x01010101, 1) != 11 || __half2float(hexp(__float2half(0.f))) != 1)"
        " return;\nif (__funnelshift_l(1u, 2u, 4) != 32u || __fadd_rz(1.f, 1e-9f) != 1.f) return;"),
}  # fmt: skip


FENCE = "__threadfence();  // fence\n"
LAST = "if (dim == 0) rank = atomicInc(&counters[pair], splits - 1);"
RELEASED = {
    "every thread behind its own fence": (),
    "one thread behind a barrier and its fence": (
        (FENCE, ""), (LAST, f"if (dim == 0) __threadfence();\n  {LAST}")),
    "a warp behind __syncwarp()": (
        (FENCE, "__syncwarp();\n  if (dim % 32 == 0) __threadfence();\n"),),
    "every thread by an atomic of its own": (
        (FENCE, "__threadfence();\n  atomicAdd(&counters[pair], 0u);\n"),),
}  # fmt: skip


@pytest.mark.parametrize("name", RELEASED)
def test_what_is_released_to_another_block_may_be_read(name: str) -> None:
    rung = edited(*RELEASED[name], base=load_rung(Path(__file__).parent / "split_merge.py"))
    run = run_on_cpu(rung, SMALL)
    assert run.ok, str(run)


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_kernel_in_other_words_is_right(name: str) -> None:
    before, words = RIGHT[name]
    rung = edited((ENTRY, before + ENTRY), (STORE, f"{words}\n  {STORE}"))
    run = run_on_cpu(rung, SMALL.replace(kv_len=17))
    assert run.ok, str(run)


@pytest.mark.parametrize(("name", "kept"), [("a ticket that goes on", "`ticket`"), ("a table", "")])
def test_what_a_device_variable_may_carry_is_said(name: str, kept: str) -> None:
    before, words = RIGHT[name]
    rung = edited((ENTRY, before + ENTRY), (STORE, f"{words}\n  {STORE}"))
    report = check_rung(rung, SMALL.replace(kv_len=17), on="cpu", quick=True)
    said = [one for one in report.not_checked if "another problem" in one]
    assert report.ok and [kept in one for one in said] == [True] * bool(kept)


def test_what_a_persistent_block_keeps_of_the_part_before_is_found() -> None:
    def launch(problem: Any, limits: Limits, knobs: Mapping[str, int]) -> list[Launch]:
        (usual,) = R03.launch(problem, limits, knobs)
        parts, most = problem.num_qo_heads * problem.batch, 32 * limits.num_sms
        args = (*usual.args, np.int32(problem.num_qo_heads), np.int32(parts))
        return [dataclasses.replace(usual, grid=(min(parts, most),), args=args)]

    begun = "float score_max = -INFINITY, weight_sum = 0.f;"
    turns = (
        ("float sm_scale_log2)", "float sm_scale_log2, int num_qo_heads, int parts)"),
        (
            "const int head = blockIdx.x, sequence = blockIdx.y, num_qo_heads = gridDim.x;",
            "for (int part = blockIdx.x; part < parts; part += gridDim.x) {\n"
            "const int head = part % num_qo_heads, sequence = part / num_qo_heads;",
        ),
        (STORE, STORE + "}"),
    )
    keeps = ((begun, "weight_sum = 0.f;"), ("for (int part", begun + "for (int part"))
    right, wrong = edited(*turns, launch=launch), edited(*turns, *keeps, launch=launch)
    (many,) = (one for one in battery(SMALL) if one.num_parts == 83 * 40)
    for index in (3, 4):
        assert check._check_case_on_cpu(right, index, many, None).ok
        found = check._check_case_on_cpu(wrong, index, many, None)
        assert not found.ok and f"{min(check.OTHER_SMS)} multiprocessors" in found.told


def test_what_another_type_adds_up_in_shows_in_long_rows() -> None:
    usual, one = load_rung("n00"), operation_of("rows").small
    plain = "const float value = widen(x_row[c]);\n      sum += value * value;"
    in_type = plain.replace("sum += value * value", "sum = widen(narrow(sum + value * value))")
    wrong = edited((plain, f"\n#ifdef BF16\n{in_type}\n#else\n{plain}\n#endif\n"), base=usual)
    operation, typed = operation_of(one), one.replace(dtype="bfloat16")
    cases = check._few_of_kind(operation.battery(typed), operation.extreme)
    assert all(run_on_cpu(usual, case, orders=(0,)).ok for case in cases)
    told = [case.columns for case in cases if not run_on_cpu(wrong, case, orders=(0,)).ok]
    assert told and min(told) > 2048
    assert any(case.columns > 2048 and case.columns % 8 == 0 for case in cases)


def test_a_page_that_is_wrong_from_a_third_tile_on_is_found() -> None:
    usual, paged = load_rung("r09"), Workload(2, 8, 2, 300, 128, layout="paged", page_size=16)
    ahead = "page_after = page_of(next + stride);\n    filling"
    wrong = edited((ahead, "page_after = page_of(next);\n    filling"), base=usual)
    cases = operation_of(paged).battery(paged, usual.supports)
    few = check._few_of_kind(cases, (), check.LONG_VISITS_LAIN)
    longest = max(few, key=lambda one: one.kv_len)
    assert run_on_cpu(usual, longest, orders=(0,)).ok
    assert not run_on_cpu(wrong, longest, orders=(0,)).ok


@pytest.mark.parametrize("end", [8, 16, 32])
def test_a_page_that_is_wrong_at_one_width_is_found(end: int) -> None:
    usual, paged = load_rung("r09"), Workload(2, 8, 2, 300, 128, layout="paged", page_size=16)
    old = "page_table += (size_t)sequence * max_pages;"
    wrong = edited((old, old + f"\n  k += HEAD_DIM * (kv_len % {2 * end} == {end});"), base=usual)
    cases = operation_of(paged).battery(paged, usual.supports)
    few = check._few_of_kind(cases, operation_of(paged).extreme)
    more = check._other_ends(usual, few, cases, None)
    assert len(more) < 8 and {n % 64 for one in more for n in one.lengths} == set(range(64))
    told = [one for one in [*few, *more] if one.visits < 1000 and one.kv_len % (2 * end) == end]
    assert told and not all(run_on_cpu(wrong, one, orders=(0,)).ok for one in told)


def test_a_kernel_that_relies_on_the_order_of_blocks_is_told_so() -> None:
    def launch(problem: Any, limits: Limits, knobs: Mapping[str, int]) -> list[Launch]:
        (usual,) = R03.launch(problem, limits, knobs)
        done = (Workspace("done", (usual.num_blocks,), "uint32"),)
        clear = Launch("clear", (usual.num_blocks,), (1,), args=("done",), workspace=done)
        args = (*usual.args, "done")
        return [clear, dataclasses.replace(usual, args=args, workspace=done)]

    waits = """
  const int block = blockIdx.x + gridDim.x * blockIdx.y;
  if (threadIdx.x == 0) {
    if (block) while (!done[block - 1]) {}
    __threadfence();
    done[block] = 1;
  }"""
    clear = f"{ENTRY} void clear(unsigned* done) {{ done[blockIdx.x] = 0; }}\n"
    end = "float sm_scale_log2)"
    flags = (end, end.replace(")", ", volatile unsigned* done)"))
    edits = ((ENTRY, clear + ENTRY), flags, (STORE, STORE + waits))
    report = check_rung(edited(*edits, launch=launch), SMALL, quick=True)
    assert report.ok and report.remarks == (check.ASCENDING,)


def test_threads_that_have_returned_are_not_waited_for() -> None:
    rung = edited((STORE, f"{STORE}\n  if (threadIdx.x < 5) return;\n  __syncthreads();"))
    run = run_on_cpu(rung, SMALL.replace(kv_len=9))
    assert run.ok, str(run)


def test_what_a_kernel_prints_is_shown() -> None:
    says = 'if (head == 1 && sequence == 0 && dim == 0) printf("sum %g\\n", weight_sum);\n  '
    report = check_rung(edited((STORE, says + STORE)), SMALL, quick=True)
    assert report.ok
    assert "the kernel printed:\n  sum " in report.summary


PIECES = """
extern "C" __global__ void pieces(const float* x, float* parts, unsigned* done, float* out, int n) {
  __shared__ bool last;
  float sum = 0.f;
  for (int c = blockIdx.y + 4 * threadIdx.x; c < n; c += 128) sum += x[(size_t)blockIdx.x * n + c];
  for (int by = 16; by; by /= 2) sum += __shfl_xor_sync(~0u, sum, by);
  if (threadIdx.x == 0) {
    parts[4 * blockIdx.x + blockIdx.y] = sum;
    __threadfence();
    last = atomicInc(done + blockIdx.x, 3) == 3;
    /* of the reader */
  }
  __syncthreads();
  if (last && threadIdx.x == 0) {
    float total = 0.f;
    for (int i = 0; i < 4; ++i) total += parts[4 * blockIdx.x + i];
    out[blockIdx.x] = total;
  }
}
extern "C" __global__ void clear(unsigned* done) { done[blockIdx.x] = 0; }
"""


def test_a_reader_without_a_fence_of_its_own_is_told_so() -> None:
    def launch(problem: Any, limits: Limits, knobs: Mapping[str, int]) -> list[Launch]:
        rows, columns = problem.rows, np.int32(problem.columns)
        spaces = Workspace("parts", (rows, 4), "float32"), Workspace("done", (rows,), "uint32")
        first = Launch("clear", (rows, 1, 1), (1, 1, 1), args=("done",), workspace=spaces[1:])
        args = ("x", "parts", "done", "out", columns)
        main = Launch("pieces", (rows, 4, 1), (32, 1, 1), args=args, workspace=spaces)
        return [dataclasses.replace(first, prepare=True), main]

    usual = load_rung("row_sum")
    problem = operation_of(usual).small
    for fence, told in (("__threadfence();", ()), ("", ("without a __threadfence()",))):
        text = PIECES.replace("/* of the reader */", fence)
        rung = dataclasses.replace(usual, text=text, launch=launch, edited=True)
        report = check_rung(rung, problem, quick=True)
        assert report.ok, report.summary
        assert len(report.remarks) == len(told)
        assert all(words in one for words, one in zip(told, report.remarks, strict=True))


CHAIN = """
extern "C" __global__ void chain(
    const float* x, volatile float* sums, volatile unsigned* done, unsigned* drawn,
    float* out, int n) {
  if (threadIdx.x) return;
  const int row = atomicAdd(drawn, 1);
  float sum = 0.f, before = 0.f;
  for (int c = 0; c < n; ++c) sum += x[(size_t)row * n + c];
  if (row > 0) {
    while (!done[row - 1]) {}
    __threadfence();
    before = sums[row - 1];
  }
  sums[row] = sum;
  __threadfence();
  done[row] = 1;
  out[row] = sum + 0.f * before;
}
extern "C" __global__ void clear(unsigned* done, unsigned* drawn) {
  done[blockIdx.x] = 0;
  if (!blockIdx.x) *drawn = 0;
}
"""
CHAINS = {
    "right": ("", ""),
    "the flag of another": ("while (!done[row - 1])", "while (row > 1 && !done[row - 2])"),
    "the flag first": ("sums[row] = sum;\n  __threadfence();\n  done[row] = 1;",
                       "done[row] = 1;\n  __threadfence();\n  sums[row] = sum;"),
    "no fence since": ("sums[row] = sum;\n  __threadfence();",
                       "__threadfence();\n  sums[row] = sum;"),
}  # fmt: skip


@pytest.mark.parametrize("name", CHAINS)
def test_a_block_may_rely_on_what_was_released_before_it_learnt_of_it(name: str) -> None:
    def launch(problem: Any, limits: Limits, knobs: Mapping[str, int]) -> list[Launch]:
        rows = problem.rows
        sums, done = Workspace("sums", (rows,), "float32"), Workspace("done", (rows,), "uint32")
        spaces = sums, done, Workspace("drawn", (1,), "uint32")
        clear = Launch(
            "clear", (rows, 1, 1), (1, 1, 1), args=("done", "drawn"), workspace=spaces[1:]
        )
        args = ("x", "sums", "done", "drawn", "out", np.int32(problem.columns))
        return [clear, Launch("chain", (rows, 1, 1), (64, 1, 1), args=args, workspace=spaces)]

    usual = load_rung("row_sum")
    text = CHAIN.replace(*CHAINS[name])
    rung = dataclasses.replace(usual, text=text, launch=launch, edited=True)
    run = run_on_cpu(rung, operation_of(usual).small)
    assert run.ok is (name == "right"), run.told


@pytest.mark.parametrize("word", ["while", "if"])
def test_a_lock_may_be_another_block_s(word: str) -> None:
    def launch(problem: Any, limits: Limits, knobs: Mapping[str, int]) -> list[Launch]:
        rows, lock = problem.rows, (Workspace("lock", (1,), "int32"),)
        args = ("x", "out", np.int32(problem.columns), "lock")
        clear = Launch("clear", (1, 1, 1), (1, 1, 1), args=("lock",), workspace=lock)
        return [clear, Launch("row_sum", (rows, 1, 1), (64, 1, 1), args=args, workspace=lock)]

    usual = load_rung("row_sum")
    wait = f"{word} (atomicCAS(lock, 0, 1)) {';' if word == 'while' else 'return;'}"
    text = usual.source_text.replace("int columns)", "int columns, int* lock)").replace(
        "if (thread == 0) out[row] = parts[0];",
        f"if (thread) return;\n  {wait}\n  out[row] = parts[0];\n"
        "  __threadfence();\n  atomicExch(lock, 0);",
    )
    text += f"\n{ENTRY} void clear(int* lock) {{ *lock = 0; }}\n"
    rung = dataclasses.replace(usual, text=text, launch=launch, edited=True)
    run = run_on_cpu(rung, operation_of(usual).small, workers=1)
    assert run.ok is (word == "while"), run.told


def test_a_restricted_buffer_under_two_names_is_told() -> None:
    def launch(problem: Any, limits: Limits, knobs: Mapping[str, int]) -> list[Launch]:
        args = ("x", "out", "out", np.int32(problem.columns))
        return [Launch("row_sum", (problem.rows, 1, 1), (64, 1, 1), args=args)]

    usual = load_rung("row_sum")
    for told in (True, False):
        mark = "__restrict__ " if told else ""
        names = f"float* {mark}out,\n    const float* {mark}old,"
        text = usual.source_text.replace("float* out,", names)
        assert names in text
        rung = dataclasses.replace(usual, text=text, launch=launch, edited=True)
        report = check_rung(rung, operation_of(usual).small, quick=True)
        assert report.ok and len(report.remarks) == told
        assert not told or "`out` as out and old" in report.remarks[0]


def test_a_header_of_a_reader_s_own_that_a_gpu_reads_otherwise_leaves_it_open(
    tmp_path: Path,
) -> None:
    usual = load_rung("row_sum")
    ours = (kernels_dir() / "include" / "async_copy.cuh").read_text()
    assert "__CUDA_ARCH__" in ours
    source = tmp_path / "row_sum.cu"
    source.write_text(f'#include "async_copy.cuh"\n{usual.source_text}')
    rung = dataclasses.replace(usual, source=source, read_text=None, edited=True)
    for more, verdict in (("", "right"), ("// mine\n", "undecided")):
        (tmp_path / "async_copy.cuh").write_text(ours + more)
        report = check_rung(rung, operation_of(usual).small, quick=True)
        assert report.verdict == verdict, report.summary
