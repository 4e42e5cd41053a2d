"""Where the command-line tools are: wheels, the path, a CUDA toolkit, Nsight Compute's folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

NSIGHT_PYTHON_NEEDS_NCU = (2026, 2, 1)
"""The oldest Nsight Compute that nsight-python accepts."""

CXX_COMPILERS = ("c++", "g++", "clang++")


def find_tool(name: str) -> Path | None:
    """The executable ``name`` (``nvdisasm``, ``ncu``, ``compute-sanitizer``, ...), or None."""
    for candidate in _candidates(name):
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return candidate
    return None


def find_cxx_compiler() -> Path | None:
    """The C++ compiler of the CPU runner: ``$CXX``, else c++, g++ or clang++, or None."""
    for name in (os.environ.get("CXX", ""), *CXX_COMPILERS):
        found = shutil.which(name) if name else None
        if found:
            return Path(found)
    return None


@lru_cache(maxsize=16)
def tool_version(tool: Path) -> tuple[int, ...] | None:
    """The version that ``tool --version`` prints, as numbers; None when it prints none."""
    try:
        done = subprocess.run(
            [str(tool), "--version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r"\b(\d+(?:\.\d+){1,3})\b", done.stdout)
    return tuple(int(part) for part in found[1].split(".")) if found else None


def _candidates(name: str) -> Iterable[Path]:
    try:
        from cuda.pathfinder import find_nvidia_binary_utility
    except ImportError:
        pass
    else:
        try:
            found = find_nvidia_binary_utility(name)
        except Exception:  # pathfinder refuses names it does not know; the others follow
            found = None
        if found:
            yield Path(found)
    on_path = shutil.which(name)
    if on_path:
        yield Path(on_path)
    roots = [os.environ.get("CUDA_PATH", ""), os.environ.get("CUDA_HOME", ""), "/usr/local/cuda"]
    for root in filter(None, roots):
        yield Path(root) / "bin" / name
        yield Path(root) / "compute-sanitizer" / name
    for folder in sorted(Path("/opt/nvidia/nsight-compute").glob("*"), reverse=True):
        yield folder / name
