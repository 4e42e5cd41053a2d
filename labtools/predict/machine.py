"""The numbers of one GPU that the SM model runs on: its table of latencies
(`labtools.predict.latencies`), which carries a source each, and the clock, memory rate, L2 and SMs
of its own."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import median, median_high
from typing import Any

import numpy as np

from labtools.problem import LabError
from labtools.toolchain.operands import (
    GLOBAL_ACCESSES,
    GLOBAL_LOADS,
    GLOBAL_STORES,
    SHARED_ACCESSES,
    product_columns,
)
from labtools.toolchain.sass import Instruction, Sass

from .latencies import REFERENCE, Latencies, load_latencies
from .sheets import Gpu
from .streams import SECTOR_BYTES, Request, matrices

PRODUCT_OF_WARP_FLOPS = 4096
"""Operations of a product of m16 n8 k16 by a warp."""
FP64_CYCLES = {"sm_80": 4.0, "sm_90": 2.0, "sm_100": 2.0, "sm_103": 2.0}
"""Cycles of a sub-partition for a double-precision instruction of a warp; 64 elsewhere. CUDA C++
Programming Guide 13.0, throughput of native arithmetic instructions."""
PRODUCT_FLOPS = 4096
"""Operations of dense 16-bit products a cycle of an SM of sm_90: 989.4e12 a second of an H100 SXM
at its 1830 MHz for tensor cores, over 132 SMs (NVIDIA H100 Tensor Core GPU Architecture, 2022)."""
READ_EFFICIENCY = 0.95
"""Share of a data sheet's memory rate that a read reaches, where it was not measured (an H200
reads at 97 % of its sheet's rate)."""
USUAL_CODE_KIB, CACHED_CODE_KIB = 16, 32
"""Code as large as kernels mostly are, and as an SM's instruction caches hold."""
FITTED = {
    "h200": {
        "start_us": 0.28,
        "dram_scale": 1.03,
        "scattered": 0.88,
        "atomic_ns": 0.58,
        "stored": 1.17,
        "stores_together": 1.8,
        "fresh_product": 8.93,
    }
}
"""By GPU, what no microbenchmark isolates; fitted on its calibration kernels of ``points.toml``
alone. A GPU without any takes those of the GPU whose curves it has, else the reference's.

`start_us`: what a kernel costs beyond an empty one before its first load; on the launch points.
`dram_scale`: latency of a kernel's loads from memory over that of the microbenchmark's single
stream; on the chain points of two runs. `scattered`: see `Machine`; on the bandwidth points of
r02. `atomic_ns`: on the read sweep. `stored`: see `Machine`; on the copies of
``research.measure_units``. `stores_together`, `fresh_product`: see `Machine`; measured there."""
_L1_SHARE_BYTES = 256 * 1024

_OPCODES = {
    "fp32": "FFMA FADD FMUL FFMA2 FADD2 FMUL2",
    "imad": "IMAD UIMAD",
    "fp16": "HFMA2 HADD2 HMUL2 HFMA2_MMA HMNMX2 HSET2 HSETP2",
    "xu": "MUFU I2F F2I F2F POPC FLO BREV FRND I2FP_XU",
    "fp64": "DFMA DADD DMUL DSETP",
    "lsu": " ".join((*GLOBAL_ACCESSES, *SHARED_ACCESSES, "LDL STL SHFL REDUX")),
    "tensor": "HMMA IMMA QMMA BMMA DMMA HGMMA IGMMA QGMMA",
    "control": (
        "BRA EXIT BAR BSSY BSYNC WARPSYNC NOP DEPBAR LDGDEPBAR CALL RET YIELD MEMBAR ERRBAR CCTL "
        "JMP S2R S2UR CS2R LDC ULDC LDCU VOTE R2UR B2R ELECT SYNCS NANOSLEEP"
    ),
}
_UNIT_OF = {opcode: unit for unit, opcodes in _OPCODES.items() for opcode in opcodes.split()}
_CLASSES = {
    "special_register": "S2R S2UR CS2R R2UR",
    "constant": "LDC ULDC LDCU",
    "barrier": "BAR",
    "memory": " ".join((*GLOBAL_LOADS, "LDGDEPBAR ATOM ATOMG DEPBAR")),
    "tensor": _OPCODES["tensor"],
    "convert": "F2F I2F F2I HADD2 F2FP FRND POPC FLO",
    "special": "MUFU",
    "shared": " ".join(SHARED_ACCESSES),
    "fence": "MEMBAR",
    "shuffle": "SHFL MOVM",
}
_CLASS_OF = {opcode: name for name, opcodes in _CLASSES.items() for opcode in opcodes.split()}
_LATENCIES = {
    "ldc": "LDC ULDC LDCU",
    "s2r": "S2R S2UR CS2R",
    "vote": "VOTE VOTEU",
    "l1": "LDL STL",
    "fence": "MEMBAR",
    "shared_32": "STS",
    **{name: name.upper() for name in ("shfl", "redux", "r2ur", "i2f", "f2i", "f2f", "f2fp")},
    **{name: name.upper() for name in ("hmma", "imma", "movm")},
}
_LATENCY_OF = {opcode: name for name, opcodes in _LATENCIES.items() for opcode in opcodes.split()}
"""The name in `Machine.variable` by opcode, where it follows from that alone."""

