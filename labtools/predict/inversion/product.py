"""From the limits of a GPU to the tile of a matrix product, a convolution or a mixture of experts.

`derive_product` asks the model of `tiles` for every tile that fits, takes the one of least time,
and says of each choice by itself what the alternatives would cost.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from labtools.problem import LabError
from labtools.problem.gemm.tiling import ProductTile
from labtools.problem.limits import MOST_REGISTERS

from ..banks import Tile
from ..machine import machine_of
from ..sheets import Gpu, load_gpu
from .capacity import room_step, shared_limits
from .design import BoundDesign
from .layouts import prove_alignment, rejected_layouts, swizzle_of, worst_turns
from .library_pick import LibraryPick, pick_of_library
from .parts import WARP, DesignStep, Figure, Rejected, footprint_words
from .rings import RingDesign, derive_ring
from .tiles import (
    CHOICES,
    TileCost,
    TileModel,
    fragment_bytes,
    registers_estimated,
    with_stages,
)
from .traffic import SlopePoint, least_traffic, rejected_buffers
from .work import ELEMENT, FORMS, ConvWork, read_work

USUAL_TARGET = 0.85
"""Share of the bound that a design aims at, where none is given."""
KERNEL_OF = {"gemm": "g01_ring"}
"""The shipped kernel that takes a derived tile as its knobs."""
WHERE_IT_STOPS = (
    "Analysis stops here: it does not know the compiler's instructions, conflicts in the L2 nor "
    "the clock under load, so tiles within a tenth of the best are for a measurement to decide."
)
ALIKE = 1.10
"""Tiles that take at most so many times the best one's time are not told apart by the model."""
SLOPE_BYTES = tuple(1 << power for power in range(12, 29, 2))
"""Buffers at which the ski slope is given, from 4 KiB to 256 MiB."""


@dataclass(frozen=True)
class TileDesign(BoundDesign):
    """A tile of a product, derived."""

    cost: TileCost  # the tile and what it costs
    patch: tuple[int, int] | None  # height and width of a tile in an image, of a convolution
    # tiles that the model does not tell apart from the best, by their knobs
    near: tuple[ProductTile, ...]
    library: LibraryPick | None  # NVIDIA's own pick
    # the same product on the instructions that sm_90a alone has, where the GPU has them; then this
    # is what to build
    hopper: RingDesign | None = None

    @property
    def specified(self) -> tuple[str, dict[str, int]] | None:
        """The shipped kernel to build and its knobs, or None where there is none."""
        if self.hopper is not None:
            return self.hopper.kernel, self.hopper.knobs
        return super().specified


def derive_product(
    op: str,
    text: str | None,
    gpu: Gpu | str,
    target: float = USUAL_TARGET,
    *,
    ask_compiler: bool = True,
    ask_library: bool = True,
) -> TileDesign:
    """Derive the tile of a product.

    Args:
        op: ``gemm``, ``conv`` or ``moe``.
        text: the workload; None takes the usual one of the operation.
        gpu: a sheet or its name.
        target: share of the bound that is aimed at, above 0 and at most 1.
        ask_compiler: whether the compiler is asked how much shared memory it takes.
        ask_library: whether NVIDIA's heuristics are asked.

    Raises:
        LabError: there is no such operation or workload, the GPU has no asynchronous copies or an
            unknown clock, or the target is no share.
    """
    gpu = load_gpu(gpu) if isinstance(gpu, str) else gpu
    if op not in FORMS:
        raise LabError(
            f"There is no derivation of {op!r}.",
            f"products are {', '.join(FORMS)}",
            "name one of them",
        )
    check_target(target)
    check_copies(gpu)
    return _ProductDerivation(op, text, gpu, target, ask_compiler, ask_library).design()


def check_target(target: float) -> None:
    """Refuse a target that is no share.

    Raises:
        LabError: it is none.
    """
    if not 0 < target <= 1:
        raise LabError(
            f"A target of {target:g} is no share.",
            "it is a part of the bound, above 0 and at most 1",
            f"for example {USUAL_TARGET}",
        )


