"""How many more trials a study's searcher is to propose now.

There is always one trial that has not begun, for the policy to choose. When the policy prefers it
to all trials that have begun, it gets a device, and the next one is proposed from everything known
by then. So the policy decides between new trials and known ones, and the searcher decides which
trial the new one is.
"""

from __future__ import annotations

from hermesd.core.model import Phase, Study, StudyId, TrialId
from hermesd.core.state import State


def proposals_wanted(state: State, study_id: StudyId) -> int:
    """So many are to be proposed: until `ahead` trials have not begun, and no device that the study
    could use is left without a trial that waits. None while a person holds all its trials back."""
    study = state.studies[study_id]
    if study_id not in state.searching or study.searcher is None or study.outside:
        return 0  # of a study whose trials are asked for, none is proposed before
    active = [state.trials[trial] for trial in state.active[study_id]]
    if active and all(trial.paused for trial in active):
        return 0
    waiting = [trial for trial in active if trial.phase is Phase.WAITING and not trial.paused]
    fresh = sum(not trial.attempt for trial in waiting)
    idle = sum(
        state.serves(state.slots[device].device, study)
        and study.device_kind in ("", state.slots[device].device.kind)
        for device in state.free
    )
    room = state.searching[study_id] - len(state.members[study_id])
    return max(0, min(room, max(study.searcher.ahead - fresh, idle - len(waiting))))


def proposing(state: State, study_id: StudyId) -> str:
    """What a searcher has done for a study and is still to do, in words; empty if it is done."""
    study = state.studies[study_id]
    if study.searcher is None or study_id not in state.searching:
        return ""
    have, wanted = len(state.members[study_id]), state.searching[study_id]
    name = proposes(state, study)
    return f"{name}: {have} of {wanted} trials so far, further ones as results come in"


def proposes(state: State, study: Study) -> str:
    """What proposes the study's further trials, in words: its searcher, or draws if that failed."""
    if study.searcher is None:
        return ""
    return "random draws" if study.id in state.unsearched else study.searcher.name


def to_give(state: State, study: StudyId) -> TrialId | None:
    """The first trial of a study whose trials are asked for that nobody trains yet."""
    return next((trial for trial in state.active[study] if not state.trials[trial].asked), None)
