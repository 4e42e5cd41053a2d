"""What a page needs, takes and gives: the line below its title, and the start page's list.

Both are written by `labtools.notebook.sync` from ``book/pages.toml``; the minutes are
`labtools.notebook.effort`'s.
"""

from __future__ import annotations

import posixpath
import re
import tomllib
from functools import lru_cache
from pathlib import Path
from typing import Any

from labtools.problem import LabError

from .effort import HEAD, effort_of

TABLE = "book/pages.toml"
_TITLE = re.compile(rf"^# (.+)\n\n(?:{re.escape(HEAD)}.*\n\n)?", re.MULTILINE)
_LIST = re.compile(
    r"(?<=<summary>Show every page and every lab, each in a line</summary>\n)(?s:.*?)(?=</details>)"
)


@lru_cache(maxsize=8)
def read_pages(root: Path) -> dict[str, dict[str, Any]]:
    """The table by the pages' paths without ending, in the order of ``_toc.yml``; empty where the
    tree has none. Raises LabError: the two name different pages."""
    path = root / TABLE
    if not path.is_file():
        return {}
    folders = tomllib.loads(path.read_text(encoding="utf-8"))
    pages = {
        f"{folder}/{name}": one for folder, names in folders.items() for name, one in names.items()
    }
    listed = re.findall(r"^ +- file: (\S+)", (root / "_toc.yml").read_text(encoding="utf-8"), re.M)
    if differ := sorted(set(listed) ^ set(pages)):
        what = f"{TABLE} and _toc.yml name different pages: {', '.join(differ)}."
        raise LabError(what, "each page of the contents says what it gives", "correct the table")
    return {page: pages[page] for page in listed}


def with_head(name: str, text: str, root: Path) -> str:
    """The text of a page, ``name`` being its path with its ending, with its line of needs; of the
    start page with its list of all pages."""
    page = name.removesuffix(".md")
    pages = read_pages(root)
    if page == "book/index" and pages:
        rows = [
            f"- [{_title(root, one)}]({_link(page, one)}): {told['gives']}"
            for one, told in pages.items()
        ]
        return _LIST.sub(lambda _: "\n" + "\n".join(rows) + "\n\n", text)
    if "needs" not in pages.get(page, {}):
        return text
    told = pages[page]
    needs = [f"[{_title(root, one).split(':')[0]}]({_link(page, one)})" for one in told["needs"]]
    head = f"*Needs* {' and '.join(needs)}. " if needs else ""
    writing = " and your writing" if "\ntry_" in text else ""
    head += f"*Takes* {round(effort_of(text).minutes)} minutes{writing}. *Gives* {told['gives']}."
    return _TITLE.sub(lambda found: f"# {found[1]}\n\n{HEAD}{head}\n\n", text, count=1)


def _title(root: Path, page: str) -> str:
    found = _TITLE.search((root / f"{page}.md").read_text(encoding="utf-8"))
    if found is None:
        raise LabError(f"{page}.md has no title.", "no line begins with one #", "give it one")
    return found[1]


def _link(page: str, other: str) -> str:
    return posixpath.relpath(f"{other}.md", posixpath.dirname(page))
