"""The forecast of any kernel by its launch: a file of CUDA C++ or of machine code."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from labtools.problem import KernelError, LabError, Launch, Limits, Rung
from labtools.problem.launched import AskedKernel, AskedLaunch, LaunchProblem, read_arguments
from labtools.problem.rung import is_arch_since
from labtools.problem.text import read_given
from labtools.toolchain.cache import cache_dir
from labtools.toolchain.compiler import compile_rung, expanded_text
from labtools.toolchain.cubin import Cubin, no_kernel, parameter_bytes, read_cubin, refuse_launch
from labtools.toolchain.errors import CompileError
from labtools.toolchain.listings import MachineCode, code_of_cubin, machine_code
from labtools.toolchain.nvcc import MOST_ABSENT, absent_header, add_header, compile_with_nvcc
from labtools.toolchain.options import split_arch
from labtools.toolchain.sources import device_part, kernels_in, normalise_source, signature_in

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
    launches, cubin = rung.launches(problem, limits), None
    if rung.source.suffix == ".cubin":
        cubin = read_cubin(rung.source)
        if not _runs(cubin.arch, limits.arch):
            what = f"{cubin.name} is for {cubin.arch} and does not run on {limits.arch}."
            raise LabError(what, "machine code is that of one GPU", "another --gpu, or the source")
    else:
        entries = [one.entry for one in launches]
        rung = _without_absent_headers(rung, problem, limits)
        try:
            own = compile_rung(rung, problem, limits)
        except KernelError as error:
            defines, why = rung.defines(problem, limits), error
            try:
                cubin = compile_with_nvcc(rung.source, limits.arch, defines, entries)
            except KernelError as other:
                why = other
            if cubin is None:
                found = _device_part(rung, problem, limits)
                if found is None:
                    why.still_works = "where nvcc is found it takes host code too; the .cubin that "
                    why.still_works += f"nvcc -cubin -arch={limits.arch} makes is forecast as well"
                    raise why from error
                rung = found
                own = compile_rung(rung, problem, limits)
    if cubin is not None:
        launches = [replace(one, entry=_symbol(cubin, one.entry)) for one in launches]
        named = launches
        rung = replace(rung, launch=lambda problem, limits, knobs: named)
    for launch in launches:
        _check_arguments(rung, launch, cubin or own)
        refuse_launch(cubin or own, launch, limits)
    return rung, code_of_cubin(cubin) if cubin else machine_code(rung, problem, limits)


@dataclass(frozen=True)
class _WithHeaders(Rung):
    """A kernel of which some headers are empty, those of a folder."""

    empty: Path = Path()

    @property
    def include_dirs(self) -> tuple[Path, ...]:
        """The usual folders, then that one."""
        return (*super().include_dirs, self.empty)


def _without_absent_headers(rung: Rung, problem: LaunchProblem, limits: Limits) -> Rung:
    """The kernel with headers that are not here, such as those of cuBLAS, taken as empty: what
    launches a kernel needs them, and the kernel seldom does."""
    empty = cache_dir("headers") or Path(tempfile.mkdtemp())
    fields = {one.name: getattr(rung, one.name) for one in dataclasses.fields(rung)}
    for _ in range(MOST_ABSENT):
        try:
            compile_rung(rung, problem, limits)
        except CompileError as error:
            absent = absent_header(error.log, rung.source_text)
            if absent is None or not (add_header(empty, absent) or type(rung) is Rung):
                break
            rung = _WithHeaders(**fields, empty=empty)
        except LabError:
            break
        else:
            break
    return rung


def _device_part(rung: Rung, problem: LaunchProblem, limits: Limits) -> Rung | None:
    """The kernel without host code, in its file alone or in its own headers too, if it compiles."""
    for text in (rung.source_text, expanded_text(rung)):
        part = replace(rung, read_text=device_part(text))
        part = _without_absent_headers(part, problem, limits)
        with contextlib.suppress(KernelError):
            compile_rung(part, problem, limits)
            return part
    return None


def _runs(arch: str, on: str) -> bool:
    """Whether machine code runs on a GPU: on one of its own generation that is as new."""
    return is_arch_since(on, arch) and split_arch(on)[0] == split_arch(arch)[0]


def _symbol(cubin: Cubin, name: str) -> str:
    """What a file calls a kernel: the name itself, or the only one that C++ makes of it."""
    if name in cubin.entries:
        return name
    plain = name.partition("<")[0].rpartition("::")[2].strip()
    found = [one for one in cubin.entries if f"{len(plain)}{plain}" in one]
    named = {one: _plain_name(_demangled(one)) for one in found}
    if "<" in name:
        wanted = _plain_name(name)
        found = [one for one in found if named[one].endswith(wanted)]
    if len(found) != 1:
        raise no_kernel(cubin.name, name, sorted(named.values()) or sorted(cubin.entries))
    return found[0]


_ALIASES = {
    **{"uint8_t": "unsigned char", "int8_t": "signed char", "uint16_t": "unsigned short"},
    **{
        "int16_t": "short",
        "uint32_t": "unsigned int",
        "int32_t": "int",
        "uint64_t": "unsigned long",
    },
    **{"int64_t": "long", "size_t": "unsigned long", "half": "__half"},
}


def _plain_name(name: str) -> str:
    """A kernel of C++ with its template's arguments in one form: no blanks, no suffix of a number,
    types by their own names."""
    name = re.sub(
        r"\b(\d+)[uUlL]+\b", r"\1", re.sub(r"\((?:unsigned|long|[\w:]+)\)(?=\d)", "", name)
    )
    name = re.sub(r"\w+", lambda one: _ALIASES.get(one[0], one[0]), name)
    return re.sub(r"\s+", "", name)


def _demangled(symbol: str) -> str:
    """A kernel as C++ names it, without its parameters."""
    tool = shutil.which("c++filt") or shutil.which("llvm-cxxfilt")
    if tool is None:
        return symbol
    said = subprocess.run([tool, "-p", symbol], capture_output=True, text=True, check=False)
    return said.stdout.strip().removeprefix("void ")


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
            "one --arg for each parameter, in order; a number has the type of its parameter, and a "
            "structure by value cannot be told",
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
    try:
        text = normalise_source(read_given(source))
    except (OSError, ValueError) as error:
        raise LabError(
            f"{source} cannot be read.", f"{error}", "a source is text in UTF-8"
        ) from error
    return {name: signature_in(text, name) or name for name in kernels_in(text)}


def only_kernel(source: Path) -> str:
    """The kernel of a file that has one. Raises LabError: it has several, a template, or none."""
    names = list(signatures(source))
    if len(names) != 1 or "<" in names[0]:
        why = f"it has {', '.join(names)}" if names else "it has none"
        raise LabError(f"Which kernel of {source.name} is launched?", why, "--entry NAME says it")
    return names[0]
