"""The typed machine code of a rung: compiled here, or read from a listing that was stored.

A stored listing (``kernels/listings/<arch>/<rung>.json.gz``, by `tools.write_listings`) stands in
for a compilation of the same text, definitions and headers by the same compiler; where there is no
compiler (macOS), whichever version made it. A table holds each line once, without addresses.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import hashlib
import json
import re
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from labtools.problem import LabError, Limits, Problem, Rung, kernels_dir, repository_root
from labtools.problem.text import counted_lines

from .cache import Recent, binary_mark, code_digest, content_key
from .compiler import (
    compilation,
    compile_cubin,
    compile_rung,
    cpp_entries,
    expanded_text,
    find_compiler,
    source_name,
)
from .cubin import Cubin, Resources, say_compiler
from .errors import CompileError, CompilerMissing
from .options import C_HEADERS, all_include_dirs, check_arch, cuda_include_dir
from .sass import (
    CODE_LINE,
    HIGH_LINE,
    LISTING_OPTIONS,
    Sass,
    SourceLine,
    disassemble,
    disassembler,
    is_disassembled,
    parse_listings,
)
from .sources import hash_source
from .triton_code import is_of_triton, is_triton_here

INSTRUCTION_BYTES = 16
"""Length of one instruction from Volta on."""
CUDA_PREFIX = "cuda/"
"""Stands before the name of a header that came with the compiler."""

_FILE = r'//## File "([^"]*)"'
_READER = code_digest("problem", "toolchain")
"""The code that makes typed instructions of a cubin, as it was when this was imported."""


@dataclass(frozen=True)
class MachineCode:
    """Every kernel of one source for one architecture."""

    rung_id: str  # whose code it is
    arch: str  # for example ``sm_90``
    entries: Mapping[str, Sass] = field(repr=False)  # typed instructions by kernel name
    resources: Mapping[str, Resources]  # registers, shared memory and spills by kernel name
    origin: str  # ``compiled here with NVRTC 13.0`` or ``stored listing, NVRTC 13.0``
    stored: bool  # True where the code is a stored listing
    nvrtc_version: str  # the compiler that made it
    compile_s: float  # seconds from the source to typed instructions, or to those that were kept
    source_hash: str  # as in `Hashes`
    content: str  # a hash that two codes share only if their typed instructions are equal


class _LateEntries(Mapping[str, Sass]):
    """Typed instructions, made of a listing when asked for: that takes less than loading them."""

    def __init__(self, names: Iterable[str], read: Callable[[], Mapping[str, Sass]]) -> None:
        self._names, self._read = tuple(names), read

    @cached_property
    def _all(self) -> Mapping[str, Sass]:
        return self._read()

    def __getitem__(self, name: str) -> Sass:
        if name not in self._names:
            raise KeyError(name)
        return self._all[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __repr__(self) -> str:
        return repr(dict(self))


@dataclass(frozen=True)
class StoredListing:
    """One listing as it is kept in a file."""

    source_hash: str  # of what the source says, with definitions and headers
    text_hash: str  # comments included; line numbers hold where it is equal
    nvrtc_version: str  # the compiler
    defines: Mapping[str, str]  # preprocessor definitions
    resources: Mapping[str, Resources]  # by kernel name
    lines: tuple[str, ...] = field(repr=False)  # the listing, line by line, without addresses

    @property
    def listing(self) -> str:
        """The listing in the form that nvdisasm prints."""
        return expand_lines(self.lines)


_codes: Recent[MachineCode] = Recent(96)


def machine_code(
    rung: Rung,
    workload: Problem,
    limits: Limits,
    knobs: Mapping[str, int] | None = None,
    arch: str | None = None,
) -> MachineCode:
    """The typed machine code of a rung for a workload, a GPU and knobs; ``arch`` names another
    architecture than that of ``limits``, for the same layout.

    Raises CompileError: the source does not compile. LabError: nothing here can compile or
    disassemble it and no stored listing matches.
    """
    arch = check_arch(arch or limits.arch)
    if is_of_triton(rung):
        cubin = compile_rung(rung, workload, limits, knobs, arch)
        how = "compiled here with" if is_triton_here() else "assembled here from stored PTX of"
        origin = f"{how} {say_compiler(cubin.nvrtc_version)}"
        return dataclasses.replace(code_of_cubin(cubin), rung_id=rung.id, origin=origin)
    defines = rung.defines(workload, limits, knobs)
    # The text itself and not what it says: an added comment moves the line numbers.
    text = expanded_text(rung)
    entries = cpp_entries(text, rung, workload, limits, knobs)
    key = (hash_text(text), repr(sorted(defines.items())), arch, source_name(rung), *entries)
    known = _codes.get(key)
    if known is not None:
        return known
    began = time.perf_counter()
    alike = _stored_alike(rung, defines, arch)
    if alike is not None:
        code = _of_stored(alike, rung, arch, began)
    else:
        try:
            code = _compile(rung, defines, arch, began, entries)
        except CompileError:
            raise
        except LabError as error:
            instead = _stored_of(rung, defines, arch)  # whichever version made it
            if instead is None:
                raise _no_code(rung, defines, arch, error) from error
            code = _of_stored(instead, rung, arch, began)
    _codes.put(key, code)
    return code


def source_text_of(line: SourceLine | None, rung: Rung) -> str | None:
    """The text of the line that an instruction comes from, edited or not; None where it is not
    here."""
    if line is None:
        return None
    text = _text_of_file(line.file, rung)
    lines = counted_lines(text, line.file) if text is not None else []
    return lines[line.line - 1].rstrip() if 1 <= line.line <= len(lines) else None


# ------------------------------------------------------------------------------- compiled here


def _compile(
    rung: Rung, defines: Mapping[str, str], arch: str, began: float, asked: Sequence[str]
) -> MachineCode:
    cubin = compilation(rung, rung.target(arch), defines, "auto", asked)()
    # The names of files are in the code's line table, and the folders say what to cut off them.
    named = (source_name(rung), rung.text is None, repository_root(), cuda_include_dir())
    parts = (_READER, cubin.image, binary_mark(disassembler()), named)

    def read() -> dict[str, Sass]:
        return _by_entry(parse_listings(portable_listing(cubin, rung)), cubin)

    entries = _LateEntries(cubin.entries, read)
    if not is_disassembled(cubin, LISTING_OPTIONS):
        len(entries._all)  # what goes wrong goes wrong here, where a stored listing can stand in
    return MachineCode(
        rung_id=rung.id,
        arch=arch,
        entries=entries,
        resources=cubin.entries,
        origin=f"compiled here with {say_compiler(cubin.nvrtc_version)}",
        stored=False,
        nvrtc_version=cubin.nvrtc_version,
        compile_s=time.perf_counter() - began,
        source_hash=hash_source(rung.source_text, defines, rung.include_dirs),
        content=content_key(*parts),
    )


def _by_entry(found: dict[str, Sass], cubin: Cubin) -> dict[str, Sass]:
    """The listings, those of kernels that the file calls otherwise by both names."""
    named = {entry: found[of] for entry, of in cubin.symbols.items() if of in found}
    return found | {e: dataclasses.replace(one, entry=e) for e, one in named.items()}


def code_of_cubin(cubin: Cubin) -> MachineCode:
    """The typed machine code of a file that was compiled elsewhere.

    Raises LabError: nvdisasm is missing, or refuses it.
    """
    began = time.perf_counter()
    parts = (_READER, cubin.image, binary_mark(disassembler()), *cubin.symbols.items())
    sass = _by_entry(parse_listings(disassemble(cubin, None, LISTING_OPTIONS)), cubin)
    return MachineCode(
        rung_id=cubin.name,
        arch=cubin.arch,
        entries=sass,
        resources=cubin.entries,
        origin="read from the file",
        stored=False,
        nvrtc_version="",
        compile_s=time.perf_counter() - began,
        source_hash="",
        content=content_key(*parts),
    )


_STACK_PLACE = re.compile(r"\[R1(?:\+(-?0x[0-9a-f]+))?\]")


def with_spills(cubin: Cubin) -> Cubin:
    """A cubin without the assembler's report, its spills read from the machine code: what goes to
    a fixed place of the stack and comes back from there. An array, whose elements are found by an
    index, is none."""
    if not any(one.local_bytes for one in cubin.entries.values()):
        return cubin
    code, found = code_of_cubin(cubin).entries, {}
    for name, one in cubin.entries.items():
        words: dict[str, list[int]] = {"STL": [], "LDL": []}
        for each in code[name].instructions:
            if each.base in words and (place := _STACK_PLACE.search(each.text)):
                first = int(place[1] or "0", 16)
                words[each.base] += range(first, first + each.access_bytes)
        stored, loaded = (
            sum(map(frozenset(words[other]).__contains__, words[base]))
            for base, other in (("STL", "LDL"), ("LDL", "STL"))
        )
        found[name] = dataclasses.replace(one, spill_store_bytes=stored, spill_load_bytes=loaded)
    return dataclasses.replace(cubin, entries=found)


def portable_listing(cubin: Cubin, rung: Rung) -> str:
    """The listing of all kernels, its source lines named by paths that hold on every machine."""
    listing = disassemble(cubin, None, LISTING_OPTIONS)
    files = {file: portable_name(file, rung) for file in set(re.findall(_FILE, listing))}
    return re.sub(_FILE, lambda match: f'//## File "{files[match[1]]}"', listing)


def portable_name(file: str, rung: Rung) -> str:
    """A file as the compiler named it, relative to the project or to CUDA's headers, if it is below
    one; an edited cell is named like `source_name`."""
    if rung.text is not None and Path(file).name == source_name(rung):
        return source_name(rung)
    path = Path(file).resolve()
    cuda = cuda_include_dir()
    folders = [(cuda, CUDA_PREFIX), (repository_root(), ""), (C_HEADERS, CUDA_PREFIX)]
    for folder, prefix in folders:
        if folder is not None and path.is_relative_to(folder.resolve()):
            return prefix + path.relative_to(folder.resolve()).as_posix()
    return path.as_posix()


def _text_of_file(file: str, rung: Rung) -> str | None:
    place = repository_root() / file  # which is the file where its path is absolute
    if file == source_name(rung) or place.resolve() == rung.source.resolve():
        return rung.source_text
    candidates = [place]
    if file.startswith(CUDA_PREFIX):
        candidates = [folder / file.removeprefix(CUDA_PREFIX) for folder in all_include_dirs()]
    for path in candidates:
        with contextlib.suppress(OSError):
            return path.read_text("utf-8", errors="replace")
    return None


def text_hash_of(rung: Rung) -> str:
    """`hash_text` of a rung's source with its own headers."""
    return hash_text(expanded_text(rung))


