"""What becomes of the trials on a node that a person wants empty, of which their study is to have
no more, that is of another pool now, or that its machine wants back.

Nothing is cut short: a run goes on to the end of its quantum (one without an end is over now) and
is then written down, like what is parked. What no checkpoint would bring back stays: it runs on to
its end, or waits for the node. Only what the machine wants back, the node or a device of it, is
given back at once, in whatever way frees it.
"""

from __future__ import annotations

from hermesd.core.commands import Issue, Suspend, WriteDown
from hermesd.core.model import NodeId, Phase, Tier
from hermesd.core.state import State
from hermesd.core.trial import Trial

# Somebody waits for what is yielded: past this the trial falls back to its last checkpoint.
YIELD_SECONDS = 15.0


def vacate(state: State, trial: Trial, issue: Issue) -> None:
    """Have the trial leave its node, if it is to leave that and may leave it now."""
    if trial.phase is Phase.RUNNING and (why := _yielded(state, trial)):
        return _give_back(state, trial, why, issue)
    node = _left(state, trial)
    if node is None:
        return
    run, kept = trial.run, trial.kept
    if run is None:
        if kept is not None and not kept.leaving and trial.phase is Phase.WAITING:
            issue(WriteDown(kept.run, node))
    elif trial.phase is Phase.RUNNING and (run.expired or run.quantum.endless):
        deadline = trial.notice(state.studies[trial.spec.study].suspend_deadline_seconds)
        why = _why(state, trial, node)
        issue(Suspend(run.id, Tier.CHECKPOINT, deadline, None, f"node {node} {why}"))


def write_down_first(state: State, trial: Trial, node: NodeId, issue: Issue) -> None:
    """Have what is parked of a trial that is over written down before it is let go: it may be tried
    again."""
    kept, saved = trial.kept, trial.checkpoint
    if kept is None or kept.leaving or state.parked_on(trial) != node:
        return
    if trial.fidelity.restorable and (saved is None or saved.step < trial.step):
        issue(WriteDown(kept.run, node))


def _yielded(state: State, trial: Trial) -> str:
    """Why its machine wants back where the trial runs; "" if it does not."""
    slot = state.slots[trial.run.devices[0]] if trial.run else None
    if slot is None:
        return ""
    if slot.yielded:
        return f"{slot.device.id}: {slot.yielded}"
    node = state.nodes[slot.device.node]
    return f"node {node.id} rests: {node.resting}" if node.resting else ""


def _give_back(state: State, trial: Trial, why: str, issue: Issue) -> None:
    """Free the device now: by a checkpoint if one brings the trial back."""
    assert trial.run is not None
    deadline = state.studies[trial.spec.study].suspend_deadline_seconds
    tier = Tier.CHECKPOINT if trial.fidelity.restorable else Tier.PARK
    issue(Suspend(trial.run.id, tier, min(deadline, YIELD_SECONDS), None, why))


def _left(state: State, trial: Trial) -> NodeId | None:
    """The node that the trial is to leave, if it is on one and can go on elsewhere."""
    node = state.node_of(trial)
    if node is None or not trial.fidelity.restorable:
        return None
    return node if _why(state, trial, node) else None


def _why(state: State, trial: Trial, node: NodeId) -> str:
    """What is with the node that the trial is to leave; "" if it may stay."""
    if state.nodes[node].draining:
        return "is draining"
    if state.nodes[node].resting:
        return f"rests: {state.nodes[node].resting}"
    if (pool := state.nodes[node].pool) != state.studies[trial.spec.study].pool:
        return f"is of pool {pool} now"
    return "is excluded from its study" if (trial.spec.study, node) in state.excluded else ""


def stuck(state: State, trial: Trial) -> tuple[NodeId, str] | None:
    """The node that the trial waits for and what is with it: nowhere else could it go on."""
    node = state.parked_on(trial)
    if node is None or trial.fidelity.restorable or (trial.spec.study, node) in state.excluded:
        return None
    return (node, why) if (why := _why(state, trial, node)) else None
