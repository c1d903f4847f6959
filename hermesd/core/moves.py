"""Who may go on to a better device in one decision, while the device's turn is up anyway.

Rule: a trial moves to a device that is open anyway, before all who deserve it less, and only if
that saves more seconds than the switches take: its own, and that of a trial that makes room. What
it takes from another is no saving (see `Free`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain

from hermesd.core.model import Device, DeviceId, StudyId, TrialId
from hermesd.core.placement import switch_seconds
from hermesd.core.queue import Sort
from hermesd.core.queues import Queues
from hermesd.core.state import State
from hermesd.core.trial import Trial

# A study's most deserving trials on each sort of device that come into question.
IN_QUESTION = 8


class Moves:
    """The trials that come into question, and those that have moved.

    `stays` are running trials on devices slower than one that is open, their quantum not over, with
    their devices. `left` are the trials that leave their devices, with the free device that is
    kept for each; None if one is being freed for it. `displaced` are those that it is freed of.
    """

    def __init__(
        self,
        state: State,
        queues: Queues,
        open_devices: Sequence[DeviceId],
        studies: Iterable[StudyId],
    ) -> None:
        self.state = state
        self.queues = queues
        self.stays: dict[TrialId, DeviceId] = {}
        self.left: dict[TrialId, DeviceId | None] = {}
        self.displaced: set[TrialId] = set()
        self._studies = [
            study
            for study in studies
            if state.speeds(study).unequal and not queues.placement(study).binds
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
        here = slots[trial.run.devices[0]].device
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
