"""Whether a method is in the machine code: claimed against compiled. Only the kernel function that
takes longest is looked at, and of it what a launch executes; another one, padding, or code behind a
condition that never holds proves nothing. A method without a signature is proved by what its
family's file names, or is not proved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from labtools.problem import LabError
from labtools.record.expressions import MissingName, Quantity, names_in
from labtools.toolchain.listings import MachineCode
from labtools.toolchain.sass import Sass

from .code_numbers import ExecutedPlaces
from .family import Family
from .method import WITHOUT, Method, Pattern

Found = Literal["present", "absent", "no signature"]
PatternCounts = tuple[tuple[str, int], ...]  # how many instructions match each line of a signature


SIDE_EFFECTS = frozenset(
    "LDG LDGSTS LDS LDSM LDL STG STS STL STSM ATOM ATOMG ATOMS RED SHFL VOTE MATCH REDUX BAR CCTL "
    "UBLKCP UTMALDG SYNCS HMMA IMMA HGMMA MUFU PRMT".split()
)
"""Opcodes, without modifiers, of memory, of barriers, between lanes, and of matrix products: one of
them that comes or goes with a method is something else that the method switches."""


@dataclass(frozen=True)
class ProofValue:
    """A number that a proof asked for."""

    name: str  # as the family's file calls it
    value: Quantity | None  # with the method
    without: Quantity | None  # without it
    origin: str  # what it was counted, computed or measured of


@dataclass(frozen=True)
class Proof:
    """What the proof of a method without a signature said."""

    said: bool | None  # None where it could not be asked
    why: str = ""  # it could not, where that is known
    values: tuple[ProofValue, ...] = ()  # that it asked for


@dataclass(frozen=True)
class OpcodeChange:
    """An opcode of `SIDE_EFFECTS` that stands on one side only, and is none of the signature's."""

    opcode: str  # modifiers included
    count: int  # with the method
    without: int  # without it

    def __str__(self) -> str:
        return f"{self.opcode} {self.without} to {self.count}"


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
    origin: str = ""  # of the counts: which code, and what of it
    values: tuple[ProofValue, ...] = ()  # that a proof asked for
    also: str = ""  # what else the method switches, by the family's file
    others: tuple[OpcodeChange, ...] = ()  # the same by the machine code
    removed: tuple[str, ...] = ()  # methods that go when it is taken out, as they need it

    @property
    def switched(self) -> Iterator[str]:
        """What else is switched with the method, in words."""
        if self.removed:
            yield f"taken out, it takes {' and '.join(self.removed)} along"
        if self.also:
            yield f"it also {self.also}"
        if self.others:
            yield f"other opcodes that come or go with it: {', '.join(map(str, self.others))}"

    def __str__(self) -> str:
        """A signature's verdict, or what the proof said of a method that has none."""
        if self.verdict != "no signature":
            return self.verdict
        if not self.proof:  # a signature that compares, and nothing to compare with
            return "cannot be told"
        return {True: "proved", False: "not proved", None: "proof not asked"}[self.proved]


ExecutedOf = Callable[[str | None], ExecutedPlaces]
"""What a launch executes with all methods (None), or without one. Raises LabError: not known."""


def check_sass(
    family: Family,
    methods: Iterable[str],
    code: MachineCode,
    before: MachineCode | Mapping[str, MachineCode] | None = None,
    entry: str | None = None,
    proved: Mapping[str, Proof] | None = None,
    ran: ExecutedOf | None = None,
    entries: Mapping[str, str] | None = None,
) -> tuple[SassVerdict, ...]:
    """Look for the signatures of methods in one kernel's code. ``before``, the code without them or
    a dict of the code without each alone, must have less of what a signature counts: a compiler
    that dropped the method leaves the code as it was. ``entry`` is the kernel function that takes
    longest (None: the only one), ``proved`` what `prove` said of methods without a signature.
    ``ran`` says what is executed; without it all that stands in the function counts. ``entries``
    name the function of a code without a method, where that has another one."""
    sass = _function_of(code, entry)
    verdicts = []
    for name in methods:
        method = family.method(name)
        other = before.get(name) if isinstance(before, Mapping) else before
        is_there = other is not None and sass.entry in other.entries
        plain = other.entries[sass.entry] if other is not None and is_there else None
        if not method.signature:
            verdict = judge_proof(method, (proved or {}).get(name), sass.entry)
            every = _positions(sass), _positions(plain)
            verdicts.append(_with_others(verdict, method, sass, plain, *every))
            continue
        if other is not None and plain is None:
            plain = _function_of(other, (entries or {}).get(name, sass.entry))
        verdict = _look(method, sass, plain, ran)
        made = f"machine code {code.content[:12]}, {code.origin}"
        verdicts.append(replace(verdict, origin=f"{verdict.origin} of {sass.entry}, {made}"))
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


