"""What every operation promises the later rooms, of those that are shipped and of one that is not.

The third one stands in this file alone: that it runs, forecasts and records shows that nothing
outside an operation's own files knows decode.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from live_fake import use_fake_gpu

import labtools.problem as lp
from labtools.cli import main
from labtools.measure.campaign.plan import Plan, Section
from labtools.measure.campaign.recording import Effort, record_campaign
from labtools.measure.cpu import run_on_cpu
from labtools.measure.gpu.runner import run_on_gpu
from labtools.predict import forecast, list_gpus, load_gpu
from labtools.problem.pairs import pair_cover
from labtools.record import RecordStore, freshness, median_problems

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = tuple(name for name, one in lp.operations().items() if one.is_ours)
N00 = lp.load_rung("n00")
NORMS = {"rows": N00, "add_norm": lp.load_rung("n01")}


def examples(name: str) -> list[lp.Problem]:
    operation = lp.operation_of(name)
    few = [operation.small, operation.watched, *operation.draw_problems(6, seed=3)]
    return [*few, *operation.battery(operation.watched)]


@pytest.mark.parametrize("name", SHIPPED)
def test_forms_are_read_back(name: str) -> None:
    operation = lp.operation_of(name)
    keys = set()
    for one in [operation.headline, *examples(name)]:
        assert lp.problem_from_dict(json.loads(json.dumps(one.to_dict()))) == one
        usual = lp.parse_problem(one.short())
        assert usual == one.replace(**{field: getattr(usual, field) for field in unsaid(one)})
        keys.add(one.key())
    assert len(keys) == len({operation.headline, *examples(name)})
    assert operation.problem.parse(operation.headline.short()) == operation.headline


def unsaid(one: lp.Problem) -> list[str]:
    """The fields that a short form does not hold."""
    fields = {"distribution", "seed", "cache_state"}
    return [*fields, "seq_lens"] if isinstance(one, lp.Workload) else [*fields]


@pytest.mark.parametrize("name", SHIPPED)
def test_inputs_are_the_buffers_that_the_problem_names(name: str) -> None:
    operation = lp.operation_of(name)
    for one in examples(name):
        drawn, again = operation.draw(one), operation.draw(one)
        assert drawn.problem == one
        arrays = drawn.buffers()
        assert list(arrays) == list(one.inputs)
        for buffer, array in arrays.items():
            said = one.inputs[buffer]
            assert (array.shape, str(array.dtype)) == (said.shape, said.dtype)
            assert array.nbytes == said.bytes
            assert array.tobytes() == again.buffers()[buffer].tobytes()
        other = operation.draw(one.replace(seed=one.seed + 1)).buffers()
        assert any(arrays[b].tobytes() != other[b].tobytes() for b in arrays)
        held = {**one.inputs, **one.outputs}
        assert one.set_bytes == sum(buffer.bytes for buffer in held.values())
        twice = sum(one.outputs[name].bytes for name in one.in_out)  # read and written
        assert 0 < one.minimal_bytes <= one.set_bytes + twice
        assert one.flops > 0
        assert len(one.axes) == len(one.output.shape)


def attend(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> list[float]:
    """One query's answer."""
    one = [float(x) for x in q]
    scores = [sum(x * float(y) for x, y in zip(one, row, strict=True)) for row in k]
    scores = [score / len(one) ** 0.5 for score in scores]
    weights = [np.exp(score - max(scores)) for score in scores]
    columns = [[float(row[d]) for row in v] for d in range(len(one))]
    return [
        sum(w * x for w, x in zip(weights, column, strict=True)) / sum(weights)
        for column in columns
    ]


