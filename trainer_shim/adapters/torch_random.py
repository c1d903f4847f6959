"""The global generators of random numbers: Python's, NumPy's and PyTorch's.

Rule: NumPy's is copied if the program has imported NumPy, a device's if it has been used.
"""

from __future__ import annotations

import array
import random
import sys

from trainer_shim.adapters import seeds, torch_generators
from trainer_shim.adapters.torch_pack import Packer
from trainer_shim.adapters.torch_raw import Raw
from trainer_shim.adapters.torch_state import State
from trainer_shim.adapters.torch_unpack import Unpacker


def copy_random() -> State:
    """The global generators of Python, NumPy and PyTorch."""
    import torch

    version, words, gauss = random.getstate()
    state: State = {
        "python": [version, Raw.of_bytes(array.array("Q", words).tobytes()), gauss],
        "torch": Raw.of(torch.get_rng_state()),
        "devices": [],
        "numpy": None,
        "made": seeds.counters(),
        "generators": torch_generators.copy(),
    }
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        state["devices"] = [Raw.of(one) for one in torch.cuda.get_rng_state_all()]
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        state["numpy"] = Packer({}).pack(numpy.random.get_state(legacy=False))
    return state


def set_random(state: State) -> None:
    """Put them back."""
    import torch

    version, words, gauss = state["python"]
    random.setstate((version, tuple(array.array("Q", words.bytes())), gauss))
    torch.set_rng_state(state["torch"].data)
    if state["devices"]:
        torch.cuda.set_rng_state_all([raw.data for raw in state["devices"]])
    numpy = sys.modules.get("numpy")
    if numpy is not None and state["numpy"] is not None:
        numpy.random.set_state(Unpacker([]).unpack(state["numpy"]))
    seeds.set_counters(state["made"])
    torch_generators.put_back(state["generators"])
