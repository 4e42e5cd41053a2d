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
from typing import Annotated, Any, Literal, NoReturn, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
    model_validator,
)

from labtools.measure.profiler.counters import COUNTERS, STALL_REASONS
from labtools.problem import LabError, Problem, Rung, load_rung, parse_problem
from labtools.problem.rung import say_knobs
from labtools.problem.text import read_given
from labtools.record import hash_python_file
from labtools.record.expressions import ExpressionError, Quantity, evaluate_expression, names_in
from labtools.record.fields import ShippedId
from labtools.toolchain.sources import hash_source

Axis = Literal["compute", "memory", "latency"]
METHOD_AXES: tuple[Axis, ...] = ("compute", "memory", "latency")

Toggle = Mapping[str, int]  # a setting: values of some knobs

START_KEY = "start"  # the key of the point that a search starts from
MOST_BOX_POINTS = 200_000
"""Products of one box of the grid. A larger one is a slip: every product is looked at."""
_MOST_PASSES = 32  # of canonical rules over one point; a rule that undoes another never ends

_LINE = re.compile(
    r"(?:>=(?P<least>[0-9]+) |(?P<than>more|fewer) |(?P<none>!))?(?P<pattern>.*)", re.DOTALL
)


class InvalidPoint(LabError):
    """A setting of the knobs that is no point of the family."""


class ForbiddenPoint(InvalidPoint):
    """A setting of the knobs that a constraint of the family forbids."""


@dataclass(frozen=True, eq=False)
class Point:
    """Values of all knobs, in canonical form: two points are equal if they are one kernel."""

    key: str  # short text that names only knobs that differ from the start: ``gqa=1 stages=3``
    knobs: Annotated[Mapping[str, int], PlainSerializer(dict)]  # every knob, in the rung's order

    def __post_init__(self) -> None:
        object.__setattr__(self, "knobs", MappingProxyType(dict(self.knobs)))

    @cached_property
    def _values(self) -> tuple[tuple[str, int], ...]:
        return tuple(sorted(self.knobs.items()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Point) and self._values == other._values

    def __hash__(self) -> int:
        return hash(self._values)

    def __str__(self) -> str:
        return self.key

    def __reduce__(self) -> tuple[Any, ...]:
        return (Point, (self.key, dict(self.knobs)))

    def holds(self, toggle: Toggle) -> bool:
        """Whether the knobs have these values."""
        return all(self.knobs[name] == value for name, value in toggle.items())


class _Data(BaseModel):
    # A misspelt field would otherwise vanish without a word.
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)


_Words = Annotated[str, Field(min_length=1)]
_Setting = Annotated[dict[str, int], Field(min_length=1)]
_Tuple = Field(default=(), strict=False)  # a list in the file


PatternKind = Literal["some", "none", "more", "fewer"]


@dataclass(frozen=True)
class Pattern:
    """One line of a signature: a regular expression over the text of one instruction."""

    text: str  # as it stands in the file
    regex: re.Pattern[str]  # what an instruction is searched for
    kind: PatternKind = "some"  # ``more``, ``fewer``: than without the method
    least: int = 1  # see ``kind``

    def holds(self, count: int, without: int | None) -> bool | None:
        """Whether so many instructions that match are as the signature wants it; None where a
        comparison lacks the count ``without`` the method."""
        if self.kind == "some":
            return count >= self.least
        if self.kind == "none":
            return count == 0
        if without is None:
            return None
        return count > without if self.kind == "more" else count < without


def read_pattern(text: str) -> Pattern:
    """A line of a signature: ``LDGSTS``, ``!BAR`` (none), ``>=4 LDG`` (so many), and ``more LDG``
    or ``fewer LDG`` than without the method."""
    found = _LINE.match(text)
    assert found is not None  # every text is a line
    kind: PatternKind = "some"
    if found["than"]:
        kind = "more" if found["than"] == "more" else "fewer"
    elif found["none"]:
        kind = "none"
    inner = found["pattern"]
    if not inner.strip():
        raise ValueError(f"{text!r} looks for nothing")
    try:
        regex = re.compile(inner)
    except re.error as error:
        raise ValueError(f"{text!r} is no regular expression: {error}") from None
    if regex.search(""):
        raise ValueError(f"{text!r} is found in everything")
    return Pattern(text, regex, kind, int(found["least"] or 1))


def _listed(value: Any) -> Any:
    """One value as a list of one; a list as a tuple."""
    return (
        (value,) if isinstance(value, int) else tuple(value) if isinstance(value, list) else value
    )


