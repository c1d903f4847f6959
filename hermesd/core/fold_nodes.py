"""What nodes said of themselves, folded into the tables."""

from __future__ import annotations

from typing import assert_never

from hermesd.core import progress
from hermesd.core.aftermath import settle
from hermesd.core.blame import blamed
from hermesd.core.change import replace
from hermesd.core.copies import node_changed
from hermesd.core.events import DeviceFailed, NodeJoined, NodeLost, NodeSilent, RunFailed
from hermesd.core.fold_copies import disk_lost
from hermesd.core.fold_yields import fold_yields
from hermesd.core.model import LiveRun, NodeId, Phase, RunId, Time
from hermesd.core.nodes import Node, Slot
from hermesd.core.placement import prospects
from hermesd.core.pools import pool_of
from hermesd.core.recovery import fallen_back
from hermesd.core.tables import Rejected, Tables


def fold_node_event(
    state: Tables, event: NodeJoined | NodeSilent | NodeLost | DeviceFailed, now: Time
) -> None:
    match event:
        case NodeJoined():
            _joined(state, event, now)
        case NodeSilent(node_id):
            node = state.node(node_id)
            state.nodes[node_id] = replace(node, connected=False, silent_since=now)
            state.index(node.devices)
            node_changed(state, node_id)
        case NodeLost(node_id, request_id, left):
            node = state.node(node_id)
            if node.connected:
                raise Rejected(f"node {node_id!r} is connected")
            if request_id:
                state.request(request_id, ())
            state.nodes[node_id] = replace(node, boot_id="")
            if left:
                _left(state, node_id)
            node_changed(state, node_id)
            _forget_runs(state, node_id, {}, f"node {node_id} was lost", now)
        case DeviceFailed(device_id, reason):
            if device_id not in state.slots:
                raise Rejected(f"no device {device_id!r}")
            state.put_slot(replace(state.slots[device_id], healthy=False, reason=reason))
        case _:
            assert_never(event)


def _left(state: Tables, node_id: NodeId) -> None:
    """It is not expected back, by nobody and for nothing."""
    node = replace(state.nodes[node_id], left=True, draining=False, resting="", parting=False)
    state.nodes[node_id] = node
    for device in node.devices:
        state.put_slot(replace(state.slots[device], healthy=False, reason="its node has left"))
    disk_lost(state, node_id)
    state.sights.pop(node_id, None)
    state.strikes = {d: each for d, each in state.strikes.items() if d not in node.devices}
    state.forget_paces(node.devices)
    # Should it come all the same, it says what it has, and is told what of that is not needed.
    for key in [key for key in state.releases if key[1] == node_id]:
        del state.releases[key]
    for stray in [stray for stray in state.strays if stray[0] == node_id]:
        del state.strays[stray]


def _joined(state: Tables, event: NodeJoined, now: Time) -> None:
    before = state.nodes.get(event.node)
    names = tuple(device.id for device in event.devices)
    state.nodes[event.node] = Node(
        event.node,
        event.boot_id,
        names,
        facts=event.facts,
        version=event.version,
        draining=before is not None and before.draining,
        pool=pool_of(event.node, state.pools.values()),
        resting=before.resting if before is not None else "",
        disk=event.disk,
        parting=event.parting,
        shared=event.shared,
        machine=event.machine,
        parked_memory_bytes=event.parked_memory_bytes,
    )
    if before is not None and before.disk and event.disk not in ("", before.disk):
        disk_lost(state, event.node)
    node_changed(state, event.node)
    for key in [key for key in state.leftover if key[1] == event.node]:
        state.leftover[key] = False
    state.sights.pop(event.node, None)
    live = {item.run: item.condition for item in event.live}
    own = {item.run: item.condition for item in event.live if not _foreign(state, item)}
    _forget_runs(state, event.node, own, f"node {event.node} does not know the run", now)
    for device in event.devices:
        slot = state.slots.get(device.id, Slot(device))
        if slot.device.kind != device.kind:
            state.forget_paces([device.id])
        state.put_slot(replace(slot, device=device, healthy=True, reason=""))
    for gone in before.devices if before else ():
        if gone not in names:
            state.put_slot(replace(state.slots[gone], healthy=False, reason="unplugged"))
    fold_yields(state, event)
    for run, condition in live.items():
        if condition != "ended" and not _expects(state, run, event.node):
            state.strays[event.node, run] = None
        trial = state.trials.get(run.trial)
        if trial is not None and trial.phase.final and trial.kept and trial.kept.run == run:
            # It may not have heard that this is to be written down.
            state.put(replace(trial, kept=replace(trial.kept, leaving=False)))
        if trial is not None and trial.run is None and trial.attempt < run.attempt:
            # The journal was restored from an older copy: no attempt is given twice.
            state.put(replace(trial, attempt=run.attempt))


def _foreign(state: Tables, item: LiveRun) -> bool:
    """Whether a run is of another study that had this name, at a head that knew nothing of ours."""
    trial = state.trials.get(item.run.trial)
    if trial is None or not item.identity:
        return False
    return item.identity != state.studies[trial.spec.study].identity


def _expects(state: Tables, run: RunId, node: NodeId) -> bool:
    trial = state.trials.get(run.trial)
    if trial is None:
        return False
    if trial.run is not None and trial.run.id == run:
        return state.slots[trial.run.devices[0]].device.node == node
    return trial.kept is not None and trial.kept.run == run and state.parked_on(trial) == node


def _forget_runs(
    state: Tables, node_id: NodeId, live: dict[RunId, str], reason: str, now: Time
) -> None:
    """Runs and parked processes of the node that are not among `live` are no more."""
    for name in [trial_id for active in state.active.values() for trial_id in active]:
        trial = state.trials[name]
        if trial.phase.final:  # with one before it, which failed for good
            continue
        run, kept = trial.run, trial.kept
        if run and state.slots[run.devices[0]].device.node == node_id and run.id not in live:
            state.free_slots(trial, now)
            parked = (
                trial.phase is Phase.STARTING
                and kept is not None
                and live.get(kept.run) == "parked"
            )
            if parked:  # the launch was never heard there: nothing is lost
                state.put(progress.released(replace(trial, reason=reason), now))
                continue
            lost = RunFailed(run.id, "lost", reason, "", trial.step)
            study, left = state.studies[trial.spec.study], prospects(state, trial)
            trial = fallen_back(blamed(trial, lost, study, left, now), run.id)
            state.put(progress.released(trial, now))
            settle(state, state.trials[name], now)
        elif run is None and kept and kept.run not in live and state.parked_on(trial) == node_id:
            state.put(fallen_back(replace(trial, reason=reason), kept.run))
