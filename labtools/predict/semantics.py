"""What integer, predicate and move instructions compute, over many lanes at once: values are uint32
[N], predicates bool [N], None is unknown, as is what an unknown opcode gives. Semantics as
published in NVIDIA, CUDA Binary Utilities (instruction set reference)."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from labtools.toolchain.sass import Instruction, Operand

from .lanes import Lanes
from .spaces import Space

Value = np.ndarray | None
Written = list[tuple[str, Value]]
"""What an instruction writes: names and values."""
Handler = Callable[["State", Instruction], Written]
_MASK = np.uint64(0xFFFFFFFF)
COMPARE = {name.upper(): getattr(operator, name) for name in ("lt", "le", "gt", "ge", "eq", "ne")}
COMBINE = {"AND": operator.and_, "OR": operator.or_, "XOR": operator.xor}


@dataclass(frozen=True, eq=False)
class IntegerComparison:
    """One integer comparison, kept to find out in which trip of a loop it turns."""

    kind: str  # LT, LE, GT, GE, EQ or NE
    # a, b: [N] what was compared, of any integer type
    a: np.ndarray
    b: np.ndarray
    lanes: np.ndarray  # [N] bool who compared
    # low, high: range of the type; outside of it the numbers wrap
    low: int
    high: int


class State:
    """Registers of all lanes."""

    def __init__(self, lanes: Lanes, values: dict[str, Value] | None = None) -> None:
        self.lanes = lanes
        # By name of a register, a predicate, or a word of local or shared memory (``local:8``).
        # None is unknown, and so is what was never written.
        self.values = {} if values is None else values
        self.valid: dict[str, np.ndarray] = {}  # [N] bool who knows it, where not all lanes do
        self.active = lanes.true  # [N] bool who executes; they read what all of them know
        self.comparisons: list[IntegerComparison] | None = None  # those made, if they are kept
        self.stored: frozenset[str] = frozenset()  # memories that have had a word in `values`
        self.spaces: dict[str, Space] = {}  # memories through which data are followed, by name
        self.local_rows: np.ndarray | None = None  # [N] whose stack a copy has; None: its own

    def copy(self) -> State:
        """A copy that may be run on; arrays are shared, since none is changed in place."""
        twin = State(self.lanes, dict(self.values))
        twin.valid, twin.stored = dict(self.valid), self.stored
        twin.spaces, twin.local_rows = dict(self.spaces), self.local_rows
        return twin

    def rows(self, kind: str) -> np.ndarray:
        """[N] the row of each lane in a space: one for a block, or one for each thread."""
        if kind == "shared":
            return np.zeros(self.lanes.count, np.int64)
        return np.arange(self.lanes.count) if self.local_rows is None else self.local_rows

    def write(self, name: str, value: Value, executing: np.ndarray, whole: bool) -> None:
        """Set a register on some lanes; the others keep what they have."""
        if whole:
            self.values[name] = value
            if self.valid:
                self.valid.pop(name, None)
            return
        old = self.values.get(name)
        if old is None:
            self.values[name] = value
            if value is not None:
                self.valid[name] = executing
            return
        known = self.valid.get(name, self.lanes.true)
        if value is None:
            known = known & ~executing
            self.valid[name] = known
            if not known.any():
                self.values[name] = None
                del self.valid[name]
            return
        self.values[name] = np.where(executing, value, old)
        known = known | executing
        if known.all():
            self.valid.pop(name, None)
        else:
            self.valid[name] = known

    def memory_names(self) -> frozenset[str]:
        """Words of local and shared memory whose content is known."""
        return frozenset(name for name in self.values if ":" in name)

    def _known(self, name: str) -> Value:
        value = self.values.get(name)
        if value is None or not self.valid:
            return value
        known = self.valid.get(name)
        return None if known is not None and bool((self.active & ~known).any()) else value

    # ------------------------------------------------------------------ reading operands

    def bits(self, operand: Operand) -> Value:
        """An operand as uint32, with ``-`` and ``~`` applied."""
        value = self._plain(operand)
        if value is None:
            return None
        if operand.absolute:
            value = np.abs(value.view(np.int32)).view(np.uint32)
        if operand.negated:
            value = (~value) + np.uint32(1)
        if operand.inverted:
            value = ~value
        return value

    def _plain(self, operand: Operand) -> Value:
        if operand.kind == "register":
            return self.read(operand.name)
        if operand.kind == "number":
            return self.lanes.constant(operand.bits)
        return self._constant(operand, 0) if operand.kind == "constant" else None

    def read(self, name: str) -> Value:
        """A register by name; ``RZ`` and ``URZ`` are 0."""
        return self.lanes.constant(0) if name in ("RZ", "URZ") else self._known(name)

    def _constant(self, operand: Operand, plus: int) -> Value:
        if operand.bank != 0:
            return None
        offset = operand.offset + plus
        if not operand.parts:
            return self.lanes.parameter(offset)
        index = self.read(operand.parts[0][0])
        if index is None or not len(index):
            return None
        first = int(index[0])
        return self.lanes.parameter(offset + first) if bool((index == index[0]).all()) else None

    def wide(self, operand: Operand) -> np.ndarray | None:
        """An operand as uint64: a register pair, a 64-bit constant, or a number."""
        if operand.kind == "register" and operand.name not in ("RZ", "URZ"):
            low, high = self.read(operand.name), self.read(next_register(operand.name))
        elif operand.kind == "constant":
            low, high = self._constant(operand, 0), self._constant(operand, 4)
        elif operand.kind == "number":
            value = int(operand.value or 0)
            low = self.lanes.constant(value & 0xFFFFFFFF)
            high = self.lanes.constant((value >> 32) & 0xFFFFFFFF)
        else:
            low = high = self.lanes.constant(0)
        if low is None or high is None:
            return None
        value64 = (high.astype(np.uint64) << np.uint64(32)) | low
        if operand.negated:
            value64 = ~value64 + np.uint64(1)
        if operand.inverted:
            value64 = ~value64
        return value64

    def predicate(self, operand: Operand) -> Value:
        """A predicate operand as bool, ``!`` applied."""
        value = self.flag(operand.name)
        return ~value if operand.inverted and value is not None else value

    def flag(self, name: str) -> Value:
        """A predicate by name; ``PT`` and ``UPT`` are true."""
        return self.lanes.true if name in ("PT", "UPT") else self._known(name)

    def address(self, operand: Operand, wide: bool) -> np.ndarray | None:
        """The byte address that a memory operand names, as uint64."""
        total: Any = np.uint64(operand.offset & 0xFFFFFFFFFFFFFFFF)
        if not operand.parts:
            total = np.full(self.lanes.count, total)
        for name, suffixes in operand.parts:
            paired = "64" in suffixes or (
                wide and not suffixes and (name.startswith("UR") or not operand.name)
            )
            low = self.read(name)
            if low is None:
                return None
            part = low.astype(np.uint64)
            if paired:
                high = self.read(next_register(name))
                if high is None:
                    return None
                part = part | (high.astype(np.uint64) << np.uint64(32))
            for suffix in suffixes:
                if suffix.startswith("X") and suffix[1:].isdigit():
                    part = part * np.uint64(int(suffix[1:]))
            total = total + part
        return total if wide else total & _MASK


class UnknownForm(Exception):
    """An instruction whose operands have a form that is not known here."""


def next_register(name: str, plus: int = 1) -> str:
    """``R4`` to ``R5``; ``RZ`` and ``URZ`` stay."""
    stem = "UR" if name.startswith("UR") else "R"
    number = name[len(stem) :]
    if name in ("RZ", "URZ"):
        return name
    if not name.startswith(stem) or not number.isdigit():
        raise UnknownForm(f"{name!r} is no register")
    return f"{stem}{int(number) + plus}"


def _register_number(name: str) -> int:
    if not (name.startswith("R") and name[1:].isdigit()):
        raise UnknownForm(f"{name!r} is no general register")
    return int(name[1:])


def evaluate(state: State, one: Instruction) -> Written:
    """What an instruction writes, with every name in ``one.defines``; unknown results are None."""
    base = one.base
    handler = _HANDLERS.get(base) or _HANDLERS.get(base.removeprefix("U"))
    try:
        found = handler(state, one) if handler is not None else []
    except UnknownForm:
        found = []
    defines = one.defines
    if not found:
        return [(name, None) for name in defines]
    if len(found) == 1 and len(defines) == 1 and found[0][0] in defines:
        return found
    known = {name for name, _ in found}
    if known == defines:
        return found
    found = [(name, value) for name, value in found if name in defines]
    found += [(name, None) for name in defines if name not in known]
    return found


# ------------------------------------------------------------------------------------ helpers


def take(operands: Sequence[Operand], count: int) -> Sequence[Operand]:
    """The first so many operands."""
    if len(operands) < count:
        raise UnknownForm(f"{len(operands)} operands, not {count}")
    return operands[:count]


def _one(destination: Sequence[Operand], value: Value) -> Written:
    return [(destination[0].name, value)] if destination else []


def as_pair(name: str, value: np.ndarray | None) -> Written:
    if name in ("RZ", "URZ"):
        return []
    if value is None:
        return [(name, None), (next_register(name), None)]
    return [
        (name, (value & _MASK).astype(np.uint32)),
        (next_register(name), (value >> np.uint64(32)).astype(np.uint32)),
    ]


def _u64(value: np.ndarray) -> np.ndarray:
    return value.astype(np.uint64)


def _addend(operand: Operand, plain: np.ndarray) -> np.ndarray:
    """What the adder takes of an operand, where only the low 32 bits of the sum matter."""
    if operand.negated:
        return np.negative(plain)
    return ~plain if operand.inverted else plain


def _wide_addend(operand: Operand, plain: np.ndarray) -> np.ndarray:
    """The same as uint64, where a carry out of 32 bits counts."""
    value = _u64(plain)
    if operand.negated:  # as the adder sees it: complement and one, so that 0 gives a carry
        return (~value & _MASK) + np.uint64(1)
    return ~value & _MASK if operand.inverted else value


def _with_carries(state: State, one: Instruction, total: np.ndarray) -> Written:
    """A sum of low words with the carries that come in and go out."""
    flags, destination, carries, _ = one.grouped
    for source in carries if "X" in one.modifiers else ():
        carry = state.predicate(source)
        if carry is None:
            return []
        total = total + _u64(carry)
    if flags:
        _remember_wrap(state, total)
    found = _one(destination, (total & _MASK).astype(np.uint32))
    for count, flag in enumerate(flags, 1):
        found.append((flag.name, (total >> np.uint64(32)) >= np.uint64(count)))
    return found


def registers(one: Instruction, count: int = 0) -> Sequence[Operand]:
    """The first so many operands that are no predicates; without a number all of them."""
    found = [operand for operand in one.operands if operand.kind != "predicate"]
    return take(found, count) if count else found


# ------------------------------------------------------------------------------------ opcodes


def _move(state: State, one: Instruction) -> Written:
    destination, source = take(one.operands, 2)
    if "64" in one.modifiers:
        return as_pair(destination.name, state.wide(source))
    return [(destination.name, state.bits(source))]


def _add(state: State, one: Instruction) -> Written:
    """IADD, IADD3, VIADD: up to three addends, carries in and out."""
    flags, destination, _, addends = one.grouped
    if "64" in one.modifiers:
        take([*destination, *addends], 2)
        terms64 = [state.wide(source) for source in addends]
        if any(term is None for term in terms64):
            return []
        total64 = terms64[0]
        for term in terms64[1:]:
            total64 = total64 + term  # type: ignore[operator]
        _remember_wrap(state, total64)
        return as_pair(destination[0].name, total64)
    known = (state._plain(source) for source in addends)
    plains = [plain for plain in known if plain is not None]
    if not plains or len(plains) < len(addends):
        return []
    if not flags and "X" not in one.modifiers:
        low, *others = map(_addend, addends, plains)
        for other in others:
            low = low + other
        return _one(destination, low)
    total = np.zeros(state.lanes.count, np.uint64)
    for source, plain in zip(addends, plains, strict=True):
        total = total + _wide_addend(source, plain)
    return _with_carries(state, one, total)


def _multiply_add(state: State, one: Instruction) -> Written:
    flags, destination, _, terms = one.grouped
    if len(terms) < 3 or not destination:
        return []
    a, b = state.bits(terms[0]), state.bits(terms[1])
    if a is None or b is None:  # nothing is known of a product, unless one factor is 0
        known = b if a is None else a
        if known is None or known.any():
            return []
        a = b = state.lanes.constant(0)
    signed = "U32" not in one.modifiers
    if "WIDE" in one.modifiers or "HI" in one.modifiers:
        c64 = state.wide(terms[2])
        if c64 is None:
            return []
        if signed:
            product = (a.view(np.int32).astype(np.int64) * b.view(np.int32)).view(np.uint64)
        else:
            product = _u64(a) * _u64(b)
        total = product + c64
        _remember_wrap(state, total)
        if "HI" in one.modifiers:
            found = _one(destination, (total >> np.uint64(32)).astype(np.uint32))
        else:
            found = as_pair(destination[0].name, total)
        return found + [(flag.name, total < product) for flag in flags]
    c = state._plain(terms[2])
    if c is None:
        return []
    if not flags and "X" not in one.modifiers:
        added = _addend(terms[2], c)
        zero = state.lanes.constant(0)
        return _one(destination, added if a is zero or b is zero else a * b + added)
    return _with_carries(state, one, (_u64(a) * _u64(b) & _MASK) + _wide_addend(terms[2], c))


def _shift_add(state: State, one: Instruction) -> Written:
    """LEA: (a << shift) + b; with HI the upper half of the shifted pair."""
    flags, destination, _, terms = one.grouped
    a, b = state.bits(take(terms, 2)[0]), state._plain(terms[1])
    shift = int(terms[-1].value or 0) if terms[-1].kind == "number" else 0
    if a is None or b is None:
        return []
    if not flags and not {"HI", "X"} & set(one.modifiers) and shift < 32:
        return _one(destination, (a << np.uint32(shift)) + _addend(terms[1], b))
    if "HI" in one.modifiers:
        if "SX32" in one.modifiers:
            pair = a.view(np.int32).astype(np.int64).view(np.uint64)
        else:
            c = state.bits(terms[2]) if len(terms) > 3 else state.lanes.constant(0)
            if c is None:
                return []
            pair = (_u64(c) << np.uint64(32)) | _u64(a)
        shifted = (pair << np.uint64(shift)) >> np.uint64(32)
    else:
        shifted = (_u64(a) << np.uint64(shift)) & _MASK
    return _with_carries(state, one, shifted + _wide_addend(terms[1], b))


def _funnel(state: State, one: Instruction) -> Written:
    _, destination, _, terms = one.grouped
    a, shift, c = (state.bits(term) for term in take(terms, 3))
    if shift is None:
        return []
    left, high = "L" in one.modifiers, "HI" in one.modifiers
    wide_type = bool({"U64", "S64"} & set(one.modifiers))
    # One half does not matter where the other alone is shifted out.
    if left and not high:
        c = state.lanes.constant(0) if c is None else c
    if not left and high:
        a = state.lanes.constant(0) if a is None else a
    if a is None or c is None:
        return []
    amount = _u64(shift)
    limit = np.uint64(63 if wide_type else 31)
    if "W" in one.modifiers:
        amount = amount & limit
    over = amount > (limit + np.uint64(0 if wide_type else 1))
    amount = np.minimum(amount, limit + np.uint64(0 if wide_type else 1))
    pair = (_u64(c) << np.uint64(32)) | _u64(a)
    if left:
        shifted = pair << np.minimum(amount, np.uint64(63))
        result = shifted >> np.uint64(32) if high else shifted
        result = np.where(over & ~np.bool_(high), np.uint64(0), result)
    elif {"S32", "S64"} & set(one.modifiers):
        signed = pair.view(np.int64) >> amount.astype(np.int64)
        result = (signed >> np.int64(32) if high else signed).view(np.uint64)
    else:
        shifted = pair >> np.minimum(amount, np.uint64(63))
        result = shifted >> np.uint64(32) if high else shifted
    return _one(destination, (result & _MASK).astype(np.uint32))


def _logic(state: State, one: Instruction) -> Written:
    flags, destination, joined, terms = one.grouped
    if len(terms) < 4 or terms[3].kind != "number":
        return []
    table = int(terms[3].value or 0)
    inputs = [state.bits(term) for term in terms[:3]]
    if not _independent_of_unknown(table, tuple(x is None for x in inputs)):
        return []
    zero = state.lanes.constant(0)
    result = _by_table(table, [zero if x is None else x for x in inputs], zero)
    # The predicate written is joined with one that is read, which the compiler leaves at false.
    alone = "PAND" not in one.modifiers and all(o.text in ("!PT", "!UPT") for o in joined)
    truth = (result != 0) if alone else None
    return [*_one(destination, result), *((flag.name, truth) for flag in flags)]


@cache
def _independent_of_unknown(table: int, unknown: tuple[bool, ...]) -> bool:
    """Does a truth table give the same whatever the unknown inputs are?"""
    bits = [bit for bit, missing in zip((4, 2, 1), unknown, strict=True) if missing]
    values = [table >> place & 1 for place in range(8)]
    return all(values[place] == values[place ^ bit] for place in range(8) for bit in bits)


@cache
def _products(table: int) -> tuple[int, ...]:
    """A truth table of three inputs as the products whose exclusive or it is: bit 4, 2 or 1 of a
    product, the first, second or third input is a factor; 0 is the empty product, 1."""
    return tuple(
        product
        for product in range(8)
        if sum(table >> place & 1 for place in range(8) if place & product == place) % 2
    )


def _by_table(table: int, inputs: Sequence[np.ndarray], zero: np.ndarray) -> np.ndarray:
    """[N] what a truth table makes of the bits of three inputs; ``zero`` has none of them set."""
    result = zero
    for product in _products(table & 0xFF):
        factors = [x for x, bit in zip(inputs, (4, 2, 1), strict=True) if product & bit]
        if any(factor is zero for factor in factors):
            continue
        term = factors[0] if factors else ~zero
        for factor in factors[1:]:
            term = term & factor
        result = term if result is zero else result ^ term
    return result


def _predicate_logic(state: State, one: Instruction) -> Written:
    flags = take(one.operands, 2)
    sources = [o for o in one.operands[2:] if o.kind == "predicate"]
    tables = [int(o.value or 0) for o in one.operands[2:] if o.kind == "number"]
    if len(sources) < 3 or not tables:
        return []
    inputs = [state.predicate(source) for source in sources[:3]]
    found: Written = []
    for flag, table in zip(flags, (*tables, 0), strict=False):
        if not _independent_of_unknown(table, tuple(x is None for x in inputs)):
            found.append((flag.name, None))
            continue
        never = ~state.lanes.true
        result = _by_table(table, [never if x is None else x for x in inputs], never)
        found.append((flag.name, result))
    return found


def _compare(state: State, one: Instruction) -> Written:
    first, second, a_operand, b_operand = take(one.operands, 4)
    rest = one.operands[4:]
    kind = one.modifiers[0] if one.modifiers else ""
    if kind not in COMPARE:
        return []
    if {"U64", "S64"} & set(one.modifiers):
        a64, b64 = state.wide(a_operand), state.wide(b_operand)
        if a64 is None or b64 is None:
            return []
        if "S64" in one.modifiers:
            a64, b64 = a64.view(np.int64), b64.view(np.int64)
        _remember(state, kind, a64.view(np.int64), b64.view(np.int64), 64, True)
        result = COMPARE[kind](a64, b64)
    else:
        a, b = state.bits(a_operand), state.bits(b_operand)
        if a is None or b is None:
            return []
        if "U32" not in one.modifiers:
            a, b = a.view(np.int32), b.view(np.int32)
        _remember(state, kind, a, b, 32, "U32" not in one.modifiers)
        result = COMPARE[kind](a, b)
        if "EX" in one.modifiers:
            take(rest, 1)
            low = state.predicate(rest[-1])
            if low is None:
                return []
            equal = a == b
            if kind == "NE":
                result = ~equal | low
            elif kind == "EQ":
                result = equal & low
            else:
                strict = COMPARE["LT" if kind in ("LT", "LE") else "GT"](a, b)
                result = strict | (equal & low)
    other = state.predicate(rest[0]) if rest else state.lanes.true
    return joined(one, (first, second), (result, ~result), other)


def _compare_floats(state: State, one: Instruction) -> Written:
    first, second, a_operand, b_operand = take(one.operands, 4)
    rest = one.operands[4:]
    kind = one.modifiers[0] if one.modifiers else ""
    a, b = read_float(state, a_operand), read_float(state, b_operand)
    other = state.predicate(rest[0]) if rest else state.lanes.true
    if a is None or b is None or other is None:
        return []
    result = compare_floats(kind, a, b)
    if result is None:
        return []
    _remember(state, kind.removesuffix("U"), _in_order(a), _in_order(b), 32, True)
    return joined(one, (first, second), (result, ~result), other)


def joined(
    one: Instruction, flags: Sequence[Operand], truths: Sequence[np.ndarray], other: Value
) -> Written:
    """What a comparison writes, joined with another predicate as its modifier says."""
    if other is None:
        return []
    how = COMBINE[next((m for m in one.modifiers if m in COMBINE), "AND")]
    return [(flag.name, how(truth, other)) for flag, truth in zip(flags, truths, strict=True)]


def compare_floats(kind: str, a: np.ndarray, b: np.ndarray) -> np.ndarray | None:
    """[N] bool, a comparison by its name, such as ``GEU``; None where the name is not known."""
    unordered = kind.endswith("U") and kind[:-1] in COMPARE
    test = COMPARE.get(kind[:-1] if unordered else kind)
    if test is None:
        return None
    no_number = np.isnan(a) | np.isnan(b)
    return np.asarray(test(a, b) & ~no_number | (no_number & unordered))


def _in_order(value: np.ndarray) -> np.ndarray:
    """Floats as integers in the same order; within a power of two equal steps stay equal."""
    bits = value.view(np.int32).astype(np.int64)
    return np.where(bits < 0, -(bits & 0x7FFFFFFF), bits)


def _remember(
    state: State, kind: str, a: np.ndarray, b: np.ndarray, bits: int, signed: bool
) -> None:
    if state.comparisons is not None:
        low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
        state.comparisons.append(IntegerComparison(kind, a, b, state.active, low, high))


def _remember_wrap(state: State, total: np.ndarray | None) -> None:
    """The low half of a sum wraps once in many trips, and the carry changes the high half then."""
    if state.comparisons is not None and total is not None:
        low, zero = total & _MASK, state.lanes.constant(0)
        state.comparisons.append(IntegerComparison("GE", low, zero, state.active, 0, 2**32 - 1))


def _select(state: State, one: Instruction) -> Written:
    destination, a, b, flag = take(one.operands, 4)
    chosen = state.predicate(flag)
    if chosen is None:
        return []
    long = "64" in one.modifiers
    first, second = (state.wide(o) if long else state.bits(o) for o in (a, b))
    if chosen.all():
        result = first
    elif not chosen.any():
        result = second
    elif first is None or second is None:
        return []
    else:
        result = np.where(chosen, first, second)
    return as_pair(destination.name, result) if long else [(destination.name, result)]


def _least_or_most(state: State, one: Instruction) -> Written:
    operands = registers(one)
    take(operands, 4 if one.base == "VIADDMNMX" else 2)
    destination, *terms = operands
    last = max(n for n, o in enumerate(one.operands) if o.kind != "predicate")
    choice = one.operands[last + 1 :][:1]
    least = state.predicate(choice[0]) if choice else None
    long = bool({"U64", "S64"} & set(one.modifiers))
    found = [state.wide(term) if long else state.bits(term) for term in terms]
    values = [value for value in found if value is not None]
    if least is None or len(values) < len(terms):
        return []
    if one.base == "VIADDMNMX":
        values = [values[0] + values[1], values[2]]
    unsigned = bool({"U32", "U64"} & set(one.modifiers))
    if not unsigned:
        values = [value.view(np.int64 if long else np.int32) for value in values]
    low = high = values[0]
    for value in values[1:]:
        _remember(state, "LT", values[0], value, 64 if long else 32, not unsigned or long)
        low, high = np.minimum(low, value), np.maximum(high, value)
    result = np.where(least, low, high)
    if long:
        return as_pair(destination.name, result.astype(np.uint64))
    return [(destination.name, result.view(np.uint32))]


def _special(state: State, one: Instruction) -> Written:
    destination = take(one.operands, 1)[0].name
    name = one.operands[-1].name
    if one.base.endswith("CS2R") and "32" not in one.modifiers:
        zero = state.lanes.constant(0) if name == "SRZ" else None
        return [(destination, zero), (next_register(destination), zero)]
    return [(destination, state.lanes.special(name))]


def _load_constant(state: State, one: Instruction) -> Written:
    destination, source = take(one.operands, 2)
    words = {"64": 2, "128": 4, "256": 8}
    count = next((words[m] for m in one.modifiers if m in words), 1)
    if source.kind != "constant":
        return []
    found = []
    for word in range(count):
        value = state._constant(source, 4 * word)
        small = [m for m in one.modifiers if m in ("U8", "U16", "S8", "S16")]
        if value is not None and small:
            bits = int(small[0][1:])
            value = extend_sign(one, value & np.uint32((1 << bits) - 1))
        found.append((next_register(destination.name, word), value))
    return found


def extend_sign(one: Instruction, value: np.ndarray) -> np.ndarray:
    """What a load of a signed 8- or 16-bit number puts into its register."""
    for modifier, bits in (("S8", 8), ("S16", 16)):
        if modifier in one.modifiers:
            sign = np.uint32(1 << (bits - 1))
            return (value ^ sign) - sign
    return value


def _to_uniform(state: State, one: Instruction) -> Written:
    destination, source = take([o for o in one.operands if o.kind == "register"], 2)
    return [(destination.name, state.bits(source))]


def _to_float(state: State, one: Instruction) -> Written:
    destination, source = take(one.operands, 2)
    modifiers = set(one.modifiers)
    small = next((name for name in SMALL_ACCESSES if name in modifiers), None)
    if {"F16", "BF16"} & modifiers:
        return []
    long = bool({"U64", "S64"} & modifiers)
    typed = state.wide(source) if long else state.bits(source)
    if typed is None:
        return []
    if small:
        byte = next((int(s[1]) for s in source.suffixes if s[:1] == "B" and s[1:].isdigit()), 0)
        typed = typed >> np.uint32(8 * byte) & np.uint32((1 << SMALL_ACCESSES[small]) - 1)
        typed = extend_sign(one, typed)
    if "S64" in modifiers or not {"U8", "U16", "U32", "U64", "RP"} & modifiers:
        typed = typed.view(np.int64 if long else np.int32)
    if "F64" in modifiers:
        return as_pair(destination.name, typed.astype(np.float64).view(np.uint64))
    result = typed.astype(np.float32)
    if "RP" in modifiers:  # rounded up; 2**64 does not fit the integers it is compared with
        short = result.astype(np.float64) < 2.0**63
        exact = np.where(short, result, 0).astype(np.int64)
        low = short & (exact < typed.astype(np.int64))
        result = np.where(low, np.nextafter(result, np.float32(np.inf)), result)
    return [(destination.name, result.astype(np.float32).view(np.uint32))]


def _to_integer(state: State, one: Instruction) -> Written:
    destination, source = take(one.operands, 2)
    modifiers = set(one.modifiers)
    if "F16" in modifiers:
        return []
    value = read_double(state, source) if "F64" in modifiers else read_float(state, source)
    if value is None:
        return []
    number = round_as(one, np.nan_to_num(value.astype(np.float64), posinf=2.0**64))
    if {"U64", "S64"} & modifiers:
        signed = "S64" in modifiers
        low, high = (-(2.0**63), 2.0**63 - 1024) if signed else (0.0, 2.0**64 - 2048)
        limited = np.clip(number, low, high).astype(np.int64 if signed else np.uint64)
        return as_pair(destination.name, limited.view(np.uint64))
    if "U32" in modifiers:
        return [(destination.name, np.clip(number, 0, 2**32 - 1).astype(np.uint32))]
    limited = np.clip(number, -(2**31), 2**31 - 1).astype(np.int32)
    return [(destination.name, limited.view(np.uint32))]


def round_as(one: Instruction, number: np.ndarray) -> np.ndarray:
    """Floats as whole numbers, in the way that an instruction says, else to the nearest even."""
    ways: Mapping[str, Callable[[np.ndarray], np.ndarray]]
    ways = {"TRUNC": np.trunc, "FLOOR": np.floor, "CEIL": np.ceil}
    return next((way for name, way in ways.items() if name in one.modifiers), np.rint)(number)


def read_double(state: State, operand: Operand) -> np.ndarray | None:
    """An operand as float64, with ``-`` and ``|x|`` applied."""
    if operand.kind == "number":
        return np.full(state.lanes.count, operand.value or 0.0, np.float64)
    plain = dict(vars(operand), negated=False, inverted=False)
    value = state.wide(Operand(**plain))
    return None if value is None else with_sign(operand, value.view(np.float64))


def read_float(state: State, operand: Operand) -> np.ndarray | None:
    """An operand as float32, with ``-`` and ``|x|`` applied."""
    if operand.kind == "number":  # an instruction on floats prints 1 for 1.0
        return np.full(state.lanes.count, operand.value or 0.0, np.float32)
    plain = state._plain(operand)
    if plain is None:
        return None
    return with_sign(operand, plain.view(np.float32))


def read_floats(state: State, operands: Sequence[Operand]) -> list[np.ndarray] | None:
    """Some operands as float32; None where one of them is not known."""
    values = [read_float(state, operand) for operand in operands]
    found = [value for value in values if value is not None]
    return found if len(found) == len(values) else None


def with_sign(operand: Operand, number: np.ndarray) -> np.ndarray:
    """Floats as an operand takes them: ``-`` and ``|x|`` applied."""
    if operand.absolute:
        number = np.abs(number)
    return -number if operand.negated else number


def _float_arithmetic(state: State, one: Instruction) -> Written:
    base = one.base.removeprefix("U")
    destination, *sources = registers(one, 3 if base in ("FADD", "FMUL") else 4)
    values = read_floats(state, sources)
    if values is None:
        return []
    with np.errstate(all="ignore"):
        if base == "FADD":
            result = values[0] + values[1]
        elif base == "FMUL":
            result = values[0] * values[1]
        else:  # a double holds the product, so that one rounding is left
            result = values[0].astype(np.float64) * values[1] + values[2]
        result = result.astype(np.float32)
    if "SAT" in one.modifiers:
        result = np.clip(np.nan_to_num(result), np.float32(0), np.float32(1))
    return [(destination.name, result.view(np.uint32))]


def _half_constant(state: State, one: Instruction) -> Written:
    """HFMA2 with two zeros is how the compiler loads a constant on the idle fp16 pipe."""
    take(one.operands, 1)
    destination, *sources = one.operands
    zeros = [s.name in ("RZ", "URZ") for s in sources[:2]]
    numbers = [s for s in sources[2:] if s.kind == "number"]
    if not any(zeros) or len(numbers) != 2:
        return []
    high, low = (int(np.float16(float(n.value or 0)).view(np.uint16)) for n in numbers)
    return [(destination.name, state.lanes.constant(high << 16 | low))]


def _plain(state: State, one: Instruction) -> Written:
    """An opcode of `_PLAIN`."""
    compute, count = _PLAIN[one.base.removeprefix("U")]
    destination, *sources = registers(one, 1 + count)
    values = [state.bits(source) for source in sources]
    known = [value for value in values if value is not None]
    return [(destination.name, compute(one, *known))] if len(known) == count else []


def _reciprocal(one: Instruction, value: np.ndarray) -> Value:
    if one.modifiers[:1] != ("RCP",):
        return None
    with np.errstate(all="ignore"):
        return (np.float32(1) / value.view(np.float32)).astype(np.float32).view(np.uint32)


def _permute(one: Instruction, a: np.ndarray, selector: np.ndarray, b: np.ndarray) -> Value:
    if one.modifiers:
        return None
    pair = _u64(a) | (_u64(b) << np.uint64(32))
    result = np.zeros(len(a), np.uint64)
    for byte in range(4):
        choice = (_u64(selector) >> np.uint64(4 * byte)) & np.uint64(15)
        picked = (pair >> (np.uint64(8) * (choice & np.uint64(7)))) & np.uint64(255)
        sign = np.where(picked & np.uint64(128), np.uint64(255), np.uint64(0))
        picked = np.where(choice & np.uint64(8), sign, picked)
        result = result | (picked << np.uint64(8 * byte))
    return result.astype(np.uint32)


def _find_leading(one: Instruction, value: np.ndarray) -> Value:
    """The highest bit that is set, of a signed number the highest that is not its sign."""
    signed = value.view(np.int32)
    bits = value if "U32" in one.modifiers else np.where(signed < 0, ~signed, signed)
    place = np.frexp(bits.astype(np.float64))[1].astype(np.int64) - 1
    if "SH" in one.modifiers:
        place = 31 - place
    return np.where(bits == 0, 0xFFFFFFFF, place).astype(np.uint32)


def _bit_mask(_: Instruction, first: np.ndarray, count: np.ndarray) -> Value:
    ones = (np.uint64(1) << np.minimum(_u64(count), np.uint64(32))) - np.uint64(1)
    result = (ones << np.minimum(_u64(first), np.uint64(32))) & _MASK
    return result.astype(np.uint32)


def _extend(one: Instruction, value: np.ndarray, count: np.ndarray) -> Value:
    shift = (np.uint32(32) - np.minimum(count, np.uint32(32))).astype(np.uint64)
    moved = (_u64(value) << shift) & _MASK
    if "U32" in one.modifiers:
        return (moved >> shift).astype(np.uint32)
    signed = moved.astype(np.uint32).view(np.int32).astype(np.int64)
    return ((signed >> shift.astype(np.int64)).view(np.uint64) & _MASK).astype(np.uint32)


_PLAIN: Mapping[str, tuple[Callable[..., Value], int]] = {
    "IABS": (lambda _, value: np.abs(value.view(np.int32)).view(np.uint32), 1),
    "POPC": (lambda _, value: np.bitwise_count(value).astype(np.uint32), 1),
    "MUFU": (_reciprocal, 1),
    "FLO": (_find_leading, 1),
    "BMSK": (_bit_mask, 2),
    "SGXT": (_extend, 2),
    "PRMT": (_permute, 3),
}
"""Opcodes whose result follows from their sources' bits, and how many sources."""


