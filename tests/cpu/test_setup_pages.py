"""The learner's copies: made once, never overwritten, fresh ones on request."""

from __future__ import annotations

from pathlib import Path

import pytest

from labtools.notebook.pages import find_page, list_pages, make_copies, reset_page
from labtools.problem import LabError


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("book/index.md", "book/ladder/r00.md", "labs/lab01.md", "book/_ext/x.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"original of {name}")
    (tmp_path / "book/.hidden").write_text("not a page")
    return tmp_path


def test_every_page_is_copied_and_nothing_else(tree: Path) -> None:
    assert make_copies(tree).made == ("book/index.md", "book/ladder/r00.md", "labs/lab01.md")
    assert (tree / "work/book/ladder/r00.md").read_text() == "original of book/ladder/r00.md"
    assert not (tree / "work/book/_ext").exists()


def test_a_copy_is_never_overwritten(tree: Path) -> None:
    make_copies(tree)
    (tree / "work/book/index.md").write_text("my own words")
    assert make_copies(tree).outdated == (), "an edit alone leaves it up to date"
    (tree / "book/index.md").write_text("a newer original")
    done = make_copies(tree)
    assert (done.made, done.outdated) == ((), ("book/index.md",))
    (tree / "work/.copied.json").write_text("{broken")
    make_copies(tree)
    assert (tree / "work/book/index.md").read_text() == "my own words"


def test_reset_keeps_the_old_copy(tree: Path) -> None:
    make_copies(tree)
    copy = tree / "work/labs/lab01.md"
    backups = {}
    for words in ("first try", "second try"):
        copy.write_text(words)
        done = reset_page("lab01", tree)
        assert done.page == copy and copy.read_text() == "original of labs/lab01.md"
        backups[done.backup] = words
    # Two resets in one second do not lose the first backup.
    assert {path: path.read_text() for path in backups} == backups and len(backups) == 2


def test_reset_keeps_the_old_outputs_too(tree: Path) -> None:
    make_copies(tree)
    outputs = tree / "work/labs/lab01.ipynb"
    outputs.write_text("what had been run")
    done = reset_page("labs/lab01.ipynb", tree)
    assert done.backup is not None and not outputs.exists()
    assert done.backup.with_suffix(".ipynb").read_text() == "what had been run"
    assert done.page.read_text() == "original of labs/lab01.md"


def test_reset_of_a_page_never_copied(tree: Path) -> None:
    done = reset_page("book/index", tree)
    assert done.backup is None
    assert done.page.read_text() == "original of book/index.md"


@pytest.mark.parametrize("name", ["book/index.md", "index", "index.md", "work/book/index.md"])
def test_names_of_a_page(tree: Path, name: str) -> None:
    assert find_page(name, tree) == "book/index.md"
    assert find_page(str(tree / "work" / "book" / "index.md"), tree) == "book/index.md"


def test_unknown_and_ambiguous_names(tree: Path) -> None:
    with pytest.raises(LabError, match="no page") as unknown:
        find_page("lab99", tree)
    assert "labs/lab01" in str(unknown.value)
    (tree / "labs/index.md").write_text("another")
    with pytest.raises(LabError, match="More than one"):
        find_page("index", tree)


def test_the_real_pages_are_there(repository: Path) -> None:
    pages = list_pages(repository)
    assert "book/index.md" in pages and not any("/_" in one or "/." in one for one in pages)
