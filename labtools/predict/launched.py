"""The forecast of any kernel by its launch: a file of CUDA C++ or of machine code."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from labtools.problem import KernelError, LabError, Launch, Limits, Rung
from labtools.problem.launched import (
    OF_TRITON,
    WITHOUT_SOURCE,
    AskedKernel,
    AskedLaunch,
    LaunchProblem,
    read_arguments,
)
from labtools.problem.rung import Struct, argument_bytes, is_arch_since
from labtools.problem.text import read_given
from labtools.toolchain.compiler import compile_rung
from labtools.toolchain.cubin import (
    Cubin,
    cubin_of,
    named_by,
    no_kernel,
    parameter_bytes,
    parameter_places,
    read_cubin,
    refuse_launch,
)
from labtools.toolchain.errors import DisassemblerMissing
from labtools.toolchain.fatbin import fat_images
from labtools.toolchain.host_launch import HostLaunch, launch_of
from labtools.toolchain.listings import MachineCode, code_of_cubin, machine_code, with_spills
from labtools.toolchain.names import demangled, find_symbol, last_name
from labtools.toolchain.options import split_arch
from labtools.toolchain.ptx import assemble_ptx, ptx_parameter_bytes
from labtools.toolchain.sources import kernels_in, normalise_source, signature_in
from labtools.toolchain.triton_code import is_of_triton, triton_kernels

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
    include: Sequence[str | Path] = (),
) -> Forecast:
    """How long one launch of any kernel takes; nothing is run, and no GPU is needed.

    Args:
        source: a ``.cu`` or ``.ptx`` file, a ``.cubin``, ``.so`` or ``.o`` with machine code for
            the GPU, or PTX that is older, or a ``.py`` with a Triton kernel.
        entry: the kernel as C++ names it, such as ``softmax<float, 4>``; of a file without source
            its name in the file too, or its plain name where one kernel has it.
        grid: blocks in x, y, z, and ``block`` its threads, as ``"cdiv(n,256),8"`` or as a number;
            of a Triton kernel ``block`` is empty.
        arguments: in the kernel's order, as `labtools.problem.launched.read_arguments` has them.
        smem: bytes of dynamic shared memory of a block.
        defines: preprocessor definitions of a ``.cu``, or the constants of a Triton kernel and
            options such as ``num_warps``; ``include`` are folders of headers.

    Raises CompileError: it does not compile. LabError: the launch does not fit the kernel.
    """
    launch = AskedLaunch(entry, str(grid), str(block), str(smem))
    given = tuple((defines or {}).items())
    args, folders = read_arguments(arguments), tuple(map(Path, include))
    asked = AskedKernel(Path(source), (launch,), args, defines=given, include=folders)
    return forecast_asked(asked, gpu)


def forecast_asked(asked: AskedKernel, gpu: Gpu | str = "h200") -> Forecast:
    """As `forecast_launch`, of several launches, such as `read_launches` reads."""
    sheet = load_gpu(gpu) if isinstance(gpu, str) else gpu
    rung, problem = asked.rung()
    rung, code = launched_code(rung, problem, sheet.limits)
    return forecast(rung, problem, sheet, code=code)


def launched_code(rung: Rung, problem: LaunchProblem, limits: Limits) -> tuple[Rung, MachineCode]:
    """The machine code of what `AskedKernel.rung` made; the rest as `launched_cubin` has it."""
    rung, cubin, is_own = launched_cubin(rung, problem, limits)
    return rung, machine_code(rung, problem, limits) if is_own else code_of_cubin(cubin)


def launched_cubin(rung: Rung, problem: LaunchProblem, limits: Limits) -> tuple[Rung, Cubin, bool]:
    """The cubin of what `AskedKernel.rung` made, the rung with its structures as the kernel has
    them, and whether `compile_rung` makes it.

    Raises LabError: a launch does not fit the kernel's parameters, or a GPU refuses it.
    """
    launches = rung.launches(problem, limits)
    has_source = rung.source.suffix not in WITHOUT_SOURCE
    if has_source:
        cubin = compile_rung(rung, problem, limits)
    else:
        cubin = _read_compiled(rung.source, limits.arch, [one.entry for one in launches])
        names = (one.entry for one in launches)
        cubin = named_by(cubin, {one: find_symbol(cubin.entries, cubin.name, one) for one in names})
        if not cubin.log:
            with contextlib.suppress(DisassemblerMissing):
                cubin = with_spills(cubin)
    launches = [fitted_launch(rung, one, cubin) for one in launches]
    for one in launches:
        refuse_launch(cubin, one, limits)
    if is_of_triton(rung):  # which asks for them itself
        return rung, cubin, has_source
    return replace(rung, launch=lambda problem, limits, knobs: launches), cubin, has_source


def _read_compiled(path: Path, arch: str, entries: Sequence[str]) -> Cubin:
    """The kernels of a file without source, for an architecture."""
    if path.suffix == ".ptx":
        return assemble_ptx(_text_of(path), arch, path.name)
    if path.suffix == ".cubin":
        cubin = read_cubin(path)
        if not _runs(cubin.arch, arch):
            raise _of_another(path, [cubin.arch], arch)
        return cubin
    plain = [last_name(one).encode() for one in entries]
    images = [(one, one.data()) for one in fat_images(path)]
    images = [(one, data) for one, data in images if all(name in data for name in plain)]
    # Machine code before PTX, and of each the newest.
    images.sort(key=lambda one: (one[0].is_ptx, *(-part for part in split_arch(one[0].arch))))
    archs: dict[str, None] = {}
    refused: LabError | None = None
    for one, data in images:
        of = ptx_parameter_bytes(data.decode()) if one.is_ptx else cubin_of(data, path.name).entries
        try:
            for entry in entries:
                find_symbol(of, path.name, entry)
        except KernelError as error:
            refused = error
            continue
        archs[one.arch] = None
        if one.is_ptx and is_arch_since(arch, one.arch):
            return assemble_ptx(data.decode(), arch, path.name)
        if not one.is_ptx and _runs(one.arch, arch):
            return cubin_of(data, path.name)
    if archs:
        raise _of_another(path, list(archs), arch)
    names = [demangled(one) for one in signatures(path)]
    raise refused or no_kernel(path.name, " and ".join(entries), sorted(names))


def _of_another(path: Path, archs: Sequence[str], on: str) -> LabError:
    what = f"{path.name} is for {', '.join(archs)} and does not run on {on}."
    return LabError(what, "machine code is that of one GPU", "another --gpu, or the source")


def _runs(arch: str, on: str) -> bool:
    """Whether machine code runs on a GPU: on one of its own generation that is as new."""
    return is_arch_since(on, arch) and split_arch(on)[0] == split_arch(arch)[0]


def fitted_launch(rung: Rung, launch: Launch, cubin: Cubin) -> Launch:
    """The launch, its structures with the size and the place that the kernel gives them."""
    entry = launch.entry
    cubin.resources_of(entry)
    places = parameter_places(cubin.image, cubin.symbol_of(entry))
    fitted, end = [], 0
    for (at, size), arg in zip(places, launch.args, strict=False):
        if isinstance(arg, Struct):  # C++ may ask for a place that its members do not
            aligned = [2**power for power in range(8)]
            alignment = next((one for one in aligned if end + -end % one == at), 1)
            own, _ = argument_bytes(arg)
            if size in (own + -own % one for one in aligned):
                arg = replace(arg, size=size, alignment=alignment)
        fitted.append(arg)
        end = at + size
    wanted = [size for _, size in places]
    given = [argument_bytes(one)[0] for one in fitted]
    if given != wanted or len(fitted) != len(launch.args):
        given += [argument_bytes(one)[0] for one in launch.args[len(fitted) :]]
        takes = demangled(entry)
        if rung.source.suffix not in WITHOUT_SOURCE:
            known = {one.partition("<")[0]: said for one, said in signatures(rung.source).items()}
            takes = known.get(entry.partition("<")[0], entry)
        raise LabError(
            f"The arguments do not fit {takes}, which takes {_say(wanted)} bytes.",
            f"those given have {_say(given)} bytes, a buffer's address 8",
            "one --arg for each parameter, in order; a number has the type of its parameter, and a "
            "structure by value is told as p=struct(x,out,i32:4096), of arguments and numbers",
        )
    return replace(launch, args=tuple(fitted))


def _say(sizes: Sequence[float]) -> str:
    return ", ".join(f"{size:g}" for size in sizes) or "no"


def signatures(source: Path) -> dict[str, str]:
    """The kernels of a file by name, each with its parameters; of a file without source, which has
    no types, with their bytes."""
    if source.suffix == OF_TRITON:
        return triton_kernels(_text_of(source))
    if source.suffix in WITHOUT_SOURCE:
        sizes = _parameter_sizes(source)
        return {name: f"{name} of {_say(of)} bytes" for name, of in sizes.items()}
    text = normalise_source(_text_of(source))
    return {name: signature_in(text, name) or name for name in kernels_in(text)}


def _parameter_sizes(path: Path) -> dict[str, list[int]]:
    """The kernels of a file without source, each with the bytes of its parameters."""
    if path.suffix == ".ptx":
        return ptx_parameter_bytes(_text_of(path))
    found: dict[str, list[int]] = {}
    images = [] if path.suffix == ".cubin" else fat_images(path)
    for one in images:
        if one.is_ptx:
            found = ptx_parameter_bytes(one.data().decode()) | found
    codes = [one.data() for one in images if not one.is_ptx]
    for code in [path.read_bytes()] if path.suffix == ".cubin" else codes:
        with contextlib.suppress(KernelError):
            for name in cubin_of(code, str(path)).entries:
                if name not in found:
                    found[name] = parameter_bytes(code, name)
    return found


def _text_of(path: Path) -> str:
    try:
        return read_given(path)
    except (OSError, ValueError) as error:
        what, why = f"{path} cannot be read.", f"{error}"
        raise LabError(what, why, "a source is text in UTF-8") from error


def matching(known: Collection[str], file: str, entry: str) -> list[str]:
    """The kernels, of those that `signatures` found in a file, that a launch may mean by a name.

    Raises LabError: there is none.
    """
    if entry in known:
        return [entry]
    if any(one.startswith("_Z") for one in known):
        return [find_symbol(known, file, entry)]
    scope = entry.partition("<")[0].rpartition("::")[0]
    found = [one for one in known if last_name(one) == last_name(entry)]
    found = [one for one in found if one.partition("<")[0].rpartition("::")[0].endswith(scope)]
    if not found:
        raise no_kernel(file, entry, list(known))
    return found


def constant_launch(source: Path, entry: str | None) -> HostLaunch | None:
    """How the host code of a source launches a kernel, or its only one; None where it does not, or
    in several ways."""
    return launch_of(_text_of(source), entry)


def only_kernel(source: Path) -> str:
    """The kernel of a file that has one. Raises LabError: it has several, a template, or none."""
    names = list(signatures(source))
    if len(names) != 1 or "<" in names[0]:
        why = f"it has {', '.join(names)}" if names else "it has none"
        raise LabError(f"Which kernel of {source.name} is launched?", why, "--entry NAME says it")
    return names[0]
