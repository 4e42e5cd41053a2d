"""What a cubin says about its kernels: resources and the hash of their machine code.

A cubin is an ELF file. Only its section table is needed, so that a GPU machine with nothing but
CuPy can read one.
"""

from __future__ import annotations

import hashlib
import re
import struct
from dataclasses import dataclass, field

from labtools.problem import LabError

_ELF_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION_HEADER = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SHT_RELA, _SHT_NOBITS, _SHT_REL = 4, 8, 9
_INFO_MAX_THREADS, _INFO_REQUIRED_THREADS, _INFO_REGISTERS = 0x05, 0x10, 0x2F
_INFO_SIZED = 0x04


@dataclass(frozen=True)
class Resources:
    """What one kernel asks of an SM.

    Attributes:
        registers: 32-bit registers a thread.
        shared_bytes: static shared memory a block, in bytes (without the 1 KB that the driver
            reserves on compute capability 8.0 and later).
        local_bytes: local memory (stack) a thread, in bytes.
        spill_store_bytes: bytes of registers stored to local memory, a thread.
        spill_load_bytes: bytes of registers read back, a thread.
        max_threads: largest block that ``__launch_bounds__`` allows, or None without it.
        code_hash: SHA-256 of the kernel's machine code and constants; comments, line numbers and
            paths do not change it, an instruction does.
    """

    registers: int
    shared_bytes: int
    local_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    max_threads: int | None
    code_hash: str


@dataclass(frozen=True)
class Cubin:
    """Machine code of one source for one architecture.

    Attributes:
        image: the ELF file.
        arch: for example ``sm_90``.
        log: what the compiler and the assembler said.
        nvrtc_version: for example ``13.5``.
        entries: resources by kernel name.
        name: what the source is called in messages and line tables.
    """

    image: bytes = field(repr=False)
    arch: str
    log: str = field(repr=False)
    nvrtc_version: str
    entries: dict[str, Resources]
    name: str = "kernel.cu"

    def resources_of(self, entry: str) -> Resources:
        """The resources of one kernel.

        Raises:
            LabError: there is no such kernel; says which there are.
        """
        if entry in self.entries:
            return self.entries[entry]
        mangled = [name for name in self.entries if re.match(rf"_Z\d+{re.escape(entry)}", name)]
        why = f"its kernels are: {', '.join(sorted(self.entries)) or 'none'}"
        if mangled:
            why = f'the kernel is there under its C++ name {mangled[0]}; write extern "C" before it'
        raise LabError(
            f"{self.name} has no kernel called {entry}.",
            why,
            'name one of its kernels in the launch, and declare kernels extern "C" __global__ void',
        )


@dataclass(frozen=True)
class _Section:
    name: str
    kind: int
    size: int
    info: int
    data: bytes


def read_entries(image: bytes, arch: str, log: str) -> dict[str, Resources]:
    """Resources of every kernel of a cubin.

    Registers, shared memory, stack and spills are what the assembler reported (``ptxas -v``);
    the launch bound and the code are read from the file itself.

    Raises:
        LabError: the image is no cubin, or the log misses a kernel.
    """
    sections = _read_sections(image)
    reported = parse_assembler_log(log)
    symbols = _Symbols(sections)
    entries = {}
    for name in _entry_names(sections):
        if name not in reported:
            raise LabError(
                f"The assembler said nothing about {name}.",
                "its report (ptxas -v) has no line for this kernel",
                "compile again; if it stays, this compiler's report is in a form not known here",
            )
        found = reported[name]
        entries[name] = Resources(
            registers=found.registers,
            shared_bytes=found.shared_bytes,
            local_bytes=found.local_bytes,
            spill_store_bytes=found.spill_store_bytes,
            spill_load_bytes=found.spill_load_bytes,
            max_threads=_max_threads(sections, name),
            code_hash=_hash_code(sections, symbols, name, arch, found),
        )
    return entries


def read_registers(image: bytes) -> dict[str, int]:
    """Registers a thread by kernel, from the cubin alone (no log)."""
    sections = _read_sections(image)
    symbols = _Symbols(sections)
    table = next((s for s in sections if s.name == ".nv.info"), None)
    found = {}
    for attribute, body in _info_items(table.data if table else b""):
        if attribute == _INFO_REGISTERS:
            index, registers = struct.unpack_from("<II", body)
            found[symbols.name(index)] = registers
    return {name: found[name] for name in _entry_names(sections) if name in found}


# ---------------------------------------------------------------------------- assembler log


@dataclass
class _Reported:
    registers: int = 0
    shared_bytes: int = 0
    local_bytes: int = 0
    spill_store_bytes: int = 0
    spill_load_bytes: int = 0


_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_FUNCTION = re.compile(r"Function properties for (\S+)")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SMEM = re.compile(r"(\d+) bytes smem")
_CUMULATIVE = re.compile(r"(\d+) bytes cumulative stack size")


def parse_assembler_log(log: str) -> dict[str, _Reported]:
    """Read ``ptxas -v``: resources by kernel. Called functions count with their caller."""
    reported: dict[str, _Reported] = {}
    current: _Reported | None = None
    name = function = ""
    for line in log.splitlines():
        if entry := _ENTRY.search(line):
            name = function = entry[1]
            current = _Reported()
        elif properties := _FUNCTION.search(line):
            function = properties[1]
        elif current is None:
            continue
        elif stack := _STACK.search(line):
            if function == name:
                current.local_bytes = int(stack[1])
            current.spill_store_bytes += int(stack[2])
            current.spill_load_bytes += int(stack[3])
        elif used := _USED.search(line):
            current.registers = int(used[1])
            if smem := _SMEM.search(line):
                current.shared_bytes = int(smem[1])
            if cumulative := _CUMULATIVE.search(line):
                current.local_bytes = max(current.local_bytes, int(cumulative[1]))
            reported[name] = current  # only now is the kernel's report complete
    return reported


