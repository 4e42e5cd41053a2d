"""From the limits of a GPU to a prefill kernel: each choice follows from a number before it.

`derive_prefill` asks the model of `costs` for every tile that fits, takes the one of least time,
and says of each choice by itself what the alternatives would cost. The kernel that it specifies is
`p03_hopper` where there is wgmma, and `p02_corrected` elsewhere.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from labtools.problem import LabError
from labtools.problem.prefill import Prefill
from labtools.problem.rung import SWIZZLED_ROW_BYTES

from ..banks import Tile, half_tile
from ..inversion.capacity import room_step, shared_limits
from ..inversion.design import BoundDesign
from ..inversion.layouts import (
    AlignmentProof,
    LayoutChoice,
    prove_alignment,
    rejected_layouts,
    swizzle_of,
    worst_turns,
)
from ..inversion.parts import (
    NOT_TOLD_APART,
    WARP,
    DesignStep,
    Figure,
    Rejected,
    bytes_words,
    footprint_words,
)
from ..inversion.product import (
    ALIKE,
    SLOPE_BYTES,
    USUAL_TARGET,
    WHERE_IT_STOPS,
    check_copies,
    check_target,
)
from ..inversion.rings import ARCH
from ..inversion.tiles import UNIT_BYTES
from ..inversion.traffic import SlopePoint, rejected_buffers
from ..inversion.work import ELEMENT
from ..sheets import Gpu, load_gpu
from .costs import (
    GROUP_ROWS,
    GROUP_THREADS,
    KERNEL_OF_KIND,
    MOST_TAKEN,
    PrefillCost,
    PrefillModel,
    PrefillTile,
)
from .traffic import attention_slope

SWIZZLE_ROW = SWIZZLED_ROW_BYTES // ELEMENT
"""Elements of a row of a box with the 128-byte swizzle."""
PAD = 8
"""Elements behind a row of p02's tiles."""
GROUP_WORDS = {"wgmma": "warpgroups", "mma": "warps"}
"""What multiplies in a block, and the knob that says how many."""


@dataclass(frozen=True)
class PrefillDesign(BoundDesign):
    """A prefill kernel, derived."""

    cost: PrefillCost  # the tile and what it costs
    # tiles that the model does not tell apart from the best, the nearest first
    near: tuple[PrefillTile, ...]


def derive_prefill(
    problem: Prefill,
    gpu: Gpu | str,
    target: float = USUAL_TARGET,
    *,
    ask_compiler: bool = True,
) -> PrefillDesign:
    """Derive a prefill kernel.

    Args:
        problem: fp16 or bf16, D of 64 or 128.
        gpu: a sheet or its name.
        target: share of the bound that is aimed at, above 0 and at most 1.
        ask_compiler: whether the compiler is asked how much shared memory it takes.

    Raises:
        LabError: no shipped kernel computes this, the GPU has no asynchronous copies or an unknown
            clock, nothing fits, or the target is no share.
    """
    gpu = load_gpu(gpu) if isinstance(gpu, str) else gpu
    check_target(target)
    check_copies(gpu)
    return _PrefillDerivation(problem, gpu, target, ask_compiler).design()


