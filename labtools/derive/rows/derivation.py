"""From the limits of a GPU to a row-wise kernel: a block has a row, and memory is the bound."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from labtools.predict.residency import Occupancy, occupancy
from labtools.predict.sheets import Gpu
from labtools.problem import Problem, Rung, list_rungs
from labtools.problem.limits import COPY_BYTES, MOST_THREADS
from labtools.problem.rows import Rows
from labtools.problem.text import how_many

from ..engine import Asked, BoundDesign, Derivation, read_problem
from ..parts import (
    ISSUE_CYCLES,
    NOT_TOLD_APART,
    WARP,
    WHERE_IT_STOPS,
    DesignStep,
    Rejected,
    Sheet,
    footprint_words,
)
from ..sm import share_in_flight

MOST_HELD = 4
"""Pieces of 16 bytes of a row that a thread holds: it asks for all of them before it needs one."""
THREAD_CHOICES = (32, 64, 128, 256, 512, MOST_THREADS)
PER_PIECE = 30
"""Instructions of a lane for one piece: widened, squared and added, scaled, packed and stored."""
ROW_REGISTERS = 32
"""Of a thread, beside the row: addresses, sums, a piece of the weight and one of the output."""


def pieces_of_thread(problem: Rows, threads: int) -> int:
    """Pieces of 16 bytes of a row that a thread takes, rounded up."""
    return -(-problem.columns * problem.element_bytes // (COPY_BYTES * threads))


def row_threads(problem: Rows, choices: Sequence[int] = THREAD_CHOICES) -> int:
    """Threads of the block that has a row: the fewest that hold all of it, or else the most, since
    fewer of them join sooner."""
    enough = (one for one in sorted(choices) if pieces_of_thread(problem, one) <= MOST_HELD)
    return next(enough, max(choices))


@dataclass(frozen=True)
class RowDesign(BoundDesign):
    """A row-wise kernel, derived."""

    threads: int  # of a block, which has a row
    pieces: int  # of 16 bytes of a row that a thread holds
    registers: int  # of a thread, estimated
    blocks: int  # of the grid
    blocks_per_sm: int  # resident at a time

    @property
    def summary(self) -> str:
        """The kernel in one line."""
        return (
            f"{self.blocks} blocks of {self.threads} threads, {how_many(self.pieces, 'piece')} of "
            f"16 bytes a thread, {how_many(self.blocks_per_sm, 'block')} per SM, "
            f"{self.registers} registers per thread, {self.time_us:.4g} us"
        )


def derive_rows(op: str, work: Problem | str | None, gpu: Gpu, asked: Asked) -> RowDesign:
    """Derive a kernel of a row-wise operation, which reads rows, joins each, and writes rows."""
    return _RowDerivation(read_problem(op, work), gpu).design()


@dataclass(frozen=True)
class _RowCost:
    """What a number of threads per row comes to."""

    pieces: int
    registers: int
    fit: Occupancy
    on_the_way: float  # bytes of an SM
    share: float  # of the read ceiling
    row_cycles: float  # of a block from the last byte of its row to its stores


class _RowDerivation(Derivation):
    sheet = Sheet(Path(__file__).with_name("steps.toml"))

    def __init__(self, problem: Rows, gpu: Gpu) -> None:
        super().__init__(gpu)
        self.problem = problem
        self.row_bytes = problem.columns * problem.element_bytes
        whole = self.row_bytes * problem.rows
        self.together = sum(one.bytes == whole for one in problem.inputs.values())
        self.rung = self._rung()
        choices: tuple[int, ...] = THREAD_CHOICES
        if self.rung is not None:
            (knob,) = (one for one in self.rung.knobs if one.name == "threads")
            choices = tuple(map(int, knob.choices))
        self.costs = {threads: self._cost(threads) for threads in choices}
        self.threads = row_threads(problem, choices)

    def _rung(self) -> Rung | None:
        """The newest shipped rung that computes this and has the threads as a knob."""
        fitting = (
            one
            for one in reversed(list_rungs(self.problem.operation))
            if any(knob.name == "threads" for knob in one.knobs)
            and one.supports(self.problem) is None
        )
        return next(fitting, None)

    def _cost(self, threads: int) -> _RowCost:
        machine = self.machine
        pieces = pieces_of_thread(self.problem, threads)
        registers = min(255, 4 * pieces * self.together + ROW_REGISTERS)
        fit = occupancy(self.gpu, threads, registers, COPY_BYTES * threads // WARP)
        rows = min(fit.blocks_per_sm, self.problem.rows / self.gpu.sm_count)
        joins = 2 * math.log2(WARP) * machine.variable["shfl"] + 2 * machine.barrier_cycles
        work = ISSUE_CYCLES * PER_PIECE * pieces * threads / WARP / machine.sub_partitions
        loads = machine.dram_async(512)
        waits = loads / (loads + work + joins)
        on_the_way = rows * self.together * self.row_bytes * waits
        share = share_in_flight(on_the_way / machine.slow_dram, machine)
        return _RowCost(pieces, registers, fit, on_the_way, share, work + joins)

    def _time_parts(self, cost: _RowCost) -> list[float]:
        machine, us = self.machine, 1 / self.machine.clock_ghz / 1e3
        return [
            machine.launch_us(min(self.problem.rows, 1 << 16)) + machine.start_us,
            machine.dram_async(512) * us,
            self.problem.minimal_bytes / (self.dram_gb_per_s * cost.share) / 1e3,
            cost.row_cycles * us,
        ]

    def design(self) -> RowDesign:
        cost, rung = self.costs[self.threads], self.rung
        self.ties = {"us": (0.0, NOT_TOLD_APART * sum(self._time_parts(cost)))}
        steps = (
            self._bytes(),
            self.in_flight_step(),
            self._tile(),
            self._residency(cost),
            self._time(cost),
        )
        return self.made(
            RowDesign,
            steps,
            op=self.problem.operation,
            workload=self.problem.short(),
            layout="registers",
            bound="memory",
            floor_us=self.floor_us,
            time_us=steps[-1].answer.value,
            threads=self.threads,
            pieces=cost.pieces,
            registers=cost.registers,
            blocks=self.problem.rows,
            blocks_per_sm=cost.fit.blocks_per_sm,
            kernel=rung.id if rung else None,
            knobs={"threads": self.threads} if rung else None,
        )

    def _bytes(self) -> DesignStep:
        problem = self.problem
        read = {name: one.bytes for name, one in problem.inputs.items()}
        least = problem.minimal_bytes
        self.floor_us = least / self.dram_gb_per_s / 1e3
        twice = least + self.together * self.row_bytes * problem.rows
        return self.step(
            "bytes",
            [read, least - sum(read.values()), self.dram_gb_per_s],
            [self.floor_us, problem.flops / least],
            [twice / self.dram_gb_per_s / 1e3],
            ceiling=self.ceiling_source,
            footprint=footprint_words(least, self.gpu.l2_bytes),
        )

    def _tile(self) -> DesignStep:
        rejected = []
        for threads, cost in self.costs.items():
            if threads == self.threads:
                continue
            value, unit = sum(self._time_parts(cost)), "us"
            why = f"{cost.on_the_way / 1024:.0f} KiB in flight, and more warps of a row to merge"
            if cost.pieces > MOST_HELD:
                value, unit, why = cost.pieces, "pieces per thread", f"it holds {MOST_HELD}"
            rejected.append(Rejected(f"{threads} threads", value, unit, why))
        return self.step(
            "tile",
            [self.row_bytes, COPY_BYTES, self.together],
            [self.threads, self.costs[self.threads].pieces],
            rejected,
            held=MOST_HELD,
        )

    def _residency(self, cost: _RowCost) -> DesignStep:
        blocks = cost.fit.blocks_per_sm
        rounds = self.problem.rows / (blocks * self.gpu.sm_count)
        return self.step(
            "residency",
            [4 * cost.pieces * self.together, self.gpu.registers_per_sm],
            [blocks, cost.registers, cost.on_the_way, cost.share, rounds],
            cost=cost,
            kib=cost.on_the_way / 1024,
            need_kib=self.need / 1024,
        )

    def _time(self, cost: _RowCost) -> DesignStep:
        parts = self._time_parts(cost)
        time = sum(parts)
        return self.step("time", parts, [time, self.floor_us / time], stops=WHERE_IT_STOPS)
