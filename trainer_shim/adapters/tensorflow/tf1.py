"""TensorFlow 1 programs, by tf.compat.v1: where a training step of a session ends, and its loss.

Such a program is parked, or written to disk as an image of its processes; no checkpoint is made of
it. Nothing is added to its graph, which may be finalized already.
"""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from trainer_shim.adapters.tensorflow import function_graph, private
from trainer_shim.agent import Agent

_PARKED = "a session of TensorFlow 1 can only be parked, or kept in an image of its processes"
# A checkpoint of before this was so has a file of this name.
_FORMER = "session.json"
_LOSSES = ("loss", "cost")
_PASSING = {"Enter", "Identity", "NextIteration", "RefEnter", "RefIdentity", "RefSwitch", "Switch"}
_ASSIGNING = {"Assign", "AssignVariableOp"}
_UPDATING = ("Apply", "AssignAdd", "AssignSub", "Scatter")
# What gives another value each time it is run.
_DRAWING = (
    "EagerPyFunc", "If", "IteratorGetNext", "Multinomial", "ParameterizedTruncatedNormal",
    "PartitionedCall", "PyFunc", "Queue", "Random", "Stateful", "TruncatedNormal", "While",
)  # fmt: skip


class SessionRun(NamedTuple):
    """What a run of certain operations and tensors does."""

    trains: bool
    #: The tensor of its loss; None if none is known.
    loss: Any


