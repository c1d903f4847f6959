"""Whatever has happened before, a trial that could run somewhere has its turn in the end.

A world of nodes, programs and people, in virtual time, under the production scheduler: it goes as
wild as a seed says, then all that is broken stays away, and nothing else happens any more.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count, product
from random import Random

import pytest

from hermesd.core.commands import (
    Command,
    Copy,
    Drop,
    Kill,
    Launch,
    Look,
    Release,
    Renew,
    Stop,
    Suspend,
    WriteDown,
)
from hermesd.core.decide.scheduler import LeaseTerms, Scheduler
from hermesd.core.events import (
    Added,
    Cancelled,
    Copied,
    DeviceFailed,
    Dropped,
    Event,
    Extended,
    FidelityKnown,
    Looked,
    NodeDrained,
    NodeLost,
    NodeSilent,
    NodeUndrained,
    NotCopied,
    ParkLost,
    Paused,
    QuantumEnded,
    Reclaimed,
    Retried,
    RunCompleted,
    RunFailed,
    RunStarted,
    RunSuspended,
    TermsSet,
    Unpaused,
    Yielded,
)
from hermesd.core.model import (
    Checkpoint,
    Device,
    DeviceId,
    Fidelity,
    LiveRun,
    NodeId,
    Phase,
    Plugin,
    RetryAction,
    RetryRule,
    RunId,
    StopRule,
    Tier,
    Time,
    TrialId,
)
from hermesd.core.placement import asked_for, is_suspect, make_placement
from hermesd.core.resume_points import has_own_beginning
from hermesd.core.sharing import Terms
from hermesd.core.state import Rejected, State
from hermesd.core.trial import NOT_FETCHED, RESTORE, Trial
from hermesd.core.widths import as_told
from hermesd.policy import make_policy
from tests.core.playbook import checkpoint, joined, reported, submitted, tables, trial_spec

GIB = 1 << 30
QUANTUM_SECONDS = 30.0
TURNS = Plugin("round_robin", (("quantum_seconds", QUANTUM_SECONDS),))
RULES = (RetryRule("out of memory", RetryAction.MORE_MEMORY),)
LEASE = LeaseTerms(60.0, 12.0, 6.0)
NODES = "nmko"
# In so many quanta each trial has had its turn, and what waits for what is not there is given up.
CALM_QUANTA = 100
# How many different pasts are tried; a third of a second each.
WORLDS = int(os.environ.get("WORLDS", "16"))


@dataclass(frozen=True)
class Model:
    """What a trial's program is like."""

    memory: int
    framework: str
    fidelity: Fidelity
    #: No other number of devices can restore its checkpoint, whatever its framework promises.
    is_stiff: bool


@dataclass
class Host:
    """One run on a node."""

    run: RunId
    node: NodeId
    devices: tuple[DeviceId, ...]
    condition: str
    step: int
    due: Time
    grant: int = 0
    saved: Checkpoint | None = None
    asked: Suspend | Stop | None = None


