"""A test that reads as the conversation: what the scheduler is told, and what it answers.

    play(trials=2, policy=Plugin("round_robin")).at(0).tell(joined()).expect(
        "launch s/0#1 on n/0 for 30 s"
    )

Every line is checked: the invariants hold, deciding again says nothing, and a replay of all that
was said so far gives the same state.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, assert_never

import pytest

from hermesd.core.commands import (
    Bind,
    Command,
    Copy,
    Drop,
    Gather,
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
from hermesd.core.decide.scheduler import LeaseTerms, Scheduler
from hermesd.core.events import (
    Added,
    Checkpointed,
    Event,
    Extended,
    MilestonePassed,
    NodeJoined,
    QuantumEnded,
    Reported,
    RunCompleted,
    RunFailed,
    RunStarted,
    RunSuspended,
    SignalChosen,
    Submitted,
)
from hermesd.core.losses import chunked
from hermesd.core.model import (
    Checkpoint,
    Device,
    DeviceId,
    Goal,
    LiveRun,
    MetricMode,
    Plugin,
    Program,
    Quantum,
    RunId,
    Stage,
    StopRule,
    Study,
    Tier,
    Time,
    TrialId,
    TrialSpec,
)
from hermesd.core.placement import make_placement
from hermesd.core.state import Rejected, State
from hermesd.core.tables import Members, Tables
from hermesd.core.trial import Trial
from hermesd.head.reader import still
from hermesd.pieces import whole
from hermesd.policy import make_policy

LEASE = LeaseTerms()


def study(name: str = "s", **changes: Any) -> Study:
    """A study that only the test's own changes make special."""
    plain = Study(
        id=name,
        owner="ann",
        pool="default",
        metric="loss",
        goal=Goal.MINIMIZE,
        mode=MetricMode.LAST,
        signal="loss",
        signal_goal=Goal.MINIMIZE,
        policy=Plugin("fifo"),
        placement=Plugin("free"),
        program=Program(("train.py",), "python3", "c0de", "/"),
        stop=StopRule(),
        submitted=0.0,
        fingerprint=name,
        source=b"",
    )
    return replace(plain, **changes)


def submitted(trials: int = 1, name: str = "s", **changes: Any) -> Submitted:
    """A study of trials s/0, s/1 ..."""
    specs = tuple(trial_spec(f"{name}/{n}") for n in range(trials))
    return Submitted(study(name, **changes), specs, f"submit {name}")


def trial_spec(trial: TrialId) -> TrialSpec:
    """A trial by its id, at no point of any space."""
    name, _, number = trial.rpartition("/")
    return TrialSpec(trial, name, int(number), (Stage(None, ()),), (), int(number))


def joined(
    devices: int = 1,
    node: str = "n",
    boot: str = "b1",
    live: Sequence[LiveRun] = (),
    kinds: Sequence[str] = ("cpu",),
    memory: Sequence[int] = (1 << 30,),
) -> NodeJoined:
    """A node's Hello, with devices n/0, n/1 ... of these kinds and bytes by turns."""
    named = tuple(
        Device(f"{node}/{i}", node, kinds[i % len(kinds)], memory[i % len(memory)])
        for i in range(devices)
    )
    return NodeJoined(node, boot, named, tuple(live))


def run(name: str) -> RunId:
    """The run that `s/0#1` names."""
    trial, attempt = name.rsplit("#", 1)
    return RunId(trial, int(attempt))


def live(name: str, condition: str = "running", device: str = "n/0", step: int = 0) -> LiveRun:
    return LiveRun(run(name), condition, (device,), step)


def started(name: str, step: int = 0, planned: int | None = None) -> RunStarted:
    return RunStarted(run(name), step, 0.1, planned)


def reported(name: str, step: int, losses: Sequence[float], **known: Any) -> Reported:
    """Losses of the iterations up to `step`."""
    return Reported(run(name), step, chunked(step - len(losses) + 1, losses), **known)


def quantum_ended(name: str, grant: int = 0, step: int = 0) -> QuantumEnded:
    return QuantumEnded(run(name), grant, step)


def milestone(name: str, percent: float, loss: float, step: int) -> MilestonePassed:
    return MilestonePassed(run(name), percent, loss, step)


def checkpoint(name: str, step: int, devices: int = 0) -> Checkpoint:
    """The checkpoint that a run took at a step, on its node."""
    stay = run(name)
    id = f"{name}@{step}"
    return Checkpoint(id, stay.trial, stay.attempt, step, "5ha", 1, ("n",), devices=devices)


def checkpointed(name: str, step: int) -> Checkpointed:
    return Checkpointed(run(name), checkpoint(name, step))


def parked(name: str, step: int = 0) -> RunSuspended:
    return RunSuspended(run(name), Tier.PARK, step, None, 0.01)


def written(name: str, step: int, devices: int = 0) -> RunSuspended:
    """Suspended by way of a checkpoint."""
    return RunSuspended(run(name), Tier.CHECKPOINT, step, checkpoint(name, step, devices), 0.5)


def killed(name: str, step: int = 0, kept: Checkpoint | None = None) -> RunSuspended:
    return RunSuspended(run(name), Tier.KILL, step, kept, 0.5)


def completed(name: str, step: int = 0) -> RunCompleted:
    return RunCompleted(run(name), step)


def crashed(name: str, step: int = 0, signature: str = "") -> RunFailed:
    return RunFailed(run(name), "exception", "it broke", signature, step)


def limits(quantum: Quantum) -> str:
    """A quantum in words, "" when it never ends."""
    said = [f"{quantum.seconds:g} s"] if quantum.seconds is not None else []
    said += [f"step {quantum.until_step}"] if quantum.until_step is not None else []
    return f" for {' or '.join(said)}" if said else ""


