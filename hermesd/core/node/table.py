"""A node's runs and devices, and the few steps that orders and facts are made of."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import cast

from hermesd.core.events import FidelityKnown, ParkLost, RunEvent, RunFailed
from hermesd.core.failures import is_own_end
from hermesd.core.model import Checkpoint, DeviceId, RunId, Tier, Time, TrialId
from hermesd.core.node.actions import (
    Action,
    AskReport,
    DeleteTrialFiles,
    DiscardRebuilt,
    EndProcess,
    SuspendRun,
    TellHead,
    WriteCheckpoint,
    WriteCheckpointAndExit,
)
from hermesd.core.node.messages import Assignment, Series
from hermesd.core.node.stay import Condition, Outcome, Stay


@dataclass(frozen=True, slots=True)
class NodeTerms:
    """A node's own settings."""

    #: The cheapest tier that frees each device: park on a CPU slot, and on a GPU if its driver can
    #: move what is on it; else checkpoint.
    cheapest: Mapping[DeviceId, Tier]
    #: What parked trials may hold together; None for any amount.
    parked_memory_bytes: int | None = None
    #: Cores that no device has, as many as each device: there its trials may be rebuilt ahead of
    #: their turn.
    rebuild_cores: Mapping[DeviceId, tuple[int, ...]] = field(default_factory=dict)
    #: Until what a program needs is there: its code, its environment, its checkpoint.
    prepare_seconds: float = 3600.0
    #: From then to the program's first boundary.
    start_seconds: float = 900.0
    #: For a host that was told to end its program, or whose deadline for a suspend has passed: it
    #: parks or ends the program by itself then.
    end_seconds: float = 10.0
    #: Until what the head wants written down, and could not be, is tried again.
    again_seconds: float = 60.0
    #: Leases are passed on so often.
    lease_step_seconds: float = 5.0


@dataclass(frozen=True, slots=True)
class Shelved:
    """What a run that ended at a checkpoint was, as far as rebuilding it takes it."""

    assignment: Assignment
    checkpoint: Checkpoint
    judged: FidelityKnown | None
    planned: int | None
    memory_bytes: int


