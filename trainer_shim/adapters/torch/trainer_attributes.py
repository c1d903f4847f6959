"""What the objects of a framework's trainer keep in attributes: callbacks, loops, loggers.

Each object is found again by its place in a list and its class. Its attributes that are plain
values are copied and restored; the program, or the framework, makes the others again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Callable

from trainer_shim.adapters.torch.classes import class_name
from trainer_shim.adapters.torch.pack import Packer, Unpacker
from trainer_shim.adapters.torch.state import State
from trainer_shim.saver import OtherProgram

#: Of an object, the attributes that are left alone.
LeftOut = Callable[[Any], Collection[str]]


def _none(one: Any) -> Collection[str]:
    return ()


def attributes(one: Any, packer: Packer, left_out: Iterable[str] = ()) -> State:
    """The attributes of an object that are plain values, but for those `left_out`."""
    return packer.pack_some((k, v) for k, v in vars(one).items() if k not in left_out)


def copy_each(kept: Iterable[Any], packer: Packer, left_out: LeftOut = _none) -> list[State]:
    """Class and attributes of each."""
    return [
        {"class": class_name(type(one)), "values": attributes(one, packer, left_out(one))}
        for one in kept
    ]


def check_each(kept: Sequence[Any], copies: list[State], what: str) -> None:
    """Raise OtherProgram if these are not those that were copied."""
    now, then = [class_name(type(one)) for one in kept], [copy["class"] for copy in copies]
    if now != then:
        raise OtherProgram(f"the {what} are {now}, at the checkpoint they were {then}")


def put_back_each(
    kept: Sequence[Any],
    copies: list[State],
    unpacker: Unpacker,
    what: str,
    left_out: LeftOut = _none,
) -> None:
    """Set what `copy_each` copied. Raises OtherProgram."""
    check_each(kept, copies, what)
    for one, copy in zip(kept, copies):
        alone = left_out(one)
        values = {name: value for name, value in copy["values"].items() if name not in alone}
        unpacker.put_some(values, vars(one))
