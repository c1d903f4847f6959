"""The training data of a fit on TensorFlow: whether their position can be kept, and going on from
it.

Data are never copied. The program makes them again, and they are moved to where they were; data
that cannot be moved there are recognized before it is needed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from trainer_shim.adapters.keras import private, state
from trainer_shim.adapters.keras.data import (
    Files,
    batch_again,
    check_counted,
    copy_iterator,
    fingerprint,
    is_batched,
    is_of_arrays,
    is_pipeline,
    move_iterator,
    shuffled_by,
)
from trainer_shim.adapters.keras.python_data import PROMISE, PythonData, is_python
from trainer_shim.adapters.keras.tensorflow_pipeline import ShuffleOrder, draw_again, order_of
from trainer_shim.saver import OtherProgram

if TYPE_CHECKING:
    from trainer_shim.adapters.keras.backend import FitSession


_AGAIN = "how often the tf.data pipeline was shuffled before cannot be known"
_SHARED = "the training and validation data are drawn from one shuffle"


class TensorFlowData:
    """What the `number`-th fit reads its batches from."""

    def __init__(self, session: FitSession, number: int) -> None:
        #: Keras' own iterator over epochs.
        self.iterator: Any = None
        self._session = session
        self._number = number
        self._data: Any = None  # the tf.data iterator that the epoch reads
        self._data_start: Files = {}  # where that iterator was before its first batch
        self._is_array = False
        self._prints: list[Any] = []
        self._iterators = 0  # made by Keras, some of them in vain
        self._read_iterators = 0
        self._counter: Any = None
        self._skip = 0
        self._order: ShuffleOrder | None = None  # of a tf.data pipeline
        self.reading: PythonData | None = None
        self.is_read_on = False  # and the data go on drawing from the global random numbers

    def lost(self, was_stopped: bool) -> str | None:
        """Why what was read, in a fit that may have been stopped, could not be read again."""
        if self._order is not None and not self._order.draws_once:
            return _AGAIN
        if not was_stopped or self.reading is None or self.reading.is_whole:
            return None
        return "how far a generator was read ahead when the training was stopped is not known"

    def adopt(self, iterator: Any, steps_per_execution: int, epochs: int) -> None:
        """This is the iterator over the training data, for so many epochs."""
        import tensorflow as tf

        self.iterator = iterator
        adapter = iterator.data_adapter
        if is_of_arrays(iterator):
            self._is_array = True
            self._prints = fingerprint(tf.nest.flatten(adapter._inputs))
        elif isinstance(adapter, private.find(private.DATASETS, "TFDatasetAdapter")):
            self._session.doubt("tf.data must give the same elements when it is read again")
            policy = adapter.get_tf_dataset().options().experimental_external_state_policy
            if policy not in (None, tf.data.experimental.ExternalStatePolicy.FAIL):
                self._session.obstacle(f"the tf.data pipeline sets external state to {policy}")
            self._look_at(adapter.get_tf_dataset(), iterator, epochs)
        elif is_python(adapter):
            self._read(adapter, iterator.steps_per_epoch, epochs)
        else:
            kind = type(adapter).__name__.replace("Adapter", "")
            self._session.obstacle(f"the position of a {kind} cannot be saved")
        if steps_per_execution > 1 and iterator.num_batches is None:
            self._session.obstacle("steps_per_execution > 1 over data of unknown length")

    @property
    def is_batched(self) -> bool:
        """Whether they are arrays, of which each epoch makes batches anew."""
        return is_batched(self.iterator)

    def batch_again(self, size: int, model: Any) -> None:
        """Have Keras' iterator be, between two epochs, one that was asked for this batch size."""
        batch_again(self, size, distribute_strategy=model.distribute_strategy)

    def _look_at(self, dataset: Any, iterator: Any, epochs: int) -> None:
        """Whether the order of a pipeline could be had again."""
        order = self._order = order_of(dataset)
        goes_on = iterator.steps_per_epoch is not None  # from one epoch to the next
        is_begun_again = epochs > 1 and not (goes_on and iterator.data_adapter.num_batches is None)
        if is_begun_again and not order.is_known_later:
            self._session.obstacle(_AGAIN)
        fit = self._session.fit
        data = None if fit is None else fit.validation.data
        if goes_on and is_pipeline(data) and order.drawn_from & order_of(data).drawn_from:
            self._session.obstacle(_SHARED)

    def _read(self, adapter: Any, steps: int | None, epochs: int) -> None:
        self.reading = PythonData(adapter, steps)
        self._session.doubt(PROMISE)
        if self.reading.obstacle is not None:
            self._session.obstacle(self.reading.obstacle)
        elif steps is not None and not self.reading.is_whole:
            self.reading.bound(steps * epochs)

    def epoch_begins(self) -> None:
        """An epoch's first batch will be asked for."""
        if self.reading is not None:
            self.reading.epoch_begins()

    def shuffled(self, adapter: Any, make: Any) -> Any:
        """The dataset of `make`, whose permutations are drawn from the trial's seed."""
        seed = self._session.agent.seed
        digest = hashlib.sha256(f"{seed}/{self._number}".encode()).digest()
        key = int.from_bytes(digest[:7], "big")
        dataset, self._counter = shuffled_by(key, lambda: make(adapter))
        return dataset

    def feeds(self, dataset: Any) -> Any:
        """What the next iterator is made of; each draws its permutation at its first batch."""
        self._iterators += 1
        if self._counter is not None:
            self._counter.assign(self._iterators)
        if self._skip:
            dataset, self._skip = dataset.skip(self._skip), 0
        return dataset

    def reads(self, data: Any) -> None:
        """The next batch comes from this tf.data iterator."""
        if data is not self._data:
            self._data = data
            self._read_iterators += 1
            is_later = self._read_iterators > 1
            if is_later and self._order is not None and not self._order.is_known_later:
                self._session.obstacle(_AGAIN)
            self._probe(data)

    def _probe(self, data: Any) -> None:
        """Whether this iterator's position can be saved; found out before it is needed."""
        import tensorflow as tf

        if self._is_array or self.reading is not None or self._session.is_obstructed:
            return
        try:
            self._data_start = copy_iterator(data)
            if self._order is not None and self._order.is_copied and self._order.drawn_from:
                check_counted(self._data_start)
        except (tf.errors.OpError, ValueError) as error:
            reason = str(error).splitlines()[0]
            self._session.obstacle(
                f"the position of the tf.data pipeline cannot be saved: {reason}"
            )

    # Checkpoints.

    def copy(self) -> state.State:
        """Where it is, at a boundary."""
        is_copied = self._order is not None and self._order.is_copied
        return {
            "prints": self._prints,
            "data": copy_iterator(self._data) if is_copied else {},
            "data_start": self._data_start if is_copied else {},
        }

    def copy_read(self) -> state.State:
        """What it has given so far."""
        reading = None if self.reading is None else self.reading.copy()
        return {
            "seen": self.iterator._steps_seen,
            "batch_size": self.iterator.data_adapter.batch_size if self.is_batched else None,
            "reading": reading,
            "iterators": self._iterators,
            "read_iterators": self._read_iterators,
        }

    def check(self, position: state.State) -> None:
        """Raises OtherProgram if these are not the data of then."""
        if position["prints"] != self._prints:
            raise OtherProgram("the training data differ from those at the checkpoint")

    @property
    def _dataset(self) -> Any:
        return self.iterator.data_adapter.get_tf_dataset()

    def all_again(self, ended: state.State) -> None:
        """Read what this fit has read, which had ended."""
        if self.reading is not None and ended["reading"] is not None:
            self.reading.all_again(ended["reading"], ended["seen"])
        elif self._order is not None:
            draw_again(self._dataset, ended["iterators"], ended["read_iterators"])

    def go_on(self, source: Iterator[Any], position: state.State, batches: int) -> Any:
        """Move to where it was: Keras' own `source` of this epoch, and the data behind it."""
        self._iterators = position["iterators"] - 1
        self._read_iterators = position["read_iterators"]
        self._skip = position["seen"] if self._is_array else 0
        if self.reading is not None:
            self.reading.epochs_again(position["reading"])
        is_read_again = self._order is not None and not self._order.is_copied
        if is_read_again:  # and the next iterator draws after those
            draw_again(self._dataset, self._iterators, self._read_iterators - 1)
        for _ in range(batches):
            last = next(source)
        self._data = last[2]
        self.iterator._steps_seen = position["seen"]
        self._data_start = position["data_start"]
        seen = min(position["seen"], self.iterator.data_adapter.num_batches or position["seen"])
        if self.reading is not None:
            self.is_read_on = not self.reading.batches_again(seen)
            self.reading.check()
        elif is_read_again:
            for _ in range(seen):
                next(self._data, None)
        elif position["data"]:
            move_iterator(self._data, self._data_start, position["data"], seen)
        return last
