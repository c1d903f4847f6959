"""Who has the devices that a waiting trial could run on: `why` names them beside its own study.

Rule: pure; it says nothing where a device is free, as what is waited for is something else then.
"""

from __future__ import annotations

from hermesd.core.model import Phase, Time, TrialId
from hermesd.core.placement import avoided, fits
from hermesd.core.state import State
from hermesd.core.trial import Trial

NAMED = 4


def taken(state: State, trial: Trial, now: Time) -> str:
    """Which trials have all the devices that the trial could be put on; empty where it waits for
    something else."""
    if trial.phase is not Phase.WAITING or trial.paused or trial.not_before > now:
        return ""
    study = state.studies[trial.spec.study]
    kept_on = state.parked_on(trial)
    occupied: list[tuple[str, TrialId]] = []
    for device, slot in sorted(state.slots.items()):
        suited = fits(trial, study, slot.device, kept_on) and not avoided(state, trial, device)
        if suited and state.usable(slot):
            return ""
        if suited and slot.run is not None:
            occupied.append((device, slot.run.trial))
    if not occupied:
        return ""
    words = [f"{device} has {_whose(state, trial, other)}" for device, other in occupied[:NAMED]]
    more = len(occupied) - NAMED
    return f"; {', '.join(words)}" + (f" and {more} more are taken" if more > 0 else "")


def _whose(state: State, trial: Trial, other: TrialId) -> str:
    study = state.trials[other].spec.study
    return f"{other} (of {'its own study' if study == trial.spec.study else f'study {study}'})"
