"""What a program saves itself while it trains, and what it finds of that when it starts.

When it is run again in the same folder, it must not find what it wrote there later. So it is told
about its own checkpoints what it was told the first time. What it saved is there already, and is
not written again from variables that have not got their values back yet.
"""

from __future__ import annotations

import functools
import threading
from typing import Any

from trainer_shim.adapters.tensorflow import private
from trainer_shim.adapters.tensorflow.function import Loop
from trainer_shim.saver import OtherProgram

_ASKED, _SAVED = "checkpoint", "saved"


def hook_checkpoints(loop: Loop) -> None:
    """Have the program's looks at its own checkpoints journaled, and its saves with them."""
    import tensorflow as tf

    module = private.find(private.CHECKPOINTS, "get_checkpoint_state").__globals__
    original = module["get_checkpoint_state"]

    @functools.wraps(original)
    def get_checkpoint_state(*args: Any, **kwargs: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            return original(*args, **kwargs)
        if loop.journal.is_telling:
            told = _told(loop, _ASKED)
            return module["CheckpointState"].FromString(told[()]) if told[()] else None
        found = original(*args, **kwargs)
        if not loop.is_off:
            answer = b"" if found is None else found.SerializeToString()
            loop.journal.answered(_ASKED, [answer])
        return found

    module["get_checkpoint_state"] = get_checkpoint_state
    save_once(loop, tf.train.Checkpoint, "write")


def _told(loop: Loop, asked: str) -> Any:
    """What was answered then. Ends the process if the program did not ask."""
    with loop.standing.restoring():
        answer = loop.journal.tell_look(asked)
        if answer is None:
            raise OtherProgram(f"the program asked for {asked}, which it did not at first")
    loop.look_whether_all_is_told()
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
            return _told(loop, _SAVED)[()].decode() or None
        loop.is_off = True
        try:
            path = original(self, *args, **kwargs)
        finally:
            loop.is_off = False
        loop.journal.answered(_SAVED, [path or ""])
        return path

    setattr(owner, name, save)
