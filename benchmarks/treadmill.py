"""The production scheduler under a load that does not end: for benchmarks of its decisions.

A step is what the head does when a quantum ends: fold the report and the end, decide, fold the
release, decide again. Only its own work is timed; the node's part takes no time. All of it is
computing on one core, so processor time is what counts: other work on the machine does not.
"""

from __future__ import annotations

import gc
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace

from hermesd.core.commands import Command, Launch, Suspend
from hermesd.core.decide.scheduler import Scheduler
from hermesd.core.events import (
    NodeJoined,
    QuantumEnded,
    Reported,
    RunStarted,
    RunSuspended,
    Submitted,
)
from hermesd.core.losses import QuantumLosses, chunked
from hermesd.core.model import (
    Device,
    Goal,
    MetricMode,
    Phase,
    Plugin,
    Program,
    RunId,
    Stage,
    StopRule,
    Study,
    Tier,
    TrialSpec,
)
from hermesd.core.placement import make_placement
from hermesd.core.state import State
from hermesd.core.trial import Use
from hermesd.policy import make_policy

PLANNED, A_QUANTUM = 1_000, 50
OPTIMIZERS, RATES = ("sgd", "adam", "rmsprop"), tuple(10.0**-n for n in range(1, 6))


def study(policy: str, trials: int, name: str = "bench", submitted: float = 0.0) -> Submitted:
    """A study of `trials` trials under a policy, each with three hyper-parameters."""
    program = Program(("python", "train.py"), "python", "", "")
    spec = Study(
        id=name, owner="me", pool="default", metric="loss", goal=Goal.MINIMIZE,
        mode=MetricMode.LAST, signal="loss", signal_goal=Goal.MINIMIZE, policy=Plugin(policy),
        placement=Plugin("free"), program=program, stop=StopRule(), submitted=submitted,
        fingerprint="", source=b"",
    )  # fmt: skip
    members = tuple(
        TrialSpec(f"{name}/{n}", name, n, (Stage(None, _values(n)),), ("python",), n)
        for n in range(trials)
    )
    return Submitted(spec, members, name)


def _values(number: int) -> tuple[tuple[str, str | float | int], ...]:
    return (
        ("optimizer", OPTIMIZERS[number % 3]),
        ("lr", RATES[number // 3 % 5]),
        ("units", number // 15 % 64),
    )


def losses(number: int, first: int, count: int) -> list[float]:
    """A trial's losses: 1 / k to a floor, each trial at a pace of its own."""
    pace = 0.2 + number * 7_919 % 1_000 / 1_000
    return [0.1 / pace + 5.0 / (1 + pace * step / 20) for step in range(first, first + count)]


class Treadmill:
    """A study with its devices, of which every one has been filled.

    `sort_seconds` is what the first decision took, over all trials and without a device;
    `fill_seconds` that of the next, in which all devices are free at once. With `trained`, every
    trial has had its first quantum before. `earlier` trials of two studies before it have ended.
    """

    def __init__(
        self, policy: str, trials: int, devices: int, trained: bool = False, earlier: int = 0
    ) -> None:
        self.scheduler = Scheduler(State(), make_policy, make_placement)
        self.now = 0.0
        for name in ("before", "earlier") if earlier else ():
            self.scheduler.observe(study(policy, earlier // 2, name, -1.0), self.now)
            self._train(name, Phase.COMPLETED)
        self.scheduler.observe(study(policy, trials), self.now)
        if trained:
            self._train("bench", Phase.WAITING)
        # A daemon's state was made long before: no collection is due for it.
        gc.collect()
        _, (self.sort_seconds,) = self._decided()
        names = tuple(Device(f"n/cpu:{i}", "n", "cpu", 1 << 34, (i,)) for i in range(devices))
        self.scheduler.observe(NodeJoined("n", "boot", names, ()), self.now)
        gc.collect()
        commands, (self.fill_seconds,) = self._decided()
        self._running: deque[RunId] = deque()
        self._start(commands)
        self.scheduler.decide(self.now)

    def _train(self, name: str, phase: Phase) -> None:
        state = self.scheduler.state
        for trial in [state.trials[each] for each in state.members[name]]:
            values = losses(trial.spec.number, 1, A_QUANTUM)
            chunks = chunked(1, values)
            seen = QuantumLosses().with_chunks(chunks)
            state.put(
                replace(
                    trial, phase=phase, finished=0.0 if phase.final else None,
                    step=A_QUANTUM, planned_steps=PLANNED, curve=chunks, quanta=1,
                    first=seen, latest=seen, served_seconds=1.0, step_seconds={"cpu": 0.02},
                    use=Use(busy_seconds=1.0),
                )
            )  # fmt: skip

    def _start(self, commands: list[Command]) -> list[RunId]:
        """What a node says to launches, at once."""
        launched = [command.run for command in commands if isinstance(command, Launch)]
        for run in launched:
            step = self.scheduler.state.trials[run.trial].step
            self.scheduler.observe(RunStarted(run, step, 0.1, PLANNED), self.now)
        self._running.extend(launched)
        return launched

    def steps(self) -> Iterator[tuple[float, list[float]]]:
        """For each end of a quantum, the seconds of all that and those of each decision."""
        scheduler = self.scheduler
        while True:
            run = self._running.popleft()
            trial = scheduler.state.trials[run.trial]
            assert trial.run is not None
            values = losses(trial.spec.number, trial.step + 1, A_QUANTUM)
            chunks, step = chunked(trial.step + 1, values), trial.step + A_QUANTUM
            self.now += 0.1
            begun = time.process_time()
            scheduler.observe(Reported(run, step, chunks, busy_seconds=1.0), self.now)
            scheduler.observe(QuantumEnded(run, trial.run.grant, step), self.now)
            commands, decisions = self._decided()
            if any(isinstance(command, Suspend) for command in commands):
                scheduler.observe(RunSuspended(run, Tier.PARK, step, None, 0.01), self.now)
                commands, more = self._decided()
                decisions += more
            yield time.process_time() - begun, decisions
            if not self._start(commands):
                self._running.append(run)

    def _decided(self) -> tuple[list[Command], list[float]]:
        begun = time.process_time()
        commands = self.scheduler.decide(self.now)
        return commands, [time.process_time() - begun]
