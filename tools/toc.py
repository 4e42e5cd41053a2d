"""Which pages there are, and what their text holds."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from tools.install import ROOT


def toc_parts(root: Path = ROOT) -> list[tuple[str, list[str]]]:
    """The parts of ``_toc.yml``, each with its pages in order, without endings.

    The first has no name: the start page, and what stands in no part.
    """
    toc = yaml.safe_load((root / "_toc.yml").read_text())
    parts: list[tuple[str, list[str]]] = [("", [toc["root"].removesuffix(".md")])]

    def walk(node: object) -> None:
        if isinstance(node, list):
            for item in node:
                walk(item)
        elif isinstance(node, dict):
            if "caption" in node:
                parts.append((node["caption"], []))
            if "file" in node:
                parts[-1][1].append(node["file"].removesuffix(".md"))
            for key in ("parts", "chapters", "sections"):
                walk(node.get(key))

    walk({key: value for key, value in toc.items() if key != "root"})
    return parts


def toc_pages(root: Path = ROOT) -> list[str]:
    """The pages of ``_toc.yml``, in order, without endings."""
    return [page for _, pages in toc_parts(root) for page in pages]


def executable_pages(root: Path = ROOT) -> list[str]:
    """The pages of ``_toc.yml`` that have a cell of code."""
    return [page for page in toc_pages(root) if "{code-cell}" in (root / f"{page}.md").read_text()]


_BLOCK = re.compile(
    r"^(?P<fence>`{3,}|~{3,})(?P<info>[^`\n]+)\n(?P<body>.*?)^(?P=fence)[ \t]*$",
    re.DOTALL | re.MULTILINE,
)
_OPTIONS = re.compile(r"\A\s*(?:---\n.*?\n---\n|(?::[\w-]+:[^\n]*\n)+)", re.DOTALL)


def code_of(text: str) -> str:
    """A page's Python, that of its solutions too, on the lines where it stands in the page.

    Every other line is empty: prose, options of a cell, cells of another language, magics.
    """
    lines = [""] * (text.count("\n") + 1)
    _fill(lines, text, 0, in_solution=False)
    return "\n".join(lines)


def _fill(lines: list[str], text: str, first: int, in_solution: bool) -> None:
    for block in _BLOCK.finditer(text):
        start = first + text[: block.start("body")].count("\n")
        info, body = block["info"].strip(), block["body"]
        if info.startswith(("{exercise", "{solution")):
            _fill(lines, body, start, info.startswith("{solution"))
        elif info.startswith("{code-cell}") or (in_solution and info == "python"):
            options = _OPTIONS.match(body)
            start += options[0].count("\n") if options else 0
            own = body[options.end() :] if options else body
            if own.lstrip().startswith("%%") and not own.lstrip().startswith("%%solution"):
                continue
            for number, line in enumerate(own.splitlines(), start):
                lines[number] = "" if line.lstrip().startswith(("%", "!")) else line


def solutions_of(text: str) -> list[str]:
    """The Python blocks inside a page's solutions."""
    return [
        block
        for solution in re.findall(r"^````\{solution\}.*?^````$", text, re.DOTALL | re.MULTILINE)
        for block in re.findall(r"^```python\n(.*?)^```$", solution, re.DOTALL | re.MULTILINE)
    ]
