"""The loop of an SM's simulation: which warp issues when, one issue after another.

It takes plain numbers and gives plain numbers, and imports nothing of labtools: ``make`` compiles
this file to machine code where the machine can (see `native`): it takes a third of the time and
gives the same numbers to the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush, heappushpop
from typing import Final

FIXED: Final = 0
VARIABLE: Final = 1
LOAD: Final = 2
BARRIER: Final = 3
STORE: Final = 4
DEPBAR: Final = 5
ASYNC: Final = 6
COMMIT: Final = 7
EXIT: Final = 8
FENCE: Final = 9
"""Kinds of a `Code`: what the simulation does with an instruction."""
ARRIVES: Final = 13
AWAITS: Final = 14
COPIES: Final = 15
MEETS: Final = 16
LEAVES: Final = 17
MULTIPLIES: Final = 18
PRODUCTS: Final = 19
"""Those of warps with roles: at an mbarrier arrive, wait, or have bytes copied; at a named barrier
meet, or arrive and go on; start a product of a warpgroup, and wait for groups of them."""
TRIP_BEGINS: Final = 10
LOOP_ENDS: Final = 11
STREAM_ENDS: Final = 12
"""Kinds of a `Turn`."""
SCOREBOARDS: Final = 6
QUEUE_CYCLES: Final = 12.0
"""An instruction for the SM's load/store unit issues only if less work than this waits there."""

_WARP_READY: Final = 0
_PART_ISSUES: Final = 1
_WHOLE: Final = 0.999
"""Shares that add up to this make one miss."""
_Due = tuple[float, int, int]
"""A cycle, what is due then, and the number of the warp or of the sub-partition."""
Issue = tuple[int, int, float, float, float, int, int, str, float, float, float, float, float]
"""What an `Event` says, in its order; -1 where that says None."""


class Streamed:
    """What stands in a warp's stream: a `Code` or a `Turn`."""

    __slots__ = ()


class Code(Streamed):
    """One instruction with the machine's numbers.

    Attributes:
        kind: one of the constants above.
        index, line: position in the kernel, and that of its line in the instruction cache.
        stall: cycles before the warp's next instruction.
        waits: scoreboards that must be free.
        sets_result, sets_read: scoreboards held until the result is there, until the operands
            have been read; -1 for none.
        unit: position of its pipe in the machine's list.
        interval: cycles that the pipe is taken.
        latency: cycles of a variable latency or a fence; for ``DEPBAR`` the groups of copies that
            may still be under way.
        sm_interval: cycles of the unit for loads, stores and shuffles that the SM has once.
        fetch: cycles of a taken branch.
        missing: share of a load's executions that miss the L1.
        l2_bytes: asked of the L2 at each miss, or stored.
        from_dram: share of the misses that go to memory.
        dram_bytes: moved by memory at each miss, on average, or stored there.
        l1, l2, dram: latency of a load by the level that serves it, cycles.
        place, runs: a bit for its buffer, and the stretches of it that are asked for.
        gate: the barrier: position in `Numbers.gates`, or the number of a named one.
        amount: arrivals; of a wait the parity; of a named barrier the warps that meet; of a product
            the cycles of the tensor cores.
        bytes: announced at a barrier, or copied.
        closes: a product that closes a group.
        map: number of the tensor map of a copy.
        drain: of a store, cycles until it is where others can see it; a warp leaves no sooner.
    """

    __slots__ = (
        *("dram", "dram_bytes", "fetch", "from_dram", "index", "interval", "kind", "l1", "l2"),
        *("l2_bytes", "latency", "line", "missing", "sets_read", "sets_result", "sm_interval"),
        *("stall", "unit", "waits", "gate", "amount", "bytes", "closes", "map", "drain"),
        *("place", "runs"),
    )

    def __init__(self, kind: int, index: int) -> None:
        self.kind, self.index, self.line = kind, index, index >> 3
        self.stall = self.interval = self.latency = self.sm_interval = self.fetch = 0.0
        self.waits: tuple[int, ...] = ()
        self.sets_result = self.sets_read = -1
        self.unit = 0
        self.missing = self.l2_bytes = self.from_dram = self.dram_bytes = 0.0
        self.l1 = self.l2 = self.dram = 0.0
        self.place, self.runs = 0, 1.0
        self.gate = self.map = -1
        self.amount = self.bytes = self.drain = 0.0
        self.closes = False


