"""Folds what people asked for into the tables: whole studies, and chosen trials."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import filterfalse, repeat, zip_longest
from operator import attrgetter
from typing import assert_never, cast

from hermesd.core import progress, tables
from hermesd.core.events import (
    Added,
    Asked,
    Cancelled,
    Extended,
    Marked,
    MetricChosen,
    OutcomeTold,
    Paused,
    PopulationEnded,
    Removed,
    Retried,
    SearchFailed,
    SearchLimited,
    SignalChosen,
    Submitted,
    Unpaused,
)
from hermesd.core.fast_replace import replace
from hermesd.core.fold import riding
from hermesd.core.losses import QuantumLosses, truncate
from hermesd.core.model import (
    Checkpoint,
    Goal,
    MetricMode,
    Phase,
    Study,
    StudyId,
    Time,
    TrialId,
    TrialSpec,
)
from hermesd.core.policy import Facts
from hermesd.core.tables import NOTHING, Ahead, Members, Rejected, Tables
from hermesd.core.trial import Ending, Trial


def fold_study_event(
    state: Tables,
    event: Submitted
    | Added
    | PopulationEnded
    | Removed
    | Extended
    | MetricChosen
    | SignalChosen
    | Retried
    | SearchLimited
    | SearchFailed,
    now: Time,
    ahead: Ahead = NOTHING,
) -> None:
    match event:
        case Submitted():
            _submit(state, event, now, ahead)
        case Added():
            _add(state, event, now, ahead)
        case PopulationEnded(study_id):
            state.study(study_id)
            for trial in [state.trials[each] for each in state.active[study_id]]:
                if trial.paused and trial.replaced_by:
                    reason = f"{trial.replaced_by} went on in its place"
                    _end(state, trial, now, Ending(Phase.STOPPED, reason))
        case SearchLimited() | SearchFailed():
            _fold_search(state, event)
        case Removed(study_id, request_id):
            state.study(study_id)
            if not state.is_over(study_id):
                raise Rejected(f"study {study_id!r} has unfinished trials")
            state.request(request_id, ())
            _forget(state, study_id)
        case Extended():
            _extend(state, event, now, ahead)
        case MetricChosen(study_id, metric, goal, mode, request_id):
            study = state.study(study_id)
            if mode is MetricMode.SMOOTHED and metric != study.signal:
                raise Rejected(f"{metric} is not the signal of {study_id!r}, and is not smoothed")
            state.request(request_id, ())
            state.studies[study_id] = replace(
                study, metric=metric, goal=goal, mode=mode, metric_chosen=True
            )
        case SignalChosen():
            _read_otherwise(state, event, ahead)
        case Retried(trial_ids, request_id):
            _all_final(state, trial_ids)
            state.request(request_id, trial_ids)
            for trial_id in trial_ids:
                trial = state.trials[trial_id]
                keeper = state.parked_on(trial)
                if keeper is not None and state.nodes[keeper].boot_id:
                    state.releases.pop((trial_id, keeper), None)
                else:
                    trial = _unparked(state, trial_id)
                _reopen(state, trial, now)
        case _:
            assert_never(event)


def _made(
    study: Study,
    specs: Iterable[TrialSpec],
    now: Time,
    forked: Sequence[Checkpoint] = (),
    counts_on: bool = False,
) -> dict[TrialId, Trial]:
    """Trials as the study gets them, by their ids."""
    up = study.signal_goal is Goal.MAXIMIZE
    return {
        spec.id: Trial(
            spec=spec,
            submitted=now,
            rested=now,
            maximized=up,
            forked=begin,
            # Of the checkpoints that a node has of a trial, those of later attempts are newer.
            attempt=begin.attempt if begin is not None and counts_on else 0,
            paused=study.outside,
        )
        for spec, begin in zip_longest(specs, forked)
    }


def _submit(state: Tables, event: Submitted, now: Time, ahead: Ahead) -> None:
    study = event.study
    if study.id in state.studies:
        raise Rejected(f"study {study.id!r} exists")
    state.request(event.request_id, _ids(event.trials, ahead))
    state.studies[study.id] = study
    state.members[study.id] = Members()
    state.active[study.id] = {}
    state.facts[study.id] = Facts()
    if study.searcher is not None:
        state.searching[study.id] = study.searcher.trials
    _enter(state, study, event.trials, ahead, now)


def _ids(specs: Sequence[TrialSpec], ahead: Ahead) -> Iterable[TrialId]:
    return ahead.effect if ahead.is_free else (spec.id for spec in specs)


def _add(state: Tables, event: Added, now: Time, ahead: Ahead) -> None:
    study, specs = state.study(event.study), event.trials
    if not ahead.is_free:
        _new(state, study, specs)
    if event.forked and len(event.forked) != len(specs):
        raise Rejected(f"{len(specs)} trials, forked from {len(event.forked)} checkpoints")
    losers = _replaced(state, study, event)
    state.request(event.request_id, _ids(specs, ahead))
    for loser, spec in zip(losers, specs, strict=False):
        if not (ahead.is_free and loser.id in ahead.trials):
            state.put(replace(loser, paused=not loser.phase.final, replaced_by=spec.id))
    _enter(state, study, specs, ahead, now, event.forked, event.counts_on)


def _replaced(state: Tables, study: Study, event: Added) -> list[Trial]:
    """The trials in whose places others go on from now on. Raises Rejected."""
    if event.instead and len(event.instead) != len(event.trials):
        raise Rejected(f"{len(event.trials)} trials in the places of {len(event.instead)}")
    losers = [state.trial(each) for each in event.instead]
    for loser in losers:
        over = loser.phase in (Phase.COMPLETED, Phase.CANCELLED)
        if loser.spec.study != study.id or over or loser.paused:
            raise Rejected(f"{loser.id} is not to be replaced: it is no trial that goes on")
    return losers


def _fold_search(state: Tables, event: SearchLimited | SearchFailed) -> None:
    study = state.study(event.study)
    if study.searcher is None:
        raise Rejected(f"{study.id!r} has no searcher")
    if isinstance(event, SearchFailed):
        if event.again_seconds:
            return
        state.unsearched[study.id] = event.detail
        return
    state.request(event.request_id, ())
    if event.run_cap is None or event.run_cap <= len(state.members[study.id]):
        state.searching.pop(study.id, None)
    else:
        state.searching[study.id] = event.run_cap
        state.unsearched.pop(study.id, None)


def _read_otherwise(state: Tables, event: SignalChosen, ahead: Ahead) -> None:
    """What policies know of the study's trials is of another metric from now on."""
    study = state.study(event.study)
    state.request(event.request_id, ())
    smoothed = study.mode is MetricMode.SMOOTHED and study.metric != event.signal
    mode = MetricMode.LAST if smoothed else study.mode
    study = replace(
        study, signal=event.signal, signal_goal=event.goal, signal_chosen=True, mode=mode
    )
    state.studies[study.id] = study
    state.take(ahead)
    curves, members = dict(event.curves), state.members[study.id]
    for trial_id in filterfalse(ahead.trials.__contains__, members):
        trial = state.trials[trial_id]
        curve = truncate(curves.get(trial_id, ()), trial.step)
        result = trial.result
        if result is not None:
            result = replace(result, curve=truncate(curve, result.step))
        unread: dict[str, object] = {
            "first": None, "before": None, "latest": None, "current": QuantumLosses(),
            "milestone_percent": 0.0, "milestones_passed": 0, "abandoned": None,
        }  # fmt: skip
        run = trial.run and replace(trial.run, milestone=None)
        diverged = trial.not_finite and trial.phase.final
        changes = {"curve": curve, "result": result, "run": run, "not_finite": diverged, **unread}
        up = study.signal_goal is Goal.MAXIMIZE
        state.put(replace(trial, maximized=up, **changes))  # type: ignore[arg-type]


