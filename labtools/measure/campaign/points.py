"""The points that the forecast is held against: the split by kernel family, and the strata."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import replace

from labtools.predict.accuracy import point_families
from labtools.problem import LabError, Problem, load_rung
from labtools.problem.limits import SMS_OF_H200

from ..gpu.job import CEILING, ceiling_candidates, rung_candidate
from .plan import FAMILY_OF, Section, load_plan


def of_family(name: str, sections: Sequence[Section]) -> tuple[Section, ...]:
    """The points of one side of the split; a section that loses every candidate is left out.

    Raises:
        LabError: a kernel with points belongs to no family, or to both.
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


@functools.cache
def points_by_stratum() -> dict[tuple[str, str], str]:
    """Every point of both families: (candidate's label, workload's key) to its stratum.

    Raises:
        LabError: a point stands in two strata.
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
