"""The static site: complete, without warnings, without a request to another host, never stale."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from queue import Empty
from types import SimpleNamespace

import pytest

pytest.importorskip("jupyter_book", reason="the book's tools are not installed here")

from jupyter_cache import get_cache

from tools import book
from tools.book import build, built_pages, outside_requests
from tools.execute import pages_key
from tools.nbpoll import get_msg
from tools.paper import read_html
from tools.site_assets import PACKAGES, AssetError, check_integrity
from tools.toc import toc_pages

ROOT = Path(__file__).resolve().parents[2]
HEAD = (
    "---\njupytext:\n  text_representation:\n    extension: .md\n    format_name: myst\n"
    "kernelspec:\n  display_name: Python 3\n  language: python\n  name: python3\n---\n\n"
)


def doubled_ids(html: str) -> set[str]:
    """The ids that more than one element of a page has."""
    ids = [one["id"] for one in read_html(html).select("[id]")]
    return {one for one in ids if ids.count(one) > 1}


def test_an_id_that_stands_twice_is_found() -> None:
    page = "<p id='a'></p><script>'<p id=\"b\">'</script><h1 id='b'></h1><a id=c></a><b id='c'></b>"
    assert doubled_ids(page) == {"c"}


@pytest.mark.slow
def test_the_book_builds_without_warnings(built_site: Path) -> None:
    """``build`` itself fails on a warning, a missing page or an outside request."""
    assert sorted(toc_pages(ROOT)) == built_pages(built_site)
    assert outside_requests(built_site) == []


@pytest.mark.slow
def test_the_built_pages_can_stand_alone(built_site: Path) -> None:
    static = built_site / "_static"
    for name in ("tex-svg-full.js", "require.js", "embed-amd.js", "anywidget.js", "fieldguide.css"):
        assert (static / name).stat().st_size > 100
    # The folded results of a prediction gate must be folded in the site too.
    start = (built_site / "book" / "index.html").read_text()
    assert "<h1" in start
    assert "thebe@" not in start
    for page in built_pages(built_site):
        assert doubled_ids((built_site / f"{page}.html").read_text()) == set(), page


@pytest.fixture
def small_book(tmp_path: Path) -> Path:
    """A book of two pages with the real configuration."""
    for name in ("_config.yml", "book/_ext", "book/_static"):
        target = tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(ROOT / name)
    (tmp_path / "_toc.yml").write_text(
        "format: jb-book\nroot: book/index\nchapters:\n  - file: book/page\n"
    )
    (tmp_path / "book/references.bib").write_text("")
    (tmp_path / "book/index.md").write_text("# Start\n\nSee [the page](page.md).\n")
    (tmp_path / "book/page.md").write_text(
        HEAD + "# Page\n\n```{code-cell} ipython3\nimport os\n"
        "print('reader', os.environ['LABTOOLS_READER'])\n```\n"
    )
    return tmp_path


def append_to(path: Path, text: str) -> None:
    path.write_text(path.read_text() + text)


def append(tree: Path, text: str) -> None:
    append_to(tree / "book/page.md", text)


@pytest.mark.slow
def test_each_page_is_executed_and_kept_before_sphinx_and_a_failing_one_leaves_no_site(
    small_book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sphinx would execute one page after another, and unseen. Nobody is taken to be present."""
    monkeypatch.chdir(small_book)
    html = build(small_book, Path("elsewhere"))
    assert html == small_book / "elsewhere/_build/html"  # which a browser can be told
    assert "reader 0" in (html / "book/page.html").read_text()
    times = json.loads((html.parent / "page-times.json").read_text())
    assert list(times) == ["book/page"]
    assert times["book/page"] > 0.1
    (kept,) = (html.parent / ".executed").iterdir()
    cache = get_cache(str(kept))
    assert cache.list_project_records() == []
    (before,) = [one.created for one in cache.list_cache_records()]
    (html.parent / "site.json").unlink()  # a second site takes the page as it is kept
    assert "reader 0" in (build(small_book, Path("elsewhere")) / "book/page.html").read_text()
    assert [one.created for one in cache.list_cache_records()] == [before]
    append(small_book, "\n```{code-cell} ipython3\n1 / 0\n```\n")
    for _ in range(2):
        with pytest.raises(SystemExit):
            build(small_book, Path("elsewhere"))
    assert not html.exists()


@pytest.mark.slow
def test_a_bad_page_fails_the_build(small_book: Path, capfd: pytest.CaptureFixture[str]) -> None:
    good = (small_book / "book/page.md").read_text()
    append(small_book, "\nSee [nowhere](nowhere.md).\n\n{term}`a word that no glossary has`\n")
    with pytest.raises(SystemExit, match="errors or warnings"):
        build(small_book)
    said = capfd.readouterr().err
    assert "nowhere" in said and "a word that no glossary has" in said
    (small_book / "book/page.md").write_text(good)
    append(small_book, '\n<img src="https://example.org/x.png" alt="x">\n')
    with pytest.raises(SystemExit, match="ask other hosts"):
        build(small_book)


