"""Which methods a round takes: four checks of each, then priority or strength. The checks are those
of the source of this loop (its V2): not taken before, the architecture has it, no reason to skip
it, and its trigger fires. Where a value is missing a check is not passed."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pydantic import ConfigDict

from labtools.problem import LabError, Limits, Problem, Rung, timed_launches
from labtools.problem.rung import is_arch_since
from labtools.record.expressions import MissingName, Quantity

from .budget import CAP, NEGLIGIBLE, Budget
from .family import Family, InvalidPoint, Point
from .gaps import Gaps, trigger_values
from .method import METHOD_AXES, Axis, Method

Names = Mapping[str, Quantity | None]
RankedBy = Literal["priority", "strength"]
Refuses = Callable[[Sequence[str], Mapping[str, int]], str | None]
"""Of methods, and of the one form that some may have: why they cannot be tried, or None."""
NEAR_STRENGTH = 0.1
"""Strengths that differ by less are alike: a trigger's own constants are no finer."""
WEAK_STRENGTH = 0.25
"""A method that is called for less strongly has no right to a slot of its axis: see ``pass_on`` of
`pick_methods`."""


@dataclass(frozen=True)
class Retry:
    """With what a method is tried again that the compiler dropped: a form of it, a knob, or both. A
    knob of the method's own forms means those that have the value; another is set beside them."""

    __pydantic_config__ = ConfigDict(extra="forbid")
    form: int | None = None  # its number, from 0
    knob: str = ""
    value: int | None = None  # of the knob
    reason: str = ""  # why it may succeed now, in words

    def forms(self, method: Method) -> tuple[int, ...] | None:
        """Numbers of the forms that it means; None where it means none."""
        own = {} if self.knob not in method.off else {self.knob: self.value}
        if self.form is None and not own:
            return None
        return tuple(
            number
            for number, form in enumerate(method.on)
            if self.form in (None, number) and own.items() <= form.items()
        )

    def setting(self, method: Method) -> dict[str, int]:
        """The knob that it sets beside the method's forms, where it sets one."""
        if not self.knob or self.knob in method.off or self.value is None:
            return {}
        return {self.knob: self.value}

    def __str__(self) -> str:
        named = [] if self.form is None else [f"form {self.form}"]
        named += [f"{self.knob}={self.value}"] if self.knob else []
        return self.reason or ", ".join(named)


@dataclass(frozen=True)
class Taken:
    """What earlier rounds found out of methods."""

    # effective, ineffective: ids
    effective: tuple[str, ...] = ()
    ineffective: tuple[str, ...] = ()
    # ids of those that the compiler dropped, with the numbers of the forms that it did
    failed: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    # with what one of those is tried again, by its id
    acknowledged: Mapping[str, Retry] = field(default_factory=dict)
    undecided: tuple[str, ...] = ()  # ids; they may be taken again
    # methods that were picked together, and the round in which no branch was right
    wrong: Mapping[tuple[str, ...], int] = field(default_factory=dict)

    def was_wrong(self, methods: Sequence[str]) -> str:
        """That no branch with some of these methods was right, or nothing."""
        for some, number in self.wrong.items():
            if set(some) <= set(methods):
                others = [one for one in some if one != methods[-1]]
                beside = f" and {' and '.join(others)}" if others else ""
                return f"no branch with it{beside} was right in round {number}"
        return ""


@dataclass(frozen=True)
class MethodChecks:
    """The four checks; None where a value that one asks for is missing or not computable."""

    not_taken: bool  # it is off, and no earlier round settled it
    architecture: bool  # the GPU has what it needs
    not_skipped: bool | None  # its skip condition does not hold
    trigger: bool | None  # its trigger's strength is above 0

    @property
    def passed(self) -> bool:
        """All four."""
        known = self.not_skipped is True and self.trigger is True
        return known and self.not_taken and self.architecture

    @property
    def is_open(self) -> bool:
        """Nothing else stands against it, and a condition gave no answer."""
        answers = (self.not_skipped, self.trigger)
        unknown = None in answers and False not in answers
        return unknown and self.not_taken and self.architecture


