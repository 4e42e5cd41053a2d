"""``labtools derive``: from a GPU's limits to a kernel, step by step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from labtools.predict import gpu_or_default
from labtools.predict.decode.derivation import Design
from labtools.predict.decode.inversion import RUNG_OF_BITS, TARGET_SHARE, derive
from labtools.predict.inversion.design import BoundDesign
from labtools.predict.inversion.layouts import DOWN_A_COLUMN, best_layouts
from labtools.predict.inversion.parts import DesignStep, Figure
from labtools.predict.inversion.product import USUAL_TARGET, TileDesign, derive_product
from labtools.predict.inversion.traffic import SlopePoint
from labtools.predict.inversion.work import FORMS
from labtools.predict.prefill.inversion import GROUP_WORDS, PrefillDesign, derive_prefill
from labtools.problem import LabError, Limits, load_rung, operations
from labtools.problem.decode.block_plan import plan_of

from .given import choose_decode_workload, choose_prefill_workload
from .outcome import Answer, taken_from, typed

if TYPE_CHECKING:
    from rich.console import Console

    from labtools.toolchain.progress import Progress


@dataclass(frozen=True)
class LaunchSize:
    """Blocks of a launch, threads and shared memory of one, and blocks of a cluster."""

    blocks: int
    threads: int
    smem_bytes: int
    cluster: int


@dataclass(frozen=True)
class DerivedRung:
    """The shipped rung of these bits: its launch, or why it cannot run, and whether that launch is
    the derived one.
    """

    id: str
    knobs: Mapping[str, int]
    derived: LaunchSize
    launched: LaunchSize | None
    cannot_run: str | None
    same: bool


@dataclass(frozen=True)
class Derived(Answer, Design):
    """The derivation for a workload on a GPU, and beside it the rung that follows from it."""

    origin: str
    rung: DerivedRung | None

    def show(self, console: Console) -> None:
        """Every step with its numbers, what they give, and the rung."""

        def line(text: str) -> None:
            console.print(text, markup=False, soft_wrap=True)

        line(f"{self.workload} with {self.bits} bits on {self.gpu}  [computed]")
        if not self.calibrated:
            line("uncalibrated: this GPU's latencies and rates were not measured by this project")
        for number, step in enumerate(self.steps, 1):
            line("")
            line(f"{number}. {step.question}")
            _show_step(line, step)
        line("")
        _show_slope(line, self.slope)
        line("")
        line(
            f"derived: {self.arithmetic}, tile of {self.tile_keys} keys, "
            f"{self.warps_per_sm} warps an SM, {self.stages} stages, {self.blocks} blocks of "
            f"{self.warps} warps in clusters of {self.cluster}, {self.smem_bytes:,} bytes of "
            f"shared memory a block, {self.time_us:.2f} us  [computed]"
        )
        if self.rung is not None:
            line(_say_rung(self.rung))
        line(self.stops)


def _say_rung(rung: DerivedRung) -> str:
    made = rung.launched
    if made is None:
        return f"{rung.id} cannot run this: {rung.cannot_run}"
    return (
        f"{rung.id} launches {made.blocks} blocks of {made.threads // 32} warps in clusters of "
        f"{made.cluster} with {made.smem_bytes:,} bytes: "
        + ("the same" if rung.same else "not the same")
    )


def derive_kernel(
    workload_text: str | None, gpu_name: str | None, bits: int, progress: Progress
) -> Derived:
    """The derivation for a workload on a GPU."""
    workload = choose_decode_workload(workload_text)
    with typed():
        gpu = gpu_or_default(gpu_name)
        progress(f"deriving a kernel for {gpu.title}")
        design = derive(workload, gpu, bits)
    return taken_from(Derived, design, origin="computed", rung=_rung_of(design, gpu.limits))


def _show_bound(line: Callable[[str], None], design: BoundDesign, columns: int) -> None:
    """Every step, the layouts of rows of so many elements beside each other, and the slope."""
    line(f"{design.op} {design.workload} on {design.gpu}  [computed]")
    if not design.calibrated:
        line("uncalibrated: this GPU's latencies and rates were not measured by this project")
    for number, step in enumerate(design.steps, 1):
        line("")
        line(f"{number}. {step.question}")
        _show_step(line, step)
    line("")
    line(f"rows of {columns} elements in shared memory, each layout beside the others:")
    for one in design.layouts:
        scalar = one.turns[DOWN_A_COLUMN]
        line(f"   {one.name}: {one.why}; {DOWN_A_COLUMN} {scalar:g} times the least turns")
    line("where every row of every stage of the chosen layout begins:")
    for proof in design.alignment:
        holds = "aligned" if proof.holds else "not aligned"
        line(f"   {proof.kind}, which needs multiples of {proof.needs}: {holds}; {proof.said}")
    line("aligned, and the fewest turns for an access alone:")
    for kind, best in best_layouts(design.layouts).items():
        line(f"   {kind}: {best.name}, {best.turns[kind]:g} times the least turns")
    _show_slope(line, design.slope)


def _show_slope(line: Callable[[str], None], slope: Sequence[SlopePoint]) -> None:
    line("least traffic by size of a buffer (the ski slope):")
    for point in slope:
        if point.traffic_bytes is None:
            line(f"   {point.buffer_bytes:,} bytes: no tile fits")
        else:
            line(f"   {point.buffer_bytes:,} bytes: {point.traffic_bytes:,} bytes")


def _say_knobs(line: Callable[[str], None], design: BoundDesign) -> None:
    """The command that forecasts the kernel, and where analysis stops."""
    if design.specified is not None:
        kernel, chosen = design.specified
        knobs = " ".join(f"-k {name}={value}" for name, value in chosen.items())
        line(f"forecast it: labtools forecast {kernel} -w {design.workload} {knobs}")
    line(design.stops)


@dataclass(frozen=True)
class DerivedTile(Answer, TileDesign):
    """The derivation of a product's tile on a GPU."""

    origin: str = "computed"

    def show(self, console: Console) -> None:
        """Every step, the layouts beside each other, the slope, and NVIDIA's own pick."""

        def line(text: str) -> None:
            console.print(text, markup=False, soft_wrap=True)

        _show_bound(line, self, 64)
        if self.library is not None:
            line(f"NVIDIA's own pick: {self.library.said}")
        tile = self.cost.tile
        line("")
        line(
            f"derived: {tile.m} x {tile.n} x {tile.k}, {tile.warps_m} x {tile.warps_n} warps, "
            f"{tile.stages} stages, {self.cost.smem_bytes:,} bytes of shared memory a block, "
            f"{self.cost.registers} registers a thread, {self.time_us:.4g} us  [computed]"
        )
        if self.hopper is not None:
            ring = self.hopper.cost
            line("")
            line("With the instructions that sm_90a alone has:")
            for step in self.hopper.steps:
                line("")
                line(step.question)
                _show_step(line, step)
            line("")
            line(
                f"derived: {ring.tile.rows} x {ring.tile.columns}, {ring.tile.stages} stages, "
                f"{ring.tile.split} blocks a tile, {ring.tile.smem_bytes:,} bytes of shared memory "
                f"a block, {ring.time_us:.4g} us, "
                f"{self.hopper.floor_us / ring.time_us:.0%} of the bound, which is "
                f"{self.hopper.bound}  [computed]"
            )
        _say_knobs(line, self)


