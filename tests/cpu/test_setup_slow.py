"""What ``make check`` leaves out, and what of it it keeps."""

from __future__ import annotations

from pathlib import Path

from tools.slow_list import is_drawn, is_left_out, measure_list, read_list, write_list

ROOT = Path(__file__).resolve().parents[2]
TAKEN_S = {
    "tests/a.py::test_quick": 0.9,
    "tests/a.py::test_slow": 1.1,
    "tests/a.py::test_cases[long one]": 3.0,
    "tests/a.py::test_cases[middle]": 0.3,
    "tests/a.py::test_cases[short]": 0.1,
    "tests/a.py::test_all_long[x-1]": 0.6,
    "tests/a.py::test_all_long[x-2]": 0.6,
}
SLOW = {
    "tests/a.py::test_slow": "",
    "tests/a.py::test_cases": "middle",
    "tests/a.py::test_all_long": "",
}


def test_the_longest_quick_case_is_kept() -> None:
    slow = measure_list(TAKEN_S)
    assert slow == SLOW
    assert {test for test in TAKEN_S if not is_left_out(test, slow)} == {
        "tests/a.py::test_quick",
        "tests/a.py::test_cases[middle]",
    }


def test_others_are_drawn_for_another_code() -> None:
    tests = [f"tests/a.py::test_{number}" for number in range(400)]
    first, again, other = ({test for test in tests if is_drawn(test, code)} for code in "aab")
    assert first == again
    assert all(25 < len(some) < 80 for some in (first, other))
    assert 50 < len(first ^ other) < 130


def test_the_list_reads_as_it_was_written() -> None:
    slow = {**SLOW, "tests/a.py::test_cases": "two words"}
    assert read_list(write_list(slow)) == slow


def test_the_list_names_tests_that_are_there() -> None:
    for line in (ROOT / "tests" / "slow.txt").read_text().splitlines():
        file, _, rest = line.partition("::")
        function = rest.partition(" keeps ")[0].rpartition("::")[2]
        assert f"def {function}(" in (ROOT / file).read_text(), line