@pytest.mark.slow
def test_a_site_stands_until_something_changes(
    small_book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    meanwhile: list[Callable[[], object]] = []

    def run_sphinx(root: Path, html: Path, *_: object, **__: object) -> None:
        made.append(html)
        (html / "book").mkdir(parents=True)
        for page in ("index", "page"):
            (html / f"book/{page}.html").write_text("<h1>Page</h1>")
        for change in meanwhile:
            change()
        meanwhile.clear()

    monkeypatch.setattr(book, "run_sphinx", run_sphinx)
    html = build(small_book)
    touched = html / "book/index.html"
    changes = {
        "nothing": lambda: None,
        "a page without code": lambda: (small_book / "book/index.md").write_text("# Begin\n"),
        "settings": lambda: append_to(small_book / "_toc.yml", "# a comment\n"),
        "a new file": lambda: (small_book / "book/more.css").write_text("p { color: red }"),
        "a file of the site is gone": touched.unlink,
        "one was edited": lambda: append_to(touched, "<p>mine</p>"),
        "a page was executed anew": lambda: shutil.rmtree(small_book / "_build/.executed"),
        "nothing again": lambda: None,
    }
    for name, change in changes.items():
        change()
        before = len(made)
        build(small_book)
        assert len(made) - before == (not name.startswith("nothing")), name
    index = small_book / "book/index.md"
    index.write_text("# Once more\n")
    meanwhile.append(lambda: index.write_text("# And again\n"))
    build(small_book)
    index.write_text("# Once more\n")  # which the site may or may not have
    before = len(made)
    build(small_book)
    assert len(made) == before + 1
    append(small_book, "\n```{code-cell} ipython3\n1 / 0\n```\n")
    with pytest.raises(SystemExit):
        build(small_book)
    assert not html.exists()


def test_what_outputs_depend_on_is_in_the_key(tmp_path: Path) -> None:
    for name in ("kernels/decode/a.cu", "kernels/records/h200/r.jsonl.gz", "labtools/x.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1")
    keys = {pages_key(tmp_path)}
    for name in ("kernels/decode/a.cu", "kernels/records/h200/r.jsonl.gz", "labtools/x.py"):
        (tmp_path / name).write_text("2")
        keys.add(pages_key(tmp_path))
    (tmp_path / "labtools/x.py").rename(tmp_path / "labtools/y.py")
    keys.add(pages_key(tmp_path))
    assert len(keys) == 5, "each change must give another key"
    (tmp_path / "labtools/__pycache__").mkdir()
    (tmp_path / "labtools/__pycache__/x.pyc").write_text("compiled")
    assert pages_key(tmp_path) in keys


@pytest.mark.parametrize(
    ("html", "found"),
    [
        ('<script src="https://example.org/x.js"></script>', 1),
        ("<link rel='stylesheet' href='//example.org/x.css'>", 1),
        ('<img alt="a" src="http://example.org/x.png">', 1),
        ("<style>@import url(https://example.org/x.css);</style>", 1),
        ("<style>a { background: url('https://example.org/x.png') }</style>", 1),
        ('<a href="https://example.org/">a link waits for a click</a>', 0),
        ('<script src="_static/x.js"></script><img src="data:image/png;base64,AA">', 0),
    ],
)
def test_outside_requests_are_found(tmp_path: Path, html: str, found: int) -> None:
    (tmp_path / "page.html").write_text(html)
    assert len(outside_requests(tmp_path)) == found


def test_an_altered_package_is_refused(tmp_path: Path) -> None:
    archive = tmp_path / "x.tgz"
    archive.write_bytes(b"not the package")
    for package in PACKAGES:
        with pytest.raises(AssetError, match="hash"):
            check_integrity(archive, package)


class _Socket:
    """A socket whose first wake-ups are lost: a message is there, one long poll misses it."""

    def __init__(self, arrives_after: int) -> None:
        self.polls: list[int] = []
        self.arrives_after = arrives_after

    async def poll(self, timeout_ms: int) -> bool:
        self.polls.append(timeout_ms)
        return len(self.polls) > self.arrives_after


def test_a_lost_wake_up_costs_one_slice() -> None:
    async def receive() -> dict[str, str]:
        return {"a": "message"}

    socket = _Socket(arrives_after=3)
    channel = SimpleNamespace(socket=socket, _recv=receive)
    assert asyncio.run(get_msg(channel, timeout=300)) == {"a": "message"}  # type: ignore[arg-type]
    assert len(socket.polls) == 4
    assert max(socket.polls) <= 500


def test_no_message_ends_in_time() -> None:
    class Never(_Socket):
        async def poll(self, timeout_ms: int) -> bool:
            await asyncio.sleep(timeout_ms / 1000)
            return False

    begun = time.monotonic()
    with pytest.raises(Empty):
        asyncio.run(get_msg(SimpleNamespace(socket=Never(0)), timeout=0.7))  # type: ignore[arg-type]
    assert 0.6 < time.monotonic() - begun < 2
