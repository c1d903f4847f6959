"""Decides which checkpoint is copied where, besides who runs.

A checkpoint is copied to the directory that its node shares with others, if there is one and it is
not there yet. Otherwise it is copied to another node: the one that has the previous copy, or else a
node of the study's pool where the trial can go on, and of those the one with the fewest copies. No
copy enters or leaves a private pool.

A node gives one copy and takes one at a time, so a launch never waits for copies, and nothing else
does either. There is one exception: a forked trial runs only once a node has given it the
checkpoint of the trial that it was forked from.
"""

from __future__ import annotations

from collections.abc import Iterator

from hermesd.core.commands import Copy, Drop, Issue
from hermesd.core.fold.checkpoints import dispensable, sharing
from hermesd.core.model import NodeId, PoolId, Time, is_own
from hermesd.core.state import State
from hermesd.core.trial import Trial


def spread(state: State, now: Time, issue: Issue) -> Time | None:
    """Ask for the copies that can be made now; when to ask again if nothing happens before."""
    for (trial_id, node), told in list(state.leftover.items()):
        here = state.nodes[node].connected and not told
        if here and dispensable(state, state.trials[trial_id], node):
            issue(Drop(trial_id, node))
    later = list(_forks(state, now, issue))
    if not state.copies.wanting:
        return min(later, default=None)
    takers = [node.id for node in state.nodes.values() if node.open]
    free = dict.fromkeys(node for node in takers if node not in state.copies.taking)
    for source in list(state.copies.wanting):
        if source in state.copies.giving:
            continue
        shared = source not in state.copies.taking and state.nodes[source].shared
        trial = _to_share(state, source, now, later) if shared else None
        if trial is not None:
            assert trial.checkpoint is not None
            free.pop(source, None)
            issue(Copy(trial.id, trial.checkpoint.id, source, source))
            continue
        if free.keys() <= {source}:
            continue
        found = _first(state, source, free, now, later)
        if found is not None:
            trial, target = found
            assert trial.checkpoint is not None
            del free[target]
            issue(Copy(trial.id, trial.checkpoint.id, source, target))
    return min(later, default=None)


def _forks(state: State, now: Time, issue: Issue) -> Iterator[Time]:
    """Have those that are forked given what they begin from, on a node that has it; when to ask
    again for the others."""
    copies = state.copies
    for trial_id in list(copies.forks):
        trial = state.trials[trial_id]
        if trial.copying is not None or trial.forked is None:
            continue
        if trial.copy_after > now:
            yield trial.copy_after
            continue
        for name in trial.forked.nodes:
            node = state.nodes.get(name)
            if node and node.connected and name not in copies.giving and name not in copies.taking:
                issue(Copy(trial_id, trial.forked.id, name, name))
                break


def _to_share(state: State, source: NodeId, now: Time, later: list[Time]) -> Trial | None:
    """The first trial whose checkpoint this node can put where others have it as well."""
    if (until := state.severed.get((source, source), now)) > now:
        later.append(until)
        return None
    others = [node for node in sharing(state, source) if not state.nodes[node].lost]
    for trial_id in state.copies.wanting[source] if len(others) > 1 else ():
        trial = state.trials[trial_id]
        if trial.copying is not None or trial.checkpoint is None:
            continue
        if set(others) <= set(trial.checkpoint.nodes):
            continue
        if trial.copy_after <= now:
            return trial
        later.append(trial.copy_after)
    return None


def _first(
    state: State, source: NodeId, free: dict[NodeId, None], now: Time, later: list[Time]
) -> tuple[Trial, NodeId] | None:
    """The first trial whose checkpoint this node can give to one that is free, and to which."""
    reached = []
    for node in free:
        until = state.severed.get((source, node), now)
        if until > now:
            later.append(until)
        elif node != source:
            reached.append(node)
    for trial_id in state.copies.wanting[source] if reached else ():
        trial = state.trials[trial_id]
        if trial.copying is not None:
            continue
        if trial.copy_after > now:
            later.append(trial.copy_after)
        elif (target := _target(state, trial, reached)) is not None:
            return trial, target
    return None


def _is_private(state: State, pool: PoolId) -> bool:
    return is_own(pool) or (pool in state.pools and state.pools[pool].private)


def _target(state: State, trial: Trial, nodes: list[NodeId]) -> NodeId | None:
    assert trial.checkpoint is not None
    # Where the trial is, it takes its own checkpoints.
    has = (*trial.checkpoint.nodes, state.node_of(trial))
    had = trial.copied.nodes if trial.copied else ()

    pool = state.studies[trial.spec.study].pool

    def rank(node: NodeId) -> tuple[bool, bool, int, NodeId]:
        lying = len(state.copies.lying.get(node, ()))
        return node not in had, state.nodes[node].pool != pool, lying, node

    def may(node: NodeId) -> bool:
        there = state.nodes[node].pool
        return there == pool or not any(_is_private(state, each) for each in (pool, there))

    return min((node for node in nodes if node not in has and may(node)), key=rank, default=None)
