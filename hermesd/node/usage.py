"""How busy the node's devices are, told to the head now and then."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import structlog

from hermesd.core.model import DeviceId
from hermesd.node.driver import MachineDriver
from hermesd.node.head_link import Link
from hermesd.node.machine.devices import DeviceUse
from hermesd.node.machine.devices.rack import Rack
from hermesd.node.storage.disk_budget import DiskBudget
from hermesd.pb.hermes.v1 import node_pb2 as pb
from hermesd.pb.hermes.v1 import types_pb2

USAGE_SECONDS = 5.0

log = structlog.get_logger()


async def tell_usage(rack: Rack, link: Link, driver: MachineDriver, disk: DiskBudget) -> None:
    """Measure for as long as this task lives. For devices without memory of their own it is what
    the run there said that it takes."""
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
                        memory_bytes=use.memory_bytes or driver.machine.memory_on(name),
                    ),
                )
                for name, use in uses.items()
            ]
            told = pb.UsageReport(devices=devices, warnings=rack.warnings(), disk=disk.usage())
            driver.outbox.urge(pb.AttachRequest(usage=told))
        await asyncio.sleep(USAGE_SECONDS)
