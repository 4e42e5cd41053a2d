"""What the opcodes of the kernels do, which pipe they go to, and how long their results take."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path

from labtools.predict.latencies import Latencies
from labtools.predict.machine import unit_of
from labtools.toolchain.sass import Instruction, Loop, Sass

from ...tables import Shown, Word, show_table

_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
WORDS: dict[str, str] = _TABLES["words"]
PIPE_NAMES: dict[str, str] = _TABLES["pipes"]
_LATENCY_NAMES: dict[str, str] = _TABLES["latency_names"]


def seen_distances(codes: Sequence[Sass]) -> dict[str, int]:
    """By opcode of fixed latency: the fewest cycles that the compiler left before a use.

    The stall counts from an instruction to the first that reads its result, in straight-line code.
    The upper half of a 64-bit value may be read a cycle later, so one may be a cycle too small.
    """
    every = [instruction for code in codes for instruction in code.executable]
    variable = {one.base for one in every if one.control.write_barrier is not None}
    least: dict[str, int] = {}
    for code in codes:
        heads = {instruction.target for instruction in code.instructions}
        for instruction in code.executable:
            if instruction.base in variable or not instruction.defines:
                continue
            cycles = instruction.control.stall
            for later in code.instructions[instruction.index + 1 :]:
                if later.address in heads:
                    break
                if instruction.defines & later.uses:
                    least[instruction.base] = min(cycles, least.get(instruction.base, cycles))
                    break
                leaves = later.base in ("BRA", "EXIT", "CALL", "RET", "JMP", "BSYNC")
                if leaves or instruction.defines & later.defines:
                    break
                cycles += later.control.stall
    return least


def show_opcodes(codes: Sequence[Sass], loops: Sequence[Loop], latencies: Latencies) -> Shown:
    """The opcodes of some loops: what each does, its pipe, and how long its result takes."""
    examples: dict[str, Instruction] = {}
    for loop in loops:
        for instruction in loop.instructions:
            examples.setdefault(instruction.base, instruction)
    fixed = seen_distances(codes)
    rows = []
    for base, example in sorted(examples.items(), key=lambda item: (unit_of(item[1]), item[0])):
        cycles, source = _latency_of(example, latencies)
        pipe = unit_of(example)
        left = str(fixed[base]) if base in fixed else "-"
        rows.append((base, WORDS.get(base, "-"), PIPE_NAMES.get(pipe, pipe), left, cycles, source))
    named = ", ".join(dict.fromkeys(code.entry for code in codes))
    columns = ("opcode", "does", "pipe", "least left by the compiler", "cycles to its result")
    note = f"the loops of {named}; {codes[0].arch}, table of {latencies.gpu}"
    return show_table(columns, rows, word="computed", note=note)


def _latency_of(instruction: Instruction, latencies: Latencies) -> tuple[str, Word]:
    """Cycles as text, and where they come from."""
    if instruction.base in ("LDG", "LDGSTS"):
        row = 32 * instruction.access_bytes
        wanted = [(f"latency.{level}_row.{row}", level) for level in ("l1", "l2", "hbm")]
    else:
        name = _LATENCY_NAMES.get(instruction.base, instruction.base.lower())
        wanted = [(f"latency.{name}", "")]
    found = [(latencies.entry(name), level) for name, level in wanted if latencies.has(name)]
    if not found:
        return "-", Word("computed", "from the listings alone")
    text = ", ".join(
        f"{entry.value:.0f}" + (f" ({level.upper()})" if level else "") for entry, level in found
    )
    if latencies.calibrated:
        return text, Word("recorded", "by a microbenchmark")
    return text, Word("claimed", "; ".join(dict.fromkeys(entry.source for entry, _ in found)))