class Method(_Data):
    """One thing to do to a kernel, and how it is switched."""

    # with its axis in front: ``latency.async_copies``
    id: Annotated[str, Field(pattern=r"^(compute|memory|latency)\.[a-z0-9_]+$")]
    axis: Axis  # whose gap it closes
    title: _Words  # a few words
    idea: _Words  # one sentence
    priority: Annotated[int, Field(ge=1)]  # 1 is the first of its axis
    # the oldest architecture that has what it needs
    min_arch: Annotated[str, Field(pattern=r"^sm_[0-9]{2,3}$")] = "sm_75"
    trigger: _Words  # expression; its value in [0, 1] says how strongly it is called for
    skip: str = ""  # expression; where it holds the method is left out. Empty: never.
    signature: Annotated[tuple[str, ...], _Tuple]  # see `read_pattern`; every line must hold
    proof: str = ""  # what proves it where it has no signature, as words that follow "proved where"
    proof_when: str = ""  # as an expression; ``_without`` ends values without it
    also: str = ""  # what else it switches, as words that follow "it also"
    off: dict[str, int] = Field(default_factory=dict)  # setting of the knobs without it
    on: Annotated[tuple[_Setting, ...], _Tuple]  # settings with it, the default form first
    # values that further knobs must have, by name: one of a few each. Where a knob has none of
    # them, the first is taken along.
    needs: dict[str, Annotated[tuple[int, ...], BeforeValidator(_listed), Field(min_length=1)]] = (
        Field(default_factory=dict)
    )
    along: dict[str, int] = Field(default_factory=dict)  # set when applied; need not stay
    # instead of a toggle, two shipped rungs, without it and with it
    pair: Annotated[tuple[ShippedId, ShippedId] | None, Field(default=None, strict=False)]

    def ask(
        self, what: Literal["trigger", "skip", "proof_when"], names: Mapping[str, Quantity | None]
    ) -> Quantity:
        """The value of one of its expressions; None is a missing value. Raises MissingName: it asks
        for a name without a value."""
        text: str = getattr(self, what)
        try:
            return evaluate_expression(text, names)
        except ExpressionError as error:
            raise LabError(
                f"The {what} of {self.id} cannot be computed.",
                f"{text}: {error.why}",
                "the other methods; an expression with a condition before what may fail",
            ) from error

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.axis != self.id.split(".")[0]:
            raise ValueError(f"{self.id} is of axis {self.axis}")
        if bool(self.signature) == bool(self.proof):
            raise ValueError(f"{self.id} needs a signature, or else a proof, and not both")
        if bool(self.proof_when) and not self.proof:
            raise ValueError(f"{self.id} has proof_when and a signature")
        if self.pair is None and not (self.off and self.on):
            raise ValueError(f"{self.id} needs off and on, or else a pair")
        if self.pair is not None and (self.off or self.on or self.needs or self.along):
            raise ValueError(f"{self.id} has a pair, so it has no off, on, needs or along")
        for form in self.on:
            if set(form) != set(self.off):
                raise ValueError(
                    f"{self.id}: every form sets the knobs of off: {', '.join(self.off)}"
                )
            if form == self.off:
                raise ValueError(f"{self.id}: a form is the same as off")
        if len({tuple(sorted(form.items())) for form in self.on}) != len(self.on):
            raise ValueError(f"{self.id} has a form twice")
        if (set(self.needs) | set(self.along)) & set(self.off):
            raise ValueError(f"{self.id} sets a knob twice: by off, and by needs or along")
        return self

    @cached_property
    def patterns(self) -> tuple[Pattern, ...]:
        """The lines of the signature."""
        return tuple(read_pattern(text) for text in self.signature)


class Hyper(_Data):
    """A knob that branches vary while the methods stay."""

    knob: str  # its name
    values: Annotated[tuple[int, ...], Field(min_length=2, strict=False)]  # those to try
    doc: _Words  # what it changes, one line


class CanonicalRule(_Data):
    """Where an expression over the knobs holds, some knobs mean nothing and get one value."""

    when: _Words  # the expression
    set: _Setting  # the values
    why: _Words  # one sentence


class Constraint(_Data):
    """What every point must hold."""

    require: _Words  # expression over the knobs
    reason: _Words  # why one that does not hold it is no kernel


class GridBox(_Data):
    """A part of the grid: all products of some values; the other knobs are as at the start."""

    name: _Words  # a few words
    choices: Annotated[  # values by knob
        dict[str, Annotated[tuple[int, ...], Field(min_length=1, strict=False)]],
        Field(min_length=1),
    ]
    only: str = ""  # expression: products where it holds


