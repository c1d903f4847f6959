"""What a slow reader has not taken is kept in order, and what it has taken is let go."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermesd.head.fleet import relay as relay_module
from hermesd.head.fleet.relay import Relay, Spool
from hermesd.head.refusals import TooMuch
from hermesd.pb.hermes.v1 import node_pb2
from tests.head import heads


@given(st.lists(st.binary(max_size=20) | st.none(), max_size=60))
def test_what_goes_in_comes_out_in_order(
    tmp_path_factory: pytest.TempPathFactory, steps: list[bytes | None]
) -> None:
    """None stands for reading a piece."""
    spool, expected = Spool(tmp_path_factory.getbasetemp(), segment_bytes=16), list[bytes]()
    for step in steps:
        if step is not None:
            spool.put(step)
            expected.append(step)
        elif expected:
            assert spool.get() == expected.pop(0)
        assert spool.unread == sum(map(len, expected))
        assert spool.files <= 2 + spool.unread // 16
    assert [spool.get() for _ in expected] == expected
    spool.close()


def test_a_reader_that_is_always_a_little_behind_fills_no_disk(tmp_path: Path) -> None:
    spool = Spool(tmp_path, segment_bytes=100)
    spool.put(b"first")
    for number in range(1_000):
        spool.put(b"%20d" % number)
        spool.get()
        assert spool.files <= 2
    spool.close()


async def test_a_log_that_is_followed_may_be_longer_than_what_may_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_module, "FOLLOW_LIMIT_BYTES", 20)
    relay, session = Relay(tmp_path), heads.session()
    wanted = node_pb2.SendFile(trial="d/1", log=node_pb2.LogRange(follow=True))
    with relay.ask(session, wanted) as ticket:
        chunks = ticket.chunks()
        for _ in range(20):
            relay.deliver(session, node_pb2.FileChunk(ticket=1, data=b"12345678"))
            assert (await anext(chunks)).data == b"12345678"
        for _ in range(2):
            relay.deliver(session, node_pb2.FileChunk(ticket=1, data=b"12345678"))
        assert (await anext(chunks)).data == b"12345678"
        with pytest.raises(TooMuch, match="more than 20 bytes"):
            await anext(chunks)


async def test_what_a_node_says_of_a_file_counts_as_what_is_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hostile one sends names without end, and its user reads none of them."""
    monkeypatch.setattr(relay_module, "FILE_LIMIT_BYTES", 100_000)
    monkeypatch.setattr(relay_module, "PIECES_LIMIT", 50)
    relay, session = Relay(tmp_path), heads.session()
    for name, pieces in (("x" * 60_000, 1), ("", 50)):
        with relay.ask(session, node_pb2.SendFile(trial="d/1")) as ticket:
            for _ in range(60):
                relay.deliver(session, node_pb2.FileChunk(ticket=ticket.number, name=name))
            assert ticket.pieces == pieces
            chunks = ticket.chunks()
            assert [(await anext(chunks)).name for _ in range(pieces)] == [name] * pieces
            with pytest.raises(TooMuch):
                await anext(chunks)


async def test_what_nobody_asked_for_is_counted_as_anything_that_a_node_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay, session, other = Relay(tmp_path), heads.session(), heads.session("liar", "there")
    chunk = node_pb2.FileChunk(ticket=1, data=b"1")
    with relay.ask(session, node_pb2.SendFile(trial="d/1")):
        assert relay.deliver(session, chunk)
        assert not relay.deliver(other, chunk)
        assert not relay.deliver(session, node_pb2.FileChunk(ticket=2))
    assert relay.deliver(session, chunk), "it was on its way"
    assert not relay.deliver(other, chunk)
    now = relay_module.boottime()
    monkeypatch.setattr(relay_module, "boottime", lambda: now + relay_module.ON_ITS_WAY_SECONDS + 1)
    assert not relay.deliver(session, chunk)
