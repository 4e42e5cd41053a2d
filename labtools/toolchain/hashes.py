"""What identifies a compiled rung: its machine code, and its source where compilers differ."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from labtools.problem import Rung, Workload

from .compiler import CompilerName, compile_cubin
from .cubin import Cubin
from .errors import CompilerMissing
from .options import DEFAULT_ARCH
from .sources import hash_source


@dataclass(frozen=True)
class Hashes:
    """Identity of a rung at a workload, knobs and an architecture.

    Attributes:
        sass_hash: SHA-256 over the machine code of the kernels it launches; None where there is no
            compiler.
        source_hash: SHA-256 over its source without comments, its own headers, definitions and
            options.
        nvrtc_version: the compiler of ``sass_hash``; None where there is none.
    """

    sass_hash: str | None
    source_hash: str
    nvrtc_version: str | None


def compile_rung(
    rung: Rung,
    workload: Workload,
    knobs: Mapping[str, int] | None = None,
    arch: str = DEFAULT_ARCH,
    compiler: CompilerName = "auto",
) -> Cubin:
    """Compile a rung for a workload and knobs.

    Raises:
        CompileError: it does not compile; names the line.
        CompilerMissing: there is no NVRTC here.
    """
    return compile_cubin(
        rung.source_text,
        arch,
        rung.defines(workload, knobs),
        source_name(rung),
        rung.include_dirs,
        compiler,
    )


def source_name(rung: Rung) -> str:
    """What messages call a rung's source: its path, or the cell when it was edited on a page."""
    return f"{rung.id} (cell)" if rung.text is not None else str(rung.source)


def launched_entries(
    rung: Rung, workload: Workload, knobs: Mapping[str, int] | None = None
) -> list[str]:
    """The kernels that a rung launches for a workload, each once, in order of launch."""
    return list(dict.fromkeys(launch.entry for launch in rung.launches(workload, knobs)))


def kernel_hashes(
    rung: Rung,
    workload: Workload,
    knobs: Mapping[str, int] | None = None,
    arch: str = DEFAULT_ARCH,
    compiler: CompilerName = "auto",
) -> Hashes:
    """The identity of what runs.

    For a live measurement ask with ``compiler="cupy"``: that is the NVRTC whose code ran.

    Raises:
        CompileError: it does not compile.
        LabError: the launch names a kernel that the source does not have.
    """
    source_hash = hash_source(rung.source_text, rung.defines(workload, knobs), rung.include_dirs)
    try:
        cubin = compile_rung(rung, workload, knobs, arch, compiler)
    except CompilerMissing:
        return Hashes(None, source_hash, None)
    codes = [
        f"{entry} {cubin.resources_of(entry).code_hash}"
        for entry in launched_entries(rung, workload, knobs)
    ]
    sass_hash = hashlib.sha256("\n".join(codes).encode()).hexdigest()
    return Hashes(sass_hash, source_hash, cubin.nvrtc_version)
