"""``labtools derive``: from a GPU's limits to a kernel, step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from labtools.derive import Design, DesignStep, derive, find_derivable
from labtools.derive.engine import TiledDesign
from labtools.derive.layouts import DOWN_A_COLUMN, best_layouts
from labtools.derive.registry import operation_named
from labtools.predict import gpu_or_default
from labtools.problem import Limits, load_rung
from labtools.problem.decode.block_plan import plan_of

from .outcome import Answer, typed

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
    """The shipped rung of a decode kernel's bits, and whether its launch is the derived one."""

    id: str
    knobs: Mapping[str, int]
    derived: LaunchSize
    launched: LaunchSize | None  # None where it cannot run this
    cannot_run: str | None
    same: bool

    @property
    def line(self) -> str:
        """How it is launched."""
        made = self.launched
        if made is None:
            return f"{self.id} cannot run this: {self.cannot_run}"
        return (
            f"{self.id} launches {made.blocks} blocks of {made.threads // 32} warps in clusters of "
            f"{made.cluster} with {made.smem_bytes:,} bytes: "
            + ("the same" if self.same else "not the same")
        )


@dataclass(frozen=True)
class Derived(Answer):
    """The derivation for a workload on a GPU; the JSON holds the design's own fields."""

    design: Any  # of the operation, such as `labtools.derive.Design`
    rung: DerivedRung | None  # of decode alone

    def to_dict(self) -> dict[str, Any]:
        """The fields of the design, where the numbers come from, and the rung of decode."""
        held = {part.name: getattr(self.design, part.name) for part in fields(self.design)}
        return held | {"origin": "computed"} | ({"rung": self.rung} if self.rung else {})

    def show(self, console: Console) -> None:
        """What each step decides, and the kernel to build."""
        self._show(console.print, _say_decision)
        console.print("--verbose shows what each step follows from, and what it rejects")

    def show_all(self, console: Console) -> None:
        """Every step with its numbers, what they give, and the kernel to build."""
        self._show(console.print, _show_step, details=True)

    def _show(
        self, line: Callable[..., None], say: Callable[..., None], details: bool = False
    ) -> None:
        design = self.design
        line(f"{design.title}  [computed]")
        if not design.calibrated:
            line("uncalibrated: this GPU's latencies and rates were not measured by this project")
        line(f"derived: {design.summary}  [computed]")
        for number, step in enumerate(design.steps, 1):
            line()
            line(f"{number}. {step.question}")
            say(line, step)
        line()
        if details and isinstance(design, TiledDesign):
            _show_layouts(line, design)
        for text in _slope_lines(design) if details else ():
            line(text)
        library, hopper = getattr(design, "library", None), getattr(design, "hopper", None)
        if library is not None:
            line(f"NVIDIA's own pick: {library.said}")
        if hopper is not None:
            line()
            line("With the instructions that sm_90a alone has:")
            for step in hopper.steps:
                line()
                line(step.question)
                say(line, step)
            line()
            line(f"derived: {hopper.summary}  [computed]")
        if self.rung is not None:
            line(self.rung.line)
        elif design.specified is not None:
            kernel, knobs = design.specified
            chosen = " ".join(f"-k {name}={value}" for name, value in knobs.items())
            line(f"forecast it: labtools forecast {kernel} -w {design.workload} {chosen}")
        line(design.stops)


def derive_any(
    op: str | None,
    workload_text: str | None,
    gpu_name: str | None,
    bits: int,
    target: float | None,
    progress: Progress,
) -> Derived:
    """The derivation for a workload of any operation that can be derived."""
    op = op or operation_named(workload_text or "")
    with typed():
        find_derivable(op)
        gpu = gpu_or_default(gpu_name)
        progress(f"deriving a kernel for {gpu.title}")
        design = derive(workload_text, gpu, bits, target, op=op)
    rung = _rung_of(design, gpu.limits) if isinstance(design, Design) else None
    return Derived(design, rung)


def _rung_of(design: Design, limits: Limits) -> DerivedRung:
    """The shipped rung of these bits, its launch, and whether that is the derived one."""
    rung = load_rung(design.specified[0])
    derived = LaunchSize(design.blocks, 32 * design.warps, design.smem_bytes, design.cluster)
    refused = rung.supports(design.workload)
    launched = None
    if refused is None:
        launch = rung.launches(design.workload, limits)[-1]
        cluster = plan_of(rung, design.workload, limits).cluster
        launched = LaunchSize(launch.num_blocks, launch.num_threads, launch.smem_bytes, cluster)
    knobs = rung.resolve_knobs()
    return DerivedRung(rung.id, knobs, derived, launched, refused, launched == derived)


def _number(value: float, unit: str) -> str:
    if float(value).is_integer():
        text = f"{value:,.0f}"
    else:
        text = f"{value:,.3g}" if abs(value) < 100 else f"{value:,.1f}"
    return f"{text} {unit}".strip()


def _show_step(line: Callable[[str], None], step: DesignStep) -> None:
    for figure in step.inputs:
        line(f"     {figure.name}: {_number(figure.value, figure.unit)}  ({figure.source})")
    line(f"   {step.formula}")
    for figure in step.results:
        line(f"   = {figure.name}: {_number(figure.value, figure.unit)}")
    line(f"   so: {step.decision}")
    for one in step.rejected:
        line(f"   {one.word} {one.choice}: {_number(one.value, one.unit)}; {one.why}")
    line(f"   would change with: {step.breaks}")


def _say_decision(line: Callable[[str], None], step: DesignStep) -> None:
    line(f"   {step.decision}")


def _show_layouts(line: Callable[[str], None], design: TiledDesign) -> None:
    """The layouts of rows beside each other, and where every row of the chosen one begins."""
    columns = design.layouts[0].name
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


def _slope_lines(design: Any) -> Iterable[str]:
    points: Sequence[Any] = getattr(design, "slope", ())
    if points:
        yield "least traffic by size of a buffer (the ski slope):"
    for point in points:
        moved = point.traffic_bytes
        said = "no tile fits" if moved is None else f"{moved:,} bytes"
        yield f"   {point.buffer_bytes:,} bytes: {said}"
