"""Who has the devices that a waiting trial, or a study without any device, could run on.

Pure. It says nothing while a device is free, since the trial then waits for something else.
"""

from __future__ import annotations

from hermesd.core.model import Phase, Study, Time, TrialId
from hermesd.core.placement import avoided, fits
from hermesd.core.quotas import DeviceQuotas
from hermesd.core.state import State
from hermesd.core.trial import Trial
from hermesd.head.security.access import Asker
from hermesd.pieces import LOOKED_AT, Pieces, gathered

NAMED = 4


def taken(state: State, trial: Trial, now: Time, who: Asker) -> str:
    """Which trials have all the devices that the trial could be put on; empty where it waits for
    something else."""
    if not _ready(trial, now) or DeviceQuotas(state).full(trial):
        return ""
    study = state.studies[trial.spec.study]
    kept_on = state.parked_on(trial)
    occupied: list[tuple[str, TrialId]] = []
    for device, slot in sorted(state.slots.items()):
        suited = state.serves(slot.device, study) and fits(trial, study, slot.device, kept_on)
        if not suited or avoided(state, trial, device):
            continue
        if state.usable(slot):
            return ""
        if slot.run is not None:
            occupied.append((device, slot.run.trial))
    if not occupied:
        return ""
    words = [
        f"{device} has {_whose(state, trial, other, who)}" for device, other in occupied[:NAMED]
    ]
    more = len(occupied) - NAMED
    return ", ".join(words) + (f" and {more} more are taken" if more > 0 else "")


def waits_for(state: State, study: Study, now: Time, who: Asker) -> Pieces[str]:
    """The same of the first trial of a study that waits for a device; empty while any is on one."""
    known = (state.trials[trial] for trial in state.active[study.id])
    active = yield from gathered(known, LOOKED_AT)
    if any(trial.run is not None for trial in active):
        return ""
    first = next((trial for trial in active if _ready(trial, now)), None)
    return taken(state, first, now, who) if first is not None else ""


def _ready(trial: Trial, now: Time) -> bool:
    return trial.phase is Phase.WAITING and not trial.paused and trial.not_before <= now


def _whose(state: State, trial: Trial, other: TrialId, who: Asker) -> str:
    if not who.sees_trial(state, other):
        return "another user's trial"
    study = state.trials[other].spec.study
    return f"{other} (of {'its own study' if study == trial.spec.study else f'study {study}'})"
