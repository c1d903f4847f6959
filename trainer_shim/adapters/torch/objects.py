"""The models, optimizers, schedulers, scalers and loaders of a program: found, copied, restored.

They are found by their constructors and known by the order in which they were made, since a program
that is run again makes them again. Before anything is restored, every name, shape and type is
compared, so a checkpoint fits as a whole or is refused as a whole.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

from trainer_shim.adapters.torch.classes import class_name
from trainer_shim.adapters.torch.loaders import copy_loader, put_back_loader
from trainer_shim.adapters.torch.pack import Packer, TooLargeToPack, Unpacker
from trainer_shim.adapters.torch.state import State, Tree
from trainer_shim.adapters.torch.tensor_bytes import Raw, Unplain
from trainer_shim.adapters.torch.unchanged_values import UnchangedValues
from trainer_shim.agent import CannotCapture
from trainer_shim.saver import OtherProgram

ALL = 1 << 62
_ATTRIBUTE_BYTES = 1 << 20
_LONGEST = 256
_NOT_ATTRIBUTES = {
    "scheduler": {"optimizer"},
    "optimizer": {"state", "param_groups", "defaults"},
    "scaler": {"_per_optimizer_states"},
}
# How far what a DistributedDataParallel sums gradients with has come: one made anew begins.
_OF_REDUCER = {"_has_rebuilt_buckets", "_lazy_init_ran", "_static_graph_delay_allreduce_enqueued"}
KINDS = ("module", "optimizer", "scheduler", "scaler", "loader")


class Objects:
    """What the program has made so far, held weakly."""

    def __init__(self) -> None:
        self.made = 0
        self.loaders = 0  # that were made, those among them that are gone
        self.large = UnchangedValues()
        self.inside: weakref.WeakSet[Any] = weakref.WeakSet()  # loaders that a re-run does not make
        self._numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._made: dict[str, dict[int, tuple[weakref.ref[Any], int]]] = {k: {} for k in KINDS}

    def add(self, kind: str, one: Any) -> None:
        """An object was made; told twice, it counts once."""
        made, key = self._made[kind], id(one)
        known = made.get(key)
        if known is None or known[0]() is not one:
            made.pop(key, None)  # of an object that is gone: its place in the order as well
            self.made += 1
            made[key] = (weakref.ref(one), self.made)
            if kind == "loader":
                self._numbers[one] = self.loaders
                self.loaders += 1

    def alive(self, kind: str, since: int = 0, until: int = ALL) -> list[Any]:
        """Those still there, in the order in which they were made; after the `since`-th and up to
        the `until`-th."""
        found = [(reference(), number) for reference, number in self._made[kind].values()]
        return [one for one, number in found if one is not None and since < number <= until]

    def order(self, kind: str, one: Any) -> int:
        """How many objects were made up to this one."""
        return self._made[kind][id(one)][1]

    def forget(self) -> None:
        """Drop the places of those that are gone."""
        for kind, made in self._made.items():
            self._made[kind] = {key: one for key, one in made.items() if one[0]() is not None}

    def number(self, loader: Any) -> int:
        """How many loaders were made before this one."""
        return self._numbers[loader]

    def models(self, until: int = ALL) -> list[Any]:
        """The modules that are in no other module and have something to keep."""
        modules = self.alive("module", until=until)
        inner = {id(child) for module in modules for child in module.children()}
        return [one for one in modules if id(one) not in inner and tensors_of(one)]

    def made_since(self, count: int) -> bool:
        """Whether anything with a state was made after the `count`-th object, and is there."""
        kept = any(self.alive(kind, count) for kind in KINDS if kind not in ("module", "loader"))
        return kept or any(tensors_of(module) for module in self.alive("module", count))


def tensors_of(module: Any) -> list[tuple[str, Any]]:
    """What a module trains and keeps, by name."""
    return [*module.named_parameters(), *module.named_buffers()]


def saved_tensors(model: Any) -> Iterator[tuple[str, Any]]:
    """The parameters and buffers that `model.state_dict()` holds."""
    yield from model.named_parameters(remove_duplicate=False)
    for prefix, module in model.named_modules(remove_duplicate=False):
        for name, tensor in module.named_buffers(recurse=False):
            if name not in module._non_persistent_buffers_set:
                yield f"{prefix}.{name}" if prefix else name, tensor


class Inventory:
    """The objects alive at one moment, with every tensor they train or keep, in order; of those
    made later than the `until`-th object, none."""

    def __init__(self, objects: Objects, until: int = ALL) -> None:
        gc.collect()  # what is no longer used must not depend on when that is found out
        objects.forget()
        self.large = objects.large
        self.models = objects.models(until)
        self.optimizers = objects.alive("optimizer", until=until)
        self.schedulers = objects.alive("scheduler", until=until)
        self.scalers = objects.alive("scaler", until=until)
        self.loaders = objects.alive("loader", until=until)
        self.tensors: list[Any] = []
        self.names: list[str] = []
        self.known: dict[int, int] = {}
        for number, model in enumerate(self.models):
            for name, tensor in tensors_of(model):
                self._keep(f"{type(model).__name__} {number}: {name}", tensor)
        for number, optimizer in enumerate(self.optimizers):
            for at, group in enumerate(optimizer.param_groups):
                for index, tensor in enumerate(group["params"]):
                    label = f"{type(optimizer).__name__} {number}: group {at}, parameter {index}"
                    self._keep(label, tensor)

    def _keep(self, name: str, tensor: Any) -> None:
        if id(tensor) not in self.known:
            self.known[id(tensor)] = len(self.tensors)
            self.tensors.append(tensor)
            self.names.append(name)

    def state_dicts(self) -> list[dict[str, int]]:
        """Of each model the names in its state_dict, with the place of their tensors among all."""
        return [
            {
                name: self.known[id(tensor)]
                for name, tensor in saved_tensors(model)
                if id(tensor) in self.known
            }
            for model in self.models
        ]

    def outline(self) -> State:
        """What must be the same again: classes, names, shapes, types, and which is whose."""
        shapes = [[list(one.shape), str(one.dtype)] for one in self.tensors]
        groups = [
            [[self.known[id(one)] for one in group["params"]] for group in optimizer.param_groups]
            for optimizer in self.optimizers
        ]
        classes = {
            kind: [class_name(type(one)) for one in getattr(self, kind)]
            for kind in ("models", "optimizers", "schedulers", "scalers", "loaders")
        }
        return {"tensors": list(map(list, zip(self.names, shapes))), "groups": groups, **classes}

    # -- copying

    def attributes(self) -> State:
        """What all these objects keep in plain attributes. Raises TooLargeToPack."""
        plain = self._packer()
        return {
            "models": [_module_attributes(model, plain) for model in self.models],
            "schedulers": [_attributes(one, "scheduler", plain) for one in self.schedulers],
            "scalers": [_attributes(one, "scaler", plain) for one in self.scalers],
        }

    def _packer(self) -> Packer:
        return Packer(self.known, _ATTRIBUTE_BYTES, _LONGEST, large=self.large)

    def copy(self, with_gradients: bool) -> State:
        """All of it. Raises TooLargeToPack, and CannotCapture for a tensor that is more than its
        values."""
        strict, plain = Packer(self.known), self._packer()
        try:
            gradients = [one.grad for one in self.tensors] if with_gradients else []
            return {
                "outline": self.outline(),
                "values": [Raw.of(tensor) for tensor in self.tensors],
                "gradients": [None if one is None else Raw.of(one) for one in gradients],
                "trains": [tensor.requires_grad for tensor in self.tensors],
                "optimizers": [_copy_optimizer(one, strict, plain) for one in self.optimizers],
                "loaders": [copy_loader(loader, self.large) for loader in self.loaders],
                **self.attributes(),
            }
        except TooLargeToPack:
            raise
        except Unplain as error:
            raise CannotCapture(f"the checkpoint would have to hold {error}") from error

    # -- setting

    def check(self, state: State) -> None:
        """Compare with a checkpoint's. Raises OtherProgram naming the first difference."""
        self._complete(state["outline"]["groups"])
        then, now = state["outline"], self.outline()
        for what, expected in then.items():
            found = now[what]
            if len(found) != len(expected):
                raise OtherProgram(f"{len(found)} {what}, the checkpoint has {len(expected)}")
            for one, other in zip(found, expected):
                if one != other:
                    raise OtherProgram(f"among the {what}: {one}, the checkpoint has {other}")

    def _complete(self, groups: list[list[list[int]]]) -> None:
        """Give the optimizers the groups of parameters that they were given in the body of a
        loop, which is not run again."""
        for optimizer, expected in zip(self.optimizers, groups):
            for group in expected[len(optimizer.param_groups) :]:
                if all(index < len(self.tensors) for index in group):
                    optimizer.add_param_group({"params": [self.tensors[one] for one in group]})

    def put_back(self, state: State, unpacker: Unpacker) -> None:
        """Set what `copy` copied and `check` has found to fit."""
        import torch

        with torch.no_grad():
            for tensor, raw in zip(self.tensors, state["values"]):
                tensor.copy_(raw.data)
        for tensor, trains in zip(self.tensors, state["trains"]):
            tensor.grad = None
            if tensor.requires_grad != trains:
                tensor.requires_grad_(trains)
        for tensor, raw in zip(self.tensors, state["gradients"]):
            tensor.grad = None if raw is None else raw.tensor()
        for model, copy in zip(self.models, state["models"]):
            modules: dict[str, Any] = dict(model.named_modules())
            for name, values in copy.items():
                if name in modules:
                    kept = {k: value for k, value in values.items() if k not in _OF_REDUCER}
                    unpacker.put_some(kept, vars(modules[name]))
        for optimizer, copy in zip(self.optimizers, state["optimizers"]):
            _put_back_optimizer(optimizer, copy, unpacker)
        for kind in ("schedulers", "scalers"):
            for one, copy in zip(getattr(self, kind), state[kind]):
                unpacker.put_some(copy, vars(one))

    def put_back_loaders(self, state: State, unpacker: Unpacker) -> None:
        """Set what the loaders' next passes depend on."""
        for loader, copy in zip(self.loaders, state["loaders"]):
            put_back_loader(loader, copy, unpacker)


