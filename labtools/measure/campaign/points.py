"""The points that the forecast is held against."""

from __future__ import annotations

import functools
import itertools

from labtools.problem import LabError, Problem, load_rung
from labtools.problem.limits import SMS_OF_H200

from ..gpu.job import ceiling_candidates, rung_candidate
from .plan import FAMILY_OF, load_plan


@functools.cache
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
