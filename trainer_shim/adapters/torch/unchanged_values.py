"""Values that a program makes before its first pass: large ones, usually its data, and collections.

What exists before the first pass, and is still the same at a checkpoint, is made again by the
program, so it is only compared and not copied: tensors and arrays by their contents, collections by
what they hold. This also shows if a collection that cannot be copied has changed since.
"""

from __future__ import annotations

import ctypes
import hashlib
import sys
from collections import deque
from typing import Any

from trainer_shim.adapters.torch.iterators import PythonIterators

_COLUMNS = 1021  # a prime, so that rows that change places are seen
_COLLECTIONS = (list, tuple, dict, set, frozenset)
_KEEPING = (list, dict, set, deque)


class UnchangedValues:
    """What was there before the first pass."""

    def __init__(self) -> None:
        #: Whether the first pass has yet to begin.
        self.noting = True
        self.known: dict[int, tuple[str, int]] = {}
        self.iterators = PythonIterators()
        self._collections: dict[tuple[str, int], int] = {}  # by their names

    def made(self, value: Any) -> str | None:
        """What a value is known by that the program makes again; None for any other."""
        found = digest(value)
        if found is None:
            return None
        if self.noting:
            self.known[id(value)] = found
        return found[0] if self.known.get(id(value)) == found else None

    def is_another(self, value: Any) -> bool:
        """Whether a value that was there before the first pass is not what it was then."""
        said = None if self.noting else self.known.get(id(value))
        return self.made(value) is None and said is not None

    def note(self, name: str, value: Any) -> None:
        """A variable or an attribute has this value before the first pass."""
        self.iterators.note(name, value)
        if isinstance(value, _KEEPING):
            self._collections[name, id(value)] = _held(value)

    def has_changed(self, name: str, value: Any) -> bool:
        """Whether it is a collection that was noted, and holds something else by now; or an
        iterator that was, and has gone on."""
        if self.iterators.is_taken_from(name, value):
            return True
        if not isinstance(value, _KEEPING):
            return False
        before = self._collections.get((name, id(value)))
        return before is not None and before != _held(value)


def digest(value: Any) -> tuple[str, int] | None:
    """What a value is known by, in another process too and in this one only; None if it is no
    large thing."""
    import torch

    numpy = sys.modules.get("numpy")
    if type(value) in _COLLECTIONS:
        return f"{type(value).__name__} of {len(value)}", _held(value)
    if isinstance(value, torch.Tensor) and value.layout == torch.strided and not value.is_meta:
        flat = value.detach().cpu().contiguous()
        return _of_memory(flat.data_ptr(), flat.numel() * flat.element_size()), 0
    if numpy is not None and type(value) is numpy.ndarray and not value.dtype.hasobject:
        flat = numpy.ascontiguousarray(value)
        return _of_memory(flat.ctypes.data, flat.nbytes), 0
    return None


def _held(collection: Any) -> int:
    is_dict = isinstance(collection, dict)
    held = [*collection.keys(), *collection.values()] if is_dict else collection
    return hash(tuple(map(id, held)))


def _of_memory(address: int, size: int) -> str:
    import torch

    whole = size // (8 * _COLUMNS) * 8 * _COLUMNS
    hashed = hashlib.blake2b(size.to_bytes(8, "big"), digest_size=8)
    if whole:
        memory = (ctypes.c_char * whole).from_address(address)
        sums = torch.frombuffer(memory, dtype=torch.int64).view(-1, _COLUMNS).sum(0)
        hashed.update(ctypes.string_at(sums.data_ptr(), 8 * _COLUMNS))
    hashed.update(ctypes.string_at(address + whole, size - whole))
    return hashed.hexdigest()
