"""CUDA C++ with host code, which NVRTC does not take, by nvcc: of a toolkit, or of its wheels."""

from __future__ import annotations

import functools
import re
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from .apart import OWN_LIMIT_S, allowed_s
from .cache import binary_mark, kept
from .cubin import Cubin, named_by, no_kernel, read_entries
from .errors import CompileError, parse_compile_log
from .names import find_symbol
from .options import define_options
from .sources import expand_includes, kernels_in, normalise_source, used_headers
from .tools import find_tool

NEEDS_NVCC = (
    "where nvcc is found it takes host code too: make nvcc, in the guide's folder, installs it, "
    "which needs no GPU"
)
MOST_ABSENT = 20
"""Headers of a kernel's file, at most, that are looked for in vain."""
_ABSENT = re.compile(r'cannot open source file "([\w./+-]+)"|error: ([\w./+-]+): No such file')

_OF_HOST = re.compile(r"^(\S+?):(\d+):\d+: (?:fatal )?error: ", re.MULTILINE)
_OF_TORCH = re.compile(r'#[ \t]*include[ \t]*[<"](?:torch|ATen|c10|pybind11)/')
_OPTIONS = "-cubin -lineinfo -std=c++17 --expt-relaxed-constexpr --expt-extended-lambda"
_OPTIONS += " -allow-unsupported-compiler -Xptxas=-v --keep"
_REPORTS = "Compiling entry function"
_ASKED = "what is launched"


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
    text: str,
    arch: str,
    defines: Mapping[str, str],
    entries: Sequence[str],
    headers: Sequence[Path] = (),
) -> Cubin | None:
    """Every kernel that a file launches, and ``entries``, for one architecture; None without nvcc.
    Headers that are in none of the folders ``headers`` and nowhere else are empty; those of torch
    are where it is installed.

    Raises CompileError: it does not compile, or takes too long. KernelError: it lacks an entry.
    """
    nvcc = find_tool("nvcc")
    if nvcc is None:
        return None
    folders = [source.resolve().parent, *headers]
    if _OF_TORCH.search(expand_includes(text, folders)):
        folders += _torch_headers()
    # What nothing uses of a template is not compiled.
    used = ", ".join(f"(void*){one}" for one in entries if "<" in one)
    wanted = f"static void* const lab_wanted[] = {{{used}}};\n" if used else ""
    whole = f'#line 1 "{source.resolve()}"\n{text}\n#line 1 "{_ASKED}"\n{wanted}'
    version = _nvcc_version(nvcc)

    def make() -> tuple[bytes, str, str]:
        return _run(nvcc, whole, arch, defines, folders, source, text)

    parts = (whole, arch, defines, folders, version, used_headers(text, folders))
    try:
        image, log, ptx = kept("nvcc", parts, make) if version[1] else make()
    except CompileError as error:
        if error.file != _ASKED:
            raise
        asked = ", ".join(one for one in entries if "<" in one)
        raise no_kernel(source.name, asked, kernels_in(normalise_source(text))) from error
    # A script in the place of nvcc may keep the assembler's words to itself.
    read = read_entries(image, arch, log if _REPORTS in log else None)
    symbols = {one: find_symbol(read, source.name, one) for one in entries}
    cubin = Cubin(image, arch, log, f"nvcc {version[0]}", read, source.name, ptx=ptx)
    return named_by(cubin, {one: of for one, of in symbols.items() if one != of})


@functools.cache
def _nvcc_version(nvcc: Path) -> tuple[str, str]:
    """The version, and a mark that another build does not have."""
    try:
        command = [str(nvcc), "--version"]
        said = subprocess.run(command, capture_output=True, text=True, timeout=30).stdout
        found = re.search(r"\bV([\d.]+)", said)
        return (found[1] if found else ""), said + binary_mark(nvcc)
    except (OSError, subprocess.TimeoutExpired):
        return "", ""


def _torch_headers() -> list[Path]:
    """The folders in which an extension of torch finds its headers; none without torch."""
    found = find_spec("torch")
    if found is None or not found.submodule_search_locations:
        return []
    own = Path(next(iter(found.submodule_search_locations))) / "include"
    return [own, own / "torch" / "csrc" / "api" / "include", Path(sysconfig.get_path("include"))]


def _run(
    nvcc: Path,
    whole: str,
    arch: str,
    defines: Mapping[str, str],
    folders: Iterable[Path],
    source: Path,
    text: str,
) -> tuple[bytes, str, str]:
    """The cubin, what the assembler said, and the PTX."""
    with tempfile.TemporaryDirectory() as folder:
        made, empty, all_of = (Path(folder) / name for name in ("k.cubin", "empty", "all.cu"))
        empty.mkdir()
        all_of.write_text(whole)
        command = [str(nvcc), *_OPTIONS.split(), f"-arch={arch}", *define_options(defines)]
        command += [f"-I{one}" for one in (*folders, empty)]
        command += [f"--keep-dir={folder}", "-o", str(made), str(all_of)]
        missing: list[str] = []
        for _ in range(MOST_ABSENT):
            try:
                done = subprocess.run(
                    command,
                    capture_output=True,
                    text=True,
                    errors="replace",
                    timeout=4 * allowed_s(OWN_LIMIT_S),
                    cwd=folder,
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                raise CompileError(f"nvcc did not compile {source.name}.", str(error)) from error
            log = (done.stderr + done.stdout).replace(str(all_of), _ASKED)
            log = log.replace(f"{source.resolve()}", str(source)).strip()
            if not done.returncode:
                ptx = all_of.with_suffix(".ptx")
                kept_text = ptx.read_text(errors="replace") if ptx.is_file() else ""
                return made.read_bytes(), log, kept_text
            absent = absent_header(log, text)
            if absent is None or not add_header(empty, absent):
                break
            missing.append(absent)
        log = _OF_HOST.sub(r"\1(\2): error: ", log)
        refused = parse_compile_log(log, text, str(source), [source.parent])
        if missing:
            refused.why += (
                f" Not found, so taken as empty: {', '.join(missing)}; -I says where they are"
            )
            refused.why = refused.why.strip()
        raise refused
