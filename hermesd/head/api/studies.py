"""Studies: submitted, shown, extended, removed."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, repeat
from typing import Any, NamedTuple, TypeVar

from google.protobuf.message import Message

from hermesd import study as studies
from hermesd.codec import value_of
from hermesd.core.events import (
    Added,
    Event,
    MetricChosen,
    Removed,
    SearchLimited,
    Submitted,
)
from hermesd.core.model import DeviceId, Searcher, Study, StudyId, Time, TrialId
from hermesd.core.state import State
from hermesd.core.trial import Trial
from hermesd.head.api import names, submission_checks, views
from hermesd.head.api.extending import changed, extended, found_ahead, is_of_all, to_change
from hermesd.head.api.notices import alike, all_notices, foretold, unread
from hermesd.head.api.occupied import waits_for
from hermesd.head.api.paging import page
from hermesd.head.api.ranking import (
    Measure,
    RankedTrials,
    all_reported,
    asked_for,
    leaderboard,
    measure,
    reported,
    trials_of,
)
from hermesd.head.api.requests import carry_out, key_of
from hermesd.head.api.signals import Signal, read_instead
from hermesd.head.api.submission_checks import wanting
from hermesd.head.api.users import room_for_study, within_quota
from hermesd.head.blobs import NAME, Blobs
from hermesd.head.fleet.sessions import NodeSessions
from hermesd.head.fleet.stale_state import StaleState
from hermesd.head.loop import Head, PreparedEvent, prepared
from hermesd.head.reader import SMALL, still
from hermesd.head.refusals import NotNow
from hermesd.head.security.access import Asker, asker
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import types_pb2 as types
from hermesd.pb.hermes.v1.types_pb2 import NamedValue
from hermesd.pieces import AT_ONCE, LOOKED_AT, Pieces, emptied, gathered, in_one, parts, whole
from hermesd.refusal import FieldError, Refused, shown
from hermesd.wire import GOALS

T = TypeVar("T")
NEXT_UP = 10
# So often what a study of very many trials is to be is found beside the loop, while others change.
ROUNDS = 4


class _Grown(Exception):
    """The study has other trials than those that were looked at."""


class _NameTaken(Exception):
    """Another study got the name for which the trials of this one were made."""


class _Identical(Exception):
    """The study was submitted before; carries its id."""


class _Aside(NamedTuple):
    """What is to be said of a study that is not in the state, and known on the loop alone."""

    idle: Sequence[DeviceId]
    setback: Sequence[str]


@dataclass(frozen=True)
class StudiesService:
    """What clients ask of studies and do with them."""

    head: Head
    blobs: Blobs
    sessions: NodeSessions
    setback: StaleState
    #: The identity of every study that ever was.
    taken: dict[StudyId, str]
    #: Whose each of these studies is.
    owners: dict[StudyId, str]

    async def SubmitStudy(
        self, request: pb.SubmitStudyRequest, context: Any
    ) -> pb.SubmitStudyResponse | bytes:
        who = asker()
        key = key_of(request, who)
        self._stored(request.code_sha256)
        for field in ("code_identity_sha256", "program_sha256"):
            if (named := getattr(request, field)) and not NAME.fullmatch(named):
                expected = "a SHA-256 in hexadecimal digits"
                raise Refused(FieldError(field, shown(named), expected))
        given = texts(request.given_environment)
        if request.environment_of:
            original = names.study_id(self.head.state, request.environment_of, who)
            given = (*self.head.state.studies[original].program.environment, *given)
        submitted = submission(request, given)
        there = self._identical(self.head.state, studies.fingerprint(submitted), who)
        if key not in self.head.state.requests and (request.again or not there):
            # As far as it can be told before any work is done.
            drawn = request.spec.method == types.SEARCH_METHOD_RANDOM
            room_for_study(self.head.state, who.user, request.spec.run_cap if drawn else 1)
        drafting = partial(studies.draft_in_pieces, submitted)
        draft = await self.head.reader.do(who.user, drafting)
        warmth: list[str] = []
        if draft.study.searcher is not None:
            submission_checks.see_that_it_is_installed(draft.study.searcher.name)
            draft, warmth = await self._warmed(draft, draft.study.searcher, who)
        draft = replace(draft, study=submission_checks.of_owner(who.user, draft.study))
        notes = [*draft.notes, *warmth, *submission_checks.notes(self.head.state, draft.study)]
        notes += await wanting(self.head, self.sessions, draft.study, briefly=request.validate_only)
        suited = submission_checks.fitting(self.head.state, draft.study)
        notes += submission_checks.note(suited, notes)
        identical = self._identical(self.head.state, draft.study.fingerprint, who)
        if not identical and not request.again:
            notes += self._alike(draft.study, given, who)
        notes += await self._foretold(draft.study, who)
        if request.validate_only:
            return await self._preview(request, draft, identical, notes, suited)

        try:
            trials = await self._accept(request, draft, key, who)
        except _Identical as other:
            return pb.SubmitStudyResponse(identical_to=str(other), notes=notes)
        rest = pb.SubmitStudyResponse(
            notes=notes,
            policy=submission_checks.policy(self.head.state, draft.study),
            placement=submission_checks.placement(self.head.state, draft.study),
        )
        return await self._made(trials, who, _submitted, rest)

    async def _accept(
        self, request: pb.SubmitStudyRequest, draft: studies.Draft, key: str, who: Asker
    ) -> tuple[TrialId, ...]:
        """Have the study accepted; its trials. Raises _Identical, and whatever refuses it."""
        study = replace(draft.study, identity=secrets.token_hex(16))
        draft = replace(draft, study=study)

        def compose(
            ahead: Event | PreparedEvent | None, name: StudyId, state: State, now: Time
        ) -> Event | PreparedEvent:
            submission_checks.check(state, study, who.user)
            other = self._identical(state, study.fingerprint, who)
            if other and not request.again:
                raise _Identical(other)
            # Again: the last study with this code may have been removed meanwhile, and the code.
            self._stored(request.code_sha256)
            room_for_study(state, who.user, len(draft.argvs))
            if self._free_id(request) != name:
                raise _NameTaken
            self.taken[name] = study.identity
            self.owners[name] = who.user
            return ahead or Submitted(*draft.accepted(name, who.user, now), key)

        while True:
            ahead, name = None, self._free_id(request)
            if len(draft.argvs) > SMALL:
                begin = partial(_prepared, draft, name, who.user, self.head.clock(), key)
                ahead = await self.head.reader.do(who.user, begin)
            try:
                return await carry_out(self.head, key, partial(compose, ahead, name))
            except _NameTaken:
                continue

    async def _made(
        self,
        trials: Sequence[TrialId],
        who: Asker,
        of: Callable[[list[pb.Trial]], Message],
        rest: pb.SubmitStudyResponse | pb.AddTrialsResponse,
    ) -> bytes:
        """The answer about what a request has made, beside the `rest` of it. Raises NotNow."""

        def begin(state: State) -> Pieces[bytes]:
            known = [state.trials[trial] for trial in trials if trial in state.trials]
            if not known:
                raise NotNow("the study that this request made has been removed since")
            rest.study = known[0].spec.study
            yield
            return (yield from _unranked(state, known, of, rest))

        return await self.head.read(who.user, len(trials), begin)

    async def _foretold(self, study: Study, who: Asker) -> list[str]:
        """What to say of a study to come by what earlier ones have shown."""
        state = self.head.state
        others = alike(state, study, who.user)
        count = sum(len(state.members[other]) for other in others)
        return await self.head.read(who.user, count, lambda state: foretold(state, study, others))

    async def _warmed(
        self, draft: studies.Draft, searcher: Searcher, who: Asker
    ) -> tuple[studies.Draft, list[str]]:
        """The draft with the ids of the studies that its searcher is to know, and what those tell.
        Raises NotFound, Refused."""
        state = self.head.state
        ids = tuple(names.study_id(state, name, who) for name in searcher.warm_start)
        by = measure(draft.study, ())

        def told(state: State) -> Pieces[list[str]]:
            said = []
            for each in ids:
                trials = yield from trials_of(state, names.there(state, each))
                ranked = (by.standing(trial)[0] == 0 for trial in trials)
                count = sum((yield from gathered(ranked, LOOKED_AT)))
                said.append(f"warm start: {count} trials of {each} have a {by.metric}")
            return said

        count = sum(len(state.members[each]) for each in ids)
        notes = await self.head.read(who.user, count, told)
        searcher = replace(searcher, warm_start=ids)
        return replace(draft, study=replace(draft.study, searcher=searcher)), notes

    def _stored(self, code_sha256: str) -> None:
        """See that the code is here. Raises Refused."""
        if code_sha256 and self.blobs.path(code_sha256) is None:
            expected = "a code snapshot that was uploaded before (PutBlob)"
            raise Refused(FieldError("code_sha256", shown(code_sha256), expected))

    async def _preview(
        self,
        request: pb.SubmitStudyRequest,
        draft: studies.Draft,
        identical: StudyId,
        notes: list[str],
        suited: submission_checks.Fitting,
    ) -> bytes:
        """What the study would be; nothing is stored."""
        state, who, now = self.head.state, asker().user, self.head.clock()
        submission_checks.check(state, draft.study, who)
        room_for_study(state, who, len(draft.argvs))
        name = self._free_id(request)
        rest = _untried(state, draft, name, notes)
        rest.identical_to = identical
        rest.fitting_devices = suited.devices // draft.study.devices
        rest.misfits.extend(suited.misfits if suited.only_misfits else ())
        return await self.head.read(
            who, len(draft.argvs), lambda _: _preview(draft, name, who, now, rest)
        )

    def _free_id(self, request: pb.SubmitStudyRequest) -> StudyId:
        name = studies.proposed_id(request.spec)
        number = 1
        while (candidate := name if number == 1 else f"{name}-{number}") in self.taken:
            number += 1
        return candidate

    @staticmethod
    def _identical(state: State, fingerprint: str, who: Asker) -> StudyId:
        """The same study of the same owner, if there is one."""
        theirs = (s for s in state.studies.values() if s.owner == who.user)
        return next((study.id for study in theirs if study.fingerprint == fingerprint), "")

    def _alike(self, study: Study, given: tuple[tuple[str, str], ...], who: Asker) -> list[str]:
        """What to say of a study that differs from an earlier one by its code alone."""
        for other in reversed(self.head.state.studies.values()):
            if (
                study.program.code_sha256
                and other.owner == who.user
                and other.source == study.source
                and other.program.submit_directory == study.program.submit_directory
                and other.program.code_sha256 != study.program.code_sha256
                and set(given) <= set(other.program.environment)
            ):
                return [
                    f"the same as {other.id}, except for files of its directory: something there"
                    " has changed or is new, which makes it another study (.hermesignore names"
                    " what is not part of the program)"
                ]
        return []

    async def PutBlob(
        self, request_iterator: AsyncIterator[pb.PutBlobRequest], context: Any
    ) -> pb.PutBlobResponse:
        async def chunks() -> AsyncIterator[bytes]:
            async for request in request_iterator:
                yield request.data

        user = asker().user
        studies = self.head.state.studies.values()
        used = {each.program.code_sha256 for each in studies if each.owner == user}
        blob = await self.blobs.put(chunks(), user, used)
        return pb.PutBlobResponse(sha256=blob.sha256, size_bytes=blob.size_bytes)

    async def GetStudy(self, request: pb.GetStudyRequest, context: Any) -> bytes:
        who, state = asker(), self.head.state
        study_id = names.study_id(state, request.study, who)

        def begin(state: State) -> Pieces[bytes]:
            study = names.there(state, study_id)
            rest = pb.GetStudyResponse(
                next_up=self.head.scheduler.next_up(study_id, NEXT_UP, self.head.clock()),
                journal_sequence=self.head.committed,
            )
            return self._whole_study(state, study, self._aside(study), who, rest)

        return await self.head.read(who.user, len(state.members[study_id]), begin)

    def _whole_study(
        self,
        state: State,
        study: Study,
        aside: _Aside,
        who: Asker,
        rest: pb.GetStudyResponse,
    ) -> Pieces[bytes]:
        board = yield from leaderboard(state, study)
        rest.study.CopyFrom((yield from self._shown(state, study, board, aside, who)))
        members = yield from trials_of(state, study)
        return (
            yield from views.serialized(
                members,
                lambda trial: views.ranked_view(state, trial, board),
                lambda some: pb.GetStudyResponse(trials=some),
                rest,
            )
        )

    async def ListStudies(
        self, request: pb.ListStudiesRequest, context: Any
    ) -> pb.ListStudiesResponse:
        who, state = asker(), self.head.state
        there = [state.studies[study] for study in who.studies(state)]
        chosen, token = page(there, request.page_size, request.page_token)

        def begin(state: State) -> Pieces[pb.ListStudiesResponse]:
            known = [state.studies[each.id] for each in chosen if each.id in state.studies]
            return listed(state, known, {study.id: self._aside(study) for study in known})

        def listed(
            state: State, known: Sequence[Study], aside: Mapping[StudyId, _Aside]
        ) -> Pieces[pb.ListStudiesResponse]:
            found = []
            for study in known:
                board = yield from leaderboard(state, study)
                found.append((yield from self._shown(state, study, board, aside[study.id], who)))
            return pb.ListStudiesResponse(studies=found, next_page_token=token)

        trials = sum(len(state.members[study.id]) for study in chosen)
        return await self.head.read(who.user, trials, begin)

    def _aside(self, study: Study) -> _Aside:
        idle = self.head.scheduler.left_idle(study.id, self.head.clock())
        return _Aside(idle, self.setback.notices(study.id))

    def _shown(
        self,
        state: State,
        study: Study,
        board: RankedTrials,
        aside: _Aside,
        who: Asker,
    ) -> Pieces[pb.Study]:
        now = self.head.clock()
        waits = yield from waits_for(state, study, now, who)
        told = yield from all_notices(state, study, now, aside.idle)
        told += aside.setback
        return (yield from views.study_view(state, study, board, waits, told))

    async def AddTrials(
        self, request: pb.AddTrialsRequest, context: Any
    ) -> pb.AddTrialsResponse | bytes:
        for ahead in chain(repeat(True, ROUNDS), repeat(False)):
            with suppress(_Grown):  # by another request, and the numbers of these are taken
                return await self._add(request, asker(), ahead)
        raise AssertionError("the rounds never end")

    async def _add(
        self, request: pb.AddTrialsRequest, who: Asker, ahead: bool
    ) -> pb.AddTrialsResponse | bytes:
        """Add trials, drawn `ahead` or as the event is composed. Raises _Grown."""
        key = key_of(request, who)
        state = self.head.state
        study = state.studies[names.study_id(state, request.study, who)]
        members = state.members[study.id]
        added = studies.Addition(())
        if study.searcher is not None and not (request.parameters or request.new_parameters):
            return await self._propose_more(request, key, study, who)
        if key not in state.requests:
            within_quota(state, study.owner, who.user, request.count)
        if key not in state.requests and ahead:
            drawing = _drawing(state, study, request)
            added = await self.head.reader.do(who.user, drawing)
            event = Added(study.id, added.trials, key)
            many = len(added.trials) > SMALL
            made = await self.head.prepare(who.user, event) if many else event

        def compose(state: State, now: Time) -> Event | PreparedEvent:
            nonlocal added
            if not ahead:
                added = whole(_drawing(state, names.there(state, study.id), request)())
            elif not state.is_still(study, members):
                raise _Grown
            within_quota(state, study.owner, who.user, len(added.trials))
            return made if ahead else Added(study.id, added.trials, key)

        trials = await carry_out(self.head, key, compose)
        rest = pb.AddTrialsResponse(notes=added.notes)
        return await self._made(trials, who, _added, rest)

    async def _propose_more(
        self, request: pb.AddTrialsRequest, key: str, study: Study, who: Asker
    ) -> pb.AddTrialsResponse:
        """Have the study's searcher propose so many trials beyond those that it has, or was to
        bring it to."""
        assert study.searcher is not None
        wanted = 0

        def compose(state: State, now: Time) -> Event:
            nonlocal wanted
            known = len(state.members[names.there(state, study.id).id])
            wanted = max(known, state.searching.get(study.id, 0)) + request.count
            most = studies.TRIALS_LIMIT
            if request.count < 1 or wanted > most:
                expected = f"1 or more, as a study has at most {most} trials"
                raise Refused(FieldError("count", str(request.count), expected))
            return SearchLimited(study.id, wanted, key)

        await carry_out(self.head, key, compose)
        more = "1 more trial" if request.count == 1 else f"{request.count} more trials"
        told = f"{study.searcher.name} proposes {more} as results come in"
        return pb.AddTrialsResponse(study=study.id, notes=[told])

    async def ExtendStudy(
        self, request: pb.ExtendStudyRequest, context: Any
    ) -> pb.ExtendStudyResponse | bytes:
        for ahead in chain(repeat(True, ROUNDS), repeat(False)):
            with suppress(_Grown):  # it was extended, or its trials are others, since
                return await self._extend(request, asker(), ahead)
        raise AssertionError("the rounds never end")

    async def _extend(self, request: pb.ExtendStudyRequest, who: Asker, ahead: bool) -> bytes:
        """Extend the study; what comes of very many trials is found `ahead`, if it may be. Raises
        _Grown."""
        key = key_of(request, who)
        state = self.head.state
        study_id, _ = names.selected(state, request.selection, who)
        study, found, which, change = state.studies[study_id], None, None, None
        notes: list[str] = []
        if key not in state.requests:
            known = len(state.members[study_id])
            more = request.run_cap - known if is_of_all(request) else 0
            within_quota(state, study.owner, who.user, max(0, more))
            count = known + max(0, more)
            if ahead and count > SMALL:
                begin = partial(found_ahead, request, who, key)
                found = await self.head.reader.do(
                    who.user, lambda: begin(self.head.clock(), still(self.head.state))
                )
                notes = found.notes
            else:
                which = to_change(state, study_id)
                change = await self.head.read(
                    who.user, count, lambda state: changed(state, request, which)
                )

        def compose(state: State, now: Time) -> Event | PreparedEvent:
            study_id, trials = names.selected(state, request.selection, who)
            if found is not None:
                if not found.holds(state):
                    raise _Grown
                found.trials.clear()
                event = found.event
            else:
                if which is None or change is None or to_change(state, study_id) != which:
                    raise _Grown
                event, notes[:] = extended(state, study_id, trials, request, change)
            more = len(event.trials) + len(event.resumed) + len(event.added)
            within_quota(state, state.studies[study_id].owner, who.user, more)
            return found.made if found is not None else replace(event, request_id=key)

        trials = await carry_out(self.head, key, compose)
        rest = pb.ExtendStudyResponse(notes=notes)
        return await self.head.read(
            who.user, len(trials), lambda _: views.serialized(trials, str, _extended, rest)
        )

    async def SetMetric(self, request: pb.SetMetricRequest, context: Any) -> pb.SetMetricResponse:
        who = asker()
        key = key_of(request, who)
        study_id = names.study_id(self.head.state, request.study, who)
        count = len(self.head.state.members[study_id])

        def told(state: State) -> pb.SetMetricResponse:
            study = names.there(state, study_id)
            members = [state.trials[trial] for trial in state.members[study_id]]
            ranking = views.ranking_view(measure(study, reported(members)))
            return pb.SetMetricResponse(ranking=ranking, notes=unread(state, study))

        def compose(state: State, now: Time) -> Event:
            names.there(state, study_id)
            return MetricChosen(study_id, by.metric, by.goal, by.mode, key)

        if key not in self.head.state.requests:
            by = await self._asked_for(study_id, request.metric, "metric")
        await carry_out(self.head, key, compose)
        return await self.head.read(who.user, count, lambda state: in_one(partial(told, state)))

    async def _asked_for(self, study_id: StudyId, asked: types.Metric, field: str) -> Measure:
        """What a person wants the study's trials to be judged by. Raises NotFound, Refused, and
        NotNow if there is nothing yet."""

        def found(state: State) -> Measure:
            study = names.there(state, study_id)
            members = [state.trials[trial] for trial in state.members[study_id]]
            return asked_for(study, members, asked, field)

        count = len(self.head.state.members[study_id])
        begin = lambda state: in_one(partial(found, state))  # noqa: E731
        return await self.head.read(asker().user, count, begin)

    async def SetSignal(self, request: pb.SetSignalRequest, context: Any) -> pb.SetSignalResponse:
        who = asker()
        key = key_of(request, who)
        known = names.study_id(self.head.state, request.study, who)

        def choose(state: State) -> Signal:
            study = names.there(state, known)
            if study.stop.target is not None:
                raise NotNow(
                    f"{study.id} stops its trials at a value of {study.signal} (stop.target),"
                    " which means nothing for another signal: clone it with another target"
                )
            return by.metric, by.goal

        if key not in self.head.state.requests:
            asked = types.Metric(name=request.signal.name, goal=request.signal.goal)
            by = await self._asked_for(known, asked, "signal")
            await read_instead(self.head, who.user, known, key, choose)
        study = self.head.state.studies[known]
        signal = types.Signal(name=study.signal, goal=GOALS[study.signal_goal])
        return pb.SetSignalResponse(signal=signal)

    async def RemoveStudy(
        self, request: pb.RemoveStudyRequest, context: Any
    ) -> pb.RemoveStudyResponse:
        who = asker()
        key = key_of(request, who)
        removed: list[tuple[Study, Sequence[str]]] = []
        gone: list[Trial] = []

        def compose(state: State, now: Time) -> Event:
            study_id = names.study_id(state, request.study, who)
            if study_id in state.searching and not state.active[study_id]:
                raise NotNow(
                    f"study {study_id} still has trials proposed: stop it first (hermesctl study"
                    f" stop {study_id}), or wait"
                )
            if active := len(state.active[study_id]):
                raise NotNow(
                    f"study {study_id} has {active} unfinished "
                    f"trial{'' if active == 1 else 's'}: stop it first"
                    f" (hermesctl study stop {study_id}), or wait"
                )
            members = state.members[study_id]
            removed.append((replace(state.studies[study_id]), members))
            gone[:] = map(state.trials.__getitem__, members)
            return Removed(study_id, key)

        async def remove() -> None:
            await carry_out(self.head, key, compose)
            self.head.reader.empty(gone)
            for study, trials in removed:
                await self.head.journal.forget_points(trials)
                code = study.program.code_sha256
                used = {other.program.code_sha256 for other in self.head.state.studies.values()}
                if code and code not in used:
                    self.blobs.remove(code)

        # Who asks again finds it removed: what lies of it on the disk goes even if nobody waits.
        await asyncio.shield(remove())
        return pb.RemoveStudyResponse()


def submission(
    request: pb.SubmitStudyRequest, given: tuple[tuple[str, str], ...]
) -> studies.Submission:
    """What a request submits, with the variables `given` for the study."""
    return studies.Submission(
        request.spec,
        request.code_sha256,
        request.submit_directory,
        texts(request.environment),
        given,
        request.code_identity_sha256,
        request.program_sha256,
    )


def unstored(
    state: State, draft: studies.Draft, id: StudyId, owner: str, now: Time, notes: Iterable[str]
) -> pb.SubmitStudyResponse:
    """What a study of this id would be in a head of this state, which stays as it is."""
    rest = _untried(state, draft, id, notes)
    return pb.SubmitStudyResponse.FromString(whole(_preview(draft, id, owner, now, rest)))


def _untried(
    state: State, draft: studies.Draft, id: StudyId, notes: Iterable[str]
) -> pb.SubmitStudyResponse:
    """What is said of a study that is not there, but for its trials."""
    return pb.SubmitStudyResponse(
        study=id,
        notes=notes,
        policy=submission_checks.policy(state, draft.study),
        placement=submission_checks.placement(state, draft.study),
    )


def _prepared(
    draft: studies.Draft, id: StudyId, owner: str, now: Time, key: str
) -> Pieces[Event | PreparedEvent]:
    """What is journaled of a study, and its trials as they are at first."""
    study = draft.accepted_as(id, owner, now)
    specs = yield from gathered(draft.trials(study))
    return (yield from prepared(Submitted(study, tuple(specs), key), State(), now))


def _preview(
    draft: studies.Draft, id: StudyId, owner: str, now: Time, rest: pb.SubmitStudyResponse
) -> Pieces[bytes]:
    """The answer with the trials that the study would have, beside the `rest` of it; those of the
    draft are forgotten."""
    study = draft.accepted_as(id, owner, now)
    alone = State()
    alone.apply(Submitted(study, (), "preview"), now)
    for specs in parts(draft.trials(study), AT_ONCE):
        alone.apply(Added(study.id, tuple(specs), f"preview {specs[0].number}"), now)
        yield
    trials = list(alone.trials.values())
    answer = yield from _unranked(alone, trials, _submitted, rest)
    alone.trials.clear()
    yield from emptied(trials, draft.stages, draft.argvs)
    return answer


def texts(variables: Iterable[NamedValue]) -> tuple[tuple[str, str], ...]:
    """Names and values of variables."""
    return tuple((item.name, str(value_of(item))) for item in variables)


def _submitted(some: list[pb.Trial]) -> Message:
    return pb.SubmitStudyResponse(trials=some)


def _drawing(
    state: State, study: Study, request: pb.AddTrialsRequest
) -> Callable[[], Pieces[studies.Addition]]:
    """How the further trials of the study as it is are drawn."""
    return partial(
        studies.addition,
        study,
        [state.trials[trial].spec for trial in state.members[study.id]],
        request.parameters,
        request.new_parameters,
        request.count if request.HasField("count") else None,
    )


def _added(some: list[pb.Trial]) -> Message:
    return pb.AddTrialsResponse(trials=some)


def _extended(some: list[str]) -> Message:
    return pb.ExtendStudyResponse(trials=some)


def _unranked(
    state: State,
    trials: Sequence[Trial],
    of: Callable[[list[pb.Trial]], Message],
    rest: Message,
) -> Pieces[bytes]:
    """An answer about trials that have only been submitted, in bytes."""
    ranked_by = measure(state.studies[trials[0].spec.study], (yield from all_reported(trials)))
    view = partial(views.trial_view, state, measure=ranked_by)
    return (yield from views.serialized(trials, view, of, rest))
