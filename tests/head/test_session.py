"""What a stream says: leases and commands at once, that reports are safe of several at a time."""

from __future__ import annotations

from hermesd.head.session import PATIENCE_LIMIT, Session
from hermesd.pb.hermes.v1 import node_pb2 as pb


def acknowledged(message: pb.AttachResponse) -> int:
    assert message.WhichOneof("message") == "acknowledged"
    return message.acknowledged.sequence


async def test_reports_are_acknowledged_together() -> None:
    session = Session("n", "here")
    session.acknowledge(1, hurried=False)
    session.acknowledge(2, hurried=False)
    messages = session.messages()
    session.grant(pb.Lease(lease_seconds=10))
    assert (await anext(messages)).WhichOneof("message") == "lease"
    assert acknowledged(await anext(messages)) == 2  # nothing else had to come


async def test_what_is_waited_for_is_acknowledged_at_once_with_the_reports_before_it() -> None:
    session = Session("n", "here")
    session.acknowledge(1, hurried=False)
    session.acknowledge(2)
    session.acknowledge(3, hurried=False)
    session.close("enough")
    # 3 was safe by the time that it was written.
    assert [acknowledged(each) async for each in session.messages()] == [3]


async def test_no_node_keeps_many_reports_for_long() -> None:
    session = Session("n", "here")
    for sequence in range(1, PATIENCE_LIMIT + 2):
        session.acknowledge(sequence, hurried=False)
    session.close("enough")
    assert [acknowledged(each) async for each in session.messages()] == [PATIENCE_LIMIT + 1]
