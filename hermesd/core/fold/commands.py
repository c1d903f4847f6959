"""Folds commands into the tables like events, so that a replay never asks a policy."""

from __future__ import annotations

from typing import TypeAlias, assert_never

from hermesd.core.commands import (
    Bind,
    Gather,
    Kill,
    Launch,
    Miss,
    Quarantine,
    Release,
    Renew,
    Stop,
    Suspend,
    Trust,
    WriteDown,
)
from hermesd.core.fast_replace import replace
from hermesd.core.fold.checkpoints import gone_back
from hermesd.core.model import DeviceId, Phase, RunId, Time, TrialId
from hermesd.core.tables import Rejected, Tables
from hermesd.core.trial import Quarantined, Run, Trial
from hermesd.core.widths import launched_on

_Command: TypeAlias = (
    Launch
    | Renew
    | Suspend
    | Stop
    | Kill
    | Bind
    | Gather
    | Miss
    | WriteDown
    | Quarantine
    | Trust
    | Release
)


def fold_command(state: Tables, command: _Command, now: Time) -> None:
    match command:
        case Launch():
            _launch(state, command, now)
        case Renew(run_id, grant, quantum):
            trial, run = _running(state, run_id)
            if grant != run.grant + 1:
                raise Rejected(f"{run_id} is at grant {run.grant}")
            fresh = replace(run, grant=grant, quantum=quantum, expired=False, milestone=None)
            if not command.extends:
                fresh = replace(fresh, granted=now)
                state.serve(trial, run.devices, now)
            state.put(replace(trial, run=fresh))
        case Suspend(run_id, successor=successor):
            trial, run = _running(state, run_id)
            asked = replace(run, asked=command)
            shunned = run.devices if command.width == len(run.devices) else trial.shunned
            state.put(
                replace(
                    trial, phase=Phase.SUSPENDING, run=asked, aim=command.width, shunned=shunned
                )
            )
            if successor is not None:
                slot = state.slots[run.devices[0]]
                state.put_slot(replace(slot, reserved=successor))
        case Stop(run_id):
            trial = state.trial(run_id.trial)
            if trial.run is None or trial.run.id != run_id or trial.ending is None:
                raise Rejected(f"{run_id} is not to be stopped")
            asked = replace(trial.run, asked=command)
            state.put(replace(trial, phase=Phase.SUSPENDING, run=asked))
        case Kill(run_id, node):
            state.strays.pop((node, run_id), None)
        case Bind(trial_id, device):
            trial = state.trial(trial_id)
            if trial.phase is Phase.SUSPENDING:
                state.put_slot(replace(state.slots[device], reserved=trial_id))
            else:
                state.put(replace(trial, home=device))
        case Gather(trial_id, devices):
            _gather(state, trial_id, devices)
        case Miss(trial_id, what, found):
            if found:
                state.missing.pop((trial_id, what), None)
            else:
                state.missing[state.trial(trial_id).id, what] = now
        case WriteDown(run_id, node):
            trial = state.trial(run_id.trial)
            kept = trial.kept
            if kept is None or kept.run != run_id or state.parked_on(trial) != node:
                raise Rejected(f"{run_id} is not parked on {node}")
            state.put(replace(trial, kept=replace(kept, leaving=True)))
        case Quarantine(place, until, reason):
            if place not in state.slots and place not in state.nodes:
                raise Rejected(f"no device or node {place!r}")
            state.quarantined[place] = Quarantined(until, reason)
        case Trust(place):
            if place not in state.quarantined:
                raise Rejected(f"{place!r} is not in quarantine")
            del state.quarantined[place]
        case Release(trial_id, node, forget):
            if not forget:
                trial = state.trial(trial_id)
                kept = trial.kept
                if kept is not None and state.parked_on(trial) == node and not kept.leaving:
                    state.put(replace(trial, kept=None))
            state.releases.pop((trial_id, node), None)
        case _:
            assert_never(command)


def _gather(state: Tables, trial_id: TrialId, devices: tuple[DeviceId, ...]) -> None:
    if not devices:
        state.gathering.pop(trial_id, None)
        return
    trial = state.trial(trial_id)
    if trial.phase is not Phase.WAITING or trial_id in state.gathering:
        raise Rejected(f"{trial_id} is {trial.phase}, or has devices kept for it already")
    for other, theirs in state.gathering.items():
        if taken := set(theirs) & set(devices):
            raise Rejected(f"{', '.join(sorted(taken))} is kept for {other}")
    state.gathering[trial_id] = devices
    state.put(trial)


def _running(state: Tables, run_id: RunId) -> tuple[Trial, Run]:
    trial = state.trial(run_id.trial)
    if trial.phase is not Phase.RUNNING or trial.run is None or trial.run.id != run_id:
        raise Rejected(f"{run_id} is not running")
    return trial, trial.run


def _launch(state: Tables, command: Launch, now: Time) -> None:
    trial = state.trial(command.run.trial)
    if trial.phase is not Phase.WAITING or command.run != trial.next_run:
        raise Rejected(f"{command.run} cannot be launched: {trial.id} is {trial.phase}")
    for device in command.devices:
        if device not in state.slots or not state.usable(state.slots[device]):
            raise Rejected(f"device {device!r} is not free")
        if not state.serves(state.slots[device].device, state.studies[trial.spec.study]):
            raise Rejected(f"device {device!r} is of another pool than {trial.id}")
    there = [state.slots[device].device for device in command.devices]
    if len({(device.node, device.kind) for device in there}) != 1:
        raise Rejected(f"{command.run} needs devices of one node and kind: {command.devices}")
    kept, study = trial.kept, state.studies[trial.spec.study]
    if study.elastic and command.parked and kept and kept.width != len(there):
        raise Rejected(f"{command.parked} is parked with {kept.width} devices, not {len(there)}")
    trial = gone_back(state, trial, command.checkpoint)
    if study.elastic:
        trial = launched_on(trial, len(there), there[0].kind)
    warm = command.parked is not None
    step = _restored_step(state, trial, command)
    devices, quantum = command.devices, command.quantum
    run = Run(
        command.run, devices, quantum, now, now, warm=warm, restored_step=step, reads=study.reads
    )
    state.gathering.pop(trial.id, None)
    state.hold(trial, len(devices), now)
    state.serve(trial, devices, now)
    for device in devices:
        state.put_slot(replace(state.slots[device], run=command.run, reserved=None))
    node, attempt = state.slots[devices[0]].device.node, command.run.attempt
    state.put(
        replace(trial, phase=Phase.STARTING, run=run, attempt=attempt, reason="", last_node=node)
    )


def _restored_step(state: Tables, trial: Trial, command: Launch) -> int:
    """The step of the checkpoint that the run is to go on from, if that lies where it runs."""
    checkpoint = trial.checkpoint
    if checkpoint is None or command.checkpoint != checkpoint.id:
        return 0
    node = state.slots[command.devices[0]].device.node
    return checkpoint.step if node in checkpoint.nodes else 0