def _pack_predicates(state: State, one: Instruction) -> Written:
    """P2R R, PR, R, mask: the predicates that the mask names become bits of a register."""
    destination, rest = take(one.operands, 3)[0], one.operands[-2]
    mask = int(one.operands[-1].value or 0)
    others = state.bits(rest)
    if others is None or one.modifiers:
        return []
    result = others & np.uint32(~mask & 0xFFFFFFFF)
    for number in range(7):
        if mask >> number & 1:
            flag = state.flag(f"P{number}")
            if flag is None:
                return []
            result = result | (flag.astype(np.uint32) << np.uint32(number))
    return [(destination.name, result)]


def _unpack_predicates(state: State, one: Instruction) -> Written:
    """R2P PR, R, mask: bits of a register become predicates."""
    take(one.operands, 2)
    mask = int(one.operands[-1].value or 0)
    value = state.bits(one.operands[-2])
    if value is None or one.modifiers:
        return []
    return [
        (f"P{number}", (value >> np.uint32(number) & np.uint32(1)).astype(bool))
        for number in range(7)
        if mask >> number & 1
    ]


def _shuffle(state: State, one: Instruction) -> Written:
    """A shuffle of a value that the lanes of each warp share gives it; any other is unknown."""
    flags = [o for o in one.operands if o.kind == "predicate"]
    destination, source = registers(one, 2)
    value = state.bits(source)
    same = value is not None and len(value) and bool((value == value[0]).all())
    if value is not None and not same and not state.lanes.independent:
        _, first, warp = np.unique(state.lanes.warp, return_index=True, return_inverse=True)
        same = bool((value == value[first][warp.reshape(-1)]).all())
    found: Written = [(destination.name, value if same else None)]
    return found + [(flag.name, None) for flag in flags[:1]]


