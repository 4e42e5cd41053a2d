"""From a block's trace to what each warp issues, and where each load finds its data: in the L1 by
the addresses of the trips before, else by what the launch has touched and the cache."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby

import numpy as np

from labtools.toolchain import operands
from labtools.toolchain.operands import BOX_COPIES, GLOBAL_ACCESSES, GLOBAL_LOADS, SHARED_ACCESSES
from labtools.toolchain.sass import Instruction, Sass

from .banks import bank_turns, word_turns
from .lanes import BUFFER_SPACING, Buffers
from .trace import Executed, Execution, Repeat, Trace, TraceError, each_execution

SECTOR_BYTES = 32
SAMPLED_TRIPS = 5
_ACCESSES = GLOBAL_ACCESSES | SHARED_ACCESSES


@dataclass(frozen=True)
class Request:
    """One warp-wide memory request, on average over the trips of its loop."""

    # ``load``, ``async`` (to shared memory), ``box`` (the same by a tensor map), ``store``,
    # ``atomic`` or ``shared``
    kind: str
    bytes_per_lane: int  # width of one lane's access
    sectors: float  # 32-byte sectors asked for
    # of those, the ones that no earlier request of the block brought to the L1; of a store those
    # that go to memory, where stores that fill one sector after each other meet in the L2
    new_sectors: float
    buffer: int = -1  # position in `Buffers.names`, or -1
    # passes that shared memory needs (bank conflicts make it more than one), or 128-byte lines of a
    # global request
    wavefronts: int = 1
    # the data were touched by an earlier part of the block, this many bytes (of the whole block)
    # ago; None for a first touch
    again: float | None = None
    # sectors that an L1 must bring which has kept nothing of that earlier part
    again_sectors: float = 0.0
    runs: float = 1.0  # stretches of adjoining sectors that a global load or copy asks for

    @property
    def is_partial(self) -> bool:
        """Whether it stores less than the sectors that it touches, all lanes storing."""
        return self.kind == "store" and self.sectors > self.bytes_per_lane


@dataclass(frozen=True)
class Meeting:
    """What a warp says or asks at a barrier in shared memory, or at a named one."""

    # of an mbarrier ``init``, ``arrive``, ``wait`` or ``copy`` (bytes will land); of a named
    # barrier ``sync`` or ``leave`` (arrive without waiting)
    kind: str
    barrier: int  # address in shared memory, or the number of a named one
    # arrivals that a phase takes, or that are made; the parity that is waited for; of a named
    # barrier the warps that meet
    count: int = 0
    bytes: int = 0  # announced, or copied

    @property
    def named(self) -> bool:
        """Whether it is a named barrier."""
        return self.kind in ("sync", "leave")

    @property
    def place(self) -> tuple[bool, int]:
        """Which barrier of all."""
        return self.named, self.barrier


@dataclass(frozen=True)
class Op:
    """One instruction as one warp issues it."""

    index: int  # position in the kernel
    on: bool  # its guard holds on some lane; otherwise it only takes an issue slot
    taken: bool = False  # a branch that some lane takes
    request: Request | None = None  # what it asks of memory, or None
    # what it says at a barrier that not all warps of the block meet at, or None
    meeting: Meeting | None = None


@dataclass(frozen=True)
class LoopNode:
    """Operations repeated ``count`` times."""

    count: int
    body: tuple[Op | LoopNode, ...]


Node = Op | LoopNode


@dataclass(frozen=True)
class Mark:
    """Where a trip of a loop begins in a flat stream, in which ``kept`` of its trips stand; the
    loop's end where ``trip`` is None."""

    loop: LoopNode
    trip: int | None
    kept: int


