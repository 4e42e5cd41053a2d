"""From the limits of a GPU to a prefill kernel: each choice follows from a number before it.

The model of `costs` is asked for every tile that fits, and says of each choice by itself what the
alternatives would cost. The kernel is `p03_hopper` where there is wgmma, else `p02_corrected`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from labtools.predict.banks import Tile, half_tile
from labtools.predict.sheets import Gpu
from labtools.problem import LabError, Problem
from labtools.problem.prefill import Prefill
from labtools.problem.rung import SWIZZLED_ROW_BYTES

from ..attention import attention_slope
from ..engine import Asked, BoundDerivation, TiledDesign, check_copies, read_problem
from ..layouts import prove_alignment, rejected_layouts, swizzle_of
from ..parts import (
    NOT_TOLD_APART,
    WARP,
    DesignStep,
    Figure,
    Rejected,
    Sheet,
    bytes_words,
    footprint_words,
)
from ..sm import ELEMENT, UNIT_BYTES, busiest_cycles
from ..traffic import SLOPE_BYTES, SlopePoint, rejected_buffers
from .costs import (
    GROUP_ROWS,
    GROUP_THREADS,
    KERNEL_OF_KIND,
    MOST_TAKEN,
    PrefillCost,
    PrefillModel,
    PrefillTile,
)

WGMMA_ARCH = "sm_90"
"""wgmma is of one architecture."""
SWIZZLE_ROW = SWIZZLED_ROW_BYTES // ELEMENT
"""Elements of a row of a box with the 128-byte swizzle."""
PAD = 8
"""Elements behind a row of p02's tiles."""
GROUP_WORDS = {"wgmma": "warpgroups", "mma": "warps"}
"""What multiplies in a block, and the knob that says how many."""


@dataclass(frozen=True)
class PrefillDesign(TiledDesign):
    """A prefill kernel, derived."""

    cost: PrefillCost
    near: tuple[PrefillTile, ...]  # not told apart from the best, the nearest first

    @property
    def summary(self) -> str:
        """The kernel in one line."""
        tile = self.cost.tile
        return (
            f"{tile.queries} queries x {tile.keys} keys, {tile.groups} "
            f"{GROUP_WORDS[tile.kind]}, {tile.stages} stages, {self.cost.smem_bytes:,} bytes of "
            f"shared memory per block, {self.cost.registers} registers per thread, "
            f"{self.time_us:.4g} us"
        )


def derive_prefill(work: Problem | str | None, gpu: Gpu, asked: Asked) -> PrefillDesign:
    """Derive a prefill kernel; a LabError where no shipped kernel computes it."""
    problem: Prefill = read_problem("prefill", work)
    check_copies(gpu)
    model = PrefillModel(problem, gpu, "wgmma" if gpu.arch == WGMMA_ARCH else "mma")
    if (refused := model.rung.supports(problem)) is not None:
        works = f"what {KERNEL_OF_KIND[model.kind]} computes: {problem.example}, for example"
        raise LabError(f"No kernel for {problem.short()} is derived.", refused, works)
    return _PrefillDerivation(model, asked).design()


