"""What is given on the command line, turned into values. Every failure here is a usage error."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from .outcome import typed

if TYPE_CHECKING:
    from labtools.optimize.family import Family
    from labtools.problem import Baseline, Problem, Rung
    from labtools.problem.launched import LaunchProblem

_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
HEADLINE_TEXT = "8,32,8,4096,128"
SMALL_TEXT = "2,8,2,300,128"
"""What is taken of decode where no workload is typed; each operation has its own two."""

JsonOption = Annotated[bool, typer.Option("--json", help="Write JSON to stdout, nothing else.")]
VerboseOption = Annotated[bool, typer.Option("--verbose", help="Show all details.")]
RungArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUNG|PATH.py",
        help="A shipped rung (r03 or r03_one_warp), or the .py file of another, whose Python and "
        "machine code then run as you.",
        show_default=False,
    ),
]
WorkloadOption = Annotated[
    str | None,
    typer.Option(
        "--workload",
        "-w",
        metavar="B,Hq,Hkv,S,D|NAME:...|FILE.json",
        help="Sequences, query heads, KV heads, cached tokens, head dim; behind them, as wanted, "
        "/bf16, /paged16 or /paged64, /warm. Other operations name themselves: rows:8192,4096. "
        f"Default: {HEADLINE_TEXT}, or what the rung's operation takes for usual.",
        show_default=False,
    ),
]
KnobOption = Annotated[
    list[str] | None,
    typer.Option(
        "--knob",
        "-k",
        metavar="NAME=VALUE",
        help="A choice of the kernel; repeatable. Without it those of g01, g02, p02 and p03 are "
        "derived, and of other kernels their own defaults.",
    ),
]


class _Once(TyperCommand):
    """A command that refuses an option given twice, of which click would take the last."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        _, _, order = self.make_parser(ctx).parse_args(args=list(args))
        for one in order:
            if one.param_type_name == "option" and not one.multiple and order.count(one) > 1:
                ctx.fail(f"{one.opts[0]} is given twice")
        return super().parse_args(ctx, args)


class Commands(typer.Typer):
    """Commands with one epilog, ``of_each``; an option that is not repeatable may stand once."""

    def __init__(self, of_each: str, **more: Any) -> None:
        super().__init__(**more)
        self._of_each = of_each

    def command(self, name: str | None = None, **more: Any) -> Any:
        """As typer has it."""
        return super().command(name, cls=_Once, epilog=self._of_each, **more)


def read_workload(text: str) -> Problem:
    """The workload that was typed, of any operation."""
    from labtools.problem import parse_problem

    with typed():
        return parse_problem(text)


def choose_workload(
    text: str | None, target: Rung | Baseline | None = None, *, small: bool = False
) -> Problem:
    """The workload that was typed, or the one that the target's operation takes for usual, in the
    first type and layout that the target takes; where it takes none of the usual size, of its
    battery.

    Args:
        text: what was typed, or None.
        target: decides the operation; None is decode.
        small: the one that the CPU and the sanitizers can take.
    """
    from labtools.problem import DEFAULT_OPERATION, Rung, operation_of

    if text is not None:
        return read_workload(text)
    operation = operation_of(DEFAULT_OPERATION if target is None else target.operation)
    chosen: Problem = operation.small if small else operation.headline
    if not isinstance(target, Rung):
        return chosen
    with typed():
        found = [one for one in operation.kinds(chosen) if not target.supports(one)]
        if not found and small:
            others = operation.battery(chosen, target.supports)[1:]
            alike = [one for one in others if one.visits <= chosen.visits]
            plain = {"distribution": chosen.distribution, "seed": chosen.seed}
            found = [max(alike, key=lambda one: one.visits).replace(**plain)] if alike else []
        return found[0] if found else chosen


def read_rung(name: str) -> Rung:
    """The rung that was named, whose source can be read."""
    from labtools.problem import load_rung

    with typed():
        rung = load_rung(name)
        assert rung.source_text is not None  # a source that is no text is refused here
        return rung


def read_family(name: str, *, may_be_plain: bool = False) -> Family:
    """The kernel family that was named, whose source can be read; where it ``may_be_plain`` a
    kernel alone is one too."""
    from labtools.optimize.family import load_family, load_tuned

    with typed():
        family = load_tuned(name) if may_be_plain else load_family(name)
        assert family.rung.source_text is not None
        return family


def read_target(name: str) -> Rung | Baseline:
    """The rung or the baseline that was named; ``baseline:sdpa`` and ``sdpa`` are the same."""
    from labtools.problem import list_baselines

    wanted = name.removeprefix("baseline:")
    for baseline in list_baselines(None):
        if baseline.id == wanted:
            return baseline
    return read_rung(name)