def hash_text(text: str) -> str:
    """SHA-256 of a text, comments included."""
    return hashlib.sha256(text.encode()).hexdigest()


# -------------------------------------------------------------------------------------- stored


def listings_dir() -> Path:
    """The folder of the stored listings."""
    return kernels_dir() / "listings"


def stored_path(rung_id: str, arch: str) -> Path:
    """The file that holds the listings of one rung for one architecture."""
    return listings_dir() / arch / f"{rung_id}.json.gz"


def read_stored(path: Path) -> list[StoredListing]:
    """The listings of one file."""
    try:
        return list(_read_file(path, path.stat().st_mtime_ns))
    except (OSError, EOFError, zlib.error, ValueError, LookupError, TypeError) as error:
        what = f"The stored listings in {path.name} cannot be read."
        still = "the other listings; make regen writes all of them anew"
        raise LabError(what, f"{type(error).__name__}: {error}", still) from error


@lru_cache(maxsize=16)
def _read_file(path: Path, _changed: int) -> tuple[StoredListing, ...]:
    data = json.loads(gzip.decompress(path.read_bytes()))
    table = data["lines"]
    return tuple(
        StoredListing(
            source_hash=one["source_hash"],
            text_hash=one["text_hash"],
            nvrtc_version=data["nvrtc_version"],
            defines=one["defines"],
            resources={
                name: Resources(**found, entry=name) for name, found in one["resources"].items()
            },
            lines=unpack_lines(table, one["lines"]),
        )
        for one in data["listings"]
    )