class Turn(Streamed):
    """A mark in a stream.

    Attributes:
        kind: a trip of a loop begins (``TRIP_BEGINS``), its last one has ended (``LOOP_ENDS``), or
            the whole stream has (``STREAM_ENDS``).
        first: position in the kernel of the loop's first instruction.
        count: trips of the loop, those left out of the stream among them.
        trip: the one that begins.
        kept: trips that stand in the stream.
    """

    __slots__ = ("count", "first", "kept", "kind", "trip")

    def __init__(
        self, kind: int, first: int = 0, count: int = 0, trip: int = 0, kept: int = 0
    ) -> None:
        self.kind, self.first, self.count, self.trip, self.kept = kind, first, count, trip, kept


_NOTHING: Final = Code(FIXED, 0)


class Warp:
    """One simulated warp.

    Attributes:
        number: of the warp.
        part, block: the sub-partition and the block that it belongs to.
        stream: what it issues, marks among it.
        place: in its stream; `next` is the instruction there.
        free_at, producer, level: by scoreboard: when it is free, the instruction that holds it,
            the level of memory that serves that.
        groups: cycle when each group of its asynchronous copies is complete.
        asked, places, runs: since it last waited for data, the bytes that it asked for beyond the
            L1, bits for the buffers of requests of one stretch, and the stretches of the others.
        products, products_end: the same of its groups of products, and of its last product.
        parked: it waits for a barrier whose end is not known yet.
        copies_end: cycle when its last asynchronous copy is.
        data_end: cycle when its last data from memory are there.
        stores_end: cycle when its last store has drained.
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
        *("age", "asked", "barrier_spent", "begins", "block", "copies_end", "correction"),
        *("data_end", "end", "fence", "fence_until", "fetch_spent", "free_at", "groups"),
        *("last_issue", "level", "next", "number", "parked", "part", "place", "places"),
        *("producer", "products", "runs"),
        *("products_end", "ready_since", "stall_end", "stores_end", "stream", "weight", "weights"),
    )

    def __init__(
        self, number: int, stream: list[Streamed], part: SubPartition, block: Block
    ) -> None:
        self.number = self.age = number
        self.stream, self.part, self.block = stream, part, block
        self.next = _NOTHING
        self.producer = [-1] * SCOREBOARDS
        self.level = [""] * SCOREBOARDS
        self.last_issue = self.stall_end = self.ready_since = self.end = 0.0
        self.barrier_spent = self.fetch_spent = self.correction = 0.0
        self.begins: list[list[float]] = []
        self.weight = 1.0
        self.weights: list[float] = []
        self.start_over()

    def start_over(self) -> None:
        """Become a warp of the block that takes the place of one that has left."""
        self.place = 0
        self.free_at = [0.0] * SCOREBOARDS
        self.groups: list[float] = []
        self.fence_until, self.fence = 0.0, -1
        self.copies_end = self.stores_end = self.data_end = 0.0
        self.products: list[float] = []
        self.products_end = 0.0
        self.begin_asking()
        self.parked = False

    def begin_asking(self) -> None:
        """It has waited for data."""
        self.asked, self.places, self.runs = 0.0, 0, 0.0


class SubPartition:
    """One sub-partition.

    Attributes:
        number: of the sub-partition.
        pool: warps that could issue, in the order in which they became ready.
        armed: an event is queued at which one of them may issue.
        slot_free: cycle when the issue slot is free.
        pipes_free: the same of each pipe, by its position in the machine's list.
        last: the warp that issued last.
        tensor_free: cycle when the tensor core has done the products that were started.
    """

    __slots__ = ("armed", "last", "number", "pipes_free", "pool", "slot_free", "tensor_free")

    def __init__(self, number: int, pipes: int) -> None:
        self.number = number
        self.pool: list[Warp] = []
        self.armed = False
        self.slot_free = 0.0
        self.pipes_free = [0.0] * pipes
        self.last: Warp | None = None
        self.tensor_free = 0.0


class Mbarrier:
    """An mbarrier.

    Attributes:
        takes: arrivals of a phase.
        missing, bytes: arrivals and bytes that the phase of now still waits for.
        latest: cycle of the last arrival or landing so far.
        ends: cycle when each phase ended, of those whose end is known.
        by_copy: whether it was a copy that landed last.
        passed: phases that have ended by now.
        waiting: who waits for an end that is not known: warp, scoreboard, phase, cycles that the
            answer takes, and where it asked.
    """

    __slots__ = ("by_copy", "bytes", "ends", "latest", "missing", "passed", "takes", "waiting")

    def __init__(self, takes: float) -> None:
        self.takes = self.missing = takes
        self.bytes = self.latest = 0.0
        self.ends: list[float] = []
        self.by_copy = False
        self.passed = 0
        self.waiting: list[tuple[Warp, int, int, float, int]] = []


class NamedBarrier:
    """A named barrier: how many warps have come, when the last did, and those that wait."""

    __slots__ = ("come", "latest", "waiting")

    def __init__(self) -> None:
        self.come = self.latest = 0.0
        self.waiting: list[tuple[Warp, float]] = []


class Block:
    """A block's place on the SM: its warps, how many have not left, who stands at the barrier.

    ``gates`` are its mbarriers, ``meetings`` its named barriers by number.
    """

    __slots__ = ("arrived", "gates", "left", "meetings", "warps")

    def __init__(self, takes: Sequence[float]) -> None:
        self.warps: list[Warp] = []
        self.left = 0
        self.arrived: list[tuple[Warp, float]] = []
        self.start_over(takes)

    def start_over(self, takes: Sequence[float]) -> None:
        """Begin with barriers that nobody has come to."""
        self.gates = [Mbarrier(one) for one in takes]
        self.meetings: dict[int, NamedBarrier] = {}


@dataclass(frozen=True)
class Numbers:
    """The machine's numbers that belong to no instruction, in cycles unless said."""

    pipes: int  # of a sub-partition
    barrier: float  # from the last arrival until the warps go on
    barrier_step: float  # the barrier unit takes one arrival in so many
    fill: float  # of the path from the L2, per byte
    line: float  # until a line of instructions is there that the SM has not fetched
    read: float  # until an instruction has read its operands
    # l2_pressure, dram_pressure: added to a load on that level by the traffic of all SMs
    l2_pressure: float
    dram_pressure: float
    # l2_beside, dram_beside: by which the last of rows side by side comes later, a doubling
    l2_beside: float
    dram_beside: float
    # l2_apart, dram_apart: the same of 1, 2, 4, .. rows that lie anywhere
    l2_apart: tuple[float, ...]
    dram_apart: tuple[float, ...]
    gates: tuple[float, ...] = ()  # arrivals that a phase of each mbarrier takes
    # products of warpgroups that a tensor core has in its queue at most, as one more is started
    queued: float = math.inf
    map: float = 0.0  # until the copy engine has read a tensor map that it does not know
    # of memory, per byte that copies by tensor maps bring, while all SMs copy alike
    box_memory: float = 0.0


