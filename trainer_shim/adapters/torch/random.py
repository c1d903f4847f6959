"""The global random number generators: Python's, NumPy's and PyTorch's.

NumPy's is copied if the program has imported NumPy, and a device's if it has been used.
"""

from __future__ import annotations

import array
import functools
import random
import sys
import types
import weakref
from contextlib import suppress
from typing import Any, Callable

from trainer_shim.adapters import seeds
from trainer_shim.adapters.torch.frame_locals import of_program
from trainer_shim.adapters.torch.pack import Packer, Unpacker, pack_generator
from trainer_shim.adapters.torch.state import State
from trainer_shim.adapters.torch.tensor_bytes import Raw, Unplain
from trainer_shim.program.source_files import is_programs_own

# Every generator of random numbers that the program makes, wherever it keeps it.
#
# They are found by their constructors and known by the line of the program that made them
# and how many that line had made before. A class of generators that cannot be hooked is replaced
# by one of the same name that is a subclass, and takes the instances of the other for its own.

# What these make is theirs: made anew with each pass, or different in each process.
_OTHERS = ("torch", "keras", "tempfile", "multiprocessing")
_COMPILERS = ("torch._dynamo", "torch._inductor", "torch._functorch")
_Key = tuple[str, int]  # the line, and how many it had made before

_counts: dict[str, int] = {}
_made: weakref.WeakValueDictionary[_Key, Any] = weakref.WeakValueDictionary()
_inside: weakref.WeakSet[Any] = weakref.WeakSet()  # made in the body of a pass, or by its data


def copy() -> State:
    """The state of each that is there."""
    states = []
    for key, one in list(_made.items()):
        with suppress(Unplain):  # of another device, whose state cannot be read
            states.append([*key, pack_generator(one)])
    return {"counts": dict(_counts), "states": states}


def put_back(state: State) -> None:
    """Set what `copy` copied in those that the program has made again."""
    _counts.clear()
    _counts.update(state["counts"])
    for line, number, tree in state["states"]:
        one = _made.get((line, number))
        if one is not None:
            Unpacker([]).unpack(tree, one)


def lost(frame: types.FrameType) -> str | None:
    """Why a program that is run again would lack a generator that is there now; None if it has
    them all. What a variable of the loop holds is made anew by its body."""
    held = {id(value) for own in of_program(frame) for value in own.f_locals.values()}
    for (line, _), one in _made.items():
        if one in _inside and id(one) not in held:
            return f"a generator of random numbers was made inside of a loop: {line}"
    return None


def install(is_inside: Callable[[], bool]) -> None:
    """Hook the constructors; `is_inside` says whether a pass is under way."""
    import torch

    def add(one: Any) -> None:
        frame = sys._getframe(1)
        while _package(frame) == __name__.partition(".")[0] and frame.f_back is not None:
            frame = frame.f_back
        if _package(frame) in _OTHERS or _is_compiling(frame):
            return
        line = f"{type(one).__name__} in {_line(frame)}"
        number = _counts[line] = _counts.get(line, 0) + 1
        _made[line, number] = one
        if is_inside():
            _inside.add(one)

    _hook_random(add)
    torch.Generator = _replaced("torch", torch.Generator, add, _seeding(torch.Generator))
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        _hook_numpy(numpy.random, add)


def _package(frame: types.FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _is_compiling(frame: types.FrameType | None) -> bool:
    """Whether a frame was called by `torch.compile`, and by nothing of the program's own since."""
    while frame is not None and not is_programs_own(frame.f_code.co_filename):
        if str(frame.f_globals.get("__name__", "")).startswith(_COMPILERS):
            return True
        frame = frame.f_back
    return False


def _line(frame: types.FrameType) -> str:
    for own in of_program(frame):
        return f"{own.f_code.co_filename}, line {own.f_lineno}"
    return "no file of the program"


def _hook_random(add: Callable[[Any], None]) -> None:
    original = random.Random.__init__

    @functools.wraps(original)
    def made(self: random.Random, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        add(self)

    random.Random.__init__ = made  # type: ignore[method-assign]


def _hook_numpy(module: Any, add: Callable[[Any], None]) -> None:
    original, default_rng = module.Generator, module.default_rng
    module.RandomState = _replaced("numpy.random", module.RandomState, add)
    module.Generator = _replaced("numpy.random", original, add)

    @functools.wraps(default_rng)
    def made(*args: Any, **kwargs: Any) -> Any:
        one = default_rng(*args, **kwargs)
        return module.Generator(one.bit_generator) if type(one) is original else one

    module.default_rng = made


def _seeding(kind: Any) -> dict[str, Any]:
    def reseed(self: Any) -> int:
        drawn = seeds.drawn(63)
        if drawn is None:
            return int(kind.seed(self))
        kind.manual_seed(self, drawn)
        return drawn

    return {"seed": reseed}


def _replaced(
    module: str, kind: Any, add: Callable[[Any], None], more: dict[str, Any] | None = None
) -> Any:
    meta: Any = type(kind)

    class Made(meta):  # type: ignore[misc]
        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            one = super().__call__(*args, **kwargs)
            add(one)
            return one

        def __instancecheck__(cls, one: Any) -> bool:
            own = bool(super().__instancecheck__(one))
            return own or (cls is replaced and isinstance(one, kind))

    names = {"__module__": module, "__doc__": kind.__doc__, **(more or {})}
    replaced = Made(kind.__name__, (kind,), names)
    return replaced


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
        "generators": copy(),
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
    put_back(state["generators"])