def _extend(state: Tables, event: Extended, now: Time, ahead: Ahead) -> None:
    study = state.study(event.study)
    rest = besides(event, ahead) if ahead.is_free else event
    extended = _extends(state, rest)
    state.request(event.request_id, ahead.effect if ahead.is_free else extended)
    study = replace(study, stop=event.stop, source=event.source or study.source)
    state.studies[study.id] = study
    if event.redrawn or event.parameters:
        state.members[study.id] = Members(state.members[study.id])
    if ahead.is_free:
        _enter(state, study, event.added, ahead, now)
    done = {} if ahead.is_free else ahead.trials
    for trial_id, argv in zip(rest.trials, rest.argv, strict=True):
        if trial_id in done:
            state.put(done[trial_id])
            continue
        spec = state.trials[trial_id].spec
        values = {**dict(spec.parameters), **dict(event.parameters)}
        stages = (spec.stages[0]._replace(values=tuple(values.items())), *spec.stages[1:])
        spec = replace(spec, stages=stages, argv=argv, root="")
        _reopen(state, _unparked(state, trial_id), now, spec=spec, planned_steps=None)
    for trial_id in rest.resumed:
        if trial_id in done:
            state.put(done[trial_id])
        else:
            _reopen(state, state.trials[trial_id], now, result=None)
    for spec in rest.redrawn:
        if spec.id in done:
            state.put(done[spec.id])
            continue
        if (trial := state.trials[spec.id]).spec.root:
            riding.redrawn(state, trial, spec)
        else:
            state.put(replace(trial, spec=spec))
        if trial.phase.final:
            _end(state, state.trials[spec.id], now, Ending(trial.phase, trial.reason))
    if not ahead.is_free:
        _enter(state, study, event.added, ahead, now)
    for trial_id, reason in rest.ended:
        if trial_id in done:
            state.put(done[trial_id])
        else:
            _end(state, state.trials[trial_id], now, Ending(Phase.STOPPED, reason))


