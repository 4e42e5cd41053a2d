"""PTX read into statements, each with the line of the reader's that it belongs to."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

IS_PTX = re.compile(r"^[ \t]*\.version[ \t]+\d", re.MULTILINE)


class NotTranslated(Exception):
    """PTX has something for which there is nothing here; says what, and in which line."""

    def __init__(self, what: str, line: int | None = None) -> None:
        super().__init__(what)
        self.what, self.line = what, line


@dataclass(frozen=True)
class Statement:
    """A part of a function."""

    kind: str  # ``label``, ``targets``, ``reg``, ``variable`` or ``instruction``
    text: str
    scope: int  # number of the braces around it; 0 are those of the function
    at: tuple[str, int] | None  # file and line of the reader's


@dataclass(frozen=True)
class Variable:
    """A variable of PTX, or a parameter."""

    name: str
    space: str  # ``global``, ``const``, ``shared``, ``local`` or ``param``
    type: str
    count: int  # of elements; 0: as many as the launch gives
    alignment: int
    is_pointer: bool = False
    is_array: bool = False
    value: str = ""

    @property
    def bytes(self) -> int:
        """Of all of it."""
        return self.count * bits_of(self.type) // 8


@dataclass
class Function:
    """A kernel, or a function that one calls."""

    name: str
    is_entry: bool
    returned: list[Variable]
    parameters: list[Variable]
    statements: list[Statement] = field(default_factory=list)
    parents: dict[int, int] = field(default_factory=dict)  # of each scope, the one around it


_BITS = {"pred": 8, "f16x2": 32, "bf16x2": 32, "bf16": 16, "tf32": 32, "e4m3x2": 16, "e5m2x2": 16}


def bits_of(type_: str) -> int:
    """Bits of a type, such as 32 of ``f16x2``."""
    digits = re.search(r"\d+$", type_)
    return _BITS.get(type_) or int(digits[0] if digits else 0)


def operands_of_ptx(text: str) -> list[str]:
    """Operands, at the commas that stand in no bracket."""
    depth, marked = 0, ""
    for sign in text:
        depth += (sign in "[{(") - (sign in "]})")
        marked += "\n" if sign == "," and depth == 0 else " " if sign.isspace() else sign
    return [" ".join(one.split()) for one in marked.split("\n") if one.strip()]


def shorten_ptx(text: str) -> str:
    """A statement in one line, for a message."""
    text = " ".join(text.split())
    return text if len(text) <= 60 else f"{text[:57]}..."


_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"((?:[^"\\]|\\.)*)"(?:\s+"((?:[^"\\]|\\.)*)")?', re.M)
_PLACE = r"(\d+)\s+(\d+)\s+(\d+)"
_LOC = re.compile(
    rf"\.loc\s+{_PLACE}(?:\s*,\s*function_name\s+[^,\n]+,\s*inlined_at\s+{_PLACE})?[^\n]*"
)
_ONE_LINE = re.compile(r"\.(?:version|target|address_size|file|pragma|alias)\b[^\n]*")
_SECTION = re.compile(r"\.section\b[^{]*\{[^}]*\}")
_LINKED = re.compile(r"(?:\.(?:visible|extern|weak|common)\s+)*")
_LABEL = re.compile(r"([A-Za-z_$][\w$]*)\s*:(?!:)(\s*\.branchtargets[^;]*;)?")
_FUNCTION = re.compile(
    r"\s*(?:\((?P<returned>[^)]*)\))?\s*(?P<name>[\w$]+)\s*(?:\((?P<parameters>[^)]*)\))?[^{;]*"
)
_MODS = r"(?:\s*\.(?:attribute\([^)]*\)|align\s+\d+|ptr|v[248]|global|shared|const|local))*"
_VARIABLE = re.compile(
    r"\.(?P<space>global|const|shared|local|param|reg)\b"
    rf"(?P<mods>{_MODS})\s*\.(?P<type>[busf]\d+|pred|f16x2|bf16x2|bf16)(?P<more>{_MODS})"
    r"\s+(?P<name>[\w$%]+)\s*"
    r"(?P<sizes>(?:\[\s*\d*\s*\])*)\s*(?:=\s*(?P<value>.*))?$",
    re.DOTALL,
)


def read_variable(text: str, is_extern: bool = False) -> Variable:
    """A declaration. Raises NotTranslated: it has another form."""
    found = _VARIABLE.match(text)
    if found is None or (is_extern and found["space"] != "shared"):
        raise NotTranslated(f"the declaration `{shorten_ptx(text)}`")
    mods = found["mods"] + found["more"]
    sizes = [int(one or 0) for one in re.findall(r"\[\s*(\d*)\s*\]", found["sizes"])]
    sizes += [int(one) for one in re.findall(r"\.v([248])", mods)]
    aligned = re.search(r"\.align\s+(\d+)", mods)
    alignment = max(int(aligned[1]) if aligned else 1, bits_of(found["type"]) // 8)
    is_pointer, value = ".ptr" in mods, found["value"] or ""
    shape = (found["type"], math.prod(sizes), alignment, is_pointer, bool(sizes), value)
    return Variable(found["name"], found["space"], *shape)


class PtxModule:
    """PTX as its variables and functions."""

    def __init__(
        self,
        text: str,
        name: str,
        own_files: Callable[[str], str | None],
        lines: Mapping[int, int] = MappingProxyType({}),
    ) -> None:
        """The arguments of `translate_ptx`. Raises NotTranslated."""
        self._lines = lines
        self._name = name.replace("\\", "/").replace('"', "'")
        self._files = {
            int(number): own_files(re.sub(r"\\(.)", r"\1", f"{one}/{two}" if two else one))
            for number, one, two in _FILE.findall(text)
        }
        self._by_ptx_lines = not any(self._files.values())
        self._text = _COMMENT.sub(lambda one: re.sub(r"[^\n]", " ", one[0]), text.rstrip("\0"))
        self._callers: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._line = 1, 0
        self.variables: list[Variable] = []
        self.functions: dict[str, Function] = {}
        at = 0
        while (at := self._skip(at)) < len(self._text):
            if found := self._match(at, _LOC, _ONE_LINE, _SECTION):
                at = found.end()
                continue
            linked = self._match(at, _LINKED)
            assert linked is not None
            if found := self._match(linked.end(), re.compile(r"\.(entry|func)\b")):
                at = self._read_function(found[1] == "entry", found.end())
            else:
                end = self._end_of(at)
                self._at_line(at, self._declare, linked.end(), end, ".extern" in linked[0])
                at = end

    def _skip(self, at: int) -> int:
        found = re.compile(r"[\s;]*").match(self._text, at)
        return found.end() if found else at

    def _match(self, at: int, *forms: re.Pattern[str]) -> re.Match[str] | None:
        return next(filter(None, (form.match(self._text, at) for form in forms)), None)

    def _end_of(self, at: int) -> int:
        """The semicolon, or the brace, that ends a statement."""
        depth = 0
        for found in re.compile(r'[{};]|"(?:[^"\\]|\\.)*"').finditer(self._text, at):
            depth += (found[0] == "{") - (found[0] == "}")
            if depth < 0 or (found[0] == ";" and depth == 0):
                return found.start()
        return len(self._text)

    def _line_at(self, at: int) -> int:
        line, counted = self._line if self._line[1] <= at else (1, 0)
        self._line = line + self._text.count("\n", counted, at), at
        return self._line[0]

    def _at_line(self, at: int, act: Callable[..., Any], *given: Any) -> Any:
        try:
            return act(*given)
        except NotTranslated as error:
            error.line = self._line_at(at) if self._by_ptx_lines else None
            raise

    def _declare(self, at: int, end: int, is_extern: bool) -> None:
        one = read_variable(self._text[at:end].strip(), is_extern)
        count = one.count if one.is_array else 1
        self.variables.append(Variable(**{**vars(one), "count": 0 if is_extern else count}))

    def _read_function(self, is_entry: bool, at: int) -> int:
        found = _FUNCTION.match(self._text, at)
        if found is None:
            raise NotTranslated(f"the function `{shorten_ptx(self._text[at : at + 80])}`")
        cluster = re.search(r"\.reqnctapercluster((?:\s*,?\s*\d+)+)", found[0])
        if cluster and math.prod(map(int, re.findall(r"\d+", cluster[1]))) > 1:
            raise NotTranslated(f"clusters of blocks, as `{found['name']}` asks for")
        lists = (self._at_line(at, _parameters, found[one] or "") for one in _LISTS)
        one = Function(found["name"], is_entry, *lists)
        end = found.end()
        if self._text[end : end + 1] != "{":
            return end + 1  # it is declared, and stands elsewhere
        self.functions[one.name] = one
        return self._read_body(one, end + 1)

    def _read_body(self, function: Function, at: int) -> int:
        scope, here = 0, None
        while (at := self._skip(at)) < len(self._text):
            where = (self._name, self._line_at(at)) if self._by_ptx_lines else here

            def put(kind: str, text: str, where: Any = where, scope: int = scope) -> None:
                function.statements.append(Statement(kind, text, scope, where))

            if found := self._match(at, _LOC):
                here, at = self._place(found) or here, found.end()
            elif found := self._match(at, _ONE_LINE):
                at = found.end()
            elif self._text[at] == "{":
                inner = len(function.parents) + 1
                function.parents[inner], scope, at = scope, inner, at + 1
            elif self._text[at] == "}":
                at += 1
                if scope == 0:
                    return at
                scope = function.parents[scope]
            elif found := self._match(at, _LABEL):
                put("targets" if found[2] else "label", " ".join(found[0].split()))
                at = found.end()
            else:
                end = self._end_of(at)
                said = " ".join(self._text[at:end].split())
                if said.startswith((".shared", ".global", ".const", ".extern")):
                    linked = self._match(at, _LINKED)
                    start = linked.end() if linked else at
                    self._at_line(at, self._declare, start, end, ".extern" in said)
                elif said.startswith((".local", ".param")):
                    put("variable", said)
                elif said.startswith(".reg"):
                    put("reg", said)
                elif not said.startswith("."):
                    put("instruction", said)
                at = end
        raise NotTranslated(f"`{function.name}`, which does not end")

    def _place(self, loc: re.Match[str]) -> tuple[str, int] | None:
        """The innermost line of the source that a ``.loc`` leads to, else of its own headers."""
        place: tuple[int, ...] | None = tuple(map(int, loc.group(1, 2, 3)))
        if place and loc[4]:
            self._callers[place] = tuple(map(int, loc.group(4, 5, 6)))
        header, seen = None, set()
        follows = loc[4] is not None
        while place and place not in seen:
            seen.add(place)
            file = self._files.get(place[0])
            if file and place[1]:
                if file == self._name:
                    return file, self._lines.get(place[1], place[1])
                header = header or (file, place[1])
            place, follows = self._callers.get(place) if follows else None, True
        return header


_LISTS = ("returned", "parameters")


def _parameters(text: str) -> list[Variable]:
    found = []
    for one in operands_of_ptx(text):
        read = read_variable(re.sub(r"^\.reg\b", ".param", one))
        found.append(Variable(**{**vars(read), "count": read.count if read.is_array else 1}))
    return found


def own_file(file: str, shown: str, folders: Sequence[Path]) -> str | None:
    """What messages call a file that ``.file`` names: the source, or one of its own headers."""
    if file == shown or file.endswith(f"/{shown}"):
        return shown
    path = Path(file).resolve()
    return str(path) if any(path.is_relative_to(Path(one).resolve()) for one in folders) else None