class _File(_Data):
    workloads: Annotated[tuple[str, ...], Field(min_length=1, strict=False)]
    start: dict[str, int] = Field(default_factory=dict)
    leads_without: Annotated[tuple[str, ...], _Tuple]  # see `Family.leading`
    hyper: Annotated[tuple[Hyper, ...], _Tuple]
    canonical: Annotated[tuple[CanonicalRule, ...], _Tuple]
    constraint: Annotated[tuple[Constraint, ...], _Tuple]
    grid: Annotated[tuple[GridBox, ...], Field(min_length=1, strict=False)]
    method: Annotated[tuple[Method, ...], _Tuple]


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
    # What a loop asks for again and again: points by the values of all knobs, the methods on at
    # each, and what expressions said, by their text and the values of the knobs that they ask for.
    _kept: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    # ------------------------------------------------------------------------------- points

    @cached_property
    def start(self) -> Point:
        """Where a search starts."""
        return self.point()

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
        """A method by its id."""
        if name not in self._by_id:
            raise LabError(
                f"{self.rung.id} has no method {name!r}.",
                f"its methods are {', '.join(self._by_id) or 'none'}",
                "name one of them",
            )
        return self._by_id[name]

    @cached_property
    def switchable(self) -> tuple[Method, ...]:
        """The methods that knobs of this kernel switch; the others are pairs of shipped rungs."""
        return tuple(one for one in self.methods if one.pair is None)

    def has(self, point: Point, method: str) -> bool:
        """Whether a method is on at a point: one of its forms and all that it needs hold."""
        one = self.method(method)
        met = all(point.knobs[name] in values for name, values in one.needs.items())
        return met and any(point.holds(form) for form in one.on)

    def form_of(self, point: Point, method: str) -> int | None:
        """The number of the form in which a method is on, from 0, or None where it is off."""
        if not self.has(point, method):
            return None
        forms = self.method(method).on
        return next(number for number, form in enumerate(forms) if point.holds(form))

    def methods_on(self, point: Point) -> tuple[str, ...]:
        """The methods that are on at a point, in the family's order."""
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
        one = self._switch(method)
        if not self.has(point, method):
            raise LabError(
                f"{method} is not on at {point.key}.",
                f"on are {', '.join(self.methods_on(point)) or 'none'}",
                "remove one of these",
            )
        what = f"{method} cannot be switched off at {point.key}."
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


def source_hash_of(family: Family) -> str:
    """The identity of a family's source: kernel, own headers and options, no definitions."""
    rung = family.rung
    return hash_source(rung.source_text, {}, rung.include_dirs)


def family_hash_of(family: Family) -> str:
    """The identity of all that a loop's times and verdicts follow from: source, Python and data.
    Comments and layout of the Python and of the data do not count."""
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


STALL_SHARE = "{}_share"  # name in a trigger of the share of a warp's time in a stall reason
GAP_NAMES: tuple[str, ...] = tuple(f"{axis}_gap" for axis in METHOD_AXES)
LAUNCH_NAMES = ("num_sms", "blocks", "threads", "launches", "blocks_per_sm")
"""Of the GPU, and of the launch that has the most blocks: blocks, threads of one, launches of a
call, and blocks for each SM of the GPU."""
CODE_NAMES = ("registers_per_thread", "spill_bytes", "shared_read_turns", "issued_instructions")
"""Of the machine code: registers and bytes spilled by a thread, turns of shared memory that one
read of a warp takes on average, and instructions that one block issues."""
WITHOUT = "_without"  # ending of a name in ``proof_when``: the value without the method


def counter_names() -> tuple[str, ...]:
    """The names of counters and of stall shares that a trigger may ask for."""
    shares = tuple(STALL_SHARE.format(reason) for reason in STALL_REASONS)
    return (*(one.name for one in COUNTERS), *shares)


def trigger_names(family: Family) -> frozenset[str]:
    """Every name that a trigger or a skip condition of a family may ask for."""
    knobs = (knob.name for knob in family.rung.knobs)
    of_problem = family.workloads[0].numbers()
    return frozenset((*counter_names(), *GAP_NAMES, *LAUNCH_NAMES, *knobs, *of_problem))


def _expressions(family: Family) -> Iterator[tuple[str, str, frozenset[str]]]:
    """Every expression of a family: whose it is, its text, and the names that it may ask for."""
    knobs, wanted = frozenset(knob.name for knob in family.rung.knobs), trigger_names(family)
    of_code = (*counter_names(), *LAUNCH_NAMES, *CODE_NAMES)
    proofs = frozenset(name + ending for name in of_code for ending in ("", WITHOUT))
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
