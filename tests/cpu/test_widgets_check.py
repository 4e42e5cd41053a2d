"""What a page shows of a check: never right when it is not, and always where."""

from __future__ import annotations

from dataclasses import replace

import pytest

from labtools.notebook import show_check
from labtools.problem import Workload, compare_output

np = pytest.importorskip("numpy")
check = pytest.importorskip("labtools.measure.check")
faults = pytest.importorskip("labtools.measure.cpu.faults")

SMALL = Workload(1, 2, 1, 4, 64)


def report(ok: bool, *found: object) -> object:
    expected = np.ones((1, 2, 64))
    got = (expected if ok else 2 * expected).astype(np.float16)
    case = check.CheckCase(SMALL, ok and not found, compare_output(got, expected), list(found))
    return check.CheckReport("r03_one_warp", "cpu", case.ok, [case], 1)


def test_right_is_called_right() -> None:
    shown = show_check(report(True))
    assert "lt-check-right" in shown.html and "right in the one case" in shown.text
    assert SMALL.short() in shown.text


def test_where_it_ran_stands_behind_the_verdict_and_not_behind_what_was_not_checked() -> None:
    shown = show_check(replace(report(True), not_checked=("how fast it is",)))
    verdict, *more = shown.text.splitlines()
    assert "right in the one case" in verdict and verdict.endswith("[computed]")
    assert any(line == "not checked: how fast it is" for line in more)
    assert "how fast it is</div>" in shown.html.partition("<details>")[2]


def test_the_table_of_pairs_is_for_who_asks() -> None:
    found = report(True)
    assert "fewest cases of two" in found.in_full and found.to_dict()["cover"]
    assert "fewest" not in show_check(found).html + found.summary + str(found)


def test_wrong_numbers_are_called_wrong() -> None:
    shown = show_check(report(False))
    assert "lt-check-wrong" in shown.html and "lt-check-right" not in shown.html
    assert "wrong in 1 of 1 cases" in shown.text


def test_a_fault_names_its_line() -> None:
    fault = faults.CpuFault("race", "two warps <write> one word", "/a/b/kernel.cu", 31, (0, 1, 0))
    shown = show_check(report(True, fault))
    assert "lt-check-wrong" in shown.html
    assert "kernel.cu, line 31, block (0, 1, 0)" in shown.text
    assert "two warps &lt;write&gt; one word" in shown.html
