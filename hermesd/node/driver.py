"""Runs the node's state machine: tells it what happens, and does what it answers.

Every input goes through `say`, and nothing there waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from hermesd.core.model import TrialId
from hermesd.core.node.actions import Action, TellHead
from hermesd.core.node.machine import NodeMachine, NodeTerms
from hermesd.core.node.messages import Input
from hermesd.logs import get_logger
from hermesd.node.clock import boottime
from hermesd.node.outbox import Outbox

# For how long a run may go on after the end of its lease, until a head has said it.
LEASE_GRACE_SECONDS = 120.0

log = get_logger()


class Owner(Protocol):
    """Who carries out the actions that are theirs, and passes over all others."""

    def carry_out(self, action: Action) -> None: ...


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


class MachineDriver:
    """The machine with its clock and its outbox."""

    def __init__(self, terms: NodeTerms) -> None:
        self.machine = NodeMachine(terms)
        self.outbox = Outbox()
        #: They carry out its actions, and are there before its first input.
        self.owners: tuple[Owner, ...] = ()
        #: How many seconds after the end of its lease a run has to stop.
        self.lease_grace = LEASE_GRACE_SECONDS
        self._changed = asyncio.Event()
        self._alarm = Alarm(self._tick)
        self._exceeding: tuple[TrialId, ...] = ()

    def say(self, message: Input) -> int:
        """Give the machine an input and have its answer done; the number of the last message for
        the head by then."""
        self._do(self.machine.handle(message, boottime()))
        return self.outbox.last

    def has_ended(self, trial: TrialId) -> bool:
        """Whether nothing of the trial runs or is parked here."""
        return all(x.condition == "ended" for x in self.machine.live() if x.run.trial == trial)

    def changed(self) -> None:
        """Something is as `comes` may wait for it."""
        self._changed.set()

    async def comes(self, is_there: Callable[[], bool], seconds: float) -> bool:
        """Whether something comes true within some time."""
        try:
            async with asyncio.timeout(seconds):
                while not is_there():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    def stop(self) -> None:
        """Look at the clock no more."""
        self._alarm.set(None)

    def _tick(self) -> None:
        self._do(self.machine.tick(boottime()))

    def _do(self, actions: Sequence[Action]) -> None:
        for action in actions:
            if isinstance(action, TellHead):
                self.outbox.tell(action.event, action.points, action.identity)
            for owner in self.owners:
                owner.carry_out(action)
        self._log_excess()
        self._alarm.set(self.machine.deadline)
        self._changed.set()

    def _log_excess(self) -> None:
        """Say that parked trials have more memory than they are to have, once for the same ones."""
        bytes_over, trials = self.machine.excess
        if bytes_over and trials != self._exceeding:
            why = "they can only be parked, and are kept"
            log.warning("parked trials exceed their memory", by=bytes_over, trials=trials, why=why)
        self._exceeding = trials
