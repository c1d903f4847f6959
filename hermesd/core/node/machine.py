"""The node's state machine: orders and facts go in; actions, and events for the head, come out.

It is pure, and the daemon and the simulator use the same one. It guarantees that each attempt is
started at most once, that a device has at most one run that is not parked, that every order is
answered by an event, and that nothing is started while the lease is over. `now` is boot time in
seconds.
"""

from __future__ import annotations

import math

from hermesd.core.commands import Kill, Look, Release, Renew, Stop, Suspend, WriteDown
from hermesd.core.events import RunFailed
from hermesd.core.model import DeviceId, LiveRun, RunId, Time, TrialId
from hermesd.core.node import facts, memory, orders
from hermesd.core.node.actions import (
    Action,
    AskReport,
    ExtendLeases,
    KillUnresponsive,
    ResumeRun,
    Spawn,
    WatchRequirements,
)
from hermesd.core.node.messages import (
    Assignment,
    Attached,
    DropCopies,
    EvacuateNode,
    Fetch,
    Input,
    LeaseExtended,
    OutcomeAcknowledged,
    RunFound,
    Save,
    Upcoming,
)
from hermesd.core.node.stay import Condition, Stay
from hermesd.core.node.table import NodeTable, NodeTerms

__all__ = ["NodeMachine", "NodeTerms"]

# Hosts hear of a lease when it has grown by such a part of it at the latest.
LEASE_STEP = 0.1


