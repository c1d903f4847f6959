"""What finished passes have left in variables, for the lines between them to find again.

A value that has not changed since the previous pass is kept once. All values together may take
`_MOST` bytes. Beyond that, only the newest value of each variable is kept, and stands for those of
earlier passes: what these lines made of them is restored with the checkpoint itself.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from trainer_shim.adapters.torch.frame_locals import Copies
from trainer_shim.adapters.torch.pack import PLAIN, Packer
from trainer_shim.adapters.torch.state import State, Tree
from trainer_shim.adapters.torch.tensor_bytes import Raw, Unplain
from trainer_shim.adapters.torch.unchanged_values import UnchangedValues

# What is larger than this and was there before the first pass is left alone. An item of a
# collection counts as so many bytes.
LARGE = 1 << 20
_LONG = 20_000
_MOST = 16 << 20
_ITEM = 16
_Key = tuple[str, str]  # the place of a pass and the frame, the variable


class PassVariables:
    """The variables that the passes so far have left."""

    def __init__(self, large: UnchangedValues) -> None:
        self._large = large
        self._newest: dict[_Key, Tree] = {}
        self._held: deque[tuple[dict[str, Tree], str, int]] = deque()
        self._bytes = 0

    def packer(self) -> Packer:
        """What packs the variables of the program when a pass is over."""
        return _Values(self._large)

    def keep(self, site: str, copies: Copies) -> Copies:
        """Keep what a pass in this place has left; the same, as it is kept."""
        for number, copy in enumerate(copies):
            values = copy["values"]
            for name, tree in values.items():
                key = (_place(site, number, copy), name)
                if type(tree) in PLAIN or _is_newest(tree):
                    continue
                if key in self._newest and self._newest[key] == tree:
                    values[name] = self._newest[key]
                    continue
                self._newest[key] = tree
                size = _size(tree)
                self._bytes += size
                self._held.append((values, name, size))
        while self._bytes > _MOST:
            values, name, size = self._held.popleft()
            values[name] = {"newest": name}
            self._bytes -= size
        return copies

    def of(self, site: str, copies: Copies) -> Copies:
        """What was kept, to be put back."""
        return [
            {
                "frame": copy["frame"],
                "values": {
                    name: self._newest[_place(site, number, copy), name]
                    if _is_newest(tree)
                    else tree
                    for name, tree in copy["values"].items()
                },
            }
            for number, copy in enumerate(copies)
        ]

    def dump(self, records: list[State]) -> State:
        """Records for a checkpoint, each value of theirs once."""
        kept: list[Tree] = []
        numbers: dict[int, int] = {}

        def number(tree: Tree) -> Tree:
            if type(tree) in PLAIN or _is_newest(tree):
                return tree
            if id(tree) not in numbers:
                numbers[id(tree)] = len(kept)
                kept.append(tree)
            return {"kept": numbers[id(tree)]}

        slim = [_with_values(record, number) for record in records]
        newest = [[*key, number(tree)] for key, tree in self._newest.items()]
        return {"records": slim, "kept": kept, "newest": newest}

    def load(self, past: State) -> State:
        """What `dump` was given, of a checkpoint that is gone on from."""
        kept = past["kept"]

        def tree(said: Tree) -> Tree:
            return kept[said["kept"]] if type(said) is dict and "kept" in said else said

        records = [_with_values(record, tree) for record in past["records"]]
        for record in records:
            if record["kind"] == "ended":
                self.keep(record["site"], record["left"]["variables"])
        for place, name, said in past["newest"]:
            self._newest[place, name] = tree(said)
        return {**past, "records": records}


def _with_values(record: State, change: Any) -> State:
    if record["kind"] != "ended":
        return record
    copies = [
        {**one, "values": {name: change(tree) for name, tree in one["values"].items()}}
        for one in record["left"]["variables"]
    ]
    return {**record, "left": {**record["left"], "variables": copies}}


def _place(site: str, number: int, copy: State) -> str:
    return f"{site}, {number}: {copy['frame']}"


def _is_newest(tree: Tree) -> bool:
    return type(tree) is dict and "newest" in tree


def _size(tree: Tree) -> int:
    if isinstance(tree, Raw):
        return int(tree.data.numel() * tree.data.element_size())
    if isinstance(tree, dict):
        tree = list(tree.values())
    if not isinstance(tree, list):
        return _ITEM
    return sum(map(_size, tree))


class _Values(Packer):
    """Packs what may have changed: neither parameters of models nor what is large and was there
    before the first pass: those a checkpoint has besides."""

    finds_changes = False

    def __init__(self, large: UnchangedValues) -> None:
        super().__init__({}, LARGE, _LONG, large=large)
        self._there = large.known

    def _is_large(self, value: Any) -> bool:
        is_large = super()._is_large(value)
        if is_large and id(value) in self._there:
            raise Unplain("what was there before the first pass")
        return is_large

    def _of_torch(self, kind: type, value: Any) -> Tree:
        import torch

        if kind is torch.nn.Parameter:
            raise Unplain("a parameter")
        return super()._of_torch(kind, value)
