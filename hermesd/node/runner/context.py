"""What all trials of a node share: the owners of its machine, devices, files and names."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hermesd.config.schema import NodeConfig
from hermesd.core.events import DeviceFailed
from hermesd.core.model import DeviceId, NodeId, TrialId
from hermesd.logs import get_logger
from hermesd.node.driver import MachineDriver
from hermesd.node.machine.accounts import Accounts
from hermesd.node.machine.devices.rack import Rack
from hermesd.node.machine.requirement_watch import RequirementWatch
from hermesd.node.provisions import Provisions
from hermesd.node.runner.zygotes import Zygotes
from hermesd.node.storage.disk_budget import DiskBudget
from hermesd.node.storage.fetching import Fetching
from hermesd.node.storage.replicas import Replicas

log = get_logger()


@dataclass(frozen=True, slots=True)
class NodeContext:
    """The surroundings of a trial's runner."""

    config: NodeConfig
    tasks: asyncio.TaskGroup
    driver: MachineDriver
    rack: Rack
    provisions: Provisions
    zygotes: Zygotes
    requirements: RequirementWatch
    disk: DiskBudget
    fetching: Fetching
    replicas: Replicas
    #: What clean environments are taken from.
    environ: Mapping[str, str]

    @property
    def accounts(self) -> Accounts:
        return self.provisions.accounts

    @property
    def node(self) -> NodeId:
        return self.config.name

    @property
    def shim(self) -> Path:
        """Where a trial's host imports trainer_shim from."""
        return self.config.state_dir / "shim"

    async def release(self, devices: Sequence[DeviceId], pids: frozenset[int]) -> None:
        """Wait for the devices of a run that has ended, and tell of those that are not free."""
        for device, reason in (await self.rack.released(devices, pids)).items():
            log.error("a device is not released", device=device, reason=reason)
            self.driver.outbox.tell(DeviceFailed(device, reason))

    def unshare(self, trial: TrialId, identity: str) -> None:
        """What is shared of the trial of a study is not wanted any more."""
        if shared := self.provisions.shared:
            self.tasks.create_task(asyncio.to_thread(shared.forget, trial, identity))
