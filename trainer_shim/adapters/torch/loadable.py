"""What PyTorch can load of a finished training without Hermes: plain state_dicts, and what a
framework whose loop has trained makes of them.

The values are the checkpoint's own copies, whatever has become of the models since. If no
checkpoint is of the last step, the models that were trained are written as the program has left
them. What cannot be written in this form has no such file, and is resumed all the same.
"""

from __future__ import annotations

import contextlib
import io
import json
import weakref
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Callable, NamedTuple

from trainer_shim.adapters.torch.objects import Objects, saved_tensors
from trainer_shim.adapters.torch.pack import Unpacker
from trainer_shim.adapters.torch.state import Files, State
from trainer_shim.adapters.torch.tensor_bytes import Raw
from trainer_shim.checkpoint_dir import Builder

# In the place of what is in a state_dict, but has no plain form.
_MISSING = object()

# The state_dict of a model of the program's, of then; None of another one.
Weights = Callable[[Any], "dict[str, Any] | None"]


class Names(NamedTuple):
    """What is in a model's state_dict: of each tensor's name its place among the values of a state,
    and what is no tensor of the model."""

    places: dict[str, int]
    extra: dict[str, Any]


def extra_state(model: Any) -> dict[str, Any]:
    """A copy of what modules of the program's own put into the model's state_dict beside tensors,
    by its names there (`get_extra_state`)."""
    return {name: _extra_of(module) for name, module in _with_extra_state(model)}


def _with_extra_state(model: Any) -> Iterator[tuple[str, Any]]:
    import torch
    from torch.nn.modules.module import _EXTRA_STATE_KEY_SUFFIX as SUFFIX

    for prefix, module in model.named_modules(remove_duplicate=False):
        if type(module).get_extra_state is not torch.nn.Module.get_extra_state:
            yield f"{prefix}.{SUFFIX}" if prefix else SUFFIX, module


def _extra_of(module: Any) -> Any:
    import torch

    try:
        extra, written = _copy(module.get_extra_state()), io.BytesIO()
        torch.save(extra, written)
        written.seek(0)
        torch.load(written, weights_only=True)
    except Exception:  # whatever the program's own class raises, or of what has no plain form
        return _MISSING
    return extra


def framework_files(
    state: State,
    models: Sequence[tuple[Callable[[], Any], Names]],
    make: Callable[[Weights], Files],
) -> Files:
    """What a framework's own `make` writes; none if that fails. The `models` are as in
    `state_dict_files`, each with what gives the model, if it is there."""

    def weights(model: Any) -> dict[str, Any] | None:
        found = (names for one, names in models if one() is model)
        return next((_whole(_model(state["objects"], names))[0] for names in found), None)

    try:
        return list(make(weights))
    except Exception:  # whatever a framework or a model of its own raises; the training is well
        return []


def state_dict_files(state: State, models: Sequence[Names]) -> Iterator[tuple[str, memoryview]]:
    """Names and contents: `model.pt` and `optimizer.pt`, of more than one with its number after the
    first (`model-2.pt`); beside one that is not all of the state_dict, the names of what is missing
    (`model.missing.json`)."""
    objects = state["objects"]
    optimizers = range(len(objects["optimizers"]))
    yield from _written("model", [partial(_model, objects, names) for names in models])
    yield from _written("optimizer", [partial(_optimizer, objects, one) for one in optimizers])


def _written(
    kind: str, made: Iterable[Callable[[], dict[str, Any]]]
) -> Iterator[tuple[str, memoryview]]:
    """The names and contents of what these make."""
    import torch

    for number, make in enumerate(made, 1):
        written = io.BytesIO()
        try:
            whole, missing = _whole(make())
            torch.save(whole, written)
        except Exception:  # of what has no plain form; the training is well
            continue
        name = f"{kind}-{number}" if number > 1 else kind
        yield f"{name}.pt", written.getbuffer()
        if missing:
            yield f"{name}.missing.json", memoryview(json.dumps(missing).encode())