def brute_force(drawn: Any) -> np.ndarray:
    """The answer once more, by loops over single numbers."""
    one = drawn.problem
    out = np.zeros(one.output.shape)
    if isinstance(one, lp.Rows):
        for r in range(one.rows):
            squares = sum(float(x) ** 2 for x in drawn.x[r])
            for c in range(one.columns):
                scale = (squares / one.columns + 1e-6) ** 0.5
                out[r, c] = float(drawn.x[r, c]) / scale * float(drawn.weight[c])
        return out
    if isinstance(one, lp.Prefill):
        for b, h, i in np.ndindex(one.part_shape):
            seen = one.kv_len - one.num_queries + i + 1 if one.causal else one.kv_len
            kv_head = h // (one.num_qo_heads // one.num_kv_heads)
            k, v = drawn.k[b, kv_head, :seen], drawn.v[b, kv_head, :seen]
            out[b, h, i] = attend(drawn.q[b, h, i], k, v)
        return out
    if isinstance(one, lp.Gemm):
        for i, j in np.ndindex(one.m, one.n):
            pairs = zip(drawn.a[i], drawn.b[j], strict=True)
            out[i, j] = sum(float(x) * float(y) for x, y in pairs)
        return out
    assert isinstance(one, lp.Workload)
    for b, h in np.ndindex(one.batch, one.num_qo_heads):
        k, v = drawn.kv_rows(b, h // one.group_size)
        out[b, h] = attend(drawn.q[b, h], k, v)
    return out


FEW = "2,4,2,9,64 1,2,1,17,64/paged16/bf16 rows:3,7 rows:2,33/bf16 gemm:3,5,7"
FEW_PREFILLS = "prefill:2,4,2,5,64/causal prefill:1,2,1,7,64/causal/q3 prefill:1,3,1,4,64/bf16/q6"


@pytest.mark.parametrize("text", [*FEW.split(), *FEW_PREFILLS.split()])
def test_the_oracle_is_what_loops_over_single_numbers_give(text: str) -> None:
    one = lp.parse_problem(text)
    operation = lp.operation_of(one)
    for distribution in one.distributions:
        drawn = operation.draw(one.replace(distribution=distribution))
        assert np.allclose(operation.oracle(drawn), brute_force(drawn), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", SHIPPED)
def test_some_parts_are_the_same_as_all(name: str) -> None:
    operation = lp.operation_of(name)
    for one in examples(name)[:8]:
        drawn = operation.draw(one)
        whole = operation.expect(drawn)
        assert [array.shape for array in whole.values()] == [b.shape for b in one.outputs.values()]
        parts = one.sample_parts(3, np.random.default_rng(0))
        some = operation.expect(drawn, parts=parts)
        arrays = drawn.buffers()
        # A part is a problem of its own, and its answer is that part's.
        read = lambda name, index, arrays=arrays: arrays[name][index]  # noqa: E731
        assert all(operation.read_part(one, part, read).problem.num_parts == 1 for part in parts)
        alone = operation.expect_parts(one, parts, read)
        for name, array in whole.items():
            assert np.isfinite(array).all()
            for part in np.ndindex(one.part_shape):
                if part in parts:
                    assert np.allclose(some[name][part], array[part], rtol=1e-12, atol=1e-14)
                    assert np.allclose(alone[name][part], array[part], rtol=1e-9, atol=1e-12)
                else:
                    assert np.isnan(some[name][part]).all() and np.isnan(alone[name][part]).all()
        written = {name: array.astype(np.float32) for name, array in whole.items()}
        assert one.compare(written, some).ok
        for name, buffer in one.outputs.items():
            assert not one.compare(
                {**written, name: lp.poisoned(buffer.shape, buffer.dtype)}, whole
            ).ok


# Pairs of levels in a battery, and how many do not meet in it: one sequence of several lengths, a
# single row that ends as a tile does, queries before the first key under a mask or of 257 keys.
PAIRS = {
    **{"decode": (166, 1), "rows": (347, 9), "add_norm": (347, 9)},
    **{"prefill": (368, 13), "gemm": (369, 16)},
}


@pytest.mark.parametrize("name", SHIPPED)
def test_a_battery_begins_with_the_problem_and_keeps_its_type(name: str) -> None:
    operation = lp.operation_of(name)
    for one in (operation.watched, operation.small.replace(dtype="bfloat16", seed=5)):
        cases = operation.battery(one)
        assert cases[0] is one
        assert len(set(cases)) == len(cases) > len(one.distributions)
        assert {case.dtype for case in cases} == {one.dtype}
        assert {case.distribution for case in cases} >= set(one.distributions)
        assert operation.battery(one, lambda problem: "no") == [one]
        table = pair_cover([operation.levels_of(case) for case in cases if operation.tells(case)])
        pairs = sum(len(row["levels"][0]) * len(row["levels"][1]) for row in table)
        assert (pairs, sum(len(row["never"]) for row in table)) == PAIRS[name]


@pytest.mark.parametrize("name", SHIPPED)
def test_altered_inputs_have_another_answer_in_every_part(name: str) -> None:
    """Hardly an element is another one, so that what an answer is looked up by is the same."""
    operation = lp.operation_of(name)
    for one in examples(name):
        inputs = operation.draw(one)
        changed = operation.alter(inputs, np.random.default_rng(3))
        assert changed
        assert not {"q", "seq_lens", "page_table"} & set(changed)
        altered = dataclasses.replace(inputs, **changed)
        second = operation.expect(altered)
        for name, first in operation.expect(inputs).items():
            moved = np.linalg.norm(first - second[name], axis=-1)
            size = np.linalg.norm(first, axis=-1)
            empty = (size == 0) & bool(one.empty_parts)  # zero, whatever the inputs are
            assert ((moved > 0.02 * size) | empty).all(), (one, name)


@pytest.mark.parametrize("name", SHIPPED)
def test_what_a_gpu_draws_are_inputs_of_the_problem(name: str) -> None:
    operation = lp.operation_of(name)
    for one in examples(name):
        fills = operation.fills(one, 7)
        if fills is None:
            continue
        assert sorted(fill.buffer for fill in fills) == sorted(one.inputs)
        for fill in fills:
            said = one.inputs[fill.buffer]
            if fill.array is None:
                assert said.elements % 2 == 0  # two numbers at a time
            else:
                assert (fill.array.shape, str(fill.array.dtype)) == (said.shape, said.dtype)


def test_an_odd_number_of_elements_is_drawn_on_the_cpu() -> None:
    assert lp.operation_of("rows").fills(lp.Rows(3, 5), 0) is None


def test_a_rung_runs_its_own_operation_alone() -> None:
    r03 = lp.load_rung("r03")
    assert r03.supports(lp.Rows(4, 4)) == "it computes decode and not rows"
    assert N00.supports(lp.HEADLINE) == "it computes rows and not decode"
    for name in SHIPPED:
        assert {one.operation for one in lp.list_rungs(name)} == {name}
        assert {one.operation for one in lp.list_baselines(name)} == {name}
    assert {one.operation for one in lp.list_rungs()} == {"decode"}
    ids = [one.id for one in lp.list_baselines(None)]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rows:8192", "two whole numbers: R,C"),
        ("rows:8192,0", "at least 1"),
        ("rows:8192,64/paged16", "is no option"),
        ("rows:8192,64/q16", "is no option"),
        ("prefill:1,2,2,8,64/q", "/causal, /fp16, /bf16, /fp32, /warm, /qN"),
        ("prefill:1,2,2,8,64/q0", "/causal, /fp16, /bf16, /fp32, /warm, /qN"),
        ("prefill:1,2,2,8,64/q3/q4", "says again"),
        ("prefill:1,2,2,8,64/q9/causal", "would see no key"),
        ("prefill:1,3,2,8,64", "same number of query heads"),
        ("rows:8192,64/bf16/fp16", "says again"),
        ("gemm:4,4", "three whole numbers: M,N,K"),
        ("columns:3,4", "no operation 'columns'"),
        ("8,32", "five whole numbers"),
    ],
)
def test_a_form_that_is_none_is_refused(text: str, words: str) -> None:
    with pytest.raises(lp.LabError, match=words):
        lp.parse_problem(text)


