"""CUDA's errors in plain words. Works on text alone, whichever library raised them."""

from __future__ import annotations

import re
from dataclasses import dataclass

ASK_SANITIZER = (
    "`labtools sanitize` (compute-sanitizer) names the thread and the line, and so does the CPU "
    "runner: `labtools run ... --on cpu`"
)


@dataclass(frozen=True)
class CudaFault:
    """One CUDA error.

    Args:
        kind: misaligned, out_of_bounds, hang, out_of_memory, launch, trap, busy or cuda.
        message: what it means.
        fatal: True when the process's CUDA context is dead after it.
    """

    kind: str
    message: str
    fatal: bool


_EXPLANATIONS = (
    (
        r"misaligned.?address",
        "misaligned",
        "a thread loaded or stored at an address that is no multiple of the access's size, for "
        "example 16 bytes at an address ending in 2",
        True,
    ),
    (
        r"illegal.?address|illegal memory access|invalid.?address.?space",
        "out_of_bounds",
        "a thread read or wrote memory that belongs to no buffer",
        True,
    ),
    (
        r"launch.?out.?of.?resources|too many resources requested",
        "launch",
        "the launch asks for more registers or shared memory than one block may have; a smaller "
        "block, or __launch_bounds__, helps",
        False,
    ),
    (
        r"out.?of.?memory",
        "out_of_memory",
        "the GPU has not enough free memory for this workload",
        False,
    ),
    (
        r"launch.?timed?.?out|launch timeout",
        "hang",
        "the kernel ran longer than the display driver allows",
        True,
    ),
    (
        r"illegal.?instruction|hardware stack error|invalid.?p(c|rogram counter)|"
        r"unspecified launch failure|launch.?failed|launchfailure",
        "trap",
        "the kernel stopped by a trap, an illegal instruction or a broken stack",
        True,
    ),
    (
        r"assert",
        "trap",
        "an assert in the kernel failed",
        True,
    ),
    (
        r"invalid.?configuration|invalid.?value|invalid argument",
        "launch",
        "the launch is not possible: check grid, block (at most 1024 threads) and shared memory",
        False,
    ),
    (
        r"devices?.?unavailable|all CUDA-capable devices are busy|exclusive",
        "busy",
        "the GPU is held by another process",
        False,
    ),
    (
        r"no.?kernel.?image|no binary for gpu|invalid.?image|unsupported.?(ptx|toolchain)",
        "launch",
        "the machine code does not fit this GPU or this driver",
        False,
    ),
    (
        r"not.?found|named symbol",
        "launch",
        "the machine code holds no kernel of the launched name",
        False,
    ),
)


def explain_cuda_error(text: str) -> CudaFault:
    """Say what an error's text means; the CUDA name stays in the message.

    Args:
        text: ``str(error)`` of a CuPy, torch or driver error.
    """
    first = text.strip().splitlines()[0] if text.strip() else "an error without a text"
    for pattern, kind, meaning, fatal in _EXPLANATIONS:
        if re.search(pattern, text, re.IGNORECASE):
            return CudaFault(kind, f"{first}: {meaning}", fatal)
    # An error nobody has described may well have killed the context.
    return CudaFault("cuda", first, True)


def looks_like_cuda(error: BaseException) -> bool:
    """Whether an exception comes from CUDA, CuPy's memory pool or torch's."""
    name = type(error).__name__
    return name in (
        "CUDARuntimeError",
        "CUDADriverError",
        "OutOfMemoryError",
        "AcceleratorError",
        "CompileException",
    ) or (isinstance(error, RuntimeError) and "cuda" in str(error).lower())
