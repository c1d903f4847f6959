"""Conditions on several parameters of a point: `learning_rate * batch_size <= 1`.

They are a small part of Python's expressions, read by Python's parser and calculated here: nothing
is executed. The length of a condition bounds what it may cost.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hermesd.core.model import Setting
from hermesd.refusal import FieldError, Refused, nearest, one_of

CONDITIONS_LIMIT = 20
LENGTH_LIMIT = 500

_COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda value, listed: value in listed,
    ast.NotIn: lambda value, listed: value not in listed,
}
_ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    # Whole numbers to the power of others have no bound.
    ast.Pow: lambda base, power: float(base) ** float(power),
}
_SIGNS: Mapping[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
_FUNCTIONS: Mapping[str, Callable[..., float]] = {
    "abs": abs,
    "min": min,
    "max": max,
    "log": math.log,
    "log2": math.log2,
    "log10": math.log10,
    "sqrt": math.sqrt,
}
_EXAMPLE = "a comparison such as `learning_rate * batch_size <= 1`"
_PARTS = (
    "made of the names of parameters, numbers, text, + - * / // % **, comparisons, in, and, or,"
    f" not, {', '.join(_FUNCTIONS)}"
)


class _NotOfTheLanguage(Exception):
    """A part of an expression that is none of ours; says which."""


@dataclass(frozen=True, slots=True)
class PointCondition:
    """One condition, as it is written, and what it is about."""

    path: str
    text: str
    names: frozenset[str]
    tree: ast.expr

    @property
    def size(self) -> int:
        """How many parts it has."""
        return sum(1 for _ in ast.walk(self.tree))

    def holds(self, point: Mapping[str, Setting]) -> bool:
        """Whether a point meets it. One that is about a parameter that the point doesn't have is
        met; one whose value can't be calculated, such as a division by 0, isn't.

        Raises Refused for values that can't be compared.
        """
        if not self.names <= point.keys():
            return True
        try:
            return bool(_value(self.tree, point))
        except (ArithmeticError, ValueError):
            return False
        except TypeError:
            values = ", ".join(f"{name} = {point[name]!r}" for name in sorted(self.names))
            expected = f"numbers where it calculates and compares, not {values}"
            raise Refused(FieldError(self.path, self.text, expected)) from None


def conditions(texts: Iterable[str], known: Iterable[str]) -> tuple[PointCondition, ...]:
    """The conditions on the parameters of these names. Raises Refused, listing every error."""
    names, found = [*known], []
    errors: list[FieldError] = []
    for index, text in enumerate(texts):
        path = f"where[{index}]"
        try:
            tree = _parsed(text)
            used = frozenset(_names(tree))
        except _NotOfTheLanguage as stranger:
            expected = f"{_EXAMPLE}, {_PARTS}; not {stranger}"
            errors.append(FieldError(path, text, expected))
            continue
        if unknown := sorted(used - {*names}):
            expected = f"the names of parameters, not {unknown[0]}: {one_of(names)}"
            errors.append(FieldError(path, text, expected, nearest(unknown[0], names)))
        elif not used:
            errors.append(FieldError(path, text, f"{_EXAMPLE}: it names no parameter"))
        else:
            found.append(PointCondition(path, text, used, tree))
    if errors:
        raise Refused(*errors)
    return tuple(found)


def _parsed(text: str) -> ast.expr:
    if len(text) > LENGTH_LIMIT:
        raise _NotOfTheLanguage(f"{len(text)} characters, more than {LENGTH_LIMIT}")
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise _NotOfTheLanguage("anything that Python cannot read") from None


def _names(node: ast.expr) -> Iterable[str]:
    """The parameters that an expression names. Raises _NotOfTheLanguage for other parts of it."""
    match node:
        case ast.Name() | ast.Attribute():
            yield _name(node)
        case ast.Constant(value=bool() | int() | float() | str()):
            return
        case ast.BoolOp(values=parts) | ast.Tuple(elts=parts) | ast.List(elts=parts):
            for part in parts:
                yield from _names(part)
        case ast.UnaryOp(op=op, operand=part) if isinstance(op, ast.Not) or type(op) in _SIGNS:
            yield from _names(part)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            yield from _names(left)
            yield from _names(right)
        case ast.Compare(left=left, ops=ops, comparators=rest) if {*map(type, ops)} <= {
            *_COMPARISONS
        }:
            for part in (left, *rest):
                yield from _names(part)
        case ast.Call(func=ast.Name(id=name), args=parts, keywords=[]) if name in _FUNCTIONS:
            for part in parts:
                yield from _names(part)
        case _:
            raise _NotOfTheLanguage(f"`{ast.unparse(node)}`")


def _name(node: ast.expr) -> str:
    """The name of a parameter, with dots if it is written inside of another."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=outer, attr=name):
            return f"{_name(outer)}.{name}"
        case _:
            raise _NotOfTheLanguage(f"`{ast.unparse(node)}`")


def _value(node: ast.expr, point: Mapping[str, Setting]) -> Any:
    """What an expression comes to. Raises ArithmeticError, ValueError, TypeError."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name() | ast.Attribute():
            return point[_name(node)]
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return tuple(_value(part, point) for part in parts)
        case ast.BoolOp(op=ast.And(), values=parts):
            return all(_value(part, point) for part in parts)
        case ast.BoolOp(values=parts):
            return any(_value(part, point) for part in parts)
        case ast.UnaryOp(op=ast.Not(), operand=part):
            return not _value(part, point)
        case ast.UnaryOp(op=op, operand=part):
            return _SIGNS[type(op)](_number(_value(part, point)))
        case ast.BinOp(left=left, op=op, right=right):
            one, other = (_number(_value(part, point)) for part in (left, right))
            return _ARITHMETIC[type(op)](one, other)
        case ast.Compare(left=left, ops=ops, comparators=rest):
            values = [_value(part, point) for part in (left, *rest)]
            pairs = zip(ops, values[:-1], values[1:], strict=True)
            return all(_COMPARISONS[type(op)](one, other) for op, one, other in pairs)
        case ast.Call(func=ast.Name(id=name), args=parts):
            return _FUNCTIONS[name](*(_number(_value(part, point)) for part in parts))
        case _:
            raise TypeError(node)


def _number(value: Any) -> Any:
    """Text and lists are not to be multiplied: what that takes has no bound."""
    if not isinstance(value, int | float):
        raise TypeError(value)
    return value
