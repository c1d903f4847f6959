"""What TensorFlow can load of a finished loop without Hermes: one `tf.train.Checkpoint` of the
objects that hold what was trained, under their names in the program.

It holds what they are when the program ends, including averages that it has put into its model.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from types import FrameType
from typing import Any, Callable

from trainer_shim.checkpoint_dir import Builder

NAME = "tf-checkpoint"
_OTHERS = ("tensorflow", "keras", "tf_keras", "trainer_shim")


def named_objects(frame: FrameType | None, holds: Callable[[Any], bool]) -> dict[str, Any]:
    """Variables, modules, models and optimizers that `frame` or one that called it has by name, or
    an object of those has as an attribute; of the program's frames, and if `holds` is true of one
    of their variables."""
    found: dict[str, Any] = {}
    known: set[int] = set()
    for name, value in _values(frame):
        is_new = name.isidentifier() and name not in found and id(value) not in known
        if is_new and any(map(holds, _variables(value))):
            found[name] = value
            known.add(id(value))
    return dict(sorted(found.items()))


def write(objects: dict[str, Any], builder: Builder) -> None:
    """Write the checkpoint's files; raises whatever TensorFlow does, and leaves none then."""
    import tensorflow as tf

    try:
        tf.train.Checkpoint(**objects).write(os.path.join(builder.partial, NAME))
    except Exception:
        for left in os.listdir(builder.partial):
            if left.startswith(f"{NAME}."):
                os.unlink(os.path.join(builder.partial, left))
        raise


def _values(frame: FrameType | None) -> Iterator[tuple[str, Any]]:
    """What the innermost of the program's frames has comes first, and attributes last."""
    attributes: list[tuple[str, Any]] = []
    while frame is not None:
        module = str(frame.f_globals.get("__name__"))
        if module.partition(".")[0] not in _OTHERS:
            for names in (frame.f_locals, frame.f_globals):
                yield from names.items()
                for one in names.values():
                    if not isinstance(one, (type, Collection)) and not _is_tracked(one):
                        attributes += getattr(one, "__dict__", {}).items()
        frame = frame.f_back
    yield from attributes


def _is_tracked(value: Any) -> bool:
    """Whether it is a model, an optimizer or another object that knows its variables."""
    import tensorflow as tf

    return isinstance(value, tf.__internal__.tracking.AutoTrackable)


def _variables(value: Any) -> Collection[Any]:
    """Of what a checkpoint can name: none of other values."""
    import tensorflow as tf

    if isinstance(value, tf.Variable):
        return (value,)
    if not _is_tracked(value):
        return ()
    try:
        found = value.variables
    except Exception:  # of an object that the program has not finished
        return ()
    return found if isinstance(found, (list, tuple)) else ()
