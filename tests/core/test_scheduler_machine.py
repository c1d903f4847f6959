"""The scheduler under any order of events: stale, doubled, contradictory, with policies swapped.

Whatever comes, the invariants hold, deciding twice says nothing, nothing is launched twice, what
is over stays over, what is refused changes nothing, and a replay gives the same state.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hermesd.core.commands import Command, Kill, Launch
from hermesd.core.decide.gangs import gathered
from hermesd.core.decide.matching import Openings
from hermesd.core.decide.relocation import expected
from hermesd.core.decide.scheduler import Scheduler
from hermesd.core.events import (
    Added,
    Asked,
    Cancelled,
    Checkpointed,
    Copied,
    DeviceFailed,
    Dropped,
    Event,
    Extended,
    FidelityKnown,
    Forgiven,
    Marked,
    MetricChosen,
    MilestonePassed,
    NodeDrained,
    NodeLost,
    NodeSilent,
    NodeUndrained,
    NotCopied,
    OutcomeTold,
    ParkLost,
    Paused,
    PoolsConfigured,
    QuantumEnded,
    Reclaimed,
    Removed,
    Retried,
    RunCompleted,
    RunEvent,
    RunFailed,
    RunStarted,
    RunSuspended,
    SearchFailed,
    SearchLimited,
    SignalChosen,
    Spoilt,
    TermsSet,
    Unpaused,
    Yielded,
)
from hermesd.core.failure_effects import ENOUGH, STOPPED
from hermesd.core.failures import against, met
from hermesd.core.losses import chunked
from hermesd.core.model import (
    Checkpoint,
    DeviceId,
    Fidelity,
    Goal,
    LiveRun,
    MetricMode,
    NodeId,
    OnSameFailure,
    Phase,
    Plugin,
    Pool,
    RetryAction,
    RunId,
    Searcher,
    Slot,
    StopRule,
    StudyId,
    Tier,
    TrialId,
)
from hermesd.core.placement import (
    are_enough,
    avoided,
    fewest_on,
    fits,
    make_placement,
    narrowest,
    takes_one,
    untried,
)
from hermesd.core.policy import Planning, Policy
from hermesd.core.quotas import DeviceQuotas
from hermesd.core.sharing import Terms
from hermesd.core.state import Rejected, State
from hermesd.core.tables import wants_copy
from hermesd.core.trial import USAGE, Result, Trial, remembered
from hermesd.head.journal import outcomes
from tests.core.machine_choices import (
    FULL,
    PLACEMENTS,
    POOLS,
    RULES,
    TRIALS,
    attempts,
    doing_the_same,
    nodes,
    plugins,
    policy_named,
    requests,
    snapshot,
    some_trials,
    staged,
    steps,
    stranded,
)
from tests.core.playbook import (
    LEASE,
    ahead,
    checkpoint,
    joined,
    reported,
    submitted,
    tables,
    trial_spec,
)


class SchedulerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.state = State()
        self.shadow = State()
        self.entries: list[tuple[Event | Command, float]] = []
        self.launched: set[RunId] = set()
        self.ended: dict[TrialId, Phase] = {}
        self.reopened: set[TrialId] = set()
        self.won: dict[TrialId, Result] = {}
        self.swapped: Plugin | None = None
        self.start_scheduler()

    # The head's loop.

    def start_scheduler(self) -> None:
        self.scheduler = Scheduler(self.state, self.make_policy, make_placement, LEASE)
        self.decide()

    def make_policy(self, plugin: Plugin) -> Policy:
        """Fifo is what a study whose policy raised falls back to: it stays."""
        chosen = plugin if plugin.name == "fifo" else self.swapped or plugin
        return policy_named(chosen)

    def record(self, entry: Event | Command) -> None:
        self.entries.append((entry, self.now))
        self.shadow.apply(entry, self.now)

    def observe(self, event: Event) -> None:
        before, found = snapshot(self.state), ahead(self.state, event, self.now)
        ending, were_over = outcomes.unfinished(self.state, event), self.over()
        active = {trial for its in self.state.active.values() for trial in its}
        try:
            self.scheduler.observe(event, self.now)
        except Rejected:
            assert snapshot(self.state) == before
            return
        assert found is None or tables(found) == tables(self.state)
        told = {each.subject for each in outcomes.ended(self.state, event, ending)}
        known = {each for each in active if each in self.state.trials}
        assert {each for each in known if self.state.trials[each].phase.final} <= told
        assert self.over() - were_over <= told, "who follows a study is told of its end"
        self.record(event)
        if isinstance(event, RunEvent):
            self.doubled(event)
        if isinstance(event, Retried | Extended):
            self.reopened |= set(event.trials)
            results = {t: self.state.trials[t].result for t in event.trials}
            self.won |= {t: result for t, result in results.items() if result is not None}
        if isinstance(event, Removed):
            for trial in [t for t in self.ended if t.startswith(f"{event.study}/")]:
                del self.ended[trial]
                self.won.pop(trial, None)

    def over(self) -> set[StudyId]:
        return {study for study in self.state.studies if self.state.is_over(study)}

    def doubled(self, event: RunEvent) -> None:
        """A node that does not know whether it was heard says it again."""
        before = dict(self.state.trials)
        with contextlib.suppress(Rejected):
            self.scheduler.observe(event, self.now)
            self.record(event)
        assert self.state.trials == before, f"{event} counts twice"

    def decide(self) -> None:
        commands = self.scheduler.decide(self.now)
        for failure in self.scheduler.take_failures():
            self.record(failure.event)
        for command in commands:
            self.record(command)
            if isinstance(command, Launch) and not command.parked:
                trial, device = self.state.trials[command.run.trial], command.devices[0]
                node = self.state.slots[device].device.node
                assert (trial.spec.study, node) not in self.state.excluded
                there = [each.ruled for each in trial.failures if each.device == device]
                assert RetryAction.NOT_HERE not in there
                needed = fewest_on(self.state, trial, self.state.slots[device].device)
                assert 0 < needed <= len(command.devices), "it ran out of memory on as many"
            if isinstance(command, Launch):
                trial = self.state.trials[command.run.trial]
                most = self.state.terms_of(owner := self.state.owner_of(trial)).max_devices
                assert most is None or self.state.devices_of(owner) <= most
                pool = self.state.studies[trial.spec.study].pool
                node = self.state.slots[command.devices[0]].device.node
                assert self.state.nodes[node].pool == pool, "of another pool"
                assert command.run not in self.launched, f"{command.run} launched twice"
                self.launched.add(command.run)
            if isinstance(command, Kill):
                trial = self.state.trials.get(command.run.trial)
                wanted = (
                    trial is not None
                    and trial.run is not None
                    and (
                        trial.run.id == command.run
                        and self.state.slots[trial.run.devices[0]].device.node == command.node
                    )
                )
                assert not wanted, f"{command.run} is killed where it should run"
        assert self.scheduler.decide(self.now) == []

    def tell(self, *events: Event) -> None:
        for event in events:
            self.observe(event)
        self.decide()

    def run_of(self, trial: TrialId, offset: int) -> RunId:
        known = self.state.trials.get(trial)
        return RunId(trial, (known.attempt if known else 1) + offset)

    # People.

    @rule(
        name=st.sampled_from("st"),
        policy=plugins,
        placement=st.sampled_from(PLACEMENTS),
        tier=st.sampled_from([None, Tier.CHECKPOINT]),
        max_steps=st.sampled_from([None, None, 8]),
        pool=st.sampled_from(["default", "default", "gold"]),
        replicas=st.sampled_from([0, 1, 1, 2]),
        alike=st.sampled_from(OnSameFailure),
        devices=st.sampled_from([1, 1, 2, 3]),
        most=st.sampled_from([0, 0, 2, 4]),
        is_tree=st.booleans(),
        searcher=st.sampled_from([None, None, Searcher("tpe", 4), Searcher("tpe", 9, 0)]),
        outside=st.sampled_from([False, False, False, True]),
    )
    def submit(
        self,
        name: str,
        policy: Plugin,
        placement: Plugin,
        tier: Tier,
        max_steps: int | None,
        pool: str,
        replicas: int,
        alike: OnSameFailure,
        devices: int,
        most: int,
        is_tree: bool,
        searcher: Searcher | None,
        outside: bool,
    ) -> None:
        event = submitted(
            3,
            name,
            owner=f"user of {name}",
            policy=policy,
            placement=placement,
            tier=tier,
            stop=StopRule(max_steps=max_steps),
            retry_rules=RULES,
            pool=pool,
            replicas=replicas,
            on_same_failure=alike,
            devices=devices,
            most_devices=0 if is_tree else most,  # those of a range share no stages
            searcher=searcher,
            outside=outside,
        )
        trials = tuple(map(staged, event.trials)) if is_tree else event.trials
        self.tell(replace(event, trials=trials))

    @rule(
        kind=st.sampled_from([Paused, Unpaused, Cancelled, Retried]),
        trials=some_trials,
        request=requests,
    )
    def ask(self, kind: Any, trials: tuple[TrialId, ...], request: str) -> None:
        self.tell(kind(trials, request))

    @rule(trials=some_trials, tag=st.sampled_from("ab"), add=st.booleans(), request=requests)
    def mark(self, trials: tuple[TrialId, ...], tag: str, add: bool, request: str) -> None:
        given, taken = ((tag,), ()) if add else ((), (tag,))
        self.tell(Marked(trials, given, taken, tag if add else None, request))

    @rule(trials=some_trials, request=requests, is_tree=st.booleans())
    def add(self, trials: tuple[TrialId, ...], request: str, is_tree: bool) -> None:
        """Trials that its study has not, or has already, or that are another study's."""
        specs = tuple(trial_spec(trial) for trial in trials)
        specs = tuple(map(staged, specs)) if is_tree else specs
        self.tell(Added(trials[0][0], specs, request))

    @rule(name=st.sampled_from("st"), most=st.sampled_from([None, 2, 5]), request=requests)
    def search(self, name: str, most: int | None, request: str) -> None:
        self.tell(SearchLimited(name, most, request))

    @rule(name=st.sampled_from("st"), again=st.sampled_from([0.0, 1.0]))
    def search_fails(self, name: str, again: float) -> None:
        self.tell(SearchFailed(name, "no memory", again))

    @rule(trials=some_trials, failure=st.sampled_from(["", "", "x"]), request=requests)
    def train_outside(self, trials: tuple[TrialId, ...], failure: str, request: str) -> None:
        """Asked for and told, or told without being asked for, as after a restart of the loop."""
        self.tell(Asked(trials[0], f"ask {request}"))
        self.tell(OutcomeTold(trials[-1], (("loss", 1.0),), failure, request))

    @rule(trials=some_trials, request=requests)
    def extend(self, trials: tuple[TrialId, ...], request: str) -> None:
        study = trials[0][0]
        theirs = tuple(trial for trial in trials if trial[0] == study)
        argv = tuple(("again",) for _ in theirs)
        self.tell(Extended(study, theirs, StopRule(), (("epochs", 9),), argv, request))

    @rule(
        trials=some_trials,
        add=st.booleans(),
        most=st.sampled_from([None, 3, 6]),
        request=requests,
    )
    def change(
        self, trials: tuple[TrialId, ...], add: bool, most: int | None, request: str
    ) -> None:
        """As the head does to a study that runs: some at other points, or new, or to end."""
        study, known = trials[0][0], self.state.trials
        theirs = [trial for trial in trials if trial[0] == study]
        specs = tuple(replace(trial_spec(trial), argv=("other",)) for trial in theirs)
        ended = tuple((trial, "no more") for trial in theirs[1:] if trial in known)
        event = Extended(
            study, (), StopRule(max_steps=most), (), (), request, source=b"changed", ended=ended
        )
        part = {"added": specs} if add else {"redrawn": specs[:1]}
        self.tell(replace(event, **part))

    @rule(
        name=st.sampled_from("st"),
        metric=st.sampled_from(["loss", "acc"]),
        mode=st.sampled_from(MetricMode),
        request=requests,
    )
    def rank_by(self, name: str, metric: str, mode: MetricMode, request: str) -> None:
        self.tell(MetricChosen(name, metric, Goal.MAXIMIZE, mode, request))

    @rule(
        name=st.sampled_from("st"),
        goal=st.sampled_from(Goal),
        losses=st.lists(st.floats(-5.0, 5.0), max_size=20),
        request=requests,
    )
    def read_otherwise(self, name: str, goal: Goal, losses: list[float], request: str) -> None:
        curves = tuple((trial, chunked(1, losses)) for trial in self.state.members.get(name, ()))
        self.tell(SignalChosen(name, "acc", goal, curves, request))

    @rule(name=st.sampled_from("st"), request=requests)
    def remove(self, name: str, request: str) -> None:
        self.tell(Removed(name, request))

    # Nodes.

    @rule(
        node=nodes,
        devices=st.integers(1, 4),
        kinds=st.sampled_from([("cpu",), ("cpu", "slow")]),
        memory=st.sampled_from([(1 << 30,), (1 << 30,), (1 << 30, 1 << 31)]),
        boot=st.sampled_from(["b1", "b2"]),
        disk=st.sampled_from(["", "one", "one", "two"]),
        honest=st.booleans(),
        data=st.data(),
    )
    def hello(
        self,
        node: NodeId,
        devices: int,
        kinds: tuple[str, ...],
        memory: tuple[int, ...],
        boot: str,
        disk: str,
        honest: bool,
        data: st.DataObject,
    ) -> None:
        """A node that names all it should have, or anything at all."""
        live = []
        for trial in self.state.trials.values():
            if trial.run and trial.run.devices[0].startswith(f"{node}/"):
                live.append(LiveRun(trial.run.id, "running", trial.run.devices, trial.step))
            elif trial.kept and trial.kept.tier is Tier.PARK:
                live.append(LiveRun(trial.kept.run, "parked", (trial.kept.device,), trial.step))
        if not honest:
            live = [each for each in live if data.draw(st.booleans())]
            for trial_id in data.draw(some_trials):
                stray = self.run_of(trial_id, data.draw(attempts))
                word = data.draw(st.sampled_from(["starting", "running", "parked", "ended"]))
                live.append(LiveRun(stray, word, (f"{node}/0",)))
        hello = joined(devices, node, boot, live, kinds, memory)
        features = data.draw(st.sampled_from([(), ("avx",), ("avx", "avx512")]))
        shared = data.draw(st.sampled_from(["", "nfs"]))
        self.tell(replace(hello, disk=disk, shared=shared, image_features=features))

    @rule(node=nodes, leaves=st.booleans())
    def silence(self, node: NodeId, leaves: bool) -> None:
        self.tell(NodeSilent(node, "cut"), *[NodeLost(node, left=True)] * leaves)

    @rule(node=nodes, request=requests, wish=st.sampled_from([NodeDrained, NodeUndrained]))
    def upkeep(self, node: NodeId, request: str, wish: Any) -> None:
        self.tell(wish(node, request))

    @rule(pools=st.sampled_from(POOLS))
    def configures(self, pools: tuple[Pool, ...]) -> None:
        self.tell(PoolsConfigured(pools))

    @rule(place=st.sampled_from(["n", "m", "n/0", "m/1"]), request=requests)
    def forgives(self, place: str, request: str) -> None:
        self.tell(Forgiven(place, request))

    @rule(place=st.sampled_from(["n", "m", "n/0", "m/1"]), why=st.sampled_from(["", "day", "end"]))
    def machine_wants_it_back(self, place: str, why: str) -> None:
        self.tell(Yielded(place, why, why == "end") if why else Reclaimed(place))

    @rule(node=nodes, number=st.integers(0, 1))
    def device_fails(self, node: NodeId, number: int) -> None:
        self.tell(DeviceFailed(f"{node}/{number}", "Xid"))

    @rule(seconds=st.sampled_from([1.0, 10.0, LEASE.silence_seconds]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        due = self.scheduler.due(self.now)
        deadline = self.scheduler.deadline
        waited = [
            trial.not_before
            for trial in self.state.trials.values()
            if trial.phase is Phase.WAITING and self.now - seconds < trial.not_before
        ]
        soonest = min([self.now + 1.0, *waited])
        if due or soonest <= self.now:
            assert deadline is not None
            assert deadline <= self.now
        elif deadline not in self.copies_at() and not any(
            kept.until <= self.now for kept in self.state.quarantined.values()
        ):
            assert deadline is None or deadline > self.now
        while due:
            self.tell(*due)
            due = self.scheduler.due(self.now)
        self.tell()
        assert self.scheduler.deadline is None or self.scheduler.deadline > self.now

    def copies_at(self) -> list[float]:
        """When copies that could not be made may be tried again."""
        after = [trial.copy_after for trial in self.state.trials.values()]
        return [*after, *self.state.severed.values()]

    # Runs.

    @rule(trial=st.sampled_from(TRIALS), offset=attempts, step=steps)
    def starts(self, trial: TrialId, offset: int, step: int) -> None:
        self.tell(RunStarted(self.run_of(trial, offset), step, 0.1, 12))

    @rule(
        trial=st.sampled_from(TRIALS),
        offset=attempts,
        step=steps,
        losses=st.lists(st.sampled_from([0.5, 1.0, 4.0, float("inf")]), max_size=3),
        finite=st.integers(0, 9),
        seconds=st.sampled_from([0.1, 10.0]),
    )
    def reports(
        self,
        trial: TrialId,
        offset: int,
        step: int,
        losses: list[float],
        finite: int,
        seconds: float,
    ) -> None:
        name = str(self.run_of(trial, offset))
        known = {"busy_seconds": seconds, "not_finite": finite == 0}
        number = len(self.entries) + 1
        self.tell(reported(name, step, losses, metrics=(("loss", 1.0),), number=number, **known))

    @rule(trial=st.sampled_from(TRIALS), offset=attempts, past=st.sampled_from([0, 0, 0, 1]))
    def quantum_ends(self, trial: TrialId, offset: int, past: int) -> None:
        known = self.state.trials.get(trial)
        grant = known.run.grant if known and known.run else 0
        self.tell(QuantumEnded(self.run_of(trial, offset), grant - past, 3))

    @rule(trial=st.sampled_from(TRIALS), offset=attempts, percent=st.sampled_from([25.0, 50.0]))
    def milestone_passes(self, trial: TrialId, offset: int, percent: float) -> None:
        self.tell(MilestonePassed(self.run_of(trial, offset), percent, 0.1, 5))

    @rule(
        trial=st.sampled_from(TRIALS),
        offset=attempts,
        tier=st.sampled_from(Tier),
        step=steps,
        kept=st.booleans(),
    )
    def suspends(self, trial: TrialId, offset: int, tier: Tier, step: int, kept: bool) -> None:
        run = self.run_of(trial, offset)
        saved = self.saved(run, step) if kept and tier is not Tier.PARK else None
        self.tell(RunSuspended(run, tier, step, saved, 0.1))

    @rule(trial=st.sampled_from(TRIALS), offset=attempts, step=steps, kept=st.booleans())
    def completes(self, trial: TrialId, offset: int, step: int, kept: bool) -> None:
        run = self.run_of(trial, offset)
        self.tell(RunCompleted(run, step, self.saved(run, step) if kept else None))

    @rule(
        trial=st.sampled_from(TRIALS),
        offset=attempts,
        step=steps,
        kind=st.sampled_from(["exception", "exception", USAGE, "not_started", "lost"]),
        signature=st.sampled_from(["", "ValueError"]),
        detail=st.sampled_from(["it broke", "out of memory", "a bug", "ECC", FULL]),
        counts=st.booleans(),
    )
    def crashes(
        self,
        trial: TrialId,
        offset: int,
        step: int,
        kind: str,
        signature: str,
        detail: str,
        counts: bool,
    ) -> None:
        """As a node tells it that counts the devices, or one that does not yet."""
        run = self.run_of(trial, offset)
        before = self.state.trials.get(trial)
        elsewhere = before is not None and untried(self.state, before)
        devices = len(before.run.devices) if counts and before and before.run else 0
        self.tell(RunFailed(run, kind, detail, signature, step, devices=devices))
        elsewhere = elsewhere and detail not in ("a bug", FULL)
        # What ends a trial for the whole study's sake was met on other devices by others of it.
        alike = kind == USAGE or self.stopped_alike(trial)
        elsewhere = elsewhere and not alike
        if before is not None and before.phase.on_device and not before.ending and elsewhere:
            assert self.state.trials[trial].phase is not Phase.FAILED

    def stopped_alike(self, trial: TrialId) -> bool:
        """Whether its study was stopped for a failure that its first trials have all met."""
        known = self.state.trials.get(trial)
        if known is None or not known.reason.endswith(f"({STOPPED})"):
            return False
        study = self.state.studies[known.spec.study]
        assert study.on_same_failure is OnSameFailure.STUDY
        members = [self.state.trials[each] for each in self.state.members[study.id]]
        assert sum(bool(each.failures) for each in members) >= ENOUGH
        return True

    @rule(trial=st.sampled_from(TRIALS), offset=attempts, step=steps)
    def saves(self, trial: TrialId, offset: int, step: int) -> None:
        run = self.run_of(trial, offset)
        self.tell(Checkpointed(run, self.saved(run, step)))

    def saved(self, run: RunId, step: int) -> Checkpoint:
        known = self.state.trials.get(run.trial)
        node = self.state.node_of(known) if known else None
        there = self.state.nodes.get(node or "n")
        # Every other one is an image, where images can be made.
        image = there.id if there and there.image_features and step % 2 else ""
        return replace(checkpoint(str(run), step), nodes=(node or "n",), image_of=image)

    # Copies.

    @rule(trial=st.sampled_from(TRIALS), node=nodes, fails=st.booleans(), way=st.booleans())
    def a_copy_ends(self, trial: TrialId, node: NodeId, fails: bool, way: bool) -> None:
        """The one that is under way, or any other that somebody might speak of."""
        known = self.state.trials.get(trial)
        flight = known.copying if known else None
        some = known.copied or known.checkpoint if known else None
        name = flight.checkpoint.id if flight else some.id if some else "s/0#1@9"
        there = flight.target if flight else node
        if fails:
            self.tell(NotCopied(there, trial, name, "why ever", way))
        else:
            self.tell(Copied(there, trial, name))

    @rule(trial=st.sampled_from(TRIALS), which=st.integers(0, 3), step=steps, has=st.booleans())
    def a_checkpoint_rots(self, trial: TrialId, which: int, step: int, has: bool) -> None:
        """On the first of its nodes, which may have another instead."""
        known = self.state.trials.get(trial)
        for each in remembered(known)[which : which + 1] if known else ():
            other = replace(checkpoint(str(self.run_of(trial, 0)), step), nodes=each.nodes)
            self.tell(Spoilt(each.nodes[0], trial, each.id, "", other if has else None))

    @rule(trial=st.sampled_from(TRIALS), node=nodes)
    def has_dropped(self, trial: TrialId, node: NodeId) -> None:
        self.tell(Dropped(node, trial))

    @rule(trial=st.sampled_from(TRIALS))
    def loses_park(self, trial: TrialId) -> None:
        known = self.state.trials.get(trial)
        run = known.kept.run if known and known.kept else self.run_of(trial, 0)
        self.tell(ParkLost(run, "gone"))

    @rule(trial=st.sampled_from(TRIALS), well=st.booleans())
    def ends_as_it_is_kept(self, trial: TrialId, well: bool) -> None:
        known = self.state.trials.get(trial)
        if known is None or known.kept is None:
            return
        run = known.kept.run
        end = RunCompleted(run, known.step) if well else RunFailed(run, "exit", "bad", "", 0)
        in_process, was_over = known.kept.tier is Tier.PARK, known.phase.final
        self.tell(end)
        now = self.state.trials.get(trial)
        if in_process and well and now is not None and known.phase in (Phase.WAITING,):
            assert now.phase is Phase.COMPLETED
        assert not was_over or now is None or now.phase is known.phase

    @rule(trial=st.sampled_from(TRIALS), offset=attempts)
    def judges(self, trial: TrialId, offset: int) -> None:
        self.tell(FidelityKnown(self.run_of(trial, offset), Fidelity.EXACT, "", "keras"))

    # A likely course of things, so that deep states are reached.

    @precondition(lambda self: self.state.slots)
    @rule()
    def all_start(self) -> None:
        starting = [t for t in self.state.trials.values() if t.phase is Phase.STARTING]
        self.tell(*(RunStarted(t.run.id, t.step, 0.1) for t in starting if t.run))

    @precondition(lambda self: self.state.slots)
    @rule()
    def all_quanta_end(self) -> None:
        self.now += 10.0
        running = [t.run for t in self.state.trials.values() if t.phase is Phase.RUNNING]
        self.tell(*(QuantumEnded(run.id, run.grant, 3) for run in running if run))

    @precondition(lambda self: self.state.slots)
    @rule()
    def all_suspends_end(self) -> None:
        leaving = [t for t in self.state.trials.values() if t.phase is Phase.SUSPENDING]
        self.tell(*(RunSuspended(t.run.id, Tier.PARK, t.step, None, 0.1) for t in leaving if t.run))

    @rule(
        half_life=st.sampled_from([10.0, 1000.0]),
        weight=st.sampled_from([0.5, 4.0]),
        quotas=st.tuples(*[st.sampled_from([None, None, 0, 1, 2])] * 2),
    )
    def share(self, half_life: float, weight: float, quotas: tuple[int | None, ...]) -> None:
        """The head restarts with other terms for its users."""
        users = zip("st", quotas, strict=True)
        terms = tuple((f"user of {name}", Terms(weight, most)) for name, most in users)
        self.tell(TermsSet(half_life, terms))

    # The head.

    @rule(plugin=plugins)
    def policies_are_swapped(self, plugin: Plugin) -> None:
        """The head restarts with another policy for all; nothing is told to anybody."""
        self.swapped = plugin
        self.start_scheduler()

    @rule()
    def head_restarts(self) -> None:
        """All that is known comes from the entries."""
        self.state = self.replayed()
        self.start_scheduler()

    def replayed(self) -> State:
        state = State()
        for entry, at in self.entries:
            state.apply(entry, at)
        return state

    # What always holds.

    @invariant()
    def invariants_hold(self) -> None:
        self.state.check()

    @invariant()
    def replay_is_the_state(self) -> None:
        assert tables(self.shadow) == tables(self.state)

    @invariant()
    def what_is_over_stays_over(self) -> None:
        for trial, phase in list(self.ended.items()):
            now = self.state.trials[trial].phase
            assert now is phase or trial in self.reopened, f"{trial} was {phase}, is {now}"
        self.reopened.clear()
        self.ended = {t.id: t.phase for t in self.state.trials.values() if t.phase.final}

    @invariant()
    def an_extension_loses_nothing(self) -> None:
        """A trial that was asked to go on has come to more in the end, or to what it had."""
        for trial, won in self.won.items():
            now = self.state.trials[trial]
            if now.phase.final and now.step <= won.step and now.phase is not Phase.COMPLETED:
                same = ("phase", "spec", "step", "planned_steps", "curve", "metrics", "finished")
                assert [getattr(now, n) for n in same] == [getattr(won, n) for n in same]
            assert not now.phase.final or now.step >= won.step
            assert not now.phase.final or now.checkpoint or not won.checkpoint

    @invariant()
    def no_device_is_idle_while_a_trial_wants_it(self) -> None:
        kept = gathered(self.state)
        slots = (s for s in self.state.slots.values() if self.state.usable(s))
        slots = (slot for slot in slots if slot.device.id not in kept)
        free = [slot for slot in slots if not expected(self.state, slot.device.id)]
        waiting = [t for t in self.state.trials.values() if t.phase is Phase.WAITING]
        for trial in waiting:
            study = self.state.studies[trial.spec.study]
            plans = isinstance(self.make_policy(self.state.policy_of(study.id)), Planning)
            if plans or not trial.candidate:
                continue
            if DeviceQuotas(self.state).left(trial) < narrowest(self.state, trial):
                continue
            if trial.id in self.state.reserved or trial.not_before > self.now:
                continue
            if trial.id in self.state.gathering:
                continue
            node = self.state.parked_on(trial)
            there: list[DeviceId] = []
            for slot in free:
                strays = takes_one(self.state, trial) and stranded(self.state, trial, slot)
                assert not strays, f"{slot.device.id} waits for nothing"
                able = self.state.nodes[slot.device.node].pool == study.pool
                able = able and fits(trial, study, slot.device, node)
                able = able and not avoided(self.state, trial, slot.device.id)
                there += [slot.device.id] * (able and self.allowed(trial, slot))
            assert not are_enough(self.state, trial, there), f"{there} idle while {trial.id} waits"

    @invariant()
    def what_is_gathered_is_awaited(self) -> None:
        """All of it is in use by those that are to leave, or shorter of what they were given."""
        for trial_id, devices in self.state.gathering.items():
            trial = self.state.trials[trial_id]
            there = [self.state.slots[device].device for device in devices]
            assert len(devices) == max(fewest_on(self.state, trial, each) for each in there)
            assert any(device not in self.state.free for device in devices)
            kinds = {self.state.slots[device].device.kind for device in devices}
            assert len({device.partition("/")[0] for device in devices}) == len(kinds) == 1

    def allowed(self, trial: Trial, slot: Slot) -> bool:
        """Whether the trial's placement lets it run on the slot, or should bind it there."""
        study = self.state.studies[trial.spec.study]
        if self.state.placement_of(study.id).name == "free":
            return True
        home = self.state.slots[trial.home] if trial.home else None
        node = self.state.nodes[home.device.node] if home else None
        here = node is not None and node.boot_id and not node.leaving and node.pool == study.pool
        if home and here and home.sound and not avoided(self.state, trial, home.device.id):
            return home is slot
        active = (self.state.trials[t] for t in self.state.active[trial.spec.study])
        return sum(other.home == slot.device.id for other in active) < 2

    @invariant()
    def a_quarantine_has_its_evidence(self) -> None:
        """Different trials failed at each place that is kept from trials, and not for ever."""
        for place, kept in self.state.quarantined.items():
            assert len(against(self.state, place, met(self.state))) > 1
            assert kept.until > self.now

    @invariant()
    def nothing_stays_where_the_machine_wants_it_back(self) -> None:
        for slot in self.state.slots.values():
            wanted = slot.yielded or self.state.nodes[slot.device.node].resting
            if wanted and slot.run is not None:
                assert self.state.trials[slot.run.trial].phase is not Phase.RUNNING

    @invariant()
    def a_node_that_drains_or_is_of_another_pool_is_emptied(self) -> None:
        """What can leave it has been asked to, unless it is not there to be asked."""
        for trial in self.state.trials.values():
            name = self.state.node_of(trial)
            if name is None or trial.phase.final:
                continue
            node = self.state.nodes[name]
            if not node.leaving and node.pool == self.state.studies[trial.spec.study].pool:
                continue
            assert trial.phase is not Phase.RUNNING or not (
                trial.fidelity.restorable and trial.run and trial.run.expired
            )
            parked = trial.run is None and trial.fidelity.restorable
            assert not parked or (trial.kept and trial.kept.leaving)

    @invariant()
    def what_can_be_copied_is(self) -> None:
        """Unless it failed lately, or one of its nodes is busy with another copy."""
        for trial in self.state.trials.values():
            if not wants_copy(self.state, trial) or trial.copying or trial.copy_after > self.now:
                continue
            assert trial.checkpoint is not None
            giver = self.state.copies.givers.get(trial.id)
            for node in self.state.nodes.values():
                way = self.state.severed.get((giver or "", node.id), 0.0) <= self.now
                new = node.id not in (*trial.checkpoint.nodes, self.state.node_of(trial))
                if giver and node.open and way and new:
                    busy = giver in self.state.copies.giving or node.id in self.state.copies.taking
                    assert busy, f"{trial.checkpoint.id} is not copied to {node.id}"

    @invariant()
    def no_two_do_the_same(self) -> None:
        assert not doing_the_same(self.state)

    @invariant()
    def of_trials_that_are_alike_one_is_looked_into(self) -> None:
        queues = self.scheduler._queues
        waiting = [t for t in self.state.trials.values() if t.phase is Phase.WAITING]
        for devices in ([], [*self.state.slots], *([each] for each in self.state.slots)):
            openings = Openings(self.state, queues, devices)
            for trial in waiting:
                fit = any(queues.fits(trial, device) for device in devices)
                assert openings.suit(trial) == fit

    @invariant()
    def questions_are_answered(self) -> None:
        before = tables(self.state)
        for node in self.state.nodes:
            self.scheduler.outstanding(node)
        for trial in self.state.trials:
            assert self.scheduler.explain(trial, self.now).summary
        for study in self.state.studies:
            assert len(self.scheduler.next_up(study, 2, self.now)) <= 2
        assert tables(self.state) == before

    def teardown(self) -> None:
        assert tables(self.replayed()) == tables(self.state)


TestSchedulerMachine = SchedulerMachine.TestCase
TestSchedulerMachine.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)
TestSchedulerMachine = pytest.mark.timeout(300)(TestSchedulerMachine)
