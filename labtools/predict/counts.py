"""Loops that data decide: followed with the inputs at hand, and believed only where the counts of
each source line agree with those of some blocks run on the CPU (`TripCounts`)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import numpy as np

from labtools.toolchain.sass import Instruction, Sass

from .trace import Assumption, Trace, each_execution

LineCounts = Mapping[tuple[str, int], np.ndarray]
"""(name of the file, line) to how often each thread of a block came by, int64 [threads]."""
AGREEING = 0.98
"""The share of a block's threads whose counts must be equal."""


class TripCounts(Protocol):
    """Who runs a call's blocks, and what the call's inputs hold."""

    @property
    def content(self) -> object:
        """All that its answers follow from beside the call itself, for the cache."""

    @property
    def most_blocks(self) -> int:
        """Blocks that one run counts."""

    def inputs(self) -> Mapping[str, np.ndarray]:
        """What the inputs hold, by buffer."""

    def count(self, launch: int, blocks: Sequence[int]) -> Sequence[LineCounts]:
        """The counts of at most `most_blocks` blocks of one launch, by number."""


def _line(one: Instruction) -> tuple[str, int] | None:
    source = one.source
    return (source.file.rpartition("/")[2], source.line) if source else None


def lines_executed(trace: Trace) -> dict[tuple[str, int], list[np.ndarray]]:
    """By source line how often each lane executes it, once for each opcode of the line: the copies
    of an opcode in a loop that was laid out several times are added up."""
    none = np.zeros(trace.lanes.count, np.int64)
    by_opcode: dict[tuple[tuple[str, int], str, bool], np.ndarray] = defaultdict(lambda: none)
    for item, times in each_execution(trace.items):
        one = trace.sass.instructions[item.index]
        line = _line(one)
        if line is not None:
            for executes, lanes in ((True, item.executing), (False, item.active)):
                key = (line, one.opcode, executes)
                by_opcode[key] = by_opcode[key] + times * lanes
    found: dict[tuple[str, int], list[np.ndarray]] = defaultdict(list)
    for (line, _, _), counts in by_opcode.items():
        found[line].append(counts)
    return found


def decided_lines(
    sass: Sass, assumptions: Iterable[Assumption] | None
) -> list[frozenset[tuple[str, int]]]:
    """For each jump on data the source lines of the loop that it decides; of None all lines."""
    code = sass.instructions

    def lines_of(steps: Iterable[Instruction]) -> frozenset[tuple[str, int]]:
        return frozenset(line for step in steps if (line := _line(step)))

    if assumptions is None:
        return [lines_of(code)]
    found = []
    for one in assumptions:
        around = [loop for loop in sass.loops if loop.first <= one.place <= loop.last]
        target = sass.index_of_address.get(code[one.place].target or 0, 0)
        if around:
            inner = min(around, key=lambda loop: loop.last - loop.first)
            found.append(lines_of(inner.instructions))
        else:  # what it skips, or what comes after it
            found.append(lines_of(code[one.place : target if target > one.place else len(code)]))
    return list(dict.fromkeys(found))


def _agree(traced: np.ndarray, ran: np.ndarray) -> bool:
    """Whether nearly all threads come by as often; a loop may begin with what its last trip leaves
    unused, then once more each."""
    more = traced - ran
    return max(float(np.mean(more == 0)), float(np.mean(more == 1))) >= AGREEING


def compare_counts(
    trace: Trace, counts: LineCounts, loops: Sequence[frozenset[tuple[str, int]]], block: int
) -> tuple[list[str], list[str]]:
    """(what to say of each loop, why they are not to be believed)."""
    executed = lines_executed(trace)
    notes, doubts = [], []
    for lines in loops:
        ran = [line for line in lines if line in counts and counts[line].any()]
        traced = [line for line in lines if any(one.max() > 1 for one in executed[line])]
        equal = [line for line in ran if any(_agree(one, counts[line]) for one in executed[line])]
        if any(counts[line].max() > 1 for line in ran):  # a line beside the loop says little
            equal = [line for line in equal if counts[line].max() > 1]
        if equal:
            line = max(equal, key=lambda one: (int(counts[one].sum()), one))
            least, most = int(counts[line].min()), int(counts[line].max())
            times = f"{most}" if least == most else f"{least} to {most}"
            notes.append(
                f"trip counts of line {line[1]}: {times}, from a run of block {block} on the CPU"
            )
        elif ran:
            line = max(ran, key=lambda one: (int(counts[one].sum()), one))
            doubts.append(
                f"a run of block {block} on the CPU comes by line {line[1]} "
                f"{counts[line].mean():.4g} times a thread, and the trace of the machine code "
                "does not"
            )
        elif traced:
            doubts.append(
                f"a run of block {block} on the CPU comes by no line of a loop that the trace of "
                f"the machine code goes through (line {min(traced)[1]})"
            )
    return list(dict.fromkeys(notes)), list(dict.fromkeys(doubts))