class _PrefillDerivation:
    """The steps, in order; each leaves what the later ones need in an attribute."""

    def __init__(self, problem: Prefill, gpu: Gpu, target: float, compiler: bool) -> None:
        self.problem, self.gpu, self.target = problem, gpu, target
        self.kind = "wgmma" if gpu.arch == ARCH else "mma"
        self.model = PrefillModel(problem, gpu, self.kind)
        refused = self.model.rung.supports(problem)
        if refused is not None:
            raise LabError(
                f"No kernel for {problem.short()} is derived.",
                refused,
                f"what {KERNEL_OF_KIND[self.kind]} computes: {problem.example}, for example",
            )
        self.machine = self.model.machine
        self.shared = shared_limits(gpu, compiler)

    def design(self) -> PrefillDesign:
        best = self.model.best()
        if best is None:
            raise LabError(
                f"No tile of {self.problem.short()} fits {self.gpu.title}.",
                "every tile asks for more shared memory or registers than a block may have",
                "a smaller head, or another GPU",
            )
        self.best, self.tile = best, best.tile
        slope = tuple(attention_slope(self.problem, SLOPE_BYTES))
        steps = (
            self._limits(),
            self._products(),
            self._traffic(slope),
            room_step(
                self.shared,
                best.smem_bytes,
                "queries and stages x (K and V), and the barriers"
                if self.kind == "wgmma"
                else "queries and stages x (K and V), rows padded",
            ),
            self._tile(),
            self._groups(),
            *([self._turns()] if self.kind == "wgmma" else []),
            self._stages(),
            self._alignment(),
            self._registers(),
            self._time(),
        )
        return PrefillDesign(
            op="prefill",
            workload=self.problem.short(),
            gpu=self.gpu.name,
            calibrated=self.machine.calibrated,
            target=self.target,
            bound=self.bound,
            floor_us=self.floor_us,
            target_us=self.floor_us / self.target,
            time_us=best.time_us,
            reaches_target=best.time_us <= self.floor_us / self.target,
            cost=best,
            layout=self.layout,
            layouts=self.layouts,
            alignment=self.proofs,
            shared=self.shared,
            slope=slope,
            near=self._near(),
            kernel=self.tile.kernel,
            knobs=self.tile.knobs,
            stops=WHERE_IT_STOPS,
            steps=steps,
        )

    # --------------------------------------------------------------------------------- steps

    def _limits(self) -> DesignStep:
        problem, gpu, machine = self.problem, self.gpu, self.machine
        heads = problem.batch * problem.num_qo_heads
        dram = machine.dram_bytes_per_cycle * machine.clock_ghz
        peak = self.model.flops_per_cycle * gpu.sm_count * machine.clock_ghz / 1e3
        lanes = machine.sub_partitions * WARP / machine.intervals["xu"]
        exponentials = lanes * gpu.sm_count * machine.clock_ghz
        times = {
            "memory": self.model.memory_us,
            "matrix units": problem.flops / peak / 1e6,
            "exponentials": heads * problem.pairs / exponentials / 1e3,
        }
        self.bound = max(times, key=lambda name: times[name])
        self.floor_us = times[self.bound]
        return DesignStep(
            "limits",
            "Which time can no kernel beat?",
            (
                Figure("operations", problem.flops, "", "4 D a pair of query and key"),
                Figure("exponentials", heads * problem.pairs, "", "one a pair"),
                Figure("q, k, v and output", problem.minimal_bytes, "bytes", "each once"),
                Figure("memory", dram, "GB/s", "read ceiling"),
                Figure("matrix units", peak, "TFLOP/s", "of the instruction that step 2 chooses"),
                Figure("exponentials of an SM", lanes, "a cycle", "interval of ex2"),
            ),
            "floor = the longest of bytes / memory rate, operations / rate of the matrix units and "
            "exponentials / their rate",
            (
                Figure("floor", self.floor_us, "us", self.bound),
                *(Figure(name, value, "us", "count / rate") for name, value in times.items()),
                Figure("operations a byte", problem.flops / problem.minimal_bytes, "", "intensity"),
                Figure("operations a byte at the ridge", peak * 1e3 / dram, "", "both rates"),
                Figure("target", self.floor_us / self.target, "us", f"floor / {self.target:g}"),
            ),
            f"the bound is {self.bound}; " + footprint_words(problem.minimal_bytes, gpu.l2_bytes),
            "few queries: then every key serves few products, as in decode",
            tuple(
                Rejected(f"{name} as the bound", value, "us", "a shorter time than the bound's")
                for name, value in times.items()
                if name != self.bound
            ),
        )

    def _products(self) -> DesignStep:
        gpu, machine = self.gpu, self.machine
        rate = machine.clock_ghz * gpu.sm_count / 1e3
        own = self.model.flops_per_cycle * rate
        major, minor = gpu.compute_capability
        if self.kind == "wgmma":
            other = PrefillModel(self.problem, gpu, "mma")
            beside = other.best()
            rejected = [
                Rejected(
                    "mma.m16n8k16 on warps (p02_corrected)",
                    beside.time_us if beside else other.flops_per_cycle * rate,
                    "us" if beside else "TFLOP/s",
                    f"its best tile, against {self.best.time_us:.4g} us: at most "
                    f"{other.flops_per_cycle * rate:.4g} TFLOP/s, and each warp loads all of K and "
                    "V into its registers",
                )
            ]
            decision = "wgmma: four warps multiply out of shared memory, copies come in boxes"
        else:
            rejected = [
                Rejected(
                    "wgmma (p03_hopper)",
                    major + minor / 10,
                    "compute capability",
                    "wgmma is of 9.0 with the suffix a, and of no other",
                )
            ]
            decision = "mma.m16n8k16: a warp multiplies out of its registers"
        return DesignStep(
            "products",
            "Which matrix instruction?",
            (
                Figure("compute capability", major + minor / 10, "", "data sheet"),
                Figure("rows of a product", GROUP_ROWS[self.kind], "queries", "PTX ISA"),
            ),
            "the instruction of the highest rate that the architecture has",
            (
                Figure("rate", own, "TFLOP/s", "cycles of an SM, SMs and clock"),
                Figure(
                    "read for a product's rows",
                    self.model.shared_bytes(dataclasses.replace(self.tile, groups=1))
                    / self.tile.keys,
                    "bytes a key",
                    "copied in and read, one group",
                ),
            ),
            decision,
            "another architecture",
            tuple(rejected),
        )

    def _traffic(self, slope: tuple[SlopePoint, ...]) -> DesignStep:
        problem, gpu, machine, tile = self.problem, self.gpu, self.machine, self.tile
        heads = problem.batch * problem.num_qo_heads
        trips = int(self.model.tiles_of_blocks(tile).sum()) * heads
        l2_bytes = trips * 4 * tile.keys * problem.head_dim + 2 * problem.output.bytes
        smem_bytes = trips * self.model.shared_bytes(tile)
        sms = gpu.sm_count
        cycles = {
            "L2": (l2_bytes, self.model.l2_rate * sms),
            "shared memory": (smem_bytes, UNIT_BYTES * sms),
        }
        block, cached = attention_slope(problem, (gpu.smem_per_block_bytes, gpu.l2_bytes))
        results = [
            Figure("memory", problem.minimal_bytes, "bytes", "each once"),
            *(
                Figure(name, count, "bytes", "the chosen tile")
                for name, (count, _) in cycles.items()
            ),
            Figure("memory's time", self.model.memory_us, "us", "bytes / rate"),
            *(
                Figure(f"{name}'s time", self.model.us(count / rate), "us", "bytes / rate")
                for name, (count, rate) in cycles.items()
            ),
            *(
                Figure(f"least with {name}", one.traffic_bytes, "bytes", "the ski slope")
                for name, one in (("the L2", cached), ("a block's shared memory", block))
                if one.traffic_bytes is not None
            ),
        ]
        rejected = rejected_buffers(
            slope[1:4], problem.minimal_bytes, lambda tile: f"{tile[0]} queries and {tile[1]} keys"
        )
        scores = ELEMENT * 2 * heads * problem.pairs
        written = Rejected(
            "scores and weights through memory",
            scores / (machine.dram_bytes_per_cycle * machine.clock_ghz) / 1e3,
            "us",
            f"written and read once in 16 bits, {bytes_words(scores)}",
        )
        return DesignStep(
            "traffic",
            "How many bytes move at each level?",
            (
                Figure("trips", trips, "", "tiles of keys over all blocks"),
                Figure("L2 into SMs", self.model.l2_rate, "B/cycle an SM", "microbenchmark"),
                Figure("shared memory", UNIT_BYTES, "B/cycle an SM", "32 banks of 4 bytes"),
            ),
            "a block loads its queries once and K and V once a trip; each group reads them all",
            tuple(results),
            "scores stay in registers, K and V come from the L2: "
            f"{l2_bytes / problem.minimal_bytes:.3g} times the least bytes pass there",
            "blocks of one head that do not run together",
            (written, *rejected),
        )

    def _with(self, knobs: Mapping[str, int]) -> tuple[str | None, PrefillTile]:
        """Why the chosen tile cannot have other knobs, or None; and that tile."""
        made = PrefillTile.of(self.kind, {**self.tile.knobs, **knobs})
        if made.groups == 1 and "pingpong" not in knobs:
            made = dataclasses.replace(made, pingpong=0)
        return self.model.why_not(made), made

    def _others(self, name: str, words: str) -> list[Rejected]:
        """What each other value of a knob costs, with the other knobs at their best."""
        knob = next(one for one in self.model.rung.knobs if one.name == name)
        found = []
        for value in knob.choices:
            if value == self.tile.knobs[name]:
                continue
            best = self.model.best({name: value})
            if best is None:
                _, made = self._with({name: value})
                found.append(self._unfit(f"{value} {words}", made))
                continue
            other = best.tile
            beside = ", ".join(
                f"{key} {number}" for key, number in other.knobs.items() if key != name
            )
            near = best.time_us <= NOT_TOLD_APART * self.best.time_us
            said = f"at best, with {beside}: bound by {best.by}, {best.padded_share:.1%} masked off"
            if near:
                said += "; not told apart by the time, and it has more trips or a larger ring"
            found.append(Rejected(f"{value} {words}", best.time_us, "us", said))
        return found

    def _unfit(self, what: str, made: PrefillTile) -> Rejected:
        why = self.model.why_not(made) or "it fits with no other knobs"
        size = self.model.launch(made).smem_bytes
        if size > self.gpu.smem_per_block_bytes:
            return Rejected(what, size, "bytes", why)
        return Rejected(what, self.model.registers(made), "registers a thread", why)

    def _tile(self) -> DesignStep:
        best, tile, problem = self.best, self.tile, self.problem
        row = ELEMENT * problem.head_dim
        return DesignStep(
            "tile",
            "How many keys has a tile?",
            (
                Figure("queries", problem.num_queries, "", "workload"),
                Figure("keys", problem.kv_len, "", "workload"),
                Figure("row", row, "bytes", "D elements"),
                Figure("heads", problem.batch * problem.num_qo_heads, "", "of all sequences"),
                Figure("SMs", self.gpu.sm_count, "", "data sheet"),
            ),
            "least time over every tile that fits"
            if self.kind == "wgmma"
            else "least time over every tile that fits; of times within "
            f"{NOT_TOLD_APART - 1:.0%} the fewest trips",
            (
                Figure("keys of a tile", tile.keys, "", "choice"),
                Figure("K and V of a tile", 2 * tile.keys * row, "bytes", "keys x row x 2"),
                Figure("blocks", best.blocks, "", "queries / tile, heads and sequences"),
                Figure("rounds", best.rounds, "", "blocks / SMs / blocks of an SM"),
                Figure("masked off", best.padded_share, "of the products", "mask and edges"),
            ),
            f"{tile.queries} queries x {tile.keys} keys",
            "lengths that leave most of a last tile empty",
            tuple(self._others("block_n", "keys")),
        )

    def _groups(self) -> DesignStep:
        tile, words = self.tile, GROUP_WORDS[self.kind]
        rows = GROUP_ROWS[self.kind]
        loaded = 4 * tile.keys * self.problem.head_dim
        return DesignStep(
            "warps",
            f"How many {words} multiply?",
            (
                Figure("rows of a product", rows, "", f"{self.kind}, PTX ISA"),
                Figure("L2 into an SM", self.model.l2_rate, "B/cycle", "microbenchmark"),
                Figure("schedulers of an SM", self.machine.sub_partitions, "", "data sheet"),
            ),
            f"M is split: each has {rows} queries and all keys; so each reads all of K and V, and "
            "no maximum crosses them",
            (
                Figure(words, tile.groups, "", "choice"),
                Figure("queries of a block", tile.queries, "", "rows x groups"),
                Figure(
                    "from the L2",
                    self.best.blocks_per_sm * loaded / self.best.tile_cycles,
                    "B/cycle an SM",
                    "K and V / cycles of a tile",
                ),
                Figure("threads", self.model.launch(tile).num_threads, "", "of a block"),
            ),
            f"{tile.groups} {words}: {tile.queries} queries share what comes from the L2",
            "few blocks, where more of them fill more SMs",
            tuple(self._others(words, words)),
        )

    def _turns(self) -> DesignStep:
        tile = self.tile
        together = self.best.blocks_per_sm * tile.groups
        locked = self.model.lockstep_cycles(tile, together)
        parts = self.model.chain_parts(tile)
        apart = max(sum(parts.values()), self.best.shares["matrix units"])
        if tile.groups == 1:
            why = "nobody in the block to take turns with"
            rejected = [Rejected("turns", 1, "warpgroup a block", why)]
        else:
            other = dataclasses.replace(tile, pingpong=1 - tile.pingpong)
            rejected = [
                Rejected(
                    "no turns" if tile.pingpong else "turns",
                    self.model.cost(other).time_us,
                    "us",
                    "two barriers less in each trip: not told apart, and no record has turns slower"
                    if tile.pingpong
                    else "two barriers more in each trip",
                )
            ]
        return DesignStep(
            "turns",
            "Do warpgroups take turns at their products?",
            (
                Figure("warpgroups of an SM", together, "", "blocks of an SM x groups"),
                *(Figure(name, value, "cycles", "one warpgroup") for name, value in parts.items()),
            ),
            "products meet products and exponentials meet exponentials: the first counted once for "
            "each warpgroup of an SM, then the second",
            (
                Figure("turns", tile.pingpong, "", "choice"),
                Figure("a tile by itself", sum(parts.values()), "cycles", "one after the other"),
                Figure("products of all", self.best.shares["matrix units"], "cycles", "an SM"),
                Figure("together", locked, "cycles", "each part meets its like"),
                Figure("if they drifted apart", apart, "cycles", "the longer of the two above"),
            ),
            "in turns" if tile.pingpong else "no turns",
            "warpgroups that drift apart: then a tile takes the last number",
            tuple(rejected),
        )

    def _stages(self) -> DesignStep:
        tile, model = self.tile, self.model
        longest = max(
            value for name, value in self.best.shares.items() if name != "waiting for K and V"
        )
        load = model.load_cycles(tile)
        rejected = []
        for value in next(knob for knob in model.rung.knobs if knob.name == "stages").choices:
            if value == tile.stages:
                continue
            why, made = self._with({"stages": value})
            if why is not None:
                rejected.append(self._unfit(f"{value} stages", made))
                continue
            waits, size = model.wait_cycles(made, longest), model.launch(made).smem_bytes
            if waits > model.wait_cycles(tile, longest):
                said = f"of {longest:,.0f}: a trip waits so long for its rows"
                rejected.append(Rejected(f"{value} stages", waits, "cycles a trip", said))
            else:
                said = f"no wait is left to hide; the choice takes {self.best.smem_bytes:,}"
                rejected.append(Rejected(f"{value} stages", size, "bytes", said))
        on_the_way = (tile.stages - 1) * 4 * tile.keys * self.problem.head_dim
        return DesignStep(
            "stages",
            "How many tiles does the ring hold?",
            (
                Figure("load of a tile of K or V", load, "cycles", "latency, and bytes / rate"),
                Figure("cycles of a tile", longest, "cycles", f"bound by {self.best.by}"),
            ),
            "a stage is asked for again once it was read, (stages - 1) trips before it is needed",
            (
                Figure("stages", tile.stages, "", "choice"),
                Figure("wait left", model.wait_cycles(tile, longest), "cycles a trip", "formula"),
                Figure(
                    "on the way an SM",
                    on_the_way * self.best.blocks_per_sm,
                    "bytes",
                    "(stages - 1) x (K and V) x blocks",
                ),
                Figure(
                    "asked for by Little's law",
                    load
                    * self.best.blocks_per_sm
                    * 4
                    * tile.keys
                    * self.problem.head_dim
                    / longest,
                    "bytes",
                    "latency x rate of use",
                ),
            ),
            f"{tile.stages} stages",
            "a latency that load makes longer",
            tuple(rejected),
        )

    def _alignment(self) -> DesignStep:
        tile, dim = self.tile, self.problem.head_dim
        if self.kind == "wgmma":
            base = tile.queries * dim * ELEMENT
            rows = Tile(tile.keys, ELEMENT * SWIZZLE_ROW, None, "xor", base)
            count, stage = 2 * tile.stages * dim // SWIZZLE_ROW, rows.bytes
            kinds: tuple[str, ...] = ("TMA", "TMA, 128-byte swizzle", "wgmma descriptor")
            self.layouts, rejected = rejected_layouts(SWIZZLE_ROW, SWIZZLE_ROW, tile.stages, "xor")
            self.layout = f"{swizzle_of(SWIZZLE_ROW)}, as the copy's 128-byte swizzle lays it"
            taken, padding = "xor", 0
            decision = (
                f"rows of 128 bytes, {dim // SWIZZLE_ROW} boxes a tile; {swizzle_of(SWIZZLE_ROW)}, "
                "which the copy and wgmma both know"
            )
        else:
            padded = half_tile(tile.keys, dim, PAD)
            base = tile.queries * padded.stride
            rows = dataclasses.replace(padded, base=base)
            count, stage = 2 * tile.stages, rows.bytes
            kinds = ("cp.async 16 B", "ldmatrix")
            taken = str(dim + PAD)
            self.layouts, rejected = rejected_layouts(tile.keys, dim, tile.stages, taken)
            self.layout = f"rows of {dim + PAD} elements, the last {PAD} of them empty"
            padding = count * tile.keys * ELEMENT * PAD + tile.queries * ELEMENT * PAD
            decision = f"{self.layout}: every address is a row's and a constant"
        self.proofs: tuple[AlignmentProof, ...] = tuple(
            prove_alignment(kind, rows, count, stage) for kind in kinds
        )
        mine: LayoutChoice = next(one for one in self.layouts if one.name == taken)
        return DesignStep(
            "alignment",
            "How do rows lie in shared memory?",
            (
                Figure("row", rows.row_bytes, "bytes", "of a tile"),
                Figure("from row to row", rows.stride, "bytes", "stride"),
                Figure("first tile of K", base, "bytes", "behind the queries"),
                Figure("from tile to tile", stage, "bytes", f"{count} of them"),
            ),
            "remainders of base, row and stage by what each access needs; turns lane by lane",
            (
                Figure("turns over the least", worst_turns(mine), "", "worst access along rows"),
                Figure("padding", padding, "bytes", "of a block"),
                *(
                    Figure(f"{one.kind}: tile mod {one.needs}", one.stage_mod, "bytes", one.said)
                    for one in self.proofs
                ),
            ),
            decision,
            "a head whose rows are no multiple of 16 bytes",
            tuple(rejected),
        )

    def _registers(self) -> DesignStep:
        best, tile, model, dim = self.best, self.tile, self.model, self.problem.head_dim
        room = model.room_for_registers(tile, best.blocks_per_sm)
        every = self.gpu.registers_per_sm // (WARP * self.gpu.max_warps_per_sm)
        lanes = GROUP_ROWS[self.kind] / GROUP_THREADS[self.kind]
        sums = dim * lanes
        rejected = [
            Rejected(
                f"all {self.gpu.max_warps_per_sm} warps that an SM can hold",
                every,
                "registers a thread",
                f"the output's sums alone are {sums:.0f}",
            )
        ]
        if self.kind == "wgmma":
            even = self.gpu.registers_per_sm // (
                best.blocks_per_sm * model.launch(tile).num_threads
            )
            rejected.append(
                Rejected(
                    "as many registers for the warps that copy",
                    min(MOST_TAKEN, even // 8 * 8),
                    "registers a thread",
                    f"the choice has {best.registers}; with setmaxnreg the others give theirs",
                )
            )
        wider = dataclasses.replace(tile, keys=2 * tile.keys)
        rejected.append(
            Rejected(
                f"tiles of {wider.keys} keys",
                model.registers(wider),
                "registers a thread",
                f"there are {model.room_for_registers(wider, 1)}"
                + (
                    ", so sums spill"
                    if model.registers(wider) > model.room_for_registers(wider, 1)
                    else "; the step before gives its time"
                ),
            )
        )
        return DesignStep(
            "registers",
            "What does an SM hold?",
            (
                Figure("registers of an SM", self.gpu.registers_per_sm, "", "data sheet"),
                Figure("shared memory of an SM", self.gpu.smem_per_sm_bytes, "bytes", "data sheet"),
            ),
            "output's sums + scores + weights of the tile before + the rest"
            if self.kind == "wgmma"
            else "output's sums + queries + scores + the rest",
            (
                Figure("registers a thread", best.registers, "", "estimate"),
                Figure("room for them", room, "", f"{best.blocks_per_sm} blocks on an SM"),
                Figure("sums of the output", sums, "", "queries x D / threads"),
                Figure("scores", tile.keys * lanes, "", "queries x keys / threads"),
                Figure("blocks of an SM", best.blocks_per_sm, "", "shared memory and registers"),
            ),
            f"{best.registers} registers a thread and {best.blocks_per_sm} blocks an SM",
            "a compiler that keeps more than counted",
            tuple(rejected),
        )

    def _time(self) -> DesignStep:
        best = self.best
        rejected = [
            Rejected(
                ", ".join(f"{name} {value}" for name, value in one.knobs.items()),
                self.model.cost(one).time_us,
                "us",
                "too near to the best to tell apart: for a measurement",
            )
            for one in self._near()[:3]
        ]
        if not rejected:
            rejected.append(
                Rejected("another tile", ALIKE * best.time_us, "us", "every other takes longer")
            )
        share = self.floor_us / best.time_us
        return DesignStep(
            "time",
            "How long should it take?",
            tuple(
                Figure(name, value, "cycles", "an SM, one tile of each of its blocks")
                for name, value in best.shares.items()
            ),
            "time = launch + the longer of the SMs' blocks, dealt out, and bytes / memory rate",
            (
                Figure("expected", best.time_us, "us", f"bound by {best.by}"),
                Figure("the SMs", best.sm_us, "us", "trips x busiest unit, and both ends"),
                Figure("memory", best.memory_us, "us", "each byte once"),
                Figure("floor over expected", share, "of it", "step limits"),
            ),
            f"{best.time_us:.4g} us, {share:.0%} of the bound, where {self.target:.0%} is aimed at",
            WHERE_IT_STOPS,
            tuple(rejected),
        )

    def _near(self) -> tuple[PrefillTile, ...]:
        """Other tiles within `ALIKE` of the best, one for each size, the nearest first."""
        found: dict[tuple[int, int], PrefillCost] = {}
        for tile in self.model.tiles():
            cost, key = self.model.cost(tile), (tile.keys, tile.groups)
            if key == (self.tile.keys, self.tile.groups):
                continue
            if cost.time_us > ALIKE * self.best.time_us:
                continue
            if key not in found or cost.time_us < found[key].time_us:
                found[key] = cost
        return tuple(one.tile for one in sorted(found.values(), key=lambda one: one.time_us))
