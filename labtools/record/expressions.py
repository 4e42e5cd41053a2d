"""Expressions in data: when a method helps, when a point is valid, what a claim comes to.

The library simpleeval computes them. Of its grammar only what makes numbers and cannot grow without
limit is let through. A name without a value is missing and never 0.
"""

from __future__ import annotations

import ast
import math
import warnings
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import simpleeval

from labtools.problem import LabError

Quantity = float | int | bool

LONGEST_EXPRESSION = 500
"""Characters. A condition that needs more is two conditions."""
DEEPEST_EXPRESSION = 40
"""Levels of an expression's tree, far below where Python's own recursion ends."""
LARGEST_NUMBER = 1e300
"""No number that is written or computed may be larger: a float holds it."""

_ALLOWED: tuple[type[ast.AST], ...] = (
    *(ast.Expression, ast.Constant, ast.Name, ast.Load, ast.Call),
    *(ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod),
    *(ast.UnaryOp, ast.USub, ast.UAdd, ast.Not),
    *(ast.BoolOp, ast.And, ast.Or),
    *(ast.Compare, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE),
)


class ExpressionError(LabError):
    """An expression that cannot be read or computed."""


class MissingName(LabError):
    """An expression asked for what was not measured."""

    def __init__(self, name: str) -> None:
        self.name = name
        why = "it was not measured here, and a missing value is not zero"
        super().__init__(f"{name} is missing.", why, "expressions that do not ask for it")

    def __reduce__(self) -> tuple[type[MissingName], tuple[str]]:
        return MissingName, (self.name,)


def clip(x: float, low: float, high: float) -> float:
    """``x`` cut to the range from ``low`` to ``high``."""
    return min(max(x, low), high)


def ramp(x: float, low: float, high: float) -> float:
    """0 at ``low`` and below, 1 at ``high`` and above, a straight line between.

    With ``low`` above ``high`` it falls.

    Raises ZeroDivisionError: the two are equal.
    """
    return clip((x - low) / (high - low), 0.0, 1.0) + 0.0  # and no -0


FUNCTIONS: Mapping[str, tuple[Callable[..., Any], int | None]] = {
    "min": (min, None),
    "max": (max, None),
    "clip": (clip, 3),
    "ramp": (ramp, 3),
}
"""What an expression may call, and with how many arguments; None is two or more."""


@lru_cache(maxsize=4096)
def _parse_expression(text: str) -> ast.expr:
    """The tree of an expression that keeps to the grammar."""
    if len(text) > LONGEST_EXPRESSION:
        raise _refuse(text, f"it has {len(text)} characters; {LONGEST_EXPRESSION} are allowed")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # of text such as 1if 2else 3
            tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, SyntaxWarning, ValueError, RecursionError, MemoryError) as error:
        why = error.msg if isinstance(error, SyntaxError) else str(error)
        raise _refuse(text, why or type(error).__name__) from None
    level: list[ast.AST] = [tree]
    for _ in range(DEEPEST_EXPRESSION):
        for node in level:
            _check_node(text, node)
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return tree
    raise _refuse(text, f"it is nested more than {DEEPEST_EXPRESSION} levels deep")


def _check_node(text: str, node: ast.AST) -> None:
    if not isinstance(node, _ALLOWED):
        raise _refuse(text, f"{type(node).__name__} is not allowed in it")
    if isinstance(node, ast.Constant):
        if not isinstance(node.value, (int, float)):
            raise _refuse(text, f"{node.value!r} is no number")
        if not abs(node.value) <= LARGEST_NUMBER:
            raise _refuse(text, f"a number in it is larger than {LARGEST_NUMBER:g}")
    if isinstance(node, ast.Call):
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name not in FUNCTIONS or node.keywords:
            raise _refuse(text, f"the functions are {', '.join(FUNCTIONS)}")
        wanted = FUNCTIONS[name][1]
        if len(node.args) < 2 or wanted not in (None, len(node.args)):
            raise _refuse(text, f"{name} takes {wanted or 'two or more'} arguments")


def _refuse(text: str, why: str) -> ExpressionError:
    what = f"The expression {text[:LONGEST_EXPRESSION]!r} cannot be used."
    words = "numbers, names, + - * / // %, comparisons, and, or, not, "
    return ExpressionError(what, why, words + ", ".join(FUNCTIONS))


@lru_cache(maxsize=4096)
def names_in(text: str) -> frozenset[str]:
    """The names that an expression asks for, its functions left out.

    Raises ExpressionError: it is none.
    """
    tree = _parse_expression(text)
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    found = (node for node in ast.walk(tree) if isinstance(node, ast.Name))
    return frozenset(node.id for node in found if id(node) not in called)


def evaluate_expression(text: str, names: Mapping[str, Quantity | None]) -> Quantity:
    """The value of an expression, of names by value; None is missing, and so is what is not there.

    ``and`` and ``or`` are looked at from left to right, no further than the answer needs.

    Raises MissingName: it asks for a name without a value. ExpressionError: it is none, divides by
    zero, or its value is no finite number.
    """
    tree = _parse_expression(text)

    def look_up(node: ast.Name) -> Quantity:
        value = names.get(node.id)
        if value is None or not math.isfinite(value):
            raise MissingName(node.id)
        return value

    functions = {name: function for name, (function, _) in FUNCTIONS.items()}
    evaluator = simpleeval.SimpleEval(functions=functions, names=look_up)
    try:
        value: Any = evaluator.eval(text, previously_parsed=tree)
        finite = math.isfinite(value) and abs(value) <= LARGEST_NUMBER
    except (simpleeval.InvalidExpression, ArithmeticError, ValueError) as error:
        raise _refuse(text, str(error)) from None
    if not finite:
        raise _refuse(text, f"its value {value} is no finite number")
    return value  # type: ignore[no-any-return]
