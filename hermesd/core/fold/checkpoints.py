"""Folds copies of checkpoints on other nodes into the tables, and says which are still needed.

Two checkpoints of each trial are remembered: the newest, and the last one that was copied to
another node. If the newest is an image of processes, the newest that is not an image is remembered
as well. Everything else that nodes have of the trial can be removed.
"""

from __future__ import annotations

from typing import assert_never

from hermesd.core import progress
from hermesd.core.commands import Copy, Drop
from hermesd.core.events import (
    Copied,
    CopyEvent,
    Dropped,
    ImageGivenUp,
    NotCopied,
    Spoilt,
    WidthGivenUp,
)
from hermesd.core.fast_replace import replace
from hermesd.core.model import Checkpoint, CheckpointId, NodeId, Phase, Time
from hermesd.core.resume_points import (
    IMAGE_GIVEN_UP,
    WIDTH_GIVEN_UP,
    goes_on_from_image,
    has_own_beginning,
    hopeless_image,
    without_checkpoints,
    without_width,
)
from hermesd.core.tables import Rejected, Tables
from hermesd.core.trial import Copying, Ending, Trial, remembered

# What could not be copied is tried again so much later, and so is a way that none could go.
AGAIN_SECONDS = 60.0


def fold_copy_command(state: Tables, command: Copy | Drop) -> None:
    match command:
        case Copy(trial_id, name, source, target):
            trial = state.trial(trial_id)
            newest = trial.forked if trial.awaits_fork else trial.checkpoint
            copies = state.copies
            if newest is None or newest.id != name or trial.copying is not None:
                raise Rejected(f"{name} is not to be copied")
            if source in copies.giving or target in copies.taking:
                raise Rejected(f"{source} or {target} has a copy under way")
            state.put(replace(trial, copying=Copying(newest, source, target)))
        case Drop(trial_id, node):
            if (trial_id, node) not in state.leftover:
                raise Rejected(f"nothing of {trial_id!r} is left over on {node}")
            state.leftover[trial_id, node] = True
        case _:
            assert_never(command)


def fold_copy_event(state: Tables, event: CopyEvent, now: Time) -> None:
    trial = state.trial(event.trial)
    state.node(event.node)
    if isinstance(event, Dropped):
        if (trial.id, event.node) not in state.leftover:
            raise Rejected(f"nothing of {trial.id} was left over on {event.node}")
        del state.leftover[trial.id, event.node]
        return
    flight = trial.copying
    if flight and (flight.checkpoint.id, flight.target) != (event.checkpoint, event.node):
        flight = None
    match event:
        case Copied(node) if flight and trial.awaits_fork:
            parent = state.trials.get(flight.checkpoint.trial)
            state.put(progress.forked(trial, parent, node))
        case NotCopied(_, _, _, reason, way=False) if flight and trial.awaits_fork:
            if trial.spec.root:
                # Nobody has asked for that very checkpoint: there may be others (see `riding`).
                refused = (*trial.refused, event.checkpoint)
                alone = replace(trial, copying=None, forked=None, refused=refused, carried_steps=0)
                state.put(progress.rewound(alone))
                return
            begin = f"{flight.checkpoint.trial} at step {flight.checkpoint.step}"
            ending = Ending(Phase.FAILED, f"it cannot begin from {begin}: {reason}")
            state.put(progress.ended(replace(trial, copying=None), now, ending))
        case Copied(node, _, name):
            known = _known(trial, name)
            if known is None or (node in known.nodes and flight is None):
                raise Rejected(f"{name} on {node}: nothing refers to it, or it is known")
            landed = replace(trial, copying=None) if flight else trial
            is_shared = flight is not None and flight.source == flight.target
            places = sharing(state, node) if is_shared else (node,)
            state.put(with_places(state, landed, known, places))
        case NotCopied(node, _, name, way=way):
            if flight is None:
                raise Rejected(f"{name} was not asked for on {node}")
            if way:
                state.severed = {
                    each: until for each, until in state.severed.items() if until > now
                }
                state.severed[flight.source, node] = now + AGAIN_SECONDS
            newest = trial.awaits_fork or (
                trial.checkpoint is not None and trial.checkpoint.id == name
            )
            after = now + AGAIN_SECONDS if newest and not way else trial.copy_after
            state.put(replace(trial, copying=None, copy_after=after))
        case Spoilt(node, _, name):
            known = _known(trial, name)
            if known is None or node not in known.nodes:
                raise Rejected(f"{name} on {node}: nothing refers to it")
            state.put(_without_place(state, trial, node, event))
        case _:
            assert_never(event)


