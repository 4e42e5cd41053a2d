"""A page of ``make lab`` shows its outputs before it has run, and nothing of what its reader did is
lost to them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from driver import expect, open_notebook, open_page, prompts, shoot, start_server, wait_for
from test_labs import gates, shown_results, shown_share, slide

from tools.execute import KeptPages
from tools.filled import read_copy, write_copies

ROOT = Path(__file__).resolve().parents[2]
LAB01 = "labs/lab01_occupancy.md"
NO_WIDGET = "Error displaying widget"
SAVE = "window.jupyterapp.shell.currentWidget.context.save()"
FILLED = "**/fieldguide/filled*"


@pytest.fixture
def work(tmp_path: Path, page_run: Callable[[str], Any]) -> Path:
    """A work folder with lab 1, which is kept as it was executed."""
    page_run(LAB01.removesuffix(".md"))
    (tmp_path / LAB01).parent.mkdir()
    shutil.copyfile(ROOT / LAB01, tmp_path / LAB01)
    return tmp_path


@pytest.fixture
def filling(browser: Any) -> Iterator[Any]:
    with open_page(browser, fills=True) as page:
        yield page


def journal(work: Path) -> dict[str, str]:
    return {"LABTOOLS_JOURNAL_URL": f"sqlite:///{work / 'journal.sqlite'}"}


def has_outputs(notebook: Path) -> bool:
    """Whether a notebook is there and shows anything; JupyterLab may save it empty first."""
    try:
        cells = json.loads(notebook.read_text())["cells"]
    except (OSError, ValueError):
        return False
    return any(cell.get("outputs") for cell in cells)


def shows_the_bench(page: Any) -> None:
    expect(shown_share(page, "achieved")).to_have_text("4.2 %")
    slide(page, "most blocks / SM", "ArrowRight", 2)
    expect(shown_share(page, "theoretical")).to_have_text("33.3 %")
    expect(page.locator(".lt-still")).to_contain_text("to answer here")
    assert page.get_by_text(NO_WIDGET).count() == gates(page).count() == shown_results(page) == 0


def test_a_page_shows_its_outputs_before_it_has_run(
    work: Path, executed_pages: KeptPages, filling: Any
) -> None:
    assert write_copies(work, executed_pages, ()) == [LAB01.removesuffix(".md")]
    with start_server(work, journal(work)) as server:
        open_notebook(filling, server, LAB01)
        shows_the_bench(filling)
        assert set(prompts(filling)) == {"[ ]:"}
        shoot(filling, "lab01-filled")
        filling.evaluate(SAVE)
        open_notebook(filling, server, LAB01)
        shows_the_bench(filling)
        filling.get_by_role("button", name="Run this page").click()
        expect(gates(filling)).to_contain_text("run has stopped", timeout=120_000)
        filling.evaluate(SAVE)
        filling.goto("about:blank")
    # Its kernel is gone: the form has become a still, and the bench lives.
    with start_server(work, journal(work)) as server:
        open_notebook(filling, server, LAB01)
        shows_the_bench(filling)
        assert "[1]:" in prompts(filling), "what had run is there"


def test_a_page_without_outputs_is_filled(
    work: Path, executed_pages: KeptPages, filling: Any
) -> None:
    before = [cell.source for cell in read_copy(work / LAB01).cells]
    with start_server(work, journal(work)) as server:
        open_notebook(filling, server, LAB01)
        notebook = work / LAB01.replace(".md", ".ipynb")
        wait_for(lambda: has_outputs(notebook), 90, "the filled page to be saved")
        shows_the_bench(filling)
    assert [cell.source for cell in read_copy(work / LAB01).cells] == before
    assert write_copies(work, executed_pages, {"another"}), "it is not taken for the reader's"


def test_a_page_that_was_changed_is_not_filled(work: Path, filling: Any) -> None:
    asked: list[Any] = []
    filling.route(FILLED, lambda route: asked.append(route))
    with start_server(work, journal(work)) as server:
        open_notebook(filling, server, LAB01)
        wait_for(lambda: filling.wait_for_timeout(100) or asked, 20, "the page to ask for outputs")
        filling.evaluate(
            "[...window.jupyterapp.shell.currentWidget.content.model.cells]"
            ".at(-1).sharedModel.setSource('my own words')"
        )
        with filling.expect_response(FILLED, timeout=90_000) as answer:
            asked[0].continue_()
        assert answer.value.ok
        filling.wait_for_timeout(1000)
        assert filling.locator(".lt-bench, .lt-still").count() == 0
        assert "my own words" in filling.locator(".jp-Notebook").inner_text()
