"""What a campaign measures, as data: sections of workloads and candidates, expanded to groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from labtools.problem import LabError, Problem, list_baselines, load_rung, operation_of

from ..gpu.job import Candidate, rung_candidate
from .decode.bench import BENCH
from .decode.ladder import FINDINGS, LADDER, QUICK
from .decode.points import POINTS_CALIBRATION, POINTS_TEST
from .decode.quant import QUANT
from .decode.splits import SPLITS
from .gemm import GEMM, LAYOUTS_PLAN
from .prefill import PREFILL, PREFILL_PEERS_PLAN
from .roles import ROLES_TEST
from .rows import ROWS
from .section import Plan


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


_DECODE = (LADDER, QUICK, POINTS_CALIBRATION, POINTS_TEST, FINDINGS, BENCH, SPLITS, QUANT)
_EVERY_PLAN = (*_DECODE, ROWS, GEMM, LAYOUTS_PLAN, PREFILL, PREFILL_PEERS_PLAN, ROLES_TEST)
PLANS = {plan.name: plan for plan in _EVERY_PLAN}


def load_plan(name: str) -> Plan:
    """A plan by name.

    Raises:
        LabError: there is none of that name.
    """
    if name not in PLANS:
        raise LabError(
            f"There is no plan {name!r}.", f"the plans are {', '.join(PLANS)}", "name one of them"
        )
    return PLANS[name]


def expand_plan(plan: Plan) -> tuple[list[Group], dict[str, str]]:
    """The groups of a plan, one a workload, in order of first mention.

    Returns:
        The groups, and what is left out everywhere (a library that is not installed) with why.
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
        for workload in section.workloads:
            group = groups.setdefault(workload.key(), Group(workload))
            for candidate in (*rungs, *others):
                reason = candidate.supports(workload)
                if reason is None:
                    group.candidates.setdefault(candidate.label, candidate)
                elif absent := _why_absent(candidate):
                    left_out[candidate.label] = absent
            group.ceiling = group.ceiling or section.ceiling
            fitting = [one for one in rungs if one.supports(workload) is None]
            profiled = fitting if section.profile == "all" else _named(section.profile)
            # Verdicts take a minute a rung: only for those that a section names.
            watched = _named(() if section.profile == "all" else section.profile)
            group.profile.update({one.label: one for one in profiled})
            group.sanitize.update({one.label: one for one in (*watched, *_named(section.sanitize))})
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


def _named(pairs: Iterable[tuple[str, Mapping[str, int]]]) -> list[Candidate]:
    return [rung_candidate(load_rung(name), knobs) for name, knobs in pairs]
