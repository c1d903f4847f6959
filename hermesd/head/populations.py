"""Has populations replace their losers by forks of their winners, beside the loop.

A round is one event: it is journaled with all its forks, or nothing of it has happened. It follows
from the state alone, so that a head that is killed between two rounds comes to the same next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import structlog

from hermesd import study as studies
from hermesd.core.events import Added, Event, PolicyFailed, PopulationEnded
from hermesd.core.model import StudyId, Time
from hermesd.core.policy import Exploit, Exploration
from hermesd.core.state import Rejected, State
from hermesd.head.api.users import within_quota
from hermesd.head.loop import Head, ReadOnly
from hermesd.head.refusals import TooMuch
from hermesd.refusal import Refused

log = structlog.get_logger()


class _NothingToDo(Exception):
    """The round is over already, or nobody is to be replaced."""


@dataclass(slots=True)
class Populations:
    """Looks at the studies with a population whenever something has happened."""

    head: Head

    async def run(self) -> None:
        """Work until cancelled."""
        seq = -1
        while True:
            for study, exploration in list(self.head.scheduler.populations()):
                # What there is no room for is made when a trial has ended.
                with suppress(ReadOnly, TooMuch, Rejected, _NothingToDo):
                    await self._breed(study, exploration)
            # Whatever policy they have by now.
            for study in [
                each for each in self.head.state.active if is_over(self.head.state, each)
            ]:
                with suppress(ReadOnly, Rejected):
                    await self.head.tell(PopulationEnded(study))
            seq = await self.head.beyond(seq)

    async def _breed(self, study_id: StudyId, exploration: Exploration) -> None:
        now = self.head.clock()
        if not self.head.scheduler.exploits(study_id, now):
            return
        study, number = self.head.state.studies[study_id], len(self.head.state.members[study_id])
        key = f"population:{study.identity}:{number + 1}"

        def compose(state: State, now: Time) -> Event:
            exploits = self.head.scheduler.exploits(study_id, now)
            if study_id not in state.studies or not exploits:
                raise _NothingToDo
            within_quota(state, study.owner, study.owner, len(exploits))
            return generation(state, study_id, exploits, exploration, key)

        try:
            await self.head.change(key, compose)
        except Refused as error:
            log.warning("a population cannot go on", study=study_id, error=str(error))
            await self.head.tell(PolicyFailed(study_id, str(error)))


def is_over(state: State, study: StudyId) -> bool:
    """Whether only those of a population are left that others have replaced."""
    active = [state.trials[each] for each in state.active[study]]
    return bool(active) and all(trial.paused and trial.replaced_by for trial in active)


def generation(
    state: State,
    study_id: StudyId,
    exploits: Sequence[Exploit],
    exploration: Exploration,
    key: str,
) -> Added:
    """The forks that go on in the places of the losers. Raises Refused."""
    study, winners = state.studies[study_id], [state.trials[each.winner] for each in exploits]
    name = state.policy_of(study_id).name
    parents = [winner.spec for winner in winners]
    specs = studies.explored(study, parents, len(state.members[study_id]) + 1, exploration, name)
    begins = tuple(each for winner in winners if (each := winner.checkpoint) is not None)
    losers = tuple(each.loser for each in exploits)
    return Added(study_id, specs, key, begins, counts_on=True, searcher=name, instead=losers)
