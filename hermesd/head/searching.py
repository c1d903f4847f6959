"""Has searchers propose trials beside the loop: in one process for all studies, one at a time.

A proposal is an event like any other. It is journaled before anything is done with it, and refused
if the study has got other trials meanwhile. So a restart proposes nothing twice.
"""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from math import isnan
from weakref import WeakValueDictionary

from hermesd import children
from hermesd import study as studies
from hermesd.core.decide.searches import proposals_wanted, proposes, to_give
from hermesd.core.events import Added, Event, SearchFailed, SearchLimited
from hermesd.core.model import Study, StudyId, Time, UserId
from hermesd.core.state import Rejected, State
from hermesd.core.trial import Trial
from hermesd.head.api.ranking import DIVERGED, Measure, measure, objectives, reported
from hermesd.head.api.users import within_quota
from hermesd.head.loop import Head, ReadOnly
from hermesd.head.refusals import TooMuch
from hermesd.logs import get_logger
from hermesd.pieces import Pieces
from hermesd.refusal import Refused
from hermesd.search.ask import ASK, REPLY, Ask, Known, Proposal, Standing
from hermesd.study import space

# A model of a thousand trials is fitted in seconds; what takes longer hangs.
PATIENCE_SECONDS = 120.0
# So many are asked for at once: a search knows nothing yet of those that it has just proposed.
MOST_AT_ONCE = 16
PROCESS = ("-m", "hermesd.search")
# A constraint on what is no number is broken by so much.
MUCH = 1e300
# A process that cannot be started is tried again after so long, and then after twice as long.
FIRST_REST_SECONDS, LONGEST_REST_SECONDS = 1.0, 60.0
LINE_LIMIT_BYTES = 64 * 2**20

log = get_logger()


class _ProposedForOthers(Exception):
    """The study has changed since it was asked about, or wants no more."""


class _Failed(Exception):
    """A searcher gave no answer; says why."""


class _NotStarted(TooMuch):
    """There is no process to ask: no fault of any study's."""