def besides(event: Extended, ahead: Ahead) -> Extended:
    """What the event does besides what was found ahead, which has all that it opens."""
    rest = replace(event, trials=(), argv=(), redrawn=(), added=(), ended=(), resumed=())
    if len(ahead.trials) == len(ahead.effect):
        return rest  # as for most, which may be very many
    redrawn = tuple(spec for spec in event.redrawn if spec.id not in ahead.trials)
    ended = tuple(each for each in event.ended if each[0] not in ahead.trials)
    return replace(rest, redrawn=redrawn, ended=ended)


def _extends(state: Tables, event: Extended) -> Iterable[TrialId]:
    """The trials that are extended. Raises Rejected."""
    study = state.study(event.study)
    _all_final(state, (*event.trials, *event.resumed))
    _new(state, study, event.added)
    for spec in event.redrawn:
        before = state.trial(spec.id)
        untouched = before.phase in (Phase.WAITING, Phase.STOPPED) and not before.attempt
        if before.spec.study != study.id or not untouched:
            raise Rejected(f"{spec.id} has begun, or is another study's")
    for trial_id, _ in event.ended:
        if state.trial(trial_id).spec.study != study.id:
            raise Rejected(f"{trial_id} is another study's")
    others = (spec.id for spec in (*event.redrawn, *event.added))
    changed = (*event.trials, *event.resumed, *others, *(trial for trial, _ in event.ended))
    return dict.fromkeys(changed)


def _end(state: Tables, trial: Trial, now: Time, ending: Ending) -> None:
    """The trial ends; one that is on a device once it has given that back."""
    if trial.phase is Phase.WAITING:
        state.put(progress.ended(trial, now, ending))
    elif not trial.phase.final:
        state.put(replace(trial, ending=ending))


def _new(state: Tables, study: Study, specs: Sequence[TrialSpec]) -> None:
    """See that these can become trials of the study. Raises Rejected."""
    ids = {spec.id for spec in specs}
    if len(ids) < len(specs) or not state.trials.keys().isdisjoint(ids):
        raise Rejected(f"trials of {study.id!r} exist")
    if any(spec.study != study.id for spec in specs):
        raise Rejected(f"trials of another study than {study.id!r}")


def _enter(
    state: Tables,
    study: Study,
    specs: Sequence[TrialSpec],
    ahead: Ahead,
    now: Time,
    forked: Sequence[Checkpoint] = (),
    counts_on: bool = False,
) -> None:
    """The study has these trials from now on, behind those that it has; some are made."""
    if specs:  # else its queue would take it for another study
        names = map(attrgetter("id"), specs)
        state.members[study.id] = state.members[study.id].with_more(names)
    done = ahead.trials
    if ahead.is_free:
        state.take(ahead)
    else:
        left = [spec for spec in specs if spec.id not in done]
        made = _made(study, left, now, forked, counts_on)
        new = {spec.id: done.get(spec.id) or made[spec.id] for spec in specs}
        if forked or any(spec.root for spec in specs):
            for trial in new.values():
                state.put(trial)
                riding.settle(state, now)
        else:
            state.put_plain(study.id, new)
    if len(state.members[study.id]) >= state.searching.get(study.id, 0):
        state.searching.pop(study.id, None)


