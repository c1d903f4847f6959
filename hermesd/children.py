"""Ending a child process, whoever else it has left its pipes to."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress


async def end(child: asyncio.subprocess.Process) -> None:
    """Kill a child that leads a session, and what it has started there, unless it is over; wait for
    it alone: asyncio would also wait for all that have its pipes open."""
    if child.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
    transport: asyncio.SubprocessTransport = child._transport  # type: ignore[attr-defined]
    for number in range(3):
        pipe = transport.get_pipe_transport(number)
        if isinstance(pipe, asyncio.WriteTransport) and pipe.get_write_buffer_size():
            pipe.abort()  # closed, it would wait for somebody to read what is left
        elif pipe is not None:
            pipe.close()
    await child.wait()
