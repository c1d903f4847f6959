"""What the failure of a run means beyond its trial: for the ledger of failures, and for its
study."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hermesd.core import progress
from hermesd.core.failures import STRICT_RULE, last_line, one_line, strict_failures, take_back
from hermesd.core.fast_replace import replace
from hermesd.core.model import (
    FailureRule,
    OnSameFailure,
    OnThirdFailure,
    Phase,
    RetryAction,
    StudyId,
    Time,
    as_argument,
)
from hermesd.core.placement import untried_beyond
from hermesd.core.tables import Tables
from hermesd.core.trial import WRONG_EVERYWHERE, Ending, Exclusion, Failure, Trial

# Whether the first trials of a study fail in one and the same way, before any has made a
# step.
#
# Pure. A study whose every trial would fail so is stopped once three have: the program or
# its arguments are wrong, and to try the rest of the grid tells nothing more.

# So many trials that fail alike tell that all will.
ENOUGH = 3
STOPPED = "retry.on_same_failure: study"
# How a program ends by itself: what a machine did to it, or its memory, may be another elsewhere.
_OWN_ENDS = frozenset({"exception", "exit", "signal", *WRONG_EVERYWHERE})
_ABOUT_THE_PLACE = (RetryAction.NOT_HERE, RetryAction.MORE_MEMORY, RetryAction.EXCLUDE_NODE)


def failed_alike(state: Tables, study: StudyId) -> list[Trial]:
    """The trials of a study that have failed, if nothing else is known of it than that they fail
    in one way before their first step; else none."""
    found: list[Trial] = []
    for trial in map(state.trials.__getitem__, state.members[study]):
        if trial.step or trial.kept or trial.result or trial.phase is Phase.COMPLETED:
            return []
        own = _own(trial)
        first = found[0] if found else trial
        if not all(_counts(each) and _same(trial, each, first, _own(first)[0]) for each in own):
            return []
        if own:
            found.append(trial)
    return found


def _own(trial: Trial) -> list[Failure]:
    return [failure for failure in trial.failures if failure.programs]


def _same(trial: Trial, failure: Failure, other: Trial, others: Failure) -> bool:
    """Whether two failures are of one kind and end in the same line, whatever values of the two
    trials' hyper-parameters that quotes."""
    values = _values(trial) | _values(other)
    lines = [last_line(failure.detail), last_line(others.detail)]
    for value in sorted(values - {""}, key=lambda text: (-len(text), text)):
        quoted = re.compile(rf"(?<![\w.]){re.escape(value)}(?![\w.])")
        lines = [quoted.sub("<>", line) for line in lines]
    return failure.error_kind == others.error_kind and lines[0] == lines[1]


def _values(trial: Trial) -> set[str]:
    """Its hyper-parameters as they stand on a command line."""
    return {as_argument(value) for _, value in trial.spec.parameters}


def _counts(failure: Failure) -> bool:
    own = failure.error_kind in _OWN_ENDS and failure.ruled not in _ABOUT_THE_PLACE
    return own and failure.step == 0


def may_end(state: Tables, trial: Trial) -> bool:
    """Whether one more failure of this trial could be the one that stops its study."""
    study = state.studies[trial.spec.study]
    if study.on_same_failure is not OnSameFailure.STUDY or trial.step:
        return False
    alike = {other.id for other in failed_alike(state, study.id)} | {trial.id}
    return len(alike) >= ENOUGH