@dataclass(frozen=True)
class DerivedPrefill(Answer, PrefillDesign):
    """The derivation of a prefill kernel on a GPU."""

    origin: str = "computed"

    def show(self, console: Console) -> None:
        """Every step, the layouts beside each other, the slope, and the kernel."""

        def line(text: str) -> None:
            console.print(text, markup=False, soft_wrap=True)

        _show_bound(line, self, int(self.layouts[0].name))
        tile = self.cost.tile
        line("")
        line(
            f"derived: {tile.queries} queries x {tile.keys} keys, {tile.groups} "
            f"{GROUP_WORDS[tile.kind]}, {tile.stages} stages, {self.cost.smem_bytes:,} bytes of "
            f"shared memory a block, {self.cost.registers} registers a thread, "
            f"{self.time_us:.4g} us  [computed]"
        )
        _say_knobs(line, self)


OPERATIONS = ("decode", "prefill", *FORMS)
"""What can be derived."""


def derive_any(
    op: str | None,
    workload_text: str | None,
    gpu_name: str | None,
    bits: int,
    target: float | None,
    progress: Progress,
) -> Derived | DerivedTile | DerivedPrefill:
    """The derivation for a workload of any operation that can be derived."""
    named = (workload_text or "").partition(":")[0]
    op = op or (named if named in {*OPERATIONS, *operations()} else "decode")
    with typed():
        if op not in OPERATIONS:
            raise LabError(
                f"There is no derivation of {op!r}.",
                f"what can be derived is {', '.join(OPERATIONS)}",
                "name one of them",
            )
        if op == "decode" and target is not None:
            raise LabError(
                "A decode kernel is derived for no target.",
                f"it aims at {TARGET_SHARE:.0%} of the read ceiling",
                "--target with --op prefill, gemm, conv or moe",
            )
        if op != "decode" and bits != 16:
            raise LabError(
                f"A {op} of {bits} bits is not known here."
                if op == "prefill"
                else f"A product of {bits} bits is not known here.",
                "its elements have 16 bits",
                "--bits with decode",
            )
    if op == "decode":
        return derive_kernel(workload_text, gpu_name, bits, progress)
    with typed():
        gpu = gpu_or_default(gpu_name)
        share = USUAL_TARGET if target is None else target
        if op == "prefill":
            problem = choose_prefill_workload(workload_text)
            progress(f"deriving a kernel for {gpu.title}")
            return taken_from(
                DerivedPrefill, derive_prefill(problem, gpu, share), origin="computed"
            )
        progress(f"deriving a tile for {gpu.title}")
        design = derive_product(op, workload_text, gpu, share)
    return taken_from(DerivedTile, design, origin="computed")


