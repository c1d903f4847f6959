"""Decides which parked trials leave their node for a device of another.

A parked process can go on only where it is, so it is written to disk first. For a device that
nobody else can take, this is done at once. A device with an occupant goes to a trial of another
node if that trial deserves it more, is not soon served where it is, and if moves remain a small
part of its training. So trials spread over the nodes, and then stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain

from hermesd.core.commands import Issue, Suspend, WriteDown
from hermesd.core.decide.queue import Queues, Sort
from hermesd.core.model import Device, DeviceId, NodeId, Phase, StudyId, Tier, Time, TrialId
from hermesd.core.placement import switch_seconds, takes_one
from hermesd.core.quotas import DeviceQuotas
from hermesd.core.state import State
from hermesd.core.trial import Trial

# The most that going on from a checkpoint may take of what a process trains, for a trial to move
# where no device would idle.
OVERHEAD_SHARE = 0.05
# So many parked trials are looked at in one decision, the most deserving first.
LOOKED_AT = 256


def arriving(state: State, trial: Trial) -> bool:
    """Whether a waiting trial is being written down where it is parked, and may then go on."""
    node = state.parked_on(trial)
    kept = trial.kept
    if node is None or kept is None or not kept.leaving or kept.unwritable:
        return False
    return trial.phase is Phase.WAITING and trial.candidate and state.nodes[node].connected


def expected(state: State, device: DeviceId) -> bool:
    """Whether a free device is kept for a trial that is on its way from another."""
    reserved = state.slots[device].reserved
    trial = state.trials.get(reserved) if reserved else None
    if trial is None or trial.phase is not Phase.SUSPENDING or trial.run is None:
        return trial is not None and arriving(state, trial)
    return state.nodes[state.place(trial.run).node].connected


def writable(state: State, trial: Trial) -> bool:
    """Whether the trial is parked, and its node can write it down, as far as is known."""
    kept, node = trial.kept, state.parked_on(trial)
    if kept is None or node is None or kept.leaving or kept.midway:
        return False
    return trial.fidelity.restorable and state.nodes[node].connected


def cannot_copy(state: State, source: NodeId, target: NodeId, now: Time) -> bool:
    """Whether no copy could go from one node to another, as far as is known."""
    return state.severed.get((source, target), now) > now


class Relocation:
    """The trials that may move in one decision about the open devices of a pool.

    `occupants` are the trials whose quantum is over, with their devices.
    """

    def __init__(
        self,
        state: State,
        queues: Queues,
        quotas: DeviceQuotas,
        occupants: Mapping[TrialId, DeviceId],
        now: Time,
    ) -> None:
        self._state = state
        self._queues = queues
        self._quotas = quotas
        self._occupants = dict(occupants)
        self._now = now
        self._idle = not state.parked or len(state.nodes) < 2
        self._ahead: Counter[NodeId] = Counter()
        self._turns: dict[NodeId, int] = {}
        # Who was looked at: None if it may not move; whether it has its turn where it is soon.
        self._known: dict[TrialId, bool | None] = {}
        self._admitted = 0

    def may(self, trial: Trial) -> bool:
        """Whether the trial may take an occupant's device; asked in the order of its policy."""
        if self._idle or not self._occupants or self._state.parked_on(trial) is None:
            return False
        if trial.id not in self._known:
            if len(self._known) >= LOOKED_AT or self._admitted >= len(self._occupants):
                return False
            soon = self._is_soon(trial)
            self._known[trial.id] = soon if self._affords(trial) else None
            self._admitted += bool(self.victims(trial, self._occupants))
        return bool(self.victims(trial, self._occupants))

    def victims(self, trial: Trial, occupants: Mapping[TrialId, DeviceId]) -> list[TrialId]:
        """Those of the occupants whose device the trial may take from where it is.

        Who has its turn soon takes none but of one that was given one quantum after the other.
        """
        soon = self._known.get(trial.id)
        if soon is None:
            return []
        trials = self._state.trials
        return [
            other
            for other, device in occupants.items()
            if (not soon or ((run := trials[other].run) is not None and run.grant))
            and self._quotas.shares(trial, trials[other])
            and self._could(trial, device)
        ]

    def bring(
        self,
        studies: Collection[StudyId],
        free: Collection[DeviceId],
        order: Callable[[int, Callable[[Trial], bool]], list[TrialId]],
        issue: Issue,
    ) -> None:
        """Have trials written down for devices that nobody else can take, as many as these are.

        `order` gives the most deserving of those that may go. Who has its turn soon comes last.
        """
        left = {} if self._idle else dict.fromkeys(free)
        for trial in self._on_their_way(studies) if left else ():
            device = next((each for each in left if self._could(trial, each)), None)
            if device is not None:
                del left[device]
        if not left:
            return

        def could(trial: Trial) -> bool:
            return self._movable(trial) and any(self._could(trial, device) for device in left)

        found = [self._state.trials[each] for each in order(len(left) + LOOKED_AT, could)]
        self._ahead.clear()
        soon = {trial.id: self._is_soon(trial) for trial in found}
        for trial in sorted(found, key=lambda each: soon[each.id]):
            device = next((each for each in left if self._could(trial, each)), None)
            if device is not None and not self._quotas.full(trial):
                del left[device]
                self._quotas.take(trial, None)
                self.write_down(trial, issue)

    def write_down(self, trial: Trial, issue: Issue) -> None:
        """Ask the node where the trial is parked for a checkpoint."""
        node = self._state.parked_on(trial)
        assert trial.kept is not None
        assert node is not None
        issue(WriteDown(trial.kept.run, node))

    def _on_their_way(self, studies: Collection[StudyId]) -> Iterator[Trial]:
        """The trials that are being written down, and for which no device is kept."""
        for trial_id in sorted(self._state.parked):
            trial = self._state.trials[trial_id]
            unreserved = trial_id not in self._state.reserved
            if unreserved and trial.spec.study in studies and arriving(self._state, trial):
                yield trial

    # One trial.

    def _movable(self, trial: Trial) -> bool:
        """Whether the trial is parked, and its node can write it down, as far as is known."""
        binds = self._queues.placement(trial.spec.study).binds
        return not binds and self._alone(trial) and writable(self._state, trial)

    def _alone(self, trial: Trial) -> bool:
        """Whether one device is all that the trial needs."""
        return takes_one(self._state, trial)

    def _affords(self, trial: Trial) -> bool:
        """Whether it may be moved, and what its process has trained makes up for another one."""
        measured = trial.costs.get(Tier.CHECKPOINT)
        cost = measured.seconds if measured else self._state.facts[trial.spec.study].restore_seconds
        trained = trial.use.busy_seconds - trial.began_busy
        return self._movable(trial) and cost <= OVERHEAD_SHARE * trained

    def _is_soon(self, trial: Trial) -> bool:
        """Whether the trial is among the first that wait where it is, one for each device there
        whose occupant gives way to others."""
        node = self._state.parked_on(trial)
        assert node is not None
        if node not in self._turns:
            devices = self._state.nodes[node].devices
            self._turns[node] = sum(self._gives_way(device) for device in devices)
        self._ahead[node] += 1
        return self._ahead[node] <= self._turns[node]

    def _gives_way(self, device: DeviceId) -> bool:
        """Whether the device's occupant, if it has one, is not known to go on and on."""
        slot = self._state.slots[device]
        trial = self._state.trials[slot.run.trial] if slot.run else None
        if trial is None or trial.run is None or trial.phase is not Phase.RUNNING:
            return slot.sound
        return not (trial.run.grant or trial.run.quantum.endless)

    def _could(self, trial: Trial, device: DeviceId) -> bool:
        """Whether the trial could continue on this device of another node, were it written down."""
        source = self._state.parked_on(trial)
        target = self._state.slots[device].device.node
        if source is None or source == target:
            return False
        if cannot_copy(self._state, source, target, self._now):
            return False
        return self._queues.could_take(trial, device)


