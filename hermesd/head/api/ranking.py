"""Which metric a study's leaderboard ranks by, and in which order that puts its trials.

A study is ranked by the metric that it names, or that a person has chosen since. If it names none,
it is ranked by the reported loss that says most about a trial: that of a whole epoch, or else what
policies read, the mean of the last tenth of the losses so far. (The very last loss is that of a
single mini-batch.)
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from statistics import median
from typing import NamedTuple, TypeVar

from hermesd.core.model import Goal, MetricMode, Phase, Study, TrialId
from hermesd.core.state import State
from hermesd.core.trial import MetricSummary, Trial
from hermesd.head.api.metric_names import reported_as, validation_loss
from hermesd.head.refusals import NotNow
from hermesd.pb.hermes.v1 import types_pb2 as types
from hermesd.pieces import LOOKED_AT, Pieces, gathered, parts
from hermesd.refusal import FieldError, Refused, nearest, one_of, shown
from hermesd.wire import GOALS

Word = TypeVar("Word", Goal, MetricMode)
MODES: Mapping[MetricMode, types.MetricMode] = {
    MetricMode.LAST: types.METRIC_MODE_LAST,
    MetricMode.BEST: types.METRIC_MODE_BEST,
    MetricMode.SMOOTHED: types.METRIC_MODE_SMOOTHED,
}
# Instead of a metric that nobody named: the first of these that any trial reports.
VALIDATED = "the study names no metric: the loss over the validation data"
EPOCH_LOSS, OF_EPOCH = "epoch_loss", "the study names no metric: the mean loss of an epoch"
LAST_RESORT = "the study names no metric: the last loss that was reported"
SIGNAL = "the study names no metric: what policies read"
SMOOTHED = "the study names no metric: the mean of the last tenth of the losses so far"


# The group of a leaderboard that those are in which came to no number.
DIVERGED = 2


class Bounds(NamedTuple):
    """A metric, and between which values a trial's last one is to be."""

    metric: str
    low: float
    high: float

    def excess(self, trial: Trial) -> float:
        """By how much it is not: 0 or less within, and while it is not known."""
        summary = trial.metrics.get(self.metric)
        if summary is None or summary.last is None:
            return 0.0
        if math.isnan(summary.last):
            return math.inf
        return max(self.low - summary.last, summary.last - self.high)


class Measure(NamedTuple):
    """What is ranked."""

    metric: str
    goal: Goal
    mode: MetricMode
    #: Why that, where the study does not say it itself.
    reason: str = ""
    #: A trial that diverged counts as NaN, whatever it was worth before: what is left of it is of
    #: no use.
    end_on_nan: bool = True
    constraints: tuple[Bounds, ...] = ()

    def value(self, trial: Trial) -> float | None:
        """The value that counts; None if the metric was never seen, NaN if it is no number."""
        summary = trial.metrics.get(self.metric)
        if self.mode is MetricMode.SMOOTHED and not _ends_in_nan(summary):
            loss = trial.loss
            if loss is not None:
                return 0.0 - loss if trial.maximized else loss  # no -0 of an accuracy of 0
        if summary is None:
            return None
        if self.mode is not MetricMode.BEST or not summary.measured:
            return summary.last
        return self.best(summary)

    def best(self, summary: MetricSummary) -> float:
        """The best of a metric's values."""
        return summary.low if self.goal is Goal.MINIMIZE else summary.high

    def standing(self, trial: Trial) -> tuple[int, float, int]:
        """What the leaderboard sorts by: value, those that break a constraint apart, then NaN or
        diverged, never seen, failed."""
        value, number = self.value(trial), trial.spec.number
        if trial.phase is Phase.FAILED:
            return (4, 0.0, number)
        if value is None:
            return (3, 0.0, number)
        if math.isnan(value) or (trial.not_finite and self.end_on_nan):
            return (DIVERGED, 0.0, number)
        broken = any(bounds.excess(trial) > 0 for bounds in self.constraints)
        return (int(broken), value if self.goal is Goal.MINIMIZE else -value, number)


