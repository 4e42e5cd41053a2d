"""``labtools derive``: from a GPU's limits to a decode kernel, step by step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from labtools.predict import gpu_or_default
from labtools.predict.decode.derivation import Design, DesignStep, Figure
from labtools.predict.decode.inversion import RUNG_OF_BITS, derive
from labtools.problem import Limits, load_rung
from labtools.problem.decode.block_plan import plan_of

from .given import choose_decode_workload
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
        line(
            f"derived: {self.arithmetic}, tile of {self.tile_keys} keys, "
            f"{self.warps_per_sm} warps an SM, {self.stages} stages, {self.blocks} blocks of "
            f"{self.warps} warps in clusters of {self.cluster}, {self.smem_bytes:,} bytes of "
            f"shared memory a block, {self.time_us:.2f} us  [computed]"
        )
        if self.rung is not None:
            line(_say_rung(self.rung))


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
