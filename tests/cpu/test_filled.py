"""Copies show what is known of their outputs, up to a question that waits, and lose nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jupytext")
pytest.importorskip("myst_nb")

import nbformat
from nbformat.sign import NotebookNotary

import tools.lab
from labtools.notebook.static_page import static_question, static_result
from labtools.notebook.tables import Shown
from tools.execute import KeptPages, PageRun, read_page
from tools.filled import WRITTEN, fill, read_copy, write_copies
from tools.stills import STATE, VIEW, keep_live

HEAD = (
    "---\njupytext:\n  text_representation:\n    extension: .md\n    format_name: myst\n"
    "kernelspec:\n  display_name: Python 3\n  language: python\n  name: python3\n---\n\n"
)
CELLS = (
    "draw()",
    "%%solution\nsolve()",
    "one = ask()",
    "one.result()",
    "two = ask_choice()",
    "two.result()",
)
FORM = {"kind": "choice", "choices": ["a", "b"]}
SECRET = "the answer is forty-two"


def page_of(*sources: str) -> str:
    cells = (f"```{{code-cell}} ipython3\n{source}\n```\n\nWords between.\n" for source in sources)
    return HEAD + "# A page\n\n" + "\n".join(cells)


def outputs_of(notebook: Any) -> list[str]:
    """What each cell of code shows."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return [json.dumps(cell.outputs) if cell.outputs else "" for cell in code]


def shows(shown: Shown) -> Any:
    return nbformat.v4.new_output("execute_result", {"text/html": shown.html}, execution_count=3)


def link(name: str) -> dict[str, Any]:
    state = {"source": [f"IPY_MODEL_{name}", "index"], "target": [f"IPY_MODEL_{name}", "index"]}
    return {"model_name": "LinkModel", "state": state}


def a_model(name: str, **state: Any) -> dict[str, Any]:
    return {"model_name": name, "state": state}


def widget(name: str) -> Any:
    return nbformat.v4.new_output("display_data", {VIEW: {"model_id": name}, "text/plain": "W()"})


def book(root: Path) -> KeptPages:
    """A book of a start page and another one, both kept as they were executed, and their copies."""
    for page in ("book/index", "book/other"):
        for folder in (root, root / "work"):
            (folder / page).parent.mkdir(parents=True, exist_ok=True)
            (folder / f"{page}.md").write_text(page_of(*CELLS))
    (root / "_toc.yml").write_text("root: book/index\nchapters:\n  - file: book/other\n")
    kept = KeptPages(root / "kept", root, "key")
    for page in ("book/index", "book/other"):
        kept.keep(PageRun(page, executed(root, page)))
    return kept


def executed(root: Path, page: str) -> Any:
    """A page as it comes from its execution: question one and two, a bench, and their answers."""
    notebook = read_page(page, root)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    shown = [
        [shows(Shown("<b>drawn</b>", "drawn")), widget("bench")],
        [shows(Shown(SECRET, SECRET))],
        [shows(static_question("one", "How many?", "Write it down.", FORM))],
        [shows(static_result(Shown("first", "first"), "one"))],
        [shows(static_question("two", "Why so?", "Write it down.", FORM))],
        [shows(static_result(Shown(SECRET, SECRET), "two")), widget("late")],
    ]
    for number, (cell, outputs) in enumerate(zip(code, shown, strict=True), 1):
        cell.outputs, cell.execution_count = outputs, number
    models = {"bench": a_model("VBoxModel", children=["IPY_MODEL_slider"]), "slider": a_model("S")}
    models |= {"link": link("slider"), "late": a_model("AnyModel", tables=SECRET)}
    models |= {"late-link": link("late")}
    notebook.metadata["widgets"] = {STATE: {"state": models}}
    return notebook


def test_outputs_end_at_the_first_question_that_waits(tmp_path: Path) -> None:
    kept = book(tmp_path)
    copy = read_copy(tmp_path / "work/book/index.md")
    filled = fill(copy, kept.outputs("book/index"), ())
    drawn, solution, asked, *after = outputs_of(filled)
    assert "drawn" in drawn and "How many?" in asked and "Run this page" in asked
    assert not any([solution, *after])
    assert SECRET not in nbformat.writes(filled), "neither shown nor in the state of a widget"
    assert set(filled.metadata.widgets[STATE]["state"]) == {"bench", "slider", "link"}
    assert all(cell.get("execution_count") is None for cell in filled.cells), "nothing has run here"


def test_what_was_answered_is_no_bar(tmp_path: Path) -> None:
    kept = book(tmp_path)
    copy = read_copy(tmp_path / "work/book/index.md")
    outputs = outputs_of(fill(copy, kept.outputs("book/index"), {"one"}))
    assert "first" in outputs[3] and "Why so?" in outputs[4] and not outputs[5]
    whole = fill(copy, kept.outputs("book/index"), {"one", "two"})
    assert SECRET in outputs_of(whole)[5] and not outputs_of(whole)[1]
    assert "late-link" in whole.metadata.widgets[STATE]["state"]


