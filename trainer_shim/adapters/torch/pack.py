"""Values as a checkpoint holds them: a tree of JSON, with raw bytes for large values.

Nothing is pickled, and nothing that is read back can run code. A packed value shares no memory with
the program's. A value that belongs to something else (a function, an open file) is not packed:
`Unplain` is raised, and the caller decides what that means. `Unpacker` is the way back.
"""

from __future__ import annotations

import enum
import random
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable, Sequence
from typing import Any, Callable

from trainer_shim.adapters.torch.classes import HOLDING, class_name, class_of, is_walked, slots_of
from trainer_shim.adapters.torch.iterators import is_iterator
from trainer_shim.adapters.torch.state import Tree
from trainer_shim.adapters.torch.tensor_bytes import Raw, Unplain, check
from trainer_shim.adapters.torch.unchanged_values import UnchangedValues, digest
from trainer_shim.saver import OtherProgram

_DEPTH = 16
_NAMES = 3  # that lead to a value are said: those it begins with, and its own
_COLLECTIONS = 64
_MOST_BYTES, _MOST_ITEMS = 2 << 30, 1 << 21
PLAIN = (type(None), bool, int, float, str)
PLAINS = frozenset(PLAIN)
DICTS = {"dict": dict, "Counter": Counter, "OrderedDict": OrderedDict, "defaultdict": defaultdict}
LISTS: dict[str, type] = {"tuple": tuple, "set": set, "frozenset": frozenset, "deque": deque}
_LONG = (*HOLDING, tuple, frozenset)


class TooLargeToPack(Unplain):
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

    def of(self, name: str) -> TooLargeToPack:
        """The same of an attribute of what has this name."""
        return TooLargeToPack(self._said, name, *self._names)


class Packer:
    """Packs values; tensors that `known` lists by id are packed as references to them.

    `largest` bounds one tensor or array in bytes, `longest` one collection in items; in all,
    as many items are packed of one value as some full collections have. With `large`, what is
    beyond is left out if the program makes it again, and packed otherwise; pack_some raises
    TooLargeToPack for what does not fit in any memory. Of objects of the classes `walked` the
    attributes are packed, as of the program's own. Tensors that share memory are copied once.
    """

    finds_changes = True  # of what cannot be packed

    def __init__(
        self,
        known: dict[int, int],
        largest: int = 1 << 62,
        longest: int = 1 << 62,
        walked: tuple[type, ...] = (),
        large: UnchangedValues | None = None,
    ) -> None:
        self._known = known
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
            raise Unplain(said) if self._large is None else TooLargeToPack(said)
        if not self._path and self._large is not None:
            self._allowed = self._most
        self._path.add(id(value))
        try:
            return self._pack(kind, value)
        finally:
            self._path.discard(id(value))

    def pack_some(self, values: Iterable[tuple[str, Any]]) -> dict[str, Tree]:
        """Those of the named values that can be packed. Raises TooLargeToPack."""
        packed = {}
        for name, value in values:
            if self._large is not None and self._large.noting:
                self._large.note(name, value)
            try:
                packed[name] = self.pack(value)
            except TooLargeToPack as error:
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
                    raise TooLargeToPack(said, name) from None
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
            raise Unplain(said) if self._large is None else TooLargeToPack(said)

    def _check_size(self, size: int, said: str) -> None:
        self._bytes += size
        if self._large is None and size > self._largest:
            raise Unplain(said)
        if self._large is not None and self._bytes > _MOST_BYTES:
            raise TooLargeToPack(said)

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
        return None

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


# Puts back what `pack` packed, where possible into the objects that are there already.
#
# A list, a dict or an object that is there is changed and kept, so that whoever else holds
# it sees the change; what does not fit the place is left as it was, and `Unplain` says so. Words
# and plain tuples that are what they were stay the very same objects: a file that the program
# writes of them is another one to the last byte if it holds one of them twice.


