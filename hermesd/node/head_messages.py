"""What the head says, passed on to whom on this node it concerns.

Rule: nothing here waits. What makes no sense is logged and passed over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

import structlog

from hermesd import wire
from hermesd.config.schema import NodeConfig
from hermesd.core.commands import Release
from hermesd.core.events import ParkLost, RunCompleted, RunFailed, RunSuspended
from hermesd.core.model import TrialId
from hermesd.core.node.messages import Input, LeaseExtended, OutcomeAcknowledged
from hermesd.node.machine.requirement_watch import RequirementWatch
from hermesd.node.outbox import Outbox
from hermesd.node.runner.departure import Departure
from hermesd.node.runner.trial_runners import TrialRunners
from hermesd.node.storage.client_files import FileRequests
from hermesd.pb.hermes.v1 import node_pb2 as pb

log = structlog.get_logger()


class HeadMessages:
    """The node's ear. `say` gives its machine an input, `forgot` asks it whether it knows of no run
    of a trial, and `hold` says to the head what lies here.

    `lease_grace` is how many seconds after the end of its lease a run has to stop.
    """

    def __init__(
        self,
        config: NodeConfig,
        tasks: asyncio.TaskGroup,
        outbox: Outbox,
        say: Callable[[Input], int],
        forgot: Callable[[TrialId], bool],
        crew: TrialRunners,
        lookout: RequirementWatch,
        departure: Departure,
        errands: FileRequests,
        hold: Callable[[], Coroutine[None, None, None]],
    ) -> None:
        self.lease_grace = 120.0
        self._config = config
        self._tasks = tasks
        self._outbox = outbox
        self._say = say
        self._forgot = forgot
        self._crew = crew
        self._lookout = lookout
        self._departure = departure
        self._errands = errands
        self._hold = hold

    def hear(self, response: pb.AttachResponse) -> None:
        """One message of the head, and what goes with it."""
        if response.acknowledged_sequence:
            self._acknowledged(response.acknowledged_sequence)
        if response.HasField("lease"):
            lease = response.lease
            self._departure.hear(lease)
            self._say(LeaseExtended(lease.sent_boottime_seconds + lease.lease_seconds))
        match response.WhichOneof("message"):
            case "welcome":
                self.lease_grace = response.welcome.lease_grace_seconds
                log.info("attached", head=self._config.head)
                self._lookout.forget()
                self._tasks.create_task(self._hold())
            case "going_away":
                log.info("the head is going away", reason=response.going_away.reason)
            case "forget":
                for trial in response.forget.trials:
                    self._say(Release(trial, self._config.name, forget=True))
            case "send_file":
                self._errands.take(response.send_file)
            case _:
                self._ordered(response)

    def _ordered(self, response: pb.AttachResponse) -> None:
        try:
            order = wire.command_from_proto(response, self._config.name)
        except wire.Malformed as error:
            log.error("the head makes no sense", error=str(error))
            return
        if order is not None:
            self._say(order)

    def _acknowledged(self, sequence: int) -> None:
        """The head has everything up to this number safe."""
        settled = []
        for entry in self._outbox.acknowledge(sequence):
            match entry.event:
                case RunSuspended(tier=tier) if tier.in_process:
                    continue
                case RunSuspended(run) | RunCompleted(run) | RunFailed(run) | ParkLost(run):
                    self._say(OutcomeAcknowledged(run))
                    settled.append(run.trial)
                case _:
                    continue
        self._crew.acknowledged(sequence)
        for trial in settled:
            if self._forgot(trial):
                self._crew.settle(trial)
