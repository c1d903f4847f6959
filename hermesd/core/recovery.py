"""What still comes of a run that was given up: pure functions of a trial that has fallen back.

Rule: its node may come back before the trial goes on elsewhere. Then its reports are the truth
about the steps up to a checkpoint of it, and the trial goes on from there as if nothing had been;
of steps that were never heard of, no checkpoint is used.
"""

from __future__ import annotations

from hermesd.core import progress
from hermesd.core.change import replace
from hermesd.core.events import Reported
from hermesd.core.history import Abandoned
from hermesd.core.losses import extend
from hermesd.core.model import Checkpoint, RunId
from hermesd.core.tables import Rejected
from hermesd.core.trial import Trial


def fallen_back(trial: Trial, run: RunId) -> Trial:
    """The trial as its newest checkpoint has it; what was heard of the run is kept beside."""
    heard = Abandoned(run.attempt, trial.step, trial.curve, trial.metrics)
    return replace(progress.fall_back(trial), abandoned=heard)


def may_return(trial: Trial, run: RunId) -> bool:
    """Whether this is the run that was given up, and its trial has not been launched since."""
    left = trial.abandoned
    return left is not None and left.attempt == run.attempt and trial.run is None


def heard_late(trial: Trial, event: Reported) -> Trial:
    """The trial, with one more report of the run that was given up. Raises Rejected."""
    left = trial.abandoned
    assert left is not None
    known = left.curve[-1].last_step if left.curve else 0
    if event.step < left.step or (event.chunks and event.chunks[-1].last_step <= known):
        raise Rejected(f"step {event.step} of {trial.id} was reported before")
    if event.not_finite:
        raise Rejected(f"{event.run} was given up: what it has come to is tried again")
    heard = replace(
        left,
        step=event.step,
        curve=extend(left.curve, event.chunks),
        metrics=progress.with_metrics(left.metrics, event),
    )
    return replace(trial, abandoned=heard)


def recovered(trial: Trial, checkpoint: Checkpoint) -> Trial:
    """The trial as a checkpoint of the run that was given up has it, if that is further."""
    left = trial.abandoned
    assert left is not None
    if checkpoint.step > left.step:
        return trial  # what was reported up to there was not heard: its curve would have a gap
    found = progress.with_checkpoint(trial, checkpoint)
    if checkpoint.step <= trial.step or trial.phase.final:
        return found
    there = replace(found, step=left.step, curve=left.curve, metrics=left.metrics)
    return progress.back_at(there, checkpoint.step)
