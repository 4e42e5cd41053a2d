"""How values that JSON has no word for stand in a record, and on the way to a child and back."""

from __future__ import annotations

import base64
import dataclasses
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any

import numpy as np
from pydantic import (
    AfterValidator,
    BeforeValidator,
    InstanceOf,
    PlainSerializer,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from labtools.problem import (
    DEFAULT_OPERATION,
    Comparison,
    LabError,
    Launch,
    Problem,
    TensorMap,
    element_dtype,
    operations,
    problem_from_dict,
    scheme_from_dict,
    scheme_to_dict,
)
from labtools.toolchain import Hashes
from labtools.toolchain.cubin import Resources


def _only_fields_of(kind: type) -> BeforeValidator:
    """Keep unknown fields out of a record: a misspelt one would otherwise vanish without a word."""
    known = {field.name for field in dataclasses.fields(kind)}

    def check(data: Any) -> Any:
        if isinstance(data, Mapping) and (unknown := sorted(set(data) - known)):
            raise ValueError(f"{kind.__name__} has no {', '.join(unknown)}")
        return data

    return BeforeValidator(check)


def write_argument(argument: Any) -> str:
    """A launch's argument as text: a buffer's name, or a scalar with its type, ``int32 8``; of a
    structure its bytes."""
    if isinstance(argument, str):
        return argument
    if isinstance(argument, TensorMap):
        return "tensor_map " + json.dumps(dataclasses.asdict(argument))
    if isinstance(argument, np.void):
        return f"V{argument.itemsize} {argument.tobytes().hex()}"
    return f"{argument.dtype} {argument.item()!r}"


@lru_cache(maxsize=4096)
def read_argument(text: str) -> Any:
    """What `write_argument` wrote; the scalar is the same to the bit."""
    if " " not in text:
        return text
    name, value = text.split(" ", 1)
    if name == "tensor_map":
        held = json.loads(value).items()
        cut: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in held}
        return TensorMap(**cut)
    dtype = element_dtype(name)
    if dtype.type is np.void:
        return np.frombuffer(bytes.fromhex(value), dtype)[0]
    if dtype.kind == "b":
        return dtype.type(value == "True")
    return dtype.type(int(value) if dtype.kind in "iu" else float(value))


def _write_launch(launch: Launch) -> dict[str, Any]:
    data = dataclasses.asdict(launch)
    return {**data, "args": [write_argument(argument) for argument in launch.args]}


def _read_launch(data: Any) -> Any:
    if not isinstance(data, Mapping):
        return data
    return {**data, "args": tuple(map(read_argument, data.get("args") or ()))}


LaunchField = Annotated[Launch, BeforeValidator(_read_launch), PlainSerializer(_write_launch)]
"""A launch; its scalars carry their type."""


def kept_launch(launch: Launch) -> Launch:
    """The part of a launch that a record keeps: what runs, whether that is timed, and what the
    timed call allocates. Where scratch buffers lie that were there before says nothing of it."""
    timed = tuple(space for space in launch.workspace if space.in_call)
    return launch if timed == launch.workspace else dataclasses.replace(launch, workspace=timed)


def _write_kept(launch: Launch) -> dict[str, Any]:
    data = _write_launch(kept_launch(launch))
    # What hardly any launch has is written where there is some.
    return {key: held for key, held in data.items() if held or key not in ("workspace", "prepare")}


def _read_kept(data: Any, make: ValidatorFunctionWrapHandler) -> Launch:
    try:
        return kept_launch(make(_read_launch(data)))
    except LabError as error:  # pydantic reports a ValueError with the field's name
        raise ValueError(str(error)) from None


KeptLaunchField = Annotated[
    Launch, WrapValidator(_read_kept), _only_fields_of(Launch), PlainSerializer(_write_kept)
]
"""A launch as a record keeps it."""


def _write_array(array: np.ndarray | None) -> dict[str, Any] | None:
    if array is None:
        return None
    held = np.ascontiguousarray(array)
    text = base64.b64encode(held.tobytes()).decode()
    return {"dtype": str(held.dtype), "shape": list(held.shape), "base64": text}


