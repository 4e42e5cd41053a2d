"""What a microbenchmark's machine code must be, and the check that it is.

A compiler removes what it can see through: a reciprocal of an exponential, a load whose second
half nobody wants. Such a kernel still runs and still gives a number. So nothing is measured whose
timed loop does not hold the expected instructions, in the expected chain.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from labtools.problem import LabError, kernels_dir
from labtools.toolchain import Cubin, compile_cubin, disassemble
from labtools.toolchain.options import split_arch

OTHERS = 20
"""Instructions beside the expected ones that a trip may have: counter, branch, a few moves."""

_LABEL = re.compile(r"^\s*\.(L_x_\d+):")
_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]+\*/\s+(?P<text>.*?)\s*;")
_SECTION = re.compile(r"^//-+ \.text\.(?P<name>\S+)\s+-+$", re.MULTILINE)
_PREDICATE = re.compile(r"^@!?(U?P\w+)\s+")
_TARGET = re.compile(r"\(\.(L_x_\d+)\)")
_PLACE = re.compile(r"(?<![A-Z_])(U?[RP])(\d+)(\.64)?")
# What the loop itself needs is counted with the rest: a counter and a comparison.
_LOOP_OWN = {"ISETP": 1, "IADD3": 1, "VOTE": 1}
_PREDICATE_FIRST = ("ISETP", "FSETP", "HSETP2", "PLOP3", "UISETP", "VOTE", "SHFL")


@dataclass(frozen=True)
class CodeCheck:
    """What one kernel of a microbenchmark must be in machine code.

    Attributes:
        entry: the kernel.
        counts: opcode to how often it occurs; ``A|B`` counts either. Modifiers may be left out.
        where: ``loop``: in one trip of the innermost loop between the two reads of the clock;
            ``trip``: likewise, in a kernel that reads no clock; ``kernel``: in all of it.
        chained: opcodes that must form a chain, each needing the one before.
        depth: the length of the longest such chain in one trip.
        others: most instructions of other kinds in one trip.
        in_flight: so many of the first counted opcode are issued before any result is used.
        predicated: every one of the first counted opcode has a predicate.
        registers, shared_bytes: least that the kernel asks for.
        at_most: opcodes that may occur no more often than that.
    """

    entry: str
    counts: Mapping[str, int]
    where: Literal["loop", "trip", "kernel"] = "loop"
    chained: tuple[str, ...] = ()
    depth: int | None = None
    others: int | None = OTHERS
    in_flight: int | None = None
    predicated: bool = False
    registers: int | None = None
    shared_bytes: int | None = None


@dataclass(frozen=True)
class Benchmark:
    """One microbenchmark: its kernels, and what they must be.

    Attributes:
        name: for example ``pipe.ffma``.
        doc: what is measured.
        source: file in kernels/microbench.
        checks: of its kernels.
        defines: one compilation each.
        oldest: first compute capability that has the instructions.
        settings: for the function that measures it.
    """

    name: str
    doc: str
    source: str
    checks: tuple[CodeCheck, ...]
    defines: tuple[tuple[tuple[str, str], ...], ...] = ((),)
    oldest: tuple[int, int] = (7, 5)
    settings: Mapping[str, object] = field(default_factory=dict)

    def runs_on(self, arch: str) -> bool:
        """Whether the architecture has what is measured."""
        return split_arch(arch) >= self.oldest


@dataclass(frozen=True)
class _Instruction:
    text: str

    @property
    def predicate(self) -> str | None:
        found = _PREDICATE.match(self.text)
        return found[1] if found else None

    @property
    def opcode(self) -> str:
        return _PREDICATE.sub("", self.text).split(" ")[0]

    @property
    def is_padding(self) -> bool:
        """An instruction that never does anything: the hardware wants a distance here."""
        return self.text.startswith(("@!UPT ", "@!PT ")) or self.opcode == "NOP"

    def matches(self, opcodes: str) -> bool:
        parts = self.opcode.split(".")
        return any(
            parts[: len(wanted)] == wanted for wanted in (o.split(".") for o in opcodes.split("|"))
        )


def compile_benchmark(benchmark: Benchmark, arch: str, defines: Mapping[str, str]) -> Cubin:
    """Compile a microbenchmark's source.

    Raises:
        LabError: it does not compile, or there is no compiler.
    """
    path = kernels_dir() / "microbench" / benchmark.source
    return compile_cubin(path.read_text(encoding="utf-8"), arch, defines, name=benchmark.source)


def check_machine_code(
    benchmark: Benchmark, arch: str = "sm_90", cubins: Mapping[int, Cubin] | None = None
) -> list[str]:
    """What is wrong with a microbenchmark's machine code; empty when nothing is.

    Args:
        benchmark: what to compile and check.
        arch: for example ``sm_90``.
        cubins: compiled code instead, by the number of the compilation.

    Raises:
        LabError: it does not compile, or the compiler or the disassembler is missing.
    """
    if not benchmark.runs_on(arch):
        return [f"{benchmark.name}: {arch} has no such instruction"]
    problems = []
    for number, defines in enumerate(benchmark.defines):
        given = dict(defines)
        cubin = (cubins or {}).get(number) or compile_benchmark(benchmark, arch, given)
        for check in _checks_of(benchmark, given):
            problems += [f"{benchmark.name}: {check.entry}: {text}" for text in _find(cubin, check)]
    return problems


def _checks_of(benchmark: Benchmark, defines: Mapping[str, str]) -> Iterator[CodeCheck]:
    """The checks, with counts that depend on the code's size put in."""
    size = int(defines.get("CODE_KB", 0))
    for check in benchmark.checks:
        if not size:
            yield check
            continue
        counts = dict.fromkeys(check.counts, 64 * size)
        yield CodeCheck(check.entry, counts, check.where, others=None)


