"""Kernels that a reader writes: what a page gives, hints, the solution, typical mistakes.

A kernel's file in ``kernels/*/exercises`` names the rung whose source is the solution, the lines of
it that are left to the reader, the comments that stand in their place, three hints, and typical
mistakes with what a check must say of them.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from labtools.problem import KernelError, Problem, Rung, load_rung, parse_problem
from labtools.problem.paths import kernels_dir


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
    large: Problem  # that its time is forecast for
    given: tuple[str, str]  # the text before and behind what is to be written
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
        """The rung's own text."""
        return self.body.join(self.given)

    def rung_of(self, source: str) -> Rung:
        """The rung with this source and the cell's name, which every report then says."""
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
    before, body, behind = _cut(rung.source_text, told["first"], told["last"], file)
    indent = body[: len(body) - len(body.lstrip())]
    steps = "".join(f"{indent}// {line}\n" for line in told["steps"])
    return Exercise(
        name=name,
        rung=rung,
        least=parse_problem(told["least"]),
        problem=parse_problem(told["problem"]),
        large=parse_problem(told["large"]),
        given=(before, behind),
        body=body,
        steps=steps,
        hints=tuple(told["hints"]),
        mistakes={key: Mistake(*values) for key, values in told["mistakes"].items()},
    )


def exercise_files() -> dict[str, Path]:
    """The file of each exercise, by the name of its cell."""
    return {one.stem: one for one in kernels_dir().glob("*/exercises/*.toml")}


def _cut(text: str, first: str, last: str, file: Path) -> tuple[str, str, str]:
    """A source in three; ``first`` and ``last`` begin the first and the last line to write."""
    lines = text.splitlines(keepends=True)
    starts = [number for number, line in enumerate(lines) if line.startswith(first)]
    ends = [number for number, line in enumerate(lines) if line.startswith(last)]
    if len(starts) != 1 or not ends or ends[-1] < starts[0]:
        why = f"its source has no such lines, or several: {first!r} to {last!r}"
        raise KernelError(f"{file.name} does not fit its rung.", why)
    begin, end = starts[0], ends[-1] + 1
    return "".join(lines[:begin]), "".join(lines[begin:end]), "".join(lines[end:])