def _look(method: Method, sass: Sass, plain: Sass | None, ran: ExecutedOf | None) -> SassVerdict:
    if plain is not None and _texts(plain) == _texts(sass):
        found = count_signature(method, sass)
        return replace(
            judge_counts(method, found, found, sass.entry, same_code=True), origin=_STANDING
        )
    every = _positions(sass), _positions(plain)
    standing = _judge_places(method, sass, plain, *every)
    if ran is None:
        return replace(standing, origin=_STANDING)
    try:
        with_it = ran(None)
        nothing = ExecutedPlaces(with_it.block, frozenset(), frozenset())
        without = ran(method.id) if plain is not None else nothing
    except LabError as error:
        if standing.verdict == "absent":  # what does not stand there is not executed either
            return replace(standing, origin=_STANDING)
        why = f"whether it is executed is not known: {error.clause}"
        return replace(standing, verdict="no signature", note=why, origin=_STANDING)
    certain = _judge_places(method, sass, plain, with_it.certain, without.certain)
    possible = _judge_places(method, sass, plain, with_it.possible, without.possible)
    certain = replace(certain, origin=f"instructions that block {with_it.block} executes")
    if certain.verdict != possible.verdict:
        note = "data decide whether its instructions are executed"
        return replace(certain, verdict="no signature", note=note)
    if certain.verdict == "absent" and standing.verdict == "present":
        never = "its instructions stand there, and no thread of the block executes them"
        return replace(certain, note=never)
    return certain


_STANDING = "all instructions, executed or not,"


def _positions(sass: Sass | None) -> Collection[int]:
    return range(len(sass.instructions)) if sass is not None else ()


def _judge_places(
    method: Method,
    sass: Sass,
    plain: Sass | None,
    places: Collection[int],
    before: Collection[int],
) -> SassVerdict:
    """The verdict by the instructions at some positions, with the method and without it."""
    found = count_signature(method, sass, places)
    without = None if plain is None else count_signature(method, plain, before)
    verdict = judge_counts(method, found, without, sass.entry)
    return _with_others(verdict, method, sass, plain, places, before)


def _with_others(
    verdict: SassVerdict,
    method: Method,
    sass: Sass,
    plain: Sass | None,
    places: Collection[int],
    before: Collection[int],
) -> SassVerdict:
    """The same with what else comes or goes with the method."""
    if plain is None:
        return verdict

    def counted(code: Sass, chosen: Collection[int]) -> Counter[str]:
        return Counter(
            one.opcode
            for one in code.executable
            if one.index in chosen
            and one.base in SIDE_EFFECTS
            and not any(pattern.regex.search(one.text) for pattern in method.patterns)
        )

    now, then = counted(sass, places), counted(plain, before)
    others = tuple(
        OpcodeChange(name, now[name], then[name]) for name in sorted(now.keys() ^ then.keys())
    )
    return replace(verdict, others=others)


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
    return SassVerdict(
        method.id, verdict, found, entry, without=without or (), note=note, also=method.also
    )


def judge_proof(method: Method, proof: Proof | None, entry: str) -> SassVerdict:
    """The verdict on a method without a signature; a proof that is None was not asked."""
    found = proof or Proof(None)
    return SassVerdict(
        method.id,
        "no signature",
        (),
        entry,
        method.proof,
        proved=found.said,
        note=found.why,
        origin="; ".join(dict.fromkeys(one.origin for one in found.values)),
        values=found.values,
        also=method.also,
    )


def _adds(pattern: Pattern, count: int, without: int | None) -> bool:
    """Whether a line matches more than without the method, or less where fewer or none may."""
    if without is None:
        return False
    return count < without if pattern.kind in ("none", "fewer") else count > without


def count_signature(
    method: Method, sass: Sass, places: Collection[int] | None = None
) -> PatternCounts:
    """How many instructions of a kernel function match each line of a method's signature; of some
    ``places`` alone where they are given."""
    texts = _texts(sass, places)
    return tuple(
        (pattern.text, sum(bool(pattern.regex.search(text)) for text in texts))
        for pattern in method.patterns
    )


def _texts(sass: Sass, places: Collection[int] | None = None) -> tuple[str, ...]:
    """The instructions that do something, as printed."""
    return tuple(
        one.text
        for one in sass.executable
        if not one.is_padding and (places is None or one.index in places)
    )


def prove(
    method: Method,
    values: Mapping[str, Quantity | None],
    without: Mapping[str, Quantity | None],
    origins: Mapping[str, str] | None = None,
) -> Proof:
    """What the proof of a method without a signature says, of values with it and without it, and
    where each comes from. Nothing where it has no ``proof_when``, a value is missing, or it cannot
    be computed."""
    if not method.proof_when:
        return Proof(None, "its file has no proof_when")
    asked = dict.fromkeys(
        name.removesuffix(WITHOUT) for name in sorted(names_in(method.proof_when))
    )
    shown = tuple(
        ProofValue(name, values.get(name), without.get(name), (origins or {}).get(name, "given"))
        for name in asked
    )
    names = {**values, **{name + WITHOUT: value for name, value in without.items()}}
    try:
        return Proof(bool(method.ask("proof_when", names)), values=shown)
    except MissingName as error:
        return Proof(None, f"a value is missing: {error.clause}", shown)
    except LabError as error:
        return Proof(None, f"its proof cannot be computed: {error.why}", shown)
