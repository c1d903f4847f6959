"""What is really so, whatever anybody believes: who computes on which device.

This is where a split brain, a device that was handed on too early, or a lost outcome shows.
"""

from __future__ import annotations

from hermesd.core.model import DeviceId, RunId, TrialId


class GroundTruthBroken(AssertionError):
    """Something happened that must never happen."""


class Ground:
    """The devices and trials that compute at this moment, and what was trained so far."""

    def __init__(self) -> None:
        self.slowness: dict[DeviceId, float] = {}  # where iterations take longer: so many times
        self.devices: dict[DeviceId, RunId] = {}
        self.trials: dict[TrialId, RunId] = {}
        self.begun: set[RunId] = set()
        self.trained: dict[TrialId, float] = {}
        self.rebuilt = 0  # so many runs went on in a process that stood ready for them

    def begin(self, run: RunId, devices: tuple[DeviceId, ...]) -> None:
        """A run computes from now on.

        Raises:
            GroundTruthBroken: its device is taken, its trial computes elsewhere, or it began
                before.
        """
        if run in self.begun:
            raise GroundTruthBroken(f"{run} began a second time")
        if run.trial in self.trials:
            raise GroundTruthBroken(f"{run} begins while {self.trials[run.trial]} computes")
        for device in devices:
            if device in self.devices:
                raise GroundTruthBroken(
                    f"{run} begins on {device}, where {self.devices[device]} computes"
                )
        self.begun.add(run)
        self.trials[run.trial] = run
        self.devices.update(dict.fromkeys(devices, run))

    def slowness_of(self, run: RunId) -> float:
        """How many times as long as recorded a run's iterations take, where it computes."""
        on = (device for device, holder in self.devices.items() if holder == run)
        return max((self.slowness.get(device, 1.0) for device in on), default=1.0)

    def train(self, trial: TrialId, seconds: float) -> None:
        """A trial was trained for so long."""
        self.trained[trial] = self.trained.get(trial, 0.0) + seconds

    def end(self, run: RunId) -> None:
        """A run computes no more, whether it did or not."""
        if self.trials.get(run.trial) == run:
            del self.trials[run.trial]
        for device in [name for name, holder in self.devices.items() if holder == run]:
            del self.devices[device]
