"""What a cubin says about its kernels: resources and the hash of their machine code.

A cubin is an ELF file, read with pyelftools. No CUDA tool is asked.
"""

from __future__ import annotations

import hashlib
import io
import math
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from labtools.problem import KernelError, LabError, Launch, Limits

from .hints import kept_lines

_INFO_MAX_THREADS, _INFO_REQUIRED_THREADS, _INFO_CLUSTER = 0x05, 0x10, 0x3D
_INFO_REGISTERS, _INFO_STACK, _INFO_PARAMETER = 0x2F, 0x12, 0x17
_INFO_SIZED = 0x04
_ABI_OF_CUDA_13 = 8
RESERVED_BYTES = 1024
"""Of each block's shared memory, which a file that keeps them for the driver counts in."""


@dataclass(frozen=True)
class Resources:
    """What one kernel asks of an SM."""

    registers: int  # 32-bit registers a thread
    # static shared memory a block, in bytes (without the 1 KB that the driver reserves on compute
    # capability 8.0 and later)
    shared_bytes: int
    local_bytes: int  # local memory (stack) a thread, in bytes
    spill_store_bytes: int  # bytes of registers stored to local memory, a thread
    spill_load_bytes: int  # bytes of registers read back, a thread
    # largest block that ``__launch_bounds__`` allows, or None without it
    max_threads: int | None = None
    # SHA-256 of the kernel's machine code and constants; comments, line numbers and paths do not
    # change it, an instruction does. Empty in a record, as ``max_threads`` is None there.
    code_hash: str = ""
    entry: str = ""  # the kernel's name


@dataclass(frozen=True)
class Cubin:
    """Machine code of one source for one architecture."""

    image: bytes = field(repr=False)  # the ELF file
    arch: str  # for example ``sm_90``
    log: str = field(repr=False)  # what the compiler and the assembler said
    nvrtc_version: str  # for example ``13.5``
    entries: dict[str, Resources]  # resources by kernel name
    name: str = "kernel.cu"  # what the source is called in messages and line tables
    # what the file calls those that are no ``extern "C"`` function
    symbols: Mapping[str, str] = field(default_factory=dict)
    ptx: str = field(default="", repr=False)  # what it was assembled from; empty: nobody knows

    @property
    def keeps_lines(self) -> str:
        """How it marks lines to stay in L2, as `kept_lines` says it; empty: it does not."""
        return kept_lines(self.ptx)

    def symbol_of(self, entry: str) -> str:
        """What the file calls a kernel."""
        return self.symbols.get(entry, entry)

    def resources_of(self, entry: str) -> Resources:
        """The resources of one kernel."""
        if entry in self.entries:
            return self.entries[entry]
        raise no_kernel(self.name, entry, sorted(self.entries))


def no_kernel(file: str, entry: str, kernels: Sequence[str], said: str = "") -> KernelError:
    """What to say of a launch that names a kernel which a file does not have, or not so."""
    why = f"its kernels are: {', '.join(kernels)}" if kernels else "it has none"
    still = "name one of them in the launch, one of a template as in attention<128, 4>"
    still = still if kernels else "a file in which a __global__ function stands"
    said = f"; the compiler says: {said}" if said else ""
    return KernelError(f"{file} has no kernel called {entry}.", why + said, still)


def read_entries(image: bytes, arch: str, log: str | None) -> dict[str, Resources]:
    """Resources of every kernel of a cubin.

    Registers, shared memory, stack and spills are what the assembler reported (``ptxas -v``);
    the launch bound and the code are read from the file itself. Without a report all is, but for
    spills, of which the file says nothing but the stack that they need.
    """
    sections = _read_sections(image)
    names = _entry_names(sections)
    reported = _reported_by(sections, names) if log is None else parse_assembler_log(log)
    entries = {}
    for name in names:
        if name not in reported:
            why = "its report (ptxas -v) has no line for this kernel"
            still = "compile again; if it stays, this compiler's report is in a form not known here"
            raise LabError(f"The assembler said nothing about {name}.", why, still)
        most = _max_threads(sections, name)
        code_hash = _hash_code(sections, names, arch, reported[name])
        entries[name] = replace(reported[name], max_threads=most, code_hash=code_hash)
    return entries


