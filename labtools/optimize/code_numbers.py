"""What one block executes of the machine code, followed as a forecast follows it: which
instructions, and numbers that prove a method without an opcode of its own, the instructions issued
and the turns of shared memory for one read. A bank conflict is a turn more; of reads of 4 bytes a
lane the model sees none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from labtools.predict.blocks import LaunchBlocks
from labtools.predict.memory import CallMemory
from labtools.predict.streams import BlockStreams, each_op
from labtools.predict.trace import Trace, each_execution
from labtools.problem import LabError, Limits, Problem, Rung, timed_launches
from labtools.record.expressions import Quantity
from labtools.toolchain.listings import MachineCode
from labtools.toolchain.sass import Sass

READS_OF_SHARED = ("LDS", "LDSM")


@dataclass(frozen=True)
class ExecutedPlaces:
    """What is executed of a kernel function in the block that stands for most of a launch's work:
    positions in the function, and numbers of it."""

    block: int  # its number
    certain: frozenset[int]  # some thread executes it, whatever the data are
    possible: frozenset[int]  # these, and what data may lead to
    # of the function, as a proof calls them, see `CODE_NAMES`; ``shared_read_turns`` is None where
    # it reads no shared memory
    numbers: Mapping[str, Quantity | None] = field(default_factory=dict)


def executed_by(
    rung: Rung,
    problem: Problem,
    limits: Limits,
    knobs: Mapping[str, int],
    code: MachineCode,
    entry: str,
) -> ExecutedPlaces:
    """What a launch executes of one kernel function, and its numbers. Raises LabError: it cannot be
    followed, or is not launched."""
    launches = rung.launches(problem, limits, knobs)
    timed = timed_launches(launches)
    launch = next((one for one in timed if one.entry == entry), None)
    if launch is None:
        launched = ", ".join(dict.fromkeys(one.entry for one in timed))
        raise LabError(f"{entry} is not launched.", f"launched are {launched}")
    blocks = LaunchBlocks(launch, code.entries[entry], CallMemory(problem, launches, timed))
    main, asked = blocks.classes[blocks.main_class], code.resources[entry]
    numbers = {
        "registers_per_thread": asked.registers,
        "spill_bytes": asked.spill_store_bytes + asked.spill_load_bytes,
        "shared_read_turns": _shared_read_turns(main.streams),
        "issued_instructions": sum(main.streams.issued),
    }
    return ExecutedPlaces(main.block, *_places(main.trace), numbers)


def _shared_read_turns(streams: BlockStreams) -> float | None:
    """Turns of shared memory for one read of a warp, on average over a block's reads."""
    code = streams.sass.instructions
    turns = reads = 0
    for stream in streams.warps:
        for op, times in each_op(stream):
            if op.request is not None and code[op.index].base in READS_OF_SHARED:
                turns += times * op.request.wavefronts
                reads += times
    return turns / reads if reads else None


def _places(trace: Trace) -> tuple[frozenset[int], frozenset[int]]:
    """What the threads of a trace certainly execute, and possibly. Where a jump depends on data
    both ways are possible, and what lies on one of them alone is not certain unless the other one
    leads back to the jump."""
    first: dict[int, int] = {}  # by position when it was come by
    ran: set[int] = set()
    ways: dict[int, set[bool]] = {}  # of each jump whose way is known, those that were gone
    assumed = {one.place for one in trace.assumptions}
    for order, (step, _) in enumerate(each_execution(trace.items)):
        first.setdefault(step.index, order)
        if step.executing.any():
            ran.add(step.index)
        if step.index not in assumed:
            gone = ways.setdefault(step.index, set())
            if step.executing.any():
                gone.add(True)
            if (step.active & ~step.executing).any():
                gone.add(False)
    code = trace.sass
    possible = _reach(code, [0], ways)
    possible -= {place for place in first.keys() - ran if place not in assumed}
    certain = ran - trace.unsure
    for place in assumed & first.keys():
        arms = [_reach(code, [one], ways, place) for one in _successors(code, place, None)]
        if code.instructions[place].base == "EXIT":
            arms.append(set())
        elif not all(any(_ends(code, one, ways) for one in arm) for arm in arms):
            # One way comes back to the jump: it is a loop, which ends, so the other one is gone.
            arms = [set.union(*(a for a in arms if not any(_ends(code, x, ways) for x in a)))]
            arms.append(set())
        if len(arms) == 2:
            certain -= {one for one in arms[0] ^ arms[1] if first.get(one, -1) > first[place]}
    return frozenset(certain), frozenset(possible | ran)


_Ways = Mapping[int, set[bool]]


def _successors(code: Sass, place: int, gone: set[bool] | None) -> list[int]:
    """Where an instruction may go on; ``gone`` says whether a jump was taken, None that either may
    be."""
    one, after = code.instructions[place], [place + 1] if place + 1 < len(code.instructions) else []
    target = [] if one.target is None else [code.index_of_address[one.target]]
    if one.base not in ("BRA", "JMP", "EXIT", "RET", "CALL") or "DIV" in one.modifiers:
        return after
    if one.base == "CALL":  # and what comes after its return
        return [*target, *after]
    is_open = one.predicate is not None or any(x.kind == "predicate" for x in one.operands)
    taken = gone is None or True in gone
    stays = is_open if gone is None else False in gone
    return [*(target if taken else []), *(after if stays else [])]


def _ends(code: Sass, place: int, ways: _Ways) -> bool:
    """Whether a thread may end here."""
    gone = ways.get(place)
    return code.instructions[place].base in ("EXIT", "RET") and (gone is None or True in gone)


def _reach(code: Sass, starts: list[int], ways: _Ways, wall: int | None = None) -> set[int]:
    """Positions that can be come by from some, without going through another one."""
    found: set[int] = set()
    waiting = list(starts)
    while waiting:
        place = waiting.pop()
        if place not in found and place != wall:
            found.add(place)
            waiting += _successors(code, place, ways.get(place))
    return found
