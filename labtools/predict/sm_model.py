"""An SM that issues in order, simulated until its loops settle.

Every resident warp issues its own instructions in program order. An instruction waits for the
stall count of the one before it, for its scoreboards, for a free issue slot of its sub-partition
and for its pipe. Loads come back after the latency of the level that has the data, plus what the
load on memory adds. Barriers wait for the last warp. Loops are cut short: once a few trips have
passed, the rest are taken to cost what the last ones cost.

Blocks whose warps spread evenly are simulated on one of the four sub-partitions, with its share
of the units that the SM has once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush, heappushpop
from typing import Any

from labtools.toolchain.sass import Instruction, Sass

from .machine import UNITS, Machine, unit_of
from .streams import SECTOR_BYTES, BlockStreams, FlatStreams, LoopNode, Mark, Op, Request, first_of

_FIXED, _VARIABLE, _LOAD, _BARRIER, _STORE, _DEPBAR, _ASYNC, _COMMIT, _EXIT, _FENCE = range(10)
"""What the simulation does with an instruction."""
_TRIP, _END, _LEAVE = -1, -2, -3
"""What stands between the instructions of a stream."""
_WARP_READY, _PART_ISSUES = 0, 1
_WHOLE = 0.999
"""Shares that add up to this make one miss."""
_Due = tuple[float, int, int]
"""A cycle, what is due then, and the number of the warp or of the sub-partition."""
QUEUE_CYCLES = 12.0
"""An instruction for the SM's load/store unit issues only if less work than this waits there."""


@dataclass(frozen=True)
class Where:
    """Where the requests of one launch find data that the L1 does not have.

    Attributes:
        from_dram: by buffer, the share of requests that go to memory.
        dram_share: by buffer, memory bytes for one byte asked of the L2 (several blocks may ask
            for the same bytes, which are read once).
        l1_bytes: what is left of an SM's L1 beside shared memory.
        l2_bytes: what the L2 keeps of data that are read again.
        resident_blocks_on_gpu, resident_blocks_on_sm: blocks that share them.
        stay_in_l2: buffers that a later launch or pass reads; what is stored there stays in the L2.
    """

    from_dram: dict[int, float] = field(default_factory=dict)
    dram_share: dict[int, float] = field(default_factory=dict)
    l1_bytes: float = 0.0
    l2_bytes: float = 0.0
    resident_blocks_on_gpu: int = 1
    resident_blocks_on_sm: int = 1
    stay_in_l2: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Event:
    """One issue of the watched warp.

    Attributes:
        index: position in the kernel.
        trip: of the innermost loop, or -1.
        ready: cycle when the stall count of the instruction before had passed.
        waited: cycle when the scoreboards were free.
        issued: cycle of issue.
        scoreboard: the one that was waited for longest, or None.
        producer: instruction that held it.
        level: ``l1``, ``l2``, ``dram`` for a load's producer, else an empty string.
        barrier: cycles at a barrier before this instruction.
        fetch: cycles for the instruction's own arrival (a taken branch, a cold cache line).
        before: cycle when the warp's instruction before was issued.
        weight: trips that this issue stands for (the last simulated trip stands for the rest).
    """

    index: int
    trip: int
    ready: float
    waited: float
    issued: float
    scoreboard: int | None
    producer: int | None
    level: str
    barrier: float
    fetch: float
    before: float
    weight: float


@dataclass(frozen=True)
class SmRun:
    """What the simulation of an SM gave.

    Attributes:
        cycles: from the first instruction to the last warp's exit, all trips counted.
        issued: instructions issued by the SM, all trips counted.
        dram_bytes, l2_bytes: read from memory and from the L2 by the SM, all trips counted.
        in_flight_bytes: mean bytes asked for and not yet there, on the SM.
        load_latency: mean cycles from issue to arrival of loads that miss the L1.
        events: issues of the first warp, loops cut short.
        slopes: (first instruction, trips, cycles a trip) of each loop of the first warp, in the
            order in which they ended.
    """

    cycles: float
    issued: float
    dram_bytes: float
    l2_bytes: float
    in_flight_bytes: float
    load_latency: float
    events: tuple[Event, ...] = field(repr=False)
    slopes: tuple[tuple[int, int, float], ...]


