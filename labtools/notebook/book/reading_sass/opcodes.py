"""What the opcodes of the kernels do, which pipe they go to, and how long their results take."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from labtools.predict.latencies import Latencies
from labtools.predict.machine import unit_of
from labtools.toolchain.sass import Instruction, Loop, Sass

from ...tables import Shown, Word, show_table

WORDS = {
    "LDG": "load from global memory",
    "STG": "store to global memory",
    "LDS": "load from shared memory",
    "STS": "store to shared memory",
    "LDL": "load from local memory: a spilled register comes back",
    "STL": "store to local memory: a register is spilled",
    "LDSM": "load matrices from shared memory, laid out for a tensor core",
    "MOVM": "transpose a small matrix that lies in the registers of a warp",
    "LDGSTS": "copy from global to shared memory without registers",
    "LDGDEPBAR": "close a group of such copies",
    "DEPBAR": "wait until such groups have landed",
    "LDC": "read the constant bank",
    "ULDC": "read the constant bank into a uniform register",
    "LDCU": "read the constant bank into a uniform register",
    "S2R": "read a special register, such as the thread index",
    "S2UR": "read a special register into a uniform register",
    "CS2R": "clear or read a pair of registers",
    "SHFL": "read another lane's register",
    "REDUX": "reduce over the lanes of a warp",
    "MUFU": "special function: EX2 is a power of two, RCP a reciprocal",
    "HADD2": "add two halves at once; with .F32, convert a half to fp32",
    "HMUL2": "multiply two halves at once",
    "HFMA2": "multiply and add two halves at once; often only moves a constant",
    "F2FP": "convert fp32 to half",
    "F2F": "convert between floating-point types",
    "I2F": "convert an integer to fp32",
    "I2FP": "convert an integer to fp32",
    "F2I": "convert fp32 to an integer",
    "FADD": "add fp32",
    "FMUL": "multiply fp32",
    "FFMA": "multiply and add fp32",
    "FFMA2": "multiply and add two fp32 at once",
    "FADD2": "add two fp32 at once",
    "FMUL2": "multiply two fp32 at once",
    "FMNMX": "minimum or maximum of fp32",
    "FSETP": "compare fp32, result in a predicate",
    "FSEL": "choose between two fp32 by a predicate",
    "IADD3": "add three integers; a carry goes to a predicate",
    "IADD": "add integers",
    "VIADD": "add two integers",
    "UIADD3": "add three integers, once a warp",
    "IMAD": "multiply and add integers; .MOV only moves, .X adds with a carry",
    "UIMAD": "multiply and add integers, once a warp",
    "IMNMX": "minimum or maximum of integers",
    "VIMNMX": "minimum or maximum of integers",
    "VIADDMNMX": "add integers, then take the minimum or maximum",
    "LEA": "shift and add: an address from a base and an index",
    "ULEA": "shift and add, once a warp",
    "LOP3": "any logical function of three operands",
    "ULOP3": "any logical function of three operands, once a warp",
    "SHF": "shift a pair of registers",
    "USHF": "shift a pair of registers, once a warp",
    "PRMT": "pick bytes out of two registers",
    "ISETP": "compare integers, result in a predicate",
    "UISETP": "compare integers, once a warp",
    "PLOP3": "logical function of three predicates",
    "SEL": "choose between two registers by a predicate",
    "MOV": "move",
    "UMOV": "move, once a warp",
    "R2UR": "move to a uniform register",
    "IABS": "absolute value of an integer",
    "BAR": "barrier: wait for the other warps of the block",
    "BRA": "branch",
    "BSSY": "note where diverged lanes meet again",
    "BSYNC": "wait until diverged lanes have met again",
    "EXIT": "end the thread",
    "CALL": "call",
    "RET": "return",
    "HMMA": "tensor core: multiply two small matrices of halves and add",
    "IMMA": "tensor core: multiply two small matrices of bytes and add",
    "VOTE": "ask all lanes of a warp whether something holds",
    "MEMBAR": "fence: what was written before is seen before",
    "ERRBAR": "part of a fence",
    "CGAERRBAR": "part of a fence",
    "CCTL": "tell a cache what to do with its lines",
    "USEL": "choose between two uniform registers, once a warp",
    "WARPSYNC": "wait until the lanes of a warp have met again",
    "ENDCOLLECTIVE": "end of what the lanes of a warp do together",
    "NOP": "nothing",
}
"""What an opcode does, by its name without modifiers."""

PIPE_NAMES = {
    "fp32": "fp32",
    "imad": "integer multiply-add",
    "fp16": "fp16",
    "alu": "integer and logic",
    "xu": "special function",
    "lsu": "load/store",
    "tensor": "tensor core",
    "control": "control and constants",
    "uniform": "uniform, once a warp",
}
"""Names of the pipes that `labtools.predict.machine.unit_of` tells apart."""


def waited_by_scoreboard(codes: Iterable[Sass]) -> set[str]:
    """Opcodes whose result takes a time that the compiler does not know."""
    return {
        instruction.base
        for code in codes
        for instruction in code.executable
        if instruction.control.write_barrier is not None
    }


def seen_distances(codes: Sequence[Sass]) -> dict[str, int]:
    """By opcode of fixed latency: the fewest cycles that the compiler left before a use.

    The sum of the stall counts from an instruction to the first that reads its result, in
    straight-line code. The compiler knows these latencies and keeps to them. The upper half of a
    64-bit value may be read a cycle later than the lower, so a distance can be one too small.
    """
    variable = waited_by_scoreboard(codes)
    least: dict[str, int] = {}
    for code in codes:
        heads = {
            instruction.target
            for instruction in code.instructions
            if instruction.target is not None
        }
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


_NAMES = {
    "MUFU": "ex2",
    "HADD2": "half_to_float",
    "F2FP": "float_to_half2",
    "LDS": "shared.32",
    "LDC": "ldc",
    "ULDC": "ldc",
    "LDCU": "ldc",
    "BAR": "barrier.4",
}
"""Opcodes whose latency a table holds under another name than their own."""


def show_opcodes(codes: Sequence[Sass], loops: Sequence[Loop], latencies: Latencies) -> Shown:
    """The opcodes of some loops: what each does, its pipe, and how long its result takes.

    Args:
        codes: kernels.
        loops: one loop of each.
        latencies: the table of a GPU.
    """
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
    return show_table(
        ("opcode", "does", "pipe", "least left by the compiler", "cycles to its result"),
        rows,
        word="computed",
        note=f"the loops of {named}; {codes[0].arch}, table of {latencies.gpu}",
    )


def _latency_of(instruction: Instruction, latencies: Latencies) -> tuple[str, Word]:
    """Cycles as text, and where they come from."""
    if instruction.base in ("LDG", "LDGSTS"):
        row = 32 * instruction.access_bytes
        wanted = [(f"latency.{level}_row.{row}", level) for level in ("l1", "l2", "hbm")]
    else:
        wanted = [(f"latency.{_NAMES.get(instruction.base, instruction.base.lower())}", "")]
    found = [(latencies.entry(name), level) for name, level in wanted if latencies.has(name)]
    if not found:
        return "-", Word("computed", "from the listings alone")
    text = ", ".join(
        f"{entry.value:.0f}" + (f" ({level.upper()})" if level else "") for entry, level in found
    )
    word = "recorded" if latencies.calibrated else "claimed"
    return text, Word(word, "; ".join(dict.fromkeys(entry.source for entry, _ in found)))
