"""CUDA C++ to a cubin with NVRTC: no driver, no GPU and no toolkit needed.

NVRTC is reached through the bindings that cuda-core brings, else through CuPy's, with the same
options. What identifies a compiled rung follows: its machine code, and its source where compilers
differ.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import json
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from labtools.problem import KernelError, LabError, Limits, Problem, Rung, kernels_dir
from labtools.problem.text import first_line

from .apart import (
    OWN_LIMIT_S,
    allowed_s,
    can_work_apart,
    copies_at_once,
    run_compiler,
    threads,
    was_stopped,
)
from .cache import Recent, binary_mark, cache_dir, content_key, kept
from .cubin import Cubin, named_by, no_kernel, read_entries
from .errors import NO_COMPILER_STILL_WORKS, CompileError, CompilerMissing, parse_compile_log
from .nvcc import MOST_ABSENT, NEEDS_NVCC, absent_header, add_header, compile_with_nvcc
from .options import (
    COMMON_OPTIONS,
    CUPY_ADDED_OPTIONS,
    all_include_dirs,
    check_arch,
    define_options,
    name_lines,
    split_arch,
)
from .sources import (
    device_part,
    expand_includes,
    has_cpp_kernels,
    has_host_code,
    hash_source,
    kernels_in,
    normalise_source,
    odd_include,
    used_headers,
)
from .triton_code import compile_triton, is_of_triton

CompilerName = Literal["auto", "live", "cuda-core", "cupy"]
_FIRST_CHOICES = {"auto": ("cuda-core", "cupy"), "live": ("cupy", "cuda-core")}
"""``live`` takes CuPy's NVRTC, as `cupy.RawKernel` does, where it is there."""

KERNEL_LIMIT_S = 15.0
"""Seconds of processor time for a kernel that somebody wrote; shipped ones take up to 4."""
_LOADED = Path("/proc/self/maps")
"""Linux lists the libraries of this process there."""
_cubins: Recent[Cubin] = Recent(256)


@dataclass(frozen=True)
class Compiler:
    """A reachable NVRTC."""

    name: str  # ``cuda-core`` or ``cupy``, the package that reaches it
    version: str  # NVRTC's own version, for example ``13.5``

    def __str__(self) -> str:
        return f"NVRTC {self.version} through {self.name}"


def find_compiler(compiler: CompilerName = "auto") -> Compiler:
    """The NVRTC that will compile: cuda-core's, else CuPy's; ``live`` begins with CuPy's.

    Raises CompilerMissing: none can be reached; says why for each.
    """
    reasons = []
    for name in _FIRST_CHOICES.get(compiler, (compiler,)):
        try:
            version = _nvrtc_version(name)
        except Exception as error:  # a missing library surfaces as any of a dozen types
            reasons.append(f"{name}: {type(error).__name__}: {first_line(str(error))}")
        else:
            return Compiler(name, version)
    still = f"{NO_COMPILER_STILL_WORKS}. To compile without a GPU, install the packages cuda-core, "
    still += "nvidia-cuda-nvrtc, nvidia-cuda-runtime and nvidia-cuda-crt (there are none for macOS)"
    raise CompilerMissing("There is no CUDA compiler here.", "; ".join(reasons), still)


