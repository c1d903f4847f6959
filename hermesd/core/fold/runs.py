"""Folds what happened to runs into the tables; a message of an older attempt changes nothing."""

from __future__ import annotations

import math
from typing import Any, assert_never

from hermesd.core import failures, progress
from hermesd.core.events import (
    Checkpointed,
    FidelityKnown,
    MilestonePassed,
    ParkLost,
    QuantumEnded,
    Reported,
    RunCompleted,
    RunEvent,
    RunFailed,
    RunStalled,
    RunStarted,
    RunSuspended,
)
from hermesd.core.failure_effects import settle
from hermesd.core.failures import is_own_end
from hermesd.core.fast_replace import replace
from hermesd.core.fold import riding
from hermesd.core.fold.checkpoints import with_places
from hermesd.core.model import Checkpoint, Phase, RunId, Tier, Time
from hermesd.core.placement import can_go_on, prospects
from hermesd.core.progress import heard_late, may_return, recovered
from hermesd.core.speeds import compared, learned
from hermesd.core.tables import Rejected, Tables
from hermesd.core.trial import NOT_WRITTEN, Ending, Kept, Trial
from hermesd.core.widths import learned as learned_gain
from hermesd.core.widths import timed

FACTS_WEIGHT = 0.2


def fold_run_event(state: Tables, event: RunEvent, now: Time) -> None:
    trial = state.trial(event.run.trial)
    current = trial.run is not None and trial.run.id == event.run
    kept = trial.kept is not None and trial.kept.run == event.run
    in_process = kept and trial.kept is not None and trial.kept.tier.in_process
    match event:
        case Checkpointed() | FidelityKnown() if event.run.attempt <= trial.attempt:
            _learn(state, trial, event)
        case ParkLost() if kept or current:
            _park_lost(state, trial, event, now)
        case RunSuspended(tier=Tier.CHECKPOINT) if kept and not current:
            _demoted(state, trial, event)
        case RunSuspended(cause=cause) if kept and not current and cause == NOT_WRITTEN:
            assert trial.kept is not None
            if trial.kept.unwritable:
                raise Rejected(f"{event.run} could not be written down before")
            state.put(replace(trial, kept=replace(trial.kept, unwritable=True)))
        case Reported() if may_return(trial, event.run):
            state.put(heard_late(trial, event))
        case RunCompleted() if may_return(trial, event.run):
            _completed_late(state, trial, event, now)
        case Reported() if in_process and trial.run is None and not trial.phase.final:
            _reported_while_kept(state, trial, event)
        case RunCompleted() | RunFailed() if in_process and not current and is_own_end(event):
            _ended_while_kept(state, trial, event, now)
        case _ if not current:
            raise Rejected(f"{event.run} is not the present run of {trial.id}")
        case RunStarted():
            _started(state, trial, event, now)
        case Reported():
            _reported(state, trial, event)
        case RunStalled(_, step, seconds):
            if trial.run is None or trial.run.stalled_since is not None or step < trial.step:
                raise Rejected(f"{event.run} goes on, or was told before to have stalled")
            state.put(replace(trial, run=replace(trial.run, stalled_since=now - seconds)))
        case QuantumEnded() | MilestonePassed():
            _quantum_event(state, trial, event)
        case RunSuspended():
            _compare(state, trial)
            state.free_slots(trial, now)
            _measure(state, trial, suspend_seconds=event.release_seconds)
            state.put(progress.suspended(trial, event, now))
        case RunCompleted():
            _compare(state, trial)
            state.free_slots(trial, now)
            _completed(state, trial, event, now)
        case RunFailed(newest_attempt=newest) if newest:
            state.free_slots(trial, now)
            known = replace(trial, attempt=max(trial.attempt, newest), reason=event.detail)
            state.put(progress.released(known, now))
        case RunFailed():
            state.free_slots(trial, now)
            _failed(state, trial, event, now)
        case _:
            raise Rejected(f"{type(event).__name__} of {event.run} comes too late")


def _completed(state: Tables, trial: Trial, event: RunCompleted, now: Time) -> None:
    if trial.run and trial.failures:
        failures.got_further(state, trial, trial.run.devices[0], math.inf)
    step = max(trial.step, event.step)
    ending = Ending(Phase.COMPLETED, "" if trial.metrics else "no metric seen")
    if trial.ending and trial.ending.phase is Phase.FAILED:
        ending = trial.ending  # it had begun anew: what it then came to is not asked for
    done = progress.with_checkpoint(trial, event.checkpoint)
    done = progress.close_quantum(done) if done.current.count else done
    if trial.planned_steps is None and ending.phase is Phase.COMPLETED:
        _learn_length(state, trial, step)
    state.put(progress.released(replace(done, step=step, ending=ending), now))


def _failed(state: Tables, trial: Trial, event: RunFailed, now: Time) -> None:
    study = state.studies[trial.spec.study]
    state.put(progress.failed(trial, event, study, prospects(state, trial, event), now))
    failures.note(state, state.trials[trial.id])
    settle(state, state.trials[trial.id], now)


