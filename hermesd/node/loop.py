"""The node's one loop: its machine, fed by the head's stream and by the hosts of live trials.

Rule: every input goes through `_say`, which carries out what the machine answers; nothing there
waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

import structlog

from hermesd import __version__, wire
from hermesd.config.schema import NodeConfig
from hermesd.config.slots import usable_cores
from hermesd.core.events import DeviceFailed, NodeJoined
from hermesd.core.model import DeviceId, TrialId
from hermesd.core.node.actions import (
    Action,
    DeleteCheckpoints,
    DeleteTrialFiles,
    FetchCheckpoint,
    TellHead,
    WatchRequirements,
)
from hermesd.core.node.machine import NodeMachine, NodeTerms
from hermesd.core.node.messages import Attached, EvacuateNode, Input, Series
from hermesd.expecting import StateAway, StateRefused
from hermesd.node.clock import boot_id, boottime
from hermesd.node.head_link import Link, NameTaken
from hermesd.node.head_messages import HeadMessages
from hermesd.node.machine.availability import Availability
from hermesd.node.machine.devices.rack import Rack
from hermesd.node.machine.identity import disk_of
from hermesd.node.machine.requirement_watch import RequirementWatch
from hermesd.node.outbox import Outbox
from hermesd.node.provisions import Provisions
from hermesd.node.runner.context import NodeContext
from hermesd.node.runner.departure import Departure
from hermesd.node.runner.trial_runners import TrialRunners
from hermesd.node.runner.zygotes import Zygotes
from hermesd.node.sanitize import message_of
from hermesd.node.storage.checkpoints import disk_fact
from hermesd.node.storage.client_files import FileRequests
from hermesd.node.storage.disk_budget import DiskBudget
from hermesd.node.storage.fetching import Fetching
from hermesd.node.storage.giving import Giving
from hermesd.node.storage.holdings import tell_holdings
from hermesd.node.storage.replicas import Replicas
from hermesd.node.storage.trial_folder import TrialFolder
from hermesd.node.usage import Excess, tell_usage
from hermesd.pb.hermes.v1 import node_pb2 as pb

# --- One call at a time that may be put off: when the node's machine is to look at the clock
# again.


class Alarm:
    """Calls `ring` once, at the moment that was set last."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._timer: asyncio.TimerHandle | None = None

    def set(self, due: float | None) -> None:
        """Ring at `due`, in seconds of the clock since boot, and not before; never at None."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(0.0, due - boottime()), self._ring)


ACKNOWLEDGE_SECONDS = 2.0

log = structlog.get_logger()


class _Stopped(Exception):
    """The daemon was asked to stop: ends every task of it."""


class NodeLoop:
    """One node. It must hold its state directory alone."""

    def __init__(
        self, config: NodeConfig, environ: Mapping[str, str], rack: Rack, given: Provisions
    ) -> None:
        self._config = config
        self._environ = environ
        self._rack = rack
        self._given = given
        self._outbox = Outbox()
        self._link = Link(
            config, self._outbox, self._hello, lambda said: self._listening.hear(said)
        )
        self._shelf = DiskBudget(
            config.state_dir, config.runtime_path, config.disk_budget_bytes, self._link.blob
        )
        self._zygotes = Zygotes(config.runtime_path, config.state_dir / "shim")
        beside = rack.beside(usable_cores())
        self._machine = NodeMachine(NodeTerms(rack.cheapest, config.parked_memory_bytes, beside))
        self._giving = Giving(self._folder, lambda *name: self._replicas.doubt(*name), given.shared)
        self._manners = Availability(config, rack, self._tell)
        self._departure = Departure(
            config.stops_by, self._manners, lambda: self._outbox.empty and self._crew.empty
        )
        self._disk = disk_of(config.state_dir)
        self._lookout = RequirementWatch(
            config.name, config.state_dir / "venvs", environ, self._tell
        )
        self._fetching = Fetching(config.membership, given.shared)
        self._excess = Excess()
        self._changed = asyncio.Event()
        self._alarm = Alarm(self._tick)

    async def run(
        self, stop: asyncio.Event, ready: Callable[[], None], soon: asyncio.Event
    ) -> None:
        """Serve until `stop` is set, or `soon` if the node parts; `ready` is called once what was
        running is taken over. Raises NameTaken, StateRefused, StateAway."""
        taken: list[BaseException] = []
        try:
            await self._serve(stop, ready, soon)
        except* _Stopped:
            log.info("stopped", node=self._config.name)
        except* (NameTaken, StateRefused, StateAway) as group:
            taken += group.exceptions
        finally:
            self._alarm.set(None)
            await self._giving.stop()
            await self._zygotes.close()
            await self._link.close()
        for error in taken:
            raise error

    async def _serve(
        self, stop: asyncio.Event, ready: Callable[[], None], soon: asyncio.Event
    ) -> None:
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            shelf, sockets = self._shelf, self._config.runtime_path
            self._crew = TrialRunners(
                self._make_site(tasks), shelf.trials, sockets, self._changed.set
            )
            self._replicas = Replicas(
                self._config.name, tasks, self._fetching, shelf, self._folder,
                self._machine.forgot, self._tell, self._given.shared,
            )  # fmt: skip
            self._errands = FileRequests(tasks, self._outbox, self._folder, self._ended)
            self._listening = HeadMessages(
                self._config, tasks, self._outbox, self._say, self._machine.forgot,
                self._crew, self._lookout, self._departure, self._errands,
                lambda: tell_holdings(shelf.trials, sockets, self._outbox),
            )  # fmt: skip
            await self._giving.start(self._config)
            await self._crew.adopt()
            self._given.sweep(self._crew.cgroups)
            # Twice: who is on a GPU is believed when seen again.
            for _ in range(2):
                await self._manners.look()
            tasks.create_task(self._manners.keep())
            tasks.create_task(self._link.run())
            tasks.create_task(self._lookout.run())
            tasks.create_task(
                tell_usage(
                    self._rack, self._link, self._outbox, self._machine.memory_on, shelf.usage
                )
            )
            tasks.create_task(shelf.measure())
            ready()
            if (seconds := await self._departure.wait(stop, soon)) is not None:
                await self._leave(seconds)
            await self._link.part("the node daemon stops", self._manners.parting)
            raise _Stopped

    def _make_site(self, tasks: asyncio.TaskGroup) -> NodeContext:
        return NodeContext(
            node=self._config.name,
            tasks=tasks,
            shim=self._config.state_dir / "shim",
            cgroups=self._given.cgroups,
            quotas=self._given.quotas,
            zygotes=self._zygotes,
            environ=self._environ,
            snapshot=self._shelf.snapshot,
            interpreter=self._lookout.venvs.interpreter,
            conda=self._lookout.condas.prefix,
            bring=self._fetching.bring,
            unshare=self._unshare,
            devices=self._rack.devices,
            device_environment=self._rack.environment,
            memory_taken=self._rack.memory_taken,
            release=self._release,
            say=self._say,
            room=self._outbox.room,
            lease=lambda: self._machine.lease,
            lease_grace=lambda: self._listening.lease_grace,
        )

    # -- the machine -----------------------------------------------------------------------------

    def _say(self, message: Input) -> int:
        """Give the machine an input and do what it says; the number of the last message since."""
        self._do(self._machine.handle(message, boottime()))
        return self._outbox.last

    def _tick(self) -> None:
        self._do(self._machine.tick(boottime()))

    def _do(self, actions: Sequence[Action]) -> None:
        for action in actions:
            self._carry_out(action)
        self._excess.look(*self._machine.excess)
        self._alarm.set(self._machine.deadline)
        self._changed.set()

    def _carry_out(self, action: Action) -> None:
        match action:
            case TellHead(event, points, identity):
                self._tell(event, points, identity)
            case WatchRequirements():
                self._lookout.watch(action)
            case FetchCheckpoint() | DeleteCheckpoints():
                self._replicas.carry_out(action)
            case _:
                if isinstance(action, DeleteTrialFiles):
                    self._replicas.give_up(action.trial)
                self._crew.carry_out(action)

    def _tell(
        self, event: wire.NodeEvent, points: Sequence[Series] = (), identity: str = ""
    ) -> None:
        """Say something to the head, sooner or later."""
        message = message_of(event, points)
        if message is not None:
            message.identity = identity
            self._outbox.put(event, message)

    async def _leave(self, seconds: float) -> None:
        """Write every trial down and end it, as far as that can be done in time."""
        self._say(EvacuateNode(seconds))
        ended = await self._comes(
            lambda: all(live.condition == "ended" for live in self._machine.live()),
            2 * seconds,
        )
        if not ended:
            log.warning("some trials did not end in time")
        # What the head does not acknowledge now it is told by the next daemon.
        await self._comes(
            lambda: self._crew.empty and not self._machine.live(), ACKNOWLEDGE_SECONDS
        )
        await self._crew.dismiss()
        self._given.sweep()

    async def _comes(self, is_there: Callable[[], bool], seconds: float) -> bool:
        """Whether something comes true within some time."""
        try:
            async with asyncio.timeout(seconds):
                while not is_there():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    # -- the head --------------------------------------------------------------------------------

    def _hello(self) -> pb.AttachRequest:
        """A new stream begins: who we are, what we have, what runs here."""
        self._errands.drop()
        hello = wire.hello_to_proto(
            NodeJoined(
                self._config.name,
                boot_id(),
                tuple(self._rack.devices.values()),
                self._machine.live(),
                (
                    *self._rack.facts(),
                    *self._given.facts,
                    disk_fact(self._config.state_dir),
                    *self._manners.facts,
                ),
                __version__,
                self._manners.yields,
                self._disk,
                self._manners.parting,
                self._given.shared_name,
                parked_memory_bytes=self._config.parked_memory_bytes,
            )
        )
        self._say(Attached())
        hello.hello.transfer_address = self._giving.address
        hello.hello.transfer_key = self._giving.key
        return hello

    # -- devices, files --------------------------------------------------------------------

    async def _release(self, devices: tuple[DeviceId, ...], pids: frozenset[int]) -> None:
        for device, reason in (await self._rack.released(devices, pids)).items():
            log.error("a device is not released", device=device, reason=reason)
            self._tell(DeviceFailed(device, reason))

    def _unshare(self, trial: TrialId, identity: str) -> None:
        if shared := self._given.shared:
            self._tasks.create_task(asyncio.to_thread(shared.forget, trial, identity))

    def _folder(self, trial: TrialId) -> TrialFolder:
        """Where a trial's files are. Raises BadTrial."""
        return self._crew.folder(trial)

    def _ended(self, trial: TrialId) -> bool:
        """Whether nothing of the trial runs or is parked here."""
        return all(x.condition == "ended" for x in self._machine.live() if x.run.trial == trial)
