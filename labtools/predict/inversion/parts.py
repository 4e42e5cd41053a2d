"""The parts of every derivation: numbers with their sources, steps with what they reject."""

from __future__ import annotations

import math
from dataclasses import dataclass

WARP = 32
MOST_STAGES = 8
"""Stages of the longest ring that is looked at."""
NOT_TOLD_APART = 1.03
"""Tiles that take at most so many times the least are alike to a model. A choice."""
PER_COPY = 4
"""Instructions of one 16-byte copy: itself, its condition, its addresses. Counted in r09's machine
code."""
ISSUE_CYCLES = 1.6
"""Cycles a warp takes for an instruction when no other shares its scheduler, without waits: most
integer and conversion pipes take one every two cycles."""


@dataclass(frozen=True)
class Figure:
    """One number of a derivation."""

    name: str  # what it is
    value: float  # the number
    unit: str  # ``bytes``, ``us``, ``GB/s``, ``B/cycle``, ``cycles``, ... or an empty string.
    source: str = ""  # where it comes from: a data sheet, a microbenchmark, a formula of this step


@dataclass(frozen=True)
class Rejected:
    """An alternative, and the number that speaks against it."""

    choice: str  # the alternative
    # value, unit: the number
    value: float
    unit: str
    why: str  # what the number is, and what it would have to be


@dataclass(frozen=True)
class DesignStep:
    """One step from the limits to the kernel."""

    name: str  # short, for tables and tests, such as ``bytes``, ``tile`` or ``alignment``
    question: str  # what is decided
    inputs: tuple[Figure, ...]  # numbers that go in
    formula: str  # how they are joined, in words and symbols
    results: tuple[Figure, ...]  # numbers that come out; the first is the step's answer
    decision: str  # what follows for the kernel, one sentence
    breaks: str  # what would make it wrong
    rejected: tuple[Rejected, ...] = ()  # alternatives with their numbers

    @property
    def answer(self) -> Figure:
        """The first result."""
        return self.results[0]

    def result(self, name: str) -> float:
        """A result's value by name.

        Raises:
            KeyError: the step has no such result.
        """
        for one in self.results:
            if one.name == name:
                return one.value
        raise KeyError(name)


@dataclass(frozen=True)
class AnyDesign:
    """What every derivation comes to."""

    gpu: str  # short name of the GPU
    calibrated: bool  # its latencies and rates were measured by this project
    layout: str  # of rows in shared memory, see `labtools.predict.banks`
    time_us: float  # expected
    steps: tuple[DesignStep, ...]  # the derivation

    def step(self, name: str) -> DesignStep:
        """A step by name.

        Raises:
            KeyError: there is no such step.
        """
        for one in self.steps:
            if one.name == name:
                return one
        raise KeyError(name)


def footprint_words(count: float, l2_bytes: int) -> str:
    """Which level of memory holds so many bytes, in words."""
    fits = "the L2" if count <= l2_bytes else "memory alone"
    return f"the footprint of {bytes_words(count)} fits {fits} ({bytes_words(l2_bytes)} of L2)"


def bytes_words(count: float) -> str:
    """Bytes in words, such as ``48 KiB``."""
    power = min(3, int(math.log(max(count, 1), 1024)))
    return f"{count / 1024**power:.4g} {('B', 'KiB', 'MiB', 'GiB')[power]}"
