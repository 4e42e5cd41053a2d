"""Whether a method is in the machine code: claimed against compiled. Only the kernel function that
takes longest is looked at; another one, or padding, proves nothing. A method without a signature is
proved by what its family's file names, or is not proved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from labtools.problem import LabError
from labtools.record.expressions import MissingName, Quantity
from labtools.toolchain.listings import MachineCode
from labtools.toolchain.sass import Sass

from .family import WITHOUT, Family, Method, Pattern

Found = Literal["present", "absent", "no signature"]
PatternCounts = tuple[tuple[str, int], ...]  # how many instructions match each line of a signature


@dataclass(frozen=True)
class Proof:
    """What the proof of a method without a signature said."""

    said: bool | None  # None where it could not be asked
    why: str = ""  # it could not, where that is a fault of the expression


@dataclass(frozen=True)
class SassVerdict:
    """What the machine code says of one method."""

    method: str  # its id
    verdict: Found  # the signature is there, or is not, or the method has none
    found: PatternCounts  # how many instructions match each line of the signature
    entry: str  # the kernel function that was looked at
    proof: str = ""  # how a method without a signature is proved, in words
    proved: bool | None = None  # what it said; None: not asked, or a signature
    without: PatternCounts = ()  # the same without the method; may be empty
    note: str = ""  # what decided, where that is not the counts alone

    def __str__(self) -> str:
        """A signature's verdict, or what the proof said of a method that has none."""
        if self.verdict != "no signature":
            return self.verdict
        if not self.proof:  # a signature that compares, and nothing to compare with
            return "cannot be told"
        return {True: "proved", False: "not proved", None: "proof not asked"}[self.proved]


def check_sass(
    family: Family,
    methods: Iterable[str],
    code: MachineCode,
    before: MachineCode | Mapping[str, MachineCode] | None = None,
    entry: str | None = None,
    proved: Mapping[str, Proof] | None = None,
) -> tuple[SassVerdict, ...]:
    """Look for the signatures of methods in one kernel's code. ``before``, the code without them or
    a dict of the code without each alone, must have less of what a signature counts: a compiler
    that dropped the method leaves the code as it was. ``entry`` is the kernel function that takes
    longest (None: the only one), ``proved`` what `prove` said of methods without a signature."""
    sass = _function_of(code, entry)
    verdicts = []
    for name in methods:
        method = family.method(name)
        if not method.signature:
            verdicts.append(judge_proof(method, (proved or {}).get(name), sass.entry))
            continue
        other = before.get(name) if isinstance(before, Mapping) else before
        plain = _function_of(other, sass.entry) if other is not None else None
        verdicts.append(_look(method, sass, plain))
    return tuple(verdicts)


def _function_of(code: MachineCode, entry: str | None) -> Sass:
    known = list(code.entries)
    if entry is None and len(known) == 1:
        entry = known[0]
    if entry not in known:
        raise LabError(
            f"The machine code of {code.rung_id} cannot be looked at.",
            f"its functions are {', '.join(known)}, and "
            + ("none is named" if entry is None else f"{entry} is none of them"),
            "name the one that takes longest",
        )
    return code.entries[entry]


def _look(method: Method, sass: Sass, plain: Sass | None) -> SassVerdict:
    found = count_signature(method, sass)
    if plain is None:
        return judge_counts(method, found, None, sass.entry)
    same = _texts(plain) == _texts(sass)
    return judge_counts(method, found, count_signature(method, plain), sass.entry, same_code=same)


def judge_counts(
    method: Method,
    found: PatternCounts,
    without: PatternCounts | None,
    entry: str,
    same_code: bool = False,
) -> SassVerdict:
    """The verdict that follows from how many instructions match each line of a signature; without
    counts ``without`` it, a signature that compares the two stays undecided."""
    before = [count for _, count in without] if without is not None else [None] * len(found)
    lines = list(zip(method.patterns, (count for _, count in found), before, strict=True))
    answers = [pattern.holds(count, other) for pattern, count, other in lines]
    verdict: Found = "absent"
    note = ""
    if same_code:
        note = "the machine code is the same with and without it"
    elif None in answers and False not in answers:
        verdict, note = "no signature", "its signature compares with the code without it"
    elif all(answers) and without is not None and not any(_adds(*line) for line in lines):
        note = "what the signature counts was there without it"
    elif all(answers):
        verdict = "present"
    return SassVerdict(method.id, verdict, found, entry, without=without or (), note=note)


def judge_proof(method: Method, proof: Proof | None, entry: str) -> SassVerdict:
    """The verdict on a method without a signature; a proof that is None was not asked."""
    found = proof or Proof(None)
    kind: Found = "no signature"
    return SassVerdict(method.id, kind, (), entry, method.proof, proved=found.said, note=found.why)


def _adds(pattern: Pattern, count: int, without: int | None) -> bool:
    """Whether a line matches more than without the method, or less where fewer or none may."""
    if without is None:
        return False
    return count < without if pattern.kind in ("none", "fewer") else count > without


def count_signature(method: Method, sass: Sass) -> PatternCounts:
    """How many instructions of a kernel function match each line of a method's signature."""
    texts = _texts(sass)
    return tuple(
        (pattern.text, sum(bool(pattern.regex.search(text)) for text in texts))
        for pattern in method.patterns
    )


def _texts(sass: Sass) -> tuple[str, ...]:
    """The instructions that do something, as printed."""
    return tuple(one.text for one in sass.executable if not one.is_padding)


def prove(
    method: Method, values: Mapping[str, Quantity | None], without: Mapping[str, Quantity | None]
) -> Proof:
    """What the proof of a method without a signature says, of values with it and without it.
    Nothing where it has no ``proof_when``, a value is missing, or it cannot be computed."""
    if not method.proof_when:
        return Proof(None)
    names = {**values, **{name + WITHOUT: value for name, value in without.items()}}
    try:
        return Proof(bool(method.ask("proof_when", names)))
    except MissingName:
        return Proof(None)
    except LabError as error:
        return Proof(None, f"its proof cannot be computed: {error.why}")
