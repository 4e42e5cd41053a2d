"""Of a reader's own operation: the sizes that its author named, and grids like theirs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence

from labtools.problem import LabError, Problem, Rung, operation_of
from labtools.problem.reference import why_no_case

from .case import checked_limits, why_not_launched

MOST_GRID_VISITS = 2**17
"""`Problem.visits` of a case that is there for its grid: about a second."""
_Axes = frozenset[tuple[int, int]]
"""Where a launch has several blocks: its place, and the axis of its grid."""


def of_author(workload: Problem, cases: Sequence[Problem]) -> list[Problem]:
    """The first of some cases with each of the sizes that the author named."""
    first = {_sizes(one): one for one in reversed(cases)}
    named = dict.fromkeys(map(_sizes, _named(workload)))
    return [first[one] for one in named if one in first]


def not_of_author(
    rung: Rung, workload: Problem, cases: Sequence[Problem], knobs: Mapping[str, int] | None
) -> list[str]:
    """Each size that the author named and that is in none of the cases, and why."""
    known = {_sizes(one) for one in cases}
    said = []
    for one in _named(workload):
        if _sizes(one) not in known:
            refused = rung.supports(one)
            refused = refused and f"the kernel's supports() says: {refused}"
            why = (
                refused or why_no_case(one) or why_not_launched(rung, one, checked_limits(), knobs)
            )
            said.append(f"{one}: {why}")
    return said


def _named(workload: Problem) -> Sequence[Problem]:
    """The problems that an author named; none where the operation is not told by its reference."""
    return getattr(operation_of(workload), "given", ())


def _sizes(problem: Problem) -> tuple[int, ...]:
    return tuple(getattr(problem, name) for name in problem.shape_fields)


def with_several_blocks(
    rung: Rung,
    workload: Problem,
    cases: Sequence[Problem],
    battery: Sequence[Problem],
    knobs: Mapping[str, int] | None,
) -> tuple[list[Problem], list[str]]:
    """Problems whose grids have several blocks along each axis along which those of the author's
    sizes have them, as far as the cases have none: a single one, or where that takes too long one
    an axis, with sizes of a battery; and what is left out, in words."""
    return _Grids(rung, workload, battery, knobs).missing(cases)


class _Grids:
    def __init__(
        self,
        rung: Rung,
        workload: Problem,
        battery: Sequence[Problem],
        knobs: Mapping[str, int] | None,
    ) -> None:
        self._rung, self._knobs = rung, knobs
        self._workload = workload.replace(seed=workload.seed + 1)
        self._meant = [*_named(workload), operation_of(workload).headline]
        self._tried = {
            name: sorted({2 * getattr(workload, name), *(getattr(one, name) for one in battery)})
            for name in workload.shape_fields
        }

    def missing(self, cases: Sequence[Problem]) -> tuple[list[Problem], list[str]]:
        wanted = _Axes().union(*map(self._several, self._meant))
        there = [self._several(one) for one in cases]
        if any(wanted <= one for one in there):
            return [], []
        least = self._least(wanted)
        if least is not None and least.visits <= MOST_GRID_VISITS:
            return [least], []
        alone = [self._least(_Axes([one])) for one in sorted(wanted.difference(*there))]
        short = [one for one in alone if one is not None and one.visits <= MOST_GRID_VISITS]
        why = "no sizes were found" if least is None else f"{least} is the least, and too long"
        return short, [f"several blocks along every axis of its grids in one case: {why}"]

    def _several(self, problem: Problem) -> _Axes:
        with contextlib.suppress(LabError):
            # What its compiler adds is not asked for, since that compiles it.
            launches = self._rung.told_launches(problem, checked_limits(), self._knobs)
            return _Axes(
                (place, axis)
                for place, one in enumerate(launches)
                for axis, blocks in enumerate(one.grid)
                if blocks > 1
            )
        return _Axes()

    def _least(self, wanted: _Axes) -> Problem | None:
        """The shortest problem that was found with several blocks along these axes, by raising the
        workload's sizes one after the other."""
        now, there = self._workload, self._several(self._workload)
        while not wanted <= there:
            larger = [*self._with_more(now, there, wanted)]
            if not larger:
                return None
            now = min(larger, key=lambda one: one.visits)
            there = self._several(now)
        return now

    def _with_more(self, now: Problem, there: _Axes, wanted: _Axes) -> Iterator[Problem]:
        """By field the problem with the least larger size that gives more of the wanted axes."""
        for name, sizes in self._tried.items():
            for size in sizes:
                if size > getattr(now, name):
                    with contextlib.suppress(LabError):
                        one = now.replace(**{name: size})
                        if self._several(one) & wanted > there & wanted:
                            yield one
                            break
