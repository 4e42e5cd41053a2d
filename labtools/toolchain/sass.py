"""Machine code as typed instructions: operands, registers read and written, control bits, lines.

One listing of nvdisasm holds everything: the text, the encoding (the scheduling control bits are
in it) and the source lines. Which registers an instruction reads and writes follows from its
opcode and operands, so a stored listing is enough and no tool need be installed.

The control bits are the 21 bits above bit 104 of the 128-bit instruction, as described by Jia et
al., "Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking" (arXiv 1804.06826),
section 2: stall cycles, yield, write barrier, read barrier, wait mask, operand reuse.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from labtools.problem import LabError

from .cubin import Cubin
from .disassembly import disassemble

LISTING_OPTIONS = ("-c", "-hex", "-g", "-ndf")
"""What nvdisasm must be asked for: code alone, its encoding, and source lines. Its data-flow
analysis adds nothing to the text of these architectures and takes a third of the time."""

_SECTION = re.compile(r"^\s*\.section\s+\.text\.(?P<entry>[\w$]+)")
_LABEL = re.compile(r"^(\.L_x_\d+|[\w$.]+):\s*$")
_LINE = re.compile(r'//## File "(?P<file>[^"]*)", line (?P<line>\d+)(?P<inlined> inlined at)?')
_CODE = re.compile(
    r"^\s*/\*(?P<address>[0-9a-f]{4,})\*/\s+(?P<text>[^;]*?)\s*;?\s*/\* 0x(?P<low>[0-9a-f]{16}) \*/"
)
_HIGH = re.compile(r"^\s*/\* 0x(?P<high>[0-9a-f]{16}) \*/")
_PREDICATE = re.compile(r"^@(?P<negated>!?)(?P<name>U?P(?:\d+|T))\s+")
_TARGET = re.compile(r"`\((?P<label>[^)]*)\)")
_ARCH = re.compile(r"^\s*\.target\s+(?P<arch>sm_\d+[af]?)", re.MULTILINE)
_REGISTER = re.compile(r"^(?P<file>UR|UP|R|P|B|SB)(?P<number>\d+|Z|T)(?P<suffix>(?:\.\w+)*)$")
_NUMBER = re.compile(r"^-?(0x[0-9a-f]+|\d+(\.\d+)?(e[+-]?\d+)?|INF|QNAN)$", re.IGNORECASE)
_CONSTANT = re.compile(r"^c\[(?P<bank>[^\]]+)\]\[(?P<offset>[^\]]+)\](?P<suffix>(?:\.\w+)*)$")
_PARTS = re.compile(r"(UR|UP|R|P)(\d+)((?:\.\w+)*)")


@dataclass(frozen=True)
class Control:
    """Scheduling bits of one instruction.

    Attributes:
        stall: cycles before this warp may issue its next instruction, 0..15.
        yields: the scheduler may prefer another warp now.
        write_barrier: scoreboard 0..5 that is held until the result is there, or None.
        read_barrier: scoreboard 0..5 that is held until the operands have been read, or None.
        wait: scoreboards that must be free before this instruction may issue.
        reuse: operand slots kept in the reuse cache, as bits.
    """

    stall: int
    yields: bool
    write_barrier: int | None
    read_barrier: int | None
    wait: tuple[int, ...]
    reuse: int


@dataclass(frozen=True)
class Operand:
    """One operand.

    Attributes:
        kind: ``register``, ``predicate``, ``constant``, ``number``, ``memory``, ``label`` or
            ``special``.
        text: as printed.
        name: register or predicate (``R12``, ``UR4``, ``P0``, ``RZ``, ``PT``); special register.
        negated, absolute, inverted: ``-x``, ``|x|``, ``~x`` (``!P`` for a predicate is inverted).
        suffixes: what follows the name (``64``, ``H0_H0``, ``reuse``, ``X4``).
        value: of a number: an int, or a float where it is printed as one.
        bank, offset: of a constant; the offset is an int or the register that holds it.
        parts: of a memory address: (register, suffixes) pairs; ``offset`` is its immediate.
    """

    kind: str
    text: str
    name: str = ""
    negated: bool = False
    absolute: bool = False
    inverted: bool = False
    suffixes: tuple[str, ...] = ()
    value: int | float | None = None
    bank: int | str = 0
    offset: int = 0
    parts: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True)
class SourceLine:
    """Where an instruction comes from: a file as the compiler named it, and a line from 1."""

    file: str
    line: int


@dataclass(frozen=True)
class Instruction:
    """One machine instruction.

    Attributes:
        index: position in the kernel, from 0.
        address: byte offset in the kernel.
        text: as printed, predicate included, encoding left out.
        predicate: name of the guarding predicate, or None.
        predicate_negated: it runs where the predicate is false.
        opcode: with modifiers, for example ``LDG.E.64.CONSTANT``.
        operands: in printed order.
        control: scheduling bits.
        defines: registers and predicates that it writes.
        uses: registers and predicates that it reads, the guard included.
        target: address that a branch or call goes to, or None.
        source: its source line, or None.
    """

    index: int
    address: int
    text: str
    predicate: str | None
    predicate_negated: bool
    opcode: str
    operands: tuple[Operand, ...]
    control: Control
    defines: frozenset[str]
    uses: frozenset[str]
    target: int | None
    source: SourceLine | None

    @cached_property
    def base(self) -> str:
        """The opcode without modifiers."""
        return self.opcode.split(".", 1)[0]

    @cached_property
    def modifiers(self) -> tuple[str, ...]:
        """What follows the base opcode."""
        return tuple(self.opcode.split(".")[1:])


@dataclass(frozen=True)
class SassLoop:
    """A natural loop: instructions ``first`` to ``last`` (a backward branch), both included.

    Attributes:
        depth: 1 for an outermost loop.
        parent: position in `Sass.loops` of the loop around it, or None.
    """

    first: int
    last: int
    depth: int
    parent: int | None


@dataclass(frozen=True)
class Sass:
    """One kernel's machine code.

    Attributes:
        entry: kernel name.
        arch: for example ``sm_90``.
        instructions: in program order, padding included.
    """

    entry: str
    arch: str
    instructions: tuple[Instruction, ...] = field(repr=False)

    @cached_property
    def index_of_address(self) -> dict[int, int]:
        """Byte offset to position."""
        return {one.address: one.index for one in self.instructions}

    @cached_property
    def loops(self) -> tuple[SassLoop, ...]:
        """All loops, outer before inner, in program order.

        A loop is closed by a branch to an earlier address. A branch back without a predicate,
        out of code that stands after the kernel's last ``EXIT``, returns from a slow path that the
        compiler moved out of the way, and closes none.
        """
        spans: dict[int, int] = {}
        exits = [one.index for one in self.instructions if one.base == "EXIT"]
        last_exit = exits[-1] if exits else len(self.instructions)
        for one in self.instructions:
            if one.base not in ("BRA", "JMP") or one.target is None or one.target >= one.address:
                continue
            if one.target == one.address or (one.predicate is None and one.index > last_exit):
                continue
            first = self.index_of_address[one.target]
            spans[first] = max(spans.get(first, 0), one.index)
        ordered = sorted(spans.items(), key=lambda span: (span[0], -span[1]))
        found: list[SassLoop] = []
        for first, last in ordered:
            around = [
                number
                for number, loop in enumerate(found)
                if loop.first <= first and last <= loop.last
            ]
            parent = around[-1] if around else None
            depth = found[parent].depth + 1 if parent is not None else 1
            found.append(SassLoop(first, last, depth, parent))
        return tuple(found)

    @cached_property
    def innermost_loops(self) -> tuple[SassLoop, ...]:
        """Loops that hold no other loop."""
        parents = {loop.parent for loop in self.loops}
        return tuple(loop for number, loop in enumerate(self.loops) if number not in parents)

    def body(self, loop: SassLoop) -> tuple[Instruction, ...]:
        """The instructions of a loop."""
        return self.instructions[loop.first : loop.last + 1]

    @cached_property
    def executable(self) -> tuple[Instruction, ...]:
        """Everything up to the padding after the last instruction that can run."""
        end = len(self.instructions)
        while end and self.instructions[end - 1].base == "NOP":
            end -= 1
        while end and self.instructions[end - 1].target == self.instructions[end - 1].address:
            end -= 1
        return self.instructions[:end]

    @cached_property
    def live_names(self) -> tuple[frozenset[str], ...]:
        """Registers and predicates whose value before each instruction may still be read.

        After a jump to a computed address everything counts as read.
        """
        names = sorted({name for one in self.instructions for name in one.uses})
        masks = self._liveness(names, (1 << len(names)) - 1)
        known: dict[int, frozenset[str]] = {}
        for mask in masks:
            if mask not in known:
                known[mask] = frozenset(n for bit, n in enumerate(names) if mask >> bit & 1)
        return tuple(known[mask] for mask in masks)

    def live_registers(self) -> list[int]:
        """General registers live before each instruction.

        Returns:
            One number an instruction. Code that is reached only by a computed jump may show fewer.
        """
        names = sorted({name for one in self.instructions for name in one.uses if name[0] == "R"})
        return [mask.bit_count() for mask in self._liveness(names, 0)]

    def _liveness(self, names: Sequence[str], after_jump: int) -> list[int]:
        """One backward pass to a fixed point; sets of names are bits of an int."""
        code = self.instructions
        bits = {name: 1 << place for place, name in enumerate(names)}
        uses = [sum(bits.get(name, 0) for name in one.uses) for one in code]
        kept = [
            ~sum(bits.get(name, 0) for name in one.defines) if one.predicate is None else -1
            for one in code
        ]
        targets = [
            self.index_of_address.get(one.target) if one.target is not None else None
            for one in code
        ]
        live = [0] * (len(code) + 1)
        changed = True
        while changed:
            changed = False
            for one in reversed(code):
                place = one.index
                ends = one.predicate is None and one.base in ("EXIT", "RET", "BRA", "JMP", "BRX")
                after = 0 if ends else live[place + 1]
                target = targets[place]
                if one.base in ("RET", "BRX", "JMX"):
                    after |= after_jump
                elif target is not None:
                    after |= live[target]
                before = after & kept[place] | uses[place]
                if before != live[place]:
                    live[place] = before
                    changed = True
        return live[: len(code)]


def read_sass(cubin: Cubin, entry: str) -> Sass:
    """Disassemble one kernel of a cubin into typed instructions.

    Raises:
        LabError: no nvdisasm here, no such kernel, or a listing in an unknown form.
    """
    return parse_listing(disassemble(cubin, None, LISTING_OPTIONS), entry)


def parse_listing(listing: str, entry: str | None = None) -> Sass:
    """Typed instructions of one kernel from a listing with encodings (``nvdisasm -c -hex -g``).

    Args:
        listing: of one or more kernels; a stored one is as good as a fresh one.
        entry: which kernel; None takes the only one.

    Raises:
        LabError: no such kernel, or the listing lacks the encodings.
    """
    arch = _read_arch(listing)
    blocks = _split_entries(listing)
    if entry is None and len(blocks) == 1:
        entry = next(iter(blocks))
    if entry is None or entry not in blocks:
        raise LabError(
            f"This listing has no kernel called {entry}.",
            f"its kernels are: {', '.join(blocks) or 'none'}",
            "name one of them",
        )
    return Sass(entry, arch, tuple(_parse_entry(blocks[entry], entry)))


def parse_listings(listing: str) -> dict[str, Sass]:
    """Typed instructions of every kernel of a listing, by name, in its order.

    Raises:
        LabError: it holds no kernel, or lacks the encodings.
    """
    arch = _read_arch(listing)
    blocks = _split_entries(listing)
    if not blocks:
        raise LabError(
            "This listing has no kernel.",
            "a kernel begins with a .section .text line",
            "print it again with nvdisasm -c -hex -g",
        )
    return {
        entry: Sass(entry, arch, tuple(_parse_entry(lines, entry)))
        for entry, lines in blocks.items()
    }


def _read_arch(listing: str) -> str:
    arch = _ARCH.search(listing)
    if arch is None:
        raise LabError(
            "This listing does not name its architecture.",
            "a listing begins with a .target line",
            "print it again with nvdisasm",
        )
    return arch["arch"]


def _split_entries(listing: str) -> dict[str, list[str]]:
    blocks: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in listing.splitlines():
        section = _SECTION.match(line)
        if section:
            current = blocks.setdefault(section["entry"], [])
        elif line.split(None, 1)[:1] == [".section"]:
            current = None
        elif current is not None:
            current.append(line)
    return blocks


def _parse_entry(lines: Sequence[str], entry: str) -> Iterable[Instruction]:
    labels: dict[str, int] = {}
    raw: list[tuple[int, str, int, SourceLine | None]] = []
    pending: list[str] = []
    source: SourceLine | None = None
    fresh_line = True
    for number, line in enumerate(lines):
        mark = _LINE.search(line)
        if mark:
            # An inlined call prints the innermost place first, then where it was called from.
            if fresh_line:
                source = SourceLine(mark["file"], int(mark["line"]))
            fresh_line = False
            continue
        label = _LABEL.match(line)
        if label:
            pending.append(label[1])
            continue
        code = _CODE.match(line)
        if not code:
            continue
        fresh_line = True
        high = _HIGH.match(lines[number + 1]) if number + 1 < len(lines) else None
        if high is None:
            raise LabError(
                f"The listing of {entry} has an instruction without its encoding.",
                f"after address {code['address']}",
                "print it with nvdisasm -c -hex -g",
            )
        address = int(code["address"], 16)
        labels.update(dict.fromkeys(pending, address))
        pending = []
        raw.append((address, code["text"].strip(), int(high["high"], 16), source))
    if not raw:
        raise LabError(
            f"The listing of {entry} shows no encoded instructions.",
            "the scheduling bits are part of the encoding",
            "print it with nvdisasm -c -hex -g",
        )
    addresses = [address for address, *_ in raw]
    for index, (address, text, high_word, line_source) in enumerate(raw):
        yield _build(index, address, text, high_word, line_source, labels, addresses)


def _build(
    index: int,
    address: int,
    text: str,
    high: int,
    source: SourceLine | None,
    labels: dict[str, int],
    addresses: list[int],
) -> Instruction:
    guard = _PREDICATE.match(text)
    rest = text[guard.end() :] if guard else text
    opcode, _, arguments = rest.partition(" ")
    operands = tuple(_parse_operand(part) for part in _split_operands(arguments))
    target = _find_target(opcode, arguments, labels, addresses)
    defines, uses = _registers_of(opcode, operands)
    if guard and guard["name"] not in ("PT", "UPT"):
        uses = uses | {guard["name"]}
    return Instruction(
        index=index,
        address=address,
        text=text,
        predicate=guard["name"] if guard else None,
        predicate_negated=bool(guard and guard["negated"]),
        opcode=opcode,
        operands=operands,
        control=_read_control(high),
        defines=frozenset(defines),
        uses=frozenset(uses),
        target=target,
        source=source,
    )


def _read_control(high: int) -> Control:
    bits = (high >> 41) & 0x1FFFFF
    write, read, wait = (bits >> 5) & 7, (bits >> 8) & 7, (bits >> 11) & 63
    return Control(
        stall=bits & 15,
        yields=not bits >> 4 & 1,
        write_barrier=None if write == 7 else write,
        read_barrier=None if read == 7 else read,
        wait=tuple(number for number in range(6) if wait >> number & 1),
        reuse=(bits >> 17) & 15,
    )


def _find_target(
    opcode: str, arguments: str, labels: dict[str, int], addresses: list[int]
) -> int | None:
    if opcode.split(".")[0] not in ("BRA", "JMP", "CALL", "BSSY", "WARPSYNC", "RET", "BRX"):
        return None
    named = _TARGET.search(arguments)
    if named is None:
        return None
    target = labels.get(named["label"])
    if target is None:
        return None
    place = bisect.bisect_left(addresses, target)
    return addresses[place] if place < len(addresses) else None


# ------------------------------------------------------------------------------------ operands


def _split_operands(text: str) -> list[str]:
    parts, depth, current = [], 0, ""
    for letter in text:
        if letter in "[(":
            depth += 1
        elif letter in "])":
            depth -= 1
        if letter == "," and depth == 0:
            parts.append(current.strip())
            current = ""
        elif letter == "`" and depth == 0:  # RET.REL.NODEC R4 `(k) has no comma before its label
            parts.append(current.strip())
            current = letter
        else:
            current += letter
    if current.strip():
        parts.append(current.strip())
    return [part for part in parts if part and part != "&req={}"]


def _parse_operand(text: str) -> Operand:
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
        suffixes = tuple(part for part in register["suffix"].split(".") if part)
        return Operand(kind, text, name=name, suffixes=suffixes, **flags)
    if _NUMBER.match(inner):
        return Operand("number", text, value=_read_number(inner), **flags)
    constant = _CONSTANT.match(inner)
    if constant:
        suffixes = tuple(part for part in constant["suffix"].split(".") if part)
        return _read_constant(text, constant["bank"], constant["offset"], suffixes, flags)
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


def _read_constant(
    text: str, bank: str, offset: str, suffixes: tuple[str, ...], flags: dict[str, Any]
) -> Operand:
    parts = tuple(
        (name + number, tuple(s for s in suffix.split(".") if s))
        for name, number, suffix in _PARTS.findall(bank + "+" + offset)
    )
    numbers = re.findall(r"-?0x[0-9a-f]+", offset)
    return Operand(
        "constant",
        text,
        bank=int(bank, 16) if bank.startswith("0x") else bank,
        offset=int(numbers[-1], 16) if numbers else 0,
        suffixes=suffixes,
        parts=parts,
        **flags,
    )


def _read_memory(text: str, inner: str) -> Operand:
    descriptor = re.match(r"^g?desc\[(UR\d+)\]", inner)
    address = inner[descriptor.end() :] if descriptor else inner
    match = re.search(r"\[([^\]]*)\]", address)
    body = match[1] if match else ""
    parts = [
        (name + number, tuple(s for s in suffix.split(".") if s))
        for name, number, suffix in _PARTS.findall(body)
    ]
    numbers = re.findall(r"(?<![\w.])-?0x[0-9a-f]+", body)
    name = descriptor[1] if descriptor else ""
    return Operand(
        "memory",
        text,
        name=name,
        offset=sum(int(number, 16) for number in numbers),
        parts=tuple(parts),
    )


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
_GLOBAL = frozenset({"LDG", "STG", "LD", "ST", "RED", "REDG", "ATOM", "ATOMG", "LDGSTS"})
_PAIRS = frozenset({"IADD", "IADD3", "MOV", "SEL", "CS2R", "LOP3", "IMNMX", "VIMNMX"})
"""Opcodes of which ``.64`` makes all operands register pairs."""
_WIDTHS = {"64": 2, "96": 3, "128": 4, "256": 8}


def _registers_of(opcode: str, operands: Sequence[Operand]) -> tuple[set[str], set[str]]:
    base, *modifiers = opcode.split(".")
    defines: set[str] = set()
    uses: set[str] = set()
    results = 0 if base in _NO_RESULT else _count_results(base, operands)
    if base in ("P2R", "R2P") and operands[-1].kind == "number":  # predicates as a mask of bits
        mask = int(operands[-1].value or 0)
        (uses if base == "P2R" else defines).update(f"P{n}" for n in range(7) if mask >> n & 1)
    for place, operand in enumerate(operands):
        width = _width(base, modifiers, place, results, operand)
        in_global = base in _GLOBAL and not (base == "LDGSTS" and place == 0)
        names = _names(operand, width, in_global and "E" in modifiers)
        if place < results:
            defines |= names
        else:
            uses |= names
    return defines, uses


def _count_results(base: str, operands: Sequence[Operand]) -> int:
    """How many leading operands are written: a register, then or before it predicates.

    Opcodes that set predicates print all of them first. An arithmetic opcode prints its result and
    then the carries that it sets; the operands that it reads follow.
    """
    if not operands:
        return 0
    if base in ("ISETP", "FSETP", "DSETP", "HSETP2", "UISETP", "UFSETP", "PSETP"):
        return 2
    if base in ("PLOP3", "UPLOP3"):
        return 2
    if base in ("R2P", "UR2UP"):
        return 1
    if base in ("BMOV", "B2R", "R2B"):
        return 1
    if base == "SYNCS":
        return 1 if operands[0].kind in ("register", "predicate") else 0
    if base == "FCHK":
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
        return leading if operands[0].kind == "predicate" else 0
    # Predicates that a selection reads come last; those that it writes stand beside the result.
    if base in ("SEL", "USEL", "FSEL", "FMNMX", "IMNMX", "VIMNMX", "UIMNMX", "P2R", "UP2UR"):
        return [operand.kind for operand in operands].index("register") + 1
    if base in ("SHFL", "LOP3", "ULOP3", "ATOM", "ATOMG", "ATOMS", "ATOMCAS", "VOTE", "VOTEU"):
        return leading if base != "VOTE" and base != "VOTEU" else min(leading, 2)
    return leading


def _width(base: str, modifiers: Sequence[str], place: int, results: int, operand: Operand) -> int:
    """Registers that one operand takes, counted from the named one."""
    if operand.kind != "register":
        return 1
    if "64" in operand.suffixes:
        return 2
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
    if base in ("RET", "BRX", "JMX"):
        return 2
    if base.removeprefix("U") in ("ISETP", "IMNMX") and {"U64", "S64"} & set(modifiers):
        return 2
    if base in ("DADD", "DMUL", "DFMA", "DSETP", "DMNMX"):
        return 2
    if base in ("F2I", "I2F", "F2F", "FRND"):
        return _conversion_width(base, modifiers, place < results)
    if base in ("FADD2", "FMUL2", "FFMA2"):
        return 2
    if base in ("HMMA", "IMMA", "QMMA", "BMMA", "DMMA"):
        return _mma_width(base, modifiers, place)
    return 1


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


def _mma_width(base: str, modifiers: Sequence[str], place: int) -> int:
    """Registers of a fragment: D, A, B, C in printed order."""
    shape = next((m for m in modifiers if m.isdigit() and len(m) >= 4), "")
    m, n, k = {
        "16816": (16, 8, 16),
        "1688": (16, 8, 8),
        "16832": (16, 8, 32),
        "16864": (16, 8, 64),
        "8816": (8, 8, 16),
        "884": (8, 8, 4),
    }.get(shape, (16, 8, 16))
    bits = {"HMMA": 16, "IMMA": 8, "QMMA": 8, "BMMA": 1, "DMMA": 64}[base]
    if base == "HMMA" and "TF32" in modifiers:
        bits = 32
    if base == "IMMA" and {"S4", "U4"} & set(modifiers):
        bits = 4
    accumulator = 32 if base != "HMMA" or "F32" in modifiers else 16
    elements = {
        0: m * n * accumulator,
        1: m * k * bits,
        2: k * n * bits,
        3: m * n * accumulator,
    }
    return max(1, elements.get(place, 0) // (32 * 32))


def _names(operand: Operand, width: int, wide_address: bool) -> set[str]:
    """Registers of one operand; in a wide address a plain register names a 64-bit pair."""
    if operand.kind == "register":
        names = _expand(operand.name, width)
    elif operand.kind == "predicate":
        names = {operand.name} if operand.name not in ("PT", "UPT") else set()
    elif operand.kind in ("memory", "constant"):
        names = set()
        for name, suffixes in operand.parts:
            wide = "64" in suffixes
            if wide_address and not suffixes and operand.kind == "memory":
                # With a descriptor (sm_80 and later) a pair says so; before, it does not.
                wide = name.startswith("UR") or not operand.name
            names |= _expand(name, 2 if wide else 1)
        if operand.kind == "memory" and operand.name:
            names |= _expand(operand.name, 2)
    else:
        names = set()
    return names


def _expand(name: str, width: int) -> set[str]:
    if name.endswith("Z") or name.startswith(("B", "SB")):
        return set()
    stem = name.rstrip("0123456789")
    first = int(name[len(stem) :])
    return {f"{stem}{first + i}" for i in range(width)}