# ---------------------------------------------------------------------------- assembler log


_REPORTED = "registers shared_bytes local_bytes spill_store_bytes spill_load_bytes".split()
"""Fields of `Resources` that the assembler says."""
_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_FUNCTION = re.compile(r"Function properties for (\S+)")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SMEM = re.compile(r"(\d+) bytes smem")
_CUMULATIVE = re.compile(r"(\d+) bytes cumulative stack size")


def parse_assembler_log(log: str) -> dict[str, Resources]:
    """Read ``ptxas -v``: resources by kernel. Called functions count with their caller.

    It says nothing of the launch bound and the code.
    """
    reported: dict[str, dict[str, Any]] = {}
    current: dict[str, int] | None = None
    name = function = ""
    for line in log.splitlines():
        if entry := _ENTRY.search(line):
            name = function = entry[1]
            current = dict.fromkeys(_REPORTED, 0)
        elif properties := _FUNCTION.search(line):
            function = properties[1]
        elif current is None:
            continue
        elif stack := _STACK.search(line):
            if function == name:
                current["local_bytes"] = int(stack[1])
            current["spill_store_bytes"] += int(stack[2])
            current["spill_load_bytes"] += int(stack[3])
        elif used := _USED.search(line):
            current["registers"] = int(used[1])
            if smem := _SMEM.search(line):
                current["shared_bytes"] = int(smem[1])
            if cumulative := _CUMULATIVE.search(line):
                current["local_bytes"] = max(current["local_bytes"], int(cumulative[1]))
            reported[name] = current  # only now is the kernel's report complete
    return {name: Resources(**found, entry=name) for name, found in reported.items()}


# ------------------------------------------------------------------------------------- ELF


def _read_sections(image: bytes) -> list[Any]:
    """The sections of a cubin, pyelftools' own objects, in the file's order."""
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    try:
        return list(ELFFile(io.BytesIO(image)).iter_sections())
    except ELFError as error:
        why = f"a cubin is an ELF file and these bytes do not read like one ({error})"
        raise LabError("This is not a cubin.", why, "compile the source again") from error


def _find_section(sections: Sequence[Any], name: str) -> Any | None:
    return next((section for section in sections if section.name == name), None)


def _data(section: Any | None) -> bytes:
    """What a section holds in the file; nothing where it only takes room in memory."""
    if section is None or section["sh_type"] == "SHT_NOBITS":
        return b""
    return bytes(section.data())


def _entry_names(sections: Sequence[Any]) -> list[str]:
    """Kernels: the functions that have both code and a bank of parameters."""
    names = [section.name for section in sections]
    texts = [name.removeprefix(".text.") for name in names if name.startswith(".text.")]
    return [name for name in texts if f".nv.constant0.{name}" in names]


def _info_dims(sections: Sequence[Any], name: str, *wanted: int) -> tuple[int, int, int] | None:
    """Three sizes that a ``.nv.info`` section says of a kernel under one of some attributes."""
    for attribute, body in _info(sections, f".nv.info.{name}"):
        if attribute in wanted and len(body) >= 12:
            return struct.unpack_from("<III", body)
    return None


def _info(sections: Sequence[Any], name: str) -> Iterator[tuple[int, bytes]]:
    """The attributes of a ``.nv.info`` section that have a size, each with its bytes. An entry is a
    format, an attribute, then a value or a size and bytes."""
    data, at = _data(_find_section(sections, name)), 0
    while at + 4 <= len(data):
        form, attribute, value = struct.unpack_from("<BBH", data, at)
        at += 4
        if form == _INFO_SIZED:
            yield attribute, data[at : at + value]
            at += value


