"""Which goldens a run asks for: a few that are drawn, unless ``tools.goldens`` says otherwise."""

from __future__ import annotations

import fnmatch
import os
import random
from pathlib import Path

import pytest

from tools.goldens import kept
from tools.goldens.cases import draw, every_case

DRAWN = 40
THIS_RUN = os.environ.get("PYTEST_XDIST_TESTRUNUID", f"{os.getpid()} {random.random()}")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--goldens", help="kinds, with commas between; all without it")
    parser.addoption("--match", default="", help="goldens whose key contains this")
    parser.addoption("--draw", type=int, help=f"how many, 0 for all; {DRAWN} without it")
    parser.addoption("--seed", type=int, help="of what is drawn")
    parser.addoption("--goldens-folder", type=Path, help="other goldens than those of the project")


def fits(key: str, config: pytest.Config) -> bool:
    """Whether a golden is asked for, by its key."""
    return fnmatch.fnmatchcase(key, f"*{config.getoption('--match', '')}*")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the screens that do not fit.

    Last: of a test that the snapshot library knows of and that is left out it keeps the snapshot.
    """
    screens = [item for item in items if item.path.name == "test_screens.py"]
    if left_out := {item for item in screens if not fits(item.name, config)}:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "golden" not in metafunc.fixturenames:
        return
    asked = metafunc.config.getoption
    kinds = (asked("--goldens", None) or ",".join(kept.GOLDEN_KINDS)).split(",")
    cases = [
        case
        for (kind, key), case in every_case().items()
        if kind in kinds and fits(key, metafunc.config)
    ]
    count = asked("--draw", None)
    seed = asked("--seed", None)
    if count != 0:
        # All processes of a run draw the same.
        seed = random.Random(THIS_RUN).randrange(2**31) if seed is None else seed
        cases = draw(cases, DRAWN if count is None else count, seed)
    metafunc.parametrize("golden", cases, ids=[f"{case.kind} {case.key}" for case in cases])