def named_knobs(rung: Rung, chosen: Sequence[str] | None) -> dict[str, int]:
    """The knobs that were typed, with their values."""
    from labtools.problem import LabError

    values: dict[str, int] = {}
    with typed():
        for text in chosen or ():
            name, equals, value = text.partition("=")
            if not equals or not _WHOLE.fullmatch(value.strip()):
                raise LabError(
                    f"{text!r} is not a knob.",
                    "a knob is NAME=VALUE with a whole number, for example unroll=4",
                    f"{rung.id} has the knobs "
                    + (", ".join(knob.name for knob in rung.knobs) or "none"),
                )
            if (name := name.strip()) in values:
                why = f"{values[name]} and {value.strip()}: nobody knows which is meant"
                raise LabError(f"The knob {name} is given twice.", why, "the same with one of them")
            values[name] = int(value)
        rung.resolve_knobs(values)
    return values


def read_knobs(
    rung: Rung,
    chosen: Sequence[str] | None,
    problem: Problem | None = None,
    gpu_name: str | None = None,
) -> dict[str, int]:
    """Every knob of the rung, with the values that were typed. Of a problem the others are those
    that are derived for it on a GPU, which is said, where there is a derivation of this kernel."""
    typed_knobs, derived = named_knobs(rung, chosen), None
    if problem is not None and len(typed_knobs) < len(rung.knobs):
        from labtools.derive.registry import LAUNCHED_AS_DERIVED, derived_knobs
        from labtools.predict import gpu_or_default

        if rung.id in LAUNCHED_AS_DERIVED:  # asking for the GPU takes a second
            with typed():
                gpu = gpu_or_default(gpu_name)
            derived = derived_knobs(rung, problem, gpu)
            if derived:
                text = f"{rung.id}: knobs derived for {problem} on {gpu.title}"
                print(text, file=sys.stderr, flush=True)
    return rung.resolve_knobs({**(derived or {}), **typed_knobs})


@dataclass(frozen=True)
class RungAsked:
    """What was typed of a rung: its name, a workload, and knobs."""

    name: str
    workload: str | None
    knobs: Sequence[str] | None

    def read(
        self, *, small: bool = False, derived: bool = False, gpu_name: str | None = None
    ) -> tuple[Rung, Problem, dict[str, int]]:
        """The rung, a workload that it can run, as `choose_workload` has it, and every knob: with
        ``derived`` for the GPU that is named, as `read_knobs` has it."""
        rung = read_rung(self.name)
        named_knobs(rung, self.knobs)
        workload = choose_workload(self.workload, rung, small=small)
        knobs = read_knobs(rung, self.knobs, workload if derived else None, gpu_name)
        check_supported(rung, workload, knobs)
        return rung, workload, knobs


EntryOption = Annotated[
    str | None,
    typer.Option(
        help="Of a .cu, .ptx, .cubin, .so, .o, or a .py of Triton's: the kernel, as "
        "'softmax<float, 4>'.",
        show_default=False,
    ),
]
GridOption = Annotated[
    str | None,
    typer.Option(
        help="Its blocks in x, y, z, as 8192 or 'cdiv(n,256),8'. Without it and --block they are "
        "those of a launch <<<4096, 256>>> in the source.",
        show_default=False,
    ),
]
BlockOption = Annotated[
    str | None, typer.Option(help="Its threads in x, y, z.", show_default=False)
]
SmemOption = Annotated[str, typer.Option(help="Its bytes of dynamic shared memory.")]
ArgOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=TYPE...",
        help="Each parameter in order: x=f32[8192,n], n=i32:4096, out=f32[8192,n]:out (:inout, "
        ":part of which some is read), idx=i32[8192]=uniform:0,99 (=arange, @idx.npy), "
        "p=struct(x,out,i32:4096,8), a structure by value of some of them, a number and 8 bytes.",
    ),
]
DefineOption = Annotated[
    list[str] | None,
    typer.Option(
        "--define",
        "-D",
        metavar="NAME=VALUE",
        help="A preprocessor definition of a .cu; of a Triton kernel a tl.constexpr, or an option "
        "such as num_warps=8.",
    ),
]
IncludeOption = Annotated[
    list[str] | None,
    typer.Option("--include", "-I", metavar="DIR", help="A folder of headers of a .cu."),
]