class World:
    """Nodes, programs, people and the head."""

    def __init__(self, seed: int) -> None:
        self.dice = Random(seed)
        self.now: Time = 0.0
        self.state = State()
        self.entries: list[tuple[Event | Command, Time]] = []
        self.hosts: dict[RunId, Host] = {}
        # What the nodes that are there have.
        self.there: dict[NodeId, tuple[Device, ...]] = {}
        self.away: dict[NodeId, tuple[Device, ...]] = {}
        self.boots = dict.fromkeys(NODES, 0)
        kinds = [["cpu"], ["cpu"], ["cpu", "slow"]]
        memory = [[GIB], [2 * GIB], [4 * GIB], [GIB, 4 * GIB], [8 * GIB]]
        self.machines = {n: (self.dice.choice(kinds), self.dice.choice(memory)) for n in NODES}
        self.paths = {n: self.dice.choice([("/data",), ("/data",), ()]) for n in NODES}
        self.later: list[tuple[Time, Event]] = []
        self.models: dict[str, Model] = {}
        self.numbers = count()
        self.torn: dict[str, int] = {}
        self.begun: set[TrialId] = set()
        # Programs end, now and then.
        self.is_wild = True
        self.scheduler = self.started_head()

    # The head.

    def started_head(self) -> Scheduler:
        return Scheduler(self.state, make_policy, make_placement, LEASE)

    def tell(self, *events: Event) -> None:
        for event in events:
            with suppress(Rejected):
                self.scheduler.observe(event, self.now)
                self.entries.append((event, self.now))
        for command in self.scheduler.decide(self.now):
            self.entries.append((command, self.now))
            self.carry_out(command)

    def restart(self) -> None:
        """All that is known comes from the entries; the nodes come back one after the other."""
        before, self.state = self.state, State()
        for entry, at in self.entries:
            self.state.apply(entry, at)
        assert tables(self.state) == tables(before)
        self.scheduler = self.started_head()
        self.tell(*(NodeSilent(node, "the head was restarted") for node in self.there))
        for node in list(self.there):
            self.says_hello(node)

    def passes(self, seconds: float) -> None:
        """So much time passes."""
        until = self.now + seconds
        while True:
            times = [host.due for host in self.hosts.values() if host.node in self.there]
            times += [at for at, _ in self.later]
            times += [self.scheduler.deadline or math.inf]
            soonest = min(times)
            if soonest > until:
                break
            self.now = max(self.now, soonest)
            while due := self.scheduler.due(self.now):
                self.tell(*due)
            self.tell()
            ripe = [event for at, event in self.later if at <= self.now]
            self.later = [(at, event) for at, event in self.later if at > self.now]
            self.tell(*ripe)
            for host in [host for host in self.hosts.values() if host.due <= self.now]:
                if self.heard_by(host.run) is host:
                    self.acts(host)
        self.now = until

    # Nodes.

    def carry_out(self, command: Command) -> None:
        """As nodes do that hear of it; who does not is told again as it comes back."""
        match command:
            case Launch():
                self.launches(command)
            case Renew(stay, grant, quantum) if host := self.heard_by(stay):
                if grant > host.grant and host.condition == "running":
                    assert quantum.seconds is not None
                    host.grant, host.due = grant, self.now + self.until_over(quantum.seconds)
            case Suspend(stay) | Stop(stay) if host := self.heard_by(stay):
                if host.condition in ("starting", "running"):
                    host.condition, host.asked, host.due = "leaving", command, self.now + 1.0
            case WriteDown(stay) if host := self.heard_by(stay):
                if host.condition == "parked":
                    host.condition, host.due = "demoting", self.now + 1.0
            case Kill(stay) if self.heard_by(stay):
                del self.hosts[stay]
            case Release(trial, node) if node in self.there:
                its = [host for host in self.hosts.values() if host.run.trial == trial]
                for host in its:
                    if (host.node, host.condition) == (node, "parked"):
                        del self.hosts[host.run]
            case Copy(trial, name, source, target):
                if source in self.there and target in self.there:
                    self.later.append((self.now + 1.0, Copied(target, trial, name)))
                elif target in self.there:
                    gone = NotCopied(target, trial, name, "it is away", True)
                    self.later.append((self.now + 1.0, gone))
            case Drop(trial, node) if node in self.there:
                self.later.append((self.now + 1.0, Dropped(node, trial)))
            case Look(node, paths) if node in self.there:
                seen = ((path, "" if path in self.paths[node] else "not there") for path in paths)
                self.later.append((self.now + 1.0, Looked(node, tuple(seen))))
            case _:
                pass

    def heard_by(self, stay: RunId) -> Host | None:
        host = self.hosts.get(stay)
        return host if host is not None and host.node in self.there else None

    def launches(self, launch: Launch) -> None:
        node = launch.devices[0].partition("/")[0]
        if node not in self.there or launch.run in self.hosts:
            return
        step, saved = 0, None
        if launch.parked is not None:
            before = self.hosts.pop(launch.parked, None)
            if before is None:
                self.later.append((self.now, ParkLost(launch.parked, "it is not there")))
                return
            step = before.step
        else:
            trial = self.state.trials[launch.run.trial]
            saved = trial.checkpoint if launch.checkpoint else None
        self.hosts[launch.run] = Host(
            launch.run, node, launch.devices, "starting", step, self.now + self.takes(), saved=saved
        )

    def takes(self) -> float:
        return self.dice.choice([0.5, 1.0, 7.0])

    def until_over(self, seconds: float) -> float:
        """A quantum ends with an iteration: so no two runs stay in step for ever."""
        return seconds + self.dice.uniform(0.0, 9.0)

    def says_hello(self, node: NodeId) -> None:
        live = [
            LiveRun(
                host.run,
                "parked" if host.condition in ("parked", "demoting") else "running",
                host.devices,
                host.step,
            )
            for host in self.hosts.values()
            if host.node == node
        ]
        hello = joined(0, node, f"b{self.boots[node]}", live)
        self.tell(replace(hello, devices=self.there[node]))
        for command in self.scheduler.outstanding(node):
            self.carry_out(command)

    def loses_hosts(self, node: NodeId) -> None:
        self.boots[node] += 1
        self.hosts = {run: host for run, host in self.hosts.items() if host.node != node}

    # Runs.

    def acts(self, host: Host) -> None:
        """What a host does next."""
        host.due = math.inf
        match host.condition:
            case "starting":
                self.starts(host)
            case "running":
                self.trains(host)
            case "leaving":
                self.leaves(host)
            case _:  # it is written down
                del self.hosts[host.run]
                saved = self.saved(host)
                self.tell(RunSuspended(host.run, Tier.CHECKPOINT, host.step, saved, 0.1))

    def model(self, trial: TrialId) -> Model:
        if trial not in self.models:
            fidelity = [Fidelity.EXACT, Fidelity.EXACT, Fidelity.EXACT, Fidelity.PARK_ONLY]
            self.models[trial] = Model(
                self.dice.randint(1, 6),
                self.dice.choice(["explicit", "torch 2.13.0", "torch-ddp 2.13.0"]),
                self.dice.choice(fidelity),
                self.dice.random() < 0.3,
            )
        return self.models[trial]

    def fails(self, host: Host, kind: str, words: str, rank: int = 0) -> None:
        del self.hosts[host.run]
        width = len(host.devices)
        self.tell(RunFailed(host.run, kind, words, words, host.step, rank=rank, devices=width))

    def starts(self, host: Host) -> None:
        trial, model, saved = self.state.trials[host.run.trial], self.model(host.run.trial), None
        if host.saved is not None:
            saved = host.saved
            if not any(node in self.there for node in saved.nodes):
                return self.fails(host, NOT_FETCHED, "nobody has it")
            told = as_told(trial, self.state.studies[trial.spec.study])
            width = len(host.devices)
            is_other = saved.devices not in (0, width)
            if model.is_stiff and is_other:
                self.torn[saved.id] = self.torn.get(saved.id, 0) + 1
                if (told is not None and told.is_of_other(width)) or self.torn[saved.id] <= 2:
                    return self.fails(host, RESTORE, "of another number")
                saved = None  # its node sets it aside
            host.step = saved.step if saved is not None else 0
        host.condition, host.due = "running", self.now + self.until_over(QUANTUM_SECONDS)
        self.begun.add(host.run.trial)
        return self.tell(
            RunStarted(host.run, host.step, 0.1),
            FidelityKnown(host.run, model.fidelity, "", model.framework),
        )

    def trains(self, host: Host) -> None:
        model, width = self.model(host.run.trial), len(host.devices)
        each = [self.state.slots[device].device.memory_bytes for device in host.devices]
        if model.memory * GIB > min(each) * width:
            return self.fails(host, "exception", "out of memory", each.index(min(each)))
        host.step += 1
        self.begun.add(host.run.trial)
        report = reported(str(host.run), host.step, [1.0], busy_seconds=QUANTUM_SECONDS / width)
        if self.is_wild and self.dice.random() < 0.03:
            del self.hosts[host.run]
            return self.tell(RunCompleted(host.run, host.step, self.saved(host)))
        return self.tell(
            replace(report, planned_steps=10_000), QuantumEnded(host.run, host.grant, host.step)
        )

    def leaves(self, host: Host) -> None:
        asked, model = host.asked, self.model(host.run.trial)
        if isinstance(asked, Stop):
            del self.hosts[host.run]
            return self.tell(RunSuspended(host.run, Tier.KILL, host.step, None, 0.1))
        assert asked is not None
        restorable = model.fidelity is Fidelity.EXACT
        if asked.tier is Tier.CHECKPOINT and restorable:
            del self.hosts[host.run]
            saved = self.saved(host)
            return self.tell(RunSuspended(host.run, Tier.CHECKPOINT, host.step, saved, 0.1))
        host.condition = "parked"
        return self.tell(RunSuspended(host.run, Tier.PARK, host.step, None, 0.1))

    def saved(self, host: Host) -> Checkpoint | None:
        if self.model(host.run.trial).fidelity is not Fidelity.EXACT:
            return None
        saved = checkpoint(str(host.run), host.step, len(host.devices))
        return replace(saved, nodes=(host.node,))

    # What may happen.

    def goes_wild(self) -> None:
        """One thing that happens to the cluster, or that a person does."""
        deeds = {
            self.a_node_comes: 6,
            self.a_node_goes: 4,
            self.a_device_fails: 2,
            self.a_person_sees_to_a_node: 6,
            self.a_study_comes: 4,
            self.a_person_sees_to_trials: 5,
            self.a_fork_comes: 3,
            self.quotas_change: 1,
            self.a_run_fails: 5,
            self.restart: 2,
        }
        deed = self.dice.choices(list(deeds), list(deeds.values()))[0]
        deed()

    def request(self) -> str:
        return f"r{next(self.numbers)}"

    def a_node_comes(self) -> None:
        node = self.dice.choice(NODES)
        if node in self.away and self.dice.random() < 0.5:
            self.there[node] = self.away.pop(node)  # as it was
        elif node not in self.there or self.dice.random() < 0.3:
            self.away.pop(node, None)
            self.loses_hosts(node)
            if node in self.there:
                self.tell(NodeSilent(node, "it is started anew"))
            kinds, memory = self.machines[node]
            made = joined(self.dice.randint(1, 4), node, "", (), kinds, memory)
            self.there[node] = made.devices
        self.says_hello(node) if node in self.there else None

    def a_node_goes(self) -> None:
        if not self.there:
            return
        node = self.dice.choice(sorted(self.there))
        self.away[node] = self.there.pop(node)
        self.tell(NodeSilent(node, "cut"))
        if self.dice.random() < 0.5:
            self.loses_hosts(node)
            if self.dice.random() < 0.5:
                del self.away[node]
                self.tell(NodeLost(node, left=True))
        elif self.dice.random() < 0.3:
            self.passes(LEASE.silence_seconds + 1.0)
            self.loses_hosts(node)

    def a_device_fails(self) -> None:
        devices = [device for each in self.there.values() for device in each]
        if devices:
            failed = self.dice.choice(devices).id
            self.tell(DeviceFailed(failed, "Xid"))
            for host in list(self.hosts.values()):
                if failed in host.devices and host.condition in ("starting", "running"):
                    self.fails(host, "lost", "its device failed")

    def a_person_sees_to_a_node(self) -> None:
        node = self.dice.choice(NODES)
        if node in self.state.nodes:
            wishes: list[Event] = [
                NodeDrained(node, self.request()),
                NodeUndrained(node, self.request()),
                Yielded(node, "its owner is back"),
                Reclaimed(node),
            ]
            self.tell(self.dice.choice(wishes))

    def a_study_comes(self) -> None:
        if len(self.state.studies) > 4:
            return
        name = f"s{len(self.state.studies)}"
        devices, most = self.dice.choice([(1, 0), (1, 0), (2, 0), (4, 0), (1, 2), (1, 4), (2, 4)])
        places = ["free", "homes"] if max(devices, most) == 1 else ["free"]
        event = submitted(
            self.dice.randint(1, 3),
            name,
            owner="ann",
            policy=TURNS,
            placement=Plugin(self.dice.choice(places)),
            devices=devices,
            most_devices=most,
            max_failures=1000,
            retry_rules=RULES,
            tier=self.dice.choice([None, Tier.CHECKPOINT]),
            replicas=self.dice.choice([0, 0, 1]),
            required_paths=self.dice.choice([(), (), (), ("/data",)]),
            device_kind=self.dice.choice(["", "", "", "", "cpu", "slow"]),
            memory_bytes=self.dice.choice([0, 0, 0, 0, 2 * GIB, 4 * GIB]),
        )
        self.tell(event)

    def some(self, trials: Iterable[Trial]) -> tuple[TrialId, ...]:
        found = sorted(trial.id for trial in trials)
        return tuple(self.dice.sample(found, min(len(found), self.dice.randint(1, 3))))

    def a_person_sees_to_trials(self) -> None:
        trials = list(self.state.trials.values())
        over = [trial for trial in trials if trial.phase.final]
        match self.dice.choice(["pause", "unpause", "cancel", "retry", "extend"]):
            case "pause" if chosen := self.some(trials):
                self.tell(Paused(chosen, self.request()))
            case "unpause" if chosen := self.some(trials):
                self.tell(Unpaused(chosen, self.request()))
            case "cancel" if (chosen := self.some(trials)) and self.dice.random() < 0.3:
                self.tell(Cancelled(chosen, self.request()))
            case "retry" if chosen := self.some(over):
                self.tell(Retried(chosen, self.request()))
            case "extend" if chosen := self.some(over)[:1]:
                study, argv = self.state.trials[chosen[0]].spec.study, (("again",),)
                self.tell(Extended(study, chosen, StopRule(), (), argv, self.request()))
            case _:
                pass

    def a_fork_comes(self) -> None:
        for trial in self.state.trials.values():
            saved, study = trial.checkpoint, trial.spec.study
            if saved is not None and len(self.state.members[study]) < 5:
                fork = trial_spec(f"{study}/{len(self.state.members[study])}")
                self.models[fork.id] = self.model(trial.id)
                self.tell(Added(study, (fork,), self.request(), (saved,)))
                return

    def quotas_change(self) -> None:
        most = {user: self.dice.choice([None, None, 1, 2]) for user in ("ann", "bob")}
        terms = tuple((user, Terms(1.0, each)) for user, each in most.items())
        self.tell(TermsSet(1e3, terms))

    def a_run_fails(self) -> None:
        hosts = [host for host in self.hosts.values() if host.node in self.there]
        if not hosts:
            return
        host = self.dice.choice(hosts)
        number = next(self.numbers)
        if host.condition == "parked":
            del self.hosts[host.run]
            self.tell(ParkLost(host.run, "its process died"))
        elif host.condition == "starting" and host.saved and self.dice.random() < 0.7:
            self.fails(host, RESTORE, f"reset {number}")
        elif host.condition in ("starting", "running"):
            kind = self.dice.choice(["lost", "not_started", "exception"])
            self.fails(host, kind, f"error {number}")

    # In the end.

    def calms_down(self) -> None:
        """All that people and operators keep from trials is given back; what is away stays away."""
        self.is_wild = False
        while len(self.there) < 2:
            self.a_node_comes()
        self.tell(TermsSet(1e3, ()))
        for node in self.away:
            self.loses_hosts(node)
        for node in self.state.nodes:
            self.tell(NodeUndrained(node, self.request()), Reclaimed(node))
        self.tell(Unpaused(tuple(self.state.trials), self.request()))
        for node in self.there:
            self.says_hello(node)
        self.passes(2 * LEASE.silence_seconds)

    def usable(self, trial: Trial) -> dict[DeviceId, None]:
        """The devices on which the trial could run, as far as physics goes: as many as what it goes
        on from is of, or on any number if there are not so many. Those that it may leave to others
        are among them only if there are not enough without them: they are in quarantine, or it
        failed there."""
        study, made_for = self.state.studies[trial.spec.study], self.state.made_for(trial)
        others = range(study.devices, study.widest + 1)
        if made_for and not (trial.keeps_width or has_own_beginning(trial)):
            others = range(0)  # nothing else is as much: it waits for a node that may come back
        for widths in ([made_for], others):
            for suspect in (False, True):
                if found := self.those(trial, widths, suspect):
                    return found
        return {}

    def those(self, trial: Trial, widths: Iterable[int], suspect: bool) -> dict[DeviceId, None]:
        study = self.state.studies[trial.spec.study]
        node, memory = self.state.parked_on(trial), self.model(trial.id).memory * GIB
        is_movable = trial.fidelity.restorable and self.state.made_for(trial) <= 1
        nodes = list(self.there) if node is None or is_movable else [node]
        found: dict[DeviceId, None] = {}
        for width, each in product(filter(None, widths), nodes):
            if each != node and not set(study.paths) <= set(self.paths[each]):
                continue
            able = [
                device
                for device in self.there.get(each, ())
                if device.memory_bytes * width >= memory and self.state.slots[device.id].sound
                if asked_for(study, device)
                if suspect or not is_suspect(self.state, trial, device.id)
            ]
            kinds = Counter(device.kind for device in able)
            found |= {device.id: None for device in able if kinds[device.kind] >= width}
        if self.state.placement_of(trial.spec.study).name == "homes":
            return {trial.home: None} if trial.home and trial.home in found else {}
        return found

    def waiting(self) -> list[Trial]:
        """The trials that have not begun since, and could."""
        trials = self.state.trials.values()
        rest = [t for t in trials if not t.phase.final and t.id not in self.begun]
        return [each for each in rest if not each.awaits_fork and self.has_turn(each)]

    def has_turn(self, trial: Trial) -> bool:
        """Whether there is a device for it. What is parked stays where it is until it has its turn
        there, or a device elsewhere is free."""
        at, usable = self.state.parked_on(trial), self.usable(trial)
        runs = [other.run for other in self.state.trials.values() if other.run]
        taken = {device for run in runs for device in run.devices}
        return any(d not in taken or at in (None, d.partition("/")[0]) for d in usable)


