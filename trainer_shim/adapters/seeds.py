"""One seed per trial, for programs that set none themselves.

Every process of a trial must make the same data, split and initial weights; a seed that the program
sets is never touched. TensorFlow's global seed is left unset, so operations that the program has
seeded draw the same numbers as without Hermes. Only a draw that nobody seeded gets the trial's
seed, where the framework would have taken a random one.
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
from typing import Any

from trainer_shim.adapters import seeds_private
from trainer_shim.agent import Agent

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
        original(self, _drawn(seed, 256) if a is None and seed is not None else a, version)

    random.Random.seed = seeded  # type: ignore[method-assign]
    random.seed = random._inst.seed


def seed_numpy(seed: int | None) -> None:
    """Seed NumPy's global generator, and each generator that is made without a seed."""
    if seed is None:
        return
    # Not as an attribute of NumPy's: a package that loads it late (wandb) may have put it there.
    importlib.import_module("numpy.random").seed(seed % 2**32)
    if seeds_private.missing_of("numpy") is None:
        from numpy.random import bit_generator

        # Whatever has no seed asks this for one, by the way of a SeedSequence.
        bit_generator.randbits = functools.partial(_drawn, seed)  # type: ignore[attr-defined]


def seed_torch() -> None:
    """Have `torch.seed()` take the trial's seed; the global generator has it already."""
    import torch

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
    if agent.seed is None or seeds_private.missing_of("tensorflow") is not None:
        return
    import tensorflow as tf
    from tensorflow.python.eager import context
    from tensorflow.python.framework import ops, random_seed
    from tensorflow.python.ops import stateful_random_ops

    seed = agent.seed % 2**31
    context.context()._rng = random.Random(seed)
    original = random_seed.get_seed
    numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def get_seed(op_seed: Any) -> Any:
        if op_seed is not None:
            return original(op_seed)
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
