"""Decides who runs where next. Owns no clock: `now` comes in, `deadline` goes out.

A decision looks at the devices that are open (free, or with an occupant whose quantum is over),
walks the candidates in the order of their policies, and turns the difference between what is and
what should be into commands. Nothing in flight is ever decided about again: STARTING and
SUSPENDING trials are no candidates, and a run asked to suspend will suspend.
"""

from __future__ import annotations

import gc
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain, filterfalse, islice, zip_longest

from hermesd.core.commands import (
    Bind,
    Command,
    Copy,
    Drop,
    Gather,
    Issue,
    Kill,
    Launch,
    Look,
    Miss,
    Quarantine,
    Release,
    Renew,
    Stop,
    Suspend,
    Trust,
    WriteDown,
)
from hermesd.core.decide.binding import bind
from hermesd.core.decide.explanation import Explanation, Question, explain, left_idle, why_paused
from hermesd.core.decide.gangs import gathered, lacks_image, lacks_width, misses_width, rooms
from hermesd.core.decide.matching import Matching, understood
from hermesd.core.decide.queue import PolicyError, Queues, Unanswered
from hermesd.core.decide.relocation import vacate, write_down_first
from hermesd.core.decide.replication import spread
from hermesd.core.events import (
    Event,
    ImageGivenUp,
    NodeJoined,
    NodeLost,
    RunEvent,
    WidthGivenUp,
)
from hermesd.core.failures import HALF_LIFE_SECONDS, SUSPECT, against, lasting, met, struck, weight
from hermesd.core.invariants import check_trials
from hermesd.core.model import (
    DeviceId,
    NodeId,
    Phase,
    Plugin,
    PoolId,
    Quantum,
    StudyId,
    Tier,
    Time,
    TrialId,
    UserId,
)
from hermesd.core.node.messages import Upcoming
from hermesd.core.placement import Placement
from hermesd.core.policy import Exploit, Exploration, Policy
from hermesd.core.requirements import look
from hermesd.core.resume_points import (
    PATIENCE_SECONDS,
    goes_on_from_image,
    hopeless_image,
    image_patience_seconds,
    width_patience_seconds,
)
from hermesd.core.state import State
from hermesd.core.tables import NOTHING, Ahead
from hermesd.core.trial import Strike, Trial
from hermesd.core.widths import tier_of

# What a node may have missed of what it was told: said again as it comes back, not
# journaled.


def outstanding(state: State, node: NodeId) -> list[Command]:
    """What a node that said Hello again may not have received."""
    commands: list[Command] = []
    for device in state.nodes[node].devices:
        slot = state.slots[device]
        trial = state.trials[slot.run.trial] if slot.run else None
        run = trial.run if trial else None
        if trial is None or run is None or device != run.devices[0]:
            continue  # of several devices, it is said once
        if trial.phase is Phase.STARTING:
            parked = trial.kept.run if trial.kept and trial.kept.tier.in_process else None
            checkpoint = trial.checkpoint.id if trial.checkpoint and not parked else None
            commands.append(
                Launch(run.id, run.devices, run.quantum, "said again", parked, checkpoint)
            )
        elif run.asked is not None:
            commands.append(run.asked)
        elif run.grant:
            commands.append(Renew(run.id, run.grant, run.quantum, "said again"))
    return commands + _unwritten(state, node)


def _unwritten(state: State, node: NodeId) -> list[Command]:
    """What the node was asked to write down, and has not yet."""
    known = (state.trials[t] for active in state.active.values() for t in active)
    kept = [trial.kept for trial in known if state.parked_on(trial) == node]
    return [WriteDown(each.run, node) for each in kept if each is not None and each.leaving]


# Who runs next, as things are: what nodes prepare for while others train.
#
# Nothing depends on it being right. Studies take turns here, which is how devices come to be
# shared among them; the trials of one come in its policy's order.

