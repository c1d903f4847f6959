"""What a traced function does to the resources it is given, read from its definition.

An operation that is not known to be read-only may write. One whose state is neither in a variable
nor in an iterator is named.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainer_shim.adapters.tensorflow import private

_READING = (
    "ReadVariableOp", "ResourceGather", "VariableShape", "VarIsInitializedOp", "LookupTableFind",
    "LookupTableSize", "LookupTableExport",
)  # fmt: skip
_ITERATING = ("IteratorGetNext",)
_SUMMARIZING = ("Write", "FlushSummaryWriter", "ImportEvent")
# Stateful operations whose state is in what they are given, or that keep none.
_HARMLESS = (
    "AnonymousIterator", "Assert", "Assign", "Case", "Collective", "Empty", "If", "IteratorGetNext",
    "LookupTable", "Optional", "PartitionedCall", "Print", "ReadVariableOp", "Resource", "Rng",
    "Stateful", "Stateless", "StringFormat", "TensorList", "VarIsInitializedOp", "VariableShape",
    "While", "Write", "FlushSummaryWriter", "XlaLaunch",
)  # fmt: skip
UNKNOWN = -1
_GRADIENT = ("gradient_tape/", "gradients/")


@dataclass
class Definition:
    """One function: the positions of its arguments that are read, written, iterated."""

    resources: list[int] = field(default_factory=list)
    read: set[int] = field(default_factory=set)
    written: set[int] = field(default_factory=set)
    iterated: dict[int, int] = field(default_factory=dict)  # how many elements are taken
    reads_datasets: bool = False  # makes iterators of its own
    opaque: set[int] = field(default_factory=set)  # outputs that are no numbers and no strings
    takes_gradient: bool = False
    stateful: list[str] = field(default_factory=list)  # operations no checkpoint has the state of
    writers: dict[int, str] = field(default_factory=dict)  # the operation that writes


def study(context: Any, name: Any, known: dict[str, Definition] | None = None) -> Definition:
    """What the function called `name` does, with the functions it calls."""
    import tensorflow as tf

    known = {} if known is None else known
    plain = name.decode() if isinstance(name, bytes) else name
    if plain in known:
        return known[plain]
    described = context.get_function_def(plain)
    found = known[plain] = Definition()
    outputs = enumerate(described.signature.output_arg)
    opaque = (tf.resource.as_datatype_enum, tf.variant.as_datatype_enum)
    found.opaque = {position for position, output in outputs if output.type in opaque}
    arguments: dict[str, int] = {}
    for position, argument in enumerate(described.signature.input_arg):
        if argument.type == tf.resource.as_datatype_enum:
            arguments[argument.name] = position
            found.resources.append(position)
    for node in _in_order(described.node_def, arguments):
        if any(word in node.name for word in _GRADIENT):
            found.takes_gradient = True
        found.reads_datasets |= "Dataset" in node.op or node.op.startswith("AnonymousIterator")
        if _is_stateful(node.op):
            found.stateful.append(node.op)
        given = [arguments.get(name.split(":")[0]) for name in node.input if name[0] != "^"]
        calls = list(_called(node))
        for function, skipped in calls:
            always = node.op.endswith("PartitionedCall")
            _take_over(found, study(context, function, known), given[skipped:], always)
        if not calls:
            _look_at(found, node.op, given)
            for function in _held(node):
                inner = study(context, function, known)
                found.takes_gradient |= inner.takes_gradient
                found.stateful += inner.stateful
    return found


def _in_order(nodes: Any, arguments: dict[str, int]) -> Iterator[Any]:
    """The nodes; a resource that only passes through one goes by that one's name too."""
    passing = {node.name: node for node in nodes if node.op == "Identity"}
    changed = True
    while changed:
        changed = False
        for name, node in list(passing.items()):
            source = node.input[0].split(":")[0]
            if source in arguments:
                arguments[name] = arguments[source]
                del passing[name]
                changed = True
    yield from nodes


