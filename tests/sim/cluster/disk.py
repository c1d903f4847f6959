"""What survives on a node's disk: per trial the run's journal, outcomes and checkpoints."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from hermesd.core.model import Checkpoint, NodeId, RunId, TrialId
from hermesd.core.node.messages import Assignment, HostFact


@dataclass(slots=True)
class Folder:
    """One trial's folder."""

    node: NodeId
    trial: TrialId
    #: The run whose outcome the head may not have.
    run: Assignment | None = None
    last: Assignment | None = None
    parked: bool = False
    outcomes: dict[int, HostFact] = field(default_factory=dict)
    checkpoints: dict[str, Checkpoint] = field(default_factory=dict)
    damaged: set[str] = field(default_factory=set)

    def begin(self, assignment: Assignment) -> None:
        """Journal a run."""
        self.run = self.last = assignment
        self.parked = False

    def save(self, run: RunId, name: str, step: int, forks: Collection[int] = ()) -> Checkpoint:
        """Write a durable checkpoint; the two newest that verify are kept, and those at `forks`."""
        made = Checkpoint(f"{run.trial}@{name}", run.trial, run.attempt, step, "", 1, (self.node,))
        self.checkpoints[made.id] = made
        for old in [each for each in self.verified() if each.id != made.id][1:]:
            if old.step not in forks:
                del self.checkpoints[old.id]
        return made

    def retain(self, names: Collection[str]) -> None:
        """Remove all checkpoints but these."""
        for old in [each for each in self.checkpoints if each not in names]:
            del self.checkpoints[old]

    def give(self, name: str) -> Checkpoint | None:
        """A checkpoint as another node takes it: one that does not verify there is set aside."""
        if name in self.damaged:
            self.checkpoints.pop(name, None)
        return self.checkpoints.get(name)

    def verified(self) -> list[Checkpoint]:
        """The checkpoints that verify, the newest first: those of a later attempt are newer."""
        good = [each for each in self.checkpoints.values() if each.id not in self.damaged]
        return sorted(good, key=lambda each: (-each.attempt, -each.step))

    @property
    def newest(self) -> Checkpoint | None:
        return next(iter(self.verified()), None)

    def restorable(self, wanted: Checkpoint | None) -> Checkpoint | None:
        """The wanted checkpoint, or the one before that verifies."""
        if wanted is None:
            return None
        good = self.verified()
        before = (each for each in good if each.attempt <= wanted.attempt)
        older = (each for each in before if each.step <= wanted.step)
        return next((each for each in good if each.id == wanted.id), next(older, None))

    def damage(self) -> None:
        """The newest checkpoint rots."""
        if self.newest is not None:
            self.damaged.add(self.newest.id)
