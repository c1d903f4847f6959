"""Best first: probe every trial once, briefly, then run the one whose loss is lowest.

Once that one is good, others that will soon be good as well go before it (see `good_soon`).
Quanta grow with the service received and with the measured cost of a switch, so that switching
stays a small share; nothing is pinned and nothing is given up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import ClassVar, Literal

from hermesd.core.model import Quantum
from hermesd.core.policy import Adapted, Facts, Field, Score, require
from hermesd.core.trial import Trial
from hermesd.policy.curve import (
    attained_seconds,
    probe_steps,
    start_loss,
    step_seconds,
    steps_of,
    switch_seconds,
    told,
)
from hermesd.policy.good_soon import LEAST, good_soon
from hermesd.policy.pace import settled

UNPROBED, PROBED, REACHED = 0.0, 1.0, 2.0
# Where it counts when a trial is good, no later quantum is longer than this share of its length.
QUANTUM_SHARE = 0.1
# First losses so many times apart, a tenth at either end left out, may be on different scales;
# fewer than these say nothing.
SPREAD, ENOUGH = 3.0, 4


@dataclass(frozen=True, slots=True)
class BestFirst:
    """The lowest loss first, unprobed trials before all, and those soon good before good ones.

    The loss is the mean of the last tenth of a trial's losses, or of its last 20 if these are
    more, or of the second half if that is less. A trial is good if its loss is within `good` of
    the way from where the leading one is going to end back to where trials begin; 0 leaves
    goodness out of the order.

    With c the measured seconds of a suspend and a resume, a first quantum is the largest of
    `probe_switches` x c, `probe_share` of the trial's planned length (20 steps while that is
    unknown) and `probe_seconds`; a later one the largest of `switches` x c, `growth` x the
    seconds served so far and the first. A probe cut short, because the length or the speed was
    not known yet, is finished before the trial counts as probed, and so is one that has not shown
    a loss yet: a study whose trials report none runs in order of submission.

    With a `target` the question is which trials reach that loss soonest: those that have go
    behind the others, and a later quantum is at most a tenth of the planned length. It is a loss
    as policies see it: lower is better, so for a maximised signal its negative.

    `scale = "relative"` ranks by the loss over the size of the trial's own first loss, for trials
    whose losses are on different scales. `auto` finds out whether they are (see `scales_differ`).
    """

    name: ClassVar[str] = "best_first"
    probe_share: float = 0.02
    probe_seconds: float = 0.5
    probe_switches: float = 2.0
    switches: float = 20.0
    growth: float = 0.3
    good: float = 0.05
    target: float = -math.inf
    scale: Literal["auto", "absolute", "relative"] = "auto"

    def __post_init__(self) -> None:
        require(0 <= self.probe_share <= 1, "probe_share", self.probe_share, "a share from 0 to 1")
        require(
            0.1 <= self.probe_seconds < math.inf,
            "probe_seconds",
            self.probe_seconds,
            "0.1 seconds or more",
        )
        for name in ("probe_switches", "switches", "growth"):
            value = getattr(self, name)
            require(0 <= value < math.inf, name, value, "0 or more")
        require(0 <= self.good < 1, "good", self.good, "a share from 0 to below 1")
        require(self.target < math.inf, "target", self.target, "a loss, or -inf for none")

    def score(self, trial: Trial) -> Score:
        if not self.probed(trial):
            return (UNPROBED, 0.0)
        reached = self.target > -math.inf and settled(trial.curve) <= self.target
        return (REACHED if reached else PROBED, self._loss(trial))

    def level(self, trial: Trial) -> float:
        """The loss on the scale that trials are ranked by; infinite before the probe is over."""
        return self._loss(trial) if self.probed(trial) else math.inf

    def suited(self, sample: Sequence[Trial]) -> BestFirst:
        """With the scale that is right for these trials; a target is a loss as it stands."""
        if self.scale != "auto" or self.target > -math.inf or not scales_differ(sample):
            return self
        return replace(self, scale="relative")

    def adapted(self, field: Field) -> Adapted | None:
        """This order, but with those that will soon be good before the good ones."""
        if self.good == 0 or self.target > -math.inf:
            return None
        adapted = good_soon(self, self.good, field)
        over = sum(trial.phase.final for trial in field.sample)
        if adapted is None or over < LEAST * len(field.sample):
            return adapted
        return replace(adapted, over=True)

    def quantum(self, trial: Trial, facts: Facts) -> Quantum:
        switch, step = switch_seconds(trial, facts), step_seconds(trial, facts)
        steps = probe_steps(trial, self.probe_share)
        first = max(self.probe_switches * switch, steps * step, self.probe_seconds)
        if not trial.explored:
            return Quantum(first)
        if trial.curve and not self.probed(trial):
            return Quantum(max((steps - trial.step) * step, self.probe_seconds))
        served = attained_seconds(trial)
        seconds = max(self.switches * switch, self.growth * served, first)
        if trial.planned_steps is None:
            return Quantum(seconds)
        share = steps_of(QUANTUM_SHARE, trial.planned_steps)
        if self.target > -math.inf:
            return Quantum(seconds, until_step=trial.step + share)
        if self.good == 0:
            return Quantum(seconds)
        return Quantum(min(seconds, max(self.switches * switch, first, share * step)))

    def words(self, trial: Trial) -> str:
        kind, value = self.score(trial)
        if kind == UNPROBED:
            return "no loss seen yet" if trial.explored and not trial.curve else "not probed yet"
        if math.isinf(value):
            return "no loss seen yet"
        shown = told(trial, value)
        if self.scale == "relative":
            shown = f"loss over its first {value:.4g}"
        return f"{shown}{', target reached' if kind == REACHED else ''}"

    def _loss(self, trial: Trial) -> float:
        """The loss over its unit; infinite without one."""
        loss = settled(trial.curve)
        if self.scale != "relative":
            return loss
        unit = self.unit(trial)
        return loss / unit if unit < math.inf else math.inf

    def unit(self, trial: Trial) -> float:
        """What a trial's losses are divided by; inf if its first loss is no size."""
        if self.scale != "relative":
            return 1.0
        size = abs(start_loss(trial))
        return size if 0 < size < math.inf else math.inf

    def probed(self, trial: Trial) -> bool:
        """Whether the probe is over: not before a first loss, which may come once an epoch only.

        One whose losses are no numbers has nothing better to show.
        """
        if not trial.quanta or not (trial.curve or trial.not_finite):
            return False
        return trial.latest is None or trial.step >= probe_steps(trial, self.probe_share)


def scales_differ(trials: Sequence[Trial]) -> bool:
    """Whether the losses of these trials are on different scales.

    First losses differ by more than `SPREAD` times then, and the range of the losses of the first
    quantum with them: a penalty that is added to a loss moves the former only. The range must
    grow by the square root of that at least, between the halves of lower and higher first losses.
    Only losses above 0 have a scale: an accuracy, or a likelihood of either sign, has none.
    """
    known = sorted(
        (start_loss(trial), trial.first.high - trial.first.low)
        for trial in trials
        if trial.first is not None and start_loss(trial) < math.inf
    )
    if len(known) < ENOUGH or known[0][0] <= 0:
        return False
    tail, half = len(known) // 10, len(known) // 2
    if known[-1 - tail][0] <= SPREAD * known[tail][0]:
        return False
    (low, narrow), (high, wide) = (
        map(median, zip(*part, strict=True)) for part in (known[:half], known[-half:])
    )
    return bool(wide * math.sqrt(low) > narrow * math.sqrt(high))
