"""From the limits of a GPU to a decode kernel: each choice follows from a number before it.

A kernel is usually written first and explained afterwards. Here the order is turned round: which
limit can a workload not escape, how many bytes must be on the way to reach it, what tile, ring and
number of warps keep them on the way, how must rows lie in shared memory, who reads what and how is
it joined, and how long will it then take. `derive` answers for a GPU and a
workload; every step keeps its inputs with their sources, and the alternatives with the numbers
that reject them. The division is the rule's of `block_plan`, which the launch asks too.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from labtools.problem import CHOSEN_INT4, CHOSEN_INT8, SCHEMES, LabError, Workload, load_rung
from labtools.problem.decode.block_plan import (
    CLUSTER_JOIN_US,
    LEAST_BLOCK_WARPS,
    MEMORY_JOIN_US,
    Division,
    choose_division,
    divisions,
    join_bytes,
    plan_of,
    tile_bytes,
)
from labtools.problem.limits import COPY_BYTES, MOST_REGISTERS
from labtools.problem.prefill import Prefill

from ..banks import Tile, TileReport, check_tile
from ..inversion.parts import (
    ISSUE_CYCLES,
    MOST_STAGES,
    PER_COPY,
    WARP,
    DesignStep,
    Figure,
    Rejected,
    footprint_words,
)
from ..inversion.product import SLOPE_BYTES, WHERE_IT_STOPS
from ..inversion.traffic import SlopePoint, sum_of_slopes
from ..latencies import Latencies, load_latencies
from ..machine import Machine, machine_of
from ..prefill.traffic import attention_slope
from ..residency import occupancy
from ..sheets import Gpu, load_gpu
from .derivation import Design

BITS = (16, 8, 4)
RUNG_OF_BITS = {16: "r09_inverted", 8: "r10_inverted_int8", 4: "r11_inverted_int4"}
"""The rung of each number of bits; its layout is the one that is derived."""
_TIMED = "layouts timed on an NVIDIA H200"
MATRIX_ROWS, MATRIX_COLUMNS, MATRIX_DEPTH = 16, 8, 16
"""mma.m16n8k16: rows of A, columns of B, and the length of the sums."""
TILE_CHOICES = {16: (16, 32, 64), 8: (32, 64), 4: (32, 64)}
"""Keys of a tile by bits. Of codes a lane takes pairs of keys at once, which makes 32 the least;
the scales of 64 keys of V are as many bytes as memory brings at a time."""
TARGET_SHARE = 0.99
"""Share of the read ceiling that the bytes on the way are chosen for."""
SLACK = 2.5
"""The warps of an SM must work through tiles so many times as fast as they can come, so that most
of them may wait for a late tile, a join or one another. A choice, made after r09 had been timed
with 4 and with 8 warps an SM: of the one sequence of a small batch, 8 made more."""
WARP_CHOICES = (1, 2, 4, 8)
SHARED_BLOCKS = (2, 4)
"""Blocks that may share an SM."""

PER_SCORES = {16: 55, 8: 34, 4: 34}
"""Instructions from 16 keys' scores to their weights, by bits: masks, maximum, exponentials,
packing and two transpositions. Counted in r09, r10 and r11; a tile of codes has one maximum."""
PER_TRIP = {16: 55, 8: 145, 4: 145}
"""Instructions of a trip that depend on no size; a low-bit cache has more kinds of them."""
PER_FRAGMENT = {16: 0.0, 8: 4.0, 4: 4.0}
"""Instructions that turn codes into one A fragment of 16-bit numbers (four registers). Counted in
r10's and r11's machine code."""
OFFSET_PRODUCTS = {16: 0, 8: 1, 4: 1}
"""Products for the offset of V's codes, for every 16 keys. K's is one of q, once for many tiles."""
UNIT_CYCLES = 4
"""Turns of the SM's load/store unit for 512 bytes, copied into shared memory or read from it."""


@dataclass(frozen=True)
class Work:
    """What one warp does for one tile."""

    # copies, loads, products, converts: instructions of each kind
    copies: float
    loads: float
    products: float
    converts: float
    instructions: float  # all
    tensor_cycles: float  # of one sub-partition's matrix unit
    unit_cycles: float  # of the SM's load/store unit
    # from the tile's arrival to the next tile, for a warp alone on its scheduler that finds the
    # load/store unit busy for as long as it uses it itself
    cycles: float


