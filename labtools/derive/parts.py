"""The parts of every derivation: numbers with their sources, steps with what they reject, and the
sheet of words that an operation's steps stand on."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

WARP = 32
MOST_STAGES = 8
"""Stages of the longest ring that is looked at."""
NOT_TOLD_APART = 1.03
"""Tiles that take at most so many times the least are alike to a model. A choice."""
ALIKE = 1.10
"""Tiles that take at most so many times the best one's time are for a measurement to decide."""
PER_COPY = 4
"""Instructions of one 16-byte copy: itself, its condition, its addresses. Counted in r09's machine
code."""
ISSUE_CYCLES = 1.6
"""Cycles a warp takes for an instruction when no other shares its scheduler, without waits: most
integer and conversion pipes take one every two cycles."""
WHERE_IT_STOPS = (
    "Analysis stops here: it does not know the compiler's instructions, conflicts in the L2 nor "
    "the clock under load, so tiles within a tenth of the best are for a measurement to decide."
)


Ties = Mapping[str, tuple[float, float]]
"""By the unit of an alternative's number, from where on and below which it is as good as the
choice."""


@dataclass(frozen=True)
class Figure:
    """One number of a derivation."""

    name: str
    value: float
    unit: str  # ``bytes``, ``us``, ``GB/s``, ``B/cycle``, ``cycles``, ... or an empty string.
    source: str = ""  # a data sheet, a microbenchmark, a formula of this step


@dataclass(frozen=True)
class Rejected:
    """An alternative, and the number that speaks against it."""

    choice: str
    value: float
    unit: str
    why: str  # what the number is, and what it would have to be
    tie: bool = False  # whether it is as good as the choice to the model, see `Sheet.step`

    @property
    def word(self) -> str:
        """What stands before it."""
        return "tie" if self.tie else "not"


@dataclass(frozen=True)
class DesignStep:
    """One step from the limits to the kernel."""

    name: str  # short, for tables and tests, such as ``bytes``, ``tile`` or ``alignment``
    question: str  # what is decided
    inputs: tuple[Figure, ...]
    formula: str  # how the inputs are joined, in words and symbols
    results: tuple[Figure, ...]  # the first is the step's answer
    decision: str  # what follows for the kernel, one sentence
    breaks: str  # what would make it wrong
    rejected: tuple[Rejected, ...] = ()

    @property
    def answer(self) -> Figure:
        """The first result."""
        return self.results[0]

    def input(self, name: str) -> float:
        """An input's value by name; a KeyError where the step has none."""
        return {one.name: one.value for one in reversed(self.inputs)}[name]

    def result(self, name: str) -> float:
        """A result's value by name; a KeyError where the step has none."""
        return {one.name: one.value for one in reversed(self.results)}[name]


@dataclass(frozen=True)
class AnyDesign:
    """What every derivation comes to."""

    gpu: str  # short name of the GPU
    calibrated: bool  # its latencies and rates were measured by this project
    layout: str  # of rows in shared memory, see `labtools.predict.banks`
    time_us: float  # expected
    steps: tuple[DesignStep, ...]

    def step(self, name: str) -> DesignStep:
        """A step by name; a KeyError where there is none."""
        return {one.name: one for one in self.steps}[name]

    @property
    def title(self) -> str:
        """What was derived, and for which GPU."""
        raise NotImplementedError

    @property
    def summary(self) -> str:
        """The kernel in one line: sizes, shared memory, time."""
        raise NotImplementedError


def tied_times(time_us: float) -> Ties:
    """Kernels that the model does not tell apart from one that takes so long."""
    return {"us": (0.0, ALIKE * time_us)}


_Row = TypeVar("_Row", Figure, Rejected)


class Sheet:
    """What the steps of an operation say, from a TOML file: a section a step with its ``question``,
    ``inputs``, ``formula``, ``results``, ``decision``, ``breaks`` and ``rejected``.

    A row is ``[name, unit, source]``, and of what is rejected ``[choice, unit, why]``. In braces
    stand the step's figures by name, and what else it is given. A table in place of a text or of
    rows holds one for each case.
    """

    def __init__(self, path: Path) -> None:
        self._steps: dict[str, dict[str, Any]] = tomllib.loads(path.read_text("utf-8"))

    def step(
        self,
        name: str,
        inputs: Sequence[Any],
        results: Sequence[Any],
        rejected: Sequence[Any] = (),
        case: str = "",
        words: Mapping[str, Any] | None = None,
        ties: Ties | None = None,
    ) -> DesignStep:
        """A step with its numbers, in the order of the rows of its section.

        None leaves a row out, and a mapping makes a row of each item, whose name is ``{each}``. A
        `Figure` or a `Rejected` stands as it is, beside the rows. What is rejected with a number
        within ``ties`` is a tie.
        """
        spans = ties or {}

        def judged(one: Rejected) -> Rejected:
            low, high = spans.get(one.unit, (1.0, 0.0))
            return replace(one, tie=low <= one.value < high)

        said = self._steps[name]

        def held(part: str) -> Any:
            value = said.get(part, ())
            return value[case] if isinstance(value, dict) else value

        known = dict(words or {})
        for part, values in (("inputs", inputs), ("results", results)):
            numbers = (one for one in values if not isinstance(one, Figure))
            for (row, *_), value in zip(held(part), numbers, strict=True):
                known[row] = value

        def text(part: str) -> str:
            return str(held(part)).format_map(known)

        return DesignStep(
            name,
            text("question"),
            _fill(Figure, held("inputs"), inputs, known),
            text("formula"),
            _fill(Figure, held("results"), results, known),
            text("decision"),
            text("breaks"),
            tuple(map(judged, _fill(Rejected, held("rejected"), rejected, known))),
        )


def _fill(
    kind: type[_Row], rows: Iterable[Sequence[str]], values: Sequence[Any], words: Mapping[str, Any]
) -> tuple[_Row, ...]:
    made: list[_Row] = []
    left = iter(rows)
    for value in values:
        if isinstance(value, kind):
            made.append(value)
            continue
        row = next(left)
        for each, one in value.items() if isinstance(value, Mapping) else [("", value)]:
            if one is not None:
                name, unit, said = (text.format_map({**words, "each": each}) for text in row)
                made.append(kind(name, one, unit, said))
    if without := list(left):
        raise ValueError(f"rows without a number: {without}")
    return tuple(made)


def footprint_words(count: float, l2_bytes: int) -> str:
    """Which level of memory holds so many bytes, in words."""
    fits = "the L2" if count <= l2_bytes else "memory alone"
    return f"the footprint of {bytes_words(count)} fits {fits} ({bytes_words(l2_bytes)} of L2)"


def bytes_words(count: float) -> str:
    """Bytes in words, such as ``48 KiB``."""
    power = min(3, int(math.log(max(count, 1), 1024)))
    return f"{count / 1024**power:.4g} {('B', 'KiB', 'MiB', 'GiB')[power]}"
