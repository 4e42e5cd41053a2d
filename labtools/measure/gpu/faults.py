"""CUDA's errors in plain words, told apart by the code that the library gives with them.

Of torch's and its libraries' plain RuntimeError, which has no code, the text decides.
"""

from __future__ import annotations

import re
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ASK_SANITIZER = (
    "`labtools sanitize` (compute-sanitizer) names the thread and the line, and so does the CPU "
    "runner: `labtools run ... --on cpu`"
)


@dataclass(frozen=True)
class CudaFault:
    """One CUDA error."""

    kind: str  # misaligned, out_of_bounds, hang, out_of_memory, launch, trap, busy or cuda
    message: str  # what it means
    fatal: bool  # True when the process's CUDA context is dead after it


@dataclass(frozen=True)
class Meaning:
    """What some of CUDA's error codes mean."""

    codes: list[int]
    words: str  # a pattern for what torch says of them
    kind: str  # as of a `CudaFault`
    text: str  # in plain words
    fatal: bool  # as of a `CudaFault`


OUT_OF_MEMORY = 2
_TABLE = Path(__file__).with_suffix(".toml").read_text("utf-8")
_MEANINGS = [Meaning(**row) for row in tomllib.loads(_TABLE)["meaning"]]

_CUPY = (
    *("cuda.runtime.CUDARuntimeError", "cuda.driver.CUDADriverError"),
    *("cuda.compiler.CompileException", "cuda.memory.OutOfMemoryError"),
)
_TORCH = ("AcceleratorError", "OutOfMemoryError")


def cuda_fault(error: BaseException) -> CudaFault | None:
    """What an error of CUDA means, its name in the message; None of any other error.

    It is of CuPy, of its memory pool, of torch, or of a library on top of torch.
    """
    of_cupy = isinstance(error, _classes("cupy", _CUPY))
    of_torch = isinstance(error, _classes("torch", _TORCH))
    said = str(error)
    # Torch and its libraries mostly raise RuntimeError itself; the word is all that tells it.
    plainly = isinstance(error, RuntimeError) and "cuda" in str(error).lower()
    if not (of_cupy or of_torch or plainly):
        return None
    first = said.strip().splitlines()[0] if said.strip() else "an error without a text"
    found = _meaning_of(error, of_cupy)
    if found is None:
        # An error nobody has described may well have killed the context.
        return CudaFault("cuda", first, True)
    return CudaFault(found.kind, f"{first}: {found.text}", found.fatal)


def _meaning_of(error: BaseException, of_cupy: bool) -> Meaning | None:
    memory = (*_classes("cupy", _CUPY[-1:]), *_classes("torch", _TORCH[-1:]))
    code = OUT_OF_MEMORY if isinstance(error, memory) else None
    for name in ("status", "error_code"):  # of CuPy, and of torch's AcceleratorError
        code = getattr(error, name, None) if code is None else code
    if not isinstance(code, int) and not of_cupy:  # torch's own and its libraries' RuntimeError
        said = str(error)
        return next((one for one in _MEANINGS if re.search(one.words, said, re.IGNORECASE)), None)
    return next((one for one in _MEANINGS if code in one.codes), None)


def _classes(package: str, paths: tuple[str, ...]) -> tuple[type[BaseException], ...]:
    """Classes of a package; one that was never imported here has raised nothing."""
    found = []
    for path in paths:
        place: Any = sys.modules.get(package)
        for name in path.split("."):
            place = getattr(place, name, None)
        if isinstance(place, type):
            found.append(place)
    return tuple(found)