def compile_cubin(
    source: str,
    arch: str,
    defines: Mapping[str, str] | None = None,
    name: str = "kernel.cu",
    include_dirs: Iterable[Path | str] = (),
    compiler: CompilerName = "auto",
    limit_s: float = OWN_LIMIT_S,
    entries: Sequence[str] = (),
) -> Cubin:
    """Compile CUDA C++ for a named architecture.

    ``entries`` are kernels as C++ names them, and of templates those that are wanted; without it
    each has the name that the file gives it, that of an ``extern "C"`` function its own.

    ``name`` is what messages and line tables call the source; ``include_dirs`` are searched before
    ``kernels/include`` and CUDA's headers; ``limit_s`` is processor time, of which
    ``LABTOOLS_COMPILE_LIMIT_S`` allows more.

    Raises CompileError: the source does not compile, and names the line; or it takes too long, or
    too much memory. KernelError: there is no kernel of ``entries``. CompilerMissing: there is no
    NVRTC here. LabError: an unknown architecture.
    """
    check_arch(arch)
    limit_s = allowed_s(limit_s)
    found = find_compiler(compiler)
    _check_known(found, arch)
    defines = dict(defines or {})
    # The text of the headers counts: editing one must not give the old code.
    expanded = expand_includes(source, all_include_dirs(include_dirs))
    folders = all_include_dirs(include_dirs, expanded)
    key = content_key(expanded, arch, defines, name, folders, found, *entries)
    known = _cubins.get(key)
    if known is not None:
        return known
    refuse_odd_includes(source, folders, name)

    def make() -> Made:
        text = name_lines(source, name, expanded)
        made = _compile_apart(found, text, arch, defines, name, folders, limit_s, entries)
        if not made[0]:
            if unknown := _UNKNOWN_ENTRY.search(made[1]):
                asked = re.sub(r" *(::|[<>]|^|$) *", r"\1", unknown[1])
                raise no_kernel(name, asked, kernels_in(normalise_source(expanded)))
            raise parse_compile_log(made[1].replace("\0", "").strip(), source, name, folders)
        return made

    builds = _nvrtc_builds(found)
    if builds:
        parts = (key, COMMON_OPTIONS, CUPY_ADDED_OPTIONS, builds, used_headers(source, folders))
        image, log, ptx, symbols = kept("cubin_ptx", parts, make)
    else:
        image, log, ptx, symbols = make()
    read = read_entries(image, arch, log)
    if not read:
        what, why = f"{name} compiles but holds no kernel.", "no function is marked __global__"
        if kernels_in(normalise_source(expanded)):
            why = "its kernels are templates, and none of them is asked for"
        mark = "mark the kernel __global__ void; a launch names one of a template"
        raise CompileError(what, why, mark, file=name, log=log)
    cubin = named_by(Cubin(image, arch, log, found.version, read, name, ptx=ptx), symbols)
    _cubins.put(key, cubin)
    return cubin


T = TypeVar("T")
Made = tuple[bytes, str, str, dict[str, str]]
"""The cubin, empty where it failed, the log, the PTX, and symbols by entry."""
_UNKNOWN_ENTRY = re.compile(r'Input name expression was: "([^"]*)"')


def _nvrtc_version(package: str) -> str:
    nvrtc = _import_nvrtc(package)
    major, minor = nvrtc.getVersion() if package == "cupy" else _ask(nvrtc, "Version")
    return f"{major}.{minor}"


def _nvrtc_builds(compiler: Compiler) -> tuple[str, ...]:
    """Marks of the libraries that compile, which say more than their version; empty: not known."""
    try:
        if compiler.name == "cuda-core":
            from cuda.pathfinder import load_nvidia_dynamic_lib

            library = Path(load_nvidia_dynamic_lib("nvrtc").abs_path or "")
        else:
            loaded = re.search(r"\s(/\S*libnvrtc\.\S*)$", _LOADED.read_text(), re.MULTILINE)
            library = Path(loaded[1] if loaded else "")
        builds = sorted(library.parent.glob("*nvrtc*")) if library.is_absolute() else []
        return tuple(binary_mark(path) for path in builds)
    except Exception:  # pathfinder raises on layouts it does not know; then nothing is kept
        return ()


def _import_nvrtc(package: str) -> Any:
    """The binding that a package brings."""
    if package == "cupy":
        return importlib.import_module("cupy.cuda").nvrtc
    return importlib.import_module("cuda.bindings.nvrtc")


def _ask(nvrtc: Any, name: str, *args: Any) -> Any:
    """What a function of `cuda.bindings.nvrtc` gives besides its status."""
    result, *values = getattr(nvrtc, f"nvrtc{name}")(*args)
    if int(result) != 0:
        raise RuntimeError(f"nvrtc{name} returned {result}")
    return values[0] if len(values) == 1 else values


def refuse_odd_includes(source: str, folders: Iterable[Path], name: str) -> None:
    """Refuse an ``#include`` of what is no file: reading a device or a pipe never ends.

    Raises CompileError: there is one.
    """
    if (odd := odd_include(source, folders)) is not None:
        what, why = f"{name} includes {odd}, which is no file.", "reading it may never end"
        still = "include a header; every other kernel is unaffected"
        raise CompileError(what, why, still, file=name)


def _compile_apart(
    compiler: Compiler,
    text: str,
    arch: str,
    defines: Mapping[str, str],
    name: str,
    folders: tuple[Path, ...],
    limit_s: float,
    entries: Sequence[str],
) -> Made:
    options = [f"-arch={arch}", *COMMON_OPTIONS, *CUPY_ADDED_OPTIONS, "--ptxas-options=-v"]
    if tuple(int(part) for part in compiler.version.split(".")[:2]) >= (12, 9):
        options.append("--no-cache")  # it keeps compiled code without the assembler's report
    options += [*define_options(defines), *(f"-I{folder}" for folder in folders)]
    run = _compile_with_cupy if compiler.name == "cupy" else _compile_with_bindings

    def work() -> Made:
        try:
            return run(text, name, options, entries)
        except MemoryError:
            raise
        except Exception as error:
            return b"", f"{type(error).__name__}: {error}", "", {}

    return run_compiler(work, name, limit_s)


