"""What strikes a pool: each kind of fault in its own time, at a victim that chance chooses."""

from __future__ import annotations

import math
from collections.abc import Callable

from hermesd.core.events import (
    Cancelled,
    Event,
    NodeDrained,
    NodeLost,
    NodeUndrained,
    Paused,
    Unpaused,
)
from hermesd.core.model import NodeId
from tests.sim.cluster.host import SimulatedHost
from tests.sim.cluster.world import World

# After a death: the head has missed some heartbeats by then, its lease is not out.
TELLING_SECONDS = 10.0


class Storm:
    """Strikes a world for as long as its faults are on."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._agenda = world.agenda
        self._chance = world.chance
        self._requests = 0
        for kind, deed in self._deeds().items():
            self._plan(kind, deed)

    def _deeds(self) -> dict[str, Callable[[], str]]:
        return {
            "head_crash": self._crash_head,
            "daemon_crash": self._crash_daemon,
            "host_crash": self._crash_host,
            "program_crash": self._crash_program,
            "stall": self._stall,
            "reboot": self._reboot,
            "death": self._end_a_node,
            "wipe": self._wipe,
            "cut": self._cut,
            "partition": self._part,
            "corruption": self._corrupt,
            "person": self._person,
            "operator": self._operator,
        }

    def _plan(self, kind: str, deed: Callable[[], str]) -> None:
        """The next fault of a kind, and the one after it then."""
        mean = getattr(self._chance.faults, kind)
        if mean == math.inf:
            return

        def strike() -> None:
            if getattr(self._chance.faults, kind) < math.inf:
                self._world.history.append((self._agenda.now, f"{kind}: {deed()}"))
                self._plan(kind, deed)

        self._agenda.after(self._chance.random.expovariate(1 / mean), strike)

    def _crash_head(self) -> str:
        if self._world.head is None:
            return "is down"
        self._world.crash_head(written=self._chance.happens(0.5))
        down = self._chance.random.choice([1.0, 5.0, 2 * self._world.lease.silence_seconds])
        self._agenda.after(down, self._world.start_head)
        return f"for {down:g} s"

    def _crash_daemon(self) -> str:
        node = self._chance.random.choice(list(self._world.daemons))
        self._down(node, self._chance.random.uniform(0.5, 20.0))
        return node

    def _down(self, node: NodeId, seconds: float) -> None:
        if self._world.daemons[node].alive:
            self._world.daemons[node].die()
            self._agenda.after(seconds, lambda: self._world.start_daemon(node))

    def _reboot(self) -> str:
        node = self._chance.random.choice(list(self._world.daemons))
        self._down(node, self._chance.random.uniform(5.0, 60.0))
        self._world.boxes[node].reboot()
        return node

    def _end_a_node(self) -> str:
        """For good, with its disk; one of each pool is left. A person may say so before the head
        finds out."""
        spare = self._world.spare
        if not spare:
            return "there is none"
        node = self._chance.random.choice(spare)
        self._world.lose(node)
        if self._chance.happens(0.5):
            self._requests += 1
            lost = NodeLost(node, f"r{self._requests}")
            self._agenda.after(TELLING_SECONDS, lambda: self._world.ask(lost, lost.request_id))
        return node

    def _wipe(self) -> str:
        """A node comes back with an empty disk."""
        node = self._chance.random.choice(list(self._world.daemons))
        self._down(node, self._chance.random.uniform(5.0, 60.0))
        self._world.boxes[node].wipe()
        return node

    def _some_host(self) -> SimulatedHost | None:
        hosts = [host for box in self._world.boxes.values() for host in box.hosts.values()]
        return self._chance.random.choice(hosts) if hosts else None

    def _crash_host(self) -> str:
        host = self._some_host()
        if host is None:
            return "there is none"
        folder = host.folder
        self._world.check_loss(host)
        self._world.boxes[folder.node].dismiss(folder.trial)
        daemon = self._world.daemons[folder.node]
        if daemon.alive:
            daemon.trainers.host_died(folder.trial)
        return f"{host.run}, {host.phase}"

    def _crash_program(self) -> str:
        host = self._some_host()
        if host is None:
            return "there is none"
        self._world.check_loss(host)
        host.crash()
        return str(host.run)

    def _stall(self) -> str:
        host = self._some_host()
        if host is None:
            return "there is none"
        host.stall(self._chance.random.uniform(1.0, 40.0))
        return str(host.run)

    def _cut(self) -> str:
        streams = [daemon.stream for daemon in self._world.daemons.values() if daemon.stream]
        if not streams:
            return "there is none"
        stream = self._chance.random.choice(streams)
        stream.cut()
        return stream.node

    def _part(self) -> str:
        node = self._chance.random.choice(list(self._world.boxes))
        self._world.reachable[node] = False
        stream = self._world.daemons[node].stream
        if stream is not None:
            stream.cut()
        seconds = self._chance.random.uniform(5.0, 2 * self._world.lease.silence_seconds)
        self._agenda.after(seconds, lambda: self._world.reachable.update({node: True}))
        return f"{node} for {seconds:.0f} s"

    def _corrupt(self) -> str:
        folders = [
            f for box in self._world.boxes.values() for f in box.folders.values() if f.newest
        ]
        if not folders:
            return "there is none"
        folder = self._chance.random.choice(folders)
        folder.damage()
        return folder.trial

    def _person(self) -> str:
        trial = self._chance.random.choice(list(self._world.work))
        self._requests += 1
        name = f"r{self._requests}"
        event: Event = Paused((trial,), name)
        if self._chance.happens(0.5):
            event = Unpaused((trial,), name)
        elif self._chance.happens(0.15):
            event = Cancelled((trial,), name)
        self._world.ask(event, name)
        return f"{type(event).__name__} {trial}"

    def _operator(self) -> str:
        node = self._chance.random.choice(list(self._world.boxes))
        if self._world.pools and self._chance.happens(0.3):
            pools = self._world.pools if self._chance.happens(0.5) else ()
            self._world.configure(pools)
            return f"pools {[pool.name for pool in pools]}"
        self._requests += 1
        name = f"r{self._requests}"
        kind = NodeDrained if self._chance.happens(0.4) else NodeUndrained
        self._world.ask(kind(node, name), name)
        return f"{kind.__name__} {node}"
