"""What always holds for the tables. It is asserted in production too, and in tests after every
step.

The scheduler checks the trials that a batch changed, and their devices, before anything of the
batch is written. Everything is checked now and then, and whenever the head starts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from hermesd.core import tables
from hermesd.core.model import DeviceId, Phase, TrialId
from hermesd.core.tables import Tables, in_service_of, waits_parked
from hermesd.core.trial import Trial


class InvariantBroken(Exception):
    """The state contradicts itself: a defect, never an input's fault."""


def _require(condition: bool, what: str, *about: object) -> None:
    """`what` says with its {} what should not be; it is written only then."""
    if not condition:
        raise InvariantBroken(what.format(*about))


def check(state: Tables) -> None:
    """Check everything.

    Raises:
        InvariantBroken: naming the first contradiction found.
    """
    for trial_id, trial in state.trials.items():
        _require(trial.id == trial_id, "{} is filed under another name", trial_id)
        _check_trial(state, trial_id, trial)
    for device_id in state.slots:
        _check_slot(state, device_id)
    in_service = in_service_of(state)
    _require(
        in_service == +Counter(state.in_service), "the index of slots in service: {}", in_service
    )
    for device_id in state.expired:
        slot = state.slots[device_id]
        _require(
            slot.run is not None and state.trials[slot.run.trial].candidate,
            "{}: index of expired quanta",
            device_id,
        )
    held: dict[str, int] = {}
    for trial in state.trials.values():
        if trial.run is not None:
            owner = state.owner_of(trial)
            held[owner] = held.get(owner, 0) + len(trial.run.devices)
    _check_gathering(state)
    for user, account in state.accounts.items():
        _require(account.devices == held.pop(user, 0), "{}: devices in use", user)
    _require(not held, "devices of users without an account: {}", held)
    known = state.copies
    _require(tables.rebuilt(state) == known, "the index of copies")
    state.copies = known  # in the order in which it has grown
    riding = state.riding
    _require(tables.riding_of(state) == riding, "the index of riders")
    state.riding = riding
    named = tables.names_of(state.requests)
    _require(named == state.named_requests, "the index of requests")
    for study_id, trials in state.searching.items():
        _require(len(state.members[study_id]) < trials, "{}: has all its trials", study_id)
    for study_id, members in state.members.items():
        _require(study_id in state.studies, "members of the unknown study {}", study_id)
        unfinished = {t for t in members if not state.trials[t].phase.final}
        parked = {t for t in members if waits_parked(state.trials[t])}
        _require(parked == state.parked.keys() & set(members), "{}: index of parked", study_id)
        _require(set(state.active[study_id]) == unfinished, "{}: index of active trials", study_id)


def check_trials(state: Tables, trial_ids: Iterable[TrialId]) -> None:
    """Check some trials, those removed left out, and the devices that they are on.

    Raises:
        InvariantBroken: naming the first contradiction found.
    """
    for trial_id in trial_ids:
        trial = state.trials.get(trial_id)
        if trial is not None:
            if (trial_id in state.active[trial.spec.study]) is trial.phase.final:
                raise InvariantBroken(f"{trial_id}: index of active trials")
            _check_trial(state, trial_id, trial)
            if trial.run is not None:
                for device_id in trial.run.devices:
                    _check_slot(state, device_id)


def _check_gathering(state: Tables) -> None:
    seen: set[DeviceId] = set()
    for trial_id, devices in state.gathering.items():
        trial = state.trials.get(trial_id)
        _require(
            trial is not None and trial.phase is Phase.WAITING and seen.isdisjoint(devices),
            "{} gathers {}",
            trial_id,
            devices,
        )
        seen.update(devices)


def _check_slot(state: Tables, device_id: DeviceId) -> None:
    slot = state.slots[device_id]
    if slot.run is not None:
        holder = state.trials.get(slot.run.trial)
        run = holder.run if holder else None
        _require(
            run is not None and run.id == slot.run and device_id in run.devices,
            "{} holds {}, which does not run there",
            device_id,
            slot.run,
        )
    _require((device_id in state.free) == state.usable(slot), "{}: index of free slots", device_id)


def _check_trial(state: Tables, trial_id: TrialId, trial: Trial) -> None:
    run = trial.run
    plain = not (run or trial.ending or trial.checkpoint or trial.carrier)
    if trial.phase is Phase.WAITING and plain:
        return  # nothing that could contradict itself
    _require(
        (run is not None) == trial.phase.on_device, "{} is {} with {}", trial_id, trial.phase, run
    )
    if run is not None:
        _require(run.id.trial == trial_id, "{} has the run of another: {}", trial_id, run.id)
        outside = state.studies[trial.spec.study].outside
        _require(not outside, "{} runs, and its author's own loop trains it", trial_id)
        _require(
            run.id.attempt == trial.attempt, "{}: {} is not the last attempt", trial_id, run.id
        )
        study, width = state.studies[trial.spec.study], len(set(run.devices))
        nodes = {state.slots[device].device.node for device in run.devices if width > 1}
        _require(
            study.devices <= width <= study.widest and len(nodes) <= 1,
            "{} is on {}, and needs {} to {} of one node",
            run.id,
            run.devices,
            study.devices,
            study.widest,
        )
        for device in run.devices:
            _require(
                device in state.slots and state.slots[device].run == run.id,
                "{} does not hold its device {}",
                run.id,
                device,
            )
        _require(
            not run.expired or trial.phase in (Phase.RUNNING, Phase.SUSPENDING),
            "{} is expired but {}",
            run.id,
            trial.phase,
        )
    if trial.kept is not None and trial.kept.tier.in_process and run is not None:
        parked = trial.phase in (Phase.STARTING, Phase.SUSPENDING)
        _require(parked, "{} runs, yet is parked", run.id)
    if trial.copying is not None:
        flight = trial.copying
        there = all(state.nodes[node].connected for node in (flight.source, flight.target))
        _require(there, "{} is to be copied where nobody is", flight.checkpoint.id)
    _require(trial.copied is None or trial.copied.nodes != (), "{}: a copy on no node", trial_id)
    if trial.kept is not None and trial.kept.leaving:
        _require(trial.kept.tier.in_process, "{} is to be written down twice", trial_id)
    if trial.carrier is not None:
        carrier = state.trials.get(trial.carrier)
        rides = trial.phase is Phase.WAITING and carrier is not None and carrier.carrier is None
        _require(rides, "{} is {}, and rides on {}", trial_id, trial.phase, trial.carrier)
    _require(trial.ending is None or trial.phase.on_device, "{} should have ended", trial_id)
    _require(
        trial.checkpoint is None or trial.checkpoint.trial == trial_id,
        "{} has the checkpoint of another",
        trial_id,
    )
    _require(not trial.phase.final or trial.finished is not None, "{} ended at no time", trial_id)
