"""Has policies read another metric where a study names none and its trials report no `loss`.

Without a signal every trial is as good as another, and they run in the order of submission. Only
what can hardly be meant otherwise is chosen: the metric that the study names, or the sole loss, or
the sole metric, if that is a score. A person's choice, before or after, stands.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from hermesd.core.events import Event, SignalChosen
from hermesd.core.model import Goal, Study, StudyId, Time
from hermesd.core.state import Rejected, State
from hermesd.core.trial import MetricSummary
from hermesd.head.api.notices import chooses_its_signal
from hermesd.head.api.ranking import names_its_metric
from hermesd.head.journal import points
from hermesd.head.loop import Head, ReadOnly

LOOK_SECONDS = 1.0
_WORD_END = re.compile(r"[^a-z0-9]+")
# The last word of what is minimized, and of what is maximized.
_LOSSES = {
    *("loss", "nll", "mse", "rmse", "mae", "mape", "logloss", "entropy", "cost", "error", "err"),
    *("ppl", "perplexity", "bpc", "bpb"),
}
_SCORES = {
    *("acc", "accuracy", "auc", "auroc", "f1", "score", "r2", "map", "iou", "dice", "bleu"),
    *("reward", "return"),
}


class _AlreadyChosen(Exception):
    """Somebody has chosen, or a loss was reported after all."""


@dataclass(slots=True)
class Signals:
    """Looks at the running trials of studies whose signal nobody has reported yet."""

    head: Head
    # Of whose signal nothing is to be decided.
    _settled: set[str] = field(default_factory=set)

    async def run(self) -> None:
        """Work until cancelled."""
        seq = -1
        while True:
            seq = await self.head.beyond(seq)
            for study, (metric, goal) in list(self.found().items()):
                with suppress(ReadOnly, Rejected, _AlreadyChosen):
                    await self._choose(study, metric, goal)
            await asyncio.sleep(LOOK_SECONDS)

    def found(self) -> dict[StudyId, tuple[str, Goal]]:
        """What to read of which study, going by its running trials."""
        found: dict[StudyId, tuple[str, Goal]] = {}
        for study, metrics in self._reporting():
            if study.identity in self._settled:
                continue
            if study.signal in metrics or not _is_open(study):
                self._settled.add(study.identity)
                found.pop(study.id, None)
            elif chosen := telling(study, metrics):
                found.setdefault(study.id, chosen)
        return found

    def _reporting(self) -> Iterator[tuple[Study, Mapping[str, MetricSummary]]]:
        state = self.head.state
        for slot in state.slots.values():
            trial = state.trials.get(slot.run.trial) if slot.run is not None else None
            if trial is not None and trial.metrics:
                yield state.studies[trial.spec.study], trial.metrics

    async def _choose(self, study_id: StudyId, metric: str, goal: Goal) -> None:
        state = self.head.state
        identity = state.studies[study_id].identity
        found = {
            trial: await self.head.journal.pieces(trial, metric)
            for trial in state.members[study_id]
            if metric in state.trials[trial].metrics
        }
        key = f"signal:{identity}"

        def compose(state: State, now: Time) -> Event:
            study = state.studies.get(study_id)
            if study is None or study.identity != identity or not _is_open(study):
                raise _AlreadyChosen
            why = f"no trial has reported {study.signal}"
            return SignalChosen(study_id, metric, goal, points.read_by(found, goal), key, why)

        await self.head.change(key, compose)
        self._settled.add(identity)


def telling(study: Study, metrics: Mapping[str, MetricSummary]) -> tuple[str, Goal] | None:
    """The metric that can only be meant, and its goal; None while there is none, or several.

    One that has had a single value so far tells nothing.
    """
    varied = {name for name, seen in metrics.items() if seen.low < seen.high}
    names = {name for name in varied if not name.startswith("hermes/")}
    if names_its_metric(study):
        return (study.metric, study.goal) if study.metric in names else None
    losses = [name for name in names if _last_word(name) in _LOSSES]
    trained = [name for name in losses if "train" in name.lower()]
    for several in (losses, trained):
        if len(several) == 1:
            return several[0], Goal.MINIMIZE
    if len(names) == 1 and _last_word(*names) in _SCORES:
        return names.pop(), Goal.MAXIMIZE
    return None


def _last_word(name: str) -> str:
    return _WORD_END.split(name.lower())[-1]


def _is_open(study: Study) -> bool:
    """Whether nobody has said what to read; a target means nothing for another metric."""
    return not chooses_its_signal(study) and study.stop.target is None
