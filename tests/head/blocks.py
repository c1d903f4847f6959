"""Points as a report brings them."""

from __future__ import annotations

from collections.abc import Sequence

from hermesd import wire
from hermesd.core.model import RunId
from hermesd.core.node.messages import Series
from hermesd.head.journal.points import Block


def block(run: RunId, **metrics: tuple[Sequence[int], Sequence[float]]) -> Block:
    """Of each metric its steps and the values there."""
    series = [Series(name, tuple(at), tuple(values)) for name, (at, values) in metrics.items()]
    return Block(run, wire.points_to_proto(series).SerializeToString())
