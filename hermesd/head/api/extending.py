"""What an ExtendStudy changes: which trials go on, are new, get other points, or end.

A trial that would run for nothing, or from its beginning, is not extended at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from hermesd import study as studies
from hermesd.core.events import Event, Extended
from hermesd.core.lengths import is_length
from hermesd.core.model import Fidelity, Phase, Setting, StopRule, Study, StudyId, Time, TrialId
from hermesd.core.progress import stop_reason
from hermesd.core.state import State
from hermesd.core.tables import Members
from hermesd.core.trial import Trial
from hermesd.head.api import names
from hermesd.head.loop import PreparedEvent, prepared
from hermesd.head.refusals import NotNow
from hermesd.head.security.access import Asker
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pieces import Pieces
from hermesd.refusal import FieldError, Refused, shown

# How the reason begins of a trial that a smaller run_cap ends.
_CUT = "run_cap = "


def extended(
    state: State,
    study_id: StudyId,
    trials: Sequence[TrialId],
    request: pb.ExtendStudyRequest,
    change: studies.StudyChange,
) -> tuple[Extended, list[str]]:
    """The event, without its request, and what to say of it; `change` as `changed` has it.

    New values of parameters are for finished trials alone. Without them a study goes on running by
    its new rules, and of its finished trials those go on that only the old ones had stopped.

    Raises:
        NotNow: a trial that is given other parameters is not finished, or cannot go on.
        Refused: what is asked for will not do.
    """
    study = state.studies[study_id]
    members = [state.trials[trial] for trial in state.members[study_id]]
    chosen: Sequence[Trial] = [state.trials[trial] for trial in trials]
    of_all = is_of_all(request)
    values = [*request.parameters, *request.new_parameters]
    runs_on = not values and (of_all or any(not trial.phase.final for trial in chosen))
    going_on = _by_new_rules(study, chosen, request) if runs_on else _again(study, chosen, request)
    chosen, rule, parameters, lines = going_on
    # Some may have begun since it was drawn.
    redrawn = tuple(each for each in change.redrawn if _is_open(state.trials[each.id]))
    surplus = [each for each in change.surplus if _is_untouched(state.trials[each])]
    ended = dict.fromkeys(surplus, f"{_CUT}{request.run_cap}")
    ruled = replace(study, stop=rule)
    for trial in members if runs_on else ():
        if reason := _why_it_ends(trial, ruled):
            ended[trial.id] = reason
    source = change.source
    if values and len(chosen) == len(members):
        source = studies.with_values(source or study.source, values)
    event = Extended(
        study=study_id,
        trials=tuple(trial.id for trial in chosen),
        stop=rule,
        parameters=parameters,
        argv=lines,
        request_id="",
        source=source,
        redrawn=redrawn,
        added=change.added,
        ended=tuple(ended.items()),
        resumed=change.resumed,
    )
    going = sum(not trial.phase.final for trial in members) - len(ended)
    notes = list(_told(event, going if rule != study.stop else 0)) if runs_on else []
    if runs_on and not notes:
        notes = ["no trial changes; those drawn from now on follow the new file"]
    return event, notes


class _GoingOn(NamedTuple):
    """The finished trials that go on, by which rule, and with what else."""

    trials: Sequence[Trial]
    rule: StopRule
    parameters: tuple[tuple[str, Setting], ...]
    argv: tuple[tuple[str, ...], ...]


def _by_new_rules(
    study: Study, chosen: Sequence[Trial], request: pb.ExtendStudyRequest
) -> _GoingOn:
    """Of a study that goes on running: the trials that only its old rules had stopped."""
    rule, of_all = study.stop, is_of_all(request)
    if request.stop.ByteSize() or not of_all:
        rule = studies.extension(study, (), request.stop, ())[0]
    if rule == study.stop and not of_all:
        raise Refused(FieldError("stop", "", "a limit that differs from the study's"))
    ruled = replace(study, stop=rule)
    stopped = [trial for trial in chosen if _was_stopped_by(study, ruled, trial)]
    return _GoingOn(stopped, rule, (), tuple(trial.spec.argv for trial in stopped))


def _again(study: Study, chosen: Sequence[Trial], request: pb.ExtendStudyRequest) -> _GoingOn:
    """Of finished trials: those that go on for longer, or with other parameters."""
    extension = partial(
        studies.extension,
        study,
        stop=request.stop,
        parameters=request.parameters,
        new=request.new_parameters,
    )
    extension([trial.spec for trial in chosen])  # what is wrong is said before "not now"
    chosen = extensible(study, chosen)
    if not (request.parameters or request.new_parameters):
        # Those whose program has ended by itself a limit does not concern.
        held = [trial for trial in chosen if trial.phase is not Phase.COMPLETED]
        chosen = held or chosen
    rule, parameters, lines = extension([trial.spec for trial in chosen])
    see_that_it_raises(rule, chosen)
    see_that_it_lengthens(dict(parameters), chosen)
    return _GoingOn(chosen, rule, parameters, lines)


def is_of_all(request: pb.ExtendStudyRequest) -> bool:
    """Whether it is about all trials of the study. Raises Refused if it names some."""
    of_all = request.HasField("run_cap") or bool(request.axes)
    if of_all and request.selection.trials:
        expected = "none: run_cap and the axes are those of all its trials"
        raise Refused(FieldError("selection.trials", ", ".join(request.selection.trials), expected))
    return of_all


class Changed(NamedTuple):
    """What a change of a study's file is made from: the same makes the same."""

    study: Study
    members: Members
    cut: frozenset[TrialId]


