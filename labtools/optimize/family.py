"""A kernel family: a rung whose knobs switch methods on and off, and what is said of them in data.
Beside ``x.cu`` and ``x.py`` with a `Rung`, ``x.toml`` names the methods with their toggles, which
knobs mean nothing where, which points are valid, which make the grid, and the workloads."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, NoReturn

from pydantic import Field, PlainSerializer, ValidationError

from labtools.problem import LabError, Problem, Rung, load_rung, operation_of, parse_problem
from labtools.problem.rung import say_knobs
from labtools.problem.text import read_given
from labtools.record import hash_python_file
from labtools.record.expressions import ExpressionError, evaluate_expression, names_in
from labtools.toolchain.sources import hash_source

from .method import (
    AS_TUPLE,
    GAP_NAMES,
    LAUNCH_NAMES,
    FamilyData,
    KnobSetting,
    Method,
    SwitchedMethod,
    Toggle,
    Words,
    catalogue,
    counter_names,
    proof_names,
)
from .source import START_KEY, BranchSource, SourceText

MOST_BOX_POINTS = 200_000
"""Products of one box of the grid. A larger one is a slip: every product is looked at."""
_MOST_PASSES = 32  # of canonical rules over one point; a rule that undoes another never ends


class InvalidPoint(LabError):
    """A setting of the knobs that is no point of the family."""


class ForbiddenPoint(InvalidPoint):
    """A setting of the knobs that a constraint of the family forbids."""


@dataclass(frozen=True, eq=False)
class Point:
    """Values of all knobs, in canonical form: two points are equal if they are one kernel. One that
    somebody wrote has the name of its source too, and the methods that are left out of it."""

    # short text that names only knobs that differ from the start: ``gqa=1 stages=3``; of a written
    # one its source: ``v2@1.1``, ``v2@1.1 -memory.vectorize``
    key: str
    knobs: Annotated[Mapping[str, int], PlainSerializer(dict)]  # every knob, in the rung's order
    source: str = ""  # the name of what somebody wrote; empty where the family's source is meant
    without: tuple[str, ...] = ()  # methods that are left out of that

    def __post_init__(self) -> None:
        object.__setattr__(self, "knobs", MappingProxyType(dict(self.knobs)))

    @cached_property
    def _values(self) -> tuple[Any, ...]:
        return (self.source, *sorted(self.without), *sorted(self.knobs.items()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Point) and self._values == other._values

    def __hash__(self) -> int:
        return hash(self._values)

    def __str__(self) -> str:
        return self.key

    def __reduce__(self) -> tuple[Any, ...]:
        return (Point, (self.key, dict(self.knobs), self.source, self.without))

    def holds(self, toggle: Toggle) -> bool:
        """Whether the knobs have these values."""
        return all(self.knobs[name] == value for name, value in toggle.items())


class Hyper(FamilyData):
    """A knob that branches vary while the methods stay."""

    knob: str  # its name
    values: Annotated[tuple[int, ...], Field(min_length=2, strict=False)]  # those to try
    doc: Words  # what it changes, one line


class CanonicalRule(FamilyData):
    """Where an expression over the knobs holds, some knobs mean nothing and get one value."""

    when: Words  # the expression
    set: KnobSetting  # the values
    why: Words  # one sentence


class Constraint(FamilyData):
    """What every point must hold."""

    require: Words  # expression over the knobs
    reason: Words  # why one that does not hold it is no kernel


class GridBox(FamilyData):
    """A part of the grid: all products of some values; the other knobs are as at the start."""

    name: Words  # a few words
    choices: Annotated[  # values by knob
        dict[str, Annotated[tuple[int, ...], Field(min_length=1, strict=False)]],
        Field(min_length=1),
    ]
    only: str = ""  # expression: products where it holds


class _File(FamilyData):
    workloads: Annotated[tuple[str, ...], Field(min_length=1, strict=False)]
    start: dict[str, int] = Field(default_factory=dict)
    leads_without: Annotated[tuple[str, ...], AS_TUPLE]  # see `Family.leading`
    hyper: Annotated[tuple[Hyper, ...], AS_TUPLE]
    canonical: Annotated[tuple[CanonicalRule, ...], AS_TUPLE]
    constraint: Annotated[tuple[Constraint, ...], AS_TUPLE]
    grid: Annotated[tuple[GridBox, ...], Field(min_length=1, strict=False)]
    method: Annotated[tuple[SwitchedMethod, ...], AS_TUPLE]


@dataclass(frozen=True)
class Family:
    """A tunable kernel with its methods."""

    rung: Rung  # the kernel
    methods: tuple[Method, ...]  # in the file's order
    hypers: tuple[Hyper, ...]  # knobs that branches vary
    canonical: tuple[CanonicalRule, ...]  # rules that make equal kernels equal points
    constraints: tuple[Constraint, ...]  # what every point must hold
    boxes: tuple[GridBox, ...]  # whose union is the grid
    workloads: tuple[Problem, ...]  # the first is the headline
    path: Path  # the file
    start_knobs: Mapping[str, int] = field(repr=False)
    leads_without: tuple[str, ...] = ()  # ids, see `leading`
    # what somebody wrote, by name; of a kernel without a family's file that with which it began too
    sources: dict[str, BranchSource] = field(default_factory=dict, repr=False, compare=False)
    # What a loop asks for again and again: points by the values of all knobs, the methods on at
    # each, and what expressions said, by their text and the values of the knobs that they ask for.
    _kept: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    # ------------------------------------------------------------------------------- points

    @cached_property
    def start(self) -> Point:
        """Where a search starts."""
        return self.written(START_KEY) if START_KEY in self.sources else self.point()

    def written(self, name: str, without: tuple[str, ...] = ()) -> Point:
        """The point of a source that somebody wrote, with the knobs as at the start."""
        key = " ".join([name, *(f"-{method}" for method in without)])
        return Point(key, dict(self._start_values), name, without)

    def rung_at(self, point: Point) -> Rung:
        """The kernel of a point: the family's, or one that somebody wrote, launched as he said."""
        if not point.source:
            return self.rung
        key = ("rung", point.source, point.without)
        if key not in self._kept:
            self._kept[key] = self.sources[point.source].rung(self.rung, point.without)
        return self._kept[key]

    @property
    def is_plain(self) -> bool:
        """Whether it is a kernel alone, without a file that says what its knobs switch."""
        return START_KEY in self.sources

    def point(self, knobs: Toggle | None = None) -> Point:
        """The point of a setting; a knob that is not named is as at the start. Raises InvalidPoint:
        it breaks a constraint, whose reason is given."""
        values = self.rung.resolve_knobs({**self.start_knobs, **(knobs or {})})
        setting = tuple(values.values())
        if setting not in self._kept:
            self._kept[setting] = self._make_point(values)
        return self._kept[setting]

    def _make_point(self, values: dict[str, int]) -> Point:
        values = self._make_canonical(values)
        for one in self.constraints:
            if not self._holds(one.require, values):
                raise ForbiddenPoint(
                    f"{self.rung.id} cannot be made with {self._key_of(values)}.",
                    one.reason,
                    "another value of one of these knobs: " + ", ".join(names_in(one.require)),
                )
        return Point(self._key_of(values), values)

    def overruled(self, knobs: Toggle) -> dict[str, str]:
        """Knobs of a setting that mean nothing beside the others, and why; see `CanonicalRule`."""
        values = self.point(knobs).knobs
        found = dict.fromkeys((name for name in knobs if values[name] != knobs[name]), "")
        for rule in reversed(self.canonical):  # the first that says so stands
            if self._holds(rule.when, values):
                same = [name for name in found if rule.set.get(name) == values[name]]
                found |= dict.fromkeys(same, rule.why)
        return found

    def read_key(self, key: str) -> Point:
        """The point that a `Point.key` names."""
        name, _, out = key.partition(" ")
        if name in self.sources:
            return self.written(name, tuple(one.removeprefix("-") for one in out.split()))
        knobs: dict[str, int] = {}
        for word in key.split() if key != START_KEY else ():
            name, equals, value = word.partition("=")
            if not equals or not re.fullmatch(r"-?[0-9]+", value) or name in knobs:
                raise LabError(
                    f"{key!r} names no point of {self.rung.id}.",
                    f"{word!r} is not a knob and its value, or stands twice",
                    f"a key is {START_KEY!r}, or for example {self._example_key!r}",
                )
            knobs[name] = int(value)
        return self.point(knobs)

    @cached_property
    def _example_key(self) -> str:
        return next((one.key for one in self.grid() if one != self.start), START_KEY)

    def _key_of(self, values: Mapping[str, int]) -> str:
        start = self._start_values
        changed = {name: value for name, value in values.items() if value != start[name]}
        return say_knobs(changed, between=" ") or START_KEY

    @cached_property
    def _start_values(self) -> Mapping[str, int]:
        return self._make_canonical(self.rung.resolve_knobs(self.start_knobs))

    def _make_canonical(self, values: dict[str, int]) -> dict[str, int]:
        for _ in range(_MOST_PASSES):
            unmet = False
            for rule in self.canonical:
                if self._holds(rule.when, values) and not rule.set.items() <= values.items():
                    values, unmet = {**values, **rule.set}, True
            if not unmet:
                return values
        raise LabError(
            f"The canonical rules of {self.path.name} never settle.",
            f"with {say_knobs(values)} one sets what another sets back",
            "let each knob be set by one rule",
        )

    def _holds(self, text: str, values: Mapping[str, int]) -> bool:
        key = (text, *map(values.get, names_in(text)))
        try:
            if key not in self._kept:
                self._kept[key] = bool(evaluate_expression(text, values))
            return self._kept[key]
        except ExpressionError as error:
            raise LabError(
                f"{self.path.name} has an expression that cannot be computed.",
                f"{text!r} at {say_knobs(values)}: {error.why}",
                "the other points",
            ) from error

    # ------------------------------------------------------------------------------ methods

    @cached_property
    def _by_id(self) -> Mapping[str, Method]:
        return {one.id: one for one in self.methods}

    def method(self, name: str) -> Method:
        """A method by its id; one that somebody's source claims may be of the catalogue."""
        known = self.claimable.get(name) if self.sources else None
        if known is not None:
            return known
        if name not in self._by_id:
            raise LabError(
                f"{self.rung.id} has no method {name!r}.",
                f"its methods are {', '.join(self._by_id) or 'none'}",
                "name one of them",
            )
        return self._by_id[name]

    @property
    def claimable(self) -> Mapping[str, Method]:
        """What source may claim, by id: the family's methods, those that were described with some
        source, and the catalogue."""
        told = {one.id: one for source in self.sources.values() for one in source.described}
        return {**catalogue(), **told, **self._by_id}

    @cached_property
    def switchable(self) -> tuple[Method, ...]:
        """The methods that knobs of this kernel switch; the others are pairs of shipped rungs."""
        return tuple(one for one in self.methods if one.on)

    def has(self, point: Point, method: str) -> bool:
        """Whether a method is on at a point: one of its forms and all that it needs hold, or its
        source has it."""
        if point.source:
            return method in self.methods_on(point)
        one = self.method(method)
        met = all(point.knobs[name] in values for name, values in one.needs.items())
        return met and any(point.holds(form) for form in one.on)

    def form_of(self, point: Point, method: str) -> int | None:
        """The number of the form in which a method is on, from 0, or None where it is off, or is
        written."""
        if point.source or not self.has(point, method):
            return None
        forms = self.method(method).on
        return next(number for number, form in enumerate(forms) if point.holds(form))

    def methods_on(self, point: Point) -> tuple[str, ...]:
        """The methods that are on at a point, in the family's order; of written ones those that its
        source claims, and those whose guards it still has."""
        if point.source:
            source = self.sources[point.source]
            every = (*source.methods, *source.carried)
            return tuple(one for one in every if one not in point.without)
        if point not in self._kept:
            self._kept[point] = tuple(one.id for one in self.switchable if self.has(point, one.id))
        return self._kept[point]

    def apply(
        self,
        point: Point,
        methods: Iterable[str],
        hyper: Toggle | None = None,
        forms: Mapping[str, int] | None = None,
    ) -> Point:
        """The point with some methods on, each with what it needs, in its default form or that of a
        number in ``forms``. What a later one sets wins; knobs of ``hyper`` are set last. Raises
        InvalidPoint: they do not go together, or not with the rest of the point."""
        wanted, forms = tuple(methods), dict(forms or {})
        if strange := set(forms) - set(wanted):
            raise LabError(
                f"A form is given of {', '.join(sorted(strange))}, which is not applied.",
                f"the methods are {', '.join(wanted) or 'none'}",
                "leave the form out",
            )
        knobs = dict(point.knobs)
        for name in wanted:
            one = self._switch(name)
            number = forms.get(name, 0)
            if not 0 <= number < len(one.on):
                raise LabError(
                    f"{name} has no form {number}.",
                    f"it has {len(one.on)}, counted from 0",
                    "one of these",
                )
            knobs |= _setting(one, knobs, number)
        made = self.point({**knobs, **(hyper or {})})
        if lost := [name for name in wanted if not self.has(made, name)]:
            raise InvalidPoint(
                f"{' and '.join(wanted)} cannot be applied at {point.key}.",
                f"what comes out is {made.key}, without {', '.join(lost)}",
                "other methods, or fewer at once",
            )
        return made

    def remove(self, point: Point, method: str) -> Point:
        """The point without a method, and without what cannot be there without it: `dependents`.
        Raises InvalidPoint: the method cannot be switched off there, or what is left is
        forbidden."""
        if not self.has(point, method):
            self._switch(method)
            raise LabError(
                f"{method} is not on at {point.key}.",
                f"on are {', '.join(self.methods_on(point)) or 'none'}",
                "remove one of these",
            )
        what = f"{method} cannot be switched off at {point.key}."
        if point.source:
            out = (*point.without, method)
            if why := self.sources[point.source].why_not_without(out):
                raise InvalidPoint(what, why, "the other methods")
            return self.written(point.source, out)
        one = self._switch(method)
        try:
            made = self.point({**point.knobs, **one.off})
        except InvalidPoint as error:
            raise InvalidPoint(what, error.why, "the other methods") from error
        if self.has(made, method):
            why = f"the rules of {self.path.name} switch it on again"
            raise InvalidPoint(what, why, "the other methods")
        return made

    def dependents(self, point: Point, method: str) -> tuple[str, ...]:
        """What else goes when a method is removed: it needs that method."""
        left = self.remove(point, method)
        if point.source:
            return ()
        return tuple(
            name for name in self.methods_on(point) if name != method and not self.has(left, name)
        )

    def _switch(self, name: str) -> Method:
        one = self.method(name)
        if one.pair is not None:
            raise LabError(
                f"{name} is no knob of {self.rung.id}.",
                f"it is shown by two rungs, {one.pair[0]} without it and {one.pair[1]} with it",
                "compare these two",
            )
        return one

    # --------------------------------------------------------------------------------- grid

    def grid(self) -> tuple[Point, ...]:
        """The points whose methods can each be taken out, each once, in the order of the boxes."""
        return self._grid

    @cached_property
    def leading(self) -> tuple[Point, ...]:
        """The points that a round may crown: the grid, and each of it without one method of
        ``leads_without``."""
        found = dict.fromkeys(self._grid)
        for method, point in itertools.product(self.leads_without, self._grid):
            if self.has(point, method):
                with suppress(InvalidPoint):
                    found[self.remove(point, method)] = None
        return tuple(found)

    def closure(self) -> tuple[Point, ...]:
        """The grid, then every point that one removal of a method from it leads to."""
        removals = (
            self.remove(point, method) for point in self._grid for method in self.methods_on(point)
        )
        return tuple(dict.fromkeys((*self._grid, *removals)))

    @cached_property
    def _grid(self) -> tuple[Point, ...]:
        found: dict[Point, None] = {}
        for box in self.boxes:
            for values in itertools.product(*box.choices.values()):
                knobs = {**self._start_values, **dict(zip(box.choices, values, strict=True))}
                if not box.only or self._holds(box.only, knobs):
                    with suppress(InvalidPoint):
                        found[self.point(knobs)] = None
        return tuple(found)


