"""What a launch executes, from its machine code: instruction streams, trip counts, addresses. Its
integer part is run on all lanes of a block, or on one thread of each; data are unknown. A loop
whose registers change by the same amount every trip becomes one `Repeat`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from labtools.problem import LabError, TensorMap
from labtools.toolchain import operands
from labtools.toolchain.operands import BOX_COPIES, GLOBAL_ACCESSES, JUMPS, SHARED_ACCESSES
from labtools.toolchain.sass import Instruction, Sass

from .data import STORES, evaluate_data, load_space, memory_width, store_space, stored_values
from .lanes import Buffers, Lanes
from .semantics import (
    COMPARE,
    IntegerComparison,
    State,
    Value,
    Written,
    evaluate,
    extend_sign,
    granted,
    next_register,
    store_memory,
)
from .spaces import Space

MOST_STEPS = 400_000
MOST_DATA_STEPS = 100_000
"""The same where data are followed, which no pattern shortens: some seconds."""
MOST_WORK = 200_000
"""The same with those that are tried ahead of time: about ten seconds."""
LEAST_JUMP = 6
"""Periods that a jump must cover; shorter stretches are walked through."""
PERIODS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 32)
"""How many trips a loop's pattern may span (a ring of 3 stages repeats after 3 trips)."""
SHORT_JUMPS = 2
LONG_JUMP = 64
"""After so many jumps in a loop only one over so many trips is taken: a longer pattern is near."""
LONG_PATTERN = 33
"""But no longer than for so many trips, twice the 16 of a longer pattern."""

MOST_SAMPLES = 256
MOST_SAMPLED_LANES = 1 << 14
"""How many trips, and lanes in all, are tried before a loop is jumped through."""

PATIENCE = 24
"""Trips after which a register that changes irregularly is given up as unknown, unless a jump
depends on it."""

MOST_SWING = 0.2
"""A jump on data whose two ways differ by more than this share of all instructions leaves the time
open: about as much as the band is wide."""

COUNTER_BYTES = 64
"""A workspace no larger than this holds counters that all blocks share."""

_MEMORY = GLOBAL_ACCESSES | SHARED_ACCESSES | BOX_COPIES | {"SYNCS"}
MEASURED = "the kernel can be measured, and run on the CPU"
"""What can be done with a kernel that cannot be followed."""
_FLOATS = {"F16", "F16x2", "F32", "F64", "BF16", "BF16_V2"}


class TraceError(LabError):
    """The machine code does not say how often a loop runs."""

    def __init__(self, what: str, why: str, still_works: str = MEASURED) -> None:
        super().__init__(what, why, still_works)


@dataclass(frozen=True)
class Assumption:
    """A jump on data, and the way that was taken for granted."""

    place: int  # position in the kernel
    text: str  # one sentence
    trips: bool  # it decides how often a loop runs, or whether the rest runs at all
    swing: int  # instructions by which its two ways differ, at each execution


@dataclass(eq=False)
class Execution:
    """One instruction executed once, never changed. It is not frozen: making it takes longer."""

    index: int  # position in the kernel
    active: np.ndarray  # [N] bool: lanes that came by
    executing: np.ndarray  # [N] bool: of those, the ones whose guard holds
    # [N] uint64 byte address of a memory access, or None where it is unknown
    address: np.ndarray | None = None
    # of a meeting, [N] each: where the barrier is, what is said there (bytes, a parity, a count of
    # threads), and of a copy the bytes from its first to its last; None where they are unknown
    numbers: tuple[np.ndarray, ...] | None = None

    @cached_property
    def signature(self) -> tuple[int, bytes, bytes]:
        """What must be equal for two steps to be the same step of two trips."""
        return (self.index, self.active.tobytes(), self.executing.tobytes())


@dataclass(frozen=True, eq=False)
class Repeat:
    """Steps executed ``count`` times in a row."""

    body: tuple[Execution | Repeat, ...]  # of the first trip
    # the same steps of the second trip, whose addresses show the stride
    second: tuple[Execution | Repeat, ...]
    count: int  # trips, at least 2; of independent lanes the most that one makes
    # [N] trips of each lane where lanes are independent, else None
    counts: np.ndarray | None = None

    @cached_property
    def signature(self) -> tuple[Any, ...]:
        """What must be equal for two repeats to be the same step of an outer loop."""
        counts = self.count if self.counts is None else self.counts.tobytes()
        return ("repeat", counts, tuple(item.signature for item in self.body))


Executed = Execution | Repeat
Mask = np.ndarray
"""[N] bool."""
Groups = dict[int, Mask]
"""By position in the kernel the lanes that stand there."""


@dataclass(frozen=True)
class Trace:
    """What some lanes of a launch execute."""

    sass: Sass  # the kernel
    lanes: Lanes  # who ran
    items: tuple[Executed, ...] = field(repr=False)  # steps and repeats in order
    notes: tuple[str, ...] = ()  # branches that depend on data, and what was assumed about them
    assumptions: tuple[Assumption, ...] = ()
    unsure: frozenset[int] = frozenset()  # positions of what data guard, jumps left out

    def doubted(self) -> list[Assumption]:
        """Jumps on data that decide much, so that the kernel may execute something else."""
        total = max(1, int(self.executed().sum()))
        # A loop that is laid out several times asks the same at several places.
        swing = sum(
            one.swing * int(_count(self.items, self.lanes.count, one.place).sum())
            for one in self.assumptions
            if not one.trips
        )
        return [one for one in self.assumptions if one.trips or swing > MOST_SWING * total]

    def doubts(self) -> tuple[str, ...]:
        """Why the trace may not be what the kernel executes."""
        return tuple(one.text for one in self.doubted())

    def executed(self) -> np.ndarray:
        """[N] instructions that each lane came by, in all trips."""
        return _count(self.items, self.lanes.count)


def _count(items: Sequence[Executed], lanes: int, place: int | None = None) -> np.ndarray:
    """[lanes] instructions in all trips; only those at one place where it is named."""
    total = np.zeros(lanes, np.int64)
    times: dict[int, int] = {}  # by the identity of a mask, which steps in a row share
    masks: dict[int, np.ndarray] = {}
    for item in items:
        if isinstance(item, Repeat):
            trips = item.count if item.counts is None else item.counts
            total += trips * _count(item.body, lanes, place)
        elif place is None or item.index == place:
            mask = id(item.active)
            times[mask] = times.get(mask, 0) + 1
            masks[mask] = item.active
    for mask, active in masks.items():
        total += times[mask] * active
    return total


