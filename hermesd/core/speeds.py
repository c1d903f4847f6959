"""How fast each kind of device trains a study's trials, learned from the trials' own reports.

Rule: a trial that was measured on a kind is as fast there as it was; for any other pair equation
(1) of Hermes-v2 is the guess, P_G(j) = T(j_t) B(j) / B(j_t) with j_t the first trial measured on
kind G. T / B are steps a second, so two kinds whose first trials had different batches are
misjudged; the first trial that is measured on both sets that right. A few numbers a kind, whatever
the number of trials and reports.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from hermesd.core.change import replace
from hermesd.core.model import TrialId
from hermesd.core.trial import Trial

# How much a later comparison of two kinds, or a later report, weighs.
WEIGHT = 0.2
# Iterations of trials of one study differ by so much on the same device, by batch and optimizer.
DOUBT = 3.0


@dataclass(frozen=True, slots=True)
class Speed:
    """A kind of device, as a study knows it.

    `first` is the first trial that was measured there and `rate` its steps a busy second.
    `factor` tells how fast the kind is beside the study's other kinds: `rate` until a trial was
    measured on this kind and on another one, what such trials showed since (`paired`).
    """

    first: TrialId
    rate: float
    factor: float
    paired: bool = False


Speeds: TypeAlias = Mapping[str, Speed]


def learned(speeds: dict[str, Speed], trial: Trial, kind: str) -> dict[str, Speed]:
    """The speeds after a report of a trial that runs on a device of `kind`."""
    rate = 1.0 / trial.step_seconds[kind]
    if kind in speeds and speeds[kind].first != trial.id and len(trial.step_seconds) == 1:
        return speeds
    known = dict(speeds)
    speed = known.setdefault(kind, Speed(trial.id, rate, rate))
    if speed.first == trial.id:
        speed = replace(speed, rate=rate, factor=speed.factor if speed.paired else rate)
    for other, seconds in trial.step_seconds.items():
        if other == kind or other not in known:
            continue
        beside, ratio = known[other], rate * seconds
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


def rate(speeds: Speeds, trial: Trial, kind: str) -> float | None:
    """Steps a second of the trial on a kind: its own or predicted; None for a kind unknown yet."""
    if kind in trial.step_seconds:
        return 1.0 / trial.step_seconds[kind]
    if kind not in speeds:
        return None
    factor = speeds[kind].factor
    for other, seconds in trial.step_seconds.items():
        if other in speeds:
            return factor / speeds[other].factor / seconds
    return factor


def lead(speeds: Speeds, trial: Trial, here: str, there: str) -> float:
    """The share of its speed by which a kind is ahead of another for the trial; 0 if it is not.

    While no trial ran on both, each may have been measured on another sort of trial, so that only
    what goes beyond `DOUBT` times counts.
    """
    slow, fast = rate(speeds, trial, here), rate(speeds, trial, there)
    if not slow or not fast:
        return 0.0
    compared = {kind for kind, speed in speeds.items() if speed.paired} | trial.step_seconds.keys()
    doubt = 1.0 if {here, there} <= compared else DOUBT
    return max(0.0, 1.0 - doubt * slow / fast)


def performance(speeds: Speeds, trial: Trial, kind: str) -> float | None:
    """P_G(j) of Hermes-v2, equation (1), in examples a second; None while G is unmeasured."""
    return speeds[kind].rate * batch(trial) if kind in speeds else None


def batch(trial: Trial) -> float:
    """The trial's batch size, by the first hyper-parameter with "batch" in its name; 1 without."""
    for name, value in trial.spec.parameters:
        if "batch" in name.lower() and type(value) in (int, float) and float(value) > 0:
            return float(value)
    return 1.0
