"""Batches that the program takes from a loader by `next`, beside the loop that trains.

Such an iterator is known by its loader, by what it was begun with and by how many batches
were taken of it, wherever a variable or an attribute of the program holds it; run again, the
program gets it moved to the same place. What else reads batches keeps more than that (a generator,
`cycle`), so a program in which it does only parks.
"""

from __future__ import annotations

import types
import weakref
from typing import Any, Callable, Protocol

from trainer_shim.adapters.torch import for_loop_bytecode, private
from trainer_shim.adapters.torch.loaders import begin_again, begun_with, obstacle, skip
from trainer_shim.adapters.torch.objects import Objects
from trainer_shim.adapters.torch.random import copy_random, set_random
from trainer_shim.adapters.torch.state import State
from trainer_shim.program.source_files import is_programs_own
from trainer_shim.saver import OtherProgram

_READERS = ("torch", "accelerate")
_SAID = "batches of a DataLoader are also read beside the loop that trains, {}"
_HELD_NOWHERE = _SAID.format(
    "by next(), and no variable of the functions that train holds that iterator and its loader, "
    "both made outside of the loop or by iter()"
)


class IteratorUse(Protocol):
    """What reads an iterator over a loader: a loop of the program, a framework, or `next`."""

    taken: int  # batches so far
    has_ended: bool
    before: State  # what its first batch depends on
    loader: weakref.ref[Any]

    @property
    def is_beside(self) -> bool:
        """Whether it is read by `next`, beside the loop that trains."""

    def asked(self, iterator: Any, frame: types.FrameType) -> None:
        """A batch is asked for."""

    def read(self, iterator: Any) -> Any:
        """The next batch. Raises StopIteration."""

    def ended(self, iterator: Any, frame: types.FrameType) -> None:
        """There is no batch left."""


class SideIterator:
    """The place of an iterator that no `for` statement of the program's own loop reads.

    `is_beside` says whether the program reads it, rather than a framework.
    """

    def __init__(self, beside: SideIterators, loader: Any, before: State | None = None) -> None:
        self.taken = 0
        self.has_ended = False
        self.is_beside = before is not None
        self.loader = weakref.ref(loader)
        self.obstacle = obstacle(loader)
        self.before = before or begun_with(loader, beside.objects.large, beside.tell)
        self._beside = beside

    def asked(self, iterator: Any, frame: types.FrameType) -> None:
        """A batch is asked for."""
        if self.taken or self.is_beside or not _is_read_by_program(frame):
            return
        try:
            for_loop_bytecode.statement(frame, iterator)
        except for_loop_bytecode.OtherWay as way:
            self.is_beside = True
            self._beside.begins(iterator, self, self.obstacle, way)

    def read(self, iterator: Any) -> Any:
        """The next batch. Raises StopIteration."""
        return self._beside.next_batch(iterator)

    def ended(self, iterator: Any, frame: types.FrameType) -> None:
        """There is no batch left."""
        self.has_ended = True
        self._beside.ended(iterator)


