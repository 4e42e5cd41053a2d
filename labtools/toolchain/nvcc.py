"""CUDA C++ with host code, which NVRTC does not take, by the nvcc of a CUDA toolkit."""

from __future__ import annotations

import dataclasses
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from .compiler import OWN_LIMIT_S, allowed_s
from .cubin import Cubin, read_cubin
from .errors import CompileError, parse_compile_log
from .tools import find_tool


def compile_with_nvcc(source: Path, arch: str, defines: Mapping[str, str]) -> Cubin | None:
    """Every kernel that a file defines or uses, for one architecture; None without nvcc.

    Raises CompileError: it does not compile, or takes too long. LabError: it holds no kernel.
    """
    nvcc = find_tool("nvcc")
    if nvcc is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "kernel.cubin"
        given = [f"-D{name}={value}" for name, value in defines.items()]
        command = [str(nvcc), "-cubin", f"-arch={arch}", "-lineinfo", "-std=c++17", *given]
        limit_s = allowed_s(OWN_LIMIT_S)
        try:
            done = subprocess.run(
                [*command, "-o", str(made), str(source.resolve())],
                capture_output=True,
                text=True,
                errors="replace",
                timeout=limit_s,
                cwd=folder,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CompileError(f"nvcc did not compile {source.name}.", str(error)) from error
        if done.returncode:
            text = source.read_text("utf-8", errors="replace")
            log = (done.stderr + done.stdout).replace(f"{source.resolve()}", str(source))
            raise parse_compile_log(log.strip(), text, str(source), [source.parent])
        return dataclasses.replace(read_cubin(made), name=source.name)