@dataclass(frozen=True)
class RankedTrials:
    """A study's trials. Made by `leaderboard`."""

    measure: Measure
    #: The best first.
    trials: Sequence[Trial]
    #: The rank of each, from 1; 0 for one that has no value of the metric, or has failed.
    ranks: Mapping[TrialId, int]

    @cached_property
    def completed_steps(self) -> int:
        """How many steps those took that have completed, in the median; 0 if none has."""
        took = [trial.step for trial in self.trials if trial.phase is Phase.COMPLETED]
        return round(median(took)) if took else 0

    @cached_property
    def completed_share(self) -> float:
        """Which share of their planned steps those took that have completed, in the median: less
        than 1 where they stop early; 1 if none has."""
        took = [
            trial.step / trial.planned_steps
            for trial in self.trials
            if trial.phase is Phase.COMPLETED and trial.step and trial.planned_steps
        ]
        return min(1.0, median(took)) if took else 1.0

    @property
    def best(self) -> Trial | None:
        """The trial with rank 1, if there is one."""
        first = next(iter(self.trials), None)
        return first if first is not None and self.ranks[first.id] else None


def leaderboard(state: State, study: Study, by: Measure | None = None) -> Pieces[RankedTrials]:
    """A study's trials, by what the study ranks, or by another measure."""
    members = yield from trials_of(state, study)
    by = by or measure(study, (yield from all_reported(members)))
    runs = []
    for each in parts(members, LOOKED_AT):
        runs.append(sorted((by.standing(trial), trial) for trial in each))
        yield
    ordered: list[Trial] = []
    ranks: dict[TrialId, int] = {}
    for some in parts(enumerate(heapq.merge(*runs), 1), LOOKED_AT):
        ordered += (trial for _, (_, trial) in some)
        ranks.update((trial.id, 0 if group else rank) for rank, ((group, *_), trial) in some)
        yield
    return RankedTrials(by, ordered, ranks)


def trials_of(state: State, study: Study) -> Pieces[list[Trial]]:
    """A study's trials, by their numbers."""
    trials = (state.trials[trial] for trial in state.members[study.id])
    return (yield from gathered(trials, LOOKED_AT))


def reported(trials: Iterable[Trial]) -> list[str]:
    """The metrics that any of the trials has reported, by name."""
    return sorted({name for trial in trials for name in trial.metrics})


def all_reported(trials: Sequence[Trial]) -> Pieces[list[str]]:
    """The same of very many trials."""
    names: set[str] = set()
    for some in parts(trials, LOOKED_AT):
        names.update(reported(some))
        yield
    return sorted(names)


def measure(study: Study, names: Collection[str]) -> Measure:
    """What the study ranks, given the metrics that its trials have reported."""
    return _measure(study, names)._replace(constraints=constraints(study.source))


@lru_cache(maxsize=64)
def constraints(source: bytes) -> tuple[Bounds, ...]:
    """The bounds of metrics that a study file gives."""
    return tuple(
        Bounds(
            each.name,
            each.min if each.HasField("min") else -math.inf,
            each.max if each.HasField("max") else math.inf,
        )
        for each in types.StudySpec.FromString(source).constraints
    )


def objectives(study: Study, by: Measure) -> tuple[Measure, ...]:
    """What the study ranks, and its further objectives; one alone of most studies."""
    further = types.StudySpec.FromString(study.source).objectives
    goals = {number: goal for goal, number in GOALS.items()}
    mode = MetricMode.BEST if by.mode is MetricMode.BEST else MetricMode.LAST
    return (
        by,
        *(Measure(each.name, goals.get(each.goal, Goal.MINIMIZE), mode) for each in further),
    )


def values(trial: Trial, aims: Sequence[Measure]) -> tuple[float, ...] | None:
    """Its values by all of these, smaller is better; None while one is not known, or is no number,
    and if it has no rank."""
    found = []
    if aims[0].standing(trial)[0]:
        return None
    for aim in aims:
        value = aim.value(trial)
        if value is None or math.isnan(value):
            return None
        found.append(value if aim.goal is Goal.MINIMIZE else -value)
    return tuple(found)


