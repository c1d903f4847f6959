"""Whose is what a node says and has: its own, another study's of the same name, or nobody's.

Rule: what this head does not know is not its to remove. A study's id is never given out again, so
one that was submitted here, under the same identity, and is there no more was removed.
"""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from hermesd import wire
from hermesd.core.events import Checkpointed, DeviceFailed, FidelityKnown
from hermesd.core.file_events import CopyEvent, Looked
from hermesd.core.machine_events import Reclaimed, Yielded
from hermesd.core.model import NodeId, StudyId, TrialId, study_of
from hermesd.core.state import State
from hermesd.pb.hermes.v1 import node_pb2 as pb

log = structlog.get_logger()


def unneeded(holdings: pb.Holdings, state: State, taken: Mapping[StudyId, str]) -> list[TrialId]:
    """The trials to be forgotten; `taken` has the identity of every study that ever was."""
    return [
        held.trial
        for held in holdings.trials
        if (study := study_of(held.trial)) not in state.studies
        and taken.get(study) == held.identity
    ]


def passed_over(state: State, node: NodeId, identity: str, event: wire.NodeEvent) -> bool:
    """Whether what a node said is not to reach the core; the log says why.

    Only the second is a fault. The first a node says that has files of another head; the last, one
    that was away, of a stay of which nobody knows any more on which node it was.
    """
    kind = type(event).__name__
    if _foreign(state, identity, event):
        log.info("said of another study of that name", node=node, kind=kind)
    elif not _its_own(state, node, event):
        log.error("a node spoke of another's run", node=node, kind=kind)
    elif _is_stale(state, event):
        log.debug("said of a stay that is over", node=node, kind=kind)
    else:
        return False
    return True


def _foreign(state: State, identity: str, event: wire.NodeEvent) -> bool:
    """Whether the event is about a run of another study that bore this name at another head."""
    if isinstance(event, DeviceFailed | Yielded | Reclaimed | Looked) or not identity:
        return False
    trial = state.trials.get(event.trial if isinstance(event, CopyEvent) else event.run.trial)
    return trial is not None and state.studies[trial.spec.study].identity != identity


def _its_own(state: State, node: NodeId, event: wire.NodeEvent) -> bool:
    """Whether the event is about this node: it or its device, or a run that is not another's."""
    if isinstance(event, DeviceFailed):
        return event.device.startswith(f"{node}/")
    if isinstance(event, Yielded | Reclaimed):
        return event.place.partition("/")[0] == node
    if isinstance(event, CopyEvent | Looked):
        return event.node == node
    checkpoint = getattr(event, "checkpoint", None)
    if checkpoint is not None and checkpoint.trial != event.run.trial:
        return False
    trial = state.trials.get(event.run.trial)
    device = trial.device_of(event.run) if trial is not None else None
    return device is None or state.slots[device].device.node == node


def _is_stale(state: State, event: wire.NodeEvent) -> bool:
    """Whether the event is of a stay that was over long ago, of which the core would take it, since
    it might help the next one: nobody knows any more on which node that was."""
    if not isinstance(event, Checkpointed | FidelityKnown):
        return False
    trial = state.trials.get(event.run.trial)
    return trial is not None and trial.device_of(event.run) is None