def to_change(state: State, study_id: StudyId) -> Changed:
    """The study as it is now."""
    members = state.members[study_id]
    cut = frozenset(trial for trial in members if _was_cut(state.trials[trial]))
    return Changed(state.studies[study_id], members, cut)


def changed(
    state: State, request: pb.ExtendStudyRequest, which: Changed
) -> Pieces[studies.StudyChange]:
    """What becomes of the study's file, and which trials that draws. Raises Refused, NotFound."""
    names.there(state, which.study.id)
    members = [state.trials[trial] for trial in which.members]
    return (
        yield from studies.change(
            which.study,
            [trial.spec for trial in members],
            {trial.id for trial in members if not _is_open(trial)},
            request.stop,
            request.run_cap if request.HasField("run_cap") else None,
            request.axes,
            which.cut,
        )
    )


class Found(NamedTuple):
    """What a study of very many trials is to be, found beside the loop."""

    which: Changed
    event: Extended
    notes: list[str]
    #: The study's trials when it was found.
    trials: list[Trial]
    #: Those that the event changes.
    meant: Container[TrialId]
    made: Event | PreparedEvent

    def holds(self, state: State) -> bool:
        """Whether that is still right: of the trials that the event changes none has begun or ended
        since, nor is any to end by the new rule, or to go on by it, that was not to be, or the
        other way round."""
        study = self.which.study
        ruled = replace(study, stop=self.event.stop)
        if not state.is_still(study, self.which.members):
            return False
        now = [*map(state.trials.get, self.which.members)]  # of the same study, these are there
        pairs = zip(self.trials, now, strict=True)
        changed = [(old, new) for old, new in pairs if old is not new and new is not None]
        return not any(
            _by_rule(old, study, ruled) != _by_rule(new, study, ruled)
            or (new.id in self.meant and _stage(old) != _stage(new))
            for old, new in changed
        )


def _stage(trial: Trial) -> tuple[object, ...]:
    """What is asked of a trial that is to go on, or has not begun."""
    over = (trial.phase, trial.step, trial.checkpoint) if trial.phase.final else ()
    return over, not trial.attempt, trial.ending is None


def _by_rule(trial: Trial, study: Study, ruled: Study) -> tuple[str | None, bool]:
    """Why the new rule ends the trial, and whether it goes on by it."""
    return _why_it_ends(trial, ruled), _was_stopped_by(study, ruled, trial)


def _why_it_ends(trial: Trial, ruled: Study) -> str | None:
    """Why an unfinished trial ends by the new rule at once; None if it does not."""
    if trial.phase.final or trial.ending is not None:
        return None
    return stop_reason(trial, ruled)


def found_ahead(
    request: pb.ExtendStudyRequest, who: Asker, key: str, now: Time, state: State
) -> Pieces[Found]:
    """The event of this request, in a copy of the state that nobody else has. Raises as `changed`
    and `extended`."""
    study_id, chosen = names.selected(state, request.selection, who)
    which = to_change(state, study_id)
    change = yield from changed(state, request, which)
    trials = [state.trials[trial] for trial in which.members]
    yield
    event, notes = extended(state, study_id, chosen, request, change)
    event = replace(event, request_id=key)
    yield
    others = (spec.id for spec in (*event.redrawn, *event.added))
    ended = (trial for trial, _ in event.ended)
    meant = frozenset((*event.trials, *event.resumed, *others, *ended))
    made = yield from prepared(event, state, now)
    return Found(which, event, notes, trials, meant, made)


def _is_open(trial: Trial) -> bool:
    """Whether its point may still be another one."""
    return _is_untouched(trial) or _was_cut(trial)


def _is_untouched(trial: Trial) -> bool:
    return trial.phase is Phase.WAITING and not trial.attempt and trial.ending is None


def _was_cut(trial: Trial) -> bool:
    """Whether a smaller run_cap has ended the trial before it began."""
    return trial.phase is Phase.STOPPED and not trial.attempt and trial.reason.startswith(_CUT)


