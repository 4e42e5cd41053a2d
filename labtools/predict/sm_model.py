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

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

from labtools.toolchain.sass import Instruction

from .machine import Machine, unit_of
from .streams import BlockStreams, LoopNode, Node, Op, count_ops, first_of

_FIXED, _VARIABLE, _LOAD, _BARRIER, _STORE, _DEPBAR, _ASYNC, _COMMIT, _EXIT, _FENCE = range(10)
SECTOR_BYTES = 32
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


def simulate_sm(
    streams: BlockStreams,
    blocks: int,
    machine: Machine,
    where: Where,
    pressure: Pressure | None = None,
    trips: int = 6,
    watch: bool = True,
    scale: dict[str, float] | None = None,
    total: int | None = None,
    fair: bool = True,
) -> SmRun:
    """Simulate one SM that holds ``blocks`` equal blocks from start to end.

    Args:
        streams: what the warps of a block issue.
        blocks: resident blocks, all started together.
        machine: latencies, intervals and shared units of the GPU.
        where: levels that serve loads.
        pressure: what the traffic of all SMs adds to each load.
        trips: trips of a loop that are simulated; the slope comes from the later half.
        watch: keep the first warp's issues.
        scale: factors on latencies by class, for "what if": shared, shuffle, memory, barrier, ...
        total: blocks that pass through the SM; each one that ends makes room for another. None is
            ``blocks``.
        fair: the warp that has been ready longest issues first, and loops are extrapolated from
            their last trips. Otherwise a sub-partition goes on with the warp that it issued last
            and else takes the youngest (Huerta et al., "Analyzing Modern NVIDIA GPU cores",
            arXiv 2503.20481), and nothing is extrapolated: ``cycles`` is that of the cut loops.
    """
    model = _Sm(
        streams, blocks, machine, where, pressure or Pressure(), trips, watch, scale or {}, fair
    )
    return model.run(total or blocks)