def _compile_with_bindings(
    text: str, name: str, options: Sequence[str], entries: Sequence[str]
) -> Made:
    """With cuda-core's."""
    nvrtc = _import_nvrtc("cuda-core")
    program = _ask(nvrtc, "CreateProgram", text.encode(), name.encode(), 0, [], [])

    def read(what: str) -> bytes:
        data = b" " * _ask(nvrtc, f"Get{what}Size", program)
        _ask(nvrtc, f"Get{what}", program, data)
        return data

    def read_text(what: str) -> str:
        return read(what).rstrip(b"\0").decode("utf-8", "replace")

    coded = [option.encode() for option in options]
    try:
        for entry in entries:
            _ask(nvrtc, "AddNameExpression", program, entry.encode())
        _ask(nvrtc, "CompileProgram", program, len(coded), coded)
        symbols = {one: _ask(nvrtc, "GetLoweredName", program, one.encode()) for one in entries}
    except RuntimeError as error:
        return b"", f"{read_text('ProgramLog')}\n{error}", "", {}
    else:
        named = {entry: symbol.decode() for entry, symbol in symbols.items()}
        return read("CUBIN"), read_text("ProgramLog"), read_text("PTX"), named
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _compile_with_cupy(
    text: str, name: str, options: Sequence[str], entries: Sequence[str]
) -> Made:
    """With CuPy's."""
    nvrtc = _import_nvrtc("cupy")
    program = nvrtc.createProgram(text, name, (), ())
    try:
        for entry in entries:
            nvrtc.addNameExpression(program, entry)
        nvrtc.compileProgram(program, options)
        symbols = {entry: str(nvrtc.getLoweredName(program, entry)) for entry in entries}
    except nvrtc.NVRTCError as error:
        return b"", f"{nvrtc.getProgramLog(program)}\n{error}", "", {}
    else:
        ptx = nvrtc.getPTX(program)
        ptx = ptx.decode("utf-8", "replace") if isinstance(ptx, bytes) else ptx
        return bytes(nvrtc.getCUBIN(program)), str(nvrtc.getProgramLog(program)), ptx, symbols
    finally:
        nvrtc.destroyProgram(program)


def _check_known(compiler: Compiler, arch: str) -> None:
    """Refuse an architecture that the compiler does not know."""
    known = _known_archs(compiler)
    major, minor = split_arch(arch)
    number = 10 * major + minor
    # Features of one architecture alone begin at sm_90a, those of a family at sm_100f.
    suffix = number >= {"a": 90, "f": 100}.get(arch[-1], 0)
    if known and not (number in known and suffix):
        says = f"it knows {', '.join(f'sm_{one}' for one in known)}"
        what = f"This compiler does not know the architecture {arch}."
        raise LabError(what, says, "choose one of these")


@functools.cache
def _known_archs(compiler: Compiler) -> tuple[int, ...]:
    """The architectures that it compiles for, such as 90; empty where it does not say."""
    try:
        nvrtc = _import_nvrtc(compiler.name)
        if compiler.name == "cupy":
            return tuple(nvrtc.getSupportedArchs())
        return tuple(_ask(nvrtc, "GetSupportedArchs"))
    except Exception:  # an older library has no such call
        return ()


# ------------------------------------------------------------------------- what identifies a rung


@dataclass(frozen=True)
class Hashes:
    """Identity of a rung at a workload, knobs and an architecture."""

    # SHA-256 of its source without comments, its headers, definitions and options; of a baseline's
    # file
    source_hash: str
    # SHA-256 of the machine code it launches; None without a compiler, and of a baseline
    sass_hash: str | None = None
    nvrtc_version: str | None = None  # the compiler of ``sass_hash``; None where there is none


def compile_rung(
    rung: Rung,
    workload: Problem,
    limits: Limits,
    knobs: Mapping[str, int] | None = None,
    arch: str | None = None,
    compiler: CompilerName = "auto",
) -> Cubin:
    """Compile a rung for a workload, a GPU and knobs, the others at their defaults.

    ``arch`` is another architecture than that of ``limits``, for the same layout. It raises what
    `compile_cubin` raises.
    """
    if is_of_triton(rung):
        return compile_triton(rung, workload, limits, knobs, arch)
    target, defines = rung.target(arch or limits.arch), rung.defines(workload, limits, knobs)
    entries = cpp_entries(expanded_text(rung), rung, workload, limits, knobs)
    return compilation(rung, target, defines, compiler, entries)()


