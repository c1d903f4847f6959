"""A head and hosts that speak with a node's machine: their words, and what it said to each."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from hermesd.core.commands import Launch, Suspend
from hermesd.core.events import FidelityKnown, Reported
from hermesd.core.losses import chunked
from hermesd.core.model import Checkpoint, Fidelity, Goal, Program, Quantum, RunId, RunTerms, Tier
from hermesd.core.node.actions import Action, TellHead
from hermesd.core.node.machine import NodeMachine, NodeTerms
from hermesd.core.node.messages import (
    Assignment,
    Input,
    LeaseExtended,
    Parked,
    Progress,
    Started,
    Work,
)

CPU, OTHER, GPU = "n1/cpu0", "n1/cpu1", "n1/gpu0"
TERMS = NodeTerms({CPU: Tier.PARK, OTHER: Tier.PARK, GPU: Tier.CHECKPOINT})
ONE, TWO = RunId("digits/1", 1), RunId("digits/1", 2)
RIVAL = RunId("digits/2", 1)
WORK = Work(Program(("train.py",), "python3", "", "/"), (), "loss", Goal.MINIMIZE, 1)


def checkpoint(run: RunId, step: int) -> Checkpoint:
    return Checkpoint(f"{run.trial}@s{step}", run.trial, run.attempt, step, "sum", 10, ("n1",))


def order(
    run: RunId,
    device: str = CPU,
    quantum: Quantum | None = None,
    parked: RunId | None = None,
    restore: Checkpoint | None = None,
) -> Assignment:
    launch = Launch(
        run, (device,), quantum or Quantum(), "", parked, restore.id if restore else None
    )
    return Assignment(launch, restore, WORK, RunTerms(suspend_deadline_seconds=30))


def with_terms(order: Assignment, **terms: Any) -> Assignment:
    """The same order of a study that asks for this."""
    return replace(order, terms=replace(order.terms, **terms))


def progress(run: RunId, step: int, *losses: float) -> Progress:
    chunks = chunked(step - len(losses) + 1, losses)
    return Progress(Reported(run, step, chunks))


def exact(run: RunId) -> FidelityKnown:
    return FidelityKnown(run, Fidelity.EXACT, "", "keras")


def suspend(run: RunId, tier: Tier | None = None) -> Suspend:
    return Suspend(run, tier, 5.0, None, "its quantum is over")


class Told:
    """A machine with a good lease, and what it said about each input."""

    def __init__(self, terms: NodeTerms = TERMS, lease: float = 1e9) -> None:
        self.machine = NodeMachine(terms)
        self.now = 1000.0
        self.machine.handle(LeaseExtended(lease), self.now)

    def says(self, message: Input, after: float = 0.0) -> list[Action]:
        self.now += after
        return self.machine.handle(message, self.now)

    def later(self, seconds: float) -> list[Action]:
        """What it says by itself until so many seconds have passed, woken when it asked to be."""
        said: list[Action] = []
        end = self.now + seconds
        while (due := self.machine.deadline) is not None and due <= end:
            self.now = max(self.now, due)
            said += self.machine.tick(self.now)
        self.now = end
        return said

    def all(self, *messages: Input) -> list[Action]:
        return [action for message in messages for action in self.says(message)]

    def running(self, run: RunId = ONE, device: str = CPU, quantum: Quantum | None = None) -> None:
        self.all(order(run, device, quantum), Started(run, 0), exact(run))

    def parked(self, run: RunId = ONE, device: str = CPU, memory_bytes: int = 0) -> None:
        self.running(run, device)
        self.all(suspend(run), Parked(run, 7, memory_bytes))

    def live(self) -> list[tuple[RunId, str]]:
        return [(live.run, live.condition) for live in self.machine.live()]


def events(actions: Iterable[Action]) -> list[object]:
    return [action.event for action in actions if isinstance(action, TellHead)]
