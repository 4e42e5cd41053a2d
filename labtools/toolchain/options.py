"""The compiler options and header folders, the same for offline and live compilation."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path

from labtools.problem import LabError, kernels_dir

C_HEADERS = Path(__file__).parent / "headers"
"""``<stdint.h>``, ``<math.h>``, ``<float.h>`` and the like, for a compiler that has none."""

DEFAULT_ARCH = "sm_90"
"""Architecture of the shipped records (NVIDIA H200), used when there is no GPU to ask."""

COMMON_OPTIONS = ("-std=c++17", "-lineinfo")
CUPY_ADDED_OPTIONS = ("-ftz=true", "--device-as-default-execution-space")
"""What `cupy.RawKernel` always adds; the offline compilation adds it too, or the machine code of
the two would differ."""


def check_arch(arch: str) -> str:
    """Return ``arch`` if it looks like ``sm_90`` or ``sm_90a``."""
    if not re.fullmatch(r"sm_[0-9]{2,3}[af]?", arch):
        raise LabError(
            f"{arch!r} is not a GPU architecture.",
            "an architecture looks like sm_90: the compute capability 9.0 without its dot",
            "sm_75 is a T4, sm_80 an A100, sm_86 an RTX 3090, sm_89 an L4 or RTX 4090, "
            "sm_90 an H100 or H200, sm_100 a B200, sm_120 an RTX 5090",
        )
    return arch


def split_arch(arch: str) -> tuple[int, int]:
    """``sm_90`` to (9, 0), ``sm_120`` to (12, 0)."""
    digits = check_arch(arch)[3:].rstrip("af")
    return int(digits[:-1]), int(digits[-1])


_NEEDS_CCCL = re.compile(
    r'^[ \t]*#[ \t]*include[ \t]*[<"]'
    r"(?:cuda/|cub/|thrust/|cooperative_groups|cuda_(?:pipeline|awbarrier)"
    r"|(?:algorithm|array|limits|tuple|type_traits|utility)[>\"])",
    re.MULTILINE,
)


def all_include_dirs(extra: Iterable[Path | str] = (), source: str = "") -> tuple[Path, ...]:
    """Folders searched for ``#include``: the given ones, the shared headers, CUDA's headers, ours.

    CUDA's C++ library, of which cooperative groups are made, is among them where ``source``, with
    its own headers, takes something of it; so the folders of all other kernels are the same.

    NVRTC has no C headers. A kernel written for nvcc includes some for a type or a constant, so the
    few that make sense on a GPU stand in `C_HEADERS`.
    """
    cuda = cuda_include_dir()
    dirs = [*map(Path, extra), kernels_dir() / "include", *([cuda] if cuda else []), C_HEADERS]
    if _NEEDS_CCCL.search(source):
        dirs += [folder for folder in _cccl_dirs(cuda) if folder.is_dir()]
    return tuple(dict.fromkeys(dirs))


def _cccl_dirs(cuda: Path | None) -> Iterable[Path]:
    """Where the wheels of CUDA 13, those of CUDA 12, and a toolkit have it."""
    if cuda is not None:
        yield cuda / "cccl"
        yield cuda.parent.parent / "cuda_cccl" / "include"


@lru_cache(maxsize=1)
def cuda_include_dir() -> Path | None:
    """The folder that holds ``cuda_fp16.h``: from the CUDA wheels, or of a toolkit, or None."""
    folders = _header_candidates()
    return next((folder for folder in folders if (folder / "cuda_fp16.h").is_file()), None)


def _header_candidates() -> Iterable[Path]:
    with contextlib.suppress(Exception):  # it is not here, or does not know the layout
        from cuda.pathfinder import find_nvidia_header_directory

        if found := find_nvidia_header_directory("cudart"):
            yield Path(found)
    for variable in ("CUDA_PATH", "CUDA_HOME"):
        if os.environ.get(variable):
            yield Path(os.environ[variable]) / "include"
    yield Path("/usr/local/cuda/include")


def define_options(defines: Mapping[str, str]) -> tuple[str, ...]:
    """``-DNAME=value`` in the order of names, so that equal definitions are equal options."""
    return tuple(f"-D{name}={value}" for name, value in sorted(defines.items()))


def live_options(defines: Mapping[str, str], include_dirs: Iterable[Path]) -> tuple[str, ...]:
    """Options for `cupy.RawKernel`, which adds `CUPY_ADDED_OPTIONS` and the architecture."""
    return (*COMMON_OPTIONS, *define_options(defines), *(f"-I{folder}" for folder in include_dirs))


def name_lines(source: str, name: str, expanded: str = "") -> str:
    """Make the compiler call the source ``name`` in its messages and line tables, and know what
    nvcc knows without an ``#include``; ``expanded`` is the source with its own headers.

    CuPy compiles from a temporary file; without this, an error or a sanitizer report would name
    that file. The line numbers stay, and the machine code does not change.
    """
    quoted = name.replace("\\", "/").replace('"', "'")
    kept = OF_HOST.sub("", source)
    return f'{_usual_names(expanded or source)}#line 1 "{quoted}"\n{kept}'


OF_HOST = re.compile(
    r"^[ \t]*#[ \t]*include[ \t]*<(?:(?:io|[iofs])stream|iomanip|string|vector|map|set|new|"
    r"memory|chrono|random|functional|iterator|numeric|initializer_list|stdexcept|thread)>",
    re.MULTILINE,
)
"""What a file for nvcc includes for its host code, and a kernel has no use for."""

_C_TYPES = {"uint": "int", "ushort": "short", "ulong": "long", "uchar": "char"}
_C_TYPE = re.compile(r"\b(?:uint|ushort|ulong|uchar)\b")
_OF_HEADERS = {
    "assert.h": re.compile(r"\bassert\b"),
    "half_constants.h": re.compile(r"\bCUDART_[A-Z_]+_(?:FP|BF)16\b"),
    "limits.h": re.compile(r"\b(?:CHAR_BIT|U?(?:S?CHAR|SHRT|INT|LONG|LLONG)_M(?:AX|IN))\b"),
    "math.h": re.compile(r"\b(?:INFINITY|NAN|HUGE_VALF?|M_[A-Z0-9_]+)\b"),
    "stdint.h": re.compile(r"\b(?:u?int(?:8|16|32|64)|u?intptr)_t\b"),
}


def _usual_names(source: str) -> str:
    """What nvcc knows by the C library's headers, where a source names any of it."""
    named = sorted(set(_C_TYPE.findall(source)))
    headers = [name for name, wanted in _OF_HEADERS.items() if wanted.search(source)]
    lines = [f"typedef unsigned {_C_TYPES[name]} {name};\n" for name in named]
    return "".join([*(f"#include <{name}>\n" for name in headers), *lines])