def _called(node: Any) -> Iterator[tuple[str, int]]:
    """The functions that a node calls, and how many of its inputs they are not given."""
    if node.op in ("PartitionedCall", "StatefulPartitionedCall"):
        yield node.attr["f"].func.name, 0
    elif node.op in ("If", "StatelessIf"):
        yield node.attr["then_branch"].func.name, 1
        yield node.attr["else_branch"].func.name, 1
    elif node.op in ("Case", "StatelessCase"):
        for branch in node.attr["branches"].list.func:
            yield branch.name, 1
    elif node.op in ("While", "StatelessWhile"):
        yield node.attr["cond"].func.name, 0
        yield node.attr["body"].func.name, 0


def _held(node: Any) -> Iterator[str]:
    """The functions that a node has for another use than calling them with its inputs."""
    for attribute in node.attr.values():
        for function in (attribute.func, *attribute.list.func):
            if function.name:
                yield function.name


def _take_over(
    found: Definition, called: Definition, given: list[int | None], always: bool
) -> None:
    found.takes_gradient |= called.takes_gradient
    found.stateful += called.stateful
    found.reads_datasets |= called.reads_datasets
    for inner, outer in enumerate(given):
        if outer is None:
            continue
        if inner in called.read:
            found.read.add(outer)
        if inner in called.iterated:
            count = called.iterated[inner] if always else UNKNOWN
            _take_elements(found, outer, count)
        if inner in called.written:
            found.written.add(outer)
            found.writers.setdefault(outer, called.writers[inner])


def _look_at(found: Definition, op: str, given: list[int | None]) -> None:
    if op == "Identity" or op.startswith(_SUMMARIZING):
        return
    for position in given:
        if position is None:
            continue
        if op.startswith(_READING):
            found.read.add(position)
        elif op.startswith(_ITERATING):
            _take_elements(found, position, 1)
        else:
            found.written.add(position)
            found.writers.setdefault(position, op)


def _take_elements(found: Definition, position: int, count: int) -> None:
    before = found.iterated.get(position, 0)
    found.iterated[position] = UNKNOWN if UNKNOWN in (before, count) else before + count


def _is_stateful(op: str) -> bool:
    """Whether an operation has a state that is neither in a variable nor in an iterator."""
    definition = private.find(private.OP_REGISTRY, "get")(op)
    if definition is None or not definition.is_stateful or "Dataset" in op:
        return False
    return not op.startswith(_HARMLESS)


# What a traced function returns, as plain tensors: an Optional becomes what is in it.
#
# Values are taken apart and put together in the same way, by the types of the trace; what
# else TensorFlow keeps in a variant cannot be taken apart.


def find(structure: Any) -> dict[int, Any]:
    """The types of the Optionals among the flat outputs of a trace, by position."""
    import tensorflow as tf

    found, position = {}, 0
    for leaf in tf.nest.flatten(structure):
        if isinstance(leaf, tf.experimental.Optional):
            found[position] = leaf.element_spec
        flat = tf.nest.flatten(leaf, expand_composites=True)
        position += sum(part is not None for part in flat)
    return found


def take_apart(outputs: Sequence[Any], optionals: dict[int, Any]) -> Sequence[Any]:
    """The outputs as tensors of numbers or strings."""
    values: list[Any] = []
    for position, output in enumerate(outputs):
        if position not in optionals:
            values.append(output)
            continue
        optional = _spec(optionals[position])._from_components([output])
        there = optional.has_value()
        values.append(there)
        if there:
            values += _flat(optional.get_value())
    return values


def put_together(values: Iterator[Any], optionals: dict[int, Any]) -> list[Any]:
    """The outputs that were taken apart."""
    import tensorflow as tf

    outputs: list[Any] = []
    for first in values:
        value = tf.constant(first)
        spec = optionals.get(len(outputs))
        if spec is not None:
            optional = tf.experimental.Optional.empty(spec)
            if value:
                flat = [tf.constant(next(values)) for _ in _flat(spec)]
                whole = tf.nest.pack_sequence_as(spec, flat, expand_composites=True)
                optional = tf.experimental.Optional.from_value(whole)
            (value,) = _spec(spec)._to_components(optional)
        outputs.append(value)
    return outputs


def _spec(element: Any) -> Any:
    import tensorflow as tf

    return tf.OptionalSpec(element)


def _flat(structure: Any) -> list[Any]:
    import tensorflow as tf

    return list(tf.nest.flatten(structure, expand_composites=True))
