"""What other searches found on a recorded grid, held against the grid and the family they were made
with. ``make search-baselines`` writes the file; each candidate that is timed counts one run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

import numpy as np

from labtools.problem import LabError

from .grid import ENDING, grid_path, read_kept
from .state import ForecastHits

SEARCHES_SCHEMA = 2
MOST_RUNS = 150  # runs of a search that are looked at
NEAR_FACTORS = (1.05, 1.10)
"""Times the fastest time of the grid: how near a search is asked to come."""


@dataclass(frozen=True)
class RunsUntil:
    """How soon a search came so near to the fastest point of the grid."""

    factor: float  # times the fastest time
    median_runs: float | None  # over all seeds; None where half of them did not
    reached: int  # seeds that did, within `MOST_RUNS`


@dataclass(frozen=True)
class SearchResult:
    """One search on the grid, with several seeds."""

    name: str  # short
    title: str  # what it is, one line
    seeds: int  # how often it was played
    # low_us, middle_us, high_us: quartiles over the seeds of the best time so far after 1, 2, ...
    # runs, microseconds; None where there is none yet. A search that ended keeps its best.
    low_us: tuple[float | None, ...]
    middle_us: tuple[float | None, ...]
    high_us: tuple[float | None, ...]
    near: tuple[RunsUntil, ...]  # one for each of `NEAR_FACTORS`
    longest: int  # runs of the seed that took most of them


@dataclass(frozen=True)
class StrategyTrial:
    """A strategy of Kernel Tuner on the workloads by which one is chosen."""

    name: str  # as Kernel Tuner has it
    median_runs: Mapping[str, float | None]  # over all seeds; None where half of them did not
    best_after: Mapping[str, float | None]  # by workload, after `CHOSEN_AFTER` runs


@dataclass(frozen=True)
class RidingMethod:
    """A method that a group's verdict calls otherwise than its own ablation does."""

    before: str  # key of the point without the group
    point: str  # key of the point with it
    methods: tuple[str, ...]  # the group
    group_gain: float  # of the whole group, relative to the time with it
    method: str  # that the verdict is wrong of
    relative: float  # what leaving it out alone costs, relative to the time with the group
    low: float  # lower end of the 95 % interval of ``relative``
    high: float  # upper end


@dataclass(frozen=True)
class GroupCount:
    """How the old policy's verdicts on groups fare against each method's own ablation."""

    groups: int  # that were judged, over all seeds
    contradicted: int  # of them, with a method that is decided otherwise
    rides_along: int  # called effective, and decided not to be
    harmful: int  # of these, methods that make the kernel slower by more than what counts
    dropped: int  # methods called ineffective that are decided to help
    methods: int  # decided ones, over all groups
    examples: tuple[RidingMethod, ...]  # the largest contradiction first


@dataclass(frozen=True)
class LoopSpread:
    """How much the seeds of the loop differ, and what the forecast was worth to them."""

    seeds: int  # that were played
    paths: int  # different sequences of points among them
    picks: int  # different sequences of method sets
    champions: int  # different points that they ended with
    farthest: float  # the slowest of these over the fastest point of the grid
    latest: (
        int | None
    )  # runs of the last seed to come within the first of `NEAR_FACTORS`, if all do
    most_rounds: int  # of one seed
    played: ForecastHits  # the forecast in the rounds that were played
    drawn: ForecastHits  # at drawn points with drawn methods


@dataclass(frozen=True)
class SearchesAt:
    """Searches on the grid at another workload."""

    best_us: float  # fastest time of the grid there, microseconds
    searches: tuple[SearchResult, ...]  # those that need no library, nor the old policy


@dataclass(frozen=True)
class Searches:
    """All searches on one grid at its headline, and some at its other workloads."""

    schema_version: int  # of the file
    rung: str  # whose grid
    gpu: str  # short name
    workload: str  # where they were scored
    grid_sha256: str  # of the grid's file
    family_sha256: str  # of the family's ``.toml``
    date: datetime  # when the file was written
    versions: Mapping[str, str]  # of the libraries
    best_us: float  # fastest time of the grid, microseconds
    points: int  # of the grid
    searches: tuple[SearchResult, ...]  # the results
    strategies: tuple[StrategyTrial, ...]  # of Kernel Tuner, the chosen one first
    left_out: Mapping[str, str]  # strategies of Kernel Tuner that were not played, with the reason
    groups: GroupCount  # of the old policy
    spread: Mapping[str, LoopSpread] = field(default_factory=dict)  # by workload
    elsewhere: Mapping[str, SearchesAt] = field(default_factory=dict)  # by workload

    def at(self, workload: str) -> Searches:
        """The searches at one workload."""
        if workload == self.workload:
            return self
        there = self.elsewhere[workload]
        return replace(self, workload=workload, best_us=there.best_us, searches=there.searches)

    def named(self, name: str) -> SearchResult:
        """The search of a name."""
        for one in self.searches:
            if one.name == name:
                return one
        known = ", ".join(one.name for one in self.searches)
        raise LabError(f"No search is called {name}.", f"there are {known}", "one of these")


Runs = Sequence[float]
"""Times in the order in which they were measured, microseconds; infinite where there is none."""


def best_after_runs(runs: Runs, count: int) -> np.ndarray:
    """The best time after 1, 2, ... ``count`` runs, microseconds; one that ended keeps its best."""
    padded = [*runs[:count], *[math.inf] * (count - len(runs))]
    return np.minimum.accumulate(np.array(padded, dtype=np.float64))


def searches_path(rung: str, gpu: str) -> Path:
    """Where the searches on the grid of a shipped family are."""
    path = grid_path(rung, gpu)
    return path.with_name(path.name.removesuffix(ENDING) + ".searches.json")


def read_searches(path: Path) -> Searches:
    """Read the file."""
    still_works = "the loop itself; make search-baselines writes them anew"
    found: Searches = read_kept(path, Searches, SEARCHES_SCHEMA, "searches", still_works)
    return found
