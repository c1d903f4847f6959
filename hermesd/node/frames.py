"""Frames to and from a host or zygote: 4-byte big-endian length, then a JSON object, <= 64 KiB."""

from __future__ import annotations

import asyncio
import json
import struct
from typing import Any

from hermesd.node.reasons import Foreseen

MAX_FRAME_BYTES = 64 * 1024
_LENGTH = struct.Struct(">I")

Frame = dict[str, Any]


class FrameError(Foreseen):
    """What came is no frame; the connection is of no more use."""


def encode(frame: Frame) -> bytes:
    """The bytes of a frame. Raises FrameError when it is too long."""
    body = json.dumps(frame, separators=(",", ":"), allow_nan=False).encode()
    if len(body) > MAX_FRAME_BYTES:
        raise FrameError(f"frame of {len(body)} bytes, expected at most {MAX_FRAME_BYTES}")
    return _LENGTH.pack(len(body)) + body


async def read(reader: asyncio.StreamReader) -> Frame | None:
    """The next frame, None at the end of the stream. Raises FrameError."""
    try:
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        if length > MAX_FRAME_BYTES:
            raise FrameError(f"frame length {length}, expected at most {MAX_FRAME_BYTES}")
        body = await reader.readexactly(length)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    try:
        frame = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise FrameError(f"frame is not JSON: {error}") from None
    if not isinstance(frame, dict) or not isinstance(frame.get("kind"), str):
        raise FrameError("frame is not an object with a kind")
    return frame
