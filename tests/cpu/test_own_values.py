"""An operation of a reader's own is checked with more than its author drew."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from labtools.measure import check_rung
from labtools.problem import load_rung, parse_problem
from labtools.problem.isolated import OTHER_VALUES, _with_repeats

STENCIL = Path(__file__).parents[1] / "families" / "row_stencil.py"
FAULTS = {
    "rows past 16,000": ("if (c >= columns) return;", "if (c >= min(columns, 16000)) return;"),
    "rows of all sizes": (
        "= middle * held(c) + sides;",
        "= fminf(middle * held(c) + sides, 20.f);",
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
    if fault == "rows of all sizes":
        assert any(fault in str(case.comparison) for case in wrong)
    elif fault:
        assert [case.workload.columns for case in wrong] == [66_307]


def test_other_values_are_of_the_kind_they_are_called() -> None:
    rng = np.random.default_rng(1)
    drawn = rng.standard_normal((50, 60))
    made = {kind: change(drawn, rng) for kind, change in OTHER_VALUES.items()}
    assert (made["values below zero"] <= 0).all()
    assert all(len(np.unique(row)) < 20 for row in made["values that are often equal"])
    assert made["values far from zero"].mean() > 100 * made["values far from zero"].std()
    largest = np.abs(made["rows of all sizes"]).max(axis=1)
    assert largest.max() > 50 and largest.min() < 1


def test_integers_that_an_author_never_drew_are_said_and_do_not_count(tmp_path: Path) -> None:
    rung, sums = load_rung(str(STENCIL)), parse_problem("stencil:3,70")
    assert "which its author does not draw" not in check_rung(rung, sums, on="cpu", seed=1).summary
    rng = np.random.default_rng(1)
    ends = np.sort(rng.permutation(40).reshape(2, 20), axis=1)
    made = _with_repeats(ends, rng)
    assert (made[:, [0, -1]] == ends[:, [0, -1]]).all() and (np.diff(made, axis=1) >= 0).all()
    assert all(
        len(set(row)) < 20 and set(row) <= set(old) for row, old in zip(made, ends, strict=True)
    )
    assert {*_with_repeats(ends[:, ::-1], rng)[0]} < {*ends[0]}