def _ended_while_kept(
    state: Tables, trial: Trial, event: RunCompleted | RunFailed, now: Time
) -> None:
    """The program came to its own end after it was suspended, maybe under a launch that was to
    resume it: its run is the one that has ended, and what it came to stands."""
    if trial.phase.final:
        state.put(replace(trial, kept=None))
        return
    if (run := trial.run) is not None:
        if not run.warm:  # it was launched without its process, and may begin
            state.strays[state.place(run).node, run.id] = None
        state.free_slots(trial, now)
        trial = progress.released(replace(trial, ending=None), now)
    trial = replace(progress.on_its_place(trial, now), kept=None)
    if isinstance(event, RunCompleted):
        _completed(state, trial, event, now)
    else:
        _failed(state, trial, event, now)


def _completed_late(state: Tables, trial: Trial, event: RunCompleted, now: Time) -> None:
    """A run that was given up had come to its end, which is only heard of now."""
    left = trial.abandoned
    assert left is not None
    if trial.phase.final or event.step > left.step:
        raise Rejected(f"{event.run} was given up, and its last steps were not heard of")
    there = replace(trial, step=left.step, curve=left.curve, metrics=left.metrics, abandoned=None)
    ending = Ending(Phase.COMPLETED, "" if there.metrics else "no metric seen")
    state.put(progress.ended(progress.with_checkpoint(there, event.checkpoint), now, ending))


def _reported_while_kept(state: Tables, trial: Trial, event: Reported) -> None:
    """A program that was stopped midway goes on to a boundary to be written down, or to its end."""
    _refuse_known(trial, event)
    there = progress.on_its_place(trial, trial.rested)
    assert there.run is not None
    device = state.place(there.run)
    there = progress.reported(there, event, device, state.corrections)
    state.put(replace(there, run=None))


def _refuse_known(trial: Trial, event: Reported) -> None:
    """Raises Rejected for a report of steps that were reported before."""
    known = trial.curve[-1].last_step if trial.curve else 0
    # What was stopped midway counts as far as it was, and tells of what it did until then later.
    is_known = event.chunks[-1].last_step <= known if event.chunks else event.step < trial.step
    if is_known:
        raise Rejected(f"step {event.step} of {trial.id} was reported before")


def _learn(state: Tables, trial: Trial, event: Checkpointed | FidelityKnown) -> None:
    match event:
        case Checkpointed(run, checkpoint):
            if trial.phase.final and checkpoint.step > trial.step:
                return  # of an extension that came to nothing
            if trial.run_id != run and _confines(state, trial, checkpoint):
                return
            if may_return(trial, run):
                state.put(recovered(trial, checkpoint))
                return
            if checkpoint.step > _heard_of(trial, run):
                return  # what was reported up to there was refused: its curve would have a gap
            state.put(progress.with_checkpoint(trial, checkpoint))
            riding.leave_at(state, trial, checkpoint)
        case FidelityKnown(_, fidelity, reason, framework):
            state.put(
                replace(trial, fidelity=fidelity, fidelity_reason=reason, framework=framework)
            )
        case _:
            assert_never(event)


def _confines(state: Tables, trial: Trial, checkpoint: Checkpoint) -> bool:
    """Whether a trial that ran out of memory could go on nowhere from this checkpoint, which is
    only heard of now, as it is of so many devices as were too few."""
    if not trial.has_outgrown:
        return False
    return can_go_on(state, trial) and not can_go_on(state, replace(trial, checkpoint=checkpoint))


def _heard_of(trial: Trial, run: RunId) -> float:
    """Up to which step the reports of a run count: of one that has failed to that of its failure,
    which of a node that was given up is the last one heard from it."""
    ends = [each for each in trial.failures if each.attempt == run.attempt and not each.restores]
    return ends[-1].step if ends else math.inf


def _park_lost(state: Tables, trial: Trial, event: ParkLost, now: Time) -> None:
    """What was parked is gone: under a launch, or before it was heard that it was parked. What a
    trial that is over came to stays."""
    if trial.phase.final:
        reason = f"{trial.reason} (what was parked is lost: {event.reason})"
        state.put(replace(trial, kept=None, reason=reason))
        return
    trial = progress.fall_back(replace(trial, reason=event.reason))
    if trial.run is not None:
        state.free_slots(trial, now)
        trial = progress.released(trial, now)
    state.put(trial)


def _demoted(state: Tables, trial: Trial, event: RunSuspended) -> None:
    """A parked trial was written down and its process ended, to make room."""
    assert trial.kept is not None
    kept = Kept(Tier.CHECKPOINT, trial.kept.run, trial.kept.device, width=trial.kept.width)
    trial = replace(progress.with_checkpoint(trial, event.checkpoint), kept=kept)
    behind = trial.checkpoint is None or trial.checkpoint.step < trial.step
    behind = behind and not trial.phase.final
    state.put(progress.fall_back(trial) if behind else trial)


