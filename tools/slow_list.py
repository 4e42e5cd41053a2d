"""Which tests ``make check`` leaves out, and of which ``make test`` takes one in ten.

They stand in ``tests/slow.txt``, which is measured and not kept by hand. A line names a test
function whose cases together take longer than a second, and the case that is still run where one
is quick. ``pytest tests/cpu --write-slow`` measures anew; with ``--fast`` it adds what is slow
without the others.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping

EVERY_CASE = os.environ.get("LABTOOLS_EVERY_CASE") == "1"
"""Whether nothing is drawn, as ``make audit`` asks."""
SLOW_TEST_S = 1.0
"""A function whose cases together take longer is left out."""
QUICK_S = 0.4
"""A case of it that takes no longer is kept."""
_KEEPS = " keeps "


def split_id(test: str) -> tuple[str, str]:
    """The function and the case in a test's id; no case is ""."""
    function, _, case = test.partition("[")
    return function, case.removesuffix("]")


def read_list(text: str) -> dict[str, str]:
    """The functions left out, each with the case that is kept, or ""."""
    lines = (line.partition(_KEEPS) for line in text.splitlines() if line.strip())
    return {function: case for function, _, case in lines}


def write_list(slow: Mapping[str, str]) -> str:
    """The list as text."""
    lines = (f"{name}{_KEEPS}{slow[name]}" if slow[name] else name for name in sorted(slow))
    return "".join(f"{line}\n" for line in lines)


def is_left_out(test: str, slow: Mapping[str, str]) -> bool:
    """Whether ``make check`` leaves a test out."""
    function, case = split_id(test)
    return function in slow and (not case or case != slow[function])


def is_drawn(test: str, code: str) -> bool:
    """Whether ``make test`` takes a slow test: one in ten, drawn anew when the code changes."""
    return hashlib.sha256(f"{code} {test}".encode()).digest()[0] % 10 == 0


def measure_list(taken_s: Mapping[str, float]) -> dict[str, str]:
    """The list that follows from the seconds that each test took, by its id."""
    cases: dict[str, dict[str, float]] = {}
    for test, seconds in taken_s.items():
        function, case = split_id(test)
        cases.setdefault(function, {})[case] = seconds
    return {
        function: _longest_quick(took)
        for function, took in cases.items()
        if sum(took.values()) > SLOW_TEST_S
    }


def _longest_quick(took: Mapping[str, float]) -> str:
    """The case that does most while it is still quick; "" where there is none."""
    quick = [case for case, seconds in took.items() if case and seconds <= QUICK_S]
    return max(quick, key=lambda case: (took[case], case), default="")
