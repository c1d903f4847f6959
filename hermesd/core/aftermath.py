"""What the failure of a run means beyond its trial: for the ledger, and for its study."""

from __future__ import annotations

from hermesd.core import progress
from hermesd.core.change import replace
from hermesd.core.history import Ending
from hermesd.core.model import OnThirdFailure, Phase, Time
from hermesd.core.tables import Tables
from hermesd.core.trial import Trial


def end_study(state: Tables, trial: Trial, now: Time) -> None:
    """Stop the others of a study whose trials may not fail for good, if this one just has."""
    study = state.studies[trial.spec.study]
    if trial.phase is not Phase.FAILED or study.on_third_failure is not OnThirdFailure.STUDY:
        return
    ending = Ending(Phase.STOPPED, f"{trial.id} failed for good (retry.on_third_failure: study)")
    for other in [state.trials[trial_id] for trial_id in state.active[study.id]]:
        if other.phase is Phase.WAITING:
            state.put(progress.ended(other, now, ending))
        elif other.ending is None:
            state.put(replace(other, ending=ending))
