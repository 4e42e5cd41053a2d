"""CUDA C++ with host code, which NVRTC does not take, by the nvcc of a CUDA toolkit."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from .compiler import OWN_LIMIT_S, allowed_s
from .cubin import Cubin, no_kernel, read_cubin
from .errors import CompileError, parse_compile_log
from .sources import kernels_in, normalise_source
from .tools import find_tool

MOST_ABSENT = 20
"""Headers of a kernel's file, at most, that are looked for in vain."""
_ABSENT = re.compile(r'cannot open source file "([\w./+-]+)"|error: ([\w./+-]+): No such file')

_OF_HOST = re.compile(r"^(\S+?):(\d+):\d+: (?:fatal )?error: ", re.MULTILINE)


def absent_header(log: str, source: str) -> str | None:
    """A header that a compiler did not find, of those that are no part of a kernel's own text: a
    source's own ones stand in quotes, beside it."""
    found = _ABSENT.search(log)
    name = found and (found[1] or found[2])
    if not name or ".." in Path(name).parts or name.startswith("/"):
        return None
    quoted = re.search(rf'#[ \t]*include[ \t]*"{re.escape(name)}"', source)
    return None if quoted and "/" not in name else name


def add_header(folder: Path, name: str) -> bool:
    """Put an empty header into a folder; False where it is there already."""
    path = folder / name
    if path.exists():
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return True


def compile_with_nvcc(
    source: Path,
    arch: str,
    defines: Mapping[str, str],
    entries: Sequence[str],
    headers: Sequence[Path] = (),
) -> Cubin | None:
    """Every kernel that a file launches, and ``entries``, for one architecture; None without nvcc.
    Headers that are in none of the folders ``headers`` and nowhere else are empty.

    Raises CompileError: it does not compile, or takes too long. LabError: it holds no kernel.
    """
    nvcc = find_tool("nvcc")
    if nvcc is None:
        return None
    text = source.read_text("utf-8", errors="replace")
    with tempfile.TemporaryDirectory() as folder:
        made, empty, all_of = (Path(folder) / name for name in ("k.cubin", "empty", "all.cu"))
        empty.mkdir()
        # What nothing uses of a template is not compiled.
        used = ", ".join(f"(void*){one}" for one in entries if "<" in one)
        wanted = f"\nstatic void* const lab_wanted[] = {{{used}}};\n" if used else "\n"
        all_of.write_text(f'#include "{source.resolve()}"{wanted}')
        given = [f"-D{name}={value}" for name, value in defines.items()]
        options = ["-cubin", f"-arch={arch}", "-lineinfo", "-std=c++17", *given]
        folders = [f"-I{one}" for one in (source.resolve().parent, *headers, empty)]
        command = [str(nvcc), *options, *folders, "-o", str(made), str(all_of)]
        for _ in range(MOST_ABSENT):
            try:
                done = subprocess.run(
                    command,
                    capture_output=True,
                    text=True,
                    errors="replace",
                    timeout=allowed_s(OWN_LIMIT_S),
                    cwd=folder,
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                raise CompileError(f"nvcc did not compile {source.name}.", str(error)) from error
            if not done.returncode:
                return read_cubin(made, source.name)
            log = (done.stderr + done.stdout).replace(f"{source.resolve()}", str(source)).strip()
            absent = absent_header(log, text)
            if absent is None or not add_header(empty, absent):
                break
        log = _OF_HOST.sub(r"\1(\2): error: ", log)
        refused = parse_compile_log(log, text, str(source), [source.parent])
        if refused.file == str(all_of):  # what was asked of a template
            asked = ", ".join(one for one in entries if "<" in one)
            raise no_kernel(source.name, asked, kernels_in(normalise_source(text)))
        raise refused
