"""What can go wrong between source and machine code, in plain words."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from labtools.problem import KernelError, LabError
from labtools.problem.text import counted_lines

NO_COMPILER_STILL_WORKS = (
    "the recorded measurements, the pages, the predictions from data sheets, and the CPU runner "
    "where there is a C++ compiler"
)


class CompilerMissing(LabError):
    """No NVRTC can be reached, neither through cuda-core nor through CuPy."""


class DisassemblerMissing(LabError):
    """Machine code cannot be shown as text here."""


class CompileError(KernelError):
    """A kernel that does not compile.

    ``file`` is the source's name (a cell, a file or a header), ``line`` the 1-based line of the
    first error where the compiler named one, ``excerpt`` that line with a caret under the place,
    ``log`` everything the compiler said.
    """

    file: str = ""
    line: int | None = None
    excerpt: str = ""
    log: str = ""

    def __init__(self, what: str, why: str = "", still_works: str = "", **places: Any) -> None:
        super().__init__(what, why, still_works)
        vars(self).update(places)


_MESSAGE = re.compile(
    r"^(?P<file>.+?)\((?P<line>\d+)\): "
    r"(?:catastrophic error|error)(?: #[\w-]+)?: (?P<text>.*)$"
)
_PTXAS_SMEM = re.compile(
    r"Entry function '(?P<entry>[^']+)' uses too much shared data "
    r"\((?P<used>0x[0-9a-f]+) bytes, (?P<limit>0x[0-9a-f]+) max\)"
)
_PTXAS_ERROR = re.compile(r"^ptxas .*?(?:error|fatal)\s*: (?P<text>.*)$")

_HINTS = [
    (re.compile(hint["message"]), hint["says"])
    for hint in tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))["hint"]
]


def parse_compile_log(
    log: str, source: str, name: str, include_dirs: Iterable[Path] = ()
) -> CompileError:
    """Turn an NVRTC log into one message about its first error; headers are looked up in the
    folders."""
    lines = log.splitlines()
    for index, raw in enumerate(lines):
        found = _MESSAGE.match(raw)
        if found is None:
            continue
        file, line, text = found["file"], int(found["line"]), found["text"].strip()
        written = _source_line(file, line, source, name, include_dirs)
        shown, caret = (*lines[index + 1 : index + 3], "", "")[:2]
        excerpt = _excerpt(shown, caret, line, written)
        said = [match["text"].strip() for match in map(_MESSAGE.match, lines) if match]
        hint = _hint(said)
        more = "" if len(said) == 1 else f" ({len(said)} errors in all; this is the first.)"
        what = f"{file} does not compile: line {line}: {text}.{more}\n{excerpt}"
        still = "every other kernel is unaffected"
        return CompileError(what, hint, still, file=file, line=line, excerpt=excerpt, log=log)
    return _assembler_error(log, name)


def _hint(said: list[str]) -> str:
    """Plain words for the first message that has some; says so when that is a later one."""
    for index, text in enumerate(said):
        for pattern, hint in _HINTS:
            if pattern.search(text):
                return hint if index == 0 else f"A later error says: {text}. {hint}"
    return ""


def _assembler_error(log: str, name: str) -> CompileError:
    smem = _PTXAS_SMEM.search(log)
    if smem:
        used, limit = int(smem["used"], 16), int(smem["limit"], 16)
        declares = f"{smem['entry']} declares {used} bytes of static shared memory"
        why = f"a kernel may declare at most {limit} bytes with a fixed size"
        still = (
            "declare a smaller array, or use extern __shared__ and give smem_bytes in the launch"
        )
        return CompileError(f"{name} does not compile: {declares}.", why, still, file=name, log=log)
    matches = (_PTXAS_ERROR.match(line.strip()) for line in log.splitlines())
    said = [match["text"].strip() for match in matches if match]
    what = f"{name} does not compile: {said[0] if said else 'the compiler gave no line'}."
    usual = (
        "the assembler refused the code; inline assembly and resource limits are the usual causes"
    )
    still = "correct the kernel and run it again; every other kernel is unaffected"
    return CompileError(what, usual if said else log.strip()[:600], still, file=name, log=log)


def _excerpt(shown: str, caret: str, line: int, text: str | None) -> str:
    """The line of the error as written, with a caret where the compiler put its own."""
    written = shown.strip() if text is None else text
    gutter = f"{line:>5} | "
    body = f"{gutter}{written.expandtabs(4)}"
    if caret.strip() != "^" or not shown.strip():
        return body
    # The compiler indents the line it shows; count from the first visible character instead.
    offset = caret.index("^") - (len(shown) - len(shown.lstrip()))
    before = written[: len(written) - len(written.lstrip()) + max(offset, 0)]
    return f"{body}\n{' ' * (len(gutter) + len(before.expandtabs(4)))}^"


def _source_line(
    file: str, line: int, source: str, name: str, include_dirs: Iterable[Path]
) -> str | None:
    if file == name:
        text = source
    else:
        places = [Path(file), *(folder / Path(file).name for folder in include_dirs)]
        found = next((place for place in places if place.is_file()), None)
        if found is None:
            return None
        text = found.read_text(errors="replace")
    lines = counted_lines(text, file)
    return lines[line - 1] if 0 < line <= len(lines) else None
