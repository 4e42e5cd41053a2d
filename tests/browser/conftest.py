"""Fixtures of the browser tests: a JupyterLab on fresh copies of the pages, and a browser page."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from driver import Server, StaticServer, open_page, shoot, start_server

from labtools.notebook.pages import list_pages
from tools.chromium import start_browser

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def lab_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A JupyterLab with token on a temporary work folder that holds every page."""
    work = tmp_path_factory.mktemp("work")
    for page in list_pages(ROOT):
        copy = work / page
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / page, copy)
    journal = f"sqlite:///{work / 'journal.sqlite'}"
    with start_server(work, {"LABTOOLS_JOURNAL_URL": journal}) as server:
        yield server


@pytest.fixture
def static_server(built_site: Path) -> Iterator[StaticServer]:
    """A server of the site."""
    with StaticServer(built_site) as server:
        yield server
        server.shutdown()


@pytest.fixture
def site(static_server: StaticServer) -> str:
    """The address of the site."""
    return f"http://127.0.0.1:{static_server.server_port}"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One Chromium for all tests of a file; it ends with them, for its loop must not stay."""
    with start_browser() as started:
        yield started


@pytest.fixture
def page(request: pytest.FixtureRequest, browser: Any) -> Iterator[Any]:
    """A fresh browser page. When the test fails, what it showed last is kept as a picture."""
    with open_page(browser) as opened:
        yield opened
        report = getattr(request.node, "report_call", None)
        if report is not None and report.failed:
            shoot(opened, f"failed-{request.node.name}", keep=True)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    outcome: Any = yield
    report = outcome.get_result()
    if report.when == "call":
        item.report_call = report  # type: ignore[attr-defined]
