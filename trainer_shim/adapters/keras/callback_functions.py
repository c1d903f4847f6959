"""The functions that callbacks were given, such as a schedule, and where they keep values.

What one of the program's own functions assigns or could change (variables of the enclosing
function, globals, its defaults and attributes) is handled like a callback's attributes. So is what
the functions that it calls keep. What is in another module, or is large, is not handled, and the
fidelity says so; so it does about other places where the methods of a callback's own class may keep
something.
"""

from __future__ import annotations

import dis
import functools
import os
import sys
import types
from collections.abc import Iterable, Iterator
from typing import Any, Callable

from trainer_shim.adapters.keras.backend import here
from trainer_shim.program.source_files import is_programs_own

_LARGE_BYTES = 1 << 20
_SETTING = {"STORE_GLOBAL", "DELETE_GLOBAL", "STORE_DEREF", "DELETE_DEREF"}
_CONSTANT = (
    type(None), bool, int, float, complex, str, bytes, type, types.ModuleType, types.FunctionType,
    types.BuiltinFunctionType, types.MethodWrapperType, functools.partial,
)  # fmt: skip
_DESCRIPTORS = (property, classmethod, staticmethod)
Doubt = Callable[[str], None]


class Function:
    """A function, and the places where it keeps something; they stay the same ones."""

    def __init__(self, function: types.FunctionType, doubt: Doubt) -> None:
        self._function = function
        self.name = function.__qualname__
        self._cells: dict[str, Any] = {}
        self._globals: list[str] = []
        self.named: list[Any] = []  # what it may call
        uses, sets = _names(function.__code__)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            if self._is_kept(name, _content(cell), name in sets, doubt):
                self._cells[name] = cell
        for name in sorted(uses - self._cells.keys()):
            value = function.__globals__.get(name)
            if self._is_kept(name, value, name in sets, doubt):
                self._globals.append(name)

    def _is_kept(self, name: str, value: Any, is_set: bool, doubt: Doubt) -> bool:
        self.named.append(value)
        if is_set:
            return True
        if isinstance(value, types.ModuleType) and _is_of_the_program(value.__dict__):
            doubt(f"what the module {value.__name__} keeps for {self.name} is not seen")
        if isinstance(value, _CONSTANT) or here().is_constant(value):
            return False
        if _size(value) > _LARGE_BYTES:
            doubt(f"whether {self.name} changes {name} is not seen")
            return False
        return True

    def items(self) -> Iterator[tuple[str, Any]]:
        """Each place, and what is there now."""
        own = [(name, getattr(self._function, name)) for name in ("__dict__", "__defaults__")]
        return iter([*self.kept(), *own])

    def kept(self) -> list[tuple[str, Any]]:
        """Those of the places that are not the function itself."""
        found = [(name, _content(cell)) for name, cell in self._cells.items()]
        values = self._function.__globals__
        return found + [(name, values[name]) for name in self._globals if name in values]

    def sets_of(self, kind: type) -> set[str]:
        """The attributes that it may set of a class: all that it sets, if it names the class."""
        code = self._function.__code__
        if not {"type", "__class__", kind.__name__} & {*code.co_names}:
            return set()
        return {one.argval for one in dis.get_instructions(code) if one.opname == "STORE_ATTR"}

    def put(self, name: str, value: Any) -> None:
        """Set what is in one place."""
        if name in self._cells:
            self._cells[name].cell_contents = value
        elif name in self._globals:
            self._function.__globals__[name] = value
        else:
            setattr(self._function, name, value)


def held(attributes: Iterable[Any], doubt: Doubt) -> list[Function]:
    """The program's own functions among attributes of callbacks, and those that they name."""
    waiting, found = list(attributes), dict[int, Function]()
    while waiting:
        value = waiting.pop(0)
        for one in _functions_in(value):
            if id(one) not in found and _is_of_the_program(one.__globals__):
                found[id(one)] = function = Function(one, doubt)
                waiting += function.named
    return list(found.values())


def doubt_of(callback: Any) -> str | None:
    """Why not all that a callback keeps may come back; None for what is Keras' own throughout."""
    kind = type(callback)
    unseen = "is not seen; `hermesctl verify-resume` shows it"
    if not kind.__module__.startswith("keras."):
        places = ", ".join(_places(callback))
        return (
            f"{kind.__name__} is no callback of Keras' own: its attributes come back, and whether"
            f" it keeps anything elsewhere {places and f'(in {places}) '}{unseen}"
        )
    if kind.__name__ == "LambdaCallback":
        return (
            "LambdaCallback calls functions of the program's own: their globals and the variables"
            f" around them come back, and whether they keep anything elsewhere {unseen}"
        )
    return None


def _places(callback: Any) -> list[str]:
    """The globals, variables and attributes of its class that a callback's methods may change."""
    kinds = [one for one in type(callback).__mro__ if _is_own_class(one)]
    methods = held([value for one in kinds for value in vars(one).values()], lambda _: None)
    model = getattr(callback, "model", None)
    places = {name for one in methods for name, value in one.kept() if value is not model}
    for one in kinds:
        set_by_class = {name for method in methods for name in method.sets_of(one)}
        places |= {
            f"{one.__name__}.{name}" for name, value in vars(one).items()
            if name in set_by_class
            or not (name.startswith("__") or isinstance(value, (*_CONSTANT, *_DESCRIPTORS)))
        }  # fmt: skip
    return sorted(places)


def _is_own_class(kind: type) -> bool:
    module = sys.modules.get(kind.__module__)
    return module is not None and _is_of_the_program(vars(module))


def _functions_in(value: Any) -> Iterator[types.FunctionType]:
    if isinstance(value, (list, tuple)):
        for part in value[:_LARGE_BYTES]:
            yield from _functions_in(part) if not isinstance(part, (list, tuple)) else ()
    elif isinstance(value, functools.partial):
        yield from _functions_in(value.func)
    elif isinstance(value, types.FunctionType):
        yield value
    elif isinstance(value, types.MethodType):
        yield from _functions_in(value.__func__)
    else:
        call = vars(type(value)).get("__call__")
        if isinstance(call, types.FunctionType):
            yield call


def _names(code: types.CodeType) -> tuple[set[str], set[str]]:
    """The globals that code uses, and those and the variables from around it that it sets."""
    uses, sets = set(), set()
    for instruction in dis.get_instructions(code):
        if instruction.opname in _SETTING:
            sets.add(instruction.argval)
        if instruction.opname.endswith("_GLOBAL"):
            uses.add(instruction.argval)
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            inner_uses, inner_sets = _names(inner)
            uses |= inner_uses
            sets |= inner_sets
    return uses, sets


def _is_of_the_program(namespace: dict[str, Any]) -> bool:
    """Whether a module is none that is installed or built in."""
    path = namespace.get("__file__")
    if path is None:
        return namespace.get("__name__") == "__main__"
    return is_programs_own(os.path.abspath(path))


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None  # nothing was assigned yet


def _size(value: Any) -> int:
    size = getattr(value, "nbytes", None)
    return size if isinstance(size, int) else sys.getsizeof(value)