def _setting(method: Method, knobs: Mapping[str, int], form: int) -> dict[str, int]:
    """What is set of some knobs when a method is applied in a form."""
    needed = {name: values[0] for name, values in method.needs.items() if knobs[name] not in values}
    return {**method.along, **needed, **method.on[form]}


# ----------------------------------------------------------------------------------------- reading


def load_family(name: str | Path) -> Family:
    """Read a family: the id of a shipped kernel, or the path of its ``.py`` or ``.toml``."""
    text = str(name)
    if text.endswith(".toml"):
        text = text.removesuffix(".toml") + ".py"
    rung = load_rung(text)
    path = rung.source.with_suffix(".toml")
    try:
        data = tomllib.loads(read_given(path))
    except OSError as error:
        raise LabError(
            f"{rung.id} is no kernel family.",
            f"there is no {path.name} beside its source: {error}",
            "everything else can be done with it; tests/families shows a family's files",
        ) from error
    except (ValueError, tomllib.TOMLDecodeError) as error:
        _refuse_file(path, str(error))
    try:
        read = _File.model_validate(data)
    except ValidationError as error:
        _refuse_file(path, _say_faults(error, data))
    _check_file(path, rung, read)
    problems = tuple(_read_workload(path, rung, text) for text in read.workloads)
    family = Family(
        rung=rung,
        methods=read.method,
        hypers=read.hyper,
        canonical=read.canonical,
        constraints=read.constraint,
        boxes=read.grid,
        workloads=problems,
        path=path,
        start_knobs=MappingProxyType(dict(read.start)),
        leads_without=read.leads_without,
    )
    _check_names(path, family)
    _check_toggles(path, family)
    return family