def _whole(made: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """What there is of a state_dict, and the names of what is missing."""
    missing = [name for name, value in made.items() if value is _MISSING]
    return {name: value for name, value in made.items() if value is not _MISSING}, missing


class _OnProcessor(Unpacker):
    """Tensors as they were copied, and parameters as their places."""

    def _tensor(self, raw: Raw, tree: Any, current: Any) -> Any:
        return raw.data


def _model(objects: State, names: Names) -> dict[str, Any]:
    tensors = {name: objects["values"][place].data for name, place in names.places.items()}
    return {**tensors, **names.extra}


def _optimizer(objects: State, number: int) -> dict[str, Any]:
    groups, copy = objects["outline"]["groups"][number], objects["optimizers"][number]
    unpacker = _OnProcessor(list(range(len(objects["values"]))))
    numbers: dict[int, int] = {}  # by the place of the parameter, as `state_dict` counts them
    for group in groups:
        for place in group:
            numbers.setdefault(place, len(numbers))
    made = []
    for group, values in zip(groups, copy["groups"]):
        found: dict[str, Any] = {}
        unpacker.put_some(values, found)
        made.append({**found, "params": [numbers[place] for place in group]})
    slots = {numbers[unpacker.unpack(key)]: unpacker.unpack(slot) for key, slot in copy["slots"]}
    return {"state": slots, "param_groups": made}


class Trained:
    """What optimizers have trained last, for the files of a program that has ended.

    Not the models and optimizers are held, as one that the program lets go of must not be found by
    the next checkpoint, but their tensors. Those that lie on a device are copied from there as soon
    as the program lets go of them: it may want the memory.
    """

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._models: dict[int, _Held] = {}
        self._optimizers: dict[int, _Held] = {}

    def stepped(self, optimizer: Any) -> None:
        """An optimizer has changed its parameters."""
        held = self._optimizers.get(id(optimizer))
        if held is not None and held.one() is optimizer:
            return
        for kept in (self._models, self._optimizers):  # of an earlier training, in other objects
            for key in [key for key, held in kept.items() if held.one() is None]:
                del kept[key]
        number = self._objects.order("optimizer", optimizer)
        self._optimizers[id(optimizer)] = _Held(
            optimizer, number, _parts_of_optimizer, _write_optimizer, lambda _: {}
        )
        own = {id(tensor) for group in optimizer.param_groups for tensor in group["params"]}
        for model in self._objects.models():
            if any(id(tensor) in own for tensor in model.parameters()):
                number = self._objects.order("module", model)
                held = _Held(model, number, _parts_of_model, _write_model, extra_state)
                self._models.setdefault(id(model), held)

    def files(self) -> Files:
        """`model.pt`, `optimizer.pt` and so on, as `state_dict_files` names them."""
        for kind, kept in (("model", self._models), ("optimizer", self._optimizers)):
            held = sorted(kept.values(), key=lambda one: one.number)
            yield from _written(kind, [one.state_dict for one in held])

    def result(self) -> TrainedFiles | None:
        """These files, to be written; None if nothing was trained."""
        return TrainedFiles(self.files) if self._optimizers else None


class TrainedFiles:
    """Files for people, as a checkpoint from which no program goes on."""

    def __init__(self, files: Callable[[], Files]) -> None:
        self._files = files

    def prepare(self, builder: Builder) -> None:
        """Nothing: the program has ended."""

    def write(self, builder: Builder) -> None:
        """Write the files."""
        for name, content in self._files():
            builder.add(name, [content])


class _Held:
    """One model or optimizer, the `number`-th object that was made: what `parts_of` finds of it,
    from which `write` makes a plain state_dict, and what only it can tell of itself (`ask`)."""

    def __init__(
        self,
        one: Any,
        number: int,
        parts_of: Callable[[Any], Any],
        write: Callable[[Any], dict[str, Any]],
        ask: Callable[[Any], dict[str, Any]],
    ) -> None:
        self.number = number
        self._parts_of, self._write, self._ask = parts_of, write, ask
        self._parts = parts_of(one)
        self.one = weakref.ref(one, self._gone)

    def state_dict(self) -> dict[str, Any]:
        """As PyTorch loads it, on the processor."""
        one = self.one()
        if one is None:
            return self._write(self._parts)
        return {**self._write(self._parts_of(one)), **self._ask(one)}

    def _gone(self, _: Any) -> None:
        with contextlib.suppress(Exception):  # such as too little memory for a copy
            if not _is_on_processor(self._parts):
                self._parts, self._write = self._write(self._parts), dict


def _parts_of_model(model: Any) -> dict[str, Any]:
    missing = {name: _MISSING for name, _ in _with_extra_state(model)}
    return {**dict(saved_tensors(model)), **missing}


def _parts_of_optimizer(optimizer: Any) -> dict[str, Any]:
    return {"groups": optimizer.param_groups, "state": optimizer.state}


def _is_on_processor(parts: dict[str, Any]) -> bool:
    groups = parts.get("groups", [])
    tensors = [one for group in groups for one in group["params"]] or parts.values()
    return all(one is _MISSING or one.is_cpu for one in tensors)


def _write_model(parts: dict[str, Any]) -> dict[str, Any]:
    copies = {id(one): _copy(one) for one in parts.values()}  # what two layers share stays one
    return {name: copies[id(one)] for name, one in parts.items()}


def _write_optimizer(parts: dict[str, Any]) -> dict[str, Any]:
    numbers: dict[int, int] = {}  # by the parameter, as `state_dict` counts them
    made = []
    for group in parts["groups"]:
        own = [numbers.setdefault(id(tensor), len(numbers)) for tensor in group["params"]]
        plain = _copy({name: value for name, value in group.items() if name != "params"})
        made.append({**plain, "params": own})
    slots = {numbers[id(key)]: _copy(slot) for key, slot in parts["state"].items()}
    return {"state": slots, "param_groups": made}


def _copy(value: Any) -> Any:
    """A copy, with tensors on the processor. Raises TypeError for what is no plain value."""
    import torch

    if isinstance(value, torch.Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        return {name: _copy(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(_copy, value))
    if value is None or value is _MISSING or isinstance(value, (bool, int, float, str, bytes)):
        return value
    raise TypeError(f"{type(value).__name__} is no plain value")
