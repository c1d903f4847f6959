"""Forks that people ask for: where one begins, and how what the other trial has come to by now is
written down first."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from hermesd import study as studies
from hermesd.core.events import Added
from hermesd.core.fold import riding
from hermesd.core.lengths import is_length
from hermesd.core.model import (
    Checkpoint,
    Fidelity,
    NodeId,
    Phase,
    RunId,
    Setting,
    TrialId,
    TrialSpec,
)
from hermesd.core.state import State
from hermesd.core.trial import Trial, remembered
from hermesd.head.fleet.sessions import NodeSessions
from hermesd.head.loop import Head
from hermesd.head.refusals import NotNow
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.refusal import FieldError, Refused

# So long a fork waits at most for a checkpoint of where its parent is now.
SAVED_SECONDS = 20.0


def forked(
    state: State, parent: TrialId, request: pb.ForkTrialRequest, key: str, unsaved: str = ""
) -> Added:
    """A fork of a trial, as an event; `unsaved` says why what that is now was not written down.

    Raises Refused, and NotNow if the fork can go on from nothing.
    """
    trial, spec = state.trials[parent], spec_of(state, parent, request)
    step = request.step if request.HasField("step") else None
    changed = [pair for pair in spec.parameters if pair not in trial.spec.parameters]
    begin = _begin(state, trial, step, changed, unsaved)
    return Added(trial.spec.study, (spec,), key, (begin,), counts_on=True)


def spec_of(state: State, parent: TrialId, request: pb.ForkTrialRequest) -> TrialSpec:
    """The trial that a fork of another is to be. Raises Refused."""
    spec = state.trials[parent].spec
    number = len(state.members[spec.study]) + 1
    changed, new = request.parameters, request.new_parameters
    return studies.fork(state.studies[spec.study], spec, number, changed, new)


def notes(state: State, parent: Trial, made: Added, unsaved: str, *, is_asked: bool) -> list[str]:
    """What of where a fork begins is not what its author, who may have asked for it, expects."""
    (begin,), found = made.forked, []
    assert begin is not None
    trainer = _trainer(state, parent)
    if begin.trial != parent.id and trainer is not parent:
        found.append(
            f"{trainer.id} trains for {parent.id} as long as both are the same, so this begins from"
            f" step {begin.step} of {begin.trial}"
        )
    newest = trainer.checkpoint
    is_image = newest is not None and bool(newest.image_of) and newest.step > begin.step
    if is_asked or begin.step >= trainer.step:
        return found
    if unsaved or is_image or not trainer.phase.on_device:
        why = f": {unsaved}" if unsaved else " that can take other parameters" if is_image else ""
        found.append(
            f"{trainer.id} is at step {trainer.step}, of which there is no checkpoint{why}"
        )
    return found


async def saved(head: Head, sessions: NodeSessions, trial_id: TrialId) -> str:
    """Have written down what a trial has come to while it runs or is parked, and goes on so.

    That is waited for as long as people like to wait. Why it was not written, if so.
    """
    trial = head.state.trials[trial_id]
    trainer = _trainer(head.state, trial)
    if head.state.owner_of(trainer) != head.state.owner_of(trial):
        return f"{trainer.id}, which trains for it, is another user's"
    wanted, sequence, asked = trainer.step, head.committed, None
    refused: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    with suppress(TimeoutError):
        async with asyncio.timeout(SAVED_SECONDS), asyncio.TaskGroup() as tasks:
            while (now := head.state.trials.get(trainer.id)) and _is_behind(
                head.state, now, wanted
            ):
                node = head.state.node_of(now)
                assert node is not None
                if not head.state.nodes[node].connected:
                    return f"node {node} is not connected"
                if now.run is None and now.kept is not None and now.kept.midway:
                    return "it was stopped in the middle of a step"
                stay = _stay(head.state, now)
                session = sessions.find(stay[0]) if stay else None
                if session is not None and stay and stay != asked:
                    refused, asked = session.save(stay[1]), stay
                news = tasks.create_task(head.beyond(sequence))
                waits: list[asyncio.Future[Any]] = [news, refused]
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                if refused.done():
                    news.cancel()
                    return refused.result()
                sequence = news.result()
            return ""
    return f"none came within {SAVED_SECONDS:g} s"


def _trainer(state: State, trial: Trial) -> Trial:
    """The trial that trains for this one now: itself, or the one on which it rides."""
    return trial if trial.carrier is None else state.trials[trial.carrier]


def _is_behind(state: State, trial: Trial, wanted: int) -> bool:
    """Whether a checkpoint of the trial at this step is still to come: it has come to it, and is on
    a device, on its way to or from one, or parked."""
    is_there = state.node_of(trial) is not None
    newest = trial.checkpoint.step if trial.checkpoint else 0
    return is_there and trial.fidelity.restorable and newest < min(wanted, trial.step)


def _stay(state: State, trial: Trial) -> tuple[NodeId, RunId, Phase] | None:
    """Where a trial can be asked for a checkpoint, and as which run: it runs there or is parked."""
    if trial.run is not None and trial.phase is Phase.RUNNING:
        return state.place(trial.run).node, trial.run.id, trial.phase
    node = state.parked_on(trial) if trial.run is None else None
    return (node, trial.kept.run, trial.phase) if node and trial.kept else None


def _nothing_to_fork(state: State, trial: Trial, unsaved: str) -> str:
    """Why a trial has no checkpoint that another one could go on from."""
    trainer = _trainer(state, trial)
    who = trial.id if trainer is trial else f"{trainer.id}, which trains for {trial.id},"
    if trainer.fidelity is Fidelity.PARK_ONLY:
        it = "it" if trainer is trial else trainer.id
        return (
            f"{trial.id} can't be forked: {it} has no checkpoint and can only be kept in memory"
            f" ({trainer.fidelity_reason})"
        )
    seconds = state.studies[trainer.spec.study].durability_seconds
    if not trainer.fidelity.restorable:
        how = "it has not made a step"
    elif unsaved:
        how = f"it is at step {trainer.step}, of which none could be written now: {unsaved}"
    else:
        how = (
            f"it is at step {trainer.step}, and a checkpoint is due after {seconds:g} s of its"
            " training, or when it is suspended to disk"
        )
    return f"{who} has no checkpoint yet, and that is what a fork goes on from: {how}"


def _begin(
    state: State,
    trial: Trial,
    step: int | None,
    changed: Sequence[tuple[str, Setting]],
    unsaved: str,
) -> Checkpoint:
    lent = riding.furthest(state, trial) if trial.carrier is not None else None
    saved = [each for each in (*remembered(trial), trial.forked, lent) if each is not None]
    # An image has the values of its program in its memory, where few can be changed.
    usual = [each for each in saved if not each.image_of]
    images = [each for each in saved if each.image_of and not (changed and usual)]
    known = {each.step: each for each in (*images, *usual)}
    if not _trainer(state, trial).fidelity.restorable or not known:
        raise NotNow(_nothing_to_fork(state, trial, unsaved))
    if step is not None and step not in known:
        expected = f"a step at which it has a checkpoint: {', '.join(map(str, sorted(known)))}"
        raise Refused(FieldError("step", str(step), expected))
    its = trial.checkpoint if lent is None else None
    newest = its if its is not None and its in known.values() else known[max(known)]
    found = newest if step is None else known[step]
    is_end = trial.phase is Phase.COMPLETED and found.step >= trial.step
    is_longer = any(is_length(name) for name, _ in changed)
    if is_end and trial.planned_steps is not None and not is_longer:
        earlier = max((each for each in known if each < found.step), default=None)
        raise NotNow(
            f"{trial.id} ended as planned, at step {found.step}, so there is nothing left for a"
            " fork to train: make it longer, for example with --set epochs=20"
            + (f", or begin earlier, with --step {earlier}" if earlier is not None else "")
        )
    nodes = [state.nodes[node] for node in found.nodes if node in state.nodes]
    if all(node.lost for node in nodes):
        raise NotNow(
            f"the checkpoint of {trial.id} at step {found.step} is on no connected node: only on"
            f" {', '.join(found.nodes)}"
        )
    return found
