"""Frames survive any cut of the stream, and refuse what does not belong in one."""

from __future__ import annotations

import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer_shim import reporting
from trainer_shim.channel import frames

messages = st.dictionaries(
    st.text(max_size=8), st.one_of(st.integers(-(2**53), 2**53), st.text(max_size=20)), max_size=5
)


@given(st.lists(messages, max_size=6), st.lists(st.integers(1, 40), min_size=1, max_size=30))
def test_a_stream_cut_anywhere_gives_the_same_messages(
    sent: list[frames.Message], cuts: list[int]
) -> None:
    stream = b"".join(frames.encode(message) for message in sent)
    decoder, heard, at = frames.Decoder(), [], 0
    while at < len(stream):
        size = cuts[at % len(cuts)]
        heard += decoder.feed(stream[at : at + size])
        at += size
    assert heard == sent


@pytest.mark.parametrize(
    "stream",
    [struct.pack(">I", 1 << 20), struct.pack(">I", 2) + b"[]", struct.pack(">I", 1) + b"x"],
    ids=["too long", "not an object", "not json"],
)
def test_a_malformed_frame_is_refused(stream: bytes) -> None:
    with pytest.raises(frames.FrameError):
        frames.Decoder().feed(stream)


def test_a_message_over_64_kib_is_refused_by_name() -> None:
    with pytest.raises(frames.FrameError, match="'reported'"):
        frames.encode({"kind": "reported", "points": "x" * 70_000})


def test_blocking_ends_speak_the_same_frames() -> None:
    one, two = socket.socketpair()
    with one, two:
        frames.send(one, {"kind": "a", "value": frames.number(float("nan"))})
        one.close()
        assert frames.receive(two) == {"kind": "a", "value": "nan"}
        assert frames.receive(two) is None


def test_a_connection_keeps_what_the_peer_does_not_take_yet() -> None:
    one, two = socket.socketpair()
    with two:
        connection = frames.FrameConnection(one)
        for _ in range(100):
            connection.send({"kind": "x", "text": "y" * 50_000})
        assert connection.wants_write
        heard = 0
        while heard < 100:
            assert frames.receive(two) is not None
            heard += 1
            connection.flush()
        assert not connection.wants_write
        connection.close()


@given(st.integers(0, 2000))
def test_thinning_keeps_order_bound_and_the_last(count: int) -> None:
    points = [[step, {}] for step in range(count)]
    thinned = reporting.thin(points)
    assert len(thinned) == min(count, reporting.MAX_POINTS)
    assert thinned == sorted(thinned, key=lambda point: point[0])
    assert thinned[-1:] == points[-1:]


def test_nan_spoils_neither_extreme_of_a_signal() -> None:
    summary = reporting.summarize([2.0, float("nan"), 1.0, float("inf")])
    assert summary == {"count": 4, "first": 2.0, "last": "inf", "min": 1.0, "max": "inf"}
