"""The words that plans are written in: choices of knobs, a section, and a plan of sections."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from labtools.problem import Problem

Choice = tuple[str, Mapping[str, int]]
"""A rung's id and the knobs that differ from its defaults."""


def combined(rung: str, **values: Sequence[int]) -> tuple[Choice, ...]:
    """The rung with every combination of some knobs' values; without any, at its defaults."""
    every = itertools.product(*values.values())
    return tuple((rung, dict(zip(values, chosen, strict=True))) for chosen in every)


def one_knob_at_a_time(
    rung: str, base: Mapping[str, int] | None = None, **others: Iterable[int]
) -> tuple[Choice, ...]:
    """The rung at ``base``, and with one knob at a time at another value."""
    base = dict(base or {})
    changed = [{**base, name: value} for name, values in others.items() for value in values]
    return ((rung, base), *((rung, knobs) for knobs in changed))


@dataclass(frozen=True)
class Section:
    """Candidates to be timed together on each of some workloads."""

    workloads: tuple[Problem, ...]  # each one becomes a group; groups of equal workloads are merged
    rungs: tuple[Choice, ...] = ()  # what is timed, each a `Choice`
    baselines: tuple[str, ...] = ()  # ids
    ceiling: bool = True  # time the read sweep as well
    # choices whose counters and sanitizer verdicts are wanted, or ``"all"``: the counters of every
    # rung of the section, without verdicts
    profile: tuple[Choice, ...] | Literal["all"] = ()
    counters: bool = False  # read the counters of a bound of every rung of the section
    # ids of baselines of the section whose chosen counters are read besides
    peer_counters: tuple[str, ...] = ()
    sanitize: tuple[Choice, ...] = ()  # choices whose verdicts are wanted besides
    # of a section of points for the forecast, which one; see `decode.points`
    stratum: str | None = None
    # ``stream`` launches every call of these rungs by itself, beside the graphs of other sections;
    # see `Candidate`
    timing: Literal["graph", "stream"] = "graph"
    outside: bool = False  # move what these rungs allocate in every call out of it


@dataclass(frozen=True)
class Plan:
    """A named list of sections."""

    name: str
    title: str
    sections: tuple[Section, ...]