class Simulation:
    """The SM from the first instruction to the last warp's exit.

    Two kinds of event stand in one queue: a warp is ready, and a sub-partition may issue. At one
    cycle all warps become ready before any issues.

    Args:
        places: sub-partition and block of each warp.
        streams: what each warp issues; equal ones may be one list.
        fair: the warp that has been ready longest issues first, and loops are extrapolated from
            their last trips; otherwise the one that issued last, else the youngest, and nothing is
            extrapolated.
        watched: its number; its loops are kept in any case.

    Attributes:
        cycles: from the first instruction to the last warp's exit, all trips counted.
        issued, dram_bytes, l2_bytes: of what is simulated, all trips counted.
        flight: byte cycles under way of loads that miss the L1.
        latency_sum, latency_count: cycles and number of these loads.
        first_data, last_data: cycle when the first data from memory would be there were it idle,
            and when the last ones are, all trips counted.
        issues: of the first warp, loops cut short.
        slopes: (first instruction, trips, cycles a trip) of each loop of the first warp.
    """

    def __init__(
        self,
        numbers: Numbers,
        places: Sequence[tuple[int, int]],
        streams: Sequence[list[Streamed]],
        fair: bool,
        watch: bool,
        watched: int = 0,
    ) -> None:
        self.fair, self.gates, self.queued = fair, numbers.gates, numbers.queued
        self.maps: dict[int, float] = {}  # when the copy engine knows each tensor map
        self.map_cycles = numbers.map
        self.l2_pressure, self.dram_pressure = numbers.l2_pressure, numbers.dram_pressure
        self.barrier_cycles, self.barrier_step = numbers.barrier, numbers.barrier_step
        self.fill_cycles, self.line_cycles = numbers.fill, numbers.line
        self.read_cycles = numbers.read
        self.l2_beside, self.l2_apart = numbers.l2_beside, numbers.l2_apart
        self.dram_beside, self.dram_apart = numbers.dram_beside, numbers.dram_apart

        self.unit_free = 0.0  # the load/store and shuffle unit of the SM
        self.fill_free = 0.0  # the path from the L2
        self.box_memory = numbers.box_memory
        self.share_free = 0.0  # the SM's share of memory, as copies by tensor maps use it
        self.barrier_free = 0.0  # the barrier unit of the SM takes one arrival after another
        self.lines: set[int] = set()  # of instructions, that the SM has fetched
        self.misses: dict[Code, float] = {}  # parts of a miss that have added up
        self.drams: dict[Code, float] = {}
        self.issues: list[Issue] = []
        self.slopes: list[tuple[int, int, float]] = []
        self.trip_now = -1
        self.cycles = self.issued = self.dram_bytes = self.l2_bytes = 0.0
        self.flight = self.latency_sum = self.latency_count = self.tensor = 0.0
        self.first_data, self.last_data = math.inf, 0.0
        self.queue: list[_Due] = []

        self.parts: dict[int, SubPartition] = {}
        self.blocks: dict[int, Block] = {}
        self.warps: list[Warp] = []
        for number, (part, block) in enumerate(places):
            if part not in self.parts:
                self.parts[part] = SubPartition(part, numbers.pipes)
            if block not in self.blocks:
                self.blocks[block] = Block(numbers.gates)
            of = self.blocks[block]
            warp = Warp(number, streams[number], self.parts[part], of)
            of.warps.append(warp)
            of.left += 1
            self.warps.append(warp)
        self.number = watched
        self.watched: Warp | None = self.warps[watched] if watch else None
        self.youngest = len(self.warps)
        self.waiting_blocks = 0

    def run(self, blocks: int) -> None:
        """Simulate until so many blocks have passed through their places.

        Args:
            blocks: at least those that have a place.
        """
        self.waiting_blocks = max(0, blocks - len(self.blocks))
        for warp in self.warps:
            self._queue_up(warp, 0.0)
        queue, warps, parts = self.queue, self.warps, self.parts
        due = heappop(queue)
        while True:
            time, event, number = due
            added: _Due | None = None  # to the queue, before the next one is taken from it
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
                if self.fair:
                    place = self._choose_first(part, time)
                else:
                    place = self._choose_same_or_youngest(part, time)
                if place >= 0:
                    warp = part.pool.pop(place)
                    if part.pool:
                        heappush(queue, (time + 1.0, _PART_ISSUES, number))
                    else:
                        part.armed = False
                    added = self._issue(warp, part, time)
            if added is not None:
                due = heappushpop(queue, added)
            elif queue:
                due = heappop(queue)
            else:
                break
        self.cycles = max([warp.end for warp in warps])
        for warp in warps:
            if warp.data_end > 0.0:
                self.last_data = max(self.last_data, warp.data_end + warp.correction)

    # ------------------------------------------------------------------- who issues

    def _choose_first(self, part: SubPartition, now: float) -> int:
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

    def _choose_same_or_youngest(self, part: SubPartition, now: float) -> int:
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

    def _issue(self, warp: Warp, part: SubPartition, now: float) -> _Due | None:
        """Issue a warp's next instruction, and find when the one after it may issue."""
        code = warp.next
        kind = code.kind
        part.last = warp
        part.slot_free = now + 1
        if warp is self.watched:
            self._keep_issue(warp, code, part, now)
        part.pipes_free[code.unit] = now + code.interval
        self.issued += warp.weight
        warp.last_issue = now
        served = now
        if warp.asked and self._waited_for_data(warp, code):
            warp.begin_asking()
        if code.sm_interval:
            if self.unit_free > now:
                served = self.unit_free
            self.unit_free = served + code.sm_interval
        if kind != FIXED:
            self._hold_scoreboards(warp, code, now, served)
        elif code.sets_result >= 0:
            self._hold(warp, code.sets_result, now, code.index, "")
        if code.sets_read >= 0:
            self._hold(warp, code.sets_read, served + self.read_cycles, code.index, "read")
        warp.place += 1
        following = now + code.stall + code.fetch
        warp.fetch_spent += code.fetch
        if kind == EXIT:
            warp.place = len(warp.stream) - 1
            warp.end = max(warp.end, max(now, warp.stores_end) + warp.correction)
            self._retire(warp, now)
        elif kind == BARRIER:
            self.barrier_free = max(self.barrier_free, now) + self.barrier_step
            warp.block.arrived.append((warp, following))
            self._release(warp.block, now)
        elif kind in (MEETS, LEAVES):
            self._meet(warp, code, now, following)
            return self._settle(warp, following) if kind == LEAVES else None
        else:
            return self._settle(warp, following)
        return None

    def _hold_scoreboards(self, warp: Warp, code: Code, now: float, served: float) -> None:
        """What an instruction whose latency varies does, and when its result is there."""
        kind = code.kind
        done, level = now, ""
        if kind == VARIABLE:
            done = served + code.latency
        elif kind in (LOAD, ASYNC):
            done, level = self._load(warp, code, now, served)
            if kind == ASYNC and done > warp.copies_end:
                warp.copies_end = done
        elif kind == STORE:
            self.l2_bytes += code.l2_bytes * warp.weight
            self.dram_bytes += code.dram_bytes * warp.weight
            done = served + self.read_cycles
            if code.drain > 0.0:
                warp.stores_end = served + code.sm_interval + code.drain
        elif kind == COMMIT:
            warp.groups.append(max(warp.copies_end, now))
            return
        elif kind == FENCE:
            warp.fence_until, warp.fence = now + code.latency + self.l2_pressure, code.index
        elif kind == MULTIPLIES:
            self._multiply(warp, code, now)
        elif kind == ARRIVES:
            gate = warp.block.gates[code.gate]
            gate.missing -= code.amount
            self._come(gate, now + code.latency, code.bytes, now, False)
        elif kind == COPIES:
            if code.map not in self.maps:  # the copy engine reads the map itself first
                self.maps[code.map] = now + self.map_cycles + self.l2_pressure
            served = max(served, self.maps[code.map])
            done, level = self._load(warp, code, now, served)
            # All SMs copy alike, so each has its share of memory: it may bring the last byte later
            # than the path from the L2 would.
            share_free = max(self.share_free, served) + code.dram_bytes * self.box_memory
            self.share_free = share_free
            done += max(0.0, share_free - self.fill_free)
            if level == "dram":  # what comes from memory comes through the L2, and waits there too
                done += max(0.0, self.l2_pressure - self.dram_pressure)
                warp.data_end = max(warp.data_end, done)
            self._come(warp.block.gates[code.gate], done, -code.bytes, now, True)
            done, level = now, ""
        elif kind == AWAITS:
            self._await(warp, code, now)
            return
        if code.sets_result >= 0:
            self._hold(warp, code.sets_result, done, code.index, level)

    # ------------------------------------------------------------------- warps with roles

    def _multiply(self, warp: Warp, code: Code, now: float) -> None:
        """Start a product: the tensor core takes it when it has done those before."""
        part = warp.part
        self.tensor += code.amount * warp.weight
        part.tensor_free = max(part.tensor_free, now) + code.amount
        part.pipes_free[code.unit] = max(
            now + code.interval, part.tensor_free - self.queued * code.amount
        )
        warp.products_end = max(warp.products_end, part.tensor_free + code.latency)
        if code.closes:
            warp.products.append(warp.products_end)

    def _await(self, warp: Warp, code: Code, now: float) -> None:
        """Ask whether the phase of a parity has ended: the answer comes when it has."""
        gate = warp.block.gates[code.gate]
        while gate.passed < len(gate.ends) and gate.ends[gate.passed] <= now:
            gate.passed += 1
        if gate.passed % 2 != code.amount:
            self._hold(warp, code.sets_result, now + code.latency, code.index, "mbarrier")
        elif gate.passed < len(gate.ends):
            level = "copy" if gate.by_copy else "warp"
            until = gate.ends[gate.passed] + code.latency
            self._hold(warp, code.sets_result, until, code.index, level)
        else:
            gate.waiting.append((warp, code.sets_result, gate.passed, code.latency, code.index))
            self._hold(warp, code.sets_result, math.inf, code.index, "warp")

    def _come(self, gate: Mbarrier, at: float, size: float, now: float, by_copy: bool) -> None:
        """Someone arrived at an mbarrier, or bytes will have landed there, at a cycle."""
        gate.bytes += size
        if at >= gate.latest:
            gate.latest, gate.by_copy = at, by_copy
        if gate.missing > 1e-6 or abs(gate.bytes) > 1e-6:
            return
        ended = len(gate.ends)
        until = max(gate.latest, gate.ends[-1]) if gate.ends else gate.latest
        gate.ends.append(until)
        gate.missing, gate.latest = gate.takes, 0.0
        left = []
        for one in gate.waiting:
            warp, board, phase, latency, index = one
            if phase != ended:
                left.append(one)
                continue
            warp.free_at[board] = until + latency
            warp.producer[board], warp.level[board] = index, "copy" if gate.by_copy else "warp"
            if warp.parked:
                warp.parked = False
                heappush(self.queue, (max(now, self._ready(warp)), _WARP_READY, warp.number))
        gate.waiting = left

    def _meet(self, warp: Warp, code: Code, now: float, following: float) -> None:
        """Come to a named barrier; the last one lets all that wait there go on."""
        self.barrier_free = max(self.barrier_free, now) + self.barrier_step
        meetings = warp.block.meetings
        if code.gate not in meetings:
            meetings[code.gate] = NamedBarrier()
        here = meetings[code.gate]
        here.come += 1.0
        here.latest = max(here.latest, following)
        if code.kind == MEETS:
            here.waiting.append((warp, following))
        if here.come < code.amount - 1e-6:
            return
        there, here.waiting = here.waiting, []
        free = max(now, here.latest, self.barrier_free + self.barrier_cycles)
        here.come = here.latest = 0.0
        for one, ready in there:
            one.barrier_spent += free - ready
            self._queue_up(one, free)

    @staticmethod
    def _hold(warp: Warp, board: int, until: float, index: int, level: str) -> None:
        """Hold a scoreboard until a cycle; a later one counts."""
        if until > warp.free_at[board]:
            warp.free_at[board] = until
            warp.producer[board] = index
            warp.level[board] = level

    @staticmethod
    def _waited_for_data(warp: Warp, code: Code) -> bool:
        """Whether an instruction waited for what its warp had asked for."""
        if code.kind == DEPBAR:
            return True
        return any(warp.level[board] in ("dram", "l2") for board in code.waits)

    @staticmethod
    def _later(warp: Warp, code: Code, beside: float, apart: tuple[float, ...]) -> float:
        """Cycles by which the last of what a warp waits for comes after a request alone, this one
        being the latest. A load's value is used by itself; a group of copies is waited for as a
        whole, wherever they come from."""
        size, cycles, count = code.l2_bytes, 0.0, code.runs
        warp.asked += size
        if count > 1.0:
            warp.runs += count
        else:
            warp.places |= code.place
            if warp.asked > size:
                cycles = beside * math.log2(warp.asked / size)
        if code.kind == ASYNC:
            count = warp.runs + warp.places.bit_count()
        if count > 1.0:
            doublings = math.log2(count)
            before = min(int(doublings), len(apart) - 2)
            step = apart[before + 1] - apart[before]
            cycles += apart[before] + step * (doublings - before)
        return cycles

    def _load(self, warp: Warp, code: Code, now: float, served: float) -> tuple[float, str]:
        """(cycle when a load's data are there, level that served it).

        Shares of misses add up until they make a whole one.
        """
        tally = self.misses.get(code, 0.0) + code.missing
        if tally < _WHOLE:
            self.misses[code] = tally
            return served + code.l1, "l1"
        self.misses[code] = tally - 1.0
        size, weight = code.l2_bytes, warp.weight
        begin = self.fill_free if self.fill_free > served else served
        self.fill_free = begin + size * self.fill_cycles
        self.l2_bytes += size * weight
        self.dram_bytes += code.dram_bytes * weight
        tally = self.drams.get(code, 0.0) + code.from_dram
        if tally >= _WHOLE:
            tally -= 1.0
            later = self._later(warp, code, self.dram_beside, self.dram_apart)
            idle = begin + code.dram + later
            done, level = idle + self.dram_pressure, "dram"
            if idle < self.first_data:
                self.first_data = idle
            if done > warp.data_end:
                warp.data_end = done
        else:
            later = self._later(warp, code, self.l2_beside, self.l2_apart)
            done, level = begin + code.l2 + later + self.l2_pressure, "l2"
        self.drams[code] = tally
        self.flight += size * (done - now) * weight
        self.latency_sum += (done - now) * weight
        self.latency_count += weight
        return done, level

    def _keep_issue(self, warp: Warp, code: Code, part: SubPartition, now: float) -> None:
        """Keep what the watched warp waited for before this issue."""
        held = -1
        for board in code.waits:
            if held < 0 or warp.free_at[board] > warp.free_at[held]:
                held = board
        if held >= 0 and warp.free_at[held] <= warp.stall_end:
            held = -1
        fenced = held < 0 and warp.fence_until > warp.stall_end
        if held >= 0:
            waited = warp.free_at[held]
        else:
            waits = code.kind in (DEPBAR, PRODUCTS) or fenced
            waited = max(warp.stall_end, warp.ready_since if waits else 0.0)
        producer = warp.fence if fenced else warp.producer[held] if held >= 0 else -1
        full = 0.0
        if code.sm_interval:
            full = max(self.unit_free - QUEUE_CYCLES, part.pipes_free[code.unit])
        self.issues.append(
            (
                *(code.index, self.trip_now, warp.stall_end, waited, now, held, producer),
                *(warp.level[held] if held >= 0 else "", warp.barrier_spent, warp.fetch_spent),
                *(warp.last_issue, warp.weight, max(0.0, full - max(waited, warp.stall_end))),
            )
        )
        warp.barrier_spent = warp.fetch_spent = 0.0

    # ------------------------------------------------------------------- what comes after it

    def _settle(self, warp: Warp, now: float) -> _Due | None:
        """Pass marks and find when the warp's next instruction may issue; None if it leaves."""
        code = warp.stream[warp.place]
        while isinstance(code, Turn):
            if code.kind == STREAM_ENDS:
                warp.end = max(warp.end, max(warp.last_issue, now) + warp.correction)
                self._retire(warp, now)
                return None
            self._turn(warp, code)
            warp.place += 1
            code = warp.stream[warp.place]
        assert isinstance(code, Code)
        warp.next = code
        ready = now
        if code.line not in self.lines:
            self.lines.add(code.line)
            ready += self.line_cycles
            warp.fetch_spent += self.line_cycles
        warp.stall_end = ready
        ready = self._ready(warp)
        if ready == math.inf:
            warp.parked = True
            return None
        return ready, _WARP_READY, warp.number

    @staticmethod
    def _ready(warp: Warp) -> float:
        """Cycle when a warp's next instruction has all that it waits for."""
        code, ready = warp.next, warp.stall_end
        for board in code.waits:
            if warp.free_at[board] > ready:
                ready = warp.free_at[board]
        if warp.fence_until > ready:
            ready = warp.fence_until
        if code.kind == DEPBAR:
            allowed = int(code.latency)
            if len(warp.groups) > allowed:
                ready = max(ready, warp.groups[-1 - allowed])
        elif code.kind == PRODUCTS:
            allowed = int(code.latency)
            if len(warp.products) > allowed:
                ready = max(ready, warp.products[-1 - allowed])
        return ready

    def _queue_up(self, warp: Warp, now: float) -> None:
        """Queue the moment at which a warp's next instruction may issue."""
        due = self._settle(warp, now)
        if due is not None:
            heappush(self.queue, due)

    def _turn(self, warp: Warp, turn: Turn) -> None:
        """Note the begin of a loop's trip, or its end with what the trips left out would take."""
        count = turn.count
        corrected = warp.last_issue + warp.correction
        if turn.kind == TRIP_BEGINS:
            if turn.trip == 0:
                warp.begins.append([])
                warp.weights.append(warp.weight)
            if turn.trip == turn.kept - 1 and count > turn.kept:
                # The last simulated trip stands for all that are left.
                warp.weight = warp.weights[-1] * (count - turn.kept + 1)
            warp.begins[-1].append(corrected)
            if warp.number == self.number:
                self.trip_now = turn.trip
            return
        times = warp.begins.pop()
        warp.weight = warp.weights.pop()
        times.append(corrected)
        middle = len(times) // 2
        slope = (times[-1] - times[middle]) / (len(times) - 1 - middle)
        if count > turn.kept and self.fair:
            warp.correction += (count - turn.kept) * slope
        if warp.number == self.number:
            self.trip_now = -1
            self.slopes.append((turn.first, count, slope))

    def _release(self, block: Block, now: float) -> None:
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

    def _retire(self, warp: Warp, now: float) -> None:
        """A warp has left; when its whole block has, another block takes the place."""
        block = warp.block
        block.left -= 1
        if block.left:
            self._release(block, now)  # others may have waited at a barrier for this warp alone
        if block.left or not self.waiting_blocks:
            return
        self.waiting_blocks -= 1
        block.left = len(block.warps)
        block.start_over(self.gates)
        for other in block.warps:
            now = max(now, other.stores_end)
        begin = now + warp.correction
        for other in block.warps:
            other.start_over()
            other.age = self.youngest
            self.youngest += 1
            self._queue_up(other, begin)