@dataclass(frozen=True)
class Considered:
    """One method as a round saw it."""

    method: str  # its id
    axis: Axis  # whose gap it closes
    priority: int  # of its axis, 1 is the first
    strength: float | None  # of its trigger, 0..1; None where a value is missing
    checks: MethodChecks  # the four
    taken: bool  # the round takes it
    why: str  # one sentence


@dataclass(frozen=True)
class Pick:
    """The methods of a round."""

    methods: tuple[str, ...]  # ids, in the order in which they are applied
    forms: Mapping[str, int]  # the number of the form, of a method that may have only that one
    considered: tuple[Considered, ...]  # every method of the family, and why it was taken or left
    unused: int  # slots that no method took


def pick_methods(
    family: Family,
    point: Point,
    gaps: Gaps,
    budget: Budget,
    counters: Mapping[str, float | None],
    problem: Problem,
    limits: Limits,
    taken: Taken | None = None,
    refuses: Refuses | None = None,
    entry: str | None = None,
    pass_on: bool = False,
    rng: random.Random | None = None,
) -> Pick:
    """Choose methods for the slots of each axis: with one slot the first that passes by priority,
    with more those of greatest strength. What does not go together is passed over. With ``pass_on``
    a slot for which its axis has no method of at least `WEAK_STRENGTH` goes to the one called for
    most strongly, of any axis whose gap is not negligible, and what a chosen method brings along
    takes no slot; without it every slot is its axis', as in V1. ``entry`` is the function that
    takes longest; ``rng`` draws the order of methods within `NEAR_STRENGTH`."""
    known = taken or Taken()
    names = {
        **trigger_values(counters, gaps),
        **problem.numbers(),
        **launch_numbers(family.rung_at(point), point, problem, limits, entry),
        **point.knobs,
    }
    seen = {one.id: _consider(family, point, one, names, limits, known) for one in family.methods}
    made = _PickInTheMaking(family, point, known, seen, refuses, rng, pass_on)
    if pass_on:
        for one in seen.values():
            if one.checks.passed and (one.strength or 0) < WEAK_STRENGTH:
                seen[one.method] = _say(one, "it is called for too weakly to have a slot by itself")
    for axis in METHOD_AXES:
        slots = budget.of(axis)
        mine = [one for one in seen.values() if one.axis == axis and not one.why]
        made.take(mine, slots, "priority" if slots == 1 else "strength")
    if pass_on and (left := budget.total - len(made.chosen)):
        rest = [one for one in seen.values() if not one.taken and _is_open(gaps, one.axis)]
        made.take(rest, left, "strength", ", in a slot that no strong method of its axis took")
    order = tuple(seen[one.id] for one in family.methods)
    return Pick(tuple(made.chosen), made.forms, order, budget.total - len(made.chosen))


@dataclass
class _PickInTheMaking:
    """Fills slots, some after others; what becomes of a method is entered in ``seen``."""

    family: Family
    point: Point
    known: Taken
    seen: dict[str, Considered]
    refuses: Refuses | None
    rng: random.Random | None
    pass_on: bool
    chosen: list[str] = field(default_factory=list)
    forms: dict[str, int] = field(default_factory=dict)

    def take(self, some: Sequence[Considered], slots: int, by: RankedBy, where: str = "") -> None:
        """Fill some slots with those that passed their checks; what is passed over says why."""
        ranked = rank_methods(some, by, self.rng)
        none_left = "others of its axis stand before it" if slots else "its axis has no slot"
        for place, one in enumerate(ranked, start=1):
            of_axis = sum(other.taken for other in self.seen.values() if other.axis == one.axis)
            if slots == 0 or of_axis >= CAP:
                self.seen[one.method] = _say(one, one.why or none_left)
                continue
            extra = retried_form(self.family.method(one.method), self.known)
            if reason := self._cannot_join(one.method, extra):
                self.seen[one.method] = _say(one, reason)
                continue
            self.chosen.append(one.method)
            self.forms.update(extra)
            slots -= 1
            said = f"all four checks passed; chosen by {by}{where}, "
            said += f"with strength {one.strength:.2f}{self._say_drawn(one, ranked[place:])}"
            self.seen[one.method] = dataclasses.replace(one, taken=True, why=said)

    def _cannot_join(self, method: str, form: Mapping[str, int]) -> str | None:
        """Why a method does not go with those that are chosen, or None."""
        together = [*self.chosen, method]
        if self.pass_on and (
            brought_by := [one for one in self.chosen if self._brings(one, method)]
        ):
            return f"it comes with {' and '.join(brought_by)}"
        if wrong := self.known.was_wrong(together):
            return wrong
        if self.point.source:  # whether they go together is for whoever writes them
            return None
        forms = {**self.forms, **form}
        try:
            self.family.apply(self.point, together, forms=forms)
        except InvalidPoint as error:
            return f"it does not go together: {error.why}"
        return self.refuses(together, forms) if self.refuses is not None else None

    def _brings(self, chosen: str, method: str) -> bool:
        """Whether a chosen method switches another on with it, that is off."""
        if self.point.source or self.family.has(self.point, method):
            return False
        forms = {chosen: self.forms[chosen]} if chosen in self.forms else {}
        return self.family.has(self.family.apply(self.point, [chosen], forms=forms), method)

    def _say_drawn(self, one: Considered, others: Sequence[Considered]) -> str:
        """Before which others as strong as it a method was drawn, if it was drawn."""
        if self.rng is None:
            return ""
        alike = [other.method for other in others if _differ(one, other) < NEAR_STRENGTH]
        return f"; drawn before {', '.join(alike)}, as strong as it" if alike else ""


