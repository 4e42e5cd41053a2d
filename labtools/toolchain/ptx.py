"""PTX to a cubin with nvJitLink: no driver and no GPU needed."""

from __future__ import annotations

import dataclasses
import re

from labtools.problem import LabError
from labtools.problem.rung import is_arch_since
from labtools.problem.text import first_line

from .compiler import OWN_LIMIT_S, allowed_s, run_compiler
from .cubin import Cubin, cubin_of, read_entries
from .errors import NO_COMPILER_STILL_WORKS, CompilerMissing, parse_compile_log

_TARGET = re.compile(r"^\s*\.target\s+(sm_\d+[af]?)", re.MULTILINE)
_ENTRY = re.compile(r"\.entry\s+([\w$]+)\s*(?:\(([^)]*)\))?")
_PARAMETER = re.compile(r"\.param\b[^,]*?\.[busf](8|16|32|64)\b[^,\[]*(?:\[(\d+)\])?")
_SAYS = re.compile(r"^ptxas .*?, line (\d+); (?:error|fatal)\s*: ", re.MULTILINE)


def ptx_parameter_bytes(text: str) -> dict[str, list[int]]:
    """The kernels of PTX by name, each with the bytes of its parameters in order."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)
    return {
        name: [int(bits) // 8 * int(count or 1) for bits, count in _PARAMETER.findall(given)]
        for name, given in _ENTRY.findall(text)
    }


def assemble_ptx(text: str, arch: str, name: str) -> Cubin:
    """The cubin that nvJitLink makes of PTX for an architecture; of PTX for ``sm_90a`` alone it is
    one for that. ``name`` is what messages call it.

    Raises CompileError: it is no right PTX, and names the line. CompilerMissing: there is no
    nvJitLink here. LabError: it is for a later architecture, or has no kernel.
    """
    found = _TARGET.search(text)
    if found is None or not ptx_parameter_bytes(text):
        lacks = "no line .target" if found is None else "no .entry"
        raise LabError(f"{name} is no PTX of a kernel.", f"it has {lacks}", "what nvcc -ptx makes")
    target = found[1].removesuffix("f")
    if not is_arch_since(arch, target):
        what = f"{name} is for {found[1]} and does not run on {arch}."
        raise LabError(what, "PTX runs where it is for, and on what is newer", "another --gpu")
    arch = target if target.endswith("a") else arch
    data, limit_s = text.encode(), allowed_s(OWN_LIMIT_S)
    image, log, missing = run_compiler(lambda: _link(data, arch, name), name, limit_s)
    if missing:
        what, still = "PTX cannot be assembled here.", f"{NO_COMPILER_STILL_WORKS}; the package "
        raise CompilerMissing(what, missing, f"{still}nvidia-nvjitlink assembles it")
    if not image:
        raise parse_compile_log(_SAYS.sub(rf"{name}(\1): error: ", log), text, name)
    cubin = cubin_of(image, name)
    entries = read_entries(image, cubin.arch, log)
    return dataclasses.replace(cubin, log=log, entries=entries, ptx=text)


def _link(data: bytes, arch: str, name: str) -> tuple[bytes, str, str]:
    """The cubin, what was said, and why there is no nvJitLink."""
    try:
        from cuda.bindings import nvjitlink

        options = [f"-arch={arch}", "-verbose", "-lineinfo"]
        linker = nvjitlink.create(len(options), options)
    except Exception as error:  # a missing library surfaces as any of several types
        return b"", "", f"{type(error).__name__}: {first_line(str(error))}"

    def read(what: str) -> bytes:
        held = bytearray(getattr(nvjitlink, f"get_{what}_size")(linker))
        getattr(nvjitlink, f"get_{what}")(linker, held)
        return bytes(held)

    try:
        nvjitlink.add_data(linker, nvjitlink.InputType.PTX, data, len(data), name)
        nvjitlink.complete(linker)
        made, log = read("linked_cubin"), read("info_log")
    except nvjitlink.nvJitLinkError as error:
        made, log = b"", read("error_log") + f"\n{error}".encode()
    finally:
        nvjitlink.destroy(linker)
    return made, log.decode("utf-8", "replace").replace("\0", ""), ""
