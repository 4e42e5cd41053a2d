"""PTX as C++ on the CPU runner: one statement an instruction, with the line that its ``.loc`` names.

A register is a local variable, a label a label, a shared variable a thread-local one as in the C++
of a kernel. So barriers, races, bounds and alignment are watched in the same way, and told with the
same lines. What is more than one expression is a function of ``native/ptx.h``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

IS_PTX = re.compile(r"^[ \t]*\.version[ \t]+\d", re.MULTILINE)


class NotTranslated(Exception):
    """PTX has something for which there is no C++ here; says what, and in which line."""

    def __init__(self, what: str, line: int | None) -> None:
        super().__init__(what)
        self.what, self.line = what, line


@dataclass(frozen=True)
class TranslatedKernel:
    """One kernel of PTX: its symbol, the C++ function, and kinds and bytes of its parameters."""

    symbol: str
    function: str
    parameters: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Translated:
    """C++ for the runner, and the kernels in it by symbol."""

    text: str
    kernels: Mapping[str, TranslatedKernel]


def translate_ptx(text: str, name: str, own_files: Callable[[str], str | None]) -> Translated:
    """C++ that runs on the CPU runner as the PTX runs on a GPU.

    ``own_files`` says of a file that ``.file`` names what messages call it, or None where it is none
    of the reader's. Without any of the reader's the lines are those of the PTX, called ``name``.

    Raises NotTranslated: an instruction, or a form of one, that is not here.
    """
    return _Module(text, name, own_files).translated()


# ---- reading ----

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"((?:[^"\\]|\\.)*)"', re.MULTILINE)
_LOC = re.compile(
    r"\.loc\s+(\d+)\s+(\d+)\s+(\d+)(?:\s*,\s*function_name\s+[\w$.+]+\s*,\s*inlined_at\s+"
    r"(\d+)\s+(\d+)\s+(\d+))?[^\n]*"
)
_LINE_DIRECTIVE = re.compile(r"\.(?:version|target|address_size|file|maxntid|minnctapersm)\b[^\n]*")
_LABEL = re.compile(r"([A-Za-z_$%][\w$]*)\s*:(?!:)")
_WORD = re.compile(r"[\w$%.:]+")
_LINKING = r"(?:\.(?:visible|extern|weak|common)\s+)*"
_VARIABLE = re.compile(
    r"\.(?P<space>global|const|shared|local|param)\b(?P<mods>(?:\s*\.(?:attribute\([^)]*\)|align\s+\d+|ptr|"
    r"managed|unified|v[248]|global|shared|const|local|generic))*)\s*"
    r"\.(?P<type>[busf]\d+|pred|f16x2|bf16x2|bf16)\s+(?P<name>[\w$%]+)\s*"
    r"(?P<sizes>(?:\[\s*\d*\s*\])*)\s*(?:=\s*(?P<value>.*))?$",
    re.DOTALL,
)
_REGISTERS = re.compile(r"\.reg\s*\.(?P<type>\w+)\s+(?P<names>.*)$", re.DOTALL)
_BITS = {"pred": 8, "f16x2": 32, "bf16x2": 32, "bf16": 16}


def _bits(type_: str) -> int:
    found = re.search(r"\d+$", type_)
    return _BITS.get(type_) or int(found[0] if found else 0)


@dataclass
class _Statement:
    kind: str  # ``open``, ``close``, ``label``, ``reg``, ``variable`` or ``instruction``
    text: str
    scope: int
    line: int  # of the PTX
    at: tuple[str, int] | None  # the reader's line


@dataclass
class _Function:
    name: str
    is_entry: bool
    returned: list[tuple[str, int]]  # names and bytes
    parameters: list[tuple[str, str, int]]  # names, kinds and bytes
    statements: list[_Statement] = field(default_factory=list)
    parents: dict[int, int] = field(default_factory=dict)  # of each scope, the one around it


@dataclass(frozen=True)
class _Variable:
    name: str  # in C++
    space: str
    bytes: int | None = None  # None: as many as the launch gives


_SPECIAL = {
    **{f"%tid.{a}": f"lab_thread_index().{a}" for a in "xyz"},
    **{f"%ntid.{a}": f"lab_block_dim().{a}" for a in "xyz"},
    **{f"%ctaid.{a}": f"lab_block_index().{a}" for a in "xyz"},
    **{f"%nctaid.{a}": f"lab_grid_dim().{a}" for a in "xyz"},
    **{f"%clusterid.{a}": f"lab_block_index().{a}" for a in "xyz"},
    **{f"%nclusterid.{a}": f"lab_grid_dim().{a}" for a in "xyz"},
    **{f"%cluster_ctaid.{a}": "0u" for a in "xyz"},
    **{f"%cluster_nctaid.{a}": "1u" for a in "xyz"},
    **{"%cluster_ctarank": "0u", "%cluster_nctarank": "1u", "%is_explicit_cluster": "0u"},
    **{"%laneid": "lab::ptx::lane()", "%warpid": "lab::ptx::warp()", "WARP_SZ": "32"},
    "%nwarpid": "((lab_block_dim().x * lab_block_dim().y * lab_block_dim().z + 31) / 32)",
    **{"%smid": "0u", "%nsmid": "1u", "%gridid": "0ull"},
    "%lanemask_eq": "(1u << lab::ptx::lane())",
    "%lanemask_lt": "((1u << lab::ptx::lane()) - 1)",
    "%lanemask_le": "((2u << lab::ptx::lane()) - 1)",
    "%lanemask_gt": "~((2u << lab::ptx::lane()) - 1)",
    "%lanemask_ge": "~((1u << lab::ptx::lane()) - 1)",
    **{name: "uint64_t(lab_clock())" for name in ("%clock", "%clock64", "%globaltimer")},
    **{name: "uint32_t(lab_clock())" for name in ("%globaltimer_lo",)},
    **{"%clock_hi": "0u", "%globaltimer_hi": "0u", "%total_smem_size": "lab_dynamic_bytes()"},
    "%dynamic_smem_size": "lab_dynamic_bytes()",
}


class _Module:
    def __init__(self, text: str, name: str, own_files: Callable[[str], str | None]) -> None:
        self.name = name.replace("\\", "/").replace('"', "'")
        self.files = {
            int(number): own_files(re.sub(r"\\(.)", r"\1", file))
            for number, file in _FILE.findall(text)
        }
        self.is_own = not any(self.files.values())  # the lines are those of the PTX
        self.text = _COMMENT.sub(lambda one: re.sub(r"[^\n]", " ", one[0]), text)
        self.variables: dict[str, _Variable] = {}
        self.functions: dict[str, _Function] = {}
        self.declared: dict[str, str] = {}  # by C++ name; what nothing names is left out
        self._line, self._counted = 1, 0
        self._callers: dict[tuple[int, int, int], tuple[int, int, int]] = {}
        self._read()

    def line_at(self, at: int) -> int:
        if at < self._counted:
            self._line, self._counted = 1, 0
        self._line += self.text.count("\n", self._counted, at)
        self._counted = at
        return self._line

    def _read(self) -> None:
        text, at = self.text, 0
        while True:
            while at < len(text) and text[at] in " \t\r\n;":
                at += 1
            if at >= len(text):
                return
            if found := (_LOC.match(text, at) or _LINE_DIRECTIVE.match(text, at)):
                at = found.end()
            elif found := re.compile(r"\.section\b[^{]*\{[^}]*\}").match(text, at):
                at = found.end()
            elif found := re.compile(_LINKING + r"\.(entry|func)\b").match(text, at):
                at = self._read_function(found[1] == "entry", found.end())
            else:
                end = _end_of(text, at)
                line = self.line_at(at)
                declared = re.sub(r"^" + _LINKING, "", text[at:end].strip())
                self.declare(declared, line, is_extern=".extern" in text[at:end])
                at = end

    def declare(self, text: str, line: int, is_extern: bool = False) -> None:
        """A variable of the module, or a shared one of a function."""
        if text.startswith((".pragma", ".alias")):
            return
        found = _VARIABLE.match(text)
        if found is None:
            raise NotTranslated(f"the declaration `{_short(text)}`", line)
        name, space, bits = found["name"], found["space"], _bits(found["type"])
        sizes = [int(one or 0) for one in re.findall(r"\[\s*(\d*)\s*\]", found["sizes"])]
        vector = re.search(r"\.v([248])", found["mods"])
        count = int(vector[1]) if vector else 1
        for size in sizes:
            count *= size
        aligned = re.search(r"\.align\s+(\d+)", found["mods"])
        alignment = max(int(aligned[1]) if aligned else 1, bits // 8)
        plain = f"lab_v{len(self.variables)}"
        given = f'__asm__("{name}") __attribute__((aligned({alignment})))'
        if space == "shared":
            unsized = is_extern and not count
            self.variables[name] = _Variable(plain, space, None if unsized else count * bits // 8)
            kind = 'extern "C" thread_local' if unsized else "thread_local"
            used = "" if unsized else " __attribute__((used))"
            length = "" if unsized else count * bits // 8
            self.declared[plain] = f"{kind} unsigned char {plain}[{length}] {given}{used};"
            return
        if space not in ("global", "const") or is_extern:
            raise NotTranslated(f"the declaration `{_short(text)}`", line)
        self.variables[name] = _Variable(plain, space, count * bits // 8)
        kind = "const " if space == "const" or name.startswith(("$", "__const")) else ""
        values = _values(found["value"] or "", bits, self.variables, line)
        filled = f" = {{{', '.join(values)}}}" if values else ""
        of = f"{kind}uint{bits}_t {plain}[{max(count, 1)}]"
        self.declared[plain] = f"{of} {given}{filled};"
        if kind:  # a constant has a name of its own outside only where it is said to
            self.declared[plain] = f"extern {of} {given};\n{of}{filled or ' = {}'};"

    def _read_function(self, is_entry: bool, at: int) -> int:
        text = self.text
        end = re.compile(r"[{;]").search(_hide_brackets(text, at), 0)
        if end is None:
            raise NotTranslated("a function without an end", self.line_at(at))
        stop = at + end.start()
        line = self.line_at(at)
        found = re.match(
            r"\s*(?:\((?P<returned>[^)]*)\))?\s*(?P<name>[\w$]+)\s*(?:\((?P<parameters>[^)]*)\))?",
            text[at:stop],
        )
        if found is None:
            raise NotTranslated(f"the function `{_short(text[at:stop])}`", line)
        returned = [(n, b) for n, _, b in _parameters(found["returned"] or "", line)]
        parameters = _parameters(found["parameters"] or "", line)
        one = _Function(found["name"], is_entry, returned, parameters)
        if text[stop] == ";":
            return stop + 1
        self.functions[one.name] = one
        return self._read_body(one, stop + 1)

    def _read_body(self, function: _Function, at: int) -> int:
        text, scope, scopes = self.text, 0, 0
        here: tuple[str, int] | None = None
        put = function.statements.append
        while True:
            while at < len(text) and text[at] in " \t\r\n;":
                at += 1
            if at >= len(text):
                raise NotTranslated(f"`{function.name}` without an end", self.line_at(at))
            line = self.line_at(at)
            where = (self.name, line) if self.is_own else here
            if found := _LOC.match(text, at):
                here = self._place(found) or here
                at = found.end()
            elif found := _LINE_DIRECTIVE.match(text, at):
                at = found.end()
            elif text[at] == "{":
                scopes += 1
                function.parents[scopes] = scope
                scope = scopes
                at += 1
            elif text[at] == "}":
                at += 1
                if scope == 0:
                    return at
                scope = function.parents[scope]
            elif (found := _LABEL.match(text, at)) and not found[1].startswith("%"):
                at = found.end()
                targets = re.compile(r"\s*\.(?:branchtargets|callprototype|calltargets)\b").match(
                    text, at
                )
                end = _end_of(text, at) if targets else at
                put(
                    _Statement(
                        "label", f"{found[1]} {text[at:end].strip()}".strip(), scope, line, where
                    )
                )
                at = end
            else:
                end = _end_of(text, at)
                said = " ".join(text[at:end].split())
                at = end
                if said.startswith(".reg"):
                    put(_Statement("reg", said, scope, line, where))
                elif said.startswith((".local", ".param")):
                    put(_Statement("variable", said, scope, line, where))
                elif said.startswith((".shared", ".global", ".const", ".extern")):
                    plain = re.sub(r"^" + _LINKING, "", said)
                    self.declare(plain, line, is_extern=".extern" in said)
                elif not said.startswith("."):
                    put(_Statement("instruction", said, scope, line, where))

    def _place(self, loc: re.Match[str]) -> tuple[str, int] | None:
        """The innermost of the reader's own lines that a ``.loc`` leads to."""
        key = (int(loc[1]), int(loc[2]), int(loc[3]))
        if loc[4]:
            self._callers[key] = (int(loc[4]), int(loc[5]), int(loc[6]))
        place: tuple[int, int, int] | None = key
        header, seen = None, set()
        while place and place not in seen:
            seen.add(place)
            file = self.files.get(place[0])
            if file and place[1]:
                if file == self.name:
                    return file, place[1]
                header = header or (file, place[1])
            place = self._callers.get(place) if place != key or loc[4] else None
        return header

    def translated(self) -> Translated:
        bodies, kernels, heads = [], {}, []
        numbers = {name: f"lab_f{i}" for i, name in enumerate(self.functions)}
        for name, one in self.functions.items():
            if one.is_entry:
                listed = tuple((kind, size) for _, kind, size in one.parameters)
                kernels[name] = TranslatedKernel(name, numbers[name], listed)
            else:
                heads.append(f"static void {numbers[name]}({_signature(one)});")
        for one in self.functions.values():
            bodies.append(_Body(self, one, numbers).text())
        named = set(re.findall(r"\blab_v\d+\b", "\n".join(bodies)))
        for plain in reversed(self.declared):  # an initial value may name a variable before it
            if plain in named:
                named |= set(re.findall(r"\blab_v\d+\b", self.declared[plain]))
        variables = [text for plain, text in self.declared.items() if plain in named]
        text = "\n".join(['#include "ptx.h"', *variables, *heads, *bodies, ""])
        return Translated(text, kernels)


