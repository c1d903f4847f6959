"""Every study's queue, and the border to policies: one that raises gives way to fifo."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

from hermesd.core.events import PolicyFailed
from hermesd.core.model import DeviceId, NodeId, Plugin, StudyId, Time, TrialId
from hermesd.core.placement import Placement, avoided, cramped, fits
from hermesd.core.plugins import raised_where
from hermesd.core.policy import Policy
from hermesd.core.queue import Choice, Sort, StudyQueue
from hermesd.core.sights import lacking
from hermesd.core.state import State
from hermesd.core.trial import Trial

Answer = TypeVar("Answer")


class Unanswered(Exception):
    """A policy raised when people asked; says what."""


class Failure(NamedTuple):
    """A policy that raised: what is journalled of it, and the error itself for its author."""

    event: PolicyFailed
    error: Exception


class Queues:
    """What the studies' policies and placements say, asked in one place."""

    def __init__(
        self,
        state: State,
        make_policy: Callable[[Plugin], Policy],
        make_placement: Callable[[Plugin], Placement],
    ) -> None:
        self.state = state
        self._make_policy = make_policy
        self._make_placement = make_placement
        self._queues: dict[StudyId, StudyQueue] = {}
        self._placements: dict[StudyId, Placement] = {}
        self._failures: list[Failure] = []
        self._pools: object = state.pools

    def take_failures(self) -> list[Failure]:
        """The policies that raised since the last call: folded in, and to be journalled."""
        taken, self._failures = self._failures, []
        return taken

    def forget_removed(self) -> None:
        """Drop the queues of studies that are gone; all if the pools are others now."""
        if self._pools is not self.state.pools:
            self._pools = self.state.pools
            self._queues.clear()
            self._placements.clear()
        for study_id in [study for study in self._queues if study not in self.state.studies]:
            del self._queues[study_id]
        for study_id in [study for study in self._placements if study not in self.state.studies]:
            del self._placements[study_id]

    def _queue(self, study_id: StudyId) -> StudyQueue:
        queue = self._queues.get(study_id)
        if queue is None:
            policy = self._make_policy(self.state.policy_of(study_id))
            placement = self.placement(study_id)
            queue = self._queues[study_id] = StudyQueue(self.state, study_id, policy, placement)
        return queue

    def ask(self, study_id: StudyId, question: Callable[[StudyQueue], Answer]) -> Answer:
        """Put a question to a study's policy; one that raises gives way to first in, first out."""
        try:
            return question(self._queue(study_id))
        except Exception as error:
            if study_id in self.state.fallen:
                raise
            event = PolicyFailed(study_id, raised_where(error))
            self.state.apply(event, self.state.now)
            self._failures.append(Failure(event, error))
            self._queues.pop(study_id, None)
            return question(self._queue(study_id))

    def peek(self, study_id: StudyId, question: Callable[[StudyQueue], Answer]) -> Answer:
        """Like `ask`, for people: a policy that raises changes nothing. Raises Unanswered."""
        try:
            return question(self._queue(study_id))
        except Exception as error:
            raise Unanswered(raised_where(error)) from error

    def order(
        self,
        study_id: StudyId,
        count: int,
        occupants: tuple[Trial, ...],
        eligible: Callable[[Trial], bool],
        now: Time,
    ) -> list[TrialId]:
        """See `StudyQueue.order`."""
        return self.ask(study_id, lambda queue: queue.order(count, occupants, eligible, now))

    def staying(self, study_id: StudyId, sorts: Iterable[Sort], count: int) -> list[TrialId]:
        """See `StudyQueue.staying`."""
        return self.ask(study_id, lambda queue: queue.staying(sorts, count))

    def note(self, trials: Iterable[Trial]) -> None:
        """Take note of trials that changed."""
        changed: defaultdict[StudyId, list[Trial]] = defaultdict(list)
        for trial in trials:
            changed[trial.spec.study].append(trial)
        for study_id, theirs in changed.items():
            # A queue that is made only now has seen them all.
            seen = [] if study_id not in self._queues else theirs
            self.ask(study_id, lambda queue, seen=seen: queue.refresh(seen))  # type: ignore[misc]

    def choice(self, trial: Trial, now: Time) -> Choice | None:
        """What the trial would get now; None if its policy leaves it out."""
        return self.ask(trial.spec.study, lambda queue: queue.choice(trial, now))

    def words(self, trial: Trial) -> str:
        """What its policy sees in the trial."""
        return self.ask(trial.spec.study, lambda queue: queue.words(trial))

    def placement(self, study_id: StudyId) -> Placement:
        """The study's placement."""
        placement = self._placements.get(study_id)
        if placement is None:
            placement = self._make_placement(self.state.placement_of(study_id))
            self._placements[study_id] = placement
        return placement

    def fits(self, trial: Trial, device: DeviceId) -> bool:
        """Whether the trial may be put on the device as far as its study is concerned."""
        study = self.state.studies[trial.spec.study]
        if self.placement(study.id).binds and trial.home != device:
            return False
        return self.takes(trial, device)

    def takes(self, trial: Trial, device: DeviceId) -> bool:
        """Whether the device can take the trial, whatever its home."""
        return self._takes(trial, device, self.state.parked_on(trial))

    def could_take(self, trial: Trial, device: DeviceId) -> bool:
        """Whether the device could take the trial if that was parked nowhere."""
        return self._takes(trial, device, None)

    def _takes(self, trial: Trial, device: DeviceId, node: NodeId | None) -> bool:
        """`node` is where the trial has to stay, if it has to."""
        study = self.state.studies[trial.spec.study]
        there = self.state.slots[device].device
        if not self.state.serves(there, study) or not fits(trial, study, there, node):
            return False
        state = self.state
        plain = not (trial.failures or state.quarantined or state.excluded)
        if plain and not cramped(trial, there) and not lacking(state, study, there.node):
            return True
        return not avoided(state, trial, device)
