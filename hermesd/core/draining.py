"""What becomes of the trials on a node that a person wants empty, or of which their study is to
have no more.

Nothing is cut short: a run goes on to the end of its quantum (one without an end is over now) and
is then written down, like what is parked. What no checkpoint would bring back stays: it runs on to
its end, or waits for the node.
"""

from __future__ import annotations

from hermesd.core.assignment import Issue
from hermesd.core.commands import Suspend, WriteDown
from hermesd.core.model import NodeId, Phase, Tier
from hermesd.core.state import State
from hermesd.core.trial import Trial


def vacate(state: State, trial: Trial, issue: Issue) -> None:
    """Have the trial leave its node, if it is to leave that and may leave it now."""
    node = _left(state, trial)
    if node is None:
        return
    run, kept = trial.run, trial.kept
    if run is None:
        if kept is not None and not kept.leaving and trial.phase is Phase.WAITING:
            issue(WriteDown(kept.run, node))
    elif trial.phase is Phase.RUNNING and (run.expired or run.quantum.endless):
        deadline = state.studies[trial.spec.study].suspend_deadline_seconds
        why = "is draining" if state.nodes[node].draining else "is excluded from its study"
        issue(Suspend(run.id, Tier.CHECKPOINT, deadline, None, f"node {node} {why}"))


def write_down_first(state: State, trial: Trial, node: NodeId, issue: Issue) -> None:
    """Have what is parked of a trial that is over written down before it is let go: it may be tried
    again."""
    kept, saved = trial.kept, trial.checkpoint
    if kept is None or kept.leaving or state.parked_on(trial) != node:
        return
    if trial.fidelity.restorable and (saved is None or saved.step < trial.step):
        issue(WriteDown(kept.run, node))


def _left(state: State, trial: Trial) -> NodeId | None:
    """The node that the trial is to leave, if it is on one and can go on elsewhere."""
    node = state.node_of(trial)
    if node is None or not trial.fidelity.restorable:
        return None
    excluded = (trial.spec.study, node) in state.excluded
    return node if excluded or state.nodes[node].draining else None


def stuck(state: State, trial: Trial) -> NodeId | None:
    """The draining node that the trial waits for: nowhere else could it go on."""
    node = state.parked_on(trial)
    if node is None or not state.nodes[node].draining or trial.fidelity.restorable:
        return None
    return node