def _known(trial: Trial, name: CheckpointId) -> Checkpoint | None:
    """The checkpoint of this name, if it is remembered."""
    return next((each for each in remembered(trial) if each.id == name), None)


def sharing(state: Tables, node: NodeId) -> tuple[NodeId, ...]:
    """The nodes that have what this one puts into its shared directory."""
    shared = state.nodes[node].shared
    return tuple(each.id for each in state.nodes.values() if shared and each.shared == shared)


def with_places(
    state: Tables, trial: Trial, checkpoint: Checkpoint, nodes: tuple[NodeId, ...]
) -> Trial:
    """The trial, a checkpoint of which lies on these nodes as well."""
    more = tuple(node for node in nodes if node not in checkpoint.nodes)
    if not more:
        return trial
    there = replace(checkpoint, nodes=(*checkpoint.nodes, *more))
    if trial.checkpoint is not None and trial.checkpoint.id == there.id:
        trial = replace(trial, checkpoint=there)
    if trial.before_image is not None and trial.before_image.id == there.id:
        trial = replace(trial, before_image=there)
    before = trial.copied
    if before is not None and before.step > there.step:
        return trial
    trial = replace(trial, copied=there)
    _leave_over(state, trial, before)
    return trial


def loadable(trial: Trial) -> Checkpoint | None:
    """Its newest checkpoint, or if that is an image of processes, the newest that is none: people
    can do nothing with an image."""
    newest = trial.checkpoint
    if newest is None or not newest.image_of:
        return newest
    others = [each for each in remembered(trial) if not each.image_of]
    return max(others, key=lambda each: each.step, default=newest)


def _leave_over(state: Tables, trial: Trial, before: Checkpoint | None) -> None:
    """Nothing that the nodes of an earlier checkpoint have is needed, if none of these has more."""
    needed = {node for each in remembered(trial) for node in each.nodes}
    for node in before.nodes if before else ():
        if node not in needed:
            state.leftover[trial.id, node] = False


def dispensable(state: Tables, trial: Trial, node: NodeId) -> bool:
    """Whether what is left over on a node is of no use there, as things are: a copy may be on its
    way there, or the trial may have come back."""
    coming = trial.copying is not None and trial.copying.target == node
    needed = any(node in each.nodes for each in remembered(trial))
    return not coming and not needed and state.node_of(trial) != node


def fold_image_given_up(state: Tables, event: ImageGivenUp) -> None:
    trial = state.trial(event.trial)
    older, images = trial.before_image, (trial.checkpoint, trial.copied)
    if trial.phase is not Phase.WAITING or trial.run is not None:
        raise Rejected(f"{trial.id} does not wait")
    if older is not None:
        is_unfit = hopeless_image(state, trial)
        why = IMAGE_GIVEN_UP if is_unfit else f"the image of its processes {WIDTH_GIVEN_UP}"
        back = gone_back(state, trial, older.id)
        state.put(replace(back, reason=f"back at step {older.step}: {why}"))
        return
    if not goes_on_from_image(trial):
        raise Rejected(f"{trial.id} goes on from no image")
    back = progress.rewound(without_checkpoints(trial))
    for each in images:
        _leave_over(state, back, each)
    state.put(replace(back, reason=f"from the beginning: {IMAGE_GIVEN_UP}"))


