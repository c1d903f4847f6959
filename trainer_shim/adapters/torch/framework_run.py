"""One call of a framework's own training loop: Lightning's `fit`, or Hugging Face's `train`.

An iteration ends where the framework has done everything that follows a step of the optimizer. A
program that is run again makes the same call. Before the first batch, its loader is read up to the
batch that comes next, without computing, and everything is restored. What the framework itself
counts and keeps is handled by its `Driver`.
"""

from __future__ import annotations

import os
import sys
import types
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Callable, Protocol

from trainer_shim.adapters.torch import private
from trainer_shim.adapters.torch.loadable import Weights
from trainer_shim.adapters.torch.loaders import begin_again, begun_with, obstacle, skip
from trainer_shim.adapters.torch.objects import Inventory
from trainer_shim.adapters.torch.pack import Packer, Unpacker
from trainer_shim.adapters.torch.program_state import note
from trainer_shim.adapters.torch.random import copy_random, set_random
from trainer_shim.adapters.torch.side_iterators import FrameworkPass
from trainer_shim.adapters.torch.state import Files, State, TorchSnapshot
from trainer_shim.adapters.torch.tensor_bytes import Unplain
from trainer_shim.agent import CannotCapture
from trainer_shim.saver import OtherProgram

if TYPE_CHECKING:
    from trainer_shim.adapters.torch.loop import TorchSession


# A batch that a framework has read ahead of the step that uses it.
#
# It is in the checkpoint, as it may hold numbers that were drawn for it; only collections
# of plain values can be, for there is nothing yet into which an object could be put back.

_ENCODING = "BatchEncoding"


class _Plain(Packer):
    """Packs no objects."""

    def _object(self, kind: type, value: Any) -> Any:
        raise Unplain(f"a {kind.__name__}, read ahead,")


def pack(batch: Any) -> State:
    """Copy a batch. Raises Unplain for one that is no plain collection."""
    kind = type(batch).__name__
    return {"kind": kind, "tree": _Plain({}).pack(batch.data if kind == _ENCODING else batch)}


def unpack(packed: State) -> Any:
    """The batch."""
    value = Unpacker([]).unpack(packed["tree"])
    if packed["kind"] != _ENCODING:
        return value
    return private.find("transformers", _ENCODING)(value)


LARGEST, LONGEST = 16 << 20, 20_000  # of what the framework keeps: bytes and items
_NOT_FIRST = "the program had trained before: what that left would have to be trained again"
_CHANGED = "its models, optimizers or loaders are others than those that it began with"


class Driver(Protocol):
    """What a framework's loop keeps of its own."""

    name: str
    untested: str | None

    def obstacle(self) -> str | None:
        """Why this call could not go on in another process; looked at before its first batch."""

    def planned(self) -> int | None:
        """How many steps this call will take in all, if that is known."""

    def trains_on(self, loader: Any) -> bool:
        """Whether a pass over this loader, begun now, reads training data."""

    def is_last(self) -> bool:
        """Whether the step just done may be the last one."""

    def consumed(self) -> int:
        """How many batches of this epoch have been trained on."""

    def copy(self, known: dict[int, int]) -> State:
        """What it counts and keeps, at a boundary; `known` are the tensors that are copied."""

    def put_back(self, past: State, unpacker: Unpacker) -> None:
        """Set what `copy` copied. Raises OtherProgram."""

    def files(self, weights: Weights) -> Files:
        """The trained model as the framework loads it, once the training is over."""


