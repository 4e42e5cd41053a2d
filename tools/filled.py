"""The learner's copies with what their cells show: outputs of the executed pages, put into an
``.ipynb`` beside the copy's ``.md``.

Outputs end at the first cell that differs from the page's own, and at the first question that the
reader has not answered. ``python -m tools.filled`` writes those of every page that is kept, of the
start page in any case; with the name of a page it executes that one and prints its copy with
outputs, as JSON.
"""

from __future__ import annotations

# isort: off
import tools.light_jsonschema  # noqa: F401  (before all that imports nbformat)

# isort: on
import argparse
import copy
import html
import json
import os
import re
import sys
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import jupytext
import nbformat
from nbconvert.preprocessors import CoalesceStreamsPreprocessor
from nbformat import NotebookNode
from nbformat.sign import NotebookNotary
from nbformat.v4 import new_output

from labtools.notebook.cells import asks
from labtools.notebook.pages import START_PAGE
from labtools.record import Journal
from labtools.record.folders import work_dir
from labtools.record.prediction import JournalError
from labtools.record.whole import write_whole
from tools.book import kept_pages
from tools.execute import KeptPages, PageRunError
from tools.install import ROOT, fingerprint
from tools.stills import keep_live, question_still
from tools.toc import executable_pages

WRITTEN = ".filled.json"
"""In ``work/``, hashes of each notebook that was written here: of its cells and outputs, and of all
that it is made of. One with other cells or outputs is the reader's."""
_QUESTION = re.compile(r'data-question="([^"]*)"')


def answered() -> set[str]:
    """The questions that the journal holds a guess for."""
    try:
        return {row.prediction.question_id for row in Journal().history()}
    except JournalError:
        return set()


def fill(page: NotebookNode, executed: NotebookNode, known: Collection[str]) -> NotebookNode:
    """A copy of a page with the outputs of the page as it was executed, without those that a
    question not in ``known`` comes before."""
    filled = copy.deepcopy(page)
    for cell, made in zip(_code(filled), _code(executed), strict=False):
        if cell.source.strip() != made.source.strip():
            break
        if made.source.startswith("%%solution"):
            continue  # shown when it is asked for
        waiting = _waiting(made, known)
        if waiting is not None:
            cell.outputs = [new_output("display_data", question_still(waiting))]
            break
        cell.outputs = copy.deepcopy(made.outputs)
        for output in cell.outputs:
            output.pop("execution_count", None)
            if output.output_type == "execute_result":
                output.output_type = "display_data"
    for name in ("language_info", "widgets"):
        if name in executed.metadata:
            filled.metadata[name] = copy.deepcopy(executed.metadata[name])
    keep_live(filled)
    # JupyterLab joins what a cell prints in several goes, and saves it so.
    return CoalesceStreamsPreprocessor().preprocess(filled, {})[0]


def _code(notebook: NotebookNode) -> Iterator[NotebookNode]:
    return (cell for cell in notebook.cells if cell.cell_type == "code")


def _waiting(cell: NotebookNode, known: Collection[str]) -> list[str] | None:
    """What a cell asks that is not answered yet; None where nothing waits in it."""
    shown = "".join("".join(one.get("data", {}).get("text/html", "")) for one in cell.outputs)
    found = [json.loads(html.unescape(one)) for one in _QUESTION.findall(shown)]
    if not found:
        return [] if asks(cell.source) else None
    texts = [question["text"] for question in found if question["id"] not in known]
    return texts or None


def read_copy(path: Path) -> NotebookNode:
    """A copy as JupyterLab reads it."""
    return jupytext.reads(path.read_text(encoding="utf-8"), fmt="md")


def write_copies(work: Path, kept: KeptPages, known: Collection[str]) -> list[str]:
    """Write the notebook of each copy whose page is kept, and before them that of the start page;
    returns the pages written.

    A notebook that the reader has changed stays, and one that says what it would say now. May be
    killed at any time.
    """
    written, notary = _read_written(work), NotebookNotary()
    start = START_PAGE.removesuffix(".md")
    pages = sorted(executable_pages(kept.root), key=lambda page: page != start)
    todo = {}
    for page in pages:
        text, notebook = work / f"{page}.md", work / f"{page}.ipynb"
        if not text.exists():
            continue
        made_of = _made_of(text, kept, known)
        if notebook.exists():
            note = written.get(page, {})
            if note.get("shown") != _shown(notebook.read_text()) or note["made_of"] == made_of:
                continue
            notebook.unlink()  # out of date
        todo[page] = made_of
    for page, made_of in todo.items():
        text, notebook = work / f"{page}.md", work / f"{page}.ipynb"
        try:
            if page == start:
                kept.run_once(page)
            elif kept.find(page) is None:
                continue
            filled = fill(read_copy(text), kept.outputs(page), known)
        except Exception as error:  # one page must not keep the others from being shown
            print(f"{page}: {error}", file=sys.stderr)
            continue
        body = nbformat.writes(filled)
        # First: a notebook that nobody has written down is the reader's.
        _write_down(work, page, body, made_of)
        write_whole(notebook, body.encode())
        # As old as its text: Jupytext asks which of the two counts when the outputs are newer.
        os.utime(notebook, ns=(text.stat().st_atime_ns, text.stat().st_mtime_ns))
        notary.sign(filled)
    return [page for page in todo if (work / f"{page}.ipynb").exists()]


def _made_of(text: Path, kept: KeptPages, known: Collection[str]) -> str:
    pages = [kept.root / f"{page}.md" for page in executable_pages(kept.root)]  # one reads another
    return fingerprint(kept.key or "", *pages, text, *sorted(known))


def _write_down(work: Path, page: str, body: str, made_of: str) -> None:
    written = _read_written(work) | {page: {"shown": _shown(body), "made_of": made_of}}
    write_whole(work / WRITTEN, json.dumps(written, indent=1, sort_keys=True).encode())


def _shown(body: str) -> str:
    """A hash of a notebook's cells and outputs; "" where the text holds none."""
    try:
        cells = json.loads(body)["cells"]
        return fingerprint(json.dumps([[cell["source"], cell.get("outputs")] for cell in cells]))
    except (ValueError, KeyError, TypeError):
        return ""


def _read_written(work: Path) -> dict[str, dict[str, str]]:
    try:
        return dict(json.loads((work / WRITTEN).read_text()))
    except (OSError, ValueError, TypeError):
        return {}  # then every notebook that is there is taken for the reader's


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", nargs="?", help="as in _toc.yml, without ending")
    parser.add_argument("--work", type=Path, default=work_dir(ROOT))
    options = parser.parse_args(argv)
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # the GPU is the reader's
    kept = kept_pages(ROOT, ROOT / "_build" / ".executed")
    if options.page is None:
        write_copies(options.work, kept, answered())
        return 0
    if options.page not in executable_pages(ROOT):
        return 1
    os.nice(19)
    try:
        kept.run_once(options.page)
    except PageRunError as error:
        print(error, file=sys.stderr)
        return 1
    text, known = options.work / f"{options.page}.md", answered()
    filled = fill(read_copy(text), kept.outputs(options.page), known)
    # The browser saves it, if it takes it.
    made_of = _made_of(text, kept, known)
    _write_down(options.work, options.page, nbformat.writes(filled), made_of)
    print(json.dumps(filled))  # a file's texts would be cut into lines
    return 0


if __name__ == "__main__":
    sys.exit(main())
