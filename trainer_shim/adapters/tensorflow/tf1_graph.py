"""What one `Session.run` does, found by walking its graph back from what is fetched.

A run that only assigns sets up, one that updates variables trains, every other one reads.
A variable's initializer sets up whatever it reads, be it the value of another variable.
Operations that draw elements or random numbers are its *sources*: their state lives in the
session, and running them alone moves it on as the whole run does.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Callable

from trainer_shim.adapters.tensorflow import function_graph

# Whether a run reads a variable and updates it in no order.
#
# A graph's operations run as soon as what they depend on is there. A step that fetches a penalty
# on the weights, or that computes gradients which an optimizer does not wait for, may read a
# weight before or after its update; what it computes then differs from run to run, with all seeds
# set. The value of a reference variable is not even copied when it is read: whatever uses it
# later reads anew. Every reader of a variable has to come before each of its updates, or
# after it, by a path.

_BACK = "NextIteration"  # the edge of a loop in the graph


def unordered(
    ops: Iterable[Any],
    fetches: Iterable[Any],
    writers: Mapping[str, list[Any]],
    variable_of: Callable[[Any], str | None],
) -> str | None:
    """A variable that an operation of `ops` reads and others write, in no order; None if all are
    in order.

    `ops` are all of a run; of those that write, `writers` has the ones of each variable. A fetch
    takes a variable's value whenever it comes to it.
    """
    ops = set(ops)
    for tensor in fetches:
        if (name := variable_of(tensor)) in writers:
            return name
    before = {op: _before(op, ops) for op in ops}
    readers = _readers(ops, writers, variable_of)
    bits: dict[Any, int] = {}
    for op in (*(op for found in writers.values() for op in found), *(op for op, _ in readers)):
        bits.setdefault(op, 1 << len(bits))
    behind = _bits_behind(before, bits)
    for reader, name in readers:
        for writer in writers[name]:
            is_ordered = behind[writer] & bits[reader] or behind[reader] & bits[writer]
            if reader is not writer and not is_ordered:
                return name
    return None


def _before(op: Any, ops: set[Any]) -> list[Any]:
    sources = [*op.control_inputs, *(tensor.op for tensor in op.inputs)]
    return [one for one in sources if one in ops and one.type != _BACK]


def _readers(
    ops: set[Any],
    writers: Mapping[str, list[Any]],
    variable_of: Callable[[Any], str | None],
) -> list[tuple[Any, str]]:
    """The operations that look at a variable that is written, and its name."""
    found = []
    for op in ops:
        for tensor in op.inputs:
            name = variable_of(tensor)
            if name is not None and op not in writers.get(name, (op,)):
                found.append((op, name))
    return found


def _bits_behind(before: Mapping[Any, list[Any]], bits: Mapping[Any, int]) -> dict[Any, int]:
    """For each operation the bits of those that it comes after, and its own."""
    behind: dict[Any, int] = {}
    for start in before:
        waiting = [start]
        while waiting:
            op = waiting[-1]
            missing = [one for one in before[op] if one not in behind]
            if op not in behind and missing:
                waiting += missing
                continue
            waiting.pop()
            if op not in behind:
                mask = bits.get(op, 0)
                for one in before[op]:
                    mask |= behind[one]
                behind[op] = mask
    return behind


SAVING = "save"
_PASSING = {"Enter", "Identity", "NextIteration", "RefEnter", "RefIdentity", "RefSwitch", "Switch"}
_ASKING = {"IsVariableInitialized", "VarIsInitializedOp"}
_ASSIGNING = {"Assign", "AssignVariableOp"}
_VARIABLES = {"VarHandleOp", "Variable", "VariableV2"}
_SOURCES = (
    "IteratorGetNext", "Multinomial", "ParameterizedTruncatedNormal", "PyFunc", "EagerPyFunc",
    "Random", "TruncatedNormal",
)  # fmt: skip
_ITERATORS = ("Iterator", "OneShotIterator")
_PARALLEL = ("ParallelMapDataset", "MapAndBatchDataset", "ParallelInterleaveDataset")
_SAVING = {"MergeV2Checkpoints", "SaveSlices", "SaveV2", "Save"}
_RESTORING = {"RestoreV2", "Restore", "RestoreSlice"}
# Stateful operations whose state is in variables, ends with the run, or is none.
_HARMLESS = (
    "Barrier", "DestroyTemporaryVariable", "HashTable", "InitializeTable", "IsVariableInitialized",
    "Iterator", "MakeIterator", "OneShotIterator", "Placeholder", "Save", "Merge", "Restore",
    "ShardedFilename", "Stack", "SummaryWriter", "CreateSummary", "TemporaryVariable",
    "TensorArray", "VarHandleOp", "Variable", "MutableHashTable", "AnonymousSeedGenerator",
)  # fmt: skip


@dataclass
class SessionRun:
    """What a run of these fetches and targets does. Variables are operations, by name."""

    fetches: Sequence[Any]
    loss: Any = None  # the tensor, if one is found
    read: set[str] = field(default_factory=set)
    assigned: set[str] = field(default_factory=set)
    updated: set[str] = field(default_factory=set)
    sources: list[Any] = field(default_factory=list)
    obstacles: list[str] = field(default_factory=list)
    race: str | None = None  # a weight that is read and updated in no order
    is_fed: bool = True  # all that has to be
    saves: bool = False
    restores: bool = False
    trains: bool = False
    label: str = "read"

    @property
    def written(self) -> set[str]:
        """Every variable that the run leaves other than it was."""
        return self.assigned | self.updated


def look_at(
    fetches: Sequence[Any],
    targets: Sequence[Any],
    fed: Iterable[Any],
    trainable: Mapping[str, str],
) -> SessionRun:
    """Walk back from the tensors and operations to be run to those that are fed.

    `trainable` has the initializer of each variable that is trained.
    """
    run = SessionRun(fetches)
    writers = []
    given = {id(tensor) for tensor in fed}
    wanted = [tensor for tensor in fetches if id(tensor) not in given]
    behind = (variable_behind(tensor) for tensor in wanted if _refers(tensor))
    run.read.update(variable.name for variable in behind if variable is not None)
    library = _Library()
    changing: dict[str, list[Any]] = {}  # the operations that write each variable
    ops = list(_behind([*(tensor.op for tensor in wanted), *targets], given))
    for op in ops:
        run.is_fed &= op.type != "Placeholder"
        run.saves |= op.type in _SAVING
        run.restores |= op.type in _RESTORING
        written = _look_at_op(run, op, library)
        if written:
            writers.append(op.name)
        for name in written & trainable.keys():
            changing.setdefault(name, []).append(op)
    if writers:
        run.label = f"run-{zlib.crc32(' '.join(sorted(writers)).encode()):08x}"
    elif run.saves:
        run.label = SAVING
    begun = {name for name, initializer in trainable.items() if initializer in writers}
    moved = run.updated | (run.assigned & run.read) - begun
    run.trains = not moved.isdisjoint(trainable)
    if run.trains:
        run.race = unordered(ops, wanted, changing, _looked_at)
    return run


def variable_behind(tensor: Any) -> Any:
    """The operation of the variable that a reference or a handle leads to; None for others."""
    op = tensor.op
    while op.type in _PASSING:
        op = op.inputs[0].op
    return op if op.type in _VARIABLES else None


def reader(op: Any) -> Any:
    """A tensor with the value of a variable; None if the graph has none to be fetched."""
    if op.type != "VarHandleOp":
        return op.outputs[0]
    for one in op.outputs[0].consumers():
        if one.type == "ReadVariableOp" and _is_plain(one):
            return one.outputs[0]
    return None


def assigner(op: Any) -> Any:
    """An operation that sets a variable to its second input; None if the graph has none."""
    for one in op.outputs[0].consumers():
        if one.type in _ASSIGNING and _is_plain(one) and one.graph.is_feedable(one.inputs[1]):
            return one
    return None


def _refers(tensor: Any) -> bool:
    """Whether a tensor stands for a variable, or another resource, and not for its value."""
    import tensorflow as tf

    return bool(tensor.dtype._is_ref_dtype or tensor.dtype == tf.resource)


def _is_plain(op: Any) -> bool:
    return not op.control_inputs and op._get_control_flow_context() is None


def _behind(starts: Iterable[Any], fed: set[int]) -> Iterator[Any]:
    waiting, seen = list(starts), set()
    while waiting:
        op = waiting.pop()
        if op in seen:
            continue
        seen.add(op)
        yield op
        waiting += op.control_inputs
        waiting += [tensor.op for tensor in op.inputs if id(tensor) not in fed]


def _looked_at(tensor: Any) -> str | None:
    """The variable that has the value of a tensor, or that it is the handle of."""
    variable = variable_behind(tensor)
    return None if variable is None else str(variable.name)


def _look_at_op(run: SessionRun, op: Any, library: _Library) -> set[str]:
    """Note what one operation does; the variables that it writes."""
    if op.type.startswith(_SOURCES):
        run.sources.append(op)
        if _in_while(op):
            run.obstacles.append(f"a loop in the graph runs {op.type}")
    elif function_graph.is_stateful(op.type) and not op.type.startswith(_HARMLESS):
        run.obstacles.append(f"a step runs {op.type}, whose state cannot be saved")
    calls = function_graph.called(op.node_def) if op.type in function_graph.CALLING else ()
    definitions = [
        (function_graph.study(library.of(op.graph), name), skipped) for name, skipped in calls
    ]
    for definition, _ in definitions:
        run.obstacles += [
            f"a function in the graph runs {one}, whose state cannot be saved"
            for one in definition.stateful
        ]
    wrote = set()
    for position, tensor in enumerate(op.inputs):
        variable = variable_behind(tensor) if _refers(tensor) else None
        if variable is None or (op.type in _PASSING and _refers(op.outputs[0])):
            continue
        if _writes(op, position, definitions):
            wrote.add(variable.name)
            (run.assigned if op.type in _ASSIGNING else run.updated).add(variable.name)
        else:
            run.read.add(variable.name)
    return wrote


def _writes(
    op: Any, position: int, definitions: list[tuple[function_graph.Definition, int]]
) -> bool:
    if definitions:
        return any(position - skipped in one.written for one, skipped in definitions)
    if op.type in _ASKING:
        return False
    if op.inputs[position].dtype._is_ref_dtype:
        arguments = op.op_def.input_arg
        return position < len(arguments) and bool(arguments[position].is_ref)
    return not op.type.startswith(function_graph.READING)


def free_order(graph: Any) -> str | None:
    """A dataset of the graph that gives its elements as they come, in words; None if none does."""
    if not any(op.type.startswith(_ITERATORS) for op in graph.get_operations()):
        return None
    library = _Library().of(graph)
    described = library.described
    for nodes in (described.node, *(one.node_def for one in described.library.function)):
        for node in nodes:
            if "Dataset" in node.op and node.attr["deterministic"].s == b"false":
                return f"the order of a {node.op} is free"
            if not node.op.startswith(_PARALLEL):
                continue
            for attribute in node.attr.values():
                name = attribute.func.name
                for operation in function_graph.study(library, name).stateful if name else ():
                    return f"{node.op} runs {operation}, which is stateful, in parallel"
    return None


def _in_while(op: Any) -> bool:
    context = op._get_control_flow_context()
    while context is not None:
        if context.IsWhileContext():
            return True
        context = context.outer_context
    return False


class _Library:
    """The functions of a graph, as `function_graph.study` asks for them."""

    def __init__(self) -> None:
        self._graph: Any = None
        self.described: Any = None
        self._definitions: dict[str, Any] = {}

    def of(self, graph: Any) -> _Library:
        """Those of this graph."""
        if graph is not self._graph:
            self._graph = graph
            self.described = graph.as_graph_def()
            functions = self.described.library.function
            self._definitions = {one.signature.name: one for one in functions}
        return self

    def get_function_def(self, name: str) -> Any:
        """The definition of a function."""
        return self._definitions[name]
