"""Fills the open devices: those that are free, and those whose occupant's quantum is over.

Each pool is handled by itself, and its devices are divided among the studies that name it. A run on
a device that has moved to another pool is not handled here: it leaves (see `relocation`).
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeAlias

from hermesd.core.commands import Bind, Issue, Launch, Renew, Suspend
from hermesd.core.decide.gangs import Gangs, gathered
from hermesd.core.decide.queue import Choice, Queues
from hermesd.core.decide.relocation import Moves, Relocation, arriving, expected
from hermesd.core.decide.resizing import Resize, Resizing
from hermesd.core.fast_replace import replace
from hermesd.core.model import (
    DeviceId,
    NodeId,
    Phase,
    PoolId,
    Quantum,
    Study,
    StudyId,
    Tier,
    Time,
    TrialId,
    UserId,
)
from hermesd.core.placement import fewest_on, takes_one
from hermesd.core.quotas import DeviceQuotas
from hermesd.core.resume_points import IMAGE_GIVEN_UP, WIDTH_GIVEN_UP, to_restore
from hermesd.core.state import State
from hermesd.core.tables import Tables
from hermesd.core.trial import Run, Trial
from hermesd.core.widths import tier_of

# Whose turn it is: the studies' orders as one, fair to users, then to their studies.
#
# The user goes first who has used the least for their weight lately; of those who have used
# alike, the one who has fewer devices, or was given fewer in this decision. Of one user's studies
# those of the highest priority go first, of equals the one with the fewest devices, and of equals
# again the one whose last turn is longest ago: studies that share a device have it in turn. Only
# devices count that the study's next trial could use: or a trial with a single such device would
# wait for ever, as what its study has elsewhere is of no use to it. With one user alone no use is
# looked at.
#
# While devices come free, nobody waits longer than the half-life times the binary logarithm of
# all weights over one's own: one's use and that of those who are served instead, each of whom had
# less, fade alike meanwhile, and what is used is theirs.

# A device in hand counts as if it had been used for this part of the half-life: little beside what
# was used, and enough to tell who has more of them.
IN_HAND = 0.01
# A quantum that only a loss would end, where the node sees another loss.
OTHERWISE_ENDLESS_SECONDS = 30.0
# One that nothing would end, of a trial whose number of devices may change at its end.
RESIZED_SECONDS = 60.0


def merged(
    state: Tables,
    queues: Queues,
    orders: Mapping[StudyId, list[TrialId]],
    open_to: Collection[TrialId],
    now: float,
) -> list[TrialId]:
    """The trials in turn. `orders` has each study's, the most deserving first; whom a device is
    open to that they have already, `open_to`, counts when the turn comes."""
    if len(orders) <= 1:
        return [trial_id for order in orders.values() for trial_id in order]
    # What each study has, or is given in this decision: which device that is, is not known then.
    has: dict[StudyId, list[DeviceId | None]] = {study_id: [] for study_id in state.studies}
    for device, slot in state.slots.items():
        if slot.run is not None and slot.run.trial not in open_to:
            has[state.trials[slot.run.trial].spec.study].append(device)
    left: dict[UserId, dict[StudyId, list[TrialId]]] = {}
    for study_id, order in orders.items():
        left.setdefault(state.studies[study_id].owner, {})[study_id] = order[::-1]
    shares = {study_id: len(devices) for study_id, devices in has.items()}
    burdens = {user: _Burden(state, user, shares, now) for user in left} if len(left) > 1 else {}
    turns: list[TrialId] = []

    def claim(study_id: StudyId, order: list[TrialId]) -> tuple[int, int, Time]:
        """What a study's next trial has to say for itself; the least goes first."""
        trial, theirs = state.trials[order[-1]], has[study_id]
        latest: Iterable[DeviceId] = reversed(served := state.served.get(study_id, {}))
        if queues.is_confined(trial):
            theirs = [each for each in theirs if each is None or queues.could_reach(trial, each)]
            latest = (each for each in latest if queues.could_reach(trial, each))
        last = next(iter(latest), None)
        turn = -math.inf if last is None else served[last]
        return -state.studies[study_id].priority, len(theirs), turn

    claims: dict[StudyId, tuple[int, int, Time]] = {}
    while left:
        user = min(left, key=lambda u: burdens[u].now) if burdens else next(iter(left))
        theirs = left[user]
        for study_id, order in theirs.items() if len(theirs) > 1 else ():
            if study_id not in claims:
                claims[study_id] = claim(study_id, order)
        study_id = min(theirs, key=claims.__getitem__) if len(theirs) > 1 else next(iter(theirs))
        claims.pop(study_id, None)
        trial = state.trials[theirs[study_id].pop()]
        turns.append(trial.id)
        devices = state.studies[study_id].devices
        has[study_id] += trial.run.devices if trial.run is not None else [trial.home] * devices
        if burdens:
            burdens[user].add(devices)
        if not theirs[study_id]:
            del theirs[study_id]
            if not theirs:
                del left[user]
    return turns


