"""The book as EPUB: Sphinx's builder, with each page laid out as on paper (``make epub``)."""

from __future__ import annotations

import base64
import hashlib
import posixpath
import re
import shutil
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bs4 import BeautifulSoup, Tag
from sphinx.builders.epub3 import Epub3Builder

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.paper import APPENDIX, BENCH, TITLE, AppendixEntry, appendix, lay_out, read_html
from tools.toc import toc_pages

STYLES = ("pygments.css", "epub.css")
INSTEAD = "A bench with controls stands here on the site and in JupyterLab."
_INNER = re.compile(r"^((?!\w+:)[^#]*)\.html(#.*)?$")
_ENDINGS = {"image/svg+xml": "svg", "image/png": "png", "image/jpeg": "jpg"}


class PaperBuilder(Epub3Builder):
    """Sphinx's EPUB without scripts and forms; figures are files, formulas MathML."""

    def init(self) -> None:
        """Name the book as the site does, before Sphinx looks whether it has a name."""
        super().init()
        self.config.epub_title = self.config.html_title
        self.config.version = version("decode-attention-field-guide")

    def get_toc(self) -> None:
        """Name every page from the EPUB's own folder, also where the start page lies deeper."""
        super().get_toc()
        for entry in self.refnodes:
            entry["refuri"] = posixpath.normpath(entry["refuri"])

    def handle_finish(self) -> None:
        """Lay out what was written, add the answers, and pack."""
        folder = Path(self.outdir)
        told: dict[str, tuple[str, list[AppendixEntry]]] = {}
        number, text = 1, ""
        for page in toc_pages(Path(self.srcdir)):
            text = (folder / f"{page}.xhtml").read_text(encoding="utf-8")
            whole = read_html(text)
            body = _body(whole)
            for script in body.select(BENCH):
                script.replace_with(read_html(f"<p><em>{INSTEAD}</em></p>"))
            found = lay_out(body, page, number, ".xhtml")
            number += len(found)
            told[page] = self.env.titles[page].astext(), found
            self._write(whole, page)
        whole = read_html(text)
        _body(whole).clear()
        _body(whole).append(read_html(appendix(told, ".xhtml")))
        if whole.title is not None:
            whole.title.string = TITLE
        self._write(whole, APPENDIX)
        static = folder / "_static"
        styles = {name: (static / name).read_bytes() for name in STYLES}
        shutil.rmtree(static)
        static.mkdir()
        for name, style in styles.items():
            (static / name).write_bytes(style)
        super().handle_finish()

    def build_content(self) -> None:
        """Say in the list of files which ones have formulas."""
        super().build_content()
        path = Path(self.outdir) / "content.opf"
        listed = path.read_text(encoding="utf-8")
        for name in self.files:
            page = Path(self.outdir) / name
            if page.suffix == ".xhtml" and "<math" in page.read_text(encoding="utf-8"):
                listed = listed.replace(f'href="{name}" ', f'href="{name}" properties="mathml" ', 1)
        path.write_text(listed, encoding="utf-8")

    def _write(self, whole: BeautifulSoup, page: str) -> None:
        """Write a page as XHTML, with its figures beside it."""
        up = posixpath.relpath(".", posixpath.dirname(page) or ".")
        for gone in whole.select("head script, head link"):
            gone.decompose()
        for style in STYLES:
            link = f'<link rel="stylesheet" type="text/css" href="{up}/_static/{style}"/>'
            whole.select_one("head").append(read_html(link))
        for formula in whole.select(".math"):
            formula.replace_with(read_html(mathml(formula)))
        for link in whole.select("a[href*='.html']"):
            link["href"] = _INNER.sub(r"\1.xhtml\2", str(link["href"]))
        seen: set[str] = set()
        for named in whole.select("[id]"):  # some that Sphinx's extensions give stand twice
            if named["id"] in seen:
                del named["id"]
            else:
                seen.add(str(named["id"]))
        for entry in whole.select("[role^='doc-biblio']"):
            del entry["role"]
        for image in whole.select("img[src^='data:']"):
            image["src"] = f"{up}/{self._figure(str(image['src']))}"
        path = Path(self.outdir) / f"{page}.xhtml"
        path.write_text(whole.decode(), encoding="utf-8")

    def _figure(self, source: str) -> str:
        """Write a figure that stands in the page itself to a file; returns its path."""
        kind, _, coded = source.removeprefix("data:").partition(";base64,")
        data = base64.b64decode(coded)
        path = f"_images/{hashlib.sha256(data).hexdigest()[:16]}.{_ENDINGS[kind]}"
        (Path(self.outdir) / "_images").mkdir(exist_ok=True)
        (Path(self.outdir) / path).write_bytes(data)
        return path


def mathml(formula: Tag) -> str:
    """A formula that the site's MathJax would set, as MathML."""
    from latex2mathml.converter import convert

    tex = formula.get_text().strip()
    display = tex.startswith(r"\[")
    return str(convert(tex[2:-2].strip(), display="block" if display else "inline"))


def _body(whole: BeautifulSoup) -> Tag:
    body = whole.select_one("div.body")
    assert body is not None
    return body


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_builder(PaperBuilder, override=True)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
