"""The forecast of any kernel by its launch: a file of CUDA C++ or of machine code."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from labtools.problem import LabError, Launch, Limits, Rung
from labtools.problem.launched import AskedKernel, AskedLaunch, LaunchProblem, read_arguments
from labtools.problem.rung import is_arch_since
from labtools.problem.text import read_given
from labtools.toolchain.compiler import compile_rung
from labtools.toolchain.cubin import Cubin, no_kernel, parameter_bytes, read_cubin, refuse_launch
from labtools.toolchain.listings import MachineCode, code_of_cubin, machine_code
from labtools.toolchain.options import split_arch
from labtools.toolchain.sources import kernels_in, normalise_source

from .forecasting import forecast
from .result import Forecast
from .sheets import Gpu, load_gpu


def forecast_launch(
    source: str | Path,
    entry: str,
    grid: str | int,
    block: str | int,
    arguments: Sequence[str],
    gpu: Gpu | str = "h200",
    *,
    smem: str | int = 0,
    defines: Mapping[str, str] | None = None,
) -> Forecast:
    """How long one launch of any kernel takes; nothing is run, and no GPU is needed.

    Args:
        source: a ``.cu`` file, or a ``.cubin`` for the architecture of the GPU.
        entry: the kernel as C++ names it, such as ``softmax<float, 4>``; of a ``.cubin`` its
            name in the file, or its plain name where one kernel has it.
        grid: blocks in x, y, z, and ``block`` its threads, as ``"cdiv(n,256),8"`` or as a number.
        arguments: in the kernel's order, as `labtools.problem.launched.read_arguments` has them.
        smem: bytes of dynamic shared memory of a block.
        defines: preprocessor definitions of a ``.cu``.

    Raises CompileError: it does not compile. LabError: the launch does not fit the kernel.
    """
    launch = AskedLaunch(entry, str(grid), str(block), str(smem))
    given = tuple((defines or {}).items())
    asked = AskedKernel(Path(source), (launch,), read_arguments(arguments), defines=given)
    return forecast_asked(asked, gpu)


def forecast_asked(asked: AskedKernel, gpu: Gpu | str = "h200") -> Forecast:
    """As `forecast_launch`, of several launches, such as `read_launches` reads."""
    sheet = load_gpu(gpu) if isinstance(gpu, str) else gpu
    rung, problem = asked.rung()
    rung, code = launched_code(rung, problem, sheet.limits)
    return forecast(rung, problem, sheet, code=code)


def launched_code(rung: Rung, problem: LaunchProblem, limits: Limits) -> tuple[Rung, MachineCode]:
    """The machine code of what `AskedKernel.rung` made, and the rung with its kernels' names in it.

    Raises LabError: a launch does not fit the kernel's parameters, or a GPU refuses it.
    """
    launches, compiled = rung.launches(problem, limits), rung.source.suffix == ".cubin"
    if compiled:
        cubin = read_cubin(rung.source)
        if not _runs(cubin.arch, limits.arch):
            what = f"{cubin.name} is for {cubin.arch} and does not run on {limits.arch}."
            raise LabError(what, "machine code is that of one GPU", "another --gpu, or the source")
        named = [replace(one, entry=_symbol(cubin, one.entry)) for one in launches]
        rung = replace(rung, launch=lambda problem, limits, knobs: named)
        launches = named
    else:
        cubin = compile_rung(rung, problem, limits)
    for launch in launches:
        _check_arguments(rung, launch, cubin)
        refuse_launch(cubin, launch, limits)
    return rung, code_of_cubin(cubin) if compiled else machine_code(rung, problem, limits)


def _runs(arch: str, on: str) -> bool:
    """Whether machine code runs on a GPU: on one of its own generation that is as new."""
    return is_arch_since(on, arch) and split_arch(on)[0] == split_arch(arch)[0]


def _symbol(cubin: Cubin, name: str) -> str:
    """What a file calls a kernel: the name itself, or the only one that C++ makes of it."""
    plain = name.rpartition("::")[2]
    mangled = [one for one in cubin.entries if f"{len(plain)}{plain}" in one]
    found = [name] if name in cubin.entries else mangled
    if len(found) != 1:
        raise no_kernel(cubin.name, name, sorted(found or cubin.entries))
    return found[0]


def _check_arguments(rung: Rung, launch: Launch, cubin: Cubin) -> None:
    entry = launch.entry
    cubin.resources_of(entry)
    wanted = parameter_bytes(cubin.image, cubin.symbol_of(entry))
    given = [one.nbytes if isinstance(one, np.generic) else 8 for one in launch.args]
    if given != wanted:
        known = {one.partition("<")[0]: said for one, said in signatures(rung.source).items()}
        takes = known.get(entry.partition("<")[0], entry)
        raise LabError(
            f"The arguments do not fit {takes}, which takes {_say(wanted)} bytes.",
            f"those given have {_say(given)} bytes, a buffer's address 8",
            "one --arg for each parameter, in order; a number has the type of its parameter",
        )


def _say(sizes: Sequence[float]) -> str:
    return ", ".join(f"{size:g}" for size in sizes) or "no"


def signatures(source: Path) -> dict[str, str]:
    """The kernels of a file by name, each with its parameters; of a ``.cubin``, which has no types,
    with their bytes."""
    if source.suffix == ".cubin":
        cubin = read_cubin(source)
        sizes = {name: parameter_bytes(cubin.image, name) for name in cubin.entries}
        return {name: f"{name} of {_say(of)} bytes" for name, of in sizes.items()}
    text = normalise_source(read_given(source))
    found = {}
    for name in kernels_in(text):
        plain = re.escape(name.partition("<")[0].rpartition("::")[2])
        told = re.search(rf"\b__global__\b[^;{{}}]*?\b({plain} ?\([^{{;]*\))", text)
        found[name] = re.sub(r"([*&])(?=\w)|(,)", r"\1\2 ", told[1]) if told else name
    return found


def only_kernel(source: Path) -> str:
    """The kernel of a file that has one. Raises LabError: it has several, a template, or none."""
    names = list(signatures(source))
    if len(names) != 1 or "<" in names[0]:
        why = f"it has {', '.join(names)}" if names else "it has none"
        raise LabError(f"Which kernel of {source.name} is launched?", why, "--entry NAME says it")
    return names[0]
