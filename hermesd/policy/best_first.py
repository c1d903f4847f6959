"""Best first: probes every trial once, briefly, then runs the one with the lowest loss.

In a study of many trials one trains on before the last one was probed (see `TrainingOn`).
Where losses fall fast, what fell further counts as lower (see `Falling`). Once the trial that leads
is good, others that will soon be good as well go before it (see `good_soon`). Quanta grow with the
service received and with the measured cost of a switch, so switching remains a small share of the
time. No trial is bound to a device, and none is given up.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from statistics import median
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from hermesd.core.model import Quantum, TrialSpec
from hermesd.core.policy import Adapted, Earlier, Facts, Field, Ranking, Score, require
from hermesd.core.trial import Trial
from hermesd.policy.curve import (
    PROBE_STEPS,
    attained_seconds,
    probe_steps,
    start_loss,
    step_seconds,
    steps_of,
    switch_seconds,
    told,
)
from hermesd.policy.good_soon import LATER, SOON, GoodSoon, good_soon, path_of, slowness_of
from hermesd.policy.memory import Memory, Outlook, rank_correlation, why_none
from hermesd.policy.pace import settled
from hermesd.policy.reliability import TOLD_APART, Reliability, reliability_of

UNPROBED, PROBED, REACHED = 0.0, 1.0, 4.0
# Those that were not probed, where enough others were for now: after all that may yet be good.
DEFERRED = 3.5
# After all of these and of `good_soon`'s.
UNPROMISING = 5.0
# Where predictions count: those that will soon be good, then all others by merit, before those that
# have shown no loss that is a number.
HURRIES, MERIT = 0.25, 0.5
# What a trial that was not probed is taken to have by loss, between the best at 0 and the worst,
# unless most of the trials have settings that ran before: then it is last, as what is predicted is
# firmer, and a probe would add less.
MIDDLING = 0.5
# Where none that was probed has yet to become good, one that may be below this is probed.
BAR = 1.0
# Where it counts when a trial is good, no later quantum is longer than this share of its length.
QUANTUM_SHARE = 0.1
# No probe is longer than this share of the length only because switches are expensive.
PROBE_MOST = 0.03
# What takes no more switches than these to train to its end is not suspended before.
ENDS_SOON = 4.0
# Fewer trials than these do not say whether a probe tells them apart.
PROBED_ENOUGH = 8
# Losses that rank as the first ones did are taken to show only how trials began.
INHERITED = 0.9
# The lowest losses of a probe are steady if halfway through it they were below the others in so
# many of the pairs, less a standard deviation of what chance would give. Fewer trials than these
# don't say.
STEADY, STEADY_ENOUGH = 0.8, 16
# Losses fall fast if the median fall over the second half of the probes is beyond this share of the
# difference between the quartiles at their end. A trial then counts as lower by so much of its fall
# over the second half of its steps.
FAST, FALL = 0.5, 0.35
# First losses so many times apart, a tenth at either end left out, may be on different scales;
# fewer than these say nothing.
SPREAD, ENOUGH = 3.0, 4


@dataclass(frozen=True, slots=True)
class BestFirst:
    """The lowest loss first, unprobed trials before all, and those soon good before good ones.

    The loss is the mean of the last tenth of a trial's losses, or of its last 20 if these are more,
    or of the second half if that is less.

    A probe is a number of steps, the same for a slow trial as for a fast one. A probe cut short,
    because the length or the speed was not known yet, is finished before the trial counts as
    probed, and so is one that has not shown a loss yet: a study whose trials report none runs in
    order of submission. A later quantum is at least as long as a probe. Below, c is the measured
    seconds of a suspend and a resume.
    """

    name: ClassVar[str] = "best_first"
    #: A probe's share of the trial's planned length, or of the shortest length known in the study
    #: while the trial has told none (20 steps while none is known).
    probe_share: float = 0.025
    #: A probe is never shorter than this at the study's typical speed.
    probe_seconds: float = 0.5
    #: A probe is longer if so many times c are, up to 3 % of the length.
    probe_switches: float = 2.0
    #: While the trials probed so far fall faster than they differ, rank as they did at first, or
    #: are the lowest by chance (see `indistinct`), all are probed up to this share of their length;
    #: 0 turns that off.
    second_look: float = 0.08
    #: A later quantum is at least so many times c.
    switches: float = 20.0
    #: A later quantum is at least this share of the seconds served so far.
    growth: float = 0.3
    #: A trial is good if its loss is within this share of the way from where the leading one is
    #: going to end back to where trials begin; 0 leaves goodness out of the order.
    good: float = 0.05
    #: Which trials reach this loss soonest? Those that have go behind the others, and a later
    #: quantum is at most a tenth of the planned length. It is a loss as policies see it: lower is
    #: better, so for a maximized signal its negative.
    target: float = -math.inf
    #: `relative` ranks by the loss over the size of the trial's own first loss, for trials whose
    #: losses are on different scales; `auto` finds out whether they are (see `scales_differ`).
    scale: Literal["auto", "absolute", "relative"] = "auto"
    history: Literal["own", "shared", "off"] = "own"

    def __post_init__(self) -> None:
        for name in ("probe_share", "second_look"):
            value = getattr(self, name)
            require(0 <= value <= 1, name, value, "a share from 0 to 1")
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
        loss = self._loss(trial)
        if self.target > -math.inf and settled(trial.curve) <= self.target:
            return (REACHED, loss)
        return (PROBED if self.probed(trial) else UNPROBED, loss)

    def remembering(self, earlier: Sequence[Earlier], specs: Sequence[TrialSpec]) -> BestFirst:
        """With what earlier studies predict for these trials; itself where that is nothing."""
        memory = Memory(earlier if self.history != "off" else (), specs)
        if not memory.studies:
            return self
        settings = {each.name: getattr(self, each.name) for each in fields(self)}
        return Recalling(
            **settings, memory=memory, reliability=reliability_of(tuple(earlier), memory.ran_before)
        )

    def remembered(self, earlier: Sequence[Earlier], specs: Sequence[TrialSpec]) -> str:
        """Why it goes by no earlier study."""
        return why_none(self.history, earlier, specs)

    def level(self, trial: Trial) -> float:
        """The loss on the scale that trials are ranked by; infinite before the probe is over."""
        return self._loss(trial) if self.probed(trial) else math.inf

    def suited(self, sample: Sequence[Trial]) -> BestFirst:
        """With the scale and the probe that are right for these trials.

        A target is a loss as it stands, whatever the scales.
        """
        scaled = self.scale == "auto" and self.target == -math.inf and scales_differ(sample)
        suited = replace(self, scale="relative") if scaled else self
        if suited.probe_share < self.second_look and suited.looks_again(sample):
            suited = replace(suited, probe_share=self.second_look)
        return suited

    def looks_again(self, sample: Sequence[Trial]) -> bool:
        """Whether these trials are to be probed up to `second_look`, the lowest losses first."""
        return indistinct(self, sample)

    def adapted(self, field: Field) -> Adapted | None:
        """The order by losses; with those that were probed before others where these are enough
        for now."""
        by_losses = self.by_losses(field)
        return TrainingOn(self, by_losses, field, self) if field.enough else by_losses

    def by_losses(self, field: Field) -> Adapted | None:
        """This order, but with those that will soon be good before the good ones; before any is
        good, that of where each is heading if losses fall fast."""
        if self.target > -math.inf:
            return None
        adapted = good_soon(self, self.good, field) if self.good else None
        return adapted or (Falling(self) if falls_fast(self, field.sample) else None)

    def quantum(self, trial: Trial, facts: Facts) -> Quantum:
        switch, step = switch_seconds(trial, facts), step_seconds(trial, facts)
        planned = trial.planned_steps or facts.planned_steps
        if planned and 0 < (planned - trial.step) * step <= ENDS_SOON * switch:
            return Quantum(until_step=planned)
        steps = self._probe_steps(trial, facts)
        least = max(self.probe_seconds, 0 if step else self.probe_switches * switch)
        first = max(steps * step, least)
        if not trial.explored:
            if first == least:
                return Quantum(first)
            # Steps, not seconds: what is typical says little of a trial whose own are longer.
            return Quantum(until_step=max(steps, trial.step + 1))
        if trial.curve and not self.probed(trial):
            return Quantum(until_step=probe_steps(trial, self.probe_share))
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

    def _probe_steps(self, trial: Trial, facts: Facts) -> int:
        """The iterations of the first quantum: more where a switch takes long, within reason."""
        planned = trial.planned_steps or facts.planned_steps
        least = steps_of(self.probe_share, planned) if planned else PROBE_STEPS
        step = step_seconds(trial, facts)
        if not step:
            return least
        worth = math.ceil(self.probe_switches * switch_seconds(trial, facts) / step)
        most = steps_of(max(PROBE_MOST, self.probe_share), planned) if planned else worth
        return max(least, min(worth, most))

    def words(self, trial: Trial) -> str:
        kind, value = self.score(trial)
        if kind == UNPROBED:
            if trial.explored and not trial.curve:
                return "no loss seen yet"
            return "its probe goes on" if trial.step else "not probed yet"
        if math.isinf(value):
            return "no loss seen yet"
        shown = told(trial, value)
        if self.scale == "relative":
            shown = f"loss {value:.4g} of its first"
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


@dataclass(frozen=True, slots=True)
class TrainingOn:
    """The order where enough were probed for now: one of these trains on before others are probed.

    So the best of a large study is not kept waiting for its last probe.
    """

    name: ClassVar[str] = "best_first"
    order: BestFirst
    adapted: Adapted | None
    field: Field
    ranking: Ranking

    @property
    def fronts(self) -> Sequence[Score | None]:
        return ((PROBED, -math.inf), *(self.adapted.fronts if self.adapted else ()))

    def facing(self, first: Trial) -> Ranking:
        if self.adapted is None:
            return self
        known = () if self.order.probed(first) else (self.field.leader, *self.field.sample)
        probed = [trial for trial in known if self.order.probed(trial)]
        return replace(self, ranking=self.adapted.facing(_first_of(self.order, probed) or first))

    def score(self, trial: Trial) -> Score:
        kind, value = self.ranking.score(trial)
        if not self.order.probed(trial):
            return (max(kind, DEFERRED), value)
        return (kind if value < math.inf else UNPROMISING, value)

    def quantum(self, trial: Trial, facts: Facts) -> Quantum:
        return self.ranking.quantum(trial, facts)

    def words(self, trial: Trial) -> str:
        said = self.ranking.words(trial)
        if self.order.probed(trial):
            return said
        return f"{said}; it waits while one that was probed trains on"


def _first_of(order: BestFirst, trials: Sequence[Trial]) -> Trial | None:
    """Who of these goes first of those that could; None if none could."""
    known = [trial for trial in trials if trial.candidate]
    return min(known, key=lambda t: (order.score(t), t.spec.number), default=None)


@dataclass(frozen=True, slots=True)
class Falling:
    """The order where losses fall fast: by the loss less a share of the last fall.

    There the loss so far says as much of when a trial began to fall as of where it is heading.
    Elsewhere the fall would add little but noise.
    """

    name: ClassVar[str] = "best_first"
    order: BestFirst

    @property
    def fronts(self) -> Sequence[Score]:
        return ((PROBED, -math.inf),)

    def facing(self, first: Trial) -> Ranking:
        return self

    def score(self, trial: Trial) -> Score:
        if not self.order.probed(trial):
            return self.order.score(trial)
        return (PROBED, self.level(trial))

    def level(self, trial: Trial) -> float:
        """What it is ranked by; infinite before the probe is over."""
        loss = self.order.level(trial)
        before = settled(trial.curve, trial.step // 2) / self.order.unit(trial)
        return loss - FALL * (before - loss) if loss < before < math.inf else loss

    def quantum(self, trial: Trial, facts: Facts) -> Quantum:
        return self.order.quantum(trial, facts)

    def words(self, trial: Trial) -> str:
        said, better = self.order.words(trial), self.order.level(trial) - self.level(trial)
        return f"{said}, ranked as {better:.2g} better for its last fall" if better > 0 else said


@dataclass(frozen=True)
class Recalling(BestFirst):
    """Best first that probes in the order that earlier studies predict, and no more than promise.

    Nothing is known of whether the order holds before some were probed. While it does, all trials
    are ranked by it as well as by their losses, as far as each is reliable. Where there is but one
    earlier study, or what they predict is worth little, those that were probed are ranked by their
    losses alone, and another is probed only if it may be faster than the fastest of these that is
    not good yet.
    """

    foresees: ClassVar[bool] = True
    memory: Memory = field(kw_only=True)
    reliability: Reliability = field(kw_only=True)

    def score(self, trial: Trial) -> Score:
        if self.probed(trial):
            return BestFirst.score(self, trial)
        return (UNPROBED, self.memory.place(trial.spec.number))

    def remembered(self, earlier: Sequence[Earlier], specs: Sequence[TrialSpec]) -> str:
        """Which earlier studies it goes by, and whether their order is weighed against losses."""
        how = "counts beside the losses" if self.reliability.history else "says what is probed"
        return f"{', '.join(self.memory.studies)}, whose order {how} while it holds"

    def looks_again(self, sample: Sequence[Trial]) -> bool:
        """Not where losses are weighed: what they tell at the end of a probe is known then."""
        return not self.reliability.history and BestFirst.looks_again(self, sample)

    def words(self, trial: Trial) -> str:
        said = BestFirst.words(self, trial)
        if self.probed(trial):
            return said
        return f"{said}, {self.memory.words(trial.spec.number)}"

    def adapted(self, field: Field) -> Adapted:
        promising = Promising(self, self.by_losses(field), field)
        if field.enough and not self.reliability.history:
            return TrainingOn(self, promising, field, self)
        return promising


class Promising:
    """The order while earlier studies are believed.

    Where they are weighed against losses, a trial's place is its mean share of those before it, by
    loss and by what was predicted; one that was not probed is middling or last by loss. Before
    all go those that will soon be good, as without a memory. Where they aren't, what does not
    promise goes last.
    """

    name: ClassVar[str] = "best_first"

    def __init__(self, order: Recalling, soon: Adapted | None, field: Field) -> None:
        self._order, self._soon, self._field = order, soon, field
        known = {trial.id: trial for trial in (field.leader, *field.sample)}
        self._seen = [t for t in known.values() if t.step and order.level(t) < math.inf]
        self._ranking: Ranking = order
        self._level = soon.level if isinstance(soon, Falling) else order.level
        self._bar = math.inf

    @property
    def fronts(self) -> Sequence[Score | None]:
        soon = () if self._soon is None else self._soon.fronts
        return (None, (PROBED, -math.inf), *soon)

    def facing(self, first: Trial) -> Ranking:
        """The ranking of those that were probed is that without a memory, but for its weight."""
        order = self._order
        if self._soon is not None and (best := _first_of(order, self._seen)):
            self._ranking = self._soon.facing(best)
        weighed = order.reliability.history > 0
        if not (weighed or self._outlook is None):
            able = zip(self._seen, self._slowness.tolist(), strict=True)
            slow = [each for trial, each in able if trial.candidate and self._hurries(trial)]
            self._bar = min(slow, default=BAR)
        return self

    @cached_property
    def _slowness(self) -> NDArray[np.float64]:
        """That of the probed, beside the leader."""
        path = path_of(self._order, self._field.leader)
        if path is None:
            return np.zeros(len(self._seen))
        level = self._order.level
        return np.array([slowness_of(path, level(trial), trial.step) for trial in self._seen])

    @cached_property
    def _outlook(self) -> Outlook | None:
        """What is expected of the others; None while earlier studies are not believed."""
        memory, numbers = self._order.memory, [trial.spec.number for trial in self._seen]
        predicted = memory.predicted[[memory.row[number] for number in numbers]]
        shares = [self._share(trial) for trial in self._seen]
        if not self._order.reliability.holds(predicted, self._slowness, shares):
            return None
        return memory.outlook(numbers, self._slowness)

    def _hurries(self, trial: Trial) -> bool:
        """Whether it is not good yet and may be."""
        kind = self._ranking.score(trial)[0]
        return kind in (SOON, LATER) if isinstance(self._ranking, GoodSoon) else kind == PROBED

    def score(self, trial: Trial) -> Score:
        if self._weighs(trial):
            if self._is_soon_good(trial):
                return (HURRIES, self._ranking.score(trial)[1])
            return (MERIT, self._merit(trial))
        if self._order.probed(trial) or self._outlook is None or self.promises(trial):
            return self._ranking.score(trial)
        return (UNPROMISING, self._outlook.least(trial.spec.number))

    def _weighs(self, trial: Trial) -> bool:
        """Whether what was predicted for a trial counts beside its loss."""
        if not self._order.reliability.history or self._outlook is None:
            return False
        kind, loss = self._order.score(trial)
        return not trial.step or (kind == PROBED and loss < math.inf)

    def _is_soon_good(self, trial: Trial) -> bool:
        """Whether it goes before a good one that needs longer to its end."""
        ranking = self._ranking
        if not isinstance(ranking, GoodSoon) or ranking.rest == math.inf:
            return False
        return ranking.score(trial)[0] == SOON

    def _merit(self, trial: Trial) -> float:
        """Its place among all, from 0 to 1: by its loss and by what was predicted for it."""
        weight = self._order.reliability.of_loss(self._share(trial))
        by_loss = 1.0 if self._order.memory.ran_before else MIDDLING
        if trial.step:
            by_loss = bisect_left(self._levels, self._level(trial)) / len(self._levels)
        by_history = self._order.memory.rank(trial.spec.number) / len(self._order.memory.row)
        return weight * by_loss + (1 - weight) * by_history

    def _share(self, trial: Trial) -> float:
        """How far it is; where no length is told, as a share of that of earlier trials."""
        told = trial.planned_steps or self._field.leader.planned_steps
        length = told or self._order.memory.length
        return trial.step / length if length else 0.0

    @cached_property
    def _levels(self) -> list[float]:
        """The losses of the probed, from the lowest one on."""
        return sorted(map(self._level, self._seen))

    def promises(self, trial: Trial) -> bool:
        """Whether a trial that was not probed is to be."""
        if trial.step or self._outlook is None:
            return True
        return self._outlook.least(trial.spec.number) <= self._bar

    def quantum(self, trial: Trial, facts: Facts) -> Quantum:
        return self._ranking.quantum(trial, facts)

    def words(self, trial: Trial) -> str:
        fails = self._outlook is None and len(self._seen) >= TOLD_APART
        if self._order.probed(trial):
            said = self._ranking.words(trial)
            place = self._order.memory.words(trial.spec.number)
            if fails and self._order.reliability.history:
                return f"{said}; {place}, which does not hold so far"
            if not self._weighs(trial) or self._is_soon_good(trial):
                return said
            count = 1 - self._order.reliability.of_loss(self._share(trial))
            return f"{said}; {place}, which counts {count:.0%} of its rank"
        said = self._order.words(trial)
        if self._weighs(trial):
            return said
        if self._outlook is None:
            return f"{said}, which does not hold so far" if fails else said
        if self.promises(trial):
            return said
        return f"{said}, which holds so far: not expected among the fastest"


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


def indistinct(policy: BestFirst, trials: Sequence[Trial]) -> bool:
    """Whether a probe of these trials ends before their order says anything of the one to come.

    It does not while they still fall faster than they differ, as large models do while they warm
    up: the median fall over the second half of the probe is beyond the difference between the
    quartiles of the losses at its end. Nor does it where those losses rank as the first ones did,
    as they do until a learning rate has risen: they show how the trials began, not how they train.
    Nor where the lowest of them are the lowest by chance, as those of small batches are.
    """
    seen = _probes(policy, trials)
    if len(seen) < PROBED_ENOUGH:
        return False
    first, halfway_losses, end_losses = seen.T
    if _fell(halfway_losses, end_losses, 1.0):
        return True
    if len({*first.tolist()}) > 1 and rank_correlation(first, end_losses) > INHERITED:
        return True
    return len(seen) >= STEADY_ENOUGH and _unsteady(halfway_losses, end_losses)


def falls_fast(policy: BestFirst, trials: Sequence[Trial]) -> bool:
    """Whether the losses of these trials fell by much in their probes, beside how they differ."""
    seen = _probes(policy, trials)
    return len(seen) >= PROBED_ENOUGH and _fell(seen[:, 1], seen[:, 2], FAST)


def _probes(policy: BestFirst, trials: Sequence[Trial]) -> NDArray[np.float64]:
    """Of those whose probe is over: the first loss, and those halfway through it and at its end."""
    seen = []
    for trial in trials:
        end = probe_steps(trial, policy.probe_share)
        if not (trial.planned_steps or trial.likely_steps) or end < 2 or trial.step < end:
            continue
        halfway, at_end = (settled(trial.curve, step) for step in (end // 2, end))
        first, unit = start_loss(trial), policy.unit(trial)
        if max(first, halfway, at_end, unit) < math.inf:
            seen.append((first / unit, halfway / unit, at_end / unit))
    return np.array(seen)


def _fell(halfway: NDArray[np.float64], end: NDArray[np.float64], share: float) -> bool:
    """Whether the median fall is beyond this share of what is between the quartiles at the end."""
    ranked, quarter = np.sort(end), len(end) // 4
    return bool(median((halfway - end).tolist()) > share * (ranked[-1 - quarter] - ranked[quarter]))


def _unsteady(halfway: NDArray[np.float64], end: NDArray[np.float64]) -> bool:
    """Whether the lowest quarter of the losses at the end was hardly below the others before.

    By the share of the pairs of one of them and one of the others (Mann-Whitney).
    """
    order, count = end.argsort(kind="stable"), len(end)
    lowest, others = halfway[order[: count // 4], None], halfway[order[count // 4 :]]
    below = float((np.sign(others - lowest).mean() + 1) / 2)
    return below < STEADY - math.sqrt((count + 1) / (12 * lowest.size * others.size))
