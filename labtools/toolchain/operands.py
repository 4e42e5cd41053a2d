"""The operands of a machine instruction: what is printed, and which registers it reads and writes.

What an instruction reads and writes follows from its opcode and its operands alone.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

JUMPS = frozenset(("BRA", "JMP", "EXIT", "RET", "CALL", "BRX", "JMX"))
"""What may go on somewhere else than at the next instruction."""

_REGISTER = re.compile(r"^(?P<file>UR|UP|R|P|B|SB)(?P<number>\d+|Z|T)(?P<suffix>(?:\.\w+)*)$")
_NUMBER = re.compile(r"^-?(0x[0-9a-f]+|\d+(\.\d+)?(e[+-]?\d+)?|INF|QNAN)$", re.IGNORECASE)
_CONSTANT = re.compile(r"^c\[(?P<bank>[^\]]+)\]\[(?P<offset>[^\]]+)\](?P<suffix>(?:\.\w+)*)$")
_NESTED = re.compile(r"[\[(`]")
_PARTS = re.compile(r"(UR|UP|R|P)(\d+)((?:\.\w+)*)")


@dataclass(frozen=True)
class Operand:
    """One operand."""

    # ``register``, ``predicate``, ``constant``, ``number``, ``memory``, ``label`` or ``special``
    kind: str
    text: str  # as printed
    # register or predicate (``R12``, ``UR4``, ``P0``, ``RZ``, ``PT``); special register
    name: str = ""
    # negated, absolute, inverted: ``-x``, ``|x|``, ``~x`` (``!P`` for a predicate is inverted)
    negated: bool = False
    absolute: bool = False
    inverted: bool = False
    suffixes: tuple[str, ...] = ()  # what follows the name (``64``, ``H0_H0``, ``reuse``, ``X4``)
    value: int | float | None = None  # of a number: an int, or a float where it is printed as one
    # bank, offset: of a constant; the offset is an int or the register that holds it
    bank: int | str = 0
    offset: int = 0
    # of a memory address: (register, suffixes) pairs; ``offset`` is its immediate
    parts: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @functools.cached_property
    def bits(self) -> int:
        """A number's 32 bits; those of float32 where it is printed with a point."""
        if isinstance(self.value, float):
            return int(np.float32(self.value).view(np.uint32))
        return int(self.value or 0) & 0xFFFFFFFF


def split_operands(text: str) -> list[str]:
    """The operands of an instruction, as printed; commas in brackets part none."""
    if not _NESTED.search(text):
        parts = text.split(",")
        return [part.strip() for part in parts if part.strip() not in ("", "&req={}")]
    parts, depth, current = [], 0, ""
    for letter in text:
        if letter in "[(":
            depth += 1
        elif letter in "])":
            depth -= 1
        if letter == "," and depth == 0:
            parts.append(current)
            current = ""
        elif letter == "`" and depth == 0:  # RET.REL.NODEC R4 `(k) has no comma before its label
            parts.append(current)
            current = letter
        else:
            current += letter
    parts.append(current)
    return [part.strip() for part in parts if part.strip() not in ("", "&req={}")]


@functools.lru_cache(maxsize=1 << 14)
def parse_operand(text: str) -> Operand:
    """One operand from its text."""
    negated = inverted = absolute = False
    inner = text
    while inner and inner[0] in "-!~|+":
        if inner[0] == "-" and _NUMBER.match(inner):
            break
        negated = negated or inner[0] == "-"
        inverted = inverted or inner[0] in "!~"
        if inner[0] == "|":
            absolute = True
            inner = inner[1:].replace("|", "", 1)
        else:
            inner = inner[1:]
    flags: dict[str, Any] = {"negated": negated, "absolute": absolute, "inverted": inverted}
    register = _REGISTER.match(inner)
    if register:
        kind = "predicate" if register["file"] in ("P", "UP") else "register"
        name = register["file"] + register["number"]
        return Operand(kind, text, name=name, suffixes=_suffixes(register["suffix"]), **flags)
    if _NUMBER.match(inner):
        return Operand("number", text, value=_read_number(inner), **flags)
    constant = _CONSTANT.match(inner)
    if constant:
        return _read_constant(text, constant, flags)
    if "[" in inner:
        return _read_memory(text, inner)
    if "`(" in inner:
        return Operand("label", text)
    return Operand("special", text, name=inner, **flags)


