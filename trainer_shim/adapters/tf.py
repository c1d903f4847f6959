"""TensorFlow without Keras' `fit`: everything that is hooked when the program imports it.

Rule: a program runs again from its first line when it is resumed, in the same folder, and must
not find there what it wrote later than that: it is told of its own checkpoints what it was then.
"""

from __future__ import annotations

import functools
import threading
from typing import Any, Union

from trainer_shim.adapters import tf1, tf_function
from trainer_shim.adapters import tf_private as private
from trainer_shim.agent import Agent

_ASKED = "checkpoint"
Adapter = Union[tf_function.Loop, tf1.Sessions]


def install(agent: Agent) -> tf_function.Loop | None:
    """Hook TensorFlow, which has just been imported; the answer is what looks after loops."""
    reason = private.missing()
    if reason is not None:
        agent.fidelity("park-only", reason)
        return None
    loop, sessions = tf_function.Loop(agent), tf1.Sessions(agent)
    loop.hook()
    sessions.hook()
    _hook_checkpoints((loop, sessions))
    return loop


def _hook_checkpoints(adapters: tuple[Adapter, ...]) -> None:
    """Have the program's looks at its own checkpoints journaled."""
    module = private.find(private.CHECKPOINTS, "get_checkpoint_state").__globals__
    original = module["get_checkpoint_state"]

    @functools.wraps(original)
    def get_checkpoint_state(*args: Any, **kwargs: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            return original(*args, **kwargs)
        for adapter in adapters:
            if adapter.journal.is_telling:
                with adapter.standing.restoring():
                    (told,) = adapter.journal.tell(_ASKED).values
                adapter.look_whether_all_is_told()
                return module["CheckpointState"].FromString(told[()]) if told[()] else None
        found = original(*args, **kwargs)
        for adapter in adapters:
            if not adapter.is_off:
                answer = b"" if found is None else found.SerializeToString()
                adapter.journal.answered(_ASKED, [answer])
        return found

    module["get_checkpoint_state"] = get_checkpoint_state
