"""Folds what nodes say about themselves into the tables."""

from __future__ import annotations

from dataclasses import fields
from typing import assert_never

from hermesd.core import progress
from hermesd.core.events import (
    DeviceFailed,
    Forgiven,
    NodeDrained,
    NodeJoined,
    NodeLost,
    NodeSilent,
    NodeUndrained,
    PoolsConfigured,
    Reclaimed,
    RunFailed,
    TermsSet,
    Yielded,
)
from hermesd.core.failure_effects import settle
from hermesd.core.failures import blamed
from hermesd.core.fast_replace import replace
from hermesd.core.fold.checkpoints import disk_lost
from hermesd.core.model import LiveRun, Node, NodeId, Phase, Place, Pool, RunId, Slot, Time, pool_of
from hermesd.core.placement import prospects
from hermesd.core.progress import fallen_back
from hermesd.core.tables import Rejected, Tables, node_changed

# What people asked of machines, and what operators made of them and of users' shares, folded
# into the tables.


def fold_upkeep_event(
    state: Tables,
    event: NodeDrained | NodeUndrained | Forgiven | TermsSet | PoolsConfigured,
    now: Time,
) -> None:
    match event:
        case NodeDrained(node_id, request_id):
            state.node(node_id)
            state.request(request_id, ())
            _drain(state, node_id, True)
        case NodeUndrained(node_id, request_id):
            state.node(node_id)
            state.request(request_id, ())
            _drain(state, node_id, False)
        case Forgiven(place, request_id):
            if place not in state.slots and place not in state.nodes:
                raise Rejected(f"no device or node {place!r}")
            state.request(request_id, ())
            _forgive(state, place)
        case TermsSet(half_life_seconds, terms):
            # What was used before is counted as it was then.
            state.accounts = {
                user: account.holding(account.devices, now, state.half_life_seconds)
                for user, account in state.accounts.items()
            }
            state.half_life_seconds, state.terms = half_life_seconds, dict(terms)
        case PoolsConfigured(pools):
            _configure(state, pools)
        case _:
            assert_never(event)


def _drain(state: Tables, node_id: NodeId, draining: bool) -> None:
    node = state.nodes[node_id]
    state.nodes[node_id] = replace(node, draining=draining)
    state.index(node.devices)
    node_changed(state, node_id)
    _touch(state, node_id, leaving=draining)


def _configure(state: Tables, pools: tuple[Pool, ...]) -> None:
    """Nodes change pools: what is on them is to leave, and what was on its way there is not."""
    asked = {study: state.own_policy(study) for study in state.fallen}
    state.pools = {pool.name: pool for pool in pools}
    for study, policy in asked.items():
        if state.own_policy(study) != policy:
            del state.fallen[study]
    moved = set()
    for node in list(state.nodes.values()):
        pool = pool_of(node.id, pools, node.owner)
        if pool != node.pool:
            moved.add(node.id)
            state.nodes[node.id] = replace(node, pool=pool)
    for slot in list(state.slots.values()):
        if slot.device.node in moved and slot.reserved:
            state.put_slot(replace(slot, reserved=None))
    state.touch_all(trial.spec.id for trial in state.trials_on(moved))


def _forgive(state: Tables, place: Place) -> None:
    devices = [d for d, slot in state.slots.items() if place in (d, slot.device.node)]
    state.strikes = {d: strikes for d, strikes in state.strikes.items() if d not in devices}
    state.excluded = {
        key: why for key, why in state.excluded.items() if key[1] not in (place, *devices)
    }
    for each in (place, *devices):
        state.quarantined.pop(each, None)


# What machines leave to others for a while, folded into the tables.
#
# What is on a place that is yielded is to leave it at once (see `draining`); a node says
# all of it again with each Hello.


def fold_yield_event(state: Tables, event: Yielded | Reclaimed) -> None:
    reason = event.reason if isinstance(event, Yielded) else ""
    if event.place not in state.nodes and event.place not in state.slots:
        raise Rejected(f"no device or node {event.place!r}")
    if _reason(state, event.place) == reason:
        raise Rejected(f"{event.place!r} is so already")
    parting = isinstance(event, Yielded) and event.parting
    if parting and event.place not in state.nodes:
        raise Rejected(f"{event.place!r} is no node: only a node can part")
    _note(state, event.place, reason)
    node: NodeId = event.place.partition("/")[0]
    if parting:
        state.nodes[node] = replace(state.nodes[node], parting=True)
        node_changed(state, node)
    _touch(state, node, leaving=bool(reason) and event.place == node)


def fold_yields(state: Tables, event: NodeJoined) -> None:
    """What a node says with its Hello, whose devices are known by now."""
    yields = dict(event.yields)
    before = state.nodes[event.node].resting
    for place in (event.node, *(device.id for device in event.devices)):
        _note(state, place, yields.get(place, ""))
    if yields:
        _touch(state, event.node, leaving=event.node in yields and not before)


def _reason(state: Tables, place: Place) -> str:
    return state.nodes[place].resting if place in state.nodes else state.slots[place].yielded


def _note(state: Tables, place: Place, reason: str) -> None:
    if place in state.nodes:
        node = state.nodes[place] = replace(state.nodes[place], resting=reason)
        state.index(node.devices)
    else:
        state.put_slot(replace(state.slots[place], yielded=reason))


def _touch(state: Tables, node: NodeId, leaving: bool) -> None:
    """Have the trials of a node looked at; if they are to leave it, what was not written down is
    asked for again."""
    for trial in state.trials_on({node}):
        kept = trial.kept
        if leaving and kept is not None:
            kept = replace(kept, leaving=False, unwritable=False)
        state.put(replace(trial, kept=kept))


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
            state.riding.moved.update(state.copies.forks)
        case DeviceFailed(device_id, reason):
            if device_id not in state.slots:
                raise Rejected(f"no device {device_id!r}")
            state.put_slot(replace(state.slots[device_id], healthy=False, reason=reason))
        case _:
            assert_never(event)


# What a node says of itself when it joins, and is known by.
_SAID = {each.name for each in fields(NodeJoined)} & {each.name for each in fields(Node)}
_SAID -= {"devices"}


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
        devices=names,
        draining=before is not None and before.draining,
        pool=pool_of(event.node, state.pools.values(), event.owner),
        resting=before.resting if before is not None else "",
        **{name: getattr(event, name) for name in _SAID},
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
        return state.place(trial.run).node == node
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
        if run and state.place(run).node == node_id and run.id not in live:
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
            study, left = state.studies[trial.spec.study], prospects(state, trial, lost)
            trial = fallen_back(blamed(trial, lost, study, left, now), run.id)
            state.put(progress.released(trial, now))
            settle(state, state.trials[name], now)
        elif run is None and kept and kept.run not in live and state.parked_on(trial) == node_id:
            state.put(fallen_back(replace(trial, reason=reason), kept.run))
