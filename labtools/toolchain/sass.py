"""Machine code: disassembled, and as typed instructions with control bits, lines and loops.

One listing of nvdisasm holds everything: the text, the encoding with the scheduling bits, and the
source lines; its JSON lacks the encodings and the names of labels and called functions. A stored
listing is enough, and no tool need be installed.

The control bits are the 21 bits above bit 104 of the 128-bit instruction, as described by Jia et
al., "Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking" (arXiv 1804.06826),
section 2: stall cycles, yield, write barrier, read barrier, wait mask, operand reuse.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from labtools.problem import LabError

from .cache import Recent, binary_mark, is_kept, kept
from .cubin import Cubin
from .errors import DisassemblerMissing
from .operands import (
    BOX_COPIES,
    JUMPS,
    MEETINGS,
    Operand,
    parse_operand,
    registers_of,
    split_operands,
)
from .tools import find_tool

LISTING_OPTIONS = ("-c", "-hex", "-g", "-ndf")
"""What nvdisasm must be asked for: code alone, its encoding, and source lines. Its data-flow
analysis adds nothing to the text of these architectures and takes a third of the time."""

_SECTION = re.compile(r"^\s*\.section\s+(?:\.text\.(?P<entry>[\w$]+))?", re.MULTILINE)
_LABEL = re.compile(r"^(\.L_x_\d+|[\w$.]+):\s*$")
_LINE = re.compile(r'//## File "(?P<file>[^"]*)", line (?P<line>\d+)(?P<inlined> inlined at)?')
CODE_LINE = re.compile(
    r"^\s*/\*(?P<address>[0-9a-f]{4,})\*/\s+(?P<text>[^;]*?)\s*;?\s*/\* 0x(?P<low>[0-9a-f]{16}) \*/"
)
"""An instruction as nvdisasm prints it: address, text, the lower half of its encoding."""
HIGH_LINE = re.compile(r"^\s*/\* 0x(?P<high>[0-9a-f]{16}) \*/")
"""The line below it: the upper half."""
_PREDICATE = re.compile(r"^@(?P<negated>!?)(?P<name>U?P(?:\d+|T))\s+")
_TARGET = re.compile(r"`\((?P<label>[^)]*)\)")
_NAMES_LABEL = frozenset(("BRA", "JMP", "CALL", "BSSY", "WARPSYNC", "RET", "BRX"))
_KERNEL = re.compile(r"^//-+ (?P<name>\S+)\s+-+$", re.MULTILINE)
_ARCH = re.compile(
    r"^\s*(?:\.target\s+(?P<arch>sm_\d+[af]?)|\.headerflags\b.*?\bEF_CUDA_SM(?P<of_cuda_12>\d+))",
    re.MULTILINE,
)
_PRINT_AGAIN = "print it with nvdisasm -c -hex -g"
_TIME_LIMIT_S = 60
_WIDTH_BYTES = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "96": 12, "128": 16, "256": 32}
_TRIPS_WALKED = 6  # more than a kernel has stages

SKETCH_LETTERS = {"LDG": "L", "SHFL": "s", "STS": "w", "BAR": "|", "LDS": "r", "MUFU.EX2": "e"}
"""Load, shuffle, write to shared memory, barrier, read from shared memory, exponential."""


@dataclass(frozen=True)
class Control:
    """Scheduling bits of one instruction."""

    stall: int  # cycles before this warp may issue its next instruction, 0..15
    yields: bool  # the scheduler may prefer another warp now
    write_barrier: int | None  # scoreboard 0..5 that is held until the result is there
    read_barrier: int | None  # the same, until the operands have been read
    wait: tuple[int, ...]  # scoreboards that must be free before this instruction may issue
    reuse: int  # operand slots kept in the reuse cache, as bits


@dataclass(frozen=True)
class SourceLine:
    """Where an instruction comes from: a file as the compiler named it, and a line from 1."""

    file: str
    line: int


class GroupedOperands(NamedTuple):
    """Operands by what they are for."""

    flags: tuple[Operand, ...]  # predicates written
    destination: tuple[Operand, ...]  # the register written, or empty
    carries: tuple[Operand, ...]  # predicates read
    terms: tuple[Operand, ...]  # registers, constants and numbers read


@dataclass(frozen=True)
class Instruction:
    """One machine instruction."""

    index: int  # position in the kernel, from 0
    address: int  # byte offset in the kernel
    text: str  # as printed, predicate included, encoding left out
    control: Control  # scheduling bits
    target: int | None  # address that a branch or call goes to, or None
    source: SourceLine | None  # its source line, or None
    predicate: str | None  # name of the guarding predicate, or None
    predicate_negated: bool  # it runs where the predicate is false
    opcode: str  # with modifiers, for example ``LDG.E.64.CONSTANT``
    operands: tuple[Operand, ...]  # in printed order
    defines: frozenset[str]  # registers and predicates that it writes
    uses: frozenset[str]  # registers and predicates that it reads, the guard included

    @cached_property
    def base(self) -> str:
        """The opcode without modifiers."""
        return self.opcode.split(".", 1)[0]

    @cached_property
    def modifiers(self) -> tuple[str, ...]:
        """What follows the base opcode."""
        return tuple(self.opcode.split(".")[1:])

    @cached_property
    def access_bytes(self) -> int:
        """Bytes a lane that a memory instruction moves: ``LDG.E.64`` 8, a plain one 4."""
        return next((_WIDTH_BYTES[m] for m in self.modifiers if m in _WIDTH_BYTES), 4)

    @cached_property
    def grouped(self) -> GroupedOperands:
        """The operands, printed as result, carries written, sources; of comparisons predicates
        first."""
        sources = list(self.operands)
        destination: list[Operand] = []
        flags: list[Operand] = []
        if sources and sources[0].kind == "register":
            destination = [sources.pop(0)]
        while sources and sources[0].kind == "predicate" and not sources[0].inverted:
            flags.append(sources.pop(0))
            if not destination and sources and sources[0].kind == "register":
                destination = [sources.pop(0)]
        carries = tuple(source for source in sources if source.kind == "predicate")
        terms = tuple(source for source in sources if source.kind != "predicate")
        return GroupedOperands(tuple(flags), tuple(destination), carries, terms)

    @cached_property
    def addressed(self) -> tuple[Operand, ...]:
        """The operands that name a place in memory."""
        return tuple(operand for operand in self.operands if operand.kind == "memory")

    @property
    def is_padding(self) -> bool:
        """It never does anything: the hardware wants a distance here."""
        never = self.predicate in ("PT", "UPT") and self.predicate_negated
        return never or self.base == "NOP"

    def matches(self, opcodes: str) -> bool:
        """Whether the opcode begins with ``LDG`` or ``LDG.E.64``; ``A|B`` is either."""
        parts = self.opcode.split(".")
        wanted = (opcode.split(".") for opcode in opcodes.split("|"))
        return any(parts[: len(one)] == one for one in wanted)


@dataclass(frozen=True)
class Loop:
    """A natural loop: instructions ``first`` to ``last`` (a backward branch), both included."""

    first: int
    last: int
    depth: int  # 1 for an outermost loop
    parent: int | None  # position in `Sass.loops` of the loop around it, or None
    # of one trip, in program order
    instructions: tuple[Instruction, ...] = field(repr=False, compare=False)

    def count(self, opcodes: str) -> int:
        """Instructions of one trip that match, as `Instruction.matches`."""
        return sum(one.matches(opcodes) for one in self.instructions)

    def counts(self, opcodes: Sequence[str] = ("LDG", "SHFL", "BAR", "LDS", "MUFU")) -> Counter:
        """`count` of several opcodes."""
        return Counter({opcode: self.count(opcode) for opcode in opcodes})

    def sketch(self, letters: Mapping[str, str] = SKETCH_LETTERS) -> str:
        """One letter an instruction that matters, in program order; a run becomes ``s5``."""
        named = (
            next((letter for opcode, letter in letters.items() if one.matches(opcode)), None)
            for one in self.instructions
        )
        runs = itertools.groupby(letter for letter in named if letter is not None)
        sizes = [(letter, len(list(run))) for letter, run in runs]
        return " ".join(letter if size == 1 else f"{letter}{size}" for letter, size in sizes)

    @property
    def loads_in_flight(self) -> tuple[Instruction, ...]:
        """`loads_in_flight` of the loads into registers."""
        return loads_in_flight(self.instructions, copies=False)

    @property
    def bytes_in_flight(self) -> int:
        """Most bytes that a warp has asked for and not yet waited for, copies included."""
        return 32 * sum(one.access_bytes for one in loads_in_flight(self.instructions))


def innermost(loops: Sequence[Loop]) -> list[Loop]:
    """Those of some loops that hold no other of them."""

    def holds(loop: Loop, other: Loop) -> bool:
        return other is not loop and loop.first <= other.first and other.last <= loop.last

    return [loop for loop in loops if not any(holds(loop, other) for other in loops)]


def loads_in_flight(
    trip: Sequence[Instruction], loads: str = "LDG|LD", *, copies: bool = True
) -> tuple[Instruction, ...]:
    """The largest set of loads of one warp, by bytes, that nothing has waited for yet.

    A warp issues in order. A load counts until an instruction names a register that it fills: there
    the warp stops. A copy to shared memory counts until a wait for its group. Several trips are
    walked; ``loads`` are opcodes as for `Instruction.matches`.
    """
    pending: list[Instruction] = []
    opened: list[Instruction] = []  # copies that are in no group yet
    groups: list[list[Instruction]] = []
    largest: tuple[Instruction, ...] = ()
    for one in itertools.chain.from_iterable(itertools.repeat(trip, _TRIPS_WALKED)):
        pending = [load for load in pending if not load.defines & (one.uses | one.defines)]
        if one.base == "LDGDEPBAR":
            groups, opened = [*groups, opened], []
        elif one.base == "DEPBAR" and groups:
            left = int(one.operands[-1].value or 0)
            groups = groups[-left:] if left else []
        elif one.matches(loads):
            pending.append(one)
        elif copies and one.base == "LDGSTS":
            opened.append(one)
        else:
            continue
        now = (*pending, *itertools.chain.from_iterable(groups), *opened)
        if sum(load.access_bytes for load in now) > sum(load.access_bytes for load in largest):
            largest = now
    return largest


@dataclass(frozen=True)
class Sass:
    """One kernel's machine code."""

    entry: str  # kernel name
    arch: str  # for example ``sm_90``
    instructions: tuple[Instruction, ...] = field(repr=False)  # in program order, padding included

    @cached_property
    def index_of_address(self) -> dict[int, int]:
        """Byte offset to position."""
        return {one.address: one.index for one in self.instructions}

    @cached_property
    def has_roles(self) -> bool:
        """Whether warps wait for copies by a tensor map, or for products of a warpgroup.

        Such a kernel's warps do different work, and hand it to one another at barriers.
        """
        return any(one.base in BOX_COPIES or one.base == "HGMMA" for one in self.instructions)

    @cached_property
    def fresh_products(self) -> frozenset[int]:
        """Products of a warp of whose factors the instruction before kept none in the reuse cache.
        An H200 takes half as long again for them where factors are moved between (``moved`` of
        ``research.measure_units``); of such that follow each other directly that is too much."""

        def kept(before: Instruction, one: Instruction) -> bool:
            pairs = zip(before.operands[1:3], one.operands[1:3], strict=False)
            return any(
                before.control.reuse >> slot & 1 and old.name == new.name
                for slot, (old, new) in enumerate(pairs)
            )

        return frozenset(
            one.index
            for before, one in itertools.pairwise(self.instructions)
            if one.base == "HMMA" and not kept(before, one)
        )

    @cached_property
    def loops(self) -> tuple[Loop, ...]:
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
        found: list[Loop] = []
        for first, last in sorted(spans.items(), key=lambda span: (span[0], -span[1])):
            around = (
                n for n, loop in enumerate(found) if first >= loop.first and last <= loop.last
            )
            parent = max(around, default=None)
            depth = found[parent].depth + 1 if parent is not None else 1
            found.append(Loop(first, last, depth, parent, self.instructions[first : last + 1]))
        return tuple(found)

    @cached_property
    def innermost_loops(self) -> tuple[Loop, ...]:
        """Loops that hold no other loop."""
        return tuple(innermost(self.loops))

    def loop_at(self, first: int, last: int) -> Loop:
        """The loop with these first and last instructions, or these as if they were one."""
        found = (loop for loop in self.loops if (loop.first, loop.last) == (first, last))
        return next(found, Loop(first, last, 1, None, self.instructions[first : last + 1]))

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
    def _used(self) -> list[str]:
        return sorted({name for one in self.instructions for name in one.uses})

    @cached_property
    def live_names(self) -> tuple[frozenset[str], ...]:
        """Registers and predicates whose value before each instruction may still be read.

        After a jump to a computed address everything counts as read.
        """
        return self._liveness((1 << len(self._used)) - 1)

    @cached_property
    def deciding_names(self) -> tuple[frozenset[str], ...]:
        """Of `live_names`, those from which the guard of a later jump follows; where warps have
        roles, also those that say at which barrier they meet, and what."""
        return self._liveness(0, True, self._meetings)

    @property
    def _meetings(self) -> frozenset[str]:
        """Opcodes on whose operands the block's other warps depend."""
        return MEETINGS if self.has_roles else frozenset()

    @cached_property
    def deciding_through_memory(self) -> tuple[frozenset[str], ...]:
        """As `deciding_names`, for what is stored in shared and local memory and loaded again too,
        and for what a function returns."""
        every = (1 << len(self._used)) - 1
        stores = self._meetings
        for load, writers in (("LDS", ("STS", "LDGSTS")), ("LDL", ("STL",))) * 2:
            found = zip(self.instructions, self._liveness(every, True, stores)[1:], strict=False)
            if any(one.base == load and one.defines & after for one, after in found):
                stores |= frozenset(writers)
        return self._liveness(every, True, stores)

    def _liveness(
        self, after_jump: int, for_jumps: bool = False, stores: frozenset[str] = frozenset()
    ) -> tuple[frozenset[str], ...]:
        """One backward pass to a fixed point; sets of names are bits of an int."""
        code, names = self.instructions, self._used
        bits = {name: 1 << place for place, name in enumerate(names)}
        # Backwards: where it stands, where it may go on beside the next one, and its registers.
        steps = []
        for one in reversed(code):
            uses = sum(bits[name] for name in one.uses)
            defines = sum(bits.get(name, 0) for name in one.defines)
            stays = ~defines if one.predicate is None else -1
            ends = one.predicate is None and one.base in ("EXIT", "RET", "BRA", "JMP", "BRX")
            computed = one.base in ("RET", "BRX", "JMX")
            target = None if one.target is None else self.index_of_address.get(one.target)
            reads = not for_jumps or one.base in JUMPS or one.base in stores
            steps.append((one.index, ends, computed, target, uses, defines, stays, reads))
        live = [0] * (len(code) + 1)
        changed = True
        while changed:
            changed = False
            for place, ends, computed, target, uses, defines, stays, reads in steps:
                after = 0 if ends else live[place + 1]
                if computed:
                    after |= after_jump
                elif target is not None:
                    after |= live[target]
                before = after & stays
                if reads or after & defines:
                    before |= uses
                if before != live[place]:
                    live[place] = before
                    changed = True
        return _named(live[: len(code)], names)


