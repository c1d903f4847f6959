"""What the failure of a run means beyond its trial: for the ledger, and for its study."""

from __future__ import annotations

from hermesd.core import progress
from hermesd.core.alike import endings
from hermesd.core.change import replace
from hermesd.core.history import Ending, Exclusion
from hermesd.core.model import Phase, Time
from hermesd.core.retrying import OnThirdFailure, RetryAction
from hermesd.core.strikes import one_line
from hermesd.core.tables import Tables
from hermesd.core.trial import Trial


def settle(state: Tables, trial: Trial, now: Time) -> None:
    """Do what the study wants done about the failure with which the trial's last run ended."""
    _exclude_node(state, trial)
    _end_study(state, trial, now)
    for other, ending in endings(state, trial, now):
        _end(state, other, ending, now)


def _exclude_node(state: Tables, trial: Trial) -> None:
    """What a trial met with wherever it was is the fault of none of those nodes."""
    failure = trial.failures[-1] if trial.failures else None
    if failure is None or failure.ruled is not RetryAction.EXCLUDE_NODE:
        return
    study, node = trial.spec.study, state.slots[failure.device].device.node
    if trial.phase is Phase.FAILED:
        for key in [key for key, why in state.excluded.items() if why.trial == trial.id]:
            del state.excluded[key]
        return
    state.excluded[study, node] = Exclusion(trial.id, one_line(failure.detail))
    for other in [state.trials[trial_id] for trial_id in state.active[study]]:
        if state.node_of(other) == node:
            state.put(other)


def _end_study(state: Tables, trial: Trial, now: Time) -> None:
    """Stop the others of a study whose trials may not fail for good, if this one just has."""
    study = state.studies[trial.spec.study]
    if trial.phase is not Phase.FAILED or study.on_third_failure is not OnThirdFailure.STUDY:
        return
    ending = Ending(Phase.STOPPED, f"{trial.id} failed for good (retry.on_third_failure: study)")
    for other in [state.trials[trial_id] for trial_id in state.active[study.id]]:
        _end(state, other, ending, now)


def _end(state: Tables, trial: Trial, ending: Ending, now: Time) -> None:
    if trial.phase is Phase.WAITING:
        state.put(progress.ended(trial, now, ending))
    elif trial.ending is None:
        state.put(replace(trial, ending=ending))
