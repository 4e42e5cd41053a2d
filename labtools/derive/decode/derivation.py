"""From the limits of a GPU to a decode kernel: each choice follows from a number before it.

The division is the rule's of `block_plan`, which the launch asks too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from labtools.predict.banks import Tile, TileReport, check_tile
from labtools.predict.residency import occupancy
from labtools.predict.sheets import Gpu
from labtools.problem import (
    CHOSEN_INT4,
    CHOSEN_INT8,
    SCHEMES,
    LabError,
    Problem,
    Workload,
    load_rung,
)
from labtools.problem.decode import block_plan
from labtools.problem.decode.block_plan import Division, join_bytes, tile_bytes
from labtools.problem.limits import COPY_BYTES, MOST_REGISTERS
from labtools.problem.prefill import Prefill

from ..attention import attention_slope
from ..engine import Asked, Derivation, check_copies, read_problem
from ..parts import (
    MOST_STAGES,
    NOT_TOLD_APART,
    WARP,
    AnyDesign,
    DesignStep,
    Figure,
    Rejected,
    Sheet,
    footprint_words,
)
from ..sm import TARGET_SHARE, share_in_flight
from ..traffic import SLOPE_BYTES, SlopePoint, sum_of_slopes
from . import facts
from .facts import (
    ENOUGH_SLOTS,
    MATRIX_COLUMNS,
    MATRIX_DEPTH,
    MATRIX_ROWS,
    SLACK,
    WARP_CHOICES,
    Work,
    tile_work,
)


@dataclass(frozen=True)
class Design(AnyDesign):
    """A decode kernel, derived."""

    workload: Workload
    bits: int  # of an element of K and V in memory
    arithmetic: str  # ``tensor cores`` or ``CUDA cores``
    group_columns: tuple[int, int]  # columns of the product that heads fill, and that it has
    tile_keys: int  # keys that a warp takes at a time
    tile_bytes: int  # of K and V together, one tile
    stages: int  # tiles of a warp's ring in the launch; step ``stages`` has what is asked for
    warps_per_sm: int  # that step ``warps`` asks for; the launch may have fewer
    warps: int  # of a block
    blocks_per_sm: int  # resident at a time, of the launch; step ``residency`` has what fits
    smem_bytes: int  # of a block
    registers: int  # of a thread, estimated
    cluster: int  # blocks that join through each other's shared memory, 1 for none
    parts: int  # most blocks that share one (sequence, KV head)
    blocks: int  # of the grid
    time_stack: tuple[Figure, ...]  # what the time is the sum of, microseconds
    slope: tuple[SlopePoint, ...]  # least traffic by size of a buffer
    stops: str  # where analysis stops

    @property
    def title(self) -> str:
        """What was derived, and for which GPU."""
        return f"{self.workload} with {self.bits} bits on {self.gpu}"

    @property
    def summary(self) -> str:
        """The kernel in one line."""
        return (
            f"{self.arithmetic}, tile of {self.tile_keys} keys, "
            f"{self.warps_per_sm} warps per SM, {self.stages} stages, {self.blocks} blocks of "
            f"{self.warps} warps in clusters of {self.cluster}, {self.smem_bytes:,} bytes of "
            f"shared memory per block, {self.time_us:.2f} us"
        )

    @property
    def specified(self) -> tuple[str, dict[str, int]]:
        """The shipped kernel to build; without knobs its launch is the derived one."""
        return facts.RUNG_OF_BITS[self.bits], {}


def derive_decode(work: Problem | str | None, gpu: Gpu, asked: Asked) -> Design:
    """Derive a decode kernel from a GPU's limits; a workload's lengths count one by one."""
    workload, bits = read_problem("decode", work), asked.bits
    if bits not in facts.BITS:
        why = f"the derivation knows {', '.join(map(str, facts.BITS))} bits"
        raise LabError(f"K and V of {bits} bits are not known here.", why, "choose one of these")
    check_copies(gpu)
    dim = workload.head_dim
    if dim % MATRIX_DEPTH:
        what = f"A head dimension of {dim} fits no matrix product."
        raise LabError(what, f"it must be a multiple of {MATRIX_DEPTH}", "the rungs up to r08")
    row_bytes = dim * bits // 8
    chunks = row_bytes // COPY_BYTES
    if chunks & (chunks - 1):
        raise LabError(
            f"A head dimension of {dim} has no row that can be swizzled.",
            f"a row of {row_bytes} bytes is {chunks} pieces of {COPY_BYTES} bytes, and xor moves a "
            "power of two",
            "a head dimension of 64 or 128; the rungs up to r08 and every forecast of them",
        )
    if bits < 16 and row_bytes not in (64, 128):
        raise LabError(
            f"Rows of {row_bytes} bytes are not known here.",
            f"{bits} bits of a head dimension of {dim}; the order of codes in shared "
            "memory is known for rows of 64 and 128 bytes",
            "16 bits, or a head dimension of 128",
        )
    return _DecodeDerivation(workload, gpu, bits).design()


def _words_of(way: Division) -> tuple[str, str]:
    """A way to divide a pair, and how its pieces become one."""
    pieces = f"{way.pieces} pieces of a pair"
    if way.pieces == 1:
        return "a block for each pair", "nothing to merge"
    if way.clusters == 1:
        named = f"clusters of {way.cluster} for a pair"
        return named, "merged through the shared memory of a cluster"
    if way.cluster == 1:
        return pieces, "merged through memory by the last to finish"
    through = "merged through shared memory in a cluster, and among clusters through memory"
    return f"{pieces}, in clusters of {way.cluster}", through


def _why_not_taken(one: Division, way: Division) -> str:
    """Why a way that takes less time than the choice was not taken; nothing if it takes more."""
    if one.time_us >= way.time_us:
        return ""
    if way.clusters < one.clusters:
        return "; near to the choice, which has fewer clusters of a pair"
    if one.crowded and not way.crowded:
        return "; near to the choice, which has no more blocks than SMs"
    return f"; near to the choice, which has {'smaller' if way.crowded else 'larger'} clusters"


class _DecodeDerivation(Derivation):
    sheet = Sheet(Path(__file__).with_name("steps.toml"))

    def __init__(self, workload: Workload, gpu: Gpu, bits: int) -> None:
        super().__init__(gpu)
        self.workload, self.bits = workload, bits
        self.group, self.dim = workload.group_size, workload.head_dim
        self.row_bytes = self.dim * bits // 8
        # A low-bit cache is the guide's choice of scheme, with its scales and biases.
        scheme = {8: SCHEMES[CHOSEN_INT8], 4: SCHEMES[CHOSEN_INT4]}.get(bits)
        self.stored = scheme.name if scheme is not None else workload.dtype
        self.kv_bytes = scheme.kv_bytes(workload) if scheme is not None else workload.kv_bytes
        self.bytes = workload.minimal_bytes - workload.kv_bytes + self.kv_bytes
        rung = load_rung(facts.RUNG_OF_BITS[bits])
        takes = any(one.name == "tile" and self.keys in one.choices for one in rung.knobs)
        self.plan = block_plan.plan_of(
            rung, workload, gpu.limits, {"tile": self.keys} if takes else {}
        )
        self.ways = block_plan.divisions(workload, gpu.limits, self.plan.kernel)
        self.way = block_plan.choose_division(self.ways)
        self.ties = {
            "of the issue slots": (0.0, ENOUGH_SLOTS),
            "times the rate": (SLACK, math.inf),
            "of the ceiling": (self._reached(self.stages) / NOT_TOLD_APART, math.inf),
            "us to read and merge": (0.0, block_plan.near_us(self.way.time_us)),
        }

    def design(self) -> Design:
        kept = (self._tile, self._warps, self._stages, self._alignment, self._residency)
        order = (self._bytes, self._arithmetic, self.in_flight_step, *kept, self._division)
        steps = tuple(step() for step in (*order, self._time))
        plan, stack = self.plan, steps[-1].inputs
        return self.made(
            Design,
            steps,
            workload=self.workload,
            bits=self.bits,
            arithmetic=self.arithmetic,
            group_columns=(self.group, self.columns),
            tile_keys=self.keys,
            tile_bytes=self.tile_bytes,
            stages=plan.stages,
            warps_per_sm=self.warps,
            warps=plan.warps,
            blocks_per_sm=plan.blocks_per_sm,
            smem_bytes=plan.smem_bytes,
            registers=self.registers,
            layout=self.layout,
            cluster=plan.cluster,
            parts=plan.pieces,
            blocks=plan.pairs * plan.pieces,
            time_us=sum(one.value for one in stack),
            time_stack=stack,
            slope=self._slope(),
        )

    def _speed(self, keys: int) -> float:
        """Bytes a cycle that one warp works through, by the keys of a tile."""
        return tile_bytes(keys, self.dim, self.bits) / self._work_of(keys).cycles

    @cached_property
    def speeds(self) -> dict[int, float]:
        """By keys of a tile, how many times as fast as tiles come the most warps work."""
        choices, most = facts.TILE_CHOICES[self.bits], WARP_CHOICES[-1]
        return {keys: most * self._speed(keys) / self.sm_rate for keys in choices}

    @cached_property
    def keys(self) -> int:
        """Of a tile."""
        fast = (keys for keys, speed in self.speeds.items() if speed >= SLACK)
        return next(fast, facts.TILE_CHOICES[self.bits][-1])

    @cached_property
    def tile_bytes(self) -> int:
        """Of K and V, one tile."""
        return tile_bytes(self.keys, self.dim, self.bits)

    @cached_property
    def work(self) -> Work:
        """Of a warp for one tile."""
        return self._work_of(self.keys)

    @cached_property
    def slack(self) -> dict[int, float]:
        """By warps, how many times as fast as tiles come they work."""
        each = self._speed(self.keys)
        return {warps: warps * each / self.sm_rate for warps in WARP_CHOICES}

    @cached_property
    def fitting(self) -> list[int]:
        """Numbers of warps whose rings of two tiles fit a block."""
        room = self.gpu.smem_per_block_bytes
        return [n for n in WARP_CHOICES if self._smem_bytes(n, 2) <= room] or [1]

    @cached_property
    def warps(self) -> int:
        """Of an SM."""
        least = self.machine.sub_partitions
        enough = [n for n in self.fitting if self.slack[n] >= SLACK and n >= least]
        return enough[0] if enough else self.fitting[-1]

    @cached_property
    def stages(self) -> int:
        """Tiles of a warp's ring that keep the bytes on the way, as far as they fit."""
        turn = self.warps * self.tile_bytes
        fits = max(2, min(MOST_STAGES, self.gpu.smem_per_block_bytes // turn))
        return max(2, min(1 + math.ceil(self.need / turn), fits))

    def _reached(self, stages: int) -> float:
        """Share of the ceiling that the bytes on the way of a ring reach."""
        there = (stages - 1) * self.warps * self.tile_bytes
        return share_in_flight(there / self.machine.slow_dram, self.machine)

    def _work_of(self, keys: int) -> Work:
        return tile_work(keys, self.dim, self.bits, self.machine, self.group)

    def _smem_bytes(self, warps: int, stages: int | None = None) -> int:
        """Dynamic shared memory of a block of so many warps."""
        stages = self.stages if stages is None else stages
        joining = 128 * -(-join_bytes(warps, self.group, self.dim) // 128)
        return max(warps * stages * self.tile_bytes, joining)

    def _slope(self) -> tuple[SlopePoint, ...]:
        """Least traffic with memory by size of a buffer: attention with one query a sequence."""
        work, lengths = self.workload, [int(one) for one in self.workload.lengths]
        key_bytes = self.kv_bytes / (work.num_kv_heads * sum(lengths))
        heads = work.num_qo_heads, work.num_kv_heads
        each = []
        for length in dict.fromkeys(lengths):
            one = Prefill(1, *heads, length, work.head_dim, qo_len=1)
            points = attention_slope(one, SLOPE_BYTES, key_bytes)
            each.append((points, lengths.count(length)))
        return tuple(sum_of_slopes(SLOPE_BYTES, each))

    def _bytes(self) -> DesignStep:
        rate, sheet = self.dram_gb_per_s, self.gpu.dram_gb_per_s
        others = self.bytes - self.kv_bytes
        l2 = self.machine.l2_bytes_per_cycle * self.machine.clock_ghz
        whole = self.kv_bytes * self.group + others
        return self.step(
            "bytes",
            [self.kv_bytes, others, rate, sheet or None],
            [self.bytes / rate / 1e3, self.bytes / l2 / 1e3],
            [
                self.bytes / sheet / 1e3 if sheet else None,
                whole / rate / 1e3 if self.group > 1 else None,
            ],
            ceiling=self.ceiling_source,
            sheet_source=self.gpu.sources.get("dram_gb_per_s", ""),
            footprint=footprint_words(self.bytes, self.gpu.l2_bytes),
            reached=rate / sheet if sheet else 1.0,
        )

    def _arithmetic(self) -> DesignStep:
        machine, keys = self.machine, facts.TILE_CHOICES[self.bits][0]
        slots = machine.sub_partitions / self.sm_rate  # warp instructions for each byte
        key_bytes = 2 * self.row_bytes
        in_tile = keys * key_bytes
        plain = facts.cuda_core_instructions(self.dim, self.group, self.bits) / key_bytes / slots
        passes = -(-self.group // MATRIX_COLUMNS)
        work = tile_work(keys, self.dim, self.bits, machine)
        tensor = passes * work.instructions / in_tile / slots
        unit = passes * work.tensor_cycles / machine.sub_partitions / (in_tile / self.sm_rate)
        self.arithmetic = "tensor cores" if max(tensor, unit) <= plain else "CUDA cores"
        self.columns = passes * MATRIX_COLUMNS
        row_passes = -(-self.group // MATRIX_ROWS)  # heads as the 16 rows of A
        interval = self.known.entry("interval.hmma")
        clock = "microbenchmark clock" if machine.calibrated else "data sheet, boost clock"
        peak = self.gpu.fp32_tflops
        self.case = self.arithmetic
        load_store = work.unit_cycles / (in_tile / self.sm_rate)
        against = [plain, self.group / (row_passes * MATRIX_ROWS)]
        if self.case == "CUDA cores":
            against = [tensor]
        return self.step(
            "arithmetic",
            [
                self.group,
                self.workload.flops / self.kv_bytes,
                self.sm_rate,
                Figure("SM clock", machine.clock_ghz, "GHz", clock),
                Figure("cycles a matrix product", interval.value, "cycles", interval.source),
                peak * 1e3 / self.dram_gb_per_s if peak else None,
            ],
            [tensor, plain, unit, load_store, self.group / self.columns],
            against,
            as_rows=unit * 2 * row_passes / passes,
            enough="above half, a few warps that issue in order cannot do it"
            if plain >= ENOUGH_SLOTS
            else "below half a few warps can do it too, with less room for what else there is",
        )

    def _tile(self) -> DesignStep:
        choices, schedulers = facts.TILE_CHOICES[self.bits], self.machine.sub_partitions
        copies = 2 * self.keys * self.row_bytes / 16 / WARP
        return self.step(
            "tile",
            [MATRIX_ROWS, self.row_bytes, 16, self.workload.page_size or None],
            [self.keys, self.tile_bytes, copies],
            [
                0.5,
                {keys: self.speeds[keys] for keys in choices if keys < self.keys},
                tile_bytes(2 * self.keys, self.dim, self.bits),
            ],
            most=WARP_CHOICES[-1],
            half=choices[0] // 2,
            twice=2 * self.keys,
            slack=SLACK,
            schedulers=schedulers,
            turn=2 * schedulers * self.keys,
        )

    def _warps(self) -> DesignStep:
        schedulers, slack = self.machine.sub_partitions, self.slack
        rejected = []
        for warps in WARP_CHOICES:
            if warps == self.warps:
                continue
            value, unit = slack[warps], "times the rate"
            if warps not in self.fitting:
                room = self.gpu.smem_per_block_bytes
                value, unit = self._smem_bytes(warps, 2), "bytes"
                why = f"two tiles of each are more than the {room:,} that a block may have"
            elif warps > self.warps:
                why = (
                    f"twice the partial results to merge and a turn of {warps * self.keys} keys, "
                    f"where {slack[self.warps]:.1f} times the rate are there already"
                )
            elif slack[warps] < SLACK:
                why = f"the warps must work {SLACK} times as fast as tiles can come"
            else:
                why = f"leaves {schedulers - warps} of the SM's schedulers idle"
            named = f"{warps} warp{'s' * (warps > 1)}"
            rejected.append(Rejected(named, value, unit, why))
        work, launched = self.work, self.plan.warps * self.plan.blocks_per_sm
        return self.step(
            "warps",
            [work.instructions, work.cycles, self.tile_bytes, self.sm_rate, schedulers],
            [self.warps, slack[self.warps]],
            rejected,
            launched=""
            if launched == self.warps
            else f"; the launch has {launched} by its own rule",
        )

    def _stages(self) -> DesignStep:
        room, turn = self.gpu.smem_per_block_bytes, self.warps * self.tile_bytes
        reached = self._reached
        share, on_the_way = reached(self.stages), (self.stages - 1) * turn
        rejected = []
        for stages in sorted({self.stages - 1, self.stages + 1, 2} - {self.stages, 1}):
            size = self._smem_bytes(self.warps, stages)
            value, unit = reached(stages), "of the ceiling"
            if size > room:
                value, unit, why = size, "bytes", f"more than the {room:,} that a block may have"
            elif stages < self.stages:
                why = f"below the {TARGET_SHARE:.0%} asked for"
            else:
                why = f"gains {value - share:.2%} for {turn:,} bytes"
            rejected.append(Rejected(f"{stages} stages", value, unit, why))
        reserve = self.gpu.smem_reserved_per_block_bytes
        return self.step(
            "stages",
            [self.need, self.tile_bytes, self.warps, room, reserve],
            [self.stages, on_the_way, share, self._smem_bytes(self.warps)],
            rejected,
            kib=on_the_way // 1024,
        )

    def _alignment(self) -> DesignStep:
        self.layout = self.case = "xor" if self.bits == 16 else "codes"
        codes, matrices = ("codes_of_k", "codes_of_v"), ("matrix", "matrix_transposed")
        accesses = ("copy", *(matrices if self.bits == 16 else codes))
        row = self.row_bytes

        def report(stride: int, layout: str = "plain") -> TileReport:
            return check_tile(Tile(self.keys, row, stride, layout), accesses)

        chosen, plain, padded = report(row, self.layout), report(row), report(row + 16)
        odd = report(row + 2)
        return self.step(
            "alignment",
            [row, 32, 8],
            [_worst_of(chosen), chosen.stride_mod_16, chosen.padding_bytes],
            [_worst_of(plain), padded.padding_bytes, odd.misaligned_rows],
            padded=_worst_of(padded),
            odd=odd,
        )

    def _residency(self) -> DesignStep:
        gpu, steps = self.gpu, self.dim // MATRIX_DEPTH
        fragments = 2 * steps + 4 * steps + 8 + 8 + 6
        self.registers = fragments + (16 if self.bits < 16 else 0) + 40
        size = self._smem_bytes(self.warps)

        def fit(blocks: int) -> Any:
            warps = self.warps // blocks
            return occupancy(gpu, WARP * warps, self.registers, self._smem_bytes(warps))

        one = fit(1)
        least = block_plan.LEAST_BLOCK_WARPS
        shared = {n: fit(n) for n in facts.SHARED_BLOCKS if self.warps // n >= least}
        shares = [n for n, fits in shared.items() if fits.blocks_per_sm >= n]
        found = [Figure("blocks of all warps", max(1, one.blocks_per_sm), "", f"by {one.limiter}")]
        for n, fits in shared.items():
            named = f"blocks of {self.warps // n} warps"
            found.append(Figure(named, fits.blocks_per_sm, "", f"by {fits.limiter}"))
        most = gpu.max_warps_per_sm
        return self.step(
            "residency",
            [self.warps, size, gpu.smem_per_sm_bytes, gpu.registers_per_sm, fragments],
            [*found, self.registers, self.warps / most],
            [self.need / most / WARP],
            shares="".join(f", or {n} of {self.warps // n}" for n in shares),
            limit=min(MOST_REGISTERS, gpu.registers_per_sm // (WARP * self.warps)),
        )

    def _division(self) -> DesignStep:
        """Asks the rule that the rung's launch asks too."""
        plan, way, limits, sources = self.plan, self.way, self.gpu.limits, self.gpu.sources
        blocks, (named, joins) = plan.pairs * plan.pieces, _words_of(way)
        choice = f"the choice has {way.blocks} on {way.sms}, and takes {way.time_us:.2f} us"
        rejected = []
        for one in (one for one in self.ways if one is not way):
            said = f"{one.blocks} blocks on {one.sms} SMs; {choice}{_why_not_taken(one, way)}"
            rejected.append(Rejected(_words_of(one)[0], one.time_us, "us to read and merge", said))
        by_size = (limits.clusters, plan.kernel.sm_gb_per_s)
        fitting = [dict(sorted(one.items())) for one in by_size]
        launch = plan.warps, plan.blocks_per_sm, plan.stages
        joining = block_plan.CLUSTER_JOIN_US, block_plan.MEMORY_JOIN_US
        return self.step(
            "division",
            [plan.pairs, limits.num_sms, *fitting, *joining],
            [way.time_us, blocks, *launch, plan.pieces, way.sms],
            rejected,
            sm_source=sources.get("sm_count", "data sheet"),
            cluster_source=sources.get("clusters", ""),
            named=named,
            joins=joins,
        )

    def _time(self) -> DesignStep:
        machine, stream = self.machine, self.way.stream_us
        clock = machine.clock_ghz
        start = machine.launch_us(self.way.blocks) + machine.start_us
        ends = self.work.cycles / clock / 1e3 + self.way.join_us
        parts = [start, machine.dram_async(512) / clock / 1e3, stream, ends]
        total = sum(parts)
        floor = self.bytes / self.dram_gb_per_s / 1e3
        return self.step("time", parts, [total, floor / total])


def _worst_of(report: TileReport) -> float:
    return max(one.wavefronts / one.least for one in report.accesses)