def _named(masks: Sequence[int], names: Sequence[str]) -> tuple[frozenset[str], ...]:
    """Sets of names from their bits; equal ones are one object."""
    known = {0: frozenset[str]()}
    last = 0
    for mask in masks:  # what follows one another differs by a few names
        if mask not in known:
            gone, new = _bits(last & ~mask, names), _bits(mask & ~last, names)
            known[mask] = known[last].difference(gone).union(new)
        last = mask
    return tuple(known[mask] for mask in masks)


def _bits(mask: int, names: Sequence[str]) -> list[str]:
    """The names whose bits are set."""
    found = []
    while mask:
        place = mask.bit_length() - 1
        found.append(names[place])
        mask ^= 1 << place
    return found


# ------------------------------------------------------------------------------- disassembled


_listings: Recent[str] = Recent(4)
"""A cubin of many kernels is asked for one of them after the other."""


def disassemble(
    cubin: Cubin | bytes, entry: str | None = None, options: Sequence[str] = ("-c",)
) -> str:
    """The SASS of one kernel of a cubin, or of all.

    ``options`` of nvdisasm: ``-c`` prints code alone, ``-hex`` adds the encoding, ``-plr`` the live
    ranges, ``-g`` the source lines.
    """
    image = cubin.image if isinstance(cubin, Cubin) else cubin
    tool = disassembler()
    parts = (image, tuple(options), binary_mark(tool))
    text = _listings.get(parts)
    if text is None:
        text = kept("disassembly", parts, lambda: _run_nvdisasm(tool, image, options))
        _listings.put(parts, text)
    return text if entry is None else _cut(text, _symbol_of(cubin, entry))


