"""The data that a fit is validated with, where Keras reads them from Python or by tf.data.

Rule: each validation begins them anew; those before a checkpoint are read again, so that what a
generator gives next, or a PyDataset has become, is what it was. Of a tf.data pipeline that
shuffles the order depends on how often it was begun: it is begun as often again.
"""

from __future__ import annotations

import sys
import types
from typing import Any

from trainer_shim.adapters.keras_data import is_pipeline
from trainer_shim.adapters.keras_pipeline import draw_again
from trainer_shim.adapters.keras_random import copy_random, set_random
from trainer_shim.adapters.keras_reading import Reading, is_python
from trainer_shim.adapters.keras_state import State


class Validation:
    """The validations of one fit: `done` of them by now, of them so many before a checkpoint.

    `data` are what the fit was given.
    """

    def __init__(self, data: Any = None) -> None:
        self.done = 0
        self.data = data
        self._made = 0  # iterators over the data; Keras makes some in vain
        self._before = 0
        self._reading: Reading | None = None
        self._iterator: Any = None
        self._random: State | None = None

    @property
    def is_loader(self) -> bool:
        """Whether they are a DataLoader of PyTorch."""
        torch = sys.modules.get("torch")
        return torch is not None and isinstance(self.data, torch.utils.data.DataLoader)

    @property
    def is_python(self) -> bool:
        """Whether they are a generator or PyDataset."""
        import keras

        return isinstance(self.data, (keras.utils.PyDataset, types.GeneratorType))

    @property
    def is_changed(self) -> bool:
        """Whether it has changed what its data give the next time."""
        return self._reading is not None and self._reading.is_changed

    def copy(self) -> State:
        """How often the data were begun."""
        return {"done": self.done, "made": self._made}

    def go_on(self, past: State) -> None:
        """So often they were before the checkpoint."""
        self.done = self._before = past["done"]
        self._made = past["made"]
        if is_pipeline(self.data):
            draw_again(self.data, self._made, self.done)

    def makes(self) -> None:
        """Keras makes an iterator of them."""
        self._made += 1

    def may_be_made(self) -> None:
        """Keras makes an iterator, perhaps the one over these data, which draws from them."""
        if self._before:
            self._random = copy_random()

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
                set_random(self._random)
        self._before = 0