class FrameworkRun:
    """The call under way."""

    def __init__(self, session: TorchSession, driver: Driver) -> None:
        self.stepped = False  # an optimizer has stepped since the last boundary
        self.driver = driver
        self._session = session
        self._passes: list[Read] = []  # those of this epoch
        self._began_with: tuple[int, State] | None = None
        self._past: State | None = None  # while the data are read up to the checkpoint's place
        self._counted = 0

    # -- its data

    def begin_reading(self) -> None:
        """The training data of an epoch are begun with."""
        self._passes, self._counted = [], 0

    def open(self, loader: Any, make: Callable[[Any], Any]) -> Any:
        """An iterator over `loader`, where `make` would make one."""
        beside = self._session.beside
        if not self.driver.trains_on(loader):
            iterator = make(loader)
            beside.add(iterator, FrameworkPass(beside))
            return iterator
        number = len(self._passes)
        if self._past is not None:
            if number >= len(self._past["passes"]):
                raise OtherProgram(f"pass {number + 1} of the epoch was not there before")
            begin_again(loader, self._past["passes"][number])
        one = Read(self, loader)
        self._passes.append(one)
        iterator = make(loader)
        beside.add(iterator, one)
        return iterator

    def read(self, iterator: Any, one: Read) -> Any:
        """The next batch of a pass; nothing in place of one that was trained on before."""
        past = self._past
        if past is None:
            if not one.taken:
                one.before["first"] = copy_random()
            return self._session.next_batch(iterator)
        if not one.taken:
            # Only now a sampler draws, after whatever the framework did since it began the pass.
            one.before = past["passes"][self._passes.index(one)]
            set_random(one.before["first"])
        skip(iterator, self._session.next_batch)
        return past["ahead"] if one.taken >= past["consumed"] else None

    def examples(self) -> int:
        """Examples trained on since this was last asked."""
        done = sum(one.taken * one.batch_size for one in self._passes)
        count, self._counted = done - self._counted, done
        return count

    # -- its boundaries

    @property
    def has_begun(self) -> bool:
        """Whether its first epoch has."""
        return self._began_with is not None

    def loop_begins(self) -> None:
        """Its first epoch begins, all that it trains is made."""
        if self._began_with is not None:
            return
        self._began_with = self._session.objects.made, {}
        try:
            self._look()
        except Exception as error:  # whatever the program's own classes raise: it trains
            reason = f"what it trains cannot be read: {type(error).__name__}: {error}"
            self._session.obstacle(reason)

    def _look(self) -> None:
        session, driver = self._session, self.driver
        session.standing.driven(driver.name, driver.untested)
        for reason in (session.ran or session.steps) and _NOT_FIRST, driver.obstacle():
            if reason:
                session.obstacle(reason)
        note(sys._getframe(), session.objects, session.first)
        inventory = Inventory(session.objects)
        self._began_with = session.objects.made, inventory.outline()
        planned = driver.planned()
        if planned is not None:
            session.agent.planned(planned)

    @property
    def past(self) -> State | None:
        """Where this call is to go on; None if it begins, or has gone on."""
        return self._session.past_run

    def boundary(self) -> None:
        """All that follows a batch is done."""
        session = self._session
        if not self.stepped:
            return
        self.stepped = False
        session.count(self)
        session.agent.boundary(session.steps)
        if self.driver.is_last():
            session.keep_end(lambda: self.copy(session.iteration.needs_gradients))
        session.iteration.done()

    # -- checkpoints

    def copy(self, with_gradients: bool) -> TorchSnapshot:
        """The program at this boundary. Raises CannotCapture."""
        assert self._began_with is not None
        until, outline = self._began_with

        def more(inventory: Inventory, _: Packer) -> State:
            if inventory.outline() != outline:
                raise CannotCapture(_CHANGED)
            run = {"name": self.driver.name, "folder": os.getcwd(), **self._position()}
            run.update(self.driver.copy(inventory.known))
            objects = inventory.copy(with_gradients)
            return {**self._session.left.dump([]), "objects": objects, "run": run}

        return self._session.snapshot(sys._getframe(), more, until, self.driver.files)

    def _position(self) -> State:
        consumed = self.driver.consumed()
        ahead = max((one.taken for one in self._passes), default=0) - consumed
        if not 0 <= ahead <= 1:
            raise CannotCapture(f"{ahead + consumed} batches were seen read, {consumed} are used")
        return {
            "consumed": consumed,
            "taken": [one.taken for one in self._passes],
            "passes": [one.before for one in self._passes],
            "ahead": pack(self._passes[-1].newest) if ahead else None,
        }

    def go_on(self, frame: types.FrameType, begin: Callable[[], Callable[[], Any]]) -> None:
        """Come to the checkpoint's place: `begin` begins with the data of the epoch, and what it
        returns takes a batch of them, both as the framework's loop does."""
        assert self._began_with is not None
        past = self._session.past_run
        assert past is not None
        ahead = past["ahead"]
        self._past = {**past, "ahead": None if ahead is None else unpack(ahead)}
        pull = begin()
        try:
            for _ in range(past["consumed"]):
                pull()
        except StopIteration:
            raise OtherProgram("the data have fewer batches than at the checkpoint") from None
        self._past = None
        taken = [one.taken for one in self._passes]
        if taken != past["taken"]:
            raise OtherProgram(f"{taken} batches were read, at the checkpoint {past['taken']}")
        self.examples()
        until, here = self._began_with[0], _moved(past, past["folder"], os.getcwd())
        self._session.go_on(frame, lambda unpacker: self.driver.put_back(here, unpacker), until)


