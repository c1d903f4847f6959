"""Batches that the program takes from a loader by `next`, beside the loop that trains.

Lines before the training and between its passes take them once more when the program is run again.
Lines within a pass do not: if these take batches of an iterator that still exists afterward, the
program can only be parked.
"""

from __future__ import annotations

import types
import weakref
from typing import Any, Callable, Protocol

from trainer_shim.adapters.torch import for_loop_bytecode
from trainer_shim.program.source_files import is_programs_own

_READERS = ("torch", "accelerate")
_SAID = "batches of a DataLoader are also read beside the loop that trains: {}"


class IteratorUse(Protocol):
    """What reads an iterator over a loader: a loop of the program, a framework, or `next`."""

    taken: int  # batches so far

    def asked(self, iterator: Any, frame: types.FrameType) -> None:
        """A batch is asked for."""

    def read(self, iterator: Any) -> Any:
        """The next batch. Raises StopIteration."""

    def ended(self, iterator: Any, frame: types.FrameType) -> None:
        """There is no batch left."""


class FrameworkPass:
    """A pass over a loader on which a framework does not train, within its training."""

    def __init__(self, beside: SideIterators) -> None:
        self.taken = 0
        self._beside = beside

    def asked(self, iterator: Any, frame: types.FrameType) -> None:
        """A batch is asked for."""
        if not _is_read_by_program(frame):
            return
        try:
            for_loop_bytecode.statement(frame, iterator)
        except for_loop_bytecode.OtherWay as way:
            self._beside.took(iterator, str(way))

    def read(self, iterator: Any) -> Any:
        """The next batch. Raises StopIteration."""
        return self._beside.next_batch(iterator)

    def ended(self, iterator: Any, frame: types.FrameType) -> None:
        """There is no batch left."""


class SideIterators:
    """The iterators over loaders that there are."""

    def __init__(self, next_batch: Callable[[Any], Any], tell: Callable[[str], None]) -> None:
        #: What reads each of them, by its `id`, since that is asked at each batch.
        self.passes: dict[int, IteratorUse] = {}
        self.next_batch = next_batch
        self.new: list[tuple[weakref.ref[Any], str]] = []
        self._tell = tell
        self._alive: dict[int, weakref.ref[Any]] = {}

    def add(self, iterator: Any, one: IteratorUse) -> None:
        """There is another one, or one that was there begins another pass."""
        key = id(iterator)

        def gone(_: Any) -> None:
            del self.passes[key], self._alive[key]

        self.passes[key], self._alive[key] = one, weakref.ref(iterator, gone)

    def took(self, iterator: Any, way: str) -> None:
        """Lines that are not run again take a batch in another way than by a `for`."""
        self.new.append((weakref.ref(iterator), way))

    def look(self) -> None:
        """Tell of those that lines since the last boundary took from and that are still there."""
        while self.new:
            reference, way = self.new.pop()
            iterator = reference()
            if iterator is not None:
                through = for_loop_bytecode.passages(iterator)
                self._tell(_SAID.format(f"they pass through {through[0]}()" if through else way))


def _is_read_by_program(frame: types.FrameType | None) -> bool:
    """Whether the program asks, by way of what only hands batches on."""
    while frame is not None:
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if package not in _READERS:
            return is_programs_own(frame.f_code.co_filename)
        frame = frame.f_back
    return False
