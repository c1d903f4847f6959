"""The metrics of a trial: the first that it reports, as many as the head keeps and one frame takes.

Rule: a program may name its metrics by its steps; all that is told of one step goes in one frame.
"""

from __future__ import annotations

import json
from typing import Callable

from trainer_shim.wire import MAX_FRAME_BYTES

MOST = 1_000  # as many as the head keeps
_VALUE_BYTES = 32  # the longest number, and what is between two
_MOST_BYTES = MAX_FRAME_BYTES * 3 // 4  # the rest is for what is told beside them


class Names:
    """The names that are told; `full(why)` is called when there is the first that is not."""

    def __init__(self, signal: str, full: Callable[[str], None]) -> None:
        self._told = {signal}
        self._bytes = _bytes_of(signal)
        self._full = full
        self._is_full = False

    def told(self, values: dict[str, float]) -> dict[str, float]:
        """What is told of these values."""
        if values.keys() <= self._told:
            return values
        return {name: value for name, value in values.items() if self._takes(name)}

    def _takes(self, name: str) -> bool:
        if name in self._told:
            return True
        size = self._bytes + _bytes_of(name)
        if len(self._told) < MOST and size <= _MOST_BYTES:
            self._told.add(name)
            self._bytes = size
            return True
        if not self._is_full:
            self._is_full = True
            told = f"the program reports more metrics than the first {len(self._told)}"
            self._full(f"{told}, which are all that a trial can have; '{name[:100]}' is left out")
        return False


def _bytes_of(name: str) -> int:
    return len(json.dumps(name)) + _VALUE_BYTES