_STORED_FIELDS = ("source_hash", "text_hash", "defines", "resources", "lines")


def write_stored(path: Path, arch: str, listings: Iterable[StoredListing]) -> bool:
    """Write the listings of one rung and architecture; says whether the file changed."""
    listings = list(listings)
    versions = {one.nvrtc_version for one in listings}
    if len(versions) != 1:
        what = f"The listings of {path.name} cannot be stored in one file."
        why = f"they come from the compilers {sorted(versions)}"
        raise LabError(what, why, "compile all of them with one")
    table, runs = pack_lines(one.lines for one in listings)
    stored = []
    for listing, numbers in zip(listings, runs, strict=True):
        held = dataclasses.asdict(listing) | {"lines": numbers}
        for found in held["resources"].values():
            del found["entry"]
        stored.append({name: held[name] for name in _STORED_FIELDS})
    head = {"arch": arch, "nvrtc_version": versions.pop()}
    data: dict[str, Any] = {**head, "lines": table, "listings": stored}
    text = json.dumps(data, indent=0, ensure_ascii=True)
    if path.is_file() and gzip.decompress(path.read_bytes()).decode() == text:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    return True


def make_stored(
    rung: Rung, workload: Problem, limits: Limits, knobs: Mapping[str, int]
) -> StoredListing:
    """Compile a rung and take its listing down to what is kept."""
    defines = rung.defines(workload, limits, knobs)
    target = rung.target(limits.arch)
    cubin = compile_cubin(rung.source_text, target, defines, source_name(rung), rung.include_dirs)
    return StoredListing(
        source_hash=hash_source(rung.source_text, defines, rung.include_dirs),
        text_hash=text_hash_of(rung),
        nvrtc_version=cubin.nvrtc_version,
        defines=defines,
        resources=cubin.entries,
        lines=tuple(compact_lines(portable_listing(cubin, rung))),
    )


