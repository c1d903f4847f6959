"""What PyTorch loads of an ended training without Hermes: plain state_dicts, and what a framework
whose loop has trained makes of them.

The values are the checkpoint's own copies, whatever has become of the models since. What
cannot be written so has no such file, and is resumed all the same.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import Any, Callable

from trainer_shim.adapters.torch.pack import Unpacker
from trainer_shim.adapters.torch.state import Files, State
from trainer_shim.adapters.torch.tensor_bytes import Raw

# The state_dict of a model of the program's, of then; None of another one.
Weights = Callable[[Any], "dict[str, Any] | None"]


def framework_files(
    state: State,
    models: Sequence[tuple[Callable[[], Any], dict[str, int]]],
    make: Callable[[Weights], Files],
) -> Files:
    """What a framework's own `make` writes; none if that fails. The `models` are as in
    `state_dict_files`, each with what gives the model, if it is there."""

    def weights(model: Any) -> dict[str, Any] | None:
        found = (names for one, names in models if one() is model)
        return next((_model(state["objects"], names) for names in found), None)

    try:
        return list(make(weights))
    except Exception:  # whatever a framework or a model of its own raises; the training is well
        return []


def state_dict_files(
    state: State, models: Sequence[dict[str, int]]
) -> Iterator[tuple[str, memoryview]]:
    """Names and contents: `model.pt` and `optimizer.pt`, of more than one with its number after the
    first (`model-2.pt`). Of each of the `models` the names are given, with the places of their
    tensors among the values of the state."""
    import torch

    objects = state["objects"]
    wanted = [("model", number) for number in range(len(models))]
    wanted += [("optimizer", number) for number in range(len(objects["optimizers"]))]
    for kind, number in wanted:
        written = io.BytesIO()
        try:
            is_model = kind == "model"
            made = _model(objects, models[number]) if is_model else _optimizer(objects, number)
            torch.save(made, written)
        except Exception:  # of what has no plain form; the training is well
            continue
        yield f"{kind}-{number + 1}.pt" if number else f"{kind}.pt", written.getbuffer()


class _OnProcessor(Unpacker):
    """Tensors as they were copied, and parameters as their places."""

    def _tensor(self, raw: Raw, tree: Any, current: Any) -> Any:
        return raw.data


def _model(objects: State, names: dict[str, int]) -> dict[str, Any]:
    return {name: objects["values"][place].data for name, place in names.items()}


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