def _failed_as_others(state: Tables, trial: Trial, now: Time) -> Sequence[Trial]:
    """The trials that failed as this one just did, if that stops the study; else none.

    It does once three trials have failed alike, where there is nowhere left that would tell more
    of whose fault it is: one device, or one node, stops no study that another could run. A wrong
    command line, or code that can't be unpacked, is wrong everywhere. Nor does it while another
    trial has run for twice as long as any of these: it may have come past that place, in a program
    that shows no steps.
    """
    study = state.studies[trial.spec.study]
    failure = trial.failures[-1] if trial.failures else None
    if study.on_same_failure is not OnSameFailure.STUDY or failure is None:
        return ()
    if not (failure.programs and _counts(failure)):
        return ()
    alike = failed_alike(state, study.id)
    if len(alike) < ENOUGH:
        return ()
    places = {old.device for each in alike for old in each.failures if old.programs}
    if failure.error_kind not in WRONG_EVERYWHERE and untried_beyond(
        state, trial, places, failure.devices > 0
    ):
        return ()
    longest = max(each.served_seconds for each in alike)
    active = [state.trials[name] for name in state.active[study.id]]
    if any(other.run and now - other.run.since > 2 * longest for other in active):
        return ()
    return alike


def _stop(state: Tables, study: StudyId, alike: Sequence[Trial], detail: str, now: Time) -> None:
    """The study ends, as its first trials failed alike: nothing more is tried, or proposed."""
    state.searching.pop(study, None)
    error = one_line(detail)
    words = f"the first {len(alike)} trials failed alike before their first step: {error}"
    for other in [state.trials[name] for name in state.active[study]]:
        if other.failures:
            _end(state, other, Ending(Phase.FAILED, f"{error} ({STOPPED})"), now)
        else:
            _end(state, other, Ending(Phase.STOPPED, f"{words} ({STOPPED})"), now)
    take_back(state, study)


def settle(state: Tables, trial: Trial, now: Time) -> None:
    """Do what the study wants done about the failure with which the trial's last run ended."""
    _exclude(state, trial)
    _end_study(state, trial, now)
    if alike := _failed_as_others(state, trial, now):
        _stop(state, trial.spec.study, alike, trial.failures[-1].detail, now)


def _exclude(state: Tables, trial: Trial) -> None:
    """Keep the study from where the trial has failed, if its rules say so. What a trial met with
    wherever it was is the fault of none of those nodes."""
    failure = trial.failures[-1] if trial.failures else None
    study = state.studies[trial.spec.study]
    is_strict = study.failure_rule is FailureRule.HOPS and bool(failure and not failure.restores)
    if failure is None or not (is_strict or failure.ruled is RetryAction.EXCLUDE_NODE):
        return
    if trial.phase is Phase.FAILED:
        for key in [key for key, why in state.excluded.items() if why.trial == trial.id]:
            del state.excluded[key]
        return
    node, error = state.slots[failure.device].device.node, one_line(failure.detail)
    if is_strict:
        place = failure.device if strict_failures(trial) == 1 else node
        state.excluded[study.id, place] = Exclusion(trial.id, error, STRICT_RULE)
    else:
        place = node
        state.excluded[study.id, place] = Exclusion(trial.id, error)
    for other in [state.trials[trial_id] for trial_id in state.active[study.id]]:
        if place == node and state.node_of(other) == node:
            state.put(other)


def _end_study(state: Tables, trial: Trial, now: Time) -> None:
    """Stop the others of a study whose trials may not fail for good, if this one just has."""
    study = state.studies[trial.spec.study]
    if trial.phase is not Phase.FAILED or study.on_third_failure is not OnThirdFailure.STUDY:
        return
    is_strict = study.failure_rule is FailureRule.HOPS
    rule = STRICT_RULE if is_strict else "retry.on_third_failure: study"
    ending = Ending(Phase.STOPPED, f"{trial.id} failed for good ({rule})")
    state.searching.pop(study.id, None)
    for other in [state.trials[trial_id] for trial_id in state.active[study.id]]:
        _end(state, other, ending, now)


def _end(state: Tables, trial: Trial, ending: Ending, now: Time) -> None:
    if trial.phase is Phase.WAITING:
        state.put(progress.ended(trial, now, ending))
    elif trial.ending is None:
        state.put(replace(trial, ending=ending))