def _symbol_of(cubin: Cubin | bytes, entry: str) -> str:
    return cubin.symbol_of(entry) if isinstance(cubin, Cubin) else entry


def is_disassembled(cubin: Cubin, options: Sequence[str] = ("-c",)) -> bool:
    """Whether `disassemble` need only read what it said before."""
    return is_kept("disassembly", (cubin.image, tuple(options), binary_mark(disassembler())))


def disassembler() -> Path:
    """The nvdisasm that `disassemble` asks. Raises DisassemblerMissing: there is none."""
    tool = find_tool("nvdisasm")
    if tool is None:
        what, why = "The machine code cannot be shown as text here.", "nvdisasm is missing"
        still = "registers, shared memory and spills, which need no disassembly; the package "
        still += "nvidia-cuda-nvdisasm brings nvdisasm for Linux and Windows"
        raise DisassemblerMissing(what, why, still)
    return tool


def _run_nvdisasm(tool: Path, image: bytes, options: Sequence[str]) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(image)
        command = [str(tool), *options, str(path)]
        how: dict[str, Any] = {"capture_output": True, "text": True, "errors": "replace"}
        done = subprocess.run(command, timeout=_TIME_LIMIT_S, **how)
    if done.returncode != 0:
        why = done.stderr.strip() or f"it ended with status {done.returncode}"
        newer = "an nvdisasm of the compiler's own version or a later one reads it"
        raise LabError("nvdisasm refused this cubin.", why, newer)
    return done.stdout