# Who may go on to a better device in one decision, while the device's turn is up anyway.
#
# A trial moves to a device that is open anyway, before all who deserve it less, and only if
# that saves more seconds than the switches take: its own, and that of a trial that makes room.
# What it takes from another is no saving (see `Free`).

# A study's most deserving trials on each sort of device that come into question.
IN_QUESTION = 8


class Moves:
    """The trials that come into question, and those that have moved."""

    def __init__(
        self,
        state: State,
        queues: Queues,
        open_devices: Sequence[DeviceId],
        studies: Iterable[StudyId],
    ) -> None:
        self.state = state
        self.queues = queues
        #: Running trials on devices slower than one that is open, their quantum not over.
        self.stays: dict[TrialId, DeviceId] = {}
        #: The trials that leave their devices, each with the free device that is kept for it; None
        #: if one is being freed for it.
        self.left: dict[TrialId, DeviceId | None] = {}
        #: Those that it is freed of.
        self.displaced: set[TrialId] = set()
        self._studies = [
            study
            for study in studies
            if state.speeds(study).unequal and not queues.placement(study).binds
            if state.studies[study].widest == 1
        ]
        if self._studies:
            for study in self._studies:
                self._find(study, [state.slots[device].device for device in open_devices])

    def _find(self, study: StudyId, open_devices: Iterable[Device]) -> None:
        """Note the study's running trials that an open device may suit better."""
        speeds = self.state.speeds(study)
        fastest = max((speeds.factor(device) or 0.0 for device in open_devices), default=0.0)
        slower: list[Sort] = [
            (kind, "") for kind, known in speeds.kinds.items() if known.factor < fastest
        ]
        for name in speeds.corrections:
            device = self.state.slots[name].device
            if 0.0 < (speeds.factor(device) or 0.0) < fastest:
                slower.append((device.kind, name))
        for trial_id in self.queues.staying(study, slower, IN_QUESTION) if slower else ():
            run = self.state.trials[trial_id].run
            assert run is not None
            self.stays[trial_id] = run.devices[0]

    def better(
        self,
        trial: Trial,
        free: Collection[DeviceId],
        occupants: Mapping[TrialId, DeviceId],
        position: Mapping[TrialId, int],
    ) -> DeviceId | None:
        """The open device that the running trial does best to move to; None: it does best to stay.

        Of devices that are as good a free one comes first, then that of the least deserving.
        """
        if trial.spec.study not in self._studies or trial.run is None:
            return None
        slots, facts = self.state.slots, self.state.facts[trial.spec.study]
        speeds = self.state.speeds(trial.spec.study)
        gain = self.queues.placement(trial.spec.study).gain
        here = self.state.place(trial.run)
        ranked = sorted(occupants, key=lambda other: -position.get(other, len(position)))
        making_room = [(occupants[other], self._switch(other), True) for other in ranked]
        all_wanted = self._behind(trial, position) >= len(free) + len(occupants)
        most, found = 0.0, None
        for device, seconds, wanted in chain(((d, 0.0, all_wanted) for d in free), making_room):
            there = slots[device].device
            saved = gain(trial, here, there, facts, speeds, wanted) - seconds
            if saved > most and self.queues.fits(trial, device):
                most, found = saved, device
        return found

    def _behind(self, trial: Trial, position: Mapping[TrialId, int]) -> int:
        """How many that deserve less than the trial want one of the open devices."""
        mine = position[trial.id]
        staying = sum(position.get(other, -1) > mine for other in self.stays)
        return len(position) - 1 - mine - staying

    def _switch(self, trial_id: TrialId) -> float:
        trial = self.state.trials[trial_id]
        return switch_seconds(trial, self.state.facts[trial.spec.study])