def _read_array(data: Any) -> Any:
    if not isinstance(data, Mapping):
        return data
    dtype = element_dtype(data["dtype"])
    return np.frombuffer(base64.b64decode(data["base64"]), dtype).reshape(data["shape"]).copy()


ArrayField = Annotated[Any, BeforeValidator(_read_array), PlainSerializer(_write_array)]
"""A numpy array, to the bit, or None; bfloat16 as well."""


ProblemField = Annotated[
    InstanceOf[Problem],
    BeforeValidator(lambda data: problem_from_dict(data) if isinstance(data, Mapping) else data),
    PlainSerializer(Problem.to_dict),
]
"""A problem of any operation."""


def is_id(name: str) -> bool:
    """Whether `load_rung` looks for a name among what is shipped, and nowhere else: a path is code
    that somebody names, and data name none."""
    return re.fullmatch(r"[A-Za-z0-9_]+", name) is not None


def _refuse_path(name: str) -> str:
    if not is_id(name):
        raise ValueError(f"{name!r} is no id of a shipped kernel, and data name no other code")
    return name


ShippedId = Annotated[str, AfterValidator(_refuse_path)]
"""The id of a shipped rung."""


@dataclass(frozen=True)
class UnknownProblem:
    """A problem of an operation that nobody has loaded: data to show. Data name no code, so its
    operation's Python is loaded where a caller names it, and not because this was read."""

    operation: str
    fields: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """As it was read."""
        return {"operation": self.operation, **self.fields}

    def __str__(self) -> str:
        return " ".join([self.operation, *(f"{name}={one}" for name, one in self.fields.items())])


def _read_kept_problem(data: Any) -> Any:
    if not isinstance(data, Mapping):
        return data
    name = data.get("operation", DEFAULT_OPERATION)
    if not isinstance(name, str) or name in operations():
        return problem_from_dict(data)
    return UnknownProblem(name, {key: one for key, one in data.items() if key != "operation"})


KeptProblemField = Annotated[
    InstanceOf[Problem] | InstanceOf[UnknownProblem],
    BeforeValidator(_read_kept_problem),
    PlainSerializer(lambda one: (Problem if isinstance(one, Problem) else type(one)).to_dict(one)),
]
"""A problem as a file holds it, whether or not its operation is known here."""
SchemeField = Annotated[
    Any,
    BeforeValidator(lambda data: scheme_from_dict(data) if isinstance(data, Mapping) else data),
    PlainSerializer(lambda scheme: None if scheme is None else scheme_to_dict(scheme)),
]
"""How a rung keeps its inputs, a `StoredAs`, or None."""


def _write_resources(found: Resources) -> dict[str, Any]:
    data = dataclasses.asdict(found)
    # The launch bound and the code are told by the source and by the hashes.
    del data["max_threads"], data["code_hash"]
    return {"entry": data.pop("entry"), **data}


ResourcesField = Annotated[Resources, _only_fields_of(Resources), PlainSerializer(_write_resources)]
"""What a kernel asks of an SM, as a record keeps it."""


def _write_comparison(found: Comparison) -> dict[str, Any]:
    data = dataclasses.asdict(found)
    problems, index, _ = (data.pop(name) for name in ("problems", "worst_index", "bias"))
    where = {} if index is None else {"worst_index": index}
    return {**data, "problems": problems, **where}


ComparisonField = Annotated[
    Comparison, _only_fields_of(Comparison), PlainSerializer(_write_comparison)
]
"""What a check found; merged from several outputs it names no place."""

ModelName = Annotated[
    str, BeforeValidator(lambda name: {"chain model 1, cfc56bb9": "chain model 2"}.get(name, name))
]
"""The model that made a forecast; the last one whose name was a hash is the second by number."""

HashesField = Annotated[Hashes, _only_fields_of(Hashes)]
"""What identifies the code that ran."""