def _reported_by(sections: Sequence[Any], names: Sequence[str]) -> dict[str, Resources]:
    """What a cubin itself says of its kernels' registers, shared memory and stack."""
    symbols = _find_section(sections, ".symtab")
    found: dict[str, dict[str, Any]] = {name: dict.fromkeys(_REPORTED, 0) for name in names}
    attributes = {_INFO_REGISTERS: "registers", _INFO_STACK: "local_bytes"}
    for attribute, body in _info(sections, ".nv.info"):
        if attribute in attributes and symbols is not None:
            symbol, value = struct.unpack_from("<II", body)
            if (name := symbols.get_symbol(symbol).name) in found:
                found[name][attributes[attribute]] = value
    reserved = _find_section(sections, ".nv.shared.reserved.0") is not None
    for name in names:
        shared = _find_section(sections, f".nv.shared.{name}")
        size = int(shared["sh_size"]) if shared is not None else 0
        found[name]["shared_bytes"] = max(0, size - RESERVED_BYTES * reserved)
    return {name: Resources(**one, entry=name) for name, one in found.items()}


def parameter_places(image: bytes, symbol: str) -> list[tuple[int, int]]:
    """The parameters of a kernel of a cubin in order: bytes before each, and its own."""
    found = {}
    for attribute, body in _info(_read_sections(image), f".nv.info.{symbol}"):
        if attribute == _INFO_PARAMETER:
            _, number, place, size = struct.unpack_from("<IHHI", body)
            found[number] = (place, size >> 18)
    return [found[number] for number in sorted(found)]


def parameter_bytes(image: bytes, symbol: str) -> list[int]:
    """Bytes of each parameter of a kernel of a cubin, in order."""
    return [size for _, size in parameter_places(image, symbol)]


def read_cubin(path: Path, name: str = "") -> Cubin:
    """A file of machine code, whoever made it. Raises LabError: it is none, or holds no kernel."""
    cubin = cubin_of(path.read_bytes(), name or str(path))
    if not cubin.entries:
        why = "no function in it has parameters; of a template only what is launched is there"
        raise LabError(f"{name or path} holds no kernel.", why, "a file that launches its kernel")
    return replace(cubin, name=name or path.name)


def cubin_of(image: bytes, name: str) -> Cubin:
    """The same of what stands in a file, which may hold no kernel; ``name`` is what messages call
    it."""
    from elftools.common.exceptions import ELFError

    damaged = (ELFError, OverflowError, UnicodeError, struct.error, LookupError, AssertionError)
    try:
        return _read_image(image, name)
    except damaged as error:
        what, why = f"{name} cannot be read.", f"its ELF is damaged: {error}"
        raise LabError(what, why, "the file as the compiler made it") from error


def _read_image(image: bytes, path: str) -> Cubin:
    from elftools.elf.elffile import ELFFile

    elf = ELFFile(io.BytesIO(image))
    if elf["e_machine"] != "EM_CUDA":
        what = f"{path} is no machine code of a GPU."
        raise LabError(what, f"it is an ELF file for {elf['e_machine']}", "a .cubin or a .cu")
    flags, new = elf["e_flags"], elf["e_ident"]["EI_ABIVERSION"] >= _ABI_OF_CUDA_13
    arch = f"sm_{flags >> 8 & 0xFF if new else flags & 0xFF}"
    return Cubin(image, arch, "", "", read_entries(image, arch, None), path)


def _max_threads(sections: Sequence[Any], name: str) -> int | None:
    dims = _info_dims(sections, name, _INFO_MAX_THREADS, _INFO_REQUIRED_THREADS)
    return dims and math.prod(dims)