@dataclass(frozen=True)
class Pressure:
    """Cycles that a load on memory adds to each request, beyond its unloaded latency."""

    dram: float = 0.0
    l2: float = 0.0


class OccupiedSm:
    """One SM that holds ``blocks`` equal blocks, every instruction beside the machine's numbers.

    What a simulation takes from it does not depend on the load on memory, so one of them serves
    for many.

    Args:
        streams: what the warps of a block issue.
        blocks: resident blocks, all started together.
        machine: latencies, intervals and shared units of the GPU.
        where: levels that serve loads.
        trips: trips of a loop that are simulated; the slope comes from the later half.
        scale: factors on latencies by class, for "what if": shared, shuffle, memory, barrier, ...
    """

    def __init__(
        self,
        streams: BlockStreams,
        blocks: int,
        machine: Machine,
        where: Where,
        trips: int = 6,
        scale: Mapping[str, float] | None = None,
    ) -> None:
        self.blocks, self.machine, self.trips = blocks, machine, trips
        self.placement = _place_warps(streams, blocks, machine.sub_partitions)
        encode = _Encoder(streams.sass, machine, where, scale or {}, self.placement.share)
        self.barrier_factor = encode.factor("barrier")
        flat = streams.flat(trips)
        self.warps = _put_into_numbers(flat, [encode(op) for op in flat.ops], self.placement)

    def simulate(
        self,
        pressure: Pressure | None = None,
        watch: bool = True,
        total: int | None = None,
        fair: bool = True,
    ) -> SmRun:
        """Simulate the SM from start to end.

        Args:
            pressure: what the traffic of all SMs adds to each load.
            watch: keep the first warp's issues.
            total: blocks that pass through the SM; each one that ends makes room for another. None
                is ``blocks``.
            fair: the warp that has been ready longest issues first, and loops are extrapolated from
                their last trips. Otherwise a sub-partition goes on with the warp that it issued
                last and else takes the youngest (Huerta et al., "Analyzing Modern NVIDIA GPU
                cores", arXiv 2503.20481), and nothing is extrapolated: ``cycles`` is that of the
                cut loops.
        """
        simulation = _Simulation(self, pressure or Pressure(), fair, watch)
        return simulation.run(total or self.blocks)


# -------------------------------------------------------------------------- what is simulated


@dataclass(frozen=True)
class _Placement:
    """Which warps are simulated, and where.

    Attributes:
        warps: (position in `BlockStreams.warps`, sub-partition, block) of each.
        share: sub-partitions that share what the SM has once, for one that is simulated.
        represents: warps of the SM for one that is simulated.
        slots: of the blocks that wait for a place on the SM, one of so many comes to what is
            simulated.
    """

    warps: tuple[tuple[int, int, int], ...]
    share: float
    represents: float
    slots: int


