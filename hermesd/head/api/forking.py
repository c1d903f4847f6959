"""What a ForkTrial comes to: a further trial, and the checkpoint that it goes on from."""

from __future__ import annotations

from hermesd import study as studies
from hermesd.core.events import Added
from hermesd.core.fold.checkpoints import remembered
from hermesd.core.model import Checkpoint, TrialId
from hermesd.core.state import State
from hermesd.core.trial import Trial
from hermesd.head.refusals import NotNow
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.refusal import FieldError, Refused


def forked(state: State, parent: TrialId, request: pb.ForkTrialRequest, key: str) -> Added:
    """The event. Raises Refused, and NotNow if there is nothing that it could go on from."""
    trial = state.trials[parent]
    study = state.studies[trial.spec.study]
    number = len(state.members[study.id]) + 1
    spec = studies.fork(study, trial.spec, number, request.parameters, request.new_parameters)
    step = request.step if request.HasField("step") else None
    return Added(study.id, (spec,), key, (_begin(state, trial, step),))


def _begin(state: State, trial: Trial, step: int | None) -> Checkpoint:
    known = {each.step: each for each in (*remembered(trial), trial.forked) if each is not None}
    if not trial.fidelity.restorable or not known:
        why = trial.fidelity_reason or "it has not come so far"
        raise NotNow(
            f"{trial.id} has no checkpoint that another trial could go on from"
            f" ({trial.fidelity}: {why})"
        )
    if step is not None and step not in known:
        expected = f"a step of which it has a checkpoint: {', '.join(map(str, sorted(known)))}"
        raise Refused(FieldError("step", str(step), expected))
    newest = trial.checkpoint or known[max(known)]
    found = newest if step is None else known[step]
    nodes = [state.nodes[node] for node in found.nodes if node in state.nodes]
    if all(node.lost for node in nodes):
        raise NotNow(
            f"the checkpoint of {trial.id} at step {found.step} lies on {', '.join(found.nodes)}"
            " alone, of which nothing is heard"
        )
    return found