# What becomes of the trials on a node that a person wants empty, of which their study is to
# have no more, that is of another pool now, or that its machine wants back.
#
# Nothing is cut short: a run goes on to the end of its quantum (one without an end is over now)
# and is then written down, like what is parked. What no checkpoint would bring back stays: it
# runs on to its end, or waits for the node. Only what the machine wants back, the node or a
# device of it, is given back at once, in whatever way frees it.

# Somebody waits for what is yielded: past this the trial falls back to its last checkpoint.
YIELD_SECONDS = 15.0


def vacate(state: State, trial: Trial, issue: Issue) -> None:
    """Have the trial leave its node, if it is to leave that and may leave it now."""
    if trial.phase is Phase.RUNNING and (why := _yielded(state, trial)):
        return _give_back(state, trial, why, issue)
    node = _left(state, trial)
    if node is None:
        return
    run, kept = trial.run, trial.kept
    if run is None:
        if kept is not None and not kept.leaving and trial.phase is Phase.WAITING:
            issue(WriteDown(kept.run, node))
    elif trial.phase is Phase.RUNNING and (run.expired or run.quantum.endless):
        deadline = trial.notice(state.studies[trial.spec.study].suspend_deadline_seconds)
        why = _why(state, trial, node)
        issue(Suspend(run.id, Tier.CHECKPOINT, deadline, None, f"node {node} {why}"))


