"""What people asked of machines, and what operators made of them and of users' shares, folded into
the tables."""

from __future__ import annotations

from typing import assert_never

from hermesd.core.change import replace
from hermesd.core.copies import node_changed
from hermesd.core.machine_events import (
    Forgiven,
    NodeDrained,
    NodeUndrained,
    PoolsConfigured,
    TermsSet,
)
from hermesd.core.model import NodeId, Place, Time
from hermesd.core.pools import Pool, pool_of
from hermesd.core.tables import Rejected, Tables


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
    """What a node that drains has not written down, it is asked for again."""
    node = state.nodes[node_id]
    state.nodes[node_id] = replace(node, draining=draining)
    state.index(node.devices)
    node_changed(state, node_id)
    for trial in state.trials_on({node_id}):
        kept = trial.kept
        if draining and kept is not None:
            trial = replace(trial, kept=replace(kept, leaving=False, unwritable=False))
        state.put(trial)


def _configure(state: Tables, pools: tuple[Pool, ...]) -> None:
    """Nodes change pools: what is on them is to leave, and what was on its way there is not."""
    asked = {study: state.own_policy(study) for study in state.fallen}
    state.pools = {pool.name: pool for pool in pools}
    for study, policy in asked.items():
        if state.own_policy(study) != policy:
            del state.fallen[study]
    moved = set()
    for node in list(state.nodes.values()):
        pool = pool_of(node.id, pools)
        if pool != node.pool:
            moved.add(node.id)
            state.nodes[node.id] = replace(node, pool=pool)
    for slot in list(state.slots.values()):
        if slot.device.node in moved and slot.reserved:
            state.put_slot(replace(slot, reserved=None))
    for trial in state.trials_on(moved):
        state.put(trial)


def _forgive(state: Tables, place: Place) -> None:
    devices = [d for d, slot in state.slots.items() if place in (d, slot.device.node)]
    state.strikes = {d: strikes for d, strikes in state.strikes.items() if d not in devices}
    state.excluded = {key: why for key, why in state.excluded.items() if key[1] != place}
    for each in (place, *devices):
        state.quarantined.pop(each, None)