class _Sm:
    def __init__(
        self,
        streams: BlockStreams,
        blocks: int,
        machine: Machine,
        where: Where,
        pressure: Pressure,
        trips: int,
        watch: bool,
        scale: dict[str, float],
        fair: bool,
    ) -> None:
        self.fair = fair
        self.sass = streams.sass
        self.machine = machine
        self.where = where
        self.pressure = pressure
        self.trips = trips
        self.watch = watch
        self.scale = scale
        self.ops: list[tuple] = []
        self.op_numbers: dict[tuple[int, bool, bool, object], int] = {}
        self._choose_warps(streams, blocks)

    def _choose_warps(self, streams: BlockStreams, blocks: int) -> None:
        """Which warps are simulated, on which sub-partition, in which block."""
        parts = self.machine.sub_partitions
        per_block = len(streams.warps)
        # Warps with roles of their own (a producer, say) must all be there.
        issued = [count_ops(stream) for stream in streams.warps]
        alike = max(issued) <= 2 * max(1, min(issued))
        even = (per_block % parts == 0 and alike) or per_block == 1
        self.flat: list[list[int]] = []
        self.part: list[int] = []
        self.block: list[int] = []
        self.marks: list[tuple[str, int, LoopNode]] = []
        cache: dict[int, list[int]] = {}

        def flat(stream: tuple[Node, ...]) -> list[int]:
            if id(stream) not in cache:
                cache[id(stream)] = self._flatten(stream)
            return cache[id(stream)]

        total = blocks * per_block
        if even:
            if per_block == 1:
                busy = min(parts, total)
                chosen = [(block, 0) for block in range(-(-total // parts))]
            else:
                busy = parts
                chosen = [
                    (block, warp) for block in range(blocks) for warp in range(0, per_block, parts)
                ]
            self.share = float(busy)
            self.represents = total / len(chosen)
            self.slots_of_sm = parts if per_block == 1 else 1
            for block, warp in chosen:
                self.flat.append(flat(streams.warps[warp]))
                self.part.append(0)
                self.block.append(block)
        else:
            self.share = 1.0
            self.represents = 1.0
            self.slots_of_sm = 1
            for number in range(total):
                block, warp = divmod(number, per_block)
                self.flat.append(flat(streams.warps[warp]))
                self.part.append(number % parts)
                self.block.append(block)

    # -------------------------------------------------------------------------------- streams

    def _flatten(self, stream: Sequence[Node]) -> list[int]:
        """Operations as numbers; marks of loops as negative numbers (-1 - position)."""
        found: list[int] = []
        self._append(stream, found, [])
        return found

    def _append(self, nodes: Sequence[Node], found: list[int], path: list[int]) -> None:
        for node in nodes:
            if isinstance(node, LoopNode):
                trips = min(node.count, self.trips)
                for trip in range(trips):
                    self._mark("trip", trip, node, found)
                    self._append(node.body, found, path)
                self._mark("end", trips, node, found)
            else:
                found.append(self._number(node))

    def _mark(self, kind: str, trip: int, loop: LoopNode, found: list[int]) -> None:
        self.marks.append((kind, trip, loop))
        found.append(-len(self.marks))

    def _number(self, op: Op) -> int:
        key = (op.index, op.on, op.taken, op.request)
        if key not in self.op_numbers:
            self.op_numbers[key] = len(self.ops)
            self.ops.append(self._encode(op))
        return self.op_numbers[key]

    def _encode(self, op: Op) -> tuple:
        one = self.sass.instructions[op.index]
        machine = self.machine
        unit = unit_of(one)
        control = one.control
        kind, latency, sm_interval, memory = _FIXED, 0.0, 0.0, None
        factor = self.scale.get(machine.latency_class(one), 1.0)
        if op.on:
            if one.base == "EXIT":
                kind = _EXIT
            elif one.base == "BAR" and "ARV" not in one.modifiers:
                kind = _BARRIER
            elif one.base == "DEPBAR":
                kind = _DEPBAR
                latency = float(_depbar_allowed(one))
            elif one.base == "LDGDEPBAR":
                kind = _COMMIT
            elif one.base == "MEMBAR" and {"GPU", "SYS"} & set(one.modifiers):
                kind = _FENCE
                latency = machine.latency(one, None) * factor
            elif op.request is not None and op.request.kind in ("load", "async", "atomic"):
                kind = _ASYNC if op.request.kind == "async" else _LOAD
                memory = self._memory(op)
            elif op.request is not None and op.request.kind == "store":
                kind = _STORE
                stored = op.request.sectors * SECTOR_BYTES
                memory = (stored, 0.0 if op.request.buffer in self.where.stay_in_l2 else stored)
            elif control.write_barrier is not None or control.read_barrier is not None:
                kind = _VARIABLE
                latency = machine.latency(one, op.request) * factor
            sm_interval = machine.shared_interval(one, op.request) * self.share
        interval = machine.interval(unit, one) if op.on else 1.0
        if not op.on:
            unit = "none"
        fetch = machine.branch_cycles * self.scale.get("branch", 1.0) if op.taken else 0.0
        stall = float(control.stall) if control.stall else machine.zero_stall_cycles(one)
        return (
            kind,
            op.index,
            stall,
            control.wait,
            control.write_barrier if op.on else None,
            control.read_barrier if op.on else None,
            unit,
            interval,
            latency,
            sm_interval,
            memory,
            fetch,
        )

    def _memory(self, op: Op) -> tuple:
        """(share missing the L1, bytes, share from memory, DRAM bytes, latencies by level)."""
        request, machine, where = op.request, self.machine, self.where
        assert request is not None
        missing = min(1.0, request.new_sectors / request.sectors)
        dram = where.from_dram.get(request.buffer, 0.0)
        share = where.dram_share.get(request.buffer, 1.0)
        if request.kind == "atomic":
            missing, dram = 1.0, 0.0
        elif request.again is not None:
            if request.again * where.resident_blocks_on_sm < where.l1_bytes:
                missing = 0.0
            elif request.again * where.resident_blocks_on_gpu * share < where.l2_bytes:
                dram = 0.0
        size = request.sectors * SECTOR_BYTES
        factor = self.scale.get("memory", 1.0)
        return (
            missing,
            size,
            dram,
            dram * share,
            machine.l1_latency(request) * factor,
            machine.l2_latency(request) * self.scale.get("l2", factor),
            machine.dram_latency(request) * self.scale.get("dram", factor),
        )

    # ------------------------------------------------------------------------------ simulation

    def run(self, total: int) -> SmRun:
        """Simulate and, with a fair scheduler, extrapolate."""
        machine, ops, flat = self.machine, self.ops, self.flat
        warps = len(flat)
        position = [0] * warps
        scoreboard = [[0.0] * 6 for _ in range(warps)]
        producer: list[list[int | None]] = [[None] * 6 for _ in range(warps)]
        level: list[list[str]] = [[""] * 6 for _ in range(warps)]
        groups: list[list[float]] = [[] for _ in range(warps)]
        pending_async = [0.0] * warps
        last_issue = [0.0] * warps
        stall_end = [0.0] * warps
        fence = [(0.0, -1)] * warps  # until when, and which instruction
        barrier_spent = [0.0] * warps
        fetch_spent = [0.0] * warps
        slot: dict[int, float] = {}
        pipes: dict[tuple[int, str], float] = {}
        unit_free = 0.0  # the load/store and shuffle unit of the SM
        fill_free = 0.0  # the path from the L2
        arrived: dict[int, list[tuple[int, float]]] = {}
        misses: dict[int, float] = {}
        drams: dict[int, float] = {}
        lines: set[int] = set()
        correction = [0.0] * warps
        stacks: list[list[tuple[list[float], float]]] = [[] for _ in range(warps)]
        weight = [1.0] * warps
        weights: list[list[float]] = [[] for _ in range(warps)]
        ends = [0.0] * warps
        events: list[Event] = []
        slopes: list[tuple[int, int, float]] = []
        trip_now = -1
        issued = dram_bytes = l2_bytes = flight = latency_sum = latency_count = 0.0
        barrier_cycles = machine.barrier_cycles * self.scale.get("barrier", 1.0)
        barrier_step = machine.barrier_interval * self.share * self.scale.get("barrier", 1.0)
        barrier_free = 0.0  # the barrier unit of the SM takes one arrival after another
        l2_pressure, dram_pressure = self.pressure.l2, self.pressure.dram
        fill_cycles = self.share / machine.fill_bytes_per_cycle
        fetch_line = machine.cold_line_cycles
        read_cycles = machine.operand_read_cycles
        # Blocks that wait for a place on what is simulated (a sub-partition, or the SM).
        waiting = max(0, -(-total // self.slots_of_sm) - len(set(self.block)))
        left = {block: self.block.count(block) for block in set(self.block)}
        members: dict[int, list[int]] = {}
        for warp, block in enumerate(self.block):
            members.setdefault(block, []).append(warp)
        age = list(range(warps))
        youngest = warps
        fair = self.fair
        pools: dict[int, list[int]] = {part: [] for part in set(self.part)}
        since = [0.0] * warps
        armed: dict[int, bool] = dict.fromkeys(pools, False)
        last_on: dict[int, int] = dict.fromkeys(pools, -1)
        heap: list[tuple[float, int, int]] = []
        push, pop = heapq.heappush, heapq.heappop

        def settle(warp: int, now: float) -> float:
            """Pass marks, find when the warp's next instruction may issue; queue it."""
            nonlocal trip_now
            sequence, place = flat[warp], position[warp]
            while place < len(sequence) and sequence[place] < 0:
                kind, trip, loop = self.marks[-1 - sequence[place]]
                count = loop.count
                corrected = last_issue[warp] + correction[warp]
                if kind == "trip":
                    if trip == 0:
                        stacks[warp].append(([], 0.0))
                        weights[warp].append(weight[warp])
                    if trip == min(count, self.trips) - 1 and count > self.trips:
                        # The last simulated trip stands for all that are left.
                        weight[warp] = weights[warp][-1] * (count - self.trips + 1)
                    stacks[warp][-1][0].append(corrected)
                    if warp == 0:
                        trip_now = trip
                else:
                    times, _ = stacks[warp].pop()
                    weight[warp] = weights[warp].pop()
                    times.append(corrected)
                    if warp == 0:
                        trip_now = -1
                    middle = len(times) // 2
                    slope = (times[-1] - times[middle]) / (len(times) - 1 - middle)
                    if count > self.trips and fair:
                        correction[warp] += (count - self.trips) * slope
                    if warp == 0:
                        slopes.append((first_of(loop), count, slope))
                place += 1
            position[warp] = place
            if place >= len(sequence):
                ends[warp] = max(ends[warp], max(last_issue[warp], now) + correction[warp])
                retire(warp, now)
                return -1.0
            op = ops[sequence[place]]
            ready = now
            line = op[1] >> 3
            if line not in lines:
                lines.add(line)
                ready += fetch_line
                fetch_spent[warp] += fetch_line
            stall_end[warp] = ready
            marks = scoreboard[warp]
            for number in op[3]:
                if marks[number] > ready:
                    ready = marks[number]
            if fence[warp][0] > ready:
                ready = fence[warp][0]
            if op[0] == _DEPBAR:
                allowed = int(op[8])
                waiting = groups[warp]
                if len(waiting) > allowed:
                    ready = max(ready, waiting[-1 - allowed])
            push(heap, (ready, 0, warp))
            return ready

        def release(block: int, now: float) -> None:
            """Let a block's warps go on if all that have not left stand at the barrier."""
            there = arrived.get(block)
            if not there or len(there) < self._peers_left(block, position, flat):
                return
            arrived[block] = []
            arrival = max(ready for _, ready in there)
            free = max(now, arrival, barrier_free + barrier_cycles)
            for other, ready in there:
                barrier_spent[other] += free - ready
                settle(other, free)

        def retire(warp: int, now: float) -> None:
            """A warp has left; when its whole block has, another block takes the place."""
            nonlocal waiting, youngest
            block = self.block[warp]
            left[block] -= 1
            if left[block]:
                release(block, now)  # others may have waited at a barrier for this warp alone
            if left[block] or not waiting:
                return
            waiting -= 1
            left[block] = len(members[block])
            for other in members[block]:
                position[other] = 0
                scoreboard[other] = [0.0] * 6
                groups[other] = []
                fence[other] = (0.0, -1)
                pending_async[other] = 0.0
                age[other] = youngest
                youngest += 1
                settle(other, now + correction[warp])

        for warp in range(warps):
            settle(warp, 0.0)
        while heap:
            time, kind, number = pop(heap)
            if kind == 0:  # a warp is ready
                part = self.part[number]
                pools[part].append(number)
                since[number] = time
                if not armed[part]:
                    armed[part] = True
                    push(heap, (max(time, slot.get(part, 0.0)), 1, part))
                continue
            part, pool = number, pools[number]
            start = time
            if len(pool) == 1:
                warp = pool[0]
                op = ops[flat[warp][position[warp]]]
                free = pipes.get((part, op[6]), 0.0)
                if op[9] and unit_free - QUEUE_CYCLES > free:
                    free = unit_free - QUEUE_CYCLES
                if free > start:
                    push(heap, (free, 1, part))
                    continue
                pool.clear()
                armed[part] = False
            else:
                best, soonest, best_key = -1, 1e300, 0.0
                for one in pool:
                    op = ops[flat[one][position[one]]]
                    free = pipes.get((part, op[6]), 0.0)
                    if op[9] and unit_free - QUEUE_CYCLES > free:
                        free = unit_free - QUEUE_CYCLES
                    if free > start:
                        if free < soonest:
                            soonest = free
                        continue
                    last = one == last_on[part]
                    key = -since[one] if fair else 1e300 if last else float(age[one])
                    if best < 0 or key > best_key:
                        best, best_key = one, key
                if best < 0:
                    push(heap, (soonest, 1, part))
                    continue
                warp = best
                pool.remove(warp)
                push(heap, (start + 1, 1, part))
            time = since[warp]
            last_on[part] = warp
            number = flat[warp][position[warp]]
            op = ops[number]
            unit = op[6]
            slot[part] = start + 1
            pipes[(part, unit)] = start + op[7]
            issued += weight[warp]
            kind = op[0]
            if warp == 0 and self.watch:
                held = None
                waits = op[3]
                if waits:
                    held = max(waits, key=lambda number: scoreboard[0][number])
                    if scoreboard[0][held] <= stall_end[0]:
                        held = None
                fenced = held is None and fence[0][0] > stall_end[0]
                events.append(
                    Event(
                        op[1],
                        trip_now,
                        stall_end[0],
                        max(stall_end[0], time if kind == _DEPBAR or fenced else 0.0)
                        if held is None
                        else scoreboard[0][held],
                        start,
                        held,
                        fence[0][1] if fenced else producer[0][held] if held is not None else None,
                        level[0][held] if held is not None else "",
                        barrier_spent[0],
                        fetch_spent[0],
                        last_issue[0],
                        weight[0],
                    )
                )
                barrier_spent[0] = fetch_spent[0] = 0.0
            last_issue[warp] = start
            done = start
            source = ""
            served = start
            if op[9]:
                served = unit_free if unit_free > start else start
                unit_free = served + op[9]
            if kind == _FENCE:
                fence[warp] = (start + op[8] + l2_pressure, op[1])
            if kind == _VARIABLE:
                done = served + op[8]
            elif kind in (_LOAD, _ASYNC):
                missing, size, dram, dram_part, l1, l2, far = op[10]
                tally = misses.get(number, 0.0) + missing
                if tally >= 0.999:
                    misses[number] = tally - 1.0
                    queue = fill_free if fill_free > served else served
                    fill_free = queue + size * fill_cycles
                    tally = drams.get(number, 0.0) + dram
                    l2_bytes += size * weight[warp]
                    dram_bytes += size * dram_part * weight[warp]
                    if tally >= 0.999:
                        drams[number] = tally - 1.0
                        done = queue + far + dram_pressure
                        source = "dram"
                    else:
                        drams[number] = tally
                        done = queue + l2 + l2_pressure
                        source = "l2"
                    flight += size * (done - start) * weight[warp]
                    latency_sum += (done - start) * weight[warp]
                    latency_count += weight[warp]
                else:
                    misses[number] = tally
                    done = served + l1
                    source = "l1"
                if kind == _ASYNC:
                    pending_async[warp] = max(pending_async[warp], done)
            elif kind == _STORE:
                l2_bytes += op[10][0] * weight[warp]
                dram_bytes += op[10][1] * weight[warp]
                done = served + read_cycles
            elif kind == _COMMIT:
                done = max(pending_async[warp], start)
                groups[warp].append(done)
            if op[4] is not None and kind != _COMMIT:
                mark = op[4]
                if done > scoreboard[warp][mark]:
                    scoreboard[warp][mark] = done
                    producer[warp][mark] = op[1]
                    level[warp][mark] = source
            if op[5] is not None:
                mark = op[5]
                free = served + read_cycles
                if free > scoreboard[warp][mark]:
                    scoreboard[warp][mark] = free
                    producer[warp][mark] = op[1]
                    level[warp][mark] = "read"
            position[warp] += 1
            following = start + op[2] + op[11]
            if op[11]:
                fetch_spent[warp] += op[11]
            if kind == _EXIT:
                position[warp] = len(flat[warp])
                ends[warp] = max(ends[warp], start + correction[warp])
                retire(warp, start)
                continue
            if kind == _BARRIER:
                block = self.block[warp]
                barrier_free = max(barrier_free, start) + barrier_step
                arrived.setdefault(block, []).append((warp, following))
                release(block, start)
                continue
            settle(warp, following)
        cycles = max(ends)
        factor = self.represents
        return SmRun(
            cycles=cycles,
            issued=issued * factor,
            dram_bytes=dram_bytes * factor,
            l2_bytes=l2_bytes * factor,
            in_flight_bytes=flight * factor / max(cycles, 1.0),
            load_latency=latency_sum / latency_count if latency_count else 0.0,
            events=tuple(events),
            slopes=tuple(slopes),
        )

    def _peers_left(
        self, block: int, position: Sequence[int], flat: Sequence[Sequence[int]]
    ) -> int:
        """Simulated warps of a block that have not left."""
        return sum(
            self.block[warp] == block and position[warp] < len(flat[warp])
            for warp in range(len(flat))
        )


def _depbar_allowed(one: Instruction) -> int:
    numbers = [o.value for o in one.operands if o.kind == "number"]
    return int(numbers[0] or 0) if numbers else 0
