"""What every test shares: which tests can run here, and what they run on."""

from __future__ import annotations

import gc
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent

# Children of tests find the project, and what the tests themselves were given, wherever they run.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))

# Tests make many objects that stay until their end, so garbage is looked for less often.
gc.set_threshold(50_000, 20, 20)

# Processes that run beside each other fill the cores; threads of their libraries would only wait.
# And a product that several threads of OpenBLAS share hangs where the process is copied meanwhile.
for _library in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(_library, "1")

import tools.light_jsonschema  # noqa: E402, F401  (before nbformat)
from labtools.toolchain.cache import code_digest  # noqa: E402
from tools.slow_list import (  # noqa: E402
    EVERY_CASE,
    is_drawn,
    is_left_out,
    measure_list,
    read_list,
    split_id,
    write_list,
)

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


SLOW_LIST = ROOT / "tests" / "slow.txt"
SLOW_FIXTURES = {"measured_campaign"}
"""Whatever test asks first makes them, for longer than ``make check`` may take for a test."""
PAGE_FIXTURES = {"page_run", "built_site"}
"""The site is made of all pages, so that what asks for one is never left to a draw, unless it also
drives a browser."""
BUILD_LIMIT_S = 2400
"""The whole book, every page executed, on two cores that do other work as well."""
THIS_RUN = os.environ.get("PYTEST_XDIST_TESTRUNUID", f"process {os.getpid()}")
"""One name for all processes of this run of the tests."""
_taken_s: dict[str, float] = {}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fast", action="store_true", help="leave out slow, gpu and browser tests")
    parser.addoption(
        "--drawn", action="store_true", help="take one in ten of the slow tests, as drawn"
    )
    parser.addoption("--write-slow", action="store_true", help="measure tests/slow.txt anew")


def slow_list() -> dict[str, str]:
    """The functions that ``make check`` leaves out, each with the case that it keeps."""
    return read_list(SLOW_LIST.read_text()) if SLOW_LIST.is_file() else {}


def is_there(function: str) -> bool:
    """Whether a test function still stands in its file."""
    file, *_, name = function.split("::")
    return (ROOT / file).is_file() and f"def {name}(" in (ROOT / file).read_text()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _taken_s[report.nodeid] = _taken_s.get(report.nodeid, 0.0) + report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    in_a_worker = hasattr(session.config, "workerinput")
    if session.config.getoption("--write-slow") and not in_a_worker:
        slow = {name: case for name, case in slow_list().items() if is_there(name)}
        if not session.config.getoption("--fast"):
            for test in _taken_s:
                slow.pop(split_id(test)[0], None)
        SLOW_LIST.write_text(write_list({**slow, **measure_list(_taken_s)}))
    # pytest will search for garbage five times; what is still alive now is none.
    gc.collect()
    gc.freeze()


def pytest_configure(config: pytest.Config) -> None:
    # Nobody is there to predict anything, whatever the terminal's environment says.
    os.environ["LABTOOLS_READER"] = "0"
    os.environ["JUPYTER_PREFER_ENV_PATH"] = "1"
    if config.getoption("--drawn") and not EVERY_CASE:
        # Goldens of the tests that are left out are unused.
        config.option.warn_unused_snapshots = True
    if "hypothesis" in sys.modules:
        settings.load_profile("fast" if config.getoption("--fast") else "whole")
    if os.environ.get("LABTOOLS_REQUIRE_TORCH") == "1" and not has_module("torch"):
        raise pytest.UsageError(
            "torch is not here, and LABTOOLS_REQUIRE_TORCH=1 asks for it: the tests that use it "
            "would be skipped. Install it with: make test TORCH=cpu"
        )
    if os.environ.get("LABTOOLS_REQUIRE_COMPILERS") == "1" and not all(COMPILERS):
        raise pytest.UsageError(
            "nvcc or Triton is not here, and LABTOOLS_REQUIRE_COMPILERS=1 asks for both: the tests "
            "that use them would be skipped. Install them with: make nvcc triton"
        )