class Tf1Sessions:
    """The sessions of this process, and the training steps done in them."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._thread = threading.get_ident()
        self._steps = 0
        self._has_begun = False
        # What gradients were taken of, in each graph.
        self._targets: weakref.WeakKeyDictionary[Any, list[Any]] = weakref.WeakKeyDictionary()
        # Each with what it is of: an id means something only as long as that lives.
        self._runs: dict[Any, tuple[SessionRun, Any]] = {}

    def hook(self) -> None:
        """Watch what sessions run, and the gradients that are built, from here on."""
        restore = self._agent.restore
        if restore is not None and os.path.exists(os.path.join(restore, _FORMER)):
            self._agent.failed("restore", _PARKED, _PARKED)
            os._exit(1)
        owner = private.find(private.SESSION, "BaseSession")
        original = owner._do_run

        @functools.wraps(original)
        def do_run(
            session: Any, handle: Any, targets: Any, fetches: Any, feeds: Any, *more: Any
        ) -> Any:
            given = (session, handle, targets)
            is_other = threading.get_ident() != self._thread or handle is not None
            if is_other or self._agent.is_aside or self._agent.framework == "explicit":
                return original(*given, fetches, feeds, *more)
            run = self._look_at(session, targets, fetches, feeds)
            if not run.trains:
                return original(*given, fetches, feeds, *more)
            if not self._has_begun:
                self._begin()
            wanted = list(fetches)
            if run.loss is not None and not any(one is run.loss for one in wanted):
                wanted.append(run.loss)
            results = original(*given, wanted, feeds, *more)
            self._trained(next((v for one, v in zip(wanted, results) if one is run.loss), None))
            return results[: len(fetches)]

        owner._do_run = do_run
        self._hook_gradients()

    def _hook_gradients(self) -> None:
        import tensorflow as tf

        module = private.find(private.GRADIENTS, "_GradientsHelper").__globals__
        original = module["_GradientsHelper"]

        @functools.wraps(original)
        def gradients(ys: Any, *args: Any, **kwargs: Any) -> Any:
            for target in tf.nest.flatten(ys):
                if tf.is_tensor(target) and not tf.executing_eagerly():
                    self._targets.setdefault(target.graph, []).append(target)
            return original(ys, *args, **kwargs)

        module["_GradientsHelper"] = gradients

    def _look_at(self, session: Any, targets: Any, fetches: Any, feeds: Any) -> SessionRun:
        fed = {id(reference.deref()) for reference in feeds}
        parts = (list(targets), list(fetches))
        key = (id(session), *(tuple(map(id, part)) for part in parts), frozenset(fed))
        if key not in self._runs:
            try:
                found = self._understood(session.graph, *parts, fed)
            except Exception:  # whatever the framework raises: the program trains on, unseen
                found = SessionRun(False, None)
            self._runs[key] = (found, (session, parts, [one.deref() for one in feeds]))
        return self._runs[key][0]

    def _understood(self, graph: Any, targets: Any, fetches: Any, fed: set[int]) -> SessionRun:
        wanted = [tensor for tensor in fetches if id(tensor) not in fed]
        ops = set(_behind([*targets, *(tensor.op for tensor in wanted)], fed))
        if not _trains(graph, ops):
            return SessionRun(False, None)
        for target in self._targets.get(graph, ()):
            is_one = target.shape.rank in (0, None) and graph.is_fetchable(target)
            if is_one and _is_known_with(ops, _behind([target.op], fed)):
                return SessionRun(True, target)
        named = (one for one in fetches if any(word in one.name.lower() for word in _LOSSES))
        return SessionRun(True, next((one for one in named if one.shape.rank == 0), None))

    def _begin(self) -> None:
        agent = self._agent
        self._has_begun = True
        if agent.framework == "none":
            agent.hello(private.framework())
        agent.fidelity("park-only", _PARKED)
        self._steps = agent.page.step
        agent.loop(True)

    def _trained(self, loss: Any) -> None:
        self._steps += 1
        if loss is None:
            self._agent.record(self._steps, {})
        else:
            self._agent.record_signal(self._steps, loss)
        self._agent.boundary(self._steps)


def _behind(starts: Sequence[Any], fed: set[int]) -> Iterator[Any]:
    """The operations that these need, and themselves, as far as what is fed."""
    waiting, seen = list(starts), set()
    while waiting:
        op = waiting.pop()
        if op not in seen:
            seen.add(op)
            yield op
            waiting += op.control_inputs
            waiting += [tensor.op for tensor in op.inputs if id(tensor) not in fed]


def _trains(graph: Any, ops: set[Any]) -> bool:
    """Whether these operations change a variable that is trained, other than to set it up: to what
    it was, and something added."""
    import tensorflow as tf

    listed = graph.get_collection(tf.compat.v1.GraphKeys.TRAINABLE_VARIABLES)
    trained = {variable.op for variable in listed}
    assigned, read = set[Any](), set[Any]()
    functions = _Functions(graph)
    for op in ops.difference(variable.initializer for variable in listed):
        sources = [_source(tensor) for tensor in op.inputs]
        variables = trained.intersection(sources) - {op}
        if variables and (called := list(function_graph.called(op.node_def))):
            for name, skipped in called:
                inside = function_graph.study(functions, name, functions.known)
                given = sources[skipped:]
                written = {
                    at: writer for at, writer in inside.writers.items() if given[at] in trained
                }
                if not _ASSIGNING.issuperset(written.values()):
                    return True
                assigned.update(given[at] for at in written)
                read |= trained.intersection(given[at] for at in inside.read)
            continue
        if op.type in _ASSIGNING:
            assigned |= trained.intersection(sources[:1])
            variables = trained.intersection(sources[1:])
        elif any(word in op.type for word in _UPDATING) and variables:
            return True
        if op.type not in _PASSING or not _refers(op.outputs[0]):
            read |= variables
    return not assigned.isdisjoint(read)


class _Functions:
    """The functions of a graph, such as the branches of tf.cond, as they are studied."""

    def __init__(self, graph: Any) -> None:
        self._graph = graph
        self.known: dict[str, function_graph.Definition] = {}

    @functools.cached_property
    def _definitions(self) -> dict[str, Any]:
        found = self._graph.as_graph_def().library.function
        return {one.signature.name: one for one in found}

    def get_function_def(self, name: str) -> Any:
        """The definition of a function."""
        return self._definitions[name]


def _source(tensor: Any) -> Any:
    """The operation behind what only passes a variable, or its handle, on."""
    op = tensor.op
    while op.type in _PASSING and _refers(op.outputs[0]):
        op = op.inputs[0].op
    return op


def _refers(tensor: Any) -> bool:
    """Whether a tensor stands for a variable, and not for its value."""
    import tensorflow as tf

    return bool(tensor.dtype._is_ref_dtype or tensor.dtype == tf.resource)


def _is_known_with(ops: set[Any], behind: Iterable[Any]) -> bool:
    """Whether what these operations come to is the same in a run that has `ops`, and can be had
    there: nothing more is fed, drawn or changed for it."""
    return not any(
        op.type == "Placeholder"
        or op.type.startswith(_DRAWING)
        or any(word in op.type for word in ("Assign", *_UPDATING))
        for op in behind
        if op not in ops
    )
