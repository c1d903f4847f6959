"""Which of its checkpoints a trial goes on from, and which nodes can use that one.

A framework's checkpoint can be used anywhere, though sometimes only on as many devices as it was
made on. An image of processes can be used only on a node that has everything its own node had. If
no node can use a checkpoint, it is given up after as long as it takes to train again what is lost
with it.
"""

from __future__ import annotations

from hermesd.core.fast_replace import replace
from hermesd.core.model import Checkpoint, Node, NodeId, Phase
from hermesd.core.tables import Tables, waits_parked
from hermesd.core.trial import UNFIT, Trial
from hermesd.core.widths import pinned

# For so long at least a trial waits for a node that can use its checkpoint.
PATIENCE_SECONDS = 60.0
IMAGE_GIVEN_UP = "no node can bring back the image of its processes"
WIDTH_GIVEN_UP = "is of more devices than it could have"


def to_restore(state: Tables, trial: Trial) -> Checkpoint | None:
    """What the trial can go on from: the newest checkpoint, or the furthest of the others if all
    nodes that have the newest are lost."""
    newest, older = trial.checkpoint, trial.before_image
    if newest is None or (trial.copied is None and older is None) or _is_there(state, newest):
        return newest
    others = [each for each in (trial.copied, older) if each and _is_there(state, each)]
    return max(others, key=lambda each: each.step, default=newest)


def image_misfit(state: Tables, trial: Trial, saved: Checkpoint, node: NodeId) -> str:
    """Why a checkpoint, an image of processes, is of no use to a node; "" if it is no image, or can
    be brought back there as far as is known."""
    if not saved.image_of:
        return ""
    for old in trial.failures:
        tried = old.error_kind == UNFIT and old.attempt > saved.attempt
        if tried and state.slots[old.device].device.node == node:
            return old.detail
    there, here = state.nodes.get(saved.image_of), state.nodes[node]
    gpu = saved.image_device
    if gpu and gpu not in here.devices:
        return f"its checkpoint is an image of its processes, with what it had on {gpu}"
    if not here.image_features:
        return "its checkpoint is an image of its processes, and the node makes none"
    if there is None or there.image_features == here.image_features:
        return ""
    lacks = set(there.image_features).difference(here.image_features)
    if not lacks:
        return ""
    named = ", ".join(sorted(lacks)[:3])
    return f"its checkpoint is an image of its processes on {there.id}, and the node lacks {named}"


def hopeless_image(state: Tables, trial: Trial) -> bool:
    """Whether the trial waits with an image that no node fits which will stay, and may go on from
    the checkpoint before it, or from its beginning."""
    newest, older = trial.checkpoint, trial.before_image
    if newest is None or trial.phase is not Phase.WAITING or not trial.candidate:
        return False
    if not goes_on_from_image(trial) or (older is None and not has_own_beginning(trial)):
        return False
    if waits_parked(trial) or not _is_there(state, newest):
        return False
    if older is not None and not _is_there(state, older):
        return False
    pool = state.studies[trial.spec.study].pool
    return all(
        node.pool != pool or node.lost or node.left or node.leaving or _is_suspect(state, node)
        or image_misfit(state, trial, newest, node.id) != ""
        for node in state.nodes.values()
    )  # fmt: skip


def _is_suspect(state: Tables, node: Node) -> bool:
    """Whether all that a node has is in quarantine, or it has nothing."""
    return node.id in state.quarantined or all(d in state.quarantined for d in node.devices)


def image_patience_seconds(trial: Trial) -> float:
    """For how long a trial waits for a node that its image fits, while there is none: for as long
    as it takes to train again what it has trained since its checkpoint before, or since its
    beginning."""
    newest, older = trial.checkpoint, trial.before_image
    if newest is None or older is None:  # its steps may not be known
        return max(PATIENCE_SECONDS, trial.use.busy_seconds)
    return _patience_seconds(trial, newest.step - older.step)


def width_patience_seconds(trial: Trial) -> float:
    """For how long a trial waits for as many devices as its checkpoint is of, while no node has so
    many: for as long as it takes to train again what it would lose."""
    kept = trial.before_image.step if goes_on_from_image(trial) and trial.before_image else 0
    return _patience_seconds(trial, trial.step - kept)


def _patience_seconds(trial: Trial, steps: int) -> float:
    return max(PATIENCE_SECONDS, steps * max(trial.step_seconds.values(), default=0.0))


def goes_on_from_image(trial: Trial) -> bool:
    """Whether its newest checkpoint is an image of processes."""
    return trial.checkpoint is not None and trial.checkpoint.image_of != ""


def without_width(state: Tables, trial: Trial) -> Trial | None:
    """The trial as it would be if it waited no longer for as many devices as its checkpoint is of;
    None if it has to.

    An image of processes is given up for the checkpoint before it, unless that could only be given
    up for the beginning. What could not be used on another number may have failed for another
    reason, and is tried on any. What nobody has tried so could seem to work and be wrong: it is
    begun anew.
    """
    if goes_on_from_image(trial):
        older = trial.before_image
        if older is None or not _is_there(state, older):
            return None
        back = replace(trial, checkpoint=older, before_image=None)
        if pinned(back, state.studies[trial.spec.study]):
            further = without_width(state, back)
            return further if further is not None and further.checkpoint is not None else None
        return back
    if trial.keeps_width and trial.checkpoint is not None:
        return replace(trial, freed=trial.checkpoint.id)
    return without_checkpoints(trial)


def without_image(trial: Trial) -> Trial:
    """The trial as it would be if it waited no longer for a node that its image fits."""
    if trial.before_image is None:
        return without_checkpoints(trial)
    return replace(trial, checkpoint=trial.before_image, before_image=None)


def without_checkpoints(trial: Trial) -> Trial:
    """The trial with nothing that it could go on from but its beginning."""
    return replace(trial, checkpoint=None, copied=None, copying=None, before_image=None)


def has_own_beginning(trial: Trial) -> bool:
    """Whether nothing of others or of a result is lost if it is begun anew."""
    return not (trial.forked or trial.result or trial.spec.root)


def _is_there(state: Tables, checkpoint: Checkpoint) -> bool:
    known = (state.nodes.get(node) for node in checkpoint.nodes)
    return any(node is not None and not node.lost for node in known)