def _cut(text: str, entry: str) -> str:
    marks = list(_KERNEL.finditer(text))
    for mark, following in zip(marks, [*marks[1:], None], strict=True):
        if mark["name"] == f".text.{entry}":
            end = following.start() if following else len(text)
            return text[mark.start() : end].rstrip() + "\n"
    known = [mark["name"].removeprefix(".text.") for mark in marks if ".text." in mark["name"]]
    raise _no_kernel("cubin", entry, known)


def _no_kernel(where: str, entry: str | None, known: Iterable[str]) -> LabError:
    said = f"its kernels are: {', '.join(known) or 'none'}"
    return LabError(f"This {where} has no kernel called {entry}.", said, "name one of them")


# ------------------------------------------------------------------------------------ read


def read_sass(cubin: Cubin | bytes, entry: str) -> Sass:
    """Disassemble one kernel of a cubin into typed instructions."""
    return parse_listing(disassemble(cubin, None, LISTING_OPTIONS), _symbol_of(cubin, entry))


def parse_listing(listing: str, entry: str | None = None) -> Sass:
    """Typed instructions of one kernel from a listing with encodings (``nvdisasm -c -hex -g``);
    None takes the only one."""
    arch, blocks = _read_arch(listing), _split_entries(listing)
    if entry is None and len(blocks) == 1:
        (entry,) = blocks
    if entry is None or entry not in blocks:
        raise _no_kernel("listing", entry, blocks)
    return Sass(entry, arch, tuple(_parse_entry(blocks[entry], entry)))