def _started(state: Tables, trial: Trial, event: RunStarted, now: Time) -> None:
    assert trial.run is not None
    if trial.run.started or trial.phase not in (Phase.STARTING, Phase.SUSPENDING):
        raise Rejected(f"{event.run} is {trial.phase} already")
    tier = trial.kept.tier if trial.kept else None
    tier = Tier.CHECKPOINT if tier is None and trial.checkpoint else tier
    if tier is not None:
        _measure(state, trial, resume_seconds=event.start_seconds)
    if tier is Tier.CHECKPOINT:
        _measure_restore(state, trial, event.start_seconds)
    began = progress.started(trial, event, tier, now)
    restored = trial.checkpoint
    if tier is Tier.CHECKPOINT and restored and 0 < restored.step == event.step:
        # It was restored there: its files came with it.
        node = state.place(trial.run).node
        began = with_places(state, began, restored, (node,))
    _learn_length(state, trial, event.planned_steps)
    state.put(began)


def _learn_length(state: Tables, trial: Trial, steps: int | None) -> None:
    """Keep the shortest length known: what trials that have not told theirs are probed by."""
    facts = state.facts[trial.spec.study]
    if steps and steps < (facts.planned_steps or math.inf):
        state.facts[trial.spec.study] = replace(facts, planned_steps=steps)


def _measure_restore(state: Tables, trial: Trial, seconds: float) -> None:
    """Learn from a start from a checkpoint; what it took beyond the usual, it was fetched."""
    saved, facts = trial.checkpoint, state.facts[trial.spec.study]
    assert trial.run is not None
    node = state.place(trial.run).node
    if saved is None or node in saved.nodes or not facts.restore_seconds:
        _measure(state, trial, restore_seconds=seconds)
    elif saved.size_bytes:
        fetching = max(0.0, seconds - facts.restore_seconds)
        _measure(state, trial, fetch_seconds_per_byte=fetching / saved.size_bytes)


def _measure(state: Tables, trial: Trial, **seconds: float) -> None:
    """Fold one measured cost into what is typical for the study."""
    facts = state.facts[trial.spec.study]
    for name, value in seconds.items():
        old = getattr(facts, name)
        new = value if not old else old + FACTS_WEIGHT * (value - old)
        measured: dict[str, Any] = {name: new}
        facts = replace(facts, **measured)
    state.facts[trial.spec.study] = facts


def _reported(state: Tables, trial: Trial, event: Reported) -> None:
    run = trial.run
    assert run is not None
    if 0 < event.number <= run.heard:
        raise Rejected(f"report {event.number} of {run.id} was heard before")
    _refuse_known(trial, event)
    device = state.place(run)
    _learn_length(state, trial, event.planned_steps)
    trial = progress.reported(trial, event, device, state.corrections)
    likely = None if trial.planned_steps else state.facts[trial.spec.study].planned_steps
    if likely != trial.likely_steps:
        trial = replace(trial, likely_steps=likely)
    study = state.studies[trial.spec.study]
    reason = progress.stop_reason(trial, study)
    if reason and not trial.ending:
        trial = replace(trial, ending=Ending(Phase.STOPPED, reason))
    if study.elastic and run.warm:
        trial = timed(trial, device.kind)
        facts = learned_gain(state.facts[trial.spec.study], trial, study.devices)
        state.facts[trial.spec.study] = facts
    as_usual = len(run.devices) == study.devices
    if run.warm and as_usual and (seconds := trial.step_seconds.get(device.kind)):
        _measure(state, trial, step_seconds=seconds)
        facts = state.facts[trial.spec.study]
        speeds = learned(facts.speeds, state.corrections, trial, device.kind)
        state.facts[trial.spec.study] = replace(facts, speeds=speeds)
    if trial.failures:
        failures.got_further(state, trial, run.devices[0], trial.step)
    state.put(trial)


def _compare(state: Tables, trial: Trial) -> None:
    """At the end of a quantum or a run: what its pace says of the device, beside the one before."""
    if trial.run is None or not trial.run.paced or len(trial.run.devices) > 1:
        return
    device = state.place(trial.run)
    if (seen := compared(trial, device, state.corrections)) is not None:
        other, mine, theirs = seen
        state.note_pace(device.id, mine)
        state.note_pace(other, theirs)


def _quantum_event(state: Tables, trial: Trial, event: QuantumEnded | MilestonePassed) -> None:
    run = trial.run
    assert run is not None
    match event:
        case QuantumEnded(_, grant):
            if trial.phase is not Phase.RUNNING or run.expired or grant != run.grant:
                raise Rejected(f"grant {grant} of {run.id} is over already")
            _compare(state, trial)
            run = replace(run, expired=True, paced=False)
            trial = progress.close_quantum(replace(trial, run=run))
        case MilestonePassed(_, percent):
            study = state.studies[trial.spec.study]
            if study.signal_chosen and run.reads != study.reads:
                raise Rejected(f"{run.id} passed {percent:g} % of another signal")
            if percent <= trial.milestone_percent:
                raise Rejected(f"{run.id} passed {percent:g} % before")
            trial = replace(
                trial,
                run=replace(run, milestone=percent),
                milestone_percent=percent,
                milestones_passed=trial.milestones_passed + 1,
            )
        case _:
            assert_never(event)
    state.put(trial)
