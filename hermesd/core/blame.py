"""Whose fault it is that a run failed, and when that ends its trial: pure functions of a trial."""

from __future__ import annotations

from typing import NamedTuple

from hermesd.core.change import replace
from hermesd.core.events import RunCompleted, RunEvent, RunFailed
from hermesd.core.history import (
    RESTORE,
    STALLED,
    TAKEN_AWAY,
    WRONG_EVERYWHERE,
    Ending,
    Failure,
)
from hermesd.core.model import Phase, Study, Time
from hermesd.core.retrying import OUT_OF_DEVICE_MEMORY, OnStall, RetryAction, ruled
from hermesd.core.strikes import one_line
from hermesd.core.trial import Run, Trial

# The program can be what brings its machine down: the machine's faults count a little, until a
# checkpoint shows that the trial gets on.
MISFORTUNES_PER_FAILURE = 10
# A node keeps two checkpoints, tries each twice and begins anew without: so much, and what it then
# trained was lost in the same way once more. The same error twice is not tried that often.
MOST_RESTORES = 12
_KEPT_PARKED = "kept parked rather than checkpointed: restores of it failed twice alike"


def set_back(trial: Trial, run: Run, step: int, now: Time) -> Trial:
    """The run began at an earlier step than its checkpoint's, which is none then; the node tells
    which one it used."""
    how = f"it went on from step {step}" if step else "it began anew"
    detail = f"{how}: its checkpoint of step {run.restored_step} could not be used"
    failure = Failure(run.id.attempt, run.devices[0], RESTORE, detail, "", step, now)
    trial = replace(trial, failures=(*trial.failures, failure), reason=detail)
    if trial.checkpoint is not None and trial.checkpoint.step == run.restored_step:
        trial = replace(trial, checkpoint=None)
    if trial.copied is not None and trial.copied.step > step:
        trial = replace(trial, copied=None)  # it did not do either, or is of a later past
    if trial.result is not None and step < trial.result.step:
        return _ended_if(trial, True, detail)
    return _ended_if(trial, _restores(trial) >= MOST_RESTORES, detail, "too often")


def is_own_end(outcome: RunEvent) -> bool:
    """Whether a program has ended by itself, well or badly."""
    if isinstance(outcome, RunFailed):
        return not outcome.newest_attempt and outcome.error_kind not in TAKEN_AWAY
    return isinstance(outcome, RunCompleted)


def kept_parked(trial: Trial) -> str:
    """Why what a trial has learnt is kept parked rather than checkpointed; empty if it need not be.

    Two of its restores failed with the same error of its own: run again, it does not come to where
    it was. Those from later checkpoints, which it would then lose time with, would fail as well.
    """
    seen: set[str] = set()
    for failure in trial.failures:
        if failure.restores and failure.signature in seen:
            return f"{_KEPT_PARKED}: {one_line(failure.detail)}"
        if failure.restores and failure.signature:
            seen.add(failure.signature)
    return ""


class Prospects(NamedTuple):
    """What is left to be tried: a place where another failure would tell more of whose fault it is,
    any device but the present one, and one of more memory; and whether the present one's memory is
    its own, and so a reason why it was too little."""

    untried: bool
    elsewhere: bool
    roomier: bool
    owns_memory: bool


def blamed(trial: Trial, event: RunFailed, study: Study, left: Prospects, now: Time) -> Trial:
    """The trial with a failure of its present run noted, and its end if that was the last try.

    It is the last at the study's `max_failures`, and at once when the same error comes at the
    same step a second time: the program's own fault then. What is the machine's fault counts
    apart, up to ten times as often, and anew whenever a checkpoint has moved on; a checkpoint that
    cannot be restored is set aside, and counts apart as well. A trial that is allowed more than one
    failure does not end while a place is untried: no single device ends it, and no single node.
    The study's rules come before all that, and one of ours after them: what found a device's own
    memory full is tried again where there is more, as long as there is such a device. Arguments
    that the program refused, and code that can't be unpacked, are wrong on every device, and end
    the trial at once. But the same
    error again, on another node than one that a rule has excluded for it, is the program's own. A
    trial that has its result, and was only to go on from there, ends at the first failure that is
    not the machine's.
    """
    run = trial.run
    assert run is not None
    failure = Failure(
        run.id.attempt,
        run.devices[0],
        event.error_kind,
        event.detail,
        event.signature,
        event.step,
        now,
        ruled(
            (*study.retry_rules, *(OUT_OF_DEVICE_MEMORY if left.owns_memory else ())), event.detail
        ),
    )
    repeated = bool(event.signature) and any(
        (old.signature, old.step) == (event.signature, event.step) for old in trial.failures
    )
    trial = replace(trial, failures=(*trial.failures, failure), reason=event.detail)
    if trial.extending and not failure.machines:
        return _ended_if(trial, True, event.detail)
    if failure.error_kind == STALLED and study.stalled is OnStall.FAIL:
        return _ended_if(trial, True, event.detail)
    if failure.ruled is RetryAction.NO_RETRY:
        return _ended_if(trial, True, event.detail, "retry.rules: no_retry")
    if failure.error_kind in WRONG_EVERYWHERE and failure.ruled is None:
        return _ended_if(trial, True, event.detail)
    if failure.ruled is RetryAction.NOT_HERE and not left.elsewhere:
        words = "retry.rules: not_here, and there is no other device for it"
        return _ended_if(trial, True, event.detail, words)
    if failure.ruled is RetryAction.MORE_MEMORY:
        last = not left.roomier or study.max_failures == 1
        return _ended_if(trial, last, event.detail, "no other device has more memory for it")
    if failure.machines and not repeated:
        trial = replace(trial, misfortunes=trial.misfortunes + 1)
        last = trial.misfortunes >= MISFORTUNES_PER_FAILURE * study.max_failures
        words = f"{trial.misfortunes} times without getting on"
    elif failure.restores:
        return _ended_if(trial, _restores(trial) >= MOST_RESTORES, event.detail, "too often")
    else:
        tries = sum(old.programs for old in trial.failures)
        last = repeated or tries >= study.max_failures
        words = "the same error at the same step twice" if repeated else "no tries left"
    sure = not left.untried or study.max_failures == 1
    return _ended_if(trial, last and sure, event.detail, words)


def _restores(trial: Trial) -> int:
    return sum(old.restores for old in trial.failures)


def _ended_if(trial: Trial, last: bool, detail: str, words: str = "") -> Trial:
    """The trial, failed for good if that was the last try."""
    if not last or trial.ending:
        return trial
    return replace(trial, ending=Ending(Phase.FAILED, f"{detail} ({words})" if words else detail))
