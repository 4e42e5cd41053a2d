"""The code cells of a page's text, and which of them are shown folded.

Open is what a page teaches: kernels, launches, and the short cells that a reader may change.
Folded, by one rule that ``make regen`` writes into the pages, are imports, questions, and whatever
is long, but for a cell that carries the tag ``lesson``; kernels from a length at which nobody reads
them line by line. Of a cell that asks the site shows the form alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

MOST_OPEN_LINES = 6
"""Lines of Python that a cell may have and stay open; empty lines do not count."""

MOST_KERNEL_LINES = 70
"""Lines of a kernel or a launch that stays open."""

LESSON = "lesson"

_FENCE = re.compile(r"^(?P<ticks>`{3,}|~{3,})\{code-cell\}")
_KERNEL = re.compile(r"%%cuda\b|# launch of ")
_SOLUTION = re.compile(r"%%solution\b")
_SET_UP = re.compile(r"%load_ext|import |from |(?s:.*\bglobals\(\))")
_ASKS = re.compile(r"^(?:\w+ = )?ask(?:_choice|_numbers)?\(", re.MULTILINE)
_RESULT = re.compile(r"^(?:\w+ = )?\w+\.result\(", re.MULTILINE)
_FOLDS = ("hide-input", "hide-cell", "remove-input")
_WRITTEN = ("tags", "jupyter", "mystnb")


def _prompts(what: str) -> dict[str, str]:
    return {"code_prompt_show": f"Show the {what}", "code_prompt_hide": f"Hide the {what}"}


@dataclass(frozen=True)
class PageCell:
    """A code cell of a page's text: line numbers count from 0, ``end`` is the closing fence."""

    start: int
    body: int
    end: int


def code_cells(lines: Sequence[str]) -> Iterator[PageCell]:
    """The code cells of a MyST notebook's text."""
    number = 0
    while number < len(lines):
        opening = _FENCE.match(lines[number])
        if opening is None:
            # A plain fence may show how a cell is written; what is inside it is not a cell.
            plain = re.match(r"^(`{3,}|~{3,})", lines[number])
            number = closing_line(lines, number, plain[1]) + 1 if plain else number + 1
            continue
        end = closing_line(lines, number, opening["ticks"])
        body = number + 1
        if body < end and lines[body].strip() == "---":
            while body + 1 < end and lines[body + 1].strip() != "---":
                body += 1
            body += 2
        else:
            while body < end and lines[body].startswith(":"):
                body += 1
        while body < end and not lines[body].strip():
            body += 1
        yield PageCell(number, body, end)
        number = end + 1


def closing_line(lines: Sequence[str], start: int, ticks: str) -> int:
    """The line that closes the fence opened at ``start``; past the end when it never closes."""
    closing = re.compile(rf"^{re.escape(ticks[0])}{{{len(ticks)},}}\s*$")
    after = range(start + 1, len(lines))
    return next((number for number in after if closing.match(lines[number])), len(lines))


def asks(source: str) -> bool:
    """Whether a cell asks its reader a question."""
    return _ASKS.search(source) is not None


def is_plumbing(source: str) -> bool:
    """Whether a cell of Python is folded, by its text alone."""
    length = sum(bool(line.strip()) for line in source.splitlines())
    holds = _SET_UP.match(source) or asks(source) or _RESULT.search(source)
    return bool(length > MOST_OPEN_LINES or holds)


def fold_options(options: Sequence[str], source: str) -> list[str]:
    """A cell's option lines as the rule wants them; the same lines where they fit it."""
    kernel = _KERNEL.match(source)
    length = sum(bool(line.strip()) for line in source.splitlines())
    if not source.strip() or (kernel and length <= MOST_KERNEL_LINES):
        return list(options)
    found = _read_options(options)
    tags = [tag for tag in found.get("tags", ()) if tag not in _FOLDS]
    hidden = {key: found["jupyter"][key] for key in found.get("jupyter", ()) if "hidden" not in key}
    wanted = {name: found[name] for name in found if name not in _WRITTEN}
    if _SOLUTION.match(source):
        tags, hidden = ["hide-cell", *tags], {**hidden, "source_hidden": True}
        wanted["mystnb"] = _prompts("solution")
    elif kernel:
        tags, hidden = ["hide-input", *tags], {**hidden, "source_hidden": True}
        wanted["mystnb"] = _prompts("whole kernel")
    elif is_plumbing(source) and LESSON not in tags:
        fold = "remove-input" if asks(source) else "hide-input"
        tags, hidden = [fold, *tags], {**hidden, "source_hidden": True}
    wanted |= {name: value for name, value in (("tags", tags), ("jupyter", hidden)) if value}
    if wanted == found:
        return list(options)
    names = [*(name for name in _WRITTEN if name in wanted), *sorted(set(wanted) - set(_WRITTEN))]
    dumped = {
        name: yaml.safe_dump(wanted[name], default_flow_style=True, width=1000) for name in names
    }
    # YAML ends a bare word with a line of dots.
    written = [f":{name}: {text.splitlines()[0]}" for name, text in dumped.items()]
    return [*written, ""] if written else []


def _read_options(options: Sequence[str]) -> dict[str, Any]:
    lines = [line for line in options if line.strip() and line.strip() != "---"]
    text = "\n".join(line[1:] if line.startswith(":") else line for line in lines)
    return yaml.safe_load(text) or {}