class Unpacker:
    """`known` are the tensors that references mean, in their order.

    A value that is the first of a pair in `raised` is left at the second where it is that now: a
    hyper-parameter that the program was given anew, wherever the program has written it down.
    """

    def __init__(
        self,
        known: list[Any],
        raised: Sequence[tuple[Any, Any]] = (),
    ) -> None:
        self._tensors = known
        self._raised = raised
        self._ids = {id(tensor) for tensor in known}

    def unpack(self, tree: Tree, current: Any = None) -> Any:
        """The value of a tree; `current` is what is in its place now. Raises Unplain."""
        if type(tree) is str:
            return self._text(tree, current)
        if type(tree) in PLAIN:
            return current if (tree, current) in self._raised else tree
        if isinstance(tree, list):
            items = self._each(tree, current)
            if type(current) is not list:
                return items
            current[:] = items
            return current
        tag, content = next(iter(tree.items()))
        if tag in DICTS:
            return self._dict(DICTS[tag], content, current)
        if tag in LISTS:
            return self._collection(LISTS[tag], content, current)
        if tag in _GENERATORS:
            return self._generator(tag, content, current)
        handler: Callable[[Any, Tree, Any], Any] | None = getattr(self, f"_{tag}", None)
        if handler is None:
            raise OtherProgram(f"the checkpoint is of another version of Hermes: it holds a {tag}")
        return handler(content, tree, current)

    def put_some(self, trees: dict[str, Tree], values: dict[str, Any]) -> None:
        """Put back those that fit, into an object's `__dict__` or another namespace."""
        for name, tree in trees.items():
            current = values.get(name)
            try:
                values[name] = self.unpack(tree, current)
            except Unplain:
                continue

    def _text(self, text: str, current: Any) -> Any:
        if (text, current) in self._raised or (type(current) is str and current == text):
            return current
        # As Python has one object for all equal words of a program: names, keys, choices.
        return sys.intern(text) if text.isascii() and text.replace("_", "a").isalnum() else text

    def _each(self, trees: list[Tree], current: Any) -> list[Any]:
        there = list(current) if isinstance(current, (list, tuple, deque)) else []
        there += [None] * (len(trees) - len(there))
        return [self.unpack(tree, item) for tree, item in zip(trees, there)]

    def _dict(self, kind: Any, content: Tree, current: Any) -> Any:
        same = type(current) is kind
        items = []
        for key_tree, tree in content:
            key = self.unpack(key_tree)
            items.append((key, self.unpack(tree, current.get(key) if same else None)))
        if not same:
            if kind is defaultdict:
                raise Unplain("a defaultdict whose factory is not known")
            return kind(dict(items))
        current.clear()
        for key, value in items:  # a Counter's `update` would count the pairs
            current[key] = value
        return current

    def _collection(self, kind: Any, content: Tree, current: Any) -> Any:
        items = self._each(content, current)
        if type(current) is not kind or kind in (tuple, frozenset):
            if kind is deque:
                raise Unplain("a deque whose greatest length is not known")
            made = kind(items)
            return current if _is_the_same(made, current) else made
        current.clear()
        (current.extend if kind is deque else current.update)(items)
        return current

    def _made(self, said: str, tree: Tree, current: Any) -> Any:
        now = digest(current)
        if now is None or now[0] != said:
            raise OtherProgram(f"a {type(current).__name__} is not what it was ({said}, {now})")
        return current

    def _bytes(self, content: str, tree: Tree, current: Any) -> bytes:
        return bytes.fromhex(content)

    def _known(self, index: int, tree: Tree, current: Any) -> Any:
        return self._tensors[index]

    def _tensor(self, raw: Raw, tree: Tree, current: Any) -> Any:
        import torch

        alike = (
            isinstance(current, torch.Tensor)
            and id(current) not in self._ids
            and current.shape == raw.data.shape
            and current.dtype == raw.data.dtype
            and str(current.device) == raw.device
            and current.is_leaf
            and current.requires_grad == tree["leaf"]
            and current._base is None
        )
        if alike:
            with torch.no_grad():
                return current.copy_(raw.data)
        return raw.tensor().requires_grad_(tree["leaf"])

    def _Size(self, sizes: list[int], tree: Tree, current: Any) -> Any:
        import torch

        return torch.Size(sizes)

    def _dtype(self, name: str, tree: Tree, current: Any) -> Any:
        import torch

        return getattr(torch, name.rpartition(".")[2])

    def _device(self, name: str, tree: Tree, current: Any) -> Any:
        import torch

        return torch.device(name)

    def _array(self, raw: Raw, tree: Tree, current: Any) -> Any:
        import numpy as np

        made = np.frombuffer(raw.bytes(), np.dtype(tree["dtype"])).reshape(tree["shape"])
        if (
            type(current) is np.ndarray
            and (current.shape, current.dtype) == (made.shape, made.dtype)
            and current.flags.writeable
            and current.base is None
        ):
            current[...] = made
            return current
        return made.copy()

    def _scalar(self, raw: Raw, tree: Tree, current: Any) -> Any:
        import numpy as np

        return np.frombuffer(raw.bytes(), np.dtype(tree["dtype"]))[0]

    def _object(self, name: str, tree: Tree, current: Any) -> Any:
        if current is None or class_name(type(current)) != name:
            current = _anew(name, tree)
        if "items" in tree:
            plain: Any = next(one for one in HOLDING if isinstance(current, one))
            items = self.unpack(tree["items"])
            plain.clear(current)
            (plain.extend if plain in (list, deque) else plain.update)(current, items)
        trees, slots = tree["attributes"], slots_of(type(current))
        if slots:
            values = {one: getattr(current, one) for one in slots if hasattr(current, one)}
            self.put_some({one: trees[one] for one in slots if one in trees}, values)
            for one, value in values.items():
                object.__setattr__(current, one, value)
        if hasattr(current, "__dict__"):
            self.put_some({k: v for k, v in trees.items() if k not in slots}, vars(current))
        return current

    def _enum(self, name: str, tree: Tree, current: Any) -> Any:
        return _class(name)[tree["name"]]

    def _record(self, name: str, tree: Tree, current: Any) -> Any:
        return tuple.__new__(_class(name), self._each(tree["items"], current))

    def _generator(self, tag: str, content: Tree, current: Any) -> Any:
        if current is None or type(current).__name__ != tag.rpartition(".")[2]:
            raise Unplain(f"a {tag}, which only the program can make")
        _GENERATORS[tag](current, content if isinstance(content, Raw) else self.unpack(content))
        return current


