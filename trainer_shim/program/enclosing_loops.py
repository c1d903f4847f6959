"""How often a program goes through the loops around a place in it, and so how many steps it takes.

This is read from the source and the variables, without executing anything of the program's; a
length that is not given in plain numbers is unknown. A program that leaves a loop early goes
through it less often.
"""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
import types
from collections.abc import Iterable, Iterator
from typing import Any, Callable, NamedTuple

from trainer_shim.program.source_files import syntax_tree

_BARS = ("tqdm", "track")  # they pass on what they are given first
_OPERATIONS = {
    ast.Add: int.__add__,
    ast.Sub: int.__sub__,
    ast.Mult: int.__mul__,
    ast.FloorDiv: int.__floordiv__,
}
_HELD = (list, tuple, range, dict, str)
_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")


class Turn(NamedTuple):
    """How far a loop has come."""

    #: So often its place was left again.
    done: int
    #: So often its place is come to.
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
        return syntax_tree("".join(linecache.getlines(file)))
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
    if isinstance(loop, ast.While):
        return _turn_of_counted(loop, frame)
    if not isinstance(loop, ast.For):
        return None
    source, target = loop.iter, loop.target
    first: Any = None  # what an enumerate begins with; None: there is none
    while isinstance(source, ast.Call) and source.args:
        name = source.func.attr if isinstance(source.func, ast.Attribute) else _id(source.func)
        if name in _BARS:
            source = source.args[0]
        elif name == "enumerate" and isinstance(target, ast.Tuple) and len(target.elts) == 2:
            given = [*source.args[1:], *(one.value for one in source.keywords)]
            first = _value(given[0], frame) if given else 0
            counter, target = target.elts
            source = source.args[0]
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
    if first is None:
        return _turn_among(_value(source, frame), frame.f_locals.get(_id(target)))
    held, now = _value(source, frame), frame.f_locals.get(_id(counter))
    if type(held) not in _HELD or type(now) is not int or type(first) is not int:
        return None
    return Turn(now - first, len(held)) if 0 <= now - first < len(held) else None


def _turn_among(held: Any, now: Any) -> Turn | None:
    """Where a loop over values that lie there is, if they are plain and each is there once."""
    if type(held) not in _HELD:
        return None
    values = list(held)
    is_plain = all(type(one) in (int, float, str) for one in [*values, now])
    if not is_plain or len(set(values)) < len(values) or now not in values:
        return None
    return Turn(values.index(now), len(values))


def _turn_of_counted(loop: ast.While, frame: types.FrameType) -> Turn | None:
    """Where a loop is that goes on while a number of its own is below another: by how often it is
    to be raised still. What else may end the loop ends it earlier."""
    test = loop.test
    while isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        test = next((one for one in test.values if isinstance(one, ast.Compare)), test.values[0])
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return None
    below, bound = test.left, test.comparators[0]
    if isinstance(test.ops[0], (ast.Gt, ast.GtE)):
        below, bound = bound, below
    elif not isinstance(test.ops[0], (ast.Lt, ast.LtE)):
        return None
    name, is_even = _id(below), isinstance(test.ops[0], (ast.LtE, ast.GtE))
    now, end, step = frame.f_locals.get(name), _value(bound, frame), _raised(loop, name)
    if type(now) is not int or type(end) is not int or step is None:
        return None
    # Those to come, with the one under way if it has not raised the number yet.
    is_raised = any(one.lineno < frame.f_lineno for one in loop.body if _raises(one, name))
    left = max(0, -((now - end - is_even) // step)) + is_raised
    done = max(0, now // step - is_raised)
    return Turn(done, done + left)


def _raised(loop: ast.While, name: str) -> int | None:
    """By how much each turn of a loop raises a number; None if that does not stand there."""
    raising = [one for one in loop.body if _raises(one, name)]
    setting = [
        one
        for one in ast.walk(loop)
        if isinstance(one, ast.Name) and one.id == name and isinstance(one.ctx, ast.Store)
    ]
    if not name or len(raising) != 1 or len(setting) != 1:
        return None
    by = raising[0].value.value  # type: ignore[attr-defined]
    return by if type(by) is int and by > 0 else None


def _raises(node: ast.stmt, name: str) -> bool:
    return (
        isinstance(node, ast.AugAssign)
        and isinstance(node.op, ast.Add)
        and _id(node.target) == name
        and isinstance(node.value, ast.Constant)
    )


def _id(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _value(node: ast.AST, frame: types.FrameType) -> Any:
    """What an expression comes to, None if that takes more than a look."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return frame.f_locals.get(node.id, frame.f_globals.get(node.id))
    if isinstance(node, ast.Attribute):
        held = _value(node.value, frame)
        found = inspect.getattr_static(held, node.attr, None)
        return _entry(held, node.attr) if found is None else found
    if isinstance(node, ast.Subscript):
        held, key = _value(node.value, frame), _value(node.slice, frame)
        if isinstance(key, (str, int)):
            return _entry(held, key)
    if isinstance(node, (ast.List, ast.Tuple)):
        return [_value(one, frame) for one in node.elts]
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
        if _id(node.func) == "len" and type(given) in _HELD:
            return len(given)
    return None


def _entry(held: Any, key: str | int) -> Any:
    """An entry of a dict, or of what keeps its entries in one of its own: the configurations of
    OmegaConf, ml_collections and the like, which say `config.epochs`."""
    if isinstance(held, dict):
        return dict.get(held, key)
    try:
        own = vars(held)
    except TypeError:
        return None
    entries = (dict.get(one, key) for one in list(own.values()) if isinstance(one, dict))
    found = next((one for one in entries if one is not None), None)
    return getattr(found, "__dict__", {}).get("_val", found)  # a leaf of OmegaConf's


class PlannedSteps:
    """`tell` is called with the number of all steps as soon as it is known, and again when it turns
    out to be another."""

    def __init__(self, tell: Callable[[int], None]) -> None:
        self._tell = tell
        self._told = 0
        self._place: object = None
        self._first = (0, 0)

    def are_done(self, steps: int) -> bool:
        """Whether these are all the steps that the loops take, as far as is known."""
        return 0 < self._told <= steps

    def at(self, place: object, turn: Turn, before: int, each: float) -> None:
        """So many steps were done `before` the program came to this place once more, in this turn
        of the loops around it.

        Each turn takes `each` steps, as far as the first one shows; what the others took is known
        better. Of several places in the same loops the first one counts.
        """
        if place != self._place:
            if before < self._told:
                return
            self._place, self._first = place, (turn.done, before)
        done, steps = self._first
        if turn.done > done:
            each = (before - steps) / (turn.done - done)
        elif turn.done < done:  # the loops have begun anew
            self._first = turn.done, before
        planned = round(before + each * (turn.times - turn.done))
        if planned != self._told:
            self._told = planned
            self._tell(planned)
