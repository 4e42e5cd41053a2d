"""From the limits of a GPU to the tile of a matrix product, a convolution or a mixture of experts:
the model of `tiles` is asked for every tile that fits, and says what the alternatives would cost.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from labtools.predict.banks import Tile
from labtools.predict.sheets import Gpu
from labtools.problem import Problem
from labtools.problem.gemm.tiling import ProductTile
from labtools.problem.limits import MOST_REGISTERS

from ..engine import Asked, BoundDerivation, TiledDesign, check_copies
from ..layouts import prove_alignment, rejected_layouts, swizzle_of
from ..parts import (
    MOST_STAGES,
    NOT_TOLD_APART,
    WARP,
    DesignStep,
    Figure,
    Rejected,
    Sheet,
    footprint_words,
)
from ..sm import ELEMENT, MMA_FLOPS, busiest_cycles
from ..traffic import SLOPE_BYTES, SlopePoint, rejected_buffers
from .library_pick import LibraryPick, pick_of_library
from .rings import RingDesign, derive_ring
from .tiles import CHOICES, TileCost, TileModel, fragment_bytes, registers_estimated, with_stages
from .traffic import least_traffic
from .work import FORMS, ConvWork, read_work


@dataclass(frozen=True)
class TileDesign(TiledDesign):
    """A tile of a product, derived."""

    cost: TileCost
    patch: tuple[int, int] | None  # height and width of a tile in an image, of a convolution
    near: tuple[ProductTile, ...]  # not told apart from the best, the nearest first
    library: LibraryPick | None  # NVIDIA's own pick
    # on the instructions that sm_90a alone has, where the GPU has them: then this is what to build
    hopper: RingDesign | None = None

    @property
    def specified(self) -> tuple[str, dict[str, int]] | None:
        """The shipped kernel to build and its knobs, or None where there is none."""
        if self.hopper is not None:
            return self.hopper.kernel, self.hopper.knobs
        return super().specified

    @property
    def summary(self) -> str:
        """The tile in one line."""
        tile = self.cost.tile
        return (
            f"{_say_tile(tile)}, "
            f"{tile.stages} stages, {self.cost.smem_bytes:,} bytes of shared memory per block, "
            f"{self.cost.registers} registers per thread, {self.time_us:.4g} us"
        )


def derive_product(op: str, work: Problem | str | None, gpu: Gpu, asked: Asked) -> TileDesign:
    """Derive the tile of a ``gemm``, ``conv`` or ``moe``, whose workload is given in short form."""
    check_copies(gpu)
    text = work.short() if isinstance(work, Problem) else work
    return _ProductDerivation(op, text, gpu, asked).design()


def _say_tile(tile: ProductTile) -> str:
    return f"{tile.m} x {tile.n} x {tile.k}, {tile.warps_m} x {tile.warps_n} warps"


class _ProductDerivation(BoundDerivation):
    sheet = Sheet(Path(__file__).with_name("steps.toml"))

    def __init__(self, op: str, text: str | None, gpu: Gpu, asked: Asked) -> None:
        self.work = read_work(op, text)
        model = TileModel(self.work, gpu)
        super().__init__(op, self.work.text, asked, model, lambda tile: (tile.m, tile.n))

    def design(self) -> TileDesign:
        slope = tuple(least_traffic(self.work, SLOPE_BYTES))
        steps = [
            self._limits(),
            self._traffic(slope),
            self.room_step("stages x (tile M + tile N) x tile K x 2"),
            self._tile(),
            self._warps(),
            self._stages(),
            self._alignment(),
            self._registers(),
            self.time_step(_say_tile),
        ]
        form = FORMS[self.op]
        return self.made(
            TileDesign,
            steps,
            slope=slope,
            patch=self.work.tilings(self.tile.m)[0].patch,
            library=self._library(),
            kernel=form.kernel,
            knobs=dict(self.tile.knobs) if form.kernel else None,
            hopper=derive_ring(self.work, self.gpu, self.best.time_us) if form.ring else None,
        )

    def _limits(self) -> DesignStep:
        work, gpu, machine = self.work, self.gpu, self.machine
        dram, l2 = self.dram_gb_per_s, machine.l2_bytes_per_cycle * machine.clock_ghz
        an_sm = machine.sub_partitions * MMA_FLOPS / self.model.mma_cycles
        peak = an_sm * gpu.sm_count * machine.clock_ghz / 1e3
        memory_us, matrix_us = work.minimal_bytes / dram / 1e3, work.flops / peak / 1e6
        bound, other = "tensor cores", "memory"
        if memory_us > matrix_us:
            bound, other = other, bound
        self.bound, self.floor_us = bound, max(memory_us, matrix_us)
        sheet = gpu.fp16_tensor_tflops
        self.case = "sheet" if not sheet or peak >= 0.95 * sheet else "mma"
        return self.step(
            "limits",
            [work.flops, work.minimal_bytes, dram, l2, peak],
            [
                self.floor_us,
                memory_us,
                work.minimal_bytes / l2 / 1e3,
                matrix_us,
                work.flops / work.minimal_bytes,
                peak * 1e3 / dram,
                self.floor_us / self.goal,
            ],
            [work.flops / sheet / 1e6 if sheet else None, min(memory_us, matrix_us)],
            other=other,
            reached=peak / sheet if sheet else 1.0,
            footprint=footprint_words(work.minimal_bytes, gpu.l2_bytes),
        )

    def _traffic(self, slope: tuple[SlopePoint, ...]) -> DesignStep:
        gpu, least = self.gpu, self.work.minimal_bytes
        sizes = (gpu.smem_per_block_bytes, gpu.smem_per_sm_bytes * gpu.sm_count, gpu.l2_bytes)
        points = [one.traffic_bytes for one in least_traffic(self.work, sizes)]
        first = next(one for one in reversed(points) if one is not None)
        return self.step(
            "traffic",
            [least],
            points[::-1],
            rejected_buffers(slope[1:4:2], least, lambda tile: " x ".join(map(str, tile))),
            block=sizes[0],
            sms=sizes[1],
            l2=sizes[2],
            times=first / least,
        )

    def _other_sizes(self) -> list[Rejected]:
        """The other sizes of a tile, each with the two of the choice beside it."""
        best, tile = self.best, self.tile
        own = {"tile_m": tile.m, "tile_n": tile.n, "tile_k": tile.k}
        rejected = []
        for name in own:
            for other in CHOICES[name]:
                if other == own[name]:
                    continue
                found = self.model.best({**own, name: other})
                if found is not None:
                    number, unit = found.time_us, "us"
                    why = (
                        f"bound by {found.by}, {found.padded_share:.1%} padding; the choice takes "
                        f"{best.time_us:.4g}"
                    )
                    if found.time_us < best.time_us:
                        why += ", not told apart by the time, and loads the units more or unevenly"
                else:
                    bare = ProductTile.of({**tile.knobs, name: other, "stages": 2})
                    number, unit = registers_estimated(bare), "registers per thread, at these warps"
                    why = self.model.why_not(bare) or "no division over warps fits"
                rejected.append(Rejected(f"{name} {other}", number, unit, why))
        return rejected

    def _rows_of_the_work(self) -> tuple[list[Figure], list[Rejected]]:
        """What is known of the rows of a convolution or of experts, and patches not taken."""
        work, figures, rejected = self.work, [], []
        if isinstance(work, ConvWork):
            chosen, *others = work.tilings(self.tile.m)
            touched, halo = "input elements touched, of a channel", f"patch of {chosen.patch}"
            again = "elements without reuse of the halo"
            im2col = "rows x taps, as im2col writes them"
            figures.append(Figure(touched, chosen.tile_touched, "", f"{halo} with its halo"))
            figures.append(Figure(again, self.tile.m * work.taps, "", im2col))
            for one in others[:2]:
                named, unit = f"a patch of {one.patch}", "elements of a channel, all tiles"
                why = f"{one.count} tiles; the choice touches {chosen.touched} with {chosen.count}"
                rejected.append(Rejected(named, one.touched, unit, why))
        if len(work.rows) > 1:
            drawn = "drawn, seed 0"
            figures.append(Figure("rows of the smallest expert", min(work.rows), "", drawn))
            figures.append(Figure("rows of the largest", max(work.rows), "", drawn))
        return figures, rejected

    def _tile(self) -> DesignStep:
        best, tile, work = self.best, self.tile, self.work
        figures, patches = self._rows_of_the_work()
        return self.step(
            "tile",
            [sum(work.rows), work.columns, work.depth, self.gpu.sm_count, *figures],
            [best.blocks, best.waves, best.padded_share, tile.slice_bytes],
            [*self._other_sizes(), *patches],
            alike=NOT_TOLD_APART - 1,
        )

    def _warps(self) -> DesignStep:
        tile, rejected = self.tile, []
        for down in CHOICES["warps_m"]:
            for across in CHOICES["warps_n"]:
                if (down, across) == (tile.warps_m, tile.warps_n):
                    continue
                other = dataclasses.replace(tile, warps_m=down, warps_n=across)
                what, why = f"{down} x {across} warps", self.model.why_not(other)
                if why is None:
                    found = self.model.cost(other)
                    read = f"{fragment_bytes(other):,} bytes read a slice, bound by {found.by}"
                    rejected.append(Rejected(what, found.time_us, "us", read))
                elif down * across <= 2 * tile.warps:
                    rows, columns = tile.m // down, tile.n // across
                    number, unit = registers_estimated(other), "registers per thread"
                    if tile.m % (16 * down) or tile.n % (16 * across):
                        number, unit = min(rows, columns), "rows or columns"
                    said = f"{rows} x {columns} of the output per warp: {why}"
                    rejected.append(Rejected(what, number, unit, said))
        rows, columns = tile.m // tile.warps_m, tile.n // tile.warps_n
        return self.step(
            "warps",
            [16, self.machine.sub_partitions],
            [tile.warps, rows, columns, fragment_bytes(tile)],
            rejected,
        )

    def _stages(self) -> DesignStep:
        tile, model = self.tile, self.model
        cycles = busiest_cycles(model.shares(tile, 1))
        loaded = self.work.a_loaded(tile.m) * tile.k / self.work.depth + ELEMENT * tile.n * tile.k
        rejected = []
        for stages in (tile.stages - 1, tile.stages + 1, 2 * tile.stages):
            if stages < 2 or stages > MOST_STAGES:
                continue
            other, named = with_stages(tile, stages), f"{stages} stages"
            why = model.why_not(other)
            if why is not None:
                rejected.append(Rejected(named, model.smem_bytes(other), "bytes", why))
                continue
            found = model.cost(other)
            said = (
                f"{(stages - 1) * cycles:,.0f} cycles of work cover {model.latency:,.0f} "
                f"of latency; {found.smem_bytes:,} bytes"
            )
            rejected.append(Rejected(named, found.time_us, "us", said))
        return self.step(
            "stages",
            [model.latency, cycles],
            [tile.stages, (tile.stages - 1) * loaded * self.best.blocks_per_sm],
            rejected,
        )

    def _alignment(self) -> DesignStep:
        tile = self.tile
        row, stage = ELEMENT * tile.k, ELEMENT * (tile.m + tile.n) * tile.k
        rows = Tile(tile.m, row, None, "xor")
        self.proofs = tuple(
            prove_alignment(kind, rows, tile.stages, stage)
            for kind in ("cp.async 16 B", "ldmatrix", "LDS.128", "LDS.64", "LDS.32", "TMA")
        )
        self.layouts, rejected = rejected_layouts(64, 64, tile.stages, "xor")
        self.layout = swizzle_of(tile.k)
        xor = next(one for one in self.layouts if one.name == "xor")
        one_by_one = "; rows in memory are no multiple of 16 bytes, so they come element by element"
        return self.step(
            "alignment",
            [row, stage, ELEMENT * self.work.channels],
            [xor.worst_turns, 0, row % 16, stage % 128],
            rejected,
            rows="" if self.work.copies_whole else one_by_one,
        )

    def _registers(self) -> DesignStep:
        best, tile, gpu = self.best, self.tile, self.gpu
        rejected = []
        halves = {name: getattr(tile, name) // 2 for name in ("warps_m", "warps_n")}
        for name, half in halves.items():
            if not half:
                continue
            other = dataclasses.replace(tile, **{name: half})
            number, why = registers_estimated(other), f"the choice has {best.registers}"
            if number > MOST_REGISTERS:
                why = f"more than the {MOST_REGISTERS} there are, so sums spill"
            named = f"{other.warps_m} x {other.warps_n} warps"
            rejected.append(Rejected(named, number, "registers per thread", why))
        return self.step(
            "registers",
            [gpu.registers_per_sm, gpu.smem_per_sm_bytes],
            [best.registers, best.blocks_per_sm, best.blocks_per_sm * tile.warps],
            [gpu.registers_per_sm // (WARP * gpu.max_warps_per_sm), *rejected],
        )

    def _library(self) -> LibraryPick | None:
        if not FORMS[self.op].library or self.asked.quick:
            return None
        rows = sorted(one for one in self.work.rows if one)
        return pick_of_library(rows[len(rows) // 2], self.work.columns, self.work.depth, self.gpu)
