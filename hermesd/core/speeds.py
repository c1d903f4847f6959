"""How fast each device trains a study's trials, learned from the trials' own reports.

The speed of a device is that of its kind, times a correction of its own. The factor of a kind
belongs to the study. A trial that was measured on a kind is as fast there as it was. For any other
pair it is estimated by equation (1) of Hermes-v2, P_G(j) = T(j_t) B(j) / B(j_t), with j_t the first
trial measured on kind G. T / B are steps a second, so two kinds whose first trials had different
batch sizes are misjudged, until a trial has been measured on both.

The correction belongs to the device, whatever the study: equal GPUs may have different lanes, or be
throttled. It comes only from trials that ran on two devices of the kind, since trials differ by
more than devices do. A few numbers for each kind and device suffice, however many trials and
reports there are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from hermesd.core.fast_replace import replace
from hermesd.core.model import Device, DeviceId, TrialId
from hermesd.core.trial import Trial

# How much a later comparison of two kinds or devices, or a later report, weighs at least.
WEIGHT = 0.2
# Iterations of trials of one study differ by so much on the same device, by batch and optimizer.
DOUBT = 3.0
# A device differs by what is beyond so many deviations of the mean of its comparisons. They are
# fewer than they seem: consecutive ones share a quantum, and noise lasts.
CERTAIN = 4.0
# Iterations on one device vary by as much from quantum to quantum: no trial moves for less.
ALIKE = 0.05


@dataclass(frozen=True, slots=True)
class Speed:
    """A kind of device, as a study knows it; both speeds are those of a device of the kind that
    needs no correction."""

    #: The first trial that was measured there.
    first: TrialId
    #: Its steps a busy second.
    rate: float
    #: How fast the kind is beside the study's other kinds: `rate` until a trial was measured on
    #: this kind and on another one, what such trials showed since.
    factor: float
    #: One was.
    paired: bool = False


@dataclass(frozen=True, slots=True)
class Evidence:
    """What comparisons with its like say of a device.

    Each is the logarithm of its speed beside theirs. The means are of the first comparisons, in
    which later ones weigh `WEIGHT`: a card that is throttled today was not yesterday.
    """

    count: int = 0
    #: The mean of the comparisons.
    log_ratio: float = 0.0
    #: The mean of how far each was off the mean before it, of the first one off 0.
    spread: float = 0.0

    @property
    def correction(self) -> float:
        """The device's speed beside its kind's, as near to 1 as the comparisons' noise allows."""
        share = max(1.0 / max(self.count, 1), WEIGHT / (2.0 - WEIGHT))
        sure = abs(self.log_ratio) - CERTAIN * self.spread * math.sqrt(share)
        return math.exp(math.copysign(max(sure, 0.0), self.log_ratio))

    def with_one(self, log_ratio: float) -> Evidence:
        """After one more comparison."""
        weight = max(1.0 / (self.count + 1), WEIGHT)
        off = log_ratio - self.log_ratio
        return Evidence(
            self.count + 1,
            self.log_ratio + weight * off,
            self.spread + weight * (abs(off) - self.spread),
        )


@dataclass(frozen=True)
class Speeds:
    """What a study may know: its kinds of devices, and the corrections of all devices that differ
    from their kind by more than `ALIKE`."""

    kinds: Mapping[str, Speed]
    corrections: Mapping[DeviceId, float]

    @property
    def unequal(self) -> bool:
        """Whether it matters at all on which device a trial runs, as far as is known."""
        return len(self.kinds) > 1 or bool(self.corrections)

    @cached_property
    def best_correction(self) -> float:
        """No device is faster beside its kind."""
        return max((1.0, *self.corrections.values()))

    def correction(self, device: DeviceId) -> float:
        """A device's speed beside its kind's; 1 for one that is as fast, or not known to differ."""
        return self.corrections.get(device, 1.0)

    def factor(self, device: Device) -> float | None:
        """The speed of a device beside the study's others; None while its kind is unmeasured."""
        known = self.kinds.get(device.kind)
        return known.factor * self.correction(device.id) if known else None


def differs(evidence: Evidence) -> bool:
    """Whether a device differs from its kind by more than one device does from day to day."""
    return abs(math.log(evidence.correction)) > math.log(1 + ALIKE)


def compared(
    trial: Trial, device: Device, corrections: Mapping[DeviceId, float]
) -> tuple[DeviceId, float, float] | None:
    """What a trial's last quantum on a device says of it and of the last other one of its kind:
    that one, and for each of the two the logarithm of its speed beside the kind's.

    Each is held against what is believed of the other, so that all corrections together are those
    that fit the comparisons best, whoever is compared with whom. None while there was no other.
    """
    here, *others = trial.paces.get(device.kind, ())
    if not others or here.device != device.id:
        return None
    (other,) = others
    ahead = math.log(other.seconds / here.seconds)
    mine = math.log(corrections.get(here.device, 1.0))
    theirs = math.log(corrections.get(other.device, 1.0))
    return other.device, theirs + ahead, mine - ahead


