"""Why a trial runs or waits, in words for people: its policy's, and what stands in the way."""

from __future__ import annotations

from typing import NamedTuple

from hermesd.core.draining import stuck
from hermesd.core.model import Phase, StudyId, Time, TrialId
from hermesd.core.queues import Queues, Unanswered
from hermesd.core.state import State
from hermesd.core.trial import Trial

PAUSED = "paused by a person"


class Explanation(NamedTuple):
    """Why a trial runs or waits."""

    summary: str
    ranking: tuple[tuple[TrialId, str, Phase], ...]
    last_decision: str
    policy: str


class Question(NamedTuple):
    """Which trial, what was last decided of it, and whether it waits for its machine."""

    trial: TrialId
    last_decision: str
    waits: bool
    now: Time


def explain(state: State, queues: Queues, asked: Question) -> Explanation:
    """The answer, as things are."""
    trial = state.trials[asked.trial]
    study_id = trial.spec.study
    policy = state.policy_of(study_id).name
    ranking, trouble = _ranking(state, queues, study_id, asked.now)
    place = next((i for i, (t, _) in enumerate(ranking, 1) if t.id == trial.id), None)
    if trial.phase.final:
        summary = f"{trial.id} is {trial.phase}: {trial.reason or 'the program ended well'}"
    elif trial.paused:
        summary = f"{trial.id} is {PAUSED}"
    elif asked.waits:
        wait, times = max(0.0, trial.not_before - asked.now), trial.misfortunes
        summary = (
            f"{trial.id} is tried again in {wait:.0f} s: {times} times in a row it was its"
            f" machine's fault ({trial.reason})"
        )
    elif (node := stuck(state, trial)) is not None:
        summary = (
            f"{trial.id} waits for node {node}, which is draining: it is parked there, and no"
            " checkpoint would bring it back elsewhere"
        )
    else:
        where = f" on {trial.run.devices[0]}" if trial.run else ""
        summary = f"{trial.id} is {trial.phase}{where}"
        if place is not None:
            words = ranking[place - 1][1]
            summary += f"; {policy} ranks it {place} of {len(ranking)}: {words}"
        elif not trouble:
            summary += f"; {policy} does not rank it"
        summary += trouble
    rows = tuple((t.id, words, t.phase) for t, words in ranking)
    return Explanation(summary, rows, asked.last_decision, policy)


def _ranking(
    state: State, queues: Queues, study_id: StudyId, now: Time
) -> tuple[list[tuple[Trial, str]], str]:
    """The study's trials in the order of its policy, and what to say if that has raised."""
    study, fallen = state.studies[study_id], state.fallen.get(study_id)
    trouble = f"; its own policy, {study.policy.name}, has raised {fallen}" if fallen else ""
    try:
        return queues.peek(study_id, lambda queue: list(queue.ranking(now))), trouble
    except Unanswered as error:
        name = state.policy_of(study_id).name
        return [], f"; {name} raised when it was asked for its ranking: {error}{trouble}"
