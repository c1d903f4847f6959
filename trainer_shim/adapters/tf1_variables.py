"""The variables of a graph, read and set through operations that the graph has.

Rule: nothing is added to a graph: it may be finished already.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Callable

from trainer_shim.adapters import tf1_graph
from trainer_shim.adapters import tf_store as store


def trainable(graph: Any) -> dict[str, str]:
    """The variables that are trained, and what initializes each: names of operations."""
    import tensorflow as tf

    listed = graph.get_collection(tf.compat.v1.GraphKeys.TRAINABLE_VARIABLES)
    return {variable.op.name: variable.initializer.name for variable in listed}


def obstacle(graph: Any, names: set[str]) -> str | None:
    """A variable that cannot be read or set, in words."""
    for name in sorted(names):
        op = graph.get_operation_by_name(name)
        if tf1_graph.reader(op) is None or tf1_graph.assigner(op) is None:
            return f"the variable {name} cannot be read and set from outside"
    return None


def read(run: Callable[..., Any], session: Any, names: Sequence[str]) -> list[Any]:
    """Their values, as arrays."""
    readers = [tf1_graph.reader(session.graph.get_operation_by_name(name)) for name in names]
    return [store.as_array(value) for value in run(session, None, [], readers, {}, None, None)]


def write(run: Callable[..., Any], session: Any, values: Mapping[str, Any]) -> None:
    """Set them. Raises OtherProgram for one that is missing, or of another kind."""
    assigners, feeds = [], {}
    for name, value in values.items():
        try:
            op = session.graph.get_operation_by_name(name)
        except KeyError:
            raise store.OtherProgram(f"there is no variable {name}") from None
        assigner = tf1_graph.assigner(op)
        taken = assigner.inputs[1]
        kind = store.kind_of(value)
        if taken.dtype.base_dtype.name != kind[0] or not taken.shape.is_compatible_with(kind[1]):
            found = f"{taken.dtype.base_dtype.name} of shape {taken.shape}"
            raise store.OtherProgram(f"{name} is {found}, at the checkpoint {kind[0]} of {kind[1]}")
        assigners.append(assigner)
        feeds[taken.ref()] = value
    run(session, None, assigners, [], feeds, None, None)