@dataclass(frozen=True)
class FlatStreams:
    """Streams of a block with their loops cut to a few trips, laid out one after another."""

    ops: tuple[Op, ...]  # the different instructions
    marks: tuple[Mark, ...]  # the different begins and ends of trips
    # the stream of each warp: position in ``ops``, or -1 - position in ``marks``. Equal ones are
    # the same object.
    warps: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class BlockStreams:
    """What the warps of a block issue."""

    sass: Sass  # the kernel
    # the stream of each warp; equal ones are the same object
    warps: tuple[tuple[Node, ...], ...] = field(repr=False)

    @cached_property
    def issued(self) -> tuple[int, ...]:
        """Instructions that each warp issues."""
        return tuple(count_ops(stream) for stream in self.warps)

    @cached_property
    def meets(self) -> bool:
        """Whether warps have roles of their own, and wait for one another or for copies."""
        return any(self.arrivals)

    @cached_property
    def phases(self) -> dict[int, int]:
        """Arrivals that a phase of each mbarrier takes, by its address."""
        found = {}
        for stream in {id(stream): stream for stream in self.warps}.values():
            for one, _ in meetings_of(stream):
                if one.kind == "init":
                    found[one.barrier] = one.count
        return found

    @cached_property
    def arrivals(self) -> tuple[Counter[tuple[bool, int]], ...]:
        """Of each warp, how often it arrives, by barrier (`Meeting.place`)."""
        known: dict[int, Counter[tuple[bool, int]]] = {}
        for stream in self.warps:
            if id(stream) in known:
                continue
            counts = known[id(stream)] = Counter()
            for one, times in meetings_of(stream):
                if one.named or one.kind == "arrive":
                    counts[one.place] += times * (1 if one.named else one.count)
        return tuple(known[id(stream)] for stream in self.warps)

    @cached_property
    def _flat(self) -> dict[int, FlatStreams]:
        return {}

    def flat(self, trips: int) -> FlatStreams:
        """The streams with at most so many trips of each loop; the same number of phases is left
        out of each where warps wait for one another."""
        if trips not in self._flat:
            kept = _keep_phases(self.warps, trips) if self.meets else None
            self._flat[trips] = _flatten(self.warps, trips, kept)
        return self._flat[trips]

    def issued_cut(self, trips: int) -> int:
        """Instructions of all warps in `flat`."""
        return sum(sum(place >= 0 for place in warp) for warp in self.flat(trips).warps)


def each_op(nodes: Sequence[Node], times: int = 1) -> Iterator[tuple[Op, int]]:
    """Every instruction of a stream, and how often it is issued."""
    for node in nodes:
        if isinstance(node, LoopNode):
            yield from each_op(node.body, times * node.count)
        else:
            yield node, times


def meetings_of(nodes: Sequence[Node]) -> Iterator[tuple[Meeting, int]]:
    """What a stream says at barriers, and how often."""
    return ((op.meeting, times) for op, times in each_op(nodes) if op.meeting is not None)


def _phases_of(loop: LoopNode) -> int:
    """Phases of a barrier that a trip of a loop goes through; 0 if it meets nobody."""
    counts: Counter[tuple[str, bool, int]] = Counter()
    for one, times in meetings_of(loop.body):
        counts[one.kind, one.named, one.barrier] += times
    return max((n for (kind, *_), n in counts.items() if kind in ("arrive", "wait")), default=0)