# How many more than there are devices are looked at: the others will wait long.
AHEAD = 64


def upcoming(state: State, queues: Queues, now: Time) -> dict[NodeId, Upcoming]:
    """For each node that keeps waiting trials, these, the one that will run soonest first.

    A trial has the next turn if it is among the first of its pool, one for each device, or the
    first of those that wait for its home.
    """
    leaving = {node.id for node in state.nodes.values() if node.leaving}
    sound = [s.device.node for s in state.slots.values() if s.sound]
    devices = Counter(state.nodes[node].pool for node in sound if node not in leaving)
    seen: Counter[PoolId] = Counter()
    orders = [
        _order(queues, study.id, devices[study.pool] + AHEAD, now)
        for study in state.studies.values()
    ]
    first: dict[NodeId, list[TrialId]] = defaultdict(list)
    later: dict[NodeId, list[TrialId]] = defaultdict(list)
    homes = set()
    for trial_id in chain.from_iterable(zip_longest(*orders)):
        trial = state.trials.get(trial_id) if trial_id is not None else None
        if trial is None or trial.phase is not Phase.WAITING:
            continue
        pool = state.studies[trial.spec.study].pool
        if queues.placement(trial.spec.study).binds:
            has_turn = trial.home not in homes
            homes.add(trial.home)
        else:
            has_turn = seen[pool] < devices[pool]
        seen[pool] += 1
        if (node := _keeper(state, trial)) is not None and node not in leaving:
            (first if has_turn else later)[node].append(trial.id)
    keepers = [*first, *(node for node in later if node not in first)]
    return {node: Upcoming((*first[node], *later[node]), len(first[node])) for node in keepers}


def _order(queues: Queues, study: StudyId, count: int, now: Time) -> list[TrialId]:
    def ready(trial: Trial) -> bool:
        return trial.candidate and trial.not_before <= now

    return queues.peek(study, lambda queue: queue.order(count, (), ready, now)) or []


def _keeper(state: State, trial: Trial) -> NodeId | None:
    """The node that has the trial in memory or, as far as is known, its files."""
    slot = state.slots.get(trial.kept.device) if trial.kept is not None else None
    return slot.device.node if slot is not None else None


# A stretch of work in which the garbage collector does not look for cycles.
#
# A decision over very many trials makes very many values and hardly a cycle: the collector would
# walk through all of the state again and again, for a third of the time.


