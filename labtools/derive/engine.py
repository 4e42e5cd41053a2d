"""The one engine: it turns an operation's facts into steps, puts what is not told apart beside the
choice, and holds the expected time against the bound.

An operation adds its facts in a folder of its own, with the words of its steps in `steps.toml`, and
is registered as a `Derivable`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from labtools.predict.latencies import load_latencies
from labtools.predict.machine import machine_of
from labtools.predict.sheets import Gpu
from labtools.problem import LabError, Problem, operation_of, parse_problem

from .capacity import SharedLimits, shared_limits
from .layouts import AlignmentProof, LayoutChoice
from .parts import (
    ALIKE,
    WHERE_IT_STOPS,
    AnyDesign,
    DesignStep,
    Rejected,
    Sheet,
    Ties,
    bytes_words,
    tied_times,
)
from .proposals import DesignSpace
from .sm import TARGET_SHARE, share_in_flight
from .traffic import SlopePoint

_SHARED_STEPS = Sheet(Path(__file__).with_name("steps.toml"))
USUAL_TARGET = 0.85
"""Share of the bound that a design aims at, where none is given."""
FLOOR_STEPS = ("bytes", "limits", "traffic")
"""Steps whose times are those of limits, and of no kernel."""


@dataclass(frozen=True)
class BoundDesign(AnyDesign):
    """A kernel, derived against the bound of its operation."""

    op: str
    workload: str  # its short form
    bound: str  # what takes longest at its peak, such as ``memory`` or ``tensor cores``
    floor_us: float  # the time of that bound
    kernel: str | None  # the shipped kernel that this specifies; None where there is none
    knobs: dict[str, int] | None  # its knobs
    stops: str  # where analysis stops

    @property
    def specified(self) -> tuple[str, dict[str, int]] | None:
        """The shipped kernel to build and its knobs, or None where there is none."""
        return None if self.kernel is None or self.knobs is None else (self.kernel, self.knobs)

    @property
    def title(self) -> str:
        """What was derived, and for which GPU."""
        return f"{self.op} {self.workload} on {self.gpu}"


@dataclass(frozen=True)
class TiledDesign(BoundDesign):
    """A tile that stands in shared memory, derived with a share of the bound as its target."""

    target: float  # share of the bound that is aimed at
    target_us: float  # the floor over the target
    reaches_target: bool  # whether the expected time is within the target
    layouts: tuple[LayoutChoice, ...]  # the paddings and xor beside each other
    alignment: tuple[AlignmentProof, ...]  # a proof for each kind of access
    shared: SharedLimits
    slope: tuple[SlopePoint, ...]  # least traffic by size of a buffer


@dataclass(frozen=True)
class Asked:
    """What somebody wants of a derivation besides the workload and the GPU."""

    bits: int = 16  # of an element of K and V in memory, of decode alone
    target: float | None = None  # share of the bound that is aimed at; None is `USUAL_TARGET`
    quick: bool = False  # ask neither the compiler how much shared memory it takes, nor NVIDIA


@dataclass(frozen=True)
class Derivable:
    """An operation that can be derived: what the command, lab 10 and the search over tiles ask."""

    name: str  # such as ``gemm``
    derive: Callable[[Problem | str | None, Gpu, Asked], AnyDesign]  # None: the usual workload
    space: Callable[[Any, Gpu], DesignSpace] | None = None  # all that can be proposed for a design
    few_bits: bool = False  # whether elements may have fewer than 16 bits
    aims_at: str = ""  # what it aims at, where no target can be given


def read_problem(op: str, work: Problem | str | None) -> Any:
    """The workload of an operation, which a text may name; None is the usual one."""
    operation = operation_of(op)
    problem = parse_problem(work) if isinstance(work, str) else work or operation.headline
    if not isinstance(problem, operation.problem):
        raise LabError(
            f"{problem} is no {op} workload.",
            f"it is of {problem.operation}",
            f"a workload such as {operation.problem.example}",
        )
    return problem


_Design = TypeVar("_Design", bound=AnyDesign)


class Derivation:
    """The steps of a kernel, in order; each leaves what the later ones need in an attribute."""

    sheet: ClassVar[Sheet]
    case = ""
    """Which words of the sheet are meant, where it holds several."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        # which alternatives are as good as the choice, in every step but those of `FLOOR_STEPS`
        self.ties: Ties = {}
        self.machine, self.known = machine_of(gpu), load_latencies(gpu)
        self.dram_gb_per_s = self.machine.dram_bytes_per_cycle * self.machine.clock_ghz
        self.sm_rate = self.machine.dram_bytes_per_cycle / gpu.sm_count
        self.need = self.machine.bytes_in_flight(TARGET_SHARE) * self.machine.slow_dram

    @property
    def ceiling_source(self) -> str:
        """Where the read ceiling comes from."""
        if self.machine.calibrated:
            return self.known.entry("memory.hbm_gb_per_s").source
        return "the data sheet's rate, times the share that an NVIDIA H200 reaches of its own"

    def in_flight_step(self) -> DesignStep:
        """The bytes that must be on the way where memory is the bound, by Little's law."""
        machine, need = self.machine, self.need
        idle, wait = machine.dram_async(512), machine.dram_queue(TARGET_SHARE)
        unloaded, measured = self.sm_rate * idle, "latency.async_hbm.512"
        has = self.known.has(measured)
        source = self.known.entry(measured).source if has else "table of latencies"
        return _SHARED_STEPS.step(
            "in_flight",
            [self.sm_rate, idle, wait, machine.slow_dram],
            [need, idle + wait],
            [unloaded, share_in_flight(need / machine.slow_dram / 2, machine)],
            words={
                "latency_source": source,
                "target": TARGET_SHARE,
                "kib": need / 1024,
                "unloaded": share_in_flight(unloaded, machine),
            },
        )

    def made(self, kind: type[_Design], steps: Sequence[DesignStep], **own: Any) -> _Design:
        """The design of these steps, with what is the operation's own."""
        return kind(
            gpu=self.gpu.name,
            calibrated=self.machine.calibrated,
            steps=tuple(steps),
            **{"stops": WHERE_IT_STOPS, **own},
        )

    def step(
        self,
        name: str,
        inputs: Sequence[Any],
        results: Sequence[Any],
        rejected: Sequence[Any] = (),
        **words: Any,
    ) -> DesignStep:
        """A step of the sheet with its numbers, see `Sheet.step`; it may name what stands in an
        attribute of the derivation."""
        words, ties = {**vars(self), **words}, {} if name in FLOOR_STEPS else self.ties
        return self.sheet.step(name, inputs, results, rejected, self.case, words, ties)


