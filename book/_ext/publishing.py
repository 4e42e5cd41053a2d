"""What a published site has: words that explain themselves, pages as notebooks, an address.

``site_url`` and ``repository_url`` of ``_config.yml`` are empty by default. With the first each
page has its canonical address, a preview for whoever links to it, and how to cite it; with the
second each page links to its source, to a form for errors and to Binder.
"""

from __future__ import annotations

import functools
import json
import re
import sys
from html import escape
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from docutils import nodes
from sphinx import addnodes

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.toc import executable_pages

pages_with_code = functools.cache(executable_pages)
GLOSSARY = "book/glossary"
NOTEBOOKS = "_static/notebooks"
_TERM = re.compile(
    r'(<a class="reference internal" href="[^"]*#(term-[^"]+)")(?=><span class="xref)'
)
_LINK = re.compile(r"</?a\b[^>]*>")
_ON_GITHUB = re.compile(r"https://github\.com/([^/]+/[^/]+?)(?:\.git)?/?")
INSTALL = """\
# On a machine without a copy of the guide, such as Colab, this fetches and installs one.
import importlib.util

if importlib.util.find_spec("labtools") is None:
    !git clone -q --depth 1 {url} guide && pip install -q -e guide
    %cd guide"""
NO_REPOSITORY = """\
# This page needs the guide's own packages. In a copy of the guide the command "make lab" installs
# them and opens the page.
import labtools"""


def add_address(app: Any, config: Any) -> None:
    """Give Sphinx and the theme the addresses, where there are any."""
    if config.site_url:
        config.html_baseurl = config.ogp_site_url = config.site_url.rstrip("/") + "/"
    if config.repository_url:
        config.html_theme_options = {
            **config.html_theme_options,
            "repository_url": config.repository_url,
            "repository_branch": "main",
            "use_issues_button": True,
            "use_source_button": True,
        }


def add_button(context: dict[str, Any], url: str, icon: str, tooltip: str) -> None:
    """Add a link with a picture of Font Awesome's to the header of a page."""
    button = {"type": "link", "url": url, "icon": f"fas fa-{icon}", "tooltip": tooltip}
    context["header_buttons"].append({**button, "label": f"{icon}-button"})


def add_to_page(app: Any, page: str, template: str, context: dict[str, Any], tree: Any) -> None:
    """Mark the words of the glossary; add the page's download and how to cite it."""
    if "body" in context:
        body = _TERM.sub(r'\1 data-term="\2"', context["body"])
        # Docutils calls it a list, of things that are none of a list's.
        context["body"] = body.replace(
            '<div role="list" class="citation-list">', '<div class="citations">'
        )
    if page in pages_with_code(Path(app.srcdir)):
        notebook = context["pathto"](f"{NOTEBOOKS}/{page}.ipynb", 1)
        add_button(context, notebook, "download", "Download this page as a notebook")
        if on_github := _ON_GITHUB.fullmatch(app.config.repository_url):
            binder = f"https://mybinder.org/v2/gh/{on_github[1]}/main?labpath={page}.md"
            add_button(context, binder, "rocket", "Open this page on Binder")
    if app.config.site_url and page in app.env.titles:
        title = re.sub(r"<[^>]+>", "", context["title"])
        cited = (
            ("title", title),
            ("author", app.config.author),
            ("public_url", context["pageurl"]),
        )
        tags = (f'<meta name="citation_{name}" content="{escape(said)}" />' for name, said in cited)
        context["metatags"] = "\n".join((context.get("metatags", ""), *tags))


def glossary_tips(app: Any) -> dict[str, str]:
    """What each word of the glossary means, in HTML without links, by the anchor of its line."""
    tips: dict[str, str] = {}
    if GLOSSARY not in app.env.all_docs:
        return tips
    tree = app.env.get_and_resolve_doctree(GLOSSARY, app.builder)
    for glossary in tree.findall(addnodes.glossary):
        for item in glossary.findall(nodes.definition_list_item):
            said = "".join(app.builder.render_partial(one)["fragment"] for one in item[-1].children)
            for term in item.findall(nodes.term):
                tips |= dict.fromkeys(term["ids"], _LINK.sub("", said))
    return tips


def page_as_notebook(text: str, repository_url: str) -> nbformat.NotebookNode:
    """A page as a notebook without outputs whose first cell installs the guide where it is not."""
    notebook = jupytext.reads(text, fmt="md:myst")
    code = INSTALL.format(url=repository_url) if repository_url else NO_REPOSITORY
    notebook.cells.insert(0, nbformat.v4.new_code_cell(code, id="install"))
    return notebook


def add_files(app: Any, exception: Exception | None) -> None:
    """Write the glossary's explanations and the pages' notebooks into the site."""
    if exception is not None or app.builder.format != "html":
        return
    static, root = Path(app.outdir) / "_static", Path(app.srcdir)
    tips = json.dumps(glossary_tips(app), ensure_ascii=False, sort_keys=True)
    (static / "glossary.js").write_text(f"window.GLOSSARY = {tips};\n", encoding="utf-8")
    for page in pages_with_code(root):
        path = Path(app.outdir) / NOTEBOOKS / f"{page}.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        text = (root / f"{page}.md").read_text(encoding="utf-8")
        nbformat.write(page_as_notebook(text, app.config.repository_url), path)


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_config_value("site_url", "", "html")
    app.add_config_value("repository_url", "", "html")
    if app.config.site_url:
        app.setup_extension("sphinxext.opengraph")
    app.connect("config-inited", add_address, priority=100)
    app.connect("html-page-context", add_to_page, priority=502)
    app.connect("build-finished", add_files)
    app.add_js_file("glossary.js")
    app.add_js_file("site.js")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
