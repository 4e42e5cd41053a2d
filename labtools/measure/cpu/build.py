"""From a kernel's source to an executable that runs it on the CPU, cached by content.

The compiler's thread-sanitizer pass puts a call before each load and store; our runtime answers it
in place of the sanitizer's. In between `adapt_assembly` does what needs the compiler's names.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import tempfile
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from labtools.problem import LabError, kernels_dir
from labtools.problem.text import counted_lines
from labtools.record.whole import lock_now
from labtools.toolchain import (
    CompileError,
    CompilerMissing,
    Cubin,
    compile_cubin,
    find_cxx_compiler,
)
from labtools.toolchain.apart import (
    OWN_LIMIT_S,
    allowed_s,
    stopped_compiling,
    threads,
    was_stopped,
)
from labtools.toolchain.cache import check_room, in_folder, kept, prune_kept, size_of
from labtools.toolchain.compiler import (
    KERNEL_LIMIT_S,
    refuse_odd_includes,
)
from labtools.toolchain.cubin import no_kernel
from labtools.toolchain.options import OF_HOST
from labtools.toolchain.sources import (
    asm_lines,
    expand_includes,
    gpu_only_lines,
    has_cpp_kernels,
    has_inline_ptx,
    kernels_in,
    source_words,
)

from ..worker import ChildResult, run_child
from .ptx_text import IS_PTX, NotTranslated, own_file
from .translate import Translated, TranslatedKernel, translate_ptx

NATIVE = Path(__file__).parent / "native"
OWN_HEADERS = NATIVE / "include"  # in place of CUDA's of these names
DYNAMIC_SHARED_BYTES = 227 * 1024  # the most that a block may have on an H100, H200 or B200
# Behind each variable: as long as a row of most arrays, so that an index that is off by a row or
# two does not meet the next variable. A whole number of any alignment.
GAP_BYTES = 4096
CUDA_ARCH = 900  # a kernel's own text takes ``__CUDA_ARCH__`` for it
HOST_COMPILE_BYTES = 2**30  # address space of a compiler, of which two may run at a time
_TOO_LONG = re.compile(r"CPU time limit exceeded|terminated program|SIGXCPU|signal 24")
_TOO_LARGE = re.compile(r"out of memory|memory exhausted|bad_alloc|Cannot allocate memory")
_ALIVE = "alive"
_SUMS = "sums.json"
"""Of each other file of a folder of the cache, by name, and whether it can be executed."""
_YOUNG_S = 5.0  # so long a folder to build in may be without its mark
WITHOUT_CPU_RUNNER = (
    "offline compilation, the pages, predictions and recorded measurements; with a GPU the check "
    "runs there"
)


class CpuRunnerMissing(LabError):
    """This machine lacks what the CPU runner needs: Linux, a C++ compiler, CUDA's headers."""

    def __init__(self, what: str, why: str, still_works: str = WITHOUT_CPU_RUNNER) -> None:
        super().__init__(what, why, still_works)


@dataclass(frozen=True)
class HostCompiler:
    """A C++ compiler."""

    path: Path
    family: str  # ``gcc`` or ``clang``
    version: str  # what it says of itself


@dataclass(frozen=True)
class SharedVariable:
    """A shared variable of the kernel; ``offset`` counts from the first one, in bytes."""

    name: str
    offset: int
    bytes: int
    dynamic: bool


@dataclass(frozen=True)
class DeviceVariable:
    """A device variable of the kernel, which survives from one launch to the next."""

    name: str
    set: bool  # it begins with values that the source gives; False for zero throughout
    offset: int  # from the start of those that begin alike, in bytes
    bytes: int


@dataclass(frozen=True)
class Executable:
    """A kernel built for the CPU."""

    path: Path
    shared: tuple[SharedVariable, ...]
    device: tuple[DeviceVariable, ...]
    as_gpu: bool = False  # its own text is compiled as for a GPU, with ``__CUDA_ARCH__`` defined
    runs_with: tuple[str, ...] = ()  # the program that runs a module; none where it runs by itself
    by_ptx: bool = False  # made of its PTX, since as C++ it is not for the CPU


def find_cpu_compiler() -> HostCompiler:
    """The C++ compiler of the CPU runner. Raises CpuRunnerMissing: not Linux, or no compiler."""
    if platform.system() != "Linux":
        why = f"it needs Linux, and this is {platform.system()}"
        raise CpuRunnerMissing("The CPU runner does not work on this system.", why)
    path = find_cxx_compiler()
    if path is None:
        why = "none of c++, g++ and clang++ is on the PATH; on Debian or Ubuntu, "
        why += "`apt install g++` brings one"
        raise CpuRunnerMissing("There is no C++ compiler for the CPU runner.", why)
    return _describe(path)


