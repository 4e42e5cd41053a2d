"""A launch with its arguments and nothing else: enough to say how long a kernel will take, and too
little to say whether it is right."""

from __future__ import annotations

import ast
import dataclasses
import math
import operator
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from .errors import LabError
from .problem import Buffer, Problem
from .rung import Launch, Rung, Struct, Workspace
from .storage import element_dtype
from .text import first_line, is_file, read_given

WITHOUT_SOURCE = (".cubin", ".ptx", ".so", ".o")
"""Files without source that hold kernels."""
KERNEL_FILES = (".cu", ".cuh", *WITHOUT_SOURCE, ".toml")
"""Files that a launch can be told of; the last names one and its launches."""
OF_TRITON = ".py"
"""Of a file of Triton's, which says how many threads a block has, and how much shared memory."""

_SHORT_TYPES = {"half": "float16", "bf16": "bfloat16", "f8e4m3": "float8_e4m3fn"}
_SHORT_TYPES |= {"f8e5m2": "float8_e5m2", "float": "float32", "double": "float64", "int": "int32"}
_SHORT_TYPES |= {"bool": "uint8"}
_LETTERS = {"f": "float", "i": "int", "u": "uint"}
_TYPES = {f"{kind}int{bits}" for kind in ("", "u") for bits in (8, 16, 32, 64)}
_TYPES |= {"float16", "float32", "float64", *_SHORT_TYPES.values()}
MOST_IN_GRID = 2**27
"""Of a grid whose blocks are followed; more would take the machine's memory."""
_ARGUMENT = re.compile(
    r"(?P<name>[A-Za-z_]\w*)=(?P<type>\w+)"
    r"(?:\[(?P<shape>[^\]]*)\])?(?P<rest>(?::|=|@).*)?"
)
_WHOLE = re.compile(r"[iu]\d+|u?int\d*")
_STRUCT = re.compile(r"(?P<name>[A-Za-z_]\w*)=struct\((?P<members>[^()]*)\)")
ROLES = ("in", "out", "inout", "part", "size", "struct")
"""What a kernel does with a buffer: reads it, writes it, both, or reads a part of it, of which no
one can say how many bytes that are. A size is no argument: a number that sizes are made of; a
structure is one that has others as members."""
_MOST_PARAMETERS = 32764
"""Bytes of all parameters of a kernel, at most."""
CONTENTS = "arange, uniform:LO,HI or @FILE.npy"
_FORM = (
    "an argument is NAME=TYPE[SHAPE] with :out or :inout behind it where the kernel writes it "
    "and :part where it reads some of it, or NAME=TYPE:VALUE, for example x=f32[rows,n], "
    "out=f32[rows,n]:out and n=i32:4096; rows=8192 names a size and is no argument, and "
    "p=struct(x,out,i32:4096,8) is a structure by value of arguments, numbers and 8 more bytes"
)


@dataclass(frozen=True)
class LaunchArgument:
    """One argument of a launch: a buffer, or a number or a structure where it has no shape."""

    name: str
    dtype: str  # of its elements, as numpy or ml_dtypes name it
    shape: tuple[int, ...] | None = None  # of a buffer
    value: float | int = 0  # of a number
    role: str = "in"  # one of `ROLES`
    # what a buffer of integers holds, as it was written: ``arange`` or ``uniform:LO,HI``
    content: str = ""
    held: bytes = b""  # the same where a file says it
    # of a structure: other arguments by name, numbers as ``i32:4096``, and so many bytes of zeros
    members: tuple[str, ...] = ()

    def contents(self) -> np.ndarray | None:
        """What a buffer of integers holds, in its shape; None where that is not said."""
        if self.shape is None or not (self.content or self.held):
            return None
        dtype = element_dtype(self.dtype)
        if self.held:
            return np.frombuffer(self.held, dtype).reshape(self.shape)
        if self.content == "arange":
            return np.arange(np.prod(self.shape)).astype(dtype).reshape(self.shape)
        low, high = map(int, self.content.removeprefix("uniform:").split(","))
        return np.random.default_rng(0).integers(low, high, self.shape, dtype)

    def __str__(self) -> str:
        if self.role == "size":
            return f"{self.name}={self.value}"
        if self.role == "struct":
            return f"{self.name}=struct({','.join(self.members)})"
        if self.shape is None:
            return f"{self.name}={self.dtype}:{self.value}"
        shape = ",".join(map(str, self.shape))
        return f"{self.name}={self.dtype}[{shape}]" + (f":{self.role}" * (self.role != "in"))


