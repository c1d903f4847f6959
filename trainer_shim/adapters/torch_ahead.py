"""A batch that a framework has read ahead of the step that uses it.

Rule: it is in the checkpoint, as it may hold numbers that were drawn for it; only collections of
plain values can be, for there is nothing yet into which an object could be put back.
"""

from __future__ import annotations

from typing import Any

from trainer_shim.adapters import torch_private as private
from trainer_shim.adapters.torch_pack import Packer
from trainer_shim.adapters.torch_raw import Unplain
from trainer_shim.adapters.torch_state import State
from trainer_shim.adapters.torch_unpack import Unpacker

_ENCODING = "BatchEncoding"


class _Plain(Packer):
    """Packs no objects."""

    def _object(self, kind: type, value: Any) -> Any:
        raise Unplain(f"a {kind.__name__}, read ahead,")


def pack(batch: Any) -> State:
    """Copy a batch. Raises Unplain for one that is no plain collection."""
    kind = type(batch).__name__
    return {"kind": kind, "tree": _Plain({}).pack(batch.data if kind == _ENCODING else batch)}


def unpack(packed: State) -> Any:
    """The batch."""
    value = Unpacker([]).unpack(packed["tree"])
    if packed["kind"] != _ENCODING:
        return value
    return private.find("transformers", _ENCODING)(value)
