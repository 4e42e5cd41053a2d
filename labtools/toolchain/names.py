"""Names of kernels: as C++ has them, and as machine code does."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Collection

from .cubin import no_kernel


def last_name(name: str) -> str:
    """A kernel's own name, without its namespaces and its template's arguments."""
    return name.partition("<")[0].rpartition("::")[2].strip()


def find_symbol(entries: Collection[str], file: str, name: str) -> str:
    """What a file calls a kernel: the name itself, or the only one that C++ makes of it."""
    if name in entries:
        return name
    plain = last_name(name)
    found = [one for one in entries if f"{len(plain)}{plain}" in one]
    named = {one: _plain_name(demangled(one)) for one in found}
    if plain != name:
        wanted = _plain_name(name)
        found = [one for one in found if f"::{named[one]}".endswith(f"::{wanted}")]
    if len(found) != 1:
        raise no_kernel(file, name, sorted(named.values()) or sorted(map(demangled, entries)))
    return found[0]


_ALIASES = {
    **{"uint8_t": "unsigned char", "int8_t": "signed char", "uint16_t": "unsigned short"},
    **{
        "int16_t": "short",
        "uint32_t": "unsigned int",
        "int32_t": "int",
        "uint64_t": "unsigned long",
    },
    **{"int64_t": "long", "size_t": "unsigned long", "half": "__half"},
}


def _plain_name(name: str) -> str:
    """A kernel of C++ with its template's arguments in one form: no blanks, no suffix of a number,
    types by their own names."""
    name = re.sub(
        r"\b(\d+)[uUlL]+\b", r"\1", re.sub(r"\((?:unsigned|long|[\w:]+)\)(?=\d)", "", name)
    )
    name = re.sub(r"\w+", lambda one: _ALIASES.get(one[0], one[0]), name)
    return re.sub(r"\s+", "", name)


def demangled(symbol: str) -> str:
    """A kernel as C++ names it, without its parameters."""
    tool = shutil.which("c++filt") or shutil.which("llvm-cxxfilt")
    if tool is None:
        return symbol
    said = subprocess.run([tool, "-p", symbol], capture_output=True, text=True, check=False)
    return said.stdout.strip().removeprefix("void ")
