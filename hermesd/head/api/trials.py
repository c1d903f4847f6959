"""Trials: shown, explained, paused, resumed, stopped, retried, forked."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeAlias, TypeVar

from hermesd.core.events import (
    Cancelled,
    Event,
    Marked,
    Paused,
    Retried,
    SearchLimited,
    Unpaused,
)
from hermesd.core.model import (
    Phase,
    Study,
    StudyId,
    Time,
    TrialId,
    study_of,
)
from hermesd.core.state import State
from hermesd.head.api import forking, names, views
from hermesd.head.api.notices import notices, policy_words, unread
from hermesd.head.api.occupied import taken
from hermesd.head.api.paging import page
from hermesd.head.api.ranking import asked_for, front, leaderboard, objectives
from hermesd.head.api.requests import (
    PART,
    Mutation,
    carry_out,
    carry_out_in_parts,
    key_of,
    part_key,
)
from hermesd.head.api.users import within_quota
from hermesd.head.fleet.sessions import NodeSessions
from hermesd.head.fleet.stale_state import StaleState
from hermesd.head.journal import points
from hermesd.head.loop import Head
from hermesd.head.refusals import NotFound, NotNow
from hermesd.head.security.access import FAILED_THERE, Asker, asker
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import types_pb2 as types
from hermesd.pieces import Pieces, in_one
from hermesd.refusal import FieldError, Refused, shown
from hermesd.wire import GOALS

BEST_COUNT = 10
LOST_NAMED = 3
TAGS_LIMIT = 32
# That part of a stop which ends the study's search; the parts with trials count from 0.
SEARCH_PART = -1
TAG_LENGTH = 64
NOTE_LENGTH = 4000

T = TypeVar("T")
# Which of some trials an event is to be about; the last says whether they were named one by one.
_Choose: TypeAlias = Callable[[State, tuple[TrialId, ...], bool], tuple[TrialId, ...]]
Change: TypeAlias = Callable[[tuple[TrialId, ...], str], Event]


@dataclass(frozen=True)
class TrialsService:
    """What is asked of trials, and done with them."""

    head: Head
    sessions: NodeSessions
    setback: StaleState

    async def ListTrials(
        self, request: pb.ListTrialsRequest, context: Any
    ) -> pb.ListTrialsResponse:
        def listed(state: State, study: Study) -> Pieces[pb.ListTrialsResponse]:
            chosen, token = page(state.members[study.id], request.page_size, request.page_token)
            board = yield from leaderboard(state, study)
            found = [views.ranked_view(state, state.trials[trial], board) for trial in chosen]
            return pb.ListTrialsResponse(trials=found, next_page_token=token)

        return await _read(self.head, request.study, listed)

    async def BestTrials(self, request: pb.BestTrialsRequest, context: Any) -> bytes:
        if request.count < 0:
            raise Refused(FieldError("count", str(request.count), "1 or more, or 0"))

        def ranked(state: State, study: Study) -> Pieces[bytes]:
            by = None
            if request.HasField("metric"):
                members = [state.trials[trial] for trial in state.members[study.id]]
                by = asked_for(study, members, request.metric)
            board = yield from leaderboard(state, study, by)
            ranking = views.ranking_view(board.measure)
            rest = pb.BestTrialsResponse(study=study.id, ranking=ranking)
            ordered, aims = board.trials, objectives(study, board.measure)
            if len(aims) > 1 and by is None:
                first = front(ordered, aims)
                rest.front.extend(trial.id for trial in first)
                rest.objectives.extend(
                    types.Objective(name=aim.metric, goal=GOALS[aim.goal]) for aim in aims
                )
                ahead = set(rest.front)
                ordered = [*first, *(trial for trial in ordered if trial.id not in ahead)]
            best = ordered[: request.count or BEST_COUNT]
            return (
                yield from views.serialized(
                    best,
                    lambda trial: views.ranked_view(state, trial, board),
                    lambda some: pb.BestTrialsResponse(trials=some),
                    rest,
                )
            )

        return await _read(self.head, request.study, ranked)

    async def GetCurve(self, request: pb.GetCurveRequest, context: Any) -> pb.GetCurveResponse:
        if request.max_points < 0:
            raise Refused(FieldError("max_points", str(request.max_points), "1 or more, or 0"))
        state = self.head.state
        trial = names.trial_id(state, request.trial, asker())
        metric = request.metric or state.studies[state.trials[trial].spec.study].signal
        curve = points.curve(await self._pieces(trial, metric), request.max_points)
        return pb.GetCurveResponse(
            metric=metric,
            steps=curve.steps,
            values=curve.values,
            metrics_available=await self.head.journal.metrics(trial),
        )

    async def _pieces(self, trial: TrialId, metric: str) -> list[points.Piece]:
        """The points of a trial, those of what it was forked from before them."""
        own = list(await self.head.journal.pieces(trial, metric))
        trials = self.head.state.trials
        known, parent = trials[trial], ""
        if known.carrier is not None:
            parent, step = known.carrier, known.step
        elif known.forked is not None:
            parent, step = known.forked.trial, known.forked.step
        if parent not in trials:
            return own
        past = points.curve(await self._pieces(parent, metric))
        past = points.until(past, step)
        return [points.Piece(trial, 0, metric, *points.pack(past)), *own]

    async def ExplainTrial(
        self, request: pb.ExplainTrialRequest, context: Any
    ) -> pb.ExplainTrialResponse:
        who = asker()
        state, now = self.head.state, self.head.clock()
        trial = names.trial_id(state, request.trial, who)
        told = self.head.scheduler.explain(trial, now, who.user)
        study = state.studies[state.trials[trial].spec.study]
        occupied = taken(state, state.trials[trial], now, who)
        ranking = [
            pb.RankedTrial(trial=name, words=words, state=views.STATES[phase])
            for name, words, phase in told.ranking
        ]
        return pb.ExplainTrialResponse(
            trial=trial,
            summary=told.summary + (f"; {occupied}" if occupied else "") + self.setback.why(trial),
            ranking=ranking,
            last_decision=told.last_decision,
            policy=policy_words(state, study.id, told.policy),
            earlier_studies=told.earlier_studies,
            left_out=[
                pb.LeftOut(
                    place=each.place,
                    # That of a quarantine names the trials that failed there.
                    reason=each.reason if who.everything or not each.until else FAILED_THERE,
                    until_unix_seconds=each.until or 0,
                )
                for each in told.left_out
            ],
            notices=[
                *notices(self.head.scheduler, study, now),
                *unread(state, study),
                *self.setback.notices(study.id),
            ],
        )

    async def PauseTrials(
        self, request: pb.PauseTrialsRequest, context: Any
    ) -> pb.PauseTrialsResponse:
        return pb.PauseTrialsResponse(trials=await self._change(request, _pausable, Paused))

    async def ResumeTrials(
        self, request: pb.ResumeTrialsRequest, context: Any
    ) -> pb.ResumeTrialsResponse:
        return pb.ResumeTrialsResponse(trials=await self._change(request, _paused, Unpaused))

    async def StopTrials(
        self, request: pb.StopTrialsRequest, context: Any
    ) -> pb.StopTrialsResponse:
        notes: list[str] = []

        def chosen(state: State, trials: tuple[TrialId, ...]) -> None:
            notes[:] = _losses(state, trials)

        await self._end_search(request)
        stopped = await self._change(request, _going_on, Cancelled, chosen)
        return pb.StopTrialsResponse(trials=stopped, notes=notes)

    async def _end_search(self, request: pb.StopTrialsRequest) -> None:
        """A study that is stopped as a whole gets no further trials."""
        who = asker()
        key = part_key(key_of(request, who), SEARCH_PART)

        def compose(state: State, now: Time) -> Event:
            study, _ = names.selected(state, request.selection, who)
            if study not in state.searching:
                raise NotNow(f"no more trials are being proposed for {study}")
            return SearchLimited(study, None, key)

        if not request.selection.trials:
            with suppress(NotNow):
                await self.head.change(key, compose)

    async def RetryTrials(
        self, request: pb.RetryTrialsRequest, context: Any
    ) -> pb.RetryTrialsResponse:
        return pb.RetryTrialsResponse(trials=await self._change(request, _retriable, Retried))

    async def MarkTrials(
        self, request: pb.MarkTrialsRequest, context: Any
    ) -> pb.MarkTrialsResponse:
        who = asker()
        key = key_of(request, who)

        def marked(state: State, trials: tuple[TrialId, ...], key: str) -> Event:
            add, remove = _tags(request.add_tags), tuple(request.remove_tags)
            note = _note(request.note) if request.HasField("note") else None
            if not add and not remove and note is None:
                raise Refused(FieldError("add_tags", "", "a tag to give or to take, or a note"))
            for trial in trials:
                if len({*state.trials[trial].tags, *add} - {*remove}) > TAGS_LIMIT:
                    most = f"at most {TAGS_LIMIT} tags of a trial; {trial} would have more"
                    raise Refused(FieldError("add_tags", ", ".join(add), most))
            return Marked(trials, add, remove, note, key)

        def compose(state: State, now: Time) -> Event:
            return marked(state, names.selected(state, request.selection, who)[1], key)

        if (many := _many(self.head.state, request.selection, who)) is None:
            return pb.MarkTrialsResponse(trials=await carry_out(self.head, key, compose))
        study, trials = many

        def part(state: State, trials: tuple[TrialId, ...], key: str) -> Event:
            names.there(state, study)
            return marked(state, trials, key)

        done = await carry_out_in_parts(self.head, key, trials, part)
        return pb.MarkTrialsResponse(trials=done)

    async def ForkTrial(self, request: pb.ForkTrialRequest, context: Any) -> pb.ForkTrialResponse:
        who = asker()
        key = key_of(request, who)

        unsaved = ""
        notes: list[str] = []

        def compose(state: State, now: Time) -> Event:
            parent = names.trial_id(state, request.trial, who)
            owner = state.studies[state.trials[parent].spec.study].owner
            within_quota(state, owner, who.user, 1)
            event = forking.forked(state, parent, request, key, unsaved)
            notes[:] = forking.notes(
                state, state.trials[parent], event, unsaved, is_asked=request.HasField("step")
            )
            return event

        if key not in self.head.state.requests and not request.HasField("step"):
            parent = names.trial_id(self.head.state, request.trial, who)
            forking.spec_of(self.head.state, parent, request)  # what won't do is refused before
            unsaved = await forking.saved(self.head, self.sessions, parent)
        (made,) = await carry_out(self.head, key, compose)
        count = len(self.head.state.members.get(study_of(made), ()))
        shown = partial(views.among_its_study, trial_id=made)
        trial = await self.head.read(who.user, count, shown)
        return pb.ForkTrialResponse(trial=trial, notes=notes)

    async def _change(
        self,
        request: _Selecting,
        choose: _Choose,
        event: Change,
        told: Callable[[State, tuple[TrialId, ...]], None] = lambda state, chosen: None,
    ) -> tuple[TrialId, ...]:
        """Make an event about the selected trials that it can be about; `told` hears which."""
        who = asker()
        key = key_of(request, who)

        def checked(state: State, trials: tuple[TrialId, ...], study: StudyId) -> Event:
            chosen = choose(state, trials, bool(request.selection.trials))
            reopened = sum(state.trials[trial].phase.final for trial in chosen)
            within_quota(state, state.studies[study].owner, who.user, reopened)
            told(state, chosen)
            return event(chosen, key)

        def compose(state: State, now: Time) -> Event:
            study, trials = names.selected(state, request.selection, who)
            return checked(state, trials, study)

        state = self.head.state
        if (many := _many(state, request.selection, who)) is None:
            return await carry_out(self.head, key, compose)
        study, trials = many
        numbers = range(-(-len(trials) // PART))
        if not any(part_key(key, number) in state.requests for number in numbers):

            def begin(state: State) -> Pieces[Event]:
                names.there(state, study)
                return in_one(lambda: checked(state, trials, study))

            await self.head.read(who.user, len(trials), begin)

        def part(state: State, trials: tuple[TrialId, ...], key: str) -> Event | None:
            names.there(state, study)
            try:
                chosen = choose(state, trials, False)
            except NotNow:
                return None
            return event(chosen, key) if chosen else None

        return await carry_out_in_parts(self.head, key, trials, part)


def _many(
    state: State, selection: pb.Selection, who: Asker
) -> tuple[StudyId, tuple[TrialId, ...]] | None:
    """What is selected, if those are more trials than one entry is to be about."""
    try:
        study, trials = names.selected(state, selection, who)
    except (NotFound, Refused):
        return None  # said where it is known whether the request was carried out before
    return (study, trials) if len(trials) > PART else None


async def _read(head: Head, name: str, pieces: Callable[[State, Study], Pieces[T]]) -> T:
    """What is to be said of the study that is meant. Raises NotFound, Refused."""
    who = asker()
    study_id = names.study_id(head.state, name, who)

    def begin(state: State) -> Pieces[T]:
        return pieces(state, names.there(state, study_id))

    return await head.read(who.user, len(head.state.members[study_id]), begin)


def _tags(given: Iterable[str]) -> tuple[str, ...]:
    """Tags that can be told from trials and options on a command line. Raises Refused."""
    expected = (
        f"1 to {TAG_LENGTH} printable characters without spaces, commas and slashes, not a hyphen"
        " first"
    )
    errors = [
        FieldError(f"add_tags[{index}]", shown(tag), expected)
        for index, tag in enumerate(given)
        if not re.fullmatch(rf"[^\s,/-][^\s,/]{{0,{TAG_LENGTH - 1}}}", tag) or not tag.isprintable()
    ]
    if errors:
        raise Refused(*errors)
    return tuple(dict.fromkeys(given))


def _note(text: str) -> str:
    """A note without what a terminal would take for commands. Raises Refused."""
    if len(text) > NOTE_LENGTH or not text.replace("\n", "").replace("\t", "").isprintable():
        expected = f"at most {NOTE_LENGTH} printable characters"
        raise Refused(FieldError("note", shown(text), expected))
    return text


class _Selecting(Mutation, Protocol):
    @property
    def selection(self) -> pb.Selection: ...


# For the others of the trials that are meant, each of these wishes is granted already.


def _going_on(state: State, trials: tuple[TrialId, ...], named: bool) -> tuple[TrialId, ...]:
    """Those that are not over, nor about to be."""
    known = [state.trials[trial] for trial in trials]
    return tuple(t.id for t in known if not t.phase.final and t.ending is None)


def _losses(state: State, trials: tuple[TrialId, ...]) -> list[str]:
    """What is lost when these trials end, in words."""
    known = [state.trials[trial] for trial in trials]
    lost = [
        trial
        for trial in known
        if not trial.fidelity.restorable
        and trial.step > (trial.checkpoint.step if trial.checkpoint else 0)
    ]
    if not lost:
        return []
    named = [f"{trial.id} ({trial.step} steps)" for trial in lost[:LOST_NAMED]]
    more = f" and {len(lost) - LOST_NAMED} more" if len(lost) > LOST_NAMED else ""
    why = lost[0].fidelity_reason or "it is not known yet how they resume"
    return [f"no checkpoint can be taken of {', '.join(named)}{more}: a retry starts over ({why})"]


def _pausable(state: State, trials: tuple[TrialId, ...], named: bool) -> tuple[TrialId, ...]:
    """Those that go on and are not held back yet."""
    return tuple(t for t in _going_on(state, trials, named) if not state.trials[t].paused)


def _paused(state: State, trials: tuple[TrialId, ...], named: bool) -> tuple[TrialId, ...]:
    """Those that are held back."""
    return tuple(t for t in _going_on(state, trials, named) if state.trials[t].paused)


def _retriable(state: State, trials: tuple[TrialId, ...], named: bool) -> tuple[TrialId, ...]:
    """Those that ended without completing. Raises NotNow if a named one did not."""
    ended = {Phase.FAILED, Phase.STOPPED, Phase.CANCELLED}
    chosen = tuple(trial for trial in trials if state.trials[trial].phase in ended)
    if named and len(chosen) < len(trials):
        other = next(trial for trial in trials if trial not in chosen)
        raise NotNow(
            f"{other} is {state.trials[other].phase}: only failed, stopped and cancelled trials"
            " can be tried again"
        )
    if not chosen:
        raise NotNow("no trial of the study has failed or was stopped")
    return chosen