def test_a_question_without_a_form_is_a_bar_too(tmp_path: Path) -> None:
    kept = book(tmp_path)
    made = kept.outputs("book/index")
    made.cells[5].outputs = []
    assert made.cells[5].source == CELLS[2]
    assert not any(outputs_of(fill(read_copy(tmp_path / "book/index.md"), made, {"two"}))[3:])


def test_outputs_end_where_the_copy_is_another(tmp_path: Path) -> None:
    kept = book(tmp_path)
    mine = tmp_path / "work/book/index.md"
    edited = page_of(CELLS[0], "my own cell", *CELLS[1:]).replace("Words between.", "My words.")
    mine.write_text(edited)
    filled = fill(read_copy(mine), kept.outputs("book/index"), {"one", "two"})
    assert "drawn" in outputs_of(filled)[0] and not any(outputs_of(filled)[1:])
    assert [cell.source for cell in filled.cells] == [cell.source for cell in read_copy(mine).cells]


def test_copies_are_written_beside_their_texts(tmp_path: Path) -> None:
    kept, work = book(tmp_path), tmp_path / "work"
    mine = work / "book/other.md"
    mine.write_text(mine.read_text() + "\nMy answer: 12, because of the cache.\n")
    os.utime(mine, (1e9, 1e9))
    before = mine.read_bytes()
    assert write_copies(work, kept, ()) == ["book/index", "book/other"]
    assert mine.read_bytes() == before, "the text is the reader's"
    notebook = nbformat.read(work / "book/other.ipynb", as_version=4)
    assert "My answer: 12" in notebook.cells[-1].source
    assert (work / "book/other.ipynb").stat().st_mtime == 1e9, "or Jupytext refuses the pair"
    assert NotebookNotary().check_signature(notebook), "or no drawing is shown"


def test_a_notebook_that_was_changed_stays(tmp_path: Path) -> None:
    kept, work = book(tmp_path), tmp_path / "work"
    write_copies(work, kept, ())
    assert write_copies(work, kept, ()) == [], "nothing is new"
    mine = work / "book/index.ipynb"
    notebook = nbformat.read(mine, as_version=4)
    notebook.metadata["language_info"] = {"name": "python"}  # as opening it alone writes
    nbformat.write(notebook, mine)
    assert write_copies(work, kept, {"one"}) == ["book/index", "book/other"]
    notebook = nbformat.read(mine, as_version=4)
    notebook.cells[1].outputs = []
    nbformat.write(notebook, mine)
    kept_bytes = mine.read_bytes()
    assert write_copies(work, kept, {"one", "two"}) == ["book/other"]
    (work / WRITTEN).write_text("{broken")
    assert write_copies(work, kept, {"one"}) == []
    assert mine.read_bytes() == kept_bytes


def test_outputs_of_another_state_are_not_shown(tmp_path: Path) -> None:
    kept, work = book(tmp_path), tmp_path / "work"
    write_copies(work, kept, ())
    (tmp_path / "book/other.md").write_text(page_of("draw(2)", *CELLS[1:]))
    write_copies(work, kept, ())
    assert not (work / "book/other.ipynb").exists(), "the page has changed and was not executed"
    assert (work / "book/index.ipynb").exists()


@pytest.mark.parametrize(
    ("models", "shown"),
    [
        ({"w": a_model("AnyModel", form={"kind": "ratio"}, text="How?")}, "How?"),
        (
            {"w": a_model("AnyModel", form={}, text="Q", state={"message": "Committed"})},
            "Committed",
        ),
        (
            {"w": a_model("VBoxModel", c="IPY_MODEL_b"), "b": a_model("ButtonModel")},
            "Run this page",
        ),
        ({"w": a_model("VBoxModel", c="IPY_MODEL_gone")}, "Run this page"),
        ({}, "Run this page"),
    ],
)
def test_a_widget_that_needs_a_kernel_becomes_a_still(models: dict[str, Any], shown: str) -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(outputs=[widget("w")])])
    notebook.metadata["widgets"] = {STATE: {"state": models}}
    keep_live(notebook)
    data = notebook.cells[0].outputs[0]["data"]
    assert shown in data["text/html"] and VIEW not in data
    assert "widgets" not in notebook.metadata


def test_filling_takes_no_longer_than_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tools.lab, "repository_root", lambda: tmp_path)
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "filled.py").write_text("import time\ntime.sleep(60)\n")
    tools.lab.fill_copies(tmp_path / "work", limit_s=0.2)
    assert "when you open them" in capsys.readouterr().out


def test_what_is_printed_in_several_goes_is_one_output_as_jupyterlab_saves_it(
    tmp_path: Path,
) -> None:
    made = book(tmp_path).outputs("book/index")
    (cell,) = (one for one in made.cells if one.source == CELLS[0])
    cell.outputs = [nbformat.v4.new_output("stream", text=line) for line in ("one\n", "two\n")]
    filled = fill(read_copy(tmp_path / "work/book/index.md"), made, ())
    (shown,) = (one.outputs for one in filled.cells if one.source == CELLS[0])
    assert [one.text for one in shown] == ["one\ntwo\n"]
