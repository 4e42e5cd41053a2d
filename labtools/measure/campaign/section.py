"""The words that plans are written in: a section, and a plan of sections."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from labtools.problem import Problem


@dataclass(frozen=True)
class Section:
    """Candidates to be timed together on each of some workloads.

    Args:
        workloads: each one becomes a group; groups of equal workloads are merged.
        rungs: (id, knobs) pairs.
        baselines: ids.
        ceiling: time the read sweep as well.
        profile: (id, knobs) pairs of rungs whose counters and sanitizer verdicts are wanted, or
            ``"all"``: the counters of every rung of the section, without verdicts.
        counters: read the counters of a bound of every rung of the section.
        sanitize: (id, knobs) pairs of rungs whose verdicts are wanted besides.
        stratum: of a section of points for the forecast, which one; see `campaign_points`.
        timing: ``stream`` launches every call of these rungs by itself, beside the graphs of other
            sections; see `Candidate`.
        outside: move what these rungs allocate in every call out of it.
    """

    workloads: tuple[Problem, ...]
    rungs: tuple[tuple[str, Mapping[str, int]], ...] = ()
    baselines: tuple[str, ...] = ()
    ceiling: bool = True
    profile: tuple[tuple[str, Mapping[str, int]], ...] | Literal["all"] = ()
    counters: bool = False
    sanitize: tuple[tuple[str, Mapping[str, int]], ...] = ()
    stratum: str | None = None
    timing: Literal["graph", "stream"] = "graph"
    outside: bool = False


@dataclass(frozen=True)
class Plan:
    """A named list of sections."""

    name: str
    title: str
    sections: tuple[Section, ...]