UNITS = ("fp32", "imad", "fp16", "xu", "fp64", "lsu", "tensor", "control", "uniform", "alu", "none")
"""The pipes of a sub-partition; an instruction whose guard holds nowhere goes to none."""


def unit_of(one: Instruction) -> str:
    """The pipe of a sub-partition that an instruction goes to."""
    return _UNIT_OF.get(one.base, "uniform" if one.base.startswith("U") else "alu")


@dataclass(frozen=True)
class Curve:
    """A measured curve, interpolated between its points and flat beyond them."""

    x: tuple[float, ...]  # increasing
    y: tuple[float, ...]  # same length

    def __call__(self, at: float) -> float:
        """The curve's value at ``at``."""
        return float(np.interp(at, self.x, self.y))

    @staticmethod
    def through(points: Iterable[tuple[float, float]]) -> Curve:
        """The curve of (x, y), x increasing."""
        x, y = zip(*points, strict=True)
        return Curve(tuple(map(float, x)), tuple(map(float, y)))

    def scaled(self, factor: float) -> Curve:
        """The same curve with every value times ``factor``."""
        return Curve(self.x, tuple(value * factor for value in self.y))


@dataclass(frozen=True)
class LoadCurve:
    """Cycles that load adds to a latency, by share of the ceiling: log(wait) is straight over log(u
    / (1 - u)) between points, and grows beyond as u / (1 - u), as any queue's near its limit."""

    shares: tuple[float, ...]  # increasing, 0..1
    waits: tuple[float, ...]  # cycles, increasing

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
    """One GPU as the SM model sees it. Cycles are SM cycles."""

    name: str  # short name of the GPU
    calibrated: bool  # the numbers were measured on this GPU by the project's microbenchmarks
    clock_ghz: float  # SM clock under load
    tensor_clock_ghz: float  # the same of SMs that use a tensor core at all, now and then
    product_clock_ghz: float  # the same while all tensor cores work on products of warpgroups
    # sm_count, sub_partitions: of the GPU, of an SM
    sm_count: int
    sub_partitions: int
    # latency of shuffles, shared loads, conversions and the like, by class
    variable: dict[str, float]
    # cycles between two instructions on one pipe of a sub-partition, by unit; ``fresh_product`` of
    # a product of a warp of which no factor was kept (`Sass.fresh_products`)
    intervals: dict[str, float]
    shared_intervals: dict[str, float]  # cycles that the SM's one load/store unit needs, by class
    l1: dict[int, float]  # latency of an L1 hit
    # l2_rows, dram_rows: latency of a warp-wide load by bytes asked for
    l2_rows: Curve
    dram_rows: Curve
    # l2_async, dram_async: the same for a copy to shared memory, its wait included
    l2_async: Curve
    dram_async: Curve
    # l2_box, dram_box: the same for a copy of a box by a tensor map; from memory on one SM alone
    l2_box: Curve
    dram_box: Curve
    # l2_beside, dram_beside: cycles by which the last of several rows side by side comes later, for
    # each doubling of their bytes
    l2_beside: float
    dram_beside: float
    # l2_apart, dram_apart: the same of 1, 2, 4, .. rows that lie anywhere
    l2_apart: tuple[float, ...]
    dram_apart: tuple[float, ...]
    box_bytes_per_cycle: float  # that memory gives to such copies of all SMs together
    # cycles of an SM for each 128-byte line of a warp-wide store, all SMs storing, by the bytes
    # stored there side by side; 0 where it was not measured
    store_lines: Curve
    store_drain: float  # cycles until a store can be seen by all: measured, else those of the L2's
    # by where A comes from, cycles of the tensor cores for each column of a product of a warpgroup,
    # by its columns
    products: dict[str, Curve]
    product_queue: float  # products that may be started and not done, of all warpgroups together
    product_latency: float  # cycles of a product beyond those
    barrier_cycles: float  # from the last warp's arrival until all go on
    barrier_interval: float  # cycles that the SM's barrier unit takes for each arriving warp
    # slow_dram, slow_l2: latency on the SM that has it worst, over the middle one's
    slow_dram: float
    slow_l2: float
    l2_sm_cycles: float  # of a latency beyond the L1, those that pass by the SM's clock
    fill_bytes_per_cycle: float  # from the L2 into one SM
    # dram_bytes_per_cycle, l2_bytes_per_cycle: the whole GPU's ceilings, a SM cycle
    dram_bytes_per_cycle: float
    l2_bytes_per_cycle: float
    # dram_queue, l2_queue: what load adds to a latency, by share of the ceiling in use
    dram_queue: LoadCurve
    l2_queue: LoadCurve
    # share of the memory's ceiling that a kernel reaches whose blocks each read one row after
    # another, 1 KiB at a time, instead of a large piece
    scattered: float
    # of a kernel that reads memory too, time of a byte stored there over that of a byte read
    stored: float
    # of a store of parts of sectors, cycles of an SM while all store over those of one alone
    stores_together: float
    atomic_ns: float  # one atomic operation on an address that all blocks use, nanoseconds
    l2_miss: Curve  # share of warm reads that miss the L2, by bytes read again and again
    l1_bytes: float
    branch_cycles: float  # cost of a taken branch beyond its stall count
    cold_line_cycles: float  # first fetch of a 128-byte line of instructions by an SM
    cold_lines: Curve  # the same by the size of the code, KiB, for code beyond `USUAL_CODE_KIB`
    operand_read_cycles: float  # from issue until a memory instruction has read its operands
    launch_us: Curve  # an empty launch by number of blocks
    start_us: float  # fixed cost of a launch that works, beyond an empty one
    numbers_of: str = ""  # whose latencies these are, where they are not the GPU's own
    # where each number comes from
    sources: dict[str, str] = field(default_factory=dict, repr=False)

    def dispatch_us(self, blocks: int) -> float:
        """What an empty launch of so many blocks takes; in proportion beyond those measured."""
        return self.launch_us(blocks) * max(1.0, blocks / self.launch_us.x[-1])

    def chunk_share(self, chunk_bytes: float) -> float:
        """Share of the memory's ceiling by the bytes that a block reads side by side: it rises with
        the logarithm from 1 KiB (`scattered`) to 8 KiB (all), since fewer pages are opened."""
        if chunk_bytes <= 0:
            return 1.0
        steps = min(3.0, max(0.0, math.log2(8192.0 / chunk_bytes)))
        return 1.0 - (1.0 - self.scattered) * steps / 3.0

    def bytes_in_flight(self, share: float) -> float:
        """Bytes that every SM must have on the way for a share of the read ceiling, 0 to 1: rate
        times the latency of 512-byte copies under that load (Little's law)."""
        latency = self.dram_async(512) + self.dram_queue(share)
        return share * self.dram_bytes_per_cycle / self.sm_count * latency

    def beside_tensor_cores(self) -> Machine:
        """The same GPU while its SMs use their tensor cores: the SMs' clock is lower, and the L2
        and the memory, which have clocks of their own, take fewer of its cycles."""
        ratio, own = self.tensor_clock_ghz / self.clock_ghz, self.l2_sm_cycles

        def nearer(curve: Curve) -> Curve:
            return Curve(curve.x, tuple(own + ratio * (cycles - own) for cycles in curve.y))

        def shorter(curve: LoadCurve) -> LoadCurve:
            return LoadCurve(curve.shares, tuple(ratio * cycles for cycles in curve.waits))

        rows = ("l2_rows", "dram_rows", "l2_async", "dram_async", "l2_box", "dram_box")
        rates = ("dram_bytes_per_cycle", "l2_bytes_per_cycle", "box_bytes_per_cycle")
        changed: dict[str, Any] = {
            "clock_ghz": self.tensor_clock_ghz,
            "dram_queue": shorter(self.dram_queue),
            "l2_queue": shorter(self.l2_queue),
            **{name: nearer(getattr(self, name)) for name in rows},
            **{name: getattr(self, name) / ratio for name in rates},
            "l2_beside": ratio * self.l2_beside,
            "dram_beside": ratio * self.dram_beside,
            "l2_apart": tuple(ratio * cycles for cycles in self.l2_apart),
            "dram_apart": tuple(ratio * cycles for cycles in self.dram_apart),
        }
        return replace(self, **changed)

    def latency_class(self, one: Instruction) -> str:
        """What kind of latency an instruction has, for tables, stacks and "what if"."""
        return _CLASS_OF.get(one.base, "fixed")

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
        return table.get(_LATENCY_OF.get(base, "default"), table["default"])

    def product(self, one: Instruction) -> tuple[float, float]:
        """(cycles of the tensor cores, cycles beyond them) of a product of a warpgroup."""
        columns = product_columns(one.modifiers)
        return columns * self.products[_source_of_a(one)](columns), self.product_latency

    def clock_at(self, share: float) -> float:
        """SM clock in GHz while products of warpgroups keep a share of the tensor cores busy."""
        return self.clock_ghz - share * (self.clock_ghz - self.product_clock_ghz)

    def interval(self, unit: str, one: Instruction, sass: Sass) -> float:
        """Cycles until the same pipe of the sub-partition takes another instruction than one of
        ``sass``."""
        if one.base in ("HADD2",) and "F32" in one.modifiers:
            return self.intervals["half_to_float"]
        if unit == "tensor" and "1688" in one.modifiers:
            return self.intervals["tensor"] / 2  # half the products of the one measured
        if one.index in sass.fresh_products:
            return self.intervals["fresh_product"]
        if unit == "lsu" and (one.base in GLOBAL_LOADS or one.base in GLOBAL_STORES):
            return self.intervals["global"]
        return self.intervals.get(unit, 1.0)

    def shared_interval(self, one: Instruction, request: Request | None) -> float:
        """Cycles of the SM's load/store unit that an instruction takes, all sub-partitions."""
        table = self.shared_intervals
        base = one.base
        if base in ("SHFL", "REDUX"):
            return table["shuffle"]
        if base in SHARED_ACCESSES:
            return table["shared"] * (request.wavefronts if request is not None else 1)
        if request is not None and request.is_partial:
            return self.store_path(request)
        if base in GLOBAL_ACCESSES:
            waves = request.wavefronts if request is not None else 1
            return table["global"] * waves
        return 0.0

    def store_interval(self, request: Request) -> float:
        """Cycles of an SM that a warp-wide store takes on its way to the L2."""
        side_by_side = 32.0 * request.bytes_per_lane / request.wavefronts
        return request.wavefronts * self.store_lines(side_by_side)

    @staticmethod
    def store_path(request: Request) -> float:
        """Cycles of an SM for a partial store on its way to the L2, if no other SM stores: one a
        line and one a sector, two of which go together where lanes share them
        (``research.measure_units``)."""
        return request.wavefronts + request.sectors * max(0.5, min(1.0, request.sectors / 32))

    def stored_l2_bytes(self, request: Request) -> float:
        """What the L2 takes of a store, as bytes at the rate at which it is read."""
        if not request.is_partial:
            return SECTOR_BYTES * request.sectors
        taken = self.stores_together * self.store_path(request)
        return taken * self.l2_bytes_per_cycle / self.sm_count

    def cold_line(self, sass: Sass) -> float:
        """First fetch of a line of instructions; a kernel whose warps have roles has many."""
        size = len(sass.executable) / 64
        few = size <= USUAL_CODE_KIB or not sass.has_roles
        return self.cold_line_cycles if few else self.cold_lines(size)

    def zero_stall_cycles(self, one: Instruction) -> float:
        """What a stall count of 0 stands for: on sm_120 a wait of about 37 cycles."""
        return self.variable.get("zero_stall", 1.0)

    def l1_latency(self, request: Request) -> float:
        """L1 hit of a warp-wide request."""
        widths = sorted(self.l1)
        return self.l1[min(widths, key=lambda width: abs(width - request.bytes_per_lane))]

    def l2_latency(self, request: Request) -> float:
        """L2 hit of a warp-wide request, memory idle."""
        rows = {"async": self.l2_async, "box": self.l2_box}.get(request.kind, self.l2_rows)
        return rows(request.sectors * 32)

    def dram_latency(self, request: Request) -> float:
        """Memory access of a warp-wide request, memory idle."""
        rows = {"async": self.dram_async, "box": self.dram_box}.get(request.kind, self.dram_rows)
        return rows(request.sectors * 32)