def fold_width_given_up(state: Tables, event: WidthGivenUp, now: Time) -> None:
    """The checkpoint is like any other from now on: one that fails twice more is set aside. If it
    cannot be used at all, the trial begins anew, or ends where that would not be its beginning."""
    trial = state.trial(event.trial)
    if trial.checkpoint is None or trial.phase is not Phase.WAITING:
        raise Rejected(f"{trial.id} does not wait with a checkpoint")
    free = without_width(state, trial)
    if free is None or goes_on_from_image(trial):
        return  # earlier journals have it of images as well, on which it has no effect
    if free.checkpoint is None:
        words = f"its checkpoint of step {trial.step} {WIDTH_GIVEN_UP}"
        if not has_own_beginning(trial):
            state.put(progress.ended(trial, now, Ending(Phase.FAILED, words)))
            return
        free = replace(progress.rewound(free), reason=f"from the beginning: {words}")
        for each in (trial.checkpoint, trial.copied):
            _leave_over(state, free, each)
    state.put(free)


def gone_back(state: Tables, trial: Trial, name: CheckpointId | None) -> Trial:
    """The trial as it was at the checkpoint that it is to go on from."""
    newest, others = trial.checkpoint, (trial.copied, trial.before_image)
    found = next((each for each in others if each is not None and each.id == name), None)
    if newest is None or newest.id == name or found is None:
        return trial
    copied = trial.copied if trial.copied and trial.copied.step <= found.step else None
    older = trial.before_image if found.image_of else None
    trial = replace(trial, checkpoint=found, copied=copied, before_image=older, copy_after=0.0)
    _leave_over(state, trial, newest)
    return progress.back_at(trial, found.step)


def disk_lost(state: Tables, node: NodeId) -> None:
    """A node came back without its files: what lay nowhere else is no more."""
    for trial in list(state.trials.values()):
        if (left := _without_place(state, trial, node)) is not trial:
            state.put(left)
    for key in [key for key in state.leftover if key[1] == node]:
        del state.leftover[key]


def _without_place(
    state: Tables, trial: Trial, node: NodeId, spoilt: Spoilt | None = None
) -> Trial:
    """The trial when its checkpoints, or the one that is spoilt, do not lie on this node any more.

    Without its newest it goes on from the furthest that is left: the last that came elsewhere, or
    what the node has instead.
    """
    name = spoilt.checkpoint if spoilt else None
    before, result = trial.checkpoint, trial.result
    newest, copied = _without(before, node, name), _without(trial.copied, node, name)
    older = _without(trial.before_image, node, name)
    kept = _without(result.checkpoint, node, name) if result else None
    same = newest is before and copied is trial.copied and older is trial.before_image
    if same and (not result or kept is result.checkpoint):
        return trial
    fallen = newest is None and before is not None
    left = _furthest(trial, [copied, older], spoilt)
    trial = replace(
        trial,
        checkpoint=left if fallen else newest,
        copied=copied,
        before_image=older if not fallen or (left is not None and left.image_of) else None,
        result=replace(result, checkpoint=kept) if result else None,
    )
    if fallen and trial.phase is Phase.WAITING and state.parked_on(trial) is None:
        trial = progress.fall_back(trial)
        if spoilt is not None:
            trial = replace(trial, reason=f"back at step {trial.step}: {spoilt.reason}")
    return trial


def _furthest(
    trial: Trial, others: list[Checkpoint | None], spoilt: Spoilt | None
) -> Checkpoint | None:
    """What a trial is left with when its newest checkpoint is no more."""
    found = max(filter(None, others), key=lambda each: each.step, default=None)
    other = spoilt.instead if spoilt else None
    newest = trial.checkpoint.step if trial.checkpoint else 0
    if spoilt is None or other is None or other.trial != trial.id or other.step > newest:
        return found
    return found if found and found.step >= other.step else replace(other, nodes=(spoilt.node,))


def _without(
    checkpoint: Checkpoint | None, node: NodeId, only: CheckpointId | None
) -> Checkpoint | None:
    """The checkpoint as the other nodes have it, if it is the `only` one that this one lacks; None
    if none has it."""
    if checkpoint is None or node not in checkpoint.nodes or only not in (None, checkpoint.id):
        return checkpoint
    nodes = tuple(each for each in checkpoint.nodes if each != node)
    return replace(checkpoint, nodes=nodes) if nodes else None
