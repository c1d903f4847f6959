"""One seed per trial, for programs that set none themselves.

Rule: every process of a trial must build the same data, split and initial weights; a seed
that the program sets is never touched, but for one that it is told again (see `sown`).
TensorFlow's global seed is left unset, so operations that the program seeded draw the same
numbers as without Hermes: only a draw that nobody seeded gets the trial's seed, at the point
where the framework would have taken a random one.
"""

from __future__ import annotations

import functools
import hashlib
import random
import sys
import tempfile
import weakref
from typing import Any, Callable

from trainer_shim import sown
from trainer_shim.agent import Agent

_made = 0  # generators that were made, or seeded anew, without a seed


def seed_python(seed: int | None) -> None:
    """Seed Python's global generator, and each that the program leaves to the system to seed."""
    original = random.Random.seed
    if seed is not None:
        random.seed(seed)
        # Names of temporary files are meant to be other ones in each process.
        tempfile._Random = type("Random", (random.Random,), {"seed": original})  # type: ignore

    @functools.wraps(original)
    def seeded(self: random.Random, a: Any = None, version: int = 2) -> None:
        chosen = sown.seed("random", a)
        if chosen is None and seed is not None:
            chosen = _drawn(seed, 256)
        original(self, chosen, version)

    random.Random.seed = seeded  # type: ignore[method-assign]
    random.seed = random._inst.seed


def seed_numpy(seed: int | None) -> None:
    """Seed NumPy's global generator, and each generator that is made without a seed."""
    import numpy as np
    from numpy.random import bit_generator

    if seed is not None:
        np.random.seed(seed % 2**32)
        # Whatever has no seed asks this for one, by the way of a SeedSequence.
        bit_generator.randbits = functools.partial(_drawn, seed)  # type: ignore[attr-defined]
    for name in ("seed", "default_rng"):
        _tell_again(np.random, name, f"numpy.{name}")


def seed_torch(agent: Agent) -> None:
    """Have `torch.seed()` take the trial's seed; the global generator has it already."""
    import torch

    _tell_again(torch, "manual_seed", "torch")
    torch.random.manual_seed = torch.manual_seed
    trials = agent.seed
    if trials is None:
        return

    @functools.wraps(torch.seed)
    def seed() -> int:
        drawn = _drawn(trials, 63)
        torch.random.manual_seed(drawn)
        return drawn

    torch.seed = torch.random.seed = seed


def seed_tensorflow(agent: Agent) -> None:
    """Give the trial's seed to every TensorFlow draw that has none."""
    import tensorflow as tf
    from tensorflow.python.eager import context
    from tensorflow.python.framework import ops, random_seed

    _tell_again(random_seed, "set_random_seed", "tensorflow")
    tf.compat.v1.set_random_seed = tf.compat.v1.random.set_random_seed = random_seed.set_random_seed
    if agent.seed is None:
        return
    seed = agent.seed % 2**31
    context.context()._rng = random.Random(seed)
    original = random_seed.get_seed
    drawn: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def get_seed(op_seed: Any) -> Any:
        if op_seed is not None:
            return original(op_seed)
        if context.executing_eagerly():
            if context.global_seed() is None:
                return seed, context.internal_operation_seed()
        elif ops.get_default_graph().seed is None:
            graph = ops.get_default_graph()
            drawn[graph] = drawn.get(graph, 0) + 1
            return seed, drawn[graph]
        return original(op_seed)

    random_seed.get_seed = get_seed


def _tell_again(owner: Any, name: str, kind: str) -> None:
    """Have the first argument of a function that seeds be what it was before the checkpoint."""
    original: Callable[..., Any] = getattr(owner, name)

    @functools.wraps(original)
    def function(seed: Any = None, *args: Any, **kwargs: Any) -> Any:
        return original(sown.seed(kind, seed), *args, **kwargs)

    setattr(owner, name, function)


def _drawn(seed: int, bits: int) -> int:
    """The next number that the system would otherwise have drawn: another one in each process that
    the program makes."""
    global _made
    _made += 1
    # A process that the program has made has imported this.
    processes: Any = sys.modules.get("multiprocessing.process")
    identity = processes.current_process()._identity if processes else ()
    drawn = hashlib.sha512(f"{seed} {identity} {_made}".encode()).digest()
    return int.from_bytes(drawn, "big") >> (512 - bits)


def counters() -> int:
    """How many generators without a seed the program has made."""
    return _made


def set_counters(count: int) -> None:
    """Go on counting from where a checkpoint was taken."""
    global _made
    _made = count
