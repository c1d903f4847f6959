"""Which waiting trials leave the node where they are parked, for a device of another.

Rule: what is parked goes on only where it is, so it is written down first. For a device that nobody
else can take that is done at once. One that has an occupant goes to a trial of another node that
deserves it more, if that is not soon served where it is, and if moves stay a small part of its
training: trials spread over the nodes, and then stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from hermesd.core.commands import WriteDown
from hermesd.core.model import DeviceId, NodeId, Phase, StudyId, Tier, Time, TrialId
from hermesd.core.queues import Queues
from hermesd.core.quotas import Quotas
from hermesd.core.state import State
from hermesd.core.trial import Trial

if TYPE_CHECKING:
    from hermesd.core.commands import Issue

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
    return state.nodes[state.slots[trial.run.devices[0]].device.node].connected


def writable(state: State, trial: Trial) -> bool:
    """Whether the trial is parked, and its node can write it down, as far as is known."""
    kept, node = trial.kept, state.parked_on(trial)
    if kept is None or node is None or kept.leaving or kept.midway:
        return False
    return trial.fidelity.restorable and state.nodes[node].connected


def severed(state: State, source: NodeId, target: NodeId, now: Time) -> bool:
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
        quotas: Quotas,
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

    # -- one trial ----------------------------------------------------------------------------

    def _movable(self, trial: Trial) -> bool:
        """Whether the trial is parked, and its node can write it down, as far as is known."""
        binds = self._queues.placement(trial.spec.study).binds
        return not binds and writable(self._state, trial)

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
        """Whether the trial could go on on this device of another node, were it written down."""
        source = self._state.parked_on(trial)
        target = self._state.slots[device].device.node
        if source is None or source == target:
            return False
        if severed(self._state, source, target, self._now):
            return False
        return self._queues.could_take(trial, device)
