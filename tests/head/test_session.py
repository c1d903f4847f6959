"""What a stream says: commands at once, leases and what is safe with them, alone now and then."""

from __future__ import annotations

import pytest

from hermesd.core.state import Rejected
from hermesd.head.fleet import session as session_module
from hermesd.head.fleet.session import (
    PATIENCE_LEASES,
    PATIENCE_LIMIT,
    PATIENCE_SECONDS,
    NodeSession,
)
from hermesd.head.loop import Stopping
from hermesd.pb.hermes.v1 import node_pb2 as pb
from tests.clock import Clock
from tests.head import heads


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(session_module, "boottime", made)
    return made


async def said(session: NodeSession) -> list[pb.AttachResponse]:
    """What it has to say by now, and nothing more later."""
    session.close("enough")
    return [each async for each in session.messages()]


def report(session: NodeSession, sequence: int, sent: float) -> None:
    session.hear(sent, asks=False)
    session.passed_on(sequence, hurried=False)((), ())


async def test_a_command_takes_along_that_reports_are_safe_and_the_lease(clock: Clock) -> None:
    session = heads.session()
    report(session, 1, sent=7.0)
    report(session, 2, sent=8.0)
    session.send(pb.AttachResponse(kill=pb.KillRun()))
    (message,) = await said(session)
    assert message.WhichOneof("message") == "kill"
    assert message.acknowledged_sequence == 2
    assert message.lease.sent_boottime_seconds == 8.0


async def test_a_node_that_reports_is_answered_every_few_seconds(clock: Clock) -> None:
    session = heads.session()
    messages = session.messages()
    report(session, 1, sent=1.0)
    first = await anext(messages)
    assert (first.lease.sent_boottime_seconds, first.acknowledged_sequence) == (1.0, 1)
    for second in range(2, 2 + int(PATIENCE_SECONDS)):
        clock.now += 1.0
        report(session, second, sent=float(second))
    second_answer = await anext(messages)
    assert second_answer.WhichOneof("message") is None
    assert second_answer.acknowledged_sequence == 1 + PATIENCE_SECONDS
    assert second_answer.lease.sent_boottime_seconds == 1.0 + PATIENCE_SECONDS
    assert await said(session) == [], "one answer for all of them"


async def test_the_shorter_the_lease_the_more_often_it_is_renewed(clock: Clock) -> None:
    session = heads.session(lease_seconds=10.0)
    messages = session.messages()
    report(session, 1, sent=1.0)
    await anext(messages)
    clock.now += PATIENCE_LEASES * 10.0
    report(session, 2, sent=2.0)
    assert (await anext(messages)).lease.sent_boottime_seconds == 2.0


async def test_a_heartbeat_is_answered_at_once(clock: Clock) -> None:
    session = heads.session()
    messages = session.messages()
    for sent in (1.0, 2.0):
        session.hear(sent, asks=True)
        assert (await anext(messages)).lease.sent_boottime_seconds == sent


async def test_an_outcome_is_acknowledged_at_once_with_the_reports_before_it(clock: Clock) -> None:
    session = heads.session()
    messages = session.messages()
    report(session, 1, sent=1.0)
    await anext(messages)
    report(session, 2, sent=2.0)
    session.passed_on(3, hurried=True)((), ())
    report(session, 4, sent=3.0)
    # 4 was safe by the time that it was written.
    assert (await anext(messages)).acknowledged_sequence == 4
    assert await said(session) == []


async def test_nothing_is_safe_before_what_it_waits_for(clock: Clock) -> None:
    session = heads.session()
    messages = session.messages()
    first, second = (session.passed_on(number, hurried=True) for number in (1, 2))
    session.passed_over(3)
    session.hear(1.0, asks=True)
    assert (await anext(messages)).acknowledged_sequence == 0
    first((), ())
    assert (await anext(messages)).acknowledged_sequence == 1
    second(Rejected("of no use to anybody either"), ())
    assert (await anext(messages)).acknowledged_sequence == 3


async def test_what_the_head_does_not_come_to_is_never_safe(clock: Clock) -> None:
    session = heads.session()
    messages = session.messages()
    answered = session.passed_on(1, hurried=True)
    session.passed_over(2)
    answered(Stopping("the head stops"), ())
    session.passed_over(3)
    session.hear(1.0, asks=True)
    assert (await anext(messages)).acknowledged_sequence == 0


async def test_no_node_keeps_many_reports_for_long(clock: Clock) -> None:
    session = heads.session()
    messages = session.messages()
    report(session, 1, sent=1.0)
    await anext(messages)
    for sequence in range(2, PATIENCE_LIMIT + 2):
        report(session, sequence, sent=1.0)
    assert (await anext(messages)).acknowledged_sequence == PATIENCE_LIMIT + 1
    assert await said(session) == []


# A head of many nodes is told less often.


def seldom(wanted: float, lease_seconds: float) -> NodeSession:
    def grant(sent: float) -> pb.Lease:
        return pb.Lease(sent_boottime_seconds=sent, report_seconds=wanted)

    return NodeSession("box", "here", grant, lease_seconds)


@pytest.mark.parametrize(
    ("wanted", "lease_seconds", "told"),
    [(0.2, 600.0, 1.0), (3.0, 600.0, 3.0), (100.0, 600.0, 5.0), (100.0, 10.0, 2.0)],
)
async def test_a_node_is_told_how_often_to_report_and_hears_of_its_lease_as_often_as_before(
    clock: Clock, wanted: float, lease_seconds: float, told: float
) -> None:
    session = seldom(wanted, lease_seconds)
    session.hear(1.0, asks=True)
    assert (await anext(session.messages())).lease.report_seconds == told


async def test_who_is_to_report_seldom_is_not_silent_meanwhile(clock: Clock) -> None:
    session = seldom(5.0, 600.0)
    session.hear(1.0, asks=True)
    await anext(session.messages())
    clock.now += session_module.SILENCE_SECONDS + 3.9
    assert not session.silent
    clock.now += 0.2
    assert session.silent
