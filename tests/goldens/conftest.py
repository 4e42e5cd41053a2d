"""Which goldens a run asks for: a few that are drawn, unless ``tools.goldens`` says otherwise."""

from __future__ import annotations

import fnmatch
import os
import random
from pathlib import Path

import pytest

from tools.goldens import storage
from tools.goldens.cases import draw, every_case

DRAWN = 60
THIS_RUN = os.environ.get("PYTEST_XDIST_TESTRUNUID", f"{os.getpid()} {random.random()}")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--goldens", help="kinds, with commas between; all without it")
    parser.addoption("--match", help="goldens whose key contains this")
    parser.addoption("--draw", type=int, help=f"how many, 0 for all; {DRAWN} without it")
    parser.addoption("--seed", type=int, help="of what is drawn")
    parser.addoption("--goldens-folder", type=Path, help="other goldens than those of the project")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "golden" not in metafunc.fixturenames:
        return
    asked = metafunc.config.getoption
    kinds = (asked("--goldens", None) or ",".join(storage.GOLDEN_KINDS)).split(",")
    pattern = f"*{asked('--match', None) or ''}*"
    cases = [
        case
        for (kind, key), case in every_case().items()
        if kind in kinds and fnmatch.fnmatchcase(key, pattern)
    ]
    count = asked("--draw", None)
    seed = asked("--seed", None)
    if count != 0:
        # All processes of a run draw the same.
        seed = random.Random(THIS_RUN).randrange(2**31) if seed is None else seed
        cases = draw(cases, DRAWN if count is None else count, seed)
    metafunc.parametrize("golden", cases, ids=[f"{case.kind} {case.key}" for case in cases])
