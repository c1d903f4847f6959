"""What keeps a trial from going on although its policy would have it: machines, in words.

Rule: each is empty where nothing is the matter, and else begins with a semicolon.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hermesd.core.model import DEFAULT_POOL, Device, NodeId, Phase, Study, Time
from hermesd.core.nodes import Node, Slot
from hermesd.core.placement import asked_for
from hermesd.core.state import State
from hermesd.core.trial import Trial

_GIB = 1 << 30


def no_devices(state: State, trial: Trial) -> str:
    """What to say if the pool of a waiting trial has no device for it at all."""
    study = state.studies[trial.spec.study]
    pool = study.pool
    if trial.phase is not Phase.WAITING:
        return ""
    if pool != DEFAULT_POOL and pool not in state.pools:
        there = ", ".join(sorted({DEFAULT_POOL, *state.pools}))
        return f"; its pool {pool} is not in the head's configuration any more (there: {there})"
    nodes = [node for node in state.nodes.values() if node.pool == pool and not node.left]
    slots = [slot for slot in state.slots.values() if state.nodes[slot.device.node] in nodes]
    fitting = [slot for slot in slots if asked_for(study, slot.device)]
    if slots and not fitting:
        return f"; {unfit(study, [slot.device for slot in slots])} in its pool {pool}"
    if any(slot.sound and state.nodes[slot.device.node].open for slot in fitting):
        return ""
    away = [f"{node.id} {_away(node)}" for node in nodes if not node.open and _has(node, fitting)]
    away += [f"{slot.device.id}: {slot.yielded}" for slot in fitting if slot.yielded]
    which = "" if len(fitting) == len(slots) else "that would do "
    why = ", ".join(away) or "it has none"
    return f"; no device of its pool {pool} {which}can be used now ({why})"


def unfit(study: Study, devices: Sequence[Device]) -> str:
    """What a study asks for that none of these devices has, and what there is."""
    kind, kinds = study.device_kind, sorted({device.kind for device in devices})
    if kind and kind not in kinds:
        return f"there is no device of kind {kind} (there: {', '.join(kinds)})"
    alike = [device.memory_bytes for device in devices if kind in ("", device.kind)]
    which = f" of kind {kind}" if kind else ""
    asked, most = study.memory_bytes / _GIB, max(alike) / _GIB
    return f"there is no device{which} with {asked:.1f} GiB of memory (at most: {most:.1f} GiB)"


def silence(state: State, trial: Trial, losses: Mapping[NodeId, Time], now: Time) -> str:
    """What to say of a trial that runs, or is parked, on a node of which nothing is heard."""
    parked = state.parked_on(trial)
    place = parked or (state.node_of(trial) if trial.run else None)
    node = state.nodes[place] if place else None
    if node is None or node.silent_since is None or node.lost:
        return ""
    which = f"it is parked on {node.id}, which" if parked else f"node {node.id}"
    told = f"; {which} has not been heard for {_lasting(now - node.silent_since)}"
    if node.id in losses:
        told += f" and counts as lost in {_lasting(losses[node.id] - now)}: then it goes on"
        told += " elsewhere" if trial.fidelity.restorable else " elsewhere, from the beginning"
    else:
        told += "; no node is heard, which may be the head's own fault, so that none counts as lost"
        told += f" before one is back (if it is off: `hermesctl node lost {node.id}`)"
    return told


def stalled(trial: Trial, now: Time) -> str:
    """What to say of a trial whose program comes to no further step."""
    if trial.run is None or (since := trial.run.stalled_since) is None:
        return ""
    typical = trial.seconds_per_step
    before = f", where a step took {typical:.2g} s" if typical else ""
    return f"; it has stalled: no step after {trial.step} for {_lasting(now - since)}{before}"


def crowded(state: State, trial: Trial) -> str:
    """What to say of a trial that is one of those which hold more memory, parked on their node,
    than parked trials are to have there: nothing but their processes has what they have learnt."""
    place = state.parked_on(trial)
    if place is None or trial.fidelity.restorable:
        return ""
    there = [each for each in state.trials_on((place,)) if state.parked_on(each) == place]
    bound = [each.kept for each in there if not each.fidelity.restorable]
    held = sum(kept.memory_bytes for kept in bound if kept is not None)
    budget = state.nodes[place].parked_memory_bytes
    if not 0 < budget < held:
        return ""
    return (
        f"what can only be parked on {place}, this trial among it, holds {held / _GIB:.1f} GiB of"
        f" its memory; parked trials are to have {budget / _GIB:.1f} GiB there"
    )


def _lasting(seconds: float) -> str:
    seconds = max(0.0, seconds)
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _has(node: Node, slots: Sequence[Slot]) -> bool:
    """Whether one of these devices is the node's, or it has none at all."""
    return not node.devices or any(slot.device.node == node.id for slot in slots)


def _away(node: Node) -> str:
    """Why a node is not open."""
    if node.resting:
        return f"rests: {node.resting}"
    return "is draining" if node.draining else "is silent"
