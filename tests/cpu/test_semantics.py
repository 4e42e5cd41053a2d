"""What integer machine instructions compute, against plain Python integers."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from devices import needs_tools
from hypothesis import given
from hypothesis import strategies as st

from labtools.predict.lanes import Buffers, Lanes, lanes_of_block
from labtools.predict.semantics import State, evaluate
from labtools.predict.trace import run_trace
from labtools.problem import Launch
from labtools.toolchain import compile_cubin
from labtools.toolchain.sass import Instruction, parse_listing, read_sass

MASK = 0xFFFFFFFF
MASK64 = (1 << 64) - 1
EDGES = (0, 1, 2, 3, 31, 32, 33, 127, 128, 0x7FFF, 0x7FFFFFFE, 0x7FFFFFFF, 0x80000000, MASK - 1)
word = st.one_of(st.sampled_from((*EDGES, MASK)), st.integers(0, MASK))
words = st.lists(word, min_size=3, max_size=3)
long_words = st.builds(lambda high, low: high << 32 | low, word, word)


def instruction(text: str) -> Instruction:
    """One instruction from a fabricated listing."""
    listing = (
        '\t.target sm_90\n\t.section .text.k,"ax",@progbits\n'
        f"        /*0000*/                   {text} ; /* 0x0000000000000000 */\n"
        "                                             /* 0x000fe20000000000 */\n"
    )
    return parse_listing(listing).instructions[0]


def run(
    texts: str | Sequence[str],
    registers: Mapping[str, int],
    predicates: Mapping[str, bool] | None = None,
) -> dict[str, int | bool | None]:
    """Registers and predicates after some instructions, on one lane."""
    zero = np.zeros((1, 3), np.int64)
    state = State(Lanes(zero, zero, (1, 1, 1), (1, 1, 1), bytes(64)))
    for name, value in registers.items():
        state.values[name] = np.array([value], np.uint32)
    for name, truth in (predicates or {}).items():
        state.values[name] = np.array([truth])
    for text in [texts] if isinstance(texts, str) else texts:
        for name, value in evaluate(state, instruction(text)):
            state.values[name] = value
    return {
        name: None if value is None else value[0].item() for name, value in state.values.items()
    }


def signed(value: int, bits: int = 32) -> int:
    return value - (1 << bits) if value >> (bits - 1) & 1 else value


def pair(low: str, high: str, value: int) -> dict[str, int]:
    return {low: value & MASK, high: value >> 32}


def joined(found: Mapping[str, int | bool | None], low: str, high: str) -> int:
    return int(found[high] or 0) << 32 | int(found[low] or 0)


# ---------------------------------------------------------------------------------- addition


@given(words)
def test_three_addends(abc: list[int]) -> None:
    a, b, c = abc
    given_ = {"R0": a, "R1": b, "R2": c}
    assert run("IADD3 R4, R0, R1, R2", given_)["R4"] == (a + b + c) & MASK
    assert run("IADD3 R4, R0, -R1, R2", given_)["R4"] == (a - b + c) & MASK
    assert run("IADD3 R4, -R0, 0x5, -R2", given_)["R4"] == (5 - a - c) & MASK
    assert run("VIADD R4, R0, 0xfffffffe", given_)["R4"] == (a - 2) & MASK
    assert run("IADD3 R4, RZ, -R1, RZ", given_)["R4"] == -b & MASK


@given(long_words, long_words, long_words)
def test_carries_make_64_bit_sums(a: int, b: int, c: int) -> None:
    given_ = {**pair("R0", "R1", a), **pair("R2", "R3", b), **pair("R6", "R7", c)}
    two = ["IADD3 R4, P0, R0, R2, RZ", "IADD3.X R5, R1, R3, RZ, P0, !PT"]
    assert joined(run(two, given_), "R4", "R5") == (a + b) & MASK64
    less = ["IADD3 R4, P0, R0, -R2, RZ", "IADD3.X R5, R1, ~R3, RZ, P0, !PT"]
    assert joined(run(less, given_), "R4", "R5") == (a - b) & MASK64
    three = ["IADD3 R4, P0, P1, R0, R2, R6", "IADD3.X R5, R1, R3, R7, P0, P1"]
    assert joined(run(three, given_), "R4", "R5") == (a + b + c) & MASK64
    on_multiplier = ["IADD3 R4, P0, R0, R2, RZ", "IMAD.X R5, RZ, RZ, R3, P0"]
    high = run(on_multiplier, given_)["R5"]
    assert high == ((a & MASK) + b & MASK64) >> 32
    wide = run("IADD.64 R4, R0, R2", given_)
    assert joined(wide, "R4", "R5") == (a + b) & MASK64
    wide = run("IADD.64 R4, R0, -R2", given_)
    assert joined(wide, "R4", "R5") == (a - b) & MASK64


# ---------------------------------------------------------------------------- multiplication


@given(words, long_words)
def test_products(abc: list[int], wide: int) -> None:
    a, b, c = abc
    given_ = {"R0": a, "R1": b, "R2": c, **pair("R6", "R7", wide)}
    assert run("IMAD R4, R0, R1, R2", given_)["R4"] == (a * b + c) & MASK
    assert run("IMAD R4, R0, R1, -R2", given_)["R4"] == (a * b - c) & MASK
    assert run("IMAD.MOV.U32 R4, RZ, RZ, R2", given_)["R4"] == c
    assert run("IMAD.SHL.U32 R4, R0, 0x8, RZ", given_)["R4"] == (a << 3) & MASK
    assert run("IMAD.IADD R4, R0, 0x1, R2", given_)["R4"] == (a + c) & MASK
    plain = joined(run("IMAD.WIDE.U32 R4, R0, R1, R6", given_), "R4", "R5")
    assert plain == (a * b + wide) & MASK64
    with_sign = joined(run("IMAD.WIDE R4, R0, R1, R6", given_), "R4", "R5")
    assert with_sign == (signed(a) * signed(b) + wide) & MASK64
    # The high half of a product takes a pair as its addend.
    high = run("IMAD.HI.U32 R4, R0, R1, R6", given_)["R4"]
    assert high == ((a * b + wide) & MASK64) >> 32
    high = run("IMAD.HI R4, R0, R1, RZ", given_)["R4"]
    assert high == (signed(a) * signed(b) >> 32) & MASK
    carry = run("IMAD.WIDE.U32 R4, P0, R0, R1, R6", given_)["P0"]
    assert carry == (a * b + wide > MASK64)


@given(long_words, long_words, st.integers(0, 31))
def test_shifted_addition_makes_pointers(base: int, index: int, shift: int) -> None:
    given_ = {**pair("R0", "R1", index), **pair("R2", "R3", base)}
    chain = [f"LEA R4, P0, R0, R2, {shift:#x}", f"LEA.HI.X R5, R0, R3, R1, {shift:#x}, P0"]
    assert joined(run(chain, given_), "R4", "R5") == (base + (index << shift)) & MASK64
    chain[1] = f"LEA.HI.X.SX32 R5, R0, R3, {shift:#x}, P0"
    offset = signed(index & MASK) << shift
    assert joined(run(chain, given_), "R4", "R5") == (base + offset) & MASK64
    low = index & MASK
    found = run(f"LEA.HI R4, R0, R2, RZ, {shift:#x}", given_)["R4"]
    assert found == (((low << shift) >> 32) + base) & MASK
    assert run(f"LEA R4, R0, -R2, {shift:#x}", given_)["R4"] == ((low << shift) - base) & MASK


# --------------------------------------------------------------------------------- shifts, bits


@given(words, st.integers(0, 70))
def test_shifts(abc: list[int], by: int) -> None:
    a, c, _ = abc
    both = c << 32 | a
    given_ = {"R0": a, "R1": c, "R2": by}
    cases = {
        "SHF.L.U32 R4, R0, R2, RZ": a << by if by < 32 else 0,
        "SHF.R.U32.HI R4, RZ, R2, R1": c >> by,
        "SHF.R.S32.HI R4, RZ, R2, R1": signed(c) >> min(by, 31),
        "SHF.L.U64.HI R4, R0, R2, R1": (both << min(by, 63)) >> 32,
        "SHF.R.U64 R4, R0, R2, R1": both >> min(by, 63),
        "SHF.R.S64 R4, R0, R2, R1": signed(both, 64) >> min(by, 63),
        "SHF.L.W.U32.HI R4, R0, R2, R0": (a << 32 | a) << (by & 31) >> 32,
        "SHF.R.W.U32 R4, R0, R2, R0": (a << 32 | a) >> (by & 31),
        "SHF.L.U32.HI R4, R0, R2, R1": (both << min(by, 32)) >> 32,
        "SHF.R.U32 R4, R0, R2, R1": both >> min(by, 32),
    }
    for text, expected in cases.items():
        assert run(text, given_)["R4"] == expected & MASK, text


def by_table(table: int, a: int, b: int, c: int, bits: int) -> int:
    result = 0
    for bit in range(bits):
        place = (a >> bit & 1) << 2 | (b >> bit & 1) << 1 | (c >> bit & 1)
        result |= (table >> place & 1) << bit
    return result


@pytest.mark.parametrize("table", range(256))
def test_every_truth_table_of_lop3(table: int) -> None:
    a, b, c = 0xF0F0F0F1, 0xCCCCCCC3, 0xAAAAAA0A
    given_ = {"R0": a, "R1": b, "R2": c}
    expected = by_table(table, a, b, c, 32)
    assert run(f"LOP3.LUT R4, R0, R1, R2, {table:#x}, !PT", given_)["R4"] == expected
    found = run(f"LOP3.LUT P0, R4, R0, R1, R2, {table:#x}, !PT", given_)
    assert found["R4"] == expected and found["P0"] == (expected != 0)


@pytest.mark.parametrize("table", range(256))
def test_every_truth_table_of_plop3(table: int) -> None:
    for place in range(8):
        given_ = {f"P{n}": bool(place >> (2 - n) & 1) for n in range(3)}
        found = run(f"PLOP3.LUT P3, P4, P0, P1, P2, {table:#x}, {table ^ 255:#x}", {}, given_)
        assert found["P3"] == bool(table >> place & 1)
        assert found["P4"] == (not table >> place & 1)


@given(words)
def test_bits_and_bytes(abc: list[int]) -> None:
    a, b, c = abc
    given_ = {"R0": a, "R1": b, "R2": c}
    assert run("POPC R4, R0", given_)["R4"] == a.bit_count()
    leading = a.bit_length() - 1 if a else MASK
    assert run("FLO.U32 R4, R0", given_)["R4"] == leading
    assert run("FLO.U32.SH R4, R0", given_)["R4"] == (31 - leading if a else MASK)
    assert run("IABS R4, R0", given_)["R4"] == abs(signed(a)) & MASK
    start, width = b % 40, c % 40
    given_ = {"R0": a, "R1": start, "R2": width}
    mask = (((1 << min(width, 32)) - 1) << min(start, 32)) & MASK
    assert run("BMSK R4, R1, R2", given_)["R4"] == mask
    kept = a & ((1 << min(width, 32)) - 1)
    assert run("SGXT.U32 R4, R0, R2", given_)["R4"] == kept
    expected = signed(kept, min(width, 32)) & MASK if width else 0
    assert run("SGXT R4, R0, R2", given_)["R4"] == expected


@given(words)
def test_byte_permutation(abc: list[int]) -> None:
    a, selector, b = abc
    found = run("PRMT R4, R0, R1, R2", {"R0": a, "R1": selector, "R2": b})["R4"]
    source = (b << 32 | a).to_bytes(8, "little")
    expected = []
    for place in range(4):
        choice = selector >> 4 * place & 15
        byte = source[choice & 7]
        expected.append((255 if byte & 128 else 0) if choice & 8 else byte)
    assert found == int.from_bytes(bytes(expected), "little")


# ---------------------------------------------------------------------------------- comparisons

COMPARE = {
    "LT": operator.lt,
    "LE": operator.le,
    "GT": operator.gt,
    "GE": operator.ge,
    "EQ": operator.eq,
    "NE": operator.ne,
}
JOIN = {"AND": operator.and_, "OR": operator.or_, "XOR": operator.xor}


@given(st.lists(long_words, min_size=2, max_size=2), st.booleans(), st.booleans())
def test_comparisons(values: list[int], other: bool, same_high: bool) -> None:
    a, b = values
    if same_high:
        b = a & ~MASK | b & MASK
    given_ = {**pair("R0", "R1", a), **pair("R2", "R3", b)}
    for kind, compare in COMPARE.items():
        for unsigned in (True, False):
            mark = ".U32" if unsigned else ""
            x, y = (v & MASK if unsigned else signed(v & MASK) for v in (a, b))
            for how, join in JOIN.items():
                found = run(f"ISETP.{kind}{mark}.{how} P0, P1, R0, R2, P2", given_, {"P2": other})
                assert found["P0"] == join(compare(x, y), other)
                assert found["P1"] == join(not compare(x, y), other)
            x, y = (v if unsigned else signed(v, 64) for v in (a, b))
            chain = [
                f"ISETP.{kind}.U32.AND P0, PT, R0, R2, PT",
                f"ISETP.{kind}{mark}.AND.EX P0, PT, R1, R3, PT, P0",
            ]
            assert run(chain, given_)["P0"] == compare(x, y), (kind, unsigned)
            wide = f"ISETP.{kind}.{'U64' if unsigned else 'S64'}.AND P0, PT, R0, R2, PT"
            assert run(wide, given_)["P0"] == compare(x, y), wide


@given(words, st.booleans())
def test_selection(abc: list[int], chosen: bool) -> None:
    a, b, c = abc
    given_ = {"R0": a, "R1": b, "R2": c}
    flag = {"P0": chosen}
    assert run("SEL R4, R0, R1, P0", given_, flag)["R4"] == (a if chosen else b)
    assert run("SEL R4, R0, R1, !P0", given_, flag)["R4"] == (b if chosen else a)
    assert run("SEL R4, R0, -R1, P0", given_, flag)["R4"] == (a if chosen else -b & MASK)
    for opcode in ("VIMNMX", "IMNMX"):
        least, most = (run(f"{opcode} R4, R0, R1, {p}", given_)["R4"] for p in ("PT", "!PT"))
        assert least == min(signed(a), signed(b)) & MASK
        assert most == max(signed(a), signed(b)) & MASK
    assert run("VIMNMX.U32 R4, R0, R1, PT", given_)["R4"] == min(a, b)
    assert run("VIMNMX.U32 R4, R0, R1, !PT", given_)["R4"] == max(a, b)


@given(long_words, long_words, st.booleans())
def test_selection_of_pairs(a: int, b: int, chosen: bool) -> None:
    given_ = {**pair("R0", "R1", a), **pair("R2", "R3", b)}
    found = run("SEL.64 R4, R0, R2, P0", given_, {"P0": chosen})
    assert joined(found, "R4", "R5") == (a if chosen else b)
    for kind, value in (("U64", lambda x: x), ("S64", lambda x: signed(x, 64))):
        for mark, choose in (("PT", min), ("!PT", max)):
            found = run(f"IMNMX.{kind} PT, PT, R4, R0, R2, {mark}, !PT", given_)
            assert joined(found, "R4", "R5") == choose(a, b, key=value)


@given(word, st.integers(0, 2**20))
def test_conversions_that_division_is_made_of(a: int, b: int) -> None:
    up = np.uint32(int(run("I2F.U32.RP R4, R0", {"R0": a})["R4"] or 0)).view(np.float32)
    assert float(up) >= a and (a == 0 or float(np.nextafter(up, np.float32(0))) < a)
    bits = int(np.float32(b + 0.75).view(np.uint32))
    assert run("F2I.U32.TRUNC.NTZ R4, R0", {"R0": bits})["R4"] == int(np.float32(b + 0.75))
    assert run("I2FP.F32.S32 R4, R0", {"R0": a})["R4"] == int(np.float32(signed(a)).view(np.uint32))


@pytest.mark.parametrize(
    ("text", "known", "wanted"),
    [
        ("IADD3 R4, P0, R0, R9, RZ", {"R0": 1}, None),
        ("IMAD.MOV.U32 R4, RZ, RZ, R0", {"R0": 7}, 7),
        ("IMAD R4, RZ, R9, R0", {"R0": 7}, 7),
        ("IMAD R4, R1, R9, R0", {"R0": 7, "R1": 1}, None),
        ("LOP3.LUT R4, R9, R0, RZ, 0xcc, !PT", {"R0": 5}, 5),
        ("LOP3.LUT R4, R9, R0, RZ, 0xc0, !PT", {"R0": 5}, None),
        ("PLOP3.LUT P4, PT, P1, P2, PT, 0xf0, 0xf", {"P1": True}, True),
        ("PLOP3.LUT P4, PT, P1, P2, PT, 0xc0, 0x0", {"P1": True}, None),
        # A predicate that is joined with another one.
        ("LOP3.LUT P4, RZ, R0, 0x3, RZ, 0xc0, P1", {"R0": 1, "P1": True}, None),
        ("SEL R4, R0, R9, P0", {"R0": 3, "P0": True}, 3),
        ("SEL R4, R0, R9, P0", {"R0": 3, "P0": False}, None),
        ("SEL R4, R0, R9, P0", {"R0": 3}, None),
    ],
)
def test_what_does_not_matter_may_be_unknown(
    text: str, known: dict[str, int | bool], wanted: int | bool | None
) -> None:
    flags = {name: bool(value) for name, value in known.items() if name[0] == "P"}
    found = run(text, {n: int(v) for n, v in known.items() if n[0] == "R"}, flags)
    assert found["P4" if "P4" in text else "R4"] is wanted or found.get("R4") == wanted
    if text.startswith("IADD3"):
        assert found["P0"] is None


# ----------------------------------------------------------------------------------- the rest


def test_an_opcode_that_is_not_known_writes_unknowns() -> None:
    found = run("FROBNICATE R4, R0, R1", {"R0": 1, "R1": 2, "R4": 9})
    assert found["R4"] is None


@pytest.mark.parametrize(
    "text",
    [
        "IMAD.WIDE R4, R0, R1",
        "SHF.L.U32 R4, R0, 0x2",
        "SEL R4, R0, R1",
        "MOV R4",
        "PRMT R4, R0, R1",
    ],
)
def test_operands_in_a_form_that_is_not_known_write_unknowns(text: str) -> None:
    assert run(text, {"R0": 1, "R1": 2})["R4"] is None


def test_moves_of_pairs_and_numbers() -> None:
    assert run("MOV R4, 0xfffffff0", {})["R4"] == 0xFFFFFFF0
    assert run("UMOV UR4, URZ", {})["UR4"] == 0
    assert joined(run("MOV.64 R4, R0", pair("R0", "R1", 5 << 33 | 7)), "R4", "R5") == 5 << 33 | 7
    zero = run("CS2R R4, SRZ", {})
    assert zero["R4"] == 0 and zero["R5"] == 0
    assert run("HFMA2.MMA R4, -RZ, RZ, 1, 2", {})["R4"] == 0x3C004000


# ------------------------------------------------------ what the compiler makes, end to end

ARCHS = ("sm_75", "sm_80", "sm_90", "sm_100", "sm_120")

# C text, and what it is in Python; a, b are int32 (p, q the same bits as uint32), x int64.
EXPRESSIONS = {
    "a / b": lambda a, b: int(a / b) if abs(a) < 1 << 20 else (abs(a) // abs(b)) * sign(a, b),
    "a % b": lambda a, b: a - (abs(a) // abs(b)) * sign(a, b) * b,
    "p / q": lambda a, b: (a & MASK) // (b & MASK),
    "p % q": lambda a, b: (a & MASK) % (b & MASK),
    "a / 7": lambda a, b: (abs(a) // 7) * sign(a, 7),
    "a % 12": lambda a, b: a - (abs(a) // 12) * sign(a, 12) * 12,
    "p / 1000u": lambda a, b: (a & MASK) // 1000,
    "a / 8": lambda a, b: (abs(a) // 8) * sign(a, 8),
    "a * b - 3": lambda a, b: a * b - 3,
    "(int)(((long long)a * b) >> 20)": lambda a, b: a * b >> 20,
    "(int)(((unsigned long long)p * q) >> 35)": lambda a, b: ((a & MASK) * (b & MASK)) >> 35,
    "max(a, min(b, 100))": lambda a, b: max(a, min(b, 100)),
    "abs(a) + (b < 0 ? 5 : -9)": lambda a, b: abs(a) + (5 if b < 0 else -9),
    "a >> (b & 31)": lambda a, b: a >> (b & 31),
    "p >> (q & 31)": lambda a, b: (a & MASK) >> (b & 31),
    "(int)(((long long)a << (b & 31)) >> 8)": lambda a, b: a << (b & 31) >> 8,
    "(a ^ b) & ~(a | 0x1234)": lambda a, b: (a ^ b) & ~(a | 0x1234),
    "__popc(p) * 3 + __clz(q)": lambda a, b: (
        (a & MASK).bit_count() * 3 + 32 - (b & MASK).bit_length()
    ),
    "(a < b && p > q) ? a : b": lambda a, b: a if a < b and (a & MASK) > (b & MASK) else b,
    "((long long)a * 77777 < (long long)b * 3333) ? 1 : 2": lambda a, b: (
        1 if a * 77777 < b * 3333 else 2
    ),
    "((unsigned long long)p * 9 >= (unsigned long long)q * 8) ? 1 : 2": lambda a, b: (
        1 if (a & MASK) * 9 >= (b & MASK) * 8 else 2
    ),
    "__byte_perm(p, q, 0x4271)": lambda a, b: int.from_bytes(
        bytes(((b & MASK) << 32 | (a & MASK)).to_bytes(8, "little")[i] for i in (1, 7, 2, 4)),
        "little",
    ),
    "(int)(short)a + (int)(signed char)b": lambda a, b: (
        signed(a & 0xFFFF, 16) + signed(b & 0xFF, 8)
    ),
    "(p << 7) | (p >> 25)": lambda a, b: (a & MASK) << 7 | (a & MASK) >> 25,
    "__funnelshift_r(p, q, 13)": lambda a, b: ((b & MASK) << 32 | (a & MASK)) >> 13,
    "(int)((long long)a / (b | 1))": lambda a, b: (abs(a) // abs(b | 1)) * sign(a, b | 1),
}


def sign(a: int, b: int) -> int:
    return -1 if (a < 0) != (b < 0) else 1


def traced_values(
    arch: str, expressions: Sequence[str], a: np.ndarray, b: np.ndarray
) -> list[list[int | None]]:
    """24 bits of each expression on each lane: the kernel stores to an address that is made of it.

    Returns:
        Of each expression, one number a lane; None where the trace does not know the address.
    """
    stores = "\n".join(
        f"  out[(size_t)({n}u << 24) + (0xffffffu & (unsigned)({text}))] = 1;"
        for n, text in enumerate(expressions)
    )
    source = (
        'extern "C" __global__ void k(const int* as, const int* bs, char* out) {\n'
        "  const int a = as[threadIdx.x], b = bs[threadIdx.x];\n"
        "  const unsigned p = a, q = b;\n"
        f"{stores}\n}}\n"
    )
    sass = read_sass(compile_cubin(source, arch), "k")
    launch = Launch("k", (1,), (len(a),), args=("q", "k", "out"))
    buffers = Buffers(("q", "k", "out"), {"q": a, "k": b}, {})
    trace = run_trace(sass, lanes_of_block(launch, buffers, arch), buffers)
    found: list[list[int | None]] = [[None] * len(a) for _ in expressions]
    for item in trace.items:
        one = sass.instructions[item.index]  # type: ignore[union-attr]
        if one.base in ("STG", "ST") and item.address is not None:  # type: ignore[union-attr]
            for lane in np.flatnonzero(item.executing):  # type: ignore[union-attr]
                offset = int(item.address[lane]) - buffers.address_of("out")  # type: ignore
                found[offset >> 24][lane] = offset & 0xFFFFFF
    return found


@needs_tools
@pytest.mark.parametrize("arch", ARCHS)
def test_expressions_as_compiled(arch: str) -> None:
    random = np.random.default_rng(7)
    a = random.integers(-(2**31), 2**31, 256).astype(np.int32)
    b = random.integers(-(2**31), 2**31, 256).astype(np.int32)
    a[:64] >>= random.integers(0, 31, 64).astype(np.int32)
    b[32:128] >>= random.integers(0, 31, 96).astype(np.int32)
    edges = np.array([0, 1, -1, 2, 7, 8, 2**31 - 1, -(2**31) + 1], np.int32)
    a[200:208], b[204:212] = edges, edges[::-1]
    b[b == 0] = 3
    found = traced_values(arch, list(EXPRESSIONS), a, b)
    for values, (text, compute) in zip(found, EXPRESSIONS.items(), strict=True):
        expected = [compute(int(x), int(y)) & 0xFFFFFF for x, y in zip(a, b, strict=True)]
        assert values == expected, text
