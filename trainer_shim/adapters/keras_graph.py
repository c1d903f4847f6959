"""What a model compiles for its steps: each step's own loss, and what its graph touches.

Rule: the wrapped step computes what the plain one does; the loss is one more output of the
same graph, the very tensor that Keras differentiates, so rounding stays as it is.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Callable, NamedTuple

from trainer_shim.adapters import keras_private as private

# Stateful operations whose state is in variables, or which have none that outlives a step.
_HARMLESS = (
    "Assert", "Assign", "Case", "Empty", "If", "IteratorGetNext", "Optional",
    "PartitionedCall", "Print", "ReadVariableOp", "Resource", "Stateful", "Stateless",
    "StringFormat", "TensorList", "VarHandleOp", "VarIsInitializedOp", "VariableShape", "While",
    "XlaLaunch",
)  # fmt: skip
_traced: dict[str, Any] | None = None


class Watched:
    """One compiled function of a model: train or test."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.losses: dict[str, Any] | None = None  # of the latest step
        self.logs: Any = None  # the very object that the latest step returned
        self.variables: list[Any] = []
        self.obstacle: str | None = None
        self.compiled: Any = None
        self.fresh = False  # traced, and not yet looked at
        self._spec: Any = None  # of the latest step's outcome
        self._flat: _Flat | None = None

    def retrace(self, spec: Any) -> None:
        """Trace as the function did when it was first called with data of this kind."""
        import tensorflow as tf

        self.look_at(self.compiled.get_concrete_function(tf.data.IteratorSpec(spec)))

    def look_at(self, concrete: Any) -> None:
        """Note which state the graph has beyond what Keras lists."""
        self.fresh = False
        self.variables.extend(concrete.variables)
        self.obstacle = self.obstacle or stateful_operation(concrete.graph)

    def take(self, outcome: Any) -> Any:
        """The logs and the losses in `outcome`, a step's Optional; StopIteration if it is empty.

        By the operation of Optional.get_value, less its general code, which takes the time of
        many of a small model's operations (`python -m benchmarks.slowdown`).
        """
        import tensorflow as tf

        if not outcome.has_value():
            raise StopIteration
        if outcome.element_spec is not self._spec:
            self._spec, self._flat = outcome.element_spec, _flat(outcome.element_spec)
        if self._flat is None:
            return outcome.get_value()
        values = tf.raw_ops.OptionalGetValue(
            optional=outcome._variant_tensor,
            output_types=self._flat.types,
            output_shapes=self._flat.shapes,
        )
        return [{name: values[at] for name, at in part} for part in self._flat.parts]


class _Flat(NamedTuple):
    """Where each name of several dictionaries lies in the list of all of their values."""

    types: list[Any]
    shapes: list[Any]
    parts: list[list[tuple[str, int]]]


def _flat(spec: Any) -> _Flat | None:
    """None unless `spec` is of dictionaries of dense tensors."""
    import tensorflow as tf

    leaves = tf.nest.flatten(spec)
    if any(type(part) is not dict for part in spec):
        return None
    if any(type(leaf) is not tf.TensorSpec for leaf in leaves):
        return None
    places = tf.nest.pack_sequence_as(spec, range(len(leaves)))
    parts = [list(part.items()) for part in places]
    return _Flat([leaf.dtype for leaf in leaves], [leaf.shape for leaf in leaves], parts)


TraceSeen = Callable[[Watched, Any], None]


def watch(make: Any, model: Any, step: Any, kind: str, seen: TraceSeen) -> Any:
    """Keras' function over an iterator for `step`, with the losses put aside.

    `make` is Keras' own _make_function; `seen(watched, element_spec)` is called after a trace.
    """
    import tensorflow as tf

    watched = Watched(kind)

    def one_step(data: Any) -> Any:
        watched.fresh = not tf.executing_eagerly()
        if kind != "train":
            return step(data), {}
        with _capturing() as found:
            logs = step(data)
        return logs, _choose(found, logs)

    inner = make(model, one_step)
    cells = dict(zip(inner.__code__.co_freevars, inner.__closure__ or ()))
    watched.compiled = cells["multi_step_on_iterator"].cell_contents
    in_graph = not model.run_eagerly

    def function(iterator: Any) -> Any:
        if in_graph and isinstance(iterator, tf.data.Iterator):
            logs, watched.losses = watched.take(watched.compiled(iterator))
        else:
            logs, watched.losses = inner(iterator)
        watched.logs = logs
        if watched.fresh:
            watched.fresh = False
            if isinstance(iterator, tf.data.Iterator):
                watched.look_at(watched.compiled.get_concrete_function(iterator))
                seen(watched, iterator.element_spec)
        return logs

    function.watched = watched  # type: ignore[attr-defined]
    return function


def hook_losses() -> None:
    """Have the losses put aside while a step is traced (or run eagerly)."""
    _after(private.find(private.COMPILE, "CompileLoss"), "__call__", _saw_data_loss)
    _after(private.find(private.BASE_TRAINER, "Trainer"), "compute_loss", _saw_total)
    _after(private.find(private.BASE_TRAINER, "Trainer"), "_compute_loss", _saw_total)
    _after(private.find(private.REDUCTIONS, "Mean"), "update_state", _saw_mean)


def _after(owner: Any, name: str, note: Callable[..., None]) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        if _traced is not None:
            note(_traced, self, result, *args, **kwargs)
        return result

    setattr(owner, name, wrapper)


def _saw_data_loss(found: dict[str, Any], _: Any, result: Any, *__: Any, **___: Any) -> None:
    found["data"] = result


def _saw_total(found: dict[str, Any], _: Any, result: Any, *__: Any, **___: Any) -> None:
    found["total"] = result


def _saw_mean(found: dict[str, Any], mean: Any, _: Any, values: Any, *__: Any, **___: Any) -> None:
    if mean.name == "loss":
        found["mean"] = values


@contextmanager
def _capturing() -> Iterator[dict[str, Any]]:
    global _traced
    before, _traced = _traced, {}
    try:
        yield _traced
    finally:
        _traced = before


def _choose(found: dict[str, Any], logs: Any) -> dict[str, Any]:
    """The step's loss without penalties, and where there are penalties the total too."""
    import tensorflow as tf

    data, total, mean = (_scalar(found.get(name)) for name in ("data", "total", "mean"))
    loss = next((value for value in (data, total, mean) if value is not None), None)
    if loss is None:
        loss = _scalar(logs.get("loss")) if isinstance(logs, dict) else None
    if loss is None:
        loss = tf.constant(float("nan"))
    if total is None or total is loss:
        return {"loss": loss}
    return {"loss": loss, "total_loss": total}


def _scalar(value: Any) -> Any:
    """`value` as a scalar of the step's own graph; None for anything else."""
    import tensorflow as tf

    if not tf.is_tensor(value):
        return None
    if not tf.executing_eagerly() and value.graph is not tf.compat.v1.get_default_graph():
        return None  # made inside a branch or a loop, out of reach here
    return value if value.shape.rank == 0 else tf.reduce_mean(value)


def stateful_operation(graph: Any) -> str | None:
    """An operation of `graph` whose state no checkpoint holds, in words; None if there is none."""
    registry = private.find(private.OP_REGISTRY, "get")
    described = graph.as_graph_def()
    for function in (described.node, *(f.node_def for f in described.library.function)):
        for name in {node.op for node in function}:
            definition = registry(name)
            harmless = name.startswith(_HARMLESS)
            if definition is not None and definition.is_stateful and not harmless:
                return f"the step runs {name}, whose state cannot be saved"
    return None