def _place_warps(streams: BlockStreams, blocks: int, parts: int) -> _Placement:
    """All warps of an SM, or those of one sub-partition where they spread evenly."""
    per_block = len(streams.warps)
    total = blocks * per_block
    # Warps with roles of their own (a producer, say) must all be there.
    alike = max(streams.issued) <= 2 * max(1, min(streams.issued))
    if per_block == 1:
        chosen = [(0, 0, block) for block in range(-(-total // parts))]
        return _Placement(tuple(chosen), float(min(parts, total)), total / len(chosen), parts)
    if per_block % parts == 0 and alike:
        chosen = [
            (warp, 0, block) for block in range(blocks) for warp in range(0, per_block, parts)
        ]
        return _Placement(tuple(chosen), float(parts), total / len(chosen), 1)
    every = [divmod(number, per_block) for number in range(total)]
    chosen = [(warp, number % parts, block) for number, (block, warp) in enumerate(every)]
    return _Placement(tuple(chosen), 1.0, 1.0, 1)


# ------------------------------------------------------------------- instructions with numbers


@dataclass(frozen=True, slots=True)
class _Traffic:
    """What a request of memory costs.

    Attributes:
        missing: share of its executions that miss the L1.
        l2_bytes: asked of the L2 at each miss, or stored.
        from_dram: share of the misses that go to memory.
        dram_bytes: moved by memory at each miss, on average, or stored there.
        l1, l2, dram: latency by the level that serves it, cycles.
    """

    missing: float = 0.0
    l2_bytes: float = 0.0
    from_dram: float = 0.0
    dram_bytes: float = 0.0
    l1: float = 0.0
    l2: float = 0.0
    dram: float = 0.0


_NO_TRAFFIC = _Traffic()


class _Code:
    """One instruction with the machine's numbers.

    Attributes:
        kind: one of the constants above.
        index, line: position in the kernel, and that of its line in the instruction cache.
        stall: cycles before the warp's next instruction.
        waits: scoreboards that must be free.
        sets_result, sets_read: scoreboards held until the result is there, until the operands
            have been read; -1 for none.
        unit: position of its pipe in `UNITS`.
        interval: cycles that the pipe is taken.
        latency: cycles of a variable latency or a fence; for ``DEPBAR`` the groups of copies that
            may still be under way.
        sm_interval: cycles of the unit for loads, stores and shuffles that the SM has once.
        traffic: what it asks of memory.
        fetch: cycles of a taken branch.
    """

    __slots__ = (
        *("fetch", "index", "interval", "kind", "latency", "line", "sets_read", "sets_result"),
        *("sm_interval", "stall", "traffic", "unit", "waits"),
    )

    def __init__(self, kind: int, index: int) -> None:
        self.kind, self.index, self.line = kind, index, index >> 3
        self.stall = self.interval = self.latency = self.sm_interval = self.fetch = 0.0
        self.waits: tuple[int, ...] = ()
        self.sets_result = self.sets_read = -1
        self.unit = 0
        self.traffic = _NO_TRAFFIC


class _Turn:
    """A mark in a stream.

    A trip of a loop begins (``_TRIP``), its last one has ended (``_END``), or the whole stream has
    (``_LEAVE``).
    """

    __slots__ = ("kind", "loop", "trip")

    def __init__(self, kind: int, mark: Mark | None) -> None:
        self.kind = kind
        self.loop = mark.loop if mark is not None else LoopNode(0, ())
        self.trip = mark.trip if mark is not None and mark.trip is not None else 0


class _Encoder:
    """Puts the machine's numbers beside what a warp issues.

    Args:
        sass: the kernel.
        machine: latencies, intervals and shared units.
        where: levels that serve loads.
        scale: factors on latencies by class.
        share: as in `_Placement`.
    """

    def __init__(
        self, sass: Sass, machine: Machine, where: Where, scale: Mapping[str, float], share: float
    ) -> None:
        self.sass, self.machine, self.where = sass, machine, where
        self.scale, self.share = scale, share

    def factor(self, kind: str) -> float:
        """The factor on a class of latencies."""
        return self.scale.get(kind, 1.0)

    def __call__(self, op: Op) -> _Code:
        """One instruction with its numbers."""
        machine, one = self.machine, self.sass.instructions[op.index]
        code = _Code(self._kind(op, one) if op.on else _FIXED, op.index)
        code.waits = one.control.wait
        code.stall = float(one.control.stall or machine.zero_stall_cycles(one))
        if op.taken:
            code.fetch = machine.branch_cycles * self.factor("branch")
        if not op.on:  # it takes an issue slot and nothing else
            code.unit, code.interval = UNITS.index("none"), 1.0
            return code
        if one.control.write_barrier is not None:
            code.sets_result = one.control.write_barrier
        if one.control.read_barrier is not None:
            code.sets_read = one.control.read_barrier
        unit = unit_of(one)
        code.unit, code.interval = UNITS.index(unit), machine.interval(unit, one)
        code.sm_interval = machine.shared_interval(one, op.request) * self.share
        factor = self.factor(machine.latency_class(one))
        if code.kind == _DEPBAR:
            code.latency = float(_depbar_allowed(one))
        elif code.kind == _FENCE:
            code.latency = machine.latency(one, None) * factor
        elif code.kind == _VARIABLE:
            code.latency = machine.latency(one, op.request) * factor
        elif op.request is not None and code.kind in (_LOAD, _ASYNC):
            code.traffic = self._load_traffic(op.request)
        elif op.request is not None and code.kind == _STORE:
            stored = op.request.sectors * SECTOR_BYTES
            stays = op.request.buffer in self.where.stay_in_l2
            code.traffic = _Traffic(l2_bytes=stored, dram_bytes=0.0 if stays else stored)
        return code

    @staticmethod
    def _kind(op: Op, one: Instruction) -> int:
        """How the simulation treats an instruction that runs."""
        asked = op.request.kind if op.request is not None else ""
        if one.base == "EXIT":
            return _EXIT
        if one.base == "BAR" and "ARV" not in one.modifiers:
            return _BARRIER
        if one.base == "DEPBAR":
            return _DEPBAR
        if one.base == "LDGDEPBAR":
            return _COMMIT
        if one.base == "MEMBAR" and {"GPU", "SYS"} & set(one.modifiers):
            return _FENCE
        if asked in ("load", "atomic"):
            return _LOAD
        if asked in ("async", "store"):
            return _ASYNC if asked == "async" else _STORE
        scored = one.control.write_barrier is not None or one.control.read_barrier is not None
        return _VARIABLE if scored else _FIXED

    def _load_traffic(self, request: Request) -> _Traffic:
        machine, where = self.machine, self.where
        missing = min(1.0, request.new_sectors / request.sectors)
        from_dram = where.from_dram.get(request.buffer, 0.0)
        share = where.dram_share.get(request.buffer, 1.0)
        if request.kind == "atomic":
            missing, from_dram = 1.0, 0.0
        elif request.again is not None:
            if request.again * where.resident_blocks_on_sm < where.l1_bytes:
                missing = 0.0
            elif request.again * where.resident_blocks_on_gpu * share < where.l2_bytes:
                from_dram = 0.0
        size = request.sectors * SECTOR_BYTES
        factor = self.factor("memory")
        return _Traffic(
            missing=missing,
            l2_bytes=size,
            from_dram=from_dram,
            dram_bytes=size * (from_dram * share),
            l1=machine.l1_latency(request) * factor,
            l2=machine.l2_latency(request) * self.scale.get("l2", factor),
            dram=machine.dram_latency(request) * self.scale.get("dram", factor),
        )


def _depbar_allowed(one: Instruction) -> int:
    numbers = [o.value for o in one.operands if o.kind == "number"]
    return int(numbers[0] or 0) if numbers else 0


def _put_into_numbers(
    flat: FlatStreams, codes: Sequence[_Code], placement: _Placement
) -> list[list[_Code | _Turn]]:
    """The stream of each simulated warp, with its marks; equal streams are one list."""
    turns = [_Turn(_END if mark.trip is None else _TRIP, mark) for mark in flat.marks]
    leave = _Turn(_LEAVE, None)
    known: dict[int, list[_Code | _Turn]] = {}
    found = []
    for which, _, _ in placement.warps:
        numbers = flat.warps[which]
        if id(numbers) not in known:
            known[id(numbers)] = [
                *(codes[place] if place >= 0 else turns[-1 - place] for place in numbers),
                leave,
            ]
        found.append(known[id(numbers)])
    return found


# ---------------------------------------------------------------------------- the simulation


class _Warp:
    """One simulated warp.

    Attributes:
        number: of the warp; 0 is the one that is watched.
        part, block: the sub-partition and the block that it belongs to.
        stream: what it issues, marks among it.
        place: in its stream; `next` is the instruction there.
        free_at, producer, level: by scoreboard: when it is free, the instruction that holds it,
            the level of memory that serves that.
        groups: cycle when each group of its asynchronous copies is complete.
        copies_end: cycle when its last asynchronous copy is.
        last_issue, stall_end: cycle of the last issue, and when its stall count had passed.
        fence_until, fence: when its last fence lets it go on, and where that stands.
        ready_since: cycle since when it could issue.
        barrier_spent, fetch_spent: cycles since the last issue.
        correction: cycles of trips that were not simulated.
        begins: by loop around it, when each trip began, corrections included.
        weight, weights: trips that an issue stands for; the same outside each loop around it.
        end: cycle when it left, corrections included.
        age: the greater the younger.
    """

    __slots__ = (
        *("age", "barrier_spent", "begins", "block", "copies_end", "correction", "end", "fence"),
        *("fence_until", "fetch_spent", "free_at", "groups", "last_issue", "level", "next"),
        *("number", "part", "place", "producer", "ready_since", "stall_end", "stream", "weight"),
        "weights",
    )

    def __init__(self, number: int, stream: list[Any], part: _Part, block: _Block) -> None:
        self.number = self.age = number
        self.stream, self.part, self.block = stream, part, block
        self.next: _Code = stream[0]
        self.producer = [-1] * 6
        self.level = [""] * 6
        self.last_issue = self.stall_end = self.ready_since = self.end = 0.0
        self.barrier_spent = self.fetch_spent = self.correction = 0.0
        self.begins: list[list[float]] = []
        self.weight = 1.0
        self.weights: list[float] = []
        self.start_over()

    def start_over(self) -> None:
        """Become a warp of the block that takes the place of one that has left."""
        self.place = 0
        self.free_at = [0.0] * 6
        self.groups: list[float] = []
        self.fence_until, self.fence = 0.0, -1
        self.copies_end = 0.0


class _Part:
    """One sub-partition.

    Attributes:
        number: of the sub-partition.
        pool: warps that could issue, in the order in which they became ready.
        armed: an event is queued at which one of them may issue.
        slot_free: cycle when the issue slot is free.
        pipes_free: the same of each pipe, by its position in `UNITS`.
        last: the warp that issued last.
    """

    __slots__ = ("armed", "last", "number", "pipes_free", "pool", "slot_free")

    def __init__(self, number: int) -> None:
        self.number = number
        self.pool: list[_Warp] = []
        self.armed = False
        self.slot_free = 0.0
        self.pipes_free = [0.0] * len(UNITS)
        self.last: _Warp | None = None


class _Block:
    """A block's place on the SM: its warps, how many have not left, who stands at the barrier."""

    __slots__ = ("arrived", "left", "warps")

    def __init__(self) -> None:
        self.warps: list[_Warp] = []
        self.left = 0
        self.arrived: list[tuple[_Warp, float]] = []


class _Simulation:
    """The SM from the first instruction to the last warp's exit.

    Two kinds of event stand in one queue: a warp is ready, and a sub-partition may issue. At one
    cycle all warps become ready before any issues.
    """

    def __init__(self, sm: OccupiedSm, pressure: Pressure, fair: bool, watch: bool) -> None:
        machine, placement = sm.machine, sm.placement
        self.trips, self.fair, self.placement = sm.trips, fair, placement
        self.l2_pressure, self.dram_pressure = pressure.l2, pressure.dram
        self.barrier_cycles = machine.barrier_cycles * sm.barrier_factor
        self.barrier_step = machine.barrier_interval * placement.share * sm.barrier_factor
        self.fill_cycles = placement.share / machine.fill_bytes_per_cycle
        self.line_cycles = machine.cold_line_cycles
        self.read_cycles = machine.operand_read_cycles

        self.unit_free = 0.0  # the load/store and shuffle unit of the SM
        self.fill_free = 0.0  # the path from the L2
        self.barrier_free = 0.0  # the barrier unit of the SM takes one arrival after another
        self.lines: set[int] = set()  # of instructions, that the SM has fetched
        self.misses: dict[_Code, float] = {}  # parts of a miss that have added up
        self.drams: dict[_Code, float] = {}
        self.events: list[Event] = []
        self.slopes: list[tuple[int, int, float]] = []
        self.trip_now = -1
        self.issued = self.dram_bytes = self.l2_bytes = 0.0
        self.flight = self.latency_sum = self.latency_count = 0.0
        self.queue: list[_Due] = []

        self._set_up(sm.warps)
        self.watched = self.warps[0] if watch else None
        self.youngest = len(self.warps)
        self.waiting_blocks = 0

    def _set_up(self, streams: Sequence[list[_Code | _Turn]]) -> None:
        """Warps on their sub-partitions, in their blocks."""
        self.parts: dict[int, _Part] = {}
        self.blocks: dict[int, _Block] = {}
        self.warps: list[_Warp] = []
        for number, (_, part, block) in enumerate(self.placement.warps):
            on = self.parts.setdefault(part, _Part(part))
            of = self.blocks.setdefault(block, _Block())
            warp = _Warp(number, streams[number], on, of)
            of.warps.append(warp)
            of.left += 1
            self.warps.append(warp)

    def run(self, total: int) -> SmRun:
        """Simulate and, with a fair scheduler, extrapolate."""
        # Blocks that wait for a place on what is simulated (a sub-partition, or the SM).
        self.waiting_blocks = max(0, -(-total // self.placement.slots) - len(self.blocks))
        for warp in self.warps:
            self._queue_up(warp, 0.0)
        queue, warps, parts = self.queue, self.warps, self.parts
        choose = self._choose_first if self.fair else self._choose_same_or_youngest
        due: _Due | None = heappop(queue)
        while due is not None:
            time, event, number = due
            added = None  # to the queue, before the next one is taken from it
            if event == _WARP_READY:
                warp = warps[number]
                part = warp.part
                part.pool.append(warp)
                warp.ready_since = time
                if not part.armed:
                    part.armed = True
                    added = (max(time, part.slot_free), _PART_ISSUES, part.number)
            else:
                part = parts[number]
                place = choose(part, time)
                if place >= 0:
                    warp = part.pool.pop(place)
                    if part.pool:
                        heappush(queue, (time + 1, _PART_ISSUES, number))
                    else:
                        part.armed = False
                    added = self._issue(warp, part, time)
            if added is not None:
                due = heappushpop(queue, added)
            else:
                due = heappop(queue) if queue else None
        cycles = max(warp.end for warp in warps)
        factor = self.placement.represents
        return SmRun(
            cycles=cycles,
            issued=self.issued * factor,
            dram_bytes=self.dram_bytes * factor,
            l2_bytes=self.l2_bytes * factor,
            in_flight_bytes=self.flight * factor / max(cycles, 1.0),
            load_latency=self.latency_sum / self.latency_count if self.latency_count else 0.0,
            events=tuple(self.events),
            slopes=tuple(self.slopes),
        )

    # ------------------------------------------------------------------- who issues

    def _choose_first(self, part: _Part, now: float) -> int:
        """Position in the pool of the warp that has been ready longest; -1 if no pipe is free.

        The pool is in the order in which its warps became ready.
        """
        soonest = math.inf
        pipes, full = part.pipes_free, self.unit_free - QUEUE_CYCLES
        for place, warp in enumerate(part.pool):
            code = warp.next
            free = pipes[code.unit]
            if full > free and code.sm_interval:
                free = full
            if free <= now:
                return place
            if free < soonest:
                soonest = free
        heappush(self.queue, (soonest, _PART_ISSUES, part.number))
        return -1

    def _choose_same_or_youngest(self, part: _Part, now: float) -> int:
        """Position of the warp that issued last, else of the youngest; -1 if no pipe is free."""
        soonest, best, best_age = math.inf, -1, -1
        pipes, full = part.pipes_free, self.unit_free - QUEUE_CYCLES
        for place, warp in enumerate(part.pool):
            code = warp.next
            free = pipes[code.unit]
            if full > free and code.sm_interval:
                free = full
            if free > now:
                if free < soonest:
                    soonest = free
            elif warp is part.last:
                return place
            elif warp.age > best_age:
                best, best_age = place, warp.age
        if best < 0:
            heappush(self.queue, (soonest, _PART_ISSUES, part.number))
        return best

    # ------------------------------------------------------------------- an issue

    def _issue(self, warp: _Warp, part: _Part, now: float) -> _Due | None:
        """Issue a warp's next instruction, and find when the one after it may issue."""
        code = warp.next
        kind = code.kind
        part.last = warp
        part.slot_free = now + 1
        part.pipes_free[code.unit] = now + code.interval
        self.issued += warp.weight
        if warp is self.watched:
            self._keep_event(warp, code, now)
        warp.last_issue = now
        served = now
        if code.sm_interval:
            if self.unit_free > now:
                served = self.unit_free
            self.unit_free = served + code.sm_interval
        if kind != _FIXED:
            self._hold_scoreboards(warp, code, now, served)
        elif code.sets_result >= 0:
            self._hold(warp, code.sets_result, now, code.index, "")
        if code.sets_read >= 0:
            self._hold(warp, code.sets_read, served + self.read_cycles, code.index, "read")
        warp.place += 1
        following = now + code.stall + code.fetch
        warp.fetch_spent += code.fetch
        if kind == _EXIT:
            warp.place = len(warp.stream) - 1
            warp.end = max(warp.end, now + warp.correction)
            self._retire(warp, now)
        elif kind == _BARRIER:
            self.barrier_free = max(self.barrier_free, now) + self.barrier_step
            warp.block.arrived.append((warp, following))
            self._release(warp.block, now)
        else:
            return self._settle(warp, following)
        return None

    def _hold_scoreboards(self, warp: _Warp, code: _Code, now: float, served: float) -> None:
        """What an instruction whose latency varies does, and when its result is there."""
        kind = code.kind
        done, level = now, ""
        if kind == _VARIABLE:
            done = served + code.latency
        elif kind in (_LOAD, _ASYNC):
            done, level = self._load(warp, code, now, served)
            if kind == _ASYNC and done > warp.copies_end:
                warp.copies_end = done
        elif kind == _STORE:
            self.l2_bytes += code.traffic.l2_bytes * warp.weight
            self.dram_bytes += code.traffic.dram_bytes * warp.weight
            done = served + self.read_cycles
        elif kind == _COMMIT:
            warp.groups.append(max(warp.copies_end, now))
            return
        elif kind == _FENCE:
            warp.fence_until, warp.fence = now + code.latency + self.l2_pressure, code.index
        if code.sets_result >= 0:
            self._hold(warp, code.sets_result, done, code.index, level)

    @staticmethod
    def _hold(warp: _Warp, board: int, until: float, index: int, level: str) -> None:
        """Hold a scoreboard until a cycle; a later one counts."""
        if until > warp.free_at[board]:
            warp.free_at[board] = until
            warp.producer[board] = index
            warp.level[board] = level

    def _load(self, warp: _Warp, code: _Code, now: float, served: float) -> tuple[float, str]:
        """(cycle when a load's data are there, level that served it).

        Shares of misses add up until they make a whole one.
        """
        traffic = code.traffic
        tally = self.misses.get(code, 0.0) + traffic.missing
        if tally < _WHOLE:
            self.misses[code] = tally
            return served + traffic.l1, "l1"
        self.misses[code] = tally - 1.0
        size, weight = traffic.l2_bytes, warp.weight
        begin = self.fill_free if self.fill_free > served else served
        self.fill_free = begin + size * self.fill_cycles
        self.l2_bytes += size * weight
        self.dram_bytes += traffic.dram_bytes * weight
        tally = self.drams.get(code, 0.0) + traffic.from_dram
        if tally >= _WHOLE:
            tally -= 1.0
            done, level = begin + traffic.dram + self.dram_pressure, "dram"
        else:
            done, level = begin + traffic.l2 + self.l2_pressure, "l2"
        self.drams[code] = tally
        self.flight += size * (done - now) * weight
        self.latency_sum += (done - now) * weight
        self.latency_count += weight
        return done, level

    def _keep_event(self, warp: _Warp, code: _Code, now: float) -> None:
        """Keep what the watched warp waited for before this issue."""
        held = None
        if code.waits:
            held = max(code.waits, key=warp.free_at.__getitem__)
            if warp.free_at[held] <= warp.stall_end:
                held = None
        fenced = held is None and warp.fence_until > warp.stall_end
        if held is not None:
            waited = warp.free_at[held]
        else:
            waits = code.kind == _DEPBAR or fenced
            waited = max(warp.stall_end, warp.ready_since if waits else 0.0)
        producer = warp.fence if fenced else warp.producer[held] if held is not None else -1
        self.events.append(
            Event(
                index=code.index,
                trip=self.trip_now,
                ready=warp.stall_end,
                waited=waited,
                issued=now,
                scoreboard=held,
                producer=producer if producer >= 0 else None,
                level=warp.level[held] if held is not None else "",
                barrier=warp.barrier_spent,
                fetch=warp.fetch_spent,
                before=warp.last_issue,
                weight=warp.weight,
            )
        )
        warp.barrier_spent = warp.fetch_spent = 0.0

    # ------------------------------------------------------------------- what comes after it

    def _settle(self, warp: _Warp, now: float) -> _Due | None:
        """Pass marks and find when the warp's next instruction may issue; None if it leaves."""
        code = warp.stream[warp.place]
        while code.kind < 0:
            if code.kind == _LEAVE:
                warp.end = max(warp.end, max(warp.last_issue, now) + warp.correction)
                self._retire(warp, now)
                return None
            self._turn(warp, code)
            warp.place += 1
            code = warp.stream[warp.place]
        warp.next = code
        ready = now
        if code.line not in self.lines:
            self.lines.add(code.line)
            ready += self.line_cycles
            warp.fetch_spent += self.line_cycles
        warp.stall_end = ready
        for board in code.waits:
            if warp.free_at[board] > ready:
                ready = warp.free_at[board]
        if warp.fence_until > ready:
            ready = warp.fence_until
        if code.kind == _DEPBAR:
            allowed = int(code.latency)
            if len(warp.groups) > allowed:
                ready = max(ready, warp.groups[-1 - allowed])
        return ready, _WARP_READY, warp.number

    def _queue_up(self, warp: _Warp, now: float) -> None:
        """Queue the moment at which a warp's next instruction may issue."""
        due = self._settle(warp, now)
        if due is not None:
            heappush(self.queue, due)

    def _turn(self, warp: _Warp, turn: _Turn) -> None:
        """Note the begin of a loop's trip, or its end with what the trips left out would take."""
        count = turn.loop.count
        corrected = warp.last_issue + warp.correction
        if turn.kind == _TRIP:
            if turn.trip == 0:
                warp.begins.append([])
                warp.weights.append(warp.weight)
            if turn.trip == min(count, self.trips) - 1 and count > self.trips:
                # The last simulated trip stands for all that are left.
                warp.weight = warp.weights[-1] * (count - self.trips + 1)
            warp.begins[-1].append(corrected)
            if warp.number == 0:
                self.trip_now = turn.trip
            return
        times = warp.begins.pop()
        warp.weight = warp.weights.pop()
        times.append(corrected)
        middle = len(times) // 2
        slope = (times[-1] - times[middle]) / (len(times) - 1 - middle)
        if count > self.trips and self.fair:
            warp.correction += (count - self.trips) * slope
        if warp.number == 0:
            self.trip_now = -1
            self.slopes.append((first_of(turn.loop), count, slope))

    def _release(self, block: _Block, now: float) -> None:
        """Let a block's warps go on if all that have not left stand at the barrier."""
        there = block.arrived
        if not there or len(there) < block.left:
            return
        block.arrived = []
        arrival = max(ready for _, ready in there)
        free = max(now, arrival, self.barrier_free + self.barrier_cycles)
        for warp, ready in there:
            warp.barrier_spent += free - ready
            self._queue_up(warp, free)

    def _retire(self, warp: _Warp, now: float) -> None:
        """A warp has left; when its whole block has, another block takes the place."""
        block = warp.block
        block.left -= 1
        if block.left:
            self._release(block, now)  # others may have waited at a barrier for this warp alone
        if block.left or not self.waiting_blocks:
            return
        self.waiting_blocks -= 1
        block.left = len(block.warps)
        begin = now + warp.correction
        for other in block.warps:
            other.start_over()
            other.age = self.youngest
            self.youngest += 1
            self._queue_up(other, begin)