def _rung_of(design: Design, limits: Limits) -> DerivedRung | None:
    """The shipped rung of these bits, its launch, and whether that is the derived one."""
    rung = load_rung(RUNG_OF_BITS[design.bits])
    knobs = rung.resolve_knobs()
    derived = LaunchSize(design.blocks, 32 * design.warps, design.smem_bytes, design.cluster)
    refused = rung.supports(design.workload)
    launched = None
    if refused is None:
        launch = rung.launches(design.workload, limits)[-1]
        cluster = plan_of(rung, design.workload, limits).cluster
        launched = LaunchSize(launch.num_blocks, launch.num_threads, launch.smem_bytes, cluster)
    return DerivedRung(rung.id, knobs, derived, launched, refused, launched == derived)


def _number(figure: Figure) -> str:
    value = figure.value
    if float(value).is_integer():
        text = f"{value:,.0f}"
    else:
        text = f"{value:,.3g}" if abs(value) < 100 else f"{value:,.1f}"
    return f"{text} {figure.unit}".strip()


def _show_step(line: Callable[[str], None], step: DesignStep) -> None:
    for figure in step.inputs:
        line(f"     {figure.name}: {_number(figure)}  ({figure.source})")
    line(f"   {step.formula}")
    for figure in step.results:
        line(f"   = {figure.name}: {_number(figure)}")
    line(f"   so: {step.decision}")
    for rejected in step.rejected:
        number = _number(Figure("", rejected.value, rejected.unit))
        line(f"   not {rejected.choice}: {number}; {rejected.why}")
    line(f"   would change with: {step.breaks}")
