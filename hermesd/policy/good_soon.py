"""Once the leader is good: runs the trials that will soon be good before it.

A trial is good once its loss is within a small share of the way from where the leader will end back
to where trials begin, or where the best quarter of the trials will end, if that is higher. From
then on the leader's place is certain, and training it further is not urgent, so a trial that needs
little more to be good goes before it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import ClassVar, Protocol

from hermesd.core.losses import Chunk
from hermesd.core.model import Quantum
from hermesd.core.policy import Facts, Field, Ranking, Score
from hermesd.core.trial import Trial
from hermesd.policy.curve import own_step_seconds, start_loss
from hermesd.policy.pace import Track, track

UNPROBED, SOON, GOOD, LATER, NEVER = 0.0, 1.0, 2.0, 3.0, 4.0
# A trial goes before a good one if that needs so many times the seconds to its end. With two times,
# recorded curves have more good trials early, but the best one later, and other kinds of curves
# lose.
WORTH = 3.0
# At least this share of the trials are meant by the good ones; where more than the other share
# would be, to be good says little.
LEAST, MOST = 0.25, 0.75


class GoodSoonOrder(Protocol):
    """What is needed of `best_first` itself."""

    name: ClassVar[str]

    def score(self, trial: Trial) -> Score: ...
    def quantum(self, trial: Trial, facts: Facts) -> Quantum: ...
    def words(self, trial: Trial) -> str: ...
    def probed(self, trial: Trial) -> bool: ...
    def level(self, trial: Trial) -> float: ...
    def unit(self, trial: Trial) -> float: ...


@dataclass(frozen=True, slots=True)
class GoodSoon:
    """The ranking of one decision."""

    name: ClassVar[str] = "best_first"
    order: GoodSoonOrder
    leader: Track
    #: The loss from which a trial is good.
    good: float
    #: The step at which the leader was.
    reached: float
    #: Its length.
    planned: int
    #: The seconds that the best good candidate needs to its end.
    rest: float = math.inf

    @property
    def fronts(self) -> Sequence[Score]:
        """The trials that are not good yet are looked at however many are."""
        return ((1.0, math.nextafter(self.good, math.inf)),)

    def facing(self, first: Trial) -> Ranking:
        """This order, with the rest of the best candidate if it is good."""
        if self.order.level(first) > self.good:
            return self
        left = (first.planned_steps or self.planned) - first.step
        return replace(self, rest=left * (own_step_seconds(first) or math.inf))

    def score(self, trial: Trial) -> Score:
        if not self.order.probed(trial):
            return self.order.score(trial)
        loss = self.order.level(trial)
        if loss <= self.good:
            return (GOOD, loss)
        seconds = self.seconds_to_good(trial)
        if math.isinf(seconds):
            return (NEVER, loss)
        return (SOON if WORTH * seconds < self.rest else LATER, seconds)

    def quantum(self, trial: Trial, facts: Facts) -> Quantum:
        return self.order.quantum(trial, facts)

    def words(self, trial: Trial) -> str:
        kind, value = self.score(trial)
        said = self.order.words(trial)
        if kind in (SOON, LATER):
            return f"{said}, good in about {value:.3g} s"
        return f"{said}, good already" if kind == GOOD else said

    def seconds_to_good(self, trial: Trial) -> float:
        """The seconds that a probed trial needs to be good, at its pace; inf if it never will."""
        loss, each = self.order.level(trial), own_step_seconds(trial)
        if not math.isfinite(loss) or each is None or trial.step == 0:
            return math.inf
        step = self.reached / pace(self.leader, trial, loss)
        if step > (trial.planned_steps or self.planned):
            return math.inf
        return max(0.0, step - trial.step) * each


def pace(leader: Track, trial: Trial, loss: float) -> float:
    """How many of the leader's steps one of the trial's was worth, to come to its loss."""
    return leader.step_of(loss) / trial.step


# Slownesses are logarithms of 1 / pace; this is that of a trial that shows nothing.
SLOWEST = 4.0


def slowness_of(path: Track, level: float, step: float) -> float:
    """How many times as many steps as the leader a trial needs for its loss, as a logarithm."""
    return min(SLOWEST, -math.log(max(path.step_of(level), 0.5) / step))


def path_of(order: GoodSoonOrder, leader: Trial) -> Track | None:
    """The track of the leader on the scale of the order; None if its losses are not all finite."""
    unit = order.unit(leader)
    curve: Sequence[Chunk] = leader.curve
    if unit != 1.0:
        curve = [chunk._replace(total=chunk.total / unit) for chunk in curve]
    if not curve or not all(math.isfinite(chunk.total) for chunk in curve):
        return None
    return track(curve)


def good_soon(
    order: GoodSoonOrder, share: float, field: Field, most: float = MOST
) -> GoodSoon | None:
    """The ranking for a field; None where plain best first is right.

    That is before the leader is good, when nothing can be predicted, and where more than `most` of
    the trials would be good.
    """
    leader = field.leader
    if not leader.planned_steps:
        return None
    path, planned = path_of(order, leader), leader.planned_steps
    begins = [start_loss(trial) / order.unit(trial) for trial in (leader, *field.sample)]
    begins = [begin for begin in begins if math.isfinite(begin)]
    if not begins or path is None:
        return None
    levels = [(trial, order.level(trial)) for trial in field.sample if trial.step]
    paces = [
        (pace(path, trial, level), trial.planned_steps or planned)
        for trial, level in levels
        if math.isfinite(level)
    ]
    end = path.loss_by(planned)
    ends = sorted(path.loss_by(each * length) for each, length in paces)
    good = end + share * (median(begins) - end)
    if quarter := int(LEAST * len(ends)):
        good = max(good, ends[quarter - 1])
    if not order.level(leader) <= good < math.inf:
        return None
    reached = path.step_of(good)
    if reached <= path.steps[0]:
        return None  # It showed nothing of the way there, and the others are where it never was.
    if sum(reached <= each * length for each, length in paces) > most * len(paces):
        return None
    return GoodSoon(order, path, good, reached, planned)