def test_a_prefill_has_one_form_and_counts_what_its_mask_leaves() -> None:
    assert lp.parse_problem("prefill:1,2,2,8,64/q8") == lp.Prefill(1, 2, 2, 8, 64)
    one = lp.parse_problem("prefill:3,4,2,9,64/causal/q4/bf16")
    assert one == lp.Prefill(3, 4, 2, 9, 64, qo_len=4, causal=True, dtype="bfloat16")
    assert one.short() == "prefill:3,4,2,9,64/causal/bf16/q4"
    assert isinstance(one, lp.Prefill)
    assert one.keys_seen().tolist() == [6, 7, 8, 9]
    for case in (one, one.replace(causal=False), one.replace(qo_len=0), one.replace(qo_len=1)):
        assert case.pairs == case.keys_seen().sum()
        assert case.flops == 4 * 3 * 4 * 64 * case.pairs
        assert case.minimal_bytes == 2 * 64 * 3 * (2 * 4 * case.num_queries + 2 * 2 * 9)
    # The case study's workload: 4 B H S^2 D, and q, k, v and the output once.
    study = lp.parse_problem("prefill:4,8,8,512,64")
    assert study.flops == 2_147_483_648
    assert study.minimal_bytes == 8_388_608


def test_the_default_operation_is_written_as_before() -> None:
    assert "operation" not in lp.HEADLINE.to_dict()
    assert lp.problem_from_dict({**lp.HEADLINE.to_dict(), "operation": "decode"}) == lp.HEADLINE
    assert lp.Rows(2, 3).to_dict()["operation"] == "rows"
    with pytest.raises(lp.LabError, match="operation 'rows'"):
        lp.Workload.from_dict(lp.Rows(2, 3).to_dict())