def _signature(one: _Function) -> str:
    given = [name for name, *_ in (*one.returned, *one.parameters)]
    return ", ".join(f"unsigned char* {_plain(name)}" for name in given)


def _plain(name: str) -> str:
    return "r_" + name.replace("%", "")


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 60 else f"{text[:57]}..."


def _hide_brackets(text: str, at: int) -> str:
    """The text from a place on, what stands in round brackets as spaces."""
    end = text.find("{", at)
    end = len(text) if end < 0 else end + 1
    return re.sub(r"\([^)]*\)", lambda one: " " * len(one[0]), text[at:end])


def _end_of(text: str, at: int) -> int:
    """Behind the semicolon that ends a statement."""
    depth = 0
    for found in re.compile(r'[{};]|"(?:[^"\\]|\\.)*"').finditer(text, at):
        depth += {"{": 1, "}": -1}.get(found[0], 0)
        if found[0] == ";" and depth == 0:
            return found.start()
        if depth < 0:
            return found.start()
    return len(text)


def _parameters(text: str, line: int) -> list[tuple[str, str, int]]:
    found = []
    for one in filter(None, (part.strip() for part in text.split(","))):
        if not one.startswith(".param"):
            one = re.sub(r"^\.reg\b", ".param", one)
        named = _VARIABLE.match(re.sub(r"\.ptr(\s*\.(global|shared|const|local))?", ".ptr", one))
        if named is None:
            raise NotTranslated(f"the parameter `{_short(one)}`", line)
        sizes = [int(n) for n in re.findall(r"\[\s*(\d+)\s*\]", named["sizes"])]
        bits, type_ = _bits(named["type"]), named["type"]
        size = bits // 8 * (sizes[0] if sizes else 1)
        kind = "p" if ".ptr" in named["mods"] else "f" if type_ in ("f32", "f64") else "u"
        found.append((named["name"], "s" if sizes or (kind == "u" and bits == 64) else kind, size))
    return found


def _values(text: str, bits: int, known: Mapping[str, _Variable], line: int) -> list[str]:
    values = []
    for one in filter(None, re.split(r"[\s,{}]+", text)):
        if re.fullmatch(r"-?\d+|0[xX][0-9a-fA-F]+U?", one):
            values.append(
                f"uint{bits}_t({one}{'' if one[-1] in 'uU' else 'u' if one[0] != '-' else 'll'}"
                f"{'ll' * (one[0] != '-')})"
            )
        elif number := re.fullmatch(r"0[fFdD]([0-9a-fA-F]{8,16})", one):
            values.append(f"0x{number[1]}u")
        elif (name := re.fullmatch(r"(?:generic\()?([\w$]+)\)?", one)) and name[1] in known:
            values.append(f"(uint64_t){known[name[1]].name}")
        else:
            raise NotTranslated(f"the initial value `{_short(one)}`", line)
    return values


# ---- writing ----

_FLOATS = {"f32": "float", "f64": "double"}
_SIXTEENS = {"f16": "Half", "bf16": "Bfloat", "f16x2": "Half", "bf16x2": "Bfloat"}


def _c_type(type_: str) -> str:
    if type_ == "pred":
        return "bool"
    if type_ in _FLOATS:
        return _FLOATS[type_]
    if type_ in ("tf32", "e4m3x2", "e5m2x2"):
        return "uint32_t" if type_ == "tf32" else "uint16_t"
    bits = _bits(type_)
    return f"{'' if type_[0] == 's' else 'u'}int{bits}_t"


