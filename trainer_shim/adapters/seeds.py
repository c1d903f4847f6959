"""One seed per trial, for programs that set none themselves.

Rule: every process of a trial must build the same data, split and initial weights; a seed
that the program sets is never touched. TensorFlow's global seed is left unset, so operations
that the program seeded draw the same numbers as without Hermes: only a draw that nobody
seeded gets the trial's seed, at the point where TensorFlow would have taken a random one.
"""

from __future__ import annotations

import random
import weakref
from typing import Any

from trainer_shim.agent import Agent

_default_rngs = 0


def seed_numpy(agent: Agent) -> None:
    """Seed NumPy's global generator, and each generator that is made without a seed."""
    import numpy as np

    if agent.seed is None:
        return
    np.random.seed(agent.seed % 2**32)
    original = np.random.default_rng

    def default_rng(seed: Any = None) -> Any:
        global _default_rngs
        if seed is None:
            _default_rngs += 1
            seed = [agent.seed, _default_rngs]
        return original(seed)

    np.random.default_rng = default_rng


def seed_tensorflow(agent: Agent) -> None:
    """Give the trial's seed to every TensorFlow draw that has none."""
    from tensorflow.python.eager import context
    from tensorflow.python.framework import ops, random_seed

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


def counters() -> int:
    """How many generators without a seed the program has made."""
    return _default_rngs


def set_counters(count: int) -> None:
    """Go on counting from where a checkpoint was taken."""
    global _default_rngs
    _default_rngs = count
