"""Values as a checkpoint holds them: a tree of JSON, with raw bytes for what is large.

Rule: nothing is pickled, and nothing that is read back can run code. A packed value shares no
memory with the program's. A value that belongs to something else (a function, an open file)
is not packed: `Unplain` says so, and whoever packs decides what that means. The way back is
`torch_unpack`.
"""

from __future__ import annotations

import enum
import random
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable
from typing import Any, Protocol

from trainer_shim.adapters.torch_classes import HOLDING, class_name, is_walked, slots_of
from trainer_shim.adapters.torch_iterators import is_iterator, place_of
from trainer_shim.adapters.torch_large import Large
from trainer_shim.adapters.torch_raw import Raw, Unplain, check
from trainer_shim.adapters.torch_state import State, Tree

_DEPTH = 16
_NAMES = 3  # that lead to a value are said: those it begins with, and its own
_COLLECTIONS = 64
_MOST_BYTES, _MOST_ITEMS = 2 << 30, 1 << 21
PLAIN = (type(None), bool, int, float, str)
PLAINS = frozenset(PLAIN)
DICTS = {"dict": dict, "Counter": Counter, "OrderedDict": OrderedDict, "defaultdict": defaultdict}
LISTS: dict[str, type] = {"tuple": tuple, "set": set, "frozenset": frozenset, "deque": deque}
_LONG = (*HOLDING, tuple, frozenset)


class TooMuch(Unplain):
    """A value that could be packed but for its size or depth, and that the program does not make
    again; or one that has changed since the first pass and cannot be packed.

    The message says where it is: a variable, with the attributes that lead from there.
    """

    def __init__(self, said: str, *names: str) -> None:
        super().__init__(said)
        self._said = said
        self._names = names

    def __str__(self) -> str:
        names = self._names
        if len(names) > _NAMES:
            names = (*names[: _NAMES - 1], "…", names[-1])
        return ", ".join(filter(None, (".".join(names), self._said)))

    def of(self, name: str) -> TooMuch:
        """The same of an attribute of what has this name."""
        return TooMuch(self._said, name, *self._names)


class Places(Protocol):
    """Iterators over loaders that a checkpoint holds by their place: see `torch_beside`."""

    def begin(self) -> None:
        """All that is packed from here on is one checkpoint's, or put back from one."""

    def pack(self, value: Any) -> State | None:
        """The place of such an iterator; None for any other value."""

    def lost(self) -> str | None:
        """Why what was packed is not enough to go on from; None if it is."""

    def unpack(self, tree: State, current: Any) -> Any:
        """An iterator in that place. Raises OtherProgram."""


