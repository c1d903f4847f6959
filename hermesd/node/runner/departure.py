"""How a node ends, and what happens to its trials and files if its machine is on loan.

The head decides when nothing on a leaving machine is needed any more, and says so with each lease.
The node waits for that, unless its owner wants the machine back at once.
"""

from __future__ import annotations

import asyncio
from typing import assert_never

from hermesd.config.schema import StopsBy
from hermesd.logs import get_logger
from hermesd.node.driver import MachineDriver
from hermesd.node.machine.availability import Availability
from hermesd.node.runner.trial_runners import TrialRunners
from hermesd.pb.hermes.v1 import node_pb2 as pb

LEAVE_SECONDS = 10.0
# What was not given back while there was time will not be now.
PARTING_LEAVE_SECONDS = 2.0
# After SIGTERM. Slurm kills 30 s after it, and what follows takes some seconds.
HURRY_SECONDS = 18.0
LOAN = "its machine is on loan, and goes back"
STOP = "its daemon stops"
_LOOK_SECONDS = 0.2

log = get_logger()


class Departure:
    """The end of a node daemon, in the way that its settings say."""

    def __init__(
        self,
        stops_by: StopsBy,
        availability: Availability,
        driver: MachineDriver,
        runners: TrialRunners,
    ) -> None:
        self._stops_by = stops_by
        self._availability = availability
        self._driver = driver
        self._runners = runners
        # As the head last said: of how many trials something would go with this machine.
        self._left_behind: int | None = None

    def hear(self, lease: pb.Lease) -> None:
        """A lease of the head has come."""
        self._left_behind = lease.left_behind if lease.HasField("left_behind") else None

    async def wait(self, stop: asyncio.Event, soon: asyncio.Event) -> float | None:
        """Until it is time to end: how many seconds trials have to be written down and to end, None
        if they run on."""
        match self._stops_by:
            case "keep":
                await stop.wait()
                return None
            case "end":
                await stop.wait()
                # Before any of its devices is free: the head would give it to the next trial.
                self._availability.go(STOP, for_good=False)
                return LEAVE_SECONDS
            case "part":
                await _first(stop, soon)
                await self._part(stop)
                return PARTING_LEAVE_SECONDS
            case _:
                assert_never(self._stops_by)

    @property
    def _settled(self) -> bool:
        """Whether all that happened here is over, and known to the head."""
        return self._driver.outbox.empty and self._runners.empty

    async def _part(self, stop: asyncio.Event) -> None:
        """Have everything taken elsewhere, in no more than `HURRY_SECONDS` after `stop`."""
        self._availability.go(LOAN, for_good=True)
        loop = asyncio.get_running_loop()
        hurry: float | None = None
        told: int | None = None
        while not (self._left_behind == 0 and self._settled):
            if told != self._left_behind:
                told = self._left_behind
                log.info("parting", left_behind=told)
            if stop.is_set():
                hurry = hurry or loop.time() + HURRY_SECONDS
                if loop.time() >= hurry:
                    log.warning("not everything was taken elsewhere", left_behind=told)
                    return
            await asyncio.sleep(_LOOK_SECONDS)


async def _first(*events: asyncio.Event) -> None:
    """Wait until one of the events is set."""
    async with asyncio.TaskGroup() as tasks:
        waits = [tasks.create_task(event.wait()) for event in events]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