def _keep_phases(warps: Sequence[tuple[Node, ...]], trips: int) -> dict[int, int]:
    """Trips to keep of each warp's longest loop, by its identity: all leave out as many phases."""
    longest: dict[int, tuple[LoopNode, int]] = {}
    for stream in {id(stream): stream for stream in warps}.values():
        loops = [(node, _phases_of(node)) for node in stream if isinstance(node, LoopNode)]
        loops = [(node, phases) for node, phases in loops if phases]
        if loops:
            longest[id(stream)] = max(loops, key=lambda one: one[0].count * one[1])
        elif any(not one.named and one.kind != "init" for one, _ in meetings_of(stream)):
            return {}  # it is too short to leave anything out
    if not longest:
        return {}
    least = min((loop.count - trips) * phases for loop, phases in longest.values())
    step = math.lcm(*(phases for _, phases in longest.values()))
    left_out = max(0, least // step * step)
    return {id(loop): loop.count - left_out // phases for loop, phases in longest.values()}


def _flatten(
    warps: Sequence[tuple[Node, ...]], trips: int, kept: Mapping[int, int] | None = None
) -> FlatStreams:
    ops: dict[Op, int] = {}
    number_of: dict[int, int] = {}  # the same by identity, which needs no hash of a request
    marks: list[Mark] = []

    def mark(loop: LoopNode, trip: int | None, some: int) -> int:
        marks.append(Mark(loop, trip, some))
        return -len(marks)

    def lay_out(nodes: Sequence[Node]) -> list[int]:
        found: list[int] = []
        for node in nodes:
            if isinstance(node, LoopNode):
                body = lay_out(node.body)
                some = min(node.count, trips) if kept is None else kept.get(id(node), node.count)
                for trip in range(some):
                    found.append(mark(node, trip, some))
                    found += body
                found.append(mark(node, None, some))
                continue
            number = number_of.get(id(node))
            if number is None:
                number = number_of[id(node)] = ops.setdefault(node, len(ops))
            found.append(number)
        return found

    known: dict[int, tuple[int, ...]] = {}
    for stream in warps:
        if id(stream) not in known:
            known[id(stream)] = tuple(lay_out(stream))
    return FlatStreams(tuple(ops), tuple(marks), tuple(known[id(stream)] for stream in warps))


def count_ops(nodes: Sequence[Node]) -> int:
    """Instructions issued, all trips counted."""
    return sum(times for _, times in each_op(nodes))


def first_of(loop: LoopNode) -> int:
    """Position in the kernel of the first instruction that a loop issues."""
    node: Node = loop
    while isinstance(node, LoopNode):
        node = node.body[0]
    return node.index


def block_streams(trace: Trace, buffers: Buffers) -> BlockStreams:
    """Streams of every warp of a traced block, with their memory requests."""
    requests = _Requests(trace, buffers)
    requests.walk(trace.items)
    streams = _Streams(requests, trace.sass).of(trace.items)
    return BlockStreams(trace.sass, tuple(streams))


class _Streams:
    """Lays steps out for all warps at once; what is equal is the same object."""

    def __init__(self, requests: _Requests, sass: Sass) -> None:
        self.requests = requests
        self.code = sass.instructions
        self.warps = len(requests.firsts)
        # Where warps have roles, one lane often goes on alone.
        self.exits = [sass.has_roles and one.base == "EXIT" for one in sass.instructions]
        self._ops: dict[tuple[int, bool, Request | None, Meeting | None], Op] = {}
        self._loops: dict[tuple[int, int], LoopNode] = {}
        self._known: dict[tuple[int, ...], tuple[Node, ...]] = {}

    def of(self, items: Sequence[Executed]) -> list[tuple[Node, ...]]:
        """The stream of each warp."""
        found: list[list[Node]] = [[] for _ in range(self.warps)]
        for item in items:
            if isinstance(item, Repeat):
                self.requests.check_meetings(item)
                for stream, body in zip(found, self.of(item.body), strict=True):
                    if body:
                        stream.append(self._loop(item.count, body))
                continue
            active, executing = self.requests.warps_at(item)
            stays = self.requests.stays_at(item) if self.exits[item.index] else executing
            base = self.code[item.index].base
            asks = base in _ACCESSES or base in BOX_COPIES
            meets = base in operands.MEETINGS and item.numbers is not None
            last: tuple[bool, Request | None, Meeting | None, Op] | None = None
            for warp, stream in enumerate(found):
                if not active[warp]:
                    continue
                on = executing[warp] and (stays is executing or not stays[warp])
                request = self.requests.of(item, warp) if on and asks else None
                meeting = self.requests.meeting(item, warp) if on and meets else None
                if last is None or last[:3] != (on, request, meeting):
                    made = self._op(item.index, on, request, meeting)
                    last = (on, request, meeting, made)
                stream.append(last[3])
        # Operations of equal content are the same object here, so that no hash of one is needed.
        return [self._known.setdefault(tuple(map(id, stream)), tuple(stream)) for stream in found]

    def _op(self, index: int, on: bool, request: Request | None, meeting: Meeting | None) -> Op:
        key = (index, on, request, meeting)
        made = self._ops.get(key)
        if made is None:
            one = self.code[index]
            taken = on and one.base in ("BRA", "JMP", "CALL", "RET") and "DIV" not in one.modifiers
            made = self._ops[key] = Op(index, on, taken, request, meeting)
        return made

    def _loop(self, count: int, body: tuple[Node, ...]) -> LoopNode:
        return self._loops.setdefault((count, id(body)), LoopNode(count, body))


@dataclass
class _Tally:
    """Sectors of one step and warp, summed over sampled trips."""

    trips: int = 0
    sectors: int = 0
    new: int = 0
    again: int = 0
    lines: int = 0
    runs: int = 0

    def add(self, sectors: int, new: int, again: int, lines: int, runs: int = 1) -> None:
        """One more trip."""
        self.trips += 1
        self.sectors += sectors
        self.new += new
        self.again += again
        self.lines += lines
        self.runs += runs


@dataclass
class _Interval:
    buffer: int
    low: int
    high: int
    start_bytes: float  # what the block had touched when it began to touch this


def _per_warp(coded: np.ndarray) -> np.ndarray:
    """[64] how many of the codes, whose last six bits are a warp, belong to each warp."""
    return np.bincount((coded & np.uint64(63)).astype(np.int64), minlength=64)


class _Requests:
    """Walks a trace once in program order, with an L1 that forgets nothing within a loop."""

    def __init__(self, trace: Trace, buffers: Buffers) -> None:
        self.trace = trace
        self.code = trace.sass.instructions
        self.buffers = buffers
        self.warp = (np.arange(trace.lanes.count) // 32).astype(np.uint64)
        self.tally: dict[int, dict[int, _Tally]] = {}
        self.shared: dict[int, dict[int, int]] = {}
        self.place: dict[int, int] = {}
        self.again: dict[int, float] = {}
        self.merged: dict[int, float] = {}  # of a store, sectors that go to memory over those asked
        self.seen: dict[int, int] = {}  # the part of the block that touched a sector last
        self.part = 0  # the loop, or what stands between two
        self.intervals: list[_Interval] = []
        self.total_bytes = 0.0
        self.firsts = np.arange(0, trace.lanes.count, 32)
        self._any_lane: dict[int, list[bool]] = {}
        self._turns: dict[tuple[str, int, bytes, bytes], int] = {}

    def warps_at(self, step: Execution) -> tuple[list[bool], list[bool]]:
        """[warps] whether a lane of each came by a step, and whether one executed it."""
        return self._of_warps(step.active), self._of_warps(step.executing)

    def stays_at(self, step: Execution) -> list[bool]:
        """[warps] whether lanes of each come by an exit and do not take it: the warp goes on."""
        stays = step.active & ~step.executing
        return np.logical_or.reduceat(stays, self.firsts).tolist()

    def _of_warps(self, lanes: np.ndarray) -> list[bool]:
        """[warps] whether it holds of a lane; steps share their masks, which the trace keeps."""
        found = self._any_lane.get(id(lanes))
        if found is None:
            found = np.logical_or.reduceat(lanes, self.firsts).tolist()
            self._any_lane[id(lanes)] = found
        return found

    def walk(self, items: Sequence[Executed]) -> None:
        """Follow the trace; the requests can be asked for afterwards."""
        self._mark_intervals(items)
        looped = False
        for item in items:
            self.part += looped or isinstance(item, Repeat)
            looped = isinstance(item, Repeat)
            if isinstance(item, Repeat):
                self._repeat(item)
            else:
                self._touch(item, item.address, counted=True)
        self._merge_stores(items)

    def _merge_stores(self, items: Sequence[Executed]) -> None:
        """Which part of the sectors that stores ask for goes to memory: of one loop, or of what
        stands between two, no more than all the bytes from a lane's first to its last."""
        for plain, group in groupby(items, lambda item: isinstance(item, Execution)):
            for segment in [list(group)] if plain else ([item] for item in group):
                asked: dict[int, float] = {}
                steps: list[tuple[int, Execution]] = []
                for step, times in each_execution(segment):
                    if self.code[step.index].base in operands.GLOBAL_STORES:
                        steps.append((self.place.get(id(step), -1), step))
                        sectors = (
                            tally.sectors / max(1, tally.trips)
                            for tally in self.tally.get(id(step), {}).values()
                        )
                        size = SECTOR_BYTES * sum(sectors) * times
                        asked[steps[-1][0]] = asked.get(steps[-1][0], 0.0) + size
                spans = lane_spans(segment, self.code, self.trace.lanes.count, _stores)
                for buffer, step in steps:
                    if buffer in spans and asked[buffer] and not _is_nested(segment):
                        union = union_bytes(*spans[buffer])
                        self.merged[id(step)] = min(1.0, union / asked[buffer])

    def _repeat(self, loop: Repeat) -> None:
        trips = min(loop.count, SAMPLED_TRIPS)
        for trip in range(trips):
            for first, second in zip(loop.body, loop.second, strict=True):
                if isinstance(first, Repeat):
                    if trip == 0:
                        self._repeat(first)
                    continue
                if first.address is None:
                    self._touch(first, None, counted=True)
                    continue
                address = first.address
                if second.address is not None and trip:  # type: ignore[union-attr]
                    step = second.address - first.address  # type: ignore[union-attr]
                    address = address + step * np.uint64(trip)
                self._touch(first, address, counted=trip > 0 or trips == 1)

    def _touch(self, step: Execution, address: np.ndarray | None, counted: bool) -> None:
        one = self.code[step.index]
        if one.base in SHARED_ACCESSES:
            if id(step) not in self.shared:
                self.shared[id(step)] = self._conflicts(step, address)
            return
        if one.base in BOX_COPIES and address is not None and step.executing.any():
            first_byte = address[step.executing][0]
            self.place.setdefault(id(step), int(first_byte // np.uint64(BUFFER_SPACING)) - 1)
        if one.base not in GLOBAL_ACCESSES or not step.executing.any():
            return
        width = one.access_bytes
        tallies = self.tally.setdefault(id(step), {})
        lanes = step.executing
        if address is None:
            for warp in np.unique(self.warp[lanes]):
                count = int((lanes & (self.warp == warp)).sum())
                asked = max(1, -(-count * width // SECTOR_BYTES))
                tallies.setdefault(int(warp), _Tally()).add(asked, asked, asked, max(1, asked // 4))
            return
        used = address[lanes]
        self.place.setdefault(id(step), int(used[0] // np.uint64(BUFFER_SPACING)) - 1)
        first = used // np.uint64(SECTOR_BYTES)
        last = (used + np.uint64(width - 1)) // np.uint64(SECTOR_BYTES)
        pieces = int((last - first).max()) + 1
        sectors = np.concatenate([np.minimum(first + np.uint64(i), last) for i in range(pieces)])
        warps = np.tile(self.warp[lanes], pieces)
        coded = np.unique(sectors * np.uint64(64) + warps)
        wanted = _per_warp(coded)
        lines = _per_warp(np.unique(coded >> np.uint64(8) << np.uint64(6) | coded & np.uint64(63)))
        by_warp = np.sort(coded << np.uint64(58) | coded >> np.uint64(6))
        begins = np.flatnonzero(np.diff(by_warp, prepend=np.uint64(0)) != 1)
        runs = np.bincount((by_warp[begins] >> np.uint64(58)).astype(np.int64), minlength=64)
        if one.base in GLOBAL_LOADS:
            # Of warps that ask for one sector the first brings it.
            sector_of = coded >> np.uint64(6)
            brings = np.flatnonzero(np.diff(sector_of, prepend=np.uint64(0)))
            last_in = [self.seen.get(sector, -1) for sector in sector_of[brings].tolist()]
            known = np.array(last_in)
            new = _per_warp(coded[brings[known < 0]])
            again = _per_warp(coded[brings[known != self.part]])
            self.seen.update(dict.fromkeys(sector_of[brings].tolist(), self.part))
        else:
            new = again = wanted
        for warp in np.flatnonzero(wanted).tolist():
            tally = tallies.setdefault(warp, _Tally())
            if counted:
                tally.trips = max(0, tally.trips)
                counts = (each[warp] for each in (wanted, new, again, lines, runs))
                tally.add(*map(int, counts))
            elif not tally.trips:  # the cold first trip only stands in until others follow
                tally.trips = -1

    def _conflicts(self, step: Execution, address: np.ndarray | None) -> dict[int, int]:
        """Wavefronts a warp: how often the most wanted bank must be read."""
        one = self.code[step.index]
        width = one.access_bytes
        found = {}
        for warp, comes in enumerate(self._of_warps(step.executing)):
            if not comes:
                continue
            mine = slice(32 * warp, 32 * warp + 32)
            lanes = step.executing[mine]
            if one.base in ("LDSM", "STSM"):
                least = matrices(one)
                if address is not None and bool(lanes.all()):
                    least = self._turns_of("matrix", least, address[mine], lanes)
            elif address is not None and width <= 16:
                kind = "load" if one.base == "LDS" else "other"
                least = max(1, self._turns_of(kind, width, address[mine][lanes], lanes))
            else:
                least = max(1, int(lanes.sum()) * width // 128)
            found[warp] = least
        return found

    def _turns_of(self, kind: str, size: int, address: np.ndarray, lanes: np.ndarray) -> int:
        """Turns of the banks for one warp's addresses; the banks come round every 128 bytes."""
        place = (address - (address[0] & ~np.uint64(127))).astype(np.int64)
        key = (kind, size, place.tobytes(), lanes.tobytes())
        found = self._turns.get(key)
        if found is None:
            words = place // 4
            if kind == "matrix":  # lanes 8i to 8i+7 name the rows of matrix i, read together
                found = sum(bank_turns(words[: 8 * size], 8, 4))
            else:
                found = word_turns(words, lanes, size, loads=kind == "load")
            self._turns[key] = found
        return found

    # ------------------------------------------------------------------ what was touched before

    def _mark_intervals(self, items: Sequence[Executed]) -> None:
        """Which parts of buffers each segment touches, and whether an earlier one did."""
        for plain, group in groupby(items, lambda item: isinstance(item, Execution)):
            for segment in [list(group)] if plain else ([item] for item in group):
                self._segment(segment)

    def _segment(self, items: Sequence[Executed]) -> None:
        spans: dict[int, tuple[int, int]] = {}
        steps: list[tuple[int, Execution, int, int]] = []
        for step, low, high in _spans(items, self.code):
            buffer = low // BUFFER_SPACING - 1
            steps.append((buffer, step, low, high))
            old = spans.get(buffer, (low, high))
            spans[buffer] = (min(low, old[0]), max(high, old[1]))
        for buffer, step, low, high in steps:
            distance = self._distance(buffer, low, high)
            if distance is not None:
                self.again[id(step)] = distance
        start = self.total_bytes
        for buffer, (low, high) in spans.items():
            same = [known for known in self.intervals if known.buffer == buffer]
            if not any(known.low <= low and high <= known.high for known in same):
                self.total_bytes += high - low
            self.intervals.append(_Interval(buffer, low, high, start))

    def _distance(self, buffer: int, low: int, high: int) -> float | None:
        for known in reversed(self.intervals):
            if known.buffer != buffer:
                continue
            overlap = min(high, known.high) - max(low, known.low)
            if overlap > 0.5 * (high - low):
                return max(float(high - low), self.total_bytes - known.start_bytes)
        return None

    def meeting(self, step: Execution, warp: int) -> Meeting | None:
        """What one warp says at a barrier; None where the whole block meets, or nothing is said."""
        one, numbers = self.code[step.index], step.numbers
        assert numbers is not None
        lanes = 32 * warp + np.flatnonzero(step.executing[32 * warp : 32 * warp + 32])
        barrier, said = (int(number[lanes[0]]) for number in numbers[:2])
        if (numbers[0][lanes] != barrier).any():
            what = f"Lanes of one warp of {self.trace.sass.entry} are at several barriers."
            raise TraceError(what, f"at {one.text}")
        threads = self.trace.lanes.count
        if one.base == "BAR":
            if barrier == 0 and said in (0, threads):
                return None
            kind = "leave" if "ARV" in one.modifiers else "sync"
            return Meeting(kind, barrier, -(-(said or threads) // 32))
        if one.base in BOX_COPIES:
            return Meeting("copy", barrier, bytes=said)
        if "EXCH" in one.modifiers:  # the unit counts up, to 2^20
            return Meeting("init", barrier, (1 << 20) - (said >> 1))
        if "PHASECHK" in one.modifiers:
            return Meeting("wait", barrier, said >> 31)
        if "ARRIVE" not in one.modifiers:
            return None
        # A1T0 is one arrival and no bytes; without such a name the operand says the bytes.
        form = next((m for m in one.modifiers if m[0] == "A" and m[2:3] == "T"), "A1TR")
        count = said if form[1] == "R" else int(form[1])
        announced = 0 if form[3:] == "0" else said
        return Meeting("arrive", barrier, count * len(lanes), announced * len(lanes))

    def check_meetings(self, loop: Repeat) -> None:
        """Refuse a loop in which each trip meets at another barrier."""
        for first, second in zip(loop.body, loop.second, strict=True):
            if isinstance(first, Repeat) or isinstance(second, Repeat):
                continue
            if first.numbers is None or second.numbers is None:
                continue
            for one, two in zip(first.numbers[:2], second.numbers[:2], strict=True):
                if (one[first.executing] != two[first.executing]).any():
                    what = f"A loop of {self.trace.sass.entry} meets at another barrier each trip."
                    raise TraceError(what, f"at {self.code[first.index].text}")

    # ---------------------------------------------------------------------------------- result

    def of(self, step: Execution, warp: int) -> Request | None:
        """The request of one warp at one step, or None if it is no memory instruction."""
        one = self.code[step.index]
        width = one.access_bytes
        if one.base in BOX_COPIES:
            assert step.numbers is not None
            lane = int(np.flatnonzero(step.executing[32 * warp : 32 * warp + 32])[0])
            sectors = float(step.numbers[1][32 * warp + lane]) / SECTOR_BYTES
            return Request("box", 16, sectors, sectors, self.place.get(id(step), -1))
        if one.base in SHARED_ACCESSES:
            waves = self.shared.get(id(step), {}).get(warp)
            return None if waves is None else Request("shared", width, 0, 0, wavefronts=waves)
        tally = self.tally.get(id(step), {}).get(warp)
        if tally is None or tally.trips == 0:
            return None
        trips = max(1, tally.trips)
        kind = "async" if one.base == "LDGSTS" else "load"
        if one.base in operands.GLOBAL_STORES | operands.GLOBAL_ATOMICS:
            kind = "store" if one.base in operands.GLOBAL_STORES else "atomic"
        sectors, new = max(1.0, tally.sectors / trips), tally.new / trips
        if kind == "store":
            new = sectors * self.merged.get(id(step), 1.0)
        buffer, lines = self.place.get(id(step), -1), max(1, round(tally.lines / trips))
        again = self.again.get(id(step))
        runs = max(1.0, tally.runs / trips)
        brought = 0.0 if again is None else tally.again / trips
        return Request(kind, width, sectors, new, buffer, lines, again, brought, runs)


def matrices(one: Instruction) -> int:
    """Matrices of 8 x 8 that an ``LDSM`` or ``STSM`` moves: 1, 2 or 4."""
    return int(one.modifiers[-1]) if one.modifiers[-1] in ("2", "4") else 1


def _spans(items: Sequence[Executed], code: Sequence) -> list[tuple[Execution, int, int]]:
    """(step, first byte, end) of every global load with known addresses, all trips counted."""
    found: list[tuple[Execution, int, int]] = []
    for item in items:
        if isinstance(item, Execution):
            one = code[item.index]
            if _reads(one) and item.address is not None and item.executing.any():
                used = item.address[item.executing]
                width = int(np.max(_reach(one, item)))
                found.append((item, int(used.min()), int(used.max()) + width))
            continue
        inner_first = _spans(item.body, code)
        inner_second = dict(enumerate(_spans(item.second, code)))
        for number, (step, low, high) in enumerate(inner_first):
            other = inner_second.get(number)
            stride = (other[1] - low) if other is not None else 0
            reach = stride * (item.count - 1)
            found.append((step, min(low, low + reach), max(high, high + reach)))
    return found


def _reads(one: Instruction) -> bool:
    """Whether an instruction reads global memory."""
    return one.base in GLOBAL_LOADS or one.base in BOX_COPIES


def _reach(one: Instruction, step: Execution) -> np.ndarray | int:
    """Bytes from the first that a read touches to its last: of each lane, or of all."""
    if one.base in BOX_COPIES and step.numbers is not None:
        return step.numbers[2].astype(np.int64)
    return one.access_bytes


def _stores(one: Instruction) -> bool:
    """Whether an instruction writes global memory."""
    return one.base in operands.GLOBAL_STORES


def _is_nested(items: Sequence[Executed]) -> bool:
    """Whether a loop has another one in it."""
    return any(
        isinstance(inner, Repeat)
        for item in items
        if isinstance(item, Repeat)
        for inner in item.body
    )


def block_spans(trace: Trace, buffers: Buffers) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """First byte and end that each lane's loads touch, by buffer: two arrays of uint64 [N]."""
    return lane_spans(trace.items, trace.sass.instructions, trace.lanes.count, _reads)


def lane_spans(
    items: Sequence[Executed],
    code: Sequence[Instruction],
    lanes: int,
    wanted: Callable[[Instruction], bool],
) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """First byte and end that each lane's wanted accesses touch, by buffer: uint64 [lanes] each."""
    found: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def include(buffer: int, mask: np.ndarray, low: np.ndarray, high: np.ndarray) -> None:
        if buffer not in found:
            found[buffer] = (np.full(lanes, np.iinfo(np.int64).max), np.zeros(lanes, np.int64))
        first, end = found[buffer]
        first[mask] = np.minimum(first[mask], low[mask])
        end[mask] = np.maximum(end[mask], high[mask])

    def walk(
        items: Sequence[Executed], seconds: Sequence[Executed] | None, reach: int | np.ndarray
    ) -> None:
        for number, item in enumerate(items):
            if isinstance(item, Repeat):
                trips = item.count if item.counts is None else np.maximum(1, item.counts)
                walk(item.body, item.second, trips - 1)
                continue
            one = code[item.index]
            if not wanted(one) or item.address is None or not item.executing.any():
                continue
            address = item.address.view(np.int64)
            buffer = int(address[item.executing][0] // BUFFER_SPACING) - 1
            low, high = address, address + _reach(one, item)
            if seconds is not None:
                other = seconds[number]
                if isinstance(other, Execution) and other.address is not None:
                    moved = (other.address.view(np.int64) - address) * reach
                    low, high = np.minimum(low, low + moved), np.maximum(high, high + moved)
            include(buffer, item.executing, low, high)

    walk(items, None, 0)
    return {buffer: (np.where(end > 0, first, 0), end) for buffer, (first, end) in found.items()}


def union_bytes(low: np.ndarray, high: np.ndarray) -> float:
    """Length of the union of intervals [low, high)."""
    keep = high > low
    low, high = low[keep], high[keep]
    if not len(low):
        return 0.0
    order = np.argsort(low, kind="stable")
    low, high = low[order], high[order]
    reach = np.maximum.accumulate(high)
    previous = np.r_[low[0], reach[:-1]]
    return float(np.maximum(0, high - np.maximum(low, previous)).sum())