def each_execution(items: Iterable[Executed], times: int = 1) -> Iterator[tuple[Execution, int]]:
    """Every step, and how often it is executed; of independent lanes as often as by the longest."""
    for item in items:
        if isinstance(item, Repeat):
            yield from each_execution(item.body, times * item.count)
        else:
            yield item, times


# --------------------------------------------------------------------------------- the machine


def run_trace(sass: Sass, lanes: Lanes, buffers: Buffers) -> Trace:
    """Execute a kernel's control flow on some lanes."""
    follower = _Follower(sass, buffers, lanes)
    items: list[Executed] = []
    state = State(lanes)
    state.comparisons = []
    state.spaces.update(follower.spaces())
    groups = {0: lanes.true}
    follower.run(state, groups, items)
    assumptions = tuple(follower.assumptions.values())
    notes, unsure = tuple(dict.fromkeys(follower.notes)), frozenset(follower.unsure)
    return Trace(sass, lanes, tuple(items), notes, assumptions, unsure)


@dataclass
class _Visit:
    """The machine when it came back to the head of a loop."""

    place: int  # how many steps were taken
    state: State
    groups: dict[int, np.ndarray]
    compared: int  # how many comparisons were made


@dataclass
class _LoopWatch:
    """A loop whose head has been branched back to."""

    head: int  # its first instruction
    # the last times that the machine came back to the head
    visits: list[_Visit] = field(default_factory=list)
    jumped: int = 0  # jumps in this loop so far
    refused: set[int] = field(default_factory=set)  # periods whose addresses were found irregular
    # by period, the visit before which it has too few trips left
    later: dict[int, int] = field(default_factory=dict)
    seen: int = 0  # visits in all

    def forget(self) -> None:
        """A loop around it goes round again: what was learned in the last trip is over."""
        self.visits.clear()
        self.jumped = 0
        self.refused.clear()
        self.later.clear()

    def come_by(self, visit: _Visit) -> None:
        """Keep one more visit, and as many before it as the longest pattern needs."""
        if self.visits and self.visits[-1].place > visit.place:
            self.visits.clear()
        self.visits.append(visit)
        del self.visits[: -2 * PERIODS[-1] - 10]
        self.seen += 1
        if len(self.visits) == 1:
            self.later.clear()


@dataclass(frozen=True, eq=False)
class _Period:
    """The last trips of a loop, alike to those before them."""

    head: int  # first instruction of the loop
    trips: int
    now: _Visit  # at their end
    first: Sequence[Executed]  # what those before them executed
    second: Sequence[Executed]
    wanted: list[Any]  # signatures of both
    change: Mapping[str, np.ndarray]  # what they add to each live register, [N]
    live: frozenset[str]


@dataclass(frozen=True, eq=False)
class _Copies:
    """Lanes that run a period again, each some periods further on."""

    state: State
    source: np.ndarray  # [n] which lane each is a copy of
    ahead: np.ndarray  # [n] periods
    bad: np.ndarray  # [n] bool, changed in place: it left the path


