"""What every model of a tile knows of an SM: its tensor cores, its load/store unit, the way from
the L2 and from memory, and what is said of a tile's time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from labtools.predict.machine import Curve, Machine, machine_of
from labtools.predict.sheets import Gpu
from labtools.problem.limits import GB_PER_S_OF_SM

ELEMENT = 2
"""Bytes of an element, fp16 or bf16."""
SUM = 4
"""Bytes of a sum, fp32."""
MMA_FLOPS = 2 * 16 * 8 * 16
"""Of one mma.m16n8k16."""
UNIT_BYTES = 128
"""Bytes a cycle of the SM's load/store unit, into shared memory or out of it."""
OTHER_REGISTERS = 56
"""Of a thread, beside sums and fragments: addresses, counters. Read from g01's compiled code."""
LOADED_SHARE = 0.9
"""Share of the memory's rate at which the latency under load is taken."""

TARGET_SHARE = 0.99
"""Share of the read ceiling that the bytes on the way are chosen for, where memory is the bound."""
BOX_BYTES = (1024, 16384)
"""Two boxes, the smallest and the largest of a tile: what the larger one takes longer is the rate
at which a copy of a box goes on once it has begun."""


WAITS = ("latency", "waiting for K and V")
"""What is among the units of ``shares`` and no unit: the wait for bytes."""


def busiest_cycles(shares: Mapping[str, float]) -> float:
    """Cycles of the unit that works longest, by the cycles of each."""
    return max(value for name, value in shares.items() if name not in WAITS)


@dataclass(frozen=True, kw_only=True)
class ModelledTime:
    """What a model of tiles says of a tile's time."""

    registers: int  # of a thread that multiplies, estimated
    by: str  # what takes most cycles, one of ``shares``
    shares: dict[str, float]  # cycles of an SM for one slice of each resident block, by unit
    memory_us: float  # least traffic given the L2, at the rate that the bytes on the way allow
    sm_us: float  # what the SMs take
    time_us: float  # launch, first bytes, and the longer of the two


@dataclass(frozen=True, kw_only=True)
class BlockCost(ModelledTime):
    """What a model says of a tile that is a block's."""

    blocks: int  # of the grid
    blocks_per_sm: int  # resident at a time
    smem_bytes: int  # of a block
    padded_share: float  # of the multiplications, what is spent on nothing


class SmModel:
    """A GPU as models of tiles see it."""

    l2_rate: float  # bytes per cycle from the L2 into one of all SMs, which share what it gives
    # of one mma.m16n8k16 on a sub-partition: the measured interval, or what the data sheet's peak
    # allows where that is longer
    mma_cycles: float
    sheet_flops: float  # of an SM's tensor cores in a cycle at the sheet's peak, 0 without one
    # bytes a cycle that one SM pulls from memory, measured on an H200; where memory is slower for
    # the number of SMs, no fewer of them are trusted to keep it busy
    pull: float

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.machine: Machine = machine_of(gpu).beside_tensor_cores()
        share = self.machine.l2_bytes_per_cycle / gpu.sm_count
        self.l2_rate = min(self.machine.fill_bytes_per_cycle, share)
        peak = (gpu.fp16_tensor_tflops or 0.0) * 1e3
        self.sheet_flops = peak / self.machine.clock_ghz / gpu.sm_count
        self.dram_gb_per_s = self.machine.dram_bytes_per_cycle * self.machine.clock_ghz
        of_an_sm = (gpu.dram_gb_per_s or 0.0) / gpu.sm_count / GB_PER_S_OF_SM
        self.pull = going_on(self.machine.dram_box) * min(1.0, of_an_sm or 1.0)
        self.mma_cycles = self.machine.intervals["tensor"]
        if peak:
            at_peak = MMA_FLOPS * self.machine.sub_partitions / self.sheet_flops
            self.mma_cycles = max(self.mma_cycles, at_peak)

    def us(self, cycles: float) -> float:
        """Cycles of an SM as microseconds."""
        return cycles / self.machine.clock_ghz / 1e3

    def pulled_us(self, moved: float, blocks: int) -> float:
        """The least in which so many blocks bring bytes from memory, all SMs or a few."""
        rate = min(self.machine.dram_bytes_per_cycle, self.pull * min(blocks, self.gpu.sm_count))
        return self.us(moved / rate)

    def started_us(self, blocks: int) -> float:
        """What the launch of so many blocks takes, with the fixed cost of one that works."""
        return self.machine.launch_us(min(blocks, 1 << 16)) + self.machine.start_us


def share_in_flight(in_flight: float, machine: Machine) -> float:
    """The share of the read ceiling that so many bytes on the way of every SM reach."""
    low, high = 0.0, 0.9994
    for _ in range(60):
        middle = (low + high) / 2
        if machine.bytes_in_flight(middle) < in_flight:
            low = middle
        else:
            high = middle
    return low


def going_on(box: Curve) -> float:
    """Bytes a cycle of a copy of a box that has begun, by the latency of boxes of two sizes."""
    small, large = BOX_BYTES
    return (large - small) / (box(large) - box(small))