RIGHT = (
    *("rows:9,264", "rows:9,264/bf16", "rows:9,260/fp32", "rows:3,33003/fp32"),
    *("add_norm:5,131", "add_norm:4,264/bf16", "add_norm:3,40/fp32"),
)


@pytest.mark.parametrize("text", RIGHT)
def test_the_row_kernels_are_right_in_every_type(text: str) -> None:
    one = lp.parse_problem(text)
    for knobs in ({"threads": 32}, {"threads": 256}):
        run = run_on_cpu(NORMS[one.operation], one, knobs, orders=(0, 3))
        assert run.ok, str(run)
        assert list(run.outputs) == list(one.outputs)


@pytest.mark.parametrize("name", ["rows", "add_norm"])
def test_the_row_kernels_are_right_on_drawn_problems(name: str) -> None:
    for one in lp.operation_of(name).draw_problems(5, seed=11):
        run = run_on_cpu(NORMS[name], one, orders=(0, 3))
        assert run.ok, f"{one}: {run}"


@pytest.mark.parametrize("gpu", sorted(list_gpus()))
def test_the_row_kernel_is_forecast_on_every_sheet(gpu: str) -> None:
    sheet = load_gpu(gpu)
    if sheet.boost_clock_mhz is None:  # nothing is forecast for such a GPU
        with pytest.raises(lp.LabError, match="clock"):
            forecast(N00, lp.Rows(8192, 4096), sheet)
        return
    said = forecast(N00, lp.Rows(8192, 4096), sheet)
    assert said.band_us is None and "nobody measured how far" in said.doubts[0]
    assert said.floor.time_us is not None
    assert said.floor.time_us < said.time_us < 6 * said.floor.time_us
    # Twice the rows take about twice as long.
    ratio = forecast(N00, lp.Rows(16384, 4096), sheet).time_us / said.time_us
    assert 1.7 < ratio < 2.2


