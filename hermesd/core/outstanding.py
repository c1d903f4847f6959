"""What a node may have missed of what it was told: said again as it comes back, not journalled."""

from __future__ import annotations

from hermesd.core.commands import Command, Launch, Renew, WriteDown
from hermesd.core.model import NodeId, Phase, Tier
from hermesd.core.state import State


def outstanding(state: State, node: NodeId) -> list[Command]:
    """What a node that said Hello again may not have received."""
    commands: list[Command] = []
    for device in state.nodes[node].devices:
        slot = state.slots[device]
        trial = state.trials[slot.run.trial] if slot.run else None
        run = trial.run if trial else None
        if trial is None or run is None:
            continue
        if trial.phase is Phase.STARTING:
            parked = trial.kept.run if trial.kept and trial.kept.tier is Tier.PARK else None
            checkpoint = trial.checkpoint.id if trial.checkpoint and not parked else None
            commands.append(
                Launch(run.id, run.devices, run.quantum, "said again", parked, checkpoint)
            )
        elif run.asked is not None:
            commands.append(run.asked)
        elif run.grant:
            commands.append(Renew(run.id, run.grant, run.quantum, "said again"))
    return commands + _unwritten(state, node)


def _unwritten(state: State, node: NodeId) -> list[Command]:
    """What the node was asked to write down, and has not yet."""
    known = (state.trials[t] for active in state.active.values() for t in active)
    kept = [trial.kept for trial in known if state.parked_on(trial) == node]
    return [WriteDown(each.run, node) for each in kept if each is not None and each.leaving]