def _vote(state: State, one: Instruction) -> Written:
    flags, destination, sources, others = one.grouped
    if not sources and not others and flags:  # VOTE.ANY R0, PT, PT prints its source as a result
        flags, sources = flags[:-1], flags[-1:]
    source = state.predicate(sources[-1]) if sources else None
    if source is None:
        return []
    lanes = state.lanes
    bit = (np.uint64(1) << _u64(lanes.lane)).astype(np.uint32)
    voting = source & state.active
    ballot = np.zeros(int(lanes.warp.max()) + 1, np.uint32)
    np.bitwise_or.at(ballot, lanes.warp[voting], bit[voting])
    every = np.zeros(len(ballot), np.uint32)
    np.bitwise_or.at(every, lanes.warp[state.active], bit[state.active])
    result = ballot[lanes.warp]
    truth = result == every[lanes.warp] if "ALL" in one.modifiers else result != 0
    return [*_one(destination, result), *((flag.name, truth) for flag in flags)]


def _elect(state: State, one: Instruction) -> Written:
    """The first lane of each warp that comes by."""
    here = np.flatnonzero(state.active)
    first = np.zeros(state.lanes.count, bool)
    first[here[np.unique(state.lanes.warp[here], return_index=True)[1]]] = True
    flags: Written = [(o.name, first) for o in one.operands if o.kind == "predicate"]
    return flags[:1]


