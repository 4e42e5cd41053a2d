"""Cells come from kernels/, one way; what was edited by hand is refused and left alone."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labtools.cli import main
from labtools.notebook.effort import HEAD
from labtools.notebook.heads import read_pages, with_head
from labtools.notebook.sync import sync
from labtools.problem import LabError
from tools.toc import toc_parts

ROOT = Path(__file__).resolve().parents[2]
KERNEL = '// a comment\n#include "ladder.cuh"\n\nextern "C" __global__ void f() {}\n'
RUNG = '''"""Doc."""
import numpy as np

def launch(workload, limits, knobs):
    """One block."""
    return []

RUNG = None
'''
PAGE = """# A page

```{code-cell} ipython3
:tags: [hide-input]

%%cuda r90_mine
```

Words.

```{code-cell} ipython3
# launch of r90_mine (kernels/decode/r90_mine.py)
```

````{code-cell} ipython3
---
tags: [hide-output]
---
%%cuda r90_mine --arch sm_90
old text
````

```{code-cell} ipython3
%%cuda my_experiment
anything at all
```

```python
%%cuda r90_mine
shown, not run
```
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small repository: one rung, one page, one learner's copy."""
    for folder in ("kernels/decode", "book", "labs", "work/book"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "kernels/decode/r90_mine.cu").write_text(KERNEL)
    (tmp_path / "kernels/decode/r90_mine.py").write_text(RUNG)
    (tmp_path / "book/page.md").write_text(PAGE.replace("old text\n", ""))
    (tmp_path / "work/book/page.md").write_text(PAGE)
    return tmp_path


def page(tree: Path) -> str:
    return (tree / "book/page.md").read_text()


def test_cells_are_written(tree: Path) -> None:
    report = sync(root=tree)
    assert [cell.state for cell in report.cells] == ["new"] * 3
    assert report.written == ("book/page.md",)
    text = page(tree)
    assert f"%%cuda r90_mine\n{KERNEL}```\n" in text
    assert f"%%cuda r90_mine --arch sm_90\n{KERNEL}````\n" in text
    launch = 'def launch(workload, limits, knobs):\n    """One block."""\n    return []\n'
    assert f"# launch of r90_mine (kernels/decode/r90_mine.py)\n{launch}```\n" in text
    assert "%%cuda my_experiment\nanything at all\n```" in text
    assert "%%cuda r90_mine\nshown, not run\n```" in text
    assert (tree / "work/book/page.md").read_text() == PAGE, "a learner's copy is not touched"


def test_options_stay_and_jupytext_reads_them(tree: Path) -> None:
    jupytext = pytest.importorskip("jupytext")
    sync(root=tree)
    cells = [c for c in jupytext.read(tree / "book/page.md").cells if c.cell_type == "code"]
    assert cells[0].metadata["tags"] == ["hide-input"]
    assert cells[2].metadata["tags"] == ["hide-output"]
    assert cells[0].source == f"%%cuda r90_mine\n{KERNEL}".rstrip("\n")


def test_a_check_and_a_second_run_change_nothing(tree: Path) -> None:
    before = page(tree)
    assert not sync(check=True, root=tree).ok
    assert page(tree) == before
    sync(root=tree)
    before = page(tree)
    report = sync(root=tree)
    assert report.ok
    assert report.written == ()
    assert page(tree) == before


def test_a_changed_kernel_reaches_the_page(tree: Path) -> None:
    sync(root=tree)
    changed = KERNEL.replace("f()", "g()")
    (tree / "kernels/decode/r90_mine.cu").write_text(changed)
    assert {cell.state for cell in sync(check=True, root=tree).cells} == {"same", "behind"}
    sync(root=tree)
    assert changed in page(tree)
    assert KERNEL not in page(tree)


def test_text_that_sync_never_wrote_is_refused(tree: Path) -> None:
    (tree / "book/page.md").write_text(PAGE)
    with pytest.raises(LabError, match="edited by hand"):
        sync(root=tree)
    assert page(tree) == PAGE


@pytest.mark.parametrize(
    ("old", "new", "source"),
    [
        ("void f()", "void my_f()", "kernels/decode/r90_mine.cu"),
        ("return []", "return [1]", "kernels/decode/r90_mine.py"),
    ],
)
def test_a_cell_edited_by_hand_is_refused(tree: Path, old: str, new: str, source: str) -> None:
    sync(root=tree)
    edited = page(tree).replace(old, new, 1)
    (tree / "book/page.md").write_text(edited)
    (tree / "kernels/decode/r90_mine.cu").write_text(KERNEL.replace("a comment", "another"))
    with pytest.raises(LabError, match="edited by hand") as refusal:
        sync(root=tree)
    assert f"edit {source}" in str(refusal.value)
    assert page(tree) == edited, "nothing may be written, not even the cells that could be"
    assert not sync(check=True, root=tree).ok
    (tree / "book/page.md").write_text(edited.replace(new, old, 1))
    assert sync(root=tree).written, "undoing the edit is enough"


@pytest.mark.parametrize("named", ["%%cuda r90_mine\n", "(kernels/decode/r90_mine.py)"])
def test_a_source_that_is_not_there_is_an_error(tree: Path, named: str) -> None:
    wrong = named.replace("r90_mine", "r91_typo")
    (tree / "book/page.md").write_text(page(tree).replace(named, wrong, 1))
    with pytest.raises(LabError, match="Correct"):
        sync(root=tree)


def test_a_rung_without_launch_is_an_error(tree: Path) -> None:
    (tree / "kernels/decode/r90_mine.py").write_text("RUNG = None\n")
    with pytest.raises(LabError, match="no function launch"):
        sync(root=tree)


@settings(max_examples=40)
@given(st.text(st.characters(codec="utf-8", exclude_characters="\r\x0b\x0c\x1c\x1d\x1e\x85\u2028")))
def test_pages_without_supplied_cells_stay_as_they_are(words: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "book").mkdir()
        text = words.replace("%%cuda", "").replace("# launch", "")
        (root / "book/page.md").write_bytes(text.encode())
        assert sync(root=root).cells == ()
        assert (root / "book/page.md").read_bytes() == text.encode()


def test_the_books_own_cells_hold_their_sources() -> None:
    """What CI compares. When this fails: make regen."""
    report = sync(check=True, root=ROOT)
    assert report.ok, report.describe()


def test_every_page_but_those_of_reference_says_what_it_needs_takes_and_gives() -> None:
    pages, start = read_pages(ROOT), (ROOT / "book" / "index.md").read_text()
    assert [page for page, told in pages.items() if "needs" not in told] == dict(toc_parts())[
        "Reference"
    ]
    for page, told in pages.items():
        assert f"): {told['gives']}\n" in start
        if "needs" in told:
            text = (ROOT / f"{page}.md").read_text()
            assert with_head(f"{page}.md", text, ROOT) == text
            (head,) = [line for line in text.split("\n") if line.startswith(HEAD)]
            writes = " and your writing" if "\ntry_" in text else ""
            assert head.endswith(f" minutes{writes}. *Gives* {told['gives']}.")
            assert with_head(f"{page}.md", text.replace(head, f"{HEAD}*Gives*"), ROOT) == text


def test_the_command_compares(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sync", "--check"]) == (0 if sync(check=True, root=ROOT).ok else 1)
    assert "cells" in capsys.readouterr().out
