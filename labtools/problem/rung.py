"""A rung of the ladder: one kernel, its knobs, its launch and what it is for."""

from __future__ import annotations

import dataclasses
import importlib.machinery
import importlib.util
import inspect
import itertools
import math
import re
import sys
import textwrap
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn, Self

import numpy as np

from .checked import check_fields, check_kernel_name, check_name, is_text
from .compare import MOST_TOLERANCE, MOST_TOLERANCE_IN_8_BITS
from .errors import KernelError, LabError
from .limits import MOST_BLOCK, MOST_GRID, MOST_THREADS, Limits
from .paths import kernels_dir
from .problem import (
    DEFAULT_OPERATION,
    Buffer,
    Problem,
    StoredAs,
    Supports,
    operation_of,
)
from .storage import element_bytes
from .text import is_file, mend_text, read_given


def say_knobs(knobs: Mapping[str, int] | Iterable[tuple[str, int]], between: str = ", ") -> str:
    """``unroll=4, launch_bounds=1``: names and values in the order given."""
    return between.join(f"{name}={value}" for name, value in dict(knobs).items())


def is_arch_since(arch: str, least: str) -> bool:
    """Whether an architecture, as ``sm_90``, is ``least`` or later; ``sm_90a`` is one alone."""
    if least.endswith("a"):
        return arch.removesuffix("a") == least.removesuffix("a")
    return int(arch.removesuffix("a").removeprefix("sm_")) >= int(least.removeprefix("sm_"))


class UnknownRung(LabError):
    """No rung has the name that was given."""


def _refuse_launch(what: str, why: str, instead: str = "correct the launch function") -> NoReturn:
    raise LabError(what, why, instead)


BROKEN = ("faults", "wrong")
"""What a kernel that is broken on purpose does, the worst first: no output, or a wrong one."""


