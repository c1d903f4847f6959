"""What the program's own functions, classes and modules keep: variables from around a function,
and attributes.

Rule: each is known by the way that leads to it from the program's variables, what was made first
being tried first; of what it keeps, plain values are copied and put back as those variables are. A
default value is changed and never replaced. What an `Enum` holds is constant.
"""

from __future__ import annotations

import enum
import functools
import inspect
import sys
import types
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

from trainer_shim.adapters.torch_classes import class_name, is_own, is_walked
from trainer_shim.adapters.torch_pack import PLAINS, TooMuch
from trainer_shim.sources import is_programs_own

if TYPE_CHECKING:
    from trainer_shim.adapters.torch_pack import Packer, Tree
    from trainer_shim.adapters.torch_unpack import Unpacker

_LONG = 256  # a collection of more items is data: no function is looked for in it
_SCHEDULERS = "torch.optim.lr_scheduler."  # they are given functions
_Named = Iterable[tuple[str, Any]]


class _Keeper(NamedTuple):
    """What keeps values by names; `put` sets one."""

    values: dict[str, Any]
    put: Callable[[str, Any], None]


def copy_kept(variables: _Named, packer: Packer) -> dict[str, Tree]:
    """What the functions, classes and modules that these lead to keep, by the ways to them.
    Raises TooMuch."""
    copies = {}
    for way, keeper in _keepers(variables):
        there = [(name, value) for name, value in keeper.values.items() if name[:2] != "__"]
        try:
            kept = packer.pack_some(there)
        except TooMuch as error:
            raise error.of(way) from None
        if kept:
            copies[way] = {"keeps": kept}
    return copies


def put_back_kept(variables: _Named, copies: dict[str, Tree], unpacker: Unpacker) -> None:
    """Set what `copy_kept` copied, in what the program has made again."""
    keepers = dict(_keepers(variables))
    for way, copy in copies.items():
        if way not in keepers:
            continue
        before, put = keepers[way]
        values = dict(before)
        unpacker.put_some(copy["keeps"], values)
        for name, value in values.items():
            if name not in before or value is not before[name]:
                put(name, value)


def _keepers(variables: _Named) -> Iterator[tuple[str, _Keeper]]:
    seen: dict[int, Any] = {}
    waiting = list(variables)[::-1]
    while waiting:
        way, value = waiting.pop()
        if type(value) in PLAINS or id(value) in seen:
            continue
        seen[id(value)] = value
        parts = []
        for more, keeper in _kept_by(value):
            yield way + more, keeper
            parts += [(f"{more}.{name}", part) for name, part in keeper.values.items()]
        parts += _parts(value)
        waiting += [(way + more, part) for more, part in reversed(parts)]


def _kept_by(value: Any) -> Iterator[tuple[str, _Keeper]]:
    if isinstance(value, types.FunctionType):
        if is_programs_own(value.__code__.co_filename):
            yield "()", _around(value)
        if is_programs_own(_code(value).co_filename):
            yield "", _Keeper(dict(vars(value)), functools.partial(setattr, value))
    elif isinstance(value, type) and is_own(value) and not issubclass(value, enum.Enum):
        # Not by what its metaclass makes of it.
        yield "", _Keeper(dict(vars(value)), functools.partial(type.__setattr__, value))
    elif isinstance(value, types.ModuleType) and _is_beside(value):
        yield "", _Keeper(dict(vars(value)), functools.partial(setattr, value))


def _code(function: types.FunctionType) -> types.CodeType:
    """That of the function which a decorator has wrapped, if any: the attributes are its own."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return code if isinstance(code, types.CodeType) else function.__code__


def _is_beside(module: types.ModuleType) -> bool:
    """Whether it is the program's own, and not the one whose variables are those of a frame."""
    names = vars(module)
    return names.get("__name__") != "__main__" and is_programs_own(names.get("__file__"))


def _around(function: types.FunctionType) -> _Keeper:
    """The variables from around a function, and those of its default values that can change."""
    code, defaults = function.__code__, function.__defaults__ or ()
    cells = dict(zip(code.co_freevars, function.__closure__ or ()))
    arguments = code.co_varnames[: code.co_argcount][code.co_argcount - len(defaults) :]
    values = {**dict(zip(arguments, defaults)), **(function.__kwdefaults__ or {})}
    values = {name: value for name, value in values.items() if type(value) not in PLAINS}
    for name, cell in cells.items():
        try:
            values[name] = cell.cell_contents
        except ValueError:
            continue  # nothing was assigned yet

    def put(name: str, value: Any) -> None:
        if name in cells:
            cells[name].cell_contents = value

    return _Keeper(values, put)


def _parts(value: Any) -> list[tuple[str, Any]]:
    """What else a value leads to, by what its name becomes."""
    kind = type(value)
    if kind is types.FunctionType:
        return [(".__module__", sys.modules.get(value.__globals__.get("__name__", "")))]
    if isinstance(value, type):
        return [(".__bases__", value.__bases__)] if is_own(value) else []
    if kind in (list, tuple):
        return [(f"[{at}]", one) for at, one in enumerate(value)] if len(value) <= _LONG else []
    if kind is dict:
        return [(f"[{key!r}]", one) for key, one in _short(value) if type(key) in PLAINS]
    names = _LEADING.get(kind)
    if names is not None:
        return [(f".{name}", getattr(value, name)) for name in names]
    return _parts_of_object(kind, value)


def _parts_of_object(kind: type, value: Any) -> list[tuple[str, Any]]:
    """Its class and its attributes; of a library's object those that the program has given it."""
    import torch

    if is_own(kind):
        parts = [("__class__", kind), *getattr(value, "__dict__", {}).items()]
    elif issubclass(kind, torch.nn.Module):
        parts = [*value._modules.items()]
    elif is_walked(kind) or class_name(kind).startswith(_SCHEDULERS):
        parts = [*getattr(value, "__dict__", {}).items()]
    else:
        parts = []
    return [(f".{name}", one) for name, one in parts if type(one) not in PLAINS]


def _short(value: dict[Any, Any]) -> list[tuple[Any, Any]]:
    return list(value.items()) if len(value) <= _LONG else []


_LEADING: dict[type, tuple[str, ...]] = {
    functools.partial: ("func", "args", "keywords"),
    types.MethodType: ("__func__", "__self__"),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    property: ("fget", "fset"),
    type(functools.lru_cache(len)): ("__wrapped__",),
}
