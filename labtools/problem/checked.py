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
_OF_KERNEL = re.compile(
    r"(?:::)?[A-Za-z_]\w*(?:::[A-Za-z_]\w*)*(?:<[\w :<>,&*()+/%|^~.!=-]*>)?", re.A
)
"""A function, or one of a template's, with the namespaces that it stands in."""
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
                f"{name} must be {kind}; what stands there is of type {found}",
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


def check_kernel_name(name: str) -> None:
    """Refuse what names no kernel in C++; a mangled name may be longer than others."""
    if len(name) > 5 * LONGEST_NAME or not _OF_KERNEL.fullmatch(name):
        raise LabError(
            f"The kernel of a launch is called {name!r}.",
            f"a kernel is named as in C++, in at most {5 * LONGEST_NAME} characters, such as "
            "decode, or attention<128, 4> of a template, with its namespaces before it",
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
def _fields_of(of: Any) -> tuple[tuple[str, str, Test], ...]:
    """The fields of a dataclass, each with its type in words and what tests it."""
    return tuple((name, *_kind(kind)) for name, kind in typing.get_type_hints(of).items())


def _kind(kind: Any) -> tuple[str, Test]:
    """A type in words, and what tests a value for it."""
    if kind is Any:
        return "anything", lambda value: True
    if kind is str:
        return "text in UTF-8", is_text
    if kind in _SIMPLE:
        words, allowed = _SIMPLE[kind]
        return words, lambda value: isinstance(value, allowed)
    outer = typing.get_origin(kind)
    if outer is Callable:
        return "a function", callable
    inner = [_kind(one) for one in typing.get_args(kind) if one is not Ellipsis]
    said, tests = [words for words, _ in inner], [test for _, test in inner]
    if outer in (typing.Union, types.UnionType):
        return " or ".join(said), lambda value: any(test(value) for test in tests)
    if outer is tuple:
        return (
            f"a tuple, each part of it {said[0]}",
            lambda value: isinstance(value, (tuple, list)) and all(map(tests[0], value)),
        )
    if outer is Mapping:
        return (
            f"a mapping from {said[0]} to {said[1]}",
            lambda value: (
                isinstance(value, Mapping)
                and all(map(tests[0], value))
                and all(map(tests[1], value.values()))
            ),
        )
    return f"a {kind.__name__}", lambda value: isinstance(value, kind)
