"""The ``%%cuda`` cell: its kernel is the one that runs; the ``%%solution`` cell waits."""

from __future__ import annotations

import argparse
import dataclasses
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
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

from .exercises import exercise_files, load_exercise
from .reader import reader_present

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


class PageCells(dict[str, CellKernel]):
    """What the ``%%cuda`` cells of one page hold, by name."""

    def kernel(self, name: str) -> CellKernel:
        """What the cell of that name, or of that rung, holds. Raises LabError: none has run."""
        rung = _rung_or_none(name)
        key = rung.id if rung else name
        if key not in self:
            what = f"There is no %%cuda cell called {name} yet."
            raise LabError(what, f"cells that ran: {', '.join(sorted(self)) or 'none'}")
        return self[key]


PAGE = PageCells()
"""The cells of this process's page: a notebook's kernel runs one page."""


def page_rung(name: str, launch: Callable[..., Any] | None = None) -> Rung:
    """The rung as the page has it: its cell's source, the shipped one without a ``%%cuda`` cell of
    that name, and the launch given."""
    rung = load_rung(name)
    if rung.id in PAGE:
        rung = rung.with_source(PAGE[rung.id].source)
    return rung if launch is None else rung.with_launch(launch)


def cell_rung(name: str, like: Rung, launch: Callable[..., Any], *, text: str = "") -> Rung:
    """A kernel of the page's own, under its own name, for the operation of the rung ``like``: what
    the cell of that name holds, or the ``text`` given, with a launch.

    Raises LabError: no such cell has run.
    """
    own = like.with_source(text or PAGE.kernel(name).source).with_launch(launch)
    return dataclasses.replace(own, id=name)


def run_cuda_cell(line: str, cell: str) -> CellKernel:
    """What a ``%%cuda`` cell does: keep the source, compile it, print what it costs.

    Raises CompileError: it does not compile; the text is kept all the same, so that nothing older
    runs in its place. LabError: the line is not understood.
    """
    chosen, cell = _parse_line(line), mend_text(cell)
    to_write = chosen.name in exercise_files()
    rung = load_exercise(chosen.name).rung_of(cell) if to_write else _rung_or_none(chosen.name)
    text = rung.source_text if to_write and rung else cell
    name = rung.id if rung else chosen.name
    PAGE[name] = CellKernel(name, cell, None, {})
    device = device_query()
    arch = chosen.arch or (device.arch if device else DEFAULT_ARCH)
    defines, include_dirs = _definitions(chosen, rung, device)
    # CuPy compiles for the GPU's architecture without a suffix, which some kernels need.
    target = rung.target(arch) if rung else arch
    live = device is not None and device.arch == target and can_launch_here()
    cubin, kernels = _compile_cell(f"{name} (cell)", text, target, defines, include_dirs, live)
    PAGE[name] = made = CellKernel(name, cell, cubin, kernels)
    where = f"for {device.name}, live" if live and device else "no GPU used"
    for entry, resources in cubin.entries.items():
        print(describe_resources(entry, resources, cubin, where))
    if rung is None:
        print(f"{name} is no rung of the ladder: compiled as a kernel of its own.")
    return made


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
        why = "only a rung has knobs, and there is no rung of that name"
        still = "give preprocessor values with --define NAME=value"
        raise LabError(f"{chosen.name} has no knobs.", why, still)
    return given, ()


def _compile_cell(
    label: str,
    source: str,
    arch: str,
    defines: dict[str, str],
    include_dirs: tuple[Path, ...],
    live: bool,
) -> tuple[Cubin, dict[str, Any]]:
    compiler: CompilerName = "cupy" if live else "auto"
    try:
        cubin = compile_cubin(source, arch, defines, label, include_dirs, compiler, KERNEL_LIMIT_S)
        raw = partial(compile_raw, source, defines, name=label, include_dirs=include_dirs)
        return cubin, {entry: raw(entry) for entry in (cubin.entries if live else ())}
    except CompileError as error:
        if error.line is not None and error.file == label:
            error.why = f"{error.why} Lines count from the one below %%cuda.".strip()
        raise


def describe_resources(entry: str, resources: Resources, cubin: Cubin, where: str) -> str:
    """One short line: registers, shared memory, spills, and where it was compiled."""
    spilled = resources.spill_store_bytes + resources.spill_load_bytes
    spills = f"{spilled} bytes of spills" if spilled else "no spills"
    bound = f", at most {resources.max_threads} threads per block" if resources.max_threads else ""
    return (
        f"{entry}: {resources.registers} registers per thread, {resources.shared_bytes} bytes of "
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


# ------------------------------------------------------------------------------- a solution


def run_solution(shell: Any, line: str, cell: str) -> None:
    """What a ``%%solution`` cell does: with a reader here, offer the solution and run nothing,
    unless its ``line`` is ``show``, for a frontend without widgets.

    Raises LabError: the line is not understood.
    """
    word = line.strip()
    if word not in ("", "show"):
        what = f"This %%solution line is not understood: {word}."
        raise LabError(what, "it is empty, or the word show")
    if word or not reader_present():
        shell.run_cell(cell).raise_error()
    else:
        _offer(shell, cell)


def _offer(shell: Any, cell: str) -> None:
    import ipywidgets as widgets
    from IPython.display import display

    layout = widgets.Layout(width="auto")
    button = widgets.Button(description="Show the solution", layout=layout)
    button.tooltip = "runs the solution in this cell"
    shown = widgets.Output()

    def show(_: Any) -> None:
        button.disabled = True
        shown.clear_output()
        with shown:
            shell.run_cell(cell)
        button.disabled = False
        button.description = "Run the solution again"

    button.on_click(show)
    box = widgets.VBox([button, shown])
    box.add_class("lt-solution")
    display(box)


# ------------------------------------------------------------------------------- the line


class _LineParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise LabError(f"This %%cuda line is not understood: {message}.", "", f"write {USAGE}")


def _define(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not name=value")
    return name, value


def _knob(text: str) -> tuple[str, int]:
    name, value = _define(text)
    if not re.fullmatch(r"[+-]?\d+", value):
        raise argparse.ArgumentTypeError(f"{text!r}: a knob's value is a whole number")
    return name, int(value)


def _parse_line(line: str) -> argparse.Namespace:
    parser = _LineParser(prog="%%cuda", add_help=False)
    parser.add_argument("name")
    parser.add_argument("--arch")
    parser.add_argument("--knob", action="append", type=_knob, default=[])
    parser.add_argument("--define", action="append", type=_define, default=[])
    parser.add_argument("--workload", type=parse_problem, default=HEADLINE)
    try:
        return parser.parse_args(shlex.split(line))
    except ValueError as error:  # a quotation that does not end
        parser.error(str(error))


def _rung_or_none(name: str) -> Rung | None:
    try:
        return load_rung(name)
    except UnknownRung:
        return None
