"""What differs between the backends of Keras, as far as the adapter for `fit` needs it.

Everything that depends on a backend is behind this interface, in one module for each.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterator
from typing import Any, Protocol

from trainer_shim.agent import Agent

_MODULES = {
    "tensorflow": "trainer_shim.adapters.keras.on_tensorflow",
    "torch": "trainer_shim.adapters.keras.on_torch",
    "jax": "trainer_shim.adapters.keras.on_jax",
}


class FitSession(Protocol):
    """The session of this process' fits, as far as backends speak to it: see `fit`."""

    agent: Agent

    @property
    def fit(self) -> Any:
        """The fit under way; None between two."""

    @property
    def is_obstructed(self) -> bool:
        """Whether checkpoints are out of the question."""

    def obstacle(self, reason: str) -> None:
        """From here on this program can only be parked."""

    def doubt(self, reason: str) -> None:
        """A resume is exact under a condition that cannot be checked."""

    def seen(self, model: Any, watched: StepFunction, spec: Any) -> None:
        """A function of `model` was traced for data of `spec`."""

    def begins_pipeline(self, dataset: Any) -> None:
        """An iterator over a tf.data pipeline is made."""


class DataSource(Protocol):
    """The training data of one fit: whether its place in them can be kept, and going on there."""

    #: Keras' own, over epochs.
    iterator: Any
    is_read_on: bool  # and the data go on drawing from the global random numbers

    def lost(self, was_stopped: bool) -> str | None:
        """Why what was read, in a fit that may have been stopped, could not be read again."""

    def adopt(self, iterator: Any, steps_per_execution: int, epochs: int) -> None:
        """This is the iterator over the training data, for so many epochs."""

    @property
    def is_batched(self) -> bool:
        """Whether it can `batch_again`, between two epochs."""

    def batch_again(self, size: int, model: Any) -> None:
        """Have Keras' iterator be one that was asked for this batch size."""

    def epoch_begins(self) -> None:
        """An epoch's first batch will be asked for."""

    def feeds(self, data: Any) -> Any:
        """What Keras is to make an iterator of, in place of `data`."""

    def reads(self, data: Any) -> None:
        """The next batch comes from this iterator."""

    def copy(self) -> dict[str, Any]:
        """Where it is, at a boundary."""

    def copy_read(self) -> dict[str, Any]:
        """What it has given so far."""

    def check(self, position: dict[str, Any]) -> None:
        """Raises OtherProgram if these are not the data of then."""

    def all_again(self, ended: dict[str, Any]) -> None:
        """Read what this fit has read, which had ended."""

    def go_on(self, source: Iterator[Any], position: dict[str, Any], batches: int) -> Any:
        """Move to where it was: Keras' own `source` of this epoch, and the data behind it.

        The last that the source gave.
        """


class StepFunction:
    """A function of a model that does its steps: train or test."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.losses: dict[str, Any] | None = None  # of the latest step
        self.logs: Any = None  # the very object that the latest step returned
        self.past_logs: Any = None  # to be returned by the next step, in place of doing it
        self.variables: list[Any] = []  # that Keras does not list
        self.obstacle: str | None = None
        self.compiled: Any = None  # None for a function that the model makes itself
        self.draws = False  # whether a trace of it has drawn Python's or NumPy's random numbers

    def replaces(self, old: Any) -> None:
        """Be what `old` is, the last function for the same steps, but for what these compute."""
        self.logs, self.past_logs = old.logs, old.past_logs

    def retrace(self, spec: Any, drew: bool) -> None:
        """Compile as when it was first called with data of this kind; whether that `drew` random
        numbers then, as it does now."""


class Backend(Protocol):
    """One of the frameworks that Keras computes with."""

    traces_at_once: bool  # a step that is compiled again, which tells what it lacks
    needs_a_step: bool  # Keras fails in an epoch that does none, as there may be after a restore

    def hook(self, session: FitSession) -> None:
        """Watch the functions that models make for their steps, and what only it has."""

    def is_seeded(self) -> bool:
        """Whether the program has given it a seed."""

    def look_at(self, session: FitSession, model: Any) -> None:
        """Tell the session what stands in the way of bringing this model back."""

    def source(self, session: FitSession, number: int) -> DataSource:
        """What the `number`-th fit reads its batches from."""

    def settle(self, model: Any) -> None:
        """Have the model's variables hold what the latest step has made of them."""

    # -- variables

    def plain(self, variable: Any) -> Any:
        """What is looked after for a variable of Keras or of the framework."""

    def others(self, model: Any) -> list[Any]:
        """What a model computes with that is not among the variables that Keras lists."""

    def key(self, variable: Any) -> Any:
        """The same for the same variable."""

    def described(self, variable: Any) -> tuple[str, Any, tuple[int, ...]]:
        """Its name, its type as one of NumPy's, and its shape."""

    def values(self, value: Any) -> Any:
        """A variable or tensor as an array of NumPy that shares no memory with it."""

    def assign(self, variable: Any, array: Any) -> None:
        """Set its values."""

    # -- objects that callbacks keep

    def pickled(self, value: Any) -> tuple[Any, ...] | None:
        """A variable or tensor, as it is pickled; None for another object. Raises PicklingError."""

    def unpickled(self, pid: tuple[Any, ...]) -> Any:
        """What `pickled` was given."""

    def is_made_again(self, value: Any) -> bool | None:
        """Whether the program makes this object of the framework again; None for another one."""

    def variables_in(self, one: Any) -> list[Any]:
        """Those of an object of the framework that is none of Keras' own."""

    def is_constant(self, value: Any) -> bool:
        """Whether it is a tensor, which nobody can change."""


@functools.lru_cache(maxsize=1)
def here() -> Backend:
    """That of this process."""
    import keras

    backend: Backend = importlib.import_module(_MODULES[keras.backend.backend()]).BACKEND
    return backend
