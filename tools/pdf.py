"""Print the built site as one PDF on A4, ``_build/book.pdf`` (``make pdf``).

Chromium prints each page of the contents as ``tools/paper.py`` lays it out, with the formulas,
figures and widgets that the site shows, and the answers behind them all. The PDF has an outline by
parts and pages, and its links between pages lead to its own.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import yaml
from pypdf import PdfReader, PdfWriter
from pypdf.generic import (
    ArrayObject,
    DictionaryObject,
    NameObject,
    NullObject,
    NumberObject,
    TextStringObject,
)

from tools.book import build
from tools.chromium import start_browser
from tools.install import ROOT
from tools.paper import APPENDIX, TITLE, AppendixEntry, appendix, lay_out, read_html
from tools.toc import toc_pages, toc_parts

TEXT_PX = (210 - 2 * 18) / 25.4 * 96
"""The width of the text of a page in print.css."""
LIMIT_MS = 60_000
_MATH = "script[src*='tex-svg']"
_SCRIPTS = f"{_MATH}, script[src*='require'], script[src*='widget-paths'], " + (
    "script[src*='embed-amd'], script[type*='json']"
)
# Each widget is drawn behind its script, some time after the page is there.
WIDGETS_DRAWN = """() => [...document.querySelectorAll("script[type*='widget-view']")].every(
    one => one.previousElementSibling?.querySelector(".lt-view"))"""
# Destinations come of what the document itself links to; what is too wide gets smaller, and what is
# low stays on one page.
SETTLE = """width => {
    const links = document.body.appendChild(document.createElement("nav"));
    links.hidden = true;
    for (const one of document.querySelectorAll("article [id]")) {
        links.appendChild(document.createElement("a")).href = `#${encodeURIComponent(one.id)}`;
    }
    const right = (one) => one.getClientRects().length ? one.getBoundingClientRect().right : 0;
    for (const one of document.querySelectorAll(
            "article :is(table, figure, pre, .lt-view, mjx-container)")) {
        for (let round = 0; round < 3; round += 1) {
            const left = one.getBoundingClientRect().left;
            const most = Math.max(...[one, ...one.querySelectorAll("*")].map(right));
            if (most <= width + 0.5) break;
            one.style.zoom = Number(one.style.zoom || 1) * (width - left) / (most - left);
        }
    }
    for (const one of document.querySelectorAll("article :is(.cell_input, .output)")) {
        if (one.offsetHeight < 300) one.style.breakInside = "avoid";
    }
}"""
WIDER = """width => [...document.querySelectorAll("article, article *")]
    .filter(one => one.getClientRects().length && one.getBoundingClientRect().right > width + 1)
    .map(one => `${one.tagName} ${one.textContent.trim().slice(0, 60)}`)"""


def write_pages(html: Path, folder: Path, root: Path) -> dict[str, str]:
    """Write the pages of a site for printing into a folder; returns their titles, by page."""
    (folder / "_static").symlink_to(html.resolve() / "_static")
    told: dict[str, tuple[str, list[AppendixEntry]]] = {}
    number, head = 1, ""
    behind: dict[str, None] = {}  # the scripts of the appendix, each once
    for page in toc_pages(root):
        whole = read_html((html / f"{page}.html").read_text(encoding="utf-8"))
        article, heading = whole.select_one("article"), whole.select_one("article h1")
        assert article is not None and heading is not None and whole.head is not None
        found = lay_out(article, page, number)
        number += len(found)
        told[page] = heading.get_text(" ", strip=True), found
        scripts = [str(one) for one in whole.head.select(_SCRIPTS)]
        benches = any("widget-view" in part for one in found for part in one.parts)
        used = scripts if benches else map(str, whole.head.select(_MATH))
        behind |= dict.fromkeys(map(_from_the_top, used))
        for other in whole.head.select("script, link[rel='preload']"):
            if "window.MathJax" not in str(other.string):
                other.decompose()
        head = str(whole.head)
        _write(folder / f"{page}.html", head, f"{article}{''.join(scripts)}")
    text = f'<article class="bd-article">{appendix(told)}</article>{"".join(behind)}'
    _write(folder / f"{APPENDIX}.html", _from_the_top(head), text)
    return {**{page: title for page, (title, _) in told.items()}, APPENDIX: TITLE}


def _from_the_top(html: str) -> str:
    """Scripts and styles of a page, named from the folder of the whole site."""
    return re.sub(r'(?<=(?:href|.src)=")(?:\.\./)+', "", html)


def _write(path: Path, head: str, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    begin = '<!doctype html><html lang="en" data-theme="light" data-mode="light">'
    main = f'<body><main class="bd-content">{text}</main></body></html>'
    path.write_text(begin + head + main, encoding="utf-8")


def print_page(tab: Any, path: Path, style: str) -> bytes:
    """One page as a PDF of its own; raises ValueError if anything is wider than its text."""
    tab.goto(path.as_uri())
    tab.add_style_tag(content=style)
    tab.evaluate("() => window.MathJax?.startup?.promise")
    tab.wait_for_function(WIDGETS_DRAWN, timeout=LIMIT_MS)
    tab.evaluate(SETTLE, TEXT_PX)
    wider = tab.evaluate(WIDER, TEXT_PX)
    if wider:
        raise ValueError(f"{path.stem} does not fit on A4: {'; '.join(wider[:5])}")
    return bytes(tab.pdf(prefer_css_page_size=True, print_background=True))


def running_titles(book: str, page: str, before: int) -> str:
    """CSS of what stands above and below the text, after so many pages."""
    names = (json.dumps(one, ensure_ascii=False) for one in (book, page))
    above = "".join(
        f"@top-{side} {{ content: {name}; font: 8pt sans-serif; color: #555; }}"
        for side, name in zip(("left", "right"), names, strict=True)
    )
    below = "@bottom-center { content: counter(page); font: 9pt sans-serif; }"
    return f"@page {{ {above} {below} }} html {{ counter-reset: page {before}; }}"


def print_book(html: Path, path: Path, root: Path = ROOT) -> Path:
    """Print a site; returns the PDF.

    Raises ValueError: something is wider than the text of a page.
    """
    config = yaml.safe_load((root / "_config.yml").read_text())
    style = (html / "_static/print.css").read_text()
    writer = PdfWriter()
    first: dict[str, int] = {}
    places: dict[str, tuple[int, float | None]] = {}
    with tempfile.TemporaryDirectory() as scratch, start_browser() as browser:
        folder = Path(scratch).resolve()
        titles = write_pages(html, folder, root)
        tab = browser.new_page(viewport={"width": round(TEXT_PX), "height": 1000})
        tab.emulate_media(media="print", color_scheme="light")
        for page, title in titles.items():
            before = len(writer.pages)
            above = running_titles(config["title"], title, before)
            printed = PdfReader(io.BytesIO(print_page(tab, folder / f"{page}.html", style + above)))
            first[page] = before
            places[page] = (before, None)
            for name, target in printed.named_destinations.items():
                number = printed.get_destination_page_number(target)
                if number is not None:
                    places[f"{page}#{unquote(name[1:])}"] = (before + number, target.top)
            for sheet in printed.pages:
                _name_targets(sheet, (folder / f"{page}.html").as_uri())
                writer.add_page(sheet)
    _link(writer, folder.as_uri() + "/", places)
    parts = [*toc_parts(root), ("", [APPENDIX])]
    for caption, pages in parts:
        part = (
            writer.add_outline_item(title=caption, page_number=first[pages[0]]) if caption else None
        )
        for page in pages:
            writer.add_outline_item(title=titles[page], page_number=first[page], parent=part)
    writer.add_metadata({"/Title": config["title"], "/Author": config["author"]})
    writer.write(path)
    return path


def _name_targets(sheet: Any, address: str) -> None:
    """Give links inside a page the form of those between pages."""
    for one in sheet.get("/Annots", []):
        link = one.get_object()
        if "/Dest" in link:
            said = TextStringObject(f"{address}#{str(link.pop('/Dest'))[1:]}")
            link[NameObject("/A")] = DictionaryObject({NameObject("/URI"): said})


def _link(writer: PdfWriter, folder: str, places: Mapping[str, tuple[int, float | None]]) -> None:
    """Point links to files of the folder at where they were printed, or at nothing."""
    for sheet in writer.pages:
        kept = ArrayObject()
        for one in sheet.get("/Annots", []):
            link = one.get_object()
            address = str(link.get("/A", {}).get("/URI", ""))
            if address.startswith(folder):
                page, _, anchor = address.removeprefix(folder).partition("#")
                page = unquote(page).removesuffix(".html")
                number, top = places.get(
                    f"{page}#{unquote(anchor)}", places.get(page, (None, None))
                )
                if number is None:
                    continue
                del link["/A"]
                goal = [writer.pages[number].indirect_reference, NameObject("/XYZ"), NullObject()]
                height = NullObject() if top is None else NumberObject(int(top))
                link[NameObject("/Dest")] = ArrayObject([*goal, height, NullObject()])
            kept.append(one)
        sheet[NameObject("/Annots")] = kept


def main(argv: Sequence[str] | None = None) -> int:
    argparse.ArgumentParser(description=__doc__).parse_args(argv)
    html = build()
    path = print_book(html, html.parent / "book.pdf")
    pages = len(PdfReader(path).pages)
    print(f"{path}, {pages} pages, {path.stat().st_size / 1e6:.0f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
