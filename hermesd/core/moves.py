"""Who may go on to a better device in one decision, while the device's turn is up anyway.

Rule: a trial moves while its own quantum lasts only to a device that is open, before all who
deserve it less, and only if its placement says that this costs less than to stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from hermesd.core.model import Device, DeviceId, StudyId, TrialId
from hermesd.core.queues import Queues
from hermesd.core.state import State
from hermesd.core.trial import Trial

# A study's most deserving trials on each kind of device that come into question.
IN_QUESTION = 8

Cost: TypeAlias = tuple[float, ...]


class Moves:
    """The trials that come into question, and those that have moved.

    `stays` are running trials on kinds slower than one that is open, their quantum not over, with
    their devices. `left` are the trials that leave their devices, with the free device that is
    kept for each; None if one is being freed for it. `displaced` are those that it is freed of.
    """

    def __init__(self, state: State, queues: Queues, open_devices: Sequence[DeviceId]) -> None:
        self.state = state
        self.queues = queues
        self.stays: dict[TrialId, DeviceId] = {}
        self.left: dict[TrialId, DeviceId | None] = {}
        self.displaced: set[TrialId] = set()
        self._studies = [
            study for study in state.studies if queues.placement(study).moves(state.facts[study])
        ]
        if self._studies:
            kinds = {state.slots[device].device.kind for device in open_devices}
            for study in self._studies:
                self._find(study, kinds)

    def _find(self, study: StudyId, kinds: Iterable[str]) -> None:
        """Note the study's running trials that an open device may suit better."""
        speeds = self.state.facts[study].speeds
        fastest = max((speeds[kind].factor for kind in kinds if kind in speeds), default=0.0)
        slower = [kind for kind, speed in speeds.items() if speed.factor < fastest]
        for trial_id in self.queues.staying(study, slower, IN_QUESTION) if slower else ():
            run = self.state.trials[trial_id].run
            assert run is not None
            self.stays[trial_id] = run.devices[0]

    def better(
        self,
        trial: Trial,
        free: Iterable[DeviceId],
        occupants: Mapping[TrialId, DeviceId],
        position: Mapping[TrialId, int],
    ) -> DeviceId | None:
        """The open device that the running trial does best to move to; None: it does best to stay.

        Of devices that are as good a free one comes first, then that of the least deserving.
        """
        if trial.spec.study not in self._studies or trial.run is None:
            return None
        least = self._cost(trial, self._device(trial.run.devices[0]))
        found: DeviceId | None = None
        by_rank = sorted(occupants, key=lambda t: -position.get(t, len(position)))
        for device in (*free, *(occupants[each] for each in by_rank)):
            if self.queues.fits(trial, device):
                cost = self._cost(trial, self._device(device))
                if cost < least:
                    least, found = cost, device
        return found

    def _cost(self, trial: Trial, device: Device) -> Cost:
        study = trial.spec.study
        return self.queues.placement(study).cost(trial, device, self.state.facts[study])

    def _device(self, device: DeviceId) -> Device:
        return self.state.slots[device].device
