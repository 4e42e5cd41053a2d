"""What is computed, as every later room reads it: a Problem, which is data, and its Operation, that
draws inputs, says the answer and lists small problems that find wrong kernels. No file outside an
operation's own names its fields."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NoReturn, Protocol, Self, TypeVar

import numpy as np

from .compare import Comparison, compare_output, merge_outputs, tolerance_of
from .errors import KernelError, LabError
from .pairs import Ends, Levels, Starts, size_levels
from .storage import element_bytes
from .text import given_path, read_given

DEFAULT_OPERATION = "decode"
"""The operation of a short form without a prefix, of JSON that names none, and of a rung that
names none."""
OUTPUT_BUFFER = "out"
"""What a problem with one output calls it, unless it says otherwise."""
CACHE_STATES = ("cold", "warm")
DTYPES = ("float16", "bfloat16", "float32")
DRAWN_DTYPES = ("float16", "bfloat16")
"""The types of problems that are drawn, unless a kernel takes neither."""
LARGEST = 2**31 - 1
"""Kernels take sizes as int."""
LARGEST_SET = 2**42
"""Bytes of one set of buffers, more than the GPUs of a node have."""
VISIT = 128
"""Elements of one visit, as many as a head of decode has."""
MOST_ROWS, MOST_PARTS = 2**24, 2**28
"""Sequences or rows of one problem, and parts of its output, of which some are looked at: what is
known of each is kept in arrays of this length."""
MOST_END = 64
"""Largest power of two that is looked for at the end of a size, as the largest page has."""
TILED_ALIKE = 2**12
"""Rows more that leave as many in the last tile, and in the last band of tiles."""
SHORT_DTYPES = {
    "fp16": {"dtype": "float16"},
    "bf16": {"dtype": "bfloat16"},
    "fp32": {"dtype": "float32"},
}
WARM = {"warm": {"cache_state": "warm"}}
TYPE_DEFINES = {"float16": {}, "bfloat16": {"BF16": "1"}, "float32": {"FP32": "1"}}
"""Preprocessor definitions of each type."""
_COUNTS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight")

P = TypeVar("P", bound="Problem")
D = TypeVar("D", bound="Drawn")
Arrays = Mapping[str, np.ndarray]
"""Contents of buffers by name."""
Part = tuple[int, ...]
"""The index of one part of the output: what is compared by itself, such as a (sequence, head)."""
Supports = Callable[[Any], str | None]
"""Why a problem cannot be run, or None."""
Fetch = Callable[..., np.ndarray]
"""``fetch(name, index)`` gives a copy of ``buffer[index]``, wherever it lies."""
Store = Callable[..., None]
"""``store(name, index, array)`` puts an array into ``buffer[index]``."""
Rng = np.random.Generator


def takes_all(problem: Any) -> None:
    """A `Supports` that refuses nothing."""


@dataclass(frozen=True)
class Buffer:
    """One array that a kernel is given."""

    shape: tuple[int, ...]  # of the array
    dtype: str  # of its elements, by name

    @property
    def elements(self) -> int:
        return math.prod(int(n) for n in self.shape)

    @property
    def bytes(self) -> int:
        return self.elements * element_bytes(self.dtype)


@dataclass(frozen=True)
class Fill:
    """How one input is made on a GPU, where drawing it on the CPU would take long."""

    buffer: str  # name of the input
    array: np.ndarray | None = None  # its content; None fills it with standard normal numbers
    seed: int = 0  # of those numbers
    heads: int = 1  # of an array ``[B, heads, rows, D]`` whose rows past a length hold NaN
    lengths: np.ndarray | None = None  # int32 ``[B]``, those lengths; None fills every row


class Drawn(Protocol):
    """The inputs of one problem."""

    @property
    def problem(self) -> Any:
        """What they were drawn for."""

    def buffers(self) -> dict[str, np.ndarray]:
        """The arrays by the names that a Launch uses."""


SECOND_DRAW = 7919  # added to a problem's seed for the second draw


@dataclass(frozen=True)
class HeldInputs:
    """Inputs of one problem, by name."""

    problem: Any  # what they were drawn for
    arrays: Mapping[str, np.ndarray]

    def buffers(self) -> dict[str, np.ndarray]:
        """The arrays by the names that a Launch uses."""
        return dict(self.arrays)


class DrawnArrays:
    """Inputs of which every field that is an array is a buffer, by its name."""

    def buffers(self) -> dict[str, np.ndarray]:
        return {name: one for name, one in vars(self).items() if isinstance(one, np.ndarray)}


class StoredAs(Protocol):
    """How a rung keeps inputs that it does not read as they are given, such as in eight bits."""

    name: str
    operation: str  # whose inputs it keeps, by name

    @property
    def bits(self) -> int:
        """Most bits of one element."""

    @property
    def codec(self) -> str:
        """Name of the codec with these bits."""

    def stored_bytes(self, problem: Any) -> int:
        """Bytes that take the place of `Problem.streamed_bytes`, each once."""


class Problem(ABC):
    """What is computed: a shape, the inputs' kind and seed, and the state of the cache.

    A subclass is a frozen dataclass whose first fields are its shape, whole numbers of at least 1
    (0 for those in `may_be_zero`), and which has the fields below with defaults.
    """

    operation: ClassVar[str]  # its name; also the prefix of the short form
    shape_fields: ClassVar[tuple[str, ...]]
    may_be_zero: ClassVar[tuple[str, ...]] = ()
    most_rows: ClassVar[int] = MOST_ROWS  # of the first of its sizes
    letters: ClassVar[str]  # the shape as a short form shows it, such as ``R,C``
    # what may stand behind a short form, after a slash: the fields that it sets
    options: ClassVar[Mapping[str, Mapping[str, Any]]] = {**SHORT_DTYPES, **WARM}
    # options that are letters and a whole number, such as ``/q64``: the field that each sets
    counted: ClassVar[Mapping[str, str]] = {}
    example: ClassVar[str]  # a short form
    distributions: ClassVar[tuple[str, ...]] = ("normal",)
    # of `output`. All but the last number a part, which is compared with the oracle by itself
    axes: ClassVar[tuple[str, ...]]

    dtype: str  # element type of the inputs that are drawn
    distribution: str  # which kind of inputs, one of `distributions`
    seed: int  # seed of the input generator
    cache_state: str  # ``cold`` (buffers rotated past the L2) or ``warm``

    def __post_init__(self) -> None:
        self.check_shape()
        self.check_kind()
        self.check_size()

    # What it says of itself, operation by operation.

    @property
    @abstractmethod
    def inputs(self) -> dict[str, Buffer]:
        """The input buffers by name, in order."""

    @property
    @abstractmethod
    def output(self) -> Buffer:
        """The first output buffer, whose axes number the parts."""

    @property
    def outputs(self) -> dict[str, Buffer]:
        """Every output buffer by name, `output` first. A name that is among the `inputs` too is one
        buffer, an input before the launch and an output after it. An output whose shape begins as
        that of the first one is compared part by part; any other one is compared whole."""
        return {OUTPUT_BUFFER: self.output}

    @property
    @abstractmethod
    def streamed_bytes(self) -> int:
        """Bytes of the bulk that every call goes through, each once; rates are quoted on them."""

    @property
    @abstractmethod
    def minimal_bytes(self) -> int:
        """Least traffic with memory of a call that reads its inputs as they are."""

    @property
    @abstractmethod
    def flops(self) -> int:
        """Additions and multiplications."""

    @property
    def visits(self) -> int:
        """Pieces of `VISIT` elements that a kernel goes through: how long the CPU takes."""
        return self.num_parts * self.part_visits

    @property
    def part_visits(self) -> int:
        """`visits` of one part, at most."""
        return max(1, -(-self.output.shape[-1] // VISIT))

    @property
    def size_ends(self) -> set[tuple[str, int]]:
        """How its sizes end, by name: each by the largest power of two that divides it."""
        sizes = ((name, getattr(self, name)) for name in self.shape_fields)
        return {(name, min(size & -size, MOST_END)) for name, size in sizes}

    @property
    def call_inputs(self) -> tuple[str, ...]:
        """Inputs that are other ones in every call: no preparation may see them."""
        return tuple(self.inputs)

    def blank(self) -> Self:
        """What a rung's functions are given: one that knew the seed could know the answer."""
        return self.replace(seed=0, distribution=self.distributions[0])

    @property
    def layout(self) -> str:
        """How the inputs lie in memory."""
        return "contiguous"

    @property
    def uneven(self) -> bool:
        """Whether some parts of the output take more work than others."""
        return False

    @property
    def empty_parts(self) -> bool:
        """Whether parts of the output have nothing to go through, as a sequence without keys."""
        return False

    @property
    def used_share(self) -> float:
        """Part of the padded inputs that a call goes through."""
        return 1.0

    @property
    def read_in_part(self) -> tuple[str, ...]:
        """Inputs of which a call reads a part, and nobody says how much: no floor counts them."""
        return ()

    def why_absent(self, name: str) -> str | None:
        """Why an input that other problems of the operation have is not here, or None."""
        return None

    def defines(self) -> dict[str, str]:
        """Preprocessor definitions that every kernel of the operation gets: those of the type."""
        return dict(TYPE_DEFINES[self.dtype])

    def code_key(self) -> tuple[Any, ...]:
        """Equal for problems whose kernels share machine code: a check of one speaks for all."""
        return (self.dtype, *sorted(self.defines().items()))

    def usual_refusal(self) -> str | None:
        """Why a rung that says nothing of what it supports cannot run it: elements but fp16."""
        if self.dtype != "float16":
            return f"its elements are {self.dtype}; this kernel is written for ['float16']"
        return None

    def call_bytes(self, read: Iterable[str]) -> int:
        """`minimal_bytes` of a call that reads only some of the inputs, by name."""
        return self.minimal_bytes

    def traced_contents(self) -> dict[str, np.ndarray]:
        """Integer inputs whose values decide what a kernel executes, for the forecast."""
        return {}

    @property
    def unknown_contents(self) -> tuple[str, ...]:
        """Inputs of which nobody said what they hold, although that may decide what is executed."""
        return ()

    @property
    def forecast_note(self) -> str:
        """What a forecast takes for granted of the inputs, or nothing."""
        return ""

    # What follows.

    @property
    def element_bytes(self) -> int:
        """Bytes of one element."""
        return element_bytes(self.dtype)

    @property
    def buffers(self) -> dict[str, Buffer]:
        """Inputs and outputs by name."""
        return {**self.inputs, **self.outputs}

    @property
    def in_out(self) -> tuple[str, ...]:
        """The buffers that are both."""
        return tuple(name for name in self.outputs if name in self.inputs)

    @property
    def set_bytes(self) -> int:
        """Bytes of one set of buffers, padding included."""
        return sum(one.bytes for one in self.buffers.values())

    @property
    def part_shape(self) -> tuple[int, ...]:
        """How many parts `output` has along each of its axes but the last; none where it is one."""
        return self.output.shape[:-1]

    @property
    def num_parts(self) -> int:
        """How many parts `output` has."""
        return int(np.prod(self.part_shape))

    @property
    def streamed_elements(self) -> int:
        """Elements of `streamed_bytes`."""
        return self.streamed_bytes // self.element_bytes

    @property
    def tolerance(self) -> float:
        """Relative error of one part that is allowed to a kernel which rounds its output alone."""
        return tolerance_of(self.output.dtype)

    def by_output(self, arrays: np.ndarray | Arrays) -> dict[str, np.ndarray]:
        """Contents by output; an array by itself is that of `output`."""
        if isinstance(arrays, np.ndarray):
            return {next(iter(self.outputs)): arrays}
        return {name: arrays[name] for name in self.outputs}

    def compare(
        self,
        out: np.ndarray | Arrays,
        expected: np.ndarray | Arrays,
        tolerance: float | None = None,
    ) -> Comparison:
        """Compare outputs, each by name or the first alone, with the oracle's, part by part.

        ``expected`` is float64, NaN in parts that were not computed. ``tolerance`` is the relative
        error allowed of `output`, None that of its type; another type is allowed in proportion.
        """
        found, wanted = self.by_output(out), self.by_output(expected)
        chosen = self.tolerance if tolerance is None else tolerance
        compared: list[Comparison] = []
        for name, buffer in self.outputs.items():
            if compared and np.isnan(wanted[name]).all() and buffer.elements:
                continue  # of all parts together, and only some were computed
            axes, shape, limit = self.compared_as(buffer, chosen)
            arrays = found[name], wanted[name]
            if arrays[0].shape == arrays[1].shape:
                arrays = arrays[0].reshape(shape), arrays[1].reshape(shape)
            one = compare_output(*arrays, limit, axes)
            compared.append(one if len(self.outputs) == 1 else one.of_output(name))
        return compared[0] if len(compared) == 1 else merge_outputs(compared)

    def compared_as(
        self, buffer: Buffer, tolerance: float
    ) -> tuple[Sequence[str], tuple[int, ...], float]:
        """Names of the axes along which an output is compared, its shape with these, and its limit
        where `output` has this tolerance."""
        limit = tolerance
        if buffer.dtype != self.output.dtype:
            times = tolerance / self.tolerance if self.tolerance else 1.0
            limit = times * tolerance_of(buffer.dtype)
        parts, shape = self.part_shape, buffer.shape
        if parts and shape[:-1] == parts:
            return self.axes, shape, limit
        if not parts:
            axes = (
                self.axes
                if shape == self.output.shape
                else [f"axis {n}" for n in range(len(shape))]
            )
            return axes, shape, limit
        if shape[: len(parts)] == parts:
            merged = (*parts, math.prod(shape[len(parts) :]))
            return (*self.axes[:-1], "element"), merged, limit
        return ("output", "element"), (1, buffer.elements), limit

    def sample_parts(self, count: int, rng: np.random.Generator) -> list[Part]:
        """Parts to check: the first, the last and some drawn ones."""
        shape = self.part_shape
        parts: dict[Part, None] = {tuple(0 for _ in shape): None, tuple(n - 1 for n in shape): None}
        while len(parts) < min(count, self.num_parts):
            parts[tuple(int(rng.integers(n)) for n in shape)] = None
        return list(parts)

    def second_draw(self) -> Self:
        """The same with other inputs, for which an answer to the first is wrong."""
        return self.replace(seed=self.seed + SECOND_DRAW)

    def parts_affordable(self, visits: int = 262144, most: int = 8) -> int:
        """How many parts an oracle in float64 gets through quickly."""
        return int(np.clip(visits // self.part_visits, 2, most))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the short form, such as ``rows:8192,4096/bf16``, or the path of a JSON file; options
        stand in any order, spaces and capitals do not matter. A LabError where it is neither."""
        if text.endswith(".json"):
            return cls.from_dict(_read_json(text, cls))
        name, shape, options = _parts_of(text)
        if name not in ("", cls.operation):
            cls.refuse(repr(text), f"this is read as {cls.operation}")
        parts = [part.strip() for part in shape.split(",")]
        # `int` takes more: signs, underscores, the digits of every alphabet.
        plain = all(re.fullmatch(r"-?[0-9]{1,40}", part) for part in parts)
        numbers = [int(part) for part in parts] if plain else []
        count = _COUNTS[len(cls.shape_fields)]
        if len(numbers) != len(cls.shape_fields):
            plural = "" if count == "one" else "s"
            cls.refuse(repr(text), f"the short form is {count} whole number{plural}: {cls.letters}")
        fields: dict[str, Any] = dict(zip(cls.shape_fields, numbers, strict=True))
        for option in options:
            chosen = cls._read_option(option)
            if chosen is None:
                names = [*cls.options, *(f"{letters}N" for letters in cls.counted)]
                known = ", ".join(f"/{name}" for name in names)
                why = f"{option!r} is no option; behind the {count} numbers may stand {known}"
                cls.refuse(repr(text), why)
            elif set(chosen) & set(fields):
                cls.refuse(repr(text), f"/{option} says again what another option said")
            else:
                fields.update(chosen)
        return cls.from_dict(fields)

    @classmethod
    def _read_option(cls, option: str) -> Mapping[str, Any] | None:
        """The fields that an option of the short form sets, or None where it is none."""
        number = re.fullmatch(r"([a-z]+)([1-9][0-9]{0,17})", option)
        if number and number[1] in cls.counted:
            return {cls.counted[number[1]]: int(number[2])}
        return cls.options.get(option)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of `to_dict`; a LabError where a field is missing or unknown."""
        if not isinstance(data, dict):
            cls.refuse(repr(data), "a JSON workload is an object with named fields")
        fields = {name: value for name, value in data.items() if name != "operation"}
        if data.get("operation", cls.operation) != cls.operation:
            cls.refuse(f"operation {data['operation']!r}", f"this is read as {cls.operation}")
        known = {field.name for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
        unknown = sorted(set(fields) - known)
        missing = sorted(set(cls.shape_fields) - set(fields))
        if unknown or missing:
            cls.refuse(f"fields {sorted(fields)}", f"unknown: {unknown}; missing: {missing}")
        return cls(**fields)

    def smaller(self) -> Iterator[Self]:
        """The problem with half of one size, each of them in turn, where that is one."""
        for name in self.shape_fields:
            with contextlib.suppress(LabError):
                yield self.replace(**{name: max(1, getattr(self, name) // 2)})

    def place(self, name: str, array: np.ndarray) -> tuple[np.ndarray, int]:
        """A buffer of the problem that this one lays out far apart, and where it begins on the
        first axis of this one's: it is the end of it."""
        return array, self.buffers[name].shape[0] - array.shape[0]

    def stretched(self, name: str) -> tuple[Self, Self, Self]:
        """The problem, one whose first axis, a field by name, is twelve times as long, and one
        whose largest buffer of those that grow with it has more than 2^32 elements."""
        rows, twice = getattr(self, name), self.replace(**{name: 2 * getattr(self, name)}).buffers
        most = max(one.elements for key, one in self.buffers.items() if one != twice[key])
        more = -(-(2**32) * rows // most)
        long = 12 * rows + -(-more // TILED_ALIKE) * TILED_ALIKE
        return self, self.replace(**{name: 12 * rows}), self.replace(**{name: long})

    def to_dict(self) -> dict[str, Any]:
        """All fields, as JSON can hold them, and the operation unless it is the default one."""
        fields = dataclasses.fields(self)  # type: ignore[arg-type]
        data = {field.name: getattr(self, field.name) for field in fields}
        if self.operation != DEFAULT_OPERATION:
            data = {"operation": self.operation, **data}
        return data

    def numbers(self) -> dict[str, float]:
        """What can be counted of it, by name, for a rule that is given as data."""
        names = (*self.shape_fields, "element_bytes", "num_parts", "streamed_bytes")
        counted = {name: getattr(self, name) for name in (*names, "minimal_bytes", "flops")}
        return {**counted, "flops_per_byte": self.flops / max(1, self.minimal_bytes)}

    def argument_texts(self) -> list[str]:
        """Its sizes and what a kernel of it is given, as a launch is told of them: without numbers,
        where only its kernels know these."""
        sizes = [f"{name}={getattr(self, name)}" for name in self.shape_fields]
        written, read = self.outputs, self.inputs
        for name, one in {**read, **written}.items():
            role = (":inout" if name in read else ":out") if name in written else ""
            sizes.append(f"{name}={one.dtype}[{','.join(map(str, one.shape))}]{role}")
        return sizes

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed."""
        return dataclasses.replace(self, **changes)  # type: ignore[type-var]

    def short(self) -> str:
        """The shape and the options that are not as usual, without ``/warm``."""
        text = ",".join(str(getattr(self, name)) for name in self.shape_fields)
        if self.operation != DEFAULT_OPERATION:
            text = f"{self.operation}:{text}"
        usual = self._usual()
        for name, fields in self.options.items():
            says = all(getattr(self, field) == value for field, value in fields.items())
            if says and "cache_state" not in fields and any(usual[f] != fields[f] for f in fields):
                text += f"/{name}"
        for letters, field in self.counted.items():
            if getattr(self, field) != usual[field]:
                text += f"/{letters}{getattr(self, field)}"
        return text

    def key(self) -> str:
        """One string that two problems share only if they are the same."""
        return json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))

    def __str__(self) -> str:
        return " ".join([self.short(), *self.remarks()])

    def remarks(self) -> list[str]:
        """What is not as usual and not in the short form, as ``name=value``."""
        in_short = {*self.shape_fields, *self.counted.values()}.union(*self.options.values())
        found = {name: getattr(self, name) for name in self._usual()}
        return [
            f"{name}={found[name]}"
            for name, usual in self._usual().items()
            if found[name] != usual and (name == "cache_state" or name not in in_short)
        ]

    @classmethod
    def _usual(cls) -> dict[str, Any]:
        """The defaults of the fields that have one."""
        fields = dataclasses.fields(cls)  # type: ignore[arg-type]
        return {one.name: one.default for one in fields if one.default is not dataclasses.MISSING}

    @classmethod
    def refuse(cls, what: str, why: str) -> NoReturn:
        """Say that this is no problem of the operation: a LabError."""
        example = f"a workload looks like {cls.example} ({cls.letters})"
        works = f"{example} or is a JSON file with those fields"
        raise LabError(f"This is not a workload: {what}.", f"{why}.", works)

    def check_shape(self) -> None:
        """Refuse a shape that is not whole numbers from 1 to the largest int of a kernel."""
        for name in self.shape_fields:
            value, least = getattr(self, name), int(name not in self.may_be_zero)
            what = f"{name} is {value!r}"
            if not is_whole(value) or value < least:
                self.refuse(what, f"it must be a whole number of at least {least}")
            if value > LARGEST:
                self.refuse(what, f"it must be at most {LARGEST}, an int of a kernel")
            object.__setattr__(self, name, int(value))
        first = self.shape_fields[0]
        if (count := getattr(self, first)) > self.most_rows:
            self.refuse(f"{first} is {count}", f"it must be at most {self.most_rows} by itself")

    def check_size(self) -> None:
        """Refuse buffers that no node has the memory for, an output of endless parts, and a buffer
        that is another one before a launch than after it."""
        for name in self.in_out:
            if self.inputs[name] != self.outputs[name]:
                why = f"it is {self.inputs[name]} before a launch and {self.outputs[name]} after it"
                self.refuse(f"the buffer {name}", why)
        if self.num_parts > MOST_PARTS:
            self.refuse(f"{self.short()} has {self.num_parts} parts", f"{MOST_PARTS} are the most")
        if self.set_bytes > LARGEST_SET:
            why = f"no node has GPUs with more than {LARGEST_SET / 1e9:,.0f} GB"
            self.refuse(f"{self.short()} takes {self.set_bytes / 1e9:,.0f} GB", why)

    def check_kind(self, **choices: Sequence[str]) -> None:
        """Refuse a seed that is no whole number, and a type, distribution, cache state or field of
        ``choices`` that is not among its choices."""
        if not is_whole(self.seed) or self.seed < 0:
            self.refuse(f"seed is {self.seed!r}", "it must be a whole number of at least 0")
        object.__setattr__(self, "seed", int(self.seed))
        usual = {"distribution": self.distributions, "cache_state": CACHE_STATES}
        for name, allowed in {"dtype": DTYPES, **choices, **usual}.items():
            if getattr(self, name) not in allowed:
                self.refuse(f"{name} is {getattr(self, name)!r}", f"it must be one of {allowed}")


def supported(cases: Iterable[P], problem: P, supports: Supports) -> list[P]:
    """Each of the cases once, without those that are refused; the problem itself stays."""
    return [case for case in dict.fromkeys(cases) if case is problem or not supports(case)]


def span(name: str, values: Iterable[int]) -> str:
    """``S 1 to 4113``, or ``D 128`` where there is one value only."""
    found = sorted(set(values))
    return f"{name} {found[0]}" + (f" to {found[-1]}" if len(found) > 1 else "")


def draw_supported(draw: Callable[[], P], count: int, supports: Supports) -> list[P]:
    """Draw problems until ``count`` are supported; of one that is not, fp32 is offered too; a
    LabError where ``supports`` refuses nearly everything."""
    drawn: list[P] = []
    reason = "nothing was drawn"
    for _ in range(1000 * max(1, count)):
        if len(drawn) == count:
            break
        problem = draw()
        for one in (problem, problem.replace(dtype="float32")):
            refusal = supports(one)
            if refusal is None:
                drawn.append(one)
                break
            reason = refusal
    if len(drawn) == count:
        return drawn
    why = f"the others were refused, the last because {reason}"
    raise LabError(
        f"Only {len(drawn)} of {count} problems could be drawn.", why, "a problem of your own"
    )


def is_whole(value: object) -> bool:
    """Whether a value is a whole number; True and False are not."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def kinds_of(cases: Iterable[Problem], *fields: str) -> list[str]:
    """The values that each field has among the cases, such as ``float16, bfloat16``."""
    return [", ".join(dict.fromkeys(str(getattr(one, name)) for one in cases)) for name in fields]


class Operation(ABC, Generic[P, D]):
    """What can be done with problems of one kind: inputs, the answer, and problems to check with;
    one object of it is given to `register_operation`."""

    problem: type[P]
    headline: P  # the problem that is meant when none is named
    small: P  # small enough for the CPU runner
    watched: P  # small enough for a sanitizer, a hundred times slower, and odd
    bytes_name: str  # what `Problem.streamed_bytes` are, in words: rates are said to be of it
    minimal_name: str  # what `Problem.minimal_bytes` are, in words
    folder: str = ""  # of its kernels and of its baselines; none is that of its name
    baseline: str | None = None  # id of the one that a time is held against where none is named
    peers: Sequence[Any] = ()  # the `Baseline`s that a reader's file brings
    # by letter of the shape: where the levels of each size begin, and which ends its tiles have
    starts: ClassVar[Starts] = {}
    ends: ClassVar[Ends] = {}
    # distributions in which every element matters: only in cases of these have two sizes met; where
    # none is named, two sizes and every distribution meet
    telling: ClassVar[tuple[str, ...]] = ()
    # distributions at the ends of what an element type holds: every type has cases of them
    extreme: ClassVar[tuple[str, ...]] = ()

    @property
    def is_ours(self) -> bool:
        """False where a reader wrote it: a kernel is then judged by the reader's reference."""
        return type(self).__module__.startswith("labtools.")

    @property
    def name(self) -> str:
        """As its problems call it."""
        return self.problem.operation

    @abstractmethod
    def draw(self, problem: P) -> D:
        """The inputs of a problem; the same problem gives the same bits."""

    @abstractmethod
    def oracle(self, inputs: D, parts: Iterable[Part] | None = None) -> np.ndarray | Arrays:
        """The output, or several by name, float64; NaN in parts that were not asked for."""

    @abstractmethod
    def battery(self, problem: P, supports: Supports = takes_all) -> list[P]:
        """The given problem, then small ones that cover what it may leave out, without those that
        the kernel refuses through ``supports``."""

    def large(self, problem: P) -> list[P]:
        """Problems of the sizes that models have, of its type: what a kernel launches for them is
        looked at, and not run."""
        return []

    def far_apart(self, problem: P) -> list[tuple[P, ...]]:
        """Small problems of its type, each followed by the same with buffers so long that an index
        of 32 bits does not reach its part of them.

        Where outputs are longer too, one of moderate size stands between: whether blocks at the end
        of a grid write the end of them.
        """
        return []

    def widening(self, problem: P, supports: Supports = takes_all) -> list[tuple[P, str]]:
        """Narrow problems of its type, each with a field that may be any size."""
        return []

    def kinds(self, problem: P) -> list[P]:
        """The problem in every type and layout that problems have, itself first."""
        found = [problem]
        for dtype in DTYPES:
            with contextlib.suppress(LabError):  # a reader's operation may refuse one
                found.append(problem.replace(dtype=dtype))
        return list(dict.fromkeys(found))

    def covered(self, cases: Sequence[P]) -> list[str]:
        """What cases cover, each in a few words such as ``C 1 to 5001``."""
        names = zip(self.problem.letters.split(","), self.problem.shape_fields, strict=True)
        said = [span(letter, [getattr(one, field) for one in cases]) for letter, field in names]
        return said + kinds_of(cases, "distribution", "dtype")

    def levels_of(self, problem: P) -> Levels:
        """What a problem has of each factor whose levels are to meet in pairs in a battery: the
        sizes of its shape, how they end, and unless some are `telling` the kind of its inputs."""
        fields = zip(self.problem.letters.split(","), self.problem.shape_fields, strict=True)
        sizes = {name: getattr(problem, field) for name, field in fields}
        values = {} if self.telling else {"values": problem.distribution}
        return {**size_levels(sizes, self.starts, self.ends), **values}

    def tells(self, problem: P) -> bool:
        """Whether a problem counts in what meets in pairs."""
        return not self.telling or problem.distribution in self.telling

    @abstractmethod
    def draw_problems(self, count: int, seed: int, supports: Supports = takes_all) -> list[P]:
        """Seeded random problems, small to medium, of every kind that a kernel takes; a LabError
        where ``supports`` refuses nearly everything."""

    @abstractmethod
    def read_part(self, problem: P, part: Part, fetch: Fetch) -> D:
        """The inputs of one part as a problem of its own, from buffers that lie elsewhere."""

    @abstractmethod
    def alter_part(self, problem: P, part: Part, fetch: Fetch, store: Store, rng: Rng) -> None:
        """Change a few elements of the inputs, at places drawn anew, so that a part's answer is
        another one by far: an answer that was kept, or looked up by some of the inputs, is wrong.
        """

    def alter(self, inputs: D, rng: Rng) -> dict[str, np.ndarray]:
        """The buffers that `alter_part` changes, after it did so for every part."""
        arrays = inputs.buffers()
        changed: dict[str, np.ndarray] = {}

        def fetch(name: str, index: Any) -> np.ndarray:
            return changed.get(name, arrays[name])[index]  # type: ignore[no-any-return]

        def store(name: str, index: Any, array: np.ndarray) -> None:
            if name not in changed:
                changed[name] = arrays[name].copy()
            changed[name][index] = array

        for part in np.ndindex(*inputs.problem.part_shape):
            self.alter_part(inputs.problem, part, fetch, store, rng)
        return changed

    def fills(self, problem: P, seed: int) -> list[Fill] | None:
        """How a GPU makes normal inputs itself, with a ``seed`` in place of the problem's; None
        where the CPU draws them, whatever their size."""
        return None

    def stored(self, inputs: D, scheme: Any, like: tuple[D, D] | None = None) -> D:
        """The inputs as a rung computes with them that keeps them in a `StoredAs`; ``like`` are
        others of the same problem and what this gave for them."""
        raise NotImplementedError(f"{self.name} has no such schemes")

    def check_scheme(self, rung: str, scheme: Any) -> None:
        """Refuse a scheme that no part can be checked by itself with."""

    def read_scheme(self, data: Mapping[str, Any]) -> Any:
        """The scheme whose fields these are."""
        raise NotImplementedError(f"{self.name} has no such schemes")

    def errors_of_scheme(self, problem: P, keeps: Any) -> Mapping[str, float]:
        """The error that comes from keeping the inputs in few bits alone, by kind of inputs;
        ``keeps`` None is what the libraries with few bits keep."""
        raise NotImplementedError(f"{self.name} has no such schemes")

    def other_values(self, problem: P, kinds: Iterable[str] = ()) -> list[tuple[str, Any]]:
        """Inputs of one problem of the battery with numbers that no scheme could keep, each with
        what is then said of them; of an operation that is not ours, those of some kinds."""
        return []

    def expect(
        self, inputs: D, scheme: StoredAs | None = None, parts: Iterable[Part] | None = None
    ) -> dict[str, np.ndarray]:
        """`oracle` by output of what a rung computes with; ``scheme`` None is the inputs as they
        are."""
        given = inputs if scheme is None else self.stored(inputs, scheme)
        return inputs.problem.by_output(self.oracle(given, parts))  # type: ignore[no-any-return]

    def expect_alike(
        self, inputs: Sequence[D], scheme: StoredAs | None = None
    ) -> list[dict[str, np.ndarray]]:
        """`expect` of inputs of one problem that differ in few places, which are stored as often
        as they differ."""
        if scheme is None:
            return [self.expect(one) for one in inputs]
        first = self.stored(inputs[0], scheme)
        known = (inputs[0], first)
        others = (self.stored(one, scheme, known) for one in inputs[1:])
        return [self.expect(one) for one in (first, *others)]

    def expect_parts(
        self, problem: P, parts: Iterable[Part], fetch: Fetch, scheme: StoredAs | None = None
    ) -> dict[str, np.ndarray]:
        """`expect` of some parts of buffers that lie elsewhere, which `read_part` reads; an output
        of all parts together is NaN."""
        read = ((part, self.read_part(problem, part, fetch)) for part in parts)
        return self.join_parts(problem, ((part, self.expect(one, scheme)) for part, one in read))

    def join_parts(
        self, problem: P, answers: Iterable[tuple[Part, Arrays]]
    ) -> dict[str, np.ndarray]:
        """The outputs of a problem, float64, of what `expect` says of some parts, each by itself;
        NaN in the others."""
        expected = {name: np.full(one.shape, np.nan) for name, one in problem.outputs.items()}
        for part, found in answers:
            for name, array in expected.items():
                if array.shape[: len(part)] == problem.part_shape:
                    if found[name].size != array[part].size:
                        what = f"The reference of {self.name} has no answer for one part."
                        why = f"for {part} it gives {found[name].size} elements of {name}"
                        raise KernelError(what, why, "a read_part that reads what one part needs")
                    array[part] = found[name].reshape(array.shape[len(part) :])
        return expected


_OPERATIONS: dict[str, Operation[Any, Any]] = {}


def register_operation(operation: Operation[Any, Any]) -> None:
    """Make an operation known by its name; the same name again replaces it."""
    _OPERATIONS[operation.name] = operation


def operations() -> dict[str, Operation[Any, Any]]:
    """Every known operation by name."""
    return dict(_OPERATIONS)


MOST_NAMED = 12
"""So many operations a message names: a process may have read many files that bring their own."""


def operation_of(what: Problem | str) -> Operation[Any, Any]:
    """The operation of a problem, or of a name; a LabError where there is none of that name."""
    name = what if isinstance(what, str) else what.operation
    if name not in _OPERATIONS:
        named, more = list(_OPERATIONS)[:MOST_NAMED], len(_OPERATIONS) - MOST_NAMED
        known = f"the operations are {', '.join(named)}" + (f" and {more} more" if more > 0 else "")
        works = f"name one of them; a workload without a name is of {DEFAULT_OPERATION}"
        raise LabError(f"There is no operation {name!r}.", known, works)
    return _OPERATIONS[name]


def kernels_folder(operation: str) -> str:
    """The folder of an operation's kernels; another folder's own name is what is given."""
    known = _OPERATIONS.get(operation)
    return (known.folder if known else "") or operation


def parse_problem(text: str) -> Problem:
    """Read a short form of any operation (``NAME:...``, without a name `DEFAULT_OPERATION`), or the
    path of a JSON file; a LabError where it is neither, or there is no such operation."""
    if text.endswith(".json"):
        return problem_from_dict(_read_json(text, operation_of(DEFAULT_OPERATION).problem))
    kind = operation_of(_parts_of(text)[0] or DEFAULT_OPERATION).problem
    return kind.parse(text)  # type: ignore[no-any-return]


def _parts_of(text: str) -> tuple[str, str, list[str]]:
    """(operation's name or nothing, shape, options) of a short form, in small letters."""
    shape, *options = [part.strip() for part in text.lower().split("/")]
    name, colon, rest = shape.rpartition(":")
    if colon and not name.strip():
        rest = shape  # a colon without a name before it is part of what is refused
    return name.strip(), rest, options


def problem_from_dict(data: Mapping[str, Any]) -> Problem:
    """The problem that `Problem.to_dict` wrote, of any operation.
    A LabError where it is none."""
    name = data.get("operation", DEFAULT_OPERATION) if isinstance(data, dict) else DEFAULT_OPERATION
    return operation_of(str(name)).problem.from_dict(data)  # type: ignore[no-any-return]


def scheme_to_dict(scheme: StoredAs) -> dict[str, Any]:
    """A scheme as JSON can hold it: its fields, and the operation."""
    return {"operation": scheme.operation, **dataclasses.asdict(scheme)}  # type: ignore[call-overload]


def scheme_from_dict(data: Mapping[str, Any]) -> StoredAs:
    """The inverse of `scheme_to_dict`."""
    fields = {name: value for name, value in data.items() if name != "operation"}
    return operation_of(data["operation"]).read_scheme(fields)  # type: ignore[no-any-return]


def _read_json(path: str, kind: type[Problem]) -> Any:
    try:
        return json.loads(read_given(given_path(path)))
    except (OSError, ValueError, RecursionError) as error:
        kind.refuse(f"the file {path}", f"it could not be read as JSON: {error}")
