"""The classes of a PyTorch program's own objects: which of them are examined, and how they are
found.

A class is known by its name, and only what the program has defined so far is found under a name.
"""

from __future__ import annotations

import operator
import sys
import types
from collections import deque
from typing import Any

from trainer_shim.program.source_files import is_programs_own

HOLDING = (list, dict, set, deque)
_WALKED = ("torch.utils.data.", "torchvision.transforms.")
_ITERATORS = "torch.utils.data.dataloader._"
_NAMESPACES = ("argparse.Namespace", "types.SimpleNamespace")


def class_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def slots_of(kind: type) -> list[str]:
    """The attributes that objects of a class have without a `__dict__`."""
    said = [vars(one).get("__slots__", ()) for one in kind.__mro__]
    names = [name for one in said for name in ((one,) if isinstance(one, str) else one)]
    return [name for name in names if name not in ("__dict__", "__weakref__")]


def is_walked(kind: type) -> bool:
    """Whether an object's attributes are the program's own affair."""
    import torch

    if issubclass(kind, (torch.nn.Module, torch.optim.Optimizer, type, types.ModuleType)):
        return False
    name = class_name(kind)
    if name in _NAMESPACES or name.startswith(_WALKED):
        return not name.startswith(_ITERATORS)
    module = sys.modules.get(kind.__module__)
    return module is not None and is_programs_own(getattr(module, "__file__", None))


def class_of(name: str) -> Any:
    """The class that is there under this name; None if there is none."""
    module, _, rest = name.rpartition(".")
    while module and module not in sys.modules:
        module, _, more = module.rpartition(".")
        rest = f"{more}.{rest}"
    try:
        found = operator.attrgetter(rest)(sys.modules[module])
    except (AttributeError, KeyError):
        return None
    return found if isinstance(found, type) else None
