"""Every page of the table of contents runs from top to bottom, with nobody there to predict."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")
pytest.importorskip("myst_nb")

from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn

from tools.book import execute_all, kept_pages
from tools.execute import (
    KeptPages,
    PageRunError,
    is_depended_on,
    is_page,
    longest_first,
    read_page,
    run_page,
)
from tools.toc import executable_pages, toc_pages

ROOT = Path(__file__).resolve().parents[2]
HEAD = (
    "---\njupytext:\n  text_representation:\n    extension: .md\n    format_name: myst\n"
    "kernelspec:\n  display_name: Python 3\n  language: python\n  name: python3\n---\n\n"
)
EXECUTABLE = executable_pages(ROOT)


def is_import_of_the_page(name: str) -> bool:
    """Python looks for modules beside the page, where there are none."""
    return not name.endswith(".py") and (ROOT / name).is_dir() and name.startswith(("book", "labs"))


def is_installed(name: str) -> bool:
    """A package's file, for which requirements.lock stands; .venv is a folder of the repository."""
    return "__editable__" in name or (ROOT / name).is_relative_to(sys.prefix)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("page", EXECUTABLE)
def test_page_runs(page: str, page_run: Callable[[str], Any]) -> None:
    """From top to bottom; of its solutions test_book_pages takes care."""
    noted = page_run(page)
    assert noted.wall_s > 0
    # Of the pages that a page reads the run keeps a hash.
    outside = [name for name in noted.opened if not is_depended_on(name) and not is_page(name)]
    known = [name for name in outside if is_import_of_the_page(name) or is_installed(name)]
    assert sorted(set(outside) - set(known)) == [], "a change of these would go unseen"


def test_most_pages_are_executed() -> None:
    """A page without a cell of code has nothing to run; the others are all here."""
    left_out = set(toc_pages(ROOT)) - set(EXECUTABLE)
    assert len(EXECUTABLE) > 25
    assert not [page for page in left_out if "{code-cell}" in (ROOT / f"{page}.md").read_text()]


def small_book(root: Path, code: str, after: str = "") -> str:
    """A book of one page with one cell; returns the page's name."""
    (root / "_toc.yml").write_text("format: jb-book\nroot: page\n")
    text = HEAD + f"# Page\n\n```{{code-cell}} ipython3\n{code}\n```\n{after}"
    (root / "page.md").write_text(text)
    return "page"


def solution(code: str) -> str:
    return "\n````{solution} one\n:class: dropdown\n\n```python\n" + code + "\n```\n````\n"


@pytest.mark.slow
def test_a_failing_cell_fails_and_is_not_kept(tmp_path: Path) -> None:
    page = small_book(tmp_path, "1 / 0", solution("print('never')"))
    kept = KeptPages(tmp_path / "kept", tmp_path)
    with pytest.raises(PageRunError, match="ZeroDivisionError"):
        kept.run_once(page, solutions=True)
    assert kept.find(page) is None
    with pytest.raises(SystemExit, match=page):
        execute_all(tmp_path, kept, tmp_path / "times.json", jobs=1)


@pytest.mark.slow
def test_solutions_are_no_part_of_the_page(tmp_path: Path) -> None:
    code = "from ipywidgets import IntSlider\nx = IntSlider(3)\ndisplay(x)"
    page = small_book(tmp_path, code, solution("print('from the solution'); IntSlider(x.value)"))
    alone, together = run_page(page, tmp_path), run_page(page, tmp_path, solutions=True)
    assert (alone.solutions, together.solutions) == (None, 1)
    assert together.solution_error == together.error == ""
    assert len(together.notebook.cells) == len(alone.notebook.cells)
    assert "from the solution" not in str([cell.get("outputs") for cell in together.notebook.cells])
    widgets = [run.notebook.metadata.widgets.popitem()[1]["state"] for run in (alone, together)]
    assert len(widgets[0]) == len(widgets[1]) > 0
    page = small_book(tmp_path, code, solution("assert x.value == 4, 'the solution is wrong'"))
    wrong = run_page(page, tmp_path, solutions=True)
    assert wrong.error == ""
    assert "the solution is wrong" in wrong.solution_error


OPENS = """
import pathlib, shutil, tempfile
open('read.txt').close()
folder = pathlib.Path(tempfile.mkdtemp())
(folder / 'inner' / 'deep').mkdir(parents=True)
shutil.rmtree(folder)
"""


