"""A problem told by its arguments and a function that says the answer: what a reader writes in ten
lines. Inputs, battery, tolerance and floors follow from the two.

The distributions, of the last axis of inputs that are no integers:

``normal``       standard normal, or uniform where a range is given.
``late_peaked``  the last elements are the largest, so a kernel that drops them is far off.
``early_peaked`` the first elements are the largest.
``outliers``     some are 16 times as large.
``large``        around 100, past what a float32 holds of exp(x).
``tiny``         below 10^-3.
``negative``     below zero.
``equal``        often equal to others.
``constant``     all the same.

Integers are uniform in their range; in ``tiny`` all are its least, in ``large`` its largest, and in
``constant`` the same.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from .baseline import Baseline
from .compare import MOST_ROUNDED, ROUNDED, largest_change, tolerance_of
from .errors import LabError
from .launched import (
    LaunchArgument,
    LaunchesOf,
    asked_launch,
    launch_fields,
    read_arguments,
    sizes_of,
    with_number,
)
from .pairs import TILE_ENDS, Levels, case_cost, in_turn, joint_cases, size_levels
from .problem import (
    DTYPES,
    LARGEST,
    MOST_ROWS,
    SHORT_DTYPES,
    VISIT,
    WARM,
    Arrays,
    Buffer,
    Fetch,
    Fill,
    HeldInputs,
    Operation,
    Part,
    Problem,
    Rng,
    Store,
    Supports,
    operation_of,
    operations,
    register_operation,
    supported,
    takes_all,
)
from .rung import Rung, load_by_path, say_failure
from .storage import element_dtype, largest_of

_NAME = re.compile(r"([a-z][a-z0-9_]*):([A-Za-z]\w*(?:,[A-Za-z]\w*)*)")
_BUFFER = re.compile(r"(\w+)\[([^\]]*)\](:(?:in|out|inout|part))?(=.+)?")
_RANGE = re.compile(r"=(?:arange|uniform:((?:[^,()]|\([^()]*\))+),(.+))")
_ABOUT_BLOCKS = tuple(2**power + more for power in range(5, 11) for more in (-1, 0, 1))
"""Below, at and above what a warp or a block takes at a time: of each size there is a case."""
_CHOSEN_SIZES = (
    *(1, 2, 5, 7, 8, 15, 16, 17, 48, 100, 200, 300, 770, 1000, 2049, 4099),
    *_ABOUT_BLOCKS,
)
_OF_FLOATS = ("normal", "late_peaked", "early_peaked", "outliers", "large", "tiny", "negative")
_WITH_TIES = ("equal", "constant")
_OF_INTEGERS = ("normal", "constant", "large", "tiny")
_PEAK, _OUTLIER, _LARGE, _TINY, _TINY_IN_8_BITS = 30.0, 16.0, 100.0, 2.0**-10, 2.0**-4
_WIDE_RANGE = 2**15
"""Of integers of 32 and 64 bits without a range, to either side."""
_MOST_CASE_ELEMENTS, _MOST_CASE_FLOPS = 2**17, 2**23
_MOST_DRAWN, _MOST_SMALL, _MOST_WATCHED = 2**15, 2**16, 2**11
_MOST_PERTURBED = 2**20  # elements of a problem whose answer is looked at for its tolerance
_MOST_TRACED = 2**24  # integers that a forecast is given
_ROOM, _MOST_DRAWS = 16.0, 8
_MOST_CONDITION = 1e-3  # tolerance above which inputs tell too little to be in a battery


@dataclass(frozen=True)
class _Told:
    """One argument as it is told."""

    name: str
    text: str  # as a launch is told of it, without a range
    shape: str  # of a buffer; "" of a number
    range: str = ""  # ``=arange`` or ``=uniform:LO,HI``, or nothing


class ReferenceProblem(Problem):
    """A problem of `from_reference`: its sizes by name. An output whose parts are rows has the
    shape ``[rows, elements of a row]``."""

    of: ClassVar[ReferenceOperation]

    def __post_init__(self) -> None:
        self.check_shape()
        self.check_kind(dtype=(self.of.dtype,))
        self.check_size()

    @property
    def sizes(self) -> tuple[int, ...]:
        """In the order of the short form."""
        return tuple(getattr(self, name) for name in self.shape_fields)

    @property
    def named_sizes(self) -> dict[str, int]:
        """By name."""
        return dict(zip(self.shape_fields, self.sizes, strict=True))

    @property
    def arguments(self) -> tuple[LaunchArgument, ...]:
        """The sizes, and the kernel's arguments in their order."""
        return self.of.arguments(self.sizes)

    def of_roles(self, *roles: str) -> dict[str, LaunchArgument]:
        """The buffers with one of `ROLES`, by name."""
        given = (one for one in self.arguments if one.shape is not None)
        return {one.name: one for one in given if one.role in roles}

    def _buffers_of(self, *roles: str) -> dict[str, Buffer]:
        found = {}
        for name, one in self.of_roles(*roles).items():
            shape = one.shape or ()
            if self.of.rows and one.role != "in" and self.of.has_rows(name):
                shape = (shape[0], math.prod(shape[1:]))
            found[name] = Buffer(shape, one.dtype)
        return found

    @property
    def inputs(self) -> dict[str, Buffer]:
        return self._buffers_of("in", "part", "inout")

    @property
    def outputs(self) -> dict[str, Buffer]:
        return self._buffers_of("out", "inout")

    @property
    def output(self) -> Buffer:
        return next(iter(self.outputs.values()))

    @property
    def part_shape(self) -> tuple[int, ...]:
        return self.output.shape[:1] if self.of.rows else ()

    @property
    def minimal_bytes(self) -> int:
        """As they are told, else every input and every output once, but for inputs that are read in
        part."""
        if self.of.least_bytes:
            return max(1, sizes_of(self.of.least_bytes, self.named_sizes, least=0)[0])
        moved = [*self._buffers_of("in", "inout").values(), *self.outputs.values()]
        return max(1, sum(one.bytes for one in moved))

    @property
    def streamed_bytes(self) -> int:
        """The same."""
        return self.minimal_bytes

    @property
    def read_in_part(self) -> tuple[str, ...]:
        return () if self.of.least_bytes else tuple(self.of_roles("part"))

    @property
    def _elements(self) -> int:
        return sum(one.elements for one in self.buffers.values())

    @property
    def flops(self) -> int:
        """As they are told, else one for each element of the inputs."""
        if self.of.flops:
            return max(1, sizes_of(self.of.flops, self.named_sizes, least=0)[0])
        return max(1, sum(one.elements for one in self.inputs.values()))

    @property
    def part_visits(self) -> int:
        return max(1, -(-max(self._elements, self.flops // 2) // (VISIT * max(1, self.num_parts))))

    @property
    def sum_length(self) -> int:
        """Elements that come together in one of an output, about."""
        read = sum(one.elements for one in self.inputs.values())
        written = sum(one.elements for one in self.outputs.values())
        return max(1, max(read, self.flops // 2) // max(1, written))

    @property
    def tolerance(self) -> float:
        """As it is told; else that of the output's type, and where more, what rounding in float32
        does to the answer for these inputs, as often as the square root of the elements that come
        together; of equal ones half as often as there are."""
        return self.of.tolerance_for(self)

    def defines(self) -> dict[str, str]:
        """None: its arguments have their types."""
        return {}

    def usual_refusal(self) -> None:
        """Nothing: a kernel is written for these arguments."""

    def argument_texts(self) -> list[str]:
        return [str(one) for one in self.arguments]

    def traced_contents(self) -> dict[str, np.ndarray]:
        """Integers, where they are not many."""
        whole = sum(one.elements for one in self.inputs.values() if "int" in one.dtype)
        return self.of.draw_integers(self) if whole <= _MOST_TRACED else {}


class ReferenceOperation(Operation[Any, HeldInputs]):
    """What `from_reference` makes."""

    is_ours = False

    def __init__(
        self,
        name: str,
        sizes: Sequence[tuple[int, ...]],
        letters: Sequence[str],
        told: Sequence[_Told],
        reference: Callable[..., Any],
        rows: str,
        flops: str,
        tolerance: float | None,
        least_bytes: str,
    ) -> None:
        self._letters, self._told = letters, {one.name: one for one in told}
        self._reference, self.rows, self.flops = reference, rows, flops
        self.least_bytes = least_bytes
        self._tolerance = tolerance
        self._asked, self.in_torch = _parameters_of(name, reference, [*self._told, *letters])
        self.arguments = lru_cache(maxsize=4096)(self._read)
        try:
            read = [self.arguments(one) for one in sizes]
        except LabError as error:
            raise _no_problem(name, error.clause) from error
        if not any(one.role in ("out", "inout") for one in read[0]):
            raise _no_problem(name, "no argument is marked as written, with :out or :inout")
        if inside := [one for one in read[0] if one.role == "struct"]:
            raise _no_problem(name, f"{inside[0].name} is a structure, which only a launch has")
        self._check_rows(name)
        # buffers whose first axis is computed of the rows, which one row needs all the same
        self._whole = {
            one.name
            for one in told
            if rows and not self.has_rows(one.name) and re.search(rf"\b{rows}\b", one.shape)
        }
        floats = [one for one in read[0] if one.shape is not None and "int" not in one.dtype]
        written = sorted(floats, key=lambda one: one.role not in ("out", "inout"))
        self.dtype = next((one.dtype for one in written if one.dtype in DTYPES), "float32")
        self.problem = self._make_class(name, sizes, read[0])
        self.bounded = [one.name for one in told if one.range]
        self.bytes_name = "what a call moves at least"
        if not least_bytes:
            part = " and ".join(one.name for one in read[0] if one.role == "part")
            without = f", without {part}, of which a part is read" if part else ""
            self.bytes_name = f"inputs and outputs, each once{without}"
        self.minimal_name = self.bytes_name
        try:
            made = sorted((self.problem(*one) for one in sizes), key=lambda one: one.set_bytes)
        except LabError as error:
            raise _no_problem(name, error.clause) from error
        few = [one for one in made if 0 < one._elements <= _MOST_SMALL] or made[:1]
        self.headline, self.small = made[-1], self._clipped(few[-1], _MOST_SMALL)
        self.watched = self._clipped(few[0], _MOST_WATCHED, 70)
        self.given = made
        self.rounding = lru_cache(maxsize=4096)(self._rounding)
        self.chosen_draw = lru_cache(maxsize=4096)(self._choose_draw)
        register_operation(self)

    def _make_class(
        self, name: str, sizes: Sequence[tuple[int, ...]], read: Sequence[LaunchArgument]
    ) -> Any:
        buffers = {one.name: one for one in read if one.shape is not None}
        outputs = [one for one in buffers.values() if one.role in ("out", "inout")]
        inputs = [one for one in buffers.values() if one.role != "out"]
        kinds: tuple[str, ...] = _OF_INTEGERS
        if any("int" not in one.dtype for one in inputs):
            with_ties = not any("int" in one.dtype for one in outputs)
            kinds = _OF_FLOATS + _WITH_TIES * with_ties
        dims = len(outputs[0].shape or ())
        axes = tuple(f"axis {place}" for place in range(dims)) if dims != 2 else ("row", "column")
        usual = {"dtype": self.dtype, "distribution": "normal", "seed": 0, "cache_state": "cold"}
        fields: list[Any] = [(one, int) for one in self._letters]
        fields += [
            (one, type(value), dataclasses.field(default=value)) for one, value in usual.items()
        ]
        short = {key: one for key, one in SHORT_DTYPES.items() if one["dtype"] == self.dtype}
        known = {
            "of": self,
            "operation": name,
            "shape_fields": tuple(self._letters),
            "may_be_zero": tuple(
                letter for letter, *tried in zip(self._letters, *sizes, strict=True) if 0 in tried
            ),
            "most_rows": MOST_ROWS if self.rows else LARGEST,
            "letters": ",".join(self._letters),
            "options": {**short, **WARM},
            "example": f"{name}:{','.join(map(str, sizes[0]))}",
            "distributions": kinds,
            "axes": ("row", "element") if self.rows else axes,
        }
        title = name.title().replace("_", "")
        return dataclasses.make_dataclass(
            title, fields, bases=(ReferenceProblem,), frozen=True, namespace=known
        )

    def _check_rows(self, name: str) -> None:
        """Refuse rows that are no first axis."""
        if not self.rows:
            return
        shapes = {one.name: one.shape.split(",") for one in self._told.values() if one.shape}
        word = re.compile(rf"\b{self.rows}\b")
        inner = [key for key, dims in shapes.items() if word.search(",".join(dims[1:]))]
        first = next(one for one in self._told.values() if re.search(":(in)?out", one.text))
        if inner or not self.has_rows(first.name):
            why = f"rows={self.rows!r} is the first axis of the first output, and no other axis"
            raise _no_problem(name, f"{why}, as it is in {(inner or [first.name])[0]}")

    def has_rows(self, name: str) -> bool:
        """Whether the first axis of a buffer are the rows."""
        return self._told[name].shape.split(",")[0].strip() == self.rows

    def _read(self, sizes: tuple[int, ...]) -> tuple[LaunchArgument, ...]:
        numbers = dict(zip(self._letters, sizes, strict=True))
        texts = [f"{name}={value}" for name, value in numbers.items()]
        for one in self._told.values():
            texts.append(f"{one.name}={with_number(one.text, numbers)}")
        return read_arguments(texts, least=0)

    def _clipped(self, problem: Any, most: int, size: int = LARGEST) -> Any:
        """A problem with at most so many elements."""
        with contextlib.suppress(LabError):
            sizes = problem.sizes
            if problem._elements > most and size < LARGEST:
                sizes = [
                    min(n, 5 if name == self.rows else size)
                    for name, n in problem.named_sizes.items()
                ]
            while sum(sizes) > len(sizes) and self.problem(*sizes)._elements > most:
                place = int(np.argmax(sizes))
                sizes = [n // 2 if at == place else n for at, n in enumerate(sizes)]
            return self.problem(*sizes)
        return problem

    def levels_of(self, problem: Any) -> Levels:
        ends = dict.fromkeys(self._letters, TILE_ENDS)
        return {**size_levels(problem.named_sizes, {}, ends), "values": problem.distribution}

    # Inputs.

    def draw(self, problem: Any) -> HeldInputs:
        """Of a small problem the first of a few draws whose answer the outputs' types hold."""
        return self._draw(problem, self.chosen_draw(problem))

    def _choose_draw(self, problem: Any) -> int:
        if _is_small(problem):
            for turn in range(_MOST_DRAWS):
                with contextlib.suppress(LabError):
                    answer = self._answer(problem, self._draw(problem, turn).arrays)
                    if not self._lost_by_types(problem, answer, 0.0):
                        return turn
        return 0

    def _draw(self, problem: Any, turn: int) -> HeldInputs:
        rng = np.random.default_rng([problem.seed, *problem.sizes, *([turn] if turn else [])])
        whole = self.draw_integers(problem)
        arrays = {}
        for name, buffer in problem.inputs.items():
            arrays[name] = whole[name] if name in whole else self._floats(problem, name, rng)
            arrays[name] = arrays[name].reshape(buffer.shape)
        return HeldInputs(problem, arrays)

    def draw_integers(self, problem: Any) -> dict[str, np.ndarray]:
        """Each by a generator of its own."""
        return {
            name: self._integers(problem, name, [problem.seed, *problem.sizes, place, 1])
            for place, (name, one) in enumerate(problem.inputs.items())
            if "int" in one.dtype
        }

    def _ends_of(self, problem: Any, name: str) -> tuple[float, float] | None:
        """The range of an input, from its first number up to its second one; None without."""
        found = _RANGE.fullmatch(self._told[name].range)
        if found is None or found[1] is None:
            return None
        low, high = (_value_of(text, problem.named_sizes) for text in found.groups())
        return low, high

    def _integers(self, problem: Any, name: str, seed: Sequence[int]) -> np.ndarray:
        one, rng = problem.inputs[name], np.random.default_rng(seed)
        dtype, shape = element_dtype(one.dtype), one.shape
        if self._told[name].range == "=arange":
            return np.arange(math.prod(shape)).astype(dtype).reshape(shape)
        held = np.iinfo(dtype)
        most = 2**64 if dtype.itemsize < 4 else _WIDE_RANGE
        usual = max(held.min, -most), min(held.max, most - 1) + 1
        low, high = map(int, self._ends_of(problem, name) or usual)
        if not math.prod(shape):
            return np.zeros(shape, dtype)
        if low >= high or low < held.min or high - 1 > held.max:
            why = f"{low} up to {high} is no range of {dtype}"
            raise LabError(f"{problem} has no contents of {name}.", why, "other sizes, or a range")
        if problem.distribution in ("tiny", "large"):
            return np.full(shape, low if problem.distribution == "tiny" else high - 1, dtype)
        values = rng.integers(low, high, shape, dtype)
        if problem.distribution == "constant":
            values[...] = values.flat[0]
        return values

    def _floats(self, problem: Any, name: str, rng: Rng) -> np.ndarray:
        one, ends = problem.of_roles("in", "part", "inout")[name], self._ends_of(problem, name)
        dtype, shape = element_dtype(one.dtype), one.shape
        if ends is None:
            values = rng.standard_normal(shape, np.float32)
        else:
            values = rng.random(shape, np.float32)
        if values.size:
            (_shape_within if ends else _shape_values)(values, problem.distribution, rng)
            if dtype.itemsize == 1 and problem.distribution == "tiny" and not ends:
                values *= _TINY_IN_8_BITS / _TINY
        if ends is not None:
            return (ends[0] + (ends[1] - ends[0]) * values.astype(np.float64)).astype(dtype)
        most = largest_of(dtype) / 2
        return np.clip(values, -most, most).astype(dtype)

    def fills(self, problem: Any, seed: int) -> list[Fill] | None:
        """Normal numbers, two at a time, and integers; None where something else is drawn."""
        whole = self.draw_integers(problem.replace(seed=seed))
        found = [Fill(name, array) for name, array in whole.items()]
        for place, (name, one) in enumerate(problem.inputs.items()):
            if name in whole:
                continue
            if one.dtype not in DTYPES or one.elements % 2 or name in self.bounded:
                return None
            found.append(Fill(name, seed=seed + place * 1_000_003))
        return found

    # The answer.

    def oracle(self, inputs: HeldInputs, parts: Iterable[Part] | None = None) -> Arrays:
        problem, arrays = inputs.problem, inputs.arrays
        if not self.rows or parts is None:
            return self._answer(problem, arrays)
        chosen = sorted({part[0] for part in parts})
        found = {name: np.full(one.shape, np.nan) for name, one in problem.outputs.items()}
        if chosen:
            some = {
                name: one[chosen] if self.has_rows(name) else one for name, one in arrays.items()
            }
            answer = self._answer(problem.replace(**{self.rows: len(chosen)}), some)
            for name, one in answer.items():
                if self.has_rows(name):
                    found[name][chosen] = one
        return found

    def _answer(self, problem: Any, arrays: Arrays) -> dict[str, np.ndarray]:
        """What the reference says, float64 in the shapes of the outputs."""
        asked = {one.name: one for one in problem.arguments}
        given: dict[str, Any] = {}
        for name in self._asked:
            one = asked[name]
            if one.shape is None:
                given[name] = element_dtype(one.dtype).type(one.value).item()
                continue
            array = arrays[name]
            if name not in self._whole:
                array = array.reshape(one.shape)
            whole = array.dtype.kind in "iu"
            kept = np.dtype(np.uint64) if array.dtype == np.uint64 else np.dtype(np.int64)
            given[name] = array.astype(kept if whole else np.float64)
            given[name].flags.writeable = self.in_torch
        try:
            found = self._ask(given)
        except LabError:
            raise
        except Exception as error:
            raise LabError(
                f"The reference of {self.name} fails on {problem}.",
                say_failure(error),
                "a reference that takes arrays of these sizes and makes new ones: it may write "
                "into none of those that it is given",
            ) from error
        return self._checked(problem, found)

    def _ask(self, given: dict[str, Any]) -> Any:
        if not self.in_torch:
            with np.errstate(all="ignore"):
                return self._reference(**given)
        import torch

        arrays = {name: one for name, one in given.items() if isinstance(one, np.ndarray)}
        tensors = {name: torch.from_numpy(one.copy()) for name, one in arrays.items()}
        found = self._reference(torch, **{**given, **tensors})
        if not isinstance(found, (tuple, list, Mapping)):
            found = (found,)
        for name, one in arrays.items():
            if not np.array_equal(tensors[name].numpy(), one, equal_nan=True):
                raise ValueError(f"it writes into its input {name}")
        named = found.items() if isinstance(found, Mapping) else enumerate(found)
        wide = {
            name: (one.double() if one.is_floating_point() else one).detach().numpy()
            for name, one in named
        }
        return wide if isinstance(found, Mapping) else tuple(wide.values())

    def _checked(self, problem: Any, found: Any) -> dict[str, np.ndarray]:
        """The answer by output, refused where it is not of the declared form."""
        outputs = problem.of_roles("out", "inout")
        if not isinstance(found, (Mapping, tuple, list)):
            found = (found,)
        answers = found if isinstance(found, Mapping) else dict(zip(outputs, found, strict=False))
        if {*answers} != {*outputs} or len(found) != len(outputs):
            raise self._wrong_form(
                f"it gives {len(found)} outputs", f"{', '.join(outputs)} in order"
            )
        wide = {}
        for name, one in outputs.items():
            array = np.asarray(answers[name])
            if array.shape != one.shape and not array.size == math.prod(one.shape or ()) == 1:
                raise self._wrong_form(f"{name} is {array.shape} on {problem}", f"{one.shape}")
            kind = array.dtype.kind
            if kind == "f" and "int" in one.dtype and (array == np.rint(array)).all():
                kind = "i"
            if kind not in ("iub" if "int" in one.dtype else "fiub"):
                raise self._wrong_form(f"{name} is {array.dtype}", f"numbers for {one.dtype}")
            wide[name] = array.astype(np.float64).reshape(problem.outputs[name].shape)
            most = largest_of(element_dtype(one.dtype))
            held = np.abs(wide[name]) <= most  # False of NaN too
            if not held.all():
                raise LabError(
                    f"The reference of {self.name} has no answer for {problem}.",
                    f"{int((~held).sum())} elements of {name} are not finite, or past {most:g}, "
                    f"the largest {one.dtype}, with inputs of the kind {problem.distribution}",
                    "another reference, or a range of the inputs, such as x=f32[N]=uniform:0.1,1",
                )
        return wide

    def _wrong_form(self, what: str, wanted: str) -> LabError:
        why = f"{what}, and the arguments say {wanted}"
        return LabError(
            f"The reference of {self.name} gives another form than its outputs have.",
            why,
            "a reference that gives each output as its argument says, several as a tuple",
        )

    def torch_call(self, tensors: Mapping[str, Any], problem: Any) -> Callable[[], Any]:
        """A call of a reference of torch with tensors of the inputs, by name."""
        import torch

        mine = self.problem.from_dict(problem.to_dict())
        asked = {one.name: one for one in mine.arguments if one.name in self._asked}
        given = {
            name: one.value if one.shape is None else tensors[name].reshape(one.shape)
            for name, one in asked.items()
        }

        def call() -> Any:
            found = self._reference(torch, **given)
            if isinstance(found, Mapping):
                return tuple(found[name] for name in mine.outputs)
            return tuple(found) if isinstance(found, (tuple, list)) else found

        return call

    # Tolerance.

    def tolerance_for(self, problem: Any) -> float:
        """`ReferenceProblem.tolerance`."""
        least = tolerance_of(problem.output.dtype)
        if self._tolerance is not None:
            return self._tolerance
        if not least or problem.output.dtype == "float64":
            return least
        return max(least, float(f"{self.rounding(problem):.1g}"))

    def _rounding(self, problem: Any) -> float:
        moved = ROUNDED
        if problem._elements <= _MOST_PERTURBED:
            with contextlib.suppress(LabError):
                moved = max(moved, self._change_of(problem))
        length = problem.sum_length
        if self._gathers:
            rows = [one.shape[-1] for one in problem.inputs.values() if one.shape]
            length = max(length, *rows)
        # Equal terms, added one after the other, are all rounded to the same side.
        alike = problem.distribution == "constant"
        return moved * max(MOST_ROUNDED, length / 2 if alike else math.sqrt(length))

    @cached_property
    def _gathers(self) -> bool:
        """Whether the last element of an output's row follows from the first of an input's: then
        the elements of a whole row come together in it."""
        problem = self.small.replace(distribution="normal")
        with contextlib.suppress(LabError):
            arrays = self.draw(problem).arrays
            other = {name: _first_moved(one) for name, one in arrays.items()}
            answers = self._answer(problem, arrays), self._answer(problem, other)
            ends = [[one[name][..., -1:] for one in answers] for name in answers[0]]
            return any(one.size and (one != changed).any() for one, changed in ends)
        return False

    def _change_of(self, problem: Any) -> float:
        """By how much the answer changes when the inputs do by what float32 rounds."""
        inputs, rng = self.draw(problem).arrays, np.random.default_rng(problem.seed)
        near = {
            name: one if one.dtype.kind in "iu" else _moved(one, ROUNDED, rng)
            for name, one in inputs.items()
        }
        return self._difference(problem, *(self._answer(problem, one) for one in (inputs, near)))

    def _cancels(self, problem: Any, inputs: Arrays, answer: Arrays, limit: float) -> bool:
        """Whether the terms of an answer cancel so far that a right kernel may be off by more than
        the limit: one that rounds weights to the type of the values that it weighs, as tensor cores
        take them. Such values are inputs in which the answer is linear."""
        rng = np.random.default_rng(problem.seed)
        for name, one in inputs.items():
            if (
                one.dtype.itemsize > 2
                or one.dtype.kind in "iu"
                or problem._elements > _MOST_PERTURBED
            ):
                continue
            doubled = self._answer(problem, {**inputs, name: 2 * one.astype(np.float64)})
            twice = {of: 2 * found for of, found in answer.items()}
            if self._difference(problem, twice, doubled) > ROUNDED:
                continue
            after_one = (np.ones(1, one.dtype).view(f"u{one.dtype.itemsize}") + 1).view(one.dtype)
            rounds = (float(after_one[0]) - 1) / 2
            near = self._answer(problem, {**inputs, name: _moved(one, rounds, rng)})
            most = max(limit, tolerance_of(one.dtype.name))
            if self._difference(problem, answer, near) > most:
                return True
        return False

    @staticmethod
    def _difference(problem: Any, expected: Arrays, other: Arrays) -> float:
        floats = [name for name, one in problem.outputs.items() if "int" not in one.dtype]
        return max((largest_change(expected[name], other[name]) for name in floats), default=0.0)

    # Problems.

    def battery(self, problem: Any, supports: Supports = takes_all) -> list[Any]:
        """The given problem, its author's small ones, and such that every two levels of sizes and
        kinds meet; without those for which the reference says no answer, or one that rounding
        changes too much to tell a right kernel from a wrong one."""
        self.check_reference(problem)
        small = problem.replace(seed=problem.seed + 1, distribution="normal")

        def make(distribution: str, **sizes: int) -> Any:
            one = small.replace(distribution=distribution, **sizes)
            return one if _is_small(one) else None

        def refuses(one: Any) -> str | None:
            return supports(one) or self._why_left_out(one)

        kinds = problem.distributions
        base = next((one for one in (*self.given, problem) if not supports(one)), problem)
        base = base.replace(seed=small.seed)
        choices = {name: self._taken(name, base, supports) for name in self._letters}
        cases = joint_cases(
            make,
            {**choices, "distribution": kinds},
            self.levels_of,
            lambda one: case_cost(one.visits, one.sizes[-1]),
            refuses,
        )
        few = small.replace(**{x: min(n, 9) for x, n in self.watched.named_sizes.items()})
        few = base if supports(few) else few
        ends = [(name, size) for name in choices for size in _ABOUT_BLOCKS if size in choices[name]]
        ends += [(name, 0) for name in problem.may_be_zero]
        with contextlib.suppress(LabError):
            about = [few.replace(**{name: size}) for name, size in ends]
            about = [one for one in about if _is_small(one)]
            cases += [one for one in in_turn(about, kinds, refuses) if not refuses(one)]
        own = [one.replace(seed=small.seed) for one in self.given if _is_small(one)]
        return supported([problem, *own, *cases], problem, supports)

    def _taken(self, name: str, base: Any, supports: Supports) -> list[int]:
        """Sizes by one name that a kernel takes beside the others of a problem."""
        taken = [getattr(base, name)]
        for size in _CHOSEN_SIZES:
            with contextlib.suppress(LabError):
                if supports(base.replace(**{name: size})) is None:
                    taken.append(size)
        return list(dict.fromkeys(taken))

    def check_reference(self, problem: Any) -> None:
        """Refuse a reference that says no answer for small problems, or other ones for rows by
        themselves than for them together."""
        small = [one for one in (problem, *self.given, self.small, self.watched) if _is_small(one)]
        least = min(small or [problem], key=lambda one: one.set_bytes)
        inputs = self.draw(least)
        whole = self._answer(least, inputs.arrays)
        if not self.rows or least.num_parts < 2:
            return
        last = least.num_parts - 1
        alone = self.oracle(inputs, [(last,)])
        for name, one in whole.items():
            if self.has_rows(name) and largest_change(one[last:], alone[name][last:]) > ROUNDED:
                raise LabError(
                    f"The reference of {self.name} says another answer for a row by itself.",
                    f"on {least} row {last} of {name} follows from other rows too",
                    "leave out rows, or a reference that takes each row by itself",
                )

    def _why_left_out(self, problem: Any) -> str | None:
        try:
            limit = max(self.tolerance_for(one) for one in (problem, problem.second_draw()))
            inputs = self.draw(problem).arrays
            answer = self._answer(problem, inputs)
        except LabError as error:
            return error.what
        if lost := self._lost_by_types(problem, answer, limit):
            return lost
        most = max(_MOST_CONDITION, tolerance_of(problem.output.dtype), self._tolerance or 0)
        if limit > most or self._cancels(problem, inputs, answer, limit):
            return "its inputs tell too little"
        return None

    def _lost_by_types(self, problem: Any, answer: Arrays, limit: float) -> str:
        """What of an answer the types of the outputs do not hold to a relative error; "" for
        nothing."""
        for name, one in answer.items():
            dtype = element_dtype(problem.outputs[name].dtype)
            if dtype.kind not in "iu" and np.abs(one).max(initial=0) > largest_of(dtype) / _ROOM:
                return f"{name} is near the largest {dtype}, where another seed is past it"
            rounds = largest_change(one, one.astype(dtype).astype(float))
            if rounds > max(limit, tolerance_of(str(dtype))):
                return f"{name} is past what {dtype} holds"
        return ""

    def draw_problems(self, count: int, seed: int, supports: Supports = takes_all) -> list[Any]:
        """Seeded random problems, small to medium, of every kind."""
        rng = np.random.default_rng([seed, 407])
        drawn: list[Any] = []
        for _ in range(50 * count):
            if len(drawn) == count:
                return drawn
            sizes = [int(np.exp(rng.uniform(0, np.log(4000)))) for _ in self._letters]
            kind, own = str(rng.choice(self.problem.distributions)), int(rng.integers(2**31))
            with contextlib.suppress(LabError):
                one = self.problem(*sizes, distribution=kind, seed=own)
                if one._elements <= _MOST_DRAWN and not (supports(one) or self._why_left_out(one)):
                    drawn.append(one)
        if drawn:
            return drawn
        raise LabError(
            f"No problem of {self.name} could be drawn.", "each was refused", "other sizes"
        )

    def read_part(self, problem: Any, part: Part, fetch: Fetch) -> HeldInputs:
        if not self.rows:
            return HeldInputs(problem, {name: fetch(name, ...) for name in problem.inputs})
        arrays = {
            name: fetch(name, part[0])[None] if self.has_rows(name) else fetch(name, ...)
            for name in problem.inputs
        }
        return HeldInputs(problem.replace(**{self.rows: 1}), arrays)

    def alter_part(self, problem: Any, part: Part, fetch: Fetch, store: Store, rng: Rng) -> None:
        """An element of each input that is read and not written; where it is no integer it
        outweighs the others and has another sign. Of inputs with rows, where there are such, one
        of the row alone."""
        names = [name for name in problem.inputs if name not in problem.outputs] or [
            *problem.inputs
        ]
        with_rows = [name for name in names if self.rows and self.has_rows(name)]
        for name in with_rows or names:
            before = tuple(part) if name in with_rows else ()
            values = fetch(name, before if before else ...)
            if not values.size:
                continue
            place = tuple(int(rng.integers(n)) for n in values.shape)
            *first, last = (*before, *place)
            where = (*first, slice(last, last + 1))
            store(name, where, np.array([self._other(problem, name, values, place)], values.dtype))

    def _other(self, problem: Any, name: str, values: np.ndarray, place: tuple[int, ...]) -> Any:
        ends, now = self._ends_of(problem, name), values[place]
        if values.dtype.kind in "iu":
            low, high = ends or (int(values.min()), int(values.max()) + 1)
            return int(high) - 1 if now != int(high) - 1 else int(low)
        if ends is not None:
            return ends[0] if float(now) > sum(ends) / 2 else ends[1]
        wide = values.astype(np.float64)
        peak = min(4 * float(np.abs(wide).max()) + 1, largest_of(values.dtype) / 4)
        return -peak if float(now) > 0 else peak

    # Its kernels.

    def rung(
        self,
        file: str,
        entry: str = "",
        grid: int | str = "",
        block: int | str = "",
        smem: int | str = 0,
        args: Sequence[str] | None = None,
        launches: Sequence[Mapping[str, Any]] = (),
        workspace: Mapping[str, str] | None = None,
        source: str = "",
        **fields: Any,
    ) -> Rung:
        """A `Rung` of the ``.cu`` beside ``file``, or of another source in its folder.

        Args:
            entry: the kernel as C++ names it.
            grid, block, smem: sizes with ``+ - * // %``, ``cdiv``, ``min`` and ``max`` of the
                problem's sizes, its whole numbers, the knobs, and ``num_sms``.
            args: names of arguments in the kernel's order; None: all, as the problem has them.
            launches: several in order, each with these five by name, in place of one.
            workspace: scratch buffers by name, such as ``{"partial": "f32[cdiv(N, 256)]"}``.
            source: a file's name: a ``.cu``, PTX as ``.ptx``, or a ``.py`` with a Triton kernel,
                whose block and smem Triton says, and whose constants are ``defines_extra``.
            fields: further ones of a `Rung`, such as ``knobs``, ``supports`` and ``tolerance``.

        Raises LabError: a size that is none, an argument that is not there, or a launch that every
        GPU refuses.
        """
        place = Path(file).parent / source if source else Path(file).with_suffix(".cu")
        one = {"entry": entry, "grid": grid, "block": block, "smem": smem}
        told = [*launches] or [one if args is None else {**one, "args": [*args]}]
        for each in told:
            if (
                not launch_fields(place.name)
                <= {*each}
                <= {"entry", "grid", "block", "smem", "args"}
            ):
                why = (
                    f"a launch has entry, grid and block, and may have smem and args, not {each!r}"
                )
                raise _no_problem(self.name, why)
        asked = tuple(asked_launch(each) for each in told)
        spaces = dict(workspace or {})
        launch = LaunchesOf(asked, spaces, {}, {}, place)
        usual = {"title": Path(file).stem, "idea": "", "limiter": "", "cost": "", "launch": launch}
        usual["source"] = place
        made = Rung.beside(file, **{**usual, "operation": self.name, **fields})
        for problem in self.given:
            if made.launch is launch and not made.supports(problem):
                launch(problem, None, made.resolve_knobs())
        return made


def from_reference(
    name: str,
    arguments: Mapping[str, str],
    reference: Callable[..., Any],
    sizes: Sequence[int | Sequence[int]],
    rows: str = "",
    flops: str = "",
    tolerance: float | None = None,
    least_bytes: str = "",
) -> ReferenceOperation:
    """An operation from its arguments and a function that says the answer; it is registered.

    Args:
        name: of the operation, with its sizes behind a colon, such as ``softmax:R,C``.
        arguments: in the kernel's order, by name, as a launch is told of them: ``f32[R,C]``,
            ``f32[R,C]:out``, ``f32[N]:inout``, or a number ``i32:C``, ``f32:0.5``. The shape is of
            the sizes, with ``+ - * // %``, ``cdiv``, ``min`` and ``max``. Behind an input may
            stand what it holds: ``i32[N]=uniform:0,C`` (C is not among them), ``=arange``.
        reference: ``reference(x, alpha)`` gets what its parameters name, of arguments and sizes:
            float64 or int64 arrays, and numbers. It returns a new array of the shape of the
            output, or a tuple of several. One whose first parameter is ``torch`` gets torch and
            tensors, and is timed as the baseline ``NAME_torch`` where that is named.
        sizes: those to try, the largest is meant when none is named. A size may be 0 if one is.
        rows: the size that is the first axis of the outputs, where each row of them follows from
            the same row of the inputs alone: then a part is checked by itself. Without it an
            answer is always computed whole.
        flops: additions and multiplications, such as ``2*M*N*K``; one an input without it.
        tolerance: relative error of a part; None: by type and length of the sums.
        least_bytes: of memory that no call does without, told as ``flops``; every input and output
            once without it, but for those marked ``:part``.

    Raises LabError: an argument, a shape or a parameter that cannot be read, or sizes that do not
    fit.
    """
    match = _NAME.fullmatch(name) if isinstance(name, str) else None
    if match is None:
        raise _no_problem(name, "a name is followed by its sizes, as softmax:R,C")
    title, letters = match[1], match[2].split(",")
    if title in operations() and operations()[title].is_ours:
        raise _no_problem(title, "this name is that of a problem which is here already")
    taken = [
        one for one in letters if hasattr(Problem, one) or one in arguments or one in _FIELD_NAMES
    ]
    if taken or len({*letters}) < len(letters) or len(letters) > 8:
        why = "each of up to eight sizes has a name of its own, which no argument has"
        raise _no_problem(title, f"{why}{f', and {taken[0]} is taken' if taken else ''}")
    tried = [tuple(one) if isinstance(one, Sequence) else (one,) for one in sizes]
    if not tried or any(len(one) != len(letters) or not _are_sizes(one) for one in tried):
        why = f"sizes is a list of {match[2]}, each a whole number from 0 on"
        raise _no_problem(title, f"{why}, and here it is {sizes!r}")
    if rows and rows not in letters:
        raise _no_problem(title, f"rows={rows!r} is none of its sizes {match[2]}")
    if tolerance is not None and not 0 < tolerance < 1:
        raise _no_problem(title, f"a tolerance of {tolerance!r} is no relative error")
    told = [_read_told(title, one, text) for one, text in arguments.items()]
    for text in filter(None, (flops, least_bytes)):
        try:
            sizes_of(text, dict(zip(letters, tried[0], strict=True)), least=0)
        except LabError as error:
            raise _no_problem(title, error.clause) from error
    about = rows, flops, tolerance, least_bytes
    return ReferenceOperation(title, tried, letters, told, reference, *about)


_FIELD_NAMES = ("dtype", "distribution", "seed", "cache_state", "of")


def _read_told(title: str, name: str, text: str) -> _Told:
    if not isinstance(text, str):
        raise _no_problem(title, f"{name} is {text!r} and no text")
    plain = text.replace(" ", "")
    match = _BUFFER.fullmatch(plain)
    if match is None:
        return _Told(name, plain, "")
    contents = match[4] or ""
    if contents and (not _RANGE.fullmatch(contents) or match[3] == ":out"):
        why = "behind an input may stand =uniform:LO,HI, or =arange of integers"
        raise _no_problem(title, f"{name} is {text!r}, and {why}")
    return _Told(name, f"{match[1]}[{match[2]}]{match[3] or ''}", match[2], contents)


def _no_problem(name: Any, why: str) -> LabError:
    return LabError(f"The problem {name} cannot be read.", why, "the same with that mended")


def _are_sizes(sizes: Sequence[Any]) -> bool:
    return all(isinstance(one, int) and 0 <= one <= LARGEST for one in sizes)


def _parameters_of(
    title: str, reference: Callable[..., Any], known: Sequence[str]
) -> tuple[list[str], bool]:
    """What a reference is given, and whether it is one of torch."""
    try:
        asked = [*inspect.signature(reference).parameters.values()]
    except (TypeError, ValueError) as error:
        raise _no_problem(title, f"its reference is no function: {error}") from error
    in_torch = bool(asked) and asked[0].name == "torch"
    names = [one.name for one in asked[in_torch:]]
    plain = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    for one in asked[in_torch:]:
        if one.kind not in plain or one.name not in known:
            why = f"the reference asks for {one.name!r}, and there are {', '.join(known)}"
            raise _no_problem(title, why)
    return names, in_torch


def _value_of(text: str, numbers: Mapping[str, int]) -> float:
    """A number, or a size computed of others."""
    try:
        return float(text)
    except ValueError:
        return sizes_of(text, numbers, least=0)[0]


def _is_small(problem: Any) -> bool:
    return not why_no_case(problem)


def why_no_case(problem: Problem) -> str:
    """Why a battery has no case as large as a problem; "" for one that it may have."""
    elements = sum(one.elements for one in problem.buffers.values())
    if elements > _MOST_CASE_ELEMENTS:
        return f"it has {elements:,} elements, and a case at most {_MOST_CASE_ELEMENTS:,}"
    if problem.flops > _MOST_CASE_FLOPS:
        return f"it takes {problem.flops:,} operations, and a case at most {_MOST_CASE_FLOPS:,}"
    return ""


def _moved(values: np.ndarray, by: float, rng: Rng) -> np.ndarray:
    """In float64, each value larger or smaller by a share of itself."""
    wide = values.astype(np.float64)
    return wide * (1 + rng.choice([-1, 1], values.shape) * by)


def _shape_values(values: np.ndarray, kind: str, rng: Rng) -> None:
    """Give standard normal values ``[..., n]`` the properties of a distribution, in place."""
    last = values.shape[-1]
    few = max(1, last // 64)
    if kind == "early_peaked":
        values[..., :few] += _PEAK
    elif kind == "late_peaked":
        values[..., last - few :] += _PEAK
    elif kind == "outliers":
        values[..., rng.integers(last, size=few)] *= _OUTLIER
    elif kind == "large":
        values *= _LARGE
    elif kind == "tiny":
        values *= _TINY
    elif kind == "negative":
        np.negative(np.abs(values), out=values)
    elif kind == "equal":
        values[...] = np.round(2 * values) / 2
    elif kind == "constant":
        values[...] = values[..., :1]


def _first_moved(values: np.ndarray) -> np.ndarray:
    """With others at the first place of the last axis, where that has more than one; integers, of
    which some are indices, stay."""
    moved = np.array(values)
    if moved.dtype.kind not in "iu" and moved.ndim and moved.shape[-1] > 1:
        moved[..., 0] = moved[..., 0] / 2 + 1
    return moved


def _shape_within(values: np.ndarray, kind: str, rng: Rng) -> None:
    """The same of values from 0 to 1, as far as they go."""
    last = values.shape[-1]
    few = max(1, last // 64)
    if kind == "early_peaked":
        values[..., :few] = 1
    elif kind == "late_peaked":
        values[..., last - few :] = 1
    elif kind == "large":
        values[...] = 1 - values / 64
    elif kind == "tiny":
        values /= 64
    elif kind == "equal":
        values[...] = np.round(4 * values) / 4
    elif kind == "constant":
        values[...] = values[..., :1]


def torch_peers(path: Path, name: str) -> list[Baseline]:
    """The reference of torch in a reader's file as baselines, as it is and compiled by torch. The
    file is loaded where they are timed, and only for that."""
    return [_torch_peer(path, name, compiled) for compiled in (False, True)]


def _torch_peer(path: Path, name: str, compiled: bool) -> Baseline:
    def prepare(tensors: Mapping[str, Any], problem: Problem) -> Callable[[], Any]:
        known = operation_of(name)
        load_by_path(path)  # registers its own
        mine = operation_of(name)
        register_operation(known)
        assert isinstance(mine, ReferenceOperation)
        call = mine.torch_call(tensors, problem)
        if compiled:
            import torch

            call = torch.compile(call, dynamic=False)
            call()  # compiles
        return call

    def supports(problem: Problem) -> str | None:
        return "Triton is not installed" if compiled and find_spec("triton") is None else None

    return Baseline(
        id=f"{name}_torch{'_compiled' * compiled}",
        title=f"the reference in torch{', compiled' * compiled}",
        prepare=prepare,
        supports=supports,
        doc="One call of the reference with the inputs as they are stored.",
        source=path,
        dtypes=DTYPES,
        operation=name,
    )
