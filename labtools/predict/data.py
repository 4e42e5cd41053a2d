"""What data decide: numbers that are loaded, worked on and passed between threads. What is not
known here stays unknown, never wrong; approximate functions are as exact as numpy's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from labtools.problem import element_dtype
from labtools.toolchain.sass import Instruction, Operand

from .semantics import (
    SMALL_ACCESSES,
    Handler,
    State,
    UnknownForm,
    Value,
    Written,
    as_pair,
    compare_floats,
    evaluate,
    extend_sign,
    joined,
    next_register,
    read_double,
    read_float,
    read_floats,
    registers,
    round_as,
    take,
    with_sign,
)
from .spaces import Space

STORES = frozenset({"STS", "STL", "STSM", "ATOMS", "LDGSTS", "UBLKCP", "UTMALDG"})
"""What changes shared or local memory."""


def evaluate_data(state: State, one: Instruction) -> Written:
    """As `evaluate`, for numbers of every type."""
    base = one.base.removeprefix("U") if one.base.startswith("UF") else one.base
    if base == "PRMT":  # into a register that nothing was written to: those bytes matter to nobody
        for name in one.uses - state.values.keys():
            state.values[name] = state.lanes.constant(0)
    handler = _HANDLERS.get(base)
    if handler is None:
        return evaluate(state, one)
    try:
        with np.errstate(all="ignore"):
            found = handler(state, one)
    except UnknownForm:
        found = []
    if not found and base in _MORE_FORMS:
        found = [(name, value) for name, value in evaluate(state, one) if value is not None]
    known = {name for name, _ in found}
    found = [(name, value) for name, value in found if name in one.defines]
    return [*found, *((name, None) for name in one.defines if name not in known)]


_MORE_FORMS = ("HFMA2", "MUFU", "SHFL")
"""Opcodes of which `evaluate` knows forms that are not here."""


# ------------------------------------------------------------------------------------ memory


def memory_width(one: Instruction) -> int:
    """Bytes of one lane's access."""
    small = next((bits // 8 for name, bits in SMALL_ACCESSES.items() if name in one.modifiers), 0)
    return small or one.access_bytes


def load_space(
    state: State, one: Instruction, kind: str, address: np.ndarray | None, executing: np.ndarray
) -> Written:
    """What a load from shared or local memory finds."""
    names = sorted(one.defines, key=lambda name: int(name.lstrip("UR")))
    if address is None or not executing.any():
        return [(name, None) for name in names]
    somewhere = np.where(executing, address, address[executing][0])
    rows = np.where(executing, state.rows(kind), state.rows(kind)[executing][0])
    width = memory_width(one)
    values = state.spaces[kind].load(rows, somewhere, len(names), width)
    if width < 4 and values[0] is not None:
        values = [extend_sign(one, values[0])]
    return list(zip(names, values, strict=True))


def store_space(
    state: State, kind: str, address: Value, values: list[Value], width: int, executing: np.ndarray
) -> None:
    """Put values into shared or local memory; an address that is not known may be any."""
    space = state.spaces[kind]
    if address is None:
        state.spaces[kind] = Space.empty(len(space.data), space.down)
        return
    if executing.any():
        given = [None if value is None else value[executing] for value in values]
        rows = state.rows(kind)[executing]
        state.spaces[kind] = space.store(rows, address[executing], given, width)


def stored_values(state: State, one: Instruction, executing: np.ndarray) -> list[Value]:
    """The words that a store writes, as each lane has them."""
    words = max(1, memory_width(one) // 4)
    source = one.operands[1]
    if source.kind != "register":
        return [None] * words
    state.active = executing
    return [state.read(next_register(source.name, word)) for word in range(words)]


# ----------------------------------------------------------------------------------- helpers


def _f32(number: np.ndarray) -> np.ndarray:
    return number.astype(np.float32).view(np.uint32)


def _flags(one: Instruction) -> list[Operand]:
    return [operand for operand in one.operands if operand.kind == "predicate"]


# ------------------------------------------------------------------------------------- floats


def _float_extreme(state: State, one: Instruction) -> Written:
    destination, *sources = registers(one, 3)
    least, values = state.predicate(one.operands[-1]), read_floats(state, sources)
    if least is None or values is None or len(values) != 2:
        return []
    low, high = np.fmin(values[0], values[1]), np.fmax(values[0], values[1])
    return [(destination.name, _f32(np.where(least, low, high)))]


def _float_select(state: State, one: Instruction) -> Written:
    destination, *sources = registers(one, 3)
    chosen, values = state.predicate(one.operands[-1]), read_floats(state, sources)
    if chosen is None or values is None:
        return []
    return [(destination.name, _f32(np.where(chosen, values[0], values[1])))]


_FUNCTIONS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "RCP": lambda x: 1 / x,
    "RSQ": lambda x: 1 / np.sqrt(x),
    "SQRT": np.sqrt,
    "EX2": np.exp2,
    "LG2": np.log2,
    "SIN": lambda x: np.sin(2 * np.pi * x),
    "COS": lambda x: np.cos(2 * np.pi * x),
    "TANH": np.tanh,
}
"""What the unit for functions computes; angles are in turns."""


def _function(state: State, one: Instruction) -> Written:
    destination, source = take(one.operands, 2)
    kind = one.modifiers[0] if one.modifiers else ""
    if kind in ("RCP64H", "RSQ64H"):
        high = state.bits(source)
        if high is None:
            return []
        wide = (high.astype(np.uint64) << np.uint64(32)).view(np.float64)
        result = 1.0 / (wide if kind == "RCP64H" else np.sqrt(wide))
        return [(destination.name, (result.view(np.uint64) >> np.uint64(32)).astype(np.uint32))]
    value = read_float(state, source)
    known = _FUNCTIONS.get(kind)
    if value is None or known is None or {"F16", "BF16_V2"} & set(one.modifiers):
        return []
    return [(destination.name, _f32(known(value.astype(np.float64))))]


def _check_division(state: State, one: Instruction) -> Written:
    """FCHK: whether a division needs its slow path."""
    flag, a, b = take(one.operands, 3)
    values = read_floats(state, (a, b))
    if values is None:
        return []
    powers = [np.where(v == 0, -200, np.frexp(v)[1]) for v in values]
    odd = ~np.isfinite(values[0]) | ~np.isfinite(values[1]) | (values[1] == 0)
    far = (np.abs(powers[0]) > 100) & (values[0] != 0) | (np.abs(powers[1]) > 120)
    return [(flag.name, odd | far)]


def _round(state: State, one: Instruction) -> Written:
    destination, source = take(one.operands, 2)
    value = read_float(state, source)
    if value is None or {"F64", "F16"} & set(one.modifiers):
        return []
    return [(destination.name, _f32(round_as(one, value)))]


# ------------------------------------------------------------------------------------- halves


def _number_type(one: Instruction) -> str:
    return "bfloat16" if any(name.startswith("BF16") for name in one.modifiers) else "float16"


def _half_bits(bits: np.ndarray, kind: str) -> np.ndarray:
    """Floats from the low 16 bits."""
    low = (bits & np.uint32(0xFFFF)).astype(np.uint16)
    return low.view(element_dtype(kind)).astype(np.float32)


def _to_half(number: np.ndarray, kind: str) -> np.ndarray:
    """16 bits of floats, rounded to the nearest even."""
    if kind == "float16":
        return number.astype(np.float16).view(np.uint16).astype(np.uint32)
    rounded = number.astype(np.float32).astype(element_dtype(kind)).view(np.uint16)
    return np.where(np.isnan(number), np.uint32(0x7FFF), rounded.astype(np.uint32))


def _halves(state: State, operand: Operand, kind: str) -> tuple[np.ndarray, np.ndarray] | None:
    """(low, high) of an operand, as floats."""
    plain = state._plain(operand)
    if plain is None:
        return None
    low, high = _half_bits(plain, kind), _half_bits(plain >> np.uint32(16), kind)
    if "F32" in operand.suffixes:
        low = high = plain.view(np.float32)
    elif "H0_H0" in operand.suffixes:
        high = low
    elif "H1_H1" in operand.suffixes:
        low = high
    return with_sign(operand, low), with_sign(operand, high)


def _half_sources(
    state: State, operands: Sequence[Operand], kind: str
) -> list[tuple[np.ndarray, np.ndarray]] | None:
    """Each source as (low, high); two numbers in a row are one constant, the high half first."""
    found: list[tuple[np.ndarray, np.ndarray]] = []
    place = 0
    while place < len(operands):
        operand = operands[place]
        if operand.kind == "number" and place + 1 < len(operands):
            high, low = (float(one.value or 0) for one in operands[place : place + 2])
            shape = state.lanes.count
            found.append((np.full(shape, low, np.float32), np.full(shape, high, np.float32)))
            place += 2
            continue
        pair = _halves(state, operand, kind)
        if pair is None:
            return None
        found.append(pair)
        place += 1
    return found


def _half_arithmetic(state: State, one: Instruction) -> Written:
    destination, *operands = registers(one)
    kind = _number_type(one)
    sources = _half_sources(state, operands, kind)
    base = one.base.partition("2")[0]
    if sources is None or len(sources) != (3 if base == "HFMA" else 2):
        return []
    halves = []
    for side in (0, 1):
        a, b = (source[side].astype(np.float64) for source in sources[:2])
        result = a + b if base == "HADD" else a * b
        if base == "HFMA":
            result = result + sources[2][side]
        if "RELU" in one.modifiers:
            result = np.maximum(result, 0)
        if "SAT" in one.modifiers:
            result = np.clip(result, 0, 1)
        halves.append(result)
    if "F32" in one.modifiers:
        return [(destination.name, _f32(halves[0]))]
    low, high = (_to_half(half, kind) for half in halves)
    return [(destination.name, low | high << np.uint32(16))]


def _half_extreme(state: State, one: Instruction) -> Written:
    destination, *operands = registers(one)
    kind = _number_type(one)
    sources = _half_sources(state, operands, kind)
    least = state.predicate(_flags(one)[-1]) if _flags(one) else None
    if sources is None or least is None or len(sources) != 2:
        return []
    both = (np.where(least, np.fmin(a, b), np.fmax(a, b)) for a, b in zip(*sources, strict=True))
    low, high = (_to_half(number, kind) for number in both)
    return [(destination.name, low | high << np.uint32(16))]


def _half_compare(state: State, one: Instruction) -> Written:
    first, second = take(_flags(one), 3)[:2]
    sources = _half_sources(state, registers(one), _number_type(one))
    other = state.predicate(one.operands[-1])
    kind = one.modifiers[0] if one.modifiers[0] not in ("BF16_V2",) else one.modifiers[1]
    if sources is None or len(sources) != 2 or other is None:
        return []
    compared = [compare_floats(kind, a, b) for a, b in zip(*sources, strict=True)]
    truths = [truth for truth in compared if truth is not None]
    return joined(one, (first, second), truths, other) if truths else []


def _pack(state: State, one: Instruction) -> Written:
    """F2FP.F16.F32.PACK_AB R, high, low."""
    destination, *sources = registers(one, 3)
    values = read_floats(state, sources)
    if values is None or "PACK_AB" not in one.modifiers or len(values) != 2:
        return []
    kind = "bfloat16" if one.modifiers[0] == "BF16" else "float16"
    if one.modifiers[0] not in ("F16", "BF16"):
        return []
    high, low = (_to_half(value, kind) for value in values)
    return [(destination.name, low | high << np.uint32(16))]


def _convert(state: State, one: Instruction) -> Written:
    """F2F.to.from."""
    destination, source = take(one.operands, 2)
    to, of = (*[m for m in one.modifiers if m in ("F16", "F32", "F64")], "", "")[:2]
    number: np.ndarray | None
    if of == "F64":
        number = read_double(state, source)
    elif of == "F16":
        pair = _halves(state, source, "float16")
        number = None if pair is None else pair[0]
    else:
        number = read_float(state, source)
    if number is None:
        return []
    if to == "F64":
        return as_pair(destination.name, number.astype(np.float64).view(np.uint64))
    if to == "F16":
        return [(destination.name, _to_half(number, "float16"))]
    return [(destination.name, _f32(number))]


# ------------------------------------------------------------------------------------ doubles


def _double_arithmetic(state: State, one: Instruction) -> Written:
    destination, *sources = registers(one, 4 if one.base == "DFMA" else 3)
    values = [read_double(state, source) for source in sources]
    if any(value is None for value in values):
        return []
    a, b, *rest = (value for value in values if value is not None)
    result = a + b if one.base == "DADD" else a * b
    if rest:
        result = (a.astype(np.longdouble) * b + rest[0]).astype(np.float64)
    return as_pair(destination.name, result.view(np.uint64))


def _double_compare(state: State, one: Instruction) -> Written:
    first, second, a_operand, b_operand = take(one.operands, 4)
    a, b = read_double(state, a_operand), read_double(state, b_operand)
    other = state.predicate(one.operands[-1])
    if a is None or b is None or other is None:
        return []
    truth = compare_floats(one.modifiers[0], a, b)
    if truth is None:
        return []
    return joined(one, (first, second), (truth, ~truth), other)


# ------------------------------------------------------------------------------------ warps


def _shuffle(state: State, one: Instruction) -> Written:
    """SHFL.how flag, result, value, lane or distance, clamp and segments."""
    if state.lanes.independent or not one.modifiers:
        return []  # the other lanes are not here
    some = registers(one, 4)
    value, by, limits = (state.bits(operand) for operand in some[1:4])
    if value is None or by is None or limits is None:
        return []
    lane = state.lanes.lane.astype(np.int64)
    distance, clamp = by.astype(np.int64) & 31, limits.astype(np.int64) & 31
    segment = limits.astype(np.int64) >> 8 & 31
    end = lane & segment | clamp & ~segment
    how = one.modifiers[0]
    if how == "IDX":
        source = lane & segment | distance & ~segment
    elif how == "BFLY":
        source = lane ^ distance
    else:
        source = lane + (distance if how == "DOWN" else -distance)
    inside = source >= end if how == "UP" else source <= end
    from_lane = np.where(inside, source, lane)
    place = np.arange(state.lanes.count) - lane + from_lane
    given = value[np.minimum(place, state.lanes.count - 1)]
    found: Written = [(some[0].name, given)]
    return found + [(flag.name, inside) for flag in _flags(one)[:1]]


def _vote(state: State, one: Instruction) -> Written:
    alone = state.lanes.independent and any(flag.name != "PT" for flag in _flags(one)[-1:])
    return [] if alone else evaluate(state, one)


def _reverse(state: State, one: Instruction) -> Written:
    destination, source = take(one.operands, 2)
    value = state.bits(source)
    if value is None:
        return []
    octets = np.ascontiguousarray(value)[:, None].view(np.uint8)
    bits = np.unpackbits(octets, axis=1, bitorder="little")
    return [(destination.name, np.packbits(bits, axis=1).view(">u4")[:, 0].astype(np.uint32))]


_HANDLERS: Mapping[str, Handler] = {
    **dict.fromkeys(("HADD2", "HMUL2", "HFMA2"), _half_arithmetic),
    **dict.fromkeys(("DADD", "DMUL", "DFMA"), _double_arithmetic),
    **dict.fromkeys(("VOTE", "VOTEU"), _vote),
    "FMNMX": _float_extreme,
    "FSEL": _float_select,
    "FCHK": _check_division,
    "MUFU": _function,
    "FRND": _round,
    "F2F": _convert,
    "F2FP": _pack,
    "HMNMX2": _half_extreme,
    "HSETP2": _half_compare,
    "DSETP": _double_compare,
    "SHFL": _shuffle,
    "BREV": _reverse,
}