def tile_work(keys: int, head_dim: int, bits: int, machine: Machine) -> Work:
    """Instructions and cycles of one tile in one warp, on tensor cores.

    Args:
        keys: of the tile, a multiple of 16.
        head_dim: elements of a row.
        bits: of an element in memory.
        machine: latencies and intervals.
    """
    copies = tile_bytes(keys, head_dim, bits) / (16 * WARP)
    products = 2 * (keys / MATRIX_ROWS) * (head_dim / MATRIX_DEPTH)
    loads = products * bits / 16
    converts = products * PER_FRAGMENT[bits]
    products += OFFSET_PRODUCTS[bits] * keys / MATRIX_ROWS
    instructions = (
        PER_COPY * copies
        + loads
        + products
        + converts
        + PER_SCORES[bits] * keys / MATRIX_ROWS
        + PER_TRIP[bits]
    )
    latency = machine.variable
    chain = (
        latency["ldsm"]
        + head_dim / MATRIX_DEPTH / 2 * latency["hmma"]
        + latency["vote"]
        + latency["mufu_ex2"]
        + latency["movm"]
        + latency["ldsm"]
        + latency["hmma"]
    )
    unit = UNIT_CYCLES * (copies + loads)
    return Work(
        copies,
        loads,
        products,
        converts,
        instructions,
        products * machine.intervals["tensor"],
        unit,
        ISSUE_CYCLES * instructions + 2 * unit + chain,
    )


