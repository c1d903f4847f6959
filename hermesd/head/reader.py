"""Makes long answers beside the loop: in one thread, a slice at a time, user after user.

An answer about a large study takes seconds to make, and nobody else should wait for it. It is made
from a copy of the state, piece by piece. Between two pieces another user has a turn, and each user
has one answer made at a time, so memory is bounded by the number of users. The work stops if the
call has ended, and pauses while a change is written. Small answers are made at once, on the loop.
"""

from __future__ import annotations

import asyncio
import copy
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from hermesd.core.model import UserId
from hermesd.core.state import State
from hermesd.core.tables import CopyIndex, RidingIndex
from hermesd.head.clock import boottime
from hermesd.pieces import Pieces, emptied

T = TypeVar("T")
Key = TypeVar("Key")
Value = TypeVar("Value")
Index = TypeVar("Index", CopyIndex, RidingIndex)

# So many trials are looked at on the loop: a millisecond or few.
SMALL = 200
SLICE_SECONDS = 0.02
# In each slice, the thread waits so long at most for changes, of people or of the head's own tasks.
LONGEST_PAUSE_SECONDS = 0.02
# So often the thread offers the interpreter to the loop; Python's own 5 ms are felt in each call.
SWITCH_SECONDS = 0.0005


def still(state: State) -> State:
    """The state as it is now, to be read while that one changes: what its tables hold is frozen."""
    taken = copy.copy(state)
    for name, table in vars(state).items():
        if isinstance(table, dict):
            setattr(taken, name, dict(table))
    taken.active, taken.sights = _twice(state.active), _twice(state.sights)
    taken.copies, taken.riding = _index(state.copies), _index(state.riding)
    return taken


def _twice(table: dict[Key, Value]) -> dict[Key, Value]:
    """A table with the tables in it."""
    return {key: copy.copy(value) for key, value in table.items()}


def _index(index: Index) -> Index:
    taken = copy.copy(index)
    for each in fields(index):
        setattr(taken, each.name, _twice(getattr(index, each.name)))
    return taken


@dataclass(slots=True)
class _Job:
    begin: Callable[[], Pieces[Any]]
    done: asyncio.Future[Any]
    pieces: Pieces[Any] | None = None


@dataclass(slots=True)
class Reader:
    """The thread, and who waits for it."""

    _thread: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(1, "long-answers")
    )
    _waiting: OrderedDict[UserId, deque[_Job]] = field(default_factory=OrderedDict)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _hurried: int = 0
    _free: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._free.set()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """For the block the thread stands still, though not for good: what threads do that wait for
        the disk takes the interpreter often and shortly, and waits for it each time."""
        self._hurried += 1
        self._free.clear()
        try:
            yield
        finally:
            self._hurried -= 1
            if not self._hurried:
                self._free.set()

    async def do(self, user: UserId, begin: Callable[[], Pieces[T]]) -> T:
        """What the pieces come to that `begin` has on the loop when the user's turn has come.

        Raises whatever they raise.
        """
        job = _Job(begin, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(user, deque()).append(job)
        self._wake.set()
        result: T = await job.done
        return result

    def empty(self, items: list[Any]) -> None:
        """Have very many values that nobody else has any more freed in the thread: the list is
        empty in the end."""
        job = _Job(lambda: emptied(items), asyncio.get_running_loop().create_future())
        self._waiting.setdefault("", deque()).append(job)
        self._wake.set()

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            await self._wake.wait()
            while self._waiting:
                user, jobs = next(iter(self._waiting.items()))
                await self._one_slice(jobs[0])
                if jobs[0].done.done():
                    jobs.popleft()
                if jobs:
                    self._waiting.move_to_end(user)
                else:
                    del self._waiting[user]
            self._wake.clear()

    async def _one_slice(self, job: _Job) -> None:
        if job.done.done():  # the call has ended
            if job.pieces is not None:
                job.pieces.close()
            return
        loop = asyncio.get_running_loop()
        try:
            if job.pieces is None:
                job.pieces = job.begin()
            ended = await loop.run_in_executor(self._thread, _advance, job.pieces, self._free)
        except Exception as error:  # for who has asked; the others' answers go on
            if not job.done.done():
                job.done.set_exception(error)
        else:
            if ended is not None and not job.done.done():
                job.done.set_result(ended[0])


def _advance(pieces: Pieces[Any], free: threading.Event) -> tuple[Any] | None:
    """Go on for a slice, while it is free; at the end what it comes to."""
    until, patience = boottime() + SLICE_SECONDS, LONGEST_PAUSE_SECONDS
    try:
        while (now := boottime()) < until:
            if patience > 0 and not free.is_set():
                free.wait(patience)
                waited = boottime() - now
                until, patience = until + waited, patience - waited
            next(pieces)
    except StopIteration as ended:
        return (ended.value,)
    return None
