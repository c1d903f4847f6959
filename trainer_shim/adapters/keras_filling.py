"""Objects that are given the contents of others, since the script may hold them too.

Rule: only what is known to keep all that it has in its contents is filled.
"""

from __future__ import annotations

import collections
import random
import types
from typing import Any


def fill(current: Any, value: Any) -> bool:
    """Give an object the contents of another of its type; whether that can be."""
    import numpy as np

    if type(current) is not type(value):
        return False
    if current is value or _fill_random(current, value):
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
        mine, others = vars(current), vars(value)
        # A generator in it may be others' too, and is never but drawn from.
        kept = {name: mine[name] for name in mine.keys() & others.keys()
                if _fill_random(mine[name], others[name])}  # fmt: skip
        mine.clear()
        mine.update(others, **kept)
    else:
        return False
    return True


def _fill_random(current: Any, value: Any) -> bool:
    """Move a generator of random numbers to where another of its type is."""
    import numpy as np

    if type(current) is not type(value):
        return False
    if isinstance(current, np.random.Generator):
        if type(current.bit_generator) is not type(value.bit_generator):
            return False
        current.bit_generator.state = value.bit_generator.state
    elif isinstance(current, np.random.RandomState):
        current.set_state(value.get_state())
    elif isinstance(current, random.Random):
        current.setstate(value.getstate())
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
