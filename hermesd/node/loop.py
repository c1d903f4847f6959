"""The node daemon, put together: its state machine, what carries out the actions, and its head."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack

from hermesd.config.schema import NodeConfig
from hermesd.config.slots import usable_cores
from hermesd.core.model import DeviceId
from hermesd.core.node.machine import NodeTerms
from hermesd.core.node.messages import EvacuateNode
from hermesd.expecting import StateAway, StateRefused
from hermesd.logs import get_logger
from hermesd.node.driver import MachineDriver
from hermesd.node.head_link import Link, NameTaken
from hermesd.node.head_messages import HeadMessages
from hermesd.node.machine.availability import Availability
from hermesd.node.machine.devices import DeviceUse
from hermesd.node.machine.devices.rack import Rack
from hermesd.node.machine.identity import disk_of
from hermesd.node.machine.requirement_watch import RequirementWatch
from hermesd.node.provisions import Provisions
from hermesd.node.runner.context import NodeContext
from hermesd.node.runner.departure import Departure
from hermesd.node.runner.trial_runners import TrialRunners
from hermesd.node.runner.zygotes import Zygotes
from hermesd.node.storage.client_files import FileRequests
from hermesd.node.storage.disk_budget import DiskBudget
from hermesd.node.storage.fetching import Fetching
from hermesd.node.storage.gone_users import keep_removing
from hermesd.node.storage.replicas import Replicas
from hermesd.node.storage.transfer_service import TransferService
from hermesd.pb.hermes.v1 import node_pb2 as pb
from hermesd.pb.hermes.v1 import types_pb2

ACKNOWLEDGE_SECONDS = 2.0

log = get_logger()


# How busy the devices are.


USAGE_SECONDS = 5.0


async def tell_usage(
    rack: Rack, link: Link, driver: MachineDriver, disk: DiskBudget, runners: TrialRunners
) -> None:
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
            told = pb.UsageReport(
                devices=devices,
                warnings=rack.warnings(),
                disk=disk.usage(),
                processes=[
                    pb.TrialProcesses(trial=trial, pids=pids)
                    for trial, pids in runners.pids().items()
                ],
            )
            driver.outbox.put_transient(pb.AttachRequest(usage=told))
        await asyncio.sleep(USAGE_SECONDS)


class _NodeStopped(Exception):
    """The daemon was asked to stop: ends every task of it."""


class NodeLoop:
    """One node. It must hold its state directory alone."""

    def __init__(
        self, config: NodeConfig, environ: Mapping[str, str], rack: Rack, provisions: Provisions
    ) -> None:
        self._config = config
        self._environ = environ
        self._rack = rack
        self._provisions = provisions
        beside = rack.beside(usable_cores())
        self._driver = MachineDriver(NodeTerms(rack.cheapest, config.parked_memory_bytes, beside))
        self._link = Link(config, self._driver.outbox)
        self._disk = DiskBudget(
            config.state_dir, config.runtime_path, config.disk_budget_bytes, self._link.blob,
            is_for_all=provisions.accounts.switch, numbers=provisions.accounts.numbers,
        )  # fmt: skip
        self._zygotes = Zygotes(
            config.runtime_path, config.state_dir / "shim", bool(provisions.images.world)
        )
        self._availability = Availability(config, rack, self._driver.outbox)
        self._requirements = RequirementWatch(
            config.name, config.state_dir / "venvs", environ, self._driver.outbox,
            are_shared=not provisions.accounts.switch,
        )  # fmt: skip

    async def run(
        self, stop: asyncio.Event, ready: Callable[[], None], soon: asyncio.Event
    ) -> None:
        """Serve until `stop` is set, or `soon` if the node parts; `ready` is called once what was
        running is taken over. Raises NameTaken, StateRefused, StateAway."""
        taken: list[BaseException] = []
        try:
            async with AsyncExitStack() as closing:
                closing.push_async_callback(self._link.close)
                closing.push_async_callback(self._zygotes.close)
                async with asyncio.TaskGroup() as tasks:
                    await self._serve(tasks, closing, stop, ready, soon)
        except* _NodeStopped:
            log.info("stopped", node=self._config.name)
        except* (NameTaken, StateRefused, StateAway) as group:
            taken += group.exceptions
        for error in taken:
            raise error

    async def _serve(
        self,
        tasks: asyncio.TaskGroup,
        closing: AsyncExitStack,
        stop: asyncio.Event,
        ready: Callable[[], None],
        soon: asyncio.Event,
    ) -> None:
        config, driver, disk, provisions = self._config, self._driver, self._disk, self._provisions
        fetching = Fetching(config.membership, provisions.shared)
        replicas = Replicas(
            config.name, tasks, driver, fetching, disk, provisions.shared, provisions.accounts
        )
        context = NodeContext(
            config, tasks, driver, self._rack, provisions, self._zygotes, self._requirements, disk,
            fetching, replicas, self._environ,
        )  # fmt: skip
        runners = TrialRunners(context)
        driver.owners = (self._requirements, replicas, runners)
        transfer_service = TransferService(disk.folders, replicas, provisions.shared)
        departure = Departure(config.stops_by, self._availability, driver, runners)
        file_requests = FileRequests(tasks, driver, disk.folders)
        head = HeadMessages(
            context,
            runners,
            departure,
            self._availability,
            transfer_service,
            file_requests,
            disk_of(config.state_dir),
        )
        closing.push_async_callback(transfer_service.stop)
        closing.callback(driver.stop)
        await transfer_service.start(config)
        await runners.adopt()
        provisions.sweep(runners.cgroups)
        # Twice: who is on a GPU is believed when seen again.
        for _ in range(2):
            await self._availability.look()
        tasks.create_task(self._availability.keep())
        tasks.create_task(self._link.run(head))
        tasks.create_task(self._requirements.run())
        tasks.create_task(tell_usage(self._rack, self._link, driver, disk, runners))
        tasks.create_task(disk.measure())
        tasks.create_task(keep_removing(config.state_dir, disk.folders, provisions.accounts))
        ready()
        if (seconds := await departure.wait(stop, soon)) is not None:
            await self._leave(runners, seconds)
        await self._link.part("the node daemon stops", self._availability.parting)
        raise _NodeStopped

    async def _leave(self, runners: TrialRunners, seconds: float) -> None:
        """Write every trial down and end it, as far as that can be done in time."""
        driver = self._driver
        driver.say(EvacuateNode(seconds))
        ended = await driver.comes(
            lambda: all(live.condition == "ended" for live in driver.machine.live()), 2 * seconds
        )
        if not ended:
            log.warning("some trials did not end in time")
        # What the head does not acknowledge now it is told by the next daemon.
        await driver.comes(lambda: runners.empty and not driver.machine.live(), ACKNOWLEDGE_SECONDS)
        await runners.dismiss()
        self._provisions.sweep()