@functools.lru_cache(maxsize=8)
def _describe(path: Path) -> HostCompiler:
    try:
        done = subprocess.run(
            [str(path), "--version"], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        why = f"{path} --version: {error}"
        raise CpuRunnerMissing("The C++ compiler does not start.", why) from error
    family = "clang" if "clang" in done.stdout.lower() else "gcc"
    return HostCompiler(path, family, done.stdout.splitlines()[0])


def find_cuda_headers() -> tuple[Path, ...]:
    """Include folders with CUDA's host headers: those of the wheels, or of a toolkit.

    Raises CpuRunnerMissing: no complete set.
    """
    wanted = ("cuda_fp16.h", "cuda_bf16.h", "crt/host_defines.h", "nv/target")
    tried = []
    for folder in _header_folders():
        places = (folder, folder / "cccl")
        if all(any((place / name).is_file() for place in places) for name in wanted):
            return tuple(place for place in places if place.is_dir())
        tried.append(str(folder))
    raise CpuRunnerMissing(
        "CUDA's header files for half and vector types are not here.",
        "they come with the packages nvidia-cuda-runtime, nvidia-cuda-crt and nvidia-cuda-cccl, "
        f"or with a CUDA toolkit; looked at {', '.join(tried) or 'no folder at all'}",
    )


def _header_folders() -> Iterator[Path]:
    import importlib.util

    with contextlib.suppress(ImportError, ValueError):
        spec = importlib.util.find_spec("nvidia")
        for root in (spec.submodule_search_locations or []) if spec else []:
            yield from sorted(Path(root).glob("cu*/include"), reverse=True)
            yield from sorted(Path(root).glob("cuda_runtime/include"))
    for variable in ("CUDA_PATH", "CUDA_HOME"):
        if os.environ.get(variable):
            yield Path(os.environ[variable]) / "include"
    yield Path("/usr/local/cuda/include")


# ---- options ----


@functools.cache
def _cpu_options() -> tuple[str, ...]:
    with contextlib.suppress(OSError):
        flags = Path("/proc/cpuinfo").read_text().partition("\nflags")[2].split("\n")[0]
        if {"avx2", "f16c", "fma"} <= set(flags.split()):
            return ("-mavx2", "-mf16c", "-mfma")
    return ()


def _common_options(compiler: HostCompiler) -> tuple[str, ...]:
    # Frame pointers let a fault say how it was reached. DWARF 5 is newer, and some versions of
    # addr2line name the wrong file in it. A fixed position is a little faster; clang's sanitizer
    # pass refuses it.
    fixed = "-fno-pie" if compiler.family == "gcc" else "-fPIE"
    usual = ("-std=c++17", "-g1", "-gdwarf-4", "-fno-omit-frame-pointer", fixed)
    return usual + _cpu_options()


def _kernel_options(compiler: HostCompiler) -> tuple[str, ...]:
    options = [
        *_common_options(compiler),
        # Each choice of knobs is compiled anew and runs for a second or two: what -O2 would win
        # in running it loses twice in compiling.
        "-O1",
        "-w",
        "-fdiagnostics-color=never",
        "-fsanitize=thread,alignment,bounds",
        # A call keeps its own return address, by which its line is known.
        "-fno-optimize-sibling-calls",
        # A division by zero and an overflow have no meaning to warn about here.
        "-fno-exceptions",
        "-fno-math-errno",
        "-fwrapv",
    ]
    said = compiler.version.rpartition(")")[2] or compiler.version
    found = re.search(r"(\d+)\.\d+", said)
    if found is not None and int(found[1]) >= 12:  # of 2022 or later
        # A loop without end stays one, whatever C++ allows a compiler to make of it. A local
        # variable that nobody set is far off, instead of zero by luck (`adapt_assembly`: NaN).
        options += ["-fno-finite-loops", "-ftrivial-auto-var-init=pattern"]
    if compiler.family == "gcc":
        options += [
            "-fmax-errors=20",
            "-fno-diagnostics-show-caret",
            "-fno-extern-tls-init",
            # One load in the source stays one load, with its own line.
            "-fno-tree-vectorize",
            "-fno-tree-slp-vectorize",
            # Two equal calls at two lines stay two: merged, they would have the line of one.
            "-fno-crossjumping",
            "-fno-tree-tail-merge",
            "-fno-code-hoisting",
            "-fno-tree-pre",
            "-fno-ipa-icf",
            # Lines are asked for, values of variables never; finding them is a fifth of the time.
            "-fno-var-tracking",
            "-fno-var-tracking-assignments",
            "--param=tsan-distinguish-volatile=1",
            "--param=tsan-instrument-func-entry-exit=0",
        ]
    else:
        options += ["-fno-caret-diagnostics", "-fno-vectorize", "-fno-slp-vectorize"]
        options += ["-mllvm", "-tsan-instrument-func-entry-exit=0"]
        options += ["-mllvm", "-tsan-distinguish-volatile"]
    return tuple(options)


# ---- building ----


def build_kernel(
    source: str,
    name: str,
    entries: Iterable[str],
    defines: Mapping[str, str],
    include_dirs: Iterable[Path],
    counted: bool = False,
    compiled: Callable[[], Cubin] | None = None,
) -> Executable:
    """Compile a kernel, called ``name`` in messages, for the CPU, or take it from the cache.

    What this machine's compiler does not take, and a GPU's does, is made of the PTX of what
    ``compiled`` gives; without it, of what NVRTC makes of the source.

    With ``counted`` it counts how often each thread comes by each place (``native/trips.h``).

    Raises CpuRunnerMissing: no compiler or no CUDA headers; CompileError: the kernel does not
    compile; it has ``line`` and ``excerpt``; LabError: there is no room to build it in.
    """
    kernel = Kernel(source, name, tuple(dict.fromkeys(entries)), tuple(include_dirs))
    if _other_target is not None and not counted:
        return _other_target.build(kernel, defines)
    making = compiled or functools.partial(_compile_alone, kernel, defines)
    build = functools.partial(_build_in, kernel, defines, counted, making)
    return in_folder("cpu", build, "the executable of the kernel")


class BuildTarget(Protocol):
    """What compiles kernels for elsewhere than this machine's processor."""

    def build(self, kernel: Kernel, defines: Mapping[str, str]) -> Executable:
        """As `build_kernel`."""


_other_target: BuildTarget | None = None


@contextlib.contextmanager
def build_kernels_for(target: BuildTarget) -> Iterator[None]:
    """Within it, `build_kernel` compiles for ``target``, in every thread."""
    global _other_target
    before, _other_target = _other_target, target
    try:
        yield
    finally:
        _other_target = before


@dataclass(frozen=True)
class Kernel:
    """A kernel to build: its text, its name in messages, and where its own headers are."""

    source: str
    name: str
    entries: tuple[str, ...]
    folders: tuple[Path, ...]  # where its own headers are

    @property
    def shown(self) -> str:
        """Its name as a line directive holds it."""
        return self.name.replace("\\", "/").replace('"', "'")


def _build_in(
    kernel: Kernel,
    defines: Mapping[str, str],
    counted: bool,
    compiled: Callable[[], Cubin],
    cache: Path,
) -> Executable:
    """As C++ where it is C++ for this machine too, else by its PTX."""
    if IS_PTX.search(kernel.source):
        return _build_by_ptx(kernel, kernel.source, {}, counted, cache)

    def by_ptx() -> Executable:
        made = compiled()
        return _build_by_ptx(kernel, made.ptx, made.symbols, counted, cache)

    own = [one for one in kernel.folders if one.resolve() != kernels_dir().resolve() / "include"]
    asked = (digest_of_texts([kernel.source, repr(sorted(defines.items()))]), kernel.name)
    if kernel.name.endswith(".py"):
        return by_ptx()
    refused: CompileError | None = None
    ours = Path(kernel.name).is_relative_to(kernels_dir())  # which has a host path for each
    inline = not ours and has_inline_ptx(expand_includes(kernel.source, own))
    if first_by_ptx := inline or asked in _REFUSED:
        try:
            return by_ptx()
        except CompileError as error:
            refused = error
        except CompilerMissing:
            pass
    try:
        return _build_cpp(kernel, defines, counted, cache)
    except CompileError as error:
        if first_by_ptx or was_stopped(error.what):
            raise refused or _with_compiler(error) from None
        try:
            built = by_ptx()
        except CompilerMissing:
            raise _with_compiler(error) from None
        except LabError:
            raise error from None
        _REFUSED.add(asked)
        return built


def _compile_alone(kernel: Kernel, defines: Mapping[str, str]) -> Cubin:
    entries = (
        kernel.entries if has_cpp_kernels(expand_includes(kernel.source, kernel.folders)) else ()
    )
    arch, told = f"sm_{CUDA_ARCH // 10}", (dict(defines), kernel.name, kernel.folders)
    return compile_cubin(kernel.source, arch, *told, limit_s=KERNEL_LIMIT_S, entries=entries)


_REFUSED: set[tuple[str, str]] = set()
"""Kernels that the compiler of this machine has refused, and that run by their PTX."""
TO_RUN_PTX = (
    "with CUDA's compiler (the packages cuda-core, nvidia-cuda-nvrtc, nvidia-cuda-runtime and "
    "nvidia-cuda-crt) its PTX is run here"
)


def _with_compiler(error: CompileError) -> CompileError:
    """What a refusal says where there is no compiler by whose PTX the kernel could be run."""
    if error.why in (INLINE_ASSEMBLY, GPU_HEADER):
        error.still_works = f"{error.still_works}; {TO_RUN_PTX}"
    return error


def _build_by_ptx(
    kernel: Kernel, ptx: str, symbols: Mapping[str, str], counted: bool, cache: Path
) -> Executable:
    """The kernel by its PTX, whose ``symbols`` are those of entries that C++ names otherwise."""

    wanted = tuple(symbols.get(entry, entry) for entry in kernel.entries)
    try:
        made = _translated(kernel, ptx, wanted)
    except NotTranslated as refused:
        line = f" line {refused.line}" if refused.line else ""
        texts = counted_lines(kernel.source, kernel.name)
        what = f"{kernel.name}{line}: the CPU runner does not have {refused.what}."
        places: dict[str, Any] = {"file": kernel.name, "line": refused.line}
        excerpt = _excerpt(texts, refused.line or 0)
        raise CompileError(
            f"{what}\n{excerpt}".rstrip(), NOT_IN_RUNNER, ON_A_GPU, excerpt=excerpt, **places
        ) from None
    calls = []
    for entry, symbol in zip(kernel.entries, wanted, strict=True):
        if (found := made.kernels.get(symbol)) is None:
            there = re.findall(r"\.entry\s+([\w$]+)", ptx)
            raise no_kernel(kernel.name, entry, there)
        calls.append((entry, found))
    unit = _ptx_unit(made.text, calls)
    compiler, headers = find_cpu_compiler(), find_cuda_headers()
    options = [*_kernel_options(compiler), "-ffp-contract=off"]
    options += ["-fsanitize-coverage=trace-pc"] if counted else []
    options += [f"-I{folder}" for folder in (NATIVE, OWN_HEADERS)]
    options += [f"-isystem{folder}" for folder in headers]
    final = cache / digest_of_texts([*_content(compiler, headers), *options, kernel.name, unit])

    def made_by(make: Callable[[str], None]) -> bool:
        make(unit)
        return True

    return _build_unit(kernel, options, made_by, final, counted, cache, by_ptx=True)


@functools.lru_cache(maxsize=16)
def _translated(kernel: Kernel, ptx: str, wanted: tuple[str, ...]) -> Translated:
    """The same for each case of a check, which is built for each of them."""

    def named(file: str) -> str | None:
        return own_file(file, kernel.shown, kernel.folders)

    return translate_ptx(ptx, kernel.name, named, asm_lines(kernel.source), wanted)


def _build_cpp(
    kernel: Kernel, defines: Mapping[str, str], counted: bool, cache: Path
) -> Executable:
    name, folders = kernel.name, kernel.folders
    compiler = find_cpu_compiler()
    source = _as_nvrtc_sees(kernel.source, _host_names(compiler))
    headers = find_cuda_headers()
    options = list(_kernel_options(compiler))
    options += ["-fsanitize-coverage=trace-pc"] if counted else []
    options += [f"-D{key}={value}" for key, value in sorted(defines.items())]
    options += [f"-I{folder}" for folder in (*folders, NATIVE, OWN_HEADERS)]
    options += [f"-isystem{folder}" for folder in headers]
    refuse_odd_includes(source, folders, name)
    said = [*options, name, *kernel.entries, source, expand_includes(kernel.source, folders)]
    final = cache / digest_of_texts([*_content(compiler, headers), *said])

    def made_by(make: Callable[[str], None]) -> bool:
        if (text := _as_gpu(source)) is not None:
            with contextlib.suppress(CompileError):
                make(_translation_unit(kernel, text))
                return True
        make(_translation_unit(kernel, source))
        return False

    return _build_unit(kernel, options, made_by, final, counted, cache)


def _build_unit(
    kernel: Kernel,
    options: Sequence[str],
    made_by: Callable[[Callable[[str], None]], bool],
    final: Path,
    counted: bool,
    cache: Path,
    by_ptx: bool = False,
) -> Executable:
    """The folder ``final`` of the cache, or what ``made_by`` makes of the function that compiles a
    translation unit; it says whether the text is that for a GPU."""
    name, compiler, headers = kernel.name, find_cpu_compiler(), find_cuda_headers()
    cached = _load(final)
    if cached is not None:
        return cached
    with threads(1) as beside, folder_to_build_in(cache) as temporary:
        building = beside.submit(_build_runtime, cache, compiler)  # seconds, the first time
        prelude = _build_prelude(cache, compiler, headers)
        folder = temporary / "kernel"
        folder.mkdir()
        unit, assembly = folder / "kernel.cpp", folder / "kernel.s"
        program = folder / "kernel"

        def make(text: str) -> None:
            unit.write_text(text, "utf-8")
            command = [str(compiler.path), *prelude, *options, "-S", "-x", "c++", str(unit)]
            more = {"by_ptx": True} if by_ptx else {}
            done = _compile([*command, "-o", str(assembly)], folder, name, **more)
            if done.returncode and by_ptx:
                raise _not_understood(done.stderr, kernel)
            if done.returncode:
                raise _compile_error(done.stderr, kernel)
            made = assembly.read_text("utf-8", "surrogateescape")  # strings may hold any byte
            assembly.write_text(adapt_assembly(made), "utf-8", "surrogateescape")
            command = [str(compiler.path), "-no-pie" if compiler.family == "gcc" else "-pie"]
            command += [str(assembly), str(building.result()), "-o", str(program)]
            done = _compile(command, folder, name)
            if done.returncode:
                raise _link_error(done.stderr, kernel)

        as_gpu = made_by(make)
        symbols = read_symbols(program)
        shared, device = shared_variables(symbols), device_variables(symbols)
        assembly.unlink()
        unit.unlink()
        variables = {"device": [vars(v) for v in device], "shared": [vars(v) for v in shared]}
        told = {**variables, "as_gpu": as_gpu, "by_ptx": by_ptx}
        (folder / "kernel.json").write_text(json.dumps(told))
        written = size_of(folder)
        _publish(folder, final)
    prune_kept("cpu", written, [final])
    built = _load(final)
    if built is None:
        raise FileNotFoundError(errno.ENOENT, "it was removed meanwhile", str(final))
    return built


_NVRTC_NAMES = {
    **dict.fromkeys(("__CUDACC__", "__CUDACC_RTC__", "__EDG__"), 1),
    **{"__CUDACC_VER_MAJOR__": 13, "__CUDACC_VER_MINOR__": 0, "__CUDACC_VER_BUILD__": 88},
    "__CUDA_ARCH_LIST__": CUDA_ARCH,
}
"""What a GPU's compiler defines, beside the architecture, and this machine's does not."""
_BODY = re.compile(r"\)\s*\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}")
_CAST = r"(?:\([^()]*\*[^()]*\)\s*|reinterpret_cast<[^<>]*>\s*\(\s*)*"
_SWAPPED = re.compile(rf"\batomicCAS\w*\(\s*{_CAST}(\w+)")
_NAME = re.compile(r"\b_\w+|\b(?:linux|unix)\b|\blong[ \t]+double\b")
_BOTH = ("__cpp_", "__cplusplus", "__STDC__", "__STDC_HOSTED__", "__LP64__", "__EXCEPTIONS")


@functools.lru_cache(maxsize=8)
def _host_names(compiler: HostCompiler) -> frozenset[str]:
    """What this machine's compiler defines by itself and a GPU's does not."""
    command = [str(compiler.path), *_kernel_options(compiler), "-dM", "-E", "-x", "c++", os.devnull]

    def ask() -> frozenset[str]:
        said = run_child(command, time_limit_s=OWN_LIMIT_S).stdout
        names = re.findall(r"^#define (\w+)", said, re.MULTILINE)
        assert names, said
        return frozenset(name for name in names if not name.startswith(_BOTH))

    return kept("host names", [compiler.version, command, _BOTH], ask)


def _as_nvrtc_sees(source: str, host_names: frozenset[str]) -> str:
    """A kernel's own text in which names mean what they mean to a GPU's compiler, so that no
    condition chooses other lines here than there; a long double is a double there."""

    def change(found: re.Match[str]) -> str:
        name = found[0]
        if name in _NVRTC_NAMES:
            return f"LAB{name}"
        if name.startswith("long"):
            return "double"
        if name.startswith("__restrict"):
            return ""  # gcc takes no address of a template whose parameters have it by an alias
        return f"LAB_NOT{name}" if name in host_names else name

    changed = _NAME.sub(change, OF_HOST.sub("", source))
    return _BODY.sub(_guess, changed) if "atomicCAS" in changed else changed


def _guess(body: re.Match[str]) -> str:
    """A function in which what a compare and swap will hold against memory anyway is read as an
    atomic reads it: `old = *address`, as NVIDIA's guide writes it, is no race."""
    names = "|".join(_SWAPPED.findall(body[0]))
    if not names:
        return body[0]
    names = "|".join([names, *re.findall(rf"\b(?:{names})\s*=\s*{_CAST}(\w+)", body[0])])
    pointer = rf"((?:\([^()]*\*\s*\)\s*)?(?:{names})\b)(?!\s*(?:[-+*/|&^]?=[^=]|[\[(]))"
    return re.sub(rf"([=(,<>]\s*)\*\s*{pointer}", r"\1lab::guess(\2)", body[0])


def _as_gpu(source: str) -> str | None:
    """The kernel's own text with ``__CUDA_ARCH__`` defined, so that what a GPU runs is what is run.

    None where it does not ask, and where the parts in question have inline assembly.
    """
    lines = source.splitlines()
    hidden = [line for first, last in gpu_only_lines(source) for line in lines[first - 1 : last]]
    if not hidden or any("asm" in line for line in hidden):
        return None
    return re.sub(r"\b__CUDA_ARCH__\b", "LAB_CUDA_ARCH", source)


_EXTERN_SHARED = re.compile(r"\bextern(\s+)__shared__")


def module_unit(kernel: Kernel) -> str:
    """What a browser's compiler reads: dynamic shared memory is a name that it is told of later."""
    source = _as_nvrtc_sees(kernel.source, frozenset())
    lines = _translation_unit(kernel, _EXTERN_SHARED.sub(r"extern\1", source)).splitlines(True)
    own = [line for line in lines if not line.startswith("thread_local unsigned char lab_dynamic")]
    return "".join(own).replace('"cuda_on_cpu.h"', '"prelude.h"', 1)


def _translation_unit(kernel: Kernel, source: str) -> str:
    calls, table = [], []
    for i, entry in enumerate(kernel.entries):
        calls.append(f'extern "C" void lab_call_{i}() {{ lab::call({entry}); }}')
        kinds, count = f"lab::parameter_list({entry})", f"lab::parameter_count({entry})"
        table.append(f'{{"{entry}", lab_call_{i}, {kinds}, {count}}},')
    lines = [
        '#include "cuda_on_cpu.h"',
        f"#define LAB_CUDA_ARCH {CUDA_ARCH}",
        *(f"#define LAB{name} {value}" for name, value in _NVRTC_NAMES.items()),
        f'#line 1 "{kernel.shown}"',
        source,
    ]
    return _with_launches(lines, calls, table)


def _ptx_unit(text: str, calls: Iterable[tuple[str, TranslatedKernel]]) -> str:
    parameters, table = [], []
    for i, (entry, of) in enumerate(calls):
        listed = ", ".join(f"{{'{kind}', {size}}}" for kind, size in (*of.parameters, (".", 0)))
        parameters.append(f"static const lab_parameter lab_of_{i}[] = {{{listed}}};")
        table.append(f'{{"{entry}", {of.function}, lab_of_{i}, {len(of.parameters)}}},')
    return _with_launches(['#include "cuda_on_cpu.h"', text], parameters, table)


def _with_launches(lines: list[str], before: list[str], table: list[str]) -> str:
    """A translation unit that says to the runner what its kernels are."""
    lines = [
        *lines,
        '#line 1 "<launch>"',
        *before,
        'extern "C" {',
        f"thread_local unsigned char lab_dynamic_shared[{DYNAMIC_SHARED_BYTES}]"
        " __attribute__((aligned(1024)));",
        f"extern const lab_entry lab_entries[] = {{{''.join(table)}}};",
        f"extern const int lab_num_entries = {len(table)};",
        "}",
    ]
    return "\n".join(lines) + "\n"


_DIRECTIVE = re.compile(r"^[ \t]*\.(?:section|text|data|bss|l?comm|type|zero|skip)\b.*", re.M)
"""A line that one of the next six may fit."""
_TLS_SECTION = re.compile(r"\s*\.section\s+\.t(bss|data)")
_DATA_SECTION = re.compile(r"\s*(?:\.section\s+)?\.(?P<kind>data|bss)\b(?!\.rel\.ro)")
_ANY_SECTION = re.compile(r"\s*\.(section|text|data|bss)\b")
_SPACE = re.compile(r"\s*\.(zero|skip)\s+\d+")
_COMMON = re.compile(
    r"\s*\.l?comm\s+(?!\.L)(?P<name>[^,\s]+)\s*,\s*(?P<bytes>\d+)(?:\s*,\s*(?P<align>\d+))?"
)
_OBJECT = re.compile(r"\s*\.type\s+(?!\.L)([^,\s]+),\s*[@%](?:object|gnu_unique_object)")
_LABEL = re.compile(r"^([A-Za-z_$][\w$.]*):", re.MULTILINE)
_TLS_USE = re.compile(
    r"@(?:tpoff|gottpoff|dtpoff|tlsgd)|:(?:got)?tprel\w*:([A-Za-z_$][\w$]*)", re.IGNORECASE
)
"""The name stands before the sign, or behind it."""
_LAST_NAME = re.compile(r"[A-Za-z_$][\w$]*\Z")
_COPIES = re.compile(r"^(\s*(?:call|jmp|bl|b)\s+)(mem(?:cpy|move|set))\b", re.MULTILINE)
_UNSET = re.compile(
    r"(?<![\w.-])(?:-16843010|4278124286|-72340172838076674|18374403900871474942)\b"
)
"""What gcc puts into a variable that nobody set, as four or eight bytes: a number."""
_UNSET_VECTOR = re.compile(r"(\tmovl\t\$)-2(, (%\w+)\n\tv?movd\t\3, %xmm\d+\n\tvpbroadcastb\t)")
_DEVICE_SECTIONS = {
    "bss": ("lab_device_zero", '\t.section\t.lab_device_zero,"aw",@nobits'),
    "data": ("lab_device_set", '\t.section\t.lab_device_set,"aw",@progbits'),
}
"""Where device variables go that begin with zero, and the others: a label, and the section."""


def adapt_assembly(text: str) -> str:
    """Put gaps behind variables, tie dynamic ones to their region, redirect copies.

    Device variables go to sections of their own, which begin and end at whole pages. What a local
    variable holds before it is set becomes NaN.
    """
    pieces, taken = [], 0
    in_tls = in_data = False
    found = dict.fromkeys(_DEVICE_SECTIONS, False)
    gap = f"\t.zero\t{GAP_BYTES}"
    for directive in _DIRECTIVE.finditer(text):
        line = directive[0]
        put: str | None = None
        if _ANY_SECTION.match(line):
            in_tls = bool(_TLS_SECTION.match(line))
            data = None if in_tls else _DATA_SECTION.match(line)
            in_data = data is not None
            if data is not None:
                kind = data["kind"]
                put = _DEVICE_SECTIONS[kind][1]
        common = _COMMON.match(line)
        if common:
            found["bss"] = True
            put = "\n".join([
                _DEVICE_SECTIONS["bss"][1].replace(".section", ".pushsection"), gap,
                f"\t.balign\t{common['align'] or 16}", f"\t.type\t{common['name']}, @object",
                f"\t.size\t{common['name']}, {common['bytes']}", f"{common['name']}:",
                f"\t.zero\t{common['bytes']}", "\t.popsection",
            ])  # fmt: skip
        elif in_data and _OBJECT.match(line):
            found[kind] = True
            put = f"{gap}\n{line}"
        elif in_tls and _SPACE.match(line):
            put = f"{line}\n{gap}"
        if put is not None:
            pieces += [text[taken : directive.start()], put]
            taken = directive.end()
    text = _COPIES.sub(r"\1lab_\2", "".join([*pieces, text[taken:]]))
    text = _UNSET_VECTOR.sub(r"\1-1\2", _UNSET.sub("-1", text))
    used = set()
    for use in _TLS_USE.finditer(text):
        before = _LAST_NAME.search(text[text.rfind("\n", 0, use.start()) + 1 : use.start()])
        used.add(use[1] or (before[0] if before else ""))
    used.discard("")
    dynamic = sorted(used - set(_LABEL.findall(text)))
    ties = [f"\t.globl\t{name}\n\t.set\t{name}, lab_dynamic_shared" for name in dynamic]
    first, last = [], []
    for kind, (name, section) in _DEVICE_SECTIONS.items():
        page = [section, *([gap] if found[kind] else []), "\t.balign\t4096"]
        first += [section, "\t.balign\t4096", f"\t.globl\t{name}", f"{name}:"]
        last += [*page, f"\t.globl\t{name}_end", f"{name}_end:"]
    return "\n".join([*first, "\t.text", text, *ties, *last, ""])


@dataclass(frozen=True)
class _Symbol:
    """What a symbol table says of one name. A type is a number of the ELF format."""

    name: str
    type: int
    value: int
    bytes: int


# Where its name begins, its type, two that are not wanted here, its value and its size.
_SYMBOL = np.dtype("<u4, u1, u1, <u2, <u8, <u8")
_OBJECT_TYPE, _TLS_TYPE = 1, 6


def read_symbols(program: Path) -> list[_Symbol]:
    """The symbol table of a 64-bit program, in its order."""
    from elftools.elf.elffile import ELFFile

    with program.open("rb") as file:
        elf: Any = ELFFile(file)
        table, names = (elf.get_section_by_name(name).data() for name in (".symtab", ".strtab"))
    # An object of pyelftools for each symbol would take longer than the kernel takes to link.
    return [
        _Symbol(names[at : names.index(b"\0", at)].decode(), info & 15, value, size)
        for at, info, _, _, value, size in np.frombuffer(table, _SYMBOL).tolist()
    ]


def device_variables(symbols: Sequence[_Symbol]) -> list[DeviceVariable]:
    """The device variables among a program's symbols, in the order of their places."""
    variables = []
    ends = {one.name: one.value for one in symbols if one.name.startswith("lab_device_")}
    for symbol in symbols:
        if symbol.type != _OBJECT_TYPE or not symbol.bytes:
            continue
        for number, (name, _) in enumerate(_DEVICE_SECTIONS.values()):
            if ends[name] <= symbol.value < ends[f"{name}_end"]:
                shown, offset = _plain_name(symbol.name), symbol.value - ends[name]
                variables.append(DeviceVariable(shown, bool(number), offset, symbol.bytes))
    return sorted(variables, key=lambda one: (one.set, one.offset))


def shared_variables(symbols: Sequence[_Symbol]) -> list[SharedVariable]:
    """Names, places and sizes of the shared variables among a program's symbols."""
    found = {one.name: (one.value, one.bytes) for one in symbols if one.type == _TLS_TYPE}
    start = found["lab_dynamic_shared"][0]
    lowest = min(value for value, _ in found.values())
    dynamic_name = "dynamic"
    variables = []
    for name, (value, size) in found.items():
        if value == start:
            if name != "lab_dynamic_shared":
                dynamic_name = _plain_name(name)
        elif size:
            variables.append(SharedVariable(_plain_name(name), value - lowest, size, False))
    variables.append(SharedVariable(dynamic_name, start - lowest, DYNAMIC_SHARED_BYTES, True))
    return sorted(variables, key=lambda v: v.offset)


def _plain_name(symbol: str) -> str:
    """The variable's own name in a mangled one: ``_ZZ6decodeE7partial`` to ``partial``."""
    if symbol.startswith("_ZGV"):
        return "(guard)"
    for found in reversed(list(re.finditer(r"\d+", symbol))):
        for start in range(found.start(), found.end()):
            length = int(symbol[start : found.end()])
            name = symbol[found.end() : found.end() + length]
            if (
                len(name) == length
                and re.fullmatch(r"(_?\d*_?)", symbol[found.end() + length :])
                and re.fullmatch(r"[A-Za-z_]\w*", name)
            ):
                return name
    return symbol


def _compile_once(
    cache: Path, file: str, content: Iterable[str], command: list[str]
) -> tuple[Path, ChildResult | None]:
    """The folder with a file that every kernel's build takes; where it fails, how."""
    final = cache / f"{file.split('.')[0]}-{digest_of_texts([*content, *command])}"
    if not _is_whole(final):
        with folder_to_build_in(cache) as temporary:
            folder = temporary / "once"
            folder.mkdir()
            done = _compile([*command, "-o", str(folder / file)], folder)
            if done.returncode:
                return final, done
            _publish(folder, final)
    with contextlib.suppress(OSError):
        os.utime(final)
    return final, None


def _build_runtime(cache: Path, compiler: HostCompiler) -> Path:
    # A second more than -O1, once; a kernel that multiplies on tensor cores runs a fifth faster.
    command = [str(compiler.path), *_common_options(compiler), "-O2", "-g0"]
    command += ["-fno-optimize-sibling-calls"]
    command += ["-c", str(NATIVE / "main.cpp")]
    folder, failed = _compile_once(cache, "runtime.o", _content(compiler), command)
    if failed is not None:
        why = f"{compiler.version}: {failed.stderr.strip()[:800]}"
        raise CpuRunnerMissing("The CPU runner's own code does not compile here.", why)
    return folder / "runtime.o"


def _build_prelude(
    cache: Path, compiler: HostCompiler, headers: tuple[Path, ...]
) -> tuple[str, ...]:
    """Options by which g++ takes CUDA's headers ready-made: a tenth of a second for a kernel
    instead of most of one. Without them the same headers are read as text."""
    if compiler.family != "gcc":
        return ()
    command = [str(compiler.path), *_kernel_options(compiler)]
    command += [*(f"-isystem{folder}" for folder in headers), "-x", "c++-header"]
    command.append(str(NATIVE / "cuda_on_cpu.h"))
    folder, failed = _compile_once(cache, "cuda_on_cpu.h.gch", _content(compiler, headers), command)
    # Where it fails, the kernel's own compilation will say why.
    return () if failed else (f"-I{folder}",)


def _content(compiler: HostCompiler, headers: tuple[Path, ...] = ()) -> tuple[str, ...]:
    marks = []  # they change when another version of the headers is installed in the same place
    for folder in headers:
        with contextlib.suppress(OSError):
            status = (folder / "cuda_fp16.h").stat()
            marks.append(f"{folder} {status.st_size} {status.st_mtime_ns}")
    return compiler.version, str(compiler.path), native_digest(), digest_of_texts(marks)


def _compile(command: list[str], folder: Path, name: str = "", by_ptx: bool = False) -> ChildResult:
    """Run the compiler, whose files all go to ``folder``. It ends with this process."""
    # PTX is what was unrolled and laid out already: longer than a source.
    limit_s = allowed_s((3 if by_ptx else 1) * KERNEL_LIMIT_S if name else OWN_LIMIT_S)
    done = run_child(
        command,
        time_limit_s=4 * limit_s,
        env={**os.environ, "LC_ALL": "C", "TMPDIR": str(folder)},
        limit_cpu_s=limit_s,
        limit_bytes=HOST_COMPILE_BYTES,
    )
    if done.ok:
        return done
    check_room(folder)  # it may be full by now
    what, most = name or "The CPU runner's own code", HOST_COMPILE_BYTES / 2**30
    if done.timed_out or _TOO_LONG.search(done.stderr):
        raise stopped_compiling(what, f"it did not end within {limit_s:g} s of processor time")
    if _TOO_LARGE.search(done.stderr):
        raise stopped_compiling(what, f"it ran out of memory, of which it may take {most:.1f} GiB")
    return done


@contextlib.contextmanager
def folder_to_build_in(cache: Path) -> Iterator[Path]:
    """A folder to build in. What a process that was killed left of its own is removed."""
    import fcntl

    for left in cache.glob("build-*"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > _YOUNG_S and _is_dead(left):
                shutil.rmtree(left, ignore_errors=True)
    with (
        tempfile.TemporaryDirectory(dir=cache, prefix="build-") as temporary,
        open(Path(temporary) / _ALIVE, "wb") as mark,
    ):
        fcntl.flock(mark, fcntl.LOCK_EX)  # goes with this process
        check_room(Path(temporary))
        yield Path(temporary)


def _is_dead(folder: Path) -> bool:
    try:
        with open(folder / _ALIVE, "rb") as mark:
            return lock_now(mark.fileno()) is True
    except FileNotFoundError:
        return True
    except OSError:
        return False


# ---- the cache ----


def digest_of_texts(parts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


@functools.cache
def native_digest() -> str:
    files = sorted(path for path in NATIVE.rglob("*") if path.is_file())
    return digest_of_texts([str(NATIVE), *(path.read_text() for path in files)])


def _sums(folder: Path) -> dict[str, list[int]]:
    files = (path for path in folder.iterdir() if path.name != _SUMS)
    return {one.name: [_sum(one, one.stat().st_mtime_ns), os.access(one, os.X_OK)] for one in files}


@functools.lru_cache(maxsize=64)  # the headers made ready are large, and each kernel takes them
def _sum(file: Path, changed_ns: int) -> int:
    """The checksum of a file that was last changed at a time."""
    return zlib.crc32(file.read_bytes())


def _is_whole(folder: Path) -> bool:
    """Whether a folder of the cache holds what was put there; what is left of one that was cut
    short or changed is removed, so that it is made again."""
    with contextlib.suppress(OSError, ValueError):
        if json.loads((folder / _SUMS).read_text()) == _sums(folder):
            return True
    shutil.rmtree(folder, ignore_errors=True)
    return False


def folder_kept(final: Path, make: Callable[[Path], None]) -> Path:
    """A folder of the cache, filled by ``make`` where it is not there or no longer whole."""
    if not _is_whole(final):
        with folder_to_build_in(final.parent) as temporary:
            made = temporary / "made"
            made.mkdir()
            make(made)
            _publish(made, final)
    with contextlib.suppress(OSError):
        os.utime(final)
    return final


def _publish(folder: Path, final: Path) -> None:
    """Give the finished folder its name in one step; another process may have been faster."""
    (folder / _SUMS).write_text(json.dumps(_sums(folder)))
    try:
        os.rename(folder, final)
    except OSError:
        if not final.is_dir():
            raise


def _load(folder: Path) -> Executable | None:
    if not _is_whole(folder):
        return None
    try:
        data = json.loads((folder / "kernel.json").read_text())
        os.utime(folder)
    except (OSError, ValueError):
        return None
    shared = tuple(SharedVariable(**item) for item in data["shared"])
    device = tuple(DeviceVariable(**item) for item in data["device"])
    as_gpu, by_ptx = bool(data["as_gpu"]), bool(data["by_ptx"])
    return Executable(folder / "kernel", shared, device, as_gpu, by_ptx=by_ptx)


# ---- errors ----

INLINE_ASSEMBLY = (
    "inline assembly is for GPUs only; put a host path beside it (#ifdef __CUDA_ARCH__)"
)

NOT_IN_RUNNER = "the kernel is run by its PTX, and of PTX the runner has what is common"
ON_A_GPU = "such a kernel can be compiled for a GPU and checked there"
CORRECT_LINE = (
    "where a GPU's compiler takes this line, the kernel can be checked there; "
    "every other kernel is unaffected"
)
CORRECT_IT = "correct the {} and run it again; every other kernel is unaffected"
GPU_HEADER = (
    "this header of CUDA's own, which the kernel includes, is for GPUs only: the CPU runner has "
    "the built-in functions, half, bfloat16, vector types, cooperative groups, atomics, barriers, "
    "pipelines, the wmma of half and bfloat16 and cub's reductions"
)

_MESSAGE = re.compile(r"^(?P<file>.+?):(?P<line>\d+):(?:\d+:)? (?:fatal )?error: (?P<text>.*)$")


def _compile_error(log: str, kernel: Kernel) -> LabError:
    name = kernel.name
    errors = [found for found in map(_MESSAGE.match, log.splitlines()) if found]
    own = [found for found in errors if found["file"] != "<launch>"]
    if not own and errors:
        missing = kernel.entries[(int(errors[0]["line"]) - 1) % len(kernel.entries)]
        there = kernels_in(source_words(kernel.source, kernel.folders))
        return no_kernel(name, missing, there, errors[0]["text"])
    if not own:
        why = log.strip()[:800] or "the compiler said nothing"
        return CompileError(
            f"{name} does not compile.", why, CORRECT_IT.format("kernel"), file=name, log=log
        )
    # A macro of the prelude that a header trips over is not where the mistake is.
    first = next((e for e in own if not Path(e["file"]).is_relative_to(NATIVE)), own[0])
    file, line = first["file"], int(first["line"])
    text = kernel.source if file == kernel.shown else _read(file, kernel.folders)
    excerpt = _excerpt(counted_lines(text, file), line)
    shown = name if file == kernel.shown else file
    foreign = any(Path(file).is_relative_to(folder) for folder in find_cuda_headers())
    said = first["text"].rpartition("declared with attribute error: ")[2]
    unable = said != first["text"]  # a header of ours says so
    foreign |= "nvcuda" in said + excerpt
    more = "" if len(own) == 1 else f" ({len(own)} errors in all; this is the first.)"
    return CompileError(
        f"{shown} does not compile for the CPU: line {line}: {said}.{more}\n{excerpt}",
        INLINE_ASSEMBLY if "asm" in first["text"] + excerpt else GPU_HEADER if foreign else "",
        ON_A_GPU if foreign or unable else CORRECT_LINE,
        file=shown,
        line=line,
        excerpt=excerpt,
        log=log,
    )


def _not_understood(log: str, kernel: Kernel) -> CompileError:
    """What to say where the C++ that was made of PTX is none."""
    found = next(filter(None, map(_MESSAGE.match, log.splitlines())), None)
    what = f"{kernel.name} has PTX that the CPU runner did not understand."
    said = found["text"] if found else log.strip()[:200] or "the compiler said nothing"
    line = int(found["line"]) if found and found["file"] == kernel.shown else None
    excerpt = _excerpt(counted_lines(kernel.source, kernel.name), line or 0)
    what = f"{what[:-1]}: line {line}.\n{excerpt}".rstrip() if line else what
    return CompileError(what, said, ON_A_GPU, file=kernel.name, line=line, log=log)


def _excerpt(lines: Sequence[str], line: int) -> str:
    return f"{line:>5} | {lines[line - 1]}" if 0 < line <= len(lines) else ""


def _read(file: str, include_dirs: tuple[Path, ...]) -> str:
    for path in (Path(file), *(folder / Path(file).name for folder in include_dirs)):
        with contextlib.suppress(OSError):
            return path.read_text(errors="replace")
    return ""


_ASSEMBLER = re.compile(r"^(?P<file>.+?):(?P<line>\d+): Error: (?P<text>.*)$", re.MULTILINE)


def _link_error(log: str, kernel: Kernel) -> LabError:
    name = kernel.name
    refused = _ASSEMBLER.search(log)
    if refused:  # inline assembly goes through the compiler unread
        file, line = refused["file"], int(refused["line"])
        lines = counted_lines(kernel.source, file)
        excerpt = _excerpt(lines, line) if file == kernel.shown else ""
        said = f"{file} has inline assembly that this CPU does not know: line {line}: "
        what = f"{said}{refused['text']}.\n{excerpt}".rstrip()
        return CompileError(
            what, INLINE_ASSEMBLY, ON_A_GPU, file=file, line=line, excerpt=excerpt, log=log
        )
    missing = sorted(set(re.findall(r"undefined reference to `([^']+)'", log)))
    what = f"{name} uses what the CPU runner does not have: {', '.join(missing) or 'see below'}."
    why = "" if missing else log.strip()[:800]
    return CompileError(what, why, ON_A_GPU, file=name, log=log)