def _listings_of(rung: Rung, arch: str) -> list[StoredListing]:
    path = stored_path(rung.id, arch)
    return read_stored(path) if path.is_file() else []


def _stored_of(rung: Rung, defines: Mapping[str, str], arch: str) -> StoredListing | None:
    wanted = hash_source(rung.source_text, defines, rung.include_dirs)
    return next((kept for kept in _listings_of(rung, arch) if kept.source_hash == wanted), None)


def _stored_alike(rung: Rung, defines: Mapping[str, str], arch: str) -> StoredListing | None:
    """The listing that a compilation here would give: of this very text, by this version."""
    try:
        alike = (find_compiler().version, text_hash_of(rung))
        found = _stored_of(rung, defines, arch)
    except LabError:  # no compiler, or a damaged file, which costs a compilation
        return None
    return found if found and (found.nvrtc_version, found.text_hash) == alike else None


def _of_stored(found: StoredListing, rung: Rung, arch: str, began: float) -> MachineCode:
    lines_hold = found.text_hash == text_hash_of(rung)

    def parsed() -> dict[str, Sass]:
        entries = parse_listings(found.listing)
        if not lines_hold:
            # Comments or spaces differ: the same code, but its line numbers are of another text.
            for name, sass in entries.items():
                bare = (dataclasses.replace(one, source=None) for one in sass.instructions)
                entries[name] = dataclasses.replace(sass, instructions=tuple(bare))
        return {name: entries[name] for name in found.resources}

    return MachineCode(
        rung_id=rung.id,
        arch=arch,
        entries=_LateEntries(found.resources, parsed),
        resources=found.resources,
        origin=f"stored listing, NVRTC {found.nvrtc_version}",
        stored=True,
        nvrtc_version=found.nvrtc_version,
        compile_s=time.perf_counter() - began,
        source_hash=found.source_hash,
        content=content_key(_READER, found.lines, lines_hold),
    )


