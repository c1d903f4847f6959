"""The first message of a node: who it says it is, and whether it may be."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import hermesd
from hermesd import wire
from hermesd.core.bounds import implausible
from hermesd.core.events import NodeJoined
from hermesd.head.guard import caller
from hermesd.head.refusals import NotNow
from hermesd.head.versions import compatible
from hermesd.identity import Role
from hermesd.pb.hermes.v1 import node_pb2 as pb
from hermesd.refusal import FieldError, Refused, shown

HELLO_SECONDS = 10.0


async def hello(requests: AsyncIterator[pb.AttachRequest]) -> tuple[pb.Hello, NodeJoined]:
    """The first message, and the event that it is. Raises Refused, NotNow."""
    try:
        async with asyncio.timeout(HELLO_SECONDS):
            first = await anext(aiter(requests))
    except (StopAsyncIteration, TimeoutError):
        raise Refused(FieldError("hello", "nothing", "a Hello first")) from None
    kind = first.WhichOneof("message")
    if kind != "hello":
        raise Refused(FieldError("hello", kind or "nothing", "a Hello first"))
    if not compatible(hermesd.__version__, first.hello.version):
        raise NotNow(
            f"the head has version {hermesd.__version__}, the node {first.hello.version}:"
            " they may be one minor version apart"
        )
    try:
        joined = wire.event_from_proto(first)
    except wire.Malformed as error:
        raise Refused(FieldError("hello", "malformed", str(error))) from None
    assert isinstance(joined, NodeJoined)
    if wrong := implausible(joined.node, joined):
        raise Refused(FieldError("hello", "implausible", wrong))
    for device in joined.devices:
        if device.node != joined.node or not device.id.startswith(f"{joined.node}/"):
            expected = f"a device of {joined.node}, named {joined.node}/…"
            raise Refused(FieldError("hello.devices", shown(device.id), expected))
    for place, _ in joined.yields:
        if place != joined.node and not place.startswith(f"{joined.node}/"):
            expected = f"{joined.node} or a device of it"
            raise Refused(FieldError("hello.yields", shown(place), expected))
    holder = caller.get()
    if holder is not None and holder.role is Role.NODE and holder.name not in ("", joined.node):
        expected = f"{holder.name}, as its certificate"
        raise Refused(FieldError("hello.node", shown(joined.node), expected))
    return first.hello, joined
