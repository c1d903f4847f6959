"""How many more devices each user may have, if there is a quota.

A device that is reserved for a trial counts as if the trial ran, unless the same user's other trial
gives it back. So a quota holds at every moment, and not only between two decisions.
"""

from __future__ import annotations

import math

from hermesd.core.model import Phase, UserId
from hermesd.core.tables import Tables
from hermesd.core.trial import Trial


class DeviceQuotas:
    """What is left of each quota, as devices are given out in one decision."""

    def __init__(self, state: Tables) -> None:
        self._state = state
        self._left = {
            user: terms.max_devices - state.devices_of(user)
            for user, terms in state.terms.items()
            if terms.max_devices is not None
        }
        if self._left:
            for trial_id, device in state.reserved.items():
                trial = state.trials.get(trial_id)
                if trial is not None and trial.phase is Phase.WAITING:
                    run = state.slots[device].run
                    self.take(trial, None if run is None else state.trials.get(run.trial))
            for trial_id, devices in state.gathering.items():
                trial = state.trials.get(trial_id)
                for run in (state.slots[device].run for device in devices):
                    if trial is not None:
                        self.take(trial, None if run is None else state.trials.get(run.trial))

    def left(self, trial: Trial) -> float:
        """How many more devices the trial's user may have."""
        return self.left_of(self._owner(trial)) if self._left else math.inf

    def left_of(self, user: UserId) -> float:
        """How many more devices a user may have."""
        return self._left.get(user, math.inf)

    def full(self, trial: Trial) -> bool:
        """Whether the trial's user may have no more devices."""
        return self._of(trial) <= 0

    def over(self, trial: Trial) -> bool:
        """Whether the trial's user has more devices than they may have: the quota was lowered."""
        return self._of(trial) < 0

    def shares(self, trial: Trial, other: Trial) -> bool:
        """Whether a device may go from one to the other for all that quotas say."""
        return not self.full(trial) or self._owner(trial) == self._owner(other)

    def take(self, trial: Trial, before: Trial | None) -> None:
        """The trial is given a device, which the one before it gives back."""
        if self._left and (before is None or self._owner(before) != self._owner(trial)):
            self._count(trial, -1)

    def give(self, trial: Trial) -> None:
        """The trial gives its device back."""
        self._count(trial, 1)

    def _owner(self, trial: Trial) -> UserId:
        return self._state.owner_of(trial)

    def _of(self, trial: Trial) -> int:
        return self._left.get(self._owner(trial), 1) if self._left else 1

    def _count(self, trial: Trial, more: int) -> None:
        owner = self._owner(trial)
        if owner in self._left:
            self._left[owner] += more