def _was_stopped_by(study: Study, ruled: Study, trial: Trial) -> bool:
    """Whether the study's own rule has stopped the trial, the new one would not have, and it has
    something to go on from."""
    return (
        trial.phase is Phase.STOPPED
        and trial.checkpoint is not None
        and stop_reason(trial, study) is not None
        and stop_reason(trial, ruled) is None
    )


def _told(event: Extended, going: int) -> Iterator[str]:
    """What becomes of the study's trials, `going` of which go by another stop rule."""
    if event.trials:
        yield f"{_trials(len(event.trials))} stopped by the old rule: resumed from its checkpoint"
    if going:
        yield f"{_trials(going)} unfinished: the new rule applies from now on"
    if event.resumed:
        yield f"{_trials(len(event.resumed))} ended by a smaller run_cap: resumed"
    if event.redrawn:
        yield f"{_trials(len(event.redrawn))} not started: drawn again"
    if event.added:
        yield f"{_trials(len(event.added))} added"
    for reason, number in Counter(reason for _, reason in event.ended).items():
        yield f"{_trials(number)} ended: {reason}"


def _trials(number: int) -> str:
    return f"{number} trial{'' if number == 1 else 's'}"


def extensible(study: Study, trials: Sequence[Trial]) -> tuple[Trial, ...]:
    """Those that can go on, all but the ones whose loss was not finite.

    Raises:
        NotNow: a trial is not finished, has nothing to go on from, or none is left.
    """
    if busy := [trial for trial in trials if not trial.phase.final]:
        raise NotNow(
            f"{len(busy)} of {len(trials)} trials are not finished ({busy[0].id} is"
            f" {busy[0].phase}): wait for them, or name those that are"
        )
    if study.stop.on_nan:
        trials = [trial for trial in trials if not trial.not_finite]
    if not trials:
        raise NotNow("these trials have losses that are not finite, which ends them (stop.on_nan)")
    if endless := [trial for trial in trials if _has_no_end(trial)]:
        first, others = endless[0], len(trials) - len(endless)
        raise NotNow(
            f"{len(endless)} of {len(trials)} trials have no checkpoint to go on from ({first.id}"
            f" is {first.fidelity}: {first.fidelity_reason or 'nothing more is known'})"
            + (": name the others" if others else "; to run them again: study clone")
        )
    return tuple(trials)


def _has_no_end(trial: Trial) -> bool:
    """Whether it has a result and nothing from which that could go on."""
    if trial.phase is Phase.COMPLETED and trial.fidelity is Fidelity.PARK_ONLY:
        return True  # its checkpoint, if it has one, is only for people to load
    return trial.phase in (Phase.COMPLETED, Phase.STOPPED) and trial.checkpoint is None


def see_that_it_raises(rule: StopRule, trials: Sequence[Trial]) -> None:
    """See that no trial would be over at once by the stop rule. Raises Refused."""
    furthest = max(trials, key=lambda trial: trial.step)
    longest = max(trials, key=lambda trial: trial.use.busy_seconds)
    errors = []
    if rule.max_steps is not None and furthest.step >= rule.max_steps:
        expected = f"more than {furthest.step}, the steps that {furthest.id} has done"
        errors.append(FieldError("stop.max_steps", shown(rule.max_steps), expected))
    seconds = longest.use.busy_seconds
    if rule.max_seconds is not None and seconds >= rule.max_seconds:
        expected = f"more than {seconds:.3g}, the seconds that {longest.id} has trained"
        errors.append(FieldError("stop.max_seconds", shown(rule.max_seconds), expected))
    if errors:
        raise Refused(*errors)


def see_that_it_lengthens(changed: Mapping[str, Setting], trials: Sequence[Trial]) -> None:
    """See that a trial whose program has ended by itself is given more to do. Raises Refused.

    A limit, or a new value of another parameter, says nothing to a program that has nothing left to
    train. What is no length by its name may be one all the same, if it is a larger whole number
    than before.
    """
    done = next((trial for trial in trials if trial.phase is Phase.COMPLETED), None)
    if done is None:
        return
    had = dict(done.spec.parameters)
    if any(_may_lengthen(had.get(name), name, value) for name, value in changed.items()):
        return
    length = next(filter(is_length, had), "")
    beside = f"--set {length}=N (it had {had[length]})" if length else "--new epochs=N or its like"
    expected = f"a length beside it, {beside}: {done.id} has completed, and would train no further"
    fields = {f"parameters.{name}": shown(value) for name, value in changed.items()}
    raise Refused(*(FieldError(*field, expected) for field in (fields or {"stop": ""}).items()))


def _may_lengthen(before: Setting | None, name: str, value: Setting) -> bool:
    whole = type(value) is int and type(before) in (int, type(None))
    if not (whole or is_length(name)) or isinstance(value, (bool, str, tuple)):
        return False
    return before is None or (isinstance(before, (int, float)) and value > before)