def _find(cubin: Cubin, check: CodeCheck) -> list[str]:
    if check.entry not in cubin.entries:
        return ["there is no such kernel"]
    resources = cubin.entries[check.entry]
    problems = []
    if resources.local_bytes:
        problems.append(f"it keeps {resources.local_bytes} bytes in local memory")
    if check.registers is not None and (resources.registers or 0) < check.registers:
        problems.append(f"{resources.registers} registers, not {check.registers} or more")
    if check.shared_bytes is not None and (resources.shared_bytes or 0) < check.shared_bytes:
        problems.append(f"{resources.shared_bytes} bytes shared, not {check.shared_bytes} or more")
    return problems + check_listing(_listings(cubin.image)[check.entry], check)


@lru_cache(maxsize=32)
def _listings(image: bytes) -> dict[str, str]:
    text = disassemble(image)
    marks = [*_SECTION.finditer(text)]
    ends = [mark.start() for mark in marks[1:]] + [len(text)]
    return {mark["name"]: text[mark.end() : end] for mark, end in zip(marks, ends, strict=True)}


def check_listing(listing: str, check: CodeCheck) -> list[str]:
    """What is wrong with one kernel's listing; empty when nothing is."""
    code, labels = _read(listing)
    if check.where == "kernel":
        return _count(code, check, exactly=False)
    trips = _innermost(code, labels)
    if check.where == "loop":
        clocks = [i for i, one in enumerate(code) if "SR_CLOCKLO" in one.text]
        if len(clocks) < 2:
            return ["the clock is not read twice"]
        trips = [(a, b) for a, b in trips if clocks[0] < a and b < clocks[-1]]
    if not trips:
        return ["there is no loop to time"]
    # Where a warp may diverge, the compiler keeps a slow copy out of line: the best trip counts.
    return min((_judge(code[a : b + 1], check) for a, b in trips), key=len)


def _read(listing: str) -> tuple[list[_Instruction], dict[str, int]]:
    code: list[_Instruction] = []
    labels: dict[str, int] = {}
    for line in listing.splitlines():
        if label := _LABEL.match(line):
            labels[label[1]] = len(code)
        elif found := _INSTRUCTION.match(line):
            code.append(_Instruction(found["text"]))
    return code, labels


def _innermost(code: list[_Instruction], labels: Mapping[str, int]) -> list[tuple[int, int]]:
    spans = []
    for end, one in enumerate(code):
        if one.opcode.split(".")[0] != "BRA" or "DIV" in one.opcode:
            continue
        target = _TARGET.search(one.text)
        start = labels.get(target[1], end) if target else end
        if start < end:
            spans.append((start, end))
    # A wait that spins on itself is part of the loop around it.
    spans = [span for span in spans if span[1] - span[0] > 2] or spans
    return [
        (start, end)
        for start, end in spans
        if not any((a, b) != (start, end) and start <= a and b <= end for a, b in spans)
    ]


