"""Objects that are given the contents of others, since the script may hold them too.

Rule: only what is known to keep all that it has in its contents is filled.
"""

from __future__ import annotations

import collections
import types
from typing import Any


def fill(current: Any, value: Any) -> bool:
    """Give an object the contents of another of its type; whether that can be."""
    import numpy as np

    if type(current) is not type(value):
        return False
    if current is value:
        return True
    if isinstance(current, (list, collections.deque)):
        current.clear()
        current.extend(value)
    elif isinstance(current, (dict, set)):
        current.clear()
        current.update(value)
    elif isinstance(current, np.ndarray) and current.flags.owndata and current.flags.writeable:
        if (current.shape, current.dtype) != (value.shape, value.dtype):
            return False
        current[...] = value
    elif isinstance(current, types.MethodType):
        return current.__func__ is value.__func__ and fill(current.__self__, value.__self__)
    elif _is_plain_object(current):
        vars(current).clear()
        vars(current).update(vars(value))
    else:
        return False
    return True


def _is_plain_object(value: Any) -> bool:
    """Whether it is of a class of Python's own, and all that it keeps in its attributes."""
    kind = type(value)
    ways = ("__reduce_ex__", "__reduce__", "__new__")
    plain = all(getattr(kind, way) is getattr(object, way) for way in ways)
    slots = any("__slots__" in vars(one) for one in kind.__mro__)
    return plain and not slots and isinstance(getattr(value, "__dict__", None), dict)
