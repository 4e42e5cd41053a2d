"""Machine code and PTX that the host's program carries: the section that nvcc puts into it."""

from __future__ import annotations

import ctypes
import ctypes.util
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from labtools.problem import LabError

_MAGIC = 0xBA55ED50
_SECTIONS = (".nv_fatbin", "__nv_relfatbin")
_HEAD, _ENTRY = struct.Struct("<IHHQ"), struct.Struct("<HHIQIIIIIIQQQ")
_PTX, _CUBIN = 1, 2
_PACKED_BY = {0x2000: "lz4", 0x8000: "zstd"}
_MOST_UNPACKED = 2**28
"""Bytes that an image may have."""


@dataclass(frozen=True)
class FatImage:
    """A cubin or PTX of one architecture, as the file keeps it."""

    is_ptx: bool
    arch: str  # such as ``sm_90``
    stored: bytes
    packed_by: str  # ``lz4`` or ``zstd``; empty: nothing
    size: int  # bytes when it is unpacked

    def data(self) -> bytes:
        """The cubin, or the text of the PTX.

        Raises LabError: it is damaged, or the library that unpacks it is not here.
        """
        if not self.packed_by:
            return self.stored.rstrip(b"\0") if self.is_ptx else self.stored
        unpacked = _unpack(self.packed_by, self.stored, self.size)
        return unpacked.rstrip(b"\0") if self.is_ptx else unpacked


def _unpack(by: str, stored: bytes, size: int) -> bytes:
    path = ctypes.util.find_library(by)
    if path is None:
        what, why = f"The machine code is compressed with {by}.", f"lib{by} is not here"
        raise LabError(what, why, "nvcc -no-compress leaves it as it is")
    library, made = ctypes.CDLL(path), ctypes.create_string_buffer(size)
    if by == "lz4":
        count = library.LZ4_decompress_safe(stored, made, len(stored), size)
    else:
        library.ZSTD_decompress.restype = ctypes.c_size_t
        places = (ctypes.c_size_t(size), stored, ctypes.c_size_t(len(stored)))
        count = library.ZSTD_decompress(made, *places)
    if count != size:
        why = f"its {by} data are not what their size says"
        raise LabError("A compressed image is damaged.", why, "the file as the linker made it")
    return made.raw


def fat_images(path: Path) -> list[FatImage]:
    """What a shared object, an object file or a program of the host carries for GPUs, in order.

    Raises LabError: it is no ELF file, is damaged, or carries nothing.
    """
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    try:
        with path.open("rb") as file:
            sections = ELFFile(file).iter_sections()
            held = [one.data() for one in sections if one.name in _SECTIONS]
        found = [one for data in held for one in _images(data)]
    except (ELFError, struct.error, UnicodeError, OverflowError, LookupError) as error:
        what, why = f"{path} cannot be read.", f"its ELF is damaged: {error}"
        raise LabError(what, why, "the file as the linker made it") from error
    if not found:
        why = "it has no section .nv_fatbin, or nothing is in it"
        raise LabError(f"{path} carries no machine code of a GPU.", why, "what nvcc has linked")
    return found


def _images(data: bytes) -> Iterator[FatImage]:
    at = data.find(_MAGIC.to_bytes(4, "little"))
    while at >= 0:
        _, _, head, size = _HEAD.unpack_from(data, at)
        place, end = at + head, min(at + head + size, len(data))
        while place + _ENTRY.size <= end:
            entry = _ENTRY.unpack_from(data, place)
            kind, _, own, stored, packed = entry[:5]
            flags, unpacked = entry[10], entry[12]
            if own < _ENTRY.size or not stored or unpacked > _MOST_UNPACKED:
                raise struct.error("an image in it has no size")
            by = next((name for bit, name in _PACKED_BY.items() if flags & bit), "")
            body = data[place + own : place + own + (packed or stored)]
            if kind in (_PTX, _CUBIN):
                yield FatImage(kind == _PTX, f"sm_{entry[7]}", body, by, unpacked)
            place += own + stored
        at = data.find(_MAGIC.to_bytes(4, "little"), max(end, at + 4))