@dataclass(frozen=True)
class LaunchProblem(Problem):
    """What a kernel is given, whatever it computes. Least bytes of memory are those of the buffers,
    each read or written once, without those that are read in part."""

    operation: ClassVar[str] = "launch"
    shape_fields: ClassVar[tuple[str, ...]] = ()
    letters: ClassVar[str] = "arguments"
    example: ClassVar[str] = "launch"
    axes: ClassVar[tuple[str, ...]] = ("element",)

    arguments: tuple[LaunchArgument, ...] = ()
    dtype: str = "float32"  # says nothing: each argument has its own
    distribution: str = "normal"
    seed: int = 0
    cache_state: str = "cold"
    remark: str = ""  # of `AskedKernel`

    def __post_init__(self) -> None:
        self.check_kind()
        if not self.outputs:
            raise _wrong("no argument is marked as written", "put :out behind the one that is")
        self.check_size()

    def _of_roles(self, *roles: str) -> dict[str, Buffer]:
        given = [one for one in self.arguments if one.shape is not None and one.role in roles]
        return {one.name: Buffer(one.shape or (), one.dtype) for one in given}

    @property
    def inputs(self) -> dict[str, Buffer]:
        return self._of_roles("in", "inout", "part")

    @property
    def _whole(self) -> dict[str, Buffer]:
        return self._of_roles("in", "inout")

    @property
    def outputs(self) -> dict[str, Buffer]:
        return self._of_roles("out", "inout")

    @property
    def output(self) -> Buffer:
        return next(iter(self.outputs.values()))

    @property
    def minimal_bytes(self) -> int:
        return sum(one.bytes for of in (self._whole, self.outputs) for one in of.values())

    @property
    def streamed_bytes(self) -> int:
        return self.minimal_bytes

    @property
    def read_in_part(self) -> tuple[str, ...]:
        return tuple(self._of_roles("part"))

    @property
    def flops(self) -> int:
        return 0

    def call_bytes(self, read: Any) -> int:
        """Of the buffers among ``read`` and the outputs."""
        named = set(read)
        inputs = sum(one.bytes for name, one in self._whole.items() if name in named)
        return inputs + sum(one.bytes for one in self.outputs.values())

    def traced_contents(self) -> dict[str, np.ndarray]:
        found = {one.name: one.contents() for one in self.arguments}
        return {name: held for name, held in found.items() if held is not None}

    @property
    def unknown_contents(self) -> tuple[str, ...]:
        """The buffers of integers that are read and of which nobody said what they hold."""
        known = {one.name for one in self.arguments if one.content or one.held}
        whole = (name for name, one in self.inputs.items() if "int" in one.dtype)
        return tuple(name for name in whole if name not in known)

    def defines(self) -> dict[str, str]:
        """None."""
        return {}

    def usual_refusal(self) -> None:
        """Nothing: the kernel is launched as it was told."""

    def short(self) -> str:
        return f"{self.operation}: " + " ".join(map(str, self.arguments))

    def remarks(self) -> list[str]:
        return []

    def to_dict(self) -> dict[str, Any]:
        told = {"operation": self.operation, "arguments": [str(one) for one in self.arguments]}
        return told | ({"remark": self.remark} if self.remark else {})

    @classmethod
    def parse(cls, text: str) -> Self:
        """Refused: a launch has no short form."""
        cls.refuse(repr(text), "a launch is told by --entry, --grid, --block and --arg")