@dataclass(slots=True)
class NodeTable:
    """The runs of one node."""

    terms: NodeTerms
    lease: Time = -math.inf
    #: It starts nothing any more.
    leaving: bool = False
    stays: dict[TrialId, Stay] = field(default_factory=dict)
    #: Which run is on each device.
    holders: dict[DeviceId, RunId] = field(default_factory=dict)
    #: The newest attempt ever accepted of each trial, of the study of that identity: one that is
    #: not newer is never started.
    attempts: dict[TrialId, int] = field(default_factory=dict)
    identities: dict[TrialId, str] = field(default_factory=dict)
    shelved: dict[TrialId, Shelved] = field(default_factory=dict)
    #: The head's last hint (`Upcoming`), as is `turns`.
    upcoming: tuple[TrialId, ...] = ()
    turns: int = 0
    #: What is to be done.
    out: list[Action] = field(default_factory=list)

    def tell(self, event: RunEvent, points: tuple[Series, ...] = ()) -> None:
        """Say something to the head."""
        stay = self.stays.get(event.run.trial)
        self.out.append(TellHead(event, points, stay.assignment.identity if stay else ""))

    def newest(self, order: Assignment) -> int:
        """The newest attempt ever accepted of the trial that an order is about; 0 for none."""
        if self.identities.get(order.run.trial) != order.identity:
            return 0
        return self.attempts.get(order.run.trial, 0)

    def accept(self, order: Assignment) -> None:
        """Remember an order as the newest attempt of its trial."""
        self.attempts[order.run.trial] = order.run.attempt
        self.identities[order.run.trial] = order.identity

    def forget(self, trial: TrialId) -> None:
        """Nothing of the trial was ever here."""
        for table in (self.stays, self.attempts, self.identities, self.shelved):
            cast(dict[TrialId, object], table).pop(trial, None)
        self.out.append(DeleteTrialFiles(trial))

    def current(self, run: RunId) -> Stay | None:
        """The stay that this run is; None, and answered, if it never was here."""
        stay = self.stays.get(run.trial)
        if stay is not None and stay.run == run:
            return stay
        if run.attempt > self.attempts.get(run.trial, 0):
            self.out.append(
                TellHead(RunFailed(run, "lost", "this node does not know the run", "", 0))
            )
        return None

    def cheapest(self, stay: Stay) -> Tier:
        """The cheapest tier that frees the devices of this stay."""
        tiers = {self.terms.cheapest.get(name) for name in stay.assignment.launch.devices}
        return Tier.PARK if tiers <= {Tier.PARK} else Tier.CHECKPOINT

    def overflows(self, stay: Stay) -> bool:
        """Whether what the stay has on its GPU is more than parked trials may hold together."""
        budget = self.terms.parked_memory_bytes
        return budget is not None and stay.device_memory_bytes > budget

    def wait(self, order: Assignment, now: Time) -> Stay:
        """A new stay that waits for its device."""
        self.shelved.pop(order.run.trial, None)
        stay = Stay(order, Condition.WAITING, now, now)
        stay.grants(0, order.launch.quantum, None)
        self.stays[order.run.trial] = stay
        return stay

    def wait_for_device(self, stay: Stay, order: Assignment, now: Time) -> None:
        """What is parked here waits for its next device."""
        again = replace(
            stay,
            assignment=order,
            received=now,
            next=None,
            final=False,
            asked=None,
            outcome=None,
            passed=0.0,
            stalled=False,
            leaving=False,
        )
        again.enter(Condition.WAITING, now)
        again.grants(0, order.launch.quantum, None)
        self.stays[order.run.trial] = again

    def shelve(self, stay: Stay, checkpoint: Checkpoint) -> None:
        """Remember what ended at a checkpoint, and not for good, so that it can be rebuilt."""
        if stay.final:
            return
        self.shelved[stay.run.trial] = Shelved(
            stay.assignment, checkpoint, stay.judged, stay.planned, stay.memory_bytes
        )

    def discard(self, stay: Stay, again: bool = True) -> None:
        """End what was rebuilt and never let go; `again` if that may be done once more."""
        assert stay.rebuilt is not None
        del self.stays[stay.run.trial]
        if again:
            self.shelve(stay, stay.rebuilt)
        self.out.append(DiscardRebuilt(stay.run.trial))

    def asked_for(self, trial: TrialId) -> Stay | None:
        """The trial's stay. What was only rebuilt for it is ended."""
        stay = self.stays.get(trial)
        if stay is not None and stay.condition is Condition.PROMOTED:
            self.discard(stay, again=False)
            return None
        return stay

    def mark(self, stay: Stay) -> None:
        """Have the run report at the step that ends its quantum, however soon that is."""
        if stay.mark_step is not None:
            self.out.append(AskReport(stay.run, stay.mark_step))

    def halt(self, stay: Stay, tier: Tier, seconds: float, now: Time) -> None:
        """Ask for the device back."""
        stay.enter(Condition.HALTING, now)
        stay.asked, stay.limit = now, now + seconds + self.terms.end_seconds
        self.out.append(SuspendRun(stay.run, tier, seconds, stay.final))

    def save(self, stay: Stay, now: Time, *, is_asked: bool = False) -> None:
        """Ask for a durable checkpoint of what runs or is parked, and stays so."""
        stay.saving = now
        self.out.append(WriteCheckpoint(stay.run, checkpoint_name(stay.run, now), is_asked))

    def demote(self, stay: Stay, now: Time) -> None:
        """Ask for what is parked to be written down."""
        if stay.limit is None:
            stay.limit = now + stay.assignment.terms.suspend_deadline_seconds
        self.out.append(WriteCheckpointAndExit(stay.run, checkpoint_name(stay.run, now)))

    def kill_process(self, stay: Stay, now: Time) -> None:
        """Ask for the process to be ended, once."""
        if stay.process is not None and stay.ending is None:
            stay.ending = now
            self.out.append(EndProcess(stay.process))

    def process_gone(self, stay: Stay, outcome: Outcome, reason: str, now: Time) -> None:
        """The process is gone: an outcome of the run, or the loss of what was kept of it.

        What a program has come to by itself stands, wherever the trial was kept meanwhile and
        whatever was asked of it: trained again, it would come to the same.
        """
        assert stay.process is not None
        if is_own_end(outcome):
            pass
        elif stay.condition is Condition.WAITING and stay.asked is not None:
            outcome = stay.left(Tier.KILL, stay.step, None, reason, now)
        elif not stay.condition.on_device:
            outcome = ParkLost(stay.process, reason)
        self.end(stay, outcome, now)

    def end(self, stay: Stay, outcome: Outcome, now: Time) -> None:
        """The stay is over; what waited for its process may start."""
        if isinstance(outcome, RunFailed):
            outcome = replace(outcome, devices=len(stay.assignment.launch.devices))
        self.free(stay)
        stay.enter(Condition.ENDED, now)
        stay.process, stay.ending, stay.outcome = None, None, outcome
        self.tell(outcome)
        trial, following = stay.run.trial, stay.next
        if stay.forget:
            self.forget(trial)
        elif following is not None:
            fresh = self.wait(following, now)
            if (parked := following.launch.parked) is not None:
                lost = ParkLost(parked, "it ended while parked")
                self.end(fresh, end_of(parked, outcome) or lost, now)

    def free(self, stay: Stay) -> None:
        """The devices of this stay are free."""
        for device, run in list(self.holders.items()):
            if run.trial == stay.run.trial:
                del self.holders[device]


def end_of(run: RunId, outcome: Outcome | None) -> Outcome | None:
    """This outcome, if it says how the program of this run came to its own end."""
    own = outcome is not None and outcome.run == run and is_own_end(outcome)
    return outcome if own else None


def checkpoint_name(run: RunId, now: Time) -> str:
    """A checkpoint's directory: unique, since attempts never repeat and boot time only grows."""
    return f"a{run.attempt}-t{int(now * 1000)}"
