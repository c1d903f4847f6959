"""How busy the node's devices are, told to the head now and then, and what exceeds its memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import structlog

from hermesd.core.model import DeviceId, TrialId
from hermesd.node.head_link import Link
from hermesd.node.machine.devices import DeviceUse
from hermesd.node.machine.devices.rack import Rack
from hermesd.node.outbox import Outbox
from hermesd.pb.hermes.v1 import node_pb2 as pb
from hermesd.pb.hermes.v1 import types_pb2

USAGE_SECONDS = 5.0

log = structlog.get_logger()


async def tell_usage(
    rack: Rack,
    link: Link,
    outbox: Outbox,
    memory_on: Callable[[DeviceId], int],
    disk: Callable[[], pb.DiskUsage | None],
) -> None:
    """Measure for as long as this task lives.

    `memory_on` is what the run on a device said it takes, for devices without memory of their own;
    `disk` what was found last of the disk.
    """
    while True:
        uses: Mapping[DeviceId, DeviceUse] = {}
        try:
            uses = await rack.use()
        except OSError as error:
            log.warning("nobody knows how busy the devices are", error=str(error))
        if link.attached:
            devices = [
                pb.DeviceUsage(
                    device=name,
                    usage=types_pb2.Usage(
                        utilization=use.utilization,
                        memory_bytes=use.memory_bytes or memory_on(name),
                    ),
                )
                for name, use in uses.items()
            ]
            told = pb.UsageReport(devices=devices, warnings=rack.warnings(), disk=disk())
            outbox.urge(pb.AttachRequest(usage=told))
        await asyncio.sleep(USAGE_SECONDS)


class Excess:
    """Logs that parked trials have more memory than they are to have, once for the same trials."""

    def __init__(self) -> None:
        self._known: tuple[TrialId, ...] = ()

    def look(self, bytes_over: int, trials: tuple[TrialId, ...]) -> None:
        """By how many bytes those that can only be parked exceed it now, and which they are."""
        if bytes_over and trials != self._known:
            why = "they can only be parked, and are kept"
            log.warning("parked trials exceed their memory", by=bytes_over, trials=trials, why=why)
        self._known = trials