def granted(state: State, one: Instruction) -> Written:
    """What a warp asks again until it is so: the end of a phase of a barrier, free registers."""
    if one.base == "SYNCS" and "PHASECHK" not in one.modifiers:
        return []
    yes: Value = state.lanes.true
    return [(o.name, yes) for o in one.operands if o.kind == "predicate"][:1]


def _memory_load(state: State, one: Instruction) -> Written:
    """What a load from local or shared memory finds, where all lanes read one known word."""
    names = sorted(one.defines, key=_register_number)
    kind = "local" if one.base == "LDL" else "shared"
    small = next((bits for m, bits in SMALL_ACCESSES.items() if m in one.modifiers), 0)
    if not names or kind not in state.stored:
        return []
    place = _one_place(state, take(one.operands, 2)[1], state.active)
    if place is None:
        return []
    if small:
        value = state.read(f"{kind}{small}:{place}")
        return [(names[0], None if value is None else extend_sign(one, value))]
    return [(name, state.read(f"{kind}:{place + 4 * n}")) for n, name in enumerate(names)]


SMALL_ACCESSES = {"U8": 8, "S8": 8, "U16": 16, "S16": 16}
"""Bits of the small accesses; what they store stands apart as ``shared8:1024``."""


def store_memory(state: State, one: Instruction, executing: np.ndarray, unknown: bool) -> None:
    """Remember what a store puts into local memory, or shared, where one number is stored for a
    whole block, as a job's number is."""
    kind = "local" if one.base == "STL" else "shared"
    source = one.operands[1]
    kept = [name for name in state.values if name.startswith(kind)] if kind in state.stored else []
    sizes = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}
    size = next((sizes[m] for m in one.modifiers if m in sizes), 4)
    known = source.kind == "register" and not unknown
    value = state.read(source.name) if known else None
    if (value is None and not kept) or not executing.any():
        return
    state.active = executing
    place = _one_place(state, one.operands[0], executing)
    if place is None:
        for name in kept:
            if kind == "local" or _may_touch(state, one.operands[0], executing, size, name):
                del state.values[name]
                state.valid.pop(name, None)
        return
    for name in kept:  # what overlaps with another width is known no more
        start = int(name.partition(":")[2])
        width = 4 if name[len(kind)] == ":" else int(name[len(kind) : name.index(":")]) // 8
        same = width == min(size, 4) and (start - place) % width == 0
        if not same and start < place + size and place < start + width:
            del state.values[name]
            state.valid.pop(name, None)
    state.stored |= {kind}
    for word in range(max(1, size // 4)):
        name = f"{kind}:{(place + 4 * word) // 4 * 4}"
        if size < 4:
            name = f"{kind}{8 * size}:{place}"
            value = None if value is None else value & np.uint32((1 << 8 * size) - 1)
        elif known:
            value = state.read(
                source.name if source.name == "RZ" else next_register(source.name, word)
            )
        if kind == "shared" and value is not None and not state.lanes.independent:
            stored = value[executing]
            same = bool((stored == stored[0]).all())
            value = state.lanes.constant(int(stored[0])) if same else None
            state.write(name, value, executing, True)
        else:
            state.write(name, value, executing, bool(executing.all()))


def _may_touch(state: State, operand: Operand, executing: np.ndarray, size: int, name: str) -> bool:
    address = state.address(operand, wide=False)
    if address is None:
        return False  # an index that data decide: another array, most likely
    word = int(name.partition(":")[2])
    used = address[executing].astype(np.int64)
    return bool(((used < word + 4) & (used + size > word)).any())


def _one_place(state: State, operand: Operand, executing: np.ndarray) -> int | None:
    address = state.address(operand, wide=False)
    if address is None:
        return None
    used = address[executing]
    return int(used[0]) if len(used) and bool((used == used[0]).all()) else None


_HANDLERS: Mapping[str, Handler] = {
    opcode: handler
    for opcodes, handler in (
        ("MOV", _move),
        ("IADD IADD3 VIADD", _add),
        ("IMAD", _multiply_add),
        ("LEA", _shift_add),
        ("SHF", _funnel),
        ("LOP3", _logic),
        ("PLOP3", _predicate_logic),
        ("ISETP", _compare),
        ("FSETP", _compare_floats),
        ("SEL", _select),
        ("IMNMX VIMNMX VIMNMX3 VIADDMNMX", _least_or_most),
        ("S2R S2UR CS2R CS2UR", _special),
        ("LDC LDCU", _load_constant),
        ("R2UR", _to_uniform),
        ("I2F I2FP", _to_float),
        ("F2I", _to_integer),
        ("FADD FMUL FFMA", _float_arithmetic),
        ("HFMA2", _half_constant),
        ("P2R", _pack_predicates),
        ("R2P", _unpack_predicates),
        ("SHFL", _shuffle),
        ("VOTE VOTEU", _vote),
        ("ELECT", _elect),
        ("LDL LDS", _memory_load),
        (" ".join(_PLAIN), _plain),
    )
    for opcode in opcodes.split()
}