def _no_code(rung: Rung, defines: Mapping[str, str], arch: str, because: LabError) -> LabError:
    """What to say where nothing can be compiled and no stored listing matches."""

    def says(values: Mapping[str, str]) -> str:
        return ", ".join(f"{name.lower()} {value}" for name, value in sorted(values.items()))

    why = because.clause
    if isinstance(because, CompilerMissing):
        why = f"there is no CUDA compiler here ({because.why or because.what})"
    listings = _listings_of(rung, arch)
    archs = sorted(path.parent.name for path in listings_dir().glob(f"*/{rung.id}.json.gz"))
    still = f"this kernel on {', '.join(archs)}" if archs else "the shipped kernels"
    if any(stored.defines == dict(defines) for stored in listings):
        why += "; the stored listing was made from another source than this one"
        still = "the unedited kernel"
    elif listings:
        why += f"; of {rung.id}, listings are stored for {arch} with other values"
        some = "; or ".join(says(stored.defines) for stored in listings[:3])
        more = f" and {len(listings) - 3} more" if len(listings) > 3 else ""
        still = f"this kernel with {some}{more}"
    else:
        why += f"; no listing of {rung.id} is stored for {arch}"
    still += "; the roofline floors and the recorded measurements. Linux and Windows have the "
    still += "compiler as packages: cuda-core, nvidia-cuda-nvrtc, nvidia-cuda-nvdisasm"
    what = f"The machine code of {rung.id} for {arch} with {says(defines)} is not at hand."
    return LabError(what, why, still)


# -------------------------------------------------------------------------------- compact lines

_KEPT_LINE = re.compile(r"^\s*(\.target\s|\.section\s+\.text\.|//## File |[.\w$]+:\s*$)")
_STORED_CODE = re.compile(r"^(?P<low>[0-9a-f]{16}) (?P<high>[0-9a-f]{16}) (?P<text>.*)$")


def compact_lines(listing: str) -> list[str]:
    """A listing without what no reader of it needs: comments of columns, blanks, addresses."""
    kept: list[str] = []
    address = 0
    for line in listing.splitlines():
        code = CODE_LINE.match(line)
        if code:
            if int(code["address"], 16) != address:
                what = "This listing cannot be stored without its addresses."
                why = f"an instruction stands at {code['address']}, not at {address:04x}"
                raise LabError(what, why, "keep it as nvdisasm printed it")
            address += INSTRUCTION_BYTES
            kept.append(f"{code['low']} {code['text']}")
            continue
        high = HIGH_LINE.match(line)
        if high:
            low, _, text = kept[-1].partition(" ")
            kept[-1] = f"{low} {high['high']} {text}"
        elif _KEPT_LINE.match(line):
            if line.lstrip().startswith(".section"):
                address = 0
            kept.append(" ".join(line.split()))
    return kept


def expand_lines(lines: Iterable[str]) -> str:
    """What `compact_lines` took down, in the form that nvdisasm prints."""
    shown: list[str] = []
    address = 0
    for line in lines:
        code = _STORED_CODE.match(line)
        if code:
            text = f"        /*{address:04x}*/                   {code['text']} ;"
            shown.append(f"{text:<107}/* 0x{code['low']} */")
            shown.append(f"{'':<107}/* 0x{code['high']} */")
            address += INSTRUCTION_BYTES
        elif line.startswith("."):
            if line.startswith(".section"):
                address = 0
            shown.append(line if line.endswith(":") else f"\t{line}")
        else:
            shown.append(f"\t{line}" if line.startswith("//") else line)
    return "\n".join(shown) + "\n"


def pack_lines(listings: Iterable[Iterable[str]]) -> tuple[list[str], list[str]]:
    """A table that holds each line once, and each listing's places in it, for `unpack_lines`."""
    table: dict[str, int] = {}
    runs = [_write_runs(table.setdefault(line, len(table)) for line in lines) for lines in listings]
    return list(table), runs


def unpack_lines(table: Sequence[str], runs: str) -> tuple[str, ...]:
    """The lines of one listing that `pack_lines` took down."""
    lines: list[str] = []
    for run in runs.split():
        first, _, last = run.partition("-")
        lines += table[int(first) : int(last or first) + 1]
    return tuple(lines)


def _write_runs(numbers: Iterable[int]) -> str:
    """Numbers as text, runs of consecutive ones as ``first-last``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return " ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs)
