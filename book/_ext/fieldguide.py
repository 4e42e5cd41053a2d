"""What the site needs beyond its configuration; what depends on the build comes through the
environment (see ``tools/book.py``)."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from pygments.lexers import CudaLexer
from pygments.token import Comment

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from labtools.notebook.static_page import site_script, site_style
from tools.nbpoll import poll_in_slices


class CudaCellLexer(CudaLexer):
    """CUDA C++ below a line with a cell magic. Python's lexer would stumble over such a cell."""

    name = "CUDA cell"
    aliases = ("cuda-cell",)
    filenames = ()
    mimetypes = ()

    def get_tokens_unprocessed(self, text: str, stack: tuple[str, ...] = ("root",)) -> Any:
        first, newline, rest = text.partition("\n")
        yield 0, Comment.Preproc, first + newline
        for index, token, value in super().get_tokens_unprocessed(rest, stack):
            yield index + len(first) + len(newline), token, value


def colour_cells(app: Any, doctree: nodes.document) -> None:
    """Mark the cells that hold CUDA C++ as such; a solution is Python below its first line."""
    for block in doctree.findall(nodes.literal_block):
        text = block.astext()
        if text.startswith("%%cuda"):
            block["language"] = "cuda-cell"
        elif text.startswith("%%solution"):
            block.rawsource = text.partition("\n")[2]
            block.children = [nodes.Text(block.rawsource)]


def name_once(app: Any, doctree: nodes.document, page: str) -> None:
    """Take away the name that sphinx-exercise gives the text of every exercise and solution."""
    for section in doctree.findall(nodes.section):
        if section["ids"] in (["exercise-content"], ["solution-content"]):
            section["ids"] = []


def settle_config(app: Any, config: Any) -> None:
    """Put the build's own paths into the configuration before myst-nb reads it."""
    cache = os.environ.get("FIELDGUIDE_CACHE")
    if cache:
        config.nb_execution_mode = "cache"
        config.nb_execution_cache_path = cache
    else:
        config.nb_execution_mode = "force"
    made = Path(app.doctreedir) / "fieldguide"
    made.mkdir(parents=True, exist_ok=True)
    (made / "questions.js").write_text(site_script())
    (made / "questions.css").write_text(site_style())
    config.html_static_path = [*config.html_static_path, str(made)]
    assets = os.environ.get("FIELDGUIDE_ASSETS")
    if assets:
        config.html_static_path = [*config.html_static_path, assets]
    written = os.environ.get("FIELDGUIDE_WRITE")
    if written:
        config.html_static_path = [*config.html_static_path, written]
        # At the top of the site: a service worker has what lies beside it and below.
        config.html_extra_path = [*config.html_extra_path, f"{written}/write/service.js"]
        app.add_css_file("write/write.css")
        app.add_js_file("write/editor.js", loading_method="defer")
    # Numbers are given when every page has been read, but the extension does not say that pages may
    # be read in parallel. Sphinx warns of that, and a warning fails the build.
    app.extensions["sphinx_multitoc_numbering"].parallel_read_safe = True
    # Jupyter Book switches Thebe on everywhere: it names an outside script on each page and is of
    # no use in a site that has no server behind it.
    for listeners in app.events.listeners.values():
        listeners[:] = [
            one for one in listeners if getattr(one.handler, "__name__", "") != "init_thebe_core"
        ]


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    os.environ.setdefault("LABTOOLS_READER", "0")
    poll_in_slices()
    app.connect("config-inited", settle_config, priority=100)
    app.add_lexer("cuda-cell", CudaCellLexer)
    app.connect("doctree-read", colour_cells)
    app.connect("doctree-resolved", name_once)
    app.add_css_file("fieldguide.css")
    app.add_css_file("questions.css")
    app.add_js_file("questions.js")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
