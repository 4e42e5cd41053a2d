"""Conditions of a family in words, for readers who meet a method that a check refuses."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping


def say_condition(text: str) -> str:
    """When an expression holds, or is above 0, in words.

    Of a product every factor counts, of a sum one part is enough, and of a ramp the end at which it
    begins. What is always above 0 is left out. `labtools.record.expressions` lets ``text`` through.
    """
    return _say_positive(ast.parse(text.strip(), mode="eval").body) or "always"


_COMPARED: Mapping[type[ast.cmpop], str] = {
    ast.Eq: "is",
    ast.NotEq: "is not",
    ast.Lt: "is below",
    ast.LtE: "is at most",
    ast.Gt: "is above",
    ast.GtE: "is at least",
}
_SIGNS: Mapping[type[ast.operator], str] = {
    **{ast.Add: "+", ast.Sub: "-", ast.Mult: "*"},
    **{ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "modulo"},
}


def _say_positive(node: ast.expr) -> str | None:
    """When a tree is above 0 or holds; None where it always is."""
    if isinstance(node, ast.BoolOp):
        joined = " and " if isinstance(node.op, ast.And) else " or "
        return joined.join(_say_positive(one) or "always" for one in node.values)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return f"it is not so that {_say_positive(node.operand) or 'always'}"
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        return " and ".join(
            f"{_say_value(left)} {_COMPARED[type(op)]} {_say_value(right)}"
            for left, op, right in zip(sides, node.ops, sides[1:], strict=False)
        )
    if isinstance(node, ast.Constant):
        return None if node.value > 0 else "never"  # type: ignore[operator]  # numbers alone
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Mult, ast.Add)):
        parts = [_say_positive(node.left), _say_positive(node.right)]
        if isinstance(node.op, ast.Mult):
            return " and ".join(part for part in parts if part) or None
        return None if None in parts else f"{_say_value(node)} is above 0"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "ramp":
        value, low, high = node.args
        falls = _is_below(high, low)
        return f"{_say_value(value)} is {'below' if falls else 'above'} {_say_value(low)}"
    return f"{_say_value(node)} is above 0"


def _is_below(one: ast.expr, other: ast.expr) -> bool:
    """Whether both are plain numbers, and the first is the smaller."""
    numbers = [node.value for node in (one, other) if isinstance(node, ast.Constant)]
    return len(numbers) == 2 and numbers[0] < numbers[1]  # type: ignore[operator]


def _say_value(node: ast.expr) -> str:
    """A value in words: names without underscores, shares of a hundred as percent."""
    if isinstance(node, ast.Name):
        return re.sub(r" pct\b", " %", node.id.replace("_", " "))
    if isinstance(node, ast.BinOp):
        sides = [_say_value(one) for one in (node.left, node.right)]
        for place, one in enumerate((node.left, node.right)):
            if isinstance(one, ast.BinOp) and not isinstance(node.op, ast.Add):
                sides[place] = f"({sides[place]})"
        return f"{sides[0]} {_SIGNS[type(node.op)]} {sides[1]}"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return f"the {node.func.id} of {', '.join(_say_value(one) for one in node.args)}"
    return ast.unparse(node)