class NodeMachine:
    """The runs of one node."""

    def __init__(self, terms: NodeTerms) -> None:
        self.table = NodeTable(terms)
        self._forwarded = -math.inf

    def handle(self, message: Input, now: Time) -> list[Action]:
        """What to do about an order of the head or a fact from a host."""
        match message:
            case Assignment():
                orders.launch(self.table, message, now)
            case Renew():
                orders.renew(self.table, message, now)
            case Suspend() | Stop():
                orders.suspend(self.table, message, now)
            case Kill():
                orders.kill(self.table, message, now)
            case WriteDown():
                orders.write_down(self.table, message, now)
            case Release():
                orders.release(self.table, message, now)
            case EvacuateNode():
                orders.leave(self.table, message, now)
            case Fetch() | DropCopies():
                orders.copies(self.table, message)
            case Look(_, paths, venvs, condas, briefly):
                self.table.out.append(WatchRequirements(paths, venvs, condas, briefly))
            case Save(run):
                orders.save(self.table, run, now)
            case Upcoming(trials, turns):
                self.table.upcoming, self.table.turns = trials, turns
            case LeaseExtended(expires):
                self._leased(expires, now)
            case OutcomeAcknowledged(run):
                self._known(run)
            case Attached():
                facts.attached(self.table, now)
            case RunFound():
                facts.found(self.table, message, now)
            case _:
                facts.fact(self.table, message, now)
        return self._flush(now)

    def tick(self, now: Time) -> list[Action]:
        """What time alone causes."""
        for stay in list(self.table.stays.values()):
            if self._due(stay) <= now:
                self._overdue(stay, now)
        return self._flush(now)

    @property
    def deadline(self) -> Time | None:
        """When `tick` has something to do if nothing happens before."""
        due = min(map(self._due, self.table.stays.values()), default=math.inf)
        return None if due == math.inf else due

    def live(self) -> tuple[LiveRun, ...]:
        """Every run accepted here whose outcome the head has not acknowledged."""
        return tuple(run for stay in self.table.stays.values() for run in stay.live())

    def forgot(self, trial: TrialId) -> bool:
        """Whether nothing of the trial is to be remembered here."""
        return trial not in self.table.stays

    def memory_on(self, device: DeviceId) -> int:
        """What the run on a device takes of memory, as far as it said; 0 without a run."""
        run = self.table.holders.get(device)
        return self.table.stays[run.trial].memory_bytes if run else 0

    @property
    def excess(self) -> tuple[int, tuple[TrialId, ...]]:
        """By how much parked trials that cannot be written down exceed their memory; and which."""
        return memory.excess(self.table)

    @property
    def lease(self) -> Time:
        """Until when (boot time) what runs here may go on unheard."""
        return self.table.lease

    def _leased(self, expires: Time, now: Time) -> None:
        table = self.table
        table.lease = max(table.lease, expires)
        step = min(table.terms.lease_step_seconds, LEASE_STEP * (table.lease - now))
        if table.lease > self._forwarded and table.lease - self._forwarded >= step:
            self._forwarded = table.lease
            table.out.append(ExtendLeases(table.lease))

    def _known(self, run: RunId) -> None:
        stay = self.table.stays.get(run.trial)
        if stay and stay.process is None and stay.outcome and stay.outcome.run == run:
            del self.table.stays[run.trial]

    # Time.

    def _due(self, stay: Stay) -> Time:
        if stay.ending is not None:
            return math.inf if stay.fenced else stay.ending + self.table.terms.end_seconds
        match stay.condition:
            case Condition.WAITING:
                return stay.received + stay.assignment.terms.suspend_deadline_seconds
            case Condition.STARTING:
                prepare = self.table.terms.prepare_seconds
                return stay.since + (self._start_seconds(stay) if stay.begun else prepare)
            case Condition.PROMOTED:
                return math.inf if stay.held else stay.since + self._start_seconds(stay)
            case Condition.RUNNING:
                return min(stay.quantum_due, stay.save_due)
            case Condition.HALTING | Condition.DEMOTING:
                return math.inf if stay.limit is None else stay.limit
            case Condition.PARKED if stay.to_write_again:
                return stay.since + self.table.terms.again_seconds
            case Condition.PARKED | Condition.ENDED:
                return math.inf

    def _overdue(self, stay: Stay, now: Time) -> None:
        table = self.table
        if stay.ending is not None:
            assert stay.process is not None
            stay.fenced = True
            table.out.append(KillUnresponsive(stay.process))
        elif stay.condition is Condition.PROMOTED:
            table.discard(stay, again=False)
        elif stay.condition is Condition.WAITING:
            self._never_started(stay, now)
        elif stay.condition is Condition.STARTING:
            stay.failing = self._why_not_running(stay)
            table.kill_process(stay, now)
        elif stay.condition is Condition.PARKED:
            orders.demote(table, stay, now)
        elif stay.condition is Condition.RUNNING:
            if stay.quantum_due <= now:
                self._quantum_over(stay, now)
            if stay.save_due <= now:
                table.save(stay, now)
        else:
            table.kill_process(stay, now)

    def _why_not_running(self, stay: Stay) -> tuple[str, str]:
        """Of what kind a failure it is that a program has come to no boundary, and the words."""
        if stay.begun:
            seconds, allowed = self._start_seconds(stay), stay.assignment.start_allowance_seconds
            longer = ", twice what the longest of its starts took"
            which = longer if seconds == allowed else " (retry.hung_seconds)"
            return "hung", f"no first iteration within {seconds:g} s of the start{which}"
        seconds = self.table.terms.prepare_seconds
        return "not_started", f"what it needs was not there within {seconds:g} s"

    def _start_seconds(self, stay: Stay) -> float:
        """What its program may take to its first boundary: a resume may run its beginning again."""
        order = stay.assignment
        any_program = max(self.table.terms.start_seconds, order.terms.hung_seconds)
        return max(any_program, order.start_allowance_seconds)

    def _quantum_over(self, stay: Stay, now: Time) -> None:
        """Its seconds are over: the head decides by what the program has reached by now."""
        if stay.inquired is None:
            stay.inquired = now
            self.table.out.append(AskReport(stay.run))
        else:
            for event in stay.expire():
                self.table.tell(event)

    def _never_started(self, stay: Stay, now: Time) -> None:
        busy = map(self.table.holders.get, stay.assignment.launch.devices)
        held = ", ".join(str(run) for run in busy if run is not None)
        detail = f"the device is held by {held}" if held else "no lease came from the head"
        if stay.process is None:
            self.table.end(stay, RunFailed(stay.run, "not_started", detail, "", 0), now)
        else:
            self.table.kill_process(stay, now)

    # After every input.

    def _flush(self, now: Time) -> list[Action]:
        for stay in list(self.table.stays.values()):
            if self.table.leaving:
                orders.go(self.table, stay, now)
            elif stay.condition is Condition.WAITING and stay.ending is None:
                self._start(stay, now)
        memory.plan(self.table, now)
        out, self.table.out = self.table.out, []
        return out

    def _start(self, stay: Stay, now: Time) -> None:
        """Start or let go what waits, once its device is free and the lease is good."""
        table, launch = self.table, stay.assignment.launch
        if now >= table.lease or any(name in table.holders for name in launch.devices):
            return
        table.holders.update(dict.fromkeys(launch.devices, stay.run))
        if stay.process is None:
            checkpoint = stay.assignment.checkpoint
            stay.step = checkpoint.step if checkpoint else 0
            table.out.append(Spawn(stay.assignment, checkpoint, stay.limit_step))
        else:
            table.out.append(ResumeRun(stay.assignment, stay.limit_step))
        table.mark(stay)
        stay.begun = stay.process is not None
        stay.process = stay.run
        stay.enter(Condition.STARTING, now)