def _attributes(one: Any, kind: str, packer: Packer) -> dict[str, Tree]:
    left_out = _NOT_ATTRIBUTES[kind]
    return packer.pack_some((k, value) for k, value in vars(one).items() if k not in left_out)


def _module_attributes(model: Any, packer: Packer) -> dict[str, dict[str, Tree]]:
    """The plain attributes of each module inside, the training flag among them."""
    import torch

    ours = set(vars(torch.nn.Module())) - {"training"}
    found = {}
    for name, module in model.named_modules():
        values = ((k, value) for k, value in vars(module).items() if k not in ours)
        found[name] = packer.pack_some(values)
    return found


def _copy_optimizer(optimizer: Any, strict: Packer, plain: Packer) -> State:
    groups = []
    for group in optimizer.param_groups:
        groups.append(plain.pack_some((k, v) for k, v in group.items() if k != "params"))
    slots = [[strict.pack(key), strict.pack(dict(slot))] for key, slot in _slots(optimizer)]
    return {
        "groups": groups,
        "slots": slots,
        "attributes": _attributes(optimizer, "optimizer", plain),
    }


def _slots(optimizer: Any) -> Iterable[tuple[Any, Any]]:
    for key, slot in optimizer.state.items():
        if not isinstance(slot, dict):
            raise Unplain(f"a state of {type(optimizer).__name__} that is no dict")
        yield key, slot


def _put_back_optimizer(optimizer: Any, copy: State, unpacker: Unpacker) -> None:
    for group, values in zip(optimizer.param_groups, copy["groups"]):
        unpacker.put_some(values, group)
    optimizer.state.clear()
    for key, slot in copy["slots"]:
        optimizer.state[unpacker.unpack(key)] = unpacker.unpack(slot)
    unpacker.put_some(copy["attributes"], vars(optimizer))
