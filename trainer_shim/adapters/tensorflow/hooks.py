"""TensorFlow without Keras' `fit`: everything that is hooked when the program imports it.

A program trains in one of these ways; if it also trains in another one, that is noticed and
reported.
"""

from __future__ import annotations

import functools
from typing import Any, Callable

from trainer_shim.adapters.tensorflow import private
from trainer_shim.adapters.tensorflow.function import Loop
from trainer_shim.adapters.tensorflow.saves import hook_checkpoints
from trainer_shim.agent import Agent

_SESSION = "a session of TensorFlow 1 shows no iteration boundaries"


def install(agent: Agent) -> Loop | None:
    """Hook TensorFlow, which has just been imported; the answer is what looks after loops."""
    reason = private.missing()
    if reason is not None:
        agent.fidelity("park-only", reason)
        return None
    loop = Loop(agent)
    loop.hook()
    hook_checkpoints(loop)
    _hook_sessions(agent)
    return loop


def _hook_sessions(agent: Agent) -> None:
    """Have a program that makes a session of TensorFlow 1 count as one without boundaries at once,
    not only when it has shown none for long."""
    import tensorflow as tf

    for kind in (tf.compat.v1.Session, tf.compat.v1.InteractiveSession):
        kind.__init__ = _made(kind.__init__, agent)


def _made(original: Callable[..., None], agent: Agent) -> Callable[..., None]:
    @functools.wraps(original)
    def made(*args: Any, **kwargs: Any) -> None:
        original(*args, **kwargs)
        agent.shows_none(_SESSION)

    return made