class _PrefillDerivation(BoundDerivation):
    sheet = Sheet(Path(__file__).with_name("steps.toml"))

    def __init__(self, model: PrefillModel, asked: Asked) -> None:
        self.problem, self.kind = model.problem, model.kind
        text = self.problem.short()
        super().__init__("prefill", text, asked, model, lambda tile: (tile.keys, tile.groups))
        self.case = self.kind
        self.heads = self.problem.batch * self.problem.num_qo_heads
        self.key_bytes = 2 * ELEMENT * self.problem.head_dim  # of K and V together
        self.longest = busiest_cycles(self.best.shares)

    def design(self) -> PrefillDesign:
        slope = tuple(attention_slope(self.problem, SLOPE_BYTES))
        wgmma = self.kind == "wgmma"
        rows = "and the barriers" if wgmma else "rows padded"
        steps = [
            self._limits(),
            self._products(),
            self._traffic(slope),
            self.room_step(f"queries and stages x (K and V), {rows}"),
            self._tile(),
            self._groups(),
            *([self._turns()] if wgmma else []),
            self._stages(),
            self._alignment(),
            self._registers(),
            self.time_step(_say_knobs),
        ]
        return self.made(
            PrefillDesign, steps, slope=slope, kernel=self.tile.kernel, knobs=self.tile.knobs
        )

    def _limits(self) -> DesignStep:
        problem, machine, sms = self.problem, self.machine, self.gpu.sm_count
        pairs = self.heads * problem.pairs
        peak = self.model.flops_per_cycle * sms * machine.clock_ghz / 1e3
        lanes = machine.sub_partitions * WARP / machine.intervals["xu"]
        times = {
            "memory": self.model.memory_us,
            "tensor cores": problem.flops / peak / 1e6,
            "exponentials": pairs / (lanes * sms * machine.clock_ghz) / 1e3,
        }
        self.bound = max(times, key=lambda name: times[name])
        self.floor_us = times[self.bound]
        least, ridge = problem.minimal_bytes, peak * 1e3 / self.dram_gb_per_s
        return self.step(
            "limits",
            [problem.flops, pairs, least, self.dram_gb_per_s, peak, lanes],
            [self.floor_us, times, problem.flops / least, ridge, self.floor_us / self.goal],
            [{name: value for name, value in times.items() if name != self.bound}],
            footprint=footprint_words(least, self.gpu.l2_bytes),
        )

    def _products(self) -> DesignStep:
        rate = self.machine.clock_ghz * self.gpu.sm_count / 1e3
        major, minor = self.gpu.compute_capability
        capability = major + minor / 10
        rejected: list[float | Rejected] = [capability]
        if self.kind == "wgmma":
            other = PrefillModel(self.problem, self.gpu, "mma")
            beside, most = other.best(), other.flops_per_cycle * rate
            number, unit = (beside.time_us, "us") if beside else (most, "TFLOP/s")
            why = (
                f"its best tile, against {self.best.time_us:.4g} us: at most {most:.4g} "
                "TFLOP/s, and each warp loads all of K and V into its registers"
            )
            rejected = [Rejected("mma.m16n8k16 on warps (p02_corrected)", number, unit, why)]
        alone = dataclasses.replace(self.tile, groups=1)
        return self.step(
            "products",
            [capability, GROUP_ROWS[self.kind]],
            [self.model.flops_per_cycle * rate, self.model.shared_bytes(alone) / self.tile.keys],
            rejected,
        )

    def _traffic(self, slope: tuple[SlopePoint, ...]) -> DesignStep:
        problem, model, tile = self.problem, self.model, self.tile
        sms, least = self.gpu.sm_count, problem.minimal_bytes
        trips = int(model.tiles_of_blocks(tile).sum()) * self.heads
        moved = {
            "L2": trips * 2 * tile.keys * ELEMENT * problem.head_dim + 2 * problem.output.bytes,
            "shared memory": trips * model.shared_bytes(tile),
        }
        rates = {"L2": model.l2_rate * sms, "shared memory": UNIT_BYTES * sms}
        block, cached = attention_slope(problem, (self.gpu.smem_per_block_bytes, self.gpu.l2_bytes))
        scores = ELEMENT * 2 * self.heads * problem.pairs
        return self.step(
            "traffic",
            [trips, model.l2_rate, UNIT_BYTES],
            [
                least,
                moved,
                model.memory_us,
                {name: model.us(moved[name] / rates[name]) for name in moved},
                {"the L2": cached.traffic_bytes, "a block's shared memory": block.traffic_bytes},
            ],
            [
                scores / self.dram_gb_per_s / 1e3,
                *rejected_buffers(
                    slope[1:4], least, lambda tile: f"{tile[0]} queries and {tile[1]} keys"
                ),
            ],
            times=moved["L2"] / least,
            scores=bytes_words(scores),
        )

    def _with(self, knobs: Mapping[str, int]) -> tuple[str | None, PrefillTile]:
        """Why the chosen tile cannot have other knobs, or None; and that tile."""
        made = PrefillTile.of(self.kind, {**self.tile.knobs, **knobs})
        if made.groups == 1:
            made = dataclasses.replace(made, pingpong=0)
        return self.model.why_not(made), made

    def _others(self, name: str, words: str) -> list[Rejected]:
        """What each other value of a knob costs, with the other knobs at their best."""
        found = []
        for value in self.model.choices[name]:
            if value == self.tile.knobs[name]:
                continue
            best, named = self.model.best({name: value}), f"{value} {words}"
            if best is None:
                found.append(self._unfit(named, self._with({name: value})[1]))
                continue
            knobs = {key: number for key, number in best.tile.knobs.items() if key != name}
            said = (
                f"at best, with {_say(knobs)}: bound by {best.by}, "
                f"{best.padded_share:.1%} masked off"
            )
            if best.time_us <= NOT_TOLD_APART * self.best.time_us:
                said += "; not told apart by the time, and it has more trips or a larger ring"
            found.append(Rejected(named, best.time_us, "us", said))
        return found

    def _unfit(self, what: str, made: PrefillTile) -> Rejected:
        why = self.model.why_not(made) or "it fits with no other knobs"
        size = self.model.launch(made).smem_bytes
        if size > self.gpu.smem_per_block_bytes:
            return Rejected(what, size, "bytes", why)
        return Rejected(what, self.model.registers(made), "registers per thread", why)

    def _tile(self) -> DesignStep:
        best, tile, problem = self.best, self.tile, self.problem
        row = ELEMENT * problem.head_dim
        return self.step(
            "tile",
            [problem.num_queries, problem.kv_len, row, self.heads, self.gpu.sm_count],
            [tile.keys, 2 * tile.keys * row, best.blocks, best.rounds, best.padded_share],
            self._others("block_n", "keys"),
            alike=NOT_TOLD_APART - 1,
        )

    def _groups(self) -> DesignStep:
        tile, best, words = self.tile, self.best, GROUP_WORDS[self.kind]
        loaded = best.blocks_per_sm * self.key_bytes * tile.keys
        threads = self.model.launch(tile).num_threads
        return self.step(
            "warps",
            [GROUP_ROWS[self.kind], self.model.l2_rate, self.machine.sub_partitions],
            [tile.groups, tile.queries, loaded / best.tile_cycles, threads],
            self._others(words, words),
            words=words,
        )

    def _turns(self) -> DesignStep:
        tile, model, best = self.tile, self.model, self.best
        together = best.blocks_per_sm * tile.groups
        parts, products = model.chain_parts(tile), best.shares["tensor cores"]
        alone = sum(parts.values())
        locked = model.lockstep_cycles(tile, together)
        others: list[float | None] = [None, None]
        if tile.groups > 1:
            other = dataclasses.replace(tile, pingpong=1 - tile.pingpong)
            others[0] = model.cost(other).time_us
        return self.step(
            "turns",
            [together, parts],
            [tile.pingpong, alone, products, locked, max(alone, products)],
            [1 if tile.groups == 1 else None, *(others if tile.pingpong else others[::-1])],
            how="in turns" if tile.pingpong else "no turns",
        )

    def _stages(self) -> DesignStep:
        tile, model, longest = self.tile, self.model, self.longest
        load, left = model.load_cycles(tile), model.wait_cycles(tile, longest)
        rejected = []
        for value in model.choices["stages"]:
            if value == tile.stages:
                continue
            (why, made), named = self._with({"stages": value}), f"{value} stages"
            if why is not None:
                rejected.append(self._unfit(named, made))
                continue
            waits, size = model.wait_cycles(made, longest), model.launch(made).smem_bytes
            if waits > left:
                said = f"of {longest:,.0f}: a trip waits so long for its rows"
                rejected.append(Rejected(named, waits, "cycles per trip", said))
            else:
                said = f"no wait is left to hide; the choice takes {self.best.smem_bytes:,}"
                rejected.append(Rejected(named, size, "bytes", said))
        blocks, head_dim = self.best.blocks_per_sm, self.problem.head_dim
        on_the_way = (tile.stages - 1) * self.key_bytes * tile.keys * blocks
        return self.step(
            "stages",
            [load, longest],
            [tile.stages, left, on_the_way, load * blocks * 4 * tile.keys * head_dim / longest],
            rejected,
        )

    def _alignment(self) -> DesignStep:
        tile, dim = self.tile, self.problem.head_dim
        swizzle, boxes = swizzle_of(SWIZZLE_ROW), dim // SWIZZLE_ROW
        if self.kind == "wgmma":
            rows = Tile(
                tile.keys, SWIZZLED_ROW_BYTES, None, "xor", base=tile.queries * dim * ELEMENT
            )
            count, padding, taken = 2 * tile.stages * boxes, 0, "xor"
            kinds: tuple[str, ...] = ("TMA", "TMA, 128-byte swizzle", "wgmma descriptor")
            shape = SWIZZLE_ROW, SWIZZLE_ROW
            self.layout = f"{swizzle}, as the copy's 128-byte swizzle lays it"
        else:
            padded = half_tile(tile.keys, dim, PAD)
            rows = dataclasses.replace(padded, base=tile.queries * padded.stride)
            count, taken = 2 * tile.stages, str(dim + PAD)
            kinds = ("cp.async 16 B", "ldmatrix")
            shape = tile.keys, dim
            self.layout = f"rows of {dim + PAD} elements, the last {PAD} of them empty"
            padding = (count * tile.keys + tile.queries) * ELEMENT * PAD
        self.layouts, rejected = rejected_layouts(*shape, tile.stages, taken)
        self.proofs = tuple(prove_alignment(kind, rows, count, rows.bytes) for kind in kinds)
        proved = []
        for one in self.proofs:
            named = f"{one.kind}: tile mod {one.needs}"
            proved.append(Figure(named, one.stage_mod, "bytes", one.said))
        mine = next(one for one in self.layouts if one.name == taken)
        return self.step(
            "alignment",
            [rows.row_bytes, rows.stride, rows.base, rows.bytes],
            [mine.worst_turns, padding, *proved],
            rejected,
            count=count,
            boxes=boxes,
            swizzle=swizzle,
        )

    def _registers(self) -> DesignStep:
        best, tile, model, gpu = self.best, self.tile, self.model, self.gpu
        lanes = GROUP_ROWS[self.kind] / GROUP_THREADS[self.kind]
        sums, blocks = self.problem.head_dim * lanes, best.blocks_per_sm
        wider = dataclasses.replace(tile, keys=2 * tile.keys)
        own_room = model.room_for_registers(tile, blocks)
        wanted, room = model.registers(wider), model.room_for_registers(wider, 1)
        rejected = [gpu.registers_per_sm // (WARP * gpu.max_warps_per_sm), wanted]
        if self.kind == "wgmma":
            even = gpu.registers_per_sm // (blocks * model.launch(tile).num_threads)
            rejected.insert(1, min(MOST_TAKEN, even // 8 * 8))
        return self.step(
            "registers",
            [gpu.registers_per_sm, gpu.smem_per_sm_bytes],
            [best.registers, own_room, sums, tile.keys * lanes, blocks],
            rejected,
            wider=wider.keys,
            room=room,
            spill=", so sums spill" if wanted > room else "; the step before gives its time",
        )


def _say_knobs(tile: PrefillTile) -> str:
    return _say(tile.knobs)


def _say(knobs: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {value}" for name, value in knobs.items())
