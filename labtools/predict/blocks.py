"""The blocks of one launch: what they execute, how they differ, which bytes they read."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from labtools.problem import Launch
from labtools.toolchain.operands import BOX_COPIES, GLOBAL_ATOMICS
from labtools.toolchain.sass import Sass

from .counts import TripCounts, compare_counts, decided_lines
from .faults import address_faults
from .lanes import lanes_of_block, lanes_of_blocks
from .machine import unit_of
from .memory import CallMemory
from .streams import (
    SECTOR_BYTES,
    BlockStreams,
    LoopNode,
    Node,
    block_spans,
    block_streams,
    each_op,
    union_bytes,
)
from .trace import Assumption, Trace, TraceError, each_execution, run_trace

MOST_BLOCKS = 8192
"""Blocks of a large grid that are told apart; the others repeat them."""
MOST_CLASSES = 5
READS = ("load", "async", "box")
"""Kinds of requests that bring bytes."""
WHOLE_BLOCKS = 4
"""Whole blocks that stand for a grid where thread 0 alone does not say what a block executes."""
SAME_WORK = 0.05
"""By so much thread 0 followed alone may differ from thread 0 followed in its block."""
MOST_SPREAD = 0.2
"""By so much those blocks may differ."""

Counts = tuple[int, TripCounts]


@dataclass(frozen=True)
class BlockClass:
    """Blocks that execute equally much."""

    block: int  # number of the one that stands for all
    members: int  # how many there are
    streams: BlockStreams  # what its warps issue
    trace: Trace  # what it executes


class LaunchBlocks:
    """What the blocks of one launch execute and read, whatever the latencies. Where data are
    followed ``counts`` are the launch's position in the call, and who runs blocks."""

    def __init__(
        self, launch: Launch, sass: Sass, memory: CallMemory, counts: Counts | None = None
    ) -> None:
        self.launch, self.sass, self.memory, self.counts = launch, sass, memory, counts
        self._traces: dict[int, Trace] = {}

    @property
    def notes(self) -> tuple[str, ...]:
        """Branches on data and what was assumed, of every block and of the main class's."""
        of_grid = self._profile.notes if self._told_apart else ()
        both = (*of_grid, *self.classes[self.main_class].trace.notes, *self._agreement[0])
        return tuple(dict.fromkeys(both))

    @property
    def doubts(self) -> tuple[str, ...]:
        """Jumps on data that may make the launch execute something else."""
        of_grid = self._profile.doubts() if self._told_apart else self._spread_doubts
        both = (*of_grid, *self.classes[self.main_class].trace.doubts(), *self._agreement[1])
        return tuple(dict.fromkeys(both))

    @property
    def faults(self) -> tuple[str, ...]:
        """Addresses that a GPU refuses, of thread 0 of every block and of the main class's."""
        buffers = self.memory.buffers
        of_grid = address_faults(self._profile, buffers) if self._told_apart else ()
        both = (*of_grid, *address_faults(self.classes[self.main_class].trace, buffers))
        return tuple(dict.fromkeys(both))

    @cached_property
    def _profile(self) -> Trace:
        """One thread of each block (of the first `MOST_BLOCKS` of a larger grid)."""
        blocks = np.arange(min(self.launch.num_blocks, MOST_BLOCKS))
        buffers, telling = self.memory.buffers, self._telling
        lanes = lanes_of_blocks(self.launch, buffers, self.sass.arch, blocks, telling)
        return run_trace(self.sass, lanes, buffers)

    @cached_property
    def _telling(self) -> int:
        """The thread that stands for a block: 0, or the one that copies for all the others."""
        if not any(one.base in BOX_COPIES for one in self.sass.instructions):
            return 0
        copies = np.zeros(self.launch.num_threads, bool)
        for step, _ in each_execution(self._trace(self.launch.num_blocks // 2).items):
            if self.sass.instructions[step.index].base in BOX_COPIES:
                np.logical_or(copies, step.executing, out=copies)
        return int(np.argmax(copies))

    def _trace(self, block: int) -> Trace:
        """All threads of one block."""
        if block not in self._traces:
            lanes = lanes_of_block(self.launch, self.memory.buffers, self.sass.arch, block)
            self._traces[block] = run_trace(self.sass, lanes, self.memory.buffers)
        return self._traces[block]

    @property
    def undecided(self) -> bool:
        """A jump on data is open with the inputs too, so that running blocks can settle nothing."""
        return bool(self._trace(self.launch.num_blocks // 2).doubted())

    @cached_property
    def _told_apart(self) -> bool:
        """Thread 0 says what its block executes, unless data are followed that others tell it."""
        if self.counts is None:
            return True
        if self._profile.doubts():
            return False
        alone = self._profile.executed()
        for block in self._samples[[0, -1]]:
            whole = float(self._trace(int(block)).executed()[self._telling])
            if abs(whole - alone[block]) > SAME_WORK * whole:
                return False
        return True

    @cached_property
    def _samples(self) -> np.ndarray:
        """Some blocks, evenly spread."""
        last = min(self.launch.num_blocks, MOST_BLOCKS) - 1
        return np.unique(np.linspace(0, last, WHOLE_BLOCKS).astype(np.int64))

    @cached_property
    def _sampled(self) -> np.ndarray:
        """[samples, threads] instructions of those blocks."""
        return np.array([self._trace(int(block)).executed() for block in self._samples])

    @property
    def _spread_doubts(self) -> tuple[str, ...]:
        """Whole blocks that differ, where thread 0 does not tell them apart."""
        total = self._sampled.sum(axis=1)
        if total.max() <= (1 + MOST_SPREAD) * total.min():
            return ()
        return (
            f"{len(total)} blocks of {self.sass.entry} that were followed with the inputs execute "
            f"{total.min():,} to {total.max():,} instructions, and the others are not known",
        )

    @cached_property
    def _executed(self) -> np.ndarray:
        """[profiled blocks] instructions of thread 0; of a middle block where it cannot tell."""
        executed = self._profile.executed()
        if self._told_apart:
            return executed
        return np.full(len(executed), int(np.median(self._sampled[:, self._telling])))

    @cached_property
    def _agreement(self) -> tuple[list[str], list[str]]:
        """What a run on the CPU says of the loops that data decide: (notes, doubts)."""
        if self.counts is None:
            return [], []
        number, counts = self.counts
        largest = np.argsort(-self.worth, kind="stable")[: counts.most_blocks]
        blocks = [self.classes[level].block for level in largest]
        loops = decided_lines(self.sass, self._without_data)
        notes: list[str] = []
        doubts: list[str] = []
        for block, lines in zip(blocks, counts.count(number, blocks), strict=True):
            said, against = compare_counts(self._trace(block), lines, loops, block)
            notes += said
            doubts += against
        return notes, doubts

    @property
    def _without_data(self) -> list[Assumption] | None:
        """Jumps whose way the machine code alone does not say; None where it says nothing."""
        plain = dataclasses.replace(self.memory.buffers, data={})
        block = self.classes[self.main_class].block
        lanes = lanes_of_block(self.launch, plain, self.sass.arch, block)
        try:
            return run_trace(self.sass, lanes, plain).doubted() or None
        except TraceError:
            return None

    @cached_property
    def class_of_block(self) -> np.ndarray:
        """[blocks] position in `classes`, in launch order."""
        executed = self._executed
        levels = np.unique(executed)
        if len(levels) > MOST_CLASSES:
            edges = np.quantile(executed, np.linspace(0, 1, MOST_CLASSES + 1)[1:-1])
            number = np.searchsorted(np.unique(edges), executed, side="right")
        else:
            number = np.searchsorted(levels, executed)
        _, number = np.unique(number, return_inverse=True)
        number = number.reshape(-1)
        total = self.launch.num_blocks
        return number if len(number) == total else np.resize(number, total)

    @cached_property
    def work_of_block(self) -> np.ndarray:
        """[blocks] instructions of a block over those of its class's representative."""
        executed = self._executed.astype(float)
        number = self.class_of_block[: len(executed)]
        chosen = np.array([executed[one.block] for one in self.classes])
        work = executed / np.maximum(1.0, chosen[number])
        total = self.launch.num_blocks
        return work if len(work) == total else np.resize(work, total)

    @cached_property
    def classes(self) -> list[BlockClass]:
        """A representative block for each class, with its streams."""
        executed = self._executed
        number = self.class_of_block[: len(executed)]
        found = []
        for level in range(int(number.max()) + 1):
            members = np.flatnonzero(number == level)
            middle = members[np.argsort(executed[members], kind="stable")[len(members) // 2]]
            trace = self._trace(int(middle))
            streams = block_streams(trace, self.memory.buffers)
            count = int((self.class_of_block == level).sum())
            found.append(BlockClass(int(middle), count, streams, trace))
        return found

    @cached_property
    def footprint(self) -> dict[int, tuple[float, float]]:
        """By buffer: (different bytes of the grid, sum of the blocks' bytes)."""
        spans = block_spans(self._profile, self.memory.buffers)
        whole = self.classes[self.main_class]
        one = block_spans(whole.trace, self.memory.buffers)
        scale = self.launch.num_blocks / self._profile.lanes.count
        found = {}
        for buffer, (low, high) in one.items():
            full = float(high.max() - low[high > 0].min()) if (high > 0).any() else 0.0
            if buffer not in spans:
                found[buffer] = (full * self.launch.num_blocks, full * self.launch.num_blocks)
                continue
            first, end = spans[buffer]
            # Thread 0 sees the first bytes of its rows; the block as a whole reads on to the end.
            mine = spans[buffer][1][whole.block] - spans[buffer][0][whole.block]
            extra = max(0.0, full - float(mine))
            end = np.where(end > 0, end + int(extra), end)
            size = self.memory.buffers.bytes.get(self.memory.buffers.names[buffer])
            # A block need not read all that lies between its first and its last byte.
            brought = [_new_bytes(other.streams.warps, buffer) for other in self.classes]
            total = sum(each * float(n) for each, n in zip(brought, self.worth, strict=True))
            union = min(union_bytes(first, end) * scale, total)
            found[buffer] = (min(union, float(size)) if size else union, total)
        return found

    @cached_property
    def stored_bytes(self) -> dict[int, float]:
        """By buffer what goes to memory of that which the grid stores there."""
        found: dict[int, float] = {}
        for one, worth in zip(self.classes, self.worth, strict=True):
            for stream in one.streams.warps:
                for op, times in each_op(stream):
                    if op.on and op.request is not None and op.request.kind == "store":
                        size = SECTOR_BYTES * op.request.new_sectors * times * float(worth)
                        found[op.request.buffer] = found.get(op.request.buffer, 0.0) + size
        return found

    @cached_property
    def main_class(self) -> int:
        """The class whose blocks execute most, all together."""
        issued = [sum(one.streams.issued) for one in self.classes]
        return max(range(len(issued)), key=lambda number: self.worth[number] * issued[number])

    @cached_property
    def worth(self) -> np.ndarray:
        """[classes] work of a class's blocks over that of its representative."""
        classes, work = self.class_of_block, self.work_of_block
        return np.bincount(classes, weights=work, minlength=len(self.classes))

    @cached_property
    def one_address_atomics(self) -> int:
        """Atomic operations of the whole grid on an address that every block uses."""
        places: dict[int, set[int]] = {}
        for step, _ in each_execution(self._profile.items):
            atomic = self.sass.instructions[step.index].base in GLOBAL_ATOMICS
            if atomic and step.address is not None and step.executing.any():
                used = step.address[step.executing][:64].tolist()
                places.setdefault(step.index, set()).update(used)
        shared = {index for index, addresses in places.items() if len(addresses) == 1}
        if not shared or self.launch.num_blocks == 1:
            return 0
        return sum(
            one.members * times
            for one in self.classes
            for stream in one.streams.warps
            for op, times in each_op(stream)
            if op.on and op.index in shared
        )

    @cached_property
    def uses_tensor_cores(self) -> bool:
        """Whether some warp executes an instruction of the tensor cores."""
        code = enumerate(self.sass.instructions)
        products = {index for index, one in code if unit_of(one) == "tensor"}
        return bool(products) and any(
            op.on and op.index in products
            for one in self.classes
            for stream in one.streams.warps
            for op, _ in each_op(stream)
        )

    @cached_property
    def chunk_bytes(self) -> float:
        """Bytes of one buffer that a block brings in a trip of its busiest loop, side by side."""
        return max((_chunk_bytes(one.streams) for one in self.classes), default=0.0)


def _new_bytes(warps: Sequence[Sequence[Node]], buffer: int) -> float:
    """Bytes of a buffer that the warps of a block bring to the L1."""

    def walk(nodes: Sequence[Node]) -> float:
        total = 0.0
        for node in nodes:
            if isinstance(node, LoopNode):
                total += node.count * walk(node.body)
            elif (asked := node.request) is not None and asked.buffer == buffer:
                total += 32 * asked.new_sectors if asked.kind in READS else 0.0
        return total

    return sum(walk(stream) for stream in warps)


def _chunk_bytes(streams: BlockStreams) -> float:
    """Bytes of one buffer that a block brings in a trip of its busiest loop, side by side; 0
    without a loop, where neighbouring blocks read at once what mostly adjoins."""
    best, chunk = 0.0, 0.0
    by_place: dict[int, dict[int, float]] = {}
    work: dict[int, float] = {}
    for stream in streams.warps:
        loops = [node for node in stream if isinstance(node, LoopNode)]
        for place, loop in enumerate(loops):
            sizes = by_place.setdefault(place, {})
            for node in loop.body:
                if isinstance(node, LoopNode) or node.request is None:
                    continue
                if node.request.kind in READS:
                    buffer = node.request.buffer
                    sizes[buffer] = sizes.get(buffer, 0.0) + 32 * node.request.new_sectors
            work[place] = work.get(place, 0.0) + loop.count * sum(sizes.values())
    for place, sizes in by_place.items():
        if sizes and work[place] > best:
            best, chunk = work[place], max(sizes.values())
    return chunk