def _forget(state: Tables, study_id: StudyId) -> None:
    """Nothing of the study is known any more."""
    members = state.members.pop(study_id)
    trials = list(map(state.trials.pop, members))
    nodes = [node.id for node in state.nodes.values() if not node.left]
    for trial in trials:
        if trial.attempt or trial.forked or trial.spec.root:  # no node has anything of the others
            tables.forget(state, trial)
            state.releases.update(((trial.id, node), True) for node in nodes)
    for table in state.dirty, state.taken, state.parked, state.demanding:
        its = cast(dict[TrialId, object], table)
        deque(map(its.pop, members if its else (), repeat(None)), maxlen=0)  # there may be many
    for left in [left for left in state.leftover if left[0] not in state.trials]:
        del state.leftover[left]
    for missed in [missed for missed in state.missing if missed[0] not in state.trials]:
        del state.missing[missed]
    state.ended.pop(study_id, None)
    for key in [key for key in state.excluded if key[0] == study_id]:
        del state.excluded[key]
    studies = state.studies, state.active, state.facts, state.fallen, state.served, state.unsearched
    for its_own in studies:
        cast(dict[StudyId, object], its_own).pop(study_id, None)


def _all_final(state: Tables, trial_ids: Iterable[TrialId]) -> None:
    for trial_id in trial_ids:
        if not state.trial(trial_id).phase.final:
            raise Rejected(f"{trial_id} is {state.trials[trial_id].phase}, not finished")


def _unparked(state: Tables, trial_id: TrialId) -> Trial:
    """The trial, to go on from its checkpoint; what is parked of it still is ended by its run.

    A release names no run: sent now, it would end the next one on that node as well.
    """
    trial = state.trials[trial_id]
    if trial.kept is not None and (node := state.parked_on(trial)) is not None:
        state.releases.pop((trial_id, node), None)
        state.strays[node, trial.kept.run] = None
        trial = replace(trial, kept=None)
    return trial


def _reopen(state: Tables, trial: Trial, now: Time, **changes: object) -> None:
    """The trial goes on from where it is parked, or from its checkpoint."""
    result = progress.result_of(trial)
    if state.parked_on(trial) is None:
        trial = progress.rewound(trial)
    fresh = {
        "phase": Phase.WAITING, "failures": (), "misfortunes": 0, "reason": "", "finished": None,
        "rested": now, "not_finite": False, "result": result, "not_extended": "",
        "paused": state.studies[trial.spec.study].outside, "asked": False, "replaced_by": "",
    }  # fmt: skip
    state.put(replace(trial, **{**fresh, **changes}))  # type: ignore[arg-type]


def fold_own_loop(state: Tables, event: Asked | OutcomeTold, now: Time) -> None:
    """What is asked for, and told, by whose loop trains the trials."""
    trial = state.trial(event.trial)
    if not state.studies[trial.spec.study].outside:
        raise Rejected(f"{trial.id} is trained here")
    if trial.phase.final or (trial.asked and isinstance(event, Asked)):
        raise Rejected(f"{trial.id} is {trial.phase if trial.phase.final else 'asked for'} already")
    state.request(event.request_id, (trial.id,))
    if isinstance(event, Asked):
        state.put(replace(trial, asked=True))
        return
    metrics = {name: progress.measured(value) for name, value in event.metrics}
    trial = replace(trial, metrics={**trial.metrics, **metrics})
    phase = Phase.FAILED if event.failure else Phase.COMPLETED
    state.put(progress.ended(trial, now, Ending(phase, event.failure)))


def fold_selection_event(
    state: Tables, event: Paused | Unpaused | Cancelled | Marked, now: Time
) -> None:
    for trial_id in event.trials:
        study = state.studies[state.trial(trial_id).spec.study]
        if study.outside and isinstance(event, Unpaused):
            raise Rejected(f"{trial_id} is trained by a loop of its author's")
    state.request(event.request_id, event.trials)
    for trial_id in event.trials:
        trial = state.trials[trial_id]
        if trial.phase.final and not isinstance(event, Marked):
            continue
        match event:
            case Marked(_, add, remove, note):
                tags = dict.fromkeys(tag for tag in (*trial.tags, *add) if tag not in remove)
                words = trial.note if note is None else note
                state.put(replace(trial, tags=tuple(tags), note=words))
            case Paused():
                state.put(replace(trial, paused=True))
            case Unpaused():
                state.put(replace(trial, paused=False, replaced_by=""))
            case Cancelled():
                _end(state, trial, now, Ending(Phase.CANCELLED, "stopped by a person"))