@pytest.mark.parametrize("seed", range(WORLDS))
def test_whatever_happened_a_trial_that_could_run_has_its_turn(seed: int) -> None:
    world = World(seed)
    for _ in range(world.dice.randint(10, 60)):
        world.goes_wild()
        world.passes(world.dice.choice([0.0, 0.5, 5.0, 40.0, 200.0]))
    world.calms_down()
    world.begun.clear()
    for _ in range(CALM_QUANTA):
        world.passes(QUANTUM_SECONDS)
        if not world.waiting():
            break
    left = {t.id: world.scheduler.explain(t.id, world.now).summary for t in world.waiting()}
    assert not left
    world.state.check()


@pytest.mark.parametrize("seed", range(WORLDS))
def test_of_a_study_that_a_device_bars_no_trial_could_be_put_there(seed: int) -> None:
    world = World(seed)
    for _ in range(60):
        world.goes_wild()
        world.passes(world.dice.choice([0.0, 0.5, 5.0, 40.0, 200.0]))
        state, queues = world.state, world.scheduler._queues
        for study, device in product(state.studies, state.slots):
            able = [
                trial_id
                for trial_id in state.members[study]
                if (trial := state.trials[trial_id]).phase is Phase.WAITING
                if queues.takes(trial, device) or queues.could_take(trial, device)
            ]
            assert not (able and queues.bars(study, device))