@contextmanager
def undisturbed() -> Iterator[None]:
    """No collection within; afterward as it was before."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


# Which places are kept from trials for now, by the strikes against them.
#
# What is decided is a command, so that a replay needs no half-life; asked again when the
# ledger has changed or a time is up. A quarantine is no more than a preference: see
# `placement.avoided`.

# Of the same strikes the end is always the same, but for what floating point makes of it.
JITTER_SECONDS = 1.0
NAMED = 3


def judge(state: State, half_life_seconds: float, now: Time, issue: Issue) -> None:
    """Put suspect places in quarantine, and take out those that are suspect no more."""
    where_met = met(state)
    for place in dict.fromkeys((*struck(state), *state.quarantined)):
        strikes = against(state, place, where_met)
        weighs = weight(strikes, now, half_life_seconds)
        until = now + lasting(weighs, half_life_seconds)
        before = state.quarantined.get(place)
        if before is None and weighs < SUSPECT:
            continue
        if before is not None and until <= now:
            issue(Trust(place, "what failed there was not its fault"))
        elif before is None or abs(until - before.until) > JITTER_SECONDS:
            issue(Quarantine(place, until, _words(strikes)))


def release(state: State, now: Time, issue: Issue) -> None:
    """Take those places out whose time is up."""
    for place in [place for place, kept in state.quarantined.items() if kept.until <= now]:
        issue(Trust(place, "its strikes have faded"))


def _words(strikes: dict[TrialId, Strike]) -> str:
    """Who failed there, and of what, the latest last."""
    alike: dict[str, list[TrialId]] = {}
    for trial, strike in sorted(strikes.items(), key=lambda item: item[1].at):
        alike.setdefault(strike.detail or strike.error_kind, []).append(trial)
    return "; ".join(
        f"{_named(trials)} failed there: {error}" for error, trials in list(alike.items())[-NAMED:]
    )


def _named(trials: list[TrialId]) -> str:
    more = f" and {len(trials) - NAMED} more" if len(trials) > NAMED else ""
    return f"{', '.join(trials[:NAMED])}{more}"


# For its end, a program that has gone silent has this long to come to a boundary, or the time of
# so many of its iterations.
SILENT_STOP_SECONDS = 5.0
SILENT_STOP_STEPS = 2


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """How long a run may go on unheard, how long a node may take to end it, and a margin."""

    lease_seconds: float = 600.0
    grace_seconds: float = 120.0
    margin_seconds: float = 60.0

    @property
    def silence_seconds(self) -> float:
        return self.lease_seconds + self.grace_seconds + self.margin_seconds


class Scheduler:
    """The decisions over one state; the only caller of policies and placements."""

    def __init__(
        self,
        state: State,
        make_policy: Callable[[Plugin], Policy],
        make_placement: Callable[[Plugin], Placement],
        lease: LeaseTerms = LeaseTerms(),
        half_life_seconds: float = HALF_LIFE_SECONDS,
        none_lost_before: Time = -math.inf,
        at_once: int | None = None,
    ) -> None:
        self.state = state
        self.lease = lease
        self.half_life_seconds = half_life_seconds
        self.none_lost_before = none_lost_before
        self._judged: object = None
        # Something has happened by which a node may have to be asked for what studies require.
        self._look = True
        # The trials that wait for as many devices as no node has.
        self._lacking: dict[TrialId, None] = {}
        # Those whose image fits no node.
        self._unfit: dict[TrialId, None] = {}
        # When the first decision was, and what was missed before: nodes come back by and by.
        self._began: Time | None = None
        self._missed_before = set(state.missing)
        # The trials that wait, as of their last change: without any there is little to decide.
        self._waiting: dict[TrialId, None] = {}
        #: Trials that wait for one of the next decisions: each takes up to `at_once` of them, if
        #: that is given.
        self.arriving: dict[TrialId, None] = {}
        self._at_once = at_once
        self._is_behind = False
        self._queues = Queues(state, make_policy, make_placement, self.arriving)
        self._assignment = Matching(state, self._queues)
        self._last: dict[TrialId, str] = {}
        self._later: dict[TrialId, Time] = {}
        self._copy_at: Time | None = None
        state.dirty.update(dict.fromkeys(state.trials))
        state.ended.clear()  # a replay names the studies of all trials that ever ended

    def observe(self, event: Event, now: Time, ahead: Ahead = NOTHING) -> None:
        """Fold an event in, as `State.apply` does: what was found `ahead` of it holds. Raises
        `Rejected` (and changes nothing) if it is illegal."""
        was_cut_off = isinstance(event, NodeJoined) and self._is_cut_off()
        self.state.apply(event, now, ahead)
        # What is said of a run adds nothing to require, and is most of all that is said.
        self._look |= not isinstance(event, RunEvent)
        if was_cut_off:
            self.none_lost_before = max(self.none_lost_before, now + self.lease.silence_seconds)

    @property
    def deadline(self) -> Time | None:
        """When to ask `due` and `decide` again if nothing happens before; None: never."""
        losses = [lost for _, lost in self._losses()]
        ends = [kept.until for kept in self.state.quarantined.values()]
        copies = [] if self._copy_at is None else [self._copy_at]
        held = [self._assignment.held_until] if self._assignment.held else []
        given_up = [at for _, at in (*self._hopeless(), *self._too_wide())]
        times = [*losses, *self._later.values(), *ends, *copies, *held, *given_up]
        return min(times, default=None)

    def hold(self, until: Time) -> None:
        """Launch no unfinished trial that there is before that time: it may run somewhere."""
        self._assignment.hold(until)

    def _losses(self) -> list[tuple[NodeId, Time]]:
        """The nodes that are silent, and when each of them counts as lost."""
        silence = self.lease.silence_seconds
        silent = [] if self._is_cut_off() else self._silent()
        return [(node, max(since + silence, self.none_lost_before)) for node, since in silent]

    def _hopeless(self) -> list[tuple[TrialId, Time]]:
        """The trials whose image fitted no node at the last decision, and when each of them goes on
        without it."""
        trials = self.state.trials
        return [
            (trial_id, self._until(trial_id, "image", image_patience_seconds(trials[trial_id])))
            for trial_id in self._unfit
            if (trial_id, "image") in self.state.missing
        ]

    def _too_wide(self) -> list[tuple[TrialId, Time]]:
        """The trials that waited at the last decision for more devices than any node has, and when
        each continues on fewer."""
        trials = self.state.trials
        return [
            (trial_id, self._until(trial_id, "width", width_patience_seconds(trials[trial_id])))
            for trial_id in self._lacking
            if (trial_id, "width") in self.state.missing
        ]

    def _until(self, trial_id: TrialId, what: str, patience_seconds: float) -> Time:
        """When a trial waits no longer for what it misses."""
        began = -math.inf if self._began is None else self._began
        since = self.state.missing[trial_id, what]
        return max(since + patience_seconds, began + PATIENCE_SECONDS)

    def _lack_width(self, trial_ids: Iterable[TrialId]) -> list[TrialId]:
        """Those of these trials that lack the number of devices that their checkpoint is of."""
        state, roomy = self.state, rooms(self.state)
        trials = [state.trials[trial_id] for trial_id in trial_ids]
        return [each.id for each in trials if lacks_width(state, self._queues, each, roomy)]

    def _lack_image(self, trial_ids: Iterable[TrialId]) -> list[TrialId]:
        """Those of these trials that wait for a node that their image fits, and there is none."""
        state, demanding = self.state, self.state.demanding
        waiting = [state.trials[trial_id] for trial_id in trial_ids if trial_id in demanding]
        return [each.id for each in waiting if lacks_image(state, self._queues, each)]

    def _silent(self) -> list[tuple[NodeId, Time]]:
        return [
            (node.id, node.silent_since)
            for node in self.state.nodes.values()
            if node.silent_since is not None and node.boot_id
        ]

    def _is_cut_off(self) -> bool:
        """Whether all of several nodes are silent: rather is it we who are not heard. Their runs
        could go on nowhere; when the first is back, the others are given their time again."""
        return not any(node.connected for node in self.state.nodes.values()) and (
            len(self._silent()) > 1
        )

    def due(self, now: Time) -> list[Event]:
        """Events that time alone causes; to be observed and journaled like any other. There may be
        more once these are: what a lost node leaves decides what else is."""
        if lost := [NodeLost(node) for node, at in self._losses() if at <= now]:
            return [*lost]
        unfit = self._lack_image(trial for trial, at in self._hopeless() if at <= now)
        images = dict.fromkeys(unfit)
        narrower = self._lack_width(trial for trial, at in self._too_wide() if at <= now)
        trials = self.state.trials
        images |= {trial: None for trial in narrower if goes_on_from_image(trials[trial])}
        widths = [WidthGivenUp(trial) for trial in narrower if trial not in images]
        return [*map(ImageGivenUp, images), *widths]

    def take_failures(self) -> list[PolicyError]:
        """Policies that raised since the last call: folded in already, to be journaled."""
        return self._queues.take_failures()

    # The decision.

    def decide(self, now: Time) -> list[Command]:
        """What to do now, folded in already. Deciding again says nothing new.

        Raises:
            InvariantBroken: a trial that changed contradicts the rest; nothing may be written.
        """
        with undisturbed():
            return self._decide(now)

    def _decide(self, now: Time) -> list[Command]:
        if self._began is None:
            self._began = now
        self._queues.forget_removed()
        self._later = {t: time for t, time in self._later.items() if time > now}
        commands: list[Command] = []
        changed: dict[TrialId, None] = {}

        def issue(command: Command) -> None:
            self.state.apply(command, now)
            self._remember(command)
            commands.append(command)

        release(self.state, now, issue)
        if self._judged is not self.state.strikes:
            self._judged = self.state.strikes
            judge(self.state, self.half_life_seconds, now, issue)
        self._put_off()
        while True:
            changed |= self.state.dirty
            dirty = list(filter(None, map(self.state.trials.get, self.state.dirty)))
            self.state.dirty.clear()
            for trial in dirty:
                # Of very many trials at once most have never been anywhere.
                if trial.run is not None or trial.kept is not None or trial.phase.final:
                    self._settle(trial, issue, now)
                    vacate(self.state, self.state.trials[trial.id], issue)
                if trial.misfortunes or self._later:
                    self._wait(trial, now)
            bind(self.state, self._queues, issue, now)
            if self.state.dirty:
                dirty = [self.state.trials[trial.id] for trial in dirty]
            self._queues.note(dirty)
            self._note_waiting(dirty)
            if not self.state.dirty and self._is_open():
                self._assignment.fill(issue, now)
            if not self.state.dirty:
                break
        for node, run in list(self.state.strays):
            if self.state.nodes[node].connected:
                issue(Kill(run, node, "the head does not know this run"))
        self._release_some(issue)
        # Which nodes an image fits changes by what is said of nodes, and by what is held of them.
        has_moved = self._look or any(isinstance(each, Quarantine | Trust) for each in commands)
        asked = self.state.demanding if has_moved else changed | self.state.dirty | self._unfit
        self._unfit = dict.fromkeys(self._lack_image(asked))
        self._note_missing("image", self._unfit, issue)
        if self._look:
            look(self.state, issue)
            self._look = False
        self._lacking = dict.fromkeys(self._lack_width(self.state.demanding))
        self._note_missing("width", self._lacking, issue)
        self._copy_at = spread(self.state, now, issue)
        check_trials(self.state, changed | self.state.dirty)
        return commands

    def _note_missing(self, what: str, lacking: Iterable[TrialId], issue: Issue) -> None:
        """Note since when trials miss what no node has, so that a head that is restarted knows it.

        What nothing else could take either misses nothing. Of what was missed before the restart
        that is not said until the first node is back that could.
        """
        state, roomy = self.state, rooms(self.state)
        missing = dict.fromkeys(lacking)
        for trial_id in missing:
            self._missed_before.discard((trial_id, what))
            if (trial_id, what) not in state.missing:
                issue(Miss(trial_id, what))
        for trial_id in [each for each, missed in state.missing if missed == what]:
            if trial_id in missing:
                continue
            trial = state.trials[trial_id]
            is_missed = (trial_id, what) in self._missed_before and (
                hopeless_image(state, trial)
                if what == "image"
                else misses_width(state, self._queues, trial, roomy)
            )
            if not is_missed:
                issue(Miss(trial_id, what, found=True))

    def _put_off(self) -> None:
        """Leave all but some of very many trials that were taken over, or have never been anywhere,
        to the next decisions: no queue has the new ones, nor gives out others that have changed."""
        state, dirty, count = self.state, self.state.dirty, self._at_once
        taken, state.taken = state.taken, {}
        if count is None:
            dirty.update(taken)
            return
        waited_for = (*state.reserved, *state.gathering)
        dirty.update({each: None for each in waited_for if each in taken})
        self.arriving.update(taken)
        if len(dirty) > count:
            changed = filter(None, map(state.trials.get, dirty))
            later = {trial.spec.id: None for trial in changed if not trial.attempt}
            for each in waited_for:
                later.pop(each, None)
            rest = dict.fromkeys(filterfalse(later.__contains__, dirty))
            self.arriving.update(later)
            dirty.clear()
            dirty.update(rest)
        for trial_id in list(islice(self.arriving, count)):
            del self.arriving[trial_id]
            if trial_id in state.trials:
                dirty[trial_id] = None
            else:
                self._waiting.pop(trial_id, None)

    def _release_some(self, issue: Issue) -> None:
        """Tell nodes what they may let go of; of very much only some at a time, the latest first:
        what is parked of a trial that has just ended is in the memory of a device that is given to
        others, and is not to wait until a large study is forgotten."""
        state = self.state
        latest = reversed(state.releases.items())
        heard = (each for each in latest if state.nodes[each[0][1]].connected)
        some = list(islice(heard, self._at_once))
        self._is_behind = len(some) == self._at_once
        for (trial_id, node), forget in reversed(some):
            if not forget:
                write_down_first(state, state.trials[trial_id], node, issue)
            issue(Release(trial_id, node, forget))

    @property
    def is_behind(self) -> bool:
        """Whether there is more to decide at once than a decision takes."""
        return bool(self.arriving) or self._is_behind

    def _note_waiting(self, trials: Iterable[Trial]) -> None:
        for trial in trials:
            if trial.phase is Phase.WAITING:
                self._waiting[trial.id] = None
            else:
                self._waiting.pop(trial.id, None)

    def _is_open(self) -> bool:
        """Whether a device could change hands: somebody waits for one, is to leave one, is held
        back until a time, or may be better off on a faster one."""
        state, is_holding = self.state, bool(self._assignment.held)
        if self._waiting or state.expired or state.reserved or state.gathering or is_holding:
            return True
        return any(active and state.speeds(study).unequal for study, active in state.active.items())

    def _remember(self, command: Command) -> None:
        match command:
            case Launch(run, devices, _, reason):
                self._last[run.trial] = f"launched on {', '.join(devices)}: {reason}"
            case Renew(run, _, _, reason):
                self._last[run.trial] = f"kept its device: {reason}"
            case Suspend(run, reason=reason) | Stop(run, reason=reason):
                self._last[run.trial] = f"asked to give its device back: {reason}"
            case WriteDown(run, node):
                self._last[run.trial] = f"to be written down on {node}, to go on elsewhere"
            case Gather(trial_id, devices) if devices:
                self._last[trial_id] = f"is to have {', '.join(devices)} once all are free"
            case Kill() | Bind() | Gather() | Miss() | Quarantine() | Trust() | Release():
                pass
            case Copy() | Drop() | Look():
                pass

    def _settle(self, trial: Trial, issue: Issue, now: Time) -> None:
        """What one trial needs whatever the others do."""
        run = trial.run
        if trial.phase.final:
            self._last.pop(trial.id, None)
        if run is None or (trial.phase is Phase.SUSPENDING and isinstance(run.asked, Stop)):
            return
        study = self.state.studies[trial.spec.study]
        deadline = trial.notice(study.suspend_deadline_seconds)
        if trial.ending is not None:
            if not (trial.phase is Phase.SUSPENDING and run.asked):
                issue(Stop(run.id, _patience(trial, deadline), trial.ending.reason))
        elif trial.phase is Phase.RUNNING and trial.paused:
            # What rides on it goes on from where it is.
            tier = tier_of(study, run)
            tier = Tier.CHECKPOINT if trial.id in self.state.riding.riders else tier
            issue(Suspend(run.id, tier, deadline, None, why_paused(trial, study)))
        elif trial.phase is Phase.RUNNING and run.milestone is not None and not run.expired:
            kept = gathered(self.state)
            if not any(device in kept for device in run.devices):
                self._grow(trial, run.milestone, issue, now)

    def _wait(self, trial: Trial, now: Time) -> None:
        """Note when a trial that its machines failed is to be thought of again."""
        if trial.phase is Phase.WAITING and trial.not_before > now:
            self._later[trial.id] = trial.not_before
        else:
            self._later.pop(trial.id, None)

    def _grow(self, trial: Trial, percent: float, issue: Issue, now: Time) -> None:
        """Answer a milestone with the longer quantum that the policy now gives."""
        assert trial.run is not None
        choice = self._queues.choice(trial, now)
        if choice is None or not _longer(choice.quantum, trial.run.quantum):
            return
        reason = f"milestone: the loss fell by {percent:g} %"
        run = trial.run
        quantum = understood(choice.quantum, run, self.state.studies[trial.spec.study])
        issue(Renew(run.id, run.grant + 1, quantum, reason, extends=True))

    # Questions of the shell.

    def outstanding(self, node: NodeId) -> list[Command]:
        """What a node that said Hello again may not have received; see `outstanding`."""
        return outstanding(self.state, node)

    def next_up(self, study_id: StudyId, count: int, now: Time) -> tuple[TrialId, ...]:
        """The waiting trials that would run next, most deserving first."""
        try:
            order = self._queues.peek(
                study_id, lambda queue: queue.order(count, (), lambda trial: True, now)
            )
        except Unanswered:
            return ()  # nobody knows; `explain` says why
        waiting = [t for t in order if self.state.trials[t].phase is Phase.WAITING]
        return tuple(waiting[:count])

    def populations(self) -> Iterator[tuple[StudyId, Exploration]]:
        """The unfinished studies whose policy replaces trials by forks of others, and how these
        explore."""
        for study_id in [study for study, active in self.state.active.items() if active]:
            with suppress(Unanswered):
                breeder = self._queues.peek(study_id, lambda queue: queue.breeder)
                if breeder is not None:
                    yield study_id, breeder.exploration

    def exploits(self, study_id: StudyId, now: Time) -> Sequence[Exploit]:
        """Which trials of a population are to be replaced now; none if its policy raises."""
        try:
            return self._queues.peek(study_id, lambda queue: queue.exploits(now))
        except Unanswered:
            return ()

    def upcoming(self, now: Time) -> dict[NodeId, Upcoming]:
        """What nodes may prepare for, those that may; see `foresight`."""
        return upcoming(self.state, self._queues, now)

    def left_idle(self, study_id: StudyId, now: Time) -> tuple[DeviceId, ...]:
        """Devices that a study waits for though its policy could have them; see `standstill`."""
        return left_idle(self.state, self._queues, study_id, now)

    def explain(self, trial_id: TrialId, now: Time, asker: UserId = "") -> Explanation:
        """Why a trial runs or waits, in its policy's words, for the user who asks."""
        last, later = self._last.get(trial_id, ""), trial_id in self._later
        narrower, without = (dict(f()).get(trial_id) for f in (self._too_wide, self._hopeless))
        losses = dict(self._losses())
        asked = Question(trial_id, asker, last, later, now, losses, narrower, without)
        told = explain(self.state, self._queues, asked)
        return told._replace(summary=told.summary + self._assignment.why_held(trial_id, now))


def _patience(trial: Trial, deadline: float) -> float:
    """How many seconds a run has for its end: no more than it needs if it may never hear of it."""
    if trial.run is None or not trial.run.silent_seconds:
        return deadline
    steps = SILENT_STOP_STEPS * (trial.seconds_per_step or 0.0)
    return min(deadline, max(SILENT_STOP_SECONDS, steps))


def _longer(new: Quantum, old: Quantum) -> bool:
    """Whether a quantum grants more seconds than another."""
    if old.seconds is None:
        return False
    return new.seconds is None or new.seconds > old.seconds
