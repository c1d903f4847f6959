"""What a traced function returns, as plain tensors: an Optional becomes what is in it.

Rule: values are taken apart and put together in the same way, by the types of the trace; what
else TensorFlow keeps in a variant cannot be taken apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any


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