_FLOAT_FORMS = {
    "add": "({0} + {1})",
    "sub": "({0} - {1})",
    "mul": "({0} * {1})",
    "div": "({0} / {1})",
    "neg": "(-{0})",
    "abs": "std::fabs({0})",
    "sqrt": "std::sqrt({0})",
    "rsqrt": "(1 / std::sqrt({0}))",
    "rcp": "(1 / {0})",
    "ex2": "std::exp2({0})",
    "lg2": "std::log2({0})",
    "sin": "std::sin({0})",
    "cos": "std::cos({0})",
    "tanh": "std::tanh({0})",
    "copysign": "std::copysign({1}, {0})",
    "min": "lab::ptx::least({0}, {1})",
    "max": "lab::ptx::most({0}, {1})",
    "fma": "lab::ptx::fused({0}, {1}, {2})",
    "mad": "lab::ptx::fused({0}, {1}, {2})",
}
_INTEGER_FORMS = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "div": "{0} / {1}",
    "rem": "{0} % {1}",
    "neg": "-{0}",
    "abs": "({0} < 0 ? -{0} : {0})",
    "min": "({1} < {0} ? {1} : {0})",
    "max": "({0} < {1} ? {1} : {0})",
    "and": "{0} & {1}",
    "or": "{0} | {1}",
    "xor": "{0} ^ {1}",
    "not": "~{0}",
    "cnot": "({0} == 0)",
}
_COMPARED = {
    **{"eq": "=={0}", "ne": "!={0}", "lt": "<{0}", "le": "<={0}", "gt": ">{0}", "ge": ">={0}"},
    **{"lo": "<{0}", "ls": "<={0}", "hi": ">{0}", "hs": ">={0}"},
}
_UNORDERED = {"equ": "!({0} < {1} || {0} > {1})", "neu": "!({0} == {1})", "ltu": "!({0} >= {1})"}
_UNORDERED |= {"leu": "!({0} > {1})", "gtu": "!({0} <= {1})", "geu": "!({0} < {1})"}
_UNORDERED |= {"num": "({0} == {0} && {1} == {1})", "nan": "({0} != {0} || {1} != {1})"}
_UNORDERED |= {"ne": "({0} < {1} || {0} > {1})"}
_SIDES = {"rz": "towards_zero", "rm": "down", "rp": "up"}
_TO_WHOLE = {"rni": "NEAREST", "rzi": "TOWARDS_ZERO", "rmi": "DOWN", "rpi": "UP"}
_NUMBERS = {"u32": "LAB_UNSIGNED", "s32": "LAB_INT", "b32": "LAB_UNSIGNED", "f32": "LAB_FLOAT"}
_NUMBERS |= {"u64": "LAB_UNSIGNED_LONG", "s64": "LAB_LONG", "b64": "LAB_UNSIGNED_LONG"}
_NUMBERS |= {"f64": "LAB_DOUBLE", "b16": "LAB_SHORT"}
_ATOMICS = {"add": "ADD", "min": "MIN", "max": "MAX", "exch": "EXCHANGE", "cas": "CAS"}
_ATOMICS |= {"and": "AND", "or": "OR", "xor": "XOR", "inc": "INC", "dec": "DEC"}
_REDUCED = {"add": "ADD", "and": "AND", "or": "OR", "xor": "XOR"}
_IDLE = (
    "prefetch prefetchu griddepcontrol setmaxnreg pmevent createpolicy discard applypriority "
    "fence.proxy fence.mbarrier_init cp.async.bulk.prefetch cp.async.bulk.commit_group "
    "cp.async.bulk.wait_group tensormap.cp_fenceproxy"
).split()
"""What says nothing of right or wrong here: hints, and the order of engines that are no engines."""
_ELEMENTS = {
    "f16": "Sixteen<lab::ptx::Half>",
    "bf16": "Sixteen<lab::ptx::Bfloat>",
    "tf32": "Tf32",
    "s8": "Eight<int8_t>",
    "u8": "Eight<uint8_t>",
    "e4m3": "Fp8<lab::ptx::E4m3>",
    "e5m2": "Fp8<lab::ptx::E5m2>",
}


