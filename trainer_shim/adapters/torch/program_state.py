"""A PyTorch program as a whole at one moment: copied for a checkpoint, and restored.

If the program is not the one of the checkpoint, this is noticed before anything is restored. What
one of the program's own classes raises while it is read never ends the training.
"""

from __future__ import annotations

import types
import weakref
from typing import Any, Callable

from trainer_shim.adapters.torch.frame_locals import Copies, keep_locals, of_program
from trainer_shim.adapters.torch.loadable import (
    Names,
    Weights,
    extra_state,
    framework_files,
    state_dict_files,
)
from trainer_shim.adapters.torch.loaders import copy_loader
from trainer_shim.adapters.torch.objects import ALL, Inventory, Objects
from trainer_shim.adapters.torch.other_width import FirstValues
from trainer_shim.adapters.torch.pack import Packer, TooLargeToPack, Unpacker
from trainer_shim.adapters.torch.pass_variables import LARGE
from trainer_shim.adapters.torch.random import copy_random, set_random
from trainer_shim.adapters.torch.state import Files, State, TorchSnapshot
from trainer_shim.agent import CannotCapture, refused
from trainer_shim.saver import OtherProgram

# What is larger is compared with what was there before the first pass, and packed if it is new.
_VARIABLE_BYTES = 16 << 20
_VARIABLE_ITEMS = 20_000

Put = Callable[[Unpacker], None]


def note(
    frame: types.FrameType, objects: Objects, first: FirstValues, is_outermost: bool = True
) -> None:
    """See how far iterators are as a pass begins; and what is large, if it is the first."""
    if is_outermost:
        objects.large.iterators.pass_begins(frame)
    if not (objects.large.noting or first.is_new(frame)):
        return
    inventory = Inventory(objects)
    packer = Packer(inventory.known, LARGE, _VARIABLE_ITEMS, large=objects.large)
    try:
        first.note(frame, copy_variables(frame, packer), inventory.attributes())
        for loader in inventory.loaders:
            copy_loader(loader, objects.large)
    except Exception:  # whatever the program's own classes raise, it will raise when it is copied
        pass
    objects.large.noting = False


def packer_of(inventory: Inventory) -> Packer:
    """What packs the program's variables."""
    return Packer(inventory.known, _VARIABLE_BYTES, _VARIABLE_ITEMS, large=inventory.large)


def copy(
    frame: types.FrameType,
    objects: Objects,
    more: Callable[[Inventory, Packer], State],
    until: int = ALL,
    files: Callable[[Weights], Files] | None = None,
) -> TorchSnapshot:
    """The variables of the functions that `frame` is in, the random numbers, and what `more`
    copies of the objects up to the `until`-th. `files` are those that a framework writes besides
    if it is the end of the training. Raises CannotCapture."""
    try:
        inventory = Inventory(objects, until)
        packer = packer_of(inventory)
        state = {"variables": copy_variables(frame, packer), "random": copy_random()}
        whole = {**state, **more(inventory, packer)}
        extras = map(extra_state, inventory.models)
        names = list(map(Names, inventory.state_dicts(), extras))
        # Weakly: a model that the program lets go of must not be found by the next inventory.
        models = [(weakref.ref(one), each) for one, each in zip(inventory.models, names)]

        def at_end() -> Files:
            yield from state_dict_files(whole, names)
            if files is not None:
                yield from framework_files(whole, models, files)

        return TorchSnapshot(whole, at_end)
    except CannotCapture:
        raise
    except TooLargeToPack as error:
        raise CannotCapture(f"the checkpoint would have to hold {error}") from error
    except Exception as error:  # whatever the program's own classes raise: it trains on
        raise refused(error) from error


def put_back(
    frame: types.FrameType,
    objects: Objects,
    first: FirstValues,
    past: State,
    unpacker_of: Callable[[list[Any]], Unpacker],
    put: Put | None = None,
    until: int = ALL,
) -> None:
    """Set what `copy` copied, and what `put` does. Raises OtherProgram."""
    inventory = Inventory(objects, until)
    inventory.check(past["objects"])
    if not fit(frame, past["variables"]):
        raise OtherProgram("other functions run than at the checkpoint")
    unpacker = unpacker_of(inventory.tensors)
    found = first.objects(past["objects"], list(map(objects.number, inventory.loaders)))
    inventory.put_back(found, unpacker)
    put_back_variables(frame, first.variables(frame, past["variables"]), unpacker)
    if put is not None:
        put(unpacker)
    inventory.put_back_loaders(found, unpacker)
    set_random(past["random"])


def copy_variables(frame: types.FrameType, packer: Packer) -> Copies:
    """Those variables of the program's frames that are plain values."""
    copies: Copies = []
    for own in of_program(frame):
        values = [(name, value) for name, value in own.f_locals.items() if name[:2] != "__"]
        copies.append({"frame": own.f_code.co_name, "values": packer.pack_some(values)})
    return copies


def fit(frame: types.FrameType, copies: Copies) -> bool:
    """Whether the same functions are being executed as when the copies were made."""
    return [own.f_code.co_name for own in of_program(frame)] == [one["frame"] for one in copies]


def put_back_variables(frame: types.FrameType, copies: Copies, unpacker: Unpacker) -> None:
    """Set what `copy_variables` copied, for frames that `fit` it."""
    for own, copy in zip(of_program(frame), copies):
        values = own.f_locals
        unpacker.put_some(copy["values"], values)
        if values is not own.f_globals:
            keep_locals(own)