def _source_of_a(one: Instruction) -> str:
    """Where the left factor of a product of a warpgroup comes from."""
    return "shared" if one.operands[1].kind == "memory" else "registers"


# ----------------------------------------------------------------------------- from a table


def machine_of(gpu: Gpu) -> Machine:
    """The machine that the SM model runs on."""
    known = load_latencies(gpu)
    mhz = known.sm_mhz if known.calibrated else gpu.boost_clock_mhz
    if mhz is None:
        raise LabError(
            f"The SM clock of {gpu.title} is not known here.",
            "neither its data sheet nor a microbenchmark gives it",
            "labtools microbench on the GPU itself, and the roofline's floors",
        )
    clock_ghz = mhz / 1e3
    fitted = FITTED.get(gpu.name) or FITTED.get(known.curves_of or "") or FITTED[REFERENCE]
    sm_ghz = known.value("clock.sm", 1980.0) / 1e3
    if known.calibrated:
        dram_rate, l2_rate = known.memory("hbm_gb_per_s"), known.memory("l2_gb_per_s")
    elif gpu.dram_gb_per_s is None:
        raise LabError(
            f"The memory rate of {gpu.title} is not known here.",
            "there is no data sheet with it",
            "occupancy and waves",
        )
    else:
        dram_rate = READ_EFFICIENCY * gpu.dram_gb_per_s
        # The L2 feeds each SM alike; more SMs and a higher clock take more from it.
        reference = max(1, known.num_sms) * sm_ghz
        l2_rate = known.memory("l2_gb_per_s") * gpu.sm_count * clock_ghz / reference
    barrier_cycles, barrier_interval = _barrier(known)
    dram_scale = fitted["dram_scale"]
    fill = known.memory("one_sm_l2_gb_per_s") / sm_ghz
    scale = gpu.l2_bytes / known.l2_bytes if known.l2_bytes else 1.0
    return Machine(
        name=gpu.name,
        calibrated=known.calibrated,
        clock_ghz=clock_ghz,
        tensor_clock_ghz=_tensor_clock(known, gpu, clock_ghz),
        product_clock_ghz=_product_clock(known, gpu, clock_ghz),
        sm_count=gpu.sm_count,
        sub_partitions=gpu.sub_partitions,
        variable=_variable(known),
        intervals=_intervals(known, gpu, fitted["fresh_product"]),
        shared_intervals={
            name: known.interval(f"{of}_sm")
            for name, of in (("shuffle", "shfl"), ("shared", "lds32"), ("global", "ldg32"))
        },
        l1={size // 32: hit for size, hit in sorted(known.by_number("latency.l1_row").items())},
        l2_rows=_rows(known, "latency.l2_row", known.latency("l2")),
        dram_rows=_rows(known, "latency.hbm_row", known.latency("hbm")).scaled(dram_scale),
        l2_async=_rows(known, "latency.async_l2", known.latency("l2")),
        dram_async=_rows(known, "latency.async_hbm", known.latency("hbm")).scaled(dram_scale),
        l2_box=_box_rows(known, "l2"),
        dram_box=_box_rows(known, "hbm").scaled(dram_scale),
        l2_beside=_beside(known, "l2", fill),
        dram_beside=_beside(known, "hbm", fill),
        l2_apart=_apart(known, "l2"),
        dram_apart=_apart(known, "hbm"),
        store_lines=_store_lines(known),
        store_drain=known.latency("store_drain.128", known.latency("l2")),
        box_bytes_per_cycle=_box_rate(known, dram_rate / clock_ghz),
        **_products(known),
        barrier_cycles=barrier_cycles,
        barrier_interval=barrier_interval,
        slow_dram=_slowest(known, "hbm_row"),
        slow_l2=_slowest(known, "l2_row"),
        l2_sm_cycles=known.latency("l2_sm", 0.0),
        fill_bytes_per_cycle=fill,
        dram_bytes_per_cycle=dram_rate / clock_ghz,
        l2_bytes_per_cycle=l2_rate / clock_ghz,
        dram_queue=_load_curve(known.curve("hbm"), known),
        l2_queue=_load_curve([one for one in known.curve("l2") if one.get("mib") == 16], known),
        scattered=fitted["scattered"],
        stored=fitted["stored"],
        stores_together=fitted["stores_together"],
        atomic_ns=fitted["atomic_ns"],
        l2_miss=_miss_curve(known.curve("l2_footprint"), scale),
        l1_bytes=_L1_SHARE_BYTES if known.calibrated else float(gpu.smem_per_sm_bytes),
        branch_cycles=known.latency("branch"),
        cold_line_cycles=_cold_line(known),
        cold_lines=_cold_lines(known),
        operand_read_cycles=known.interval("lds32") + known.latency("alu", 4.0),
        launch_us=_launch_curve(known),
        start_us=fitted["start_us"],
        numbers_of="" if known.calibrated else known.numbers_of,
        sources={name: entry.source for name, entry in known.entries.items()},
    )


def _variable(known: Latencies) -> dict[str, float]:
    """Latencies of what the scoreboard tracks, by the model's names."""
    names = {
        **{name: name for name in ("shfl", "ldc", "s2r", "vote", "redux", "ldsm", "l1")},
        **{name: name for name in ("hmma", "imma")},
        **{f"shared_{bits}": f"shared.{bits}" for bits in (32, 64, 128)},
        **{"mufu_ex2": "ex2", "mufu_rcp": "rcp", "r2ur": "s2r", "default": "xu"},
        **{"i2f": "byte_to_float", "f2i": "float_to_int", "f2f": "float_to_int"},
        "f2fp": "float_to_half2",
        # A fence waits for the L2; a move of a matrix is a shuffle where it was not measured.
        "fence": "l2",
        "movm": "movm" if known.has("latency.movm") else "shfl",
    }
    found = {ours: known.latency(theirs) for ours, theirs in names.items()}
    # An mbarrier lies in shared memory: asking it is a load, and arriving takes half of that.
    ask = known.latency("phase_ended", found["shared_32"])
    found["phase_ask"] = ask
    found["phase_arrive"] = max(0.0, known.latency("phase_turn", 1.5 * ask) - ask)
    if known.arch.startswith("sm_12"):
        found["zero_stall"] = 37.0  # a stall count of 0 waits for the pipe to drain there
    return found


def _intervals(known: Latencies, gpu: Gpu, fresh_product: float) -> dict[str, float]:
    """Cycles between two instructions of a pipe. Where they were not measured on the GPU itself, a
    pipe is no faster than its data sheet says: GeForce multiplies at half the rate where it adds up
    in fp32."""
    same = ("fp32", "imad", "fp16", "half_to_float", "alu", "xu")
    others = {"lsu": "lds32", "global": "ldg32", "tensor": "hmma", "uniform": "alu"}
    found = {ours: known.interval(theirs) for ours, theirs in others.items()}
    clock = (gpu.boost_clock_mhz or 0) * 1e6 * gpu.sm_count
    for name, tflops, flops in (
        ("tensor", gpu.fp16_tensor_tflops, PRODUCT_OF_WARP_FLOPS),
        ("fp32", gpu.fp32_tflops, 64),
    ):
        if tflops and clock and not known.calibrated:
            least = flops * gpu.sub_partitions * clock / (tflops * 1e12)
            found[name] = max(found.get(name, known.interval(name, 1.0)), least)
    found["fp64"] = FP64_CYCLES.get(known.arch.rstrip("af"), 64.0)
    found["fresh_product"] = max(found["tensor"], fresh_product)
    return {**{name: known.interval(name) for name in same}, **found, "control": 1.0}


def _rows(known: Latencies, name: str, otherwise: float) -> Curve:
    points = sorted(known.by_number(name).items())
    if not points:
        return Curve((128.0,), (otherwise,))
    if not known.calibrated and known.entry(f"{name}.{points[0][0]}").assumed:
        # Another GPU's rows tell how the latency grows with the bytes; the level is its own.
        shift = otherwise - points[0][1]
        points = [(size, cycles + shift) for size, cycles in points]
    return Curve.through(points)


def _box_rows(known: Latencies, level: str) -> Curve:
    """Latency of a copy by a tensor map by its bytes: measured, else that of other bulk copies.
    From memory it is that of one SM alone; `Machine.box_bytes_per_cycle` has what all share."""
    alone = "_one" if level == "hbm" else ""
    box, bulk = f"latency.box_{level}{alone}", f"latency.bulk_{level}{alone}"
    return _rows(known, box if known.by_number(box) else bulk, known.latency(level))


def _store_lines(known: Latencies) -> Curve:
    """`Machine.store_lines`, from stores of 4 bytes a lane."""
    points = sorted(known.by_number("interval.store_sm").items()) or [(128, 0.0)]
    return Curve.through((size, each * size / 128) for size, each in points)


def _box_rate(known: Latencies, otherwise: float) -> float:
    """Bytes a cycle that memory gives to copies by tensor maps of all SMs together."""
    rates = [
        point["bytes"] / point["cycles"]
        for point in known.curve("boxes")
        if point["level"] == "hbm" and point["warps"] == "every SM"
    ]
    return min(otherwise, max(rates) * max(1, known.num_sms)) if rates else otherwise


def _beside(known: Latencies, level: str, fill_bytes_per_cycle: float) -> float:
    """Cycles by which the last of four rows side by side comes after a row alone, less the time in
    which an SM takes them, for each doubling: the median over their widths. 0 where that was not
    measured."""
    found = {
        (point["bytes_per_lane"], point["loads"]): point["cycles"]
        for point in known.curve("rows")
        if (point["level"], point["distance"], point["warps"]) == (level, "contiguous", "every SM")
    }
    each = [
        (found[width, 4] - one - 3 * 32 * width / fill_bytes_per_cycle) / 2
        for (width, loads), one in found.items()
        if loads == 1
    ]
    return max(0.0, median(each)) if each else 0.0


def _apart(known: Latencies, level: str) -> tuple[float, ...]:
    """Cycles by which the last of 1, 2, 4, .. rows that lie anywhere comes after a row alone, less
    what as many copies of one row take: the median over their widths. 0 where that was not
    measured."""
    more: dict[int, list[float]] = {}
    found = {
        (point["level"], point["bytes_per_lane"], point["rows"]): point["cycles"]
        for point in known.curve("apart")
    }
    for of, width, rows in found:
        if of == level:
            apart = found[level, width, rows] - found[level, width, 1]
            same = found["one row", width, rows] - found["one row", width, 1]
            more.setdefault(rows, []).append(apart - same)
    return tuple(max(0.0, median(more[rows])) for rows in sorted(more)) or (0.0, 0.0)


def _tensor_clock(known: Latencies, gpu: Gpu, clock_ghz: float) -> float:
    """The clock of SMs that use a tensor core at all, GHz: measured, or of the sheet."""
    if not known.calibrated:
        return _product_clock(known, gpu, clock_ghz)
    return min(clock_ghz, known.value("clock.tensor", clock_ghz * 1e3) / 1e3)


def _product_clock(known: Latencies, gpu: Gpu, clock_ghz: float) -> float:
    """The clock at which the power lets all tensor cores work, GHz: measured, or of the sheet."""
    if known.calibrated and known.has("clock.products"):
        return min(clock_ghz, known.value("clock.products") / 1e3)
    if gpu.fp16_tensor_tflops is None or gpu.arch != "sm_90":
        return clock_ghz
    return min(clock_ghz, gpu.fp16_tensor_tflops * 1e3 / gpu.sm_count / PRODUCT_FLOPS)


def _products(known: Latencies) -> dict[str, Any]:
    """Products of a warpgroup. m64 n N k16 is 2048 N operations, of which an SM of sm_90 does
    `PRODUCT_FLOPS` a cycle; the microbenchmarks may say more. Without them the latency beyond those
    is that of a warp's own product, and any number may be started."""
    least = 2048 / PRODUCT_FLOPS
    taken = {}
    for source in ("shared", "registers"):
        measured = sorted(known.by_number(f"interval.product_{source}_sm").items())
        points = [(float(n), max(least, found / n)) for n, found in measured] or [(64.0, least)]
        taken[source] = Curve.through(points)
    latency = known.latency("hmma")
    if known.has("latency.product_shared.64") and known.has("interval.product_shared.64"):
        whole = known.latency("product_shared.64") - known.interval("product_shared.64")
        latency = max(0.0, whole - known.latency("loop_trip"))
    queues = known.by_number("interval.product_queue_shared")
    queue = float(median_high(list(queues.values()))) if queues else math.inf
    return {"products": taken, "product_queue": queue, "product_latency": latency}


def _slowest(known: Latencies, name: str) -> float:
    """Latency on the slowest SM over that on the middle one, the upper middle over row sizes."""
    middle, slow = known.by_number(f"latency.{name}"), known.by_number(f"latency.{name}_slowest")
    ratios = [slow[size] / middle[size] for size in slow if size in middle]
    return median_high(ratios) if ratios else 1.0


def _barrier(known: Latencies) -> tuple[float, float]:
    """(cycles after the last arrival, cycles of the barrier unit for each arriving warp): a
    straight line over 1 to 32 warps."""
    points = sorted(known.by_number("latency.barrier").items())
    if len(points) < 2:
        return 12.0, 2.0
    (few, short), (many, long) = points[0], points[-1]
    interval = (long - short) / (many - few)
    return short - few * interval, interval


def _cold_line(known: Latencies) -> float:
    """First fetch of 128 bytes of instructions, beyond that of code that ran before: the mean over
    straight-line code of 1 to 16 KiB, which kernels mostly are."""
    extra = [extra for size, extra in _cold_points(known) if size <= USUAL_CODE_KIB]
    return max(0.0, sum(extra) / len(extra)) if extra else 4.0


def _cold_points(known: Latencies) -> list[tuple[float, float]]:
    """(KiB of straight-line code, cycles a line by which its first pass is longer)."""
    return [
        (point["kib"], (point["cold_cycles"] - point["warm_cycles"]) / (8 * point["kib"]))
        for point in known.curve("code")
        if point["warps"] == 1
    ]


def _cold_lines(known: Latencies) -> Curve:
    """The same for larger code that the SM's caches hold, by its size: the mean at each."""
    sizes: dict[float, list[float]] = {}
    for size, extra in _cold_points(known):
        if USUAL_CODE_KIB <= size <= CACHED_CODE_KIB:
            sizes.setdefault(size, []).append(max(0.0, extra))
    points = [(size, sum(found) / len(found)) for size, found in sorted(sizes.items())]
    return Curve.through(points or [(USUAL_CODE_KIB, _cold_line(known))])


def _load_curve(points: Sequence[Mapping[str, Any]], known: Latencies) -> LoadCurve:
    """What load adds to a latency, from bandwidth by bytes in flight, which over the rate are the
    latency (Little's law). In each series (loads and bytes a lane fixed, warps rising) the first
    point counts as unloaded. The curve is the median over the series, by share of the ceiling."""
    sms, clock = max(1, known.num_sms), known.value("clock.sm", 1980.0) / 1e3
    by_series: dict[tuple[int, int], list[tuple[float, float]]] = {}
    ceilings: dict[int, float] = {}
    for point in points:
        width = int(point["bytes_per_lane"])
        ceilings[width] = max(ceilings.get(width, 0.0), float(point["gb_per_s"]))
    for point in points:
        if int(point["loads"]) > 4:  # long bursts wait for one another, loaded or not
            continue
        rate = float(point["gb_per_s"])
        latency = float(point["in_flight_bytes_per_sm"]) / (rate / sms / clock)
        series = by_series.setdefault((int(point["loads"]), int(point["bytes_per_lane"])), [])
        series.append((rate / ceilings[int(point["bytes_per_lane"])], latency))
    samples: list[tuple[float, float]] = []
    for series in by_series.values():
        series.sort()
        base = min(latency for _, latency in series[:3]) if series else 0.0
        samples += [(share, latency - base) for share, latency in series]
    edges = (0.0, 0.08, 0.2, 0.35, 0.45, 0.6, 0.75, 0.86, 0.92, 0.975)
    shares: list[float] = []
    waits: list[float] = []
    for low, high in pairwise(edges):
        inside = [one for one in samples if low < one[0] <= high and one[1] > 0]
        if inside:
            share, wait = (median_high(values) for values in zip(*inside, strict=True))
            if not waits or wait > waits[-1]:
                shares.append(share)
                waits.append(wait)
    if len(shares) < 2:
        return LoadCurve((0.3, 0.55, 0.85, 0.96), (22.0, 85.0, 325.0, 1150.0))
    return LoadCurve(tuple(shares), tuple(waits))


def _miss_curve(points: Sequence[Mapping[str, Any]], scale: float) -> Curve:
    """Share of warm reads that miss the L2 by footprint, scaled to another L2's size."""
    ordered = sorted(points, key=lambda point: point["mib"])
    if not ordered:
        return Curve((0.6e8 * scale, 1.0e8 * scale), (0.0, 1.0))
    fastest = max(range(len(ordered)), key=lambda place: ordered[place]["gb_per_s"])
    # Up to the fastest point everything hits; short runs before it are slow for other reasons.
    kept = [(ordered[fastest]["mib"], 0.0)]
    for point in ordered[fastest + 1 :]:
        kept.append((point["mib"], max(kept[-1][1], float(point["missing"]))))
    return Curve.through((mib * 2.0**20 * scale, missing) for mib, missing in kept)


def _launch_curve(known: Latencies) -> Curve:
    empty = [one for one in known.curve("launch") if one["kind"] == "empty"]
    points = sorted((one["grid"], one["us"]) for one in empty if one["threads"] == 128)
    return Curve.through(points or [(1.0, 0.5), (1e5, 60.0)])
