"""The numbers of one GPU that the SM model runs on: latencies, issue intervals, shared units.

They come from the latency tables (`labtools.predict.latencies`), which carry a source each. This
module says which number belongs to which instruction.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from labtools.toolchain.sass import Instruction

from .streams import Request, matrices

_FP32 = {"FFMA", "FADD", "FMUL", "FFMA2", "FADD2", "FMUL2"}
_IMAD = {"IMAD", "UIMAD"}
_FP16 = {"HFMA2", "HADD2", "HMUL2", "HFMA2_MMA", "HMNMX2", "HSET2", "HSETP2"}
_XU = {"MUFU", "I2F", "F2I", "F2F", "POPC", "FLO", "BREV", "FRND", "I2FP_XU"}
_LSU = {
    *("LDG", "LD", "STG", "ST", "LDS", "STS", "LDL", "STL", "LDSM", "STSM", "ATOM", "ATOMG"),
    *("ATOMS", "RED", "REDG", "LDGSTS", "SHFL", "REDUX"),
}
_TENSOR = {"HMMA", "IMMA", "QMMA", "BMMA", "DMMA", "HGMMA", "IGMMA", "QGMMA"}
_CONTROL = {
    *("BRA", "EXIT", "BAR", "BSSY", "BSYNC", "WARPSYNC", "NOP", "DEPBAR", "LDGDEPBAR", "CALL"),
    *("RET", "YIELD", "MEMBAR", "ERRBAR", "CCTL", "JMP", "S2R", "S2UR", "CS2R", "LDC", "ULDC"),
    *("LDCU", "VOTE", "R2UR", "B2R", "ELECT", "SYNCS", "NANOSLEEP"),
}


def unit_of(one: Instruction) -> str:
    """The pipe of a sub-partition that an instruction goes to."""
    base = one.base
    if base in _FP32:
        return "fp32"
    if base in _IMAD:
        return "imad"
    if base in _FP16:
        return "fp16"
    if base in _XU:
        return "xu"
    if base in _LSU:
        return "lsu"
    if base in _TENSOR:
        return "tensor"
    if base in _CONTROL:
        return "control"
    return "uniform" if base.startswith("U") else "alu"


@dataclass(frozen=True)
class Curve:
    """A measured curve, interpolated between its points and flat beyond them.

    Args:
        x: increasing.
        y: same length.
    """

    x: tuple[float, ...]
    y: tuple[float, ...]

    def __call__(self, at: float) -> float:
        """The curve's value at ``at``."""
        return float(np.interp(at, self.x, self.y))

    def scaled(self, factor: float) -> Curve:
        """The same curve with every value times ``factor``."""
        return Curve(self.x, tuple(value * factor for value in self.y))


@dataclass(frozen=True)
class LoadCurve:
    """Cycles that load adds to a latency, by share of the ceiling in use.

    Between the measured points it is a straight line in log(wait) over log(u / (1 - u)); beyond
    the last one the wait grows as u / (1 - u), as any queue's does near its limit.

    Args:
        shares: increasing, 0..1.
        waits: cycles, increasing.
    """

    shares: tuple[float, ...]
    waits: tuple[float, ...]

    def __call__(self, share: float) -> float:
        """Cycles at a share of the ceiling; grows without limit towards 1."""
        if share <= 0:
            return 0.0
        if share >= 0.9995:
            return 1e5 * share
        x = [math.log(u / (1 - u)) for u in self.shares]
        y = [math.log(w) for w in self.waits]
        at = math.log(share / (1 - share))
        if at <= x[0]:
            return float(self.waits[0] * share / self.shares[0])
        if at >= x[-1]:
            return float(math.exp(y[-1] + (at - x[-1])))
        return float(math.exp(np.interp(at, x, y)))


