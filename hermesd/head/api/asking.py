"""Trials that a user's own loop asks for, and reports the results of."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from hermesd.core.decide.searches import to_give
from hermesd.core.events import Asked, Event, OutcomeTold
from hermesd.core.model import StudyId, Time, TrialId, study_of
from hermesd.core.state import State
from hermesd.head.api import names, views
from hermesd.head.api.requests import carry_out, key_of
from hermesd.head.loop import Head
from hermesd.head.refusals import NotNow
from hermesd.head.security.access import Asker, asker
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.refusal import FieldError, Refused, shown

METRICS_LIMIT = 1_000
NAME_LIMIT = 128
REASON_LIMIT = 10_000


class _NoneYet(Exception):
    """The study's searcher is to propose one first."""


@dataclass(frozen=True)
class AskingService:
    """What people's own loops ask for and tell."""

    head: Head
    #: Has one more trial proposed.
    propose: Callable[[StudyId], Awaitable[None]]

    async def AskTrial(self, request: pb.AskTrialRequest, context: Any) -> pb.AskTrialResponse:
        who = asker()
        key = key_of(request, who)

        def compose(state: State, now: Time) -> Event:
            study = state.studies[names.study_id(state, request.study, who)]
            if not study.outside:
                raise NotNow(
                    f"Hermes runs the trials of {study.id} itself: you can ask only for those of a"
                    " study with `search: {asked: true}`"
                )
            trial = to_give(state, study.id)
            if trial is not None:
                return Asked(trial, key)
            if study.id in state.searching:
                raise _NoneYet
            count = len(state.members[study.id])
            raise NotNow(
                f"all {count} trials of {study.id} have been asked for;"
                f" `hermesctl study add {study.id} --trials N` adds more"
            )

        while True:
            try:
                (trial,) = await carry_out(self.head, key, compose)
            except _NoneYet:
                study = names.study_id(self.head.state, request.study, who)
                await self.propose(study)
            else:
                return pb.AskTrialResponse(trial=await self._shown(trial, who))

    async def TellTrial(self, request: pb.TellTrialRequest, context: Any) -> pb.TellTrialResponse:
        who = asker()
        key = key_of(request, who)

        def compose(state: State, now: Time) -> Event:
            trial = state.trials[names.trial_id(state, request.trial, who)]
            if not state.studies[trial.spec.study].outside:
                raise NotNow(
                    f"Hermes runs {trial.id} itself: you can report only results of trials that you"
                    " asked for (`search: {asked: true}`)"
                )
            if trial.phase.final:
                raise NotNow(f"{trial.id} is {trial.phase} already")
            return OutcomeTold(trial.id, _metrics(request), request.failure, key)

        (told,) = await carry_out(self.head, key, compose)
        return pb.TellTrialResponse(trial=await self._shown(told, who))

    async def _shown(self, trial: TrialId, who: Asker) -> pb.Trial:
        count = len(self.head.state.members.get(study_of(trial), ()))
        shown = partial(views.among_its_study, trial_id=trial)
        return await self.head.read(who.user, count, shown)


def _metrics(request: pb.TellTrialRequest) -> tuple[tuple[str, float], ...]:
    """What was told. Raises Refused."""
    if len(request.failure) > REASON_LIMIT or "\0" in request.failure:
        expected = f"at most {REASON_LIMIT} characters, without NUL"
        raise Refused(FieldError("failure", shown(request.failure), expected))
    if not request.metrics and not request.failure:
        raise Refused(FieldError("metrics", "", "at least one, such as loss=0.31"))
    if len(request.metrics) > METRICS_LIMIT:
        raise Refused(FieldError("metrics", str(len(request.metrics)), f"at most {METRICS_LIMIT}"))
    for metric in request.metrics:
        if not 0 < len(metric.name) <= NAME_LIMIT or not metric.name.isprintable():
            expected = f"a name of 1 to {NAME_LIMIT} printable characters"
            raise Refused(FieldError("metrics.name", shown(metric.name), expected))
    return tuple({metric.name: metric.value for metric in request.metrics}.items())
