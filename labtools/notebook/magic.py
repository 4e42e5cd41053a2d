"""The ``%%cuda`` cell: a kernel written on the page is the kernel that runs."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from labtools.predict import DEFAULT_GPU, limits_of, load_gpu
from labtools.problem import HEADLINE, LabError, Rung, UnknownRung, load_rung, parse_problem
from labtools.problem.text import mend_text
from labtools.toolchain.compiler import KERNEL_LIMIT_S, CompilerName, compile_cubin
from labtools.toolchain.cubin import Cubin, Resources
from labtools.toolchain.device import DeviceInfo, device_query
from labtools.toolchain.errors import CompileError
from labtools.toolchain.live import can_launch_here, compile_raw
from labtools.toolchain.options import DEFAULT_ARCH

from .solution import run_solution

USAGE = (
    "%%cuda NAME [--arch sm_90] [--knob name=value] [--define NAME=value] "
    "[--workload 8,32,8,4096,128]"
)


@dataclass(frozen=True)
class CellKernel:
    """What the page last said about one name."""

    name: str  # the rung's id, or a free name
    source: str  # the cell's text, below its ``%%cuda`` line
    cubin: Cubin | None  # its machine code, or None when it does not compile
    kernels: dict[str, Any]  # live kernels by entry, empty without a GPU


class PageCells:
    """What the ``%%cuda`` cells of one page hold, by name."""

    def __init__(self) -> None:
        self._kernels: dict[str, CellKernel] = {}

    def rung(self, name: str, launch: Callable[..., Any] | None = None) -> Rung:
        """See `page_rung`."""
        rung = load_rung(name)
        cell = self._kernels.get(rung.id)
        if cell is not None:
            rung = rung.with_source(cell.source)
        return rung if launch is None else rung.with_launch(launch)

    def kernel(self, name: str) -> CellKernel:
        """What the ``%%cuda`` cell of that name holds. Raises LabError: no such cell has run."""
        key = _rung_or_none(name)
        cell = self._kernels.get(key.id if key else name)
        if cell is None:
            raise LabError(
                f"There is no %%cuda cell called {name} yet.",
                f"cells that ran: {', '.join(sorted(self._kernels)) or 'none'}",
                "run the cell first",
            )
        return cell

    def forget(self) -> None:
        """Forget every cell."""
        self._kernels.clear()

    def run(self, line: str, cell: str) -> CellKernel:
        """See `run_cuda_cell`."""
        chosen, cell = _parse_line(line), mend_text(cell)
        rung = _rung_or_none(chosen.name)
        name = rung.id if rung else chosen.name
        self._kernels[name] = CellKernel(name, cell, None, {})
        device = device_query()
        arch = chosen.arch or (device.arch if device else DEFAULT_ARCH)
        defines, include_dirs = _definitions(chosen, rung, device)
        # CuPy compiles for the GPU's architecture without a suffix, which some kernels need.
        target = rung.target(arch) if rung else arch
        live = device is not None and device.arch == target and can_launch_here()
        made = _compile_cell(name, cell, target, defines, include_dirs, live)
        self._kernels[name] = made
        assert made.cubin is not None
        where = f"for {device.name}, live" if live and device else "no GPU used"
        for entry, resources in made.cubin.entries.items():
            print(describe_resources(entry, resources, made.cubin, where))
        if rung is None:
            print(f"{name} is no rung of the ladder: compiled as a kernel of its own.")
        return made


PAGE = PageCells()
"""The cells of this process's page: a notebook's kernel runs one page."""


def page_rung(name: str, launch: Callable[..., Any] | None = None) -> Rung:
    """The rung as the page has it: its cell's source and, if given, its launch.

    Args:
        name: a rung's id; without a ``%%cuda`` cell of that name the shipped source is used.
    """
    return PAGE.rung(name, launch)


def run_cuda_cell(line: str, cell: str) -> CellKernel:
    """What a ``%%cuda`` cell does: keep the source, compile it, print what it costs.

    Raises:
        CompileError: it does not compile. The cell's text is kept all the same, so that nothing
            older runs in its place.
        LabError: the line is not understood.
    """
    return PAGE.run(line, cell)


def _definitions(
    chosen: argparse.Namespace, rung: Rung | None, device: DeviceInfo | None
) -> tuple[dict[str, str], tuple[Path, ...]]:
    """Preprocessor values, and folders of headers."""
    given = dict(chosen.define)
    if rung is not None:
        limits = limits_of(device) if device else load_gpu(DEFAULT_GPU).limits
        own = rung.defines(chosen.workload, limits, dict(chosen.knob))
        return {**own, **given}, rung.include_dirs
    if chosen.knob:
        raise LabError(
            f"{chosen.name} has no knobs.",
            "only a rung has knobs, and there is no rung of that name",
            "give preprocessor values with --define NAME=value",
        )
    return given, ()


def _compile_cell(
    name: str,
    source: str,
    arch: str,
    defines: dict[str, str],
    include_dirs: tuple[Path, ...],
    live: bool,
) -> CellKernel:
    compiler: CompilerName = "cupy" if live else "auto"
    label = f"{name} (cell)"
    kernels = {}
    try:
        cubin = compile_cubin(source, arch, defines, label, include_dirs, compiler, KERNEL_LIMIT_S)
        if live:
            for entry in cubin.entries:
                kernels[entry] = compile_raw(source, defines, entry, label, include_dirs)
    except CompileError as error:
        if error.line is not None and error.file == label:
            error.why = f"{error.why} Lines count from the one below %%cuda.".strip()
        raise
    return CellKernel(name, source, cubin, kernels)


def describe_resources(entry: str, resources: Resources, cubin: Cubin, where: str) -> str:
    """One short line: registers, shared memory, spills, and where it was compiled."""
    spilled = resources.spill_store_bytes + resources.spill_load_bytes
    spills = f"{spilled} bytes of spills" if spilled else "no spills"
    bound = f", at most {resources.max_threads} threads a block" if resources.max_threads else ""
    return (
        f"{entry}: {resources.registers} registers a thread, {resources.shared_bytes} bytes of "
        f"static shared memory, {spills}{bound} "
        f"(computed by NVRTC {cubin.nvrtc_version} for {cubin.arch}; {where})"
    )


def load_ipython_extension(shell: Any) -> None:
    """Give an IPython shell the ``%%cuda`` and the ``%%solution`` cell."""

    def solution(line: str, cell: str) -> None:
        run_solution(shell, line, cell)

    def cuda(line: str, cell: str) -> None:
        run_cuda_cell(line, cell)

    cuda.__doc__ = f"Compile the cell's CUDA C++ and keep it for this page.\n\n{USAGE}"
    solution.__doc__ = "Run the cell when its reader asks for it.\n\n%%solution [show]"
    shell.register_magic_function(cuda, magic_kind="cell", magic_name="cuda")
    shell.register_magic_function(solution, magic_kind="cell", magic_name="solution")


# ------------------------------------------------------------------------------- the line


class _LineParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise LabError(f"This %%cuda line is not understood: {message}.", "", f"write {USAGE}")


def _pair(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not name=value")
    return name, value


def _knob(text: str) -> tuple[str, int]:
    name, value = _pair(text)
    try:
        return name, int(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: a knob's value is a whole number") from None


def _parse_line(line: str) -> argparse.Namespace:
    parser = _LineParser(prog="%%cuda", add_help=False)
    parser.add_argument("name")
    parser.add_argument("--arch")
    parser.add_argument("--knob", action="append", type=_knob, default=[])
    parser.add_argument("--define", action="append", type=_pair, default=[])
    parser.add_argument("--workload", type=parse_problem, default=HEADLINE)
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise LabError(
            f"This %%cuda line is not understood: {error}.", "", f"write {USAGE}"
        ) from None
    return parser.parse_args(words)


def _rung_or_none(name: str) -> Rung | None:
    try:
        return load_rung(name)
    except UnknownRung:
        return None