def front(trials: Sequence[Trial], aims: Sequence[Measure]) -> list[Trial]:
    """The trials that no other surpasses in one objective without being worse in another (Pareto),
    in the order of the first objective."""
    known = [(found, trial) for trial in trials if (found := values(trial, aims)) is not None]
    known.sort(key=lambda pair: (pair[0], pair[1].spec.number))
    kept: list[tuple[tuple[float, ...], Trial]] = []
    for found, trial in known:  # what surpasses one comes before it
        if not any(
            other != found and all(a <= b for a, b in zip(other, found, strict=True))
            for other, _ in kept
        ):
            kept.append((found, trial))
    return [trial for _, trial in kept]


def _measure(study: Study, names: Collection[str]) -> Measure:
    on_nan = study.stop.on_nan
    if names_its_metric(study):
        named = reported_as(study.metric, names)
        return Measure(named, study.goal, study.mode, "", on_nan)
    for metric, reason in ((validation_loss(names), VALIDATED), (EPOCH_LOSS, OF_EPOCH)):
        if metric in names:
            return Measure(metric, Goal.MINIMIZE, study.mode, reason, on_nan)
    smoothed = MetricMode.SMOOTHED if study.mode is MetricMode.LAST else study.mode
    reads_another = study.signal_chosen or study.signal != study.metric
    if reads_another and study.metric not in names:
        return Measure(study.signal, study.signal_goal, smoothed, SIGNAL, on_nan)
    if study.mode is MetricMode.LAST and study.metric == study.signal:
        return Measure(study.metric, study.goal, MetricMode.SMOOTHED, SMOOTHED, on_nan)
    return Measure(study.metric, study.goal, study.mode, LAST_RESORT, on_nan)


def names_its_metric(study: Study) -> bool:
    """Whether the study file names the metric, or a person has chosen one since."""
    chosen = study.metric_chosen or study.goal is not Goal.MINIMIZE
    return chosen or _names_a_metric(study.source)


def asked_for(
    study: Study, trials: Iterable[Trial], asked: types.Metric, field: str = "metric"
) -> Measure:
    """What a person wants the trials to be ranked by; `field` is the request's.

    Without a goal it is that which the study gives the metric or the signal of that name, else the
    lowest is best; without a mode the signal is smoothed and of others the last value counts.

    Raises Refused for a metric that none of them has reported, NotNow while none reported any.
    """
    names = reported(trials)
    if not names:
        raise NotNow(f"no trial of {study.id} has reported a metric yet: choose one once one has")
    if asked.name not in names:
        expected = f"one of those that its trials have reported: {', '.join(names)}"
        near = nearest(asked.name, names)
        raise Refused(FieldError(f"{field}.name", shown(asked.name), expected, near))
    return Measure(
        asked.name,
        _goal(study, names, asked),
        _mode(study, asked),
        "",
        study.stop.on_nan,
        constraints(study.source),
    )


def _goal(study: Study, names: Collection[str], asked: types.Metric) -> Goal:
    if asked.goal:
        return _word(GOALS, asked.goal, "metric.goal")
    now = measure(study, names)
    if asked.name == now.metric:
        return now.goal
    return study.signal_goal if asked.name == study.signal else Goal.MINIMIZE


def _mode(study: Study, asked: types.Metric) -> MetricMode:
    is_signal = asked.name == study.signal
    if not asked.mode:
        return MetricMode.SMOOTHED if is_signal else MetricMode.LAST
    mode = _word(MODES, asked.mode, "metric.mode")
    if mode is MetricMode.SMOOTHED and not is_signal:
        expected = f"last or best: only the signal ({study.signal}) is smoothed"
        raise Refused(FieldError("metric.mode", mode, expected))
    return mode


def _word(words: Mapping[Word, int], number: int, field: str) -> Word:
    found = next((word for word, known in words.items() if known == number), None)
    if found is None:
        raise Refused(FieldError(field, str(number), one_of(words)))
    return found


def _ends_in_nan(summary: MetricSummary | None) -> bool:
    last = summary.last if summary is not None else None
    return last is not None and not math.isfinite(last)


@lru_cache(maxsize=64)
def _names_a_metric(source: bytes) -> bool:
    return bool(types.StudySpec.FromString(source).metric.name)
