"""The files of a checkpoint of PyTorch's state.

They are JSON and raw bytes, so reading a checkpoint from elsewhere executes nothing. What was
trained, the values of modules and optimizers, is a file of its own: two trainings are the same if
that file is, whatever else their programs held. What a TorchSnapshot is given was copied already;
it only writes.
"""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Iterable, Iterator
from typing import Any, Callable

from trainer_shim.adapters.torch.tensor_bytes import Raw
from trainer_shim.checkpoint_dir import Builder
from trainer_shim.saver import OtherProgram

_VERSION = 3
_STATE, _ARRAYS, _BESIDE = "torch.json", "torch.arrays", "torch.beside"
_ALIGNED = 64

State = dict[str, Any]
Tree = Any  # plain JSON, with a reference to each `Raw`
Files = Iterable["tuple[str, memoryview]"]


class TorchSnapshot:
    """A state to be written. `at_end` gives the files that are written besides if it is the end of
    the training."""

    def __init__(self, state: State, at_end: Callable[[], Files] = tuple) -> None:
        self.is_end = False
        self._at_end = at_end
        self._raws: list[Raw] = []
        self._numbers: dict[int, int] = {}
        objects = state.get("objects", {})
        for raw in _raws_of([objects.get("values"), objects.get("optimizers")]):
            self._refer(raw)
        self._trained = len(self._raws)
        whole = {"version": _VERSION, "state": state}
        self._text = json.dumps(whole, default=self._refer).encode()

    def _refer(self, raw: Raw) -> Tree:
        number = self._numbers.get(id(raw))
        if number is None:
            number = self._numbers[id(raw)] = len(self._raws)
            self._raws.append(raw)
        kind = str(raw.data.dtype).rpartition(".")[2]
        shape = list(raw.data.shape)
        return {"#": number, "type": kind, "shape": shape, "as": [raw.stride, raw.device]}

    def prepare(self, builder: Builder) -> None:
        """Nothing: all was copied when this was made."""

    def ends_with(self, files: Callable[[], Files]) -> None:
        """Have these files written in the place of its own."""
        self._at_end = files

    def write(self, builder: Builder) -> None:
        """Write all files."""
        sizes = json.dumps([_size(raw) for raw in self._raws]).encode()
        builder.add(_STATE, [len(sizes).to_bytes(8, "big"), sizes, self._text])
        builder.add(_ARRAYS, _parts(self._raws[: self._trained]))
        builder.add(_BESIDE, _parts(self._raws[self._trained :]))
        for name, content in self._at_end() if self.is_end else ():
            builder.add(name, [content])


def _raws_of(found: Any) -> Iterator[Raw]:
    """Every Raw in a tree, in its order."""
    if isinstance(found, Raw):
        yield found
    elif isinstance(found, (dict, list, tuple)):
        for each in found.values() if isinstance(found, dict) else found:
            yield from _raws_of(each)


def _parts(raws: list[Raw]) -> Iterator[memoryview | bytes]:
    for raw in raws:
        size = _size(raw)
        if size:
            yield memoryview((ctypes.c_char * size).from_address(raw.data.data_ptr()))
        yield bytes(-size % _ALIGNED)


def _size(raw: Raw) -> int:
    return int(raw.data.numel() * raw.data.element_size())


def load(folder: str) -> State | None:
    """What a TorchSnapshot wrote; None if the checkpoint is of another kind.

    A Raw that was in several places is one again, or the next Snapshot would write it many times.
    """
    path = os.path.join(folder, _STATE)
    if not os.path.exists(path):
        return None
    with open(path, "rb") as file:
        sizes = json.loads(file.read(int.from_bytes(file.read(8), "big")))
        text = file.read()
    content = bytearray()
    for name in (_ARRAYS, _BESIDE):  # of earlier checkpoints all is in the first
        if os.path.exists(os.path.join(folder, name)):
            with open(os.path.join(folder, name), "rb") as file:
                content += file.read()
    starts, position = [], 0
    for size in sizes:
        starts.append(position)
        position += size + -size % _ALIGNED
    raws: dict[int, Raw] = {}

    def resolve(found: State) -> Any:
        number = found.get("#")
        if number is None:
            return found
        if number not in raws:
            raws[number] = _raw(found, content, starts[number], sizes[number])
        return raws[number]

    whole = json.loads(text, object_hook=resolve)
    if whole["version"] != _VERSION:
        raise OtherProgram(f"a PyTorch checkpoint of version {whole['version']}, not {_VERSION}")
    state: State = whole["state"]
    return state


def _raw(found: State, content: bytearray, start: int, size: int) -> Raw:
    """The Raw that a reference in the JSON stands for."""
    import torch

    dtype, shape = getattr(torch, found["type"]), found["shape"]
    if size:
        data = torch.frombuffer(content, dtype=torch.uint8, count=size, offset=start)
        data = data.view(dtype).reshape(shape)
    else:
        data = torch.empty(shape, dtype=dtype)
    stride, device = found["as"]
    return Raw(data, stride, device)
