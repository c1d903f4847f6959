"""Which waiting trials a node keeps in memory: those that run soonest, as far as they fit.

A parked trial that does not fit is written to disk, the one that will wait longest first. A trial
that was written to disk and has the next turn is rebuilt while others train, on cores that belong
to no device, and held at its checkpoint. There it trains nothing, and it can be ended without loss
if it is not needed.
"""

from __future__ import annotations

import math

from hermesd.core.model import Time, TrialId
from hermesd.core.node.actions import Rebuild
from hermesd.core.node.stay import Condition, Stay
from hermesd.core.node.table import NodeTable, Shelved


def plan(node: NodeTable, now: Time) -> None:
    """Demote what does not fit, end what was rebuilt for nothing, rebuild what comes next."""
    for stay in _kept(node):
        if stay.condition is Condition.PROMOTED and stay.run.trial not in node.upcoming:
            node.discard(stay)
    budget = node.terms.parked_memory_bytes
    if budget is not None:
        for stay in _surplus(node, budget):
            _let_fall(node, stay, now)
    if not node.leaving and now < node.lease and not _is_busy(node):
        _promote(node, math.inf if budget is None else budget, now)


def excess(node: NodeTable) -> tuple[int, tuple[TrialId, ...]]:
    """By how many bytes the budget is exceeded for good, and for which trials: nothing but their
    processes has what they have learned, so they are kept until their turn whatever it takes."""
    budget = node.terms.parked_memory_bytes
    parked = [stay for stay in _kept(node) if stay.condition is Condition.PARKED]
    bound = [stay for stay in parked if stay.ending is None and not _may_be_demoted(stay)]
    over = 0 if budget is None else sum(stay.memory_bytes for stay in bound) - budget
    return (over, tuple(sorted(stay.run.trial for stay in bound))) if over > 0 else (0, ())


def _kept(node: NodeTable) -> list[Stay]:
    """What waits in memory, the one that will wait longest first; among those that the head says
    nothing of, the one that has waited longest."""
    waiting = (Condition.PARKED, Condition.PROMOTED)
    kept = [stay for stay in node.stays.values() if stay.condition in waiting]
    return sorted(kept, key=lambda stay: (-_place(node, stay.run.trial), stay.since))


def _place(node: NodeTable, trial: TrialId) -> float:
    return node.upcoming.index(trial) if trial in node.upcoming else math.inf


def _surplus(node: NodeTable, budget: float) -> list[Stay]:
    """What must go for the budget to be kept, as far as it may."""
    kept = _kept(node)
    over = sum(stay.memory_bytes for stay in kept) - budget
    going = []
    for stay in kept:
        rebuilt = stay.condition is Condition.PROMOTED
        if over > 0 and (rebuilt or _may_be_demoted(stay)):
            over -= stay.memory_bytes
            going.append(stay)
    return going


def _may_be_demoted(stay: Stay) -> bool:
    """What was stopped midway could not be written without going on, on no device of its own."""
    kept = stay.unwritable or stay.midway
    return stay.restorable and stay.ending is None and not kept


def _let_fall(node: NodeTable, stay: Stay, now: Time) -> None:
    if stay.condition is Condition.PROMOTED:
        node.discard(stay)
    else:
        stay.enter(Condition.DEMOTING, now)
        node.demote(stay, now)


def _is_busy(node: NodeTable) -> bool:
    """Whether something is being rebuilt or written down: one at a time."""
    return any(
        stay.condition is Condition.DEMOTING
        or (stay.condition is Condition.PROMOTED and not stay.held)
        for stay in node.stays.values()
    )


def _promote(node: NodeTable, budget: float, now: Time) -> None:
    """Rebuild the next trial that is not in memory, once there is room for it.

    Room is made of what waits longer than it. If that is not enough, it is not rebuilt.
    """
    for place, trial in enumerate(node.upcoming[: node.turns]):
        shelved = node.shelved.get(trial)
        if shelved is None or trial in node.stays or not (cores := _cores(node, shelved)):
            continue
        held = sum(stay.memory_bytes for stay in _kept(node))
        going = _surplus(node, budget - shelved.memory_bytes)
        freed = sum(stay.memory_bytes for stay in going)
        sooner = any(_place(node, stay.run.trial) <= place for stay in going)
        if sooner or held - freed + shelved.memory_bytes > budget:
            return
        for stay in going:
            _let_fall(node, stay, now)
        if not _is_busy(node):
            _rebuild(node, shelved, cores, now)
        return


def _cores(node: NodeTable, shelved: Shelved) -> tuple[int, ...]:
    """Where a trial may be rebuilt while its device is another's; none for nowhere."""
    devices = shelved.assignment.launch.devices
    return node.terms.rebuild_cores.get(devices[0], ()) if len(devices) == 1 else ()


def _rebuild(node: NodeTable, shelved: Shelved, cores: tuple[int, ...], now: Time) -> None:
    assignment, checkpoint = shelved.assignment, shelved.checkpoint
    run = assignment.run
    stay = Stay(assignment, Condition.PROMOTED, now, now, run, step=checkpoint.step)
    stay.judged, stay.planned = shelved.judged, shelved.planned
    stay.memory_bytes = shelved.memory_bytes
    stay.rebuilding, stay.rebuilt = run, checkpoint
    node.stays[run.trial] = stay
    del node.shelved[run.trial]
    node.out.append(Rebuild(assignment, checkpoint, cores))