def compile_ahead(
    asked: Iterable[tuple[Rung, Problem, Mapping[str, int] | None]],
    limits: Limits,
    compiler: CompilerName = "auto",
) -> None:
    """Compile what `compile_rung` will be asked for, side by side where there are cores for it.

    What does not compile is left for `compile_rung` to say. ``asked`` are rung, workload and knobs.
    """
    left: dict[str, functools.partial[Cubin]] = {}
    for rung, workload, knobs in asked:
        if is_of_triton(rung):
            continue
        with contextlib.suppress(LabError):
            defines = rung.defines(workload, limits, knobs)
            entries = cpp_entries(expanded_text(rung), rung, workload, limits, knobs)
            one = compilation(rung, rung.target(limits.arch), defines, compiler, entries)
            left[repr(one.args)] = one  # many workloads have one code

    def quietly(one: functools.partial[Cubin]) -> None:
        with contextlib.suppress(LabError):
            one()

    if len(left) > 1 and can_work_apart():
        with threads(copies_at_once()) as pool:
            list(pool.map(quietly, left.values()))


def compilation(
    rung: Rung,
    target: str,
    defines: Mapping[str, str],
    compiler: CompilerName,
    entries: Sequence[str],
) -> functools.partial[Cubin]:
    """What compiles a rung with what its own Python says of it; asks that Python no more. Of a file
    that is neither shipped nor edited on a page it is `compile_any`, else `compile_cubin`."""
    source, name, folders = rung.source_text, source_name(rung), rung.include_dirs
    told = (source, target, defines, name, folders, compiler, KERNEL_LIMIT_S, entries)
    if rung.is_shipped or rung.text is not None:
        return functools.partial(compile_cubin, *told)
    return functools.partial(compile_any, rung.source, *told)


def compile_any(path: Path, source: str, arch: str, *told: Any) -> Cubin:
    """`compile_cubin` of a file that may be written for nvcc: what NVRTC refuses goes to nvcc where
    there is one, else without its host code to NVRTC again.

    Headers that are nowhere, such as those of cuBLAS, are taken as empty: what launches a kernel
    needs them, and the kernel seldom does. It raises what `compile_cubin` raises.
    """
    defines, name, include_dirs, compiler, _, entries = told
    key = content_key("any", source, arch, defines, name, include_dirs, compiler, *entries)
    if (known := _cubins.get(key)) is not None:
        return known
    made, refused = _with_absent_headers(source, arch, *told)
    if refused is not None:
        if was_stopped(refused.what):
            raise refused
        by_nvcc, error = _with_nvcc(path, source, arch, defines, entries, include_dirs)
        has_host = has_host_code(expand_includes(source, include_dirs))
        made = by_nvcc or (_without_host_code(source, arch, *told) if has_host else None)
        if made is None and not has_host:
            raise refused
        if made is None and error is None:
            refused.still_works = (
                f"{NEEDS_NVCC}; the .cubin that nvcc -cubin -arch={arch} makes is "
            )
            refused.still_works += "forecast as well"
            raise refused
        if made is None:
            raise error or refused
    assert made is not None
    _cubins.put(key, made)
    return made


def _with_nvcc(
    path: Path,
    source: str,
    arch: str,
    defines: Mapping[str, str],
    entries: Sequence[str],
    folders: Sequence[Path],
) -> tuple[Cubin | None, KernelError | None]:
    try:
        return compile_with_nvcc(path, source, arch, defines, entries, folders), None
    except KernelError as error:
        return None, error


def _with_absent_headers(
    source: str,
    arch: str,
    defines: Mapping[str, str],
    name: str,
    include_dirs: Sequence[Path],
    *told: Any,
) -> tuple[Cubin | None, KernelError | None]:
    """By NVRTC, with headers that are not here taken as empty; or why it does not compile so."""
    empty = cache_dir("headers") or Path(tempfile.mkdtemp())
    folders, refused = tuple(include_dirs), None
    for _ in range(MOST_ABSENT):
        try:
            return compile_cubin(source, arch, defines, name, folders, *told), None
        except KernelError as error:
            refused = error
            absent = absent_header(getattr(error, "log", ""), source)
            if absent is None or not (add_header(empty, absent) or empty not in folders):
                break
            folders = (*include_dirs, empty)
    return None, refused


_MOST_PASSES = 12
"""Compilations, at most, that find what of a file is of no use to its kernel."""


