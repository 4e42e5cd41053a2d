"""What every test shares: which tests can run here, and what they run on."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# Children of tests find the project, and what the tests themselves were given, wherever they run.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))

try:
    from tools.nbpoll import poll_in_slices
except ImportError:  # a GPU machine may have no Jupyter; its tests need none
    pass
else:
    poll_in_slices()

try:
    from hypothesis import settings
except ImportError:
    pass
else:
    settings.register_profile("whole", deadline=None)
    settings.register_profile("fast", deadline=None, max_examples=10)


# Test functions that took longer than this are left out by make check. The list is measured, not
# kept by hand: pytest tests/cpu --write-slow
SLOW_LIST = ROOT / "tests" / "slow.txt"
SLOW_S = 1.0
BUILD_LIMIT_S = 2400
"""The whole book, every page executed, on two cores that do other work as well."""
_taken_s: dict[str, float] = {}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fast", action="store_true", help="leave out slow, gpu and browser tests")
    parser.addoption("--write-slow", action="store_true", help="measure tests/slow.txt anew")


def slow_functions() -> set[str]:
    return set(SLOW_LIST.read_text().split()) if SLOW_LIST.is_file() else set()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    function = report.nodeid.split("[")[0]
    _taken_s[function] = _taken_s.get(function, 0.0) + report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.config.getoption("--write-slow"):
        kept = {name for name in slow_functions() if (ROOT / name.split("::")[0]).exists()}
        kept -= set(_taken_s)
        kept |= {name for name, seconds in _taken_s.items() if seconds > SLOW_S}
        SLOW_LIST.write_text("".join(f"{name}\n" for name in sorted(kept)))


def pytest_configure(config: pytest.Config) -> None:
    # Nobody is there to predict anything, whatever the terminal's environment says.
    os.environ["LABTOOLS_READER"] = "0"
    os.environ["JUPYTER_PREFER_ENV_PATH"] = "1"
    if "hypothesis" in sys.modules:
        settings.load_profile("fast" if config.getoption("--fast") else "whole")
    if os.environ.get("LABTOOLS_REQUIRE_TORCH") == "1" and not has_module("torch"):
        raise pytest.UsageError(
            "torch is not here, and LABTOOLS_REQUIRE_TORCH=1 asks for it: the tests that use it "
            "would be skipped. Install it with: make test TORCH=cpu"
        )


def has_module(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def has_device() -> bool:
    """Ask in another process: the driver, once started in this one, would not survive a fork."""
    code = "from tools.choose import find_driver; raise SystemExit(find_driver() is None)"
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def why_no_browser() -> str | None:
    """Why the browser tests cannot run here, or ``None``."""
    from tools.chromium import find_chromium

    if os.environ.get("SKIP_BROWSER") == "1":
        return "SKIP_BROWSER=1"
    if not has_module("playwright"):
        return "playwright is not installed"
    return None if find_chromium() else "Chromium is not installed; make test installs it"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    fast = config.getoption("--fast")
    listed = slow_functions()
    for item in items:
        if "built_site" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(BUILD_LIMIT_S))
        if item.nodeid.split("[")[0] in listed:
            item.add_marker(pytest.mark.slow)
        folder = item.path.parent.name
        if folder in ("gpu", "browser"):
            item.add_marker(getattr(pytest.mark, folder))
    asked = {mark for item in items for mark in ("gpu", "browser") if item.get_closest_marker(mark)}
    device = "gpu" in asked and has_device()
    browser = why_no_browser() if "browser" in asked else None
    left_out = []
    for item in items:
        marked = [mark for mark in ("slow", "gpu", "browser") if item.get_closest_marker(mark)]
        if fast and marked:
            left_out.append(item)
        elif "gpu" in marked and not device:
            item.add_marker(pytest.mark.skip(reason="no CUDA device here"))
        elif "browser" in marked and browser:
            item.add_marker(pytest.mark.skip(reason=browser))
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture(scope="session")
def repository() -> Path:
    """The repository's root."""
    return ROOT


@pytest.fixture(scope="session")
def built_site() -> Path:
    """The real book, built once for all tests that look at it, whichever process they run in.

    Executed pages are cached by content, so a second run of the tests is quick and a stale page is
    not possible.
    """
    pytest.importorskip("jupyter_book", reason="the book's tools are not installed here")
    from filelock import FileLock

    from tools.book import build

    folder = ROOT / "_build"
    folder.mkdir(exist_ok=True)
    this_run = os.environ.get("PYTEST_XDIST_TESTRUNUID", f"process {os.getpid()}")
    built_by = folder / "tested.by"
    with FileLock(folder / "tested.lock"):
        if built_by.is_file():
            made_in, _, site = built_by.read_text().partition("\n")
            if made_in == this_run and Path(site).is_dir():
                return Path(site)
        site_path = build(ROOT, output=folder / "tested")
        built_by.write_text(f"{this_run}\n{site_path}")
        return site_path
