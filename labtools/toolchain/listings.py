"""The machine code of a rung as typed instructions (first version; stored listings follow)."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

from labtools.problem import Rung, Workload

from .compiler import compile_cubin
from .cubin import Resources
from .sass import Sass, read_sass


@dataclass(frozen=True)
class MachineCode:
    """All kernels of one source, compiled for one architecture."""

    entries: dict[str, Sass]
    resources: dict[str, Resources]
    origin: str


@functools.lru_cache(maxsize=256)
def _compile(source, arch, defines, name, include_dirs):  # type: ignore[no-untyped-def]
    cubin = compile_cubin(source, arch, dict(defines), name, include_dirs)
    entries = {entry: read_sass(cubin, entry) for entry in cubin.entries}
    return MachineCode(entries, cubin.entries, f"compiled here with NVRTC {cubin.nvrtc_version}")


def machine_code(
    rung: Rung, workload: Workload, knobs: Mapping[str, int], arch: str
) -> MachineCode:
    """Compile a rung and read its machine code."""
    defines = tuple(sorted(rung.defines(workload, knobs).items()))
    return _compile(rung.source_text, arch, defines, rung.source.name, rung.include_dirs)
