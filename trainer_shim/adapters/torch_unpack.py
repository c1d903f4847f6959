"""Puts back what `torch_pack` packed, where possible into the objects that are there already.

Rule: a list, a dict or an object that is there is changed and kept, so that whoever else holds
it sees the change; what does not fit the place is left as it was, and `Unplain` says so. Words and
plain tuples that are what they were stay the very same objects: a file that the program writes of
them is another one to the last byte if it holds one of them twice.
"""

from __future__ import annotations

import sys
from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Any, Callable

from trainer_shim.adapters.torch_classes import HOLDING, class_name, class_of, slots_of
from trainer_shim.adapters.torch_iterators import moved
from trainer_shim.adapters.torch_large import digest
from trainer_shim.adapters.torch_pack import DICTS, LISTS, PLAIN, PLAINS, Places
from trainer_shim.adapters.torch_raw import Raw, Unplain
from trainer_shim.adapters.torch_state import OtherProgram, Tree


class Unpacker:
    """`known` are the tensors that references mean, in their order.

    A value that is the first of a pair in `raised` is left at the second where it is that now: a
    hyper-parameter that the program was given anew, wherever the program has written it down.
    """

    def __init__(
        self,
        known: list[Any],
        raised: Sequence[tuple[Any, Any]] = (),
        beside: Places | None = None,
    ) -> None:
        self._tensors = known
        self._raised = raised
        self._beside = beside
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
        handler: Callable[[Any, Tree, Any], Any] = getattr(self, f"_{tag}")
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

    def _iterator(self, number: int, tree: Tree, current: Any) -> Any:
        if self._beside is None:
            raise Unplain("an iterator over a DataLoader")
        return self._beside.unpack(tree, current)

    def _place(self, place: Tree, tree: Tree, current: Any) -> Any:
        return moved(current, place)

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
