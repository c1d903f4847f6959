"""Data that Keras reads from Python: a generator, or a PyDataset of the program's own.

Their position cannot be copied, so a program that is run again reads them again up to where it was,
and they must give the same batches. Nothing is read further ahead than is asked for, since what was
read in vain would be missing later, and its amount differs from run to run.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from trainer_shim.adapters.keras import private
from trainer_shim.adapters.keras.random import copy_random, same_random, set_random
from trainer_shim.adapters.keras.state import State
from trainer_shim.saver import OtherProgram

PROMISE = "a generator or PyDataset must give the same batches when it is read again"
_LOOKED_AT = 2  # batches that Keras reads to know what they are
_REMEMBERED = 8  # batches: more than Keras reads ahead of those that it trains on
_SAMPLED = 64  # values of an array, for at each batch the training waits
_GENERATOR, _FINITE, _INFINITE = "generator", "_finite_generator", "_infinite_generator"


def is_python(adapter: Any) -> bool:
    """Whether Keras reads this data from a generator or a PyDataset."""
    return isinstance(adapter, _kinds())


def _kinds() -> tuple[type, type]:
    datasets = private.find(private.PYDATASETS, "PyDatasetAdapter")
    return private.find(private.GENERATORS, "GeneratorDataAdapter"), datasets


def _has_own_hooks(adapter: Any) -> bool:
    """Whether a PyDataset does something of its own between two epochs."""
    import keras

    plain, kind = keras.utils.PyDataset, type(adapter.py_dataset)
    return any(
        getattr(kind, n) is not getattr(plain, n) for n in ("on_epoch_begin", "on_epoch_end")
    )


def _samples(batch: Any) -> list[bytes]:
    """Evenly spaced values of each array's last row: read in another order, all rows differ."""
    import numpy as np

    if type(batch) is not tuple or set(map(type, batch)) != {np.ndarray}:
        import keras

        batch = keras.tree.flatten(batch)
    samples = []
    for part in batch:
        if isinstance(part, np.ndarray) and part.ndim and not part.dtype.hasobject:
            row = part[-1:].reshape(-1)
            samples.append(row[:: 1 + row.size // _SAMPLED].tobytes())
    return samples


class PythonData:
    """One adapter of Keras' over such data; `steps` are those of an epoch if they are given.

    Read in *whole* epochs, the data begin anew with each, as those of a validation always do;
    else each epoch goes on where the one before has ended. Where Keras `reads_ahead`, it must go on
    with what has been read again.
    """

    def __init__(
        self,
        adapter: Any,
        steps: int | None,
        begins_anew: bool = False,
        reads_ahead: bool = True,
    ) -> None:
        self._adapter = adapter
        self._reads_ahead = reads_ahead
        self._is_dataset = isinstance(adapter, _kinds()[1])
        self._steps = steps
        length = adapter.num_batches
        exhausts = steps is None or (self._is_dataset and steps == length)
        self.is_whole = begins_anew or exhausts
        self._name = _GENERATOR
        if self._is_dataset:
            self._name = _INFINITE if length is None else _FINITE
        self._epochs = 0  # begun
        self._random: State | None = None  # when the data that are being read were begun
        self._samples: dict[int, Any] = {}  # of the newest batches of this pass, by their number
        self._past_samples: dict[int, Any] = {}
        if not begins_anew:
            plain = getattr(adapter, self._name)
            setattr(adapter, self._name, lambda: self._remembered(plain()))

    @property
    def obstacle(self) -> str | None:
        """Why it cannot be read again to where it was; None if it can."""
        if not self._is_dataset:
            return None
        name = type(self._adapter.py_dataset).__name__
        if self._adapter.enqueuer is not None:
            return f"{name} is read by workers, which read ahead by more or less"
        if not self.is_whole and self._name == _FINITE:
            return f"an epoch of {self._steps} steps is not the whole of {name}"
        if not self.is_whole and _has_own_hooks(self._adapter):
            return f"{name} changes between two epochs while it is read ahead"
        return None

    @property
    def is_changed(self) -> bool:
        """Whether reading it has changed what it gives the next time, as far as can be told."""
        return not self._is_dataset or _has_own_hooks(self._adapter)

    def bound(self, batches: int) -> None:
        """Have no reading of it go further than so many batches."""
        plain = getattr(self._adapter, self._name)
        setattr(self._adapter, self._name, lambda: itertools.islice(plain(), batches))

    def epoch_begins(self) -> None:
        """An epoch's first batch will be asked for."""
        self._epochs += 1
        if self.is_whole or self._random is None:
            self._random = copy_random()

    def copy(self) -> State:
        """Where it is, but for the batches of what is being read."""
        return {"epochs": self._epochs, "random": self._random, "samples": dict(self._samples)}

    def epochs_again(self, past: State) -> None:
        """Read what was read before the data of then were begun."""
        if self.is_whole:
            for _ in range(past["epochs"] - 1):
                self.epoch_again()
        self._epochs, self._random = past["epochs"], past["random"]
        self._past_samples = past.get("samples", {})  # older checkpoints have none
        if self._random is not None:
            set_random(self._random)

    def all_again(self, past: State, seen: int) -> None:
        """Read all that a fit has read that had ended."""
        self.epochs_again(past)
        if self.is_whole:
            self.epoch_again()
        else:
            self.batches_again(seen)

    def epoch_again(self) -> None:
        """Read one epoch."""
        self._adapter.on_epoch_begin()
        for _ in self._begun():
            pass
        self._adapter.on_epoch_end()

    def batches_again(self, count: int) -> bool:
        """Read so many batches of the epoch that has begun, and have Keras read on from there.

        Whether that has drawn no random numbers but from generators of its own.
        """
        name, before = self._name, copy_random()
        plain, source = getattr(self._adapter, name), self._begun()
        for _ in itertools.islice(source, count):
            pass
        if not self._reads_ahead:
            return True
        length = self._adapter.num_batches
        if self.is_whole and length is not None and count >= length:
            return same_random(before, copy_random())  # Keras asks for no more of it
        # Those with which Keras has looked at a generator are there already, and draw nothing now.
        ahead = list(itertools.islice(source, max(1, _LOOKED_AT + 1 - count)))

        def rest() -> Iterator[Any]:
            setattr(self._adapter, name, plain)
            return itertools.chain(ahead, source)

        setattr(self._adapter, name, rest)
        return same_random(before, copy_random())

    def check(self) -> None:
        """Raises OtherProgram if what was read again, or ahead of it, is not what was read then."""
        for number in sorted(self._samples.keys() & self._past_samples.keys()):
            if self._samples[number] != self._past_samples[number]:
                raise OtherProgram(
                    f"the training data differ from those at the checkpoint: batch {number} is"
                    " another one when it is read again; if it is drawn at random, nothing else,"
                    " such as the validation data, may draw from the same generator"
                )

    def _remembered(self, batches: Any) -> Iterator[Any]:
        samples = self._samples = {}
        for number, batch in enumerate(batches, 1):
            samples[number] = _samples(batch)
            samples.pop(number - _REMEMBERED, None)
            yield batch

    def _begun(self) -> Iterator[Any]:
        return iter(getattr(self._adapter, self._name)())