# ------------------------------------------------------------------------------------- ELF


def _read_sections(image: bytes) -> list[_Section]:
    if len(image) < _ELF_HEADER.size or image[:4] != b"\x7fELF":
        raise LabError(
            "This is not a cubin.",
            "a cubin is an ELF file and these bytes do not begin like one",
            "compile the source again",
        )
    header = _ELF_HEADER.unpack_from(image)
    table, count, names_index = header[6], header[12], header[13]
    raw = [
        _SECTION_HEADER.unpack_from(image, table + i * _SECTION_HEADER.size) for i in range(count)
    ]
    _, _, _, _, names_at, names_size, *_ = raw[names_index]
    names = image[names_at : names_at + names_size]
    sections = []
    for name_at, kind, _flags, _address, offset, size, _link, info, _align, _entry_size in raw:
        name = names[name_at : names.index(b"\0", name_at)].decode()
        data = b"" if kind == _SHT_NOBITS else image[offset : offset + size]
        sections.append(_Section(name, kind, size, info, data))
    return sections


class _Symbols:
    """The symbol table: names by index, and what a symbol points at without its name."""

    def __init__(self, sections: list[_Section]) -> None:
        self._sections = sections
        table = next((s for s in sections if s.name == ".symtab"), None)
        strings = next((s for s in sections if s.name == ".strtab"), None)
        self._strings = strings.data if strings else b""
        data = table.data if table else b""
        self._symbols = list(_SYMBOL.iter_unpack(data[: len(data) // _SYMBOL.size * _SYMBOL.size]))

    def name(self, index: int) -> str:
        at = self._symbols[index][0]
        return self._strings[at : self._strings.index(b"\0", at)].decode()

    def target(self, index: int) -> str:
        """Section, offset and size; the name only for what lies outside the file.

        Names of internal symbols carry a hash of the source's path, so they may not be used.
        """
        _, kind, _, section, value, size = self._symbols[index]
        if section == 0 or section >= len(self._sections):
            return f"outside {self.name(index)}"
        return f"{self._sections[section].name} {value} {size} {kind & 0xF}"


def _entry_names(sections: list[_Section]) -> list[str]:
    """Kernels: the functions that have both code and a bank of parameters."""
    names = {s.name for s in sections}
    texts = [s.name[len(".text.") :] for s in sections if s.name.startswith(".text.")]
    return [name for name in texts if f".nv.constant0.{name}" in names]


def _info_items(data: bytes) -> list[tuple[int, bytes]]:
    """Attributes of a ``.nv.info`` section: format, attribute, then a value or a size and bytes."""
    items, at = [], 0
    while at + 4 <= len(data):
        form, attribute, value = struct.unpack_from("<BBH", data, at)
        at += 4
        body = data[at : at + value] if form == _INFO_SIZED else b""
        at += len(body)
        items.append((attribute, body))
    return items


def _max_threads(sections: list[_Section], name: str) -> int | None:
    info = next((s for s in sections if s.name == f".nv.info.{name}"), None)
    for attribute, body in _info_items(info.data if info else b""):
        if attribute in (_INFO_MAX_THREADS, _INFO_REQUIRED_THREADS) and len(body) >= 12:
            x, y, z = struct.unpack_from("<III", body)
            return x * y * z
    return None


_CONSTANT_BANK = re.compile(
    r"(?P<relocations>\.rela?)?\.nv\.constant(?P<number>\d+)(?:\.(?P<entry>.+))?"
)


def _hash_code(
    sections: list[_Section], symbols: _Symbols, name: str, arch: str, reported: _Reported
) -> str:
    """SHA-256 over what the GPU executes and what decides how many copies of it fit."""
    digest = hashlib.sha256()

    def add(label: str, data: bytes) -> None:
        digest.update(f"{label} {len(data)}\n".encode())
        digest.update(data)

    resources = f"{reported.registers} {reported.shared_bytes} {reported.local_bytes}"
    add("arch", arch.encode())
    add("resources", resources.encode())
    own = f".text.{name}"
    others = {f".text.{entry}" for entry in _entry_names(sections)} - {own}
    for section in sections:
        label = section.name
        if label == own:
            add("text", section.data)
        elif label.startswith(".text.") and label not in others:
            add("called " + label.split("$")[0], section.data)  # functions that were not inlined
        elif label in (".rela" + own, ".rel" + own):
            add("relocations", _describe_relocations(section, symbols).encode())
        elif bank := _CONSTANT_BANK.fullmatch(label):
            if bank["entry"] not in (None, name):
                continue  # another kernel's bank; a bank without a name belongs to all
            moved = bank["relocations"] is not None
            data = _describe_relocations(section, symbols).encode() if moved else section.data
            add(f"{bank['relocations']} constant {bank['number']}", data)
        elif label == ".nv.global.init":
            add(label, section.data)
    return digest.hexdigest()


def _describe_relocations(section: _Section, symbols: _Symbols) -> str:
    form = struct.Struct("<QQq" if section.kind == _SHT_RELA else "<QQ")
    lines = []
    for offset, info, *addend in form.iter_unpack(section.data):
        lines.append(f"{offset} {info & 0xFFFFFFFF} {addend} {symbols.target(info >> 32)}")
    return "\n".join(lines)
