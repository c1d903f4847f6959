"""What always holds of the tables; asserted in production too, in tests after every step.

The scheduler checks the trials that a batch changed, with their devices, before anything of the
batch is written; all of it is checked now and then, and whenever the head starts.
"""

from __future__ import annotations

from collections.abc import Iterable

from hermesd.core.model import DeviceId, Phase, Tier, TrialId
from hermesd.core.tables import Tables


class InvariantBroken(Exception):
    """The state contradicts itself: a defect, never an input's fault."""


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise InvariantBroken(what)


def check(state: Tables) -> None:
    """Check everything.

    Raises:
        InvariantBroken: naming the first contradiction found.
    """
    for trial_id, trial in state.trials.items():
        _require(trial.id == trial_id, f"{trial_id} is filed under another name")
        _check_trial(state, trial_id)
    for device_id in state.slots:
        _check_slot(state, device_id)
    for device_id in state.expired:
        slot = state.slots[device_id]
        _require(
            slot.run is not None and state.trials[slot.run.trial].candidate,
            f"{device_id}: index of expired quanta",
        )
    for study_id, members in state.members.items():
        _require(study_id in state.studies, f"members of the unknown study {study_id}")
        unfinished = {t for t in members if not state.trials[t].phase.final}
        _require(set(state.active[study_id]) == unfinished, f"{study_id}: index of active trials")


def check_trials(state: Tables, trial_ids: Iterable[TrialId]) -> None:
    """Check some trials, those removed left out, and the devices that they are on.

    Raises:
        InvariantBroken: naming the first contradiction found.
    """
    for trial_id in trial_ids:
        trial = state.trials.get(trial_id)
        if trial is not None:
            _check_trial(state, trial_id)
            active = trial_id in state.active[trial.spec.study]
            _require(active != trial.phase.final, f"{trial_id}: index of active trials")
            for device_id in trial.run.devices if trial.run else ():
                _check_slot(state, device_id)


def _check_slot(state: Tables, device_id: DeviceId) -> None:
    slot = state.slots[device_id]
    if slot.run is not None:
        holder = state.trials.get(slot.run.trial)
        run = holder.run if holder else None
        _require(
            run is not None and run.id == slot.run and device_id in run.devices,
            f"{device_id} holds {slot.run}, which does not run there",
        )
    _require((device_id in state.free) == state.usable(slot), f"{device_id}: index of free slots")


def _check_trial(state: Tables, trial_id: str) -> None:
    trial = state.trials[trial_id]
    run = trial.run
    _require((run is not None) == trial.phase.on_device, f"{trial_id} is {trial.phase} with {run}")
    if run is not None:
        _require(run.id.trial == trial_id, f"{trial_id} has the run of another: {run.id}")
        _require(run.id.attempt == trial.attempt, f"{trial_id}: {run.id} is not the last attempt")
        for device in run.devices:
            _require(
                device in state.slots and state.slots[device].run == run.id,
                f"{run.id} does not hold its device {device}",
            )
        _require(
            not run.expired or trial.phase in (Phase.RUNNING, Phase.SUSPENDING),
            f"{run.id} is expired but {trial.phase}",
        )
    if trial.kept is not None and trial.kept.tier is Tier.PARK and run is not None:
        _require(trial.phase in (Phase.STARTING, Phase.SUSPENDING), f"{run.id} runs, yet is parked")
    _require(trial.ending is None or trial.phase.on_device, f"{trial_id} should have ended")
    _require(
        trial.checkpoint is None or trial.checkpoint.trial == trial_id,
        f"{trial_id} has the checkpoint of another",
    )
    _require(not trial.phase.final or trial.finished is not None, f"{trial_id} ended at no time")