def write_down_first(state: State, trial: Trial, node: NodeId, issue: Issue) -> None:
    """Have what is parked of a trial that is over written down before it is let go: it may be tried
    again."""
    kept, saved = trial.kept, trial.checkpoint
    if kept is None or kept.leaving or state.parked_on(trial) != node:
        return
    if trial.fidelity.restorable and (saved is None or saved.step < trial.step):
        issue(WriteDown(kept.run, node))


def _yielded(state: State, trial: Trial) -> str:
    """Why its machine wants back where the trial runs; "" if it does not."""
    slots = [state.slots[device] for device in trial.run.devices] if trial.run else []
    for slot in slots:
        if slot.yielded:
            return f"{slot.device.id}: {slot.yielded}"
    if not slots:
        return ""
    node = state.nodes[slots[0].device.node]
    return f"node {node.id} rests: {node.resting}" if node.resting else ""


def _give_back(state: State, trial: Trial, why: str, issue: Issue) -> None:
    """Free its devices now: by a checkpoint if one brings the trial back."""
    assert trial.run is not None
    deadline = state.studies[trial.spec.study].suspend_deadline_seconds
    tier = Tier.CHECKPOINT if trial.fidelity.restorable else Tier.PARK
    issue(Suspend(trial.run.id, tier, min(deadline, YIELD_SECONDS), None, why))


def _left(state: State, trial: Trial) -> NodeId | None:
    """The node that the trial is to leave, if it is on one and can go on elsewhere."""
    node = state.node_of(trial)
    if node is None or not trial.fidelity.restorable:
        return None
    return node if _why(state, trial, node) else None


def _why(state: State, trial: Trial, node: NodeId) -> str:
    """What is with the node that the trial is to leave; "" if it may stay."""
    if state.nodes[node].draining:
        return "is draining"
    if state.nodes[node].resting:
        return f"rests: {state.nodes[node].resting}"
    if (pool := state.nodes[node].pool) != state.studies[trial.spec.study].pool:
        return f"is of pool {pool} now"
    return "is excluded from its study" if (trial.spec.study, node) in state.excluded else ""


def stuck(state: State, trial: Trial) -> tuple[NodeId, str] | None:
    """The node that the trial waits for and what is with it: nowhere else could it go on."""
    node = state.parked_on(trial)
    if node is None or trial.fidelity.restorable or (trial.spec.study, node) in state.excluded:
        return None
    return (node, why) if (why := _why(state, trial, node)) else None
