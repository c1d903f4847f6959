"""What outlives a node daemon: its machine with devices, hosts and folders."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from hermesd.core.model import Checkpoint, Device, Fidelity, NodeId, TrialId
from hermesd.core.node_machine import NodeTerms
from hermesd.core.node_messages import Source
from hermesd.sim.agenda import Agenda
from hermesd.sim.curves import Recording
from hermesd.sim.disk import Folder
from hermesd.sim.faults import Chance
from hermesd.sim.ground import Ground
from hermesd.sim.host import Host


@dataclass(frozen=True, slots=True)
class Work:
    """What a trial's program will do, should it ever run."""

    recording: Recording
    fidelity: Fidelity


@dataclass(frozen=True, slots=True)
class Site:
    """What all machines of a pool share."""

    agenda: Agenda
    chance: Chance
    ground: Ground
    work: Mapping[TrialId, Work]
    # What a node gives that can be reached: None if it has not got it; None of any other node.
    giver: Callable[[NodeId], Callable[[Checkpoint], Checkpoint | None] | None]

    def fetch(self, checkpoint: Checkpoint, sources: Iterable[Source], folder: Folder) -> bool:
        """See the checkpoint in a folder, from its sources if it is not there; whether it is."""
        if checkpoint.id in folder.checkpoints:
            return True
        for source in sources:
            give = self.giver(source.node) if source.address else None
            found = give(checkpoint) if give else None
            if found is not None:
                folder.checkpoints[found.id] = replace(found, nodes=(folder.node,))
                return True
        return False


@dataclass(slots=True)
class Box:
    """One machine. `grace_seconds` is what a host has left when its lease is out."""

    id: NodeId
    devices: tuple[Device, ...]
    terms: NodeTerms
    grace_seconds: float
    boot: int = 1
    disk: int = 1
    folders: dict[TrialId, Folder] = field(default_factory=dict)
    hosts: dict[TrialId, Host] = field(default_factory=dict)

    def folder(self, trial: TrialId) -> Folder:
        return self.folders.setdefault(trial, Folder(self.id, trial))

    def dismiss(self, trial: TrialId) -> bool:
        """End a trial's host and all that it has; False if there is none."""
        host = self.hosts.pop(trial, None)
        if host is not None:
            host.die()
        return host is not None

    def wipe(self) -> None:
        """Every process is gone, and so is the disk; there is a new one."""
        self.reboot()
        self.folders.clear()
        self.disk += 1

    def reboot(self) -> None:
        """Every process is gone; what is on the disk stays."""
        for trial in list(self.hosts):
            self.dismiss(trial)
        self.boot += 1