def _is_open(gaps: Gaps, axis: Axis) -> bool:
    """Whether a gap is known and not negligible."""
    gap = gaps.of(axis)
    return gap is not None and gap >= NEGLIGIBLE


def launch_numbers(
    rung: Rung, point: Point, problem: Problem, limits: Limits, entry: str | None = None
) -> dict[str, Quantity | None]:
    """Numbers of a call's launches as a trigger calls them, see `LAUNCH_NAMES`: of the launch of
    ``entry``, or else of the one with the most blocks."""
    launches = timed_launches(rung.launches(problem, limits, point.knobs))
    named = [one for one in launches if one.entry == entry]
    largest = max(named or launches, key=lambda one: one.num_blocks)
    return {
        "num_sms": limits.num_sms,
        "blocks": largest.num_blocks,
        "threads": largest.num_threads,
        "launches": len(launches),
        "blocks_per_sm": largest.num_blocks / limits.num_sms,
    }


def strength_of(method: Method, names: Names) -> float | None:
    """How strongly a trigger calls for its method, 0..1; None where a value is missing."""
    try:
        value = float(method.ask("trigger", names))
    except MissingName:
        return None
    if not 0 <= value <= 1:
        raise LabError(
            f"The trigger of {method.id} gives a strength of {value:g}.",
            f"a strength lies in 0 to 1: {method.trigger}",
            "write it with ramp or clip; the other methods are unaffected",
        )
    return value


def _consider(
    family: Family, point: Point, method: Method, names: Names, limits: Limits, known: Taken
) -> Considered:
    strength: float | None = None
    skipped: bool | None = None
    unknown = ""
    try:
        strength = strength_of(method, names)
        unknown = "a value that its trigger asks for is missing" if strength is None else ""
    except LabError as error:
        unknown = error.clause
    try:
        skipped = bool(method.skip) and bool(method.ask("skip", names))
    except MissingName as error:
        unknown = f"{error.name}, which its skip condition asks for, is missing"
    except LabError as error:
        unknown = error.clause
    settled = _settled(family, point, method, known)
    checks = MethodChecks(
        not_taken=not settled,
        architecture=is_arch_since(limits.arch, method.min_arch),
        not_skipped=None if skipped is None else not skipped,
        trigger=None if strength is None else strength > 0,
    )
    why = settled
    if not why and not checks.architecture:
        why = f"it needs {method.min_arch}, and the GPU is {limits.arch}"
    elif not why and skipped:
        why = f"it is skipped: {method.skip}"
    why = why or unknown or ("" if strength else f"its trigger does not fire: {method.trigger}")
    return Considered(method.id, method.axis, method.priority, strength, checks, False, why)


