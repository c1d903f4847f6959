"""Nothing that crosses the node stream loses a field: every type that does, with every field other
than its default, made from the types themselves so that a new field is tested as it is added."""

from __future__ import annotations

import dataclasses
from enum import Enum
from itertools import count
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

import pytest

from hermesd import wire
from hermesd.codec import Codec, MessageForm
from hermesd.core.events import NodeJoined, Reported
from hermesd.core.model import LiveRun, Scalar, Setting
from hermesd.core.node.messages import Assignment, Order, Series
from hermesd.pb.hermes.v1 import node_pb2 as pb

HERE = "n1"
# Of the fields that are words without a type: one of them.
WORDS = {(LiveRun, "condition"): "parked"}


class Filler:
    """Makes values of any type, none of which has a field with its default or one used before."""

    def __init__(self) -> None:
        self._next = count(1)

    def value(self, hint: Any, default: Any = dataclasses.MISSING) -> Any:
        inner = [each for each in get_args(hint) if each is not NoneType]
        if hint == Scalar or hint is str:
            return f"word {next(self._next)}"
        if hint == Setting:
            return (self.value(Scalar), next(self._next))
        if hint is bool:
            return not default if default is not dataclasses.MISSING else True
        if hint is bytes:
            return b"%d" % next(self._next)
        if hint in (int, float):
            return hint(next(self._next)) + (0.5 if hint is float else 0)
        if get_origin(hint) is tuple:
            kinds = inner[:1] * 2 if inner[-1] is ... else inner
            return tuple(self.value(kind) for kind in kinds)
        if NoneType in get_args(hint):
            return self.value(inner[0])
        if isinstance(hint, type) and issubclass(hint, Enum):
            return next(each for each in reversed(hint) if each != default)
        return self.whole(hint)

    def whole(self, kind: Any) -> Any:
        """A value of a dataclass or named tuple."""
        hints = get_type_hints(kind)
        if dataclasses.is_dataclass(kind):
            defaults = {each.name: each.default for each in dataclasses.fields(kind)}
        else:
            defaults = dict.fromkeys(kind._fields, dataclasses.MISSING)
        given = {
            name: WORDS.get((kind, name)) or self.value(hints[name], default)
            for name, default in defaults.items()
        }
        return kind(**given)


def test_the_filler_leaves_no_field_at_its_default() -> None:
    filled = Filler().whole(Assignment)
    for each in dataclasses.fields(filled):
        assert getattr(filled, each.name) != each.default, each.name


def here(order: Any) -> Any:
    """An order as its node has it: what is not sent is the node itself, and of what is said twice
    in a launch both are the same."""
    if isinstance(order, Assignment):
        assert order.checkpoint is not None
        assert order.launch.parked is not None
        parked = order.launch.parked._replace(trial=order.run.trial)
        restored = order.checkpoint.id
        launch = dataclasses.replace(order.launch, parked=parked, checkpoint=restored)
        return dataclasses.replace(order, launch=launch)
    return dataclasses.replace(order, node=HERE) if hasattr(order, "node") else order


@pytest.mark.parametrize("kind", get_args(Order), ids=lambda kind: kind.__name__)
def test_no_field_of_an_order_is_lost(kind: type) -> None:
    order = here(Filler().whole(kind))
    sent = pb.AttachResponse.FromString(wire.command_to_proto(order).SerializeToString())
    assert wire.command_from_proto(sent, HERE) == order


@pytest.mark.parametrize(
    "kind", [NodeJoined, *get_args(wire.NodeEvent)], ids=lambda kind: kind.__name__
)
def test_no_field_of_an_event_is_lost(kind: type) -> None:
    event, points = Filler().whole(kind), ()
    if isinstance(event, NodeJoined):
        event = dataclasses.replace(event, owner="")  # the head's own knowledge, by its certificate
    if isinstance(event, Reported):
        # Which are made of the points that go with it.
        points = (Series("loss", (1, 2), (0.5, 0.25)), Series("accuracy", (1,), (0.75,)))
        last, ranges = (("loss", 0.25), ("accuracy", 0.75)), (("loss", 0.25, 0.5),)
        event = dataclasses.replace(event, metrics=last, ranges=ranges)
    if isinstance(event, NodeJoined):
        event = dataclasses.replace(event, owner="")  # whose it is the head finds out by itself
    message = (
        wire.hello_to_proto(event) if kind is NodeJoined else wire.event_to_proto(event, points)
    )
    sent = pb.AttachRequest.FromString(message.SerializeToString())
    assert wire.event_from_proto(sent) == event


def test_a_field_that_no_message_has_is_refused_by_name() -> None:
    longer = dataclasses.make_dataclass("Reclaimed", [("place", str), ("mood", str)], frozen=True)
    codec = Codec({longer: MessageForm(pb.Reclaimed)})
    with pytest.raises(TypeError, match=r"Reclaimed\.mood: Reclaimed has no field mood"):
        codec.encode(longer("n1", "calm"))


def test_a_field_of_another_type_than_in_its_message_is_refused_by_name() -> None:
    other = dataclasses.make_dataclass("Reclaimed", [("place", float)], frozen=True)
    with pytest.raises(TypeError, match=r"Reclaimed\.place: the message has no .*float"):
        Codec({other: MessageForm(pb.Reclaimed)}).encode(other(0.5))
