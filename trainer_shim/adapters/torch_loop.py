"""One pass over a DataLoader: where it is, what it leaves behind, and how it goes on.

Rule: the boundary of an iteration is the moment the `for` statement asks for the next batch
(or learns that there is none), after everything its body has done. Of a pass that had ended
before the checkpoint nothing is run again: its loop is empty and the plain variables that it
left are put in place. The pass under way is begun with the random numbers it was begun with,
and moved to its batch without running the body.
"""

from __future__ import annotations

import sys
import types
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from trainer_shim.adapters import torch_statement as statements
from trainer_shim.adapters.torch_loaders import (
    begun_with,
    copy_loader,
    obstacle,
    put_back_loader,
    skip,
)
from trainer_shim.adapters.torch_pack import TooMuch
from trainer_shim.adapters.torch_random import copy_random, set_random
from trainer_shim.adapters.torch_state import OtherProgram, State
from trainer_shim.adapters.torch_whole import copy_variables, fit, put_back_variables

if TYPE_CHECKING:
    from trainer_shim.adapters.torch import Session

LEFT_UNSEEN = "a for statement over a DataLoader was left by return or an exception"


class Pass:
    """The `number`-th pass; `past` is where it was at the checkpoint, None if it is new. When it
    was opened, the collector of garbage had run `since` times.

    It turns out with the first batch whether a `for` statement reads it. A pass read in any
    other way is left alone, and read again from its start when the program is run again.
    """

    def __init__(
        self, session: Session, loader: Any, number: int, past: State | None, since: int
    ) -> None:
        self.number = number
        self.read = session.next_batch  # of an iterator its next one
        self.taken = 0
        self.stepped = False  # an optimizer has stepped since the last boundary
        self.trained = False
        self.is_statement: bool | None = None
        self.made_before = 0
        self.loaders = 0  # that had been made when a batch was last asked for
        self.before = begun_with(loader, session.objects.large, session.obstacle)
        self.obstacle = obstacle(loader)
        self.batch_size = getattr(loader, "batch_size", None) or 0
        self._counted = 0
        self._is_made_inside = session.is_in_a_pass()
        self._session = session
        self.has_ended = False
        self.loader = weakref.ref(loader)
        self._past = past
        self._since = since
        self._code: Any = None
        self._at = 0
        self._gone: Any = None

    def watch(self, iterator: Any) -> None:
        """Learn when the iterator is dropped before its data have ended."""

        def gone(_: Any) -> None:
            try:
                frame = sys._getframe(1)
            except ValueError:
                return  # the process ends, and runs nothing any more
            self._dropped(frame)

        self._gone = weakref.ref(iterator, gone)

    def examples(self) -> int:
        """Examples read since this was last asked."""
        count, self._counted = self.taken - self._counted, self.taken
        return count * self.batch_size

    def asked(self, iterator: Any, frame: types.FrameType) -> None:
        """A batch is asked for by `frame`: the one taken before is done with."""
        session = self._session
        self.loaders = session.objects.loaders
        if self.is_statement is None:
            self._begin(iterator, frame)
        if self.is_statement and session.is_inside(self) and self.stepped:
            self.stepped = False
            session.boundary(self, frame)

    @property
    def is_beside(self) -> bool:
        """Whether no `for` statement reads it, nor will one when the program is run again."""
        return self.is_statement is False or (self.is_statement is None and self._is_made_inside)

    def ended(self, iterator: Any, frame: types.FrameType) -> None:
        """There is no batch left."""
        self.has_ended = True
        self.loaders = self._session.objects.loaders
        if not self.is_statement:
            self._session.beside.ended(iterator)
        if self.is_statement and self._session.is_inside(self):
            if self.trained:
                self._session.may_end(self, frame)
            self._session.over(self, self._left(frame))

    def encloses(self, frame: types.FrameType) -> bool:
        """Whether `frame` is executing the body of this pass."""
        return statements.is_inside(frame, self._code, self._at)

    def _begin(self, iterator: Any, frame: types.FrameType) -> None:
        try:
            where, counters = statements.statement(frame, iterator, self._since)
        except statements.OtherWay as error:
            self.is_statement = False
            self._session.other_way = str(error)
            self._session.beside.begins(iterator, self, self.obstacle, error)
            return
        self._code, self._at = where.f_code, where.f_lasti
        self.is_statement = True
        self._session.enter(self, where)
        if self._past is not None:
            with self._session.restoring():
                self._go_on(iterator, counters, frame, self._past)
                self._past = None

    def _go_on(
        self, iterator: Any, counters: list[Any], frame: types.FrameType, past: State
    ) -> None:
        is_last = self._session.is_last(self.number)
        skipped = past["taken"] if is_last else past["taken"] - 1
        for index in range(skipped):
            try:
                skip(iterator, self._session.next_batch)
            except StopIteration:
                raise OtherProgram(f"the data end after {index} batches of {skipped}") from None
        for counter in counters:
            statements.advance(counter, skipped)
        self.taken = self._counted = skipped
        self.loaders = self._session.objects.loaders = past["loaders"]
        if is_last:
            self._session.go_on(frame)
            self.trained = True

    def _left(self, frame: types.FrameType) -> State | str:
        """What this pass leaves behind, or why that cannot be known."""
        loader = self.loader()
        session = self._session
        try:
            return {
                "random": copy_random(),
                "loader": {} if loader is None else copy_loader(loader),
                "loaders": session.objects.loaders,
                "weights": None,
                "variables": copy_variables(frame, session.left.packer()),
            }
        except TooMuch as error:
            return f"the checkpoint would have to hold {error}"
        except Exception as error:  # whatever the program's own classes raise: it trains on
            return f"the variables of the program cannot be read: {type(error).__name__}: {error}"

    def _dropped(self, frame: types.FrameType) -> None:
        if not self.is_statement or not self._session.is_inside(self):
            return
        is_break = statements.is_break(frame, self._code, self._at)
        self._session.over(self, self._left(frame) if is_break else LEFT_UNSEEN)
        if self.stepped and frame.f_code is self._code:
            self._session.boundary(self, frame)
        if self.trained and is_break:
            self._session.may_end(self, frame)