def say(command: Command) -> str:
    """A command in the words of a playbook."""
    match command:
        case Launch(stay, devices, quantum, _, before, kept):
            source = f" from {before}" if before else f" from {kept}" if kept else ""
            return f"launch {stay} on {', '.join(devices)}{limits(quantum)}{source}"
        case Renew(stay, grant, quantum, _, extends):
            return f"{'extend' if extends else 'renew'} {stay}.{grant}{limits(quantum)}"
        case Suspend(stay, tier, _, successor):
            how = f" by {tier}" if tier else ""
            return f"suspend {stay}{how}{f' for {successor}' if successor else ''}"
        case Stop(stay):
            return f"stop {stay}"
        case Kill(stay, node):
            return f"kill {stay} on {node}"
        case Bind(trial, device):
            return f"bind {trial} to {device}"
        case Gather(trial, devices):
            return f"gather {', '.join(devices) or 'nothing'} for {trial}"
        case WriteDown(stay, node):
            return f"write down {stay} on {node}"
        case Copy(_, saved, source, target):
            return f"copy {saved} from {source} to {target}"
        case Drop(trial, node):
            return f"drop {trial} on {node}"
        case Look(node, paths, condas=condas):
            return f"look on {node} at {', '.join((*paths, *condas))}"
        case Quarantine(place, until):
            return f"quarantine {place} until {until:.0f}"
        case Miss(trial, what, found):
            return f"{'found' if found else 'miss'} {what} for {trial}"
        case Trust(place):
            return f"trust {place}"
        case Release(trial, node, forget):
            return f"{'forget' if forget else 'release'} {trial} on {node}"
        case _:
            assert_never(command)


def tables(state: Tables) -> dict[str, object]:
    """All that replay must give back, in its order; the others are the scheduler's own note of what
    it has not looked at yet."""
    own = ("dirty", "taken", "ended")
    return {name: _ordered(value) for name, value in vars(state).items() if name not in own}


def _ordered(table: object) -> object:
    if not isinstance(table, dict):
        return table
    return [(key, _ordered(value)) for key, value in table.items()]


def ahead(state: State, event: Event, now: Time) -> State | None:
    """A copy of the state after the event, folded as one about very many trials is; None: of that
    kind it never is, or it is illegal."""
    if not isinstance(event, (Submitted, Added, Extended, SignalChosen)):
        return None
    copy = still(state)
    copy.members = {study: Members(trials) for study, trials in state.members.items()}
    with suppress(Rejected):
        copy.apply(event, now, copy.holding(whole(still(state).found_ahead(event, now))))
        return copy
    return None


class Playbook:
    """One conversation with a scheduler."""

    def __init__(self, at_once: int | None = None) -> None:
        self.state = State()
        self.scheduler = Scheduler(self.state, make_policy, make_placement, LEASE, at_once=at_once)
        self.now: Time = 0.0
        self.entries: list[tuple[Event | Command, Time]] = []
        self._unheard: list[str] = []
        self._replayed = State()  # of so many of the entries
        self._replayed_entries = 0

    def at(self, now: Time) -> Playbook:
        """It is that time; what time itself causes is told."""
        self.now = now
        while due := self.scheduler.due(now):
            self.tell(*due)
        return self.tell()

    def tell(self, *events: Event) -> Playbook:
        """One batch: every event, then one decision."""
        for event in events:
            found = ahead(self.state, event, self.now)
            self.scheduler.observe(event, self.now)
            self.entries.append((event, self.now))
            assert found is None or tables(found) == tables(self.state)
        commands = self.scheduler.decide(self.now)
        self.entries += [(each.event, self.now) for each in self.scheduler.take_failures()]
        self.entries += [(command, self.now) for command in commands]
        # What is only noted for a restart is nothing that is done.
        self._unheard += [say(each) for each in commands if not isinstance(each, Miss)]
        self._check()
        return self

    def heard(self) -> list[str]:
        """What was said since the last time."""
        heard, self._unheard = self._unheard, []
        return heard

    def expect(self, *commands: str) -> Playbook:
        """Exactly this was said since the last time."""
        heard = self.heard()
        assert heard == list(commands), "\n" + "\n".join(difflib.ndiff(commands, heard))
        return self

    def refuses(self, event: Event, why: str) -> Playbook:
        """The event is illegal here, and leaves everything as it was."""
        before = {name: repr(value) for name, value in vars(self.state).items()}
        with pytest.raises(Rejected, match=why):
            self.scheduler.observe(event, self.now)
        assert before == {name: repr(value) for name, value in vars(self.state).items()}
        return self

    def outstanding(self, node: str = "n") -> list[str]:
        return [say(command) for command in self.scheduler.outstanding(node)]

    def trial(self, trial_id: str = "s/0") -> Trial:
        return self.state.trials[trial_id]

    def busy(self, device: DeviceId = "n/0") -> str | None:
        """The run on a device."""
        holder = self.state.slots[device].run
        return str(holder) if holder else None

    def _check(self) -> None:
        self.state.check()
        assert self.scheduler.is_behind or self.scheduler.decide(self.now) == []
        for entry, at in self.entries[self._replayed_entries :]:
            self._replayed.apply(entry, at)
        self._replayed_entries = len(self.entries)
        assert tables(self._replayed) == tables(self.state)


def play(trials: int = 1, devices: int | None = 1, **changes: Any) -> Playbook:
    """A study submitted to a pool of one node (none yet if `devices` is None)."""
    book = Playbook().tell(submitted(trials, **changes))
    return book if devices is None else book.tell(joined(devices))