def refuse_launch(cubin: Cubin, launch: Launch, limits: Limits) -> None:
    """A LabError for a launch that a GPU refuses: by the registers or the shared memory that it
    needs, the threads that the kernel is bound to, or a grid of parts of its clusters."""
    sections, found = _read_sections(cubin.image), cubin.resources_of(launch.entry)
    symbol = cubin.symbol_of(launch.entry)
    threads, instead = launch.num_threads, "another launch, or another __launch_bounds__"
    why = ""
    if (needed := found.registers * threads) > limits.registers_per_sm:
        why = f"they need {needed} registers together and a block has {limits.registers_per_sm}"
        instead = "fewer threads, or __launch_bounds__, which makes the compiler use fewer"
    elif (exact := _info_dims(sections, symbol, _INFO_REQUIRED_THREADS)) not in (
        None,
        launch.block,
    ):
        why = f"it is compiled for blocks of {exact} threads and no others"
    elif found.max_threads is not None and threads > found.max_threads:
        why = f"its __launch_bounds__ allow {found.max_threads}"
    if why:
        what = f"{launch.entry} cannot be launched with {threads} threads a block."
        raise LabError(what, why, instead)
    if (needed := found.shared_bytes + launch.smem_bytes) > limits.smem_per_block_bytes:
        what = f"{launch.entry} cannot be launched with {launch.smem_bytes} bytes of shared memory."
        why = (
            f"with its arrays of fixed size a block needs {needed} bytes, and may have "
            f"{limits.smem_per_block_bytes}"
        )
        raise LabError(what, why, "less of it")
    cluster = _info_dims(sections, symbol, _INFO_CLUSTER)
    if cluster and any(grid % size for grid, size in zip(launch.grid, cluster, strict=True)):
        what = f"{launch.entry} cannot be launched with a grid of {launch.grid} blocks."
        raise LabError(what, f"its blocks come in clusters of {cluster}", "a multiple of that")


_BANK = re.compile(r"(?P<relocations>\.rela?)?\.nv\.constant(?P<number>\d+)(?:\.(?P<entry>.+))?")


def _hash_code(
    sections: Sequence[Any], entries: Sequence[str], arch: str, reported: Resources
) -> str:
    """SHA-256 over what the GPU executes and what decides how many copies of it fit."""
    digest, name = hashlib.sha256(), reported.entry

    def add(label: str, data: bytes) -> None:
        digest.update(f"{label} {len(data)}\n".encode())
        digest.update(data)

    resources = f"{reported.registers} {reported.shared_bytes} {reported.local_bytes}"
    add("arch", arch.encode())
    add("resources", resources.encode())
    own = f".text.{name}"
    others = {f".text.{entry}" for entry in entries} - {own}
    for section in sections:
        label = section.name
        if label == own:
            add("text", _data(section))
        elif label.startswith(".text.") and label not in others:
            add("called " + label.split("$")[0], _data(section))  # functions that were not inlined
        elif label in (".rela" + own, ".rel" + own):
            add("relocations", _describe_relocations(section, sections).encode())
        elif bank := _BANK.fullmatch(label):
            if bank["entry"] not in (None, name):
                continue  # another kernel's bank; a bank without a name belongs to all
            moved = bank["relocations"] is not None
            data = _describe_relocations(section, sections).encode() if moved else _data(section)
            add(f"{bank['relocations']} constant {bank['number']}", data)
        elif label == ".nv.global.init":
            add(label, _data(section))
    return digest.hexdigest()


def _describe_relocations(section: Any, sections: Sequence[Any]) -> str:
    """One line a relocation: where, its kind, what is added, and what it points at.

    A target is a section with offset and size; it is named only where it lies outside the file.
    Names of internal symbols carry a hash of the source's path, so they may not be used.
    """
    from elftools.elf.enums import ENUM_ST_INFO_TYPE

    symbols = _find_section(sections, ".symtab")
    lines = []
    for one in section.iter_relocations():
        info = one["r_info"]
        added = [one["r_addend"]] if one.is_RELA() else []
        symbol = symbols.get_symbol(info >> 32)  # type: ignore[union-attr]
        index = symbol["st_shndx"]
        if isinstance(index, int) and index < len(sections):
            kind = symbol["st_info"]["type"]
            number = ENUM_ST_INFO_TYPE.get(kind, kind)
            target = f"{sections[index].name} {symbol['st_value']} {symbol['st_size']} {number}"
        else:
            target = f"outside {symbol.name}"
        lines.append(f"{one['r_offset']} {info & 0xFFFFFFFF} {added} {target}")
    return "\n".join(lines)