def parse_listings(listing: str) -> dict[str, Sass]:
    """Typed instructions of every kernel of a listing, by name, in its order."""
    _read_arch(listing)
    blocks = _split_entries(listing)
    if not blocks:
        why = "a kernel begins with a .section .text line"
        raise LabError("This listing has no kernel.", why, _PRINT_AGAIN)
    return {entry: parse_listing(listing, entry) for entry in blocks}


def _read_arch(listing: str) -> str:
    arch = _ARCH.search(listing)
    if arch is None:
        what, why = "This listing does not name its architecture.", "it begins with a .target line"
        raise LabError(what, why, _PRINT_AGAIN)
    return arch["arch"] or f"sm_{arch['of_cuda_12']}"


@functools.lru_cache(maxsize=4)  # one listing is asked for each of its kernels
def _split_entries(listing: str) -> Mapping[str, str]:
    """The text of each kernel's own sections."""
    marks = list(_SECTION.finditer(listing))
    blocks: dict[str, str] = {}
    for mark, following in zip(marks, [*marks[1:], None], strict=False):
        if mark["entry"]:
            end = following.start() if following else len(listing)
            blocks[mark["entry"]] = blocks.get(mark["entry"], "") + listing[mark.end() : end]
    return blocks


def _parse_entry(text: str, entry: str) -> Iterable[Instruction]:
    lines = text.splitlines()
    labels: dict[str, int] = {}
    raw: list[tuple[int, str, int, SourceLine | None]] = []
    pending: list[str] = []
    source: SourceLine | None = None
    fresh_line = True
    for number, line in enumerate(lines):
        if "//##" in line and (mark := _LINE.search(line)):
            # An inlined call prints the innermost place first, then where it was called from.
            if fresh_line:
                source = SourceLine(mark["file"], int(mark["line"]))
            fresh_line = False
            continue
        if not line.startswith((" ", "\t", "/")):
            label = _LABEL.match(line)
            if label:
                pending.append(label[1])
            continue
        code = CODE_LINE.match(line)
        if not code:
            continue
        fresh_line = True
        high = HIGH_LINE.match(lines[number + 1]) if number + 1 < len(lines) else None
        if high is None:
            what = f"The listing of {entry} has an instruction without its encoding."
            raise LabError(what, f"after address {code['address']}", _PRINT_AGAIN)
        address = int(code["address"], 16)
        labels.update(dict.fromkeys(pending, address))
        pending = []
        raw.append((address, code["text"].strip(), int(high["high"], 16), source))
    if not raw:
        what = f"The listing of {entry} shows no encoded instructions."
        raise LabError(what, "the scheduling bits are part of the encoding", _PRINT_AGAIN)
    addresses = [address for address, *_ in raw]
    for index, (address, text, high_word, line_source) in enumerate(raw):
        named, printed = _read_text(text)
        control = _read_control(high_word >> 41 & 0x1FFFFF)
        target = _find_target(named, labels, addresses)
        yield Instruction(index, address, text, control, target, line_source, *printed)


