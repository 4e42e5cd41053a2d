"""Every page of the table of contents runs from top to bottom, with nobody there to predict."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml
from test_book_pages import WITH_SOLUTIONS

jupytext = pytest.importorskip("jupytext")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

ROOT = Path(__file__).resolve().parents[2]
CELL_LIMIT_S = 300


def pages() -> list[str]:
    from tools.book import toc_pages

    return toc_pages(ROOT)


def run_page(path: Path, root: Path = ROOT) -> object:
    """Execute one MyST notebook; returns it with its outputs."""
    notebook = jupytext.read(path)
    client = nbclient.NotebookClient(
        notebook,
        timeout=CELL_LIMIT_S,
        startup_timeout=CELL_LIMIT_S,
        kernel_name="python3",
        resources={"metadata": {"path": str(path.parent)}},
    )
    return client.execute(env={**os.environ, "LABTOOLS_READER": "0"})


def is_run_with_its_solutions(page: str) -> bool:
    """Whether test_book_pages executes the page, with the solutions of its exercises behind it."""
    return ROOT / f"{page}.md" in WITH_SOLUTIONS


def test_some_pages_are_run_with_their_solutions_and_some_here() -> None:
    elsewhere = [page for page in pages() if is_run_with_its_solutions(page)]
    assert 10 <= len(elsewhere) < len(pages())


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in pages() if not is_run_with_its_solutions(page)])
def test_page_runs(page: str) -> None:
    path = ROOT / f"{page}.md"
    if "{code-cell}" not in path.read_text():
        pytest.skip("no cells")
    run_page(path)


def test_a_failing_cell_fails(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(
        "---\njupytext:\n  text_representation:\n    extension: .md\n    format_name: myst\n"
        "kernelspec:\n  display_name: Python 3\n  language: python\n  name: python3\n---\n\n"
        "```{code-cell} ipython3\n1 / 0\n```\n"
    )
    with pytest.raises(nbclient.exceptions.CellExecutionError, match="ZeroDivisionError"):
        run_page(tmp_path / "page.md")


def test_no_page_holds_outputs() -> None:
    """Pages are MyST text: there is no place for outputs, and no .ipynb beside them."""
    found = [*(ROOT / "book").rglob("*.ipynb"), *(ROOT / "labs").rglob("*.ipynb")]
    assert found == []


def test_the_toc_names_every_page() -> None:
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text())
    assert toc["format"] == "jb-book"
    there = {
        path.relative_to(ROOT).with_suffix("").as_posix()
        for folder in ("book", "labs")
        for path in (ROOT / folder).rglob("*.md")
        if not any(part[0] in "._" for part in path.relative_to(ROOT).parts)
    }
    assert there == set(pages())
