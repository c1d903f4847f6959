"""One seed per trial, for programs that set none themselves.

Every process of a trial must build the same data, split and initial weights; a seed
that the program sets is never touched, but for one that it is told again (see `seed_replay`).
TensorFlow's global seed is left unset, so operations that the program seeded draw the same
numbers as without Hermes: only a draw that nobody seeded gets the trial's seed, at the point
where the framework would have taken a random one.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import math
import random
import sys
import tempfile
import weakref
from typing import Any, Callable

from trainer_shim.adapters import seeds_private
from trainer_shim.agent import Agent
from trainer_shim.rerun import seed_replay

_trials: int | None = None
_made = 0  # generators that were made, or seeded anew, without a seed


def seed_python(seed: int | None) -> None:
    """Seed Python's global generator, and each that the program leaves to the system to seed."""
    global _trials
    _trials, original = seed, random.Random.seed
    if seed is not None:
        random.seed(seed)
        # Names of temporary files are meant to be other ones in each process.
        tempfile._Random = type("Random", (random.Random,), {"seed": original})  # type: ignore

    @functools.wraps(original)
    def seeded(self: random.Random, a: Any = None, version: int = 2) -> None:
        chosen = seed_replay.seed("random", a)
        if chosen is None and seed is not None:
            chosen = _drawn(seed, 256)
        original(self, chosen, version)

    random.Random.seed = seeded  # type: ignore[method-assign]
    random.seed = random._inst.seed


def seed_numpy(seed: int | None) -> None:
    """Seed NumPy's global generator, and each generator that is made without a seed."""
    # Not as an attribute of NumPy's: a package that loads it late (wandb) may have put it there.
    drawing: Any = importlib.import_module("numpy.random")
    if seed is not None:
        drawing.seed(seed % 2**32)
    _tell_again(drawing, "seed", "numpy.seed")
    if seeds_private.missing_of("numpy") is not None:
        return
    from numpy.random import bit_generator

    if seed is not None:
        # Whatever has no seed asks this for one, by the way of a SeedSequence.
        bit_generator.randbits = functools.partial(_drawn, seed)  # type: ignore[attr-defined]
    _tell_bits(bit_generator)
    _tell_states(drawing.mtrand)


def _tell_bits(module: Any) -> None:
    """Whatever is seeded in the new way takes its numbers by this function."""
    original: Callable[[Any], Any] = module._coerce_to_uint32_array

    def coerced(x: Any) -> Any:
        return original(seed_replay.seed("numpy bits", x) if isinstance(x, int) else x)

    module._coerce_to_uint32_array = coerced


def _tell_states(module: Any) -> None:
    """A `RandomState` makes this generator, and seeds it in the old way."""
    original = module._MT19937

    class Kind(type):
        def __instancecheck__(cls, one: Any) -> bool:
            return isinstance(one, original)

    class MT19937(original, metaclass=Kind):  # type: ignore[misc, valid-type]
        def _legacy_seeding(self, seed: Any) -> None:
            super()._legacy_seeding(seed_replay.seed("numpy state", seed))

        def __reduce__(self) -> Any:
            make, given, *state = super().__reduce__()
            return (make, tuple(original if one is MT19937 else one for one in given), *state)

    MT19937.__module__ = original.__module__
    module._MT19937 = MT19937


def seed_torch() -> None:
    """Have `torch.seed()` take the trial's seed; the global generator has it already."""
    import torch

    _tell_again(torch, "manual_seed", "torch")
    torch.random.manual_seed = torch.manual_seed
    for name in ("manual_seed", "manual_seed_all"):
        _tell_again(torch.cuda, name, f"torch.cuda.{name}")
    original = torch.seed

    @functools.wraps(original)
    def seed() -> int:
        chosen = drawn(63)
        if chosen is None:
            return int(original())
        torch.random.manual_seed(chosen)
        return chosen

    torch.seed = torch.random.seed = seed


def seed_tensorflow(agent: Agent) -> None:
    """Give the trial's seed to every TensorFlow draw that has none."""
    if seeds_private.missing_of("tensorflow") is not None:
        return
    import tensorflow as tf
    from tensorflow.python.eager import context
    from tensorflow.python.framework import ops, random_seed
    from tensorflow.python.ops import stateful_random_ops

    _tell_again(random_seed, "set_random_seed", "tensorflow")
    _tell_again(stateful_random_ops, "create_rng_state", "tensorflow generator")
    tf.compat.v1.set_random_seed = tf.compat.v1.random.set_random_seed = random_seed.set_random_seed
    if agent.seed is None:
        return
    seed = agent.seed % 2**31
    context.context()._rng = random.Random(seed)
    original = random_seed.get_seed
    numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def get_seed(op_seed: Any) -> Any:
        if op_seed is not None:
            return original(seed_replay.seed("tensorflow operation", op_seed, early=True))
        if context.executing_eagerly():
            if context.global_seed() is None:
                return seed, context.internal_operation_seed()
        elif ops.get_default_graph().seed is None:
            graph = ops.get_default_graph()
            numbers[graph] = numbers.get(graph, 0) + 1
            return seed, numbers[graph]
        return original(op_seed)

    def drawn_state(shape: Any, dtype: Any = tf.int64) -> Any:
        state = [_drawn(seed, 63) for _ in range(math.prod(shape))]
        return tf.cast(tf.reshape(tf.constant(state, tf.int64), shape), dtype)

    random_seed.get_seed = get_seed
    stateful_random_ops.non_deterministic_ints = drawn_state


def seed_keras() -> None:
    """Have the seeds of Keras' own generators be what they were before the checkpoint."""
    import keras

    original = keras.random.SeedGenerator.__init__

    @functools.wraps(original)
    def made(self: Any, seed: Any = None, *args: Any, **kwargs: Any) -> None:
        original(self, seed_replay.seed("keras", seed), *args, **kwargs)

    keras.random.SeedGenerator.__init__ = made


def _tell_again(owner: Any, name: str, kind: str) -> None:
    """Have the first argument of a function that seeds be what it was before the checkpoint."""
    original: Callable[..., Any] = getattr(owner, name)

    @functools.wraps(original)
    def function(seed: Any = None, *args: Any, **kwargs: Any) -> Any:
        return original(seed_replay.seed(kind, seed), *args, **kwargs)

    setattr(owner, name, function)


def drawn(bits: int) -> int | None:
    """A number in place of one that the system would draw; None if the trial has no seed."""
    return None if _trials is None else _drawn(_trials, bits)


def _drawn(seed: int, bits: int) -> int:
    """The next number that the system would otherwise have drawn: another one in each process that
    the program makes."""
    global _made
    _made += 1
    # A process that the program has made has imported this.
    processes: Any = sys.modules.get("multiprocessing.process")
    identity = getattr(processes.current_process(), "_identity", ()) if processes else ()
    drawn = hashlib.sha512(f"{seed} {identity} {_made}".encode()).digest()
    return int.from_bytes(drawn, "big") >> (512 - bits)


def counters() -> int:
    """How many generators without a seed the program has made."""
    return _made


def set_counters(count: int) -> None:
    """Go on counting from where a checkpoint was taken."""
    global _made
    _made = count
