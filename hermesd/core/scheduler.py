"""Decides who runs where next. Owns no clock: `now` comes in, `deadline` goes out.

A decision looks at the devices that are open (free, or with an occupant whose quantum is over),
walks the candidates in the order of their policies, and turns the difference between what is and
what should be into commands. Nothing in flight is ever decided about again: STARTING and
SUSPENDING trials are no candidates, and a run asked to suspend will suspend.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from hermesd.core.commands import Bind, Command, Kill, Launch, Release, Renew, Stop, Suspend
from hermesd.core.events import Event, NodeLost, PolicyFailed
from hermesd.core.model import (
    DeviceId,
    NodeId,
    Phase,
    Plugin,
    Quantum,
    StudyId,
    Tier,
    Time,
    TrialId,
)
from hermesd.core.placement import Placement, fits
from hermesd.core.policy import Policy
from hermesd.core.queue import Choice, StudyQueue
from hermesd.core.state import State
from hermesd.core.trial import Trial

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """How long a run may go on unheard, how long a node may take to end it, and a margin."""

    lease_seconds: float = 600.0
    grace_seconds: float = 120.0
    margin_seconds: float = 60.0

    @property
    def silence_seconds(self) -> float:
        return self.lease_seconds + self.grace_seconds + self.margin_seconds


class Explanation(NamedTuple):
    """Why a trial runs or waits."""

    summary: str
    ranking: tuple[tuple[TrialId, str, Phase], ...]
    last_decision: str
    policy: str


class Scheduler:
    """The decisions over one state; the only caller of policies and placements."""

    def __init__(
        self,
        state: State,
        make_policy: Callable[[Plugin], Policy],
        make_placement: Callable[[Plugin], Placement],
        lease: LeaseTerms = LeaseTerms(),
    ) -> None:
        self.state = state
        self.lease = lease
        self._make_policy = make_policy
        self._make_placement = make_placement
        self._queues: dict[StudyId, StudyQueue] = {}
        self._failures: list[Event] = []
        self._last: dict[TrialId, str] = {}
        state.dirty.update(dict.fromkeys(state.trials))

    def observe(self, event: Event, now: Time) -> None:
        """Fold an event in; raises `Rejected` (and changes nothing) if it is illegal."""
        self.state.apply(event, now)

    @property
    def deadline(self) -> Time | None:
        """When `due` will have something to say if nothing happens before; None: never."""
        return min(
            (silent + self.lease.silence_seconds for _, silent in self._silent()), default=None
        )

    def _silent(self) -> list[tuple[NodeId, Time]]:
        return [
            (node.id, node.silent_since)
            for node in self.state.nodes.values()
            if node.silent_since is not None and node.boot_id
        ]

    def due(self, now: Time) -> list[Event]:
        """Events that time alone causes; to be observed and journalled like any other."""
        limit = now - self.lease.silence_seconds
        return [NodeLost(node) for node, silent in self._silent() if silent <= limit]

    def failures(self) -> list[Event]:
        """The policies that raised in the last decision; folded in already."""
        return list(self._failures)

    # -- the decision -----------------------------------------------------------------------

    def decide(self, now: Time) -> list[Command]:
        """What to do now, folded in already. Deciding again says nothing new."""
        self._failures = []
        for study_id in [study for study in self._queues if study not in self.state.studies]:
            del self._queues[study_id]
        commands: list[Command] = []

        def issue(command: Command) -> None:
            self.state.apply(command, now)
            self._remember(command)
            commands.append(command)

        while True:
            dirty = [self.state.trials[t] for t in self.state.dirty if t in self.state.trials]
            self.state.dirty.clear()
            for trial in dirty:
                self._settle(trial, issue, now)
            self._bind(issue)
            for trial in dirty:
                self._note(self.state.trials[trial.id])
            if not self.state.dirty:
                self._assign(issue, now)
            if not self.state.dirty:
                break
        for node, run in list(self.state.strays):
            if self.state.nodes[node].connected:
                issue(Kill(run, node, "the head does not know this run"))
        for (trial_id, node), forget in list(self.state.releases.items()):
            if self.state.nodes[node].connected:
                issue(Release(trial_id, node, forget))
        return commands

    def _remember(self, command: Command) -> None:
        match command:
            case Launch(run, devices, _, reason):
                self._last[run.trial] = f"launched on {devices[0]}: {reason}"
            case Renew(run, _, _, reason):
                self._last[run.trial] = f"kept its device: {reason}"
            case Suspend(run, reason=reason) | Stop(run, reason=reason):
                self._last[run.trial] = f"asked to give its device back: {reason}"
            case Kill() | Bind() | Release():
                pass

    def _settle(self, trial: Trial, issue: Callable[[Command], None], now: Time) -> None:
        """What one trial needs whatever the others do."""
        study = self.state.studies[trial.spec.study]
        run = trial.run
        deadline = study.suspend_deadline_seconds
        if trial.phase.final:
            self._last.pop(trial.id, None)
            if trial.kept is not None and trial.kept.tier is Tier.PARK:
                node = self.state.slots[trial.kept.device].device.node
                self.state.releases.setdefault((trial.id, node), False)
        elif run is None or (trial.phase is Phase.SUSPENDING and isinstance(run.asked, Stop)):
            return
        elif trial.ending is not None:
            if not (trial.phase is Phase.SUSPENDING and run.asked):
                issue(Stop(run.id, deadline, trial.ending.reason))
        elif trial.phase is Phase.RUNNING and trial.paused:
            issue(Suspend(run.id, study.tier, deadline, None, trial.reason))
        elif trial.phase is Phase.RUNNING and run.milestone is not None and not run.expired:
            self._grow(trial, run.milestone, issue, now)

    def _grow(
        self, trial: Trial, percent: float, issue: Callable[[Command], None], now: Time
    ) -> None:
        """Answer a milestone with the longer quantum that the policy now gives."""
        assert trial.run is not None
        choice = self._choice(trial, now)
        if choice is None or not _longer(choice.quantum, trial.run.quantum):
            return
        reason = f"milestone: the loss fell by {percent:g} %"
        run = trial.run
        issue(Renew(run.id, run.grant + 1, choice.quantum, reason, extends=True))

    def _bind(self, issue: Callable[[Command], None]) -> None:
        """Give waiting trials without a home one, while there is room (placement `homes`)."""
        for study_id, study in self.state.studies.items():
            placement = self._placement(study.placement)
            if not placement.binds:
                continue
            load = dict.fromkeys(sorted(self.state.slots), 0)
            unbound = []
            for trial_id in self.state.active[study_id]:
                trial = self.state.trials[trial_id]
                if trial.home in load:
                    load[trial.home] += 1
                elif trial.phase is Phase.WAITING and not trial.paused:
                    unbound.append(trial)
            for trial in unbound:
                allowed = {
                    name: count
                    for name, count in load.items()
                    if fits(trial, study, self.state.slots[name].device, self._kept_on(trial))
                }
                home = placement.home(allowed)
                if home is None:
                    break
                load[home] += 1
                issue(Bind(trial.id, home))

    def _assign(self, issue: Callable[[Command], None], now: Time) -> None:
        """Fill the open devices: reserved ones first, then in the order of the policies."""
        state = self.state
        for device in sorted(state.free):
            reserved = state.slots[device].reserved
            trial = state.trials.get(reserved) if reserved else None
            if trial is None or not trial.candidate or not self._fits(trial, device):
                continue
            if trial.phase is Phase.WAITING and (choice := self._choice(trial, now)):
                self._launch(choice, device, issue)
        free = sorted(state.free)
        expired = [
            d for d in sorted(state.expired) if state.nodes[state.slots[d].device.node].connected
        ]
        if not free and not expired:
            return
        occupants = {self._occupant(device): device for device in expired}
        order = self._merged(len(free) + len(expired), occupants, now)
        position = {trial_id: index for index, trial_id in enumerate(order)}
        for trial_id in order:
            if not free and not occupants:
                break
            trial = state.trials[trial_id]
            if trial_id in occupants:
                del occupants[trial_id]
                if choice := self._choice(trial, now):
                    self._renew(choice, issue)
            elif self._available(trial):
                self._claim(trial, free, occupants, position, issue, now)
        for trial_id in occupants:
            self._give_back(trial_id, None, "held back by its policy", issue)

    def _claim(
        self,
        trial: Trial,
        free: list[DeviceId],
        occupants: dict[TrialId, DeviceId],
        position: dict[TrialId, int],
        issue: Callable[[Command], None],
        now: Time,
    ) -> None:
        """A waiting trial takes a free device, else the one of the least deserving occupant."""
        fitting = [device for device in free if self._fits(trial, device)]
        if fitting:
            if (choice := self._choice(trial, now)) is None:
                return
            placement = self._placement(self.state.studies[trial.spec.study].placement)
            slots = self.state.slots
            best = min(fitting, key=lambda d: (placement.cost(trial, slots[d].device), d))
            free.remove(best)
            self._launch(choice, best, issue)
            return
        victims = [t for t, device in occupants.items() if self._fits(trial, device)]
        if victims:
            victim = max(victims, key=lambda t: position.get(t, len(position)))
            del occupants[victim]
            words = self._queues[trial.spec.study].policy.words(trial)
            self._give_back(victim, trial.id, f"{trial.id} goes first: {words}", issue)

    def _launch(self, choice: Choice, device: DeviceId, issue: Callable[[Command], None]) -> None:
        trial = choice.trial
        kept = trial.kept
        parked = kept.run if kept and kept.tier is Tier.PARK else None
        checkpoint = trial.checkpoint.id if trial.checkpoint and parked is None else None
        issue(Launch(trial.next_run, (device,), choice.quantum, choice.words, parked, checkpoint))

    def _renew(self, choice: Choice, issue: Callable[[Command], None]) -> None:
        run = choice.trial.run
        assert run is not None
        issue(Renew(run.id, run.grant + 1, choice.quantum, f"still best: {choice.words}"))

    def _give_back(
        self,
        trial_id: TrialId,
        successor: TrialId | None,
        reason: str,
        issue: Callable[[Command], None],
    ) -> None:
        trial = self.state.trials[trial_id]
        study = self.state.studies[trial.spec.study]
        assert trial.run is not None
        issue(Suspend(trial.run.id, study.tier, study.suspend_deadline_seconds, successor, reason))

    # -- candidates ---------------------------------------------------------------------------

    def _occupant(self, device: DeviceId) -> TrialId:
        run = self.state.slots[device].run
        assert run is not None
        return run.trial

    def _available(self, trial: Trial) -> bool:
        """Whether the trial waits and no device is being freed for it."""
        if trial.phase is not Phase.WAITING or not trial.candidate:
            return False
        device = self.state.reserved.get(trial.id)
        if device is None:
            return True
        slot = self.state.slots[device]
        return (
            slot.run is None or not slot.healthy or not self.state.nodes[slot.device.node].connected
        )

    def _kept_on(self, trial: Trial) -> NodeId | None:
        kept = trial.kept
        if kept is None or kept.tier is not Tier.PARK:
            return None
        return self.state.slots[kept.device].device.node

    def _fits(self, trial: Trial, device: DeviceId) -> bool:
        study = self.state.studies[trial.spec.study]
        if self._placement(study.placement).binds and trial.home != device:
            return False
        return fits(trial, study, self.state.slots[device].device, self._kept_on(trial))

    def _placement(self, plugin: Plugin) -> Placement:
        return self._make_placement(plugin)

    def _merged(self, count: int, occupants: dict[TrialId, DeviceId], now: Time) -> list[TrialId]:
        """The studies' orders as one: the study with the fewest devices has the next turn."""
        orders: dict[StudyId, list[TrialId]] = {}
        shares = dict.fromkeys(self.state.studies, 0)
        for slot in self.state.slots.values():
            if slot.run is not None and slot.run.trial not in occupants:
                shares[self.state.trials[slot.run.trial].spec.study] += 1
        for study_id in list(self.state.studies):
            theirs = [self.state.trials[trial_id] for trial_id in occupants]
            mine = tuple(trial for trial in theirs if trial.spec.study == study_id)
            order = self._order(study_id, count, mine, now)
            if order:
                orders[study_id] = order[::-1]
        merged: list[TrialId] = []
        while orders:
            study_id = min(orders, key=lambda s: shares[s])
            merged.append(orders[study_id].pop())
            shares[study_id] += 1
            if not orders[study_id]:
                del orders[study_id]
        return merged

    # -- policies -----------------------------------------------------------------------------

    def _queue(self, study_id: StudyId) -> StudyQueue:
        queue = self._queues.get(study_id)
        if queue is None:
            policy = self._make_policy(self.state.policy_of(study_id))
            placement = self._placement(self.state.studies[study_id].placement)
            queue = self._queues[study_id] = StudyQueue(self.state, study_id, policy, placement)
        return queue

    def _ask(self, study_id: StudyId, question: Callable[[StudyQueue], Answer]) -> Answer:
        """Put a question to a study's policy; one that raises gives way to first in, first out."""
        try:
            return question(self._queue(study_id))
        except Exception as error:
            if study_id in self.state.fallen:
                raise
            event = PolicyFailed(study_id, f"{type(error).__name__}: {error}")
            self.state.apply(event, self.state.now)
            self._failures.append(event)
            del self._queues[study_id]
            return question(self._queue(study_id))

    def _order(
        self, study_id: StudyId, count: int, occupants: tuple[Trial, ...], now: Time
    ) -> list[TrialId]:
        return self._ask(study_id, lambda queue: queue.order(count, occupants, now))

    def _note(self, trial: Trial) -> None:
        self._ask(trial.spec.study, lambda queue: queue.refresh(trial))

    def _choice(self, trial: Trial, now: Time) -> Choice | None:
        return self._ask(trial.spec.study, lambda queue: queue.choice(trial, now))

    # -- questions of the shell ---------------------------------------------------------------

    def outstanding(self, node: NodeId) -> list[Command]:
        """What a node that said Hello again may not have received; sent, not journalled."""
        commands: list[Command] = []
        for device in self.state.nodes[node].devices:
            slot = self.state.slots[device]
            trial = self.state.trials[slot.run.trial] if slot.run else None
            run = trial.run if trial else None
            if trial is None or run is None:
                continue
            if trial.phase is Phase.STARTING:
                parked = trial.kept.run if trial.kept and trial.kept.tier is Tier.PARK else None
                checkpoint = trial.checkpoint.id if trial.checkpoint and not parked else None
                commands.append(
                    Launch(run.id, run.devices, run.quantum, "said again", parked, checkpoint)
                )
            elif run.asked is not None:
                commands.append(run.asked)
            elif run.grant:
                commands.append(Renew(run.id, run.grant, run.quantum, "said again"))
        return commands

    def next_up(self, study_id: StudyId, count: int, now: Time) -> tuple[TrialId, ...]:
        """The waiting trials that would run next, most deserving first."""
        order = self._order(study_id, count, (), now)
        waiting = [t for t in order if self.state.trials[t].phase is Phase.WAITING]
        return tuple(waiting[:count])

    def explain(self, trial_id: TrialId, now: Time) -> Explanation:
        """Why a trial runs or waits, in its policy's words."""
        trial = self.state.trials[trial_id]
        study_id = trial.spec.study
        ranking = self._ask(study_id, lambda queue: list(queue.ranking(now)))
        place = next((i for i, (t, _) in enumerate(ranking, 1) if t.id == trial_id), None)
        policy = self.state.policy_of(study_id).name
        if trial.phase.final:
            summary = f"{trial_id} is {trial.phase}: {trial.reason or 'the program ended well'}"
        elif trial.paused:
            summary = f"{trial_id} is paused by a person"
        else:
            words = next((w for t, w in ranking if t.id == trial_id), "not ranked")
            where = f" on {trial.run.devices[0]}" if trial.run else ""
            summary = (
                f"{trial_id} is {trial.phase}{where}; {policy} ranks it {place} of"
                f" {len(ranking)}: {words}"
            )
        rows = tuple((t.id, words, t.phase) for t, words in ranking)
        return Explanation(summary, rows, self._last.get(trial_id, ""), policy)


def _longer(new: Quantum, old: Quantum) -> bool:
    """Whether a quantum grants more seconds than another."""
    if old.seconds is None:
        return False
    return new.seconds is None or new.seconds > old.seconds
