"""systemd's readiness protocol: a datagram or two, to whoever started us and wants to know."""

from __future__ import annotations

import asyncio
import os
import socket


def notify(message: str) -> None:
    """Send a state such as `READY=1`; nothing happens if nobody asked for it."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address[0] == "@":
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        try:
            sock.sendto(message.encode(), address)
        except OSError:
            # Whoever asked is gone; that is no reason to fail.
            return


async def keep_watchdog_fed() -> None:
    """Say from the event loop, for ever, that it runs: at half of systemd's WatchdogSec."""
    microseconds = int(os.environ.get("WATCHDOG_USEC") or 0)
    if not microseconds or os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return
    while True:
        notify("WATCHDOG=1")
        await asyncio.sleep(microseconds / 2e6)
