"""A traced function as the loop that calls it needs to know it.

Rule: what is looked up here costs a step as little as it can; it is worked out once, and again
only when the function is given other resources, or a variable became stale or fresh.
"""

from __future__ import annotations

import operator
import re
import zlib
from collections.abc import Sequence
from typing import Any, Callable

from trainer_shim.adapters import tf_store as store
from trainer_shim.adapters.tf_graph import Definition


class Plan:
    """What is known of one traced function."""

    def __init__(self, name: bytes, definition: Definition, optionals: dict[int, Any]) -> None:
        self.name = name
        self.optionals = optionals
        self.label = _label(name)
        self.definition = definition
        self.trains = False
        self.is_skipped = False  # run again, the program is only told what it returned
        self.written: set[int] = set()  # numbers of variables
        self.taken: list[tuple[Any, int]] = []  # iterators, and how many elements of each
        self.changes = -1  # of the variables, when this was looked at last
        self.given: tuple[Any, ...] = ()  # the resources it was called with then
        pick = definition.resources
        self.pick: Callable[[Any], tuple[Any, ...]] = lambda _: ()
        if len(pick) == 1:
            self.pick = lambda inputs: (inputs[pick[0]],)
        elif pick:
            self.pick = operator.itemgetter(*pick)

    def examples(self, inputs: Sequence[Any]) -> int:
        """The size of the batch, as far as the step is given one."""
        shape: Sequence[int] = inputs[0].shape if inputs else ()
        return int(shape[0]) if len(shape) else 0

    def checksum(self, inputs: Sequence[Any]) -> int:
        """Of the data that the function was given."""
        resources, whole = set(self.definition.resources), 0
        for position, value in enumerate(inputs):
            if position not in resources and value.dtype.is_numpy_compatible:
                whole = zlib.crc32(store.to_bytes(store.as_array(value)), whole)
        return whole


def _label(name: bytes) -> str:
    """A function's name without what differs from one process to the next."""
    return re.sub(r"^__(inference|forward|backward)_|_\d+$", "", name.decode())