def test_what_a_page_opens_is_noted_and_a_tree_removed_elsewhere_is_not(tmp_path: Path) -> None:
    (tmp_path / "read.txt").write_text("")
    opened = run_page(small_book(tmp_path, OPENS), tmp_path).opened
    assert "read.txt" in opened
    assert not {"inner", "deep"} & set(opened)


COUNTED = """
from pathlib import Path
with open("runs.log", "a") as log:
    log.write("x")
print(*(Path(name).read_text() for name in {}))
"""
CHANGED = ("kernels/decode/a.cu", "kernels/records/h200/r.jsonl", "labtools/x.py", "work/records/o")


@pytest.mark.slow
def test_what_changed_is_executed_anew_and_nothing_else(tmp_path: Path) -> None:
    """A kernel, a record, a file of labtools: what a page prints of it is never an old one."""
    page = small_book(tmp_path, COUNTED.format(CHANGED))
    held = dict.fromkeys(CHANGED, "first")
    executed = []
    for changed in ("", "", CHANGED[0], "", *CHANGED[1:]):  # in between all is as at first
        held |= {changed: "second"} if changed else dict.fromkeys(CHANGED, "first")
        for name, content in held.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(content)
        kept = kept_pages(tmp_path, tmp_path / "executed")
        execute_all(tmp_path, kept, tmp_path / "times.json", jobs=2)
        executed.append((tmp_path / "runs.log").read_text().count("x"))
        assert " ".join(held.values()) in str(kept.outputs(page).cells[-1].outputs[0].text)
    assert executed == [1, 1, 2, 2, 3, 4, 5]


@pytest.mark.slow
def test_a_page_whose_ground_changed_under_it_is_not_kept(tmp_path: Path) -> None:
    (tmp_path / "labtools").mkdir()
    page = small_book(tmp_path, "from pathlib import Path\nPath('labtools/x.py').write_text('')")
    kept = kept_pages(tmp_path, tmp_path / "executed")
    with pytest.raises(PageRunError, match="changed while"):
        kept.run_once(page)
    assert kept.find(page) is None


@pytest.mark.slow
def test_two_processes_execute_a_page_once(tmp_path: Path) -> None:
    page = small_book(tmp_path, COUNTED.format(["page.md"]))
    ask = (
        "import sys; from pathlib import Path; from tools.execute import KeptPages; "
        "root = Path(sys.argv[1]); KeptPages(root / 'kept', root).run_once('page', by='both')"
    )
    command = [sys.executable, "-c", ask, str(tmp_path)]
    both = [subprocess.Popen(command, cwd=ROOT) for _ in range(2)]
    assert [one.wait(120) for one in both] == [0, 0]
    assert (tmp_path / "runs.log").read_text() == "x"
    kept = KeptPages(tmp_path / "kept", tmp_path)
    kept.run_once(page)
    kept.run_once(page, by="both")
    assert (tmp_path / "runs.log").read_text() == "x", "whatever is kept is taken"
    kept.run_once(page, by="a later run", solutions=True)
    assert (tmp_path / "runs.log").read_text() == "xx"


@pytest.mark.slow
def test_a_page_that_reads_another_holds_until_that_one_changes(tmp_path: Path) -> None:
    other = tmp_path / "book" / "other.md"
    other.parent.mkdir()
    other.write_text("a")
    page = small_book(tmp_path, COUNTED.format(["book/other.md"]))
    kept = KeptPages(tmp_path / "kept", tmp_path)
    assert "book/other.md" in kept.run_once(page).opened
    assert kept.find(page) is not None
    other.write_text("b")
    assert kept.find(page) is None
    kept.run_once(page)
    assert (tmp_path / "runs.log").read_text() == "xx"


def test_what_sphinx_ran_of_a_page_edited_meanwhile_is_not_taken(tmp_path: Path) -> None:
    page = small_book(tmp_path, "1")
    kept = KeptPages(tmp_path / "kept", tmp_path)
    noted = {"execution_seconds": 1.0}
    bundle = CacheBundleIn(read_page(page, tmp_path), str(tmp_path / "page.md"), data=noted)
    get_cache(str(kept.folder)).cache_notebook_bundle(bundle, check_validity=False, overwrite=True)
    assert kept.find(page) is None


def test_long_pages_begin_first(tmp_path: Path) -> None:
    for page, length in (("short", 10), ("long", 100), ("known", 10), ("quick", 10)):
        (tmp_path / f"{page}.md").write_text("x" * length)
    times = {"quick": 1.0, "known": 30.0}
    order = longest_first(["quick", "short", "known", "long"], tmp_path, times)
    assert order == ["long", "short", "known", "quick"]


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
    assert there == set(toc_pages(ROOT))
