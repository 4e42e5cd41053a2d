"""Kernels that a reader writes: what a page gives, hints, the solution, typical mistakes.

A kernel's file in ``kernels/*/exercises`` names the rung whose source is the solution, the
``first`` line of a function that is left to the reader, the steps that stand as comments in the
place of its lines, three hints, and typical mistakes with what a check must say of them. With
``header`` the function is one of a header of the rung. The cell begins with the source or at the
line ``shown`` and ends with the function; what it does not show is compiled around it.
"""

from __future__ import annotations

import dataclasses
import textwrap
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from labtools.problem import KernelError, Problem, Rung, load_rung, parse_problem
from labtools.problem.paths import kernels_dir

MOST_COLUMNS = 90  # of a step: so many fit a line of the page
_CLOSED = "namespace closed {}  // is refused where a { of the cell has no }\n"
"""The first line behind a cell, so that a missing brace is not told of a header's line."""


@dataclass(frozen=True)
class Mistake:
    """One typical wrong answer."""

    old: str  # text of the solution, once there
    new: str  # what takes its place
    stage: str  # the stage that fails
    told: str  # words that are then said
    at: str  # text of the line that is named; empty where only numbers are wrong


@dataclass(frozen=True)
class Exercise:
    """A kernel, or a part of one, that a reader writes."""

    name: str  # of its %%cuda cell
    rung: Rung  # whose source is the solution
    least: Problem  # one row
    problem: Problem  # whose battery checks it
    knobs: Mapping[str, int]  # of that battery; the rung's own elsewhere
    large: Problem  # that its time is forecast for
    hidden: tuple[str, str]  # the source's text before the cell's and behind it
    given: tuple[str, str]  # the cell's text before and behind what is to be written
    body: str  # the solution's lines in between
    steps: str  # the comments in their place
    hints: tuple[str, ...]
    mistakes: Mapping[str, Mistake]

    @property
    def start(self) -> str:
        """The text that a page gives."""
        return self.steps.join(self.given)

    @property
    def solution(self) -> str:
        """The rung's own text, as far as the cell shows it."""
        return self.body.join(self.given)

    def rung_of(self, source: str) -> Rung:
        """The rung with this source and the cell's name, which every report then says."""
        if any(self.hidden):
            # Lines count from the cell's first, and what is not shown has names of its own.
            cell = f"{self.name} (cell)"
            names = (f"what stands above {cell}", cell, f"what stands below {cell}")
            texts = (self.hidden[0], source.rstrip() + "\n", _CLOSED + self.hidden[1])
            parts = zip(names, texts, strict=True)
            source = "".join(f'#line 1 "{name}"\n{text}' for name, text in parts)
        return dataclasses.replace(self.rung.with_source(source), id=self.name)


@cache
def load_exercise(name: str) -> Exercise:
    """The exercise of a ``%%cuda`` cell. Raises KernelError: there is none of that name, or its
    lines are not in the rung's source."""
    file = exercise_files().get(name)
    if file is None:
        known = ", ".join(sorted(exercise_files()))
        raise KernelError(f"There is no kernel to write called {name}.", f"there are: {known}")
    told = tomllib.loads(file.read_text("utf-8"))
    rung = load_rung(told["rung"])
    text = _with_header(rung, told["header"]) if "header" in told else rung.source_text
    front, body, rest = _cut(text, told["first"], file)
    begin = front.index("\n" + told["shown"]) + 1 if "shown" in told else 0
    indent = body[: len(body) - len(body.lstrip())]
    steps = "\n".join(_step(indent, *one) for one in enumerate(told["steps"], 1)) + "\n"
    return Exercise(
        name=name,
        rung=rung,
        least=parse_problem(told["least"]),
        problem=parse_problem(told["problem"]),
        knobs=told.get("knobs", {}),
        large=parse_problem(told["large"]),
        hidden=(front[:begin], rest),
        given=(front[begin:], "}\n"),
        body=body,
        steps=steps,
        hints=tuple(told["hints"]),
        mistakes={key: Mistake(*values) for key, values in told["mistakes"].items()},
    )


def exercise_files() -> dict[str, Path]:
    """The file of each exercise, by the name of its cell."""
    return {one.stem: one for one in kernels_dir().glob("*/exercises/*.toml")}


def _step(indent: str, number: int, text: str) -> str:
    """A step as lines of comments that fit a line of the page."""
    first, more = f"{indent}// {number}. ", f"{indent}//    "
    return textwrap.fill(
        *(text, MOST_COLUMNS), initial_indent=first, subsequent_indent=more,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def _with_header(rung: Rung, name: str) -> str:
    """The source with a header of its own in the place of its ``#include``."""
    file = next(one for folder in rung.include_dirs if (one := folder / name).is_file())
    text = file.read_text("utf-8").replace("#pragma once\n", "")
    return rung.source_text.replace(f'#include "{name}"\n', text)


def _cut(text: str, first: str, file: Path) -> tuple[str, str, str]:
    """A source before a function's lines, these from the one that begins with ``first`` on, and
    what is behind the function."""
    lines = text.splitlines(keepends=True)
    starts = [number for number, line in enumerate(lines) if line.startswith(first)]
    if len(starts) != 1:
        why = f"its source has no such line, or several: {first!r}"
        raise KernelError(f"{file.name} does not fit its rung.", why)
    begin = starts[0]
    end = lines.index("}\n", begin)
    return "".join(lines[:begin]), "".join(lines[begin:end]), "".join(lines[end + 1 :])
