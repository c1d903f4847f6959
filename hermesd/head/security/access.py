"""Which studies a caller may know about.

A user sees their own studies, an operator or an admin all of them. What callers may not see does
not exist for them: they get the same answers as if it never had.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hermesd.core.model import StudyId, TrialId, study_of
from hermesd.core.requirements import lacks
from hermesd.core.state import State
from hermesd.head.security.guard import caller
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.security.identity import Role

SEES_EVERYTHING = frozenset({Role.OPERATOR, Role.ADMIN})
# Instead of a reason that names trials which the caller does not see.
FAILED_THERE = "different trials failed there"


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asks."""

    #: Owns what they submit, and sees only that.
    user: str
    #: They see what others own, too.
    everything: bool

    def sees(self, state: State, study: StudyId) -> bool:
        """Whether a study that is there is there for the asker."""
        return self.everything or state.studies[study].owner == self.user

    def sees_trial(self, state: State, trial: TrialId) -> bool:
        """Whether a trial of a study that is there is there for the asker."""
        study = study_of(trial)
        return self.everything or (study in state.studies and self.sees(state, study))

    def studies(self, state: State) -> list[StudyId]:
        """The studies that there are for the asker, in the order of their submission."""
        return [study for study in state.studies if self.sees(state, study)]


def asker() -> Asker:
    """Who makes the call that is being answered, by their identity; nobody sees nothing."""
    identity = caller.get()
    if identity is None:
        return Asker("", everything=False)
    return Asker(identity.name, identity.role in SEES_EVERYTHING)


def event_for(
    asker: Asker, event: pb.PublicEvent, owners: Mapping[StudyId, str]
) -> pb.PublicEvent | None:
    """The event as the asker may see it; `owners` has those of removed studies, too."""
    if asker.everything:
        return event
    if event.study and owners.get(event.study) != asker.user:
        return None
    if event.successor and owners.get(study_of(event.successor)) != asker.user:
        event.successor = ""
    if event.kind == pb.PUBLIC_EVENT_KIND_QUARANTINED:
        event.reason = FAILED_THERE
    return event


def node_for(asker: Asker, view: pb.Node, state: State) -> pb.Node:
    """A node as the asker may see it: of others' trials only that a device has one."""
    if asker.everything:
        return view
    del view.warnings[:]
    for status in view.devices:
        if status.trial and not asker.sees_trial(state, status.trial):
            status.trial, status.others = "", True
        if status.reserved_for and not asker.sees_trial(state, status.reserved_for):
            status.reserved_for = ""
        mine = [each for each in status.strikes if asker.sees_trial(state, each.trial)]
        del status.strikes[:]
        status.strikes.extend(mine)
        if status.HasField("quarantine"):
            status.quarantine.reason = FAILED_THERE
    if view.HasField("quarantine"):
        view.quarantine.reason = FAILED_THERE
    for trials in (view.parked, view.stuck):
        kept = [trial for trial in trials if asker.sees_trial(state, trial)]
        del trials[:]
        trials.extend(kept)
    # Paths, names of environments and an installer's words, which may hold an index's password.
    needed = {need for study in asker.studies(state) for need in state.studies[study].needs}
    del view.lacking[:]
    view.lacking.extend(lacks(state, view.id, needed))
    theirs = [each for each in view.exclusions if each.study in asker.studies(state)]
    del view.exclusions[:]
    view.exclusions.extend(theirs)
    return view