@dataclass(frozen=True)
class LaunchAsked:
    """What was typed of a kernel that is told by its launch alone, one of `KERNEL_FILES`."""

    name: str
    entry: str | None
    grid: str | None
    block: str | None
    smem: str
    args: Sequence[str] | None
    defines: Sequence[str] | None
    include: Sequence[str] | None
    workload: str | None
    knobs: Sequence[str] | None

    @property
    def is_meant(self) -> bool:
        """Whether it is one, and no rung."""
        from labtools.problem.launched import KERNEL_FILES

        return self._is_told or self.name.endswith(KERNEL_FILES)

    @property
    def _is_told(self) -> bool:
        told = (self.entry, self.grid, self.block, self.args, self.defines, self.include)
        return any(told) or self.smem != "0"

    def read(self) -> tuple[Rung, LaunchProblem]:
        """The kernel as a rung, and what it is launched with."""
        from labtools.predict.launched import constant_launch, only_kernel, signatures
        from labtools.problem import LabError
        from labtools.problem.launched import (
            KERNEL_FILES,
            OF_TRITON,
            WITHOUT_SOURCE,
            AskedKernel,
            AskedLaunch,
            read_arguments,
            read_launches,
        )
        from labtools.problem.text import given_path, is_file

        with typed():
            path = given_path(self.name)
            if not is_file(path) or path.suffix not in (*KERNEL_FILES, OF_TRITON):
                what = f"{self.name} is no kernel that a launch can be told of."
                why = (
                    f"it is no file of {', '.join(KERNEL_FILES[:-1])}, and no .toml that names one"
                )
                raise LabError(what, f"{why} and its launches", "a rung needs no launch")
            if self.workload is not None or self.knobs:
                what = f"{path.name} has no workload and no knobs."
                raise LabError(what, "it is told by its launch alone", "--arg and --define")
            if path.suffix in WITHOUT_SOURCE and (self.defines or self.include):
                what = f"{path.name} is compiled already."
                why = "a definition and a header change nothing in it"
                raise LabError(what, why, "no --define and no --include")
            if path.suffix == ".toml":
                if self._is_told:
                    what = f"{path.name} says how its kernel is launched, and so does an option."
                    raise LabError(what, "nobody knows which is meant", "one of the two")
                return read_launches(path).rung()
            of_triton = path.suffix == OF_TRITON
            if of_triton and (self.block or self.smem != "0" or self.include):
                what = f"{path.name} is a file of Triton's, which says block and shared memory."
                raise LabError(
                    what, "it takes --define num_warps=8", "no --block, --smem, --include"
                )
            entry, grid, block, smem, read = self.entry, self.grid, self.block, self.smem, None
            if path.suffix in (".cu", ".cuh") and not (grid and block):
                read = constant_launch(path, entry)
            if read is not None:
                entry, grid, block = entry or read.entry, grid or read.grid, block or read.block
                smem = smem if smem != "0" else read.smem
            said = {"grid": grid, "block": of_triton or block, "arg": self.args, "smem": smem}
            if missing := [f"--{name}" for name, one in said.items() if not one]:
                why = f"its kernels are {'; '.join(signatures(path).values()) or 'none'}"
                raise LabError(
                    f"How {path.name} is launched is not said: {', '.join(missing)}.",
                    f"{why}; {read.said}, which is not constant" if read else why,
                    f"labtools adopt {self.name} writes down what its parameters say",
                )
            defines = [one.partition("=") for one in self.defines or ()]
            launch = AskedLaunch(entry or only_kernel(path), grid or "", block or "", smem)
            given = tuple((name, value or "1") for name, _, value in defines)
            args, folders = read_arguments(self.args or ()), self.include or ()
            if absent := [one for one in folders if not given_path(one).is_dir()]:
                why = "headers are looked up in a folder"
                raise LabError(f"{absent[0]} is no folder.", why, "another --include")
            include = tuple(map(given_path, folders))
            return AskedKernel(
                path, (launch,), args, (), given, include, read.said if read else ""
            ).rung()


def either_asked(
    name: str, workload: str | None, knobs: Sequence[str] | None, **launch: Any
) -> RungAsked | LaunchAsked:
    """What was typed of a rung, or of a kernel whose launch was typed; ``launch`` is the rest of
    `LaunchAsked`."""
    told = LaunchAsked(name, workload=workload, knobs=knobs, **launch)
    return told if told.is_meant else RungAsked(name, workload, knobs)


def check_supported(
    target: Rung | Baseline, workload: Problem, knobs: Mapping[str, int] | None = None
) -> None:
    """Refuse a workload that the target cannot run, before anything is compiled.

    Also calls a rung's functions once, so that a mistake in them is told as one.
    """
    from labtools.problem import KernelError, LabError, Rung

    with typed():
        if reason := target.supports(workload):
            raise LabError(f"{target.id} cannot run {workload}.", reason, "choose another workload")
    if isinstance(target, Rung):
        from labtools.predict import DEFAULT_GPU, load_gpu
        from labtools.toolchain import CompilerMissing

        try:
            limits = load_gpu(DEFAULT_GPU).limits
            target.launches(workload, limits, knobs)
            target.defines(workload, limits, knobs)
            target.scheme(workload, knobs)
        except CompilerMissing:
            raise
        except LabError as error:
            raise KernelError(error.what, error.why, error.still_works) from error
