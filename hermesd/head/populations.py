"""Replaces the losers of populations by forks of their winners, in a task beside the loop.

A round is one event: it is journaled with all its forks, or nothing of it has happened. It follows
from the state alone, so a head that is killed between two rounds comes to the same next round.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from hermesd import study as studies
from hermesd.core.events import Added, Event, PolicyFailed, PopulationEnded
from hermesd.core.model import Study, StudyId, Time, TrialSpec
from hermesd.core.policy import Exploit, Exploration
from hermesd.core.state import Rejected, State
from hermesd.head.api.users import within_quota
from hermesd.head.loop import Head, ReadOnly
from hermesd.head.refusals import TooMuch
from hermesd.logs import get_logger
from hermesd.pieces import Pieces
from hermesd.refusal import Refused

log = get_logger()


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
        state = self.head.state
        exploits = self.head.scheduler.exploits(study_id, self.head.clock())
        if not exploits:
            return
        study, members = state.studies[study_id], state.members[study_id]
        key = f"population:{study.identity}:{len(members) + 1}"

        def compose(state: State, now: Time) -> Event:
            again = self.head.scheduler.exploits(study_id, now)
            if not state.is_still(study, members) or again != exploits:
                raise _NothingToDo
            within_quota(state, study.owner, study.owner, len(exploits))
            return generation(state, study_id, exploits, specs, key)

        try:
            specs = await self.head.read(
                study.owner, len(exploits), lambda state: forks(state, study, exploits, exploration)
            )
            await self.head.change(key, compose)
        except Refused as error:
            log.warning("a population cannot go on", study=study_id, error=str(error))
            await self.head.tell(PolicyFailed(study_id, str(error)))


def forks(
    state: State, study: Study, exploits: Sequence[Exploit], exploration: Exploration
) -> Pieces[tuple[TrialSpec, ...]]:
    """The forks of the winners. Raises Refused."""
    yield
    if study.id not in state.studies:
        raise _NothingToDo
    parents = [state.trials[each.winner].spec for each in exploits]
    first, name = len(state.members[study.id]) + 1, state.policy_of(study.id).name
    return studies.explored(study, parents, first, exploration, name)


def is_over(state: State, study: StudyId) -> bool:
    """Whether only those of a population are left that others have replaced."""
    active = (state.trials[each] for each in state.active[study])
    replaced = all(trial.paused and trial.replaced_by for trial in active)
    return replaced and bool(state.active[study])


def generation(
    state: State,
    study_id: StudyId,
    exploits: Sequence[Exploit],
    specs: tuple[TrialSpec, ...],
    key: str,
) -> Added:
    """The forks that go on in the places of the losers."""
    winners = [state.trials[each.winner] for each in exploits]
    begins = tuple(each for winner in winners if (each := winner.checkpoint) is not None)
    losers = tuple(each.loser for each in exploits)
    name = state.policy_of(study_id).name
    return Added(study_id, specs, key, begins, counts_on=True, searcher=name, instead=losers)
