"""TensorFlow without Keras' `fit`: everything that is hooked when the program imports it.

A program trains in one of these ways; if it also trains in another one, that is noticed and
reported.
"""

from __future__ import annotations

from trainer_shim.adapters.tensorflow import private
from trainer_shim.adapters.tensorflow.function import Loop
from trainer_shim.adapters.tensorflow.saves import hook_checkpoints
from trainer_shim.agent import Agent


def install(agent: Agent) -> Loop | None:
    """Hook TensorFlow, which has just been imported; the answer is what looks after loops."""
    reason = private.missing()
    if reason is not None:
        agent.fidelity("park-only", reason)
        return None
    loop = Loop(agent)
    loop.hook()
    hook_checkpoints(loop)
    return loop
