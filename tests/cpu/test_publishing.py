"""The site with an address and without one, its notebooks, its archive and the citation file."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import nbformat
import pytest
import yaml

from tools.book import archive
from tools.install import ROOT
from tools.site_assets import PACKAGES

CONF = """
import sys
sys.path[:0] = [{root!r}, {ext!r}]
extensions = ["myst_parser", "publishing"]
project, author, html_theme = "A guide", "Some authors", "sphinx_book_theme"
html_theme_options = {{"use_download_button": False}}
myst_enable_extensions = ["dollarmath"]
root_doc, site_url, repository_url = "book/index", {site_url!r}, {repository_url!r}
"""
GLOSSARY = """# Glossary

```{glossary}
warp
  Thirty-two lanes; see {term}`lane`, or $2^5$.

lane
  One of them.
```
"""
PAGES = {
    "book/index": "# Start\n\nA {term}`warp` has a first sentence.\n\n"
    "```{code-cell} ipython3\n1 + 1\n```\n\n```{toctree}\nglossary\n```\n",
    "book/glossary": GLOSSARY,
}


def make_site(folder: Path, site_url: str = "", repository_url: str = "") -> Path:
    source = folder / "source"
    for page, text in PAGES.items():
        (source / page).parent.mkdir(parents=True, exist_ok=True)
        (source / f"{page}.md").write_text(text)
    toc = {"root": "book/index", "chapters": [{"file": "book/glossary"}]}
    (source / "_toc.yml").write_text(yaml.safe_dump(toc))
    conf = {"root": str(ROOT), "ext": str(ROOT / "book" / "_ext")}
    conf |= {"site_url": site_url, "repository_url": repository_url}
    (source / "conf.py").write_text(CONF.format(**conf))
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-q",
        "-b",
        "html",
        str(source),
        str(folder / "html"),
    ]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return folder / "html"


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_site(tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("published")
    return make_site(folder, "https://guide.example/here", "https://github.com/some/guide")


def test_without_an_address_nothing_names_one(plain: Path) -> None:
    text = (plain / "book" / "index.html").read_text()
    for name in ("canonical", "og:url", "citation_", "mybinder", "issues/new", "None"):
        assert name not in text, name


def test_with_an_address_pages_are_cited_previewed_and_corrected(published: Path) -> None:
    text = (published / "book" / "index.html").read_text()
    address = "https://guide.example/here/book/index.html"
    assert f'<link rel="canonical" href="{address}"' in text
    assert f'<meta property="og:url" content="{address}"' in text
    assert "has a first sentence" in text.split("og:description")[1].split("/>")[0]
    assert f'<meta name="citation_public_url" content="{address}"' in text
    assert '<meta name="citation_title" content="Start"' in text
    assert "https://github.com/some/guide/issues/new" in text
    assert "https://mybinder.org/v2/gh/some/guide/main" in text


def test_a_word_says_what_it_means(plain: Path) -> None:
    assert 'data-term="term-warp"' in (plain / "book" / "index.html").read_text()
    script = (plain / "_static" / "glossary.js").read_text()
    tips = json.loads(script.partition("=")[2].rstrip(";\n"))
    assert set(tips) == {"term-warp", "term-lane"}
    assert "Thirty-two lanes" in tips["term-warp"]
    assert "\\(2^5\\)" in tips["term-warp"]
    assert "<a" not in tips["term-warp"]


@pytest.mark.parametrize("name", ["plain", "published"])
def test_a_page_with_code_is_a_notebook_that_installs(
    name: str, request: pytest.FixtureRequest
) -> None:
    html = request.getfixturevalue(name)
    here = html / "_static" / "notebooks" / "book"
    assert [one.name for one in here.iterdir()] == ["index.ipynb"]
    assert "_static/notebooks/book/index.ipynb" in (html / "book" / "index.html").read_text()
    assert ".ipynb" not in (html / "book" / "glossary.html").read_text()
    notebook = nbformat.read(here / "index.ipynb", as_version=4)
    nbformat.validate(notebook)
    first, *others = notebook.cells
    assert ("github.com/some/guide" in first.source) == (name == "published")
    assert "import" in first.source
    assert [one.source for one in others if one.cell_type == "code"] == ["1 + 1"]


def test_the_archive_holds_the_site_and_is_the_same_twice(plain: Path, tmp_path: Path) -> None:
    one, two = (archive(plain, tmp_path / f"{n}.zip") for n in "ab")
    assert one.read_bytes() == two.read_bytes()
    with zipfile.ZipFile(one) as packed:
        names = set(packed.namelist())
        assert packed.read("book/index.html") == (plain / "book" / "index.html").read_bytes()
    files = {path.relative_to(plain).as_posix() for path in plain.rglob("*") if path.is_file()}
    assert names == files | {".nojekyll"}


def test_the_citation_says_what_the_project_says() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    config = yaml.safe_load((ROOT / "_config.yml").read_text())
    assert cited["title"] == config["title"]
    assert [config["author"]] == [one["name"] for one in cited["authors"]]
    assert (cited["version"], cited["license"]) == (project["version"], project["license"])
    assert config["sphinx"]["config"]["site_url"] == ""
    assert config["sphinx"]["config"]["repository_url"] == ""


def test_what_the_site_carries_has_its_licence() -> None:
    text = (ROOT / "book" / "sources.md").read_text()
    for package in PACKAGES:
        assert f"`{package.package.rpartition('@')[0]}`" in text
