"""Which metric a study's leaderboard ranks, and in which order that puts its trials.

A study that names a metric is ranked by it. One that names none gets the loss that says most about
a trial among those that are reported: a single mini-batch's says less than a whole epoch's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from hermesd.core.history import MetricSummary
from hermesd.core.model import Goal, MetricMode, Phase, Study, TrialId
from hermesd.core.state import State
from hermesd.core.trial import Trial
from hermesd.pb.hermes.v1 import types_pb2 as types

VALIDATION_LOSS = "val_loss"
# Instead of a metric that nobody named: the first of these that any trial reports.
TELLING = (
    (VALIDATION_LOSS, "the study names no metric: the loss over the validation data"),
    ("epoch_loss", "the study names no metric: the mean loss of an epoch"),
)
LAST_RESORT = "the study names no metric: the last loss that was reported"


class Measure(NamedTuple):
    """What is ranked; `reason` says why where the study does not say it itself.

    Where the study has trials `end_on_nan`, one that diverged counts as NaN, whatever it was
    worth before: what is left of it is of no use.
    """

    metric: str
    goal: Goal
    mode: MetricMode
    reason: str = ""
    end_on_nan: bool = True

    def value(self, trial: Trial) -> float | None:
        """The value that counts; None if the metric was never seen, NaN if it is no number."""
        summary = trial.metrics.get(self.metric)
        if summary is None:
            return None
        if self.mode is MetricMode.LAST or not summary.measured:
            return summary.last
        return self.best(summary)

    def best(self, summary: MetricSummary) -> float:
        """The best of a metric's values."""
        return summary.low if self.goal is Goal.MINIMIZE else summary.high

    def standing(self, trial: Trial) -> tuple[int, float, int]:
        """What the leaderboard sorts by: value, then NaN or diverged, never seen, failed."""
        value, number = self.value(trial), trial.spec.number
        if trial.phase is Phase.FAILED:
            return (3, 0.0, number)
        if value is None:
            return (2, 0.0, number)
        if math.isnan(value) or (trial.not_finite and self.end_on_nan):
            return (1, 0.0, number)
        return (0, value if self.goal is Goal.MINIMIZE else -value, number)


class Leaderboard:
    """A study's trials, best first. `ranks` count from 1; 0 is none: no number, or failed."""

    def __init__(self, state: State, study: Study) -> None:
        members = [state.trials[trial] for trial in state.members[study.id]]
        self.measure = measure(study, members)
        self.trials: Sequence[Trial] = sorted(members, key=self.measure.standing)
        self.ranks: dict[TrialId, int] = {
            trial.id: 0 if self.measure.standing(trial)[0] else rank
            for rank, trial in enumerate(self.trials, 1)
        }

    @property
    def best(self) -> Trial | None:
        """The trial with rank 1, if there is one."""
        first = next(iter(self.trials), None)
        return first if first is not None and self.ranks[first.id] else None


def measure(study: Study, trials: Iterable[Trial]) -> Measure:
    """What the study ranks, given its trials."""
    on_nan = study.stop.on_nan
    if study.goal is not Goal.MINIMIZE or _names_a_metric(study.source):
        return Measure(study.metric, study.goal, study.mode, "", on_nan)
    known = list(trials)
    for metric, reason in TELLING:
        if any(metric in trial.metrics for trial in known):
            return Measure(metric, Goal.MINIMIZE, study.mode, reason, on_nan)
    return Measure(study.metric, study.goal, study.mode, LAST_RESORT, on_nan)


@lru_cache(maxsize=64)
def _names_a_metric(source: bytes) -> bool:
    return bool(types.StudySpec.FromString(source).metric.name)
