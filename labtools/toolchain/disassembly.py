"""Machine code as text, with nvdisasm from its wheel or from a CUDA toolkit."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from labtools.problem import LabError

from .cubin import Cubin
from .tools import find_tool

_TIME_LIMIT_S = 60
_SECTION = re.compile(r"^//-+ (?P<name>\S+)\s+-+$", re.MULTILINE)


def disassemble(
    cubin: Cubin | bytes, entry: str | None = None, options: Sequence[str] = ("-c",)
) -> str:
    """The SASS of a cubin.

    Args:
        cubin: what `compile_cubin` returned, or the bytes of a cubin.
        entry: one kernel; None gives all of them.
        options: for nvdisasm; ``-c`` prints code alone, ``-hex`` adds the encoding, ``-plr`` the
            live ranges, ``-g`` the source lines.

    Raises:
        LabError: there is no nvdisasm, it refused the file, or there is no such kernel.
    """
    image = cubin.image if isinstance(cubin, Cubin) else cubin
    tool = find_tool("nvdisasm")
    if tool is None:
        raise LabError(
            "The machine code cannot be shown as text here.",
            "nvdisasm is missing",
            "registers, shared memory and spills, which need no disassembly; the package "
            "nvidia-cuda-nvdisasm brings nvdisasm for Linux and Windows",
        )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(image)
        done = subprocess.run(
            [str(tool), *options, str(path)],
            capture_output=True,
            text=True,
            timeout=_TIME_LIMIT_S,
            check=False,
        )
    if done.returncode != 0:
        raise LabError(
            "nvdisasm refused this cubin.",
            done.stderr.strip() or f"it ended with status {done.returncode}",
            "an nvdisasm of the compiler's own version or a later one reads it",
        )
    return done.stdout if entry is None else _cut(done.stdout, entry)


def _cut(text: str, entry: str) -> str:
    marks = list(_SECTION.finditer(text))
    for mark, following in zip(marks, [*marks[1:], None], strict=True):
        if mark["name"] == f".text.{entry}":
            return (
                text[mark.start() : following.start() if following else len(text)].rstrip() + "\n"
            )
    known = [mark["name"].removeprefix(".text.") for mark in marks if ".text." in mark["name"]]
    raise LabError(
        f"This cubin has no kernel called {entry}.",
        f"its kernels are: {', '.join(known) or 'none'}",
        "name one of them",
    )