class SideIterators:
    """The iterators over loaders that there are, some of which are read so: `passes` has the pass
    of each by its `id`, for that is asked at each batch."""

    def __init__(
        self,
        objects: Objects,
        next_batch: Callable[[Any], Any],
        tell: Callable[[str], None],
    ) -> None:
        self.passes: dict[int, IteratorUse] = {}
        self.next_batch = next_batch
        self.new: list[tuple[weakref.ref[Any], str | None]] = []
        self.objects = objects
        self.tell = tell
        self._alive: dict[int, weakref.ref[Any]] = {}
        self._kind: type = private.find(private.LOADER, "_BaseDataLoaderIter")
        self._packed: set[int] = set()
        self._put: dict[int, Any] = {}

    def add(self, iterator: Any, one: IteratorUse) -> None:
        """There is another one, or one that was there begins another pass."""
        key = id(iterator)

        def gone(_: Any) -> None:
            del self.passes[key], self._alive[key]

        self.passes[key], self._alive[key] = one, weakref.ref(iterator, gone)

    # -- what the program reads

    def begins(
        self, iterator: Any, one: IteratorUse, obstacle: str | None, way: for_loop_bytecode.OtherWay
    ) -> None:
        """The first batch of this iterator is asked for in another way than by a `for`.

        `obstacle` is why it could not be moved to its place again.
        """
        one.before = {**one.before, "first": copy_random()}
        reason = obstacle if isinstance(way, for_loop_bytecode.ByHand) else str(way)
        self.new.append((weakref.ref(iterator), reason))

    def ended(self, iterator: Any) -> None:
        """One that is read so has no batch left."""
        if "cycle" in for_loop_bytecode.passages(iterator):
            self.tell(_SAID.format("by cycle(), which keeps what it has read"))

    def look(self) -> None:
        """Tell of those that are new, and still there at a boundary, which cannot be moved."""
        while self.new:
            reference, way = self.new.pop()
            iterator = reference()
            if iterator is None:
                continue
            through = for_loop_bytecode.passages(iterator)
            if way is not None or through:
                self.tell(_SAID.format(way or f"and pass through {through[0]}()"))

    # -- copying

    def begin(self) -> None:
        """All that is packed from here on is one checkpoint's, or put back from one."""
        self._packed.clear()
        self._put.clear()

    def pack(self, value: Any) -> State | None:
        """The place of an iterator that is read so; None for any other value."""
        one = self.passes.get(id(value)) if isinstance(value, self._kind) else None
        if one is None or not one.is_beside or not one.taken:
            return None
        loader = one.loader()
        if loader is None or loader in self.objects.inside:
            return None
        self._packed.add(id(value))
        place = {"loader": self.objects.number(loader), "taken": one.taken, "before": one.before}
        return {"iterator": id(value), **place}

    def lost(self) -> str | None:
        """Why what was packed is not enough to go on from; None if it is."""
        for key, one in list(self.passes.items()):
            if one.is_beside and not one.has_ended and key not in self._packed:
                return _HELD_NOWHERE
        return None

    # -- setting

    def unpack(self, tree: State, current: Any) -> Any:
        """An iterator in that place: what is `current`, or a new one. Random numbers and loaders
        are others afterwards. Raises OtherProgram."""
        number = tree["iterator"]
        if number in self._put:
            return self._put[number]
        found = [one for one in self.objects.alive("loader") if self._is(one, tree["loader"])]
        if not found:
            raise OtherProgram("a loader that was read by next() was not made again")
        (loader,), before = found, tree["before"]
        begin_again(loader, before)
        if any(current is one for one in self._put.values()):
            current = None  # it has come to stand for another one
        iterator = self._put[number] = self._again(loader, current)
        one = SideIterator(self, loader, before)
        self.add(iterator, one)
        set_random(before["first"])
        for _ in range(tree["taken"]):
            try:
                skip(iterator, self.next_batch)
            except StopIteration:
                raise OtherProgram("data read by next() end earlier than they did") from None
        one.taken = tree["taken"]
        return iterator

    def _is(self, loader: Any, number: int) -> bool:
        return self.objects.number(loader) == number

    def _again(self, loader: Any, current: Any) -> Any:
        """An iterator over this loader at its beginning; if it can be, the very same object, for
        others may hold it."""
        known = self.passes.get(id(current)) if isinstance(current, self._kind) else None
        single = private.find(private.LOADER, "_SingleProcessDataLoaderIter")
        if known is None or getattr(known, "is_statement", False):
            return loader._get_iterator()
        if isinstance(current, single) != (loader.num_workers == 0):
            return loader._get_iterator()
        if not isinstance(current, single):
            current._shutdown_workers()
        current.__init__(loader)
        return current


def _is_read_by_program(frame: types.FrameType | None) -> bool:
    """Whether the program asks, by way of what only hands batches on."""
    while frame is not None:
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if package not in _READERS:
            return is_programs_own(frame.f_code.co_filename)
        frame = frame.f_back
    return False