_Printed = tuple[str | None, bool, str, tuple[Operand, ...], frozenset[str], frozenset[str]]
"""What the text of an instruction says, as the last fields of `Instruction`."""


@functools.lru_cache(maxsize=1 << 14)
def _read_text(text: str) -> tuple[str | None, _Printed]:
    """The label that it names, and what it says; the same text always says the same."""
    guard = _PREDICATE.match(text)
    rest = text[guard.end() :] if guard else text
    opcode, _, arguments = rest.partition(" ")
    operands = tuple(parse_operand(part) for part in split_operands(arguments))
    defines, uses = registers_of(opcode, operands)
    if guard and guard["name"] not in ("PT", "UPT"):
        uses = uses | {guard["name"]}
    named = _TARGET.search(arguments) if opcode.split(".", 1)[0] in _NAMES_LABEL else None
    guarded = (guard["name"], bool(guard["negated"])) if guard else (None, False)
    label = named["label"] if named else None
    return label, (*guarded, opcode, operands, frozenset(defines), frozenset(uses))


@functools.lru_cache(maxsize=1 << 12)
def _read_control(bits: int) -> Control:
    write, read, wait = (bits >> 5) & 7, (bits >> 8) & 7, (bits >> 11) & 63
    return Control(
        stall=bits & 15,
        yields=not bits >> 4 & 1,
        write_barrier=None if write == 7 else write,
        read_barrier=None if read == 7 else read,
        wait=tuple(number for number in range(6) if wait >> number & 1),
        reuse=(bits >> 17) & 15,
    )


def _find_target(label: str | None, labels: dict[str, int], addresses: list[int]) -> int | None:
    target = labels.get(label or "")
    if target is None:
        return None
    place = bisect.bisect_left(addresses, target)
    return addresses[place] if place < len(addresses) else None