@dataclass(frozen=True)
class Machine:
    """One GPU as the SM model sees it. Cycles are SM cycles.

    Attributes:
        name: short name of the GPU.
        calibrated: the numbers were measured on this GPU by the project's microbenchmarks.
        clock_ghz: SM clock under load.
        sm_count, sub_partitions: of the GPU, of an SM.
        variable: latency of shuffles, shared loads, conversions and the like, by class.
        intervals: cycles between two instructions on one pipe of a sub-partition, by unit.
        shared_intervals: cycles that the SM's one load/store unit needs, by class.
        l1: latency of an L1 hit.
        l2_rows, dram_rows: latency of a warp-wide load by bytes asked for.
        l2_async, dram_async: the same for a copy to shared memory, its wait included.
        barrier_cycles: from the last warp's arrival until all go on.
        barrier_interval: cycles that the SM's barrier unit takes for each arriving warp.
        slow_dram, slow_l2: latency on the SM that has it worst, over the middle one's.
        fill_bytes_per_cycle: from the L2 into one SM.
        dram_bytes_per_cycle, l2_bytes_per_cycle: the whole GPU's ceilings, a SM cycle.
        dram_queue, l2_queue: what load adds to a latency, by share of the ceiling in use.
        scattered: share of the memory's ceiling that a kernel reaches whose blocks each read one
            row after another, 1 KiB at a time, instead of a large piece.
        atomic_ns: one atomic operation on an address that all blocks use, nanoseconds.
        l2_miss: share of warm reads that miss the L2, by bytes read again and again.
        branch_cycles: cost of a taken branch beyond its stall count.
        cold_line_cycles: first fetch of a 128-byte line of instructions by an SM.
        operand_read_cycles: from issue until a memory instruction has read its operands.
        launch_us: an empty launch by number of blocks.
        start_us: fixed cost of a launch that works, beyond an empty one.
        sources: where each number comes from.
    """

    name: str
    calibrated: bool
    clock_ghz: float
    sm_count: int
    sub_partitions: int
    variable: dict[str, float]
    intervals: dict[str, float]
    shared_intervals: dict[str, float]
    l1: dict[int, float]
    l2_rows: Curve
    dram_rows: Curve
    l2_async: Curve
    dram_async: Curve
    barrier_cycles: float
    barrier_interval: float
    slow_dram: float
    slow_l2: float
    fill_bytes_per_cycle: float
    dram_bytes_per_cycle: float
    l2_bytes_per_cycle: float
    dram_queue: LoadCurve
    l2_queue: LoadCurve
    scattered: float
    atomic_ns: float
    l2_miss: Curve
    l1_bytes: float
    branch_cycles: float
    cold_line_cycles: float
    operand_read_cycles: float
    launch_us: Curve
    start_us: float
    sources: dict[str, str] = field(default_factory=dict, repr=False)

    def chunk_share(self, chunk_bytes: float) -> float:
        """Share of the memory's ceiling by the bytes that a block reads side by side.

        From 1 KiB (`scattered`) to 8 KiB (all of it) it rises with the logarithm: fewer pages of
        the memory chips are opened for the same bytes.
        """
        if chunk_bytes <= 0:
            return 1.0
        steps = min(3.0, max(0.0, math.log2(8192.0 / chunk_bytes)))
        return 1.0 - (1.0 - self.scattered) * steps / 3.0

    def latency_class(self, one: Instruction) -> str:
        """What kind of latency an instruction has, for tables, stacks and "what if"."""
        base = one.base
        if base in ("SHFL", "MOVM"):
            return "shuffle"
        if base == "MEMBAR":
            return "fence"
        if base in ("LDS", "STS", "LDSM", "STSM", "ATOMS"):
            return "shared"
        if base == "MUFU":
            return "special"
        if base in ("F2F", "I2F", "F2I", "HADD2", "F2FP", "FRND", "POPC", "FLO"):
            return "convert"
        if base in _TENSOR:
            return "tensor"
        if base in ("LDG", "LD", "LDGSTS", "LDGDEPBAR", "ATOM", "ATOMG", "DEPBAR"):
            return "memory"
        if base == "BAR":
            return "barrier"
        if base in ("LDC", "ULDC", "LDCU"):
            return "constant"
        if base in ("S2R", "S2UR", "CS2R", "R2UR"):
            return "special_register"
        return "fixed"

    def latency(self, one: Instruction, request: Request | None) -> float:
        """Cycles from issue until the result of a variable-latency instruction can be used."""
        table = self.variable
        base = one.base
        if base in ("LDS", "LDSM", "ATOMS"):
            width = request.bytes_per_lane if request is not None else 4
            waves = request.wavefronts if request is not None else 1
            name = "ldsm" if base == "LDSM" else f"shared_{8 * max(4, width)}"
            least = matrices(one) if base == "LDSM" else max(1, width // 4)
            return table.get(name, table["shared_32"]) + max(0, waves - least)
        if base == "MUFU":
            kind = one.modifiers[0].lower() if one.modifiers else "ex2"
            return table.get(f"mufu_{kind}", table["mufu_ex2"])
        names = {
            "SHFL": "shfl",
            "REDUX": "redux",
            "LDC": "ldc",
            "ULDC": "ldc",
            "LDCU": "ldc",
            "S2R": "s2r",
            "S2UR": "s2r",
            "CS2R": "s2r",
            "R2UR": "r2ur",
            "I2F": "i2f",
            "F2I": "f2i",
            "F2F": "f2f",
            "F2FP": "f2fp",
            "HMMA": "hmma",
            "IMMA": "imma",
            "VOTE": "vote",
            "VOTEU": "vote",
            "MOVM": "movm",
            "MEMBAR": "fence",
            "STS": "shared_32",
            "LDL": "l1",
            "STL": "l1",
        }
        return table.get(names.get(base, "default"), table["default"])

    def interval(self, unit: str, one: Instruction) -> float:
        """Cycles until the same pipe of the sub-partition takes another instruction."""
        if one.base in ("HADD2",) and "F32" in one.modifiers:
            return self.intervals["half_to_float"]
        if unit == "tensor" and "1688" in one.modifiers:
            return self.intervals["tensor"] / 2  # half the products of the one measured
        if unit == "lsu" and one.base in ("LDG", "LD", "STG", "ST", "LDGSTS"):
            return self.intervals["global"]
        return self.intervals.get(unit, 1.0)

    def shared_interval(self, one: Instruction, request: Request | None) -> float:
        """Cycles of the SM's load/store unit that an instruction takes, all sub-partitions."""
        table = self.shared_intervals
        base = one.base
        if base in ("SHFL", "REDUX"):
            return table["shuffle"]
        if base in ("LDS", "STS", "LDSM", "STSM", "ATOMS"):
            return table["shared"] * (request.wavefronts if request is not None else 1)
        if base in ("LDG", "LD", "STG", "ST", "LDGSTS", "RED", "REDG", "ATOM", "ATOMG"):
            waves = request.wavefronts if request is not None else 1
            return table["global"] * waves
        return 0.0

    def zero_stall_cycles(self, one: Instruction) -> float:
        """What a stall count of 0 stands for: on sm_120 a wait of about 37 cycles."""
        return self.variable.get("zero_stall", 1.0)

    def l1_latency(self, request: Request) -> float:
        """L1 hit of a warp-wide request."""
        widths = sorted(self.l1)
        return self.l1[min(widths, key=lambda width: abs(width - request.bytes_per_lane))]

    def l2_latency(self, request: Request) -> float:
        """L2 hit of a warp-wide request, memory idle."""
        rows = self.l2_async if request.kind == "async" else self.l2_rows
        return rows(request.sectors * 32)

    def dram_latency(self, request: Request) -> float:
        """Memory access of a warp-wide request, memory idle."""
        rows = self.dram_async if request.kind == "async" else self.dram_rows
        return rows(request.sectors * 32)