@dataclass(slots=True)
class Searching:
    """Asks, and tells the head what is proposed."""

    head: Head
    _process: asyncio.subprocess.Process | None = None
    # One question at a time, and of each user one waits for its turn: who has a thousand studies,
    # or a searcher that hangs, makes others wait for one question.
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _turns: WeakValueDictionary[UserId, asyncio.Lock] = field(default_factory=WeakValueDictionary)
    # Whose studies are to be looked at, and whose are being.
    _due: set[UserId] = field(default_factory=set)
    _busy: set[UserId] = field(default_factory=set)
    _tasks: asyncio.TaskGroup = field(default_factory=asyncio.TaskGroup)
    # Until a process that could not be started is tried again: when that is, after how long, why
    # it could not, and which studies were told.
    _retry: asyncio.TimerHandle | None = None
    _rest_seconds: float = 0.0
    _not_started: str = ""
    _told: set[StudyId] = field(default_factory=set)

    async def run(self) -> None:
        """Work until cancelled."""
        seq = -1
        try:
            async with self._tasks:
                while True:
                    self._look()
                    seq = await self.head.beyond(seq)
        finally:
            if self._retry is not None:
                self._retry.cancel()
            await self._end()

    def _look(self) -> None:
        """Have the studies of each user served that have a searcher."""
        studies = self.head.state.studies
        self._due |= {studies[each].owner for each in self.head.state.searching}
        for user in self._due - self._busy:
            self._busy.add(user)
            self._tasks.create_task(self._serve(user))

    async def _serve(self, user: UserId) -> None:
        """Have what a user's studies want proposed, for as long as anything happens meanwhile."""
        while user in self._due:
            self._due.discard(user)
            for study in list(self.head.state.searching):
                known = self.head.state.studies.get(study)
                if known is None or known.owner != user:
                    continue
                # What there is no room for is asked for again when a trial has ended.
                with suppress(ReadOnly, TooMuch):
                    async with self._turn_of(user):
                        wanted = proposals_wanted(self.head.state, study)
                        await self._search(study, min(wanted, MOST_AT_ONCE))
        self._busy.discard(user)

    @asynccontextmanager
    async def _turn_of(self, user: UserId) -> AsyncIterator[None]:
        own = self._turns.setdefault(user, asyncio.Lock())
        async with own, self._turn:
            yield

    async def propose(self, study: StudyId) -> None:
        """Have one more trial proposed, unless there is one that nobody trains yet. Raises TooMuch,
        ReadOnly."""
        async with self._turn_of(self.head.state.studies[study].owner):
            state = self.head.state
            if study in state.searching and to_give(state, study) is None:
                await self._search(study, 1)

    async def _search(self, study_id: StudyId, wanted: int) -> None:
        state = self.head.state
        if not wanted or study_id not in state.searching:
            return
        study, members = state.studies[study_id], state.members[study_id]
        within_quota(state, study.owner, study.owner, wanted)
        try:
            specs = studies.proposed(
                study, len(members) + 1, await self._points(state, study, wanted)
            )
        except _ProposedForOthers:
            return
        except (_Failed, Refused) as error:
            await self._failed(study_id, str(error))
            return
        except _NotStarted as error:
            await self._delayed(study_id, str(error))
            raise
        key = f"search:{study.identity}:{len(members) + 1}"

        def compose(state: State, now: Time) -> Event:
            if study_id not in state.searching or not state.is_still(study, members):
                raise _ProposedForOthers
            return Added(study_id, specs, key, searcher=proposes(state, study))

        with suppress(_ProposedForOthers):
            await self.head.change(key, compose)

    async def _failed(self, study: StudyId, why: str) -> None:
        """Have points drawn at random from now on; where those cannot be had either, no more."""
        log.warning("a searcher failed", study=study, error=why)
        with suppress(Rejected):  # removed meanwhile
            was_drawn = study in self.head.state.unsearched
            await self.head.tell(SearchFailed(study, why))
            if was_drawn:
                key = f"search:{secrets.token_hex(16)}"
                await self.head.tell(SearchLimited(study, None, key))

    async def _delayed(self, study: StudyId, why: str) -> None:
        """Say once of a study that its searcher could not be started; that is tried again."""
        if study not in self._told:
            with suppress(Rejected):  # removed meanwhile
                await self.head.tell(SearchFailed(study, why, self._rest_seconds))
            self._told.add(study)

    async def _points(
        self, state: State, study: Study, wanted: int
    ) -> Sequence[tuple[space.Point, str]]:
        first = len(state.members[study.id]) + 1
        if study.id in state.unsearched:
            drawing = partial(studies.drawn, study, first, wanted)
            points = await self.head.reader.do(study.owner, drawing)
            return [(point, "") for point in points]
        question = await self.head.read(
            study.owner, first - 1, lambda state: _written(state, study, wanted)
        )
        return [(each.point, each.note) for each in await self._answer(question)]

    async def _answer(self, question: bytes) -> Sequence[Proposal]:
        """What is proposed. Raises _Failed."""
        process = await self._there()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                process.stdin.write(question)
                await process.stdin.drain()
                line = await process.stdout.readline()
        except TimeoutError:
            await self._end()
            raise _Failed(f"no answer within {PATIENCE_SECONDS:.0f} s") from None
        except (ConnectionError, ValueError):  # it is gone, or says more than any answer is long
            line = b""
        if not line.endswith(b"\n"):
            await self._end()
            raise _Failed("its process ended")
        try:
            answer = REPLY.read(line.decode())
        except ValueError:
            await self._end()
            raise _Failed("its process answers what cannot be read") from None
        if not answer.proposals:
            raise _Failed(answer.error)
        return answer.proposals

    async def _there(self) -> asyncio.subprocess.Process:
        """The process, which is started if it is not there. Raises _NotStarted."""
        if self._process is None:
            if self._retry is not None:
                raise _NotStarted(self._not_started)
            try:
                self._process = await asyncio.create_subprocess_exec(
                    sys.executable, *PROCESS,
                    stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
                    limit=LINE_LIMIT_BYTES, start_new_session=True,
                )  # fmt: skip
            except OSError as error:  # for want of memory, say: that is no fault of the study's
                log.warning("no searcher can be started now", error=str(error))
                self._not_started = f"no searcher can be started now: {error.strerror}"
                self._rest_seconds = min(
                    2 * self._rest_seconds or FIRST_REST_SECONDS, LONGEST_REST_SECONDS
                )
                loop = asyncio.get_running_loop()
                self._retry = loop.call_later(self._rest_seconds, self._try_again)
                raise _NotStarted(self._not_started) from None
            self._rest_seconds = 0.0
            self._told.clear()
        return self._process

    def _try_again(self) -> None:
        self._retry = None
        self._look()

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            await children.end(process)


def _written(state: State, study: Study, wanted: int) -> Pieces[bytes]:
    """The question as a line."""
    yield
    if state.studies.get(study.id) is not study:
        raise _ProposedForOthers
    return ASK.write(ask(state, study, wanted)).encode() + b"\n"


def ask(state: State, study: Study, wanted: int) -> Ask:
    """The question, with what the leaderboard knows of each trial."""
    trials = [state.trials[trial] for trial in state.members[study.id]]
    aims = objectives(study, measure(study, reported(trials)))
    assert study.searcher is not None
    before = (
        replace(_known(state.trials[trial], aims), note="")
        for earlier in study.searcher.warm_start
        for trial in state.members.get(earlier, ())
    )
    known = (
        *(each for each in before if each.standing is Standing.VALUED),
        *(_known(trial, aims) for trial in trials),
    )
    goals = tuple(aim.goal for aim in aims)
    return Ask(study.source, goals, len(trials) + 1, wanted, known)


def _known(trial: Trial, aims: Sequence[Measure]) -> Known:
    by = aims[0]
    point, note = studies.axes_of(trial.spec), trial.spec.proposal
    breaches = tuple(min(bounds.excess(trial), MUCH) for bounds in by.constraints)
    values = [aim.value(trial) for aim in aims]
    group, _, _ = by.standing(trial)
    if group == DIVERGED:
        return Known(point, Standing.DIVERGED, note=note, breaches=breaches)
    if group < DIVERGED and not any(value is None or isnan(value) for value in values):
        told = tuple(value for value in values if value is not None)
        return Known(point, Standing.VALUED, told, breaches, note)
    standing = Standing.NOTHING if trial.phase.final else Standing.OPEN
    return Known(point, standing, note=note, breaches=breaches)
