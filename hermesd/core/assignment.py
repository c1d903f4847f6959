"""Fills the open devices: those that are free, and those whose occupant's quantum is over."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TypeAlias

from hermesd.core.commands import Bind, Command, Launch, Renew, Suspend
from hermesd.core.fold_copies import to_restore
from hermesd.core.model import DeviceId, Phase, StudyId, Tier, Time, TrialId
from hermesd.core.moves import Moves
from hermesd.core.queue import Choice
from hermesd.core.queues import Queues
from hermesd.core.state import State
from hermesd.core.trial import Trial

Issue: TypeAlias = Callable[[Command], None]
# In order; a plain dict takes the longer to find its first key the more of them were deleted.
Free: TypeAlias = OrderedDict[DeviceId, None]


class Assignment:
    """Who gets the open devices, in the order of the policies, as launches and suspends."""

    def __init__(self, state: State, queues: Queues) -> None:
        self.state = state
        self.queues = queues

    def fill(self, issue: Issue, now: Time) -> None:
        """Fill the open devices: reserved ones first, then in the order of the policies."""
        state = self.state
        for device in sorted(state.free):
            reserved = state.slots[device].reserved
            trial = state.trials.get(reserved) if reserved else None
            if trial is None or not _ready(trial, now) or not self.queues.fits(trial, device):
                continue
            if choice := self.queues.choice(trial, now):
                self._launch(choice, device, issue)
        free = OrderedDict.fromkeys(d for d in sorted(state.free) if not self._expects(d))
        expired = [d for d in sorted(state.expired) if state.nodes[state.slots[d].device.node].open]
        if not free and not expired:
            return
        occupants = {self._occupant(device): device for device in expired}
        moves = Moves(state, self.queues, [*free, *expired])
        order = self._merged(free, occupants, moves, now)
        position = {trial_id: index for index, trial_id in enumerate(order)}
        for trial_id in order:
            if not free and not occupants and not moves.left:
                break
            trial = state.trials[trial_id]
            if trial_id in occupants:
                del occupants[trial_id]
                if not self._move(trial, moves, free, occupants, position, issue) and (
                    choice := self.queues.choice(trial, now)
                ):
                    self._renew(choice, issue)
            elif trial_id in moves.stays:
                self._move(trial, moves, free, occupants, position, issue)
            elif trial_id in moves.displaced or self._available(trial, now):
                self._claim(trial, free, occupants, moves, position, issue, now)
        for trial_id in list(moves.left):
            self._leave(trial_id, None, moves, issue)
        for trial_id in occupants:
            self._give_back(trial_id, None, "held back by its policy", issue)

    def _expects(self, device: DeviceId) -> bool:
        """Whether a free device is kept for a trial that is on its way from another."""
        reserved = self.state.slots[device].reserved
        trial = self.state.trials.get(reserved) if reserved else None
        if trial is None or trial.phase is not Phase.SUSPENDING or trial.run is None:
            return False
        return self.state.nodes[self.state.slots[trial.run.devices[0]].device.node].connected

    def _move(
        self,
        trial: Trial,
        moves: Moves,
        free: Free,
        occupants: dict[TrialId, DeviceId],
        position: dict[TrialId, int],
        issue: Issue,
    ) -> bool:
        """Have a running trial leave its device if an open one is better; says whether it does."""
        device = moves.better(trial, free, occupants, position)
        if device is None:
            return False
        if device in free:
            del free[device]
            moves.left[trial.id] = device
        else:
            victim = self._occupant(device)
            del occupants[victim]
            self._give_back(victim, trial.id, f"{trial.id} goes first: a faster device", issue)
            moves.displaced.add(victim)
            moves.left[trial.id] = None
        return True

    def _leave(
        self, trial_id: TrialId, successor: TrialId | None, moves: Moves, issue: Issue
    ) -> None:
        """A trial that moves gives its device back, to a successor if it has one."""
        kept = moves.left.pop(trial_id)
        self._give_back(trial_id, successor, "it goes on on a faster device", issue)
        if kept is not None:
            issue(Bind(trial_id, kept))

    def _claim(
        self,
        trial: Trial,
        free: Free,
        occupants: dict[TrialId, DeviceId],
        moves: Moves,
        position: dict[TrialId, int],
        issue: Issue,
        now: Time,
    ) -> None:
        """A waiting trial takes a free device, else the one that another leaves for a better, else
        that of the least deserving occupant."""
        device = self._cheapest(trial, free) if trial.run is None else None
        if device is not None:
            if (choice := self.queues.choice(trial, now)) is not None:
                del free[device]
                self._launch(choice, device, issue)
            return
        for leaving in moves.left:
            run = self.state.trials[leaving].run
            if run is not None and self.queues.fits(trial, run.devices[0]):
                self._leave(leaving, trial.id, moves, issue)
                return
        if trial.run is not None:
            return
        victims = [t for t, device in occupants.items() if self.queues.fits(trial, device)]
        if victims:
            victim = max(victims, key=lambda t: position.get(t, len(position)))
            del occupants[victim]
            words = self.queues.words(trial)
            self._give_back(victim, trial.id, f"{trial.id} goes first: {words}", issue)

    def _cheapest(self, trial: Trial, free: Free) -> DeviceId | None:
        """The first of the cheapest free devices that the trial fits on; None if there is none."""
        study, slots = trial.spec.study, self.state.slots
        cost_of, facts = self.queues.placement(study).cost, self.state.facts[study]
        best: tuple[tuple[float, ...], DeviceId] | None = None
        for device in free:
            if self.queues.fits(trial, device):
                cost = cost_of(trial, slots[device].device, facts)
                if best is None or cost < best[0]:
                    best = cost, device
                if not any(cost):
                    break
        return best[1] if best else None

    def _launch(self, choice: Choice, device: DeviceId, issue: Issue) -> None:
        trial = choice.trial
        kept = trial.kept
        parked = kept.run if kept and kept.tier is Tier.PARK else None
        found = to_restore(self.state, trial) if parked is None else None
        checkpoint = found.id if found else None
        issue(Launch(trial.next_run, (device,), choice.quantum, choice.words, parked, checkpoint))

    def _renew(self, choice: Choice, issue: Issue) -> None:
        run = choice.trial.run
        assert run is not None
        issue(Renew(run.id, run.grant + 1, choice.quantum, f"still best: {choice.words}"))

    def _give_back(
        self,
        trial_id: TrialId,
        successor: TrialId | None,
        reason: str,
        issue: Issue,
    ) -> None:
        trial = self.state.trials[trial_id]
        study = self.state.studies[trial.spec.study]
        assert trial.run is not None
        issue(Suspend(trial.run.id, study.tier, study.suspend_deadline_seconds, successor, reason))

    # -- candidates ---------------------------------------------------------------------------

    def _occupant(self, device: DeviceId) -> TrialId:
        run = self.state.slots[device].run
        assert run is not None
        return run.trial

    def _available(self, trial: Trial, now: Time) -> bool:
        """Whether the trial is ready and no device is being freed for it."""
        if not _ready(trial, now):
            return False
        device = self.state.reserved.get(trial.id)
        if device is None:
            return True
        slot = self.state.slots[device]
        return slot.run is None or not slot.healthy or not self.state.nodes[slot.device.node].open

    def _merged(
        self,
        free: Free,
        occupants: dict[TrialId, DeviceId],
        moves: Moves,
        now: Time,
    ) -> list[TrialId]:
        """The studies' orders as one: the study with the fewest devices has the next turn."""
        open_devices = [*free, *occupants.values()]

        def eligible(trial: Trial) -> bool:
            if self._available(trial, now):
                for device in open_devices:
                    if self.queues.fits(trial, device):
                        return True
            return False

        mine: dict[StudyId, list[Trial]] = {}
        for trial in (self.state.trials[trial_id] for trial_id in (*occupants, *moves.stays)):
            mine.setdefault(trial.spec.study, []).append(trial)
        orders: dict[StudyId, list[TrialId]] = {}
        for study_id in list(self.state.studies):
            theirs = tuple(mine.get(study_id, ()))
            order = self.queues.order(study_id, len(open_devices), theirs, eligible, now)
            if order:
                orders[study_id] = order[::-1]
        if len(orders) <= 1:
            return [trial_id for order in orders.values() for trial_id in reversed(order)]
        shares = dict.fromkeys(self.state.studies, 0)
        claimants = {*occupants, *moves.stays}
        for slot in self.state.slots.values():
            if slot.run is not None and slot.run.trial not in claimants:
                shares[self.state.trials[slot.run.trial].spec.study] += 1
        merged: list[TrialId] = []
        while orders:
            study_id = min(orders, key=lambda s: shares[s])
            merged.append(orders[study_id].pop())
            shares[study_id] += 1
            if not orders[study_id]:
                del orders[study_id]
        return merged


def _ready(trial: Trial, now: Time) -> bool:
    """Whether the trial waits and may be launched now."""
    return trial.phase is Phase.WAITING and trial.candidate and trial.not_before <= now
