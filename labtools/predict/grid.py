"""One launch on one GPU: an SM simulated under the load of all, then the grid block by block. What
all SMs ask of memory says how long each load waits, and how long loads wait says how much is asked:
the two are solved for together."""

from __future__ import annotations

import dataclasses
import heapq
import math
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from labtools.problem import LabError
from labtools.record.bound import FULL_SHARES, busiest_unit
from labtools.toolchain.cubin import Resources

from . import explain
from .blocks import BlockClass, LaunchBlocks
from .machine import Machine
from .residency import occupancy
from .result import LaunchForecast
from .sheets import Gpu
from .sm_model import OccupiedSm, Pressure, SmRun, Where
from .streams import BlockStreams

COMPETING = 1.06
"""Blocks that take this many times as long together as alone compete for the SM."""

QUEUED = ("lsu", "tensor")
"""Pipes with a queue of their own."""

ClassRuns = Sequence[tuple[BlockClass, tuple[SmRun, int]]]
"""Classes of blocks with a simulation of each, and its blocks on an SM."""


class LaunchModel:
    """One launch on one GPU, with latencies scaled by class; ``warm`` if the L2 may hold what the
    call before has read. Raises LabError: no block fits on an SM."""

    def __init__(
        self, blocks: LaunchBlocks, resources: Resources, gpu: Gpu, machine: Machine, warm: bool
    ) -> None:
        if blocks.uses_tensor_cores:
            machine = machine.beside_tensor_cores()
        self.blocks, self.resources, self.gpu, self.machine = blocks, resources, gpu, machine
        self.warm = warm
        launch = self.launch = blocks.launch
        self.sass = blocks.sass
        self.scale: Mapping[str, float] = {}
        self.plain = self
        self.resident = occupancy(
            gpu, launch.num_threads, resources.registers, resources.shared_bytes + launch.smem_bytes
        )
        if self.resident.blocks_per_sm < 1:
            raise LabError(
                f"{launch.entry} cannot launch on {gpu.title}.",
                self.resident.cannot_run or "no block fits on an SM",
                "another block shape or less shared memory",
            )
        self.sms = machine.sm_count
        shared = self.resident.smem_per_block_bytes * self.resident.blocks_per_sm
        self.l1_bytes = max(16 * 1024.0, machine.l1_bytes - shared)
        self._runs: dict[tuple[int, int, int], tuple[SmRun, Pressure]] = {}
        self._slow_sms: dict[tuple[int, int, int], OccupiedSm] = {}

    def scaled(self, scale: Mapping[str, float]) -> LaunchModel:
        """The same launch with latencies scaled by class; what it executes is not traced anew."""
        rate = scale.get("bandwidth", 1.0)
        machine = dataclasses.replace(
            self.machine,
            dram_bytes_per_cycle=self.machine.dram_bytes_per_cycle * rate,
            l2_bytes_per_cycle=self.machine.l2_bytes_per_cycle * rate,
        )
        one = LaunchModel(self.blocks, self.resources, self.gpu, machine, self.warm)
        one.scale, one.plain = scale, self
        return one

    @cached_property
    def where(self) -> Where:
        """Which loads go to memory, and how many bytes each brings."""
        machine = self.machine
        different = sum(union for union, _ in self.blocks.footprint.values())
        from_dram: dict[int, float] = {}
        share: dict[int, float] = {}
        memory = self.blocks.memory
        warm_miss = machine.l2_miss(max(different, memory.total_bytes))
        # What fits is still there for the launch that reads it.
        past_l2 = {
            one: machine.l2_miss(size) if size > self.gpu.l2_bytes else 0.0
            for one, size in memory.scratch.items()
        }
        for buffer, (union, total) in self.blocks.footprint.items():
            share[buffer] = min(1.0, union / total) if total else 1.0
            if buffer in memory.scratch:  # written by this call, so it is in the L2 if it fits
                from_dram[buffer] = past_l2[buffer]
            else:
                from_dram[buffer] = warm_miss if self.warm else 1.0
        on_sm = self.start_blocks
        l2_bytes = next(
            (x for x, y in zip(machine.l2_miss.x, machine.l2_miss.y, strict=True) if y > 0.5),
            float(self.gpu.l2_bytes),
        )
        return Where(
            from_dram,
            share,
            self.l1_bytes,
            l2_bytes,
            min(self.launch.num_blocks, on_sm * self.sms),
            on_sm,
            {one: past_l2[one] for one in memory.workspaces},
        )

    @property
    def start_blocks(self) -> int:
        """Blocks that the fullest SM holds at first."""
        return min(self.resident.blocks_per_sm, -(-self.launch.num_blocks // self.sms))

    # ---------------------------------------------------------------------------- simulation

    def run_at(self, number: int, on_sm: int, active: int) -> tuple[SmRun, Pressure]:
        """A class simulated with so many blocks an SM and on the whole GPU."""
        key = (number, on_sm, active)
        if key not in self._runs:
            self._runs[key] = self._solve(self.blocks.classes[number].streams, on_sm, active)
        return self._runs[key]

    def _solve(self, streams: BlockStreams, on_sm: int, active: int) -> tuple[SmRun, Pressure]:
        """Find by bisection the wait that memory adds at the rate that this wait allows: more of it
        means less traffic, so there is one answer."""
        trips = 6 if on_sm * len(streams.warps) <= 16 else 4
        sms = active / on_sm
        sm = OccupiedSm(streams, on_sm, self.machine, self.where, trips, self.scale)

        def wanted(result: SmRun) -> Pressure:
            return Pressure(
                self.machine.dram_queue(self._rate(result.dram_bytes, result, sms, True)),
                self.machine.l2_queue(self._rate(result.l2_bytes, result, sms, False)),
            )

        result = sm.simulate(watch=False)
        need = wanted(result)
        if max(need.dram, need.l2) < 3.0:
            return self._slowest(streams, on_sm, need, trips), need
        memory_bound = need.dram >= need.l2
        low, high, now = 0.0, math.inf, Pressure()
        guess = self._first_guess(result, sms, memory_bound)
        for _ in range(9):
            if memory_bound:
                now = Pressure(guess, need.l2 if need.l2 < guess else 0.0)
            else:
                now = Pressure(min(need.dram, guess), guess)
            result = sm.simulate(now, watch=False)
            need = wanted(result)
            target = need.dram if memory_bound else need.l2
            if target > guess:
                low = guess
            else:
                high = guess
            if abs(target - guess) < 0.02 * (guess + 300.0):
                break
            guess = (low + high) / 2 if math.isfinite(high) else max(2 * guess, 50.0)
        return self._slowest(streams, on_sm, now, trips), now

    def _slowest(self, streams: BlockStreams, on_sm: int, pressure: Pressure, trips: int) -> SmRun:
        """The SM that is farthest from memory: it ends last, so its time is the kernel's."""
        return self._slow_sm(streams, on_sm, trips).simulate(pressure)

    def _slow_sm(self, streams: BlockStreams, blocks: int, trips: int) -> OccupiedSm:
        """The slowest SM with so many blocks on it."""
        key = (id(streams), blocks, trips)  # the streams live as long as this launch does
        if key not in self._slow_sms:
            numbers = self.machine, self.where, trips, self._slow_scale
            self._slow_sms[key] = OccupiedSm(streams, blocks, *numbers)
        return self._slow_sms[key]

    @cached_property
    def _slow_scale(self) -> dict[str, float]:
        """Factors on latencies for the slowest of the busy SMs; a single block meets the middle
        one."""
        busy = min(self.launch.num_blocks, self.sms)
        part = math.log(busy) / math.log(self.sms) if self.sms > 1 else 1.0
        base = self.scale.get("memory", 1.0)
        return {
            **self.scale,
            "dram": self.scale.get("dram", base) * (1 + (self.machine.slow_dram - 1) * part),
            "l2": self.scale.get("l2", base) * (1 + (self.machine.slow_l2 - 1) * part),
        }

    @cached_property
    def _dram_ceiling(self) -> float:
        """Bytes a cycle that memory gives to this kernel's pattern of reads, and takes of what it
        stores."""
        share, where = self.machine.chunk_share(self.blocks.chunk_bytes), self.where
        read = sum(
            union * where.from_dram[buffer] for buffer, (union, _) in self.blocks.footprint.items()
        )
        stored = sum(
            size * where.stored_past_l2.get(buffer, 1.0)
            for buffer, size in self.blocks.stored_bytes.items()
        )
        weight = (read + self.machine.stored * stored) / (read + stored) if read else 1.0
        return self.machine.dram_bytes_per_cycle * share / weight

    def _rate(self, read: float, result: SmRun, sms: float, dram: bool) -> float:
        """Share of a ceiling that all SMs together use; of memory's while it works: the blocks of
        one wave leave it idle together, those of several in turn."""
        if not dram:
            return read * sms / max(1.0, result.cycles) / self.machine.l2_bytes_per_cycle
        waves = max(1.0, self.launch.num_blocks / (self.resident.blocks_per_sm * self.sms))
        working = max(1.0, result.cycles - result.idle / waves)
        return read * sms / working / self._dram_ceiling

    def _first_guess(self, result: SmRun, sms: float, memory_bound: bool) -> float:
        """The wait at which the traffic would be just below the ceiling, from one run without."""
        read = result.dram_bytes if memory_bound else result.l2_bytes
        share = self._rate(read, result, sms, memory_bound)
        return max(20.0, result.load_latency * max(0.0, share - 0.9) + 20.0)

    # ---------------------------------------------------------------------------- the grid

    def _duration(self, number: int, active: int) -> float:
        """Cycles of a block of a class while so many blocks run on the whole GPU: simulated where
        the GPU is full, at a third of that, and with one block an SM, else interpolated. Classes
        run the same code, so only the one with most work is simulated; the others are as many times
        shorter as they are on an empty SM."""
        full = self.start_blocks
        most = self.blocks.main_class
        alone = self.run_at(number, 1, min(self.sms, self.launch.num_blocks))[0].cycles
        if active <= self.sms:
            return alone
        anchors = sorted({1, max(1, round(full / 3)), full})
        blocks = [min(one * self.sms, self.launch.num_blocks) for one in anchors]
        places = zip(anchors, blocks, strict=True)
        cycles = [self.run_at(most, one, count)[0].cycles for one, count in places]
        return alone * float(np.interp(active, blocks, cycles)) / cycles[0]

    @cached_property
    def cycles(self) -> float:
        """Makespan of the grid: blocks start in order where a place is free, and each goes through
        its work at a rate that depends on how many run beside it."""
        classes, work = self.blocks.class_of_block, self.blocks.work_of_block
        slots = self.resident.blocks_per_sm * self.sms
        total = len(classes)
        if len(self.blocks.classes) == 1 and float(work.max() - work.min()) < 1e-9:
            return self._uniform_cycles
        clock, done, started = 0.0, 0, 0
        progress = [0.0] * len(self.blocks.classes)
        heaps: list[list[float]] = [[] for _ in self.blocks.classes]
        active = 0
        while done < total:
            while started < total and active < slots:
                number = int(classes[started])
                heapq.heappush(heaps[number], progress[number] + float(work[started]))
                started += 1
                active += 1
            rates = [
                1.0 / self._duration(number, active) if heaps[number] else 0.0
                for number in range(len(heaps))
            ]
            step = min(
                (heap[0] - progress[number]) / rates[number]
                for number, heap in enumerate(heaps)
                if heap
            )
            clock += step
            for number, rate in enumerate(rates):
                progress[number] += rate * step
            for number, heap in enumerate(heaps):
                while heap and heap[0] <= progress[number] + 1e-9:
                    heapq.heappop(heap)
                    done += 1
                    active -= 1
        return clock

    @property
    def _uniform_cycles(self) -> float:
        """Cycles of equal blocks. What competing for issue slots costs is taken from the model
        whose latencies are not scaled."""
        total, on_sm = self.launch.num_blocks, self.start_blocks
        run, _ = self.run_at(0, on_sm, min(total, on_sm * self.sms))
        stretch = self.plain._stretch
        return self._in_waves if stretch is None else run.cycles * stretch

    @cached_property
    def _in_waves(self) -> float:
        """Cycles of equal blocks that come and go together: full waves, then the rest."""
        total, slots = self.launch.num_blocks, self.resident.blocks_per_sm * self.sms
        full, rest = divmod(total, slots)
        cycles = 0.0
        if full:
            cycles = full * self.run_at(0, self.start_blocks, slots)[0].cycles
        if rest:
            cycles += self.run_at(0, -(-rest // self.sms), rest)[0].cycles
        return cycles

    @cached_property
    def _stretch(self) -> float | None:
        """Cycles of all blocks over those of one wave that advances together; None where blocks do
        not compete. Where they do some end early and waiting ones start, so all are simulated. They
        end no later for it where they do not wait to issue, but for a unit with a queue, which
        serves whoever comes."""
        total, on_sm = self.launch.num_blocks, self.start_blocks
        run, pressure = self.run_at(0, on_sm, min(total, on_sm * self.sms))
        streams = self.blocks.classes[0].streams
        alone = self._slow_sm(streams, 1, 6).simulate(pressure, watch=False).cycles
        if run.cycles <= COMPETING * alone:
            return None
        cycles = self._competing_cycles(streams, on_sm, -(-total // self.sms), pressure)
        shares = explain.pipe_shares(streams, run, on_sm, self.machine, 1.0)
        issuing = run.issued / (self.machine.sub_partitions * run.cycles)
        if busiest_unit("pipe", shares) in QUEUED and issuing < FULL_SHARES["pipe"]:
            cycles = min(cycles, self._in_waves)
        return cycles / run.cycles

    def _competing_cycles(
        self, streams: BlockStreams, on_sm: int, through: int, pressure: Pressure
    ) -> float:
        """Cycles until so many blocks have passed through an SM whose warps compete: simulated
        twice with loops cut short, and drawn on in a straight line over the instructions. Beyond
        three waves each costs what the third did; and no less than issuing all instructions takes.
        """

        def passing(blocks: int) -> float:
            runs = [
                self._slow_sm(streams, min(on_sm, blocks), trips).simulate(
                    pressure, watch=False, total=blocks, fair=False
                )
                for trips in (4, 9)
            ]
            issued = [float(streams.issued_cut(trips)) for trips in (4, 9)]
            whole = float(sum(streams.issued))
            if issued[1] == issued[0]:
                return runs[1].cycles
            slope = (runs[1].cycles - runs[0].cycles) / (issued[1] - issued[0])
            return runs[1].cycles + (whole - issued[1]) * slope

        issuing = through * float(sum(streams.issued)) / self.machine.sub_partitions
        if through <= 3 * on_sm:
            return max(passing(through), issuing)
        rest = through % on_sm
        third = passing(3 * on_sm)
        more = third - passing(2 * on_sm)
        return max(passing(2 * on_sm + rest) + (through // on_sm - 2) * more, issuing)

    # ---------------------------------------------------------------------------- the result

    @cached_property
    def result(self) -> LaunchForecast:
        """Everything about this launch."""
        machine = self.machine
        number = self.blocks.main_class
        on_sm = self.start_blocks
        active = min(self.launch.num_blocks, on_sm * self.sms)
        makespan = self.cycles
        run, _ = self.run_at(number, on_sm, active)
        sms = active / on_sm
        per_block = [(one, self._any_run(place)) for place, one in enumerate(self.blocks.classes)]
        dram = sum(one.members * r.dram_bytes / b for one, (r, b) in per_block)
        l2 = sum(one.members * r.l2_bytes / b for one, (r, b) in per_block)
        # No schedule brings more than the memory and the L2 can give, and none hides the first
        # bytes' latency nor what follows on the last.
        memory = run.idle + dram / self._dram_ceiling
        cycles = max(makespan, memory, l2 / machine.l2_bytes_per_cycle)
        streams = self.blocks.classes[number].streams
        slots = machine.sub_partitions * max(1.0, run.cycles)
        main = explain.find_main_loop(self.sass, run.events)
        clock_ghz = machine.clock_at(run.tensor_share)
        # Blocks are dispatched while others work, which takes as long as in an empty launch.
        blocks = self.launch.num_blocks
        first_us = machine.dispatch_us(min(blocks, self.resident.blocks_per_sm * self.sms))
        busy_us = max(cycles / clock_ghz / 1e3, machine.dispatch_us(blocks) - first_us)
        # The L2 does atomic operations on one address one after another. While they queue up,
        # nothing else is done.
        atomics_us = self.blocks.one_address_atomics * machine.atomic_ns / 1e3
        working = busy_us / (busy_us + atomics_us)
        account = self._account_us(per_block, busy_us, busy_us * (makespan / cycles))
        return LaunchForecast(
            entry=self.launch.entry,
            blocks=blocks,
            threads=self.launch.num_threads,
            time_us=busy_us + atomics_us,
            dispatch_us=first_us,
            clock_ghz=clock_ghz,
            occupancy=self.resident,
            resident_blocks=on_sm,
            trips=explain.list_loops(streams, run),
            dram_bytes=dram,
            l2_bytes=l2,
            footprint_bytes=sum(union for union, _ in self.blocks.footprint.values()),
            dram_share=self._rate(run.dram_bytes, run, sms, True),
            l2_share=self._rate(run.l2_bytes, run, sms, False) * working,
            issue_share=run.issued / slots * working,
            pipe_shares=explain.pipe_shares(streams, run, on_sm, machine, working),
            in_flight_bytes=run.in_flight_bytes,
            load_latency_cycles=run.load_latency,
            stack=explain.stack_time(self.sass, run.events, machine),
            unit_waits=explain.unit_waits(self.sass, run.events, machine),
            chain=explain.follow_chain(self.sass, run.events, machine, main),
            main_loop=main,
            true_chain_cycles=None
            if main is None
            else explain.true_chain(self.sass, main, machine),
            notes=self.blocks.notes,
            doubts=self.blocks.doubts,
            account_us=account and {**account, "atomics": atomics_us},
        )

    def _account_us(self, runs: ClassRuns, busy_us: float, makespan_us: float) -> dict[str, float]:
        """The launch's time by terms where warps have roles, else nothing: an average SM does the
        main class's account, and waits until the last SM has done it."""
        main = self.blocks.main_class
        run = runs[main][1][0]
        terms = explain.account_block(self.sass, run, self.machine) if self.sass.has_roles else {}
        if not terms:
            return {}
        worth = self.blocks.worth
        work = sum(float(worth[place]) * r.cycles / b for place, (_, (r, b)) in enumerate(runs))
        mean = min(1.0, work / self.sms / self.cycles)
        found = {name: makespan_us * mean * cycles / run.cycles for name, cycles in terms.items()}
        found["waves and tail"] = makespan_us * (1 - mean)
        found["memory's rate"] = busy_us - makespan_us
        return found

    def _any_run(self, number: int) -> tuple[SmRun, int]:
        keys = [key for key in self._runs if key[0] == number]
        key = max(keys, key=lambda key: (key[1], key[2]))
        return self._runs[key][0], key[1]
