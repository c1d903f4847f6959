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
    monkeypatch.setattr(relay_module, "FOLLOW_LIMIT_BYTES", 10)
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
        with pytest.raises(TooMuch, match="more than 10 bytes"):
            await anext(chunks)