class _Body:
    """One function, written statement by statement."""

    def __init__(self, module: _Module, function: _Function, numbers: Mapping[str, str]) -> None:
        self.module, self.function, self.numbers = module, function, numbers
        self.registers: dict[tuple[int, str], str] = {}  # declared types
        self.patterns: dict[tuple[int, str], tuple[str, int]] = {}
        self.used: dict[str, str] = {}  # C++ names and their types
        self.labels: dict[tuple[int, str], str] = {}
        self.targets: dict[str, list[str]] = {}
        self.memory: dict[tuple[int, str], _Variable] = {}
        self.arrays: list[str] = []
        self.line: int | None = None
        self.scope = 0

    # -- names --

    def _scopes(self) -> Iterator[int]:
        scope = self.scope
        while True:
            yield scope
            if scope == 0:
                return
            scope = self.function.parents[scope]

    def register(self, name: str) -> str | None:
        """The C++ name of a register, which is then declared; None where there is none."""
        stem = name.rstrip("0123456789")
        for scope in self._scopes():
            type_ = self.registers.get((scope, name))
            if type_ is None and (scope, stem) in self.patterns and stem != name:
                known, count = self.patterns[scope, stem]
                type_ = known if int(name[len(stem) :]) < count else None
            if type_ is not None:
                plain = _plain(name) + (f"_s{scope}" if scope else "")
                self.used[plain] = type_
                return plain
        return None

    def variable(self, name: str) -> _Variable | None:
        for scope in self._scopes():
            if (scope, name) in self.memory:
                return self.memory[scope, name]
        return self.module.variables.get(name)

    def no(self, what: str) -> NotTranslated:
        return NotTranslated(what, self.line)

    # -- operands --

    def read(self, operand: str, type_: str) -> str:
        """An operand as a value of a type."""
        wanted = _c_type(type_)
        if type_ == "pred":
            if operand.startswith("!"):
                return f"!{self.read(operand[1:], 'pred')}"
            if operand in ("1", "0"):
                return operand
        name = self.register(operand)
        if name is not None:
            have = _c_type(self.used[name])
            if have == wanted:
                return name
            if wanted == "bool":
                raise self.no(f"the operand `{operand}`")
            if have in ("float", "double") or wanted in ("float", "double"):
                if _bits(self.used[name]) == _bits(type_):
                    return f"lab::bits<{wanted}>({name})"
                if have in ("float", "double"):
                    name = f"lab::bits<uint{_bits(self.used[name])}_t>({name})"
                    return f"{wanted}({name})"
                return f"lab::bits<{wanted}>(uint{_bits(type_)}_t({name}))"
            return f"{wanted}({name})"
        if operand in _SPECIAL:
            return f"{wanted}({_SPECIAL[operand]})"
        if number := re.fullmatch(r"0[fF]([0-9a-fA-F]{8})", operand):
            bits = f"0x{number[1]}u"
            return (
                f"lab::bits<float>({bits})"
                if wanted == "float"
                else (
                    f"double(lab::bits<float>({bits}))"
                    if wanted == "double"
                    else f"{wanted}({bits})"
                )
            )
        if number := re.fullmatch(r"0[dD]([0-9a-fA-F]{16})", operand):
            bits = f"0x{number[1]}ull"
            return (
                f"lab::bits<double>({bits})"
                if wanted == "double"
                else (
                    f"float(lab::bits<double>({bits}))"
                    if wanted == "float"
                    else f"{wanted}({bits})"
                )
            )
        if re.fullmatch(r"[-+]?\d+\.\d*(?:[eE][-+]?\d+)?", operand):
            return f"{wanted}({operand})"
        if re.fullmatch(r"[-+~]?(?:0[xX][0-9a-fA-F]+|\d+)U?", operand):
            plain = operand.rstrip("U")
            if re.fullmatch(r"0\d+", plain):
                plain = str(int(plain, 8))
            suffix = "ull" if not plain.startswith("-") else "ll"
            return f"{wanted}({plain}{suffix})"
        if re.fullmatch(r"[-+\s\d()*/x<>|&]+", operand):
            return f"{wanted}({operand})"
        return f"{wanted}({self.address_of(operand)})"

    def address_of(self, operand: str) -> str:
        """What a symbol, with or without a distance, stands for."""
        found = re.fullmatch(r"([\w$%]+)\s*(?:\+\s*(-?\w+))?", operand)
        known = self.variable(found[1]) if found else None
        if found is None or known is None:
            raise self.no(f"the operand `{_short(operand)}`")
        far = f" + {found[2]}" if found[2] else ""
        if known.space == "shared":
            return f"uint64_t((char*){known.name} - sh){far}"
        return f"uint64_t((char*){known.name}){far}"

    def write(self, operand: str, type_: str, value: str) -> str:
        """A statement by which an operand gets a value of a type."""
        if operand == "_":
            return f"(void)({value});"
        name = self.register(operand)
        if name is None:
            raise self.no(f"the operand `{_short(operand)}`")
        own, wanted = _c_type(self.used[name]), _c_type(type_)
        if own == wanted:
            return f"{name} = {wanted}({value});"
        if own in ("float", "double") or wanted in ("float", "double"):
            if own == "bool" or wanted == "bool":
                raise self.no(f"the operand `{operand}`")
            bits = _bits(type_)
            if _bits(self.used[name]) == bits:
                return f"{name} = lab::bits<{own}>({wanted}({value}));"
            return f"{name} = {own}(lab::bits<uint{bits}_t>({wanted}({value})));"
        return f"{name} = {own}({wanted}({value}));"

    def pointer(self, operand: str, space: str, type_: str = "char") -> str:
        """Where ``[...]`` leads, as a pointer to a type."""
        inside = operand.strip()
        if not (inside.startswith("[") and inside.endswith("]")):
            raise self.no(f"the operand `{_short(operand)}`")
        found = re.fullmatch(r"([\w$%.]+)\s*(?:([+-])\s*(-?\w+))?", inside[1:-1].strip())
        if found is None:
            raise self.no(f"the address `{_short(operand)}`")
        base, far = found[1], f" {found[2]} ({found[3]})" if found[2] else ""
        cast = f"({type_}*)"
        name = self.register(base)
        if name is None and (known := self.variable(base)) is not None:
            return f"{cast}((char*){known.name}{far})"
        if space == "param":
            raise self.no(f"the address `{_short(operand)}`")
        start = (
            self.read(base, "u64")
            if name is None or not self.used[name].endswith("32")
            else (self.read(base, "u32"))
        )
        if space == "shared":
            return f"{cast}(sh + uint32_t({start}{far}))"
        return f"{cast}(uint64_t({start}){far})"

    # -- the text --

    def text(self) -> str:
        one, lines = self.function, []
        for i, (name, kind, size) in enumerate(one.parameters):
            self.memory[0, name] = _Variable(_plain(name), "param")
            if not one.is_entry:
                continue
            array = f"alignas(16) unsigned char {_plain(name)}[{size}];"
            if size <= 8:
                array += f" {{ const uint64_t w = lab_argument({i}); __builtin_memcpy({_plain(name)}, &w, {size}); }}"
            else:
                array += f" lab_read_structure({_plain(name)}, {i}, {size});"
            self.arrays.append(array)
        for name, _ in one.returned:
            self.memory[0, name] = _Variable(_plain(name), "param")
        for statement in one.statements:
            if statement.kind == "label":
                name, _, targets = statement.text.partition(" ")
                if targets:
                    self.targets[name] = [
                        t.strip() for t in targets.partition("targets")[2].strip(" ;").split(",")
                    ]
                else:
                    self.labels[statement.scope, name] = f"L{len(self.labels)}"
        last: tuple[str, int] | None = None
        for statement in one.statements:
            self.scope, self.line = statement.scope, statement.at[1] if statement.at else None
            written = self._statement(statement)
            if not written:
                continue
            if statement.at and statement.at != last:
                last = statement.at
                lines.append(f'#line {last[1]} "{last[0]}"')
                lines.append(written)
            elif lines:
                lines[-1] += " " + written
            else:
                lines.append(written)
        declared: dict[str, list[str]] = {}
        for name, type_ in self.used.items():
            declared.setdefault(_c_type(type_), []).append(name)
        head = [f"{c_type} {', '.join(names)};" for c_type, names in declared.items()]
        signature = "" if one.is_entry else _signature(one)
        begin = ['#line 1 "<ptx>"', f"static void {self.numbers[one.name]}({signature}) {{"]
        begin += ["char* const sh = lab_shared_base(); (void)sh; bool carry = false; (void)carry;"]
        return "\n".join([*begin, *head, *self.arrays, *lines, ";}"])

    def _statement(self, one: _Statement) -> str:
        if one.kind == "reg":
            found = _REGISTERS.match(one.text)
            if found is None or found["type"].startswith("v"):
                raise self.no(f"the registers `{_short(one.text)}`")
            for name in (part.strip() for part in found["names"].split(",")):
                if many := re.fullmatch(r"([\w$%]+)<(\d+)>", name):
                    self.patterns[one.scope, many[1]] = (found["type"], int(many[2]))
                else:
                    self.registers[one.scope, name] = found["type"]
            return ""
        if one.kind == "variable":
            found = _VARIABLE.match(one.text)
            if found is None:
                raise self.no(f"the declaration `{_short(one.text)}`")
            count = 1
            for size in re.findall(r"\d+", found["sizes"]):
                count *= int(size)
            plain = f"{_plain(found['name'])}_m{len(self.memory)}"
            self.memory[one.scope, found["name"]] = _Variable(plain, found["space"])
            self.arrays.append(
                f"alignas(16) unsigned char {plain}[{count * _bits(found['type']) // 8}];"
            )
            return ""
        if one.kind == "label":
            label = self.labels.get((one.scope, one.text.split(" ")[0]))
            return f"{label}:;" if label else ""
        return self._instruction(one.text)

    def _instruction(self, text: str) -> str:
        guard = ""
        if text.startswith("@"):
            found = re.match(r"@\s*(!?)\s*([\w$%]+)\s*", text)
            if found is None:
                raise self.no(f"`{_short(text)}`")
            guard = f"if ({self.read(found[1] + found[2], 'pred')}) "
            text = text[found.end() :]
        opcode = _WORD.match(text)
        if opcode is None:
            raise self.no(f"`{_short(text)}`")
        words = opcode[0].split(".")
        operands = _split(text[opcode.end() :])
        written = None
        if any(opcode[0] == one or opcode[0].startswith(f"{one}.") for one in _IDLE):
            written = self._idle(words, operands)
        elif (write := getattr(self, f"_{words[0]}", None)) is not None:
            written = write(words[1:], operands)
        elif words[0] in _FLOAT_FORMS or words[0] in _INTEGER_FORMS:
            written = self._arithmetic(words[0], words[1:], operands)
        if written is None:
            raise self.no(f"the PTX instruction `{opcode[0]}`")
        return f"{guard}{{ {written} }}" if guard else f"{{ {written} }}"

    # -- arithmetic --

    def _arithmetic(self, op: str, mods: list[str], operands: list[str]) -> str | None:
        type_ = mods[-1]
        if "xorsign" in mods:
            return None
        if op in ("min", "max") and len(operands) == 4:  # of three
            nested = [f"lab_t = {0}"]
            del nested
            return None
        if type_ in _FLOATS or type_ in _SIXTEENS:
            return self._of_floats(op, mods, operands)
        if op not in _INTEGER_FORMS or len(operands) < 2 or "x2" in type_ or type_ == "b1":
            return None
        if type_ == "pred":
            form = {
                "not": "!{0}",
                "and": "{0} && {1}",
                "or": "{0} || {1}",
                "xor": "{0} != {1}",
            }.get(op)
            if form is None:
                return None
            return self.write(
                operands[0],
                "pred",
                form.format(*(f"({self.read(o, 'pred')})" for o in operands[1:])),
            )
        values = [f"({self.read(o, type_)})" for o in operands[1:]]
        wanted = _c_type(type_)
        if "cc" in mods:
            other = values[1] if op == "add" else f"{wanted}(~{values[1]})"
            sign = "false" if op == "add" else "true"
            unsigned = f"uint{_bits(type_)}_t"
            return self.write(
                operands[0],
                type_,
                f"lab::ptx::with_carry<{unsigned}>({values[0]}, {other}, {sign}, carry)",
            )
        if "sat" in mods:
            form = f"lab::ptx::within<{wanted}>((__int128){values[0]} {'+' if op == 'add' else '-'} (__int128){values[1]})"
            return self.write(operands[0], type_, form) if op in ("add", "sub") else None
        relu = "relu" in mods
        form = _INTEGER_FORMS[op].format(*values)
        return self.write(operands[0], type_, f"std::max<{wanted}>(0, {form})" if relu else form)

    def _of_floats(self, op: str, mods: list[str], operands: list[str]) -> str | None:
        type_, form = mods[-1], _FLOAT_FORMS.get(op)
        if form is None or not set(mods[:-1]) <= {
            *("rn", "rz", "rm", "rp", "ftz", "sat", "relu", "approx", "full", "NaN", "noftz"),
        }:
            return None
        if op in ("min", "max") and "NaN" in mods:
            form = form.replace("least", "least_or_nan").replace("most", "most_or_nan")
        side = next((one for one in mods if one in _SIDES), None)
        wrap = "{}"
        if "sat" in mods:
            wrap = "lab::ptx::saturated_float({})"
        if "relu" in mods:
            wrap = "lab::ptx::not_negative({})"
        if type_ in _SIXTEENS:
            if side:
                return None
            if op in ("fma", "mad"):
                form = form.replace("fused", "fused_16")
            count = 3 if op in ("fma", "mad") else 2 if "{1}" in form else 1
            names = ["x", "y", "z"][:count]
            given = ", ".join(f"float {name}" for name in names)
            inside = wrap.format(form.format(*names))
            if op not in ("fma", "mad"):
                inside = f"float({inside})"
            which = "pair" if type_.endswith("x2") else "one"
            values = ", ".join(self.read(o, type_) for o in operands[1:])
            value = f"lab::ptx::{which}<lab::ptx::{_SIXTEENS[type_]}>([]({given}) {{ return {inside}; }}, {values})"
            return self.write(operands[0], type_, value)
        values = [f"({self.read(o, type_)})" for o in operands[1:]]
        if side:
            if type_ != "f32" or op not in ("add", "sub", "mul", "div", "fma", "rcp", "sqrt"):
                return None
            form = f"lab::{_SIDES[side]}({form})"
            values = [f"double({one})" for one in values]
        return self.write(operands[0], type_, wrap.format(form.format(*values)))

    def _mul(self, mods: list[str], operands: list[str], more: str = "") -> str | None:
        type_ = mods[-1]
        if type_ in _FLOATS or type_ in _SIXTEENS:
            return self._of_floats("mul", mods, operands)
        bits = _bits(type_)
        long = (
            f"{'' if type_[0] == 's' else 'unsigned '}__int128"
            if bits == 64
            else f"{'' if type_[0] == 's' else 'u'}int64_t"
        )
        x, y = (f"({self.read(o, type_)})" for o in operands[1:3])
        if "wide" in mods:
            wide = f"{type_[0]}{2 * bits}"
            added = f" + {self.read(operands[3], wide)}" if more else ""
            return self.write(
                operands[0], wide, f"{_c_type(wide)}({x}) * {_c_type(wide)}({y}){added}"
            )
        added = f" + {self.read(operands[3], type_)}" if more else ""
        if "hi" in mods:
            if "sat" in mods or "cc" in mods:
                return None
            return self.write(
                operands[0], type_, f"{_c_type(type_)}(({long}){x} * ({long}){y} >> {bits}){added}"
            )
        if "lo" not in mods:
            return None
        product = f"{_c_type(type_)}(uint64_t({x}) * uint64_t({y}))"
        if "cc" in mods:
            unsigned = f"uint{bits}_t"
            third = self.read(operands[3], type_)
            return self.write(
                operands[0],
                type_,
                f"lab::ptx::with_carry<{unsigned}>({product}, {third}, false, carry)",
            )
        return self.write(operands[0], type_, product + added)

    def _mad(self, mods: list[str], operands: list[str]) -> str | None:
        if mods[-1] in _FLOATS or mods[-1] in _SIXTEENS:
            return self._of_floats("fma", mods, operands)
        return self._mul(mods, operands, "add")

    def _mul24(self, mods: list[str], operands: list[str]) -> str | None:
        if mods != ["lo", "s32"] and mods != ["lo", "u32"]:
            return None
        shift = [f"({self.read(o, mods[1])} << 8 >> 8)" for o in operands[1:3]]
        return self.write(operands[0], mods[1], f"{shift[0]} * {shift[1]}")

    def _addc(self, mods: list[str], operands: list[str]) -> str | None:
        return self._with_carry(mods, operands, "")

    def _subc(self, mods: list[str], operands: list[str]) -> str | None:
        return self._with_carry(mods, operands, "~")

    def _with_carry(self, mods: list[str], operands: list[str], invert: str) -> str | None:
        type_, unsigned = mods[-1], f"uint{_bits(mods[-1])}_t"
        x, y = (self.read(o, type_) for o in operands[1:3])
        kept = "" if "cc" in mods else "const bool before = carry; "
        back = "" if "cc" in mods else " carry = before;"
        value = f"lab::ptx::with_carry<{unsigned}>({x}, {unsigned}({invert}({y})), carry, carry)"
        return kept + self.write(operands[0], type_, value) + back

    def _shl(self, mods: list[str], operands: list[str]) -> str:
        type_ = mods[-1]
        value = f"lab::ptx::shifted_left<{_c_type(type_)}>({self.read(operands[1], type_)}, {self.read(operands[2], 'u32')})"
        return self.write(operands[0], type_, value)

    def _shr(self, mods: list[str], operands: list[str]) -> str:
        type_ = mods[-1]
        value = f"lab::ptx::shifted_right<{_c_type(type_)}>({self.read(operands[1], type_)}, {self.read(operands[2], 'u32')})"
        return self.write(operands[0], type_, value)

    def _shf(self, mods: list[str], operands: list[str]) -> str:
        values = ", ".join(self.read(o, "u32") for o in operands[1:4])
        clamps = "c" if "clamp" in mods else ""
        return self.write(operands[0], "b32", f"__funnelshift_{mods[0]}{clamps}({values})")

    def _lop3(self, mods: list[str], operands: list[str]) -> str | None:
        if mods != ["b32"] or "|" in operands[0]:
            return None
        values = ", ".join(self.read(o, "b32") for o in operands[1:4])
        table = self.read(operands[4], "u32")
        return self.write(operands[0], "b32", f"lab::ptx::lop3<{table}>({values})")

    def _prmt(self, mods: list[str], operands: list[str]) -> str | None:
        if mods != ["b32"]:
            return None
        values = ", ".join(self.read(o, "b32") for o in operands[1:4])
        return self.write(operands[0], "b32", f"__byte_perm({values})")

    def _bfe(self, mods: list[str], operands: list[str]) -> str:
        type_ = mods[-1]
        values = f"{self.read(operands[1], type_)}, {self.read(operands[2], 'u32')}, {self.read(operands[3], 'u32')}"
        return self.write(operands[0], type_, f"lab::ptx::field<{_c_type(type_)}>({values})")

    def _bfi(self, mods: list[str], operands: list[str]) -> str:
        type_ = mods[-1]
        values = [self.read(o, type_) for o in operands[1:3]] + [
            self.read(o, "u32") for o in operands[3:5]
        ]
        return self.write(
            operands[0], type_, f"lab::ptx::inserted<{_c_type(type_)}>({', '.join(values)})"
        )

    def _bfind(self, mods: list[str], operands: list[str]) -> str:
        value = f"lab::ptx::highest<{_c_type(mods[-1])}>({self.read(operands[1], mods[-1])})"
        if "shiftamt" in mods:
            value = f"({value} == ~0u ? ~0u : {_bits(mods[-1]) - 1}u - {value})"
        return self.write(operands[0], "u32", value)

    def _of_bits(self, function: str, mods: list[str], operands: list[str], result: str) -> str:
        long = "ll" if mods[-1] == "b64" else ""
        return self.write(
            operands[0], result, f"{function}{long}({self.read(operands[1], mods[-1])})"
        )

    def _popc(self, mods: list[str], operands: list[str]) -> str:
        return self._of_bits("__popc", mods, operands, "u32")

    def _clz(self, mods: list[str], operands: list[str]) -> str:
        return self._of_bits("__clz", mods, operands, "u32")

    def _brev(self, mods: list[str], operands: list[str]) -> str:
        return self._of_bits("__brev", mods, operands, mods[-1])

    def _sad(self, mods: list[str], operands: list[str]) -> str | None:
        type_ = mods[-1]
        x, y, z = (f"({self.read(o, type_)})" for o in operands[1:4])
        return self.write(operands[0], type_, f"({x} < {y} ? {y} - {x} : {x} - {y}) + {z}")

    def _dp4a(self, mods: list[str], operands: list[str]) -> str:
        a, b = ("int8_t" if one == "s32" else "uint8_t" for one in mods[-2:])
        type_ = "s32" if "s32" in mods else "u32"
        x, y = (self.read(o, "b32") for o in operands[1:3])
        return self.write(
            operands[0], type_, f"lab::dot4<{a}, {b}>({x}, {y}) + {self.read(operands[3], type_)}"
        )

    def _setp(self, mods: list[str], operands: list[str]) -> str | None:
        type_ = mods[-1]
        joins = next((one for one in mods if one in ("and", "or", "xor")), None)
        to = operands[0].split("|")
        if type_ in ("f16x2", "bf16x2"):
            if joins or len(to) != 2:
                return None
            element = f"lab::ptx::{_SIXTEENS[type_]}"
            test = self._test(mods[0], "x", "y", True)
            pair = f"lab::ptx::pair_of_tests<{element}>([](float x, float y) {{ return {test}; }}, "
            pair += f"{self.read(operands[1], type_)}, {self.read(operands[2], type_)})"
            return f"const uint32_t t = {pair}; " + " ".join(
                self.write(one.strip(), "pred", f"(t >> {i} & 1u) != 0") for i, one in enumerate(to)
            )
        x, y = (self._as_number(o, type_) for o in operands[1:3])
        test = self._test(mods[0], x, y, type_ in _FLOATS or type_ in _SIXTEENS)
        written = f"const bool t = {test};"
        third = f"{{}} {{{{}}}} ({self.read(operands[3], 'pred')})" if joins else ""
        sign = {"and": "&&", "or": "||", "xor": "!="}.get(joins or "")
        for one, value in zip(to, ("t", "!t"), strict=False):
            value = third.format(value).format(sign) if joins else value
            written += " " + self.write(one.strip(), "pred", value)
        return written

    def _as_number(self, operand: str, type_: str) -> str:
        value = self.read(operand, type_)
        return (
            f"lab::ptx::{_SIXTEENS[type_]}::from({value})" if type_ in _SIXTEENS else f"({value})"
        )

    def _test(self, how: str, x: str, y: str, floats: bool) -> str:
        if floats and how in _UNORDERED:
            return _UNORDERED[how].format(x, y)
        if how not in _COMPARED:
            raise self.no(f"the comparison `{how}`")
        return f"({x} {_COMPARED[how].format('')} {y})"

    def _set(self, mods: list[str], operands: list[str]) -> str | None:
        to, type_ = mods[-2:]
        if len(operands) != 3:
            return None
        if type_ in ("f16x2", "bf16x2"):
            element = f"lab::ptx::{_SIXTEENS[type_]}"
            test = self._test(mods[0], "x", "y", True)
            pair = f"lab::ptx::pair_of_tests<{element}>([](float x, float y) {{ return {test}; }}, "
            pair += f"{self.read(operands[1], type_)}, {self.read(operands[2], type_)})"
            one = "0xffffu" if to[0] in "us" else f"uint32_t({element}::to(1.0f))"
            return f"const uint32_t t = {pair}; " + self.write(
                operands[0], "b32", f"(t & 1 ? {one} : 0u) | (t & 2 ? {one} << 16 : 0u)"
            )
        x, y = (self._as_number(o, type_) for o in operands[1:3])
        test = self._test(mods[0], x, y, type_ in _FLOATS or type_ in _SIXTEENS)
        if to in _SIXTEENS:
            return self.write(
                operands[0], to, f"lab::ptx::{_SIXTEENS[to]}::to({test} ? 1.0f : 0.0f)"
            )
        return self.write(operands[0], to, f"({test} ? {'1' if to in _FLOATS else '-1'} : 0)")

    def _selp(self, mods: list[str], operands: list[str]) -> str:
        type_ = mods[-1]
        x, y = (self.read(o, type_) for o in operands[1:3])
        return self.write(operands[0], type_, f"({self.read(operands[3], 'pred')} ? {x} : {y})")

    def _slct(self, mods: list[str], operands: list[str]) -> str:
        type_, tested = mods[-2:]
        x, y = (self.read(o, type_) for o in operands[1:3])
        return self.write(
            operands[0], type_, f"({self.read(operands[3], tested)} >= 0 ? {x} : {y})"
        )

    def _testp(self, mods: list[str], operands: list[str]) -> str | None:
        functions = {
            "finite": "isfinite",
            "infinite": "isinf",
            "notanumber": "isnan",
            "normal": "isnormal",
        }
        if mods[0] not in functions:
            return None
        return self.write(
            operands[0], "pred", f"std::{functions[mods[0]]}({self.read(operands[1], mods[-1])})"
        )

    # -- moving --

    def _mov(self, mods: list[str], operands: list[str]) -> str:
        type_, (to, of) = mods[-1], operands
        if to.startswith("{"):
            parts = _split(to[1:-1])
            each = _bits(type_) // len(parts)
            return (
                f"const uint{_bits(type_)}_t t = {self.read(of, f'b{_bits(type_)}')}; "
                + " ".join(
                    self.write(one, f"b{each}", f"uint{each}_t(t >> {each * i})")
                    for i, one in enumerate(parts)
                )
            )
        if of.startswith("{"):
            parts = _split(of[1:-1])
            each, whole = _bits(type_) // len(parts), f"uint{_bits(type_)}_t"
            joined = " | ".join(
                f"{whole}({self.read(one, f'b{each}')}) << {each * i}"
                for i, one in enumerate(parts)
            )
            return self.write(to, f"b{_bits(type_)}", joined)
        return self.write(to, type_, self.read(of, type_))

    def _cvta(self, mods: list[str], operands: list[str]) -> str:
        space = next(one for one in mods if one != "to")
        of = self.read(operands[1], "u64")
        if space.startswith("shared"):
            of = (
                f"uint64_t((char*)({of}) - sh)"
                if mods[0] == "to"
                else f"uint64_t(sh + uint32_t({of}))"
            )
        return self.write(operands[0], "u64", of)

    def _mapa(self, mods: list[str], operands: list[str]) -> str:
        return self.write(operands[0], mods[-1], self.read(operands[1], mods[-1]))

    def _isspacep(self, mods: list[str], operands: list[str]) -> str | None:
        of = f"(const void*)({self.read(operands[1], 'u64')})"
        if mods[0].startswith("shared"):
            return self.write(operands[0], "pred", f"lab_is_shared({of}) != 0")
        if mods[0] == "global":
            return self.write(operands[0], "pred", f"lab_is_shared({of}) == 0")
        return None

    def _cvt(self, mods: list[str], operands: list[str]) -> str | None:
        if mods[0] == "pack":
            return None
        to, of = mods[-2:]
        how = set(mods[:-2])
        if len(operands) == 3:  # two floats to a pair; the first goes to the upper half
            high, low = (self.read(o, "f32") for o in operands[1:])
            if "relu" in how:
                high, low = (f"lab::ptx::not_negative({one})" for one in (high, low))
            if to in ("f16x2", "bf16x2"):
                element = f"lab::ptx::{_SIXTEENS[to]}"
                name = f"lab::ptx::towards_zero_16<{element}>" if "rz" in how else f"{element}::to"
                return self.write(
                    operands[0], "b32", f"uint32_t({name}({low})) | uint32_t({name}({high})) << 16"
                )
            if to in ("e4m3x2", "e5m2x2"):
                name = f"lab::ptx::E{to[1:4]}{to[4:-2]}::to"
                return self.write(
                    operands[0], "b16", f"uint16_t({name}({low}) | uint16_t({name}({high})) << 8)"
                )
            return None
        if to in ("e4m3x2", "e5m2x2"):
            if of not in ("f16x2", "bf16x2"):
                return None
            name, source = f"lab::ptx::E{to[1:4]}::to", f"lab::ptx::{_SIXTEENS[of]}::from"
            return f"const uint32_t t = {self.read(operands[1], 'b32')}; " + self.write(
                operands[0],
                "b16",
                f"uint16_t({name}({source}(uint16_t(t))) | uint16_t({name}({source}(uint16_t(t >> 16)))) << 8)",
            )
        if of in ("e4m3x2", "e5m2x2"):
            if to != "f16x2":
                return None
            name = f"lab::ptx::E{of[1:4]}::from"
            return f"const uint16_t t = {self.read(operands[1], 'b16')}; " + self.write(
                operands[0],
                "b32",
                f"lab::ptx::Half::to({name}(uint8_t(t))) | uint32_t(lab::ptx::Half::to({name}(uint8_t(t >> 8)))) << 16",
            )
        if to == "tf32":
            return self.write(
                operands[0], "b32", f"lab::ptx::rounded_tf32({self.read(operands[1], 'f32')})"
            )
        if "x2" in to or "x2" in of or "x4" in to:
            return None
        value = self._as_number(operands[1], of)
        is_float = of in _FLOATS or of in _SIXTEENS
        whole = next((one for one in how if one in _TO_WHOLE), None)
        side = next((one for one in how if one in _SIDES), None)
        if to not in _FLOATS and to not in _SIXTEENS:
            if is_float:
                value = f"lab::ptx::whole<{_c_type(to)}>(double({value}), lab::ptx::{_TO_WHOLE[whole or 'rzi']})"
            elif "sat" in how:
                value = f"lab::ptx::within<{_c_type(to)}>({value})"
            return self.write(operands[0], to, value)
        if whole and is_float:
            value = f"lab::ptx::to_side(double({value}), lab::ptx::{_TO_WHOLE[whole]})"
        target = _FLOATS.get(to, "float")
        if "sat" in how:
            value = f"lab::ptx::saturated_float({target}({value}))"
        if "relu" in how:
            value = f"lab::ptx::not_negative({target}({value}))"
        if to in _SIXTEENS:
            element = f"lab::ptx::{_SIXTEENS[to]}"
            if side == "rz":
                return self.write(
                    operands[0], to, f"lab::ptx::towards_zero_16<{element}>(float({value}))"
                )
            if side:
                return None
            wide = "double" if not is_float or of == "f64" else "float"
            return self.write(operands[0], to, f"{element}::to({wide}({value}))")
        if side and to == "f32":
            return self.write(operands[0], to, f"lab::{_SIDES[side]}(double({value}))")
        return self.write(operands[0], to, f"{target}({value})")

    # -- memory --

    def _space(self, mods: Sequence[str]) -> str:
        for one in mods:
            if one.partition("::")[0] in ("global", "shared", "local", "param", "const"):
                return one.partition("::")[0]
        return "generic"

    def _ld(self, mods: list[str], operands: list[str]) -> str | None:
        type_, space = mods[-1], self._space(mods)
        if type_ == "b128" or {"unified", "mmio"} & set(mods):
            return None
        size = next((int(one[1:]) for one in mods if re.fullmatch(r"v[248]", one)), 1)
        each = _bits(type_)
        bytes_ = size * each // 8
        if bytes_ > 16:
            return None
        word = f"lab::ptx::Word{bytes_}"
        where = self.pointer(operands[1], space, f"const {word}")
        before = f"const auto p = {where};"
        if "nc" in mods:
            before += f" lab_read_only((const void*)p, {bytes_});"
        value = "*p"
        strong = next((one for one in mods if one in ("relaxed", "acquire", "volatile")), None)
        scope = "_block" if "cta" in mods else ""
        after = f" lab_fence{scope}();" if strong == "acquire" else ""
        if strong == "volatile" and size == 1:
            value = f"*(const volatile {word}*)p"
        elif strong in ("relaxed", "acquire") and size == 1 and each >= 32:
            number, in_block = _NUMBERS[f"b{each}"], " | LAB_IN_BLOCK" if scope else ""
            value = f"lab_atomic((void*)p, LAB_ATOMIC_OR{in_block}, {number}, 0, 0)"
        elif strong and size == 1:
            value = f"*(const volatile {word}*)p"
        if size == 1:
            unsigned = f"uint{each}_t"
            as_type = f"{unsigned}({value})"
            if type_ in _FLOATS:
                as_type = f"lab::bits<{_c_type(type_)}>({as_type})"
            return f"{before} {self.write(operands[0], type_, as_type)}{after}"
        parts = _split(operands[0][1:-1])
        unpacked = " ".join(
            self.write(one, type_, f"lab::ptx::part_of<{_c_type(type_)}>(t, {i})")
            for i, one in enumerate(parts)
            if one != "_"
        )
        return f"{before} const {word} t = {value}; {unpacked}{after}"

    _ldu = _ld

    def _st(self, mods: list[str], operands: list[str]) -> str | None:
        type_, space = mods[-1], self._space(mods)
        if type_ == "b128" or {"async", "bulk", "mmio"} & set(mods):
            return None
        size = next((int(one[1:]) for one in mods if re.fullmatch(r"v[248]", one)), 1)
        each = _bits(type_)
        bytes_ = size * each // 8
        if bytes_ > 16:
            return None
        strong = next((one for one in mods if one in ("relaxed", "release", "volatile")), None)
        is_volatile = "volatile " if strong and size == 1 else ""
        before = f"lab_fence{'_block' if 'cta' in mods else ''}(); " if strong == "release" else ""
        word = f"lab::ptx::Word{bytes_}"
        where = self.pointer(operands[0], space, f"{is_volatile}{word}")
        if size == 1:
            return f"{before}*{where} = {self.read(operands[1], f'b{each}')};"
        parts = ", ".join(self.read(o, f"b{each}") for o in _split(operands[1][1:-1]))
        return (
            f"{before}const uint{each}_t t[] = {{{parts}}}; *{where} = lab::ptx::joined<{word}>(t);"
        )

    def _atom(self, mods: list[str], operands: list[str]) -> str | None:
        return self._update(mods, operands[0], operands[1:])

    def _red(self, mods: list[str], operands: list[str]) -> str | None:
        if "async" in mods:
            return None
        return self._update(mods, "_", operands)

    def _update(self, mods: list[str], to: str, operands: list[str]) -> str | None:
        type_, op = mods[-1], next((one for one in mods if one in _ATOMICS), None)
        if op is None or type_ == "b128":
            return None
        size = next((int(one[1:]) for one in mods if re.fullmatch(r"v[248]", one)), 1)
        where = self.pointer(operands[0], self._space(mods))
        in_block = " | LAB_IN_BLOCK" if "cta" in mods else ""
        fence = f"lab_fence{'_block' if 'cta' in mods else ''}();"
        before = fence if {"release", "acq_rel"} & set(mods) else ""
        after = fence if {"acquire", "acq_rel"} & set(mods) else ""
        step = _bits(type_) // 8
        vector = operands[1].startswith("{")
        parts = _split(operands[1][1:-1]) if vector else [operands[1]]
        targets = _split(to[1:-1]) if vector and to.startswith("{") else [to] * len(parts)
        if len(parts) != size:
            return None
        written = [before]
        for i, (one, target) in enumerate(zip(parts, targets, strict=True)):
            place = f"(void*)({where} + {i * step})"
            if type_ in _SIXTEENS:
                if op != "add":
                    return None
                number = "LAB_UNSIGNED" if type_.endswith("x2") else "LAB_SHORT"
                value = f"lab::ptx::add_16<lab::ptx::{_SIXTEENS[type_]}>({place}, {number}, {self.read(one, type_)})"
            else:
                if type_ not in _NUMBERS:
                    return None
                bits = f"b{_bits(type_)}"
                operand, compare = self.read(one, bits), "0"
                if op == "cas":
                    operand, compare = self.read(operands[2], bits), operand
                value = f"lab_atomic({place}, LAB_ATOMIC_{_ATOMICS[op]}{in_block}, {_NUMBERS[type_]}, {operand}, {compare})"
            written.append(self.write(target, f"b{_bits(type_)}", value))
        return " ".join([*written, after])

    def _membar(self, mods: list[str], operands: list[str]) -> str:
        return "lab_fence_block();" if mods == ["cta"] else "lab_fence();"

    def _fence(self, mods: list[str], operands: list[str]) -> str | None:
        return "lab_fence_block();" if "cta" in mods else "lab_fence();"

    def _idle(self, words: list[str], operands: list[str]) -> str:
        return self.write(operands[0], "b64", "0") if words[0] == "createpolicy" else ";"

    # -- control --

    def _bra(self, mods: list[str], operands: list[str]) -> str:
        for scope in self._scopes():
            if label := self.labels.get((scope, operands[0])):
                return f"goto {label};"
        raise self.no(f"the label `{operands[0]}`")

    def _brx(self, mods: list[str], operands: list[str]) -> str:
        cases = " ".join(
            f"case {i}: {self._bra([], [one])}"
            for i, one in enumerate(self.targets.get(operands[1], []))
        )
        return f"switch ({self.read(operands[0], 'u32')}) {{ {cases} }}"

    def _ret(self, mods: list[str], operands: list[str]) -> str:
        return "return;"

    def _exit(self, mods: list[str], operands: list[str]) -> str | None:
        return "return;" if self.function.is_entry else None

    def _trap(self, mods: list[str], operands: list[str]) -> str:
        return 'lab_trap("trap");'

    def _brkpt(self, mods: list[str], operands: list[str]) -> str:
        return ";"

    def _nanosleep(self, mods: list[str], operands: list[str]) -> str:
        return "lab_give_way();"

    def _call(self, mods: list[str], operands: list[str]) -> str | None:
        given = [one for one in operands if one.startswith("(")]
        name = next((one for one in operands if not one.startswith("(")), "")
        passed = [_split(one[1:-1]) for one in given]
        flat = [one for part in passed for one in part if one]
        memory = []
        for one in flat:
            known = self.variable(one)
            if known is None:
                return None
            memory.append(known.name)
        if name == "vprintf":
            back, form, values = memory
            word = "*(const lab::ptx::Word8*)"
            return (
                f"const uint32_t n = lab::ptx::print((const char*){word}{form}, (const char*){word}{values}); "
                f"__builtin_memcpy({back}, &n, 4);"
            )
        if name == "__assertfail":
            return f"lab_assertion((const char*)*(const lab::ptx::Word8*){memory[0]});"
        if name not in self.numbers:
            raise self.no(f"a call of `{name}`")
        return f"{self.numbers[name]}({', '.join(memory)});"

    # -- warps and blocks --

    def _bar(self, mods: list[str], operands: list[str]) -> str | None:
        mods = [one for one in mods if one not in ("cta", "aligned")]
        if mods[0] == "warp":
            return f"lab_collective(LAB_SYNCWARP, {self.read(operands[0], 'u32')}, 0, 0, 32);"
        if mods[0] in ("sync", "arrive"):
            number = self.read(operands[0], "u32")
            threads = self.read(operands[1], "u32") if len(operands) > 1 else "0"
            waits = "true" if mods[0] == "sync" else "false"
            if operands[0] == "0" and len(operands) == 1 and mods[0] == "sync":
                return "lab_barrier(LAB_BARRIER, 0);"
            return f"lab::ptx::named_barrier({number}, {threads}, {waits});"
        if mods[0] == "red" and operands[1] == "0" and len(operands) == 3:
            op = {"popc": "COUNT", "and": "AND", "or": "OR"}[mods[1]]
            type_ = "u32" if mods[1] == "popc" else "pred"
            value = f"lab_barrier(LAB_BARRIER_{op}, {self.read(operands[2], 'pred')})"
            return self.write(operands[0], type_, value if type_ == "u32" else f"{value} != 0")
        return None

    def _barrier(self, mods: list[str], operands: list[str]) -> str | None:
        if mods[0] == "cluster":  # of one block
            return "lab_barrier(LAB_BARRIER, 0);" if mods[1] == "wait" else ";"
        return self._bar(mods, operands)

    def _shfl(self, mods: list[str], operands: list[str]) -> str | None:
        ops = {
            "idx": "LAB_SHFL",
            "bfly": "LAB_SHFL_XOR",
            "up": "LAB_SHFL_UP",
            "down": "LAB_SHFL_DOWN",
        }
        if mods[0] != "sync" or mods[1] not in ops:
            return None
        to, _, inside = (one.strip() for one in operands[0].partition("|"))
        x, by, clamp, mask = (self.read(o, "u32") for o in operands[1:5])
        value = f"lab::ptx::shuffled({ops[mods[1]]}, {mask}, {x}, {by}, {clamp}, {'&inside' if inside else 'nullptr'})"
        if not inside:
            return self.write(to, "b32", value)
        return f"bool inside; {self.write(to, 'b32', value)} {self.write(inside, 'pred', 'inside')}"

    def _vote(self, mods: list[str], operands: list[str]) -> str | None:
        if mods[0] != "sync":
            return None
        p, mask = self.read(operands[1], "pred"), self.read(operands[2], "u32")
        if mods[1] == "ballot":
            return self.write(operands[0], "b32", f"lab_collective(LAB_BALLOT, {mask}, {p}, 0, 32)")
        if mods[1] in ("any", "all"):
            return self.write(
                operands[0],
                "pred",
                f"lab_collective(LAB_{mods[1].upper()}, {mask}, {p}, 0, 32) != 0",
            )
        both = f"const uint32_t m = {mask}; const uint64_t b = lab_collective(LAB_BALLOT, m, {p}, 0, 32);"
        return f"{both} {self.write(operands[0], 'pred', 'b == 0 || b == m')}"

    def _match(self, mods: list[str], operands: list[str]) -> str | None:
        to, _, every = (one.strip() for one in operands[0].partition("|"))
        mask = self.read(operands[2], "u32")
        value = f"const uint32_t m = {mask}; const uint32_t e = uint32_t(lab_collective(LAB_MATCH_ANY, m, {self.read(operands[1], mods[-1])}, 0, 32));"
        if mods[0] == "any":
            return f"{value} {self.write(to, 'b32', 'e')}"
        kept = self.write(every, "pred", "e == m") if every else ""
        return f"{value} {self.write(to, 'b32', 'e == m ? m : 0u')} {kept}"

    def _redux(self, mods: list[str], operands: list[str]) -> str | None:
        op, type_ = mods[1], mods[-1]
        if op in ("min", "max") and type_ in ("u32", "s32"):
            name = f"{op.upper()}_{'SIGNED' if type_ == 's32' else 'UNSIGNED'}"
        elif op in _REDUCED and type_ != "f32":
            name = _REDUCED[op]
        else:
            return None
        value = f"lab_collective(LAB_REDUCE_{name}, {self.read(operands[2], 'u32')}, {self.read(operands[1], 'b32')}, 0, 32)"
        return self.write(operands[0], "b32", value)

    def _activemask(self, mods: list[str], operands: list[str]) -> str:
        return self.write(operands[0], "b32", "lab_active_mask()")

    def _elect(self, mods: list[str], operands: list[str]) -> str:
        to, _, is_leader = (one.strip() for one in operands[0].partition("|"))
        mask = self.read(operands[1], "u32")
        return (
            f"uint32_t leader; const bool t = lab::ptx::elected({mask}, &leader); "
            f"{self.write(to, 'b32', 'leader')} {self.write(is_leader, 'pred', 't')}"
        )

    # -- copies and their barriers --

    def _cp(self, mods: list[str], operands: list[str]) -> str | None:
        if mods[0] != "async":
            return None
        if mods[1] == "commit_group":
            return "lab_copy_commit();"
        if mods[1] == "wait_group":
            return f"lab_copy_wait({self.read(operands[0], 'u32')});"
        if mods[1] == "wait_all":
            return "lab_copy_commit(); lab_copy_wait(0);"
        if mods[1] == "mbarrier":
            counted = "true" if "noinc" in mods else "false"
            return f"lab::ptx::copies_arrive({self.pointer(operands[0], self._space(mods))}, {counted});"
        if mods[1] == "bulk":
            return self._bulk(mods[2:], operands)
        if mods[1] not in ("ca", "cg"):
            return None
        to, of = self.pointer(operands[0], "shared"), self.pointer(operands[1], "global")
        size, left = self.read(operands[2], "u32"), None
        if len(operands) > 3 and "cache_hint" not in "".join(mods[-1:]):
            name = self.register(operands[3].lstrip("!"))
            is_pred = name is not None and self.used[name] == "pred"
            left = (
                f"{self.read(operands[3], 'pred')} ? 0u : {size}"
                if is_pred
                else self.read(operands[3], "u32")
            )
        return f"lab::ptx::copy_async({to}, {of}, {size}, {left or size});"

    def _bulk(self, mods: list[str], operands: list[str]) -> str | None:
        if (
            mods[0].startswith("shared")
            and mods[1] == "global"
            and "mbarrier::complete_tx::bytes" in mods
        ):
            if "multicast::cluster" in mods:
                return None
            to, of = self.pointer(operands[0], "shared"), self.pointer(operands[1], "global")
            return f"lab::ptx::copy_bulk({to}, {of}, {self.read(operands[2], 'u32')}, {self.pointer(operands[3], 'shared')});"
        if mods[0] == "global" and mods[1].startswith("shared") and "bulk_group" in mods:
            to, of = self.pointer(operands[0], "global"), self.pointer(operands[1], "shared")
            return f"lab::ptx::copy_bulk({to}, {of}, {self.read(operands[2], 'u32')}, nullptr);"
        return None

    def _mbarrier(self, mods: list[str], operands: list[str]) -> str | None:
        op, space = mods[0], self._space(mods)
        if op == "init":
            return f"lab_phase_init({self.pointer(operands[0], space)}, {self.read(operands[1], 'u32')});"
        if op == "inval":
            return f"(void)*(const lab::ptx::Word8*){self.pointer(operands[0], space)};"
        if op in ("expect_tx", "complete_tx"):
            sign = "" if op == "expect_tx" else "-"
            return f"lab_phase_arrive({self.pointer(operands[0], space)}, 0, {sign}(long long){self.read(operands[1], 'u32')});"
        if op == "arrive":
            to = operands[0] if not operands[0].startswith("[") else "_"
            operands = operands if operands[0].startswith("[") else operands[1:]
            where, more = (
                self.pointer(operands[0], space),
                self.read(operands[1], "u32") if len(operands) > 1 else None,
            )
            value = (
                f"lab::ptx::arrived({where}, 1, {more})"
                if "expect_tx" in mods
                else f"lab::ptx::arrived({where}, {more or '1'}, 0)"
            )
            return self.write(to, "b64", value)
        if op in ("try_wait", "test_wait"):
            blocks = "true" if op == "try_wait" else "false"
            state = self.read(operands[2], "u32" if "parity" in mods else "u64")
            return self.write(
                operands[0],
                "pred",
                f"lab::ptx::waited({self.pointer(operands[1], space)}, {state}, {blocks})",
            )
        return None

    # -- matrices --

    def _ldmatrix(self, mods: list[str], operands: list[str]) -> str | None:
        count = next((int(one[1:]) for one in mods if one in ("x1", "x2", "x4")), 0)
        if not count or "m8n8" not in mods or mods[-1] != "b16":
            return None
        parts = _split(operands[0][1:-1]) if operands[0].startswith("{") else [operands[0]]
        row, transposed = self.pointer(operands[1], self._space(mods)), int("trans" in mods)
        written = " ".join(self.write(one, "b32", f"t[{i}]") for i, one in enumerate(parts))
        return f"uint32_t t[4]; lab_load_matrices({row}, {count}, {transposed}, t); {written}"

    def _stmatrix(self, mods: list[str], operands: list[str]) -> str | None:
        count = next((int(one[1:]) for one in mods if one in ("x1", "x2", "x4")), 0)
        if not count or "m8n8" not in mods or mods[-1] != "b16":
            return None
        parts = _split(operands[1][1:-1]) if operands[1].startswith("{") else [operands[1]]
        words = ", ".join(self.read(one, "b32") for one in parts)
        row, transposed = (
            self.pointer(operands[0], self._space(mods)),
            "true" if "trans" in mods else "false",
        )
        return f"const uint32_t t[] = {{{words}}}; lab::ptx::store_matrices({row}, {count}, {transposed}, t);"

    def _movmatrix(self, mods: list[str], operands: list[str]) -> str:
        return self.write(
            operands[0], "b32", f"lab::ptx::transposed_matrix({self.read(operands[1], 'b32')})"
        )

    def _mma(self, mods: list[str], operands: list[str]) -> str | None:
        shape = next((one for one in mods if re.fullmatch(r"m\d+n\d+k\d+", one)), "")
        to, a, b, of = mods[-4:]
        if (
            not shape.startswith("m16n8k")
            or a not in _ELEMENTS
            or b not in _ELEMENTS
            or mods[1] != "aligned"
        ):
            return None
        if to != of or {"sp", "sp::ordered_metadata", "block_scale", "satfinite"} & set(mods):
            return None
        lists = [_split(one[1:-1]) for one in operands[:4]]
        words, k = len(lists[2]), int(shape[6:])
        each = {"f16": 2, "bf16": 2, "tf32": 1}.get(a, 4)
        if k != 4 * each * words or len(lists[1]) != 2 * words:
            return None
        given = [", ".join(self.read(one, "b32") for one in part) for part in lists[1:3]]
        result = "int32_t" if to == "s32" else "float"
        if to == "f16":
            parts = [self.read(one, "b32") for one in lists[3]]
            start = ", ".join(
                f"lab::ptx::Half::from(uint16_t({one} >> {s}))" for one in parts for s in (0, 16)
            )
            back = [
                self.write(
                    one,
                    "b32",
                    f"lab::ptx::Half::to(c[{2 * i}]) | uint32_t(lab::ptx::Half::to(c[{2 * i + 1}])) << 16",
                )
                for i, one in enumerate(lists[0])
            ]
        elif to in ("f32", "s32"):
            start = ", ".join(self.read(one, to) for one in lists[3])
            back = [self.write(one, to, f"c[{i}]") for i, one in enumerate(lists[0])]
        else:
            return None
        kinds = ", ".join([*(f"lab::ptx::{_ELEMENTS[one]}" for one in (a, b)), result, str(words)])
        call = f"lab::ptx::product<{kinds}>(c, a, b);"
        return (
            f"{result} c[] = {{{start}}}; const uint32_t a[] = {{{given[0]}}}; "
            f"const uint32_t b[] = {{{given[1]}}}; {call} {' '.join(back)}"
        )


def _split(text: str) -> list[str]:
    """Operands, at the commas that stand in no bracket; a call's name may stand without one."""
    parts, depth, start = [], 0, 0
    for i, sign in enumerate(text):
        if sign in "[{(":
            depth += 1
        elif sign in "]})":
            depth -= 1
        elif sign == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    parts.append(text[start:])
    return [" ".join(one.split()) for one in parts if one.strip()]


def own_file(file: str, shown: str, folders: Sequence[Path]) -> str | None:
    """What messages call a file that ``.file`` names: the kernel's source, or one of its headers."""
    if file == shown or file.endswith(f"/{shown}"):
        return shown
    path = Path(file).resolve()
    return str(path) if any(path.is_relative_to(Path(one).resolve()) for one in folders) else None