def read_arguments(
    texts: Sequence[str], folder: Path = Path(), least: int = 1
) -> tuple[LaunchArgument, ...]:
    """Arguments as they are typed, in the kernel's order. A size may be computed of the numbers
    among them, such as ``x=f32[rows,cdiv(n,8)]``; files are looked up in ``folder``.
    A size of a buffer is ``least`` or more.

    Raises LabError: a text of another form, a size that is none, a file that does not fit.
    """
    found = [
        (text, _STRUCT.fullmatch(text.strip()) or _ARGUMENT.fullmatch(text.strip()))
        for text in texts
    ]
    for text, match in found:
        if "?" in text:
            raise _wrong(f"{text!r} has a ? still", "a number, or a sum of others, takes its place")
        if match is None:
            raise _wrong(f"{text!r} is no argument", _FORM)
    matches = [match for _, match in found if match is not None]
    names = [match["name"] for match in matches]
    if twice := [name for name in names if names.count(name) > 1]:
        raise _wrong(f"{twice[0]} is given twice", "an argument has one name of its own")
    plain = [one for one in matches if one.re is _ARGUMENT]
    numbers = {one["name"]: _number(one) for one in plain if one["shape"] is None}
    sizes = _whole(numbers.values())
    shaped = (one for one in plain if one["shape"] is not None)
    told = {one["name"]: _buffer(one, sizes, folder, least) for one in shaped}
    told |= numbers
    for one in matches:
        if one.re is _STRUCT:
            told[one["name"]] = _struct(one, told)
    return tuple(told[name] for name in names)


def _struct(match: re.Match[str], told: Mapping[str, LaunchArgument]) -> LaunchArgument:
    members = tuple(one.strip() for one in match["members"].split(","))
    for one in members:
        known = told.get(one)
        if known is not None and known.role != "size":
            continue
        if ":" in one and (number := _ARGUMENT.fullmatch(f"{match['name']}={one}")):
            _number(number)
        elif not one.isdecimal() or not 1 <= int(one[:9]) <= _MOST_PARAMETERS:
            why = "a member is an argument by its name, a structure one before this, a number as "
            raise _wrong(f"{match[0]!r} has the member {one!r}", f"{why}i32:5, or so many bytes")
    return LaunchArgument(match["name"], "struct", role="struct", members=members)


def _wrong(what: str, why: str) -> LabError:
    return LabError(f"This launch cannot be read: {what}.", why, "the same with that mended")


def _type_of(match: re.Match[str]) -> str:
    name = match["type"]
    short = re.fullmatch(r"([fiu])(8|16|32|64)", name)
    name = _SHORT_TYPES.get(name, f"{_LETTERS[short[1]]}{short[2]}" if short else name)
    if name not in _TYPES:
        types = "f16 bf16 f32 f64 f8e4m3 i8 to i64 and u8 to u64".replace(" ", ", ")
        why = f"types are {types.replace(', to, ', ' to ').replace(', and, ', ' and ')}"
        raise _wrong(f"{match[0]!r} has the type {match['type']!r}", why)
    return name


def _number(match: re.Match[str]) -> LaunchArgument:
    if match["type"].isdecimal() and not match["rest"]:
        return LaunchArgument(match["name"], "int64", value=int(match["type"][:18]), role="size")
    dtype, text = _type_of(match), (match["rest"] or "").removeprefix(":")
    whole = "int" in dtype
    try:
        value = int(text, 0) if whole else float(text)
        if whole:
            held = np.iinfo(dtype)
            if not held.min <= value <= held.max:
                raise _wrong(f"{match[0]!r}", f"{dtype} holds {held.min} to {held.max}")
    except ValueError:
        raise _wrong(f"{match[0]!r} has no value", _FORM) from None
    return LaunchArgument(match["name"], dtype, value=value)


def _buffer(
    match: re.Match[str], sizes: Mapping[str, int], folder: Path, least: int
) -> LaunchArgument:
    dtype, name = _type_of(match), match["name"]
    shape = sizes_of(match["shape"], sizes, least)
    rest = match["rest"] or ""
    role = next((one for one in ROLES[:-1] if re.match(rf":{one}\b", rest)), "in")
    content = re.sub(rf"^:{role}\b", "", rest)
    if not content:
        return LaunchArgument(name, dtype, shape, role=role)
    if "int" not in dtype:
        why = f"only what integers hold decides what a kernel does; behind them stands {CONTENTS}"
        raise _wrong(f"{match[0]!r}", why)
    said = content.removeprefix("=")
    if said.startswith("@"):
        return LaunchArgument(
            name, dtype, shape, role=role, held=_held(folder / said[1:], dtype, shape)
        )
    between = re.fullmatch(r"uniform:(-?\d{1,20}),(-?\d{1,20})", said)
    ends = (0, math.prod(shape)) if said == "arange" else (0, 0)
    low, high = (int(between[1]), int(between[2])) if between else ends
    limits = np.iinfo(dtype)
    if low < high and (low < limits.min or high - 1 > limits.max):
        raise _wrong(f"{match[0]!r}", f"{dtype} holds {limits.min} to {limits.max}")
    if low >= high:
        raise _wrong(
            f"{match[0]!r}", f"behind a shape may stand :out, :inout, :part, then = and {CONTENTS}"
        )
    return LaunchArgument(name, dtype, shape, role=role, content=said)