@pytest.mark.parametrize(
    "command",
    [
        ("run", "n00", "--on", "cpu", "--quick", "--workload", "rows:5,33"),
        ("compile", "n00"),
        ("forecast", "n00", "--workload", "FILE"),
        ("records", "--workload", "rows:64,100"),
    ],
    ids=lambda command: command[0],
)
def test_a_row_workload_goes_through_the_command_line(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "rows.json"
    path.write_text(json.dumps(lp.Rows(64, 100, seed=3).to_dict()))
    named = [str(path) if word == "FILE" else word for word in command]
    assert main([*named, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    if command[0] != "records":
        assert said["rung"] == "n00_rms_norm"
        used = {"run": lp.Rows(5, 33), "compile": lp.Rows(8192, 4096)}
        one = used.get(command[0], lp.Rows(64, 100, seed=3))
        assert said["workload"] == one.to_dict()


WRONG_ON_A_GPU = (
    ("rows:6,40", {"rms_norm": "wrong"}, "1 of 6 rows are off"),
    ("add_norm:5,131", {"add_rms_norm": "leaves out"}, "out: "),
    ("add_norm:5,131", {"add_rms_norm": "leaves the residual"}, "residual: "),
)


@pytest.mark.parametrize(("text", "behaviour", "said"), WRONG_ON_A_GPU)
def test_a_wrong_row_kernel_is_refused_on_a_gpu(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    text: str,
    behaviour: dict[str, str],
    said: str,
) -> None:
    one = lp.parse_problem(text)
    rung = NORMS[one.operation]
    use_fake_gpu(monkeypatch, tmp_path)
    assert run_on_gpu(rung, one).ok
    use_fake_gpu(monkeypatch, tmp_path, behaviour)
    run = run_on_gpu(rung, one)
    assert not run.ok and said in str(run)
    plan = Plan("tiny", "", (Section((one,), ((rung.id, {}),)),))
    assert not record_campaign(plan, tmp_path / "out", Effort(2, 5)).ok
    assert RecordStore([tmp_path / "out"]).query() == []


@pytest.mark.parametrize(
    "problems",
    [(lp.Rows(6, 40), lp.Rows(3, 5)), (lp.AddNorm(5, 131), lp.AddNorm(4, 40, "float32"))],
)
def test_rows_are_timed_and_recorded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, problems: tuple[lp.Problem, ...]
) -> None:
    """A residual is put back before every sample: many calls later it would be infinite."""
    use_fake_gpu(monkeypatch, tmp_path)
    rung = NORMS[problems[0].operation]
    plan = Plan("tiny", "", (Section(problems, ((rung.id, {}),)),))
    report = record_campaign(plan, tmp_path / "out", Effort(2, 5))
    assert report.ok, report.failures
    store = RecordStore([tmp_path / "out"])
    assert {record.problem for record in store.query()} == {*problems}
    for record in store.query():
        assert median_problems(record) == []
        assert freshness(record).fresh, freshness(record)
        assert record.workload["operation"] == problems[0].operation
        assert record.read_bytes == record.problem.streamed_bytes
        assert record.forecast is not None
        assert record.comparison.pairs > 0
    found = store.query(rung=rung.id[:3], workload=problems[0].short())
    assert [one.problem for one in found] == [problems[0]]


@pytest.mark.parametrize("name", SHIPPED)
def test_an_operation_names_what_it_streams_and_what_it_is_held_against(name: str) -> None:
    operation = lp.operation_of(name)
    assert operation.bytes_name
    assert operation.minimal_name
    assert operation.baseline in [one.id for one in lp.list_baselines(name) if one.fair]


DECODES_OWN = (
    # Files of attention, and of decode and prefill: their part of a room is a folder of that name,
    # or a file.
    *("labtools/problem/attention.py", "labtools/problem/prefill/", "kernels/prefill/"),
    *("labtools/measure/campaign/plans/", "labtools/derive/attention.py"),
    *("kernels/baselines/prefill/", "labtools/*/*/prefill.py", "labtools/*/*/prefill/"),
    "labtools/*/prefill/",
    *("labtools/*/decode/", "labtools/*/*/decode/", "kernels/decode/", "kernels/studies/"),
    # Device code, the library's call and the read sweep that decode's kernels share.
    *("kernels/include/", "kernels/baselines/*.py", "kernels/microbench/read_sweep.*"),
    # The one control panel, the one calculator and the one picture of decode's own pages: their
    # sliders and axes are the numbers of a decode workload.
    *("labtools/notebook/labs/lab03_chain/view.py", "labtools/notebook/labs/lab05_split/view.py"),
    *(
        "labtools/notebook/labs/lab06_quant/figures.py",
        "labtools/notebook/labs/lab06_quant/view.py",
    ),
    # What the ladder's kernels, which are decode's, do with a row.
    "labtools/notebook/book/ladder/",
    # The bench on which prefill's broken kernels are watched: it changes their rows.
    "labtools/notebook/labs/lab11_sanitizer/",
    # Pages, exercises, tests, and tools that draw decode's workloads.
    *("book/", "labs/", "tests/", "research/compare_layouts.py", "research/draw_peers.py"),
    "research/search_layouts.py",
    "CONTRIBUTING.md",
    # Tools that make what decode alone has: FlashInfer's kernels, listings by head size.
    *("tools/build_flashinfer.py", "tools/write_listings.py"),
)
"""Where decode's fields may be named."""
DECODES_WORDS = ("kv_len", "num_kv_heads", "head_dim", "seq_lens")


@pytest.mark.parametrize("word", DECODES_WORDS)
def test_no_file_outside_decodes_own_names_its_fields(word: str) -> None:
    command = ["git", "-C", str(ROOT), "grep", "-l", "-I", "-w", word]
    listed = subprocess.run(command, capture_output=True, text=True).stdout.splitlines()
    assert "labtools/problem/decode/workload.py" in listed  # the scan sees the project
    outside = [path for path in listed if not any(_is_below(path, one) for one in DECODES_OWN)]
    assert [path for path in outside if not path.endswith((".json.gz", ".ipynb"))] == []


def _is_below(path: str, pattern: str) -> bool:
    if pattern.endswith("/"):
        return any(parent.match(pattern[:-1]) for parent in Path(path).parents)
    return Path(path).match(pattern)
