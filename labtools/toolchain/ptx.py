"""PTX to a cubin with nvJitLink: no driver and no GPU needed."""

from __future__ import annotations

import dataclasses
import re

from labtools.problem import LabError
from labtools.problem.rung import is_arch_since

from .cubin import Cubin, cubin_of, read_entries
from .errors import NO_COMPILER_STILL_WORKS, CompilerMissing, parse_compile_log
from .linker import link_ptx

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
    image, log, missing = link_ptx([text], arch, name)
    if missing:
        what, still = "PTX cannot be assembled here.", f"{NO_COMPILER_STILL_WORKS}; the package "
        raise CompilerMissing(what, missing, f"{still}nvidia-nvjitlink assembles it")
    if not image:
        raise parse_compile_log(_SAYS.sub(rf"{name}(\1): error: ", log), text, name)
    cubin = cubin_of(image, name)
    entries = read_entries(image, cubin.arch, log)
    return dataclasses.replace(cubin, log=log, entries=entries, ptx=text)