class _Burden:
    """A user's use for their weight, as it grows while devices are given out."""

    def __init__(
        self, state: Tables, user: UserId, shares: Mapping[StudyId, int], now: float
    ) -> None:
        weight = state.terms_of(user).weight
        self._step = IN_HAND * state.half_life_seconds / weight
        held = sum(count for study, count in shares.items() if state.studies[study].owner == user)
        self.now = state.used_by(user, now) / weight + held * self._step

    def add(self, devices: int) -> None:
        """The user is given so many devices."""
        self.now += devices * self._step


# Whether trials may have one of the devices that are open in a decision.
#
# For each device some hundred trials come into question, and most of them are alike in all that
# decides this: of these only the first is looked into.

# What tells plain trials apart: their study, home, where they are parked, and whether on a GPU.
Likeness: TypeAlias = tuple[StudyId, DeviceId | None, NodeId | None, bool]


class Openings:
    """The devices that are open. Nothing that decides who may have them changes meanwhile."""

    def __init__(self, state: State, queues: Queues, devices: Sequence[DeviceId]) -> None:
        self._state = state
        self._queues = queues
        self._devices = devices
        slots = map(state.slots.__getitem__, devices)
        self._memory = min((slot.device.memory_bytes for slot in slots), default=0)
        self._known: dict[Likeness, bool] = {}

    def suit(self, trial: Trial) -> bool:
        """Whether one of the devices fits the trial."""
        alike = self._likeness(trial)
        if alike is None:
            return self._fit(trial)
        known = self._known.get(alike)
        if known is None:
            known = self._known[alike] = self._fit(trial)
        return known

    def _fit(self, trial: Trial) -> bool:
        return any(self._queues.fits(trial, device) for device in self._devices)

    def _likeness(self, trial: Trial) -> Likeness | None:
        """None if it is not plain, or may need more memory than one of the devices has."""
        use, kept = trial.use, trial.kept
        if use.memory_bytes > self._memory or use.device_memory_bytes > self._memory:
            return None
        if not self._queues.is_plain(trial):
            return None
        if kept is None or not kept.tier.in_process:
            return trial.spec.study, trial.home, None, False
        there = self._state.slots[kept.device].device
        return trial.spec.study, trial.home, there.node, there.owns_memory


# In order; a plain dict takes the longer to find its first key the more of them were deleted.
Free: TypeAlias = OrderedDict[DeviceId, None]


