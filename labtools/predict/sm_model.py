"""An SM that issues in order, simulated until its loops settle. An instruction waits for stall
counts, scoreboards, an issue slot and its pipe. Once a few trips of a loop have passed, the rest
are taken to cost what the last ones cost. Blocks whose warps spread evenly are simulated on one of
the four sub-partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

from labtools.problem import LabError
from labtools.toolchain.sass import Instruction, Sass

from .lanes import TENSOR_MAP_BYTES
from .machine import UNITS, Machine, unit_of
from .native import sm_loop
from .streams import (
    SECTOR_BYTES,
    BlockStreams,
    FlatStreams,
    Mark,
    Op,
    Request,
    first_of,
    meetings_of,
)


@dataclass(frozen=True)
class Where:
    """Where the requests of one launch find data that the L1 does not have."""

    # by buffer, the share of requests that go to memory
    from_dram: dict[int, float] = field(default_factory=dict)
    # by buffer, memory bytes for one byte asked of the L2 (several blocks may ask for the same
    # bytes, which are read once)
    dram_share: dict[int, float] = field(default_factory=dict)
    l1_bytes: float = 0.0  # what is left of an SM's L1 beside shared memory
    l2_bytes: float = 0.0  # what the L2 keeps of data that are read again
    # resident_blocks_on_gpu, resident_blocks_on_sm: blocks that share them
    resident_blocks_on_gpu: int = 1
    resident_blocks_on_sm: int = 1
    # by buffer that a later launch or pass reads, the share of what is stored there that the L2
    # does not keep; what is stored elsewhere goes to memory
    stored_past_l2: dict[int, float] = field(default_factory=dict)


@dataclass(eq=False)
class Event:
    """One issue of the watched warp, never changed. It is not frozen: making it takes longer."""

    index: int  # position in the kernel
    trip: int  # of the innermost loop, or -1
    ready: float  # cycle when the stall count of the instruction before had passed
    waited: float  # cycle when the scoreboards were free
    issued: float  # cycle of issue
    scoreboard: int | None  # the one that was waited for longest, or None
    producer: int | None  # instruction that held it
    level: str  # ``l1``, ``l2``, ``dram`` for a load's producer, else an empty string
    barrier: float  # cycles at a barrier before this instruction
    fetch: float  # cycles for the instruction's own arrival (a taken branch, a cold cache line)
    before: float  # cycle when the warp's instruction before was issued
    weight: float  # trips that this issue stands for (the last simulated trip stands for the rest)
    unit: float  # cycles in which it could have issued, and the SM's load/store unit had no room


@dataclass(frozen=True)
class SmRun:
    """What the simulation of an SM gave."""

    cycles: float  # from the first instruction to the last warp's exit, all trips counted
    issued: float  # instructions issued by the SM, all trips counted
    # dram_bytes, l2_bytes: read from memory and from the L2 by the SM, all trips counted
    dram_bytes: float
    l2_bytes: float
    in_flight_bytes: float  # mean bytes asked for and not yet there, on the SM
    load_latency: float  # mean cycles from issue to arrival of loads that miss the L1
    # of the watched warp, loops cut short, as the loop kept them
    issues: Sequence[sm_loop.Issue] = field(repr=False)
    # (first instruction, trips, cycles a trip) of each loop of the watched warp, in the order in
    # which they ended
    slopes: tuple[tuple[int, int, float], ...]
    # that warp's number in its block: the first, or where warps have roles the one that works most
    watched: int = 0
    tensor_share: float = 0.0  # of the tensor cores' time, what products of warpgroups take
    # cycles before the first bytes from memory, were it idle, and after the last ones
    idle: float = 0.0

    @cached_property
    def events(self) -> tuple[Event, ...]:
        """Those issues, with names."""
        return tuple(_event(issue) for issue in self.issues)


@dataclass(frozen=True)
class Pressure:
    """Cycles that a load on memory adds to each request, beyond its unloaded latency."""

    dram: float = 0.0
    l2: float = 0.0


class OccupiedSm:
    """One SM that holds ``blocks`` equal blocks, all started together, under any load on memory.
    ``trips`` of a loop are simulated; ``scale`` has factors on latencies by class, for "what if".
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
        self.blocks, self.entry = blocks, streams.sass.entry
        self.placement = placement = _place_warps(streams, blocks, machine.sub_partitions)
        gates = _gates(streams, placement)
        encode = _Encoder(streams.sass, machine, where, scale or {}, placement, gates)
        barrier, memory = encode.factor("barrier"), encode.factor("memory")
        l2, dram = encode.scale.get("l2", memory), encode.scale.get("dram", memory)
        held = where.resident_blocks_on_gpu / where.resident_blocks_on_sm
        busy_sms = min(machine.sm_count, held)  # those that hold blocks
        self.numbers = partial(
            sm_loop.Numbers,
            pipes=len(UNITS),
            gates=tuple(gates.values()),
            queued=machine.product_queue - 1.0,
            map=machine.l2_rows(TENSOR_MAP_BYTES) * (scale or {}).get("memory", 1.0),
            barrier=machine.barrier_cycles * barrier,
            barrier_step=machine.barrier_interval * self.placement.share * barrier,
            fill=self.placement.share / machine.fill_bytes_per_cycle,
            line=machine.cold_line(streams.sass),
            read=machine.operand_read_cycles,
            box_memory=self.placement.share * busy_sms / machine.box_bytes_per_cycle,
            l2_beside=machine.l2_beside * l2,
            dram_beside=machine.dram_beside * dram,
            l2_apart=tuple(cycles * l2 for cycles in machine.l2_apart),
            dram_apart=tuple(cycles * dram for cycles in machine.dram_apart),
        )
        self.watched = 0
        if streams.meets:  # the first warp may copy for others; the one that works most is watched
            work = [streams.issued[warp] for warp, _, _ in placement.warps]
            self.watched = work.index(max(work))
        flat = streams.flat(trips)
        self.warps = _put_into_numbers(flat, [encode(op) for op in flat.ops], self.placement)

    def simulate(
        self,
        pressure: Pressure | None = None,
        watch: bool = True,
        total: int | None = None,
        fair: bool = True,
    ) -> SmRun:
        """Simulate the SM until ``total`` blocks (None: ``blocks``) have passed; ``watch`` keeps
        the first warp's issues. If ``fair``, the warp that has been ready longest issues first, and
        loops are extrapolated from their last trips. Otherwise a sub-partition goes on with the
        warp that it issued last and else takes the youngest (Huerta et al., "Analyzing Modern
        NVIDIA GPU cores", arXiv 2503.20481), and ``cycles`` is that of the cut loops."""
        pressure, placement = pressure or Pressure(), self.placement
        numbers = self.numbers(l2_pressure=pressure.l2, dram_pressure=pressure.dram)
        places = [(part, block) for _, part, block in placement.warps]
        done = sm_loop.Simulation(numbers, places, self.warps, fair, watch, self.watched)
        # Blocks that wait come to what is simulated: a sub-partition, or the SM.
        done.run(-(-(total or self.blocks) // placement.slots))
        if any(warp.parked for warp in done.warps):
            raise LabError(
                f"In the simulation the warps of {self.entry} wait for one another without end.",
                "a phase of an mbarrier gets fewer arrivals or bytes than it waits for; the "
                "forecast counts what lands by copies of a tensor map alone",
                "the kernel can be measured, and run on the CPU",
            )
        factor = placement.represents
        return SmRun(
            cycles=done.cycles,
            issued=done.issued * factor,
            dram_bytes=done.dram_bytes * factor,
            l2_bytes=done.l2_bytes * factor,
            in_flight_bytes=done.flight * factor / max(done.cycles, 1.0),
            load_latency=done.latency_sum / done.latency_count if done.latency_count else 0.0,
            issues=done.issues,
            slopes=tuple(done.slopes),
            watched=placement.warps[self.watched][0],
            tensor_share=done.tensor / len(done.parts) / max(done.cycles, 1.0),
            idle=done.first_data + done.cycles - done.last_data if done.last_data else 0.0,
        )


# -------------------------------------------------------------------------- what is simulated


@dataclass(frozen=True)
class _Placement:
    """Which warps are simulated, and where."""

    # (position in `BlockStreams.warps`, sub-partition, block) of each
    warps: tuple[tuple[int, int, int], ...]
    share: float  # sub-partitions that share what the SM has once, for one that is simulated
    represents: float  # warps of the SM for one that is simulated
    # of the blocks that wait for a place on the SM, one of so many comes to what is simulated
    slots: int


def _place_warps(streams: BlockStreams, blocks: int, parts: int) -> _Placement:
    """All warps of an SM, or those of one sub-partition where they spread evenly."""
    per_block = len(streams.warps)
    total = blocks * per_block
    # Warps with roles of their own (a producer, say) must all be there.
    alike = max(streams.issued) <= 2 * max(1, min(streams.issued))
    if streams.meets:
        part = _part_for_all(streams, parts)
        if part is not None:
            warps = range(part, per_block, parts)
            chosen = [(warp, 0, block) for block in range(blocks) for warp in warps]
            return _Placement(tuple(chosen), float(parts), total / len(chosen), 1)
    elif per_block == 1:
        chosen = [(0, 0, block) for block in range(-(-total // parts))]
        return _Placement(tuple(chosen), float(min(parts, total)), total / len(chosen), parts)
    elif per_block % parts == 0 and alike:
        warps = range(0, per_block, parts)
        chosen = [(warp, 0, block) for block in range(blocks) for warp in warps]
        return _Placement(tuple(chosen), float(parts), total / len(chosen), 1)
    every = [divmod(number, per_block) for number in range(total)]
    chosen = [(warp, number % parts, block) for number, (block, warp) in enumerate(every)]
    return _Placement(tuple(chosen), 1.0, 1.0, 1)


def _part_for_all(streams: BlockStreams, parts: int) -> int | None:
    """The sub-partition that stands for all: they do as much, or one does what a warpgroup is there
    for, as a warp that copies. None where they do different work."""
    per_block = len(streams.warps)
    if per_block % parts:
        return None
    groups = [streams.issued[first : first + parts] for first in range(0, per_block, parts)]
    uneven = [group for group in groups if max(group) > 2 * min(group)]
    working = {max(range(parts), key=group.__getitem__) for group in uneven}
    if len(working) > 1:
        return None
    part = working.pop() if working else 0
    chosen = range(part, per_block, parts)
    for place, takes in _places(streams).items():
        mine = sum(streams.arrivals[warp][place] for warp in chosen)
        every = sum(counts[place] for counts in streams.arrivals)
        if not mine or takes * mine % every:
            return None
    return part


def _places(streams: BlockStreams) -> dict[tuple[bool, int], int]:
    """Arrivals that a phase takes, of each barrier that somebody arrives at."""
    found: dict[tuple[bool, int], int] = {}
    for stream in streams.warps:
        for one, _ in meetings_of(stream):
            if one.named:
                found[one.place] = one.count
    for barrier, takes in streams.phases.items():
        if any(counts[False, barrier] for counts in streams.arrivals):
            found[False, barrier] = takes
    return found


def _gates(streams: BlockStreams, placement: _Placement) -> dict[tuple[bool, int], float]:
    """Arrivals of a phase that come from simulated warps: of the mbarriers, then of the named."""
    chosen = {warp for warp, _, _ in placement.warps}
    found = {}
    for place, takes in sorted(_places(streams).items()):
        mine = sum(streams.arrivals[warp][place] for warp in chosen)
        found[place] = takes * mine / sum(counts[place] for counts in streams.arrivals)
    for barrier, takes in streams.phases.items():  # those at which copies alone count
        found.setdefault((False, barrier), float(takes))
    return found


# ------------------------------------------------------------------- instructions with numbers


class _Encoder:
    """Puts the machine's numbers beside what a warp issues; ``gates`` is `_gates`, in order."""

    def __init__(
        self,
        sass: Sass,
        machine: Machine,
        where: Where,
        scale: Mapping[str, float],
        placement: _Placement,
        gates: Mapping[tuple[bool, int], float],
    ) -> None:
        self.sass, self.machine, self.where = sass, machine, where
        self.scale, self.share, self.represents = scale, placement.share, placement.represents
        self.gates = gates
        self.numbers = {place: number for number, place in enumerate(gates)}

    def factor(self, kind: str) -> float:
        """The factor on a class of latencies."""
        return self.scale.get(kind, 1.0)

    def __call__(self, op: Op) -> sm_loop.Code:
        """One instruction with its numbers."""
        machine, one = self.machine, self.sass.instructions[op.index]
        code = sm_loop.Code(self._kind(op, one) if op.on else sm_loop.FIXED, op.index)
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
        code.unit, code.interval = UNITS.index(unit), machine.interval(unit, one, self.sass)
        code.sm_interval = machine.shared_interval(one, op.request) * self.share
        factor = self.factor(machine.latency_class(one))
        if code.kind == sm_loop.DEPBAR:
            code.latency = float(_depbar_allowed(one))
        elif code.kind == sm_loop.FENCE:
            code.latency = machine.latency(one, None) * factor
        elif code.kind == sm_loop.VARIABLE:
            code.latency = machine.latency(one, op.request) * factor
        elif code.kind in (sm_loop.ARRIVES, sm_loop.AWAITS):
            name = "phase_ask" if code.kind == sm_loop.AWAITS else "phase_arrive"
            code.latency = machine.variable[name] * self.factor("barrier")
        elif code.kind == sm_loop.MULTIPLIES:
            code.amount, code.latency = machine.product(one)
            code.latency *= factor
            code.closes = any(o.text == "gsb0" for o in one.operands)
        elif code.kind == sm_loop.PRODUCTS:
            code.latency = float(_depbar_allowed(one))
        elif op.request is not None and code.kind in (sm_loop.LOAD, sm_loop.ASYNC):
            self._add_traffic(code, op.request)
        elif op.request is not None and code.kind == sm_loop.COPIES:
            self._add_traffic(code, op.request)
            # It brings what all sub-partitions use.
            code.l2_bytes /= self.represents
            code.dram_bytes /= self.represents
            code.map = op.request.buffer
        elif op.request is not None and code.kind == sm_loop.STORE:
            past_l2 = self.where.stored_past_l2.get(op.request.buffer, 1.0)
            code.l2_bytes = machine.stored_l2_bytes(op.request)
            code.dram_bytes = op.request.new_sectors * SECTOR_BYTES * past_l2
            if self.sass.has_roles:
                code.drain = machine.store_drain * self.factor("memory")
                taken = machine.store_interval(op.request) * self.share
                code.sm_interval = max(code.sm_interval, taken)
        meeting = op.meeting
        if meeting is not None and code.kind in _MEETING_KINDS:
            place, code.bytes = meeting.place, float(meeting.bytes)
            code.gate = meeting.barrier if meeting.named else self.numbers[place]
            code.amount = self.gates[place] if meeting.named else float(meeting.count)
        return code

    @staticmethod
    def _kind(op: Op, one: Instruction) -> int:
        """How the simulation treats an instruction that runs."""
        asked = op.request.kind if op.request is not None else ""
        if one.base == "EXIT":
            return sm_loop.EXIT
        if op.meeting is not None and op.meeting.kind in _KIND_OF_MEETING:
            return _KIND_OF_MEETING[op.meeting.kind]
        if one.base == "HGMMA":
            return sm_loop.MULTIPLIES
        if one.base == "WARPGROUP" and "DEPBAR" in one.modifiers:
            return sm_loop.PRODUCTS
        if one.base == "BAR" and "ARV" not in one.modifiers:
            return sm_loop.BARRIER
        if one.base == "DEPBAR":
            return sm_loop.DEPBAR
        if one.base == "LDGDEPBAR":
            return sm_loop.COMMIT
        if one.base == "MEMBAR" and {"GPU", "SYS"} & set(one.modifiers):
            return sm_loop.FENCE
        if asked in ("load", "atomic"):
            return sm_loop.LOAD
        if asked in ("async", "store"):
            return sm_loop.ASYNC if asked == "async" else sm_loop.STORE
        scored = one.control.write_barrier is not None or one.control.read_barrier is not None
        return sm_loop.VARIABLE if scored else sm_loop.FIXED

    def _add_traffic(self, code: sm_loop.Code, request: Request) -> None:
        """What a load asks of the L2 and of memory, and how long each takes."""
        machine, where = self.machine, self.where
        missing = min(1.0, request.new_sectors / request.sectors)
        from_dram = where.from_dram.get(request.buffer, 0.0)
        share = where.dram_share.get(request.buffer, 1.0)
        if request.kind == "atomic":
            missing, from_dram = 1.0, 0.0
        elif request.again is not None:
            if request.again * where.resident_blocks_on_sm < where.l1_bytes:
                missing = 0.0
            else:
                missing = min(1.0, request.again_sectors / request.sectors)
            if request.again * where.resident_blocks_on_gpu * share < where.l2_bytes:
                from_dram = 0.0
        size = request.sectors * SECTOR_BYTES
        factor = self.factor("memory")
        code.missing, code.from_dram = missing, from_dram
        code.place, code.runs = 1 << max(0, request.buffer), request.runs
        code.l2_bytes, code.dram_bytes = size, size * (from_dram * share)
        code.l1 = machine.l1_latency(request) * factor
        code.l2 = machine.l2_latency(request) * self.scale.get("l2", factor)
        code.dram = machine.dram_latency(request) * self.scale.get("dram", factor)


_KIND_OF_MEETING = {
    "arrive": sm_loop.ARRIVES,
    "wait": sm_loop.AWAITS,
    "copy": sm_loop.COPIES,
    "sync": sm_loop.MEETS,
    "leave": sm_loop.LEAVES,
}
_MEETING_KINDS = frozenset(_KIND_OF_MEETING.values())


def _depbar_allowed(one: Instruction) -> int:
    numbers = [o.value for o in one.operands if o.kind == "number"]
    return int(numbers[0] or 0) if numbers else 0


def _put_into_numbers(
    flat: FlatStreams, codes: Sequence[sm_loop.Code], placement: _Placement
) -> list[list[sm_loop.Streamed]]:
    """The stream of each simulated warp, with its marks; equal streams are one list."""
    turns = [_turn(mark) for mark in flat.marks]
    leave = sm_loop.Turn(sm_loop.STREAM_ENDS)
    known: dict[int, list[sm_loop.Streamed]] = {}
    found = []
    for which, _, _ in placement.warps:
        numbers = flat.warps[which]
        if id(numbers) not in known:
            stream = (codes[place] if place >= 0 else turns[-1 - place] for place in numbers)
            known[id(numbers)] = [*stream, leave]
        found.append(known[id(numbers)])
    return found


def _turn(mark: Mark) -> sm_loop.Turn:
    """The begin of a trip, or the end of a loop."""
    kind = sm_loop.LOOP_ENDS if mark.trip is None else sm_loop.TRIP_BEGINS
    return sm_loop.Turn(kind, first_of(mark.loop), mark.loop.count, mark.trip or 0, mark.kept)


def _event(issue: sm_loop.Issue) -> Event:
    """What the loop kept of an issue, with names."""
    index, trip, ready, waited, issued, *_, level, barrier, fetch, before, weight, unit = issue
    held, producer = (place if place >= 0 else None for place in issue[5:7])
    spent = barrier, fetch, before, weight, unit
    return Event(index, trip, ready, waited, issued, held, producer, level, *spent)
