"""What PyTorch loads of an ended training without Hermes: plain state_dicts.

Rule: made of the checkpoint's own copies, so nothing of the program is run for it; a state that is
more than tensors and plain values has no such file, and is resumed all the same.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import Any

from trainer_shim.adapters.torch.pack import Unpacker
from trainer_shim.adapters.torch.tensor_bytes import Raw

State = dict[str, Any]


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