class Matching:
    """Who gets the open devices, in the order of the policies, as launches and suspends."""

    def __init__(self, state: State, queues: Queues) -> None:
        self.state = state
        self.queues = queues
        self._gangs = Gangs(state, queues, self._launch, self._give_back, self._goes_first)
        # None of these is launched before that time.
        self.held: frozenset[TrialId] = frozenset()
        self.held_until: Time = -math.inf

    def hold(self, until: Time) -> None:
        """Launch none of the unfinished trials that there are before that time."""
        active = (trial_id for active in self.state.active.values() for trial_id in active)
        self.held, self.held_until = frozenset(active), until

    def why_held(self, trial_id: TrialId, now: Time) -> str:
        """What to say of a trial that is held."""
        if trial_id not in self.held or now >= self.held_until:
            return ""
        seconds = f"for {self.held_until - now:.0f} s more"
        return f"; the head's state is an older copy, so it may be running somewhere {seconds}"

    def fill(self, issue: Issue, now: Time) -> None:
        """Fill the open devices: reserved ones first, then in the order of the policies."""
        if now >= self.held_until:
            self.held = frozenset()
        state, quotas = self.state, DeviceQuotas(self.state)
        reserved = sorted((device, trial) for trial, device in state.reserved.items())
        for device, trial_id in reserved:
            trial = state.trials.get(trial_id)
            if trial is None or device not in state.free or not self._ready(trial, now):
                continue
            if not self.queues.fits(trial, device):
                continue
            if fewest_on(state, trial, state.slots[device].device) != 1:
                continue  # a process of it ran out of memory since
            if quotas.over(trial):  # lowered since it was kept for the trial
                continue
            if choice := self.queues.choice(trial, now):
                self._launch(choice, (device,), issue)
        if state.gathering:
            self._gangs.tend(lambda trial: self._ready(trial, now), quotas, issue, now)
            quotas = DeviceQuotas(state)  # some devices may be kept no longer
        kept, until = gathered(state), self._gangs.held(now)
        free: dict[PoolId, Free] = {}
        coming = {device for device in state.reserved.values() if expected(state, device)}
        nodes, slots = state.nodes, state.slots
        for device in sorted(state.free):
            if device not in kept and device not in coming:
                pool = nodes[slots[device].device.node].pool
                if pool not in free:
                    free[pool] = OrderedDict()
                free[pool][device] = None
        occupants: dict[PoolId, dict[TrialId, DeviceId]] = {}
        for device in sorted(state.expired):
            trial_id, pool = self._occupant(device), self._pool(device)
            devices = self._devices(trial_id)
            if device != devices[0] or not kept.keys().isdisjoint(devices):
                continue
            if self._open(device) and self._study(trial_id).pool == pool:
                occupants.setdefault(pool, {})[trial_id] = device
        held: dict[PoolId, dict[DeviceId, Time]] = {}
        for device, time in until.items():
            held.setdefault(self._pool(device), {})[device] = time
        for pool in sorted(free.keys() | occupants.keys() | held.keys()):
            studies = [study.id for study in state.studies.values() if study.pool == pool]
            if studies:
                theirs, holds = occupants.get(pool, {}), held.get(pool, {})
                open_ones = free.get(pool, OrderedDict())
                self._share(studies, open_ones, theirs, holds, quotas, issue, now)

    def _share(
        self,
        studies: Sequence[StudyId],
        free: Free,
        occupants: dict[TrialId, DeviceId],
        held: dict[DeviceId, Time],
        quotas: DeviceQuotas,
        issue: Issue,
        now: Time,
    ) -> None:
        """Share the open devices of one pool among its studies. Those that are `held` until a time
        are open to whose quantum is over by then."""
        state = self.state
        moves = Moves(state, self.queues, [*free, *occupants.values()], studies)
        away = Relocation(state, self.queues, quotas, occupants, now)
        theirs = (device for trial_id in occupants for device in self._devices(trial_id))
        open_devices = [*free, *theirs, *held]
        openings = Openings(state, self.queues, open_devices)

        def eligible(trial: Trial) -> bool:
            if not self._available(trial, now):
                return False
            if openings.suit(trial):
                return takes_one(state, trial) or self._gangs.has_room(trial)
            return away.may(trial)

        mine = (*occupants, *moves.stays)
        studies = self._concerned(studies, open_devices, mine)
        order = self._merged(studies, len(open_devices), mine, eligible, now)
        position = {trial_id: index for index, trial_id in enumerate(order)}
        resizing = self._resizing(studies, order, free, occupants, quotas, eligible, now)
        for trial_id in order:
            if not free and not occupants and not moves.left and not held:
                break
            trial = state.trials[trial_id]
            if trial_id in occupants:
                del occupants[trial_id]
                if quotas.over(trial):
                    quotas.give(trial)
                    self._give_back(
                        trial_id, None, "more devices than the quota of its user", issue
                    )
                elif resizing and (resize := resizing.of(trial, free)):
                    self._resize(trial, resize, issue)
                elif move := self._gangs.elsewhere(trial, free):
                    self._resize(trial, move, issue)
                elif not self._move(trial, moves, free, occupants, position, issue) and (
                    choice := self.queues.choice(trial, now)
                ):
                    self._renew(choice, issue)
            elif trial_id in moves.stays:
                self._move(trial, moves, free, occupants, position, issue)
            elif (
                width := resizing.width(trial, free) if resizing else state.fewest(trial)
            ) > 1 or not takes_one(state, trial):
                if self._available(trial, now):
                    self._gangs.claim(trial, width, free, occupants, quotas, issue, now)
                    held.update(self._gangs.held(now))
            elif (trial_id in moves.displaced or self._available(trial, now)) and not (
                self._claim(trial, free, occupants, moves, away, quotas, position, issue, now)
            ):
                self._fill_in(trial, held, quotas, issue, now)
        for trial_id in list(moves.left):
            self._leave(trial_id, None, moves, issue)
        for trial_id in occupants:
            self._give_back(trial_id, None, "held back by its policy", issue)

        def parked(count: int, could: Callable[[Trial], bool]) -> list[TrialId]:
            return self._merged(
                studies, count, (), lambda each: self._available(each, now) and could(each), now
            )

        away.bring(studies, free, parked, issue)

    def _concerned(
        self, studies: Sequence[StudyId], devices: Sequence[DeviceId], have: Sequence[TrialId]
    ) -> list[StudyId]:
        """The studies of the trials in `have`, and those to whose trials a device may be of use."""
        theirs = {self._study(trial_id).id for trial_id in have}

        def is_concerned(study: StudyId) -> bool:
            return study in theirs or not all(self.queues.bars(study, each) for each in devices)

        return list(filter(is_concerned, studies))

    def _resizing(
        self,
        studies: Sequence[StudyId],
        order: Sequence[TrialId],
        free: Free,
        occupants: Mapping[TrialId, DeviceId],
        quotas: DeviceQuotas,
        eligible: Callable[[Trial], bool],
        now: Time,
    ) -> Resizing | None:
        """How wide trials are to be, where studies leave that open."""
        trials = self.state.trials
        elastic = [study for study in studies if self.state.studies[study].elastic]
        if not elastic:
            return None
        have = [t for study in elastic for t in self.state.active[study] if trials[t].run]
        ranked = self._merged(elastic, len(order), have, eligible, now)
        waiting = [trials[t] for t in order if self._available(trials[t], now)]
        resizing = Resizing(self.state, self.queues, quotas, now)
        resizing.plan([trials[each] for each in ranked], occupants, waiting, free)
        return resizing

    def _resize(self, trial: Trial, resize: Resize, issue: Issue) -> None:
        """A running trial is written down, to continue on more or fewer devices, or on others."""
        assert trial.run is not None
        deadline = trial.notice(self._study(trial.id).suspend_deadline_seconds)
        run, (width, reason) = trial.run.id, resize
        issue(Suspend(run, Tier.CHECKPOINT, deadline, None, reason, width))

    def _move(
        self,
        trial: Trial,
        moves: Moves,
        free: Free,
        occupants: dict[TrialId, DeviceId],
        position: dict[TrialId, int],
        issue: Issue,
    ) -> bool:
        """Have a running trial leave its device if an open one is better; says whether it does."""
        device = moves.better(trial, free, occupants, position)
        if device is None:
            return False
        if device in free:
            del free[device]
            moves.left[trial.id] = device
        else:
            victim = self._occupant(device)
            del occupants[victim]
            self._make_room(victim, trial, "a faster device", issue)
            moves.displaced.add(victim)
            moves.left[trial.id] = None
        return True

    def _leave(
        self, trial_id: TrialId, successor: TrialId | None, moves: Moves, issue: Issue
    ) -> None:
        """A trial that moves gives its device back, to a successor if it has one."""
        kept = moves.left.pop(trial_id)
        self._give_back(trial_id, successor, "it continues on a faster device", issue)
        if kept is not None:
            issue(Bind(trial_id, kept))

    def _claim(
        self,
        trial: Trial,
        free: Free,
        occupants: dict[TrialId, DeviceId],
        moves: Moves,
        away: Relocation,
        quotas: DeviceQuotas,
        position: dict[TrialId, int],
        issue: Issue,
        now: Time,
    ) -> bool:
        """A waiting trial takes a free device, else the one that another leaves for a better, else
        that of the least deserving occupant, be it on another node than where the trial is. Whether
        there was one."""
        trials = self.state.trials
        device = None
        if trial.run is None and not quotas.full(trial):
            device = self._cheapest(trial, free)
        if device is not None:
            if (choice := self.queues.choice(trial, now)) is not None:
                del free[device]
                quotas.take(trial, None)
                self._launch(choice, (device,), issue)
            return True
        for leaving in moves.left:
            run = trials[leaving].run
            if run is not None and self.queues.fits(trial, run.devices[0]):
                if trial.run is None and quotas.full(trial):
                    continue
                if trial.run is None:  # else it has one already, which it gives up
                    quotas.take(trial, None)
                self._leave(leaving, trial.id, moves, issue)
                return True
        if trial.run is not None:
            return True
        victims = [
            t
            for t, device in occupants.items()
            if quotas.shares(trial, trials[t]) and self.queues.fits(trial, device)
        ]
        others = (d for t in occupants for d in self._devices(t)[1:]) if not victims else ()
        if any(self.queues.fits(trial, device) for device in others):
            # One of several devices of an occupant, not that by which it is known.
            self._gangs.claim(trial, 1, free, occupants, quotas, issue, now)
            return trial.id in self.state.gathering
        if not victims and (victims := away.victims(trial, occupants)):
            away.write_down(trial, issue)
        if victims:
            victim = max(victims, key=lambda t: position.get(t, len(position)))
            del occupants[victim]
            quotas.take(trial, trials[victim])
            self._make_room(victim, trial, self.queues.words(trial), issue)
        return bool(victims)

    def _fill_in(
        self,
        trial: Trial,
        held: dict[DeviceId, Time],
        quotas: DeviceQuotas,
        issue: Issue,
        now: Time,
    ) -> None:
        """A waiting trial takes a free device that is kept for one of several, for as long as that
        has not all of its devices."""
        device = None if not held or quotas.full(trial) else self._cheapest(trial, held)
        if device is not None and (choice := self._gangs.within(trial, held[device], now)):
            del held[device]
            quotas.take(trial, None)
            self._launch(choice, (device,), issue)

    def _cheapest(self, trial: Trial, free: Iterable[DeviceId]) -> DeviceId | None:
        """The first of the cheapest free devices that the trial fits on; None if there is none."""
        study, slots = trial.spec.study, self.state.slots
        cost_of, facts = self.queues.placement(study).cost, self.state.facts[study]
        speeds = self.state.speeds(study)
        best: tuple[tuple[float, ...], DeviceId] | None = None
        for device in free:
            if self.queues.fits(trial, device):
                cost = cost_of(trial, slots[device].device, facts, speeds)
                if best is None or cost < best[0]:
                    best = cost, device
                if not any(cost):
                    break
        return best[1] if best else None

    def _launch(self, choice: Choice, devices: tuple[DeviceId, ...], issue: Issue) -> None:
        trial = choice.trial
        kept = trial.kept
        parked = kept.run if kept and kept.tier.in_process else None
        found = to_restore(self.state, trial) if parked is None else None
        checkpoint, words = found.id if found else None, choice.words
        if trial.reason.endswith((IMAGE_GIVEN_UP, WIDTH_GIVEN_UP)):
            words += f"; {trial.reason}"
        quantum = looked_at(choice.quantum, self._study(trial.id))
        issue(Launch(trial.next_run, devices, quantum, words, parked, checkpoint))

    def _renew(self, choice: Choice, issue: Issue) -> None:
        run = choice.trial.run
        assert run is not None
        study = self.state.studies[choice.trial.spec.study]
        quantum = looked_at(understood(choice.quantum, run, study), study)
        issue(Renew(run.id, run.grant + 1, quantum, f"still best: {choice.words}"))

    def _make_room(self, victim: TrialId, trial: Trial, words: str, issue: Issue) -> None:
        """A trial gives its device back for another; of another user's it is not told the name."""
        owner = self.state.owner_of(trial)
        if self.state.owner_of(self.state.trials[victim]) == owner:
            reason = f"{trial.id} goes first: {words}"
        else:
            reason = "a trial of another user goes first"
        self._give_back(victim, trial.id, reason, issue)

    def _give_back(
        self,
        trial_id: TrialId,
        successor: TrialId | None,
        reason: str,
        issue: Issue,
    ) -> None:
        trial = self.state.trials[trial_id]
        study = self.state.studies[trial.spec.study]
        assert trial.run is not None
        deadline = trial.notice(study.suspend_deadline_seconds)
        tier = tier_of(study, trial.run)
        issue(Suspend(trial.run.id, tier, deadline, successor, reason))

    # Candidates.

    def _pool(self, device: DeviceId) -> PoolId:
        return self.state.nodes[self.state.slots[device].device.node].pool

    def _open(self, device: DeviceId) -> bool:
        return self.state.nodes[self.state.slots[device].device.node].open

    def _study(self, trial_id: TrialId) -> Study:
        return self.state.studies[self.state.trials[trial_id].spec.study]

    def _devices(self, trial_id: TrialId) -> tuple[DeviceId, ...]:
        run = self.state.trials[trial_id].run
        return run.devices if run is not None else ()

    def _occupant(self, device: DeviceId) -> TrialId:
        run = self.state.slots[device].run
        assert run is not None
        return run.trial

    def _ready(self, trial: Trial, now: Time) -> bool:
        """Whether the trial waits and may be launched now."""
        waits = trial.phase is Phase.WAITING and trial.candidate and trial.not_before <= now
        return waits and trial.id not in self.held

    def _available(self, trial: Trial, now: Time) -> bool:
        """Whether the trial is ready and no device is being freed for it."""
        if not self._ready(trial, now) or trial.id in self.state.gathering:
            return False
        device = self.state.reserved.get(trial.id)
        if device is None:
            return True
        slot = self.state.slots[device]
        if not slot.sound or not self._open(device):
            return True
        return slot.run is None and not arriving(self.state, trial)

    def _goes_first(
        self,
        trial: Trial,
        device: DeviceId,
        open_to: Collection[TrialId],
        quotas: DeviceQuotas,
        now: Time,
    ) -> bool:
        """Whether the trial would have the device if that were open, of all that wait; devices that
        are `open_to` their occupants are in nobody's hand."""
        state, mine = self.state, trial.spec.study

        def may(study: Study) -> bool:
            fewest = 1 if study.elastic else study.devices
            return quotas.left_of(study.owner) >= fewest and not self.queues.bars(study.id, device)

        studies = [each.id for each in state.studies.values() if each.id == mine or may(each)]

        def could(each: Trial) -> bool:
            if each is trial:
                return True
            if not self._available(each, now) or not self.queues.fits(each, device):
                return False
            if quotas.left(each) < state.fewest(each):
                return False
            # With as many others beside this one: what it could have elsewhere takes none here.
            return takes_one(state, each) or self.queues.could_reach(each, device)

        orders = self._orders(studies, 1, (), could, now)
        return merged(state, self.queues, orders, open_to, now)[:1] == [trial.id]

    def _merged(
        self,
        studies: Sequence[StudyId],
        count: int,
        have: Sequence[TrialId],
        eligible: Callable[[Trial], bool],
        now: Time,
    ) -> list[TrialId]:
        """The studies' orders as one; see `turns`. Those in `have` are on a device already."""
        orders = self._orders(studies, count, have, eligible, now)
        return merged(self.state, self.queues, orders, set(have), now)

    def _orders(
        self,
        studies: Sequence[StudyId],
        count: int,
        have: Sequence[TrialId],
        eligible: Callable[[Trial], bool],
        now: Time,
    ) -> dict[StudyId, list[TrialId]]:
        """Each study's most deserving trials, in order."""
        mine: dict[StudyId, list[Trial]] = {}
        for trial in (self.state.trials[trial_id] for trial_id in have):
            mine.setdefault(trial.spec.study, []).append(trial)
        orders: dict[StudyId, list[TrialId]] = {}
        for study_id in studies:
            theirs = tuple(mine.get(study_id, ()))
            order = self.queues.order(study_id, count, theirs, eligible, now)
            if order:
                orders[study_id] = order
        return orders


def understood(quantum: Quantum, run: Run, study: Study) -> Quantum:
    """A quantum as the node of a run can judge it: without losses once those it sees are of another
    metric than the one that policies read since."""
    if not study.signal_chosen or run.reads == study.reads:
        return quantum
    seconds = quantum.seconds
    if seconds is None and quantum.until_step is None and quantum.loss is not None:
        seconds = OTHERWISE_ENDLESS_SECONDS
    return replace(quantum, seconds=seconds, loss=None, milestones=())


def looked_at(quantum: Quantum, study: Study) -> Quantum:
    """A quantum with an end, if the trial may then continue on more devices, or fewer."""
    return (
        replace(quantum, seconds=RESIZED_SECONDS) if study.elastic and quantum.endless else quantum
    )
