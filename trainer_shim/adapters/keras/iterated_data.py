"""The training data of a fit whose backend reads them by Python's iterators (PyTorch, JAX).

Nothing is read further ahead than is asked for, or it is so in the same way each time. An iterator
that is made again with the same random numbers gives the same batches, so it is moved past those
that were given already. A generator or PyDataset is read again from its beginning for that, and the
random number generators that a DataLoader may use are set to their earlier state.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from trainer_shim.adapters.keras import private
from trainer_shim.adapters.keras.data import batch_again, fingerprint, is_batched, is_of_arrays
from trainer_shim.adapters.keras.python_data import PROMISE, PythonData, is_python
from trainer_shim.adapters.keras.random import copy_random, set_random
from trainer_shim.adapters.keras.state import State
from trainer_shim.adapters.torch import loaders, random
from trainer_shim.adapters.torch import private as torch_private
from trainer_shim.adapters.torch.loaders import copy_loader, put_back_loader
from trainer_shim.adapters.torch.pack import Unpacker
from trainer_shim.saver import OtherProgram

if TYPE_CHECKING:
    from trainer_shim.adapters.keras.backend import FitSession

_LOADER_PROMISE = "a DataLoader must give the same batches when it is read again"
_TWO_KINDS = "of training and validation data one is a DataLoader, one a generator or PyDataset"
_PER_BATCH = "shuffle='batch' draws at each batch, as others may that draw from the same numbers"


class Batches:
    """One iterator over `data`, and the random numbers that it was made and begun with.

    Made again, it is given those of `then`; `drawn` is what else it depends on.
    """

    def __init__(self, data: Any, then: State | None, drawn: State | None) -> None:
        self.drawn = drawn
        self._then = then
        if then is not None:
            set_random(then["made"])
        self.made = copy_random()
        self.first: State | None = None  # before the first batch
        self._batches = iter(data)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self.first is None:
            self._begin()
        return next(self._batches)

    def _begin(self) -> None:
        if self._then is not None:
            set_random(self._then["first"])
        self.first = copy_random()

    def skip(self, count: int, by_reading: bool) -> None:
        """Move past so many batches. Raises OtherProgram where there are fewer."""
        is_loaders = type(self._batches).__module__ == private.TORCH_LOADER
        self._begin()
        for number in range(count):
            try:
                if is_loaders and not by_reading:
                    loaders.skip(self._batches, next)
                else:
                    next(self._batches)
            except StopIteration:
                raise OtherProgram(f"the data end after {number} of {count}") from None


class Iterated:
    """What the `number`-th fit reads its batches from."""

    def __init__(self, session: FitSession) -> None:
        self.iterator: Any = None
        self.is_read_on = False
        self._session = session
        self._batches: Any = None
        self._then: State | None = None  # how the next iterator is to be begun
        self._prints: list[Any] = []
        self._loader: Any = None
        self._has_loader = False  # to train or to validate
        self._reading: PythonData | None = None

    def lost(self, was_stopped: bool) -> str | None:
        """Nothing is read ahead."""
        return None

    @property
    def is_batched(self) -> bool:
        """Whether they are arrays, of which each epoch makes batches anew."""
        return is_batched(self.iterator)

    def batch_again(self, size: int, model: Any) -> None:
        """Have Keras' iterator be, between two epochs, one that was asked for this batch size."""
        batch_again(self, size)

    def adopt(self, iterator: Any, steps_per_execution: int, epochs: int) -> None:
        """This is the iterator over the training data."""
        import keras

        self.iterator = iterator
        session, adapter = self._session, iterator.data_adapter
        if is_of_arrays(iterator):
            self._prints = fingerprint(keras.tree.flatten(adapter._inputs))
            if adapter._shuffle == "batch":
                session.doubt(_PER_BATCH)
        elif isinstance(adapter, private.find(private.LOADERS, "TorchDataLoaderAdapter")):
            session.doubt(_LOADER_PROMISE)
            self._loader = adapter._dataloader
            obstacle = torch_private.missing() or loaders.obstacle(self._loader)
            if obstacle is not None:
                session.obstacle(obstacle)
        elif is_python(adapter):
            session.doubt(PROMISE)
            self._reading = PythonData(adapter, iterator.steps_per_epoch, reads_ahead=False)
            if self._reading.obstacle is not None:
                session.obstacle(self._reading.obstacle)
        else:
            kind = type(adapter).__name__.replace("Adapter", "")
            session.obstacle(f"the position of a {kind} cannot be saved on this backend")
        validation = None if session.fit is None else session.fit.validation
        if validation is not None:
            self._has_loader = self._loader is not None or validation.is_loader
            if self._has_loader and (self._reading is not None or validation.is_python):
                session.obstacle(_TWO_KINDS)
        if steps_per_execution > 1 and iterator.num_batches is None:
            session.obstacle("steps_per_execution > 1 over data of unknown length")

    def epoch_begins(self) -> None:
        """An epoch's first batch will be asked for."""
        if self._reading is not None:
            self._reading.epoch_begins()

    def feeds(self, data: Any) -> Any:
        """The next iterator over the data."""
        then, self._then = self._then, None
        if then is not None:
            self._set_drawn(then["drawn"])
        return Batches(data, then, self._drawn())

    def _drawn(self) -> State | None:
        """The generators and counters that DataLoaders may use."""
        if not self._has_loader:
            return None
        parts = None if self._loader is None else copy_loader(self._loader)
        return {"parts": parts, "generators": random.copy()}

    def _set_drawn(self, drawn: State | None) -> None:
        if drawn is not None and self._loader is not None:
            put_back_loader(self._loader, drawn["parts"], Unpacker([]))
        if drawn is not None:
            random.put_back(drawn["generators"])

    def reads(self, data: Any) -> None:
        """The next batch comes from this iterator."""
        self._batches = data

    # Checkpoints.

    def copy(self) -> State:
        """Where it is, at a boundary."""
        batches = self._batches
        begun = {"made": batches.made, "first": batches.first, "drawn": batches.drawn}
        return {"prints": self._prints, "begun": begun}

    def copy_read(self) -> State:
        """What it has given so far."""
        reading = None if self._reading is None else self._reading.copy()
        return {
            "seen": self.iterator._steps_seen,
            "batch_size": self.iterator.data_adapter.batch_size if self.is_batched else None,
            "reading": reading,
            "drawn": self._drawn(),
        }

    def check(self, position: State) -> None:
        """Raises OtherProgram if these are not the data of then."""
        if position["prints"] != self._prints:
            raise OtherProgram("the training data differ from those at the checkpoint")

    def all_again(self, ended: State) -> None:
        """Read what this fit has read, which had ended."""
        if self._reading is not None and ended["reading"] is not None:
            self._reading.all_again(ended["reading"], ended["seen"])
        self._set_drawn(ended["drawn"])

    def go_on(self, source: Iterator[Any], position: State, batches: int) -> Any:
        """Move to where it was: Keras' own `source` of this epoch, and the data behind it."""
        if self._reading is not None:
            self._reading.epochs_again(position["reading"])
        self._then = position["begun"]
        for _ in range(batches):
            last = next(source)
        self._batches = last[2]
        self.iterator._steps_seen = position["seen"]
        seen = min(position["seen"], self.iterator.data_adapter.num_batches or position["seen"])
        self._batches.skip(seen, by_reading=self._reading is not None)
        if self._reading is not None:
            self._reading.check()
        self._set_drawn(position["drawn"])
        return last