class Packer:
    """Packs values; tensors that `known` lists by id are packed as references to them.

    `largest` bounds one tensor or array in bytes, `longest` one collection in items; in all,
    as many items are packed of one value as some full collections have. With `large`, what is
    beyond is left out if the program makes it again, and packed otherwise; pack_some raises
    TooMuch for what does not fit in any memory. Of objects of the classes `walked` the
    attributes are packed, as of the program's own. Tensors that share memory are copied once.
    """

    finds_changes = True  # of what cannot be packed

    def __init__(
        self,
        known: dict[int, int],
        largest: int = 1 << 62,
        longest: int = 1 << 62,
        walked: tuple[type, ...] = (),
        large: Large | None = None,
        beside: Places | None = None,
    ) -> None:
        self._known = known
        self._beside = beside
        self._walked = walked
        self._large = large
        self._largest = largest
        self._longest = longest
        self._most = longest * _COLLECTIONS if large is None else _MOST_ITEMS
        self._allowed = self._most
        self._bytes = 0
        self._path: set[int] = set()
        self._copies: dict[Any, Raw] = {}

    def pack(self, value: Any) -> Tree:
        """The tree of a value. Raises Unplain."""
        kind = type(value)
        if kind in PLAIN:
            return value
        if id(value) in self._path:
            raise Unplain(f"a {kind.__name__} that holds itself")
        if len(self._path) > _DEPTH:
            said = f"a {kind.__name__} that is nested deeper than {_DEPTH}"
            raise Unplain(said) if self._large is None else TooMuch(said)
        if not self._path and self._large is not None:
            self._allowed = self._most
        self._path.add(id(value))
        try:
            return self._pack(kind, value)
        finally:
            self._path.discard(id(value))

    def pack_some(self, values: Iterable[tuple[str, Any]]) -> dict[str, Tree]:
        """Those of the named values that can be packed. Raises TooMuch."""
        packed = {}
        for name, value in values:
            if self._large is not None and self._large.noting:
                self._large.note(name, value)
            try:
                packed[name] = self.pack(value)
            except TooMuch as error:
                assert self._large is not None
                said = self._large.made(value)
                if said is not None:
                    packed[name] = {"made": said}
                elif not self._large.noting:
                    raise error.of(name) from None
            except Unplain as error:
                large = self._large if self.finds_changes else None
                if large is not None and large.has_changed(name, value):
                    said = f"which has changed and holds {error}"
                    if is_iterator(value):
                        said = f"{error}, and a pass has taken from it"
                    raise TooMuch(said, name) from None
        return packed

    def _pack(self, kind: type, value: Any) -> Tree:
        name = kind.__name__
        large = self._large
        if large is not None and self._is_large(value) and (said := large.made(value)):
            return {"made": said}
        if kind is list and PLAINS.issuperset(map(type, value)):
            return list(self._short(value))
        if kind is list:
            return [self.pack(item) for item in self._short(value)]
        if DICTS.get(name) is kind:
            items = [[self.pack(key), self.pack(item)] for key, item in self._short(value).items()]
            return {name: items}
        if LISTS.get(name) is kind:
            return {name: [self.pack(item) for item in self._short(value)]}
        if kind is bytes:
            return {"bytes": value.hex()}
        packed = self._of_torch(kind, value) or pack_generator(value) or self._of_numpy(value)
        if packed is None and is_iterator(value) and (place := place_of(value)) is not None:
            return {"place": self.pack(place)}
        return packed if packed is not None else self._object(kind, value)

    def _is_large(self, value: Any) -> bool:
        if hasattr(value, "dtype"):
            return getattr(value, "nbytes", 0) > self._largest and id(value) not in self._known
        return isinstance(value, _LONG) and len(value) > self._longest

    def _short(self, collection: Any) -> Any:
        said = f"a {type(collection).__name__} of {len(collection)} items"
        if self._large is None and len(collection) > self._longest:
            raise Unplain(said)
        self._count(len(collection), said)
        return collection

    def _count(self, items: int, said: str) -> None:
        self._allowed -= items
        if self._allowed < 0:
            raise Unplain(said) if self._large is None else TooMuch(said)

    def _check_size(self, size: int, said: str) -> None:
        self._bytes += size
        if self._large is None and size > self._largest:
            raise Unplain(said)
        if self._large is not None and self._bytes > _MOST_BYTES:
            raise TooMuch(said)

    def _of_torch(self, kind: type, value: Any) -> Tree:
        import torch

        if isinstance(value, torch.Tensor):
            if id(value) in self._known:
                return {"known": self._known[id(value)]}
            check(value)
            return {"tensor": self._copy(value), "leaf": value.requires_grad and value.is_leaf}
        if kind is torch.Size:
            return {"Size": list(value)}
        if kind in (torch.dtype, torch.device):
            return {kind.__name__: str(value)}
        return None if self._beside is None else self._beside.pack(value)

    def _copy(self, tensor: Any) -> Raw:
        where = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype, tensor.device)
        if where in self._copies and tensor.numel():
            return self._copies[where]
        size = tensor.numel() * tensor.element_size()
        self._check_size(size, f"a tensor of shape {tuple(tensor.shape)}")
        self._copies[where] = Raw.of(tensor)
        return self._copies[where]

    def _of_numpy(self, value: Any) -> Tree:
        numpy = sys.modules.get("numpy")
        if numpy is None or not isinstance(value, (numpy.ndarray, numpy.generic)):
            return None
        if type(value) is not numpy.ndarray and not isinstance(value, numpy.generic):
            raise Unplain(f"a {type(value).__name__}")
        if value.dtype.kind not in "biufcmMSU":
            raise Unplain(f"an array of {value.dtype}")
        self._check_size(value.nbytes, f"an array of {value.dtype}, {value.nbytes} bytes")
        tag = "array" if isinstance(value, numpy.ndarray) else "scalar"
        return {
            tag: Raw.of_bytes(value.tobytes()),
            "dtype": value.dtype.str,
            "shape": list(value.shape),
        }

    def _object(self, kind: type, value: Any) -> Tree:
        if not (issubclass(kind, self._walked) or is_walked(kind)):
            raise Unplain(f"a {kind.__name__}")
        if isinstance(value, enum.Enum):
            return {"enum": class_name(kind), "name": value.name}
        if isinstance(value, tuple) and hasattr(kind, "_fields"):
            return {"record": class_name(kind), "items": [self.pack(item) for item in value]}
        slots, plain = (
            slots_of(kind),
            next((one for one in HOLDING if isinstance(value, one)), None),
        )
        if not slots and not hasattr(value, "__dict__"):
            raise Unplain(f"a {kind.__name__}")
        there = [(name, getattr(value, name)) for name in slots if hasattr(value, name)]
        there += getattr(value, "__dict__", {}).items()
        self._count(len(there), f"a {kind.__name__} with all that it leads to")
        attributes = self.pack_some(there)
        tree: Tree = {"object": class_name(kind), "attributes": attributes}
        if plain is not None:
            tree["items"] = self.pack(plain(value))
        tree["whole"] = len(attributes) == len(there)
        return tree


def pack_generator(value: Any) -> Tree:
    """Generators of random numbers: their state, to be put back into the same object."""
    import torch

    numpy, packer = sys.modules.get("numpy"), Packer({})
    if isinstance(value, torch.Generator):
        return {"Generator": Raw.of(value.get_state())}
    if type(value) is random.Random:
        return {"Random": packer.pack(value.getstate())}
    if numpy is not None and isinstance(value, numpy.random.Generator):
        return {"numpy.Generator": packer.pack(value.bit_generator.state)}
    if numpy is not None and isinstance(value, numpy.random.RandomState):
        return {"numpy.RandomState": packer.pack(value.get_state(legacy=False))}
    return None