def check_copies(gpu: Gpu) -> None:
    """Refuse a GPU without asynchronous copies.

    Raises:
        LabError: it has none.
    """
    if gpu.compute_capability < (8, 0):
        raise LabError(
            f"{gpu.title} has no asynchronous copies into shared memory.",
            "they came with compute capability 8.0, as did mma.m16n8k16, and this derivation rests "
            "on both",
            "every forecast, and kernels that load through registers",
        )


class _ProductDerivation:
    """The steps, in order; each leaves what the later ones need in an attribute."""

    def __init__(
        self, op: str, text: str | None, gpu: Gpu, target: float, compiler: bool, library: bool
    ) -> None:
        self.op, self.gpu, self.target = op, gpu, target
        self.work = read_work(op, text)
        self.machine = machine_of(gpu)
        self.model = TileModel(self.work, gpu)
        self.shared = shared_limits(gpu, compiler)
        self.ask_library = library

    def design(self) -> TileDesign:
        best = self.model.best()
        if best is None:
            raise LabError(
                f"No tile of {self.work.text} fits {self.gpu.title}.",
                "every tile asks for more shared memory or registers than a block may have",
                "a smaller filter, or another GPU",
            )
        self.best, self.tile = best, best.tile
        slope = tuple(least_traffic(self.work, SLOPE_BYTES))
        steps = (
            self._limits(),
            self._traffic(slope),
            self._room(),
            self._tile(),
            self._warps(),
            self._stages(),
            self._alignment(),
            self._registers(),
            self._time(),
        )
        kernel = KERNEL_OF.get(self.op)
        patch = self.work.tilings(self.tile.m)[0].patch
        return TileDesign(
            op=self.op,
            workload=self.work.text,
            gpu=self.gpu.name,
            calibrated=self.machine.calibrated,
            target=self.target,
            bound=self.bound,
            floor_us=self.floor_us,
            target_us=self.floor_us / self.target,
            time_us=best.time_us,
            reaches_target=best.time_us <= self.floor_us / self.target,
            cost=best,
            patch=patch,
            layout=swizzle_of(self.tile.k),
            layouts=self.layouts,
            alignment=self.proofs,
            shared=self.shared,
            slope=slope,
            near=self._near(),
            library=self._library(),
            kernel=kernel,
            knobs=dict(self.tile.knobs) if kernel else None,
            hopper=derive_ring(self.work, self.gpu, best.time_us) if self.op == "gemm" else None,
            stops=WHERE_IT_STOPS,
            steps=steps,
        )

    # --------------------------------------------------------------------------------- steps

    def _limits(self) -> DesignStep:
        work, gpu, machine = self.work, self.gpu, self.machine
        dram = machine.dram_bytes_per_cycle * machine.clock_ghz
        l2 = machine.l2_bytes_per_cycle * machine.clock_ghz
        issue = machine.sub_partitions * 4096 / self.model.matrix_cycles * gpu.sm_count
        peak = issue * machine.clock_ghz / 1e3
        memory_us = work.minimal_bytes / dram / 1e3
        matrix_us = work.flops / peak / 1e6
        self.bound = "memory" if memory_us > matrix_us else "matrix units"
        self.floor_us = max(memory_us, matrix_us)
        sheet = gpu.fp16_tensor_tflops
        at_sheet_rate = not sheet or peak >= 0.95 * sheet
        rejected = []
        if sheet:
            rejected.append(
                Rejected(
                    "the data sheet's peak as the limit",
                    work.flops / sheet / 1e6,
                    "us",
                    "the same within a twentieth"
                    if at_sheet_rate
                    else f"one mma.m16n8k16 takes {self.model.matrix_cycles:.3g} cycles of a "
                    f"sub-partition, which is {peak / sheet:.0%} of the sheet's peak; the rest is "
                    "for wgmma, which this tile does not use",
                )
            )
        rejected.append(
            Rejected(
                f"the {'matrix units' if self.bound == 'memory' else 'memory'} as the bound",
                min(memory_us, matrix_us),
                "us",
                "the shorter of the two times",
            )
        )
        return DesignStep(
            "limits",
            "Which time can no kernel beat?"
            if at_sheet_rate
            else "Which time can no kernel of mma.m16n8k16 beat?",
            (
                Figure("operations", work.flops, "", "workload"),
                Figure("A, B and output", work.minimal_bytes, "bytes", "each once"),
                Figure("memory", dram, "GB/s", "read ceiling"),
                Figure("L2", l2, "GB/s", "microbenchmark, or an H200's by SMs and clock"),
                Figure("matrix units", peak, "TFLOP/s", "cycles of one product, SMs and clock"),
            ),
            "floor = the longer of bytes / memory rate and operations / rate of the matrix units",
            (
                Figure("floor", self.floor_us, "us", self.bound),
                Figure("memory", memory_us, "us", "bytes / rate"),
                Figure("L2", work.minimal_bytes / l2 / 1e3, "us", "bytes / rate"),
                Figure("matrix units", matrix_us, "us", "operations / rate"),
                Figure("operations a byte", work.flops / work.minimal_bytes, "", "intensity"),
                Figure("operations a byte at the ridge", peak * 1e3 / dram, "", "both rates"),
                Figure("target", self.floor_us / self.target, "us", f"floor / {self.target:g}"),
            ),
            f"the bound is {self.bound}; " + footprint_words(work.minimal_bytes, gpu.l2_bytes),
            "another number of rows: few rows make any product one of memory",
            tuple(rejected),
        )

    def _traffic(self, slope: tuple[SlopePoint, ...]) -> DesignStep:
        l2 = self.gpu.l2_bytes
        sizes = (self.gpu.smem_per_block_bytes, self.gpu.smem_per_sm_bytes * self.gpu.sm_count, l2)
        block, all_sms, cached = least_traffic(self.work, sizes)
        named = (
            ("L2", cached),
            ("shared memory of all SMs", all_sms),
            ("shared memory of a block", block),
        )
        results = tuple(
            Figure(name, point.traffic_bytes, "bytes", f"a buffer of {point.buffer_bytes:,} bytes")
            for name, point in named
            if point.traffic_bytes is not None
        )
        rejected = rejected_buffers(
            slope[1:4:2], self.work.minimal_bytes, lambda tile: " x ".join(map(str, tile))
        )
        return DesignStep(
            "traffic",
            "How many bytes must memory move, by the size of a buffer (the ski slope)?",
            (Figure("A, B and output", self.work.minimal_bytes, "bytes", "each once"),),
            "least over all tiles that fit the buffer and all orders of the three loops",
            results,
            f"with the L2 as the buffer {results[0].value / self.work.minimal_bytes:.3g} times the "
            "least bytes go to memory",
            "blocks that do not run in the order that shares the L2",
            rejected,
        )

    def _room(self) -> DesignStep:
        formula = "stages x (tile M + tile N) x tile K x 2"
        return room_step(self.shared, self.best.smem_bytes, formula)

    def _alternatives(self, **fixed: int) -> TileCost | None:
        return self.model.best(dict(fixed))

    def _rejected_sizes(self) -> list[Rejected]:
        """The other sizes of a tile, each with the two of the choice beside it."""
        best, tile = self.best, self.tile
        own = {"tile_m": tile.m, "tile_n": tile.n, "tile_k": tile.k}
        rejected = []
        for name in own:
            for other in CHOICES[name]:
                if other == own[name]:
                    continue
                found = self._alternatives(**{**own, name: int(other)})
                if found is not None:
                    number, unit = found.time_us, "us"
                    why = (
                        f"bound by {found.by}, {found.padded_share:.1%} padding; the choice takes "
                        f"{best.time_us:.4g}"
                    )
                else:
                    bare = dataclasses.replace(
                        with_stages(tile, 2), **{name.removeprefix("tile_"): int(other)}
                    )
                    number, unit = registers_estimated(bare), "registers a thread, at these warps"
                    why = self.model.why_not(bare) or "no division over warps fits"
                rejected.append(Rejected(f"{name} {other}", number, unit, why))
        return rejected

    def _rows_of_the_work(self) -> tuple[list[Figure], list[Rejected]]:
        """What is known of the rows of a convolution or of experts, and patches not taken."""
        work, figures, rejected = self.work, [], []
        if isinstance(work, ConvWork):
            chosen, *others = work.tilings(self.tile.m)
            figures += [
                Figure(
                    "input elements touched, of a channel",
                    chosen.tile_touched,
                    "",
                    f"patch of {chosen.patch} with its halo",
                ),
                Figure(
                    "elements without reuse of the halo",
                    self.tile.m * work.taps,
                    "",
                    "rows x taps, as im2col writes them",
                ),
            ]
            rejected += [
                Rejected(
                    f"a patch of {one.patch}",
                    one.touched,
                    "elements of a channel, all tiles",
                    f"{one.count} tiles; the choice touches {chosen.touched} with {chosen.count}",
                )
                for one in others[:2]
            ]
        if len(work.rows) > 1:
            figures += [
                Figure("rows of the smallest expert", min(work.rows), "", "drawn, seed 0"),
                Figure("rows of the largest", max(work.rows), "", "drawn, seed 0"),
            ]
        return figures, rejected

    def _tile(self) -> DesignStep:
        best, tile, work = self.best, self.tile, self.work
        figures, patches = self._rows_of_the_work()
        return DesignStep(
            "tile",
            "How large is the tile of a block?",
            (
                Figure("rows", sum(work.rows), "", "workload"),
                Figure("columns", work.columns, "", "workload"),
                Figure("length of a sum", work.depth, "", "workload"),
                Figure("SMs", self.gpu.sm_count, "", "data sheet"),
                *figures,
            ),
            "least time over every tile that fits, each with its warps and stages",
            (
                Figure("blocks", best.blocks, "", "tiles of the output"),
                Figure("waves", best.waves, "", "blocks / SMs / blocks of an SM"),
                Figure("padding", best.padded_share, "of the products", "edges of tiles"),
                Figure("bytes of a slice", tile.slice_bytes, "bytes", "A and B"),
            ),
            f"{tile.m} x {tile.n} of the output, {tile.k} of a sum at a time",
            "sizes near a multiple of another tile",
            (*self._rejected_sizes(), *patches),
        )

    def _warps(self) -> DesignStep:
        tile = self.tile
        rejected = []
        for down in CHOICES["warps_m"]:
            for across in CHOICES["warps_n"]:
                if (down, across) == (tile.warps_m, tile.warps_n):
                    continue
                other = dataclasses.replace(tile, warps_m=int(down), warps_n=int(across))
                what = f"{down} x {across} warps"
                why = self.model.why_not(other)
                if why is None:
                    found = self.model.cost(other)
                    rejected.append(
                        Rejected(
                            what,
                            found.time_us,
                            "us",
                            f"{fragment_bytes(other):,} bytes read a slice, bound by {found.by}",
                        )
                    )
                elif down * across <= 2 * tile.warps:
                    parts = f"{tile.m // down} x {tile.n // across} of the output a warp"
                    number, unit = registers_estimated(other), "registers a thread"
                    if tile.m % (16 * down) or tile.n % (16 * across):
                        number, unit = min(tile.m // down, tile.n // across), "rows or columns"
                    rejected.append(Rejected(what, number, unit, f"{parts}: {why}"))
        return DesignStep(
            "warps",
            "How many warps, and how do they split M and N?",
            (
                Figure("rows and columns of a product", 16, "by 8", "mma.m16n8k16"),
                Figure("schedulers of an SM", self.machine.sub_partitions, "", "data sheet"),
            ),
            "a warp has whole pieces of 16 x 16; it reads its rows of A and its columns of B",
            (
                Figure("warps", tile.warps, "", f"{tile.warps_m} along M, {tile.warps_n} along N"),
                Figure("rows of a warp", tile.m // tile.warps_m, "", "tile M / warps along M"),
                Figure("columns of a warp", tile.n // tile.warps_n, "", "tile N / warps along N"),
                Figure("read from shared memory", fragment_bytes(tile), "bytes a slice", "sizes"),
            ),
            f"{tile.warps_m} x {tile.warps_n} warps; a tile of 64 rows is no limit for 8 of them, "
            "since they may share N as well",
            "fewer sums a warp, where registers are short",
            tuple(rejected),
        )

    def _stages(self) -> DesignStep:
        tile, model = self.tile, self.model
        busy = model.shares(tile, 1)
        cycles = max(value for name, value in busy.items() if name != "latency")
        loaded = self.work.a_loaded(tile.m) * tile.k / self.work.depth + ELEMENT * tile.n * tile.k
        rejected = []
        for stages in (tile.stages - 1, tile.stages + 1, 2 * tile.stages):
            if stages < 2 or stages > 8:
                continue
            other = with_stages(tile, stages)
            why = model.why_not(other)
            if why is not None:
                rejected.append(Rejected(f"{stages} stages", model.smem_bytes(other), "bytes", why))
            else:
                found = model.cost(other)
                rejected.append(
                    Rejected(
                        f"{stages} stages",
                        found.time_us,
                        "us",
                        f"{(stages - 1) * cycles:,.0f} cycles of work cover {model.latency:,.0f} "
                        f"of latency; {found.smem_bytes:,} bytes",
                    )
                )
        return DesignStep(
            "stages",
            "How many slices does a ring hold?",
            (
                Figure("latency of a copy", model.latency, "cycles", "memory, 512 bytes a warp"),
                Figure("cycles of a slice", cycles, "cycles", "one block, the busiest unit"),
            ),
            "stages = 1 that is read + ceil(latency / cycles of a slice), as far as they fit",
            (
                Figure("stages", tile.stages, "", "formula"),
                Figure(
                    "on the way an SM",
                    (tile.stages - 1) * loaded * self.best.blocks_per_sm,
                    "bytes",
                    "(stages - 1) x slice x blocks",
                ),
            ),
            f"{tile.stages} stages",
            "a latency that load makes longer",
            tuple(rejected),
        )

    def _alignment(self) -> DesignStep:
        tile = self.tile
        rows = Tile(tile.m, ELEMENT * tile.k, None, "xor")
        stage = ELEMENT * (tile.m + tile.n) * tile.k
        self.proofs = tuple(
            prove_alignment(kind, rows, tile.stages, stage)
            for kind in ("cp.async 16 B", "ldmatrix", "LDS.128", "LDS.64", "LDS.32", "TMA")
        )
        self.layouts, rejected = rejected_layouts(64, 64, tile.stages, "xor")
        xor = next(one for one in self.layouts if one.name == "xor")
        whole = self.work.copies_whole
        return DesignStep(
            "alignment",
            "How do rows lie in shared memory?",
            (
                Figure("row", ELEMENT * tile.k, "bytes", "tile K"),
                Figure("stage", stage, "bytes", "a slice of A and of B"),
                Figure("row in memory", ELEMENT * self.work.channels, "bytes", "workload"),
            ),
            "remainders of row, stage and base by what each access needs; turns lane by lane",
            (
                Figure("turns over the least", worst_turns(xor), "", "xor, worst access"),
                Figure("padding", 0, "bytes", "xor needs none"),
                Figure("row mod 16", ELEMENT * tile.k % 16, "bytes", "remainder"),
                Figure("stage mod 128", stage % 128, "bytes", "remainder, for boxes of TMA"),
            ),
            f"{swizzle_of(tile.k)}, with no padding"
            + (
                ""
                if whole
                else "; rows in memory are no multiple of 16 bytes, so they come element by element"
            ),
            "rows whose length is no multiple of 8 elements",
            tuple(rejected),
        )

    def _registers(self) -> DesignStep:
        best, tile = self.best, self.tile
        every = self.gpu.registers_per_sm // (WARP * self.gpu.max_warps_per_sm)
        rejected = [
            Rejected(
                f"all {self.gpu.max_warps_per_sm} warps that an SM can hold",
                every,
                "registers a thread",
                f"the choice has {best.registers}, most of them sums: less would be used again",
            )
        ]
        for other in (
            dataclasses.replace(tile, warps_m=tile.warps_m // 2 or 1),
            dataclasses.replace(tile, warps_n=tile.warps_n // 2 or 1),
        ):
            if other == tile:
                continue
            number = registers_estimated(other)
            rejected.append(
                Rejected(
                    f"{other.warps_m} x {other.warps_n} warps",
                    number,
                    "registers a thread",
                    f"more than the {MOST_REGISTERS} there are, so sums spill"
                    if number > MOST_REGISTERS
                    else f"the choice has {best.registers}",
                )
            )
        return DesignStep(
            "registers",
            "What does an SM hold?",
            (
                Figure("registers of an SM", self.gpu.registers_per_sm, "", "data sheet"),
                Figure("shared memory of an SM", self.gpu.smem_per_sm_bytes, "bytes", "data sheet"),
            ),
            "sums of a warp / 32 + fragments of one step + addresses",
            (
                Figure("registers a thread", best.registers, "", "estimate"),
                Figure("blocks of an SM", best.blocks_per_sm, "", "shared memory and registers"),
                Figure("warps of an SM", best.blocks_per_sm * tile.warps, "", "product"),
            ),
            f"{best.registers} registers a thread and {best.blocks_per_sm} blocks an SM",
            "a compiler that keeps more addresses than counted",
            tuple(rejected),
        )

    def _time(self) -> DesignStep:
        best = self.best
        near = self._near()
        rejected = [
            Rejected(
                f"{one.m} x {one.n} x {one.k}, {one.warps_m} x {one.warps_n} warps",
                self.model.cost(one).time_us,
                "us",
                "too near to the best to tell apart: for a measurement",
            )
            for one in near[:3]
        ]
        if not rejected:
            rejected.append(
                Rejected("another tile", ALIKE * best.time_us, "us", "every other takes longer")
            )
        return DesignStep(
            "time",
            "How long should it take?",
            tuple(
                Figure(name, value, "cycles", "an SM, one slice of each of its blocks")
                for name, value in best.shares.items()
            ),
            "time = launch + the longer of waves x slices x busiest unit and bytes / memory rate",
            (
                Figure("expected", best.time_us, "us", f"bound by {best.by}"),
                Figure("the SMs", best.sm_us, "us", "waves"),
                Figure("memory", best.memory_us, "us", "least traffic with the L2"),
                Figure("floor over expected", self.floor_us / best.time_us, "of it", "step limits"),
            ),
            f"{best.time_us:.4g} us, {self.floor_us / best.time_us:.0%} of the bound, where "
            f"{self.target:.0%} is aimed at",
            WHERE_IT_STOPS,
            tuple(rejected),
        )

    # --------------------------------------------------------------------------------- beside it

    def _near(self) -> tuple[ProductTile, ...]:
        """Other tiles within `ALIKE` of the best, one for each size, the nearest first."""
        found: dict[tuple[int, int], TileCost] = {}
        for tile in self.model.tiles():
            cost = self.model.cost(tile)
            key = (tile.m, tile.n)
            if key == (self.tile.m, self.tile.n) or cost.time_us > ALIKE * self.best.time_us:
                continue
            if key not in found or cost.time_us < found[key].time_us:
                found[key] = cost
        return tuple(one.tile for one in sorted(found.values(), key=lambda one: one.time_us))

    def _library(self) -> LibraryPick | None:
        if self.op not in ("gemm", "moe") or not self.ask_library:
            return None
        rows = sorted(one for one in self.work.rows if one)
        return pick_of_library(rows[len(rows) // 2], self.work.columns, self.work.depth, self.gpu)
