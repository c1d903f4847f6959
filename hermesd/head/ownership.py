"""Whose is what a node says and has: its own, another study's of the same name, or nobody's.

Rule: what this head does not know is not its to remove. A study's id is never given out again, so
one that was submitted here, under the same identity, and is there no more was removed.
"""

from __future__ import annotations

from collections.abc import Mapping

from hermesd import wire
from hermesd.core.events import Checkpointed, DeviceFailed, FidelityKnown
from hermesd.core.file_events import CopyEvent, Looked
from hermesd.core.machine_events import Reclaimed, Yielded
from hermesd.core.model import NodeId, StudyId, TrialId
from hermesd.core.state import State
from hermesd.head.public import study_of
from hermesd.pb.hermes.v1 import node_pb2 as pb


def unneeded(holdings: pb.Holdings, state: State, taken: Mapping[StudyId, str]) -> list[TrialId]:
    """The trials to be forgotten; `taken` has the identity of every study that ever was."""
    return [
        held.trial
        for held in holdings.trials
        if (study := study_of(held.trial)) not in state.studies
        and taken.get(study) == held.identity
    ]


def foreign(state: State, identity: str, event: wire.NodeEvent) -> bool:
    """Whether the event is about a run of another study that bore this name at another head."""
    if isinstance(event, DeviceFailed | Yielded | Reclaimed | Looked) or not identity:
        return False
    trial = state.trials.get(event.trial if isinstance(event, CopyEvent) else event.run.trial)
    return trial is not None and state.studies[trial.spec.study].identity != identity


def its_own(state: State, node: NodeId, event: wire.NodeEvent) -> bool:
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
    if trial is None:
        return True
    if (device := trial.device_of(event.run)) is not None:
        return state.slots[device].device.node == node
    # Of a stay that was over long ago the core takes nothing but what might help the next one.
    return not isinstance(event, Checkpointed | FidelityKnown)