class BoundDerivation(Derivation):
    """A derivation that takes the best tile of a model, which says the ``cost`` of a tile, the
    ``tiles`` that fit and the ``best``, and holds it against a bound; ``shape`` is what is alike in
    tiles of one size. A LabError where no tile fits."""

    bound: str
    floor_us: float
    layout: str
    layouts: tuple[LayoutChoice, ...]
    proofs: tuple[AlignmentProof, ...]

    def __init__(
        self, op: str, workload: str, asked: Asked, model: Any, shape: Callable[[Any], Any]
    ) -> None:
        super().__init__(model.gpu)
        gpu, self.model = self.gpu, model
        self.op, self.text, self.asked = op, workload, asked
        self.goal = USUAL_TARGET if asked.target is None else asked.target
        self.shared = shared_limits(gpu, not asked.quick)
        best = model.best()
        if best is None:
            why = "every tile asks for more shared memory or registers than a block may have"
            what = f"No tile of {workload} fits {gpu.title}."
            raise LabError(what, why, "a smaller workload, or another GPU")
        self.best, self.tile, self.ties = best, best.tile, tied_times(best.time_us)
        self.near = near_tiles(model, best, shape)
        self.near_us = [model.cost(tile).time_us for tile in self.near[:3]]

    def room_step(self, formula: str) -> DesignStep:
        """How a block comes by its shared memory, whose bytes are what the formula says."""
        shared, size = self.shared, self.best.smem_bytes
        taken = {arch: most for arch, most in shared.compiler_static.items() if most is not None}
        return _SHARED_STEPS.step(
            "room",
            [shared.sheet_static, shared.opt_in, taken],
            [size, shared.opt_in - size],
            [shared.sheet_static, 2 * size if 2 * size > shared.opt_in else None],
            "over" if size > shared.sheet_static else "within",
            {
                "compiler": shared.compiler,
                "asked": shared.compiler if taken else "not asked",
                "formula": formula,
                "size_words": bytes_words(size),
                "room_words": bytes_words(shared.opt_in),
            },
        )

    def time_step(self, say: Callable[[Any], str]) -> DesignStep:
        """The expected time, and the tiles that are too near to it to tell apart."""
        best, share = self.best, self.floor_us / self.best.time_us
        near = [
            Rejected(say(tile), time, "us", "too near to the best to tell apart: for a measurement")
            for tile, time in zip(self.near, self.near_us, strict=False)
        ]
        other = Rejected("another tile", ALIKE * best.time_us, "us", "every other takes longer")
        return self.step(
            "time",
            [best.shares],
            [best.time_us, best.sm_us, best.memory_us, share],
            near or [other],
            stops=WHERE_IT_STOPS,
        )

    def made(self, kind: type[_Design], steps: Sequence[DesignStep], **own: Any) -> _Design:
        """The design of these steps, with what is the operation's own."""
        return super().made(
            kind,
            steps,
            op=self.op,
            workload=self.text,
            target=self.goal,
            bound=self.bound,
            floor_us=self.floor_us,
            target_us=self.floor_us / self.goal,
            time_us=self.best.time_us,
            reaches_target=self.best.time_us <= self.floor_us / self.goal,
            cost=self.best,
            near=self.near,
            layout=self.layout,
            layouts=self.layouts,
            alignment=self.proofs,
            shared=self.shared,
            **own,
        )


def check_copies(gpu: Gpu) -> None:
    """Refuse a GPU without asynchronous copies."""
    if gpu.compute_capability < (8, 0):
        raise LabError(
            f"{gpu.title} has no asynchronous copies into shared memory.",
            "they came with compute capability 8.0, and this derivation rests on them",
            "every forecast, and kernels that load through registers",
        )


def check_target(target: float | None) -> None:
    """Refuse a target that is no share."""
    if target is not None and not 0 < target <= 1:
        why = "it is a part of the bound, above 0 and at most 1"
        raise LabError(f"A target of {target:g} is no share.", why, f"for example {USUAL_TARGET}")


def near_tiles(model: Any, best: Any, shape: Callable[[Any], Any]) -> tuple[Any, ...]:
    """Other tiles within `ALIKE` of the best, one for each shape, the nearest first."""
    found: dict[Any, Any] = {}
    for tile in model.tiles():
        cost, key = model.cost(tile), shape(tile)
        if key == shape(best.tile) or cost.time_us > ALIKE * best.time_us:
            continue
        if key not in found or cost.time_us < found[key].time_us:
            found[key] = cost
    return tuple(one.tile for one in sorted(found.values(), key=lambda one: one.time_us))