def _read_number(text: str) -> int | float:
    upper = text.upper()
    if "0X" in upper:
        return int(text, 16)
    if "INF" in upper or "NAN" in upper:
        return float(text.lower().replace("qnan", "nan"))
    if any(letter in upper for letter in ".E"):
        return float(text)
    return int(text)


def _parts_of(text: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    found = _PARTS.findall(text)
    return tuple((name + number, _suffixes(suffix)) for name, number, suffix in found)


def _suffixes(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.split(".") if part)


def _read_constant(text: str, constant: re.Match[str], flags: dict[str, Any]) -> Operand:
    named, offset = constant["bank"], constant["offset"]
    bank = int(named, 16) if named.startswith("0x") else named
    numbers = re.findall(r"-?0x[0-9a-f]+", offset)
    last = int(numbers[-1], 16) if numbers else 0
    parts, suffixes = _parts_of(f"{named}+{offset}"), _suffixes(constant["suffix"])
    return Operand(
        "constant", text, bank=bank, offset=last, suffixes=suffixes, parts=parts, **flags
    )


def _read_memory(text: str, inner: str) -> Operand:
    descriptor = re.match(r"^g?desc\[(UR\d+)\]", inner)
    address = inner[descriptor.end() :] if descriptor else inner
    match = re.search(r"\[([^\]]*)\]", address)
    body = match[1] if match else ""
    offset = sum(int(number, 16) for number in re.findall(r"(?<![\w.])-?0x[0-9a-f]+", body))
    name = descriptor[1] if descriptor else ""
    return Operand("memory", text, name=name, offset=offset, parts=_parts_of(body))


# ----------------------------------------------------------------- registers read and written

_NO_RESULT = frozenset(
    {
        *("ST", "STG", "STS", "STL", "RED", "REDG", "REDS", "BAR", "BRA", "EXIT", "NOP", "MEMBAR"),
        *("DEPBAR", "LDGDEPBAR", "LDGSTS", "BSSY", "BSYNC", "WARPSYNC", "CALL", "RET", "ERRBAR"),
        *("CCTL", "JMP", "BPT", "YIELD", "NANOSLEEP", "ENDCOLLECTIVE", "BREAK", "KILL", "ACQBULK"),
        *("UBLKCP", "UTMALDG", "UTMASTG", "ARRIVES", "CCTLL", "STSM", "PREEXIT", "UTMACMDFLUSH"),
        *("UCGABAR_ARV", "UCGABAR_WAIT", "FENCE", "WARPGROUP", "UTMAPF", "UBLKPF", "BRX", "STAS"),
        *("UTMACCTL", "ISBERD", "STT", "B2R_RESULT", "ACQSHMINIT", "UTCBAR"),
    }
)
GLOBAL_LOADS = frozenset({"LDG", "LD", "LDGSTS"})
"""Into registers, or with ``LDGSTS`` into shared memory."""
GLOBAL_STORES = frozenset({"STG", "ST"})
GLOBAL_ATOMICS = frozenset({"ATOM", "ATOMG", "RED", "REDG"})
"""With and without an answer."""
GLOBAL_ACCESSES = GLOBAL_LOADS | GLOBAL_STORES | GLOBAL_ATOMICS
BOX_COPIES = frozenset({"UTMALDG"})
"""From global into shared memory by a tensor map; an mbarrier counts the bytes that land."""
MEETINGS = BOX_COPIES | {"SYNCS", "BAR"}
"""By which warps wait for one another, or for copies: their operands say at which barrier."""
SHARED_ACCESSES = frozenset({"LDS", "STS", "LDSM", "STSM", "ATOMS"})
_PAIRS = frozenset({"IADD", "IADD3", "MOV", "SEL", "CS2R", "LOP3", "IMNMX", "VIMNMX"})
"""Opcodes of which ``.64`` makes all operands register pairs."""
_ALL_PAIRS = frozenset(
    {"RET", "BRX", "JMX", "DADD", "DMUL", "DFMA", "DSETP", "DMNMX", "FADD2", "FMUL2", "FFMA2"}
)
_WIDTHS = {"64": 2, "96": 3, "128": 4, "256": 8}


def registers_of(opcode: str, operands: Sequence[Operand]) -> tuple[set[str], set[str]]:
    """(registers and predicates written, those read) by an instruction; its guard is left out."""
    base, *modifiers = opcode.split(".")
    defines: set[str] = set()
    uses: set[str] = set()
    results = 0 if base in _NO_RESULT else _count_results(base, operands)
    if base in ("P2R", "R2P") and operands[-1].kind == "number":  # predicates as a mask of bits
        mask = int(operands[-1].value or 0)
        (uses if base == "P2R" else defines).update(f"P{n}" for n in range(7) if mask >> n & 1)
    wide = base in GLOBAL_ACCESSES and "E" in modifiers
    for place, operand in enumerate(operands):
        width = 1
        if operand.kind == "register":
            width = 2 if "64" in operand.suffixes else _width(opcode, place, results)
        names = _names(operand, width, wide and not (base == "LDGSTS" and place == 0))
        if base == "UTMALDG":  # target, barrier and coordinates; the address of the map
            names = {more for name in names for more in _expand(name, 2 if place else 5)}
        (defines if place < results else uses).update(names)
    return defines, uses


_RESULTS = {
    **dict.fromkeys(("ISETP", "FSETP", "DSETP", "HSETP2", "UISETP", "UFSETP", "PSETP"), 2),
    **dict.fromkeys(("PLOP3", "UPLOP3"), 2),
    **dict.fromkeys(("R2P", "UR2UP", "BMOV", "B2R", "R2B", "FCHK"), 1),
}
"""Leading operands that an opcode writes, where these do not follow from what is printed."""
_SELECTIONS = frozenset(
    {"SEL", "USEL", "FSEL", "FMNMX", "IMNMX", "VIMNMX", "UIMNMX", "P2R", "UP2UR"}
)


def _count_results(base: str, operands: Sequence[Operand]) -> int:
    """How many leading operands are written: a register, then or before it predicates.

    Opcodes that set predicates print all of them first. An arithmetic opcode prints its result and
    then the carries that it sets; the operands that it reads follow.
    """
    if not operands:
        return 0
    if base in _RESULTS:
        return _RESULTS[base]
    kinds = [operand.kind for operand in operands]
    if base == "SYNCS":
        return int(kinds[0] in ("register", "predicate"))
    votes = base in ("VOTE", "VOTEU")
    if votes and "register" not in kinds:
        return 1
    leading = 0
    seen_register = False
    for operand in operands:
        if operand.kind == "predicate" and not operand.inverted:
            leading += 1
        elif operand.kind == "register" and not seen_register and not operand.negated:
            seen_register = True
            leading += 1
        else:
            break
    if not seen_register:
        return leading if kinds[0] == "predicate" else 0
    # Predicates that a selection reads come last; those that it writes stand beside the result.
    if base in _SELECTIONS:
        return kinds.index("register") + 1
    return min(leading, 2) if votes else leading


@functools.lru_cache(maxsize=1 << 12)
def _width(opcode: str, place: int, results: int) -> int:
    """Registers that one operand takes, counted from the named one."""
    base, *modifiers = opcode.split(".")
    sizes = [_WIDTHS[m] for m in modifiers if m in _WIDTHS]
    size = max(sizes, default=1)
    if base in ("LDG", "LD", "LDS", "LDL", "LDC", "LDCU", "ULDC", "LDSM", "ATOM", "ATOMG"):
        if base == "LDSM":
            size = {"2": 2, "4": 4}.get(modifiers[-1], 1)
        return size if place < results or base.startswith("ATOM") else 1
    if base in ("STG", "ST", "STS", "STL", "RED", "REDG", "REDS"):
        return max(size, 2) if "F64" in modifiers else size
    if base.removeprefix("U") in _PAIRS and "64" in modifiers:
        return 2
    if base == "CS2R":
        return 1 if "32" in modifiers else 2
    if base in ("IMAD", "UIMAD"):
        if "WIDE" in modifiers:
            # result 64 bits = 32 x 32 bits + 64 bits
            return 2 if place < results or place >= results + 2 else 1
        if "HI" in modifiers:
            return 2 if place >= results + 2 else 1
        return 1
    if base in _ALL_PAIRS:
        return 2
    if base.removeprefix("U") in ("ISETP", "IMNMX") and {"U64", "S64"} & set(modifiers):
        return 2
    if base in ("F2I", "I2F", "F2F", "FRND"):
        return _conversion_width(base, modifiers, place < results)
    if base in ("HMMA", "IMMA", "QMMA", "BMMA", "DMMA"):
        return _mma_width(base, modifiers, place)
    if base == "HGMMA":
        # The sums come first and, added to, last but for predicates; A is four registers.
        return product_columns(modifiers) // 2 if place != 1 else 4
    return 1


def product_columns(modifiers: Sequence[str]) -> int:
    """N of a product of a warpgroup, m64 n N: ``64x128x16`` has 128."""
    shape = next((m for m in modifiers if m.count("x") == 2), "64x8x16")
    return int(shape.split("x")[1])


def _conversion_width(base: str, modifiers: Sequence[str], result: bool) -> int:
    """Registers of one side of a conversion; ``F2F.F64.F32`` names the result's type first."""
    integer = bool({"U64", "S64"} & set(modifiers))
    real = "F64" in modifiers
    if base == "F2F":
        types = [m for m in modifiers if m in ("F16", "BF16", "F32", "F64")]
        wide = types[:1] == ["F64"] if result else types[-1:] == ["F64"]
    elif base == "FRND":
        wide = real
    else:
        wide = integer if result == (base == "F2I") else real
    return 2 if wide else 1


_SHAPES = {
    **{"16816": (16, 8, 16), "1688": (16, 8, 8), "16832": (16, 8, 32), "16864": (16, 8, 64)},
    **{"8816": (8, 8, 16), "884": (8, 8, 4)},
}
"""M, N and K of a product of one warp, as its opcode says it."""


def _mma_width(base: str, modifiers: Sequence[str], place: int) -> int:
    """Registers of a fragment: D, A, B, C in printed order."""
    m, n, k = next((_SHAPES[word] for word in modifiers if word in _SHAPES), (16, 8, 16))
    bits = {"HMMA": 16, "IMMA": 8, "QMMA": 8, "BMMA": 1, "DMMA": 64}[base]
    if base == "HMMA" and "TF32" in modifiers:
        bits = 32
    if base == "IMMA" and {"S4", "U4"} & set(modifiers):
        bits = 4
    accumulator = 32 if base != "HMMA" or "F32" in modifiers else 16
    elements = (m * n * accumulator, m * k * bits, k * n * bits, m * n * accumulator)
    return max(1, elements[place] // (32 * 32)) if place < len(elements) else 1


def _names(operand: Operand, width: int, wide_address: bool) -> Collection[str]:
    """Registers of one operand; in a wide address a plain register names a 64-bit pair."""
    if operand.kind == "register":
        return _expand(operand.name, width)
    if operand.kind == "predicate":
        return () if operand.name in ("PT", "UPT") else (operand.name,)
    if operand.kind not in ("memory", "constant"):
        return ()
    names: set[str] = set()
    for name, suffixes in operand.parts:
        wide = "64" in suffixes
        if wide_address and not suffixes and operand.kind == "memory":
            # With a descriptor (sm_80 and later) a pair says so; before, it does not.
            wide = name.startswith("UR") or not operand.name
        names.update(_expand(name, 2 if wide else 1))
    if operand.kind == "memory" and operand.name:
        names.update(_expand(operand.name, 2))
    return names


@functools.lru_cache(maxsize=1 << 12)
def _expand(name: str, width: int) -> tuple[str, ...]:
    """A register and those that follow it; none of what always reads as nothing."""
    if name.endswith("Z") or name.startswith(("B", "SB")):
        return ()
    stem = name.rstrip("0123456789")
    first = int(name[len(stem) :])
    return tuple(f"{stem}{first + i}" for i in range(width))