class Ended:
    """In place of the iterator of a pass that had ended before the checkpoint."""

    def __init__(self, session: Session, loader: Any, number: int, past: State) -> None:
        self._session = session
        self._loader = loader
        self._number = number
        self._past = past

    def __iter__(self) -> Iterator[Any]:
        return self

    def __len__(self) -> int:
        return len(self._loader)

    def __next__(self) -> NoReturn:
        with self._session.restoring():
            self._end(sys._getframe(1))
        raise StopIteration

    def _end(self, frame: types.FrameType) -> None:
        session, left, site = self._session, self._past["left"], self._past["site"]
        session.objects.loaders = left["loaders"]
        if session.is_last(self._number):
            session.go_on(frame)  # the checkpoint is of the moment this pass was left
            session.between.over(self._past, True)
            return
        variables = session.left.of(site, left["variables"])
        if not fit(frame, variables):
            raise OtherProgram(f"other functions are run in {site}")
        session.between.put_back(self._past)
        unpacker = session.unpacker([])
        put_back_variables(frame, variables, unpacker)
        put_back_loader(self._loader, left["loader"], unpacker)
        set_random(left["random"])


def expected(records: list[State], number: int, site: str) -> State:
    """The record of a pass that is begun again in this place. Raises OtherProgram."""
    if number >= len(records):
        raise OtherProgram(f"pass {number + 1} in {site} was not there at the checkpoint")
    if records[number]["site"] != site:
        raise OtherProgram(f"a pass in {site}, at the checkpoint in {records[number]['site']}")
    return records[number]
