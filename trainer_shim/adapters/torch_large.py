"""Large values that a program makes before its first pass: its data, as a rule.

Rule: what is there before the first pass, and still the same at a checkpoint, the program makes
again; it is compared then and not copied. Tensors and arrays are compared by their contents,
collections by what they hold.
"""

from __future__ import annotations

import ctypes
import hashlib
import sys
from typing import Any

_COLUMNS = 1021  # a prime, so that rows that change places are seen
_COLLECTIONS = (list, tuple, dict, set, frozenset)


class Large:
    """What was there before the first pass; `noting` until that begins."""

    def __init__(self) -> None:
        self.noting = True
        self.known: dict[int, tuple[str, int]] = {}

    def made(self, value: Any) -> str | None:
        """What a value is known by that the program makes again; None for any other."""
        found = digest(value)
        if found is None:
            return None
        if self.noting:
            self.known[id(value)] = found
        return found[0] if self.known.get(id(value)) == found else None


def digest(value: Any) -> tuple[str, int] | None:
    """What a value is known by, in another process too and in this one only; None if it is no
    large thing."""
    import torch

    numpy = sys.modules.get("numpy")
    if type(value) in _COLLECTIONS:
        held = [*value.keys(), *value.values()] if type(value) is dict else value
        return f"{type(value).__name__} of {len(value)}", hash(tuple(map(id, held)))
    if isinstance(value, torch.Tensor) and value.layout == torch.strided and not value.is_meta:
        flat = value.detach().cpu().contiguous()
        return _of_memory(flat.data_ptr(), flat.numel() * flat.element_size()), 0
    if numpy is not None and type(value) is numpy.ndarray and not value.dtype.hasobject:
        flat = numpy.ascontiguousarray(value)
        return _of_memory(flat.ctypes.data, flat.nbytes), 0
    return None


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
