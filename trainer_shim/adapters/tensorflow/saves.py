"""What a program saves itself while it trains, and what it finds of that when it starts.

Run again, in the same folder, it must not find there what it wrote later than that: it is
told of its own checkpoints what it was told then. What it saved is there already, and is not
written again from variables that have not got their values back.
"""

from __future__ import annotations

import functools
import threading
from typing import Any

from trainer_shim.adapters.tensorflow import private
from trainer_shim.adapters.tensorflow.function import Loop
from trainer_shim.adapters.tensorflow.tf1 import Tf1Sessions
from trainer_shim.saver import OtherProgram

_ASKED, _SAVED = "checkpoint", "saved"


def hook_checkpoints(loop: Loop, sessions: Tf1Sessions) -> None:
    """Have the program's looks at its own checkpoints journaled, and its saves with them."""
    import tensorflow as tf

    module = private.find(private.CHECKPOINTS, "get_checkpoint_state").__globals__
    original = module["get_checkpoint_state"]
    adapters: tuple[Loop | Tf1Sessions, ...] = (loop, sessions)

    @functools.wraps(original)
    def get_checkpoint_state(*args: Any, **kwargs: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            return original(*args, **kwargs)
        for adapter in adapters:
            if adapter.journal.is_telling:
                with adapter.standing.restoring():
                    told = _told(adapter, _ASKED)
                adapter.look_whether_all_is_told()
                return module["CheckpointState"].FromString(told[()]) if told[()] else None
        found = original(*args, **kwargs)
        for adapter in adapters:
            if not adapter.is_off:
                answer = b"" if found is None else found.SerializeToString()
                adapter.journal.answered(_ASKED, [answer])
        return found

    module["get_checkpoint_state"] = get_checkpoint_state
    save_once(loop, tf.train.Checkpoint, "write")


def _told(adapter: Loop | Tf1Sessions, asked: str) -> Any:
    """What was answered then. Raises OtherProgram."""
    journal = adapter.journal
    # A loop is told all that was seen between two steps at the first look; a session in order.
    answer = journal.tell_look(asked) if isinstance(adapter, Loop) else journal.tell(asked)
    if answer is None:
        raise OtherProgram(f"the program asked for {asked}, and did not so before")
    (value,) = answer.values
    return value


def save_once(loop: Loop, owner: Any, name: str) -> None:
    """Have a method that saves, and answers with a path or nothing, not run again."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def save(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not loop.is_on() or not loop.variables.stale:
            return original(self, *args, **kwargs)
        if loop.journal.is_telling:
            with loop.standing.restoring():
                told = _told(loop, _SAVED)
            loop.look_whether_all_is_told()
            return told[()].decode() or None
        loop.is_off = True
        try:
            path = original(self, *args, **kwargs)
        finally:
            loop.is_off = False
        loop.journal.answered(_SAVED, [path or ""])
        return path

    setattr(owner, name, save)
