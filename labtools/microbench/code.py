"""What a microbenchmark's machine code must be, and the check that it is.

A compiler removes what it can see through: a reciprocal of an exponential, a load whose second
half nobody wants. Such a kernel still runs and still gives a number. So nothing is measured whose
timed loop does not hold the expected instructions, in the expected chain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from labtools.problem import kernels_dir
from labtools.problem.rung import is_arch_since
from labtools.toolchain import Cubin, compile_cubin
from labtools.toolchain.options import split_arch
from labtools.toolchain.sass import Instruction, Sass, innermost, loads_in_flight, read_sass

OTHERS = 20
"""Instructions beside the expected ones that a trip may have: counter, branch, a few moves."""

# What the loop itself needs is counted with the rest: a counter and a comparison.
_LOOP_OWN = {"ISETP": 1, "IADD3": 1, "VOTE": 1}
_SHARED = "shared memory"


@dataclass(frozen=True)
class CodeCheck:
    """What one kernel of a microbenchmark must be in machine code."""

    entry: str  # the kernel
    # opcode to how often it occurs; ``A|B`` counts either. Modifiers may be left out.
    counts: Mapping[str, int]
    # ``loop``: in one trip of the innermost loop between the two reads of the clock; ``trip``:
    # likewise, in a kernel that reads no clock; ``kernel``: in all of it
    where: Literal["loop", "trip", "kernel"] = "loop"
    chained: tuple[str, ...] = ()  # opcodes that must form a chain, each needing the one before
    depth: int | None = None  # the length of the longest such chain in one trip
    others: int | None = OTHERS  # most instructions of other kinds in one trip
    # so many of the first counted opcode are issued before any result is used
    in_flight: int | None = None
    predicated: bool = False  # every one of the first counted opcode has a predicate
    # registers, shared_bytes: least that the kernel asks for
    registers: int | None = None
    shared_bytes: int | None = None


@dataclass(frozen=True)
class Benchmark:
    """One microbenchmark: its kernels, and what they must be."""

    name: str  # for example ``pipe.ffma``
    doc: str  # what is measured
    source: str  # file in kernels/microbench
    checks: tuple[CodeCheck, ...]  # of its kernels
    defines: tuple[tuple[tuple[str, str], ...], ...] = ((),)  # one compilation each
    oldest: tuple[int, int] = (7, 5)  # first compute capability that has the instructions
    # the one architecture that has them, with its suffix, for which it is compiled
    target: str | None = None
    # for the function that measures it
    settings: Mapping[str, object] = field(default_factory=dict)

    def runs_on(self, arch: str) -> bool:
        """Whether the architecture has what is measured."""
        if self.target is not None:
            return is_arch_since(arch, self.target)
        return split_arch(arch) >= self.oldest


def compile_benchmark(benchmark: Benchmark, arch: str, defines: Mapping[str, str]) -> Cubin:
    """Compile a microbenchmark's source."""
    path = kernels_dir() / "microbench" / benchmark.source
    text = path.read_text(encoding="utf-8")
    return compile_cubin(text, benchmark.target or arch, defines, name=benchmark.source)


def check_machine_code(
    benchmark: Benchmark, arch: str = "sm_90", cubins: Mapping[int, Cubin] | None = None
) -> list[str]:
    """What is wrong with a microbenchmark's machine code, compiled here or given in ``cubins`` by
    the number of the compilation; empty when nothing is."""
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
    return problems + check_code(read_sass(cubin, check.entry), check)


def check_code(sass: Sass, check: CodeCheck) -> list[str]:
    """What is wrong with one kernel's machine code; empty when nothing is."""
    if check.where == "kernel":
        return _count(sass.instructions, check, exactly=False)
    # A wait that spins on itself is part of the loop around it.
    long = [loop for loop in sass.loops if loop.last - loop.first > 2]
    trips = innermost(long or sass.loops)
    if check.where == "loop":
        clocks = [one.index for one in sass.instructions if "SR_CLOCKLO" in one.text]
        if len(clocks) < 2:
            return ["the clock is not read twice"]
        trips = [loop for loop in trips if clocks[0] < loop.first and loop.last < clocks[-1]]
    if not trips:
        return ["there is no loop to time"]
    # Where a warp may diverge, the compiler keeps a slow copy out of line: the best trip counts.
    return min((_judge(loop.instructions, check) for loop in trips), key=len)


def _judge(trip: Sequence[Instruction], check: CodeCheck) -> list[str]:
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
        depth = chain_depth(trip, check.chained)
        if depth != check.depth:
            problems.append(f"a chain of {depth}, not {check.depth}")
    if check.in_flight is not None:
        ahead = len(loads_in_flight(trip, first, copies=False))
        if ahead != check.in_flight:
            problems.append(f"{ahead} in flight together, not {check.in_flight}")
    if check.predicated:
        bare = sum(one.matches(first) and one.predicate is None for one in trip)
        if bare:
            problems.append(f"{bare} {first} without a predicate")
    return problems


def _count(code: Sequence[Instruction], check: CodeCheck, exactly: bool) -> list[str]:
    problems = []
    for opcodes, wanted in check.counts.items():
        found = sum(one.matches(opcodes) and not one.is_padding for one in code)
        own = _LOOP_OWN.get(opcodes, 0) if exactly else found
        if not wanted <= found <= wanted + own:
            problems.append(f"{found} {opcodes}, not {wanted}")
    return problems


def chain_depth(trip: Sequence[Instruction], opcodes: tuple[str, ...]) -> int:
    """How many of some opcodes stand one behind the other in the longest chain of a trip."""
    depth: dict[str, int] = {}
    longest = 0
    for one in trip:
        # What is loaded from shared memory needs what was stored there before.
        reads = one.uses | {_SHARED} if one.base == "LDS" else one.uses
        writes = one.defines | {_SHARED} if one.base == "STS" else one.defines
        here = max((depth.get(place, 0) for place in reads), default=0)
        here += any(one.matches(name) for name in opcodes)
        longest = max(longest, here)
        for place in writes:
            # What is stored comes on top of what other lanes stored before.
            depth[place] = here
    return longest
