"""Which pages there are, and what their text holds."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from tools.install import ROOT


def toc_pages(root: Path = ROOT) -> list[str]:
    """The pages of ``_toc.yml``, in order, without endings."""
    toc = yaml.safe_load((root / "_toc.yml").read_text())
    pages = [toc["root"]]

    def walk(node: object) -> None:
        if isinstance(node, list):
            for item in node:
                walk(item)
        elif isinstance(node, dict):
            if "file" in node:
                pages.append(node["file"])
            for key in ("parts", "chapters", "sections"):
                walk(node.get(key))

    walk({key: value for key, value in toc.items() if key != "root"})
    return [page.removesuffix(".md") for page in pages]


def executable_pages(root: Path = ROOT) -> list[str]:
    """The pages of ``_toc.yml`` that have a cell of code."""
    return [page for page in toc_pages(root) if "{code-cell}" in (root / f"{page}.md").read_text()]


def solutions_of(text: str) -> list[str]:
    """The Python blocks inside a page's solutions."""
    return [
        block
        for solution in re.findall(r"^````\{solution\}.*?^````$", text, re.DOTALL | re.MULTILINE)
        for block in re.findall(r"^```python\n(.*?)^```$", solution, re.DOTALL | re.MULTILINE)
    ]
