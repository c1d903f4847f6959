"""Frames between node daemon, host and agent: a 4-byte big-endian length, then a JSON object.

A frame has at most 64 KiB and holds one object with a "kind". Numbers that JSON cannot express
travel as strings ("nan", "inf", "-inf").
"""

from __future__ import annotations

import json
import math
import struct
from typing import Any

from trainer_shim.channel.pipes import ByteStream

MAX_FRAME_BYTES = 64 * 1024
# What a host adds to an agent's message before it sends it on: number, attempt, time.
_ENVELOPE_BYTES = 1024
_LENGTH = struct.Struct(">I")

Message = dict[str, Any]


class FrameError(Exception):
    """A frame is longer than 64 KiB, or is not a JSON object."""


def encode(message: Message) -> bytes:
    """The bytes of one frame. Raises FrameError when it is too long."""
    body = json.dumps(message, separators=(",", ":"), allow_nan=False).encode()
    if len(body) > MAX_FRAME_BYTES:
        kind = message.get("kind")
        raise FrameError(
            f"frame {kind!r} has {len(body)} bytes, expected at most {MAX_FRAME_BYTES}"
        )
    return _LENGTH.pack(len(body)) + body


def fits(message: Message) -> bool:
    """Whether the message can be sent, and sent on by a host."""
    body = json.dumps(message, separators=(",", ":"), allow_nan=False)
    return len(body.encode()) <= MAX_FRAME_BYTES - _ENVELOPE_BYTES


def number(value: float) -> float | str:
    """`value` as JSON can carry it: finite numbers as they are, the others by name."""
    if math.isfinite(value):
        return value
    if math.isnan(value):
        return "nan"
    return "inf" if value > 0 else "-inf"


class Decoder:
    """Turns a byte stream, cut anywhere, into the objects it carries."""

    def __init__(self, begun: bytes = b"") -> None:
        self._bytes = bytearray(begun)

    @property
    def begun(self) -> bytes:
        """The frame of which the end has not come yet."""
        return bytes(self._bytes)

    def feed(self, data: bytes) -> list[Message]:
        """The messages completed by `data`. Raises FrameError on a malformed frame."""
        self._bytes += data
        messages = []
        while len(self._bytes) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._bytes)
            if length > MAX_FRAME_BYTES:
                raise FrameError(f"frame length {length}, expected at most {MAX_FRAME_BYTES}")
            end = _LENGTH.size + length
            if len(self._bytes) < end:
                break
            messages.append(_parse(bytes(self._bytes[_LENGTH.size : end])))
            del self._bytes[:end]
        return messages


def _parse(body: bytes) -> Message:
    try:
        message = json.loads(body)
    except ValueError as error:
        raise FrameError(f"frame is not JSON: {error}") from error
    if not isinstance(message, dict):
        raise FrameError(f"frame is a {type(message).__name__}, expected an object")
    return message


def send(stream: ByteStream, message: Message) -> None:
    """Send one frame on a blocking stream."""
    stream.sendall(encode(message))


def receive(stream: ByteStream) -> Message | None:
    """The next frame of a blocking stream; None at the end of the stream."""
    head = _exactly(stream, _LENGTH.size)
    if head is None:
        return None
    (length,) = _LENGTH.unpack(head)
    if length > MAX_FRAME_BYTES:
        raise FrameError(f"frame length {length}, expected at most {MAX_FRAME_BYTES}")
    body = _exactly(stream, length)
    return None if body is None else _parse(body)


def _exactly(stream: ByteStream, count: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < count:
        part = stream.recv(count - len(parts))
        if not part:
            return None
        parts += part
    return bytes(parts)


class FrameConnection:
    """A non-blocking end of a channel: frames come in by `read`, go out by `send`.

    What the peer does not take at once is kept and sent by `flush` when the stream is
    writable again (`wants_write`).
    """

    def __init__(self, stream: ByteStream, begun: bytes = b"") -> None:
        stream.setblocking(False)
        self.stream = stream
        self.closed = False
        self._decoder = Decoder(begun)
        self._out = bytearray()

    def read(self) -> list[Message]:
        """Every complete message that has arrived; sets `closed` at the stream's end."""
        messages: list[Message] = []
        while not self.closed:
            try:
                data = self.stream.recv(MAX_FRAME_BYTES)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                self.closed = True
                break
            messages += self._decoder.feed(data)
        return messages

    def send(self, message: Message) -> None:
        """Queue one frame and send what the stream takes now."""
        self._out += encode(message)
        self.flush()

    def flush(self) -> None:
        """Send as much of the queue as the stream takes."""
        while self._out and not self.closed:
            try:
                sent = self.stream.send(self._out)
            except BlockingIOError:
                return
            except OSError:
                self.closed = True
                return
            del self._out[:sent]

    @property
    def begun(self) -> bytes:
        """The frame of which the peer has not sent the end yet."""
        return self._decoder.begun

    @property
    def unsent(self) -> bytes:
        """What the peer has not taken yet."""
        return bytes(self._out)

    @property
    def wants_write(self) -> bool:
        """Whether bytes are waiting for the peer to take them."""
        return bool(self._out) and not self.closed

    def close(self) -> None:
        """Close the stream."""
        self.closed = True
        self.stream.close()
