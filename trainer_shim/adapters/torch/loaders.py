"""What the next pass over a DataLoader depends on.

All of its samplers is copied, since these say what is read next. Of its data, only what a program
counts there is copied, and arrays and long lists from before the first pass that the program has
changed since; it makes the others again.
"""

from __future__ import annotations

from typing import Any, Callable

from trainer_shim.adapters.torch import private
from trainer_shim.adapters.torch.pack import Packer, TooLargeToPack, Unpacker
from trainer_shim.adapters.torch.random import copy_random, set_random
from trainer_shim.adapters.torch.state import State, Tree
from trainer_shim.adapters.torch.tensor_bytes import Unplain
from trainer_shim.adapters.torch.unchanged_values import UnchangedValues

_SAMPLERS, _DATA = ("sampler", "batch_sampler"), ("dataset", "collate_fn")
_LARGE = 1 << 20
_LONGEST = 256


def begun_with(loader: Any, large: UnchangedValues, obstacle: Callable[[str], None]) -> State:
    """What a pass over it is begun with, by now. Workers see the data as they are now."""
    try:
        copy = copy_loader(loader, large, with_data=loader.num_workers > 0)
    except TooLargeToPack as error:
        obstacle(f"the checkpoint would have to hold {error}")
        copy = {}
    return {"random": copy_random(), "loader": copy}


def copy_loader(
    loader: Any, large: UnchangedValues | None = None, with_data: bool = True
) -> dict[str, Tree]:
    """The generators and counters of all its parts, with `large` the arrays.

    Raises TooLargeToPack.
    """
    small = Packer({}, largest=0, longest=_LONGEST)
    samplers = small if large is None else _OfSampler(loader.dataset, large)
    data = small if large is None or not with_data else _OfData(large)
    return {
        **small.pack_some([("generator", loader.generator)]),
        **samplers.pack_some((name, getattr(loader, name)) for name in _SAMPLERS),
        **data.pack_some((name, getattr(loader, name)) for name in _DATA),
    }


def put_back_loader(loader: Any, copy: dict[str, Tree], unpacker: Unpacker) -> None:
    """Set it in the objects that the loader has."""
    for name, tree in copy.items():
        try:
            unpacker.unpack(tree, getattr(loader, name))
        except Unplain:
            continue


class _OfSampler(Packer):
    def __init__(self, data: Any, large: UnchangedValues) -> None:
        super().__init__({}, _LARGE, _LONGEST, large=large)
        self._data = data

    def pack(self, value: Any) -> Tree:
        if value is self._data:
            raise Unplain("the data")
        return super().pack(value)


class _OfData(Packer):
    def __init__(self, large: UnchangedValues) -> None:
        super().__init__({}, 0, _LONGEST, large=large)
        self._found = large

    def _is_large(self, value: Any) -> bool:
        if super()._is_large(value) and not self._found.is_another(value):
            raise Unplain("what the program makes again")
        return False


def skip(iterator: Any, next_batch: Callable[[Any], Any]) -> None:
    """Move an iterator over a DataLoader past a batch. Raises StopIteration at its end."""
    if isinstance(iterator, private.find(private.LOADER, "_SingleProcessDataLoaderIter")):
        iterator._next_index()
        iterator._num_yielded += 1
    else:
        # What the workers draw must be drawn again, by the same workers.
        next_batch(iterator)


def obstacle(loader: Any) -> str | None:
    """Why a pass over this loader cannot be gone on with."""
    from torch.utils.data import IterableDataset, MapDataPipe

    if isinstance(loader.dataset, (IterableDataset, MapDataPipe)):
        return f"the position of the {type(loader.dataset).__name__} cannot be saved"
    if loader.num_workers and loader.persistent_workers:
        return "persistent_workers: what workers drew in earlier passes is not known"
    if loader.num_workers and not getattr(loader, "in_order", True):
        return "in_order=False: the order of the batches is not repeatable"
    return None


def begin_again(loader: Any, before: State) -> None:
    """Set what the pass under way was begun with."""
    put_back_loader(loader, before["loader"], Unpacker([]))
    set_random(before["random"])