@dataclass(frozen=True)
class Knob:
    """A choice of a rung, made when it is compiled (``unroll``) or laid out (``split``).

    A compiled one becomes a definition: ``-DUNROLL=<value>``.
    """

    name: str  # lower-case name
    choices: tuple[int, ...]  # the values it may take
    default: int  # one of them
    doc: str  # what it changes, one line
    compiled: bool = True  # False where the launch alone reads it: all values share one code
    # values with which the kernel is broken on purpose, and what it then does, of `BROKEN`
    broken: Mapping[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_fields(self, "A knob")
        check_name(self.name, "A knob")
        if self.default not in self.choices:
            raise ValueError(f"knob {self.name}: default {self.default} is not a choice")
        if not set(self.broken.values()) <= set(BROKEN):
            raise ValueError(f"knob {self.name}: what is broken is one of {BROKEN}")


@dataclass(frozen=True)
class Workspace:
    """A scratch buffer that a launch needs."""

    name: str  # what launches call it
    shape: tuple[int, ...]  # of the array
    dtype: str  # of its elements
    # True allocates it with ``cudaMalloc`` before the first launch of every timed call and frees it
    # with ``cudaFree`` after the last, both timed; False once, outside the timed region
    in_call: bool = False

    def __post_init__(self) -> None:
        check_fields(self, "A workspace")
        check_name(self.name, "A workspace")
        try:
            element_bytes(self.dtype)
            usable = min(self.shape, default=1) >= 0
        except TypeError:
            usable = False
        if not usable:
            why = "sizes are 0 or more, and a type is called as numpy calls it, or bfloat16"
            _refuse_launch(f"The workspace {self.name} is {self.shape} of {self.dtype!r}.", why)

    @property
    def bytes(self) -> int:
        """Size in bytes."""
        return Buffer(self.shape, self.dtype).bytes


SWIZZLED_ROW_BYTES = 128
"""Of a row of a box whose chunks of 16 bytes are exchanged, the widest that the copy engine has."""


@dataclass(frozen=True)
class TensorMap:
    """What the copy engine of an sm_90 is told of a buffer; the kernel gets it by value."""

    buffer: str  # the name of a buffer of 16-bit elements
    shape: tuple[int, int, int]  # sizes of its three dimensions, the outermost first, in elements
    # bytes from one index of the two outer dimensions to the next, multiples of 16
    strides: tuple[int, int]
    box: tuple[int, int, int]  # what one copy takes of each dimension
    swizzle: int  # bytes of a row within which chunks of 16 bytes are exchanged, 128 or 0 for none
    dtype: str  # of an element

    def __post_init__(self) -> None:
        check_fields(self, "A tensor map")
        check_name(self.buffer, "The buffer of a tensor map")
        row = self.box[2] * element_bytes(self.dtype)
        if (
            min(*self.shape, *self.box, *self.strides) < 1
            or max(self.box) > 256
            or any(size % 16 for size in (*self.strides, row))
            or self.swizzle not in (0, SWIZZLED_ROW_BYTES)
            or self.swizzle not in (0, row)
        ):
            _refuse_launch(
                f"The copy engine takes no tensor map {self}.",
                "strides and rows of a box are multiples of 16 bytes, a box has at most 256 of a "
                "dimension, and a row that is swizzled has 128 bytes",
            )

    @classmethod
    def of_planes(cls, buffer: str, shape: tuple[int, int, int], rows: int, dtype: str) -> Self:
        """The map of a buffer ``[planes, rows, columns]`` without gaps, whose boxes have 128 bytes
        of some rows of one plane, in which chunks are exchanged."""
        row = int(shape[2] * element_bytes(dtype))
        columns = int(SWIZZLED_ROW_BYTES / element_bytes(dtype))
        strides = (shape[1] * row, row)
        return cls(buffer, shape, strides, (1, rows, columns), SWIZZLED_ROW_BYTES, dtype)

    @property
    def words(self) -> tuple[int, ...]:
        """Sizes, strides and box, the innermost first, swizzle and bytes of an element."""
        sizes = (*self.shape[::-1], *self.strides[::-1], *self.box[::-1])
        return (*sizes, self.swizzle, int(element_bytes(self.dtype)))


@dataclass(frozen=True)
class Struct:
    """What a kernel gets by value of several members, laid out as C++ does. It is forecast; a
    launch that runs has one as ``np.void``, without addresses."""

    # names of buffers, numpy scalars, and others by value; ``np.void`` are bytes without a form
    members: tuple[Any, ...]
    size: int = 0  # bytes at least, where members are followed by more
    alignment: int = 1  # what its place is a multiple of, where its members ask for less

    @property
    def layout(self) -> list[tuple[int, Any]]:
        """The members with the bytes before each; the last is None, behind the whole."""
        at, most, found = 0, self.alignment, list[tuple[int, Any]]()
        for one in self.members:
            size, own = argument_bytes(one)
            at += -at % own
            found.append((at, one))
            at, most = at + size, max(most, own)
        return [*found, (max(at + -at % most, self.size), None)]


def argument_bytes(arg: Any) -> tuple[int, int]:
    """Bytes of an argument of a launch that is no `TensorMap`, and what its place is a multiple
    of."""
    if isinstance(arg, Struct):
        alignments = (argument_bytes(one)[1] for one in arg.members)
        return arg.layout[-1][0], max(arg.alignment, *alignments, 1)
    if isinstance(arg, np.void):  # what is said of its form is its size
        return arg.nbytes, min(8, arg.nbytes & -arg.nbytes) or 1
    size = 8 if isinstance(arg, str) else int(arg.nbytes)
    return size, size


def _buffers_of(arg: Any) -> list[str]:
    if isinstance(arg, Struct):
        return [name for one in arg.members for name in _buffers_of(one)]
    name = arg.buffer if isinstance(arg, TensorMap) else arg
    return [name] if isinstance(name, str) else []


@dataclass(frozen=True)
class Launch:
    """One kernel launch."""

    entry: str  # the kernel as C++ names it, such as ``decode`` or ``ns::attention<HEAD_DIM, 4>``
    grid: tuple[int, int, int]  # blocks in x, y, z
    block: tuple[int, int, int]  # threads in x, y, z
    smem_bytes: int = 0  # dynamic shared memory
    # in the kernel's order: the name of a buffer (of the problem, such as ``q`` or ``out``, or a
    # workspace), a numpy scalar such as ``np.int32(4096)``, a `TensorMap` or a `Struct`
    args: tuple[Any, ...] = ()
    workspace: tuple[Workspace, ...] = ()  # scratch buffers, shared by name between launches
    # run once for each set of buffers, before checking and timing, as a cache is quantised when it
    # is written. The workspaces that it names keep what it wrote. Such launches stand first.
    prepare: bool = False

    def __post_init__(self) -> None:
        check_fields(self, "A launch")
        check_kernel_name(self.entry)
        named = f"The launch of {self.entry}"
        for name, most in (("grid", MOST_GRID), ("block", MOST_BLOCK)):
            dims = tuple(int(n) for n in getattr(self, name))
            what = f"{named} has {name} {dims}."
            if not 1 <= len(dims) <= 3 or min(dims) < 1:
                _refuse_launch(what, "a launch needs one to three sizes of at least 1")
            whole = (*dims, 1, 1)[:3]
            if any(n > limit for n, limit in zip(whole, most, strict=True)):
                smaller = "a smaller workload, or another launch function"
                _refuse_launch(what, f"a GPU takes at most {most}", smaller)
            object.__setattr__(self, name, whole)
        if (threads := self.num_threads) > MOST_THREADS:
            why = f"a GPU takes at most {MOST_THREADS}"
            _refuse_launch(f"{named} has blocks of {threads} threads.", why)
        if self.smem_bytes < 0:
            what = f"{named} asks for {self.smem_bytes} bytes of shared memory."
            _refuse_launch(what, "less than none cannot be had")
        for arg in self.args:
            if not isinstance(arg, (str, np.generic, TensorMap, Struct)):
                what = f"{named} passes {arg!r} of type {type(arg).__name__}."
                why = "a scalar needs its width, for example np.int32(4) or np.float32(0.5)"
                _refuse_launch(what, why)

    @property
    def named(self) -> list[str]:
        """The buffers among its arguments."""
        return [name for arg in self.args for name in _buffers_of(arg)]

    @property
    def num_blocks(self) -> int:
        """Blocks of the grid."""
        return math.prod(self.grid)

    @property
    def num_threads(self) -> int:
        """Threads of one block."""
        return math.prod(self.block)


def timed_launches(launches: Sequence[Launch]) -> list[Launch]:
    """The launches that belong to every call: all but the preparation."""
    return [launch for launch in launches if not launch.prepare]


def prepared_bytes(launches: Sequence[Launch]) -> int:
    """Bytes of what a preparation wrote and a call reads."""
    sizes = {space.name: space.bytes for one in launches for space in one.workspace}
    written = {name for one in launches if one.prepare for name in one.named}
    return sum(sizes.get(name, 0) for name in written & _named_in_calls(launches))


def least_call_bytes(
    problem: Problem, launches: Sequence[Launch], scheme: StoredAs | None = None
) -> float:
    """Least bytes that a call moves: the inputs that it names, its outputs, and what its
    preparation wrote of the others, in ``scheme`` or, with None, as they lie without padding."""
    moved = problem.call_bytes(_named_in_calls(launches))
    if scheme is not None:
        return moved + scheme.stored_bytes(problem)
    return moved + problem.used_share * prepared_bytes(launches)


def _named_in_calls(launches: Sequence[Launch]) -> set[str]:
    return {name for one in timed_launches(launches) for name in one.named}


def _reads_8_bits(problem: Problem, launches: Sequence[Launch]) -> bool:
    """Whether calls read, in place of bulk inputs that only the preparation names, what it kept of
    them in four to eight bits an element, and little else that it wrote."""
    prepared = {name for one in launches if one.prepare for name in one.named}
    called = _named_in_calls(launches)
    inputs = {name: one for name, one in problem.inputs.items() if one.dtype == problem.dtype}
    replaced = [inputs[name] for name in (prepared - called) & {*inputs}]
    elements = sum(math.prod(one.shape) for one in replaced) * problem.used_share
    spaces = {space.name: space for one in launches for space in one.workspace}
    kept = [spaces[name] for name in prepared & called & {*spaces}]
    held = sum(one.bytes for one in kept if one.dtype in ("int8", "uint8"))
    others = sum(one.bytes for one in kept) - held
    return bool(replaced) and held >= elements / 2 and others <= held


def move_outside(launches: Sequence[Launch]) -> list[Launch]:
    """The launches with every workspace allocated once, before all calls."""

    def outside(launch: Launch) -> Launch:
        spaces = tuple(dataclasses.replace(one, in_call=False) for one in launch.workspace)
        return dataclasses.replace(launch, workspace=spaces)

    return [outside(one) for one in launches]


def reset_launch(finished: Workspace) -> Launch:
    """The preparation ``reset_counters``, which zeroes counters, uint32 ``[n]``, of finished
    blocks."""
    count = finished.shape[0]
    args = (finished.name, np.int32(count))
    grid = (-(-count // 128), 1, 1)
    launch = Launch("reset_counters", grid, (128, 1, 1), args=args, workspace=(finished,))
    return dataclasses.replace(launch, prepare=True)


LaunchFunction = Callable[[Any, Limits, Mapping[str, int]], list[Launch]]
ASKED_WITH = {
    **dict.fromkeys(("launch", "defines_extra", "plan"), ("problem", "limits", "knobs")),
    "stores": ("problem", "knobs"),
    "supports": ("problem",),
}
"""What each function of a rung is called with, in this order."""
_LIBRARY = Path(__file__).parents[1]
_CORRECT = "correct the rung's .py file; every other rung is unaffected"


@dataclass(frozen=True)
class OfOperation:
    """Why a problem cannot be run: it is of another operation, or what ``asked`` answers."""

    operation: str  # the name of the operation
    asked: Supports  # is asked about problems of it, `Problem.blank`: their shape and type
    # why inputs of a distribution are refused, by its name or by type and name
    refuses: Mapping[str, str] = field(default_factory=dict, hash=False)
    rung: str = field(default="", compare=False)  # whose answer it is, for a message

    def __call__(self, problem: Problem) -> str | None:
        if problem.operation != self.operation:
            return f"it computes {self.operation} and not {problem.operation}"
        kind = problem.distribution
        for name in (kind, f"{problem.dtype} {kind}"):
            if name in self.refuses:
                return self.refuses[name]
        reason = ask_rung(self.rung, self.asked, problem.blank())
        if reason is not None and not is_text(reason):
            raise _wrong_answer(self.rung, "supports", "a reason in words, or None", reason)
        return reason or None


@dataclass(frozen=True)
class Rung:
    """One kernel of the guide, or of a reader."""

    id: str  # the file name without its ending, for example ``r03_one_warp``
    title: str  # a few words
    source: Path  # the ``.cu`` file
    idea: str  # what this rung changes from its parent
    limiter: str  # what it attacks
    cost: str  # what it gives up
    launch: LaunchFunction  # pure function of a problem, the GPU's `Limits` and resolved knobs
    knobs: tuple[Knob, ...] = ()  # choices made when it is compiled or laid out
    parent: str | None = None  # id of the rung it changes, or None
    parent_knobs: Mapping[str, int] = field(default_factory=dict)  # at which it is compared
    # why a problem of its operation cannot run, or None, from its shape and type alone. Without it
    # a rung takes what is usual: of decode every shape, but fp16 and a contiguous cache only.
    supports: Supports = lambda problem: problem.usual_refusal()
    text: str | None = None  # replaces the content of ``source`` (an edited cell), or None
    edited: bool = False  # True when source or launch is not the shipped one
    # relative error of one part of the output against the oracle, for a kernel that rounds more
    # than its output; None takes `Problem.tolerance`; see `tolerance_for`
    tolerance: float | None = None
    # how it stores inputs that it does not read as they are given, from problem and resolved knobs,
    # such as a `Scheme` of K and V; its output is held against the oracle of what that leaves
    stores: Callable[[Any, Mapping[str, int]], StoredAs] | None = None
    min_arch: str = "sm_75"  # the oldest that the kernel runs on; with the suffix the only one
    # more preprocessor definitions, from what `launch` gets
    defines_extra: Callable[[Any, Limits, Mapping[str, int]], dict[str, str]] | None = None
    # the layout that `launch` and `defines_extra` ask, from what they get; None without such a rule
    plan: Callable[[Any, Limits, Mapping[str, int]], Any] | None = None
    operation: str = DEFAULT_OPERATION  # what it computes, by name
    # why inputs of a distribution cannot be computed, by its name or by type and name, such as
    # "bfloat16 large"; every check names them
    refuses: Mapping[str, str] = field(default_factory=dict)
    # of ``source`` when it was loaded: what is checked is what is timed; None reads the file
    read_text: str | None = None
    headers: tuple[Path, ...] = ()  # further folders in which headers are looked up

    def __post_init__(self) -> None:
        check_fields(self, "The rung")
        check_name(self.id, "The rung", in_c=False)
        for name in ASKED_WITH:
            _check_form(self.id, name, getattr(self, name))
        if not isinstance(self.supports, OfOperation):  # as it is in a copy of a rung
            asked = OfOperation(self.operation, self.supports, self.refuses, self.id)
            object.__setattr__(self, "supports", asked)
        if not re.fullmatch(r"sm_[0-9]{2,3}a?", self.min_arch):
            what, why = f"{self.id} needs {self.min_arch!r} at least.", "an architecture is called"
            raise LabError(
                what, f"{why} sm_90, for example", "name one as min_arch, or leave it out"
            )
        if self.tolerance is not None and not 0 < self.tolerance < 1:
            what = f"{self.id} states a tolerance of {self.tolerance!r}."
            why = "it is a relative error, above 0 and below 1"
            raise LabError(what, why, "state the bound, or leave it out")

    @classmethod
    def beside(cls, file: str, **fields: Any) -> Self:
        """The rung of a ``.py``, whose name it has, of the ``.cu`` beside it or another source."""
        usual = {"id": Path(file).stem, "source": Path(file).with_suffix(".cu")}
        return cls(**{**usual, **fields})

    @property
    def is_family(self) -> bool:
        """Whether it is many kernels in one source, whose methods and grid a ``.toml`` beside it
        names, and not one kernel, such as a step of a ladder."""
        return is_file(self.source.with_suffix(".toml"))

    @property
    def is_shipped(self) -> bool:
        """Whether it is one of the project's own kernels, unedited."""
        return not self.edited and self.source.is_relative_to(kernels_dir())

    def runs_on(self, arch: str) -> bool:
        """Whether an architecture, such as ``sm_75``, has what the kernel needs."""
        return is_arch_since(arch, self.min_arch)

    def target(self, arch: str) -> str:
        """The architecture that it is compiled for, on ``arch``: with the suffix that it needs; a
        LabError where it needs instructions that one other architecture has alone."""
        if not self.min_arch.endswith("a"):
            return arch
        if not self.runs_on(arch):
            raise LabError(
                f"{self.id} is written for {self.min_arch} and does not run on {arch}.",
                "its instructions are those of one architecture: an older GPU lacks them, and so "
                "does a newer one",
                "its check on the CPU, and the other kernels of the ladder",
            )
        return self.min_arch

    @property
    def source_text(self) -> str:
        """The CUDA C++ source; a LabError where the file is not text, or is gone."""
        held = self.read_text if self.text is None else self.text
        if held is not None:
            return held
        try:
            return read_given(self.source)
        except (OSError, ValueError) as error:
            what, why = f"The source of {self.id} cannot be read.", f"{self.source}: {error}"
            works = "a source is text in UTF-8; every other rung is unaffected"
            raise LabError(what, why, works) from error

    @property
    def include_dirs(self) -> tuple[Path, ...]:
        """Where ``#include "..."`` is looked up: the rung's own folder, the shared one, others."""
        return (self.source.resolve().parent, kernels_dir() / "include", *self.headers)

    def resolve_knobs(self, chosen: Mapping[str, int] | None = None) -> dict[str, int]:
        """Every knob with its value: the chosen one or the default; a LabError for an unknown knob
        or a value that is no choice."""
        chosen = dict(chosen or {})
        values = {}
        for knob in self.knobs:
            value = chosen.pop(knob.name, knob.default)
            if value not in knob.choices:
                what = f"{self.id} cannot run with {knob.name}={value}."
                why = f"{knob.name} may be {', '.join(map(str, knob.choices))}: {knob.doc}"
                raise LabError(what, why, "choose one of these values")
            values[knob.name] = int(value)
        if chosen:
            why = f"its knobs are {', '.join(knob.name for knob in self.knobs) or 'none'}"
            what = f"{self.id} has no knob {', '.join(sorted(chosen))}."
            raise LabError(what, why, "leave the knob out")
        return values

    def broken(self, knobs: Mapping[str, int] | None = None) -> str | None:
        """What the kernel does with knobs that break it on purpose, one of `BROKEN`; or None."""
        values = self.resolve_knobs(knobs)
        found = {knob.broken.get(values[knob.name]) for knob in self.knobs}
        return next((word for word in BROKEN if word in found), None)

    def as_written(self) -> dict[str, int]:
        """The knobs of a rung that is broken as its author wrote it: each with its broken value."""
        return {knob.name: min(knob.broken) for knob in self.knobs if knob.broken}

    def defines(
        self, problem: Problem, limits: Limits, knobs: Mapping[str, int] | None = None
    ) -> dict[str, str]:
        """Preprocessor definitions: every compiled knob in upper case, the problem's own, and what
        `defines_extra` gives; a LabError where that gives a name that is taken."""
        values, own = self.resolve_knobs(knobs), problem.defines()
        compiled = [knob.name for knob in self.knobs if knob.compiled]
        defines = own | {name.upper(): str(values[name]) for name in compiled}
        extra = {}
        if self.defines_extra is not None:
            found = ask_rung(self.id, self.defines_extra, problem.blank(), limits, values)
            extra = _check_defines(self.id, found)
        if taken := sorted(set(extra) & set(defines)):
            raise LabError(
                f"{self.id} defines {', '.join(taken)} twice.",
                f"knobs and what {self.operation} defines ({', '.join(own) or 'nothing'}) are "
                "defined already",
                "give the definition another name",
            )
        return defines | extra

    def scheme(self, problem: Problem, knobs: Mapping[str, int] | None = None) -> Any:
        """How inputs are stored for a problem, a `StoredAs`; None where they stay as they are; a
        LabError for a scheme that no part of the output can be checked by itself with."""
        if self.stores is None:
            return None
        scheme = ask_rung(self.id, self.stores, problem.blank(), self.resolve_knobs(knobs))
        if getattr(scheme, "operation", None) != self.operation:
            raise _wrong_answer(self.id, "stores", f"a scheme of {self.operation}", scheme)
        operation_of(problem).check_scheme(self.id, scheme)
        return scheme

    def launches(
        self, problem: Problem, limits: Limits, knobs: Mapping[str, int] | None = None
    ) -> list[Launch]:
        """`launch` with every knob resolved and the result checked; a LabError where the rung does
        not support the problem, launches nothing or asks for more shared memory than the GPU has,
        a KernelError where its own Python fails."""
        reason = self.supports(problem)
        if reason:
            raise LabError(f"{self.id} cannot run {problem}.", reason, "choose another workload")
        launches = ask_rung(
            self.id, self.launch, problem.blank(), limits, self.resolve_knobs(knobs)
        )
        is_list = isinstance(launches, (list, tuple))
        if not is_list or not all(isinstance(one, Launch) for one in launches):
            raise _wrong_answer(self.id, "launch", "a list of Launch(...)", launches)
        if not launches:
            what, why = f"{self.id} launches nothing for {problem}.", "its launch function returned"
            raise LabError(what, f"{why} an empty list", "return at least one Launch")
        timed = timed_launches(launches)
        if not timed or list(launches[-len(timed) :]) != timed:
            raise LabError(
                f"{self.id} prepares too late, or does nothing else.",
                "launches with prepare=True stand before the others, and there must be others",
                "correct the launch function",
            )
        _check_buffers(self.id, problem, launches)
        for one in launches:
            if one.smem_bytes > limits.smem_per_block_bytes:
                raise LabError(
                    f"{one.entry} cannot launch with {one.smem_bytes} bytes of shared memory.",
                    f"a block on {limits.name} may have {limits.smem_per_block_bytes}",
                    "other knobs, or another GPU",
                )
        return list(launches)

    def tolerance_for(self, problem: Problem, launches: Sequence[Launch]) -> float:
        """The relative error that is allowed of one part of the output: what the rung states, but
        no more than its type may have, or `MOST_TOLERANCE_IN_8_BITS` of one whose calls read in
        place of inputs what its preparation kept of them in eight bits, and that names no scheme.
        """
        if self.tolerance is None:
            return problem.tolerance
        in_8_bits = self.stores is None and _reads_8_bits(problem, launches)
        of_type = MOST_TOLERANCE.get(problem.output.dtype, 0.0)
        return min(self.tolerance, MOST_TOLERANCE_IN_8_BITS if in_8_bits else of_type)

    def knob_combinations(self) -> list[dict[str, int]]:
        """Every combination of the values of compiled knobs; the others have their defaults."""
        names = [knob.name for knob in self.knobs]
        choices = [knob.choices if knob.compiled else (knob.default,) for knob in self.knobs]
        return [dict(zip(names, values, strict=True)) for values in itertools.product(*choices)]

    def with_source(self, text: str) -> Rung:
        """A copy that compiles ``text`` instead of the file."""
        text = mend_text(text)
        edited = self.edited or text.strip() != read_given(self.source).strip()
        return dataclasses.replace(self, text=text, edited=edited)

    def with_launch(self, launch: LaunchFunction) -> Rung:
        """A copy that launches with ``launch``."""
        edited = self.edited or function_text(launch) != function_text(self.launch)
        return dataclasses.replace(self, launch=launch, edited=edited)


def ask_rung(rung: str, function: Callable[..., Any], problem: Problem, *more: Any) -> Any:
    """What a rung's own function answers. Whatever it raises is a mistake in the rung."""
    try:
        return function(problem, *more)
    except (LabError, KeyboardInterrupt):
        raise
    except BaseException as error:
        what = f"The Python of {rung or 'the rung'} failed on {problem}."
        raise KernelError(what, say_failure(error), _CORRECT) from error


def say_failure(error: BaseException) -> str:
    """`say_error`, and the last line of a reader's file that it went through."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [one for one in frames if not Path(one.filename).is_relative_to(_LIBRARY)]
    return say_error(error) + (f", {own[-1].filename} line {own[-1].lineno}" if own else "")


def say_error(error: BaseException) -> str:
    """Its type and its text, which may be of the reader's own making and fail too."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


def _wrong_answer(rung: str, function: str, wanted: str, answer: Any) -> KernelError:
    return KernelError(
        f"The function {function} of {rung or 'the rung'} returned what it must not.",
        f"it must return {wanted}, and this is of type {type(answer).__name__}",
        _CORRECT,
    )


def _check_defines(rung: str, extra: Any) -> dict[str, str]:
    """What `Rung.defines_extra` gave, as text by name."""
    wanted = "a dict of text or numbers by their names in C"
    if not isinstance(extra, Mapping) or not all(
        is_text(name) and (is_text(value) or isinstance(value, (int, float, np.generic)))
        for name, value in extra.items()
    ):
        raise _wrong_answer(rung, "defines_extra", wanted, extra)
    for name in extra:
        check_name(name, f"A definition of {rung}")
    return {name: str(value) for name, value in extra.items()}


def _check_form(rung: str, name: str, function: Callable[..., Any] | None) -> None:
    """Refuse a function of a rung that is not written for what it is called with."""
    asked = ASKED_WITH[name]
    try:
        if function is None or _takes(inspect.signature(function), asked):
            return
    except TypeError:
        pass  # it is no function
    except ValueError:
        return  # one in C, which does not say
    form = f"{name}({', '.join(asked)})"
    what = "limits say what the GPU gives, such as limits.num_sms"
    raise LabError(
        f"The function {name} of {rung} is not written as {form}.",
        f"that is what it is called with{': ' + what if 'limits' in asked else ''}",
        f"write it as def {form}, each without a default; what else it takes needs one",
    )


def _takes(signature: inspect.Signature, asked: Sequence[str]) -> bool:
    """Whether exactly these must be given by place, and none is called as another one is."""
    every = signature.parameters.values()
    needed = [one for one in every if one.default is one.empty and one.kind != one.VAR_KEYWORD]
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return len(needed) == len(asked) and all(
        one.kind in by_place and (one.name == wanted or one.name not in asked)
        for one, wanted in zip(needed, asked, strict=True)
    )


def _check_buffers(rung: str, problem: Problem, launches: Sequence[Launch]) -> None:
    """Refuse buffers that nobody has, and what cannot be allocated in a call."""
    for one in launches:
        known = {*problem.buffers, *(space.name for space in one.workspace)}
        for name in one.named:
            if name not in known:
                raise LabError(
                    f"The launch of {one.entry} names a buffer {name!r}.",
                    problem.why_absent(name) or f"on {problem} the buffers are {sorted(known)}",
                    "correct the launch function, or choose a workload that has it",
                )
    prepared = {name for one in launches if one.prepare for name in one.named}
    hidden = sorted(prepared & {*problem.call_inputs, *problem.outputs})
    if hidden:
        raise LabError(
            f"{rung} prepares with {' and '.join(hidden)}.",
            "a launch with prepare=True runs once, before all calls: the output and what a call "
            f"brings ({', '.join(problem.call_inputs)}) are not there yet",
            "launch it in the call, or prepare from the other inputs alone",
        )
    for space in (space for one in launches for space in one.workspace):
        if space.in_call and space.name in prepared:
            what = f"{rung} allocates {space.name} in every call and fills it before all calls."
            why = "what a launch with prepare=True writes must last"
            raise LabError(what, why, "leave out in_call=True, or the preparation")


def function_text(function: Any) -> str:
    """The text of a rung's function; nothing of one that was made on the spot."""
    if (held := getattr(function, "text", None)) is not None:
        return str(held)
    try:
        return textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        return ""


def load_by_path(path: Path) -> ModuleType:
    """Import a Python file by path, afresh, under a name that clashes with nothing; a LabError
    where the file does not import."""
    name = f"_labtools_loaded_{abs(hash(str(path))):x}_{path.stem}"
    loader = importlib.machinery.SourceFileLoader(name, str(path))  # whatever it is called
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # so that inspect and pickle find the module's functions
    try:
        spec.loader.exec_module(module)
    except BaseException as error:  # it may raise whatever it likes
        del sys.modules[name]
        if isinstance(error, (LabError, KeyboardInterrupt)):
            raise
        what, works = f"{path} could not be loaded.", "every other rung is unaffected"
        raise LabError(what, say_error(error), works) from error
    return module
