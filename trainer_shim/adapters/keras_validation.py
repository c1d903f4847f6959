"""The data that a fit is validated with, where Keras reads them from Python.

Rule: each validation begins them anew; those before a checkpoint are read again, so that what a
generator gives next, or a PyDataset has become, is what it was.
"""

from __future__ import annotations

from typing import Any

from trainer_shim.adapters import keras_state as state
from trainer_shim.adapters.keras_reading import Reading, is_python


class Validation:
    """The validations of one fit: `done` of them by now, of them so many before a checkpoint."""

    def __init__(self) -> None:
        self.done = 0
        self._before = 0
        self._reading: Reading | None = None
        self._iterator: Any = None
        self._random: state.State | None = None

    @property
    def is_changed(self) -> bool:
        """Whether it has changed what its data give the next time."""
        return self._reading is not None and self._reading.is_changed

    def go_on(self, done: int) -> None:
        """So many were done before the checkpoint."""
        self.done = self._before = done

    def may_be_made(self) -> None:
        """Keras makes an iterator, perhaps the one over these data, which draws from them."""
        if self._before:
            self._random = state.copy_random()

    def begins(self, iterator: Any) -> None:
        """One begins, over this iterator."""
        if iterator is not self._iterator:
            self._iterator = iterator
            self._adopt(iterator.data_adapter, iterator.steps_per_epoch)
        self.done += 1

    def _adopt(self, adapter: Any, steps: int | None) -> None:
        if not is_python(adapter) or getattr(adapter, "enqueuer", None) is not None:
            return
        self._reading = reading = Reading(adapter, steps, begins_anew=True)
        if steps is not None:
            reading.bound(steps)
        if reading.is_changed and self._before:
            for _ in range(self._before):
                reading.epoch_again()
                adapter.on_epoch_end()  # Keras begins each by a reset
            if self._random is not None:
                state.set_random(self._random)
        self._before = 0
