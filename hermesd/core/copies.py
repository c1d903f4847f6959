"""Which checkpoints lie on too few nodes, found without looking at every trial.

Rule: a checkpoint has as many copies as its study wants if so many nodes that are neither lost nor
to be emptied have it beside one. What lies only on nodes that go for good is copied in any case.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hermesd.core.change import replace
from hermesd.core.model import NodeId, Phase, TrialId

if TYPE_CHECKING:
    from hermesd.core.tables import Tables
    from hermesd.core.trial import Trial

# Their results are of no use to anybody, unless a person wants them to go on.
_GIVEN_UP = (Phase.FAILED, Phase.CANCELLED)


@dataclass(slots=True)
class CopyIndex:
    """All of it follows from the trials and nodes: nothing of it is kept anywhere.

    `lying` are the trials whose newest checkpoint lies on each node, `wanting` those that have too
    few copies, by the node that would give it, who has waited longest first; `givers` says under
    which node each of these is found. `giving` and `taking` are the nodes with a copy under way.
    """

    lying: dict[NodeId, dict[TrialId, None]] = field(default_factory=dict)
    wanting: dict[NodeId, dict[TrialId, None]] = field(default_factory=dict)
    givers: dict[TrialId, NodeId] = field(default_factory=dict)
    giving: dict[NodeId, TrialId] = field(default_factory=dict)
    taking: dict[NodeId, TrialId] = field(default_factory=dict)


def rebuilt(state: Tables) -> CopyIndex:
    """The index of tables that came without it."""
    state.copies = CopyIndex()
    for trial in state.trials.values():
        note(state, None, trial)
    return state.copies


def note(state: Tables, before: Trial | None, trial: Trial) -> None:
    """A trial has changed: keep the index true."""
    old, new = before.checkpoint if before else None, trial.checkpoint
    flight = before.copying if before else None
    if old is None and new is None and flight is None and trial.copying is None:
        return
    if old is not new:
        for node in old.nodes if old else ():
            _take_out(state.copies.lying, node, trial.id)
        for node in new.nodes if new else ():
            state.copies.lying.setdefault(node, {})[trial.id] = None
    if flight is not trial.copying:
        if flight is not None:
            del state.copies.giving[flight.source], state.copies.taking[flight.target]
        if trial.copying is not None:
            state.copies.giving[trial.copying.source] = trial.id
            state.copies.taking[trial.copying.target] = trial.id
        else:
            # What has had its turn waits behind the others, though it has a newer one by now.
            _forget_wish(state.copies, trial.id)
    _index(state, trial)


def _index(state: Tables, trial: Trial) -> None:
    copies = state.copies
    giver = _giver(state, trial) if wants_copy(state, trial) else None
    known = copies.givers.get(trial.id)
    if giver == known:
        return
    _forget_wish(copies, trial.id)
    if giver is not None:
        copies.givers[trial.id] = giver
        copies.wanting.setdefault(giver, {})[trial.id] = None


def _forget_wish(copies: CopyIndex, trial: TrialId) -> None:
    known = copies.givers.pop(trial, None)
    if known is not None:
        _take_out(copies.wanting, known, trial)


def _take_out(table: dict[NodeId, dict[TrialId, None]], node: NodeId, trial: TrialId) -> None:
    trials = table.get(node)
    if trials is not None:
        trials.pop(trial, None)
        if not trials:
            del table[node]


def wants_copy(state: Tables, trial: Trial) -> bool:
    """Whether the trial's newest checkpoint lies on too few nodes that will stay."""
    checkpoint, replicas = trial.checkpoint, state.studies[trial.spec.study].replicas
    if checkpoint is None or trial.phase in _GIVEN_UP:
        return False
    known = [state.nodes[node] for node in checkpoint.nodes if node in state.nodes]
    staying = sum(not (node.lost or node.draining or node.parting) for node in known)
    if replicas:
        return staying <= replicas
    return not staying and any(node.parting for node in known)


def only_leaving(state: Tables, trial: Trial) -> bool:
    """Whether the trial's newest checkpoint is of use, and goes with nodes that go for good."""
    if trial.checkpoint is None or trial.phase in _GIVEN_UP:
        return False
    known = [state.nodes[node] for node in trial.checkpoint.nodes if node in state.nodes]
    return not any(not (node.lost or node.parting) for node in known)


def left_behind(state: Tables, node: NodeId) -> int:
    """How many trials run on a node, or have there alone what they would go on from.

    Asked each second: what is parked there, the node knows by itself.
    """
    slots = (state.slots[device] for device in state.nodes[node].devices)
    there = {slot.run.trial for slot in slots if slot.run is not None}
    lying = state.copies.lying.get(node, ())
    return len(there | {each for each in lying if only_leaving(state, state.trials[each])})


def _giver(state: Tables, trial: Trial) -> NodeId | None:
    """The first node that has the newest checkpoint and is there."""
    nodes = trial.checkpoint.nodes if trial.checkpoint else ()
    there = (node for node in nodes if node in state.nodes and state.nodes[node].connected)
    return next(there, None)


def node_changed(state: Tables, node: NodeId) -> None:
    """A node came, went, or is to be emptied: copies that were under way to or from it are void."""
    copies = state.copies
    under_way = {copies.giving.get(node), copies.taking.get(node)}
    for trial_id in sorted(each for each in under_way if each is not None):
        state.put(replace(state.trials[trial_id], copying=None))
    state.severed = {way: until for way, until in state.severed.items() if node not in way}
    for trial_id in list(copies.lying.get(node, ())):
        _index(state, state.trials[trial_id])


def forget(state: Tables, trial: Trial) -> None:
    """The trial is removed, with all its files wherever they are."""
    note(state, trial, replace(trial, checkpoint=None, copying=None))
    for key in [key for key in state.leftover if key[0] == trial.id]:
        del state.leftover[key]
