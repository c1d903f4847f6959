"""The hyper-parameters that a fit continues with from a given step on, set without the program's
help.

The learning rate is a variable. A batch size belongs to the data, which are read anew in each
epoch. Everything else is a constant in the compiled step, which is therefore compiled again. It is
then traced for everything that the last one was traced for, in the same order, so that a trial that
goes on from a checkpoint gets the same graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from trainer_shim.adapters import changes
from trainer_shim.adapters.keras.backend import here
from trainer_shim.agent import CannotPut

RATE = "learning_rate"
DROPOUT = ("dropout", "dropout_rate")
BATCH_SIZE = "batch_size"
# What an optimizer has variables for only if it was built with a value other than 0, and how the
# names of those end.
_VARIABLES = {
    "momentum": "momentum",
    "amsgrad": "velocity_hat",
    "centered": "average_gradient",
    "use_ema": "average",
    "gradient_accumulation_steps": "gradient_accumulator",
}


class SettableFit(Protocol):
    """The fit under way, as far as it is set: see `fit`."""

    model: Any

    def compile_again(self) -> None:
        """Have the next step computed with what layers and the optimizer are by now."""

    def next_batches_of(self, size: int, first: Any) -> None:
        """From the next epoch on the data come in batches of this size."""


def made(model: Any) -> dict[str, Any]:
    """What the optimizer of a model is made with, in plain values."""
    try:
        found = dict(changes.flat(model.optimizer.get_config()))
    except Exception:  # whatever an optimizer of the program's own raises, or there is none
        return {}
    found.pop("name", None)
    inner = "inner_optimizer.config."  # of one that scales the loss
    return {name.removeprefix(inner): value for name, value in found.items()}


class Settings:
    """What has been set in this process, which began with these values."""

    def __init__(self, first_values: Mapping[str, Any]) -> None:
        self._first_values = first_values
        # By the name of the parameter: a model, and the layers of it that have its rate.
        self._layers: dict[str, tuple[Any, list[Any]]] = {}

    def put(self, fit: SettableFit, name: str, value: Any) -> bool:
        """Have a fit go on with this value; whether there is anything that takes it.

        Raises CannotPut.
        """
        here().settle(fit.model)
        if changes.same_name(name, RATE):
            return _put_rate(fit.model, value)
        first = self._first_values.get(name)
        if name == BATCH_SIZE:
            fit.next_batches_of(_whole(value), first)
            return True
        if name in DROPOUT:
            return self._put_dropout(fit, name, first, value)
        return _put_into_optimizer(fit, name, value)

    def _put_dropout(self, fit: SettableFit, name: str, rate: Any, value: Any) -> bool:
        model, layers = self._layers.get(name, (None, []))
        if model is not fit.model:
            layers = _dropout_layers(fit.model, rate)
            self._layers[name] = fit.model, layers
        if not layers:
            raise CannotPut(f"no Dropout layer of the model has the rate {rate}")
        _put_constant(fit, layers, "rate", value)
        return True


def _whole(size: Any) -> int:
    if isinstance(size, bool) or not isinstance(size, (int, float)) or size < 1 or size % 1:
        raise CannotPut(f"a batch has a whole number of examples, not {size}")
    return int(size)


def _put_rate(model: Any, value: Any) -> bool:
    config = made(model)
    if RATE not in config:
        if any(name.startswith(f"{RATE}.") for name in config):
            raise CannotPut("a schedule of the program's own would set it again")
        return False
    model.optimizer.learning_rate = value
    return changes.equal(float(model.optimizer.learning_rate), float(value))


def _put_into_optimizer(fit: SettableFit, name: str, value: Any) -> bool:
    optimizer = getattr(fit.model.optimizer, "inner_optimizer", fit.model.optimizer)
    found = [one for one in made(fit.model) if changes.same_name(one, name) and "." not in one]
    for attribute in found:
        if not hasattr(optimizer, attribute):
            raise CannotPut(f"its optimizer has no {attribute} that could be set")
        _put_constant(fit, [optimizer], attribute, value)
        if made(fit.model)[attribute] != value:
            raise CannotPut(f"its optimizer changes {attribute} to another value")
    return bool(found)


def _put_constant(fit: SettableFit, owners: list[Any], attribute: str, value: Any) -> None:
    """Set an attribute that is a constant in the compiled step. Raises CannotPut."""
    before = [getattr(one, attribute) for one in owners]
    if all(one == value for one in before):
        return
    if not here().traces_at_once and any(_lacks_state(one, attribute) for one in owners):
        raise CannotPut(f"what was made without {attribute} keeps no state for it")
    for one in owners:
        setattr(one, attribute, value)
    fit.compile_again()


def _lacks_state(owner: Any, attribute: str) -> bool:
    """Whether this layer or optimizer was built without what another value than 0 needs."""
    if getattr(owner, attribute):
        return False
    if attribute == "rate":  # a layer has random numbers from the start, or never
        return getattr(owner, "seed_generator", None) is None
    if attribute not in _VARIABLES or not owner.built:
        return False
    return not any(one.path.endswith(f"_{_VARIABLES[attribute]}") for one in owner.variables)


def _dropout_layers(model: Any, rate: Any) -> list[Any]:
    """The layers of a model that drop out at this rate. Raises CannotPut if others might."""
    layers = list(model._flatten_layers())
    found = [one for one in layers if _is_dropout(one) and one.rate == rate]
    for layer in layers:
        if _is_dropout(layer) or any(one in found for one in layer._flatten_layers()):
            continue
        for name in _like_dropout(layer, rate):
            raise CannotPut(f"layer {layer.name} has {name} = {rate}: is that dropout, too?")
    return found


def _is_dropout(layer: Any) -> bool:
    from keras import layers

    return isinstance(layer, (layers.Dropout, layers.GaussianDropout, layers.AlphaDropout))


def _like_dropout(layer: Any, rate: Any) -> Iterator[str]:
    for name, value in vars(layer).items():
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if "dropout" in name and is_number and value == rate:
            yield name
