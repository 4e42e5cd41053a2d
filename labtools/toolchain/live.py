"""Compilation for the GPU that is here, with CuPy. Raises a plain message where there is none."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from labtools.problem import LabError

from .compiler import compile_cubin
from .device import device_query
from .errors import parse_compile_log
from .options import all_include_dirs, cuda_include_dir, live_options, name_lines
from .sources import expand_includes
from .status import cuda_status


def can_launch_here() -> bool:
    """Whether kernels can run on a GPU in this process; cheap enough to ask before every run."""
    if device_query() is None or cuda_include_dir() is None:
        return False
    try:
        import cupy
    except ImportError:
        return False
    return bool(cupy.cuda.is_available())


def compile_raw(
    source: str,
    defines: Mapping[str, str] | None = None,
    entry: str = "",
    name: str = "kernel.cu",
    include_dirs: Iterable[Path | str] = (),
) -> Any:
    """The `cupy.RawKernel` of ``entry``, or the `cupy.RawModule`, loaded for the GPU of this
    process.

    The options equal those of `compile_cubin`, so that with one NVRTC the machine code is the same.

    Raises:
        CompileError: the source does not compile; names the line.
        LabError: no GPU, no CuPy, or no kernel of that name.
    """
    if not can_launch_here():
        raise cuda_status().why_not_live()
    import cupy

    defines = dict(defines or {})
    own = expand_includes(source, all_include_dirs(include_dirs))
    folders = all_include_dirs(include_dirs, own)
    module = cupy.RawModule(
        code=add_header_mark(name_lines(source, name, own), source, folders),
        options=live_options(defines, folders),
        backend="nvrtc",
    )
    try:
        module.compile()
    except cupy.cuda.compiler.CompileException as error:
        raise parse_compile_log(error.get_message(), source, name, folders) from None
    if not entry:
        return module
    try:
        kernel = module.get_function(entry)
        kernel.kernel  # noqa: B018  CuPy looks the name up only now
    except cupy.cuda.driver.CUDADriverError as error:
        device = device_query()
        assert device is not None, "it was asked above"
        cubin = compile_cubin(source, device.arch, defines, name, include_dirs, "cupy")
        cubin.resources_of(entry)  # says which kernels there are
        raise LabError(
            f"{name} compiled, but the driver did not load {entry}.", str(error), "other kernels"
        ) from None
    return kernel


def add_header_mark(text: str, source: str, folders: Iterable[Path]) -> str:
    """Append a comment with the hash of the source's own headers.

    CuPy keeps compiled kernels by their text and options alone. Without this mark an edited
    header would give the old code. A comment does not change the machine code.
    """
    digest = hashlib.sha256(expand_includes(source, folders).encode()).hexdigest()
    return f"{text}\n// headers {digest}\n"
