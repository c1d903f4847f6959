"""A program that goes on in more or fewer processes than its checkpoint is of.

What depends on their number, such as a rank and its share of the data, is computed again when the
program is run again; what was learned comes from the checkpoint. The two are distinguished by the
value that a variable had when the program first came there. If the checkpoint still has that value,
the variable keeps what the program has just given it for the current number of processes.
"""

from __future__ import annotations

import contextlib
import os
import types
from typing import Any

from trainer_shim.adapters.torch.frame_locals import Copies, of_program
from trainer_shim.adapters.torch.loaders import copy_loader
from trainer_shim.adapters.torch.objects import Objects
from trainer_shim.adapters.torch.state import State, Tree
from trainer_shim.adapters.torch.tensor_bytes import Raw
from trainer_shim.adapters.torch.unchanged_values import digest
from trainer_shim.saver import OtherProgram


class FirstValues:
    """What variables, loaders and other objects were when the program first came to each: the
    variables to a pass in the functions that are being executed, a loader when it was made.

    Nothing is kept of a program that is alone.
    """

    def __init__(self, is_kept: bool) -> None:
        self.is_kept = is_kept
        self._world = int(os.environ.get("WORLD_SIZE", "1"))
        self._variables: dict[str, Copies] = {}
        self._loaders: dict[str, dict[str, Tree]] = {}
        self._objects: State = {}
        self._past: FirstValues | None = None  # of a checkpoint of another number of processes

    # -- noting

    def is_new(self, frame: types.FrameType) -> bool:
        """Whether no pass was begun in these functions yet."""
        return self.is_kept and _functions(frame) not in self._variables

    def note(self, frame: types.FrameType, copies: Copies, attributes: State) -> None:
        """A pass begins in functions in which none has yet."""
        if self.is_kept:
            self._variables[_functions(frame)] = copies
            self._objects = self._objects or attributes

    def note_loader(self, number: int, loader: Any) -> None:
        """The program has made a loader."""
        if self.is_kept:
            with contextlib.suppress(Exception):  # whatever the program's own class raises
                self._loaders[str(number)] = copy_loader(loader)

    def dump(self) -> State:
        """For a checkpoint."""
        if not self.is_kept:
            return {}
        kept = {"world": self._world, "variables": self._variables, "loaders": self._loaders}
        return {"first": {**kept, "attributes": self._objects}}

    def load(self, past: State) -> None:
        """Go on from a checkpoint that holds what `dump` gave."""
        kept = past.get("first")
        if self.is_kept and kept is not None and kept["world"] != self._world:
            first = self._past = FirstValues(True)
            first._world, first._variables = kept["world"], kept["variables"]
            first._loaders, first._objects = kept["loaders"], kept["attributes"]

    def is_back(self) -> None:
        """The program is where it was at the checkpoint."""
        self._past = None

    # -- what is to be put back, of what a checkpoint holds

    @property
    def is_elsewhere(self) -> bool:
        """Whether it is run again in another number of processes."""
        return self._past is not None

    def variables(self, frame: types.FrameType, copies: Copies) -> Copies:
        """The variables of the functions that `frame` is in."""
        functions = _functions(frame)
        if self._past is None or functions not in self._past._variables:
            return copies
        then, now = self._past._variables[functions], self._variables.get(functions, copies)
        return [_of_both(*each) for each in zip(copies, then, now, strict=True)]

    def loader(self, number: int, copy: dict[str, Tree]) -> dict[str, Tree]:
        """What the next pass over a loader depends on."""
        then = None if self._past is None else self._past._loaders.get(str(number))
        now = self._loaders.get(str(number))
        if then is None or now is None:
            return copy
        found: dict[str, Tree] = _of_both(copy, then, now)
        return found

    def objects(self, state: State, numbers: list[int]) -> State:
        """What an inventory holds; `numbers` are those of its loaders."""
        if self._past is None:
            return state
        merged = dict(state)
        for kind, now in self._objects.items():
            then = self._past._objects.get(kind, ())
            if len(state[kind]) == len(then) == len(now):
                merged[kind] = [_of_both(*each) for each in zip(state[kind], then, now)]
        loaders = zip(numbers, state["loaders"])
        return {**merged, "loaders": [self.loader(number, copy) for number, copy in loaders]}

    def check_batch(self, number: int) -> None:
        """Raises OtherProgram if the processes together no longer read a batch as large as before
        from this loader, which the program trains on."""
        if self._past is None:
            return
        then, now = (
            _global_batch(first._loaders.get(str(number), {})) for first in (self._past, self)
        )
        if then != now:
            raise OtherProgram(
                f"a batch of {now} in {self._world} processes, it was {then} in "
                f"{self._past._world}: divide the loader's batch_size by WORLD_SIZE"
            )


def _functions(frame: types.FrameType) -> str:
    return " < ".join(own.f_code.co_name for own in of_program(frame))


def _of_both(saved: Tree, then: Tree, now: Tree) -> Tree:
    """The checkpoint's value where that has changed since `then`; else what it is `now`."""
    if saved == then or _holds_the_same(saved, then):
        return now
    kinds = {type(saved), type(then), type(now)}
    if kinds == {list} and len(saved) == len(then) == len(now):
        return [_of_both(*each) for each in zip(saved, then, now)]
    if kinds != {dict} or _raw(saved) is not None or saved.get("object") != now.get("object"):
        return saved
    return {
        key: _of_both(tree, then[key], now[key]) if key in then and key in now else tree
        for key, tree in saved.items()
    }


def _holds_the_same(saved: Tree, then: Tree) -> bool:
    """Whether these are tensors or arrays of the same values, wherever they are; one that was
    large then is known by its sum."""
    raw, before = _raw(saved), _raw(then)
    if raw is not None and isinstance(then, dict) and "made" in then:
        return digest(raw.data) == (then["made"], 0)
    return raw is not None and before is not None and Raw.of(raw.data) == Raw.of(before.data)


def _raw(tree: Tree) -> Raw | None:
    there = tree.values() if isinstance(tree, dict) else ()
    return next((each for each in there if isinstance(each, Raw)), None)


def _global_batch(loader: dict[str, Any]) -> int | None:
    """How many examples the processes together have in a batch, by what a DistributedSampler and
    the loader say."""
    try:
        ranks = loader["sampler"]["attributes"]["num_replicas"]
        return int(loader["batch_sampler"]["attributes"]["batch_size"] * ranks)
    except (KeyError, TypeError):
        return None


def are_replicas(objects: Objects, loader: Any) -> bool:
    """Whether all that is trained is the same in every process, and each has its share of the
    batches: DistributedDataParallel over a loader with a DistributedSampler."""
    import torch
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data.distributed import DistributedSampler

    optimizers = objects.alive("optimizer")
    if any(type(one).__module__.startswith("torch.distributed") for one in optimizers):
        return False  # each process would have its share of the state
    models = [one for one in objects.alive("module") if isinstance(one, DistributedDataParallel)]
    replicated = {id(each) for model in models for each in model.parameters()}
    trained = {
        id(each) for one in optimizers for group in one.param_groups for each in group["params"]
    }
    sampler: Any = getattr(loader, "sampler", None)
    is_shared = type(sampler) is DistributedSampler and loader.batch_sampler is not None
    ranks = torch.distributed.get_world_size() if torch.distributed.is_initialized() else 0
    is_all = is_shared and sampler.num_replicas == ranks
    return bool(trained) and trained <= replicated and is_all
