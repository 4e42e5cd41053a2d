"""Several outputs, buffers that are read and written, fp32, and lengths of zero."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from record_samples import make_record

from labtools.measure import check_rung
from labtools.measure.cpu import run_on_cpu
from labtools.predict import forecast, load_gpu
from labtools.problem import (
    HEADLINE,
    AddNorm,
    Buffer,
    LabError,
    Launch,
    Operation,
    Problem,
    Rung,
    Workload,
    kernel_supports,
    load_rung,
    operation_of,
    operations,
    parse_problem,
    poisoned,
    problem,
    problem_from_dict,
    register_operation,
)

N01 = load_rung("n01")
ONE = AddNorm(5, 131)


def test_a_right_output_does_not_excuse_another() -> None:
    inputs = operation_of(ONE).draw(ONE)
    expected = operation_of(ONE).expect(inputs)
    written = {name: array.astype(np.float16) for name, array in expected.items()}
    assert ONE.compare(written, expected).ok
    untouched = {"out": poisoned(ONE.output.shape, ONE.dtype), "residual": inputs.residual}
    for name, array in untouched.items():
        found = ONE.compare({**written, name: array}, expected)
        assert not found.ok
        assert [one.split(":")[0] for one in found.problems] == [name]


def test_fusion_saves_what_one_kernel_writes_for_the_next() -> None:
    fused, alone = AddNorm(8192, 4096), parse_problem("rows:8192,4096")
    assert fused.streamed_bytes == 2 * alone.streamed_bytes == 4 * fused.output.bytes
    assert forecast(N01, fused, "h200").bound == "bandwidth"


@dataclass(frozen=True)
class Accumulate(Problem):
    """``c += a`` in fp32 in place; the largest place of each row, and how many are positive."""

    operation: ClassVar[str] = "accumulate"
    shape_fields = ("rows", "columns")
    may_be_zero = ("rows",)
    letters = "R,C"
    options: ClassVar[dict[str, Any]] = {}
    example = "accumulate:4,64"
    axes = ("row", "column")

    rows: int
    columns: int
    dtype: str = "float32"
    distribution: str = "normal"
    seed: int = 0
    cache_state: str = "cold"

    @property
    def output(self) -> Buffer:
        return Buffer((self.rows, self.columns), "float32")

    @property
    def inputs(self) -> dict[str, Buffer]:
        return {"a": self.output, "c": self.output}

    @property
    def outputs(self) -> dict[str, Buffer]:
        place, count = Buffer((self.rows,), "int32"), Buffer((1,), "int32")
        return {"c": self.output, "place": place, "count": count}

    @property
    def streamed_bytes(self) -> int:
        return 3 * self.output.bytes

    @property
    def minimal_bytes(self) -> int:
        return self.streamed_bytes + 4 * self.rows

    @property
    def flops(self) -> int:
        return self.rows * self.columns


@dataclass(frozen=True)
class AccumulateInputs:
    a: np.ndarray
    c: np.ndarray
    problem: Accumulate

    def buffers(self) -> dict[str, np.ndarray]:
        return {"a": self.a, "c": self.c}


class Accumulates(Operation[Accumulate, AccumulateInputs]):
    problem = Accumulate
    headline = Accumulate(1024, 1024)
    small = watched = Accumulate(6, 70)
    bytes_name = "a and c twice"
    minimal_name = "a, c twice and the places"

    def draw(self, problem: Accumulate) -> AccumulateInputs:
        rng = np.random.default_rng(problem.seed)
        a, c = rng.standard_normal((2, *problem.output.shape), dtype=np.float32)
        return AccumulateInputs(a, c, problem)

    def oracle(self, inputs: AccumulateInputs, parts: Any = None) -> dict[str, np.ndarray]:
        shapes = {name: one.shape for name, one in inputs.problem.outputs.items()}
        answer = {name: np.full(shape, np.nan) for name, shape in shapes.items()}
        total = inputs.a.astype(np.float64) + inputs.c
        for row in range(len(total)) if parts is None else [part[0] for part in parts]:
            answer["c"][row], answer["place"][row] = total[row], np.argmax(total[row])
        if parts is None:
            answer["count"][0] = (total > 0).sum()
        return answer

    def battery(self, problem: Accumulate, supports: Any = None) -> list[Accumulate]:
        return [problem, Accumulate(3, 33)]

    def draw_problems(self, count: int, seed: int, supports: Any = None) -> list[Accumulate]:
        return [Accumulate(2 + i, 40 + i, seed=seed + i) for i in range(count)]

    def read_part(self, problem: Accumulate, part: Any, fetch: Any) -> AccumulateInputs:
        alone = problem.replace(rows=1)
        return AccumulateInputs(fetch("a", part)[None], fetch("c", part)[None], alone)

    def alter_part(self, problem: Any, part: Any, fetch: Any, store: Any, rng: Any) -> None:
        store("a", (*part, slice(0, 1)), np.array([90.0], np.float32))


KERNEL = """
extern "C" __global__ void accumulate(const float* a, float* c, int* place, int* count, int rows,
                                      int columns) {
  int positive = 0;
  for (int r = 0; r < rows; ++r) {
    int best = 0;
    for (int i = 0; i < columns; ++i) {
      c[r * columns + i] += a[r * columns + i];
      positive += c[r * columns + i] > 0;
      if (c[r * columns + i] > c[r * columns + best]) best = i;
    }
    place[r] = best;
  }
  *count = positive;
}
"""


@pytest.fixture
def accumulate(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Rung]:
    """A function of edits to a rung of the operation, which is registered for one test."""
    monkeypatch.setattr(problem, "_OPERATIONS", operations())
    register_operation(Accumulates())
    source = tmp_path / "accumulate.cu"
    source.write_text(KERNEL)

    def launch(one: Accumulate, limits: Any, knobs: Any) -> list[Launch]:
        sizes = np.int32(one.rows), np.int32(one.columns)
        return [Launch("accumulate", (1,), (1,), args=("a", "c", "place", "count", *sizes))]

    said = ("accumulate", "accumulate", source, "", "", "")
    rung = Rung(*said, launch, supports=lambda one: None, operation="accumulate")
    return lambda old="", new="": rung.with_source(KERNEL.replace(old, new) if old else KERNEL)


def test_outputs_may_differ_in_type_and_shape(accumulate: Callable[..., Rung]) -> None:
    report = check_rung(accumulate(), Accumulate(6, 70))
    assert report.ok, report.summary
    assert forecast(accumulate(), Accumulate(6, 70), "h200").time_us > 0


@pytest.mark.parametrize(
    ("old", "new", "output"),
    [
        ("place[r] = best;", "place[r] = best + (r == 1);", "place"),
        ("place[r] = best;", "if (r) place[r] = best;", "place"),
        ("*count = positive;", "*count = positive - 1;", "count"),
        ("*count = positive;", "", "count"),
        ("+= a[", "= a[", "c"),
    ],
)
def test_each_output_is_compared(
    accumulate: Callable[..., Rung], old: str, new: str, output: str
) -> None:
    run = run_on_cpu(accumulate(old, new), Accumulate(6, 70), orders=(0,))
    assert not run.ok
    assert run.comparison is not None
    assert f"{output}: " in " ".join(run.comparison.problems)


def test_whole_numbers_are_exact_and_floats_are_not(accumulate: Callable[..., Rung]) -> None:
    operation, one = Accumulates(), Accumulate(6, 70)
    expected = operation.expect(operation.draw(one))
    assert one.compare({n: a.astype(np.float32) for n, a in expected.items()}, expected).ok
    near = {**expected, "place": expected["place"] + [0, 0, 1e-3, 0, 0, 0]}
    assert not one.compare(near, expected).ok


def test_an_operation_of_ones_own_is_forecast_and_stands_in_a_record(
    accumulate: Callable[..., Rung],
) -> None:
    one = Accumulate(1000, 96)
    said = forecast(accumulate(), one, "h200")
    assert said.floor.bytes == one.minimal_bytes
    assert said.floor.time_us < said.time_us
    record = make_record(workload=one, candidate="accumulate")
    read = type(record).model_validate_json(record.model_dump_json())
    assert read.problem == one and read.read_bytes == one.streamed_bytes
    with pytest.raises(LabError, match="computes accumulate and not decode"):
        accumulate().launches(HEADLINE, load_gpu("h200").limits)
    with pytest.raises(LabError, match="no operation 'triples'"):
        problem_from_dict({**one.to_dict(), "operation": "triples"})


def test_a_problem_may_have_nothing_to_do(accumulate: Callable[..., Rung]) -> None:
    run = run_on_cpu(accumulate(), Accumulate(0, 70), orders=(0,))
    assert run.ok, str(run)
    with pytest.raises(LabError, match="columns is 0"):
        Accumulate(4, 0)


def test_a_buffer_is_one_thing_before_and_after(accumulate: Callable[..., Rung]) -> None:
    class Changes(Accumulate):
        @property
        def outputs(self) -> dict[str, Buffer]:
            return {"c": Buffer((self.rows, self.columns), "float16")}

    with pytest.raises(LabError, match="the buffer c"):
        Changes(2, 3)


def test_kernels_of_16_bits_refuse_fp32() -> None:
    for rung, text in (("g00", "gemm:16,16,16/fp32"), ("r03", "2,8,2,64,128/fp32")):
        assert "float32" in (load_rung(rung).supports(parse_problem(text)) or "")


def test_a_sequence_without_keys_has_an_output_of_zeros() -> None:
    one = Workload(3, 8, 2, 64, 128, seq_lens=(0, 64, 0))
    operation = operation_of(one)
    for layout in ({}, {"layout": "paged", "page_size": 16}):
        inputs = operation.draw(one.replace(**layout, distribution="one_hot"))
        out = operation.expect(inputs)["out"]
        assert not out[[0, 2]].any() and out[1].any(axis=-1).all()
        arrays = inputs.buffers()
        read = lambda name, index, arrays=arrays: arrays[name][index]  # noqa: E731
        assert not operation.expect_parts(inputs.problem, [(2, 5)], read)["out"][2, 5].any()
    assert "no keys" in (load_rung("r03").supports(one) or "")
    assert kernel_supports(empty=True)(one) is None
