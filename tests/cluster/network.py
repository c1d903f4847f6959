"""Machines on one switch, as network namespaces: each has a cable, which can be pulled."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

SUBNET = "10.77.0"


class Network:
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
        """Connect a machine; its address."""
        self._machines.append(machine)
        space, address = self._space(machine), f"{SUBNET}.{len(self._machines)}"
        _ip("netns", "add", space)
        self._switch("link", "add", machine, "type", "veth", "peer", "name", "eth0", "netns", space)
        self._switch("link", "set", machine, "master", "switch", "up")
        _ip("-n", space, "link", "set", "lo", "up")
        _ip("-n", space, "address", "add", f"{address}/24", "dev", "eth0")
        _ip("-n", space, "link", "set", "eth0", "up")
        return address

    def pull(self, machine: str) -> None:
        """Pull the machine's cable."""
        self._switch("link", "set", machine, "down")

    def plug(self, machine: str) -> None:
        """Put it in again."""
        self._switch("link", "set", machine, "up")

    def on(self, machine: str) -> Sequence[str]:
        """What to put before a command for it to run on a machine.

        Not `ip netns exec`, which mounts a /sys without cgroups.
        """
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
def network() -> Iterator[Network]:
    """A network for the length of a block; skips the test where none can be made."""
    if missing := [tool for tool in ("ip", "nsenter") if shutil.which(tool) is None]:
        pytest.skip(f"no {' and no '.join(missing)} here")
    made = Network()
    try:
        try:
            made.lay()
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no network namespaces here: {error.stderr.decode().strip()}")
        yield made
    finally:
        made.remove()


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
