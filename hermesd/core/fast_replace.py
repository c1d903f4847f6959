"""`replace` for frozen dataclasses, as in `dataclasses`, but in a third of the time.

Most of the time of a replay goes into it. It is for dataclasses with slots, all of whose fields are
arguments that are kept as they are, since it does not run `__init__`. A class whose `__init__`
checks or changes them is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

T = TypeVar("T")
Setter: TypeAlias = Callable[[object, object], None]

if TYPE_CHECKING:
    # Its checker knows the fields of the class that it is called for.
    from dataclasses import replace as replace
else:

    def replace(value: T, /, **changes: Any) -> T:
        """A copy with some fields changed.

        Raises:
            KeyError: for a name that is no field.
            TypeError: the class looks at its fields when it is made.
        """
        copied, setters = _shape(type(value))
        copy = copied(value)
        for name, new in changes.items():
            setters[name](copy, new)
        return copy


@cache
def _shape(kind: type) -> tuple[Callable[[object], object], Mapping[str, Setter]]:
    """How to copy a value of a class, written out as `dataclasses` does with an `__init__`, and how
    to set each of its fields."""
    if hasattr(kind, "__post_init__"):
        raise TypeError(f"{kind.__name__} looks at its fields when it is made")
    setters = {field.name: getattr(kind, field.name).__set__ for field in fields(kind)}
    known: dict[str, Any] = {f"set_{name}": setter for name, setter in setters.items()}
    known |= {"new": object.__new__, "kind": kind}
    head = f"def copied(value, {', '.join(f'{name}={name}' for name in known)}):"
    body = [f"set_{name}(copy, value.{name})" for name in setters]
    exec("\n ".join([head, "copy = new(kind)", *body, "return copy"]), known)
    copied: Callable[[object], object] = known["copied"]
    return copied, setters