def _without_host_code(
    source: str,
    arch: str,
    defines: Mapping[str, str],
    name: str,
    include_dirs: Sequence[Path],
    *told: Any,
) -> Cubin | None:
    """The kernel without host code, in its file alone or in its own headers too, if it compiles:
    what a compiler refuses goes, and with the kernel itself there is nothing left."""
    says = re.compile(rf"^{re.escape(name)}\((\d+)\): (?:\w+ )?error", re.MULTILINE)
    for text in dict.fromkeys((source, expand_includes(source, include_dirs))):
        if device_part(text) == text:
            continue
        lines: set[int] = set()
        for _ in range(_MOST_PASSES):
            part = device_part(text, lines)
            made, refused = _with_absent_headers(part, arch, defines, name, include_dirs, *told)
            if made is not None:
                return made
            log = getattr(refused, "log", "")
            more = {int(line) for line in says.findall(log)} - lines
            more -= {at for at, line in enumerate(text.split("\n"), 1) if line.lstrip()[:1] == "#"}
            if not more:
                break
            lines |= more
    return None


def source_name(rung: Rung) -> str:
    """What messages call a rung's source: its path, or the cell when it was edited on a page."""
    return f"{rung.id} (cell)" if rung.text is not None else str(rung.source)


def launched_entries(
    rung: Rung, workload: Problem, limits: Limits, knobs: Mapping[str, int] | None = None
) -> list[str]:
    """The kernels that a rung launches for a workload, each once, in order of launch."""
    return list(dict.fromkeys(launch.entry for launch in rung.launches(workload, limits, knobs)))


def hashed_text(rung: Rung) -> str:
    """A rung's source for `hash_source`: Python, whose blanks mean something, as one literal."""
    return json.dumps(rung.source_text) if is_of_triton(rung) else rung.source_text


def expanded_text(rung: Rung) -> str:
    """A rung's source with its own headers."""
    return expand_includes(rung.source_text, rung.include_dirs)


def cpp_entries(
    text: str,
    rung: Rung,
    workload: Problem,
    limits: Limits,
    knobs: Mapping[str, int] | None = None,
) -> list[str]:
    """`launched_entries` of a rung whose `expanded_text` a compiler must be told them for; of
    others nothing."""
    return launched_entries(rung, workload, limits, knobs) if has_cpp_kernels(text) else []


def kernel_hashes(
    rung: Rung,
    workload: Problem,
    limits: Limits,
    knobs: Mapping[str, int] | None = None,
    arch: str | None = None,
    compiler: CompilerName = "auto",
) -> Hashes:
    """The identity of what runs; the arguments are those of `compile_rung`.

    For a live measurement ask with ``compiler="live"``: that is the NVRTC whose code ran.

    Raises CompileError: it does not compile. LabError: the source lacks a kernel of the launch.
    """
    defines = rung.defines(workload, limits, knobs)
    source_hash = hash_source(hashed_text(rung), defines, rung.include_dirs)
    try:
        cubin = compile_rung(rung, workload, limits, knobs, arch, compiler)
    except CompilerMissing:
        return Hashes(source_hash)
    entries = launched_entries(rung, workload, limits, knobs)
    codes = {entry: cubin.resources_of(entry).code_hash for entry in entries}
    return Hashes(source_hash, _hash_codes(codes, entries), cubin.nvrtc_version)


def _hash_codes(codes: Mapping[str, str], entries: Iterable[str]) -> str:
    text = "\n".join(f"{entry} {codes[entry]}" for entry in dict.fromkeys(entries))
    return hashlib.sha256(text.encode()).hexdigest()


# ------------------------------------------------------------- codes that travel with the project


def codes_path() -> Path:
    """The file that says what machine code some sources give, so that nobody need compile them.

    A record whose source changed since, and its machine code did not, would otherwise be compiled
    on each machine to know it. ``make regen`` writes the file."""
    return kernels_dir() / "listings" / "codes.json"


def shipped_hash(
    source_hash: str, entries: Sequence[str], arch: str, nvrtc_version: str | None
) -> str | None:
    """The ``sass_hash`` of a source's hash where the project's file has it, else None."""
    path = codes_path()
    try:
        known = _read_codes(path, path.stat().st_mtime_ns)
    except (OSError, ValueError):
        return None
    codes = known.get(f"{arch}, NVRTC {nvrtc_version}", {}).get(source_hash, {})
    return _hash_codes(codes, entries) if codes and set(entries) <= set(codes) else None


@functools.lru_cache(maxsize=2)
def _read_codes(path: Path, _changed_ns: int) -> dict[str, dict[str, dict[str, str]]]:
    found: dict[str, dict[str, dict[str, str]]] = json.loads(path.read_text("utf-8"))
    return found