def _settled(family: Family, point: Point, method: Method, known: Taken) -> str:
    """Why a method is not to be taken, or nothing."""
    if method.pair is not None:
        return f"it is no knob of this kernel: {method.pair[0]} and {method.pair[1]} show it"
    if is_on_for_good(family, point, method, known):
        return "it is on"
    if method.id in known.effective:
        return "an earlier round found it effective"
    if method.id in known.ineffective:
        return "an earlier round found it ineffective"
    if wrong := known.was_wrong([method.id]):
        return wrong
    return why_not_again(method, known)


def is_on_for_good(family: Family, point: Point, method: Method, known: Taken) -> bool:
    """Whether a method is on and cannot be taken again. One that is on in a form that the compiler
    dropped may be taken in a form that it did not."""
    form = family.form_of(point, method.id)
    if form is None:
        return bool(point.source) and family.has(point, method.id)
    return form not in known.failed.get(method.id, ()) or fresh_form(method, known) is None


def retried_settings(family: Family, acknowledged: Mapping[str, Retry]) -> dict[str, int]:
    """The knobs that retries set beside the forms of their methods."""
    found: dict[str, int] = {}
    for name, retry in acknowledged.items():
        for knob, value in retry.setting(family.method(name)).items():
            family.rung.resolve_knobs({knob: value})
            if found.setdefault(knob, value) != value:
                raise LabError(
                    "These methods cannot be tried again together.",
                    f"{knob} cannot be {found[knob]} and {value}",
                    "one of them without it",
                )
    return found


def why_not_again(method: Method, known: Taken) -> str:
    """Why a method is not tried again that the compiler dropped; empty where it may be."""
    if method.id not in known.failed:
        return ""
    retry = known.acknowledged.get(method.id)
    if retry is None:
        return "the compiler dropped it, and nobody said with what it should be tried again"
    if retry.form is None and not retry.knob:
        return "the compiler dropped it, and what was said gives neither a form nor a knob"
    if not retried_form(method, known) and retry.forms(method) is not None:
        return "the compiler dropped it, and what was said gives no form that is left to try"
    return ""


def fresh_form(method: Method, known: Taken) -> int | None:
    """Number of the first form that the compiler has not dropped yet; None where all are tried."""
    return next(iter(_forms_left(method, known)), None)


def _forms_left(method: Method, known: Taken) -> list[int]:
    dropped = known.failed.get(method.id, ())
    return [number for number in range(len(method.on)) if number not in dropped]


def retried_form(method: Method, known: Taken) -> dict[str, int]:
    """By its id, the number of the one form in which a method is tried again that the compiler
    dropped: the first that is left, of those that the retry means where it means some. A dropped
    form is tried beside another knob. Empty for another method, and where none is left."""
    if method.id not in known.failed:
        return {}
    retry = known.acknowledged.get(method.id, Retry())
    left, meant = _forms_left(method, known), retry.forms(method)
    if meant is not None:
        left = [number for number in left if number in meant]
        left += meant if retry.setting(method) else ()
    return {method.id: left[0]} if left else {}


def rank_methods(
    some: Iterable[Considered], by: RankedBy, rng: random.Random | None = None
) -> list[Considered]:
    """Those that passed, the first to take first. Which of those as strong as the first comes next
    is drawn, the likelier the earlier it stands by priority."""
    passed = [one for one in some if one.checks.passed]
    by_strength = sorted(passed, key=lambda one: (-(one.strength or 0.0), one.priority, one.method))
    by_priority = sorted(passed, key=lambda one: (one.priority, -(one.strength or 0.0), one.method))
    left = by_strength if by == "strength" else by_priority
    if rng is None:
        return left
    ordered = []
    while left:
        alike = [one for one in left if _differ(one, left[0]) < NEAR_STRENGTH]
        (chosen,) = rng.choices(alike, [one.priority**-2 for one in alike])
        left.remove(chosen)
        ordered.append(chosen)
    return ordered


def _differ(one: Considered, other: Considered) -> float:
    """By how much two strengths differ; a tenth is a tenth."""
    return round(abs((one.strength or 0.0) - (other.strength or 0.0)), 9)


def _say(one: Considered, why: str) -> Considered:
    return dataclasses.replace(one, why=why)
