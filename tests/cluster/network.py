"""Machines on one switch, each with a cable that can be pulled.

As root they are network namespaces. Otherwise they are addresses of this machine's loopback, and
each reaches the head by a way of its own that can be cut; from node to node checkpoints go as ever.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Protocol

import pytest

from tests.ways import Way

SUBNET = "10.77.0"
# The head's, for its nodes and for those who redeem a token.
PORTS = (7411, 7412)


class Network(Protocol):
    """The first machine that joins is the head."""

    def join(self, machine: str) -> str:
        """Connect a machine; its address."""
        ...

    def to_head(self, machine: str) -> str:
        """The address by which a machine reaches the head."""
        ...

    def pull(self, machine: str) -> None:
        """Pull the machine's cable."""
        ...

    def plug(self, machine: str) -> None:
        """Put it in again."""
        ...

    def on(self, machine: str) -> Sequence[str]:
        """What to put before a command for it to run on a machine."""
        ...


class Ways:
    """Machines are addresses of the loopback that no other test has: those of this process."""

    def __init__(self, opened: ExitStack) -> None:
        self._opened = opened
        self._subnet = f"127.{os.getpid() >> 8 & 0x7F | 0x80}.{os.getpid() & 0xFF}"
        self._ways: dict[str, list[Way]] = {}

    def join(self, machine: str) -> str:
        address = f"{self._subnet}.{len(self._ways) + 1}"
        head = f"{self._subnet}.1"
        ways = [Way((address, port), (head, port)) for port in PORTS if address != head]
        for way in ways:
            self._opened.enter_context(way.serve())
        self._ways[machine] = ways
        return address

    def to_head(self, machine: str) -> str:
        return f"{self._subnet}.{list(self._ways).index(machine) + 1}"

    def pull(self, machine: str) -> None:
        for way in self._those_of(machine):
            way.pull()

    def plug(self, machine: str) -> None:
        for way in self._those_of(machine):
            way.plug()

    def on(self, machine: str) -> Sequence[str]:
        return ()

    def _those_of(self, machine: str) -> Sequence[Way]:
        """Those to the head are all that there are."""
        return self._ways[machine] or [way for ways in self._ways.values() for way in ways]


class Namespaces:
    """The switch is a namespace with a bridge; a machine's cable is a pair of veth devices."""

    def __init__(self) -> None:
        self._prefix = f"hermes-{os.getpid()}"
        self._machines: list[str] = []

    def lay(self) -> None:
        """Make the switch."""
        _ip("netns", "add", self._space("switch"))
        self._switch("link", "add", "switch", "type", "bridge")
        self._switch("link", "set", "switch", "up")

    def join(self, machine: str) -> str:
        self._machines.append(machine)
        space, address = self._space(machine), f"{SUBNET}.{len(self._machines)}"
        _ip("netns", "add", space)
        self._switch("link", "add", machine, "type", "veth", "peer", "name", "eth0", "netns", space)
        self._switch("link", "set", machine, "master", "switch", "up")
        _ip("-n", space, "link", "set", "lo", "up")
        _ip("-n", space, "address", "add", f"{address}/24", "dev", "eth0")
        _ip("-n", space, "link", "set", "eth0", "up")
        return address

    def to_head(self, machine: str) -> str:
        return f"{SUBNET}.1"

    def pull(self, machine: str) -> None:
        self._switch("link", "set", machine, "down")

    def plug(self, machine: str) -> None:
        self._switch("link", "set", machine, "up")

    def on(self, machine: str) -> Sequence[str]:
        # Not `ip netns exec`, which mounts a /sys without cgroups.
        return ("nsenter", f"--net=/run/netns/{self._space(machine)}")

    def remove(self) -> None:
        """Take everything away; nothing of it must run any more."""
        for name in ("switch", *self._machines):
            subprocess.run(["ip", "netns", "delete", self._space(name)], check=False)

    def _switch(self, *words: str) -> None:
        _ip("-n", self._space("switch"), *words)

    def _space(self, name: str) -> str:
        return f"{self._prefix}-{name}"


@contextmanager
def namespaces() -> Iterator[Network]:
    """A network for the length of a block; skips the test where none can be made."""
    if missing := [tool for tool in ("ip", "nsenter") if shutil.which(tool) is None]:
        pytest.skip(f"no {' and no '.join(missing)} here")
    made = Namespaces()
    try:
        try:
            made.lay()
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no network namespaces here: {error.stderr.decode().strip()}")
        yield made
    finally:
        made.remove()


@contextmanager
def ways() -> Iterator[Network]:
    """The same for everybody."""
    with ExitStack() as opened:
        yield Ways(opened)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