class _Follower:
    def __init__(self, sass: Sass, buffers: Buffers, lanes: Lanes) -> None:
        self.lanes = lanes
        self.code = sass.instructions
        self.places = sass.index_of_address
        self.entry = sass.entry
        self.live = sass.live_names
        self.sass = sass
        self.data = bool(buffers.data)
        self.most_steps = MOST_DATA_STEPS if self.data else MOST_STEPS
        self.irregular: set[int] = set()
        self.buffers = buffers
        self.notes: list[str] = []
        self.assumptions: dict[int, Assumption] = {}
        self.unsure: set[int] = set()
        self.steps = self.work = 0
        self.loops = sass.loops
        self.assumed: dict[int, bool] = {}
        self.roles = sass.has_roles
        self.passed: dict[int, int] = {}
        self.looked_at: tuple[np.ndarray, bool] = (lanes.true, True)
        self.unconditional = tuple(
            one.predicate is None and one.base not in ("BRA", "JMP", "LDGSTS") for one in self.code
        )

    @cached_property
    def deciding(self) -> tuple[frozenset[str], ...]:
        """By position the registers on which a later jump depends; where data are followed, through
        memory too."""
        return self.sass.deciding_through_memory if self.data else self.sass.deciding_names

    def spaces(self) -> dict[str, Space]:
        """Shared and local memory, if data are followed and what is loaded from there decides."""
        found: dict[str, Space] = {}
        for one in self.code if self.data else ():
            if one.base == "LDL" and self._decides(one):
                found["local"] = Space.empty(self.lanes.count, down=True)
            if one.base == "LDS" and self._decides(one) and not self.lanes.independent:
                found["shared"] = Space.empty(1)
        return found

    def _decides(self, one: Instruction) -> bool:
        """Whether a jump depends on what an instruction writes."""
        after = one.index + 1
        return self.data and after < len(self.code) and bool(one.defines & self.deciding[after])

    def run(
        self,
        state: State,
        groups: dict[int, np.ndarray],
        items: list[Executed],
        stop_at: int | None = None,
        returns: int = 0,
        within: frozenset[int] | None = None,
    ) -> bool:
        """Run until every lane has left (False), ``stop_at`` was branched back to so often (True),
        or a position not ``within`` comes (False). ``groups`` are lanes by position; they change.
        """
        watches: dict[int, _LoopWatch] = {}
        while groups:
            place = min(groups)
            if within is not None and place not in within:
                return False
            active = groups.pop(place)
            one = self.code[place]
            self.steps += 1
            self.work += 1
            if self.work > MOST_WORK:
                raise TraceError(
                    f"The loops of {self.entry} are too irregular to be followed.",
                    f"{MOST_WORK} instructions were tried and few trips could be jumped over; "
                    "the number of trips of an inner loop changes from trip to trip of an outer "
                    "one, jumps alternate in a long pattern, or a float counts and is rounded anew",
                    f"{MEASURED}; fewer trips can be forecast",
                )
            if self.steps > self.most_steps:
                raise TraceError(
                    f"{self.entry} runs on without a pattern.",
                    f"{self.most_steps} instructions were followed and a loop near line "
                    f"{one.source.line if one.source else '?'} has not ended; its end depends on "
                    "data, or its counter does not change by a fixed amount",
                )
            back = self._step(state, groups, items, one, active)
            if back is None or back not in groups:
                continue
            if stop_at is not None and back == stop_at:
                returns -= 1
                if returns == 0:
                    return True
                continue
            for head, inner in watches.items():
                if back < head <= place:
                    inner.forget()
            watch = watches.setdefault(back, _LoopWatch(back))
            compared = len(state.comparisons or ())
            watch.come_by(_Visit(len(items), state.copy(), dict(groups), compared))
            if self._accelerate(state, items, watch):
                watch.visits.clear()
                watch.refused.clear()
                watch.jumped += 1
        return False

    def _step(
        self, state: State, groups: Groups, items: list[Executed], one: Instruction, active: Mask
    ) -> int | None:
        """Execute one instruction; returns where a taken backward branch went, or None."""
        executing, unknown_guard = self._executing(state, one, active)
        base = one.base
        if base in JUMPS:
            if unknown_guard and not self._assume(one, state):
                executing = np.zeros_like(active)
            items.append(Execution(one.index, active, executing))
            return self._jump(state, groups, one, active, executing)
        if unknown_guard:
            self.unsure.add(one.index)
        address = self._address(state, one) if base in _MEMORY else None
        meets = base in operands.MEETINGS and self.roles
        numbers = self._meeting(state, one, executing) if meets else None
        items.append(Execution(one.index, active, executing, address, numbers))
        if self.data and base in ("LDL", "STL"):
            address = self._address(state, one)
        self._write(state, one, executing, unknown_guard, address)
        self._join(groups, one.index + 1, active)
        return None

    def _executing(self, state: State, one: Instruction, active: Mask) -> tuple[Mask, bool]:
        """Lanes whose guard holds, and whether the guard is unknown (then: all lanes)."""
        executing = state.active = active
        if self.unconditional[one.index]:
            return executing, False
        unknown = False
        if one.predicate is not None:
            flag = state.flag(one.predicate)
            if flag is None:
                unknown = True
            else:
                executing = active & (~flag if one.predicate_negated else flag)
                state.active = executing if executing.any() else active
        condition = one.base in ("BRA", "JMP") and "DIV" not in one.modifiers
        if condition or one.base == "LDGSTS":
            # A condition beside the guard: BRA P0, `(.L_x_1). A copy whose condition does not
            # hold asks nothing of memory; it writes zeros.
            for operand in one.operands:
                if operand.kind == "predicate":
                    flag = state.predicate(operand)
                    if flag is None:
                        unknown = unknown or condition
                    else:
                        executing = executing & flag
        if self.roles and one.base == "BRA" and "ANY" in one.modifiers:
            # A warp goes if one of its lanes does.
            executing = active & np.isin(state.lanes.warp, state.lanes.warp[executing])
        return executing, unknown

    def _write(
        self, state: State, one: Instruction, executing: Mask, unknown_guard: bool, address: Value
    ) -> None:
        kind = "local" if one.base in ("STL", "LDL") else "shared"
        if kind in state.spaces and one.base in STORES:
            self._store(state, one, kind, executing, not unknown_guard, address)
        elif one.base in ("STL", "STS"):
            store_memory(state, one, executing, unknown_guard)
            return
        if not one.defines:
            return
        found = None
        if kind in state.spaces and one.base in ("LDL", "LDS"):
            found = load_space(state, one, kind, address, executing)
        if one.base in ("LDG", "LD") and address is not None:
            found = self._read_known(one, address, executing)
        elif one.base in ("ATOM", "ATOMG") and address is not None and not unknown_guard:
            found = self._count_up(state, one, address, executing)
        if found is None and self.roles and one.base in ("SYNCS", "USETMAXREG"):
            found = granted(state, one) or None
        if found is None:
            found = evaluate_data(state, one) if self.data else evaluate(state, one)
        whole = executing is state.lanes.true or self._is_whole(executing)
        for name, value in found:
            state.write(name, None if unknown_guard else value, executing, whole)

    def _is_whole(self, executing: np.ndarray) -> bool:
        """All lanes execute; instructions in a row mostly share the array, which never changes."""
        if executing is not self.looked_at[0]:
            self.looked_at = (executing, bool(executing.all()))
        return self.looked_at[1]

    def _store(
        self, state: State, one: Instruction, kind: str, executing: Mask, sure: bool, address: Value
    ) -> None:
        """What a store, or a copy from global memory, leaves in shared or local memory."""
        width, values = memory_width(one), [None] * max(1, memory_width(one) // 4)
        found: list[np.ndarray | None] = list(values)
        if one.base in ("STS", "STL") and sure:
            found = stored_values(state, one, executing)
        if one.base == "LDGSTS":
            source = address
            address = state.address(one.operands[0], wide=False)
            if source is not None and executing.any() and sure:
                somewhere = np.where(executing, source, source[executing][0])
                found = self.buffers.read(somewhere, width, len(values), deciding=True)
        elif one.base not in ("STS", "STL", "ATOMS"):
            address = None  # many bytes at once, written by a unit of its own
        store_space(state, kind, address, found, width, executing)

    def _read_known(self, one: Instruction, address: np.ndarray, executing: Mask) -> Written | None:
        names = sorted(one.defines, key=lambda name: int(name[1:]))
        width = one.access_bytes
        somewhere = np.where(executing, address, address[executing][0]) if executing.any() else None
        if somewhere is None or "STRONG" in one.modifiers:
            return None
        name = self.buffers.name_at(int(somewhere[0]))
        if name is not None and name in self.buffers.assumed:
            first = self.buffers.assumed[name][:4].tolist()
            what = ", ".join(map(str, first))
            self.notes.append(f"the content of {name} is not known and is taken as {what}, ...")
        words = self.buffers.read(somewhere, width, len(names), self._decides(one))
        if name in self.buffers.data and name not in self.buffers.contents:
            self.irregular.add(one.index)
        if any(word is None for word in words):
            return None
        words = [extend_sign(one, word) for word in words if word is not None]
        return list(zip(names, words, strict=True))

    def _count_up(
        self, state: State, one: Instruction, address: np.ndarray, executing: np.ndarray
    ) -> Written | None:
        """A counter: blocks are taken to come by in their order, in rounds. One for the whole grid
        hands out work; of several each is passed by the blocks that name its address, and the one
        that comes last there may have more to do."""
        lanes = state.lanes
        single = lanes.independent or int(executing.sum()) == 1
        kind = next((m for m in one.modifiers if m in ("ADD", "INC")), None)
        if kind is None or _FLOATS & set(one.modifiers) or not single or not executing.any():
            return None
        name = self.buffers.name_at(int(address[executing][0]))
        size = self.buffers.bytes.get(name or "")
        operand = state.bits(one.operands[-1])
        result = next((o.name for o in one.operands if o.kind == "register"), None)
        if size is None or operand is None or result is None:
            return None
        x, y, z = lanes.grid
        number = lanes.block[:, 0] + x * (lanes.block[:, 1] + y * lanes.block[:, 2])
        key = f"count:{one.index}"
        before = state.values.get(key)
        round_ = lanes.constant(0) if before is None else before
        state.values[key] = np.where(executing, round_ + np.uint32(1), round_)
        used = address[executing]
        one_for_all = kind == "ADD" and size <= COUNTER_BYTES and bool((used == used[0]).all())
        places = np.flatnonzero(executing)
        keys = {
            place: (self.entry, one.index, int(round_[place]), int(number[place]))
            for place in places.tolist()
        }
        if lanes is self.lanes and lanes.independent and not one_for_all:
            # The blocks that pass an address are numbered: who comes first, then in their order.
            for place in places[np.argsort(number[places], kind="stable")].tolist():
                at = int(address[place])
                self.buffers.tickets[keys[place]] = self.passed.get(at, 0)
                self.passed[at] = self.passed.get(at, 0) + 1
        value = None
        if all(key in self.buffers.tickets for key in keys.values()):
            value = np.zeros(len(number), np.uint32)
            value[places] = [self.buffers.tickets[key] for key in keys.values()]
        if value is None and one_for_all:
            value = number.astype(np.uint32) + round_ * np.uint32(x * y * z)
            self.notes.append(f"the counter in {name} is taken to be passed by all blocks in turn")
            return [(result, value * operand)]
        if value is None:
            return None
        if kind == "INC":  # back to 0 after the operand
            around = operand.astype(np.uint64) + np.uint64(1)
            value = (value.astype(np.uint64) % around).astype(np.uint32)
        else:
            value = value * operand
        self.notes.append(
            f"the blocks that pass one counter in {name} are taken to do so in their order; what "
            "the last of them does is counted once for them all"
        )
        return [(result, value)]

    def _jump(
        self, state: State, groups: Groups, one: Instruction, active: Mask, executing: Mask
    ) -> int | None:
        base, after = one.base, one.index + 1
        if base == "BRA" and "DIV" in one.modifiers:
            # Taken where the lanes of a warp have parted; here they come by together.
            self._go(groups, after, active)
            return None
        if base == "EXIT":
            self._go(groups, after, active & ~executing)
            return None
        if base == "RET":
            register = next((o for o in one.operands if o.kind == "register"), None)
            where = state.read(register.name) if register is not None else None
            if where is None:
                raise TraceError(f"{self.entry} returns to an unknown address.", f"at {one.text}")
            for target in np.unique(where[active]):
                self._go(groups, self.places[int(target)], active & (where == target))
            return None
        if one.target is None:
            raise TraceError(f"{self.entry} jumps to an unknown address.", f"at {one.text}")
        target = self.places[one.target]
        self._go(groups, target, executing)
        self._go(groups, after, active & ~executing)
        return target if target < after and executing.any() else None

    def _assume(self, one: Instruction, state: State) -> bool:
        """Whether a jump that depends on data is taken: of two ways the one with more instructions
        is gone, slow paths (a division by a denormal number, say) are skipped, loops are not left.
        A vote leaves out work that is rare: there the one with fewer is gone, and a loop inside
        another, whose end is known besides, is not gone round again. Who asks whether a number is
        infinite asks for a beginning, which is over. What is waited for at an mbarrier has come."""
        known = self.assumed.get(one.index)
        if known is None:
            known = self.assumed[one.index] = self._guess(one, state)
        return known

    def _guess(self, one: Instruction, state: State) -> bool:
        place = one.index
        if one.base in ("EXIT", "RET"):
            self._note(one, "taken as not leaving", trips=True)
            return False
        if (one.base != "BRA" and one.base != "JMP") or one.target is None:
            return True
        target = self.places[one.target]
        skipped = self.code[place + 1 : target]
        if any(one.base == "CALL" and "__internal" in one.text for one in skipped):
            return True  # over the compiler's own code for rare numbers
        asked, alone = self._asked(one, state)
        if asked is not None and asked.base == "SYNCS":
            return not one.predicate_negated
        if target <= place:
            nested = sum(loop.first <= place <= loop.last for loop in self.loops) > 1
            bounded = asked is not None and asked.base == "VOTE" and not alone and nested
            self._note(one, "taken as not going round again", trips=not bounded)
            return False
        stays, goes = self._reach(place + 1, place), self._reach(target, place)
        more = len(goes - stays) > len(stays - goes)
        if asked is not None and asked.base == "VOTE":
            more = not more
        taken = bool(goes) and (not stays or more)
        if asked is not None and asked.base == "FSETP":
            taken = (asked.modifiers[0] in ("NE", "NEU")) != one.predicate_negated
        looping = any(loop.first <= place <= loop.last for loop in self.loops)
        leaves = looping and not (stays and goes)
        skips = any(loop.first in goes ^ stays for loop in self.loops)
        self._note(
            one,
            "taken as branching" if taken else "taken as not branching",
            # A vote and a question for infinity say themselves which way is the usual one.
            trips=asked is None and (leaves or skips),
            swing=0 if asked else max(len(goes - stays), len(stays - goes)),
        )
        return taken

    def _asked(self, branch: Instruction, state: State) -> tuple[Instruction | None, bool]:
        """(the vote, the comparison with infinity or the question at an mbarrier that a branch
        depends on, else None; whether on nothing else)."""
        flags = {o.name for o in branch.operands if o.kind == "predicate"} - {"PT", "UPT"}
        flags |= {branch.predicate} if branch.predicate else set()
        open_ = {name for name in flags if state.flag(name) is None}
        before = reversed(self.code[: branch.index])
        one = next((one for one in before if open_ & one.defines), None)
        if one is None or len(open_) != 1:
            return None, True
        infinite = any(o.kind == "number" and o.value == -math.inf for o in one.operands)
        equal = one.modifiers[:1] in (("EQ",), ("NE",), ("NEU",))
        waits = one.base == "SYNCS" and "TRYWAIT" in one.modifiers
        known = one.base == "VOTE" or waits or (one.base == "FSETP" and infinite and equal)
        return (one if known else None), open_ == flags

    def _reach(self, start: int, branch: int) -> frozenset[int]:
        """Positions that lie ahead of one within its innermost loop; none if it leaves the loop."""
        around = [loop for loop in self.loops if loop.first <= branch <= loop.last]
        end = min((loop.last for loop in around), default=len(self.code) - 1)
        found: set[int] = set()
        waiting = [start]
        while waiting:
            place = waiting.pop()
            while place <= end and place not in found:
                found.add(place)
                one = self.code[place]
                if one.base in ("BRA", "JMP") and one.target is not None:
                    target = self.places[one.target]
                    if target > place and "DIV" not in one.modifiers:
                        waiting.append(target)
                ends = one.predicate is None and one.base in ("BRA", "JMP", "EXIT", "RET")
                if ends and "DIV" not in one.modifiers:
                    break
                place += 1
        return frozenset(found)

    def _note(self, one: Instruction, what: str, trips: bool = False, swing: int = 0) -> None:
        line = f" (line {one.source.line})" if one.source else ""
        text = f"a branch depends on data{line} and is {what}: {one.text}"
        self.notes.append(text)
        self.assumptions[one.index] = Assumption(one.index, text, trips, swing)

    def _go(self, groups: Groups, place: int, lanes: Mask) -> None:
        if lanes.any():
            self._join(groups, place, lanes)

    def _join(self, groups: Groups, place: int, lanes: Mask) -> None:
        """Some lanes, at least one, go on at a place."""
        if place < len(self.code):
            there = groups.get(place)
            groups[place] = lanes if there is None else there | lanes

    def _meeting(
        self, state: State, one: Instruction, executing: np.ndarray
    ) -> tuple[np.ndarray, ...] | None:
        """Where lanes meet others or copies, and what they say there."""
        numbers: list[np.ndarray | None]
        if one.base == "BAR":
            said = [state.bits(o) for o in one.operands if o.kind in ("number", "register")]
            numbers = [*said, state.lanes.constant(0)][:2]
        elif one.base == "SYNCS":
            numbers = [self._address(state, one), state.bits(one.operands[-1])]
        else:
            target, _ = (o.parts[0][0] for o in one.addressed)
            box = self._box(state, one)
            sizes: list[np.ndarray | None] = [None, None]
            if box is not None:
                sizes = [state.lanes.constant(size) for size in _box_sizes(box)]
            numbers = [state.read(next_register(target)), *sizes]
        known = tuple(number for number in numbers if number is not None)
        if len(known) == len(numbers):
            return known
        if self.lanes.independent or not executing.any():
            return None
        raise TraceError(
            f"{self.entry} meets at a barrier that is not known.",
            f"at {one.text}: which barrier it is, or what is said there, depends on data",
        )

    def _box(self, state: State, one: Instruction) -> TensorMap | None:
        """The tensor map of a copy; None where it is not known."""
        if one.modifiers[:1] != ("3D",) or "MULTICAST" in one.modifiers:
            raise TraceError(
                f"{self.entry} copies in a way that the forecast does not know.",
                f"at {one.text}; it knows copies of boxes of three dimensions to one block",
                "the kernel can be measured",
            )
        memory = one.addressed
        where = state.address(dataclasses.replace(memory[1], offset=0), wide=True)
        if where is None or not len(where):
            return None
        used = np.unique(where[state.active]) if state.active.any() else where[:1]
        return state.lanes.tensor_maps.get(int(used[0])) if len(used) == 1 else None

    def _box_address(self, state: State, one: Instruction) -> np.ndarray | None:
        """Where in global memory a box begins: what lies before the tensor counts as its first."""
        target = next(o.parts[0][0] for o in one.addressed)
        box = self._box(state, one)
        places = [state.read(next_register(target, 2 + axis)) for axis in range(3)]
        if box is None or any(place is None for place in places):
            return None
        total = np.full(state.lanes.count, self.buffers.address_of(box.buffer), np.int64)
        steps = (int(box.words[-1]), *box.strides[::-1])
        for place, step, size in zip(places, steps, box.shape[::-1], strict=True):
            assert place is not None
            total += np.clip(place.view(np.int32).astype(np.int64), 0, size) * step
        return total.view(np.uint64)

    def _address(self, state: State, one: Instruction) -> np.ndarray | None:
        if one.base in BOX_COPIES:
            return self._box_address(state, one)
        memory = one.addressed
        if one.base == "LDGSTS":
            memory = memory[1:]
        if not memory:
            return None
        wide = one.base not in SHARED_ACCESSES and one.base not in ("LDL", "STL", "SYNCS")
        return state.address(memory[0], wide and ("E" in one.modifiers or one.base == "LDGSTS"))

    # ------------------------------------------------------------------------- loops

    def _accelerate(self, state: State, items: list[Executed], watch: _LoopWatch) -> bool:
        """Jump ahead in a loop whose trips are alike; False when they are not, or not yet."""
        visits, jumped = watch.visits, watch.jumped
        for period in PERIODS:
            if len(visits) < 2 * period + 1:
                return False
            if period in watch.refused and len(visits) <= PATIENCE:
                continue
            waiting = jumped >= SHORT_JUMPS and len(visits) <= LONG_PATTERN
            if waiting and len(visits) != 2 * period + 1:
                continue  # each period is tried once until the longer ones have had their turn
            now, once, twice = visits[-1], visits[-1 - period], visits[-1 - 2 * period]
            if not (
                _same_groups(now.groups, once.groups) and _same_groups(now.groups, twice.groups)
            ):
                continue
            first = items[twice.place : once.place]
            second = items[once.place : now.place]
            wanted = _signature(second)
            if _signature(first) != wanted:
                continue
            if self.data and any(self._is_irregular(place, now) for place in _positions(wanted)):
                return False
            live = now.state.memory_names().union(*(self.live[place] for place in now.groups))
            change = _change(twice.state, once.state, live)
            if change is None or not _same_change(change, once.state, now.state, live):
                if len(visits) > PATIENCE and period == 1:
                    decides = frozenset().union(*(self.deciding[place] for place in now.groups))
                    _forget_irregular(state, change, once.state, now.state, live, decides)
                    visits.clear()
                    return False
                continue
            if watch.seen < watch.later.get(period, 0):
                continue
            next_two = None
            if (made := state.comparisons) is not None:
                next_two = _next_comparisons(
                    made[twice.compared : once.compared], made[once.compared : now.compared]
                )
            repeated = _Period(watch.head, period, now, first, second, wanted, change, live)
            more = self._trips_left(repeated, next_two)
            if more.max() < LEAST_JUMP:
                # Until the first lane turns, each trip only leaves one less.
                soonest = int(more[now.groups[watch.head]].min())
                watch.later[period] = watch.seen + max(1, period * soonest)
            if more.max() >= LEAST_JUMP:
                # Addresses that no stride describes keep a loop together only when patience ends.
                strict = len(visits) <= PATIENCE
                whole = int(more.max())
                more = self._proven(repeated, more, strict)
                if (more == ENDLESS).any():
                    raise TraceError(
                        f"A loop of {self.entry} does not end.",
                        "nothing in it ever turns",
                        "the kernel can be run on the CPU, which stops it",
                    )
                if strict and 4 * more.max() < whole:
                    # A pattern of more trips may describe the addresses to the end.
                    watch.refused.add(period)
                    continue
            if more.max() < LEAST_JUMP:
                # Too little to jump over: a ring of buffers looks regular between its turns.
                continue
            few = period * int(more.max()) < LONG_JUMP
            if few and jumped >= SHORT_JUMPS and len(visits) <= LONG_PATTERN:
                continue
            _advance(state, now.state, change, more)
            del items[twice.place :]
            counts = 2 + more if state.lanes.independent else None
            items.append(Repeat(tuple(first), tuple(second), 2 + int(more.max()), counts))
            return True
        return False

    def _is_irregular(self, place: int, now: _Visit) -> bool:
        """What it loads or stores decides, and may be another number every trip."""
        one = self.code[place]
        if place in self.irregular:
            return self._decides(one)
        return bool(now.state.spaces) and (
            one.base in STORES or (one.base in ("LDS", "LDL") and self._decides(one))
        )

    def _trips_left(
        self,
        period: _Period,
        next_two: tuple[list[IntegerComparison], list[IntegerComparison]] | None,
    ) -> np.ndarray:
        """[N] How many more periods run exactly like the last one: the comparisons of the next two
        show when the first of them turns, and are run ahead where the last two do not tell them.
        Lanes of one block stop at the first that turns; independent lanes run to their own last
        period."""
        now, wanted = period.now, period.wanted
        lanes = now.state.lanes
        if next_two is None:
            none = np.zeros(lanes.count, np.int64)
            within = frozenset(_positions(wanted))
            near = self._probe(period, none, within)
            if near is None or near[0] != wanted:
                return none
            far = self._probe(period, none + 1, within)
            # With other comparisons, one is of a number that only the first of them knows.
            if far is None or far[0] != wanted or len(far[1]) != len(near[1]):
                return none + 1
            next_two = near[1], far[1]
        looping = now.groups[period.head]
        turns = _first_turns(*next_two, lanes.count)
        if not lanes.independent:
            turns = np.full(lanes.count, turns[looping].min())
        # No comparison of numbers turns: bits may, which the trips that are tried will show.
        turns = np.minimum(turns, ENDLESS)
        return np.where(looping, turns, 0)

    def _proven(self, period: _Period, turns: np.ndarray, strict: bool) -> np.ndarray:
        """[N] How many of the ``turns`` periods run like the last one, by trying many of them at
        once, near and far: bits, shifts and carries may change where comparisons do not. Each must
        take the same path and change every live register by the same amount."""
        lanes = _sample_lanes(period.now.state.lanes, turns)
        samples = int(min(MOST_SAMPLES, max(16, MOST_SAMPLED_LANES // len(lanes))))
        far = int(turns[lanes].max())

        def bad(trips: np.ndarray) -> np.ndarray:
            return self._differ(period, lanes, turns, trips, strict)

        trips = _spread(far, samples)
        found = bad(trips)
        if not found.any():
            return turns
        good, worst = -1, far
        while found.any() or worst - good > 1:
            if found.any():
                place = int(np.argmax(found))
                worst = int(trips[place])
                good = int(trips[place - 1]) if place else good
            else:
                good = worst - 1
            if worst - good <= 1:
                break
            trips = np.unique(np.linspace(good + 1, worst - 1, samples).astype(np.int64))
            found = bad(trips)
        return np.minimum(turns, worst)

    def _differ(
        self, period: _Period, lanes: np.ndarray, turns: np.ndarray, trips: np.ndarray, strict: bool
    ) -> np.ndarray:
        """[len(trips)] Does a period that far ahead differ from the last one?"""
        source = np.tile(lanes, len(trips))
        ahead = np.minimum(np.repeat(trips, len(lanes)), np.maximum(turns[source] - 1, 0))
        state = _copies(period.now.state, source, len(trips))
        for name, difference in period.change.items():
            old = state.values[name]
            if old is not None:
                state.values[name] = old + difference[source] * ahead.astype(np.uint32)
        begin = dict(state.values)
        bad = np.zeros(len(source), bool)
        self._replay(_Copies(state, source, ahead, bad), period.first, period.second, strict)
        for name in period.live:
            old, new = begin.get(name), state.values.get(name)
            if old is None or new is None:
                continue
            step = period.change.get(name)
            differs = new != (old if step is None else old + step[source])
            known = state.valid.get(name)
            bad |= differs if known is None else differs & known
        bad &= turns[source] > 0
        return np.asarray(bad.reshape(len(trips), len(lanes)).any(axis=1))

    def _replay(
        self, copies: _Copies, first: Sequence[Executed], second: Sequence[Executed], strict: bool
    ) -> None:
        """Run the steps of a period again on copies of lanes; marks those that leave its path."""
        state, source, bad = copies.state, copies.source, copies.bad
        for before, item in zip(first, second, strict=True):
            if isinstance(item, Repeat):
                self._replay_repeat(copies, item)
                continue
            assert isinstance(before, Execution)
            one = self.code[item.index]
            self.work += 2  # many copies take twice as long as one
            active = item.active[source]
            if not active.any():
                continue
            executing, unknown = self._executing(state, one, active)
            if not unknown:
                np.logical_or(bad, executing != item.executing[source], out=bad)
            executing = item.executing[source]
            if one.base in JUMPS:
                continue
            address = self._address(state, one) if one.base in _MEMORY else None
            once, twice = before.address, item.address
            if strict and not (address is None or once is None or twice is None):
                # ahead counts from the period after second
                steps = (copies.ahead + 1).astype(np.uint64)
                there = twice[source] + (twice - once)[source] * steps
                np.logical_or(bad, executing & (address != there), out=bad)
            self._write(state, one, executing, unknown, address)

    def _replay_repeat(self, copies: _Copies, item: Repeat) -> None:
        """Run a loop inside the period: its first two trips and its last one."""
        state, source = copies.state, copies.source
        near = dataclasses.replace(copies, ahead=np.zeros(len(source), np.int64))
        self._replay(near, item.body, item.body, False)
        before = dict(state.values)
        self._replay(near, item.second, item.second, False)
        count = np.full(len(source), item.count) if item.counts is None else item.counts[source]
        skipped = np.maximum(count - 3, 0).astype(np.uint32)
        for name, new in list(state.values.items()):
            old = before.get(name)
            if old is not None and new is not None and new is not old and new.dtype != bool:
                state.values[name] = new + (new - old) * skipped
        if item.count > 2:
            self._replay(near, item.second, item.second, False)

    def _probe(
        self, period: _Period, ahead: np.ndarray, within: frozenset[int]
    ) -> tuple[list[Any], list[IntegerComparison]] | None:
        """Path and comparisons of the period that is ``ahead`` further on; None if it leaves."""
        now = period.now
        probe = now.state.copy()
        _advance(probe, now.state, period.change, ahead)
        probe.comparisons = []
        found: list[Executed] = []
        groups = dict(now.groups)
        notes, steps = list(self.notes), self.steps
        stopped = self.run(probe, groups, found, period.head, period.trips, within)
        self.notes, self.steps = notes, steps
        if not stopped or not _same_groups(groups, now.groups):
            return None
        return _signature(found), probe.comparisons


def _box_sizes(tensor_map: TensorMap) -> tuple[int, int]:
    """Bytes of a box, and from its first to its last in memory."""
    planes, rows, columns = tensor_map.box
    row = columns * int(tensor_map.words[-1])
    plane, next_row = tensor_map.strides
    return planes * rows * row, (planes - 1) * plane + (rows - 1) * next_row + row


NEVER = np.iinfo(np.int64).max
MOST_COMPARED = 1 << 60
"""Numbers as large may wrap within two periods."""
ENDLESS = 1 << 40
"""Trips after which a loop has no end."""


def _next_comparisons(
    first: Sequence[IntegerComparison], second: Sequence[IntegerComparison]
) -> tuple[list[IntegerComparison], list[IntegerComparison]] | None:
    """The comparisons of the next two periods, as they follow from those of the last two; None
    where those compared other things, or one of the next turns out otherwise or wraps."""
    near: list[IntegerComparison] = []
    far: list[IntegerComparison] = []
    if len(first) != len(second):
        return None
    for one, two in zip(first, second, strict=True):
        if (one.kind, one.low, one.high) != (two.kind, two.low, two.high):
            return None
        if one.lanes is not two.lanes and (one.lanes != two.lanes).any():
            return None
        low, high = max(two.low, -MOST_COMPARED), min(two.high, MOST_COMPARED)
        told = COMPARE[two.kind](two.a, two.b)
        values = []
        for before, after in ((one.a, two.a), (one.b, two.b)):
            last = after.astype(np.int64)
            step = last - before.astype(np.int64)
            reached = last + 2 * step
            ends = np.stack([last, reached])[:, two.lanes]
            if ends.size and not (low <= ends.min() and ends.max() <= high):
                return None
            values.append((last + step, reached))
        (near_a, far_a), (near_b, far_b) = values
        for a, b, made in ((near_a, near_b, near), (far_a, far_b, far)):
            if ((COMPARE[two.kind](a, b) != told) & two.lanes).any():
                return None
            made.append(IntegerComparison(two.kind, a, b, two.lanes, two.low, two.high))
    return near, far


def _first_turns(
    near: Sequence[IntegerComparison], far: Sequence[IntegerComparison], count: int
) -> np.ndarray:
    """[N] In how many periods the first comparison of a lane gives another answer, or `NEVER`, from
    those of two periods in a row; what is compared changes by the same amount each period."""
    turns = np.full(count, NEVER)

    def turn(lanes: np.ndarray, when: np.ndarray) -> None:
        turns[lanes] = np.minimum(turns[lanes], np.maximum(1, when[lanes]))

    for one, two in zip(near, far, strict=True):
        near_a, near_b, far_a, far_b = (
            value.astype(np.int64) for value in (one.a, one.b, two.a, two.b)
        )
        gap, step = near_a - near_b, (far_a - near_a) - (far_b - near_b)
        modulus = one.high - one.low + 1
        small = modulus <= 1 << 32
        if one.kind in ("EQ", "NE"):
            if small:
                gap = (gap + (1 << 31)) % modulus - (1 << 31)
                step = (step + (1 << 31)) % modulus - (1 << 31)
            moving = one.lanes & (step != 0)
            safe = np.where(step != 0, step, 1)
            turn(moving & (gap == 0), np.ones(count, np.int64))
            for around in (0, modulus, -modulus) if small else (0,):
                distance = around - gap
                when = distance // safe
                turn(moving & (distance % safe == 0) & (when > 0), when)
            continue
        # LT and GE turn where the gap passes 0; LE and GT where it passes 1.
        border = 0 if one.kind in ("LT", "GE") else 1
        below = gap < border
        up, down = np.maximum(step, 1), np.maximum(-step, 1)
        turn(one.lanes & below & (step > 0), -((gap - border) // up))
        turn(one.lanes & ~below & (step < 0), (gap - border) // down + 1)
        for value, after in ((near_a, far_a), (near_b, far_b)):
            moved = after - value
            up, down = np.maximum(moved, 1), np.maximum(-moved, 1)
            turn(one.lanes & (moved > 0), _quotient(one.high - value, up) + 1)
            turn(one.lanes & (moved < 0), _quotient(value - one.low, down) + 1)
    return turns


def _quotient(room: np.ndarray, step: np.ndarray) -> np.ndarray:
    """``room // step``; a room of up to 64 bits has wrapped in the int64 that it comes in."""
    found = room.astype(np.int64).view(np.uint64) // step.astype(np.uint64)
    return np.minimum(found, np.uint64(NEVER - 1)).astype(np.int64)


def _signature(items: Sequence[Executed]) -> list[Any]:
    return [item.signature for item in items]


def _positions(signatures: Sequence[Any]) -> Iterator[int]:
    """Positions of instructions in the signatures of some items."""
    for one in signatures:
        if one[0] == "repeat":
            yield from _positions(one[2])
        else:
            yield one[0]


def _same_groups(a: Mapping[int, np.ndarray], b: Mapping[int, np.ndarray]) -> bool:
    return a.keys() == b.keys() and all(a[k] is b[k] or bool((a[k] == b[k]).all()) for k in a)


def _sample_lanes(lanes: Lanes, turns: np.ndarray) -> np.ndarray:
    """Positions of the lanes that stand for all: whole warps, or some independent lanes."""
    if lanes.independent:
        looping = np.flatnonzero(turns > 0)
        return looping[np.unique(np.linspace(0, len(looping) - 1, 64).astype(np.int64))]
    warps = np.unique(lanes.warp)
    chosen = warps[np.unique(np.linspace(0, len(warps) - 1, 8).astype(np.int64))]
    return np.flatnonzero(np.isin(lanes.warp, chosen))


def _spread(end: int, samples: int) -> np.ndarray:
    """Numbers from 0 to ``end`` - 1: all small ones, around powers of two, the last, others."""
    near = np.arange(min(end, samples // 2))
    powers = (1 << np.arange(1, max(2, end.bit_length()))).astype(np.int64)
    last = np.arange(max(0, end - 3), end)
    between = np.linspace(0, max(0, end - 1), max(4, samples // 4)).astype(np.int64)
    found = np.unique(np.concatenate([near, powers - 1, powers, last, between]))
    return found[found < end]


def _copies(state: State, source: np.ndarray, count: int) -> State:
    """The state of some lanes, ``count`` times beside each other."""
    lanes = state.lanes
    twin = dataclasses.replace(lanes, block=lanes.block[source], thread=lanes.thread[source])
    copy = np.repeat(np.arange(count), len(source) // count)
    # The copies of a warp are warps of their own.
    twin.__dict__["warp"] = lanes.warp[source] + copy * (int(lanes.warp.max()) + 1)
    found = State(twin)
    found.values = {n: None if v is None else v[source] for n, v in state.values.items()}
    found.valid = {name: known[source] for name, known in state.valid.items()}
    found.active = twin.true
    found.stored = state.stored
    found.spaces = dict(state.spaces)
    found.local_rows = state.rows("local")[source]
    return found


def _change(before: State, after: State, live: frozenset[str]) -> dict[str, np.ndarray] | None:
    """What each live register gained; None where a predicate or what is known changed."""
    found = {}
    for name in live:
        new, old = after.values.get(name), before.values.get(name)
        if (new is None) != (old is None):
            return None
        if new is None or new is old or old is None:
            continue
        known = after.valid.get(name)
        same_known = before.valid.get(name)
        if known is not same_known and (
            known is None or same_known is None or bool((known != same_known).any())
        ):
            return None
        if new.dtype == bool:
            differ = new != old
            if (differ if known is None else differ & known).any():
                return None
            continue
        difference = new - old
        if known is not None:
            difference = np.where(known, difference, np.uint32(0))
        if difference.any():
            found[name] = difference
    return found


def _same_change(
    change: Mapping[str, np.ndarray], before: State, after: State, live: frozenset[str]
) -> bool:
    other = _change(before, after, live)
    return (
        other is not None
        and other.keys() == change.keys()
        and all(bool((other[name] == change[name]).all()) for name in change)
    )


def _forget_irregular(
    state: State,
    change: Mapping[str, np.ndarray] | None,
    before: State,
    after: State,
    live: frozenset[str],
    kept: frozenset[str],
) -> None:
    """Make unknown what does not change by a fixed amount, so that the rest can be followed; not
    what is ``kept``, since a jump depends on it: those trips are walked through."""
    other = _change(before, after, live)
    if change is None or other is None:
        names = {
            name
            for name, new in after.values.items()
            if name in live
            and (
                (old := before.values.get(name)) is None
                or new is None
                or (new.dtype == bool and bool((new != old).any()))
            )
        }
    else:
        names = {
            name
            for name in {*change, *other}
            if name not in change or name not in other or (change[name] != other[name]).any()
        }
    for name in names - kept:
        state.values[name] = None
        state.valid.pop(name, None)


def _advance(
    target: State, base: State, change: Mapping[str, np.ndarray], times: np.ndarray
) -> None:
    for name, difference in change.items():
        old = base.values[name]
        if old is not None:
            target.values[name] = old + difference * times.astype(np.uint32)
