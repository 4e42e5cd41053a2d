"""How much shared memory a block can have: declared in the source, or asked for at the launch.

A block may declare 48 KiB with a fixed size on every architecture; for some the compiler takes
more. What it takes is asked of it, one architecture at a time: it is nowhere written down for all.
"""

from __future__ import annotations

from dataclasses import dataclass

from labtools.predict.sheets import Gpu
from labtools.problem import LabError
from labtools.toolchain import CompilerMissing, find_compiler
from labtools.toolchain.cache import kept
from labtools.toolchain.compiler import compile_cubin
from labtools.toolchain.errors import CompileError

_SOURCE = """extern "C" __global__ void holds(int* out) {{
  __shared__ int smem[{words}];
  smem[threadIdx.x] = out[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = smem[{words} - 1 - threadIdx.x];
}}
"""
_KIB = 1024
_LEAST_KIB, _MOST_KIB = 16, 256


@dataclass(frozen=True)
class SharedLimits:
    """Shared memory of a block."""

    sheet_static: int  # bytes of a fixed size, by the data sheet
    opt_in: int  # bytes that a launch may ask for, by the data sheet
    # by architecture, the most KiB of a fixed size that the compiler took, in bytes; None where it
    # does not know the architecture. Empty without a compiler.
    compiler_static: dict[str, int | None]
    compiler: str  # which one was asked, or why none was


def shared_limits(gpu: Gpu, ask: bool = True) -> SharedLimits:
    """The limits of a GPU, and what the compiler, if asked, takes for its architecture with each
    suffix."""
    found: dict[str, int | None] = {}
    said = "not asked"
    if ask:
        try:
            compiler = find_compiler()
        except CompilerMissing:
            said = "there is no compiler here"
        else:
            said = str(compiler)
            for arch in (gpu.arch, f"{gpu.arch}a"):
                if arch.endswith("a") and gpu.compute_capability < (9, 0):
                    continue
                found[arch] = kept(
                    "static_smem",
                    (_SOURCE, arch, said),
                    lambda arch=arch: _largest_static(arch),  # type: ignore[misc]
                )
    return SharedLimits(gpu.static_smem_per_block_bytes, gpu.smem_per_block_bytes, found, said)


def _largest_static(arch: str) -> int | None:
    """Bytes of the largest array, in whole KiB, that compiles; None where not even a small one."""
    low, high = _LEAST_KIB, _MOST_KIB
    if not _compiles(arch, low):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _compiles(arch, middle) else (low, middle)
    return low * _KIB


def _compiles(arch: str, kib: int) -> bool:
    source = _SOURCE.format(words=kib * _KIB // 4)
    try:
        compile_cubin(source, arch, name="holds.cu")
    except (CompileError, LabError):
        return False
    return True
