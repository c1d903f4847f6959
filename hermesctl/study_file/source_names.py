"""What the names in Python source stand for, as far as the source shows it."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Mapping

# Methods that change what they are called on.
_MUTATORS = frozenset({
    "append", "extend", "insert", "remove", "pop", "clear", "sort", "reverse", "update",
    "setdefault", "popitem", "add",
})  # fmt: skip


def bound_by(node: ast.AST) -> list[str]:
    """The names that may have another value because of a node."""
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            return [name]
        case ast.arg(arg=name) | ast.alias(asname=str(name)):
            return [name]
        case ast.alias(name=name):
            return [name.partition(".")[0]]
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return [node.name]
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
            return [name]
        case ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
            return [name]
        case ast.Global(names=names) | ast.Nonlocal(names=names):
            return names
        case ast.AugAssign(target=ast.Name(id=name)):
            return [name]  # its target counts, too
        case ast.Subscript(value=ast.Name(id=name), ctx=ast.Store() | ast.Del()):
            return [name]
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=word)):
            return [name] if word in _MUTATORS else []
        case _:
            return []


def imported_names(tree: ast.AST) -> dict[str, str]:
    """The full names of what is imported: `{"np": "numpy", "randint": "random.randint"}`. A name
    that is given another value as well is left out."""
    bound: Counter[str] = Counter()
    origins: dict[str, list[str]] = {}
    for node in ast.walk(tree):
        bound.update(bound_by(node))
        match node:
            case ast.Import(names=names):
                found = [
                    (one.asname, one.name) if one.asname else (one.name.partition(".")[0],) * 2
                    for one in names
                ]
            case ast.ImportFrom(module=str(module), names=names, level=0):
                found = [(one.asname or one.name, f"{module}.{one.name}") for one in names]
            case _:
                found = []
        for name, origin in found:
            origins.setdefault(name, []).append(origin)
    return {
        name: each[0]
        for name, each in origins.items()
        if len(each) == bound[name] and len({*each}) == 1
    }


def full_name(node: ast.AST, imported: Mapping[str, str]) -> str:
    """`numpy.random.randint` of `np.random.randint`; empty for what was not imported."""
    match node:
        case ast.Name(id=name):
            return imported.get(name, "")
        case ast.Attribute(value=value, attr=attribute):
            before = full_name(value, imported)
            return f"{before}.{attribute}" if before else ""
        case _:
            return ""
