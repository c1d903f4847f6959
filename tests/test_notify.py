"""Whoever started a daemon is told that it is ready, and that it still runs."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermesd.notify import keep_watchdog_fed, notify


@pytest.fixture
def listener(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[socket.socket]:
    address = tmp_path_factory.mktemp("n") / "s"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
        bound.bind(str(address))
        bound.settimeout(10)
        monkeypatch.setenv("NOTIFY_SOCKET", str(address))
        yield bound


def test_readiness_is_one_datagram(listener: socket.socket) -> None:
    notify("READY=1")
    assert listener.recv(100) == b"READY=1"


def test_an_abstract_address_is_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"hermes-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
        bound.bind(f"\0{name}")
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}")
        notify("STOPPING=1")
        assert bound.recv(100) == b"STOPPING=1"


def test_nobody_listening_is_no_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    notify("READY=1")
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "gone"))
    notify("READY=1")


async def test_the_watchdog_is_fed_from_the_event_loop(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "20000")
    feeding = asyncio.get_running_loop().create_task(keep_watchdog_fed())
    for _ in range(3):
        assert await asyncio.to_thread(listener.recv, 100) == b"WATCHDOG=1"
    feeding.cancel()


async def test_no_watchdog_or_anothers_is_not_fed(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WATCHDOG_USEC", raising=False)
    await keep_watchdog_fed()
    monkeypatch.setenv("WATCHDOG_USEC", "1000")
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid() + 1))
    await keep_watchdog_fed()
    listener.setblocking(False)
    with pytest.raises(BlockingIOError):
        listener.recv(100)
