"""The loops of a kernel in its machine code: what one trip issues, and which loads overlap.

Only what a listing shows is counted. How long anything takes is another question.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

_LABEL = re.compile(r"^\s*\.(L_x_\d+):")
_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]+\*/\s+(?P<text>.*?)\s*;")
_PREDICATE = re.compile(r"^@!?U?P\w+\s+")
# A loop closes with a branch under a predicate. A branch back without one returns from code that
# the compiler moved out of the way.
_LOOP_BRANCH = re.compile(r"^@!?U?P\w+\s+BRA\b.*`\(\.(L_x_\d+)\)")
_REGISTER = re.compile(r"(?<![A-Z])R(\d+)")
_WIDTH_BITS = re.compile(r"\.(8|16|32|64|128)\b|\.[US](8|16)\b")

SKETCH_LETTERS = {"LDG": "L", "SHFL": "s", "STS": "w", "BAR": "|", "LDS": "r", "MUFU.EX2": "e"}
"""Load, shuffle, write to shared memory, barrier, read from shared memory, exponential."""


@dataclass(frozen=True)
class Load:
    """One load from global memory in a loop.

    Attributes:
        bytes_per_lane: 1, 2, 4, 8 or 16.
        registers: the registers it fills.
    """

    bytes_per_lane: int
    registers: frozenset[int]


@dataclass(frozen=True)
class Loop:
    """An innermost loop of a kernel.

    Attributes:
        instructions: the text of each, in program order, predicate included.
    """

    instructions: tuple[str, ...]

    @property
    def opcodes(self) -> tuple[str, ...]:
        """Each instruction's opcode with its modifiers, for example ``LDG.E.64.CONSTANT``."""
        return tuple(_opcode(text) for text in self.instructions)

    def count(self, opcode: str) -> int:
        """Instructions of one trip whose opcode is ``opcode``, whatever its modifiers."""
        return sum(_is_opcode(name, opcode) for name in self.opcodes)

    def counts(self, opcodes: tuple[str, ...] = ("LDG", "SHFL", "BAR", "LDS", "MUFU")) -> Counter:
        """`count` of several opcodes."""
        return Counter({opcode: self.count(opcode) for opcode in opcodes})

    def sketch(self, letters: Mapping[str, str] = SKETCH_LETTERS) -> str:
        """One letter an instruction that matters, in program order; a run becomes ``s5``.

        Args:
            letters: opcode to letter; other instructions are left out.
        """
        found = []
        for name in self.opcodes:
            letter = next((x for opcode, x in letters.items() if _is_opcode(name, opcode)), None)
            if letter is not None:
                found.append(letter)
        runs = [(letter, len(list(run))) for letter, run in itertools.groupby(found)]
        return " ".join(letter if count == 1 else f"{letter}{count}" for letter, count in runs)

    @property
    def loads_in_flight(self) -> tuple[Load, ...]:
        """The largest set of loads of one warp that are issued before any of them is used.

        Two trips are walked, so that loads for a later trip count. A load ends at the first
        instruction that names a register it fills: there the warp waits, in order.
        """
        pending: list[Load] = []
        largest: tuple[Load, ...] = ()
        for text in self.instructions * 2:
            named = {int(number) for number in _REGISTER.findall(text)}
            wide = {n + 1 for n in _wide_registers(text)}
            pending = [load for load in pending if not load.registers & (named | wide)]
            if _is_opcode(_opcode(text), "LDG"):
                pending.append(_read_load(text))
                if _bytes(pending) > _bytes(largest):
                    largest = tuple(pending)
        return largest

    @property
    def bytes_in_flight(self) -> int:
        """Bytes of `loads_in_flight` for a whole warp."""
        return 32 * _bytes(self.loads_in_flight)


def find_loops(listing: str) -> list[Loop]:
    """The innermost loops of one kernel, in program order.

    Args:
        listing: one kernel's text as `disassemble(cubin, entry)` gives it.
    """
    instructions: list[str] = []
    labels: dict[str, int] = {}
    for line in listing.splitlines():
        if label := _LABEL.match(line):
            labels[label[1]] = len(instructions)
        elif instruction := _INSTRUCTION.match(line):
            instructions.append(instruction["text"])
    spans = []
    for end, text in enumerate(instructions):
        if branch := _LOOP_BRANCH.match(text):
            start = labels.get(branch[1], end)
            if start < end:
                spans.append((start, end))
    innermost = [
        (start, end)
        for start, end in spans
        if not any((a, b) != (start, end) and start <= a and b <= end for a, b in spans)
    ]
    return [Loop(tuple(instructions[start : end + 1])) for start, end in sorted(innermost)]


def _is_opcode(name: str, opcode: str) -> bool:
    wanted = opcode.split(".")
    return name.split(".")[: len(wanted)] == wanted


def _opcode(text: str) -> str:
    return _PREDICATE.sub("", text).split(" ")[0]


def _read_load(text: str) -> Load:
    width = _WIDTH_BITS.search(_opcode(text))
    bits = int(width[1] or width[2]) if width else 32
    first = int(_REGISTER.findall(text)[0])
    count = max(1, bits // 32)
    return Load(bits // 8, frozenset(range(first, first + count)))


def _wide_registers(text: str) -> set[int]:
    """First registers of the 64-bit pairs that an address names."""
    return {int(number) for number in re.findall(r"(?<![A-Z])R(\d+)\.64", text)}


def _bytes(loads: tuple[Load, ...] | list[Load]) -> int:
    return sum(load.bytes_per_lane for load in loads)
