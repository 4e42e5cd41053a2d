"""The text of a kernel with its own headers, and the hash of what that text says."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from labtools.problem.text import is_file

from .options import COMMON_OPTIONS, CUPY_ADDED_OPTIONS

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([^"]+)".*$', re.MULTILINE)
_ANY_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^">\n]+)[">]', re.MULTILINE)

# A comment, or something in which a comment sign is no comment.
_LITERAL_OR_COMMENT = re.compile(
    r"""
    (?P<raw> \b(?:u8|[uUL])?R"(?P<mark>[^()\s\\]{0,16})\(.*?\)(?P=mark)" )
    | (?P<string> "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])+' )
    | (?P<comment> //(?:\\\n|[^\n])* | /\*.*?\*/ )
    """,
    re.VERBOSE | re.DOTALL,
)

_SPACE = re.compile(r"(?<=(\S)) (?=(\S))")
_WORD = re.compile(r"[\w\x00\x01]")
# Two signs that, side by side, are or begin one operator.
_OPERATORS = re.compile(
    r"\+\+|--|<<|>>|[<>=!+\-*/%&|^]=|&&|\|\||->|::|//|/\*|\.\*|\#\#|\.\.|<[:%]|[:%]>|%:"
)


def _drop_idle_space(match: re.Match[str]) -> str:
    """Keep a space only where leaving it out would join two tokens into another one."""
    before, after = match[1], match[2]
    if _WORD.match(before) and _WORD.match(after):
        return " "
    if _OPERATORS.match(before + after) or re.match(r"\d\.|\.\d", before + after):
        return " "
    return ""


def expand_includes(
    source: str, include_dirs: Iterable[Path], _seen: set[Path] | None = None
) -> str:
    """Replace every ``#include "..."`` that is found in the folders by the text of the file.

    A header is taken once, whatever its guards say. Headers in angle brackets, and those not
    found, stay as they are: they belong to the compiler.
    """
    folders = tuple(include_dirs)
    seen = set() if _seen is None else _seen

    def replace(match: re.Match[str]) -> str:
        path = next((f / match[1] for f in folders if is_file(f / match[1])), None)
        if path is None:
            return match[0]
        path = path.resolve()
        if path in seen:
            return ""
        seen.add(path)
        text = path.read_text(errors="replace")
        return expand_includes(text, (path.parent, *folders), seen)

    return _INCLUDE.sub(replace, source)


def used_headers(source: str, include_dirs: Iterable[Path]) -> str:
    """SHA-256 of every header that a source can reach through the folders, in any brackets.

    Conditions are not looked at, so it may hold headers that the compiler skips.
    """
    folders = tuple(include_dirs)
    seen: dict[Path, str] = {}

    def follow(names: Iterable[str], places: tuple[Path, ...]) -> None:
        for name in names:
            path = next((folder / name for folder in places if is_file(folder / name)), None)
            if path is None or path in seen:
                continue
            found = path.stat()
            header = _read_header(path, found.st_mtime_ns, found.st_size)
            seen[path] = header.digest
            follow(header.includes, (path.parent, *folders))

    follow(_ANY_INCLUDE.findall(source), folders)
    digest = hashlib.sha256()
    for path in sorted(seen):
        digest.update(f"{path.name} {seen[path]};".encode())
    return digest.hexdigest()


def odd_include(source: str, include_dirs: Iterable[Path]) -> str | None:
    """The name of an ``#include`` that leads to something which is there and is no file."""
    for name in _ANY_INCLUDE.findall(source):
        for folder in include_dirs:
            path = folder / name
            try:
                if path.exists() and not path.is_file():
                    return str(name)
            except (OSError, ValueError):
                return str(name)
    return None


class _Header(NamedTuple):
    digest: str
    includes: tuple[str, ...]


@functools.lru_cache(maxsize=1024)
def _read_header(path: Path, _changed_ns: int, _size: int) -> _Header:
    data = path.read_bytes()
    includes = _ANY_INCLUDE.findall(data.decode(errors="replace"))
    return _Header(hashlib.sha256(data).hexdigest(), tuple(dict.fromkeys(includes)))


@functools.lru_cache(maxsize=256)
def normalise_source(source: str) -> str:
    """The text without comments and without whitespace that means nothing.

    Preprocessor lines keep their line and single spaces, because both mean something there.
    """
    kept: list[str] = []

    def strip(match: re.Match[str]) -> str:
        if match["comment"] is not None:
            return " "
        kept.append(match[0])  # a literal: protect its spaces
        return f"\x00{len(kept) - 1}\x01"

    text = _LITERAL_OR_COMMENT.sub(strip, source.replace("\r\n", "\n")).replace("\\\n", " ")
    lines: list[str] = []
    code: list[str] = []

    def flush() -> None:
        joined = _SPACE.sub(_drop_idle_space, " ".join(" ".join(code).split()))
        if joined:
            lines.append(joined)
        code.clear()

    for line in text.split("\n"):
        if line.lstrip().startswith("#"):
            flush()
            words = " ".join(line.split())
            if words not in ("#pragma once", "#"):
                lines.append(re.sub(r"^# ", "#", words))
        else:
            code.append(line)
    flush()
    text = "\n".join(lines)
    return re.sub(r"\x00(\d+)\x01", lambda match: kept[int(match[1])], text)


_SCOPE = re.compile(
    r"\bnamespace(?: (?P<namespace>[\w:]+))?(?P<opens>\{)|(?P<brace>[{}])"
    r"|(?:\btemplate<(?P<of>[^{};]*)>[^{};<>]*)?\b__global__\b(?P<rest>[^{};]*)"
)
_CALL = re.compile(r"(\w+)\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)")


def kernels_in(words: str) -> list[str]:
    """The kernels that a text as of `source_words` has, each as C++ names it with its namespaces,
    a template's parameters in place of its arguments."""
    found: dict[str, None] = {}
    scopes: list[str] = []
    for one in _SCOPE.finditer(re.sub(r"^#.*$", "", words, flags=re.MULTILINE)):
        if one["brace"] == "}":
            del scopes[-1:]
        elif one["opens"] or one["brace"]:
            scopes.append(f"{one['namespace']}::" if one["namespace"] else "")
        elif calls := _CALL.findall(one["rest"]):
            name = "".join([*scopes, calls[-1]])
            found[name if one["of"] is None else f"{name}<{one['of']}>"] = None
    return list(found)


def signature_in(words: str, kernel: str) -> str:
    """A kernel with its parameters, as a text as of `source_words` has it; empty where it has
    not."""
    plain = re.escape(kernel.partition("<")[0].rpartition("::")[2].strip())
    found = re.search(rf"\b__global__\b[^;{{}}]*?\b({plain} ?\([^{{;]*\))", words)
    return re.sub(r"([*&])(?=\w)|(,)", r"\1\2 ", found[1]) if found else ""


def parameters_in(words: str, kernel: str) -> list[str]:
    """The parameters of `signature_in`, each with its type."""
    inside = signature_in(words, kernel).partition("(")[2].rpartition(")")[0]
    return [one.strip() for one in re.split(r",(?![^<(]*[>)])", inside) if one.strip()]


_TOKEN = re.compile(
    r"(?P<idle>//[^\n]*|/\*.*?\*/|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'"
    r"|^[ \t]*#(?:[^\n\\]|\\.)*)|(?P<mark>[{}();])",
    re.DOTALL | re.MULTILINE,
)
_INSIDE = re.compile(r"\s*(?:inline\s+)?namespace\b[^(){};]*|\s*extern\s*\"C\"\s*")
_ENDS_FUNCTION = re.compile(r"\)\s*(?:const|noexcept|override|->[\s\w:<>*&]+)?\s*$")
_MACRO = re.compile(r"\s*[A-Z][A-Z0-9_]+\s*\(.*\)", re.DOTALL)
"""A macro of the host's, behind which no semicolon stands."""
_FOR_GPU = re.compile(r"__(?:global|device|constant|shared)__")
_DECLARES = re.compile(r"\b(?:namespace|using|typedef|struct|class|enum|union|constexpr|const)\b")


_OF_A_HOST = re.compile(r"<<<|\bmain\s*\(|\b(?:std|torch|at)::|\bcuda[A-Z]\w*\s*\(")


def has_host_code(source: str) -> bool:
    """Whether a source launches kernels, or calls what only a host has."""
    return _OF_A_HOST.search(_without_comments(source)) is not None


def device_part(source: str, without: Collection[int] = ()) -> str:
    """A source without the functions and objects of the host, and without what stands at the lines
    ``without``, counted from 1; each line where it was."""
    kept, start, depth, is_function, line = [], 0, 0, False, 1

    def end(at: int) -> None:
        nonlocal start, is_function, line
        part = source[start:at]
        first = line + part[: len(part) - len(part.lstrip())].count("\n")
        line += part.count("\n")
        refused = any(first <= one <= line for one in without)
        head = _without_comments(part)
        head = head.partition("{")[0] if is_function else head
        ours = _FOR_GPU.search(head) or (_DECLARES.search(head) and not is_function)
        ours = ours or "static_assert" in head
        kept.append(part if ours and not refused else _directives(part))
        start, is_function = at, False

    for token in _TOKEN.finditer(source):
        mark, at = token["mark"], token.start()
        if mark is None:
            continue
        before = _without_comments(source[start:at]) if depth == (mark == ")") else ""
        if mark == "{" and depth == 0 and _INSIDE.fullmatch(before):
            kept.append(source[start : at + 1])
            line += kept[-1].count("\n")
            start = at + 1
        elif mark in "{(":
            if mark == "{" and depth == 0:
                is_function = _ENDS_FUNCTION.search(before) is not None
            depth += 1
        elif mark in "})" and depth:
            depth -= 1
            if depth == 0 and (is_function if mark == "}" else _MACRO.fullmatch(f"{before})")):
                end(at + 1)
        elif mark == "}":
            end(at)
            kept.append("}")
            start = at + 1
        elif mark == ";" and depth == 0:
            end(at + 1)
    return "".join([*kept, _directives(source[start:])])


def _without_comments(text: str) -> str:
    """And without what is for the preprocessor."""
    idle = r"//[^\n]*|/\*.*?\*/|^[ \t]*#(?:[^\n\\]|\\.)*"
    return re.sub(idle, "", text, flags=re.DOTALL | re.MULTILINE)


def _directives(part: str) -> str:
    """A part of which only the lines for the preprocessor are kept."""
    lines = part.split("\n")
    for place, line in enumerate(lines):
        continues = place and lines[place - 1].endswith("\\")
        if not line.lstrip().startswith("#") and not continues:
            lines[place] = ""
    return "\n".join(lines)


@functools.lru_cache(maxsize=256)
def has_cpp_kernels(text: str) -> bool:
    """Whether a source, its own headers within it, has kernels that machine code calls otherwise
    than C++ does."""
    return re.search(r'(?<!extern "C" )\b__global__\b', normalise_source(text)) is not None


_CONDITION = re.compile(r"[ \t]*#[ \t]*(if|ifdef|ifndef|elif|else|endif)\b(.*)")


def gpu_only_lines(source: str) -> list[tuple[int, int]]:
    """First and last line of each part that is compiled for a GPU only, by ``__CUDA_ARCH__``."""
    found: list[tuple[int, int]] = []
    stack: list[tuple[bool, int]] = []  # whether such a condition, and where its part begins
    for number, line in enumerate(source.splitlines(), start=1):
        directive = _CONDITION.match(line)
        if directive is None:
            continue
        word, condition = directive.groups()
        asks = "__CUDA_ARCH__" in condition
        negated = word == "ifndef" or "!" in condition
        if word in ("if", "ifdef", "ifndef"):
            stack.append((asks, number if asks and not negated else 0))
        elif stack:
            own, start = stack.pop()
            if start and number > start + 1:
                found.append((start + 1, number - 1))
            if word != "endif":
                begins = number if (own and not start) or (asks and not negated) else 0
                stack.append((own or asks, begins))
    return sorted(found)


_ASM = re.compile(r"\b(?:asm|__asm|__asm__)\b(?:\s|volatile|__volatile__)*\((?!\s*\"\"\s*[:)])")
_WHICH_GPU = re.compile(r"__CUDA_ARCH__\s*[<>=!]=?\s*\d|\d\s*[<>=!]=?\s*__CUDA_ARCH__")


@functools.lru_cache(maxsize=64)
def has_inline_ptx(source: str) -> bool:
    """Whether a source has PTX that is not kept from other compilers: outside of what stands under
    a bare ``__CUDA_ARCH__``. A condition on the architecture's number chooses among GPUs."""
    if not _ASM.search(source):
        return False
    lines = _LITERAL_OR_COMMENT.sub(
        lambda one: re.sub(r"[^\n]", "", one[0]) if one["comment"] else one[0], source
    ).splitlines()
    for first, last in gpu_only_lines(source):
        if not _WHICH_GPU.search(lines[first - 2]):
            lines[first - 1 : last] = [""] * (last - first + 1)
    return _ASM.search("\n".join(lines)) is not None


def asm_lines(source: str) -> dict[int, int]:
    """Of each line that a statement of inline PTX goes on in, the line it begins in: a compiler
    says it stands where it ends."""
    begins = {}
    for found in _ASM.finditer(source):
        depth, at = 0, found.start()
        for token in re.compile(r'"(?:[^"\\\n]|\\.)*"|[()]').finditer(source, at):
            depth += (token[0] == "(") - (token[0] == ")")
            if depth == 0 and token[0] == ")":
                break
            at = token.end()
        first = source.count("\n", 0, found.start()) + 1
        begins.update(dict.fromkeys(range(first, source.count("\n", 0, at) + 2), first))
    return begins


def hash_source(source: str, defines: Mapping[str, str], include_dirs: Iterable[Path]) -> str:
    """SHA-256 of what the source says: its text, its own headers, definitions and options."""
    return hash_words(source_words(source, include_dirs), defines)


def source_words(source: str, include_dirs: Iterable[Path]) -> str:
    """What a source and its own headers say, as `normalise_source` writes it."""
    return normalise_source(expand_includes(source, include_dirs))


def hash_words(words: str, defines: Mapping[str, str]) -> str:
    """`hash_source` of what `source_words` gave: for many definitions of one source."""
    options = (*COMMON_OPTIONS, *CUPY_ADDED_OPTIONS)
    parts = (words, repr(sorted(defines.items())), repr(sorted(options)))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
