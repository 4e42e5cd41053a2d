"""What a campaign measures, as data: the files in ``plans``, read and expanded to groups.

A plan's sections name workloads in their short form and rungs with knobs; ``|`` stands between
values. Of ``r02 unroll=1|4 dims_per_thread=1|2`` every combination is taken. Knobs behind a comma
change one at a time: ``r02 unroll=4, dims_per_thread=2|4``. ``@name`` is a list of the same file.
"""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from labtools.predict.accuracy import point_families
from labtools.problem import (
    LabError,
    Problem,
    kernels_dir,
    list_baselines,
    load_rung,
    operation_of,
    parse_problem,
)
from labtools.problem.limits import SMS_OF_H200

from ..gpu.job import CEILING, Candidate, ceiling_candidates, rung_candidate

PLANS_DIR = Path(__file__).with_name("plans")
FAMILY_OF = {"points_calibration": "calibration", "points_test": "test"}
"""The plans that take a side each of the points that the forecast is held against."""

Choice = tuple[str, Mapping[str, int]]
"""A rung's id and the knobs that differ from its defaults."""


@dataclass(frozen=True)
class Section:
    """Candidates to be timed together on each of some workloads."""

    workloads: tuple[Problem, ...]  # each one becomes a group; groups of equal workloads are merged
    rungs: tuple[Choice, ...] = ()
    baselines: tuple[str, ...] = ()  # ids
    ceiling: bool = False  # time the read sweep as well
    # choices whose counters and sanitizer verdicts are wanted, or ``"all"``: the counters of every
    # rung of the section, without verdicts
    profile: tuple[Choice, ...] | Literal["all"] = ()
    counters: bool = False  # read the counters of a bound of every rung of the section
    # ids of baselines of the section whose chosen counters are read besides
    peer_counters: tuple[str, ...] = ()
    # of points for the forecast, one of ``labtools/predict/points.toml``
    stratum: str | None = None
    # ``stream`` launches every call of these rungs by itself; see `Candidate`
    timing: Literal["graph", "stream"] = "graph"
    outside: bool = False  # move what these rungs allocate in every call out of it


@dataclass(frozen=True)
class Plan:
    """A named list of sections."""

    name: str
    title: str
    sections: tuple[Section, ...]
    lists: Mapping[str, list[str]] = field(default_factory=dict)  # those that its file names


@dataclass
class Group:
    """One workload with everything that is timed on it, in one set of processes."""

    workload: Problem
    candidates: dict[str, Candidate] = field(default_factory=dict)
    ceiling: bool = False
    # by label, what every counter is read of
    profile: dict[str, Candidate] = field(default_factory=dict)
    # what the counters of a bound are read of, where ``profile`` does not name it
    counters: dict[str, Candidate] = field(default_factory=dict)
    sanitize: dict[str, Candidate] = field(default_factory=dict)  # what the sanitizer watches


def plan_names() -> list[str]:
    """The names of all plans."""
    files = {path.stem for path in PLANS_DIR.glob("*.toml")} - {"points"}
    return sorted(files | FAMILY_OF.keys())


@cache
def load_plan(name: str) -> Plan:
    """A plan by name. Raises LabError: there is none of that name."""
    if name not in plan_names():
        known = ", ".join(plan_names())
        raise LabError(f"There is no plan {name!r}.", f"the plans are {known}", "name one of them")
    file = "points" if name in FAMILY_OF else name
    data = tomllib.loads((PLANS_DIR / f"{file}.toml").read_text("utf-8"))
    lists = data.get("lists", {})
    sections = tuple(_read_section(table, lists) for table in data["section"])
    if name not in FAMILY_OF:
        return Plan(name, data["title"], sections, lists)
    return Plan(name, data["titles"][name], of_family(FAMILY_OF[name], sections), lists)


def of_family(name: str, sections: Sequence[Section]) -> tuple[Section, ...]:
    """The points of one side of the split; a section that loses every candidate is left out.

    Raises LabError: a kernel with points belongs to no family, or to both.
    """
    split = point_families()
    known = {kernel for ids in split.values() for kernel in ids}
    unknown = {rung for section in sections for rung, _ in section.rungs} - known
    if unknown:
        raise LabError(
            f"{sorted(unknown)} have points and belong to no family.",
            "the split must say for each kernel whether it calibrates or tests",
            "add them to labtools/predict/points.toml",
        )
    mine = split[name]
    kept = (
        replace(
            section,
            rungs=tuple(choice for choice in section.rungs if choice[0] in mine),
            ceiling=section.ceiling and CEILING in mine,
            counters=True,
        )
        for section in sections
    )
    return tuple(section for section in kept if section.rungs or section.ceiling)


