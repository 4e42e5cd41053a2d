"""How long a page takes to work through: an estimate from its text, and routes through the pages.

The rates are a choice, not a measurement: a reader of technical text, who reads the kernels and
answers every question. Exercises and experiments with knobs come on top.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from labtools.problem import LabError, repository_root

from .cells import code_cells, is_plumbing
from .labs.lab04_predict.draw import LEVELS
from .tables import Shown, show_table

WORDS_A_MINUTE = 120
LINES_A_MINUTE = 12
"""Of code that stands open: kernels, launches and what a page teaches in Python."""
QUESTION_MINUTES = 2
HEAD = "> "
"""Begins the line that says what a page needs, takes and gives."""

_FENCE = re.compile(r"^(`{3,}|~{3,})(\{[\w-]+\})?")
_QUESTION = re.compile(r"\bask(?:_choice|_numbers)?\(")
_PLAYED = re.compile(
    r"^(\w+) = draw_rounds\([^\n]*\bper_level=(\d+)\)$(?=.*\bplay_rounds\(\1\b)", re.M | re.S
)
"""Rounds of the prediction game, each a question: so many of every level."""
_LINK = re.compile(r"\]\(([\w./-]+\.md)\)")
_LIST_ITEM = re.compile(r"^(?:\d+\.|-) ")


@dataclass(frozen=True)
class PageEffort:
    """What a page holds."""

    title: str  # its first heading
    words: int  # of its prose, without solutions
    lines: int  # of code that stands open
    questions: int  # that the reader answers before a result, rounds of the game among them
    exercises: int  # at its end and within

    @property
    def minutes(self) -> float:
        """Reading and answering, without exercises."""
        reading = self.words / WORDS_A_MINUTE + self.lines / LINES_A_MINUTE
        return reading + QUESTION_MINUTES * self.questions


def effort_of(text: str) -> PageEffort:
    """What a page's text holds. Raises LabError: when it has no heading."""
    lines = text.split("\n---\n", 1)[-1].splitlines()
    title = next((line[2:] for line in lines if line.startswith("# ")), None)
    if title is None:
        raise LabError("This page has no title.", "no line begins with one #", "give it one")
    cells = list(code_cells(lines))
    inside = {number for cell in cells for number in range(cell.start, cell.end + 1)}
    open_lines = questions = 0
    sources: list[str] = []
    for cell in cells:
        source = "\n".join(lines[cell.body : cell.end])
        lesson = any("lesson" in line for line in lines[cell.start : cell.body])
        if source.startswith(("%%cuda", "# launch of")) or lesson or not is_plumbing(source):
            open_lines += sum(bool(line.strip()) for line in source.splitlines())
        questions += len(_QUESTION.findall(source))
        sources.append(source)
    played = _PLAYED.findall("\n".join(sources))
    questions += sum(len(LEVELS) * int(per_level) for _, per_level in played)
    prose = _prose(line for number, line in enumerate(lines) if number not in inside)
    exercises = sum(line.lstrip("`").startswith("{exercise}") for line in lines)
    words = len(re.findall(r"\w+", " ".join(prose)))
    return PageEffort(title, words, open_lines, questions, exercises)


def _prose(lines: Iterable[str]) -> list[str]:
    """Lines outside of solutions and plain fences."""
    kept: list[str] = []
    closing = ""
    for line in lines:
        match = _FENCE.match(line)
        if closing:
            closing = "" if line.strip() == closing else closing
        elif match and match[2] == "{exercise}":
            continue
        elif match and line.strip() != match[1]:
            closing = match[1]
        elif not line.startswith((":", HEAD)):  # an option of a directive, or the page's head
            kept.append(line)
    return kept


def route_of(page: str, heading: str, root: Path | None = None) -> list[str]:
    """The pages that the list under a heading of a page, without its marks, leads to, in its order.

    Raises LabError: there is no such heading, or no link below it.
    """
    root = root or repository_root()
    text = (root / page).read_text()
    found = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#+ |\Z)", text, re.M | re.S)
    items = [line for line in (found[1] if found else "").splitlines() if _LIST_ITEM.match(line)]
    links = [match[1] for match in map(_LINK.search, items) if match]
    if not links:
        why = "a route is a list with a link in each item"
        raise LabError(f"{page} names no pages under {heading!r}.", why)
    folder = (root / page).parent
    return [(folder / link).resolve().relative_to(root.resolve()).as_posix() for link in links]


def show_route(page: str, heading: str) -> Shown:
    """How long the pages under a heading of a page take, one by one and together."""
    root = repository_root()
    found = [effort_of((root / name).read_text()) for name in route_of(page, heading)]
    rows = [(one.title, round(one.minutes), one.questions, one.exercises) for one in found]
    minutes, questions, exercises = (sum(counts) for counts in list(zip(*rows, strict=True))[1:])
    rows.append(("together", minutes, questions, exercises))
    note = (
        f"an estimate: {WORDS_A_MINUTE} words or {LINES_A_MINUTE} lines of open code a "
        f"minute, {QUESTION_MINUTES} minutes a question; exercises come on top"
    )
    columns = ("page", "minutes", "questions", "exercises")
    return show_table(columns, rows, word="computed", note=note)
