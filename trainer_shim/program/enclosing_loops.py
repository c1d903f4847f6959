"""How often a program goes through the loops that a place in it lies in, and how often it has.

Read off the source and the variables, without running anything of the program's; a length
that does not stand there in plain numbers is not known. One who leaves a loop early goes through
it less often than this.
"""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
import types
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

_BARS = ("tqdm", "track")  # they pass on what they are given first
_OPERATIONS = {
    ast.Add: int.__add__,
    ast.Sub: int.__sub__,
    ast.Mult: int.__mul__,
    ast.FloorDiv: int.__floordiv__,
}
_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")


class Turn(NamedTuple):
    """As many `times` a place is come to, and as many of these it was left again."""

    done: int
    times: int


def turn(frames: Iterable[types.FrameType]) -> Turn | None:
    """Where a program is in all the loops around the place at which `frames` are, functions that
    called each other, the innermost first. None while the length of one of them is not known."""
    done, times = 0, 1
    for frame in frames:
        code = frame.f_code
        is_made_of_another = code.co_name.startswith("<") and code.co_name != "<module>"
        if is_made_of_another or code.co_flags & inspect.CO_GENERATOR:
            return None
        for loop in reversed(_around(code.co_filename, frame.f_lineno)):
            there = _turn(loop, frame)
            if there is None:
                return None
            done, times = done + times * there.done, times * there.times
    return Turn(done, times)


@functools.lru_cache(maxsize=256)
def _around(file: str, line: int) -> tuple[ast.AST, ...]:
    """The loops of the innermost function with this line whose bodies have it, outermost first."""
    loops: list[ast.AST] = []
    inner: ast.AST | None = _tree(file)
    while inner is not None:
        node = inner
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            loops.clear()
        is_loop = isinstance(node, (ast.For, ast.AsyncFor, ast.While))
        if is_loop and any(_has(one, line) for one in node.body):  # type: ignore[attr-defined]
            loops.append(node)
        inner = next((one for one in _statements(node) if _has(one, line)), None)
    return tuple(loops)


@functools.lru_cache(maxsize=16)
def _tree(file: str) -> ast.AST | None:
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return None


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    for block in _BLOCKS:
        yield from getattr(node, block, ())


def _has(node: ast.AST, line: int) -> bool:
    if isinstance(node, ast.ExceptHandler) or hasattr(node, "lineno"):
        decorators = getattr(node, "decorator_list", ())
        first = min([node.lineno, *(one.lineno for one in decorators)])
        return bool(first <= line <= (getattr(node, "end_lineno", None) or first))
    return any(_has(one, line) for one in _statements(node))  # a case


def _turn(loop: ast.AST, frame: types.FrameType) -> Turn | None:
    """Where a function is in one of its loops."""
    if not isinstance(loop, ast.For):
        return None
    source, target = loop.iter, loop.target
    while isinstance(source, ast.Call) and source.args:
        name = source.func.attr if isinstance(source.func, ast.Attribute) else _id(source.func)
        if name in _BARS:
            source = source.args[0]
        elif name == "enumerate" and isinstance(target, ast.Tuple) and len(target.elts) == 2:
            source, target = source.args[0], target.elts[1]
        elif name in ("range", "trange"):
            numbers = [_value(one, frame) for one in source.args]
            now = frame.f_locals.get(_id(target))
            if type(now) is not int or not all(type(one) is int for one in numbers):
                return None
            try:
                through = range(*numbers)
                return Turn(through.index(now), len(through))
            except (TypeError, ValueError):  # no range, or a variable that is not its own
                return None
        else:
            return None
    return None


def _id(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _value(node: ast.AST, frame: types.FrameType) -> Any:
    """What an expression comes to, None if that takes more than a look."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return frame.f_locals.get(node.id, frame.f_globals.get(node.id))
    if isinstance(node, ast.Attribute):
        return inspect.getattr_static(_value(node.value, frame), node.attr, None)
    if isinstance(node, ast.Subscript):
        held, key = _value(node.value, frame), _value(node.slice, frame)
        if type(held) is dict and isinstance(key, (str, int)):
            return held.get(key)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        both = _value(node.left, frame), _value(node.right, frame)
        if all(type(one) is int for one in both) and (both[1] or type(node.op) is not ast.FloorDiv):
            return _OPERATIONS[type(node.op)](*both)
    if isinstance(node, ast.Call) and _id(node.func) in ("int", "len") and len(node.args) == 1:
        given = _value(node.args[0], frame)
        if _id(node.func) == "int" and type(given) in (int, float, str):
            try:
                return int(given)
            except (ValueError, OverflowError):
                return None
        if _id(node.func) == "len" and type(given) in (list, tuple, range, dict, str):
            return len(given)
    return None