def has_module(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def has_package(name: str) -> bool:
    try:
        return bool(metadata.version(name))
    except metadata.PackageNotFoundError:
        return False


COMPILERS = [has_package("nvidia-cuda-nvcc"), has_package("triton")]
"""The extras whose tests are skipped where they are not installed."""


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


def order_of(fixtures: Sequence[str]) -> int:
    """Where in a run a test that uses ``fixtures`` stands: pages with their solutions, pages, their
    site, all others.

    While one process builds the site the others have tests of their own.
    """
    asked = ("solved_page", "page_run", "built_site")
    return next((place for place, name in enumerate(asked) if name in fixtures), len(asked))


def deal_out(items: Sequence[pytest.Item], processes: int) -> list[pytest.Item]:
    """The items in an order in which each process begins with its share of the long ones.

    Each process is given one block of the order, of equal length; what it has not begun, others
    that are done may take. A long one that is left for the end would be waited for by all.
    """
    long = [item for item in items if item.get_closest_marker("long")]
    others = [item for item in items if not item.get_closest_marker("long")]
    share = -(-len(items) // processes)
    dealt: list[pytest.Item] = []
    for process in range(processes):
        mine = long[process::processes]
        rest = max(0, share - len(mine))
        dealt += mine + others[:rest]
        del others[:rest]
    return dealt + others


def pytest_collection_finish() -> None:
    # Tests and modules stay to the end, so the search for garbage may pass them over.
    gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    fast = config.getoption("--fast")
    drawn_for = code_digest("") if config.getoption("--drawn") and not EVERY_CASE else ""
    listed = slow_list()
    items.sort(key=lambda item: order_of(getattr(item, "fixturenames", ())))
    for item in items:
        if "built_site" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(BUILD_LIMIT_S))
        asks_much = not SLOW_FIXTURES.isdisjoint(getattr(item, "fixturenames", ()))
        if asks_much or is_left_out(item.nodeid, listed):
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
        page = not PAGE_FIXTURES.isdisjoint(getattr(item, "fixturenames", ()))
        page &= "browser" not in marked
        drawn = not drawn_for or page or "slow" not in marked or is_drawn(item.nodeid, drawn_for)
        if (fast and marked) or not drawn:
            left_out.append(item)
        elif "gpu" in marked and not device:
            item.add_marker(pytest.mark.skip(reason="no CUDA device here"))
        elif "browser" in marked and browser:
            item.add_marker(pytest.mark.skip(reason=browser))
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]
    items[:] = deal_out(items, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))


@pytest.fixture(scope="session")
def repository() -> Path:
    """The repository's root."""
    return ROOT


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a command in this process: its status, and what it wrote to each stream."""
    from labtools.cli import main

    def call(*arguments: str) -> tuple[int, str, str]:
        status = main(arguments)
        return int(status), *capsys.readouterr()

    return call


@pytest.fixture(scope="session")
def folder_of_this_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all processes of this run of the tests share."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session")
def executed_pages() -> Any:
    """The executed pages that all processes of this run share, and that ``make book`` takes too."""
    pytest.importorskip("nbclient", reason="the notebooks' tools are not installed here")
    from tools.book import kept_pages

    return kept_pages(ROOT, ROOT / "_build" / ".executed")


@pytest.fixture(scope="session")
def page_run(executed_pages: Any) -> Callable[[str], Any]:
    """Execute a page of the book, once in this run, whichever process asks.

    Called with a page as in ``_toc.yml``; returns what ``tools.execute`` noted of the run.
    """
    return lambda page: executed_pages.run_once(page, by=THIS_RUN)


@pytest.fixture(scope="session")
def solved_page(executed_pages: Any) -> Callable[[str], Any]:
    """`page_run` with the solutions of the page's exercises behind it."""
    return lambda page: executed_pages.run_once(page, by=THIS_RUN, solutions=True)


@pytest.fixture(scope="session")
def built_site(executed_pages: Any) -> Path:
    """The real book, built once for all tests that look at it, whichever process they run in.

    Its pages are those that this run of the tests has executed. What is missing is executed, unless
    an older run left it: pages are kept by content, so that a stale one is not possible. With a GPU
    only pages of this run are taken.
    """
    pytest.importorskip("jupyter_book", reason="the book's tools are not installed here")
    from filelock import FileLock

    from tools.book import build
    from tools.choose import find_driver
    from tools.execute import JOBS, execute_pages
    from tools.toc import executable_pages

    folder = ROOT / "_build"
    folder.mkdir(exist_ok=True)
    built_by = folder / "tested.by"
    with FileLock(folder / "tested.lock"):
        if built_by.is_file():
            made_in, _, site = built_by.read_text().partition("\n")
            if made_in == THIS_RUN and Path(site).is_dir():
                return Path(site)
        kept = executed_pages
        found = {page: kept.find(page) for page in executable_pages(ROOT)}
        taken = {THIS_RUN} if find_driver() else {one.by for one in found.values() if one}
        missing = [page for page, one in found.items() if one is None or one.by not in taken]
        # The other process of this run executes pages as well, from the first one on.
        jobs = 1 if "PYTEST_XDIST_TESTRUNUID" in os.environ else JOBS
        execute_pages(missing[::-1], kept, jobs, by=THIS_RUN)
        site_path = build(ROOT, output=folder / "tested", kept=kept)
        built_by.write_text(f"{THIS_RUN}\n{site_path}")
        return site_path