def _judge(trip: list[_Instruction], check: CodeCheck) -> list[str]:
    problems = _count(trip, check, exactly=True)
    if check.others is not None:
        others = sum(
            not one.is_padding and not any(one.matches(name) for name in check.counts)
            for one in trip
        )
        if others > check.others:
            problems.append(f"{others} other instructions in a trip, more than {check.others}")
    first = next(iter(check.counts))
    if check.depth is not None:
        depth = chain_depth([one.text for one in trip], check.chained)
        if depth != check.depth:
            problems.append(f"a chain of {depth}, not {check.depth}")
    if check.in_flight is not None:
        ahead = _issued_ahead(trip, first)
        if ahead != check.in_flight:
            problems.append(f"{ahead} in flight together, not {check.in_flight}")
    if check.predicated:
        bare = sum(one.matches(first) and one.predicate is None for one in trip)
        if bare:
            problems.append(f"{bare} {first} without a predicate")
    return problems


def _count(code: list[_Instruction], check: CodeCheck, exactly: bool) -> list[str]:
    problems = []
    for opcodes, wanted in check.counts.items():
        found = sum(one.matches(opcodes) and not one.is_padding for one in code)
        own = _LOOP_OWN.get(opcodes, 0) if exactly else found
        if not wanted <= found <= wanted + own:
            problems.append(f"{found} {opcodes}, not {wanted}")
    return problems


def _width(opcode: str) -> int:
    """Registers that an instruction fills."""
    if opcode.startswith(("HMMA", "IMMA")):
        return 4
    for text, width in ((".128", 4), (".64", 2), (".WIDE", 2), (".M88.4", 4)):
        if text in opcode:
            return width
    return 1


def _places(text: str, width: int = 1) -> set[str]:
    found: set[str] = set()
    for kind, number, wide in _PLACE.findall(text):
        count = max(width, 2 if wide else 1) if kind.endswith("R") else 1
        found |= {f"{kind}{int(number) + i}" for i in range(count)}
    return found


def _reads_and_writes(text: str) -> tuple[set[str], set[str]]:
    """Registers and predicates that an instruction reads, and those that it fills."""
    one = _Instruction(text)
    opcode = one.opcode
    operands = _PREDICATE.sub("", text)[len(opcode) :].split(",")
    reads = _places(one.predicate or "")
    base = opcode.split(".")[0]
    if base in ("STS", "STG", "BAR", "BRA", "LDGSTS"):
        reads |= _places(",".join(operands), 4 if ".128" in opcode else 1)
        return (reads, {"shared"}) if base == "STS" else (reads, set())
    if base == "LDS":
        reads |= {"shared"}
    outputs = 1
    if base in _PREDICATE_FIRST or (
        len(operands) > 1 and re.fullmatch(r"\s*U?P\w+\s*", operands[1])
    ):
        outputs = 2
    writes = _places(operands[0], _width(opcode))
    for operand in operands[1:outputs]:
        writes |= _places(operand)
    matrix = None
    if base in ("HMMA", "IMMA"):
        matrix = (2, 1, 4) if ".1688" in opcode else (4, 2, 4)
    for index, operand in enumerate(operands[outputs:]):
        reads |= _places(operand, matrix[index] if matrix and index < 3 else 1)
    return reads, writes


def chain_depth(trip: list[str], opcodes: tuple[str, ...]) -> int:
    """How many of some opcodes stand one behind the other in the longest chain of a trip."""
    depth: dict[str, int] = {}
    longest = 0
    for text in trip:
        reads, writes = _reads_and_writes(text)
        here = max((depth.get(place, 0) for place in reads), default=0)
        if any(_Instruction(text).matches(name) for name in opcodes):
            here += 1
        longest = max(longest, here)
        for place in writes:
            # What is stored comes on top of what other lanes stored before.
            depth[place] = here
    return longest


def _issued_ahead(trip: list[_Instruction], opcodes: str) -> int:
    """Most loads that are issued before the result of any of them is used; two trips are seen."""
    pending: list[set[str]] = []
    most = 0
    for one in trip * 2:
        reads, writes = _reads_and_writes(one.text)
        pending = [filled for filled in pending if not filled & (reads | writes)]
        if one.matches(opcodes):
            pending.append(writes)
            most = max(most, len(pending))
    return most


def missing_disassembler(error: LabError) -> bool:
    """Whether a check failed for want of the tool that shows machine code."""
    return "nvdisasm" in error.why
