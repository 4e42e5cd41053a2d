"""An operation of a reader's own is checked with more than its author drew."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from labtools.measure import check_rung
from labtools.measure.check import _check_far_apart
from labtools.problem import load_rung, operation_of, parse_problem
from labtools.problem.isolated import OTHER_VALUES, SMALL_SIZES, VALUES_UP_TO, _with_repeats
from labtools.problem.paths import kernels_dir

STENCIL = Path(__file__).parents[1] / "families" / "row_stencil.py"
FAULTS = {
    "rows past 16,000": ("if (c >= columns) return;", "if (c >= min(columns, 16000)) return;"),
    "values below minus a million": (
        "= middle * held(c) + sides;",
        "= fmaxf(middle * held(c) + sides, -1e5f);",
    ),
}


@pytest.mark.parametrize("fault", ["", *FAULTS])
def test_an_own_operation_meets_what_its_author_did_not_draw(fault: str) -> None:
    rung = load_rung(str(STENCIL))
    if fault:
        assert rung.source_text.count(FAULTS[fault][0]) == 1
        rung = rung.with_source(rung.source_text.replace(*FAULTS[fault]))
    report = check_rung(rung, parse_problem("stencil:3,70"), on="cpu", seed=1)
    assert report.ok is not bool(fault), report.summary
    wrong = [case for case in report.cases if not case.ok]
    if fault == "values below minus a million":
        assert any(fault in str(case.comparison) for case in wrong)
    elif fault:
        assert [case.workload.columns for case in wrong] == [66_307]


def test_other_values_are_of_the_kind_they_are_called() -> None:
    rng = np.random.default_rng(1)
    drawn = rng.standard_normal((50, 60))
    made = {kind: change(drawn, rng) for kind, change in OTHER_VALUES.items()}
    assert (made["values below zero"] <= 0).all()
    assert all(len(np.unique(row)) < 20 for row in made["values that are often equal"])
    assert made["values far below zero"].max() < 0
    assert made["values below minus a million"].max() <= -1e6
    assert made["values far from zero"].mean() > 100 * made["values far from zero"].std()
    largest = np.abs(made["rows of all sizes"]).max(axis=1)
    assert largest.max() > 50 and largest.min() < 1


def test_values_that_an_author_never_drew_are_said_and_do_not_count(tmp_path: Path) -> None:
    rung, sums = load_rung(str(STENCIL)), parse_problem("stencil:3,70")
    assert "which its author does not draw" not in check_rung(rung, sums, on="cpu", seed=1).summary
    lowest = FAULTS["values below minus a million"]
    capped = rung.source_text.replace(lowest[0], "= fminf(middle * held(c) + sides, 20.f);")
    for most, kinds in (("1e9f", 2), ("1e30f", 1)):
        report = check_rung(rung.with_source(capped.replace("20.f", most)), sums, on="cpu", seed=1)
        said = [one for one in report.remarks if "and where it is wrong" in one]
        assert (
            report.ok
            and [any(kind in one for one in said) for kind in VALUES_UP_TO].count(True) == kinds
        )
    rng = np.random.default_rng(1)
    ends = np.sort(rng.permutation(40).reshape(2, 20), axis=1)
    made = _with_repeats(ends, rng)
    assert (made[:, [0, -1]] == ends[:, [0, -1]]).all() and (np.diff(made, axis=1) >= 0).all()
    assert all(
        len(set(row)) < 20 and set(row) <= set(old) for row, old in zip(made, ends, strict=True)
    )
    assert {*_with_repeats(ends[:, ::-1], rng)[0]} < {*ends[0]}


def test_an_own_operation_meets_small_sizes_where_its_reference_says_an_answer() -> None:
    rung, stencil = load_rung(str(STENCIL)), parse_problem("stencil:3,70")
    cases = operation_of(stencil).battery(stencil, rung.supports)
    sizes = {(one.rows, one.columns) for one in cases}
    assert sizes >= {(3, size) for size in SMALL_SIZES} | {(size, 70) for size in SMALL_SIZES}


@pytest.mark.parametrize("row", ["row * columns", "(size_t)row * columns"])
def test_the_last_of_millions_of_rows_is_reached(tmp_path: Path, row: str) -> None:
    for kind, edits in (
        ("py", (("row_sum", "row_total"), ("2**31 else", "2**40 else"))),
        ("cu", (("row_sum", "row_total"), ("row * columns", row))),
    ):
        text = (kernels_dir() / "first" / f"row_sum.{kind}").read_text()
        for old, new in edits:
            assert old in text
            text = text.replace(old, new)
        (tmp_path / f"row_total.{kind}").write_text(text)
    rung = load_rung(str(tmp_path / "row_total.py"))
    far = _check_far_apart(rung, parse_problem("row_totals:5,300"), None)
    assert far is not None and far.ok is (row != "row * columns")


ARGMAX = """
extern "C" __global__ void row_argmax(const float* x, int* out, int columns) {
  const float* row = x + (size_t)blockIdx.y * columns;
  int best = 0;
  for (int c = 1; c < columns; ++c)
    if (row[c] > row[best]) best = c;
  if (threadIdx.x == 0) out[blockIdx.y] = best;
}
"""
LAST_OF_EQUAL = ("row[c] > row[best]", "row[c] > row[best] || (row[c] == row[best] && best)")


@pytest.mark.parametrize("is_wrong", [False, True])
def test_ties_and_rows_that_no_launch_has_are_remarks(tmp_path: Path, is_wrong: bool) -> None:
    """The place of the largest element of a row, of equal ones the first."""
    text = (kernels_dir() / "first" / "row_sum.py").read_text()
    for old, new in (
        ("(self.rows, 1), self.dtype", '(self.rows, 1), "int32"'),
        ("x[row].sum(dtype=np.float64)", "x[row].argmax()"),
        ("grid=(problem.rows,)", "grid=(1, problem.rows)"),
        ("row_sum", "row_argmax"),
    ):
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "row_argmax.py").write_text(text)
    (tmp_path / "row_argmax.cu").write_text(ARGMAX.replace(*LAST_OF_EQUAL) if is_wrong else ARGMAX)
    rung = load_rung(str(tmp_path / "row_argmax.py"))
    report = check_rung(rung, parse_problem("row_argmaxs:3,200"), on="cpu", seed=1)
    assert report.ok, report.summary
    grid, *ties = report.remarks
    assert "65535" in grid and f"remark: {grid}" in report.summary
    assert ["often equal" in one for one in ties] == [True] * is_wrong