class Read:
    """A pass over the training data."""

    def __init__(self, run: FrameworkRun, loader: Any) -> None:
        self.taken = 0
        self.newest: Any = None
        self.before = begun_with(loader, run._session.objects.large, run._session.obstacle)
        sized = loader if loader.batch_size is not None else loader.batch_sampler
        self.batch_size: int = getattr(sized, "batch_size", None) or 0
        self._run = weakref.ref(run)
        self._next_batch = run._session.next_batch

    def asked(self, iterator: Any, frame: types.FrameType) -> None:
        """A batch is asked for."""

    def read(self, iterator: Any) -> Any:
        """The next batch. Raises StopIteration."""
        run = self._run()
        if run is None:
            return self._next_batch(iterator)
        self.newest = run.read(iterator, self)
        return self.newest

    def ended(self, iterator: Any, frame: types.FrameType) -> None:
        """There is no batch left."""


@contextmanager
def running(session: TorchSession, driver: Driver) -> Iterator[FrameworkRun | None]:
    """A framework's loop runs meanwhile; None if nothing of it is to be seen."""
    if session.is_aside or session.run is not None:
        yield None
        return
    past = session.past_run
    with session.restoring():
        if session.is_returning and (past is None or past["name"] != driver.name):
            raise OtherProgram(f"{driver.name} trains, which it did not at the checkpoint")
    session.run = run = FrameworkRun(session, driver)
    try:
        yield run
    finally:
        session.run, session.ran = None, True
        session.agent.loop(False)


def logged(session: TorchSession, metrics: dict[str, Any]) -> None:
    """Report what a framework logs; the loss of each step is told already."""
    if session.is_aside or session.is_returning:
        return
    step = session.steps + (session.run is not None and session.run.stepped)
    values = {name: value for name, value in metrics.items() if name != "loss"}
    if step and values:
        session.agent.record(step, values)


def why_not(loader: Any) -> str | None:
    """Why a pass over this loader of a framework's cannot be gone on with."""
    from torch.utils.data import DataLoader

    if not isinstance(loader, DataLoader):
        return f"the training data are a {type(loader).__name__}, not a DataLoader"
    return obstacle(loader)


def _moved(tree: Any, then: str, now: str) -> Any:
    """A tree whose paths below the working directory of then are below that of now."""
    if then == now:
        return tree
    if isinstance(tree, str):
        return now + tree[len(then) :] if f"{tree}{os.sep}".startswith(then + os.sep) else tree
    if isinstance(tree, list):
        return [_moved(item, then, now) for item in tree]
    if isinstance(tree, dict):
        return {name: _moved(item, then, now) for name, item in tree.items()}
    return tree