def _held(path: Path, dtype: str, shape: tuple[int, ...]) -> bytes:
    try:
        if not is_file(path):
            raise OSError("it is no file")
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise _wrong(f"{path} is no array", first_line(str(error))) from error
    if array.shape != shape or array.dtype != element_dtype(dtype):
        why = f"it is {array.dtype} of {array.shape} and the argument {dtype} of {shape}"
        raise _wrong(f"{path} does not fit", why)
    return array.tobytes()


_OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    **{ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul},
    **{ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod},
}
_CALLS: Mapping[str, Callable[..., int]] = {
    **{"cdiv": lambda a, b: -(-a // b), "min": min, "max": max},
}


def sizes_of(text: str, numbers: Mapping[str, int], least: int = 1) -> tuple[int, ...]:
    """Sizes between commas, each of whole numbers and ``numbers`` by name, with ``+ - * // %``,
    ``cdiv``, ``min`` and ``max``.

    Raises LabError: something else, or a size below ``least``.
    """
    known = ", ".join(numbers) or "none"
    if "?" in text:
        raise _wrong(f"{text!r} has a ? still", "a number, or a sum of others, takes its place")
    try:
        tree = ast.parse(f"({text},)" if text.strip() else "", mode="eval").body
        found = tuple(_size(one, numbers) for one in getattr(tree, "elts", ()))
    except (SyntaxError, TypeError, ZeroDivisionError, ValueError, RecursionError):
        found = ()
    if not found or min(found) < least or max(found) >= 2**63:
        why = f"a size is a whole number from {least} on, or computed with + - * // % cdiv() min() "
        why += "max() of "
        raise _wrong(f"{text!r} are no sizes", f"{why}the whole numbers given: {known}")
    return found


def with_number(text: str, numbers: Mapping[str, int]) -> str:
    """An argument's type and value, where it is a whole number computed of others with its result,
    as ``i32:cdiv(n,4)``."""
    kind, _, said = text.partition(":")
    if _WHOLE.fullmatch(kind) and re.search("[A-Za-z*/%+]", said):
        return f"{kind}:{sizes_of(said, numbers, least=0)[0]}"
    return text


def _size(node: ast.expr, numbers: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(value=int() as value) if not isinstance(value, bool):
            return value
        case ast.Name(id=name) if name in numbers:
            return numbers[name]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_size(left, numbers), _size(right, numbers))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _CALLS:
            return _CALLS[name](*(_size(one, numbers) for one in args))
    raise ValueError


@dataclass(frozen=True)
class AskedLaunch:
    """One launch as it is told: sizes are texts that `sizes_of` reads."""

    entry: str  # the kernel as C++ names it
    grid: str  # blocks in x, y, z
    block: str  # threads in x, y, z; empty: those that Triton takes
    smem: str = "0"  # bytes of dynamic shared memory
    args: tuple[str, ...] | None = None  # names in the kernel's order; None: all, as they are given


@dataclass(frozen=True)
class AskedKernel:
    """A kernel's file and how it is launched."""

    source: Path
    launches: tuple[AskedLaunch, ...]  # in order
    arguments: tuple[LaunchArgument, ...]
    workspace: tuple[LaunchArgument, ...] = ()  # what launches hand on and nobody reads afterwards
    # preprocessor definitions; of Triton's constants and options, such as ``num_warps``
    defines: tuple[tuple[str, str], ...] = ()
    include: tuple[Path, ...] = ()  # folders in which headers are looked up, beside the source's
    remark: str = ""  # what was read from the source and not told

    def rung(self) -> tuple[Rung, LaunchProblem]:
        """A rung that is launched in this one way, and what it is launched with.

        Raises LabError: a size that is none, an argument that is not there, or a launch that every
        GPU refuses.
        """
        problem = LaunchProblem(self.arguments, remark=self.remark)
        try:
            launches = self.laid_out()
        except LabError as error:
            raise LabError(error.what, error.why, "the same launch with that mended") from error
        defines = dict(self.defines)
        rung = Rung(
            id=re.sub(r"[^A-Za-z0-9_.-]", "_", self.source.stem)[:60] or "kernel",
            title=self.launches[0].entry,
            source=self.source,
            idea="",
            limiter="",
            cost="",
            launch=lambda problem, limits, knobs: launches,
            supports=lambda problem: None,
            defines_extra=lambda problem, limits, knobs: defines,
            operation=LaunchProblem.operation,
            headers=self.include,
        )
        return rung, problem

    def laid_out(self) -> list[Launch]:
        """The launches with their sizes computed; the errors are those of `rung`."""
        return [self._launch(one) for one in self.launches]

    def _launch(self, asked: AskedLaunch) -> Launch:
        given = {one.name: one for one in (*self.arguments, *self.workspace)}
        numbers = _whole(given.values())
        names = asked.args
        if names is None:
            inside = {name for one in given.values() for name in one.members}
            whole = (one for one in self.arguments if one.role != "size")
            names = tuple(one.name for one in whole if one.name not in inside)
        if missing := [name for name in names if name not in given]:
            raise _wrong(f"{asked.entry} takes {missing[0]}", f"given are {', '.join(given)}")
        grid = sizes_of(asked.grid, numbers)
        of_triton = self.source.suffix == OF_TRITON and not asked.block
        block = (1,) if of_triton else sizes_of(asked.block, numbers)
        smem = (0,) if asked.smem == "0" else sizes_of(asked.smem, numbers)
        if len(smem) > 1 or max(len(grid), len(block)) > 3 or math.prod(grid) > MOST_IN_GRID:
            why = f"a grid has one to three sizes, and at most {MOST_IN_GRID} blocks here; a block "
            raise _wrong(f"{asked.entry} on {grid} blocks", f"{why}has as many, shared memory one")
        args = tuple(_value(name, given) for name in names)
        launch = Launch(asked.entry, grid, block, smem[0], args)  # type: ignore[arg-type]
        spaces = (one for one in self.workspace if one.name in launch.named)
        held = (Workspace(one.name, one.shape, one.dtype) for one in spaces if one.shape)
        return dataclasses.replace(launch, workspace=tuple(held))


def _value(name: str, given: Mapping[str, LaunchArgument]) -> Any:
    """What a launch passes: of a buffer its name, of a member that has no name its own text."""
    if name.isdecimal():
        return np.void(int(name))
    one = given.get(name)
    if one is None:
        match = _ARGUMENT.fullmatch(f"member={name}")
        assert match is not None  # it was read
        one = _number(match)
    if one.role == "struct":
        return Struct(tuple(_value(member, given) for member in one.members))
    return name if one.shape is not None else element_dtype(one.dtype).type(one.value)


def _whole(arguments: Iterable[LaunchArgument]) -> dict[str, int]:
    numbers = (one for one in arguments if one.shape is None and one.role != "struct")
    return {one.name: one.value for one in numbers if isinstance(one.value, int)}


_FIELDS = {"source": str, "args": dict, "workspace": dict, "defines": dict, "launch": list}
_FIELDS |= {"include": list}


def launch_file(path: Path) -> Mapping[str, Any]:
    """What a TOML file of `read_launches` says, its form held against what that may say; the source
    may be absent.

    Raises LabError: it is of another form.
    """
    try:
        data = tomllib.loads(read_given(path))
    except (OSError, ValueError, RecursionError) as error:
        raise _wrong(f"{path} is no TOML", first_line(str(error))) from error
    for name, value in data.items():
        if name not in _FIELDS or not isinstance(value, _FIELDS[name]):
            raise _wrong(f"{path} has {name!r}", f"it may have {', '.join(_FIELDS)}")
    if not data.get("launch"):
        raise _wrong(f"{path} has no launch or no source", "it needs source and [[launch]]")
    known = {one.name for one in dataclasses.fields(AskedLaunch)}
    needed = launch_fields(str(data.get("source", "")))
    for one in data["launch"]:
        whole = isinstance(one, dict) and needed <= {*one} <= known
        if not whole or not isinstance(one.get("args", []), list):
            why = f"it has {', '.join(needed)}, and may have {', '.join(sorted(known))}"
            raise _wrong(f"{path} has a launch {one!r}", f"{why}; args is a list of names")
    return data


def read_launches(path: Path) -> AskedKernel:
    """A kernel as a TOML file tells of it: ``source`` beside it, ``[args]`` and ``[workspace]`` as
    name and type, ``[[launch]]`` with entry, grid, block, smem and args, ``[defines]``, and
    ``include``, a list of folders.

    Raises LabError: it is of another form.
    """
    data = launch_file(path)
    if "source" not in data:
        raise _wrong(f"{path} has no launch or no source", "it needs source and [[launch]]")
    texts = [
        [f"{name}={said}" for name, said in data.get(of, {}).items()]
        for of in ("args", "workspace")
    ]
    found = read_arguments([*texts[0], *texts[1]], path.parent)
    if unsaid := [name for name, value in data.get("defines", {}).items() if value == "?"]:
        raise _wrong(f"{unsaid[0]} has a ? still", "a definition has a value")
    return AskedKernel(
        path.parent / data["source"],
        tuple(asked_launch(one) for one in data["launch"]),
        found[: len(texts[0])],
        found[len(texts[0]) :],
        tuple((name, str(value)) for name, value in data.get("defines", {}).items()),
        tuple(path.parent / str(one) for one in data.get("include", [])),
    )


@dataclass(frozen=True)
class LaunchesOf:
    """The launches of a kernel of some problem, told as `read_launches` reads them: with the sizes
    and the arguments of whatever problem they are asked for, as a rung's ``launch`` is."""

    launches: tuple[AskedLaunch, ...]  # in order
    workspace: Mapping[str, str]  # type and shape by name
    numbers: Mapping[str, str]  # arguments that are numbers and that the problem does not have
    sizes: Mapping[str, int]  # further names that sizes are made of
    source: Path = field(default=Path(), repr=False)  # an exported rung is written by its repr

    def __call__(self, problem: Any, limits: Any, knobs: Mapping[str, int]) -> list[Launch]:
        """The errors are those of `AskedKernel.rung`."""
        texts = list(problem.argument_texts())
        held = {text.partition("=")[0] for text in texts}
        more = {"num_sms": limits.num_sms if limits else 1, **knobs, **self.sizes}
        whole = {name: value for name, value in more.items() if value >= 0 and name not in held}
        texts += [f"{name}={value}" for name, value in whole.items()]
        sizes = _whole(read_arguments(texts, least=0))
        texts += [f"{name}={with_number(one, sizes)}" for name, one in self.numbers.items()]
        arguments = read_arguments(texts, least=0)
        sizes |= _whole(arguments)
        spaces = [f"{name}={value}" for name, value in sizes.items()]
        spaces += [f"{name}={said}" for name, said in self.workspace.items()]
        held_apart = tuple(one for one in read_arguments(spaces) if one.role != "size")
        return AskedKernel(self.source, self.launches, arguments, held_apart).laid_out()


def launch_fields(source: str) -> set[str]:
    """What a launch of a source says at least."""
    return {"entry", "grid"} if source.endswith(OF_TRITON) else {"entry", "grid", "block"}


def asked_launch(one: Mapping[str, Any]) -> AskedLaunch:
    """A launch of texts, numbers and lists by name."""

    def text(value: Any) -> str:
        return ",".join(map(str, value)) if isinstance(value, list) else str(value)

    args = tuple(map(str, one["args"])) if "args" in one else None
    sizes = {name: text(one.get(name, "")) for name in ("grid", "block")}
    smem = text(one.get("smem", 0))
    return AskedLaunch(str(one["entry"]), **sizes, smem=smem, args=args)
