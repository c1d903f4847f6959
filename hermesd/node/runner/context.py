"""What every trainer of a node works with: the node's directories, devices and ears."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hermesd.core.model import Checkpoint, Device, DeviceId, NodeId, Time, TrialId, Venv
from hermesd.core.node.messages import CheckpointSource, Input
from hermesd.node.machine.cgroups import Cgroups
from hermesd.node.machine.cpu_quotas import CpuQuotas
from hermesd.node.runner.zygotes import Zygotes


@dataclass(frozen=True, slots=True)
class NodeContext:
    """The surroundings of a trainer.

    `say` gives the machine an input and returns the number of the last message for the head;
    `room` waits while too much is unacknowledged; `release` waits for the devices of a run that
    ended.
    """

    node: NodeId
    tasks: asyncio.TaskGroup
    shim: Path
    cgroups: Cgroups
    quotas: CpuQuotas
    zygotes: Zygotes
    environ: Mapping[str, str]
    devices: Mapping[DeviceId, Device]
    # The interpreter of a virtual environment, which is made if it is not there.
    interpreter: Callable[[Venv], Awaitable[str]]
    # Where the conda environment of a name is.
    conda: Callable[[str], Awaitable[Path]]
    snapshot: Callable[[str], Awaitable[Path | None]]
    # Sees a checkpoint of a study in a folder, from its sources if it is not there.
    bring: Callable[[Checkpoint, Sequence[CheckpointSource], Path, str], Awaitable[None]]
    # What is shared of the trial of a study is not wanted any more.
    unshare: Callable[[TrialId, str], None]
    device_environment: Callable[[DeviceId], Mapping[str, str]]
    # What is taken of the memory of devices that have some of their own, in bytes.
    memory_taken: Callable[[Sequence[DeviceId]], Awaitable[int]]
    release: Callable[[tuple[DeviceId, ...], frozenset[int]], Awaitable[None]]
    say: Callable[[Input], int]
    room: Callable[[], Awaitable[None]]
    lease: Callable[[], Time]
    lease_grace: Callable[[], float]
