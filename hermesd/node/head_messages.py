"""What the node says when it attaches to its head, and where on this node the head's messages go.

Nothing here waits. A message that makes no sense is logged and ignored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

from hermesd import __version__, wire
from hermesd.codec import Malformed
from hermesd.core.commands import Release
from hermesd.core.events import NodeJoined, ParkLost, RunCompleted, RunFailed, RunSuspended
from hermesd.core.node.messages import Attached, LeaseExtended, OutcomeAcknowledged
from hermesd.logs import get_logger
from hermesd.node.clock import boot_id
from hermesd.node.machine.availability import Availability
from hermesd.node.outbox import Outbox
from hermesd.node.runner.context import NodeContext
from hermesd.node.runner.departure import Departure
from hermesd.node.runner.trial_runners import TrialRunners
from hermesd.node.storage.checkpoints import disk_fact, furthest
from hermesd.node.storage.client_files import FileRequests
from hermesd.node.storage.transfer_service import TransferService
from hermesd.node.storage.trial_folder import TrialFolders
from hermesd.pb.hermes.v1 import node_pb2 as pb

log = get_logger()


@dataclass(frozen=True)
class HeadMessages:
    """The conversation with the head."""

    context: NodeContext
    runners: TrialRunners
    departure: Departure
    availability: Availability
    transfer_service: TransferService
    file_requests: FileRequests
    #: Tells this machine's disk from others.
    disk: str

    def hello(self) -> pb.AttachRequest:
        """A new stream begins: who we are, what we have, what runs here."""
        self.file_requests.drop()
        context, config, provisions = self.context, self.context.config, self.context.provisions
        hello = wire.hello_to_proto(
            NodeJoined(
                config.name,
                boot_id(),
                tuple(context.rack.devices.values()),
                context.driver.machine.live(),
                (
                    *context.rack.facts(),
                    *provisions.facts,
                    disk_fact(config.state_dir),
                    *self.availability.facts,
                ),
                __version__,
                self.availability.yields,
                self.disk,
                self.availability.parting,
                provisions.shared_name,
                parked_memory_bytes=config.parked_memory_bytes,
                runs_as_itself=not provisions.accounts.switch,
                image_features=provisions.images.features,
            )
        )
        context.driver.say(Attached())
        hello.hello.transfer_address = self.transfer_service.address
        hello.hello.transfer_key = self.transfer_service.key
        return hello

    def hear(self, response: pb.AttachResponse) -> None:
        """One message of the head, and what goes with it."""
        context, driver = self.context, self.context.driver
        if response.acknowledged_sequence:
            self._acknowledged(response.acknowledged_sequence)
        if response.HasField("lease"):
            lease = response.lease
            self.departure.hear(lease)
            driver.say(LeaseExtended(lease.sent_boottime_seconds + lease.lease_seconds))
        match response.WhichOneof("message"):
            case "welcome":
                driver.lease_grace = response.welcome.lease_grace_seconds
                log.info("attached", head=context.config.head)
                context.requirements.forget()
                context.tasks.create_task(tell_holdings(context.disk.folders, driver.outbox))
            case "going_away":
                log.info("the head is going away", reason=response.going_away.reason)
            case "forget":
                for trial in response.forget.trials:
                    driver.say(Release(trial, context.config.name, forget=True))
            case "send_file":
                self.file_requests.take(response.send_file)
            case _:
                self._ordered(response)

    def _ordered(self, response: pb.AttachResponse) -> None:
        try:
            order = wire.command_from_proto(response, self.context.config.name)
        except Malformed as error:
            log.error("the head makes no sense", error=str(error))
            return
        if order is not None:
            self.context.driver.say(order)

    def _acknowledged(self, sequence: int) -> None:
        """The head has everything up to this number safe."""
        driver, settled = self.context.driver, []
        for entry in driver.outbox.acknowledge(sequence):
            match entry.event:
                case RunSuspended(tier=tier) if tier.in_process:
                    continue
                case RunSuspended(run) | RunCompleted(run) | RunFailed(run) | ParkLost(run):
                    driver.say(OutcomeAcknowledged(run))
                    settled.append(run.trial)
                case _:
                    continue
        self.runners.acknowledged(sequence)
        for trial in settled:
            if driver.machine.forgot(trial):
                self.runners.settle(trial)


# What this node has files of, said to the head after each Welcome, so that nothing is left over.
#
# A word to forget a trial is lost if the stream breaks just then; the head says it again for what
# it hears of here. A head whose state is an older copy sees here what it has lost.


_PIECE = 500


async def tell_holdings(folders: TrialFolders, outbox: Outbox) -> None:
    """Say all of it, in pieces that give way to everything else."""
    try:
        held = await asyncio.to_thread(lambda: list(_held(folders)))
    except OSError as error:
        log.warning("not said what is held", error=str(error))
        return
    for at in range(0, len(held), _PIECE):
        piece = pb.Holdings(trials=held[at : at + _PIECE])
        await outbox.offer(pb.AttachRequest(holdings=piece))


def _held(folders: TrialFolders) -> Iterator[pb.Holding]:
    for folder in folders.all():
        step, attempt = 0, 0
        try:
            step, attempt = folder.as_owner(furthest, folder.checkpoints)
        except PermissionError:
            pass  # its program has closed its folder; the others are told
        except OSError as error:
            log.warning(
                "not said how far its checkpoints are", trial=folder.trial, error=str(error)
            )
        yield pb.Holding(
            trial=folder.trial,
            identity=folder.identity,
            checkpoint_step=step,
            checkpoint_attempt=attempt,
        )