def _read_section(table: Mapping[str, Any], lists: Mapping[str, list[str]]) -> Section:
    given = dict(table)
    changes = given.pop("changes", {})
    texts = _named(given.pop("workloads"), lists)
    given["workloads"] = tuple(
        parse_problem(one).replace(**changes) for text in texts for one in _spread(text)
    )
    for key in ("rungs", "profile"):
        if isinstance(given.get(key), list):
            chosen = (_read_choices(text) for text in _named(given[key], lists))
            given[key] = tuple(itertools.chain.from_iterable(chosen))
    for key in ("baselines", "peer_counters"):
        given[key] = tuple(_named(given.get(key, ()), lists))
    return Section(**given)


def _named(texts: Sequence[str], lists: Mapping[str, list[str]]) -> list[str]:
    """The texts, with a list in the place of its ``@name``."""
    found: list[str] = []
    for text in texts:
        found += _named(lists[text[1:]], lists) if text.startswith("@") else [text]
    return found


def _spread(text: str) -> list[str]:
    """A short form of each choice of values: ``1|4,32,8,512,128`` is two."""
    parts = [part.split("|") for part in text.split(",")]
    return [",".join(chosen) for chosen in itertools.product(*parts)]


def _read_choices(text: str) -> list[Choice]:
    first, _, single = text.partition(",")
    number, *pairs = first.split()
    combined = _read_values(pairs)
    choices = [
        dict(zip(combined, chosen, strict=True)) for chosen in itertools.product(*combined.values())
    ]
    alone = _read_values(single.split())
    choices += [{**choices[0], name: value} for name, values in alone.items() for value in values]
    return [(_rung_ids()[number], knobs) for knobs in choices]


def _read_values(pairs: Iterable[str]) -> dict[str, list[int]]:
    """``unroll=1|4`` to a knob's values."""
    split = (pair.split("=") for pair in pairs)
    return {name: [int(value) for value in values.split("|")] for name, values in split}


@cache
def _rung_ids() -> dict[str, str]:
    """Every shipped rung and study by its number, such as ``r03``."""
    return {path.stem.split("_")[0]: path.stem for path in kernels_dir().glob("*/[a-z][0-9]*_*.py")}


def expand_plan(plan: Plan) -> tuple[list[Group], dict[str, str]]:
    """The groups of a plan, one a workload, in order of first mention.

    Returns the groups, and what is left out everywhere (a library that is not installed) with why.
    """
    baselines = {baseline.id: baseline for baseline in list_baselines(None)}
    groups: dict[str, Group] = {}
    left_out: dict[str, str] = {}
    for section in plan.sections:
        rungs = [
            rung_candidate(load_rung(name), knobs, timing=section.timing, outside=section.outside)
            for name, knobs in section.rungs
        ]
        others = [Candidate(baselines[name], "baseline") for name in section.baselines]
        # Verdicts take a minute a rung: only for those that a section names.
        named = () if section.profile == "all" else section.profile
        watched = [rung_candidate(load_rung(name), knobs) for name, knobs in named]
        for workload in section.workloads:
            group = groups.setdefault(workload.key(), Group(workload))
            for candidate in (*rungs, *others):
                if candidate.supports(workload) is None:
                    group.candidates.setdefault(candidate.label, candidate)
                elif absent := _why_absent(candidate):
                    left_out[candidate.label] = absent
            group.ceiling = group.ceiling or section.ceiling
            fitting = [one for one in rungs if one.supports(workload) is None]
            profiled = fitting if section.profile == "all" else watched
            group.profile.update({one.label: one for one in profiled})
            group.sanitize.update({one.label: one for one in watched})
            if section.counters:
                group.counters.update({one.label: one for one in fitting})
            peers = [one for one in others if one.target.id in section.peer_counters]
            group.profile.update({one.label: one for one in peers if not one.supports(workload)})
    return list(groups.values()), left_out


def _why_absent(candidate: Candidate) -> str | None:
    """Why a library is not here at all: it refuses even the headline of its operation."""
    if candidate.kind != "baseline":
        return None
    return candidate.supports(operation_of(candidate.target.operation).headline)


@cache
def points_by_stratum() -> dict[tuple[str, str], str]:
    """Every point of both families: (candidate's label, workload's key) to its stratum.

    Raises LabError: a point stands in two strata.
    """
    found: dict[tuple[str, str], str] = {}
    for section in itertools.chain.from_iterable(load_plan(name).sections for name in FAMILY_OF):
        candidates = [rung_candidate(load_rung(name), knobs) for name, knobs in section.rungs]
        if section.ceiling:
            # The points are laid out for it.
            candidates += ceiling_candidates(SMS_OF_H200)
        for candidate, workload in itertools.product(candidates, section.workloads):
            if candidate.supports(workload) is not None:
                continue
            assert section.stratum is not None
            point = (candidate.label, workload.key())
            if found.setdefault(point, section.stratum) != section.stratum:
                raise LabError(
                    f"{candidate.label} on {workload} stands in two strata.",
                    f"{found[point]} and {section.stratum}",
                    "leave one of them out of the points",
                )
    return found


def stratum_of(label: str, workload: Problem) -> str | None:
    """The stratum of a candidate, by `Candidate.label`; None for what is no point."""
    return points_by_stratum().get((label, workload.key()))
