"""The random number generators that a fit may use, whatever its backend.

The global ones of PyTorch and TensorFlow are copied if the program has imported these, since data
may come from there on any backend. A generator of PyTorch that the program has made may be copied
as well.
"""

from __future__ import annotations

import random
import sys
from typing import Any

from trainer_shim.adapters import seeds, seeds_private
from trainer_shim.adapters.keras import private

State = dict[str, Any]


def copy_random() -> State:
    """The generators of Python, NumPy, PyTorch and TensorFlow's eager operations."""
    import numpy as np

    own = getattr(_context(), "_rng", None)
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(),
        "tensorflow": None if own is None else own.getstate(),
        "torch": _copy_torch(),
        "made": seeds.counters(),
    }


def same_random(one: State, other: State) -> bool:
    """Whether Python's and NumPy's are the same in both."""
    import numpy as np

    pairs = zip(one["numpy"], other["numpy"])
    same = all(np.array_equal(this, that) for this, that in pairs)
    return same and one["python"] == other["python"]


def set_random(state: State, is_read_on: bool = False) -> None:
    """Put them back; not Python's and NumPy's where data that are `read on` draw from those."""
    import numpy as np

    if not is_read_on:
        random.setstate(state["python"])
        np.random.set_state(state["numpy"])
    seeds.set_counters(state["made"])
    own = getattr(_context(), "_rng", None)
    if own is not None and state["tensorflow"] is not None:
        own.setstate(state["tensorflow"])
    if "torch" in sys.modules and state["torch"] is not None:
        _set_torch(state["torch"])


def copy_generator(one: Any) -> Any:
    """The state of a generator that the program has made; None for any other object."""
    import numpy as np

    if isinstance(one, np.random.Generator):
        return one.bit_generator.state
    if isinstance(one, np.random.RandomState):
        return one.get_state()
    if isinstance(one, random.Random) and not isinstance(one, random.SystemRandom):
        return one.getstate()
    torch: Any = sys.modules.get("torch")
    if hasattr(torch, "get_rng_state") and isinstance(one, torch.Generator):
        return one.get_state().numpy().copy()
    return None


def set_generator(one: Any, state: Any) -> None:
    """Move it to where the generator was that `state` was copied from."""
    import numpy as np

    if isinstance(one, np.random.Generator):
        one.bit_generator.state = state
    elif isinstance(one, np.random.RandomState):
        one.set_state(state)
    elif isinstance(one, random.Random):
        one.setstate(state)
    else:
        import torch

        one.set_state(torch.from_numpy(state.copy()))


def _context() -> Any:
    """TensorFlow's, which is in use only if the program has imported it."""
    package = "tensorflow"
    if not seeds_private.is_imported(package) or seeds_private.missing_of(package) is not None:
        return None
    return private.find(private.CONTEXT, "context")()


def _copy_torch() -> State | None:
    torch: Any = sys.modules.get("torch")
    if not hasattr(torch, "get_rng_state"):
        return None  # not imported, or not to its end
    devices: list[Any] = []
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        devices = torch.cuda.get_rng_state_all()
    return {
        "cpu": torch.get_rng_state().numpy().copy(),
        "devices": [one.numpy().copy() for one in devices],
    }


def _set_torch(state: State) -> None:
    import torch

    torch.set_rng_state(torch.from_numpy(state["cpu"].copy()))
    if state["devices"]:
        torch.cuda.set_rng_state_all([torch.from_numpy(one.copy()) for one in state["devices"]])
