"""What a model compiles for its steps on TensorFlow, and what its graph touches.

The wrapped step computes what the plain one does; the loss is one more output of the same graph.
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, NamedTuple

from trainer_shim.adapters.keras import losses, private
from trainer_shim.adapters.keras.backend import StepFunction
from trainer_shim.adapters.keras.random import copy_random, same_random
from trainer_shim.adapters.keras.state import variables_of

# Stateful operations whose state is in variables, or which have none that outlives a step.
_HARMLESS = (
    "Assert", "Assign", "Case", "Empty", "If", "IteratorGetNext", "Optional",
    "PartitionedCall", "Print", "ReadVariableOp", "Resource", "Stateful", "Stateless",
    "StringFormat", "TensorList", "VarHandleOp", "VarIsInitializedOp", "VariableShape", "While",
    "XlaLaunch",
)  # fmt: skip

# The methods of a model that make its variables.
_CALLED = ("call", "compute_loss", "compute_metrics", "train_step")


class Compiled(StepFunction):
    """One compiled function of a model."""

    def __init__(self, kind: str, model: Any) -> None:
        super().__init__(kind)
        self._model = model
        self.specs: list[Any] = []  # of the data that it was traced for, in order
        self.fresh = False  # traced, and not yet looked at
        self._spec: Any = None  # of the latest step's outcome
        self._flat: _Flat | None = None

    def retrace(self, spec: Any, drew: bool) -> None:
        """Trace as the function did when it was first called with data of this kind."""
        if not drew:  # or the numbers in the graph would be those of the first trace of two
            _build(self._model, self.kind, spec)
        self._trace(spec)

    def replaces(self, old: Any) -> None:
        """Be traced for what the function before it was, which knows of no variable less."""
        self.logs, self.variables = old.logs, list(old.variables)
        for spec in old.specs:
            self._trace(spec)
        known = {variable.ref() for variable in variables_of(self._model, old.variables)}
        for variable in self.variables:
            if variable.ref() not in known:
                raise ValueError(f"it needs {variable.name}, which is not there without")

    def _trace(self, spec: Any) -> None:
        import tensorflow as tf

        self.look_at(self.compiled.get_concrete_function(tf.data.IteratorSpec(spec)), spec)

    def look_at(self, concrete: Any, spec: Any) -> None:
        """Note which state the graph has beyond what Keras lists."""
        self.fresh = False
        self.specs.append(spec)
        self.variables.extend(_in_order(concrete))
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


def _in_order(concrete: Any) -> list[Any]:
    """The variables that a graph touches, in the order of their first use in its trace.

    TensorFlow lists them in a set, whose order is another in each process.
    """
    uses = {id(used): place for place, used in enumerate(concrete.captured_inputs)}
    last = len(uses)
    return sorted(concrete.variables, key=lambda one: (uses.get(id(one.handle), last), one.name))


class _Flat(NamedTuple):
    """Where each name of several dictionaries lies in the list of all of their values."""

    types: list[Any]
    shapes: list[Any]
    parts: list[list[tuple[str, int]]]


def _flat(spec: Any) -> _Flat | None:
    """None unless `spec` is of dictionaries of dense tensors, with no dictionaries within."""
    import tensorflow as tf

    if any(type(part) is not dict for part in spec):
        return None
    if any(type(value) is not tf.TensorSpec for part in spec for value in part.values()):
        return None
    leaves = tf.nest.flatten(spec)
    places = tf.nest.pack_sequence_as(spec, range(len(leaves)))
    parts = [list(part.items()) for part in places]
    return _Flat([leaf.dtype for leaf in leaves], [leaf.shape for leaf in leaves], parts)


TraceSeen = Callable[[StepFunction, Any], None]


def watch(make: Any, model: Any, step: Any, kind: str, seen: TraceSeen) -> Any:
    """Keras' function over an iterator for `step`, with the losses put aside.

    `make` is Keras' own _make_function; `seen(watched, element_spec)` is called after a trace.
    """
    import tensorflow as tf

    watched = Compiled(kind, model)

    def one_step(data: Any) -> Any:
        watched.fresh = not tf.executing_eagerly()
        if kind != "train":
            return step(data), {}
        before = copy_random() if watched.fresh else None
        with losses.Capturing() as found:
            logs = step(data)
        if before is not None:
            after = copy_random()
            alike = same_random(before, after) and before["made"] == after["made"]
            watched.draws = watched.draws or not alike
        return logs, losses.choose(found, logs, _scalar, lambda: tf.constant(float("nan")))

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
                concrete = watched.compiled.get_concrete_function(iterator)
                watched.look_at(concrete, iterator.element_spec)
                seen(watched, iterator.element_spec)
        return logs

    function.watched = watched  # type: ignore[attr-defined]
    return function


def _build(model: Any, kind: str, spec: Any) -> None:
    """Make the variables that Keras' own first step of training makes.

    Made within a trace, they have TensorFlow trace all of the step once more: half of the time that
    a rebuilt ResNet50 takes to come to its next step (`python -m benchmarks.research.table2`).
    Not by methods of the program's own: what they give may be other than in training.
    """
    import tensorflow as tf

    is_keras = all(getattr(model, name).__module__.startswith("keras.") for name in _CALLED)
    if kind == "train" and is_keras and all(layer.built for layer in model._flatten_layers()):
        leaves = tf.nest.flatten(spec)
        if all(type(leaf) is tf.TensorSpec and leaf.shape.rank is not None for leaf in leaves):
            with contextlib.suppress(Exception):  # the trace makes what is not there
                model._symbolic_build(data_batch=spec)


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