def load_tuned(name: str | Path) -> Family:
    """What a loop tunes: a family, or a kernel alone, of which all branches are written. A launch
    that is kept beside it is no family's file."""
    text = str(name)
    rung = load_rung(text.removesuffix(".toml") + ".py" if text.endswith(".toml") else text)
    path = rung.source.with_suffix(".toml")
    data: Mapping[str, Any] = {}
    with suppress(OSError, ValueError):  # a family's file that cannot be read says so itself
        data = tomllib.loads(read_given(path)) if rung.is_family else {}
    if rung.is_family and "launch" not in data:
        return load_family(name)
    made = SourceText.read(rung.source, rung)
    problem = operation_of(rung.operation).headline
    return Family(
        rung=rung,
        methods=tuple(catalogue().values()),
        hypers=(),
        canonical=(),
        constraints=(),
        boxes=(),
        workloads=(problem,),
        path=path.with_suffix(".py"),
        start_knobs={},
        sources={START_KEY: BranchSource(START_KEY, made)},
    )


def source_hash_of(family: Family) -> str:
    """The identity of a family's source: kernel, own headers and options, no definitions."""
    rung = family.rung
    return hash_source(rung.source_text, {}, rung.include_dirs)


def family_hash_of(family: Family) -> str:
    """The identity of all that a loop's times and verdicts follow from: source, Python and data.
    Comments and layout of the Python and of the data do not count, nor does the source of a kernel
    alone, which the loop keeps."""
    if family.is_plain:
        return hash_python_file(family.path)
    data = tomllib.loads(read_given(family.path))
    parts = {
        "source": source_hash_of(family),
        "python": hash_python_file(family.path.with_suffix(".py")),
        "data": data,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _refuse_file(path: Path, why: str) -> NoReturn:
    raise LabError(
        f"The family {path.name} cannot be used.",
        why,
        f"correct {path}; every other family is unaffected",
    )


def _say_faults(error: ValidationError, data: Mapping[str, Any]) -> str:
    """Each fault with the method's id and the field's name."""
    said = []
    for one in error.errors():
        place = [str(part) for part in one["loc"]]
        match one["loc"]:
            case ("method", int() as number, *_):
                entry = data["method"][number]
                name = entry.get("id", number) if isinstance(entry, Mapping) else number
                place[:2] = [f"method {name}"]
        said.append(f"{', '.join(place)}: {one['msg']}")
    return "; ".join(said)


def _settings(read: _File) -> Iterator[tuple[str, Mapping[str, int]]]:
    """Every setting of knobs in a file, and whose it is."""
    yield "start", read.start
    for method in read.method:
        whose = f"method {method.id}"
        yield f"{whose}, off", method.off
        yield f"{whose}, along", method.along
        yield from _each(f"{whose}, needs", method.needs)
        for number, form in enumerate(method.on):
            yield f"{whose}, on {number}", form
    for hyper in read.hyper:
        yield from _each(f"hyper {hyper.knob}", {hyper.knob: hyper.values})
    for rule in read.canonical:
        yield f"canonical {rule.when!r}", rule.set
    for box in read.grid:
        yield from _each(f"grid {box.name!r}", box.choices)


def _each(
    whose: str, choices: Mapping[str, tuple[int, ...]]
) -> Iterator[tuple[str, Mapping[str, int]]]:
    for knob, values in choices.items():
        yield from ((whose, {knob: value}) for value in values)


def _check_file(path: Path, rung: Rung, read: _File) -> None:
    """Refuse a knob or a value that the rung does not have, and ids that stand twice."""
    for whose, setting in _settings(read):
        try:
            rung.resolve_knobs(setting)
        except LabError as error:
            _refuse_file(path, f"{whose}: {error.what} {error.why}")
    ids = [method.id for method in read.method if method.pair is None]
    if strange := sorted(set(read.leads_without) - set(ids)):
        _refuse_file(path, f"leads_without: no knob switches {', '.join(strange)}")
    ids = [method.id for method in read.method]
    if twice := sorted({name for name in ids if ids.count(name) > 1}):
        _refuse_file(path, f"methods that stand twice: {', '.join(twice)}")
    for method in read.method:
        whose = f"method {method.id}, signature"
        try:
            patterns = method.patterns
        except ValueError as error:
            _refuse_file(path, f"{whose}: {error}")
        if patterns and all(pattern.kind == "none" for pattern in patterns):
            _refuse_file(path, f"{whose}: an empty kernel holds it; name what must be there")
        for name in method.pair or ():
            load_rung(name)
    for box in read.grid:
        if (size := math.prod(map(len, box.choices.values()))) > MOST_BOX_POINTS:
            _refuse_file(path, f"grid {box.name!r}: {size} products, over {MOST_BOX_POINTS}")


def _read_workload(path: Path, rung: Rung, text: str) -> Problem:
    try:
        problem = parse_problem(text)
        reason = rung.supports(problem)
    except LabError as error:
        _refuse_file(path, f"workload {text!r}: {error.what} {error.why}")
    if reason:
        _refuse_file(path, f"workload {text!r}: {reason}")
    return problem


def trigger_names(family: Family) -> frozenset[str]:
    """Every name that a trigger or a skip condition of a family may ask for."""
    knobs = (knob.name for knob in family.rung.knobs)
    of_problem = family.workloads[0].numbers()
    return frozenset((*counter_names(), *GAP_NAMES, *LAUNCH_NAMES, *knobs, *of_problem))


def _expressions(family: Family) -> Iterator[tuple[str, str, frozenset[str]]]:
    """Every expression of a family: whose it is, its text, and the names that it may ask for."""
    knobs, wanted = frozenset(knob.name for knob in family.rung.knobs), trigger_names(family)
    proofs = proof_names()
    for method in family.methods:
        yield f"method {method.id}, trigger", method.trigger, wanted
        yield f"method {method.id}, skip", method.skip, wanted
        yield f"method {method.id}, proof_when", method.proof_when, proofs
    yield from (("canonical, when", rule.when, knobs) for rule in family.canonical)
    yield from (("constraint, require", one.require, knobs) for one in family.constraints)
    yield from ((f"grid {box.name!r}, only", box.only, knobs) for box in family.boxes)


def _check_names(path: Path, family: Family) -> None:
    """Refuse an expression that cannot be read, or asks for a name that nothing has."""
    for whose, text, known in _expressions(family):
        try:
            unknown = sorted(names_in(text) - known) if text else []
        except ExpressionError as error:
            _refuse_file(path, f"{whose}: {error.what} {error.why}")
        if unknown:
            _refuse_file(path, f"{whose}: nothing is called {', '.join(unknown)}")


def _check_toggles(path: Path, family: Family) -> None:
    """Refuse a start that is no point, and a toggle that switches nothing."""
    try:
        start = family.start
    except InvalidPoint as error:
        _refuse_file(path, f"start: {error.what} {error.why}")
    for one in family.switchable:
        for number in range(len(one.on)):
            try:
                family.remove(family.apply(start, [one.id], forms={one.id: number}), one.id)
            except InvalidPoint as error:
                if not _is_on_somewhere(family, one.id, number):
                    _refuse_file(path, f"method {one.id}, on {number}: {error.what} {error.why}")


def _is_on_somewhere(family: Family, method: str, form: int) -> bool:
    """Whether a point of the grid has the form on, so that it can be left out there."""
    for point in family.grid():
        if family.form_of(point, method) == form:
            with suppress(InvalidPoint):
                family.remove(point, method)
                return True
    return False