def group_work(keys: int, head_dim: int, group: int, bits: int, machine: Machine) -> Work:
    """`tile_work` with a further product for every 8 query heads beyond the first ones.

    Args:
        keys: of the tile, a multiple of 16.
        head_dim: elements of a row.
        group: query heads that share a KV head.
        bits: of an element in memory.
        machine: latencies and intervals.
    """
    work = tile_work(keys, head_dim, bits, machine)
    passes = -(-group // MATRIX_COLUMNS)
    extra = (passes - 1) * (work.products + PER_SCORES[bits] * keys / MATRIX_ROWS)
    return dataclasses.replace(
        work,
        products=passes * work.products,
        instructions=work.instructions + extra,
        tensor_cycles=passes * work.tensor_cycles,
        cycles=work.cycles + ISSUE_CYCLES * extra,
    )


def cuda_core_instructions(head_dim: int, group: int, bits: int) -> float:
    """Warp instructions for one key on CUDA cores, the least over 8, 16 or 32 lanes a row.

    Each query head multiplies every element of K and of V once; an element becomes a float first;
    the sum of a row goes over its lanes by shuffles and additions; a weight takes about six
    instructions on every lane of the row.
    """
    convert = {16: 1.0, 8: 2.0, 4: 2.5}[bits]
    loads = 2 * head_dim * bits / 8 / 16 * 2  # into shared memory and out of it, 16 bytes each

    def with_lanes(lanes: int) -> float:
        multiply = 2 * group * head_dim
        reduce = group * lanes * (2 * math.log2(lanes) + 6)
        return (multiply + 2 * convert * head_dim + reduce + loads) / WARP

    return min(with_lanes(lanes) for lanes in (8, 16, 32))


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


def derive(workload: Workload, gpu: Gpu | str, bits: int = 16) -> Design:
    """Derive a decode kernel from a GPU's limits.

    Args:
        workload: what is computed; its lengths count one by one.
        gpu: a sheet or its name. Its own microbenchmarks are used where there are some.
        bits: of an element of K and V in memory: 16, 8 or 4.

    Raises:
        LabError: the GPU has no asynchronous copies, an unknown rate, or the sizes fit no product.
    """
    gpu = load_gpu(gpu) if isinstance(gpu, str) else gpu
    if bits not in BITS:
        raise LabError(
            f"K and V of {bits} bits are not known here.",
            f"the derivation knows {', '.join(map(str, BITS))} bits",
            "choose one of these",
        )
    if gpu.compute_capability < (8, 0):
        raise LabError(
            f"{gpu.title} has no asynchronous copies into shared memory.",
            "they came with compute capability 8.0, and this derivation rests on them",
            "the rungs up to r08 except r05, and every forecast",
        )
    if workload.head_dim % MATRIX_DEPTH:
        raise LabError(
            f"A head dimension of {workload.head_dim} fits no matrix product.",
            f"it must be a multiple of {MATRIX_DEPTH}",
            "the rungs up to r08",
        )
    row_bytes = workload.head_dim * bits // 8
    chunks = row_bytes // COPY_BYTES
    if chunks & (chunks - 1):
        raise LabError(
            f"A head dimension of {workload.head_dim} has no row that can be swizzled.",
            f"a row of {row_bytes} bytes is {chunks} pieces of {COPY_BYTES} bytes, and xor moves a "
            "power of two",
            "a head dimension of 64 or 128; the rungs up to r08 and every forecast of them",
        )
    if bits < 16 and row_bytes not in (64, 128):
        raise LabError(
            f"Rows of {row_bytes} bytes are not known here.",
            f"{bits} bits of a head dimension of {workload.head_dim}; the order of codes in shared "
            "memory is known for rows of 64 and 128 bytes",
            "16 bits, or a head dimension of 128",
        )
    return _Derivation(workload, gpu, bits).design()


def _name_of(way: Division) -> str:
    """A way to divide a pair, in words."""
    if way.pieces == 1:
        return "a block for each pair"
    if way.clusters == 1:
        return f"clusters of {way.cluster} for a pair"
    if way.cluster == 1:
        return f"{way.pieces} pieces of a pair"
    return f"{way.pieces} pieces of a pair, in clusters of {way.cluster}"


def _why_not_taken(one: Division, way: Division) -> str:
    """Why a way that takes less time than the choice was not taken; nothing if it takes more."""
    if one.time_us >= way.time_us:
        return ""
    if way.clusters < one.clusters:
        return "; near to the choice, which has fewer clusters of a pair"
    if one.crowded and not way.crowded:
        return "; near to the choice, which has no more blocks than SMs"
    return f"; near to the choice, which has {'smaller' if way.crowded else 'larger'} clusters"


class _Derivation:
    """The steps, in order; each leaves what the later ones need in an attribute."""

    def __init__(self, workload: Workload, gpu: Gpu, bits: int) -> None:
        self.workload, self.gpu, self.bits = workload, gpu, bits
        self.machine = machine_of(gpu)
        self.known: Latencies = load_latencies(gpu)
        self.group = workload.group_size
        self.dim = workload.head_dim
        self.row_bytes = self.dim * bits // 8
        self.sm_rate = self.machine.dram_bytes_per_cycle / gpu.sm_count
        # A low-bit cache is the guide's choice of scheme, with its scales and biases.
        scheme = {8: SCHEMES[CHOSEN_INT8], 4: SCHEMES[CHOSEN_INT4]}.get(bits)
        self.stored = scheme.name if scheme is not None else workload.dtype
        self.kv_bytes = scheme.kv_bytes(workload) if scheme is not None else workload.kv_bytes
        self.bytes = workload.minimal_bytes - workload.kv_bytes + self.kv_bytes

    def design(self) -> Design:
        steps = [
            self._bytes(),
            self._arithmetic(),
            self._in_flight(),
            self._tile(),
            self._warps(),
            self._stages(),
            self._alignment(),
            self._residency(),
            self._division(),
        ]
        steps.append(self._time())
        return Design(
            workload=self.workload,
            gpu=self.gpu.name,
            calibrated=self.machine.calibrated,
            bits=self.bits,
            arithmetic=self.arithmetic,
            group_columns=(self.group, self.columns),
            tile_keys=self.keys,
            tile_bytes=self.tile_bytes,
            stages=self.plan.stages,
            warps_per_sm=self.warps,
            warps=self.plan.warps,
            blocks_per_sm=self.plan.blocks_per_sm,
            smem_bytes=self.plan.smem_bytes,
            registers=self.registers,
            layout=self.layout,
            cluster=self.plan.cluster,
            parts=self.plan.pieces,
            blocks=self.plan.pairs * self.plan.pieces,
            time_us=sum(one.value for one in self.stack),
            time_stack=self.stack,
            slope=self._slope(),
            stops=WHERE_IT_STOPS,
            steps=tuple(steps),
        )

    # -------------------------------------------------------------------------- small parts

    def _measured(self, name: str, what: str, unit: str) -> Figure:
        entry = self.known.entry(name)
        return Figure(what, entry.value, unit, entry.source)

    def _ceiling(self) -> Figure:
        rate = self.machine.dram_bytes_per_cycle * self.machine.clock_ghz
        if self.machine.calibrated:
            source = self.known.entry("memory.hbm_gb_per_s").source
        else:
            source = "the data sheet's rate, times the share that an NVIDIA H200 reaches of its own"
        return Figure("read ceiling", rate, "GB/s", source)

    def _clock(self) -> Figure:
        source = "microbenchmark clock" if self.machine.calibrated else "data sheet, boost clock"
        return Figure("SM clock", self.machine.clock_ghz, "GHz", source)

    def _us(self, cycles: float) -> float:
        return cycles / self.machine.clock_ghz / 1e3

    def _slope(self) -> tuple[SlopePoint, ...]:
        """Least traffic with memory by size of a buffer: attention with one query a sequence."""
        work, lengths = self.workload, [int(one) for one in self.workload.lengths]
        key_bytes = self.kv_bytes / (work.num_kv_heads * sum(lengths))
        heads = work.num_qo_heads, work.num_kv_heads
        each = [
            (attention_slope(one, SLOPE_BYTES, key_bytes), lengths.count(length))
            for length in dict.fromkeys(lengths)
            for one in (Prefill(1, *heads, length, work.head_dim, qo_len=1),)
        ]
        return tuple(
            sum_of_slopes(size, [(points[at], count) for points, count in each])
            for at, size in enumerate(SLOPE_BYTES)
        )

    # --------------------------------------------------------------------------------- steps

    def _bytes(self) -> DesignStep:
        ceiling, sheet = self._ceiling(), self.gpu.dram_gb_per_s
        floor_us = self.bytes / ceiling.value / 1e3
        inputs = [
            Figure("K and V", self.kv_bytes, "bytes", f"workload, kept as {self.stored}"),
            Figure("q, output, lengths", self.bytes - self.kv_bytes, "bytes", "workload"),
            ceiling,
        ]
        l2 = self.machine.l2_bytes_per_cycle * self.machine.clock_ghz
        results = [
            Figure("floor", floor_us, "us", "bytes / read ceiling"),
            Figure("L2", self.bytes / l2 / 1e3, "us", "bytes / its rate"),
        ]
        rejected = []
        if sheet:
            inputs.append(
                Figure("data sheet", sheet, "GB/s", self.gpu.sources.get("dram_gb_per_s", ""))
            )
            rejected.append(
                Rejected(
                    "the data sheet's rate as the limit",
                    self.bytes / sheet / 1e3,
                    "us",
                    f"what a read reaches, the read ceiling, is {ceiling.value / sheet:.0%} of it",
                )
            )
        whole = self.kv_bytes * self.group + self.bytes - self.kv_bytes
        rejected.append(
            Rejected(
                "a block for each query head",
                whole / ceiling.value / 1e3,
                "us",
                "every row would be asked for once a head of the group; only the L2 could save it",
            )
        )
        return DesignStep(
            "bytes",
            "Which time can no kernel beat?",
            tuple(inputs),
            "floor = (K + V + q + output) / read ceiling; K and V with their scales",
            tuple(results),
            "each row of K and V is read once, for all query heads of its group; "
            + footprint_words(self.bytes, self.gpu.l2_bytes),
            "a cache that is warm and fits the L2; two sequences that share rows",
            tuple(rejected if self.group > 1 else rejected[:-1]),
        )

    def _arithmetic(self) -> DesignStep:
        machine = self.machine
        slots = machine.sub_partitions / self.sm_rate  # warp instructions for each byte
        key_bytes = 2 * self.row_bytes
        plain = cuda_core_instructions(self.dim, self.group, self.bits) / key_bytes / slots
        passes = -(-self.group // MATRIX_COLUMNS)
        keys = TILE_CHOICES[self.bits][0]
        work = tile_work(keys, self.dim, self.bits, machine)
        in_tile = keys * key_bytes
        tensor = passes * work.instructions / in_tile / slots
        unit = passes * work.tensor_cycles / machine.sub_partitions / (in_tile / self.sm_rate)
        self.arithmetic = "tensor cores" if max(tensor, unit) <= plain else "CUDA cores"
        self.columns = passes * MATRIX_COLUMNS
        # Heads as the 16 rows of A: as many products, each with 8 keys.
        as_rows = unit * 2 * -(-self.group // MATRIX_ROWS) / passes
        peak = self.gpu.fp32_tflops
        inputs = [
            Figure("query heads a KV head", self.group, "", "workload"),
            Figure("flops for each byte", self.workload.flops / self.kv_bytes, "", "workload"),
            Figure("read rate of an SM", self.sm_rate, "B/cycle", "ceiling / SMs / clock"),
            self._clock(),
            self._measured("interval.hmma", "cycles a matrix product", "cycles"),
        ]
        if peak:
            ridge = peak * 1e3 / self._ceiling().value
            inputs.append(
                Figure("flops a byte that fp32 could do", ridge, "", "data sheet peak / ceiling")
            )
        rejected = [
            Rejected(
                "CUDA cores",
                plain,
                "of the issue slots",
                "one fma an element and head, conversions, shuffles and exponentials; above half, "
                "a few warps that issue in order cannot do it",
            ),
            Rejected(
                "heads as the rows of A",
                self.group / (-(-self.group // MATRIX_ROWS) * MATRIX_ROWS),
                "of the rows used",
                f"16 rows for {self.group} heads; the matrix unit is busy {as_rows:.1%} instead of "
                f"{unit:.1%} of the time, and the sums take twice the registers",
            ),
        ]
        if self.arithmetic == "CUDA cores":
            rejected = [
                Rejected("tensor cores", tensor, "of the issue slots", "more than CUDA cores need")
            ]
        return DesignStep(
            "arithmetic",
            "Who multiplies?",
            tuple(inputs),
            "share = instructions a byte x bytes a cycle / 4 issue slots a cycle",
            (
                Figure("issue slots, tensor cores", tensor, "of all", "counts x rate"),
                Figure("issue slots, CUDA cores", plain, "of all", "counts x rate"),
                Figure("matrix unit", unit, "of the time", "products x interval x rate"),
                Figure(
                    "load/store unit",
                    work.unit_cycles / (in_tile / self.sm_rate),
                    "of the time",
                    "bytes in and out of shared memory / 128 a cycle",
                ),
                Figure("columns used", self.group / self.columns, "of all", "heads / columns"),
            ),
            f"mma.m16n8k16 with {MATRIX_ROWS} keys as rows and the {self.group} heads of a group "
            f"as {self.columns} columns"
            if self.arithmetic == "tensor cores"
            else "one fma an element and head",
            "a group of more than 8 heads, which takes a second product for every 8; a faster "
            "memory or a slower clock, which move all shares up",
            tuple(rejected),
        )

    def _in_flight(self) -> DesignStep:
        machine = self.machine
        slow = machine.slow_dram
        need = machine.bytes_in_flight(TARGET_SHARE) * slow
        self.need = need
        idle = machine.dram_async(512)
        loaded = idle + machine.dram_queue(TARGET_SHARE)
        unloaded = self.sm_rate * idle
        return DesignStep(
            "in_flight",
            "How many bytes must be on the way?",
            (
                Figure("read rate of an SM", self.sm_rate, "B/cycle", "ceiling / SMs / clock"),
                Figure(
                    "latency of a 512-byte copy",
                    idle,
                    "cycles",
                    self.known.entry("latency.async_hbm.512").source
                    if self.known.has("latency.async_hbm.512")
                    else "table of latencies",
                ),
                Figure(
                    "wait that load adds",
                    machine.dram_queue(TARGET_SHARE),
                    "cycles",
                    f"bandwidth by bytes in flight, at {TARGET_SHARE:.0%} of the ceiling",
                ),
                Figure("slowest SM over the middle one", slow, "", "rows.hbm"),
            ),
            "bytes = share x rate x loaded latency x slowest SM (Little's law)",
            (
                Figure("in flight an SM", need, "bytes", "formula"),
                Figure("loaded latency", loaded, "cycles", "idle latency + wait"),
            ),
            f"each SM keeps {need / 1024:.0f} KiB on the way",
            "another latency (a far memory, a page-table walk), or a target nearer to the ceiling: "
            "the wait grows without limit there",
            (
                Rejected(
                    "rate times the idle latency",
                    unloaded,
                    "bytes",
                    f"reaches {share_in_flight(unloaded, machine):.0%} of the ceiling: the latency "
                    "under load is longer",
                ),
                Rejected(
                    "half of it",
                    share_in_flight(need / slow / 2, machine),
                    "of the ceiling",
                    f"below the {TARGET_SHARE:.0%} asked for",
                ),
            ),
        )

    def _tile(self) -> DesignStep:
        page, choices = self.workload.page_size, TILE_CHOICES[self.bits]
        schedulers = self.machine.sub_partitions
        most = WARP_CHOICES[-1]
        speed = {
            keys: most * self._speed(keys, self._tile_work(keys)) / self.sm_rate for keys in choices
        }
        self.keys = next((n for n in choices if speed[n] >= SLACK), choices[-1])
        self.tile_bytes = tile_bytes(self.keys, self.dim, self.bits)
        rejected = [
            Rejected(
                f"{choices[0] // 2} keys",
                0.5,
                "of the operands used",
                "half of every product would be padding",
            )
        ]
        for keys in choices:
            if keys < self.keys:
                rejected.append(
                    Rejected(
                        f"{keys} keys",
                        speed[keys],
                        "times the rate",
                        f"{most} warps must work {SLACK} times as fast as tiles can come; what a "
                        "trip costs once is spread over too few keys",
                    )
                )
        rejected.append(
            Rejected(
                f"{2 * self.keys} keys",
                tile_bytes(2 * self.keys, self.dim, self.bits),
                "bytes that arrive in one piece",
                f"{schedulers} warps take {2 * schedulers * self.keys} keys at a turn, so short "
                "sequences are cut coarsely, and a ring has fewer, larger steps",
            )
        )
        copies = 2 * self.keys * self.row_bytes / 16 / WARP
        return DesignStep(
            "tile",
            "How many keys does a warp take at a time?",
            (
                Figure("rows of a product", MATRIX_ROWS, "keys", "mma.m16n8k16"),
                Figure("row", self.row_bytes, "bytes", "head dimension x bits / 8"),
                Figure("widest copy of a lane", 16, "bytes", "cp.async"),
                *((Figure("page", page, "keys", "workload"),) if page else ()),
            ),
            f"the smallest multiple of the rows of a product that {most} warps can work through "
            "fast enough, in whole 16-byte copies",
            (
                Figure("tile", self.keys, "keys", "formula"),
                Figure("bytes of a tile", self.tile_bytes, "bytes", "K, V and scales"),
                Figure("copies a lane", copies, "", "bytes / 16 / 32"),
            ),
            f"{self.keys} keys, {self.tile_bytes:,} bytes, {copies:g} copies a lane",
            "pages of fewer keys than a tile; a head dimension with rows of less than 16 bytes",
            tuple(rejected),
        )

    def _tile_work(self, keys: int) -> Work:
        return group_work(keys, self.dim, self.group, self.bits, self.machine)

    def _speed(self, keys: int, work: Work) -> float:
        """Bytes a cycle that one warp works through."""
        return tile_bytes(keys, self.dim, self.bits) / work.cycles

    def _warps(self) -> DesignStep:
        machine = self.machine
        work = self.work = self._tile_work(self.keys)
        each = self._speed(self.keys, work)
        slack = {warps: warps * each / self.sm_rate for warps in WARP_CHOICES}
        room = self.gpu.smem_per_block_bytes
        fitting = [n for n in WARP_CHOICES if self._smem_bytes(n, 2) <= room] or [1]
        enough = [n for n in fitting if slack[n] >= SLACK and n >= machine.sub_partitions]
        self.warps = enough[0] if enough else fitting[-1]
        rejected = []
        for warps in WARP_CHOICES:
            if warps == self.warps:
                continue
            if warps not in fitting:
                why = f"two tiles of each are more than the {room:,} bytes of a block"
            elif warps > self.warps:
                why = (
                    f"twice the partial results to join and a turn of {warps * self.keys} keys, "
                    f"where {slack[self.warps]:.1f} times the rate are there already"
                )
            elif slack[warps] < SLACK:
                why = f"the warps must work {SLACK} times as fast as tiles can come"
            else:
                why = f"leaves {machine.sub_partitions - warps} of the SM's schedulers idle"
            rejected.append(
                Rejected(f"{warps} warp{'s' * (warps > 1)}", slack[warps], "times the rate", why)
            )
        return DesignStep(
            "warps",
            "How many warps must work?",
            (
                Figure("instructions a tile", work.instructions, "", "counts by size"),
                Figure("cycles a tile", work.cycles, "cycles", "issue and latencies, one warp"),
                Figure("bytes of a tile", self.tile_bytes, "bytes", "step tile"),
                Figure("read rate of an SM", self.sm_rate, "B/cycle", "ceiling / SMs / clock"),
                Figure("schedulers of an SM", machine.sub_partitions, "", "data sheet"),
            ),
            "warps x bytes of a tile / cycles of a tile >= slack x read rate of an SM, and one for "
            "each scheduler",
            (
                Figure("warps", self.warps, "", "formula"),
                Figure("speed over the rate", slack[self.warps], "times", "formula"),
            ),
            f"{self.warps} warps an SM, each with a ring and a maximum of its own, joined once",
            "more instructions a tile than counted here, for example conversions of a low-bit "
            "cache",
            tuple(rejected),
        )

    def _stages(self) -> DesignStep:
        machine = self.machine
        reserve = self.gpu.smem_reserved_per_block_bytes
        room = self.gpu.smem_per_block_bytes
        fits = max(2, min(MOST_STAGES, room // (self.warps * self.tile_bytes)))
        wanted = 1 + math.ceil(self.need / (self.warps * self.tile_bytes))
        self.stages = max(2, min(wanted, fits))
        self.in_flight = (self.stages - 1) * self.warps * self.tile_bytes
        share = share_in_flight(self.in_flight / machine.slow_dram, machine)
        self.share = share
        rejected = []
        for stages in sorted({self.stages - 1, self.stages + 1, 2} - {self.stages}):
            if stages < 2:
                continue
            there = (stages - 1) * self.warps * self.tile_bytes
            reached = share_in_flight(there / machine.slow_dram, machine)
            size = self._smem_bytes(self.warps, stages)
            if size > room:
                why = f"{size:,} bytes, more than the {room:,} that a block may have"
            elif stages < self.stages:
                why = f"below the {TARGET_SHARE:.0%} asked for"
            else:
                why = f"gains {reached - share:.2%} for {self.warps * self.tile_bytes:,} bytes"
            rejected.append(Rejected(f"{stages} stages", reached, "of the ceiling", why))
        size = self._smem_bytes(self.warps)
        return DesignStep(
            "stages",
            "How many tiles does a ring hold?",
            (
                Figure("in flight an SM", self.need, "bytes", "step in_flight"),
                Figure("bytes of a tile", self.tile_bytes, "bytes", "step tile"),
                Figure("warps", self.warps, "", "step warps"),
                Figure("shared memory of a block", room, "bytes", "data sheet"),
                Figure("of it reserved", reserve, "bytes", "data sheet"),
            ),
            "stages = 1 that is read + ceil(in flight / (warps x bytes of a tile))",
            (
                Figure("stages", self.stages, "", "formula"),
                Figure("in flight", self.in_flight, "bytes", "(stages - 1) x warps x tile"),
                Figure("share of the ceiling", share, "of it", "curve at that many bytes"),
                Figure("shared memory", size, "bytes", "stages x warps x tile"),
            ),
            f"{self.stages} stages: {self.in_flight // 1024} KiB on the way while one tile a warp "
            "is read",
            "copies that are not issued as soon as a slot is free; blocks that share the SM",
            tuple(rejected),
        )

    def _alignment(self) -> DesignStep:
        accesses: tuple[str, ...]
        if self.bits == 16:
            self.layout, accesses = "xor", ("copy", "matrix", "matrix_transposed")
            what = "cp.async, ldmatrix and ldmatrix.trans"
            decision = "no padding: 16-byte chunk c of row r stands at c xor (r mod 8)"
        else:
            self.layout, accesses = "codes", ("copy", "codes_of_k", "codes_of_v")
            what = "cp.async, of the loads of K's codes and of ldmatrix.trans on V's"
            decision = (
                "no padding: 16-byte chunks stand where their row has them, but for three bits "
                "that the eighth of the tile in which the row lies moves by xor"
            )

        def report(stride: int, layout: str = "plain") -> TileReport:
            return check_tile(Tile(self.keys, self.row_bytes, stride, layout), accesses)

        def worst_of(found: TileReport) -> float:
            return max(one.wavefronts / one.least for one in found.accesses)

        row = self.row_bytes
        chosen, plain, padded = report(row, self.layout), report(row), report(row + 16)
        odd = report(row + 2)
        return DesignStep(
            "alignment",
            "How do rows lie in shared memory?",
            (
                Figure("row", self.row_bytes, "bytes", "step tile"),
                Figure("banks", 32, "of 4 bytes", "programming guide"),
                Figure("lanes served at a time", 8, "", "16 bytes each, 128 a turn"),
            ),
            f"every lane's address of {what}; turns = the most words that one bank gives",
            (
                Figure("turns over the least, worst access", worst_of(chosen), "", "lane by lane"),
                Figure("row stride mod 16", chosen.stride_mod_16, "bytes", "row stride"),
                Figure("padding", chosen.padding_bytes, "bytes", "none"),
            ),
            decision,
            "a row stride that is no multiple of 16 bytes: the copies fault",
            (
                Rejected(
                    "rows one after another",
                    worst_of(plain),
                    "times the turns",
                    "what is read together lies in the same banks",
                ),
                Rejected(
                    "16 bytes of padding a row",
                    padded.padding_bytes,
                    "bytes of every tile hold nothing",
                    f"{worst_of(padded):g} times the least turns",
                ),
                Rejected(
                    "two bytes of padding a row",
                    odd.misaligned_rows,
                    f"of {self.keys} rows are not aligned",
                    f"a stride of {self.row_bytes + 2} bytes is {odd.stride_mod_16} mod 16, and "
                    "the first copy into such a row faults",
                ),
            ),
        )

    def _smem_bytes(self, warps: int, stages: int | None = None) -> int:
        """Dynamic shared memory of a block of so many warps."""
        stages = self.stages if stages is None else stages
        joining = 128 * -(-join_bytes(warps, self.group, self.dim) // 128)
        return max(warps * stages * self.tile_bytes, joining)

    def _residency(self) -> DesignStep:
        steps = self.dim // MATRIX_DEPTH
        fragments = 2 * steps + 4 * steps + 8 + 8 + 6
        self.registers = fragments + (16 if self.bits < 16 else 0) + 40
        size = self._smem_bytes(self.warps)
        one = occupancy(self.gpu, WARP * self.warps, self.registers, size)
        shared = {
            n: occupancy(
                *(self.gpu, WARP * self.warps // n, self.registers),
                self._smem_bytes(self.warps // n),
            )
            for n in SHARED_BLOCKS
            if self.warps // n >= LEAST_BLOCK_WARPS
        }
        shares = [n for n, fits in shared.items() if fits.blocks_per_sm >= n]
        limit = min(MOST_REGISTERS, self.gpu.registers_per_sm // (WARP * self.warps))
        achieved = self.warps / self.gpu.max_warps_per_sm
        return DesignStep(
            "residency",
            "What does an SM hold?",
            (
                Figure("warps of an SM", self.warps, "", "step warps"),
                Figure("shared memory for all of them", size, "bytes", "step stages"),
                Figure("shared memory of an SM", self.gpu.smem_per_sm_bytes, "bytes", "data sheet"),
                Figure("registers of an SM", self.gpu.registers_per_sm, "", "data sheet"),
                Figure("of q, sums, scores, operands", fragments, "registers", "sizes"),
            ),
            "blocks = min over shared memory, registers and warps",
            (
                Figure("blocks of all warps", max(1, one.blocks_per_sm), "", f"by {one.limiter}"),
                *(
                    Figure(
                        f"blocks of {self.warps // n} warps",
                        *(fits.blocks_per_sm, "", f"by {fits.limiter}"),
                    )
                    for n, fits in shared.items()
                ),
                Figure("registers a thread", self.registers, "", "fragments + addresses"),
                Figure("occupancy", achieved, "of the warps", "warps / most warps"),
            ),
            f"one block of {self.warps} warps"
            + "".join(f", or {n} of {self.warps // n}" for n in shares)
            + "; the bytes on the way stand in shared memory, not in warps",
            f"more than {limit} registers a thread",
            (
                Rejected(
                    "full occupancy",
                    self.need / self.gpu.max_warps_per_sm / WARP,
                    "bytes a lane",
                    f"{self.gpu.max_warps_per_sm} warps with plain loads would hold the same bytes "
                    "in registers, and each warp's partial result must be joined",
                ),
            ),
        )

    # -------------------------------------------------------------------------- who reads what

    def _division(self) -> DesignStep:
        """Asks the rule that the rung's launch asks too."""
        workload, limits = self.workload, self.gpu.limits
        rung = load_rung(RUNG_OF_BITS[self.bits])
        takes = any(one.name == "tile" and self.keys in one.choices for one in rung.knobs)
        knobs = {"tile": self.keys} if takes else {}
        plan = self.plan = plan_of(rung, workload, limits, knobs)
        ways = divisions(workload, limits, plan.kernel)
        way = self.way = choose_division(ways)
        rejected = tuple(
            Rejected(
                _name_of(one),
                one.time_us,
                "us to read and join",
                f"{one.blocks} blocks on {one.sms} SMs; the choice has {way.blocks} on {way.sms}, "
                f"and takes {way.time_us:.2f} us" + _why_not_taken(one, way),
            )
            for one in ways
            if one is not way
        )
        joins = (
            "nothing to join"
            if way.pieces == 1
            else "joined through the shared memory of a cluster"
            if way.clusters == 1
            else "joined through memory by the last to finish"
            if way.cluster == 1
            else "joined through shared memory in a cluster, and among clusters through memory"
        )
        kernel = plan.kernel
        return DesignStep(
            "division",
            "Who reads what?",
            (
                Figure("(sequence, KV head) pairs", plan.pairs, "", "workload"),
                Figure("SMs", limits.num_sms, "", self.gpu.sources.get("sm_count", "data sheet")),
                *(
                    Figure(f"clusters of {size} that fit", fit, "", self.gpu.sources["clusters"])
                    for size, fit in sorted(limits.clusters.items())
                ),
                *(
                    Figure(
                        f"rate of an SM, {warps} warps",
                        *(rate, "GB/s", "timed on an NVIDIA H200 with few blocks"),
                    )
                    for warps, rate in sorted(kernel.sm_gb_per_s.items())
                ),
                Figure("join, each doubling of a cluster", CLUSTER_JOIN_US, "us", _TIMED),
                Figure("join through memory", MEMORY_JOIN_US, "us", _TIMED),
            ),
            "least time to read and join; of times that are near to it, the one with the fewest "
            "clusters of a pair, and of those the largest clusters that give each block an SM, or "
            "else the smallest",
            (
                Figure("time to read and join", way.time_us, "us", "bytes, rates and joins"),
                Figure("blocks", plan.pairs * plan.pieces, "", "of the grid"),
                Figure("warps of a block", plan.warps, "", "tiles of a block, and of its SM"),
                Figure("blocks of an SM", plan.blocks_per_sm, "", "so that all start at once"),
                Figure("stages", plan.stages, "", "no more than a share has turns"),
                Figure("blocks that share a pair", plan.pieces, "", "at most"),
                Figure("SMs counted on", way.sms, "", "blocks, and those that share one"),
            ),
            f"{_name_of(way)}: {plan.pairs * plan.pieces} blocks of {plan.warps} warps, {joins}",
            "lengths that differ much, which leave some shares with little to do",
            rejected,
        )

    def _time(self) -> DesignStep:
        machine = self.machine
        launch = machine.launch_us(self.way.blocks) + machine.start_us
        first = self._us(machine.dram_async(512))
        stream = self.way.stream_us
        merge = self._us(self.work.cycles) + self.way.join_us
        self.stack = (
            Figure("launch", launch, "us", "an empty launch of the grid, and the fitted start"),
            Figure("first bytes", first, "us", "one latency of memory before anything arrives"),
            Figure("stream", stream, "us", "bytes / (share of the ceiling)"),
            Figure("last tile and join", merge, "us", "a tile's cycles, barriers, and the join"),
        )
        total = sum(one.value for one in self.stack)
        floor = self.bytes / self._ceiling().value / 1e3
        return DesignStep(
            "time",
            "How long should it take?",
            self.stack,
            "time = launch + first bytes + stream + last tile and join",
            (
                Figure("expected", total, "us", "the sum"),
                Figure("floor over expected", floor / total, "of the ceiling", "step bytes"),
            ),
            f"{total:.2f} us, of which the rows take {stream:.2f}",
            "anything that keeps copies from being on the way all the time",
        )
