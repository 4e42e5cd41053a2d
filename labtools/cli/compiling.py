"""``labtools compile``: what the compiler makes of a rung, for any architecture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from labtools.predict import gpu_or_default
from labtools.predict.launched import launched_cubin
from labtools.problem import LabError, Limits, Problem, Rung
from labtools.problem.launched import LaunchProblem
from labtools.problem.rung import say_knobs
from labtools.toolchain import CompileError, CompilerMissing, compile_rung, disassemble
from labtools.toolchain.cubin import Cubin, Resources, say_compiler
from labtools.toolchain.options import check_arch

from .given import LaunchAsked, RungAsked
from .outcome import Answer, UsageProblem, print_table, typed

if TYPE_CHECKING:
    from rich.console import Console

    from labtools.toolchain.progress import Progress


@dataclass(frozen=True, kw_only=True)
class CompiledKernel(Resources):
    """One kernel for one architecture: what it asks of an SM, and its launch."""

    arch: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_smem_bytes: int

    def cells(self) -> list[str]:
        """Its row of the table."""
        numbers = (
            self.registers,
            self.shared_bytes + self.dynamic_smem_bytes,
            self.spill_store_bytes,
            self.spill_load_bytes,
            self.local_bytes,
            self.block[0] * self.block[1] * self.block[2],
        )
        return [self.arch, self.entry, *map(str, numbers)]


@dataclass(frozen=True)
class Compiled(Answer):
    """The kernels that a rung launches, compiled."""

    rung: str
    workload: Problem
    knobs: Mapping[str, int]
    nvrtc_version: str
    limits: str
    origin: str
    kernels: tuple[CompiledKernel, ...]
    sass: Mapping[str, str] | None  # where it was asked for

    def to_dict(self) -> dict[str, Any]:
        """What the JSON holds."""
        names = [part.name for part in fields(self) if part.name != "sass" or self.sass]
        return {name: getattr(self, name) for name in names}

    def show(self, console: Console) -> None:
        """A table of the kernels, then their machine code where it was asked for."""
        knobs = say_knobs(self.knobs, " ")
        made_by = say_compiler(self.nvrtc_version)
        by = f"by {made_by}" if self.nvrtc_version else "of the machine code"
        console.print(f"{self.rung}  {knobs}  computed {by}, launched as on {self.limits}")
        if isinstance(self.workload, LaunchProblem) and self.workload.remark:
            console.print(self.workload.remark)
        numbers = ("registers", "shared B", "spill stores B", "spill loads B", "stack B", "threads")
        rows = [kernel.cells() for kernel in self.kernels]
        print_table(console, ("arch", "kernel", *numbers), rows, right=numbers)
        for title, listing in (self.sass or {}).items():
            console.print(f"\n{title}\n{listing}")


def compile_for(
    asked: RungAsked | LaunchAsked,
    arches: str | None,
    gpu_name: str | None,
    with_sass: bool,
    progress: Progress,
) -> Compiled:
    """Compile a rung for each architecture, or for that of the GPU, launched as on this one; only
    the kernels that it launches are listed."""
    with typed():
        gpu = gpu_or_default(gpu_name)
    limits, knobs = gpu.limits, dict[str, int]()
    workload: Problem
    if isinstance(asked, LaunchAsked):
        rung, workload = asked.read()
    else:
        rung, workload, knobs = asked.read(derived=True, gpu_name=gpu_name)
    kernels: list[CompiledKernel] = []
    listings: dict[str, str] = {}
    nvrtc = ""
    for arch in _read_arches(gpu.arch if arches is None else arches):
        progress(f"compiling {rung.id} for {arch}")
        rung, cubin = _compile(rung, workload, limits, knobs, arch)
        nvrtc = cubin.nvrtc_version
        for launch in rung.launches(workload, limits, knobs):
            kernels.append(
                CompiledKernel(
                    **vars(cubin.resources_of(launch.entry)),
                    arch=arch,
                    grid=launch.grid,
                    block=launch.block,
                    dynamic_smem_bytes=launch.smem_bytes,
                )
            )
            if with_sass:
                listings[f"{arch} {launch.entry}"] = disassemble(cubin, launch.entry)
    sass = listings if with_sass else None
    made = tuple(kernels)
    return Compiled(rung.id, workload, knobs, nvrtc, limits.name, "computed", made, sass)


def _read_arches(text: str) -> list[str]:
    wanted = [arch.strip() for arch in text.split(",")]
    with typed():
        if not all(wanted):
            why = "each part between commas is an architecture"
            raise LabError(f"--arch {text!r} has an empty part.", why, "--arch sm_80,sm_90")
        return [check_arch(arch) for arch in wanted]


def _compile(
    rung: Rung, workload: Problem, limits: Limits, knobs: Mapping[str, int], arch: str
) -> tuple[Rung, Cubin]:
    try:
        if isinstance(workload, LaunchProblem):
            rung, cubin, _ = launched_cubin(rung, workload, replace(limits, arch=arch))
            return rung, cubin
        return rung, compile_rung(rung, workload, limits, knobs, arch)
    except (CompileError, CompilerMissing):
        raise
    except LabError as error:  # this compiler does not know the architecture
        raise UsageProblem(error) from error
