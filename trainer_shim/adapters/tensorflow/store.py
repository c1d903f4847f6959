"""The files of a checkpoint of TensorFlow loops: one of JSON, one of the trained variables as raw
arrays, and one of the other arrays, which may differ between two equal trainings.

Nothing in them is code. Arrays are bytes with the name of their type and their shape; strings come
after their lengths.
"""

from __future__ import annotations

import functools
import json
import math
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Callable

from trainer_shim.checkpoint_dir import Builder
from trainer_shim.saver import OtherProgram

_VERSION = 1
_NAME = "tensorflow"
State = dict[str, Any]
Kind = tuple[str, tuple[int, ...]]


@dataclass
class LoopSnapshot:
    """What is to be written of a loop; nothing changes it any more."""

    state: State
    arrays: list[Any] = field(default_factory=list)  # bytes, or flat arrays of them
    #: So many of the arrays, from the first, are written to `tensorflow.beside`.
    beside: int = 0
    # Writes what loads without Hermes, of a program that is over.
    loadable: Callable[[Builder], None] | None = None

    def prepare(self, builder: Builder) -> None:
        """Write what loads without Hermes; all else was copied when this was made."""
        if self.loadable is not None:
            self.loadable(builder)

    def write(self, builder: Builder) -> None:
        """Write all files."""
        sizes = [len(array) for array in self.arrays]
        whole = {"version": _VERSION, "sizes": sizes, "state": self.state, "beside": self.beside}
        builder.add(f"{_NAME}.json", [json.dumps(whole).encode()])
        parts = {"arrays": self.arrays[self.beside :], "beside": self.arrays[: self.beside]}
        for part, arrays in parts.items():
            builder.add(f"{_NAME}.{part}", [array for array in arrays if len(array)])
        builder.adopt()


def load(folder: str) -> LoopSnapshot | None:
    """What a LoopSnapshot wrote; None if the checkpoint is of another kind."""
    path = os.path.join(folder, f"{_NAME}.json")
    if not os.path.exists(path):
        return None
    with open(path, "rb") as file:
        whole = json.load(file)
    if whole["version"] != _VERSION:
        raise OtherProgram(f"a checkpoint of version {whole['version']}, not {_VERSION}")
    beside = whole.get("beside", 0)  # earlier checkpoints have all in one file
    arrays = []
    for part, sizes in (("beside", whole["sizes"][:beside]), ("arrays", whole["sizes"][beside:])):
        if sizes:
            with open(os.path.join(folder, f"{_NAME}.{part}"), "rb") as file:
                arrays += [file.read(size) for size in sizes]
    return LoopSnapshot(whole["state"], arrays, beside)


# Arrays as bytes.


def as_array(value: Any) -> Any:
    """A tensor, or whatever else holds values, as an array; strings as one of objects."""
    import numpy as np

    plain = value.numpy() if hasattr(value, "numpy") else value
    if isinstance(plain, (bytes, str)):
        return np.array(plain, object)
    found = np.asarray(plain)
    return found.astype(object) if found.dtype.kind in "SU" else found


def kind_and_bytes(value: Any) -> tuple[Kind, Any]:
    """What `kind_of` and `to_bytes` say of a value; most are one number, which is quick."""
    import numpy as np

    plain = value.numpy() if hasattr(value, "numpy") else value
    if isinstance(plain, np.number):
        return (_name_of(plain.dtype), ()), plain.tobytes()
    array = as_array(plain)
    return kind_of(array), memoryview(to_bytes(array))


def kind_of(array: Any) -> Kind:
    """The name of an array's type, as TensorFlow calls it, and its shape."""
    return _name_of(array.dtype), tuple(array.shape)


def size_of(kinds: Iterable[Kind]) -> int:
    """How many bytes values of these kinds, none of them strings, take."""
    import tensorflow as tf

    return sum(tf.as_dtype(name).size * math.prod(shape) for name, shape in kinds)


@functools.lru_cache(maxsize=64)
def _name_of(dtype: Any) -> str:
    import tensorflow as tf

    return str(tf.as_dtype(dtype).name)


def to_bytes(array: Any) -> Any:
    """The values of an array of numbers, or of strings after their lengths, as flat bytes."""
    import numpy as np

    if not array.dtype.hasobject:
        return array.reshape(-1).view(np.uint8)  # reshape copies what is not contiguous
    strings = [one if isinstance(one, bytes) else str(one).encode() for one in array.flat]
    whole = b"".join(_length(one) + one for one in strings)
    return _length(whole) + whole


def from_bytes(kind: Kind, data: memoryview) -> tuple[Any, int]:
    """The array whose values `data` begins with, and how many bytes those are."""
    import numpy as np
    import tensorflow as tf

    name, shape = kind
    type_of_array = np.dtype(tf.as_dtype(name).as_numpy_dtype)
    if not type_of_array.hasobject:
        size = type_of_array.itemsize * math.prod(shape)
        return np.frombuffer(bytearray(data[:size]), type_of_array).reshape(shape), size
    end = 8 + int.from_bytes(data[:8], "big")
    strings, at = [], 8
    while at < end:
        until = at + 8 + int.from_bytes(data[at : at + 8], "big")
        strings.append(bytes(data[at + 8 : until]))
        at = until
    array = np.empty(len(strings), object)
    array[:] = strings
    return array.reshape(shape), end


def _length(data: bytes) -> bytes:
    return len(data).to_bytes(8, "big")
