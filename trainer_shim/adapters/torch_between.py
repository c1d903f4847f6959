"""The weights that passes left in place, where the program uses a model between two passes.

Rule: what it finds out there may decide how it goes on, so a program that is run again finds
the same weights. They are kept as soon as a model is seen to be called outside of all passes.
"""

from __future__ import annotations

import gc
from typing import Any, Callable

from trainer_shim.adapters.torch_classes import class_name
from trainer_shim.adapters.torch_objects import Objects, tensors_of
from trainer_shim.adapters.torch_raw import Raw, Unplain
from trainer_shim.adapters.torch_state import OtherProgram, State

_MOST = 256 << 20


class Between:
    """What lies between the passes that train."""

    def __init__(self, objects: Objects, obstacle: Callable[[str], None]) -> None:
        self._objects = objects
        self._obstacle = obstacle
        self._record: State | None = None  # of the last pass that trained
        self._hook: Any = None
        self._is_used = False
        self._bytes = 0

    def over(self, record: State, trained: bool) -> None:
        """A pass is over, and left what this record says."""
        import torch

        for name in self._objects.large.iterators.pass_is_over():
            self._obstacle(f"{name} is a generator, and a pass has taken from it")
        if trained:
            self._record = record
        if self._is_used and trained:
            self._keep()
        elif self._record is not None and not self._is_used and self._hook is None:
            module = torch.nn.modules.module
            self._hook = module.register_module_forward_pre_hook(self._called)

    def begins(self) -> None:
        """Another pass begins."""
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def load(self, records: list[State]) -> None:
        """Go on from a checkpoint that holds these."""
        kept = [one["left"]["weights"] for one in records if one["kind"] == "ended"]
        self._bytes = sum(_size(weights) for weights in kept if weights is not None)
        self._is_used = self._bytes > 0

    def put_back(self, record: State) -> None:
        """Put in place what a pass left. Raises OtherProgram."""
        weights = record["left"]["weights"]
        if weights is not None:
            _put_back(self._objects, weights)

    def _called(self, *_: Any) -> None:
        self.begins()
        self._is_used = True
        self._keep()

    def _keep(self) -> None:
        assert self._record is not None
        if self._bytes > _MOST:
            return
        try:
            weights = self._record["left"]["weights"] = _copy(self._objects)
        except Unplain as error:
            self._obstacle(f"a model is used between passes, and holds {error}")
            return
        self._bytes += _size(weights)
        if self._bytes > _MOST:
            size = f"{_MOST >> 20} MB"
            self._obstacle(f"a model is used between passes that left more than {size} of weights")


def _copy(objects: Objects) -> list[State]:
    gc.collect()  # as `Inventory` does
    return [
        {"class": class_name(type(one)), "values": [Raw.of(each) for _, each in tensors_of(one)]}
        for one in objects.models()
    ]


def _size(weights: list[State]) -> int:
    raws = [raw.data for model in weights for raw in model["values"]]
    return sum(int(data.numel() * data.element_size()) for data in raws)


def _put_back(objects: Objects, weights: list[State]) -> None:
    import torch

    gc.collect()
    models = objects.models()
    if [class_name(type(one)) for one in models] != [copy["class"] for copy in weights]:
        raise OtherProgram("after a pass other models are there than at the checkpoint")
    with torch.no_grad():
        for model, copy in zip(models, weights):
            for (name, tensor), raw in zip(tensors_of(model), copy["values"]):
                if tensor.shape != raw.data.shape:
                    raise OtherProgram(f"{name} is {tuple(tensor.shape)}, it was {raw.data.shape}")
                tensor.copy_(raw.data)
