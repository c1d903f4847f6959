"""A traced function as the loop that calls it needs to know it.

Rule: what is looked up here costs a step as little as it can; it is worked out once, and again
only when the function is given other resources, or a variable became stale or fresh.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from typing import Any

from trainer_shim.adapters import tf_store as store
from trainer_shim.adapters.tf_graph import Definition
from trainer_shim.adapters.tf_journal import STEP, Answer, Journal, Scalars
from trainer_shim.adapters.tf_store import Kind


class Plan:
    """What is known of one traced function."""

    def __init__(
        self,
        name: bytes,
        definition: Definition,
        optionals: dict[int, Any],
        given: int | None,
        scalars: tuple[Kind, ...] | None,
    ) -> None:
        self.name = name
        self.optionals = optionals
        self.label = _label(name)
        self._scalars = scalars
        self.definition = definition
        self.trains = False
        self.is_known_as(False)
        self.is_skipped = False  # run again, the program is only told what it returned
        self.written: set[int] = set()  # numbers of variables
        self.taken: list[tuple[Any, int]] = []  # iterators, and how many elements of each
        self.changes = -1  # of the variables, when this was looked at last
        self.ran = 0  # how many steps were done when it was called last
        self.outdated = -1  # and when what it writes was last said to be stale
        # Resources that may be others the next time: what a trace captures stays.
        every = definition.resources
        self.given = [one for one in every if given is None or one < given]
        self._last: list[Any] = []

    def is_known_as(self, trains: bool) -> None:
        """It is a training step, or only looks at what those have come to."""
        self.trains = trains
        self.asked = STEP + self.label if trains else self.label
        # What an answer of its is journaled as, and its bytes, where that is always the same.
        self.answer: str | Scalars = self.asked
        if self._scalars is not None:
            self.answer = Scalars(self.asked, self._scalars, store.size_of(self._scalars))

    def tell(self, journal: Journal) -> Answer | None:
        """What it returned before; None for a look that was not taken then.

        Raises OtherProgram.
        """
        return journal.tell_step(self.asked) if self.trains else journal.tell_look(self.asked)

    def is_given_others(self, inputs: Sequence[Any]) -> bool:
        """Whether these are other resources than the last time."""
        return any(inputs[at] is not one for at, one in zip(self.given, self._last))

    def remember(self, inputs: Sequence[Any]) -> None:
        """These are the resources that were looked at."""
        self._last = [inputs[at] for at in self.given]

    def size(self, values: Sequence[Any]) -> int:
        """About how many bytes it returned."""
        return sum(value.shape.num_elements() * value.dtype.size for value in values)

    def examples(self, inputs: Sequence[Any]) -> int:
        """The size of the batch, as far as the step is given one."""
        # Not `shape`, whose objects take as long to make as all else here.
        shape: Sequence[int] = inputs[0]._shape_tuple() if inputs else ()
        return shape[0] if shape else 0

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