def _is_the_same(made: Any, current: Any) -> bool:
    """Whether a collection that cannot change is what is there: -0.0 is not 0.0, nor 1 True."""
    alike = type(current) is type(made) and len(current) == len(made)
    return alike and PLAINS.issuperset(map(type, made)) and repr(made) == repr(current)


def _anew(name: str, tree: Tree) -> Any:
    """An object that the program made where it is not run again. Raises Unplain."""
    kind = _class(name)
    if not tree.get("whole") or issubclass(kind, deque):
        raise Unplain(f"a {name}, which only the program can make")
    try:
        return next((one for one in HOLDING if issubclass(kind, one)), object).__new__(kind)
    except TypeError as error:
        raise Unplain(f"a {name}, which only the program can make: {error}") from None


def _class(name: str) -> Any:
    found = class_of(name)
    if found is None:
        raise Unplain(f"a {name}, of a class that is not there")
    return found


def _set_torch(generator: Any, raw: Raw) -> None:
    generator.set_state(raw.data)


def _set_python(generator: Any, state: Any) -> None:
    generator.setstate(state)


def _set_numpy(generator: Any, state: Any) -> None:
    generator.bit_generator.state = state


def _set_old_numpy(generator: Any, state: Any) -> None:
    generator.set_state(state)


_GENERATORS: dict[str, Callable[[Any, Any], None]] = {
    "Generator": _set_torch,
    "Random": _set_python,
    "numpy.Generator": _set_numpy,
    "numpy.RandomState": _set_old_numpy,
}