def learned(
    kinds: dict[str, Speed], corrections: Mapping[DeviceId, float], trial: Trial, kind: str
) -> dict[str, Speed]:
    """The kinds after a report of a trial that runs on a device of `kind`."""
    rate = 1.0 / _typical_seconds(trial, kind, corrections)
    if kind in kinds and kinds[kind].first != trial.id and len(trial.step_seconds) == 1:
        return kinds
    known = dict(kinds)
    speed = known.setdefault(kind, Speed(trial.id, rate, rate))
    if speed.first == trial.id:
        speed = replace(speed, rate=rate, factor=speed.factor if speed.paired else rate)
    for other in trial.step_seconds:
        if other == kind or other not in known:
            continue
        beside, ratio = known[other], rate * _typical_seconds(trial, other, corrections)
        if not speed.paired:
            speed = replace(speed, factor=beside.factor * ratio, paired=True)
        elif beside.paired:
            drift = (beside.factor * ratio / speed.factor) ** WEIGHT
            speed = replace(speed, factor=speed.factor * drift)
        else:
            beside = replace(beside, factor=speed.factor / ratio)
        known[other] = replace(beside, paired=True)
    known[kind] = speed
    return known


def _typical_seconds(trial: Trial, kind: str, corrections: Mapping[DeviceId, float]) -> float:
    """Seconds an iteration of a measured trial on a device of the kind that needs no correction."""
    seconds, paces = trial.step_seconds[kind], trial.paces.get(kind)
    return seconds * corrections.get(paces[0].device, 1.0) if paces else seconds


def typical_rate(speeds: Speeds, trial: Trial, kind: str) -> float | None:
    """Steps a second of the trial on a device of the kind that needs no correction: measured or
    predicted; None for a kind unknown yet."""
    if kind in trial.step_seconds:
        return 1.0 / _typical_seconds(trial, kind, speeds.corrections)
    if kind not in speeds.kinds:
        return None
    factor = speeds.kinds[kind].factor
    for other in trial.step_seconds:
        if other in speeds.kinds:
            seconds = _typical_seconds(trial, other, speeds.corrections)
            return factor / speeds.kinds[other].factor / seconds
    return factor


def rate(speeds: Speeds, trial: Trial, device: Device) -> float | None:
    """Steps a second of the trial on a device; None while nothing is known of its kind."""
    typical = typical_rate(speeds, trial, device.kind)
    return None if typical is None else typical * speeds.correction(device.id)


def best_rate(speeds: Speeds, trial: Trial) -> float:
    """No device that is known is faster for the trial; 0 if none is known."""
    kinds = max((typical_rate(speeds, trial, kind) or 0.0 for kind in speeds.kinds), default=0.0)
    return kinds * speeds.best_correction


def lead(speeds: Speeds, trial: Trial, here: Device, there: Device) -> float:
    """The share of its speed by which a device is ahead of another for the trial; 0 if it is not.

    While no trial ran on both kinds, each may have been measured on another sort of trial, so that
    only what goes beyond `DOUBT` times counts.
    """
    slow, fast = rate(speeds, trial, here), rate(speeds, trial, there)
    if not slow or not fast:
        return 0.0
    compared = {kind for kind, speed in speeds.kinds.items() if speed.paired}
    sure = {here.kind, there.kind} <= compared | trial.step_seconds.keys()
    doubt = 1.0 if sure or here.kind == there.kind else DOUBT
    return max(0.0, 1.0 - doubt * slow / fast)


def performance(speeds: Speeds, trial: Trial, device: Device) -> float | None:
    """P_G(j) of Hermes-v2, equation (1), in examples a second; None while G is unmeasured."""
    known = speeds.kinds.get(device.kind)
    return known.rate * speeds.correction(device.id) * batch(trial) if known else None


def steps_ahead(trial: Trial) -> int:
    """How many iterations a trial is taken to have ahead: as many as behind, if not fewer."""
    steps = max(trial.step, 1)
    if trial.planned_steps is not None:
        steps = min(steps, max(trial.planned_steps - trial.step, 0))
    return steps


def batch(trial: Trial) -> float:
    """The trial's batch size, by the first hyper-parameter with "batch" in its name; 1 without."""
    for name, value in trial.spec.parameters:
        if "batch" not in name.lower() or isinstance(value, bool | str | tuple):
            continue
        if value > 0:
            return float(value)
    return 1.0
