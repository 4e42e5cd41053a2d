"""A method: one thing to do to a kernel, what calls for it, and how the machine code tells of it.
The catalogue beside this file has those that any kernel may claim; a family adds how its knobs
switch its own."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from labtools.measure.profiler.counters import COUNTERS, STALL_REASONS
from labtools.problem import LabError
from labtools.record.expressions import ExpressionError, Quantity, evaluate_expression
from labtools.record.fields import ShippedId

Axis = Literal["compute", "memory", "latency"]
METHOD_AXES: tuple[Axis, ...] = ("compute", "memory", "latency")

Toggle = Mapping[str, int]  # a setting: values of some knobs

_LINE = re.compile(
    r"(?:>=(?P<least>[0-9]+) |(?P<than>more|fewer) |(?P<none>!))?(?P<pattern>.*)", re.DOTALL
)


class FamilyData(BaseModel):
    # A misspelt field would otherwise vanish without a word.
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)


Words = Annotated[str, Field(min_length=1)]
KnobSetting = Annotated[dict[str, int], Field(min_length=1)]
AS_TUPLE = Field(default=(), strict=False)  # a list in the file


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


class Method(FamilyData):
    """One thing to do to a kernel: knobs of a family switch it, or source that claims it has it."""

    # with its axis in front: ``latency.async_copies``
    id: Annotated[str, Field(pattern=r"^(compute|memory|latency)\.[a-z0-9_]+$")]
    axis: Axis  # whose gap it closes
    title: Words  # a few words
    idea: Words  # one sentence
    priority: Annotated[int, Field(ge=1)]  # 1 is the first of its axis
    # the oldest architecture that has what it needs
    min_arch: Annotated[str, Field(pattern=r"^sm_[0-9]{2,3}$")] = "sm_75"
    trigger: Words  # expression; its value in [0, 1] says how strongly it is called for
    skip: str = ""  # expression; where it holds the method is left out. Empty: never.
    signature: Annotated[tuple[str, ...], AS_TUPLE]  # see `read_pattern`; every line must hold
    proof: str = ""  # what proves it where it has no signature, as words that follow "proved where"
    proof_when: str = ""  # as an expression; ``_without`` ends values without it
    also: str = ""  # what else it switches, as words that follow "it also"
    off: dict[str, int] = Field(default_factory=dict)  # setting of the knobs without it
    on: Annotated[tuple[KnobSetting, ...], AS_TUPLE]  # settings with it, the default form first
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
        return self

    @cached_property
    def patterns(self) -> tuple[Pattern, ...]:
        """The lines of the signature."""
        return tuple(read_pattern(text) for text in self.signature)


class SwitchedMethod(Method):
    """A method of a family, whose knobs switch it."""

    @model_validator(mode="after")
    def _check_toggle(self) -> Self:
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


class _Catalogue(FamilyData):
    method: Annotated[tuple[Method, ...], AS_TUPLE]


@lru_cache(maxsize=1)
def catalogue() -> Mapping[str, Method]:
    """The methods that source of any kernel may claim, by id."""
    text = Path(__file__).with_name("methods.toml").read_text()
    return {one.id: one for one in _Catalogue.model_validate(tomllib.loads(text)).method}


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


def proof_names() -> frozenset[str]:
    """Every name that a proof may ask for."""
    of_code = (*counter_names(), *LAUNCH_NAMES, *CODE_NAMES)
    return frozenset(name + ending for name in of_code for ending in ("", WITHOUT))
