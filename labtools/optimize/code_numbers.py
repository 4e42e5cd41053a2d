"""Numbers of the machine code that prove a method without an opcode of its own: of one block,
followed as a forecast follows it, the instructions issued and the turns of shared memory for one
read. A bank conflict is a turn more; of reads of 4 bytes a lane the model sees none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from labtools.predict.blocks import LaunchBlocks
from labtools.predict.memory import CallMemory
from labtools.predict.streams import BlockStreams, LoopNode, Node, Op
from labtools.problem import Limits, Problem, Rung, timed_launches
from labtools.record.expressions import Quantity
from labtools.toolchain.listings import MachineCode

READS_OF_SHARED = ("LDS", "LDSM")


def code_numbers(
    rung: Rung,
    problem: Problem,
    limits: Limits,
    knobs: Mapping[str, int],
    code: MachineCode,
    entry: str,
) -> dict[str, Quantity | None]:
    """Numbers of one kernel function as a proof calls them, see `CODE_NAMES`; ``shared_read_turns``
    is missing where the kernel reads no shared memory."""
    asked = code.resources[entry]
    launches = rung.launches(problem, limits, knobs)
    timed = timed_launches(launches)
    launch = next(one for one in timed if one.entry == entry)
    memory = CallMemory(problem, launches, timed)
    blocks = LaunchBlocks(launch, code.entries[entry], memory)
    streams = blocks.classes[blocks.main_class].streams
    return {
        "registers_per_thread": asked.registers,
        "spill_bytes": asked.spill_store_bytes + asked.spill_load_bytes,
        "shared_read_turns": _shared_read_turns(streams),
        "issued_instructions": sum(streams.issued),
    }


def _shared_read_turns(streams: BlockStreams) -> float | None:
    """Turns of shared memory for one read of a warp, on average over a block's reads."""
    code = streams.sass.instructions
    turns = reads = 0
    for stream in streams.warps:
        for op, times in _repeated(stream):
            if op.request is not None and code[op.index].base in READS_OF_SHARED:
                turns += times * op.request.wavefronts
                reads += times
    return turns / reads if reads else None


def _repeated(nodes: Sequence[Node], times: int = 1) -> Iterator[tuple[Op, int]]:
    """Each operation of a stream, and how often it is issued there."""
    for node in nodes:
        if isinstance(node, LoopNode):
            yield from _repeated(node.body, times * node.count)
        else:
            yield node, times
