"""Whether what a reader wrote is what it must be: the fields of a rung and of its launches."""

from __future__ import annotations

import functools
import numbers
import re
import types
import typing
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from .errors import LabError

LONGEST_NAME = 200
"""Characters of a name."""
_IN_C = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OF_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_SIMPLE: dict[Any, tuple[str, tuple[type, ...]]] = {
    bool: ("True or False", (bool, np.bool_)),
    int: ("a whole number", (int, numbers.Integral)),
    float: ("a number", (float, int, numbers.Real)),
    Path: ("a Path, such as Path(__file__).with_suffix('.cu')", (Path,)),
    type(None): ("None", (type(None),)),
}
"""Types by their annotation: in words, and what passes for one."""


def check_fields(value: Any, whose: str) -> None:
    """Hold every field of a dataclass against its annotation; a list passes for a tuple, of any
    length. The LabError names the first that does not fit, after ``whose`` it is."""
    for name, kind, is_kind in _fields_of(cast(Hashable, type(value))):
        if not is_kind(getattr(value, name)):
            found = type(getattr(value, name)).__name__
            raise LabError(
                f"{whose} has no usable {name}.",
                f"{name} must be {_say(kind)}; what stands there is of type {found}",
                "correct the rung's .py file; every other rung is unaffected",
            )


def check_name(name: str, whose: str, *, in_c: bool = True) -> None:
    """Refuse what is no name in C, or with ``in_c`` False of a file; ``whose`` begins the
    sentence."""
    form = _IN_C if in_c else _OF_FILE
    if len(name) > LONGEST_NAME or not form.fullmatch(name):
        raise LabError(
            f"{whose} is called {name!r}.",
            f"a name is 1 to {LONGEST_NAME} letters, digits and underscores"
            + (", and begins with no digit" if in_c else ", with dots and hyphens between"),
            "give it another name; every other rung is unaffected",
        )


def is_text(value: Any) -> bool:
    """Whether it is text that a file and a command line can hold."""
    if not isinstance(value, str) or "\0" in value:
        return False
    try:
        return value.isascii() or bool(value.encode())
    except UnicodeEncodeError:
        return False


Test = Callable[[Any], bool]
"""Whether a value is of a kind."""


@functools.lru_cache(maxsize=32)
def _fields_of(of: Any) -> tuple[tuple[str, Any, Test], ...]:
    """The fields of a dataclass, each with its annotation and what tests it."""
    kinds = typing.get_type_hints(of)
    return tuple((name, kind, _test_of(kind)) for name, kind in kinds.items())


def _test_of(kind: Any) -> Test:
    if kind is Any:
        return lambda value: True
    if kind is str:
        return is_text
    if kind in _SIMPLE:
        allowed = _SIMPLE[kind][1]
        return lambda value: isinstance(value, allowed)
    outer, inner = typing.get_origin(kind), typing.get_args(kind)
    tests = [_test_of(one) for one in inner if one is not Ellipsis] if outer is not Callable else []
    if outer in (typing.Union, types.UnionType):
        return lambda value: any(test(value) for test in tests)
    if outer is tuple:
        return lambda value: isinstance(value, (tuple, list)) and all(map(tests[0], value))
    if outer is Mapping:
        return lambda value: (
            isinstance(value, Mapping)
            and all(map(tests[0], value))
            and all(map(tests[1], value.values()))
        )
    if outer is Callable:
        return callable
    return lambda value: isinstance(value, kind)


def _say(kind: Any) -> str:
    if kind is str:
        return "text in UTF-8"
    if kind in _SIMPLE:
        return _SIMPLE[kind][0]
    outer, inner = typing.get_origin(kind), typing.get_args(kind)
    if outer in (typing.Union, types.UnionType):
        return " or ".join(_say(one) for one in inner)
    if outer is tuple:
        return f"a tuple, each part of it {_say(inner[0])}"
    if outer is Mapping:
        return f"a mapping from {_say(inner[0])} to {_say(inner[1])}"
    if outer is Callable:
        return "a function"
    return "anything" if kind is Any else f"a {kind.__name__}"
