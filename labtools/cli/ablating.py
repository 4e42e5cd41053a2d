"""``labtools ablate``: what each method of a point is worth, outside of any loop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from labtools.optimize.ablation import single_variants
from labtools.optimize.attribution import (
    PAIR_COLUMNS,
    Attribution,
    Outcome,
    outcome_of,
    say_effect,
    say_pairs,
    say_untimed,
)
from labtools.optimize.loop import ablate_point
from labtools.optimize.state import AblatedPoint
from labtools.problem import Problem
from labtools.problem.text import first_line, how_many
from labtools.toolchain.apart import was_stopped
from labtools.toolchain.progress import Progress, with_time_left

from .given import named_knobs, read_family, read_workload
from .loop import DEFAULT_FAMILY, LoopAnswer, LoopAsked
from .outcome import print_table, typed

if TYPE_CHECKING:
    from rich.console import Console

_VERDICTS: Mapping[Outcome, str] = {
    "slower": "counts",
    "faster": "harms",
    "same": "does nothing",
    "open": "undecided",
}
"""What is said of a method by what taking it out does."""


@dataclass(frozen=True, kw_only=True)
class PointAblated(LoopAnswer, AblatedPoint):
    """What each method of a point is worth."""

    workload: Problem

    def show(self, console: Console) -> None:
        """A row a method, a row a pair, and what has no time."""
        for line in self._head():
            console.print(line)
        numbers = PAIR_COLUMNS[1:4]
        checked = {verdict.method: str(verdict) for verdict in self.sass_check}
        columns = ("without", *numbers, "verdict", "in the machine code", "class")
        rows = [
            (
                found.method,
                *say_effect(found),
                _say_verdict(found),
                checked.get(found.method, ""),
                self.classes.get(found.method, "").replace("_", " "),
            )
            for found in self.attribution
        ]
        if rows:
            print_table(console, columns, rows, right=numbers, whole=numbers)
        if self.pairs:
            pairs = say_pairs(self.pairs, self.interactions)
            console.print()
            print_table(
                console, PAIR_COLUMNS, pairs, right=(*numbers, PAIR_COLUMNS[4]), whole=numbers
            )
        for line in say_untimed(self.untimed):
            console.print(line)

    def _head(self) -> Iterator[str]:
        yield f"{self.workload}, {self.origin}, {self.gpu}"
        yield f"{self.of.point}: {self.of.time_us:.2f} us"
        if self.origin == "forecast":
            yield f"Times are forecasts: {self.aa.model}."
        else:
            pairs = f"{how_many(self.aa.pairs, 'pair')} of identical kernels"
            yield f"The smallest effect that can be told is {self.aa.effect:.1%}, by {pairs}."
        if self.attribution:
            yield f"An effect counts from {self.attribution[0].threshold:.1%} on."
        elif not self.untimed:
            yield "No method is on here."


def _say_verdict(found: Attribution) -> str:
    outcome = outcome_of(found)
    if outcome == "open" and found.decided == "below":
        return "does not help"
    return _VERDICTS[outcome]


def ablate_kernel(
    asked: LoopAsked,
    chosen: Sequence[str] | None,
    methods: Sequence[str] | None,
    pairs: bool,
    progress: Progress,
) -> PointAblated:
    """Time a point with one method out at a time."""
    family = read_family(asked.kernel or DEFAULT_FAMILY)
    problem = family.workloads[0] if asked.workload is None else read_workload(asked.workload)
    knobs, names = named_knobs(family.rung, chosen), tuple(methods or ())
    with typed():
        point = family.point(knobs)
        single_variants(family, point, names)  # each of them is on
        notices = tuple(
            f"{name}={knobs[name]} means nothing here, and is {name}={point.knobs[name]}: {why}"
            for name, why in family.overruled(knobs).items()
        )
    timed_on, told = asked.on or "recorded", with_time_left(progress)
    found = ablate_point(family, problem, timed_on, knobs, names, pairs, told)
    notices += tuple(
        f"{name} has no verdict: {first_line(why)}"
        for name, why in found.untimed.items()
        if was_stopped(why)
    )
    return PointAblated(**vars(found), notices=notices, workload=problem)
